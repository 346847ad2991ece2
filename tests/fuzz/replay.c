/* replay.c: runs a fuzzer's seed corpus without a fuzzer, so that every build and every sanitizer sees these inputs: also those
 * that once made a parser fail. Built with each fuzz_*.c into a test program of its own. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    rewind(f);
    /* Exactly as large as the input: a byte too far is seen by the address sanitizer. */
    uint8_t *data = size < 0 ? NULL : malloc(size ? (size_t)size : 1);
    if (!data || fread(data, 1, (size_t)size, f) != (size_t)size) size = -1;
    fclose(f);
    if (size >= 0) LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return size >= 0 ? 0 : -1;
}

static int named(const struct dirent *d) {
    return d->d_name[0] != '.';
}

int main(void) {
    struct dirent **entry;
    int passed = 0, failed = 0, n = scandir(WEFT_CORPUS, &entry, named, alphasort);
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", WEFT_CORPUS, entry[i]->d_name);
        printf("%s\n", path); /* the last one shown is the one that crashed */
        fflush(stdout);
        if (run_file(path) == 0)
            passed++;
        else
            failed++;
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    if (n <= 0) printf("no seed inputs in %s\n", WEFT_CORPUS);
    printf("%d passed, %d failed\n", passed, failed + (n <= 0));
    return failed || n <= 0;
}

/* fuzz_usage.c: counts of ids from a file that anybody may have written. The checksum is set right first, so that what it guards is
 * reached, too; what is refused leaves no count. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "format/usage.h"

enum { VOCAB = 300 };

static void require(bool ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t source[16] = "a checkpoint";
    uint32_t counts[VOCAB];
    for (int right = 0; right < 2; right++) {
        uint8_t *file = malloc(size ? size : 1);
        if (size) memcpy(file, data, size);
        if (right && size >= sizeof(uint64_t)) {
            uint64_t sum = weft_hash(file, size - sizeof sum, 0);
            memcpy(file + size - sizeof sum, &sum, sizeof sum);
        }
        weft_error e = {0};
        memset(counts, 0xFF, sizeof counts);
        weft_status s = weft_usage_parse(file, size, source, VOCAB, counts, &e);
        size_t n = 0;
        for (int i = 0; i < VOCAB; i++) n += counts[i] > 0;
        if (s == WEFT_OK)
            require(size == 40 + 8 * n + 8);
        else
            require(!n && e.text[0]);
        free(file);
    }
    return 0;
}

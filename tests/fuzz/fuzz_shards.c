/* fuzz_shards.c: a shard index from a stranger. No accepted one may name a file outside its folder. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/shards.h"

static void require(bool ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size ? size : 1);
    if (size) memcpy(text, data, size);
    weft_shards s;
    weft_error e;
    if (weft_shards_parse(&s, text, size, &e) == WEFT_OK) {
        require(s.n_files > 0 && s.n_files <= s.n_entries);
        for (size_t i = 0; i < s.n_files; i++) {
            require(!strpbrk(s.files[i], "/\\:") && s.files[i][0] != '.' && s.files[i][0]);
            require(i == 0 || strcmp(s.files[i - 1], s.files[i]) < 0);
        }
        for (size_t i = 0; i < s.n_entries; i++) {
            size_t f = 0;
            while (f < s.n_files && s.files[f] != s.entries[i].file) f++;
            require(f < s.n_files && s.entries[i].tensor[0]);
        }
        weft_shards_free(&s);
    } else {
        require(!s.entries && !s.arena.head && e.text[0]);
    }
    free(text);
    return 0;
}

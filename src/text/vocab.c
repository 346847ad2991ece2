/* vocab.c: see vocab.h. */
#include "text/vocab.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

bool weft_vocab_init(weft_vocab *v, int32_t size, size_t n) {
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    v->token = weft_calloc((size_t)size, sizeof *v->token);
    v->table = weft_calloc(slots, sizeof *v->table);
    v->size = size;
    v->mask = slots - 1;
    return v->token && v->table;
}

void weft_vocab_free(weft_vocab *v) {
    weft_free(v->token);
    weft_free(v->table);
    *v = (weft_vocab){0};
}

static int32_t *slot(const weft_vocab *v, const char *name, size_t n) {
    for (size_t at = weft_hash(name, n, 0) & v->mask;; at = (at + 1) & v->mask) {
        int32_t id = v->table[at] - 1;
        if (id < 0 || (v->token[id].n_name == n && memcmp(v->token[id].name, name, n) == 0)) return &v->table[at];
    }
}

void weft_vocab_enter(weft_vocab *v, int32_t id) {
    *slot(v, v->token[id].name, v->token[id].n_name) = id + 1;
}

int32_t weft_vocab_find(const weft_vocab *v, const char *name, size_t n) {
    return *slot(v, name, n) - 1;
}

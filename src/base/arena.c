/* arena.c: a list of blocks; objects are cut from the newest. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { UNIT = 16, FIRST = 4096, LARGEST = 1 << 20 };

struct weft_arena_block {
    alignas(UNIT) weft_arena_block *older;
    size_t used, size; /* bytes after this header */
};

void *weft_arena_get(weft_arena *a, size_t n, size_t size) {
    size_t bytes;
    if (!weft_mul_size(n, size, &bytes) || !weft_add_size(bytes, UNIT - 1, &bytes)) return NULL;
    bytes -= bytes % UNIT;
    weft_arena_block *b = a->head;
    if (!b || b->size - b->used < bytes) {
        size_t room = !b ? FIRST : b->size < LARGEST ? b->size * 2 : LARGEST; /* doubling: few blocks for many objects */
        if (room < bytes) room = bytes;
        size_t total;
        if (!weft_add_size(room, sizeof *b, &total)) return NULL;
        weft_arena_block *fresh = weft_calloc(total, 1);
        if (!fresh) return NULL;
        fresh->size = room;
        if (b && room - bytes < b->size - b->used) { /* a large object takes a block to itself; the newest stays in use */
            fresh->older = b->older;
            b->older = fresh;
        } else {
            fresh->older = b;
            a->head = fresh;
        }
        b = fresh;
    }
    void *p = (char *)(b + 1) + b->used;
    b->used += bytes;
    return p;
}

char *weft_arena_str(weft_arena *a, const char *s, size_t n) {
    size_t bytes;
    if (!weft_add_size(n, 1, &bytes)) return NULL;
    char *copy = weft_arena_get(a, bytes, 1);
    if (copy && n) memcpy(copy, s, n);
    return copy;
}

void weft_arena_free(weft_arena *a) {
    for (weft_arena_block *b = a->head, *older; b; b = older) {
        older = b->older;
        weft_free(b);
    }
    a->head = NULL;
}

/* arena.h: many small objects with one lifetime (a parsed file, a model's descriptors), freed at once. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H

#include <stddef.h>

typedef struct weft_arena_block weft_arena_block;
typedef struct weft_arena {
    weft_arena_block *head; /* zero-initialise: {0} is an empty arena */
} weft_arena;

/* n * size zeroed bytes aligned to 16, or NULL (out of memory, overflow). */
void *weft_arena_get(weft_arena *a, size_t n, size_t size);
/* A terminated copy of s[0..n). */
char *weft_arena_str(weft_arena *a, const char *s, size_t n);
void weft_arena_free(weft_arena *a);

#endif

/* index_pool.c: see index_pool.h. */
#include "cache/index_pool.h"

#include <assert.h>

#include "base/alloc.h"

weft_status weft_index_pool_open(weft_index_pool *p, int n, const char *what, weft_error *e) {
    *p = (weft_index_pool){.n = n, .n_free = n};
    p->free = weft_calloc((size_t)n, sizeof *p->free);
    p->holders = weft_calloc((size_t)n, sizeof *p->holders);
    if (n && (!p->free || !p->holders)) {
        weft_index_pool_close(p);
        return weft_fail_oom(e, what);
    }
    for (int i = 0; i < n; i++) p->free[i] = n - 1 - i; /* low indices first */
    return WEFT_OK;
}

void weft_index_pool_close(weft_index_pool *p) {
    weft_free(p->free);
    weft_free(p->holders);
    *p = (weft_index_pool){0};
}

int weft_index_take(weft_index_pool *p) {
    if (!p->n_free) return -1;
    int i = p->free[--p->n_free];
    assert(p->holders[i] == 0);
    p->holders[i] = 1;
    return i;
}

bool weft_index_drop(weft_index_pool *p, int index) {
    assert(p->holders[index] > 0);
    if (--p->holders[index]) return false;
    p->free[p->n_free++] = index;
    return true;
}

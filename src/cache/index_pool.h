/* index_pool.h: who holds which of n equal things: KV pages, recurrent slots. An index is free or has a number of holders. */
#ifndef WEFT_CACHE_INDEX_POOL_H
#define WEFT_CACHE_INDEX_POOL_H

#include "base/error.h"

typedef struct weft_index_pool {
    int n, n_free;
    int *free;    /* [n]: the first n_free are free, the last one is taken next */
    int *holders; /* [n] */
} weft_index_pool;

weft_status weft_index_pool_open(weft_index_pool *p, int n, const char *what, weft_error *e);
void weft_index_pool_close(weft_index_pool *p);
int weft_index_take(weft_index_pool *p);             /* one holder; -1: none is free */
bool weft_index_drop(weft_index_pool *p, int index); /* one fewer; true: it is free now */

#endif

/* bandwidth.h: how fast this process reads memory: the limit of everything that streams weights, as decoding does.
 *
 * The same threads read a block that no cache holds, in several ways, of which the fastest counts: one run of addresses, or 2, 4 or
 * 8 runs side by side for each thread. Which of them keeps the memory busy depends on how many misses a core may have under way
 * and on what its prefetchers follow, so the best of them is the machine's own limit rather than one loop's. */
#ifndef WEFT_BASE_BANDWIDTH_H
#define WEFT_BASE_BANDWIDTH_H

#include <stddef.h>

#include "base/pool.h"

typedef struct weft_bandwidth weft_bandwidth;

/* Bytes of all last-level caches of the machine together; 0 where the system does not say. */
size_t weft_cache_bytes(void);

/* Takes a block of `bytes`, and writes it, so that it is memory of its own. 0: 1 GiB or 8 times the caches, whichever is more, but
 * at most an eighth of the memory that the process may use. The pool stays the caller's and must outlive the result. */
weft_status weft_bandwidth_open(weft_bandwidth **bandwidth, weft_pool *pool, size_t bytes, weft_error *e);
void weft_bandwidth_close(weft_bandwidth *b); /* NULL is fine */
size_t weft_bandwidth_bytes(const weft_bandwidth *b);

/* Reads the whole block once in each way; bytes a second of the fastest. */
double weft_bandwidth_measure(weft_bandwidth *b);

#endif

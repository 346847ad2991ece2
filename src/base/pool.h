/* pool.h: the worker threads.
 *
 * A job is cut into pieces that workers claim one at a time, so that a core taken away by the system costs one piece, not the
 * step. Idle workers spin for some microseconds, then sleep. Results never depend on who runs a piece. Every worker runs with
 * denormals flushed to zero (fpu.h). */
#ifndef WEFT_BASE_POOL_H
#define WEFT_BASE_POOL_H

#include "base/error.h"

typedef struct weft_pool weft_pool;
/* Runs piece `piece` (0-based) as worker `worker` (0 is the calling thread). */
typedef void (*weft_piece)(void *ctx, int piece, int worker);

/* Processors this process may use: the least of online processors, affinity mask and cgroup CPU quota (rounded up); at least 1. */
int weft_cpu_count(void);

/* threads 0: weft_cpu_count(); otherwise exactly that many (1..256), the caller included. */
weft_status weft_pool_open(weft_pool **pool, int threads, weft_error *e);
void weft_pool_close(weft_pool *pool);
int weft_pool_threads(const weft_pool *pool);
/* Returns when all pieces are done. One job at a time, from one thread; a piece must not call it. pool NULL: the caller does all. */
void weft_pool_run(weft_pool *pool, int pieces, weft_piece run, void *ctx);

#endif

/* log.c: one sink for the process. Lines come from any thread, one at a time: the lock is held while the sink runs, so that a
 * sink that was replaced is not running any more. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weft_log_sink to;
static void *to_ctx;
static atomic_int threshold = WEFT_LOG_ERROR + 1; /* silence costs one load */

void weft_log_to(weft_log_sink sink, void *ctx, weft_log_level least) {
    pthread_mutex_lock(&lock);
    to = sink;
    to_ctx = ctx;
    atomic_store(&threshold, sink ? (int)least : WEFT_LOG_ERROR + 1);
    pthread_mutex_unlock(&lock);
}

void weft_log(weft_log_level level, const char *fmt, ...) {
    if ((int)level < atomic_load(&threshold)) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    weft_format_line(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (to && (int)level >= atomic_load(&threshold)) to(to_ctx, level, line);
    pthread_mutex_unlock(&lock);
}

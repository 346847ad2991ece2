/* log.h: what the library has to say besides errors. The library itself prints nothing: a program installs a sink. Prompts,
 * answers and secrets are never logged. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include "base/error.h"

typedef enum weft_log_level { WEFT_LOG_DEBUG, WEFT_LOG_INFO, WEFT_LOG_WARN, WEFT_LOG_ERROR } weft_log_level;
typedef void (*weft_log_sink)(void *ctx, weft_log_level level, const char *line); /* line: UTF-8, no newline, no control bytes */

/* sink is called from any thread, one line at a time, and must not log; an old one is not running when this returns. */
void weft_log_to(weft_log_sink sink, void *ctx, weft_log_level least); /* sink NULL: silence, the default */
void weft_log(weft_log_level level, const char *fmt, ...) WEFT_PRINTF(2, 3);

#endif

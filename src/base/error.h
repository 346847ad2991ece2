/* error.h: filling in the caller's weft_error.
 *
 * Every layer reports through these. A message is one line: what is wrong, where (file, tensor, key), expected and found, and
 * what to do if that is not plain. weft_fail always returns its status, so that a failing path is one line. */
#ifndef WEFT_BASE_ERROR_H
#define WEFT_BASE_ERROR_H

#include <stdarg.h>

#include "weft.h"

#if defined(__GNUC__)
#define WEFT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define WEFT_PRINTF(fmt, args)
#endif

/* Writes code and text into e (if not NULL) and returns code. Control characters, text-reordering marks and bytes that are not
 * UTF-8 become '?', so that a hostile file name or key cannot forge lines in a log or drive a terminal. Too long a text is cut
 * between two characters. The arguments may point into e->text. */
weft_status weft_fail(weft_error *e, weft_status code, const char *fmt, ...) WEFT_PRINTF(3, 4);

/* Out of memory while doing `what`: the one message for every failed allocation. */
weft_status weft_fail_oom(weft_error *e, const char *what);

/* A failed system call: the text, ": " and the system's phrase for `number` (an errno). WEFT_ENOMEM for ENOMEM, else WEFT_EIO. */
weft_status weft_fail_os(weft_error *e, int number, const char *fmt, ...) WEFT_PRINTF(3, 4);

/* Puts "prefix: " before the text already in e (a file name around a parser's message); returns e's code. With e NULL that code
 * is not known and WEFT_EINVAL comes back: a caller that may be given NULL returns the status it holds. */
weft_status weft_fail_in(weft_error *e, const char *prefix);

/* What weft_fail does to its text, for other one-line texts: format (cut between characters, terminated), then clean. */
void weft_format_line(char *buf, size_t size, const char *fmt, va_list ap);
void weft_clean_line(char *text);

#if defined(__clang_analyzer__) && !defined(WEFT_ERROR_C)
/* The static analyzer looks at one file at a time: without this it thinks that a failing path may return WEFT_OK. */
#define weft_fail(e, code, ...) ((void)(weft_fail)(e, code, __VA_ARGS__), code)
#define weft_fail_oom(e, what) ((void)(weft_fail_oom)(e, what), WEFT_ENOMEM)
#define weft_fail_os(e, number, ...) ((void)(weft_fail_os)(e, number, __VA_ARGS__), WEFT_EIO)
#define weft_fail_in(e, prefix) ((void)(weft_fail_in)(e, prefix), WEFT_EINVAL)
#endif

/* Forwards a failure. The only macro that returns. */
#define WEFT_TRY(call)                                                                                                             \
    do {                                                                                                                           \
        weft_status try_status_ = (call);                                                                                          \
        if (try_status_ != WEFT_OK) return try_status_;                                                                            \
    } while (0)

#endif

/* str.h: a growing byte string. Always terminated, may hold any bytes. */
#ifndef WEFT_BASE_STR_H
#define WEFT_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct weft_str {
    char *p; /* NULL while empty and never grown; else p[n] == 0 */
    size_t n, cap;
} weft_str; /* zero-initialise */

/* All return false when memory is short; the string is then unchanged. What is added must not lie in the string itself. Numbers
 * are written with '.' as the point, whatever the locale. */
bool weft_str_add(weft_str *s, const void *bytes, size_t n);
bool weft_str_addz(weft_str *s, const char *z);
bool weft_str_addf(weft_str *s, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool weft_str_reserve(weft_str *s, size_t n); /* room for n bytes more */
void weft_str_clear(weft_str *s);             /* n = 0, memory kept */
void weft_str_free(weft_str *s);
/* The terminated text, "" while empty: never NULL. */
const char *weft_str_z(const weft_str *s);

bool weft_starts_with(const char *s, const char *prefix);
bool weft_ends_with(const char *s, const char *suffix);

#endif

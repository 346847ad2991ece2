/* str.c: a growing byte string. */
#include "base/str.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

bool weft_str_reserve(weft_str *s, size_t n) {
    size_t need;
    if (!weft_add_size(s->n, n, &need) || !weft_add_size(need, 1, &need)) return false;
    if (need <= s->cap) return true;
    size_t cap = s->cap < 32 ? 32 : s->cap + s->cap / 2;
    if (cap < need) cap = need;
    char *p = weft_realloc(s->p, cap, 1);
    if (!p) return false;
    s->p = p;
    s->cap = cap;
    s->p[s->n] = 0;
    return true;
}

bool weft_str_add(weft_str *s, const void *bytes, size_t n) {
    if (!weft_str_reserve(s, n)) return false;
    if (n) memcpy(s->p + s->n, bytes, n);
    s->n += n;
    s->p[s->n] = 0;
    return true;
}

bool weft_str_addz(weft_str *s, const char *z) {
    return weft_str_add(s, z, strlen(z));
}

bool weft_str_addf(weft_str *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = weft_vformat(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !weft_str_reserve(s, (size_t)n)) return false;
    va_start(ap, fmt);
    int written = weft_vformat(s->p + s->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    if (written != n) {
        s->p[s->n] = 0;
        return false;
    }
    s->n += (size_t)n;
    return true;
}

void weft_str_clear(weft_str *s) {
    s->n = 0;
    if (s->p) s->p[0] = 0;
}

void weft_str_free(weft_str *s) {
    weft_free(s->p);
    *s = (weft_str){0};
}

const char *weft_str_z(const weft_str *s) {
    return s->p ? s->p : "";
}

bool weft_starts_with(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool weft_ends_with(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

/* utf8.c: see utf8.h. */
#include "text/utf8.h"

#include <string.h>

/* What may follow a first byte: how many bytes, and the range of the first of them. The narrowed ranges keep out overlong forms
 * (E0, F0), surrogates (ED) and code points above 10FFFF (F4). */
static int follow(uint8_t first, uint8_t *lo, uint8_t *hi) {
    *lo = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *hi = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80) return 0;
    if (first < 0xC2) return -1;
    if (first < 0xE0) return 1;
    if (first < 0xF0) return 2;
    return first < 0xF5 ? 3 : -1;
}

size_t weft_utf8_next(const char *s, size_t n, int32_t *cp) {
    const uint8_t *p = (const uint8_t *)s;
    uint8_t lo, hi;
    int more = follow(p[0], &lo, &hi);
    if (more <= 0) {
        *cp = more ? WEFT_UTF8_BAD : p[0];
        return 1;
    }
    int32_t c = p[0] & (0x3F >> more);
    for (int k = 1; k <= more; k++) {
        if ((size_t)k == n || p[k] < lo || p[k] > hi) {
            *cp = (size_t)k == n ? WEFT_UTF8_CUT : WEFT_UTF8_BAD;
            return (size_t)k;
        }
        c = c << 6 | (p[k] & 0x3F);
        lo = 0x80, hi = 0xBF;
    }
    *cp = c;
    return (size_t)more + 1;
}

size_t weft_utf8_put(char out[4], int32_t cp) {
    uint32_t c = (uint32_t)cp;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t k = n - 1; k > 0; k--, c >>= 6) out[k] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

bool weft_utf8_add(weft_str *out, const char *s, size_t n) {
    size_t before = out->n, from = 0;
    for (size_t at = 0; at < n;) {
        int32_t cp;
        size_t len = weft_utf8_next(s + at, n - at, &cp);
        at += len;
        if (cp >= 0) continue;
        if (!weft_str_add(out, s + from, at - len - from) || !weft_str_addz(out, "\xEF\xBF\xBD")) goto fail;
        from = at;
    }
    if (weft_str_add(out, s + from, n - from)) return true;
fail:
    out->n = before;
    if (out->p) out->p[before] = 0;
    return false;
}

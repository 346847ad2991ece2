/* stop.c: see stop.h. */
#include "engine/stop.h"

#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

static weft_status check(const char *s, size_t i, weft_error *e) {
    size_t n = strnlen(s, WEFT_MAX_STOP_BYTES + 1);
    if (!n) return weft_fail(e, WEFT_EINVAL, "stop string %zu is empty", i + 1);
    if (n > WEFT_MAX_STOP_BYTES)
        return weft_fail(e, WEFT_EINVAL, "stop string %zu is longer than %d bytes", i + 1, WEFT_MAX_STOP_BYTES);
    int32_t cp;
    for (size_t at = 0; at < n;) {
        at += weft_utf8_next(s + at, n - at, &cp);
        if (cp < 0) return weft_fail(e, WEFT_EINVAL, "stop string %zu is not UTF-8", i + 1);
    }
    return WEFT_OK;
}

weft_status weft_stop_open(weft_stop *s, const char *const *strings, size_t n, weft_error *e) {
    *s = (weft_stop){0};
    if (!n) return WEFT_OK;
    if (n > WEFT_MAX_STOP) return weft_fail(e, WEFT_EINVAL, "%zu stop strings; at most %d are possible", n, WEFT_MAX_STOP);
    for (size_t i = 0; i < n; i++) WEFT_TRY(check(strings[i], i, e));
    for (; s->n < (int)n; s->n++)
        if (!(s->strings[s->n] = weft_strdup(strings[s->n])))
            break;
        else if (strlen(strings[s->n]) > s->longest)
            s->longest = strlen(strings[s->n]);
    if (s->n == (int)n) return WEFT_OK;
    weft_stop_close(s);
    return weft_fail_oom(e, "stop strings");
}

void weft_stop_close(weft_stop *s) {
    for (int i = 0; i < s->n; i++) weft_free(s->strings[i]);
    *s = (weft_stop){0};
}

/* Whether text, which may hold zero bytes, has the string at `from`; one that ends inside the string has its beginning. */
static bool has(const weft_str *text, size_t from, const char *string, size_t n) {
    size_t left = text->n - from;
    return !memcmp(text->p + from, string, n < left ? n : left);
}

int weft_stop_search(const weft_stop *s, const weft_str *text, size_t from, size_t *at) {
    int found = -1;
    size_t end = text->n, open = text->n;
    for (int i = 0; i < s->n; i++) {
        size_t n = strlen(s->strings[i]), begin = from;
        while (begin < text->n && !has(text, begin, s->strings[i], n)) begin++;
        if (begin + n > text->n) {
            if (begin < open) open = begin;
        } else if (found < 0 || begin + n < end || (begin + n == end && begin < *at)) {
            found = i;
            end = begin + n;
            *at = begin;
        }
    }
    if (found < 0) *at = open;
    return found;
}

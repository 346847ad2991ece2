/* added.c: see added.h. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *x, const void *y) {
    const weft_added_token *a = x, *b = y;
    int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

bool weft_added_sort(weft_added *a, const weft_added_token **twice) {
    if (a->n) qsort(a->v, a->n, sizeof *a->v, by_text);
    size_t at = 0;
    for (int b = 0; b <= 256; b++) {
        while (at < a->n && (uint8_t)a->v[at].text[0] < b) at++;
        a->first[b] = at;
    }
    for (size_t i = 1; i < a->n; i++) {
        *twice = &a->v[i];
        if (by_text(*twice - 1, *twice) == 0) return false;
    }
    return true;
}

/* The first of v[lo..hi) whose byte `depth` is at least b (a value up to 256); all are longer than depth. */
static size_t bound(const weft_added *a, size_t lo, size_t hi, size_t depth, int b) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)a->v[mid].text[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const weft_added_token *weft_added_at(const weft_added *a, const char *s, size_t n, size_t special) {
    const weft_added_token *best = NULL;
    uint8_t b = (uint8_t)s[0];
    size_t lo = a->first[b], hi = a->first[b + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (a->v[lo].n == depth) { /* wholly matched; it sorts before those that go on */
            if (!a->v[lo].special || depth <= special) best = &a->v[lo];
            lo++;
        }
        if (depth == n) break;
        b = (uint8_t)s[depth];
        lo = bound(a, lo, hi, depth, b);
        hi = bound(a, lo, hi, depth, b + 1);
    }
    return best;
}

/* ngrams.c: see ngrams.h. */
#include "engine/ngrams.h"

#include "base/alloc.h"

static size_t hash(const weft_ngrams *g, const int32_t *end) { /* of the tokens up to and with *end */
    uint64_t h = 0;
    for (int i = 0; i < WEFT_NGRAM; i++) h = (h ^ (uint32_t)end[-i]) * 0x9e3779b97f4a7c15ull;
    return (size_t)(h >> 32) & g->mask;
}

weft_status weft_ngrams_open(weft_ngrams *g, size_t room, weft_error *e) {
    size_t slots = 64;
    while (slots < room) slots *= 2;
    *g = (weft_ngrams){.last = weft_calloc(slots, sizeof *g->last),
                       .before = weft_calloc(room, sizeof *g->before),
                       .mask = slots - 1,
                       .room = room};
    if (g->last && g->before) return WEFT_OK;
    weft_ngrams_close(g);
    return weft_fail_oom(e, "a request's index of its tokens");
}

void weft_ngrams_close(weft_ngrams *g) {
    weft_free(g->last);
    weft_free(g->before);
    *g = (weft_ngrams){0};
}

void weft_ngrams_enter(weft_ngrams *g, const int32_t *ids, size_t n) {
    for (; g->n < n; g->n++) {
        if (g->n + 1 < WEFT_NGRAM) continue;
        int32_t *last = &g->last[hash(g, ids + g->n)];
        g->before[g->n] = *last;
        *last = (int32_t)g->n + 1;
    }
}

static int agreement(const int32_t *ids, size_t a, size_t b) { /* of the runs that end at a and at b, a < b */
    int n = 0;
    while (n < WEFT_NGRAM_LONGEST && (size_t)n <= a && ids[a - (size_t)n] == ids[b - (size_t)n]) n++;
    return n;
}

int weft_ngrams_find(const weft_ngrams *g, const int32_t *ids, size_t n, size_t *next) {
    enum { CANDIDATES = 32 };
    int best = 0;
    if (n <= WEFT_NGRAM) return 0;
    int32_t at = g->before[n - 1]; /* not the end itself */
    for (int i = 0; at && i < CANDIDATES && best < WEFT_NGRAM_LONGEST; i++, at = g->before[at - 1]) {
        int run = agreement(ids, (size_t)at - 1, n - 1);
        if (run < WEFT_NGRAM || run <= best) continue;
        best = run;
        *next = (size_t)at;
    }
    return best;
}

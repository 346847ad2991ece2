/* engine_walks.h: requests run on an engine, and what they leave in its memory. Included by one test program each. */
#ifndef WEFT_TESTS_ENGINE_WALKS_H
#define WEFT_TESTS_ENGINE_WALKS_H

#include "engine/engine.h"
#include "ops/cpu/kernels.h"

/* What a run of the tests is about. */
static bool precise;
static const char *isa; /* NULL: the best */
static const char *kv;  /* type of keys and values; NULL: as the mode has it */

/* draft: a drafter's folder, or NULL. */
static inline weft_engine *open_pair(const char *model, const char *draft, int threads, int chunk, int requests, int depth) {
    weft_engine *g = NULL;
    weft_error e = {0};
    weft_config c = {.model = model,
                     .draft = draft,
                     .threads = threads,
                     .isa = isa,
                     .precise = precise,
                     .kv = kv,
                     .chunk = chunk,
                     .max_requests = requests,
                     .context = 2048 * requests,
                     .max_depth = depth};
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s: %s", model, e.text);
    return g;
}
static inline weft_engine *open_model(const char *model, int threads, int chunk, int requests) {
    return open_pair(model, NULL, threads, chunk, requests, 4);
}

/* A prompt that every test model knows: ids below 300, with repeats. */
static inline void make_prompt(int32_t *ids, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = i > 20 && i % 7 < 3 ? ids[i - 20] : (int32_t)(seed >> 16) % 300;
    }
}

typedef struct answer {
    int32_t ids[4096];
    size_t n, n_prompt;
    weft_end_reason reason;
    weft_stats stats;
    uint8_t *slot, *pages; /* flushed memory, where asked for */
    size_t slot_n, pages_n;
    int done;
} answer;

static inline void drop(answer *a) {
    free(a->slot);
    free(a->pages);
    free(a);
}

static inline weft_request *submit(weft_engine *g, const weft_request_desc *d) {
    weft_request *r = NULL;
    weft_error e = {0};
    if (weft_submit(g, d, &r, &e) != WEFT_OK) fail_msg("%s", e.text);
    return r;
}

/* Slot and pages, those of windows as far as rows to come see them. */
static inline void take_memory(weft_request *r, answer *a) {
    weft_engine *g = r->engine;
    weft_error e = {0};
    assert_int_equal(weft_place_flush(r, &e), WEFT_OK);
    a->done = r->done;
    a->slot_n = weft_slot_bytes(g->dev);
    a->slot = malloc(a->slot_n + 1);
    if (a->slot_n) assert_int_equal(weft_slot_io(g->dev, r->slot, a->slot, true, &e), WEFT_OK);
    size_t each = 0;
    for (int k = 0; k < WEFT_PAGE_KINDS; k++) each += weft_page_bytes(g->dev, (weft_page_kind)k, WEFT_PAGE_ROWS);
    a->pages = malloc((size_t)r->n_pages * each + 1);
    for (int k = 0; k < WEFT_PAGE_KINDS; k++)
        for (int i = 0, left = r->done; left > 0; i++, left -= WEFT_PAGE_ROWS) {
            int rows = left < WEFT_PAGE_ROWS ? left : WEFT_PAGE_ROWS, page = r->pages[k][i];
            if (page < 0) continue; /* a window's, released */
            assert_int_equal(weft_page_io(g->dev, (weft_page_kind)k, page, rows, a->pages + a->pages_n, true, &e), WEFT_OK);
            a->pages_n += weft_page_bytes(g->dev, (weft_page_kind)k, rows);
        }
}

static inline void note_end(weft_engine *g, const weft_event *ev, size_t n) {
    (void)g;
    for (size_t i = 0; i < n; i++)
        if (ev[i].kind == WEFT_EVENT_END) {
            answer *a = weft_request_user(ev[i].request);
            if (ev[i].reason == WEFT_END_ERROR) fail_msg("%s", ev[i].error->text);
            a->reason = ev[i].reason;
        }
}

static inline void run_all(weft_engine *g) {
    const weft_event *ev;
    size_t n;
    while (weft_run_step(g, &ev, &n)) note_end(g, ev, n);
}

static inline void finish(weft_request *r, answer *a, bool memory) {
    size_t n;
    const int32_t *ids = weft_request_ids(r, &n);
    assert_true(n <= sizeof a->ids / sizeof *a->ids);
    memcpy(a->ids, ids, n * sizeof *ids);
    a->n = n;
    a->n_prompt = r->n_prompt;
    weft_request_stats(r, &a->stats);
    if (memory) take_memory(r, a);
    weft_request_close(r);
}

/* Runs one request alone. */
static inline answer *ask(weft_engine *g, weft_request_desc d, bool memory) {
    answer *a = calloc(1, sizeof *a);
    d.user = a;
    weft_request *r = submit(g, &d);
    run_all(g);
    finish(r, a, memory);
    return a;
}

static inline void same_ids(const answer *a, const answer *b) {
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        if (a->ids[i] != b->ids[i]) fail_msg("token %zu differs: %d and %d", i, a->ids[i], b->ids[i]);
}
static inline void same_memory(const answer *a, const answer *b) {
    assert_int_equal(a->done, b->done);
    assert_int_equal(a->slot_n, b->slot_n);
    assert_int_equal(a->pages_n, b->pages_n);
    assert_memory_equal(a->slot, b->slot, a->slot_n);
    assert_memory_equal(a->pages, b->pages, a->pages_n);
}

/* A list of drafts that makes passes accept exactly counts[0], counts[1], ... drafts, of `depth` each: right tokens with a wrong
 * one after each run. truth: the generated tokens. */
static inline void forced(int32_t *drafts, const int32_t *truth, size_t n, int vocab, const int *counts, int n_counts, int depth) {
    memcpy(drafts, truth, n * sizeof *truth);
    size_t at = 1; /* the first token comes from the prompt's pass; drafts begin after it */
    for (int i = 0; at < n; i++) {
        int a = counts[i % n_counts];
        if (a < depth && at + (size_t)a < n) drafts[at + (size_t)a] = (truth[at + (size_t)a] + 1) % vocab;
        at += (size_t)a + 1;
    }
}

#endif

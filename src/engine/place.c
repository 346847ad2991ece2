/* place.c: a request's place in the caches, and the invariants of all places. */
#include <assert.h>

#include "base/alloc.h"
#include "engine/engine.h"

/* The first position that a row at `done` or above sees: a drafter's sees one row more than the window. */
static int window_start(const weft_engine *g, int done) {
    return done > g->window + 1 ? done - g->window - 1 : 0;
}

/* Positions window_start .. done + rows - 1, wherever they begin in a page. */
int weft_place_window_pages(int window, int rows) {
    return (int)(((int64_t)window + 1 + rows + WEFT_PAGE_ROWS - 2) / WEFT_PAGE_ROWS) + 1;
}

static void take_page(weft_request *r, weft_page_kind kind, int i) {
    weft_engine *g = r->engine;
    r->pages[kind][i] = weft_index_take(&g->pages[kind]);
    assert(r->pages[kind][i] >= 0);
    weft_page_clear(g->dev, kind, r->pages[kind][i]);
}

static void drop_page(weft_request *r, weft_page_kind kind, int i) {
    weft_engine *g = r->engine;
    bool gone = weft_index_drop(&g->pages[kind], r->pages[kind][i]);
#ifndef NDEBUG
    if (gone) weft_page_poison(g->dev, kind, r->pages[kind][i]);
#endif
    (void)gone;
    r->pages[kind][i] = -1;
}

weft_status weft_place_take(weft_request *r, size_t tokens, weft_error *e) {
    weft_engine *g = r->engine;
    int want = (int)((tokens + WEFT_PAGE_ROWS - 1) / WEFT_PAGE_ROWS);
    r->slot = -1;
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++) {
        r->pages[kind] = weft_calloc((size_t)want, sizeof *r->pages[kind]);
        if (!r->pages[kind]) return weft_fail_oom(e, "a request's page table");
    }
    int n_free = g->pages[WEFT_PAGES_ALL].n_free;
    if (want > n_free || !g->slots.n_free)
        return weft_fail(e, WEFT_EBUSY, "no place free: %d KV pages wanted, %d free; %d states free", want, n_free,
                         g->slots.n_free);
    r->slot = weft_index_take(&g->slots);
    for (; r->n_pages < want; r->n_pages++) {
        take_page(r, WEFT_PAGES_ALL, r->n_pages);
        r->pages[WEFT_PAGES_WINDOW][r->n_pages] = -1;
    }
    return WEFT_OK;
}

void weft_place_reach(weft_request *r, int rows) {
    if (!r->engine->window) return;
    int end = (r->done + rows + WEFT_PAGE_ROWS - 1) / WEFT_PAGE_ROWS;
    for (; r->window_to < end; r->window_to++) take_page(r, WEFT_PAGES_WINDOW, r->window_to);
}

void weft_place_release(weft_request *r) {
    if (!r->engine->window) return;
    for (int first = window_start(r->engine, r->done) / WEFT_PAGE_ROWS; r->window_from < first; r->window_from++)
        if (r->window_from < r->window_to)
            drop_page(r, WEFT_PAGES_WINDOW, r->window_from);
        else
            r->window_to++; /* a skipped prompt has none there */
}

void weft_place_drop(weft_request *r) {
    weft_engine *g = r->engine;
    for (int i = 0; i < r->n_pages; i++) drop_page(r, WEFT_PAGES_ALL, i);
    for (; r->window_from < r->window_to; r->window_from++) drop_page(r, WEFT_PAGES_WINDOW, r->window_from);
    if (r->slot >= 0) {
        bool gone = weft_index_drop(&g->slots, r->slot);
#ifndef NDEBUG
        if (gone) weft_slot_poison(g->dev, r->slot);
#endif
        (void)gone;
    }
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++) {
        weft_free(r->pages[kind]);
        r->pages[kind] = NULL;
    }
    r->n_pages = r->window_from = r->window_to = 0;
    r->slot = -1;
}

weft_span weft_place_span(const weft_request *r, int row, int certain, int speculative) {
    return (weft_span){.row = row,
                       .certain = certain,
                       .speculative = speculative,
                       .pos = r->done,
                       .replay = r->replay,
                       .slot_read = r->done ? r->slot : -1,
                       .slot_write = r->slot,
                       .journal = 1 - r->journal,
                       .n_pages = {r->n_pages, r->n_pages},
                       .pages = {r->pages[WEFT_PAGES_ALL], r->pages[WEFT_PAGES_WINDOW]}};
}

weft_status weft_place_flush(weft_request *r, weft_error *e) {
    if (!r->replay) return WEFT_OK;
    weft_engine *g = r->engine;
    weft_span span = weft_place_span(r, 0, 0, 0);
    weft_begin(g->dev, &(weft_step){.n_spans = 1, .spans = &span});
    weft_model_pass(g->model, WEFT_MTP_WRITE);
    WEFT_TRY(weft_end(g->dev, e));
    r->stored = r->done;
    r->replay = 0;
    return WEFT_OK;
}

weft_status weft_place_skip(weft_request *r, int n, weft_error *e) {
    if (r->done || n < 0 || (size_t)n >= r->n_prompt)
        return weft_fail(e, WEFT_EINVAL, "%d of %zu prompt tokens to skip, %d done", n, r->n_prompt, r->done);
    void *zeros = weft_calloc(1, weft_slot_bytes(r->engine->dev));
    if (!zeros) return weft_fail_oom(e, "an empty state");
    weft_status s = weft_slot_io(r->engine->dev, r->slot, zeros, false, e);
    weft_free(zeros);
    if (s != WEFT_OK) return s;
    r->done = r->stored = n;
    weft_place_release(r);
    return WEFT_OK;
}

static const char *check_window(const weft_request *r) {
    const weft_engine *g = r->engine;
    const weft_index_pool *pool = &g->pages[WEFT_PAGES_WINDOW];
    if (r->window_from != window_start(g, r->done) / WEFT_PAGE_ROWS) return "a window's pages do not begin where rows to come see";
    if (r->window_to > r->n_pages) return "a window's pages are beyond the page table";
    if (r->window_to > r->window_from && r->window_to * WEFT_PAGE_ROWS < r->done) return "rows of a window without a page";
    for (int i = 0; i < r->n_pages; i++) {
        int page = r->pages[WEFT_PAGES_WINDOW][i];
        bool held = i >= r->window_from && i < r->window_to;
        if (held != (page >= 0)) return "a window's table differs from what is held";
        if (held && pool->holders[page] != 1) return "a window's page with no or several holders";
    }
    return NULL;
}

static const char *check_request(const weft_request *r) {
    const weft_engine *g = r->engine;
    if (r->stored + r->replay != r->done) return "state offset + replay is not the number of rows done";
    if (r->replay < 0 || r->replay > g->plan.max_draft) return "replay is longer than the journal";
    if (r->done < 0 || (size_t)r->done > r->ids.n) return "more rows done than tokens";
    if (r->phase == WEFT_DECODE && (size_t)r->done + 1 != r->ids.n) return "not exactly one pending token";
    if (r->ids.n > r->n_prompt + r->max_tokens) return "more tokens than asked for";
    if (r->answer.held.n > r->ids.n - r->n_prompt) return "more tokens held back than generated";
    if (r->answer.held.n && !r->answer.stop.n) return "tokens held back without a stop string";
    if ((size_t)r->n_pages * WEFT_PAGE_ROWS < r->ids.n) return "tokens beyond the page table";
    if (r->slot < 0 || g->slots.holders[r->slot] != 1) return "a state with no or several holders";
    const int *all = r->pages[WEFT_PAGES_ALL];
    for (int i = 0; i < r->n_pages; i++)
        if (g->pages[WEFT_PAGES_ALL].holders[all[i]] != 1) return "a page with no or several holders";
    return g->window ? check_window(r) : NULL;
}

const char *weft_engine_check(const weft_engine *g) {
    int pages[WEFT_PAGE_KINDS] = {0}, slots = 0;
    for (int i = 0; i < g->n_requests; i++) {
        const char *broken = check_request(g->requests[i]);
        if (broken) return broken;
        pages[WEFT_PAGES_ALL] += g->requests[i]->n_pages;
        pages[WEFT_PAGES_WINDOW] += g->requests[i]->window_to - g->requests[i]->window_from;
        slots += g->requests[i]->slot >= 0;
    }
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++)
        if (pages[kind] + g->pages[kind].n_free != g->pages[kind].n) return "a page that nobody holds is not free";
    if (slots + g->slots.n_free != g->slots.n) return "a state that nobody holds is not free";
    return NULL;
}

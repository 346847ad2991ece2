/* place.c: a request's place in the caches, and the invariants of all places. */
#include "base/alloc.h"
#include "engine/engine.h"

weft_status weft_place_take(weft_request *r, size_t tokens, weft_error *e) {
    weft_engine *g = r->engine;
    int want = (int)((tokens + WEFT_PAGE_ROWS - 1) / WEFT_PAGE_ROWS);
    r->slot = -1;
    r->pages = weft_calloc((size_t)want, sizeof *r->pages);
    if (!r->pages) return weft_fail_oom(e, "a request's page table");
    if (want > g->pages.n_free || !g->slots.n_free)
        return weft_fail(e, WEFT_EBUSY, "no place free: %d KV pages wanted, %d free; %d states free", want, g->pages.n_free,
                         g->slots.n_free);
    r->slot = weft_index_take(&g->slots);
    for (; r->n_pages < want; r->n_pages++) {
        r->pages[r->n_pages] = weft_index_take(&g->pages);
        weft_page_clear(g->dev, r->pages[r->n_pages]);
    }
    return WEFT_OK;
}

void weft_place_drop(weft_request *r) {
    weft_engine *g = r->engine;
    for (int i = 0; i < r->n_pages; i++) {
        bool gone = weft_index_drop(&g->pages, r->pages[i]);
#ifndef NDEBUG
        if (gone) weft_page_poison(g->dev, r->pages[i]);
#endif
        (void)gone;
    }
    if (r->slot >= 0) {
        bool gone = weft_index_drop(&g->slots, r->slot);
#ifndef NDEBUG
        if (gone) weft_slot_poison(g->dev, r->slot);
#endif
        (void)gone;
    }
    weft_free(r->pages);
    r->pages = NULL;
    r->n_pages = 0;
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
                       .n_pages = r->n_pages,
                       .pages = r->pages};
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
    if (s == WEFT_OK) r->done = r->stored = n;
    return s;
}

static const char *check_request(const weft_request *r) {
    const weft_engine *g = r->engine;
    if (r->stored + r->replay != r->done) return "state offset + replay is not the number of rows done";
    if (r->replay < 0 || r->replay > g->plan.max_draft) return "replay is longer than the journal";
    if (r->done < 0 || (size_t)r->done > r->ids.n) return "more rows done than tokens";
    if (r->phase == WEFT_DECODE && (size_t)r->done + 1 != r->ids.n) return "not exactly one pending token";
    if (r->ids.n > r->n_prompt + r->max_tokens) return "more tokens than asked for";
    if ((size_t)r->n_pages * WEFT_PAGE_ROWS < r->ids.n) return "tokens beyond the page table";
    if (r->slot < 0 || g->slots.holders[r->slot] != 1) return "a state with no or several holders";
    for (int i = 0; i < r->n_pages; i++)
        if (g->pages.holders[r->pages[i]] != 1) return "a page with no or several holders";
    return NULL;
}

const char *weft_engine_check(const weft_engine *g) {
    int pages = 0, slots = 0;
    for (int i = 0; i < g->n_requests; i++) {
        const char *broken = check_request(g->requests[i]);
        if (broken) return broken;
        pages += g->requests[i]->n_pages;
        slots += g->requests[i]->slot >= 0;
    }
    if (pages + g->pages.n_free != g->pages.n) return "a page that nobody holds is not free";
    if (slots + g->slots.n_free != g->slots.n) return "a state that nobody holds is not free";
    return NULL;
}

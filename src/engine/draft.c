/* draft.c: where drafts come from.
 *
 * The MTP head or the assistant drafts for all requests at once, one depth a step: first from the true hidden row before each
 * pending token, then from its own output (a chain). What a chain writes into the MTP layer's pages is scratch: the pass that
 * verifies the drafts writes those rows again from true hidden rows. A request with a list of drafts takes them from there: tests
 * force every accept count that way. */
#include "base/clock.h"
#include "engine/engine.h"

/* How many drafts this request can use: a pass gives one token more than it accepts. */
static int wanted(const weft_request *r) {
    if (r->phase != WEFT_DECODE) return 0;
    size_t generated = r->ids.n - r->n_prompt, left = r->max_tokens - generated;
    return left <= 1 ? 0 : left - 1 < (size_t)r->depth ? (int)left - 1 : r->depth;
}

static void from_list(weft_request *r, int want) {
    size_t next = r->ids.n - r->n_prompt;
    for (; r->n_draft < want && next < r->n_drafts; next++) {
        int32_t id = r->drafts[next];
        if (id < 0 || id >= r->engine->info.vocab) return; /* the list ends here */
        r->draft[r->n_draft++] = id;
    }
}

/* One depth: a row for each request that still drafts. The first n of drafting[] want more than `depth` drafts. */
static weft_status draft_step(weft_engine *g, int n, int depth, weft_error *e) {
    for (int i = 0; i < n; i++) {
        weft_request *r = g->drafting[i];
        g->tokens[i] = depth ? r->draft[depth - 1] : r->ids.v[r->done];
        g->spans[i] = weft_place_span(r, i, 0, 1);
        if (weft_model_draft_moves(g->model)) g->spans[i].pos += depth;
        g->rows[i] = i;
        g->picks[i] = weft_choosing_pick(&r->choosing, r->ids.n - r->n_prompt, r->draft, depth, g->kept, i);
    }
    weft_begin(g->dev, &(weft_step){.n_rows = n, .n_spans = n, .tokens = g->tokens, .spans = g->spans});
    weft_model_draft(g->model, depth > 0);
    weft_model_pick(g->model, WEFT_HEAD_DRAFT, g->rows, n, g->picks, g->allowed);
    weft_status s = WEFT_OK;
    for (int i = 0; i < n && s == WEFT_OK; i++) {
        weft_request *r = g->drafting[i];
        weft_picked picked = {0};
        s = weft_read_pick(g->dev, i, &picked, e);
        r->draft[depth] = picked.id < 0 ? 0 : picked.id; /* a head that gives NaN drafts badly, no more */
        r->n_draft = depth + 1;
        r->stats.draft_steps++;
    }
    g->stats.draft_steps++;
    weft_status ended = weft_end(g->dev, e);
    return s == WEFT_OK ? ended : s;
}

weft_status weft_draft(weft_engine *g, weft_error *e) {
    int n = 0;
    uint64_t start = weft_now_ns();
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        r->n_draft = 0;
        int want = wanted(r);
        if (!want) continue;
        if (r->drafts) {
            from_list(r, want);
            continue;
        }
        if (!g->info.drafts) continue;
        weft_place_reach(r, 1 + want); /* before spans hold the table; the pass needs these pages, too */
        int at = n++; /* deepest first, so that whoever is done leaves at the end and rows keep their places in a chain */
        for (; at > 0 && wanted(g->drafting[at - 1]) < want; at--) g->drafting[at] = g->drafting[at - 1];
        g->drafting[at] = r;
    }
    for (int depth = 0; n; depth++) {
        while (n && wanted(g->drafting[n - 1]) <= depth) n--;
        if (n) WEFT_TRY(draft_step(g, n, depth, e));
    }
    g->stats.draft_ns += weft_now_ns() - start;
    return WEFT_OK;
}

/* draft.c: where drafts come from.
 *
 * The MTP head or the assistant drafts for all requests at once, one depth a step: first from the true hidden row before each
 * pending token, then from its own output (a chain). What a chain writes into the MTP layer's pages is scratch: the pass that
 * verifies the drafts writes those rows again from true hidden rows.
 *
 * Prompt lookup (ngrams.h) drafts what came after the same tokens before. The two make one block:
 *     a match of 8 tokens and more, that did not fail just now: what was looked up, alone;
 *     of 3 to 7: one link of the chain; if it says what was looked up, the rest of that, otherwise the chain goes on;
 *     none: the chain. Without a drafter in the model any match will do.
 * So the source is decided by tokens alone, and how many drafts by what pays (depth.h). A request with a list of drafts takes them
 * from there: tests force every accept count that way.
 *
 * For rejection sampling a draft of the chain has the distribution that its pick kept; one that was looked up has none, it is
 * certain. Whatever is drawn is tried: a link that disagrees with what was looked up is a draft all the same, and a chain ends
 * before a draw, never after it. No noise is used twice: a draft that was dropped with those before it is drawn anew. */
#include "base/clock.h"
#include "base/num.h"
#include "engine/engine.h"

enum { SURE = 8 }; /* tokens of a match that need no second opinion */

/* Drafts that this request can use at most: a pass gives one token more than it accepts. */
static int most_of(const weft_request *r) {
    if (r->phase != WEFT_DECODE) return 0;
    size_t generated = r->ids.n - r->n_prompt, left = r->max_tokens - generated;
    int depth = r->depth == WEFT_DEPTH_AUTO ? r->engine->config.max_depth : r->depth;
    return left <= 1 ? 0 : left - 1 < (size_t)depth ? (int)left - 1 : depth;
}

static void from_list(weft_request *r, int want) {
    size_t next = r->ids.n - r->n_prompt;
    for (; r->n_draft < want && next < r->n_drafts; next++) {
        int32_t id = r->drafts[next];
        if (id < 0 || id >= r->engine->info.vocab) return; /* the list ends here */
        r->draft_from[r->n_draft] = WEFT_DRAFTER_LIST;
        r->draft[r->n_draft++] = id;
    }
}

/* ---- lookup -------------------------------------------------------------------------------------------------------------- */

static void look_up(weft_request *r) {
    r->match = 0;
    if (r->no_lookup) return;
    weft_ngrams_enter(&r->ngrams, r->ids.v, r->ids.n);
    if (r->ids.n >= r->lookup_from) r->match = weft_ngrams_find(&r->ngrams, r->ids.v, r->ids.n, &r->match_next);
}

/* Token i after the match; where it runs into the end, it goes on with what it drafted. */
static int32_t looked_up(const weft_request *r, int i) {
    size_t at = r->match_next + (size_t)i;
    return at < r->ids.n ? r->ids.v[at] : r->draft[at - r->ids.n];
}

static void fill_from_lookup(weft_request *r, int from, int want) {
    for (int i = from; i < want; i++) {
        r->draft[i] = looked_up(r, i);
        r->draft_from[i] = WEFT_DRAFTER_LOOKUP;
    }
    if (want > r->n_draft) r->n_draft = want;
}

void weft_draft_judged(weft_request *r, int i, bool right) {
    weft_drafter from = (weft_drafter)r->draft_from[i];
    if (from == WEFT_DRAFTER_LIST) return;
    weft_acceptance_learn(&r->accepted[r->mode][from], i, from, right);
    weft_acceptance_learn(&r->engine->accepted[r->mode][from], i, from, right);
    if (from == WEFT_DRAFTER_MODEL) weft_sureness_learn(&r->engine->sureness, r->draft_sure[i], right);
    if (from != WEFT_DRAFTER_LOOKUP) return;
    if (right)
        r->lookup_failed = 0;
    else if (!i || r->draft_from[i - 1] != WEFT_DRAFTER_LOOKUP) { /* at once: wait, longer each time */
        r->lookup_from = r->ids.n + (4u << (r->lookup_failed < 4 ? r->lookup_failed : 4));
        r->lookup_failed++;
    }
}

/* ---- the head ------------------------------------------------------------------------------------------------------------ */

/* Low ids are the frequent ones of English and code; of what others say the list has half until it has been counted. A chain ends
 * where the list lacks an id, so a request notes what share of the last tokens is in it, those of its prompt to begin with. */
enum { LISTED_PROMPT = 512, LISTED_TOKENS = 64 }; /* tokens that the share is of */

static bool is_listed(const weft_request *r, int32_t id) {
    weft_columns c = {0};
    c.ids = weft_model_draft_ids(r->engine->model, &c.n);
    return weft_column_of(&c, id) >= 0;
}

void weft_draft_begin(weft_request *r) {
    int n = r->n_prompt < LISTED_PROMPT ? (int)r->n_prompt : LISTED_PROMPT, in = 0;
    for (int i = 0; i < n; i++) in += is_listed(r, r->ids.v[r->n_prompt - 1 - (size_t)i]);
    r->listed = (float)in / (float)n;
}

void weft_draft_said(weft_request *r, int32_t id) {
    weft_usage_note(&r->engine->usage, id);
    r->listed += ((is_listed(r, id) ? 1.0f : 0.0f) - r->listed) / LISTED_TOKENS;
}

/* The frequent ids alone, where that pays. A link that reads the share s of a pass's bytes less is worth about 2 s of all tokens
 * that the list may lack: 1.3 to 3.7 by the formula of depth.h with a half to nine tenths of drafts right, for models of 2 to 80
 * billion weights. */
static void choose_head(weft_engine *g) {
    int listed_ids, n = 0;
    double listed = 0;
    for (int i = 0; i < g->n_requests; i++) {
        if (!g->requests[i]->most) continue;
        listed += (double)g->requests[i]->listed;
        n++;
    }
    double worth = 2 * (double)weft_model_draft_saves(g->model) * n;
    g->draft_ids = (n - listed) * (double)g->pass_bytes <= worth ? weft_model_draft_ids(g->model, &listed_ids) : NULL;
}

/* ---- the chain ----------------------------------------------------------------------------------------------------------- */

/* Whether this request is to have one more draft, from `from`, with its part of a link. */
static bool goes_on(weft_request *r, weft_drafter from, double link_ns) {
    const weft_engine *g = r->engine;
    if (r->n_draft >= r->most) return false;
    if (r->n_draft < r->want || r->depth != WEFT_DEPTH_AUTO) return r->n_draft < r->want;
    float next[WEFT_MAX_DEPTH];
    for (int i = r->n_draft; i < r->most; i++) next[i - r->n_draft] = weft_acceptance_hoped(&r->accepted[r->mode][from], i, from);
    bool pays = weft_depth_pays(&g->costs, g->rate, g->planned, r->running, next, r->most - r->n_draft, link_ns);
    if (pays || !r->extra) return pays;
    r->extra = false;
    return true;
}

static void add_drawn(weft_request *r, int32_t id, double sure) {
    weft_engine *g = r->engine;
    int i = r->n_draft++;
    g->planned++;
    r->draft[i] = id < 0 ? 0 : id; /* a head that gives NaN drafts badly, no more */
    r->draft_from[i] = WEFT_DRAFTER_MODEL;
    r->draft_sure[i] = (uint8_t)weft_sureness_class(sure);
    r->running *= (double)weft_sureness_at(&g->sureness, r->draft_sure[i]);
}

/* After a link that agreed with what was looked up: the rest of it, as far as it is likely to hold. */
static void go_on_with_lookup(weft_request *r) {
    r->want = r->depth == WEFT_DEPTH_AUTO ? 1 : r->most;
    r->running = 1; /* they agree: the chain's doubts are settled */
    while (goes_on(r, WEFT_DRAFTER_LOOKUP, 0)) {
        int i = r->n_draft;
        fill_from_lookup(r, i, i + 1);
        r->running *= (double)weft_acceptance_at(&r->accepted[r->mode][WEFT_DRAFTER_LOOKUP], i, WEFT_DRAFTER_LOOKUP);
        r->engine->planned++;
    }
}

/* One depth: a row for each of the first n of drafting[]. Those that have stopped keep theirs, so that no other row moves. */
static weft_status draft_step(weft_engine *g, int n, int depth, weft_error *e) {
    uint64_t start = weft_now_ns();
    int linking = 0;
    double link_ns = weft_costs_link_at(&g->costs);
    for (int i = 0; i < n; i++) {
        weft_request *r = g->drafting[i];
        linking += r->linking;
        g->tokens[i] = depth ? r->draft[depth - 1] : r->ids.v[r->done];
        g->spans[i] = weft_place_span(r, i, 0, 1);
        if (weft_model_draft_moves(g->model)) g->spans[i].pos += depth;
        g->rows[i] = i;
        g->picks[i] =
            weft_choosing_pick(&r->choosing, r->ids.n - r->n_prompt, r->draft, depth, g->kept_drafts, weft_draft_row(r, depth));
        g->picks[i].log_sum = true;
        if (r->choosing.rejects) g->picks[i].rule.sampler.seed = weft_draft_seed(r->choosing.sampler.seed, (uint32_t)depth);
    }
    weft_begin(g->dev, &(weft_step){.n_rows = n, .n_spans = n, .tokens = g->tokens, .spans = g->spans});
    weft_model_draft(g->model, depth > 0);
    weft_model_pick(g->model, g->draft_ids ? WEFT_HEAD_FREQUENT : WEFT_HEAD_DRAFT, g->rows, n, g->picks, g->allowed);
    weft_status s = WEFT_OK;
    for (int i = 0; i < n && s == WEFT_OK; i++) {
        weft_request *r = g->drafting[i];
        weft_picked picked = {0};
        s = weft_read_pick(g->dev, i, &picked, e);
        if (!r->linking) continue;
        r->stats.draft_steps++;
        double sure = picked.id < 0 ? 0 : weft_exp((double)picked.logit - (double)picked.log_sum);
        if (r->trace) {
            picked.id = weft_trace_draft(r->trace, r->ids.n - r->n_prompt, depth, g->info.vocab, picked.id);
            sure = (double)r->trace->share[depth];
        }
        add_drawn(r, picked.id, sure);
        if (!depth && r->match && looked_up(r, 0) == r->draft[0]) {
            go_on_with_lookup(r);
            r->linking = false;
        }
    }
    for (int i = 0; i < n; i++) {
        weft_request *r = g->drafting[i];
        r->linking = r->linking && goes_on(r, WEFT_DRAFTER_MODEL, link_ns / linking);
    }
    g->stats.draft_steps++;
    weft_status ended = weft_end(g->dev, s == WEFT_OK ? e : NULL);
    weft_costs_link(&g->costs, weft_now_ns() - start);
    return s == WEFT_OK ? ended : s;
}

static weft_status run_chain(weft_engine *g, int n, weft_error *e) {
    for (int depth = 0; n; depth++) {
        WEFT_TRY(draft_step(g, n, depth, e));
        while (n && !g->drafting[n - 1]->linking) n--;
    }
    return WEFT_OK;
}

/* ---- the block ----------------------------------------------------------------------------------------------------------- */

static weft_drafter source(const weft_request *r) {
    if (r->drafts) return WEFT_DRAFTER_LIST;
    return r->match >= (r->engine->info.drafts ? SURE : WEFT_NGRAM) ? WEFT_DRAFTER_LOOKUP : WEFT_DRAFTER_MODEL;
}

/* Sets `want` of all requests that may draft. Requests with a depth of their own get it; the others what pays. Now and then none,
 * so that the time of a pass without drafts stays known. */
static void choose_depths(weft_engine *g) {
    int rows = 0, chained = 0, n = 0;
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        bool can = g->info.drafts || r->match || r->drafts;
        rows += r->phase == WEFT_DECODE;
        r->want = 0;
        if (!r->most || !can) continue;
        weft_drafter from = source(r);
        if (r->depth != WEFT_DEPTH_AUTO || r->drafts) {
            rows += r->want = r->most;
            if (from == WEFT_DRAFTER_MODEL) chained += r->want;
        } else
            g->wishes[n++] =
                (weft_depth_wish){.accepted = &r->accepted[r->mode][from], .from = from, .most = r->most, .request = r};
    }
    g->planned = rows - chained; /* a chain counts its drafts as they come */
    if (!n || weft_costs_ask_plain(&g->costs, rows)) return;
    g->rate = weft_depths_choose(&g->costs, rows, g->wishes, n);
    bool link = false;
    for (int i = 0; i < n; i++) {
        rows += g->wishes[i].depth;
        link |= g->wishes[i].from == WEFT_DRAFTER_MODEL;
    }
    bool exploring = weft_depths_explore(&g->costs, rows, n, link);
    for (int i = 0; i < n; i++) {
        weft_request *r = g->wishes[i].request;
        bool lookup = g->wishes[i].from == WEFT_DRAFTER_LOOKUP;
        int paying = g->wishes[i].depth;
        r->extra = exploring && paying && !lookup; /* where the chain sees that it does not pay to go on */
        r->want = !lookup && paying ? 1 : paying + (exploring && paying < r->most);
        if (lookup) g->planned += r->want;
    }
}

weft_status weft_draft(weft_engine *g, weft_error *e) {
    int n = 0;
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        r->n_draft = 0;
        r->running = 1;
        r->place = i;
        r->most = most_of(r);
        if (r->most) look_up(r);
    }
    choose_head(g);
    choose_depths(g);
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        if (!r->want) continue;
        if (r->drafts) {
            from_list(r, r->want);
            continue;
        }
        if (source(r) == WEFT_DRAFTER_LOOKUP) {
            fill_from_lookup(r, 0, r->want);
            continue;
        }
        r->linking = true;
        weft_place_reach(r, 1 + r->most); /* before spans hold the table; the pass needs these pages, too */
        int at = n++; /* deepest first, so that whoever is done leaves at the end and rows keep their places in a chain */
        for (; at > 0 && g->drafting[at - 1]->most < r->most; at--) g->drafting[at] = g->drafting[at - 1];
        g->drafting[at] = r;
    }
    return run_chain(g, n, e);
}

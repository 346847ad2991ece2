/* step.c: one step of the engine: drafts, one pass over all running requests, sampling.
 *
 * Every request contributes one span: a piece of its prompt, or its pending token with the drafts after it. Each row that predicts
 * an unknown token is sampled by the request's own rule; a draft that equals the sampled token is accepted, the first that does not
 * ends the walk. Nothing is redrawn, so the tokens are those of a run without drafts. A request with rejection sampling has its
 * drafts tried instead, and draws from what a trial leaves, or behind the last draft. */
#include <assert.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fpu.h"
#include "base/log.h"
#include "engine/engine.h"

/* ---- the batch ----------------------------------------------------------------------------------------------------------- */

/* The trials of a request's drafts and the draw behind the last, whose distributions are rows `kept` and on; how many there are. */
static int add_trials(weft_request *r, int n, int kept) {
    weft_engine *g = r->engine;
    r->trial = n;
    for (int j = 0; j <= r->n_draft; j++) {
        bool drawn = j < r->n_draft && r->draft_from[j] == WEFT_DRAFTER_MODEL;
        g->trials[n++] = (weft_trial){.p = g->kept,
                                      .p_row = kept + j,
                                      .q = drawn ? g->kept_drafts : NULL,
                                      .q_row = weft_draft_row(r, j),
                                      .q_ids = drawn ? g->draft_ids : NULL,
                                      .draft = j < r->n_draft ? r->draft[j] : -1,
                                      .follows = j > 0,
                                      .sampler = r->choosing.sampler,
                                      .index = (uint32_t)(r->ids.n - r->n_prompt) + (uint32_t)j};
    }
    return n;
}

/* Rows for everybody: drafts are set, prompts share the chunk in order of age. Returns the number of rows that want logits. */
static int gather(weft_engine *g, weft_step *step, int *n_trials) {
    int wanted = 0, drafts = 0, room = g->config.chunk;
    *n_trials = 0;
    *step = (weft_step){.tokens = g->tokens, .spans = g->spans};
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        r->certain = 0;
        if (r->phase == WEFT_ENDED) continue;
        int left = (int)r->ids.n - r->done, certain = r->phase == WEFT_DECODE ? left : left < room ? left : room;
        if (!certain) continue;
        if (r->phase == WEFT_PROMPT) {
            room -= certain;
            g->stats.prompt_tokens += (uint64_t)certain;
            r->stats.prompt_tokens += (uint64_t)certain;
        }
        r->row = step->n_rows;
        r->certain = certain;
        weft_place_reach(r, certain + r->n_draft);
        g->spans[step->n_spans++] = weft_place_span(r, r->row, certain, r->n_draft);
        for (int j = 0; j < certain; j++) g->tokens[step->n_rows++] = r->ids.v[r->done + j];
        for (int j = 0; j < r->n_draft; j++) g->tokens[step->n_rows++] = r->draft[j];
        if (certain == left && r->choosing.rejects) *n_trials = add_trials(r, *n_trials, wanted);
        if (certain == left)
            for (int j = 0; j <= r->n_draft; j++) {
                g->rows[wanted] = r->row + certain - 1 + j;
                weft_pick *pick = &g->picks[wanted];
                *pick = weft_choosing_pick(&r->choosing, r->ids.n - r->n_prompt, r->draft, j, g->kept, wanted++);
                pick->log_sum = r->choosing.logprobs;
                pick->top = r->choosing.logprobs ? r->choosing.top : 0;
            }
        drafts += r->n_draft;
        r->stats.passes++;
        r->stats.verify_passes += r->n_draft > 0;
        r->stats.rows += (uint64_t)(certain + r->n_draft);
    }
    g->stats.passes++;
    g->stats.verify_passes += drafts > 0;
    g->stats.rows += (uint64_t)step->n_rows;
    return wanted;
}

/* ---- what the pass says -------------------------------------------------------------------------------------------------- */

/* Token i of the request's rows, of which `row` is the first: picked, or by its trial. *right: it is the draft there. */
static weft_status read_token(weft_request *r, int row, int i, weft_picked *picked, bool *right) {
    weft_dev *dev = r->engine->dev;
    WEFT_TRY(weft_read_pick(dev, row + i, picked, &r->error));
    size_t said = r->ids.n - r->n_prompt;
    if (r->trace && said < r->trace->n) picked->id = r->trace->answer[said];
    *right = i < r->n_draft && picked->id == r->draft[i];
    if (!r->choosing.rejects) return WEFT_OK;
    weft_verdict v;
    WEFT_TRY(weft_read_verdict(dev, r->trial + i, &v, &r->error));
    *right = v.kept;
    picked->id = v.id;
    picked->why = v.why;
    return r->choosing.logprobs && v.id >= 0 ? weft_read_logit(dev, row + i, v.id, &picked->logit, &r->error) : WEFT_OK;
}

/* Why there is no token where one was to be chosen. */
static weft_status no_token(weft_request *r, weft_no_token why) {
    if (why == WEFT_TOKEN_BANNED)
        return weft_fail(&r->error, WEFT_EINVAL,
                         "no token may come at position %d: bans, logit biases, allowed ids and min_tokens leave none", r->done);
    return weft_fail(&r->error, WEFT_ENUMERIC, "the model's logits at position %d are not finite", r->done - 1);
}

/* Draft i has been verified: all before it were right, and none ended the answer. */
static void count_draft(weft_request *r, int i, bool right) {
    weft_engine *g = r->engine;
    weft_drafter from = (weft_drafter)r->draft_from[i];
    weft_stats *all[] = {&r->stats, &g->stats};
    for (int k = 0; k < 2; k++) {
        all[k]->drafted[i]++;
        all[k]->accepted[i] += right;
        all[k]->by[from].drafted[i]++;
        all[k]->by[from].accepted[i] += right;
    }
    if (i || from != WEFT_DRAFTER_MODEL) return;
    g->drafted++;
    g->agreed += right;
}

/* Walks the request's rows; *logit is the next of the picked tokens. Each token is an end, or completes a stop string, or is
 * committed, in this order; at the first that ends the answer the rows after it are forgotten. */
static void absorb(weft_request *r, int *logit) {
    weft_engine *g = r->engine;
    int base = r->done, first = *logit;
    bool last = (size_t)base + (size_t)r->certain == r->ids.n;
    if (r->phase == WEFT_ENDED) { /* its prompt failed */
        *logit += last;
        return;
    }
    r->done = r->stored = base + r->certain;
    r->replay = 0;
    r->journal = 1 - r->journal;
    if (!last) return;
    *logit += 1 + r->n_draft;
    r->phase = WEFT_DECODE;
    for (int i = 0; i <= r->n_draft; i++) {
        weft_picked picked;
        bool agreed;
        weft_status s = read_token(r, first, i, &picked, &agreed);
        if (s == WEFT_OK && picked.id < 0) s = no_token(r, picked.why);
        if (s != WEFT_OK) {
            weft_answer_end(r, WEFT_END_ERROR, -1);
            return;
        }
        int32_t id = picked.id;
        if (i < r->n_draft) count_draft(r, i, agreed);
        if (weft_choosing_ends(&r->choosing, id)) {
            weft_answer_end(r, WEFT_END_STOP, id); /* not committed, accepted or not */
            return;
        }
        if (weft_answer_add(r, &picked) != WEFT_OK) weft_answer_end(r, WEFT_END_ERROR, -1);
        if (r->phase == WEFT_ENDED) return; /* neither is one that completes a stop string */
        bool full = r->ids.n == r->n_prompt + r->max_tokens;
        if (i < r->n_draft) weft_draft_judged(r, i, agreed);
        r->mode = weft_mode_after(&g->modes, r->mode, id);
        if (agreed && !full) { /* its row is final now; the last token of an answer stays pending */
            r->done++;
            r->replay++;
        }
        if (full) {
            weft_answer_end(r, WEFT_END_LENGTH, -1);
            return;
        }
        if (!agreed) return;
    }
}

/* Drafts that are hardly ever right are no bad luck: a drafter of another model, or norms that were taken for what they are not.
 * The text is right all the same. Said once. */
static void watch_drafts(weft_engine *g) {
    enum { ENOUGH = 1000, FLOOR = 20 }; /* first drafts; one of so many */
    if (g->warned || g->drafted < ENOUGH || g->agreed * FLOOR >= g->drafted) return;
    g->warned = true;
    weft_log(
        WEFT_LOG_WARN,
        "of %llu first drafts %llu were accepted: the drafter does not fit the model, or its norms are stored in another "
        "convention than its file shows. Answers are right but slow: use depth 0, and a drafter from the model's own publisher",
        (unsigned long long)g->drafted, (unsigned long long)g->agreed);
}

/* When the parts of a step began: drafting, gathering, the trunk, choosing, the walks; and when it was over. */
typedef struct times {
    uint64_t draft, gather, trunk, choose, walk, end;
} times;

/* Of `all` rows those from `first` on have this part of a time; parts of rows that follow one another add up to it. */
static uint64_t part(uint64_t ns, uint64_t first, uint64_t rows, uint64_t all) {
    return ns * (first + rows) / all - ns * first / all;
}
static void add_times(weft_stats *s, const times *t, bool prefill, uint64_t first, uint64_t rows, uint64_t all) {
    uint64_t draft = part(t->gather - t->draft, first, rows, all), verify = part(t->choose - t->trunk, first, rows, all),
             sample = part(t->walk - t->choose, first, rows, all),
             host = part(t->trunk - t->gather + t->end - t->walk, first, rows, all);
    s->draft_ns += draft;
    s->verify_ns += verify;
    s->sample_ns += sample;
    s->host_ns += host;
    *(prefill ? &s->prefill_ns : &s->decode_ns) += verify + sample + host;
}

static weft_status step_run(weft_engine *g, weft_error *e) {
    weft_step step;
    times t = {.draft = weft_now_ns()};
    WEFT_TRY(weft_draft(g, e));
    uint64_t prompts = g->stats.prompt_tokens, traffic = weft_dev_traffic(g->dev);
    t.gather = weft_now_ns();
    WEFT_TRY(weft_answer_room(g, e));
    int n_trials, wanted = gather(g, &step, &n_trials);
    if (!step.n_rows) return WEFT_OK;
    t.trunk = weft_now_ns();
    weft_begin(g->dev, &step);
    weft_model_pass(g->model, WEFT_MTP_WRITE);
    t.choose = weft_now_ns();
    weft_status scored = weft_prompt_logprobs_score(g, e);
    weft_model_pick(g->model, WEFT_HEAD_TRUNK, g->rows, wanted, g->picks, g->allowed);
    weft_try_drafts(g->dev, g->trials, n_trials);
    weft_status ended = weft_end(g->dev, scored == WEFT_OK ? e : NULL);
    if (scored != WEFT_OK || ended != WEFT_OK) return scored != WEFT_OK ? scored : ended;
    t.walk = weft_now_ns();
    int logit = 0;
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        if (!r->certain) continue;
        absorb(r, &logit);
        weft_place_release(r);
    }
    watch_drafts(g);
    bool prefill = g->stats.prompt_tokens > prompts;
    t.end = weft_now_ns();
    uint64_t all = (uint64_t)step.n_rows;
    add_times(&g->stats, &t, prefill, 0, all, all);
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        if (r->certain) add_times(&r->stats, &t, prefill, (uint64_t)r->row, (uint64_t)(r->certain + r->n_draft), all);
    }
    if (!prefill) weft_costs_pass(&g->costs, step.n_rows, t.end - t.gather);
    g->pass_bytes = weft_dev_traffic(g->dev) - traffic;
    if (!prefill) g->stats.decode_bytes += g->pass_bytes;
#ifndef NDEBUG
    const char *broken = weft_engine_check(g);
    if (broken) return weft_fail(e, WEFT_EINVAL, "internal fault: %s", broken);
#endif
    return WEFT_OK;
}

bool weft_run_step(weft_engine *g, const weft_event **events, size_t *n_events) {
    int running = 0;
    g->events.list.n = g->events.beside.n = 0;
    for (int i = 0; i < g->n_requests; i++) {
        weft_str_clear(&g->requests[i]->answer.text);
        running += g->requests[i]->phase != WEFT_ENDED;
    }
    *n_events = 0;
    *events = g->events.list.v;
    if (!running) return false;
    weft_fpu mode = weft_fpu_enter();
    weft_error why = {0};
    weft_status s = step_run(g, &why);
    weft_fpu_leave(mode);
    for (int i = 0; i < g->n_requests && s != WEFT_OK; i++) { /* it voids every slot it wrote: its requests cannot go on */
        weft_request *r = g->requests[i];
        if (r->phase == WEFT_ENDED) continue;
        r->error = why;
        weft_answer_end(r, WEFT_END_ERROR, -1);
    }
    weft_answer_publish(g);
    *events = g->events.list.v;
    *n_events = g->events.list.n;
    return true;
}

/* step.c: one step of the engine: drafts, one pass over all running requests, sampling.
 *
 * Every request contributes one span: a piece of its prompt, or its pending token with the drafts after it. Each row that predicts
 * an unknown token is sampled by the request's own rule; a draft that equals the sampled token is accepted, the first that does not
 * ends the walk. Nothing is redrawn, so the tokens are those of a run without drafts. */
#include <assert.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fpu.h"
#include "base/log.h"
#include "engine/engine.h"

/* ---- events -------------------------------------------------------------------------------------------------------------- */

/* An event with the text that its request has from `from` on. */
static weft_event *add_event(weft_request *r, weft_event event, size_t from) {
    weft_engine *g = r->engine;
    weft_event *ev = &g->events[g->n_events];
    g->event_text[g->n_events++] = from;
    *ev = event;
    ev->request = r;
    ev->n_text = r->text.n - from;
    return ev;
}

/* Appends what the token completes to the request's text; *stop: the stop string that is complete with it, or -1. On failure the
 * text is unchanged. */
static weft_status add_text(weft_request *r, int32_t token, int *stop) {
    const weft_tokenizer *t = r->engine->tokenizer;
    *stop = -1;
    if (!t) return WEFT_OK;
    if (!r->stop.n) return weft_decoder_add(&r->decoder, t, token, &r->text, &r->error);
    bool early = r->ids.n - r->n_prompt < r->choosing.min_tokens;
    WEFT_TRY(weft_decoder_add(&r->decoder, t, token, &r->stop.held, &r->error));
    return weft_stop_take(&r->stop, early, &r->text, stop, &r->error);
}

/* The answer ends; its last text begins at `from`. token: the end token, stop: the stop string; -1 where it was none. */
static void end_with(weft_request *r, weft_end_reason reason, int32_t token, int stop, size_t from) {
    r->phase = WEFT_ENDED;
    (void)add_event(r,
                    (weft_event){.kind = WEFT_EVENT_END,
                                 .token = token,
                                 .reason = reason,
                                 .stop = stop,
                                 .error = reason == WEFT_END_ERROR ? &r->error : NULL},
                    from);
}

/* It ends, but not with a stop string: what was held back for one is text. */
static void end(weft_request *r, weft_end_reason reason, int32_t token) {
    size_t from = r->text.n;
    int none;
    weft_error ignored; /* at worst without the mark of an incomplete character */
    (void)weft_stop_take(&r->stop, true, &r->text, &none, &ignored);
    if (r->engine->tokenizer) (void)weft_decoder_end(&r->decoder, &r->text, &ignored);
    end_with(r, reason, token, -1, from);
}

/* ---- the batch ----------------------------------------------------------------------------------------------------------- */

/* Rows for everybody: drafts are set, prompts share the chunk in order of age. Returns the number of rows that want logits. */
static int gather(weft_engine *g, weft_step *step) {
    int wanted = 0, room = g->config.chunk;
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
        if (certain == left)
            for (int j = 0; j <= r->n_draft; j++) {
                g->rows[wanted] = r->row + certain - 1 + j;
                weft_pick *pick = &g->picks[wanted];
                *pick = weft_choosing_pick(&r->choosing, r->ids.n - r->n_prompt, r->draft, j, g->kept, wanted++);
                pick->log_sum = r->choosing.logprobs;
                pick->top = r->choosing.top;
            }
        r->stats.passes++;
        r->stats.rows += (uint64_t)(certain + r->n_draft);
    }
    g->stats.passes++;
    g->stats.rows += (uint64_t)step->n_rows;
    return wanted;
}

/* ---- what the pass says
 * ------------------------------------------------------------------------------------------------------------ */

/* Why there is no token where one was to be chosen. */
static weft_status no_token(weft_request *r, weft_no_token why) {
    if (why == WEFT_TOKEN_BANNED)
        return weft_fail(&r->error, WEFT_EINVAL,
                         "no token may come at position %d: bans, logit biases, allowed ids and min_tokens leave none", r->done);
    return weft_fail(&r->error, WEFT_ENUMERIC, "the model's logits at position %d are not finite", r->done - 1);
}

/* The token is the answer's next one, and an event. `from`: where its text begins. */
static weft_status commit(weft_request *r, const weft_picked *picked, size_t from) {
    weft_engine *g = r->engine;
    WEFT_TRY(weft_choosing_note(&r->choosing, picked->id, &r->error));
    r->ids.v[r->ids.n++] = picked->id; /* room was made at the start */
    weft_usage_note(&g->usage, picked->id);
    g->stats.tokens++;
    r->stats.tokens++;
    weft_logprob *top = g->tops + g->n_events * WEFT_MAX_LOGPROBS;
    weft_event *ev = add_event(r, (weft_event){.kind = WEFT_EVENT_TOKEN, .token = picked->id, .stop = -1}, from);
    if (!r->choosing.logprobs) return WEFT_OK;
    ev->logprob = picked->logit - picked->log_sum;
    ev->top = top;
    ev->n_top = picked->n_top;
    for (int i = 0; i < picked->n_top; i++) top[i] = (weft_logprob){picked->top_id[i], picked->top_logit[i] - picked->log_sum};
    return WEFT_OK;
}

/* Walks the request's rows; *logit is the next of the picked tokens. Each token is an end, or completes a stop string, or is
 * committed, in this order; at the first that ends the answer the rows after it are forgotten. */
static void absorb(weft_request *r, int *logit) {
    weft_engine *g = r->engine;
    int base = r->done, first = *logit;
    bool last = (size_t)base + (size_t)r->certain == r->ids.n;
    r->done = r->stored = base + r->certain;
    r->replay = 0;
    r->journal = 1 - r->journal;
    if (!last) return;
    *logit += 1 + r->n_draft;
    r->phase = WEFT_DECODE;
    for (int i = 0; i <= r->n_draft; i++) {
        weft_picked picked;
        weft_status s = weft_read_pick(g->dev, first + i, &picked, &r->error);
        if (s == WEFT_OK && picked.id < 0) s = no_token(r, picked.why);
        if (s != WEFT_OK) {
            end(r, WEFT_END_ERROR, -1);
            return;
        }
        int32_t id = picked.id;
        if (i < r->n_draft) {
            g->stats.drafted[i]++;
            if (!i && !r->drafts && r->draft_from[0] == WEFT_DRAFTER_MODEL) g->drafted++;
            r->stats.drafted[i]++;
        }
        if (weft_choosing_ends(&r->choosing, id)) {
            end(r, WEFT_END_STOP, id); /* not committed, accepted or not */
            return;
        }
        size_t from = r->text.n;
        int stop;
        s = add_text(r, id, &stop);
        if (s == WEFT_OK && stop >= 0) {
            end_with(r, WEFT_END_STOP, -1, stop, from); /* neither */
            return;
        }
        if (s == WEFT_OK) s = commit(r, &picked, from);
        if (s != WEFT_OK) { /* ids and text must not part ways in silence */
            end(r, WEFT_END_ERROR, -1);
            return;
        }
        bool full = r->ids.n == r->n_prompt + r->max_tokens, agreed = i < r->n_draft && id == r->draft[i];
        if (i < r->n_draft) weft_draft_judged(r, i, agreed);
        if (agreed) {
            g->stats.accepted[i]++;
            if (!i && !r->drafts && r->draft_from[0] == WEFT_DRAFTER_MODEL) g->agreed++;
            r->stats.accepted[i]++;
            if (!full) { /* its row is final now; the last token of an answer stays pending */
                r->done++;
                r->replay++;
            }
        }
        if (full) {
            end(r, WEFT_END_LENGTH, -1);
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

static weft_status step_run(weft_engine *g, weft_error *e) {
    weft_step step;
    WEFT_TRY(weft_draft(g, e));
    uint64_t start = weft_now_ns(), prompts = g->stats.prompt_tokens, traffic = weft_dev_traffic(g->dev);
    int wanted = gather(g, &step);
    if (!step.n_rows) return WEFT_OK;
    weft_begin(g->dev, &step);
    weft_model_pass(g->model, WEFT_MTP_WRITE);
    weft_model_pick(g->model, WEFT_HEAD_TRUNK, g->rows, wanted, g->picks, g->allowed);
    WEFT_TRY(weft_end(g->dev, e));
    int logit = 0;
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        if (!r->certain) continue;
        absorb(r, &logit);
        weft_place_release(r);
    }
    watch_drafts(g);
    bool prefill = g->stats.prompt_tokens > prompts;
    uint64_t took = weft_now_ns() - start;
    *(prefill ? &g->stats.prefill_ns : &g->stats.decode_ns) += took;
    if (!prefill) weft_costs_pass(&g->costs, step.n_rows, took);
    if (!prefill) g->stats.decode_bytes += weft_dev_traffic(g->dev) - traffic;
#ifndef NDEBUG
    const char *broken = weft_engine_check(g);
    if (broken) return weft_fail(e, WEFT_EINVAL, "internal fault: %s", broken);
#endif
    return WEFT_OK;
}

bool weft_run_step(weft_engine *g, const weft_event **events, size_t *n_events) {
    int running = 0;
    g->n_events = 0;
    for (int i = 0; i < g->n_requests; i++) {
        weft_str_clear(&g->requests[i]->text);
        running += g->requests[i]->phase != WEFT_ENDED;
    }
    *n_events = 0;
    *events = g->events;
    if (!running) return false;
    weft_fpu mode = weft_fpu_enter();
    weft_error why = {0};
    weft_status s = step_run(g, &why);
    weft_fpu_leave(mode);
    if (s != WEFT_OK) { /* a failed step voids every slot it wrote: its requests cannot go on */
        g->n_events = 0;
        for (int i = 0; i < g->n_requests; i++) {
            weft_request *r = g->requests[i];
            if (r->phase == WEFT_ENDED) continue;
            r->error = why;
            end(r, WEFT_END_ERROR, -1);
        }
    }
    for (size_t i = 0; i < g->n_events; i++) g->events[i].text = weft_str_z(&g->events[i].request->text) + g->event_text[i];
    *n_events = g->n_events;
    return true;
}

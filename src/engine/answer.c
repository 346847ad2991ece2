/* answer.c: see answer.h. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine.h"

/* ---- room ---------------------------------------------------------------------------------------------------------------- */

/* Tokens that hold a byte of text which is undecided. Others may stand between them, control tokens for instance: rare, and not
 * counted here. */
static size_t usually_held(const weft_answer *a) {
    const size_t character = 3; /* bytes of an incomplete one */
    return a->stop.n ? a->stop.longest - 1 + character : 0;
}

weft_status weft_answer_room(weft_engine *g, weft_error *e) {
    size_t events = 0, step = 1 + (size_t)g->config.max_depth;
    for (int i = 0; i < g->n_requests; i++) {
        weft_answer *a = &g->requests[i]->answer;
        size_t held = usually_held(a);
        if (held < a->held.n) held = a->held.n;
        if (!weft_vec_reserve(&a->held, held + step)) return weft_fail_oom(e, "tokens that may belong to a stop string");
        events += held + step + 1;
    }
    if (!weft_vec_reserve(&g->events.list, events) || !weft_vec_reserve(&g->events.beside, events))
        return weft_fail_oom(e, "the events of a step");
    return WEFT_OK;
}

weft_status weft_answer_open(weft_request *r, const weft_request_desc *d, weft_error *e) {
    const size_t tokens =
        4096; /* bytes: the text of a step. No token of a sane vocabulary needs more; one that does makes it grow */
    weft_answer *a = &r->answer;
    WEFT_TRY(weft_stop_open(&a->stop, d->stop, d->n_stop, e));
    if (!weft_str_reserve(&a->text, tokens + a->stop.longest) || !weft_str_reserve(&a->undecided, tokens + a->stop.longest))
        return weft_fail_oom(e, "a request's text");
    return weft_answer_room(r->engine, e);
}

void weft_answer_close(weft_answer *a) {
    weft_stop_close(&a->stop);
    weft_vec_free(&a->held);
    weft_str_free(&a->undecided);
    weft_str_free(&a->text);
}

/* ---- events -------------------------------------------------------------------------------------------------------------- */

/* An event with n bytes of the answer's text, from `from` on. There is room. */
static weft_beside *add_event(weft_request *r, weft_event event, size_t from, size_t n) {
    weft_events *all = &r->engine->events;
    event.request = r;
    event.n_text = n;
    all->list.v[all->list.n++] = event;
    weft_beside *beside = &all->beside.v[all->beside.n++];
    beside->text = from;
    return beside;
}

void weft_answer_publish(weft_engine *g) {
    for (size_t i = 0; i < g->events.list.n; i++) {
        weft_event *ev = &g->events.list.v[i];
        const weft_beside *beside = &g->events.beside.v[i];
        ev->text = weft_str_z(&ev->request->answer.text) + beside->text;
        if (ev->n_top) ev->top = beside->top;
    }
}

/* Drops the first n bytes of the undecided text. */
static void drop_text(weft_answer *a, size_t n) {
    if (!n) return;
    memmove(a->undecided.p, a->undecided.p + n, a->undecided.n - n + 1);
    a->undecided.n -= n;
}

/* The first n of the tokens held back are part of the answer now. On failure nothing has changed. */
static weft_status let_out(weft_request *r, size_t n) {
    weft_engine *g = r->engine;
    weft_answer *a = &r->answer;
    if (!n) return WEFT_OK;
    size_t from = a->text.n, text = a->held.v[n - 1].text, at = 0;
    const int32_t *ids = r->ids.v + r->ids.n - a->held.n;
    if (!weft_str_add(&a->text, a->undecided.p, text)) return weft_fail_oom(&r->error, "an answer's text");
    for (size_t i = 0; i < n; at = a->held.v[i++].text) {
        const weft_said *said = &a->held.v[i];
        weft_event ev = {.kind = WEFT_EVENT_TOKEN, .token = ids[i], .logprob = said->logprob, .n_top = said->n_top, .stop = -1};
        weft_beside *beside = add_event(r, ev, from + at, said->text - at);
        memcpy(beside->top, said->top, (size_t)said->n_top * sizeof *said->top);
    }
    g->stats.tokens += n;
    r->stats.tokens += n;
    a->plain = a->held.v[n - 1].more;
    drop_text(a, text);
    a->held.n -= n;
    memmove(a->held.v, a->held.v + n, a->held.n * sizeof *a->held.v);
    for (size_t i = 0; i < a->held.n; i++) a->held.v[i].text -= text;
    return WEFT_OK;
}

/* Those that end before undecided text does; it begins at `at`. */
static weft_status let_out_before(weft_request *r, size_t at) {
    const weft_answer *a = &r->answer;
    size_t n = 0;
    while (n < a->held.n && a->held.v[n].text + a->held.v[n].more <= at) n++;
    return let_out(r, n);
}

/* ---- tokens -------------------------------------------------------------------------------------------------------------- */

static weft_status hold(weft_request *r, const weft_picked *picked) {
    weft_answer *a = &r->answer;
    weft_said *said = &a->held.v[a->held.n];
    *said = (weft_said){.text = a->undecided.n, .more = a->decoder.n};
    if (r->choosing.logprobs) {
        said->logprob = picked->logit - picked->log_sum;
        said->n_top = picked->n_top;
        for (int i = 0; i < picked->n_top; i++)
            said->top[i] = (weft_logprob){picked->top_id[i], picked->top_logit[i] - picked->log_sum};
        if (!isfinite(said->logprob))
            return weft_fail(&r->error, WEFT_ENUMERIC, "the model's logits at position %zu are not finite", r->ids.n - 1);
    }
    WEFT_TRY(weft_choosing_note(&r->choosing, picked->id, &r->error));
    a->held.n++;
    r->ids.v[r->ids.n++] = picked->id; /* room was made at the start */
    weft_draft_said(r, picked->id);
    return WEFT_OK;
}

/* The answer ends at the stop string that begins at `at`. Tokens that hold a byte of it stay held back for good; what their text
 * had before it comes with the end. */
static weft_status end_at_stop(weft_request *r, int stop, size_t at) {
    weft_answer *a = &r->answer;
    size_t all = a->undecided.n, from;
    WEFT_TRY(let_out_before(r, at));
    at -= all - a->undecided.n;
    from = a->text.n;
    if (!weft_str_add(&a->text, a->undecided.p, at)) return weft_fail_oom(&r->error, "an answer's text");
    weft_str_clear(&a->undecided);
    r->phase = WEFT_ENDED;
    add_event(r, (weft_event){.kind = WEFT_EVENT_END, .token = -1, .reason = WEFT_END_STOP, .stop = stop}, from, at);
    return WEFT_OK;
}

weft_status weft_answer_add(weft_request *r, const weft_picked *picked) {
    weft_answer *a = &r->answer;
    const weft_tokenizer *t = r->engine->tokenizer;
    bool early = r->ids.n - r->n_prompt < r->choosing.min_tokens;
    if (t) WEFT_TRY(weft_decoder_add(&a->decoder, t, picked->id, &a->undecided, &r->error));
    if (early || !a->stop.n) {
        WEFT_TRY(hold(r, picked));
        return let_out(r, a->held.n);
    }
    size_t at;
    int stop = weft_stop_search(&a->stop, &a->undecided, a->plain, &at);
    if (stop >= 0) return end_at_stop(r, stop, at);
    WEFT_TRY(hold(r, picked));
    return let_out_before(r, at);
}

void weft_answer_end(weft_request *r, weft_end_reason reason, int32_t token) {
    weft_answer *a = &r->answer;
    weft_error ignored;                     /* at worst without the mark of an incomplete character */
    if (let_out(r, a->held.n) != WEFT_OK) { /* memory is out: tokens without their text */
        for (size_t i = 0; i < a->held.n; i++) a->held.v[i].text = 0;
        (void)let_out(r, a->held.n);
    }
    size_t from = a->text.n;
    if (r->engine->tokenizer) (void)weft_decoder_end(&a->decoder, &a->text, &ignored);
    r->phase = WEFT_ENDED;
    weft_event ev = {.kind = WEFT_EVENT_END, .token = token, .reason = reason, .stop = -1};
    if (reason == WEFT_END_ERROR) ev.error = &r->error;
    add_event(r, ev, from, a->text.n - from);
}

/* choose.c: see choose.h. */
#include "engine/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/random.h"

_Static_assert(WEFT_MAX_LOGPROBS == WEFT_MAX_TOP, "events tell what a pick finds");

/* ---- lists of ids -------------------------------------------------------------------------------------------------------- */

static weft_status check_id(int32_t id, const char *what, int vocab, weft_error *e) {
    if (id >= 0 && id < vocab) return WEFT_OK;
    return weft_fail(e, WEFT_EINVAL, "%s id %d is outside the vocabulary of %d", what, id, vocab);
}
static weft_status check_ids(const int32_t *ids, size_t n, const char *what, int vocab, weft_error *e) {
    if (n > (size_t)vocab) return weft_fail(e, WEFT_EINVAL, "%zu %s ids are more than the vocabulary of %d", n, what, vocab);
    for (size_t i = 0; i < n; i++) WEFT_TRY(check_id(ids[i], what, vocab, e));
    return WEFT_OK;
}

/* By id, bans first. */
static int compare_bias(const void *a, const void *b) {
    const weft_logit_bias *x = a, *y = b;
    return x->id != y->id ? (x->id < y->id ? -1 : 1) : (x->add > y->add) - (x->add < y->add);
}
static int compare_ids(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Bias and bans are one ascending list; a ban counts more than any bias. */
static weft_status make_bias(weft_choosing *c, const weft_request_desc *d, int vocab, weft_error *e) {
    WEFT_TRY(check_ids(d->banned, d->n_banned, "banned", vocab, e));
    if (d->n_bias > (size_t)vocab)
        return weft_fail(e, WEFT_EINVAL, "%zu logit biases are more than the vocabulary of %d", d->n_bias, vocab);
    for (size_t i = 0; i < d->n_bias; i++) {
        WEFT_TRY(check_id(d->bias[i].id, "logit bias", vocab, e));
        if (!isfinite(d->bias[i].add) && d->bias[i].add != -INFINITY)
            return weft_fail(e, WEFT_EINVAL, "the logit bias of id %d is not a number", d->bias[i].id);
    }
    size_t all = d->n_bias + d->n_banned;
    if (!all) return WEFT_OK;
    weft_logit_bias *b = c->bias = weft_calloc(all, sizeof *b);
    if (!b) return weft_fail_oom(e, "a request's logit biases");
    if (d->n_bias) memcpy(b, d->bias, d->n_bias * sizeof *b);
    for (size_t i = 0; i < d->n_banned; i++) b[d->n_bias + i] = (weft_logit_bias){d->banned[i], -INFINITY};
    qsort(b, all, sizeof *b, compare_bias);
    int n = 0;
    for (size_t i = 0; i < all; i++) {
        if (!n || b[n - 1].id != b[i].id)
            b[n++] = b[i];
        else if (b[n - 1].add > -INFINITY)
            return weft_fail(e, WEFT_EINVAL, "id %d has two logit biases", b[i].id);
    }
    c->shaping.bias = b;
    c->shaping.n_bias = n;
    return WEFT_OK;
}

static weft_status make_mask(weft_choosing *c, const weft_request_desc *d, int vocab, weft_error *e) {
    WEFT_TRY(check_ids(d->allowed, d->n_allowed, "allowed", vocab, e));
    if (!d->n_allowed) return WEFT_OK;
    c->mask = weft_calloc(((size_t)vocab + 63) / 64, sizeof *c->mask);
    if (!c->mask) return weft_fail_oom(e, "a request's mask");
    for (size_t i = 0; i < d->n_allowed; i++) c->mask[d->allowed[i] / 64] |= (uint64_t)1 << d->allowed[i] % 64;
    return WEFT_OK;
}

static weft_status make_ends(weft_choosing *c, const weft_request_desc *d, const int32_t *ends, int n_ends, int vocab,
                             weft_error *e) {
    WEFT_TRY(check_ids(d->stop_ids, d->n_stop_ids, "stop", vocab, e));
    c->ends = weft_calloc((size_t)n_ends + d->n_stop_ids, sizeof *c->ends);
    if (!c->ends) return weft_fail_oom(e, "a request's end tokens");
    for (int i = 0; i < n_ends && !d->ignore_end; i++)
        if (ends[i] >= 0 && ends[i] < vocab) c->ends[c->n_ends++] = ends[i];
    for (size_t i = 0; i < d->n_stop_ids; i++) c->ends[c->n_ends++] = d->stop_ids[i];
    return WEFT_OK;
}

static void show_tally(weft_choosing *c) {
    c->shaping.seen = c->tally.ids.v;
    c->shaping.n_seen = (int)c->tally.ids.n;
}

/* The prompt's ids sorted, since a tally takes them best in that order; and room for the answer's. */
static weft_status make_tally(weft_choosing *c, const weft_request_desc *d, weft_error *e) {
    c->counts = weft_penalises(&c->shaping);
    if (!c->counts) return WEFT_OK;
    int32_t *ids = weft_calloc(d->n_prompt, sizeof *ids);
    if (!ids || !weft_vec_reserve(&c->tally.ids, d->n_prompt + (size_t)d->max_tokens)) {
        weft_free(ids);
        return weft_fail_oom(e, "a request's penalties");
    }
    memcpy(ids, d->prompt, d->n_prompt * sizeof *ids);
    qsort(ids, d->n_prompt, sizeof *ids, compare_ids);
    weft_status status = weft_tally_add(&c->tally, ids, (int)d->n_prompt, false, e);
    weft_free(ids);
    show_tally(c);
    return status;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static weft_status check_numbers(const weft_request_desc *d, weft_error *e) {
    const struct {
        const char *name;
        double value, least, most;
    } all[] = {
        {"a temperature", d->temperature, 0, 100},
        {"a repetition penalty", (double)d->repetition_penalty, 0, 1e6},
        {"a frequency penalty", (double)d->frequency_penalty, -1e6, 1e6},
        {"a presence penalty", (double)d->presence_penalty, -1e6, 1e6},
        {"a top_k", d->top_k, 0, 2147483647},
        {"a top_p", (double)d->top_p, 0, 1e6},
        {"a min_p", (double)d->min_p, 0, 1},
        {"a min_tokens", d->min_tokens, 0, d->max_tokens},
        {"a top_logprobs", d->top_logprobs, 0, WEFT_MAX_LOGPROBS},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(all[i].value >= all[i].least && all[i].value <= all[i].most))
            return weft_fail(e, WEFT_EINVAL, "%s of %.10g is outside %.10g..%.10g", all[i].name, all[i].value, all[i].least,
                             all[i].most);
    if (d->accept != WEFT_ACCEPT_COUPLED && d->accept != WEFT_ACCEPT_REJECTION)
        return weft_fail(e, WEFT_EINVAL, "%d is no way to judge drafts", (int)d->accept);
    if (d->top_logprobs && !d->logprobs && !d->prompt_logprobs)
        return weft_fail(e, WEFT_EINVAL, "top_logprobs without logprobs: ask for both");
    return WEFT_OK;
}

static weft_status fill(weft_choosing *c, const weft_request_desc *d, const int32_t *ends, int n_ends, int vocab, weft_error *e) {
    WEFT_TRY(check_numbers(d, e));
    c->sampler = (weft_sampler){.temperature = d->temperature, .seed = d->has_seed ? d->seed : 0, .choice = d->choice};
    c->shaping = (weft_shaping){.repetition = d->repetition_penalty,
                                .frequency = d->frequency_penalty,
                                .presence = d->presence_penalty,
                                .top_k = d->top_k,
                                .top_p = d->top_p,
                                .min_p = d->min_p};
    c->min_tokens = (uint32_t)d->min_tokens;
    c->rejects = d->accept == WEFT_ACCEPT_REJECTION && !weft_greedy(&c->sampler);
    c->logprobs = d->logprobs;
    c->top = d->top_logprobs;
    WEFT_TRY(make_bias(c, d, vocab, e));
    WEFT_TRY(make_mask(c, d, vocab, e));
    WEFT_TRY(make_ends(c, d, ends, n_ends, vocab, e));
    WEFT_TRY(make_tally(c, d, e));
    if (!d->has_seed && !weft_greedy(&c->sampler)) {
        WEFT_TRY(weft_random(&c->sampler.seed, e));
        c->sampler.seed >>= 11;
    }
    weft_pick pick = weft_choosing_pick(c, 0, NULL, 0, NULL, 0);
    const char *fault = weft_rule_fault(&pick.rule, vocab);
    return fault ? weft_fail(e, WEFT_EINVAL, "this request cannot be: %s", fault) : WEFT_OK;
}

weft_status weft_choosing_open(weft_choosing *c, const weft_request_desc *d, const int32_t *ends, int n_ends, int vocab,
                               weft_error *e) {
    *c = (weft_choosing){0};
    weft_status s = fill(c, d, ends, n_ends, vocab, e);
    if (s != WEFT_OK) weft_choosing_close(c);
    return s;
}

void weft_choosing_close(weft_choosing *c) {
    weft_free(c->bias);
    weft_free(c->mask);
    weft_free(c->ends);
    weft_tally_free(&c->tally);
    *c = (weft_choosing){0};
}

/* ---- choosing ------------------------------------------------------------------------------------------------------------ */

bool weft_choosing_ends(const weft_choosing *c, int32_t id) {
    for (int i = 0; i < c->n_ends; i++)
        if (c->ends[i] == id) return true;
    return false;
}

weft_pick weft_choosing_pick(const weft_choosing *c, size_t tokens, const int32_t *after, int n_after, weft_kept *kept,
                             int keep_row) {
    uint32_t index = (uint32_t)tokens + (uint32_t)n_after;
    weft_pick p = {.rule = {.sampler = c->sampler,
                            .index = index,
                            .shaping = &c->shaping,
                            .mask = c->mask,
                            .bans = c->ends,
                            .n_bans = index < c->min_tokens ? c->n_ends : 0,
                            .after = after,
                            .n_after = c->counts ? n_after : 0}};
    if (c->rejects || weft_rule_truncates(&p.rule)) {
        p.keep = kept;
        p.keep_row = keep_row;
    }
    return p;
}

weft_status weft_choosing_note(weft_choosing *c, int32_t id, weft_error *e) {
    if (!c->counts) return WEFT_OK;
    WEFT_TRY(weft_tally_add(&c->tally, &id, 1, true, e));
    show_tally(c);
    return WEFT_OK;
}

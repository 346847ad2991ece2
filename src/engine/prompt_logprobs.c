/* prompt_logprobs.c: log-probabilities of a prompt's own ids, piece by piece of the passes that the prompt takes anyway: the output
 * head runs over all its rows instead of the last alone. The logit of an id is what a pick says that permits no other. */
#include <math.h>

#include "base/alloc.h"
#include "engine/engine.h"

weft_status weft_prompt_logprobs_open(weft_request *r, const weft_request_desc *d, weft_error *e) {
    if (!d->prompt_logprobs || d->n_prompt < 2) return WEFT_OK;
    r->prompt_logprobs.logprob = weft_calloc(d->n_prompt, sizeof *r->prompt_logprobs.logprob);
    if (d->top_logprobs)
        r->prompt_logprobs.top = weft_calloc(d->n_prompt * (size_t)d->top_logprobs, sizeof *r->prompt_logprobs.top);
    if (!r->prompt_logprobs.logprob || (d->top_logprobs && !r->prompt_logprobs.top))
        return weft_fail_oom(e, "the log-probabilities of a prompt");
    return WEFT_OK;
}

void weft_prompt_logprobs_close(weft_prompt_logprobs *p) {
    weft_free(p->logprob);
    weft_free(p->top);
    *p = (weft_prompt_logprobs){0};
}

/* The id at `at` has this logit in the row that was picked for its place. */
static weft_status note(weft_request *r, size_t at, float logit, const weft_picked *picked) {
    weft_prompt_logprobs *p = &r->prompt_logprobs;
    p->logprob[at] = logit - picked->log_sum;
    if (picked->id < 0 || !isfinite(p->logprob[at]))
        return weft_fail(&r->error, WEFT_ENUMERIC, "the model's logits at position %zu are not finite", at - 1);
    p->n_top = picked->n_top;
    for (int i = 0; i < picked->n_top; i++)
        p->top[at * (size_t)r->choosing.top + (size_t)i] =
            (weft_logprob){picked->top_id[i], picked->top_logit[i] - picked->log_sum};
    p->known = at + 1;
    return WEFT_OK;
}

/* Ids [at, at + n), by the step's rows from `row` on. A failure of r alone is in r->error, and ends the request. */
static weft_status score(weft_request *r, size_t at, int row, int n, weft_error *e) {
    weft_engine *g = r->engine;
    int *rows = g->rows + weft_logit_rows(&g->config);
    weft_pick *picks = g->picks + weft_logit_rows(&g->config);
    for (int i = 0; i < n; i++) {
        picks[i] = (weft_pick){.log_sum = true, .top = r->choosing.top};
        rows[i] = row + i;
    }
    weft_model_pick(g->model, WEFT_HEAD_TRUNK, rows, n, picks, g->allowed);
    for (int i = 0; i < n && r->phase != WEFT_ENDED; i++) {
        weft_picked picked;
        float logit;
        WEFT_TRY(weft_read_pick(g->dev, i, &picked, e));
        WEFT_TRY(weft_read_logit(g->dev, i, r->ids.v[at + (size_t)i], &logit, e));
        if (note(r, at + (size_t)i, logit, &picked) != WEFT_OK) weft_answer_end(r, WEFT_END_ERROR, -1);
    }
    return WEFT_OK;
}

weft_status weft_prompt_logprobs_score(weft_engine *g, weft_error *e) {
    int most = weft_pick_rows(&g->config);
    for (int i = 0; i < g->n_requests; i++) {
        weft_request *r = g->requests[i];
        if (r->phase != WEFT_PROMPT || !r->certain || !r->prompt_logprobs.logprob) continue;
        int left = (int)r->n_prompt - 1 - r->done, rows = r->certain < left ? r->certain : left;
        for (int from = 0; from < rows && r->phase != WEFT_ENDED; from += most)
            WEFT_TRY(score(r, (size_t)(r->done + from + 1), r->row + from, rows - from < most ? rows - from : most, e));
    }
    return WEFT_OK;
}

bool weft_request_prompt_logprob(const weft_request *r, size_t i, float *logprob, const weft_logprob **top, int *n_top) {
    const weft_prompt_logprobs *p = &r->prompt_logprobs;
    if (!i || i >= p->known) return false;
    *logprob = p->logprob[i];
    *n_top = p->n_top;
    *top = p->n_top ? p->top + i * (size_t)r->choosing.top : NULL;
    return true;
}

/* score.c: teacher-forced scoring: the prompt path of the engine with logits for every row. */
#include "base/alloc.h"
#include "base/fpu.h"
#include "engine/engine.h"

typedef struct scoring {
    weft_engine *engine;
    weft_request *r; /* a place in the caches; never run as a request */
    bool mtp;        /* the head's logits, too */
    float *mtp_logits;
    weft_score_row row;
    void *ctx;
} scoring;

/* Rows [from, from + n) of the step, at positions pos + from ..: as many as the logits buffer holds. */
static weft_status emit(scoring *s, int pos, int from, int n, weft_error *e) {
    weft_engine *g = s->engine;
    const weft_buf *logits = weft_model_logits_buf(g->model);
    float *trunk = s->mtp_logits + g->info.vocab; /* [n, vocab], read before the buffer serves the MTP head */
    for (int i = 0; i < n; i++) g->rows[i] = from + i;
    weft_model_logits(g->model, WEFT_HEAD_TRUNK, g->rows, n);
    for (int i = 0; i < n; i++) {
        float *row = trunk + (size_t)i * (size_t)g->info.vocab;
        WEFT_TRY(weft_read(g->dev, logits, i, row, e));
        if (weft_first_nonfinite(WEFT_F32, row, (size_t)g->info.vocab) < (size_t)g->info.vocab)
            return weft_fail(e, WEFT_ENUMERIC, "the model's logits at position %d are not finite", pos + from + i);
    }
    if (s->mtp) weft_model_logits(g->model, WEFT_HEAD_DRAFT, g->rows, n);
    for (int i = 0; i < n; i++) {
        bool mtp = s->mtp && pos + from + i > 0;
        if (mtp) WEFT_TRY(weft_read(g->dev, logits, i, s->mtp_logits, e));
        const float *row = trunk + (size_t)i * (size_t)g->info.vocab;
        WEFT_TRY(s->row(s->ctx, (size_t)pos + (size_t)from + (size_t)i, row, mtp ? s->mtp_logits : NULL, e));
    }
    return WEFT_OK;
}

static weft_status score_chunk(scoring *s, int n, weft_error *e) {
    weft_engine *g = s->engine;
    weft_request *r = s->r;
    weft_place_reach(r, n);
    weft_span span = weft_place_span(r, 0, n, 0);
    weft_begin(g->dev, &(weft_step){.n_rows = n, .n_spans = 1, .tokens = r->ids.v + r->done, .spans = &span});
    weft_model_pass(g->model, s->mtp ? WEFT_MTP_FULL : WEFT_MTP_WRITE);
    weft_status status = WEFT_OK;
    int most = weft_logit_rows(&g->config);
    for (int from = 0; from < n && status == WEFT_OK; from += most)
        status = emit(s, r->done, from, n - from < most ? n - from : most, e);
    weft_status ended = weft_end(g->dev, status == WEFT_OK ? e : NULL);
    r->done = r->stored = r->done + n;
    weft_place_release(r);
    return status != WEFT_OK ? status : ended;
}

static weft_status open(scoring *s, const int32_t *ids, size_t n, int room, weft_error *e) {
    weft_request_desc desc = {.prompt = ids, .n_prompt = n, .max_tokens = room};
    return weft_submit(s->engine, &desc, &s->r, e);
}

/* All of the prompt; the request stays open. */
static weft_status run(scoring *s, weft_error *e) {
    weft_engine *g = s->engine;
    size_t n = s->r->n_prompt;
    s->mtp_logits = weft_calloc((size_t)g->info.vocab * (size_t)(1 + weft_logit_rows(&g->config)), sizeof *s->mtp_logits);
    weft_status status = s->mtp_logits ? WEFT_OK : weft_fail_oom(e, "logits");
    while (status == WEFT_OK && (size_t)s->r->done < n) {
        int left = (int)(n - (size_t)s->r->done);
        status = score_chunk(s, left < g->config.chunk ? left : g->config.chunk, e);
    }
    weft_free(s->mtp_logits);
    return status;
}

static weft_status score(weft_engine *g, const int32_t *ids, size_t n, bool mtp, weft_score_row row, void *ctx, weft_error *e) {
    scoring s = {.engine = g, .mtp = mtp, .row = row, .ctx = ctx};
    weft_fpu mode = weft_fpu_enter();
    weft_status status = open(&s, ids, n, 1, e);
    if (status == WEFT_OK) status = run(&s, e);
    weft_fpu_leave(mode);
    weft_request_close(s.r);
    return status;
}

weft_status weft_score(weft_engine *g, const int32_t *ids, size_t n, weft_score_row row, void *ctx, weft_error *e) {
    return score(g, ids, n, g->info.has_mtp, row, ctx, e);
}

weft_status weft_score_trunk(weft_engine *g, const int32_t *ids, size_t n, weft_score_row row, void *ctx, weft_error *e) {
    return score(g, ids, n, false, row, ctx, e);
}

/* ---- drafts -------------------------------------------------------------------------------------------------------------- */

/* The likeliest id of a row of logits; ties go to the lowest. */
static int32_t likeliest(const float *logits, int n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

typedef struct last_row {
    int32_t *token;
    int vocab;
} last_row;
static weft_status keep_last(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e) {
    last_row *l = ctx;
    (void)position, (void)mtp_logits, (void)e;
    *l->token = likeliest(logits, l->vocab);
    return WEFT_OK;
}

static weft_status draft_one(scoring *s, int depth, int32_t *tokens, float *logits, weft_error *e) {
    weft_engine *g = s->engine;
    const int row = 0;
    weft_place_reach(s->r, 1 + depth);
    weft_span span = weft_place_span(s->r, 0, 0, 1);
    if (weft_model_draft_moves(g->model)) span.pos += depth;
    weft_begin(g->dev, &(weft_step){.n_rows = 1, .n_spans = 1, .tokens = &tokens[depth], .spans = &span});
    weft_model_draft(g->model, depth > 0);
    weft_model_logits(g->model, WEFT_HEAD_DRAFT, &row, 1);
    weft_status status = weft_read(g->dev, weft_model_logits_buf(g->model), 0, logits, e);
    weft_status ended = weft_end(g->dev, status == WEFT_OK ? e : NULL);
    if (status == WEFT_OK) status = ended;
    if (status == WEFT_OK) tokens[depth + 1] = likeliest(logits, g->info.vocab);
    return status;
}

weft_status weft_score_drafts(weft_engine *g, const int32_t *ids, size_t n, int steps, int32_t *tokens, float *logits,
                              weft_error *e) {
    if (!g->info.drafts) return weft_fail(e, WEFT_ESUPPORT, "the model has no drafter");
    if (steps < 0 || steps > g->config.max_depth)
        return weft_fail(e, WEFT_EINVAL, "%d drafts; the engine is open for %d", steps, g->config.max_depth);
    last_row last = {tokens, g->info.vocab};
    scoring s = {.engine = g, .row = keep_last, .ctx = &last};
    weft_fpu mode = weft_fpu_enter();
    weft_status status = open(&s, ids, n, 1 + steps, e);
    if (status == WEFT_OK) status = run(&s, e);
    for (int depth = 0; depth < steps && status == WEFT_OK; depth++)
        status = draft_one(&s, depth, tokens, logits + (size_t)depth * (size_t)g->info.vocab, e);
    weft_fpu_leave(mode);
    weft_request_close(s.r);
    return status;
}

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
    if (s->mtp) weft_model_logits(g->model, WEFT_HEAD_MTP, g->rows, n);
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

static weft_status run(weft_engine *g, const int32_t *ids, size_t n, bool mtp, weft_score_row row, void *ctx, weft_error *e) {
    scoring s = {.engine = g, .mtp = mtp, .row = row, .ctx = ctx};
    weft_request_desc desc = {.prompt = ids, .n_prompt = n, .max_tokens = 1};
    WEFT_TRY(weft_submit(g, &desc, &s.r, e));
    s.mtp_logits = weft_calloc((size_t)g->info.vocab * (size_t)(1 + weft_logit_rows(&g->config)), sizeof *s.mtp_logits);
    weft_status status = s.mtp_logits ? WEFT_OK : weft_fail_oom(e, "logits");
    weft_fpu mode = weft_fpu_enter();
    while (status == WEFT_OK && (size_t)s.r->done < n) {
        int left = (int)(n - (size_t)s.r->done);
        status = score_chunk(&s, left < g->config.chunk ? left : g->config.chunk, e);
    }
    weft_fpu_leave(mode);
    weft_free(s.mtp_logits);
    weft_request_close(s.r);
    return status;
}

weft_status weft_score(weft_engine *g, const int32_t *ids, size_t n, weft_score_row row, void *ctx, weft_error *e) {
    return run(g, ids, n, g->info.has_mtp, row, ctx, e);
}

weft_status weft_score_trunk(weft_engine *g, const int32_t *ids, size_t n, weft_score_row row, void *ctx, weft_error *e) {
    return run(g, ids, n, false, row, ctx, e);
}

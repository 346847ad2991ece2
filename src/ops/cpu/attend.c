/* attend.c: ragged causal attention over paged keys and values.
 *
 * Keys are taken in chunks of ATTEND_CHUNK at absolute positions. A chunk gives (maximum, sum, weighted values) of its visible
 * keys; chunks merge in ascending order. A row's result therefore depends on its position and its keys alone, whatever rows are
 * computed beside it. */
#include <string.h>

#include "ops/cpu/kernels.h"

typedef struct attend_job {
    weft_dev *d;
    const kv_layer *l;
    const weft_attention *a;
    weft_buf *y;
    const weft_buf *q, *k, *v;
} attend_job;

static float *kv_row(const kv_layer *l, float *base, int page, int head, int row) {
    return base + (((size_t)page * (size_t)l->n_kv_heads + (size_t)head) * WEFT_PAGE_ROWS + (size_t)row) * (size_t)l->ld;
}

static void write_rows(const attend_job *j) {
    const weft_dev *d = j->d;
    size_t bytes = (size_t)j->l->head_dim * sizeof(float);
    for (int i = 0; i < d->step->n_spans; i++) {
        const weft_span *s = &d->step->spans[i];
        for (int r = 0; r < s->certain + s->speculative; r++) {
            int pos = s->pos + r;
            if (pos < s->write_from || pos < j->a->first_key) continue;
            int page = s->pages[pos / WEFT_PAGE_ROWS], at = pos % WEFT_PAGE_ROWS;
            for (int h = 0; h < j->l->n_kv_heads; h++) {
                memcpy(kv_row(j->l, j->l->k, page, h, at), buf_row(j->k, s->row + r) + h * j->l->head_dim, bytes);
                memcpy(kv_row(j->l, j->l->v, page, h, at), buf_row(j->v, s->row + r) + h * j->l->head_dim, bytes);
            }
        }
    }
}

/* One row, one query head. */
static void attend_head(const attend_job *j, int row, int head, float *scratch) {
    const weft_dev *d = j->d;
    const weft_kernels *kn = d->kernels;
    const weft_span *s = &d->step->spans[d->row_span[row]];
    int ld = j->l->ld, dim = j->l->head_dim, kv_head = head / (j->a->n_heads / j->a->n_kv_heads), last = row_pos(d, row);
    float *q = scratch, *o = q + ld, *chunk_o = o + ld, *p = chunk_o + ld, m = 0, l = 0;
    memset(q, 0, (size_t)ld * sizeof *q);
    memset(o, 0, (size_t)ld * sizeof *o);
    memcpy(q, buf_row(j->q, row) + head * dim, (size_t)dim * sizeof *q);
    for (int start = 0; start <= last; start += ATTEND_CHUNK) {
        int keys = last + 1 - start < ATTEND_CHUNK ? last + 1 - start : ATTEND_CHUNK;
        if (start + keys <= j->a->first_key) continue; /* no visible key */
        for (int at = 0; at < keys; at += WEFT_PAGE_ROWS) {
            int n = keys - at < WEFT_PAGE_ROWS ? keys - at : WEFT_PAGE_ROWS, page = s->pages[(start + at) / WEFT_PAGE_ROWS];
            kn->scores(p + at, q, kv_row(j->l, j->l->k, page, kv_head, 0), n, ld, j->a->scale);
        }
        for (int i = start; i < j->a->first_key && i < start + keys; i++) p[i - start] = -__builtin_inff();
        float chunk_l, chunk_m = kn->chunk_exp(p, keys, &chunk_l);
        memset(chunk_o, 0, (size_t)ld * sizeof *chunk_o);
        for (int at = 0; at < keys; at += WEFT_PAGE_ROWS) {
            int n = keys - at < WEFT_PAGE_ROWS ? keys - at : WEFT_PAGE_ROWS, page = s->pages[(start + at) / WEFT_PAGE_ROWS];
            kn->values(chunk_o, p + at, kv_row(j->l, j->l->v, page, kv_head, 0), n, ld);
        }
        kn->merge(&m, &l, o, chunk_m, chunk_l, chunk_o, ld);
    }
    float *y = buf_row(j->y, row) + head * dim, inverse = l == 0 ? 0 : 1.0f / l;
    for (int i = 0; i < dim; i++) y[i] = o[i] * inverse;
}

/* A piece is a few rows of one query head: neighbours read the same keys. */
#define ATTEND_ROWS 8
static void attend_piece(void *ctx, int piece, int worker) {
    const attend_job *j = ctx;
    int head = piece % j->a->n_heads, row = piece / j->a->n_heads * ATTEND_ROWS, end = row + ATTEND_ROWS;
    if (end > j->d->step->n_rows) end = j->d->step->n_rows;
    for (; row < end; row++) attend_head(j, row, head, panel_of(j->d, worker));
}

void weft_attend(weft_dev *d, weft_buf *y, const weft_buf *q, const weft_buf *k, const weft_buf *v, const weft_attention *a) {
    if (d->status != WEFT_OK) return;
    attend_job j = {d, &d->kv.v[a->layer], a, y, q, k, v};
    write_rows(&j);
    if (q) weft_pool_run(d->pool, (d->step->n_rows + ATTEND_ROWS - 1) / ATTEND_ROWS * a->n_heads, attend_piece, &j);
}

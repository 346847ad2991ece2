/* attend.c: ragged causal attention over paged keys and values.
 *
 * Keys are taken in chunks of ATTEND_CHUNK at absolute positions. A chunk gives (maximum, sum, weighted values) of its visible
 * keys; chunks merge in ascending order. A row's result therefore depends on its position and its keys alone, whatever rows are
 * computed beside it.
 *
 * A piece of work is a block of queries that read the same keys: some rows of one span by some heads of one key head. They go
 * through a page together; what lies beyond a query's own position is never multiplied into it. */
#include <string.h>

#include "ops/cpu/kernels.h"

typedef struct attend_job {
    weft_dev *d;
    const kv_layer *l;
    const weft_attention *a;
    weft_buf *y;
    const weft_buf *q, *k, *v;
    int rows, heads;             /* of a block, at most; the heads share a key head */
    int row_blocks, head_blocks; /* head_blocks: of all key heads */
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

/* ---- one block of queries ------------------------------------------------------------------------------------------------ */

typedef struct block {
    const weft_span *span;
    int kv_head, head, heads, row, rows; /* queries: heads head.. of rows row.., heads fastest */
    int pos;                             /* of the first row */
    float *q, *o, *chunk_o;              /* [queries][ld] each */
    float *p;                            /* [queries][ATTEND_CHUNK] */
    float m[ATTEND_QUERIES], l[ATTEND_QUERIES];
} block;

static int at_most(int a, int b) {
    return a < b ? a : b;
}
/* Keys of the chunk at `start` that query i sees, were there no first_key. */
static int keys_of(const block *b, int i, int start) {
    return at_most(b->pos + i / b->heads + 1 - start, ATTEND_CHUNK);
}

static void chunk_scores(const attend_job *j, const block *b, int first, int last_keys, int start) {
    int ld = j->l->ld, n = b->rows * b->heads;
    const float *in[ATTEND_QUERIES];
    for (int i = first; i < n; i++) in[i] = b->q + (size_t)i * (size_t)ld;
    for (int at = 0; at < last_keys; at += WEFT_PAGE_ROWS) {
        const float *keys = kv_row(j->l, j->l->k, b->span->pages[(start + at) / WEFT_PAGE_ROWS], b->kv_head, 0);
        j->d->kernels->dot(b->p + (size_t)first * ATTEND_CHUNK + at, ATTEND_CHUNK, in + first, n - first, keys, (size_t)ld,
                           at_most(last_keys - at, WEFT_PAGE_ROWS), ld);
    }
}

/* Keys [from, to) of the chunk for queries [first, end). */
static void chunk_values(const attend_job *j, const block *b, int first, int end, int start, int from, int to) {
    int ld = j->l->ld;
    for (int at = from, next; at < to; at = next) {
        next = at_most((at / WEFT_PAGE_ROWS + 1) * WEFT_PAGE_ROWS, to);
        const float *v = kv_row(j->l, j->l->v, b->span->pages[(start + at) / WEFT_PAGE_ROWS], b->kv_head, at % WEFT_PAGE_ROWS);
        j->d->kernels->values(b->chunk_o + (size_t)first * (size_t)ld, (size_t)ld, b->p + (size_t)first * ATTEND_CHUNK + at,
                              ATTEND_CHUNK, end - first, v, next - at, ld);
    }
}

static void chunk(const attend_job *j, block *b, int start) {
    const weft_kernels *kn = j->d->kernels;
    int ld = j->l->ld, n = b->rows * b->heads, first = 0, visible = start > j->a->first_key ? start : j->a->first_key;
    while (first < n && start + keys_of(b, first, start) <= visible) first++; /* these see no key of the chunk */
    if (first == n) return;
    int common = keys_of(b, first, start);
    chunk_scores(j, b, first, keys_of(b, n - 1, start), start);
    float m[ATTEND_QUERIES], l[ATTEND_QUERIES];
    for (int i = first; i < n; i++) {
        float *p = b->p + (size_t)i * ATTEND_CHUNK;
        int keys = keys_of(b, i, start);
        for (int k = 0; k < keys && start + k < j->a->first_key; k++) p[k] = -__builtin_inff();
        m[i] = kn->chunk_exp(p, keys, j->a->scale, &l[i]);
    }
    memset(b->chunk_o + (size_t)first * (size_t)ld, 0, (size_t)(n - first) * (size_t)ld * sizeof(float));
    chunk_values(j, b, first, n, start, 0, common);
    for (int i = first; i < n; i++) {
        chunk_values(j, b, i, i + 1, start, common, keys_of(b, i, start));
        kn->merge(&b->m[i], &b->l[i], b->o + (size_t)i * (size_t)ld, m[i], l[i], b->chunk_o + (size_t)i * (size_t)ld, ld);
    }
}

static void run_block(const attend_job *j, block *b, float *scratch) {
    size_t ld = (size_t)j->l->ld, dim = (size_t)j->l->head_dim;
    int n = b->rows * b->heads;
    b->q = scratch;
    b->o = b->q + ATTEND_QUERIES * ld;
    b->chunk_o = b->o + ATTEND_QUERIES * ld;
    b->p = b->chunk_o + ATTEND_QUERIES * ld;
    memset(b->q, 0, 2 * ATTEND_QUERIES * ld * sizeof(float)); /* q's padding, and o for queries that see nothing */
    memset(b->l, 0, sizeof b->l);
    for (int i = 0; i < n; i++)
        memcpy(b->q + (size_t)i * ld, buf_row(j->q, b->row + i / b->heads) + (size_t)(b->head + i % b->heads) * dim,
               dim * sizeof(float));
    for (int start = 0; start < b->pos + b->rows; start += ATTEND_CHUNK) chunk(j, b, start);
    for (int i = 0; i < n; i++) {
        float *y = buf_row(j->y, b->row + i / b->heads) + (size_t)(b->head + i % b->heads) * dim, *o = b->o + (size_t)i * ld;
        float inverse = b->l[i] == 0 ? 0 : 1.0f / b->l[i];
        for (size_t c = 0; c < dim; c++) y[c] = o[c] * inverse;
    }
}

/* ---- pieces -------------------------------------------------------------------------------------------------------------- */

static void attend_piece(void *ctx, int piece, int worker) {
    const attend_job *j = ctx;
    const weft_dev *d = j->d;
    int group = j->a->n_heads / j->a->n_kv_heads, blocks = j->head_blocks / j->a->n_kv_heads;
    int head_block = piece % j->head_blocks, in_group = head_block % blocks * j->heads;
    block b = {.kv_head = head_block / blocks, .heads = at_most(j->heads, group - in_group)};
    b.head = b.kv_head * group + in_group;
    int row = piece / j->head_blocks * j->rows, end = at_most(row + j->rows, d->step->n_rows);
    for (; row < end; row += b.rows) { /* rows of one span at a time */
        b.span = &d->step->spans[d->row_span[row]];
        b.row = row;
        b.rows = at_most(end, b.span->row + b.span->certain + b.span->speculative) - row;
        b.pos = row_pos(d, row);
        run_block(j, &b, panel_of(d, worker));
    }
}

static int pieces(attend_job *j) {
    int group = j->a->n_heads / j->a->n_kv_heads;
    j->row_blocks = (j->d->step->n_rows + j->rows - 1) / j->rows;
    j->head_blocks = (group + j->heads - 1) / j->heads * j->a->n_kv_heads;
    return j->row_blocks * j->head_blocks;
}

void weft_attend(weft_dev *d, weft_buf *y, const weft_buf *q, const weft_buf *k, const weft_buf *v, const weft_attention *a) {
    if (d->status != WEFT_OK) return;
    attend_job j = {.d = d, .l = &d->kv.v[a->layer], .a = a, .y = y, .q = q, .k = k, .v = v};
    write_rows(&j);
    if (!q) return;
    j.heads = at_most(a->n_heads / a->n_kv_heads, ATTEND_QUERIES);
    j.rows = ATTEND_QUERIES / j.heads;
    int wanted = d->threads > 1 ? 2 * d->threads : 1; /* few rows: smaller blocks, so that everybody has work */
    while (pieces(&j) < wanted && j.rows > 1) j.rows = (j.rows + 1) / 2;
    while (pieces(&j) < wanted && j.heads > 1) j.heads = (j.heads + 1) / 2;
    weft_pool_run(d->pool, pieces(&j), attend_piece, &j);
}

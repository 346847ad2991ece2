/* linear.c: products of a step's rows with weights: linear layers, logits, embedding.
 *
 * The fast mode quantises the activations once for all affine weights that read them and multiplies integers; plain weights are
 * multiplied in float32. The precise mode unpacks a panel of affine weights to float32 and goes on as with plain ones. In both one
 * output is one sum over all of k, which is never split, and a weight is read once whatever the number of rows. */
#include "ops/cpu/linear.h"

#include <stdatomic.h>

#include "base/num.h"

/* ---- quantised activations ----------------------------------------------------------------------------------------------- */

static size_t acts_groups_bytes(int k, size_t groups, size_t each) {
    return (size_t)((k + 63) / 64) * groups * each;
}
size_t acts_bytes(int k, size_t groups) {
    return acts_groups_bytes(k, groups, 16 * 64 + (16 + 48) * sizeof(float));
}
weft_acts acts_lay(uint8_t *at, int k, size_t groups) {
    weft_acts a = {.k = k, .blocks = (k + 63) / 64, .q = (int8_t *)at};
    a.scale = (float *)(void *)(at + acts_groups_bytes(k, groups, 16 * 64));
    a.sum = a.scale + acts_groups_bytes(k, groups, 16);
    return a;
}
weft_acts acts_from(const weft_acts *a, int row) {
    weft_acts b = *a;
    size_t blocks = (size_t)(row / 16 * a->blocks);
    b.q += blocks * 16 * 64;
    b.scale += blocks * 16;
    b.sum += blocks * 48;
    return b;
}

/* ---- one product --------------------------------------------------------------------------------------------------------- */

#define ROW_BLOCK 64 /* rows of float32 that are multiplied together, so that they and the panel stay in the caches */

static const float *input_row(const product *p, int row) {
    return p->x + (size_t)(p->from ? p->from[row] / p->sharing : row) * p->ldx;
}

/* Float32 activations. Affine weights (precise mode) are unpacked to a panel of float32 weights first. */
static void run_float(const weft_dev *d, const product *p, int64_t panel, int panels, int row, int rows, float *unpacked) {
    const float *in[ROW_BLOCK];
    weft_mat one = {.dtype = WEFT_F32, .experts = 1, .n = LANES, .k = p->w->k, .data = (uint8_t *)unpacked};
    int each = p->w->bits ? 1 : panels;
    for (int64_t at = panel; at < panel + panels; at += each) {
        if (p->w->bits) d->kernels->unpack_panel(unpacked, p->w, p->first + at);
        for (int r = row, n; r < row + rows; r += n) {
            n = row + rows - r < ROW_BLOCK ? row + rows - r : ROW_BLOCK;
            for (int i = 0; i < n; i++) in[i] = input_row(p, r + i);
            float *y = p->y + (size_t)r * p->ldy + at * LANES;
            if (p->w->bits)
                d->isa->linear->plain(y, p->ldy, in, n, &one, 0, 1);
            else
                d->isa->linear->plain(y, p->ldy, in, n, p->w, p->first + at, each);
        }
    }
}

void product_run(const weft_dev *d, const product *p, int64_t panel, int panels, int row, int rows, int worker) {
    if (d->precise || !p->w->bits) {
        run_float(d, p, panel, panels, row, rows, panel_of(d, worker));
        return;
    }
    weft_acts a = acts_from(p->acts, row);
    d->isa->linear->affine(p->y + (size_t)row * p->ldy + panel * LANES, p->ldy, &a, rows, p->w, p->first + panel, panels);
}

/* ---- a call of several weights with the same rows ------------------------------------------------------------------------ */

typedef struct linear_job {
    weft_dev *d;
    weft_buf *const *y;
    const weft_mat *const *w;
    int n;
    const weft_buf *x;
    const int *rows; /* NULL: all */
    int n_rows;
    weft_acts acts;
    int panels;               /* of all weights together */
    int piece_panels, chunks; /* a piece: so many panels by one of so many chunks of rows */
    int chunk_rows;
} linear_job;

static void quantize_piece(void *ctx, int row, int worker) {
    (void)worker;
    const linear_job *j = ctx;
    j->d->isa->linear->quantize(&j->acts, row, buf_row(j->x, j->rows ? j->rows[row] : row));
}

/* Chunks of rows are the slow index: the workers share a chunk, which stays in their caches, and stream the weights. */
static void linear_piece(void *ctx, int piece, int worker) {
    const linear_job *j = ctx;
    int pieces = (j->panels + j->piece_panels - 1) / j->piece_panels;
    int row = piece / pieces * j->chunk_rows, at = piece % pieces * j->piece_panels, left = j->piece_panels, i = 0;
    int rows = j->n_rows - row < j->chunk_rows ? j->n_rows - row : j->chunk_rows;
    for (; i < j->n && left; i++) {
        int count = (int)panel_count(j->w[i]);
        if (at >= count) {
            at -= count;
            continue;
        }
        int panels = count - at < left ? count - at : left;
        product p = {.w = j->w[i],
                     .y = j->y[i]->v,
                     .ldy = (size_t)j->y[i]->ld,
                     .acts = &j->acts,
                     .x = j->x->v,
                     .ldx = (size_t)j->x->ld,
                     .from = j->rows,
                     .sharing = 1};
        product_run(j->d, &p, at, panels, row, rows, worker);
        left -= panels;
        at = 0;
    }
}

/* Few rows: the weights are the work, and long runs of them stream best; enough pieces that a worker which lost its processor holds
 * up little. Many rows: as many panels as the kernels hold at a time, and rows for half a second-level cache. */
static void cut(linear_job *j) {
    const weft_dev *d = j->d;
    j->panels = 0;
    for (int i = 0; i < j->n; i++) j->panels += (int)panel_count(j->w[i]);
    j->chunk_rows = j->n_rows;
    if (j->n_rows <= 16) {
        int pieces = 4 * d->threads, each = (j->panels + pieces - 1) / pieces;
        j->piece_panels = d->threads == 1 ? j->panels : (each + 3) & ~3;
    } else {
        j->piece_panels = 4;
        int rows = (512 << 10) / j->x->cols / ROW_BLOCK * ROW_BLOCK;
        j->chunk_rows = rows < ROW_BLOCK ? ROW_BLOCK : rows;
    }
    j->chunks = (j->n_rows + j->chunk_rows - 1) / j->chunk_rows;
}

/* A weight of other sizes than its buffers would write beyond them. */
void misfit(weft_dev *d, const weft_mat *w, const weft_buf *y, const weft_buf *x) {
    d->status = weft_fail(&d->error, WEFT_EINVAL, "a weight of %lld x %lld between buffers of %d and %d columns", (long long)w->n,
                          (long long)w->k, x->cols, y->cols);
}

static void run_linear(linear_job *j) {
    weft_dev *d = j->d;
    bool affine = false;
    for (int i = 0; i < j->n; i++) {
        if (j->w[i]->n != j->y[i]->cols || j->w[i]->k != j->x->cols) {
            misfit(d, j->w[i], j->y[i], j->x);
            return;
        }
        affine = affine || j->w[i]->bits;
        if (j->n_rows) d->traffic += (uint64_t)panel_count(j->w[i]) * panel_bytes(j->w[i]);
    }
    if (!j->n_rows) return;
    if (affine && !d->precise) {
        j->acts = acts_lay(d->acts, j->x->cols, (size_t)(j->n_rows + 15) / 16);
        weft_pool_run(j->n_rows > 8 ? d->pool : NULL, j->n_rows, quantize_piece, j);
    }
    cut(j);
    weft_pool_run(d->pool, (j->panels + j->piece_panels - 1) / j->piece_panels * j->chunks, linear_piece, j);
}

void weft_linear(weft_dev *d, weft_buf *const *y, const weft_mat *const *w, int n, const weft_buf *x) {
    if (d->status != WEFT_OK) return;
    run_linear(&(linear_job){.d = d, .y = y, .w = w, .n = n, .x = x, .n_rows = d->step->n_rows});
}

typedef struct cap_job {
    const weft_dev *d;
    weft_buf *y;
    float cap;
} cap_job;
static void cap_piece(void *ctx, int row, int worker) {
    (void)worker;
    const cap_job *j = ctx;
    j->d->kernels->cap(buf_row(j->y, row), j->y->cols, j->cap);
}

void weft_logits(weft_dev *d, weft_buf *y, const weft_output *head, const weft_buf *x, const int *rows, int n) {
    if (d->status != WEFT_OK) return;
    bool fits = n >= 0 && n <= y->rows && n <= d->plan.max_rows;
    for (int i = 0; i < n && fits; i++) fits = rows[i] >= 0 && rows[i] < d->step->n_rows;
    if (!fits) {
        d->status = weft_fail(&d->error, WEFT_EINVAL, "logits of %d rows, or of a row that the step does not have", n);
        return;
    }
    run_linear(&(linear_job){.d = d, .y = &y, .w = &head->w, .n = 1, .x = x, .rows = rows, .n_rows = n});
    if (d->status == WEFT_OK && head->cap > 0) weft_pool_run(d->pool, n, cap_piece, &(cap_job){d, y, head->cap});
}

/* Do all tokens have rows in a table of n? */
static bool tokens_fit(weft_dev *d, int64_t n) {
    for (int r = 0; r < d->step->n_rows; r++) {
        int32_t id = d->step->tokens[r];
        if (id >= 0 && id < n) continue;
        d->status = weft_fail(&d->error, WEFT_EINVAL, "token id %d is outside the model's vocabulary of %lld", id, (long long)n);
        return false;
    }
    return true;
}

void weft_embed(weft_dev *d, weft_buf *y, const weft_mat *table, float scale) {
    if (d->status != WEFT_OK || !tokens_fit(d, table->n)) return;
    for (int r = 0; r < d->step->n_rows; r++) d->kernels->unpack(buf_row(y, r), table, d->step->tokens[r]);
    if (scale != 1) weft_scale(d, y, scale);
}

/* ---- tables on disk ------------------------------------------------------------------------------------------------------ */

weft_status weft_table_make(weft_dev *d, const weft_table_desc *desc, weft_table **table, weft_error *e) {
    *table = weft_arena_get(&d->arena, 1, sizeof **table);
    if (!*table) return weft_fail_oom(e, desc->name);
    (*table)->desc = *desc;
    return WEFT_OK;
}

typedef struct lookup_job {
    const weft_dev *d;
    weft_buf *y;
    const weft_table_desc *t;
    atomic_bool failed;
} lookup_job;
static void lookup_piece(void *ctx, int row, int worker) {
    (void)worker;
    lookup_job *j = ctx;
    if (j->t->read(j->t->ctx, j->d->step->tokens[row], buf_row(j->y, row), NULL) != WEFT_OK) atomic_store(&j->failed, true);
}

void weft_lookup(weft_dev *d, weft_buf *y, const weft_table *table, float scale) {
    const weft_table_desc *t = &table->desc;
    if (d->status != WEFT_OK || !tokens_fit(d, t->n)) return;
    if (y->cols != t->k) {
        d->status = weft_fail(&d->error, WEFT_EINVAL, "rows of %lld columns into a buffer of %d", (long long)t->k, y->cols);
        return;
    }
    lookup_job j = {.d = d, .y = y, .t = t};
    weft_pool_run(d->pool, d->step->n_rows, lookup_piece, &j);
    for (int r = 0; atomic_load(&j.failed) && r < d->step->n_rows && d->status == WEFT_OK; r++) /* whose fault it is */
        d->status = t->read(t->ctx, d->step->tokens[r], buf_row(y, r), &d->error);
    if (d->status == WEFT_OK && t->check) d->status = t->check(t->ctx, &d->error);
    if (scale != 1) weft_scale(d, y, scale);
}

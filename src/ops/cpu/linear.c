/* linear.c: weights and the products with them: packing, linear layers, embedding, logits, experts.
 *
 * A product unpacks a panel of weight rows to float32 and multiplies it with all rows of the step, so that a weight is read and
 * unpacked once whatever the number of rows. One output is one 16-lane sum over all of k: k is never split. */
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "ops/cpu/kernels.h"

/* ---- packing ------------------------------------------------------------------------------------------------------------- */

#define MAX_K (1 << 28) /* columns are counted in ints */

static int field_bits(const weft_mat *m) {
    return m->bits == 0 ? (int)weft_dtype_size(m->dtype) * 8 : m->bits <= 2 ? 2 : m->bits <= 4 ? 4 : 8;
}

/* k values of `size` bytes (codes: 1) into the fields of a zeroed row. */
static void interleave(uint8_t *row, const uint8_t *values, int64_t k, size_t size, int field) {
    int64_t columns = block_columns(field);
    for (int64_t c = 0; c < k; c++) {
        uint32_t x = 0, word;
        uint8_t *at = row + c / columns * BLOCK_BYTES + c % LANES * 4;
        for (size_t i = 0; i < size; i++) x |= (uint32_t)values[(size_t)c * size + i] << 8 * i; /* files are little-endian */
        memcpy(&word, at, sizeof word);
        word |= x << (c % columns / LANES * field);
        memcpy(at, &word, sizeof word);
    }
}

static weft_status pack(weft_mat *m, const weft_mat_desc *desc, uint8_t *line, weft_error *e) {
    size_t size = m->bits ? 1 : weft_dtype_size(m->dtype);
    for (int64_t x = 0; x < m->experts; x++)
        for (int64_t r = 0; r < m->n; r++) {
            uint8_t *row = m->data + (size_t)(x * m->n + r) * m->row_bytes;
            WEFT_TRY(desc->read(desc->ctx, x, r, line, row + m->scale_at, row + m->bias_at, e));
            interleave(row, line, m->k, size, m->field);
        }
    return WEFT_OK;
}

weft_status weft_mat_make(weft_dev *d, const weft_mat_desc *desc, weft_mat **mat, weft_error *e) {
    if (desc->dtype != WEFT_F32 && desc->dtype != WEFT_F16 && desc->dtype != WEFT_BF16)
        return weft_fail(e, WEFT_ESUPPORT, "%s: weights of type %s are not supported", desc->name, weft_dtype_name(desc->dtype));
    if (desc->experts < 1 || desc->n < 1 || desc->k < 1 || desc->k > MAX_K || (desc->bits && desc->k % desc->group))
        return weft_fail(e, WEFT_EINVAL, "%s: %lld x %lld x %lld in groups of %d", desc->name, (long long)desc->experts,
                         (long long)desc->n, (long long)desc->k, desc->group);
    weft_mat *m = weft_arena_get(&d->arena, 1, sizeof *m);
    if (!m || !weft_vec_push(&d->mats, m)) return weft_fail_oom(e, desc->name);
    *m = (weft_mat){
        .dtype = desc->dtype, .bits = desc->bits, .group = desc->group, .experts = desc->experts, .n = desc->n, .k = desc->k};
    size_t size = weft_dtype_size(desc->dtype), groups = desc->bits ? (size_t)(desc->k / desc->group) * size : 0;
    m->field = field_bits(m);
    m->scale_at = (size_t)((desc->k + block_columns(m->field) - 1) / block_columns(m->field)) * BLOCK_BYTES;
    m->bias_at = m->scale_at + groups;
    m->row_bytes = m->bias_at + groups;
    size_t bytes;
    if (!weft_mul_size((size_t)m->experts, (size_t)m->n, &bytes) || !weft_mul_size(bytes, m->row_bytes, &bytes))
        return weft_fail(e, WEFT_ENOMEM, "%s: %lld x %lld x %lld does not fit into memory", desc->name, (long long)m->experts,
                         (long long)m->n, (long long)m->k);
    d->memory.weights += bytes;
    if (m->k > d->max_k) d->max_k = m->k;
    *mat = m;
    if (d->dry) return WEFT_OK;

    m->data = weft_alloc_aligned(bytes);
    uint8_t *line = weft_calloc((size_t)m->k, m->bits ? 1 : size);
    weft_status s = m->data && line ? pack(m, desc, line, e) : weft_fail_oom(e, desc->name);
    weft_free(line);
    return s;
}

weft_status weft_coef_make(weft_dev *d, const float *v, int n, weft_coef **coef, weft_error *e) {
    weft_coef *c = weft_arena_get(&d->arena, 1, sizeof *c);
    if (!c || !weft_vec_push(&d->coefs, c)) return weft_fail_oom(e, "coefficients");
    c->n = n;
    c->v = weft_alloc_aligned(((size_t)ROUND16(n) + LANES) * sizeof *v); /* a matrix of coefficients is read by whole vectors */
    if (!c->v) return weft_fail_oom(e, "coefficients");
    memcpy(c->v, v, (size_t)n * sizeof *v);
    d->memory.weights += ((size_t)ROUND16(n) + LANES) * sizeof *v;
    *coef = c;
    return WEFT_OK;
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

/* Rows are multiplied a block at a time, so that the block and the panel stay in the caches. */
#define ROW_BLOCK 64

typedef struct product {
    const weft_mat *w;
    int64_t first; /* the row of w behind output 0: an expert's first */
    int n;         /* rows: row i reads x[from[i] / sharing] and writes y[to[i]]; NULL: i */
    const float *x;
    float *y;
    size_t ldx, ldy;
    const int *from, *to;
    int sharing;
} product;

static int panels(const weft_mat *w) {
    return (int)((w->n + PANEL_OUTS - 1) / PANEL_OUTS);
}

/* All rows by `outs` unpacked weight rows, which give outputs out.. . */
static void product_rows(const weft_dev *d, const product *p, int64_t out, const float *panel, int outs) {
    const float *in[ROW_BLOCK];
    in[0] = p->x;
    float y[ROW_BLOCK * PANEL_OUTS];
    size_t k = (size_t)ROUND16((int)p->w->k);
    for (int row = 0, n; row < p->n; row += n) {
        n = p->n - row < ROW_BLOCK ? p->n - row : ROW_BLOCK;
        for (int i = 0; i < n; i++) in[i] = p->x + (size_t)(p->from ? p->from[row + i] / p->sharing : row + i) * p->ldx;
        d->kernels->dot(y, PANEL_OUTS, in, n, panel, k, outs, (int)k);
        for (int i = 0; i < n; i++)
            memcpy(p->y + (size_t)(p->to ? p->to[row + i] : row + i) * p->ldy + out, y + i * PANEL_OUTS, (size_t)outs * sizeof *y);
    }
}

static void product_panel(const weft_dev *d, const product *p, int panel, float *unpacked) {
    int64_t out = (int64_t)panel * PANEL_OUTS, end = out + PANEL_OUTS < p->w->n ? out + PANEL_OUTS : p->w->n;
    int most = p->n > 4 ? PANEL_OUTS : PANEL_OUTS / 2; /* for few rows half a panel at a time, which stays in the first cache */
    for (int outs; out < end; out += outs) {
        outs = end - out < most ? (int)(end - out) : most;
        for (int o = 0; o < outs; o++)
            d->kernels->unpack(unpacked + (size_t)o * (size_t)ROUND16((int)p->w->k), p->w, p->first + out + o);
        product_rows(d, p, out, unpacked, outs);
    }
}

/* Panels become pieces of work. With few rows a piece is a run of panels, whose weights lie together: what a worker fetches ahead
 * is then its own, not its neighbour's (which halved the speed of two). With many rows a panel is work enough. */
typedef struct panel_job {
    weft_dev *d;
    void (*panel)(const void *ctx, int panel, float *unpacked);
    const void *ctx;
    int panels, run;
} panel_job;

static void panel_piece(void *ctx, int piece, int worker) {
    const panel_job *j = ctx;
    int end = (piece + 1) * j->run;
    for (int i = piece * j->run; i < end && i < j->panels; i++) j->panel(j->ctx, i, panel_of(j->d, worker));
}

static void run_panels(weft_dev *d, int n, int rows, void (*panel)(const void *ctx, int panel, float *unpacked), const void *ctx) {
    int run = rows > 16 ? 1 : n / (2 * d->threads);
    panel_job j = {d, panel, ctx, n, run > 1 ? run : 1};
    weft_pool_run(d->pool, (n + j.run - 1) / j.run, panel_piece, &j);
}

typedef struct linear_job {
    weft_dev *d;
    weft_buf *const *y;
    const weft_mat *const *w;
    int n;
    const weft_buf *x;
    const int *rows; /* NULL: all */
    int n_rows;
} linear_job;

static void linear_panel(const void *ctx, int panel, float *unpacked) {
    const linear_job *j = ctx;
    int i = 0;
    while (panel >= panels(j->w[i])) panel -= panels(j->w[i++]);
    const weft_buf *x = j->x, *y = j->y[i];
    product p = {.w = j->w[i],
                 .n = j->n_rows,
                 .x = x->v,
                 .ldx = (size_t)x->ld,
                 .from = j->rows,
                 .sharing = 1,
                 .y = y->v,
                 .ldy = (size_t)y->ld};
    product_panel(j->d, &p, panel, unpacked);
}

/* Products run over whole vectors; another phase may have left NaN behind the columns. */
static void clear_padding(const weft_dev *d, const weft_buf *x) {
    if (x->cols % LANES)
        for (int r = 0; r < d->step->n_rows; r++) memset(buf_row(x, r) + x->cols, 0, (size_t)(x->ld - x->cols) * sizeof(float));
}

/* A weight of other sizes than its buffers would write beyond them. */
static void misfit(weft_dev *d, const weft_mat *w, const weft_buf *y, const weft_buf *x) {
    d->status = weft_fail(&d->error, WEFT_EINVAL, "a weight of %lld x %lld between buffers of %d and %d columns", (long long)w->n,
                          (long long)w->k, x->cols, y->cols);
}

static void run_linear(const linear_job *j) {
    int n = 0;
    for (int i = 0; i < j->n; i++)
        if (j->w[i]->n != j->y[i]->cols || j->w[i]->k != j->x->cols) {
            misfit(j->d, j->w[i], j->y[i], j->x);
            return;
        }
    clear_padding(j->d, j->x);
    for (int i = 0; i < j->n; i++) n += panels(j->w[i]);
    if (j->n_rows) run_panels(j->d, n, j->n_rows, linear_panel, j);
}

void weft_linear(weft_dev *d, weft_buf *const *y, const weft_mat *const *w, int n, const weft_buf *x) {
    if (d->status != WEFT_OK) return;
    run_linear(&(linear_job){.d = d, .y = y, .w = w, .n = n, .x = x, .n_rows = d->step->n_rows});
}

void weft_logits(weft_dev *d, weft_buf *y, const weft_mat *head, const weft_buf *x, const int *rows, int n) {
    if (d->status != WEFT_OK) return;
    bool fits = n >= 0 && n <= y->rows;
    for (int i = 0; i < n && fits; i++) fits = rows[i] >= 0 && rows[i] < d->step->n_rows;
    if (fits)
        run_linear(&(linear_job){.d = d, .y = &y, .w = &head, .n = 1, .x = x, .rows = rows, .n_rows = n});
    else
        d->status = weft_fail(&d->error, WEFT_EINVAL, "logits of %d rows, or of a row that the step does not have", n);
}

void weft_embed(weft_dev *d, weft_buf *y, const weft_mat *table) {
    if (d->status != WEFT_OK) return;
    for (int r = 0; r < d->step->n_rows; r++) {
        int32_t id = d->step->tokens[r];
        if (id < 0 || id >= table->n) {
            d->status =
                weft_fail(&d->error, WEFT_EINVAL, "token id %d is outside the model's vocabulary of %lld", id, (long long)table->n);
            return;
        }
        d->kernels->unpack(buf_row(y, r), table, id);
    }
}

/* ---- mixture of experts -------------------------------------------------------------------------------------------------- */

void weft_moe_layer(weft_dev *d, int experts, int top_k, int inner, int cols) {
    if (experts > d->max_experts) d->max_experts = experts;
    if (top_k > d->max_top_k) d->max_top_k = top_k;
    if (ROUND16(2 * inner) > d->max_glu) d->max_glu = ROUND16(2 * inner);
    if (ROUND16(cols) > d->max_expert_cols) d->max_expert_cols = ROUND16(cols);
}

typedef struct route_job {
    weft_dev *d;
    weft_buf *ids, *weights;
    const weft_buf *logits;
    bool renormalise;
} route_job;

static void route_piece(void *ctx, int row, int worker) {
    const route_job *j = ctx;
    float *p = panel_of(j->d, worker), *ids = buf_row(j->ids, row), *weights = buf_row(j->weights, row);
    int n = j->logits->cols, top_k = j->ids->cols;
    memcpy(p, buf_row(j->logits, row), (size_t)n * sizeof *p);
    j->d->kernels->softmax(p, n);
    float total = 0;
    for (int s = 0; s < top_k; s++) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (p[i] > p[best]) best = i; /* a tie stays with the lowest id */
        ids[s] = (float)best;
        weights[s] = p[best];
        total += p[best];
        p[best] = -1;
    }
    if (j->renormalise)
        for (int s = 0; s < top_k; s++) weights[s] /= total;
}

void weft_route(weft_dev *d, weft_buf *ids, weft_buf *weights, const weft_buf *logits, bool renormalise) {
    if (d->status != WEFT_OK) return;
    route_job j = {d, ids, weights, logits, renormalise};
    weft_pool_run(d->pool, d->step->n_rows, route_piece, &j);
}

typedef struct experts_job {
    weft_dev *d;
    weft_buf *y;
    const weft_buf *x, *weights;
    const weft_mat *gate_up, *down;
    int top_k;
} experts_job;

/* Pairs (row, slot) are listed by expert: expert_rows[expert_start[e] ..] hold row * top_k + slot. Returns how many experts have
 * any: those of experts_used. */
static int list_pairs(weft_dev *d, const weft_buf *ids, int experts) {
    int top_k = ids->cols, n = d->step->n_rows, *start = d->expert_start;
    memset(start, 0, ((size_t)experts + 1) * sizeof *start);
    for (int r = 0; r < n; r++)
        for (int s = 0; s < top_k; s++) start[(int)buf_row(ids, r)[s] + 1]++;
    for (int e = 0; e < experts; e++) start[e + 1] += start[e];
    for (int r = 0; r < n; r++)
        for (int s = 0; s < top_k; s++) d->expert_rows[start[(int)buf_row(ids, r)[s]]++] = r * top_k + s;
    for (int e = experts; e > 0; e--) start[e] = start[e - 1];
    start[0] = 0;
    int used = 0;
    for (int e = 0; e < experts; e++)
        if (start[e + 1] > start[e]) d->experts_used[used++] = e;
    return used;
}

/* A panel of one expert's weight for all pairs of that expert; pairs read their row of x, or their own of expert_in. */
static void expert_product(const experts_job *j, const weft_mat *w, int panel, bool by_row, float *out, size_t ldo,
                           float *unpacked) {
    weft_dev *d = j->d;
    int expert = d->experts_used[panel / panels(w)], at = d->expert_start[expert];
    product p = {.w = w,
                 .first = (int64_t)expert * w->n,
                 .n = d->expert_start[expert + 1] - at,
                 .x = by_row ? j->x->v : d->expert_in,
                 .ldx = by_row ? (size_t)j->x->ld : (size_t)d->max_glu,
                 .from = d->expert_rows + at,
                 .sharing = by_row ? j->top_k : 1,
                 .y = out,
                 .ldy = ldo,
                 .to = d->expert_rows + at};
    product_panel(d, &p, panel % panels(w), unpacked);
}
static void gate_up_panel(const void *ctx, int panel, float *unpacked) {
    const experts_job *j = ctx;
    expert_product(j, j->gate_up, panel, true, j->d->expert_in, (size_t)j->d->max_glu, unpacked);
}
static void down_panel(const void *ctx, int panel, float *unpacked) {
    const experts_job *j = ctx;
    expert_product(j, j->down, panel, false, j->d->expert_out, (size_t)j->d->max_expert_cols, unpacked);
}
static void expert_glu_piece(void *ctx, int pair, int worker) {
    (void)worker;
    const experts_job *j = ctx;
    float *v = j->d->expert_in + (size_t)pair * (size_t)j->d->max_glu;
    int inner = (int)j->gate_up->n / 2;
    j->d->kernels->glu(v, v, v + inner, inner);
    for (int i = inner; i < ROUND16(inner); i++) v[i] = 0; /* the next product runs over whole vectors */
}
static void combine_piece(void *ctx, int row, int worker) {
    (void)worker;
    const experts_job *j = ctx;
    float *y = buf_row(j->y, row);
    memset(y, 0, (size_t)j->y->cols * sizeof *y);
    for (int s = 0; s < j->top_k; s++)
        j->d->kernels->add_scaled(y, j->d->expert_out + (size_t)(row * j->top_k + s) * (size_t)j->d->max_expert_cols,
                                  buf_row(j->weights, row)[s], j->y->cols);
}

void weft_experts(weft_dev *d, weft_buf *y, const weft_buf *x, const weft_buf *ids, const weft_buf *weights,
                  const weft_mat *gate_up, const weft_mat *down) {
    if (d->status != WEFT_OK) return;
    experts_job j = {d, y, x, weights, gate_up, down, ids->cols};
    int n = d->step->n_rows;
    bool fits = gate_up->k == x->cols && down->k * 2 == gate_up->n && down->n == y->cols && down->experts == gate_up->experts;
    if (!fits) {
        misfit(d, gate_up, y, x);
        return;
    }
    clear_padding(d, x);
    int used = list_pairs(d, ids, (int)gate_up->experts), pairs = n * j.top_k;
    run_panels(d, used * panels(gate_up), pairs, gate_up_panel, &j);
    weft_pool_run(d->pool, pairs, expert_glu_piece, &j);
    run_panels(d, used * panels(down), pairs, down_panel, &j);
    weft_pool_run(d->pool, n, combine_piece, &j);
}

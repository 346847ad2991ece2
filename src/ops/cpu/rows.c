/* rows.c: the operators that treat each row for itself: norms, gates, sums, rotation; and the shift, which only moves rows. */
#include <string.h>

#include "base/alloc.h"
#include "ops/cpu/kernels.h"

typedef struct row_job row_job;
struct row_job {
    weft_dev *d;
    void (*run)(const row_job *, int row);
    weft_buf *y, *x;       /* written */
    const weft_buf *a, *b; /* read */
    const weft_coef *gain, *gain2, *freq;
    float *angles; /* [rows][2 n_freq] */
    float eps;     /* or a scale */
    int head_dim;
    weft_activation act;
    int width; /* of a group of columns */
};

#define ROWS_A_PIECE 8
static void row_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const row_job *j = ctx;
    int end = (piece + 1) * ROWS_A_PIECE, n = j->d->step->n_rows;
    for (int r = piece * ROWS_A_PIECE; r < end && r < n; r++) j->run(j, r);
}
static void run_rows(const row_job *j) {
    if (j->d->status == WEFT_OK)
        weft_pool_run(j->d->pool, (j->d->step->n_rows + ROWS_A_PIECE - 1) / ROWS_A_PIECE, row_piece, (void *)(uintptr_t)j);
}

static void norm_row(const row_job *j, int r) {
    if (j->x) j->d->kernels->add(buf_row(j->x, r), buf_row(j->b, r), j->x->cols);
    const float *z = !j->x && j->b ? buf_row(j->b, r) : NULL;
    j->d->kernels->norm(buf_row(j->y, r), buf_row(j->a, r), z, j->gain->v, j->y->cols, j->gain->n, j->eps);
}
void weft_norm(weft_dev *d, weft_buf *y, const weft_buf *x, const weft_coef *gain, float eps) {
    run_rows(&(row_job){.d = d, .run = norm_row, .y = y, .a = x, .gain = gain, .eps = eps});
}
void weft_add_norm(weft_dev *d, weft_buf *x, const weft_buf *delta, weft_buf *y, const weft_coef *gain, float eps) {
    run_rows(&(row_job){.d = d, .run = norm_row, .y = y, .x = x, .a = x, .b = delta, .gain = gain, .eps = eps});
}
void weft_norm_gated(weft_dev *d, weft_buf *y, const weft_buf *x, const weft_buf *z, const weft_coef *gain, float eps) {
    run_rows(&(row_job){.d = d, .run = norm_row, .y = y, .a = x, .b = z, .gain = gain, .eps = eps});
}

static void gate_norm_row(const row_job *j, int r) {
    j->d->kernels->gate_norm(buf_row(j->y, r), buf_row(j->a, r), buf_row(j->b, r), j->gain->v, j->y->cols, j->width, j->eps);
}
void weft_gate_norm(weft_dev *d, weft_buf *y, const weft_buf *x, const weft_buf *z, const weft_coef *gain, int group, float eps) {
    run_rows(&(row_job){.d = d, .run = gate_norm_row, .y = y, .a = x, .b = z, .gain = gain, .width = group, .eps = eps});
}

static void activate_row(const row_job *j, int r) {
    j->d->kernels->activate(buf_row(j->y, r), buf_row(j->a, r), j->b ? buf_row(j->b, r) : NULL, j->y->cols, j->act);
}
void weft_activate(weft_dev *d, weft_buf *y, const weft_buf *gate, const weft_buf *up, weft_activation act) {
    run_rows(&(row_job){.d = d, .run = activate_row, .y = y, .a = gate, .b = up, .act = act});
}

static void gate_row(const row_job *j, int r) {
    if (j->a->cols == 1)
        j->d->kernels->scale_sigmoid(buf_row(j->y, r), buf_row(j->a, r)[0], j->y->cols);
    else
        j->d->kernels->gate(buf_row(j->y, r), buf_row(j->a, r), j->y->cols);
}
void weft_gate(weft_dev *d, weft_buf *y, const weft_buf *gate) {
    run_rows(&(row_job){.d = d, .run = gate_row, .y = y, .a = gate});
}

static void add_row(const row_job *j, int r) {
    j->d->kernels->add(buf_row(j->y, r), buf_row(j->a, r), j->y->cols);
}
void weft_add(weft_dev *d, weft_buf *y, const weft_buf *x) {
    run_rows(&(row_job){.d = d, .run = add_row, .y = y, .a = x});
}

static void bias_row(const row_job *j, int r) {
    j->d->kernels->add(buf_row(j->y, r), j->gain->v, j->y->cols);
}
void weft_bias(weft_dev *d, weft_buf *y, const weft_coef *bias) {
    run_rows(&(row_job){.d = d, .run = bias_row, .y = y, .gain = bias});
}

static void scale_row(const row_job *j, int r) {
    j->d->kernels->scale(buf_row(j->y, r), j->eps, j->y->cols);
}
void weft_scale(weft_dev *d, weft_buf *y, float scale) {
    run_rows(&(row_job){.d = d, .run = scale_row, .y = y, .eps = scale});
}

static void concat_row(const row_job *j, int r) {
    memcpy(buf_row(j->y, r), buf_row(j->a, r), (size_t)j->a->cols * sizeof(float));
    memcpy(buf_row(j->y, r) + j->a->cols, buf_row(j->b, r), (size_t)j->b->cols * sizeof(float));
}
void weft_concat(weft_dev *d, weft_buf *y, const weft_buf *a, const weft_buf *b) {
    run_rows(&(row_job){.d = d, .run = concat_row, .y = y, .a = a, .b = b});
}

/* ---- rotation ------------------------------------------------------------------------------------------------------------ */

/* sin and cos of |x| < 2^22: reduction by pi/2 in two parts (the first has 33 bits, so that its multiple is exact), then Taylor on
 * [-pi/4, pi/4] to below double rounding. Our own, so that a model's rotations do not change with the C library. */
static void sin_cos(double x, double *s, double *c) {
    double n = (double)(int64_t)(x * 0.63661977236758134308 + (x < 0 ? -0.5 : 0.5));
    double r = (x - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11, r2 = r * r;
    double a = 1, b = 1;
    for (int k = 18; k > 0; k -= 2) {
        a = 1 - a * r2 / (double)(k * (k + 1)); /* sin r / r */
        b = 1 - b * r2 / (double)(k * (k - 1)); /* cos r */
    }
    a *= r;
    switch ((int64_t)n & 3) {
    case 0: *s = a, *c = b; break;
    case 1: *s = b, *c = -a; break;
    case 2: *s = -a, *c = -b; break;
    default: *s = -b, *c = a; break;
    }
}

/* The angle is a float32 product, as in the models' training code. */
static void angles_row(const row_job *j, int r) {
    int n = j->freq->n;
    float *t = j->angles + (size_t)r * 2 * (size_t)n;
    for (int i = 0; i < n; i++) {
        double s, c;
        float angle = (float)row_pos(j->d, r) * j->freq->v[i];
        sin_cos(angle, &s, &c);
        t[i] = (float)c;
        t[n + i] = (float)s;
    }
}

static void qk_heads(const row_job *j, weft_buf *b, const weft_coef *gain, int r) {
    if (!b) return;
    float *x = buf_row(b, r);
    int n = j->freq->n;
    const float *t = j->angles + (size_t)r * 2 * (size_t)n;
    if (gain) j->d->kernels->norm(x, x, NULL, gain->v, b->cols, j->head_dim, j->eps);
    for (int h = 0; h < b->cols; h += j->head_dim) j->d->kernels->rotate(x + h, t, t + n, n);
}
static void qk_row(const row_job *j, int r) {
    qk_heads(j, j->y, j->gain, r);
    qk_heads(j, j->x, j->gain2, r);
}
/* Made once a step for all layers that share the frequencies. More vectors than tables, which no model has, take turns. */
static float *angles(weft_dev *d, const weft_coef *freq) {
    for (int i = 0; i < d->n_rope; i++)
        if (d->rope[i].freq == freq) return d->rope[i].v;
    rope_table *t = &d->rope[d->next_rope];
    d->next_rope = (d->next_rope + 1) % d->n_rope;
    run_rows(&(row_job){.d = d, .run = angles_row, .freq = freq, .angles = t->v});
    t->freq = freq;
    return t->v;
}

void weft_qk_norm_rope(weft_dev *d, weft_buf *q, weft_buf *k, const weft_coef *q_gain, const weft_coef *k_gain, float eps,
                       const weft_coef *freq, int head_dim) {
    run_rows(&(row_job){.d = d,
                        .run = qk_row,
                        .y = q,
                        .x = k,
                        .gain = q_gain,
                        .gain2 = k_gain,
                        .eps = eps,
                        .freq = freq,
                        .angles = angles(d, freq),
                        .head_dim = head_dim});
}

/* ---- the shift ----------------------------------------------------------------------------------------------------------- */

void weft_shift(weft_dev *d, weft_buf *y, const weft_buf *hidden, int index) {
    if (d->status != WEFT_OK) return;
    const carry *c = &d->carries.v[index];
    size_t bytes = (size_t)c->cols * sizeof(float), ld = (size_t)c->ld;
    for (int i = 0; i < d->step->n_spans; i++) {
        const weft_span *s = &d->step->spans[i];
        int n = s->certain + s->speculative;
        const float *before = s->replay          ? c->journal + journal_index(d, s->slot_read, 1 - s->journal, s->replay - 1) * ld
                              : s->slot_read < 0 ? d->zeros
                                                 : c->row + (size_t)s->slot_read * ld;
        if (n) memcpy(buf_row(y, s->row), before, bytes);
        if (!hidden) continue;
        for (int r = 1; r < n; r++) memcpy(buf_row(y, s->row + r), buf_row(hidden, s->row + r - 1), bytes);
        float *keep = c->row + (size_t)s->slot_write * ld;
        if (s->certain)
            memcpy(keep, buf_row(hidden, s->row + s->certain - 1), bytes);
        else if (before != keep)
            memcpy(keep, before, bytes);
        for (int r = 0; r < s->speculative; r++)
            memcpy(c->journal + journal_index(d, s->slot_write, s->journal, r) * ld, buf_row(hidden, s->row + s->certain + r),
                   bytes);
        for (int k = 0; k < s->n_snapshots; k++)
            memcpy(c->row + (size_t)s->snapshot_slot[k] * ld, buf_row(hidden, s->row + s->snapshot_at[k] - 1), bytes);
    }
}

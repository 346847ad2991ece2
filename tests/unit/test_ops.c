/* test_ops.c: the operators through ops.h, on a small device.
 *
 * First each operator against double arithmetic; then the promise: however a token sequence is cut into steps, whatever is drafted,
 * accepted, dropped, flushed, snapshot or restored, and on however many threads, the outputs of a row, the bytes of a slot and the
 * bytes of a page are those of a run of one row at a time. All sizes are odd on purpose (no multiples of 16). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fpu.h"
#include "ops/ops.h"

#define U 0x1p-24

/* ---- numbers, weights, devices ------------------------------------------------------------------------------------------------------ */

static uint64_t seed = 7;
static uint32_t bits32(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32);
}
static int below(int n) { return (int)(bits32() % (uint32_t)n); }
static float random_float(void) { return (float)((double)bits32() * 0x1p-31 - 1); }
static float *random_floats(int n, float scale) {
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int i = 0; i < n; i++) v[i] = random_float() * scale;
    return v;
}
static double roundings(int n) { return n * U / (1 - n * U); }

typedef struct rows_of { /* float32 rows, given to a device as they are or in BF16 */
    const float *v;
    int64_t n, k;
    weft_dtype dtype;
} rows_of;
static weft_status read_row(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    (void)scale, (void)bias, (void)e;
    const rows_of *t = ctx;
    const float *from = t->v + (expert * t->n + row) * t->k;
    if (t->dtype == WEFT_F32)
        memcpy(values, from, (size_t)t->k * sizeof *from);
    else
        for (int64_t i = 0; i < t->k; i++) memcpy((char *)values + i * 2, (const char *)(from + i) + 2, 2);
    return WEFT_OK;
}
static weft_status mat_of(weft_mat **m, weft_dev *d, const float *v, weft_dtype dtype, int64_t experts, int64_t n, int64_t k, weft_error *e) {
    rows_of t = {v, n, k, dtype};
    weft_mat_desc desc = {.dtype = dtype, .experts = experts, .n = n, .k = k, .name = "w", .read = read_row, .ctx = &t};
    return weft_mat_make(d, &desc, m, e);
}
/* BF16 values are the upper halves of float32: cutting them first makes the stored weight equal to v. */
static void cut_to_bf16(float *v, int n) {
    for (int i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, v + i, 4);
        b &= 0xffff0000u;
        memcpy(v + i, &b, 4);
    }
}
static weft_mat *table(weft_dev *d, const float *v, int n, int k) {
    weft_mat *m = NULL;
    weft_error e;
    assert_int_equal(mat_of(&m, d, v, WEFT_F32, 1, n, k, &e), WEFT_OK);
    return m;
}
static weft_coef *coef(weft_dev *d, const float *v, int n) {
    weft_coef *c = NULL;
    weft_error e;
    assert_int_equal(weft_coef_make(d, v, n, &c, &e), WEFT_OK);
    return c;
}
static weft_dev *open_dev(int threads, const char *isa) {
    weft_dev *d = NULL;
    weft_error e;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = threads, .isa = isa}, &e), WEFT_OK);
    return d;
}
static void plan(weft_dev *d, weft_plan p) {
    weft_error e;
    if (weft_dev_plan(d, &p, &e) != WEFT_OK) fail_msg("%s", e.text);
}
static void end_ok(weft_dev *d) {
    weft_error e;
    if (weft_end(d, &e) != WEFT_OK) fail_msg("%s", e.text);
}
static void read_into(weft_dev *d, const weft_buf *b, int row, float *dst) {
    weft_error e;
    assert_int_equal(weft_read(d, b, row, dst, &e), WEFT_OK);
}
static void near_to(const char *what, int i, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound + 1e-37)) fail_msg("%s: element %d is %.9g, not %.9g (bound %.3g)", what, i, got, want, bound);
}
static void same_bytes(const char *what, int at, const void *a, const void *b, size_t n) {
    if (memcmp(a, b, n)) fail_msg("%s at %d: bytes differ", what, at);
}

/* A step of one span of n certain rows from the start, for the operators without memory; its tokens are 0..n-1. */
static int32_t counting[2048];
static int page_zero[8192];
static weft_span plain_span;
static weft_step plain_step;
static void begin_rows(weft_dev *d, int n, int pos) {
    for (int i = 0; i < 2048; i++) counting[i] = i;
    plain_span = (weft_span){.certain = n, .pos = pos, .slot_read = pos ? 0 : -1, .n_pages = 8192, .pages = page_zero};
    plain_step = (weft_step){.n_rows = n, .n_spans = 1, .tokens = counting, .spans = &plain_span};
    weft_begin(d, &plain_step);
}
static const weft_plan small_plan = {.max_rows = 64, .max_spans = 4, .n_pages = 1, .n_slots = 1};

/* ---- operators without memory ---------------------------------------------------------------------------------------------------------- */

static void test_embed(void **state) {
    (void)state;
    enum { N = 9, K = 21 };
    float *v = random_floats(N * K, 1), row[K];
    weft_dev *d = open_dev(2, NULL);
    weft_mat *t = table(d, v, N, K);
    weft_buf *y = weft_buf_make(d, NULL, 0, K);
    plan(d, small_plan);
    const int32_t tokens[] = {8, 0, 3, 3};
    weft_span span = {.certain = 4, .slot_read = -1, .n_pages = 1, .pages = page_zero};
    weft_step step = {.n_rows = 4, .n_spans = 1, .tokens = tokens, .spans = &span};
    weft_begin(d, &step);
    weft_embed(d, y, t);
    end_ok(d);
    for (int r = 0; r < 4; r++) {
        read_into(d, y, r, row);
        same_bytes("embedding", r, row, v + tokens[r] * K, sizeof row);
    }
    weft_error e;
    assert_int_equal(weft_read(d, y, 64, row, &e), WEFT_EINVAL);
    assert_int_equal(weft_read(d, y, -1, row, &e), WEFT_EINVAL);
    for (int bad = 0; bad < 2; bad++) { /* ids outside the table are an error of the step, and what follows does nothing */
        const int32_t wrong[] = {0, bad ? N : -1, 0, 0};
        step.tokens = wrong;
        weft_begin(d, &step);
        weft_embed(d, y, t);
        weft_add(d, y, y);
        assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
        assert_non_null(strstr(e.text, "vocabulary"));
    }
    weft_begin(d, &(weft_step){.n_rows = 4, .n_spans = 1, .tokens = tokens, .spans = &span}); /* the next step is sound again */
    weft_embed(d, y, t);
    end_ok(d);
    weft_dev_close(d);
    free(v);
}

static void test_norms_and_gates(void **state) {
    (void)state;
    enum { N = 37, WIDTH = 11, GROUPS = 3, K = WIDTH * GROUPS };
    float *a = random_floats(N * K, 2), *b = random_floats(N * K, 2), *g = random_floats(N, 4), *gain = random_floats(K, 1);
    weft_dev *d = open_dev(3, NULL);
    weft_mat *ta = table(d, a, N, K), *tb = table(d, b, N, K), *tg = table(d, g, N, 1);
    weft_coef *full = coef(d, gain, K), *grouped = coef(d, gain, WIDTH);
    weft_buf *x = weft_buf_make(d, NULL, 0, K), *z = weft_buf_make(d, NULL, 0, K), *one = weft_buf_make(d, NULL, 0, 1), *y[8];
    for (int i = 0; i < 7; i++) y[i] = weft_buf_make(d, NULL, 0, K);
    y[7] = weft_buf_make(d, NULL, 0, 2 * K);
    plan(d, small_plan);
    begin_rows(d, N, 0);
    weft_embed(d, x, ta);
    weft_embed(d, z, tb);
    weft_embed(d, one, tg);
    weft_norm(d, y[0], x, full, 1e-6f);
    weft_norm_gated(d, y[1], x, z, grouped, 1e-6f);
    weft_glu(d, y[2], x, z);
    weft_embed(d, y[3], ta);
    weft_gate(d, y[3], z);
    weft_embed(d, y[4], ta);
    weft_gate(d, y[4], one);
    weft_concat(d, y[7], x, z);
    weft_embed(d, y[5], ta);
    weft_add_norm(d, y[5], z, y[6], full, 1e-5f);
    weft_add(d, x, z);
    end_ok(d);
    for (int r = 0; r < N; r++) {
        float sum[K], out[8][2 * K];
        for (int i = 0; i < 8; i++) read_into(d, y[i], r, out[i]);
        read_into(d, x, r, sum);
        same_bytes("x + z by add and by add_norm", r, sum, out[5], sizeof sum);
        same_bytes("concat", r, out[7], a + r * K, K * sizeof *a);
        same_bytes("concat", r, out[7] + K, b + r * K, K * sizeof *a);
        double squares = 0, squares2 = 0, group[GROUPS] = {0};
        for (int i = 0; i < K; i++) {
            double v = (double)a[r * K + i];
            squares += v * v;
            squares2 += (double)sum[i] * (double)sum[i];
            group[i / WIDTH] += v * v;
        }
        for (int i = 0; i < K; i++) {
            double v = (double)a[r * K + i], w = (double)b[r * K + i], s = 1 / (1 + exp(-w)), sg = 1 / (1 + exp(-(double)g[r]));
            double normed = v / sqrt(squares / K + 1e-6) * (double)gain[i], normed2 = (double)sum[i] / sqrt(squares2 / K + 1e-5) * (double)gain[i];
            double normed3 = v / sqrt(group[i / WIDTH] / WIDTH + 1e-6) * (double)gain[i % WIDTH] * w * s;
            near_to("norm", i, out[0][i], normed, 12 * U * fabs(normed));
            near_to("norm_gated", i, out[1][i], normed3, 20 * U * fabs(normed3));
            near_to("glu", i, out[2][i], v * s * w, 0); /* overwritten below: silu(x) z */
        }
        (void)state;
        for (int i = 0; i < K; i++) {
            double v = (double)a[r * K + i], w = (double)b[r * K + i];
            double normed2 = (double)sum[i] / sqrt(squares2 / K + 1e-5) * (double)gain[i];
            near_to("glu", i, out[2][i], v / (1 + exp(-v)) * w, 8 * U * fabs(v * w));
            near_to("gate", i, out[3][i], v / (1 + exp(-w)), 8 * U * fabs(v));
            near_to("gate of one column", i, out[4][i], v / (1 + exp(-(double)g[r])), 8 * U * fabs(v));
            near_to("add", i, sum[i], v + w, U * fabs(v + w));
            near_to("add_norm", i, out[6][i], normed2, 12 * U * fabs(normed2));
        }
    }
    weft_dev_close(d);
    free(a), free(b), free(g), free(gain);
}

/* test_ops.c: each operator of ops.h against double arithmetic, on a small device. Sizes are odd on purpose (no multiples of 16).
 * What steps leave behind is in test_ops_steps.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpu.h"
#include "ops/ops.h"

#define U 0x1p-24

/* ---- numbers, weights, devices ------------------------------------------------------------------------------------------- */

static uint64_t seed = 7;
static uint32_t bits32(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32);
}
static int below(int n) {
    return (int)(bits32() % (uint32_t)n);
}
static float random_float(void) {
    return (float)((double)bits32() * 0x1p-31 - 1);
}
static float *random_floats(int n, float scale) {
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int i = 0; i < n; i++) v[i] = random_float() * scale;
    return v;
}
static double roundings(int n) {
    return n * U / (1 - n * U);
}

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
static weft_status mat_of(weft_mat **m, weft_dev *d, const float *v, weft_dtype dtype, int64_t experts, int64_t n, int64_t k,
                          weft_error *e) {
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
/* Random affine weights, scales in float32; values[] gets what they stand for, to two roundings. */
typedef struct codes_of {
    uint8_t *codes;
    float *scales, *biases;
    int64_t n, k, group;
} codes_of;
static weft_status read_codes(void *ctx, int64_t expert, int64_t row, void *codes, void *scale, void *bias, weft_error *e) {
    (void)e;
    const codes_of *t = ctx;
    int64_t at = expert * t->n + row, groups = t->k / t->group;
    memcpy(codes, t->codes + at * t->k, (size_t)t->k);
    memcpy(scale, t->scales + at * groups, (size_t)groups * sizeof(float));
    memcpy(bias, t->biases + at * groups, (size_t)groups * sizeof(float));
    return WEFT_OK;
}
static void draw_codes(codes_of *t, float *values, int bits, int group, int experts, int n, int k) {
    int count = experts * n * k;
    *t = (codes_of){malloc((size_t)count), random_floats(count / group, 1), random_floats(count / group, 0), n, k, group};
    assert_non_null(t->codes);
    float top = (float)((1 << bits) - 1);
    for (int i = 0; i < count / group; i++) {
        t->scales[i] = (1 + 0.5f * t->scales[i]) / (top * sqrtf((float)k)) * (i % 2 ? 3 : -3);
        t->biases[i] = -t->scales[i] * top / 2;
    }
    for (int i = 0; i < count; i++) {
        t->codes[i] = (uint8_t)below(1 << bits);
        values[i] = t->scales[i / group] * (float)t->codes[i] + t->biases[i / group];
    }
}
/* Rows first and on of n rows of every expert. */
static weft_mat *codes_mat(weft_dev *d, const codes_of *t, int bits, int experts, int first, int n) {
    weft_mat *m = NULL;
    weft_error e;
    codes_of part = *t;
    part.codes += first * t->k;
    part.scales += first * (t->k / t->group);
    part.biases += first * (t->k / t->group);
    weft_mat_desc desc = {.dtype = WEFT_F32,
                          .bits = bits,
                          .group = (int)t->group,
                          .experts = experts,
                          .n = n,
                          .k = t->k,
                          .name = "w",
                          .read = read_codes,
                          .ctx = &part};
    assert_int_equal(weft_mat_make(d, &desc, &m, &e), WEFT_OK);
    return m;
}
static void free_codes(codes_of *t) {
    free(t->codes), free(t->scales), free(t->biases);
}
static weft_coef *coef(weft_dev *d, const float *v, int n) {
    weft_coef *c = NULL;
    weft_error e;
    assert_int_equal(weft_coef_make(d, v, n, &c, &e), WEFT_OK);
    return c;
}
static weft_dev *open_dev(int threads, bool precise) {
    weft_dev *d = NULL;
    weft_error e;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = threads, .precise = precise}, &e), WEFT_OK);
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
    plain_span =
        (weft_span){.certain = n, .pos = pos, .slot_read = pos ? 0 : -1, .n_pages = {8192, 8192}, .pages = {page_zero, page_zero}};
    plain_step = (weft_step){.n_rows = n, .n_spans = 1, .tokens = counting, .spans = &plain_span};
    weft_begin(d, &plain_step);
}
static const weft_plan small_plan = {.max_rows = 64, .max_spans = 4, .n_pages = {1, 1}, .n_slots = 1};

/* ---- operators without memory -------------------------------------------------------------------------------------------- */

static void test_embed(void **state) {
    (void)state;
    enum { N = 9, K = 21 };
    float *v = random_floats(N * K, 1), row[K];
    weft_dev *d = open_dev(2, false);
    weft_mat *t = table(d, v, N, K);
    weft_buf *y = weft_buf_make(d, NULL, 0, K);
    plan(d, small_plan);
    const int32_t tokens[] = {8, 0, 3, 3};
    weft_span span = {.certain = 4, .slot_read = -1, .n_pages = {1}, .pages = {page_zero}};
    weft_step step = {.n_rows = 4, .n_spans = 1, .tokens = tokens, .spans = &span};
    weft_begin(d, &step);
    weft_embed(d, y, t, 1);
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
        weft_embed(d, y, t, 1);
        weft_add(d, y, y);
        assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
        assert_non_null(strstr(e.text, "vocabulary"));
    }
    weft_begin(d, &(weft_step){.n_rows = 4, .n_spans = 1, .tokens = tokens, .spans = &span}); /* the next step is sound again */
    weft_embed(d, y, t, 1);
    end_ok(d);
    weft_dev_close(d);
    free(v);
}

static void test_norms_and_gates(void **state) {
    (void)state;
    enum { N = 37, WIDTH = 11, GROUPS = 3, K = WIDTH * GROUPS };
    float *a = random_floats(N * K, 2), *b = random_floats(N * K, 2), *g = random_floats(N, 4), *gain = random_floats(K, 1);
    weft_dev *d = open_dev(3, false);
    weft_mat *ta = table(d, a, N, K), *tb = table(d, b, N, K), *tg = table(d, g, N, 1);
    weft_coef *full = coef(d, gain, K), *grouped = coef(d, gain, WIDTH);
    weft_buf *x = weft_buf_make(d, NULL, 0, K), *z = weft_buf_make(d, NULL, 0, K), *one = weft_buf_make(d, NULL, 0, 1), *y[8];
    for (int i = 0; i < 7; i++) y[i] = weft_buf_make(d, NULL, 0, K);
    y[7] = weft_buf_make(d, NULL, 0, 2 * K);
    plan(d, small_plan);
    begin_rows(d, N, 0);
    weft_embed(d, x, ta, 1);
    weft_embed(d, z, tb, 1);
    weft_embed(d, one, tg, 1);
    weft_norm(d, y[0], x, full, 1e-6f);
    weft_norm_gated(d, y[1], x, z, grouped, 1e-6f);
    weft_activate(d, y[2], x, z, WEFT_SILU);
    weft_embed(d, y[3], ta, 1);
    weft_gate(d, y[3], z);
    weft_embed(d, y[4], ta, 1);
    weft_gate(d, y[4], one);
    weft_embed(d, y[5], ta, 1);
    weft_add_norm(d, y[5], z, y[6], full, 1e-5f);
    weft_concat(d, y[7], x, z);
    weft_add(d, x, z);
    end_ok(d);
    for (int r = 0; r < N; r++) {
        float sum[K], out[8][2 * K];
        for (int i = 0; i < 8; i++) read_into(d, y[i], r, out[i]);
        read_into(d, x, r, sum);
        same_bytes("x + z by add and by add_norm", r, sum, out[5], sizeof sum);
        same_bytes("concat", r, out[7], a + r * K, K * sizeof *a);
        same_bytes("concat", r, out[7] + K, b + r * K, K * sizeof *a);
        double squares = 0, squares_sum = 0, group[GROUPS] = {0};
        for (int i = 0; i < K; i++) {
            double v = (double)a[r * K + i];
            squares += v * v;
            squares_sum += (double)sum[i] * (double)sum[i];
            group[i / WIDTH] += v * v;
        }
        for (int i = 0; i < K; i++) {
            double v = (double)a[r * K + i], w = (double)b[r * K + i], silu = v / (1 + exp(-v)), gate = 1 / (1 + exp(-w));
            double normed = v / sqrt(squares / K + 1e-6) * (double)gain[i];
            double normed_sum = (double)sum[i] / sqrt(squares_sum / K + 1e-5) * (double)gain[i];
            double gated = v / sqrt(group[i / WIDTH] / WIDTH + 1e-6) * (double)gain[i % WIDTH] * w * gate;
            near_to("norm", i, out[0][i], normed, 12 * U * fabs(normed));
            near_to("norm_gated", i, out[1][i], gated, 20 * U * fabs(gated));
            near_to("glu", i, out[2][i], silu * w, 8 * U * fabs(silu * w));
            near_to("gate", i, out[3][i], v * gate, 8 * U * fabs(v));
            near_to("gate of one column", i, out[4][i], v / (1 + exp(-(double)g[r])), 8 * U * fabs(v));
            near_to("add", i, sum[i], v + w, U * fabs(v + w));
            near_to("add_norm", i, out[6][i], normed_sum, 12 * U * fabs(normed_sum));
        }
    }
    weft_dev_close(d);
    free(a), free(b), free(g), free(gain);
}

/* How far affine weights by quantised activations may be from their product: half a step of each activation, a step being the
 * largest of 64 columns / 127; and roundings. */
static double fast_error(const float *x, const float *w, int k) {
    double bound = 0, most = 0, size = 0;
    for (int c = 0; c < k; c += 64) {
        double top = 0, weights = 0;
        for (int i = c; i < k && i < c + 64; i++) {
            top = fmax(top, fabs((double)x[i]));
            weights += fabs((double)w[i]);
            most = fmax(most, fabs((double)w[i]));
            size += fabs((double)x[i]);
        }
        bound += top / 127 * (0.5 + 127 * 4 * U) * weights;
    }
    return bound + roundings(k / 16 + 8) * 4 * most * size;
}

/* Several weights of one k, plain and affine, in both modes; logits of chosen rows. The input's padding is full of another phase's
 * NaN. What has plain weights alone is the same in both modes. */
static void test_linear_and_logits(void **state) {
    (void)state;
    static const int sizes[][2] = {{1, 1}, {5, 17}, {16, 16}, {33, 40}, {70, 131}, {21, 32}, {37, 96}, {50, 320}};
    enum { N = 19 };
    for (int i = 0; i < 8; i++) {
        int n[3] = {sizes[i][0], sizes[i][0] + 3, sizes[i][0] + 17}, k = sizes[i][1], kinds = k % 32 ? 2 : 3, bits = 2 + i % 7;
        if (bits == 7) bits = 4;
        float *x = random_floats(N * k, 1), *nan = random_floats(N * (k + 32), 1), *w[3];
        float *ones = random_floats(k, 0), *in = random_floats(k, 0), *y = random_floats(n[2], 0), *chosen = random_floats(n[2], 0);
        float *both = random_floats(2 * N * n[1], 0);
        codes_of codes = {0};
        for (int j = 0; j < N * (k + 32); j++) nan[j] = NAN;
        for (int j = 0; j < k; j++) ones[j] = 1;
        for (int j = 0; j < 3; j++) w[j] = random_floats(n[j] * k, 1);
        cut_to_bf16(w[1], n[1] * k);
        if (kinds == 3) draw_codes(&codes, w[2], bits, 32, 1, n[2], k);
        for (int precise = 0; precise < 2; precise++) {
            weft_dev *d = open_dev(2, precise);
            weft_error e;
            weft_mat *tx = table(d, x, N, k), *t_nan = table(d, nan, N, k + 32), *m[3] = {table(d, w[0], n[0], k)};
            assert_int_equal(mat_of(&m[1], d, w[1], WEFT_BF16, 1, n[1], k, &e), WEFT_OK);
            if (kinds == 3) m[2] = codes_mat(d, &codes, bits, 1, 0, n[2]);
            weft_coef *gain = coef(d, ones, k);
            weft_buf *keep = weft_buf_make(d, NULL, 0, k), *poison = weft_buf_make(d, "a", 0, k + 32),
                     *h = weft_buf_make(d, "b", 0, k), *out[3];
            for (int j = 0; j < 3; j++) out[j] = weft_buf_make(d, NULL, 0, n[j]);
            weft_buf *some = weft_buf_make(d, NULL, 3, n[kinds - 1]), *most = weft_buf_make(d, NULL, 100, n[kinds - 1]);
            plan(d, small_plan);
            begin_rows(d, N, 0);
            weft_embed(d, keep, tx, 1);
            weft_embed(d, poison, t_nan, 1);
            weft_norm(d, h, keep, gain, 1e-6f);
            weft_linear(d, out, (const weft_mat *[]){m[0], m[1], m[2]}, kinds, h);
            weft_logits(d, some, &(weft_output){.w = m[kinds - 1]}, h, (const int[]){7, 0, 18}, 3);
            end_ok(d);
            for (int r = 0; r < N; r++) {
                read_into(d, h, r, in);
                for (int b = 0; b < kinds; b++) {
                    read_into(d, out[b], r, y);
                    if (b == 1) memcpy(both + (precise * N + r) * n[1], y, (size_t)n[1] * sizeof *y);
                    for (int o = 0; o < n[b]; o++) {
                        const float *row = w[b] + o * k;
                        double want = 0, size = 0;
                        for (int c = 0; c < k; c++) {
                            want += (double)in[c] * (double)row[c];
                            size += fabs((double)in[c] * (double)row[c]);
                        }
                        near_to("linear", o, y[o], want, b == 2 && !precise ? fast_error(in, row, k) : roundings(k + 5) * 2 * size);
                    }
                }
                int at = r == 7 ? 0 : r == 0 ? 1 : r == 18 ? 2 : -1;
                if (at < 0) continue;
                read_into(d, some, at, chosen);
                same_bytes("logits and linear", r, chosen, y, (size_t)n[kinds - 1] * sizeof *y);
            }
            static const int bad_rows[][2] = {{0, N}, {-1, 0}}, many[100] = {0};
            for (int b = 0; b < 4; b++) { /* rows that do not exist, more rows than the buffer, than the plan has */
                begin_rows(d, N, 0);
                weft_embed(d, h, tx, 1);
                if (b < 3)
                    weft_logits(d, some, &(weft_output){.w = m[1]}, h, b < 2 ? bad_rows[b] : (const int[]){0, 1, 2, 3},
                                b < 2 ? 2 : 4);
                else
                    weft_logits(d, most, &(weft_output){.w = m[kinds - 1]}, h, many, 100);
                assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
            }
            weft_dev_close(d);
        }
        same_bytes("plain weights in both modes", i, both, both + N * n[1], (size_t)(N * n[1]) * sizeof *both);
        free(x), free(nan), free(ones), free(in), free(y), free(chosen), free(both), free(w[0]), free(w[1]), free(w[2]);
        free_codes(&codes);
    }
}

/* Products are cut into panels and chunks of rows for the workers and the caches; a row is what it is alone. */
static void test_linear_pieces(void **state) {
    (void)state;
    enum { ROWS = 150, K = 8192, KINDS = 3 };
    static const int n[KINDS] = {70, 40, 5}, asked[] = {0, 15, 63, 64, 127, 128, 149};
    float *x = random_floats(ROWS * K, 1), *plain = random_floats(n[1] * K, 1), *w[2], alone[7][70], y[70];
    codes_of codes[2];
    for (int i = 0; i < 2; i++) {
        w[i] = random_floats(n[2 * i] * K, 0);
        draw_codes(&codes[i], w[i], i ? 8 : 4, 64, 1, n[2 * i], K);
    }
    for (int precise = 0; precise < 2; precise++)
        for (int threads = 1; threads <= 3; threads++) {
            weft_dev *d = open_dev(threads, precise);
            weft_error e;
            weft_mat *tx = table(d, x, ROWS, K),
                     *m[KINDS] = {codes_mat(d, &codes[0], 4, 1, 0, n[0]), NULL, codes_mat(d, &codes[1], 8, 1, 0, n[2])};
            assert_int_equal(mat_of(&m[1], d, plain, WEFT_BF16, 1, n[1], K, &e), WEFT_OK);
            weft_buf *h = weft_buf_make(d, NULL, 0, K), *out[KINDS];
            for (int j = 0; j < KINDS; j++) out[j] = weft_buf_make(d, NULL, 0, n[j]);
            plan(d, (weft_plan){.max_rows = ROWS, .max_spans = 1, .n_pages = {1}, .n_slots = 1});
            for (int at = 0; at < KINDS; at++) {
                for (int i = 0; i < 7; i++) {
                    begin_rows(d, 1, 0);
                    counting[0] = asked[i];
                    weft_embed(d, h, tx, 1);
                    weft_linear(d, &out[at], (const weft_mat *[]){m[at]}, 1, h);
                    end_ok(d);
                    read_into(d, out[at], 0, alone[i]);
                }
                for (int rows = ROWS; rows > 0; rows = rows > 129 ? 129 : rows > 17 ? 17 : rows > 16 ? 16 : 0) {
                    begin_rows(d, rows, 0);
                    weft_embed(d, h, tx, 1);
                    weft_linear(d, out, (const weft_mat *[]){m[0], m[1], m[2]}, KINDS, h);
                    end_ok(d);
                    for (int i = 0; i < 7 && asked[i] < rows; i++) {
                        read_into(d, out[at], asked[i], y);
                        same_bytes("alone and in company", asked[i], y, alone[i], (size_t)n[at] * sizeof *y);
                    }
                }
            }
            weft_dev_close(d);
        }
    free(x), free(plain), free(w[0]), free(w[1]);
    free_codes(&codes[0]), free_codes(&codes[1]);
}

/* Half-split rotation by a float32 angle, exact sine and cosine of it at positions up to 500000; a vector computed elsewhere. */
static void test_rope(void **state) {
    (void)state;
    enum { N = 16, DIM = 24, FREQ = 7, HEADS = 3 };
    float x[4 * 4], freq2[2] = {1, 0.01f}, row[4];
    for (int i = 0; i < 16; i++) x[i] = (float)(1 + i % 4);
    weft_dev *d = open_dev(1, false);
    weft_mat *t = table(d, x, 4, 4);
    weft_coef *f = coef(d, freq2, 2);
    assert_true(weft_kv_layer(d, 1, DIM, WEFT_PAGES_ALL) == 0); /* sizes the table of angles */
    weft_buf *k = weft_buf_make(d, NULL, 0, 4);
    plan(d, small_plan);
    begin_rows(d, 4, 0);
    weft_embed(d, k, t, 1);
    weft_qk_norm_rope(d, NULL, k, NULL, NULL, 1e-6f, f, 4);
    end_ok(d);
    read_into(d, k, 3, row);
    static const double want[4] = {-1.413353, 1.879118, -2.828857, 4.058191};
    for (int i = 0; i < 4; i++) near_to("rope vector", i, row[i], want[i], 1e-6);
    read_into(d, k, 0, row);
    same_bytes("position 0", 0, row, x, sizeof row); /* not rotated */
    weft_dev_close(d);

    float *q = random_floats(N * HEADS * DIM, 1), *kk = random_floats(N * DIM, 1), freq[FREQ], gain[DIM];
    for (int i = 0; i < FREQ; i++) freq[i] = (float)(1 / pow(1e7, 2.0 * i / (2 * FREQ)));
    for (int i = 0; i < DIM; i++) gain[i] = 1 + random_float() / 2;
    d = open_dev(2, false);
    weft_mat *tq = table(d, q, N, HEADS * DIM), *tk = table(d, kk, N, DIM);
    f = coef(d, freq, FREQ);
    weft_coef *g = coef(d, gain, DIM);
    weft_buf *bq = weft_buf_make(d, NULL, 0, HEADS * DIM), *bk = weft_buf_make(d, NULL, 0, DIM);
    assert_true(weft_kv_layer(d, 1, DIM, WEFT_PAGES_ALL) == 0);
    plan(d, small_plan);
    static const int starts[] = {0, 5, 1000, 65530, 262000, 500000};
    for (int s = 0; s < 6; s++) {
        begin_rows(d, N, starts[s]);
        weft_embed(d, bq, tq, 1);
        weft_embed(d, bk, tk, 1);
        weft_qk_norm_rope(d, bq, bk, g, NULL, 1e-6f, f, DIM);
        end_ok(d);
        for (int r = 0; r < N; r++)
            for (int h = 0; h <= HEADS; h++) {
                float out[HEADS * DIM];
                read_into(d, h < HEADS ? bq : bk, r, out);
                const float *from = h < HEADS ? q + (r * HEADS + h) * DIM : kk + r * DIM, *got = h < HEADS ? out + h * DIM : out;
                double squares = 0, v[DIM], length;
                for (int i = 0; i < DIM; i++) squares += (double)from[i] * (double)from[i];
                length = h < HEADS ? sqrt(squares / DIM + 1e-6) : 1;
                for (int i = 0; i < DIM; i++) v[i] = (double)from[i] / length * (h < HEADS ? (double)gain[i] : 1);
                for (int i = 0; i < DIM; i++) {
                    int j = i % FREQ;
                    double angle = (double)((float)(starts[s] + r) * freq[j]), a = v[j], b = v[j + FREQ], w = v[i];
                    if (i < FREQ) w = a * cos(angle) - b * sin(angle);
                    if (i >= FREQ && i < 2 * FREQ) w = b * cos(angle) + a * sin(angle);
                    near_to("rope", i, got[i], w, 20 * U * (fabs(a) + fabs(b) + fabs(w)));
                }
            }
    }
    weft_dev_close(d);
    free(q), free(kk);
}

/* Layers with frequencies of their own take turns in a step, even more of them than there are tables; pairs of frequency zero stay
 * as they are. */
static void test_rope_of_two_kinds(void **state) {
    (void)state;
    enum { N = 12, DIM = 512, TURNS = 9 };
    static const int sizes[3] = {256, 128, 7}, turns[TURNS] = {0, 1, 0, 1, 2, 2, 0, 1, 2};
    float *x = random_floats(N * DIM, 1), *want[3], f[DIM];
    for (int i = 0; i < 3; i++) want[i] = random_floats(N * DIM, 1);
    for (int threads = 1; threads <= 2; threads++) {
        weft_coef *freq[3];
        weft_dev *d = open_dev(threads, false);
        weft_mat *t = table(d, x, N, DIM);
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < sizes[i]; j++) f[j] = i == 0 && j >= 64 ? 0 : (float)pow(i ? 1e4 : 1e6, -2.0 * j / DIM);
            freq[i] = coef(d, f, sizes[i]);
        }
        assert_int_equal(weft_kv_layer(d, 1, DIM, WEFT_PAGES_ALL), 0);
        assert_int_equal(weft_kv_layer(d, 1, DIM / 2, WEFT_PAGES_WINDOW), 1);
        weft_buf *q[TURNS];
        for (int i = 0; i < TURNS; i++) q[i] = weft_buf_make(d, NULL, 0, DIM);
        plan(d, small_plan);
        for (int i = 0; i < 3 && threads == 1; i++) {
            begin_rows(d, N, 777);
            weft_embed(d, q[0], t, 1);
            weft_qk_norm_rope(d, NULL, q[0], NULL, NULL, 1e-6f, freq[i], DIM);
            end_ok(d);
            for (int r = 0; r < N; r++) read_into(d, q[0], r, want[i] + r * DIM);
        }
        for (int pos = 0; pos <= 777; pos += 777) { /* the tables of another step are gone */
            begin_rows(d, N, pos);
            for (int i = 0; i < TURNS; i++) {
                weft_embed(d, q[i], t, 1);
                weft_qk_norm_rope(d, NULL, q[i], NULL, NULL, 1e-6f, freq[turns[i]], DIM);
            }
            end_ok(d);
        }
        for (int i = 0; i < TURNS; i++)
            for (int r = 0; r < N; r++) {
                float row[DIM];
                read_into(d, q[i], r, row);
                same_bytes("a row in turn", i, row, want[turns[i]] + r * DIM, sizeof row);
                for (int j = 0; j < DIM; j++)
                    if (turns[i] == 0) assert_true((row[j] == x[r * DIM + j]) == (j % 256 >= 64));
            }
        weft_dev_close(d);
    }
    free(x), free(want[0]), free(want[1]), free(want[2]);
}

/* ---- mixture of experts -------------------------------------------------------------------------------------------------- */

static const weft_router plain_router = {.groups = 1, .top_groups = 1, .renormalise = true, .scale = 1};

static void test_route(void **state) {
    (void)state;
    enum { N = 4, E = 19, K = 5 };
    float logits[N][E] = {{0}};                                /* row 0: all equal */
    for (int i = 0; i < E; i++) logits[1][i] = (float)(i % 4); /* ties of the largest: 3, 7, 11, 15 */
    for (int r = 2; r < N; r++)
        for (int i = 0; i < E; i++) logits[r][i] = 8 * random_float();
    weft_dev *d = open_dev(1, false);
    weft_mat *t = table(d, logits[0], N, E);
    weft_buf *x = weft_buf_make(d, NULL, 0, E), *ids = weft_buf_make(d, NULL, 0, K), *w = weft_buf_make(d, NULL, 0, K);
    weft_moe_layer(d, E, K, 8, 8);
    plan(d, small_plan);
    static const int ties[2][K] = {{0, 1, 2, 3, 4}, {3, 7, 11, 15, 2}};
    for (int renormalise = 0; renormalise < 2; renormalise++) {
        begin_rows(d, N, 0);
        weft_embed(d, x, t, 1);
        weft_route(d, ids, w, x, &(weft_router){.groups = 1, .top_groups = 1, .renormalise = renormalise, .scale = 1});
        end_ok(d);
        for (int r = 0; r < N; r++) {
            float id[K], weight[K];
            read_into(d, ids, r, id);
            read_into(d, w, r, weight);
            double total = 0, chosen = 0;
            for (int i = 0; i < E; i++) total += exp((double)logits[r][i]);
            for (int s = 0; s < K; s++) chosen += exp((double)logits[r][(int)id[s]]);
            for (int s = 0; s < K; s++) {
                if (r < 2) assert_int_equal((int)id[s], ties[r][s]); /* V#42960: a tie goes to the lowest id */
                for (int i = 0; i < E; i++) {                        /* nobody left out is larger */
                    bool taken = false;
                    for (int b = 0; b <= s; b++) taken |= (int)id[b] == i;
                    assert_true(taken || logits[r][i] <= logits[r][(int)id[s]]);
                }
                double want = exp((double)logits[r][(int)id[s]]) / (renormalise ? chosen : total);
                near_to("weight", s, weight[s], want, 40 * U * want);
            }
        }
    }
    weft_dev_close(d);
}

/* Equal, bit for bit, to each expert run alone through the plain operators and added in slot order. */
static void check_experts(int threads, bool precise, bool affine) {
    enum { N = 23, E = 6, K = 3, WIDE = 96 };
    const int cols = affine ? WIDE : 21, inner = affine ? 32 : 13; /* the affine ones in groups of 32 */
    float *x = random_floats(N * cols, 1), *logits = random_floats(N * E, 3), *up = random_floats(E * 2 * inner * cols, 0.3f),
          *down = random_floats(E * cols * inner, 0.3f), *nan = random_floats(N * WIDE, 0), ones[WIDE];
    codes_of up_codes = {0}, down_codes = {0};
    for (int i = 0; i < N * WIDE; i++) nan[i] = NAN;
    for (int i = 0; i < WIDE; i++) ones[i] = 1;
    for (int i = 0; i < N; i++) logits[i * E + 4] = -50; /* an expert that nobody chooses */
    weft_dev *d = open_dev(threads, precise);
    weft_error e;
    weft_mat *tx = table(d, x, N, cols), *tl = table(d, logits, N, E), *tn = table(d, nan, N, WIDE), *all_up, *all_down, *gate1[E],
             *up1[E], *down1[E];
    if (affine) {
        draw_codes(&up_codes, up, 4, 32, E, 2 * inner, cols);
        draw_codes(&down_codes, down, 6, 32, E, cols, inner);
        all_up = codes_mat(d, &up_codes, 4, E, 0, 2 * inner);
        all_down = codes_mat(d, &down_codes, 6, E, 0, cols);
    } else {
        assert_int_equal(mat_of(&all_up, d, up, WEFT_F32, E, 2 * inner, cols, &e), WEFT_OK);
        assert_int_equal(mat_of(&all_down, d, down, WEFT_F32, E, cols, inner, &e), WEFT_OK);
    }
    for (int i = 0; i < E; i++) {
        gate1[i] = affine ? codes_mat(d, &up_codes, 4, 1, i * 2 * inner, inner) : table(d, up + i * 2 * inner * cols, inner, cols);
        up1[i] = affine ? codes_mat(d, &up_codes, 4, 1, (i * 2 + 1) * inner, inner)
                        : table(d, up + (i * 2 + 1) * inner * cols, inner, cols);
        down1[i] = affine ? codes_mat(d, &down_codes, 6, 1, i * cols, cols) : table(d, down + i * cols * inner, cols, inner);
    }
    weft_coef *gain = coef(d, ones, cols);
    weft_buf *keep = weft_buf_make(d, NULL, 0, cols), *poison = weft_buf_make(d, "a", 0, WIDE), *h = weft_buf_make(d, "b", 0, cols);
    weft_buf *router = weft_buf_make(d, NULL, 0, E), *ids = weft_buf_make(d, NULL, 0, K), *w = weft_buf_make(d, NULL, 0, K);
    weft_buf *y = weft_buf_make(d, NULL, 0, cols), *g = weft_buf_make(d, NULL, 0, inner), *u = weft_buf_make(d, NULL, 0, inner),
             *one[E];
    for (int i = 0; i < E; i++) one[i] = weft_buf_make(d, NULL, 0, cols);
    weft_moe_layer(d, E, K, inner, cols);
    plan(d, small_plan);
    begin_rows(d, N, 0);
    weft_embed(d, keep, tx, 1);
    weft_embed(d, router, tl, 1);
    weft_embed(d, poison, tn, 1); /* NaN where the padding of h will be */
    weft_norm(d, h, keep, gain, 1e-6f);
    weft_route(d, ids, w, router, &plain_router);
    uint64_t start = weft_dev_traffic(d), read = 0, each[E];
    weft_experts(d, y, h, ids, w, all_up, all_down, WEFT_SILU);
    read = weft_dev_traffic(d) - start;
    for (int i = 0; i < E; i++) {
        start = weft_dev_traffic(d);
        weft_linear(d, (weft_buf *[]){g, u}, (const weft_mat *[]){gate1[i], up1[i]}, 2, h);
        weft_activate(d, g, g, u, WEFT_SILU);
        weft_linear(d, &one[i], (const weft_mat *[]){down1[i]}, 1, g);
        each[i] = weft_dev_traffic(d) - start;
    }
    end_ok(d);
    bool used[E] = {false};
    for (int r = 0; r < N; r++) {
        float out[WIDE], id[K], weight[K], part[WIDE], want[WIDE] = {0};
        read_into(d, y, r, out);
        read_into(d, ids, r, id);
        read_into(d, w, r, weight);
        for (int s = 0; s < K; s++) {
            used[(int)id[s]] = true;
            read_into(d, one[(int)id[s]], r, part);
            for (int i = 0; i < cols; i++) {
                float p = weight[s] * part[i];
                want[i] = want[i] + p;
            }
        }
        same_bytes("experts in slot order", r, out, want, (size_t)cols * sizeof *out);
    }
    for (int i = 0; i < E; i++) read -= used[i] ? each[i] : 0;
    assert_int_equal(read, 0); /* FreeToken#46: an expert is read once for all rows that chose it, and no other is */
    weft_dev_close(d);
    free(x), free(logits), free(up), free(down), free(nan);
    free_codes(&up_codes), free_codes(&down_codes);
}
static void test_experts(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) check_experts(1 + i % 3, i / 3 % 2, i / 6);
}

static void test_nan_in_the_router(void **state) {
    (void)state;
    enum { N = 3, E = 4, K = 2, COLS = 32, INNER = 32 };
    float x[N * COLS];
    static float w[E * 2 * INNER * COLS];
    for (int i = 0; i < N * COLS; i++) x[i] = random_float();
    codes_of codes;
    draw_codes(&codes, w, 4, 32, E, 2 * INNER, COLS);
    static const float bad[] = {NAN, INFINITY};
    for (int b = 0; b < 6; b++) /* plain weights; affine ones in both modes */
        for (int at = 0; at < E; at++) {
            float logits[N * E] = {0};
            logits[E + at] = bad[b % 2];
            weft_dev *d = open_dev(2, b > 3);
            weft_error e;
            weft_mat *tx = table(d, x, N, COLS), *tl = table(d, logits, N, E), *up, *down;
            assert_int_equal(mat_of(&up, d, w, WEFT_F32, E, 2 * INNER, COLS, &e), WEFT_OK);
            assert_int_equal(mat_of(&down, d, w, WEFT_F32, E, COLS, INNER, &e), WEFT_OK);
            if (b > 1) up = codes_mat(d, &codes, 4, E, 0, 2 * INNER);
            if (b > 1) down = codes_mat(d, &codes, 4, E, 0, COLS); /* COLS is INNER: any rows of that many columns */
            weft_buf *h = weft_buf_make(d, NULL, 0, COLS), *router = weft_buf_make(d, NULL, 0, E),
                     *ids = weft_buf_make(d, NULL, 0, K), *weights = weft_buf_make(d, NULL, 0, K),
                     *y = weft_buf_make(d, NULL, 0, COLS);
            weft_moe_layer(d, E, K, INNER, COLS);
            plan(d, small_plan);
            begin_rows(d, N, 0);
            weft_embed(d, h, tx, 1);
            weft_embed(d, router, tl, 1);
            weft_route(d, ids, weights, router, &plain_router);
            weft_experts(d, y, h, ids, weights, up, down, WEFT_SILU);
            float out[N][COLS];
            for (int r = 0; r < N; r++) assert_int_equal(weft_read(d, y, r, out[r], &e), WEFT_OK);
            assert_int_equal(weft_end(d, &e), WEFT_OK);
            for (int i = 0; i < COLS; i++) {
                assert_true(out[0][i] == out[0][i] && out[2][i] == out[2][i]);
                assert_true(out[1][i] != out[1][i]);
            }
            weft_dev_close(d);
        }
    free_codes(&codes);
}

/* ---- attention ----------------------------------------------------------------------------------------------------------- */

enum { KEYS = 1101, DIM = 20, HEADS = 6, KV_HEADS = 2, Q_COLS = HEADS * DIM, KV_COLS = KV_HEADS * DIM, KV_PAGES = 60 };

typedef struct attention_rig {
    float *q, *k, *v; /* [KEYS]: the row of a token is that of its position */
    weft_dev *d;
    weft_mat *tq, *tk, *tv;
    weft_buf *bq, *bk, *bv, *y;
    weft_attention op;
} attention_rig;

/* nan_at: the position whose key and value are NaN; -1 none. Precise with keys and values in float32, else fast. */
static const char *const kv_types[] = {"f32", "bf16", "int8"};
static void rig_open(attention_rig *r, int threads, const char *kv, int first_key, int nan_at) {
    seed = 99;
    r->q = random_floats(KEYS * Q_COLS, 3);
    r->k = random_floats(KEYS * KV_COLS, 3);
    r->v = random_floats(KEYS * KV_COLS, 1);
    for (int i = 0; i < KV_COLS && nan_at >= 0; i++) r->k[nan_at * KV_COLS + i] = r->v[nan_at * KV_COLS + i] = NAN;
    weft_error e;
    weft_dev_config c = {.threads = threads, .precise = !strcmp(kv, "f32"), .kv = kv};
    assert_int_equal(weft_dev_open(&r->d, &c, &e), WEFT_OK);
    assert_string_equal(weft_dev_kv(r->d), kv);
    r->tq = table(r->d, r->q, KEYS, Q_COLS);
    r->tk = table(r->d, r->k, KEYS, KV_COLS);
    r->tv = table(r->d, r->v, KEYS, KV_COLS);
    r->bq = weft_buf_make(r->d, NULL, 0, Q_COLS);
    r->bk = weft_buf_make(r->d, NULL, 0, KV_COLS);
    r->bv = weft_buf_make(r->d, NULL, 0, KV_COLS);
    r->y = weft_buf_make(r->d, NULL, 0, Q_COLS);
    r->op = (weft_attention){.layer = weft_kv_layer(r->d, KV_HEADS, DIM, WEFT_PAGES_ALL),
                             .n_heads = HEADS,
                             .n_kv_heads = KV_HEADS,
                             .head_dim = DIM,
                             .scale = 0.3f,
                             .first_key = first_key};
    plan(r->d, (weft_plan){.max_rows = KEYS, .max_spans = 8, .n_pages = {KV_PAGES}, .n_slots = 8});
    for (int i = 0; i < KV_PAGES; i++) {
        weft_page_poison(r->d, WEFT_PAGES_ALL, i);
        weft_page_clear(r->d, WEFT_PAGES_ALL, i);
    }
}
static void rig_close(attention_rig *r) {
    weft_dev_close(r->d);
    free(r->q), free(r->k), free(r->v);
}
/* Runs spans whose tokens are their positions. */
static void rig_step(attention_rig *r, weft_span *spans, int n, bool only_write) {
    int32_t tokens[KEYS];
    int rows = 0;
    for (int i = 0; i < n; i++) {
        spans[i].row = rows;
        spans[i].slot_read = spans[i].pos ? i : -1;
        spans[i].slot_write = i;
        for (int j = 0; j < spans[i].certain + spans[i].speculative; j++) tokens[rows++] = spans[i].pos + j;
    }
    weft_begin(r->d, &(weft_step){.n_rows = rows, .n_spans = n, .tokens = tokens, .spans = spans});
    weft_embed(r->d, r->bq, r->tq, 1);
    weft_embed(r->d, r->bk, r->tk, 1);
    weft_embed(r->d, r->bv, r->tv, 1);
    weft_attend(r->d, only_write ? NULL : r->y, only_write ? NULL : r->bq, r->bk, r->bv, &r->op);
    end_ok(r->d);
}
static void check_row(const attention_rig *r, int row, int pos) {
    float got[Q_COLS];
    static double s[KEYS];
    read_into(r->d, r->y, row, got);
    for (int h = 0; h < HEADS; h++) {
        const float *q = r->q + pos * Q_COLS + h * DIM;
        int kv = h / (HEADS / KV_HEADS) * DIM, first = r->op.first_key;
        if (pos < first) continue;
        double max = -INFINITY, min = INFINITY, total = 0, error = 0;
        for (int j = first; j <= pos; j++) {
            double sum = 0, size = 0;
            for (int i = 0; i < DIM; i++) {
                double p = (double)q[i] * (double)r->k[j * KV_COLS + kv + i];
                sum += p;
                size += fabs(p);
            }
            s[j] = (double)r->op.scale * sum;
            error = fmax(error, roundings(9) * size * (double)r->op.scale);
            max = fmax(max, s[j]);
            min = fmin(min, s[j]);
        }
        for (int j = first; j <= pos; j++) total += s[j] = exp(s[j] - max);
        for (int i = 0; i < DIM; i++) {
            double want = 0, size = 0;
            for (int j = first; j <= pos; j++) {
                want += s[j] / total * (double)r->v[j * KV_COLS + kv + i];
                size += s[j] / total * fabs((double)r->v[j * KV_COLS + kv + i]);
            }
            near_to("attention", pos, got[h * DIM + i], want, size * (2 * error + 2 * U * fmin(max - min, 88) + roundings(600)));
        }
    }
}

/* Ragged spans, scrambled page tables, in float32 (test_attend.c has the other types), and the border of the 512-key chunks from
 * both sides. */
static void test_attention(void **state) {
    (void)state;
    for (int first_key = 0; first_key < 2; first_key++) {
        attention_rig r;
        rig_open(&r, 2, "f32", first_key, -1);
        int pages[3][18], all[KV_PAGES];
        for (int i = 0; i < KV_PAGES; i++) all[i] = i;
        for (int i = KV_PAGES - 1; i > 0; i--) {
            int j = below(i + 1), t = all[i];
            all[i] = all[j], all[j] = t;
        }
        for (int i = 0; i < 54; i++) pages[i / 18][i % 18] = all[i];
        weft_span fill[3] = {{.certain = 500, .n_pages = {18}, .pages = {pages[0]}},
                             {.certain = 510, .n_pages = {18}, .pages = {pages[1]}},
                             {.certain = 40, .n_pages = {1}, .pages = {pages[2]}}};
        rig_step(&r, fill, 1, true);
        rig_step(&r, fill + 1, 1, false);
        for (int p = 0; p < 70; p++) check_row(&r, p, p);
        weft_span mixed[3] = {{.pos = 500, .certain = 30, .n_pages = {18}, .pages = {pages[0]}},
                              {.pos = 510, .certain = 2, .speculative = 0, .n_pages = {18}, .pages = {pages[1]}},
                              {.pos = 0, .certain = 40, .n_pages = {1}, .pages = {pages[2]}}};
        rig_step(&r, mixed, 3, false);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < mixed[i].certain; j++) check_row(&r, mixed[i].row + j, mixed[i].pos + j);
        weft_span rest[2] = {{.pos = 530, .certain = KEYS - 530, .n_pages = {18}, .pages = {pages[0]}},
                             {.pos = 512, .certain = 1, .n_pages = {18}, .pages = {pages[1]}}};
        rig_step(&r, rest, 2, false);
        check_row(&r, rest[1].row, 512);
        for (int p = 530; p < KEYS; p += p < 1015 || p > 1030 ? 7 : 1) check_row(&r, p - 530, p);
        if (first_key) { /* the row that sees no key gives zero and leaves page row 0 alone */
            float y[Q_COLS];
            uint8_t *bytes = malloc(weft_page_bytes(r.d, WEFT_PAGES_ALL, 1)), zero[4096] = {0};
            weft_error e;
            rig_step(&r, &(weft_span){.certain = 1, .n_pages = {1}, .pages = {pages[2]}}, 1, false);
            read_into(r.d, r.y, 0, y);
            for (int i = 0; i < Q_COLS; i++) assert_true(y[i] == 0);
            assert_true(weft_page_bytes(r.d, WEFT_PAGES_ALL, 1) <= sizeof zero);
            assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, pages[2][0], 1, bytes, true, &e), WEFT_OK);
            same_bytes("page row 0", 0, bytes, zero, weft_page_bytes(r.d, WEFT_PAGES_ALL, 1));
            free(bytes);
        }
        rig_close(&r);
    }
}

/* A draft row that came out as NaN spoils itself and what follows it, and no row before it, though they run in one block. */
static void test_nan_in_a_later_row(void **state) {
    (void)state;
    enum { LAST = 530 };
    for (int i = 0; i < 30; i++) { /* on both sides of a chunk's border */
        int at = 500 + i;
        const char *kv = kv_types[i % 3];
        attention_rig clean, spoilt;
        int pages[9] = {4, 9, 1, 0, 7, 2, 3, 5, 6};
        float want[Q_COLS], got[Q_COLS];
        rig_open(&clean, 1, kv, 0, -1);
        rig_open(&spoilt, 2, kv, 0, at);
        weft_span span = {.certain = LAST, .n_pages = {9}, .pages = {pages}};
        rig_step(&clean, &span, 1, false);
        rig_step(&spoilt, &span, 1, false);
        for (int row = at - 20; row < LAST; row++) {
            read_into(clean.d, clean.y, row, want);
            read_into(spoilt.d, spoilt.y, row, got);
            if (row < at) same_bytes("row before a NaN", row, want, got, sizeof want);
            for (int i = 0; i < Q_COLS && row >= at; i++) assert_true(isnan(got[i]));
        }
        rig_close(&clean);
        rig_close(&spoilt);
    }
}

/* Rows below write_from read what the pages hold and leave it: a restored prefix belongs to others, too. */
static void check_write_from(const char *kv) {
    attention_rig r;
    rig_open(&r, 1, kv, 0, -1);
    int pages[2] = {5, 3};
    weft_span fill = {.certain = 100, .n_pages = {2}, .pages = {pages}};
    rig_step(&r, &fill, 1, false);
    size_t bytes = weft_page_bytes(r.d, WEFT_PAGES_ALL, WEFT_PAGE_ROWS);
    uint8_t *page = malloc(bytes), *after = malloc(bytes);
    float before[Q_COLS], y[Q_COLS];
    weft_error e;
    read_into(r.d, r.y, 99, before);
    assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, 3, WEFT_PAGE_ROWS, page, true, &e), WEFT_OK);
    for (size_t i = 0; i < bytes; i++) page[i] ^= 1; /* what a device must not mend */
    assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, 3, WEFT_PAGE_ROWS, page, false, &e), WEFT_OK);
    weft_span again = {.pos = 70, .certain = 30, .write_from = 90, .n_pages = {2}, .pages = {pages}};
    rig_step(&r, &again, 1, false);
    read_into(r.d, r.y, 29, y);
    assert_true(memcmp(y, before, sizeof y) != 0);
    assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, 3, WEFT_PAGE_ROWS, after, true, &e), WEFT_OK);
    size_t rows = WEFT_PAGE_ROWS, each = bytes / rows / 2 / KV_HEADS; /* piece by piece: head, then K or V, [64] rows */
    for (size_t piece = 0; piece < 2 * KV_HEADS; piece++)
        for (size_t i = 0; i < rows; i++) {
            const uint8_t *a = page + (piece * rows + i) * each, *b = after + (piece * rows + i) * each;
            bool kept = memcmp(a, b, each) == 0, written = i >= 26 && i < 36; /* positions 90..99 */
            assert_true(kept == !written);
        }
    rig_close(&r);
    free(page), free(after);
}
static void test_write_from(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) check_write_from(kv_types[i]);
}

/* ---- Gated DeltaNet against double arithmetic ---------------------------------------------------------------------------- */

typedef struct gdn_rig {
    weft_gdn_shape s;
    int channels, period;                         /* token t reads row t % period of the inputs */
    float *in, *alpha, *beta, *taps, *decay, *dt; /* [period][..] each; taps [conv_kernel][channels] */
    weft_dev *d;
    weft_mat *tables[3];
    weft_buf *bufs[3], *y;
    weft_gdn op;
    double *S, *c, *out; /* the reference: state [head][column][k], one row's convolution, one row's outputs */
} gdn_rig;

/* memory: by how much dt_bias is lowered; 6 makes a state remember some hundred tokens. */
static void gdn_open(gdn_rig *g, weft_gdn_shape s, int period, int rows, int threads, float memory) {
    int heads = s.n_v_heads;
    *g = (gdn_rig){.s = s, .period = period, .channels = 2 * s.n_k_heads * s.k_dim + heads * s.v_dim};
    g->in = random_floats(period * g->channels, 2);
    g->alpha = random_floats(period * heads, 3);
    g->beta = random_floats(period * heads, 3);
    g->taps = random_floats(s.conv_kernel * g->channels, 1);
    g->decay = random_floats(heads, 1);
    g->dt = random_floats(heads, 1);
    for (int i = 0; i < heads; i++) {
        g->decay[i] = -expf(g->decay[i]);
        g->dt[i] -= memory;
    }
    g->d = open_dev(threads, false);
    const float *values[3] = {g->in, g->alpha, g->beta};
    for (int i = 0; i < 3; i++) {
        g->tables[i] = table(g->d, values[i], period, i ? heads : g->channels);
        g->bufs[i] = weft_buf_make(g->d, NULL, 0, i ? heads : g->channels);
    }
    g->op = (weft_gdn){weft_gdn_layer(g->d, &s), coef(g->d, g->taps, s.conv_kernel * g->channels), coef(g->d, g->decay, heads),
                       coef(g->d, g->dt, heads)};
    g->y = weft_buf_make(g->d, NULL, 0, heads * s.v_dim);
    plan(g->d, (weft_plan){.max_rows = rows, .max_spans = 1, .n_pages = {1}, .n_slots = 1});
    g->S = calloc((size_t)(heads * s.k_dim * s.v_dim), sizeof *g->S);
    g->c = calloc((size_t)g->channels, sizeof *g->c);
    g->out = calloc((size_t)(heads * s.v_dim), sizeof *g->out);
}
static void gdn_close(gdn_rig *g) {
    weft_dev_close(g->d);
    free(g->in), free(g->alpha), free(g->beta), free(g->taps), free(g->decay), free(g->dt), free(g->S), free(g->c), free(g->out);
}
static void gdn_step(gdn_rig *g, int pos, int rows) {
    int32_t tokens[1024];
    static int pages[1 << 13]; /* all page 0: nothing here writes pages */
    for (int i = 0; i < rows; i++) tokens[i] = (pos + i) % g->period;
    weft_span span = {.certain = rows, .pos = pos, .slot_read = pos ? 0 : -1, .n_pages = {1 << 13}, .pages = {pages}};
    weft_begin(g->d, &(weft_step){.n_rows = rows, .n_spans = 1, .tokens = tokens, .spans = &span});
    for (int i = 0; i < 3; i++) weft_embed(g->d, g->bufs[i], g->tables[i], 1);
    weft_gdn_run(g->d, g->y, g->bufs[0], g->bufs[1], g->bufs[2], &g->op);
    end_ok(g->d);
}
/* Token t of the reference, in double throughout. */
static void gdn_exact(gdn_rig *g, int t) {
    const weft_gdn_shape *s = &g->s;
    int heads = s->n_v_heads, group = heads / s->n_k_heads, kd = s->k_dim, vd = s->v_dim, row = t % g->period;
    for (int i = 0; i < g->channels; i++) {
        double x = 0;
        for (int tap = 0; tap < s->conv_kernel; tap++) {
            int from = t - (s->conv_kernel - 1) + tap;
            if (from >= 0) x += (double)g->in[from % g->period * g->channels + i] * (double)g->taps[tap * g->channels + i];
        }
        g->c[i] = x / (1 + exp(-x));
    }
    for (int h = 0; h < 2 * s->n_k_heads; h++) { /* query heads, then key heads */
        double squares = 1e-6;
        for (int i = 0; i < kd; i++) squares += g->c[h * kd + i] * g->c[h * kd + i];
        for (int i = 0; i < kd; i++) g->c[h * kd + i] /= sqrt(squares) * (h < s->n_k_heads ? sqrt(kd) : 1);
    }
    for (int h = 0; h < heads; h++) {
        const double *q = g->c + h / group * kd, *k = q + s->n_k_heads * kd, *v = g->c + 2 * s->n_k_heads * kd + h * vd;
        double x = (double)g->alpha[row * heads + h] + (double)g->dt[h], a = exp((double)g->decay[h] * log1p(exp(x)));
        double b = 1 / (1 + exp(-(double)g->beta[row * heads + h]));
        for (int j = 0; j < vd; j++) {
            double *Sj = g->S + (h * vd + j) * kd, m = 0, out = 0;
            for (int i = 0; i < kd; i++) m += (Sj[i] *= a) * k[i];
            for (int i = 0; i < kd; i++) out += (Sj[i] += k[i] * b * (v[j] - m)) * q[i];
            g->out[h * vd + j] = out;
        }
    }
}

static void test_gdn(void **state) {
    (void)state;
    enum { T = 24 };
    for (int round = 0; round < 24; round++) {
        weft_gdn_shape s = {
            .n_k_heads = 1 + below(3), .k_dim = 1 + below(40), .v_dim = 1 + below(40), .conv_kernel = 1 + round % 8};
        s.n_v_heads = s.n_k_heads * (1 + below(3));
        gdn_rig g;
        float got[9 * 40];
        gdn_open(&g, s, T, T, 1 + round % 3, 0);
        gdn_step(&g, 0, T);
        for (int t = 0; t < T; t++) {
            gdn_exact(&g, t);
            read_into(g.d, g.y, t, got);
            for (int i = 0; i < s.n_v_heads * s.v_dim; i++) near_to("GDN", t, got[i], g.out[i], 1e-5);
        }
        gdn_close(&g);
    }
}

/* S#28695: replay drift over long outputs. The error against the exact recurrence does not grow with the number of tokens. */
static void test_gdn_over_256k_tokens(void **state) {
    (void)state;
    enum { T = 1 << 18, STEP = 1024 };
    gdn_rig g;
    float got[2 * 4];
    gdn_open(&g, (weft_gdn_shape){.n_k_heads = 1, .n_v_heads = 2, .k_dim = 6, .v_dim = 4, .conv_kernel = 4}, 997, STEP, 1, 6);
    for (int t = 0; t < T; t++) {
        if (t % STEP == 0) gdn_step(&g, t, STEP);
        gdn_exact(&g, t);
        if (t % 1000 && t < T - 10) continue;
        read_into(g.d, g.y, t % STEP, got);
        for (int i = 0; i < 8; i++) near_to("GDN after many tokens", t, got[i], g.out[i], 1e-5);
    }
    gdn_close(&g);
}

/* ---- refusals ------------------------------------------------------------------------------------------------------------ */

static void test_refusals(void **state) {
    (void)state;
    weft_dev *d = NULL;
    weft_error e;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 1, .isa = "reference-64"}, &e), WEFT_EINVAL);
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 1, .isa = ""}, &e), WEFT_EINVAL);
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 1, .kv = "int4"}, &e), WEFT_EINVAL);
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 1, .kv = ""}, &e), WEFT_EINVAL);
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 1, .isa = "reference"}, &e), WEFT_OK);
    assert_string_equal(weft_dev_isa(d), "reference");
    weft_mat *m;
    float v[64] = {0};
    rows_of t = {v, 1, 64, WEFT_F32};
    const weft_mat_desc good = {.dtype = WEFT_F32, .experts = 1, .n = 1, .k = 64, .name = "w", .read = read_row, .ctx = &t};
    weft_mat_desc bad[7];
    for (int i = 0; i < 7; i++) bad[i] = good;
    bad[0].dtype = WEFT_I32;
    bad[1].n = 0;
    bad[2].k = 0;
    bad[3].experts = 0;
    bad[4].bits = 4, bad[4].group = 128; /* half a group */
    bad[5].n = INT64_MAX / 8;
    bad[6].k = INT64_MAX;
    for (int i = 0; i < 7; i++) assert_true(weft_mat_make(d, &bad[i], &m, &e) < 0);
    const weft_plan plans[] = {{0, 1, 0, 1, {1}},  {1, 0, 0, 1, {1}},  {1, 1, -1, 1, {1}},
                               {1, 1, 0, -1, {1}}, {1, 1, 0, 1, {-1}}, {1, 1, 0, 1, {1, -1}}};
    for (int i = 0; i < 6; i++) assert_int_equal(weft_dev_plan(d, &plans[i], &e), WEFT_EINVAL);
    weft_dev_close(d);
    weft_dev_close(NULL);
}

static int enter(void **state) {
    (void)state;
    weft_fpu_enter();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_norms_and_gates),
        cmocka_unit_test(test_linear_and_logits),
        cmocka_unit_test(test_linear_pieces),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_of_two_kinds),
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_nan_in_the_router),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_nan_in_a_later_row),
        cmocka_unit_test(test_write_from),
        cmocka_unit_test(test_gdn),
        cmocka_unit_test(test_gdn_over_256k_tokens),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, enter, NULL);
}

/* test_kernels.c: every entry of every kernel table that this processor can run, against the same thing in double arithmetic with
 * an error bound that holds for any input, and bit for bit against the other tables.
 *
 * Inputs that a kernel may read to their exact length are allocated to that length (the address sanitizer sees one float too many);
 * what must not be read is NaN; outputs stand between guards. Denormals count as zero, as in the library's workers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpu.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/tiles.h"

#define U 0x1p-24 /* half an ulp of 1: the relative error of one rounding */

/* What the elementary functions may be off by, relative to the exact value. The sweeps below measure 1.7, 2.5, 2.6
 * and, for exp of a softplus, 6.0 times 2^-24. */
#define EXP_ERROR (2.5 * U)
#define SIGMOID_ERROR (EXP_ERROR + 3 * U) /* exp, a sum, a quotient */
#define SILU_ERROR SIGMOID_ERROR

/* ---- tables, memory, numbers --------------------------------------------------------------------------------------------- */

static const weft_kernels *tables[3];
static const char *names[3];
static int n_tables;

static void add_table(const char *name, const weft_kernels *kernels, bool here) {
    if (!here) {
        print_message("skipped: the copy for %s, this processor has none\n", name);
        return;
    }
    names[n_tables] = name;
    tables[n_tables++] = kernels;
}
static void find_tables(void) {
    add_table("any processor", &weft_kernels_base, true);
#if defined(__x86_64__)
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    add_table("AVX2", &weft_kernels_v3, v3);
    add_table("AVX-512", &weft_kernels_v4,
              v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
#endif
}

static uint64_t seed = 1;
static uint32_t bits32(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32);
}
static int below(int n) {
    return (int)(bits32() % (uint32_t)n);
}
static double unit_random(void) {
    return (double)bits32() * 0x1p-31 - 1;
} /* -1 .. 1 */
static float from_bits(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}
static uint32_t to_bits(float f) {
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}

typedef enum kind { PLAIN, WIDE, TINY, SPECIAL, KINDS } kind;
/* PLAIN: about 1. WIDE: exponents -40 .. 40. TINY: denormals, zeros of both signs and numbers about the smallest normal. SPECIAL:
 * huge numbers, infinities and NaN among the others; only bits are compared then. */
static float number(kind k) {
    float x = (float)unit_random();
    switch (k) {
    case PLAIN: return x;
    case WIDE: return ldexpf(x, below(81) - 40);
    case TINY: return below(3) ? from_bits(bits32() & 0x81ffffff) : below(2) ? -0.0f : x;
    default: break;
    }
    switch (below(8)) {
    case 0: return INFINITY;
    case 1: return -INFINITY;
    case 2: return NAN;
    case 3: return FLT_MAX;
    case 4: return -FLT_MAX;
    case 5: return -0.0f;
    default: return ldexpf(x, 100);
    }
}
static double daz(float x) {
    return fabsf(x) < FLT_MIN ? 0.0 : (double)x;
}

static void *held[64];
static int n_held;
static void *hold(void *p) {
    assert_non_null(p);
    assert_true(n_held < 64);
    return held[n_held++] = p;
}
static void drop_all(void) {
    while (n_held) free(held[--n_held]);
}

/* n floats, not one more. */
static float *input(int n, kind k) {
    float *v = hold(malloc((size_t)(n ? n : 1) * sizeof *v));
    for (int i = 0; i < n; i++) v[i] = number(k);
    return v;
}
/* n floats and NaN up to `room`: they may be read, but must not count. */
static float *padded(int n, int room, kind k) {
    float *v = input(room, k);
    for (int i = n; i < room; i++) v[i] = NAN;
    return v;
}

enum { GUARD = 16 };
static const uint32_t canary = 0x7fa5a5a5; /* a NaN that no kernel computes */
static float *output(int n, const float *from) {
    float *v = hold(malloc((size_t)(n + 2 * GUARD) * sizeof *v));
    for (int i = 0; i < n + 2 * GUARD; i++) memcpy(v + i, &canary, 4);
    if (from && n) memcpy(v + GUARD, from, (size_t)n * sizeof *v);
    return v + GUARD;
}
static void guards_hold(const char *what, const float *v, int n) {
    for (int i = 1; i <= GUARD; i++)
        if (to_bits(v[-i]) != canary || to_bits(v[n + i - 1]) != canary) fail_msg("%s: wrote outside its output of %d", what, n);
}

static void same(const char *what, const float *a, const float *b, int n) {
    for (int i = 0; i < n; i++)
        if (to_bits(a[i]) != to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %d of %d is %a in one place and %a in another", what, i, n, (double)a[i], (double)b[i]);
}
/* Flushing to zero, and exp's end at -87.3, add some of the smallest normals to any error. */
static void near_to(const char *what, int i, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound + 4 * (double)FLT_MIN))
        fail_msg("%s: element %d is %.9g, not %.9g (bound %.3g)", what, i, got, want, bound);
}

static double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double ref_silu(double x) {
    return x / (1 + exp(-x));
}
/* (1 + u)^n - 1: n roundings in a row. */
static double roundings(int n) {
    return n * U / (1 - n * U);
}
/* Roundings that a term of a 16-lane sum over n goes through: product, its lane, the tree. */
static int sum_depth(int n) {
    return 1 + (n + 15) / 16 + 4;
}

#define EACH_TABLE(t) for (int t = 0; t < n_tables; t++)

/* ---- elementary functions ------------------------------------------------------------------------------------------------ */

/* exp through chunk_exp: the first score is the maximum 0, so that the others come out as exp(s). */
static void test_exp_is_accurate(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 40000; i++) {
        float s[16], sum;
        s[0] = 0;
        for (int j = 1; j < 16; j++)
            s[j] = i < 20000 ? -(float)((i * 15 + j) * (87.3 / 300000)) : -ldexpf(1 + (float)fabs(unit_random()), below(30) - 24);
        float x[16];
        memcpy(x, s, sizeof x);
        assert_true(tables[0]->chunk_exp(s, 16, 1, &sum) == 0.0f);
        for (int j = 0; j < 16; j++) {
            double want = exp((double)x[j]), off = fabs((double)s[j] - want) / want;
            if (x[j] < -87.3f)
                assert_true(s[j] == 0.0f);
            else if (off > worst)
                worst = off;
        }
    }
    print_message("exp: largest relative error %.3f * 2^-24\n", worst / U);
    assert_true(worst <= EXP_ERROR);
}

static void test_exp_at_the_ends(void **state) {
    (void)state;
    EACH_TABLE(t) {
        float s[16] = {0, -87.29f, -87.4f, -1e30f, -INFINITY, -0.0f, -1e-40f}, sum;
        assert_true(tables[t]->chunk_exp(s, 7, 1, &sum) == 0.0f);
        assert_true(s[0] == 1.0f && s[1] > FLT_MIN && s[2] == 0.0f && s[3] == 0.0f && s[4] == 0.0f && s[5] == 1.0f && s[6] == 1.0f);
        for (int i = 7; i < 16; i++) assert_true(to_bits(s[i]) == 0); /* the padding is +0 */
        near_to("sum", 0, sum, 3, 3 * U);
        float n[16] = {0, NAN, 1};
        tables[t]->chunk_exp(n, 3, 1, &sum);
        assert_true(isnan(sum) && isnan(n[1])); /* a NaN score reaches the row's result */
        float i[16] = {0, INFINITY, 1};
        tables[t]->chunk_exp(i, 3, 1, &sum);
        assert_true(isnan(sum));
    }
}

static void test_sigmoid_and_silu_are_accurate(void **state) {
    (void)state;
    double worst_sigmoid = 0, worst_silu = 0;
    for (int i = 0; i < 20000; i++) {
        float x[16], one[16], y[16];
        for (int j = 0; j < 16; j++) {
            x[j] = i < 10000 ? (float)((i * 16 + j - 80000) * (87.0 / 80000)) : ldexpf((float)unit_random(), below(34) - 28);
            one[j] = y[j] = 1;
        }
        tables[0]->gate(y, x, 16);
        for (int j = 0; j < 16; j++) worst_sigmoid = fmax(worst_sigmoid, fabs(y[j] / ref_sigmoid((double)x[j]) - 1));
        tables[0]->activate(y, x, one, 16, WEFT_SILU);
        for (int j = 0; j < 16; j++)
            if (daz(x[j]) != 0) worst_silu = fmax(worst_silu, fabs(y[j] / ref_silu((double)x[j]) - 1));
    }
    print_message("sigmoid: largest relative error %.3f * 2^-24; silu: %.3f\n", worst_sigmoid / U, worst_silu / U);
    assert_true(worst_sigmoid <= SIGMOID_ERROR && worst_silu <= SILU_ERROR);

    EACH_TABLE(t) { /* far ends: 0 and 1, and silu of a huge negative number is no large number */
        float x[16] = {-88, -89, -1e10f, -3e38f, 88, 89, 1e10f, 3e38f, -INFINITY, INFINITY, NAN}, y[16], one[16];
        for (int i = 0; i < 16; i++) y[i] = one[i] = 1;
        tables[t]->gate(y, x, 11);
        for (int i = 0; i < 4; i++) assert_true(y[i] >= 0 && y[i] < 1e-37f && y[i + 4] == 1);
        assert_true(y[8] == 0 && y[9] == 1 && isnan(y[10]));
        tables[t]->activate(y, x, one, 11, WEFT_SILU);
        for (int i = 0; i < 4; i++) assert_true(y[i] <= 0 && y[i] > -1e-35f && y[i + 4] == x[i + 4]);
        assert_true(isnan(y[10]));
    }
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

typedef struct stored { /* rows as a file holds them */
    const uint8_t *values, *scales, *biases;
    size_t value_bytes, group_bytes; /* of a row */
    int64_t n;
} stored;
static weft_status read_stored(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    (void)e;
    const stored *s = ctx;
    size_t at = (size_t)(expert * s->n + row);
    memcpy(values, s->values + at * s->value_bytes, s->value_bytes);
    if (s->group_bytes) {
        memcpy(scale, s->scales + at * s->group_bytes, s->group_bytes);
        memcpy(bias, s->biases + at * s->group_bytes, s->group_bytes);
    }
    return WEFT_OK;
}
static uint8_t *random_bytes(size_t n) {
    uint8_t *p = hold(malloc(n ? n : 1));
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)bits32();
    return p;
}
static weft_dev *open_dev(void) {
    weft_dev *d = NULL;
    weft_error e;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 1}, &e), WEFT_OK);
    return d;
}

/* Every code of F16 and BF16, any bits of F32, panels that are not full: unpacked is weft_to_f32, bit for bit. Denormals keep their
 * bits (BF16, F32) or are normal in float32 (F16); NaN payloads stay, too. */
static void test_unpack_plain(void **state) {
    (void)state;
    static const weft_dtype types[] = {WEFT_F16, WEFT_BF16, WEFT_F32};
    for (int i = 0; i < 3; i++)
        for (int k = 1; k <= 1024; k = k < 70 ? k + 1 : k < 130 ? k + 30 : 1024 - (k == 1024 ? -1 : 0)) {
            int64_t n = k == 1024 ? 64 : 1 + k % 19, experts = k == 1024 ? 1 : 2;
            size_t size = weft_dtype_size(types[i]), row_bytes = (size_t)k * size;
            uint8_t *values = random_bytes((size_t)(n * experts) * row_bytes);
            if (k == 1024 && size == 2)
                for (uint32_t c = 0; c < 65536; c++) memcpy(values + c * 2, &(uint16_t){(uint16_t)c}, 2);
            weft_dev *d = open_dev();
            weft_mat *m;
            weft_error e;
            stored s = {.values = values, .value_bytes = row_bytes, .n = n};
            weft_mat_desc desc = {
                .dtype = types[i], .experts = experts, .n = n, .k = k, .name = "w", .read = read_stored, .ctx = &s};
            assert_int_equal(weft_mat_make(d, &desc, &m, &e), WEFT_OK);
            float *want = hold(calloc((size_t)ROUND16(k), sizeof *want)), *got = output(ROUND16(k), NULL);
            for (int64_t r = 0; r < n * experts; r++) {
                weft_to_f32(want, types[i], values + (size_t)r * row_bytes, (size_t)k);
                EACH_TABLE(t) {
                    tables[t]->unpack(got, m, r);
                    guards_hold("unpack", got, ROUND16(k));
                    for (int c = 0; c < ROUND16(k); c++)
                        if (to_bits(got[c]) != to_bits(want[c]))
                            fail_msg("%s %s: row %d column %d of %d: %08x, not %08x", names[t], weft_dtype_name(types[i]), (int)r,
                                     c, k, to_bits(got[c]), to_bits(want[c]));
                }
            }
            weft_dev_close(d);
            drop_all();
        }
}

/* Affine: the product scale * code is rounded, then the sum with the bias. */
static void test_unpack_affine(void **state) {
    (void)state;
    static const int widths[] = {2, 3, 4, 5, 6, 8}, group_sizes[] = {32, 64, 128};
    static const weft_dtype types[] = {WEFT_F16, WEFT_BF16, WEFT_F32};
    for (int i = 0; i < 6 * 3 * 3 * 3; i++) {
        int bits = widths[i % 6], group = group_sizes[i / 6 % 3], k = group * (1 + i / 54 % 3 + below(4));
        weft_dtype type = types[i / 18 % 3];
        int64_t n = 1 + below(40), experts = 1 + below(3);
        int groups = k / group, rows = (int)(n * experts);
        size_t size = weft_dtype_size(type);
        uint8_t *codes = random_bytes((size_t)(rows * k));
        for (int c = 0; c < rows * k; c++) codes[c] &= (uint8_t)((1 << bits) - 1);
        uint8_t *scales = random_bytes((size_t)(rows * groups) * size), *biases = random_bytes((size_t)(rows * groups) * size);
        for (int g = 0; g < rows * groups; g++) { /* any finite number: tiny, negative and denormal scales, too */
            uint8_t *top = scales + (size_t)g * size + size - 1, *top2 = biases + (size_t)g * size + size - 1;
            if (type == WEFT_F16 ? (*top & 0x7c) == 0x7c : (*top & 0x7f) >= 0x70) *top &= 0x8f;
            if (type == WEFT_F16 ? (*top2 & 0x7c) == 0x7c : (*top2 & 0x7f) >= 0x70) *top2 &= 0x8f;
        }
        weft_dev *d = open_dev();
        weft_mat *m;
        weft_error e;
        stored s = {codes, scales, biases, (size_t)k, (size_t)groups * size, n};
        weft_mat_desc desc = {.dtype = type,
                              .bits = bits,
                              .group = group,
                              .experts = experts,
                              .n = n,
                              .k = k,
                              .name = "w",
                              .read = read_stored,
                              .ctx = &s};
        assert_int_equal(weft_mat_make(d, &desc, &m, &e), WEFT_OK);
        float *got = output(k, NULL);
        for (int r = 0; r < rows; r++) EACH_TABLE(t) {
                tables[t]->unpack(got, m, r);
                guards_hold("unpack", got, k);
                for (int c = 0; c < k; c++) {
                    float scale, bias;
                    weft_to_f32(&scale, type, scales + (size_t)(r * groups + c / group) * size, 1);
                    weft_to_f32(&bias, type, biases + (size_t)(r * groups + c / group) * size, 1);
                    float product = scale * (float)codes[r * k + c], want = product + bias;
                    if (to_bits(got[c]) != to_bits(want) && !(isnan(got[c]) && isnan(want)))
                        fail_msg("%s, %d bits, group %d: row %d column %d of %d: %a, not %a", names[t], bits, group, r, c, k,
                                 (double)got[c], (double)want);
                }
            }
        for (int64_t p = 0; p < experts * panel_count(m);
             p++) { /* the same, 16 rows at a time; what fills up the last panel is 0 */
            float *panel = output(k * LANES, NULL);
            EACH_TABLE(t) {
                tables[t]->unpack_panel(panel, m, p);
                guards_hold("unpack_panel", panel, k * LANES);
                for (int o = 0; o < LANES; o++) {
                    int64_t row = p % panel_count(m) * LANES + o;
                    if (row < n) tables[0]->unpack(got, m, p / panel_count(m) * n + row);
                    for (int c = 0; c < k; c++)
                        if (row < n)
                            same("unpack_panel and unpack", panel + c * LANES + o, got + c, 1);
                        else
                            assert_true(panel[c * LANES + o] == 0);
                }
            }
            free(held[--n_held]);
        }
        weft_dev_close(d);
        drop_all();
    }
}

/* L#23335 and its kind: kernels by batch size. A row's product is the same alone and among 1..64 rows. */
static void test_dot(void **state) {
    (void)state;
    for (int round = 0; round < 120; round++) {
        kind kd = round < 96 ? (kind)(round % 3) : SPECIAL;
        int rows = round < 64 ? round + 1 : 1 + below(9), k = 16 * (1 + below(round % 8 ? 8 : 30)), outs = 1 + below(17);
        int ldw = k + 16 * below(2), ldy = outs + below(3);
        float *w = input(outs * ldw, kd), *xs = input(rows * (k + 1), kd); /* k + 1: rows at odd addresses */
        for (int o = 0; o < outs; o++)
            for (int i = k; i < ldw; i++) w[o * ldw + i] = NAN;
        const float *x[64];
        for (int r = 0; r < rows; r++) {
            x[r] = xs + (size_t)r * (size_t)(k + 1);
            xs[(size_t)r * (size_t)(k + 1) + (size_t)k] = NAN;
        }
        float *first = NULL;
        EACH_TABLE(t) {
            float *y = output(rows * ldy, NULL), one[17];
            tables[t]->dot(y, (size_t)ldy, x, rows, w, (size_t)ldw, outs, k);
            guards_hold("dot", y, rows * ldy);
            for (int r = 0; r < rows; r++) {
                for (int o = outs; o < ldy; o++) assert_true(to_bits(y[r * ldy + o]) == canary);
                tables[t]->dot(one, 17, x + r, 1, w, (size_t)ldw, outs, k);
                same("dot alone and in company", one, y + r * ldy, outs);
                if (first) same("dot of two tables", first + r * ldy, y + r * ldy, outs);
            }
            if (!first) first = y;
        }
        for (int r = 0; r < rows && kd != SPECIAL; r++)
            for (int o = 0; o < outs; o++) {
                double want = 0, size = 0;
                for (int i = 0; i < k; i++) {
                    double p = daz(x[r][i]) * daz(w[o * ldw + i]);
                    want += p;
                    size += fabs(p);
                }
                near_to("dot", o, first[r * ldy + o], want, roundings(sum_depth(k)) * size + 2 * k * FLT_MIN);
            }
        drop_all();
    }
}

/* The written arithmetic, operation by operation: a sum is 16 lanes and a tree, nothing is fused. Were it changed, all tables would
 * change alike, and with them every result. */
static float tree(const float *lane) {
    float a[8], c[4];
    for (int i = 0; i < 8; i++) a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++) c[i] = a[i] + a[i + 4];
    return (c[0] + c[2]) + (c[1] + c[3]);
}
static void test_the_written_order(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        int k = 16 * (1 + round);
        float *x = input(k, PLAIN), *w = input(k, PLAIN), lane[16] = {0};
        for (int i = 0; i < k; i++) {
            float p = x[i] * w[i];
            lane[i % 16] = lane[i % 16] + p;
        }
        EACH_TABLE(t) {
            float y, total, sums[16] = {0};
            tables[t]->dot(&y, 1, (const float *const *)&x, 1, w, (size_t)k, 1, k);
            assert_true(y == tree(lane));
            float *e = output(k, x);
            tables[t]->chunk_exp(e, k, 1, &total);
            for (int i = 0; i < k; i++) sums[i % 16] = sums[i % 16] + e[i];
            assert_true(total == tree(sums));
        }
        drop_all();
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

static void test_norm(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        kind kd = (kind)(round % KINDS);
        int width = 1 + below(round % 2 ? 70 : 260), n = width * (1 + below(3)), gated = below(2), in_place = below(2);
        float eps = below(2) ? 1e-6f : 1e-5f, *x = input(n, kd), *z = input(n, PLAIN), *gain = padded(width, ROUND16(width), PLAIN),
              *first = NULL;
        for (int i = 0; i < n; i++) z[i] *= 20;
        EACH_TABLE(t) {
            float *y = output(n, in_place ? x : NULL);
            tables[t]->norm(y, in_place ? y : x, gated ? z : NULL, gain, n, width, eps);
            guards_hold("norm", y, n);
            if (first) same("norm of two tables", first, y, n);
            if (!first) first = y;
        }
        if (kd != SPECIAL)
            for (int g = 0; g < n; g += width) {
                double squares = 0;
                for (int i = 0; i < width; i++) squares += daz(x[g + i]) * daz(x[g + i]);
                double r = 1 / sqrt(squares / width + (double)eps);
                double bound = roundings(sum_depth(width)) / 2 + 6 * U + width * (double)FLT_MIN / (double)eps;
                for (int i = 0; i < width; i++) {
                    double want = daz(x[g + i]) * r * daz(gain[i]);
                    if (gated) want *= ref_silu(daz(z[g + i]));
                    near_to("norm", i, first[g + i], want,
                            fabs(want) * (bound + (gated ? SILU_ERROR + U : 0)) + 40 * (double)FLT_MIN);
                }
            }
        drop_all();
    }
}

static void test_sums_and_gates(void **state) {
    (void)state;
    for (int round = 0; round < 280; round++) {
        kind kd = (kind)(round % KINDS);
        int n = 1 + round % 70;
        float *y0 = input(n, kd), *x = input(n, kd), *g = input(n, kd == WIDE ? PLAIN : kd), a = number(PLAIN), *first[5] = {0};
        if (kd == PLAIN)
            for (int i = 0; i < n; i++) g[i] *= 30;
        EACH_TABLE(t) {
            float *y[5];
            for (int i = 0; i < 5; i++) y[i] = output(n, y0);
            tables[t]->add(y[0], x, n);
            tables[t]->add_scaled(y[1], x, a, n);
            tables[t]->activate(y[2], below(2) ? g : memcpy(y[2], g, (size_t)n * sizeof *g), x, n, WEFT_SILU); /* y may be gate */
            tables[t]->gate(y[3], g, n);
            tables[t]->scale_sigmoid(y[4], g[0], n);
            for (int i = 0; i < 5; i++) {
                guards_hold("elementwise", y[i], n);
                if (first[i]) same("elementwise, two tables", first[i], y[i], n);
                if (!first[i]) first[i] = y[i];
            }
        }
        for (int i = 0; i < n && kd != SPECIAL; i++) {
            double yi = daz(y0[i]), xi = daz(x[i]), gi = daz(g[i]), s = ref_sigmoid(gi), s0 = ref_sigmoid(daz(g[0]));
            near_to("add", i, first[0][i], yi + xi, U * fabs(yi + xi));
            near_to("add_scaled", i, first[1][i], yi + (double)a * xi,
                    U * fabs(yi + (double)a * xi) + 1.01 * U * fabs((double)a * xi));
            near_to("glu", i, first[2][i], ref_silu(gi) * xi, (SILU_ERROR + U) * fabs(ref_silu(gi) * xi));
            near_to("gate", i, first[3][i], yi * s, (SIGMOID_ERROR + U) * fabs(yi * s));
            near_to("scale_sigmoid", i, first[4][i], yi * s0, (SIGMOID_ERROR + U) * fabs(yi * s0));
        }
        drop_all();
    }
}

static void test_rotate(void **state) {
    (void)state;
    for (int round = 0; round < 280; round++) {
        kind kd = (kind)(round % KINDS);
        int n = 1 + below(round % 2 ? 9 : 64);
        float *x = input(2 * n, kd), *c = input(n, PLAIN), *s = input(n, PLAIN), *first = NULL;
        EACH_TABLE(t) {
            float *y = output(2 * n, x);
            tables[t]->rotate(y, c, s, n);
            guards_hold("rotate", y, 2 * n);
            if (first) same("rotate of two tables", first, y, 2 * n);
            if (!first) first = y;
        }
        for (int i = 0; i < n && kd != SPECIAL; i++) {
            double a = daz(x[i]), b = daz(x[i + n]), ci = daz(c[i]), si = daz(s[i]);
            near_to("rotate", i, first[i], a * ci - b * si, 2.01 * U * (fabs(a * ci) + fabs(b * si)));
            near_to("rotate", i + n, first[i + n], b * ci + a * si, 2.01 * U * (fabs(b * ci) + fabs(a * si)));
        }
        drop_all();
    }
}

/* ---- attention ----------------------------------------------------------------------------------------------------------- */

static void test_chunk_exp(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        int n = 1 + (round < 140 ? round % 70 : below(512));
        float *x = padded(n, ROUND16(n), PLAIN), *first = NULL, first_max = 0, first_sum = 0, spread = below(2) ? 8 : 60;
        float scale = below(4) ? 0.1f + fabsf(number(PLAIN)) : 1;
        for (int i = 0; i < n; i++) x[i] = below(8) ? x[i] * spread : below(2) ? -INFINITY : -0.0f;
        x[below(n)] = (float)unit_random() * spread;
        EACH_TABLE(t) {
            float *p = output(ROUND16(n), x), sum, max = tables[t]->chunk_exp(p, n, scale, &sum);
            guards_hold("chunk_exp", p, ROUND16(n));
            for (int i = n; i < ROUND16(n); i++) assert_true(to_bits(p[i]) == 0);
            if (first) {
                same("chunk_exp of two tables", first, p, n);
                same("maxima", &first_max, &max, 1);
                same("sums", &first_sum, &sum, 1);
            } else
                first = p, first_max = max, first_sum = sum;
        }
        float top = -INFINITY;
        for (int i = 0; i < n; i++) {
            x[i] *= scale;
            top = x[i] > top ? x[i] : top;
        }
        assert_true(first_max == top);
        double total = 0, total_error = 0;
        for (int i = 0; i < n; i++) { /* the difference is rounded before exp: its error grows with the distance */
            double e = exp((double)x[i] - (double)top),
                   error = isinf(x[i]) ? 0 : e * (EXP_ERROR + U * ((double)top - (double)x[i]) * 1.01);
            near_to("chunk_exp", i, first[i], e, error);
            total += e;
            total_error += error + 4 * (double)FLT_MIN;
        }
        near_to("sum", 0, first_sum, total, total_error + roundings((n + 15) / 16 + 4) * total);
        drop_all();
    }
}

static void test_softmax(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        int n = 1 + (round < 140 ? round % 70 : below(512));
        float *x = padded(n, ROUND16(n), PLAIN), *first = NULL;
        for (int i = 0; i < n; i++) x[i] *= 20;
        EACH_TABLE(t) {
            float *p = output(ROUND16(n), x);
            tables[t]->softmax(p, n);
            guards_hold("softmax", p, ROUND16(n));
            if (first) same("softmax of two tables", first, p, n);
            if (!first) first = p;
        }
        double top = -INFINITY, total = 0;
        for (int i = 0; i < n; i++) top = fmax(top, (double)x[i]);
        for (int i = 0; i < n; i++) total += exp((double)x[i] - top);
        for (int i = 0; i < n; i++) {
            double want = exp((double)x[i] - top) / total, error = EXP_ERROR + 40 * U * 1.01; /* of each exponential */
            near_to("softmax", i, first[i], want, want * (2.02 * error + roundings((n + 15) / 16 + 5)));
        }
        drop_all();
    }
}

/* A row's weighted values are the same alone and beside others, at once and key by key: pages may be cut anywhere. */
static void test_values(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        kind kd = (kind)(round % KINDS);
        int ld = 16 * (1 + round % 16), keys = 1 + below(64), rows = 1 + below(9), ldo = ld + 16 * below(2), ldp = keys + below(5);
        float *o0 = input(rows * ldo, kd), *p = input(rows * ldp, PLAIN), *v = input(keys * ld, kd), *first = NULL;
        for (int r = 0; r < rows; r++) {
            for (int i = ld; i < ldo; i++) memcpy(o0 + r * ldo + i, &canary, 4);
            for (int j = 0; j < ldp; j++) p[r * ldp + j] = j >= keys ? NAN : below(4) ? fabsf(p[r * ldp + j]) : 0;
        }
        EACH_TABLE(t) {
            float *o = output(rows * ldo, o0);
            tables[t]->values(o, (size_t)ldo, p, (size_t)ldp, rows, v, keys, ld);
            guards_hold("values", o, rows * ldo);
            for (int r = 0; r < rows; r++) {
                float *alone = output(ld, o0 + r * ldo);
                for (int j = 0; j < keys; j++) tables[t]->values(alone, 0, p + r * ldp + j, 0, 1, v + j * ld, 1, ld);
                same("values of a row", alone, o + r * ldo, ld);
                for (int i = ld; i < ldo; i++) assert_true(to_bits(o[r * ldo + i]) == canary);
            }
            if (first) same("values of two tables", first, o, rows * ldo);
            if (!first) first = o;
        }
        for (int r = 0; r < rows && kd != SPECIAL; r++)
            for (int i = 0; i < ld; i++) {
                double want = daz(o0[r * ldo + i]), size = fabs(want);
                for (int j = 0; j < keys; j++) {
                    want += (double)p[r * ldp + j] * daz(v[j * ld + i]);
                    size += (double)p[r * ldp + j] * fabs(daz(v[j * ld + i]));
                }
                near_to("values", i, first[r * ldo + i], want, roundings(keys + 1) * size + 2 * keys * (double)FLT_MIN);
            }
        drop_all();
    }
}

static void test_merge(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        int ld = 16 * (1 + round % 16), empty = round % 5 == 0;
        float *o0 = input(ld, PLAIN), *co = input(ld, PLAIN), m0 = 30 * number(PLAIN), cm = 30 * number(PLAIN),
              l0 = empty ? 0 : 1 + fabsf(number(PLAIN));
        float cl = 1 + fabsf(number(PLAIN)), *first = NULL, first_ml[2] = {0};
        if (round % 7 == 0) cm = m0;
        if (round % 11 == 0) cm = m0 + 200; /* the old chunks vanish */
        EACH_TABLE(t) {
            float *o = output(ld, o0), ml[2] = {m0, l0};
            tables[t]->merge(&ml[0], &ml[1], o, cm, cl, co, ld);
            guards_hold("merge", o, ld);
            if (first) {
                same("merge of two tables", first, o, ld);
                same("merge of two tables", first_ml, ml, 2);
            } else
                first = o, memcpy(first_ml, ml, sizeof ml);
        }
        if (empty) {
            same("the first chunk is taken over", first, co, ld);
            assert_true(first_ml[0] == cm && first_ml[1] == cl);
        } else {
            double top = m0 > cm ? (double)m0 : (double)cm, a = exp((double)m0 - top), b = exp((double)cm - top);
            double ea = a * (EXP_ERROR + U * (top - (double)m0) + 2.1 * U), eb = b * (EXP_ERROR + U * (top - (double)cm) + 2.1 * U);
            assert_true((double)first_ml[0] == top);
            near_to("merge l", 0, first_ml[1], (double)l0 * a + (double)cl * b, (double)l0 * ea + (double)cl * eb);
            for (int i = 0; i < ld; i++)
                near_to("merge o", i, first[i], (double)o0[i] * a + (double)co[i] * b,
                        fabs((double)o0[i]) * ea + fabs((double)co[i]) * eb);
        }
        drop_all();
    }
}

/* ---- the choice ---------------------------------------------------------------------------------------------------------- */

/* auto is the best that runs here; a name that cannot be had is refused with the reason: a slip of the pen, another processor,
 * another build. */
static void test_choosing(void **state) {
    (void)state;
    const weft_isa *isa = NULL, *best = NULL, *again = NULL;
    weft_error e;
    assert_int_equal(weft_isa_choose(&best, NULL, &e), WEFT_OK);
    assert_int_equal(weft_isa_choose(&again, "auto", &e), WEFT_OK);
    assert_ptr_equal(best, again);
    bool found = false;
    int count = 0;
    for (; weft_isas[count]; count++) {
        const weft_isa *one = weft_isas[count];
        for (int i = 0; i < count; i++) assert_string_not_equal(one->name, weft_isas[i]->name);
        assert_true(one->kernels->unpack && one->gdn->tokens && one->linear->quantize && one->linear->affine && one->linear->plain);
        weft_status s = weft_isa_choose(&isa, one->name, &e);
        if (weft_isa_here(one)) {
            assert_int_equal(s, WEFT_OK);
            assert_ptr_equal(isa, one);
            assert_true(found || one == best); /* best first */
            found = true;
        } else {
            assert_int_equal(s, WEFT_ESUPPORT);
            assert_non_null(strstr(e.text, "this processor cannot run"));
            assert_non_null(strstr(e.text, one->name));
        }
    }
    assert_string_equal(weft_isas[count - 1]->name, "reference"); /* always there */
    assert_true(weft_isa_here(weft_isas[count - 1]));
#if defined(__x86_64__)
    const char *other = "neon";
#else
    const char *other = "avx2";
#endif
    assert_int_equal(weft_isa_choose(&isa, other, &e), WEFT_ESUPPORT);
    assert_non_null(strstr(e.text, "there are no kernels"));
    assert_non_null(strstr(e.text, other));
    static const char *const unknown[] = {"", "avx9", "AVX2", "reference-128", "auto|reference", " avx2", "avx2 "};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(weft_isa_choose(&isa, unknown[i], &e), WEFT_EINVAL);
        assert_non_null(strstr(e.text, "unknown kernels"));
        assert_non_null(strstr(e.text, "reference")); /* which there are */
    }
}

static int enter(void **state) {
    (void)state;
    find_tables();
    weft_fpu_enter();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_is_accurate),
        cmocka_unit_test(test_exp_at_the_ends),
        cmocka_unit_test(test_sigmoid_and_silu_are_accurate),
        cmocka_unit_test(test_unpack_plain),
        cmocka_unit_test(test_unpack_affine),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_the_written_order),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_sums_and_gates),
        cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_chunk_exp),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_choosing),
    };
    return cmocka_run_group_tests(tests, enter, NULL);
}

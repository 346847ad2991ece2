/* test_gdn.c: the Gated DeltaNet: its kernels in every table that this processor can run, and the operator around them.
 *
 * Kernels: bit for bit against each other, against the written arithmetic, and against double with a bound that holds for any
 * input. Inputs are allocated to their exact length (the address sanitizer sees one float too many), outputs stand between guards.
 * The operator: a sequence may be cut into passes, drafted, dropped, replayed, snapshot, restored and spread over threads in any
 * way, and its outputs and slots are those of one row at a time. Denormals count as zero, as in the library's workers. */
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

#define U 0x1p-24 /* half an ulp of 1: the relative error of one rounding */
#define C GDN_COLUMNS

/* What silu, exp and softplus may be off by, relative to the exact value, and the decay at exponent -1. */
#define SILU_ERROR (5 * U)
#define SIGMOID_ERROR (5.5 * U)
#define EXP_ERROR (2.5 * U)
#define SOFTPLUS_ERROR (12 * U)

/* ---- tables, memory, numbers ---------------------------------------------------------------------------------------------- */

static const weft_isa *isas[8];
static const weft_gdn_kernels *tables[8];
static int n_tables;

/* The reference first. Instruction sets may share a table. */
static void find_tables(void) {
    int n = 0;
    while (weft_isas[n]) n++;
    while (n--) {
        if (!weft_isa_here(weft_isas[n])) {
            print_message("skipped: %s, this processor has none\n", weft_isas[n]->name);
            continue;
        }
        isas[n_tables] = weft_isas[n];
        tables[n_tables++] = weft_isas[n]->gdn;
    }
}
#define EACH_TABLE(t) for (int t = 0; t < n_tables; t++)

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
static uint32_t to_bits(float f) {
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}
static float from_bits(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}

typedef enum kind { PLAIN, WIDE, TINY, SPECIAL, KINDS } kind;
/* PLAIN: about 1. WIDE: exponents -40 .. 40. TINY: denormals, zeros of both signs, numbers about the smallest normal. SPECIAL:
 * huge numbers, infinities and NaN among the others; only bits are compared then. */
static float number(kind k) {
    static const float special[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, -0.0f};
    float x = (float)unit_random();
    switch (k) {
    case PLAIN: return x;
    case WIDE: return ldexpf(x, below(81) - 40);
    case TINY: return below(3) ? from_bits(bits32() & 0x81ffffff) : below(2) ? -0.0f : x;
    default: {
        int i = below(9);
        return i < 6 ? special[i] : ldexpf(x, 100);
    }
    }
}
static double daz(float x) {
    return fabsf(x) < FLT_MIN ? 0.0 : (double)x;
}

static void *held[128];
static int n_held;
static void *hold(void *p) {
    assert_non_null(p);
    assert_true(n_held < 128);
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
/* Rows of n floats with zeros up to ld. */
static float *zero_padded(int rows, int n, int ld, kind k) {
    float *v = input(rows * ld, k);
    for (int i = 0; i < rows * ld; i++)
        if (i % ld >= n) v[i] = 0;
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
static bool untouched(float x) {
    return to_bits(x) == canary;
}
static void guards_hold(const char *what, const float *v, int n) {
    for (int i = 1; i <= GUARD; i++)
        if (!untouched(v[-i]) || !untouched(v[n + i - 1])) fail_msg("%s: wrote outside its output of %d", what, n);
}
static void same(const char *what, const float *a, const float *b, int n) {
    for (int i = 0; i < n; i++)
        if (to_bits(a[i]) != to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %d of %d is %a in one place and %a in another", what, i, n, (double)a[i], (double)b[i]);
}
/* Flushing to zero adds some of the smallest normals to any error. */
static void near_to(const char *what, int i, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound + 4 * (double)FLT_MIN))
        fail_msg("%s: element %d is %.9g, not %.9g (bound %.3g)", what, i, got, want, bound);
}
/* (1 + u)^n - 1: n roundings in a row. */
static double roundings(int n) {
    return n * U / (1 - n * U);
}
static double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double ref_silu(double x) {
    return x / (1 + exp(-x));
}

static weft_gdn_ahead nothing_ahead(const void *p) {
    return (weft_gdn_ahead){p, 0};
}

/* ---- convolution, norms, gates -------------------------------------------------------------------------------------------- */

/* silu through a convolution of one tap that is 1. */
static void silu_of(int t, float *y, const float *x) {
    static const float one[LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    tables[t]->conv(y, LANES, &x, 0, 1, 1, one, LANES, LANES, LANES);
}
static void test_silu(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 20000; i++) {
        float x[LANES], y[LANES], other[LANES];
        for (int j = 0; j < LANES; j++)
            x[j] = i < 10000 ? (float)((i * LANES + j - 80000) * (87.0 / 80000)) : ldexpf((float)unit_random(), below(34) - 28);
        silu_of(0, y, x);
        for (int t = 1; t < n_tables; t++) {
            silu_of(t, other, x);
            same("silu of two tables", y, other, LANES);
        }
        for (int j = 0; j < LANES; j++)
            if (daz(x[j]) != 0) worst = fmax(worst, fabs(y[j] / ref_silu((double)x[j]) - 1));
    }
    print_message("silu: largest relative error %.3f * 2^-24\n", worst / U);
    assert_true(worst <= SILU_ERROR);
    EACH_TABLE(t) { /* far ends */
        float x[LANES] = {-88, -89, -1e10f, -3e38f, 88, 89, 1e10f, 3e38f, -INFINITY, INFINITY, NAN}, y[LANES];
        silu_of(t, y, x);
        for (int i = 0; i < 4; i++) assert_true(y[i] <= 0 && y[i] > -1e-35f && y[i + 4] == x[i + 4]);
        assert_true(y[8] <= 0 && y[8] > -1e-35f && isinf(y[9]) && isnan(y[10]));
    }
}

static void test_conv(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        kind kd = (kind)(round % KINDS);
        int taps = 1 + round % 8, n = 1 + below(100), room = (n + 15) / 16 * 16 + 16 * below(2), rows = 1 + below(4), at = below(9);
        int ldw = n + below(9), ldy = room + below(7);
        float *w = input((taps - 1) * ldw + n, PLAIN), *first = NULL;
        const float *raw[12];
        for (int i = 0; i < rows + taps - 1; i++) raw[i] = input(at + n, kd);
        EACH_TABLE(t) {
            float *y = output(rows * ldy, NULL);
            tables[t]->conv(y, (size_t)ldy, raw, (size_t)at, rows, taps, w, (size_t)ldw, n, room);
            guards_hold("conv", y, rows * ldy);
            for (int i = 0; i < rows * ldy; i++)
                assert_true(i % ldy < n || (i % ldy < room ? to_bits(y[i]) == 0 : untouched(y[i])));
            if (!first) first = y;
            for (int r = 0; r < rows; r++) same("conv of two tables", first + r * ldy, y + r * ldy, room);
        }
        for (int i = 0; i < rows * n && kd != SPECIAL; i++) {
            int r = i / n, c = i % n;
            double x = 0, size = 0;
            for (int tap = 0; tap < taps; tap++) {
                double p = daz(raw[r + tap][at + c]) * daz(w[tap * ldw + c]);
                x += p;
                size += fabs(p);
            }
            double error = roundings(taps) * size + 2 * taps * FLT_MIN, want = ref_silu(x); /* silu's slope is below 1.1 */
            near_to("conv", c, first[r * ldy + c], want, 1.1 * error + SILU_ERROR * (fabs(want) + 1.1 * error));
        }
        drop_all();
    }
}

static void test_unit(void **state) {
    (void)state;
    for (int round = 0; round < 280; round++) {
        kind kd = (kind)(round % KINDS);
        int n = 1 + below(round % 2 ? 20 : 260), ld = ROUND16(n), rows = 1 + below(3);
        float *q0 = zero_padded(rows, n, ld, kd), *k0 = zero_padded(rows, n, ld, round % 7 ? kd : PLAIN), *first[3] = {0};
        EACH_TABLE(t) {
            float *q = output(rows * ld, q0), *k = output(rows * ld, k0), *qk = output(rows, NULL);
            tables[t]->unit(q, k, (size_t)ld, qk, rows, n);
            guards_hold("q", q, rows * ld);
            guards_hold("k", k, rows * ld);
            guards_hold("q k", qk, rows);
            if (!first[0]) first[0] = q, first[1] = k, first[2] = qk;
            for (int r = 0; r < rows; r++) {
                same("q of two tables", first[0] + r * ld, q + r * ld, n);
                same("k of two tables", first[1] + r * ld, k + r * ld, n);
            }
            same("q k of two tables", first[2], qk, rows);
        }
        int depth = 1 + (n + 15) / 16 + 4;
        for (int r = 0; r < rows && kd != SPECIAL; r++) {
            double qq = 1e-6, kk = 1e-6, qk = 0, size = 0, tiny = n * (double)FLT_MIN / 1e-6;
            for (int i = 0; i < n; i++) {
                double x = daz(q0[r * ld + i]), z = daz(k0[r * ld + i]);
                qq += x * x, kk += z * z, qk += x * z, size += fabs(x * z);
            }
            double by_q = 1 / sqrt(qq) / sqrt(n), by_k = 1 / sqrt(kk), error = roundings(depth) / 2 + 6 * U + tiny;
            for (int i = 0; i < n; i++) {
                near_to("q", i, first[0][r * ld + i], daz(q0[r * ld + i]) * by_q, fabs(daz(q0[r * ld + i])) * by_q * error);
                near_to("k", i, first[1][r * ld + i], daz(k0[r * ld + i]) * by_k, fabs(daz(k0[r * ld + i])) * by_k * error);
            }
            near_to("q k", r, first[2][r], qk * by_q * by_k, (size * (3 * error + roundings(depth)) + n * FLT_MIN) * by_q * by_k);
        }
        drop_all();
    }
}

/* Decay -1 / softplus(alpha) gives exp(-1): an error of softplus is an equal one of the decay. */
static void test_gates_are_accurate(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 160000; i++) {
        float x = (float)((i - 80000) * (80.0 / 80000)), a, b;
        double softplus = log1p(exp((double)x));
        tables[0]->gates(&a, &b, &x, 1, &x, 1, (float)(-1 / softplus), 0, 1);
        worst = fmax(worst, fabs(a / exp((double)(float)(-1 / softplus) * softplus) - 1));
        near_to("beta", 0, b, ref_sigmoid((double)x), SIGMOID_ERROR * ref_sigmoid((double)x));
    }
    print_message("exp(decay softplus): largest relative error at exponent -1 %.3f * 2^-24\n", worst / U);
    assert_true(worst <= SOFTPLUS_ERROR + U + EXP_ERROR);
}
static void test_gates(void **state) {
    (void)state;
    for (int round = 0; round < 280; round++) {
        kind kd = (kind)(round % KINDS);
        int rows = 1 + round % 70, ld_a = 1 + below(5), ld_b = 1 + below(5);
        float *alpha = input((rows - 1) * ld_a + 1, kd), *beta = input((rows - 1) * ld_b + 1, kd), *first[2] = {0};
        float decay = -expf(2 * number(PLAIN)), dt = number(PLAIN);
        for (int i = 0; kd == PLAIN && i < rows; i++) alpha[i * ld_a] *= 30, beta[i * ld_b] *= 30;
        EACH_TABLE(t) {
            float *a = output(rows, NULL), *b = output(rows, NULL);
            tables[t]->gates(a, b, alpha, (size_t)ld_a, beta, (size_t)ld_b, decay, dt, rows);
            guards_hold("decays", a, rows);
            guards_hold("betas", b, rows);
            if (!first[0]) first[0] = a, first[1] = b;
            same("decays of two tables", first[0], a, rows);
            same("betas of two tables", first[1], b, rows);
        }
        for (int i = 0; i < rows && kd != SPECIAL; i++) {
            float x = (float)(daz(alpha[i * ld_a]) + (double)dt); /* rounded: what softplus is given */
            double sp = x > 40 ? (double)x : log1p(exp((double)x)), z = (double)decay * sp, a = exp(z),
                   b = ref_sigmoid(daz(beta[i * ld_b]));
            assert_true(first[0][i] >= 0 && first[0][i] <= 1);
            near_to("decay", i, first[0][i], a, a * 1.01 * (fabs(z) * (SOFTPLUS_ERROR + U) + EXP_ERROR));
            near_to("beta", i, first[1][i], b, b * SIGMOID_ERROR);
        }
        drop_all();
    }
}

/* ---- the recurrence ------------------------------------------------------------------------------------------------------- */

/* Some tokens over a block of columns, and updates that wait before them. */
typedef struct block {
    int waits;
    weft_gdn_update u[GDN_WAITS];
    float *s0; /* [k_dim][C] */
    weft_gdn_tokens t;
} block;
static block random_block(int k_dim, int rows, int waits, kind kd) {
    int ld_key = k_dim + below(9), ld_v = C + below(5);
    block b = {.waits = waits, .s0 = input(k_dim * C, kd)};
    for (int i = 0; i < waits; i++)
        b.u[i] = (weft_gdn_update){fabsf(number(PLAIN)), input(k_dim, PLAIN), input(C, kd == SPECIAL ? SPECIAL : PLAIN)};
    b.t = (weft_gdn_tokens){.rows = rows, .k_dim = k_dim, .cols = below(3) ? C : 1 + below(C), .ld_key = (size_t)ld_key};
    b.t.q = input((rows - 1) * ld_key + k_dim, PLAIN);
    b.t.k = input((rows - 1) * ld_key + k_dim, PLAIN);
    float *k = (float *)(uintptr_t)b.t.k, *a = input(rows, PLAIN), *beta = input(rows, PLAIN);
    for (int r = 0; r < rows; r++) { /* keys as in use, or states explode */
        float length = 0;
        for (int i = 0; i < k_dim; i++) length += k[r * ld_key + i] * k[r * ld_key + i];
        for (int i = 0; i < k_dim; i++) k[r * ld_key + i] /= sqrtf(length) + 0.001f;
        a[r] = fabsf(a[r]), beta[r] = fabsf(beta[r]);
    }
    b.t.a = a, b.t.b = beta;
    b.t.qk = input(rows, PLAIN);
    b.t.v = input((rows - 1) * ld_v + C, kd);
    b.t.ld_v = (size_t)ld_v;
    return b;
}
typedef struct result {
    float *s, *d, *y;
    bool written; /* S is in s; otherwise it is s0 still */
} result;
static int y_floats(const block *b) {
    return b->t.rows * 37;
}
static result run_block(int table, const block *b, bool in_place) {
    int size = b->t.k_dim * C;
    result r = {.s = output(size, in_place ? b->s0 : NULL), .d = output(b->t.rows * C, NULL), .y = output(y_floats(b), NULL)};
    weft_gdn_tokens t = b->t;
    t.d = r.d, t.ld_d = C, t.y = r.y, t.ld_y = 37;
    const float *src = in_place ? r.s : b->s0, *at = tables[table]->tokens(r.s, src, b->u, b->waits, &t, nothing_ahead(src));
    r.written = b->waits || b->t.rows > 1;
    assert_ptr_equal(at, r.written ? r.s : src);
    if (!r.written && !in_place) assert_true(untouched(r.s[0]) && untouched(r.s[size - 1]));
    guards_hold("state", r.s, size);
    guards_hold("deltas", r.d, b->t.rows * C);
    guards_hold("outputs", r.y, y_floats(b));
    for (int i = 0; i < y_floats(b); i++) assert_true(i % 37 < b->t.cols || untouched(r.y[i]));
    return r;
}
static void same_result(const char *what, const block *b, const result *x, const result *z) {
    if (x->written) same(what, x->s, z->s, b->t.k_dim * C);
    same(what, x->d, z->d, b->t.rows * C);
    for (int r = 0; r < b->t.rows; r++) same(what, x->y + r * 37, z->y + r * 37, b->t.cols);
}

/* The written arithmetic, operation by operation. Were it changed, all tables would change alike, and with them every result. */
static void test_the_written_order(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        int k_dim = 1 + round % 40, waits = round % (GDN_WAITS + 1), rows = 1 + round % 3;
        block b = random_block(k_dim, rows, waits, PLAIN);
        EACH_TABLE(t) {
            result x = run_block(t, &b, round % 2);
            for (int c = 0; c < C; c++) {
                float s[40], a = 0, d = 0;
                const float *k = NULL;
                for (int i = 0; i < k_dim; i++) {
                    s[i] = b.s0[i * C + c];
                    for (int w = 0; w < waits; w++) {
                        float decayed = b.u[w].a * s[i];
                        s[i] = fmaf(b.u[w].k[i], b.u[w].d[c], decayed);
                    }
                }
                for (int r = 0; r < rows; r++) {
                    float m[2] = {0}, o[2] = {0};
                    for (int i = 0; i < k_dim; i++) {
                        if (k) {
                            float decayed = a * s[i];
                            s[i] = fmaf(k[i], d, decayed);
                        }
                        m[i % 2] = fmaf(b.t.k[(size_t)r * b.t.ld_key + (size_t)i], s[i], m[i % 2]);
                        o[i % 2] = fmaf(b.t.q[(size_t)r * b.t.ld_key + (size_t)i], s[i], o[i % 2]);
                    }
                    a = b.t.a[r], k = b.t.k + (size_t)r * b.t.ld_key;
                    float recalled = m[0] + m[1], product = a * recalled,
                          difference = b.t.v[(size_t)r * b.t.ld_v + (size_t)c] - product;
                    float read = o[0] + o[1], kept = a * read;
                    d = b.t.b[r] * difference;
                    assert_true(x.d[r * C + c] == d);
                    if (c < b.t.cols) assert_true(x.y[r * 37 + c] == fmaf(b.t.qk[r], d, kept));
                }
                for (int i = 0; i < k_dim && x.written; i++) assert_true(x.s[i * C + c] == s[i]);
            }
        }
        drop_all();
    }
}

static void test_tokens_of_all_tables(void **state) {
    (void)state;
    for (int round = 0; round < 240; round++) {
        kind kd = (kind)(round % KINDS);
        block b = random_block(1 + below(round % 9 ? 70 : 256), 1 + below(5), below(GDN_WAITS + 1), kd);
        result first = run_block(0, &b, false);
        EACH_TABLE(t) {
            for (int in_place = 0; in_place < 2; in_place++) {
                result x = run_block(t, &b, in_place);
                same_result("tokens of two tables", &b, &first, &x);
            }
        }
        drop_all();
    }
}

/* One token after some updates, in double. */
static void test_tokens_are_accurate(void **state) {
    (void)state;
    for (int round = 0; round < 150; round++) {
        kind kd = (kind)(round % 3);
        int k_dim = 1 + below(round % 9 ? 60 : 256), depth = (k_dim + 1) / 2 + 1;
        block b = random_block(k_dim, 1, below(GDN_WAITS + 1), kd);
        result x = run_block(0, &b, false);
        for (int c = 0; c < C; c++) {
            double m = 0, m_error = 0, m_size = 0, o = 0, o_error = 0, o_size = 0;
            for (int i = 0; i < k_dim; i++) {
                double s = daz(b.s0[i * C + c]), error = 0, k = daz(b.t.k[i]), q = daz(b.t.q[i]);
                for (int w = 0; w < b.waits; w++) {
                    double old = daz(b.u[w].a) * s, add = daz(b.u[w].k[i]) * daz(b.u[w].d[c]);
                    error = daz(b.u[w].a) * error * (1 + 3 * U) + 2.1 * U * (fabs(old) + fabs(add)) + 3 * (double)FLT_MIN;
                    s = old + add;
                }
                if (b.waits) near_to("state", i, x.s[i * C + c], s, error);
                m += k * s, m_size += fabs(k * s), m_error += fabs(k) * error;
                o += q * s, o_size += fabs(q * s), o_error += fabs(q) * error;
            }
            m_error += roundings(depth) * (m_size + m_error) + k_dim * (double)FLT_MIN;
            o_error += roundings(depth) * (o_size + o_error) + k_dim * (double)FLT_MIN;
            double a = daz(b.t.a[0]), beta = daz(b.t.b[0]), qk = daz(b.t.qk[0]), v = daz(b.t.v[c]), d = beta * (v - a * m);
            double d_error = beta * (a * m_error + 3.1 * U * (fabs(v) + a * fabs(m))) + U * fabs(d);
            near_to("delta", c, x.d[c], d, d_error);
            if (c < b.t.cols)
                near_to("output", c, x.y[c], a * o + qk * d,
                        a * o_error + fabs(qk) * d_error + 3.1 * U * (a * fabs(o) + fabs(qk * d)));
        }
        drop_all();
    }
}

/* What makes rollback a count: an update gives the same bits whether it waits within a call, is handed over to the next one, comes
 * with others out of a journal, or is folded in by itself. */
static void test_updates_wait_anywhere(void **state) {
    (void)state;
    for (int round = 0; round < 120; round++) {
        kind kd = (kind)(round % KINDS);
        int k_dim = 1 + below(100), size = k_dim * C, rows = 2 + below(6), waits = 1 + below(GDN_WAITS);
        block b = random_block(k_dim, rows, waits, kd);
        EACH_TABLE(t) {
            result whole = run_block(t, &b, false);
            /* The updates one by one, then row by row, and settled before every row. */
            float *s = output(size, b.s0), *d = output(C, NULL), *y = output(37, NULL), *moved = output(size, NULL);
            for (int w = 0; w < waits; w++) tables[t]->update(s, s, b.u + w, 1, k_dim, nothing_ahead(s));
            tables[t]->update(moved, b.s0, b.u, waits, k_dim, nothing_ahead(s));
            guards_hold("updated state", moved, size);
            same("updates at once and one by one", moved, s, size);
            for (int r = 0; r < rows; r++) {
                weft_gdn_tokens one = b.t;
                one.rows = 1;
                one.q += (size_t)r * b.t.ld_key, one.k += (size_t)r * b.t.ld_key, one.v += (size_t)r * b.t.ld_v;
                one.a += r, one.b += r, one.qk += r;
                one.d = d, one.y = y;
                if (r == rows - 1) same("a state before the last row", whole.s, s, size);
                assert_ptr_equal(tables[t]->tokens(moved, s, NULL, 0, &one, nothing_ahead(s)), s);
                same("a delta", whole.d + r * C, d, C);
                same("an output", whole.y + r * 37, y, b.t.cols);
                weft_gdn_update u = {*one.a, one.k, d};
                tables[t]->update(s, s, &u, 1, k_dim, nothing_ahead(s));
            }
            /* Deltas in one place: only the last one is left there, and the others have been used in time. */
            weft_gdn_tokens kept = b.t;
            float *last = output(size, b.s0), *all = output(y_floats(&b), NULL);
            kept.d = d, kept.ld_d = 0, kept.y = all, kept.ld_y = 37;
            tables[t]->tokens(last, last, b.u, waits, &kept, nothing_ahead(last));
            same("the last delta", whole.d + (rows - 1) * C, d, C);
            same("a state with deltas in one place", whole.s, last, size);
        }
        drop_all();
    }
}

/* A NaN stays in its column; a column that the head does not have stays zero. */
static void test_columns_are_apart(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        int k_dim = 8 + below(60), bad = below(C);
        block b = random_block(k_dim, 3, 0, PLAIN);
        float *v = (float *)(uintptr_t)b.t.v;
        b.t.cols = C;
        EACH_TABLE(t) {
            result good = run_block(t, &b, false);
            float old = v[bad];
            v[bad] = NAN;
            result x = run_block(t, &b, false);
            v[bad] = old;
            for (int i = 0; i < 3 * C; i++)
                if (i % C == bad)
                    assert_true(isnan(x.d[i]));
                else
                    same("a column beside a NaN", good.d + i, x.d + i, 1);
        }
        for (int i = 0; i < k_dim; i++) b.s0[i * C + bad] = 0;
        for (int r = 0; r < 3; r++) v[(size_t)r * b.t.ld_v + (size_t)bad] = 0;
        EACH_TABLE(t) {
            result x = run_block(t, &b, false);
            for (int i = 0; i < k_dim; i++) assert_true(to_bits(x.s[i * C + bad]) == 0);
        }
        drop_all();
    }
}

/* Three tokens, one key head, two value heads of dimension 2, q and k not yet normalised: outputs and the final state, computed
 * apart from this code. Head order, the place of 1/sqrt(k_dim) (on q alone) and of the decay all show here. */
static void test_numeric_vector(void **state) {
    (void)state;
    static const float q[3][2] = {{1, 2}, {0.5f, -1}, {-1, 0.25f}}, k[3][2] = {{2, 1}, {1, 1}, {-0.5f, 2}};
    static const float v[2][3][2] = {{{1, -1}, {0.25f, 0.75f}, {2, 0}}, {{0.5f, 2}, {-1, 1}, {1, -0.5f}}};
    static const float alpha[3][2] = {{0.1f, -0.2f}, {0.3f, 0.4f}, {-0.5f, 0.6f}}, beta[3][2] = {{0.2f, -0.3f}, {1, 0.5f}, {-1, 0}};
    static const double out[2][3][2] = {{{0.311033, -0.311033}, {-0.006648, -0.156822}, {0.098201, -0.098597}},
                                        {{0.120366, 0.481463}, {0.146055, -0.111710}, {0.219307, -0.152175}}};
    static const double last[2][2][2] = {{{0.002754, 0.190962}, {0.583621, 0.188933}},
                                         {{-0.212527, 0.176237}, {0.428664, -0.182380}}};
    const float decay[2] = {-1, -(float)exp(0.5)}, dt[2] = {0.1f, -0.1f}; /* A_log 0 and 0.5 */
    EACH_TABLE(t) {
        float qn[3][LANES] = {{0}}, kn[3][LANES] = {{0}}, qk[3];
        for (int i = 0; i < 3; i++) memcpy(qn[i], q[i], sizeof q[i]), memcpy(kn[i], k[i], sizeof k[i]);
        tables[t]->unit(qn[0], kn[0], LANES, qk, 3, 2);
        for (int h = 0; h < 2; h++) {
            float a[3], b[3], values[3][C] = {{0}}, d[C], y[3][2], s[2 * C] = {0};
            tables[t]->gates(a, b, alpha[0] + h, 2, beta[0] + h, 2, decay[h], dt[h], 3);
            for (int i = 0; i < 3; i++) memcpy(values[i], v[h][i], sizeof v[h][i]);
            weft_gdn_tokens tokens = {.rows = 3,
                                      .k_dim = 2,
                                      .cols = 2,
                                      .q = qn[0],
                                      .k = kn[0],
                                      .ld_key = LANES,
                                      .a = a,
                                      .b = b,
                                      .qk = qk,
                                      .v = values[0],
                                      .ld_v = C,
                                      .d = d,
                                      .y = y[0],
                                      .ld_y = 2};
            tables[t]->tokens(s, s, NULL, 0, &tokens, nothing_ahead(s));
            weft_gdn_update u = {a[2], kn[2], d};
            tables[t]->update(s, s, &u, 1, 2, nothing_ahead(s));
            for (int i = 0; i < 6; i++) near_to("vector's output", i, y[i / 2][i % 2], out[h][i / 2][i % 2], 1e-6);
            for (int i = 0; i < 4; i++) near_to("vector's state", i, s[i / 2 * C + i % 2], last[h][i / 2][i % 2], 1e-6);
        }
    }
}

/* ---- the operator --------------------------------------------------------------------------------------------------------- */

enum { DRAFTS = 9, SLOTS = 6, MAX_ROWS = 400, LEN = 330, SNAPSHOTS = 3 };

typedef struct rig {
    weft_gdn_shape s;
    int channels, columns; /* of the inputs, of y */
    float memory, size;    /* lowers dt_bias; scales the inputs */
    weft_dev *d;
    weft_buf *qkv, *alpha, *beta, *y;
    weft_gdn op;
    size_t slot_bytes;
} rig;

static uint32_t hash(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t x = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu ^ (c + 0x165667b1u) * 0xc2b2ae35u;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
static float made(uint32_t a, uint32_t b, uint32_t c) {
    return (float)((double)hash(a, b, c) * 0x1p-31 - 1);
}
static weft_coef *made_coef(rig *g, uint32_t id, int n, float middle, float spread) {
    float *v = malloc((size_t)n * sizeof *v);
    weft_coef *c = NULL;
    weft_error e;
    for (int i = 0; i < n; i++) v[i] = middle + spread * made(id, 0, (uint32_t)i);
    assert_int_equal(weft_coef_make(g->d, v, n, &c, &e), WEFT_OK);
    free(v);
    return c;
}
static void rig_open(rig *g, weft_gdn_shape s, const char *isa, int threads, float memory, float size) {
    weft_error e;
    *g = (rig){.s = s, .columns = s.n_v_heads * s.v_dim, .memory = memory, .size = size};
    g->channels = 2 * s.n_k_heads * s.k_dim + g->columns;
    if (weft_dev_open(&g->d, &(weft_dev_config){.threads = threads, .isa = isa}, &e) != WEFT_OK) fail_msg("%s", e.text);
    g->op.layer = weft_gdn_layer(g->d, &s);
    g->op.conv = made_coef(g, 1, s.conv_kernel * g->channels, 0, 1);
    g->op.decay = made_coef(g, 2, s.n_v_heads, -1, 0.9f);
    g->op.dt_bias = made_coef(g, 3, s.n_v_heads, -memory, 1);
    weft_buf **bufs[] = {&g->qkv, &g->alpha, &g->beta, &g->y};
    int cols[] = {g->channels, s.n_v_heads, s.n_v_heads, g->columns};
    for (int i = 0; i < 4; i++) assert_non_null(*bufs[i] = weft_buf_make(g->d, NULL, 0, cols[i]));
    assert_int_equal(
        weft_dev_plan(
            g->d, &(weft_plan){.max_rows = MAX_ROWS, .max_spans = 2, .max_draft = DRAFTS, .n_pages = {1}, .n_slots = SLOTS}, &e),
        WEFT_OK);
    g->slot_bytes = weft_slot_bytes(g->d);
    for (int i = 0; i < SLOTS; i++) weft_slot_poison(g->d, i);
}
static void put_token(rig *g, int row, uint32_t token) {
    for (int i = 0; i < g->channels; i++) buf_row(g->qkv, row)[i] = g->size * made(10, token, (uint32_t)i);
    for (int i = 0; i < g->s.n_v_heads; i++) {
        buf_row(g->alpha, row)[i] = 3 * made(11, token, (uint32_t)i);
        buf_row(g->beta, row)[i] = 3 * made(12, token, (uint32_t)i);
    }
}
static void run_step(rig *g, weft_span *spans, int n_spans) {
    static int pages[LEN / WEFT_PAGE_ROWS + 2]; /* all page 0: nothing here writes pages */
    weft_error e;
    int rows = 0;
    for (int i = 0; i < n_spans; i++) {
        spans[i].n_pages[WEFT_PAGES_ALL] = LEN / WEFT_PAGE_ROWS + 2;
        spans[i].pages[WEFT_PAGES_ALL] = pages;
        rows += spans[i].certain + spans[i].speculative;
    }
    weft_begin(g->d, &(weft_step){.n_rows = rows, .n_spans = n_spans, .spans = spans});
    weft_gdn_run(g->d, g->y, g->qkv, g->alpha, g->beta, &g->op);
    if (weft_end(g->d, &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* A run of one row at a time on one thread with the reference kernels. */
typedef struct truth {
    uint32_t id;    /* token p of the sequence is id + p */
    float *y;       /* [LEN][columns] */
    uint8_t **slot; /* [LEN + 1]: after p rows; [0] unused */
} truth;
static uint8_t *slot_copy(rig *g, int slot) {
    weft_error e;
    uint8_t *bytes = malloc(g->slot_bytes);
    assert_int_equal(weft_slot_io(g->d, slot, bytes, true, &e), WEFT_OK);
    return bytes;
}
static void truth_make(truth *t, weft_gdn_shape s, float memory, float size, uint32_t id) {
    rig g;
    rig_open(&g, s, "reference", 1, memory, size);
    *t = (truth){.id = id, .y = malloc((size_t)(LEN * g.columns) * sizeof(float)), .slot = calloc(LEN + 1, sizeof *t->slot)};
    for (int p = 0; p < LEN; p++) {
        put_token(&g, 0, id + (uint32_t)p);
        run_step(&g, &(weft_span){.certain = 1, .pos = p, .slot_read = p ? 0 : -1}, 1);
        memcpy(t->y + p * g.columns, buf_row(g.y, 0), (size_t)g.columns * sizeof(float));
        t->slot[p + 1] = slot_copy(&g, 0);
    }
    weft_dev_close(g.d);
}
static void truth_free(truth *t) {
    for (int p = 1; p <= LEN; p++) free(t->slot[p]);
    free(t->slot);
    free(t->y);
}

/* A sequence on its way. It owns three slots: the one it lives in, and two that snapshots go to. */
typedef struct walker {
    const truth *t;
    int slots[3], live, done, replay, journal; /* live: < 0 before the start */
    int kept[3];                               /* position of the snapshot in a slot; 0: none */
} walker;
static void slot_is(rig *g, const char *what, const walker *w, int slot, int pos) {
    uint8_t *bytes = slot_copy(g, slot);
    if (memcmp(bytes, w->t->slot[pos], g->slot_bytes)) fail_msg("%s after %d rows: the slot's bytes differ", what, pos);
    free(bytes);
}
/* A random move of one sequence. The arrays hold its snapshots. */
static weft_span plan_move(rig *g, walker *w, int row, int most, int *at, int *to, int *right) {
    if (w->done && below(12) == 0) { /* back to a snapshot, into another slot */
        int i = below(3), other = (i + 1 + below(2)) % 3;
        if (w->kept[i] && w->kept[i] < LEN && w->slots[i] != w->live) {
            w->done = w->kept[i], w->replay = 0, w->journal = 0;
            w->kept[other] = 0;
            weft_span s = {.row = row, .certain = 1, .pos = w->done, .slot_read = w->slots[i], .slot_write = w->slots[other]};
            weft_slot_poison(g->d, s.slot_write);
            put_token(g, row, w->t->id + (uint32_t)w->done);
            *right = 0;
            return s;
        }
    }
    int left = LEN - w->done - w->replay, kind = below(8);
    weft_span s = {.row = row, .pos = w->done + w->replay, .replay = w->replay, .slot_read = w->live, .journal = w->journal};
    s.slot_write = w->live < 0 ? w->slots[below(3)] : w->live;
    if (w->live >= 0 && below(5) == 0) s.slot_write = w->slots[below(3)];
    if (s.slot_write != w->live) weft_slot_poison(g->d, s.slot_write);
    if (kind && left) s.certain = kind < 4 ? 1 : kind < 6 ? 1 + below(9) : 1 + below(200);
    if (s.certain > left) s.certain = left;
    if (s.certain > most - DRAFTS) s.certain = most - DRAFTS;
    if (kind && below(3)) s.speculative = below(DRAFTS + 1);
    *right = s.speculative ? below(s.speculative + 1) : 0;
    if (*right > left - s.certain) *right = left - s.certain;
    for (int i = 0; i < s.certain + s.speculative; i++)
        put_token(g, row + i, i < s.certain + *right ? w->t->id + (uint32_t)(s.pos + i) : 1000000 + (uint32_t)below(1000));
    /* Snapshots into slots that are neither read nor written; one at a boundary of the operator's own pieces, if it can be. */
    for (int i = 0; i < 3 && s.certain; i++) {
        if (w->slots[i] == s.slot_read || w->slots[i] == s.slot_write || below(2)) continue;
        int p = below(4) == 0 ? s.certain : s.certain >= 64 && below(2) ? 64 : 1 + below(s.certain);
        if (s.n_snapshots && p <= at[s.n_snapshots - 1]) continue;
        weft_slot_poison(g->d, w->slots[i]);
        w->kept[i] = s.pos + p;
        at[s.n_snapshots] = p, to[s.n_snapshots++] = w->slots[i];
    }
    s.snapshot_at = at, s.snapshot_slot = to;
    return s;
}
static void check_move(rig *g, walker *w, const weft_span *s, int right) {
    for (int i = 0; i < s->certain + right; i++)
        same("a row", w->t->y + (s->pos + i) * g->columns, buf_row(g->y, s->row + i), g->columns);
    if (s->pos + s->certain) slot_is(g, "a pass", w, s->slot_write, s->pos + s->certain);
    for (int i = 0; i < s->n_snapshots; i++) slot_is(g, "a snapshot", w, s->snapshot_slot[i], s->pos + s->snapshot_at[i]);
    for (int i = 0; i < 3; i++)
        if (w->slots[i] == s->slot_write) w->kept[i] = 0;
    w->live = s->slot_write;
    w->done = s->pos + s->certain;
    w->replay = right;
    w->journal = 1 - s->journal;
}

static void test_any_passes(void **state) {
    (void)state;
    static const weft_gdn_shape shapes[] = {{1, 2, 128, 48, 4}, {2, 2, 8, 16, 4}, {3, 6, 17, 33, 2},
                                            {2, 2, 256, 20, 4}, {1, 3, 7, 5, 1},  {5, 5, 16, 32, 8}};
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        truth truths[2];
        for (uint32_t i = 0; i < 2; i++) truth_make(truths + i, shapes[shape], 3, 1, 1 + 1000 * i);
        EACH_TABLE(t) {
            if (t && t < n_tables - 1 && isas[t + 1]->gdn == isas[t]->gdn) continue; /* one table, two names */
            if (t == 0 && shape % 2) continue;                                       /* slow */
            for (int threads = 1; threads <= 4; threads += 1 + (threads == 2)) {
                rig g;
                rig_open(&g, shapes[shape], isas[t]->name, threads, 3, 1);
                walker w[2] = {{.t = truths, .slots = {0, 1, 2}, .live = -1}, {.t = truths + 1, .slots = {3, 4, 5}, .live = -1}};
                for (int move = 0; move < 60; move++) {
                    weft_span spans[2];
                    int at[2][SNAPSHOTS], to[2][SNAPSHOTS], right[2], rows = 0;
                    for (int i = 0; i < 2; i++) {
                        spans[i] = plan_move(&g, w + i, rows, (MAX_ROWS - rows) / (2 - i), at[i], to[i], right + i);
                        rows += spans[i].certain + spans[i].speculative;
                    }
                    run_step(&g, spans, 2);
                    for (int i = 0; i < 2; i++) {
                        check_move(&g, w + i, spans + i, right[i]);
                        if (w[i].done + w[i].replay == LEN && below(2)) { /* from the start again */
                            w[i].live = -1;
                            w[i].done = w[i].replay = w[i].journal = 0;
                            for (int k = 0; k < 3; k++) w[i].kept[k] = 0;
                        }
                    }
                }
                weft_dev_close(g.d);
            }
        }
        for (int i = 0; i < 2; i++) truth_free(truths + i);
    }
}

/* Hundreds of tokens against the recurrence in double, with a short and a long memory. */
static void test_operator_is_accurate(void **state) {
    (void)state;
    const weft_gdn_shape s = {1, 2, 64, 40, 4};
    for (int round = 0; round < 2; round++) {
        rig g;
        rig_open(&g, s, NULL, 1, round ? 7 : 0, 1);
        double *S = calloc((size_t)(g.columns * s.k_dim), sizeof *S), *c = calloc((size_t)g.channels, sizeof *c);
        for (int p = 0; p < LEN; p++) put_token(&g, p, (uint32_t)p);
        run_step(&g, &(weft_span){.certain = LEN, .slot_read = -1}, 1);
        for (int p = 0; p < LEN; p++) {
            for (int i = 0; i < g.channels; i++) {
                double x = 0;
                for (int tap = 0; tap < s.conv_kernel; tap++)
                    if (p - 3 + tap >= 0) x += (double)buf_row(g.qkv, p - 3 + tap)[i] * (double)g.op.conv->v[tap * g.channels + i];
                c[i] = ref_silu(x);
            }
            for (int h = 0; h < 2; h++) {
                double squares = 1e-6;
                for (int i = 0; i < s.k_dim; i++) squares += c[h * s.k_dim + i] * c[h * s.k_dim + i];
                for (int i = 0; i < s.k_dim; i++) c[h * s.k_dim + i] /= sqrt(squares) * (h ? 1 : sqrt(s.k_dim));
            }
            for (int i = 0; i < g.columns; i++) {
                int h = i / s.v_dim;
                double x = (double)buf_row(g.alpha, p)[h] + (double)g.op.dt_bias->v[h], m = 0, y = 0, *Si = S + i * s.k_dim;
                double a = exp((double)g.op.decay->v[h] * log1p(exp(x))), b = ref_sigmoid((double)buf_row(g.beta, p)[h]);
                for (int k = 0; k < s.k_dim; k++) m += (Si[k] *= a) * c[s.k_dim + k];
                for (int k = 0; k < s.k_dim; k++) y += (Si[k] += c[s.k_dim + k] * b * (c[2 * s.k_dim + i] - m)) * c[k];
                near_to("y", p, buf_row(g.y, p)[i], y, 2e-6);
            }
        }
        free(S), free(c);
        weft_dev_close(g.d);
    }
}

/* States that are denormals in part: the same bits in every table, and nothing below the smallest normal is stored. */
static void test_denormal_states(void **state) {
    (void)state;
    const weft_gdn_shape s = {1, 2, 24, 36, 4};
    float *first = NULL;
    EACH_TABLE(t) {
        rig g;
        rig_open(&g, s, isas[t]->name, 1 + t % 2, 1, 1);
        for (int p = 0; p < LEN; p++) {
            put_token(&g, p, (uint32_t)p);
            for (int i = 0; i < g.columns; i++) buf_row(g.qkv, p)[2 * s.k_dim + i] *= p % 10 ? 1e-38f : 1e-36f;
        }
        run_step(&g, &(weft_span){.certain = LEN, .slot_read = -1}, 1);
        float *got = (float *)(void *)slot_copy(&g, 0);
        int n = (int)(g.slot_bytes / sizeof *got), tiny = 0;
        for (int i = 0; i < n - 3 * g.channels; i++) {
            assert_true(got[i] == 0 || fabsf(got[i]) >= FLT_MIN);
            tiny += got[i] != 0 && fabsf(got[i]) < 1e-37f;
        }
        assert_true(tiny > 0);
        if (first) same("denormal states of two tables", first, got, n);
        if (first)
            free(got);
        else
            first = got;
        weft_dev_close(g.d);
    }
    free(first);
}

/* A NaN in one sequence's row reaches what follows in its own head, and nothing else: not the rows before it, not other heads, not
 * the sequence beside it. */
static void test_nan_is_confined(void **state) {
    (void)state;
    const weft_gdn_shape s = {2, 4, 20, 40, 4};
    enum { ROWS = 80, BAD = 33, HEAD = 1 };
    for (int where = 0; where < 3; where++) EACH_TABLE(t) {
            rig g;
            float *clean = NULL;
            rig_open(&g, s, isas[t]->name, 2, 2, 1);
            for (int bad = 0; bad < 2; bad++) {
                for (int r = 0; r < 2 * ROWS; r++) put_token(&g, r, (uint32_t)r);
                if (bad && where == 0) buf_row(g.qkv, BAD)[2 * 2 * s.k_dim + HEAD * s.v_dim + 3] = NAN; /* a value */
                if (bad && where == 1) buf_row(g.alpha, BAD)[HEAD] = NAN;
                if (bad && where == 2) buf_row(g.qkv, BAD)[2 * s.k_dim + 4] = NAN; /* a key: of value heads 0 and 1 */
                weft_span spans[2] = {{.certain = ROWS, .slot_read = -1},
                                      {.row = ROWS, .certain = ROWS, .slot_read = -1, .slot_write = 1}};
                run_step(&g, spans, 2);
                if (!bad) {
                    clean = malloc((size_t)(2 * ROWS * g.columns) * sizeof *clean);
                    for (int r = 0; r < 2 * ROWS; r++)
                        memcpy(clean + r * g.columns, buf_row(g.y, r), (size_t)g.columns * sizeof *clean);
                    continue;
                }
                for (int i = 0; i < 2 * ROWS * g.columns; i++) {
                    int r = i / g.columns, c = i % g.columns, h = c / s.v_dim;
                    float y = buf_row(g.y, r)[c];
                    bool reached = r >= BAD && r < ROWS &&
                                   (where == 0   ? c == HEAD * s.v_dim + 3
                                    : where == 1 ? h == HEAD
                                                 : h == 0 || h == 1);
                    if (reached)
                        assert_true(isnan(y));
                    else
                        same("beside a NaN", clean + i, &y, 1);
                }
                free(clean);
            }
            weft_dev_close(g.d);
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
        cmocka_unit_test(test_silu),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_unit),
        cmocka_unit_test(test_gates_are_accurate),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_the_written_order),
        cmocka_unit_test(test_tokens_of_all_tables),
        cmocka_unit_test(test_tokens_are_accurate),
        cmocka_unit_test(test_updates_wait_anywhere),
        cmocka_unit_test(test_columns_are_apart),
        cmocka_unit_test(test_numeric_vector),
        cmocka_unit_test(test_any_passes),
        cmocka_unit_test(test_operator_is_accurate),
        cmocka_unit_test(test_denormal_states),
        cmocka_unit_test(test_nan_is_confined),
    };
    return cmocka_run_group_tests(tests, enter, NULL);
}

/* kernel_numbers.h: what tests of kernels need: the tables that this processor can run, numbers of all kinds, memory whose ends are
 * watched, comparison. Included by one test program each. */
#ifndef WEFT_TESTS_KERNEL_NUMBERS_H
#define WEFT_TESTS_KERNEL_NUMBERS_H

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

/* What silu, exp and softplus may be off by, relative to the exact value, and the decay at exponent -1. */
#define SILU_ERROR (5 * U)
#define SIGMOID_ERROR (5.5 * U)
#define EXP_ERROR (2.5 * U)
#define SOFTPLUS_ERROR (12 * U)

/* ---- tables, memory, numbers ---------------------------------------------------------------------------------------------- */

static const weft_isa *isas[8];
static int n_tables;

/* The reference first. Instruction sets may share a table. */
static inline void find_tables(void) {
    int n = 0;
    while (weft_isas[n]) n++;
    while (n--) {
        if (!weft_isa_here(weft_isas[n])) {
            print_message("skipped: %s, this processor has none\n", weft_isas[n]->name);
            continue;
        }
        isas[n_tables++] = weft_isas[n];
    }
}
#define EACH_TABLE(t) for (int t = 0; t < n_tables; t++)

static uint64_t seed = 1;
static inline uint32_t bits32(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32);
}
static inline int below(int n) {
    return (int)(bits32() % (uint32_t)n);
}
static inline double unit_random(void) {
    return (double)bits32() * 0x1p-31 - 1;
} /* -1 .. 1 */
static inline uint32_t to_bits(float f) {
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}
static inline float from_bits(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}

typedef enum kind { PLAIN, WIDE, TINY, SPECIAL, KINDS } kind;
/* PLAIN: about 1. WIDE: exponents -40 .. 40. TINY: denormals, zeros of both signs, numbers about the smallest normal. SPECIAL:
 * huge numbers, infinities and NaN among the others; only bits are compared then. */
static inline float number(kind k) {
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
static inline double daz(float x) {
    return fabsf(x) < FLT_MIN ? 0.0 : (double)x;
}

static void *held[128];
static int n_held;
static inline void *hold(void *p) {
    assert_non_null(p);
    assert_true(n_held < 128);
    return held[n_held++] = p;
}
static inline void drop_all(void) {
    while (n_held) free(held[--n_held]);
}
/* n floats, not one more. */
static inline float *input(int n, kind k) {
    float *v = hold(malloc((size_t)(n ? n : 1) * sizeof *v));
    for (int i = 0; i < n; i++) v[i] = number(k);
    return v;
}
/* Rows of n floats with zeros up to ld. */
static inline float *zero_padded(int rows, int n, int ld, kind k) {
    float *v = input(rows * ld, k);
    for (int i = 0; i < rows * ld; i++)
        if (i % ld >= n) v[i] = 0;
    return v;
}

enum { GUARD = 16 };
static const uint32_t canary = 0x7fa5a5a5; /* a NaN that no kernel computes */
static inline float *output(int n, const float *from) {
    float *v = hold(malloc((size_t)(n + 2 * GUARD) * sizeof *v));
    for (int i = 0; i < n + 2 * GUARD; i++) memcpy(v + i, &canary, 4);
    if (from && n) memcpy(v + GUARD, from, (size_t)n * sizeof *v);
    return v + GUARD;
}
static inline bool untouched(float x) {
    return to_bits(x) == canary;
}
static inline void guards_hold(const char *what, const float *v, int n) {
    for (int i = 1; i <= GUARD; i++)
        if (!untouched(v[-i]) || !untouched(v[n + i - 1])) fail_msg("%s: wrote outside its output of %d", what, n);
}
static inline void same(const char *what, const float *a, const float *b, int n) {
    for (int i = 0; i < n; i++)
        if (to_bits(a[i]) != to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %d of %d is %a in one place and %a in another", what, i, n, (double)a[i], (double)b[i]);
}
/* Flushing to zero adds some of the smallest normals to any error. */
static inline void near_to(const char *what, int i, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound + 4 * (double)FLT_MIN))
        fail_msg("%s: element %d is %.9g, not %.9g (bound %.3g)", what, i, got, want, bound);
}
/* (1 + u)^n - 1: n roundings in a row. */
static inline double roundings(int n) {
    return n * U / (1 - n * U);
}
static inline double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static inline double ref_silu(double x) {
    return x / (1 + exp(-x));
}

#endif

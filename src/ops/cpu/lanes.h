/* lanes.h: vectors of W lanes for the kernels that are written once and compiled for every vector width.
 *
 * Kernel files are compiled several times; WEFT_VARIANT names the copy (base, v3, v4), and what a file exports carries that name:
 * WEFT_COPY(weft_row_kernels) is weft_row_kernels_v3 there. Everything else is static, so that no copy for a wider vector unit can
 * win at link time.
 *
 * A vector has W lanes, as many as the vector unit: compilers keep wider ones in memory. What treats elements for themselves does
 * not show W. A sum runs in 16 lanes, PARTS vectors, and ends in one tree: lane l with l + 8, then 4, 2, 1. Products and sums are
 * rounded apart unless vfma() is written, which rounds once on every processor. */
#ifndef WEFT_OPS_CPU_LANES_H
#define WEFT_OPS_CPU_LANES_H

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "ops/cpu/kernels.h"

#ifndef WEFT_VARIANT
#define WEFT_VARIANT base
#endif
#define WEFT_PASTE(name, variant) name##_##variant
#define WEFT_PASTE_VALUE(name, variant) WEFT_PASTE(name, variant)
#define WEFT_COPY(name) WEFT_PASTE_VALUE(name, WEFT_VARIANT)

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */
#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX512F__)
#define W 16
#define TILE_ROWS 4 /* rows by TILE_OUTS outputs in registers: 16 of 32 hold sums */
#elif defined(__AVX2__)
#define W 8
#define TILE_ROWS 2 /* 8 of 16 registers hold sums */
#else
#define W 4
#define TILE_ROWS 2
#endif
#define PARTS (LANES / W)
#define TILE_OUTS 4
#define LONE_OUTS (W == 16 ? 8 : 4) /* outputs at a time for a row alone: as many chains of sums hide their latency */
#define LONE_COLUMNS 8              /* vectors of them, in weighted values of a row alone */

/* ---- lanes --------------------------------------------------------------------------------------------------------------- */

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4))); /* also for sums that may wrap in lanes that a select drops */
typedef float vf4 __attribute__((vector_size(16)));

INLINE vf load(const float *p) {
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void store(float *p, vf x) {
    memcpy(p, &x, sizeof x);
}
INLINE vf splat(float x) {
    return x - (vf){0}; /* x + 0 would turn -0 into 0 */
}
INLINE vf select(vi mask, vf a, vf b) {
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}
/* The first n (any number) of p, zeros behind. */
INLINE vf load_n(const float *p, int n) {
    if (n >= W) return load(p);
    float t[W] = {0};
    if (n > 0) memcpy(t, p, (size_t)n * sizeof *t);
    return load(t);
}
INLINE void store_n(float *p, vf x, int n) {
    if (n >= W)
        store(p, x);
    else
        memcpy(p, &x, (size_t)n * sizeof *p);
}
/* a > b ? a : b, and a < b ? a : b: b where one of them is NaN, as the instruction has it on x86-64. */
INLINE vf max2(vf a, vf b) {
#if W == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif W == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return select(a > b, a, b);
#endif
}
INLINE vf min2(vf a, vf b) {
#if W == 16
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif W == 8
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    return select(a < b, a, b);
#endif
}

/* a b + c, rounded once. Without the instruction: the product is exact in double, and the sum is rounded to odd there, so that the
 * rounding to float32 that follows is the only one that counts (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded
 * sums"). */
#if defined(__FMA__) || defined(__AVX512F__)
INLINE vf vfma(vf a, vf b, vf c) {
#if W == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#endif
}
#elif defined(__aarch64__)
INLINE vf vfma(vf a, vf b, vf c) {
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#else
INLINE vf vfma(vf a, vf b, vf c) {
    vf y;
    for (int i = 0; i < W; i++) {
        double p = (double)a[i] * (double)b[i], z = (double)c[i], s = p + z, t = s - p;
        double lost = (p - (s - t)) + (z - t);
        uint64_t u;
        memcpy(&u, &s, sizeof u);
        if (lost != 0 && !(u & 1) && s - s == 0) u += (lost > 0) == (s > 0) ? 1 : (uint64_t)-1;
        memcpy(&s, &u, sizeof s);
        y[i] = (float)s;
    }
    return y;
}
#endif

/* ---- sums ---------------------------------------------------------------------------------------------------------------- */

typedef struct sum16 { /* of 16 lanes */
    vf part[PARTS];
} sum16;

#define SHUFFLE __builtin_shufflevector
/* The tree's first two levels: lanes l + l + 8, then l + l + 4. */
INLINE vf4 fold(sum16 s) {
#if W == 16
    vf a = s.part[0] + SHUFFLE(s.part[0], s.part[0], 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    return SHUFFLE(a, a, 0, 1, 2, 3) + SHUFFLE(a, a, 4, 5, 6, 7);
#elif W == 8
    vf a = s.part[0] + s.part[1];
    return SHUFFLE(a, a, 0, 1, 2, 3) + SHUFFLE(a, a, 4, 5, 6, 7);
#else
    return (s.part[0] + s.part[2]) + (s.part[1] + s.part[3]);
#endif
}
INLINE float sum(sum16 s) {
    vf4 c = fold(s);
    return (c[0] + c[2]) + (c[1] + c[3]);
}
/* Four sums in the same order, side by side: half the work of four times one. */
INLINE vf4 sum4(sum16 a, sum16 b, sum16 c, sum16 d) {
#if W == 16
#define FIRST 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define SECOND 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
    vf ab = SHUFFLE(a.part[0], b.part[0], FIRST) + SHUFFLE(a.part[0], b.part[0], SECOND);
    vf cd = SHUFFLE(c.part[0], d.part[0], FIRST) + SHUFFLE(c.part[0], d.part[0], SECOND);
    vf x = SHUFFLE(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           SHUFFLE(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    x += SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    x += SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    return SHUFFLE(x, x, 0, 4, 8, 12);
#else
    vf4 e = fold(a), f = fold(b), g = fold(c), h = fold(d);
    vf4 ef = SHUFFLE(e, f, 0, 1, 4, 5) + SHUFFLE(e, f, 2, 3, 6, 7);
    vf4 gh = SHUFFLE(g, h, 0, 1, 4, 5) + SHUFFLE(g, h, 2, 3, 6, 7);
    return SHUFFLE(ef, gh, 0, 2, 4, 6) + SHUFFLE(ef, gh, 1, 3, 5, 7);
#endif
}

/* ---- elementary functions ------------------------------------------------------------------------------------------------ */

/* exp: x = n ln 2 + r, Taylor to r^7 (relative error 5e-9 at |r| = ln 2 / 2, below rounding). Below -87.3 the result is 0, above
 * 88.7 it is infinity: gates divide by 1 + exp, so that both ends behave. NaN stays NaN. */
INLINE vf vexp(vf x) {
    vf hi = min2(x, splat(88.7f));
    vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    vf t = hi * splat(1.44269504089f) + magic;
    vu n = (vu)t - (vu)magic;
    vf nf = t - magic;
    vf r = (hi - nf * splat(0.693359375f)) - nf * splat(-2.12194440e-4f);
    vf p = splat(1.0f / 5040);
    p = p * r + splat(1.0f / 720);
    p = p * r + splat(1.0f / 120);
    p = p * r + splat(1.0f / 24);
    p = p * r + splat(1.0f / 6);
    p = p * r + splat(0.5f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    vf y = (vf)((vu)p + (n << 23));
    y = select(x < splat(-87.3f), splat(0.0f), y);
    y = select(x > splat(88.7f), splat(__builtin_inff()), y);
    return select(x == x, y, x);
}
/* log of a normal x > 0: odd series in s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)). */
INLINE vf vlog(vf x) {
    vu u = (vu)x - 0x3f3504f3;
    vi e = (vi)u >> 23;
    vf m = (vf)((u & 0x007fffff) + 0x3f3504f3);
    vf s = (m - splat(1.0f)) / (m + splat(1.0f)), s2 = s * s;
    vf p = splat(1.0f / 9);
    p = p * s2 + splat(1.0f / 7);
    p = p * s2 + splat(1.0f / 5);
    p = p * s2 + splat(1.0f / 3);
    p = p * s2 + splat(1.0f);
    vf ef = __builtin_convertvector(e, vf);
    return ef * splat(0.693359375f) + (ef * splat(-2.12194440e-4f) + splat(2.0f) * s * p);
}
INLINE vf vsigmoid(vf x) {
    return splat(1.0f) / (splat(1.0f) + vexp(-x));
}
INLINE vf vsilu(vf x) {
    return x / (splat(1.0f) + vexp(-x));
}
/* 1 + tanh(u) = 2 sigmoid(2 u) */
INLINE vf vgelu_tanh(vf x) {
    return x * vsigmoid(splat(1.5957691216057308f) * (x + splat(0.044715f) * x * x * x));
}
INLINE vf vrelu2(vf x) {
    vf y = select(x > splat(0.0f), x, splat(0.0f));
    return select(x == x, y * y, x);
}
/* Odd Taylor to x^9 below 1/4 (relative error 4e-9), otherwise 1 - 2 / (1 + e^2x), which cancels no more than two bits there. */
INLINE vf vtanh(vf x) {
    vf s = x * x;
    vf p = splat(62.0f / 2835);
    p = p * s - splat(17.0f / 315);
    p = p * s + splat(2.0f / 15);
    p = p * s - splat(1.0f / 3);
    p = p * s + splat(1.0f);
    vf far = splat(1.0f) - splat(2.0f) / (splat(1.0f) + vexp(splat(2.0f) * x));
    return select(s < splat(0.0625f), x * p, far);
}
/* ln(1 + e^x); log1p(y) = log(u) y / (u - 1) with u = 1 + y keeps small y exact. */
INLINE vf vsoftplus(vf x) {
    vf y = vexp(x), u = splat(1.0f) + y;
    vf small = u - splat(1.0f);
    vf l = select(small == splat(0.0f), y, vlog(u) * y / select(small == splat(0.0f), splat(1.0f), small));
    return select(x > splat(20.0f), x, l);
}

/* ---- lengths ------------------------------------------------------------------------------------------------------------- */

INLINE float square_sum(const float *x, int n) {
    sum16 s;
    UNROLL for (int p = 0; p < PARTS; p++) s.part[p] = splat(0.0f);
    for (int i = 0; i < n; i += LANES) UNROLL for (int p = 0; p < PARTS; p++) {
            vf v = load_n(x + i + p * W, n - i - p * W);
            s.part[p] += v * v;
        }
    return sum(s);
}
/* Square root and division are exact operations of IEEE 754: no library is asked (-fno-math-errno). */
INLINE float inverse_sqrt(float x) {
    return 1.0f / __builtin_sqrtf(x);
}

/* ---- stored numbers ---------------------------------------------------------------------------------------------------------- */

/* f16 in the low half of each lane. Normals by moving the exponent, subnormals as mantissa * 2^-24 (never through a float32
 * denormal, which would be flushed). */
INLINE vf from_f16(vu x) {
    vi h = (vi)x;
    vi exponent = h & 0x7c00;
    vf normal = (vf)(((h & 0x7fff) << 13) + (112 << 23));
    vf special = (vf)(((h & 0x7fff) << 13) + (224 << 23));
    vf tiny = __builtin_convertvector(h & 0x3ff, vf) * splat(5.9604644775390625e-8f);
    vf y = select(exponent == 0x7c00, special, normal);
    y = select(exponent == 0, tiny, y);
    return (vf)((vi)y | ((h & 0x8000) << 16));
}

#endif

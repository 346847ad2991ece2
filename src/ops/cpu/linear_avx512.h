/* linear_avx512.h: what the AVX-512 products share, with vpdpbusd (unsigned codes by signed activations, four columns of 16 outputs
 * an instruction): codes in registers and their scaling, and the way through a weight. The arithmetic and its bits are those of
 * kernels_linear.c. */
#ifndef WEFT_OPS_CPU_LINEAR_AVX512_H
#define WEFT_OPS_CPU_LINEAR_AVX512_H

#include <immintrin.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/tiles.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define NO_UNROLL _Pragma("GCC unroll 1") /* gcc 12 spills the sums of an unrolled block */

enum { MANY = 64, WIDE = 4, AHEAD = 4096 }; /* rows and panels that pass together, bytes of prefetch */

/* ---- weights in registers ------------------------------------------------------------------------------------------------ */

/* Steps are taken in turns: turn v of V has the steps v, v + V, v + 2 V ..., so that each of its loads serves all its steps and the
 * turns can be a loop. Two steps at least, for two chains of sums. */
INLINE int turns(const int bits, const int steps) {
    return bits == 8 || bits == 4 ? steps / 2 : bits == 2 || bits == 6 ? steps / 4 : steps / 8;
}
/* The plane's part of step v + at, where `at` is a multiple of the number of turns. */
INLINE __m512i plane_codes(const uint8_t *block, const int plane, const int vectors, int v, const int at) {
    __m512i x = _mm512_loadu_si512(block + (v + at % vectors) * VECTOR_BYTES);
    if (plane == 8) return x;
    return _mm512_and_si512(_mm512_srli_epi16(x, (unsigned)(at / vectors * plane)), _mm512_set1_epi8((char)((1 << plane) - 1)));
}
/* Codes of one step: 16 outputs by 4 columns. */
INLINE __m512i step_vector(const uint8_t *block, const int bits, const int steps, int v, const int at) {
    const int plane = first_plane(bits), vectors = steps * plane / 8, rest = bits - plane;
    __m512i low = plane_codes(block, plane, vectors, v, at);
    if (!rest) return low;
    __m512i high = plane_codes(block + vectors * VECTOR_BYTES, rest, steps * rest / 8, v, at);
    return _mm512_or_si512(low, _mm512_slli_epi16(high, (unsigned)plane)); /* no bit crosses a byte */
}
INLINE __m512 sixteen(weft_dtype t, const uint8_t *p) { /* scales or biases */
    if (t == WEFT_F32) return _mm512_loadu_ps(p);
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (t == WEFT_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
INLINE __m512i four_columns(const int8_t *q) {
    int32_t x;
    memcpy(&x, q, sizeof x);
    return _mm512_set1_epi32(x);
}
/* sums += codes * activations of four columns. The intrinsic of gcc 12 copies the sums before and after, which costs a third of the
 * speed. */
INLINE void dot4(__m512i *sums, __m512i codes, __m512i x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sums) : "v"(codes), "v"(x));
}
INLINE __m512 scaled(__m512 acc, __m512i sums, __m512 scale, __m512 bias, float scale_x, float sum_x) {
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scale, _mm512_set1_ps(scale_x)), acc);
    return _mm512_fmadd_ps(bias, _mm512_set1_ps(sum_x), acc);
}
/* The row sums that go with columns [at, at + columns) of a row's block. */
INLINE const float *sums_of(const weft_acts *a, size_t block, int at, const int columns) {
    return a->sum + block * 48 + (columns == 32 ? 16 + at % 64 / 32 * 16 : 0);
}

/* ---- all weights --------------------------------------------------------------------------------------------------------- */

/* Rows in blocks of MANY by panels in fours, then one at a time: many(y, ldy, a, rows, w, panel, bits, columns, panels) is the
 * file's own. */
#define MANY_ROWS(bits, columns)                                                                                                   \
    static void many_##bits##_##columns(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, int64_t panel,      \
                                        int panels) {                                                                              \
        for (int p = 0, each; p < panels; p += each) {                                                                             \
            each = panels - p >= WIDE ? WIDE : 1;                                                                                  \
            const uint8_t *at = panel_at(w, panel + p);                                                                            \
            for (int row = 0, n; row < rows; row += n) {                                                                           \
                n = rows - row < MANY ? rows - row : MANY;                                                                         \
                weft_acts from = acts_at(a, row);                                                                                  \
                float *out = y + (size_t)row * ldy + p * LANES;                                                                    \
                if (each == WIDE)                                                                                                  \
                    many(out, ldy, &from, n, w, at, bits, columns, WIDE);                                                          \
                else                                                                                                               \
                    many(out, ldy, &from, n, w, at, bits, columns, 1);                                                             \
            }                                                                                                                      \
        }                                                                                                                          \
    }
INLINE weft_acts acts_at(const weft_acts *a, int row) {
    weft_acts b = *a;
    size_t blocks = (size_t)(row / 16 * a->blocks);
    b.q += blocks * 1024, b.scale += blocks * 16, b.sum += blocks * 48;
    return b;
}

typedef void (*affine_kernel)(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, int64_t panel, int panels);
#define WIDTHS(MAKE)                                                                                                               \
    MAKE(2, 32)                                                                                                                    \
    MAKE(3, 32)                                                                                                                    \
    MAKE(4, 32) MAKE(5, 32) MAKE(6, 32) MAKE(8, 32) MAKE(2, 64) MAKE(3, 64) MAKE(4, 64) MAKE(5, 64) MAKE(6, 64) MAKE(8, 64)
#define WIDTH_TABLE(name)                                                                                                          \
    {                                                                                                                              \
        {NULL, NULL, name##_2_32, name##_3_32, name##_4_32, name##_5_32, name##_6_32, NULL, name##_8_32},                          \
            {NULL, NULL, name##_2_64, name##_3_64, name##_4_64, name##_5_64, name##_6_64, NULL, name##_8_64},                      \
    }

#endif

/* linear_avx512_vnni.c: products with affine weights on AVX-512 with VNNI.
 *
 * Few rows are bound by memory: a panel is streamed, its codes go from memory to registers, prefetched ahead. Many rows are
 * bound by the multipliers: a block of codes of four panels is unpacked into the first cache and stays there while 64 rows pass
 * over it, four at a time, so that 16 integer sums hide their latency; the float sums of these rows wait in the same cache. */
#include "ops/cpu/linear_avx512.h"

enum { FEW = 8, STREAM_AHEAD = 8 << 10 }; /* rows; bytes of prefetch: 4 KB give 93 %, 16 KB 96 % of the speed of 8 on two threads */

/* ---- quantising ---------------------------------------------------------------------------------------------------------- */

INLINE __mmask16 first_lanes(int n) {
    return n >= 16 ? 0xffff : n > 0 ? (__mmask16)((1u << n) - 1) : 0;
}
static void quantize(const weft_acts *a, int row, const float *x) {
    const __m512 zero = _mm512_setzero_ps();
    for (int b = 0; b < a->blocks; b++, x += 64) {
        size_t at = (size_t)(row / 16 * a->blocks + b);
        __m512 v[4], top = zero, bad = zero;
        UNROLL for (int i = 0; i < 4; i++) {
            v[i] = _mm512_maskz_loadu_ps(first_lanes(a->k - b * 64 - i * 16), x + i * 16);
            top = _mm512_max_ps(_mm512_abs_ps(v[i]), top);
            bad = _mm512_fmadd_ps(v[i], zero, bad);
        }
        float most = _mm512_reduce_max_ps(top), scale = 0, inverse = 0;
        if (_mm512_cmp_ps_mask(bad, zero, _CMP_NEQ_UQ))
            scale = __builtin_nanf("");
        else if (most >= 0x1p-100f)
            scale = most / 127, inverse = 127 / most;
        int8_t *q = a->q + (at * 16 + (size_t)(row % 16)) * 64;
        __m512i code[4], none = _mm512_setzero_si512();
        UNROLL for (int i = 0; i < 4; i++) {
            code[i] = inverse != 0 ? _mm512_cvtps_epi32(_mm512_mul_ps(v[i], _mm512_set1_ps(inverse))) : none;
            _mm_storeu_si128((__m128i *)(void *)(q + i * 16), _mm512_cvtsepi32_epi8(code[i]));
        }
        int low = _mm512_reduce_add_epi32(_mm512_add_epi32(code[0], code[1]));
        int high = _mm512_reduce_add_epi32(_mm512_add_epi32(code[2], code[3]));
        a->scale[at * 16 + (size_t)(row % 16)] = scale;
        float *sum = a->sum + at * 48 + row % 16;
        sum[0] = scale * (float)(low + high);
        sum[16] = scale * (float)low;
        sum[32] = scale * (float)high;
    }
}

/* ---- few rows ------------------------------------------------------------------------------------------------------------ */

/* The same, activations from memory: saves a register and an instruction where they are used once. */
INLINE void dot4_memory(__m512i *sums, __m512i codes, const int8_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*sums) : "v"(codes), "m"(*(const int32_t(*)[1])(const void *)x));
}
/* `rows` of R rows of the first group, from its row `row`, by one panel (the rest is computed, not stored: fewer copies of this
 * code, which takes long to compile): two streams side by side are slower, as the prefetcher's and their lines fall on the same
 * sets of the first cache. Fewer than eight sums get two chains each, to hide their latency. */
INLINE void few(float *y, size_t ldy, const weft_acts *a, int row, int rows, const weft_mat *w, const uint8_t *panel,
                const int bits, const int columns, const int R) {
    const int steps = columns / STEP_COLUMNS, chains = R < 8 ? 2 : 1;
    const size_t unit = unit_bytes(w), scales = unit_scales(w), block = block_bytes(w), size = LANES * weft_dtype_size(w->dtype);
    __m512 acc[FEW];
    UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    for (int c = 0; c < (int)w->k; c += w->group, panel += unit) {
        for (size_t i = 0; i < unit; i += 64) _mm_prefetch((const char *)panel + STREAM_AHEAD + i, _MM_HINT_T0);
        for (int b = 0; b < w->group; b += columns) {
            const int at = c + b;
            const uint8_t *codes = panel + (size_t)(b / columns) * block;
            const int8_t *q = a->q + (size_t)(at / 64) * 1024 + (size_t)row * 64 + at % 64;
            __m512i sums[2][FEW];
            UNROLL for (int r = 0; r < R; r++) sums[0][r] = sums[1][r] = _mm512_setzero_si512();
            NO_UNROLL for (int v = 0; v < turns(bits, steps); v++) UNROLL for (int j = 0; j < steps / turns(bits, steps); j++) {
                const int ahead = j * turns(bits, steps);
                __m512i step = step_vector(codes, bits, steps, v, ahead);
                UNROLL for (int r = 0; r < R; r++) dot4_memory(&sums[j % chains][r], step, q + r * 64 + (v + ahead) * STEP_COLUMNS);
            }
            const float *sx = a->scale + at / 64 * 16 + row, *total = sums_of(a, (size_t)(at / 64), at, columns) + row;
            __m512 scale = sixteen(w->dtype, panel + scales), bias = sixteen(w->dtype, panel + scales + size);
            UNROLL for (int r = 0; r < R; r++) {
                __m512i sum = chains == 2 ? _mm512_add_epi32(sums[0][r], sums[1][r]) : sums[0][r];
                acc[r] = scaled(acc[r], sum, scale, bias, sx[r], total[r]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) if (r < rows) _mm512_storeu_ps(y + (size_t)r * ldy, acc[r]);
}
INLINE void few_rows(float *y, size_t ldy, const weft_acts *a, int row, int rows, const weft_mat *w, const uint8_t *panel,
                     const int bits, const int columns) {
    if (columns == 32 || rows > 6) { /* groups of 32 are rare */
        if (rows > 4)
            few(y, ldy, a, row, rows, w, panel, bits, columns, 8);
        else
            few(y, ldy, a, row, rows, w, panel, bits, columns, 4);
        return;
    }
    switch (rows) {
    case 1: few(y, ldy, a, row, rows, w, panel, bits, columns, 1); break;
    case 2: few(y, ldy, a, row, rows, w, panel, bits, columns, 2); break;
    case 3:
    case 4: few(y, ldy, a, row, rows, w, panel, bits, columns, 4); break;
    default: few(y, ldy, a, row, rows, w, panel, bits, columns, 6); break;
    }
}
#define FEW_ROWS(bits, columns)                                                                                                    \
    static void few_##bits##_##columns(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, int64_t panel,       \
                                       int panels) {                                                                               \
        for (int p = 0; p < panels; p++)                                                                                           \
            for (int r = 0; r < rows; r += FEW) /* the second eight find the panel in a cache */                                   \
                few_rows(y + (size_t)r * ldy + p * LANES, ldy, a, r, rows - r < FEW ? rows - r : FEW, w, panel_at(w, panel + p),   \
                         bits, columns);                                                                                           \
    }

/* ---- many rows ----------------------------------------------------------------------------------------------------------- */

typedef struct scratch {
    float acc[MANY][WIDE * LANES];
    uint8_t codes[WIDE][16][VECTOR_BYTES];
    float scale[WIDE][LANES], bias[WIDE][LANES];
} scratch;

/* R rows by P panels over one block of unpacked codes. */
INLINE void many_tile(scratch *t, int row, const int8_t *q, const float *sx, const float *total, const int steps, const int R,
                      const int P) {
    __m512i sums[4][WIDE];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) sums[r][p] = _mm512_setzero_si512();
    NO_UNROLL for (int s = 0; s < steps; s++) {
        __m512i v[WIDE];
        UNROLL for (int p = 0; p < P; p++) v[p] = _mm512_load_si512(t->codes[p][s]);
        UNROLL for (int r = 0; r < R; r++) {
            __m512i x = four_columns(q + r * 64 + s * STEP_COLUMNS);
            UNROLL for (int p = 0; p < P; p++) dot4(&sums[r][p], v[p], x);
        }
    }
    UNROLL for (int p = 0; p < P; p++) {
        __m512 scale = _mm512_load_ps(t->scale[p]), bias = _mm512_load_ps(t->bias[p]);
        UNROLL for (int r = 0; r < R; r++) {
            float *acc = t->acc[row + r] + p * LANES;
            _mm512_store_ps(acc, scaled(_mm512_load_ps(acc), sums[r][p], scale, bias, sx[r], total[r]));
        }
    }
}
INLINE void many(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, const uint8_t *panel, const int bits,
                 const int columns, const int P) {
    const int steps = columns / STEP_COLUMNS;
    const size_t stride = panel_bytes(w), unit = unit_bytes(w), scales = unit_scales(w), block = block_bytes(w),
                 size = LANES * weft_dtype_size(w->dtype);
    scratch t __attribute__((aligned(64)));
    for (int r = 0; r < rows; r++) memset(t.acc[r], 0, (size_t)P * LANES * sizeof(float));
    for (int c = 0; c < (int)w->k; c += w->group, panel += unit) {
        UNROLL for (int p = 0; p < P; p++) {
            const uint8_t *at = panel + (size_t)p * stride;
            for (size_t i = 0; i < unit; i += 64) _mm_prefetch((const char *)at + AHEAD + i, _MM_HINT_T1);
            _mm512_store_ps(t.scale[p], sixteen(w->dtype, at + scales));
            _mm512_store_ps(t.bias[p], sixteen(w->dtype, at + scales + size));
        }
        for (int b = 0; b < w->group; b += columns) {
            const int at = c + b;
            UNROLL for (int p = 0; p < P; p++) {
                const uint8_t *from = panel + (size_t)p * stride + (size_t)(b / columns) * block;
                for (int v = 0; v < turns(bits, steps); v++)
                    UNROLL for (int ahead = 0; ahead < steps; ahead += turns(bits, steps))
                        _mm512_store_si512(t.codes[p][v + ahead], step_vector(from, bits, steps, v, ahead));
            }
            for (int r = 0; r < rows;) {
                size_t in = (size_t)(r / 16 * a->blocks + at / 64);
                const int8_t *q = a->q + (in * 16 + (size_t)(r % 16)) * 64 + at % 64;
                const float *sx = a->scale + in * 16 + r % 16, *total = sums_of(a, in, at, columns) + r % 16;
                if (rows - r >= 4)
                    many_tile(&t, r, q, sx, total, steps, 4, P), r += 4;
                else if (rows - r >= 2)
                    many_tile(&t, r, q, sx, total, steps, 2, P), r += 2;
                else
                    many_tile(&t, r, q, sx, total, steps, 1, P), r++;
            }
        }
    }
    for (int r = 0; r < rows; r++) memcpy(y + (size_t)r * ldy, t.acc[r], (size_t)P * LANES * sizeof(float));
}

/* ---- by width ------------------------------------------------------------------------------------------------------------ */

WIDTHS(FEW_ROWS)
WIDTHS(MANY_ROWS)

static void affine(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, int64_t panel, int panels) {
    static const affine_kernel few_kernels[2][9] = WIDTH_TABLE(few), many_kernels[2][9] = WIDTH_TABLE(many);
    (rows <= 2 * FEW ? few_kernels : many_kernels)[w->group > 32][w->bits](y, ldy, a, rows, w, panel, panels);
}
static void plain(float *y, size_t ldy, const float *const *x, int rows, const weft_mat *w, int64_t panel, int panels) {
    weft_linear_kernels_v4.plain(y, ldy, x, rows, w, panel, panels);
}

const weft_linear_kernels weft_linear_avx512_vnni = {.quantize = quantize, .affine = affine, .plain = plain};

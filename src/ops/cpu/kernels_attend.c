/* kernels_attend.c: keys and values in tiles (kv.h): writing them, scores, weighted values. See kernels.h for the arithmetic.
 *
 * Keys are lanes in scores, dimensions are lanes in values; a query's number is spread over them. So an output is one chain of
 * fused products in its own lane, whatever is computed beside it. R queries by C vectors of outputs stay in registers. */
#include "ops/cpu/kv.h"
#include "ops/cpu/tile_lanes.h"

#define GROUP ATTEND_GROUP
#define MAX_C 8
/* Vectors of outputs for R queries, by the registers there are; eight queries at a time only where vectors are widest. */
#if W == 16 || defined(__aarch64__)
#define C4 4
#define C2 4
#elif W == 8
#define C4 2
#define C2 4
#else
#define C2 2 /* four queries would not pay: a fused product is many instructions here */
#endif

/* ---- elements ------------------------------------------------------------------------------------------------------------ */

/* Element i of every lane, exactly. */
INLINE vf element(vu line, const int i, const kv_type type) {
    if (type == KV_BF16) return (vf)(i ? line & 0xffff0000u : line << 16);
    return __builtin_convertvector((vi)(line << (unsigned)(24 - 8 * i)) >> 24, vf);
}

INLINE void store_bits(uint32_t *p, vu x) {
    memcpy(p, &x, sizeof x);
}

/* BF16 in the low half of each lane, rounded to nearest, ties to even; NaN stays NaN. */
INLINE vu to_bf16(vf x) {
    vu u = (vu)x;
    vu rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (vu)select(x == x, (vf)rounded, (vf)((u >> 16) | 0x40u));
}
static void store_k_bf16(uint8_t *k, int row, const float *x, int dim) {
    uint8_t *to = k + k_at(KV_BF16, dim, row, 0);
    for (int d = 0; d < dim; d += W) {
        uint32_t half[W];
        store_bits(half, to_bf16(load_n(x + d, dim - d)));
        for (int i = 0; i < W && d + i < dim; i += 2, to += KV_LINE) {
            uint32_t two = half[i] | half[i + 1] << 16;
            memcpy(to, &two, sizeof two);
        }
    }
}
static void store_v_bf16(uint8_t *v, int row, const float *x, int dim) {
    uint8_t *to = v + v_at(KV_BF16, dim, row, 0);
    for (int d = 0; d < dim; d += W) {
        uint32_t half[W];
        store_bits(half, to_bf16(load_n(x + d, dim - d)));
        uint8_t *block = to + (size_t)(d / LANES) * KV_TILE + (size_t)(d % LANES) * 4;
        for (int i = 0; i < W && d + i < dim; i++) {
            uint16_t one = (uint16_t)half[i];
            memcpy(block + i * 4, &one, sizeof one);
        }
    }
}

/* The scale of a row, and what to multiply by: the rule of weft_linear_kernels.quantize. */
INLINE float int8_scale(const float *x, int dim, float *inverse) {
    vf top = splat(0.0f), zero = top; /* zero: stays 0 unless x holds NaN or infinity */
    for (int d = 0; d < dim; d += W) {
        vf v = load_n(x + d, dim - d);
        top = max2((vf)((vi)v & 0x7fffffff), top);
        zero += v * splat(0.0f);
    }
    float most = 0;
    bool finite = true;
    for (int i = 0; i < W; i++) {
        most = top[i] > most ? top[i] : most;
        finite = finite && zero[i] == 0.0f;
    }
    *inverse = 0;
    if (!finite) return __builtin_nanf("");
    if (most < 0x1p-100f) return 0;
    *inverse = 127 / most;
    return most / 127;
}
INLINE void int8_codes(uint32_t code[W], const float *x, int n, float inverse) {
    const vf magic = splat(12582912.0f);
    vf r = load_n(x, n) * splat(inverse) + magic; /* rounds to even; at most 127, as 127 / most is rounded once */
    store_bits(code, inverse != 0 ? ((vu)r - (vu)magic) & 255u : (vu){0});
}
static void store_k_int8(uint8_t *k, int row, const float *x, int dim) {
    float inverse, scale = int8_scale(x, dim, &inverse);
    memcpy(k + k_scales(dim) + (size_t)row * sizeof scale, &scale, sizeof scale);
    uint8_t *to = k + k_at(KV_INT8, dim, row, 0);
    for (int d = 0; d < dim; d += W) {
        uint32_t code[W];
        int8_codes(code, x + d, dim - d, inverse);
        for (int i = 0; i < W && d + i < dim; i += 4, to += KV_LINE) {
            uint32_t four = code[i] | code[i + 1] << 8 | code[i + 2] << 16 | code[i + 3] << 24;
            memcpy(to, &four, sizeof four);
        }
    }
}
static void store_v_int8(uint8_t *v, int row, const float *x, int dim) {
    float inverse, scale = int8_scale(x, dim, &inverse);
    memcpy(v + v_scales(dim) + (size_t)row * sizeof scale, &scale, sizeof scale);
    uint8_t *to = v + v_at(KV_INT8, dim, row, 0);
    for (int d = 0; d < dim; d += W) {
        uint32_t code[W];
        int8_codes(code, x + d, dim - d, inverse);
        uint8_t *block = to + (size_t)(d / LANES) * KV_TILE + (size_t)(d % LANES) * 4;
        for (int i = 0; i < W && d + i < dim; i++) block[i * 4] = (uint8_t)code[i];
    }
}

/* ---- scores -------------------------------------------------------------------------------------------------------------- */

/* R queries by the keys of C vectors, from vector `first` of a page. */
INLINE void score_tile(float *s, size_t lds, const float *q, const uint8_t *k, int first, int dim, const uint8_t *next,
                       const kv_type type, const int R, const int C) {
    const int each = kv_each(type);
    const size_t stride = k_stride(type, dim);
    const uint8_t *at[MAX_C];
    vf acc[GROUP][MAX_C];
    next += (size_t)(first / PARTS) * stride;
    UNROLL for (int c = 0; c < C; c++) at[c] = k + (size_t)((first + c) / PARTS) * stride + (first + c) % PARTS * (W * 4);
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = splat(0.0f);
    for (int d = 0; d < dim; d += each) {
        vu line[MAX_C];
        UNROLL for (int c = 0; c < C; c++) {
            line[c] = load_words(at[c]);
            if ((first + c) % PARTS == 0) {
                __builtin_prefetch(next);
                next += KV_LINE;
            }
            at[c] += KV_LINE;
        }
        UNROLL for (int i = 0; i < each; i++) {
            vf x[MAX_C];
            UNROLL for (int c = 0; c < C; c++) x[c] = element(line[c], i, type);
            UNROLL for (int r = 0; r < R; r++) {
                vf y = splat(q[i * GROUP + r]);
                UNROLL for (int c = 0; c < C; c++) acc[r][c] = vfma(y, x[c], acc[r][c]);
            }
        }
        q += each * GROUP;
    }
    UNROLL for (int c = 0; c < C; c++) {
        vf scale = type == KV_INT8 ? load((const float *)(const void *)(k + k_scales(dim)) + (first + c) * W) : splat(1.0f);
        UNROLL for (int r = 0; r < R; r++)
            store(s + (size_t)r * lds + (first + c) * W, type == KV_INT8 ? acc[r][c] * scale : acc[r][c]);
    }
}
INLINE void score_rows(float *s, size_t lds, const float *q, const uint8_t *k, int keys, int dim, const uint8_t *next,
                       const kv_type type, const int R, const int C) {
    for (int v = 0; v * W < keys; v += C) score_tile(s, lds, q, k, v, dim, next, type, R, C);
}
INLINE void scores(float *s, size_t lds, const float *q, int rows, const uint8_t *k, int keys, int dim, const uint8_t *next,
                   const kv_type type) {
#if W == 16
    if (rows == 8) {
        score_rows(s, lds, q, k, keys, dim, next, type, 8, 2);
        return;
    }
#endif
    int r = 0;
#ifdef C4
    for (; r + 4 <= rows; r += 4) score_rows(s + (size_t)r * lds, lds, q + r, k, keys, dim, next, type, 4, C4);
#endif
    for (; r + 2 <= rows; r += 2) score_rows(s + (size_t)r * lds, lds, q + r, k, keys, dim, next, type, 2, C2);
    if (r < rows) score_rows(s + (size_t)r * lds, lds, q + r, k, keys, dim, next, type, 1, W == 16 ? 4 : 8);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

/* R queries by C vectors of dimensions, from dimension d. */
INLINE void value_tile(float *o, size_t ldo, const float *p, size_t ldp, const uint8_t *v, int from, int to, int d, int dim,
                       const uint8_t *next, const kv_type type, const int R, const int C) {
    const int each = kv_each(type);
    const size_t stride = v_stride(dim);
    vf acc[GROUP][MAX_C];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = load(o + (size_t)r * ldo + d + c * W);
    v += (size_t)(d / LANES) * KV_TILE + (size_t)(d % LANES) * 4;
    next += (size_t)(d / LANES) * (WEFT_PAGE_ROWS / (unsigned)each) * KV_LINE;
    for (int n = from / each; n * each < to; n++) {
        const uint8_t *at = v + (size_t)(n / 16) * stride + (size_t)(n % 16) * KV_LINE;
        const float *pn = p + n * each;
        vu line[MAX_C];
        UNROLL for (int c = 0; c < C; c++) {
            const uint8_t *ac = at + c / PARTS * KV_TILE + c % PARTS * (W * 4);
            line[c] = load_words(ac);
            if (c % PARTS == 0) {
                __builtin_prefetch(next);
                next += KV_LINE;
            }
        }
        if (n * each >= from && n * each + each <= to) {
            UNROLL for (int i = 0; i < each; i++) {
                vf x[MAX_C];
                UNROLL for (int c = 0; c < C; c++) x[c] = element(line[c], i, type);
                UNROLL for (int r = 0; r < R; r++) {
                    vf y = splat(pn[(size_t)r * ldp + (size_t)i]);
                    UNROLL for (int c = 0; c < C; c++) acc[r][c] = vfma(y, x[c], acc[r][c]);
                }
            }
        } else
            for (int i = 0; i < each; i++) { /* keys that are not asked for must not be multiplied: they may be NaN */
                if (n * each + i < from || n * each + i >= to) continue;
                UNROLL for (int c = 0; c < C; c++) {
                    vf x = element(line[c], i, type);
                    UNROLL for (int r = 0; r < R; r++) acc[r][c] = vfma(splat(pn[(size_t)r * ldp + (size_t)i]), x, acc[r][c]);
                }
            }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) store(o + (size_t)r * ldo + d + c * W, acc[r][c]);
}
INLINE void value_rows(float *o, size_t ldo, const float *p, size_t ldp, const uint8_t *v, int from, int to, int dim,
                       const uint8_t *next, const kv_type type, const int R, const int C) {
    int d = 0;
    for (; d + C * W <= ROUND16(dim); d += C * W) value_tile(o, ldo, p, ldp, v, from, to, d, dim, next, type, R, C);
    for (; d < dim; d += W) value_tile(o, ldo, p, ldp, v, from, to, d, dim, next, type, R, 1);
}
INLINE void values(float *o, size_t ldo, const float *p, size_t ldp, int rows, const uint8_t *v, int from, int to, int dim,
                   const uint8_t *next, const kv_type type) {
    float scaled[GROUP * WEFT_PAGE_ROWS];
    if (type == KV_INT8) { /* p times the value's scale */
        const float *scale = (const float *)(const void *)(v + v_scales(dim));
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < WEFT_PAGE_ROWS; j += W)
                store(scaled + r * WEFT_PAGE_ROWS + j, load(p + (size_t)r * ldp + j) * load(scale + j));
        p = scaled;
        ldp = WEFT_PAGE_ROWS;
    }
    int r = 0;
#if W == 16
    if (rows == 8) {
        value_rows(o, ldo, p, ldp, v, from, to, dim, next, type, 8, 2);
        return;
    }
#endif
#ifdef C4
    for (; r + 4 <= rows; r += 4)
        value_rows(o + (size_t)r * ldo, ldo, p + (size_t)r * ldp, ldp, v, from, to, dim, next, type, 4, C4);
#endif
    for (; r + 2 <= rows; r += 2)
        value_rows(o + (size_t)r * ldo, ldo, p + (size_t)r * ldp, ldp, v, from, to, dim, next, type, 2, C2);
    if (r < rows) value_rows(o + (size_t)r * ldo, ldo, p + (size_t)r * ldp, ldp, v, from, to, dim, next, type, 1, 4);
}

#define KV_KERNELS(name, type)                                                                                                     \
    static void scores_##name(float *s, size_t lds, const float *q, int rows, const uint8_t *k, int keys, int dim,                 \
                              const uint8_t *next) {                                                                               \
        scores(s, lds, q, rows, k, keys, dim, next, type);                                                                         \
    }                                                                                                                              \
    static void values_##name(float *o, size_t ldo, const float *p, size_t ldp, int rows, const uint8_t *v, int from, int to,      \
                              int dim, const uint8_t *next) {                                                                      \
        values(o, ldo, p, ldp, rows, v, from, to, dim, next, type);                                                                \
    }
KV_KERNELS(bf16, KV_BF16)
KV_KERNELS(int8, KV_INT8)

const weft_attend_kernels WEFT_COPY(weft_attend_kernels) = {
    .kv = {[KV_BF16] = {store_k_bf16, store_v_bf16, scores_bf16, values_bf16},
           [KV_INT8] = {store_k_int8, store_v_int8, scores_int8, values_int8}},
};

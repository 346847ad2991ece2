/* kernels.c: see kernels.h. Compiled several times; WEFT_KERNELS names the table of this copy. Everything but the table is static,
 * so that no copy for a wider vector unit can win at link time.
 *
 * A vector has W lanes, as many as the vector unit: compilers keep wider ones in memory. What treats elements for themselves does
 * not show W. A sum runs in 16 lanes, PARTS vectors, and ends in one tree: lane l with l + 8, then 4, 2, 1. */
#include <string.h>

#include "ops/cpu/kernels.h"

#ifndef WEFT_KERNELS
#define WEFT_KERNELS weft_kernels_base
#endif
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
#define WIDTH_NAME "reference-512"
#elif defined(__AVX2__)
#define W 8
#define TILE_ROWS 2 /* 8 of 16 registers hold sums */
#define WIDTH_NAME "reference-256"
#else
#define W 4
#define TILE_ROWS 2
#define WIDTH_NAME "reference-128"
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
INLINE vf max2(vf a, vf b) {
    return select(a > b, a, b);
}
INLINE vf min2(vf a, vf b) {
    return select(a < b, a, b);
}

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
/* ln(1 + e^x); log1p(y) = log(u) y / (u - 1) with u = 1 + y keeps small y exact. */
INLINE vf vsoftplus(vf x) {
    vf y = vexp(x), u = splat(1.0f) + y;
    vf small = u - splat(1.0f);
    vf l = select(small == splat(0.0f), y, vlog(u) * y / select(small == splat(0.0f), splat(1.0f), small));
    return select(x > splat(20.0f), x, l);
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

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
INLINE vf stored(weft_dtype t, const uint8_t *p, int i) { /* scale or bias i in all lanes */
    if (t == WEFT_F32) {
        float x;
        memcpy(&x, p + (size_t)i * 4, 4);
        return splat(x);
    }
    uint16_t h;
    memcpy(&h, p + (size_t)i * 2, 2);
    vu x = (vu){0} + h;
    return t == WEFT_BF16 ? (vf)(x << 16) : from_f16(x);
}
INLINE vu load_words(const uint8_t *p) {
    vu x;
    memcpy(&x, p, sizeof x);
    return x;
}
/* Rows follow one another in memory, and the next ones are wanted soon: with one row at a time this is half of the work's speed. */
INLINE void prefetch(const uint8_t *p) {
    __builtin_prefetch(p + 4096);
}

INLINE void unpack_codes(float *dst, const weft_mat *w, const uint8_t *row, const int field) {
    const int in_word = 32 / field;
    int k = (int)w->k, group_shift = __builtin_ctz((unsigned)w->group); /* 32, 64 or 128 */
    vf scale = splat(0), bias = scale;
    const uint8_t *block = row;
    for (int c = 0; c < k; c += LANES * in_word, block += BLOCK_BYTES) {
        vu words[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++) words[p] = load_words(block + p * W * 4);
        prefetch(block);
        UNROLL for (int j = 0; j < in_word; j++) {
            int at = c + j * LANES;
            if (at >= k) return;
            if (at >> group_shift << group_shift == at) {
                scale = stored(w->dtype, row + w->scale_at, at >> group_shift);
                bias = stored(w->dtype, row + w->bias_at, at >> group_shift);
            }
            UNROLL for (int p = 0; p < PARTS; p++) {
                vi code = (vi)(words[p] >> (unsigned)(j * field) & ((1u << field) - 1));
                store(dst + at + p * W, __builtin_convertvector(code, vf) * scale + bias);
            }
        }
    }
}
INLINE void unpack_halves(float *dst, const weft_mat *w, const uint8_t *row, const bool bf16) {
    for (int c = 0; c < (int)w->k; c += 2 * LANES) {
        const uint8_t *block = row + (size_t)c * 2;
        prefetch(block);
        UNROLL for (int p = 0; p < PARTS; p++) {
            vu x = load_words(block + p * W * 4);
            store(dst + c + p * W, bf16 ? (vf)(x << 16) : from_f16(x & 0xffff));
            if (c + LANES < (int)w->k) store(dst + c + LANES + p * W, bf16 ? (vf)(x & 0xffff0000) : from_f16(x >> 16));
        }
    }
}
static void unpack(float *dst, const weft_mat *w, int64_t r) {
    const uint8_t *row = w->data + (size_t)r * w->row_bytes;
    switch (w->field) { /* what lies between k and the block's end is zero in memory and 0.0 as a value */
    case 2: unpack_codes(dst, w, row, 2); break;
    case 4: unpack_codes(dst, w, row, 4); break;
    case 8: unpack_codes(dst, w, row, 8); break;
    case 16: w->dtype == WEFT_BF16 ? unpack_halves(dst, w, row, true) : unpack_halves(dst, w, row, false); break;
    default: memcpy(dst, row, (size_t)ROUND16((int)w->k) * sizeof *dst);
    }
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

/* R rows by O outputs, the lanes of one part at a time, so that all sums of a part stay in registers. */
INLINE void tile(float *y, size_t ldy, const float *const *x, const float *w, size_t ldw, int k, const int R, const int O) {
    sum16 s[TILE_ROWS][LONE_OUTS];
    UNROLL for (int p = 0; p < PARTS; p++) {
        vf acc[TILE_ROWS][LONE_OUTS];
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int o = 0; o < O; o++) acc[r][o] = splat(0.0f);
        for (int i = p * W; i < k; i += LANES) {
            vf wv[LONE_OUTS];
            UNROLL for (int o = 0; o < O; o++) wv[o] = load(w + (size_t)o * ldw + i);
            UNROLL for (int r = 0; r < R; r++) {
                vf xv = load(x[r] + i);
                UNROLL for (int o = 0; o < O; o++) acc[r][o] += xv * wv[o];
            }
        }
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int o = 0; o < O; o++) s[r][o].part[p] = acc[r][o];
    }
    UNROLL for (int r = 0; r < R; r++) {
        float *out = y + (size_t)r * ldy;
        if (O == 1)
            out[0] = sum(s[r][0]);
        else
            UNROLL for (int o = 0; o < O; o += 4) {
                vf4 four = sum4(s[r][o], s[r][o + 1], s[r][o + 2], s[r][o + 3]);
                memcpy(out + o, &four, sizeof four);
            }
    }
}
INLINE void tile_row(float *y, size_t ldy, const float *const *x, const float *w, size_t ldw, int outs, int k, const int R) {
    int o = 0;
    if (R == 1)
        for (; o + LONE_OUTS <= outs; o += LONE_OUTS) tile(y + o, ldy, x, w + (size_t)o * ldw, ldw, k, R, LONE_OUTS);
    for (; o + TILE_OUTS <= outs; o += TILE_OUTS) tile(y + o, ldy, x, w + (size_t)o * ldw, ldw, k, R, TILE_OUTS);
    for (; o < outs; o++) tile(y + o, ldy, x, w + (size_t)o * ldw, ldw, k, R, 1);
}
static void dot(float *y, size_t ldy, const float *const *x, int rows, const float *w, size_t ldw, int outs, int k) {
    int r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS) tile_row(y + (size_t)r * ldy, ldy, x + r, w, ldw, outs, k, TILE_ROWS);
    for (; r + 2 <= rows; r += 2) tile_row(y + (size_t)r * ldy, ldy, x + r, w, ldw, outs, k, 2);
    if (r < rows) tile_row(y + (size_t)r * ldy, ldy, x + r, w, ldw, outs, k, 1);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

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
static void norm(float *y, const float *x, const float *z, const float *gain, int n, int width, float eps) {
    for (int g = 0; g < n; g += width) {
        vf r = splat(inverse_sqrt(square_sum(x + g, width) / (float)width + eps));
        for (int i = 0; i < width; i += W) {
            vf v = load_n(x + g + i, width - i) * r * load_n(gain + i, width - i);
            if (z) v = v * vsilu(load_n(z + g + i, width - i));
            store_n(y + g + i, v, width - i);
        }
    }
}
static void add(float *y, const float *x, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) + load_n(x + i, n - i), n - i);
}
static void add_scaled(float *y, const float *x, float a, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) + splat(a) * load_n(x + i, n - i), n - i);
}
static void glu(float *y, const float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, vsilu(load_n(gate + i, n - i)) * load_n(up + i, n - i), n - i);
}
static void gate(float *y, const float *g, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) * vsigmoid(load_n(g + i, n - i)), n - i);
}
static void scale_sigmoid(float *y, float g, int n) {
    vf s = vsigmoid(splat(g));
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) * s, n - i);
}
static void rotate(float *x, const float *c, const float *s, int n) {
    for (int j = 0; j < n; j += W) {
        vf a = load_n(x + j, n - j), b = load_n(x + n + j, n - j), cj = load_n(c + j, n - j), sj = load_n(s + j, n - j);
        store_n(x + j, a * cj - b * sj, n - j);
        store_n(x + n + j, b * cj + a * sj, n - j);
    }
}

/* ---- attention ----------------------------------------------------------------------------------------------------------- */

static float chunk_exp(float *s, int n, float scale, float *total) {
    const float inf = __builtin_inff();
    vf m = splat(-inf);
    for (int i = n; i < ROUND16(n); i++) s[i] = -inf;
    for (int i = 0; i < n; i += W) {
        vf x = load(s + i) * splat(scale);
        store(s + i, x);
        m = max2(x, m); /* NaN scores lose here and return in exp below */
    }
    float best = -inf;
    for (int i = 0; i < W; i++) best = m[i] > best ? m[i] : best;
    sum16 t;
    UNROLL for (int p = 0; p < PARTS; p++) t.part[p] = splat(0.0f);
    for (int i = 0; i < n; i += LANES) UNROLL for (int p = 0; p < PARTS; p++) {
            vf e = vexp(load(s + i + p * W) - splat(best));
            store(s + i + p * W, e);
            t.part[p] += e;
        }
    *total = sum(t);
    return best;
}
static void softmax(float *p, int n) {
    float total;
    chunk_exp(p, n, 1, &total);
    for (int i = 0; i < ROUND16(n); i += W) store(p + i, load(p + i) / splat(total));
}

/* R rows by C vectors of columns in registers, over all keys. */
INLINE void values_tile(float *o, size_t ldo, const float *p, size_t ldp, const float *v, int keys, int ld, const int R,
                        const int C) {
    vf acc[TILE_ROWS][LONE_COLUMNS];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) acc[r][c] = load(o + (size_t)r * ldo + c * W);
    for (int j = 0; j < keys; j++) {
        vf vj[LONE_COLUMNS];
        UNROLL for (int c = 0; c < C; c++) vj[c] = load(v + (size_t)j * (size_t)ld + c * W);
        UNROLL for (int r = 0; r < R; r++) {
            vf x = splat(p[(size_t)r * ldp + (size_t)j]);
            UNROLL for (int c = 0; c < C; c++) acc[r][c] += x * vj[c];
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) store(o + (size_t)r * ldo + c * W, acc[r][c]);
}
INLINE void values_rows(float *o, size_t ldo, const float *p, size_t ldp, const float *v, int keys, int ld, const int R,
                        const int C) {
    int i = 0;
    for (; i + C * W <= ld; i += C * W) values_tile(o + i, ldo, p, ldp, v + i, keys, ld, R, C);
    for (; i < ld; i += W) values_tile(o + i, ldo, p, ldp, v + i, keys, ld, R, 1);
}
static void values(float *o, size_t ldo, const float *p, size_t ldp, int rows, const float *v, int keys, int ld) {
    int r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        values_rows(o + (size_t)r * ldo, ldo, p + (size_t)r * ldp, ldp, v, keys, ld, TILE_ROWS, TILE_OUTS);
    for (; r + 2 <= rows; r += 2) values_rows(o + (size_t)r * ldo, ldo, p + (size_t)r * ldp, ldp, v, keys, ld, 2, TILE_OUTS);
    if (r < rows) values_rows(o + (size_t)r * ldo, ldo, p + (size_t)r * ldp, ldp, v, keys, ld, 1, LONE_COLUMNS);
}
static void merge(float *m, float *l, float *o, float cm, float cl, const float *co, int ld) {
    if (*l == 0.0f) {
        *m = cm;
        *l = cl;
        memcpy(o, co, (size_t)ld * sizeof *o);
        return;
    }
    float top = *m > cm ? *m : cm;
    vf a = vexp(splat(*m - top)), b = vexp(splat(cm - top));
    *m = top;
    *l = *l * a[0] + cl * b[0];
    for (int i = 0; i < ld; i += W) store(o + i, load(o + i) * a + load(co + i) * b);
}

/* ---- Gated DeltaNet ------------------------------------------------------------------------------------------------------ */

static void conv(float *y, const float *const *raw, int taps, const float *w, size_t ldw, int channels) {
    for (int i = 0; i < channels; i += W) {
        vf a = load(raw[0] + i) * load(w + i);
        for (int t = 1; t < taps; t++) a += load(raw[t] + i) * load(w + (size_t)t * ldw + i);
        store(y + i, vsilu(a));
    }
}
static void unit(float *x, int n, float length) {
    vf r = splat(inverse_sqrt(square_sum(x, n) + 1e-6f) * length);
    for (int i = 0; i < n; i += W) store_n(x + i, load_n(x + i, n - i) * r, n - i);
}
static void gdn_gates(float *a, float *b, const float *alpha, const float *beta, const float *decay, const float *dt_bias, int n) {
    for (int i = 0; i < n; i += W) {
        vf t = load_n(alpha + i, n - i) + load(dt_bias + i);
        store_n(a + i, vexp(load(decay + i) * vsoftplus(t)), n - i);
        store_n(b + i, vsigmoid(load_n(beta + i, n - i)), n - i);
    }
}
/* Two sweeps over S, W columns at a time: S'k of the decayed S, then decay, rank-1 term and S'q; sums over k in four interleaved
 * chains. */
static void gdn_token(float *state, float *d, float *y, const float *q, const float *k, const float *v, float a, float b,
                      int k_dim) {
    vf av = splat(a);
    for (int p = 0; p < LANES; p += W) {
        float *s = state + p;
        vf m[4], o[4];
        UNROLL for (int j = 0; j < 4; j++) m[j] = o[j] = splat(0.0f);
        int i = 0;
        for (; i + 4 <= k_dim; i += 4) UNROLL for (int j = 0; j < 4; j++) m[j] += load(s + (i + j) * LANES) * av * splat(k[i + j]);
        for (int j = 0; i < k_dim; i++, j++) m[j] += load(s + i * LANES) * av * splat(k[i]);
        vf dv = splat(b) * (load(v + p) - ((m[0] + m[1]) + (m[2] + m[3])));
        store(d + p, dv);
        for (i = 0; i + 4 <= k_dim; i += 4) UNROLL for (int j = 0; j < 4; j++) {
                vf x = load(s + (i + j) * LANES) * av + splat(k[i + j]) * dv;
                store(s + (i + j) * LANES, x);
                o[j] += x * splat(q[i + j]);
            }
        for (int j = 0; i < k_dim; i++, j++) {
            vf x = load(s + i * LANES) * av + splat(k[i]) * dv;
            store(s + i * LANES, x);
            o[j] += x * splat(q[i]);
        }
        store(y + p, (o[0] + o[1]) + (o[2] + o[3]));
    }
}
static void gdn_replay(float *s, const float *d, const float *k, float a, int k_dim) {
    for (int i = 0; i < k_dim; i++)
        for (int p = 0; p < LANES; p += W) store(s + i * LANES + p, load(s + i * LANES + p) * splat(a) + splat(k[i]) * load(d + p));
}

const weft_kernels WEFT_KERNELS = {
    .name = WIDTH_NAME,
    .unpack = unpack,
    .dot = dot,
    .norm = norm,
    .add = add,
    .add_scaled = add_scaled,
    .glu = glu,
    .gate = gate,
    .scale_sigmoid = scale_sigmoid,
    .softmax = softmax,
    .rotate = rotate,
    .chunk_exp = chunk_exp,
    .values = values,
    .merge = merge,
    .conv = conv,
    .unit = unit,
    .gdn_gates = gdn_gates,
    .gdn_token = gdn_token,
    .gdn_replay = gdn_replay,
};

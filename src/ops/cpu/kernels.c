/* kernels.c: see kernels.h. Compiled several times; WEFT_KERNELS names the table of this copy. Everything but the table is static,
 * so that no copy for a wider vector unit can win at link time. */
#include <string.h>

#include "ops/cpu/kernels.h"

#ifndef WEFT_KERNELS
#define WEFT_KERNELS weft_kernels_base
#endif
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between inlined functions only */
#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define TILE_ROWS 4
#define TILE_OUTS 4
#define WIDTH_NAME "reference-512"
#elif defined(__AVX2__)
#define TILE_ROWS 2
#define TILE_OUTS 2
#define WIDTH_NAME "reference-256"
#else
#define TILE_ROWS 2
#define TILE_OUTS 2
#define WIDTH_NAME "reference-128"
#endif

/* ---- 16 lanes ---------------------------------------------------------------------------------------------------------------- */

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef float vf8 __attribute__((vector_size(32)));
typedef float vf4 __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(64))); /* also for sums that may wrap in lanes that a select drops */

INLINE vf load(const float *p) {
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void store(float *p, vf x) { memcpy(p, &x, sizeof x); }
INLINE vf splat(float x) { return (vf){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINE vf select(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
/* The first n (1..16) of p, zeros behind. */
INLINE vf load_n(const float *p, int n) {
    if (n == LANES) return load(p);
    float t[LANES] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return load(t);
}
INLINE void store_n(float *p, vf x, int n) {
    if (n == LANES)
        store(p, x);
    else
        memcpy(p, &x, (size_t)n * sizeof *p);
}
/* The fixed tree: lane l + lane l + 8, then 4, 2, 1. */
INLINE float sum(vf x) {
    vf8 a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, (const char *)&x + sizeof a, sizeof b);
    a += b;
    vf4 c, d;
    memcpy(&c, &a, sizeof c);
    memcpy(&d, (const char *)&a + sizeof c, sizeof d);
    c += d;
    float e = c[0] + c[2], f = c[1] + c[3];
    return e + f;
}
INLINE vf max2(vf a, vf b) { return select(a > b, a, b); }
INLINE vf min2(vf a, vf b) { return select(a < b, a, b); }

/* ---- elementary functions ------------------------------------------------------------------------------------------------------ */

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
INLINE vf vsigmoid(vf x) { return splat(1.0f) / (splat(1.0f) + vexp(-x)); }
INLINE vf vsilu(vf x) { return x / (splat(1.0f) + vexp(-x)); }
/* ln(1 + e^x); log1p(y) = log(u) y / (u - 1) with u = 1 + y keeps small y exact. */
INLINE vf vsoftplus(vf x) {
    vf y = vexp(x), u = splat(1.0f) + y;
    vf small = u - splat(1.0f);
    vf l = select(small == splat(0.0f), y, vlog(u) * y / select(small == splat(0.0f), splat(1.0f), small));
    return select(x > splat(20.0f), x, l);
}

/* ---- weights --------------------------------------------------------------------------------------------------------------------- */

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
INLINE vu load_words(const uint8_t *p) {
    vu x;
    memcpy(&x, p, sizeof x);
    return x;
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

/* The j-th field of `field` bits of each word, as float32: a 16-bit value, or a code. */
INLINE vf value16(weft_dtype t, vu w, int j) {
    if (t == WEFT_BF16) return (vf)(j ? w & 0xffff0000u : w << 16);
    return from_f16(j ? w >> 16 : w & 0xffffu);
}
INLINE void unpack_codes(float *dst, const weft_mat *w, const uint8_t *p, const int field) {
    const uint8_t *sp = p + w->scale_at, *bp = p + w->bias_at;
    int k = (int)w->k, columns = LANES * 32 / field;
    vf s = splat(0), b = s;
    for (int c = 0; c < k; c += columns) {
        vu words = load_words(p + (size_t)(c / columns) * BLOCK_BYTES);
#pragma GCC unroll 16
        for (int j = 0; j < 32 / field; j++) {
            int at = c + j * LANES;
            if (at >= k) break;
            if (at % w->group == 0) {
                s = stored(w->dtype, sp, at / w->group);
                b = stored(w->dtype, bp, at / w->group);
            }
            vi code = (vi)(words >> (unsigned)(j * field) & ((1u << field) - 1));
            store(dst + at, __builtin_convertvector(code, vf) * s + b);
        }
    }
}
static void unpack(float *dst, const weft_mat *w, int64_t row) {
    const uint8_t *p = w->data + (size_t)row * w->row_bytes;
    int k = (int)w->k; /* what lies between k and the block's end is zero in memory and 0.0 as a value */
    switch (w->field) {
    case 2: unpack_codes(dst, w, p, 2); break;
    case 4: unpack_codes(dst, w, p, 4); break;
    case 8: unpack_codes(dst, w, p, 8); break;
    case 16:
        for (int c = 0; c < k; c += 2 * LANES) {
            vu words = load_words(p + (size_t)c * 2);
            store(dst + c, value16(w->dtype, words, 0));
            if (c + LANES < k) store(dst + c + LANES, value16(w->dtype, words, 1));
        }
        break;
    default:
        for (int c = 0; c < k; c += LANES) store(dst + c, (vf)load_words(p + (size_t)c * 4));
    }
}

/* R rows by O outputs with every sum in registers. */
INLINE void tile(float *y, size_t ldy, const float *const *x, const float *w, size_t ldw, int k, const int R, const int O) {
    vf acc[TILE_ROWS][TILE_OUTS];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int o = 0; o < O; o++) acc[r][o] = splat(0.0f);
    for (int i = 0; i < k; i += LANES) {
        vf wv[TILE_OUTS];
#pragma GCC unroll 4
        for (int o = 0; o < O; o++) wv[o] = load(w + (size_t)o * ldw + i);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            vf xv = load(x[r] + i);
#pragma GCC unroll 4
            for (int o = 0; o < O; o++) acc[r][o] += xv * wv[o];
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int o = 0; o < O; o++) y[(size_t)r * ldy + (size_t)o] = sum(acc[r][o]);
}
static void dot(float *y, size_t ldy, const float *const *x, int rows, const float *w, size_t ldw, int outs, int k) {
    int r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS) {
        int o = 0;
        for (; o + TILE_OUTS <= outs; o += TILE_OUTS)
            tile(y + (size_t)r * ldy + o, ldy, x + r, w + (size_t)o * ldw, ldw, k, TILE_ROWS, TILE_OUTS);
        for (; o < outs; o++) tile(y + (size_t)r * ldy + o, ldy, x + r, w + (size_t)o * ldw, ldw, k, TILE_ROWS, 1);
    }
    for (; r < rows; r++) {
        int o = 0;
        for (; o + TILE_OUTS <= outs; o += TILE_OUTS)
            tile(y + (size_t)r * ldy + o, ldy, x + r, w + (size_t)o * ldw, ldw, k, 1, TILE_OUTS);
        for (; o < outs; o++) tile(y + (size_t)r * ldy + o, ldy, x + r, w + (size_t)o * ldw, ldw, k, 1, 1);
    }
}

/* ---- elementwise rows --------------------------------------------------------------------------------------------------------------- */

INLINE float square_sum(const float *x, int n) {
    vf s = splat(0.0f);
    int i = 0;
    for (; i + LANES <= n; i += LANES) s += load(x + i) * load(x + i);
    if (i < n) s += load_n(x + i, n - i) * load_n(x + i, n - i);
    return sum(s);
}
/* Square root and division are exact operations of IEEE 754: no library is asked (-fno-math-errno). */
INLINE float inverse_sqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
static void norm(float *y, const float *x, const float *z, const float *gain, int n, int width, float eps) {
    for (int g = 0; g < n; g += width) {
        vf r = splat(inverse_sqrt(square_sum(x + g, width) / (float)width + eps));
        for (int i = 0; i < width; i += LANES) {
            int m = width - i < LANES ? width - i : LANES;
            vf v = load_n(x + g + i, m) * r * load(gain + i);
            if (z) v = v * vsilu(load_n(z + g + i, m));
            store_n(y + g + i, v, m);
        }
    }
}
static void add(float *y, const float *x, int n) {
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        store_n(y + i, load_n(y + i, m) + load_n(x + i, m), m);
    }
}
static void add_scaled(float *y, const float *x, float a, int n) {
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        store_n(y + i, load_n(y + i, m) + splat(a) * load_n(x + i, m), m);
    }
}
static void glu(float *y, const float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        store_n(y + i, vsilu(load_n(gate + i, m)) * load_n(up + i, m), m);
    }
}
static void gate(float *y, const float *g, int n) {
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        store_n(y + i, load_n(y + i, m) * vsigmoid(load_n(g + i, m)), m);
    }
}
static void scale_sigmoid(float *y, float g, int n) {
    vf s = vsigmoid(splat(g));
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        store_n(y + i, load_n(y + i, m) * s, m);
    }
}

/* ---- attention ------------------------------------------------------------------------------------------------------------------------ */

static void scores(float *s, const float *q, const float *k, int keys, int ld, float scale) {
    int j = 0;
    for (; j + 4 <= keys; j += 4) {
        vf a = splat(0.0f), b = a, c = a, d = a;
        const float *kj = k + (size_t)j * (size_t)ld;
        for (int i = 0; i < ld; i += LANES) {
            vf x = load(q + i);
            a += x * load(kj + i);
            b += x * load(kj + ld + i);
            c += x * load(kj + 2 * ld + i);
            d += x * load(kj + 3 * ld + i);
        }
        s[j] = scale * sum(a);
        s[j + 1] = scale * sum(b);
        s[j + 2] = scale * sum(c);
        s[j + 3] = scale * sum(d);
    }
    for (; j < keys; j++) {
        vf a = splat(0.0f);
        for (int i = 0; i < ld; i += LANES) a += load(q + i) * load(k + (size_t)j * (size_t)ld + i);
        s[j] = scale * sum(a);
    }
}
INLINE float chunk_exp_inline(float *s, int n, float *total) {
    const float inf = __builtin_inff();
    for (int i = n; i < ROUND16(n); i++) s[i] = -inf;
    vf m = splat(-inf);
    for (int i = 0; i < n; i += LANES) m = max2(load(s + i), m); /* NaN scores lose here and return in exp below */
    float best = -inf;
    for (int i = 0; i < LANES; i++) best = m[i] > best ? m[i] : best;
    vf t = splat(0.0f);
    for (int i = 0; i < n; i += LANES) {
        vf p = vexp(load(s + i) - splat(best));
        store(s + i, p);
        t += p;
    }
    *total = sum(t);
    return best;
}
static float chunk_exp(float *s, int n, float *total) { return chunk_exp_inline(s, n, total); }
static void softmax(float *p, int n) {
    float total;
    chunk_exp_inline(p, n, &total);
    for (int i = 0; i < n; i += LANES) store(p + i, load(p + i) / splat(total));
}
static void values(float *o, const float *p, const float *v, int keys, int ld) {
    int i = 0;
    for (; i + 4 * LANES <= ld; i += 4 * LANES) {
        vf a = load(o + i), b = load(o + i + 16), c = load(o + i + 32), d = load(o + i + 48);
        for (int j = 0; j < keys; j++) {
            const float *vj = v + (size_t)j * (size_t)ld + i;
            vf x = splat(p[j]);
            a += x * load(vj);
            b += x * load(vj + 16);
            c += x * load(vj + 32);
            d += x * load(vj + 48);
        }
        store(o + i, a);
        store(o + i + 16, b);
        store(o + i + 32, c);
        store(o + i + 48, d);
    }
    for (; i < ld; i += LANES) {
        vf a = load(o + i);
        for (int j = 0; j < keys; j++) a += splat(p[j]) * load(v + (size_t)j * (size_t)ld + i);
        store(o + i, a);
    }
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
    for (int i = 0; i < ld; i += LANES) store(o + i, load(o + i) * a + load(co + i) * b);
}
static void rotate(float *x, const float *c, const float *s, int n) {
    for (int j = 0; j < n; j++) {
        float a = x[j], b = x[j + n];
        x[j] = a * c[j] - b * s[j];
        x[j + n] = b * c[j] + a * s[j];
    }
}

/* ---- Gated DeltaNet --------------------------------------------------------------------------------------------------------------------- */

static void conv(float *y, const float *const *raw, int taps, const float *w, size_t ldw, int channels) {
    for (int i = 0; i < channels; i += LANES) {
        vf a = load(raw[0] + i) * load(w + i);
        for (int t = 1; t < taps; t++) a += load(raw[t] + i) * load(w + (size_t)t * ldw + i);
        store(y + i, vsilu(a));
    }
}
static void unit(float *x, int n, float length) {
    vf r = splat(inverse_sqrt(square_sum(x, n) + 1e-6f) * length);
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        store_n(x + i, load_n(x + i, m) * r, m);
    }
}
static void gdn_gates(float *a, float *b, const float *alpha, const float *beta, const float *decay, const float *dt_bias, int n) {
    for (int i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? n - i : LANES;
        store_n(a + i, vexp(load(decay + i) * vsoftplus(load_n(alpha + i, m) + load(dt_bias + i))), m);
        store_n(b + i, vsigmoid(load_n(beta + i, m)), m);
    }
}
/* Two sweeps over S: decay and S'k, then the rank-1 term and S'q; sums over k in four interleaved chains. */
static void gdn_token(float *s, float *d, float *y, const float *q, const float *k, const float *v, float a, float b, int k_dim) {
    vf m[4], o[4], av = splat(a);
    for (int j = 0; j < 4; j++) m[j] = o[j] = splat(0.0f);
    int i = 0;
    for (; i + 4 <= k_dim; i += 4)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vf x = load(s + (i + j) * LANES) * av;
            store(s + (i + j) * LANES, x);
            m[j] += x * splat(k[i + j]);
        }
    for (; i < k_dim; i++) {
        vf x = load(s + i * LANES) * av;
        store(s + i * LANES, x);
        m[i & 3] += x * splat(k[i]);
    }
    vf dv = splat(b) * (load(v) - ((m[0] + m[1]) + (m[2] + m[3])));
    store(d, dv);
    i = 0;
    for (; i + 4 <= k_dim; i += 4)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vf x = load(s + (i + j) * LANES) + splat(k[i + j]) * dv;
            store(s + (i + j) * LANES, x);
            o[j] += x * splat(q[i + j]);
        }
    for (; i < k_dim; i++) {
        vf x = load(s + i * LANES) + splat(k[i]) * dv;
        store(s + i * LANES, x);
        o[i & 3] += x * splat(q[i]);
    }
    store(y, (o[0] + o[1]) + (o[2] + o[3]));
}
static void gdn_replay(float *s, const float *d, const float *k, float a, int k_dim) {
    vf dv = load(d), av = splat(a);
    for (int i = 0; i < k_dim; i++) store(s + i * LANES, load(s + i * LANES) * av + splat(k[i]) * dv);
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
    .scores = scores,
    .chunk_exp = chunk_exp,
    .values = values,
    .merge = merge,
    .rotate = rotate,
    .conv = conv,
    .unit = unit,
    .gdn_gates = gdn_gates,
    .gdn_token = gdn_token,
    .gdn_replay = gdn_replay,
};

/* kernels.c: see kernels.h: what works on rows of float32, and the float32 products and attention of the precise mode. */
#include "base/rng.h"
#include "ops/cpu/tile_lanes.h"
#include "ops/cpu/weight.h"

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* Number i of an array, in all lanes. */
INLINE vf stored(weft_dtype t, const uint8_t *p, int i) {
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
/* One row: output `out` of a panel. */
static void unpack(float *dst, const weft_mat *w, int64_t row) {
    const int out = (int)(row % w->n % LANES), k = (int)w->k;
    const uint8_t *panel = panel_at(w, row / w->n * panel_count(w) + row % w->n / LANES);
    for (int c = k; c < ROUND16(k); c++) dst[c] = 0;
    if (!w->bits) {
        for (int c = 0; c < k; c++)
            dst[c] = stored(w->dtype, panel, w->dtype == WEFT_F32 ? c * LANES + out : (c / 2 * LANES + out) * 2 + c % 2)[0];
        return;
    }
    const int columns = block_columns(w), steps = columns / STEP_COLUMNS;
    for (int c = 0; c < k; c += STEP_COLUMNS) {
        const uint8_t *unit = panel + (size_t)(c / w->group) * unit_bytes(w), *scales = unit + unit_scales(w);
        float scale = stored(w->dtype, scales, out)[0], bias = stored(w->dtype, scales, LANES + out)[0];
        uint32_t codes =
            step_codes(unit + (size_t)(c % w->group / columns) * block_bytes(w), w->bits, steps, c % columns / STEP_COLUMNS, out);
        for (int i = 0; i < STEP_COLUMNS; i++) dst[c + i] = (float)(int)(codes >> 8 * i & 255) * scale + bias;
    }
}
static void unpack_panel(float *dst, const weft_mat *w, int64_t index) {
    const uint8_t *panel = panel_at(w, index);
    const int columns = block_columns(w), steps = columns / STEP_COLUMNS;
    for (int c = 0; c < (int)w->k; c += columns) {
        const uint8_t *unit = panel + (size_t)(c / w->group) * unit_bytes(w), *scales = unit + unit_scales(w);
        const uint8_t *block = unit + (size_t)(c % w->group / columns) * block_bytes(w);
        UNROLL for (int p = 0; p < PARTS; p++) {
            vf scale = stored_part(w->dtype, scales, p);
            vf bias = stored_part(w->dtype, scales + LANES * weft_dtype_size(w->dtype), p);
            for (int s = 0; s < steps; s++) {
                vu codes = vector_codes(block, w->bits, steps, s, p);
                UNROLL for (int i = 0; i < STEP_COLUMNS; i++)
                    store(dst + (c + s * STEP_COLUMNS + i) * LANES + p * W,
                          __builtin_convertvector((vi)(codes >> (unsigned)(8 * i) & 255), vf) * scale + bias);
            }
        }
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
static void gate_norm(float *y, const float *x, const float *z, const float *gain, int n, int width, float eps) {
    for (int g = 0; g < n; g += width) {
        for (int i = g; i < g + width; i += W) {
            int left = g + width - i;
            store_n(y + i, load_n(x + i, left) * vsilu(load_n(z + i, left)), left);
        }
        vf r = splat(inverse_sqrt(square_sum(y + g, width) / (float)width + eps));
        for (int i = g; i < g + width; i += W) {
            int left = g + width - i;
            store_n(y + i, load_n(y + i, left) * r * load_n(gain + i, left), left);
        }
    }
}
static void add(float *y, const float *x, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) + load_n(x + i, n - i), n - i);
}
static void add_scaled(float *y, const float *x, float a, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) + splat(a) * load_n(x + i, n - i), n - i);
}
static void scale(float *y, float a, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) * splat(a), n - i);
}
static void cap(float *y, int n, float most) {
    for (int i = 0; i < n; i += W) store_n(y + i, splat(most) * vtanh(load_n(y + i, n - i) / splat(most)), n - i);
}
INLINE void activate_as(float *y, const float *gate, const float *up, int n, vf (*const act)(vf)) {
    for (int i = 0; i < n; i += W) {
        vf v = act(load_n(gate + i, n - i));
        if (up) v = v * load_n(up + i, n - i);
        store_n(y + i, v, n - i);
    }
}
static void activate(float *y, const float *gate, const float *up, int n, weft_activation act) {
    switch (act) {
    case WEFT_SILU: activate_as(y, gate, up, n, vsilu); break;
    case WEFT_GELU_TANH: activate_as(y, gate, up, n, vgelu_tanh); break;
    case WEFT_RELU2: activate_as(y, gate, up, n, vrelu2); break;
    }
}
static void gate(float *y, const float *g, int n) {
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) * vsigmoid(load_n(g + i, n - i)), n - i);
}
static void scale_sigmoid(float *y, float g, int n) {
    vf s = vsigmoid(splat(g));
    for (int i = 0; i < n; i += W) store_n(y + i, load_n(y + i, n - i) * s, n - i);
}
static void sigmoid(float *p, int n) {
    for (int i = 0; i < n; i += W) store_n(p + i, vsigmoid(load_n(p + i, n - i)), n - i);
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

/* ---- sampling ------------------------------------------------------------------------------------------------------------ */

static void largest(float *most, const float *x, int n) {
    for (int at = 0; at < n; at += SUPPORT_BLOCK, most++) {
        float m = -__builtin_inff();
        bool nan = false;
        int end = n - at < SUPPORT_BLOCK ? n : at + SUPPORT_BLOCK, i = at;
        if (end - at == SUPPORT_BLOCK) {
            vf best = splat(m);
            vi odd = {0};
            for (; i < end; i += W) {
                vf v = load(x + i);
                odd |= v != v;
                best = max2(v, best);
            }
            for (int l = 0; l < W; l++) {
                m = best[l] > m ? best[l] : m;
                nan |= odd[l] != 0;
            }
        }
        for (; i < end; i++) {
            m = x[i] > m ? x[i] : m;
            nan |= x[i] != x[i];
        }
        *most = nan ? __builtin_nanf("") : m;
    }
}
static void permit(float *y, const float *x, const bool *allowed, int n) {
    for (int i = 0; i < n; i++) { /* as whole numbers, which compilers choose between without a branch */
        uint32_t u, exponent = 0x7F800000u, nan = 0x7FC00000u, none = 0xFF800000u;
        memcpy(&u, x + i, sizeof u);
        u = (u & exponent) == exponent ? nan : u;
        u = allowed[i] ? u : none;
        memcpy(y + i, &u, sizeof u);
    }
}

/* Philox (rng.c), a counter in each 64-bit lane: a word is the lane's low half, whatever stands above it. */
typedef uint64_t vl __attribute__((vector_size(W * 4)));
INLINE vl mul_low(vl a, vl b) { /* of the low halves */
#if W == 16
    return (vl)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif W == 8
    return (vl)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
    return (vl)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}
typedef int32_t vh __attribute__((vector_size(W * 2))); /* ids of as many lanes */
INLINE vl column_ids(const weft_columns *c, int at) {
    if (!c->ids) {
        vl lane;
        for (int i = 0; i < W / 2; i++) lane[i] = (uint64_t)i;
        return (lane + ((uint32_t)c->first + (uint32_t)at)) & UINT32_MAX;
    }
    vh ids = {0};
    if (at + W / 2 <= c->n)
        memcpy(&ids, c->ids + at, sizeof ids);
    else
        memcpy(&ids, c->ids + at, (size_t)(c->n - at) * sizeof *c->ids);
    return __builtin_convertvector(ids, vl);
}
/* Both halves of what Philox makes of x0. */
INLINE void philox(vl x0, uint64_t seed, uint32_t choice, uint32_t index, vl half[2]) {
    const vl m0 = (vl){0} + 0xD2511F53u, m1 = (vl){0} + 0xCD9E8D57u;
    vl x1 = (vl){0} + index, x2 = (vl){0} + choice, x3 = {0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    UNROLL for (int round = 0; round < 10; round++) {
        vl a = mul_low(x0, m0), b = mul_low(x2, m1);
        x0 = (b >> 32) ^ x1 ^ k0;
        x1 = b;
        x2 = (a >> 32) ^ x3 ^ k1;
        x3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    half[0] = x1 << 32 | (x0 & UINT32_MAX);
    half[1] = x3 << 32 | (x2 & UINT32_MAX);
}
static void noise(uint64_t *bits, uint64_t *least, uint64_t seed, uint32_t choice, uint32_t index, const weft_columns *c) {
    enum { HALF = WEFT_GUMBEL_HALF };
    int n = c->n, at = 0;
    vl half[2];
    for (; !c->ids && c->first % (2 * HALF) == 0 && at + 2 * HALF <= n; at += 2 * HALF) /* both halves are wanted */
        for (int i = at; i < at + HALF; i += W / 2) {
            philox(column_ids(c, i), seed, choice, index, half);
            memcpy(bits + i, &half[0], sizeof half[0]);
            memcpy(bits + i + HALF, &half[1], sizeof half[1]);
        }
    for (; at < n; at += W / 2) {
        vl ids = column_ids(c, at);
        philox(ids & ~(uint64_t)HALF, seed, choice, index, half);
        vl second = (vl)((ids & HALF) != 0), out = (half[1] & second) | (half[0] & ~second);
        memcpy(bits + at, &out, sizeof out);
    }
    for (int at = 0; at < n; at += SUPPORT_BLOCK) {
        int end = n - at < SUPPORT_BLOCK ? n : at + SUPPORT_BLOCK;
        uint64_t m = UINT64_MAX;
        for (int i = at; i < end; i++) m = bits[i] < m ? bits[i] : m;
        *least++ = m;
    }
}
static void weights(double *w, const float *x, int n, double max, double scale) {
    for (int i = 0; i < n; i++) w[i] = weight_of((double)x[i], max, scale);
}
static uint64_t grains(uint64_t *g, const float *x, int n, double max, double scale) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        g[i] = grains_of(weight_of((double)x[i], max, scale));
        sum += g[i];
    }
    return sum;
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

const weft_kernels WEFT_COPY(weft_kernels) = {
    .unpack = unpack,
    .unpack_panel = unpack_panel,
    .dot = dot,
    .norm = norm,
    .gate_norm = gate_norm,
    .add = add,
    .add_scaled = add_scaled,
    .scale = scale,
    .cap = cap,
    .activate = activate,
    .gate = gate,
    .scale_sigmoid = scale_sigmoid,
    .softmax = softmax,
    .sigmoid = sigmoid,
    .rotate = rotate,
    .chunk_exp = chunk_exp,
    .largest = largest,
    .permit = permit,
    .noise = noise,
    .weights = weights,
    .grains = grains,
    .values = values,
    .merge = merge,
};

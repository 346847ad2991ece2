/* kernels_gdn.c: the Gated DeltaNet's arithmetic: convolution, gates, and the recurrence token by token. See kernels.h. */
#include "ops/cpu/sweep_lanes.h"

/* ---- convolution, norms, gates -------------------------------------------------------------------------------------------- */

/* x / (1 + exp(-x)): exp as in lanes.h, but fused, and its ends by moving x to where the quotient is below 1e-36, or the sum 1. */
INLINE vf silu(vf x) {
    x = max2(splat(-88.0f), x); /* NaN stays */
    vf z = max2(-x, splat(-87.0f)), magic = splat(12582912.0f);
    vf t = vfma(z, splat(1.44269504089f), magic), n = t - magic;
    vf r = vfma(n, splat(2.12194440e-4f), vfma(n, splat(-0.693359375f), z));
    vf p = splat(1.0f / 5040);
    p = vfma(p, r, splat(1.0f / 720));
    p = vfma(p, r, splat(1.0f / 120));
    p = vfma(p, r, splat(1.0f / 24));
    p = vfma(p, r, splat(1.0f / 6));
    p = vfma(p, r, splat(0.5f));
    p = vfma(p, r, splat(1.0f));
    p = vfma(p, r, splat(1.0f));
    return x / (splat(1.0f) + (vf)((vu)p + (((vu)t - (vu)magic) << 23)));
}

INLINE void conv_rows(float *y, size_t ldy, const float *const *raw, size_t at, int rows, const int taps, const float *w,
                      size_t ldw, const float *bias, int n, int room) {
    for (int r = 0; r < rows; r++, raw++, y += ldy) {
        int i = 0;
        for (; i + W <= n; i += W) {
            vf x = bias ? vfma(load(raw[0] + at + i), load(w + i), load(bias + i)) : load(raw[0] + at + i) * load(w + i);
            for (int t = 1; t < taps; t++) x = vfma(load(raw[t] + at + i), load(w + (size_t)t * ldw + i), x);
            store(y + i, silu(x));
        }
        for (; i < room; i += W) {
            vf x = load_n(raw[0] + at + i, n - i), first = load_n(w + i, n - i);
            x = bias ? vfma(x, first, load_n(bias + i, n - i)) : x * first;
            for (int t = 1; t < taps; t++) x = vfma(load_n(raw[t] + at + i, n - i), load_n(w + (size_t)t * ldw + i, n - i), x);
            store(y + i, silu(x));
        }
    }
}
static void conv(float *y, size_t ldy, const float *const *raw, size_t at, int rows, int taps, const float *w, size_t ldw,
                 const float *bias, int n, int room) {
    if (taps == 4 && bias)
        conv_rows(y, ldy, raw, at, rows, 4, w, ldw, bias, n, room);
    else if (taps == 4)
        conv_rows(y, ldy, raw, at, rows, 4, w, ldw, NULL, n, room);
    else
        conv_rows(y, ldy, raw, at, rows, taps, w, ldw, bias, n, room);
}
static void unit(float *q, float *k, size_t ld, float *qk, int rows, int n) {
    float scale = 1.0f / __builtin_sqrtf((float)n);
    for (int r = 0; r < rows; r++, q += ld, k += ld) {
        sum16 s[3];
        UNROLL for (int p = 0; p < PARTS; p++) s[0].part[p] = s[1].part[p] = s[2].part[p] = splat(0.0f);
        for (int i = 0; i < n; i += LANES) UNROLL for (int p = 0; p < PARTS; p++) {
                vf x = load(q + i + p * W), z = load(k + i + p * W);
                s[0].part[p] = vfma(x, x, s[0].part[p]);
                s[1].part[p] = vfma(z, z, s[1].part[p]);
                s[2].part[p] = vfma(x, z, s[2].part[p]);
            }
        vf4 total = sum4(s[0], s[1], s[2], s[2]);
        float by_q = inverse_sqrt(total[0] + 1e-6f) * scale, by_k = inverse_sqrt(total[1] + 1e-6f);
        qk[r] = total[2] * by_q * by_k;
        for (int i = 0; i < n; i += W) {
            store(q + i, load(q + i) * splat(by_q));
            store(k + i, load(k + i) * splat(by_k));
        }
    }
}
static void gates(float *a, float *b, const float *alpha, size_t ld_alpha, const float *beta, size_t ld_beta, float decay,
                  float dt_bias, int rows) {
    for (int r = 0; r < rows; r += W) {
        vf x, z;
        UNROLL for (int i = 0; i < W; i++) {
            int at = r + i < rows ? r + i : rows - 1;
            x[i] = alpha[(size_t)at * ld_alpha];
            z[i] = beta[(size_t)at * ld_beta];
        }
        x = vexp(splat(decay) * vsoftplus(x + splat(dt_bias)));
        z = vsigmoid(z);
        for (int i = 0; i < W && r + i < rows; i++) a[r + i] = x[i], b[r + i] = z[i];
    }
}

static void fetch(const float *p, size_t floats) {
    for (size_t i = 0; i < floats; i += LANES) __builtin_prefetch(p + i, 1);
}

/* ---- the recurrence ------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define IN_REGISTER(x) __asm__("" : "+x"(x)) /* gcc 12 would load it again for every use: a quarter of a sweep's time */
#else
#define IN_REGISTER(x) (void)0
#endif

/* Updates that wait, for GROUP vectors of columns. */
typedef struct waiting {
    vf a[GDN_WAITS], d[GDN_WAITS][GROUP];
    const float *k[GDN_WAITS];
} waiting;
INLINE void wait_for(waiting *w, const weft_gdn_update *u, int column, const int N) {
    UNROLL for (int i = 0; i < N; i++) {
        w->a[i] = splat(u[i].a);
        w->k[i] = u[i].k;
        UNROLL for (int g = 0; g < GROUP; g++) w->d[i][g] = load(u[i].d + column + g * W);
    }
}
/* s[g] = row k of S with N updates folded in. */
INLINE void fold_row(vf s[GROUP], float *dst, const float *src, const waiting *w, int k, const int N) {
    vf key[GDN_WAITS];
    UNROLL for (int i = 0; i < N; i++) key[i] = splat(w->k[i][k]);
    UNROLL for (int g = 0; g < GROUP; g++) {
        s[g] = load(src + k * GDN_COLUMNS + g * W);
        if (!N) IN_REGISTER(s[g]);
        UNROLL for (int i = 0; i < N; i++) s[g] = vfma(key[i], w->d[i][g], w->a[i] * s[g]);
        if (N) store(dst + k * GDN_COLUMNS + g * W, s[g]);
    }
}
/* m += S k and o += S q for row i of S, GROUP vectors of columns. */
INLINE void token_row(vf m[GROUP], vf o[GROUP], float *dst, const float *src, const waiting *w, const float *k, const float *q,
                      int i, weft_gdn_ahead *ahead, const int N) {
    vf s[GROUP], key = splat(k[i]), query = splat(q[i]);
    want(ahead);
    fold_row(s, dst, src, w, i, N);
    UNROLL for (int g = 0; g < GROUP; g++) {
        m[g] = vfma(key, s[g], m[g]);
        o[g] = vfma(query, s[g], o[g]);
    }
}
/* One token over GROUP vectors of columns, with N updates before it. */
INLINE void token(float *dst, const float *src, const weft_gdn_update *u, const weft_gdn_tokens *t, size_t r, int column,
                  weft_gdn_ahead *ahead, const int N) {
    const float *q = t->q + r * t->ld_key, *k = t->k + r * t->ld_key;
    vf m[CHAINS][GROUP], o[CHAINS][GROUP];
    UNROLL for (int j = 0; j < CHAINS; j++) UNROLL for (int g = 0; g < GROUP; g++) m[j][g] = o[j][g] = splat(0.0f);
    waiting w;
    wait_for(&w, u, column, N);
    src += column, dst += column;
    int i = 0;
    for (; i + CHAINS <= t->k_dim; i += CHAINS)
        UNROLL for (int j = 0; j < CHAINS; j++) token_row(m[j], o[j], dst, src, &w, k, q, i + j, ahead, N);
    if (i < t->k_dim) token_row(m[0], o[0], dst, src, &w, k, q, i, ahead, N);
    vf a = splat(t->a[r]), b = splat(t->b[r]), qk = splat(t->qk[r]);
    UNROLL for (int g = 0; g < GROUP; g++) {
        int c = column + g * W;
        vf d = b * (load(t->v + r * t->ld_v + c) - a * (m[0][g] + m[1][g]));
        store(t->d + r * t->ld_d + c, d);
        if (c < t->cols) store_n(t->y + r * t->ld_y + c, vfma(qk, d, a * (o[0][g] + o[1][g])), t->cols - c);
    }
}
INLINE void token_columns(float *dst, const float *src, const weft_gdn_update *u, const weft_gdn_tokens *t, size_t r,
                          weft_gdn_ahead *ahead, const int N) {
    for (int c = 0; c < GDN_COLUMNS; c += GROUP * W) token(dst, src, u, t, r, c, ahead, N);
}
static const float *tokens(float *dst, const float *src, const weft_gdn_update *u, int n, const weft_gdn_tokens *t,
                           weft_gdn_ahead ahead) {
    weft_gdn_update last;
    ahead.stride /= PARTS;
    for (int r = 0; r < t->rows; r++) {
        switch (n) {
        case 0: token_columns(dst, src, u, t, (size_t)r, &ahead, 0); break;
        case 1: token_columns(dst, src, u, t, (size_t)r, &ahead, 1); break;
        case 2: token_columns(dst, src, u, t, (size_t)r, &ahead, 2); break;
        case 3: token_columns(dst, src, u, t, (size_t)r, &ahead, 3); break;
        default: token_columns(dst, src, u, t, (size_t)r, &ahead, 4);
        }
        if (n) src = dst;
        last = (weft_gdn_update){t->a[r], t->k + (size_t)r * t->ld_key, t->d + (size_t)r * t->ld_d};
        u = &last;
        n = 1;
    }
    return src;
}

INLINE void update_columns(float *dst, const float *src, const weft_gdn_update *u, int k_dim, weft_gdn_ahead *ahead, const int N) {
    for (int c = 0; c < GDN_COLUMNS; c += GROUP * W) {
        waiting w;
        vf s[GROUP];
        wait_for(&w, u, c, N);
        for (int i = 0; i < k_dim; i++) {
            want(ahead);
            fold_row(s, dst + c, src + c, &w, i, N);
        }
    }
}
static void update(float *dst, const float *src, const weft_gdn_update *u, int n, int k_dim, weft_gdn_ahead ahead) {
    ahead.stride /= PARTS;
    switch (n) {
    case 1: update_columns(dst, src, u, k_dim, &ahead, 1); break;
    case 2: update_columns(dst, src, u, k_dim, &ahead, 2); break;
    case 3: update_columns(dst, src, u, k_dim, &ahead, 3); break;
    default: update_columns(dst, src, u, k_dim, &ahead, 4);
    }
}

const weft_gdn_kernels WEFT_COPY(weft_gdn_kernels) = {
    .conv = conv,
    .unit = unit,
    .gates = gates,
    .tokens = tokens,
    .update = update,
    .fetch = fetch,
};

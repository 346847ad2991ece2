/* kernels_gdn.c: the Gated DeltaNet's arithmetic: convolution, gates, and the recurrence token by token. See kernels.h. */
#include "ops/cpu/lanes.h"

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
static void gates(float *a, float *b, const float *alpha, const float *beta, const float *decay, const float *dt_bias, int n) {
    for (int i = 0; i < n; i += W) {
        vf t = load_n(alpha + i, n - i) + load(dt_bias + i);
        store_n(a + i, vexp(load(decay + i) * vsoftplus(t)), n - i);
        store_n(b + i, vsigmoid(load_n(beta + i, n - i)), n - i);
    }
}
/* Two sweeps over S, W columns at a time: S'k of the decayed S, then decay, rank-1 term and S'q; sums over k in four interleaved
 * chains. */
static void token(float *state, float *d, float *y, const float *q, const float *k, const float *v, float a, float b, int k_dim) {
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
static void replay(float *s, const float *d, const float *k, float a, int k_dim) {
    for (int i = 0; i < k_dim; i++)
        for (int p = 0; p < LANES; p += W) store(s + i * LANES + p, load(s + i * LANES + p) * splat(a) + splat(k[i]) * load(d + p));
}

const weft_gdn_kernels WEFT_COPY(weft_gdn_kernels) = {
    .conv = conv,
    .unit = unit,
    .gates = gates,
    .token = token,
    .replay = replay,
};

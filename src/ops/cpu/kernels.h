/* kernels.h: the plain C kernels of the CPU backend.
 *
 * kernels.c is compiled once per vector width (128, 256, 512 bits on x86-64) and reached through a table chosen at run time. Sums
 * run in 16 interleaved lanes and end in one fixed tree, products and sums are rounded apart (no fused multiply-add), and exp,
 * log and the like are our own. So all copies agree bit for bit, on every processor.
 *
 * Lengths are exact unless a comment says "whole vectors": such an array has room for ROUND16 of its length and is read, or
 * written, to there; what is read beyond the length does not count. Denormal operands count as zero (base/fpu.h). */
#ifndef WEFT_OPS_CPU_KERNELS_H
#define WEFT_OPS_CPU_KERNELS_H

#include "ops/cpu/cpu.h"

struct weft_kernels {
    const char *name;

    /* dst[ROUND16(k)] = row `row` of w as float32, zero padded. */
    void (*unpack)(float *dst, const weft_mat *w, int64_t row);
    /* y[r * ldy + o] = sum over k of x[r][k] w[o * ldw + k]; k a multiple of 16. */
    void (*dot)(float *y, size_t ldy, const float *const *x, int rows, const float *w, size_t ldw, int outs, int k);

    /* y = gain * x / sqrt(mean x^2 + eps) over each of n / width groups; z not NULL: times silu(z). */
    void (*norm)(float *y, const float *x, const float *z, const float *gain, int n, int width, float eps);
    void (*add)(float *y, const float *x, int n);                     /* y += x */
    void (*add_scaled)(float *y, const float *x, float a, int n);     /* y += a x */
    void (*glu)(float *y, const float *gate, const float *up, int n); /* y = silu(gate) up */
    void (*gate)(float *y, const float *gate, int n);                 /* y *= sigmoid(gate) */
    void (*scale_sigmoid)(float *y, float gate, int n);               /* y *= sigmoid(gate) */
    void (*softmax)(float *p, int n);                                 /* in place; whole vectors, zero beyond n */

    /* Attention. Scores are a dot: queries by keys. In place, s[0..n) -> exp(scale s - max), -inf gives 0; returns max, *sum.
     * Whole vectors, zero beyond n. At least one s is finite, or *sum is NaN. */
    float (*chunk_exp)(float *s, int n, float scale, float *sum);
    /* o[r * ldo + i] += sum over j of p[r * ldp + j] v[j * ld + i], keys j ascending; ld a multiple of 16. */
    void (*values)(float *o, size_t ldo, const float *p, size_t ldp, int rows, const float *v, int keys, int ld);
    /* (m, l, o) absorbs the chunk (cm, cl, co); l == 0: takes it over. */
    void (*merge)(float *m, float *l, float *o, float cm, float cl, const float *co, int ld);

    /* Rotates pairs (j, j + n) of x by cosines c and sines s. */
    void (*rotate)(float *x, const float *c, const float *s, int n);

    /* y[c] = silu(sum over taps t of raw[t][c] w[t * ldw + c]); raw's rows, w and y in whole vectors. */
    void (*conv)(float *y, const float *const *raw, int taps, const float *w, size_t ldw, int channels);
    /* x scaled to `length` / sqrt(sum x^2 + 1e-6); in place. */
    void (*unit)(float *x, int n, float length);
    /* a = exp(decay softplus(alpha + dt_bias)), b = sigmoid(beta), n heads; decay and dt_bias in whole vectors. */
    void (*gdn_gates)(float *a, float *b, const float *alpha, const float *beta, const float *decay, const float *dt_bias, int n);
    /* One token over 16 value columns: S [k_dim][16] in place, d[16] the delta, y[16]. */
    void (*gdn_token)(float *s, float *d, float *y, const float *q, const float *k, const float *v, float a, float b, int k_dim);
    /* The same update of S from its stored ingredients. */
    void (*gdn_replay)(float *s, const float *d, const float *k, float a, int k_dim);
};

extern const weft_kernels weft_kernels_base;
#if defined(__x86_64__)
extern const weft_kernels weft_kernels_v3, weft_kernels_v4;
#endif

#endif

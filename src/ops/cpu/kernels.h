/* kernels.h: the kernels of the CPU backend, in tables chosen at run time.
 *
 * kernels.c, kernels_gdn.c, kernels_linear.c and kernels_attend.c are plain C over vectors (lanes.h), compiled once per vector
 * width (128, 256, 512 bits on x86-64). Sums run in 16 interleaved lanes and end in one fixed tree, or in one chain per output;
 * products and sums are rounded apart unless a comment says fma; exp, log and the like are our own. So all copies agree bit for
 * bit, on every processor: the narrowest one is the reference that is always there. linear_*.c hold the same integer products in
 * instructions that compilers do not find by themselves, with the same bits.
 *
 * Lengths are exact unless a comment says "whole vectors": such an array has room for ROUND16 of its length and is read, or
 * written, to there; what is read beyond the length does not count. Denormal operands count as zero (base/fpu.h). */
#ifndef WEFT_OPS_CPU_KERNELS_H
#define WEFT_OPS_CPU_KERNELS_H

#include "ops/cpu/cpu.h"

struct weft_kernels {
    /* dst[ROUND16(k)] = row `row` of w (counted over all experts) as float32, zero padded. */
    void (*unpack)(float *dst, const weft_mat *w, int64_t row);
    /* dst[k][16] = a panel of affine weights: what a panel of float32 weights looks like. */
    void (*unpack_panel)(float *dst, const weft_mat *w, int64_t panel);
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
};

/* Attention over the keys and values of one head in one page, in tiles (kv.h); dim: head_dim. Up to ATTEND_GROUP queries at a
 * time. `next`: the page part that will be read next; it is fetched meanwhile. */
typedef struct weft_kv_kernels {
    /* Position `row` from x[dim]. BF16 is rounded to even; INT8 as weft_linear_kernels.quantize does, all of x one block. */
    void (*store_k)(uint8_t *k, int row, const float *x, int dim);
    void (*store_v)(uint8_t *v, int row, const float *x, int dim);
    /* s[r * lds + j]: acc = fma(q[d][r], k[j][d], acc), d ascending from +0; INT8: times the scale of key j. At least keys j <
     * keys; all 64 may be written. q [ROUND16(dim)][ATTEND_GROUP], zero beyond dim. */
    void (*scores)(float *s, size_t lds, const float *q, int rows, const uint8_t *k, int keys, int dim, const uint8_t *next);
    /* o[r * ldo + d]: acc = fma(p[r * ldp + j], v[j][d], acc), keys from <= j < to ascending, no other; INT8: p times the scale of
     * value j, rounded. p's rows are read to 64, o in whole vectors. */
    void (*values)(float *o, size_t ldo, const float *p, size_t ldp, int rows, const uint8_t *v, int from, int to, int dim,
                   const uint8_t *next);
} weft_kv_kernels;

typedef struct weft_attend_kernels {
    weft_kv_kernels kv[KV_TYPES];
} weft_attend_kernels;

/* Gated DeltaNet. */
typedef struct weft_gdn_kernels {
    /* y[c] = silu(sum over taps t of raw[t][c] w[t * ldw + c]); raw's rows, w and y in whole vectors. */
    void (*conv)(float *y, const float *const *raw, int taps, const float *w, size_t ldw, int channels);
    /* x scaled to `length` / sqrt(sum x^2 + 1e-6); in place. */
    void (*unit)(float *x, int n, float length);
    /* a = exp(decay softplus(alpha + dt_bias)), b = sigmoid(beta), n heads; decay and dt_bias in whole vectors. */
    void (*gates)(float *a, float *b, const float *alpha, const float *beta, const float *decay, const float *dt_bias, int n);
    /* One token over 16 value columns: S [k_dim][16] in place, d[16] the delta, y[16]. */
    void (*token)(float *s, float *d, float *y, const float *q, const float *k, const float *v, float a, float b, int k_dim);
    /* The same update of S from its stored ingredients. */
    void (*replay)(float *s, const float *d, const float *k, float a, int k_dim);
} weft_gdn_kernels;

/* Rows of activations, quantised for products with affine weights: int8 codes with one scale per row and block of 64 columns. Rows
 * lie in groups of 16, so that a row's block is at a fixed distance from its neighbours' for vectors and tiles alike. */
struct weft_acts {
    int k, blocks; /* blocks of 64 columns, the last one filled up with zeros */
    int8_t *q;     /* [group][block][16 rows][64] */
    float *scale;  /* [group][block][16] */
    float *sum;    /* [group][block][3][16]: scale * the sum of the codes of columns 0..63, 0..31, 32..63 of the block */
};

typedef struct weft_linear_kernels {
    /* Row `row` of a from x[k]. A block's scale is its largest magnitude / 127, codes are rounded to even; a block whose magnitudes
     * are all below 2^-100 is zero; a block with NaN or infinity has a scale of NaN, so that the row's outputs are NaN. */
    void (*quantize)(const weft_acts *a, int row, const float *x);
    /* Affine weights by rows [0, rows) of a, a multiple of 16 rows from its start: panels [panel, panel + panels) of w into
     * y[r * ldy + 16 * (p - panel) + o], whole vectors. Per output one accumulator: for each block of weights, ascending,
     *     acc = fma(float(sum of codes * activations), scale_w * scale_x, acc);  acc = fma(bias_w, sum_x, acc). */
    void (*affine)(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, int64_t panel, int panels);
    /* Plain weights by rows of float32: acc = fma(x[r][c], w[o][c], acc), columns ascending. */
    void (*plain)(float *y, size_t ldy, const float *const *x, int rows, const weft_mat *w, int64_t panel, int panels);
} weft_linear_kernels;

struct weft_isa {
    const char *name;
    const weft_kernels *kernels;
    const weft_attend_kernels *attend;
    const weft_gdn_kernels *gdn;
    const weft_linear_kernels *linear;
};

/* NULL-terminated, best first. */
extern const weft_isa *const weft_isas[];
bool weft_isa_here(const weft_isa *isa); /* can this processor, under this system, run it? */
/* NULL or "auto": the best that can run. WEFT_ESUPPORT: not on this processor, or not in this build; WEFT_EINVAL: no such name. */
weft_status weft_isa_choose(const weft_isa **isa, const char *name, weft_error *e);

/* The copies of the files that are compiled several times, and the files for one instruction set. */
#define WEFT_COPIES(variant)                                                                                                       \
    extern const weft_kernels weft_kernels_##variant;                                                                              \
    extern const weft_attend_kernels weft_attend_kernels_##variant;                                                                \
    extern const weft_gdn_kernels weft_gdn_kernels_##variant;                                                                      \
    extern const weft_linear_kernels weft_linear_kernels_##variant;
WEFT_COPIES(base)
#if defined(__x86_64__)
WEFT_COPIES(v3)
WEFT_COPIES(v4)
extern const weft_linear_kernels weft_linear_avx512_vnni, weft_linear_amx;
#endif

#endif

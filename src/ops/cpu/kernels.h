/* kernels.h: the kernels of the CPU backend, in tables chosen at run time.
 *
 * kernels.c and kernels_*.c are plain C over vectors (lanes.h), compiled once per vector
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
    /* u = x silu(z); y = u / sqrt(mean u^2 + eps) * gain over each of n / width groups; gain [n]. y may be x or z. */
    void (*gate_norm)(float *y, const float *x, const float *z, const float *gain, int n, int width, float eps);
    void (*add)(float *y, const float *x, int n);                 /* y += x */
    void (*add_scaled)(float *y, const float *x, float a, int n); /* y += a x */
    void (*scale)(float *y, float a, int n);                      /* y *= a */
    void (*cap)(float *y, int n, float cap);                      /* y = cap tanh(y / cap) */
    /* y = act(gate) up; up NULL: y = act(gate) */
    void (*activate)(float *y, const float *gate, const float *up, int n, weft_activation act);
    void (*gate)(float *y, const float *gate, int n);   /* y *= sigmoid(gate) */
    void (*scale_sigmoid)(float *y, float gate, int n); /* y *= sigmoid(gate) */
    void (*softmax)(float *p, int n);                   /* in place; whole vectors, zero beyond n */
    void (*sigmoid)(float *p, int n);                   /* in place */

    /* Attention. Scores are a dot: queries by keys. In place, s[0..n) -> exp(scale s - max), -inf gives 0; returns max, *sum.
     * Whole vectors, zero beyond n. At least one s is finite, or *sum is NaN. */
    float (*chunk_exp)(float *s, int n, float scale, float *sum);
    /* o[r * ldo + i] += sum over j of p[r * ldp + j] v[j * ld + i], keys j ascending; ld a multiple of 16. */
    void (*values)(float *o, size_t ldo, const float *p, size_t ldp, int rows, const float *v, int keys, int ld);
    /* (m, l, o) absorbs the chunk (cm, cl, co); l == 0: takes it over. */
    void (*merge)(float *m, float *l, float *o, float cm, float cl, const float *co, int ld);

    /* Sampling. The largest of each SUPPORT_BLOCK of x[0..n), the last one perhaps shorter; NaN where one is NaN. */
    void (*largest)(float *most, const float *x, int n);
    /* y[i] = x[i]; -INFINITY where it is not allowed, else NaN where it is NaN or infinite. y may be x. */
    void (*permit)(float *y, const float *x, const bool *allowed, int n);
    /* bits[i] = weft_gumbel_bits(seed, choice, index, the id of column i), in whole vectors; the smallest of each SUPPORT_BLOCK. */
    void (*noise)(uint64_t *bits, uint64_t *least, uint64_t seed, uint32_t choice, uint32_t index, const weft_columns *c);
    /* w[i] = weight_of() of x[i]. */
    void (*weights)(double *w, const float *x, int n, double max, double scale);
    /* g[i] = grains_of() of that; returns their sum. */
    uint64_t (*grains)(uint64_t *g, const float *x, int n, double max, double scale);

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

/* Gated DeltaNet, one head at a time, some tokens of one sequence.
 *
 * A token's update turns the state S [k_dim][32], 32 value columns of a head, into fma(k, d, a S), element by element. It waits
 * until the next token's sweep over S or until somebody needs S itself: one read and one write a token, and the same bits wherever
 * it waits and however long. */
#define GDN_WAITS 4 /* updates that are folded in at a time, at most */
typedef struct weft_gdn_update {
    float a;        /* decay */
    const float *k; /* key, [k_dim] */
    const float *d; /* delta, [32] */
} weft_gdn_update;

typedef struct weft_gdn_tokens { /* row r of an array is at r times its stride */
    int rows, k_dim, cols;       /* cols: 1..32, those of y */
    const float *q, *k;
    size_t ld_key;
    const float *a, *b, *qk; /* decay, beta, q k */
    const float *v;          /* 32 columns */
    size_t ld_v;
    float *d; /* 32 columns; stride 0: the last row's stays */
    size_t ld_d;
    float *y;
    size_t ld_y;
} weft_gdn_tokens;

typedef struct weft_gdn_ahead { /* memory that is needed next: a sweep asks for `stride` bytes of it with every 16 numbers of S */
    const char *at;
    size_t stride; /* 0: no more than the line at `at` */
} weft_gdn_ahead;

typedef struct weft_gdn_kernels {
    /* y[r * ldy + i] = silu(sum over taps t of raw[r + t][at + i] w[t * ldw + i]), the taps an ascending chain of fma, i < n; zero
     * from n to `room`, a multiple of 16. bias [n]: where the chain begins; NULL: with the first product. */
    void (*conv)(float *y, size_t ldy, const float *const *raw, size_t at, int rows, int taps, const float *w, size_t ldw,
                 const float *bias, int n, int room);
    /* q and k in place, in whole vectors with zeros behind: x / sqrt(sum x^2 + 1e-6), q also / sqrt(n); qk = q k. */
    void (*unit)(float *q, float *k, size_t ld, float *qk, int rows, int n);
    /* a = exp(decay softplus(alpha + dt_bias)), b = sigmoid(beta). */
    void (*gates)(float *a, float *b, const float *alpha, size_t ld_alpha, const float *beta, size_t ld_beta, float decay,
                  float dt_bias, int rows);
    /* Tokens. S = src with u[0..n) folded in, n <= GDN_WAITS; m = S'k and o = S'q, each two chains of fma, over even and odd k, and
     * their sum; d = b (v - a m); y = fma(q k, d, a o). S goes to dst, but not at a first row before which nothing waits; the last
     * row's update waits on. Returns where S is. */
    const float *(*tokens)(float *dst, const float *src, const weft_gdn_update *u, int n, const weft_gdn_tokens *t,
                           weft_gdn_ahead ahead);
    /* dst = src with u[0..n) folded in, 1 <= n <= GDN_WAITS. */
    void (*update)(float *dst, const float *src, const weft_gdn_update *u, int n, int k_dim, weft_gdn_ahead ahead);
    /* Asks for memory that will be read and written soon. */
    void (*fetch)(const float *p, size_t floats);
} weft_gdn_kernels;

/* Mamba-2: some tokens of one sequence over a state as above, S [state_dim][32], 32 columns of a head. */
typedef struct weft_mamba_tokens { /* row r of an array is at r times its stride */
    int rows, certain;             /* the first `certain` rows are so */
    int dim, cols;                 /* state_dim; 1..32, those of y */
    const float *b, *c;
    size_t ld_bc;
    const float *a, *dt; /* decay, step */
    const float *x;      /* 32 columns */
    size_t ld_x;
    float skip;
    float *y;
    size_t ld_y;
} weft_mamba_tokens;

typedef struct weft_mamba_kernels {
    /* dt = min(high, max(low, softplus(raw + bias))), a = exp(decay dt). */
    void (*gates)(float *a, float *dt, const float *raw, size_t ld, float decay, float bias, float low, float high, int rows);
    /* Each token: S = fma(b, dt x, a S), y = fma(skip, x, S'c); S'c is two chains of fma, over even and odd rows of S, and their
     * sum. S begins in src, which may be `state`, and goes to `state` after the last certain row; without one nothing is written
     * there. copy: scratch for the rows after it. */
    void (*tokens)(float *state, float *copy, const float *src, const weft_mamba_tokens *t, weft_gdn_ahead ahead);
    /* Rows that one sweep over S takes, at most. The last certain one goes with those after it where it would be alone. */
    int together;
} weft_mamba_kernels;

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
    const weft_mamba_kernels *mamba;
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
    extern const weft_mamba_kernels weft_mamba_kernels_##variant;                                                                  \
    extern const weft_linear_kernels weft_linear_kernels_##variant;
WEFT_COPIES(base)
#if defined(__x86_64__)
WEFT_COPIES(v3)
WEFT_COPIES(v4)
extern const weft_linear_kernels weft_linear_avx512_vnni, weft_linear_amx;
/* Nanoseconds of four tile loads and four products on this thread, once weft_isa_here() has said yes to tiles: 24 where loads and
 * products overlap, 90 to 110 in the slow state that processors fall into for milliseconds to seconds, at four times the cost of a
 * product from the cache (Emerald Rapids). Two measurements are comparable only in the same state. */
double weft_tiles_probe(void);
#endif

#endif

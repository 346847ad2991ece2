/* cpu.h: the CPU backend's own structures, shared by its files.
 *
 * Activations are float32 rows whose stride is a multiple of 16 floats, so that kernels may run over whole vectors. What stands in
 * the padding is not defined, as phases share memory: products clear it first, the rest does not let it count. The padding of
 * slots, pages and coefficients is zero. Weights keep the codes and scales of the checkpoint and are turned into float32 a panel
 * at a time. */
#ifndef WEFT_OPS_CPU_H
#define WEFT_OPS_CPU_H

#include "base/arena.h"
#include "base/error.h"
#include "base/fpu.h"
#include "base/pool.h"
#include "base/vec.h"
#include "ops/ops.h"

#define LANES 16
#define ROUND16(n) (((n) + 15) & ~15)
#define ATTEND_CHUNK 512 /* keys whose partial softmax is merged at a time, at absolute offsets: part of the arithmetic */
#define ATTEND_QUERIES 8 /* at most, that go through the keys together: not part of it */

struct weft_buf {
    int rows, cols; /* rows 0: as many as the plan allows */
    int ld;         /* floats from row to row */
    const char *phase;
    float *v; /* [rows][ld], after the plan */
};

struct weft_coef {
    int n;
    float *v; /* [ROUND16(n)], zero padded */
};

struct weft_mat {
    weft_dtype dtype;
    int bits, group;
    int64_t experts, n, k;
    /* A row: its values or codes as fields of `field` bits, then k / group scales, then k / group biases. Fields are interleaved so
     * that kernels need 32-bit lanes only: a block is 16 words, and word w of it holds columns w, w + 16, w + 32, ... of the
     * block, lowest bits first. Field widths: 32 and 16 plain; codes take 2, 4 or 8 bits. */
    int field;
    size_t row_bytes, scale_at, bias_at;
    uint8_t *data;
};

#define BLOCK_BYTES 64
static inline int block_columns(int field) {
    return LANES * 32 / field;
}

typedef struct kv_layer {
    int n_kv_heads, head_dim, ld; /* ld: ROUND16(head_dim) */
    float *k, *v;                 /* [page][n_kv_heads][WEFT_PAGE_ROWS][ld] */
} kv_layer;

/* One GDN layer's part of every slot. Value columns are held in blocks of 16, so that a task owns whole vectors. */
typedef struct gdn_layer {
    weft_gdn_shape shape;
    int channels, channels_ld, blocks; /* blocks of 16 columns in one head */
    float *state;                      /* [slot][n_v_heads][blocks][k_dim][16] */
    float *window;                     /* [slot][conv_kernel - 1][channels_ld], oldest first */
    float *journal_in;                 /* [slot][2][max_draft][channels_ld]: raw convolution inputs */
    float *journal_a;                  /* [slot][2][max_draft][n_v_heads]: decay */
    float *journal_k;                  /* [slot][2][max_draft][n_k_heads][k_dim]: normalised keys */
    float *journal_d;                  /* [slot][2][max_draft][n_v_heads][blocks][16]: deltas */
} gdn_layer;

typedef struct carry {
    int cols, ld;
    float *row;     /* [slot][ld] */
    float *journal; /* [slot][2][max_draft][ld] */
} carry;

typedef struct weft_kernels weft_kernels;

struct weft_dev {
    weft_pool *pool;
    const weft_kernels *kernels;
    bool dry;
    int threads;
    weft_arena arena; /* the small objects: bufs, coefs, mats */
    WEFT_VEC(weft_buf *) bufs;
    WEFT_VEC(weft_mat *) mats;
    WEFT_VEC(weft_coef *) coefs;
    WEFT_VEC(kv_layer) kv;
    WEFT_VEC(gdn_layer) gdn;
    WEFT_VEC(carry) carries;
    weft_dev_memory memory;
    int64_t max_k, max_glu; /* widest weight, widest expert: scratch sizes */
    int max_experts, max_top_k, max_expert_cols;

    weft_plan plan;
    uint8_t *workspace; /* buffers, then scratch */
    float *pages, *slots;
    float *panel; /* [worker][panel_floats]: a panel of unpacked weights, or a task's own scratch */
    size_t panel_floats;
    float *rope;                   /* [max_rows][2 n_freq]: cosines, then sines */
    const weft_coef *rope_freq;    /* whose table it is in this step; NULL: none yet */
    float *zeros;                  /* [widest row]: a convolution input, a carry before a sequence's start */
    float *conv, *gate_a, *gate_b; /* GDN: [max_rows][channels_ld], [max_rows][n_v_heads] twice */
    float *expert_in, *expert_out; /* MoE: [max_rows * top_k][..] */
    int *expert_rows, *expert_start, *experts_used;

    const weft_step *step;
    int *row_span;    /* [max_rows]: the span of a row */
    int *slot_writer; /* [n_slots]: 1 + the span that writes a slot in this step; 0: none */
    weft_status status;
    weft_error error; /* the step's first */
};

static inline float *buf_row(const weft_buf *b, int row) {
    return b->v + (size_t)row * (size_t)b->ld;
}
static inline int row_pos(const weft_dev *d, int row) {
    const weft_span *s = &d->step->spans[d->row_span[row]];
    return s->pos + row - s->row;
}
static inline float *panel_of(const weft_dev *d, int worker) {
    return d->panel + (size_t)worker * d->panel_floats;
}

/* A journal entry: half `half`, row `row` of slot `slot`, in units of one row. */
static inline size_t journal_index(const weft_dev *d, int slot, int half, int row) {
    return ((size_t)slot * 2 + (size_t)half) * (size_t)d->plan.max_draft + (size_t)row;
}

#define PANEL_OUTS 16 /* weight rows that are unpacked and multiplied at a time */

#endif

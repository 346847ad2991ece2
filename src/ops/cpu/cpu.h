/* cpu.h: the CPU backend's own structures, shared by its files.
 *
 * Activations are float32 rows whose stride is a multiple of 16 floats, so that kernels may run over whole vectors. What stands in
 * the padding is not defined, as phases share memory, and must not count. The padding of slots, pages and coefficients is zero.
 * Weights keep the codes and scales of the checkpoint in panels of 16 rows (tiles.h). */
#ifndef WEFT_OPS_CPU_H
#define WEFT_OPS_CPU_H

#include "base/arena.h"
#include "base/error.h"
#include "base/fpu.h"
#include "base/pool.h"
#include "base/vec.h"
#include "ops/cpu/packed.h"
#include "ops/ops.h"

#define LANES 16
#define ROUND16(n) (((n) + 15) & ~15)
#define GDN_COLUMNS 32   /* value columns of a recurrent state that are swept together */
#define ATTEND_CHUNK 512 /* keys whose partial softmax is merged at a time, at absolute offsets: part of the arithmetic */
/* Not part of it: queries that kernels take together; that a piece of work has, at most; kept results of chunks, for each thread;
 * floats from one query's probabilities to the next one's, no power of two so that they do not meet in one set of the cache. */
#define ATTEND_GROUP 8
#define ATTEND_QUERIES 64
#define ATTEND_RESULTS 1024
#define ATTEND_P (ATTEND_CHUNK + LANES)

struct weft_buf {
    int rows, cols; /* rows 0: as many as the plan allows */
    int ld;         /* floats from row to row */
    const char *phase;
    float *v;           /* [rows][ld], after the plan */
    const weft_buf *of; /* a view: of these rows, from column `first` */
    int first;
};

struct weft_coef {
    int n;
    float *v; /* [ROUND16(n)], zero padded */
};

struct weft_table {
    weft_table_desc desc;
};

struct weft_mat {
    weft_dtype dtype;
    int bits, group;
    int64_t experts, n, k;
    bool passing;  /* has memory of its own, whoever owns that of the others */
    uint8_t *data; /* panels of 16 rows, see tiles.h */
};

typedef enum kv_type { KV_F32, KV_BF16, KV_INT8, KV_TYPES } kv_type;
typedef struct kv_layer {
    weft_page_kind kind;
    int n_kv_heads, head_dim, ld; /* ld: ROUND16(head_dim) */
    size_t k_bytes, v_bytes;      /* of one head in one page */
    uint8_t *k, *v;               /* [page][n_kv_heads][k_bytes], as kv.h has it */
} kv_layer;

/* Some rows of one span, whose chunks of keys are worked through together: see attend.c. */
typedef struct attend_block {
    int row, rows;
    int start;       /* the first chunk that the rows see; others count from it */
    int chunks, run; /* chunks that the rows see; so many in a piece, all unless the block is split */
    int from, to;    /* chunks that the running wave works on */
    int piece;       /* the first in the wave, for each key head */
    int result;      /* the first in the wave */
} attend_block;

/* One recurrent layer's part of every slot: recurrent.h. Value columns are held in blocks, so that a task owns whole vectors. */
typedef struct recurrent_layer {
    weft_gdn_shape shape;           /* Mamba-2: k heads are groups, k_dim is the state's, v_dim the head's */
    int query_at, key_at, value_at; /* where queries, keys and values begin among the channels */
    int conv_rows;                  /* conv_kernel, and one for a bias */
    int group;                      /* value heads of a key head */
    int channels, width;            /* of the convolution: all, and a key head's with its group */
    int blocks, key_ld;             /* blocks of GDN_COLUMNS in a value head; ROUND16(k_dim) */
    float *conv;                    /* [n_k_heads][conv_rows][width]: conv_of, head by head */
    const weft_coef *conv_of;       /* NULL: none yet */
    float *state;                   /* [slot][n_v_heads][blocks][k_dim][GDN_COLUMNS] */
    float *window;                  /* [slot][n_k_heads][conv_kernel - 1][width]: position p's raw input at p % (conv_kernel - 1) */
    float *journal_in;              /* [slot][2][n_k_heads][max_draft][width]: raw convolution inputs */
    float *journal_a;               /* [slot][2][n_v_heads][max_draft]: decay */
    float *journal_k;               /* [slot][2][n_k_heads][max_draft][key_ld]: keys */
    float *journal_d;               /* [slot][2][n_v_heads][blocks][max_draft][GDN_COLUMNS]: deltas */
} recurrent_layer;

/* Angles of a step's rows by one vector of frequencies. */
typedef struct rope_table {
    const weft_coef *freq; /* NULL: none yet in this step */
    float *v;              /* [max_rows][2 n_freq]: cosines, then sines */
} rope_table;

typedef struct carry {
    int cols, ld;
    float *row;     /* [slot][ld] */
    float *journal; /* [slot][2][max_draft][ld] */
} carry;

/* Beside a row of shaped logits: weight = exp((logit - max) * scale). */
typedef struct kept_row {
    double max, scale, sum; /* of the weights */
    int vocab;
    weft_no_token why; /* not WEFT_TOKEN: there is nothing to draw */
} kept_row;
struct weft_kept {
    weft_buf *logits; /* [rows, vocab] */
    kept_row *row;    /* [rows] */
};

/* Scratch of support.c and trial.c: ids that may be drawn [pick_vocab], then a number for each block or piece. */
typedef struct support_room {
    int32_t *ids;
    float *logits;
    uint64_t *grains;
    float *most;
    weft_best *best;
    double *sum;
    uint64_t *total;
    int *count;
} support_room;

typedef struct weft_kernels weft_kernels;
typedef struct weft_isa weft_isa;
typedef struct weft_acts weft_acts;

struct weft_dev {
    weft_pool *pool;
    const weft_isa *isa;
    const weft_kernels *kernels; /* isa->kernels */
    bool precise;
    kv_type kv_type;
    bool dry;
    int threads;
    weft_arena arena; /* the small objects: bufs, coefs, mats */
    WEFT_VEC(weft_buf *) bufs, views;
    WEFT_VEC(weft_mat *) mats;
    WEFT_VEC(weft_coef *) coefs;
    WEFT_VEC(kv_layer) kv;
    WEFT_VEC(recurrent_layer) recurrent;
    WEFT_VEC(carry) carries;
    weft_dev_memory memory;
    weft_packed *packed; /* owns the weights; NULL: each is an allocation of its own */
    int64_t max_k;       /* widest weight: scratch sizes */
    int pick_rows, pick_vocab;
    int max_experts, max_top_k, max_inner, max_expert_cols;

    weft_plan plan;
    uint8_t *workspace; /* buffers, then scratch */
    uint8_t *pages;
    float *slots;
    float *panel; /* [worker][panel_floats]: a panel of unpacked weights, or a task's own scratch */
    size_t panel_floats;
    rope_table rope[WEFT_PAGE_KINDS]; /* layers of a kind share their frequencies: a table for each kind that has layers */
    int n_rope, next_rope;            /* tables; the one that a further vector gets */
    float *zeros;                     /* [widest row]: a convolution input, a carry before a sequence's start */
    float *recurrent_inputs;          /* what recurrent.c's first stage leaves for its second */
    weft_picked *picked;              /* [pick_rows], and what leads to it: pick.c */
    void *pick_parts, *pick_top, *pick_best, *pick_last;
    weft_verdict *verdicts; /* [pick_rows] */
    support_room support;
    attend_block *attend_blocks;   /* [max_rows] */
    float *attend_o, *attend_ml;   /* results of chunks: [ATTEND_RESULTS * threads][widest ld]; their maxima and sums [..][2] */
    float *attend_kept;            /* [2][ATTEND_RESULTS * threads][2] */
    uint8_t *acts;                 /* quantised activations of the running product */
    float *expert_in, *expert_out; /* MoE, in the order of the experts: [max_rows * top_k][2 inner], [max_rows * top_k][cols] */
    int *expert_rows, *pair_place, *place_row, *expert_start, *expert_group, *experts_used; /* experts.c, sort_pairs() */

    uint64_t traffic; /* weft_dev_traffic() */
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

/* recurrent.c: floats of its scratch: a worker's, and shared. */
size_t recurrent_worker_floats(const weft_dev *d, const recurrent_layer *l);
size_t recurrent_shared_floats(const weft_dev *d, const recurrent_layer *l);

/* A journal entry: half `half`, row `row` of slot `slot`, in units of one row. */
static inline size_t journal_index(const weft_dev *d, int slot, int half, int row) {
    return ((size_t)slot * 2 + (size_t)half) * (size_t)d->plan.max_draft + (size_t)row;
}

#endif

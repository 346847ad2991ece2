/* recurrent.h: what recurrent layers have in common: spans, slots, journals, windows, and the walk over heads and blocks.
 *
 * Two kinds of layer are made of it, Gated DeltaNet (gdn.c) and Mamba-2 (mamba.c). Both put a token into a state [k_dim, v_dim] of
 * a head as fma(key, delta, decay * S), element by element; both have a depthwise convolution in front. They differ in how delta
 * and decay come about and in what is read out. The words are the first one's:
 *
 *                  query, key of k_dim    key heads    value    value heads       delta
 *   Gated DeltaNet q, k                   n_k_heads    v        n_v_heads         b (v - S'k)
 *   Mamba-2        C, B of state_dim      n_groups     x        n_heads           dt x
 *
 * Work goes by key heads, with the value heads that share one, in two stages:
 *   inputs    the rows' convolution, norms, gates, and what the span leaves of them: windows, journal;
 *   columns   each block of value columns walks the recurrence token by token (kernels.h): accepted drafts of the pass before, out
 *             of their journal; certain rows; speculative rows.
 * Where key heads are enough for all threads, one job does both, some rows at a time; otherwise the columns are a job of their own,
 * cut finer.
 *
 * A few rows are bound by memory, and what they touch is scattered. So all that one head needs lies together, and whoever works on
 * a block or a head asks for the next one's memory meanwhile. */
#ifndef WEFT_OPS_CPU_RECURRENT_H
#define WEFT_OPS_CPU_RECURRENT_H

#include "ops/cpu/kernels.h"

typedef struct recurrent_job recurrent_job;

/* A block of columns of one value head of one span. */
typedef struct spot {
    const weft_span *s;
    int k_head, of_group, block; /* value head k_head * group + of_group */
} spot;
typedef struct recurrent_kind recurrent_kind;
struct recurrent_job {
    weft_dev *d;
    const recurrent_layer *l;
    const recurrent_kind *kind;
    const weft_gdn_kernels *kn;
    const void *op; /* the operator's own description: weft_gdn or weft_mamba */
    weft_buf *y;
    const weft_buf *raw;          /* the convolution's inputs */
    const weft_buf *alpha, *beta; /* what gates are made of; Mamba-2: alpha is dt, no beta */
    int pieces;                   /* of the job that is running */
};

static inline int value_head(const recurrent_job *j, const spot *p) {
    return p->k_head * j->l->group + p->of_group;
}

/* ---- what the first stage leaves for the second --------------------------------------------------------------------------- */

enum { ROWS = 64, MAX_TAPS = 16 }; /* rows that a worker takes at a time: their inputs stay in its second cache */

/* A key head's. */
typedef struct inputs {
    float *keys;   /* [room][2][key_ld]: q, k */
    float *values; /* [group][room][blocks][GDN_COLUMNS] */
    float *gates;  /* [2 group + 1][room]: the value heads' decays, their betas (Mamba-2: dt), q k */
    int room;      /* rows */
    int first;     /* the span's row that is at row 0 */
} inputs;
static inline size_t inputs_floats(const recurrent_layer *l, int room) {
    return ((size_t)room * (size_t)(2 * l->key_ld + l->group * (l->blocks * GDN_COLUMNS + 2) + 1) + 15) & ~(size_t)15;
}
static inline inputs inputs_in(const recurrent_layer *l, float *memory, int room, int first) {
    inputs in = {.keys = memory, .room = room, .first = first};
    in.values = in.keys + (size_t)room * (size_t)(2 * l->key_ld);
    in.gates = in.values + (size_t)room * (size_t)(l->group * l->blocks * GDN_COLUMNS);
    return in;
}
static inline float *in_keys(const recurrent_layer *l, const inputs *in, int row) {
    return in->keys + (size_t)(row - in->first) * (size_t)(2 * l->key_ld);
}
static inline float *in_values(const recurrent_layer *l, const inputs *in, int of_group, int row) {
    return in->values + ((size_t)of_group * (size_t)in->room + (size_t)(row - in->first)) * (size_t)(l->blocks * GDN_COLUMNS);
}
static inline float *in_gates(const inputs *in, int which, int row) {
    return in->gates + (size_t)which * (size_t)in->room + (row - in->first);
}

/* ---- slots: the journal's row i of half `half`, the state ----------------------------------------------------------------- */

static inline size_t journal_at(const recurrent_job *j, int slot, int half, int things, int thing, int i) {
    return (((size_t)slot * 2 + (size_t)half) * (size_t)things + (size_t)thing) * (size_t)j->d->plan.max_draft + (size_t)i;
}
static inline float *journal_key(const recurrent_job *j, int slot, int half, int k_head, int i) {
    return j->l->journal_k + journal_at(j, slot, half, j->l->shape.n_k_heads, k_head, i) * (size_t)j->l->key_ld;
}
static inline float *journal_decay(const recurrent_job *j, int slot, int half, int head, int i) {
    return j->l->journal_a + journal_at(j, slot, half, j->l->shape.n_v_heads, head, i);
}
static inline float *journal_delta(const recurrent_job *j, int slot, int half, const spot *p, int i) {
    int block = value_head(j, p) * j->l->blocks + p->block;
    return j->l->journal_d + journal_at(j, slot, half, j->l->shape.n_v_heads * j->l->blocks, block, i) * GDN_COLUMNS;
}
static inline size_t block_floats(const recurrent_layer *l) {
    return (size_t)l->shape.k_dim * GDN_COLUMNS;
}
static inline float *block_state(const recurrent_job *j, int slot, const spot *p) {
    size_t blocks = (size_t)(j->l->shape.n_v_heads * j->l->blocks), block = (size_t)(value_head(j, p) * j->l->blocks + p->block);
    return j->l->state + ((size_t)slot * blocks + block) * block_floats(j->l);
}
static inline const float *block_start(const recurrent_job *j, const spot *p) {
    return p->s->slot_read < 0 ? j->d->zeros : block_state(j, p->s->slot_read, p);
}
/* Row i of those to replay. */
static inline weft_gdn_update replayed(const recurrent_job *j, const spot *p, int i) {
    int slot = p->s->slot_read, back = 1 - p->s->journal;
    return (weft_gdn_update){.a = *journal_decay(j, slot, back, value_head(j, p), i),
                             .k = journal_key(j, slot, back, p->k_head, i),
                             .d = journal_delta(j, slot, back, p, i)};
}

/* ---- the kinds, the job ---------------------------------------------------------------------------------------------------- */

struct recurrent_kind {
    /* Rows [i, i + n) of a span, n <= ROWS, whose convolution is there: what else the columns need of them. */
    void (*finish)(const recurrent_job *j, const weft_span *s, int k_head, const inputs *in, int i, int n);
    /* A block over rows [begin, end) of a span, where end is behind the last row, or no later than the last certain one: outputs,
     * deltas of the speculative rows into the journal, states into their slots. next: a block's state that the same worker needs
     * next; or NULL. scratch: a block's state and a delta. */
    void (*columns)(const recurrent_job *j, const spot *p, const inputs *in, int begin, int end, const float *next, float *scratch);
};

/* A layer in every slot; l has what does not follow from its shape. The index, or -1 when memory is short. */
int recurrent_register(weft_dev *d, recurrent_layer l);
/* All spans of the step; j has kind, op and buffers. bias NULL: none. */
void recurrent_run(weft_dev *d, int layer, recurrent_job j, const weft_coef *conv, const weft_coef *bias);

#endif

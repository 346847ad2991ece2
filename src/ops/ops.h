/* ops.h: the operators that models are written in, and the memory they work on.
 *
 * A model file holds opaque handles only, so that the same text runs on a CPU, on CUDA graphs or on lazy arrays:
 *   weft_dev   a device: its threads, its memory, its current step;
 *   weft_buf   activations [rows, cols], float32;
 *   weft_mat   a weight [experts, n, k], packed as the backend likes it;
 *   weft_coef  a small float32 vector: norm gains, biases, decays;
 *   weft_table rows that stay on disk: an embedding too large to hold for what one token needs of it.
 *
 * Order of calls. Open the device; register KV layers, recurrent layers, carries and buffers; make weights; weft_dev_plan() once
 * (it sizes and allocates everything: nothing is allocated after it). Then steps: weft_begin(), operators, weft_end(). Errors
 * inside a step stick to the device and come out of weft_end(); operators after an error do nothing. A step that failed voids
 * every slot it wrote. The host waits only in weft_read() and the *_io functions.
 *
 * A step is a list of rows grouped in spans, one span per sequence. Prefill chunks, plain decode and verification of drafts are
 * the same call: `certain` rows whose tokens are final, then `speculative` rows that may be dropped later.
 *
 * Recurrent memory is written by certain rows alone. A recurrent operator reads its state once from slot_read, folds in the
 * `replay` accepted rows of the previous pass from the journal that pass left (their small ingredients, same order, same
 * arithmetic), runs the certain rows, stores the state to slot_write, and runs the speculative rows on a scratch copy, keeping
 * only their ingredients in the journal. Dropping drafts is then a smaller replay count: no copy, no second pass. A span with no
 * rows only folds (a flush).
 *
 * Invariance. Every result of a row is a function of that row and what lies before it in its sequence: reduction orders depend on
 * the weight's k and on absolute positions, never on the number of rows, spans or threads. */
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

#include "base/error.h"
#include "format/activation.h"
#include "format/dtype.h"
#include "ops/sample.h"

#define WEFT_PAGE_ROWS 64 /* positions in a KV page */

/* Pages of two kinds, each with tables and indices of its own: layers that see their whole sequence, and layers that see the last
 * keys only, whose pages may go to others when every row to come is past them. */
typedef enum weft_page_kind { WEFT_PAGES_ALL, WEFT_PAGES_WINDOW, WEFT_PAGE_KINDS } weft_page_kind;

typedef struct weft_dev weft_dev;
typedef struct weft_buf weft_buf;
typedef struct weft_mat weft_mat;
typedef struct weft_coef weft_coef;
typedef struct weft_table weft_table;

/* ---- the device ---------------------------------------------------------------------------------------------------------- */

typedef struct weft_dev_memory { /* bytes */
    uint64_t weights, pages, slots, workspace;
    uint64_t page[WEFT_PAGE_KINDS]; /* one KV page: all layers of its kind, 0 without any */
    uint64_t slot;                  /* one recurrent slot: all layers, with its journal */
    uint64_t packed;                /* of the weights: those that weft_mat_make() packed and that may be kept on disk */
    uint64_t layout;                /* a hash of their list: names, shapes, types */
} weft_dev_memory;

typedef struct weft_dev_config {
    int threads;     /* 0: as many as the process may use */
    const char *isa; /* kernels: NULL or "auto": the best this processor has; "reference": plain C; "avx2", "avx512-vnni", ... */
    const char *kv;  /* keys and values: "bf16", "f32" or "int8" with a scale per row and head; NULL: bf16, f32 when precise */
    bool precise;    /* float32 activations and KV, weights as stored; otherwise the fast arithmetic */
    bool dry;        /* plan only: weights are checked and counted, never read; weft_dev_plan() allocates nothing */
    /* Where a backend may keep the packed weights for the next start; NULL: nowhere. Label: the model's name; key: which
     * checkpoint; planned: what a dry device said of the same weights. All must live until weft_dev_plan(). */
    const weft_dev_memory *planned;
    const char *cache_dir;
    const char *cache_label;
    uint8_t cache_key[16];
} weft_dev_config;

typedef struct weft_plan {
    int max_rows;                 /* rows in a step */
    int max_spans;                /* spans in a step */
    int max_draft;                /* speculative rows in a span: the journal's length */
    int n_slots;                  /* recurrent slots */
    int n_pages[WEFT_PAGE_KINDS]; /* KV pages */
} weft_plan;

weft_status weft_dev_open(weft_dev **dev, const weft_dev_config *config, weft_error *e);
void weft_dev_close(weft_dev *dev); /* frees all it made: buffers, weights, coefficients */
weft_status weft_dev_plan(weft_dev *dev, const weft_plan *plan, weft_error *e);
void weft_dev_memory_get(const weft_dev *dev, weft_dev_memory *m); /* complete after weft_dev_plan() */
const char *weft_dev_isa(const weft_dev *dev);
const char *weft_dev_kv(const weft_dev *dev); /* type of keys and values */
int weft_dev_threads(const weft_dev *dev);
bool weft_dev_precise(const weft_dev *dev);
/* Where matrix tiles have a fast and a slow state: nanoseconds of a fixed piece of work on the calling thread; 0: no such thing. */
double weft_dev_probe(const weft_dev *dev);
/* Bytes of weights, KV and recurrent state that the operators have read or written since the device was opened, as far as memory
 * must move them: a weight once for all rows of a call, a key once for all rows of its span. */
uint64_t weft_dev_traffic(const weft_dev *dev);

/* ---- what a model registers before the plan ------------------------------------------------------------------------------ */

/* A layer of keys and values [n_kv_heads, head_dim] in every page of a kind; returns its index, < 0 when memory is short. */
int weft_kv_layer(weft_dev *dev, int n_kv_heads, int head_dim, weft_page_kind kind);

typedef struct weft_gdn_shape {
    int n_k_heads, n_v_heads; /* v head h uses k head h / (n_v_heads / n_k_heads) */
    int k_dim, v_dim;         /* of one head */
    int conv_kernel;          /* taps of the depthwise convolution */
} weft_gdn_shape;
/* A Gated DeltaNet layer in every slot: state [n_v_heads, k_dim, v_dim] and the last conv_kernel - 1 raw rows. */
int weft_gdn_layer(weft_dev *dev, const weft_gdn_shape *shape);

typedef struct weft_mamba_shape {
    int n_heads, head_dim;
    int n_groups, state_dim; /* of B and C; head h uses group h / (n_heads / n_groups) */
    int conv_kernel;         /* taps of the depthwise convolution, 1..16 */
} weft_mamba_shape;
/* A Mamba-2 layer in every slot: state [n_heads, head_dim, state_dim] and the last conv_kernel - 1 raw rows. */
int weft_mamba_layer(weft_dev *dev, const weft_mamba_shape *shape);

/* A carry: one row [cols] in every slot, the last certain row of what weft_shift() is given. */
int weft_carry(weft_dev *dev, int cols);

/* A mixture of experts will run: sizes the scratch of weft_experts(). inner: columns of one expert's gate; cols: of x and y. */
void weft_moe_layer(weft_dev *dev, int experts, int top_k, int inner, int cols);

/* Activations for up to `rows` rows (0: the plan's max_rows). Buffers of the same phase live together; buffers of different phases
 * share memory, so a phase's contents are gone when another phase is used. Phase NULL lives always. NULL when memory is short. */
weft_buf *weft_buf_make(weft_dev *dev, const char *phase, int rows, int cols);
/* Columns [first, first + cols) of a buffer; a view is only read. */
const weft_buf *weft_buf_view(weft_dev *dev, const weft_buf *b, int first, int cols);

typedef struct weft_mat_desc {
    weft_dtype dtype;      /* of plain values; of scales and biases where bits > 0 */
    int bits, group;       /* MLX affine: 2, 3, 4, 5, 6 or 8 bits, group of 32, 64 or 128 columns; 0: plain values */
    int64_t experts, n, k; /* experts >= 1 */
    const char *name;      /* for messages */
    bool passing;          /* made anew at every start, since its rows may be others then: no part of what is kept on disk */
    /* Reads row `row` of expert `expert`, k columns. Plain: values[k] as stored. Affine: codes[k], one byte each, and scale[k /
     * group], bias[k / group] as stored. Must refuse NaN and infinity. Called from several threads at a time. */
    weft_status (*read)(void *ctx, int64_t expert, int64_t row, void *values_or_codes, void *scale, void *bias, weft_error *e);
    void *ctx;
} weft_mat_desc;
weft_status weft_mat_make(weft_dev *dev, const weft_mat_desc *desc, weft_mat **mat, weft_error *e);
uint64_t weft_mat_bytes(const weft_mat *mat); /* that a product with all of it reads */
/* n float32 values, copied. */
weft_status weft_coef_make(weft_dev *dev, const float *v, int n, weft_coef **coef, weft_error *e);

typedef struct weft_table_desc {
    int64_t n, k;
    const char *name; /* for messages */
    /* Row `row` in float32, k columns; must refuse NaN and infinity. Called in steps, from several threads at a time: ctx and name
     * live as long as the device. */
    weft_status (*read)(void *ctx, int64_t row, float *dst, weft_error *e);
    /* Once after the rows of a step: were they all really read? NULL: they always are. */
    weft_status (*check)(void *ctx, weft_error *e);
    void *ctx;
} weft_table_desc;
weft_status weft_table_make(weft_dev *dev, const weft_table_desc *desc, weft_table **table, weft_error *e);

/* ---- a step -------------------------------------------------------------------------------------------------------------- */

typedef struct weft_span {
    int row;         /* the span's first row in the step */
    int certain;     /* rows whose tokens are final */
    int speculative; /* draft rows after them, <= max_draft */
    int pos;         /* position of the first row: tokens of the sequence before it */
    int replay;      /* accepted speculative rows of the previous pass, <= max_draft */
    int write_from;  /* rows at lower positions read their KV pages, which hold them already, and do not write them */
    int slot_read;   /* recurrent slot with the state at pos - replay; -1: a sequence's start, all zero */
    int slot_write;  /* slot that gets the state at pos + certain; may be slot_read */
    int journal;     /* half (0 or 1) of slot_write's journal that this pass's speculative rows go to; replay reads the other
                        half, of slot_read */
    /* For each kind that has layers: page i holds positions [64 i, 64 i + 64); the table covers pos + certain + speculative. Of the
     * window's kind an entry may be -1: a page that no row of this step reads or writes. */
    int n_pages[WEFT_PAGE_KINDS];
    const int *pages[WEFT_PAGE_KINDS];
    int n_snapshots;
    const int *snapshot_at;   /* ascending counts of certain rows, 1..certain: the state after that many goes to ... */
    const int *snapshot_slot; /* ... this slot */
} weft_span;

typedef struct weft_step {
    int n_rows, n_spans;
    const int32_t *tokens; /* [n_rows] */
    const weft_span *spans;
} weft_step;

void weft_begin(weft_dev *dev, const weft_step *step); /* the step stays the caller's and must outlive weft_end() */
weft_status weft_end(weft_dev *dev, weft_error *e);

/* ---- operators: y is written, rows are those of the step ----------------------------------------------------------------- */

/* y[r] = scale * table[tokens[r]]. */
void weft_embed(weft_dev *dev, weft_buf *y, const weft_mat *table, float scale);
/* The same from a table on disk, whose rows are read now. */
void weft_lookup(weft_dev *dev, weft_buf *y, const weft_table *table, float scale);

/* RMS norm over groups of gain's length: y = gain * x / sqrt(mean(x^2) + eps). */
void weft_norm(weft_dev *dev, weft_buf *y, const weft_buf *x, const weft_coef *gain, float eps);
/* x += d, then y = norm(x). */
void weft_add_norm(weft_dev *dev, weft_buf *x, const weft_buf *d, weft_buf *y, const weft_coef *gain, float eps);
/* y = norm(x) * silu(z): norm first, gate after (Gated DeltaNet's output). */
void weft_norm_gated(weft_dev *dev, weft_buf *y, const weft_buf *x, const weft_buf *z, const weft_coef *gain, float eps);

/* Over groups of `group` columns: y = gain * u / sqrt(mean(u^2) + eps) with u = x * silu(z): gate first, norm after (Mamba-2's
 * output). gain has all columns. y may be x or z. */
void weft_gate_norm(weft_dev *dev, weft_buf *y, const weft_buf *x, const weft_buf *z, const weft_coef *gain, int group, float eps);

/* y[i] = W[i] x, for n weights of the same k. */
void weft_linear(weft_dev *dev, weft_buf *const *y, const weft_mat *const *w, int n, const weft_buf *x);
/* y = act(gate) * up, without `up` (NULL) act(gate). y may be gate or up. */
void weft_activate(weft_dev *dev, weft_buf *y, const weft_buf *gate, const weft_buf *up, weft_activation act);
/* y *= sigmoid(gate); gate has y's columns, or one column for the whole row. */
void weft_gate(weft_dev *dev, weft_buf *y, const weft_buf *gate);
/* y += x. */
void weft_add(weft_dev *dev, weft_buf *y, const weft_buf *x);
/* y += bias, row by row. */
void weft_bias(weft_dev *dev, weft_buf *y, const weft_coef *bias);
/* y *= scale. */
void weft_scale(weft_dev *dev, weft_buf *y, float scale);
/* y = [a ; b]. */
void weft_concat(weft_dev *dev, weft_buf *y, const weft_buf *a, const weft_buf *b);

/* Row of position p gets the hidden row of p - 1: from the same span, and for a span's first row from the carry (the journal's row
 * when replay > 0). The row of position 0 is zero. Stores, journals and snapshots the hidden rows of this pass as a recurrent
 * operator does. hidden NULL: reads only (a draft step). */
void weft_shift(weft_dev *dev, weft_buf *y, const weft_buf *hidden, int carry);

/* Norms each head of q and k (gain [head_dim]; NULL gain: none), then rotates the first 2 * n_freq dimensions of each head by the
 * row's position: pairs (j, j + n_freq), angle position * freq[j] (RoPE, half-split form). In place; q NULL: only k. */
void weft_qk_norm_rope(weft_dev *dev, weft_buf *q, weft_buf *k, const weft_coef *q_gain, const weft_coef *k_gain, float eps,
                       const weft_coef *freq, int head_dim);

typedef struct weft_attention {
    int layer; /* from weft_kv_layer() */
    int n_heads, n_kv_heads, head_dim;
    float scale;
    int first_key; /* keys below this position do not exist (MTP: 1); such rows are not written */
    int window;    /* keys that a row sees, the last ones, that of its own position included; 0: all */
    bool past;     /* no key at the row's own position: it sees what is below, with a window positions - window + 1 .. - 1 */
} weft_attention;
/* Writes k and v into the pages, then y[r] = softmax(scale q k) v over the keys that the row sees. q NULL: only writes. k and v
 * NULL: only reads, what other calls wrote: layers that share keys and values, and drafters that look at their target's. A row
 * without a visible key gives zero. WEFT_EINVAL sticks to the device where a page that is needed is -1. */
void weft_attend(weft_dev *dev, weft_buf *y, const weft_buf *q, const weft_buf *k, const weft_buf *v, const weft_attention *a);

typedef struct weft_gdn {
    int layer;                /* from weft_gdn_layer() */
    const weft_coef *conv;    /* [conv_kernel, channels]: taps oldest first */
    const weft_coef *decay;   /* [n_v_heads]: -exp(A_log) */
    const weft_coef *dt_bias; /* [n_v_heads] */
} weft_gdn;
/* Gated DeltaNet (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464): depthwise convolution and silu over qkv's channels [q | k | v],
 * L2-normalised q and k, then per token  S = a S; d = b (v - S'k); S = S + k d'; y = S'q  with a = exp(decay softplus(alpha +
 * dt_bias)), b = sigmoid(beta). alpha, beta: [rows, n_v_heads]; y: [rows, n_v_heads * v_dim]. */
void weft_gdn_run(weft_dev *dev, weft_buf *y, const weft_buf *qkv, const weft_buf *alpha, const weft_buf *beta, const weft_gdn *g);

typedef struct weft_mamba {
    int layer;                  /* from weft_mamba_layer() */
    const weft_coef *conv;      /* [conv_kernel, channels]: taps oldest first; channels: n_heads head_dim + 2 n_groups state_dim */
    const weft_coef *conv_bias; /* [channels]; NULL: none */
    const weft_coef *decay;     /* [n_heads]: -exp(A_log) */
    const weft_coef *dt_bias;   /* [n_heads] */
    const weft_coef *skip;      /* [n_heads]: D */
    float dt_low, dt_high;      /* limits of a step, the high one may be infinite */
} weft_mamba;
/* Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): depthwise convolution, bias and silu over xbc's channels [x | B | C], then per token
 * and head  S = a S + dt x B';  y = S C + D x  with dt = clip(softplus(dt + dt_bias)), a = exp(decay dt). xbc: [rows, channels], as
 * projected; dt: [rows, n_heads]; y: [rows, n_heads * head_dim]. */
void weft_mamba_run(weft_dev *dev, weft_buf *y, const weft_buf *xbc, const weft_buf *dt, const weft_mamba *m);

/* How a mixture chooses: scores are the softmax of the logits, or their sigmoids. */
typedef struct weft_router {
    bool sigmoid;
    const weft_coef *bias;  /* [experts], added to the scores for the choice alone; NULL: none */
    int groups, top_groups; /* of experts that follow one another: only the top_groups groups whose two best scores have the largest
                               sums take part; 1, 1: all */
    bool renormalise;       /* the weights of the chosen are divided by their sum */
    float scale;            /* and multiplied by this, */
    const weft_coef *expert_scale; /* and by the expert's own: [experts]; NULL: none */
} weft_router;
/* The top_k experts of the router's logits [rows, experts] (ties: lowest id), largest first, and their weights. ids hold whole
 * numbers as floats. */
void weft_route(weft_dev *dev, weft_buf *ids, weft_buf *weights, const weft_buf *logits, const weft_router *router);
/* A row whose router gave NaN becomes NaN, and no other row. y = sum over slots, ascending, of weight * down_e(act(gate_e x) *
 * up_e x). gate_up: [experts, 2 inner, cols], gate rows first; of WEFT_RELU2, which has no gate, [experts, inner, cols]. An
 * expert's weights are read once for all rows that chose it. */
void weft_experts(weft_dev *dev, weft_buf *y, const weft_buf *x, const weft_buf *ids, const weft_buf *weights,
                  const weft_mat *gate_up, const weft_mat *down, weft_activation act);

/* An output head. Logits are W x, and then cap * tanh(logit / cap) unless cap is 0. */
typedef struct weft_output {
    const weft_mat *w; /* [vocab, cols] */
    float cap;
    const int32_t *ids; /* [rows of w], ascending: a head that has these ids only, row i that of ids[i]; NULL: row i is the id i */
} weft_output;

/* y[i] = the logits of x[rows[i]], i < n: only for the rows somebody reads. A column for each row of the head. */
void weft_logits(weft_dev *dev, weft_buf *y, const weft_output *head, const weft_buf *x, const int *rows, int n);

/* A head that looks at some tokens only: at those of the `top` centroids whose products with the row are largest (ties: lowest). */
typedef struct weft_ordered_output {
    const weft_mat *centroids; /* [centroids, cols] */
    const weft_mat *w;         /* [centroids, each, cols]: row j of centroid c is the token order[c * each + j] */
    const weft_coef *order;    /* [centroids * each], whole numbers as floats */
    int top;
} weft_ordered_output;
/* As weft_logits(); tokens that are not looked at get the smallest logit of those that are, less one. scores: [rows, centroids]. */
void weft_ordered_logits(weft_dev *dev, weft_buf *y, const weft_ordered_output *head, weft_buf *scores, const weft_buf *x,
                         const int *rows, int n);

/* ---- choosing tokens (sample.h: what a rule means) ------------------------------------------------------------------------- */

/* Rows of shaped logits that stay on the device: -INFINITY outside the support, with temperature, maximum and sum of weights beside
 * each. Made before the plan; a row is valid until it is written again. NULL when memory is short. */
typedef struct weft_kept weft_kept;
weft_kept *weft_kept_make(weft_dev *dev, int rows, int vocab);

/* What a row's logits are turned into when nobody needs them all. Rules without top_k, top_p and min_p need no row of logits in
 * memory: bias, bans, mask and penalties are applied to a piece of the vocabulary while it is in the first cache. */
#define WEFT_MAX_TOP 20
typedef struct weft_pick {
    weft_rule rule;
    bool log_sum;    /* wanted: see weft_picked */
    int top;         /* how many of the likeliest ids, 0..WEFT_MAX_TOP */
    weft_kept *keep; /* NULL: nowhere. Where the shaped row goes, for a trial or as the room that a rule which truncates needs: */
    int keep_row;    /* this row, of no other pick of the call */
} weft_pick;
typedef struct weft_picked {
    int32_t id;        /* -1: there is none, */
    weft_no_token why; /* for this reason */
    float logit;       /* raw logit of id; its log-probability is logit - log_sum */
    float log_sum;     /* ln of the sum of exp(raw logit) over all ids of the head */
    int n_top;
    int32_t top_id[WEFT_MAX_TOP]; /* of the ids that exist, by raw logit: largest first, ties: lowest id */
    float top_logit[WEFT_MAX_TOP];
} weft_picked;
/* Sizes the scratch: picks, and trials, of up to `rows` rows at a time over `vocab` ids, which are all that exist. */
void weft_pick_layer(weft_dev *dev, int rows, int vocab);
/* A token for each listed row of the step, from the logits of x[row], which are not kept. rules[n]; allowed[vocab] (sample.h);
 * both, and what rules point to, must live until the step is over. Rules, results and random numbers go by ids, also where the head
 * has some ids only: what comes out is what a head with all of them gives where no other id is permitted. A kept row has the head's
 * columns. A rule that cannot be, or truncates and has no row to do it in, is WEFT_EINVAL, which sticks to the device. */
void weft_pick_tokens(weft_dev *dev, const weft_output *head, const weft_buf *x, const int *rows, int n, const weft_pick *rules,
                      const bool *allowed);
/* The same from logits that are there: rows 0..n-1 of a buffer. */
void weft_pick_logits(weft_dev *dev, const weft_buf *logits, int n, const weft_pick *rules, const bool *allowed);
/* Result i of the last weft_pick_tokens() or weft_pick_logits(); waits for it. */
weft_status weft_read_pick(weft_dev *dev, int i, weft_picked *picked, weft_error *e);
/* The raw logit of an id in that result, chosen or not: computed again, so it has to come before the next operator. */
weft_status weft_read_logit(weft_dev *dev, int i, int32_t id, float *logit, weft_error *e);

/* Rejection sampling (Leviathan et al. 2023, Chen et al. 2023): a draft drawn from q is kept with probability min(1, p / q); else
 * the token is drawn from max(p - q, 0), normalised. So the token has the law p whatever q is. Drafts must have been drawn by the
 * pick that kept q, and depend on no other random number. A chain is the drafts of one sequence, then a bonus draw from the row
 * behind the last draft. */
typedef struct weft_trial {
    const weft_kept *p; /* the target's row */
    int p_row;
    const weft_kept *q; /* the drafter's own shaped row; NULL: the draft came without chance, its q is 1. So it counts too where the
                           row has no token: the caller chose one */
    int q_row;
    const int32_t *q_ids; /* ids of q's columns, ascending, of a drafter with a vocabulary of its own; NULL: the same ids */
    int32_t draft;        /* -1: none, a bonus draw from p */
    bool follows;         /* the same chain as the trial before it: it takes place only if that one's draft was kept */
    weft_sampler sampler; /* seed and choice of the random numbers */
    uint32_t index;       /* tokens generated before this one */
} weft_trial;
typedef struct weft_verdict {
    bool kept;         /* the draft is the token */
    int32_t id;        /* the token; -1: there is none, */
    weft_no_token why; /* for this reason, of p; WEFT_TOKEN: the trial did not take place */
} weft_verdict;
/* Judges n trials, n up to the rows of weft_pick_layer(), in the step of the picks of p. A row that does not exist, or a draft that
 * has no probability in q, is WEFT_EINVAL, which sticks to the device. */
void weft_try_drafts(weft_dev *dev, const weft_trial *trials, int n);
/* Result i of the last weft_try_drafts(); waits for it. */
weft_status weft_read_verdict(weft_dev *dev, int i, weft_verdict *verdict, weft_error *e);

/* ---- host access (each waits for what was submitted) --------------------------------------------------------------------- */

/* Copies row `row` of a buffer to dst[cols]. */
weft_status weft_read(weft_dev *dev, const weft_buf *b, int row, float *dst, weft_error *e);
/* A slot's states, convolution windows and carries, without the journal: what a snapshot is. Bytes, then copies. */
size_t weft_slot_bytes(const weft_dev *dev);
weft_status weft_slot_io(weft_dev *dev, int slot, void *host, bool to_host, weft_error *e);
/* Rows [0, rows) of a page: K and V of all layers of its kind. Bytes (0: the kind has no layer), then copies; rows beyond are
 * untouched. */
size_t weft_page_bytes(const weft_dev *dev, weft_page_kind kind, int rows);
weft_status weft_page_io(weft_dev *dev, weft_page_kind kind, int page, int rows, void *host, bool to_host, weft_error *e);
/* Zeroes a page: done at every allocation, since a masked key's V may be multiplied by zero and 0 x stale NaN is NaN. */
void weft_page_clear(weft_dev *dev, weft_page_kind kind, int page);
/* Debug builds fill freed pages and slots with NaN, so that a stale read shows. */
void weft_page_poison(weft_dev *dev, weft_page_kind kind, int page);
void weft_slot_poison(weft_dev *dev, int slot);

#endif

/* blocks.h: the parts that model families share. Each has its weights in a struct, a function that loads them and one that runs
 * them; activations live in a scratch that all layers use in turn. */
#ifndef WEFT_MODEL_BLOCKS_H
#define WEFT_MODEL_BLOCKS_H

#include "model/load.h"

/* ---- activations --------------------------------------------------------------------------------------------------------- */

/* Of the attention layers of one kind. */
typedef struct weft_attention_scratch {
    weft_buf *q, *gate, *attended; /* n_heads head_dim */
    weft_buf *k, *v;               /* n_kv_heads head_dim */
} weft_attention_scratch;

/* Of feed-forward blocks of one width. */
typedef struct weft_mlp_scratch {
    int inner;
    weft_buf *gate, *up;
} weft_mlp_scratch;
enum { WEFT_MLP_WIDTHS = 8 };

/* Buffers of a decoder layer, [rows, ...]; made once, used by every layer. Mixers and feed-forward blocks never live at the same
 * time and share memory. */
typedef struct weft_scratch {
    weft_buf *x;     /* hidden: the residual stream */
    weft_buf *h;     /* hidden: its norm, what a block reads */
    weft_buf *delta; /* hidden: what a block adds to x */

    weft_attention_scratch full, sliding;
    weft_buf *qkv, *z, *alpha, *beta, *recalled; /* GDN: channels, n_v_heads v_dim (z, recalled), n_v_heads */
    weft_buf *xbc, *gate, *dt, *scanned;         /* Mamba-2: channels, inner (gate, scanned), heads */
    weft_mlp_scratch mlp[WEFT_MLP_WIDTHS];       /* those in use come first */
    weft_buf *router, *expert_ids, *expert_weights, *mixed, *shared, *shared_gate; /* MoE: experts, top_k twice, hidden twice, 1 */
    weft_buf *latent, *latent_out;                                                 /* MoE: moe_latent */
} weft_scratch;

/* Makes the buffers that the configuration asks for. */
void weft_scratch_make(weft_scratch *s, weft_loader *l);

/* ---- attention ----------------------------------------------------------------------------------------------------------- */

typedef struct weft_attention_block {
    weft_mat *q, *gate, *k, *v, *o; /* gate: NULL where the output is not gated; k, v: NULL where another layer's are read,
                                       v alone: it is what k is before its norm */
    weft_coef *q_bias, *k_bias, *v_bias, *o_bias; /* NULL: none */
    weft_coef *q_gain, *k_gain, *v_gain;          /* of each head; NULL: no norm */
    weft_coef *freq;                              /* NULL: positions do not turn heads */
    weft_attention op;
    float eps;
    bool sliding; /* which scratch */
} weft_attention_block;

/* How a family's layer differs from the plain one. */
typedef struct weft_attention_traits {
    weft_layer_kind kind;         /* ATTENTION or SLIDING */
    const weft_attention *shared; /* reads the keys and values of this one; NULL: has its own */
    bool gated;                   /* q_proj holds, head by head, rows of q and rows of a sigmoid gate on the output */
    bool k_eq_v;                  /* there is no v_proj */
    bool norm_v;                  /* v has a norm without gain */
    bool past;                    /* a row sees positions below its own, a sliding one `window` + 1 of them: a drafter */
    int first_key;
} weft_attention_traits;
/* freq: from weft_rope_frequencies(), or NULL. */
void weft_attention_load(weft_attention_block *a, weft_loader *l, const char *path, weft_coef *freq,
                         const weft_attention_traits *traits);
/* delta = attention(h). */
void weft_attention_run(const weft_attention_block *a, weft_dev *dev, const weft_scratch *s);
/* Only writes this step's keys and values. */
void weft_attention_write(const weft_attention_block *a, weft_dev *dev, const weft_scratch *s);
/* The frequencies of a kind of layers, rope.width / 2 of them; NULL where nothing turns. */
weft_coef *weft_rope_frequencies(weft_loader *l, const weft_heads *heads);

/* ---- recurrences --------------------------------------------------------------------------------------------------------- */

typedef struct weft_delta_net {
    weft_mat *qkv, *z, *alpha, *beta, *out;
    weft_coef *gain;
    weft_gdn op;
    float eps;
} weft_delta_net;
/* Projections as Qwen3.5 has them, or fused as Qwen3-Next has them. */
void weft_delta_net_load(weft_delta_net *g, weft_loader *l, const char *path);
/* delta = net(h). */
void weft_delta_net_run(const weft_delta_net *g, weft_dev *dev, const weft_scratch *s);

typedef struct weft_mamba_block {
    weft_mat *z, *xbc, *dt, *out;
    weft_coef *gain;
    weft_mamba op;
    int group; /* columns that the norm takes together */
    float eps;
} weft_mamba_block;
void weft_mamba_load(weft_mamba_block *b, weft_loader *l, const char *path);
/* delta = mixer(h). */
void weft_mamba_block_run(const weft_mamba_block *b, weft_dev *dev, const weft_scratch *s);

/* ---- feed-forward -------------------------------------------------------------------------------------------------------- */

/* down(act(gate x) * up x), or down(act(up x)) of activations without a gate. */
typedef struct weft_mlp {
    weft_mat *gate, *up, *down;
    weft_coef *gate_bias, *up_bias, *down_bias; /* NULL: none */
    weft_activation act;
    const weft_mlp_scratch *scratch;
} weft_mlp;
void weft_mlp_load(weft_mlp *m, weft_loader *l, weft_scratch *s, const char *path, int inner);
void weft_mlp_run(const weft_mlp *m, weft_dev *dev, weft_buf *y, const weft_buf *x);

/* Experts that a router chooses, and perhaps a shared one that runs always. */
typedef struct weft_mixture {
    weft_mat *router, *gate_up, *down;
    weft_router rule;
    weft_mat *latent_in, *latent_out; /* around the routed experts; NULL: none */
    weft_mlp shared;                  /* down NULL: none */
    weft_mat *shared_gate;            /* [1, hidden]: the shared expert's sigmoid gate; NULL: none */
    weft_activation act;
} weft_mixture;
/* The modules of one: router and experts by the paths that the family gives them. shared NULL: there is none. */
typedef struct weft_mixture_paths {
    const char *router, *bias; /* bias: a tensor, or NULL */
    const char *experts;       /* the module above "experts" */
    const char *shared, *shared_gate;
    const char *latent_in, *latent_out;
} weft_mixture_paths;
void weft_mixture_load(weft_mixture *m, weft_loader *l, weft_scratch *s, const weft_mixture_paths *paths);
/* y = mixture(x), chosen by what the router makes of `routed`. */
void weft_mixture_run(const weft_mixture *m, weft_dev *dev, const weft_scratch *s, weft_buf *y, const weft_buf *x,
                      const weft_buf *routed);

#endif

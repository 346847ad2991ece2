/* blocks.h: the parts that model families share. Each has its weights in a struct, a function that loads them and one that runs
 * them; activations live in a scratch that all layers use in turn. */
#ifndef WEFT_MODEL_BLOCKS_H
#define WEFT_MODEL_BLOCKS_H

#include "model/load.h"

/* Buffers of a decoder layer, [rows, ...]; made once, used by every layer. */
typedef struct weft_scratch {
    weft_buf *x;     /* hidden: the residual stream */
    weft_buf *h;     /* hidden: its norm, what a block reads */
    weft_buf *delta; /* hidden: what a block adds to x */

    weft_buf *q, *gate, *k, *v, *attended;       /* attention: n_heads head_dim (q, gate, attended), n_kv_heads head_dim */
    weft_buf *qkv, *z, *alpha, *beta, *recalled; /* GDN: channels, n_v_heads v_dim (z, recalled), n_v_heads */
    weft_buf *mlp_gate, *mlp_up;                 /* feed-forward: intermediate or shared_intermediate */
    weft_buf *router, *expert_ids, *expert_weights, *shared, *shared_gate; /* MoE: experts, top_k twice, hidden, 1 */
} weft_scratch;

/* Makes the buffers that the configuration asks for. */
void weft_scratch_make(weft_scratch *s, weft_loader *l);

/* ---- attention with a sigmoid output gate -------------------------------------------------------------- */
typedef struct weft_gated_attention {
    weft_mat *q, *gate, *k, *v, *o;
    weft_coef *q_gain, *k_gain, *freq;
    weft_attention op;
    float eps;
} weft_gated_attention;
void weft_gated_attention_load(weft_gated_attention *a, weft_loader *l, const char *path, bool shift, weft_coef *freq,
                               int first_key);
/* delta = attention(h). */
void weft_gated_attention_run(const weft_gated_attention *a, weft_dev *dev, const weft_scratch *s);
/* Only writes this step's keys and values. */
void weft_gated_attention_write(const weft_gated_attention *a, weft_dev *dev, const weft_scratch *s);
/* 1 / theta^(2 j / rotary), j < rotary / 2. */
weft_coef *weft_rope_frequencies(weft_loader *l);

/* ---- Gated DeltaNet ------------------------------------------------------------------------------------------------------ */
typedef struct weft_delta_net {
    weft_mat *qkv, *z, *alpha, *beta, *out;
    weft_coef *gain;
    weft_gdn op;
    float eps;
} weft_delta_net;
void weft_delta_net_load(weft_delta_net *g, weft_loader *l, const char *path);
/* delta = net(h). */
void weft_delta_net_run(const weft_delta_net *g, weft_dev *dev, const weft_scratch *s);

/* ---- feed-forward: SwiGLU, or a mixture of experts with a gated shared expert -------------------------------------------- */
typedef struct weft_feed_forward {
    weft_mat *gate, *up, *down;  /* dense, or the shared expert */
    weft_buf *own_gate, *own_up; /* of a dense MTP layer in a mixture model, whose width no other layer has; else NULL */
    weft_mat *router, *experts_gate_up, *experts_down, *shared_gate; /* router NULL: dense */
    bool renormalise;
} weft_feed_forward;
/* mtp: of the MTP layer, which may be dense in a mixture model; its width is that of its tensors. */
void weft_feed_forward_load(weft_feed_forward *f, weft_loader *l, const char *path, bool mtp);
/* delta = ffn(h). */
void weft_feed_forward_run(const weft_feed_forward *f, weft_dev *dev, const weft_scratch *s);

#endif

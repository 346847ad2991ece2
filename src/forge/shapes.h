/* shapes.h: the sizes of published models, for checkpoints of the same shape and other numbers. */
#ifndef WEFT_FORGE_SHAPES_H
#define WEFT_FORGE_SHAPES_H

#include <stdbool.h>

/* Qwen3.5, dense or mixture of experts. Layer i (from 0) is attention iff (i + 1) % attention_every is 0, else Gated DeltaNet. */
typedef struct weft_shape {
    const char *name; /* lower case, as --like spells it */
    int hidden, n_layers, attention_every, vocab, context;
    bool tied;                                                   /* the output head is the embedding */
    int intermediate;                                            /* of a dense model's feed-forward block; 0 in a mixture */
    int n_heads, n_kv_heads, head_dim, rotary_dim;               /* attention */
    int gdn_k_heads, gdn_v_heads, gdn_dim, gdn_conv;             /* Gated DeltaNet: heads, their width (k and v), taps */
    int n_experts, top_k, moe_intermediate, shared_intermediate; /* 0 in a dense model */
} weft_shape;

/* The i-th known shape, from 0; NULL after the last. */
const weft_shape *weft_shape_at(int i);
/* NULL: no such name. */
const weft_shape *weft_shape_find(const char *name);

#endif

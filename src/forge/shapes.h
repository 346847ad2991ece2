/* shapes.h: the sizes of published models, for checkpoints of the same shape and other numbers. */
#ifndef WEFT_FORGE_SHAPES_H
#define WEFT_FORGE_SHAPES_H

#include <stdbool.h>

typedef enum weft_shape_family {
    WEFT_SHAPE_QWEN3_5, /* dense or mixture, with an MTP head; its GGUF is written without one */
    WEFT_SHAPE_QWEN2,
    WEFT_SHAPE_QWEN3, /* dense or mixture */
    WEFT_SHAPE_LLAMA,
    WEFT_SHAPE_GEMMA3,
    WEFT_SHAPE_GEMMA4, /* dense, or a mixture beside the dense block */
    WEFT_SHAPE_NEMOTRON_H,
} weft_shape_family;

/* A layer attends ('*': to everything, 'S': within the window) or is a Gated DeltaNet ('L'), with a feed-forward block behind it.
 * In Nemotron-H it is one block alone: '*', Mamba-2 ('M') or a mixture of experts ('E'). Sizes that a model has no use for are
 * 0. */
typedef struct weft_shape {
    const char *name; /* lower case, as --like spells it */
    weft_shape_family family;
    const char *layers; /* a letter a layer, again and again */
    int hidden, n_layers, vocab, context;
    bool tied;        /* the output head is the embedding */
    int intermediate; /* of the dense feed-forward block */
    int n_heads, n_kv_heads, head_dim, rotary_dim;
    double theta, rope_factor; /* of RoPE: Llama 3's scaling, 0: none */
    int window;
    int full_kv_heads, full_head_dim;      /* of '*' in Gemma 4 */
    bool k_is_v;                           /* and there the values are the keys */
    int own_keys;                          /* layers from here on read the keys of earlier ones, and are twice as wide; 0: none */
    int layer_inputs;                      /* columns of each layer's own embedding */
    int gdn_k_heads, gdn_v_heads, gdn_dim; /* Gated DeltaNet: heads, their width (k and v) */
    int mamba_heads, mamba_head_dim, mamba_groups, mamba_state; /* Mamba-2 */
    int taps;                                                   /* of either's convolution */
    int n_experts, top_k, moe_intermediate, shared_intermediate;
} weft_shape;

/* The i-th known shape, from 0; NULL after the last. */
const weft_shape *weft_shape_at(int i);
/* NULL: no such name. */
const weft_shape *weft_shape_find(const char *name);

/* Layer i's letter. */
char weft_shape_layer(const weft_shape *s, int i);
/* Heads of a layer with this letter. */
int weft_shape_kv_heads(const weft_shape *s, char letter);
int weft_shape_head_dim(const weft_shape *s, char letter);
/* Of the first n layers, those that read other layers' keys. */
int weft_shape_sharing(const weft_shape *s, int n);

#endif

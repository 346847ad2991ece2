/* gemma4.h: a layer of Gemma 4, of the model's own and of its assistant. */
#ifndef WEFT_MODEL_GEMMA4_H
#define WEFT_MODEL_GEMMA4_H

#include "model/family.h"

typedef struct weft_gemma4_layer {
    float eps;
    weft_coef *norm, *attention_out_norm, *ffn_norm, *ffn_out_norm;
    weft_attention_block attention;
    weft_mlp mlp;

    weft_mixture moe;                                                /* down NULL: none */
    weft_coef *router_norm, *moe_norm, *mlp_out_norm, *moe_out_norm; /* router_norm: with the router's own scale */

    const weft_buf *input; /* the layer's own embedding of the tokens: layer_inputs; NULL: none */
    weft_buf *gated;       /* layer_inputs */
    weft_mat *input_gate, *input_out;
    weft_coef *input_norm;

    float scalar; /* of the layer's output */
} weft_gemma4_layer;

/* Where a layer finds its own embedding; view NULL: it has none. */
typedef struct weft_gemma4_inputs {
    const weft_buf *view;
    weft_buf *gated;
} weft_gemma4_inputs;

void weft_gemma4_layer_load(weft_gemma4_layer *y, weft_loader *l, weft_scratch *s, const char *path, weft_coef *freq,
                            const weft_attention_traits *traits, const weft_gemma4_inputs *inputs);
/* s->x through the layer. */
void weft_gemma4_layer_run(const weft_gemma4_layer *l, weft_dev *dev, const weft_scratch *s);

#endif

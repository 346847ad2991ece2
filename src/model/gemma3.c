/* gemma3.c: Gemma 3's text model. Five of six layers see a window, the sixth everything; norms stand before and behind each block;
 * gains are zero-centred in every format but GGUF; the embedding is scaled by sqrt(hidden), and is the head. */
#include "model/family.h"

typedef struct layer {
    weft_coef *norm, *attention_out_norm, *ffn_norm, *ffn_out_norm;
    weft_attention_block attention;
    weft_mlp mlp;
} layer;

typedef struct gemma3 {
    weft_model m;
    layer *layers;
} gemma3;

static void trunk(weft_model *m) {
    const weft_scratch *s = &m->s;
    const layer *layers = ((const gemma3 *)m)->layers;
    weft_model_embed(m);
    weft_norm(m->dev, s->h, s->x, layers[0].norm, m->eps);
    for (int i = 0; i < m->n_layers; i++) {
        const layer *l = &layers[i];
        bool last = i + 1 == m->n_layers;
        weft_attention_run(&l->attention, m->dev, s);
        weft_norm(m->dev, s->delta, s->delta, l->attention_out_norm, m->eps);
        weft_add_norm(m->dev, s->x, s->delta, s->h, l->ffn_norm, m->eps);
        weft_mlp_run(&l->mlp, m->dev, s->delta, s->h);
        weft_norm(m->dev, s->delta, s->delta, l->ffn_out_norm, m->eps);
        weft_add_norm(m->dev, s->x, s->delta, last ? m->hidden : s->h, last ? m->final_norm : layers[i + 1].norm, m->eps);
    }
}

static void load(weft_model *m, weft_loader *l) {
    gemma3 *g = (gemma3 *)m;
    const weft_model_config *c = l->config;
    const char *trunk = l->dir->trunk;
    g->layers = weft_arena_get(&m->arena, (size_t)c->n_layers, sizeof *g->layers);
    if (!g->layers) {
        weft_loader_oom(l, "the model");
        return;
    }
    l->shift = true;
    weft_coef *full = weft_rope_frequencies(l, &c->full), *sliding = weft_rope_frequencies(l, &c->sliding);
    m->embed_scale = weft_root_bf16(c->hidden_size);
    weft_load_embedding(m, l);
    for (int i = 0; i < c->n_layers; i++) {
        layer *y = &g->layers[i];
        const char *path = weft_loader_path(l, trunk, "layers.%d", i);
        weft_layer_kind kind = c->layer_kind[i];
        y->norm = weft_load_gain(l, weft_loader_path(l, path, ".input_layernorm"), c->hidden_size);
        weft_attention_load(&y->attention, l, weft_loader_path(l, path, ".self_attn"), kind == WEFT_LAYER_SLIDING ? sliding : full,
                            &(weft_attention_traits){.kind = kind});
        y->attention_out_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_attention_layernorm"), c->hidden_size);
        y->ffn_norm = weft_load_gain(l, weft_loader_path(l, path, ".pre_feedforward_layernorm"), c->hidden_size);
        weft_mlp_load(&y->mlp, l, &m->s, weft_loader_path(l, path, ".mlp"), c->intermediate_size);
        y->ffn_out_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_feedforward_layernorm"), c->hidden_size);
    }
    weft_load_head(m, l);
}

const weft_family_methods weft_gemma3 = {.bytes = sizeof(gemma3), .load = load, .trunk = trunk};

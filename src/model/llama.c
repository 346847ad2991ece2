/* llama.c: the plain decoder: Llama 3, Qwen2 and 2.5 (biases on q, k and v), Qwen3 (norms on the heads of q and k), Qwen3-MoE
 * (mixtures without a shared expert), and what is built on them: Qwen3-Embedding and -Reranker. */
#include "model/family.h"

typedef struct layer {
    weft_coef *norm, *ffn_norm;
    weft_attention_block attention;
    weft_mixture moe;
    weft_mlp mlp; /* down NULL: a mixture */
} layer;

typedef struct llama {
    weft_model m;
    layer *layers;
} llama;

static void trunk(weft_model *m) {
    const weft_scratch *s = &m->s;
    const layer *layers = ((const llama *)m)->layers;
    weft_model_embed(m);
    weft_norm(m->dev, s->h, s->x, layers[0].norm, m->eps);
    for (int i = 0; i < m->n_layers; i++) {
        const layer *l = &layers[i];
        bool last = i + 1 == m->n_layers;
        weft_attention_run(&l->attention, m->dev, s);
        weft_add_norm(m->dev, s->x, s->delta, s->h, l->ffn_norm, m->eps);
        if (l->mlp.down)
            weft_mlp_run(&l->mlp, m->dev, s->delta, s->h);
        else
            weft_mixture_run(&l->moe, m->dev, s, s->delta, s->h, s->h);
        weft_add_norm(m->dev, s->x, s->delta, last ? m->hidden : s->h, last ? m->final_norm : layers[i + 1].norm, m->eps);
    }
}

static void layer_load(layer *y, weft_loader *l, weft_scratch *s, const char *path, weft_layer_kind kind, weft_coef *freq) {
    const weft_model_config *c = l->config;
    const char *mlp = weft_loader_path(l, path, ".mlp");
    y->norm = weft_load_gain(l, weft_loader_path(l, path, ".input_layernorm"), c->hidden_size);
    weft_attention_load(&y->attention, l, weft_loader_path(l, path, ".self_attn"), freq, &(weft_attention_traits){.kind = kind});
    y->ffn_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_attention_layernorm"), c->hidden_size);
    if (c->n_experts)
        weft_mixture_load(&y->moe, l, s, &(weft_mixture_paths){.router = weft_loader_path(l, mlp, ".gate"), .experts = mlp});
    else
        weft_mlp_load(&y->mlp, l, s, mlp, c->intermediate_size);
}

static void load(weft_model *m, weft_loader *l) {
    llama *x = (llama *)m;
    const weft_model_config *c = l->config;
    const char *trunk = l->dir->trunk;
    x->layers = weft_arena_get(&m->arena, (size_t)c->n_layers, sizeof *x->layers);
    if (!x->layers) {
        weft_loader_oom(l, "the model");
        return;
    }
    weft_coef *freq = weft_rope_frequencies(l, &c->full);
    weft_load_embedding(m, l);
    for (int i = 0; i < c->n_layers; i++)
        layer_load(&x->layers[i], l, &m->s, weft_loader_path(l, trunk, "layers.%d", i), c->layer_kind[i], freq);
    weft_load_head(m, l);
}

const weft_family_methods weft_llama = {.bytes = sizeof(llama), .load = load, .trunk = trunk};

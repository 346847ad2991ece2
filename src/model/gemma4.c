/* gemma4.c: Gemma 4's text model.
 *
 * Layers see a window or everything, with heads of different widths; attention is not scaled, as q and k are normed, and v too;
 * norms stand before and behind each block. What sizes add: the full layers' v is their k; the last layers read the keys and
 * values of earlier ones, and may be twice as wide; each layer has an embedding of its own for every token (on disk: one row of it
 * is needed a token), gated by the hidden row; experts beside the dense block. Logits are capped; the embedding is the head. */
#include "model/gemma4.h"

typedef struct gemma4 {
    weft_model m;
    weft_gemma4_layer *layers;
    int layer_inputs; /* columns for a layer; 0: none */
    weft_table *input_table;
    weft_mat *input_projection;
    weft_coef *input_projection_norm;
    weft_buf *inputs, *projected; /* n_layers layer_inputs */
    weft_buf *gated;              /* layer_inputs */
} gemma4;

/* ---- one token's way through the network --------------------------------------------------------------------------------- */

/* (norm(projection of the embedding) + the tokens' own rows) / sqrt(2), for all layers at once. */
static void embed_inputs(const gemma4 *g) {
    const weft_model *m = &g->m;
    weft_linear(m->dev, (weft_buf *[]){g->projected}, (const weft_mat *[]){g->input_projection}, 1, m->s.x);
    weft_scale(m->dev, g->projected, 1.0f / __builtin_sqrtf((float)m->hidden_size));
    weft_norm(m->dev, g->projected, g->projected, g->input_projection_norm, m->eps);
    weft_lookup(m->dev, g->inputs, g->input_table, __builtin_sqrtf((float)g->layer_inputs));
    weft_add(m->dev, g->inputs, g->projected);
    weft_scale(m->dev, g->inputs, 0.70710678118654752f);
}

/* delta = the feed-forward part of x, before its outer norm; h is x's norm for the dense block. */
static void feed_forward(const weft_gemma4_layer *l, weft_dev *dev, const weft_scratch *s) {
    weft_mlp_run(&l->mlp, dev, s->delta, s->h);
    if (!l->moe.down) return;
    weft_norm(dev, s->delta, s->delta, l->mlp_out_norm, l->eps);
    weft_norm(dev, s->shared, s->x, l->router_norm, l->eps);
    weft_norm(dev, s->h, s->x, l->moe_norm, l->eps);
    weft_mixture_run(&l->moe, dev, s, s->mixed, s->h, s->shared);
    weft_norm(dev, s->mixed, s->mixed, l->moe_out_norm, l->eps);
    weft_add(dev, s->delta, s->mixed);
}

void weft_gemma4_layer_run(const weft_gemma4_layer *l, weft_dev *dev, const weft_scratch *s) {
    weft_norm(dev, s->h, s->x, l->norm, l->eps);
    weft_attention_run(&l->attention, dev, s);
    weft_norm(dev, s->delta, s->delta, l->attention_out_norm, l->eps);
    weft_add_norm(dev, s->x, s->delta, s->h, l->ffn_norm, l->eps);
    feed_forward(l, dev, s);
    weft_norm(dev, s->delta, s->delta, l->ffn_out_norm, l->eps);
    weft_add(dev, s->x, s->delta);
    if (l->input) { /* x += norm(out(gelu(gate x) * input)) */
        weft_linear(dev, (weft_buf *[]){l->gated}, (const weft_mat *[]){l->input_gate}, 1, s->x);
        weft_activate(dev, l->gated, l->gated, l->input, WEFT_GELU_TANH);
        weft_linear(dev, (weft_buf *[]){s->delta}, (const weft_mat *[]){l->input_out}, 1, l->gated);
        weft_norm(dev, s->delta, s->delta, l->input_norm, l->eps);
        weft_add(dev, s->x, s->delta);
    }
    if (l->scalar != 1) weft_scale(dev, s->x, l->scalar);
}

static void trunk(weft_model *m) {
    const gemma4 *g = (const gemma4 *)m;
    weft_model_embed(m);
    if (g->layer_inputs) embed_inputs(g);
    for (int i = 0; i < m->n_layers; i++) weft_gemma4_layer_run(&g->layers[i], m->dev, &m->s);
    weft_norm(m->dev, m->hidden, m->s.x, m->final_norm, m->eps);
}

/* ---- loading ------------------------------------------------------------------------------------------------------------- */

static void load_mixture(weft_gemma4_layer *y, weft_loader *l, weft_scratch *s, const char *path) {
    const weft_model_config *c = l->config;
    weft_mixture_load(&y->moe, l, s, &(weft_mixture_paths){.router = weft_loader_path(l, path, ".router.proj"), .experts = path});
    y->moe.rule.expert_scale = weft_load_vector(l, weft_loader_path(l, path, ".router.per_expert_scale"), c->n_experts, 1);
    y->router_norm = weft_load_vector(l, weft_loader_path(l, path, ".router.scale"), c->hidden_size,
                                      1.0f / __builtin_sqrtf((float)c->hidden_size));
    y->moe_norm = weft_load_gain(l, weft_loader_path(l, path, ".pre_feedforward_layernorm_2"), c->hidden_size);
    y->mlp_out_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_feedforward_layernorm_1"), c->hidden_size);
    y->moe_out_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_feedforward_layernorm_2"), c->hidden_size);
}

static void load_layer_input(weft_gemma4_layer *y, weft_loader *l, const char *path, const weft_gemma4_inputs *in) {
    int64_t hidden = l->config->hidden_size, cols = l->config->layer_inputs;
    y->gated = in->gated;
    y->input = in->view;
    y->input_gate = weft_load_mat(l, weft_loader_path(l, path, ".per_layer_input_gate"), cols, hidden);
    y->input_out = weft_load_mat(l, weft_loader_path(l, path, ".per_layer_projection"), hidden, cols);
    y->input_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_per_layer_input_norm"), hidden);
}

void weft_gemma4_layer_load(weft_gemma4_layer *y, weft_loader *l, weft_scratch *s, const char *path, weft_coef *freq,
                            const weft_attention_traits *traits, const weft_gemma4_inputs *inputs) {
    const weft_model_config *c = l->config;
    int hidden = c->hidden_size, inner = traits->shared && c->double_wide_mlp ? 2 * c->intermediate_size : c->intermediate_size;
    y->eps = c->norm_eps;
    y->norm = weft_load_gain(l, weft_loader_path(l, path, ".input_layernorm"), hidden);
    weft_attention_load(&y->attention, l, weft_loader_path(l, path, ".self_attn"), freq, traits);
    y->attention_out_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_attention_layernorm"), hidden);
    y->ffn_norm = weft_load_gain(l, weft_loader_path(l, path, ".pre_feedforward_layernorm"), hidden);
    weft_mlp_load(&y->mlp, l, s, weft_loader_path(l, path, ".mlp"), inner);
    if (c->n_experts) load_mixture(y, l, s, path);
    y->ffn_out_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_feedforward_layernorm"), hidden);
    if (inputs->view) load_layer_input(y, l, path, inputs);
    const float *scalar = weft_load_floats(l, weft_loader_path(l, path, ".layer_scalar"), 1, &(int64_t){1});
    if (scalar) y->scalar = scalar[0];
}

static void load_inputs(gemma4 *g, weft_loader *l) {
    const weft_model_config *c = l->config;
    const char *trunk = l->dir->trunk;
    int all = c->n_layers * c->layer_inputs;
    g->layer_inputs = c->layer_inputs;
    g->input_table = weft_load_table(l, weft_loader_path(l, trunk, "embed_tokens_per_layer"), c->vocab_size, all);
    g->input_projection = weft_load_mat(l, weft_loader_path(l, trunk, "per_layer_model_projection"), all, c->hidden_size);
    g->input_projection_norm = weft_load_gain(l, weft_loader_path(l, trunk, "per_layer_projection_norm"), c->layer_inputs);
    g->inputs = weft_load_buf(l, NULL, all);
    g->projected = weft_load_buf(l, "inputs", all);
    g->gated = weft_load_buf(l, "inputs", c->layer_inputs);
}

/* Layer i's columns of the tokens' inputs. */
static weft_gemma4_inputs layer_inputs(const gemma4 *g, weft_loader *l, int i) {
    weft_gemma4_inputs in = {.gated = g->gated};
    if (!g->layer_inputs || l->status != WEFT_OK) return in;
    in.view = weft_buf_view(l->dev, g->inputs, i * g->layer_inputs, g->layer_inputs);
    if (!in.view) weft_loader_oom(l, "buffers");
    return in;
}

static void load(weft_model *m, weft_loader *l) {
    gemma4 *g = (gemma4 *)m;
    const weft_model_config *c = l->config;
    const char *trunk = l->dir->trunk;
    int own = c->n_layers - c->kv_shared_layers;
    g->layers = weft_arena_get(&m->arena, (size_t)c->n_layers, sizeof *g->layers);
    if (!g->layers) {
        weft_loader_oom(l, "the model");
        return;
    }
    weft_coef *full = weft_rope_frequencies(l, &c->full), *sliding = weft_rope_frequencies(l, &c->sliding);
    m->embed_scale = weft_root_bf16(c->hidden_size);
    weft_load_embedding(m, l);
    if (c->layer_inputs) load_inputs(g, l);
    for (int i = 0; i < c->n_layers; i++) {
        bool slides = c->layer_kind[i] == WEFT_LAYER_SLIDING;
        const weft_attention **last = slides ? &m->own_sliding : &m->own_full;
        weft_attention_traits traits = {.kind = slides ? WEFT_LAYER_SLIDING : WEFT_LAYER_ATTENTION,
                                        .shared = i < own ? NULL : *last,
                                        .k_eq_v = c->k_eq_v && !slides,
                                        .norm_v = true};
        weft_gemma4_inputs inputs = layer_inputs(g, l, i);
        weft_gemma4_layer_load(&g->layers[i], l, &m->s, weft_loader_path(l, trunk, "layers.%d", i), slides ? sliding : full,
                               &traits, &inputs);
        if (i < own) *last = &g->layers[i].attention.op;
    }
    weft_load_head(m, l);
}

const weft_family_methods weft_gemma4 = {.bytes = sizeof(gemma4), .load = load, .trunk = trunk};

/* qwen_hybrid.c: Qwen3-Next and Qwen3.5, 3.6, 3.8, dense and mixture of experts, with their MTP head.
 *
 * Three of four layers are Gated DeltaNet, the fourth is full attention with a sigmoid output gate; every layer is followed by a
 * SwiGLU or a mixture of experts. Norms come before the blocks, gains are zero-centred in Hugging Face checkpoints. */
#include "model/family.h"

typedef struct layer {
    weft_coef *norm, *ffn_norm;
    bool attends;
    weft_attention_block attention;
    weft_delta_net delta_net;
    weft_mixture moe;
    weft_mlp mlp; /* down NULL: a mixture */
} layer;

typedef struct qwen_hybrid {
    weft_model m;
    layer *layers;
    layer mtp;
} qwen_hybrid;

/* ---- one token's way through the network --------------------------------------------------------------------------------- */

/* x holds the layer's input, h its norm by `norm`; leaves x with both blocks added and y = x's norm by `next`. */
static void layer_run(const weft_model *m, const layer *l, weft_buf *y, const weft_coef *next) {
    const weft_scratch *s = &m->s;
    if (l->attends)
        weft_attention_run(&l->attention, m->dev, s);
    else
        weft_delta_net_run(&l->delta_net, m->dev, s);
    weft_add_norm(m->dev, s->x, s->delta, s->h, l->ffn_norm, m->eps);
    if (l->mlp.down)
        weft_mlp_run(&l->mlp, m->dev, s->delta, s->h);
    else
        weft_mixture_run(&l->moe, m->dev, s, s->delta, s->h, s->h);
    weft_add_norm(m->dev, s->x, s->delta, y, next, m->eps);
}

static void trunk(weft_model *m) {
    const qwen_hybrid *q = (const qwen_hybrid *)m;
    weft_model_embed(m);
    weft_norm(m->dev, m->s.h, m->s.x, q->layers[0].norm, m->eps);
    for (int i = 0; i < m->n_layers; i++) {
        bool last = i + 1 == m->n_layers;
        layer_run(m, &q->layers[i], last ? m->hidden : m->s.h, last ? m->final_norm : q->layers[i + 1].norm);
    }
}

static void mtp(weft_model *m, weft_mtp_rows rows) {
    const qwen_hybrid *q = (const qwen_hybrid *)m;
    if (rows == WEFT_MTP_FULL)
        layer_run(m, &q->mtp, m->mtp.out, m->mtp.final_norm);
    else
        weft_attention_write(&q->mtp.attention, m->dev, &m->s);
}

/* ---- loading ------------------------------------------------------------------------------------------------------------- */

static void mixture_load(weft_mixture *x, weft_loader *l, weft_scratch *s, const char *path) {
    weft_mixture_load(x, l, s,
                      &(weft_mixture_paths){.router = weft_loader_path(l, path, ".gate"),
                                            .experts = path,
                                            .shared = weft_loader_path(l, path, ".shared_expert"),
                                            .shared_gate = weft_loader_path(l, path, ".shared_expert_gate")});
}

/* first_key: 1 in the MTP head, which some packs make dense in a mixture model: its tensors tell. */
static void layer_load(layer *y, weft_loader *l, weft_scratch *s, const char *path, bool attends, weft_coef *freq, int first_key) {
    const weft_model_config *c = l->config;
    const char *mlp = weft_loader_path(l, path, ".mlp");
    y->attends = attends;
    y->norm = weft_load_gain(l, weft_loader_path(l, path, ".input_layernorm"), c->hidden_size);
    if (attends)
        weft_attention_load(&y->attention, l, weft_loader_path(l, path, ".self_attn"), freq,
                            &(weft_attention_traits){.kind = WEFT_LAYER_ATTENTION, .gated = true, .first_key = first_key});
    else
        weft_delta_net_load(&y->delta_net, l, weft_loader_path(l, path, ".linear_attn"));
    y->ffn_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_attention_layernorm"), c->hidden_size);
    int dense = !c->n_experts ? c->intermediate_size : first_key ? weft_loader_rows(l, weft_loader_path(l, mlp, ".gate_proj")) : 0;
    if (dense)
        weft_mlp_load(&y->mlp, l, s, mlp, dense);
    else
        mixture_load(&y->moe, l, s, mlp);
}

static void mtp_load(qwen_hybrid *q, weft_loader *l, weft_coef *freq) {
    weft_model *m = &q->m;
    const char *path = l->dir->mtp;
    l->shift = !l->dir->mtp_converted;
    weft_mtp_load(m, l, "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden");
    layer_load(&q->mtp, l, &m->s, weft_loader_path(l, path, "layers.0"), true, freq, 1);
    m->mtp.layer_norm = q->mtp.norm;
    m->mtp.final_norm = weft_load_gain_or_ones(l, weft_loader_path(l, path, "norm"), l->config->hidden_size);
}

static void load(weft_model *m, weft_loader *l) {
    qwen_hybrid *q = (qwen_hybrid *)m;
    const weft_model_config *c = l->config;
    const char *trunk = l->dir->trunk;
    q->layers = weft_arena_get(&m->arena, (size_t)c->n_layers, sizeof *q->layers);
    if (!q->layers) {
        weft_loader_oom(l, "the model");
        return;
    }
    l->shift = !l->dir->converted;
    weft_coef *freq = weft_rope_frequencies(l, &c->full);
    weft_load_embedding(m, l);
    for (int i = 0; i < c->n_layers; i++)
        layer_load(&q->layers[i], l, &m->s, weft_loader_path(l, trunk, "layers.%d", i), c->layer_kind[i] == WEFT_LAYER_ATTENTION,
                   freq, 0);
    weft_load_head(m, l);
    if (m->has_mtp) mtp_load(q, l, freq);
}

const weft_family_methods weft_qwen_hybrid = {.bytes = sizeof(qwen_hybrid), .load = load, .trunk = trunk, .mtp = mtp};

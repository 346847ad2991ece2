/* nemotron_h.c: Nemotron-H and Nemotron 3. A layer is one block behind one norm: Mamba-2, attention without positions, a dense
 * block with squared ReLU, or a mixture chosen by sigmoids, whose experts may work in a smaller latent space. The MTP head is an
 * attention layer and a mixture layer. */
#include "model/family.h"

typedef struct layer {
    weft_layer_kind kind;
    weft_coef *norm;
    weft_mamba_block mamba;
    weft_attention_block attention;
    weft_mlp mlp;
    weft_mixture moe;
} layer;

typedef struct nemotron_h {
    weft_model m;
    layer *layers;
    layer mtp[2];
} nemotron_h;

/* ---- one token's way through the network --------------------------------------------------------------------------------- */

/* x holds the layer's input, h its norm; leaves x with the block added and y = x's norm by `next`. */
static void layer_run(const weft_model *m, const layer *l, weft_buf *y, const weft_coef *next) {
    const weft_scratch *s = &m->s;
    switch (l->kind) {
    case WEFT_LAYER_MAMBA: weft_mamba_block_run(&l->mamba, m->dev, s); break;
    case WEFT_LAYER_MLP: weft_mlp_run(&l->mlp, m->dev, s->delta, s->h); break;
    case WEFT_LAYER_MOE: weft_mixture_run(&l->moe, m->dev, s, s->delta, s->h, s->h); break;
    default: weft_attention_run(&l->attention, m->dev, s); break;
    }
    weft_add_norm(m->dev, s->x, s->delta, y, next, m->eps);
}

static void trunk(weft_model *m) {
    const layer *layers = ((const nemotron_h *)m)->layers;
    weft_model_embed(m);
    weft_norm(m->dev, m->s.h, m->s.x, layers[0].norm, m->eps);
    for (int i = 0; i < m->n_layers; i++) {
        bool last = i + 1 == m->n_layers;
        layer_run(m, &layers[i], last ? m->hidden : m->s.h, last ? m->final_norm : layers[i + 1].norm);
    }
}

static void mtp(weft_model *m, weft_mtp_rows rows) {
    const layer *layers = ((const nemotron_h *)m)->mtp;
    if (rows == WEFT_MTP_WRITE) {
        weft_attention_write(&layers[0].attention, m->dev, &m->s);
        return;
    }
    layer_run(m, &layers[0], m->s.h, layers[1].norm);
    layer_run(m, &layers[1], m->mtp.out, m->mtp.final_norm);
}

/* ---- loading ------------------------------------------------------------------------------------------------------------- */

static void mixture_load(weft_mixture *x, weft_loader *l, weft_scratch *s, const char *path) {
    const weft_model_config *c = l->config;
    weft_mixture_load(x, l, s,
                      &(weft_mixture_paths){.router = weft_loader_path(l, path, ".gate"),
                                            .bias = weft_loader_path(l, path, ".gate.e_score_correction_bias"),
                                            .experts = path,
                                            .shared = c->shared_intermediate ? weft_loader_path(l, path, ".shared_experts") : NULL,
                                            .latent_in = weft_loader_path(l, path, ".fc1_latent_proj"),
                                            .latent_out = weft_loader_path(l, path, ".fc2_latent_proj")});
}

static void layer_load(layer *y, weft_loader *l, weft_scratch *s, const char *path, weft_layer_kind kind, int first_key) {
    const weft_model_config *c = l->config;
    const char *mixer = weft_loader_path(l, path, ".mixer");
    y->kind = kind;
    y->norm = weft_load_gain(l, weft_loader_path(l, path, ".norm"), c->hidden_size);
    switch (kind) {
    case WEFT_LAYER_MAMBA: weft_mamba_load(&y->mamba, l, mixer); break;
    case WEFT_LAYER_MLP: weft_mlp_load(&y->mlp, l, s, mixer, c->intermediate_size); break;
    case WEFT_LAYER_MOE: mixture_load(&y->moe, l, s, mixer); break;
    default:
        weft_attention_load(&y->attention, l, mixer, NULL, &(weft_attention_traits){.kind = kind, .first_key = first_key});
        break;
    }
}

static void mtp_load(nemotron_h *n, weft_loader *l) {
    weft_model *m = &n->m;
    const char *path = l->dir->mtp;
    weft_mtp_load(m, l, "layers.0.eh_proj", "layers.0.enorm", "layers.0.hnorm");
    layer_load(&n->mtp[0], l, &m->s, weft_loader_path(l, path, "layers.0"), WEFT_LAYER_ATTENTION, 1);
    layer_load(&n->mtp[1], l, &m->s, weft_loader_path(l, path, "layers.1"), WEFT_LAYER_MOE, 0);
    m->mtp.layer_norm = n->mtp[0].norm;
    m->mtp.final_norm = weft_load_gain(l, weft_loader_path(l, path, "layers.1.final_layernorm"), l->config->hidden_size);
}

static void load(weft_model *m, weft_loader *l) {
    nemotron_h *n = (nemotron_h *)m;
    const weft_model_config *c = l->config;
    const char *trunk = l->dir->trunk;
    n->layers = weft_arena_get(&m->arena, (size_t)c->n_layers, sizeof *n->layers);
    if (!n->layers) {
        weft_loader_oom(l, "the model");
        return;
    }
    weft_load_embedding(m, l);
    for (int i = 0; i < c->n_layers; i++)
        layer_load(&n->layers[i], l, &m->s, weft_loader_path(l, trunk, "layers.%d", i), c->layer_kind[i], 0);
    weft_load_head(m, l);
    if (m->has_mtp) mtp_load(n, l);
}

const weft_family_methods weft_nemotron_h = {.bytes = sizeof(nemotron_h), .load = load, .trunk = trunk, .mtp = mtp};

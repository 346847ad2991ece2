/* scratch.c: the buffers of a decoder layer. */
#include "model/blocks.h"

static void attention_scratch(weft_attention_scratch *a, weft_loader *l, const char *phase, const weft_heads *heads) {
    int q = l->config->n_heads * heads->head_dim, kv = heads->n_kv_heads * heads->head_dim;
    a->q = weft_load_buf(l, phase, q);
    if (l->config->family == WEFT_FAMILY_QWEN_HYBRID) a->gate = weft_load_buf(l, phase, q);
    a->attended = weft_load_buf(l, phase, q);
    a->k = weft_load_buf(l, phase, kv);
    a->v = weft_load_buf(l, phase, kv);
}

static void gdn_scratch(weft_scratch *s, weft_loader *l) {
    const weft_model_config *c = l->config;
    int values = c->gdn_v_heads * c->gdn_v_dim;
    s->qkv = weft_load_buf(l, "delta net", 2 * c->gdn_k_heads * c->gdn_k_dim + values);
    s->z = weft_load_buf(l, "delta net", values);
    s->alpha = weft_load_buf(l, "delta net", c->gdn_v_heads);
    s->beta = weft_load_buf(l, "delta net", c->gdn_v_heads);
    s->recalled = weft_load_buf(l, "delta net", values);
}

static void mamba_scratch(weft_scratch *s, weft_loader *l) {
    const weft_model_config *c = l->config;
    int inner = c->mamba_heads * c->mamba_head_dim;
    s->xbc = weft_load_buf(l, "mamba", inner + 2 * c->mamba_groups * c->mamba_state);
    s->gate = weft_load_buf(l, "mamba", inner);
    s->dt = weft_load_buf(l, "mamba", c->mamba_heads);
    s->scanned = weft_load_buf(l, "mamba", inner);
}

/* Buffers of dense blocks are made when a block of their width is loaded. */
static void moe_scratch(weft_scratch *s, weft_loader *l) {
    const weft_model_config *c = l->config;
    s->router = weft_load_buf(l, "feed-forward", c->n_experts);
    s->expert_ids = weft_load_buf(l, "feed-forward", c->top_k);
    s->expert_weights = weft_load_buf(l, "feed-forward", c->top_k);
    s->mixed = weft_load_buf(l, "feed-forward", c->hidden_size);
    s->shared = weft_load_buf(l, "feed-forward", c->hidden_size);
    s->shared_gate = weft_load_buf(l, "feed-forward", 1);
    if (!c->moe_latent) return;
    s->latent = weft_load_buf(l, "feed-forward", c->moe_latent);
    s->latent_out = weft_load_buf(l, "feed-forward", c->moe_latent);
}

void weft_scratch_make(weft_scratch *s, weft_loader *l) {
    const weft_model_config *c = l->config;
    s->x = weft_load_buf(l, NULL, c->hidden_size);
    s->h = weft_load_buf(l, NULL, c->hidden_size);
    s->delta = weft_load_buf(l, NULL, c->hidden_size);
    attention_scratch(&s->full, l, "attention", &c->full);
    if (weft_config_count(c, WEFT_LAYER_SLIDING)) attention_scratch(&s->sliding, l, "sliding attention", &c->sliding);
    if (weft_config_count(c, WEFT_LAYER_GDN)) gdn_scratch(s, l);
    if (weft_config_count(c, WEFT_LAYER_MAMBA)) mamba_scratch(s, l);
    if (c->n_experts) moe_scratch(s, l);
}

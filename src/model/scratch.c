/* scratch.c: the buffers of a decoder layer. Mixers and feed-forward blocks never live at the same time and share memory. */
#include "model/blocks.h"

void weft_scratch_make(weft_scratch *s, weft_loader *l) {
    const weft_model_config *c = l->config;
    int q = c->n_heads * c->full.head_dim, kv = c->full.n_kv_heads * c->full.head_dim, values = c->gdn_v_heads * c->gdn_v_dim;
    int dense = c->n_experts ? c->shared_intermediate : c->intermediate_size;
    struct {
        weft_buf **buf;
        const char *phase;
        int cols; /* 0: the model has no such block */
    } all[] = {
        {&s->x, NULL, c->hidden_size},
        {&s->h, NULL, c->hidden_size},
        {&s->delta, NULL, c->hidden_size},
        {&s->q, "attention", q},
        {&s->gate, "attention", q},
        {&s->k, "attention", kv},
        {&s->v, "attention", kv},
        {&s->attended, "attention", q},
        {&s->qkv, "delta net", 2 * c->gdn_k_heads * c->gdn_k_dim + values},
        {&s->z, "delta net", values},
        {&s->alpha, "delta net", c->gdn_v_heads},
        {&s->beta, "delta net", c->gdn_v_heads},
        {&s->recalled, "delta net", values},
        {&s->mlp_gate, "feed-forward", dense},
        {&s->mlp_up, "feed-forward", dense},
        {&s->router, "feed-forward", c->n_experts},
        {&s->expert_ids, "feed-forward", c->top_k},
        {&s->expert_weights, "feed-forward", c->top_k},
        {&s->shared, "feed-forward", dense && c->n_experts ? c->hidden_size : 0},
        {&s->shared_gate, "feed-forward", dense && c->n_experts ? 1 : 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].buf = all[i].cols ? weft_buf_make(l->dev, all[i].phase, 0, all[i].cols) : NULL;
        if (all[i].cols && !*all[i].buf) weft_loader_oom(l, "buffers");
    }
}

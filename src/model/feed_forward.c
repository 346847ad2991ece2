/* feed_forward.c: SwiGLU, alone or as a mixture of experts with a gated shared expert. Which one a layer has, its tensors say: some
 * packs give a mixture model a dense MTP layer. */
#include "model/blocks.h"

static void load_dense(weft_feed_forward *f, weft_loader *l, const char *path, int64_t inner) {
    int64_t hidden = l->config->hidden_size;
    f->gate = weft_load_mat(l, weft_loader_path(l, path, ".gate_proj"), inner, hidden);
    f->up = weft_load_mat(l, weft_loader_path(l, path, ".up_proj"), inner, hidden);
    f->down = weft_load_mat(l, weft_loader_path(l, path, ".down_proj"), hidden, inner);
}

void weft_feed_forward_load(weft_feed_forward *f, weft_loader *l, const char *path, bool mtp) {
    const weft_model_config *c = l->config;
    int64_t hidden = c->hidden_size;
    int dense = mtp ? weft_loader_rows(l, weft_loader_path(l, path, ".gate_proj")) : 0;
    if (!c->n_experts || dense) {
        load_dense(f, l, path, c->n_experts ? dense : c->intermediate_size);
        if (!c->n_experts) return;
        f->own_gate = weft_buf_make(l->dev, "feed-forward", 0, dense);
        f->own_up = weft_buf_make(l->dev, "feed-forward", 0, dense);
        if (!f->own_gate || !f->own_up) weft_loader_oom(l, path);
        return;
    }
    f->renormalise = c->norm_topk;
    f->router = weft_load_mat(l, weft_loader_path(l, path, ".gate"), c->n_experts, hidden);
    f->experts_gate_up = weft_load_gate_up(l, path, c->n_experts, c->moe_intermediate, hidden);
    f->experts_down = weft_load_down(l, path, c->n_experts, hidden, c->moe_intermediate);
    weft_moe_layer(l->dev, c->n_experts, c->top_k, c->moe_intermediate, c->hidden_size);
    load_dense(f, l, weft_loader_path(l, path, ".shared_expert"), c->shared_intermediate);
    f->shared_gate = weft_load_mat(l, weft_loader_path(l, path, ".shared_expert_gate"), 1, hidden);
}

static void run_dense(const weft_feed_forward *f, weft_dev *dev, const weft_scratch *s, weft_buf *y) {
    weft_buf *gate = f->own_gate ? f->own_gate : s->mlp_gate, *up = f->own_up ? f->own_up : s->mlp_up;
    weft_linear(dev, (weft_buf *[]){gate, up}, (const weft_mat *[]){f->gate, f->up}, 2, s->h);
    weft_glu(dev, gate, gate, up);
    weft_linear(dev, (weft_buf *[]){y}, (const weft_mat *[]){f->down}, 1, gate);
}

void weft_feed_forward_run(const weft_feed_forward *f, weft_dev *dev, const weft_scratch *s) {
    if (!f->router) {
        run_dense(f, dev, s, s->delta);
        return;
    }
    weft_linear(dev, (weft_buf *[]){s->router}, (const weft_mat *[]){f->router}, 1, s->h);
    weft_route(dev, s->expert_ids, s->expert_weights, s->router, f->renormalise);
    weft_experts(dev, s->delta, s->h, s->expert_ids, s->expert_weights, f->experts_gate_up, f->experts_down);
    if (!f->gate) return;
    weft_linear(dev, (weft_buf *[]){s->shared_gate}, (const weft_mat *[]){f->shared_gate}, 1, s->h);
    run_dense(f, dev, s, s->shared);
    weft_gate(dev, s->shared, s->shared_gate);
    weft_add(dev, s->delta, s->shared); /* after the routed experts, always */
}

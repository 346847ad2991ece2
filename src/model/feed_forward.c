/* feed_forward.c: the dense block, and mixtures of experts with or without a shared one. */
#include "model/blocks.h"

/* ---- dense --------------------------------------------------------------------------------------------------------------- */

static const weft_mlp_scratch *mlp_scratch(weft_scratch *s, weft_loader *l, int inner) {
    for (int i = 0; i < WEFT_MLP_WIDTHS; i++) {
        weft_mlp_scratch *m = &s->mlp[i];
        if (m->inner == inner) return m;
        if (m->inner) continue;
        *m = (weft_mlp_scratch){inner, weft_load_buf(l, "feed-forward", inner), weft_load_buf(l, "feed-forward", inner)};
        return m;
    }
    if (l->status == WEFT_OK)
        l->status = weft_fail(l->e, WEFT_ESUPPORT, "feed-forward blocks of more than %d different widths", WEFT_MLP_WIDTHS);
    return NULL;
}

void weft_mlp_load(weft_mlp *m, weft_loader *l, weft_scratch *s, const char *path, int inner) {
    int64_t hidden = l->config->hidden_size;
    bool bias = l->config->mlp_bias;
    const char *gate = weft_loader_path(l, path, ".gate_proj"), *up = weft_loader_path(l, path, ".up_proj");
    const char *down = weft_loader_path(l, path, ".down_proj");
    m->act = l->config->activation;
    m->scratch = mlp_scratch(s, l, inner);
    if (m->act != WEFT_RELU2) {
        m->gate = weft_load_mat(l, gate, inner, hidden);
        m->gate_bias = weft_load_bias(l, gate, inner, bias);
    }
    m->up = weft_load_mat(l, up, inner, hidden);
    m->up_bias = weft_load_bias(l, up, inner, bias);
    m->down = weft_load_mat(l, down, hidden, inner);
    m->down_bias = weft_load_bias(l, down, hidden, bias);
}

static void linear(weft_dev *dev, weft_buf *y, const weft_mat *w, const weft_buf *x) {
    weft_linear(dev, (weft_buf *[]){y}, (const weft_mat *[]){w}, 1, x);
}

void weft_mlp_run(const weft_mlp *m, weft_dev *dev, weft_buf *y, const weft_buf *x) {
    weft_buf *gate = m->scratch->gate, *up = m->scratch->up;
    if (m->gate)
        weft_linear(dev, (weft_buf *[]){gate, up}, (const weft_mat *[]){m->gate, m->up}, 2, x);
    else
        linear(dev, up, m->up, x);
    if (m->gate_bias) weft_bias(dev, gate, m->gate_bias);
    if (m->up_bias) weft_bias(dev, up, m->up_bias);
    if (m->gate)
        weft_activate(dev, up, gate, up, m->act);
    else
        weft_activate(dev, up, up, NULL, m->act);
    linear(dev, y, m->down, up);
    if (m->down_bias) weft_bias(dev, y, m->down_bias);
}

/* ---- mixtures ------------------------------------------------------------------------------------------------------------ */

void weft_mixture_load(weft_mixture *m, weft_loader *l, weft_scratch *s, const weft_mixture_paths *p) {
    const weft_model_config *c = l->config;
    int64_t hidden = c->hidden_size, cols = c->moe_latent ? c->moe_latent : hidden, inner = c->moe_intermediate;
    m->act = c->activation;
    m->rule = (weft_router){.sigmoid = c->sigmoid_router,
                            .groups = c->router_groups,
                            .top_groups = c->router_top_groups,
                            .renormalise = c->norm_topk,
                            .scale = c->routed_scale};
    m->router = weft_load_mat(l, p->router, c->n_experts, hidden);
    if (p->bias) m->rule.bias = weft_load_vector(l, p->bias, c->n_experts, 1);
    if (c->moe_latent) m->latent_in = weft_load_mat(l, p->latent_in, cols, hidden);
    m->gate_up = m->act == WEFT_RELU2 ? weft_load_up(l, p->experts, c->n_experts, inner, cols)
                                      : weft_load_gate_up(l, p->experts, c->n_experts, inner, cols);
    m->down = weft_load_down(l, p->experts, c->n_experts, cols, inner);
    if (c->moe_latent) m->latent_out = weft_load_mat(l, p->latent_out, hidden, cols);
    weft_moe_layer(l->dev, c->n_experts, c->top_k, (int)inner, (int)cols);
    if (!p->shared) return;
    weft_mlp_load(&m->shared, l, s, p->shared, c->shared_intermediate);
    if (p->shared_gate) m->shared_gate = weft_load_mat(l, p->shared_gate, 1, hidden);
}

void weft_mixture_run(const weft_mixture *m, weft_dev *dev, const weft_scratch *s, weft_buf *y, const weft_buf *x,
                      const weft_buf *routed) {
    linear(dev, s->router, m->router, routed);
    weft_route(dev, s->expert_ids, s->expert_weights, s->router, &m->rule);
    if (m->latent_in) {
        linear(dev, s->latent, m->latent_in, x);
        weft_experts(dev, s->latent_out, s->latent, s->expert_ids, s->expert_weights, m->gate_up, m->down, m->act);
        linear(dev, y, m->latent_out, s->latent_out);
    } else
        weft_experts(dev, y, x, s->expert_ids, s->expert_weights, m->gate_up, m->down, m->act);
    if (!m->shared.down) return;
    if (m->shared_gate) linear(dev, s->shared_gate, m->shared_gate, x);
    weft_mlp_run(&m->shared, dev, s->shared, x);
    if (m->shared_gate) weft_gate(dev, s->shared, s->shared_gate);
    weft_add(dev, y, s->shared); /* after the routed experts, always */
}

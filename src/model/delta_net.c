/* delta_net.c: the Gated DeltaNet block around its operator: projections in, norm gated by z, projection out. */
#include "model/blocks.h"

/* Qwen3-Next fuses four projections into two, whose rows go by key heads: q, k, and of each of its value heads v, then z; b, then
 * a of each value head. */
static void load_fused(weft_delta_net *g, weft_loader *l, const char *path, const weft_gdn_shape *s) {
    int64_t hidden = l->config->hidden_size, k = s->k_dim, v = (int64_t)(s->n_v_heads / s->n_k_heads) * s->v_dim;
    int64_t keys = k * s->n_k_heads, values = v * s->n_k_heads, all = 2 * k + 2 * v, heads = s->n_v_heads;
    const char *qkvz = weft_loader_path(l, path, ".in_proj_qkvz"), *ba = weft_loader_path(l, path, ".in_proj_ba");
    const weft_slice qkv[] = {{keys, k, all, 0}, {keys, k, all, k}, {values, v, all, 2 * k}};
    int64_t each = heads / s->n_k_heads;
    g->qkv = weft_load_slices(l, qkvz, 2 * keys + 2 * values, hidden, qkv, 3);
    g->z = weft_load_slices(l, qkvz, 2 * keys + 2 * values, hidden, (weft_slice[]){{values, v, all, 2 * k + v}}, 1);
    g->beta = weft_load_slices(l, ba, 2 * heads, hidden, (weft_slice[]){{heads, each, 2 * each, 0}}, 1);
    g->alpha = weft_load_slices(l, ba, 2 * heads, hidden, (weft_slice[]){{heads, each, 2 * each, each}}, 1);
}

void weft_delta_net_load(weft_delta_net *g, weft_loader *l, const char *path) {
    const weft_model_config *c = l->config;
    weft_gdn_shape shape = {.n_k_heads = c->gdn_k_heads,
                            .n_v_heads = c->gdn_v_heads,
                            .k_dim = c->gdn_k_dim,
                            .v_dim = c->gdn_v_dim,
                            .conv_kernel = c->conv_kernel};
    int channels = 2 * shape.n_k_heads * shape.k_dim + shape.n_v_heads * shape.v_dim;
    int64_t values = (int64_t)shape.n_v_heads * shape.v_dim, hidden = c->hidden_size;
    if (weft_loader_rows(l, weft_loader_path(l, path, ".in_proj_qkvz"))) {
        load_fused(g, l, path, &shape);
    } else {
        g->qkv = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_qkv"), channels, hidden);
        g->z = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_z"), values, hidden);
        g->alpha = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_a"), shape.n_v_heads, hidden);
        g->beta = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_b"), shape.n_v_heads, hidden);
    }
    g->out = weft_load_mat(l, weft_loader_path(l, path, ".out_proj"), hidden, values);
    g->gain = weft_load_vector(l, weft_loader_path(l, path, ".norm.weight"), shape.v_dim, 1); /* never stored less one */
    g->eps = c->norm_eps;
    g->op = (weft_gdn){.layer = weft_gdn_layer(l->dev, &shape),
                       .conv = weft_load_conv(l, weft_loader_path(l, path, ".conv1d"), channels, shape.conv_kernel),
                       .decay = weft_load_decay(l, weft_loader_path(l, path, ".A_log"), shape.n_v_heads),
                       .dt_bias = weft_load_vector(l, weft_loader_path(l, path, ".dt_bias"), shape.n_v_heads, 1)};
    if (g->op.layer < 0) weft_loader_oom(l, path);
}

void weft_delta_net_run(const weft_delta_net *g, weft_dev *dev, const weft_scratch *s) {
    weft_linear(dev, (weft_buf *[]){s->qkv, s->z, s->alpha, s->beta}, (const weft_mat *[]){g->qkv, g->z, g->alpha, g->beta}, 4,
                s->h);
    weft_gdn_run(dev, s->recalled, s->qkv, s->alpha, s->beta, &g->op);
    weft_norm_gated(dev, s->recalled, s->recalled, s->z, g->gain, g->eps);
    weft_linear(dev, (weft_buf *[]){s->delta}, (const weft_mat *[]){g->out}, 1, s->recalled);
}

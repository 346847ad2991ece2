/* delta_net.c: the Gated DeltaNet block around its operator: projections in, norm gated by z, projection out. */
#include "base/num.h"
#include "model/blocks.h"

/* [channels, 1, taps], or [channels, taps, 1] in converted checkpoints, -> [taps, channels]. */
static weft_coef *load_conv(weft_loader *l, const char *path, int channels, int taps) {
    bool converted = l->dir->converted;
    const int64_t shape[] = {channels, converted ? taps : 1, converted ? 1 : taps};
    const float *w = weft_load_floats(l, weft_loader_path(l, path, ".weight"), 3, shape);
    float *t = weft_arena_get(&l->arena, (size_t)channels * (size_t)taps, sizeof *t);
    if (!w || !t) {
        if (w) weft_loader_oom(l, path);
        return NULL;
    }
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < taps; i++) t[i * channels + c] = w[c * taps + i];
    return weft_load_coef(l, t, (int64_t)channels * taps);
}

static weft_coef *load_decay(weft_loader *l, const char *name, int heads) {
    float *a = weft_load_floats(l, name, 1, &(int64_t){heads});
    for (int i = 0; a && i < heads; i++) a[i] = (float)-weft_exp((double)a[i]);
    return a ? weft_load_coef(l, a, heads) : NULL;
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
    g->qkv = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_qkv"), channels, hidden);
    g->z = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_z"), values, hidden);
    g->alpha = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_a"), shape.n_v_heads, hidden);
    g->beta = weft_load_mat(l, weft_loader_path(l, path, ".in_proj_b"), shape.n_v_heads, hidden);
    g->out = weft_load_mat(l, weft_loader_path(l, path, ".out_proj"), hidden, values);
    g->gain = weft_load_gain(l, weft_loader_path(l, path, ".norm"), shape.v_dim, false); /* never zero-centred */
    g->eps = c->norm_eps;
    float *dt = weft_load_floats(l, weft_loader_path(l, path, ".dt_bias"), 1, &(int64_t){shape.n_v_heads});
    g->op = (weft_gdn){.layer = weft_gdn_layer(l->dev, &shape),
                       .conv = load_conv(l, weft_loader_path(l, path, ".conv1d"), channels, shape.conv_kernel),
                       .decay = load_decay(l, weft_loader_path(l, path, ".A_log"), shape.n_v_heads),
                       .dt_bias = dt ? weft_load_coef(l, dt, shape.n_v_heads) : NULL};
    if (g->op.layer < 0) weft_loader_oom(l, path);
}

void weft_delta_net_run(const weft_delta_net *g, weft_dev *dev, const weft_scratch *s) {
    weft_linear(dev, (weft_buf *[]){s->qkv, s->z, s->alpha, s->beta}, (const weft_mat *[]){g->qkv, g->z, g->alpha, g->beta}, 4,
                s->h);
    weft_gdn_run(dev, s->recalled, s->qkv, s->alpha, s->beta, &g->op);
    weft_norm_gated(dev, s->recalled, s->recalled, s->z, g->gain, g->eps);
    weft_linear(dev, (weft_buf *[]){s->delta}, (const weft_mat *[]){g->out}, 1, s->recalled);
}

/* mamba.c: the Mamba-2 block around its operator: projections in, gate by z and norm, projection out. */
#include "model/blocks.h"

void weft_mamba_load(weft_mamba_block *b, weft_loader *l, const char *path) {
    const weft_model_config *c = l->config;
    weft_mamba_shape shape = {.n_heads = c->mamba_heads,
                              .head_dim = c->mamba_head_dim,
                              .n_groups = c->mamba_groups,
                              .state_dim = c->mamba_state,
                              .conv_kernel = c->conv_kernel};
    int heads = c->mamba_heads, channels = heads * c->mamba_head_dim + 2 * c->mamba_groups * c->mamba_state;
    int64_t inner = (int64_t)heads * c->mamba_head_dim, hidden = c->hidden_size, rows = inner + channels + heads;
    const char *in = weft_loader_path(l, path, ".in_proj"), *conv = weft_loader_path(l, path, ".conv1d"); /* rows: z, xBC, dt */
    b->z = weft_load_slices(l, in, rows, hidden, (weft_slice[]){WEFT_ROWS(0, inner)}, 1);
    b->xbc = weft_load_slices(l, in, rows, hidden, (weft_slice[]){WEFT_ROWS(inner, channels)}, 1);
    b->dt = weft_load_slices(l, in, rows, hidden, (weft_slice[]){WEFT_ROWS(inner + channels, heads)}, 1);
    b->op = (weft_mamba){.layer = weft_mamba_layer(l->dev, &shape),
                         .conv = weft_load_conv(l, conv, channels, shape.conv_kernel),
                         .conv_bias = weft_load_bias(l, conv, channels, c->mamba_conv_bias),
                         .decay = weft_load_decay(l, weft_loader_path(l, path, ".A_log"), heads),
                         .dt_bias = weft_load_vector(l, weft_loader_path(l, path, ".dt_bias"), heads, 1),
                         .skip = weft_load_vector(l, weft_loader_path(l, path, ".D"), heads, 1),
                         .dt_low = (float)c->dt_low,
                         .dt_high = (float)c->dt_high};
    b->gain = weft_load_gain(l, weft_loader_path(l, path, ".norm"), inner);
    b->group = (int)inner / c->mamba_groups;
    b->eps = c->norm_eps;
    b->out = weft_load_mat(l, weft_loader_path(l, path, ".out_proj"), hidden, inner);
    if (b->op.layer < 0) weft_loader_oom(l, path);
}

void weft_mamba_block_run(const weft_mamba_block *b, weft_dev *dev, const weft_scratch *s) {
    weft_linear(dev, (weft_buf *[]){s->gate, s->xbc, s->dt}, (const weft_mat *[]){b->z, b->xbc, b->dt}, 3, s->h);
    weft_mamba_run(dev, s->scanned, s->xbc, s->dt, &b->op);
    weft_gate_norm(dev, s->scanned, s->scanned, s->gate, b->gain, b->group, b->eps);
    weft_linear(dev, (weft_buf *[]){s->delta}, (const weft_mat *[]){b->out}, 1, s->scanned);
}

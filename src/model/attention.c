/* attention.c: grouped-query attention with norms on q and k, partial rotation and a sigmoid gate on the output. */
#include "base/num.h"
#include "model/blocks.h"

weft_coef *weft_rope_frequencies(weft_loader *l) {
    int n = l->config->rotary_dim / 2;
    double step = weft_ln(l->config->rope_theta) / n;
    float *freq = weft_arena_get(&l->arena, (size_t)n, sizeof *freq);
    if (!freq) {
        weft_loader_oom(l, "the rotation's frequencies");
        return NULL;
    }
    for (int j = 0; j < n; j++) freq[j] = (float)weft_exp(-step * j);
    return weft_load_coef(l, freq, n);
}

void weft_gated_attention_load(weft_gated_attention *a, weft_loader *l, const char *path, bool shift, weft_coef *freq,
                               int first_key) {
    const weft_model_config *c = l->config;
    int64_t d = c->head_dim, q = d * c->n_heads, kv = d * c->n_kv_heads, hidden = c->hidden_size;
    const char *q_path = weft_loader_path(l, path, ".q_proj"); /* per head: head_dim rows of q, then head_dim rows of its gate */
    a->q = weft_load_half(l, q_path, 0, d, q, hidden);
    a->gate = weft_load_half(l, q_path, 1, d, q, hidden);
    a->k = weft_load_mat(l, weft_loader_path(l, path, ".k_proj"), kv, hidden);
    a->v = weft_load_mat(l, weft_loader_path(l, path, ".v_proj"), kv, hidden);
    a->o = weft_load_mat(l, weft_loader_path(l, path, ".o_proj"), hidden, q);
    a->q_gain = weft_load_gain(l, weft_loader_path(l, path, ".q_norm"), d, shift);
    a->k_gain = weft_load_gain(l, weft_loader_path(l, path, ".k_norm"), d, shift);
    a->freq = freq;
    a->eps = c->rms_norm_eps;
    a->op = (weft_attention){.layer = weft_kv_layer(l->dev, c->n_kv_heads, c->head_dim, WEFT_PAGES_ALL),
                             .n_heads = c->n_heads,
                             .n_kv_heads = c->n_kv_heads,
                             .head_dim = c->head_dim,
                             .scale = 1.0f / __builtin_sqrtf((float)c->head_dim),
                             .first_key = first_key};
    if (a->op.layer < 0) weft_loader_oom(l, path);
}

void weft_gated_attention_run(const weft_gated_attention *a, weft_dev *dev, const weft_scratch *s) {
    weft_linear(dev, (weft_buf *[]){s->q, s->gate, s->k, s->v}, (const weft_mat *[]){a->q, a->gate, a->k, a->v}, 4, s->h);
    weft_qk_norm_rope(dev, s->q, s->k, a->q_gain, a->k_gain, a->eps, a->freq, a->op.head_dim);
    weft_attend(dev, s->attended, s->q, s->k, s->v, &a->op);
    weft_gate(dev, s->attended, s->gate);
    weft_linear(dev, (weft_buf *[]){s->delta}, (const weft_mat *[]){a->o}, 1, s->attended);
}

void weft_gated_attention_write(const weft_gated_attention *a, weft_dev *dev, const weft_scratch *s) {
    weft_linear(dev, (weft_buf *[]){s->k, s->v}, (const weft_mat *[]){a->k, a->v}, 2, s->h);
    weft_qk_norm_rope(dev, NULL, s->k, NULL, a->k_gain, a->eps, a->freq, a->op.head_dim);
    weft_attend(dev, NULL, NULL, s->k, s->v, &a->op);
}

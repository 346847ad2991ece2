/* attention.c: grouped-query attention, with what families add to it: biases, norms on heads, rotation, a sigmoid gate on the
 * output, keys that are values, keys of another layer. */
#include "base/num.h"
#include "model/blocks.h"

/* ---- rotation ------------------------------------------------------------------------------------------------------------ */

static const double pi = 3.14159265358979323846;

/* Llama 3.1: waves longer than the first training's context are slowed down by the factor, short ones stay, those between are
 * mixed. */
static double llama3(const weft_rope *r, double freq) {
    double wave = 2 * pi / freq;
    if (wave < r->original_context / r->high_freq_factor) return freq;
    if (wave > r->original_context / r->low_freq_factor) return freq / r->factor;
    double stay = (r->original_context / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - stay) * freq / r->factor + stay * freq;
}

/* YaRN (Peng and others 2023, arXiv 2309.00071): pairs that turn more than beta_fast times in the first training's context stay,
 * those that turn less than beta_slow times are slowed down, a ramp between. */
static double yarn_pair(const weft_rope *r, double turns) {
    return r->width * weft_ln(r->original_context / (turns * 2 * pi)) / (2 * weft_ln(r->theta));
}
static double yarn(const weft_rope *r, double freq, int j) {
    double low = (double)(int64_t)yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);
    if (high > (double)(int64_t)high) high = (double)(int64_t)high + 1;
    if (low < 0) low = 0;
    if (high > r->width - 1) high = r->width - 1;
    if (high <= low) high = low + 0.001;
    double slow = (j - low) / (high - low);
    slow = slow < 0 ? 0 : slow > 1 ? 1 : slow;
    return freq / r->factor * slow + freq * (1 - slow);
}

weft_coef *weft_rope_frequencies(weft_loader *l, const weft_heads *heads) {
    const weft_rope *r = &heads->rope;
    int n = r->width / 2;
    if (r->kind == WEFT_ROPE_NONE || l->status != WEFT_OK) return NULL;
    double step = 2 * weft_ln(r->theta) / r->width;
    float *freq = weft_arena_get(&l->arena, (size_t)n, sizeof *freq);
    if (!freq) {
        weft_loader_oom(l, "the rotation's frequencies");
        return NULL;
    }
    for (int j = 0; j < n; j++) {
        double f = j < r->turning ? weft_exp(-step * j) : 0;
        switch (r->kind) {
        case WEFT_ROPE_NONE:
        case WEFT_ROPE_DEFAULT: break;
        case WEFT_ROPE_LINEAR:
        case WEFT_ROPE_PROPORTIONAL: f /= r->factor; break;
        case WEFT_ROPE_LLAMA3: f = llama3(r, f); break;
        case WEFT_ROPE_YARN: f = yarn(r, f, j); break;
        }
        freq[j] = (float)f;
    }
    return weft_load_coef(l, freq, n);
}

/* ---- the block ----------------------------------------------------------------------------------------------------------- */

static void load_keys(weft_attention_block *a, weft_loader *l, const char *path, const weft_heads *heads,
                      const weft_attention_traits *t) {
    const weft_model_config *c = l->config;
    int64_t kv = (int64_t)heads->head_dim * heads->n_kv_heads, hidden = c->hidden_size;
    const char *k = weft_loader_path(l, path, ".k_proj"), *v = weft_loader_path(l, path, ".v_proj");
    a->k = weft_load_mat(l, k, kv, hidden);
    a->k_bias = weft_load_bias(l, k, kv, c->qkv_bias);
    if (!t->k_eq_v) {
        a->v = weft_load_mat(l, v, kv, hidden);
        a->v_bias = weft_load_bias(l, v, kv, c->qkv_bias);
    }
    if (c->qk_norm) a->k_gain = weft_load_gain(l, weft_loader_path(l, path, ".k_norm"), heads->head_dim);
    if (t->norm_v) a->v_gain = weft_load_ones(l, heads->head_dim);
}

void weft_attention_load(weft_attention_block *a, weft_loader *l, const char *path, weft_coef *freq,
                         const weft_attention_traits *t) {
    const weft_model_config *c = l->config;
    const weft_heads *heads = weft_config_heads(c, t->kind);
    int64_t d = heads->head_dim, q = d * c->n_heads, hidden = c->hidden_size;
    const char *q_path = weft_loader_path(l, path, ".q_proj"), *o_path = weft_loader_path(l, path, ".o_proj");
    if (t->gated) {
        a->q = weft_load_slices(l, q_path, 2 * q, hidden, (weft_slice[]){{q, d, 2 * d, 0}}, 1);
        a->gate = weft_load_slices(l, q_path, 2 * q, hidden, (weft_slice[]){{q, d, 2 * d, d}}, 1);
    } else
        a->q = weft_load_mat(l, q_path, q, hidden);
    a->q_bias = weft_load_bias(l, q_path, q, c->qkv_bias);
    if (!t->shared) load_keys(a, l, path, heads, t);
    a->o = weft_load_mat(l, o_path, hidden, q);
    a->o_bias = weft_load_bias(l, o_path, hidden, c->o_bias);
    if (c->qk_norm) a->q_gain = weft_load_gain(l, weft_loader_path(l, path, ".q_norm"), d);
    a->freq = freq;
    a->eps = c->norm_eps;
    a->sliding = t->kind == WEFT_LAYER_SLIDING;
    double yarn_scale = heads->rope.kind == WEFT_ROPE_YARN ? heads->rope.attention_factor * heads->rope.attention_factor : 1;
    a->op = (weft_attention){.n_heads = c->n_heads,
                             .n_kv_heads = heads->n_kv_heads,
                             .head_dim = heads->head_dim,
                             .scale = (float)(c->attention_scale * yarn_scale),
                             .window = a->sliding ? c->window + (t->past ? 2 : 0) : 0,
                             .past = t->past,
                             .first_key = t->first_key};
    a->op.layer = t->shared
                      ? t->shared->layer
                      : weft_kv_layer(l->dev, heads->n_kv_heads, heads->head_dim, a->sliding ? WEFT_PAGES_WINDOW : WEFT_PAGES_ALL);
    if (a->op.layer < 0) weft_loader_oom(l, path);
}

static void add_bias(weft_dev *dev, weft_buf *y, const weft_coef *bias) {
    if (bias) weft_bias(dev, y, bias);
}

/* Projections of h, as far as the block has them. */
static void project(const weft_attention_block *a, weft_dev *dev, const weft_scratch *s, const weft_attention_scratch *t) {
    weft_buf *y[4] = {t->q, t->gate, t->k, t->v};
    const weft_mat *w[4] = {a->q, a->gate, a->k, a->v};
    int n = 0;
    for (int i = 0; i < 4; i++) {
        if (!w[i]) continue;
        y[n] = y[i];
        w[n++] = w[i];
    }
    weft_linear(dev, y, w, n, s->h);
    add_bias(dev, t->q, a->q_bias);
    add_bias(dev, t->k, a->k_bias);
    add_bias(dev, t->v, a->v_bias);
}

/* v from k's projection or its own; then the heads' norms and rotation. q NULL: only keys and values. */
static void turn(const weft_attention_block *a, weft_dev *dev, weft_buf *q, weft_buf *k, weft_buf *v) {
    if (k && a->v_gain) weft_norm(dev, v, a->v ? v : k, a->v_gain, a->eps);
    if (a->freq || a->q_gain || a->k_gain) weft_qk_norm_rope(dev, q, k, a->q_gain, a->k_gain, a->eps, a->freq, a->op.head_dim);
}

void weft_attention_run(const weft_attention_block *a, weft_dev *dev, const weft_scratch *s) {
    const weft_attention_scratch *t = a->sliding ? &s->sliding : &s->full;
    weft_buf *k = a->k ? t->k : NULL, *v = a->k ? t->v : NULL;
    project(a, dev, s, t);
    turn(a, dev, t->q, k, v);
    weft_attend(dev, t->attended, t->q, k, v, &a->op);
    if (a->gate) weft_gate(dev, t->attended, t->gate);
    weft_linear(dev, (weft_buf *[]){s->delta}, (const weft_mat *[]){a->o}, 1, t->attended);
    add_bias(dev, s->delta, a->o_bias);
}

void weft_attention_write(const weft_attention_block *a, weft_dev *dev, const weft_scratch *s) {
    const weft_attention_scratch *t = a->sliding ? &s->sliding : &s->full;
    weft_linear(dev, (weft_buf *[]){t->k, t->v}, (const weft_mat *[]){a->k, a->v}, 2, s->h);
    add_bias(dev, t->k, a->k_bias);
    add_bias(dev, t->v, a->v_bias);
    turn(a, dev, NULL, t->k, t->v);
    weft_attend(dev, NULL, NULL, t->k, t->v, &a->op);
}

/* qwen35.c: Qwen3.5, 3.6 and 3.8, dense and mixture of experts, with their MTP head.
 *
 * Three of four layers are Gated DeltaNet, the fourth is full attention with a sigmoid output gate; every layer is followed by a
 * SwiGLU or a mixture of experts. Norms come before the blocks, gains are zero-centred in Hugging Face checkpoints. */
#include "base/alloc.h"
#include "base/str.h"
#include "model/blocks.h"
#include "model/model.h"

typedef struct layer {
    weft_coef *norm, *ffn_norm;
    bool attends;
    weft_gated_attention attention;
    weft_delta_net delta_net;
    weft_feed_forward ffn;
} layer;

/* mtp.fc, one full-attention layer, and the norms around them. */
typedef struct mtp_head {
    weft_coef *embedding_norm, *hidden_norm, *final_norm;
    weft_mat *fc;   /* [hidden, 2 hidden]: embedding first */
    weft_mat *head; /* [vocab, hidden]: the trunk's unless the checkpoint has one of its own */
    layer layer;
    int carry;                           /* the trunk's hidden row before the step's first */
    weft_buf *embedding, *hidden, *pair; /* hidden, hidden, 2 hidden */
    weft_buf *out;                       /* hidden: after final_norm; feeds the head, and the next link of a chain */
} mtp_head;

struct weft_model {
    weft_dev *dev;
    int vocab, n_layers;
    bool has_mtp;
    float eps;
    weft_mat *embed, *head; /* [vocab, hidden]; the same where tied */
    weft_coef *final_norm;
    layer *layers;
    mtp_head mtp;
    weft_scratch s;
    weft_buf *hidden; /* hidden: after the final norm */
    weft_buf *logits; /* [logit_rows, vocab] */
};

/* ---- one token's way through the network --------------------------------------------------------------------------------- */

/* x holds the layer's input, h its norm by `norm`; leaves x with both blocks added and y = x's norm by `next`. */
static void layer_run(const weft_model *m, const layer *l, weft_buf *y, const weft_coef *next) {
    const weft_scratch *s = &m->s;
    if (l->attends)
        weft_gated_attention_run(&l->attention, m->dev, s);
    else
        weft_delta_net_run(&l->delta_net, m->dev, s);
    weft_add_norm(m->dev, s->x, s->delta, s->h, l->ffn_norm, m->eps);
    weft_feed_forward_run(&l->ffn, m->dev, s);
    weft_add_norm(m->dev, s->x, s->delta, y, next, m->eps);
}

static void trunk(weft_model *m) {
    weft_embed(m->dev, m->s.x, m->embed);
    weft_norm(m->dev, m->s.h, m->s.x, m->layers[0].norm, m->eps);
    for (int i = 0; i < m->n_layers; i++) {
        bool last = i + 1 == m->n_layers;
        layer_run(m, &m->layers[i], last ? m->hidden : m->s.h, last ? m->final_norm : m->layers[i + 1].norm);
    }
}

/* fc [norm(embedding of the token) ; norm(hidden row before it)] into the layer's input. */
static void mtp_input(weft_model *m, const weft_buf *hidden) {
    mtp_head *h = &m->mtp;
    weft_embed(m->dev, m->s.delta, m->embed);
    weft_norm(m->dev, h->embedding, m->s.delta, h->embedding_norm, m->eps);
    weft_norm(m->dev, h->hidden, hidden, h->hidden_norm, m->eps);
    weft_concat(m->dev, h->pair, h->embedding, h->hidden);
    weft_linear(m->dev, (weft_buf *[]){m->s.x}, (const weft_mat *[]){h->fc}, 1, h->pair);
    weft_norm(m->dev, m->s.h, m->s.x, h->layer.norm, m->eps);
}

void weft_model_pass(weft_model *m, weft_mtp_rows mtp) {
    trunk(m);
    if (!m->has_mtp) return;
    weft_shift(m->dev, m->mtp.hidden, m->hidden, m->mtp.carry);
    mtp_input(m, m->mtp.hidden);
    if (mtp == WEFT_MTP_FULL)
        layer_run(m, &m->mtp.layer, m->mtp.out, m->mtp.final_norm);
    else
        weft_gated_attention_write(&m->mtp.layer.attention, m->dev, &m->s);
}

void weft_model_draft(weft_model *m, bool chained) {
    if (!chained) weft_shift(m->dev, m->mtp.hidden, NULL, m->mtp.carry);
    mtp_input(m, chained ? m->mtp.out : m->mtp.hidden);
    layer_run(m, &m->mtp.layer, m->mtp.out, m->mtp.final_norm);
}

void weft_model_logits(weft_model *m, weft_head head, const int *rows, int n) {
    if (head == WEFT_HEAD_MTP)
        weft_logits(m->dev, m->logits, m->mtp.head, m->mtp.out, rows, n);
    else
        weft_logits(m->dev, m->logits, m->head, m->hidden, rows, n);
}

void weft_model_pick(weft_model *m, weft_head head, const int *rows, int n, const weft_pick *rules, const bool *allowed) {
    bool mtp = head == WEFT_HEAD_MTP;
    weft_pick_tokens(m->dev, mtp ? m->mtp.head : m->head, mtp ? m->mtp.out : m->hidden, rows, n, rules, allowed);
}

const weft_buf *weft_model_logits_buf(const weft_model *m) {
    return m->logits;
}
int weft_model_vocab(const weft_model *m) {
    return m->vocab;
}
bool weft_model_has_mtp(const weft_model *m) {
    return m->has_mtp;
}

/* ---- loading ------------------------------------------------------------------------------------------------------------- */

static void layer_load(layer *y, weft_loader *l, const char *path, bool attends, bool shift, weft_coef *freq, bool mtp) {
    int hidden = l->config->hidden_size;
    y->attends = attends;
    y->norm = weft_load_gain(l, weft_loader_path(l, path, ".input_layernorm"), hidden, shift);
    y->ffn_norm = weft_load_gain(l, weft_loader_path(l, path, ".post_attention_layernorm"), hidden, shift);
    if (attends)
        weft_gated_attention_load(&y->attention, l, weft_loader_path(l, path, ".self_attn"), shift, freq, mtp ? 1 : 0);
    else
        weft_delta_net_load(&y->delta_net, l, weft_loader_path(l, path, ".linear_attn"));
    weft_feed_forward_load(&y->ffn, l, weft_loader_path(l, path, ".mlp"), mtp);
}

static void mtp_load(weft_model *m, weft_loader *l, weft_coef *freq) {
    mtp_head *h = &m->mtp;
    const char *path = l->dir->mtp;
    int hidden = l->config->hidden_size;
    bool shift = !l->dir->mtp_converted;
    h->embedding_norm = weft_load_gain_or_ones(l, weft_loader_path(l, path, "pre_fc_norm_embedding"), hidden, shift);
    h->hidden_norm = weft_load_gain_or_ones(l, weft_loader_path(l, path, "pre_fc_norm_hidden"), hidden, shift);
    h->final_norm = weft_load_gain_or_ones(l, weft_loader_path(l, path, "norm"), hidden, shift);
    h->fc = weft_load_mat(l, weft_loader_path(l, path, "fc"), hidden, 2 * (int64_t)hidden);
    h->head = l->dir->mtp_head ? weft_load_mat(l, l->dir->mtp_head, m->vocab, hidden) : m->head;
    layer_load(&h->layer, l, weft_loader_path(l, path, "layers.0"), true, shift, freq, true);
    h->carry = weft_carry(l->dev, hidden);
    h->embedding = weft_buf_make(l->dev, "mtp", 0, hidden);
    h->hidden = weft_buf_make(l->dev, "mtp", 0, hidden);
    h->pair = weft_buf_make(l->dev, "mtp", 0, 2 * hidden);
    h->out = weft_buf_make(l->dev, NULL, 0, hidden);
    if (h->carry < 0 || !h->embedding || !h->hidden || !h->pair || !h->out) weft_loader_oom(l, "the MTP head");
}

static void model_load(weft_model *m, weft_loader *l, int logit_rows) {
    const weft_model_config *c = l->config;
    const char *trunk = l->dir->trunk;
    bool shift = !l->dir->converted;
    m->vocab = c->vocab_size;
    m->eps = c->norm_eps;
    m->has_mtp = l->dir->mtp != NULL;
    m->n_layers = c->n_layers;
    m->hidden = weft_buf_make(l->dev, NULL, 0, c->hidden_size);
    m->logits = weft_buf_make(l->dev, NULL, logit_rows, c->vocab_size);
    weft_pick_layer(l->dev, logit_rows, c->vocab_size);
    m->layers = weft_calloc((size_t)c->n_layers, sizeof *m->layers);
    if (!m->hidden || !m->logits || !m->layers) {
        weft_loader_oom(l, "the model");
        return;
    }
    weft_scratch_make(&m->s, l);
    weft_coef *freq = weft_rope_frequencies(l);
    m->embed = weft_load_mat(l, weft_loader_path(l, trunk, "embed_tokens"), c->vocab_size, c->hidden_size);
    for (int i = 0; i < c->n_layers; i++)
        layer_load(&m->layers[i], l, weft_loader_path(l, trunk, "layers.%d", i), c->layer_kind[i] == WEFT_LAYER_ATTENTION, shift,
                   freq, false);
    m->final_norm = weft_load_gain(l, weft_loader_path(l, trunk, "norm"), c->hidden_size, shift);
    m->head = l->dir->head ? weft_load_mat(l, l->dir->head, c->vocab_size, c->hidden_size) : m->embed;
    if (m->has_mtp) mtp_load(m, l, freq);
}

static weft_status check_runs(const weft_model_dir *dir, weft_error *e) {
    const weft_model_config *c = &dir->config;
    if (c->family == WEFT_FAMILY_GEMMA4_ASSISTANT)
        return weft_fail(e, WEFT_ESUPPORT, "%s: this is a drafter for a Gemma 4 model: give it with --draft", dir->path);
    if (c->family != WEFT_FAMILY_QWEN_HYBRID || !weft_starts_with(c->type, "qwen3_5"))
        return weft_fail(e, WEFT_ESUPPORT, "%s: models of type '%s' cannot be run yet; this version runs: qwen3_5, qwen3_5_moe",
                         dir->path, c->type);
    if (c->full.rope.kind != WEFT_ROPE_DEFAULT)
        return weft_fail(e, WEFT_ESUPPORT, "%s: models with scaled position embeddings (RoPE) cannot be run yet", dir->path);
    return WEFT_OK;
}

weft_status weft_model_load(weft_model **model, weft_dev *dev, const weft_model_dir *dir, int logit_rows, weft_error *e) {
    WEFT_TRY(check_runs(dir, e));
    weft_model *m = weft_calloc(1, sizeof *m);
    if (!m) return weft_fail_oom(e, "the model");
    m->dev = dev;
    weft_loader l;
    weft_loader_open(&l, dev, dir, e);
    model_load(m, &l, logit_rows);
    weft_loader_close(&l);
    weft_status s = l.status;
    if (s == WEFT_OK) s = weft_tensors_check(dir->tensors, e);
    if (s != WEFT_OK) {
        weft_model_close(m);
        return s;
    }
    *model = m;
    return WEFT_OK;
}

void weft_model_close(weft_model *m) {
    if (!m) return;
    weft_free(m->layers);
    weft_free(m);
}

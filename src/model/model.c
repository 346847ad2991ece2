/* model.c: what all families share: loading around their layers, the embedding, the heads, drafting. */
#include <string.h>

#include "base/alloc.h"
#include "model/family.h"

/* ---- passes -------------------------------------------------------------------------------------------------------------- */

float weft_root_bf16(int n) {
    float root = __builtin_sqrtf((float)n);
    uint32_t bits;
    memcpy(&bits, &root, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000; /* to nearest, ties to even */
    memcpy(&root, &bits, sizeof bits);
    return root;
}

void weft_model_embed(weft_model *m) {
    weft_embed(m->dev, m->s.x, m->embed, m->embed_scale);
}

/* The MTP head's input: fc [norm(embedding) ; norm(hidden row before)]. */
static void mtp_input(weft_model *m, const weft_buf *hidden) {
    weft_mtp *h = &m->mtp;
    weft_embed(m->dev, m->s.delta, m->embed, m->embed_scale);
    weft_norm(m->dev, h->embedding, m->s.delta, h->embedding_norm, m->eps);
    weft_norm(m->dev, h->hidden, hidden, h->hidden_norm, m->eps);
    weft_concat(m->dev, h->pair, h->embedding, h->hidden);
    weft_linear(m->dev, (weft_buf *[]){m->s.x}, (const weft_mat *[]){h->fc}, 1, h->pair);
    weft_norm(m->dev, m->s.h, m->s.x, h->layer_norm, m->eps);
}

void weft_model_pass(weft_model *m, weft_mtp_rows mtp) {
    m->family->trunk(m);
    if (m->assistant) {
        weft_shift(m->dev, m->s.delta, m->hidden, m->carry);
    } else if (m->has_mtp) {
        weft_shift(m->dev, m->mtp.hidden, m->hidden, m->carry);
        mtp_input(m, m->mtp.hidden);
        m->family->mtp(m, mtp);
    }
}

void weft_model_draft(weft_model *m, bool chained) {
    if (m->assistant) {
        weft_assistant_draft(m->assistant, m, chained);
        return;
    }
    if (!chained) weft_shift(m->dev, m->mtp.hidden, NULL, m->carry);
    mtp_input(m, chained ? m->mtp.out : m->mtp.hidden);
    m->family->mtp(m, WEFT_MTP_FULL);
}

void weft_model_logits(weft_model *m, weft_head head, const int *rows, int n) {
    if (head == WEFT_HEAD_TRUNK)
        weft_logits(m->dev, m->logits, &m->output, m->hidden, rows, n);
    else if (m->assistant)
        weft_assistant_logits(m->assistant, m, rows, n);
    else
        weft_logits(m->dev, m->logits, &m->mtp.output, m->mtp.out, rows, n);
}

void weft_model_pick(weft_model *m, weft_head head, const int *rows, int n, const weft_pick *rules, const bool *allowed) {
    if (head == WEFT_HEAD_TRUNK)
        weft_pick_tokens(m->dev, &m->output, m->hidden, rows, n, rules, allowed);
    else if (m->assistant)
        weft_assistant_pick(m->assistant, m, head, rows, n, rules, allowed);
    else
        weft_pick_tokens(m->dev, head == WEFT_HEAD_FREQUENT ? &m->drafts : &m->mtp.output, m->mtp.out, rows, n, rules, allowed);
}

const int32_t *weft_model_draft_ids(const weft_model *m, int *n) {
    *n = m->drafts.w ? m->n_draft_ids : 0;
    return m->drafts.w ? m->drafts.ids : NULL;
}
uint64_t weft_model_draft_saves(const weft_model *m) {
    return m->draft_saves;
}

const weft_buf *weft_model_logits_buf(const weft_model *m) {
    return m->logits;
}
int weft_model_vocab(const weft_model *m) {
    return m->vocab;
}
bool weft_model_has_head(const weft_model *m) {
    return m->output.w != NULL;
}
bool weft_model_has_mtp(const weft_model *m) {
    return m->has_mtp;
}
bool weft_model_drafts(const weft_model *m) {
    return m->has_mtp || m->assistant;
}
bool weft_model_draft_moves(const weft_model *m) {
    return !m->assistant;
}
int weft_model_window(const weft_model *m) {
    return m->window;
}

/* ---- loading ------------------------------------------------------------------------------------------------------------- */

void weft_load_embedding(weft_model *m, weft_loader *l) {
    m->embed = weft_load_mat(l, weft_loader_path(l, l->dir->trunk, "%s", l->dir->embedding), m->vocab, m->hidden_size);
}
void weft_load_head(weft_model *m, weft_loader *l) {
    m->final_norm = weft_load_gain(l, weft_loader_path(l, l->dir->trunk, "%s", l->dir->norm), m->hidden_size);
    if (l->dir->headless) return;
    m->output.w = l->dir->head ? weft_load_mat(l, l->dir->head, m->vocab, m->hidden_size) : m->embed;
}

void weft_load_draft_head(weft_model *m, weft_loader *l, const weft_output *all, const char *path, int cols) {
    if (!m->drafts.ids) return;
    m->drafts.cap = all->cap;
    m->drafts.w = weft_load_copy(l, path, m->vocab, cols, m->drafts.ids, m->n_draft_ids);
    if (l->status != WEFT_OK) return;
    uint64_t whole = weft_mat_bytes(all->w), some = weft_mat_bytes(m->drafts.w);
    m->draft_saves = whole > some ? whole - some : 0;
}

void weft_mtp_load(weft_model *m, weft_loader *l, const char *fc, const char *embedding_norm, const char *hidden_norm) {
    weft_mtp *h = &m->mtp;
    const char *path = l->dir->mtp;
    int hidden = l->config->hidden_size;
    h->embedding_norm = weft_load_gain_or_ones(l, weft_loader_path(l, path, "%s", embedding_norm), hidden);
    h->hidden_norm = weft_load_gain_or_ones(l, weft_loader_path(l, path, "%s", hidden_norm), hidden);
    h->fc = weft_load_mat(l, weft_loader_path(l, path, "%s", fc), hidden, 2 * (int64_t)hidden);
    h->output = m->output;
    if (l->dir->mtp_head) h->output.w = weft_load_mat(l, l->dir->mtp_head, m->vocab, hidden);
    const char *head = l->dir->mtp_head ? l->dir->mtp_head : l->dir->head;
    if (!head) head = weft_loader_path(l, l->dir->trunk, "%s", l->dir->embedding);
    weft_load_draft_head(m, l, &h->output, head, hidden);
    h->embedding = weft_load_buf(l, "mtp", hidden);
    h->hidden = weft_load_buf(l, "mtp", hidden);
    h->pair = weft_load_buf(l, "mtp", 2 * hidden);
    h->out = weft_load_buf(l, NULL, hidden);
}

static const weft_family_methods *family_of(const weft_model_config *c) {
    switch (c->family) {
    case WEFT_FAMILY_QWEN_HYBRID: return &weft_qwen_hybrid;
    case WEFT_FAMILY_LLAMA: return &weft_llama;
    case WEFT_FAMILY_GEMMA3: return &weft_gemma3;
    case WEFT_FAMILY_GEMMA4: return &weft_gemma4;
    case WEFT_FAMILY_NEMOTRON_H: return &weft_nemotron_h;
    case WEFT_FAMILY_GEMMA4_ASSISTANT: return NULL;
    }
    return NULL;
}

static weft_status take_draft_ids(weft_model *m, const weft_model_options *o, int vocab, weft_error *e) {
    for (int i = 0; i < o->n_draft_ids; i++)
        if (o->draft_ids[i] < (i ? o->draft_ids[i - 1] + 1 : 0) || o->draft_ids[i] >= vocab)
            return weft_fail(e, WEFT_EINVAL, "ids to draft from: %d, number %d of them, is out of order or does not exist",
                             o->draft_ids[i], i);
    if (!o->n_draft_ids) return WEFT_OK;
    int32_t *ids = weft_arena_get(&m->arena, (size_t)o->n_draft_ids, sizeof *ids);
    if (!ids) return weft_fail_oom(e, "the drafter's ids");
    memcpy(ids, o->draft_ids, (size_t)o->n_draft_ids * sizeof *ids);
    m->drafts.ids = ids;
    m->n_draft_ids = o->n_draft_ids;
    return WEFT_OK;
}

/* In the order of a forward pass; the MTP head's layers are the family's, and loaded with the trunk's. */
static void load_model(weft_model *m, weft_loader *l, int logit_rows) {
    const weft_model_config *c = l->config;
    m->vocab = c->vocab_size;
    m->hidden_size = c->hidden_size;
    m->n_layers = c->n_layers;
    m->eps = c->norm_eps;
    m->embed_scale = 1;
    m->output.cap = c->logit_cap;
    m->window = weft_config_count(c, WEFT_LAYER_SLIDING) ? c->window : 0;
    m->has_mtp = l->dir->mtp != NULL && m->family->mtp;
    m->hidden = weft_load_buf(l, NULL, c->hidden_size);
    m->logits = weft_buf_make(l->dev, NULL, logit_rows, c->vocab_size);
    if (!m->logits) weft_loader_oom(l, "logits");
    weft_pick_layer(l->dev, logit_rows, c->vocab_size);
    weft_scratch_make(&m->s, l);
    m->family->load(m, l);
}

/* Listed only where a sink wants to know. */
static weft_status load(weft_model **model, weft_dev *dev, const weft_model_dir *dir, const weft_model_options *options,
                        weft_model_sink sink, void *ctx, weft_error *e) {
    const weft_model_dir *assistant = options->assistant;
    const weft_family_methods *family = family_of(&dir->config);
    if (!family)
        return weft_fail(e, WEFT_ESUPPORT, "%s is a drafter for a Gemma 4 model, not a model by itself: give it with --draft",
                         dir->path);
    weft_model *m = weft_calloc(1, family->bytes);
    if (!m) return weft_fail_oom(e, "the model");
    m->family = family;
    m->dev = dev;
    weft_loader l;
    weft_loader_open(&l, dev, dir, &m->arena, e);
    l.sink = sink;
    l.sink_ctx = ctx;
    l.status = take_draft_ids(m, options, dir->config.vocab_size, e);
    if (l.status == WEFT_OK) load_model(m, &l, options->logit_rows);
    weft_status s = l.status;
    weft_loader_close(&l);
    if (s == WEFT_OK && assistant) {
        weft_loader_open(&l, dev, assistant, &m->arena, e);
        m->assistant = weft_assistant_load(m, &l);
        s = l.status;
        weft_loader_close(&l);
    }
    if (s == WEFT_OK && weft_model_drafts(m) && (m->carry = weft_carry(dev, dir->config.hidden_size)) < 0)
        s = weft_fail_oom(e, "the drafter");
    if (s == WEFT_OK) s = weft_tensors_check(dir->tensors, e);
    if (s == WEFT_OK && assistant) s = weft_tensors_check(assistant->tensors, e);
    if (s != WEFT_OK) {
        weft_model_close(m);
        return s;
    }
    *model = m;
    return WEFT_OK;
}

weft_status weft_model_load(weft_model **model, weft_dev *dev, const weft_model_dir *dir, const weft_model_options *options,
                            weft_error *e) {
    return load(model, dev, dir, options, NULL, NULL, e);
}

weft_status weft_model_list(const weft_model_dir *dir, weft_model_sink sink, void *ctx, weft_error *e) {
    weft_dev *dev = NULL;
    weft_model *m = NULL;
    WEFT_TRY(weft_dev_open(&dev, &(weft_dev_config){.dry = true}, e));
    weft_status s = load(&m, dev, dir, &(weft_model_options){.logit_rows = 1}, sink, ctx, e);
    weft_model_close(m);
    weft_dev_close(dev);
    return s;
}

void weft_model_close(weft_model *m) {
    if (!m) return;
    weft_arena_free(&m->arena);
    weft_free(m);
}

/* gemma4_assistant.c: the drafter of Gemma 4, a checkpoint of its own.
 *
 * A draft is made from the target's embedding of the last token and a hidden row: the target's at first, then the drafter's own,
 * projected back to the target's width. Four layers look at the keys and values of the target's last layers with keys of their own,
 * one for each kind, and add none. All drafts of a chain stand at the pending token's position. A sliding layer sees one position
 * more than the target's do, as in the reference. The head looks at all tokens, or only at those that a few centroids own. */
#include "model/gemma4.h"

struct weft_assistant {
    weft_gemma4_layer *layers;
    int n_layers;
    float eps;
    weft_mat *in, *out; /* [hidden, 2 backbone], [backbone, hidden] */
    weft_coef *final_norm;
    weft_output output; /* w NULL: ordered */
    weft_ordered_output ordered;
    weft_scratch s;
    weft_buf *embedding, *before, *pair; /* backbone, backbone, 2 backbone */
    weft_buf *normed, *next;             /* hidden; backbone: the hidden row for the next link */
    weft_buf *scores;                    /* centroids */
};

void weft_assistant_draft(weft_assistant *a, weft_model *m, bool chained) {
    const weft_scratch *s = &a->s;
    weft_embed(m->dev, a->embedding, m->embed, m->embed_scale);
    if (!chained) weft_shift(m->dev, a->before, NULL, m->carry);
    weft_concat(m->dev, a->pair, a->embedding, chained ? a->next : a->before);
    weft_linear(m->dev, (weft_buf *[]){s->x}, (const weft_mat *[]){a->in}, 1, a->pair);
    for (int i = 0; i < a->n_layers; i++) weft_gemma4_layer_run(&a->layers[i], m->dev, s);
    weft_norm(m->dev, a->normed, s->x, a->final_norm, a->eps);
    weft_linear(m->dev, (weft_buf *[]){a->next}, (const weft_mat *[]){a->out}, 1, a->normed);
}

void weft_assistant_logits(weft_assistant *a, weft_model *m, const int *rows, int n) {
    if (a->output.w)
        weft_logits(m->dev, m->logits, &a->output, a->normed, rows, n);
    else
        weft_ordered_logits(m->dev, m->logits, &a->ordered, a->scores, a->normed, rows, n);
}

void weft_assistant_pick(weft_assistant *a, weft_model *m, weft_head head, const int *rows, int n, const weft_pick *rules,
                         const bool *allowed) {
    if (a->output.w) {
        weft_pick_tokens(m->dev, head == WEFT_HEAD_FREQUENT ? &m->drafts : &a->output, a->normed, rows, n, rules, allowed);
    } else {
        weft_ordered_logits(m->dev, m->logits, &a->ordered, a->scores, a->normed, rows, n);
        weft_pick_logits(m->dev, m->logits, n, rules, allowed);
    }
}

/* ---- loading ------------------------------------------------------------------------------------------------------------- */

static bool fits(const weft_model *m, weft_loader *l) {
    const weft_model_config *c = l->config;
    const weft_attention *full = m->own_full, *sliding = m->own_sliding;
    const char *what = NULL;
    if (c->family != WEFT_FAMILY_GEMMA4_ASSISTANT)
        what = "it is no drafter";
    else if (!full || !sliding)
        what = "only Gemma 4 models have use for it";
    else if (c->backbone_hidden != m->hidden_size)
        what = "it was made for another hidden size";
    else if (c->vocab_size != m->vocab)
        what = "its vocabulary has another size";
    else if (c->full.n_kv_heads != full->n_kv_heads || c->full.head_dim != full->head_dim ||
             c->sliding.n_kv_heads != sliding->n_kv_heads || c->sliding.head_dim != sliding->head_dim || c->window != m->window)
        what = "it looks for other keys and values than the model has";
    if (what && l->status == WEFT_OK)
        l->status = weft_fail(l->e, WEFT_EINVAL, "%s cannot draft for this model: %s", l->dir->path, what);
    return l->status == WEFT_OK;
}

static void load_head(weft_assistant *a, weft_model *m, weft_loader *l) {
    const weft_model_config *c = l->config;
    const char *embed = weft_loader_path(l, l->dir->trunk, "embed_tokens");
    a->output.cap = c->logit_cap;
    if (!c->n_centroids) {
        const char *head = l->dir->head ? l->dir->head : embed;
        a->output.w = weft_load_mat(l, head, c->vocab_size, c->hidden_size);
        weft_load_draft_head(m, l, &a->output, head, c->hidden_size);
        return;
    }
    a->ordered.top = c->centroid_top;
    a->ordered.centroids = weft_load_mat(l, "masked_embedding.centroids", c->n_centroids, c->hidden_size);
    a->ordered.w = weft_load_ordered(l, embed, "masked_embedding.token_ordering", c->n_centroids, c->vocab_size, c->hidden_size,
                                     &a->ordered.order);
    a->scores = weft_load_buf(l, "drafter", c->n_centroids);
}

weft_assistant *weft_assistant_load(weft_model *m, weft_loader *l) {
    const weft_model_config *c = l->config;
    if (!fits(m, l)) return NULL;
    weft_assistant *a = weft_arena_get(&m->arena, 1, sizeof *a);
    if (a) a->layers = weft_arena_get(&m->arena, (size_t)c->n_layers, sizeof *a->layers);
    if (!a || !a->layers) {
        weft_loader_oom(l, "the drafter");
        return NULL;
    }
    const char *trunk = l->dir->trunk;
    int hidden = c->hidden_size, backbone = c->backbone_hidden;
    a->n_layers = c->n_layers;
    a->eps = c->norm_eps;
    weft_scratch_make(&a->s, l);
    weft_coef *full = weft_rope_frequencies(l, &c->full), *sliding = weft_rope_frequencies(l, &c->sliding);
    a->in = weft_load_mat(l, "pre_projection", hidden, 2 * (int64_t)backbone);
    for (int i = 0; i < c->n_layers; i++) {
        bool slides = c->layer_kind[i] == WEFT_LAYER_SLIDING;
        weft_attention_traits traits = {.kind = slides ? WEFT_LAYER_SLIDING : WEFT_LAYER_ATTENTION,
                                        .shared = slides ? m->own_sliding : m->own_full,
                                        .past = true};
        weft_gemma4_layer_load(&a->layers[i], l, &a->s, weft_loader_path(l, trunk, "layers.%d", i), slides ? sliding : full,
                               &traits, &(weft_gemma4_inputs){0});
    }
    a->final_norm = weft_load_gain(l, weft_loader_path(l, trunk, "norm"), hidden);
    a->out = weft_load_mat(l, "post_projection", backbone, hidden);
    load_head(a, m, l);
    a->embedding = weft_load_buf(l, "drafter", backbone);
    a->before = weft_load_buf(l, "drafter", backbone);
    a->pair = weft_load_buf(l, "drafter", 2 * backbone);
    a->normed = weft_load_buf(l, NULL, hidden);
    a->next = weft_load_buf(l, NULL, backbone);
    return a;
}

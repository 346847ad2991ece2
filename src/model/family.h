/* family.h: what all models have, and what each family adds. A family's struct begins with a weft_model. */
#ifndef WEFT_MODEL_FAMILY_H
#define WEFT_MODEL_FAMILY_H

#include "model/blocks.h"
#include "model/model.h"

typedef struct weft_family_methods {
    size_t bytes; /* of the family's struct */
    void (*load)(weft_model *m, weft_loader *l);
    /* The step's tokens through all layers, into m->hidden. */
    void (*trunk)(weft_model *m);
    /* The MTP head's layers: from s.x, with s.h its norm by mtp.layer_norm, into mtp.out; or only as far as keys and values go.
     * NULL: the family has no such head. */
    void (*mtp)(weft_model *m, weft_mtp_rows rows);
} weft_family_methods;

/* The MTP head around its layers: fc [norm(embedding of the token) ; norm(hidden row before it)]. */
typedef struct weft_mtp {
    weft_coef *embedding_norm, *hidden_norm, *layer_norm, *final_norm;
    weft_mat *fc;                        /* [hidden, 2 hidden] */
    weft_output output;                  /* the trunk's unless the checkpoint has one of its own */
    weft_buf *embedding, *hidden, *pair; /* hidden, hidden, 2 hidden */
    weft_buf *out;                       /* hidden: after final_norm; feeds the head, and the next link of a chain */
} weft_mtp;

typedef struct weft_assistant weft_assistant;

struct weft_model {
    const weft_family_methods *family;
    weft_dev *dev;
    weft_arena arena; /* what weights on disk need */
    int vocab, hidden_size, n_layers, window;
    float eps, embed_scale;
    weft_mat *embed;    /* [vocab, hidden] */
    weft_output output; /* the head; its weight is embed where tied */
    weft_coef *final_norm;
    weft_scratch s;
    weft_buf *hidden; /* hidden: after the final norm */
    weft_buf *logits; /* [logit_rows, vocab] */

    int carry; /* the trunk's hidden row before the step's first, for drafts */
    bool has_mtp;
    weft_output drafts; /* the drafter's head with some ids only; w NULL: it has none. ids: those that are wanted */
    int n_draft_ids;
    uint64_t draft_saves; /* bytes that it is smaller by than the whole head */
    weft_mtp mtp;
    weft_assistant *assistant;                    /* NULL: none */
    const weft_attention *own_full, *own_sliding; /* the last layers of each kind that have keys of their own */
};

extern const weft_family_methods weft_qwen_hybrid, weft_llama, weft_gemma3, weft_gemma4, weft_nemotron_h;

/* sqrt(n) rounded to BF16: Gemma's scale of the embedding, as it was trained. */
float weft_root_bf16(int n);
/* Embeds the step's tokens into s.x. */
void weft_model_embed(weft_model *m);
/* Loads what comes before the layers, and what comes after them: the embedding; the final norm and the head. */
void weft_load_embedding(weft_model *m, weft_loader *l);
void weft_load_head(weft_model *m, weft_loader *l);
/* The drafter's head of the ids that are wanted, if any are: rows of `all`, which is the module `path`, [vocab, cols]. */
void weft_load_draft_head(weft_model *m, weft_loader *l, const weft_output *all, const char *path, int cols);
/* Modules of an MTP head by their names after the head's prefix. */
void weft_mtp_load(weft_model *m, weft_loader *l, const char *fc, const char *embedding_norm, const char *hidden_norm);

/* The drafter of Gemma 4 (gemma4_assistant.c). NULL, and the loader's error, when it does not fit the model. */
weft_assistant *weft_assistant_load(weft_model *m, weft_loader *l);
void weft_assistant_draft(weft_assistant *a, weft_model *m, bool chained);
void weft_assistant_logits(weft_assistant *a, weft_model *m, const int *rows, int n);
void weft_assistant_pick(weft_assistant *a, weft_model *m, weft_head head, const int *rows, int n, const weft_pick *rules,
                         const bool *allowed);

#endif

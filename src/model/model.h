/* model.h: a model on a device: what the engine sees of every family.
 *
 * Inside a step (weft_begin .. weft_end) the engine calls weft_model_pass() and then weft_model_logits() as often as it likes.
 *
 * Drafts come from one of two places. A multi-token-prediction (MTP) head is one more attention layer: its row for position p is
 * made from the trunk's hidden row p - 1 (after the final norm) and the token at p, and predicts the token at p + 1, as the trunk's
 * row p does; there is no row 0. Its keys and values are written by every pass, whatever is drafted. An assistant is a checkpoint
 * of its own (Gemma 4) whose queries attend to the keys and values of the model itself; it writes none, and all links of its chain
 * stand at the pending token's position. */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "format/model_dir.h"
#include "format/weight.h"
#include "ops/ops.h"

typedef struct weft_model weft_model;

typedef enum weft_mtp_rows {
    WEFT_MTP_WRITE, /* keys and values only */
    WEFT_MTP_FULL,  /* also the head's output, for logits of every row (teacher-forced scoring) */
} weft_mtp_rows;

typedef enum weft_head {
    WEFT_HEAD_TRUNK,
    WEFT_HEAD_DRAFT,
    WEFT_HEAD_FREQUENT, /* the drafter's with weft_model_draft_ids() alone: for weft_model_pick(), where there are such ids */
} weft_head;

typedef struct weft_model_options {
    const weft_model_dir *assistant; /* a drafter's folder, or NULL */
    int logit_rows;                  /* the most rows of one weft_model_logits() or weft_model_pick() call */
    const int32_t *draft_ids;        /* [n_draft_ids], ascending: what WEFT_HEAD_FREQUENT is to have */
    int n_draft_ids;
} weft_model_options;
/* Checks every tensor against the configuration and packs it (on a dry device: checks only); registers buffers and layers. The
 * caller then plans the device. The folders must stay open as long as the model. */
weft_status weft_model_load(weft_model **m, weft_dev *dev, const weft_model_dir *dir, const weft_model_options *options,
                            weft_error *e);
void weft_model_close(weft_model *m);

/* Takes what a model consists of: a weight with its module's path, or a small tensor (w NULL) with its name; so many numbers. */
typedef void (*weft_model_sink)(void *ctx, const char *path, const weft_weight *w, int64_t n);
/* Checks a model's tensors and hands them over one by one, in the order of a forward pass; reads only small ones. */
weft_status weft_model_list(const weft_model_dir *dir, weft_model_sink sink, void *ctx, weft_error *e);

int weft_model_vocab(const weft_model *m);     /* columns of the logits */
bool weft_model_has_head(const weft_model *m); /* false: there are hidden rows only, no logits */
bool weft_model_has_mtp(const weft_model *m);
bool weft_model_drafts(const weft_model *m); /* it has an MTP head or an assistant */
/* Whether a draft's position is one after the draft before it: otherwise all stand at the pending token's. */
bool weft_model_draft_moves(const weft_model *m);
int weft_model_window(const weft_model *m); /* positions that its sliding layers see; 0: it has none */

/* The step's rows through the trunk, and through the MTP head as far as asked. */
void weft_model_pass(weft_model *m, weft_mtp_rows mtp);
/* A draft step: each span one speculative row. chained false: hidden rows come from the carry (the true ones); true: from the
 * drafter's own output of the previous draft step, whose rows are the same requests. */
void weft_model_draft(weft_model *m, bool chained);
/* The ids of WEFT_HEAD_FREQUENT, ascending, *n of them; NULL: there is no such head. A drafter with a large vocabulary reads its
 * output head for most of its time, and all but some ten thousand ids are rare: it may have a copy of the rows of the others. An
 * assistant whose head is ordered reads little of it and has none. */
const int32_t *weft_model_draft_ids(const weft_model *m, int *n);
/* Bytes that a draft step reads less with it; 0: there is none. */
uint64_t weft_model_draft_saves(const weft_model *m);
/* Tokens for the listed rows, as weft_pick_tokens() chooses them; read by weft_read_pick(). A kept row has the columns of the head.
 */
void weft_model_pick(weft_model *m, weft_head head, const int *rows, int n, const weft_pick *rules, const bool *allowed);
/* Logits of the listed rows of the step, of all ids; read them from weft_model_logits_buf(), row i for rows[i]. */
void weft_model_logits(weft_model *m, weft_head head, const int *rows, int n);
const weft_buf *weft_model_logits_buf(const weft_model *m);

#endif

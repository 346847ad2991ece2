/* engine.h: the engine's and a request's insides, shared by the files of src/engine.
 *
 * A request's place in the caches. ids holds the prompt and what was generated. The first `done` of them have been through the
 * trunk and are final: KV rows 0..done-1, MTP rows 1..done-1. The recurrent slot holds the state at `stored`; the `replay` rows
 * between it and `done` were speculative when they ran, were accepted since, and wait in the journal to be folded by the next
 * pass. So always
 *     stored + replay == done,   done <= n ids,   and while it generates: done + 1 == n ids (one pending token).
 * Pages of layers that see all keys are taken for the whole request at the start. Layers with a sliding window have pages of their
 * own kind: a request holds those of positions done - window - 1 and above only, as far as rows have been written.
 * weft_engine_check() asserts this after every step. */
#ifndef WEFT_ENGINE_ENGINE_H
#define WEFT_ENGINE_ENGINE_H

#include "cache/index_pool.h"
#include "engine/choose.h"
#include "engine/depth.h"
#include "engine/ngrams.h"
#include "engine/stop.h"
#include "format/model_dir.h"
#include "format/usage.h"
#include "model/model.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "weft.h"

typedef enum weft_phase { WEFT_PROMPT, WEFT_DECODE, WEFT_ENDED } weft_phase;

struct weft_request {
    weft_engine *engine;
    weft_phase phase;
    void *user;

    weft_ids ids; /* room for everything from the start */
    size_t n_prompt;
    size_t max_tokens;
    weft_choosing choosing;
    weft_stop stop;
    int depth;
    int32_t *drafts; /* the replay drafter's list, or NULL */
    size_t n_drafts;

    int done, stored, replay;
    int journal; /* the half that the last pass wrote */
    int slot;
    int *pages[WEFT_PAGE_KINDS]; /* tables of n_pages; the window's holds pages [window_from, window_to), -1 around them */
    int n_pages, window_from, window_to;

    int n_draft; /* this step's */
    int32_t draft[WEFT_MAX_DEPTH];
    uint8_t draft_from[WEFT_MAX_DEPTH]; /* weft_drafter */
    int want;                           /* drafts that this step is to make */
    weft_acceptance accepted[WEFT_DRAFTERS];
    bool no_lookup;
    weft_ngrams ngrams;
    int match;          /* tokens that agree at the end with an earlier place; 0: looked up nothing */
    size_t match_next;  /* the position behind it */
    size_t lookup_from; /* tokens from which on lookup is tried again after it failed */
    int lookup_failed;  /* times in a row */
    int row;            /* first row in this step; rows: how many of them are certain, 0: not in it */
    int certain;

    weft_decoder decoder;
    weft_str text; /* decided: what the events of this step point into */
    weft_error error;
    weft_stats stats;
};

/* What the engine loads from; draft.path NULL: no drafter. */
typedef struct weft_folders {
    weft_model_dir model, draft;
} weft_folders;

/* Drafters of vocabularies of more than `above` ids draft from `ids` of them: from the model's control tokens and those that it
 * says most often (format/usage.h). Above 64k: a smaller head takes less time than the drafter's layer does anyway. 48k ids: at the
 * shapes of Qwen3.5-2B in 4 bits a link reads 57 MB of head instead of 286, beside 33 of its layer and 1200 of a pass. 32k would
 * spare 19 MB more, 4 % of the time of a pass with three links; each hundredth of tokens that are not in the list costs more than 1
 * % of the tokens of such a pass. */
typedef struct weft_reduction {
    int above, ids; /* ids <= above */
} weft_reduction;
#define WEFT_REDUCTION ((weft_reduction){65536, 49152})

struct weft_engine {
    weft_config config;
    weft_folders folders;
    weft_tokenizer *tokenizer; /* NULL: the folder has none */
    weft_chat *chat;           /* NULL: no_chat says why */
    weft_error no_chat;
    weft_dev *dev;
    weft_model *model;
    weft_usage usage; /* what is said, where that decides what is drafted from */
    weft_info info;
    bool *allowed; /* [vocab]: ids that exist */

    weft_index_pool pages[WEFT_PAGE_KINDS], slots;
    int window;              /* weft_model_window() */
    weft_request **requests; /* [max_requests]: the open ones, oldest first */
    int n_requests;

    /* a step's tables, sized for the plan */
    weft_plan plan;
    int32_t *tokens;         /* [max_rows] */
    weft_span *spans;        /* [max_spans] */
    int *rows;               /* [logit rows] */
    weft_request **drafting; /* [max_requests] */
    weft_pick *picks;        /* [logit rows]: how to choose each token */
    weft_kept *kept;         /* [logit rows]: the device's room for those that truncate */
    weft_event *events;      /* [max_requests * (1 + max_depth + 1)] */
    size_t n_events;
    size_t *event_text; /* [as events]: offset in its request's text; pointers are made when the step is over */
    weft_logprob *tops; /* [events * WEFT_MAX_LOGPROBS] */
    weft_stats stats;
    weft_costs costs;
    weft_depth_wish *wishes;  /* [max_requests] */
    uint64_t drafted, agreed; /* first drafts of the drafter itself, and how many of them were right */
    bool warned;              /* about them */
};

/* weft_engine_open() with another reduction: tests have small vocabularies. */
weft_status weft_engine_open_reduced(weft_engine **engine, const weft_config *config, weft_reduction reduction, weft_error *e);

/* Pages of layers with a sliding window that a request holds at most, at `rows` rows in a pass. */
int weft_place_window_pages(int window, int rows);

/* A place in the caches for `tokens` tokens: pages (zeroed) and a slot. Those of a window come and go: */
weft_status weft_place_take(weft_request *r, size_t tokens, weft_error *e);
void weft_place_drop(weft_request *r);
/* Before `rows` rows run at `done` or above: the window's pages (zeroed) that they write. The plan has enough of them. */
void weft_place_reach(weft_request *r, int rows);
/* After `done` has moved: gives back the window's pages that no row to come sees. */
void weft_place_release(weft_request *r);
/* The span of this request's next pass. */
weft_span weft_place_span(const weft_request *r, int row, int certain, int speculative);
/* Benchmarks only: declares the first n tokens of a new request's prompt done, n < n_prompt, without computing them. Their KV rows
 * are those of fresh pages and the states are zero, so that a long context costs nothing to make; what is generated means nothing,
 * but takes as long. */
weft_status weft_place_skip(weft_request *r, int n, weft_error *e);
/* Folds accepted rows into the stored state: what a snapshot, a fork or a spill needs first. */
weft_status weft_place_flush(weft_request *r, weft_error *e);

/* Draft tokens for all requests that generate, into their draft[]. */
weft_status weft_draft(weft_engine *g, weft_error *e);
/* The pass has judged draft i of this request. */
void weft_draft_judged(weft_request *r, int i, bool right);

/* weft_score() without the MTP head's logits, which take as long as the trunk's: mtp_logits is always NULL. */
weft_status weft_score_trunk(weft_engine *g, const int32_t *ids, size_t n, weft_score_row row, void *ctx, weft_error *e);

/* Rows that can have logits at a time. */
static inline int weft_logit_rows(const weft_config *c) {
    return c->max_requests * (1 + c->max_depth);
}

/* NULL, or which invariant is broken. */
const char *weft_engine_check(const weft_engine *g);

#endif

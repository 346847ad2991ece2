/* engine.h: the engine's and a request's insides, shared by the files of src/engine.
 *
 * A request's place in the caches. ids holds the prompt and what was generated. The first `done` of them have been through the
 * trunk and are final: KV rows 0..done-1, MTP rows 1..done-1. The recurrent slot holds the state at `stored`; the `replay` rows
 * between it and `done` were speculative when they ran, were accepted since, and wait in the journal to be folded by the next
 * pass. So always
 *     stored + replay == done,   done <= n ids,   and while it generates: done + 1 == n ids (one pending token).
 * Tokens that may belong to a stop string stand at the end of ids before they belong to the answer (answer.h). When that stop
 * string is complete the answer ends before them, but they stay in ids, as caches and state have gone over them: a state exists at
 * `done` alone, so a prefix that ends earlier cannot be kept without a snapshot there. Pages of layers that see all keys are taken
 * for the whole request at the start. Layers with a sliding window have pages of their own kind: a request holds those of positions
 * done - window - 1 and above only, as far as rows have been written. weft_engine_check() asserts this after every step. */
#ifndef WEFT_ENGINE_ENGINE_H
#define WEFT_ENGINE_ENGINE_H

#include "cache/index_pool.h"
#include "engine/answer.h"
#include "engine/choose.h"
#include "engine/depth.h"
#include "engine/mode.h"
#include "engine/ngrams.h"
#include "engine/trace.h"
#include "engine/tuned.h"
#include "format/model_dir.h"
#include "format/usage.h"
#include "model/model.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "weft.h"

/* Log-probabilities of a prompt's ids, by position; {0}: not asked for. */
typedef struct weft_prompt_logprobs {
    float *logprob;    /* [n_prompt] */
    weft_logprob *top; /* [n_prompt, top_logprobs], of each the first n_top; NULL: none asked for */
    int n_top;
    size_t known; /* of ids 1 .. known - 1 */
} weft_prompt_logprobs;

typedef enum weft_phase { WEFT_PROMPT, WEFT_DECODE, WEFT_ENDED } weft_phase;

struct weft_request {
    weft_engine *engine;
    weft_phase phase;
    void *user;

    weft_ids ids; /* room for everything from the start */
    size_t n_prompt;
    size_t max_tokens;
    weft_choosing choosing;
    int depth;
    int32_t *drafts; /* the replay drafter's list, or NULL */
    size_t n_drafts;
    const weft_trace *trace; /* tests and benchmarks set it after weft_submit(); else NULL */

    int done, stored, replay;
    int journal; /* the half that the last pass wrote */
    int slot;
    int *pages[WEFT_PAGE_KINDS]; /* tables of n_pages; the window's holds pages [window_from, window_to), -1 around them */
    int n_pages, window_from, window_to;

    int n_draft; /* this step's */
    int32_t draft[WEFT_MAX_DEPTH];
    uint8_t draft_from[WEFT_MAX_DEPTH]; /* weft_drafter */
    uint8_t draft_sure[WEFT_MAX_DEPTH]; /* weft_sureness_class() of those of the model */
    double running;                     /* how likely all of them are right */
    int most;                           /* drafts that this step can use */
    int want;                           /* that it is to make; of a chain whose depth is what pays: at least */
    bool extra;                         /* and one more than pays, to see */
    bool linking;                       /* the chain goes on */
    weft_mode mode;                     /* what the answer is at now */
    weft_acceptance accepted[WEFT_MODES][WEFT_LEARNERS];
    int trial;    /* where it has trials in this step: its first among the engine's trials[] */
    int place;    /* among the engine's requests[], in this step */
    float listed; /* the share of its last tokens that the drafter's small head has */
    bool no_lookup;
    weft_ngrams ngrams;
    int match;          /* tokens that agree at the end with an earlier place; 0: looked up nothing */
    size_t match_next;  /* the position behind it */
    size_t lookup_from; /* tokens from which on lookup is tried again after it failed */
    int lookup_failed;  /* times in a row */
    int row;            /* first row in this step; rows: how many of them are certain, 0: not in it */
    int certain;

    weft_answer answer;
    weft_prompt_logprobs prompt_logprobs;
    weft_error error;
    weft_stats stats;
};

/* What the engine loads from; draft.path NULL: no drafter. */
typedef struct weft_folders {
    weft_model_dir model, draft;
} weft_folders;

/* Drafters of vocabularies of more than `above` ids have a second head with `ids` of them: the model's control tokens and what it
 * says most often (format/usage.h). Below 64k a smaller head would take less time than the drafter's layer does anyway. 48k ids: at
 * the shapes of Qwen3.5-2B in 4 bits a link reads 57 MB of head instead of 286, beside 33 of its layer and 1200 of a pass. 32k
 * would spare 19 MB more, 4 % of a pass with three links; but before anything is counted they have 93 to 95 of 100 tokens of
 * English and code instead of 96 to 97, and of German 79 instead of 83, and a hundredth is more than 1 % of the tokens of such a
 * pass. */
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
    weft_usage usage;         /* what is said, where that decides what is drafted from */
    const int32_t *draft_ids; /* this step's drafts are of these ids, ascending; NULL: of all */
    uint64_t pass_bytes;      /* that the last pass read */
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
    int *rows;               /* [logit rows + pick rows]: those of tokens to choose, then those of prompts */
    weft_request **drafting; /* [max_requests] */
    weft_pick *picks;        /* [as rows]: how to choose each token */
    weft_kept *kept;         /* [logit rows]: the device's room for those that truncate or are tried */
    weft_kept *kept_drafts;  /* [max_requests * max_depth]: what drafts were drawn from */
    weft_trial *trials;      /* [logit rows] */
    weft_events events;
    weft_stats stats;
    weft_costs costs;
    weft_depth_wish *wishes; /* [max_requests] */
    double rate;             /* tokens in a nanosecond, as this step was planned */
    int planned;             /* its rows so far */
    weft_modes modes;
    weft_acceptance accepted[WEFT_MODES][WEFT_LEARNERS]; /* of all requests: where a new one begins */
    weft_sureness sureness;
    weft_tuned_key tuned_for; /* of the table that `weft tune` makes for this engine */
    weft_str tuned_path;      /* where that is kept; empty: nowhere */
    uint64_t drafted, agreed; /* first drafts of the drafter itself, and how many of them were right */
    bool warned;              /* about them */
};

/* weft_engine_open() with another reduction: tests have small vocabularies. */
weft_status weft_engine_open_reduced(weft_engine **engine, const weft_config *config, weft_reduction reduction, weft_error *e);

/* Which checkpoint this is, for what is kept between starts (kept.c): tuned_for's model and source, empty where nothing is kept.
 * packed: the folder of packed weights, empty there too. */
weft_status weft_engine_identify(weft_engine *g, weft_str *packed, weft_error *e);
/* Begins to count what is said, and chooses the n ids that are drafted from. */
weft_status weft_engine_draft_ids(weft_engine *g, int32_t *ids, int n, weft_error *e);
/* Completes tuned_for, and begins with what `weft tune` measured for it, where it did; measurements move on from there. */
weft_status weft_engine_read_tuned(weft_engine *g, weft_error *e);

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

/* A new request: what its prompt says about which head its drafts should come from. */
void weft_draft_begin(weft_request *r);
/* The answer has one token more. */
void weft_draft_said(weft_request *r, int32_t id);
/* Draft tokens for all requests that generate, into their draft[]. */
weft_status weft_draft(weft_engine *g, weft_error *e);
/* The row of kept_drafts with what draft i of this request was drawn from. */
static inline int weft_draft_row(const weft_request *r, int i) {
    return r->place * r->engine->config.max_depth + i;
}
/* The pass has judged draft i of this request. */
void weft_draft_judged(weft_request *r, int i, bool right);

/* For benchmarks: depths are chosen as if nothing had been measured or loaded, and what is said from now on is not kept as what
 * this user's models say. */
void weft_engine_benchmark(weft_engine *g);

/* weft_score() without the MTP head's logits, which take as long as the trunk's: mtp_logits is always NULL. */
weft_status weft_score_trunk(weft_engine *g, const int32_t *ids, size_t n, weft_score_row row, void *ctx, weft_error *e);

/* Rows that can have logits at a time. */
static inline int weft_logit_rows(const weft_config *c) {
    return c->max_requests * (1 + c->max_depth);
}

/* Room, where log-probabilities of the prompt are wanted. */
weft_status weft_prompt_logprobs_open(weft_request *r, const weft_request_desc *d, weft_error *e);
void weft_prompt_logprobs_close(weft_prompt_logprobs *p);
/* Inside a step, when the trunk has run: those of all prompts that have rows in it. A prompt whose logits are not finite ends. */
weft_status weft_prompt_logprobs_score(weft_engine *g, weft_error *e);

/* A request's stop strings, and room for all that a step can let out. */
weft_status weft_answer_open(weft_request *r, const weft_request_desc *d, weft_error *e);
void weft_answer_close(weft_answer *a);
/* Before a step: room for the events of every request, n_draft and one more token each, and what was held back. */
weft_status weft_answer_room(weft_engine *g, weft_error *e);
/* The next token: the answer goes on with it, or has ended at a stop string (WEFT_ENDED), of which it holds the last byte. On
 * failure r->error says why. */
weft_status weft_answer_add(weft_request *r, const weft_picked *picked);
/* The answer ends, not with a stop string. token: the end token; -1: it was none. */
void weft_answer_end(weft_request *r, weft_end_reason reason, int32_t token);
/* The step is over: its events may be read. */
void weft_answer_publish(weft_engine *g);

/* Rows that tokens can be picked for in one call: more than those of answers, as a call reads the whole output head. */
static inline int weft_pick_rows(const weft_config *c) {
    int many = c->chunk < 64 ? c->chunk : 64, few = weft_logit_rows(c);
    return many > few ? many : few;
}

/* NULL, or which invariant is broken. */
const char *weft_engine_check(const weft_engine *g);

#endif

/* weft.h: the public C API of weft, an inference engine for hybrid language models.
 *
 * Three objects:
 *   weft_engine   one loaded checkpoint with its memory (KV pages, recurrent states, workspace) and its worker threads;
 *   weft_request  one prompt on its way to an answer: its ids, its sampler, its place in the caches;
 *   weft_event    what a step brought: one token of a request, or its end.
 *
 * The promise. For one checkpoint, KV type, numerics mode, backend and instruction set, the tokens of a request depend on its
 * prompt ids, its sampler settings and its seed alone: not on the thread count, the prefill chunk, which other requests share the
 * batch, or whether and how deep the model's multi-token-prediction head drafts ahead. docs/ARCHITECTURE.md says how it is kept.
 * One setting gives it up, and has to be asked for: WEFT_ACCEPT_REJECTION.
 *
 * Threads. An engine belongs to one thread at a time: every call on it and on its requests comes from that thread. Calls set the
 * floating-point mode they need (denormals are zero) and restore the caller's.
 *
 * Signals. Checkpoints are mapped. So that a file cut short under the map is an error and not a crash, the first engine installs a
 * process-wide handler for SIGBUS, which passes on every fault that is not in a checkpoint. A program that installs its own
 * afterwards loses that protection.
 *
 * Pointers must not be NULL unless a comment allows it.
 *
 * Errors. A function that can fail returns WEFT_OK (0) or a negative weft_status, and writes one line for a person into the
 * caller's weft_error where that is not NULL. A failed call changes nothing unless its comment says so. The library never exits
 * and never prints. */
#ifndef WEFT_H
#define WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default) /* all that the shared library exports */
#endif

#define WEFT_VERSION "0.1.0"

typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_EINVAL = -1,   /* an argument or option is out of its range */
    WEFT_EIO = -2,      /* the operating system could not read or write */
    WEFT_ENOMEM = -3,   /* memory ran out, or the plan does not fit into it */
    WEFT_EFORMAT = -4,  /* a file is damaged, or contradicts another */
    WEFT_ESUPPORT = -5, /* a valid file or request that this version cannot serve */
    WEFT_ENUMERIC = -6, /* a model produced NaN or infinity */
    WEFT_EBUSY = -7,    /* every place is taken; try again when a request has been closed */
} weft_status;

typedef struct weft_error {
    weft_status code;
    char text[1024]; /* UTF-8, one line, always terminated */
} weft_error;

/* "out of memory" and the like: a fixed English phrase, never NULL. */
const char *weft_status_name(weft_status s);

/* ---- the engine ---------------------------------------------------------------------------------------------------------- */

#define WEFT_MAX_DEPTH 8 /* drafts ahead of a token */
#define WEFT_DEPTH_AUTO (-1)

typedef struct weft_engine weft_engine;
typedef struct weft_request weft_request;

typedef struct weft_config {
    const char *model; /* a Hugging Face model folder */
    const char *draft; /* the folder of a drafter that was made for the model (Gemma 4 has such); NULL: none */
    int threads;       /* 0: as many as affinity mask and cgroup allow; otherwise exactly so many */
    const char *isa;   /* kernels: "reference" (plain C), "avx2", "avx512-vnni", ...; NULL or "auto": the best for this processor */
    const char *kv;    /* keys and values: "bf16", "int8" with a scale per position and head, "f32"; NULL: bf16, f32 when precise */
    bool precise;      /* float32 activations and KV, weights as stored: for comparison; otherwise the fast arithmetic */
    int context;       /* tokens that all requests together may hold; 0: what the model was trained for, at most 8192 */
    int max_requests;  /* requests at a time; 0: 1 */
    int chunk;         /* prompt rows in a step; 0: 256 */
    int max_depth;     /* the deepest draft that a request may ask for, 1..WEFT_MAX_DEPTH; 0: none; -1: 4 */
    /* The folder where the packed weights of checkpoints from 64 MB on are kept, so that the next start maps them instead of
     * packing again; it grows about as large as the checkpoints. NULL: $XDG_CACHE_HOME/weft/packed, else ~/.cache/weft/packed, on
     * macOS ~/Library/Caches/weft/packed; "": nothing is kept. A folder that cannot be used costs time, not the start.
     * Two small things are kept beside them. With NULL they lie in .../weft/tuned and .../weft/drafts, otherwise in this folder:
     * what `weft tune` measured, read at the start if it is of this machine, model, threads, kernels and KV type, so that draft
     * depths begin with it; and, for checkpoints of more than 65536 ids with a drafter, how often each id was generated, so that
     * drafts are made of the frequent ones: counts alone, nothing of texts or their order. */
    const char *cache_dir;
} weft_config;

/* What a configuration takes, in bytes; the weights themselves are not read for it. */
typedef struct weft_memory {
    uint64_t weights, kv, states, workspace, total;
    uint64_t kv_per_token, state_per_request;
    uint64_t kv_window; /* for each request, however long: keys and values of layers with a sliding window; 0: there are none */
    uint64_t available; /* what this process may use: installed memory, or its cgroup's limit */
} weft_memory;
/* Checks the checkpoint against its config and plans. Does not fail when the plan does not fit: compare total with available. */
weft_status weft_plan_memory(const weft_config *config, weft_memory *memory, weft_error *e);

/* Loads. WEFT_ENOMEM, with the numbers, when the plan does not fit. */
weft_status weft_engine_open(weft_engine **engine, const weft_config *config, weft_error *e);
void weft_engine_close(weft_engine *engine); /* closes its requests, too; NULL is fine */

typedef struct weft_info {
    const char *isa; /* kernels in use */
    const char *kv;  /* type of keys and values */
    int threads, vocab, context, chunk, max_depth;
    bool has_mtp;       /* the checkpoint has a multi-token-prediction head */
    bool drafts;        /* it has, or there is a drafter */
    bool has_tokenizer; /* without one, requests and events carry ids only */
} weft_info;
void weft_engine_info(const weft_engine *engine, weft_info *info);

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

/* Ids of text[0..n). special: control tokens ("<|im_end|>") in the text are recognised; otherwise they are letters like others.
 * With special, the tokens that the tokenizer puts before a plain text (begin of sequence) come first, if it has any.
 * *ids is freed by weft_ids_free(). */
weft_status weft_encode(const weft_engine *engine, const char *text, size_t n, bool special, int32_t **ids, size_t *n_ids,
                        weft_error *e);
/* A chat in the checkpoint's own format, its chat template, up to where the answer begins. All texts are JSON. */
typedef struct weft_chat_desc {
    const char *messages;      /* an array as the OpenAI API has it: [{"role": "user", "content": "Hi!"}] */
    const char *tools;         /* an array of functions; NULL none */
    const char *vars;          /* an object of further variables of the template: {"enable_thinking": false}; NULL none */
    bool no_generation_prompt; /* end with the last message */
} weft_chat_desc;
/* Control tokens in messages, tools and variables are letters like others. WEFT_EINVAL: the template refuses the messages, with its
 * own words; WEFT_ESUPPORT: the checkpoint has no template and is no ChatML model. */
weft_status weft_encode_chat(const weft_engine *engine, const weft_chat_desc *chat, int32_t **ids, size_t *n_ids, weft_error *e);
void weft_ids_free(int32_t *ids);

/* ---- requests ------------------------------------------------------------------------------------------------------------ */

#define WEFT_MAX_LOGPROBS 20     /* likeliest ids beside a token */
#define WEFT_MAX_STOP 64         /* stop strings of a request */
#define WEFT_MAX_STOP_BYTES 1024 /* of one of them */

/* What is added to an id's logit: finite, or -INFINITY, which bans the id. */
typedef struct weft_logit_bias {
    int32_t id;
    float add;
} weft_logit_bias;

/* How drafts are judged. */
typedef enum weft_accept {
    WEFT_ACCEPT_COUPLED, /* a draft is kept if it is the token that a run without drafts draws: the same text at every depth */
    /* Rejection sampling (Leviathan et al. 2023, Chen et al. 2023): the same distribution, a little more drafts kept. The text
     * depends on what was drafted: with WEFT_DEPTH_AUTO on the clock, so that a seed may give another answer each time; with a
     * fixed depth it is repeatable, but, for checkpoints of more than 65536 ids, the ids to draft from are chosen for the whole
     * batch and by what was generated before (cache_dir): there other requests, the prefill chunk and those counts change it, too.
     * Greedy answers are as without it. */
    WEFT_ACCEPT_REJECTION,
} weft_accept;

/* All zero but for prompt and max_tokens is a greedy answer. Everything that is pointed to is copied.
 *
 * How a token is chosen, in this order:
 *   1. raw logits: log-probabilities in events are of these;
 *   2. bias, banned, allowed, and, below min_tokens, end and stop ids: what is left are the permitted ids;
 *   3. penalties, of the ids in prompt and answer so far: repetition, then frequency and presence;
 *   4. temperature: p is proportional to exp(logit / temperature);
 *   5. top_k, of those top_p, of those min_p. Among equals the lowest ids stay;
 *   6. the draw: the arg-max of logit / temperature + G, G Gumbel noise of (seed, choice, tokens before, id). At temperature 0 the
 *      arg-max after step 3.
 * Drafts are judged by the same steps: each as if those before it stood in the answer, as they then do.
 *
 * How an answer ends: each token in turn is an end or stop id (which is no part of the answer), or completes a stop string (no
 * token that holds a byte of it is part of the answer), or is the last of max_tokens. Nothing that was drafted after it counts
 * anywhere. */
typedef struct weft_request_desc {
    const int32_t *prompt; /* at least one id */
    size_t n_prompt;
    int max_tokens; /* >= 1 */

    const weft_logit_bias *bias; /* each id once */
    size_t n_bias;
    const int32_t *banned; /* ids that never come */
    size_t n_banned;
    const int32_t *allowed; /* no other ids come, end ids neither; n_allowed 0: all */
    size_t n_allowed;
    int min_tokens;           /* end and stop ids are banned, and no stop string begins, for so many tokens; 0..max_tokens */
    float repetition_penalty; /* ids of prompt and answer: a logit > 0 is divided by it, any other multiplied; > 0; 0 or 1: none */
    float frequency_penalty;  /* is subtracted for each time that the id came in the answer */
    float presence_penalty;   /* is subtracted once from ids of the answer */
    double temperature;       /* 0: greedy; up to 100 */
    int top_k;                /* the k largest; 0: all */
    float top_p;              /* the fewest, largest first, that together reach this probability; 0, and 1 and above: all */
    float min_p;              /* those that have at least this part of the largest probability, 0..1; 0: all */
    bool has_seed;            /* without one a seed is drawn, which weft_request_seed() tells; see WEFT_ACCEPT_REJECTION */
    uint64_t seed;
    uint32_t choice; /* which of several answers to one prompt: 0, 1, ... of one seed are independent of each other */

    const char *const *stop; /* strings that end the answer, UTF-8, none empty: the answer's text is what stands before one */
    size_t n_stop;
    const int32_t *stop_ids; /* end tokens of this request beside the model's */
    size_t n_stop_ids;
    bool ignore_end;      /* the model's end tokens do not end the answer (tests, benchmarks) */
    bool logprobs;        /* events tell each token's log-probability, */
    bool prompt_logprobs; /* and weft_request_prompt_logprob() those of the prompt: a row of the output head for each, takes time */
    int top_logprobs;     /* both with those of so many of the likeliest ids, 0..WEFT_MAX_LOGPROBS */

    /* Tokens that are drafted ahead, 0..max_depth, by the checkpoint's MTP head or the assistant, and by looking up what came after
     * the same tokens before; WEFT_DEPTH_AUTO: as many as pay, by what was measured. Changes the speed and, but for
     * WEFT_ACCEPT_REJECTION, nothing else. */
    int depth;
    weft_accept accept;
    bool no_lookup;        /* drafts come from the model alone */
    const int32_t *drafts; /* tests: drafts[i] is drafted for the i-th generated token, in place of the head's; or NULL */
    size_t n_drafts;
    void *user; /* the caller's own */
} weft_request_desc;

/* WEFT_EBUSY when no place is free: a request keeps its place until it is closed, ended or not. WEFT_EINVAL when prompt and
 * max_tokens can never fit, or a value is out of its range. */
weft_status weft_submit(weft_engine *engine, const weft_request_desc *desc, weft_request **request, weft_error *e);
void weft_request_close(weft_request *request); /* at any time: cancels what runs, frees its memory */
void *weft_request_user(const weft_request *request);
/* The seed in use. One that was drawn is below 2^53, so that JSON keeps it; a greedy request without one has 0. */
uint64_t weft_request_seed(const weft_request *request);
/* All ids so far: the prompt, then those that have had an event. Valid until the next call on the engine. */
const int32_t *weft_request_ids(const weft_request *request, size_t *n);

typedef struct weft_logprob {
    int32_t id;
    float logprob; /* natural logarithm */
} weft_logprob;
/* Of prompt[i] after those before it, i >= 1, and of the likeliest ids in its place, top[n_top], as an event has them. All are
 * known when the first TOKEN or the END comes that is no error, and valid until the request is closed. False: unknown, or not asked
 * for. */
bool weft_request_prompt_logprob(const weft_request *request, size_t i, float *logprob, const weft_logprob **top, int *n_top);

typedef enum weft_event_kind { WEFT_EVENT_TOKEN, WEFT_EVENT_END } weft_event_kind;
typedef enum weft_end_reason {
    WEFT_END_STOP,   /* an end token, a stop id or a stop string */
    WEFT_END_LENGTH, /* max_tokens */
    WEFT_END_ERROR,  /* event.error says what */
} weft_end_reason;

/* Stop strings. A token that may hold a byte of one has no event until that is decided, so that a step may bring no token, or
 * several at once. Those that do hold a byte of the stop string that ends the answer never have one: they are not among the
 * request's ids and in no count, though they stood, for max_tokens and the penalties, until it was complete. Text that such a token
 * has before the stop string comes with the END, so that the texts of all events are the answer's, up to the stop string. An answer
 * that ends otherwise, at max_tokens for instance, or fails, has all its tokens first. */
typedef struct weft_event {
    weft_request *request;
    weft_event_kind kind;
    int32_t token;    /* TOKEN; END: the end or stop id that ended the answer, else -1 */
    const char *text; /* whole UTF-8 characters that this event completes, may be empty; never NULL */
    size_t n_text;
    float logprob;           /* TOKEN, where logprobs were asked for, else 0 */
    const weft_logprob *top; /* [n_top] likeliest ids, largest first, ties: lowest id; the token need not be among them */
    int n_top;
    weft_end_reason reason; /* END */
    int stop;               /* END: which of the stop strings ended the answer; -1: none of them */
    const weft_error *error;
} weft_event;

/* One step: drafts, one pass over all running requests, sampling. False: nothing is running. *events, *n_events of them, perhaps
 * none, stay valid until the next call on the engine. A request that fails ends with an event of its own. */
bool weft_run_step(weft_engine *engine, const weft_event **events, size_t *n_events);

/* Where a draft came from. */
typedef enum weft_drafter {
    WEFT_DRAFTER_MODEL,  /* the checkpoint's MTP head, or the assistant */
    WEFT_DRAFTER_LOOKUP, /* what came after the same tokens before */
    WEFT_DRAFTER_LIST,   /* the request's own list */
    WEFT_DRAFTERS
} weft_drafter;

/* Drafts at each depth: verified, and found right. A pass verifies them one after the other, up to the first that is wrong and to
 * the token that ends the answer: those behind it are in neither count. */
typedef struct weft_judged {
    uint64_t drafted[WEFT_MAX_DEPTH], accepted[WEFT_MAX_DEPTH];
} weft_judged;

/* Counts of weft_run_step() since the engine was opened, or of one request. */
typedef struct weft_stats {
    uint64_t prompt_tokens;                                     /* prompt rows passed through the trunk */
    uint64_t tokens;                                            /* of answers: those that have had an event */
    uint64_t passes;                                            /* trunk calls (of a request: in which it had rows) */
    uint64_t verify_passes;                                     /* those of them with drafts (of a request: with its own) */
    uint64_t rows;                                              /* rows in passes, speculative ones included */
    uint64_t draft_steps;                                       /* calls of the MTP head to draft (of a request: for it) */
    uint64_t drafted[WEFT_MAX_DEPTH], accepted[WEFT_MAX_DEPTH]; /* as weft_judged, of all drafters */
    weft_judged by[WEFT_DRAFTERS];
    /* Times of steps in nanoseconds. A request has of each step the part that its rows have of the step's, so that times of
     * requests add up to the engine's. Parts of a step: drafting; the trunk; the output head and choosing; the rest. */
    uint64_t draft_ns, verify_ns, sample_ns, host_ns;
    uint64_t prefill_ns, decode_ns; /* the same without drafting: of steps that carried prompt rows, and of the others */
    /* The engine's alone: weights, KV and recurrent state that the passes which decode_ns counts read or wrote, in bytes. */
    uint64_t decode_bytes;
} weft_stats;
void weft_engine_stats(const weft_engine *engine, weft_stats *stats);
void weft_request_stats(const weft_request *request, weft_stats *stats);

/* Teacher-forced scoring: logits for every position of ids, and, with an MTP head, the head's first draft step for every pair.
 * row(ctx, position, logits, mtp_logits): logits[vocab] predict position + 1; mtp_logits is NULL at position 0 and without a head,
 * and predicts position + 1 from the hidden row before and the token at `position`. A row() that fails ends the scoring; it must
 * not call the engine, and runs with denormals flushed. Takes a request's place (WEFT_EBUSY) and n + 1 tokens of context.
 * WEFT_ENUMERIC when a logit of the trunk is NaN or infinite. */
typedef weft_status (*weft_score_row)(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e);
weft_status weft_score(weft_engine *engine, const int32_t *ids, size_t n, weft_score_row row, void *ctx, weft_error *e);
/* What the drafter says after ids: tokens[0] is the trunk's likeliest token, tokens[1..steps] the drafter's likeliest ones, each
 * after the ones before it, and logits[steps * vocab] where those come from. Takes n + 1 + steps tokens of context. WEFT_ESUPPORT
 * without a drafter. */
weft_status weft_score_drafts(weft_engine *engine, const int32_t *ids, size_t n, int steps, int32_t *tokens, float *logits,
                              weft_error *e);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif

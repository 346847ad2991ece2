/* tuned.h: what `weft tune` measured for one model on one machine, kept in a file.
 *
 * The file is one JSON object. It is untrusted: every number is checked against a range in which the choice of depths stays sound
 * (depth.h), and a file that was made for another processor, model, thread count or kernel is refused. At worst it costs speed
 * until measurements have moved on from it; it cannot change an answer. */
#ifndef WEFT_ENGINE_TUNED_H
#define WEFT_ENGINE_TUNED_H

#include <json-c/json.h>

#include "base/str.h"
#include "engine/depth.h"
#include "engine/mode.h"

/* What the times depend on. */
typedef struct weft_tuned_key {
    char model[256];    /* weft_model_dir_name() */
    uint8_t source[16]; /* weft_model_dir_fingerprint(), with a drafter's */
    char processor[64]; /* weft_cpu_name() */
    char isa[32], kv[16];
    int threads;
    bool precise;
    bool drafter; /* the checkpoint has one, or was given one */
} weft_tuned_key;

enum { WEFT_TUNED_DEPTHS = WEFT_MAX_DEPTH + 2, WEFT_TUNED_ROWS = WEFT_MAX_DEPTH + 1 };

/* Decoding at one depth. The ratio is to plain decoding of the same prompt in the same round. */
typedef struct weft_tuned_depth {
    int depth;    /* 0..WEFT_MAX_DEPTH or WEFT_DEPTH_AUTO */
    double tok_s; /* median over the rounds */
    double ratio, least, most;
    double tokens_per_pass;
    double accepted[WEFT_MAX_DEPTH]; /* shares of the drafts at each position that were right, all before them were; -1: none */
} weft_tuned_depth;

typedef struct weft_tuned {
    weft_tuned_key key;
    char version[32];
    int64_t date; /* seconds since 1970 */
    int rounds, tokens;
    double pass_ns[WEFT_TUNED_ROWS + 1]; /* median time of a pass by its rows; 0: not measured; [0] unused */
    double link_ns;                      /* of a link of the draft chain; 0: none */
    weft_acceptance accepted[WEFT_LEARNERS];
    weft_sureness sureness;
    weft_tuned_depth depths[WEFT_TUNED_DEPTHS];
    int n_depths;
} weft_tuned;

/* Takes times to whole nanoseconds, and those that lie too far from that of one row to the nearest that does not: a busy machine
 * may show them, and they would take long to unlearn. A file with such is refused; one with times as this leaves them is not. */
void weft_tuned_limit(weft_tuned *t);

/* DIR/MODEL-SOURCE-HASH.json; false when memory is short. */
bool weft_tuned_path(weft_str *path, const char *dir, const weft_tuned_key *key);

/* WEFT_EFORMAT: damaged, or a value is out of its range. The times are as weft_tuned_limit() leaves them. */
weft_status weft_tuned_parse(weft_tuned *t, const char *text, size_t n, weft_error *e);
/* Also WEFT_EINVAL: made for something else than `key`; WEFT_ESUPPORT: by another version. Messages name the file. */
weft_status weft_tuned_read(weft_tuned *t, const char *path, const weft_tuned_key *key, weft_error *e);

/* The file's object; NULL when memory is short. Freed by json_object_put(). */
struct json_object *weft_tuned_json(const weft_tuned *t);
/* Makes the folder, writes beside the name, renames. */
weft_status weft_tuned_write(const weft_tuned *t, const char *path, weft_error *e);

/* Where an engine begins; acceptance the same in all modes. Its own measurements move these numbers from the first one on. */
void weft_tuned_start(const weft_tuned *t, weft_costs *costs, weft_acceptance accepted[WEFT_MODES][WEFT_LEARNERS],
                      weft_sureness *sureness);

#endif

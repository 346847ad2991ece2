/* usage.h: how often a checkpoint has said each id, and the ids that its drafter's output head should have.
 *
 * A drafter with a vocabulary of 250 000 ids spends most of its time on its output head, and what one user's models say uses some
 * ten thousand of them. Leaving out the rare ones costs a draft where one of them comes, never a token: the model itself chooses
 * among all ids. Which are rare is counted on the model's own answers, a file for each checkpoint.
 *
 * Privacy: the file holds a number for each id and nothing else: no text, no order, no time, nothing of prompts; and it is this
 * user's alone. It is a cache: a file that is missing, damaged or somebody else's is as good as an empty one, and nothing that is
 * in it can do more than make drafts worse. Engines that close at the same time lose the counts of all but the last. */
#ifndef WEFT_FORMAT_USAGE_H
#define WEFT_FORMAT_USAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

typedef struct weft_usage {
    weft_str path;      /* the file; empty: nothing is kept */
    uint8_t source[16]; /* which checkpoint */
    int vocab;
    uint32_t *said;  /* [vocab]: times since it was opened; NULL: it is not */
    uint64_t tokens; /* their sum */
} weft_usage;        /* zero-initialised: nothing is counted */

/* dir: where the file lies, made where it is missing when there is something to write; NULL: nowhere. label: the model's name, any
 * text; source: weft_model_dir_fingerprint(). Nothing but a lack of memory is an error. */
weft_status weft_usage_open(weft_usage *u, const char *dir, const char *label, const uint8_t source[16], int vocab, weft_error *e);
/* Adds what was said to the file; what goes wrong there is one line in the log. */
void weft_usage_close(weft_usage *u);

static inline void weft_usage_note(weft_usage *u, int32_t id) {
    if (!u->said || u->said[id] == UINT32_MAX) return;
    u->said[id]++;
    u->tokens++;
}

/* The n ids to draft from, ascending, n <= vocab: of always[] (each an id) as many as there is room for, then the ids with the
 * largest counts in the file, then the lowest: byte-pair merges are learnt in order of frequency, so low ids are the frequent ones.
 */
weft_status weft_usage_choose(const weft_usage *u, const int32_t *always, int n_always, int32_t *ids, int n, weft_error *e);

/* The file's content: counts[vocab], zeroed first. WEFT_EFORMAT: damaged; WEFT_ESUPPORT: another version's; WEFT_EINVAL: of another
 * checkpoint. */
weft_status weft_usage_parse(const uint8_t *data, size_t size, const uint8_t source[16], int vocab, uint32_t *counts,
                             weft_error *e);

#endif

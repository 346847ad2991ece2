/* trace.h: a drafter of known quality, and an answer that is known: for tests and benchmarks.
 *
 * Checkpoints of random weights have the shapes of real ones, and so their speed, but say nothing and draft nothing that is right.
 * A request with a trace runs like any other, the chain of drafts included; only then is each token that the model's drafter chose
 * replaced by a right or a wrong one, and each token that the trunk chose by the answer's. */
#ifndef WEFT_ENGINE_TRACE_H
#define WEFT_ENGINE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

typedef struct weft_trace {
    const int32_t *answer; /* [n] ids of the vocabulary, which outlives the request; tokens after them are the model's own */
    size_t n;
    float share[WEFT_MAX_DEPTH]; /* probability that a draft is right, all before it in its chain being so */
    float loss;                  /* part of these that is wrong all the same: what a smaller head cannot say */
    uint64_t seed;
} weft_trace;

/* Draft `depth` (0-based) of the chain that begins after `at` tokens of the answer, in place of `own`. */
int32_t weft_trace_draft(const weft_trace *t, size_t at, int depth, int vocab, int32_t own);

#endif

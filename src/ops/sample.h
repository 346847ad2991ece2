/* sample.h: from logits to a token.
 *
 * Greedy: the arg-max. With a temperature: the arg-max of logit / T + G(seed, choice, index, id), G standard Gumbel noise, which
 * draws from softmax(logit / T) (the Gumbel-max trick); computed as logit + T G, which no small T can overflow. A draft is drawn
 * with the same G on the drafter's own logits, so that the two agree as often as the distributions allow without a second random
 * number: the emitted token is always the target's own arg-max. */
#ifndef WEFT_OPS_SAMPLE_H
#define WEFT_OPS_SAMPLE_H

#include "base/error.h"

typedef struct weft_sampler {
    double temperature; /* 0: greedy */
    uint64_t seed;
    uint32_t choice;
} weft_sampler;

/* The best id so far. */
typedef struct weft_best {
    int32_t id;   /* -1: none yet */
    bool bad;     /* a logit of an allowed id was NaN or infinite: there is no token */
    double score; /* logit + T G */
} weft_best;
#define WEFT_NO_BEST ((weft_best){.id = -1})

/* Goes on through ids [first, first + n), whose logits are logits[0..n) and permissions allowed[0..n). */
void weft_sample_part(const weft_sampler *s, const float *logits, int32_t first, int n, const bool *allowed, uint32_t index,
                      weft_best *best);
/* The better of two, in any order: ties go to the lowest id. */
void weft_best_merge(weft_best *best, const weft_best *other);

/* Id of the next token; ties go to the lowest id. logits[n]; allowed[n]: ids that exist (the padded tail of a vocabulary does not).
 * index: tokens generated before this one. -1: a logit of an allowed id is NaN or infinite. */
int32_t weft_sample(const weft_sampler *s, const float *logits, int n, const bool *allowed, uint32_t index);

#endif

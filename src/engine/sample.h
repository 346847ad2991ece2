/* sample.h: from logits to a token.
 *
 * Greedy: the arg-max. With a temperature: the arg-max of logit / T + G(seed, choice, index, id), G standard Gumbel noise, which
 * draws from softmax(logit / T) (the Gumbel-max trick); computed as logit + T G, which no small T can overflow. A draft is drawn
 * with the same G on the drafter's own logits, so that the two agree as often as the distributions allow without a second random
 * number: the emitted token is always the target's own arg-max. */
#ifndef WEFT_ENGINE_SAMPLE_H
#define WEFT_ENGINE_SAMPLE_H

#include "base/error.h"

typedef struct weft_sampler {
    double temperature; /* 0: greedy */
    uint64_t seed;
    uint32_t choice;
} weft_sampler;

/* Id of the next token; ties go to the lowest id. logits[n]; allowed[n]: ids that exist (the padded tail of a vocabulary does not).
 * index: tokens generated before this one. -1: a logit of an allowed id is NaN or infinite. */
int32_t weft_sample(const weft_sampler *s, const float *logits, int n, const bool *allowed, uint32_t index);

#endif

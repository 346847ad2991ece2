/* sample.h: from logits to a token, on rows in the host's memory; ops.h has the same on a device.
 *
 * One order, everywhere:
 *   1. raw logits: log-probabilities that are shown (their log-sum, the likeliest ids) are of these;
 *   2. bias, bans, mask: what is left are the permitted ids. A NaN or an infinity among their raw logits: there is no token;
 *   3. penalties: repetition, then frequency and presence. The result is rounded to float32 and held within its range;
 *   4. temperature T. An id has the weight exp((logit - largest) / T), and none at all where that is below exp(-708);
 *   5. top_k: the k largest; top_p: of those the fewest, largest first, whose weights reach top_p of the sum of all of those;
 * min_p: of those the ones whose weight is at least min_p times the largest. Of equal logits the lowest ids stay;
 *   6. the draw from what is left, the support: p = weight / sum of weights.
 * Temperature 0 is the arg-max after step 3.
 *
 * The draw: the arg-max of logit / T + G(seed, choice, index, id), G standard Gumbel noise, is drawn from softmax(logit / T) (the
 * Gumbel-max trick); computed as logit + T G, which no small T can overflow. A draft is drawn with the same G on the drafter's own
 * logits, so that the two agree as often as the distributions allow without a second random number: the emitted token is always the
 * target's own arg-max. Ties go to the lowest id.
 *
 * Weights are summed for top_p as whole multiples of 2^-44, so that no sum depends on an order: an id that has less than 2^-45 of
 * the largest weight adds nothing. */
#ifndef WEFT_OPS_SAMPLE_H
#define WEFT_OPS_SAMPLE_H

#include "base/error.h"

typedef struct weft_sampler {
    double temperature; /* 0: greedy; otherwise up to WEFT_MAX_TEMPERATURE. What is no normal number counts as 0 */
    uint64_t seed;
    uint32_t choice;
} weft_sampler;
#define WEFT_MAX_TEMPERATURE 1e30
bool weft_greedy(const weft_sampler *s); /* the temperature counts as 0 */

/* An id that a request has seen: for penalties. */
typedef struct weft_seen {
    int32_t id;
    uint32_t times; /* in the completion; 0: in the prompt alone */
} weft_seen;

/* What a request does to its logits, the same for all its tokens but for `seen`. {0} does nothing. */
typedef struct weft_shaping {
    const weft_logit_bias *bias; /* ascending ids, each once */
    int n_bias;
    const weft_seen *seen; /* ascending ids, each once: those of prompt and completion; weft_tally keeps such a list */
    int n_seen;
    float repetition; /* ids seen: a logit > 0 is divided by it, any other multiplied; > 0; 0 or 1: none */
    float frequency;  /* is subtracted for each time in the completion */
    float presence;   /* is subtracted once from ids of the completion */
    int top_k;        /* 0: all */
    float top_p;      /* 0 or >= 1: all. One id stays however small it is: a request's 0 is any number below 1e-9 */
    float min_p;      /* 0..1; 0: all */
} weft_shaping;

/* How one token is chosen. All that is pointed to must live until the token is read. */
typedef struct weft_rule {
    weft_sampler sampler;
    uint32_t index;              /* tokens generated before this one */
    const weft_shaping *shaping; /* NULL: none */
    const uint64_t *mask;        /* permitted ids: bit id % 64 of mask[id / 64], as many words as the vocabulary needs; NULL: all */
    const int32_t *bans;         /* ids that may not come now, in any order (end ids before min_tokens); few: each is looked up */
    int n_bans;
    const int32_t *after; /* ids of the completion after those that shaping->seen counts, in any order, repeated as often as they
                             came: the drafts before this row; few */
    int n_after;
} weft_rule;

/* Why a rule cannot be: what is out of range, as the end of a sentence; NULL: it can. */
const char *weft_rule_fault(const weft_rule *rule, int vocab);
/* Whether penalties are in force: what has been seen counts. */
bool weft_penalises(const weft_shaping *shaping);
/* Whether the support needs the whole row: top_k, top_p or min_p is in force (temperature 0 needs none of them). */
bool weft_rule_truncates(const weft_rule *rule);

typedef enum weft_no_token {                   /* why there is no token */
                             WEFT_TOKEN,       /* there is one */
                             WEFT_TOKEN_NAN,   /* the raw logit of a permitted id is NaN or infinite: the pass was broken */
                             WEFT_TOKEN_BANNED /* no id is permitted */
} weft_no_token;

/* The ids of n columns of logits, ascending: first, first + 1, ...; of a head that has some ids only, ids[0..n). */
typedef struct weft_columns {
    int n;
    int32_t first;
    const int32_t *ids; /* NULL: they are counted up */
} weft_columns;
static inline int32_t weft_column_id(const weft_columns *c, int i) {
    return c->ids ? c->ids[i] : c->first + i;
}
/* Columns [at, at + n) of them. */
static inline weft_columns weft_columns_part(const weft_columns *c, int at, int n) {
    return (weft_columns){n, c->first + at, c->ids ? c->ids + at : NULL};
}
/* The first column whose id is not below `id`; n: there is none. */
int weft_column_from(const weft_columns *c, int32_t id);
/* The column of an id; -1: it has none. */
int weft_column_of(const weft_columns *c, int32_t id);

/* Steps 2 and 3 on y[0..n) of these columns: from raw logits in which -INFINITY stands for an id that does not exist (the
 * padded tail of a vocabulary), NaN for one that does and whose logit is NaN or infinite. They mean the same afterwards: -INFINITY
 * is not permitted, NaN is permitted and broken. */
void weft_shape_part(const weft_rule *rule, float *y, const weft_columns *c);

/* The best id so far. */
typedef struct weft_best {
    int32_t id;   /* -1: none yet */
    bool bad;     /* a NaN was among the shaped logits: there is no token */
    double score; /* logit + T G */
} weft_best;
#define WEFT_NO_BEST ((weft_best){.id = -1})

/* Step 6: goes on through these columns with shaped logits; -INFINITY is not in the support. bits[n]: weft_gumbel_bits() of their
 * ids; NULL: they are made where they are needed. */
void weft_draw_part(const weft_sampler *s, const float *logits, const uint64_t *bits, const weft_columns *c, uint32_t index,
                    weft_best *best);
/* The better of two, in any order: ties go to the lowest id. */
void weft_best_merge(weft_best *best, const weft_best *other);

/* Id of the next token by a rule that does not truncate; logits[n], allowed[n]. -1: a logit of an allowed id is NaN or infinite. */
int32_t weft_sample(const weft_sampler *s, const float *logits, int n, const bool *allowed, uint32_t index);

/* ---- rejection sampling -------------------------------------------------------------------------------------------------- */

/* Uniform numbers in (0, 1), 52 bits, from streams of their own: independent of each other and of the draw's G. */
typedef enum weft_purpose { WEFT_FOR_ACCEPT = 1, WEFT_FOR_RESIDUAL, WEFT_FOR_BONUS, WEFT_FOR_DRAFT } weft_purpose;
double weft_uniform(const weft_sampler *s, uint32_t index, weft_purpose purpose);
/* The seed of G for drafts `depth` places ahead (from 0). A draft that is dropped because one before it was not kept is drawn again
 * later, one place nearer: of another stream, so that nothing that came of the first draw can tell about the second. */
uint64_t weft_draft_seed(uint64_t seed, uint32_t depth);
/* Leviathan et al. 2023, Chen et al. 2023: a draft of probability q that the target gives p is kept with min(1, p / q). u: uniform
 * in (0, 1); q > 0. p = 0 is never kept. */
static inline bool weft_accepts(double p, double q, double u) {
    return u * q < p;
}

#endif

/* ngrams.h: prompt lookup: what came the last time after the tokens that came last. It needs no model, and where an answer repeats
 * its prompt (a file with one function changed) it is nearly always right.
 *
 * Every position is entered under the hash of the three tokens that end there; positions of one hash form a chain, the newest
 * first. Deterministic: a function of the tokens alone. */
#ifndef WEFT_ENGINE_NGRAMS_H
#define WEFT_ENGINE_NGRAMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define WEFT_NGRAM 3          /* tokens that have to agree */
#define WEFT_NGRAM_LONGEST 64 /* tokens that are compared, at most */

typedef struct weft_ngrams {
    int32_t *last;        /* [mask + 1]: the newest position of a hash, plus one; 0: none */
    int32_t *before;      /* [room]: of a position, the one before it in its chain, plus one; 0: none */
    size_t mask, room, n; /* n: tokens entered */
} weft_ngrams;

/* For up to `room` tokens; nothing is allocated later. */
weft_status weft_ngrams_open(weft_ngrams *g, size_t room, weft_error *e);
void weft_ngrams_close(weft_ngrams *g);
/* Enters what is new in ids[0..n), n <= room. */
void weft_ngrams_enter(weft_ngrams *g, const int32_t *ids, size_t n);
/* The earlier place whose tokens agree with the end of ids[0..n), all entered, in the longest run (the newest of these, among the
 * 32 newest): returns the run's length, at least WEFT_NGRAM, and the position behind it in *next; 0: there is none. */
int weft_ngrams_find(const weft_ngrams *g, const int32_t *ids, size_t n, size_t *next);

#endif

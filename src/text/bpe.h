/* bpe.h: byte pair encoding: a piece is a row of tokens, one for each byte or character; the adjacent pair that was learned first
 * is merged, the leftmost one first, until no pair is known. */
#ifndef WEFT_TEXT_BPE_H
#define WEFT_TEXT_BPE_H

#include "text/tokenizer.h"

typedef struct weft_bpe_rule {
    int32_t left, right, made; /* ids */
} weft_bpe_rule;

typedef struct weft_bpe {
    weft_bpe_rule *rules; /* by rank: rules[0] was learned first */
    size_t n_rules;
    uint32_t *table; /* open addressing by (left, right): rank + 1, 0 is free; a power of two, at most half full */
    size_t mask;
} weft_bpe;

/* Takes rules, allocated by weft_calloc, over, also on failure. Where a pair occurs twice, the later rank counts (as in the
 * reference library). False when memory is short. */
bool weft_bpe_init(weft_bpe *b, weft_bpe_rule *rules, size_t n);
void weft_bpe_free(weft_bpe *b);

/* Scratch memory, kept between calls; zero-initialise. */
typedef struct weft_bpe_work {
    weft_ids row; /* what is to be merged: filled by the caller */
    struct weft_bpe_node *node;
    uint64_t *heap;
    size_t node_cap, heap_cap;
} weft_bpe_work;
void weft_bpe_work_free(weft_bpe_work *w);

#define WEFT_BPE_LONGEST ((size_t)INT32_MAX) /* tokens in a row */

/* Appends what w->row becomes, in O(n log n). False when memory is short. */
bool weft_bpe_merge(const weft_bpe *b, weft_bpe_work *w, weft_ids *out);

#endif

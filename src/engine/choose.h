/* choose.h: how the tokens of one request are chosen: its description, checked and copied, as the rules that a device takes
 * (ops/sample.h), with the count of what it has said so far. */
#ifndef WEFT_ENGINE_CHOOSE_H
#define WEFT_ENGINE_CHOOSE_H

#include "ops/ops.h"
#include "ops/tally.h"

typedef struct weft_choosing {
    weft_sampler sampler;
    weft_shaping shaping; /* its lists are the ones below */
    weft_logit_bias *bias;
    uint64_t *mask; /* NULL: all ids */
    int32_t *ends;  /* ids that end the answer, and are banned for min_tokens; each exists */
    int n_ends;
    uint32_t min_tokens;
    bool counts;  /* penalties are in force */
    bool rejects; /* drafts are judged by rejection sampling */
    weft_tally tally;
    bool logprobs;
    int top;
} weft_choosing;

/* ends[0..n_ends): the model's own end tokens, which may not exist. */
weft_status weft_choosing_open(weft_choosing *c, const weft_request_desc *d, const int32_t *ends, int n_ends, int vocab,
                               weft_error *e);
void weft_choosing_close(weft_choosing *c);

bool weft_choosing_ends(const weft_choosing *c, int32_t id);
/* How the token after `tokens` generated ones and the drafts after[0..n_after) is chosen. after, and c unchanged, must live until
 * it is read. kept, keep_row: where a rule that truncates has its room, and the distribution stays where trials need it. */
weft_pick weft_choosing_pick(const weft_choosing *c, size_t tokens, const int32_t *after, int n_after, weft_kept *kept,
                             int keep_row);
/* The answer has one token more. */
weft_status weft_choosing_note(weft_choosing *c, int32_t id, weft_error *e);

#endif

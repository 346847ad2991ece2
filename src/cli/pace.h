/* pace.h: how fast an answer comes, observed pass by pass, with what its drafts were worth. */
#ifndef WEFT_CLI_PACE_H
#define WEFT_CLI_PACE_H

#include "base/vec.h"
#include "engine/engine.h"

/* Drafts of one kind at one position, all before it right: verified, and right. */
typedef struct weft_pace_tally {
    uint64_t drafted, right;
} weft_pace_tally;

/* Of any number of answers. Zero-initialise. */
typedef struct weft_pace {
    uint64_t tokens, passes; /* of decoding: the first token comes out of the prompt's pass */
    weft_pace_tally from[WEFT_DRAFTERS][WEFT_MAX_DEPTH];
    weft_pace_tally sure[WEFT_SURENESS]; /* of the model's, by how sure it was */
} weft_pace;

/* Nanoseconds of every pass, by its rows, and of every link of the draft chain. */
typedef struct weft_pace_times {
    WEFT_VEC(double) pass[WEFT_TUNED_ROWS + 1], link;
} weft_pace_times;

/* Answers to the end, and adds it up. trace: see engine/trace.h, or NULL. *seconds: of decoding, with drafting. */
weft_status weft_pace_answer(weft_engine *g, const weft_request_desc *d, const weft_trace *trace, weft_pace *pace,
                             weft_pace_times *times, double *seconds, weft_error *e);
/* Share of the drafts at a position that were right, whichever drafter made them; -1: none was verified. */
double weft_pace_share(const weft_pace *pace, int depth);

/* Medians; 0: none. They sort what they are of. */
double weft_pace_pass_ns(weft_pace_times *times, int rows);
double weft_pace_link_ns(weft_pace_times *times);
void weft_pace_times_clear(weft_pace_times *times);
void weft_pace_times_free(weft_pace_times *times);

#endif

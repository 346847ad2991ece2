/* depth.h: how far ahead to draft: as far as it pays, for all requests of a step together.
 *
 * A pass over R rows takes T(R); a link of the draft chain takes C. Draft j of a request is kept with probability a_1 .. a_j, each
 * measured where it was drafted, with a prior. Among all ways to give drafts to requests, in order of their probability, the one
 * with the most tokens a second is taken; none at all is a candidate. Time steers how much is drafted, and so nothing but speed:
 * what the drafts say does not change a token. */
#ifndef WEFT_ENGINE_DEPTH_H
#define WEFT_ENGINE_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

/* Where a draft came from. */
typedef enum weft_drafter { WEFT_DRAFTER_MODEL, WEFT_DRAFTER_LOOKUP, WEFT_DRAFTERS } weft_drafter;

/* Of one request and drafter: smoothed shares of drafts at each depth that were right, given that all before were. */
typedef struct weft_acceptance {
    float share[WEFT_MAX_DEPTH]; /* 0: not measured yet */
} weft_acceptance;
float weft_acceptance_at(const weft_acceptance *a, int depth, weft_drafter from);
void weft_acceptance_learn(weft_acceptance *a, int depth, weft_drafter from, bool right);

enum { WEFT_COST_ROWS = 64 };
/* Measured times of one engine. */
typedef struct weft_costs {
    double pass_ns[WEFT_COST_ROWS + 1]; /* of decode passes by their rows, smoothed; 0: not measured */
    double link_ns;                     /* a link of the draft chain */
    uint64_t passes, links;
    int idle, patience; /* passes since drafts were tried; that are let go before they are tried again */
} weft_costs;
void weft_costs_pass(weft_costs *c, int rows, uint64_t ns);
void weft_costs_link(weft_costs *c, uint64_t ns);
/* Time of a pass: measured, or by its neighbours; never less for more rows. */
double weft_costs_at(const weft_costs *c, int rows);

/* One request that may be drafted for. */
typedef struct weft_depth_wish {
    const weft_acceptance *accepted;
    weft_drafter from;
    int most;      /* drafts that it can use */
    int depth;     /* out: drafts that pay */
    void *request; /* the caller's */
} weft_depth_wish;
/* rows: of the step without drafts; n: at most 256. */
void weft_depths_choose(const weft_costs *c, int rows, weft_depth_wish *wishes, int n);
/* After that choice: where drafts do not pay they are tried now and then all the same, ever more rarely, as what was measured may
 * have been bad luck. */
void weft_depths_explore(weft_costs *c, weft_depth_wish *wishes, int n);

#endif

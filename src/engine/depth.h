/* depth.h: how far ahead to draft: as far as it pays, for all requests of a step together.
 *
 * A pass over R rows takes T(R); a link of the draft chain takes C. Draft j of a request is kept with probability a_1 .. a_j, each
 * measured where it was drafted, with a prior. Among all ways to give drafts to requests, in order of their probability, the one
 * with the most tokens a second is taken; none at all is a candidate. That rate is then the price of time: a chain goes on while
 * its next draft is worth more than its link and its row, given how sure the drafter was of those before it.
 *
 * Time steers how much is drafted, and so nothing but speed: what the drafts say does not change a token, and whether there is a
 * draft depends on nothing but time and what was known before it was drawn, as rejection sampling asks for. */
#ifndef WEFT_ENGINE_DEPTH_H
#define WEFT_ENGINE_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

/* Where a draft came from. */
typedef enum weft_drafter { WEFT_DRAFTER_MODEL, WEFT_DRAFTER_LOOKUP, WEFT_DRAFTERS } weft_drafter;

/* ---- acceptance ---------------------------------------------------------------------------------------------------------- */

/* Of one drafter: smoothed shares of drafts at each depth that were right, given that all before were. */
typedef struct weft_acceptance {
    float share[WEFT_MAX_DEPTH]; /* 0: not measured yet */
} weft_acceptance;
float weft_acceptance_at(const weft_acceptance *a, int depth, weft_drafter from);
void weft_acceptance_learn(weft_acceptance *a, int depth, weft_drafter from, bool right);

/* The same by how likely the drafter took its draft to be. */
enum { WEFT_SURENESS = 8 }; /* classes */
typedef struct weft_sureness {
    float share[WEFT_SURENESS]; /* 0: not measured yet */
} weft_sureness;
int weft_sureness_class(double probability);
float weft_sureness_at(const weft_sureness *s, int class);
void weft_sureness_learn(weft_sureness *s, int class, bool right);

/* ---- costs --------------------------------------------------------------------------------------------------------------- */

enum { WEFT_COST_ROWS = 64 };
/* Measured times of one engine. A machine is faster at one moment and slower at another: what all times have in common lately is
 * its pace; the times themselves are at pace 1, and only their ratios count. */
typedef struct weft_costs {
    double pass_ns[WEFT_COST_ROWS + 1]; /* of decode passes by their rows; 0: not measured */
    double link_ns;                     /* a link of the draft chain */
    uint32_t seen[WEFT_COST_ROWS + 1];  /* measurements of each */
    uint32_t links;
    double pace; /* 0: nothing has been measured */
    uint64_t passes;
    int idle, patience; /* passes since drafts were tried; that are let go before they are tried again */
} weft_costs;
void weft_costs_pass(weft_costs *c, int rows, uint64_t ns);
void weft_costs_link(weft_costs *c, uint64_t ns);
/* Time of a pass: measured, or by its neighbours; never less for more rows. */
double weft_costs_at(const weft_costs *c, int rows);

/* ---- the choice ---------------------------------------------------------------------------------------------------------- */

/* One request that may be drafted for. */
typedef struct weft_depth_wish {
    const weft_acceptance *accepted;
    weft_drafter from;
    int most;      /* drafts that it can use */
    int depth;     /* out: drafts that pay */
    void *request; /* the caller's */
} weft_depth_wish;
/* rows: of the step without drafts; n: at most 256. Returns tokens in a nanosecond of the best choice. */
double weft_depths_choose(const weft_costs *c, int rows, weft_depth_wish *wishes, int n);
/* After that choice: where drafts do not pay they are tried now and then all the same, ever more rarely, as what was measured may
 * have been bad luck. True: they are now. */
bool weft_depths_explore(weft_costs *c, weft_depth_wish *wishes, int n);
/* Whether one more draft pays that is right with `probability`: rows has the step without it, link_ns is its part of a link. */
bool weft_depth_pays(const weft_costs *c, double rate, int rows, double probability, double link_ns);

#endif

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

/* ---- acceptance ---------------------------------------------------------------------------------------------------------- */

/* The drafters whose drafts are worth an estimate: all but a request's own list. */
enum { WEFT_LEARNERS = WEFT_DRAFTER_LIST };

/* Of one drafter: smoothed shares of drafts at each depth that were right, given that all before were. */
typedef struct weft_acceptance {
    float share[WEFT_MAX_DEPTH];  /* 0: not measured yet */
    uint8_t seen[WEFT_MAX_DEPTH]; /* how many drafts they stand for; 0: a share that was given */
} weft_acceptance;
float weft_acceptance_at(const weft_acceptance *a, int depth, weft_drafter from);
/* The same and its standard deviation: what was seldom seen may be better than it looks, and only a draft can tell. */
float weft_acceptance_hoped(const weft_acceptance *a, int depth, weft_drafter from);
void weft_acceptance_learn(weft_acceptance *a, int depth, weft_drafter from, bool right);
/* For a new request, which may be another kind of text: what is known counts less. */
void weft_acceptance_begin(weft_acceptance *a);

/* The same by how likely the drafter took its draft to be. */
enum { WEFT_SURENESS = 8 }; /* classes */
typedef struct weft_sureness {
    float share[WEFT_SURENESS]; /* 0: not measured yet */
    uint8_t seen[WEFT_SURENESS];
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
    uint64_t plain; /* one more than the passes before the last one that was to be without drafts; 0: there was none */
    int idle;       /* passes since more drafts than pay were tried */
} weft_costs;
void weft_costs_pass(weft_costs *c, int rows, uint64_t ns);
void weft_costs_link(weft_costs *c, uint64_t ns);
/* Time of a pass: measured, or by its neighbours; never less for more rows. One that was measured once or twice counts as no more
 * than a guess: a moment in which the machine was busy must not end all drafting. */
double weft_costs_at(const weft_costs *c, int rows);
/* Of a link; a guess where no pass has been measured. */
double weft_costs_link_at(const weft_costs *c);
/* Whether this step is to go without drafts, so that the time of its rows alone is known. A step that carries a prompt's rows is
 * not measured: nobody waits for that. */
bool weft_costs_ask_plain(weft_costs *c, int rows);

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
/* Now and then one draft more than pays is tried, as what was measured may have been bad luck: for half a percent of the time.
 * True: it is now. rows: of the step as chosen; more: drafts that would be added; link: one of them needs a link of its own. */
bool weft_depths_explore(weft_costs *c, int rows, int more, bool link);
/* Whether it pays to go on: rows has the step so far, all of its drafts are right with probability `running`, each of the n that
 * can follow with probability next[], given that those before it are; link_ns is the request's part of a link. */
bool weft_depth_pays(const weft_costs *c, double rate, int rows, double running, const float *next, int n, double link_ns);

#endif

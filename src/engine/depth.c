/* depth.c: see depth.h. */
#include "engine/depth.h"

#include <math.h>

static const float prior[WEFT_LEARNERS] = {[WEFT_DRAFTER_MODEL] = 0.7f, [WEFT_DRAFTER_LOOKUP] = 0.85f};

/* ---- acceptance ---------------------------------------------------------------------------------------------------------- */

enum { GUESSED = 8, GIVEN = 32, KEPT = 128 }; /* what a first value weighs, in drafts: guessed, or given; drafts that count */

/* An average over all drafts at first, then over the last ones. Something that never happened may happen. */
static void learn(float *share, uint8_t *seen, float guess, bool right) {
    if (!*seen) *seen = *share > 0 ? GIVEN : GUESSED;
    if (!(*share > 0)) *share = guess;
    if (*seen < KEPT) ++*seen;
    *share += ((right ? 1.0f : 0.0f) - *share) / *seen;
    if (*share < 0.005f) *share = 0.005f;
}

float weft_acceptance_at(const weft_acceptance *a, int depth, weft_drafter from) {
    while (depth && !(a->share[depth] > 0)) depth--; /* the next is as good as the last, until it has been tried */
    return a->share[depth] > 0 ? a->share[depth] : prior[from];
}
float weft_acceptance_hoped(const weft_acceptance *a, int depth, weft_drafter from) {
    float p = weft_acceptance_at(a, depth, from);
    return a->seen[depth] ? p + sqrtf(p * (1 - p) / a->seen[depth]) : p;
}
void weft_acceptance_learn(weft_acceptance *a, int depth, weft_drafter from, bool right) {
    learn(&a->share[depth], &a->seen[depth], weft_acceptance_at(a, depth, from), right);
}
void weft_acceptance_begin(weft_acceptance *a) {
    for (int i = 0; i < WEFT_MAX_DEPTH; i++)
        if (a->seen[i] > GIVEN) a->seen[i] = GIVEN;
}

/* Finer where drafts are good. Unmeasured, a drafter is as right as it is sure: the middle of the class. */
static const float class_end[WEFT_SURENESS] = {0.1f, 0.25f, 0.4f, 0.55f, 0.7f, 0.85f, 0.95f, 1};

int weft_sureness_class(double probability) {
    int c = 0;
    while (c < WEFT_SURENESS - 1 && probability >= (double)class_end[c]) c++;
    return c;
}
float weft_sureness_at(const weft_sureness *s, int class) {
    return s->share[class] > 0 ? s->share[class] : ((class ? class_end[class - 1] : 0) + class_end[class]) / 2;
}
void weft_sureness_learn(weft_sureness *s, int class, bool right) {
    learn(&s->share[class], &s->seen[class], weft_sureness_at(s, class), right);
}

/* ---- costs --------------------------------------------------------------------------------------------------------------- */

/* Takes a measurement: a little of what it differs by is the pace's, a little this time's. Differences count as ratios and are
 * limited, so that an interruption is soon forgotten; but the first ones, of cold memory, are too long as a rule. */
static void measure(weft_costs *c, double *time, uint32_t *seen, double ns) {
    enum { COLD = 4, COUNT = 50 }; /* measurements */
    const double paces = 0.4, most = 1.25;
    if (!(c->pace > 0)) c->pace = 1;
    if (ns < 1) ns = 1;
    if (!(*time > 0)) {
        *time = ns / c->pace;
        *seen = 1;
        return;
    }
    double x = ns / (*time * c->pace) - 1;
    if (*seen < COLD && x < 0) {
        ++*seen;
        *time *= 1 + x;
        return;
    }
    if (*seen < COUNT) ++*seen;
    if (x > most - 1) x = most - 1;
    if (x < 1 / most - 1) x = 1 / most - 1;
    c->pace *= 1 + paces * x;
    *time *= 1 + x / (1 + *seen);
}

void weft_costs_pass(weft_costs *c, int rows, uint64_t ns) {
    c->passes++;
    if (rows >= 1 && rows <= WEFT_COST_ROWS) measure(c, &c->pass_ns[rows], &c->seen[rows], (double)ns);
}
void weft_costs_link(weft_costs *c, uint64_t ns) {
    measure(c, &c->link_ns, &c->links, (double)ns);
}

enum { TRUSTED = 3 }; /* measurements: before, a time that is longer than guessed may be an interruption */
static const double a_row = 0.03, a_link = 0.1; /* guesses: of a pass */

static double at_most(double time, uint32_t seen, double guess) {
    return seen && seen < TRUSTED && time > guess ? guess : time;
}

double weft_costs_at(const weft_costs *c, int rows) {
    if (rows > WEFT_COST_ROWS) return weft_costs_at(c, WEFT_COST_ROWS) * rows / WEFT_COST_ROWS;
    int low = 0, high = 0;
    double most = 0; /* of fewer rows: more rows cost no less */
    for (int r = 1; r <= rows; r++)
        if (c->pass_ns[r] > 0) {
            double t = low ? at_most(c->pass_ns[r], c->seen[r], most * (1 + a_row * (r - low))) : c->pass_ns[r];
            low = r;
            if (t > most) most = t;
        }
    if (low == rows && rows) return most;
    for (int r = rows + 1; r <= WEFT_COST_ROWS && !high; r++)
        if (c->pass_ns[r] > 0) high = r;
    if (!low && !high) return 1 + a_row * (rows - 1);
    if (!low) return c->pass_ns[high] * (1 + a_row * (rows - 1)) / (1 + a_row * (high - 1));
    if (!high) return most * (1 + a_row * (rows - 1)) / (1 + a_row * (low - 1));
    double end = at_most(c->pass_ns[high], c->seen[high], most * (1 + a_row * (high - low)));
    if (end < most) end = most;
    return most + (end - most) * (rows - low) / (high - low);
}

double weft_costs_link_at(const weft_costs *c) {
    for (int r = 1; r <= WEFT_COST_ROWS; r++)
        if (c->pass_ns[r] > 0) return at_most(c->link_ns, c->links, a_link * c->pass_ns[r]);
    return a_link;
}

bool weft_costs_ask_plain(weft_costs *c, int rows) {
    enum { EVERY = 512 }; /* passes */
    if (rows < 1 || rows > WEFT_COST_ROWS || c->plain == c->passes + 1) return false;
    if (c->pass_ns[rows] > 0 && c->plain && c->passes + 1 - c->plain < EVERY) return false;
    c->plain = c->passes + 1;
    return true;
}

/* ---- the choice ---------------------------------------------------------------------------------------------------------- */

/* Gives out drafts one by one, the likeliest next, and keeps the point with the most tokens for its time. */
double weft_depths_choose(const weft_costs *c, int rows, weft_depth_wish *wishes, int n) {
    double tokens = rows, best_rate = tokens / weft_costs_at(c, rows); /* a fixed draft counts as a token */
    int given = 0, best_given = 0, links = 0;
    int at[256] = {0}; /* drafts given to each */
    double next[256];  /* probability that they are right, and one more */
    uint8_t order[256 * WEFT_MAX_DEPTH];
    double link_ns = weft_costs_link_at(c);
    for (int i = 0; i < n; i++) {
        next[i] = wishes[i].most > 0 ? (double)weft_acceptance_hoped(wishes[i].accepted, 0, wishes[i].from) : 0;
        wishes[i].depth = 0;
    }
    for (;;) {
        int best = -1;
        double likeliest = 0;
        for (int i = 0; i < n; i++)
            if (next[i] > likeliest) likeliest = next[i], best = i;
        if (best < 0) break;
        const weft_depth_wish *w = &wishes[best];
        tokens += likeliest;
        order[given++] = (uint8_t)best;
        at[best]++;
        next[best] *= at[best] < w->most ? (double)weft_acceptance_hoped(w->accepted, at[best], w->from) : 0;
        if (w->from == WEFT_DRAFTER_MODEL && at[best] > links) links = at[best];
        double rate = tokens / (weft_costs_at(c, rows + given) + links * link_ns);
        if (rate > best_rate) best_rate = rate, best_given = given;
    }
    for (int i = 0; i < best_given; i++) wishes[order[i]].depth++;
    return best_rate;
}

bool weft_depths_explore(weft_costs *c, int rows, int more, bool link) {
    enum { LEAST = 16, MOST = 1024, BURST = 3 }; /* passes. The first link after a while meets cold memory: one alone says little */
    const double budget = 0.005;                 /* of the time */
    double pass = weft_costs_at(c, rows), trial = weft_costs_at(c, rows + more) - pass + (link ? c->link_ns : 0);
    double patience = BURST * trial / (budget * pass);
    if (patience < LEAST) patience = LEAST;
    if (patience > MOST) patience = MOST; /* a cost may have been measured in a bad moment */
    if (++c->idle < patience) return false;
    if (c->idle >= patience + BURST - 1) c->idle = 0;
    return true;
}

bool weft_depth_pays(const weft_costs *c, double rate, int rows, double running, const float *next, int n, double link_ns) {
    double gain = 0, now = weft_costs_at(c, rows);
    for (int k = 1; k <= n; k++) { /* a pass whose time grows in steps may pay further on only */
        running *= (double)next[k - 1];
        gain += running;
        if (gain > rate * (weft_costs_at(c, rows + k) - now + k * link_ns)) return true;
    }
    return false;
}

/* depth.c: see depth.h. */
#include "engine/depth.h"

static const float prior[WEFT_DRAFTERS] = {[WEFT_DRAFTER_MODEL] = 0.7f, [WEFT_DRAFTER_LOOKUP] = 0.85f};

float weft_acceptance_at(const weft_acceptance *a, int depth, weft_drafter from) {
    return a->share[depth] > 0 ? a->share[depth] : prior[from];
}

void weft_acceptance_learn(weft_acceptance *a, int depth, weft_drafter from, bool right) {
    const float speed = 0.06f; /* the last 16 drafts count for two thirds */
    float was = weft_acceptance_at(a, depth, from), now = was + speed * ((right ? 1.0f : 0.0f) - was);
    a->share[depth] = now < 0.005f ? 0.005f : now; /* something that never happened may happen; 0 means unmeasured */
}

/* ---- costs --------------------------------------------------------------------------------------------------------------- */

/* Disturbances only add time: a shorter measurement counts at once, a longer one little by little. */
static void smooth(double *mean, double x) {
    const double down = 0.5, up = 0.03;
    if (*mean == 0) *mean = x;
    double most = 2 * *mean; /* so that one interruption is soon forgotten */
    if (x > most) x = most;
    *mean += (x < *mean ? down : up) * (x - *mean);
}

void weft_costs_pass(weft_costs *c, int rows, uint64_t ns) {
    c->passes++;
    if (rows >= 1 && rows <= WEFT_COST_ROWS) smooth(&c->pass_ns[rows], (double)ns);
}
void weft_costs_link(weft_costs *c, uint64_t ns) {
    if (c->links++) smooth(&c->link_ns, (double)ns); /* the first one meets cold memory */
}

double weft_costs_at(const weft_costs *c, int rows) {
    const double a_row = 0.03; /* of a pass, where nothing says more */
    if (rows > WEFT_COST_ROWS) return weft_costs_at(c, WEFT_COST_ROWS) * rows / WEFT_COST_ROWS;
    int low = 0, high = 0;
    double most = 0; /* of fewer rows: more rows cost no less */
    for (int r = 1; r <= rows; r++)
        if (c->pass_ns[r] > 0) {
            low = r;
            if (c->pass_ns[r] > most) most = c->pass_ns[r];
        }
    if (low == rows && rows) return most;
    for (int r = rows + 1; r <= WEFT_COST_ROWS && !high; r++)
        if (c->pass_ns[r] > 0) high = r;
    if (!low && !high) return 1 + a_row * (rows - 1);
    if (!low) return c->pass_ns[high] * (1 + a_row * (rows - 1)) / (1 + a_row * (high - 1));
    if (!high) return most * (1 + a_row * (rows - 1)) / (1 + a_row * (low - 1));
    double end = c->pass_ns[high] > most ? c->pass_ns[high] : most;
    return most + (end - most) * (rows - low) / (high - low);
}

/* ---- the choice ---------------------------------------------------------------------------------------------------------- */

/* Gives out drafts one by one, the likeliest next, and keeps the point with the most tokens for its time. */
void weft_depths_choose(const weft_costs *c, int rows, weft_depth_wish *wishes, int n) {
    double tokens = n, best_rate = n / weft_costs_at(c, rows);
    int given = 0, best_given = 0, links = 0;
    int at[256] = {0}; /* drafts given to each */
    double kept[256];  /* probability that all of them are right */
    uint8_t order[256 * WEFT_MAX_DEPTH];
    for (int i = 0; i < n; i++) kept[i] = 1, wishes[i].depth = 0;
    for (;;) {
        int next = -1;
        double likeliest = 0;
        for (int i = 0; i < n; i++) {
            if (at[i] >= wishes[i].most) continue;
            double p = kept[i] * (double)weft_acceptance_at(wishes[i].accepted, at[i], wishes[i].from);
            if (p > likeliest) likeliest = p, next = i;
        }
        if (next < 0) break;
        kept[next] = likeliest;
        tokens += likeliest;
        order[given++] = (uint8_t)next;
        at[next]++;
        if (wishes[next].from == WEFT_DRAFTER_MODEL && at[next] > links) links = at[next];
        double rate = tokens / (weft_costs_at(c, rows + given) + links * c->link_ns);
        if (rate > best_rate) best_rate = rate, best_given = given;
    }
    for (int i = 0; i < best_given; i++) wishes[order[i]].depth++;
}

void weft_depths_explore(weft_costs *c, weft_depth_wish *wishes, int n) {
    enum { LEAST = 16, MOST = 128, TRY = 2, BURST = 4 }; /* passes, passes, drafts, passes */
    if (!c->patience) c->patience = LEAST;
    for (int i = 0; i < n; i++)
        if (wishes[i].depth) {
            c->idle = 0;
            c->patience = LEAST;
            return;
        }
    if (++c->idle < c->patience) return;
    if (c->idle >= c->patience + BURST - 1) {
        c->idle = 0;
        if (c->patience < MOST) c->patience *= 2;
    }
    for (int i = 0; i < n; i++) wishes[i].depth = wishes[i].most < TRY ? wishes[i].most : TRY;
}

/* sample.c: see sample.h. */
#include "ops/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"

/* ---- rules --------------------------------------------------------------------------------------------------------------- */

/* A NaN fails both comparisons, an infinity one. */
static bool finite(float x) {
    return x <= FLT_MAX && x >= -FLT_MAX;
}
bool weft_greedy(const weft_sampler *s) {
    return !(s->temperature >= DBL_MIN);
}

static const char *shaping_fault(const weft_shaping *s, int vocab) {
    if (s->n_bias < 0 || s->n_seen < 0 || s->top_k < 0) return "a negative count";
    for (int i = 0; i < s->n_bias; i++) {
        if (s->bias[i].id < (i ? s->bias[i - 1].id + 1 : 0) || s->bias[i].id >= vocab) return "a bias that is out of order";
        if (!finite(s->bias[i].add) && s->bias[i].add != -INFINITY) return "a bias that is no number";
    }
    for (int i = 0; i < s->n_seen; i++)
        if (s->seen[i].id < (i ? s->seen[i - 1].id + 1 : 0) || s->seen[i].id >= vocab) return "an id seen that is out of order";
    if (!finite(s->repetition) || s->repetition < 0) return "the repetition penalty";
    if (!finite(s->frequency) || !finite(s->presence)) return "a penalty that is no number";
    if (!(s->top_p >= 0)) return "top_p";
    if (!(s->min_p >= 0 && s->min_p <= 1)) return "min_p";
    return NULL;
}

const char *weft_rule_fault(const weft_rule *r, int vocab) {
    if (!(r->sampler.temperature >= 0 && r->sampler.temperature <= WEFT_MAX_TEMPERATURE)) return "the temperature";
    if (r->n_bans < 0 || r->n_after < 0) return "a negative count";
    for (int i = 0; i < r->n_bans; i++)
        if (r->bans[i] < 0 || r->bans[i] >= vocab) return "a banned id that does not exist";
    for (int i = 0; i < r->n_after; i++)
        if (r->after[i] < 0 || r->after[i] >= vocab) return "an id seen that does not exist";
    return r->shaping ? shaping_fault(r->shaping, vocab) : NULL;
}

bool weft_penalises(const weft_shaping *s) {
    return (s->repetition > 0 && s->repetition != 1) || s->frequency != 0 || s->presence != 0;
}

bool weft_rule_truncates(const weft_rule *r) {
    const weft_shaping *s = r->shaping;
    return s && !weft_greedy(&r->sampler) && (s->top_k > 0 || (s->top_p > 0 && s->top_p < 1) || s->min_p > 0);
}

/* ---- bias, bans, mask, penalties ----------------------------------------------------------------------------------------- */

static float held(double x) {
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

static int times_after(const weft_rule *r, int32_t id) {
    int n = 0;
    for (int i = 0; i < r->n_after; i++) n += r->after[i] == id;
    return n;
}

static float penalised(const weft_shaping *s, float x, double times) {
    double y = (double)x;
    if (s->repetition > 0) y = y > 0 ? y / (double)s->repetition : y * (double)s->repetition;
    if (times > 0) y = (y - (double)s->frequency * times) - (double)s->presence;
    return held(y);
}

/* The first of n ascending ids, each `size` bytes after the one before, that is not below `id`. */
static int first_from(const void *ids, size_t size, int n, int32_t id) {
    int low = 0, high = n;
    while (low < high) {
        int mid = low + (high - low) / 2;
        int32_t at;
        memcpy(&at, (const char *)ids + (size_t)mid * size, sizeof at);
        if (at < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int weft_column_from(const weft_columns *c, int32_t id) {
    if (c->ids) return first_from(c->ids, sizeof *c->ids, c->n, id);
    int64_t at = (int64_t)id - c->first;
    return at < 0 ? 0 : at < c->n ? (int)at : c->n;
}
int weft_column_of(const weft_columns *c, int32_t id) {
    int at = weft_column_from(c, id);
    return at < c->n && weft_column_id(c, at) == id ? at : -1;
}

static void penalise(const weft_rule *r, float *y, const weft_columns *c) {
    const weft_shaping *s = r->shaping;
    int32_t first = weft_column_id(c, 0), last = weft_column_id(c, c->n - 1);
    for (int i = first_from(s->seen, sizeof *s->seen, s->n_seen, first); i < s->n_seen && s->seen[i].id <= last; i++) {
        int at = weft_column_of(c, s->seen[i].id);
        if (at >= 0 && y[at] > -INFINITY) y[at] = penalised(s, y[at], (double)s->seen[i].times + times_after(r, s->seen[i].id));
    }
    for (int i = 0; i < r->n_after; i++) { /* those that the list does not have, once each */
        int32_t id = r->after[i];
        int at = weft_column_of(c, id);
        if (at < 0 || !(y[at] > -INFINITY)) continue;
        int k = first_from(s->seen, sizeof *s->seen, s->n_seen, id);
        bool known = k < s->n_seen && s->seen[k].id == id;
        for (k = 0; k < i && !known; k++) known = r->after[k] == id;
        if (!known) y[at] = penalised(s, y[at], times_after(r, id));
    }
}

void weft_shape_part(const weft_rule *r, float *y, const weft_columns *c) {
    const weft_shaping *s = r->shaping;
    if (!c->n) return;
    for (int i = 0; i < c->n && r->mask; i++) {
        int32_t id = weft_column_id(c, i);
        if (!(r->mask[id / 64] >> id % 64 & 1)) y[i] = -INFINITY;
    }
    for (int i = 0; i < r->n_bans; i++) {
        int at = weft_column_of(c, r->bans[i]);
        if (at >= 0) y[at] = -INFINITY;
    }
    if (!s) return;
    int32_t first = weft_column_id(c, 0), last = weft_column_id(c, c->n - 1);
    for (int i = first_from(s->bias, sizeof *s->bias, s->n_bias, first); i < s->n_bias && s->bias[i].id <= last; i++) {
        int at = weft_column_of(c, s->bias[i].id);
        if (at < 0) continue;
        y[at] = s->bias[i].add > -INFINITY && y[at] != -INFINITY ? held((double)y[at] + (double)s->bias[i].add) : -INFINITY;
    }
    if (weft_penalises(s)) penalise(r, y, c);
}

/* ---- the draw ------------------------------------------------------------------------------------------------------------ */

void weft_draw_part(const weft_sampler *s, const float *logits, const uint64_t *bits, const weft_columns *c, uint32_t index,
                    weft_best *best) {
    weft_best b = *best;
    bool warm = !weft_greedy(s);
    for (int i = 0; i < c->n; i++) {
        if (logits[i] == -INFINITY) continue;
        double x = (double)logits[i];
        if (x != x) b.bad = true;
        if (warm) {
            uint64_t k = bits ? bits[i] : weft_gumbel_bits(s->seed, s->choice, index, (uint32_t)weft_column_id(c, i));
            if (b.id >= 0 && x + s->temperature * weft_gumbel_bound(k) < b.score) continue; /* cannot win: no logarithms */
            x += s->temperature * weft_gumbel_of(k);
        }
        if (b.id < 0 || x > b.score) {
            b.id = weft_column_id(c, i);
            b.score = x;
        }
    }
    *best = b;
}

void weft_best_merge(weft_best *best, const weft_best *other) {
    bool bad = best->bad || other->bad;
    bool better =
        other->id >= 0 && (best->id < 0 || other->score > best->score || (other->score == best->score && other->id < best->id));
    if (better) *best = *other;
    best->bad = bad;
}

int32_t weft_sample(const weft_sampler *s, const float *logits, int n, const bool *allowed, uint32_t index) {
    weft_best best = WEFT_NO_BEST;
    for (int32_t i = 0; i < n; i++) {
        float y = finite(logits[i]) ? logits[i] : NAN;
        if (allowed[i]) weft_draw_part(s, &y, NULL, &(weft_columns){.n = 1, .first = i}, index, &best);
    }
    return best.bad ? -1 : best.id;
}

/* ---- rejection sampling -------------------------------------------------------------------------------------------------- */

double weft_uniform(const weft_sampler *s, uint32_t index, weft_purpose purpose) {
    const uint32_t counter[4] = {0, index, s->choice, (uint32_t)purpose};
    uint32_t out[4];
    weft_philox(s->seed, counter, out);
    uint64_t bits = (uint64_t)out[1] << 32 | out[0];
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

uint64_t weft_draft_seed(uint64_t seed, uint32_t depth) {
    const uint32_t counter[4] = {0, depth, 0, (uint32_t)WEFT_FOR_DRAFT};
    uint32_t out[4];
    weft_philox(seed, counter, out);
    return (uint64_t)out[1] << 32 | out[0];
}

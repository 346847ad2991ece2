/* support.c: see support.h. */
#include "ops/cpu/support.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

#define LEAST (-708.0) /* an exponent below it is no weight */

weft_kept *weft_kept_make(weft_dev *d, int rows, int vocab) {
    if (rows < 1 || vocab < 1) return NULL;
    weft_kept *k = weft_arena_get(&d->arena, 1, sizeof *k);
    kept_row *row = weft_arena_get(&d->arena, (size_t)rows, sizeof *row);
    if (!k || !row || !(k->logits = weft_buf_make(d, NULL, rows, vocab))) return NULL;
    k->row = row;
    for (int i = 0; i < rows; i++) row[i].why = WEFT_TOKEN_BANNED; /* nothing has been written */
    return k;
}

static double weight_of(double logit, double max, double scale) {
    double x = (logit - max) * scale;
    return x >= LEAST ? weft_exp(x) : 0; /* of -infinity too */
}

/* ---- top_k, top_p, min_p ------------------------------------------------------------------------------------------------- */

/* Ascending as the logits are; -0 is 0. */
static uint32_t key_of(float logit) {
    uint32_t u;
    float x = logit + 0.0f;
    memcpy(&u, &x, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* How many ids weigh, or how much in multiples of 2^-44 of the largest. */
typedef struct scale {
    bool count;
    double max, by; /* weight = exp((logit - max) by) */
} scale;
static uint64_t grains(const scale *s, float logit) {
    if (s->count) return logit > -INFINITY;
    return (uint64_t)(weight_of((double)logit, s->max, s->by) * 0x1p44 + 0.5);
}

/* Keeps the fewest ids, largest first, that weigh `share` of all, at least one: a radix search for the key of the last of them,
 * then its ties by their ids. */
static void keep_largest(float *l, int n, const scale *s, uint64_t most, double share) {
    static const int shifts[] = {21, 10, 0}, widths[] = {11, 11, 10};
    uint64_t hist[2048], total = 0, left = most;
    uint32_t prefix = 0;
    for (int level = 0; level < 3; level++) {
        memset(hist, 0, sizeof hist);
        int shift = shifts[level], width = widths[level];
        for (int i = 0; i < n; i++) {
            uint32_t key = key_of(l[i]);
            if (level && key >> (shift + width) != prefix) continue;
            hist[key >> shift & ((1u << width) - 1)] += grains(s, l[i]);
        }
        if (!level) {
            for (int b = 0; b < 2048; b++) total += hist[b];
            if (!s->count) {
                double wanted = share * (double)total;
                left = (uint64_t)wanted;
                if ((double)left < wanted) left++;
            }
            if (!left) left = 1;
            if (left > total) left = total;
        }
        int b = (1 << width) - 1;
        while (b > 0 && hist[b] < left) left -= hist[b--];
        prefix = prefix << width | (uint32_t)b;
    }
    for (int i = 0; i < n; i++) {
        uint32_t key = key_of(l[i]);
        if (key > prefix) continue;
        uint64_t g = key == prefix ? grains(s, l[i]) : 0;
        if (!left || key < prefix) {
            l[i] = -INFINITY;
            continue;
        }
        left = left > g ? left - g : 0;
    }
}

static float largest(const float *l, int n) {
    float max = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (l[i] != l[i]) return l[i];
        max = l[i] > max ? l[i] : max;
    }
    return max;
}

void weft_truncate(const weft_dev *d, const weft_pick *pick, int vocab, weft_best *best) {
    (void)d;
    const weft_shaping *rule = pick->rule.shaping;
    float *l = buf_row(pick->keep->logits, pick->keep_row), max = largest(l, vocab);
    if (max > -INFINITY) { /* there is something, and no NaN */
        scale s = {.count = true, .max = (double)max, .by = 1 / pick->rule.sampler.temperature};
        if (rule->top_k > 0) keep_largest(l, vocab, &s, (uint64_t)rule->top_k, 0);
        s.count = false;
        if (rule->top_p > 0 && rule->top_p < 1) keep_largest(l, vocab, &s, 0, (double)rule->top_p);
        for (int i = 0; i < vocab && rule->min_p > 0; i++)
            if (weight_of((double)l[i], s.max, s.by) < (double)rule->min_p) l[i] = -INFINITY;
    }
    weft_draw_part(&pick->rule.sampler, l, 0, vocab, pick->rule.index, best);
}

void weft_keep_row(const weft_dev *d, const weft_pick *pick, int vocab, const weft_picked *picked) {
    (void)d;
    kept_row *row = &pick->keep->row[pick->keep_row];
    float *l = buf_row(pick->keep->logits, pick->keep_row);
    *row = (kept_row){.vocab = vocab, .why = picked->why};
    if (row->why != WEFT_TOKEN) return;
    bool greedy = weft_greedy(&pick->rule.sampler);
    for (int i = 0; i < vocab && greedy; i++)
        if (i != picked->id) l[i] = -INFINITY;
    row->scale = greedy ? 1 : 1 / pick->rule.sampler.temperature;
    row->max = (double)largest(l, vocab);
    for (int i = 0; i < vocab; i++) row->sum += weight_of((double)l[i], row->max, row->scale);
}

/* ---- trials of drafts ---------------------------------------------------------------------------------------------------- */

#define PIECE 1024 /* ids whose probabilities are summed first: part of the arithmetic */

/* A kept row as a distribution. */
typedef struct law {
    const kept_row *row;
    const float *logits;
    const int32_t *ids; /* of the columns; NULL: the columns themselves */
} law;

static double chance(const law *w, int column) {
    return weight_of((double)w->logits[column], w->row->max, w->row->scale) / w->row->sum;
}

/* The first column whose id is not below `id`. */
static int column_from(const law *w, int32_t id) {
    if (!w->ids) return id < w->row->vocab ? id : w->row->vocab;
    int low = 0, high = w->row->vocab;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (w->ids[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}
static int32_t id_of(const law *w, int column) {
    return w->ids ? w->ids[column] : column;
}

/* What a token is drawn from: p, or with a draft max(p - q, 0); q NULL: all of it at the draft. */
typedef struct rest {
    law p;
    const law *q;
    int32_t draft; /* -1: p itself */
} rest;

/* r[0..n) of ids first + i, not normalised; returns their sum. */
static double rest_part(const rest *t, double *r, int first, int n) {
    for (int i = 0; i < n; i++) r[i] = chance(&t->p, first + i);
    if (t->draft >= first && t->draft < first + n && !t->q) r[t->draft - first] = 0;
    for (int c = t->q ? column_from(t->q, first) : 0; t->q && c < t->q->row->vocab && id_of(t->q, c) < first + n; c++) {
        double *at = &r[id_of(t->q, c) - first], q = chance(t->q, c);
        *at = *at > q ? *at - q : 0;
    }
    double sum = 0;
    for (int i = 0; i < n; i++) sum += r[i];
    return sum;
}

/* The id below which u of the whole lies; -1: there is nothing. */
static int32_t draw_rest(const rest *t, double u) {
    double r[PIECE], total = 0, below = 0;
    int vocab = t->p.row->vocab, n;
    int32_t id = -1;
    for (int first = 0; first < vocab; first += n) {
        n = vocab - first < PIECE ? vocab - first : PIECE;
        total += rest_part(t, r, first, n);
    }
    for (int first = 0; first < vocab; first += n) {
        n = vocab - first < PIECE ? vocab - first : PIECE;
        double sum = rest_part(t, r, first, n), wanted = u * total - below;
        below += sum;
        if (!(sum > 0)) continue;
        double at = 0;
        for (int i = 0; i < n; i++) {
            if (!(r[i] > 0)) continue;
            id = first + i;
            at += r[i];
            if (at > wanted) return id;
        }
    }
    return id;
}

static weft_verdict judge(const weft_trial *t) {
    const weft_kept *p = t->p, *q = t->q;
    rest all = {.p = {&p->row[t->p_row], buf_row(p->logits, t->p_row), NULL}, .draft = -1};
    weft_verdict no = {.id = -1, .why = all.p.row->why};
    if (no.why != WEFT_TOKEN) return no;
    if (t->draft < 0) return (weft_verdict){.id = draw_rest(&all, weft_uniform(&t->sampler, t->index, WEFT_FOR_BONUS))};
    law drafter = {0};
    rest left = {.p = all.p, .draft = t->draft};
    double qx = 1;
    if (q && q->row[t->q_row].why == WEFT_TOKEN) {
        drafter = (law){&q->row[t->q_row], buf_row(q->logits, t->q_row), t->q_ids};
        left.q = &drafter;
        int c = column_from(&drafter, t->draft);
        qx = c < drafter.row->vocab && id_of(&drafter, c) == t->draft ? chance(&drafter, c) : 0;
    }
    double px = t->draft < all.p.row->vocab ? chance(&all.p, t->draft) : 0;
    if (weft_accepts(px, qx, weft_uniform(&t->sampler, t->index, WEFT_FOR_ACCEPT)))
        return (weft_verdict){true, t->draft, WEFT_TOKEN};
    double u = weft_uniform(&t->sampler, t->index, WEFT_FOR_RESIDUAL);
    int32_t id = draw_rest(&left, u);
    return (weft_verdict){.id = id >= 0 ? id : draw_rest(&all, u)}; /* p = q but for roundings */
}

static const char *trial_fault(const weft_trial *t) {
    if (!t->p || t->p_row < 0 || t->p_row >= t->p->logits->rows) return "the row of p does not exist";
    if (t->q && (t->q_row < 0 || t->q_row >= t->q->logits->rows)) return "the row of q does not exist";
    return NULL;
}

void weft_try_drafts(weft_dev *d, const weft_trial *trials, int n) {
    if (d->status != WEFT_OK) return;
    const char *fault = n < 0 || n > d->pick_rows ? "there is no room for so many" : NULL;
    for (int i = 0; i < n && !fault; i++) fault = trial_fault(&trials[i]);
    if (fault) {
        d->status = weft_fail(&d->error, WEFT_EINVAL, "%d trials of drafts: %s", n, fault);
        return;
    }
    for (int i = 0; i < n; i++) {
        bool takes_place = !trials[i].follows || (i && d->verdicts[i - 1].kept);
        d->verdicts[i] = takes_place ? judge(&trials[i]) : (weft_verdict){.id = -1};
    }
}

weft_status weft_read_verdict(weft_dev *d, int i, weft_verdict *verdict, weft_error *e) {
    if (d->step && d->status != WEFT_OK) {
        if (e) *e = d->error;
        return d->status;
    }
    if (i < 0 || i >= d->pick_rows) return weft_fail(e, WEFT_EINVAL, "verdict %d of %d", i, d->pick_rows);
    *verdict = d->verdicts[i];
    return WEFT_OK;
}

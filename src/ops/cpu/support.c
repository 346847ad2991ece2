/* support.c: see support.h.
 *
 * The support of a rule is a prefix of all ids in one order, larger logits first and lower ids first among equals, whatever of
 * top_k, top_p and min_p made it. So it is found without sorting: ids that may belong to it are collected above a bound that costs
 * little, and among these a radix search over the keys of the logits finds the last one that does. */
#include "ops/cpu/support.h"

#include <float.h>
#include <math.h>

#include "base/num.h"
#include "base/rng.h"
#include "ops/cpu/weight.h"

#define PIECE WEFT_DRAW_PIECE /* ids whose weights are summed first: part of the arithmetic */

static int pieces(int vocab) {
    return (vocab + PIECE - 1) / PIECE;
}
static int length(int vocab, int piece) {
    return vocab - piece * PIECE < PIECE ? vocab - piece * PIECE : PIECE;
}

weft_kept *weft_kept_make(weft_dev *d, int rows, int vocab) {
    if (rows < 1 || vocab < 1) return NULL;
    weft_kept *k = weft_arena_get(&d->arena, 1, sizeof *k);
    kept_row *row = weft_arena_get(&d->arena, (size_t)rows, sizeof *row);
    if (!k || !row || !(k->logits = weft_buf_make(d, NULL, rows, vocab))) return NULL;
    k->row = row;
    for (int i = 0; i < rows; i++) row[i].why = WEFT_TOKEN_BANNED; /* nothing has been written */
    return k;
}

/* ---- the draw ------------------------------------------------------------------------------------------------------------ */

static uint64_t with_zeros(int z) { /* the largest with z leading zeros */
    return z < 64 ? UINT64_MAX >> z : 0;
}
/* In a block whose largest logit is `most` and whose smallest bits are `least`, only bits with so many leading
 * zeros can win; -1: none can. */
static int zeros_to_win(const weft_best *best, float most, double temperature, uint64_t least) {
    int z = 0, all = least ? __builtin_clzll(least) : 64;
    while (z <= all && (double)most + temperature * weft_gumbel_bound(with_zeros(z)) < best->score) z++;
    return z <= all ? z : -1;
}

void weft_draw_piece(const weft_dev *d, const weft_rule *rule, const float *shaped, const weft_columns *c, weft_best *best) {
    const weft_sampler *s = &rule->sampler;
    int n = c->n;
    float most[PIECE / SUPPORT_BLOCK];
    uint64_t bits[PIECE], least[PIECE / SUPPORT_BLOCK];
    bool warm = !weft_greedy(s);
    d->kernels->largest(most, shaped, n);
    if (warm) d->kernels->noise(bits, least, s->seed, s->choice, rule->index, c);
    for (int at = 0, b = 0; at < n; at += SUPPORT_BLOCK, b++) {
        int end = n - at < SUPPORT_BLOCK ? n : at + SUPPORT_BLOCK, z = 0;
        weft_columns part = weft_columns_part(c, at, end - at);
        if (most[b] == -INFINITY || (!warm && best->id >= 0 && (double)most[b] <= best->score)) continue;
        if (warm && best->id >= 0) z = zeros_to_win(best, most[b], s->temperature, least[b]);
        if (!z) weft_draw_part(s, shaped + at, warm ? bits + at : NULL, &part, rule->index, best);
        for (int i = at; i < end && z > 0; i++) {
            if (bits[i] > with_zeros(z)) continue;
            part = weft_columns_part(c, i, 1);
            weft_draw_part(s, shaped + i, bits + i, &part, rule->index, best);
        }
    }
}

/* ---- top_k, top_p, min_p ------------------------------------------------------------------------------------------------- */

/* Ascending as the logits are; -0 is 0. */
static uint32_t key_of(float logit) {
    uint32_t u;
    float x = logit + 0.0f;
    memcpy(&u, &x, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}
static float logit_of(uint32_t key) {
    uint32_t u = key >> 31 ? key & 0x7FFFFFFFu : ~key;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The fewest of n, largest first, that weigh `wanted` together (1..the sum of all): their smallest logit. *left: what of the weight
 * is to come from those that equal it. grains NULL: each weighs 1. */
static float last_of(const float *logits, const uint64_t *grains, int n, uint64_t wanted, uint64_t *left) {
    static const int shifts[] = {21, 10, 0}, widths[] = {11, 11, 10};
    uint64_t hist[2048];
    uint32_t prefix = 0;
    for (int level = 0; level < 3; level++) {
        int shift = shifts[level], b = (1 << widths[level]) - 1;
        uint32_t mask = (uint32_t)b;
        memset(hist, 0, sizeof hist);
        for (int i = 0; i < n; i++) {
            uint32_t key = key_of(logits[i]);
            if (!level || key >> (shift + widths[level]) == prefix) hist[key >> shift & mask] += grains ? grains[i] : 1;
        }
        while (b > 0 && hist[b] < wanted) wanted -= hist[b--];
        prefix = prefix << widths[level] | (uint32_t)b;
    }
    *left = wanted;
    return logit_of(prefix);
}

/* Columns that may be in the support, ascending, with their logits, and their grains where top_p needs them. */
typedef struct pool {
    int32_t *ids;
    float *logits;
    uint64_t *grains;
    int n;
} pool;

/* Keeps the fewest, largest first, that weigh `wanted`. */
static void cut_pool(pool *c, bool by_weight, uint64_t wanted) {
    uint64_t left;
    const uint64_t *grains = by_weight ? c->grains : NULL;
    float last = last_of(c->logits, grains, c->n, wanted, &left);
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        bool in = c->logits[i] > last;
        if (c->logits[i] == last && left) {
            uint64_t g = grains ? grains[i] : 1;
            left = left > g ? left - g : 0;
            in = true;
        }
        c->ids[n] = c->ids[i];
        c->logits[n] = c->logits[i];
        if (by_weight) c->grains[n] = c->grains[i];
        n += in;
    }
    c->n = n;
}

/* One pass over a row: ids whose logit is at least `least`; with `weigh`, those that have more grains than `floor`. */
typedef struct collection {
    const weft_dev *d;
    const weft_rule *rule;
    const float *row;
    int vocab;                   /* columns of the row */
    const weft_columns *columns; /* they */
    float least;
    bool weigh;
    uint64_t floor;
    double max, scale;
} collection;

static void collect_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const collection *c = ctx;
    const support_room *r = &c->d->support;
    int first = piece * PIECE, n = length(c->vocab, piece), k = 0;
    const float *x = c->row + first, *most = r->most + first / SUPPORT_BLOCK;
    int32_t *ids = r->ids + first;
    float *logits = r->logits + first;
    uint64_t *grains = r->grains + first, g[PIECE], sum = 0;
    for (int at = 0; at < n; at += SUPPORT_BLOCK, most++) {
        int end = n - at < SUPPORT_BLOCK ? n : at + SUPPORT_BLOCK;
        if (c->weigh) {
            uint64_t best = grains_of(weight_of((double)*most, c->max, c->scale));
            if (!best) continue;
            sum += c->d->kernels->grains(g + at, x + at, end - at, c->max, c->scale);
            if (best <= c->floor) continue;
            for (int i = at; i < end; i++) {
                ids[k] = first + i;
                logits[k] = x[i];
                grains[k] = g[i];
                k += g[i] > c->floor;
            }
        } else if (*most >= c->least) {
            for (int i = at; i < end; i++) {
                ids[k] = first + i;
                logits[k] = x[i];
                k += x[i] >= c->least && x[i] > -INFINITY;
            }
        }
    }
    r->count[piece] = k;
    r->total[piece] = sum;
}

static pool collect(const collection *c, uint64_t *total) {
    const support_room *r = &c->d->support;
    pool p = {r->ids, r->logits, r->grains, 0};
    *total = 0;
    weft_pool_run(c->d->pool, pieces(c->vocab), collect_piece, (void *)(uintptr_t)c);
    for (int i = 0; i < pieces(c->vocab); i++) {
        size_t n = (size_t)r->count[i];
        memmove(p.ids + p.n, r->ids + i * PIECE, n * sizeof *p.ids);
        memmove(p.logits + p.n, r->logits + i * PIECE, n * sizeof *p.logits);
        if (c->weigh) memmove(p.grains + p.n, r->grains + i * PIECE, n * sizeof *p.grains);
        p.n += r->count[i];
        *total += r->total[i];
    }
    return p;
}

/* top_p of a sum, rounded up; at least one grain. */
static uint64_t share_of(double top_p, uint64_t total) {
    double wanted = top_p * (double)total;
    uint64_t grains = (uint64_t)wanted;
    grains += (double)grains < wanted;
    return grains < 1 ? 1 : grains > total ? total : grains;
}

static void largest_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const collection *c = ctx;
    int first = piece * PIECE;
    c->d->kernels->largest(c->d->support.most + first / SUPPORT_BLOCK, c->row + first, length(c->vocab, piece));
}

/* The largest logit; NaN if one is. */
static float largest_of(const collection *c) {
    weft_pool_run(c->d->pool, pieces(c->vocab), largest_piece, (void *)(uintptr_t)c);
    float max = -INFINITY;
    for (int i = 0; i < (c->vocab + SUPPORT_BLOCK - 1) / SUPPORT_BLOCK; i++) {
        float m = c->d->support.most[i];
        if (m != m) return m;
        max = m > max ? m : max;
    }
    return max;
}

/* Drops ids with fewer grains than `least`: where all of them together are not needed, none is in the support. */
static void drop_small(pool *c, uint64_t least) {
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        c->ids[n] = c->ids[i];
        c->logits[n] = c->logits[i];
        c->grains[n] = c->grains[i];
        n += c->grains[i] >= least;
    }
    c->n = n;
}

/* The support, in a row whose largest logit is c->max. */
static pool support_of(collection *c, const weft_shaping *rule) {
    const support_room *r = &c->d->support;
    bool top_k = rule->top_k > 0 && rule->top_k<c->vocab, top_p = rule->top_p> 0 && rule->top_p < 1;
    int blocks = (c->vocab + SUPPORT_BLOCK - 1) / SUPPORT_BLOCK;
    uint64_t total;
    c->least = -FLT_MAX;
    /* The k-th largest of the blocks' largest logits: k ids at least are not below it. */
    if (top_k && rule->top_k <= blocks) {
        float bound = last_of(r->most, NULL, blocks, (uint64_t)rule->top_k, &total);
        if (bound > c->least) c->least = bound;
    } else if (!top_k && !top_p) { /* what is below has less than min_p, with room for rounding */
        double bound = c->max + (weft_ln((double)rule->min_p) - 0.001) / c->scale;
        bound -= (bound < 0 ? -bound : bound) * 1e-6;
        if (bound > (double)c->least) c->least = (float)bound;
    }
    /* The sum is at least what the largest weighs: what is left out below weighs less than 1 - top_p of it. */
    c->weigh = top_p && !top_k;
    double spare = (1 - (double)rule->top_p) * 0x1p44 / c->vocab - 2;
    c->floor = spare > 0 ? (uint64_t)spare : 0;
    pool p = collect(c, &total);
    if (top_k && p.n > rule->top_k) cut_pool(&p, false, (uint64_t)rule->top_k);
    if (top_p) {
        if (!c->weigh) total = c->d->kernels->grains(p.grains, p.logits, p.n, c->max, c->scale);
        uint64_t wanted = share_of((double)rule->top_p, total);
        drop_small(&p, (total - wanted) / (uint64_t)c->vocab);
        cut_pool(&p, true, wanted);
    }
    int n = 0;
    for (int i = 0; i < p.n && rule->min_p > 0; i++) {
        p.ids[n] = p.ids[i];
        p.logits[n] = p.logits[i];
        n += weight_of((double)p.logits[i], c->max, c->scale) >= (double)rule->min_p;
    }
    if (rule->min_p > 0) p.n = n;
    return p;
}

static void clear_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const collection *c = ctx;
    float *x = (float *)(uintptr_t)c->row + piece * PIECE;
    for (int i = 0; i < length(c->vocab, piece); i++) x[i] = -INFINITY;
}
static void draw_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const collection *c = ctx;
    weft_best *best = &c->d->support.best[piece];
    weft_columns part = weft_columns_part(c->columns, piece * PIECE, length(c->vocab, piece));
    *best = WEFT_NO_BEST;
    weft_draw_piece(c->d, c->rule, c->row + piece * PIECE, &part, best);
}

weft_best weft_truncate(const weft_dev *d, const weft_pick *pick, const weft_columns *columns) {
    const weft_rule *rule = &pick->rule;
    int vocab = columns->n;
    float *row = buf_row(pick->keep->logits, pick->keep_row);
    kept_row *kept = &pick->keep->row[pick->keep_row];
    collection c = {.d = d, .rule = rule, .row = row, .vocab = vocab, .columns = columns, .scale = 1 / rule->sampler.temperature};
    weft_best best = WEFT_NO_BEST;
    float max = largest_of(&c);
    *kept = (kept_row){.max = (double)max, .scale = c.scale, .vocab = vocab};
    if (!(max > -INFINITY)) { /* nothing, or a NaN */
        best.bad = max != max;
        kept->why = best.bad ? WEFT_TOKEN_NAN : WEFT_TOKEN_BANNED;
        return best;
    }
    c.max = kept->max;
    pool p = support_of(&c, rule->shaping);
    weft_pool_run(d->pool, pieces(vocab), clear_piece, &c);
    for (int at = 0, n; at < p.n; at += n) {
        double w[PIECE];
        n = length(p.n, at / PIECE);
        d->kernels->weights(w, p.logits + at, n, c.max, c.scale);
        for (int i = 0; i < n; i++) {
            row[p.ids[at + i]] = p.logits[at + i];
            kept->sum += w[i];
        }
    }
    if (p.n < vocab / 32) { /* id by id is less work than the noise of all ids */
        for (int i = 0; i < p.n; i++) {
            weft_columns one = weft_columns_part(columns, p.ids[i], 1);
            weft_draw_part(&rule->sampler, &p.logits[i], NULL, &one, rule->index, &best);
        }
        return best;
    }
    weft_pool_run(d->pool, pieces(vocab), draw_piece, &c);
    for (int i = 0; i < pieces(vocab); i++) weft_best_merge(&best, &d->support.best[i]);
    return best;
}

/* ---- kept rows as distributions ------------------------------------------------------------------------------------------ */

static void weigh_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const collection *c = ctx;
    int n = length(c->vocab, piece);
    double w[PIECE], sum = 0;
    c->d->kernels->weights(w, c->row + piece * PIECE, n, c->max, c->scale);
    for (int i = 0; i < n; i++) sum += w[i];
    c->d->support.sum[piece] = sum;
}

void weft_keep_row(const weft_dev *d, const weft_pick *pick, const weft_columns *columns, const weft_picked *picked) {
    int vocab = columns->n;
    kept_row *row = &pick->keep->row[pick->keep_row];
    float *l = buf_row(pick->keep->logits, pick->keep_row);
    *row = (kept_row){.vocab = vocab, .why = picked->why};
    if (row->why != WEFT_TOKEN) return;
    collection c = {.d = d, .row = l, .vocab = vocab};
    if (weft_greedy(&pick->rule.sampler)) {
        weft_pool_run(d->pool, pieces(vocab), clear_piece, &c);
        l[weft_column_of(columns, picked->id)] = 0;
        row->scale = row->sum = 1;
        return;
    }
    row->scale = c.scale = 1 / pick->rule.sampler.temperature;
    row->max = c.max = (double)largest_of(&c);
    weft_pool_run(d->pool, pieces(vocab), weigh_piece, &c);
    for (int i = 0; i < pieces(vocab); i++) row->sum += d->support.sum[i];
}

/* ---- trials of drafts ---------------------------------------------------------------------------------------------------- */

/* A kept row as a distribution. */
typedef struct law {
    const kept_row *row;
    const float *logits;
    weft_columns columns;
} law;

static double chance(const law *w, int column) {
    return weight_of((double)w->logits[column], w->row->max, w->row->scale) / w->row->sum;
}

static law law_of(const weft_kept *k, int row, const int32_t *ids) {
    return (law){&k->row[row], buf_row(k->logits, row), {.n = k->row[row].vocab, .ids = ids}};
}

/* What a token is drawn from: p, or with a draft max(p - q, 0); q NULL: all of it at the draft. */
typedef struct rest {
    const weft_dev *d;
    law p;
    const law *q;
    int32_t draft; /* -1: p itself */
} rest;

/* r[0..n) of the ids of a piece, not normalised; returns their sum. */
static double rest_part(const rest *t, double *r, int piece) {
    int first = piece * PIECE, n = length(t->p.row->vocab, piece);
    t->d->kernels->weights(r, t->p.logits + first, n, t->p.row->max, t->p.row->scale);
    for (int i = 0; i < n; i++) r[i] = r[i] / t->p.row->sum;
    if (t->q) {
        double q[PIECE];
        int from = weft_column_from(&t->q->columns, first), to = weft_column_from(&t->q->columns, first + n);
        if (to > from + n) to = from + n;
        t->d->kernels->weights(q, t->q->logits + from, to - from, t->q->row->max, t->q->row->scale);
        for (int c = from; c < to; c++) {
            double *at = &r[weft_column_id(&t->q->columns, c) - first], x = q[c - from] / t->q->row->sum;
            *at = *at > x ? *at - x : 0;
        }
    } else if (t->draft >= first && t->draft < first + n) {
        r[t->draft - first] = 0;
    }
    double sum = 0;
    for (int i = 0; i < n; i++) sum += r[i];
    return sum;
}
static void rest_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const rest *t = ctx;
    double r[PIECE];
    t->d->support.sum[piece] = rest_part(t, r, piece);
}

/* The id where the sum of all before it and its own passes u of the whole; -1: there is nothing. Never one that has nothing. */
static int32_t draw_rest(const rest *t, double u) {
    const double *sum = t->d->support.sum;
    double r[PIECE], total = 0;
    int n = pieces(t->p.row->vocab), piece = -1;
    weft_pool_run(t->d->pool, n, rest_piece, (void *)(uintptr_t)t);
    for (int i = 0; i < n; i++) total += sum[i];
    double wanted = u * total;
    for (int i = 0; i < n; i++) { /* rounding may leave a little of `wanted` behind the last */
        if (!(sum[i] > 0)) continue;
        if (piece >= 0) wanted -= sum[piece];
        piece = i;
        if (wanted < sum[i]) break;
    }
    if (piece < 0) return -1;
    rest_part(t, r, piece);
    int32_t id = -1;
    double at = 0;
    for (int i = 0; i < length(t->p.row->vocab, piece); i++) {
        if (!(r[i] > 0)) continue;
        id = piece * PIECE + i;
        at += r[i];
        if (at > wanted) break;
    }
    return id;
}

static weft_verdict judge(weft_dev *d, const weft_trial *t) {
    const weft_kept *p = t->p, *q = t->q;
    rest all = {.d = d, .p = law_of(p, t->p_row, NULL), .draft = -1};
    weft_verdict no = {.id = -1, .why = all.p.row->why};
    if (no.why != WEFT_TOKEN) return no;
    if (t->draft < 0) return (weft_verdict){.id = draw_rest(&all, weft_uniform(&t->sampler, t->index, WEFT_FOR_BONUS))};
    law drafter = {0};
    rest left = {.d = d, .p = all.p, .draft = t->draft};
    double qx = 1;
    if (q && q->row[t->q_row].why == WEFT_TOKEN) {
        drafter = law_of(q, t->q_row, t->q_ids);
        left.q = &drafter;
        int c = weft_column_of(&drafter.columns, t->draft);
        qx = c >= 0 ? chance(&drafter, c) : 0;
    }
    if (!(qx > 0)) {
        d->status =
            weft_fail(&d->error, WEFT_EINVAL, "a draft, id %d, that has no probability in the row that it came from", t->draft);
        return no;
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
    for (int i = 0; i < n && d->status == WEFT_OK; i++) {
        bool takes_place = !trials[i].follows || (i && d->verdicts[i - 1].kept);
        d->verdicts[i] = takes_place ? judge(d, &trials[i]) : (weft_verdict){.id = -1};
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

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

#define PIECE WEFT_DRAW_PIECE

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
    int first = piece * PIECE, n = piece_length(c->vocab, piece), k = 0;
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
    weft_pool_run(c->d->pool, pieces_of(c->vocab), collect_piece, (void *)(uintptr_t)c);
    for (int i = 0; i < pieces_of(c->vocab); i++) {
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
    c->d->kernels->largest(c->d->support.most + first / SUPPORT_BLOCK, c->row + first, piece_length(c->vocab, piece));
}

float weft_row_largest(const weft_dev *d, const float *row, int vocab) {
    collection c = {.d = d, .row = row, .vocab = vocab};
    weft_pool_run(d->pool, pieces_of(vocab), largest_piece, &c);
    float max = -INFINITY;
    for (int i = 0; i < (vocab + SUPPORT_BLOCK - 1) / SUPPORT_BLOCK; i++) {
        float m = d->support.most[i];
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
    bool top_k = rule->top_k > 0 && rule->top_k < c->vocab;
    bool top_p = rule->top_p > 0 && rule->top_p < 1;
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
    for (int i = 0; i < piece_length(c->vocab, piece); i++) x[i] = -INFINITY;
}
void weft_row_clear(const weft_dev *d, float *row, int vocab) {
    collection c = {.d = d, .row = row, .vocab = vocab};
    weft_pool_run(d->pool, pieces_of(vocab), clear_piece, &c);
}

static void draw_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const collection *c = ctx;
    weft_best *best = &c->d->support.best[piece];
    weft_columns part = weft_columns_part(c->columns, piece * PIECE, piece_length(c->vocab, piece));
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
    float max = weft_row_largest(d, row, vocab);
    *kept = (kept_row){.max = (double)max, .scale = c.scale, .vocab = vocab};
    if (!(max > -INFINITY)) { /* nothing, or a NaN */
        best.bad = max != max;
        kept->why = best.bad ? WEFT_TOKEN_NAN : WEFT_TOKEN_BANNED;
        return best;
    }
    c.max = kept->max;
    pool p = support_of(&c, rule->shaping);
    weft_row_clear(d, row, vocab);
    for (int at = 0, n; at < p.n; at += n) {
        double w[PIECE];
        n = piece_length(p.n, at / PIECE);
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
    weft_pool_run(d->pool, pieces_of(vocab), draw_piece, &c);
    for (int i = 0; i < pieces_of(vocab); i++) weft_best_merge(&best, &d->support.best[i]);
    return best;
}

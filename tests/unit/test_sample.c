/* test_sample.c: from logits to tokens: every rule against a plain reference in double arithmetic that sorts, the order of the
 * operations, and that neither threads nor kernels nor the way that the logits came change anything. With --bench it times picks.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fpu.h"
#include "base/rng.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/weight.h"
#include "ops/tally.h"
#include "sample_device.h"

static uint64_t state = 17;
static uint32_t random_u32(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state * 0x2545f4914f6cdd1dull >> 32);
}
static int below(int n) {
    return (int)(random_u32() % (uint32_t)n);
}
static float gaussian(float sigma) {
    double s = 0;
    for (int i = 0; i < 12; i++) s += random_u32() * 0x1p-32;
    return sigma * (float)(s - 6);
}

/* ---- the reference ------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    int32_t id;
    float logit;
    double weight;
} entry;
static int by_logit(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Steps 2 and 3 of sample.h for one id; *out: not permitted. */
static float shaped_one(const weft_rule *r, int32_t id, float raw, bool allowed, bool *out) {
    const weft_shaping *s = r->shaping;
    *out = !allowed || (r->mask && !(r->mask[id / 64] >> (id % 64) & 1));
    for (int i = 0; i < r->n_bans; i++) *out = *out || r->bans[i] == id;
    float x = raw;
    if (!s) return x;
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id == id) {
            *out = *out || s->bias[i].add == -INFINITY;
            double sum = (double)x + (double)s->bias[i].add;
            x = (float)fmin(fmax(sum, (double)-FLT_MAX), (double)FLT_MAX);
        }
    bool seen = false;
    double times = 0;
    for (int i = 0; i < s->n_seen; i++)
        if (s->seen[i].id == id) seen = true, times += s->seen[i].times;
    for (int i = 0; i < r->n_after; i++)
        if (r->after[i] == id) seen = true, times++;
    double y = (double)x;
    if (seen && s->repetition > 0) y = y > 0 ? y / (double)s->repetition : y * (double)s->repetition;
    if (times > 0) y = y - (double)s->frequency * times - (double)s->presence;
    return (float)fmin(fmax(y, (double)-FLT_MAX), (double)FLT_MAX);
}

typedef struct expected {
    bool bad;
    int permitted;
    int least, most; /* ids in the support: rounding may decide between these */
    entry *order;    /* [permitted], as by_logit() has them */
} expected;

static int prefix(const expected *x, const weft_shaping *s, double slack) {
    int n = x->permitted;
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    if (s->top_p > 0 && s->top_p < 1) {
        double total = 0, sum = 0;
        for (int i = 0; i < n; i++) total += x->order[i].weight;
        int i = 0;
        while (i < n && (i == 0 || sum < ((double)s->top_p + slack) * total)) sum += x->order[i++].weight;
        n = i;
    }
    int kept = 0;
    while (kept < n && x->order[kept].weight >= (double)s->min_p - slack) kept++;
    return kept;
}

static expected expect(const weft_rule *r, const float *raw, int n, const bool *allowed) {
    expected x = {.order = malloc((size_t)n * sizeof *x.order)};
    for (int32_t id = 0; id < n; id++) {
        bool out;
        float y = shaped_one(r, id, raw[id], allowed[id], &out);
        if (out) continue;
        if (!isfinite(raw[id])) x.bad = true;
        x.order[x.permitted++] = (entry){id, y, 0};
    }
    if (x.bad) return x;
    qsort(x.order, (size_t)x.permitted, sizeof *x.order, by_logit);
    bool greedy = r->sampler.temperature < DBL_MIN;
    for (int i = 0; i < x.permitted; i++)
        x.order[i].weight = greedy ? !i : exp(((double)x.order[i].logit - (double)x.order[0].logit) / r->sampler.temperature);
    x.least = x.most = x.permitted;
    if (r->shaping && !greedy) {
        int a = prefix(&x, r->shaping, -1e-8), b = prefix(&x, r->shaping, 1e-8);
        x.least = a < b ? a : b;
        x.most = a < b ? b : a;
    }
    return x;
}

/* The kept row's support is what the reference says, and the token is the arg-max over it. */
static void check(const sampling *s, const weft_pick *pick, const float *raw, const weft_picked *got) {
    const weft_rule *r = &pick->rule;
    expected x = expect(r, raw, s->vocab, s->allowed);
    if (x.bad || !x.permitted) {
        assert_int_equal(got->id, -1);
        assert_int_equal(got->why, x.bad ? WEFT_TOKEN_NAN : WEFT_TOKEN_BANNED);
        free(x.order);
        return;
    }
    assert_int_equal(got->why, WEFT_TOKEN);
    bool greedy = r->sampler.temperature < DBL_MIN;
    const float *kept = sampling_kept(pick->keep, pick->keep_row);
    int n = 0, best = -1;
    for (int i = 0; i < s->vocab; i++) n += kept[i] > -INFINITY;
    if (greedy ? n != 1 : n < x.least || n > x.most) fail_msg("%d ids in the support, not %d to %d", n, x.least, x.most);
    double score = 0;
    for (int i = 0; i < n; i++) {
        const entry *o = &x.order[i];
        if (!greedy && kept[o->id] != o->logit) fail_msg("shaped logit of %d is %.9g, not %.9g", o->id, kept[o->id], o->logit);
        double y = (double)o->logit;
        if (!greedy) y += r->sampler.temperature * weft_gumbel(r->sampler.seed, r->sampler.choice, r->index, (uint32_t)o->id);
        if (best < 0 || y > score || (y == score && o->id < x.order[best].id)) best = i, score = y;
    }
    assert_int_equal(got->id, x.order[best].id);
    assert_true(x.order[best].weight > 0);
    assert_true(got->logit == raw[got->id]);
    free(x.order);
}

/* ---- random rules -------------------------------------------------------------------------------------------------------- */

enum { MOST = 24 };
typedef struct random_rule {
    weft_pick pick;
    weft_shaping shaping;
    weft_logit_bias bias[MOST];
    weft_tally tally;
    int32_t bans[MOST], after[MOST];
    uint64_t *mask;
} random_rule;

static void make_rule(random_rule *r, int vocab) {
    static const double temperatures[] = {0, 1, 1, 0.7, 0.7, 1.5, 0.2, 5, 1e-3, 1e-9, 1e-300, 1e5, 1e30, 1e-310};
    static const float top_p[] = {0, 0.5f, 0.9f, 0.95f, 0.999f, 1, 1e-20f, 0.1f}, min_p[] = {0, 0.05f, 0.3f, 1, 1e-6f};
    *r = (random_rule){0};
    weft_shaping *s = &r->shaping;
    for (int32_t id = below(vocab), i = 0; i < MOST && id < vocab && random_u32() % 4; id += 1 + below(vocab / 8 + 2), i++)
        r->bias[s->n_bias++] = (weft_logit_bias){id, random_u32() % 5 ? gaussian(4) : -INFINITY};
    s->bias = r->bias;
    for (int i = 0; i < MOST && random_u32() % 6; i++) {
        int32_t id = below(vocab);
        assert_int_equal(weft_tally_add(&r->tally, &id, 1, random_u32() & 1, NULL), WEFT_OK);
    }
    s->seen = r->tally.ids.v;
    s->n_seen = (int)r->tally.ids.n;
    if (random_u32() & 1) s->repetition = random_u32() & 1 ? 1.3f : 0.8f;
    if (random_u32() & 1) s->presence = gaussian(1);
    if (random_u32() & 1) s->frequency = gaussian(1);
    if (random_u32() & 1) s->top_k = 1 + below(random_u32() & 1 ? 10 : vocab + 3);
    if (random_u32() & 1) s->top_p = top_p[below(8)];
    if (random_u32() % 4 == 0) s->min_p = min_p[below(5)];
    weft_rule *rule = &r->pick.rule;
    rule->sampler = (weft_sampler){temperatures[below(14)], random_u32(), random_u32() % 3};
    rule->index = random_u32() % 1000;
    rule->shaping = random_u32() % 8 ? s : NULL;
    if (random_u32() % 3 == 0) {
        size_t words = ((size_t)vocab + 63) / 64;
        r->mask = malloc(words * sizeof *r->mask);
        for (size_t i = 0; i < words; i++) r->mask[i] = (uint64_t)random_u32() << 32 | random_u32();
        rule->mask = r->mask;
    }
    for (int n = random_u32() % 3 ? 0 : below(MOST); rule->n_bans < n;) r->bans[rule->n_bans++] = below(vocab);
    for (int n = random_u32() % 3 ? 0 : below(MOST); rule->n_after < n;) r->after[rule->n_after++] = below(vocab);
    rule->bans = r->bans;
    rule->after = r->after;
}
static void free_rule(random_rule *r) {
    weft_tally_free(&r->tally);
    free(r->mask);
}

/* Logits of a row: plain, or few different ones, or extreme, or with what is no number. */
static void make_row(float *x, int n, int kind) {
    static const float odd[] = {FLT_MAX, -FLT_MAX, 0, -0.0f, 1e-30f, 3};
    for (int i = 0; i < n; i++) {
        x[i] = gaussian(kind == 3 ? 40 : 3);
        if (kind == 1) x[i] = (float)below(4);
        if (kind == 2) x[i] = 2;
        if (kind == 4) x[i] = odd[below(6)];
    }
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    if (kind == 5) x[below(n)] = broken[below(3)];
}

static void test_small_vocabularies(void **unused) {
    (void)unused;
    for (int vocab = 1; vocab <= 300; vocab = vocab < 12 ? vocab + 1 : vocab * 3) {
        sampling s = sampling_open(1, NULL, 1, vocab, NULL);
        float *raw = malloc((size_t)vocab * sizeof *raw);
        for (int round = 0; round < 600; round++) {
            random_rule r;
            weft_picked got;
            make_rule(&r, vocab);
            make_row(raw, vocab, round % 6);
            for (int i = 0; i < vocab; i++) s.allowed[i] = random_u32() % 8 > 0;
            sampling_write(&s, 0, raw);
            r.pick.keep = s.p;
            assert_int_equal(sampling_pick(&s, &r.pick, 1, &got), WEFT_OK);
            check(&s, &r.pick, raw, &got);
            if (!weft_rule_truncates(&r.pick.rule)) { /* without a row to keep: the same */
                weft_picked bare;
                r.pick.keep = NULL;
                assert_int_equal(sampling_pick(&s, &r.pick, 1, &bare), WEFT_OK);
                assert_memory_equal(&bare, &got, offsetof(weft_picked, top_id));
            }
            free_rule(&r);
        }
        free(raw);
        sampling_close(&s);
    }
}

/* Rows of a large vocabulary, all rules at once: from a head and from a buffer, by one thread and three, by the plainest kernels
 * and the best. */
static void test_large_vocabularies(void **unused) {
    (void)unused;
    enum { VOCAB = 100003, ROWS = 19 }; /* more than one group of 16 */
    float *raw = malloc((size_t)ROWS * VOCAB * sizeof *raw);
    random_rule r[ROWS] = {0};
    for (int i = 0; i < ROWS; i++) make_row(raw + (size_t)i * VOCAB, VOCAB, i % 4);
    for (int i = 0; i < ROWS; i++) {
        do {
            free_rule(&r[i]);
            make_rule(&r[i], VOCAB);
        } while (i && (!r[i].pick.rule.shaping || r[i].pick.rule.sampler.temperature < 0.1));
        r[i].pick.keep_row = i;
    }
    r[0].shaping.top_k = 0;
    r[1].shaping = (weft_shaping){.top_p = 0.95f}; /* of gaussians, of four different logits, of equal ones */
    r[2].shaping = (weft_shaping){.top_p = 0.3f};
    r[3].shaping = (weft_shaping){.min_p = 0.02f};
    r[4].shaping = (weft_shaping){.top_k = 5000, .top_p = 0.9f, .min_p = 0.001f};
    r[5].shaping = (weft_shaping){.top_k = 20};
    weft_picked first[ROWS];
    for (int run = 0; run < 4; run++) {
        sampling s = sampling_open(run == 1 ? 3 : 1 + run % 2, run == 2 ? "reference" : NULL, ROWS, VOCAB, raw);
        weft_pick picks[ROWS];
        weft_picked got[ROWS];
        weft_error e;
        for (int i = 5; i < VOCAB; i += 97) s.allowed[i] = false;
        for (int i = 0; i < ROWS; i++) {
            sampling_write(&s, i, raw + (size_t)i * VOCAB);
            r[i].pick.keep = s.p;
            r[i].pick.log_sum = true;
            r[i].pick.top = i % (WEFT_MAX_TOP + 1);
            picks[i] = r[i].pick;
        }
        sampling_begin(&s);
        weft_embed(s.d, s.x, s.table, 1);
        if (run == 3)
            weft_pick_logits(s.d, s.logits, ROWS, picks, s.allowed);
        else
            weft_pick_tokens(s.d, &(weft_output){.w = s.head}, s.x, s.order, ROWS, picks, s.allowed);
        for (int i = 0; i < ROWS; i++) assert_int_equal(weft_read_pick(s.d, i, &got[i], &e), WEFT_OK);
        assert_int_equal(weft_end(s.d, &e), WEFT_OK);
        for (int i = 0; i < ROWS; i++) {
            if (!run) check(&s, &picks[i], raw + (size_t)i * VOCAB, &got[i]);
            if (run) assert_memory_equal(&got[i], &first[i], sizeof got[i]);
        }
        if (!run) memcpy(first, got, sizeof got);
        sampling_close(&s);
    }
    for (int i = 0; i < ROWS; i++) free_rule(&r[i]);
    free(raw);
}

/* ---- heads with some ids only -------------------------------------------------------------------------------------------- */

enum { V = 8, SOME_VOCAB = 5003, SOME_ROWS = 19 };

static void pick_from(sampling *s, const weft_output *head, const weft_pick *picks, const bool *allowed, weft_picked *got) {
    weft_error e;
    sampling_begin(s);
    weft_embed(s->d, s->x, s->table, 1);
    weft_pick_tokens(s->d, head, s->x, s->order, SOME_ROWS, picks, allowed);
    for (int i = 0; i < SOME_ROWS; i++) (void)weft_read_pick(s->d, i, &got[i], &e);
    if (weft_end(s->d, &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* Column i of a row of s->q is the id ids[i] of the row of s->p, which has no other id. */
static void same_law(const sampling *s, const int32_t *ids, int columns, int row) {
    const float *some = sampling_kept(s->q, row), *all = sampling_kept(s->p, row);
    const kept_row *a = &s->q->row[row], *b = &s->p->row[row];
    assert_int_equal(a->why, b->why);
    if (a->why != WEFT_TOKEN) return;
    for (int id = 0, c = 0; id < SOME_VOCAB; id++) {
        bool has = c < columns && ids[c] == id;
        assert_true(has ? some[c] == all[id] : all[id] == -INFINITY);
        c += has;
    }
    assert_true(a->max == b->max && a->scale == b->scale && fabs(a->sum / b->sum - 1) < 1e-12);
}

/* Drafts from both, tried against the same target: the verdicts are the same. p: rows of the target, kept before. */
static void same_trials(sampling *s, weft_kept *p, const int32_t *ids, const weft_picked *drafts, const weft_pick *picks) {
    weft_trial t[SOME_ROWS];
    weft_verdict v[2][SOME_ROWS];
    weft_error e;
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < SOME_ROWS; i++)
            t[i] = (weft_trial){.p = p,
                                .p_row = i,
                                .q = way ? s->q : s->p,
                                .q_row = i,
                                .q_ids = way ? ids : NULL,
                                .draft = drafts[i].id < 0 ? ids[0] : drafts[i].id,
                                .sampler = picks[i].rule.sampler,
                                .index = picks[i].rule.index};
        sampling_begin(s);
        weft_try_drafts(s->d, t, SOME_ROWS);
        for (int i = 0; i < SOME_ROWS; i++) (void)weft_read_verdict(s->d, i, &v[way][i], &e);
        if (weft_end(s->d, &e) != WEFT_OK) fail_msg("%s", e.text);
    }
    for (int i = 0; i < SOME_ROWS; i++) {
        assert_int_equal(v[0][i].kept, v[1][i].kept);
        assert_int_equal(v[0][i].id, v[1][i].id);
    }
}

/* A head with some ids gives what the whole head gives where a mask permits those alone: the same token by every rule, the same
 * likeliest ids, the same law for trials. */
static void some_ids(int threads, const char *isa, int left, bool broken) {
    enum { N = SOME_VOCAB, ROWS = SOME_ROWS };
    float *raw = malloc((size_t)ROWS * N * sizeof *raw);
    int32_t *ids = malloc(N * sizeof *ids);
    bool *in = malloc(N);
    int columns = 0;
    for (int id = 0; id < N; id++) { /* any set of so many */
        in[id] = below(N - id) < left - columns;
        if (in[id]) ids[columns++] = id;
    }
    for (int i = 0; i < ROWS; i++) make_row(raw + (size_t)i * N, N, broken ? 5 : i % 4);
    sampling s = sampling_open_some(threads, isa, ROWS, N, raw, ids, columns);
    random_rule r[ROWS];
    weft_pick picks[2][ROWS];
    weft_picked got[2][ROWS];
    uint64_t *masks = calloc(ROWS * (N / 64 + 1), sizeof *masks);
    for (int i = 0; i < ROWS; i++) {
        make_rule(&r[i], N);
        r[i].pick.log_sum = true;
        r[i].pick.top = i % (WEFT_MAX_TOP + 1);
        r[i].pick.keep_row = i;
        picks[0][i] = picks[1][i] = r[i].pick;
        picks[0][i].keep = s.p;
        picks[1][i].keep = s.q;
        uint64_t *mask = masks + i * (N / 64 + 1);
        for (int id = 0; id < N; id++)
            if (in[id] && (!r[i].mask || r[i].mask[id / 64] >> id % 64 & 1)) mask[id / 64] |= (uint64_t)1 << id % 64;
        picks[0][i].rule.mask = mask;
    }
    for (int i = 0; i < N; i++) s.allowed[i] = random_u32() % 8 > 0;
    for (int i = 0; i < N; i++) in[i] = in[i] && s.allowed[i];
    pick_from(&s, &(weft_output){.w = s.some, .ids = ids}, picks[1], s.allowed, got[1]);
    pick_from(&s, &(weft_output){.w = s.head}, picks[0], in, got[0]);
    for (int i = 0; i < ROWS; i++) {
        weft_picked *a = &got[1][i], *b = &got[0][i];
        double total = 0;
        for (int c = 0; c < columns; c++) total += exp((double)raw[(size_t)i * N + (size_t)ids[c]]);
        if (!broken && i % 4 != 3) assert_true(fabs((double)a->log_sum - log(total)) < 1e-5);
        if (a->id != b->id || a->why != b->why || a->logit != b->logit) fail_msg("row %d: %d, not %d", i, a->id, b->id);
        assert_int_equal(a->n_top, b->n_top);
        for (int t = 0; t < a->n_top && !broken; t++)
            assert_true(a->top_id[t] == b->top_id[t] && a->top_logit[t] == b->top_logit[t]);
        same_law(&s, ids, columns, i);
    }
    if (!broken) { /* the target: another row of logits, of all ids */
        weft_kept *p = s.target;
        for (int i = 0; i < ROWS; i++) picks[0][i] = (weft_pick){.rule.sampler = {1, 5, 0}, .keep = p, .keep_row = i};
        weft_picked any[ROWS];
        pick_from(&s, &(weft_output){.w = s.head}, picks[0], s.allowed, any);
        same_trials(&s, p, ids, got[1], picks[1]);
    }
    for (int i = 0; i < ROWS; i++) free_rule(&r[i]);
    sampling_close(&s);
    free(raw);
    free(ids);
    free(in);
    free(masks);
}
static void test_heads_with_some_ids(void **unused) {
    (void)unused;
    static const int sizes[] = {1, 5, 16, 17, 1023, 1024, 1025, 2500, 4100, SOME_VOCAB};
    for (int k = 0; weft_isas[k]; k++)
        for (int i = 0; i < 10 && weft_isa_here(weft_isas[k]); i++) some_ids(i % 2 ? 3 : 1, weft_isas[k]->name, sizes[i], i == 7);
}

/* An id that does not exist is refused before anything is read by it. */
static void test_bad_ids_of_heads(void **unused) {
    (void)unused;
    const float raw[V] = {0};
    weft_error e;
    for (int bad = 0; bad < 2; bad++) {
        const int32_t ids[] = {0, 1, 2}, wrong[] = {bad ? 0 : -1, 1, bad ? V : 2};
        sampling s = sampling_open_some(1, NULL, 1, V, raw, ids, 3);
        sampling_begin(&s);
        weft_embed(s.d, s.x, s.table, 1);
        weft_pick_tokens(s.d, &(weft_output){.w = s.some, .ids = wrong}, s.x, s.order, 1, &(weft_pick){0}, s.allowed);
        assert_int_equal(weft_end(s.d, &e), WEFT_EINVAL);
        sampling_close(&s);
    }
}

/* ---- one rule at a time -------------------------------------------------------------------------------------------------- */

/* The ids of the support, as bits, and the token. */
static unsigned support(const float *raw, const weft_rule *rule, weft_picked *got) {
    sampling s = sampling_open(1, NULL, 1, V, NULL);
    weft_picked any;
    got = got ? got : &any;
    sampling_write(&s, 0, raw);
    assert_int_equal(sampling_pick(&s, &(weft_pick){.rule = *rule, .log_sum = true, .top = 3, .keep = s.p}, 1, got), WEFT_OK);
    unsigned bits = 0;
    for (int i = 0; i < V && got->id >= 0; i++) bits |= (unsigned)(sampling_kept(s.p, 0)[i] > -INFINITY) << i;
    sampling_close(&s);
    return bits;
}
#define SHAPING(...)                                                                                                               \
    .shaping = &(weft_shaping) {                                                                                                   \
        __VA_ARGS__                                                                                                                \
    }

static void test_ties(void **unused) {
    (void)unused;
    const float flat[V] = {1, 1, 1, 1, 1, 1, 1, 1}, two[V] = {0, 5, 0, 5, 0, 5, 0, 5};
    const weft_sampler warm = {.temperature = 0.7};
    assert_int_equal(support(flat, &(weft_rule){.sampler = warm, SHAPING(.top_k = 3)}, NULL), 0x07);
    assert_int_equal(support(two, &(weft_rule){.sampler = warm, SHAPING(.top_k = 3)}, NULL), 0x2A);
    assert_int_equal(support(flat, &(weft_rule){.sampler = warm, SHAPING(.top_p = 0.5f)}, NULL), 0x0F); /* reaches it exactly */
    assert_int_equal(support(flat, &(weft_rule){.sampler = warm, SHAPING(.top_p = 0.51f)}, NULL), 0x1F);
    assert_int_equal(support(flat, &(weft_rule){.sampler = warm, SHAPING(.top_p = 1e-20f)}, NULL), 0x01);
    assert_int_equal(support(flat, &(weft_rule){.sampler = warm, SHAPING(.min_p = 1)}, NULL), 0xFF);
    assert_int_equal(support(two, &(weft_rule){.sampler = warm, SHAPING(.min_p = 1)}, NULL), 0xAA);
    weft_picked got;
    (void)support(flat, &(weft_rule){0}, &got);
    assert_int_equal(got.id, 0);
}

/* Every step where it belongs: each of these comes out otherwise when two steps change places. */
static void test_order(void **unused) {
    (void)unused;
    weft_picked got;
    /* Bias, then repetition: (-1 + 3) / 2 = 1 wins over 0.9; -1 * 2 + 3 = 1 too, but (1 + 1) / 2 = 1 and 1 / 2 + 1 = 1.5 differ. */
    const float a[V] = {1, 1.2f};
    const weft_rule bias = {
        SHAPING(.bias = (weft_logit_bias[]){{0, 1}}, .n_bias = 1, .seen = (weft_seen[]){{0, 0}}, .n_seen = 1, .repetition = 2)};
    (void)support(a, &bias, &got);
    assert_int_equal(got.id, 1);
    /* Repetition, then frequency: 2 / 2 - 0.5 = 0.5; (2 - 0.5) / 2 = 0.75 would win over 0.6. */
    const float b[V] = {2, 0.6f};
    const weft_rule penalties = {SHAPING(.seen = (weft_seen[]){{0, 1}}, .n_seen = 1, .repetition = 2, .frequency = 0.5f)};
    (void)support(b, &penalties, &got);
    assert_int_equal(got.id, 1);
    /* Penalties before temperature: at T = 0.1 the gap 0.5 weighs exp(-5) < 0.01; taken off after it, exp(-0.5). */
    const float flat[V] = {0};
    const weft_rule cold = {.sampler = {.temperature = 0.1},
                            SHAPING(.seen = (weft_seen[]){{0, 1}}, .n_seen = 1, .presence = 0.5f, .min_p = 0.01f)};
    assert_int_equal(support(flat, &cold, NULL), 0xFE);
    /* top_p is a share of what top_k left: of two equal ids one has half. On all eight, six would be needed. */
    const weft_rule k_then_p = {.sampler = {.temperature = 1}, SHAPING(.top_k = 2, .top_p = 0.5f)};
    assert_int_equal(support(flat, &k_then_p, NULL), 0x01);
    /* Temperature before top_p: at T = 2 the largest has less than 0.6 of two. */
    const float c[V] = {0.8f, 0, -99, -99, -99, -99, -99, -99};
    assert_int_equal(support(c, &(weft_rule){.sampler = {.temperature = 1}, SHAPING(.top_p = 0.65f)}, NULL), 0x01);
    assert_int_equal(support(c, &(weft_rule){.sampler = {.temperature = 2}, SHAPING(.top_p = 0.65f)}, NULL), 0x03);
    /* What is banned takes no place in top_k and no share of top_p. */
    const weft_rule banned = {.sampler = {.temperature = 1}, SHAPING(.top_k = 2), .bans = (int32_t[]){0, 2}, .n_bans = 2};
    assert_int_equal(support(flat, &banned, NULL), 0x0A);
    const weft_rule masked = {.sampler = {.temperature = 1}, SHAPING(.top_p = 0.5f), .mask = (uint64_t[]){0xF0}};
    assert_int_equal(support(flat, &masked, NULL), 0x30);
    /* A ban is stronger than any bias, and a repetition penalty does not lift it. */
    const weft_rule strong = {SHAPING(.bias = (weft_logit_bias[]){{0, 1e30f}, {1, -INFINITY}}, .n_bias = 2,
                                      .seen = (weft_seen[]){{0, 3}, {1, 3}}, .n_seen = 2, .repetition = 0.5f),
                              .bans = (int32_t[]){0}, .n_bans = 1};
    (void)support(flat, &strong, &got);
    assert_int_equal(got.id, 2);
}

/* mlx-serve: log-probabilities after temperature, of the wrong id. They are those of the raw logits, whatever the rule. */
static void test_raw_log_probabilities(void **unused) {
    (void)unused;
    const float raw[V] = {1, 2, 3, 0.5f, -1, 2.5f, 2, -4};
    double total = 0;
    for (int i = 0; i < V; i++) total += exp((double)raw[i]);
    const weft_shaping shaping = {.bias = (weft_logit_bias[]){{0, 50}, {2, -INFINITY}}, .n_bias = 2, .top_k = 1};
    for (int run = 0; run < 3; run++) {
        weft_picked got;
        (void)support(raw, &(weft_rule){.sampler = {.temperature = run}, .shaping = run ? &shaping : NULL}, &got);
        assert_int_equal(got.id, run ? 0 : 2);
        assert_true(got.logit == raw[got.id]);
        assert_true(fabs((double)got.log_sum - log(total)) < 1e-6);
        assert_int_equal(got.n_top, 3);
        assert_int_equal(got.top_id[0], 2);
        assert_int_equal(got.top_id[1], 5);
        assert_int_equal(got.top_id[2], 1);
        assert_true(got.top_logit[1] == 2.5f);
    }
}

/* Penalties look at what a draft row stands behind: base counts and drafts are what the counts will be once those are accepted. */
static void test_draft_rows(void **unused) {
    (void)unused;
    enum { N = 50, ROUNDS = 200 };
    sampling s = sampling_open(1, NULL, 1, N, NULL);
    float raw[N];
    for (int round = 0; round < ROUNDS; round++) {
        int32_t ids[20];
        for (int i = 0; i < 20; i++) ids[i] = below(round % 2 ? 5 : N);
        make_row(raw, N, 0);
        sampling_write(&s, 0, raw);
        weft_picked got[2];
        for (int way = 0; way < 2; way++) { /* the last `late` ids as drafts, or counted */
            weft_tally t = {0};
            int late = way ? 0 : below(8);
            assert_int_equal(weft_tally_add(&t, ids, 6, false, NULL), WEFT_OK);
            assert_int_equal(weft_tally_add(&t, ids + 6, 14 - late, true, NULL), WEFT_OK);
            const weft_shaping shaping = {
                .seen = t.ids.v, .n_seen = (int)t.ids.n, .repetition = 1.2f, .presence = 0.3f, .frequency = 0.2f};
            weft_pick pick = {.rule = {.sampler = {.temperature = 1, .seed = (uint64_t)round},
                                       .shaping = &shaping,
                                       .after = ids + 20 - late,
                                       .n_after = late}};
            assert_int_equal(sampling_pick(&s, &pick, 1, &got[way]), WEFT_OK);
            weft_tally_free(&t);
        }
        assert_memory_equal(&got[0], &got[1], offsetof(weft_picked, top_id));
    }
    sampling_close(&s);
}

/* MTPLX: no logit is a number, and token 0 comes out. What may not be drawn does not count. */
static void test_no_token(void **unused) {
    (void)unused;
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    weft_picked got;
    for (int b = 0; b < 3; b++)
        for (int run = 0; run < 3; run++) {
            const float raw[V] = {1, 2, broken[b], 3, 0, 0, 0, 0};
            const weft_shaping top = {.top_k = 2, .top_p = 0.9f};
            weft_rule rule = {.sampler = {.temperature = run ? 1 : 0}, .shaping = run == 2 ? &top : NULL};
            (void)support(raw, &rule, &got);
            assert_int_equal(got.id, -1);
            assert_int_equal(got.why, WEFT_TOKEN_NAN);
            rule.bans = (int32_t[]){2};
            rule.n_bans = 1;
            (void)support(raw, &rule, &got);
            assert_true(got.id >= 0 && got.id != 2);
            rule.mask = (uint64_t[]){4};
            (void)support(raw, &rule, &got);
            assert_int_equal(got.id, -1);
            assert_int_equal(got.why, WEFT_TOKEN_BANNED);
        }
}

/* Where exp((logit - largest) / T) is nothing, so is the probability: 2e5 draws never take such an id. */
static void test_nothing_is_never_drawn(void **unused) {
    (void)unused;
    enum { ROWS = 500 };
    sampling s = sampling_open(1, NULL, ROWS, V, NULL);
    const float raw[V] = {-800, 0, -1e30f, -FLT_MAX, -0.0f, -720, -1000, 0};
    static weft_pick picks[ROWS];
    static weft_picked got[ROWS];
    for (int i = 0; i < ROWS; i++) sampling_write(&s, i, raw);
    static const double temperatures[] = {1, 1e-3, 1e-30, DBL_MIN};
    for (int t = 0; t < 4; t++)
        for (uint32_t at = 0; at < 100; at++) {
            for (uint32_t i = 0; i < ROWS; i++)
                picks[i] = (weft_pick){.rule = {.sampler = {.temperature = temperatures[t], .seed = 5}, .index = at * ROWS + i}};
            assert_int_equal(sampling_pick(&s, picks, ROWS, got), WEFT_OK);
            for (int i = 0; i < ROWS; i++) assert_true(got[i].id == 1 || got[i].id == 4 || got[i].id == 7);
        }
    sampling_close(&s);
}

static void test_bad_rules(void **unused) {
    (void)unused;
    sampling s = sampling_open(1, NULL, 1, V, NULL);
    const float raw[V] = {0};
    weft_picked got;
    sampling_write(&s, 0, raw);
    const weft_pick bad[] = {
        {.rule.sampler.temperature = NAN},
        {.rule.sampler.temperature = -1},
        {.rule.sampler.temperature = INFINITY},
        {.rule = {SHAPING(.top_p = NAN)}},
        {.rule = {SHAPING(.top_p = -0.1f)}},
        {.rule = {SHAPING(.min_p = 1.5f)}},
        {.rule = {SHAPING(.top_k = -1)}},
        {.rule = {SHAPING(.repetition = -1)}},
        {.rule = {SHAPING(.repetition = INFINITY)}},
        {.rule = {SHAPING(.presence = NAN)}},
        {.rule = {SHAPING(.frequency = INFINITY)}},
        {.rule = {SHAPING(.bias = (weft_logit_bias[]){{V, 1}}, .n_bias = 1)}},
        {.rule = {SHAPING(.bias = (weft_logit_bias[]){{-1, 1}}, .n_bias = 1)}},
        {.rule = {SHAPING(.bias = (weft_logit_bias[]){{1, INFINITY}}, .n_bias = 1)}},
        {.rule = {SHAPING(.bias = (weft_logit_bias[]){{1, 1}, {1, 1}}, .n_bias = 2)}},
        {.rule = {SHAPING(.seen = (weft_seen[]){{2, 1}, {1, 1}}, .n_seen = 2)}},
        {.rule = {SHAPING(.seen = (weft_seen[]){{V, 1}}, .n_seen = 1)}},
        {.rule = {.bans = (int32_t[]){V}, .n_bans = 1}},
        {.rule = {.after = (int32_t[]){-1}, .n_after = 1}},
        {.rule = {.sampler.temperature = 1, SHAPING(.top_k = 1)}}, /* no row to do it in */
        {.keep = s.p, .keep_row = 1},
        {.top = WEFT_MAX_TOP + 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sampling_pick(&s, &bad[i], 1, &got) != WEFT_EINVAL) fail_msg("rule %zu went through", i);
    assert_int_equal(sampling_pick(&s, &(weft_pick){.top = 1}, 1, &got), WEFT_OK);
    sampling_close(&s);
}

static void test_tally(void **unused) {
    (void)unused;
    weft_tally t = {0};
    enum { N = 3000, IDS = 400 };
    uint32_t times[IDS] = {0};
    bool seen[IDS] = {0};
    for (int i = 0; i < N; i++) {
        int32_t id = below(IDS);
        bool completion = i > N / 2;
        assert_int_equal(weft_tally_add(&t, &id, 1, completion, NULL), WEFT_OK);
        seen[id] = true;
        times[id] += completion;
    }
    size_t at = 0;
    for (int32_t id = 0; id < IDS; id++) {
        if (!seen[id]) continue;
        assert_int_equal(t.ids.v[at].id, id);
        assert_int_equal(t.ids.v[at++].times, times[id]);
    }
    assert_int_equal(at, t.ids.n);
    weft_tally_free(&t);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

/* Every copy of the kernels gives the bits of the plain functions, at every length. */
static void test_kernels(void **unused) {
    (void)unused;
    enum { N = 700, ROOM = N + 16 };
    static float x[ROOM], y[ROOM], most[8];
    static bool allowed[ROOM];
    static int32_t ids[N];
    static double w[ROOM];
    static uint64_t bits[ROOM], g[ROOM], least[8];
    for (int k = 0; weft_isas[k]; k++) {
        if (!weft_isa_here(weft_isas[k])) continue;
        const weft_kernels *t = weft_isas[k]->kernels;
        for (int n = 1; n <= N; n += n < 140 ? 1 : 37) {
            make_row(x, n, n % 6);
            for (int i = 0; i < n; i++) allowed[i] = random_u32() % 3 > 0;
            uint64_t seed = (uint64_t)random_u32() << 32 | random_u32(), sum = 0;
            uint32_t choice = random_u32(), index = random_u32(), first = random_u32() & (n % 3 ? ~31u : ~0u);
            t->permit(y, x, allowed, n);
            t->noise(bits, least, seed, choice, index, &(weft_columns){.n = n, .first = (int32_t)first});
            t->largest(most, y, n);
            for (int i = 0; i < n; i++) {
                assert_true(allowed[i] ? isfinite(x[i]) ? y[i] == x[i] : y[i] != y[i] : y[i] == -INFINITY);
                assert_true(bits[i] == weft_gumbel_bits(seed, choice, index, first + (uint32_t)i));
                ids[i] = (int32_t)(random_u32() >> 1);
            }
            if (n % 2) { /* ids of a list, in memory that ends with it */
                memmove(ids + N - n, ids, (size_t)n * sizeof *ids);
                t->noise(bits, least, seed, choice, index, &(weft_columns){.n = n, .ids = ids + N - n});
                for (int i = 0; i < n; i++) assert_true(bits[i] == weft_gumbel_bits(seed, choice, index, (uint32_t)ids[N - n + i]));
            }
            float max = -INFINITY;
            for (int at = 0, b = 0; at < n; at += SUPPORT_BLOCK, b++) {
                float m = -INFINITY;
                uint64_t l = UINT64_MAX;
                bool nan = false;
                for (int i = at; i < n && i < at + SUPPORT_BLOCK; i++) {
                    m = y[i] > m ? y[i] : m;
                    nan |= y[i] != y[i];
                    l = bits[i] < l ? bits[i] : l;
                }
                assert_true(nan ? most[b] != most[b] : most[b] == m);
                assert_true(least[b] == l);
                max = m > max ? m : max;
            }
            if (n % 6 == 5 || max == -INFINITY) continue; /* weights are of rows that have a largest logit */
            static const double scales[] = {1, 1.4, 0.1, 1e5, 1e-30, 1e300};
            double scale = scales[n % 6];
            t->weights(w, y, n, (double)max, scale);
            uint64_t total = t->grains(g, y, n, (double)max, scale);
            for (int i = 0; i < n; i++) {
                double by = ((double)y[i] - (double)max) * scale, want = by < LEAST_EXPONENT ? 0 : exp(by);
                assert_true(w[i] == weight_of((double)y[i], (double)max, scale));
                assert_true(fabs(w[i] - want) <= 4 * 0x1p-53 * want);
                assert_true(g[i] == (uint64_t)nearbyint(w[i] * 0x1p44));
                if (y[i] == max) assert_true(w[i] == 1);
                sum += g[i];
            }
            assert_true(total == sum);
        }
    }
}

/* ---- speed --------------------------------------------------------------------------------------------------------------- */

static void bench_one(sampling *s, const char *name, const weft_pick *pick) {
    weft_picked got;
    double best = 1;
    for (int i = 0; i < 60; i++) {
        uint64_t start = weft_now_ns();
        (void)sampling_pick(s, pick, 1, &got);
        double t = (double)(weft_now_ns() - start) * 1e-9;
        best = t < best ? t : best;
    }
    printf("  %-52s %7.3f ms\n", name, best * 1e3);
}
static void bench(void) {
    enum { VOCAB = 248320 };
    float *raw = malloc(VOCAB * sizeof *raw);
    for (int i = 0; i < VOCAB; i++) raw[i] = gaussian(2.5f);
    for (int i = 0; i < 12; i++) raw[below(VOCAB)] = 14 + gaussian(2); /* likely ones */
    weft_tally t = {0};
    for (int i = 0; i < 4000; i++) {
        int32_t id = below(VOCAB);
        (void)weft_tally_add(&t, &id, 1, i & 1, NULL);
    }
    const weft_shaping k_p = {.top_k = 20, .top_p = 0.95f, .min_p = 0.01f}, p = {.top_p = 0.95f}, m = {.min_p = 0.05f},
                       seen = {.seen = t.ids.v, .n_seen = (int)t.ids.n, .repetition = 1.1f, .presence = 1},
                       all = {.seen = t.ids.v,
                              .n_seen = (int)t.ids.n,
                              .repetition = 1.1f,
                              .presence = 1,
                              .top_k = 20,
                              .top_p = 0.95f,
                              .min_p = 0.01f};
    const weft_sampler warm = {.temperature = 0.8, .seed = 3}, hot = {.temperature = 2, .seed = 3};
    for (int threads = 1; threads <= 2; threads++) {
        sampling s = sampling_open(threads, NULL, 1, VOCAB, NULL);
        sampling_write(&s, 0, raw);
        printf("one row of %d logits in memory, %d thread%s (best of 60)\n", VOCAB, threads, threads > 1 ? "s" : "");
        bench_one(&s, "greedy", &(weft_pick){0});
        bench_one(&s, "greedy, penalties of 4000 ids", &(weft_pick){.rule.shaping = &seen});
        bench_one(&s, "temperature", &(weft_pick){.rule.sampler = warm});
        bench_one(&s, "top_k 20, top_p 0.95, min_p 0.01", &(weft_pick){.rule = {.sampler = warm, .shaping = &k_p}, .keep = s.p});
        bench_one(&s, "the same with penalties of 4000 ids", &(weft_pick){.rule = {.sampler = warm, .shaping = &all}, .keep = s.p});
        bench_one(&s, "top_p 0.95", &(weft_pick){.rule = {.sampler = warm, .shaping = &p}, .keep = s.p});
        bench_one(&s, "top_p 0.95 at temperature 2", &(weft_pick){.rule = {.sampler = hot, .shaping = &p}, .keep = s.p});
        bench_one(&s, "min_p 0.05", &(weft_pick){.rule = {.sampler = warm, .shaping = &m}, .keep = s.p});
        bench_one(&s, "temperature, kept for a trial", &(weft_pick){.rule.sampler = warm, .keep = s.p});
        sampling_close(&s);
    }
    weft_tally_free(&t);
    free(raw);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_vocabularies),
        cmocka_unit_test(test_large_vocabularies),
        cmocka_unit_test(test_heads_with_some_ids),
        cmocka_unit_test(test_bad_ids_of_heads),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_raw_log_probabilities),
        cmocka_unit_test(test_draft_rows),
        cmocka_unit_test(test_no_token),
        cmocka_unit_test(test_nothing_is_never_drawn),
        cmocka_unit_test(test_bad_rules),
        cmocka_unit_test(test_tally),
        cmocka_unit_test(test_kernels),
    };
    weft_fpu_enter();
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        bench();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_sample_law.c: the tokens have the law that they should: chi-square of a million draws on tiny vocabularies, of the coupled
 * draw and of rejection sampling, and the latter's formulas summed over all outcomes. Faults that are planted must show. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "base/fpu.h"
#include "ops/cpu/weight.h"
#include "sample_device.h"
#include "sanitizers.h"

#if SANITIZED
enum { DRAWS = 100000 };
#else
enum { DRAWS = 1000000 };
#endif
enum { V = 8, ROWS = 1000 };
#define LIMIT                                                                                                                      \
    45.0 /* of chi-square with up to 7 degrees of freedom: less than one in a million is above. Draws are fixed by seeds */

static const float target[V] = {1.0f, 0.2f, -0.5f, 2.0f, 0.2f, -3.0f, 1.5f, 0.0f};
static const float drafter[V] = {0.0f, 1.2f, -0.5f, 1.0f, 0.9f, -1.0f, -1.5f, 2.0f};

/* The law of a kept row. */
static void law_of(const weft_kept *k, int row, double p[V]) {
    const kept_row *r = &k->row[row];
    for (int i = 0; i < r->vocab; i++) p[i] = weight_of((double)buf_row(k->logits, row)[i], r->max, r->scale) / r->sum;
}
/* What it should be, for ids of the set `in`. */
static void softmax(const float *logits, double temperature, unsigned in, double p[V]) {
    double total = 0;
    for (int i = 0; i < V; i++) total += p[i] = in >> i & 1 ? exp((double)logits[i] / temperature) : 0;
    for (int i = 0; i < V; i++) p[i] /= total;
}
/* An id without probability that came is infinitely wrong. */
static double chi_square(const int *counts, const double *p, int n) {
    double chi = 0;
    for (int i = 0; i < V; i++) {
        double want = n * p[i];
        if (want == 0 && counts[i]) return INFINITY;
        if (want > 0) chi += (counts[i] - want) * (counts[i] - want) / want;
    }
    return chi;
}

static weft_pick picks[ROWS];
static weft_picked picked[ROWS];
static weft_trial trials[ROWS];
static weft_verdict verdicts[ROWS];

static void pick_rows(sampling *s, const float *logits, const weft_rule *rule, weft_kept *keep, uint32_t index) {
    for (int i = 0; i < ROWS; i++) {
        sampling_write(s, i, logits);
        picks[i] = (weft_pick){.rule = *rule, .keep = keep, .keep_row = i};
        picks[i].rule.index = index + (uint32_t)i;
    }
    assert_int_equal(sampling_pick(s, picks, ROWS, picked), WEFT_OK);
}
static void try_rows(sampling *s) {
    weft_error e;
    sampling_begin(s);
    weft_try_drafts(s->d, trials, ROWS);
    for (int i = 0; i < ROWS; i++) (void)weft_read_verdict(s->d, i, &verdicts[i], &e);
    if (weft_end(s->d, &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* ---- the coupled draw ---------------------------------------------------------------------------------------------------- */

static void test_coupled_draw(void **unused) {
    (void)unused;
    const weft_shaping two[] = {{.top_k = 5, .top_p = 0.89f}, {.min_p = 0.1f}};
    const weft_rule rules[] = {
        {.sampler = {0.7, 1, 0}}, {.sampler = {1.4, 2, 1}, .shaping = &two[0]}, {.sampler = {1, 3, 0}, .shaping = &two[1]}};
    const unsigned in[] = {0xFF, 0x4B, 0xDB}; /* ids 3, 6, 0, then of the equal 1 and 4 the first */
    sampling s = sampling_open(1, NULL, ROWS, V, NULL);
    for (int r = 0; r < 3; r++) {
        int counts[V] = {0};
        double p[V], want[V];
        for (uint32_t at = 0; at < DRAWS; at += ROWS) {
            pick_rows(&s, target, &rules[r], r ? s.p : NULL, at);
            for (int i = 0; i < ROWS; i++) counts[picked[i].id]++;
        }
        softmax(target, rules[r].sampler.temperature, in[r], want);
        double chi = chi_square(counts, want, DRAWS);
        if (!(chi < LIMIT)) fail_msg("rule %d: chi-square %.1f", r, chi);
        softmax(target, rules[r].sampler.temperature * 1.02, in[r], want); /* the test sees two per cent */
        if (DRAWS >= 1000000) assert_true(chi_square(counts, want, DRAWS) > LIMIT);
        if (!r) continue;
        law_of(s.p, 0, p);
        softmax(target, rules[r].sampler.temperature, in[r], want);
        for (int i = 0; i < V; i++) assert_true(fabs(p[i] - want[i]) < 1e-14);
    }
    sampling_close(&s);
}

/* ---- rejection: the formulas --------------------------------------------------------------------------------------------- */

/* The law of the token by the formulas, summed over every draft and both outcomes. */
static void law_of_rejection(const double *p, const double *q, double out[V]) {
    double rest = 0, refused = 0;
    for (int i = 0; i < V; i++) rest += p[i] > q[i] ? p[i] - q[i] : 0;
    for (int x = 0; x < V; x++) {
        double keep = q[x] > 0 ? fmin(1, p[x] / q[x]) : 0;
        out[x] = q[x] * keep;
        refused += q[x] * (1 - keep);
    }
    for (int y = 0; y < V && rest > 0; y++) out[y] += refused * (p[y] > q[y] ? p[y] - q[y] : 0) / rest;
}

static void test_formulas(void **unused) {
    (void)unused;
    static const unsigned sets[] = {0xFF, 0x0F, 0xF0, 0x01, 0x88, 0x5A};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++) {
            double p[V], q[V], out[V];
            softmax(target, 0.8, sets[a], p);
            softmax(drafter, 1.1, sets[b], q);
            law_of_rejection(p, q, out);
            for (int i = 0; i < V; i++) assert_true(fabs(out[i] - p[i]) < 1e-15);
        }
    for (int i = 0; i < 1000; i++) /* never kept without probability, always where the target gives it no less */
        assert_true(!weft_accepts(0, 0.5, (i + 0.5) / 1000) && weft_accepts(0.5, 0.5, (i + 0.5) / 1000));
}

/* ---- rejection: the draws ------------------------------------------------------------------------------------------------ */

/* Laws of p and q that a run uses, and what it is told of them. */
typedef struct run {
    weft_rule p, q;
    const weft_rule *told_q; /* NULL: q, as it should be */
    bool point;              /* drafts come without chance: id 2 */
    unsigned in;             /* the target's support */
} run;

static double run_chi(sampling *s, const run *r, uint32_t draws, double *kept) {
    int counts[V] = {0}, n_kept = 0;
    double want[V];
    static int32_t drafts[ROWS];
    for (uint32_t at = 0; at < draws; at += ROWS) {
        pick_rows(s, target, &r->p, s->p, at);
        pick_rows(s, drafter, &r->q, s->q, at);
        for (int i = 0; i < ROWS; i++) drafts[i] = r->point ? 2 : picked[i].id;
        if (r->told_q) pick_rows(s, drafter, r->told_q, s->q, at);
        for (int i = 0; i < ROWS; i++)
            trials[i] = (weft_trial){.p = s->p,
                                     .p_row = i,
                                     .q = r->point ? NULL : s->q,
                                     .q_row = i,
                                     .draft = drafts[i],
                                     .sampler = r->q.sampler,
                                     .index = at + (uint32_t)i};
        try_rows(s);
        for (int i = 0; i < ROWS; i++) {
            assert_int_equal(verdicts[i].why, WEFT_TOKEN);
            if (verdicts[i].kept) assert_int_equal(verdicts[i].id, drafts[i]);
            n_kept += verdicts[i].kept;
            counts[verdicts[i].id]++;
        }
    }
    *kept = (double)n_kept / draws;
    softmax(target, r->p.sampler.temperature, r->in, want);
    return chi_square(counts, want, (int)draws);
}

static void test_rejection(void **unused) {
    (void)unused;
    const weft_shaping cut = {.top_k = 5, .top_p = 0.89f}, narrow = {.top_k = 3};
    const run runs[] = {
        {.p = {.sampler = {0.8, 7, 0}}, .q = {.sampler = {0.8, 7, 0}}, .in = 0xFF},
        {.p = {.sampler = {1.4, 8, 1}, .shaping = &cut}, .q = {.sampler = {1.4, 8, 1}, .shaping = &narrow}, .in = 0x4B},
        {.p = {.sampler = {1, 9, 0}}, .q = {.sampler = {3, 9, 0}, .shaping = &cut}, .in = 0xFF},
        {.p = {.sampler = {1, 10, 0}}, .q = {.sampler = {0, 10, 0}}, .in = 0xFF}, /* a greedy drafter is all at one id */
        {.p = {.sampler = {1, 11, 0}}, .q = {.sampler = {1, 11, 0}}, .point = true, .in = 0xFF},
    };
    sampling s = sampling_open(1, NULL, ROWS, V, NULL);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        double kept, p[V], q[V] = {0}, overlap = 0;
        double chi = run_chi(&s, &runs[r], DRAWS, &kept);
        if (!(chi < LIMIT)) fail_msg("run %zu: chi-square %.1f", r, chi);
        law_of(s.p, 0, p);
        if (runs[r].point)
            q[2] = 1;
        else
            law_of(s.q, 0, q);
        for (int i = 0; i < V; i++) overlap += fmin(p[i], q[i]);
        assert_true(fabs(kept - overlap) < 6 * 0.5 / sqrt(DRAWS)); /* the share that theory has: 1 - total variation */
    }
    sampling_close(&s);
}

/* A vLLM patch set: q by the raw logits, the target at a temperature. Told another q than the one that drew, the law is wrong, and
 * this test sees it. */
static void test_wrong_q_shows(void **unused) {
    (void)unused;
    const weft_shaping cut = {.top_k = 5};
    const weft_rule raw = {.sampler = {1, 12, 0}}, cut_q = {.sampler = {0.7, 12, 0}, .shaping = &cut};
    const run runs[] = {
        {.p = {.sampler = {0.7, 12, 0}}, .q = {.sampler = {0.7, 12, 0}}, .told_q = &raw, .in = 0xFF},
        {.p = {.sampler = {0.7, 12, 0}}, .q = cut_q, .told_q = &(weft_rule){.sampler = {0.7, 12, 0}}, .in = 0xFF},
    };
    sampling s = sampling_open(1, NULL, ROWS, V, NULL);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        double kept;
        assert_true(run_chi(&s, &runs[r], 100000, &kept) > 10 * LIMIT);
    }
    sampling_close(&s);
}

/* The same by plain formulas, right and with one fault each. */
typedef enum fault { NONE, NOT_NORMALISED, KEPT_BY_P, DROPPED_BY_Q, DRAWN_FROM_P, SAME_NUMBER, FAULTS } fault;

static int32_t first_above(const double *w, double u) {
    double at = 0;
    int32_t last = -1;
    for (int32_t i = 0; i < V; i++) {
        if (!(w[i] > 0)) continue;
        last = i;
        at += w[i];
        if (at > u) break;
    }
    return last;
}
static int32_t reject(const double *p, const double *q, int32_t draft, const weft_sampler *s, uint32_t index, fault f) {
    double u = weft_uniform(s, index, WEFT_FOR_ACCEPT), v = weft_uniform(s, index, WEFT_FOR_RESIDUAL), rest[V], total = 0;
    bool keep = weft_accepts(p[draft], q[draft], u);
    if (f == KEPT_BY_P) keep = u < p[draft];
    if (f == DROPPED_BY_Q) keep = u >= q[draft];
    if (f == SAME_NUMBER) v = u;
    if (keep) return draft;
    for (int i = 0; i < V; i++) total += rest[i] = p[i] > q[i] ? p[i] - q[i] : 0;
    if (f == DRAWN_FROM_P) return first_above(p, v);
    return first_above(rest, f == NOT_NORMALISED ? v : v * total);
}
static void test_planted_faults_show(void **unused) {
    (void)unused;
    const weft_sampler sampler = {0.9, 21, 2};
    double p[V], q[V];
    softmax(target, 0.9, 0xFF, p);
    softmax(drafter, 0.9, 0xFF, q);
    for (fault f = NONE; f < FAULTS; f++) {
        int counts[V] = {0};
        for (uint32_t i = 0; i < DRAWS; i++) {
            int32_t draft = first_above(q, weft_uniform(&sampler, i, WEFT_FOR_BONUS)); /* a third stream: independent of the two */
            counts[reject(p, q, draft, &sampler, i, f)]++;
        }
        double chi = chi_square(counts, p, DRAWS);
        if (f == NONE ? !(chi < LIMIT) : !(chi > 10 * LIMIT)) fail_msg("fault %d: chi-square %.1f", (int)f, chi);
    }
}

/* ---- chains -------------------------------------------------------------------------------------------------------------- */

/* Draft, draft, bonus; the law of the first token, and of the second given the first, whether drafts were kept or not. The drafter
 * of the first has a vocabulary of its own: ids 1, 3, 4, 6. */
static void test_chains(void **unused) {
    (void)unused;
    enum { OWN = 4, CHAINS = ROWS / 3 };
    static const int32_t ids[OWN] = {1, 3, 4, 6};
    const float own[OWN] = {0.5f, 1, 0, -1};
    const weft_sampler sampler = {1, 31, 0};
    int first[V] = {0}, second[V] = {0}, third[V] = {0}, n[3] = {0};
    sampling s = sampling_open(1, NULL, ROWS, V, NULL);
    double p[V];
    softmax(target, 1, 0xFF, p);
    for (uint32_t at = 0; at < DRAWS; at += CHAINS) {
        pick_rows(&s, target, &(weft_rule){.sampler = sampler}, s.p, at);
        /* A drafter's row of four columns: the rest is banned, so that its columns are the first four. */
        float row[V] = {own[0], own[1], own[2], own[3], 0, 0, 0, 0};
        pick_rows(&s, row, &(weft_rule){.sampler = sampler, .mask = (uint64_t[]){0x0F}}, s.q, at);
        for (int c = 0; c < CHAINS; c++) {
            s.q->row[c].vocab = OWN;
            uint32_t index = 3 * (at + (uint32_t)c);
            const weft_trial base = {.p = s.p, .p_row = c, .sampler = sampler};
            for (int k = 0; k < 3; k++) {
                weft_trial *t = &trials[3 * c + k];
                *t = base;
                t->index = index + (uint32_t)k;
                t->follows = k > 0;
                t->draft = k == 0 ? ids[picked[c].id] : k == 1 ? 3 : -1;
                if (k) continue;
                t->q = s.q;
                t->q_row = c;
                t->q_ids = ids;
            }
        }
        for (int i = 3 * CHAINS; i < ROWS; i++) trials[i] = (weft_trial){.p = s.p, .draft = -1};
        try_rows(&s);
        for (int c = 0; c < CHAINS; c++) {
            const weft_verdict *v = &verdicts[3 * c];
            first[v[0].id]++, n[0]++;
            if (v[0].kept) second[v[1].id]++, n[1]++;
            if (v[0].kept && v[1].kept) third[v[2].id]++, n[2]++;
            if (!v[0].kept) assert_true(v[1].id == -1 && !v[1].kept);
            if (!v[0].kept || !v[1].kept) assert_true(v[2].id == -1 && v[2].why == WEFT_TOKEN);
            assert_false(v[2].kept);
        }
    }
    assert_true(n[2] > DRAWS / 20);
    assert_true(chi_square(first, p, n[0]) < LIMIT);
    assert_true(chi_square(second, p, n[1]) < LIMIT);
    assert_true(chi_square(third, p, n[2]) < LIMIT);
    sampling_close(&s);
}

/* Broken rows and impossible trials. */
static void test_trials_without_a_token(void **unused) {
    (void)unused;
    sampling s = sampling_open(1, NULL, ROWS, V, NULL);
    float broken[V];
    memcpy(broken, target, sizeof broken);
    broken[5] = NAN;
    const weft_rule warm = {.sampler = {1, 41, 0}};
    pick_rows(&s, broken, &warm, s.p, 0);
    for (int i = 0; i < ROWS; i++) trials[i] = (weft_trial){.p = s.p, .p_row = i, .draft = i % 2 ? 3 : -1, .follows = i % 4 == 2};
    try_rows(&s);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(verdicts[i].id, -1);
        assert_false(verdicts[i].kept);
        assert_int_equal(verdicts[i].why, i % 4 == 2 ? WEFT_TOKEN : WEFT_TOKEN_NAN);
    }
    /* A drafter that gave no number: whatever id the caller took came without chance. Id 5 has no probability: it always goes. */
    pick_rows(&s, target, &(weft_rule){.sampler = warm.sampler, .bans = (int32_t[]){5}, .n_bans = 1}, s.p, 0);
    pick_rows(&s, broken, &warm, s.q, 0);
    for (int i = 0; i < ROWS; i++)
        trials[i] =
            (weft_trial){.p = s.p, .p_row = i, .q = s.q, .q_row = i, .draft = 5, .sampler = warm.sampler, .index = (uint32_t)i};
    try_rows(&s);
    int counts[V] = {0};
    double p[V];
    for (int i = 0; i < ROWS; i++) {
        assert_false(verdicts[i].kept);
        counts[verdicts[i].id]++;
    }
    softmax(target, 1, 0xDF, p);
    assert_true(chi_square(counts, p, ROWS) < LIMIT);
    pick_rows(&s, target, &(weft_rule){.sampler = warm.sampler, .bans = (int32_t[]){5}, .n_bans = 1}, s.q, 0);
    const weft_trial bad[] = {{.p = s.p, .q = s.q, .draft = 5},
                              {.p = s.p, .p_row = ROWS},
                              {.p = s.p, .p_row = -1},
                              {.p_row = 0},
                              {.p = s.p, .q = s.q, .q_row = ROWS}};
    for (int i = 0; i < 5; i++) {
        weft_error e;
        sampling_begin(&s);
        weft_try_drafts(s.d, &bad[i], 1);
        assert_int_equal(weft_end(s.d, &e), WEFT_EINVAL);
    }
    sampling_close(&s);
}

/* A large vocabulary: the draw of the rest is where the sum in plain order says, by any number of threads and any kernels. */
static void test_large_vocabularies(void **unused) {
    (void)unused;
    enum { LARGE = 30011, N = 16 };
    float *row = malloc(LARGE * sizeof *row);
    double *p[2];
    for (int i = 0; i < 2; i++) p[i] = malloc(LARGE * sizeof *p[i]);
    static weft_verdict seen[N];
    for (int run = 0; run < 3; run++) {
        sampling s = sampling_open(run == 1 ? 3 : 1, run == 2 ? "reference" : NULL, N, LARGE, NULL);
        const weft_rule rule = {.sampler = {1.2, 51, 0}};
        for (int which = 0; which < 2; which++) {
            for (int i = 0; i < N; i++) {
                for (int k = 0; k < LARGE; k++) row[k] = (float)((uint32_t)k * 2654435761u >> (10 + which) & 1023) * 0.008f;
                sampling_write(&s, i, row);
                picks[i] = (weft_pick){.rule = rule, .keep = which ? s.q : s.p, .keep_row = i};
                picks[i].rule.index = (uint32_t)i;
            }
            assert_int_equal(sampling_pick(&s, picks, N, picked), WEFT_OK);
        }
        for (int i = 0; i < N; i++)
            trials[i] = (weft_trial){
                .p = s.p, .p_row = i, .q = s.q, .q_row = i, .draft = picked[i].id, .sampler = rule.sampler, .index = (uint32_t)i};
        weft_error e;
        sampling_begin(&s);
        weft_try_drafts(s.d, trials, N);
        int dropped = 0;
        for (int i = 0; i < N; i++) {
            weft_verdict v;
            assert_int_equal(weft_read_verdict(s.d, i, &v, &e), WEFT_OK);
            if (run) assert_true(v.id == seen[i].id && v.kept == seen[i].kept);
            seen[i] = v;
            dropped += !v.kept;
            double total[2] = {0}, rest = 0, at = 0, before = 0;
            for (int w = 0; w < 2; w++) {
                const float *l = sampling_kept(w ? s.q : s.p, i);
                for (int k = 0; k < LARGE; k++) total[w] += p[w][k] = exp((double)l[k] / 1.2);
                for (int k = 0; k < LARGE; k++) p[w][k] /= total[w];
            }
            int32_t draft = trials[i].draft;
            double ratio = p[0][draft] / p[1][draft], u = weft_uniform(&rule.sampler, (uint32_t)i, WEFT_FOR_ACCEPT);
            assert_true(v.kept == (u < ratio) || fabs(u - ratio) < 1e-9);
            if (v.kept) continue;
            for (int k = 0; k < LARGE; k++) rest += fmax(0, p[0][k] - p[1][k]);
            for (int k = 0; k <= v.id; k++) before = at, at += fmax(0, p[0][k] - p[1][k]);
            double wanted = rest * weft_uniform(&rule.sampler, (uint32_t)i, WEFT_FOR_RESIDUAL);
            assert_true(before - 1e-12 < wanted && wanted < at + 1e-12 && at > before);
        }
        assert_true(dropped > 0);
        assert_int_equal(weft_end(s.d, &e), WEFT_OK);
        sampling_close(&s);
    }
    free(row);
    free(p[0]);
    free(p[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coupled_draw),
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_rejection),
        cmocka_unit_test(test_wrong_q_shows),
        cmocka_unit_test(test_planted_faults_show),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_trials_without_a_token),
        cmocka_unit_test(test_large_vocabularies),
    };
    weft_fpu_enter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

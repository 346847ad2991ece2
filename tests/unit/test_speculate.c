/* test_speculate.c: looking up what came before, choosing depths, and that neither changes a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"

static uint64_t seed = 9;
static int below(int n) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (int)((uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32) % (uint32_t)n);
}

/* ---- ngrams -------------------------------------------------------------------------------------------------------------- */

/* The longest run that agrees with the end, the newest of these, by looking at everything. */
static int plain_find(const int32_t *ids, int n, size_t *next) {
    int best = 0;
    for (int at = n - 2; at >= WEFT_NGRAM - 1; at--) {
        int run = 0;
        while (run < WEFT_NGRAM_LONGEST && run <= at && ids[at - run] == ids[n - 1 - run]) run++;
        if (run >= WEFT_NGRAM && run > best) best = run, *next = (size_t)at + 1;
    }
    return best;
}

static void test_ngrams_find_the_longest_match(void **state) {
    (void)state;
    enum { N = 400 };
    weft_error e;
    for (int round = 0; round < 60; round++) {
        int32_t ids[N];
        weft_ngrams g;
        int kinds = 12 + round; /* few enough candidates that all are looked at */
        for (int i = 0; i < N; i++) ids[i] = below(kinds);
        if (round % 2) memcpy(ids + 300, ids + 20, 90 * sizeof *ids); /* a long copy */
        assert_int_equal(weft_ngrams_open(&g, N, &e), WEFT_OK);
        for (int n = 1; n <= N; n += 1 + below(4)) {
            size_t got = 0, want = 0;
            weft_ngrams_enter(&g, ids, (size_t)n);
            int length = weft_ngrams_find(&g, ids, (size_t)n, &got);
            assert_int_equal(length, plain_find(ids, n, &want));
            if (length) assert_int_equal(got, want);
        }
        weft_ngrams_close(&g);
    }
    weft_ngrams g;
    weft_alloc_fail_at(2);
    assert_int_equal(weft_ngrams_open(&g, 100, &e), WEFT_ENOMEM);
    weft_alloc_fail_at(0);
    weft_ngrams_close(&g);
}

/* ---- depths -------------------------------------------------------------------------------------------------------------- */

static weft_acceptance shares(float a, float b, float c) {
    return (weft_acceptance){.share = {a, b, c, c, c, c, c, c}};
}

static void test_depths_that_pay(void **state) {
    (void)state;
    weft_costs c = {.link_ns = 8};
    for (int r = 1; r <= 9; r++) c.pass_ns[r] = 100 + 4 * (r - 1);
    weft_acceptance good = shares(0.9f, 0.85f, 0.8f), bad = shares(0.05f, 0.02f, 0.01f);
    weft_depth_wish w[2] = {{.accepted = &good, .from = WEFT_DRAFTER_MODEL, .most = 4}};
    weft_depths_choose(&c, 1, w, 1);
    assert_int_equal(w[0].depth, 4);
    w[0].accepted = &bad; /* drafts that fail: none */
    weft_depths_choose(&c, 1, w, 1);
    assert_int_equal(w[0].depth, 0);
    /* By hand: 1 token in 100; 1.6 in 112; 1.9 in 124; 2.02 in 136. */
    weft_acceptance middling = shares(0.6f, 0.5f, 0.4f);
    w[0].accepted = &middling;
    weft_depths_choose(&c, 1, w, 1);
    assert_int_equal(w[0].depth, 2);
    /* Two requests: the likely drafts of one before the unlikely ones of the other. */
    w[0].accepted = &good;
    w[1] = (weft_depth_wish){.accepted = &bad, .from = WEFT_DRAFTER_MODEL, .most = 4};
    for (int r = 1; r <= 12; r++) c.pass_ns[r] = 100 + 10 * (r - 1);
    weft_depths_choose(&c, 2, w, 2);
    assert_true(w[0].depth >= 3);
    assert_int_equal(w[1].depth, 0);
    /* Rows that cost a pass each never pay. */
    for (int r = 1; r <= 12; r++) c.pass_ns[r] = 100.0 * r;
    weft_depths_choose(&c, 1, w, 1);
    assert_int_equal(w[0].depth, 0);
    /* What was looked up needs no link. */
    w[0].from = WEFT_DRAFTER_LOOKUP;
    c.link_ns = 1e9;
    for (int r = 1; r <= 12; r++) c.pass_ns[r] = 100 + 4 * (r - 1);
    weft_depths_choose(&c, 1, w, 1);
    assert_int_equal(w[0].depth, 4);
}

static void test_drafts_are_tried_again(void **state) {
    (void)state;
    weft_costs c = {.link_ns = 1e9, .pass_ns = {[1] = 100}}; /* a link that was measured in a bad moment */
    weft_acceptance good = shares(0.9f, 0.9f, 0.9f);
    weft_depth_wish w = {.accepted = &good, .from = WEFT_DRAFTER_MODEL, .most = 4};
    int tried = 0, passes = 0;
    for (; passes < 4000; passes++) {
        weft_depths_choose(&c, 1, &w, 1);
        assert_int_equal(w.depth, 0);
        tried += weft_depths_explore(&c, 1, 1, true);
    }
    assert_true(tried >= 6 && tried <= 20); /* dear as it is */
    c.link_ns = 5, c.idle = tried = 0;
    for (int pass = 0; pass < 4000; pass++) tried += weft_depths_explore(&c, 1, 1, true);
    assert_true(tried >= 200 && tried <= 600); /* half a percent of the time, at 8 percent of a pass */
    c.link_ns = 1e9;
    for (int i = 0; i < 60; i++) weft_costs_link(&c, 5);
    weft_depths_choose(&c, 1, &w, 1);
    assert_true(w.depth >= 3);
}

static void test_costs_are_monotone(void **state) {
    (void)state;
    weft_costs c = {0};
    assert_true(weft_costs_at(&c, 4) > weft_costs_at(&c, 1)); /* nothing measured yet */
    weft_costs_pass(&c, 1, 1000);
    weft_costs_pass(&c, 6, 900); /* noise */
    weft_costs_pass(&c, 12, 2000);
    for (int r = 2; r <= 200; r++) assert_true(weft_costs_at(&c, r) >= weft_costs_at(&c, r - 1));
    assert_true(weft_costs_at(&c, 6) == 1000);
    weft_costs_pass(&c, 1000000, 5); /* more rows than are kept apart */
    /* A machine that got slower is slower for all: the ratios stay, though one of them is measured again and again. */
    for (int i = 0; i < 400; i++) weft_costs_pass(&c, 12, 8000);
    double ratio = weft_costs_at(&c, 12) / weft_costs_at(&c, 1);
    assert_true(ratio > 1.8 && ratio < 3.5);
    for (int i = 0; i < 60; i++) weft_costs_pass(&c, 1, 4000);
    ratio = weft_costs_at(&c, 12) / weft_costs_at(&c, 1);
    assert_true(ratio > 1.8 && ratio < 2.6);
    weft_costs busy = {0}; /* one long pass ends nothing, three tell */
    weft_costs_pass(&busy, 1, 1000);
    weft_costs_pass(&busy, 4, 9000);
    weft_costs_link(&busy, 5000);
    assert_true(weft_costs_at(&busy, 4) < 1200 && weft_costs_at(&busy, 3) < 1200 && weft_costs_link_at(&busy) < 200);
    for (int i = 0; i < 4; i++) weft_costs_pass(&busy, 4, 9000), weft_costs_link(&busy, 5000);
    assert_true(weft_costs_at(&busy, 4) > 3 * weft_costs_at(&busy, 1) && weft_costs_link_at(&busy) > 1000);
    weft_costs cold = {0}; /* a first pass in cold memory, then interruptions */
    weft_costs_pass(&cold, 1, 50000);
    weft_costs_pass(&cold, 4, 1500);
    for (int i = 0; i < 40; i++) {
        weft_costs_pass(&cold, 1, 1000);
        weft_costs_pass(&cold, 4, i % 8 ? 1500 : 40000);
    }
    ratio = weft_costs_at(&cold, 4) / weft_costs_at(&cold, 1);
    assert_true(ratio > 1.35 && ratio < 1.75);
    weft_acceptance a = {0};
    for (int i = 0; i < 800; i++) weft_acceptance_learn(&a, 2, WEFT_DRAFTER_MODEL, false);
    assert_true(weft_acceptance_at(&a, 2, WEFT_DRAFTER_MODEL) < 0.01f);
    assert_true(weft_acceptance_at(&a, 1, WEFT_DRAFTER_MODEL) > 0.5f);
    assert_true(weft_acceptance_at(&a, 3, WEFT_DRAFTER_MODEL) < 0.01f); /* deeper is no better, as far as is known */
    for (int i = 0; i < 4; i++) weft_acceptance_learn(&a, 1, WEFT_DRAFTER_MODEL, i < 2);
    float few = weft_acceptance_hoped(&a, 1, WEFT_DRAFTER_MODEL) - weft_acceptance_at(&a, 1, WEFT_DRAFTER_MODEL);
    for (int i = 0; i < 200; i++) weft_acceptance_learn(&a, 1, WEFT_DRAFTER_MODEL, i % 2);
    float many = weft_acceptance_hoped(&a, 1, WEFT_DRAFTER_MODEL) - weft_acceptance_at(&a, 1, WEFT_DRAFTER_MODEL);
    assert_true(few > 0.1f && many > 0 && many < few / 2);
}

/* ---- nothing changes a token --------------------------------------------------------------------------------------------- */

enum { PROMPT = 200, TOKENS = 150 };
static const char *const models[] = {"tests/data/golden/qwen3_5-dense", "tests/data/golden/llama3", "tests/data/golden/gemma3",
                                     "tests/data/golden/nemotron_h-mtp", "models/mini"};

static weft_stats generate(weft_engine *g, int requests, int depth, bool no_lookup, double temperature, int32_t ids[][TOKENS]) {
    static int32_t prompt[PROMPT];
    weft_request *r[3];
    weft_error e;
    weft_stats stats;
    const weft_event *ev;
    size_t n;
    for (int k = 0; k < requests; k++) {
        for (int i = 0; i < PROMPT; i++) prompt[i] = 3 + (i % 40) * (7 + k) % 250; /* says everything five times */
        weft_request_desc d = {.prompt = prompt,
                               .n_prompt = PROMPT,
                               .max_tokens = TOKENS,
                               .depth = depth,
                               .no_lookup = no_lookup,
                               .temperature = temperature,
                               .has_seed = true,
                               .seed = 40 + (uint64_t)k,
                               .ignore_end = true};
        if (weft_submit(g, &d, &r[k], &e) != WEFT_OK) fail_msg("%s", e.text);
    }
    while (weft_run_step(g, &ev, &n)) {
        for (size_t i = 0; i < n; i++)
            if (ev[i].error) fail_msg("%s", ev[i].error->text);
        assert_null(weft_engine_check(g));
    }
    weft_engine_stats(g, &stats);
    for (int k = 0; k < requests; k++) {
        const int32_t *all = weft_request_ids(r[k], &n);
        assert_int_equal(n, PROMPT + TOKENS);
        memcpy(ids[k], all + PROMPT, TOKENS * sizeof **ids);
        weft_request_close(r[k]);
    }
    return stats;
}

static void test_no_drafter_changes_a_token(void **state) {
    (void)state;
    static int32_t want[3][TOKENS], got[3][TOKENS];
    uint64_t looked_up = 0, right = 0;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int threads = 1; threads <= 2; threads++) {
            weft_engine *g = NULL;
            weft_error e;
            weft_config c = {
                .model = models[m], .threads = threads, .context = 1200, .max_requests = 3, .max_depth = WEFT_MAX_DEPTH};
            if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
            for (int warm = 0; warm < 2; warm++) {
                double temperature = warm ? 0.8 : 0;
                generate(g, 3, 0, false, temperature, want);
                static const int depths[] = {WEFT_DEPTH_AUTO, 1, 2, 5, 8};
                for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
                    for (int no_lookup = 0; no_lookup < 2; no_lookup++) {
                        generate(g, 3, depths[d], no_lookup, temperature, got);
                        if (memcmp(got, want, sizeof want)) fail_msg("%s, depth %d: other tokens", models[m], depths[d]);
                        generate(g, 1, depths[d], no_lookup, temperature, got);
                        if (memcmp(got, want, sizeof *want)) fail_msg("%s alone, depth %d: other tokens", models[m], depths[d]);
                    }
            }
            weft_stats s;
            weft_engine_stats(g, &s);
            for (int i = 0; i < WEFT_MAX_DEPTH; i++) {
                looked_up += s.by[WEFT_DRAFTER_LOOKUP].drafted[i];
                right += s.by[WEFT_DRAFTER_LOOKUP].accepted[i];
            }
            weft_engine_close(g);
        }
    assert_true(looked_up > 1000 && right > 100); /* the lookup was there */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ngrams_find_the_longest_match), cmocka_unit_test(test_depths_that_pay),
        cmocka_unit_test(test_drafts_are_tried_again),        cmocka_unit_test(test_costs_are_monotone),
        cmocka_unit_test(test_no_drafter_changes_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

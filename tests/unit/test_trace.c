/* test_trace.c: drafts of a known quality, and an answer that is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"

enum { TOKENS = 400, VOCAB = 300 };

static weft_engine *g;

static int open_engine(void **state) {
    (void)state;
    weft_config c = {.model = "tests/data/golden/qwen3_5-dense", .threads = 1, .context = 512, .max_depth = 4, .cache_dir = ""};
    return weft_engine_open(&g, &c, NULL);
}
static int close_engine(void **state) {
    (void)state;
    weft_engine_close(g);
    return 0;
}

static weft_stats answer(int depth, const weft_trace *trace, int32_t ids[TOKENS]) {
    static const int32_t prompt[] = {7, 8, 9};
    weft_request_desc d = {
        .prompt = prompt, .n_prompt = 3, .max_tokens = TOKENS, .depth = depth, .no_lookup = true, .ignore_end = true};
    weft_request *r = NULL;
    weft_error e;
    const weft_event *events;
    weft_stats stats;
    size_t n;
    if (weft_submit(g, &d, &r, &e) != WEFT_OK) fail_msg("%s", e.text);
    r->trace = trace;
    while (weft_run_step(g, &events, &n)) assert_null(weft_engine_check(g));
    memcpy(ids, weft_request_ids(r, &n) + 3, TOKENS * sizeof *ids);
    assert_int_equal(n, 3 + TOKENS);
    weft_request_stats(r, &stats);
    weft_request_close(r);
    return stats;
}

static void test_all_and_none(void **state) {
    (void)state;
    int32_t plain[TOKENS], ids[TOKENS];
    answer(0, NULL, plain);
    weft_trace t = {.answer = plain, .n = TOKENS, .share = {1, 1, 1, 1}};
    weft_stats s = answer(4, &t, ids);
    assert_memory_equal(ids, plain, sizeof ids);
    assert_int_equal(s.passes, 1 + (TOKENS - 1 + 4) / 5); /* the prompt's gives the first token */
    memset(t.share, 0, sizeof t.share);
    s = answer(4, &t, ids);
    assert_memory_equal(ids, plain, sizeof ids);
    assert_int_equal(s.accepted[0], 0);
    assert_int_equal(s.passes, TOKENS);
    t = (weft_trace){.answer = plain, .n = TOKENS, .share = {1, 1, 1, 1}, .loss = 1};
    s = answer(4, &t, ids);
    assert_int_equal(s.accepted[0], 0);
}

static void test_shares(void **state) {
    (void)state;
    int32_t plain[TOKENS], ids[TOKENS], again[TOKENS];
    const float share[] = {0.85f, 0.72f, 0.55f, 0.5f};
    uint64_t drafted[4] = {0}, right[4] = {0};
    answer(0, NULL, plain);
    for (uint64_t seed = 0; seed < 20; seed++) {
        weft_trace t = {.answer = plain, .n = TOKENS, .loss = 0.1f, .seed = seed};
        memcpy(t.share, share, sizeof share);
        weft_stats s = answer(4, &t, ids), same = answer(4, &t, again);
        assert_memory_equal(ids, plain, sizeof ids);
        assert_memory_equal(s.accepted, same.accepted, sizeof s.accepted);
        for (int i = 0; i < 4; i++) drafted[i] += s.drafted[i], right[i] += s.accepted[i];
    }
    for (int i = 0; i < 4; i++) {
        double p = 0.9 * (double)share[i], seen = (double)right[i] / (double)drafted[i];
        double deviations = (seen - p) * (seen - p) * (double)drafted[i] / (p * (1 - p));
        if (deviations > 16) fail_msg("draft %d: %.3f right, %.3f wanted", i, seen, p);
    }
}

/* The answer need not be the model's; what follows it is. */
static void test_an_answer_of_its_own(void **state) {
    (void)state;
    int32_t wish[TOKENS], ids[TOKENS], other[TOKENS];
    for (int i = 0; i < TOKENS; i++) wish[i] = (i * 37 + 11) % VOCAB;
    weft_trace t = {.answer = wish, .n = TOKENS - 50, .share = {0.5f, 0.5f, 0.5f, 0.5f}};
    for (int depth = 0; depth <= 4; depth++) {
        answer(depth, &t, depth ? other : ids);
        assert_memory_equal(ids, wish, (TOKENS - 50) * sizeof *ids);
        if (depth) assert_memory_equal(ids, other, sizeof ids);
    }
    for (int i = 0; i < 100; i++) { /* a wrong draft is another id of the vocabulary */
        t.loss = 1;
        int32_t id = weft_trace_draft(&t, (size_t)i, i % 4, VOCAB, 5);
        assert_true(id >= 0 && id < VOCAB && id != wish[i + i % 4]);
    }
    assert_int_equal(weft_trace_draft(&t, TOKENS - 51, 2, VOCAB, 5), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_and_none), cmocka_unit_test(test_shares),
                                       cmocka_unit_test(test_an_answer_of_its_own)};
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}

/* test_stats.c: what the counters say: exactly what a walk over a known answer with known drafts has to give; every draft that is
 * made is verified; times and counts of requests add up to the engine's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine_walks.h"

enum { PROMPT = 40, LENGTH = 30, VOCAB = 320 };
static const char dense[] = "tests/data/golden/qwen3_5-dense";

static weft_request_desc describe(const int32_t *prompt, int length) {
    return (weft_request_desc){.prompt = prompt,
                               .n_prompt = PROMPT,
                               .max_tokens = length,
                               .temperature = 1,
                               .has_seed = true,
                               .seed = 9,
                               .ignore_end = true};
}

static void same_counts(const weft_stats *a, const weft_stats *b) {
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->passes, b->passes);
    assert_int_equal(a->verify_passes, b->verify_passes);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->draft_steps, b->draft_steps);
    assert_memory_equal(a->drafted, b->drafted, sizeof a->drafted);
    assert_memory_equal(a->accepted, b->accepted, sizeof a->accepted);
    assert_memory_equal(a->by, b->by, sizeof a->by);
}

/* ---- exact --------------------------------------------------------------------------------------------------------------- */

/* What passes over truth[0..n) with drafts from a list have to count. end: the place of the token that ends the answer, which is no
 * part of it; n: none does. */
static weft_stats walk(const int32_t *truth, int n, int end, const int32_t *drafts, int depth) {
    weft_stats s = {.prompt_tokens = PROMPT, .passes = 1, .rows = PROMPT};
    if (end == 0) return s;
    int said = 1; /* by the prompt's pass */
    bool ended = false;
    while (said < n && !ended) {
        int most = n - said - 1 < depth ? n - said - 1 : depth;
        s.passes++;
        s.verify_passes += most > 0;
        s.rows += 1 + (uint64_t)most;
        for (int i = 0; i <= most; i++) {
            bool right = i < most && drafts[said] == truth[said];
            ended = said == end;
            if (i < most) {
                s.drafted[i]++;
                s.accepted[i] += right;
            }
            said += !ended;
            if (!right || ended) break;
        }
    }
    s.tokens = (uint64_t)said;
    memcpy(s.by[WEFT_DRAFTER_LIST].drafted, s.drafted, sizeof s.drafted);
    memcpy(s.by[WEFT_DRAFTER_LIST].accepted, s.accepted, sizeof s.accepted);
    return s;
}

/* Every depth and number of right drafts, mixtures, every length, and an end token at every place. */
static void counters_are_exact(void **state) {
    (void)state;
    int32_t prompt[PROMPT], drafts[LENGTH];
    make_prompt(prompt, PROMPT, 41);
    weft_engine *g = open_model(dense, 2, 64, 1);
    weft_request_desc d = describe(prompt, LENGTH);
    answer *truth = ask(g, d, false);
    const int32_t *said = truth->ids + PROMPT;
    for (int depth = 1; depth <= 4; depth++)
        for (int count = 0; count <= depth + 1; count++)
            for (int at = 1; at <= LENGTH; at += 1 + (depth + count) % 3) {
                const int counts[] = {count, 3 % (depth + 1), 0, depth, 1};
                const int *from = count <= depth ? counts : counts + 1;
                forced(drafts, said, LENGTH, VOCAB, from, count <= depth ? 1 : 4, depth);
                d.depth = depth;
                d.drafts = drafts;
                d.n_drafts = LENGTH;
                for (int stop = 0; stop < 2; stop++) {
                    int end = 0;
                    while (end < at - 1 && said[end] != said[at - 1]) end++;
                    d.max_tokens = stop ? LENGTH : at;
                    d.stop_ids = stop ? &said[at - 1] : NULL;
                    d.n_stop_ids = (size_t)stop;
                    answer *a = ask(g, d, false);
                    weft_stats expected = walk(said, d.max_tokens, stop ? end : LENGTH, drafts, depth);
                    same_counts(&expected, &a->stats);
                    assert_int_equal(a->n - PROMPT, expected.tokens);
                    drop(a);
                }
            }
    drop(truth);
    weft_engine_close(g);
}

/* ---- all are verified ---------------------------------------------------------------------------------------------------- */

/* With drafters of the model and lookup, at fixed depths and as many as pay: the rows of each pass are its certain ones and the
 * drafts that were made before it; the first draft of a pass is always judged (V#52107: drafts that were proposed and never
 * verified, while counters rose). */
static void every_draft_is_verified(void **state) {
    (void)state;
    static const char *const models[] = {dense, "tests/data/golden/nemotron_h-mtp", "tests/data/golden/llama3"};
    static const int depths[] = {1, 3, 4, WEFT_DEPTH_AUTO};
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = 3 + i % 8; /* lookup finds something */
    uint64_t by[WEFT_DRAFTERS] = {0};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        weft_engine *g = open_model(models[m], 2, 64, 1);
        for (int k = 0; k < 8; k++) {
            weft_request_desc d = describe(prompt, 60);
            weft_stats was = {0}, is = {0};
            const weft_event *ev;
            size_t n;
            uint64_t made = 0;
            d.temperature = k < 4 ? 0 : 0.3;
            d.depth = depths[k % 4];
            d.no_lookup = k % 2;
            weft_request *r = submit(g, &d);
            while (weft_run_step(g, &ev, &n)) {
                weft_request_stats(r, &is);
                assert_int_equal(is.rows - was.rows, r->certain + r->n_draft);
                assert_int_equal(is.verify_passes - was.verify_passes, r->n_draft > 0);
                assert_int_equal(is.drafted[0] - was.drafted[0], r->n_draft > 0);
                for (int i = 0; i < WEFT_MAX_DEPTH; i++) {
                    uint64_t judged = is.drafted[i] - was.drafted[i];
                    assert_true(judged <= (uint64_t)(i < r->n_draft));
                    if (judged) assert_int_equal(is.by[r->draft_from[i]].drafted[i] - was.by[r->draft_from[i]].drafted[i], 1);
                }
                made += (uint64_t)r->n_draft;
                was = is;
            }
            assert_int_equal(is.rows, PROMPT + is.passes - 1 + made);
            if (d.no_lookup) assert_int_equal(is.draft_steps, made);
            for (int i = 0; i < WEFT_MAX_DEPTH; i++) {
                uint64_t drafted = 0, accepted = 0;
                for (int f = 0; f < WEFT_DRAFTERS; f++) {
                    drafted += is.by[f].drafted[i], accepted += is.by[f].accepted[i];
                    by[f] += is.by[f].drafted[i];
                }
                assert_int_equal(drafted, is.drafted[i]);
                assert_int_equal(accepted, is.accepted[i]);
                assert_true(accepted <= drafted);
                if (i) assert_true(drafted <= is.accepted[i - 1]);
            }
            weft_request_close(r);
        }
        weft_engine_close(g);
    }
    assert_true(by[WEFT_DRAFTER_MODEL] > 0 && by[WEFT_DRAFTER_LOOKUP] > 0 && by[WEFT_DRAFTER_LIST] == 0);
}

/* ---- parts of the whole -------------------------------------------------------------------------------------------------- */

/* Requests of different lengths, depths and ends that join one by one: each has a part of every step that it has rows in. */
static void requests_add_up(void **state) {
    (void)state;
    enum { N = 5 };
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 43);
    weft_engine *g = open_model(dense, 2, 16, N);
    weft_request *r[N];
    const weft_event *ev;
    size_t n;
    uint64_t links[N] = {0};
    bool running = true;
    for (int step = 0, next = 0; next < N || running; step++) {
        if (next < N && step % 2 == 0) {
            weft_request_desc d = describe(prompt, 8 + 5 * next);
            d.depth = next == 4 ? WEFT_DEPTH_AUTO : next;
            d.prompt_logprobs = next == 1;
            r[next++] = submit(g, &d);
        }
        running = weft_run_step(g, &ev, &n);
        for (int i = 0; i < next && running; i++)
            for (int k = 0; k < r[i]->n_draft; k++) links[i] += r[i]->draft_from[k] == WEFT_DRAFTER_MODEL;
    }
    weft_stats all, one, sum = {0};
    weft_engine_stats(g, &all);
    for (int i = 0; i < N; i++) {
        weft_request_stats(r[i], &one);
        assert_true(one.verify_ns > 0 && one.prefill_ns > 0);
        assert_int_equal(one.verify_ns + one.sample_ns + one.host_ns, one.prefill_ns + one.decode_ns);
        assert_true(one.passes < all.passes && one.verify_passes <= all.verify_passes);
        assert_int_equal(one.draft_steps, links[i]); /* not those of others after its own chain was over */
        assert_true(one.draft_steps < all.draft_steps);
        sum.prompt_tokens += one.prompt_tokens;
        sum.tokens += one.tokens;
        sum.rows += one.rows;
        sum.draft_ns += one.draft_ns;
        sum.verify_ns += one.verify_ns;
        sum.sample_ns += one.sample_ns;
        sum.host_ns += one.host_ns;
        sum.prefill_ns += one.prefill_ns;
        sum.decode_ns += one.decode_ns;
        for (int k = 0; k < WEFT_MAX_DEPTH; k++) {
            sum.drafted[k] += one.drafted[k];
            sum.accepted[k] += one.accepted[k];
        }
        weft_request_close(r[i]);
    }
    assert_int_equal(sum.prompt_tokens, all.prompt_tokens);
    assert_int_equal(sum.tokens, all.tokens);
    assert_int_equal(sum.rows, all.rows);
    assert_int_equal(sum.draft_ns, all.draft_ns);
    assert_int_equal(sum.verify_ns, all.verify_ns);
    assert_int_equal(sum.sample_ns, all.sample_ns);
    assert_int_equal(sum.host_ns, all.host_ns);
    assert_int_equal(sum.prefill_ns, all.prefill_ns);
    assert_int_equal(sum.decode_ns, all.decode_ns);
    assert_memory_equal(sum.drafted, all.drafted, sizeof all.drafted);
    assert_memory_equal(sum.accepted, all.accepted, sizeof all.accepted);
    assert_int_equal(all.verify_ns + all.sample_ns + all.host_ns, all.prefill_ns + all.decode_ns);
    assert_true(all.draft_ns > 0 && all.sample_ns > 0);
    weft_engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_are_exact),
        cmocka_unit_test(every_draft_is_verified),
        cmocka_unit_test(requests_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_engine_skip.c: what benchmarks ask of the engine: a context that is declared instead of computed, and the bytes that passes
 * move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"

static const char *const models[] = {"tests/data/golden/qwen3_5-dense", "tests/data/golden/qwen3_5-dense-odd",
                                     "tests/data/golden/qwen3_5-moe",   "tests/data/golden/llama3",
                                     "tests/data/golden/gemma3",        "tests/data/golden/gemma4-ple",
                                     "tests/data/golden/nemotron_h-mtp"};
enum { MODELS = sizeof models / sizeof *models, PROMPT = 1000, TOKENS = 40, CONTEXT = 1200 };

static weft_engine *open_model(int model) {
    weft_engine *g = NULL;
    weft_error e = {0};
    weft_config c = {.model = models[model], .threads = 2, .context = CONTEXT, .max_depth = 3};
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s: %s", models[model], e.text);
    return g;
}

static weft_request *submit(weft_engine *g, int n_prompt, int depth) {
    static int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = i * 37 % 300;
    weft_request *r = NULL;
    weft_error e = {0};
    weft_request_desc d = {
        .prompt = prompt, .n_prompt = (size_t)n_prompt, .max_tokens = TOKENS, .depth = depth, .ignore_end = true};
    if (weft_submit(g, &d, &r, &e) != WEFT_OK) fail_msg("%s", e.text);
    return r;
}

/* To its end; ids[TOKENS]; what the passes moved and computed. */
static weft_stats run(weft_engine *g, weft_request *r, int32_t *ids) {
    weft_stats from, to;
    const weft_event *ev;
    size_t n;
    weft_engine_stats(g, &from);
    while (weft_run_step(g, &ev, &n)) {
        for (size_t i = 0; i < n; i++) assert_null(ev[i].error);
        assert_null(weft_engine_check(g));
    }
    weft_engine_stats(g, &to);
    const int32_t *all = weft_request_ids(r, &n);
    assert_int_equal(n, r->n_prompt + TOKENS);
    memcpy(ids, all + r->n_prompt, TOKENS * sizeof *ids);
    weft_request_close(r);
    to.prompt_tokens -= from.prompt_tokens;
    to.decode_bytes -= from.decode_bytes;
    to.passes -= from.passes;
    return to;
}

/* The rest of the prompt is computed, the state before it is the same each time whatever the slot held, and drafts change nothing.
 */
static void test_the_rest_is_computed(void **state) {
    (void)state;
    weft_error e = {0};
    for (int m = 0; m < MODELS; m++) {
        int32_t first[TOKENS], again[TOKENS], drafted[TOKENS], whole[TOKENS], untouched[TOKENS];
        weft_engine *g = open_model(m);
        weft_request *r = submit(g, PROMPT, 0);
        assert_int_equal(weft_place_skip(r, 900, &e), WEFT_OK);
        assert_int_equal(run(g, r, first).prompt_tokens, PROMPT - 900);
        run(g, submit(g, PROMPT, 0), whole);
        for (int depth = 0; depth <= 3; depth += 3) {
            r = submit(g, PROMPT, depth);
            assert_int_equal(weft_place_skip(r, 900, &e), WEFT_OK);
            run(g, r, depth ? drafted : again);
        }
        r = submit(g, PROMPT, 0);
        assert_int_equal(weft_place_skip(r, 0, &e), WEFT_OK);
        assert_int_equal(run(g, r, untouched).prompt_tokens, PROMPT);
        assert_memory_equal(first, again, sizeof first);
        assert_memory_equal(first, drafted, sizeof first);
        assert_memory_equal(whole, untouched, sizeof whole);
        weft_engine_close(g);
    }
}

static void test_refused(void **state) {
    (void)state;
    weft_error e = {0};
    int32_t ids[TOKENS], expected[TOKENS];
    weft_engine *g = open_model(0);
    run(g, submit(g, 100, 0), expected);
    weft_request *r = submit(g, 100, 0);
    assert_int_equal(weft_place_skip(r, -1, &e), WEFT_EINVAL);
    assert_int_equal(weft_place_skip(r, 100, &e), WEFT_EINVAL); /* one row must remain, for the first token */
    weft_alloc_fail_at(1);
    assert_int_equal(weft_place_skip(r, 50, &e), WEFT_ENOMEM);
    weft_alloc_fail_at(0);
    run(g, r, ids); /* nothing has changed */
    assert_memory_equal(ids, expected, sizeof ids);
    r = submit(g, 100, 0);
    const weft_event *ev;
    size_t n;
    weft_run_step(g, &ev, &n);
    assert_int_equal(weft_place_skip(r, 50, &e), WEFT_EINVAL); /* it has begun */
    weft_engine_close(g);
}

/* Bytes count for passes without prompt rows alone, are the same for the same passes, and grow by the keys and values that are
 * seen: by the same for every token of context, beyond a window by those of the layers without one. */
static void test_bytes_moved(void **state) {
    (void)state;
    weft_error e = {0};
    for (int m = 0; m < MODELS; m++) {
        int32_t ids[TOKENS];
        uint64_t bytes[3];
        weft_engine *g = open_model(m);
        for (int i = 0; i < 3; i++) {
            weft_request *r = submit(g, 400 * i + 1, 0);
            assert_int_equal(weft_place_skip(r, 400 * i, &e), WEFT_OK);
            weft_stats s = run(g, r, ids);
            assert_int_equal(s.passes, TOKENS);
            bytes[i] = s.decode_bytes / (TOKENS - 1);
        }
        assert_true(bytes[0] > 0 && bytes[1] > bytes[0]);
        bool window = strstr(models[m], "gemma"), experts = strstr(models[m], "moe") || strstr(models[m], "mtp"); /* they vary */
        if (!window && !experts) assert_int_equal(bytes[2] - bytes[1], bytes[1] - bytes[0]);
        if (window) assert_true(bytes[2] - bytes[1] < bytes[1] - bytes[0]);
        weft_memory memory;
        weft_config c = {.model = models[m], .context = CONTEXT, .max_depth = 3};
        assert_int_equal(weft_plan_memory(&c, &memory, &e), WEFT_OK);
        if (strstr(models[m], "gemma3")) assert_int_equal(bytes[2] - bytes[1], 400 * memory.kv_per_token);
        assert_true(bytes[0] < memory.weights + 4 * memory.state_per_request + 400 * memory.kv_per_token);
        weft_stats before, after;
        weft_engine_stats(g, &before);
        weft_request *r = submit(g, PROMPT, 0);
        const weft_event *ev;
        size_t n;
        while (r->phase == WEFT_PROMPT) assert_true(weft_run_step(g, &ev, &n));
        weft_engine_stats(g, &after);
        assert_int_equal(after.decode_bytes, before.decode_bytes);
        weft_engine_close(g);
    }
}

/* weft_score_trunk() gives the rows of weft_score(), to the bit, and none of the head. */
typedef struct rows {
    float v[24][512];
    int n, heads;
} rows;

static weft_status keep(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e) {
    (void)e;
    rows *r = ctx;
    memcpy(r->v[position], logits, 320 * sizeof *logits);
    r->n++;
    r->heads += mtp_logits != NULL;
    return WEFT_OK;
}

static void test_score_trunk(void **state) {
    (void)state;
    static rows with, without;
    weft_error e = {0};
    int32_t ids[24];
    for (int i = 0; i < 24; i++) ids[i] = i * 11 % 300;
    for (int m = 0; m < MODELS; m++) {
        weft_engine *g = open_model(m);
        weft_info info;
        weft_engine_info(g, &info);
        assert_true(info.vocab >= 300 && info.vocab <= 512);
        with = without = (rows){0};
        assert_int_equal(weft_score(g, ids, 24, keep, &with, &e), WEFT_OK);
        assert_int_equal(weft_score_trunk(g, ids, 24, keep, &without, &e), WEFT_OK);
        assert_int_equal(with.n, 24);
        assert_int_equal(without.n, 24);
        assert_int_equal(with.heads, info.has_mtp ? 23 : 0);
        assert_int_equal(without.heads, 0);
        assert_memory_equal(with.v, without.v, sizeof with.v);
        weft_engine_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rest_is_computed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bytes_moved),
        cmocka_unit_test(test_score_trunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

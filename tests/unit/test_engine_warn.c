/* test_engine_warn.c: a drafter that hardly ever agrees is said to be one, once, and changes nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine.h"

typedef struct log_lines {
    int n;
    char text[512];
} log_lines;
static void take(void *ctx, weft_log_level level, const char *line) {
    log_lines *l = ctx;
    if (level != WEFT_LOG_WARN) return;
    l->n++;
    strncpy(l->text, line, sizeof l->text - 1);
}

/* 1500 tokens of one request at depth 1; drafts: a list of them instead of the drafter's. */
static void generate(weft_engine *g, const int32_t *drafts, size_t n_drafts) {
    static const int32_t prompt[] = {1, 2, 3, 4, 5};
    weft_request_desc d = {.prompt = prompt,
                           .n_prompt = 5,
                           .max_tokens = 1500,
                           .depth = 1,
                           .ignore_end = true,
                           .drafts = drafts,
                           .n_drafts = n_drafts};
    weft_request *r = NULL;
    weft_error e;
    const weft_event *ev;
    size_t n;
    if (weft_submit(g, &d, &r, &e) != WEFT_OK) fail_msg("%s", e.text);
    while (weft_run_step(g, &ev, &n)) assert_null(weft_engine_check(g));
    weft_request_close(r);
}

static void test_a_drafter_that_never_agrees(void **state) {
    (void)state;
    log_lines log = {0};
    weft_engine *g = NULL;
    weft_error e;
    static int32_t wrong[1500]; /* a list's drafts are its maker's business */
    weft_config c = {.model = "tests/data/golden/qwen3_5-dense", .threads = 1, .context = 2048, .max_depth = 1};
    weft_log_to(take, &log, WEFT_LOG_WARN);
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
    generate(g, wrong, 1500);
    assert_int_equal(log.n, 0);
    generate(g, NULL, 0); /* random weights: the head guesses */
    assert_int_equal(log.n, 1);
    assert_non_null(strstr(log.text, "first drafts"));
    assert_non_null(strstr(log.text, "does not fit the model"));
    generate(g, NULL, 0);
    assert_int_equal(log.n, 1);
    weft_engine_close(g);
    weft_log_to(NULL, NULL, WEFT_LOG_WARN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_drafter_that_never_agrees)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

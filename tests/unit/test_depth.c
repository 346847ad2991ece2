/* test_depth.c: automatic depths against every fixed one, by times that are given instead of measured: the same on every run.
 *
 * A small model answers with drafts of a known quality (trace.h), of which the engine knows nothing at first. Passes and links take
 * what a table of some machine says, which is put in place of what the engine measured before each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"

enum { TOKENS = 3000 };

/* Times by rows, relative to one row's, and a link's. */
typedef struct machine {
    const char *name;
    double pass[WEFT_MAX_DEPTH + 1], link;
} machine;
static const machine machines[] = {
    {"memory-bound", {1, 1.02, 1.04, 1.06, 1.09, 1.12, 1.15, 1.18, 1.22}, 0.05},
    {"two cores", {1, 1.06, 1.13, 1.22, 1.34, 1.48, 1.60, 1.73, 1.86}, 0.07},
    {"steps", {1, 1.4, 1.4, 1.4, 1.9, 1.9, 1.9, 1.9, 2.6}, 0.1},
    {"dear links", {1, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4}, 0.33},
    {"compute-bound", {1, 1.9, 2.8, 3.7, 4.6, 5.5, 6.4, 7.3, 8.2}, 0.1},
};
static const float shares[][WEFT_MAX_DEPTH] = {
    {0.85f, 0.72f, 0.55f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f},      {0.97f, 0.96f, 0.95f, 0.94f, 0.93f, 0.92f, 0.9f, 0.9f},
    {0.6f, 0.5f, 0.4f, 0.3f, 0.2f, 0.2f, 0.2f, 0.2f},         {0.25f, 0.2f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f},
    {0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f},
};
static int32_t known[TOKENS];

static weft_engine *open_engine(void) {
    weft_engine *g = NULL;
    weft_error e;
    weft_config c = {.model = "tests/data/golden/qwen3_5-dense",
                     .threads = 1,
                     .context = TOKENS + 64,
                     .max_depth = WEFT_MAX_DEPTH,
                     .cache_dir = ""};
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
    return g;
}

static void put_costs(weft_costs *c, const machine *m) {
    for (int rows = 1; rows <= WEFT_MAX_DEPTH + 1; rows++) {
        c->pass_ns[rows] = 1e6 * m->pass[rows - 1];
        c->seen[rows] = 50;
    }
    c->link_ns = 1e6 * m->link;
    c->pace = 1;
}

/* Tokens of a pass with so many drafts: on average. */
static double tokens_of(const float share[WEFT_MAX_DEPTH], int drafts) {
    double kept = 1, all = 1;
    for (int i = 0; i < drafts; i++) all += kept *= (double)share[i];
    return all;
}
static double time_of(const machine *m, int drafts) {
    return m->pass[drafts] + m->link * drafts;
}

/* Tokens in the time of a pass of one row, on average over the depths that the engine chooses: not by the luck of its drafts. */
static double automatic(const machine *m, const float share[WEFT_MAX_DEPTH]) {
    static const int32_t prompt[] = {7, 8, 9};
    weft_engine *g = open_engine(); /* one that has learnt nothing */
    weft_request_desc d = {
        .prompt = prompt, .n_prompt = 3, .max_tokens = TOKENS, .depth = WEFT_DEPTH_AUTO, .no_lookup = true, .ignore_end = true};
    weft_trace trace = {.answer = known, .n = TOKENS, .seed = 5};
    weft_request *r = NULL;
    weft_error e;
    const weft_event *events;
    size_t n;
    double time = 0, tokens = 0;
    memcpy(trace.share, share, sizeof trace.share);
    if (weft_submit(g, &d, &r, &e) != WEFT_OK) fail_msg("%s", e.text);
    r->trace = &trace;
    for (;;) {
        put_costs(&g->costs, m);
        if (!weft_run_step(g, &events, &n)) break;
        time += time_of(m, r->n_draft);
        tokens += tokens_of(share, r->n_draft);
    }
    assert_memory_equal(weft_request_ids(r, &n) + 3, known, sizeof known);
    weft_engine_close(g);
    return tokens / time;
}

static void test_automatic_is_as_good_as_the_best(void **state) {
    (void)state;
    double worst = 1;
    for (int i = 0; i < TOKENS; i++) known[i] = 3 + (i * 131 + i / 7) % 290;
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
        for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
            double best = 0, chosen = automatic(&machines[m], shares[s]);
            int depth = 0;
            for (int i = 0; i <= WEFT_MAX_DEPTH; i++) {
                double rate = tokens_of(shares[s], i) / time_of(&machines[m], i);
                if (rate > best) best = rate, depth = i;
            }
            print_message("%s, drafts right to %.2f: automatic %.3f, depth %d %.3f: %.4f\n", machines[m].name, (double)shares[s][0],
                          chosen, depth, best, chosen / best);
            worst = chosen / best < worst ? chosen / best : worst;
        }
    assert_true(worst >= 0.99);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_automatic_is_as_good_as_the_best)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_law.c: with drafts, answers have the law of the model: chi-square of hundreds of thousands of answers of up to six tokens,
 * their ends included, against the probability of every answer there can be, computed from scored logits (token_law.h).
 *
 * For every drafter (a head, an assistant, lookup, the block that lookup and a head make, a list), depth and setting that shapes
 * the law. A row of the output is one such run: answers, tokens of a pass, drafts kept, chi-square, its degrees of freedom, and
 * that as a normal deviate. Seeds are fixed, so a run is the same each time; LIMIT is what fewer than one in 10^7 laws exceeds.
 *
 * `test_law N` (make test-same): N times as many answers, and in either mode a million at least from every drafter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "law_models.h"
#include "sanitizers.h"
#include "token_law.h"

#define LIMIT 5.2
enum { BATCH = 64, SEED = 1000 };
#if SANITIZED
enum { SHARE = 40 }; /* of the answers that a run is to have: one of so many */
#else
enum { SHARE = 1 };
#endif
static int times = 1;

/* ---- models -------------------------------------------------------------------------------------------------------------- */

typedef enum model { HYBRID, FEW, DENSE, MAMBA, ASSISTED, ORDERED, MODELS } model;
static const struct {
    const char *folder, *draft;
    int ids; /* drafts are made of so many; 0: of all */
} models[MODELS] = {
    [HYBRID] = {.folder = hybrid}, /* two layers and an MTP head */
    [FEW] = {.folder = hybrid, .ids = 4},
    [DENSE] = {.folder = dense}, /* one layer and no drafter */
    [MAMBA] = {.folder = "tests/data/golden/nemotron_h-mtp"},
    [ASSISTED] = {.folder = "tests/data/golden/gemma4-assistant/target", .draft = "tests/data/golden/gemma4-assistant/assistant"},
    [ORDERED] = {.folder = "tests/data/golden/gemma4-assistant-ordered/target",
                 .draft = "tests/data/golden/gemma4-assistant-ordered/assistant"},
};

/* ---- a run --------------------------------------------------------------------------------------------------------------- */

static const int32_t letters[] = {1, 2, 3, 5, 8}, one[] = {4}, list[] = {2, 1, 3, 3, 2, 1};
/* Whichever of 1, 2, 3 comes first: with the two tokens before it it came once before; with the seven. */
static const int32_t pairs[] = {1, 2, 1, 1, 2, 2, 1, 2, 3, 1, 2};
static const int32_t sevens[] = {9, 4, 6, 7, 9, 10, 11, 1,  2, 9, 4, 6, 7, 9, 10, 11, 2,
                                 3, 9, 4, 6, 7, 9,  10, 11, 3, 1, 9, 4, 6, 7, 9,  10, 11};

/* Drafts come from lookup; perhaps none is kept; none may be; with more answers than one share, it is a million at least. */
enum { LOOKUP = 1, PERHAPS = 2, NEVER = 4, MILLION = 8 };
typedef struct run {
    const char *name;
    model model;
    int answers; /* thousands, by rejection; by the coupled draw, which only compares, a third of it, but for a million */
    const int32_t *prompt;
    size_t n_prompt;
    int letters, depth, tokens, flags;
    weft_request_desc d; /* the rest */
} run;
/* tokens 0: depth + 2, so that a whole block fits behind the first. */
#define RUN(name, model, answers, prompt, letters, depth, tokens, flags, ...)                                                      \
    {                                                                                                                              \
        name, model, answers, prompt, sizeof(prompt) / sizeof *(prompt), letters, depth, tokens, flags, {                          \
            __VA_ARGS__                                                                                                            \
        }                                                                                                                          \
    }

static weft_request_desc describe(const run *r) {
    weft_request_desc d = r->d;
    d.prompt = r->prompt;
    d.n_prompt = r->n_prompt;
    d.allowed = letters;
    d.n_allowed = (size_t)r->letters;
    d.max_tokens = r->tokens ? r->tokens : r->depth + 2;
    d.no_lookup = !(r->flags & LOOKUP);
    d.depth = r->depth;
    d.has_seed = true;
    d.ignore_end = true;
    return d;
}

/* Counts an answer that has ended; token: its end id, or -1. */
static void count(const law *l, weft_request *q, int32_t token, int *counts) {
    size_t n;
    int digits[LAW_TOKENS], k = 0;
    const int32_t *ids = weft_request_ids(q, &n);
    for (size_t i = l->d.n_prompt; i <= n; i++) {
        int32_t id = i < n ? ids[i] : token;
        if (id < 0) break;
        int digit = 0;
        while (digit < l->letters && l->d.allowed[digit] != id) digit++;
        if (digit == l->letters) fail_msg("id %d came, which is not allowed", id);
        digits[k++] = digit;
    }
    counts[law_code(l, digits, k)]++;
}

/* Blocks of a run's requests whose depth is what pays: by the drafts that they could have, and that they had. */
static int blocks[WEFT_MAX_DEPTH + 1][WEFT_MAX_DEPTH + 1];

/* A machine on which one to four drafts pay, before each step in place of what was measured. Its unit is so short that whatever a
 * step measures is longer than counts: a run is the same each time. */
static void put_costs(weft_costs *c) {
    const double unit = 1e-6, row = 0.02, link = 0.03;
    for (int rows = 1; rows <= WEFT_COST_ROWS; rows++) {
        c->pass_ns[rows] = unit * (1 + row * (rows - 1));
        c->seen[rows] = 50;
    }
    c->link_ns = unit * link;
    c->links = 50;
    c->pace = 1;
}

static bool run_step(weft_engine *g, weft_request *const *q, int n, const weft_event **ev, size_t *n_events) {
    bool decodes[BATCH] = {false};
    if (q[0]->depth != WEFT_DEPTH_AUTO) return weft_run_step(g, ev, n_events);
    for (int i = 0; i < n; i++) decodes[i] = q[i]->phase == WEFT_DECODE;
    put_costs(&g->costs);
    bool more = weft_run_step(g, ev, n_events);
    for (int i = 0; i < n; i++) blocks[q[i]->most][q[i]->n_draft] += decodes[i];
    return more;
}

static void draw_batch(weft_engine *g, const law *l, weft_request_desc d, int n, int *counts) {
    weft_request *q[BATCH];
    weft_error e = {0};
    const weft_event *ev;
    size_t n_events;
    for (int i = 0; i < n; i++, d.seed++)
        if (weft_submit(g, &d, &q[i], &e) != WEFT_OK) fail_msg("%s", e.text);
    while (run_step(g, q, n, &ev, &n_events))
        for (size_t i = 0; i < n_events; i++)
            if (ev[i].error)
                fail_msg("%s", ev[i].error->text);
            else if (ev[i].kind == WEFT_EVENT_END)
                count(l, ev[i].request, ev[i].token, counts);
    for (int i = 0; i < n; i++) weft_request_close(q[i]);
}

static weft_engine *open_for(const run *r) {
    weft_engine *g = NULL;
    weft_error e = {0};
    weft_config c = {.model = models[r->model].folder,
                     .draft = models[r->model].draft,
                     .threads = 1,
                     .context = 64 * BATCH,
                     .max_requests = BATCH,
                     .max_depth = WEFT_MAX_DEPTH,
                     .cache_dir = ""};
    weft_reduction few = {.above = models[r->model].ids, .ids = models[r->model].ids};
    weft_status s = few.ids ? weft_engine_open_reduced(&g, &c, few, &e) : weft_engine_open(&g, &c, &e);
    if (s != WEFT_OK) fail_msg("%s", e.text);
    return g;
}

/* Whether drafts were made, judged and looked up as the run says; where depths are what pays, whether blocks that could be equally
 * deep stopped and went on. */
static void check_counters(const run *r, const weft_stats *s, const uint64_t drafted[WEFT_MAX_DEPTH], uint64_t all, uint64_t kept) {
    if (r->depth == WEFT_DEPTH_AUTO) {
        int most = r->tokens - 2, depths = 0; /* of blocks behind the first token */
        for (int i = 1; i <= most; i++) depths += blocks[most][i] > 0;
        assert_true(drafted[0] > 0 && drafted[1] > 0 && drafted[2] > 0);
        assert_true(depths > 1);
    }
    if (r->depth) assert_true(all > 0);
    if (r->depth && !(r->flags & PERHAPS)) assert_true(r->flags & NEVER ? kept == 0 : kept > 0 && kept < all);
    uint64_t looked_up = 0;
    for (int i = 0; i < WEFT_MAX_DEPTH; i++) looked_up += s->by[WEFT_DRAFTER_LOOKUP].drafted[i];
    assert_true(!(r->flags & LOOKUP) == !looked_up);
}

static void check(const run *r, weft_accept accept, weft_engine *g, law *l) {
    weft_request_desc d = describe(r);
    weft_stats before, s;
    int *counts = calloc((size_t)l->answers, sizeof *counts);
    int n = r->answers * 1000 / (accept == WEFT_ACCEPT_COUPLED ? 3 : 1) * times;
    if (times > 1 && r->flags & MILLION && n < 1000000) n = 1000000;
    n /= SHARE;
    weft_engine_stats(g, &before);
    d.accept = accept;
    memset(blocks, 0, sizeof blocks);
    for (int done = 0, batch = 0, now; done < n; done += now, batch++) {
        now = d.depth == WEFT_DEPTH_AUTO ? 1 + batch % 4 : BATCH;
        if (now > n - done) now = n - done;
        d.seed = SEED + (uint64_t)done;
        draw_batch(g, l, d, now, counts);
    }
    law_fit f = law_compare(l, counts, n);
    weft_engine_stats(g, &s);
    uint64_t drafted[WEFT_MAX_DEPTH], all = 0, kept = 0;
    for (int i = 0; i < WEFT_MAX_DEPTH; i++) {
        all += drafted[i] = s.drafted[i] - before.drafted[i];
        kept += s.accepted[i] - before.accepted[i];
    }
    printf("%-9s %-50s %8d  %5.2f  %5.1f%%  %8.1f %5d  %+5.2f\n", accept == WEFT_ACCEPT_COUPLED ? "coupled" : "rejection", r->name,
           n, (double)(s.tokens - before.tokens) / (double)(s.rows - before.rows), all ? 100.0 * (double)kept / (double)all : 0.0,
           f.chi, f.dof, f.z);
    fflush(stdout);
    if (!(f.z < LIMIT && f.z > -LIMIT)) fail_msg("%s: chi-square %.1f with %d degrees of freedom", r->name, f.chi, f.dof);
    check_counters(r, &s, drafted, all, kept);
    free(counts);
}
static void check_all(const run *runs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        weft_engine *g = open_for(&runs[i]);
        weft_request_desc d = describe(&runs[i]);
        law *l = law_make(g, &d);
        check(&runs[i], WEFT_ACCEPT_COUPLED, g, l);
        check(&runs[i], WEFT_ACCEPT_REJECTION, g, l);
        law_free(l);
        weft_engine_close(g);
    }
}
#define CHECK(runs) check_all(runs, sizeof(runs) / sizeof *(runs))

/* ---- drafters ------------------------------------------------------------------------------------------------------------ */

static void heads(void **state) {
    (void)state;
    static const run runs[] = {
        RUN("no drafts", HYBRID, 50, one, 3, 0, 6, 0, .temperature = 0.7),
        RUN("head, depth 1", HYBRID, 50, one, 5, 1, 3, 0, .temperature = 0.7),
        RUN("head, depth 1 of 6 tokens", HYBRID, 50, one, 3, 1, 6, 0, .temperature = 1.3),
        RUN("head, depth 2", HYBRID, 50, one, 4, 2, 0, 0, .temperature = 1.3),
        RUN("head, depth 3", HYBRID, 50, one, 3, 3, 0, 0, .temperature = 0.7),
        RUN("head, depth 4", HYBRID, 150, one, 3, 4, 0, MILLION, .temperature = 1),
        RUN("head, depth 8", HYBRID, 30, one, 2, 8, 0, 0, .temperature = 1.3),
        RUN("head, greedy", HYBRID, 1, one, 3, 4, 0, PERHAPS, .temperature = 0),
        RUN("head with 4 ids of 16, 3 letters of 5, depth 3", FEW, 100, one, 5, 3, 0, 0, .temperature = 1),
        RUN("head with 4 ids, top-p, penalties, depth 4", FEW, 50, one, 4, 4, 0, 0, .temperature = 1.3, .top_p = 0.9f,
            .frequency_penalty = 0.5f),
        RUN("head of Nemotron-H, depth 3", MAMBA, 10, one, 3, 3, 0, 0, .temperature = 1.3),
        RUN("assistant, depth 3", ASSISTED, 10, one, 3, 3, 0, MILLION, .temperature = 1),
        RUN("assistant that scores some ids, depth 2", ORDERED, 10, one, 3, 2, 0, 0, .temperature = 1),
    };
    CHECK(runs);
}

static void lookups(void **state) {
    (void)state;
    static const run runs[] = {
        RUN("lookup alone, depth 3", DENSE, 50, pairs, 3, 3, 0, LOOKUP, .temperature = 1),
        RUN("lookup alone, depth 4", DENSE, 50, pairs, 3, 4, 0, LOOKUP | MILLION, .temperature = 1.3),
        RUN("long matches beside a head, depth 4", HYBRID, 30, sevens, 3, 4, 0, LOOKUP, .temperature = 1),
        RUN("a link and what was looked up, depth 2", HYBRID, 50, pairs, 3, 2, 0, LOOKUP, .temperature = 1.3),
        RUN("a link and what was looked up, depth 4", HYBRID, 100, pairs, 3, 4, 0, LOOKUP | MILLION, .temperature = 0.7),
        RUN("a link of 4 ids and what was looked up, depth 4", FEW, 50, pairs, 4, 4, 0, LOOKUP, .temperature = 1),
    };
    CHECK(runs);
}

/* Depths that differ from block to block, by how sure the drafter was and what was right before. Of a chain that drops its last
 * draft where the head finds it unlikely they say z = +20 to +40. */
static void what_pays(void **state) {
    (void)state;
    static const run runs[] = {
        RUN("what pays, head", HYBRID, 100, one, 4, WEFT_DEPTH_AUTO, 6, MILLION, .temperature = 0.7),
        RUN("what pays, head, five letters", HYBRID, 100, one, 5, WEFT_DEPTH_AUTO, 5, 0, .temperature = 0.7),
        RUN("what pays, lookup", DENSE, 60, pairs, 3, WEFT_DEPTH_AUTO, 6, LOOKUP | MILLION, .temperature = 1),
        RUN("what pays, a link and what was looked up", HYBRID, 100, pairs, 3, WEFT_DEPTH_AUTO, 6, LOOKUP | MILLION,
            .temperature = 0.7),
    };
    CHECK(runs);
}

#define LIST .drafts = list, .n_drafts = 6
static void lists(void **state) {
    (void)state;
    static const run runs[] = {
        RUN("list, depth 1", HYBRID, 50, one, 3, 1, 4, 0, .temperature = 1, LIST),
        RUN("list, depth 4", HYBRID, 50, one, 3, 4, 0, MILLION, .temperature = 1, LIST),
        RUN("list, no drafter, depth 3", DENSE, 50, one, 3, 3, 0, 0, .temperature = 0.7, LIST),
    };
    CHECK(runs);
}

/* ---- settings ------------------------------------------------------------------------------------------------------------ */

static void truncations(void **state) {
    (void)state;
    static const run runs[] = {
        RUN("top-k 2, head", HYBRID, 50, one, 4, 3, 0, 0, .temperature = 1.3, .top_k = 2),
        RUN("top-p 0.8, head", HYBRID, 50, one, 4, 3, 0, 0, .temperature = 1.3, .top_p = 0.8f),
        RUN("min-p 0.2, head", HYBRID, 50, one, 4, 3, 0, 0, .temperature = 0.7, .min_p = 0.2f),
        RUN("top-k 3, top-p 0.9, min-p 0.1, head", HYBRID, 50, one, 5, 2, 0, 0, .temperature = 1.3, .top_k = 3, .top_p = 0.9f,
            .min_p = 0.1f),
        RUN("top-k 2, link and lookup", HYBRID, 50, pairs, 3, 3, 0, LOOKUP, .temperature = 1, .top_k = 2),
        RUN("top-p 0.8, list", HYBRID, 50, one, 3, 3, 0, 0, .temperature = 1, .top_p = 0.8f, LIST),
    };
    CHECK(runs);
}

static void penalties(void **state) {
    (void)state;
    static const weft_logit_bias biases[] = {{1, 0.7f}, {2, -0.4f}, {9, 3}};
    static const run runs[] = {
        RUN("repetition 1.5, head", HYBRID, 50, pairs, 3, 4, 0, 0, .temperature = 1, .repetition_penalty = 1.5f),
        RUN("presence 0.8, head", HYBRID, 50, one, 3, 4, 0, 0, .temperature = 0.7, .presence_penalty = 0.8f),
        RUN("frequency 0.6, head", HYBRID, 60, one, 3, 4, 0, 0, .temperature = 1.3, .frequency_penalty = 0.6f),
        RUN("all three, link and lookup", HYBRID, 50, pairs, 3, 3, 0, LOOKUP, .temperature = 1, .repetition_penalty = 1.2f,
            .presence_penalty = 0.3f, .frequency_penalty = 0.4f),
        RUN("bias, head", HYBRID, 50, one, 3, 3, 0, 0, .temperature = 0.7, .bias = biases, .n_bias = 3),
        RUN("everything, head", HYBRID, 50, one, 5, 3, 0, 0, .temperature = 1.3, .bias = biases, .n_bias = 3,
            .repetition_penalty = 1.2f, .presence_penalty = 0.3f, .frequency_penalty = 0.4f, .top_k = 4, .top_p = 0.95f,
            .min_p = 0.05f),
    };
    CHECK(runs);
}

static const int32_t two[] = {2}, three[] = {3}, one_three[] = {1, 3};
static void ends(void **state) {
    (void)state;
    static const run runs[] = {
        RUN("an end id, head", HYBRID, 60, one, 3, 4, 0, 0, .temperature = 1, .stop_ids = two, .n_stop_ids = 1),
        RUN("two end ids of four, head", HYBRID, 50, one, 4, 3, 0, 0, .temperature = 1.3, .stop_ids = one_three, .n_stop_ids = 2),
        RUN("an end id not before 3 tokens, head", HYBRID, 50, one, 3, 4, 0, 0, .temperature = 1, .stop_ids = two, .n_stop_ids = 1,
            .min_tokens = 3),
        RUN("an end id, link and lookup", HYBRID, 50, pairs, 3, 4, 0, LOOKUP, .temperature = 1, .stop_ids = three, .n_stop_ids = 1),
        RUN("an end id, list", HYBRID, 50, one, 3, 4, 0, 0, .temperature = 1, .stop_ids = two, .n_stop_ids = 1, LIST),
    };
    CHECK(runs);
}

/* ---- drafts that cannot be ----------------------------------------------------------------------------------------------- */

/* Ids that are masked, banned, cut off or too early, at every place of a block: not one is kept, and the law is as it was. */
static void impossible_drafts(void **state) {
    (void)state;
    static const int32_t masked[] = {0, 4, 6, 7, 15, 0}, second[] = {1, 2, 6, 3, 4, 1}, threes[] = {3, 3, 3, 3, 3, 3},
                         last[] = {1, 2, 1, 2, 7, 2}, twos[] = {2, 2, 2, 2, 2, 2};
    static const weft_logit_bias down[] = {{3, -30}};
    static const run runs[] = {
        RUN("masked", HYBRID, 30, one, 3, 4, 0, NEVER, .temperature = 1, .drafts = masked, .n_drafts = 6),
        RUN("masked in second place", HYBRID, 30, one, 3, 4, 0, 0, .temperature = 1, .drafts = second, .n_drafts = 6),
        RUN("masked in last place", HYBRID, 30, one, 3, 4, 0, 0, .temperature = 1, .drafts = last, .n_drafts = 6),
        RUN("banned", HYBRID, 30, one, 4, 4, 5, NEVER, .temperature = 1, .banned = three, .n_banned = 1, .drafts = threes,
            .n_drafts = 6),
        RUN("outside top-k", HYBRID, 30, one, 3, 4, 0, NEVER, .temperature = 1, .bias = down, .n_bias = 1, .top_k = 2,
            .drafts = threes, .n_drafts = 6),
        RUN("outside top-p", HYBRID, 30, one, 3, 4, 0, NEVER, .temperature = 1, .bias = down, .n_bias = 1, .top_p = 0.99f,
            .drafts = threes, .n_drafts = 6),
        RUN("below min-p", HYBRID, 30, one, 3, 4, 0, NEVER, .temperature = 1, .bias = down, .n_bias = 1, .min_p = 0.001f,
            .drafts = threes, .n_drafts = 6),
        RUN("an end id before min_tokens", HYBRID, 30, one, 3, 4, 0, NEVER, .temperature = 1, .stop_ids = two, .n_stop_ids = 1,
            .min_tokens = 6, .drafts = twos, .n_drafts = 6),
    };
    CHECK(runs);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads), cmocka_unit_test(lookups),           cmocka_unit_test(what_pays),
        cmocka_unit_test(lists), cmocka_unit_test(truncations),       cmocka_unit_test(penalties),
        cmocka_unit_test(ends),  cmocka_unit_test(impossible_drafts),
    };
    if (law_make_models() != 0) return 1;
    if (argc > 1) times = atoi(argv[1]) > 0 ? atoi(argv[1]) : 1;
    printf("%-9s %-50s %8s  %5s  %6s  %8s %5s  %5s\n", "drafts", "run", "answers", "t/row", "kept", "chi2", "dof", "z");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    law_drop_models();
    return failed;
}

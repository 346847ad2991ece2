/* test_engine_reduced.c: drafts made of some ids only: the text is that of no drafts at all, by every rule and at every depth; the
 * drafts come from the list; and the list follows what the model says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/str.h"
#include "engine_walks.h"
#include "forge/synth.h"
#include "sanitizers.h"

static char folder[300]; /* of a forged model of 4 bits, and of caches */
static char forged[320], cache[320];

enum { PROMPT = 40 };
typedef struct pair {
    const char *model, *draft; /* draft NULL: the model has an MTP head */
    weft_reduction reduction;
    int length;
    bool agrees; /* now and then its drafts are right */
} pair;
static const pair pairs[] = {
    {"tests/data/golden/qwen3_5-dense", NULL, {100, 160}, 80, false},
    {"tests/data/golden/qwen3_5-dense-tied", NULL, {319, 64}, 80, false},
    {"tests/data/golden/nemotron_h-mtp", NULL, {100, 160}, 80, false},
    {"tests/data/golden/gemma4-assistant/target", "tests/data/golden/gemma4-assistant/assistant", {100, 160}, 80, false},
    {forged, NULL, {100, 1100}, 80, false},
    {"models/mini", NULL, {10000, 8192}, 24, true},
};

static weft_engine *open_reduced(const pair *p, int threads, weft_reduction reduction, const char *cache_dir) {
    weft_engine *g = NULL;
    weft_error e = {0};
    weft_config c = {.model = p->model,
                     .draft = p->draft,
                     .threads = threads,
                     .isa = isa,
                     .precise = precise,
                     .cache_dir = cache_dir,
                     .chunk = 64,
                     .context = 1024,
                     .max_depth = WEFT_MAX_DEPTH};
    if (weft_engine_open_reduced(&g, &c, reduction, &e) != WEFT_OK) fail_msg("%s: %s", p->model, e.text);
    return g;
}

static bool listed(const int32_t *ids, int n, int32_t id) {
    return weft_column_of(&(weft_columns){.n = n, .ids = ids}, id) >= 0;
}

/* Runs a request and looks at every draft that was judged. forced: whatever it says, it drafts from the list where there is one. */
static answer *run(weft_engine *g, const weft_request_desc *d, bool force, int *drafts) {
    answer *a = calloc(1, sizeof *a);
    weft_request_desc own = *d;
    own.user = a;
    weft_request *r = submit(g, &own);
    const weft_event *ev;
    size_t n;
    int listed_n;
    const int32_t *ids = weft_model_draft_ids(g->model, &listed_n);
    for (;;) {
        if (force) r->listed = 1;
        if (!weft_run_step(g, &ev, &n)) break;
        note_end(g, ev, n);
        assert_true(!force || g->draft_ids == ids);
        for (int i = 0; i < r->n_draft; i++, ++*drafts)
            if (g->draft_ids && !listed(ids, listed_n, r->draft[i])) fail_msg("draft %d is not in the list", r->draft[i]);
        assert_null(weft_engine_check(g));
    }
    finish(r, a, false);
    return a;
}

static const weft_logit_bias bias[] = {{7, 3}, {200, 2}, {290, -4}};
static weft_request_desc request(int kind, const int32_t *prompt, int length, int depth) {
    weft_request_desc d = {.prompt = prompt,
                           .n_prompt = PROMPT,
                           .max_tokens = length,
                           .depth = depth,
                           .has_seed = true,
                           .seed = 11,
                           .no_lookup = true,
                           .ignore_end = true};
    if (kind) d.temperature = 0.8;
    if (kind == 2) {
        d.top_k = 40;
        d.top_p = 0.9f;
        d.repetition_penalty = 1.2f;
        d.presence_penalty = 0.4f;
        d.bias = bias;
        d.n_bias = 3;
    }
    return d;
}

/* Sanitizers and the precise mode take several times as long; the bundled model is a hundred times a golden. */
static int length_for(const pair *p) {
#if SANITIZED
    int length = p->length / 4;
#else
    int length = p->length;
#endif
    return precise || isa ? length / 2 : length;
}

/* One model, by one thread and two, at every depth: greedy, seeded, and with all rules at once. */
static void reduced_is_exact(const pair *p) {
    int32_t prompt[PROMPT];
    answer *base[3] = {0};
    uint64_t accepted = 0;
    make_prompt(prompt, PROMPT, 3);
    for (int threads = 1; threads <= 2; threads++) {
        weft_engine *g = open_reduced(p, threads, p->reduction, "");
        int n, drafts = 0;
        const int32_t *ids = weft_model_draft_ids(g->model, &n);
        assert_non_null(ids);
        assert_int_equal(n, p->reduction.ids);
        for (int depth = 0; depth <= WEFT_MAX_DEPTH; depth++)
            for (int kind = 0; kind < 3; kind++) {
                weft_request_desc d = request(kind, prompt, length_for(p), depth);
                answer *a = run(g, &d, true, &drafts);
                for (int i = 0; i < depth; i++) accepted += a->stats.accepted[i];
                if (depth) assert_true(a->stats.drafted[0] > 0);
                if (!base[kind]) {
                    base[kind] = a;
                    continue;
                }
                same_ids(base[kind], a);
                drop(a);
            }
        assert_true(drafts > 0);
        weft_engine_close(g);
    }
    if (p->agrees) assert_true(accepted > 0);
    for (int kind = 0; kind < 3; kind++) drop(base[kind]);
}
static void test_reduced_heads_are_exact(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!isa || !pairs[i].agrees) reduced_is_exact(&pairs[i]);
}

/* Where the model says the ids of the list alone, the reduced head drafts as the whole one does: quantised rows are the same rows.
 */
static void test_the_same_drafts(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 3);
    for (size_t m = 0; m < sizeof pairs / sizeof *pairs; m++) {
        const pair *p = &pairs[m];
        if ((!precise && strcmp(p->model, forged) != 0) || (isa && p->agrees))
            continue; /* plain rows become codes in the fast mode */
        weft_engine *some = open_reduced(p, 1, p->reduction, ""), *all = open_reduced(p, 1, (weft_reduction){1 << 30, 1}, "");
        int n, drafts = 0;
        assert_null(weft_model_draft_ids(all->model, &n));
        const int32_t *ids = weft_model_draft_ids(some->model, &n);
        for (int kind = 0; kind < 4; kind++) { /* the last: rejection sampling, whose trials map the list's columns */
            weft_request_desc d = request(kind % 3, prompt, 60, 3);
            if (kind == 3) d.temperature = 1, d.accept = WEFT_ACCEPT_REJECTION;
            d.allowed = ids;
            d.n_allowed = (size_t)n;
            answer *a = run(some, &d, true, &drafts), *b = run(all, &d, true, &drafts);
            same_ids(a, b);
            assert_memory_equal(a->stats.accepted, b->stats.accepted, sizeof a->stats.accepted);
            drop(a);
            drop(b);
        }
        weft_engine_close(some);
        weft_engine_close(all);
    }
}

/* What was said is in the next start's list, in place of ids that were not; a cache that is "" is not written, nor is anything
 * by a benchmark or where all ids are drafted from. */
static void test_the_list_follows_what_is_said(void **state) {
    (void)state;
    const pair *p = &pairs[0];
    const weft_reduction few = {100, 90};
    int32_t prompt[PROMPT];
    int n, drafts = 0;
    make_prompt(prompt, PROMPT, 5);
    weft_str path = {0};
    for (int round = -1; round < 4; round++) { /* not to be kept, nothing kept, nothing reduced, counted, used */
        weft_engine *g = open_reduced(p, 1, round == 1 ? (weft_reduction){400, 90} : few, round ? cache : "");
        if (round < 0) weft_engine_benchmark(g);
        assert_true(round < 3 ? access(cache, F_OK) != 0 : access(path.p, F_OK) == 0);
        const int32_t *ids = weft_model_draft_ids(g->model, &n);
        assert_int_equal(n, round == 1 ? 0 : 90);
        const int32_t *eos = g->folders.model.config.eos;
        for (int i = 0; ids && i < g->folders.model.config.n_eos; i++) assert_true(listed(ids, n, eos[i]));
        assert_int_equal(round != 1 && round < 3, ids && listed(ids, n, 80)); /* the lowest, where nothing is known */
        if (round == 2) assert_true(weft_str_addz(&path, g->usage.path.p));
        weft_request_desc d = request(1, prompt, 400, 4);
        static const int32_t said[] = {5, 130, 131, 200, 250, 255, 299, 301, 310, 311, 312};
        int32_t more[70];
        for (int i = 0; i < 70; i++) more[i] = i < 11 ? said[i] : 140 + i;
        d.allowed = more;
        d.n_allowed = 70;
        answer *a = run(g, &d, false, &drafts);
        for (size_t i = a->n_prompt; i < a->n && round == 3; i++) assert_true(listed(ids, n, a->ids[i]));
        drop(a);
        weft_engine_close(g);
    }
    unlink(path.p);
    weft_str_free(&path);
    rmdir(cache);
}

/* What a request says decides: its prompt at first, then its answer. Text that the list does not have is drafted by the whole head,
 * and comes back to the small one when its ids are said again; both are exact. */
static void test_the_head_follows_the_text(void **state) {
    (void)state;
    const pair *p = &pairs[0];
    weft_engine *g = open_reduced(p, 1, p->reduction, "");
    int n;
    const int32_t *ids = weft_model_draft_ids(g->model, &n);
    int32_t low[PROMPT], high[PROMPT], in[100], out[100];
    for (int i = 0; i < PROMPT; i++) low[i] = i, high[i] = 200 + i;
    for (int i = 0; i < 100; i++) in[i] = i, out[i] = 165 + i;
    assert_true(weft_model_draft_saves(g->model) > 0 && ids[0] == 0 && !listed(ids, n, 165));
    for (int kind = 0; kind < 4; kind++) {
        answer *base = NULL;
        for (int depth = 0; depth <= 4; depth += 4) {
            weft_request_desc d = request(kind % 2, kind < 2 ? low : high, 300, depth);
            d.allowed = kind < 2 ? out : in;
            d.n_allowed = 100;
            answer *a = calloc(1, sizeof *a);
            d.user = a;
            weft_request *r = submit(g, &d);
            const weft_event *ev;
            size_t events;
            int whole = 0, some = 0;
            const int32_t *last = NULL;
            assert_true(kind < 2 ? r->listed == 1 : r->listed == 0);
            while (weft_run_step(g, &ev, &events)) {
                note_end(g, ev, events);
                if (!r->n_draft) continue;
                if (!some && !whole) assert_true(g->draft_ids == (kind < 2 ? ids : NULL));
                *(g->draft_ids ? &some : &whole) += 1;
                last = g->draft_ids;
            }
            assert_true(kind < 2 ? r->listed < 0.02f : r->listed > 0.98f);
            if (depth) assert_true(whole > 0 && some > 0 && last == (kind < 2 ? NULL : ids));
            finish(r, a, false);
            if (base) same_ids(base, a);
            if (base) drop(base);
            base = a;
        }
        drop(base);
    }
    weft_engine_close(g);
}

/* An ordered head reads little as it is: it stays, and nothing is counted. */
static void test_an_ordered_head_stays(void **state) {
    (void)state;
    const pair p = {"tests/data/golden/gemma4-assistant-ordered/target",
                    "tests/data/golden/gemma4-assistant-ordered/assistant",
                    {100, 160},
                    40,
                    false};
    int32_t prompt[PROMPT];
    int n, drafts = 0;
    make_prompt(prompt, PROMPT, 5);
    weft_engine *g = open_reduced(&p, 1, p.reduction, cache);
    assert_null(weft_model_draft_ids(g->model, &n));
    weft_request_desc d = request(0, prompt, p.length, 3);
    drop(run(g, &d, false, &drafts));
    assert_true(drafts > 0);
    weft_engine_close(g);
    assert_true(access(cache, F_OK) != 0);
}

/* The copy costs memory, which the plan counts, and nothing else: the packed weights are those of the whole head. */
static void test_the_plan_counts_it(void **state) {
    (void)state;
    weft_dev_memory m[2];
    for (int i = 0; i < 2; i++) {
        weft_engine *g = open_reduced(&pairs[0], 1, i ? (weft_reduction){100, 160} : (weft_reduction){400, 1}, "");
        weft_dev_memory_get(g->dev, &m[i]);
        weft_engine_close(g);
    }
    assert_true(m[1].weights > m[0].weights);
    assert_true(m[1].packed == m[0].packed && m[1].layout == m[0].layout);
}

static int make_forged(void **state) {
    (void)state;
    static const weft_shape shape = {.name = "reduced",
                                     .family = WEFT_SHAPE_QWEN3_5,
                                     .layers = "LL*",
                                     .hidden = 128,
                                     .n_layers = 3,
                                     .vocab = 2300,
                                     .context = 4096,
                                     .tied = true,
                                     .intermediate = 256,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 32,
                                     .rotary_dim = 16,
                                     .theta = 1e5,
                                     .gdn_k_heads = 2,
                                     .gdn_v_heads = 4,
                                     .gdn_dim = 32,
                                     .taps = 4};
    const char *tmp = getenv("TMPDIR");
    uint64_t bytes;
    weft_error e;
    snprintf(folder, sizeof folder, "%s/weft-reduced-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(forged, sizeof forged, "%s/model", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    weft_synth y = {.shape = &shape, .bits = 4, .head_bits = 4, .seed = 5, .out = forged};
    if (weft_synth_write(&y, &bytes, &e) == WEFT_OK) return 0;
    print_error("%s\n", e.text);
    return -1;
}
static int drop_forged(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors", ""};
    char path[400];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", forged, files[i]);
        remove(path);
    }
    rmdir(folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduced_heads_are_exact),       cmocka_unit_test(test_the_same_drafts),
        cmocka_unit_test(test_the_list_follows_what_is_said), cmocka_unit_test(test_the_head_follows_the_text),
        cmocka_unit_test(test_an_ordered_head_stays),         cmocka_unit_test(test_the_plan_counts_it),
    };
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        precise = i;
        print_message("%s\n", precise ? "precise" : "fast");
        failed += cmocka_run_group_tests(tests, make_forged, drop_forged);
    }
    const struct CMUnitTest heart[] = {cmocka_unit_test(test_reduced_heads_are_exact), cmocka_unit_test(test_the_same_drafts)};
    precise = false;
    for (int i = 0, here = 0; weft_isas[i]; i++) {
        isa = weft_isas[i]->name;
        if (!weft_isa_here(weft_isas[i]) || !here++) continue; /* the best was all of the above */
        print_message("%s\n", isa);
        failed += cmocka_run_group_tests(heart, make_forged, drop_forged);
    }
    return failed;
}

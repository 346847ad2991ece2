/* test_engine_families.c: the promise, byte for byte, on a golden of every family: tokens and stored memory do not depend on draft
 * depth, on how many drafts are accepted, on chunks, on threads, on instruction sets, or on who shares the batch. Drafts come from
 * the model's own head, from the drafter beside it, and from lists, which are right as often as a test wants. Prompts and answers
 * are long enough to cross the borders of pages and of windows, whose pages are given back on the way.
 *
 * test_engine.c does the same on Qwen3.5, and tests what does not depend on the model: ends, sampling, refusals. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "engine_walks.h"
#include "sanitizers.h"

#define GOLDEN "tests/data/golden/"

typedef struct subject {
    const char *model, *draft; /* folders; draft NULL: none */
    bool drafts;               /* itself, or what stands beside it */
} subject;
static const subject subjects[] = {
    {GOLDEN "qwen3_next", NULL, false},
    {GOLDEN "qwen3-moe", NULL, false},
    {GOLDEN "llama3", NULL, false},
    {GOLDEN "gemma3", NULL, false},
    {GOLDEN "gemma4-ple", NULL, false},
    {GOLDEN "gemma4-moe", NULL, false},
    {GOLDEN "nemotron_h-dense", NULL, false},
    {GOLDEN "nemotron_h-mtp", NULL, true},
    {GOLDEN "gemma4-assistant/target", GOLDEN "gemma4-assistant/assistant", true},
    {GOLDEN "gemma4-assistant-ordered/target", GOLDEN "gemma4-assistant-ordered/assistant", true},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, PROMPT = 70, LENGTH = 330, DEPTH = WEFT_MAX_DEPTH };

#if SANITIZED
enum { SLOWER = 3 };
#else
enum { SLOWER = 1 };
#endif

static weft_engine *open_subject(const subject *s, int threads, int chunk, int requests) {
    weft_engine *g = open_pair(s->model, s->draft, threads, chunk, requests, DEPTH);
    assert_int_equal(g->info.drafts, s->drafts);
    return g;
}

/* 0..most by turns, as if thrown. */
static void mix(int *counts, int n, int most) {
    for (int i = 0; i < n; i++) counts[i] = i * 29 % 11 % (most + 1);
}

/* ---- depth --------------------------------------------------------------------------------------------------------------- */

/* Greedy and seeded text, and the memory behind it, at depths 0 to 8. At a high temperature noise decides, which draft and text
 * share: so even a drafter with random weights agrees now and then. */
static void depth_changes_nothing(void **state) {
    (void)state;
    enum { TOKENS = LENGTH / SLOWER, KINDS = 3 };
    static const double temperatures[KINDS] = {0, 0.8, 30};
    int32_t prompt[PROMPT], list[TOKENS];
    int mixed[64];
    make_prompt(prompt, PROMPT, 1);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        weft_engine *g = open_subject(s, 2, 64, 1);
        weft_request_desc kinds[KINDS],
            d = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = TOKENS, .has_seed = true, .seed = 42, .ignore_end = true};
        answer *base[KINDS];
        for (int k = 0; k < KINDS; k++) {
            kinds[k] = d;
            kinds[k].temperature = temperatures[k];
            base[k] = ask(g, kinds[k], true);
        }
        uint64_t agreed = 0, rejected = 0;
        for (int depth = 1; depth <= DEPTH; depth++)
            for (int source = s->drafts ? 0 : 1; source < 2; source++) { /* its own drafts, a list */
                int k = (depth + source) % KINDS;
                d = kinds[k];
                d.depth = depth;
                mix(mixed, 64, depth);
                forced(list, base[k]->ids + PROMPT, TOKENS, g->info.vocab, mixed, 64, depth);
                if (source) d.drafts = list, d.n_drafts = TOKENS;
                answer *a = ask(g, d, true);
                same_ids(base[k], a);
                same_memory(base[k], a);
                assert_int_equal(a->stats.tokens, TOKENS);
                assert_true(a->stats.drafted[0] > 0); /* verified, not only made */
                assert_int_equal(a->stats.draft_steps > 0, source == 0);
                if (source) assert_true(a->stats.accepted[0] > 0 && a->stats.passes < a->stats.tokens);
                for (int i = 0; i < depth && !source; i++) {
                    agreed += a->stats.accepted[i];
                    rejected += a->stats.drafted[i] - a->stats.accepted[i];
                }
                drop(a);
            }
        if (s->drafts) assert_true(agreed > 0 && rejected > 0);
        for (int k = 0; k < KINDS; k++) drop(base[k]);
        weft_engine_close(g);
    }
}

/* Each accept count from none to all, in every pass. */
static void every_accept_count(void **state) {
    (void)state;
    enum { TOKENS = 120 / SLOWER };
    int32_t prompt[PROMPT], list[TOKENS];
    make_prompt(prompt, PROMPT, 2);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        weft_engine *g = open_subject(s, 2, 64, 1);
        weft_request_desc d = {
            .prompt = prompt, .n_prompt = PROMPT, .max_tokens = TOKENS, .temperature = 0.7, .has_seed = true, .seed = 7, .ignore_end = true};
        answer *base = ask(g, d, true);
        for (int depth = 1; depth <= DEPTH; depth += depth < 4 ? 1 : 4)
            for (int count = 0; count <= depth; count++) {
                forced(list, base->ids + PROMPT, TOKENS, g->info.vocab, &count, 1, depth);
                d.depth = depth, d.drafts = list, d.n_drafts = TOKENS;
                answer *a = ask(g, d, true);
                same_ids(base, a);
                same_memory(base, a);
                assert_int_equal(a->stats.passes, (PROMPT + 63) / 64 + (TOKENS - 1 + count) / (count + 1));
                assert_int_equal(a->stats.accepted[0] > 0, count > 0);
                drop(a);
            }
        drop(base);
        weft_engine_close(g);
    }
}

/* ---- history ------------------------------------------------------------------------------------------------------------- */

/* What was generated, in passes with drafts, leaves what a cold prefill of it leaves: for any chunk and thread count. */
static void generated_equals_prefilled(void **state) {
    (void)state;
    enum { TOKENS = LENGTH / SLOWER };
    int32_t prompt[PROMPT];
    const struct { int threads, chunk; } ways[] = {{1, 1}, {1, 7}, {2, 64}, {3, 150}, {2, 1000}};
    make_prompt(prompt, PROMPT, 3);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        weft_engine *g = open_subject(s, 2, 32, 1);
        answer *a =
            ask(g, (weft_request_desc){.prompt = prompt, .n_prompt = PROMPT, .max_tokens = TOKENS, .depth = 3, .ignore_end = true},
                true);
        weft_engine_close(g);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            g = open_subject(s, ways[w].threads, ways[w].chunk, 1);
            answer *b = ask(
                g, (weft_request_desc){.prompt = a->ids, .n_prompt = (size_t)a->done, .max_tokens = 1, .ignore_end = true}, true);
            assert_int_equal(b->ids[b->n - 1], a->ids[a->n - 1]);
            same_memory(a, b);
            assert_int_equal(b->stats.passes, (a->done + ways[w].chunk - 1) / ways[w].chunk);
            drop(b);
            weft_engine_close(g);
        }
        drop(a);
    }
}

/* A window's pages come and go: never more than planned, and all of them are back in the end. */
static void windows_hold_few_pages(void **state) {
    (void)state;
    enum { LONG = 400 };
    static const struct { int chunk, depth; } ways[] = {{16, 4}, {1, DEPTH}};
    int32_t prompt[LONG];
    make_prompt(prompt, LONG, 4);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++)
        for (int w = 0; w < 2; w++) {
            weft_engine *g = open_subject(s, 2, ways[w].chunk, 2);
            const weft_index_pool *pool = &g->pages[WEFT_PAGES_WINDOW];
            weft_request *r[2];
            answer end[2] = {{{0}, 0, 0, 0, {0}, 0, 0, 0, 0, 0}};
            for (int i = 0; i < 2; i++)
                r[i] = submit(g, &(weft_request_desc){.prompt = prompt + i,
                                                      .n_prompt = LONG - 100 * (size_t)i - 1,
                                                      .max_tokens = 150,
                                                      .temperature = 30, .has_seed = true,
                                                      .depth = ways[w].depth,
                                                      .ignore_end = true,
                                                      .user = &end[i]});
            const weft_event *ev;
            size_t n;
            int rows = ways[w].chunk > 1 + DEPTH ? ways[w].chunk : 1 + DEPTH;
            int most = g->window ? weft_place_window_pages(g->window, rows) : 0;
            uint64_t before = weft_alloc_count();
            while (weft_run_step(g, &ev, &n)) {
                note_end(g, ev, n);
                const char *broken = weft_engine_check(g);
                if (broken) fail_msg("%s: %s", s->model, broken);
                for (int i = 0; i < 2; i++) assert_true(r[i]->window_to - r[i]->window_from <= most);
            }
            assert_int_equal(weft_alloc_count(), before);
            for (int i = 0; i < 2; i++) {
                if (g->window) assert_true(r[i]->window_from > 0);
                weft_request_close(r[i]);
            }
            assert_int_equal(pool->n_free, pool->n);
            weft_engine_close(g);
        }
}

/* A context filled to its last token while drafting as deep as can be, of a size that is no whole number of pages. */
static void a_full_context_drafts_to_the_end(void **state) {
    (void)state;
    enum { ALL = 3 * WEFT_PAGE_ROWS + 1, TOKENS = ALL - PROMPT };
    int32_t prompt[PROMPT], list[TOKENS];
    make_prompt(prompt, PROMPT, 16);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        weft_request_desc d = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = TOKENS, .temperature = 30, .has_seed = true, .ignore_end = true};
        weft_engine *g = open_subject(s, 2, 64, 1);
        answer *base = ask(g, d, false);
        weft_engine_close(g);
        weft_config c = {.model = s->model, .draft = s->draft, .threads = 2, .chunk = 32, .context = ALL, .max_depth = DEPTH};
        weft_error e = {0};
        if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s: %s", s->model, e.text);
        d.depth = DEPTH;
        for (int source = 0; source < 2; source++) {
            memcpy(list, base->ids + PROMPT, sizeof list);
            if (source) d.drafts = list, d.n_drafts = TOKENS;
            answer *a = ask(g, d, false);
            assert_int_equal(a->reason, WEFT_END_LENGTH);
            same_ids(base, a);
            drop(a);
        }
        drop(base);
        weft_engine_close(g);
    }
}

/* ---- company ------------------------------------------------------------------------------------------------------------- */

/* Requests of different length, depth, temperature and seed in one batch, joining and leaving at different steps, answer as they do
 * alone, where chunks and threads are others. */
static void company_changes_nothing(void **state) {
    (void)state;
    enum { N = 6, LONG = 400 / SLOWER };
    static const int lengths[N] = {1, 33, LONG, 133, 64, 65}, tokens[N] = {90, 40, 120, 60, 1, 77};
    static int32_t prompts[N][LONG], lists[N][128];
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        answer *alone[N], *together[N];
        weft_request_desc d[N];
        weft_engine *g = open_subject(s, 2, 64, 1);
        for (int i = 0; i < N; i++) {
            make_prompt(prompts[i], lengths[i], 10 + (uint32_t)i);
            d[i] = (weft_request_desc){.prompt = prompts[i],
                                       .n_prompt = (size_t)lengths[i],
                                       .max_tokens = tokens[i],
                                       .temperature = i % 3 ? 0.9 : 0,
                                       .has_seed = true, .seed = (uint64_t)i,
                                       .ignore_end = true};
            alone[i] = ask(g, d[i], true);
        }
        weft_engine_close(g);
        g = open_subject(s, 3, 48, N);
        weft_request *r[N] = {0};
        for (int i = 0; i < N; i++) {
            int mixed[64], depth = i % 5 * 2;
            mix(mixed, 64, depth);
            d[i].depth = depth;
            if (i % 2) {
                forced(lists[i], alone[i]->ids + lengths[i], (size_t)tokens[i], g->info.vocab, mixed, 64, depth ? depth : 1);
                d[i].drafts = lists[i];
                d[i].n_drafts = (size_t)tokens[i];
            }
            d[i].user = together[i] = calloc(1, sizeof **together);
        }
        const weft_event *ev;
        size_t n;
        bool running = true;
        for (int step = 0, next = 0; next < N || running; step++) {
            if (next < N && step % 5 == 0) {
                r[next] = submit(g, &d[next]);
                next++;
            }
            running = weft_run_step(g, &ev, &n);
            note_end(g, ev, n);
        }
        for (int i = 0; i < N; i++) {
            finish(r[i], together[i], true);
            same_ids(alone[i], together[i]);
            same_memory(alone[i], together[i]);
            drop(alone[i]);
            drop(together[i]);
        }
        for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++) assert_int_equal(g->pages[kind].n_free, g->pages[kind].n);
        weft_engine_close(g);
    }
}

/* A request closed in the middle of anything disturbs nobody. */
static void cancelled_requests_leave_no_trace(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 9);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        weft_engine *g = open_subject(s, 2, 16, 2);
        weft_request_desc d = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 40, .depth = 4, .ignore_end = true};
        answer *base = ask(g, d, true);
        for (int after = 0; after < 12; after += 3) {
            answer victim = {{0}, 0, 0, 0, {0}, 0, 0, 0, 0, 0}, *a = calloc(1, sizeof *a);
            const weft_event *ev;
            size_t n;
            weft_request_desc other = d;
            other.prompt = prompt + 1, other.n_prompt--, other.user = &victim;
            d.user = a;
            weft_request *doomed = submit(g, &other), *r = submit(g, &d);
            for (int i = 0; i < after; i++) weft_run_step(g, &ev, &n);
            weft_request_close(doomed);
            run_all(g);
            finish(r, a, true);
            same_ids(base, a);
            same_memory(base, a);
            drop(a);
        }
        drop(base);
        weft_engine_close(g);
    }
}

/* ---- faults -------------------------------------------------------------------------------------------------------------- */

/* A head or a drafter that gives NaN drafts badly and does no more. Both read their first hidden row from the slot's end. */
static void a_broken_drafter_only_drafts_badly(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 13);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        if (!s->drafts) continue;
        weft_engine *g = open_subject(s, 2, 64, 1);
        weft_request_desc d = {
            .prompt = prompt, .n_prompt = PROMPT, .max_tokens = 20, .temperature = 0.5, .has_seed = true, .seed = 5, .ignore_end = true};
        answer *base = ask(g, d, false), *a = calloc(1, sizeof *a);
        weft_error e = {0};
        const weft_event *ev;
        size_t n, bytes = weft_slot_bytes(g->dev), hidden = (size_t)g->folders.model.config.hidden_size;
        float *slot = malloc(bytes);
        d.depth = 3, d.user = a;
        weft_request *r = submit(g, &d);
        while (weft_run_step(g, &ev, &n)) {
            note_end(g, ev, n);
            assert_int_equal(weft_slot_io(g->dev, r->slot, slot, true, &e), WEFT_OK);
            for (size_t i = 0; i < hidden; i++) slot[bytes / sizeof *slot - hidden + i] = __builtin_nanf("");
            assert_int_equal(weft_slot_io(g->dev, r->slot, slot, false, &e), WEFT_OK);
        }
        free(slot);
        finish(r, a, false);
        assert_true(a->stats.drafted[0] > 0);
        same_ids(base, a);
        drop(a);
        drop(base);
        weft_engine_close(g);
    }
}

/* gemma4-ple in a folder of its own, where a per-layer table stays on disk. */
typedef struct copy {
    char folder[200], config[240], weights[240];
    size_t table, size; /* the table's place in the file of weights, the file's size */
} copy;

static void copy_model(copy *c) {
    const char *tmp = getenv("TMPDIR"), *from = GOLDEN "gemma4-ple";
    weft_model_dir d;
    weft_error e = {0};
    char *data;
    snprintf(c->folder, sizeof c->folder, "%s/weft-families-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(c->folder));
    snprintf(c->config, sizeof c->config, "%s/config.json", c->folder);
    snprintf(c->weights, sizeof c->weights, "%s/model.safetensors", c->folder);
    assert_int_equal(weft_model_dir_open(&d, from, &e), WEFT_OK);
    const weft_map *map = weft_tensors_file(d.tensors, 0);
    c->table = (size_t)(weft_tensors_find(d.tensors, "model.embed_tokens_per_layer.weight")->data - map->data);
    c->size = map->size;
    assert_int_equal(weft_file_write(c->weights, map->data, map->size, &e), WEFT_OK);
    weft_model_dir_close(&d);
    size_t n;
    assert_int_equal(weft_file_read(GOLDEN "gemma4-ple/config.json", 1 << 20, &data, &n, &e), WEFT_OK);
    assert_int_equal(weft_file_write(c->config, data, n, &e), WEFT_OK);
    weft_free(data);
}
static void drop_copy(const copy *c) {
    remove(c->config);
    remove(c->weights);
    rmdir(c->folder);
}

/* The request's end must be an error that says this. */
static void ends_with(weft_engine *g, const weft_request_desc *d, const char *words) {
    weft_request *r = submit(g, d);
    const weft_event *ev;
    size_t n;
    int ends = 0;
    while (weft_run_step(g, &ev, &n))
        for (size_t i = 0; i < n; i++) {
            if (ev[i].kind != WEFT_EVENT_END) continue;
            assert_int_equal(ev[i].reason, WEFT_END_ERROR);
            if (!strstr(ev[i].error->text, words)) fail_msg("\"%s\" does not say: %s", ev[i].error->text, words);
            ends++;
        }
    assert_int_equal(ends, 1);
    weft_request_close(r);
}

/* NaN in a row of the table ends the request that wants it, wherever its prompt comes to it; others run as before. */
static void a_damaged_row_ends_its_request(void **state) {
    (void)state;
    enum { BAD = 319 };
    int32_t prompt[PROMPT];
    copy c;
    copy_model(&c);
    make_prompt(prompt, PROMPT, 15);
    weft_request_desc d = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 8, .ignore_end = true};
    weft_engine *g = open_pair(GOLDEN "gemma4-ple", NULL, 2, 16, 1, 0);
    answer *base = ask(g, d, true);
    for (size_t i = 0; i < base->n; i++) assert_int_not_equal(base->ids[i], BAD);
    weft_engine_close(g);
    FILE *f = fopen(c.weights, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(c.table + (BAD * 96 + 5) * 2), SEEK_SET), 0);
    assert_int_equal(fwrite("\xc1\x7f", 1, 2, f), 2);
    fclose(f);
    g = open_pair(c.folder, NULL, 2, 16, 1, 0);
    for (int at = 0; at < PROMPT; at += PROMPT - 1) {
        int32_t other = prompt[at];
        prompt[at] = BAD;
        ends_with(g, &d, "tensor 'model.embed_tokens_per_layer.weight' holds NaN or infinity: row 319, column 5");
        prompt[at] = other;
        answer *a = ask(g, d, true);
        same_ids(base, a);
        same_memory(base, a);
        drop(a);
    }
    drop(base);
    weft_engine_close(g);
    drop_copy(&c);
}

/* The fault handler of base/file.c; cmocka puts its own before each test. */
static struct sigaction handler;

/* So does a file that is cut while it is in use: the lost rows must not pass for zeros. */
static void a_table_cut_short_is_an_error(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    copy c;
    copy_model(&c);
    make_prompt(prompt, PROMPT, 15);
    weft_request_desc d = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 8, .ignore_end = true};
    weft_engine *g = open_pair(c.folder, NULL, 2, 16, 1, 0);
    drop(ask(g, d, false));
    sigaction(SIGBUS, &handler, NULL);
    assert_int_equal(truncate(c.weights, (off_t)(c.table / 2)), 0);
    ends_with(g, &d, "cut short");
    weft_engine_close(g);
    drop_copy(&c);
}

/* A failed allocation anywhere while opening and running: an error, no crash, no leak. */
static void out_of_memory_is_an_error(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 12);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        weft_status status = WEFT_ENOMEM;
        for (uint64_t n = 1; status != WEFT_OK; n += 1 + n / 12) {
            weft_engine *g = NULL;
            weft_request *r = NULL;
            weft_error e = {0};
            weft_config c = {.model = s->model, .draft = s->draft, .threads = 2, .chunk = 64, .context = 128, .max_depth = 2};
            answer a = {{0}, 0, 0, 0, {0}, 0, 0, 0, 0, 0};
            weft_alloc_fail_at(n);
            status = weft_engine_open(&g, &c, &e);
            if (status == WEFT_OK)
                status = weft_submit(
                    g, &(weft_request_desc){.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 5, .depth = 2, .user = &a}, &r, &e);
            if (status == WEFT_OK) run_all(g);
            weft_alloc_fail_at(0);
            if (status != WEFT_OK) {
                assert_int_equal(status, WEFT_ENOMEM);
                assert_true(e.text[0] != 0);
            }
            weft_request_close(r);
            weft_engine_close(g);
        }
    }
}

/* ---- the arithmetic ------------------------------------------------------------------------------------------------------ */

/* What the plain C kernels give, every instruction set gives: text and memory. */
static void instruction_sets_agree(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 14);
    for (const subject *s = subjects; s < subjects + SUBJECTS; s++) {
        answer *base = NULL;
        for (int i = 0; weft_isas[i]; i++) {
            if (!weft_isa_here(weft_isas[i])) continue;
            isa = weft_isas[i]->name;
            weft_engine *g = open_subject(s, 2, 64, 1);
            answer *a = ask(g,
                            (weft_request_desc){.prompt = prompt,
                                                .n_prompt = PROMPT,
                                                .max_tokens = 60,
                                                .temperature = 0.6,
                                                .has_seed = true, .seed = 8,
                                                .depth = 2,
                                                .ignore_end = true},
                            true);
            weft_engine_close(g);
            isa = NULL;
            if (!base) {
                base = a;
                continue;
            }
            same_ids(base, a);
            same_memory(base, a);
            drop(a);
        }
        drop(base);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_changes_nothing),
        cmocka_unit_test(every_accept_count),
        cmocka_unit_test(generated_equals_prefilled),
        cmocka_unit_test(windows_hold_few_pages),
        cmocka_unit_test(a_full_context_drafts_to_the_end),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(cancelled_requests_leave_no_trace),
        cmocka_unit_test(a_broken_drafter_only_drafts_badly),
        cmocka_unit_test(a_damaged_row_ends_its_request),
        cmocka_unit_test(a_table_cut_short_is_an_error),
        cmocka_unit_test(out_of_memory_is_an_error),
        cmocka_unit_test(instruction_sets_agree),
    };
    const struct CMUnitTest heart[] = {
        cmocka_unit_test(depth_changes_nothing),
        cmocka_unit_test(generated_equals_prefilled),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(instruction_sets_agree),
    };
    weft_map map; /* the first one puts the handler in its place */
    if (weft_map_open(&map, GOLDEN "gemma4-ple/config.json", NULL) != WEFT_OK) return 1;
    weft_map_close(&map);
    sigaction(SIGBUS, NULL, &handler);
    print_message("fast\n");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    precise = true;
    print_message("precise\n");
    failed += cmocka_run_group_tests(heart, NULL, NULL);
    precise = false;
    kv = "int8";
    print_message("fast, int8 keys and values\n");
    return failed + cmocka_run_group_tests(heart, NULL, NULL);
}

/* test_same_text.c: no draft changes a letter: greedy and seeded answers, and greedy ones by rejection, are byte for byte those of
 * depth 0 at depths 1 to 8 and at the depth that pays, with the head, with lookup, with both and with an assistant, by one thread
 * and by two, in batches.
 *
 * Without an argument some prompts and depths; `test_same_text all` (make test-same) 200 prompts and everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "weft.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SOME = 8, OF_HEAVY = 2, SHORT = 16, HEAVY_SHORT = 8 }; /* prompts and tokens where not all is asked for */
#else
enum { SOME = 40, OF_HEAVY = 8, SHORT = 40, HEAVY_SHORT = 24 };
#endif
enum { BATCH = 40, PROMPTS = 200, LONGEST = 300, LENGTH = 64 };
static bool all;
static long compared;
static uint64_t accepted, looked_up; /* drafts that were right */

typedef struct subject {
    const char *folder, *draft;
    bool head;  /* it has a drafter: with it alone, too */
    bool heavy; /* takes a hundred times a golden's work */
} subject;
#define GOLDEN "tests/data/golden/"
static const subject subjects[] = {
    {GOLDEN "qwen3_5-dense", NULL, true, false},
    {GOLDEN "qwen3_5-moe", NULL, true, false},
    {GOLDEN "nemotron_h-mtp", NULL, true, false},
    {GOLDEN "gemma4-assistant/target", GOLDEN "gemma4-assistant/assistant", true, false},
    {GOLDEN "gemma4-assistant-ordered/target", GOLDEN "gemma4-assistant-ordered/assistant", true, false},
    {GOLDEN "qwen3_next", NULL, false, false},
    {GOLDEN "gemma3", NULL, false, false},
    {"models/mini", NULL, true, true},
};

/* ---- prompts ------------------------------------------------------------------------------------------------------------- */

typedef struct prompt {
    int32_t ids[LONGEST];
    size_t n;
    bool few; /* of six ids */
} prompt;

static const int32_t six[] = {3, 14, 15, 92, 65, 35};

/* Ids below 300, with repeats; every other one of six ids, which then are the only ones of the answer, so that it repeats itself.
 */
static void make_ids(prompt *p, uint32_t k) {
    uint32_t seed = k * 7919 + 1;
    p->few = k % 2;
    p->n = 1 + (k * 13 + 5) % 90;
    for (size_t i = 0; i < p->n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p->ids[i] = i > 12 && i % 11 < 7 ? p->ids[i - 12] : (int32_t)(seed >> 16) % 300;
        if (p->few) p->ids[i] = six[p->ids[i] % 6];
    }
}

/* Wishes in a chat; beginnings of files, in which the end is much like the middle. */
static void make_text(const weft_engine *g, prompt *p, unsigned k) {
    static const char *const what[] = {"the sum of", "the largest of", "the mean of", "a sorted copy of", "the number of"};
    static const char *const whose[] = {"two numbers", "a list", "the words in a text", "the lines of a file", "a matrix"};
    static const char *const names[] = {"total", "biggest", "average", "ordered", "count", "first", "merge", "parse"};
    const char *a = what[k % 5], *b = whose[k / 5 % 5], *name = names[k / 3 % 8], *other = names[(k / 7 + 1) % 8];
    char text[1000];
    weft_error e = {0};
    int32_t *ids = NULL;
    weft_status s;
    if (k % 2) {
        snprintf(text, sizeof text,
                 "# %s of %s, %u\n\ndef %s_%u(values):\n    result = %u\n    for value in values:\n        result += value\n"
                 "    return result\n\n\ndef %s_%u(values):\n    result = %u\n    for",
                 a, b, k, name, k, k % 9, other, k, k % 7);
        s = weft_encode(g, text, strlen(text), false, &ids, &p->n, &e);
    } else {
        snprintf(text, sizeof text, "[{\"role\": \"user\", \"content\": \"Write a Python function %s_%u that returns %s %s.\"}]",
                 name, k, a, b);
        s = weft_encode_chat(g, &(weft_chat_desc){.messages = text}, &ids, &p->n, &e);
    }
    if (s != WEFT_OK) fail_msg("%s", e.text);
    assert_true(p->n > 0 && p->n <= LONGEST);
    memcpy(p->ids, ids, p->n * sizeof *ids);
    weft_ids_free(ids);
}

/* ---- answers ------------------------------------------------------------------------------------------------------------- */

typedef struct answer {
    weft_str bytes; /* ids, then text */
    weft_str text;
} answer;

/* Answers of all prompts. */
static void ask(weft_engine *g, const prompt *prompts, int n, int length, weft_request_desc d, answer *answers) {
    for (int from = 0; from < n; from += BATCH) {
        weft_request *q[BATCH];
        weft_error e = {0};
        const weft_event *ev;
        size_t n_events, n_ids;
        int some = n - from < BATCH ? n - from : BATCH;
        for (int i = 0; i < some; i++) {
            answer *a = d.user = &answers[from + i];
            weft_str_clear(&a->bytes);
            weft_str_clear(&a->text);
            d.prompt = prompts[from + i].ids;
            d.n_prompt = prompts[from + i].n;
            d.allowed = prompts[from + i].few ? six : NULL;
            d.n_allowed = prompts[from + i].few ? 6 : 0;
            d.max_tokens = length;
            d.seed = (uint64_t)(from + i);
            if (weft_submit(g, &d, &q[i], &e) != WEFT_OK) fail_msg("%s", e.text);
        }
        while (weft_run_step(g, &ev, &n_events))
            for (size_t i = 0; i < n_events; i++) {
                if (ev[i].error) fail_msg("%s", ev[i].error->text);
                assert_true(weft_str_add(&((answer *)weft_request_user(ev[i].request))->text, ev[i].text, ev[i].n_text));
            }
        for (int i = 0; i < some; i++) {
            answer *a = &answers[from + i];
            const int32_t *ids = weft_request_ids(q[i], &n_ids);
            assert_true(weft_str_add(&a->bytes, (const char *)ids, n_ids * sizeof *ids));
            assert_true(weft_str_add(&a->bytes, weft_str_z(&a->text), a->text.n));
            weft_request_close(q[i]);
        }
    }
}

static weft_engine *open_subject(const subject *s, int threads) {
    weft_engine *g = NULL;
    weft_error e = {0};
    weft_config c = {.model = s->folder,
                     .draft = s->draft,
                     .threads = threads,
                     .context = (LONGEST + LENGTH) * BATCH,
                     .max_requests = BATCH,
                     .max_depth = WEFT_MAX_DEPTH,
                     .cache_dir = ""};
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s: %s", s->folder, e.text);
    return g;
}

static void same(const subject *s, const answer *a, const answer *b, int n, const char *how, int depth, int threads) {
    for (int i = 0; i < n; i++, compared++)
        if (a[i].bytes.n != b[i].bytes.n || memcmp(weft_str_z(&a[i].bytes), weft_str_z(&b[i].bytes), a[i].bytes.n) != 0)
            fail_msg("%s, prompt %d, %s, depth %d, %d threads: not the text of depth 0", s->folder, i, how, depth, threads);
}

static void check(const subject *s) {
    static const struct {
        const char *name;
        double temperature;
        weft_accept accept;
    } ways[] = {{"greedy", 0, WEFT_ACCEPT_COUPLED},
                {"seeded", 0.8, WEFT_ACCEPT_COUPLED},
                {"greedy by rejection", 0, WEFT_ACCEPT_REJECTION}};
    static const int few[] = {WEFT_DEPTH_AUTO, 1, 3, 8}, every[] = {WEFT_DEPTH_AUTO, 1, 2, 3, 4, 5, 6, 7, 8};
    static prompt prompts[PROMPTS];
    static answer want[3][PROMPTS], got[PROMPTS];
    const int *depths = all ? every : few;
    int n_depths = all ? 9 : 4,
        n = all        ? PROMPTS
            : s->heavy ? OF_HEAVY
                       : SOME,
        length = s->heavy ? (all ? 32 : HEAVY_SHORT)
                 : all    ? LENGTH
                          : SHORT;
    uint64_t drafted = 0;
    for (int threads = 0; threads <= 2; threads++) { /* 0: depth 0, by one thread */
        weft_engine *g = open_subject(s, threads ? threads : 1);
        weft_info info;
        weft_stats stats;
        weft_engine_info(g, &info);
        assert_true(info.drafts == s->head);
        for (int i = 0; i < n && !threads; i++)
            if (info.has_tokenizer)
                make_text(g, &prompts[i], (unsigned)i);
            else
                make_ids(&prompts[i], (uint32_t)i);
        for (int way = 0; way < 3; way++) {
            weft_request_desc d = {.temperature = ways[way].temperature, .accept = ways[way].accept, .has_seed = true};
            if (!threads) ask(g, prompts, n, length, d, want[way]);
            for (int at = 0; at < n_depths && threads; at++)
                for (int alone = 0; alone <= s->head; alone++) {
                    d.depth = depths[at];
                    d.no_lookup = alone;
                    ask(g, prompts, n, length, d, got);
                    same(s, want[way], got, n, ways[way].name, d.depth, threads);
                }
        }
        same(s, want[0], want[2], n, "greedy by rejection", 0, 1);
        weft_engine_stats(g, &stats);
        const weft_judged *by = &stats.by[WEFT_DRAFTER_LOOKUP];
        for (int i = 0; i < WEFT_MAX_DEPTH; i++) {
            drafted += stats.drafted[i], accepted += stats.accepted[i];
            looked_up += by->accepted[i];
        }
        weft_engine_close(g);
    }
    assert_true(drafted > 0);
    for (int i = 0; i < 4 * PROMPTS; i++) {
        answer *a = i < 3 * PROMPTS ? &want[i / PROMPTS][i % PROMPTS] : &got[i % PROMPTS];
        weft_str_free(&a->bytes);
        weft_str_free(&a->text);
    }
}

static void no_draft_changes_a_letter(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) check(&subjects[i]);
    assert_true(accepted > 0 && looked_up > 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_draft_changes_a_letter)};
    all = argc > 1 && strcmp(argv[1], "all") == 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%ld answers compared with those of depth 0: %s\n", compared, failed ? "not all the same" : "all the same");
    return failed;
}

/* test_speculation.c: faults of speculation that users of other engines met (tests/PITFALLS.md), on the goldens with a drafter and
 * on a model that counts: after token i it says i + 1, and so does its head, so that every draft is right.
 *
 * `test_speculation long` (make test-same): answers of 30,000 tokens in replays_do_not_drift. */
#include <setjmp.h>
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
#include "format/safetensors.h"
#include "sanitizers.h"

#if SANITIZED
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif
enum { VOCAB = 320, HIDDEN = 64, DEEPEST = WEFT_MAX_DEPTH };
static bool at_length;

#define GOLDEN "tests/data/golden/"
static const struct {
    const char *model, *draft;
} pairs[] = {
    {GOLDEN "qwen3_5-dense", NULL},
    {GOLDEN "qwen3_5-moe", NULL},
    {GOLDEN "nemotron_h-mtp", NULL},
    {GOLDEN "gemma4-assistant/target", GOLDEN "gemma4-assistant/assistant"},
    {GOLDEN "gemma4-assistant-ordered/target", GOLDEN "gemma4-assistant-ordered/assistant"},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* ---- a model that counts ------------------------------------------------------------------------------------------------- */

static char folder[200], config[240], weights[240];

static bool ends_in(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end);
}

/* qwen3_5-dense with layers that add nothing, norms that scale nothing, a head that passes on the token's embedding, and outputs
 * that are the embeddings of the ids before. */
static void change(weft_tensor *t, uint16_t *x, const uint16_t *embedding) {
    static const char *const silent[] = {"out_proj.weight",  "o_proj.weight",         "down_proj.weight",  "norm.weight",
                                         "layernorm.weight", "norm_embedding.weight", "norm_hidden.weight"};
    const uint16_t one = 0x3f80, larger = 7 << 7; /* of bfloat16: 1; an exponent that is greater by 7 */
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (ends_in(t->name, silent[i]) && !strstr(t->name, "linear_attn.norm")) memset(x, 0, t->bytes);
    for (int i = 0; i < VOCAB && !strcmp(t->name, "lm_head.weight"); i++)
        for (int k = 0; k < HIDDEN; k++) x[i * HIDDEN + k] = (uint16_t)(embedding[(i + VOCAB - 1) % VOCAB * HIDDEN + k] + larger);
    if (strcmp(t->name, "mtp.fc.weight") != 0) return;
    memset(x, 0, t->bytes);
    for (int i = 0; i < HIDDEN; i++) x[i * 2 * HIDDEN + i] = one;
}

static int make_counting(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    weft_tensors *in = NULL;
    weft_error e = {0};
    char *text;
    size_t size;
    snprintf(folder, sizeof folder, "%s/weft-counts-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    assert_int_equal(weft_file_read(GOLDEN "qwen3_5-dense/config.json", 1 << 20, &text, &size, &e), WEFT_OK);
    assert_int_equal(weft_file_write(config, text, size, &e), WEFT_OK);
    weft_free(text);
    assert_int_equal(weft_tensors_open(&in, GOLDEN "qwen3_5-dense", &e), WEFT_OK);
    size_t n = weft_tensors_count(in);
    weft_tensor *out = calloc(n, sizeof *out);
    const uint16_t *embedding = (const uint16_t *)(const void *)weft_tensors_find(in, "model.embed_tokens.weight")->data;
    for (size_t i = 0; i < n; i++) {
        out[i] = *weft_tensors_at(in, i);
        uint16_t *x = malloc(out[i].bytes);
        memcpy(x, out[i].data, out[i].bytes);
        change(&out[i], x, embedding);
        out[i].data = (const uint8_t *)x;
    }
    const char *const metadata[] = {"format", "pt", NULL};
    weft_status s = weft_safetensors_write(weights, out, n, metadata, &e);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)out[i].data);
    free(out);
    weft_tensors_close(in);
    return s == WEFT_OK ? 0 : -1;
}
static int drop_counting(void **state) {
    (void)state;
    remove(config);
    remove(weights);
    return rmdir(folder);
}

static void counts(const answer *a, int first) {
    for (size_t i = a->n_prompt; i < a->n; i++)
        if (a->ids[i] != (first + (int)(i - a->n_prompt)) % VOCAB)
            fail_msg("%d stands where %d should", a->ids[i], (first + (int)(i - a->n_prompt)) % VOCAB);
}

static void sums(const weft_stats *s, uint64_t *drafted, uint64_t *accepted) {
    *drafted = *accepted = 0;
    for (int i = 0; i < DEEPEST; i++) *drafted += s->drafted[i], *accepted += s->accepted[i];
}

static const int32_t zero[] = {0};

/* mlx-lm #846: 2, 4, 7, 9 were missing. 1 to 300, all drafts right, and with lists that are right 0 to all times. */
static void counts_to_300(void **state) {
    (void)state;
    enum { N = 300 };
    int32_t truth[N], list[N];
    for (int i = 0; i < N; i++) truth[i] = i + 1;
    weft_engine *g = open_pair(folder, NULL, 2, 64, 1, DEEPEST);
    for (int way = 0; way < 3; way++)
        for (int depth = 0; depth <= DEEPEST; depth++) {
            uint64_t drafted, accepted;
            weft_request_desc d = {.prompt = zero,
                                   .n_prompt = 1,
                                   .max_tokens = N,
                                   .depth = depth,
                                   .temperature = way ? 1 : 0,
                                   .has_seed = true,
                                   .seed = 5,
                                   .accept = way == 2 ? WEFT_ACCEPT_REJECTION : WEFT_ACCEPT_COUPLED};
            answer *a = ask(g, d, false);
            assert_int_equal(a->n, N + 1);
            counts(a, 1);
            sums(&a->stats, &drafted, &accepted);
            assert_int_equal(drafted, accepted);
            assert_int_equal(a->stats.tokens, N);
            /* V#52107: every draft was a row of a pass, and there are as few passes as can be. */
            assert_int_equal(a->stats.rows, a->stats.passes + drafted);
            assert_int_equal(a->stats.passes, 1 + (N - 1 + depth) / (1 + depth));
            drop(a);
            for (int count = 0; count <= depth && depth; count++) {
                const int pattern[] = {count, depth - count, 1 % (depth + 1), count};
                forced(list, truth, N, VOCAB, pattern, 4, depth);
                d.drafts = list, d.n_drafts = N;
                a = ask(g, d, false);
                assert_int_equal(a->n, N + 1);
                counts(a, 1);
                drop(a);
            }
        }
    weft_engine_close(g);
}

/* vmlx PR #150: a lookup that is one token behind is never right. Here it always is: the text repeats itself after 320 tokens. */
static void lookup_is_in_step(void **state) {
    (void)state;
    int32_t prompt[VOCAB + 20];
    for (int i = 0; i < VOCAB + 20; i++) prompt[i] = i % VOCAB;
    weft_engine *g = open_pair(folder, NULL, 1, 64, 1, DEEPEST);
    for (int depth = 1; depth <= DEEPEST; depth++) {
        weft_request_desc d = {.prompt = prompt, .n_prompt = VOCAB + 20, .max_tokens = 100, .depth = depth};
        answer *a = ask(g, d, false);
        counts(a, 20);
        const weft_judged *by = &a->stats.by[WEFT_DRAFTER_LOOKUP];
        uint64_t drafted = 0;
        for (int i = 0; i < WEFT_MAX_DEPTH; i++) drafted += by->drafted[i];
        assert_true(drafted >= 100u * (unsigned)depth / (unsigned)(depth + 1) - (unsigned)depth);
        assert_memory_equal(by->accepted, by->drafted, sizeof by->drafted);
        assert_int_equal(a->stats.draft_steps, 0);
        drop(a);
    }
    weft_engine_close(g);
}

/* mlx-serve notes: accepted tokens beyond max_tokens were committed. Every budget, where all drafts are right; and contexts that
 * the answer fills exactly (L#26558). */
static void budgets_are_kept(void **state) {
    (void)state;
    weft_engine *g = open_pair(folder, NULL, 1, 64, 1, DEEPEST);
    for (int depth = 1; depth <= DEEPEST; depth++)
        for (int budget = 1; budget <= 3 * (depth + 1); budget++) {
            weft_request_desc d = {.prompt = zero, .n_prompt = 1, .max_tokens = budget, .depth = depth};
            answer *a = ask(g, d, true);
            assert_int_equal(a->n, 1 + budget);
            assert_int_equal(a->done, budget); /* the last one stays pending */
            assert_int_equal(a->reason, WEFT_END_LENGTH);
            assert_int_equal(a->stats.tokens, budget);
            assert_int_equal(a->stats.rows, budget); /* not one for a token that there is no room for */
            counts(a, 1);
            drop(a);
        }
    weft_engine_close(g);
    for (int all = WEFT_PAGE_ROWS - 1; all <= 2 * WEFT_PAGE_ROWS + 1; all += all % 8 == 1 ? 6 : 1)
        for (int depth = 1; depth <= DEEPEST; depth += 7) {
            weft_error e = {0};
            weft_config c = {.model = folder, .threads = 1, .context = all, .max_depth = depth};
            if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
            weft_request_desc d = {.prompt = zero, .n_prompt = 1, .max_tokens = all - 1, .depth = depth};
            answer *a = ask(g, d, false);
            assert_int_equal(a->n, all);
            counts(a, 1);
            drop(a);
            weft_engine_close(g);
        }
}

/* ---- forced ids ---------------------------------------------------------------------------------------------------------- */

/* Where the rule leaves one id only, a list that has it there is kept to the end, whatever the model thinks: as many passes as
 * full blocks need. One id allowed; all others banned; and one besides an end id, which is too early for FORCED tokens. */
static void forced_ids_are_kept(void **state) {
    (void)state;
    enum { FORCED = 21, FREE = 6, ID = 77, END = 5 };
    static const int32_t only[] = {ID}, either[] = {END, ID}, end[] = {END}, prompt[] = {7, 8, 9};
    int32_t list[FORCED], others[VOCAB];
    for (int i = 0; i < FORCED; i++) list[i] = ID;
    for (int m = 0; m < PAIRS; m++) {
        weft_engine *g = open_pair(pairs[m].model, pairs[m].draft, 1, 64, 1, DEEPEST);
        weft_info info;
        weft_engine_info(g, &info);
        assert_true(info.vocab <= VOCAB);
        size_t n_others = 0;
        for (int32_t i = 0; i < info.vocab; i++)
            if (i != ID) others[n_others++] = i;
        const weft_request_desc rules[] = {
            {.allowed = only, .n_allowed = 1, .max_tokens = FORCED},
            {.banned = others, .n_banned = n_others, .max_tokens = FORCED},
            {.allowed = either,
             .n_allowed = 2,
             .stop_ids = end,
             .n_stop_ids = 1,
             .min_tokens = FORCED,
             .max_tokens = FORCED + FREE},
        };
        for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
            for (int depth = 1; depth <= DEEPEST; depth++)
                for (int way = 0; way < 3; way++) {
                    weft_request_desc d = rules[k];
                    uint64_t want[WEFT_MAX_DEPTH] = {0}, passes = 1, drafts = 0;
                    d.prompt = prompt, d.n_prompt = 3;
                    d.drafts = list, d.n_drafts = FORCED;
                    d.depth = depth;
                    d.ignore_end = true;
                    d.temperature = way ? 1.5 : 0;
                    d.has_seed = true, d.seed = (uint64_t)depth;
                    d.accept = way == 2 ? WEFT_ACCEPT_REJECTION : WEFT_ACCEPT_COUPLED;
                    answer *a = ask(g, d, false);
                    assert_true(a->n >= 3 + FORCED);
                    for (int i = 0; i < FORCED; i++) assert_int_equal(a->ids[3 + i], ID);
                    int at = 1; /* tokens; a pass adds one more than it drafts, of which the rule may leave several */
                    for (; at < FORCED; passes++) {
                        int block = depth < FORCED - at ? depth : FORCED - at;
                        if (block > d.max_tokens - at - 1) block = d.max_tokens - at - 1;
                        for (int i = 0; i < block; i++) want[i]++;
                        drafts += (uint64_t)block;
                        at += block + 1;
                    }
                    /* Behind the list one by one; an end id is none of the answer's. */
                    passes += a->n - 3 + (a->reason == WEFT_END_STOP) - (size_t)at;
                    assert_memory_equal(a->stats.drafted, want, sizeof want);
                    assert_memory_equal(a->stats.accepted, want, sizeof want);
                    assert_memory_equal(a->stats.by[WEFT_DRAFTER_LIST].drafted, want, sizeof want);
                    assert_memory_equal(a->stats.by[WEFT_DRAFTER_LIST].accepted, want, sizeof want);
                    assert_int_equal(a->stats.passes, passes);
                    assert_int_equal(a->stats.rows, passes + drafts + 2); /* and the rest of the prompt */
                    assert_int_equal(a->stats.tokens, a->n - 3);
                    drop(a);
                }
        weft_engine_close(g);
    }
}

/* ---- company ------------------------------------------------------------------------------------------------------------- */

enum { PROMPT = 24, LENGTH = 40, KINDS = 6 };
static int32_t prompts[KINDS][PROMPT];

/* Requests that have nothing in common. */
static weft_request_desc request_of(int kind) {
    weft_request_desc d = {.prompt = prompts[kind],
                           .n_prompt = (size_t)(PROMPT - 3 * kind),
                           .max_tokens = LENGTH,
                           .has_seed = true,
                           .seed = 100 + (uint64_t)kind,
                           .ignore_end = true,
                           .depth = 4};
    if (kind == 1) d.temperature = 1.5, d.depth = 1;
    if (kind == 2) d.temperature = 0.6, d.frequency_penalty = 0.7f, d.presence_penalty = 0.2f, d.depth = 8;
    if (kind == 3) d.temperature = 1.5, d.accept = WEFT_ACCEPT_REJECTION, d.top_k = 20;
    if (kind == 4) d.temperature = 0.9, d.repetition_penalty = 1.4f, d.min_tokens = 20, d.top_p = 0.9f, d.depth = 3;
    if (kind == 5) d.temperature = 2, d.accept = WEFT_ACCEPT_REJECTION, d.min_p = 0.05f, d.depth = 2, d.choice = 3;
    return d;
}
static void make_prompts(void) {
    for (int i = 0; i < KINDS; i++) make_prompt(prompts[i], PROMPT, (uint32_t)i + 50);
}
static void steps(weft_engine *g, int n) {
    const weft_event *ev;
    size_t n_events;
    while (n-- > 0 && weft_run_step(g, &ev, &n_events)) note_end(g, ev, n_events);
}
static weft_request *begin(weft_engine *g, int kind, answer **a) {
    weft_request_desc d = request_of(kind);
    d.user = *a = calloc(1, sizeof **a);
    return submit(g, &d);
}
static void same_counters(const answer *a, const answer *b) {
    assert_memory_equal(a->stats.drafted, b->stats.drafted, sizeof a->stats.drafted);
    assert_memory_equal(a->stats.accepted, b->stats.accepted, sizeof a->stats.accepted);
    assert_memory_equal(a->stats.by, b->stats.by, sizeof a->stats.by);
    assert_int_equal(a->stats.draft_steps, b->stats.draft_steps);
    assert_int_equal(a->stats.rows, b->stats.rows);
}
static void ends_like(weft_request *r, answer *a, const answer *alone) {
    finish(r, a, true);
    same_ids(alone, a);
    same_memory(alone, a);
    drop(a);
}

/* MTPLX contract: a joiner drew its first token with its predecessor's seed and temperature, and the cohort had the first one's
 * penalties. A request that joins another, at each of its steps, or takes the place that one left, answers as it does alone. */
static void joiners_are_themselves(void **state) {
    (void)state;
    for (int m = 0; m < PAIRS; m++) {
        weft_engine *g = open_pair(pairs[m].model, pairs[m].draft, 1, 64, 2, DEEPEST);
        answer *alone[KINDS];
        for (int k = 0; k < KINDS; k++) alone[k] = ask(g, request_of(k), true);
        for (int first = 0; first < KINDS; first++)
            for (int next = 0; next < KINDS; next += SLOWER) {
                answer *a, *b, *c;
                weft_request *p = begin(g, first, &a);
                steps(g, (first * KINDS + next) % 7);
                weft_request *q = begin(g, next, &b);
                steps(g, 3);
                bool left = next % 2; /* the first is aborted, or goes on; its place is taken */
                if (!left) run_all(g);
                if (left)
                    weft_request_close(p), drop(a);
                else
                    ends_like(p, a, alone[first]);
                weft_request *r = begin(g, (next + 1) % KINDS, &c);
                run_all(g);
                ends_like(q, b, alone[next]);
                ends_like(r, c, alone[(next + 1) % KINDS]);
            }
        for (int k = 0; k < KINDS; k++) drop(alone[k]);
        weft_engine_close(g);
    }
}

/* L#25840: slots 0 and 2. The one between them leaves; the others go on; another takes its place. */
static void slots_apart(void **state) {
    (void)state;
    for (int m = 0; m < PAIRS; m++) {
        weft_engine *g = open_pair(pairs[m].model, pairs[m].draft, 2, 64, 3, DEEPEST);
        answer *alone[KINDS], *a[4];
        weft_request *r[4];
        for (int k = 0; k < KINDS; k++) alone[k] = ask(g, request_of(k), true);
        for (int after = 1; after < 9; after += 2) {
            for (int i = 0; i < 3; i++) r[i] = begin(g, i, &a[i]);
            steps(g, after);
            weft_request_close(r[1]);
            drop(a[1]);
            steps(g, 3);
            assert_int_not_equal(r[0]->slot, r[2]->slot);
            r[3] = begin(g, 4, &a[3]);
            run_all(g);
            ends_like(r[0], a[0], alone[0]);
            ends_like(r[2], a[2], alone[2]);
            ends_like(r[3], a[3], alone[4]);
        }
        for (int k = 0; k < KINDS; k++) drop(alone[k]);
        weft_engine_close(g);
    }
}

/* club-3090 #896, #920; L#28286, L#28019, L#27572: slots with one prompt gave several answers, or kept no draft. One answer, and
 * the counters of a slot alone; again where they begin at different steps. */
static void equal_requests_are_equal(void **state) {
    (void)state;
    enum { SLOTS = 4 };
    for (int m = 0; m < PAIRS; m++) {
        weft_engine *g = open_pair(pairs[m].model, pairs[m].draft, 2, 64, SLOTS, DEEPEST);
        for (int kind = 0; kind < KINDS; kind++) {
            answer *alone = ask(g, request_of(kind), true);
            for (int apart = 0; apart < 4; apart++) {
                answer *a[SLOTS];
                weft_request *r[SLOTS];
                for (int i = 0; i < SLOTS; i++) {
                    r[i] = begin(g, kind, &a[i]);
                    steps(g, apart);
                }
                run_all(g);
                for (int i = 0; i < SLOTS; i++) {
                    weft_stats s;
                    weft_request_stats(r[i], &s);
                    a[i]->stats = s;
                    if (!apart) same_counters(alone, a[i]);
                    ends_like(r[i], a[i], alone);
                }
            }
            drop(alone);
        }
        weft_engine_close(g);
    }
}

/* V#53436: the same text, but other drafts were kept each time. By one thread and by two, twice. */
static void counters_are_reproducible(void **state) {
    (void)state;
    for (int m = 0; m < PAIRS; m++) {
        answer *first[KINDS];
        for (int run = 0; run < 4; run++) {
            weft_engine *g = open_pair(pairs[m].model, pairs[m].draft, 1 + run % 2, 64, 1, DEEPEST);
            for (int k = 0; k < KINDS; k++) {
                answer *a = ask(g, request_of(k), false);
                if (run) {
                    same_ids(first[k], a);
                    same_counters(first[k], a);
                    drop(a);
                } else
                    first[k] = a;
            }
            weft_engine_close(g);
        }
        for (int k = 0; k < KINDS; k++) drop(first[k]);
    }
}

/* S#28431: one start in five crashed. Answers of fifty are one. */
static void fifty_starts(void **state) {
    (void)state;
    answer *first = NULL;
    for (int start = 0; start < 50 / SLOWER; start++) {
        weft_engine *g = open_pair(pairs[0].model, NULL, 1 + start % 3, 64, 1, DEEPEST);
        answer *a = ask(g, request_of(2), false);
        if (first) {
            same_ids(first, a);
            same_counters(first, a);
            drop(a);
        } else
            first = a;
        weft_engine_close(g);
    }
    drop(first);
}

/* L#27537, L#24840, xpu-kernels #600, V#46090: any mixture of chunks, places and drafts, ragged in every pass; requests come, leave
 * early and end as they like, with lists that are right now and then. */
static void any_mixture(void **state) {
    (void)state;
    enum { PLACES = 6 };
    static uint32_t seed = 7;
    for (int round = 0; round < 24 / SLOWER; round++) {
        int m = round % PAIRS, places = 1 + round % PLACES, chunk = 1 + (int)((seed = seed * 1664525u + 1013904223u) >> 16) % 20;
        weft_engine *g = open_pair(pairs[m].model, pairs[m].draft, 2, 64, 1, DEEPEST);
        answer *alone[KINDS], *a[PLACES];
        weft_request *r[PLACES] = {NULL};
        int kind[PLACES] = {0};
        for (int k = 0; k < KINDS; k++) alone[k] = ask(g, request_of(k), true);
        weft_engine_close(g);
        g = open_pair(pairs[m].model, pairs[m].draft, 1 + round % 3, chunk, places, DEEPEST);
        for (int turn = 0; turn < 60; turn++) {
            uint32_t dice = (seed = seed * 1664525u + 1013904223u) >> 12;
            int at = (int)(dice % (uint32_t)places), k = (int)(dice / 8 % KINDS);
            if (r[at] && r[at]->phase == WEFT_ENDED) {
                ends_like(r[at], a[at], alone[kind[at]]);
                r[at] = NULL;
            } else if (r[at] && dice % 64 == 0) {
                weft_request_close(r[at]);
                drop(a[at]);
                r[at] = NULL;
            } else if (!r[at]) {
                weft_request_desc d = request_of(k);
                int32_t list[LENGTH];
                const int pattern[] = {(int)(dice / 64 % 9), 0, 3, (int)(dice / 1024 % 5)};
                if (d.accept == WEFT_ACCEPT_COUPLED) {
                    d.depth = (int)(dice / 512 % 10) - 1;
                    if (dice / 32 % 2 && d.depth > 0) {
                        forced(list, alone[k]->ids + d.n_prompt, LENGTH, VOCAB, pattern, 4, d.depth);
                        d.drafts = list, d.n_drafts = LENGTH;
                    }
                }
                d.user = a[at] = calloc(1, sizeof *a[at]);
                r[at] = submit(g, &d);
                kind[at] = k;
            }
            steps(g, 1 + (int)(dice / 128 % 3));
        }
        run_all(g);
        for (int i = 0; i < places; i++)
            if (r[i]) ends_like(r[i], a[i], alone[kind[i]]);
        for (int k = 0; k < KINDS; k++) drop(alone[k]);
        weft_engine_close(g);
    }
}

/* ---- limits -------------------------------------------------------------------------------------------------------------- */

/* V#37035, V#37052: more drafts than the kernels take crashed. V#55148, V#49064: more requests than states. */
static void too_much_is_refused(void **state) {
    (void)state;
    weft_engine *g = NULL;
    weft_request *r = NULL;
    weft_error e = {0};
    weft_config c = {.model = pairs[0].model, .threads = 1, .context = 256, .max_depth = DEEPEST + 1};
    assert_int_equal(weft_engine_open(&g, &c, &e), WEFT_EINVAL);
    assert_non_null(strstr(e.text, "draft depth of 9"));
    weft_request_desc d = request_of(0);
    for (int most = 0; most <= DEEPEST; most += 4) {
        c.max_depth = most;
        assert_int_equal(weft_engine_open(&g, &c, &e), WEFT_OK);
        for (int depth = most + 1; depth < most + 4; depth++) {
            d.depth = depth;
            assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
            assert_non_null(strstr(e.text, "draft depth"));
        }
        d.depth = WEFT_DEPTH_AUTO - 1;
        assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
        d.depth = most;
        d.accept = (weft_accept)2;
        assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
        d.accept = WEFT_ACCEPT_COUPLED;
        assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_OK);
        weft_engine_close(g);
    }
    /* V#55533: drafts left room for three. As many as were asked for run together, each with the deepest drafts. */
    enum { MANY = 16 };
    answer *a[MANY];
    weft_request *q[MANY];
    g = open_pair(pairs[0].model, NULL, 2, 64, MANY, DEEPEST);
    for (int i = 0; i < MANY; i++) q[i] = begin(g, 2, &a[i]);
    d.depth = 0;
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EBUSY);
    steps(g, 8);
    for (int i = 0; i < MANY; i++) assert_true(q[i]->phase != WEFT_PROMPT);
    run_all(g);
    for (int i = 0; i < MANY; i++) {
        finish(q[i], a[i], false);
        same_ids(a[0], a[i]);
        if (i) drop(a[i]);
    }
    drop(a[0]);
    weft_engine_close(g);
}

/* ---- length -------------------------------------------------------------------------------------------------------------- */

/* The memory of the first `done` ids of a request as a prompt leaves it. */
static void same_as_prefilled(weft_engine *g, weft_request *r) {
    answer got = {.n = 0}, want = {.n = 0};
    take_memory(r, &got);
    weft_request_desc d = {.prompt = r->ids.v, .n_prompt = (size_t)r->done, .max_tokens = 1};
    weft_request *p = submit(g, &d);
    d.user = &want;
    while (p->phase != WEFT_ENDED) {
        /* a pass of its own: the request that is compared must not go on */
        weft_phase was = r->phase;
        const weft_event *ev;
        size_t n;
        r->phase = WEFT_ENDED;
        assert_true(weft_run_step(g, &ev, &n));
        r->phase = was;
    }
    take_memory(p, &want);
    same_memory(&want, &got);
    weft_request_close(p);
    free(got.slot), free(got.pages);
    free(want.slot), free(want.pages);
}

/* S#28695 thread: states that are replayed drifted away in long answers. Every thousand tokens slot and pages are those of the same
 * ids as a prompt, byte for byte. */
static void replays_do_not_drift(void **state) {
    (void)state;
    int length = at_length ? 30000 : 3000 / SLOWER, every = at_length ? 1000 : 1000 / SLOWER;
    for (int m = 0; m < PAIRS; m += 2) { /* a hybrid, Mamba, windows and an ordered head */
        weft_engine *g = NULL;
        weft_error e = {0};
        weft_config c = {.model = pairs[m].model,
                         .draft = pairs[m].draft,
                         .threads = 2,
                         .context = 2 * (length + 200),
                         .max_requests = 2,
                         .max_depth = DEEPEST};
        if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
        weft_request_desc d = request_of(1);
        d.max_tokens = length;
        d.depth = 3;
        d.temperature = 1;
        weft_request *r = submit(g, &d);
        for (size_t next = (size_t)every; r->phase != WEFT_ENDED;) {
            const weft_event *ev;
            size_t n;
            assert_true(weft_run_step(g, &ev, &n));
            if (r->ids.n < next && r->phase != WEFT_ENDED) continue;
            next += (size_t)every;
            same_as_prefilled(g, r);
        }
        weft_stats s;
        weft_request_stats(r, &s);
        assert_int_equal(s.tokens, length);
        assert_true(s.accepted[0] > 0);
        weft_engine_close(g);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_to_300),
        cmocka_unit_test(lookup_is_in_step),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(forced_ids_are_kept),
        cmocka_unit_test(joiners_are_themselves),
        cmocka_unit_test(slots_apart),
        cmocka_unit_test(equal_requests_are_equal),
        cmocka_unit_test(counters_are_reproducible),
        cmocka_unit_test(fifty_starts),
        cmocka_unit_test(any_mixture),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(replays_do_not_drift),
    };
    at_length = argc > 1 && strcmp(argv[1], "long") == 0;
    make_prompts();
    return cmocka_run_group_tests(tests, make_counting, drop_counting);
}

/* test_engine.c: the promise, byte for byte, on the goldens, on forged models of 4 and 8 bits and on the bundled model: tokens and
 * stored memory do not depend on draft depth, on how many drafts are accepted, on chunks, on threads, or on who shares the batch.
 * Counters are asserted as well, so that an engine that goes row by row cannot pass.
 *
 * Everything runs in the fast mode and in the precise one with the best kernels of this processor; the heart of it once more with
 * keys and values of 8 bits, and with each of the other kernels. */
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
#include "base/rng.h"
#include "engine_walks.h"
#include "forge/synth.h"
#include "sanitizers.h"

static char forged[2][300]; /* folders of models that this program makes: a mixture of 4 bits, a dense model of 8 */
static const char *const models[] = {
    "tests/data/golden/qwen3_5-dense",
    "tests/data/golden/qwen3_5-dense-tied",
    "tests/data/golden/qwen3_5-dense-odd",
    "tests/data/golden/qwen3_5-moe",
    forged[0],
    forged[1],
    "models/mini",
};
enum { MODELS = sizeof models / sizeof *models, MINI = MODELS - 1, PROMPT = 70, LENGTH = 300 };

static int n_models = MODELS;

/* The bundled model takes a hundred times a golden's work, the precise mode several times the fast one's, plain C as well, and
 * sanitizers ten times that. */
static int length_for(int model) {
    int length = precise ? (model == MINI ? LENGTH / 10 : LENGTH / 2) : isa ? LENGTH / 5 : LENGTH;
#if THREAD_SANITIZER
    return model == MINI ? LENGTH / 15 : length / 10;
#elif ADDRESS_SANITIZER
    return model == MINI ? LENGTH / 15 : length / 4;
#else
    return length;
#endif
}

/* ---- depth --------------------------------------------------------------------------------------------------------------- */

/* Greedy and seeded text of 300 tokens is the same at every depth, and so is the memory behind it. */
static void depth_changes_nothing(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    for (int m = 0; m < n_models; m++) {
        weft_engine *g = open_model(models[m], 2, 64, 1);
        int length = length_for(m);
        make_prompt(prompt, PROMPT, 1);
        for (int t = 0; t < 2; t++) {
            answer *base = NULL;
            uint64_t accepted = 0;
            for (int depth = 0; depth <= 4; depth++) {
                answer *a = ask(g,
                                (weft_request_desc){.prompt = prompt,
                                                    .n_prompt = PROMPT,
                                                    .max_tokens = length,
                                                    .temperature = t ? 0.8 : 0,
                                                    .has_seed = true,
                                                    .seed = 42,
                                                    .depth = depth,
                                                    .ignore_end = true},
                                true);
                assert_int_equal(a->n, PROMPT + length);
                assert_int_equal(a->stats.tokens, length);
                assert_int_equal(a->reason, WEFT_END_LENGTH);
                for (int i = 0; i < depth; i++) accepted += a->stats.accepted[i];
                if (depth) assert_true(a->stats.drafted[0] > 0); /* drafts are verified, not only made (V#52107) */
                if (!base) {
                    base = a;
                    continue;
                }
                same_ids(base, a);
                same_memory(base, a);
                drop(a);
            }
            if (m == MINI) assert_true(accepted > 0); /* a trained head, or a random one that agrees now and then */
            drop(base);
        }
        weft_engine_close(g);
    }
}

/* Every accept count 0..D at every depth, alone and mixed: an index from an accepted count of 0 or of all (V#50021), an off-by-one
 * in the count (an MLX Swift fork #143), a state that stepped past the rejected rows (MTPLX contract). */
static void every_accept_count(void **state) {
    (void)state;
    int32_t prompt[PROMPT], drafts[LENGTH];
    for (int m = 0; m < n_models; m++) {
        weft_engine *g = open_model(models[m], 2, 64, 1);
        int length = length_for(m);
        if (m == MINI && length > 80) length = 80;
        make_prompt(prompt, PROMPT, 2);
        for (int t = 0; t < 2; t++) {
            weft_request_desc d = {.prompt = prompt,
                                   .n_prompt = PROMPT,
                                   .max_tokens = length,
                                   .temperature = t ? 0.7 : 0,
                                   .has_seed = true,
                                   .seed = 7,
                                   .ignore_end = true};
            answer *base = ask(g, d, true);
            assert_int_equal(base->stats.passes, (PROMPT + 63) / 64 + length - 1);
            for (int depth = 1; depth <= 4; depth++)
                for (int count = 0; count <= depth + 1; count++) { /* depth + 1: a mixture */
                    int mixed[64], n_mixed = 1;
                    if (count <= depth)
                        mixed[0] = count;
                    else
                        for (n_mixed = 0; n_mixed < 64; n_mixed++) mixed[n_mixed] = n_mixed * 29 % 11 % (depth + 1);
                    forced(drafts, base->ids + PROMPT, (size_t)length, g->info.vocab, mixed, n_mixed, depth);
                    d.depth = depth;
                    d.drafts = drafts;
                    d.n_drafts = (size_t)length;
                    answer *a = ask(g, d, true);
                    same_ids(base, a);
                    same_memory(base, a);
                    uint64_t accepted = 0;
                    for (int i = 0; i < depth; i++) accepted += a->stats.accepted[i];
                    if (count <= depth) { /* the forced count is what happened: passes tell */
                        uint64_t passes = (PROMPT + 63) / 64 + ((uint64_t)length - 1 + (uint64_t)count) / ((uint64_t)count + 1);
                        assert_int_equal(a->stats.passes, passes);
                        assert_true(count ? accepted > 0 : accepted == 0);
                        assert_true(a->stats.rows > a->stats.passes);
                        if (count) assert_true(a->stats.passes < a->stats.tokens);
                    }
                    drop(a);
                }
            drop(base);
        }
        weft_engine_close(g);
    }
}

/* ---- history ------------------------------------------------------------------------------------------------------------- */

/* 200 generated tokens (fewer of a large model), dropped and prefilled cold, leave the same states, convolution windows, KV rows,
 * MTP rows and hidden row: for any chunk and thread count. */
static void generated_equals_prefilled(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    const struct { int threads, chunk; } ways[] = {{1, 1}, {1, 7}, {2, 64}, {3, 150}, {2, 1000}};
    for (int m = 0; m < n_models; m++) {
        weft_engine *g = open_model(models[m], 2, 32, 1);
        int tokens = length_for(m) * 2 / 3;
        make_prompt(prompt, PROMPT, 3);
        answer *a =
            ask(g, (weft_request_desc){.prompt = prompt, .n_prompt = PROMPT, .max_tokens = tokens, .depth = 3, .ignore_end = true},
                true);
        assert_int_equal(a->done, PROMPT + tokens - 1);
        weft_engine_close(g);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            g = open_model(models[m], ways[w].threads, ways[w].chunk, 1);
            answer *b = ask(
                g, (weft_request_desc){.prompt = a->ids, .n_prompt = (size_t)a->done, .max_tokens = 1, .ignore_end = true}, true);
            assert_int_equal(b->ids[b->n - 1], a->ids[a->n - 1]);
            same_memory(a, b);
            assert_int_equal(b->stats.passes, (a->done + ways[w].chunk - 1) / ways[w].chunk); /* chunks are passes, not rows */
            drop(b);
            weft_engine_close(g);
        }
        drop(a);
    }
}

/* ---- company ------------------------------------------------------------------------------------------------------------- */

/* Requests of different length, depth, temperature and seed in one batch, joining and leaving at different steps, answer as they do
 * alone (oMLX #2119, V#51812: mixed batches of prompt, plain and speculative rows; MTPLX: a joiner's own seed). */
static void company_changes_nothing(void **state) {
    (void)state;
    enum { N = 6 };
    static const int lengths[N] = {1, 70, 5, 133, 64, 65}, tokens[N] = {90, 40, 120, 60, 1, 77};
    int32_t prompts[N][140], drafts[N][128];
    for (int m = 0; m < n_models; m++) {
        answer *alone[N], *together[N];
        weft_request_desc d[N];
        weft_engine *g = open_model(models[m], 2, 64, 1);
        for (int i = 0; i < N; i++) {
            make_prompt(prompts[i], lengths[i], 10 + (uint32_t)i);
            d[i] = (weft_request_desc){.prompt = prompts[i],
                                       .n_prompt = (size_t)lengths[i],
                                       .max_tokens = tokens[i],
                                       .temperature = i % 3 ? 0.9 : 0,
                                       .has_seed = true,
                                       .seed = (uint64_t)i,
                                       .ignore_end = true};
            alone[i] = ask(g, d[i], true);
        }
        weft_engine_close(g);

        g = open_model(models[m], 3, 48, N);
        weft_request *r[N] = {0};
        for (int i = 0; i < N; i++) {
            const int mixed[] = {i % 3, 0, 2, 1};
            d[i].depth = i % 5;
            if (i % 2) { /* half of them draft from a list with many hits, half from the head */
                forced(drafts[i], alone[i]->ids + lengths[i], (size_t)tokens[i], g->info.vocab, mixed, 4, i % 5 ? i % 5 : 1);
                d[i].drafts = drafts[i];
                d[i].n_drafts = (size_t)tokens[i];
            }
            together[i] = calloc(1, sizeof **together);
            d[i].user = together[i];
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
        weft_stats s;
        weft_engine_stats(g, &s);
        assert_true(s.rows > s.passes);
        for (int i = 0; i < N; i++) {
            finish(r[i], together[i], true);
            same_ids(alone[i], together[i]);
            same_memory(alone[i], together[i]);
            drop(alone[i]);
            drop(together[i]);
        }
        for (int k = 0; k < WEFT_PAGE_KINDS; k++) assert_int_equal(g->pages[k].n_free, g->pages[k].n); /* everything came back */
        assert_int_equal(g->slots.n_free, g->slots.n);
        weft_engine_close(g);
    }
}

/* ---- ends ---------------------------------------------------------------------------------------------------------------- */

/* max_tokens is exact at every depth, whatever was accepted (mlx-serve notes: accepted tokens beyond max_tokens). */
static void budget_is_exact(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    weft_engine *g = open_model(models[0], 1, 64, 1);
    make_prompt(prompt, PROMPT, 4);
    answer *base = ask(g, (weft_request_desc){.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 12, .ignore_end = true}, false);
    for (int max = 1; max <= 11; max++)
        for (int depth = 0; depth <= 4; depth++) {
            answer *a = ask(g,
                            (weft_request_desc){.prompt = prompt,
                                                .n_prompt = PROMPT,
                                                .max_tokens = max,
                                                .depth = depth,
                                                .drafts = base->ids + PROMPT,
                                                .n_drafts = 12,
                                                .ignore_end = true},
                            true);
            assert_int_equal(a->n, PROMPT + max);
            assert_int_equal(a->done, PROMPT + max - 1); /* the last token stays pending */
            assert_memory_equal(a->ids, base->ids, a->n * sizeof *a->ids);
            drop(a);
        }
    drop(base);
    weft_engine_close(g);
}

/* An end token that was drafted and accepted ends the answer, and neither it nor what follows is in the stored memory (MTPLX: stop
 * token accepted inside a block). */
static void accepted_end_token(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    for (int m = 0; m < MINI; m++) {
        weft_engine *g = open_model(models[m], 2, 64, 1);
        make_prompt(prompt, PROMPT, 5);
        answer *base =
            ask(g,
                (weft_request_desc){
                    .prompt = prompt, .n_prompt = PROMPT, .max_tokens = 60, .temperature = 1, .has_seed = true, .seed = 3},
                false);
        int at = 37;
        for (int i = 0; i < at; i++) /* the first place of that token */
            if (base->ids[PROMPT + i] == base->ids[PROMPT + at]) at = i;
        for (int second = 0; second < 2; second++) { /* either of two end tokens stops */
            g->folders.model.config.n_eos = 2;
            g->folders.model.config.eos[second] = base->ids[PROMPT + at];
            g->folders.model.config.eos[1 - second] = g->info.vocab + 5;
            answer *plain = NULL;
            for (int depth = 0; depth <= 4; depth++) {
                answer *a = ask(g,
                                (weft_request_desc){.prompt = prompt,
                                                    .n_prompt = PROMPT,
                                                    .max_tokens = 60,
                                                    .temperature = 1,
                                                    .has_seed = true,
                                                    .seed = 3,
                                                    .depth = depth,
                                                    .drafts = base->ids + PROMPT,
                                                    .n_drafts = 60},
                                true);
                assert_int_equal(a->reason, WEFT_END_STOP);
                assert_int_equal(a->n, PROMPT + at);
                assert_int_equal(a->done, PROMPT + at);
                if (plain) {
                    same_ids(plain, a);
                    same_memory(plain, a);
                    drop(a);
                } else
                    plain = a;
            }
            drop(plain);
        }
        drop(base);
        weft_engine_close(g);
    }
}

/* Ids above the real vocabulary, which the padded tail of a model's head has, are never produced: not even at a temperature that
 * makes every logit equal (mlx-vlm #1805), nor greedily when such a logit is the largest. */
static void padded_ids_never_come(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    weft_engine *g = open_model("models/mini", 2, 64, 1);
    make_prompt(prompt, PROMPT, 6);
    for (int depth = 0; depth <= 2; depth += 2) {
        answer *a = ask(g,
                        (weft_request_desc){.prompt = prompt,
                                            .n_prompt = PROMPT,
                                            .max_tokens = 400,
                                            .temperature = 100,
                                            .has_seed = true,
                                            .depth = depth,
                                            .ignore_end = true},
                        false);
        for (size_t i = PROMPT; i < a->n; i++) assert_true(weft_tokenizer_valid(g->tokenizer, a->ids[i]));
        drop(a);
    }
    bool allowed[8] = {true, true, true, true, true, false, false, false};
    float logits[8] = {1, 2, 2, 0, -1, 50, 60, 70};
    assert_int_equal(weft_sample(&(weft_sampler){0}, logits, 8, allowed, 0), 1); /* and ties go to the lowest id (V#42960) */
    weft_engine_close(g);
}

/* ---- sampling ------------------------------------------------------------------------------------------------------------ */

/* The arg-max of logit / T + G draws from softmax(logit / T): chi-square of 40000 draws; the pruned search equals the plain one. */
static void sampling_draws_the_distribution(void **state) {
    (void)state;
    enum { N = 12, DRAWS = 40000 };
    float logits[N];
    bool allowed[N];
    double p[N], total = 0, chi = 0;
    int counts[N] = {0};
    weft_sampler s = {.temperature = 0.7, .seed = 99};
    for (int i = 0; i < N; i++) {
        logits[i] = (float)(i * i % 7) * 0.6f - 1;
        allowed[i] = i != 5;
        p[i] = 0;
        if (allowed[i]) { /* exp by its series: no libm here either */
            double x = logits[i] / s.temperature, term = 1;
            for (int k = 1; k < 60; k++) p[i] += term, term *= x / k;
        }
        total += p[i];
    }
    for (int d = 0; d < DRAWS; d++) {
        int32_t id = weft_sample(&s, logits, N, allowed, (uint32_t)d);
        counts[id]++;
        int32_t best = -1;
        double score = 0;
        for (int i = 0; i < N; i++) {
            double x = allowed[i] ? logits[i] + s.temperature * weft_gumbel(s.seed, 0, (uint32_t)d, (uint32_t)i) : 0;
            if (allowed[i] && (best < 0 || x > score)) best = i, score = x;
        }
        assert_int_equal(id, best);
    }
    assert_int_equal(counts[5], 0);
    for (int i = 0; i < N; i++)
        if (allowed[i]) {
            double want = DRAWS * p[i] / total;
            chi += (counts[i] - want) * (counts[i] - want) / want;
        }
    assert_true(chi < 29.6); /* 10 degrees of freedom: 1 in 1000; the draw is fixed by the seed */
}

static void infinite_logits_are_an_error(void **state) {
    (void)state;
    bool allowed[4] = {true, true, true, false};
    float inf = __builtin_inff(), nan = __builtin_nanf("");
    weft_sampler greedy = {0}, warm = {.temperature = 1};
    float cases[][4] = {{nan, 1, 2, 3}, {1, 2, inf, 3}, {1, -inf, 2, 3}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weft_sample(&greedy, cases[i], 4, allowed, 0), -1);
        assert_int_equal(weft_sample(&warm, cases[i], 4, allowed, 0), -1);
    }
    float fine[4] = {1, 2, 0, nan}; /* of an id that does not exist */
    assert_int_equal(weft_sample(&greedy, fine, 4, allowed, 0), 1);
}

/* An MTP head that gives NaN, in a mixture's router too, drafts badly and does no more: the answer is that of depth 0, and so is a
 * batch mate's. */
static void a_broken_head_only_drafts_badly(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 13);
    weft_request_desc d = {.prompt = prompt,
                           .n_prompt = PROMPT,
                           .max_tokens = 20,
                           .temperature = 0.5,
                           .has_seed = true,
                           .seed = 5,
                           .ignore_end = true};
    weft_engine *g = open_model(models[3], 2, 64, 2);
    answer *base = ask(g, d, false);
    weft_error e = {0};
    /* The head reads its hidden rows from a carry: with NaN there, every row of it is NaN. */
    for (int depth = 1; depth <= 3; depth += 2) {
        answer *a = calloc(1, sizeof *a), *mate = calloc(1, sizeof *mate);
        const weft_event *ev;
        size_t n;
        weft_request_desc plain = d;
        d.depth = depth;
        d.user = a;
        plain.user = mate;
        weft_request *r = submit(g, &d), *other = submit(g, &plain);
        size_t bytes = weft_slot_bytes(g->dev), hidden = (size_t)g->folders.model.config.hidden_size;
        float *slot = malloc(bytes);
        while (weft_run_step(g, &ev, &n)) {
            note_end(g, ev, n);
            assert_int_equal(weft_slot_io(g->dev, r->slot, slot, true, &e), WEFT_OK);
            for (size_t i = 0; i < hidden; i++) slot[bytes / sizeof *slot - hidden + i] = __builtin_nanf("");
            assert_int_equal(weft_slot_io(g->dev, r->slot, slot, false, &e), WEFT_OK);
        }
        free(slot);
        finish(r, a, false);
        finish(other, mate, false);
        assert_true(a->stats.drafted[0] > 0);
        same_ids(base, a);
        same_ids(base, mate);
        drop(a);
        drop(mate);
    }
    drop(base);
    weft_engine_close(g);
}

/* A temperature so small that a logit divided by it is infinite must not fall to the lowest id. */
static void tiny_temperatures(void **state) {
    (void)state;
    bool allowed[4] = {true, true, true, true};
    const float logits[4] = {1, 30, 2, 29.5f};
    for (double t = 1; t > 0; t *= 1e-9) {
        int32_t id = weft_sample(&(weft_sampler){.temperature = t, .seed = 1}, logits, 4, allowed, 0);
        if (t < 1e-3) assert_int_equal(id, 1);
    }
}

/* ---- housekeeping -------------------------------------------------------------------------------------------------------- */

static void no_allocation_while_generating(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    for (int m = 0; m < n_models; m++) {
        weft_engine *g = open_model(models[m], 2, 32, 2);
        make_prompt(prompt, PROMPT, 8);
        answer end[2] = {{{0}, 0, 0, 0, {0}, 0, 0, 0, 0, 0}};
        weft_request *r[2];
        for (int i = 0; i < 2; i++)
            r[i] = submit(g, &(weft_request_desc){.prompt = prompt,
                                                  .n_prompt = PROMPT,
                                                  .max_tokens = 80,
                                                  .temperature = i,
                                                  .has_seed = true,
                                                  .depth = 3,
                                                  .ignore_end = true,
                                                  .user = &end[i]});
        uint64_t before = weft_alloc_count();
        run_all(g);
        assert_int_equal(weft_alloc_count(), before);
        for (int i = 0; i < 2; i++) weft_request_close(r[i]);
        weft_engine_close(g);
    }
}

/* A request closed in the middle of anything gives its place back and disturbs nobody (Rapid #1464, #1759: an abort between draft
 * and verify). Freed memory is poisoned in this build, so a stale read would show. */
static void cancelled_requests_leave_no_trace(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    weft_engine *g = open_model(models[0], 2, 16, 2);
    make_prompt(prompt, PROMPT, 9);
    weft_request_desc d = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 60, .depth = 4, .ignore_end = true};
    answer *base = ask(g, d, true);
    for (int after = 0; after < 12; after++) {
        answer victim = {{0}, 0, 0, 0, {0}, 0, 0, 0, 0, 0}, *a = calloc(1, sizeof *a);
        const weft_event *ev;
        size_t n;
        weft_request_desc other = d;
        other.prompt = prompt + 1;
        other.n_prompt--;
        other.user = &victim;
        weft_request *doomed = submit(g, &other);
        d.user = a;
        weft_request *r = submit(g, &d);
        for (int i = 0; i < after; i++) weft_run_step(g, &ev, &n);
        weft_request_close(doomed);
        run_all(g);
        finish(r, a, true);
        same_ids(base, a);
        same_memory(base, a);
        drop(a);
        for (int k = 0; k < WEFT_PAGE_KINDS; k++) assert_int_equal(g->pages[k].n_free, g->pages[k].n);
        assert_int_equal(g->slots.n_free, g->slots.n);
    }
    drop(base);
    weft_engine_close(g);
}

static void impossible_requests_are_refused(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    weft_engine *g = open_model(models[0], 1, 64, 1);
    weft_request *r = NULL, *second = NULL;
    weft_error e = {0};
    make_prompt(prompt, PROMPT, 11);
    weft_request_desc good = {.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 5}, d;
    d = good, d.n_prompt = 0;
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
    d = good, d.max_tokens = 0;
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
    d = good, d.max_tokens = 2048 - PROMPT + 1; /* fits exactly one fewer */
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
    assert_non_null(strstr(e.text, "2048"));
    d = good, d.temperature = -1;
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
    d = good, d.temperature = __builtin_nan("");
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
    d = good, d.depth = 5;
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
    prompt[3] = g->info.vocab;
    assert_int_equal(weft_submit(g, &good, &r, &e), WEFT_EINVAL);
    prompt[3] = -1;
    assert_int_equal(weft_submit(g, &good, &r, &e), WEFT_EINVAL);
    prompt[3] = 0;
    assert_int_equal(weft_submit(g, &good, &r, &e), WEFT_OK);
    assert_int_equal(weft_submit(g, &good, &second, &e), WEFT_EBUSY);
    assert_int_equal(g->n_requests, 1);
    weft_request_close(r);
    d = good, d.max_tokens = 2048 - PROMPT; /* filled to the last token, drafting (L#26558) */
    d.depth = 4;
    d.ignore_end = true;
    answer *a = ask(g, d, false);
    assert_int_equal(a->n, 2048);
    drop(a);
    weft_engine_close(g);
}

/* A failed allocation anywhere while opening and running (every one of the first forty, then ever fewer): an error, no crash, no
 * leak. */
static void out_of_memory_is_an_error(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 12);
    weft_status s = WEFT_ENOMEM;
    for (uint64_t n = 1; s != WEFT_OK; n += 1 + n / 40) {
        weft_engine *g = NULL;
        weft_request *r = NULL;
        weft_error e = {0};
        weft_config c = {.model = models[3], .threads = 2, .chunk = 64, .context = 128, .max_depth = 2};
        answer a = {{0}, 0, 0, 0, {0}, 0, 0, 0, 0, 0};
        weft_alloc_fail_at(n);
        s = weft_engine_open(&g, &c, &e);
        if (s == WEFT_OK)
            s = weft_submit(g, &(weft_request_desc){.prompt = prompt, .n_prompt = PROMPT, .max_tokens = 5, .user = &a}, &r, &e);
        if (s == WEFT_OK) run_all(g);
        weft_alloc_fail_at(0);
        if (s != WEFT_OK) {
            assert_int_equal(s, WEFT_ENOMEM);
            assert_true(e.text[0] != 0);
        }
        weft_request_close(r);
        weft_engine_close(g);
        assert_true(n < 1000000);
    }
}

/* ---- the arithmetic ------------------------------------------------------------------------------------------------------ */

/* What the plain C kernels give, every instruction set gives: text and memory. */
static void instruction_sets_agree(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 14);
    for (int m = 0; m < MODELS - precise; m++) { /* the bundled model in plain C and precise would take a minute */
        answer *base = NULL;
        int length = m == MINI ? 20 : 100;
        for (int i = 0; weft_isas[i]; i++) {
            if (!weft_isa_here(weft_isas[i])) continue;
            isa = weft_isas[i]->name;
            weft_engine *g = open_model(models[m], 2, 64, 1);
            assert_string_equal(weft_dev_isa(g->dev), isa);
            answer *a = ask(g,
                            (weft_request_desc){.prompt = prompt,
                                                .n_prompt = PROMPT,
                                                .max_tokens = length,
                                                .temperature = 0.6,
                                                .has_seed = true,
                                                .seed = 8,
                                                .depth = 2,
                                                .ignore_end = true},
                            true);
            weft_engine_close(g);
            if (base) {
                same_ids(base, a);
                same_memory(base, a);
                drop(a);
            } else
                base = a;
        }
        drop(base);
    }
    isa = NULL;
}

/* ---- models of few bits -------------------------------------------------------------------------------------------------- */

static const weft_shape mixture = {.name = "mixture",
                                   .hidden = 128,
                                   .n_layers = 4,
                                   .layers = "LLL*",
                                   .vocab = 400,
                                   .context = 4096,
                                   .n_heads = 4,
                                   .n_kv_heads = 2,
                                   .head_dim = 64,
                                   .rotary_dim = 16,
                                   .theta = 1e7,
                                   .gdn_k_heads = 2,
                                   .gdn_v_heads = 4,
                                   .gdn_dim = 32,
                                   .taps = 4,
                                   .n_experts = 8,
                                   .top_k = 3,
                                   .moe_intermediate = 64,
                                   .shared_intermediate = 128};
static const weft_shape dense = {.name = "dense",
                                 .hidden = 192,
                                 .n_layers = 3,
                                 .layers = "L*",
                                 .vocab = 330,
                                 .context = 4096,
                                 .tied = true,
                                 .intermediate = 320,
                                 .n_heads = 2,
                                 .n_kv_heads = 1,
                                 .head_dim = 96,
                                 .rotary_dim = 24,
                                 .theta = 1e7,
                                 .gdn_k_heads = 1,
                                 .gdn_v_heads = 2,
                                 .gdn_dim = 64,
                                 .taps = 3};
static char scratch[200];

static int forge(void) {
    const char *tmp = getenv("TMPDIR");
    weft_error e;
    uint64_t bytes;
    snprintf(scratch, sizeof scratch, "%s/weft-engine-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch)) return -1;
    for (int i = 0; i < 2; i++) {
        snprintf(forged[i], sizeof forged[i], "%s/%s", scratch, i ? "dense" : "mixture");
        weft_synth y = {.shape = i ? &dense : &mixture, .bits = i ? 8 : 4, .seed = 5, .out = forged[i]};
        if (weft_synth_write(&y, &bytes, &e) != WEFT_OK) {
            print_error("%s\n", e.text);
            return -1;
        }
    }
    return 0;
}
static void drop_forged(void) {
    static const char *const files[] = {"config.json", "model.safetensors", ""};
    char path[400];
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", forged[i / 3], files[i % 3]);
        remove(path);
    }
    rmdir(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_changes_nothing),
        cmocka_unit_test(every_accept_count),
        cmocka_unit_test(generated_equals_prefilled),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(budget_is_exact),
        cmocka_unit_test(accepted_end_token),
        cmocka_unit_test(padded_ids_never_come),
        cmocka_unit_test(sampling_draws_the_distribution),
        cmocka_unit_test(infinite_logits_are_an_error),
        cmocka_unit_test(a_broken_head_only_drafts_badly),
        cmocka_unit_test(tiny_temperatures),
        cmocka_unit_test(no_allocation_while_generating),
        cmocka_unit_test(cancelled_requests_leave_no_trace),
        cmocka_unit_test(impossible_requests_are_refused),
        cmocka_unit_test(out_of_memory_is_an_error),
        cmocka_unit_test(instruction_sets_agree),
    };
    const struct CMUnitTest heart[] = {
        cmocka_unit_test(depth_changes_nothing),
        cmocka_unit_test(generated_equals_prefilled),
        cmocka_unit_test(company_changes_nothing),
    };
    const weft_isa *best = NULL;
    if (forge() != 0 || weft_isa_choose(&best, NULL, NULL) != WEFT_OK) return 1;
    int failed = 0;
    for (int mode = 0; mode < 2; mode++) {
        precise = mode;
        print_message("%s, %s\n", best->name, precise ? "precise" : "fast");
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    precise = false;
    n_models = MINI;
    kv = "int8";
    print_message("%s, fast, int8 keys and values\n", best->name);
    failed += cmocka_run_group_tests(heart, NULL, NULL);
    kv = NULL;
    for (int i = 0; weft_isas[i]; i++) {
        if (weft_isas[i] == best) continue;
        isa = weft_isas[i]->name;
        if (!weft_isa_here(weft_isas[i])) {
            print_message("skipped: %s, this processor cannot run it\n", isa);
            continue;
        }
        print_message("%s, fast\n", isa);
        failed += cmocka_run_group_tests(heart, NULL, NULL);
    }
    drop_forged();
    return failed;
}

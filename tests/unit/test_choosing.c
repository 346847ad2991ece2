/* test_choosing.c: how tokens are chosen and what ends an answer, through drafts: every option by itself and all together gives,
 * byte for byte, what a run without drafts gives: ids, text, log-probabilities, reason, and the memory behind them, at every depth,
 * for every number of accepted drafts, in any company, for any chunk and thread count. What a run without drafts gives is what a
 * plain sampler in this file chooses from the logits of teacher-forced scoring. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "engine_walks.h"
#include "sanitizers.h"

#if SANITIZED
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif
enum { PROMPT = 40, MOST = 200, LENGTH = SLOW ? 24 : 60 };

static const char mini[] = "models/mini";
static const char *const models[] = {
    "tests/data/golden/qwen3_5-dense",
    "tests/data/golden/qwen3_5-moe",
    "tests/data/golden/nemotron_h-mtp",
    mini,
};
enum { MODELS = sizeof models / sizeof *models };

/* ---- what a request brought ---------------------------------------------------------------------------------------------- */

typedef struct record {
    answer a;
    int tokens, prompts;  /* events */
    size_t text_at[MOST]; /* bytes of text up to a token, its own included */
    float logprob[MOST];  /* of tokens */
    weft_logprob top[MOST][WEFT_MAX_LOGPROBS];
    int n_top[MOST];
    float prompt_logprob[MOST];
    weft_logprob prompt_top[MOST][WEFT_MAX_LOGPROBS];
    bool ended;
    int32_t end_token;
    int stop;
    weft_error error;
    char text[8192];
    size_t n_text;
} record;

static void note(const weft_event *ev, size_t n) {
    for (size_t i = 0; i < n; i++) {
        record *r = weft_request_user(ev[i].request);
        assert_non_null(ev[i].text);
        assert_false(r->ended);
        assert_true(r->n_text + ev[i].n_text < sizeof r->text);
        memcpy(r->text + r->n_text, ev[i].text, ev[i].n_text);
        r->n_text += ev[i].n_text;
        if (ev[i].kind == WEFT_EVENT_TOKEN) {
            size_t ids;
            const int32_t *id = weft_request_ids(ev[i].request, &ids);
            assert_int_equal(id[ev[i].request->n_prompt + (size_t)r->tokens], ev[i].token);
            r->text_at[r->tokens] = r->n_text;
            r->logprob[r->tokens] = ev[i].logprob;
            r->n_top[r->tokens] = ev[i].n_top;
            if (ev[i].n_top) memcpy(r->top[r->tokens], ev[i].top, (size_t)ev[i].n_top * sizeof *ev[i].top);
            r->tokens++;
        } else {
            const weft_logprob *top;
            int n_top;
            while (
                weft_request_prompt_logprob(ev[i].request, (size_t)r->prompts + 1, &r->prompt_logprob[r->prompts], &top, &n_top)) {
                if (n_top) memcpy(r->prompt_top[r->prompts], top, (size_t)n_top * sizeof *top);
                r->prompts++;
            }
            r->ended = true;
            r->a.reason = ev[i].reason;
            r->end_token = ev[i].token;
            r->stop = ev[i].stop;
            if (ev[i].reason == WEFT_END_ERROR) r->error = *ev[i].error;
        }
    }
}

static void run_until_done(weft_engine *g) {
    const weft_event *ev;
    size_t n;
    while (weft_run_step(g, &ev, &n)) note(ev, n);
}

static record *try(weft_engine *g, weft_request_desc d) {
    record *r = calloc(1, sizeof *r);
    d.user = r;
    weft_request *q = submit(g, &d);
    run_until_done(g);
    finish(q, &r->a, true);
    assert_true(r->ended);
    assert_int_equal(r->a.stats.tokens, r->tokens);
    assert_int_equal(r->a.n, r->a.n_prompt + (size_t)r->tokens);
    return r;
}
static record *ask_fine(weft_engine *g, weft_request_desc d) {
    record *r = try(g, d);
    if (r->a.reason == WEFT_END_ERROR) fail_msg("%s", r->error.text);
    return r;
}
static void drop_record(record *r) {
    free(r->a.slot);
    free(r->a.pages);
    free(r);
}

static void same(const record *x, const record *y) {
    same_ids(&x->a, &y->a);
    same_memory(&x->a, &y->a);
    assert_int_equal(x->a.reason, y->a.reason);
    assert_int_equal(x->end_token, y->end_token);
    assert_int_equal(x->stop, y->stop);
    assert_int_equal(x->n_text, y->n_text);
    assert_memory_equal(x->text, y->text, x->n_text);
    assert_memory_equal(x->text_at, y->text_at, sizeof x->text_at);
    assert_memory_equal(x->logprob, y->logprob, sizeof x->logprob);
    assert_memory_equal(x->n_top, y->n_top, sizeof x->n_top);
    assert_memory_equal(x->top, y->top, sizeof x->top);
    assert_int_equal(x->prompts, y->prompts);
    assert_memory_equal(x->prompt_logprob, y->prompt_logprob, sizeof x->prompt_logprob);
    assert_memory_equal(x->prompt_top, y->prompt_top, sizeof x->prompt_top);
}

/* ---- options ------------------------------------------------------------------------------------------------------------- */

enum {
    TOP_K,
    TOP_P,
    MIN_P,
    REPETITION,
    PRESENCE,
    FREQUENCY,
    BIAS,
    BANNED,
    ALLOWED,
    MIN_TOKENS,
    STOP_IDS,
    STOPS,
    LOGPROBS,
    PROMPT_LOGPROBS,
    CHOICE,
    OPTIONS
};

static weft_logit_bias bias[40];
static int32_t banned[20], allowed[250], stop_ids[2];
static const char *stops[2] = {"qzx", "\n\n\n"};

/* An answer without options says which ids would come: those are the ones to bias, ban and stop at. */
static void make_lists(const int32_t *likely, int n, int vocab) {
    for (int i = 0; i < 40; i++) bias[i] = (weft_logit_bias){.id = (i * 7 + 3) % 300, .add = (float)(i % 5) - 2.5f};
    for (int i = 0; i < 20; i++) banned[i] = likely[i * 3 % n];
    for (int i = 0; i < 250; i++) allowed[i] = i < n ? likely[i] : i % vocab;
    stop_ids[0] = likely[n - 1];
    stop_ids[1] = 299;
}

static void set(weft_request_desc *d, int option) {
    switch (option) {
    case TOP_K: d->top_k = 9; break;
    case TOP_P: d->top_p = 0.7; break;
    case MIN_P: d->min_p = 0.05; break;
    case REPETITION: d->repetition_penalty = 1.3; break;
    case PRESENCE: d->presence_penalty = 0.8; break;
    case FREQUENCY: d->frequency_penalty = 0.6; break;
    case BIAS: d->bias = bias, d->n_bias = 40; break;
    case BANNED: d->banned = banned, d->n_banned = 20; break;
    case ALLOWED: d->allowed = allowed, d->n_allowed = 250; break;
    case MIN_TOKENS: d->min_tokens = 17, d->stop_ids = stop_ids, d->n_stop_ids = 2; break;
    case STOP_IDS: d->stop_ids = stop_ids, d->n_stop_ids = 2; break;
    case STOPS: d->stop = stops, d->n_stop = 2; break;
    case LOGPROBS: d->logprobs = true, d->top_logprobs = 7; break;
    case PROMPT_LOGPROBS: d->prompt_logprobs = true, d->top_logprobs = 7; break;
    default: d->choice = 3;
    }
}

/* Option `which`, or with OPTIONS all of them. */
static void set_options(weft_request_desc *d, int which, bool text) {
    for (int o = 0; o < OPTIONS; o++)
        if ((o == which || which == OPTIONS) && (o != STOPS || text)) set(d, o);
}

/* ---- the plain sampler --------------------------------------------------------------------------------------------------- */

typedef struct rows {
    float *logits; /* [n, vocab] */
    int vocab;
} rows;
static weft_status keep_row(void *ctx, size_t position, const float *logits, const float *mtp, weft_error *e) {
    rows *r = ctx;
    (void)mtp, (void)e;
    memcpy(r->logits + position * (size_t)r->vocab, logits, (size_t)r->vocab * sizeof *logits);
    return WEFT_OK;
}

static double *compared;
static int by_weight(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return compared[x] != compared[y] ? (compared[x] < compared[y] ? 1 : -1) : x - y;
}

static bool has(const int32_t *ids, size_t n, int id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The order that weft.h gives, in doubles, one id after the other. ids[n_prompt + index]: what came before. */
static int32_t choose(const weft_engine *g, const weft_request_desc *d, const float *raw, const int32_t *ids, size_t index) {
    int vocab = g->info.vocab, best = -1, n = 0;
    double *x = calloc((size_t)vocab, sizeof *x), score = 0, sum = 0, reached = 0;
    int *order = calloc((size_t)vocab, sizeof *order);
    for (int id = 0; id < vocab; id++) {
        x[id] = (double)raw[id];
        bool may = g->allowed[id] && !has(d->banned, d->n_banned, id) && (!d->allowed || has(d->allowed, d->n_allowed, id));
        if (index < (size_t)d->min_tokens && has(d->stop_ids, d->n_stop_ids, id)) may = false;
        for (int i = 0; i < g->folders.model.config.n_eos && !d->ignore_end; i++)
            if (index < (size_t)d->min_tokens && g->folders.model.config.eos[i] == id) may = false;
        if (!may) {
            x[id] = -INFINITY;
            continue;
        }
        for (size_t i = 0; i < d->n_bias; i++)
            if (d->bias[i].id == id) x[id] = (double)(float)(x[id] + (double)d->bias[i].add);
        int times = 0;
        for (size_t i = 0; i < index; i++) times += ids[d->n_prompt + i] == id;
        float r = (float)d->repetition_penalty;
        if ((times || has(ids, d->n_prompt, id)) && r > 0) x[id] = x[id] > 0 ? x[id] / (double)r : x[id] * (double)r;
        if (times) x[id] = (x[id] - (double)(float)d->frequency_penalty * times) - (double)(float)d->presence_penalty;
        x[id] = (double)(float)x[id];
        order[n++] = id;
    }
    compared = x;
    qsort(order, (size_t)n, sizeof *order, by_weight);
    double largest = x[order[0]];
    if (d->temperature > 0) {
        if (d->top_k && d->top_k < n) n = d->top_k;
        for (int i = 0; i < n; i++) sum += exp((x[order[i]] - largest) / d->temperature);
        int kept = 0;
        for (; kept < n; kept++) {
            double w = exp((x[order[kept]] - largest) / d->temperature);
            if (w < (double)(float)d->min_p || (d->top_p > 0 && d->top_p < 1 && reached >= (double)(float)d->top_p * sum)) break;
            reached += w;
        }
        n = kept;
    } else
        n = 1;
    for (int i = 0; i < n; i++) {
        int id = order[i];
        double s =
            x[id] + d->temperature * (d->temperature > 0 ? weft_gumbel(d->seed, d->choice, (uint32_t)index, (uint32_t)id) : 0);
        if (best < 0 || s > score || (s == score && id < best)) best = id, score = s;
    }
    free(x);
    free(order);
    return best;
}

static double log_sum(const float *raw, int n) {
    double most = (double)raw[0], sum = 0;
    for (int i = 1; i < n; i++)
        if ((double)raw[i] > most) most = (double)raw[i];
    for (int i = 0; i < n; i++) sum += exp((double)raw[i] - most);
    return most + log(sum);
}

static void right_logprobs(const float *raw, int vocab, int32_t id, float said, const weft_logprob *top, int n_top) {
    const double most = 1e-5;
    double sum = log_sum(raw, vocab);
    assert_true(fabs((double)said - ((double)raw[id] - sum)) < most);
    for (int i = 0; i < n_top; i++) {
        assert_true(fabs((double)top[i].logprob - ((double)raw[top[i].id] - sum)) < most);
        if (i) assert_true(top[i].logprob <= top[i - 1].logprob);
    }
    if (n_top) assert_true(said <= top[0].logprob);
}

/* What came is what the plain sampler chooses at each place, the token that ended the answer included. */
static void is_right(weft_engine *g, const weft_request_desc *d, const record *r) {
    weft_error e = {0};
    rows all = {.logits = calloc(r->a.n * (size_t)g->info.vocab, sizeof(float)), .vocab = g->info.vocab};
    if (weft_score(g, r->a.ids, r->a.n, keep_row, &all, &e) != WEFT_OK) fail_msg("%s", e.text);
    for (int i = 0; i < r->tokens; i++) {
        const float *raw = all.logits + (d->n_prompt - 1 + (size_t)i) * (size_t)g->info.vocab;
        int32_t want = choose(g, d, raw, r->a.ids, (size_t)i), got = r->a.ids[d->n_prompt + (size_t)i];
        if (got != want) fail_msg("token %d is %d, a plain sampler says %d", i, got, want);
        if (d->logprobs) {
            assert_int_equal(r->n_top[i], d->top_logprobs);
            right_logprobs(raw, g->info.vocab, got, r->logprob[i], r->top[i], d->top_logprobs);
        }
    }
    if (r->end_token >= 0)
        assert_int_equal(choose(g, d, all.logits + (r->a.n - 1) * (size_t)g->info.vocab, r->a.ids, (size_t)r->tokens),
                         r->end_token);
    assert_int_equal(r->prompts, d->prompt_logprobs ? d->n_prompt - 1 : 0);
    for (int i = 0; i < r->prompts; i++)
        right_logprobs(all.logits + (size_t)i * (size_t)g->info.vocab, g->info.vocab, r->a.ids[i + 1], r->prompt_logprob[i],
                       r->prompt_top[i], d->top_logprobs);
    free(all.logits);
}

/* ---- the promise --------------------------------------------------------------------------------------------------------- */

/* One request at every depth, by the drafter and by lists with every number of right drafts. */
static void every_depth(weft_engine *g, weft_request_desc d, const record *base) {
    int32_t drafts[MOST] = {0};
    int n = (int)d.max_tokens;
    uint64_t accepted = 0;
    for (int depth = 1; depth <= 4; depth++) {
        d.depth = depth;
        d.drafts = NULL;
        d.n_drafts = 0;
        record *r = ask_fine(g, d);
        same(base, r);
        drop_record(r);
        if (SLOW && depth % 2) continue;
        for (int count = 0; count <= depth + 1; count++) { /* depth + 1: a mixture */
            const int mixed[] = {count, 3 % (depth + 1), 0, depth, 1, 2 % (depth + 1)};
            int32_t truth[MOST] = {0}; /* a token that ended the answer is drafted as well */
            memcpy(truth, base->a.ids + d.n_prompt, (size_t)base->tokens * sizeof *truth);
            if (base->end_token >= 0) truth[base->tokens] = base->end_token;
            forced(drafts, truth, (size_t)n, g->info.vocab, count <= depth ? mixed : mixed + 1, count <= depth ? 1 : 5, depth);
            d.drafts = drafts;
            d.n_drafts = (size_t)n;
            r = ask_fine(g, d);
            same(base, r);
            for (int i = 0; i < depth; i++) {
                assert_true(r->a.stats.accepted[i] <= r->a.stats.drafted[i]);
                accepted += r->a.stats.accepted[i];
            }

            drop_record(r);
        }
    }
    if (base->tokens > 10) assert_true(accepted > 0);
}

static weft_request_desc describe(const int32_t *prompt, double temperature) {
    return (weft_request_desc){
        .prompt = prompt, .n_prompt = PROMPT, .max_tokens = LENGTH, .temperature = temperature, .has_seed = true, .seed = 11};
}

/* Every option alone, and all of them; other chunks and thread counts. */
static void options_at_every_depth(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 21);
    for (int m = 0; m < MODELS; m++) {
        bool text = models[m] == mini; /* a hundred times a golden's work */
        weft_engine *g = open_model(models[m], 2, 16, 1), *other = open_model(models[m], 1, 7, 1);
        for (int t = 0; t < 2; t++) {
            weft_request_desc plain = describe(prompt, t ? 0.9 : 0);
            plain.ignore_end = true;
            record *bare = ask_fine(g, plain);
            make_lists(bare->a.ids + PROMPT, LENGTH, g->info.vocab);
            int changed = 0;
            for (int o = 0; o <= OPTIONS; o++) {
                if (text && o < OPTIONS && (SLOW || o % 3 != t)) continue;
                if (text && !t && o < REPETITION) continue; /* nothing for a greedy sampler to do */
                weft_request_desc d = plain;
                set_options(&d, o, text);
                record *base = ask_fine(g, d);
                is_right(g, &d, base);
                changed += base->a.n != bare->a.n || memcmp(base->a.ids, bare->a.ids, bare->a.n * sizeof *bare->a.ids) != 0;
                if (o == CHOICE && t) assert_memory_not_equal(base->a.ids, bare->a.ids, bare->a.n * sizeof *bare->a.ids);
                every_depth(g, d, base);
                d.depth = 3;
                record *elsewhere = ask_fine(other, d);
                same(base, elsewhere);
                drop_record(elsewhere);
                drop_record(base);
            }
            assert_true(changed > (text ? 0 : 4));
            drop_record(bare);
        }
        weft_engine_close(g);
        weft_engine_close(other);
    }
}

/* Requests with options of their own in one batch, drafting in different ways, answer as they do alone (MTPLX: penalties ignored,
 * a cohort that used its first request's settings). */
static void options_in_company(void **state) {
    (void)state;
    enum { N = OPTIONS + 1 };
    int32_t prompt[PROMPT], (*drafts)[MOST] = calloc(N, sizeof *drafts);
    make_prompt(prompt, PROMPT, 22);
    for (int m = 0; m < MODELS; m++) {
        if (SLOW && models[m] == mini) continue;
        weft_engine *g = open_model(models[m], 2, 16, 1);
        weft_request_desc d[N];
        record *alone[N], *together[N];
        weft_request *r[N] = {0};
        record *bare = ask_fine(g, describe(prompt, 0.8));
        make_lists(bare->a.ids + PROMPT, bare->tokens, g->info.vocab);
        drop_record(bare);
        for (int i = 0; i < N; i++) {
            d[i] = describe(prompt, i % 3 ? 0.8 : 0);
            d[i].seed = (uint64_t)i % 4;
            set_options(&d[i], i, models[m] == mini);
            alone[i] = ask_fine(g, d[i]);
        }
        weft_engine_close(g);
        g = open_model(models[m], 3, 24, N);
        for (int i = 0; i < N; i++) {
            const int mixed[] = {i % 3, 0, 2, 1};
            d[i].depth = i % 5;
            if (i % 2) {
                forced(drafts[i], alone[i]->a.ids + PROMPT, LENGTH, g->info.vocab, mixed, 4, i % 5 ? i % 5 : 1);
                d[i].drafts = drafts[i];
                d[i].n_drafts = LENGTH;
            }
            d[i].user = together[i] = calloc(1, sizeof **together);
        }
        const weft_event *ev;
        size_t n;
        bool running = true;
        for (int step = 0, next = 0; next < N || running; step++) {
            if (next < N && step % 2 == 0) {
                r[next] = submit(g, &d[next]);
                next++;
            }
            running = weft_run_step(g, &ev, &n);
            note(ev, n);
        }
        for (int i = 0; i < N; i++) {
            finish(r[i], &together[i]->a, true);
            same(alone[i], together[i]);
            drop_record(alone[i]);
            drop_record(together[i]);
        }
        weft_engine_close(g);
    }
    free(drafts);
}

/* Prompts of different lengths, chunks of one row and more rows than a pick takes: a prompt's log-probabilities do not depend on
 * them, nor on who shares the passes; they are known when the first token comes; a prompt of one token has none. */
static void log_probabilities_of_prompts(void **state) {
    (void)state;
    static const struct { int threads, chunk; } ways[] = {{1, 1}, {3, 100}, {2, 256}};
    static const int lengths[] = {1, 2, 7, 64, 65, 150};
    enum { N = sizeof lengths / sizeof *lengths };
    int32_t prompt[150];
    make_prompt(prompt, 150, 31);
    for (int m = 0; m < MODELS; m++) {
        if (SLOW && models[m] == mini) continue;
        record *alone[N];
        weft_engine *g = open_model(models[m], 2, 40, 1);
        for (int i = 0; i < N; i++) {
            weft_request_desc d = describe(prompt, 0);
            d.n_prompt = (size_t)lengths[i];
            d.max_tokens = 3;
            d.prompt_logprobs = true;
            d.top_logprobs = i % 3 ? 5 : 0;
            alone[i] = ask_fine(g, d);
            is_right(g, &d, alone[i]);
        }
        weft_engine_close(g);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            g = open_model(models[m], ways[w].threads, ways[w].chunk, N);
            record *together[N];
            weft_request *r[N];
            for (int i = 0; i < N; i++) {
                weft_request_desc d = describe(prompt, 0);
                d.n_prompt = (size_t)lengths[i];
                d.max_tokens = 3;
                d.prompt_logprobs = true;
                d.top_logprobs = i % 3 ? 5 : 0;
                d.user = together[i] = calloc(1, sizeof **together);
                r[i] = submit(g, &d);
            }
            const weft_event *ev;
            size_t n;
            while (weft_run_step(g, &ev, &n)) {
                note(ev, n);
                for (int i = 0; i < N; i++) {
                    float logprob;
                    const weft_logprob *top;
                    int n_top;
                    bool known = weft_request_prompt_logprob(r[i], r[i]->n_prompt - 1, &logprob, &top, &n_top);
                    assert_true(together[i]->tokens == 0 || known == (lengths[i] > 1));
                    assert_false(weft_request_prompt_logprob(r[i], 0, &logprob, &top, &n_top));
                    assert_false(weft_request_prompt_logprob(r[i], r[i]->n_prompt, &logprob, &top, &n_top));
                }
            }
            for (int i = 0; i < N; i++) {
                finish(r[i], &together[i]->a, true);
                same(alone[i], together[i]);
                drop_record(together[i]);
            }
            weft_engine_close(g);
        }
        for (int i = 0; i < N; i++) drop_record(alone[i]);
    }
}

/* ---- ends ---------------------------------------------------------------------------------------------------------------- */

/* A stop string anywhere in an answer, inside tokens and over several, with drafts that are all right: text up to it and nothing of
 * it, ids of the tokens that end before it, and no memory beyond the token that completes it. */
static void stop_strings(void **state) {
    (void)state;
    weft_error e = {0};
    int32_t *prompt;
    size_t n_prompt;
    weft_engine *g = open_model(mini, 2, 64, 1);
    assert_int_equal(weft_encode_chat(g,
                                      &(weft_chat_desc){.messages = "[{\"role\": \"user\", \"content\": \"Write a Python function "
                                                                    "that adds two numbers.\"}]"},
                                      &prompt, &n_prompt, &e),
                     WEFT_OK);
    weft_request_desc d = {.prompt = prompt, .n_prompt = n_prompt, .max_tokens = SLOW ? 20 : 40};
    record *base = ask_fine(g, d);
    assert_true(base->tokens > 15);
    int over_tokens = 0, inside = 0;
    for (size_t at = 0, step = 0; at + 1 < base->n_text; at += SLOW ? 37 : 7, step++) {
        size_t n = 1 + step * 5 % 13;
        char stop[20] = "";
        if (at + n > base->n_text) n = base->n_text - at;
        memcpy(stop, base->text + at, n);
        const char *found = strstr(base->text, stop);
        size_t begin = (size_t)(found - base->text);
        int k = 0, tokens = 0;
        while (k < base->tokens && base->text_at[k] < begin + n) k++;
        while (tokens < k && base->text_at[tokens] <= begin) tokens++;
        if (k == base->tokens) continue; /* its last character came with the end */
        over_tokens += k && base->text_at[k - 1] > begin;
        inside += base->text_at[k] > begin + n;
        const char *list[] = {"never in there", stop};
        d.stop = list;
        d.n_stop = 2;
        record *first = NULL;
        for (int depth = 0; depth <= 4; depth++)
            for (int listed = 0; listed < 2; listed++) {
                d.depth = depth;
                d.drafts = listed ? base->a.ids + n_prompt : NULL;
                d.n_drafts = listed ? (size_t)base->tokens : 0;
                record *r = ask_fine(g, d);
                assert_int_equal(r->a.reason, WEFT_END_STOP);
                assert_int_equal(r->stop, 1);
                assert_int_equal(r->end_token, -1);
                assert_int_equal(r->n_text, begin);
                assert_memory_equal(r->text, base->text, begin);
                assert_int_equal(r->tokens, tokens);
                assert_int_equal(r->a.done, n_prompt + (size_t)k); /* what led to that token, not the token itself */
                if (first) {
                    same_ids(&first->a, &r->a);
                    same_memory(&first->a, &r->a);
                    drop_record(r);
                } else
                    first = r;
            }
        drop_record(first);
    }
    assert_true(over_tokens > 0);
    assert_true(SLOW || inside > 0);

    /* Not before min_tokens, and from there on: the text of token k stops behind k tokens, or not if there have to be k + 1. */
    for (int k = 1; k < 12; k += 5)
        for (int least = k; least <= k + 1; least++)
            for (int depth = 0; depth <= 4; depth += 2) {
                char word[64] = "";
                const char *list[] = {word};
                assert_true(base->text_at[k] > base->text_at[k - 1] && base->text_at[k] - base->text_at[k - 1] < sizeof word);
                memcpy(word, base->text + base->text_at[k - 1], base->text_at[k] - base->text_at[k - 1]);
                d.stop = list;
                d.n_stop = 1;
                d.min_tokens = least;
                d.depth = depth;
                d.drafts = base->a.ids + n_prompt;
                d.n_drafts = (size_t)base->tokens;
                record *r = ask_fine(g, d);
                if (least == k) {
                    assert_int_equal(r->tokens, k);
                    assert_int_equal(r->n_text, base->text_at[k - 1]);
                } else
                    assert_true(r->tokens > k);
                assert_memory_equal(r->text, base->text, r->n_text);
                drop_record(r);
            }
    drop_record(base);
    weft_ids_free(prompt);
    weft_engine_close(g);
}

/* Of an incomplete stop string at the end all is delivered; the name of a control token stops at that token. */

/* Cut anywhere, the same text stops at the same byte: of all stop strings the one that is complete first, of those the longest. */

/* The last accepted draft, the bonus token, a token in the middle: a stop id is in no list, and its row in no cache. With
 * ignore_end an end token in a block is a token like others, and min_tokens keeps it out while it would end the answer. */
static void end_tokens(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 25);
    for (int m = 0; m < MODELS; m++) {
        if (SLOW && models[m] == mini) continue;
        weft_engine *g = open_model(models[m], 2, 64, 1);
        weft_request_desc d = describe(prompt, 1);
        d.max_tokens = 24;
        d.ignore_end = true;
        record *base = ask_fine(g, d);
        for (int at = 1; at < 24; at += SLOW ? 5 : 2) {
            int first = at;
            int32_t stop = base->a.ids[PROMPT + at];
            while (has(base->a.ids + PROMPT, (size_t)first, stop)) first--;
            weft_request_desc s = d;
            s.stop_ids = &stop;
            s.n_stop_ids = 1;
            record *plain = NULL;
            for (int depth = 0; depth <= 4; depth++) {
                s.depth = depth;
                s.drafts = base->a.ids + PROMPT;
                s.n_drafts = 24;
                record *r = ask_fine(g, s);
                assert_int_equal(r->a.reason, WEFT_END_STOP);
                assert_int_equal(r->end_token, stop);
                assert_int_equal(r->tokens, first);
                assert_int_equal(r->a.done, PROMPT + first);
                if (plain) {
                    same(plain, r);
                    drop_record(r);
                } else
                    plain = r;
            }
            drop_record(plain);
            s.min_tokens = 20;
            s.drafts = NULL;
            s.n_drafts = 0;
            s.depth = 0;
            plain = ask_fine(g, s);
            assert_true(plain->tokens >= 20);
            assert_false(has(plain->a.ids + PROMPT, (size_t)plain->tokens, stop));
            is_right(g, &s, plain);
            if (at < 6) every_depth(g, s, plain);
            drop_record(plain);
            g->folders.model.config.eos[0] = stop;
            g->folders.model.config.n_eos = 1;
            every_depth(g, d, base); /* ignored */
            if (at > 6) continue;
            s.n_stop_ids = 0; /* min_tokens holds for the checkpoint's own end token as well */
            s.ignore_end = false;
            plain = ask_fine(g, s);
            assert_true(plain->tokens >= 20);
            is_right(g, &s, plain);
            every_depth(g, s, plain);
            drop_record(plain);
        }
        drop_record(base);
        weft_engine_close(g);
    }
}

/* A token that always wants to end the answer does so at once when it may, wherever in a block that is. */
static void exactly_min_tokens(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 33);
    weft_engine *g = open_model(models[0], 2, 64, 1);
    weft_request_desc d = describe(prompt, 0.7);
    const weft_logit_bias wanted = {.id = 17, .add = 1000};
    d.bias = &wanted;
    d.n_bias = 1;
    d.stop_ids = &wanted.id;
    d.n_stop_ids = 1;
    for (int least = 0; least < 12; least++) {
        d.min_tokens = least;
        d.depth = 0;
        d.drafts = NULL;
        record *base = ask_fine(g, d);
        assert_int_equal(base->tokens, least);
        assert_int_equal(base->end_token, 17);
        if (least) every_depth(g, d, base);
        drop_record(base);
    }
    weft_engine_close(g);
}

/* max_tokens inside a block of accepted drafts, with penalties: exact, and nothing behind it counts. */
static void lengths(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 26);
    weft_engine *g = open_model(models[0], 2, 64, 1);
    weft_request_desc d = describe(prompt, 0.7);
    set_options(&d, OPTIONS, false);
    d.stop_ids = NULL;
    d.n_stop_ids = 0;
    d.min_tokens = 0;
    d.ignore_end = true;
    make_lists(prompt, PROMPT, g->info.vocab);
    d.max_tokens = 16;
    record *base = ask_fine(g, d);
    for (int max = 1; max <= 15; max++)
        for (int depth = 0; depth <= 4; depth++) {
            weft_request_desc s = d;
            s.max_tokens = max;
            s.depth = depth;
            s.drafts = base->a.ids + PROMPT;
            s.n_drafts = 16;
            record *r = ask_fine(g, s);
            assert_int_equal(r->a.reason, WEFT_END_LENGTH);
            assert_int_equal(r->tokens, max);
            assert_int_equal(r->a.done, PROMPT + max - 1);
            assert_memory_equal(r->a.ids, base->a.ids, r->a.n * sizeof *r->a.ids);
            assert_memory_equal(r->logprob, base->logprob, (size_t)max * sizeof *r->logprob);
            uint64_t drafted = 0;
            for (int i = 0; i < depth; i++) drafted += r->a.stats.drafted[i];
            assert_true(drafted < (uint64_t)max);
            drop_record(r);
        }
    drop_record(base);
    weft_engine_close(g);
}

/* ---- no token ------------------------------------------------------------------------------------------------------------ */

/* Nothing permitted, or logits that are no numbers: that request ends and says why; who shares the batch goes on. */
static void no_token(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    const int32_t one[] = {5}, pair[] = {5, 6};
    make_prompt(prompt, PROMPT, 27);
    weft_engine *g = open_model(models[0], 2, 64, 2);
    weft_request_desc good = describe(prompt, 0.5);
    good.ignore_end = true;
    good.depth = 2;
    record *alone = ask_fine(g, good);
    for (int how = 0; how < 3; how++) {
        weft_request_desc d = describe(prompt, how == 1 ? 0.5 : 0);
        d.depth = 3;
        d.allowed = how ? pair : one;
        d.n_allowed = how ? 2 : 1;
        d.banned = one;
        d.n_banned = 1;
        if (how) { /* the one that is left would end the answer */
            d.stop_ids = &pair[1];
            d.n_stop_ids = 1;
            d.min_tokens = 4;
        }
        record *bad = calloc(1, sizeof *bad), *mate = calloc(1, sizeof *mate);
        d.user = bad;
        good.user = mate;
        weft_request *r = submit(g, &d), *other = submit(g, &good);
        run_until_done(g);
        finish(r, &bad->a, false);
        finish(other, &mate->a, true);
        assert_int_equal(bad->a.reason, WEFT_END_ERROR);
        assert_int_equal(bad->error.code, WEFT_EINVAL);
        assert_non_null(strstr(bad->error.text, "no token may come"));
        assert_int_equal(bad->tokens, 0);
        same(alone, mate);
        drop_record(bad);
        drop_record(mate);
    }
    drop_record(alone);

    weft_engine_close(g);

    /* The trunk's hidden rows are made NaN through its state: between chunks of the prompt, whose log-probabilities are wanted or
     * not, and in the middle of an answer. */
    g = open_model(models[0], 2, 32, 2);
    alone = ask_fine(g, good);
    for (int after = 1; after < 7; after++) {
        weft_request_desc d = describe(prompt, 0.5);
        record *bad = calloc(1, sizeof *bad), *mate = calloc(1, sizeof *mate);
        weft_error e = {0};
        const weft_event *ev;
        size_t n, bytes = weft_slot_bytes(g->dev);
        float *slot = malloc(bytes);
        d.user = bad;
        d.ignore_end = true;
        d.logprobs = after % 2;
        d.prompt_logprobs = after == 2;
        d.repetition_penalty = 1.1;
        d.top_k = 5;
        good.user = mate;
        weft_request *r = submit(g, &d), *other = submit(g, &good);
        while (r->ids.n - (size_t)r->done > 1 ? after > 2 || !r->done : bad->tokens < after - 2) {
            assert_true(weft_run_step(g, &ev, &n));
            note(ev, n);
        }
        int tokens = bad->tokens;
        assert_int_equal(weft_slot_io(g->dev, r->slot, slot, true, &e), WEFT_OK);
        for (size_t i = 0; i < bytes / sizeof *slot; i++) slot[i] = __builtin_nanf("");
        assert_int_equal(weft_slot_io(g->dev, r->slot, slot, false, &e), WEFT_OK);
        run_until_done(g);
        assert_int_equal(bad->a.reason, WEFT_END_ERROR);
        assert_int_equal(bad->error.code, WEFT_ENUMERIC);
        assert_int_equal(bad->tokens, tokens);
        assert_int_equal(tokens, after > 2 ? after - 2 : 0);
        free(slot);
        finish(r, &bad->a, false);
        finish(other, &mate->a, true);
        same(alone, mate);
        drop_record(bad);
        drop_record(mate);
    }
    drop_record(alone);
    weft_engine_close(g);
}

/* ---- requests ------------------------------------------------------------------------------------------------------------ */

/* Memory that runs out anywhere while a request with everything is submitted is an error that leaves nothing behind. */

static void no_allocation(void **state) {
    (void)state;
    int32_t prompt[PROMPT];
    make_prompt(prompt, PROMPT, 30);
    make_lists(prompt, PROMPT, 300);
    weft_engine *g = open_model(mini, 2, 16, 1);
    for (int depth = 0; depth <= 4; depth += 4) {
        weft_request_desc d = describe(prompt, 0.9);
        record *r = calloc(1, sizeof *r);
        set_options(&d, OPTIONS, true);
        d.depth = depth;
        d.user = r;
        weft_request *q = submit(g, &d);
        uint64_t before = weft_alloc_count();
        run_until_done(g);
        assert_int_equal(weft_alloc_count(), before);
        finish(q, &r->a, false);
        drop_record(r);
    }
    weft_engine_close(g);
}

/* A seed that was drawn answers again; n answers are n choices of one seed, drawn independently, in a batch or one by one. */

/* Times of a request are those of the engine where it was alone, and parts make the whole. */

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_at_every_depth),
        cmocka_unit_test(options_in_company),
        cmocka_unit_test(log_probabilities_of_prompts),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(end_tokens),
        cmocka_unit_test(exactly_min_tokens),
        cmocka_unit_test(lengths),
        cmocka_unit_test(no_token),
        cmocka_unit_test(no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

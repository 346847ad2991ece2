/* test_decode.c: what a request does to its tokens (bias, bans, masks, penalties, truncation, minimum length), what its events tell
 * (text up to a stop string, log-probabilities) and where it ends, byte for byte the same at every draft depth, for every number of
 * accepted drafts, chunk, thread count and company in the batch; and the same as a plain computation from the model's logits.
 *
 * On a hybrid model with an MTP head, one with sliding windows and no drafter, and one with a drafter beside it that scores some
 * ids only; all with a tokenizer of this program's own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine_walks.h"
#include "sanitizers.h"

enum { MODELS = 3, PROMPT = 30, VOCAB = 320, BYTES = 256, SILENT = VOCAB - 1 };
#if SANITIZED
enum { LENGTH = 24 };
#else
enum { LENGTH = 60 };
#endif

/* ---- models with a tokenizer --------------------------------------------------------------------------------------------- */

static const char *const goldens[MODELS] = {"qwen3_5-dense", "gemma4-ple", "gemma4-assistant-ordered/target"};
static const char *const drafters[MODELS] = {NULL, NULL, "tests/data/golden/gemma4-assistant-ordered/assistant"};
static char scratch[200], folders[MODELS][300];
static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};

/* Token b is byte b; the others are "[256]" and so on, the last of them a control token without text. Bytes that are no letters
 * have the 256th letter and those behind it. */
static void write_tokenizer(FILE *f) {
    fputs("{\"version\": \"1.0\", \"added_tokens\": [", f);
    for (int id = BYTES; id < VOCAB; id++)
        fprintf(f,
                "%s{\"id\": %d, \"content\": \"[%d]\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                "\"normalized\": false, \"special\": %s}",
                id > BYTES ? ", " : "", id, id, id == SILENT ? "true" : "false");
    fputs("], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
          "false, \"use_regex\": true}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {",
          f);
    for (int b = 0, others = 256; b < BYTES; b++) {
        bool letter = (b > 32 && b < 127) || (b > 160 && b != 173);
        fprintf(f, "%s\"\\u%04x\": %d", b ? ", " : "", (unsigned)(letter ? b : others), b);
        others += !letter;
    }
    fputs("}, \"merges\": []}}", f);
}

static int make_folders(void) {
    const char *tmp = getenv("TMPDIR");
    char here[1000], from[1500], to[1000];
    snprintf(scratch, sizeof scratch, "%s/weft-decode-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!getcwd(here, sizeof here) || !mkdtemp(scratch)) return -1;
    for (int m = 0; m < MODELS; m++) {
        snprintf(folders[m], sizeof folders[m], "%s/%d", scratch, m);
        if (mkdir(folders[m], 0700) != 0) return -1;
        for (int i = 0; i < 2; i++) {
            snprintf(from, sizeof from, "%s/tests/data/golden/%s/%s", here, goldens[m], files[i]);
            snprintf(to, sizeof to, "%s/%s", folders[m], files[i]);
            if (symlink(from, to) != 0) return -1;
        }
        snprintf(to, sizeof to, "%s/%s", folders[m], files[2]);
        FILE *f = fopen(to, "w");
        if (!f) return -1;
        write_tokenizer(f);
        if (fclose(f) != 0) return -1;
    }
    return 0;
}
static void drop_folders(void) {
    char path[1000];
    for (int m = 0; m < MODELS; m++) {
        for (int i = 0; i < 3; i++) {
            snprintf(path, sizeof path, "%s/%s", folders[m], files[i]);
            remove(path);
        }
        rmdir(folders[m]);
    }
    rmdir(scratch);
}

static weft_engine *open_subject(int m, int threads, int chunk, int requests) {
    return open_pair(folders[m], drafters[m], threads, chunk, requests, 4);
}

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

/* What came of a request: its answer, all its events as bytes, their text. */
typedef struct record {
    answer a;
    weft_str log, text;
    int stop, token; /* of the END */
    weft_error error;
} record;

static void drop_record(record *r) {
    weft_str_free(&r->log);
    weft_str_free(&r->text);
    free(r->a.slot);
    free(r->a.pages);
    free(r);
}

static void put(record *r, const void *bytes, size_t n) {
    assert_true(weft_str_add(&r->log, bytes, n));
}

static void note(const weft_event *ev, size_t n) {
    float logprob;
    const weft_logprob *top;
    int n_top;
    for (size_t i = 0; i < n; i++, ev++) {
        record *r = weft_request_user(ev->request);
        assert_true(weft_str_add(&r->text, ev->text, ev->n_text));
        int32_t head[] = {(int32_t)ev->kind, ev->token, (int32_t)ev->reason, ev->stop, ev->n_top, (int32_t)ev->n_text};
        put(r, head, sizeof head);
        put(r, ev->text, ev->n_text);
        put(r, &ev->logprob, sizeof ev->logprob);
        for (int k = 0; k < ev->n_top; k++) put(r, &ev->top[k], sizeof ev->top[k]);
        if (ev->kind != WEFT_EVENT_END) continue;
        for (size_t k = 1; weft_request_prompt_logprob(ev->request, k, &logprob, &top, &n_top); k++) {
            put(r, &logprob, sizeof logprob);
            for (int t = 0; t < n_top; t++) put(r, &top[t], sizeof *top);
        }
        r->a.reason = ev->reason;
        r->stop = ev->stop;
        r->token = ev->token;
        if (ev->error) r->error = *ev->error;
    }
}

static void run_noting(weft_engine *g) {
    const weft_event *ev;
    size_t n;
    while (weft_run_step(g, &ev, &n)) note(ev, n);
}

static record *answer_of(weft_engine *g, weft_request_desc d) {
    record *r = calloc(1, sizeof *r);
    d.user = r;
    weft_request *q = submit(g, &d);
    run_noting(g);
    finish(q, &r->a, true);
    return r;
}

static void same(const record *a, const record *b) {
    same_ids(&a->a, &b->a);
    same_memory(&a->a, &b->a);
    assert_int_equal(a->a.reason, b->a.reason);
    assert_int_equal(a->a.stats.tokens, b->a.stats.tokens);
    assert_int_equal(a->log.n, b->log.n);
    assert_memory_equal(weft_str_z(&a->log), weft_str_z(&b->log), a->log.n);
}

static const int32_t *said(const record *r) {
    return r->a.ids + r->a.n_prompt;
}
static int n_said(const record *r) {
    return (int)(r->a.n - r->a.n_prompt);
}

/* ---- options ------------------------------------------------------------------------------------------------------------- */

enum {
    PLAIN,
    BIAS,
    BANNED,
    ALLOWED,
    REPETITION,
    PRESENCE,
    FREQUENCY,
    MIN_TOKENS,
    TOP_K,
    TOP_P,
    MIN_P,
    CHOICE,
    LOGPROBS,
    PROMPT_LOGPROBS,
    STOP,
    ALL,
    KINDS
};
static const weft_logit_bias biases[] = {{250, 1.5f}, {3, -2}, {77, -INFINITY}, {12, 2}, {300, 1}};
static const int32_t banned[] = {5, 77, 261, 5};
static int32_t prompts[KINDS][PROMPT], allowed[120], stop_ids[60];
static const char *const stops[] = {"[31", "[2]", "0][30", "\xEF\xBF\xBD["};

static void make_lists(void) {
    for (int i = 0; i < 120; i++) allowed[i] = (i * 41 + 7) % VOCAB;
    for (int i = 0; i < 60; i++) stop_ids[i] = (i * 3 + 1) % VOCAB;
    for (int i = 0; i < KINDS; i++) make_prompt(prompts[i], PROMPT, (uint32_t)i + 3);
}

/* One option, or all together. */
static weft_request_desc request_of(int kind, bool warm) {
    weft_request_desc d = {.prompt = prompts[kind],
                           .n_prompt = PROMPT,
                           .max_tokens = LENGTH,
                           .temperature = warm ? 1.3 : 0,
                           .has_seed = true,
                           .seed = 42,
                           .ignore_end = true};
    bool all = kind == ALL;
    if (kind == BIAS || all) d.bias = biases, d.n_bias = sizeof biases / sizeof *biases;
    if (kind == BANNED || all) d.banned = banned, d.n_banned = sizeof banned / sizeof *banned;
    if (kind == ALLOWED || all) d.allowed = allowed, d.n_allowed = 120;
    if (kind == REPETITION || all) d.repetition_penalty = 1.3f;
    if (kind == PRESENCE || all) d.presence_penalty = 0.7f;
    if (kind == FREQUENCY || all) d.frequency_penalty = 0.4f;
    if (kind == MIN_TOKENS || all) d.min_tokens = LENGTH / 2, d.stop_ids = stop_ids, d.n_stop_ids = all ? 5 : 60;
    if (kind == TOP_K || all) d.top_k = 30;
    if (kind == TOP_P || all) d.top_p = 0.8f;
    if (kind == MIN_P || all) d.min_p = 0.02f;
    if (kind == CHOICE || all) d.choice = 3;
    if (kind == LOGPROBS || all) d.logprobs = true, d.top_logprobs = all ? 3 : 20;
    if (kind == PROMPT_LOGPROBS || all) d.prompt_logprobs = true, d.top_logprobs = all ? 3 : 20;
    if (kind == STOP || all) d.stop = stops, d.n_stop = sizeof stops / sizeof *stops;
    return d;
}

/* ---- the promise --------------------------------------------------------------------------------------------------------- */

/* Each option alone and all together: at every depth, with the head's drafts and with lists that are right 0 to all times, the
 * events, counts and memory of depth 0. */
static void depth_changes_nothing(void **state) {
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        weft_engine *g = open_subject(m, 2, 64, 1);
        uint64_t accepted = 0;
        for (int kind = 0; kind < 2 * KINDS; kind++) {
            weft_request_desc d = request_of(kind / 2, kind % 2);
            record *base = answer_of(g, d);
            for (d.depth = 1; d.depth <= 4 && g->info.drafts; d.depth++) {
                record *r = answer_of(g, d);
                same(base, r);
                for (int i = 0; i < d.depth; i++) accepted += r->a.stats.accepted[i];
                drop_record(r);
            }
            int32_t drafts[LENGTH];
            for (int at = 0; at < 14 && n_said(base); at++) { /* every depth and count; 14 is 2 + 3 + 4 + 5 */
                int depth = 1, count = at, mixed[] = {1, 0, 3, 2, 4};
                while (count > depth) count -= ++depth;
                bool mix = kind % 3 == 0 && count == 1;
                for (int i = 0; i < 5; i++) mixed[i] = mix ? mixed[i] % (depth + 1) : count;
                forced(drafts, said(base), (size_t)n_said(base), VOCAB, mixed, 5, depth);
                d.depth = depth;
                d.drafts = drafts;
                d.n_drafts = (size_t)n_said(base);
                record *r = answer_of(g, d);
                same(base, r);
                if (count && n_said(base) > 2) assert_true(r->a.stats.accepted[0] > 0);
                if (!count) assert_int_equal(r->a.stats.accepted[0], 0);
                drop_record(r);
            }
            drop_record(base);
        }
        if (g->info.drafts) assert_true(accepted > 0);
        weft_engine_close(g);
    }
}

/* Chunks, threads, and all of them in one batch, joining one by one, at different depths. */
static void company_changes_nothing(void **state) {
    (void)state;
    static const struct { int threads, chunk; } ways[] = {{1, 7}, {3, 64}};
    for (int m = 0; m < MODELS; m++) {
        record *alone[KINDS], *together[KINDS];
        weft_request *q[KINDS];
        weft_engine *g = open_subject(m, 2, 64, 1);
        for (int k = 0; k < KINDS; k++) alone[k] = answer_of(g, request_of(k, k % 4));
        weft_engine_close(g);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            g = open_subject(m, ways[w].threads, ways[w].chunk, KINDS);
            const weft_event *ev;
            size_t n;
            bool running = true;
            for (int step = 0, next = 0; next < KINDS || running; step++) {
                if (next < KINDS && step % 2 == 0) {
                    weft_request_desc d = request_of(next, next % 4);
                    d.user = together[next] = calloc(1, sizeof **together);
                    d.depth = next % 5;
                    if (next % 2) { /* drafts that are right */
                        d.drafts = said(alone[next]);
                        d.n_drafts = (size_t)n_said(alone[next]);
                    }
                    q[next++] = submit(g, &d);
                }
                running = weft_run_step(g, &ev, &n);
                note(ev, n);
            }
            for (int k = 0; k < KINDS; k++) {
                finish(q[k], &together[k]->a, true);
                same(alone[k], together[k]);
                drop_record(together[k]);
            }
            weft_engine_close(g);
        }
        for (int k = 0; k < KINDS; k++) drop_record(alone[k]);
    }
}

/* ---- ends ---------------------------------------------------------------------------------------------------------------- */

/* Drafts that are all right, and some of them: at every depth what depth 0 says, and what is expected. forwarded: generated tokens
 * that the trunk has seen, of which `tokens` are the answer. Returns the record of depth 0. */
static record *ends_alike(weft_engine *g, weft_request_desc d, const record *truth, int tokens, int forwarded,
                          weft_end_reason reason) {
    int32_t drafts[LENGTH];
    record *base = NULL;
    d.drafts = drafts;
    d.n_drafts = (size_t)n_said(truth);
    for (int way = 0; way < 9; way++) {
        d.depth = (way + 1) / 2;
        const int counts[] = {way % 2 ? d.depth : tokens % (d.depth + 1), way % 2 ? d.depth : forwarded % 2};
        forced(drafts, said(truth), d.n_drafts, VOCAB, counts, 2, d.depth);
        record *r = answer_of(g, d);
        assert_int_equal(n_said(r), tokens);
        assert_int_equal(r->a.stats.tokens, tokens);
        assert_memory_equal(said(r), said(truth), (size_t)tokens * sizeof(int32_t));
        assert_int_equal(r->a.reason, reason);
        assert_int_equal(r->a.done, PROMPT + forwarded);
        if (base) {
            same(base, r);
            drop_record(r);
        } else {
            base = r;
        }
    }
    return base;
}

/* Where text first holds one of the strings completely; the strings' longest there. */
static const char *first_stop(const char *text, const char *const *strings, size_t n, int *which) {
    const char *best = NULL, *end = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *p = strstr(text, strings[i]);
        if (!p || (end && (p + strlen(strings[i]) > end || (p + strlen(strings[i]) == end && p >= best)))) continue;
        best = p;
        end = p + strlen(strings[i]);
        *which = (int)i;
    }
    return best;
}

/* Every string of 1 to 24 bytes out of an answer's text, wherever tokens end in it: the text before it, not a byte of it, and the
 * tokens that end before it begins (a stop string over several tokens, from the middle of one to the middle of another; inside of
 * accepted drafts, at the last of them, or just behind). */
static void stop_strings(void **state) {
    (void)state;
    weft_engine *g = open_subject(0, 2, 64, 1);
    weft_request_desc d = request_of(PLAIN, true);
    weft_logit_bias up[VOCAB - BYTES]; /* tokens of several letters */
    for (int i = 0; i < VOCAB - BYTES; i++) up[i] = (weft_logit_bias){BYTES + i, 2};
    int32_t others[160]; /* no ASCII, or no letters */
    for (int i = 0; i < 160; i++) others[i] = i < 32 ? i : i + 96;
    d.bias = up;
    d.n_bias = VOCAB - BYTES;
    d.banned = others;
    d.n_banned = 160;
    record *truth = answer_of(g, d);
    weft_str prefix[LENGTH + 1] = {{0}}; /* texts of the first tokens */
    for (int i = 0; i <= LENGTH; i++)
        assert_int_equal(weft_tokenizer_decode(g->tokenizer, said(truth), (size_t)i, false, &prefix[i], NULL), WEFT_OK);
    const char *text = weft_str_z(&prefix[LENGTH]);
    assert_string_equal(weft_str_z(&truth->text), text);
    int split[8] = {0}, inside = 0; /* over so many tokens; from the middle of one */
    for (size_t at = 0; at < prefix[LENGTH].n; at += 7)
        for (size_t length = 1; length <= 24 && at + length <= prefix[LENGTH].n; length += 2 + at % 6) {
            char stop[32], other[32];
            snprintf(stop, sizeof stop, "%.*s", (int)length, text + at);
            snprintf(other, sizeof other, "%.*s~", (int)length, text + at / 2); /* begins often, is never complete */
            const char *const two[] = {other, stop};
            int which, tokens = 0, last = 0;
            const char *found = first_stop(text, two, 2, &which);
            size_t before = (size_t)(found - text), end = before + strlen(two[which]);
            while (prefix[tokens + 1].n <= before) tokens++;
            while (prefix[last + 1].n < end) last++;
            split[last - tokens + 1 < 7 ? last - tokens + 1 : 7]++;
            inside += prefix[tokens].n < before;
            d.stop = two;
            d.n_stop = 2;
            record *r = ends_alike(g, d, truth, tokens, last, WEFT_END_STOP);
            assert_int_equal(r->stop, which);
            assert_int_equal(r->token, -1);
            assert_int_equal(r->text.n, before);
            assert_memory_equal(weft_str_z(&r->text), text, before);
            drop_record(r);
        }
    for (int i = 1; i <= 6; i++) assert_true(split[i] > 0);
    assert_true(inside > 10);
    /* One that begins and is never completed holds nothing back for good. */
    char open[1024];
    snprintf(open, sizeof open, "%s~", text + prefix[LENGTH].n - 5);
    const char *const never[] = {open};
    d.stop = never;
    d.n_stop = 1;
    record *r = ends_alike(g, d, truth, LENGTH, LENGTH - 1, WEFT_END_LENGTH);
    assert_string_equal(weft_str_z(&r->text), text);
    drop_record(r);
    /* Nor does one that is complete before min_tokens end anything. */
    const char *const any[] = {"[", "]", "a", "0"};
    d.stop = any;
    d.n_stop = 4;
    d.min_tokens = LENGTH;
    r = ends_alike(g, d, truth, LENGTH, LENGTH - 1, WEFT_END_LENGTH);
    assert_string_equal(weft_str_z(&r->text), text);
    drop_record(r);
    for (int i = 0; i <= LENGTH; i++) weft_str_free(&prefix[i]);
    drop_record(truth);
    weft_engine_close(g);
}

static uint32_t draw(uint32_t *seed, uint32_t n) {
    return (uint32_t)(((uint64_t)(*seed = *seed * 1664525u + 1013904223u) * n) >> 32);
}

/* Random texts in random pieces, zero bytes included: what is found is the first complete stop string, found byte by byte; what is
 * undecided is the beginning of one, the longest there is. */
static void stop_strings_in_pieces(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int run = 0; run < 3000; run++) {
        enum { MOST = 5, TEXT = 40 };
        char strings[MOST][8], text[TEXT];
        const char *list[MOST];
        int n = 1 + run % MOST, expected = -1, found = -1;
        size_t before = TEXT, begins, first = run % 3 ? 0 : draw(&seed, 9);
        for (int i = 0; i < n; i++) {
            int length = 1 + (int)draw(&seed, 6);
            for (int k = 0; k < length; k++) strings[i][k] = "ab"[draw(&seed, 2)];
            strings[i][length] = 0;
            list[i] = strings[i];
        }
        for (int i = 0; i < TEXT; i++) text[i] = "abab\0aba"[draw(&seed, 8)];
        for (size_t end = first + 1; end <= TEXT && expected < 0; end++)
            for (int i = 0; i < n; i++) {
                size_t k = strlen(list[i]);
                if (first + k > end || memcmp(text + end - k, list[i], k) != 0 || (expected >= 0 && end - k >= before)) continue;
                expected = i;
                before = end - k;
            }
        weft_stop s;
        weft_str all = {0};
        weft_error e;
        assert_int_equal(weft_stop_open(&s, list, (size_t)n, &e), WEFT_OK);
        for (size_t at = 0, piece; at < TEXT && found < 0; at += piece) {
            piece = 1 + draw(&seed, 9);
            if (piece > TEXT - at) piece = TEXT - at;
            assert_true(weft_str_add(&all, text + at, piece));
            found = weft_stop_search(&s, &all, first < all.n ? first : all.n, &begins);
            size_t longest = 0;
            for (int i = 0; i < n; i++)
                for (size_t k = 1; k < strlen(list[i]) && first + k <= all.n; k++)
                    if (!memcmp(text + all.n - k, list[i], k) && k > longest) longest = k;
            if (found < 0) assert_int_equal(begins, all.n - longest);
        }
        assert_true((found < 0) == (expected < 0));
        if (found >= 0) {
            assert_string_equal(list[found], list[expected]);
            assert_int_equal(begins, before);
        }
        weft_str_free(&all);
        weft_stop_close(&s);
    }
}

/* A text that is written token by token, and where each token's bytes end in it. */
enum { SCRIPT = 40 };
typedef struct script {
    int32_t ids[SCRIPT];
    size_t end[SCRIPT];  /* of a token's bytes, */
    size_t text[SCRIPT]; /* and of the whole characters then */
    int n;
    char bytes[SCRIPT * 5 + 1];
} script;

/* Letters a and b and e with an accent, alone, in tokens of several letters, split into two tokens with perhaps silence between. */
static void write_script(script *s, uint32_t *seed) {
    size_t at = 0;
    s->n = 0;
    while (s->n + 3 <= SCRIPT) {
        int kind = (int)draw(seed, 8);
        int32_t id = kind < 3 ? 'a' : kind < 5 ? 'b' : kind < 6 ? SILENT : kind < 7 ? BYTES + (int32_t)draw(seed, 3) : 0xC3;
        for (int part = 0; part < 3; part++) {
            if (part == 1 && (id != 0xC3 || draw(seed, 3))) continue;
            if (part == 2 && id != 0xC3) continue;
            int32_t one = part == 0 ? id : part == 1 ? SILENT : 0xA9;
            if (one < BYTES) s->bytes[at++] = (char)one;
            if (one >= BYTES && one != SILENT) at += (size_t)snprintf(s->bytes + at, 6, "[%d]", one);
            s->ids[s->n] = one;
            s->end[s->n] = at;
            s->text[s->n++] = id == 0xC3 && part < 2 ? at - 1 : at;
        }
    }
    s->bytes[at] = 0;
}

/* The script said by a request in steps of random length; events are logged, and checked for what is let out when. */
static record *say(weft_engine *g, const script *s, weft_request_desc d, size_t plain, int expected, uint32_t *seed) {
    record *r = calloc(1, sizeof *r);
    weft_error e;
    d.user = r;
    weft_request *q = submit(g, &d);
    for (int i = 0, left = 0; i < s->n && q->phase != WEFT_ENDED; i++) {
        if (!left) left = 1 + (int)draw(seed, 5);
        assert_int_equal(weft_answer_room(g, &e), WEFT_OK);
        weft_picked picked = {.id = s->ids[i], .logit = -(float)i, .n_top = 1, .top_id = {i}};
        assert_int_equal(weft_answer_add(q, &picked), WEFT_OK);
        if (q->phase != WEFT_ENDED) { /* let out is what ends before the first place where a stop string may begin */
            size_t open = s->text[i], n;
            for (size_t at = plain; at < open; at++)
                for (size_t k = 0; k < d.n_stop; k++)
                    if (!strncmp(d.stop[k], s->bytes + at, s->text[i] - at)) open = at;
            int out = 0;
            while (out <= i && (s->end[out] <= open || out < d.min_tokens)) out++;
            weft_request_ids(q, &n);
            assert_int_equal(n, PROMPT + out);
        }
        if (i + 1 == s->n && q->phase != WEFT_ENDED) weft_answer_end(q, WEFT_END_LENGTH, -1);
        if (--left && i + 1 < s->n && q->phase != WEFT_ENDED) continue;
        weft_answer_publish(g);
        note(g->events.list.v, g->events.list.n);
        g->events.list.n = g->events.beside.n = 0;
        weft_str_clear(&q->answer.text);
    }
    assert_int_equal(q->ids.n, PROMPT + (q->answer.stop.n && r->stop >= 0 ? expected : s->n));
    finish(q, &r->a, false);
    return r;
}

/* Random scripts: the answer is the tokens that end before the first stop string to be complete begins, its text all that stands
 * before it; each token's event has its own text and log-probability, whatever comes in one step; without a stop string, or before
 * min_tokens, everything comes. */
static void tokens_of_a_stop_string_are_no_answer(void **state) {
    (void)state;
    weft_engine *g = open_subject(0, 1, 64, 1);
    static const char *const pieces[] = {"a", "b", "\xC3\xA9", "[25", "6]", "]", "a\xC3\xA9"};
    uint32_t seed = 7;
    int stopped = 0, silent = 0, halved = 0, inside = 0;
    for (int run = 0; run < 1500; run++) {
        script s;
        write_script(&s, &seed);
        char strings[3][40];
        const char *list[3];
        weft_request_desc d = request_of(LOGPROBS, false);
        d.max_tokens = SCRIPT;
        d.n_stop = 1 + draw(&seed, 3);
        d.stop = list;
        d.min_tokens = run % 3 ? 0 : (int)draw(&seed, 12);
        for (size_t i = 0; i < d.n_stop; i++) {
            strings[i][0] = 0;
            for (uint32_t k = 1 + draw(&seed, 5); k; k--) strcat(strings[i], pieces[draw(&seed, 7)]);
            list[i] = strings[i];
        }
        size_t plain = d.min_tokens ? s.end[d.min_tokens - 1] : 0, before = 0, end = 0;
        int which = -1, tokens = s.n, last = s.n;
        const char *found = first_stop(s.bytes + plain, list, d.n_stop, &which);
        if (found) {
            before = (size_t)(found - s.bytes);
            end = before + strlen(list[which]);
            for (tokens = 0; s.end[tokens] <= before;) tokens++;
            for (last = tokens; s.text[last] < end;) last++;
            stopped++;
            inside += before > (tokens ? s.end[tokens - 1] : 0);
            halved += s.ids[last] == 0xA9 || s.ids[tokens] == 0xC3;
            for (int i = tokens; i < last; i++) silent += s.ids[i] == SILENT;
        }
        record *r = say(g, &s, d, plain, last, &seed), *again = say(g, &s, d, plain, last, &seed);
        assert_int_equal(r->a.reason, found ? WEFT_END_STOP : WEFT_END_LENGTH);
        assert_int_equal(r->stop, found ? which : -1);
        assert_int_equal(n_said(r), tokens);
        assert_int_equal(r->a.stats.tokens, tokens);
        assert_memory_equal(said(r), s.ids, (size_t)tokens * sizeof(int32_t));
        assert_int_equal(r->text.n, found ? before : strlen(s.bytes));
        assert_memory_equal(weft_str_z(&r->text), s.bytes, r->text.n);
        assert_int_equal(r->log.n, again->log.n);
        assert_memory_equal(r->log.p, again->log.p, r->log.n);
        const char *log = r->log.p;
        for (int i = 0; i < tokens; i++) {
            int32_t head[6];
            float logprob;
            weft_logprob top;
            size_t from = i ? s.text[i - 1] : 0;
            memcpy(head, log, sizeof head);
            assert_int_equal(head[1], s.ids[i]);
            assert_int_equal(head[5], s.text[i] - from);
            log += sizeof head;
            assert_memory_equal(log, s.bytes + from, s.text[i] - from);
            log += head[5];
            memcpy(&logprob, log, sizeof logprob);
            memcpy(&top, log + sizeof logprob, sizeof top);
            assert_true(logprob == -(float)i && top.id == i);
            log += sizeof logprob + sizeof top;
        }
        drop_record(r);
        drop_record(again);
    }
    assert_true(stopped > 500 && stopped < 1400 && silent > 20 && halved > 100 && inside > 50);
    weft_engine_close(g);
}

/* max_tokens, an end token and a stop id at each place of a block of accepted drafts. */
static void ends_inside_blocks(void **state) {
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        weft_engine *g = open_subject(m, 2, 64, 1);
        weft_request_desc plain = request_of(PLAIN, true), d;
        plain.frequency_penalty = 2;
        record *truth = answer_of(g, plain);
        for (int at = 1; at <= 12; at++) {
            d = plain;
            d.max_tokens = at;
            drop_record(ends_alike(g, d, truth, at, at - 1, WEFT_END_LENGTH));
            int first = 0;
            while (said(truth)[first] != said(truth)[at]) first++;
            d = plain;
            d.stop_ids = &said(truth)[at];
            d.n_stop_ids = 1;
            record *r = ends_alike(g, d, truth, first, first, WEFT_END_STOP);
            assert_int_equal(r->token, said(truth)[at]);
            assert_int_equal(r->stop, -1);
            drop_record(r);
            weft_model_config *c = &g->folders.model.config;
            int n_eos = c->n_eos, eos = c->eos[0];
            c->n_eos = 1;
            c->eos[0] = said(truth)[at];
            drop_record(ends_alike(g, plain, truth, LENGTH, LENGTH - 1, WEFT_END_LENGTH)); /* ignore_end goes on, */
            drop_record(ends_alike(g, d, truth, first, first, WEFT_END_STOP));             /* but not over a stop id */
            d = plain;
            d.ignore_end = false;
            drop_record(ends_alike(g, d, truth, first, first, WEFT_END_STOP));
            c->n_eos = n_eos;
            c->eos[0] = eos;
        }
        drop_record(truth);
        weft_engine_close(g);
    }
}

/* ---- against a plain computation ----------------------------------------------------------------------------------------- */

typedef struct rows {
    float logits[PROMPT + LENGTH][VOCAB];
} rows;
static weft_status keep_row(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e) {
    (void)mtp_logits, (void)e;
    memcpy(((rows *)ctx)->logits[position], logits, sizeof(float) * VOCAB);
    return WEFT_OK;
}

/* The likeliest token after ids[0..n), by what weft.h says. */
static int32_t expected(const weft_request_desc *d, const float *logits, const int32_t *ids, int n) {
    int32_t best = -1;
    double most = 0;
    for (int32_t id = 0; id < VOCAB; id++) {
        double x = (double)logits[id];
        bool out = d->n_allowed > 0, in_prompt = false;
        int times = 0;
        for (size_t i = 0; i < d->n_allowed; i++) out &= d->allowed[i] != id;
        for (size_t i = 0; i < d->n_banned; i++) out |= d->banned[i] == id;
        for (size_t i = 0; i < d->n_stop_ids; i++) out |= d->stop_ids[i] == id && n - PROMPT < d->min_tokens;
        for (size_t i = 0; i < d->n_bias; i++)
            if (d->bias[i].id == id) x += (double)d->bias[i].add;
        for (int i = 0; i < n; i++) *(i < PROMPT ? &in_prompt : &(bool){false}) |= ids[i] == id;
        for (int i = PROMPT; i < n; i++) times += ids[i] == id;
        x = (double)(float)x;
        if (d->repetition_penalty > 0 && (in_prompt || times))
            x = x > 0 ? x / (double)d->repetition_penalty : x * (double)d->repetition_penalty;
        x -= (double)d->frequency_penalty * times + (times ? (double)d->presence_penalty : 0);
        x = (double)(float)x;
        if (out || x == -INFINITY || (best >= 0 && x <= most)) continue;
        best = id;
        most = x;
    }
    return best;
}

/* Greedy answers of each option are what its definition says of the model's own logits; log-probabilities are those of raw logits,
 * of the token itself (not the next one, not after a temperature or a penalty). */
static void options_mean_what_they_say(void **state) {
    (void)state;
    int changed[KINDS] = {0}; /* models whose answer is another one */
    rows *all = malloc(sizeof *all);
    for (int m = 0; m < MODELS; m++) {
        weft_engine *g = open_subject(m, 2, 64, 1);
        for (int kind = 0; kind < KINDS; kind++) {
            weft_error e = {0};
            weft_request_desc d = request_of(kind, false);
            d.depth = 3;
            record *r = answer_of(g, d);
            assert_int_equal(weft_score(g, r->a.ids, r->a.n, keep_row, all, &e), WEFT_OK);
            for (int i = 0; i < n_said(r); i++)
                assert_int_equal(said(r)[i], expected(&d, all->logits[PROMPT + i - 1], r->a.ids, PROMPT + i));
            if (kind == BIAS || kind == FREQUENCY) { /* does the option do something here? */
                weft_request_desc without = request_of(PLAIN, false);
                without.prompt = d.prompt;
                record *other = answer_of(g, without);
                changed[kind] += memcmp(said(r), said(other), (size_t)n_said(r) * sizeof(int32_t)) != 0;
                drop_record(other);
            }
            drop_record(r);
        }
        weft_engine_close(g);
    }
    assert_true(changed[BIAS] > 0 && changed[FREQUENCY] > 0);
    free(all);
}

static void check_logprobs(const weft_event *ev, const float *logits, int top) {
    double sum = 0, largest = (double)logits[0];
    for (int i = 0; i < VOCAB; i++) largest = fmax(largest, (double)logits[i]);
    for (int i = 0; i < VOCAB; i++) sum += exp((double)logits[i] - largest);
    double log_sum = largest + log(sum);
    assert_true(fabs((double)ev->logprob - ((double)logits[ev->token] - log_sum)) < 1e-4);
    assert_int_equal(ev->n_top, top);
    for (int k = 0; k < top; k++) {
        int better = 0;
        for (int i = 0; i < VOCAB; i++)
            better += logits[i] > logits[ev->top[k].id] || (logits[i] == logits[ev->top[k].id] && i < ev->top[k].id);
        assert_int_equal(better, k);
        assert_true(fabs((double)ev->top[k].logprob - ((double)logits[ev->top[k].id] - log_sum)) < 1e-4);
    }
}

static void logprobs_are_raw(void **state) {
    (void)state;
    rows *all = malloc(sizeof *all);
    weft_error e = {0};
    weft_engine *g = open_subject(0, 2, 64, 1);
    for (int top = 0; top <= WEFT_MAX_LOGPROBS; top += 5) {
        weft_request_desc d = request_of(ALL, true);
        d.n_stop = d.n_stop_ids = 0;
        d.top_logprobs = top;
        record *r = answer_of(g, d);
        assert_int_equal(weft_score(g, r->a.ids, r->a.n, keep_row, all, &e), WEFT_OK);
        d.depth = 4;
        d.drafts = said(r);
        d.n_drafts = LENGTH;
        d.user = r;
        weft_request *q = submit(g, &d);
        const weft_event *ev;
        size_t n;
        int at = 0;
        while (weft_run_step(g, &ev, &n))
            for (size_t i = 0; i < n; i++)
                if (ev[i].kind == WEFT_EVENT_TOKEN) check_logprobs(&ev[i], all->logits[PROMPT - 1 + at++], top);
        assert_int_equal(at, LENGTH);
        weft_request_close(q);
        drop_record(r);
    }
    free(all);
    weft_engine_close(g);
}

/* ---- seeds --------------------------------------------------------------------------------------------------------------- */

static void seeds_and_choices(void **state) {
    (void)state;
    weft_engine *g = open_subject(0, 2, 64, 1);
    weft_request_desc d = request_of(PLAIN, true);
    d.has_seed = false;
    d.seed = 42; /* means nothing without has_seed */
    uint64_t drawn[2];
    for (int i = 0; i < 2; i++) {
        record first = {0};
        weft_request_desc again = d;
        d.user = &first;
        weft_request *q = submit(g, &d);
        again.seed = drawn[i] = weft_request_seed(q);
        again.has_seed = true;
        run_noting(g);
        finish(q, &first.a, false);
        record *second = answer_of(g, again);
        same_ids(&first.a, &second->a);
        assert_true(drawn[i] < (uint64_t)1 << 53);
        weft_str_free(&first.log);
        weft_str_free(&first.text);
        drop_record(second);
    }
    assert_true(drawn[0] != drawn[1] && drawn[0] != 42);
    record *choices[4];
    d = request_of(PLAIN, true);
    for (uint32_t i = 0; i < 4; i++) {
        d.choice = i;
        choices[i] = answer_of(g, d);
        for (uint32_t k = 0; k < i; k++) assert_memory_not_equal(said(choices[i]), said(choices[k]), LENGTH * sizeof(int32_t));
    }
    for (int i = 0; i < 4; i++) drop_record(choices[i]);
    weft_engine_close(g);
}

/* ---- errors -------------------------------------------------------------------------------------------------------------- */

/* A state that turned into NaN ends its request, with an error that says so, and nobody else's. */
static void broken_logits_end_one_request(void **state) {
    (void)state;
    weft_engine *g = open_subject(0, 2, 64, 2);
    for (int kind = PLAIN; kind <= ALL; kind += ALL) {
        weft_request_desc d = request_of(kind, true), other = request_of(LOGPROBS, true);
        record *alone = answer_of(g, other), *broken = calloc(1, sizeof *broken), *mate = calloc(1, sizeof *mate);
        weft_error e;
        d.user = broken;
        d.depth = 2;
        other.user = mate;
        weft_request *q = submit(g, &d), *p = submit(g, &other);
        const weft_event *ev;
        size_t n, bytes = weft_slot_bytes(g->dev);
        assert_true(weft_run_step(g, &ev, &n));
        note(ev, n);
        float *slot = malloc(bytes);
        for (size_t i = 0; i < bytes / sizeof *slot; i++) slot[i] = NAN;
        assert_int_equal(weft_slot_io(g->dev, q->slot, slot, false, &e), WEFT_OK);
        free(slot);
        run_noting(g);
        assert_int_equal(broken->a.reason, WEFT_END_ERROR);
        assert_int_equal(broken->error.code, WEFT_ENUMERIC);
        assert_non_null(strstr(broken->error.text, "not finite"));
        finish(q, &broken->a, false);
        finish(p, &mate->a, true);
        assert_int_equal(n_said(broken), 1);
        same(alone, mate);
        drop_record(alone);
        drop_record(broken);
        drop_record(mate);
    }
    weft_engine_close(g);
}

static void nothing_permitted_is_an_error(void **state) {
    (void)state;
    static const int32_t one[] = {5}, two[] = {5, 6};
    for (int warm = 0; warm < 4; warm++) { /* 2, 3: truncated */
        weft_engine *g = open_subject(0, 2, 64, 1);
        weft_request_desc d = request_of(PLAIN, warm % 2);
        if (warm > 1) d.top_k = 10;
        d.allowed = one;
        d.n_allowed = 1;
        d.banned = two;
        d.n_banned = 2;
        record *r = answer_of(g, d);
        assert_int_equal(r->a.reason, WEFT_END_ERROR);
        assert_int_equal(r->error.code, WEFT_EINVAL);
        assert_non_null(strstr(r->error.text, "no token may come"));
        assert_int_equal(n_said(r), 0);
        drop_record(r);
        d.n_banned = 0; /* one is left: it comes again and again */
        r = answer_of(g, d);
        assert_int_equal(n_said(r), LENGTH);
        for (int i = 0; i < LENGTH; i++) assert_int_equal(said(r)[i], 5);
        drop_record(r);
        weft_engine_close(g);
    }
}

static void refused(weft_engine *g, weft_request_desc d, const char *says) {
    weft_request *r = NULL;
    weft_error e = {0};
    assert_int_equal(weft_submit(g, &d, &r, &e), WEFT_EINVAL);
    if (!strstr(e.text, says)) fail_msg("'%s' does not say '%s'", e.text, says);
    assert_int_equal(g->n_requests, 0);
}
#define REFUSED(says, ...)                                                                                                         \
    do {                                                                                                                           \
        weft_request_desc d = good;                                                                                                \
        __VA_ARGS__;                                                                                                               \
        refused(g, d, says);                                                                                                       \
    } while (0)

static void impossible_values_are_refused(void **state) {
    (void)state;
    weft_engine *g = open_subject(0, 1, 64, 1);
    weft_request_desc good = request_of(PLAIN, false);
    static const weft_logit_bias twice[] = {{3, 1}, {4, 1}, {3, 2}}, beyond[] = {{VOCAB, 1}}, nan[] = {{1, NAN}},
                                 inf[] = {{1, INFINITY}};
    static const int32_t bad[] = {3, VOCAB}, negative[] = {-1};
    static const char *const empty[] = {"a", ""}, *const broken[] = {"a\xff"};
    char *endless = calloc(1, WEFT_MAX_STOP_BYTES + 2);
    memset(endless, 'x', WEFT_MAX_STOP_BYTES + 1);
    const char *const too_long[] = {endless}, *many[WEFT_MAX_STOP + 1];
    for (int i = 0; i <= WEFT_MAX_STOP; i++) many[i] = "x";
    REFUSED("temperature", d.temperature = -1);
    REFUSED("temperature", d.temperature = 101);
    REFUSED("repetition penalty", d.repetition_penalty = -1);
    REFUSED("repetition penalty", d.repetition_penalty = NAN);
    REFUSED("presence penalty", d.presence_penalty = INFINITY);
    REFUSED("frequency penalty", d.frequency_penalty = -NAN);
    REFUSED("top_k", d.top_k = -1);
    REFUSED("top_p", d.top_p = -0.5f);
    REFUSED("top_p", d.top_p = NAN);
    REFUSED("min_p", d.min_p = 1.5f);
    REFUSED("min_tokens", d.min_tokens = LENGTH + 1);
    REFUSED("min_tokens", d.min_tokens = -1);
    REFUSED("top_logprobs", d.logprobs = true, d.top_logprobs = 21);
    REFUSED("top_logprobs", d.logprobs = true, d.top_logprobs = -1);
    REFUSED("top_logprobs without logprobs", d.top_logprobs = 1);
    REFUSED("top_logprobs", d.prompt_logprobs = true, d.top_logprobs = 21);
    REFUSED("two logit biases", d.bias = twice, d.n_bias = 3);
    REFUSED("320", d.bias = beyond, d.n_bias = 1);
    REFUSED("not a number", d.bias = nan, d.n_bias = 1);
    REFUSED("not a number", d.bias = inf, d.n_bias = 1);
    REFUSED("banned", d.banned = bad, d.n_banned = 2);
    REFUSED("banned", d.banned = bad, d.n_banned = (size_t)-1);
    REFUSED("logit biases", d.bias = twice, d.n_bias = (size_t)-1);
    REFUSED("allowed", d.allowed = bad, d.n_allowed = 2);
    REFUSED("allowed", d.allowed = negative, d.n_allowed = 1);
    REFUSED("stop id", d.stop_ids = negative, d.n_stop_ids = 1);
    REFUSED("stop string 2 is empty", d.stop = empty, d.n_stop = 2);
    REFUSED("not UTF-8", d.stop = broken, d.n_stop = 1);
    REFUSED("longer than", d.stop = too_long, d.n_stop = 1);
    REFUSED("at most 64", d.stop = many, d.n_stop = WEFT_MAX_STOP + 1);
    free(endless);
    weft_engine_close(g);
    g = open_model("tests/data/golden/qwen3_5-dense", 1, 64, 1);
    REFUSED("tokenizer", d.stop = stops, d.n_stop = 1);
    weft_engine_close(g);
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

static void no_allocation_while_generating(void **state) {
    (void)state;
    weft_engine *g = open_subject(0, 2, 64, 2);
    for (int kind = 0; kind < KINDS; kind++) {
        weft_request *r[2];
        for (int i = 0; i < 2; i++) {
            weft_request_desc d = request_of(kind, true);
            d.depth = 3 * i;
            r[i] = submit(g, &d);
        }
        const weft_event *ev;
        size_t n;
        uint64_t before = weft_alloc_count();
        while (weft_run_step(g, &ev, &n)) {
        }
        assert_int_equal(weft_alloc_count(), before);
        for (int i = 0; i < 2; i++) weft_request_close(r[i]);
    }
    weft_engine_close(g);
}

static void out_of_memory_is_an_error(void **state) {
    (void)state;
    weft_engine *g = open_subject(0, 2, 64, 1);
    weft_request_desc d = request_of(ALL, true);
    weft_status s = WEFT_ENOMEM;
    for (uint64_t n = 1; s != WEFT_OK; n++) {
        weft_request *r = NULL;
        weft_error e = {0};
        weft_alloc_fail_at(n);
        s = weft_submit(g, &d, &r, &e);
        weft_alloc_fail_at(0);
        assert_true(s == WEFT_OK || s == WEFT_ENOMEM);
        if (n < 8) assert_int_equal(s, WEFT_ENOMEM);
        assert_int_equal(g->n_requests, s == WEFT_OK);
        weft_request_close(r);
    }
    weft_engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_changes_nothing),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(stop_strings_in_pieces),
        cmocka_unit_test(tokens_of_a_stop_string_are_no_answer),
        cmocka_unit_test(ends_inside_blocks),
        cmocka_unit_test(options_mean_what_they_say),
        cmocka_unit_test(logprobs_are_raw),
        cmocka_unit_test(seeds_and_choices),
        cmocka_unit_test(broken_logits_end_one_request),
        cmocka_unit_test(nothing_permitted_is_an_error),
        cmocka_unit_test(impossible_values_are_refused),
        cmocka_unit_test(no_allocation_while_generating),
        cmocka_unit_test(out_of_memory_is_an_error),
    };
    if (make_folders() != 0) return 1;
    make_lists();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    drop_folders();
    return failed;
}

/* bench.c: `weft bench`: how fast a model runs here, and how near that is to what the machine can do.
 *
 * A round measures everything once: the memory's speed, then at each depth the prefills, plain decoding, and passes that verify
 * drafts. Every number is the median over the rounds, a ratio the median of the rounds' own ratios, so that what is compared was
 * measured side by side.
 *
 * A context of so many tokens is declared, not computed (weft_place_skip): its keys, values and states are zero, which takes as
 * long to read as any other. Prompts are random ids from a fixed seed, other ones in each round, and the engine must say that it
 * computed each of their rows: a prompt that came from a cache would look fast. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bandwidth.h"
#include "base/clock.h"
#include "base/num.h"
#include "base/rng.h"
#include "cli/cli.h"
#include "cli/report.h"
#include "cli/series.h"
#include "engine/engine.h"

enum {
    LIST = 8, /* values in a list */
    MAX_ROUNDS = WEFT_SERIES,
    VERIFY = 8,      /* rows of the largest verify pass */
    DRAFTS = 4,      /* the deepest draft of the model's own head that is measured */
    SCALES = 16,     /* thread counts */
    MAX_PASSES = 64, /* of a measurement, unless the user says otherwise */
    MIN_PASSES = 4,
    DRAFT_TOKENS = 32, /* of an answer with drafts */
    PASSES_MS = 150,   /* as many as take this long */
    CHAT_ROOM = 256,   /* tokens that the prompt of the drafts may take */
};

typedef struct options {
    const char *draft, *model, *isa, *kv, *cache, *json, *depths_text, *tokens_text, *cells_text;
    int64_t threads, chunk, rounds, passes;
    bool precise, scaling;
    bool prefill, decode, verify, drafts; /* the cells */
    int depths[LIST], n_depths, tokens[LIST], n_tokens;
} options;

typedef struct at_depth {
    weft_series prefill[LIST];      /* tokens a second */
    weft_series decode, bytes;      /* tokens a second; bytes that a pass moves */
    weft_series share;              /* of the memory limit of the same round */
    weft_series one, ratio[VERIFY]; /* seconds of a pass of one row; a pass of 1 + i rows, in passes of one */
} at_depth;

typedef struct at_threads {
    int threads;
    weft_series memory, decode, prefill;
} at_threads;

typedef struct bench {
    const options *o;
    weft_engine *g;
    weft_info info;
    weft_pool *pool; /* as many threads as the engine has */
    weft_bandwidth *bandwidth;
    int round, context, passes;
    int32_t *prompt;         /* [context] */
    int32_t *answer, *wrong; /* [context]: what plain decoding gave; ids that it did not give */
    double load_seconds;
    size_t block; /* bytes over which the memory's speed is measured */

    weft_series memory, tiles; /* bytes a second; nanoseconds of weft_dev_probe() */
    at_depth depth[LIST];
    weft_series draft[DRAFTS + 1];
    double tokens_per_pass[DRAFTS + 1];
    at_threads scale[SCALES];
    int n_scales;
} bench;

/* ---- running ------------------------------------------------------------------------------------------------------------- */

/* What is being done, for a person who waits. */
static void progress(const bench *b, const char *what, int n, int depth) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kround %d of %lld: %s", b->round + 1, (long long)b->o->rounds, what);
    if (n) fprintf(stderr, " %d", n);
    if (depth >= 0) fprintf(stderr, ", depth %d", depth);
}
static void progress_end(void) {
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

typedef struct timing {
    double prefill, decode;       /* seconds; decode with drafting */
    uint64_t bytes, passes, rows; /* of decoding; rows: of all */
} timing;

/* Runs a request until it has d->max_tokens tokens, or `tokens`; skip: tokens of its prompt that are declared done. */
static weft_status drive(const bench *b, const weft_request_desc *d, int skip, int tokens, timing *t, weft_error *e) {
    weft_request *r = NULL;
    weft_stats from, to;
    size_t n = d->n_prompt;
    WEFT_TRY(weft_submit(b->g, d, &r, e));
    weft_status s = weft_place_skip(r, skip, e);
    weft_engine_stats(b->g, &from);
    while (s == WEFT_OK && n < d->n_prompt + (size_t)tokens) {
        const weft_event *events;
        size_t n_events;
        if (!weft_run_step(b->g, &events, &n_events)) s = weft_fail(e, WEFT_EINVAL, "internal fault: a request ended early");
        for (size_t i = 0; i < n_events && s == WEFT_OK; i++)
            if (events[i].error) *e = *events[i].error, s = e->code;
        (void)weft_request_ids(r, &n);
    }
    weft_engine_stats(b->g, &to);
    if (s == WEFT_OK) memcpy(b->answer, weft_request_ids(r, &n) + d->n_prompt, (size_t)tokens * sizeof *b->answer);
    weft_request_close(r);
    if (s != WEFT_OK) return s;
    if (to.prompt_tokens - from.prompt_tokens != d->n_prompt - (size_t)skip)
        return weft_fail(e, WEFT_EINVAL, "internal fault: prompt rows were not computed");
    *t = (timing){.prefill = (double)(to.prefill_ns - from.prefill_ns) * 1e-9,
                  .decode = (double)(to.decode_ns - from.decode_ns + to.draft_ns - from.draft_ns) * 1e-9,
                  .bytes = to.decode_bytes - from.decode_bytes,
                  .passes = to.passes - from.passes,
                  .rows = to.rows - from.rows};
    return WEFT_OK;
}

static void new_prompt(bench *b) {
    for (int i = 0; i < b->context; i++) {
        uint32_t r[4];
        weft_philox(1, (uint32_t[]){(uint32_t)i, (uint32_t)b->round, 0, 0}, r);
        b->prompt[i] = (int32_t)(r[0] % (uint32_t)b->info.vocab);
    }
}

static weft_status prefill(const bench *b, int tokens, int depth, weft_series *rate, weft_error *e) {
    timing t;
    progress(b, "prefill of", tokens, depth);
    weft_request_desc d = {.prompt = b->prompt, .n_prompt = (size_t)depth + (size_t)tokens, .max_tokens = 1, .ignore_end = true};
    WEFT_TRY(drive(b, &d, depth, 1, &t, e));
    weft_series_add(rate, tokens / t.prefill);
    return WEFT_OK;
}

/* `passes` passes of one token and `drafts` drafts behind a context of `depth` tokens. All drafts are wrong, so that each pass
 * gives one token. The request could go on for as many tokens as drafts are deep: towards its end an answer takes fewer. */
static weft_status passes(const bench *b, int depth, int n, int drafts, timing *t, weft_error *e) {
    weft_request_desc d = {.prompt = b->prompt,
                           .n_prompt = (size_t)depth + 1,
                           .max_tokens = n + 1 + drafts,
                           .depth = drafts,
                           .ignore_end = true,
                           .drafts = b->wrong,
                           .n_drafts = drafts ? (size_t)(n + 1 + drafts) : 0};
    WEFT_TRY(drive(b, &d, depth, n + 1, t, e));
    if (t->rows != 1 + (uint64_t)n * (uint64_t)(1 + drafts))
        return weft_fail(e, WEFT_EINVAL, "internal fault: a verify pass had other rows than wanted");
    return WEFT_OK;
}

/* Random ids, as a model's experts are as many as the tokens differ; none is what plain decoding gave. */
static void new_drafts(const bench *b) {
    for (int i = 0; i < b->context; i++) {
        b->wrong[i] = b->prompt[b->context - 1 - i];
        if (i <= b->passes && b->wrong[i] == b->answer[i]) b->wrong[i] = (b->wrong[i] + 1) % b->info.vocab;
    }
}

static weft_status decode_and_verify(const bench *b, int depth, at_depth *at, weft_error *e) {
    timing t;
    progress(b, "decoding", 0, depth);
    WEFT_TRY(passes(b, depth, b->passes, 0, &t, e));
    double one = t.decode / b->passes;
    weft_series_add(&at->decode, 1 / one);
    weft_series_add(&at->bytes, (double)t.bytes / b->passes);
    weft_series_add(&at->share, (double)t.bytes / t.decode / b->memory.v[b->memory.n - 1]);
    weft_series_add(&at->one, one);
    weft_series_add(&at->ratio[0], 1);
    new_drafts(b);
    for (int i = 1; b->o->verify && i < VERIFY; i++) {
        progress(b, "verify pass of rows", i + 1, depth);
        WEFT_TRY(passes(b, depth, b->passes, i, &t, e));
        weft_series_add(&at->ratio[i], t.decode / b->passes / one);
    }
    return WEFT_OK;
}

/* Decoding as `weft run` does, with the model's own drafts: what it gains depends on the text. */
static weft_status drafts(bench *b, weft_error *e) {
    static const weft_chat_desc question = {
        .messages = "[{\"role\": \"user\", \"content\": \"Write a Python function that returns the larger of two numbers.\"}]"};
    int32_t *chat = NULL;
    size_t n = 1;
    weft_status s = WEFT_OK;
    if (weft_encode_chat(b->g, &question, &chat, &n, NULL) != WEFT_OK || n > CHAT_ROOM) n = 1; /* random ids then */
    for (int depth = 0; depth <= DRAFTS && s == WEFT_OK; depth++) {
        timing t;
        progress(b, "drafting, depth", depth, -1);
        weft_request_desc d = {
            .prompt = n > 1 ? chat : b->prompt, .n_prompt = n, .max_tokens = DRAFT_TOKENS + 1, .depth = depth, .ignore_end = true};
        s = drive(b, &d, 0, d.max_tokens, &t, e);
        if (s != WEFT_OK) break;
        weft_series_add(&b->draft[depth], DRAFT_TOKENS / t.decode);
        uint64_t prompt_passes = (n + (size_t)b->info.chunk - 1) / (size_t)b->info.chunk;
        b->tokens_per_pass[depth] = DRAFT_TOKENS / (double)(t.passes - prompt_passes);
    }
    weft_ids_free(chat);
    return s;
}

/* What the machine itself can do. */
static void machine(bench *b, weft_series *memory) {
    progress(b, "the memory", 0, -1);
    weft_series_add(memory, weft_bandwidth_measure(b->bandwidth));
    if (b->g && memory == &b->memory && weft_dev_probe(b->g->dev) > 0) weft_series_add(&b->tiles, weft_dev_probe(b->g->dev));
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

static void close_bench(bench *b) {
    weft_engine_close(b->g);
    weft_bandwidth_close(b->bandwidth);
    weft_pool_close(b->pool);
    b->g = NULL;
    b->bandwidth = NULL;
    b->pool = NULL;
}

static weft_status open_bench(bench *b, int threads, weft_error *e) {
    const options *o = b->o;
    weft_config c = {.model = o->model,
                     .draft = o->draft,
                     .threads = threads,
                     .isa = o->isa,
                     .kv = o->kv,
                     .precise = o->precise,
                     .context = b->context,
                     .chunk = (int)o->chunk,
                     .max_depth = VERIFY - 1,
                     .cache_dir = weft_cli_cache(o->cache)};
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[Kloading %s", o->model);
    uint64_t start = weft_now_ns();
    weft_status s = weft_engine_open(&b->g, &c, e);
    b->load_seconds = (double)(weft_now_ns() - start) * 1e-9;
    if (s == WEFT_ENOMEM) return weft_fail(e, s, "%s; here --depths and --tokens make the context", e->text);
    WEFT_TRY(s);
    weft_engine_benchmark(b->g);
    weft_engine_info(b->g, &b->info);
    WEFT_TRY(weft_pool_open(&b->pool, b->info.threads, e));
    WEFT_TRY(weft_bandwidth_open(&b->bandwidth, b->pool, 0, e));
    b->block = weft_bandwidth_bytes(b->bandwidth);
    return WEFT_OK;
}

/* Touches what will be used, and finds out how many passes a measurement has. */
static weft_status warm_up(bench *b, weft_error *e) {
    const options *o = b->o;
    weft_series unused = {.n = 0};
    timing t;
    int chunk = b->info.chunk < o->tokens[0] ? b->info.chunk : o->tokens[0];
    new_prompt(b);
    if (o->prefill) WEFT_TRY(prefill(b, chunk, 0, &unused, e));
    progress(b, "warming up", 0, -1);
    WEFT_TRY(passes(b, o->depths[0], MIN_PASSES - 1, 0, &t, e));
    WEFT_TRY(passes(b, o->depths[0], MIN_PASSES - 1, 0, &t, e));
    double fit = PASSES_MS * 1e-3 / (t.decode / (MIN_PASSES - 1));
    if (!b->passes)
        b->passes = o->passes ? (int)o->passes : fit > MAX_PASSES ? MAX_PASSES : fit > MIN_PASSES ? (int)fit : MIN_PASSES;
    return WEFT_OK;
}

static weft_status make_tables(bench *b, weft_error *e) {
    const options *o = b->o;
    int passes_room = (o->passes ? (int)o->passes : MAX_PASSES) + VERIFY + CHAT_ROOM, deepest = 0, longest = passes_room;
    for (int i = 0; i < o->n_depths; i++)
        if (o->depths[i] > deepest) deepest = o->depths[i];
    for (int i = 0; i < o->n_tokens && (o->prefill || o->scaling); i++)
        if (o->tokens[i] >= longest) longest = o->tokens[i] + 1;
    b->context = deepest + longest;
    b->prompt = weft_calloc((size_t)b->context, sizeof *b->prompt);
    b->answer = weft_calloc((size_t)b->context, sizeof *b->answer);
    b->wrong = weft_calloc((size_t)b->context, sizeof *b->wrong);
    return b->prompt && b->answer && b->wrong ? WEFT_OK : weft_fail_oom(e, "prompts");
}

/* ---- the rounds ---------------------------------------------------------------------------------------------------------- */

static weft_status run_round(bench *b, weft_error *e) {
    const options *o = b->o;
    new_prompt(b);
    machine(b, &b->memory);
    for (int i = 0; i < o->n_depths; i++) {
        for (int k = 0; k < o->n_tokens && o->prefill; k++)
            WEFT_TRY(prefill(b, o->tokens[k], o->depths[i], &b->depth[i].prefill[k], e));
        if (o->decode || o->verify) WEFT_TRY(decode_and_verify(b, o->depths[i], &b->depth[i], e));
    }
    return o->drafts && b->info.drafts ? drafts(b, e) : WEFT_OK;
}

/* Thread counts one after the other, as each needs an engine of its own: 1, 2, 3 .. n, or 1, 2, 4 .. n where there are many. */
static weft_status run_scaling(bench *b, int n, weft_error *e) {
    const options *o = b->o;
    for (int t = 1, last = 0; last<n; t = n> 8 ? 2 * t : t + 1) {
        at_threads *at = &b->scale[b->n_scales++];
        at->threads = last = t < n ? t : n;
        WEFT_TRY(open_bench(b, at->threads, e));
        b->round = 0;
        WEFT_TRY(warm_up(b, e));
        for (; b->round < o->rounds; b->round++) {
            timing time;
            new_prompt(b);
            machine(b, &at->memory);
            WEFT_TRY(prefill(b, o->tokens[0], o->depths[0], &at->prefill, e));
            progress(b, "decoding", 0, o->depths[0]);
            WEFT_TRY(passes(b, o->depths[0], b->passes, 0, &time, e));
            weft_series_add(&at->decode, b->passes / time.decode);
        }
        close_bench(b);
    }
    return WEFT_OK;
}

static weft_status run(bench *b, weft_error *e) {
    const options *o = b->o;
    WEFT_TRY(make_tables(b, e));
    WEFT_TRY(open_bench(b, (int)o->threads, e));
    WEFT_TRY(warm_up(b, e));
    for (; b->round < o->rounds; b->round++) WEFT_TRY(run_round(b, e));
    weft_info info = b->info; /* of the engine that the table is about */
    double load_seconds = b->load_seconds;
    close_bench(b);
    if (o->scaling) WEFT_TRY(run_scaling(b, info.threads, e));
    b->info = info;
    b->load_seconds = load_seconds;
    return WEFT_OK;
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static void print_range(const weft_series *s) {
    printf("   (%.1f .. %.1f)\n", weft_series_least(s), weft_series_most(s));
}

static void print_prefill(const bench *b) {
    const options *o = b->o;
    printf("\nprefill      depth    tokens/s   (slowest and fastest round)\n");
    for (int k = 0; k < o->n_tokens; k++)
        for (int i = 0; i < o->n_depths; i++) {
            const weft_series *s = &b->depth[i].prefill[k];
            printf("  %6d  %9d  %10.1f", o->tokens[k], o->depths[i], weft_series_median(s));
            print_range(s);
        }
}

static void print_decode(const bench *b) {
    const options *o = b->o;
    char bytes[16];
    bool cached = false;
    printf("\ndecode       depth    tokens/s   a pass moves   of the memory limit   (slowest and fastest round)\n");
    for (int i = 0; i < o->n_depths; i++) {
        const at_depth *at = &b->depth[i];
        double moved = weft_series_median(&at->bytes);
        cached = cached || moved < 2 * (double)weft_cache_bytes();
        printf("          %9d  %10.1f   %12s   %17.0f %%", o->depths[i], weft_series_median(&at->decode),
               weft_bytes_text((uint64_t)moved, bytes), 100 * weft_series_median(&at->share));
        print_range(&at->decode);
    }
    if (cached) printf("  (part of so little stays in the processor's caches: the memory alone does not limit it)\n");
}

static void print_verify(const bench *b) {
    const options *o = b->o;
    printf("\nverify, T(rows) / T(1)\n       depth   T(1), ms ");
    for (int j = 2; j <= VERIFY; j++) printf(" %5d", j);
    for (int i = 0; i < o->n_depths; i++) {
        printf("\n  %10d  %9.2f ", o->depths[i], 1e3 * weft_series_median(&b->depth[i].one));
        for (int j = 1; j < VERIFY; j++) printf(" %5.2f", weft_series_median(&b->depth[i].ratio[j]));
    }
    printf("\n");
}

static void print_drafts(const bench *b) {
    printf("\ndrafts of the MTP head, one short text\n       depth    tokens/s   tokens a pass\n");
    for (int i = 0; i <= DRAFTS; i++)
        printf("  %10d  %10.1f   %13.2f\n", i, weft_series_median(&b->draft[i]), b->tokens_per_pass[i]);
}

static void print_scaling(const bench *b) {
    const options *o = b->o;
    printf("\nthreads   decode, tokens/s   prefill of %d, tokens/s   memory, GB/s   (depth %d)\n", o->tokens[0], o->depths[0]);
    for (int i = 0; i < b->n_scales; i++) {
        const at_threads *at = &b->scale[i];
        printf("  %5d   %16.1f   %*.1f   %12.1f\n", at->threads, weft_series_median(&at->decode),
               23 + snprintf(NULL, 0, "%d", o->tokens[0]), weft_series_median(&at->prefill),
               1e-9 * weft_series_median(&at->memory));
    }
}

static void print_table(const bench *b) {
    const options *o = b->o;
    char block[16];
    printf("%s\n", o->model);
    printf("kernels %s%s, keys and values in %s, %d thread%s, chunks of %d, %lld round%s of %d passes, loaded in %.2f s\n",
           b->info.isa, o->precise ? ", precise" : "", b->info.kv, b->info.threads, b->info.threads == 1 ? "" : "s", b->info.chunk,
           (long long)o->rounds, o->rounds == 1 ? "" : "s", b->passes, b->load_seconds);
    printf("memory limit: reads at %.1f GB/s (%.1f .. %.1f, over %s)\n", 1e-9 * weft_series_median(&b->memory),
           1e-9 * weft_series_least(&b->memory), 1e-9 * weft_series_most(&b->memory), weft_bytes_text(b->block, block));
    if (b->tiles.n)
        printf("tiles: %.0f ns for 4 loads and 4 products (%.0f .. %.0f); 24 in the fast state, about 100 in the slow one\n",
               weft_series_median(&b->tiles), weft_series_least(&b->tiles), weft_series_most(&b->tiles));
    if (o->prefill) print_prefill(b);
    if (o->decode) print_decode(b);
    if (o->verify) print_verify(b);
    if (b->draft[0].n) print_drafts(b);
    if (b->n_scales) print_scaling(b);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void put(struct json_object *o, const char *key, double v) {
    json_object_object_add(o, key, weft_cli_json_number(v));
}
static void put_int(struct json_object *o, const char *key, int64_t v) {
    json_object_object_add(o, key, json_object_new_int64(v));
}
/* The median as `key`, the slowest and the fastest round as "range". */
static void put_series(struct json_object *o, const char *key, const weft_series *s) {
    struct json_object *range = json_object_new_array();
    put(o, key, weft_series_median(s));
    json_object_array_add(range, weft_cli_json_number(weft_series_least(s)));
    json_object_array_add(range, weft_cli_json_number(weft_series_most(s)));
    json_object_object_add(o, "range", range);
}
static struct json_object *list(struct json_object *o, const char *key) {
    struct json_object *l = json_object_new_array();
    json_object_object_add(o, key, l);
    return l;
}
static struct json_object *item(struct json_object *list) {
    struct json_object *o = json_object_new_object();
    json_object_array_add(list, o);
    return o;
}

static void put_ratios(struct json_object *l, const at_depth *at) {
    for (int i = 0; i < VERIFY; i++) json_object_array_add(l, weft_cli_json_number(weft_series_median(&at->ratio[i])));
}

static void put_depths(const bench *b, struct json_object *root) {
    const options *o = b->o;
    struct json_object *x, *prefills = list(root, "prefill"), *decodes = list(root, "decode");
    for (int k = 0; k < o->n_tokens && o->prefill; k++)
        for (int i = 0; i < o->n_depths; i++) {
            x = item(prefills);
            put_int(x, "tokens", o->tokens[k]);
            put_int(x, "depth", o->depths[i]);
            put_series(x, "tok_s", &b->depth[i].prefill[k]);
        }
    for (int i = 0; i < o->n_depths && o->decode; i++) {
        x = item(decodes);
        put_int(x, "depth", o->depths[i]);
        put_series(x, "tok_s", &b->depth[i].decode);
        put(x, "bandwidth_share", weft_series_median(&b->depth[i].share));
        put(x, "bytes", weft_series_median(&b->depth[i].bytes));
    }
    struct json_object *first = list(root, "verify_cost"), *all = list(root, "verify_cost_by_depth");
    if (o->verify) put_ratios(first, &b->depth[0]);
    for (int i = 0; i < o->n_depths && o->verify; i++) {
        x = item(all);
        put_int(x, "depth", o->depths[i]);
        put_ratios(list(x, "ratios"), &b->depth[i]);
    }
}

static struct json_object *to_json(const bench *b) {
    const options *o = b->o;
    struct json_object *x, *root = json_object_new_object();
    json_object_object_add(root, "model", json_object_new_string(o->model));
    json_object_object_add(root, "version", json_object_new_string(WEFT_VERSION));
    json_object_object_add(root, "isa", json_object_new_string(b->info.isa));
    json_object_object_add(root, "kv", json_object_new_string(b->info.kv));
    json_object_object_add(root, "precise", json_object_new_boolean(o->precise));
    put_int(root, "threads", b->info.threads);
    put_int(root, "processors", weft_cpu_count());
    put_int(root, "chunk", b->info.chunk);
    put_int(root, "rounds", o->rounds);
    put_int(root, "passes", b->passes);
    put(root, "load_s", b->load_seconds);
    put(root, "memory_gbps", 1e-9 * weft_series_median(&b->memory));
    put_int(root, "memory_block", (int64_t)b->block);
    if (b->tiles.n) put(root, "tiles_ns", weft_series_median(&b->tiles));
    put_depths(b, root);
    struct json_object *drafted = list(root, "drafts");
    for (int i = 0; i <= DRAFTS && b->draft[0].n; i++) {
        x = item(drafted);
        put_int(x, "depth", i);
        put_series(x, "tok_s", &b->draft[i]);
        put(x, "tokens_per_pass", b->tokens_per_pass[i]);
    }
    struct json_object *scaling = o->scaling ? list(root, "scaling") : NULL;
    for (int i = 0; i < b->n_scales; i++) {
        x = item(scaling);
        put_int(x, "threads", b->scale[i].threads);
        put(x, "decode_tok_s", weft_series_median(&b->scale[i].decode));
        put(x, "prefill_tok_s", weft_series_median(&b->scale[i].prefill));
        put(x, "memory_gbps", 1e-9 * weft_series_median(&b->scale[i].memory));
    }
    return root;
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

/* Calls take() with each word between commas. */
static weft_status each(const char *text, const char *option, weft_status (*take)(options *o, const char *word, weft_error *e),
                        options *o, weft_error *e) {
    char word[32];
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        if (n >= sizeof word) return weft_fail(e, WEFT_EINVAL, "--%s: '%.*s' is too long", option, (int)n, p);
        memcpy(word, p, n);
        word[n] = 0;
        if (take(o, word, e) != WEFT_OK) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "--%s", option);
            return weft_fail_in(e, prefix);
        }
        p += n;
        if (!*p) return WEFT_OK;
    }
}

static weft_status take_number(int *list, int *n, const char *word, int64_t lo, int64_t hi, weft_error *e) {
    int64_t v;
    if (!weft_parse_i64(word, lo, hi, &v))
        return weft_fail(e, WEFT_EINVAL, "'%s' is not a whole number from %lld to %lld", word, (long long)lo, (long long)hi);
    if (*n == LIST) return weft_fail(e, WEFT_EINVAL, "a list has at most %d numbers", LIST);
    list[(*n)++] = (int)v;
    return WEFT_OK;
}
static weft_status take_depth(options *o, const char *word, weft_error *e) {
    return take_number(o->depths, &o->n_depths, word, 0, 1 << 22, e);
}
static weft_status take_tokens(options *o, const char *word, weft_error *e) {
    return take_number(o->tokens, &o->n_tokens, word, 1, 1 << 20, e);
}
static weft_status take_cell(options *o, const char *word, weft_error *e) {
    const struct {
        const char *name;
        bool *cell;
    } all[] = {{"prefill", &o->prefill}, {"decode", &o->decode}, {"verify", &o->verify}, {"drafts", &o->drafts}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(word, all[i].name) == 0) {
            *all[i].cell = true;
            return WEFT_OK;
        }
    return weft_fail(e, WEFT_EINVAL, "'%s' is not one of prefill, decode, verify, drafts", word);
}

static int measure(const options *o) {
    weft_error e = {0};
    bench *b = weft_calloc(1, sizeof *b);
    if (!b) return weft_cli_fail("out of memory");
    b->o = o;
    weft_status s = o->json && strcmp(o->json, "-") ? weft_cli_check_out(o->json, &e) : WEFT_OK;
    if (s == WEFT_OK) s = run(b, &e);
    progress_end();
    if (s == WEFT_OK && !(o->json && strcmp(o->json, "-") == 0)) print_table(b);
    if (s == WEFT_OK && o->json) s = weft_cli_write_json(to_json(b), o->json, &e);
    close_bench(b);
    weft_free(b->prompt);
    weft_free(b->answer);
    weft_free(b->wrong);
    weft_free(b);
    return s == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail("%s", e.text);
}

int weft_cmd_bench(int argc, char **argv) {
    options o = {
        .rounds = 3, .depths_text = "0,4096,16384", .tokens_text = "512,2048", .cells_text = "prefill,decode,verify,drafts"};
    const weft_option table[] = {
        WEFT_TEXT("cells", "LIST", &o.cells_text, NULL, NULL,
                  "What to measure: prefill, decode (greedy, no drafts), verify (passes of 1 to 8 rows), drafts (decoding with the "
                  "model's own MTP head)."),
        WEFT_TEXT("depths", "LIST", &o.depths_text, NULL, NULL, "Tokens that are in the context already."),
        WEFT_TEXT("tokens", "LIST", &o.tokens_text, NULL, NULL, "Lengths of the prompts."),
        WEFT_FLAG("scaling", &o.scaling, "Also with 1, 2, .. threads, at the first depth and the first length."),
        WEFT_INTEGER("rounds", "N", &o.rounds, 1, MAX_ROUNDS, NULL, "Every number is the median of so many measurements."),
        WEFT_INTEGER("passes", "N", &o.passes, 0, 4096, "0: 0.15 s, 4 to 64", "Passes of a decode or verify measurement."),
        WEFT_HEADING("The engine"),
        WEFT_INTEGER("threads", "N", &o.threads, 0, 256, "0: all processors", "Worker threads."),
        WEFT_INTEGER("chunk", "N", &o.chunk, 0, 65536, "0: 256", "Prompt rows in a step."),
        WEFT_DRAFT_OPTION(&o.draft),
        WEFT_ISA_OPTION(&o.isa),
        WEFT_KV_OPTION(&o.kv),
        WEFT_PRECISE_OPTION(&o.precise),
        WEFT_CACHE_OPTION(&o.cache),
        WEFT_HEADING("Output"),
        WEFT_TEXT("json", "FILE", &o.json, NULL, NULL,
                  "Also write the numbers to FILE as JSON; -: to standard output, and no table."),
        WEFT_END,
    };
    const weft_command command = {
        .name = "bench",
        .positional = "[MODEL]",
        .least = 0,
        .most = 1,
        .summary =
            "Measures how fast a model runs on this machine, and how near decoding comes to the speed of its memory. Without "
            "MODEL the bundled model is measured.",
        .options = table,
        .notes = "Examples:\n"
                 "  weft bench ./my-model\n"
                 "  weft bench ./my-model --cells decode --depths 0,32768 --threads 4\n"
                 "  weft bench ./my-model --scaling --json result.json\n",
    };
    int code;
    weft_error e = {0};
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    weft_status s = each(o.cells_text, "cells", take_cell, &o, &e);
    if (s == WEFT_OK) s = each(o.depths_text, "depths", take_depth, &o, &e);
    if (s == WEFT_OK) s = each(o.tokens_text, "tokens", take_tokens, &o, &e);
    if (s != WEFT_OK) {
        weft_cli_fail("%s", e.text);
        return WEFT_EXIT_USAGE;
    }
    o.model = argc ? argv[0] : weft_cli_bundled_model();
    if (!o.model) return weft_cli_fail("the bundled model was not found; name a model folder: weft bench MODEL");
    return measure(&o);
}

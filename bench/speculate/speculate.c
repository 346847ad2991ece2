/* speculate.c: what drafting brings, measured: `make bench-speculate`.
 *
 *   speculate text    a small trained model on code and prose that it never saw, and on random ids
 *   speculate trace   the shapes of a large model with random weights, whose drafts are right as often as a trace says
 *   speculate edit    an answer that repeats most of its prompt: looked-up drafts beside the model's own
 *
 * One process, one engine, interleaved rounds: a round gives one piece of work to every way of drafting in turn, each round in
 * another order. Ratios are taken within a round, and the median over the rounds is what is reported, with the least and the most.
 * The first round of each is not counted. Nothing that `weft tune` kept takes part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/num.h"
#include "base/rng.h"
#include "cli/args.h"
#include "cli/pace.h"
#include "cli/series.h"
#include "text/tokenizer.h"

enum { WAYS = 16, FILES = 32, PROMPT = 256, RANDOM_PROMPT = 64 };

typedef struct options {
    const char *model, *tokenizer, *share, *before, *after;
    weft_texts code, prose;
    int64_t threads, rounds, tokens;
    double loss, temperature;
} options;

typedef struct way {
    char name[24];
    int depth;
    bool no_lookup;
    weft_series tok_s, to_plain, to_auto;
    weft_pace pace;
} way;

/* What a round is about: a prompt, and the answer where it is laid down, with how often drafts of it are right. */
typedef struct work {
    weft_ids prompt, answer;
    float share[WEFT_MAX_DEPTH];
    uint64_t seed;
} work;

typedef struct bench {
    const options *o;
    weft_engine *g;
    weft_info info;
    weft_tokenizer *tokenizer; /* of text; the model's own, or a smaller model's where it has none */
    float share[WEFT_MAX_DEPTH];
    way ways[WAYS];
    int n_ways;
    weft_pace_times times;
} bench;

/* ---- rounds -------------------------------------------------------------------------------------------------------------- */

static void add_way(bench *b, int depth, bool no_lookup, const char *name) {
    way *w = &b->ways[b->n_ways++];
    *w = (way){.depth = depth, .no_lookup = no_lookup};
    if (name)
        snprintf(w->name, sizeof w->name, "%s", name);
    else if (depth == WEFT_DEPTH_AUTO)
        snprintf(w->name, sizeof w->name, "auto");
    else
        snprintf(w->name, sizeof w->name, "%d", depth);
}

/* Depth 0 first, auto last. */
static void add_ways(bench *b, int deepest) {
    b->n_ways = 0;
    for (int depth = 0; depth <= deepest; depth++) add_way(b, depth, false, NULL);
    add_way(b, WEFT_DEPTH_AUTO, false, NULL);
}

static weft_status answer(bench *b, const work *k, way *w, double *seconds, weft_error *e) {
    weft_trace trace = {.answer = k->answer.v, .n = k->answer.n, .loss = (float)b->o->loss, .seed = k->seed};
    int tokens = k->answer.n ? (int)k->answer.n : (int)b->o->tokens;
    memcpy(trace.share, k->share, sizeof trace.share);
    weft_request_desc d = {.prompt = k->prompt.v,
                           .n_prompt = k->prompt.n,
                           .max_tokens = tokens,
                           .min_tokens = k->answer.n ? 0 : tokens,
                           .ignore_end = k->answer.n > 0,
                           .depth = w->depth,
                           .no_lookup = w->no_lookup,
                           .temperature = b->o->temperature,
                           .has_seed = true,
                           .seed = k->seed};
    return weft_pace_answer(b->g, &d, k->answer.n ? &trace : NULL, &w->pace, &b->times, seconds, e);
}

static void forget(bench *b) {
    for (int i = 0; i < b->n_ways; i++) {
        way *w = &b->ways[i];
        w->pace = (weft_pace){0};
        w->tok_s.n = w->to_plain.n = w->to_auto.n = 0;
    }
    weft_pace_times_clear(&b->times);
}

static weft_status run_round(bench *b, const work *k, int round, weft_error *e) {
    double seconds[WAYS];
    for (int j = 0; j < b->n_ways; j++) {
        int i = (j + round) % b->n_ways;
        uint64_t before = b->ways[i].pace.tokens;
        if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[Kround %d, depth %s", round, b->ways[i].name);
        WEFT_TRY(answer(b, k, &b->ways[i], &seconds[i], e));
        weft_series_add(&b->ways[i].tok_s, (double)(b->ways[i].pace.tokens - before) / seconds[i]);
    }
    for (int i = 0; i < b->n_ways; i++) {
        weft_series_add(&b->ways[i].to_plain, seconds[0] / seconds[i]);
        weft_series_add(&b->ways[i].to_auto, seconds[i] / seconds[b->n_ways - 1]);
    }
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (!round) forget(b);
    return WEFT_OK;
}

/* make() fills the work of a round. */
static weft_status run_rounds(bench *b, weft_status (*make)(bench *b, const void *what, int round, work *k, weft_error *e),
                              const void *what, weft_error *e) {
    weft_status s = WEFT_OK;
    forget(b);
    for (int round = 0; round <= b->o->rounds && s == WEFT_OK; round++) {
        work k = {.seed = (uint64_t)round};
        s = make(b, what, round, &k, e);
        if (s == WEFT_OK) s = run_round(b, &k, round, e);
        weft_vec_free(&k.prompt);
        weft_vec_free(&k.answer);
    }
    return s;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

static void print_ratio(const char *what, const weft_series *s) {
    printf("%s %.3f (%.3f .. %.3f)", what, weft_series_median(s), weft_series_least(s), weft_series_most(s));
}

static void print_ways(bench *b) {
    printf("depth              tokens/s   to depth 0               tokens/pass   right, by position\n");
    for (int i = 0; i < b->n_ways; i++) {
        const way *w = &b->ways[i];
        printf("%-18s %8.1f   %.3f (%.3f .. %.3f)   %11.2f  ", w->name, weft_series_median(&w->tok_s),
               weft_series_median(&w->to_plain), weft_series_least(&w->to_plain), weft_series_most(&w->to_plain),
               (double)w->pace.tokens / (double)w->pace.passes);
        for (int k = 0; k < WEFT_MAX_DEPTH && weft_pace_share(&w->pace, k) >= 0; k++)
            printf(" %3.0f", 100 * weft_pace_share(&w->pace, k));
        printf("\n");
    }
}

/* The last way is auto, the first plain decoding; between them fixed depths. */
static void print_auto(const bench *b) {
    int best = 0;
    for (int i = 1; i < b->n_ways - 1; i++)
        if (weft_series_median(&b->ways[i].to_plain) > weft_series_median(&b->ways[best].to_plain)) best = i;
    char what[64];
    snprintf(what, sizeof what, "auto / best fixed depth (%s):", b->ways[best].name);
    print_ratio(what, &b->ways[best].to_auto);
    print_ratio("; auto / depth 0:", &b->ways[b->n_ways - 1].to_plain);
    printf("\n");
}

static void print_times(bench *b) {
    double one = weft_pace_pass_ns(&b->times, 1), link = weft_pace_link_ns(&b->times);
    if (one <= 0) return;
    printf("T(1) %.3f ms; T(rows) / T(1):", 1e-6 * one);
    for (int r = 2; r <= WEFT_TUNED_ROWS; r++)
        if (b->times.pass[r].n) printf(" T(%d) %.3f", r, weft_pace_pass_ns(&b->times, r) / one);
    if (link > 0) printf("; a link %.3f", link / one);
    printf("\n");
}

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

static weft_status encode_file(const bench *b, const char *path, weft_ids *ids, weft_error *e) {
    char *text;
    size_t n;
    WEFT_TRY(weft_file_read(path, 1 << 24, &text, &n, e));
    weft_text_part part = {.text = text, .n = n};
    weft_status s = weft_tokenizer_encode(b->tokenizer, &part, 1, ids, e);
    weft_free(text);
    return s;
}

/* Random ids, of the frequent ones where the drafter has a head for these: most of a text is of them, and --loss has the rest. */
static weft_status add_random(const bench *b, int round, uint32_t stream, size_t n, weft_ids *ids, weft_error *e) {
    int kinds;
    const int32_t *frequent = weft_model_draft_ids(b->g->model, &kinds);
    if (!frequent) kinds = b->info.vocab;
    for (size_t i = 0; i < n; i++) {
        uint32_t r[4];
        weft_philox(stream, (uint32_t[]){(uint32_t)i, (uint32_t)round, 0, 0}, r);
        int32_t id = (int32_t)(r[0] % (uint32_t)kinds);
        if (!weft_vec_push(ids, frequent ? frequent[id] : id)) return weft_fail_oom(e, "a prompt");
    }
    return WEFT_OK;
}

/* Another place of another file in each round. */
static weft_status passage(bench *b, const void *what, int round, work *k, weft_error *e) {
    const weft_texts *files = what;
    weft_ids all = {0};
    WEFT_TRY(encode_file(b, files->v[round % files->n], &all, e));
    size_t room = all.n > PROMPT ? all.n - PROMPT : 0, n = all.n - room;
    uint32_t r[4];
    weft_philox(3, (uint32_t[]){(uint32_t)round, 0, 0, 0}, r);
    size_t at = room ? r[0] % room : 0;
    weft_status s = weft_vec_reserve(&k->prompt, n) ? WEFT_OK : weft_fail_oom(e, "a prompt");
    if (s == WEFT_OK) memcpy(k->prompt.v, all.v + at, n * sizeof *all.v), k->prompt.n = n;
    weft_vec_free(&all);
    return s;
}

/* Where nothing can be foreseen: random ids behind random ids, and every draft is wrong. Left to itself, a small model would soon
 * repeat itself here, and its drafts would be right. */
static weft_status noise(bench *b, const void *what, int round, work *k, weft_error *e) {
    (void)what;
    WEFT_TRY(add_random(b, round, 1, RANDOM_PROMPT, &k->prompt, e));
    return add_random(b, round, 2, (size_t)b->o->tokens, &k->answer, e);
}

static weft_status suite_text(bench *b, weft_error *e) {
    const struct {
        const char *name;
        weft_status (*make)(bench *b, const void *what, int round, work *k, weft_error *e);
        const weft_texts *files;
    } kinds[] = {{"code", passage, &b->o->code}, {"prose", passage, &b->o->prose}, {"random ids, laid down", noise, NULL}};
    for (int i = 0; i < 3; i++) {
        add_ways(b, WEFT_MAX_DEPTH);
        WEFT_TRY(run_rounds(b, kinds[i].make, kinds[i].files, e));
        printf("\n%s\n", kinds[i].name);
        print_ways(b);
        print_auto(b);
        print_times(b);
    }
    return WEFT_OK;
}

/* ---- trace --------------------------------------------------------------------------------------------------------------- */

static weft_status traced(bench *b, const void *what, int round, work *k, weft_error *e) {
    memcpy(k->share, b->share, sizeof k->share);
    return noise(b, what, round, k, e);
}

static void print_trace(const bench *b) {
    printf("drafts are right with probability");
    for (int i = 0; i < WEFT_MAX_DEPTH; i++) printf(" %.2f", (double)b->share[i]);
    printf(" by position, less %.1f %% for what a smaller head cannot say\n", 100 * b->o->loss);
}

static weft_status suite_trace(bench *b, weft_error *e) {
    add_ways(b, 4);
    WEFT_TRY(run_rounds(b, traced, NULL, e));
    print_trace(b);
    print_ways(b);
    print_auto(b);
    print_times(b);
    return WEFT_OK;
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* The model would not edit; so the answer is laid down: the file with one function changed, behind a prompt that holds the file. */
static weft_status edited(bench *b, const void *what, int round, work *k, weft_error *e) {
    (void)what, (void)round;
    memcpy(k->share, b->share, sizeof k->share);
    WEFT_TRY(encode_file(b, b->o->before, &k->prompt, e));
    return encode_file(b, b->o->after, &k->answer, e);
}

/* The file, and its beginning once more: a small model goes on copying. Each round stops somewhere else. */
static weft_status copied(bench *b, const void *what, int round, work *k, weft_error *e) {
    (void)what;
    WEFT_TRY(encode_file(b, b->o->before, &k->prompt, e));
    size_t n = k->prompt.n, again = n / 4 + (size_t)round % 9 * (n / 40);
    if (!weft_vec_reserve(&k->prompt, n + again)) return weft_fail_oom(e, "a prompt");
    memcpy(k->prompt.v + n, k->prompt.v, again * sizeof *k->prompt.v);
    k->prompt.n = n + again;
    return WEFT_OK;
}

static weft_status suite_edit(bench *b, weft_error *e) {
    bool own = b->info.has_tokenizer;
    b->n_ways = 0;
    add_way(b, 0, true, NULL);
    add_way(b, 4, true, "4, model alone");
    add_way(b, 4, false, "4, with lookup");
    add_way(b, WEFT_DEPTH_AUTO, true, "auto, model alone");
    add_way(b, WEFT_DEPTH_AUTO, false, "auto, with lookup");
    WEFT_TRY(run_rounds(b, own ? copied : edited, NULL, e));
    if (own)
        printf("the model copies %s\n", b->o->before);
    else
        print_trace(b);
    print_ways(b);
    print_ratio("with lookup / model alone, auto:", &b->ways[3].to_auto);
    printf("\n");
    print_times(b);
    return WEFT_OK;
}

/* ---- the program --------------------------------------------------------------------------------------------------------- */

/* "0.85,0.72": the last one holds for all deeper ones. */
static weft_status read_shares(bench *b, weft_error *e) {
    const char *p = b->o->share;
    for (int i = 0; i < WEFT_MAX_DEPTH; i++) {
        char word[32];
        double v;
        size_t n = strcspn(p, ",");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), p);
        if (!weft_parse_f64(word, 0, 1, &v)) return weft_fail(e, WEFT_EINVAL, "--share: '%s' is no probability", word);
        b->share[i] = (float)v;
        if (p[n]) p += n + 1;
    }
    return WEFT_OK;
}

static weft_status open_bench(bench *b, weft_error *e) {
    const options *o = b->o;
    weft_str path = {0};
    weft_config c = {.model = o->model, .threads = (int)o->threads, .context = 4096, .max_depth = WEFT_MAX_DEPTH, .cache_dir = ""};
    WEFT_TRY(read_shares(b, e));
    WEFT_TRY(weft_engine_open(&b->g, &c, e));
    weft_engine_info(b->g, &b->info);
    weft_engine_benchmark(b->g);
    bool ok = weft_str_addf(&path, "%s/tokenizer.json", b->info.has_tokenizer ? o->model : o->tokenizer);
    weft_status s = ok ? weft_tokenizer_open(&b->tokenizer, path.p, e) : weft_fail_oom(e, "a path");
    weft_str_free(&path);
    printf("%s: kernels %s, %d threads, keys and values in %s; %lld rounds\n", o->model, b->info.isa, b->info.threads, b->info.kv,
           (long long)o->rounds);
    return s;
}

static int fail(const char *text, int code) {
    fprintf(stderr, "speculate: %s\n", text);
    return code;
}

static int run(const options *o, weft_status (*suite)(bench *b, weft_error *e)) {
    weft_error e = {0};
    bench *b = weft_calloc(1, sizeof *b);
    if (!b) return fail("out of memory", 1);
    b->o = o;
    weft_status s = open_bench(b, &e);
    if (s == WEFT_OK) s = suite(b, &e);
    weft_pace_times_free(&b->times);
    weft_tokenizer_close(b->tokenizer);
    weft_engine_close(b->g);
    weft_free(b);
    return s == WEFT_OK ? 0 : fail(e.text, 1);
}

int main(int argc, char **argv) {
    options o = {.model = "models/mini",
                 .tokenizer = "models/mini",
                 .share = "0.85,0.72,0.55,0.5",
                 .loss = 0.03,
                 .before = "bench/speculate/edit/before.py",
                 .after = "bench/speculate/edit/after.py",
                 .rounds = 9,
                 .tokens = 96};
    const weft_option table[] = {
        WEFT_TEXT("model", "FOLDER", &o.model, NULL, NULL, "The model."),
        WEFT_TEXT("tokenizer", "FOLDER", &o.tokenizer, NULL, NULL, "The model whose tokens are taken where this one has none."),
        WEFT_TEXTS("code", "FILE", &o.code, "text: code that the model never saw. May be repeated."),
        WEFT_TEXTS("prose", "FILE", &o.prose, "text: prose that it never saw. May be repeated."),
        WEFT_TEXT("share", "P,P,..", &o.share, NULL, NULL, "trace, edit: how often drafts are right, those before them being so."),
        WEFT_NUMBER("loss", "P", &o.loss, 0, 1, NULL, "trace, edit: part of these that is wrong all the same."),
        WEFT_NUMBER("temperature", "T", &o.temperature, 0, 100, NULL, "Of choosing tokens."),
        WEFT_TEXT("before", "FILE", &o.before, NULL, NULL, "edit: the file."),
        WEFT_TEXT("after", "FILE", &o.after, NULL, NULL, "edit: what it becomes."),
        WEFT_INTEGER("rounds", "N", &o.rounds, 1, WEFT_SERIES, NULL, "Rounds that count."),
        WEFT_INTEGER("tokens", "N", &o.tokens, 8, 2048, NULL, "Length of an answer."),
        WEFT_INTEGER("threads", "N", &o.threads, 0, 256, NULL, "0: all processors."),
        WEFT_END,
    };
    const weft_command command = {.name = "speculate",
                                  .positional = "text|trace|edit",
                                  .least = 1,
                                  .most = 1,
                                  .summary = "Measures what drafting brings.",
                                  .options = table};
    static const struct {
        const char *name;
        weft_status (*run)(bench *b, weft_error *e);
    } suites[] = {{"text", suite_text}, {"trace", suite_trace}, {"edit", suite_edit}};
    weft_error e;
    bool help;
    if (weft_args_parse(&command, &argc, argv, &help, &e) != WEFT_OK) return fail(e.text, 2);
    if (help) {
        weft_str text = {0};
        if (weft_args_help(&command, 80, &text)) fputs(weft_str_z(&text), stdout);
        weft_str_free(&text);
        return 0;
    }
    static const weft_texts code = {{"src/engine/draft.c", "src/engine/step.c", "src/cli/run.c", "tests/harness.py",
                                     "src/base/cpus.c"},
                                    5},
                            prose = {{"docs/ARCHITECTURE.md", "docs/SPEED.md", "README.md"}, 3};
    if (!o.code.n) o.code = code;
    if (!o.prose.n) o.prose = prose;
    for (int i = 0; i < 3; i++)
        if (strcmp(argv[0], suites[i].name) == 0) return run(&o, suites[i].run);
    return fail("text, trace or edit?", 2);
}

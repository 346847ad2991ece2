/* bench_rows.c: what a row costs beside others: prefill against single rows, verify passes of 1..9 rows, decoding at depth 0..4.
 *
 *   bench_rows [--model DIR] [--rounds N] [--rows N] [--tokens N] [--threads N] [--isa NAME] [--json FILE]
 *
 * Every number is a median over rounds; a round measures everything once, so that what is compared was measured side by side, in
 * one process, on one machine. Prompts are made of seeded random ids and nothing is cached between requests. Without --threads and
 * --isa it runs 1 and 2 threads on every vector width that the processor has. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/rng.h"
#include "weft.h"

/* What prefill must reach: one chunk against single rows. The output states it and marks what stays below. */
#define PREFILL_BAR 3

enum { MAX_ROUNDS = 31, MAX_VERIFY = WEFT_MAX_DEPTH + 1, DEPTHS = 5, CONTEXT = 4096 };

typedef struct options {
    const char *model, *json, *isa;
    int64_t rounds, rows, tokens, threads;
} options;

typedef struct samples {
    double v[MAX_ROUNDS];
    int n;
} samples;

typedef struct result { /* of one vector width and thread count; times in seconds */
    const char *isa;
    int threads;
    samples chunk_all, chunk_256, single; /* the whole prompt, as one chunk, in chunks of 256, row by row */
    samples prefill_gain;                 /* single / chunk_all, within a round */
    samples verify[MAX_VERIFY];           /* a pass of 1 + i rows with logits for each */
    samples verify_ratio[MAX_VERIFY];     /* to a pass of one row, within a round */
    samples rate[DEPTHS];                 /* tokens a second with drafts of the MTP head */
    double tokens_per_pass[DEPTHS];
} result;

static void die(const char *what, const weft_error *e) {
    fprintf(stderr, "bench_rows: %s%s%s\n", what, e ? ": " : "", e ? e->text : "");
    exit(1);
}

static void add(samples *s, double x) {
    s->v[s->n++] = x;
}
static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(samples *s) {
    qsort(s->v, (size_t)s->n, sizeof *s->v, ascending);
    return s->n ? (s->v[(s->n - 1) / 2] + s->v[s->n / 2]) / 2 : 0;
}

/* ---- running ------------------------------------------------------------------------------------------------------------- */

static weft_engine *open_engine(const options *o, const char *isa, int threads, int chunk) {
    weft_engine *g = NULL;
    weft_error e;
    weft_config c = {
        .model = o->model, .threads = threads, .isa = isa, .context = CONTEXT, .chunk = chunk, .max_depth = WEFT_MAX_DEPTH};
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) die(o->model, &e);
    return g;
}

static int32_t *random_prompt(const weft_engine *g, int n, uint32_t round) {
    weft_info info;
    weft_engine_info(g, &info);
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    if (!ids) die("no memory for a prompt", NULL);
    for (int i = 0; i < n; i++) {
        uint32_t r[4];
        weft_philox(1, (uint32_t[]){(uint32_t)i, round, 0, 0}, r);
        ids[i] = (int32_t)(r[0] % (uint32_t)info.vocab);
    }
    return ids;
}

/* Runs a request until it has `tokens` tokens, then closes it. *prefill: seconds of the passes that carried its prompt; *decode: of
 * the others and of drafting. */
static void run(weft_engine *g, const weft_request_desc *d, int tokens, double *prefill, double *decode, int32_t *generated,
                weft_stats *stats) {
    weft_request *r = NULL;
    weft_error e;
    weft_stats before, after;
    size_t n, all = d->n_prompt;
    weft_engine_stats(g, &before);
    if (weft_submit(g, d, &r, &e) != WEFT_OK) die("a request", &e);
    while (all < d->n_prompt + (size_t)tokens) {
        const weft_event *events;
        weft_run_step(g, &events, &n);
        for (size_t i = 0; i < n; i++)
            if (events[i].error) die("a step", events[i].error);
        (void)weft_request_ids(r, &all);
    }
    weft_engine_stats(g, &after);
    if (prefill) *prefill = (double)(after.prefill_ns - before.prefill_ns) * 1e-9;
    if (decode) *decode = (double)(after.decode_ns - before.decode_ns + after.draft_ns - before.draft_ns) * 1e-9;
    if (stats) weft_request_stats(r, stats);
    if (generated) memcpy(generated, weft_request_ids(r, &n) + d->n_prompt, (size_t)tokens * sizeof *generated);
    weft_request_close(r);
}

static double prefill_seconds(const options *o, const char *isa, int threads, int chunk, uint32_t round) {
    weft_engine *g = open_engine(o, isa, threads, chunk);
    int32_t *prompt = random_prompt(g, (int)o->rows, round);
    double seconds;
    weft_request_desc d = {.prompt = prompt, .n_prompt = 64, .max_tokens = 1};
    run(g, &d, 1, NULL, NULL, NULL, NULL); /* touches all weights */
    d.n_prompt = (size_t)o->rows;
    run(g, &d, 1, &seconds, NULL, NULL, NULL);
    free(prompt);
    weft_engine_close(g);
    return seconds;
}

/* Verify passes: every draft is wrong, so that each pass gives one token whatever its rows. The request could go on for as many
 * tokens as the drafts are deep: towards its end an answer takes fewer. */
static void verify(const options *o, result *r, weft_engine *g, const int32_t *prompt, size_t n_prompt) {
    weft_info info;
    weft_engine_info(g, &info);
    int tokens = (int)o->tokens, n = tokens + MAX_VERIFY;
    int32_t *answer = calloc((size_t)n, sizeof *answer), *wrong = calloc((size_t)n, sizeof *wrong);
    if (!answer || !wrong) die("no memory for drafts", NULL);
    weft_request_desc d = {.prompt = prompt, .n_prompt = n_prompt, .max_tokens = n, .ignore_end = true};
    run(g, &d, n, NULL, NULL, answer, NULL);
    for (int i = 0; i < n; i++) wrong[i] = (answer[i] + 1) % info.vocab;
    d.drafts = wrong;
    d.n_drafts = (size_t)n;
    double one = 0;
    for (int rows = 1; rows <= MAX_VERIFY; rows++) {
        double seconds;
        weft_stats stats;
        d.depth = rows - 1;
        run(g, &d, tokens, NULL, &seconds, NULL, &stats);
        if (stats.rows != n_prompt + (uint64_t)(tokens - 1) * (uint64_t)rows) die("a verify pass had other rows than wanted", NULL);
        seconds /= tokens - 1;
        if (rows == 1) one = seconds;
        add(&r->verify[rows - 1], seconds);
        add(&r->verify_ratio[rows - 1], seconds / one);
    }
    free(answer);
    free(wrong);
}

static void decode(const options *o, result *r, weft_engine *g, const int32_t *prompt, size_t n_prompt) {
    for (int depth = 0; depth < DEPTHS; depth++) {
        double seconds;
        weft_stats s;
        weft_request_desc d = {
            .prompt = prompt, .n_prompt = n_prompt, .max_tokens = (int)o->tokens, .depth = depth, .ignore_end = true};
        run(g, &d, d.max_tokens, NULL, &seconds, NULL, &s);
        add(&r->rate[depth], (double)(o->tokens - 1) / seconds);
        r->tokens_per_pass[depth] = (double)(s.tokens - 1) / (double)(s.passes - 1);
    }
}

static void measure(const options *o, result *r, uint32_t round) {
    double all = prefill_seconds(o, r->isa, r->threads, (int)o->rows, round);
    double by_256 = prefill_seconds(o, r->isa, r->threads, 256, round);
    double single = prefill_seconds(o, r->isa, r->threads, 1, round);
    add(&r->chunk_all, all);
    add(&r->chunk_256, by_256);
    add(&r->single, single);
    add(&r->prefill_gain, single / all);

    weft_engine *g = open_engine(o, r->isa, r->threads, 256);
    weft_info info;
    weft_engine_info(g, &info);
    int32_t *prompt = NULL, *chat = NULL;
    size_t n_prompt = 256;
    weft_error e;
    static const char text[] = "Write a Python function that returns the larger of two numbers.";
    if (info.has_tokenizer && weft_encode_chat(g, text, sizeof text - 1, &chat, &n_prompt, &e) != WEFT_OK) die("the prompt", &e);
    if (!chat) prompt = random_prompt(g, (int)n_prompt, round);
    verify(o, r, g, chat ? chat : prompt, n_prompt);
    if (info.has_mtp) decode(o, r, g, chat ? chat : prompt, n_prompt);
    weft_ids_free(chat);
    free(prompt);
    weft_engine_close(g);
}

/* ---- reporting ----------------------------------------------------------------------------------------------------------- */

static void print_table(const options *o, result *r, int n) {
    printf("%d processors, model %s, %d rounds\n\n", weft_cpu_count(), o->model, (int)o->rounds);
    printf("prefill of %d rows (rows/s); the bar: one chunk at least %d times single rows\n", (int)o->rows, PREFILL_BAR);
    printf("%-14s %7s | %9s %9s %9s | %s\n", "kernels", "threads", "one chunk", "by 256", "by 1", "one chunk : by 1");
    for (int i = 0; i < n; i++) {
        double gain = median(&r[i].prefill_gain);
        printf("%-14s %7d | %9.0f %9.0f %9.0f | %.2f", r[i].isa, r[i].threads, (double)o->rows / median(&r[i].chunk_all),
               (double)o->rows / median(&r[i].chunk_256), (double)o->rows / median(&r[i].single), gain);
        if (gain < PREFILL_BAR) printf("  below %d", PREFILL_BAR);
        printf("\n");
    }
    printf("\nverify pass: ms of one row, then T(rows) / T(1)\n%-14s %7s | %6s |", "kernels", "threads", "T(1)");
    for (int j = 2; j <= MAX_VERIFY; j++) printf(" %5d", j);
    for (int i = 0; i < n; i++) {
        printf("\n%-14s %7d | %6.2f |", r[i].isa, r[i].threads, 1e3 * median(&r[i].verify[0]));
        for (int j = 1; j < MAX_VERIFY; j++) printf(" %5.2f", median(&r[i].verify_ratio[j]));
    }
    printf("\n\ndecoding, MTP drafts: tokens/s (tokens a pass)\n%-14s %7s |", "kernels", "threads");
    for (int j = 0; j < DEPTHS; j++) printf("      depth %d", j);
    for (int i = 0; i < n; i++) {
        printf("\n%-14s %7d |", r[i].isa, r[i].threads);
        for (int j = 0; j < DEPTHS && r[i].rate[j].n; j++) printf(" %6.0f (%.2f)", median(&r[i].rate[j]), r[i].tokens_per_pass[j]);
    }
    printf("\n");
}

static void json_list(FILE *f, const char *name, samples *s, int n) {
    fprintf(f, ", \"%s\": [", name);
    for (int i = 0; i < n && s[i].n; i++) fprintf(f, "%s%.6g", i ? ", " : "", median(&s[i]));
    fprintf(f, "]");
}

static void write_json(const options *o, result *r, int n) {
    FILE *f = fopen(o->json, "w");
    if (!f) {
        perror(o->json);
        exit(1);
    }
    fprintf(f, "{\"processors\": %d, \"rows\": %d, \"rounds\": %d, \"results\": [", weft_cpu_count(), (int)o->rows, (int)o->rounds);
    for (int i = 0; i < n; i++) {
        fprintf(f, "%s\n  {\"kernels\": \"%s\", \"threads\": %d, \"prefill_s\": %.6g, \"prefill_256_s\": %.6g, \"single_s\": %.6g",
                i ? "," : "", r[i].isa, r[i].threads, median(&r[i].chunk_all), median(&r[i].chunk_256), median(&r[i].single));
        fprintf(f, ", \"prefill_gain\": %.6g", median(&r[i].prefill_gain));
        json_list(f, "verify_s", r[i].verify, MAX_VERIFY);
        json_list(f, "verify_ratio", r[i].verify_ratio, MAX_VERIFY);
        json_list(f, "tokens_per_s", r[i].rate, DEPTHS);
        fprintf(f, ", \"tokens_per_pass\": [");
        for (int j = 0; j < DEPTHS && r[i].rate[j].n; j++) fprintf(f, "%s%.4f", j ? ", " : "", r[i].tokens_per_pass[j]);
        fprintf(f, "]}");
    }
    fprintf(f, "\n]}\n");
    if (fclose(f)) {
        perror(o->json);
        exit(1);
    }
}

static void parse(options *o, int argc, char **argv) {
    const struct {
        const char *name;
        const char **text;
        int64_t *number, least, most;
    } known[] = {{"--model", &o->model, NULL, 0, 0},
                 {"--json", &o->json, NULL, 0, 0},
                 {"--isa", &o->isa, NULL, 0, 0},
                 {"--rounds", NULL, &o->rounds, 1, MAX_ROUNDS},
                 {"--rows", NULL, &o->rows, 64, CONTEXT - 1},
                 {"--tokens", NULL, &o->tokens, 2, 1024},
                 {"--threads", NULL, &o->threads, 1, 256}};
    for (int i = 1; i < argc; i += 2) {
        bool good = false;
        for (size_t k = 0; k < sizeof known / sizeof *known && i + 1 < argc; k++) {
            if (strcmp(argv[i], known[k].name)) continue;
            good = known[k].text || weft_parse_i64(argv[i + 1], known[k].least, known[k].most, known[k].number);
            if (known[k].text) *known[k].text = argv[i + 1];
        }
        if (!good) {
            fprintf(stderr, "bench_rows: bad option %s\n", argv[i]);
            exit(2);
        }
    }
}

int main(int argc, char **argv) {
    options o = {.model = "models/mini", .rounds = 3, .rows = 2048, .tokens = 64};
    static result results[6];
    static const char *const isas[] = {"reference-128", "reference-256", "reference-512"};
    int n = 0;
    parse(&o, argc, argv);
    if (!weft_dir_exists(o.model)) {
        printf("bench_rows: no folder %s; give one with --model\n", o.model);
        return 0;
    }
    for (int i = 0; i < 3; i++)
        for (int threads = 1; threads <= 2; threads++) {
            weft_memory memory; /* planning says whether this processor has the kernels, and loads nothing */
            weft_config c = {.model = o.model, .isa = o.isa ? o.isa : isas[i], .max_depth = -1};
            if (weft_plan_memory(&c, &memory, NULL) == WEFT_ESUPPORT || (o.isa && i) || (o.threads && threads > 1)) continue;
            results[n++] = (result){.isa = c.isa, .threads = o.threads ? (int)o.threads : threads};
        }
    for (uint32_t round = 0; round < (uint32_t)o.rounds; round++)
        for (int i = 0; i < n; i++) measure(&o, &results[i], round);
    print_table(&o, results, n);
    if (o.json) write_json(&o, results, n);
    return 0;
}

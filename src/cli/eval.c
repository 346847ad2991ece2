/* eval.c: `weft eval`: how well a model predicts a text, and what the fast arithmetic changes of that.
 *
 *   ppl   perplexity: exp of the mean surprise, in nats, of each token but the first;
 *   kl    Kullback-Leibler divergence of the default arithmetic's predictions from those of --precise, position by position.
 *
 * The text is cut into windows. A window reads ids [s, s + N) with an empty context before them and predicts ids [s + 1, s + N +
 * 1): so every token but the text's first is predicted once, from 1 to N tokens before it. Sums run in double, probabilities come
 * from log-sum-exp over the whole vocabulary. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/report.h"
#include "engine/engine.h"

enum { DEPTH = 7, WINDOW = 512, KEEP_MB = 512 }; /* DEPTH: as in `weft logits`, scores eight rows at a time */
#define LARGEST_TEXT ((size_t)256 << 20)
#define LN2 0.69314718055994530942

typedef struct options {
    const char *model, *text, *ids, *isa, *kv, *cache;
    int64_t threads, context, tokens, keep;
    bool kl, precise, json;
} options;

/* The surprise at the text's tokens. */
typedef struct surprise {
    double sum, squares; /* nats */
    size_t n;
} surprise;

typedef struct side { /* one arithmetic */
    weft_config config;
    weft_engine *g; /* NULL: not open */
    surprise text;
} side;

typedef struct eval {
    const options *o;
    side fast, precise; /* ppl: fast alone, whichever arithmetic it is */
    weft_info info;
    int32_t *ids;
    size_t n_ids, window;
    uint64_t bytes; /* of the predicted tokens' text; 0: no tokenizer */

    float *kept;     /* logits of the fast side for positions [keep_from, keep_to) of the text */
    double *kept_ln; /* their log-sum-exp */
    size_t keep_from, keep_to;
    size_t start; /* of the window that is being scored */
    double *kl;   /* [n_ids - 1] */
    size_t n_kl, same;
} eval;

/* ---- arithmetic ---------------------------------------------------------------------------------------------------------- */

static size_t arg_max(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* ln of the sum of e^x; with y, also the divergence of y's softmax from x's, sum of p (ln p - ln q), y's log-sum-exp being ln_y.
 * The C library's exp, as these numbers are for people: ours takes 8 times as long. */
static double log_sum_exp(const float *x, const float *y, double ln_y, size_t n, double *divergence) {
    double top = x[arg_max(x, n)], sum = 0, apart = 0;
    for (size_t i = 0; i < n; i++) {
        double e = exp((double)x[i] - top);
        sum += e;
        if (y) apart += e * ((double)x[i] - (double)y[i]);
    }
    double ln = top + log(sum);
    if (y) *divergence = fmax(apart / sum - ln + ln_y, 0); /* below 0 by rounding alone */
    return ln;
}

static void learn(surprise *s, double nats) {
    s->sum += nats;
    s->squares += nats * nats;
    s->n++;
}
static double mean(const surprise *s) {
    return s->sum / (double)s->n;
}
static double perplexity(const surprise *s) {
    return exp(mean(s));
}
/* One standard error of the perplexity, were the tokens' surprises independent. */
static double perplexity_error(const surprise *s) {
    double n = (double)s->n, variance = s->squares / n - mean(s) * mean(s);
    return n > 1 && variance > 0 ? perplexity(s) * sqrt(variance / (n - 1)) : 0;
}

/* ---- scoring ------------------------------------------------------------------------------------------------------------- */

/* Is the row's turn now? Of a window that is read for its later rows the earlier ones have had theirs. */
static bool wanted(const eval *v, size_t at) {
    return at >= v->keep_from && at < v->keep_to;
}

static weft_status fast_row(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e) {
    (void)mtp_logits, (void)e;
    eval *v = ctx;
    size_t at = v->start + position, vocab = (size_t)v->info.vocab;
    if (!wanted(v, at)) return WEFT_OK;
    double ln = log_sum_exp(logits, NULL, 0, vocab, NULL);
    learn(&v->fast.text, ln - (double)logits[v->ids[at + 1]]);
    if (v->kept) {
        memcpy(v->kept + (at - v->keep_from) * vocab, logits, vocab * sizeof *logits);
        v->kept_ln[at - v->keep_from] = ln;
    }
    return WEFT_OK;
}

/* Behind fast_row() of the same position. */
static weft_status precise_row(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e) {
    (void)mtp_logits, (void)e;
    eval *v = ctx;
    size_t at = v->start + position, vocab = (size_t)v->info.vocab;
    if (!wanted(v, at)) return WEFT_OK;
    const float *kept = v->kept + (at - v->keep_from) * vocab;
    double ln = log_sum_exp(logits, kept, v->kept_ln[at - v->keep_from], vocab, &v->kl[v->n_kl++]);
    learn(&v->precise.text, ln - (double)logits[v->ids[at + 1]]);
    v->same += arg_max(logits, vocab) == arg_max(kept, vocab);
    return WEFT_OK;
}

static void progress(const eval *v, const side *s) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K%s %zu of %zu tokens", s == &v->precise ? "precise," : "scoring", s->text.n, v->n_ids - 1);
    if (s->text.n) fprintf(stderr, ", perplexity %.4f", perplexity(&s->text));
}
static void progress_end(void) {
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

/* Positions [keep_from, keep_to) of all windows that have some. */
static weft_status score(eval *v, side *s, weft_error *e) {
    if (!s->g) WEFT_TRY(weft_engine_open(&s->g, &s->config, e));
    for (v->start = v->keep_from / v->window * v->window; v->start < v->keep_to; v->start += v->window) {
        size_t end = v->start + v->window < v->keep_to ? v->start + v->window : v->keep_to;
        progress(v, s);
        WEFT_TRY(weft_score_trunk(s->g, v->ids + v->start, end - v->start, s == &v->fast ? fast_row : precise_row, v, e));
    }
    return WEFT_OK;
}

static void shut(side *s) {
    weft_engine_close(s->g);
    s->g = NULL;
}

/* Whether both arithmetics can be loaded at a time, beside `kept` bytes; if not they take turns. */
static bool both_fit(const eval *v, size_t kept) {
    weft_memory fast, precise;
    if (weft_plan_memory(&v->fast.config, &fast, NULL) != WEFT_OK ||
        weft_plan_memory(&v->precise.config, &precise, NULL) != WEFT_OK)
        return false; /* opening says why */
    return !fast.available || fast.total + precise.total + kept <= fast.available;
}

/* The text in stretches whose logits may be kept. A window that is longer than a stretch is read from its start for each of them.
 */
static weft_status compare(eval *v, weft_error *e) {
    size_t last = v->n_ids - 1, row = (size_t)v->info.vocab * sizeof(float), most = (size_t)v->o->keep * 1000000 / row;
    if (!most) most = 1;
    size_t stretch = most >= v->window ? most / v->window * v->window : most;
    if (stretch > last) stretch = last;
    bool together = both_fit(v, stretch * row);
    v->kept = weft_calloc(stretch, row);
    v->kept_ln = weft_calloc(stretch, sizeof *v->kept_ln);
    v->kl = weft_calloc(last, sizeof *v->kl);
    if (!v->kept || !v->kept_ln || !v->kl) return weft_fail_oom(e, "the logits of a window");
    for (size_t from = 0; from < last; from = v->keep_to) {
        v->keep_from = from;
        v->keep_to = last - from < stretch ? last : from + stretch;
        WEFT_TRY(score(v, &v->fast, e));
        if (!together) shut(&v->fast);
        WEFT_TRY(score(v, &v->precise, e));
        if (!together) shut(&v->precise);
    }
    return WEFT_OK;
}

/* ---- the text ------------------------------------------------------------------------------------------------------------ */

/* The ids, and the bytes of those that will be predicted. */
static weft_status read_text(eval *v, const char *text, size_t n, weft_error *e) {
    const options *o = v->o;
    weft_cli_ids file = {0};
    weft_status s = WEFT_OK;
    if (o->ids) {
        s = weft_cli_read_ids(&file, o->ids, e);
        v->ids = file.v;
        v->n_ids = file.n;
    } else if (!v->info.has_tokenizer) {
        s = weft_fail(e, WEFT_ESUPPORT, "%s has no tokenizer.json, so it reads no text: give token ids with --ids FILE", o->model);
    } else {
        s = weft_encode(v->fast.g, text, n, true, &v->ids, &v->n_ids, e);
    }
    WEFT_TRY(s);
    if (o->tokens && (size_t)o->tokens + 1 < v->n_ids) v->n_ids = (size_t)o->tokens + 1;
    if (v->n_ids < 2)
        return weft_fail(e, WEFT_EINVAL, "the text has %zu token%s; at least 2 are needed", v->n_ids, v->n_ids == 1 ? "" : "s");
    for (size_t i = 0; i < v->n_ids; i++) /* the engine looks at what a window reads, not at what it predicts */
        if (v->ids[i] < 0 || v->ids[i] >= v->info.vocab)
            return weft_fail(e, WEFT_EINVAL, "id %d at position %zu is outside the vocabulary of %d", v->ids[i], i, v->info.vocab);
    const weft_tokenizer *t = v->fast.g->tokenizer;
    for (size_t i = 1; t && i < v->n_ids; i++) {
        size_t bytes = 0;
        if (weft_tokenizer_valid(t, v->ids[i]) && !weft_tokenizer_special(t, v->ids[i]))
            (void)weft_tokenizer_bytes(t, v->ids[i], &bytes);
        v->bytes += bytes;
    }
    return WEFT_OK;
}

static weft_status run(eval *v, weft_error *e) {
    const options *o = v->o;
    char *text = NULL;
    size_t n = 0;
    weft_status s = o->ids ? WEFT_OK : weft_file_read(o->text, LARGEST_TEXT, &text, &n, e); /* before the model is loaded */
    v->window = (size_t)o->context;
    v->fast.config = (weft_config){.model = o->model,
                                   .threads = (int)o->threads,
                                   .isa = o->isa,
                                   .kv = o->kv,
                                   .precise = o->precise,
                                   .context = (int)o->context + 1,
                                   .max_depth = DEPTH,
                                   .cache_dir = weft_cli_cache(o->cache)};
    v->precise.config = v->fast.config;
    v->precise.config.precise = true;
    v->precise.config.kv = NULL;
    if (s == WEFT_OK) s = weft_engine_open(&v->fast.g, &v->fast.config, e);
    if (s == WEFT_OK) {
        weft_engine_info(v->fast.g, &v->info);
        s = read_text(v, text, n, e);
    }
    weft_free(text);
    if (s != WEFT_OK) return s;
    if (o->kl) return compare(v, e);
    v->keep_to = v->n_ids - 1;
    return score(v, &v->fast, e);
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct spread {
    double mean, median, p99, max;
} spread;

/* Sorts. */
static spread spread_of(double *v, size_t n) {
    spread s = {0};
    qsort(v, n, sizeof *v, ascending);
    for (size_t i = 0; i < n; i++) s.mean += v[i] / (double)n;
    s.median = (v[(n - 1) / 2] + v[n / 2]) / 2;
    s.p99 = v[(99 * n + 99) / 100 - 1]; /* the least that 99 % do not pass */
    s.max = v[n - 1];
    return s;
}

static double bits_per_byte(const eval *v) {
    return v->bytes ? v->fast.text.sum / LN2 / (double)v->bytes : NAN;
}
static double agreement(const eval *v) {
    return (double)v->same / (double)v->n_kl;
}
static double relative(const eval *v) {
    return perplexity(&v->fast.text) / perplexity(&v->precise.text) - 1;
}

static void print_text(const eval *v, const spread *kl) {
    const surprise *t = &v->fast.text;
    const options *o = v->o;
    printf("%s\nkernels %s%s, %zu tokens predicted in windows of %zu\n", o->model, v->info.isa, o->precise ? ", precise" : "", t->n,
           v->window);
    if (!o->kl) {
        printf("perplexity   %.4f +- %.4f\nbits         %.4f a token", perplexity(t), perplexity_error(t), mean(t) / LN2);
        if (v->bytes) printf(", %.4f a byte (%llu bytes)", bits_per_byte(v), (unsigned long long)v->bytes);
        printf("\n");
        return;
    }
    printf("divergence   mean %.3g, median %.3g, 99 %% %.3g, max %.3g nats\n", kl->mean, kl->median, kl->p99, kl->max);
    printf("same choice  %.3f %%\n", 100 * agreement(v));
    printf("perplexity   %.4f, precise %.4f: %+.4f %%\n", perplexity(t), perplexity(&v->precise.text), 100 * relative(v));
}

static void put(struct json_object *o, const char *key, double v) {
    json_object_object_add(o, key, weft_cli_json_number(v));
}

static struct json_object *to_json(const eval *v, const spread *kl) {
    struct json_object *o = json_object_new_object();
    json_object_object_add(o, "model", json_object_new_string(v->o->model));
    json_object_object_add(o, "isa", json_object_new_string(v->info.isa));
    json_object_object_add(o, "kv", json_object_new_string(v->info.kv));
    json_object_object_add(o, "threads", json_object_new_int(v->info.threads));
    json_object_object_add(o, "precise", json_object_new_boolean(v->o->precise));
    json_object_object_add(o, "context", json_object_new_int64((int64_t)v->window));
    json_object_object_add(o, "tokens", json_object_new_int64((int64_t)v->fast.text.n));
    json_object_object_add(o, "bytes", v->bytes ? json_object_new_int64((int64_t)v->bytes) : NULL);
    put(o, "perplexity", perplexity(&v->fast.text));
    put(o, "perplexity_error", perplexity_error(&v->fast.text));
    put(o, "bits_per_token", mean(&v->fast.text) / LN2);
    put(o, "bits_per_byte", bits_per_byte(v));
    if (!v->o->kl) return o;
    struct json_object *k = json_object_new_object();
    put(k, "mean", kl->mean);
    put(k, "median", kl->median);
    put(k, "p99", kl->p99);
    put(k, "max", kl->max);
    json_object_object_add(o, "kl", k);
    put(o, "agreement", agreement(v));
    put(o, "perplexity_precise", perplexity(&v->precise.text));
    put(o, "relative_difference", relative(v));
    return o;
}

static int evaluate(const options *o) {
    weft_error e = {0};
    eval v = {.o = o};
    weft_status s = run(&v, &e);
    progress_end();
    if (s == WEFT_OK) {
        spread kl = o->kl ? spread_of(v.kl, v.n_kl) : (spread){0};
        if (o->json)
            s = weft_cli_write_json(to_json(&v, &kl), "-", &e);
        else
            print_text(&v, &kl);
    }
    shut(&v.fast);
    shut(&v.precise);
    weft_free(v.ids);
    weft_free(v.kept);
    weft_free(v.kept_ln);
    weft_free(v.kl);
    return s == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail("%s", e.text);
}

int weft_cmd_eval(int argc, char **argv) {
    options o = {.context = WINDOW, .keep = KEEP_MB};
    const weft_option table[] = {
        WEFT_TEXT("ids", "FILE", &o.ids, NULL, NULL,
                  "Token ids in place of a text: numbers between blanks, or a safetensors file with a tensor 'input_ids'."),
        WEFT_INTEGER("context", "N", &o.context, 1, (1 << 22) - 1, NULL, "Tokens of a window."),
        WEFT_INTEGER("tokens", "N", &o.tokens, 0, 1 << 30, "0: all", "Stop after so many."),
        WEFT_INTEGER("keep", "MB", &o.keep, 1, 1 << 20, NULL, "kl: memory for the logits that are compared."),
        WEFT_KV_OPTION(&o.kv),
        WEFT_FLAG("precise", &o.precise, "ppl: float32 activations, keys and values, weights as stored."),
        WEFT_INTEGER("threads", "N", &o.threads, 0, 256, "0: all processors", "Worker threads. No result depends on it."),
        WEFT_ISA_OPTION(&o.isa),
        WEFT_CACHE_OPTION(&o.cache),
        WEFT_FLAG("json", &o.json, "The result as a JSON object."),
        WEFT_END,
    };
    const weft_command command = {
        .name = "eval",
        .positional = "ppl|kl MODEL [TEXT_FILE]",
        .least = 2,
        .most = 3,
        .summary =
            "ppl: the perplexity of a text, and bits a byte. kl: the Kullback-Leibler divergence of the default arithmetic's "
            "predictions from those of --precise, how often both choose the same token, and both perplexities. Control tokens "
            "in the text count as such.",
        .options = table,
        .notes = "Examples:\n"
                 "  weft eval ppl ./my-model book.txt\n"
                 "  weft eval kl ./my-model book.txt --tokens 4096 --json\n",
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    o.kl = strcmp(argv[0], "kl") == 0;
    o.model = argv[1];
    o.text = argc == 3 ? argv[2] : NULL;
    const char *mistake = !o.kl && strcmp(argv[0], "ppl") ? "the first argument is ppl or kl"
                          : !o.text && !o.ids             ? "a TEXT_FILE or --ids FILE is needed"
                          : o.text && o.ids               ? "a TEXT_FILE and --ids FILE are one too many"
                          : o.kl && o.precise             ? "kl compares with --precise already"
                                                          : NULL;
    if (mistake) {
        weft_cli_fail("eval: %s; see weft eval --help", mistake);
        return WEFT_EXIT_USAGE;
    }
    return evaluate(&o);
}

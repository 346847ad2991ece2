/* tune.c: `weft tune`: what drafting brings for a model on this machine, as a table that the engine begins with from then on.
 *
 * A round takes one prompt and answers it at every depth in turn, plain decoding included, each round in another order, so that
 * whatever the machine does besides hits all alike. A ratio is to plain decoding of the same round, and what is reported is the
 * median of the rounds' own ratios. The answers are the same tokens at every depth, so only the time differs.
 *
 * Times of passes by their rows, and of links of the draft chain, are those of these very runs, step by step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/num.h"
#include "cli/cli.h"
#include "cli/pace.h"
#include "cli/report.h"
#include "cli/series.h"
#include "cli/tune_prompts.h"

enum {
    DEPTHS = WEFT_TUNED_DEPTHS, /* 0 .. 8, and auto, which is the last */
    ROWS = WEFT_TUNED_ROWS,
    TEMPLATE = 1024,   /* tokens that a chat template may put around a prompt */
    BYTES_AS_IDS = 256 /* of a prompt, where there is no tokenizer */
};

typedef struct options {
    const char *draft, *model, *isa, *kv, *cache;
    int64_t threads, rounds, tokens;
    bool precise, retune, json;
} options;

typedef struct tune {
    const options *o;
    weft_engine *g;
    weft_info info;
    int32_t *prompts[WEFT_TUNE_PROMPTS];
    size_t n_prompt[WEFT_TUNE_PROMPTS];
    int round;

    weft_series tok_s[DEPTHS], ratio[DEPTHS];
    weft_pace pace[DEPTHS];
    weft_pace_times times;
} tune;

static int depth_of(int i) {
    return i == DEPTHS - 1 ? WEFT_DEPTH_AUTO : i;
}

/* ---- one answer ---------------------------------------------------------------------------------------------------------- */

/* Answers the prompt at the i-th depth; *seconds: of decoding, that is, of all tokens but the first. */
static weft_status answer(tune *t, int prompt, int i, double *seconds, weft_error *e) {
    int tokens = (int)t->o->tokens;
    weft_request_desc d = {.prompt = t->prompts[prompt],
                           .n_prompt = t->n_prompt[prompt],
                           .max_tokens = tokens,
                           .min_tokens = tokens, /* no early end */
                           .depth = depth_of(i)};
    return weft_pace_answer(t->g, &d, NULL, &t->pace[i], &t->times, seconds, e);
}

/* ---- the rounds ---------------------------------------------------------------------------------------------------------- */

/* For a person who waits. */
static void progress(const tune *t, int i) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kround %d of %lld (%s): ", t->round + 1, (long long)t->o->rounds,
            weft_tune_prompts[t->round % WEFT_TUNE_PROMPTS].kind);
    if (depth_of(i) == WEFT_DEPTH_AUTO)
        fputs("depth auto", stderr);
    else
        fprintf(stderr, "depth %d", i);
}
static void progress_end(void) {
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static weft_status run_round(tune *t, weft_error *e) {
    double seconds[DEPTHS];
    for (int k = 0; k < DEPTHS; k++) {
        int i = (k + t->round) % DEPTHS;
        progress(t, i);
        WEFT_TRY(answer(t, t->round % WEFT_TUNE_PROMPTS, i, &seconds[i], e));
    }
    for (int i = 0; i < DEPTHS; i++) {
        weft_series_add(&t->tok_s[i], ((double)t->o->tokens - 1) / seconds[i]);
        weft_series_add(&t->ratio[i], seconds[0] / seconds[i]);
    }
    return WEFT_OK;
}

/* Nothing that an older table said takes part. */
static weft_status measure(tune *t, weft_error *e) {
    double unused;
    weft_engine_benchmark(t->g);
    progress(t, 0);
    WEFT_TRY(answer(t, 0, 0, &unused, e));
    WEFT_TRY(answer(t, 0, WEFT_MAX_DEPTH, &unused, e));
    memset(t->pace, 0, sizeof t->pace);
    weft_pace_times_clear(&t->times);
    for (; t->round < t->o->rounds; t->round++) WEFT_TRY(run_round(t, e));
    return WEFT_OK;
}

/* A share of few drafts leans on what is assumed of unmeasured ones. */
static float share_of(weft_pace_tally all, float assumed) {
    const float weight = 2, least = 0.005f;
    if (!all.drafted) return 0;
    float share = ((float)all.right + weight * assumed) / ((float)all.drafted + weight);
    return share > least ? share : least;
}

static void add(weft_pace_tally *sum, const weft_pace_tally *t) {
    sum->drafted += t->drafted;
    sum->right += t->right;
}

/* Over the fixed depths, as auto drafts where it expects to be right. */
static void conclude_acceptance(const tune *t, weft_tuned *table) {
    const weft_acceptance unmeasured = {.share = {0}};
    const weft_sureness unsure = {.share = {0}};
    for (int f = 0; f < WEFT_LEARNERS; f++)
        for (int k = 0; k < WEFT_MAX_DEPTH; k++) {
            weft_pace_tally sum = {0};
            for (int i = 0; i <= WEFT_MAX_DEPTH; i++) add(&sum, &t->pace[i].from[f][k]);
            table->accepted[f].share[k] = share_of(sum, weft_acceptance_at(&unmeasured, k, (weft_drafter)f));
        }
    for (int c = 0; c < WEFT_SURENESS; c++) {
        weft_pace_tally sum = {0};
        for (int i = 0; i <= WEFT_MAX_DEPTH; i++) add(&sum, &t->pace[i].sure[c]);
        table->sureness.share[c] = share_of(sum, weft_sureness_at(&unsure, c));
    }
}

static void conclude(tune *t, weft_tuned *table) {
    *table = (weft_tuned){.key = t->g->tuned_for,
                          .version = WEFT_VERSION,
                          .date = (int64_t)time(NULL),
                          .rounds = (int)t->o->rounds,
                          .tokens = (int)t->o->tokens,
                          .link_ns = weft_pace_link_ns(&t->times),
                          .n_depths = DEPTHS};
    for (int r = 1; r <= ROWS; r++) table->pass_ns[r] = weft_pace_pass_ns(&t->times, r);
    weft_tuned_limit(table);
    for (int i = 0; i < DEPTHS; i++) {
        weft_tuned_depth *d = &table->depths[i];
        *d = (weft_tuned_depth){.depth = depth_of(i),
                                .tok_s = weft_series_median(&t->tok_s[i]),
                                .ratio = weft_series_median(&t->ratio[i]),
                                .least = weft_series_least(&t->ratio[i]),
                                .most = weft_series_most(&t->ratio[i]),
                                .tokens_per_pass = (double)t->pace[i].tokens / (double)t->pace[i].passes};
        for (int k = 0; k < WEFT_MAX_DEPTH; k++) d->accepted[k] = weft_pace_share(&t->pace[i], k);
    }
    conclude_acceptance(t, table);
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static void print_depths(const weft_tuned *t) {
    printf("\ndepth   tokens/s   to plain decoding   tokens/pass   drafts that were right, by position\n");
    for (int i = 0; i < t->n_depths; i++) {
        const weft_tuned_depth *d = &t->depths[i];
        if (d->depth == WEFT_DEPTH_AUTO)
            printf(" auto");
        else
            printf("%5d", d->depth);
        printf("   %8.1f   %.2f  %.2f .. %.2f   %11.2f   ", d->tok_s, d->ratio, d->least, d->most, d->tokens_per_pass);
        for (int k = 0; k < WEFT_MAX_DEPTH && d->accepted[k] >= 0; k++) printf("%4.0f %%", 100 * d->accepted[k]);
        printf("\n");
    }
}

static void print_costs(const weft_tuned *t) {
    printf("\nrows of a pass");
    for (int r = 1; r <= ROWS; r++) printf(" %6d", r);
    printf("\ntime, T(1) = 1");
    for (int r = 1; r <= ROWS; r++)
        if (t->pass_ns[r] > 0)
            printf(" %6.2f", t->pass_ns[r] / t->pass_ns[1]);
        else
            printf("      -");
    printf("\nT(1) is %.2f ms", 1e-6 * t->pass_ns[1]);
    if (t->link_ns > 0) printf(", a link of the draft chain %.2f ms, %.2f of it", 1e-6 * t->link_ns, t->link_ns / t->pass_ns[1]);
    printf("\n");
}

/* The fixed depth with the best ratio, among those that brought anything; NULL: no draft was ever right. */
static const weft_tuned_depth *best_depth(const weft_tuned *t) {
    const weft_tuned_depth *best = NULL;
    for (int i = 1; i <= WEFT_MAX_DEPTH; i++) {
        const weft_tuned_depth *d = &t->depths[i];
        if (d->tokens_per_pass > 1 && (!best || d->ratio > best->ratio)) best = d;
    }
    return best;
}

static bool add_verdict(const weft_tuned *t, const weft_tuned_depth *best, weft_str *out) {
    const double clear = 0.03; /* two speeds so near each other are the same */
    double rows = best ? t->pass_ns[best->depth + 1] / t->pass_ns[1] : 0;
    if (!best) return weft_str_addz(out, "plain decoding wins on this machine: no draft was right");
    if (best->ratio >= 1 + clear)
        return weft_str_addf(out, "depth %d is the best fixed one here: %.2f times the speed of plain decoding", best->depth,
                             best->ratio);
    if (best->ratio > 1 - clear)
        return weft_str_addf(out,
                             "plain decoding is as fast as any fixed depth here: the best of them, %d, gives %.2f times its speed",
                             best->depth, best->ratio);
    return weft_str_addf(out,
                         "plain decoding wins on this machine: the best fixed depth, %d, gives %.2f times its speed, as it brings "
                         "%.2f tokens a pass",
                         best->depth, best->ratio, best->tokens_per_pass) &&
           (!(rows > 0) ||
            weft_str_addf(out, " and a pass of %d rows takes %.2f times as long as one of one row", best->depth + 1, rows));
}

/* What follows from the numbers, for a person, in one sentence. */
static bool summary(const weft_tuned *t, weft_str *out) {
    const weft_tuned_depth *best = best_depth(t);
    bool ok =
        (t->key.drafter || weft_str_addz(out, "this checkpoint has no drafter of its own, so drafts are looked up in the text "
                                              "alone: ")) &&
        add_verdict(t, best, out);
    if (best && best->least < 1 && best->most > 1)
        ok = ok && weft_str_addf(out, " (in single rounds from %.2f to %.2f)", best->least, best->most);
    ok = ok && weft_str_addf(out, "; depth auto, the default, gives %.2f.", t->depths[DEPTHS - 1].ratio);
    if (ok) out->p[0] = (char)(out->p[0] - 'a' + 'A');
    return ok;
}

static void print_table(const tune *t, const weft_tuned *table, const char *words) {
    const weft_tuned_key *k = &table->key;
    char day[32] = "";
    time_t date = (time_t)table->date;
    struct tm utc;
    if (gmtime_r(&date, &utc)) strftime(day, sizeof day, "%Y-%m-%d %H:%M UTC", &utc);
    printf("%s\n%s, %d thread%s, kernels %s%s, keys and values in %s\n", t->o->model, k->processor, k->threads,
           k->threads == 1 ? "" : "s", k->isa, k->precise ? ", precise" : "", k->kv);
    printf("measured %s: %d round%s of %d tokens, on", day, table->rounds, table->rounds == 1 ? "" : "s", table->tokens);
    for (int i = 0; i < WEFT_TUNE_PROMPTS && i < table->rounds; i++) printf("%s %s", i ? "," : "", weft_tune_prompts[i].kind);
    printf("\n");
    print_depths(table);
    print_costs(table);
    printf("\n%s\n", words);
    if (!t->info.has_tokenizer)
        printf("(The checkpoint has no tokenizer: prompts were bytes of text as ids, so the times are real and the acceptance is "
               "not.)\n");
}

/* The file's object, and what came of it. */
static weft_status print_json(const tune *t, const weft_tuned *table, const char *words, bool fresh, bool kept, weft_error *e) {
    struct json_object *o = weft_tuned_json(table);
    if (!o) return weft_fail_oom(e, "the result");
    json_object_object_add(o, "fresh", json_object_new_boolean(fresh));
    json_object_object_add(o, "path", kept ? json_object_new_string(t->g->tuned_path.p) : NULL);
    json_object_object_add(o, "summary", json_object_new_string(words));
    return weft_cli_write_json(o, "-", e);
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

static weft_status open_tune(tune *t, weft_error *e) {
    const options *o = t->o;
    size_t longest = 0;
    for (int i = 0; i < WEFT_TUNE_PROMPTS; i++)
        if (strlen(weft_tune_prompts[i].text) > longest) longest = strlen(weft_tune_prompts[i].text);
    weft_config c = {.model = o->model,
                     .draft = o->draft,
                     .threads = (int)o->threads,
                     .isa = o->isa,
                     .kv = o->kv,
                     .precise = o->precise,
                     .context = (int)longest + TEMPLATE + (int)o->tokens,
                     .max_depth = WEFT_MAX_DEPTH,
                     .cache_dir = weft_cli_cache(o->cache)};
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[Kloading %s", o->model);
    weft_status s = weft_engine_open(&t->g, &c, e);
    if (s == WEFT_ENOMEM) return weft_fail(e, s, "%s; weft tune itself asks for no more than its prompts and --tokens", e->text);
    WEFT_TRY(s);
    weft_engine_info(t->g, &t->info);
    return WEFT_OK;
}

/* As a turn of a chat where the model has chats, else the text itself; its bytes as ids where there is no tokenizer. */
static weft_status encode(tune *t, int i, weft_error *e) {
    const char *text = weft_tune_prompts[i].text;
    size_t room = (size_t)t->info.context - (size_t)t->o->tokens, n = strlen(text);
    if (!t->info.has_tokenizer) {
        n = n < BYTES_AS_IDS ? n : BYTES_AS_IDS;
        t->prompts[i] = weft_calloc(n, sizeof **t->prompts);
        if (!t->prompts[i]) return weft_fail_oom(e, "prompts");
        for (t->n_prompt[i] = 0; t->n_prompt[i] < n; t->n_prompt[i]++)
            t->prompts[i][t->n_prompt[i]] = (unsigned char)text[t->n_prompt[i]] % t->info.vocab;
        return WEFT_OK;
    }
    struct json_object *messages = json_object_new_array(), *turn = json_object_new_object();
    json_object_object_add(turn, "role", json_object_new_string("user"));
    json_object_object_add(turn, "content", json_object_new_string(text));
    json_object_array_add(messages, turn);
    weft_chat_desc chat = {.messages = json_object_to_json_string_ext(messages, JSON_C_TO_STRING_PLAIN)};
    weft_status s = chat.messages ? weft_encode_chat(t->g, &chat, &t->prompts[i], &t->n_prompt[i], NULL) : WEFT_ENOMEM;
    json_object_put(messages);
    if (s == WEFT_OK && t->n_prompt[i] <= room) return WEFT_OK;
    weft_ids_free(t->prompts[i]);
    t->prompts[i] = NULL;
    return weft_encode(t->g, text, n, true, &t->prompts[i], &t->n_prompt[i], e);
}

/* For this machine and model; kept when that can be. */
static weft_status measure_and_keep(tune *t, weft_tuned *table, bool *kept, weft_error *e) {
    for (int i = 0; i < WEFT_TUNE_PROMPTS; i++) WEFT_TRY(encode(t, i, e));
    WEFT_TRY(measure(t, e));
    conclude(t, table);
    progress_end();
    weft_error why = {0};
    if (!t->g->tuned_path.n) return WEFT_OK;
    *kept = weft_tuned_write(table, t->g->tuned_path.p, &why) == WEFT_OK;
    if (!*kept)
        fprintf(stderr,
                "weft: cannot keep this table, so that the engine begins without it: %s (--cache DIR names another folder)\n",
                why.text);
    return WEFT_OK;
}

static weft_status run(tune *t, weft_tuned *table, weft_error *e) {
    weft_str words = {0};
    weft_error why = {0};
    WEFT_TRY(open_tune(t, e));
    const char *path = t->g->tuned_path.n ? t->g->tuned_path.p : NULL;
    bool known = path && !t->o->retune && weft_tuned_read(table, path, &t->g->tuned_for, &why) == WEFT_OK, kept = known;
    if (!known) WEFT_TRY(measure_and_keep(t, table, &kept, e));
    progress_end();
    weft_status s = summary(table, &words) ? WEFT_OK : weft_fail_oom(e, "the result");
    if (s == WEFT_OK && t->o->json) {
        s = print_json(t, table, words.p, !known, kept, e);
    } else if (s == WEFT_OK) {
        print_table(t, table, words.p);
        if (known)
            printf("This was measured before; --retune measures again.\n");
        else if (kept)
            printf("The engine begins with this from now on: %s\n", path);
    }
    weft_str_free(&words);
    return s;
}

static int open_and_run(const options *o) {
    weft_error e = {0};
    tune *t = weft_calloc(1, sizeof *t);
    weft_tuned *table = weft_calloc(1, sizeof *table);
    weft_status s = WEFT_ENOMEM;
    if (t && table) {
        t->o = o;
        s = run(t, table, &e);
        progress_end();
        for (int i = 0; i < WEFT_TUNE_PROMPTS; i++) weft_ids_free(t->prompts[i]);
        weft_pace_times_free(&t->times);
        weft_engine_close(t->g);
    }
    weft_free(t);
    weft_free(table);
    return s == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail("%s", e.text[0] ? e.text : "out of memory");
}

int weft_cmd_tune(int argc, char **argv) {
    options o = {.rounds = 8, .tokens = 48};
    const weft_option table[] = {
        WEFT_FLAG("retune", &o.retune, "Measure again, where a table is there already."),
        WEFT_INTEGER("rounds", "N", &o.rounds, 1, WEFT_SERIES, NULL,
                     "Answers at every depth; each round takes one of four prompts."),
        WEFT_INTEGER("tokens", "N", &o.tokens, 16, 4096, NULL,
                     "Length of an answer. Keep it short: end tokens are banned while measuring, so a long answer goes past its "
                     "end and repeats itself, which flatters drafts."),
        WEFT_HEADING("The engine (a table holds for these very choices)"),
        WEFT_INTEGER("threads", "N", &o.threads, 0, 256, "0: all processors", "Worker threads."),
        WEFT_DRAFT_OPTION(&o.draft),
        WEFT_ISA_OPTION(&o.isa),
        WEFT_KV_OPTION(&o.kv),
        WEFT_PRECISE_OPTION(&o.precise),
        WEFT_CACHE_OPTION(&o.cache),
        WEFT_HEADING("Output"),
        WEFT_FLAG("json", &o.json, "The table as one JSON object."),
        WEFT_END,
    };
    const weft_command command = {
        .name = "tune",
        .positional = "[MODEL]",
        .least = 0,
        .most = 1,
        .summary =
            "Measures what drafting ahead brings for a model on this machine: plain decoding, drafts of 1 to 8 tokens, and as "
            "many as the engine finds worth while (auto), in turn, on prompts of several kinds. The table is kept in your "
            "cache folder (weft/tuned), and the engine begins with it at the next start. Without MODEL the bundled model is "
            "measured. Keep the machine quiet meanwhile.",
        .options = table,
        .notes = "Examples:\n"
                 "  weft tune ./my-model\n"
                 "  weft tune ./my-model --retune --rounds 16\n",
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    o.model = argc ? argv[0] : weft_cli_bundled_model();
    if (!o.model) return weft_cli_fail("the bundled model was not found; name a model folder: weft tune MODEL");
    return open_and_run(&o);
}

/* run.c: `weft run`: a prompt in, an answer out, as it is made. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "base/vec.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/input.h"
#include "cli/sampling.h"
#include "format/model_dir.h"
#include "weft.h"

#define LARGEST_PROMPT ((size_t)64 << 20) /* bytes */

typedef struct options {
    const char *model, *prompt; /* prompt NULL: standard input */
    const char *system;
    weft_texts vars, stop;
    const char *draft, *isa, *kv, *cache, *drafts, *ids_out, *accept;
    int64_t max_tokens, min_tokens, depth, threads, chunk, context;
    weft_cli_sampling sampling;
    bool raw, stats, precise, ignore_end, no_lookup;
} options;

/* ---- interruption -------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}

/* The first Ctrl-C ends the answer, the second the program. A write that waits for a slow reader goes on: no text is lost. */
static void catch_interrupt(void) {
    struct sigaction a = {.sa_handler = on_interrupt, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}

/* ---- statistics ---------------------------------------------------------------------------------------------------------- */

static double rate(uint64_t n, uint64_t ns) {
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

/* What came of a request. */
typedef struct outcome {
    const char *ended; /* why the answer did; NULL: it failed, or was interrupted */
    bool drawn;        /* with this seed */
    uint64_t seed;
} outcome;

/* How often each drafter was right, at all depths together. */
static void print_drafters(const weft_stats *s) {
    static const char *const names[WEFT_DRAFTERS] = {"model", "lookup", "list"};
    for (int k = 0, some = 0; k < WEFT_DRAFTERS; k++) {
        uint64_t drafted = 0, accepted = 0;
        for (int i = 0; i < WEFT_MAX_DEPTH; i++) drafted += s->by[k].drafted[i], accepted += s->by[k].accepted[i];
        if (!drafted) continue;
        fprintf(stderr, "%s%s: %.0f %% of %llu", some++ ? ", " : "drafters  ", names[k], 100.0 * (double)accepted / (double)drafted,
                (unsigned long long)drafted);
    }
    if (s->drafted[0]) fputc('\n', stderr);
}

static void print_times(const weft_stats *s) {
    double all = (double)(s->draft_ns + s->verify_ns + s->sample_ns + s->host_ns) / 100;
    if (all > 0)
        fprintf(stderr, "time      drafts %.1f %%, trunk %.1f %%, choosing %.1f %%, the rest %.1f %%\n", (double)s->draft_ns / all,
                (double)s->verify_ns / all, (double)s->sample_ns / all, (double)s->host_ns / all);
}

static void print_stats(const weft_engine *g, uint64_t load_ns, const options *o, const outcome *out) {
    weft_stats s;
    weft_info info;
    weft_engine_stats(g, &s);
    weft_engine_info(g, &info);
    uint64_t decode_ns = s.decode_ns + s.draft_ns;
    fprintf(stderr, "\nkernels   %s, %d thread%s, loaded in %.2f s\n", info.isa, info.threads, info.threads == 1 ? "" : "s",
            (double)load_ns / 1e9);
    fprintf(stderr, "prompt    %llu tokens, %.1f tok/s\n", (unsigned long long)s.prompt_tokens,
            rate(s.prompt_tokens, s.prefill_ns));
    /* The first token comes out of the last prompt pass. */
    fprintf(stderr, "answer    %llu tokens, %.1f tok/s", (unsigned long long)s.tokens,
            rate(s.tokens ? s.tokens - 1 : 0, decode_ns));
    fprintf(stderr, " in %llu passes", (unsigned long long)s.passes);
    if (out->ended)
        fprintf(stderr, ", ended: %s\n", out->ended);
    else
        fputs(interrupted ? ", interrupted\n" : "\n", stderr);
    if (out->drawn) fprintf(stderr, "seed      %llu\n", (unsigned long long)out->seed);
    if (!info.drafts && o->depth) fputs("drafter   none: this checkpoint has no MTP head, and no --draft was given\n", stderr);
    if (s.drafted[0]) {
        fputs("drafts    accepted", stderr);
        for (int i = 0; i < WEFT_MAX_DEPTH && s.drafted[i]; i++)
            fprintf(stderr, "%s depth %d: %.0f %% of %llu", i ? "," : "", i + 1,
                    100.0 * (double)s.accepted[i] / (double)s.drafted[i], (unsigned long long)s.drafted[i]);
        fputc('\n', stderr);
    }
    print_drafters(&s);
    print_times(&s);
}

/* ---- the answer ---------------------------------------------------------------------------------------------------------- */

/* Writes what comes; false when nobody reads it any more. */
static bool write_text(const weft_event *ev, const options *o, bool *line_open) {
    if (o->ids_out) return true; /* the ids go to their file at the end */
    if (ev->n_text) {
        fwrite(ev->text, 1, ev->n_text, stdout);
        *line_open = ev->text[ev->n_text - 1] != '\n';
    }
    return !ferror(stdout);
}

/* Where a terminal shows both, what goes to standard error begins on a line of its own. */
static void end_line(bool *line_open) {
    if (*line_open && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO)) {
        fputc('\n', stdout);
        *line_open = false;
    }
    fflush(stdout);
}

static const char *reason_of(const weft_event *end) {
    return end->reason == WEFT_END_LENGTH ? "length" : end->stop >= 0 ? "stop string" : "end token";
}

/* Those of the prompt, from its second id on, before anything of the answer. */
static void print_prompt_logprobs(const weft_request *r, size_t *known) {
    size_t n;
    const int32_t *ids = weft_request_ids(r, &n);
    float logprob;
    const weft_logprob *top;
    for (int n_top; weft_request_prompt_logprob(r, *known, &logprob, &top, &n_top); ++*known)
        weft_cli_print_logprobs(ids[*known], logprob, top, n_top);
}

static weft_status generate(weft_engine *g, const options *o, weft_request *r, const char **ended, weft_error *e) {
    const weft_event *ev;
    size_t n, known = 1;
    bool line_open = false;
    weft_status s = WEFT_OK;
    while (!interrupted && weft_run_step(g, &ev, &n)) {
        print_prompt_logprobs(r, &known);
        for (size_t i = 0; i < n; i++) {
            if (!write_text(&ev[i], o, &line_open)) return weft_fail(e, WEFT_EIO, "cannot write the answer");
            if (ev[i].kind == WEFT_EVENT_TOKEN && o->sampling.logprobs >= 0) {
                end_line(&line_open);
                weft_cli_print_logprobs(ev[i].token, ev[i].logprob, ev[i].top, ev[i].n_top);
            }
            if (ev[i].kind != WEFT_EVENT_END) continue;
            if (ev[i].reason == WEFT_END_ERROR) {
                *e = *ev[i].error;
                s = e->code;
            } else {
                *ended = reason_of(&ev[i]);
            }
        }
        fflush(stdout);
    }
    if (line_open && (!o->raw || isatty(STDOUT_FILENO))) fputc('\n', stdout); /* raw into a pipe: the model's own bytes */
    fflush(stdout);
    if (s == WEFT_OK && o->ids_out) {
        size_t n_ids;
        const int32_t *ids = weft_request_ids(r, &n_ids);
        s = weft_cli_write_ids(o->ids_out, ids, n_ids, e);
    }
    return s;
}

/* The prompt of a chat that a question begins. */
static weft_status encode_chat(const weft_engine *g, const options *o, const char *text, size_t n, int32_t **ids, size_t *n_ids,
                               weft_error *e) {
    struct json_object *messages = NULL, *vars = NULL;
    weft_status s = weft_cli_vars(&o->vars, &vars, e);
    if (s == WEFT_OK) s = weft_cli_messages(o->system, text, n, &messages, e);
    if (s == WEFT_OK) {
        weft_chat_desc d = {.messages = json_object_to_json_string_ext(messages, JSON_C_TO_STRING_PLAIN),
                            .vars = vars ? json_object_to_json_string_ext(vars, JSON_C_TO_STRING_PLAIN) : NULL};
        s = d.messages && (d.vars || !vars) ? weft_encode_chat(g, &d, ids, n_ids, e) : weft_fail_oom(e, "a chat");
    }
    json_object_put(messages);
    json_object_put(vars);
    return s;
}

static weft_status run(weft_engine *g, const options *o, const char *text, size_t n, outcome *out, weft_error *e) {
    weft_cli_ids drafts = {0};
    int32_t *prompt = NULL;
    size_t n_prompt = 0;
    weft_info info;
    weft_engine_info(g, &info);
    weft_status s =
        o->raw ? weft_encode(g, text, n, true, &prompt, &n_prompt, e) : encode_chat(g, o, text, n, &prompt, &n_prompt, e);
    if (s == WEFT_OK && o->drafts) s = weft_cli_read_ids(&drafts, o->drafts, e);
    if (s == WEFT_OK && n_prompt >= (size_t)info.context)
        s = weft_fail(e, WEFT_EINVAL, "the prompt has %zu tokens and the context %d: give --context N, or a shorter prompt",
                      n_prompt, info.context);
    if (s == WEFT_OK) {
        int64_t room = info.context - (int64_t)n_prompt;
        weft_request *r = NULL;
        weft_logit_bias bias[WEFT_TEXTS_MOST];
        int max_tokens = (int)(o->max_tokens < room ? o->max_tokens : room);
        weft_request_desc d = {.prompt = prompt,
                               .n_prompt = n_prompt,
                               .max_tokens = max_tokens,
                               .min_tokens = o->min_tokens < max_tokens ? (int)o->min_tokens : max_tokens,
                               .stop = o->stop.v,
                               .n_stop = (size_t)o->stop.n,
                               .depth = (int)o->depth,
                               .accept = strcmp(o->accept, "rejection") ? WEFT_ACCEPT_COUPLED : WEFT_ACCEPT_REJECTION,
                               .no_lookup = o->no_lookup,
                               .ignore_end = o->ignore_end,
                               .drafts = o->drafts ? drafts.v : NULL,
                               .n_drafts = drafts.n};
        s = weft_cli_sampling_take(&o->sampling, o->model, bias, &d, e);
        if (s == WEFT_OK) s = weft_submit(g, &d, &r, e);
        out->drawn = d.temperature > 0;
        if (s == WEFT_OK) out->seed = weft_request_seed(r);
        if (s == WEFT_OK) s = generate(g, o, r, &out->ended, e);
        weft_request_close(r);
    }
    weft_ids_free(prompt);
    weft_vec_free(&drafts);
    return s;
}

/* A model is asked something: a chat's turn of blanks alone, or no byte at all, would be answered with noise. */
static bool is_empty(const options *o, const char *text, size_t n) {
    return o->raw ? n == 0 : strspn(text, " \t\r\n") == n;
}

/* Beyond the length it was trained for a model's answers get worse, which nothing else would tell. */
static void warn_of_context(const options *o) {
    weft_model_dir dir;
    if (!o->context || weft_model_dir_open(&dir, o->model, NULL) != WEFT_OK) return;
    if (o->context > dir.config.max_position)
        fprintf(stderr, "weft: this model was trained for %d tokens, a context of %lld is beyond it\n", dir.config.max_position,
                (long long)o->context);
    weft_model_dir_close(&dir);
}

static int open_and_run(const options *o) {
    weft_error e = {0};
    outcome out = {0};
    weft_str text = {0};
    weft_engine *g = NULL;
    weft_config config = {.model = o->model,
                          .draft = o->draft,
                          .threads = (int)o->threads,
                          .isa = o->isa,
                          .kv = o->kv,
                          .precise = o->precise,
                          .context = (int)o->context,
                          .chunk = (int)o->chunk,
                          .max_depth = o->depth == WEFT_DEPTH_AUTO ? WEFT_MAX_DEPTH : (int)o->depth,
                          .cache_dir = weft_cli_cache(o->cache)};
    weft_status s = o->prompt ? WEFT_OK : weft_cli_read_stdin(&text, LARGEST_PROMPT, "the prompt", &e);
    const char *prompt = o->prompt ? o->prompt : weft_str_z(&text);
    size_t n = o->prompt ? strlen(o->prompt) : text.n;
    if (s == WEFT_OK && is_empty(o, prompt, n)) s = weft_fail(&e, WEFT_EINVAL, "the prompt is empty");
    uint64_t start = weft_now_ns();
    if (s == WEFT_OK) s = weft_engine_open(&g, &config, &e);
    uint64_t load_ns = weft_now_ns() - start;
    if (s == WEFT_OK) {
        warn_of_context(o);
        catch_interrupt();
        s = run(g, o, prompt, n, &out, &e);
        if (o->stats || interrupted) print_stats(g, load_ns, o, &out);
    }
    weft_engine_close(g);
    weft_str_free(&text);
    return s == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail("%s", e.text);
}

int weft_cmd_run(int argc, char **argv) {
    options o = {.max_tokens = 512, .accept = "coupled", .sampling = WEFT_CLI_SAMPLING};
    weft_cli_sampling *choosing = &o.sampling;
    const char *depth = "auto";
    const weft_option table[] = {
        WEFT_FLAG("raw", &o.raw, "The prompt is the text itself, control tokens included, not a turn of a chat."),
        WEFT_TEXT("system", "TEXT", &o.system, NULL, NULL, "What the model is told before the question."),
        WEFT_VAR_OPTION(&o.vars),
        WEFT_INTEGER("max-tokens", "N", &o.max_tokens, 1, 1 << 24, NULL, "The answer's length at most."),
        WEFT_TEXTS("stop", "TEXT", &o.stop, "The answer ends before TEXT. May be repeated."),
        WEFT_FLAG("stats", &o.stats, "Speed, accepted drafts, the seed and why the answer ended, on standard error."),
        WEFT_HEADING("Choosing tokens"),
        WEFT_TEXT("sampling", "WHOSE", &choosing->from, "greedy|model", NULL,
                  "Where values come from that the options below do not give. greedy: the likeliest token each time; model: what "
                  "its publisher recommends in generation_config.json."),
        WEFT_NUMBER("temperature", "T", &choosing->temperature, 0, 100, "0",
                    "0: the likeliest token each time. Higher: more variety."),
        WEFT_INTEGER("top-k", "K", &choosing->top_k, 0, INT32_MAX, "0: all", "Only the K likeliest tokens."),
        WEFT_NUMBER("top-p", "P", &choosing->top_p, 0.0001, 1, "1: all",
                    "Only the likeliest tokens that together reach this probability."),
        WEFT_NUMBER("min-p", "P", &choosing->min_p, 0, 1, "0: all", "Only tokens at least P times as likely as the likeliest."),
        WEFT_INTEGER("seed", "S", &choosing->seed, 0, INT64_MAX, "random",
                     "The same seed and settings give the same answer, every time, but for --accept rejection (see there). "
                     "--stats tells it."),
        WEFT_NUMBER("repetition-penalty", "X", &choosing->repetition, 0.01, 100, "1: none",
                    "Logits of tokens in prompt and answer are divided by X, negative ones multiplied."),
        WEFT_NUMBER("presence-penalty", "X", &choosing->presence, -100, 100, NULL,
                    "Is subtracted from logits of tokens in the answer."),
        WEFT_NUMBER("frequency-penalty", "X", &choosing->frequency, -100, 100, NULL, "The same for each time that the token came."),
        WEFT_TEXTS("bias", "ID=X", &choosing->bias, "Is added to the logit of a token; -inf bans it. May be repeated."),
        WEFT_INTEGER("logprobs", "N", &choosing->logprobs, 0, WEFT_MAX_LOGPROBS, "none",
                     "Print each token's id and log-probability on standard error, with those of the N likeliest tokens."),
        WEFT_FLAG("prompt-logprobs", &choosing->prompt_logprobs, "Print them for the prompt, too, from its second token on."),
        WEFT_INTEGER("min-tokens", "N", &o.min_tokens, 0, 1 << 24, NULL, "The answer's length at least."),
        WEFT_HEADING("Speed (none of these changes the answer, but for --accept rejection)"),
        WEFT_TEXT("depth", "D|auto", &depth, NULL, "auto",
                  "Tokens that are drafted ahead, 0 to 8, by the model's MTP head and from what the text said before; auto: as "
                  "many as pay. The answer does not depend on it, but for --accept rejection."),
        WEFT_FLAG("no-lookup", &o.no_lookup, "Draft with the model alone."),
        WEFT_TEXT(
            "accept", "HOW", &o.accept, "coupled|rejection", NULL,
            "How drafts are judged at a temperature. coupled: by the token that is drawn without drafts, so that a seed gives "
            "one answer; rejection: by rejection sampling, which keeps a few more and gives another answer of the same "
            "distribution; with depth auto another answer each run: give --depth N to repeat one, and --cache none where "
            "the vocabulary is over 64k."),
        WEFT_INTEGER("threads", "N", &o.threads, 0, 256, "0: all processors", "Worker threads."),
        WEFT_INTEGER("chunk", "N", &o.chunk, 0, 65536, "0: 256", "Prompt rows in a step."),
        WEFT_HEADING("Memory and arithmetic"),
        WEFT_INTEGER("context", "N", &o.context, 0, 1 << 22, "0: the model's, at most 8192",
                     "Tokens that prompt and answer may take together."),
        WEFT_KV_OPTION(&o.kv),
        WEFT_PRECISE_OPTION(&o.precise),
        WEFT_DRAFT_OPTION(&o.draft),
        WEFT_ISA_OPTION(&o.isa),
        WEFT_CACHE_OPTION(&o.cache),
        WEFT_HEADING("Testing"),
        WEFT_TEXT("ids-out", "FILE", &o.ids_out, NULL, NULL,
                  "Write the ids of prompt and answer to FILE instead of printing text."),
        WEFT_TEXT("drafts", "FILE", &o.drafts, NULL, NULL,
                  "Take drafts from FILE (ids; the i-th for the i-th token) instead of a drafter."),
        WEFT_FLAG("ignore-end", &o.ignore_end, "Go on after an end token."),
        WEFT_END,
    };
    const weft_command command = {
        .name = "run",
        .positional = "[MODEL] [PROMPT]",
        .least = 0,
        .most = 2,
        .summary = "Answers a prompt. MODEL is a Hugging Face model folder; without one the bundled model answers. Without PROMPT "
                   "it is read from standard input. A single argument is MODEL if it is a folder, begins with /, ./ or ../, or "
                   "names a model's file (*.json, *.safetensors, *.gguf); any other is PROMPT. Ctrl-C ends the answer "
                   "and prints the statistics.",
        .options = table,
        .notes = "Examples:\n"
                 "  weft run \"Write a Python function that reverses a string.\"\n"
                 "  weft run ./my-model \"Why is the sky blue?\" --stats\n"
                 "  git diff | weft run ./my-model --max-tokens 200\n",
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    if (!strcmp(depth, "auto")) {
        o.depth = WEFT_DEPTH_AUTO;
    } else if (!weft_parse_i64(depth, 0, WEFT_MAX_DEPTH, &o.depth)) {
        weft_cli_fail("--depth: '%s' is neither auto nor a number from 0 to %d; see weft help run", depth, WEFT_MAX_DEPTH);
        return WEFT_EXIT_USAGE;
    }
    if (o.raw && (o.system || o.vars.n)) {
        weft_cli_fail("--raw takes the prompt as it is: --system and --var have no place in it");
        return WEFT_EXIT_USAGE;
    }
    if (o.min_tokens > o.max_tokens) {
        weft_cli_fail("--min-tokens %lld is over --max-tokens %lld", (long long)o.min_tokens, (long long)o.max_tokens);
        return WEFT_EXIT_USAGE;
    }
    if (argc == 2 || (argc == 1 && weft_cli_is_model(argv[0]))) o.model = argv[0];
    if (argc == 2 || (argc == 1 && !o.model)) o.prompt = argv[argc - 1];
    if (o.prompt && !o.model && weft_cli_resembles_model(o.prompt))
        fprintf(stderr, "weft: '%s' is no folder here, so it is taken as the prompt\n", o.prompt);
    if (!o.model) o.model = weft_cli_bundled_model();
    if (!o.model) return weft_cli_fail("the bundled model was not found; name a model folder: weft run MODEL PROMPT");
    return open_and_run(&o);
}

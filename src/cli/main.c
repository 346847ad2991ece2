/* main.c: the command `weft`: chooses the subcommand, and what holds for all of them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"run", weft_cmd_run, "answer a prompt"},
    {"inspect", weft_cmd_inspect, "what a model folder holds, and what it needs"},
    {"tokenize", weft_cmd_tokenize, "text to token ids and back"},
    {"template", weft_cmd_template, "messages as the prompt that a model gets"},
    {"logits", weft_cmd_logits, "the model's scores for every next token"},
    {"bench", weft_cmd_bench, "how fast a model runs on this machine"},
    {"tune", weft_cmd_tune, "what drafting brings here; the engine begins with it"},
    {"eval", weft_cmd_eval, "perplexity, and what fast arithmetic costs"},
    {"forge", weft_cmd_forge, "makes checkpoints of random weights, to measure speed"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0], COLUMNS = 80 };

int weft_cli_fail(const char *fmt, ...) {
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    weft_format_line(line, sizeof line, fmt, ap);
    va_end(ap);
    fflush(stdout); /* first what came first */
    fprintf(stderr, "weft: %s\n", line);
    return WEFT_EXIT_FAILURE;
}

const char *weft_cli_cache(const char *option) {
    return option && strcmp(option, "none") == 0 ? "" : option;
}

bool weft_cli_args(const weft_command *c, int *argc, char **argv, int *exit_code) {
    weft_error e;
    bool help;
    if (weft_args_parse(c, argc, argv, &help, &e) != WEFT_OK) {
        weft_cli_fail("%s", e.text);
        *exit_code = WEFT_EXIT_USAGE;
        return false;
    }
    if (!help) return true;
    weft_str text = {0};
    *exit_code = weft_args_help(c, COLUMNS, &text) ? WEFT_EXIT_OK : weft_cli_fail("out of memory");
    fputs(weft_str_z(&text), stdout);
    weft_str_free(&text);
    return false;
}

static void overview(void) {
    printf("weft %s: runs hybrid language models on this machine\n\nusage: weft COMMAND [options]\n\n", WEFT_VERSION);
    for (int i = 0; i < COMMANDS; i++) printf("  %-10s  %s\n", commands[i].name, commands[i].summary);
    printf("  %-10s  %s\n", "help", "this text; weft help COMMAND: its options");
    printf("  %-10s  %s\n", "version", "the version, as --version");
}

static int run_command(int argc, char **argv) {
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc, argv);
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *nearest = weft_args_nearest(argv[0], names, COMMANDS);
    if (nearest)
        weft_cli_fail("unknown command '%s'; did you mean '%s'?", argv[0], nearest);
    else
        weft_cli_fail("unknown command '%s'; see weft help", argv[0]);
    return WEFT_EXIT_USAGE;
}

static int dispatch(int argc, char **argv) {
    const char *first = argc > 1 ? argv[1] : "help";
    if (strcmp(first, "--version") == 0 || strcmp(first, "version") == 0) {
        printf("weft %s\n", WEFT_VERSION);
        return WEFT_EXIT_OK;
    }
    if (strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        if (argc > 2 && strcmp(argv[2], "help") != 0 && strcmp(argv[2], "version") != 0) {
            char help[] = "--help", *ask[] = {argv[2], help, NULL};
            return run_command(2, ask);
        }
        overview();
        return WEFT_EXIT_OK;
    }
    if (first[0] == '-') {
        weft_cli_fail("unknown option %s; a command comes first, see weft help", first);
        return WEFT_EXIT_USAGE;
    }
    return run_command(argc - 1, argv + 1);
}

/* What is only good to know is for people: a script's standard error stays empty when all is well. */
static void log_line(void *ctx, weft_log_level level, const char *line) {
    (void)ctx;
    if (level == WEFT_LOG_INFO && !isatty(STDERR_FILENO)) return;
    fprintf(stderr, "weft: %s\n", line);
}

int main(int argc, char **argv) {
    /* A program started without standard streams would get a model file as one of them. */
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return WEFT_EXIT_FAILURE;
    signal(SIGPIPE, SIG_DFL); /* `weft ... | head` ends quietly, also where the parent ignored the signal */
#ifdef SIGXFSZ
    signal(SIGXFSZ, SIG_IGN); /* a file over its size limit is a failed write with a message, not the end of the program */
#endif
    weft_log_to(log_line, NULL, WEFT_LOG_WARN);
    int code = dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == WEFT_EXIT_OK)
        code = weft_cli_fail("cannot write the output: %s", strerror(errno));
    return code;
}

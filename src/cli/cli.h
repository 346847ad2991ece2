/* cli.h: what the commands of `weft` share.
 *
 * Exit codes: 0 fine, 1 failure, 2 wrong usage. Results go to standard output, everything else to standard error, a failure as one
 * line "weft: text". */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H

#include "cli/args.h"

enum { WEFT_EXIT_OK = 0, WEFT_EXIT_FAILURE = 1, WEFT_EXIT_USAGE = 2 };

/* A command: argv[0] is its name, the return value the exit code. */
int weft_cmd_run(int argc, char **argv);
int weft_cmd_inspect(int argc, char **argv);
int weft_cmd_tokenize(int argc, char **argv);
int weft_cmd_template(int argc, char **argv);
int weft_cmd_logits(int argc, char **argv);
int weft_cmd_bench(int argc, char **argv);
int weft_cmd_tune(int argc, char **argv);
int weft_cmd_eval(int argc, char **argv);
int weft_cmd_forge(int argc, char **argv);

/* Parses the command's arguments (weft_args_parse). False: it is done already, help printed or a mistake reported, and returns
 * *exit_code. */
bool weft_cli_args(const weft_command *c, int *argc, char **argv, int *exit_code);

/* "weft: text" on standard error; returns WEFT_EXIT_FAILURE. */
int weft_cli_fail(const char *fmt, ...) WEFT_PRINTF(1, 2);

/* The option of every command that loads a model, and what it means for weft_config.cache_dir. */
#define WEFT_CACHE_OPTION(to)                                                                                                      \
    WEFT_TEXT("cache", "DIR|none", (to), NULL, "weft/packed, tuned and drafts in your cache folder",                               \
              "Where packed weights are kept, so that the next start is quick, what weft tune measured, and how often each "       \
              "token came.")
const char *weft_cli_cache(const char *option);

/* weft_config.isa and .precise. */
#define WEFT_ISA_OPTION(to)                                                                                                        \
    WEFT_TEXT("isa", "NAME", (to), "auto|reference|avx2|avx2-vnni|avx512-vnni|amx|neon", "auto",                                   \
              "Kernels to use; one that this processor lacks is an error.")
#define WEFT_PRECISE_OPTION(to)                                                                                                    \
    WEFT_FLAG("precise", (to), "Float32 activations, keys and values, weights as stored: slower, for comparison.")

/* weft_config.kv. */
#define WEFT_DRAFT_OPTION(to)                                                                                                      \
    WEFT_TEXT("draft", "FOLDER", (to), NULL, NULL, "A drafter that was made for the model, as Gemma 4 has them.")
#define WEFT_KV_OPTION(to)                                                                                                         \
    WEFT_TEXT("kv", "TYPE", (to), "bf16|f32|int8", "bf16; f32 with --precise",                                                     \
              "How keys and values are kept; int8 takes half the memory of bf16.")

/* The folder of the model that comes with weft: beside the installed command, beside the build folder, or below the current
 * folder. NULL when it is at none of these places. Valid until the next call. */
const char *weft_cli_bundled_model(void);

#endif

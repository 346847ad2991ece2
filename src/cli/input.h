/* input.h: what a command line's words mean, and standard input. */
#ifndef WEFT_CLI_INPUT_H
#define WEFT_CLI_INPUT_H

#include "base/error.h"
#include "base/str.h"

/* A lone argument is a model if it is a folder, or looks like the path of a model's file; otherwise it is text. */
bool weft_cli_is_model(const char *arg);
/* Text that may have been meant as a model: one word with a slash, or with a digit and a hyphen ("Qwen3.5-2B"). */
bool weft_cli_resembles_model(const char *text);

/* Appends standard input, at most `limit` bytes. A person at a terminal is asked for `what` ("the prompt"). */
weft_status weft_cli_read_stdin(weft_str *text, size_t limit, const char *what, weft_error *e);

#endif

/* input.c: see input.h. */
#include "cli/input.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

bool weft_cli_is_model(const char *arg) {
    if (weft_dir_exists(arg)) return true;
    if (strpbrk(arg, " \n\t")) return false;
    return weft_ends_with(arg, ".json") || weft_ends_with(arg, ".safetensors") || weft_ends_with(arg, ".gguf") ||
           weft_starts_with(arg, "/") || weft_starts_with(arg, "./") || weft_starts_with(arg, "../");
}

bool weft_cli_resembles_model(const char *text) {
    if (strpbrk(text, " \n\t")) return false;
    return strchr(text, '/') || (strchr(text, '-') && strpbrk(text, "0123456789"));
}

weft_status weft_cli_read_stdin(weft_str *text, size_t limit, const char *what, weft_error *e) {
    char block[65536];
    size_t n;
    if (isatty(STDIN_FILENO)) fprintf(stderr, "weft: type %s, end with Ctrl-D\n", what);
    while ((n = fread(block, 1, sizeof block, stdin)) > 0) {
        if (n > limit - text->n) return weft_fail(e, WEFT_EINVAL, "%s on standard input is over %zu bytes", what, limit);
        if (!weft_str_add(text, block, n)) return weft_fail_oom(e, what);
    }
    return ferror(stdin) ? weft_fail(e, WEFT_EIO, "cannot read standard input") : WEFT_OK;
}

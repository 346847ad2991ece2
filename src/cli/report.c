/* report.c: see report.h. */
#include "cli/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"

struct json_object *weft_cli_json_number(double v) {
    char text[32];
    if (!(v - v == 0)) return NULL;
    snprintf(text, sizeof text, "%.9g", v);
    return json_object_new_double_s(v, text);
}

weft_status weft_cli_write_json(struct json_object *o, const char *path, weft_error *e) {
    const char *text =
        json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
    weft_str line = {0};
    weft_status s = WEFT_OK;
    if (!text || !weft_str_addz(&line, text) || !weft_str_addz(&line, "\n"))
        s = weft_fail_oom(e, "the result");
    else if (strcmp(path, "-") == 0)
        fputs(weft_str_z(&line), stdout);
    else
        s = weft_file_write(path, weft_str_z(&line), line.n, e);
    weft_str_free(&line);
    json_object_put(o);
    return s;
}

weft_status weft_cli_check_out(const char *path, weft_error *e) {
    if (!*path || (access(path, F_OK) == 0 && !weft_file_exists(path)))
        return weft_fail(e, WEFT_EINVAL, "'%s' is not a file", path);
    const char *slash = strrchr(path, '/');
    weft_str folder = {0};
    if (!(slash ? weft_str_add(&folder, path, (size_t)(slash - path) + 1) : weft_str_addz(&folder, ".")))
        return weft_fail_oom(e, path);
    bool writable = access(weft_str_z(&folder), W_OK | X_OK) == 0;
    int error = errno;
    weft_str_free(&folder);
    return writable ? WEFT_OK : weft_fail_os(e, error, "%s: cannot write", path);
}

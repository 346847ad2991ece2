/* report.h: results as JSON, and files they go to. */
#ifndef WEFT_CLI_REPORT_H
#define WEFT_CLI_REPORT_H

#include <json-c/json.h>

#include "base/error.h"

/* Nine digits; null where there is no such number (NaN, infinity). */
struct json_object *weft_cli_json_number(double v);
/* The object, and a newline, to a file, or to standard output for "-". Frees the object. */
weft_status weft_cli_write_json(struct json_object *o, const char *path, weft_error *e);

/* Whether a file can be written, before a long computation: it comes into being beside the name, so its folder counts. */
weft_status weft_cli_check_out(const char *path, weft_error *e);

#endif

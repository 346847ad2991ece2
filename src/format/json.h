/* json.h: reading JSON files that nobody vouches for, on top of json-c.
 *
 * json-c alone keeps the last of two equal keys, takes 'single quotes', cuts keys at an escaped NUL, and turns three bytes of
 * "[]," into 350 bytes of memory. weft_json_parse() refuses all of that before or after json-c has run, in linear time.
 *
 * Reading values: a weft_json_at is an object and the words that lead to it; the getters check type and range and name key, value
 * and what is allowed. A getter leaves *out alone when its key is absent or null, so that defaults are set first and required keys
 * are asked for by weft_json_need(). */
#ifndef WEFT_FORMAT_JSON_H
#define WEFT_FORMAT_JSON_H

#include <json-c/json.h>

#include "base/error.h"

#define WEFT_JSON_DEPTH 32

/* Parses text[0..n), one JSON object (RFC 8259, and the words NaN, Infinity, -Infinity that Python writes). WEFT_EFORMAT: not
 * JSON, not an object, nested deeper than WEFT_JSON_DEPTH, a key twice in one object, or values that would take over 1 GB.
 * *root is freed by json_object_put(). */
weft_status weft_json_parse(struct json_object **root, const char *text, size_t n, weft_error *e);
/* The same for a file of at most `limit` bytes. */
weft_status weft_json_read(struct json_object **root, const char *path, size_t limit, weft_error *e);

typedef struct weft_json_at {
    struct json_object *object;
    const char *path; /* "" or what stands before a key in a message: "text_config." */
} weft_json_at;

/* The value of a key; NULL when absent or null. */
struct json_object *weft_json_get(weft_json_at at, const char *key);
weft_status weft_json_need(weft_json_at at, const char *key, weft_error *e);
/* A whole number; 4096.0 counts as one. */
weft_status weft_json_int(weft_json_at at, const char *key, int64_t lo, int64_t hi, int64_t *out, weft_error *e);
weft_status weft_json_number(weft_json_at at, const char *key, double lo, double hi, double *out, weft_error *e);
weft_status weft_json_bool(weft_json_at at, const char *key, bool *out, weft_error *e);
/* The text belongs to the JSON tree. A NUL inside is an error. */
weft_status weft_json_text(weft_json_at at, const char *key, const char **out, weft_error *e);
weft_status weft_json_object(weft_json_at at, const char *key, struct json_object **out, weft_error *e);
/* An array of at most `most` values. */
weft_status weft_json_array(weft_json_at at, const char *key, size_t most, struct json_object **out, weft_error *e);

/* The same checks for a value that is at hand: an array's item. `key` serves messages. */
weft_status weft_json_int_value(struct json_object *v, weft_json_at at, const char *key, int64_t lo, int64_t hi, int64_t *out,
                                weft_error *e);
/* A number, also as transformers 5 writes what JSON has no word for: {"__float__": "Infinity"}. */
weft_status weft_json_number_value(struct json_object *v, weft_json_at at, const char *key, double lo, double hi, double *out,
                                   weft_error *e);
weft_status weft_json_text_value(struct json_object *v, weft_json_at at, const char *key, const char **out, weft_error *e);

#endif

/* jinja.h: chat templates. A template is compiled once and rendered per request; the text is byte for byte what Python's jinja2
 * makes in the setting that Hugging Face transformers uses: ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, break and
 * continue,
 * {% generation %}, tojson as json.dumps, raise_exception() and strftime_now().
 *
 * Where text came from is kept through every operation: trim, replace, +, slices, tojson and the rest. The rendered text comes in
 * parts as weft_tokenizer_encode() takes them: special where the template (or a string that its caller vouches for) wrote the
 * bytes, not special where they were typed by somebody, so that a "<|im_end|>" in a message stays ten characters.
 *
 * Templates come with checkpoints that nobody vouches for. A render has limits on work, memory, text, loops and nesting, and
 * nothing in a template reaches beyond the values that it was given and the clock. Left out: {% include %}, {% import %}, {%
 * extends %},
 * {% block %}, {% autoescape %}; integers beyond 64 bits are printed and compared, not calculated with.
 *
 * A template does not change after it is compiled: any number of threads may render it. The evaluator recurses: 1000 levels, its
 * own limit, take up to 1 MiB of stack. */
#ifndef WEFT_TEXT_JINJA_H
#define WEFT_TEXT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "text/tokenizer.h"

struct json_object;

typedef struct weft_jinja weft_jinja;

/* Compiles source[0..n), at most 4 MiB. WEFT_EFORMAT: a syntax error, "line 7: ..."; WEFT_ESUPPORT: a statement that this
 * interpreter does not have. */
weft_status weft_jinja_compile(weft_jinja **t, const char *source, size_t n, weft_error *e);
void weft_jinja_free(weft_jinja *t); /* NULL is fine */
/* Whether the template mentions a variable of that name ("tools", "enable_thinking"). */
bool weft_jinja_mentions(const weft_jinja *t, const char *name);

/* ---- values -------------------------------------------------------------------------------------------------------------- */

/* What a template is given: named values, which live as long as the weft_jinja_vars that they were made by. Making them does not
 * fail: when memory is short that is remembered, and rendering reports it. A list or a map must not come to hold itself. */
typedef struct weft_jinja_vars weft_jinja_vars;
typedef struct weft_jinja_value {
    uint8_t kind, aux; /* the interpreter's business, as is what follows */
    union {
        bool b;
        int64_t i;
        double f;
        const void *p;
        const struct jj_str *s;
        struct jj_list *list;
        struct jj_map *map;
    };
} weft_jinja_value;

weft_status weft_jinja_vars_open(weft_jinja_vars **v, weft_error *e);
void weft_jinja_vars_close(weft_jinja_vars *v); /* NULL is fine */

weft_jinja_value weft_jinja_none(void);
weft_jinja_value weft_jinja_bool(bool b);
weft_jinja_value weft_jinja_int(int64_t i);
weft_jinja_value weft_jinja_float(double f);
/* text[0..n) is copied; bytes that are not UTF-8 become U+FFFD. trusted: control tokens in it are meant (bos_token, a role name
 * that was checked); otherwise somebody typed it. */
weft_jinja_value weft_jinja_text(weft_jinja_vars *v, const char *text, size_t n, bool trusted);
weft_jinja_value weft_jinja_list(weft_jinja_vars *v);
weft_jinja_value weft_jinja_map(weft_jinja_vars *v);
void weft_jinja_append(weft_jinja_vars *v, weft_jinja_value list, weft_jinja_value item);
/* Sets map[key]; a key that is there keeps its place in the order. The key is trusted as weft_jinja_text() says. */
void weft_jinja_put(weft_jinja_vars *v, weft_jinja_value map, const char *key, size_t n, bool trusted, weft_jinja_value value);
/* A JSON tree, NULL is null; nothing of it is kept. Keys and strings are trusted or not. */
weft_jinja_value weft_jinja_json(weft_jinja_vars *v, struct json_object *json, bool trusted);
/* Gives the template a variable, in place of an earlier one of that name. */
void weft_jinja_set(weft_jinja_vars *v, const char *name, weft_jinja_value value);

/* ---- rendering ----------------------------------------------------------------------------------------------------------- */

typedef struct weft_jinja_options {
    int64_t now;           /* strftime_now(): seconds since 1970 by the local clock; 0: the time it is */
    uint64_t work;         /* steps and 16-byte pieces of text handled; 0: 200 million, which takes seconds */
    uint64_t iterations;   /* of all loops together; 0: 10 million */
    size_t memory, output; /* bytes; 0: 512 and 64 MiB */
} weft_jinja_options;

typedef struct weft_jinja_output {
    weft_str text;
    weft_text_parts parts; /* cover text from its first to its last byte; neighbours differ in `special` */
} weft_jinja_output;

/* Renders with vars (NULL: none) and options (NULL: all 0). Overwrites *out, which is freed by weft_jinja_output_free().
 * WEFT_EINVAL: the template called raise_exception(); the message is the template's own.
 * WEFT_EFORMAT: the template failed, "line 12: 'x' is undefined"; in most cases it wants other variables or messages.
 * WEFT_ESUPPORT: it went over a limit, or used what this interpreter does not have. */
weft_status weft_jinja_render(const weft_jinja *t, const weft_jinja_vars *vars, const weft_jinja_options *options,
                              weft_jinja_output *out, weft_error *e);
void weft_jinja_output_free(weft_jinja_output *out);

#endif

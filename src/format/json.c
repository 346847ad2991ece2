/* json.c: see json.h. */
#include "format/json.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/vec.h"

/* ---- what json-c lets through -------------------------------------------------------------------------------------------- */

/* Bytes that json-c 0.16 takes for one of each, rounded up: an object starts with a table of 16 entries, an array with 32 places.
 */
enum { OBJECT_BYTES = 800, ARRAY_BYTES = 350, MEMBER_BYTES = 160, VALUE_BYTES = 64 };
#define TREE_LIMIT ((size_t)1000 * 1000 * 1000)

typedef struct key_seen {
    size_t object; /* number of the object it stands in */
    const char *text;
    size_t n; /* as written, escapes not resolved */
} key_seen;

typedef struct scan {
    const char *text;
    size_t n;
    size_t members, objects; /* found so far */
    WEFT_VEC(key_seen) keys; /* filled only where `collect` is set */
    bool collect;
} scan;

/* End of the string whose opening quote is at text[i]: the index of its closing quote, or n. */
static size_t string_end(const char *text, size_t n, size_t i) {
    for (i++; i < n && text[i] != '"'; i++)
        if (text[i] == '\\') i++;
    return i < n ? i : n;
}

/* One pass over the text, telling strings from the rest and nothing more: json-c judges the grammar. In valid JSON every ':'
 * outside a string is one member of an object, so that the members in json-c's tree must be as many; fewer means a key twice. */
static weft_status scan_text(scan *s, weft_error *e) {
    size_t bytes = s->n, open[WEFT_JSON_DEPTH + 1] = {0}, depth = 0, key = 0, key_end = 0;
    for (size_t i = 0; i < s->n; i++) {
        switch (s->text[i]) {
        case '"':
            key = i + 1;
            i = key_end = string_end(s->text, s->n, i);
            break;
        case '{':
        case '[':
            bytes += s->text[i] == '{' ? OBJECT_BYTES : ARRAY_BYTES;
            if (++depth <= WEFT_JSON_DEPTH) open[depth] = ++s->objects;
            break;
        case '}':
        case ']':
            if (depth > 0) depth--;
            break;
        case ',': bytes += VALUE_BYTES; break;
        case ':':
            bytes += MEMBER_BYTES;
            s->members++;
            for (size_t j = key; j + 5 < key_end; j++) {
                if (s->text[j] != '\\') continue;
                if (memcmp(s->text + j, "\\u0000", 6) == 0) return weft_fail(e, WEFT_EFORMAT, "a key with a NUL character in it");
                j++;
            }
            if (s->collect && depth <= WEFT_JSON_DEPTH) {
                key_seen k = {open[depth], s->text + key, key_end - key};
                if (!weft_vec_push(&s->keys, k)) return weft_fail_oom(e, "looking for equal keys");
            }
            break;
        case '\'':
        case '\0': return weft_fail(e, WEFT_EFORMAT, "not JSON: unexpected character at byte %zu", i);
        }
        if (bytes > TREE_LIMIT) return weft_fail(e, WEFT_EFORMAT, "JSON with too many values: they would take over 1 GB of memory");
    }
    return WEFT_OK;
}

static size_t count_members(struct json_object *o) {
    size_t n = 0;
    if (json_object_is_type(o, json_type_object)) {
        struct json_object_iterator it = json_object_iter_begin(o), end = json_object_iter_end(o);
        for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it))
            n += 1 + count_members(json_object_iter_peek_value(&it));
    } else if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0, m = json_object_array_length(o); i < m; i++) n += count_members(json_object_array_get_idx(o, i));
    }
    return n;
}

static int by_object_and_text(const void *a, const void *b) {
    const key_seen *x = a, *y = b;
    if (x->object != y->object) return x->object < y->object ? -1 : 1;
    int c = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* The slow way, taken only when it is known that some key comes twice: which one? */
static weft_status fail_duplicate(const char *text, size_t n, weft_error *e) {
    scan s = {.text = text, .n = n, .collect = true};
    weft_status st = scan_text(&s, e);
    if (st == WEFT_OK) {
        if (s.keys.n > 0) qsort(s.keys.v, s.keys.n, sizeof *s.keys.v, by_object_and_text);
        size_t i = 1;
        while (i < s.keys.n && by_object_and_text(&s.keys.v[i - 1], &s.keys.v[i]) != 0) i++;
        if (i < s.keys.n)
            st = weft_fail(e, WEFT_EFORMAT, "the key '%.*s' comes twice in one object",
                           (int)(s.keys.v[i].n < 300 ? s.keys.v[i].n : 300), s.keys.v[i].text);
        else /* spelled in two ways: "a" and "\u0061" */
            st = weft_fail(e, WEFT_EFORMAT, "a key comes twice in one object");
    }
    weft_vec_free(&s.keys);
    return st;
}

weft_status weft_json_parse(struct json_object **root, const char *text, size_t n, weft_error *e) {
    *root = NULL;
    if (n > INT_MAX) return weft_fail(e, WEFT_EFORMAT, "JSON of %zu bytes: too long", n);
    scan s = {.text = text, .n = n};
    WEFT_TRY(scan_text(&s, e));
    struct json_tokener *tok = json_tokener_new_ex(WEFT_JSON_DEPTH);
    if (!tok) return weft_fail_oom(e, "parsing JSON");
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    struct json_object *o = json_tokener_parse_ex(tok, text, (int)n);
    enum json_tokener_error err = json_tokener_get_error(tok);
    size_t at = json_tokener_get_parse_end(tok);
    json_tokener_free(tok);
    weft_status st = WEFT_OK;
    if (err == json_tokener_continue)
        st = weft_fail(e, WEFT_EFORMAT, "not JSON: the text ends too early, after %zu bytes", n);
    else if (err == json_tokener_error_depth)
        st = weft_fail(e, WEFT_EFORMAT, "JSON nested deeper than %d levels, at byte %zu", WEFT_JSON_DEPTH, at);
    else if (err != json_tokener_success)
        st = weft_fail(e, WEFT_EFORMAT, "not JSON: %s at byte %zu", json_tokener_error_desc(err), at);
    else if (!json_object_is_type(o, json_type_object))
        st = weft_fail(e, WEFT_EFORMAT, "expected a JSON object {...}");
    else if (count_members(o) != s.members)
        st = fail_duplicate(text, n, e);
    if (st != WEFT_OK) {
        json_object_put(o);
        return st;
    }
    *root = o;
    return WEFT_OK;
}

weft_status weft_json_read(struct json_object **root, const char *path, size_t limit, weft_error *e) {
    *root = NULL;
    char *text;
    size_t n;
    WEFT_TRY(weft_file_read(path, limit, &text, &n, e));
    weft_status st = weft_json_parse(root, text, n, e);
    weft_free(text);
    if (st != WEFT_OK) weft_fail_in(e, path);
    return st;
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

/* "'text_config.hidden_size' is "abc"; expected ...": the one shape of all messages about values. */
static weft_status fail_value(struct json_object *v, weft_json_at at, const char *key, const char *expected, weft_error *e) {
    switch (json_object_get_type(v)) {
    case json_type_object: return weft_fail(e, WEFT_EFORMAT, "'%s%s' is an object; expected %s", at.path, key, expected);
    case json_type_array:
        return weft_fail(e, WEFT_EFORMAT, "'%s%s' is an array of %zu values; expected %s", at.path, key,
                         json_object_array_length(v), expected);
    case json_type_null: return weft_fail(e, WEFT_EFORMAT, "'%s%s' is null; expected %s", at.path, key, expected);
    default: break;
    }
    const char *text = json_object_to_json_string_ext(v, JSON_C_TO_STRING_NOSLASHESCAPE);
    return weft_fail(e, WEFT_EFORMAT, "'%s%s' is %.80s; expected %s", at.path, key, text ? text : "?", expected);
}

struct json_object *weft_json_get(weft_json_at at, const char *key) {
    struct json_object *v = NULL;
    return at.object && json_object_object_get_ex(at.object, key, &v) ? v : NULL;
}

weft_status weft_json_need(weft_json_at at, const char *key, weft_error *e) {
    return weft_json_get(at, key) ? WEFT_OK : weft_fail(e, WEFT_EFORMAT, "the key '%s%s' is missing", at.path, key);
}

weft_status weft_json_int_value(struct json_object *v, weft_json_at at, const char *key, int64_t lo, int64_t hi, int64_t *out,
                                weft_error *e) {
    bool ok = false;
    int64_t x = 0;
    if (json_object_is_type(v, json_type_int)) {
        x = json_object_get_int64(v); /* json-c cuts larger numbers to INT64_MAX */
        ok = x != INT64_MAX;
    } else if (json_object_is_type(v, json_type_double)) {
        double d = json_object_get_double(v);
        ok = d >= -9007199254740992.0 && d <= 9007199254740992.0 && d == floor(d);
        x = ok ? (int64_t)d : 0;
    }
    if (ok && x >= lo && x <= hi) return *out = x, WEFT_OK;
    char expected[96];
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)lo, (long long)hi);
    return fail_value(v, at, key, expected, e);
}

weft_status weft_json_text_value(struct json_object *v, weft_json_at at, const char *key, const char **out, weft_error *e) {
    if (!json_object_is_type(v, json_type_string)) return fail_value(v, at, key, "a string", e);
    const char *s = json_object_get_string(v);
    if (strlen(s) != (size_t)json_object_get_string_len(v)) return fail_value(v, at, key, "a string without a NUL character", e);
    *out = s;
    return WEFT_OK;
}

weft_status weft_json_int(weft_json_at at, const char *key, int64_t lo, int64_t hi, int64_t *out, weft_error *e) {
    struct json_object *v = weft_json_get(at, key);
    return v ? weft_json_int_value(v, at, key, lo, hi, out, e) : WEFT_OK;
}

weft_status weft_json_number(weft_json_at at, const char *key, double lo, double hi, double *out, weft_error *e) {
    struct json_object *v = weft_json_get(at, key);
    return v ? weft_json_number_value(v, at, key, lo, hi, out, e) : WEFT_OK;
}

weft_status weft_json_number_value(struct json_object *v, weft_json_at at, const char *key, double lo, double hi, double *out,
                                   weft_error *e) {
    const char *word = json_object_get_string(weft_json_get((weft_json_at){v, ""}, "__float__"));
    if (word && strcmp(word, "Infinity") == 0 && hi > DBL_MAX) return *out = INFINITY, WEFT_OK;
    if (json_object_is_type(v, json_type_double) || json_object_is_type(v, json_type_int)) {
        double d = json_object_get_double(v);
        if (d >= lo && d <= hi) return *out = d, WEFT_OK; /* NaN fails both */
    }
    char expected[96];
    snprintf(expected, sizeof expected, "a number from %.12g to %.12g", lo, hi);
    for (char *p = expected; *p; p++)
        if (*p == ',') *p = '.'; /* the decimal point of some locales */
    return fail_value(v, at, key, expected, e);
}

weft_status weft_json_bool(weft_json_at at, const char *key, bool *out, weft_error *e) {
    struct json_object *v = weft_json_get(at, key);
    if (!v) return WEFT_OK;
    if (!json_object_is_type(v, json_type_boolean)) return fail_value(v, at, key, "true or false", e);
    *out = json_object_get_boolean(v);
    return WEFT_OK;
}

weft_status weft_json_text(weft_json_at at, const char *key, const char **out, weft_error *e) {
    struct json_object *v = weft_json_get(at, key);
    return v ? weft_json_text_value(v, at, key, out, e) : WEFT_OK;
}

weft_status weft_json_object(weft_json_at at, const char *key, struct json_object **out, weft_error *e) {
    struct json_object *v = weft_json_get(at, key);
    if (!v) return WEFT_OK;
    if (!json_object_is_type(v, json_type_object)) return fail_value(v, at, key, "an object", e);
    *out = v;
    return WEFT_OK;
}

weft_status weft_json_array(weft_json_at at, const char *key, size_t most, struct json_object **out, weft_error *e) {
    struct json_object *v = weft_json_get(at, key);
    if (!v) return WEFT_OK;
    if (!json_object_is_type(v, json_type_array) || json_object_array_length(v) > most) {
        char expected[64];
        snprintf(expected, sizeof expected, "an array of at most %zu values", most);
        return fail_value(v, at, key, expected, e);
    }
    *out = v;
    return WEFT_OK;
}

/* jinja_filters.c: the filters of jinja2. Left out: those that make HTML of text (urlize, xmlattr, striptags), random, pprint,
 * filesizeformat and wordwrap. Tests and global functions are in jinja_globals.c. */
#include <math.h>
#include <string.h>

#include <utf8proc.h>

#include "text/jinja_run.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

typedef struct filter_call {
    jj_value v;      /* what the filter is applied to */
    jj_value arg[5]; /* in order, MISSING where not given */
    const jj_call *call;
} filter_call;

typedef bool (*filter_fn)(jj *j, const filter_call *f, jj_value *out);

static bool is_absent(jj_value v) {
    return v.kind == JJ_MISSING || v.kind == JJ_NONE;
}

/* soft_str: a string stays as it is, anything else becomes one. */
static bool soft_str(jj *j, jj_value v, const jj_str **out) {
    return v.kind == JJ_STR ? (*out = v.s, true) : weft_jj_to_str(j, v, out);
}

static bool call_method(jj *j, jj_value self, const char *name, jj_value *arg, size_t n, jj_value *out) {
    jj_str s = {.p = name, .n = strlen(name)};
    jj_bound b = {self, weft_jj_method_number((jj_kind)self.kind, &s)};
    jj_call c = {.what = name, .arg = arg, .n = n};
    return weft_jj_call_method(j, &b, &c, out);
}

/* A method of the value's string. */
static bool str_method(jj *j, const filter_call *f, const char *name, size_t n_args, jj_value *out) {
    const jj_str *s;
    jj_value arg[4];
    if (!soft_str(j, f->v, &s)) return false;
    memcpy(arg, f->arg, sizeof arg);
    while (n_args > 0 && arg[n_args - 1].kind == JJ_MISSING) n_args--;
    return call_method(j, weft_jj_of_str(s), name, arg, n_args, out);
}

/* ---- strings ------------------------------------------------------------------------------------------------------------- */

static bool filter_upper(jj *j, const filter_call *f, jj_value *out) {
    return str_method(j, f, "upper", 0, out);
}

static bool filter_lower(jj *j, const filter_call *f, jj_value *out) {
    return str_method(j, f, "lower", 0, out);
}

static bool filter_capitalize(jj *j, const filter_call *f, jj_value *out) {
    return str_method(j, f, "capitalize", 0, out);
}

static bool filter_trim(jj *j, const filter_call *f, jj_value *out) {
    return str_method(j, f, "strip", 1, out);
}

static bool filter_center(jj *j, const filter_call *f, jj_value *out) {
    filter_call g = *f;
    if (g.arg[0].kind == JJ_MISSING) g.arg[0] = weft_jj_int(80);
    return str_method(j, &g, "center", 1, out);
}

static bool filter_title(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s;
    jj_sb b = {.j = j};
    if (!soft_str(j, f->v, &s)) return false;
    bool separator = true; /* words begin after these, and nowhere else */
    for (size_t at = 0, end; at < s->n && !b.failed; at = end) {
        int32_t cp;
        end = at + weft_utf8_next(s->p + at, s->n - at, &cp);
        bool is_separator = weft_jj_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (char)cp));
        if (is_separator) {
            weft_jj_sb_add_part(&b, s, at, end);
        } else if (separator) {
            weft_jj_add_case(&b, s, at, end, JJ_UPPER);
        } else {
            for (; end < s->n; end += weft_utf8_next(s->p + end, s->n - end, &cp)) { /* all of the word, for the sake of Σ */
                weft_utf8_next(s->p + end, s->n - end, &cp);
                if (weft_jj_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (char)cp))) break;
            }
            weft_jj_add_case(&b, s, at, end, JJ_LOWER);
        }
        separator = is_separator;
    }
    return weft_jj_sb_end(&b, false, out);
}

static bool filter_string(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s;
    return soft_str(j, f->v, &s) && (*out = weft_jj_of_str(s), true);
}

static bool filter_safe(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s;
    if (!soft_str(j, f->v, &s) || !(s = weft_jj_with_safe(j, s, true))) return false;
    *out = weft_jj_of_str(s);
    return true;
}

static bool filter_escape(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s;
    jj_sb b = {.j = j};
    if (!soft_str(j, f->v, &s)) return false;
    weft_jj_sb_add_escaped(&b, s);
    return weft_jj_sb_end(&b, true, out);
}

static bool filter_forceescape(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s;
    jj_sb b = {.j = j};
    if (!weft_jj_to_str(j, f->v, &s)) return false;
    weft_jj_sb_add_escaped(&b, s);
    return weft_jj_sb_end(&b, true, out);
}

static bool filter_replace(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s, *old, *new;
    if (!weft_jj_to_str(j, f->v, &s) || !weft_jj_to_str(j, f->arg[0], &old) || !weft_jj_to_str(j, f->arg[1], &new)) return false;
    jj_value arg[3] = {weft_jj_of_str(old), weft_jj_of_str(new), is_absent(f->arg[2]) ? weft_jj_int(-1) : f->arg[2]};
    return call_method(j, weft_jj_of_str(s), "replace", arg, 3, out);
}

static bool filter_indent(jj *j, const filter_call *f, jj_value *out) {
    if (f->v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, f->v);
    if (f->v.kind != JJ_STR) return weft_jj_type_error(j, "indent: expected a string, not '%s'", weft_jj_type(f->v));
    const jj_str *s = f->v.s;
    bool first = weft_jj_truth(f->arg[1]), blank = weft_jj_truth(f->arg[2]);
    jj_value width = f->arg[0];
    if (width.kind != JJ_STR) {
        int64_t n;
        jj_sb b = {.j = j};
        if (!weft_jj_int_arg(j, f->call, width, 4, &n)) return false;
        for (; n > 0 && !b.failed; n--) weft_jj_sb_addz(&b, " ");
        if (!weft_jj_sb_end(&b, false, &width)) return false;
    }
    /* Lines are what splitlines() finds once a line end is added; each is written back with "\n". */
    jj_sb b = {.j = j};
    if (first) weft_jj_sb_add_str(&b, width.s);
    for (size_t from = 0, line = 0; from <= s->n && !b.failed; line++) {
        size_t to = from;
        while (to < s->n && !weft_jj_line_end(s->p + to, s->n - to)) to++;
        if (line) {
            weft_jj_sb_add(&b, "\n", 1, to < s->n ? weft_jj_data_at(s, to) : s->n && weft_jj_data_at(s, from - 1));
            if (blank || to > from) weft_jj_sb_add_str(&b, width.s);
        }
        weft_jj_sb_add_part(&b, s, from, to);
        if (to == s->n) break;
        from = to + weft_jj_line_end(s->p + to, s->n - to);
        if (from == s->n && s->p[s->n - 1] == '\r') break; /* with the "\n" that is added it is one line end */
    }
    return weft_jj_spend(j, s->n / 8) && weft_jj_sb_end(&b, s->safe, out);
}

static bool filter_truncate(jj *j, const filter_call *f, jj_value *out) {
    int64_t length, leeway;
    jj_value end = f->arg[2];
    if (f->v.kind != JJ_STR) return weft_jj_type_error(j, "truncate: expected a string, not '%s'", weft_jj_type(f->v));
    if (end.kind == JJ_MISSING && !weft_jj_text(j, "...", &end)) return false;
    if (end.kind != JJ_STR) return weft_jj_type_error(j, "truncate: the end must be a string");
    if (!weft_jj_int_arg(j, f->call, f->arg[0], 255, &length) || !weft_jj_int_arg(j, f->call, f->arg[3], 5, &leeway)) return false;
    int64_t end_chars = (int64_t)end.s->chars;
    if (length < end_chars || leeway < 0) return weft_jj_fail(j, WEFT_EFORMAT, "truncate: too short a length");
    if ((int64_t)f->v.s->chars - leeway <= length) return *out = f->v, true;
    const jj_str *cut = weft_jj_part(j, f->v.s, 0, weft_jj_byte_at(f->v.s, (size_t)(length - end_chars)));
    jj_value words, arg[2] = {0};
    if (!cut) return false;
    if (!weft_jj_truth(f->arg[1])) {
        if (!weft_jj_text(j, " ", &arg[0])) return false;
        arg[1] = weft_jj_int(1);
        if (!call_method(j, weft_jj_of_str(cut), "rsplit", arg, 2, &words)) return false;
        cut = words.list->v[0].s;
    }
    return weft_jj_math(j, JJ_T_ADD, weft_jj_of_str(cut), end, out);
}

static bool filter_wordcount(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s;
    int64_t n = 0;
    bool inside = false;
    if (!soft_str(j, f->v, &s)) return false;
    for (size_t at = 0; at < s->n;) {
        int32_t cp;
        at += weft_utf8_next(s->p + at, s->n - at, &cp);
        utf8proc_category_t c = utf8proc_category(cp);
        bool word = cp == '_' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
                    (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
        n += word && !inside;
        inside = word;
    }
    *out = weft_jj_int(n);
    return weft_jj_spend(j, s->n / 4);
}

static void add_url(jj_sb *b, const jj_str *s, bool slash) {
    for (size_t i = 0; i < s->n && !b->failed; i++) {
        unsigned char c = (unsigned char)s->p[i];
        bool plain =
            (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c && strchr("_.-~", c)) || (slash && c == '/');
        if (plain)
            weft_jj_sb_add_part(b, s, i, i + 1);
        else if (c == ' ' && !slash)
            weft_jj_sb_addz(b, "+");
        else
            weft_jj_add_format(b, "%%%02X", c);
    }
}

static bool filter_urlencode(jj *j, const filter_call *f, jj_value *out) {
    jj_sb b = {.j = j};
    const jj_str *s;
    if (f->v.kind == JJ_STR || !weft_jj_iterable(f->v)) {
        if (!weft_jj_to_str(j, f->v, &s)) return false;
        add_url(&b, s, true);
        return weft_jj_sb_end(&b, false, out);
    }
    jj_value items = f->v, pair;
    if (items.kind == JJ_MAP) items = (jj_value){.kind = JJ_VIEW, .aux = JJ_ITEMS, .map = items.map};
    jj_iter it;
    jj_step step;
    if (!weft_jj_iterate(j, items, &it)) return false;
    while ((step = weft_jj_next(j, &it, &pair)) == JJ_GOT) {
        if ((pair.kind != JJ_TUPLE && pair.kind != JJ_LIST) || pair.list->n != 2)
            return weft_jj_type_error(j, "urlencode: expected pairs");
        if (b.n) weft_jj_sb_addz(&b, "&");
        for (int i = 0; i < 2; i++) {
            if (!weft_jj_to_str(j, pair.list->v[i], &s)) return false;
            if (i) weft_jj_sb_addz(&b, "=");
            add_url(&b, s, false);
        }
    }
    return step == JJ_ENDED && weft_jj_sb_end(&b, false, out);
}

static bool filter_format(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *s;
    if (!soft_str(j, f->v, &s)) return false;
    if (f->call->n && f->call->n_kw) return weft_jj_type_error(j, "format: positional and keyword arguments at the same time");
    jj_value args;
    if (f->call->n_kw) {
        if (!weft_jj_map(j, &args)) return false;
        for (size_t i = 0; i < f->call->n_kw; i++)
            if (!weft_jj_put(j, args.map, weft_jj_of_str(f->call->key[i]), f->call->kw[i])) return false;
    } else {
        if (!weft_jj_list(j, f->call->n, &args)) return false;
        for (size_t i = 0; i < f->call->n; i++)
            if (!weft_jj_push(j, args.list, f->call->arg[i])) return false;
        args.kind = JJ_TUPLE;
    }
    return weft_jj_percent(j, s, args, out);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static bool filter_abs(jj *j, const filter_call *f, jj_value *out) {
    jj_value v = f->v;
    if (v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, v);
    if (!weft_jj_is_number(v)) return weft_jj_type_error(j, "bad operand type for abs(): '%s'", weft_jj_type(v));
    bool minus = v.kind == JJ_BIG ? v.s->p[0] == '-' : v.kind == JJ_FLOAT ? signbit(v.f) != 0 : v.kind == JJ_INT && v.i < 0;
    return weft_jj_negate(j, v, minus, out);
}

static bool filter_int(jj *j, const filter_call *f, jj_value *out) {
    jj_value v = f->v, number;
    int64_t base;
    if (!weft_jj_int_arg(j, f->call, f->arg[1], 10, &base)) return false;
    if (base != 0 && (base < 2 || base > 36)) base = 99; /* Python refuses it, and the default counts */
    *out = f->arg[0].kind == JJ_MISSING ? weft_jj_int(0) : f->arg[0];
    if (v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, v);
    if (v.kind == JJ_INT || v.kind == JJ_BIG) return *out = v, true;
    if (v.kind == JJ_BOOL) return *out = weft_jj_int(v.b), true;
    if (v.kind == JJ_STR) {
        if (base != 99 && weft_jj_parse_int(j, v.s->p, v.s->n, (int)base, &number)) return *out = number, true;
        if (!weft_jj_parse_float(v.s->p, v.s->n, &v)) return j->status == WEFT_OK;
    }
    if (v.kind != JJ_FLOAT) return true;
    if (isinf(v.f) && f->v.kind == JJ_FLOAT) return weft_jj_fail(j, WEFT_EFORMAT, "cannot convert float infinity to integer");
    if (weft_jj_float_to_int(j, v.f, &number)) *out = number;
    return j->status == WEFT_OK;
}

static bool filter_float(jj *j, const filter_call *f, jj_value *out) {
    jj_value v = f->v;
    if (v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, v);
    *out = f->arg[0].kind == JJ_MISSING ? weft_jj_float(0) : f->arg[0];
    if (weft_jj_is_number(v))
        *out = weft_jj_float(weft_jj_to_double(v));
    else if (v.kind == JJ_STR && weft_jj_parse_float(v.s->p, v.s->n, &v))
        *out = v;
    return true;
}

static bool filter_round(jj *j, const filter_call *f, jj_value *out) {
    jj_value v = f->v;
    int64_t precision;
    if (v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, v);
    if (!weft_jj_int_arg(j, f->call, f->arg[0], 0, &precision)) return false;
    if (!weft_jj_is_number(v)) return weft_jj_type_error(j, "type %s doesn't define __round__ method", weft_jj_type(v));
    const jj_str *method = f->arg[1].kind == JJ_STR ? f->arg[1].s : NULL;
    bool up = method && weft_jj_is(method, "ceil"), down = method && weft_jj_is(method, "floor");
    if (f->arg[1].kind != JJ_MISSING && !up && !down && !(method && weft_jj_is(method, "common")))
        return weft_jj_type_error(j, "method must be common, ceil or floor");
    if (precision > 300 || precision < -300) return *out = v, true;
    double scale = pow(10, (double)precision), d = weft_jj_to_double(v);
    if (up || down) {
        double r = up ? ceil(d * scale) : floor(d * scale);
        if (!isfinite(r)) return weft_jj_type_error(j, "cannot round NaN or infinity");
        *out = weft_jj_float(r / scale);
        return true;
    }
    if (v.kind != JJ_FLOAT && precision >= 0) return *out = v.kind == JJ_BOOL ? weft_jj_int(v.b) : v, true;
    if (!isfinite(d)) return *out = v, true;
    if (precision < 0) { /* to the even of two equally near ones */
        double r = nearbyint(d * scale) / scale;
        if (v.kind == JJ_FLOAT) return *out = weft_jj_float(r), true;
        return weft_jj_float_to_int(j, r, out);
    }
    jj_sb b = {.j = j};
    weft_jj_add_format(&b, "%.*f", (int)precision, d);
    return !b.failed && weft_jj_parse_float(b.p, b.n, out);
}

/* ---- sequences ----------------------------------------------------------------------------------------------------------- */

static bool filter_length(jj *j, const filter_call *f, jj_value *out) {
    size_t n;
    jj_str name = {.p = "length", .n = 6};
    if (f->v.kind == JJ_LOOP) return weft_jj_loop_attr(j, f->v, &name, out);
    if (!weft_jj_length(f->v, &n)) return weft_jj_type_error(j, "object of type '%s' has no len()", weft_jj_type(f->v));
    *out = weft_jj_int((int64_t)n);
    return true;
}

static bool filter_list(jj *j, const filter_call *f, jj_value *out) {
    return weft_jj_collect(j, f->v, out);
}

static bool filter_first(jj *j, const filter_call *f, jj_value *out) {
    jj_iter it;
    if (!weft_jj_iterate(j, f->v, &it)) return false;
    jj_step step = weft_jj_next(j, &it, out);
    if (step == JJ_ENDED) *out = weft_jj_undefined_hint("No first item, sequence was empty.");
    return step != JJ_FAILED;
}

static bool filter_last(jj *j, const filter_call *f, jj_value *out) {
    size_t n;
    if (!weft_jj_length(f->v, &n)) return weft_jj_type_error(j, "'%s' object is not reversible", weft_jj_type(f->v));
    if (n == 0) return *out = weft_jj_undefined_hint("No last item, sequence was empty."), true;
    if (f->v.kind != JJ_MAP && f->v.kind != JJ_VIEW) return weft_jj_item(j, f->v, weft_jj_int(-1), out);
    jj_iter it = {.source = f->v, .at = n - 1};
    return weft_jj_next(j, &it, out) == JJ_GOT;
}

static bool filter_reverse(jj *j, const filter_call *f, jj_value *out) {
    jj_value list;
    if (f->v.kind == JJ_STR) return weft_jj_slice(j, f->v, weft_jj_none(), weft_jj_none(), weft_jj_int(-1), out);
    if (!weft_jj_collect(j, f->v, &list)) return false;
    for (size_t i = 0, n = list.list->n; i < n / 2; i++) {
        jj_value v = list.list->v[i];
        list.list->v[i] = list.list->v[n - 1 - i];
        list.list->v[n - 1 - i] = v;
    }
    if (f->v.kind == JJ_ITER) return *out = list, true;
    return weft_jj_gen(j, list, out);
}

static bool filter_join(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *separator = NULL;
    jj_list *path = NULL;
    jj_iter it;
    jj_value item;
    jj_step step;
    jj_sb b = {.j = j};
    if (f->arg[0].kind != JJ_MISSING && !weft_jj_to_str(j, f->arg[0], &separator)) return false;
    if (!is_absent(f->arg[1]) && !weft_jj_attribute_path(j, f->arg[1], &path)) return false;
    if (!weft_jj_iterate(j, f->v, &it)) return false;
    for (size_t i = 0; (step = weft_jj_next(j, &it, &item)) == JJ_GOT; i++) {
        if (path && !weft_jj_follow(j, item, path, (jj_value){0}, &item)) return false;
        if (i && separator) weft_jj_sb_add_str(&b, separator);
        weft_jj_add(&b, item);
    }
    return step == JJ_ENDED && weft_jj_sb_end(&b, false, out);
}

/* What sorting and the like go by: the attribute, lower case unless case matters. */
static bool key_of(jj *j, jj_value item, const jj_list *path, bool case_sensitive, jj_value *out) {
    if (!weft_jj_follow(j, item, path, (jj_value){0}, out)) return false;
    if (case_sensitive || out->kind != JJ_STR) return true;
    jj_sb b = {.j = j};
    weft_jj_add_case(&b, out->s, 0, out->s->n, JJ_LOWER);
    return weft_jj_sb_end(&b, false, out);
}

static bool filter_sort(jj *j, const filter_call *f, jj_value *out) {
    jj_value list, paths, keys, attribute = f->arg[2];
    bool case_sensitive = weft_jj_truth(f->arg[1]);
    if (!weft_jj_collect(j, f->v, &list) || !weft_jj_list(j, 1, &paths) || !weft_jj_list(j, list.list->n, &keys)) return false;
    if (attribute.kind == JJ_STR) { /* "a,b.c" */
        jj_value comma;
        if (!weft_jj_text(j, ",", &comma) || !call_method(j, attribute, "split", &comma, 1, &attribute)) return false;
    } else {
        jj_value one = attribute;
        if (!weft_jj_list(j, 1, &attribute) || !weft_jj_push(j, attribute.list, one)) return false;
    }
    for (size_t k = 0; k < attribute.list->n; k++) {
        jj_value path = {.kind = JJ_LIST};
        if (!weft_jj_attribute_path(j, attribute.list->v[k], &path.list) || !weft_jj_push(j, paths.list, path)) return false;
    }
    for (size_t i = 0; i < list.list->n; i++) {
        jj_value key, part;
        if (!weft_jj_list(j, paths.list->n, &key)) return false;
        for (size_t k = 0; k < paths.list->n; k++)
            if (!key_of(j, list.list->v[i], paths.list->v[k].list, case_sensitive, &part) || !weft_jj_push(j, key.list, part))
                return false;
        if (!weft_jj_push(j, keys.list, key)) return false;
    }
    return weft_jj_sort(j, list.list, keys.list->v, weft_jj_truth(f->arg[0]), out);
}

static bool filter_dictsort(jj *j, const filter_call *f, jj_value *out) {
    jj_value items, keys, key;
    jj_list none = {0};
    bool case_sensitive = weft_jj_truth(f->arg[0]);
    size_t by = 0;
    if (f->v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, f->v);
    if (f->v.kind != JJ_MAP) return weft_jj_type_error(j, "'%s' object has no attribute 'items'", weft_jj_type(f->v));
    if (f->arg[1].kind != JJ_MISSING) {
        const jj_str *name = f->arg[1].kind == JJ_STR ? f->arg[1].s : NULL;
        by = name && weft_jj_is(name, "value");
        if (!by && !(name && weft_jj_is(name, "key")))
            return weft_jj_type_error(j, "You can only sort by either \"key\" or \"value\"");
    }
    jj_value view = {.kind = JJ_VIEW, .aux = JJ_ITEMS};
    view.map = f->v.map;
    if (!weft_jj_collect(j, view, &items) || !weft_jj_list(j, items.list->n, &keys)) return false;
    for (size_t i = 0; i < items.list->n; i++)
        if (!key_of(j, items.list->v[i].list->v[by], &none, case_sensitive, &key) || !weft_jj_push(j, keys.list, key)) return false;
    return weft_jj_sort(j, items.list, keys.list->v, weft_jj_truth(f->arg[2]), out);
}

static bool filter_groupby(jj *j, const filter_call *f, jj_value *out) {
    jj_value list, numbers, keys, order, key;
    jj_list *path;
    bool case_sensitive = weft_jj_truth(f->arg[2]);
    if (!weft_jj_attribute_path(j, f->arg[0], &path) || !weft_jj_collect(j, f->v, &list)) return false;
    if (!weft_jj_list(j, list.list->n, &numbers) || !weft_jj_list(j, list.list->n, &keys) || !weft_jj_list(j, 0, out)) return false;
    for (size_t i = 0; i < list.list->n; i++) {
        jj_list none = {0};
        if (!weft_jj_follow(j, list.list->v[i], path, f->arg[1], &key) || !key_of(j, key, &none, case_sensitive, &key))
            return false;
        if (!weft_jj_push(j, keys.list, key) || !weft_jj_push(j, numbers.list, weft_jj_int((int64_t)i))) return false;
    }
    if (!weft_jj_sort(j, numbers.list, keys.list->v, false, &order)) return false;
    for (size_t i = 0; i < order.list->n; i++) {
        size_t at = (size_t)order.list->v[i].i;
        bool same = false;
        if (i && !weft_jj_equal(j, keys.list->v[order.list->v[i - 1].i], keys.list->v[at], &same)) return false;
        if (!same) { /* the group's name is its first item's, as it was written */
            jj_value group, members;
            if (!weft_jj_follow(j, list.list->v[at], path, f->arg[1], &key) || !weft_jj_list(j, 1, &members) ||
                !weft_jj_pair(j, key, members, &group))
                return false;
            group.aux = 1;
            if (!weft_jj_push(j, out->list, group)) return false;
        }
        if (!weft_jj_push(j, out->list->v[out->list->n - 1].list->v[1].list, list.list->v[at])) return false;
    }
    return true;
}

static bool filter_unique(jj *j, const filter_call *f, jj_value *out) {
    jj_value list, seen, item, key, *known;
    jj_list *path;
    jj_iter it;
    jj_step step;
    if (!weft_jj_attribute_path(j, f->arg[1], &path) || !weft_jj_list(j, 0, &list) || !weft_jj_map(j, &seen)) return false;
    if (!weft_jj_iterate(j, f->v, &it)) return false;
    while ((step = weft_jj_next(j, &it, &item)) == JJ_GOT) {
        if (!key_of(j, item, path, weft_jj_truth(f->arg[0]), &key) || !weft_jj_lookup(j, seen.map, key, &known)) return false;
        if (known) continue;
        if (!weft_jj_put(j, seen.map, key, weft_jj_none()) || !weft_jj_push(j, list.list, item)) return false;
    }
    return step == JJ_ENDED && weft_jj_gen(j, list, out);
}

static bool extreme(jj *j, const filter_call *f, bool most, jj_value *out) {
    jj_value item, key, best = {0};
    jj_list *path;
    jj_iter it;
    jj_step step;
    *out = weft_jj_undefined_hint("No aggregated item, sequence was empty.");
    if (!weft_jj_attribute_path(j, f->arg[1], &path) || !weft_jj_iterate(j, f->v, &it)) return false;
    for (bool first = true; (step = weft_jj_next(j, &it, &item)) == JJ_GOT; first = false) {
        bool better = first;
        if (!key_of(j, item, path, weft_jj_truth(f->arg[0]), &key)) return false;
        if (!first && !weft_jj_less(j, most ? best : key, most ? key : best, most ? ">" : "<", false, &better)) return false;
        if (!better) continue;
        best = key;
        *out = item;
    }
    return step == JJ_ENDED;
}

static bool filter_min(jj *j, const filter_call *f, jj_value *out) {
    return extreme(j, f, false, out);
}

static bool filter_max(jj *j, const filter_call *f, jj_value *out) {
    return extreme(j, f, true, out);
}

static bool filter_sum(jj *j, const filter_call *f, jj_value *out) {
    jj_value item, sum = f->arg[1].kind == JJ_MISSING ? weft_jj_int(0) : f->arg[1];
    jj_list *path;
    jj_iter it;
    jj_step step;
    if (!weft_jj_attribute_path(j, f->arg[0], &path) || !weft_jj_iterate(j, f->v, &it)) return false;
    while ((step = weft_jj_next(j, &it, &item)) == JJ_GOT) {
        if (!weft_jj_follow(j, item, path, (jj_value){0}, &item)) return false;
        if (sum.kind == JJ_STR) return weft_jj_type_error(j, "sum() can't sum strings [use ''.join(seq) instead]");
        if (!weft_jj_math(j, JJ_T_ADD, sum, item, &sum)) return false;
    }
    *out = sum;
    return step == JJ_ENDED;
}

static bool filter_batch(jj *j, const filter_call *f, jj_value *out) {
    jj_value list, row = {0}, item;
    jj_iter it;
    jj_step step;
    int64_t size;
    if (!weft_jj_int_arg(j, f->call, f->arg[0], 0, &size) || !weft_jj_list(j, 0, &list)) return false;
    if (!weft_jj_iterate(j, f->v, &it)) return false;
    while ((step = weft_jj_next(j, &it, &item)) == JJ_GOT) {
        if (row.kind == JJ_MISSING || (int64_t)row.list->n == size) {
            if (row.kind == JJ_MISSING && size == 0 && (!weft_jj_list(j, 0, &row) || !weft_jj_push(j, list.list, row)))
                return false;
            if (!weft_jj_list(j, 0, &row) || !weft_jj_push(j, list.list, row)) return false;
        }
        if (!weft_jj_push(j, row.list, item)) return false;
    }
    if (row.kind == JJ_LIST && !is_absent(f->arg[1]))
        while ((int64_t)row.list->n < size)
            if (!weft_jj_spend(j, 1) || !weft_jj_push(j, row.list, f->arg[1])) return false;
    return step == JJ_ENDED && weft_jj_gen(j, list, out);
}

static bool filter_slice(jj *j, const filter_call *f, jj_value *out) {
    jj_value list, rows, row;
    int64_t slices;
    if (!weft_jj_int_arg(j, f->call, f->arg[0], 0, &slices) || !weft_jj_collect(j, f->v, &list) || !weft_jj_list(j, 0, &rows))
        return false;
    if (slices == 0) return weft_jj_fail(j, WEFT_EFORMAT, "division by zero");
    size_t at = 0;
    for (int64_t i = 0; i < slices; i++) {
        int64_t n = (int64_t)list.list->n / slices;
        bool extra = i < (int64_t)list.list->n % slices;
        if (!weft_jj_spend(j, 1) || !weft_jj_list(j, (size_t)n + 1, &row)) return false;
        for (int64_t k = 0; k < n + extra; k++)
            if (!weft_jj_push(j, row.list, list.list->v[at++])) return false;
        if (!is_absent(f->arg[1]) && !extra && !weft_jj_push(j, row.list, f->arg[1])) return false;
        if (!weft_jj_push(j, rows.list, row)) return false;
    }
    return weft_jj_gen(j, rows, out);
}

static bool filter_items(jj *j, const filter_call *f, jj_value *out) {
    jj_value view = {.kind = JJ_VIEW, .aux = JJ_ITEMS};
    if (f->v.kind != JJ_UNDEFINED && f->v.kind != JJ_MAP) return weft_jj_type_error(j, "Can only get item pairs from a mapping.");
    if (f->v.kind == JJ_UNDEFINED) return weft_jj_gen(j, f->v, out);
    view.map = f->v.map;
    return weft_jj_gen(j, view, out);
}

/* map, select, reject, selectattr, rejectattr: read their source when they are read. */
static bool lazy(jj *j, const filter_call *f, jj_gen g, jj_value *out) {
    jj_gen *copy = weft_jj_get(j, 1, sizeof *copy);
    if (!copy) return false;
    *copy = g;
    jj_value source = f->v;
    if (!weft_jj_truth(source)) source = weft_jj_undefined_hint("");
    if (!weft_jj_iterate(j, source, &copy->in)) return false;
    *out = (jj_value){.kind = JJ_ITER};
    out->p = copy;
    return true;
}

static bool filter_map(jj *j, const filter_call *f, jj_value *out) {
    const jj_call *c = f->call;
    jj_gen g = {.kind = JJ_G_MAP};
    if (c->n) {
        if (c->arg[0].kind != JJ_STR) return weft_jj_type_error(j, "map: the name of a filter must be a string");
        g.number = weft_jj_filter_number(c->arg[0].s);
        if (g.number < 0)
            return weft_jj_fail(j, WEFT_EFORMAT, "no filter named '%.*s'", (int)(c->arg[0].s->n < 80 ? c->arg[0].s->n : 80),
                                c->arg[0].s->p);
        g.call = *c;
        g.call.arg++;
        g.call.n--;
        return lazy(j, f, g, out);
    }
    jj_value arg[2];
    bool named = false;
    for (size_t i = 0; i < c->n_kw; i++) named |= weft_jj_is(c->key[i], "attribute");
    if (!named) return weft_jj_type_error(j, "map requires a filter argument");
    if (!weft_jj_bind(j, c, "attribute default", 1, arg) || !weft_jj_attribute_path(j, arg[0], &g.attribute)) return false;
    g.fallback = arg[1];
    return lazy(j, f, g, out);
}

static bool select_items(jj *j, const filter_call *f, bool negate, bool attribute, jj_value *out) {
    const jj_call *c = f->call;
    jj_gen g = {.kind = JJ_G_SELECT, .negate = negate, .number = -1, .call = *c};
    if (attribute) {
        if (!c->n) return weft_jj_type_error(j, "Missing parameter for attribute name");
        if (!weft_jj_attribute_path(j, c->arg[0], &g.attribute)) return false;
        g.call.arg++;
        g.call.n--;
    }
    if (g.call.n) {
        jj_value name = g.call.arg[0];
        if (name.kind != JJ_STR) return weft_jj_type_error(j, "the name of a test must be a string");
        g.name = name.s;
        g.number = weft_jj_test_number(name.s);
        if (g.number < 0)
            return weft_jj_fail(j, WEFT_EFORMAT, "no test named '%.*s'", (int)(name.s->n < 80 ? name.s->n : 80), name.s->p);
        g.call.arg++;
        g.call.n--;
    }
    return lazy(j, f, g, out);
}

static bool filter_select(jj *j, const filter_call *f, jj_value *out) {
    return select_items(j, f, false, false, out);
}

static bool filter_reject(jj *j, const filter_call *f, jj_value *out) {
    return select_items(j, f, true, false, out);
}

static bool filter_selectattr(jj *j, const filter_call *f, jj_value *out) {
    return select_items(j, f, false, true, out);
}

static bool filter_rejectattr(jj *j, const filter_call *f, jj_value *out) {
    return select_items(j, f, true, true, out);
}

/* ---- the rest ------------------------------------------------------------------------------------------------------------ */

static bool filter_default(jj *j, const filter_call *f, jj_value *out) {
    *out = f->v;
    if (f->v.kind != JJ_UNDEFINED && !(weft_jj_truth(f->arg[1]) && !weft_jj_truth(f->v))) return true;
    *out = f->arg[0];
    return f->arg[0].kind != JJ_MISSING || weft_jj_text(j, "", out);
}

static bool filter_attr(jj *j, const filter_call *f, jj_value *out) {
    const jj_str *name;
    if (!weft_jj_str_arg(j, f->call, f->arg[0], &name)) return false;
    if (f->v.kind == JJ_MAP && weft_jj_method_number(JJ_MAP, name) < 0 && !weft_jj_forbidden(JJ_MAP, name))
        return *out = weft_jj_undefined(JJ_NO_ATTRIBUTE + JJ_MAP, name), true;
    return weft_jj_attr(j, f->v, name, out);
}

static bool filter_tojson(jj *j, const filter_call *f, jj_value *out) {
    return weft_jj_tojson(j, f->v, f->call, out);
}

static const struct filter {
    const char *name, *params; /* params NULL: takes the call as it is */
    size_t required;
    filter_fn run;
} filters[] = {
    {"abs", "", 0, filter_abs},
    {"attr", "name", 1, filter_attr},
    {"batch", "linecount fill_with", 1, filter_batch},
    {"capitalize", "", 0, filter_capitalize},
    {"center", "width", 0, filter_center},
    {"count", "", 0, filter_length},
    {"d", "default_value boolean", 0, filter_default},
    {"default", "default_value boolean", 0, filter_default},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"e", "", 0, filter_escape},
    {"escape", "", 0, filter_escape},
    {"first", "", 0, filter_first},
    {"float", "default", 0, filter_float},
    {"forceescape", "", 0, filter_forceescape},
    {"format", NULL, 0, filter_format},
    {"groupby", "attribute default case_sensitive", 1, filter_groupby},
    {"indent", "width first blank", 0, filter_indent},
    {"int", "default base", 0, filter_int},
    {"items", "", 0, filter_items},
    {"join", "d attribute", 0, filter_join},
    {"last", "", 0, filter_last},
    {"length", "", 0, filter_length},
    {"list", "", 0, filter_list},
    {"lower", "", 0, filter_lower},
    {"map", NULL, 0, filter_map},
    {"max", "case_sensitive attribute", 0, filter_max},
    {"min", "case_sensitive attribute", 0, filter_min},
    {"reject", NULL, 0, filter_reject},
    {"rejectattr", NULL, 0, filter_rejectattr},
    {"replace", "old new count", 2, filter_replace},
    {"reverse", "", 0, filter_reverse},
    {"round", "precision method", 0, filter_round},
    {"safe", "", 0, filter_safe},
    {"select", NULL, 0, filter_select},
    {"selectattr", NULL, 0, filter_selectattr},
    {"slice", "slices fill_with", 1, filter_slice},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"string", "", 0, filter_string},
    {"sum", "attribute start", 0, filter_sum},
    {"title", "", 0, filter_title},
    {"tojson", NULL, 0, filter_tojson},
    {"trim", "chars", 0, filter_trim},
    {"truncate", "length killwords end leeway", 0, filter_truncate},
    {"unique", "case_sensitive attribute", 0, filter_unique},
    {"upper", "", 0, filter_upper},
    {"urlencode", "", 0, filter_urlencode},
    {"wordcount", "", 0, filter_wordcount},
};

int weft_jj_filter_number(const jj_str *name) {
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (weft_jj_is(name, filters[i].name)) return (int)i;
    return -1;
}

bool weft_jj_call_filter(jj *j, int number, jj_value v, const jj_call *c, jj_value *out) {
    const struct filter *f = &filters[number];
    jj_call named = *c;
    named.what = f->name;
    filter_call call = {.v = v, .call = &named};
    if (f->params && !weft_jj_bind(j, &named, f->params, f->required, call.arg)) return false;
    return f->run(j, &call, out);
}

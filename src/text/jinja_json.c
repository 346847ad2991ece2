/* jinja_json.c: the filter tojson as transformers defines it: json.dumps(value, ensure_ascii=False, indent=None, separators=None,
 * sort_keys=False) of Python. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_run.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

typedef struct writer {
    jj *j;
    jj_sb b;
    bool ascii, sort;
    const jj_str *indent;     /* of one level; NULL: all in one line */
    const jj_str *item, *key; /* what stands after a value, after a key */
    int level;
} writer;

static void add_json_str(writer *w, const jj_str *s) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    jj_sb *b = &w->b;
    weft_jj_sb_addz(b, "\"");
    size_t plain = 0;
    for (size_t at = 0, len; at < s->n && !b->failed; at += len) {
        unsigned char c = (unsigned char)s->p[at];
        len = 1;
        if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') continue;
        int32_t cp = c;
        if (c >= 0x80) len = weft_utf8_next(s->p + at, s->n - at, &cp);
        char buf[16];
        const char *known = c < 0x80 ? memchr(from, c, sizeof from - 1) : NULL;
        if (known)
            snprintf(buf, sizeof buf, "\\%c", to[known - from]);
        else if (c < 0x20 || (cp < 0x10000 && cp > 0x7E && w->ascii))
            snprintf(buf, sizeof buf, "\\u%04x", (unsigned)cp);
        else if (cp >= 0x10000 && w->ascii)
            snprintf(buf, sizeof buf, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (cp >> 10)), (unsigned)(0xDC00 | (cp & 0x3FF)));
        else
            continue;
        weft_jj_sb_add_part(b, s, plain, at);
        weft_jj_sb_add(b, buf, strlen(buf), weft_jj_data_at(s, at));
        plain = at + len;
    }
    weft_jj_sb_add_part(b, s, plain, s->n);
    weft_jj_sb_addz(b, "\"");
}

static void add_json_float(jj_sb *b, double f) {
    if (isnan(f) || isinf(f))
        weft_jj_sb_addz(b, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    else
        weft_jj_add_float(b, f);
}

static void line(writer *w) {
    if (!w->indent) return;
    weft_jj_sb_addz(&w->b, "\n");
    for (int i = 0; i < w->level && !w->b.failed; i++) weft_jj_sb_add_str(&w->b, w->indent);
}

static bool add_json_key(writer *w, jj_value key) {
    jj_sb *b = &w->b;
    if (key.kind == JJ_STR) return add_json_str(w, key.s), !b->failed;
    weft_jj_sb_addz(b, "\"");
    switch ((jj_kind)key.kind) {
    case JJ_BOOL: weft_jj_sb_addz(b, key.b ? "true" : "false"); break;
    case JJ_NONE: weft_jj_sb_addz(b, "null"); break;
    case JJ_FLOAT: add_json_float(b, key.f); break;
    case JJ_INT:
    case JJ_BIG: weft_jj_add_repr(b, key); break;
    default: return weft_jj_type_error(w->j, "keys must be str, int, float, bool or None, not %s", weft_jj_type(key));
    }
    weft_jj_sb_addz(b, "\"");
    return !b->failed;
}

static bool add_json(writer *w, jj_value v);

static bool add_json_list(writer *w, const jj_list *l) {
    weft_jj_sb_addz(&w->b, "[");
    w->level++;
    for (size_t i = 0; i < l->n; i++) {
        if (i) weft_jj_sb_add_str(&w->b, w->item);
        line(w);
        if (!add_json(w, l->v[i])) return false;
    }
    w->level--;
    if (l->n) line(w);
    weft_jj_sb_addz(&w->b, "]");
    return true;
}

static bool sorted_entries(writer *w, const jj_map *m, const jj_entry **out) {
    jj_value keys, numbers, order;
    jj_entry *copy = weft_jj_get(w->j, m->n, sizeof *copy);
    if (!copy || !weft_jj_list(w->j, m->n, &keys) || !weft_jj_list(w->j, m->n, &numbers)) return false;
    for (size_t i = 0; i < m->n; i++) {
        keys.list->v[keys.list->n++] = m->v[i].key;
        numbers.list->v[numbers.list->n++] = weft_jj_int((int64_t)i);
    }
    if (!weft_jj_sort(w->j, numbers.list, keys.list->v, false, &order)) return false;
    for (size_t i = 0; i < m->n; i++) copy[i] = m->v[order.list->v[i].i];
    *out = copy;
    return true;
}

static bool add_json_map(writer *w, const jj_map *m) {
    const jj_entry *e = m->v;
    if (w->sort && !sorted_entries(w, m, &e)) return false;
    weft_jj_sb_addz(&w->b, "{");
    w->level++;
    for (size_t i = 0; i < m->n; i++) {
        if (i) weft_jj_sb_add_str(&w->b, w->item);
        line(w);
        if (!add_json_key(w, e[i].key)) return false;
        weft_jj_sb_add_str(&w->b, w->key);
        if (!add_json(w, e[i].value)) return false;
    }
    w->level--;
    if (m->n) line(w);
    weft_jj_sb_addz(&w->b, "}");
    return true;
}

static bool add_json(writer *w, jj_value v) {
    if (w->b.failed || !weft_jj_spend(w->j, 1) || !weft_jj_enter(w->j)) return false;
    bool ok = true;
    switch ((jj_kind)v.kind) {
    case JJ_NONE: weft_jj_sb_addz(&w->b, "null"); break;
    case JJ_BOOL: weft_jj_sb_addz(&w->b, v.b ? "true" : "false"); break;
    case JJ_INT:
    case JJ_BIG: weft_jj_add_repr(&w->b, v); break;
    case JJ_FLOAT: add_json_float(&w->b, v.f); break;
    case JJ_STR: add_json_str(w, v.s); break;
    case JJ_LIST:
    case JJ_TUPLE: ok = add_json_list(w, v.list); break;
    case JJ_MAP: ok = add_json_map(w, v.map); break;
    default: ok = weft_jj_type_error(w->j, "Object of type %s is not JSON serializable", weft_jj_type(v)); break;
    }
    weft_jj_leave(w->j);
    return ok && !w->b.failed;
}

/* The two separators, from a list or tuple. */
static bool separators(writer *w, const jj_call *c, jj_value v) {
    if ((v.kind != JJ_LIST && v.kind != JJ_TUPLE) || v.list->n != 2)
        return weft_jj_type_error(w->j, "separators must be two strings");
    return weft_jj_str_arg(w->j, c, v.list->v[0], &w->item) && weft_jj_str_arg(w->j, c, v.list->v[1], &w->key);
}

bool weft_jj_tojson(jj *j, jj_value v, const jj_call *c, jj_value *out) {
    jj_value arg[4], text;
    writer w = {.j = j, .b = {.j = j}};
    if (!weft_jj_bind(j, c, "ensure_ascii indent separators sort_keys", 0, arg)) return false;
    w.ascii = weft_jj_truth(arg[0]);
    w.sort = weft_jj_truth(arg[3]);
    jj_value indent = arg[1];
    if (indent.kind == JJ_STR) {
        w.indent = indent.s;
    } else if (indent.kind != JJ_MISSING && indent.kind != JJ_NONE) {
        int64_t n;
        if (!weft_jj_int_arg(j, c, indent, 0, &n)) return false;
        jj_sb b = {.j = j};
        for (; n > 0 && !b.failed; n--) weft_jj_sb_addz(&b, " ");
        if (!weft_jj_sb_end(&b, false, &text)) return false;
        w.indent = text.s;
    }
    if (!weft_jj_text(j, w.indent ? "," : ", ", &text)) return false;
    w.item = text.s;
    if (!weft_jj_text(j, ": ", &text)) return false;
    w.key = text.s;
    if (arg[2].kind != JJ_MISSING && arg[2].kind != JJ_NONE && !separators(&w, c, arg[2])) return false;
    return add_json(&w, v) && weft_jj_sb_end(&w.b, false, out);
}

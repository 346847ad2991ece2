/* jinja_access.c: what is inside values: iteration, attributes, items, slices. */
#include <string.h>

#include "text/jinja_run.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

/* ---- iteration ----------------------------------------------------------------------------------------------------------- */

bool weft_jj_length(jj_value v, size_t *n) {
    switch ((jj_kind)v.kind) {
    case JJ_UNDEFINED: return *n = 0, true;
    case JJ_STR: return *n = v.s->chars, true;
    case JJ_LIST:
    case JJ_TUPLE: return *n = v.list->n, true;
    case JJ_MAP:
    case JJ_VIEW: return *n = v.map->n, true;
    case JJ_RANGE: return *n = ((const jj_range *)v.p)->n, true;
    default: return false;
    }
}

bool weft_jj_iterable(jj_value v) {
    size_t n;
    return v.kind == JJ_ITER || weft_jj_length(v, &n);
}

bool weft_jj_iterate(jj *j, jj_value v, jj_iter *it) {
    if (!weft_jj_iterable(v)) return weft_jj_type_error(j, "'%s' object is not iterable", weft_jj_type(v));
    *it = (jj_iter){.source = v};
    return true;
}

static jj_step next_generated(jj *j, jj_gen *g, jj_value *out) {
    if (g->kind == JJ_G_MAP) {
        jj_value item;
        jj_step step = weft_jj_next(j, &g->in, &item);
        if (step != JJ_GOT) return step;
        bool ok = g->attribute ? weft_jj_follow(j, item, g->attribute, g->fallback, out)
                               : weft_jj_call_filter(j, g->number, item, &g->call, out);
        return ok ? JJ_GOT : JJ_FAILED;
    }
    for (;;) {
        jj_step step = weft_jj_next(j, &g->in, out);
        if (step != JJ_GOT || g->kind == JJ_G_LIST) return step;
        bool holds;
        jj_value probe = *out;
        if (g->kind == JJ_G_TEST) {
            if (!weft_jj_loop_test(j, g, *out, &holds)) return JJ_FAILED;
        } else {
            if (g->attribute && !weft_jj_follow(j, *out, g->attribute, (jj_value){0}, &probe)) return JJ_FAILED;
            if (!g->name)
                holds = weft_jj_truth(probe);
            else if (!weft_jj_call_test(j, g->number, probe, &g->call, &holds))
                return JJ_FAILED;
        }
        if (holds != g->negate) return JJ_GOT;
    }
}

jj_step weft_jj_next(jj *j, jj_iter *it, jj_value *out) {
    jj_value s = it->source;
    if (!weft_jj_spend(j, 1)) return JJ_FAILED;
    switch ((jj_kind)s.kind) {
    case JJ_STR: {
        if (it->at >= s.s->n) return JJ_ENDED;
        int32_t cp;
        size_t len = weft_utf8_next(s.s->p + it->at, s.s->n - it->at, &cp);
        const jj_str *c = weft_jj_part(j, s.s, it->at, it->at + len);
        if (!c || !(c = weft_jj_with_safe(j, c, false))) return JJ_FAILED;
        it->at += len;
        *out = weft_jj_of_str(c);
        return JJ_GOT;
    }
    case JJ_LIST:
    case JJ_TUPLE:
        if (it->at >= s.list->n) return JJ_ENDED;
        *out = s.list->v[it->at++];
        return JJ_GOT;
    case JJ_MAP:
    case JJ_VIEW: {
        if (it->at >= s.map->n) return JJ_ENDED;
        const jj_entry *e = &s.map->v[it->at++];
        if (s.kind == JJ_VIEW && s.aux == JJ_ITEMS) return weft_jj_pair(j, e->key, e->value, out) ? JJ_GOT : JJ_FAILED;
        *out = s.kind == JJ_VIEW && s.aux == JJ_VALUES ? e->value : e->key;
        return JJ_GOT;
    }
    case JJ_RANGE: {
        const jj_range *r = s.p;
        if (it->at >= r->n) return JJ_ENDED;
        *out = weft_jj_int(r->start + (int64_t)it->at++ * r->step);
        return JJ_GOT;
    }
    case JJ_ITER: {
        if (!weft_jj_enter(j)) return JJ_FAILED;
        jj_step step = next_generated(j, (jj_gen *)(uintptr_t)s.p, out);
        weft_jj_leave(j);
        return step;
    }
    default: return JJ_ENDED;
    }
}

bool weft_jj_collect(jj *j, jj_value v, jj_value *out) {
    jj_iter it;
    jj_value item, list;
    jj_step step;
    size_t n = 0;
    if (!weft_jj_iterate(j, v, &it)) return false;
    weft_jj_length(v, &n);
    if (!weft_jj_list(j, n, &list)) return false;
    while ((step = weft_jj_next(j, &it, &item)) == JJ_GOT)
        if (!weft_jj_push(j, list.list, item)) return false;
    *out = list;
    return step == JJ_ENDED;
}

bool weft_jj_gen(jj *j, jj_value list, jj_value *out) {
    jj_gen *g = weft_jj_get(j, 1, sizeof *g);
    if (!g) return false;
    *g = (jj_gen){.kind = JJ_G_LIST, .in = {.source = list}};
    *out = (jj_value){.kind = JJ_ITER};
    out->p = g;
    return true;
}

/* ---- attributes and items ------------------------------------------------------------------------------------------------ */

static jj_value no_attribute(jj_value of, const jj_str *name) {
    return weft_jj_undefined(JJ_NO_ATTRIBUTE + of.kind, name);
}

/* What getattr() of Python finds on a value; MISSING where it finds nothing. Names that the sandbox hides give an undefined value.
 */
static bool own_attr(jj *j, jj_value of, const jj_str *name, jj_value *out) {
    *out = (jj_value){.kind = JJ_MISSING};
    switch ((jj_kind)of.kind) {
    case JJ_NAMESPACE: {
        const jj_value *v = weft_jj_find(of.map, name);
        if (v) *out = name->n && name->p[0] == '_' ? weft_jj_undefined(JJ_NO_ACCESS, name) : *v;
        return true;
    }
    case JJ_LOOP:
    case JJ_CYCLER:
    case JJ_MACRO: return weft_jj_loop_attr(j, of, name, out);
    case JJ_TUPLE:
        if (of.aux == 1 && weft_jj_is(name, "grouper")) return *out = of.list->v[0], true;
        if (of.aux == 1 && weft_jj_is(name, "list")) return *out = of.list->v[1], true;
        break;
    case JJ_STR:
    case JJ_LIST:
    case JJ_MAP: break;
    default: return true;
    }
    if (weft_jj_forbidden((jj_kind)of.kind, name)) return *out = weft_jj_undefined(JJ_NO_ACCESS, name), true;
    int method = weft_jj_method_number((jj_kind)of.kind, name);
    if (method < 0) return true;
    jj_bound *b = weft_jj_get(j, 1, sizeof *b);
    if (!b) return false;
    *b = (jj_bound){of, method};
    *out = (jj_value){.kind = JJ_METHOD};
    out->p = b;
    return true;
}

bool weft_jj_attr(jj *j, jj_value of, const jj_str *name, jj_value *out) {
    if (of.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, of);
    if (!own_attr(j, of, name, out)) return false;
    if (out->kind != JJ_MISSING) return true;
    const jj_value *v = of.kind == JJ_MAP ? weft_jj_find(of.map, name) : NULL;
    *out = v ? *v : no_attribute(of, name);
    return true;
}

static bool char_at(jj *j, const jj_str *s, size_t k, jj_value *out) {
    size_t from = weft_jj_byte_at(s, k);
    int32_t cp;
    size_t len = weft_utf8_next(s->p + from, s->n - from, &cp);
    const jj_str *c = weft_jj_spend(j, from / 64) ? weft_jj_part(j, s, from, from + len) : NULL;
    if (!c) return false;
    *out = weft_jj_of_str(c);
    return true;
}

bool weft_jj_item(jj *j, jj_value of, jj_value key, jj_value *out) {
    if (of.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, of);
    size_t n;
    if (of.kind == JJ_MAP) {
        jj_value *v = NULL;
        bool hashable = key.kind != JJ_LIST && key.kind != JJ_MAP && key.kind != JJ_VIEW;
        if (key.kind == JJ_STR)
            v = weft_jj_find(of.map, key.s);
        else if (hashable && !weft_jj_lookup(j, of.map, key, &v))
            return false;
        if (v) return *out = *v, true;
    } else if ((key.kind == JJ_INT || key.kind == JJ_BOOL) && of.kind != JJ_VIEW && weft_jj_length(of, &n)) {
        int64_t k = key.kind == JJ_BOOL ? key.b : key.i;
        if (k < 0) k += (int64_t)n;
        if (k >= 0 && (uint64_t)k < n) {
            if (of.kind == JJ_STR) return char_at(j, of.s, (size_t)k, out);
            const jj_range *r = of.p;
            *out = of.kind == JJ_RANGE ? weft_jj_int(r->start + k * r->step) : of.list->v[k];
            return true;
        }
    }
    if (key.kind == JJ_STR) {
        if (!own_attr(j, of, key.s, out)) return false;
        if (out->kind != JJ_MISSING) return true;
    }
    *out = no_attribute(of, key.kind == JJ_STR ? key.s : NULL);
    return true;
}

bool weft_jj_attribute_path(jj *j, jj_value attribute, jj_list **out) {
    jj_value list, part;
    if (!weft_jj_list(j, 1, &list)) return false;
    *out = list.list;
    if (attribute.kind == JJ_MISSING || attribute.kind == JJ_NONE) return true;
    if (attribute.kind != JJ_STR) return weft_jj_push(j, *out, attribute);
    const jj_str *s = attribute.s;
    for (size_t from = 0; from <= s->n;) {
        const char *dot = memchr(s->p + from, '.', s->n - from);
        size_t to = dot ? (size_t)(dot - s->p) : s->n, digits = from;
        while (digits < to && s->p[digits] >= '0' && s->p[digits] <= '9') digits++;
        const jj_str *name = weft_jj_part(j, s, from, to);
        if (!name) return false;
        part = weft_jj_of_str(name);
        if (digits == to && to > from && !weft_jj_parse_int(j, s->p + from, to - from, 10, &part)) return false;
        if (!weft_jj_push(j, *out, part)) return false;
        from = to + 1;
    }
    return true;
}

bool weft_jj_follow(jj *j, jj_value v, const jj_list *path, jj_value fallback, jj_value *out) {
    for (size_t i = 0; i < path->n; i++) {
        if (!weft_jj_item(j, v, path->v[i], &v)) return false;
        if (v.kind == JJ_UNDEFINED && fallback.kind != JJ_MISSING && fallback.kind != JJ_NONE) v = fallback;
    }
    *out = v;
    return true;
}

/* ---- slices -------------------------------------------------------------------------------------------------------------- */

static bool slice_index(jj *j, jj_value v, int64_t fallback, int64_t *out) {
    if (v.kind == JJ_NONE || v.kind == JJ_MISSING) return *out = fallback, true;
    if (v.kind == JJ_INT || v.kind == JJ_BOOL) return *out = v.kind == JJ_BOOL ? v.b : v.i, true;
    return weft_jj_type_error(j, "slice indices must be integers or None, not '%s'", weft_jj_type(v));
}

static int64_t clamp(int64_t i, int64_t n, bool down) {
    if (i < 0) i = i < -n ? (down ? -1 : 0) : i + n;
    if (i >= n) return down ? n - 1 : n;
    return i < 0 ? (down ? -1 : 0) : i;
}

static bool slice_str(jj *j, const jj_str *s, int64_t from, int64_t step, size_t count, jj_value *out) {
    if (step == 1 || count <= 1) {
        size_t a = weft_jj_byte_at(s, (size_t)from), b = weft_jj_byte_at(s, (size_t)from + count);
        const jj_str *part = weft_jj_spend(j, s->n / 64) ? weft_jj_part(j, s, a, b) : NULL;
        if (part) *out = weft_jj_of_str(part);
        return part != NULL;
    }
    size_t *at = weft_jj_get(j, s->chars + 1, sizeof *at), k = 0;
    if (!at) return false;
    for (size_t i = 0; i < s->n; i++)
        if (((unsigned char)s->p[i] & 0xC0) != 0x80) at[k++] = i;
    at[k] = s->n;
    jj_sb b = {.j = j};
    for (size_t i = 0; i < count; i++, from += step) weft_jj_sb_add_part(&b, s, at[from], at[from + 1]);
    return weft_jj_sb_end(&b, s->safe, out);
}

bool weft_jj_slice(jj *j, jj_value of, jj_value from_value, jj_value to_value, jj_value step_value, jj_value *out) {
    if (of.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, of);
    if (of.kind != JJ_STR && of.kind != JJ_LIST && of.kind != JJ_TUPLE && of.kind != JJ_RANGE)
        return weft_jj_type_error(j, "'%s' object cannot be sliced", weft_jj_type(of));
    size_t length = 0;
    weft_jj_length(of, &length);
    int64_t n = (int64_t)length, step = 1, from = 0, to = 0;
    if (!slice_index(j, step_value, 1, &step)) return false;
    if (step == 0) return weft_jj_fail(j, WEFT_EFORMAT, "slice step cannot be zero");
    bool down = step < 0;
    if (!slice_index(j, from_value, down ? INT64_MAX : 0, &from) || !slice_index(j, to_value, down ? INT64_MIN : INT64_MAX, &to))
        return false;
    from = clamp(from, n, down);
    to = clamp(to, n, down);
    if (step < -n) step = -n - 1; /* as far, and no overflow */
    if (step > n) step = n + 1;
    size_t count =
        down ? (from > to ? (size_t)((from - to - 1) / -step + 1) : 0) : (to > from ? (size_t)((to - from - 1) / step + 1) : 0);
    if (of.kind == JJ_STR) {
        if (count == 0) from = 0;
        return slice_str(j, of.s, from, step, count, out);
    }
    if (of.kind == JJ_RANGE) {
        const jj_range *r = of.p;
        jj_range *part = weft_jj_get(j, 1, sizeof *part);
        if (!part) return false;
        *part = (jj_range){r->start + from * r->step, r->start + to * r->step, r->step * step, count};
        *out = of;
        out->p = part;
        return true;
    }
    jj_value list;
    if (!weft_jj_list(j, count, &list) || !weft_jj_spend(j, count / 4)) return false;
    for (size_t i = 0; i < count; i++, from += step) list.list->v[i] = of.list->v[from];
    list.list->n = count;
    list.kind = of.kind;
    *out = list;
    return true;
}

/* jinja_methods.c: the methods of strings, lists, dicts, loops and cyclers. Those that would change a value are not for templates:
 * jinja2's immutable sandbox hides them. */
#include <string.h>

#include <utf8proc.h>

#include "text/jinja_run.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

/* Every method has self, its arguments in order (MISSING where not given) and the call. */
typedef struct method_call {
    jj_value self;
    jj_value arg[4];
    const jj_call *call;
} method_call;

typedef bool (*method_fn)(jj *j, const method_call *m, jj_value *out);

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

static bool is_absent(jj_value v) {
    return v.kind == JJ_MISSING || v.kind == JJ_NONE;
}

/* Characters [start, end) of s as Python clamps them, in bytes. False, with *none set, for a start beyond the end. */
static bool byte_range(jj *j, const method_call *m, jj_value start, jj_value end, size_t *from, size_t *to, bool *none) {
    const jj_str *s = m->self.s;
    int64_t n = (int64_t)s->chars, a = 0, b = n;
    if (!is_absent(start) && !weft_jj_int_arg(j, m->call, start, 0, &a)) return false;
    if (!is_absent(end) && !weft_jj_int_arg(j, m->call, end, n, &b)) return false;
    if (a < 0) a = a < -n ? 0 : a + n;
    if (b < 0) b = b < -n ? 0 : b + n;
    if (b > n) b = n;
    *none = a > n || a > b;
    if (*none) return true;
    *from = weft_jj_byte_at(s, (size_t)a);
    *to = weft_jj_byte_at(s, (size_t)b);
    return weft_jj_spend(j, s->chars == s->n ? 0 : s->n / 8);
}

static bool give_part(jj *j, const jj_str *s, size_t from, size_t to, jj_value *out) {
    const jj_str *part = weft_jj_part(j, s, from, to);
    if (part) *out = weft_jj_of_str(part);
    return part != NULL;
}

static bool push_part(jj *j, jj_list *l, const jj_str *s, size_t from, size_t to) {
    jj_value v;
    return give_part(j, s, from, to, &v) && weft_jj_push(j, l, v);
}

/* ---- searching ----------------------------------------------------------------------------------------------------------- */

static bool search(jj *j, const method_call *m, bool last, size_t *byte) {
    const jj_str *needle;
    size_t from = 0, to = 0;
    bool none;
    *byte = SIZE_MAX;
    if (!weft_jj_str_arg(j, m->call, m->arg[0], &needle) || !byte_range(j, m, m->arg[1], m->arg[2], &from, &to, &none))
        return false;
    return none || weft_jj_search(j, m->self.s, needle, from, to, last, byte);
}

static bool give_index(jj *j, const method_call *m, size_t byte, jj_value *out) {
    if (byte == SIZE_MAX) return *out = weft_jj_int(-1), true;
    if (!weft_jj_spend(j, byte / 16)) return false;
    const jj_str *s = m->self.s;
    *out = weft_jj_int((int64_t)(s->chars == s->n ? byte : weft_jj_count_chars(s->p, byte)));
    return true;
}

static bool str_find(jj *j, const method_call *m, jj_value *out) {
    size_t byte;
    return search(j, m, false, &byte) && give_index(j, m, byte, out);
}

static bool str_rfind(jj *j, const method_call *m, jj_value *out) {
    size_t byte;
    return search(j, m, true, &byte) && give_index(j, m, byte, out);
}

static bool str_index(jj *j, const method_call *m, jj_value *out) {
    if (!str_find(j, m, out)) return false;
    return out->i >= 0 || weft_jj_fail(j, WEFT_EFORMAT, "substring not found");
}

static bool str_rindex(jj *j, const method_call *m, jj_value *out) {
    if (!str_rfind(j, m, out)) return false;
    return out->i >= 0 || weft_jj_fail(j, WEFT_EFORMAT, "substring not found");
}

static bool str_count(jj *j, const method_call *m, jj_value *out) {
    const jj_str *needle;
    size_t from = 0, to = 0, at;
    bool none;
    int64_t n = 0;
    if (!weft_jj_str_arg(j, m->call, m->arg[0], &needle) || !byte_range(j, m, m->arg[1], m->arg[2], &from, &to, &none))
        return false;
    if (!none && needle->n == 0) {
        n = (int64_t)weft_jj_count_chars(m->self.s->p + from, to - from) + 1;
    } else if (!none) {
        for (;; n++, from = at + needle->n) {
            if (!weft_jj_search(j, m->self.s, needle, from, to, false, &at)) return false;
            if (at == SIZE_MAX) break;
        }
    }
    *out = weft_jj_int(n);
    return true;
}

static bool has_affix(jj *j, const method_call *m, bool end, jj_value *out) {
    size_t from = 0, to = 0;
    bool none, found = false;
    if (!byte_range(j, m, m->arg[1], m->arg[2], &from, &to, &none)) return false;
    jj_value v = m->arg[0];
    jj_list one = {&v, 1, 1};
    const jj_list *l = v.kind == JJ_TUPLE ? v.list : &one;
    for (size_t i = 0; i < l->n && !found; i++) {
        const jj_str *affix;
        if (!weft_jj_str_arg(j, m->call, l->v[i], &affix) || !weft_jj_spend(j, 1 + affix->n / 64)) return false;
        if (!none && affix->n <= to - from) found = memcmp(m->self.s->p + (end ? to - affix->n : from), affix->p, affix->n) == 0;
    }
    *out = weft_jj_bool(found);
    return true;
}

static bool str_startswith(jj *j, const method_call *m, jj_value *out) {
    return has_affix(j, m, false, out);
}

static bool str_endswith(jj *j, const method_call *m, jj_value *out) {
    return has_affix(j, m, true, out);
}

/* ---- cutting ------------------------------------------------------------------------------------------------------------- */

/* Whether the character at p is one of `chars`, NULL: whitespace. */
static bool strips(const jj_str *chars, const char *p, size_t n, size_t *len) {
    int32_t cp;
    *len = weft_utf8_next(p, n, &cp);
    if (!chars) return weft_jj_is_space(cp);
    for (size_t i = 0; i + *len <= chars->n; i++)
        if (memcmp(chars->p + i, p, *len) == 0) return true;
    return false;
}

static bool strip(jj *j, const method_call *m, bool left, bool right, jj_value *out) {
    const jj_str *s = m->self.s, *chars = NULL;
    if (!is_absent(m->arg[0]) && !weft_jj_str_arg(j, m->call, m->arg[0], &chars)) return false;
    size_t from = 0, to = s->n, len;
    while (left && from < to && strips(chars, s->p + from, to - from, &len)) from += len;
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s->p[at] & 0xC0) == 0x80) at--;
        if (!strips(chars, s->p + at, to - at, &len)) break;
        to = at;
    }
    return weft_jj_spend(j, (s->n - (to - from)) * (chars ? 1 + chars->n / 8 : 1) / 8) && give_part(j, s, from, to, out);
}

static bool str_strip(jj *j, const method_call *m, jj_value *out) {
    return strip(j, m, true, true, out);
}

static bool str_lstrip(jj *j, const method_call *m, jj_value *out) {
    return strip(j, m, true, false, out);
}

static bool str_rstrip(jj *j, const method_call *m, jj_value *out) {
    return strip(j, m, false, true, out);
}

static bool str_removeprefix(jj *j, const method_call *m, jj_value *out) {
    const jj_str *s = m->self.s, *affix;
    if (!weft_jj_str_arg(j, m->call, m->arg[0], &affix)) return false;
    bool has = affix->n <= s->n && memcmp(s->p, affix->p, affix->n) == 0;
    return give_part(j, s, has ? affix->n : 0, s->n, out);
}

static bool str_removesuffix(jj *j, const method_call *m, jj_value *out) {
    const jj_str *s = m->self.s, *affix;
    if (!weft_jj_str_arg(j, m->call, m->arg[0], &affix)) return false;
    bool has = affix->n <= s->n && memcmp(s->p + s->n - affix->n, affix->p, affix->n) == 0;
    return give_part(j, s, 0, has ? s->n - affix->n : s->n, out);
}

static bool split_space(jj *j, const jj_str *s, int64_t most, jj_list *l) {
    size_t at = weft_jj_space_left(s->p, s->n);
    for (; at < s->n; most--) {
        if (most == 0) return push_part(j, l, s, at, s->n);
        size_t end = at, len;
        while (end < s->n && !strips(NULL, s->p + end, s->n - end, &len)) end += len;
        if (!push_part(j, l, s, at, end)) return false;
        at = end + weft_jj_space_left(s->p + end, s->n - end);
    }
    return true;
}

static void reverse_list(jj_list *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        jj_value v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static bool rsplit_space(jj *j, const jj_str *s, int64_t most, jj_list *l) {
    size_t end = weft_jj_trimmed_right(s->p, s->n);
    for (; end > 0; most--) {
        size_t at = end;
        if (most == 0) {
            at = 0;
        } else {
            while (at > 0) {
                size_t before = at - 1, len;
                while (before > 0 && ((unsigned char)s->p[before] & 0xC0) == 0x80) before--;
                if (strips(NULL, s->p + before, at - before, &len)) break;
                at = before;
            }
        }
        if (!push_part(j, l, s, at, end)) return false;
        end = most == 0 ? 0 : weft_jj_trimmed_right(s->p, at);
    }
    reverse_list(l);
    return true;
}

static bool split(jj *j, const method_call *m, bool last, jj_value *out) {
    const jj_str *s = m->self.s, *sep = NULL;
    int64_t most;
    if (!weft_jj_int_arg(j, m->call, m->arg[1], -1, &most) || !weft_jj_list(j, 0, out) || !weft_jj_spend(j, s->n / 16))
        return false;
    if (is_absent(m->arg[0])) return last ? rsplit_space(j, s, most, out->list) : split_space(j, s, most, out->list);
    if (!weft_jj_str_arg(j, m->call, m->arg[0], &sep)) return false;
    if (sep->n == 0) return weft_jj_fail(j, WEFT_EFORMAT, "empty separator");
    size_t from = 0, to = s->n, at;
    for (; most != 0; most--) {
        if (!weft_jj_search(j, s, sep, from, to, last, &at)) return false;
        if (at == SIZE_MAX) break;
        if (!(last ? push_part(j, out->list, s, at + sep->n, to) : push_part(j, out->list, s, from, at))) return false;
        if (last)
            to = at;
        else
            from = at + sep->n;
    }
    if (!push_part(j, out->list, s, from, to)) return false;
    if (last) reverse_list(out->list);
    return true;
}

static bool str_split(jj *j, const method_call *m, jj_value *out) {
    return split(j, m, false, out);
}

static bool str_rsplit(jj *j, const method_call *m, jj_value *out) {
    return split(j, m, true, out);
}

static bool str_splitlines(jj *j, const method_call *m, jj_value *out) {
    const jj_str *s = m->self.s;
    bool keep = weft_jj_truth(m->arg[0]);
    if (!weft_jj_list(j, 0, out) || !weft_jj_spend(j, s->n / 8)) return false;
    for (size_t from = 0; from < s->n;) {
        size_t to = from, end;
        while (to < s->n && !weft_jj_line_end(s->p + to, s->n - to)) to++;
        end = to + weft_jj_line_end(s->p + to, s->n - to);
        if (!push_part(j, out->list, s, from, keep ? end : to)) return false;
        from = end;
    }
    return true;
}

static bool partition(jj *j, const method_call *m, bool last, jj_value *out) {
    const jj_str *s = m->self.s, *sep;
    size_t at;
    if (!weft_jj_str_arg(j, m->call, m->arg[0], &sep) || !weft_jj_list(j, 3, out)) return false;
    if (sep->n == 0) return weft_jj_fail(j, WEFT_EFORMAT, "empty separator");
    if (!weft_jj_search(j, s, sep, 0, s->n, last, &at)) return false;
    out->kind = JJ_TUPLE;
    size_t a = at != SIZE_MAX ? at : last ? 0 : s->n, b = at != SIZE_MAX ? at + sep->n : a;
    return push_part(j, out->list, s, 0, a) && push_part(j, out->list, s, a, b) && push_part(j, out->list, s, b, s->n);
}

static bool str_partition(jj *j, const method_call *m, jj_value *out) {
    return partition(j, m, false, out);
}

static bool str_rpartition(jj *j, const method_call *m, jj_value *out) {
    return partition(j, m, true, out);
}

/* ---- changing ------------------------------------------------------------------------------------------------------------ */

static bool give_case(jj *j, const method_call *m, jj_case how, jj_value *out) {
    jj_sb b = {.j = j};
    weft_jj_add_case(&b, m->self.s, 0, m->self.s->n, how);
    return weft_jj_sb_end(&b, m->self.s->safe, out);
}

static bool str_upper(jj *j, const method_call *m, jj_value *out) {
    return give_case(j, m, JJ_UPPER, out);
}

static bool str_lower(jj *j, const method_call *m, jj_value *out) {
    return give_case(j, m, JJ_LOWER, out);
}

static bool str_title(jj *j, const method_call *m, jj_value *out) {
    return give_case(j, m, JJ_TITLE, out);
}

static bool str_capitalize(jj *j, const method_call *m, jj_value *out) {
    return give_case(j, m, JJ_CAPITALIZE, out);
}

static bool str_swapcase(jj *j, const method_call *m, jj_value *out) {
    return give_case(j, m, JJ_SWAP, out);
}

static bool str_casefold(jj *j, const method_call *m, jj_value *out) {
    const jj_str *s = m->self.s;
    jj_sb b = {.j = j};
    for (size_t at = 0, len; at < s->n && !b.failed; at += len) {
        int32_t cp, folded[8];
        int last = 0;
        len = weft_utf8_next(s->p + at, s->n - at, &cp);
        utf8proc_ssize_t n = utf8proc_decompose_char(cp, folded, 8, UTF8PROC_CASEFOLD, &last);
        for (utf8proc_ssize_t i = 0; i < n && i < 8; i++) {
            char utf8[4];
            weft_jj_sb_add(&b, utf8, weft_utf8_put(utf8, folded[i]), weft_jj_data_at(s, at));
        }
    }
    return weft_jj_sb_end(&b, s->safe, out);
}

static bool str_replace(jj *j, const method_call *m, jj_value *out) {
    const jj_str *s = m->self.s, *old, *new;
    int64_t most;
    if (!weft_jj_str_arg(j, m->call, m->arg[0], &old) || !weft_jj_str_arg(j, m->call, m->arg[1], &new) ||
        !weft_jj_int_arg(j, m->call, m->arg[2], -1, &most))
        return false;
    jj_sb b = {.j = j};
    size_t from = 0, at = 0;
    for (bool first = true; most != 0 && !b.failed; most--, first = false) {
        if (old->n == 0) { /* before every character and at the end */
            if (!first) {
                if (from == s->n) break;
                int32_t cp;
                at = from + weft_utf8_next(s->p + from, s->n - from, &cp);
            }
        } else {
            if (!weft_jj_search(j, s, old, from, s->n, false, &at)) return false;
            if (at == SIZE_MAX) break;
        }
        weft_jj_sb_add_part(&b, s, from, at);
        if (s->safe)
            weft_jj_sb_add_escaped(&b, new);
        else
            weft_jj_sb_add_str(&b, new);
        from = at + old->n;
    }
    if (from == 0 && !b.n) return *out = m->self, !b.failed;
    weft_jj_sb_add_part(&b, s, from, s->n);
    return weft_jj_sb_end(&b, s->safe, out);
}

static bool str_join(jj *j, const method_call *m, jj_value *out) {
    const jj_str *s = m->self.s;
    jj_iter it;
    jj_value item;
    jj_step step;
    jj_sb b = {.j = j};
    if (!weft_jj_iterate(j, m->arg[0], &it)) return false;
    for (size_t i = 0; (step = weft_jj_next(j, &it, &item)) == JJ_GOT; i++) {
        if (i) weft_jj_sb_add_str(&b, s);
        const jj_str *text = item.s;
        if (s->safe) {
            if (item.kind != JJ_STR && !weft_jj_to_str(j, item, &text)) return false;
            weft_jj_sb_add_escaped(&b, text);
        } else if (item.kind != JJ_STR) {
            return weft_jj_type_error(j, "sequence item %zu: expected str instance, %s found", i, weft_jj_type(item));
        } else {
            weft_jj_sb_add_str(&b, text);
        }
    }
    return step == JJ_ENDED && weft_jj_sb_end(&b, s->safe, out);
}

/* left: of the padding that an odd number of characters leaves over, as str.center() does it. */
static bool pad(jj *j, const method_call *m, int where, jj_value *out) {
    const jj_str *s = m->self.s, *fill = NULL;
    int64_t width;
    if (!weft_jj_int_arg(j, m->call, m->arg[0], 0, &width)) return false;
    if (m->arg[1].kind != JJ_MISSING) {
        if (!weft_jj_str_arg(j, m->call, m->arg[1], &fill)) return false;
        if (fill->chars != 1) return weft_jj_type_error(j, "the fill character must be exactly one character long");
    }
    int64_t n = width - (int64_t)s->chars;
    if (n <= 0) return *out = m->self, true;
    int64_t left = where < 0 ? 0 : where > 0 ? n : n / 2 + (n & width & 1);
    jj_sb b = {.j = j};
    for (int64_t i = 0; i <= n && !b.failed; i++) {
        if (i == left) weft_jj_sb_add_str(&b, s);
        if (i == n) break;
        if (fill)
            weft_jj_sb_add_str(&b, fill);
        else
            weft_jj_sb_addz(&b, " ");
    }
    return weft_jj_sb_end(&b, s->safe, out);
}

static bool str_center(jj *j, const method_call *m, jj_value *out) {
    return pad(j, m, 0, out);
}

static bool str_ljust(jj *j, const method_call *m, jj_value *out) {
    return pad(j, m, -1, out);
}

static bool str_rjust(jj *j, const method_call *m, jj_value *out) {
    return pad(j, m, 1, out);
}

static bool str_zfill(jj *j, const method_call *m, jj_value *out) {
    const jj_str *s = m->self.s;
    int64_t width;
    if (!weft_jj_int_arg(j, m->call, m->arg[0], 0, &width)) return false;
    jj_sb b = {.j = j};
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    weft_jj_sb_add_part(&b, s, 0, sign);
    for (int64_t i = (int64_t)s->chars; i < width && !b.failed; i++) weft_jj_sb_addz(&b, "0");
    weft_jj_sb_add_part(&b, s, sign, s->n);
    return weft_jj_sb_end(&b, s->safe, out);
}

static bool str_format(jj *j, const method_call *m, jj_value *out) {
    return weft_jj_format(j, m->self.s, m->call, out);
}

static bool str_format_map(jj *j, const method_call *m, jj_value *out) {
    jj_value map = m->arg[0];
    if (map.kind != JJ_MAP) return weft_jj_type_error(j, "format_map() takes a dict, not '%s'", weft_jj_type(map));
    jj_call c = {.what = "format"};
    c.key = weft_jj_get(j, map.map->n, sizeof *c.key);
    c.kw = weft_jj_get(j, map.map->n, sizeof *c.kw);
    if (!c.key || !c.kw) return false;
    for (size_t i = 0; i < map.map->n; i++) {
        if (map.map->v[i].key.kind != JJ_STR) continue;
        c.key[c.n_kw] = map.map->v[i].key.s;
        c.kw[c.n_kw++] = map.map->v[i].value;
    }
    return weft_jj_format(j, m->self.s, &c, out);
}

/* ---- asking -------------------------------------------------------------------------------------------------------------- */

typedef enum jj_class { ALPHA, DECIMAL, DIGIT, NUMERIC, ALNUM, SPACE, ASCII, PRINTABLE } jj_class;

static bool in_class(int32_t cp, jj_class class) {
    utf8proc_category_t c = utf8proc_category(cp);
    bool alpha = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT || c == UTF8PROC_CATEGORY_LM ||
                 c == UTF8PROC_CATEGORY_LO;
    bool raised = cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || (cp >= 0x2070 && cp <= 0x2089 && c == UTF8PROC_CATEGORY_NO) ||
                  (cp >= 0x2460 && cp <= 0x249B && c == UTF8PROC_CATEGORY_NO);
    switch (class) {
    case ALPHA: return alpha;
    case DECIMAL: return c == UTF8PROC_CATEGORY_ND;
    case DIGIT: return c == UTF8PROC_CATEGORY_ND || raised;
    case NUMERIC: return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    case ALNUM: return alpha || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    case SPACE: return weft_jj_is_space(cp);
    case ASCII: return cp < 0x80;
    case PRINTABLE: break;
    }
    return cp == ' ' ||
           (c != UTF8PROC_CATEGORY_CN && c != UTF8PROC_CATEGORY_CC && c != UTF8PROC_CATEGORY_CF && c != UTF8PROC_CATEGORY_CO &&
            c != UTF8PROC_CATEGORY_ZL && c != UTF8PROC_CATEGORY_ZP && c != UTF8PROC_CATEGORY_ZS);
}

static bool all_in(jj *j, const method_call *m, jj_class class, jj_value *out) {
    const jj_str *s = m->self.s;
    bool all = s->n > 0 || class == ASCII || class == PRINTABLE;
    for (size_t at = 0; all && at < s->n;) {
        int32_t cp;
        at += weft_utf8_next(s->p + at, s->n - at, &cp);
        all = in_class(cp, class);
    }
    *out = weft_jj_bool(all);
    return weft_jj_spend(j, s->n / 4);
}

static bool str_isalpha(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, ALPHA, out);
}

static bool str_isdecimal(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, DECIMAL, out);
}

static bool str_isdigit(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, DIGIT, out);
}

static bool str_isnumeric(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, NUMERIC, out);
}

static bool str_isalnum(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, ALNUM, out);
}

static bool str_isspace(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, SPACE, out);
}

static bool str_isascii(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, ASCII, out);
}

static bool str_isprintable(jj *j, const method_call *m, jj_value *out) {
    return all_in(j, m, PRINTABLE, out);
}

/* islower(), isupper(): some letter has a case, and all that have one have this. istitle(): words begin with capitals. */
static bool has_case(jj *j, const method_call *m, jj_case how, jj_value *out) {
    const jj_str *s = m->self.s;
    bool some = false, all = true, inside = false;
    for (size_t at = 0; all && at < s->n;) {
        int32_t cp;
        at += weft_utf8_next(s->p + at, s->n - at, &cp);
        utf8proc_category_t c = utf8proc_category(cp);
        bool small = c == UTF8PROC_CATEGORY_LL, large = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT;
        if (how == JJ_TITLE) all = inside ? !large : !small;
        if (how == JJ_LOWER) all = !large;
        if (how == JJ_UPPER) all = !small && c != UTF8PROC_CATEGORY_LT;
        inside = small || large;
        some |= inside;
    }
    *out = weft_jj_bool(all && some);
    return weft_jj_spend(j, s->n / 4);
}

static bool str_islower(jj *j, const method_call *m, jj_value *out) {
    return has_case(j, m, JJ_LOWER, out);
}

static bool str_isupper(jj *j, const method_call *m, jj_value *out) {
    return has_case(j, m, JJ_UPPER, out);
}

static bool str_istitle(jj *j, const method_call *m, jj_value *out) {
    return has_case(j, m, JJ_TITLE, out);
}

/* ---- lists, dicts, cyclers, loops ---------------------------------------------------------------------------------------- */

static bool list_count(jj *j, const method_call *m, jj_value *out) {
    int64_t n = 0;
    for (size_t i = 0; i < m->self.list->n; i++) {
        bool equal;
        if (!weft_jj_equal(j, m->self.list->v[i], m->arg[0], &equal)) return false;
        n += equal;
    }
    *out = weft_jj_int(n);
    return weft_jj_spend(j, m->self.list->n);
}

static bool list_index(jj *j, const method_call *m, jj_value *out) {
    int64_t n = (int64_t)m->self.list->n, from, to;
    if (!weft_jj_int_arg(j, m->call, m->arg[1], 0, &from) || !weft_jj_int_arg(j, m->call, m->arg[2], n, &to)) return false;
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to += n;
    for (int64_t i = from; i < to && i < n; i++) {
        bool equal;
        if (!weft_jj_spend(j, 1) || !weft_jj_equal(j, m->self.list->v[i], m->arg[0], &equal)) return false;
        if (equal) return *out = weft_jj_int(i), true;
    }
    return weft_jj_fail(j, WEFT_EFORMAT, "the value is not in the list");
}

static bool list_copy(jj *j, const method_call *m, jj_value *out) {
    return weft_jj_collect(j, m->self, out);
}

static bool dict_get(jj *j, const method_call *m, jj_value *out) {
    jj_value *v;
    if (!weft_jj_lookup(j, m->self.map, m->arg[0], &v)) return false;
    *out = v ? *v : m->arg[1].kind == JJ_MISSING ? weft_jj_none() : m->arg[1];
    return true;
}

static bool give_view(const method_call *m, jj_view view, jj_value *out) {
    *out = (jj_value){.kind = JJ_VIEW, .aux = (uint8_t)view};
    out->map = m->self.map;
    return true;
}

static bool dict_keys(jj *j, const method_call *m, jj_value *out) {
    (void)j;
    return give_view(m, JJ_KEYS, out);
}

static bool dict_values(jj *j, const method_call *m, jj_value *out) {
    (void)j;
    return give_view(m, JJ_VALUES, out);
}

static bool dict_items(jj *j, const method_call *m, jj_value *out) {
    (void)j;
    return give_view(m, JJ_ITEMS, out);
}

static bool dict_copy(jj *j, const method_call *m, jj_value *out) {
    if (!weft_jj_map(j, out)) return false;
    for (size_t i = 0; i < m->self.map->n; i++)
        if (!weft_jj_put(j, out->map, m->self.map->v[i].key, m->self.map->v[i].value)) return false;
    return true;
}

static bool cycler_next(jj *j, const method_call *m, jj_value *out) {
    (void)j;
    jj_cycler *c = (jj_cycler *)(uintptr_t)m->self.p;
    *out = c->items->v[c->at];
    c->at = (c->at + 1) % c->items->n;
    return true;
}

static bool cycler_reset(jj *j, const method_call *m, jj_value *out) {
    (void)j;
    ((jj_cycler *)(uintptr_t)m->self.p)->at = 0;
    *out = weft_jj_none();
    return true;
}

static bool loop_cycle(jj *j, const method_call *m, jj_value *out) {
    const jj_loop *l = m->self.p;
    if (!m->call->n) return weft_jj_type_error(j, "no items for cycling given");
    *out = m->call->arg[l->index0 % (int64_t)m->call->n];
    return true;
}

static bool loop_changed(jj *j, const method_call *m, jj_value *out) {
    jj_loop *l = (jj_loop *)(uintptr_t)m->self.p;
    jj_value now;
    bool equal;
    if (!weft_jj_list(j, m->call->n, &now)) return false;
    for (size_t i = 0; i < m->call->n; i++)
        if (!weft_jj_push(j, now.list, m->call->arg[i])) return false;
    if (!weft_jj_equal(j, l->changed, now, &equal)) return false;
    l->changed = now;
    *out = weft_jj_bool(!equal);
    return true;
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static const struct method {
    jj_kind kind;
    const char *name, *params; /* params NULL: takes the call as it is */
    size_t required;
    method_fn run;
} methods[] = {
    {JJ_STR, "capitalize", "", 0, str_capitalize},
    {JJ_STR, "casefold", "", 0, str_casefold},
    {JJ_STR, "center", "width fillchar", 1, str_center},
    {JJ_STR, "count", "sub start end", 1, str_count},
    {JJ_STR, "endswith", "suffix start end", 1, str_endswith},
    {JJ_STR, "find", "sub start end", 1, str_find},
    {JJ_STR, "format", NULL, 0, str_format},
    {JJ_STR, "format_map", "mapping", 1, str_format_map},
    {JJ_STR, "index", "sub start end", 1, str_index},
    {JJ_STR, "isalnum", "", 0, str_isalnum},
    {JJ_STR, "isalpha", "", 0, str_isalpha},
    {JJ_STR, "isascii", "", 0, str_isascii},
    {JJ_STR, "isdecimal", "", 0, str_isdecimal},
    {JJ_STR, "isdigit", "", 0, str_isdigit},
    {JJ_STR, "islower", "", 0, str_islower},
    {JJ_STR, "isnumeric", "", 0, str_isnumeric},
    {JJ_STR, "isprintable", "", 0, str_isprintable},
    {JJ_STR, "isspace", "", 0, str_isspace},
    {JJ_STR, "istitle", "", 0, str_istitle},
    {JJ_STR, "isupper", "", 0, str_isupper},
    {JJ_STR, "join", "iterable", 1, str_join},
    {JJ_STR, "ljust", "width fillchar", 1, str_ljust},
    {JJ_STR, "lower", "", 0, str_lower},
    {JJ_STR, "lstrip", "chars", 0, str_lstrip},
    {JJ_STR, "partition", "sep", 1, str_partition},
    {JJ_STR, "removeprefix", "prefix", 1, str_removeprefix},
    {JJ_STR, "removesuffix", "suffix", 1, str_removesuffix},
    {JJ_STR, "replace", "old new count", 2, str_replace},
    {JJ_STR, "rfind", "sub start end", 1, str_rfind},
    {JJ_STR, "rindex", "sub start end", 1, str_rindex},
    {JJ_STR, "rjust", "width fillchar", 1, str_rjust},
    {JJ_STR, "rpartition", "sep", 1, str_rpartition},
    {JJ_STR, "rsplit", "sep maxsplit", 0, str_rsplit},
    {JJ_STR, "rstrip", "chars", 0, str_rstrip},
    {JJ_STR, "split", "sep maxsplit", 0, str_split},
    {JJ_STR, "splitlines", "keepends", 0, str_splitlines},
    {JJ_STR, "startswith", "prefix start end", 1, str_startswith},
    {JJ_STR, "strip", "chars", 0, str_strip},
    {JJ_STR, "swapcase", "", 0, str_swapcase},
    {JJ_STR, "title", "", 0, str_title},
    {JJ_STR, "upper", "", 0, str_upper},
    {JJ_STR, "zfill", "width", 1, str_zfill},
    {JJ_LIST, "copy", "", 0, list_copy},
    {JJ_LIST, "count", "value", 1, list_count},
    {JJ_LIST, "index", "value start stop", 1, list_index},
    {JJ_TUPLE, "count", "value", 1, list_count},
    {JJ_TUPLE, "index", "value start stop", 1, list_index},
    {JJ_MAP, "copy", "", 0, dict_copy},
    {JJ_MAP, "get", "key default", 1, dict_get},
    {JJ_MAP, "items", "", 0, dict_items},
    {JJ_MAP, "keys", "", 0, dict_keys},
    {JJ_MAP, "values", "", 0, dict_values},
    {JJ_CYCLER, "next", "", 0, cycler_next},
    {JJ_CYCLER, "reset", "", 0, cycler_reset},
    {JJ_LOOP, "changed", NULL, 0, loop_changed},
    {JJ_LOOP, "cycle", NULL, 0, loop_cycle},
};

int weft_jj_method_number(jj_kind kind, const jj_str *name) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == kind && weft_jj_is(name, methods[i].name)) return (int)i;
    return -1;
}

bool weft_jj_forbidden(jj_kind kind, const jj_str *name) {
    static const char *const of_list[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", NULL};
    static const char *const of_map[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *p = kind == JJ_LIST ? of_list : kind == JJ_MAP ? of_map : NULL;
    for (; p && *p; p++)
        if (weft_jj_is(name, *p)) return true;
    return false;
}

bool weft_jj_call_method(jj *j, const jj_bound *b, const jj_call *c, jj_value *out) {
    const struct method *m = &methods[b->method];
    jj_call named = *c;
    named.what = m->name;
    method_call call = {.self = b->self, .call = &named};
    bool keywords = !m->params || m->run == str_split || m->run == str_rsplit || m->run == str_splitlines;
    if (c->n_kw && !keywords) return weft_jj_type_error(j, "%s() takes no keyword arguments", m->name);
    if (m->params && !weft_jj_bind(j, &named, m->params, m->required, call.arg)) return false;
    return m->run(j, &call, out);
}

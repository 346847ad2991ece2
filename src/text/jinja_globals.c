/* jinja_globals.c: how functions get their arguments, the tests ("is defined") and the global functions. */
#include <string.h>
#include <time.h>

#include "text/jinja_run.h"
#include "text/jinja_text.h"

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

bool weft_jj_bind(jj *j, const jj_call *c, const char *params, size_t required, jj_value *out) {
    const char *name[8];
    size_t len[8], n = 0;
    for (const char *p = params; *p; n++) {
        name[n] = p;
        len[n] = strcspn(p, " ");
        out[n] = (jj_value){.kind = JJ_MISSING};
        p += len[n] + (p[len[n]] == ' ');
    }
    if (c->n > n) return weft_jj_type_error(j, "%s() takes at most %zu arguments (%zu given)", c->what, n, c->n);
    for (size_t i = 0; i < c->n; i++) out[i] = c->arg[i];
    for (size_t k = 0; k < c->n_kw; k++) {
        size_t i = 0;
        while (i < n && !(c->key[k]->n == len[i] && memcmp(c->key[k]->p, name[i], len[i]) == 0)) i++;
        if (i == n || out[i].kind != JJ_MISSING)
            return weft_jj_type_error(j, "%s() got %s argument '%.*s'", c->what, i == n ? "an unexpected" : "twice the",
                                      (int)(c->key[k]->n < 80 ? c->key[k]->n : 80), c->key[k]->p);
        out[i] = c->kw[k];
    }
    for (size_t i = 0; i < required; i++)
        if (out[i].kind == JJ_MISSING)
            return weft_jj_type_error(j, "%s() misses its argument '%.*s'", c->what, (int)len[i], name[i]);
    return true;
}

bool weft_jj_int_arg(jj *j, const jj_call *c, jj_value v, int64_t fallback, int64_t *out) {
    switch ((jj_kind)v.kind) {
    case JJ_MISSING: return *out = fallback, true;
    case JJ_BOOL: return *out = v.b, true;
    case JJ_INT: return *out = v.i, true;
    case JJ_UNDEFINED: return weft_jj_fail_undefined(j, v);
    default: return weft_jj_type_error(j, "%s(): '%s' object cannot be interpreted as an integer", c->what, weft_jj_type(v));
    }
}

bool weft_jj_str_arg(jj *j, const jj_call *c, jj_value v, const jj_str **out) {
    if (v.kind == JJ_STR) return *out = v.s, true;
    return weft_jj_type_error(j, "%s() argument must be str, not %s", c->what, weft_jj_type(v));
}

/* ---- tests --------------------------------------------------------------------------------------------------------------- */

typedef bool (*test_fn)(jj *j, jj_value v, const jj_value *arg, bool *out);

static bool test_defined(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind != JJ_UNDEFINED, true;
}

static bool test_undefined(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_UNDEFINED, true;
}

static bool test_none(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_NONE, true;
}

static bool test_boolean(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_BOOL, true;
}

static bool test_true(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_BOOL && v.b, true;
}

static bool test_false(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_BOOL && !v.b, true;
}

static bool test_integer(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_INT || v.kind == JJ_BIG, true;
}

static bool test_float(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_FLOAT, true;
}

static bool test_number(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = weft_jj_is_number(v), true;
}

static bool test_string(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_STR, true;
}

static bool test_mapping(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_MAP, true;
}

static bool test_sequence(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    size_t n;
    return *out = weft_jj_length(v, &n) && v.kind != JJ_VIEW, true;
}

static bool test_iterable(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = weft_jj_iterable(v) || v.kind == JJ_LOOP, true;
}

static bool test_callable(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    *out = v.kind == JJ_MACRO || v.kind == JJ_FUNC || v.kind == JJ_METHOD || v.kind == JJ_LOOP || v.kind == JJ_JOINER ||
           v.kind == JJ_UNDEFINED;
    return true;
}

static bool test_sameas(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j;
    jj_value o = arg[0];
    *out = v.kind == o.kind && v.aux == o.aux && (v.kind == JJ_NONE || (v.kind == JJ_BOOL ? v.b == o.b : v.p == o.p));
    return true;
}

static bool test_escaped(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_STR && v.s->safe, true;
}

static bool remainder_is(jj *j, jj_value v, jj_value by, int64_t want, bool *out) {
    jj_value rest;
    return weft_jj_math(j, JJ_T_MOD, v, by, &rest) && weft_jj_equal(j, rest, weft_jj_int(want), out);
}

static bool test_odd(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)arg;
    return remainder_is(j, v, weft_jj_int(2), 1, out);
}

static bool test_even(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)arg;
    return remainder_is(j, v, weft_jj_int(2), 0, out);
}

static bool test_divisibleby(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return remainder_is(j, v, arg[0], 0, out);
}

static bool has_case(jj *j, jj_value v, const char *name, bool *out) {
    const jj_str *s;
    jj_value answer;
    if (!weft_jj_to_str(j, v, &s)) return false;
    jj_str method = {.p = name, .n = strlen(name)};
    jj_bound b = {weft_jj_of_str(s), weft_jj_method_number(JJ_STR, &method)};
    jj_call c = {.what = name};
    return weft_jj_call_method(j, &b, &c, &answer) && (*out = answer.b, true);
}

static bool test_lower(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)arg;
    return has_case(j, v, "islower", out);
}

static bool test_upper(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)arg;
    return has_case(j, v, "isupper", out);
}

static bool test_filter(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_STR && weft_jj_filter_number(v.s) >= 0, true;
}

static bool test_test(jj *j, jj_value v, const jj_value *arg, bool *out) {
    (void)j, (void)arg;
    return *out = v.kind == JJ_STR && weft_jj_test_number(v.s) >= 0, true;
}

static bool test_eq(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return weft_jj_compare(j, JJ_C_EQ, v, arg[0], out);
}

static bool test_ne(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return weft_jj_compare(j, JJ_C_NE, v, arg[0], out);
}

static bool test_lt(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return weft_jj_compare(j, JJ_C_LT, v, arg[0], out);
}

static bool test_le(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return weft_jj_compare(j, JJ_C_LE, v, arg[0], out);
}

static bool test_gt(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return weft_jj_compare(j, JJ_C_GT, v, arg[0], out);
}

static bool test_ge(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return weft_jj_compare(j, JJ_C_GE, v, arg[0], out);
}

static bool test_in(jj *j, jj_value v, const jj_value *arg, bool *out) {
    return weft_jj_compare(j, JJ_C_IN, v, arg[0], out);
}

static const struct test {
    const char *name, *params;
    size_t required;
    test_fn run;
} tests[] = {
    {"!=", "other", 1, test_ne},
    {"<", "other", 1, test_lt},
    {"<=", "other", 1, test_le},
    {"==", "other", 1, test_eq},
    {">", "other", 1, test_gt},
    {">=", "other", 1, test_ge},
    {"boolean", "", 0, test_boolean},
    {"callable", "", 0, test_callable},
    {"defined", "", 0, test_defined},
    {"divisibleby", "num", 1, test_divisibleby},
    {"eq", "other", 1, test_eq},
    {"equalto", "other", 1, test_eq},
    {"escaped", "", 0, test_escaped},
    {"even", "", 0, test_even},
    {"false", "", 0, test_false},
    {"filter", "", 0, test_filter},
    {"float", "", 0, test_float},
    {"ge", "other", 1, test_ge},
    {"greaterthan", "other", 1, test_gt},
    {"gt", "other", 1, test_gt},
    {"in", "seq", 1, test_in},
    {"integer", "", 0, test_integer},
    {"iterable", "", 0, test_iterable},
    {"le", "other", 1, test_le},
    {"lessthan", "other", 1, test_lt},
    {"lower", "", 0, test_lower},
    {"lt", "other", 1, test_lt},
    {"mapping", "", 0, test_mapping},
    {"ne", "other", 1, test_ne},
    {"none", "", 0, test_none},
    {"number", "", 0, test_number},
    {"odd", "", 0, test_odd},
    {"sameas", "other", 1, test_sameas},
    {"sequence", "", 0, test_sequence},
    {"string", "", 0, test_string},
    {"test", "", 0, test_test},
    {"true", "", 0, test_true},
    {"undefined", "", 0, test_undefined},
    {"upper", "", 0, test_upper},
};

int weft_jj_test_number(const jj_str *name) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (weft_jj_is(name, tests[i].name)) return (int)i;
    return -1;
}

bool weft_jj_call_test(jj *j, int number, jj_value v, const jj_call *c, bool *out) {
    jj_value arg[2];
    jj_call named = *c;
    named.what = tests[number].name;
    *out = false;
    return weft_jj_bind(j, &named, tests[number].params, tests[number].required, arg) && tests[number].run(j, v, arg, out);
}

/* ---- the clock ----------------------------------------------------------------------------------------------------------- */

/* The Gregorian calendar, from days since 1970 (months from March on, so that the leap day comes last). */
static void civil(int64_t seconds, struct tm *t) {
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) rest += 86400, days--;
    t->tm_hour = (int)(rest / 3600);
    t->tm_min = (int)(rest / 60 % 60);
    t->tm_sec = (int)(rest % 60);
    t->tm_wday = (int)(((days + 4) % 7 + 7) % 7);
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t doe = z - era * 146097, yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), m = (5 * doy + 2) / 153;
    t->tm_mday = (int)(doy - (153 * m + 2) / 5 + 1);
    t->tm_mon = (int)(m < 10 ? m + 2 : m - 10);
    int64_t year = yoe + era * 400 + (t->tm_mon < 2);
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    t->tm_yday = before[t->tm_mon] + t->tm_mday - 1 + (leap && t->tm_mon > 1);
    t->tm_year = (int)(year - 1900);
}

/* ISO 8601: week 1 holds the year's first Thursday. */
static void iso_week(const struct tm *t, int *year, int *week) {
    int monday = (t->tm_wday + 6) % 7; /* days since Monday */
    *year = t->tm_year + 1900;
    *week = (t->tm_yday - monday + 10) / 7;
    int last = *week < 1 ? *year - 1 : *year;
    bool leap = last % 4 == 0 && (last % 100 != 0 || last % 400 == 0);
    int first =
        *week < 1 ? (((monday - t->tm_yday) % 7 + 7) - (leap ? 366 : 365) % 7 + 7) % 7 : ((monday - t->tm_yday) % 7 + 7) % 7;
    int weeks = first == 3 || (leap && first == 2) ? 53 : 52; /* first: days since Monday of 1 January */
    if (*week < 1) {
        *year = last;
        *week = weeks;
    } else if (*week > weeks) {
        ++*year;
        *week = 1;
    }
}

static void add_time(jj_sb *b, const char *format, const struct tm *t);

/* One directive in the "C" locale; `pad` 0: as usual, '-' none, '_' blanks. False for one that is not known. */
static bool directive(jj_sb *b, char c, char pad, const struct tm *t) {
    static const char *const day[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const month[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};
    int v = 0, width = 2, year = t->tm_year + 1900, iso_year, week;
    iso_week(t, &iso_year, &week);
    char blank = '0';
    switch (c) {
    case 'a': weft_jj_sb_add(b, day[t->tm_wday], 3, false); return true;
    case 'A': weft_jj_sb_addz(b, day[t->tm_wday]); return true;
    case 'b':
    case 'h': weft_jj_sb_add(b, month[t->tm_mon], 3, false); return true;
    case 'B': weft_jj_sb_addz(b, month[t->tm_mon]); return true;
    case 'c': add_time(b, "%a %b %e %H:%M:%S %Y", t); return true;
    case 'x':
    case 'D': add_time(b, "%m/%d/%y", t); return true;
    case 'F': add_time(b, "%Y-%m-%d", t); return true;
    case 'r': add_time(b, "%I:%M:%S %p", t); return true;
    case 'R': add_time(b, "%H:%M", t); return true;
    case 'X':
    case 'T': add_time(b, "%H:%M:%S", t); return true;
    case 'p': weft_jj_sb_addz(b, t->tm_hour < 12 ? "AM" : "PM"); return true;
    case 'P': weft_jj_sb_addz(b, t->tm_hour < 12 ? "am" : "pm"); return true;
    case 'n': weft_jj_sb_addz(b, "\n"); return true;
    case 't': weft_jj_sb_addz(b, "\t"); return true;
    case '%': weft_jj_sb_addz(b, "%"); return true;
    case 'z':
    case 'Z': return true; /* a time without a zone */
    case 'f': weft_jj_sb_addz(b, "000000"); return true;
    case 'd': v = t->tm_mday; break;
    case 'e':
        v = t->tm_mday;
        blank = ' ';
        break;
    case 'H': v = t->tm_hour; break;
    case 'k':
        v = t->tm_hour;
        blank = ' ';
        break;
    case 'I':
    case 'l':
        v = (t->tm_hour + 11) % 12 + 1;
        if (c == 'l') blank = ' ';
        break;
    case 'j':
        v = t->tm_yday + 1;
        width = 3;
        break;
    case 'm': v = t->tm_mon + 1; break;
    case 'M': v = t->tm_min; break;
    case 'S': v = t->tm_sec; break;
    case 'u':
        v = (t->tm_wday + 6) % 7 + 1;
        width = 1;
        break;
    case 'w':
        v = t->tm_wday;
        width = 1;
        break;
    case 'U': v = (t->tm_yday + 7 - t->tm_wday) / 7; break;
    case 'W': v = (t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7; break;
    case 'V': v = week; break;
    case 'y': v = year % 100; break;
    case 'C': v = year / 100; break;
    case 'G':
        v = iso_year;
        width = 4;
        break;
    case 'Y':
        v = year;
        width = 1;
        break;
    default: return false;
    }
    if (pad == '_') blank = ' ';
    if (pad == '0') blank = '0';
    if (pad == '-')
        weft_jj_add_format(b, "%d", v);
    else if (blank == ' ')
        weft_jj_add_format(b, "%*d", width, v);
    else
        weft_jj_add_format(b, "%0*d", width, v);
    return true;
}

static void add_time(jj_sb *b, const char *format, const struct tm *t) {
    for (const char *p = format; *p; p++) {
        const char *from = p;
        if (*p != '%' || !p[1]) {
            weft_jj_sb_add(b, p, 1, false);
            continue;
        }
        char pad = p[1] == '-' || p[1] == '_' || p[1] == '0' ? p[1] : 0;
        p += 1 + (pad != 0);
        if (!*p || !directive(b, *p, pad, t)) weft_jj_sb_add(b, from, (size_t)(p - from) + (*p != 0), false);
        if (!*p) break;
    }
}

bool weft_jj_strftime(jj *j, const jj_str *format, jj_value *out) {
    struct tm t = {0};
    jj_sb b = {.j = j};
    if (j->now) {
        civil(j->now, &t);
    } else {
        time_t clock = time(NULL);
        if (!localtime_r(&clock, &t)) return weft_jj_fail(j, WEFT_EFORMAT, "the time is not known");
    }
    char *z = weft_jj_get(j, format->n + 1, 1);
    if (!z) return false;
    memcpy(z, format->p, format->n);
    add_time(&b, z, &t);
    return weft_jj_sb_end(&b, false, out);
}

/* ---- functions ----------------------------------------------------------------------------------------------------------- */

typedef bool (*function_fn)(jj *j, const jj_call *c, jj_value *out);

static bool function_range(jj *j, const jj_call *c, jj_value *out) {
    jj_value arg[3];
    int64_t start = 0, stop, step = 1;
    if (!weft_jj_bind(j, c, "start stop step", 1, arg)) return false;
    if (arg[1].kind == JJ_MISSING) {
        if (!weft_jj_int_arg(j, c, arg[0], 0, &stop)) return false;
    } else if (!weft_jj_int_arg(j, c, arg[0], 0, &start) || !weft_jj_int_arg(j, c, arg[1], 0, &stop) ||
               !weft_jj_int_arg(j, c, arg[2], 1, &step)) {
        return false;
    }
    if (step == 0) return weft_jj_fail(j, WEFT_EFORMAT, "range() arg 3 must not be zero");
    uint64_t distance = 0, stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 ? stop > start : stop < start)
        distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t n = distance ? (distance - 1) / stride + 1 : 0;
    if (n > 100000) return weft_jj_fail(j, WEFT_EFORMAT, "a range of more than 100000 numbers");
    jj_range *r = weft_jj_get(j, 1, sizeof *r);
    if (!r) return false;
    *r = (jj_range){start, stop, step, (size_t)n};
    *out = (jj_value){.kind = JJ_RANGE};
    out->p = r;
    return true;
}

static bool function_dict(jj *j, const jj_call *c, jj_value *out) {
    if (c->n > 1) return weft_jj_type_error(j, "%s() takes at most 1 positional argument", c->what);
    if (!weft_jj_map(j, out)) return false;
    if (c->n && c->arg[0].kind == JJ_MAP) {
        const jj_map *m = c->arg[0].map;
        for (size_t i = 0; i < m->n; i++)
            if (!weft_jj_put(j, out->map, m->v[i].key, m->v[i].value)) return false;
    } else if (c->n) {
        jj_iter it;
        jj_value pair, items;
        jj_step step;
        if (!weft_jj_iterate(j, c->arg[0], &it)) return false;
        while ((step = weft_jj_next(j, &it, &pair)) == JJ_GOT) {
            if (!weft_jj_collect(j, pair, &items)) return false;
            if (items.list->n != 2) return weft_jj_fail(j, WEFT_EFORMAT, "%s() wants pairs of a key and a value", c->what);
            if (!weft_jj_put(j, out->map, items.list->v[0], items.list->v[1])) return false;
        }
        if (step == JJ_FAILED) return false;
    }
    for (size_t i = 0; i < c->n_kw; i++)
        if (!weft_jj_put(j, out->map, weft_jj_of_str(c->key[i]), c->kw[i])) return false;
    return true;
}

static bool function_namespace(jj *j, const jj_call *c, jj_value *out) {
    if (!function_dict(j, c, out)) return false;
    out->kind = JJ_NAMESPACE;
    return true;
}

static bool function_cycler(jj *j, const jj_call *c, jj_value *out) {
    jj_value items;
    jj_cycler *cycler = weft_jj_get(j, 1, sizeof *cycler);
    if (!cycler || !weft_jj_list(j, c->n, &items)) return false;
    if (!c->n || c->n_kw) return weft_jj_type_error(j, "cycler() wants at least one item");
    for (size_t i = 0; i < c->n; i++)
        if (!weft_jj_push(j, items.list, c->arg[i])) return false;
    cycler->items = items.list;
    *out = (jj_value){.kind = JJ_CYCLER};
    out->p = cycler;
    return true;
}

static bool function_joiner(jj *j, const jj_call *c, jj_value *out) {
    jj_value arg[1];
    jj_joiner *joiner = weft_jj_get(j, 1, sizeof *joiner);
    if (!joiner || !weft_jj_bind(j, c, "sep", 0, arg)) return false;
    if (arg[0].kind == JJ_MISSING && !weft_jj_text(j, ", ", &arg[0])) return false;
    joiner->separator = arg[0];
    *out = (jj_value){.kind = JJ_JOINER};
    out->p = joiner;
    return true;
}

static bool function_raise_exception(jj *j, const jj_call *c, jj_value *out) {
    const jj_str *s;
    if (!weft_jj_bind(j, c, "message", 1, out) || !weft_jj_to_str(j, *out, &s)) return false;
    return weft_jj_fail(j, WEFT_EINVAL, "%.*s", (int)(s->n < 1000 ? s->n : 1000), s->p);
}

static bool function_strftime_now(jj *j, const jj_call *c, jj_value *out) {
    const jj_str *format = NULL;
    return weft_jj_bind(j, c, "format", 1, out) && weft_jj_str_arg(j, c, *out, &format) && weft_jj_strftime(j, format, out);
}

static const struct function {
    const char *name;
    function_fn run;
} functions[] = {
    {"range", function_range},
    {"dict", function_dict},
    {"namespace", function_namespace},
    {"cycler", function_cycler},
    {"joiner", function_joiner},
    {"raise_exception", function_raise_exception},
    {"strftime_now", function_strftime_now},
};

int weft_jj_function_number(const jj_str *name) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (weft_jj_is(name, functions[i].name)) return (int)i;
    return -1;
}

bool weft_jj_call_function(jj *j, int number, const jj_call *c, jj_value *out) {
    jj_call named = *c;
    named.what = functions[number].name;
    return functions[number].run(j, &named, out);
}

/* jinja_format.c: "..." % values and "...".format(values), as Python defines them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_run.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

enum { LONGEST = 400 }; /* digits after the point */

/* What stands after the colon in {:...}, or between % and its letter. */
typedef struct spec {
    const char *fill; /* one character, n_fill bytes */
    size_t n_fill;
    char align; /* < > ^ =, 0: by kind */
    char sign;  /* + - or blank */
    bool alternate, comma, underscore;
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
} spec;

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

/* A number in pieces: sign, prefix ("0x"), digits before the point, the rest. */
typedef struct digits {
    char sign;
    char prefix[3];
    char text[1600];
    size_t n, whole; /* bytes in text; those before the point or exponent */
} digits;

static void unsigned_digits(digits *d, uint64_t v, int base, bool upper) {
    char buf[65];
    size_t n = 0;
    do buf[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % (uint64_t)base];
    while ((v /= (uint64_t)base) > 0);
    for (size_t i = 0; i < n; i++) d->text[i] = buf[n - 1 - i];
    d->n = d->whole = n;
}

static bool int_digits(jj *j, jj_value v, const spec *s, digits *d) {
    int base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : s->type == 'b' ? 2 : 10;
    if (v.kind == JJ_BIG) {
        if (base != 10 || v.s->n > sizeof d->text) return weft_jj_fail(j, WEFT_ESUPPORT, "an integer beyond 64 bits");
        bool minus = v.s->p[0] == '-';
        d->sign = minus ? '-' : 0;
        d->n = d->whole = v.s->n - minus;
        memcpy(d->text, v.s->p + minus, d->n);
        return true;
    }
    int64_t i = v.kind == JJ_BOOL ? v.b : v.i;
    d->sign = i < 0 ? '-' : 0;
    if (s->alternate && base != 10) {
        d->prefix[0] = '0';
        d->prefix[1] = s->type;
    }
    unsigned_digits(d, i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, s->type == 'X');
    return true;
}

static bool float_digits(jj *j, double f, const spec *s, digits *d) {
    jj_sb b = {.j = j};
    jj_value text;
    char type = s->type;
    bool percent = type == '%';
    int precision = s->precision < 0 ? 6 : (int)(s->precision > LONGEST ? LONGEST : s->precision);
    if (s->precision > LONGEST) return weft_jj_fail(j, WEFT_ESUPPORT, "a precision over %d digits", LONGEST);
    d->sign = signbit(f) && !isnan(f) ? '-' : 0;
    f = fabs(f);
    if (percent) f *= 100;
    if (isnan(f) || isinf(f)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        weft_jj_sb_addz(&b, isnan(f) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
    } else if (type == 0 && s->precision < 0) {
        weft_jj_add_float(&b, f);
    } else if (type == 'e' || type == 'E') {
        weft_jj_add_format(&b, type == 'e' ? "%.*e" : "%.*E", precision, f);
    } else if (type == 'f' || type == 'F' || percent) {
        weft_jj_add_format(&b, "%.*f", precision, f);
    } else {
        weft_jj_add_format(&b,
                           s->alternate  ? (type == 'G' ? "%#.*G" : "%#.*g")
                           : type == 'G' ? "%.*G"
                                         : "%.*g",
                           precision ? precision : 1, f);
        if (type == 0 && !b.failed && !memchr(b.p, '.', b.n) && !memchr(b.p, 'e', b.n)) weft_jj_sb_addz(&b, ".0");
    }
    if (percent) weft_jj_sb_addz(&b, "%");
    if (!weft_jj_sb_end(&b, false, &text)) return false;
    if (text.s->n > sizeof d->text) return weft_jj_fail(j, WEFT_ESUPPORT, "a number with too many digits");
    d->n = text.s->n;
    memcpy(d->text, text.s->p, d->n);
    while (d->whole < d->n && d->text[d->whole] >= '0' && d->text[d->whole] <= '9') d->whole++;
    return true;
}

static void add_padding(jj_sb *b, const spec *s, int64_t n, bool zeros) {
    for (; n > 0 && !b->failed; n--) {
        if (zeros || !s->n_fill)
            weft_jj_sb_addz(b, zeros ? "0" : " ");
        else
            weft_jj_sb_add(b, s->fill, s->n_fill, false);
    }
}

static void add_number(jj_sb *b, const digits *d, const spec *s) {
    char sign = d->sign ? d->sign : s->sign == '+' || s->sign == ' ' ? s->sign : 0;
    char mark = s->comma ? ',' : s->underscore ? '_' : 0;
    size_t group = s->type == 'x' || s->type == 'X' || s->type == 'o' || s->type == 'b' ? 4 : 3;
    int64_t used = (int64_t)(d->n + (sign != 0) + strlen(d->prefix));
    if (mark && d->whole) used += (int64_t)((d->whole - 1) / group);
    int64_t pad = s->width - used;
    char align = s->align ? s->align : '>';
    int64_t left = align == '<' || align == '=' ? 0 : align == '^' ? pad / 2 : pad;
    bool zero_fill = align == '=' && s->n_fill == 1 && s->fill[0] == '0';
    add_padding(b, s, left, false);
    if (sign) weft_jj_sb_add(b, &sign, 1, false);
    weft_jj_sb_addz(b, d->prefix);
    if (align == '=') add_padding(b, s, pad, zero_fill);
    for (size_t i = 0; i < d->whole; i++) {
        if (mark && i && (d->whole - i) % group == 0) weft_jj_sb_add(b, &mark, 1, false);
        weft_jj_sb_add(b, d->text + i, 1, false);
    }
    weft_jj_sb_add(b, d->text + d->whole, d->n - d->whole, false);
    if (align != '=') add_padding(b, s, pad - (left > 0 ? left : 0), false);
}

/* s cut at precision characters, padded to width. */
static bool add_text(jj_sb *b, const jj_str *text, const spec *s) {
    int64_t chars = (int64_t)text->chars;
    size_t end = text->n;
    if (s->precision >= 0 && s->precision < chars) {
        end = weft_jj_byte_at(text, (size_t)s->precision);
        chars = s->precision;
    }
    int64_t pad = s->width - chars, left = s->align == '>' ? pad : s->align == '^' ? pad / 2 : 0;
    add_padding(b, s, left, false);
    weft_jj_sb_add_part(b, text, 0, end);
    add_padding(b, s, pad - (left > 0 ? left : 0), false);
    return !b->failed;
}

/* One character by its number. */
static bool add_code(jj_sb *b, jj_value v, const spec *s) {
    char utf8[4];
    if (v.kind == JJ_STR && v.s->chars == 1) return add_text(b, v.s, s);
    if (v.kind != JJ_INT || v.i < 0 || v.i > 0x10FFFF)
        return weft_jj_type_error(b->j, "%%c requires an integer below 0x110000 or a single character");
    bool surrogate = v.i >= 0xD800 && v.i < 0xE000;
    size_t n = weft_utf8_put(utf8, surrogate ? WEFT_REPLACEMENT : (int32_t)v.i);
    const jj_str *one = weft_jj_str(b->j, utf8, n, false);
    return one && add_text(b, one, s);
}

/* ---- "%" ----------------------------------------------------------------------------------------------------------------- */

typedef struct percent {
    jj *j;
    const jj_str *format;
    size_t at;
    jj_value args;
    size_t used; /* of args, where it is a tuple or a single value */
    bool by_key; /* a %(name) was seen */
} percent;

static bool next_arg(percent *p, jj_value *out) {
    size_t n = p->args.kind == JJ_TUPLE ? p->args.list->n : 1;
    if (p->used == n) return weft_jj_type_error(p->j, "not enough arguments for format string");
    *out = p->args.kind == JJ_TUPLE ? p->args.list->v[p->used] : p->args;
    p->used++;
    return true;
}

static char peek(const percent *p) {
    return p->at < p->format->n ? p->format->p[p->at] : 0;
}

/* Digits or "*". */
static bool number(percent *p, int64_t *out) {
    if (peek(p) == '*') {
        jj_value v;
        p->at++;
        if (!next_arg(p, &v)) return false;
        if (v.kind != JJ_INT) return weft_jj_type_error(p->j, "* wants int");
        *out = v.i;
        return true;
    }
    for (*out = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        *out = *out * 10 + (peek(p) - '0');
        if (*out > INT32_MAX) return weft_jj_fail(p->j, WEFT_EFORMAT, "a width that is too big");
    }
    return true;
}

static bool add_percent_value(percent *p, jj_sb *b, const spec *s, jj_value v) {
    const jj_str *text;
    jj_sb r = {.j = p->j};
    digits d = {0};
    switch (s->type) {
    case 's':
        if (!weft_jj_to_str(p->j, v, &text)) return false;
        if (p->format->safe) {
            jj_value escaped;
            weft_jj_sb_add_escaped(&r, v.kind == JJ_STR ? v.s : text);
            if (!weft_jj_sb_end(&r, true, &escaped)) return false;
            text = escaped.s;
        }
        return add_text(b, text, s);
    case 'r':
    case 'a': weft_jj_add_repr(&r, v); return weft_jj_sb_end(&r, false, &v) && add_text(b, v.s, s);
    case 'c': return add_code(b, v, s);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
        bool decimal = s->type != 'x' && s->type != 'X' && s->type != 'o';
        if (v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(p->j, v);
        if (!weft_jj_is_number(v) || (v.kind == JJ_FLOAT && (!decimal || !weft_jj_float_to_int(p->j, v.f, &v))))
            return weft_jj_type_error(p->j, "%%%c format: a real number is required, not %s", s->type, weft_jj_type(v));
        if (!int_digits(p->j, v, s, &d)) return false;
        size_t zeros = s->precision > (int64_t)d.n && s->precision < LONGEST ? (size_t)s->precision - d.n : 0;
        memmove(d.text + zeros, d.text, d.n);
        memset(d.text, '0', zeros);
        d.n = d.whole = d.n + zeros;
        break;
    }
    default:
        if (v.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(p->j, v);
        if (!weft_jj_is_number(v)) return weft_jj_type_error(p->j, "must be real number, not %s", weft_jj_type(v));
        if (!float_digits(p->j, weft_jj_to_double(v), s, &d)) return false;
        break;
    }
    add_number(b, &d, s);
    return !b->failed;
}

/* One conversion, after its "%". */
static bool conversion(percent *p, jj_sb *b) {
    spec s = {.precision = -1};
    const jj_value *named = NULL;
    if (peek(p) == '(') {
        size_t from = ++p->at, depth = 1;
        while (p->at < p->format->n && depth) {
            depth += peek(p) == '(';
            depth -= peek(p) == ')';
            p->at++;
        }
        if (depth) return weft_jj_fail(p->j, WEFT_EFORMAT, "incomplete format key");
        if (p->args.kind != JJ_MAP) return weft_jj_type_error(p->j, "format requires a mapping");
        const jj_str *key = weft_jj_part(p->j, p->format, from, p->at - 1);
        if (!key) return false;
        if (!(named = weft_jj_find(p->args.map, key)))
            return weft_jj_fail(p->j, WEFT_EFORMAT, "the format's key '%.*s' is not there", (int)(key->n < 80 ? key->n : 80),
                                key->p);
        p->by_key = true;
    }
    bool zero = false, left = false;
    for (;; p->at++) {
        char c = peek(p);
        if (c == '-')
            left = true;
        else if (c == '0')
            zero = true;
        else if (c == '+' || (c == ' ' && s.sign != '+'))
            s.sign = c;
        else if (c == '#')
            s.alternate = true;
        else if (c != ' ')
            break;
    }
    if (!number(p, &s.width)) return false;
    if (s.width < 0) {
        left = true;
        s.width = -s.width;
    }
    if (peek(p) == '.') {
        p->at++;
        if (!number(p, &s.precision)) return false;
        if (s.precision < 0) s.precision = 0;
    }
    while (peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L') p->at++;
    s.type = peek(p);
    if (!s.type) return weft_jj_fail(p->j, WEFT_EFORMAT, "incomplete format");
    p->at++;
    if (s.type == '%') {
        weft_jj_sb_addz(b, "%");
        return !b->failed;
    }
    if (!strchr("diouxXeEfFgGcrsa", s.type)) return weft_jj_fail(p->j, WEFT_EFORMAT, "unsupported format character '%c'", s.type);
    bool text = strchr("crsa", s.type) != NULL;
    s.align = left ? '<' : zero && !text ? '=' : '>';
    if (zero && !text && !left) {
        s.fill = "0";
        s.n_fill = 1;
    }
    jj_value v;
    if (named)
        v = *named;
    else if (!next_arg(p, &v))
        return false;
    return add_percent_value(p, b, &s, v);
}

bool weft_jj_percent(jj *j, const jj_str *format, jj_value args, jj_value *out) {
    percent p = {.j = j, .format = format, .args = args};
    jj_sb b = {.j = j};
    while (p.at < format->n) {
        const char *sign = memchr(format->p + p.at, '%', format->n - p.at);
        size_t to = sign ? (size_t)(sign - format->p) : format->n;
        weft_jj_sb_add_part(&b, format, p.at, to);
        p.at = to + (sign != NULL);
        if (sign && !conversion(&p, &b)) return false;
    }
    bool mapping = p.by_key || args.kind == JJ_MAP || args.kind == JJ_LIST;
    size_t n = args.kind == JJ_TUPLE ? args.list->n : 1;
    if (args.kind == JJ_UNDEFINED) mapping = true; /* it can be indexed as far as Python looks */
    if (!mapping && p.used < n) return weft_jj_type_error(j, "not all arguments converted during string formatting");
    return weft_jj_sb_end(&b, format->safe, out);
}

/* ---- "{}" ---------------------------------------------------------------------------------------------------------------- */

typedef struct formatter {
    jj *j;
    const jj_call *call;
    bool safe;
    int64_t next; /* automatic number; -1: fields are numbered by hand */
} formatter;

static bool parse_spec(jj *j, const jj_str *s, spec *out) {
    *out = (spec){.precision = -1};
    size_t at = 0;
    int32_t cp;
    size_t first = s->n ? weft_utf8_next(s->p, s->n, &cp) : 0;
    if (first && first < s->n && strchr("<>^=", s->p[first])) {
        out->fill = s->p;
        out->n_fill = first;
        out->align = s->p[first];
        at = first + 1;
    } else if (s->n && s->p[0] && strchr("<>^=", s->p[0])) {
        out->align = s->p[0];
        at = 1;
    }
#define HERE(c) (at < s->n && s->p[at] == (c))
    if (HERE('+') || HERE('-') || HERE(' ')) out->sign = s->p[at++];
    if (HERE('#')) out->alternate = at++ < s->n;
    if (HERE('0')) {
        at++;
        if (!out->align) out->align = '=';
        if (!out->n_fill) {
            out->fill = "0";
            out->n_fill = 1;
        }
    }
    bool ok = true;
    for (; at < s->n && s->p[at] >= '0' && s->p[at] <= '9'; at++)
        ok &= (out->width = out->width * 10 + (s->p[at] - '0')) < INT32_MAX / 10;
    if (HERE(',')) out->comma = at++ < s->n;
    if (HERE('_')) out->underscore = at++ < s->n;
    if (HERE('.')) {
        at++;
        ok &= at < s->n && s->p[at] >= '0' && s->p[at] <= '9';
        out->precision = 0;
        for (; at < s->n && s->p[at] >= '0' && s->p[at] <= '9'; at++)
            ok &= (out->precision = out->precision * 10 + (s->p[at] - '0')) < INT32_MAX / 10;
    }
#undef HERE
    if (at < s->n) out->type = s->p[at++];
    if (ok && at == s->n) return true;
    return weft_jj_fail(j, WEFT_EFORMAT, "invalid format specifier '%.*s'", (int)(s->n < 80 ? s->n : 80), s->p);
}

/* format(v, spec) */
static bool add_formatted(formatter *f, jj_sb *b, jj_value v, const jj_str *spec_text) {
    jj *j = f->j;
    spec s;
    if (spec_text->n == 0) {
        const jj_str *text;
        if (!weft_jj_to_str(j, v, &text)) return false;
        if (f->safe)
            weft_jj_sb_add_escaped(b, v.kind == JJ_STR ? v.s : text);
        else
            weft_jj_sb_add_str(b, text);
        return !b->failed;
    }
    if (!parse_spec(j, spec_text, &s)) return false;
    if (v.kind == JJ_STR) {
        if ((s.type && s.type != 's') || s.sign || s.alternate || s.comma || s.underscore)
            return weft_jj_fail(j, WEFT_EFORMAT, "a format specifier that strings do not have");
        if (s.align == '=' && s.fill && s.fill[0] == '0')
            s.align = '<'; /* "{:05}" */
        else if (s.align == '=')
            return weft_jj_fail(j, WEFT_EFORMAT, "'=' alignment not allowed in string format specifier");
        return add_text(b, v.s, &s);
    }
    if (!weft_jj_is_number(v)) return weft_jj_type_error(j, "unsupported format string passed to %s.__format__", weft_jj_type(v));
    digits d = {0};
    bool whole = v.kind != JJ_FLOAT;
    if (whole && s.type == 'c') return add_code(b, v, &s);
    if (!whole && s.type == 'n') s.type = 'g';
    if (whole && (s.type == 0 || strchr("dboxXn", s.type))) {
        if (s.precision >= 0) return weft_jj_fail(j, WEFT_EFORMAT, "precision not allowed in integer format specifier");
        if (!int_digits(j, v, &s, &d)) return false;
    } else if (s.type == 0 || strchr("eEfFgG%", s.type)) {
        if (!float_digits(j, weft_jj_to_double(v), &s, &d)) return false;
    } else {
        return weft_jj_fail(j, WEFT_EFORMAT, "unknown format code '%c' for object of type '%s'", s.type, weft_jj_type(v));
    }
    add_number(b, &d, &s);
    return !b->failed;
}

static bool first_value(formatter *f, const jj_str *name, jj_value *out) {
    jj_value number = weft_jj_int(f->next);
    bool digits_only = name->n > 0;
    for (size_t i = 0; i < name->n; i++) digits_only &= name->p[i] >= '0' && name->p[i] <= '9';
    if (name->n && !digits_only) {
        for (size_t i = 0; i < f->call->n_kw; i++)
            if (weft_jj_same(f->call->key[i], name)) return *out = f->call->kw[i], true;
        return weft_jj_fail(f->j, WEFT_EFORMAT, "format() was not given '%.*s'", (int)(name->n < 80 ? name->n : 80), name->p);
    }
    if (digits_only ? f->next > 0 : f->next < 0)
        return weft_jj_fail(f->j, WEFT_EFORMAT, "cannot mix automatic and manual field numbering");
    if (digits_only) {
        f->next = -1;
        if (!weft_jj_parse_int(f->j, name->p, name->n, 10, &number)) return false;
    } else {
        f->next++;
    }
    if (number.kind != JJ_INT || (uint64_t)number.i >= f->call->n)
        return weft_jj_fail(f->j, WEFT_EFORMAT, "replacement index out of range for positional arguments");
    *out = f->call->arg[number.i];
    return true;
}

/* "0.name[key]" */
static bool field_value(formatter *f, const jj_str *field, jj_value *out) {
    size_t at = 0;
    while (at < field->n && field->p[at] != '.' && field->p[at] != '[') at++;
    const jj_str *name = weft_jj_part(f->j, field, 0, at);
    if (!name || !first_value(f, name, out)) return false;
    while (at < field->n) {
        bool item = field->p[at++] == '[';
        size_t from = at;
        while (at < field->n && (item ? field->p[at] != ']' : field->p[at] != '.' && field->p[at] != '[')) at++;
        if (item && at == field->n) return weft_jj_fail(f->j, WEFT_EFORMAT, "expected ']' in a format field");
        if (!(name = weft_jj_part(f->j, field, from, at))) return false;
        jj_value key = weft_jj_of_str(name), number;
        if (item && weft_jj_parse_int(f->j, name->p, name->n, 10, &number) && number.kind == JJ_INT && number.i >= 0) key = number;
        if (!(item ? weft_jj_item(f->j, *out, key, out) : weft_jj_attr(f->j, *out, name, out))) return false;
        at += item;
    }
    return true;
}

static bool format_into(formatter *f, jj_sb *b, const jj_str *s, int depth);

/* What stands in {...}. */
static bool field(formatter *f, jj_sb *b, const jj_str *s, int depth) {
    size_t end = 0, brackets = 0;
    while (end < s->n && (brackets || (s->p[end] != '!' && s->p[end] != ':'))) {
        brackets = s->p[end] == '[' ? 1 : s->p[end] == ']' ? 0 : brackets;
        end++;
    }
    const jj_str *name = weft_jj_part(f->j, s, 0, end);
    jj_value v;
    if (!name || !field_value(f, name, &v)) return false;
    if (end < s->n && s->p[end] == '!') {
        char how = end + 1 < s->n ? s->p[end + 1] : 0;
        jj_sb r = {.j = f->j};
        if (how == 'r' || how == 'a')
            weft_jj_add_repr(&r, v);
        else if (how == 's')
            weft_jj_add(&r, v);
        else
            return weft_jj_fail(f->j, WEFT_EFORMAT, "unknown conversion in a format string");
        if (!weft_jj_sb_end(&r, false, &v)) return false;
        end += 2;
        if (end < s->n && s->p[end] != ':') return weft_jj_fail(f->j, WEFT_EFORMAT, "expected ':' after conversion specifier");
    }
    jj_sb inner = {.j = f->j};
    jj_value spec_text;
    const jj_str *rest = weft_jj_part(f->j, s, end < s->n ? end + 1 : s->n, s->n);
    if (!rest || !format_into(f, &inner, rest, depth + 1) || !weft_jj_sb_end(&inner, false, &spec_text)) return false;
    return add_formatted(f, b, v, spec_text.s);
}

static bool format_into(formatter *f, jj_sb *b, const jj_str *s, int depth) {
    if (depth > 2) return weft_jj_fail(f->j, WEFT_EFORMAT, "a format string nested too deeply");
    size_t from = 0;
    for (size_t at = 0; at < s->n; at++) {
        char c = s->p[at];
        if (c != '{' && c != '}') continue;
        weft_jj_sb_add_part(b, s, from, at);
        if (at + 1 < s->n && s->p[at + 1] == c) { /* "{{" and "}}" */
            weft_jj_sb_add_part(b, s, at, at + 1);
            from = ++at + 1;
            continue;
        }
        size_t open = 1, end = at + 1;
        for (; c == '{' && end < s->n && open; end++) open += (s->p[end] == '{') - (s->p[end] == '}');
        if (c == '}' || open) return weft_jj_fail(f->j, WEFT_EFORMAT, "single '%c' encountered in format string", c);
        const jj_str *inside = weft_jj_part(f->j, s, at + 1, end - 1);
        if (!inside || !field(f, b, inside, depth)) return false;
        at = end - 1;
        from = end;
    }
    weft_jj_sb_add_part(b, s, from, s->n);
    return !b->failed;
}

bool weft_jj_format(jj *j, const jj_str *format, const jj_call *c, jj_value *out) {
    formatter f = {.j = j, .call = c, .safe = format->safe};
    jj_sb b = {.j = j};
    return format_into(&f, &b, format, 0) && weft_jj_sb_end(&b, format->safe, out);
}

/* jinja_lex.c: a template cut into tokens. jinja2 does it with regular expressions; what they match is written out here, the
 * Unicode whitespace of Python's \s included. */
#include <string.h>

#include <utf8proc.h>

#include "base/num.h"
#include "text/jinja_ast.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

typedef struct lexer {
    jj *j;
    const char *p; /* the source with \n for every line end, the last one removed */
    size_t n, at;
    int line;
    bool line_starting; /* what was matched last ended with a line end */
    jj_tokens *out;
} lexer;

static bool push(lexer *l, jj_token_kind kind, jj_value value) {
    jj_tokens *t = l->out;
    if (!weft_jj_room(l->j, (void **)&t->v, &t->cap, t->n + 1, sizeof *t->v)) return false;
    t->v[t->n++] = (jj_token){kind, l->line, value};
    return true;
}

static bool push_text(lexer *l, jj_token_kind kind, const char *p, size_t n) {
    jj_str *s = weft_jj_str_view(l->j, p, n, false);
    if (!s) return false;
    s->hash = weft_jj_hash(s);
    return push(l, kind, weft_jj_of_str(s));
}

static bool fail_at(lexer *l, const char *what) {
    l->j->line = l->line;
    return weft_jj_fail(l->j, WEFT_EFORMAT, "%s", what);
}

/* Moves to `to`, counting lines. */
static void advance(lexer *l, size_t to) {
    for (size_t i = l->at; i < to; i++) l->line += l->p[i] == '\n';
    if (to > l->at) l->line_starting = l->p[to - 1] == '\n';
    l->at = to;
}

static bool here(const lexer *l, size_t at, const char *z) {
    size_t n = strlen(z);
    return l->n - at >= n && memcmp(l->p + at, z, n) == 0;
}

static size_t skip_space(const lexer *l, size_t at) {
    return at + weft_jj_space_left(l->p + at, l->n - at);
}

/* ---- inside tags --------------------------------------------------------------------------------------------------------- */

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool digit_of(char c, int base) {
    int d = hex(c);
    return d >= 0 && d < base;
}

/* Digits with single underscores between them: the end, or `at` when there are none. */
static size_t digits_end(const lexer *l, size_t at, int base) {
    size_t end = at;
    while (end < l->n) {
        if (digit_of(l->p[end], base))
            end++;
        else if (l->p[end] == '_' && end > at && end + 1 < l->n && digit_of(l->p[end + 1], base))
            end++;
        else
            break;
    }
    return end;
}

static bool is(const lexer *l, size_t at, char c) {
    return at < l->n && (l->p[at] | 32) == c;
}

static bool lex_float(lexer *l, size_t *end) {
    size_t whole = digits_end(l, l->at, 10);
    if (whole == l->at || (l->at > 0 && l->p[l->at - 1] == '.')) return false;
    size_t e = whole;
    bool fraction = e < l->n && l->p[e] == '.' && digits_end(l, e + 1, 10) > e + 1;
    if (fraction) e = digits_end(l, e + 1, 10);
    bool exponent = false;
    if (is(l, e, 'e')) {
        size_t x = e + 1;
        if (x < l->n && (l->p[x] == '+' || l->p[x] == '-')) x++;
        if (digits_end(l, x, 10) > x) {
            exponent = true;
            e = digits_end(l, x, 10);
        }
    }
    *end = e;
    return fraction || exponent;
}

static bool push_number(lexer *l, size_t end, bool whole) {
    char buf[512];
    size_t n = 0;
    for (size_t i = l->at; i < end; i++) {
        if (l->p[i] == '_') continue;
        if (n + 1 == sizeof buf) return fail_at(l, "a number with too many digits");
        buf[n++] = l->p[i];
    }
    buf[n] = 0;
    jj_value v;
    if (!(whole ? weft_jj_parse_int(l->j, buf, n, 0, &v) : weft_jj_parse_float(buf, n, &v)))
        return fail_at(l, "a number out of range");
    return push(l, JJ_T_NUMBER, v);
}

/* Integers are 0b.., 0o.., 0x.., decimals without leading zero, and zeros. */
static size_t int_end(const lexer *l) {
    static const char letter[] = "box";
    static const int base[] = {2, 8, 16};
    if (l->p[l->at] == '0') {
        for (int i = 0; i < 3; i++) {
            if (!is(l, l->at + 1, letter[i])) continue;
            size_t from = l->at + 2 + (l->at + 2 < l->n && l->p[l->at + 2] == '_'), end = digits_end(l, from, base[i]);
            if (end > from) return end;
        }
        return digits_end(l, l->at, 1);
    }
    return digits_end(l, l->at, 10);
}

static size_t name_char(const lexer *l, size_t at) {
    if (at >= l->n) return 0;
    char c = l->p[at];
    if ((unsigned char)c < 0x80) return c == '_' || digit_of(c, 10) || ((c | 32) >= 'a' && (c | 32) <= 'z');
    int32_t cp;
    size_t len = weft_utf8_next(l->p + at, l->n - at, &cp);
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_PC: return len;
    default: return 0;
    }
}

/* One escape at p[*i], the character after the backslash. False: not an escape that is known; both characters stay. */
static bool escape(lexer *l, size_t *i, size_t end, jj_sb *b) {
    static const char from[] = "\n\\'\"abfnrtv", to[] = "\0\\'\"\a\b\f\n\r\t\v";
    char c = l->p[*i];
    const char *known = memchr(from, c, sizeof from - 1);
    if (known) {
        if (c != '\n') weft_jj_sb_add(b, &to[known - from], 1, false); /* a line end after a backslash vanishes */
        ++*i;
        return true;
    }
    int64_t cp = 0;
    if (digit_of(c, 8)) {
        for (int k = 0; k < 3 && *i < end && digit_of(l->p[*i], 8); k++) cp = cp * 8 + hex(l->p[(*i)++]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int want = c == 'x' ? 2 : c == 'u' ? 4 : 8, k = 0;
        for (++*i; k < want && *i < end && hex(l->p[*i]) >= 0; k++) cp = cp * 16 + hex(l->p[(*i)++]);
        if (k < want || cp > 0x10FFFF) return fail_at(l, "a string with a broken \\x, \\u or \\U escape");
    } else if (c == 'N') {
        return weft_jj_fail(l->j, WEFT_ESUPPORT, "characters by name, \\N{...}, are not supported");
    } else {
        return false;
    }
    char utf8[4];
    bool surrogate = cp >= 0xD800 && cp < 0xE000;
    weft_jj_sb_add(b, utf8, weft_utf8_put(utf8, surrogate ? WEFT_REPLACEMENT : (int32_t)cp), false);
    return true;
}

static bool lex_string(lexer *l) {
    char quote = l->p[l->at];
    size_t end = l->at + 1;
    bool escapes = false;
    while (end < l->n && l->p[end] != quote) {
        if (l->p[end] == '\\') escapes = true, end++;
        end++;
    }
    if (end >= l->n) return fail_at(l, "a string without its closing quote");
    if (!escapes) {
        if (!push_text(l, JJ_T_STRING, l->p + l->at + 1, end - l->at - 1)) return false;
    } else {
        jj_sb b = {.j = l->j};
        for (size_t i = l->at + 1; i < end;) {
            const char *stop = memchr(l->p + i, '\\', end - i);
            size_t plain = stop ? (size_t)(stop - l->p) : end;
            weft_jj_sb_add(&b, l->p + i, plain - i, false);
            i = plain;
            if (i == end) break;
            i++;
            if (!escape(l, &i, end, &b)) {
                if (l->j->status != WEFT_OK) return false;
                weft_jj_sb_add(&b, "\\", 1, false);
            }
        }
        jj_value s;
        if (!weft_jj_sb_end(&b, false, &s) || !push_text(l, JJ_T_STRING, s.s->p, s.s->n)) return false;
    }
    advance(l, end + 1);
    return true;
}

static bool lex_operator(lexer *l, char *open, size_t *n_open, size_t cap_open) {
    static const struct {
        char text[3];
        jj_token_kind kind;
    } op[] = {{"//", JJ_T_FLOORDIV}, {"**", JJ_T_POW},   {"==", JJ_T_EQ},      {"!=", JJ_T_NE},      {">=", JJ_T_GE},
              {"<=", JJ_T_LE},       {"+", JJ_T_ADD},    {"-", JJ_T_SUB},      {"/", JJ_T_DIV},      {"*", JJ_T_MUL},
              {"%", JJ_T_MOD},       {"~", JJ_T_TILDE},  {"[", JJ_T_LBRACKET}, {"]", JJ_T_RBRACKET}, {"(", JJ_T_LPAREN},
              {")", JJ_T_RPAREN},    {"{", JJ_T_LBRACE}, {"}", JJ_T_RBRACE},   {">", JJ_T_GT},       {"<", JJ_T_LT},
              {"=", JJ_T_ASSIGN},    {".", JJ_T_DOT},    {":", JJ_T_COLON},    {"|", JJ_T_PIPE},     {",", JJ_T_COMMA},
              {";", JJ_T_SEMICOLON}};
    size_t k = 0;
    while (k < sizeof op / sizeof *op && !here(l, l->at, op[k].text)) k++;
    if (k == sizeof op / sizeof *op) return fail_at(l, "an unexpected character in a tag");
    switch (op[k].kind) {
    case JJ_T_LPAREN:
    case JJ_T_LBRACKET:
    case JJ_T_LBRACE:
        if (*n_open == cap_open) return fail_at(l, "brackets nested too deeply");
        open[(*n_open)++] = op[k].kind == JJ_T_LPAREN ? ')' : op[k].kind == JJ_T_LBRACKET ? ']' : '}';
        break;
    case JJ_T_RPAREN:
    case JJ_T_RBRACKET:
    case JJ_T_RBRACE:
        if (*n_open == 0 || open[*n_open - 1] != op[k].text[0]) return fail_at(l, "a closing bracket that does not fit");
        --*n_open;
        break;
    default: break;
    }
    if (!push(l, op[k].kind, (jj_value){0})) return false;
    advance(l, l->at + strlen(op[k].text));
    return true;
}

/* From after "{{" or "{%" to after its end. */
static bool lex_tag(lexer *l, bool block) {
    const char *close = block ? "%}" : "}}";
    char open[200];
    size_t n_open = 0;
    while (l->at < l->n) {
        char c = l->p[l->at];
        if (n_open == 0) {
            size_t sign = c == '-' || (c == '+' && block);
            if (here(l, l->at + sign, close)) {
                if (!push(l, block ? JJ_T_BLOCK_END : JJ_T_PRINT_END, (jj_value){0})) return false;
                size_t end = l->at + sign + 2;
                if (c == '-')
                    end = skip_space(l, end);
                else if (block && !sign && end < l->n && l->p[end] == '\n') /* trim_blocks */
                    end++;
                advance(l, end);
                return true;
            }
        }
        size_t end = skip_space(l, l->at);
        if (end > l->at) {
            advance(l, end);
        } else if (lex_float(l, &end)) {
            if (!push_number(l, end, false)) return false;
            advance(l, end);
        } else if (digit_of(c, 10)) {
            end = int_end(l);
            if (!push_number(l, end, true)) return false;
            advance(l, end);
        } else if (name_char(l, l->at)) {
            for (size_t len; (len = name_char(l, end)) > 0;) end += len;
            if (!push_text(l, JJ_T_NAME, l->p + l->at, end - l->at)) return false;
            advance(l, end);
        } else if (c == '"' || c == '\'') {
            if (!lex_string(l)) return false;
        } else if (!lex_operator(l, open, &n_open, sizeof open)) {
            return false;
        }
    }
    return push(l, JJ_T_END, (jj_value){0});
}

/* ---- between tags -------------------------------------------------------------------------------------------------------- */

/* "{% raw %}" at `at`: the end of it, or 0. */
static size_t raw_begin(const lexer *l, size_t at) {
    at += 2 + (at + 2 < l->n && (l->p[at + 2] == '-' || l->p[at + 2] == '+'));
    at = skip_space(l, at);
    if (!here(l, at, "raw")) return 0;
    at = skip_space(l, at + 3);
    if (here(l, at, "-%}")) return skip_space(l, at + 3);
    return here(l, at, "%}") ? at + 2 : 0;
}

/* "{% endraw %}" at `at`: the end of it, or 0. */
static size_t raw_end(const lexer *l, size_t at) {
    at += 2 + (at + 2 < l->n && (l->p[at + 2] == '-' || l->p[at + 2] == '+'));
    at = skip_space(l, at);
    if (!here(l, at, "endraw")) return 0;
    at = skip_space(l, at + 6);
    if (here(l, at, "+%}")) return at + 3;
    if (here(l, at, "-%}")) return skip_space(l, at + 3);
    if (!here(l, at, "%}")) return 0;
    at += 2;
    return at < l->n && l->p[at] == '\n' ? at + 1 : at;
}

/* The text from l->at up to the tag that begins at `tag`, without what "-" or lstrip_blocks takes off its end. */
static bool push_data(lexer *l, size_t tag, bool block) {
    size_t end = tag;
    char sign = tag + 2 < l->n ? l->p[tag + 2] : 0;
    if (sign == '-') {
        end = l->at + weft_jj_trimmed_right(l->p + l->at, tag - l->at);
    } else if (sign != '+' && block) {
        size_t line = tag;
        while (line > l->at && l->p[line - 1] != '\n') line--;
        if ((line > l->at || l->line_starting) && weft_jj_space_left(l->p + line, tag - line) == tag - line) end = line;
    }
    if (end > l->at && !push_text(l, JJ_T_DATA, l->p + l->at, end - l->at)) return false;
    advance(l, tag);
    return true;
}

static size_t find(const lexer *l, size_t at, const char *z) {
    for (; at < l->n; at++) {
        const char *p = memchr(l->p + at, z[0], l->n - at);
        if (!p) break;
        at = (size_t)(p - l->p);
        if (here(l, at, z)) return at;
    }
    return SIZE_MAX;
}

static bool lex_raw(lexer *l, size_t end) {
    advance(l, end);
    size_t tag = l->at;
    for (;; tag += 2) {
        tag = find(l, tag, "{%");
        if (tag == SIZE_MAX) return fail_at(l, "{% raw %} without {% endraw %}");
        end = raw_end(l, tag);
        if (end) break;
    }
    if (!push_data(l, tag, true)) return false;
    advance(l, end);
    return true;
}

static bool lex_comment(lexer *l) {
    size_t from = l->at + 2;
    from += from < l->n && (l->p[from] == '-' || l->p[from] == '+');
    size_t close = find(l, from, "#}");
    if (close == SIZE_MAX) return fail_at(l, "a comment without its #}");
    size_t end = close + 2;
    if (close > from && l->p[close - 1] == '-')
        end = skip_space(l, end);
    else if ((close == from || l->p[close - 1] != '+') && end < l->n && l->p[end] == '\n')
        end++;
    advance(l, end);
    return true;
}

static bool lex(lexer *l) {
    while (l->at < l->n) {
        size_t tag = l->at;
        for (;; tag++) {
            const char *brace = tag < l->n ? memchr(l->p + tag, '{', l->n - tag) : NULL;
            tag = brace ? (size_t)(brace - l->p) : l->n;
            if (tag + 1 >= l->n) {
                tag = l->n;
                break;
            }
            char c = l->p[tag + 1];
            if (c == '{' || c == '%' || c == '#') break;
        }
        if (tag == l->n) {
            if (!push_text(l, JJ_T_DATA, l->p + l->at, l->n - l->at)) return false;
            advance(l, l->n);
            break;
        }
        char c = l->p[tag + 1];
        if (!push_data(l, tag, c != '{')) return false;
        size_t raw = c == '%' ? raw_begin(l, tag) : 0;
        if (raw) {
            if (!lex_raw(l, raw)) return false;
        } else if (c == '#') {
            if (!lex_comment(l)) return false;
        } else {
            if (!push(l, c == '%' ? JJ_T_BLOCK_BEGIN : JJ_T_PRINT_BEGIN, (jj_value){0})) return false;
            size_t sign = tag + 2 < l->n && (l->p[tag + 2] == '-' || l->p[tag + 2] == '+');
            advance(l, tag + 2 + sign);
            if (!lex_tag(l, c == '%')) return false;
        }
    }
    return push(l, JJ_T_END, (jj_value){0});
}

bool weft_jj_lex(jj *j, const char *source, size_t n, jj_tokens *out) {
    const jj_str *whole = weft_jj_str(j, source, n, false);
    if (!whole) return false;
    char *p = weft_jj_get(j, whole->n + 1, 1);
    if (!p) return false;
    lexer l = {.j = j, .p = p, .line = 1, .line_starting = true, .out = out};
    for (size_t i = 0; i < whole->n; i++) {
        char c = whole->p[i];
        if (c == '\r' && i + 1 < whole->n && whole->p[i + 1] == '\n') i++;
        p[l.n++] = c == '\r' ? '\n' : c;
    }
    if (l.n && p[l.n - 1] == '\n') l.n--;
    return lex(&l);
}

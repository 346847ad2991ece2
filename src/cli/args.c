/* args.c: see args.h. */
#include "cli/args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

/* ---- the nearest name ---------------------------------------------------------------------------------------------------- */

enum { LONGEST = 40 }; /* names are shorter; a longer word resembles none */

/* Insertions, deletions, changes and swaps of neighbours that make b of a (optimal string alignment). */
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    int d[3][LONGEST + 1];
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = d[i % 3], *above = d[(i + 2) % 3], *higher = d[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && higher[j - 2] + 1 < best)
                best = higher[j - 2] + 1;
            row[j] = best;
        }
    }
    return d[n % 3][m];
}

const char *weft_args_nearest(const char *word, const char *const *names, int n) {
    const char *nearest = NULL;
    int least = 0;
    for (int i = 0; i < n; i++) {
        bool abbreviated = strlen(word) >= 2 && weft_starts_with(names[i], word);
        int far = abbreviated ? 0 : distance(word, names[i]);
        if (far <= 1 + (int)strlen(names[i]) / 4 && far < (int)strlen(names[i]) && (!nearest || far < least)) {
            nearest = names[i];
            least = far;
        }
    }
    return nearest;
}

/* ---- parsing ------------------------------------------------------------------------------------------------------------- */

enum { MOST_OPTIONS = 100 }; /* for a suggestion */

static const weft_option *find(const weft_command *c, const char *name, size_t n) {
    for (const weft_option *o = c->options; o->kind != WEFT_OPTION_END; o++)
        if (o->kind != WEFT_OPTION_HEADING && strlen(o->name) == n && memcmp(o->name, name, n) == 0) return o;
    return NULL;
}

static weft_status unknown(const weft_command *c, const char *arg, size_t n, weft_error *e) {
    const char *names[MOST_OPTIONS];
    int count = 0;
    for (const weft_option *o = c->options; o->kind != WEFT_OPTION_END && count < MOST_OPTIONS; o++)
        if (o->kind != WEFT_OPTION_HEADING) names[count++] = o->name;
    char word[LONGEST + 2] = "";
    size_t dashes = strspn(arg, "-");
    if (n - dashes < sizeof word) memcpy(word, arg + dashes, n - dashes);
    const char *nearest = *word ? weft_args_nearest(word, names, count) : NULL;
    if (nearest) return weft_fail(e, WEFT_EINVAL, "unknown option %.*s; did you mean --%s?", (int)n, arg, nearest);
    return weft_fail(e, WEFT_EINVAL, "unknown option %.*s; see weft help %s", (int)n, arg, c->name);
}

static bool is_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (const char *p = choices;; p++) {
        size_t k = strcspn(p, "|");
        if (k == n && memcmp(p, text, n) == 0) return true;
        p += k;
        if (!*p) return false;
    }
}

static weft_status set(const weft_option *o, const char *text, weft_error *e) {
    switch (o->kind) {
    case WEFT_OPTION_INTEGER:
        if (!weft_parse_i64(text, o->range.integer.least, o->range.integer.most, o->to.integer))
            return weft_fail(e, WEFT_EINVAL, "--%s %s: expected a whole number from %" PRId64 " to %" PRId64, o->name, text,
                             o->range.integer.least, o->range.integer.most);
        break;
    case WEFT_OPTION_NUMBER:
        if (!weft_parse_f64(text, o->range.number.least, o->range.number.most, o->to.number))
            return weft_fail(e, WEFT_EINVAL, "--%s %s: expected a number from %.10g to %.10g", o->name, text, o->range.number.least,
                             o->range.number.most);
        break;
    case WEFT_OPTION_TEXTS:
        if (o->to.texts->n == WEFT_TEXTS_MOST)
            return weft_fail(e, WEFT_EINVAL, "--%s is given more than %d times", o->name, WEFT_TEXTS_MOST);
        o->to.texts->v[o->to.texts->n++] = text;
        break;
    default:
        if (o->range.choices && !is_choice(o->range.choices, text))
            return weft_fail(e, WEFT_EINVAL, "--%s %s: expected one of %s", o->name, text, o->range.choices);
        *o->to.text = text;
    }
    return WEFT_OK;
}

/* One option at argv[i]; *i moves over a value of its own. */
static weft_status option(const weft_command *c, int argc, char **argv, int *i, weft_error *e) {
    const char *arg = argv[*i], *equals = strchr(arg, '=');
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    const weft_option *o = arg[1] == '-' ? find(c, arg + 2, n - 2) : NULL;
    if (!o) return unknown(c, arg, n, e);
    if (o->kind == WEFT_OPTION_FLAG) {
        if (equals) return weft_fail(e, WEFT_EINVAL, "--%s takes no value", o->name);
        *o->to.flag = true;
        return WEFT_OK;
    }
    if (equals) return set(o, equals + 1, e);
    /* "--model --stats" is a forgotten value; one that begins like this is written with "=". */
    if (*i + 1 >= argc || weft_starts_with(argv[*i + 1], "--"))
        return weft_fail(e, WEFT_EINVAL, "--%s needs a value: --%s %s", o->name, o->name, o->value);
    return set(o, argv[++*i], e);
}

weft_status weft_args_parse(const weft_command *c, int *argc, char **argv, bool *help, weft_error *e) {
    *help = false;
    for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) *help = true;
    if (*help) return WEFT_OK;

    int n = 0;
    bool options = true;
    for (int i = 1; i < *argc; i++) {
        if (!options || argv[i][0] != '-' || argv[i][1] == 0)
            argv[n++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            options = false;
        else
            WEFT_TRY(option(c, *argc, argv, &i, e));
    }
    if (n > c->most) return weft_fail(e, WEFT_EINVAL, "unexpected argument '%s'; see weft help %s", argv[c->most], c->name);
    if (n < c->least) return weft_fail(e, WEFT_EINVAL, "missing argument; usage: weft %s %s", c->name, c->positional);
    *argc = n;
    return WEFT_OK;
}

/* ---- help ---------------------------------------------------------------------------------------------------------------- */

static int width(const char *s, size_t n) {
    int w = 0;
    for (size_t i = 0; i < n; i++) w += ((unsigned char)s[i] & 0xC0) != 0x80; /* one column for each character */
    return w;
}

static bool spaces(weft_str *out, int n) {
    bool ok = true;
    for (int i = 0; i < n; i++) ok = ok && weft_str_addz(out, " ");
    return ok;
}

/* text, broken at blanks, from column `at` on; further lines begin at `indent`. */
static bool wrap(weft_str *out, const char *text, int at, int indent, int columns) {
    bool ok = true, first = true;
    while (*text) {
        size_t n = strcspn(text, " ");
        int w = width(text, n);
        if (!first && at + 1 + w > columns) {
            ok = ok && weft_str_addz(out, "\n") && spaces(out, indent);
            at = indent;
        } else if (!first) {
            ok = ok && weft_str_addz(out, " ");
            at++;
        }
        ok = ok && weft_str_add(out, text, n);
        at += w;
        first = false;
        text += n + strspn(text + n, " ");
    }
    return ok && weft_str_addz(out, "\n");
}

/* "--threads N" */
static bool synopsis(const weft_option *o, weft_str *out) {
    return weft_str_addf(out, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
}

/* What the option does, its range and its default: "worker threads (1 to 256; default all processors)". */
static bool description(const weft_option *o, weft_str *out) {
    weft_str range = {0}, standard = {0};
    bool ok = weft_str_addz(out, o->help);
    switch (o->kind) {
    case WEFT_OPTION_INTEGER:
        if (o->range.integer.most < INT64_MAX)
            ok = ok && weft_str_addf(&range, "%" PRId64 " to %" PRId64, o->range.integer.least, o->range.integer.most);
        ok = ok && weft_str_addf(&standard, "%" PRId64, *o->to.integer);
        break;
    case WEFT_OPTION_NUMBER:
        if (o->range.number.most < 1e300)
            ok = ok && weft_str_addf(&range, "%.10g to %.10g", o->range.number.least, o->range.number.most);
        ok = ok && weft_str_addf(&standard, "%.10g", *o->to.number);
        break;
    case WEFT_OPTION_TEXT:
        if (o->range.choices) ok = ok && weft_str_addz(&range, o->range.choices);
        if (*o->to.text) ok = ok && weft_str_addz(&standard, *o->to.text);
        break;
    default: break;
    }
    if (o->standard) {
        weft_str_clear(&standard);
        ok = ok && weft_str_addz(&standard, o->standard);
    }
    if (range.n || standard.n)
        ok = ok && weft_str_addf(out, " (%s%s%s%s)", weft_str_z(&range), range.n && standard.n ? "; " : "",
                                 standard.n ? "default " : "", weft_str_z(&standard));
    weft_str_free(&range);
    weft_str_free(&standard);
    return ok;
}

static bool option_help(const weft_option *o, int column, int columns, weft_str *out) {
    weft_str left = {0}, right = {0};
    bool ok = synopsis(o, &left) && description(o, &right) && weft_str_addf(out, "  %s", left.p);
    if (ok) {
        int at = 2 + width(left.p, left.n);
        if (at + 2 > column) ok = weft_str_addz(out, "\n"), at = 0; /* too long: the text starts on a line of its own */
        ok = ok && spaces(out, column - at) && wrap(out, right.p, column, column, columns);
    }
    weft_str_free(&left);
    weft_str_free(&right);
    return ok;
}

bool weft_args_help(const weft_command *c, int columns, weft_str *out) {
    static bool asked;
    static const weft_option help = WEFT_FLAG("help", &asked, "this text");
    enum { WIDEST = 28 };
    int column = 0;
    for (const weft_option *o = c->options; o->kind != WEFT_OPTION_END; o++) {
        if (o->kind == WEFT_OPTION_HEADING) continue;
        int w = 2 + width(o->name, strlen(o->name)) + (o->value ? 1 + width(o->value, strlen(o->value)) : 0);
        if (w <= WIDEST && w > column) column = w;
    }
    column += 4; /* two blanks before the option, two behind */
    if (column < 10) column = 10;

    bool ok = weft_str_addf(out, "usage: weft %s [options]%s%s\n\n", c->name, *c->positional ? " " : "", c->positional) &&
              wrap(out, c->summary, 0, 0, columns);
    if (c->options->kind != WEFT_OPTION_HEADING) ok = ok && weft_str_addz(out, "\n");
    for (const weft_option *o = c->options; o->kind != WEFT_OPTION_END && ok; o++)
        ok = o->kind == WEFT_OPTION_HEADING ? weft_str_addf(out, "\n%s\n", o->name) : option_help(o, column, columns, out);
    ok = ok && option_help(&help, column, columns, out);
    if (c->notes) ok = ok && weft_str_addf(out, "\n%s\n", c->notes);
    return ok;
}

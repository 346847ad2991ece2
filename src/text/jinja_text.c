/* jinja_text.c: see jinja_text.h. Case mappings are Unicode's full ones, as Python's: utf8proc has those that keep one character
 * one. */
#include "text/jinja_text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/num.h"
#include "text/utf8.h"

/* ---- whitespace, searching ----------------------------------------------------------------------------------------------- */

bool weft_jj_is_space(int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

size_t weft_jj_space_left(const char *p, size_t n) {
    size_t at = 0;
    while (at < n) {
        int32_t cp;
        size_t len = weft_utf8_next(p + at, n - at, &cp);
        if (!weft_jj_is_space(cp)) break;
        at += len;
    }
    return at;
}

size_t weft_jj_trimmed_right(const char *p, size_t n) {
    while (n > 0) {
        size_t at = n - 1;
        while (at > 0 && ((unsigned char)p[at] & 0xC0) == 0x80) at--;
        int32_t cp;
        weft_utf8_next(p + at, n - at, &cp);
        if (!weft_jj_is_space(cp)) break;
        n = at;
    }
    return n;
}

size_t weft_jj_line_end(const char *p, size_t n) {
    if (n == 0) return 0;
    unsigned char c = (unsigned char)p[0];
    if (c == '\r') return n > 1 && p[1] == '\n' ? 2 : 1;
    if ((c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E)) return 1;
    if (c == 0xC2) return n > 1 && (unsigned char)p[1] == 0x85 ? 2 : 0;
    if (c != 0xE2 || n < 3 || (unsigned char)p[1] != 0x80) return 0;
    return (unsigned char)p[2] == 0xA8 || (unsigned char)p[2] == 0xA9 ? 3 : 0;
}

bool weft_jj_search(jj *j, const jj_str *s, const jj_str *needle, size_t from, size_t to, bool last, size_t *at) {
    *at = SIZE_MAX;
    if (needle->n > to - from) return true;
    if (needle->n == 0) return *at = last ? to : from, true;
    size_t end = to - needle->n; /* the last place it can begin */
    uint64_t tried = 0;
    if (last) {
        for (size_t i = end + 1; i-- > from && *at == SIZE_MAX;) {
            if (s->p[i] != needle->p[0]) continue;
            tried += 1 + needle->n / 16;
            if (tried > j->work) break;
            if (memcmp(s->p + i, needle->p, needle->n) == 0) *at = i;
        }
    } else {
        for (size_t i = from; i <= end; i++) {
            const char *p = memchr(s->p + i, needle->p[0], end - i + 1);
            if (!p) break;
            i = (size_t)(p - s->p);
            tried += 1 + needle->n / 16;
            if (tried > j->work) break;
            if (memcmp(p, needle->p, needle->n) == 0) {
                *at = i;
                break;
            }
        }
    }
    return weft_jj_spend(j, tried + (to - from) / 64);
}

/* ---- case ---------------------------------------------------------------------------------------------------------------- */

/* A character and what it becomes, where that is more than one. */
static const char upper_long[] =
    "ßSS ŉʼN ǰJ̌ ΐΪ́ ΰΫ́ ևԵՒ ẖH̱ ẗT̈ ẘW̊ ẙY̊ ẚAʾ ὐΥ̓ ὒΥ̓̀ ὔΥ̓́ ὖΥ̓͂ ᾀἈΙ ᾁἉΙ ᾂἊΙ ᾃἋΙ ᾄἌΙ ᾅἍΙ ᾆἎΙ ᾇἏΙ ᾈἈΙ ᾉἉΙ ᾊἊΙ ᾋἋΙ ᾌἌΙ ᾍἍΙ ᾎἎΙ ᾏἏΙ "
    "ᾐἨΙ ᾑἩΙ ᾒἪΙ ᾓἫΙ ᾔἬΙ ᾕἭΙ ᾖἮΙ ᾗἯΙ ᾘἨΙ ᾙἩΙ ᾚἪΙ ᾛἫΙ ᾜἬΙ ᾝἭΙ ᾞἮΙ ᾟἯΙ ᾠὨΙ ᾡὩΙ ᾢὪΙ ᾣὫΙ ᾤὬΙ ᾥὭΙ ᾦὮΙ ᾧὯΙ ᾨὨΙ ᾩὩΙ ᾪὪΙ ᾫὫΙ ᾬὬΙ ᾭὭΙ ᾮὮΙ "
    "ᾯὯΙ "
    "ᾲᾺΙ ᾳΑΙ ᾴΆΙ ᾶΑ͂ ᾷΑ͂Ι ᾼΑΙ ῂῊΙ ῃΗΙ ῄΉΙ ῆΗ͂ ῇΗ͂Ι ῌΗΙ ῒΪ̀ ΐΪ́ ῖΙ͂ ῗΪ͂ ῢΫ̀ ΰΫ́ ῤΡ̓ ῦΥ͂ ῧΫ͂ ῲῺΙ ῳΩΙ ῴΏΙ ῶΩ͂ ῷΩ͂Ι ῼΩΙ "
    "ﬀFF ﬁFI ﬂFL ﬃFFI ﬄFFL ﬅST ﬆST ﬓՄՆ ﬔՄԵ ﬕՄԻ ﬖՎՆ ﬗՄԽ ";
static const char title_long[] = "ßSs ŉʼN ǰJ̌ ΐΪ́ ΰΫ́ ևԵւ ẖH̱ ẗT̈ ẘW̊ ẙY̊ ẚAʾ ὐΥ̓ ὒΥ̓̀ ὔΥ̓́ ὖΥ̓͂ ᾲᾺͅ ᾴΆͅ ᾶΑ͂ ᾷᾼ͂ ῂῊͅ ῄΉͅ ῆΗ͂ ῇῌ͂ ῒΪ̀ ΐΪ́ ῖΙ͂ ῗΪ͂ ῢΫ̀ "
                                 "ΰΫ́ ῤΡ̓ ῦΥ͂ ῧΫ͂ ῲῺͅ ῴΏͅ ῶΩ͂ ῷῼ͂ ﬀFf ﬁFi ﬂFl ﬃFfi ﬄFfl ﬅSt ﬆSt ﬓՄն ﬔՄե ﬕՄի ﬖՎն ﬗՄխ ";

static bool add_long(jj_sb *b, const char *table, const char *p, size_t len, bool data) {
    for (const char *e = table; *e; e += strcspn(e, " ") + 1) {
        if (strncmp(e, p, len) != 0) continue;
        weft_jj_sb_add(b, e + len, strcspn(e, " ") - len, data);
        return true;
    }
    return false;
}

static bool is_cased(int32_t cp) {
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* What stands inside words without being a letter. */
static bool is_ignorable(int32_t cp) {
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x2019;
    }
}

/* A capital sigma at s[at] ends a word: a letter before it, none after it. */
static bool final_sigma(const jj_str *s, size_t from, size_t at, size_t to) {
    int32_t cp = 0;
    bool before = false;
    for (size_t i = at; i > from;) {
        for (i--; i > from && ((unsigned char)s->p[i] & 0xC0) == 0x80;) i--;
        weft_utf8_next(s->p + i, s->n - i, &cp);
        if (is_ignorable(cp)) continue;
        before = is_cased(cp);
        break;
    }
    if (!before) return false;
    for (size_t i = at + 2; i < to;) {
        i += weft_utf8_next(s->p + i, s->n - i, &cp);
        if (!is_ignorable(cp)) return !is_cased(cp);
    }
    return true;
}

static void add_char(jj_sb *b, const jj_str *s, size_t from, size_t at, size_t to, jj_case how) {
    const char *p = s->p + at;
    bool data = weft_jj_data_at(s, at);
    unsigned char c = (unsigned char)*p;
    if (c < 0x80) {
        bool up = c >= 'A' && c <= 'Z', down = c >= 'a' && c <= 'z';
        char ascii = (char)(how == JJ_LOWER ? (up ? c + 32 : c) : (down ? c - 32 : c));
        weft_jj_sb_add(b, &ascii, 1, data);
        return;
    }
    int32_t cp;
    size_t len = weft_utf8_next(p, to - at, &cp);
    if (how == JJ_LOWER && cp == 0x130) {
        weft_jj_sb_add(b, "i\xCC\x87", 3, data);
    } else if (how == JJ_LOWER && cp == 0x3A3) {
        weft_jj_sb_add(b, final_sigma(s, from, at, to) ? "ς" : "σ", 2, data);
    } else if (how == JJ_LOWER || !add_long(b, how == JJ_UPPER ? upper_long : title_long, p, len, data)) {
        char out[4];
        int32_t mapped = how == JJ_LOWER ? utf8proc_tolower(cp) : how == JJ_UPPER ? utf8proc_toupper(cp) : utf8proc_totitle(cp);
        weft_jj_sb_add(b, out, weft_utf8_put(out, mapped), data);
    }
}

void weft_jj_add_case(jj_sb *b, const jj_str *s, size_t from, size_t to, jj_case how) {
    bool inside = false; /* of a word */
    for (size_t at = from; at < to && !b->failed;) {
        int32_t cp;
        size_t len = weft_utf8_next(s->p + at, to - at, &cp);
        jj_case one = how;
        if (how == JJ_CAPITALIZE) one = at == from ? JJ_TITLE : JJ_LOWER;
        if (how == JJ_SWAP) {
            utf8proc_category_t c = utf8proc_category(cp);
            one = c == UTF8PROC_CATEGORY_LL ? JJ_UPPER : JJ_LOWER;
            if (c == UTF8PROC_CATEGORY_LT) {
                weft_jj_sb_add_part(b, s, at, at + len);
                at += len;
                continue;
            }
        }
        if (how == JJ_TITLE) {
            one = inside ? JJ_LOWER : JJ_TITLE;
            inside = is_cased(cp);
        }
        add_char(b, s, from, at, to, one);
        at += len;
    }
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static int format(char *buf, size_t size, const char *fmt, ...) WEFT_PRINTF(3, 4);
static int format(char *buf, size_t size, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = weft_vformat(buf, size, fmt, ap);
    va_end(ap);
    if (n < 0) buf[0] = 0;
    return n;
}

void weft_jj_add_format(jj_sb *b, const char *fmt, ...) {
    char buf[1536];
    va_list ap;
    va_start(ap, fmt);
    int n = weft_vformat(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (n > 0) weft_jj_sb_add(b, buf, (size_t)n < sizeof buf ? (size_t)n : sizeof buf - 1, false);
}

void weft_jj_add_int(jj_sb *b, int64_t i) {
    char buf[24];
    int n = snprintf(buf, sizeof buf, "%lld", (long long)i);
    weft_jj_sb_add(b, buf, (size_t)n, false);
}

void weft_jj_add_float(jj_sb *b, double f) {
    if (!isfinite(f)) {
        weft_jj_sb_addz(b, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    /* Any decimal of 15 digits reads back as itself, so that fewer need not be tried; denormals have fewer bits. */
    char buf[40];
    double back;
    for (int digits = fabs(f) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        format(buf, sizeof buf, "%.*e", digits - 1, f);
        if (weft_parse_f64(buf, -DBL_MAX, DBL_MAX, &back) && back == f) break;
    }
    char digit[20], *e = strchr(buf, 'e');
    int n = 0, point = e ? (int)strtol(e + 1, NULL, 10) + 1 : 1; /* digits before the point */
    for (const char *p = buf; p != e && *p; p++)
        if (*p >= '0' && *p <= '9' && n < (int)sizeof digit) digit[n++] = *p;
    while (n > 1 && digit[n - 1] == '0') n--;
    if (buf[0] == '-') weft_jj_sb_addz(b, "-");
    if (point > 16 || point <= -4) {
        weft_jj_sb_add(b, digit, 1, false);
        if (n > 1) weft_jj_sb_addz(b, ".");
        weft_jj_sb_add(b, digit + 1, (size_t)n - 1, false);
        weft_jj_add_format(b, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
    } else if (point <= 0) {
        weft_jj_sb_addz(b, "0.");
        for (int i = point; i < 0; i++) weft_jj_sb_addz(b, "0");
        weft_jj_sb_add(b, digit, (size_t)n, false);
    } else {
        int whole = n < point ? n : point;
        weft_jj_sb_add(b, digit, (size_t)whole, false);
        for (int i = whole; i < point; i++) weft_jj_sb_addz(b, "0");
        weft_jj_sb_addz(b, ".");
        if (n > point)
            weft_jj_sb_add(b, digit + point, (size_t)(n - point), false);
        else
            weft_jj_sb_addz(b, "0");
    }
}

/* Without whitespace around, and without the underscores that may stand between two digits; false if others do. */
static bool clean(const char *p, size_t n, char *buf, size_t size) {
    size_t from = weft_jj_space_left(p, n), out = 0;
    size_t to = weft_jj_trimmed_right(p, n);
    for (size_t i = from; i < to; i++) {
        if (p[i] == '_') {
            bool before = i > from && p[i - 1] != '_' && p[i - 1] != '+' && p[i - 1] != '-' && p[i - 1] != '.';
            if (!before || i + 1 == to || p[i + 1] == '_' || p[i + 1] == '.') return false;
            continue;
        }
        if (out + 1 == size || p[i] == 0) return false;
        buf[out++] = p[i];
    }
    buf[out] = 0;
    return out > 0;
}

bool weft_jj_parse_int(jj *j, const char *p, size_t n, int base, jj_value *out) {
    char buf[512];
    if (!clean(p, n, buf, sizeof buf)) return false;
    char *d = buf + (buf[0] == '-' || buf[0] == '+');
    char letter = d[0] == '0' ? (char)(d[1] | 32) : 0;
    int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed && (base == 0 || base == prefixed)) {
        d += 2;
        base = prefixed;
    }
    if (base == 0) base = 10;
    uint64_t v = 0, most = buf[0] == '-' ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
    bool big = false;
    const char *digit = d;
    for (; *digit; digit++) {
        int c = *digit >= '0' && *digit <= '9'                 ? *digit - '0'
                : (*digit | 32) >= 'a' && (*digit | 32) <= 'z' ? (*digit | 32) - 'a' + 10
                                                               : 99;
        if (c >= base) return false;
        big |= v > (most - (uint64_t)c) / (uint64_t)base;
        v = v * (uint64_t)base + (uint64_t)c;
    }
    if (digit == d) return false;
    if (!big) {
        *out = weft_jj_int(buf[0] == '-' ? (int64_t)(0 - v) : (int64_t)v);
        return true;
    }
    if (base != 10) return false;
    while (*d == '0') d++;
    if (buf[0] == '-') *--d = '-';
    const jj_str *s = weft_jj_str(j, d, strlen(d), false);
    if (!s) return false;
    *out = (jj_value){.kind = JJ_BIG};
    out->s = s;
    return true;
}

bool weft_jj_parse_float(const char *p, size_t n, jj_value *out) {
    char buf[512];
    if (!clean(p, n, buf, sizeof buf)) return false;
    const char *d = buf + (buf[0] == '-' || buf[0] == '+');
    double f;
    static const char *const word[] = {"inf", "infinity", "nan"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        size_t k = 0;
        while (d[k] && (d[k] | 32) == word[i][k]) k++;
        if (d[k] || word[i][k]) continue;
        f = i == 2 ? NAN : INFINITY;
        *out = weft_jj_float(buf[0] == '-' ? -f : f);
        return true;
    }
    if (!weft_parse_f64(d, 0, DBL_MAX, &f)) {
        /* Too large a number is infinity; anything else is none. */
        size_t mantissa = strspn(d, "0123456789."), digits = strspn(d, "0123456789");
        if (!digits || (d[mantissa] | 32) != 'e' || strspn(d + mantissa + 1, "+0123456789") != strlen(d + mantissa + 1))
            return false;
        f = INFINITY;
    }
    *out = weft_jj_float(buf[0] == '-' ? -f : f);
    return true;
}

bool weft_jj_float_to_int(jj *j, double f, jj_value *out) {
    if (!isfinite(f)) return false;
    f = trunc(f);
    if (f >= -0x1p63 && f < 0x1p63) return *out = weft_jj_int((int64_t)f), true;
    char buf[400];
    int n = format(buf, sizeof buf, "%.0f", f);
    return n > 0 && weft_jj_parse_int(j, buf, (size_t)n, 10, out);
}

/* ---- repr ---------------------------------------------------------------------------------------------------------------- */

static bool printable(int32_t cp) {
    if (cp < 0x7F) return cp >= ' ';
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

void weft_jj_add_quoted(jj_sb *b, const jj_str *s) {
    char quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    weft_jj_sb_add(b, &quote, 1, false);
    size_t from = 0;
    for (size_t at = 0, len; at < s->n && !b->failed; at += len) {
        int32_t cp;
        len = weft_utf8_next(s->p + at, s->n - at, &cp);
        char buf[16] = "";
        if (cp == quote || cp == '\\')
            snprintf(buf, sizeof buf, "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(buf, sizeof buf, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (!printable(cp))
            snprintf(buf, sizeof buf, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)cp);
        if (!buf[0]) continue;
        weft_jj_sb_add_part(b, s, from, at);
        weft_jj_sb_add(b, buf, strlen(buf), weft_jj_data_at(s, at));
        from = at + len;
    }
    weft_jj_sb_add_part(b, s, from, s->n);
    weft_jj_sb_add(b, &quote, 1, false);
}

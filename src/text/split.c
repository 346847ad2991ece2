/* split.c: pre-tokenisation through PCRE2.
 *
 * Time. Every expression in use consumes what it scans, so that the cost is linear (1 MB of spaces: `\s*[\r\n]+` runs to the end
 * and back once, then `\s+(?!\S)` takes the whole run). A damaged or hostile expression is stopped by a limit on steps. */
#include "text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

#define PATTERN_LONGEST 16384

struct weft_split_rule {
    pcre2_code *code;
    weft_split_how how;
};

static void *take(PCRE2_SIZE n, void *ctx) {
    (void)ctx;
    return weft_calloc(n, 1);
}

static void give(void *p, void *ctx) {
    (void)ctx;
    weft_free(p);
}

/* White space as Oniguruma has it: PCRE2's own \s also takes U+180E, which has been no space since Unicode 6.3. */
#define SPACES "\\p{Z}\\t-\\r\\x{85}"

static weft_status refuse(weft_error *e, const char *what) {
    return weft_fail(e, WEFT_ESUPPORT, "the split pattern uses %s, which this version does not know", what);
}

/* The end of an escape's braces, \p{L} or \x{85}: its length from p[0], which follows the letter. */
static size_t braces(const char *p, size_t n) {
    const char *end = n && p[0] == '{' ? memchr(p, '}', n) : NULL;
    return end ? (size_t)(end - p) + 1 : 0;
}

/* One escape at p[0..n), which starts with a backslash. Appends its PCRE2 form, sets *used. */
static weft_status escape(const char *p, size_t n, bool in_class, weft_str *out, size_t *used, weft_error *e) {
    char letter[8] = {'\\', n > 1 ? p[1] : 0};
    char c = letter[1];
    *used = 2;
    bool ok;
    if (n < 2) return refuse(e, "a backslash at its end");
    if (c == 's') {
        ok = weft_str_addz(out, in_class ? SPACES : "[" SPACES "]");
    } else if (c == 'S' && !in_class) {
        ok = weft_str_addz(out, "[^" SPACES "]");
    } else {
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (alnum && !strchr("pPdDrntfexazZA", c)) return refuse(e, letter);
        if (c == 'p' || c == 'P' || c == 'x') *used += braces(p + 2, n - 2);
        ok = weft_str_add(out, p, *used);
    }
    return ok ? WEFT_OK : weft_fail_oom(e, "the split pattern");
}

/* Copies an expression, with \s and \S spelled out. Refused: what PCRE2 would read otherwise than Oniguruma (sets inside sets,
 * `&&`, \w, \b, \h, `{2}+`, inline options other than i) or take as a command to itself (`(*`). */
static weft_status translate(const char *p, size_t n, weft_str *out, weft_error *e) {
    bool in_class = false;
    for (size_t i = 0, used; i < n; i += used) {
        used = 1;
        char next = i + 1 < n ? p[i + 1] : 0;
        if (p[i] == '\\') {
            WEFT_TRY(escape(p + i, n - i, in_class, out, &used, e));
            continue;
        }
        if (in_class) {
            if (p[i] == '[') return refuse(e, "a set inside a set");
            if (p[i] == '&' && next == '&') return refuse(e, "&&");
            in_class = p[i] != ']';
        } else if (p[i] == '[') {
            in_class = true;
            used += next == '^';
            if (i + used < n && p[i + used] == ']') return refuse(e, "] at the start of a set");
        } else if (p[i] == '(' && next == '*') {
            return refuse(e, "(*");
        } else if (p[i] == '(' && next == '?' && i + 2 < n) {
            char option = p[i + 2];
            if ((option >= 'a' && option <= 'z' && option != 'i') || (option >= 'A' && option <= 'Z') || option == '-')
                return refuse(e, "an inline option other than i");
            if (option == 'i' && i + 3 < n && p[i + 3] != ':' && p[i + 3] != ')') return refuse(e, "an inline option other than i");
        } else if (p[i] == '}' && next == '+') {
            return refuse(e, "}+");
        }
        if (!weft_str_add(out, p + i, used)) return weft_fail_oom(e, "the split pattern");
    }
    return WEFT_OK;
}

static weft_status compile(const char *pattern, size_t n, bool literal, pcre2_code **code, weft_error *e) {
    pcre2_general_context *memory = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    if (!context) {
        pcre2_general_context_free(memory);
        return weft_fail_oom(e, "the split pattern");
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* whatever the library was built with */
    int error;
    PCRE2_SIZE at;
    weft_status status = WEFT_OK;
    const uint32_t options = literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    *code = pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | options, &error, &at, context);
    if (*code) {
        uint32_t empty = 0;
        pcre2_pattern_info(*code, PCRE2_INFO_MATCHEMPTY, &empty);
        if (empty) status = refuse(e, "an empty match");
        pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* where this fails (no executable memory), the interpreter serves */
    } else if (error == PCRE2_ERROR_HEAP_FAILED) {
        status = weft_fail_oom(e, "the split pattern");
    } else {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(error, why, sizeof why);
        status = weft_fail(e, WEFT_ESUPPORT, "the split pattern does not compile: %s", (const char *)why);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    return status;
}

weft_status weft_split_add(weft_split *s, const char *pattern, size_t n, weft_split_how how, weft_error *e) {
    if (s->n == WEFT_SPLIT_MOST) return weft_fail(e, WEFT_ESUPPORT, "more than %d split patterns", WEFT_SPLIT_MOST);
    if (n > PATTERN_LONGEST) return weft_fail(e, WEFT_ESUPPORT, "a split pattern of more than %d bytes", PATTERN_LONGEST);
    struct weft_split_rule *rule = weft_calloc(1, sizeof *rule);
    if (!rule) return weft_fail_oom(e, "the split pattern");
    s->rule[s->n++] = rule; /* weft_split_free() clears up after a failure */
    rule->how = how;
    if (how.literal) return compile(pattern, n, true, &rule->code, e);
    weft_str text = {0};
    weft_status status = translate(pattern, n, &text, e);
    if (status == WEFT_OK) status = compile(weft_str_z(&text), text.n, false, &rule->code, e);
    weft_str_free(&text);
    return status;
}

void weft_split_free(weft_split *s) {
    for (int k = 0; k < s->n; k++) {
        pcre2_code_free(s->rule[k]->code);
        weft_free(s->rule[k]);
    }
    *s = (weft_split){0};
}

struct run {
    const weft_split *split;
    pcre2_match_data *match[WEFT_SPLIT_MOST]; /* one per level: an outer match is still in use while its piece is cut further */
    pcre2_match_context *limits;
    weft_piece_sink sink;
    void *ctx;
    weft_error *e;
};

static weft_status match_failed(int rc, weft_error *e) {
    if (rc == PCRE2_ERROR_NOMEMORY) return weft_fail_oom(e, "splitting text");
    PCRE2_UCHAR why[160] = "";
    pcre2_get_error_message(rc, why, sizeof why);
    return weft_fail(e, WEFT_ESUPPORT, "the tokenizer's split pattern cannot be run on this text: %s", (const char *)why);
}

static weft_status cut(struct run *r, int level, const char *text, size_t n);

/* The stretch of a text that is not handed on yet, as the next one may belong to it. */
struct pending {
    size_t from, to; /* to == 0: there is none */
    bool match;
};

/* Takes the stretch text[from..to), which follows the pending one. */
static weft_status stretch(struct run *r, int level, const char *text, struct pending *p, size_t from, size_t to, bool match) {
    const weft_split_behavior how = r->split->rule[level]->how.behavior;
    bool joins = false; /* the pending one and this one are one piece */
    if (from == to) return WEFT_OK;
    if (how == WEFT_SPLIT_REMOVED && match) return WEFT_OK;
    if (how == WEFT_SPLIT_MERGED_WITH_PREVIOUS) joins = match && !p->match;
    if (how == WEFT_SPLIT_MERGED_WITH_NEXT) joins = !match && p->match;
    if (how == WEFT_SPLIT_CONTIGUOUS) joins = match == p->match;
    if (joins && p->to) {
        p->to = to;
    } else {
        if (p->to) WEFT_TRY(cut(r, level + 1, text + p->from, p->to - p->from));
        p->from = from, p->to = to;
    }
    p->match = match;
    return WEFT_OK;
}

static weft_status cut(struct run *r, int level, const char *text, size_t n) {
    if (level == r->split->n) return r->sink(r->ctx, text, n, r->e);
    const struct weft_split_rule *rule = r->split->rule[level];
    pcre2_match_data *found = r->match[level];
    struct pending p = {0};
    for (size_t at = 0; at < n;) {
        const uint32_t how = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
        int rc = pcre2_match(rule->code, (PCRE2_SPTR)text, n, at, how, found, r->limits);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter backtracks on the heap */
            rc = pcre2_match(rule->code, (PCRE2_SPTR)text, n, at, how | PCRE2_NO_JIT, found, r->limits);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) return match_failed(rc, r->e);
        const PCRE2_SIZE *edge = pcre2_get_ovector_pointer(found);
        size_t start = rc < 0 ? n : edge[0], end = rc < 0 ? n : edge[1];
        WEFT_TRY(stretch(r, level, text, &p, at, start, rule->how.invert));
        WEFT_TRY(stretch(r, level, text, &p, start, end, !rule->how.invert));
        at = end;
    }
    return p.to ? cut(r, level + 1, text + p.from, p.to - p.from) : WEFT_OK;
}

weft_status weft_split_run(const weft_split *s, const char *text, size_t n, weft_piece_sink sink, void *ctx, weft_error *e) {
    if (n == 0) return WEFT_OK;
    if (s->n == 0) return sink(ctx, text, n, e);
    struct run r = {.split = s, .sink = sink, .ctx = ctx, .e = e};
    pcre2_general_context *memory = pcre2_general_context_create(take, give, NULL);
    bool ok = memory && (r.limits = pcre2_match_context_create(memory));
    for (int k = 0; ok && k < s->n; k++) ok = (r.match[k] = pcre2_match_data_create(1, memory));
    weft_status status;
    if (ok) {
        uint64_t steps = 1000000 + 16 * (uint64_t)n; /* per match; an honest pattern takes a few per byte */
        pcre2_set_match_limit(r.limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
        status = cut(&r, 0, text, n);
    } else {
        status = weft_fail_oom(e, "splitting text");
    }
    for (int k = 0; k < s->n; k++) pcre2_match_data_free(r.match[k]);
    pcre2_match_context_free(r.limits);
    pcre2_general_context_free(memory);
    return status;
}

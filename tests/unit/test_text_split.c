/* test_text_split.c: cutting text by the expressions of tokenizer.json files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "text/split.h"

static const char qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                            "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char qwen35[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                             "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static weft_status add(weft_split *s, const char *pattern, weft_error *e) {
    return weft_split_add(s, pattern, strlen(pattern), (weft_split_how){0}, e);
}

static weft_split made_of(const char *first, const char *second) {
    weft_split s = {0};
    weft_error e;
    if (add(&s, first, &e) != WEFT_OK || (second && add(&s, second, &e) != WEFT_OK)) fail_msg("%s", e.text);
    return s;
}

/* Pieces with a bar after each. */
static weft_status collect(void *ctx, const char *piece, size_t n, weft_error *e) {
    weft_str *s = ctx;
    assert_true(n > 0);
    return weft_str_add(s, piece, n) && weft_str_addz(s, "|") ? WEFT_OK : weft_fail_oom(e, "a piece");
}

static void assert_pieces(const weft_split *s, const char *text, const char *want) {
    weft_str got = {0};
    weft_error e;
    if (weft_split_run(s, text, strlen(text), collect, &got, &e) != WEFT_OK) fail_msg("%s", e.text);
    if (strcmp(weft_str_z(&got), want) != 0) fail_msg("'%s' became '%s', expected '%s'", text, weft_str_z(&got), want);
    weft_str_free(&got);
}

static void test_qwen_pieces(void **state) {
    (void)state;
    weft_split s = made_of(qwen35, NULL);
    assert_pieces(&s, "", "");
    assert_pieces(&s, "Hello, world!", "Hello|,| world|!|");
    assert_pieces(&s, "don't I'LL we'Ve 'x", "don|'t| I|'LL| we|'Ve| '|x|");
    assert_pieces(&s, "it'\xC5\xBF", "it|'\xC5\xBF|"); /* long s is an s, whatever its case */
    assert_pieces(&s, "a  b   ", "a| | b|   |");
    assert_pieces(&s, "a\n\n  b\r\n", "a|\n\n| | b|\r\n|");
    assert_pieces(&s, "x = 12;\n", "x| =| |1|2|;\n|");
    assert_pieces(&s, "    return", "   | return|");
    assert_pieces(&s, "\t\tx", "\t|\tx|");
    weft_split_free(&s);
}

/* Hindi, Thai and Arabic marks belong to the word since Qwen3.5; before, they cut it. */
static void test_marks_by_family(void **state) {
    (void)state;
    weft_split old = made_of(qwen2, NULL), fresh = made_of(qwen35, NULL);
    const char *namaste = "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87";
    assert_pieces(&fresh, namaste, "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87|");
    assert_pieces(&old, namaste, "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8|\xE0\xA5\x8D\xE0\xA4\xA4|\xE0\xA5\x87|");
    weft_split_free(&old);
    weft_split_free(&fresh);
}

/* PCRE2 counts U+180E as a space, Oniguruma and the Unicode standard do not; U+0085 and U+3000 are spaces to both. */
static void test_white_space(void **state) {
    (void)state;
    weft_split s = made_of("\\s+", NULL), in_set = made_of("[\\s_]+", NULL), others = made_of("\\S+", NULL),
               sets = made_of("[^\\s]", NULL);
    const char *text = "a\xE1\xA0\x8E"
                       "b \t\x0B\xC2\x85\xE2\x80\xA8\xE3\x80\x80"
                       "c\xE2\x80\x8B";
    assert_pieces(&s, text,
                  "a\xE1\xA0\x8E"
                  "b| \t\x0B\xC2\x85\xE2\x80\xA8\xE3\x80\x80|c\xE2\x80\x8B|");
    assert_pieces(&in_set, text,
                  "a\xE1\xA0\x8E"
                  "b| \t\x0B\xC2\x85\xE2\x80\xA8\xE3\x80\x80|c\xE2\x80\x8B|");
    assert_pieces(&others, text,
                  "a\xE1\xA0\x8E"
                  "b| \t\x0B\xC2\x85\xE2\x80\xA8\xE3\x80\x80|c\xE2\x80\x8B|");
    assert_pieces(&sets, "x\xE1\xA0\x8E \x85", "x|\xE1\xA0\x8E| \x85|");
    weft_split_free(&s);
    weft_split_free(&in_set);
    weft_split_free(&others);
    weft_split_free(&sets);
}

/* What becomes of a match, for a text and for an expression; the cases of the reference library's own documentation. */
static void test_behaviors(void **state) {
    (void)state;
    static const struct {
        weft_split_how how;
        const char *pieces, *edges; /* of "the-final--countdown" and "-a-" */
    } cases[] = {
        {{.behavior = WEFT_SPLIT_REMOVED}, "the|final|countdown|", "a|"},
        {{.behavior = WEFT_SPLIT_ISOLATED}, "the|-|final|-|-|countdown|", "-|a|-|"},
        {{.behavior = WEFT_SPLIT_MERGED_WITH_PREVIOUS}, "the-|final-|-|countdown|", "-|a-|"},
        {{.behavior = WEFT_SPLIT_MERGED_WITH_NEXT}, "the|-final|-|-countdown|", "-a|-|"},
        {{.behavior = WEFT_SPLIT_CONTIGUOUS}, "the|-|final|--|countdown|", "-|a|-|"},
        {{.behavior = WEFT_SPLIT_REMOVED, .invert = true}, "-|-|-|", "-|-|"},
        {{.behavior = WEFT_SPLIT_MERGED_WITH_PREVIOUS, .invert = true}, "the|-final|-|-countdown|", "-a|-|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int literal = 0; literal < 2; literal++) {
            weft_split s = {0};
            weft_split_how how = cases[i].how;
            how.literal = literal;
            assert_int_equal(weft_split_add(&s, literal ? "-" : "[-]", literal ? 1 : 3, how, NULL), WEFT_OK);
            assert_pieces(&s, "the-final--countdown", cases[i].pieces);
            assert_pieces(&s, "-a-", cases[i].edges);
            assert_pieces(&s, "", "");
            weft_split_free(&s);
        }
    }
    weft_split dot = {0};
    assert_int_equal(weft_split_add(&dot, ".*", 2, (weft_split_how){.literal = true}, NULL), WEFT_OK);
    assert_pieces(&dot, "a.*b.", "a|.*|b.|");
    weft_split_free(&dot);
}

static void test_several_patterns(void **state) {
    (void)state;
    weft_split none = {0}, s = made_of("\\p{N}{1,3}", "[a-z]|\\]");
    assert_pieces(&none, "all of it", "all of it|");
    assert_pieces(&s, "ab12345-c]", "a|b|123|45|-|c|]|");
    weft_split_free(&s);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *says;
    } cases[] = {
        {"[\\p{L}&&[^\\p{Han}]]", "&&"},
        {"[a[b]]", "a set inside a set"},
        {"[]a]", "] at the start"},
        {"[^]a]", "] at the start"},
        {"[\\S]", "\\S"},
        {"\\w+", "\\w"},
        {"a\\b", "\\b"},
        {"\\h", "\\h"},
        {"\\v", "\\v"},
        {"\\1", "\\1"},
        {"\\Ka", "\\K"},
        {"a\\", "a backslash"},
        {"(*UTF)a", "(*"},
        {"(?m:a)", "inline option"},
        {"(?im:a)", "inline option"},
        {"(?-i:a)", "inline option"},
        {"(?P<x>a)", "inline option"},
        {"a{2}+", "}+"},
        {"a*", "an empty match"},
        {"(?=a)", "an empty match"},
        {"(a", "does not compile"},
        {"\\p{Nonsense}", "does not compile"},
        {"(?<!a+)b", "does not compile"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_split s = {0};
        weft_error e = {0};
        if (add(&s, cases[i].pattern, &e) != WEFT_ESUPPORT || !strstr(e.text, cases[i].says))
            fail_msg("%s: %d, '%s'", cases[i].pattern, e.code, e.text);
        weft_split_free(&s);
    }
    weft_split s = {0};
    weft_error e;
    static char huge[20000];
    memset(huge, 'a', sizeof huge);
    assert_int_equal(weft_split_add(&s, huge, sizeof huge, (weft_split_how){0}, &e), WEFT_ESUPPORT);
    for (int k = 0; k < WEFT_SPLIT_MOST; k++) assert_int_equal(add(&s, "\\p{L}+(?>a|b)(?i)c\\x{41}", &e), WEFT_OK);
    assert_int_equal(add(&s, "a", &e), WEFT_ESUPPORT);
    weft_split_free(&s);
}

/* A hostile expression is stopped, not waited for. */
static void test_catastrophic_pattern(void **state) {
    (void)state;
    weft_split s = made_of("(?:a|aa|aaa)+[!-)]", NULL);
    weft_error e;
    weft_str got = {0};
    char text[2000];
    memset(text, 'a', sizeof text);
    assert_int_equal(weft_split_run(&s, text, sizeof text, collect, &got, &e), WEFT_ESUPPORT);
    assert_non_null(strstr(e.text, "cannot be run"));
    weft_str_free(&got);
    weft_split_free(&s);
}

static weft_status count(void *ctx, const char *piece, size_t n, weft_error *e) {
    (void)piece, (void)e;
    size_t *sum = ctx;
    sum[0] += n;
    sum[1]++;
    return WEFT_OK;
}

/* `\s+(?!\S)` and `\s*[\r\n]+` backtrack; none of these may take quadratic time. */
static void test_a_megabyte_of_one_kind(void **state) {
    (void)state;
    static const char *const units[] = {" ", "a",     "\n ", " \n",          "!", "\xCC\x81", "<", "'",
                                        "1", "\t \t", "\r",  "\xE3\x80\x80", "'l"};
    static const char *const patterns[] = {qwen2, qwen35};
    uint64_t start = weft_now_ns();
    for (size_t p = 0; p < 2; p++) {
        weft_split s = made_of(patterns[p], NULL);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            weft_str text = {0};
            weft_error e;
            size_t sum[2] = {0};
            while (text.n < 1 << 20) assert_true(weft_str_addz(&text, units[u]));
            assert_true(weft_str_addz(&text, "x"));
            if (weft_split_run(&s, text.p, text.n, count, sum, &e) != WEFT_OK) fail_msg("%s", e.text);
            assert_int_equal(sum[0], text.n);
            weft_str_free(&text);
        }
        weft_split_free(&s);
    }
    assert_true(weft_now_ns() - start < UINT64_C(60000000000));
}

static void test_without_memory(void **state) {
    (void)state;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        weft_split s = {0};
        weft_error e = {0};
        size_t sum[2] = {0};
        weft_alloc_fail_at(n);
        weft_status status = add(&s, qwen35, &e);
        if (status == WEFT_OK) status = weft_split_run(&s, "one two", 7, count, sum, &e);
        weft_alloc_fail_at(0);
        assert_true(status == WEFT_OK || status == WEFT_ENOMEM);
        done = status == WEFT_OK;
        weft_split_free(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen_pieces),          cmocka_unit_test(test_marks_by_family),
        cmocka_unit_test(test_white_space),          cmocka_unit_test(test_behaviors),
        cmocka_unit_test(test_several_patterns),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_catastrophic_pattern), cmocka_unit_test(test_a_megabyte_of_one_kind),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

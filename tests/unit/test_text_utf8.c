/* test_text_utf8.c: well-formed UTF-8 and everything else; normalisation form C. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "text/normalize.h"
#include "text/utf8.h"

#define FFFD "\xEF\xBF\xBD"

static void assert_repaired(const char *s, size_t n, const char *want) {
    weft_str out = {0};
    char *exact = malloc(n ? n : 1); /* reading past the end shows under ASan */
    memcpy(exact, s, n);
    assert_true(weft_str_addz(&out, "x") && weft_utf8_add(&out, exact, n));
    assert_string_equal(out.p + 1, want);
    weft_str_free(&out);
    free(exact);
}

static void test_every_code_point(void **state) {
    (void)state;
    for (int32_t c = 0; c <= 0x10FFFF; c++) {
        if (c == 0xD800) c = 0xE000;
        char s[4];
        int32_t back;
        size_t n = weft_utf8_put(s, c);
        assert_int_equal(weft_utf8_next(s, n, &back), n);
        assert_int_equal(back, c);
        for (size_t k = 1; k < n; k++) { /* cut short */
            assert_int_equal(weft_utf8_next(s, k, &back), k);
            assert_int_equal(back, WEFT_UTF8_CUT);
        }
    }
}

/* Table 3-8 of the Unicode standard and its neighbours: what Python's decode(errors="replace") gives. */
static void test_maximal_subparts(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *want;
    } cases[] = {
        {"a\xF1\x80\x80\xE1\x80\xC2"
         "b\x80"
         "c\x80\xBF"
         "d",
         "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d"},
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
         "A",
         FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},               /* overlong */
        {"\xED\xA0\x80\xED\xBF\xBF", FFFD FFFD FFFD FFFD FFFD FFFD}, /* surrogates */
        {"\xF4\x91\x92\x93\xFF", FFFD FFFD FFFD FFFD FFFD},          /* beyond U+10FFFF */
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF", FFFD FFFD FFFD FFFD},   /* cut off */
        {"\xE4\xBD", FFFD},                                          /* at the end */
        {"\xF0\x9F\x98", FFFD},
        {"\xF0", FFFD},
        {"\xF5\x80", FFFD FFFD},
        {"good \xE4\xBD\xA0", "good \xE4\xBD\xA0"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_repaired(cases[i].bytes, strlen(cases[i].bytes), cases[i].want);
    assert_repaired("a\0b", 3, "a");
}

static void test_repair_without_memory(void **state) {
    (void)state;
    weft_str out = {0};
    assert_true(weft_str_addz(&out, "kept"));
    weft_alloc_fail_at(1);
    assert_false(weft_utf8_add(&out, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 14));
    weft_alloc_fail_at(0);
    assert_string_equal(out.p, "kept");
    weft_str_free(&out);
}

/* ---- normalisation ------------------------------------------------------------------------------------------------------- */

static void assert_nfc(const char *s, const char *want) {
    weft_str out = {0};
    weft_codepoints work = {0};
    assert_true(weft_nfc(&out, s, strlen(s), &work));
    if (strcmp(weft_str_z(&out), want) != 0) fail_msg("'%s' became '%s', expected '%s'", s, weft_str_z(&out), want);
    weft_str again = {0};
    assert_true(weft_nfc(&again, out.p, out.n, &work));
    assert_string_equal(weft_str_z(&again), want);
    weft_str_free(&again);
    weft_str_free(&out);
    weft_vec_free(&work);
}

static void test_nfc(void **state) {
    (void)state;
    assert_nfc("", "");
    assert_nfc("plain \xC3\xA9", "plain \xC3\xA9");
    assert_nfc("e\xCC\x81", "\xC3\xA9"); /* e + acute */
    assert_nfc("xe\xCC\x81y", "x\xC3\xA9y");
    assert_nfc("\xC3\xA9\xCC\xA3", "\xE1\xBA\xB9\xCC\x81");                              /* é + dot below: the dot goes first */
    assert_nfc("a\xCC\x95\xCC\x80\xD6\xAE\xCC\x80", "\xC3\xA0\xD6\xAE\xCC\x80\xCC\x95"); /* from NormalizationTest.txt */
    assert_nfc("\xE2\x84\xAB", "\xC3\x85");                                              /* Angstrom sign */
    assert_nfc("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");                              /* excluded from composition */
    assert_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81");                  /* Hangul */
    assert_nfc("\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81");
    assert_nfc("\xCC\x81"
               "e",
               "\xCC\x81"
               "e");                         /* a mark without a letter */
    assert_nfc(">\xCC\xB8", "\xE2\x89\xAF"); /* > + slash: not greater */
    assert_nfc("\xE4\xBD\xA0\xE5\xA5\xBD", "\xE4\xBD\xA0\xE5\xA5\xBD");
    assert_nfc("\xFF"
               "e\xCC\x81\xE4",
               FFFD "\xC3\xA9" FFFD);
    assert_nfc("e\xFF\xCC\x81", "e" FFFD "\xCC\x81");
}

/* utf8proc 2.8 drops U+11A7 after a syllable: text was lost. */
static void test_nfc_keeps_the_hangul_filler(void **state) {
    (void)state;
    assert_nfc("\xEA\xB0\x80\xE1\x86\xA7", "\xEA\xB0\x80\xE1\x86\xA7");
    assert_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA7\xE1\x86\xA8", "\xEA\xB0\x80\xE1\x86\xA7\xE1\x86\xA8");
    assert_nfc("\xE1\x86\xA7\xE1\x86\xA7\xCC\x81", "\xE1\x86\xA7\xE1\x86\xA7\xCC\x81");
}

/* Canonical ordering by exchanging neighbours takes minutes here. */
static void test_a_megabyte_of_marks(void **state) {
    (void)state;
    static const char *const marks[5] = {"\xCC\x95", "\xCC\x81", "\xCC\xA3", "\xCC\xA7", "\xCC\x88"};
    weft_str text = {0}, out = {0}, again = {0};
    weft_codepoints work = {0};
    for (int i = 0; i < 500000; i++) assert_true(weft_str_addz(&text, marks[i % 5]));
    uint64_t start = weft_now_ns();
    assert_true(weft_nfc(&out, text.p, text.n, &work));
    assert_true(weft_now_ns() - start < UINT64_C(30000000000));
    assert_int_equal(out.n, text.n);
    assert_memory_equal(out.p, "\xCC\xA7\xCC\xA7", 4); /* class 202 before 220, 230 and 232 */
    assert_memory_equal(out.p + out.n - 2, "\xCC\x95", 2);
    assert_true(weft_nfc(&again, out.p, out.n, &work));
    assert_memory_equal(again.p, out.p, out.n);
    weft_str_free(&text);
    weft_str_free(&out);
    weft_str_free(&again);
    weft_vec_free(&work);
}

static void test_nfc_without_memory(void **state) {
    (void)state;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        weft_str out = {0};
        weft_codepoints work = {0};
        weft_alloc_fail_at(n);
        done = weft_nfc(&out, "xe\xCC\x81\xCC\xA3\xCC\x88\xCC\xA7 end", 15, &work);
        weft_alloc_fail_at(0);
        weft_str_free(&out);
        weft_vec_free(&work);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_maximal_subparts),
        cmocka_unit_test(test_repair_without_memory),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_nfc_keeps_the_hangul_filler),
        cmocka_unit_test(test_a_megabyte_of_marks),
        cmocka_unit_test(test_nfc_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_base_error.c: error messages and the log. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

static void test_fail_returns_its_code(void **state) {
    (void)state;
    weft_error e;
    assert_int_equal(weft_fail(&e, WEFT_EFORMAT, "%s: %d layers, expected %d", "config.json", 3, 4), WEFT_EFORMAT);
    assert_int_equal(e.code, WEFT_EFORMAT);
    assert_string_equal(e.text, "config.json: 3 layers, expected 4");
    assert_int_equal(weft_fail(NULL, WEFT_EIO, "x"), WEFT_EIO);
    assert_int_equal(weft_fail_oom(&e, "KV pages"), WEFT_ENOMEM);
    assert_string_equal(e.text, "out of memory: KV pages");
}

/* A hostile file name must not forge lines in a log or drive a terminal. */
static void test_control_bytes_become_question_marks(void **state) {
    (void)state;
    weft_error e;
    weft_fail(&e, WEFT_EIO, "%s", "a\nb\x1b[31m\x7f\tc");
    assert_string_equal(e.text, "a?b?[31m??c");
    weft_fail(&e, WEFT_EIO, "%s", "C1 \xc2\x9b, line \xe2\x80\xa8, bidi \xe2\x80\xae.");
    assert_string_equal(e.text, "C1 ?, line ?, bidi ?.");
    weft_fail(&e, WEFT_EIO, "%s", "bad \xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80 cut \xe2\x82");
    assert_string_equal(e.text, "bad ?????????? cut ??");
    weft_fail(&e, WEFT_EIO, "%s", "gut: \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_string_equal(e.text, "gut: \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
}

/* A long text is cut between characters, never through one, and always terminated. */
static void test_truncation_on_a_character_border(void **state) {
    (void)state;
    static const char *const tail[] = {"x", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t width = 1; width <= 4; width++) {
        for (size_t lead = 1015; lead <= 1030; lead++) {
            char text[1100];
            memset(text, 'a', lead);
            strcpy(text + lead, tail[width - 1]);
            strcat(text, tail[width - 1]);
            weft_error e;
            memset(&e, 0x55, sizeof e);
            weft_fail(&e, WEFT_EIO, "%s", text);
            size_t whole = lead >= 1023 ? 0 : (1023 - lead) / width;
            if (whole > 2) whole = 2;
            size_t expected = lead >= 1023 ? 1023 : lead + whole * width;
            assert_int_equal(strlen(e.text), expected);
            assert_memory_equal(e.text, text, expected);
        }
    }
}

static void test_prefix_and_quoting_itself(void **state) {
    (void)state;
    weft_error e;
    weft_fail(&e, WEFT_EFORMAT, "no key");
    assert_int_equal(weft_fail_in(&e, "tokenizer.json"), WEFT_EFORMAT);
    assert_string_equal(e.text, "tokenizer.json: no key");
    weft_fail(&e, WEFT_EINVAL, "again: %s", e.text);
    assert_string_equal(e.text, "again: tokenizer.json: no key");
    assert_int_not_equal(weft_fail_in(NULL, "x"), WEFT_OK);
}

static void test_system_errors(void **state) {
    (void)state;
    weft_error e;
    assert_int_equal(weft_fail_os(&e, ENOENT, "%s", "/no\nwhere"), WEFT_EIO);
    assert_string_equal(e.text, "/no?where: No such file or directory");
    assert_int_equal(weft_fail_os(&e, ENOMEM, "map"), WEFT_ENOMEM);
    assert_int_equal(weft_fail_os(NULL, ENOMEM, "map"), WEFT_ENOMEM);
    assert_int_equal(weft_fail_os(NULL, EIO, "map"), WEFT_EIO);
}

static void test_status_names(void **state) {
    (void)state;
    for (int s = 3; s >= -20; s--) assert_true(strlen(weft_status_name((weft_status)s)) > 1);
    assert_string_equal(weft_status_name(WEFT_ENOMEM), "out of memory");
}

static char seen[2000];
static int lines;
static void sink(void *ctx, weft_log_level level, const char *line) {
    (void)level;
    assert_ptr_equal(ctx, &lines);
    lines++;
    strcpy(seen, line);
}

static void test_log(void **state) {
    (void)state;
    weft_log(WEFT_LOG_ERROR, "nobody listens");
    weft_log_to(sink, &lines, WEFT_LOG_INFO);
    weft_log(WEFT_LOG_DEBUG, "too quiet");
    assert_int_equal(lines, 0);
    weft_log(WEFT_LOG_INFO, "load %s", "a\nb");
    assert_int_equal(lines, 1);
    assert_string_equal(seen, "load a?b");
    char big[3000];
    memset(big, 'z', sizeof big);
    big[sizeof big - 1] = 0;
    weft_log(WEFT_LOG_ERROR, "%s", big);
    assert_int_equal(strlen(seen), 1023);
    weft_log_to(NULL, NULL, WEFT_LOG_DEBUG);
    weft_log(WEFT_LOG_ERROR, "silence");
    assert_int_equal(lines, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_returns_its_code),
        cmocka_unit_test(test_control_bytes_become_question_marks),
        cmocka_unit_test(test_truncation_on_a_character_border),
        cmocka_unit_test(test_prefix_and_quoting_itself),
        cmocka_unit_test(test_system_errors),
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

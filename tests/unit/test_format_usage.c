/* test_format_usage.c: which ids are said: what is counted comes back and decides the list; a file that is damaged, foreign or in
 * the way costs a line in the log and nothing else. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "format/usage.h"

enum { VOCAB = 1000, N = 100, HEADER = 40 };
static char root[200], dir[240], path[400];
static char logged[4096];
static const uint8_t source[16] = {1, 2, 3, 0xab};

static void keep_line(void *ctx, weft_log_level level, const char *line) {
    (void)ctx;
    size_t n = strlen(logged);
    if (level == WEFT_LOG_WARN) snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static int setup(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/weft-usage-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(root)) return -1;
    snprintf(dir, sizeof dir, "%s/a/cache", root);
    snprintf(path, sizeof path, "%s/some_model-010203ab000000000000000000000000.weftuse", dir);
    logged[0] = 0;
    weft_log_to(keep_line, NULL, WEFT_LOG_DEBUG);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    char above[240];
    snprintf(above, sizeof above, "%s/a", root);
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    remove(path);
    rmdir(dir);
    rmdir(above);
    return rmdir(root); /* fails where something else was left */
}

static weft_usage open_usage(void) {
    weft_usage u;
    weft_error e;
    if (weft_usage_open(&u, dir, "some model", source, VOCAB, &e) != WEFT_OK) fail_msg("%s", e.text);
    return u;
}
static void say(int32_t first, int32_t last, int times) {
    weft_usage u = open_usage();
    for (int i = 0; i < times; i++)
        for (int32_t id = first; id <= last; id++) weft_usage_note(&u, id);
    weft_usage_close(&u);
}
static void choose(const int32_t *always, int n_always, int32_t *ids, int n) {
    weft_usage u = open_usage();
    weft_error e;
    if (weft_usage_choose(&u, always, n_always, ids, n, &e) != WEFT_OK) fail_msg("%s", e.text);
    weft_usage_close(&u);
    for (int i = 1; i < n; i++) assert_true(ids[i] > ids[i - 1]);
}
static bool has(const int32_t *ids, int32_t id) {
    for (int i = 0; i < N; i++)
        if (ids[i] == id) return true;
    return false;
}

static uint8_t *read_file(size_t *size) {
    char *data;
    weft_error e;
    if (weft_file_read(path, 1 << 20, &data, size, &e) != WEFT_OK) fail_msg("%s", e.text);
    return (uint8_t *)data;
}
static void write_file(const void *data, size_t size) {
    weft_error e;
    if (weft_file_write(path, data, size, &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* ---- the usual way ------------------------------------------------------------------------------------------------------- */

static void test_the_list(void **state) {
    (void)state;
    int32_t ids[N];
    const int32_t control[] = {999, 3, 998, 999};
    choose(NULL, 0, ids, N); /* nothing is known: the lowest */
    for (int i = 0; i < N; i++) assert_int_equal(ids[i], i);
    choose(control, 4, ids, N);
    assert_true(ids[97] == 97 && ids[98] == 998 && ids[99] == 999);
    choose(control, 4, ids, 2); /* no room for more */
    assert_true(ids[0] == 3 && ids[1] == 999);
    assert_true(access(dir, F_OK) != 0); /* nothing was said */

    say(500, 549, 2);
    say(600, 679, 1);
    choose(control, 4, ids, N);
    for (int32_t id = 500; id < 550; id++) assert_true(has(ids, id));
    assert_int_equal(ids[0], 3);
    for (int32_t id = 600; id < 680; id++) assert_int_equal(has(ids, id), id < 647); /* of equal counts the lowest */
    say(640, 679, 5);                                                                /* it goes on where the file stands */
    choose(NULL, 0, ids, N);
    for (int32_t id = 640; id < 680; id++) assert_true(has(ids, id));
    for (int32_t id = 500; id < 550; id++) assert_true(has(ids, id));
    for (int32_t id = 600; id < 640; id++) assert_int_equal(has(ids, id), id < 610);
    int32_t all[VOCAB];
    choose(control, 4, all, VOCAB);
    for (int i = 0; i < VOCAB; i++) assert_int_equal(all[i], i);
    assert_string_equal(logged, "");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600); /* nobody else's business */
}

/* Counts are halved when they are many: what was said long ago gives way. None overflows. */
static void test_ageing(void **state) {
    (void)state;
    int32_t ids[N];
    weft_usage u = open_usage();
    for (int32_t id = 100; id < 200; id++) u.said[id] = UINT32_MAX;
    weft_usage_note(&u, 100); /* stays at the most */
    assert_int_equal(u.tokens, 0);
    assert_true(u.said[100] == UINT32_MAX);
    weft_usage_note(&u, 300);
    weft_usage_close(&u);
    size_t size;
    uint8_t *file = read_file(&size);
    uint32_t counts[VOCAB];
    weft_error e;
    assert_int_equal(weft_usage_parse(file, size, source, VOCAB, counts, &e), WEFT_OK);
    uint64_t total = 0;
    for (int i = 0; i < VOCAB; i++) total += counts[i];
    assert_true(total > (1 << 21) - VOCAB && total <= 1 << 22);
    assert_true(counts[100] == counts[199] && counts[100] && !counts[300]);
    weft_free(file);
    for (int i = 0; i < 3; i++) say(700, 799, 20000);
    choose(NULL, 0, ids, N);
    for (int32_t id = 700; id < 800; id++) assert_true(has(ids, id));
    assert_string_equal(logged, "");
}

static void test_nothing_is_kept(void **state) {
    (void)state;
    weft_usage u = {0};
    weft_error e;
    weft_usage_note(&u, 5); /* of an engine that does not count */
    assert_int_equal(u.tokens, 0);
    weft_usage_close(&u);
    assert_int_equal(weft_usage_open(&u, NULL, "some model", source, VOCAB, &e), WEFT_OK);
    weft_usage_note(&u, 5);
    weft_usage_close(&u);
    assert_string_equal(logged, "");
}

/* ---- damage -------------------------------------------------------------------------------------------------------------- */

/* The file is not used, which is said; then it is replaced. */
static void assert_replaced(const char *words) {
    int32_t ids[N];
    logged[0] = 0;
    choose(NULL, 0, ids, N);
    if (!strstr(logged, words)) fail_msg("logged '%s', expected '%s'", logged, words);
    for (int i = 0; i < N; i++) assert_int_equal(ids[i], i);
    logged[0] = 0;
    say(800, 899, 1);
    choose(NULL, 0, ids, N);
    assert_int_equal(ids[0], 800);
    assert_string_equal(logged, "");
}

static void test_every_bit_counts(void **state) {
    (void)state;
    say(500, 509, 3);
    size_t size;
    uint32_t counts[VOCAB];
    weft_error e;
    uint8_t *file = read_file(&size);
    assert_int_equal(size, HEADER + 10 * 8 + 8);
    for (size_t bit = 0; bit < size * 8; bit++) {
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (weft_usage_parse(file, size, source, VOCAB, counts, &e) == WEFT_OK) fail_msg("bit %zu", bit);
        for (int i = 0; i < VOCAB; i++) assert_int_equal(counts[i], 0);
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t n = 0; n < size; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, file, n);
        assert_true(weft_usage_parse(cut, n, source, VOCAB, counts, &e) != WEFT_OK);
        free(cut);
    }
    file[50] ^= 1;
    write_file(file, size);
    assert_replaced("damaged");
    write_file(file, size / 2);
    assert_replaced("damaged");
    write_file(file, 0);
    assert_replaced("cut short");
    weft_free(file);
}

/* What a right checksum does not make right. */
static void test_lies(void **state) {
    (void)state;
    say(500, 509, 3);
    static const struct {
        size_t at;
        uint32_t value;
        const char *words;
    } lies[] = {
        {8, 2, "another version"},
        {12, 0x04030201, "another processor"},
        {16, 7, "another checkpoint"},
        {32, VOCAB + 1, "another check"},
        {36, 11, "does not fit"},
        {36, UINT32_MAX, "does not fit"},
        {40, 501, "entry 1"},
        {48, 500, "entry 1"},
        {40 + 72, VOCAB, "entry 9"},
        {40 + 72, UINT32_MAX, "entry 9"},
        {44, 0, "entry 0"},
    };
    size_t size;
    uint8_t *file = read_file(&size);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint8_t *lie = malloc(size);
        memcpy(lie, file, size);
        memcpy(lie + lies[i].at, &lies[i].value, 4);
        uint64_t sum = weft_hash(lie, size - 8, 0);
        memcpy(lie + size - 8, &sum, 8);
        write_file(lie, size);
        assert_replaced(lies[i].words);
        free(lie);
    }
    weft_free(file);
}

/* A link, something that is no file, a folder that cannot be: the start goes on. */
static void test_in_the_way(void **state) {
    (void)state;
    int32_t ids[N];
    weft_error e;
    say(500, 509, 3);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_replaced("");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_replaced("");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    logged[0] = 0;
    say(500, 509, 3);
    assert_non_null(strstr(logged, "cannot keep which ids are frequent"));
    choose(NULL, 0, ids, N);
    assert_int_equal(ids[N - 1], N - 1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(weft_file_write(dir, "x", 1, &e), WEFT_OK); /* a file where the folder should be */
    logged[0] = 0;
    say(500, 509, 3);
    assert_non_null(strstr(logged, "cannot keep which ids are frequent"));
    assert_int_equal(unlink(dir), 0);
    logged[0] = 0;
    say(500, 509, 3);
    assert_string_equal(logged, "");
}

/* What a killed writer left is removed by the next. */
static void test_killed_writers(void **state) {
    (void)state;
    char temp[500];
    weft_error e;
    say(500, 509, 3);
    snprintf(temp, sizeof temp, "%s.1-2-3.tmp", path);
    assert_int_equal(weft_file_write(temp, "x", 1, &e), WEFT_OK);
    say(500, 509, 3);
    assert_true(access(temp, F_OK) != 0);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    say(500, 509, 3);
    int32_t ids[N];
    weft_error e;
    for (uint64_t at = 1, failed = 1; failed; at++) {
        weft_usage u;
        uint64_t before = weft_alloc_count();
        weft_alloc_fail_at(at);
        weft_status s = weft_usage_open(&u, dir, "some model", source, VOCAB, &e);
        weft_status chosen = s == WEFT_OK ? weft_usage_choose(&u, ids, 0, ids, N, &e) : s;
        if (s == WEFT_OK) weft_usage_note(&u, 7);
        if (s == WEFT_OK) weft_usage_close(&u);
        failed = weft_alloc_count() - before >= at;
        weft_alloc_fail_at(0);
        assert_true(chosen == WEFT_OK || chosen == WEFT_ENOMEM);
        assert_true(at < 200);
    }
    choose(NULL, 0, ids, N);
    assert_true(has(ids, 500));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ageing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_bit_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_the_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_writers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_allocation_may_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

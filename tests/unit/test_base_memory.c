/* test_base_memory.c: allocation and its test hooks, arena, vectors, strings, hash. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"

static bool all_zero(const void *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)p)[i]) return false;
    return true;
}

static void test_calloc_and_realloc(void **state) {
    (void)state;
    unsigned char *p = weft_calloc(100, 3);
    assert_non_null(p);
    assert_true(all_zero(p, 300));
    memset(p, 7, 300);
    p = weft_realloc(p, 5000, 2);
    assert_non_null(p);
    assert_int_equal(p[299], 7);
    weft_free(p);
    /* NULL means failure and nothing else. */
    p = weft_calloc(0, 8);
    assert_non_null(p);
    p = weft_realloc(p, 0, 0);
    assert_non_null(p);
    weft_free(p);
    weft_free(NULL);
    weft_free_aligned(NULL);
    char *s = weft_strdup("text");
    assert_string_equal(s, "text");
    weft_free(s);
}

/* A count from a file times a size must not wrap into a small block. */
static void test_products_that_overflow(void **state) {
    (void)state;
    assert_null(weft_calloc(SIZE_MAX / 2, 3));
    assert_null(weft_calloc(SIZE_MAX, SIZE_MAX));
    assert_null(weft_realloc(NULL, SIZE_MAX / 8 + 1, 8));
    assert_null(weft_alloc_aligned(SIZE_MAX));
    assert_null(weft_alloc_aligned(SIZE_MAX - 70));
    weft_arena a = {0};
    assert_null(weft_arena_get(&a, SIZE_MAX / 4, 5));
    assert_null(weft_arena_get(&a, SIZE_MAX, 1));
    assert_null(weft_arena_get(&a, SIZE_MAX - 20, 1));
    assert_null(weft_arena_str(&a, "x", SIZE_MAX));
    weft_arena_free(&a);
    weft_str s = {0};
    assert_true(weft_str_addz(&s, "abc"));
    assert_false(weft_str_reserve(&s, SIZE_MAX - 2));
    assert_false(weft_str_reserve(&s, SIZE_MAX));
    assert_string_equal(weft_str_z(&s), "abc");
    weft_str_free(&s);
    WEFT_VEC(uint64_t) v = {0};
    assert_false(weft_vec_reserve(&v, SIZE_MAX / 8 + 1));
    assert_int_equal(v.cap, 0);
}

static void test_aligned(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 100000, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = weft_alloc_aligned(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(all_zero(p, sizes[i]));
        memset(p, 0xAA, sizes[i]);
        weft_free_aligned(p);
    }
}

static void test_hooks(void **state) {
    (void)state;
    uint64_t start = weft_alloc_count();
    void *p = weft_calloc(1, 1), *q = weft_alloc_aligned(1);
    p = weft_realloc(p, 2, 1);
    assert_int_equal(weft_alloc_count() - start, 3);
    weft_alloc_fail_at(2);
    void *r = weft_calloc(1, 1);
    assert_non_null(r);
    assert_null(weft_calloc(1, 1));
    assert_null(weft_alloc_aligned(1)); /* and every later one */
    assert_null(weft_realloc(r, 9, 9)); /* the old block stays */
    assert_null(weft_strdup("x"));
    weft_alloc_fail_at(0);
    r = weft_realloc(r, 9, 9);
    assert_non_null(r);
    weft_free(p);
    weft_free_aligned(q);
    weft_free(r);
}

static void test_arena(void **state) {
    (void)state;
    weft_arena a = {0};
    unsigned char *kept[2000];
    size_t size[2000];
    for (size_t i = 0; i < 2000; i++) {
        size[i] = i % 97 == 0 ? 50000 + i : i % 53;
        kept[i] = weft_arena_get(&a, size[i], 1);
        assert_non_null(kept[i]);
        assert_int_equal((uintptr_t)kept[i] % 16, 0);
        assert_true(all_zero(kept[i], size[i]));
        memset(kept[i], (int)(i & 255), size[i]);
    }
    for (size_t i = 0; i < 2000; i++)
        for (size_t j = 0; j < size[i]; j++) assert_int_equal(kept[i][j], i & 255);
    assert_string_equal(weft_arena_str(&a, "hello", 4), "hell");
    assert_string_equal(weft_arena_str(&a, NULL, 0), "");
    weft_arena_free(&a);
    assert_null(a.head);
    weft_arena_free(&a);
    weft_alloc_fail_at(1);
    assert_null(weft_arena_get(&a, 1, 1));
    weft_alloc_fail_at(0);
}

/* Small objects come in few allocations, whatever large ones are between. */
static void test_arena_blocks_are_few(void **state) {
    (void)state;
    weft_arena a = {0};
    uint64_t start = weft_alloc_count();
    for (int i = 0; i < 20000; i++) assert_non_null(weft_arena_get(&a, 1, 40));
    assert_true(weft_alloc_count() - start < 15);
    start = weft_alloc_count();
    for (int i = 0; i < 10; i++) {
        assert_non_null(weft_arena_get(&a, 3, 1 << 20));
        assert_non_null(weft_arena_get(&a, 1, 40));
    }
    assert_true(weft_alloc_count() - start <= 11);
    weft_arena_free(&a);
}

typedef struct pair {
    int a, b;
} pair;

static void test_vec(void **state) {
    (void)state;
    WEFT_VEC(pair) v = {0};
    for (int i = 0; i < 1000; i++) assert_true(weft_vec_push(&v, ((pair){i, -i})));
    assert_int_equal(v.n, 1000);
    for (int i = 0; i < 1000; i++) assert_true(v.v[i].a == i && v.v[i].b == -i);
    assert_true(weft_vec_reserve(&v, 5000));
    assert_true(v.cap >= 5000);
    uint64_t start = weft_alloc_count();
    for (int i = 0; i < 4000; i++) assert_true(weft_vec_push(&v, v.v[0]));
    assert_int_equal(weft_alloc_count(), start);
    v.n = v.cap;
    size_t n = v.n;
    weft_alloc_fail_at(1);
    assert_false(weft_vec_push(&v, v.v[0]));
    weft_alloc_fail_at(0);
    assert_int_equal(v.n, n);
    weft_vec_free(&v);
    assert_null(v.v);
    assert_int_equal(v.cap, 0);
    weft_vec_free(&v);
}

static void test_str(void **state) {
    (void)state;
    weft_str s = {0};
    assert_string_equal(weft_str_z(&s), "");
    assert_true(weft_str_add(&s, "a\0b", 3));
    assert_true(weft_str_add(&s, NULL, 0));
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.p, "a\0b", 4);
    weft_str_clear(&s);
    assert_string_equal(weft_str_z(&s), "");
    for (int i = 0; i < 200; i++) assert_true(weft_str_addf(&s, "%d,", i));
    assert_int_equal(s.n, 10 * 2 + 90 * 3 + 100 * 4);
    assert_int_equal(strlen(s.p), s.n);
    assert_true(weft_ends_with(s.p, "198,199,"));
    assert_true(weft_starts_with(s.p, "0,1,2,"));
    assert_false(weft_ends_with("x", "long"));
    assert_false(weft_starts_with("x", "xy"));
    assert_true(weft_starts_with("x", "") && weft_ends_with("", ""));
    size_t n = s.n;
    weft_alloc_fail_at(1);
    assert_false(weft_str_reserve(&s, 100000));
    assert_false(weft_str_addf(&s, "%100000d", 1));
    weft_alloc_fail_at(0);
    assert_int_equal(s.n, n);
    assert_int_equal(strlen(s.p), n);
    weft_str_free(&s);
    assert_null(s.p);
    weft_str_clear(&s);
}

/* Values of the published algorithm: a table written to disk by one build must be found by the next. */
static void test_hash(void **state) {
    (void)state;
    assert_true(weft_hash("", 0, 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(weft_hash(NULL, 0, 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(weft_hash("a", 1, 0) != weft_hash("b", 1, 0));
    assert_true(weft_hash("a", 1, 0) != weft_hash("a", 1, 1));
    assert_true(weft_hash("a\0", 2, 0) != weft_hash("a", 1, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calloc_and_realloc),
        cmocka_unit_test(test_products_that_overflow),
        cmocka_unit_test(test_aligned),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_blocks_are_few),
        cmocka_unit_test(test_vec),
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

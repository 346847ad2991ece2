/* test_base_bandwidth.c: the measurement runs, over blocks of any size, and its result is a speed. How fast is not asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/bandwidth.h"

static weft_pool *open_pool(int threads) {
    weft_pool *p = NULL;
    weft_error e = {0};
    if (weft_pool_open(&p, threads, &e) != WEFT_OK) fail_msg("%s", e.text);
    return p;
}

static void test_blocks(void **state) {
    (void)state;
    const size_t sizes[] = {1, 4096, 100003, 1 << 20, (4 << 20) + 12345};
    for (int threads = 1; threads <= 3; threads++) {
        weft_pool *p = open_pool(threads);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            weft_bandwidth *b = NULL;
            weft_error e = {0};
            assert_int_equal(weft_bandwidth_open(&b, p, sizes[i], &e), WEFT_OK);
            size_t bytes = weft_bandwidth_bytes(b);
            assert_true(bytes > 0 && (bytes <= sizes[i] || sizes[i] < 200000)); /* at least a little for every thread */
            assert_true(sizes[i] < 200000 || bytes > sizes[i] - sizes[i] / 8);
            for (int k = 0; k < 2; k++) {
                double speed = weft_bandwidth_measure(b);
                assert_true(speed > 1e3 && speed < 1e15);
            }
            weft_bandwidth_close(b);
        }
        weft_pool_close(p);
    }
    weft_bandwidth_close(NULL);
}

static void test_out_of_memory(void **state) {
    (void)state;
    weft_pool *p = open_pool(2);
    for (int n = 1; n <= 2; n++) {
        weft_bandwidth *b = NULL;
        weft_error e = {0};
        weft_alloc_fail_at((uint64_t)n);
        weft_status s = weft_bandwidth_open(&b, p, 1 << 16, &e);
        weft_alloc_fail_at(0);
        assert_int_equal(s, WEFT_ENOMEM);
        assert_null(b);
        assert_true(e.text[0]);
    }
    weft_bandwidth *b = NULL;
    assert_int_equal(weft_bandwidth_open(&b, p, SIZE_MAX / 2, NULL), WEFT_ENOMEM);
    assert_null(b);
    weft_pool_close(p);
}

/* Nothing, or something that a machine may have. */
static void test_caches(void **state) {
    (void)state;
    size_t bytes = weft_cache_bytes();
    assert_true(bytes == 0 || (bytes >= 16384 && bytes < (size_t)1 << 40));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

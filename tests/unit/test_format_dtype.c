/* test_format_dtype.c: conversions of element types, compared with the definition of each in double arithmetic. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/fpu.h"
#include "base/rng.h"
#include "format/dtype.h"

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static uint32_t convert(weft_dtype t, const void *src) {
    uint8_t odd[9];
    memcpy(odd + 1, src, weft_dtype_size(t)); /* from an odd address, as tensors may lie */
    float f;
    weft_to_f32(&f, t, odd + 1, 1);
    return bits_of(f);
}

static void test_names_and_sizes(void **state) {
    (void)state;
    for (int t = 0; t < WEFT_DTYPES; t++) {
        weft_dtype back;
        assert_true(weft_dtype_parse(weft_dtype_name((weft_dtype)t), &back));
        assert_int_equal(back, t);
        assert_true(weft_dtype_size((weft_dtype)t) >= 1 && weft_dtype_size((weft_dtype)t) <= 8);
    }
    weft_dtype t;
    assert_false(weft_dtype_parse("bf16", &t));
    assert_false(weft_dtype_parse("", &t));
    assert_false(weft_dtype_parse("F4", &t));
    assert_true(weft_dtype_is_float(WEFT_F8_E8M0));
    assert_false(weft_dtype_is_float(WEFT_U8));
}

/* sign, exponent, mantissa to a double, by the definition of IEEE 754. */
static double value(int sign, int exp, int mant, int mant_bits, int bias) {
    double m = exp ? 1 + ldexp(mant, -mant_bits) : ldexp(mant, -mant_bits);
    return (sign ? -1 : 1) * ldexp(m, (exp ? exp : 1) - bias);
}

static void test_every_f16(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        uint32_t got = convert(WEFT_F16, &h);
        int sign = (int)(i >> 15), exp = (int)(i >> 10 & 31), mant = (int)(i & 1023);
        bool finite = exp != 31;
        if (finite) assert_int_equal(got, bits_of((float)value(sign, exp, mant, 10, 15)));
        if (!finite && mant == 0) assert_int_equal(got, sign ? 0xff800000u : 0x7f800000u);
        if (!finite && mant != 0) assert_int_equal(got, (sign ? 0xff800000u : 0x7f800000u) | (uint32_t)mant << 13);
        assert_int_equal(weft_first_nonfinite(WEFT_F16, &h, 1), finite ? 1 : 0);
    }
}

static void test_every_bf16(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        assert_int_equal(convert(WEFT_BF16, &h), i << 16);
        assert_int_equal(weft_first_nonfinite(WEFT_BF16, &h, 1), (i >> 7 & 255) == 255 ? 0 : 1);
    }
}

static void test_every_f8(void **state) {
    (void)state;
    for (int i = 0; i < 256; i++) {
        uint8_t b = (uint8_t)i;
        if ((i & 127) == 127) {
            assert_true((convert(WEFT_F8_E4M3, &b) & 0x7fffffff) > 0x7f800000);
            assert_int_equal(weft_first_nonfinite(WEFT_F8_E4M3, &b, 1), 0);
        } else {
            assert_int_equal(convert(WEFT_F8_E4M3, &b), bits_of((float)value(i >> 7, i >> 3 & 15, i & 7, 3, 7)));
        }
        if ((i >> 2 & 31) != 31)
            assert_int_equal(convert(WEFT_F8_E5M2, &b), bits_of((float)value(i >> 7, i >> 2 & 31, i & 3, 2, 15)));
        assert_int_equal(weft_first_nonfinite(WEFT_F8_E5M2, &b, 1), (i >> 2 & 31) == 31 ? 0 : 1);
        if (i != 255) assert_int_equal(convert(WEFT_F8_E8M0, &b), bits_of((float)ldexp(1, i - 127)));
        assert_int_equal(weft_first_nonfinite(WEFT_F8_E8M0, &b, 1), i == 255 ? 0 : 1);
    }
    uint8_t largest = 0x7e;
    assert_int_equal(convert(WEFT_F8_E4M3, &largest), bits_of(448));
}

/* Against the processor's own rounding, near every kind of border: halves, carries into the exponent, subnormals, overflow. */
static void test_f64_rounds_to_even(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 400000; i++) {
        uint32_t r[4];
        weft_philox(7, (uint32_t[]){i, 0, 0, 0}, r);
        uint64_t exp = 1023 - 127 - 30 + r[0] % (127 + 30 + 130), mant = (uint64_t)r[1] << 20 | r[2] >> 12;
        if (r[3] & 1) mant &= ~0ull << 29;                      /* exact in float32 */
        if (r[3] & 2) mant = (mant & ~0ull << 29) | 1ull << 28; /* a tie */
        if (r[3] & 4) mant |= 0xffffffull << 28;                /* a carry */
        if (r[3] & 8) mant = (mant & ~0ull << (r[0] % 52));     /* ties of subnormals */
        uint64_t u = (uint64_t)(r[3] >> 31) << 63 | (exp & 2047) << 52 | (mant & 0xfffffffffffffull);
        double d;
        memcpy(&d, &u, 8);
        assert_int_equal(convert(WEFT_F64, &u), bits_of((float)d));
        assert_int_equal(weft_first_nonfinite(WEFT_F64, &u, 1), isinf((float)d) ? 0 : 1);
    }
    static const double edges[] = {
        0, -0.0, 1e-320, 1e-46, 7.006492321624085e-46, 7.1e-46, 1.4e-45, 3.4028235677973366e38, 3.4028235e38, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        assert_int_equal(convert(WEFT_F64, &edges[i]), bits_of((float)edges[i]));
    double nan = NAN;
    assert_true((convert(WEFT_F64, &nan) & 0x7fffffff) > 0x7f800000);
}

/* Subnormal weights must not vanish in a thread that flushes denormals to zero. */
static void test_flush_to_zero_changes_nothing(void **state) {
    (void)state;
    weft_fpu mode = weft_fpu_enter();
    double d = 1e-40;
    uint16_t h = 0x0001, b = 0x0001;
    uint8_t e8 = 0;
    uint32_t got[4] = {convert(WEFT_F64, &d), convert(WEFT_F16, &h), convert(WEFT_BF16, &b), convert(WEFT_F8_E8M0, &e8)};
    weft_fpu_leave(mode);
    assert_int_equal(got[0], bits_of((float)1e-40));
    assert_int_equal(got[1], bits_of((float)ldexp(1, -24)));
    assert_int_equal(got[2], 0x00010000);
    assert_int_equal(got[3], 0x00400000);
}

static void test_first_nonfinite_finds_the_place(void **state) {
    (void)state;
    float v[100];
    for (int i = 0; i < 100; i++) v[i] = (float)i;
    assert_int_equal(weft_first_nonfinite(WEFT_F32, v, 100), 100);
    assert_int_equal(weft_first_nonfinite(WEFT_F32, v, 0), 0);
    v[63] = NAN;
    v[80] = INFINITY;
    assert_int_equal(weft_first_nonfinite(WEFT_F32, v, 100), 63);
    assert_int_equal(weft_first_nonfinite(WEFT_F32, v, 63), 63);
    assert_int_equal(weft_first_nonfinite(WEFT_F32, v + 64, 36), 16);
    assert_int_equal(weft_first_nonfinite(WEFT_U32, v, 100), 100); /* whole numbers are finite */
    float copy[100];
    weft_to_f32(copy, WEFT_F32, v, 100);
    assert_memory_equal(copy, v, sizeof v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_every_f16),
        cmocka_unit_test(test_every_bf16),
        cmocka_unit_test(test_every_f8),
        cmocka_unit_test(test_f64_rounds_to_even),
        cmocka_unit_test(test_flush_to_zero_changes_nothing),
        cmocka_unit_test(test_first_nonfinite_finds_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

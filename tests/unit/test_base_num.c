/* test_base_num.c: numbers in text, the logarithm, random numbers, the floating-point mode, the clock. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fpu.h"
#include "base/num.h"
#include "base/rng.h"
#include "base/str.h"

static void test_integers(void **state) {
    (void)state;
    int64_t i = 77;
    uint64_t u = 77;
    assert_true(weft_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &i) && i == INT64_MIN);
    assert_true(weft_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, &i) && i == INT64_MAX);
    assert_true(weft_parse_i64("-0", -5, 5, &i) && i == 0);
    assert_true(weft_parse_i64("007", 0, 9, &i) && i == 7);
    assert_true(weft_parse_u64("18446744073709551615", UINT64_MAX, &u) && u == UINT64_MAX);
    i = 77, u = 77;
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "0x10",
                                      "1e3",
                                      "--1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999",
                                      "\xd9\xa1"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) assert_false(weft_parse_i64(bad[k], INT64_MIN, INT64_MAX, &i));
    assert_false(weft_parse_i64("11", 0, 10, &i));
    assert_false(weft_parse_i64("-1", 0, 10, &i));
    assert_false(weft_parse_u64("18446744073709551616", UINT64_MAX, &u));
    assert_false(weft_parse_u64("99999999999999999999", UINT64_MAX, &u));
    assert_false(weft_parse_u64("-1", UINT64_MAX, &u));
    assert_false(weft_parse_u64("8", 7, &u));
    assert_true(weft_parse_u64("7", 7, &u) && u == 7);
    assert_false(weft_parse_u64("1", 0, &u));
    assert_true(weft_parse_u64("0", 0, &u) && u == 0);
    assert_int_equal(i, 77);
}

static void check_reals(void) {
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},
                {"0.5", 0.5},
                {".5", 0.5},
                {"5.", 5},
                {"-1.25e2", -125},
                {"1E+3", 1000},
                {"1e-3", 0.001},
                {"0.1", 0.1},
                {"1e308", 1e308},
                {"5e-324", 5e-324},
                {"1e-400", 0},
                {"00.10", 0.1},
                {"9007199254740993", 9007199254740992.0}};
    for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
        double v = -1;
        assert_true(weft_parse_f64(good[k].text, -DBL_MAX, DBL_MAX, &v));
        assert_true(v == good[k].value);
    }
    static const char *const bad[] = {"",    ".",   "-",    "-.",    "e5",    "1e",    "1e+", "+1",       " 1",  "1 ", "0,5",
                                      "nan", "inf", "-inf", "0x1p3", "1e999", "1.2.3", "1_0", "infinity", "1d5", "--1"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        double v = -1;
        assert_false(weft_parse_f64(bad[k], -DBL_MAX, DBL_MAX, &v));
        assert_true(v == -1);
    }
    double v;
    assert_false(weft_parse_f64("2.01", 0, 2, &v));
    assert_false(weft_parse_f64("-0.01", 0, 2, &v));
    weft_str s = {0};
    assert_true(weft_str_addf(&s, "%.2f", 1.5));
    assert_string_equal(weft_str_z(&s), "1.50");
    weft_str_free(&s);
}

/* A German or French environment must not turn "0.5" into 0 or print "0,5" into JSON. */
static void test_reals_in_any_locale(void **state) {
    (void)state;
    check_reals();
    static const char *const comma[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "de_DE.ISO8859-1"};
    for (size_t k = 0; k < sizeof comma / sizeof comma[0]; k++) {
        if (!setlocale(LC_ALL, comma[k])) continue;
        check_reals();
        setlocale(LC_ALL, "C");
        return;
    }
    print_message("no locale with a decimal comma installed: checked in \"C\" only\n");
}

static void test_sizes(void **state) {
    (void)state;
    size_t n = 9;
    assert_true(weft_mul_size(SIZE_MAX / 3, 3, &n));
    assert_false(weft_mul_size(SIZE_MAX / 3 + 1, 3, &n));
    assert_true(weft_mul_size(0, SIZE_MAX, &n) && n == 0);
    assert_true(weft_mul_size(SIZE_MAX, 0, &n) && n == 0);
    assert_true(weft_add_size(SIZE_MAX - 1, 1, &n) && n == SIZE_MAX);
    assert_false(weft_add_size(SIZE_MAX, 1, &n));
}

static void test_bytes_text(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {999, "999 B"},
                 {1000, "1.0 kB"},
                 {1949, "1.9 kB"},
                 {1950, "2.0 kB"},
                 {1200000000, "1.2 GB"},
                 {340000000, "340 MB"},
                 {99940000, "99.9 MB"},
                 {99950000, "100 MB"},
                 {999499, "999 kB"},
                 {999500, "1.0 MB"},
                 {999500000, "1.0 GB"},
                 {UINT64_MAX, "18.4 EB"}};
    char buf[16];
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        assert_string_equal(weft_bytes_text(cases[k].bytes, buf), cases[k].text);
}

/* ---- logarithm ----------------------------------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *s) {
    *s = *s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *s >> 11;
}

static double ulps(double x) {
    double want = log(x), got = weft_ln(x);
    if (want == got) return 0;
    double ulp = fabs(nextafter(want, INFINITY) - want);
    return fabs(got - want) / ulp;
}

static void test_ln(void **state) {
    (void)state;
    assert_true(weft_ln(1) == 0 && !signbit(weft_ln(1)));
    assert_true(weft_ln(0) == -INFINITY && weft_ln(-0.0) == -INFINITY);
    assert_true(isnan(weft_ln(-1)) && isnan(weft_ln(NAN)) && isnan(weft_ln(-INFINITY)));
    assert_true(weft_ln(INFINITY) == INFINITY);
    uint64_t seed = 1;
    double worst = 0;
    for (int i = 0; i < 300000; i++) {
        uint64_t r = next(&seed);
        double x;
        switch (i % 6) {
        case 0: x = (double)r * 0x1p-53; break;                                                  /* (0, 1) */
        case 1: x = 1 + ((double)r - 0x1p52) * 0x1p-52 * ldexp(1, -(int)(r % 52)); break;        /* near 1 */
        case 2: x = ldexp(1 + (double)r * 0x1p-53, (int)(r % 2045) - 1022); break;               /* every exponent */
        case 3: x = (double)(r >> (r % 52)) * 0x1p-1074; break;                                  /* denormal */
        case 4: x = 0.70710678118654752 * (1 + ((double)r - 0x1p52) * 0x1p-52 * 0x1p-30); break; /* the border of the reduction */
        default: x = 1.41421356237309505 * (1 + ((double)r - 0x1p52) * 0x1p-52 * 0x1p-30);
        }
        if (!(x > 0)) continue;
        double u = ulps(x);
        if (u > worst) worst = u;
    }
    for (int i = 0; i < 2000; i++) {
        double u = fmax(ulps(1 + i * 0x1p-52), ulps(1 - i * 0x1p-53));
        if (u > worst) worst = u;
    }
    assert_true(ulps(DBL_MAX) <= 1 && ulps(DBL_MIN) <= 1 && ulps(0x1p-1074) <= 1);
    print_message("worst difference from the C library: %.2f ulp\n", worst);
    assert_true(worst <= 2);
    /* The flush mode of the workers must not change it. */
    volatile double tiny = 0x1p-1070;
    weft_fpu mode = weft_fpu_enter();
    double flushed = weft_ln(tiny);
    weft_fpu_leave(mode);
    assert_true(flushed == weft_ln(tiny));
}

static void test_ln_is_monotonic_near_one(void **state) {
    (void)state;
    double before = weft_ln(1 - 1000 * 0x1p-53);
    for (int i = -999; i <= 1000; i++) {
        double x = i < 0 ? 1 + i * 0x1p-53 : 1 + i * 0x1p-52, y = weft_ln(x);
        assert_true(y > before);
        before = y;
    }
}

/* ---- random numbers ------------------------------------------------------------------------------------------------------ */

/* The known-answer vectors published with the algorithm. */
static void test_philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t c[4], want[4];
    } kat[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, {~0u, ~0u, ~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {UINT64_C(0x299f31d0a4093822),
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t k = 0; k < 3; k++) {
        uint32_t out[4];
        weft_philox(kat[k].key, kat[k].c, out);
        assert_memory_equal(out, kat[k].want, sizeof out);
    }
}

/* Values of an independent computation with 60 digits. In the tail, where log p + G decides whether an unlikely token wins, the
 * usual -log(-log(u)) in double precision is off from the fourth digit on, or infinite. */
static void test_gumbel_upper_tail(void **state) {
    (void)state;
    static const struct {
        uint64_t k;
        double g;
    } cases[] = {
        {UINT64_C(0), 45.054566736396445},
        {UINT64_C(1), 43.955954447728338},
        {UINT64_C(2), 43.445128823962342},
        {UINT64_C(7), 42.346516535294235},
        {UINT64_C(1000), 37.453164401812714},
        {UINT64_C(1048576), 30.498475467800521},
        {UINT64_C(1073741825), 23.567004137612052},
        {UINT64_C(1099511627776), 16.635532303635909},
        {UINT64_C(4503599627370501), 8.3176440839873891},
        {UINT64_C(9007199254740995), 7.6243747958493042},
        {UINT64_C(1152921504606846976), 2.7404930065103561},
        {UINT64_C(4611686018427387904), 1.2458993237072382},
        {UINT64_C(9223372036854775808), 0.36651292058166435},
        {UINT64_C(13835058055282163712), -0.32663425997828099},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double got = weft_gumbel_of(cases[i].k);
        if (fabs(got - cases[i].g) > 4e-16 * fmax(1, fabs(cases[i].g)))
            fail_msg("k %llx: %.17g, expected %.17g", (unsigned long long)cases[i].k, got, cases[i].g);
    }
    assert_true(isfinite(weft_gumbel_of(0)) && isfinite(weft_gumbel_of(UINT64_MAX)));
    double before = INFINITY; /* falls with k: whoever has the smaller k has the larger noise */
    for (int shift = 0; shift < 64; shift++) {
        double g = weft_gumbel_of(UINT64_C(1) << shift);
        assert_true(g < before);
        before = g;
    }
    assert_true(weft_gumbel_of(UINT64_MAX) < before);
}

/* A sampler skips tokens whose bound cannot win: too low a bound would change the answer. */
static void test_gumbel_bound(void **state) {
    (void)state;
    for (int shift = 0; shift < 64; shift++) {
        uint64_t low = UINT64_C(1) << shift, high = low | (low - 1);
        assert_true(weft_gumbel_bound(low) >= weft_gumbel_of(low));
        assert_true(weft_gumbel_bound(high) >= weft_gumbel_of(high));
    }
    assert_true(weft_gumbel_bound(0) >= weft_gumbel_of(0));
    for (uint32_t id = 0; id < 10000; id++) {
        uint64_t k = weft_gumbel_bits(7, 1, 2, id);
        assert_true(weft_gumbel_bound(k) >= weft_gumbel_of(k));
        assert_true(weft_gumbel_of(k) == weft_gumbel(7, 1, 2, id));
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void test_gumbel_distribution(void **state) {
    (void)state;
    enum { N = 200000 };
    static double g[N];
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        g[i] = weft_gumbel(42, 0, (uint32_t)(i / 1000), (uint32_t)(i % 1000));
        sum += g[i];
        squares += g[i] * g[i];
    }
    double mean = sum / N, variance = squares / N - mean * mean;
    assert_true(fabs(mean - 0.57722) < 5 * sqrt(1.6449 / N));
    assert_true(fabs(variance - 1.64493) < 5 * sqrt(11.9 / N)); /* fourth central moment 14.6 less variance^2 2.7 */
    qsort(g, N, sizeof g[0], ascending);
    double worst = 0; /* Kolmogorov-Smirnov against exp(-exp(-x)) */
    for (int i = 0; i < N; i++) {
        double cdf = exp(-exp(-g[i]));
        worst = fmax(worst, fmax(fabs(cdf - (double)i / N), fabs(cdf - (double)(i + 1) / N)));
    }
    assert_true(worst < 1.95 / sqrt(N)); /* 0.1 % level */
}

static void test_gumbel_depends_on_every_argument(void **state) {
    (void)state;
    double g = weft_gumbel(1, 2, 3, 4);
    assert_true(g == weft_gumbel(1, 2, 3, 4));
    assert_true(g != weft_gumbel(2, 2, 3, 4) && g != weft_gumbel(1 | UINT64_C(1) << 40, 2, 3, 4));
    assert_true(g != weft_gumbel(1, 3, 3, 4) && g != weft_gumbel(1, 2, 4, 4) && g != weft_gumbel(1, 2, 3, 5));
    assert_true(weft_gumbel(1, 2, 3, 4) != weft_gumbel(1, 3, 2, 4) && weft_gumbel(1, 0, 5, 6) != weft_gumbel(1, 0, 6, 5));
}

/* ---- floating-point mode, clock ------------------------------------------------------------------------------------------ */

static void test_fpu_mode(void **state) {
    (void)state;
    volatile float least = FLT_MIN, half = 0.5f;
    assert_true(least * half > 0);
    weft_fpu mode = weft_fpu_enter();
    volatile float product = least * half;
#if defined(__x86_64__) || defined(__aarch64__)
    bool flushed = product == 0;
#else
    bool flushed = true;
#endif
    volatile float zero = 0, bad = zero / zero; /* masked: no signal */
    weft_fpu inner = weft_fpu_enter();
    weft_fpu_leave(inner);
    product = least * half;
    bool still = product == 0;
    weft_fpu_leave(mode);
    assert_true(flushed && still == flushed);
    assert_true(bad != bad);
    product = least * half;
    assert_true(product > 0);
}

static void test_clock(void **state) {
    (void)state;
    uint64_t a = weft_now_ns(), b = weft_now_ns();
    assert_true(a > 0 && b >= a);
}

static void test_exp(void **state) {
    (void)state;
    for (double x = -700; x < 700; x += 0.37) {
        double want = exp(x), got = weft_exp(x);
        assert_true(fabs(got - want) <= 5e-16 * want);
    }
    assert_true(weft_exp(0) == 1);
    assert_true(weft_exp(-1e9) > 0 && weft_exp(-1e9) < 1e-300);
    assert_true(weft_exp(1e9) > 1e300 && weft_exp(1e9) < INFINITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_reals_in_any_locale),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bytes_text),
        cmocka_unit_test(test_ln),
        cmocka_unit_test(test_ln_is_monotonic_near_one),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_gumbel_upper_tail),
        cmocka_unit_test(test_gumbel_bound),
        cmocka_unit_test(test_gumbel_distribution),
        cmocka_unit_test(test_gumbel_depends_on_every_argument),
        cmocka_unit_test(test_fpu_mode),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_exp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

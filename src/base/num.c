/* num.c: numbers in text, checked sizes, the logarithm. */
#include "base/num.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* The digits of s as a number; false when there are none, something follows, or the number passes hi. */
static bool digits(const char *s, uint64_t hi, uint64_t *out) {
    uint64_t v = 0;
    if (!is_digit(*s)) return false;
    for (; is_digit(*s); s++) {
        unsigned d = (unsigned)(*s - '0');
        if (v > hi / 10 || v * 10 > hi - d || d > hi) return false;
        v = v * 10 + d;
    }
    if (*s) return false;
    *out = v;
    return true;
}

bool weft_parse_u64(const char *s, uint64_t hi, uint64_t *out) {
    return digits(s, hi, out);
}

bool weft_parse_i64(const char *s, int64_t lo, int64_t hi, int64_t *out) {
    bool minus = *s == '-';
    uint64_t magnitude;
    if (!digits(s + minus, minus ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX, &magnitude)) return false;
    int64_t v = minus ? -(int64_t)(magnitude / 2) - (int64_t)(magnitude - magnitude / 2) : (int64_t)magnitude;
    if (v < lo || v > hi) return false;
    *out = v;
    return true;
}

/* A caller may have set a locale with a decimal comma. The "C" locale of this thread alone is put in its place for one call;
 * it is a constant of the C library, so taking it costs no memory. */
typedef struct c_locale {
    locale_t c, before;
} c_locale;

static bool c_locale_enter(c_locale *l) {
    l->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (l->c == (locale_t)0) return false;
    l->before = uselocale(l->c);
    return true;
}

static void c_locale_leave(c_locale *l) {
    uselocale(l->before);
    freelocale(l->c);
}

bool weft_parse_f64(const char *s, double lo, double hi, double *out) {
    const char *p = s + (*s == '-');
    size_t mantissa = 0;
    for (; is_digit(*p); p++) mantissa++;
    if (*p == '.') p++;
    for (; is_digit(*p); p++) mantissa++;
    if (mantissa == 0) return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '-' || *p == '+') p++;
        if (!is_digit(*p)) return false;
        while (is_digit(*p)) p++;
    }
    if (*p) return false;
    c_locale l;
    if (!c_locale_enter(&l)) return false;
    int saved = errno;
    double v = strtod(s, NULL);
    errno = saved;
    c_locale_leave(&l);
    if (!isfinite(v) || !(v >= lo && v <= hi)) return false;
    *out = v;
    return true;
}

int weft_vformat(char *buf, size_t size, const char *fmt, va_list ap) {
    c_locale l;
    if (!c_locale_enter(&l)) return -1;
    int n = vsnprintf(buf, size, fmt, ap);
    c_locale_leave(&l);
    return n;
}

const char *weft_bytes_text(uint64_t bytes, char buf[16]) {
    static const char unit[][3] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    uint64_t one = 1; /* bytes in the unit */
    int u = 0;
    /* The next unit from where rounding would show "1000". */
    while (u < 6 && bytes >= one * 1000 - (u ? one / 2 : 0)) one *= 1000, u++;
    uint64_t whole = bytes / one, rest = bytes % one;
    uint64_t tenths = u == 0 ? 0 : (rest + one / 20) / (one / 10);
    if (u > 0 && whole * 10 + tenths < 1000) {
        whole += tenths / 10;
        snprintf(buf, 16, "%u.%u %s", (unsigned)whole, (unsigned)(tenths % 10), unit[u]);
    } else {
        if (u > 0 && rest >= one / 2) whole++;
        snprintf(buf, 16, "%u %s", (unsigned)whole, unit[u]);
    }
    return buf;
}

/* ---- sizes --------------------------------------------------------------------------------------------------------------- */

bool weft_mul_size(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

bool weft_add_size(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}

/* ---- logarithm ----------------------------------------------------------------------------------------------------------- */

/* x = 2^k (1 + f) with 1 + f in [sqrt 1/2, sqrt 2). With s = f / (2 + f) and z = s^2,
 *     ln(1 + f) = 2 atanh(s) = 2s + s R,   R = 2 (z/3 + z^2/5 + ...),
 * and as 2s = f - f^2/2 (1 - s), the large term f stays free of rounding:
 *     ln(1 + f) = f - (f^2/2 - s (f^2/2 + R)).
 * |s| < 0.1716, z < 0.0295: after z^10/21 the rest is below 2^-60. k ln 2 comes in two parts, the first with 21 low zero bits so
 * that k times it is exact. */
double weft_ln(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t magnitude = bits << 1;
    if (magnitude > UINT64_C(0xFFE0000000000000)) return NAN;
    if (magnitude == 0) return -INFINITY;
    if (bits >> 63) return NAN;
    if (magnitude == UINT64_C(0xFFE0000000000000)) return INFINITY;

    int k = 0;
    /* Denormal: shifted up as an integer, so that the flush mode cannot touch it. The smallest exponent of the normal numbers
     * means the same power of two, so that each shift is one doubling, the last one included. */
    for (; bits < UINT64_C(1) << 52; k--) bits <<= 1;
    const uint64_t sqrt_half = UINT64_C(0x3FE6A09E667F3BCD);
    int64_t up = (int64_t)(bits - sqrt_half) >> 52; /* floor(log2(x / sqrt 1/2)) */
    bits -= (uint64_t)up << 52;
    k += (int)up;
    double m;
    memcpy(&m, &bits, sizeof m);

    double f = m - 1.0;
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double r = 2.0 / 21.0;
    r = r * z + 2.0 / 19.0;
    r = r * z + 2.0 / 17.0;
    r = r * z + 2.0 / 15.0;
    r = r * z + 2.0 / 13.0;
    r = r * z + 2.0 / 11.0;
    r = r * z + 2.0 / 9.0;
    r = r * z + 2.0 / 7.0;
    r = r * z + 2.0 / 5.0;
    r = r * z + 2.0 / 3.0;
    r = r * z;
    const double ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33;
    double kd = k;
    return kd * ln2_hi - ((half - (s * (half + r) + kd * ln2_lo)) - f);
}

/* ---- exponential --------------------------------------------------------------------------------------------------------- */

/* x = n ln 2 + r, |r| <= ln 2 / 2: after r^13 / 13! the rest is below 2^-57. ln 2 in two parts as in weft_ln. */
double weft_exp(double x) {
    x = x < -708.0 ? -708.0 : x > 709.0 ? 709.0 : x;
    double n = (double)(int64_t)(x * 1.44269504088896340736 + (x < 0 ? -0.5 : 0.5));
    double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double p = 1.0;
    for (int k = 13; k > 0; k--) p = 1.0 + p * r / k;
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* num.h: numbers in text, whatever the locale; and arithmetic that cannot overflow. */
#ifndef WEFT_BASE_NUM_H
#define WEFT_BASE_NUM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole text must be one decimal number in [lo, hi]; false otherwise (no blanks, no '+', no trailing bytes). */
bool weft_parse_i64(const char *s, int64_t lo, int64_t hi, int64_t *out);
bool weft_parse_u64(const char *s, uint64_t hi, uint64_t *out);
/* The whole text must be a finite decimal number in [lo, hi] with '.' as the point: digits, optional fraction and exponent. */
bool weft_parse_f64(const char *s, double lo, double hi, double *out);
/* vsnprintf with '.' as the point. */
int weft_vformat(char *buf, size_t size, const char *fmt, va_list ap);

bool weft_mul_size(size_t a, size_t b, size_t *out); /* false on overflow */
bool weft_add_size(size_t a, size_t b, size_t *out);

/* Natural logarithm within 1 ulp: our own, so that answers do not depend on the C library. Denormal x counts in full, whatever
 * the floating-point mode. ln(0) = -infinity, of a negative number or NaN: NaN. */
double weft_ln(double x);

/* e^x within 2 ulp; x is taken as at least -708 and at most 709, so that the result is a normal number. Our own, as weft_ln is. */
double weft_exp(double x);

/* "1.2 GB", "340 MB" (powers of 1000) into buf; returns buf. */
const char *weft_bytes_text(uint64_t bytes, char buf[16]);

#endif

/* weight.h: what an id weighs, in one arithmetic for single ids and whole rows: sampling must not depend on which was asked for. */
#ifndef WEFT_OPS_CPU_WEIGHT_H
#define WEFT_OPS_CPU_WEIGHT_H

#include <stdint.h>
#include <string.h>

#define SUPPORT_BLOCK 128       /* ids that share a note of their largest logit: no part of the arithmetic */
#define MOST_WEIGHED (1 << 19)  /* ids whose grains add up to less than 2^64, however they are summed */
#define LEAST_EXPONENT (-708.0) /* below it there is no weight: exp() is then below the normal numbers */

/* exp((logit - max) scale) for logit <= max, within 2 ulp; exactly 1 for max, 0 for -infinity. x = n ln 2 + r, |r| <= ln 2 / 2,
 * with the integer n in the low bits of x / ln 2 + 1.5 2^52; after r^13 / 13! the rest is below 2^-57. No branches: loops over it
 * become vectors. */
static inline double weight_of(double logit, double max, double scale) {
    double x = (logit - max) * scale, held = x < LEAST_EXPONENT ? LEAST_EXPONENT : x;
    double shifted = held * 1.44269504088896340736 + 0x1.8p52, n = shifted - 0x1.8p52;
    double r = (held - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    p = p * power;
    return x < LEAST_EXPONENT ? 0 : p;
}

/* A weight in whole multiples of 2^-44, rounded to even: the bits behind 2^52. */
static inline uint64_t grains_of(double weight) {
    double shifted = weight * 0x1p44 + 0x1p52;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return bits & ((UINT64_C(1) << 52) - 1);
}

#endif

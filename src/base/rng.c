/* rng.c: Philox4x32-10 and Gumbel noise. */
#include "base/rng.h"

#include "base/num.h"

void weft_philox(uint64_t key, const uint32_t c[4], uint32_t out[4]) {
    uint32_t x0 = c[0], x1 = c[1], x2 = c[2], x3 = c[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * x0, b = (uint64_t)0xCD9E8D57u * x2; /* the multipliers of the paper */
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9E3779B9u; /* Weyl sequences: golden ratio and sqrt 3 - 1 */
        k1 += 0xBB67AE85u;
    }
    out[0] = x0, out[1] = x1, out[2] = x2, out[3] = x3;
}

/* G = -ln E with E = -ln(1 - v) standard exponential. Large G is small E is small v, and there E = v: no bit of v is lost, where
 * the usual -ln(-ln u) rounds u to 1. ln(1 - v) is ln w corrected by the rounding of w = 1 - v. */
double weft_gumbel_of(uint64_t k) {
    const double below_one = 0x1.fffffffffffffp-1;
    double v = ((double)k + 0.5) * 0x1p-64;
    if (v > below_one) v = below_one;
    double w = 1.0 - v;
    double e = w == 1.0 ? v : -weft_ln(w) * (v / (1.0 - w));
    return -weft_ln(e);
}

/* With z leading zeros v >= 2^-(z + 1), and E >= v: G <= (z + 1) ln 2. The constant is ln 2 rounded up by far more than the
 * rounding of G. */
double weft_gumbel_bound(uint64_t k) {
    int z = k ? __builtin_clzll(k) : 64;
    return (z + 1) * 0.69314718056;
}

uint64_t weft_gumbel_bits(uint64_t seed, uint32_t choice, uint32_t index, uint32_t id) {
    const uint32_t half = WEFT_GUMBEL_HALF, counter[4] = {id & ~half, index, choice, 0};
    uint32_t out[4];
    weft_philox(seed, counter, out);
    return id & half ? (uint64_t)out[3] << 32 | out[2] : (uint64_t)out[1] << 32 | out[0];
}

double weft_gumbel(uint64_t seed, uint32_t choice, uint32_t index, uint32_t id) {
    return weft_gumbel_of(weft_gumbel_bits(seed, choice, index, id));
}

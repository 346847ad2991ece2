/* rng.h: counter-based random numbers: the same key and counter give the same bits, in any order, on any machine.
 * Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef WEFT_BASE_RNG_H
#define WEFT_BASE_RNG_H

#include <stdint.h>

/* out[4] for 64-bit key and 128-bit counter (c[0] is the lowest word). */
void weft_philox(uint64_t key, const uint32_t c[4], uint32_t out[4]);

/* Standard Gumbel noise G(seed, choice, index, id) for sampling by arg-max (log p + G), made of 64 random bits.
 * choice: which of n answers; index: tokens generated before this one; id: the token. Range -3.61 to 45.06. */
double weft_gumbel(uint64_t seed, uint32_t choice, uint32_t index, uint32_t id);

/* The same in steps, for a loop over a vocabulary: the bits of weft_gumbel(); a bound that the noise made of them never passes
 * (within ln 2 of it in the upper tail, and no logarithm); the noise itself. P(G > g) is right to 2^-64, and every k has its G
 * to double precision, the smallest (the upper tail, which decides when unlikely tokens win) included. */
#define WEFT_GUMBEL_HALF 16u /* of 32 ids in a row the first 16 take one half of a Philox result each, the others the other half   \
                              */
uint64_t weft_gumbel_bits(uint64_t seed, uint32_t choice, uint32_t index, uint32_t id);
double weft_gumbel_bound(uint64_t k);
double weft_gumbel_of(uint64_t k);

#endif

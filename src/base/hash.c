/* hash.c: XXH3. */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

uint64_t weft_hash(const void *data, size_t n, uint64_t seed) {
    return XXH3_64bits_withSeed(data, n, seed);
}

void weft_hash128(const void *data, size_t n, uint8_t hash[16]) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits(data, n));
    memcpy(hash, bytes.digest, 16);
}

void weft_hash128_text(const uint8_t hash[16], char text[33]) {
    for (int i = 0; i < 16; i++) snprintf(text + 2 * (size_t)i, 3, "%02x", hash[i]);
}

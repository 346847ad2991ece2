/* hash.h: hashes of 64 and 128 bits (XXH3, from xxHash). Not for security. Tables compare equal hashes in full; fingerprints and
 * checksums stand for themselves. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t weft_hash(const void *data, size_t n, uint64_t seed);
void weft_hash128(const void *data, size_t n, uint8_t hash[16]); /* the same bytes on every machine */
void weft_hash128_text(const uint8_t hash[16], char text[33]);   /* 32 hexadecimal digits, as they stand in the names of files */

#endif

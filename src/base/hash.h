/* hash.h: 64-bit hashes (XXH3, from xxHash). For tables and fingerprints, not for security: equal hashes are compared in full. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t weft_hash(const void *data, size_t n, uint64_t seed);

#endif

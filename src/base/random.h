/* random.h: random numbers that nobody can foretell, from the operating system: for seeds and names, not for sampling (rng.h). */
#ifndef WEFT_BASE_RANDOM_H
#define WEFT_BASE_RANDOM_H

#include "base/error.h"

/* 64 random bits. WEFT_EIO: the system has none to give. */
weft_status weft_random(uint64_t *bits, weft_error *e);

#endif

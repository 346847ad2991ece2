/* sweep_lanes.h: what sweeps over a recurrent state have in common: how it is cut, what they ask for meanwhile. */
#ifndef WEFT_OPS_CPU_SWEEP_LANES_H
#define WEFT_OPS_CPU_SWEEP_LANES_H

#include "ops/cpu/lanes.h"

#define CHAINS 2 /* of a sum over k */
#if defined(__aarch64__)
#define GROUP 4 /* vectors of columns at a time: their sums and deltas stay in registers */
#else
#define GROUP 2
#endif

/* With every GROUP vectors of S. */
INLINE void want(weft_gdn_ahead *ahead) {
    UNROLL for (int g = 0; g < GROUP; g++) __builtin_prefetch(ahead->at + (size_t)g * ahead->stride, 1);
    ahead->at += GROUP * ahead->stride;
}

#endif

/* tile_lanes.h: weights (tiles.h) as vectors of W lanes, one output a lane. */
#ifndef WEFT_OPS_CPU_TILE_LANES_H
#define WEFT_OPS_CPU_TILE_LANES_H

#include "ops/cpu/lanes.h"
#include "ops/cpu/tiles.h"

INLINE vu load_words(const uint8_t *p) {
    vu x;
    memcpy(&x, p, sizeof x);
    return x;
}
/* The codes of part p of step `step`, as step_codes() has them for one output. */
INLINE vu vector_codes(const uint8_t *block, int bits, int steps, int step, int part) {
    int plane = first_plane(bits), vectors = steps * plane / 8;
    block += part * W * 4;
    vu codes =
        load_words(block + step % vectors * VECTOR_BYTES) >> (unsigned)(step / vectors * plane) & ((1u << plane) - 1) * 0x01010101u;
    if (plane == bits) return codes;
    block += vectors * VECTOR_BYTES;
    int rest = bits - plane, rest_vectors = steps * rest / 8;
    vu high = load_words(block + step % rest_vectors * VECTOR_BYTES) >> (unsigned)(step / rest_vectors * rest) &
              ((1u << rest) - 1) * 0x01010101u;
    return codes | high << (unsigned)plane;
}
/* 16 scales or biases as W lanes. */
INLINE vf stored_part(weft_dtype t, const uint8_t *p, int part) {
    if (t == WEFT_F32) return load((const float *)(const void *)p + part * W);
    vu x;
    for (int i = 0; i < W; i++) {
        uint16_t h;
        memcpy(&h, p + (size_t)(part * W + i) * 2, 2);
        x[i] = h;
    }
    return t == WEFT_BF16 ? (vf)(x << 16) : from_f16(x);
}

#endif

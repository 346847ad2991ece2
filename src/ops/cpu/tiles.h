/* tiles.h: how a weight lies in memory.
 *
 * Rows (outputs) are held in panels of 16, which become the lanes of a vector or the columns of a matrix tile; the last panel of an
 * expert is filled up with zero rows. One layout serves any number of rows of activations and every instruction set.
 *
 * Affine weights. A panel is k / group units, one after another:
 *     codes of `group` columns, in blocks of 64 columns (group 32: one of 32);   then 16 scales, then 16 biases, as stored.
 * A block's codes are cut into planes of 8, 4, 2 or 1 bits (6 = 4 + 2, 5 = 4 + 1, 3 = 2 + 1; low bits first). Four columns make a
 * step: 64 codes [16 outputs][4 columns], one byte each in the arithmetic. A plane of p bits keeps 8 / p steps in a vector of 64
 * bytes: vector v holds steps v, v + V, v + 2 V ..., lowest bits first, where V is the plane's number of vectors.
 *
 * Plain weights. F16 and BF16: pairs of columns [pair][16 outputs][2], columns filled up to whole pairs of 16 (1024 bytes: a tile);
 * F32: [column][16 outputs]. */
#ifndef WEFT_OPS_CPU_TILES_H
#define WEFT_OPS_CPU_TILES_H

#include <string.h>

#include "ops/cpu/cpu.h"

#define VECTOR_BYTES 64
#define STEP_COLUMNS 4

/* Bits of the first plane (the rest is the second), by the width of a code. */
static inline int first_plane(int bits) {
    return bits == 8 ? 8 : bits >= 4 ? 4 : 2;
}
/* Columns in a block of codes: integer sums run over so many before they are scaled. */
static inline int block_columns(const weft_mat *m) {
    return m->group < 64 ? m->group : 64;
}
static inline size_t block_bytes(const weft_mat *m) {
    return (size_t)block_columns(m) * 2 * (size_t)m->bits; /* 16 outputs, `bits` eighths of a byte */
}
static inline size_t unit_scales(const weft_mat *m) { /* where a unit's scales begin */
    return (size_t)m->group * 2 * (size_t)m->bits;
}
static inline size_t unit_bytes(const weft_mat *m) {
    return unit_scales(m) + 2 * LANES * weft_dtype_size(m->dtype);
}
static inline size_t panel_bytes(const weft_mat *m) {
    if (m->bits) return (size_t)(m->k / m->group) * unit_bytes(m);
    return m->dtype == WEFT_F32 ? (size_t)m->k * VECTOR_BYTES : (size_t)((m->k + 31) / 32) * 1024;
}
static inline int64_t panel_count(const weft_mat *m) { /* of one expert */
    return (m->n + LANES - 1) / LANES;
}
static inline const uint8_t *panel_at(const weft_mat *m, int64_t panel) {
    return m->data + (size_t)panel * panel_bytes(m);
}

/* The four codes of output `out` in step `step` of a block of `steps`, a byte each, lowest column first. */
static inline uint32_t step_codes(const uint8_t *block, int bits, int steps, int step, int out) {
    int plane = first_plane(bits), vectors = steps * plane / 8;
    uint32_t word, mask = ((1u << plane) - 1) * 0x01010101u;
    memcpy(&word, block + (size_t)(step % vectors) * VECTOR_BYTES + (size_t)out * 4, sizeof word);
    uint32_t codes = word >> step / vectors * plane & mask;
    if (plane == bits) return codes;
    block += (size_t)vectors * VECTOR_BYTES;
    int rest = bits - plane, rest_vectors = steps * rest / 8;
    memcpy(&word, block + (size_t)(step % rest_vectors) * VECTOR_BYTES + (size_t)out * 4, sizeof word);
    return codes | (word >> step / rest_vectors * rest & ((1u << rest) - 1) * 0x01010101u) << plane;
}

#endif

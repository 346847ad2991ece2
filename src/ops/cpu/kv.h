/* kv.h: how the keys and values of one head lie in a page of 64 positions.
 *
 * F32: rows [64][ld].
 * BF16, INT8: tiles, which are operands of matrix instructions as they are and vectors of 16 lanes alike. A line of 64 bytes holds
 * 16 lanes of `each` elements, 2 of BF16 or 4 of INT8, that are summed over.
 *     K  [4 tiles of 16 keys][line][16 keys][each dimensions]       dimensions filled up to whole tiles of 16 lines
 *     V  [tile of 16 lines of keys][block of 16 dimensions][line][16 dimensions][each keys]
 * INT8 has float32 scales [64], one a position, behind K and behind V. What fills up is zero. */
#ifndef WEFT_OPS_CPU_KV_H
#define WEFT_OPS_CPU_KV_H

#include "ops/cpu/cpu.h"

/* NULL: f32 in the precise mode, otherwise bf16. WEFT_EINVAL: no such name. */
weft_status kv_type_choose(kv_type *type, const char *name, bool precise, weft_error *e);

#define KV_LINE 64             /* bytes: 16 lanes of 4 */
#define KV_TILE (16 * KV_LINE) /* bytes */
#define KV_TILES (WEFT_PAGE_ROWS / LANES)

/* Elements in a lane. */
static inline int kv_each(kv_type t) {
    return t == KV_INT8 ? 4 : 2;
}
static inline int kv_element_bytes(kv_type t) {
    return t == KV_F32 ? 4 : t == KV_BF16 ? 2 : 1;
}
/* Bytes from one tile of keys to the next. */
static inline size_t k_stride(kv_type t, int dim) {
    int columns = 16 * kv_each(t);
    return (size_t)((dim + columns - 1) / columns) * KV_TILE;
}
static inline size_t v_stride(int dim) {
    return (size_t)ROUND16(dim) / LANES * KV_TILE;
}
static inline size_t k_scales(int dim) { /* INT8: where they begin */
    return KV_TILES * k_stride(KV_INT8, dim);
}
static inline size_t v_scales(int dim) {
    return v_stride(dim);
}
static inline size_t k_bytes(kv_type t, int dim) {
    if (t == KV_F32) return (size_t)WEFT_PAGE_ROWS * (size_t)ROUND16(dim) * sizeof(float);
    return KV_TILES * k_stride(t, dim) + (t == KV_INT8 ? WEFT_PAGE_ROWS * sizeof(float) : 0);
}
static inline size_t v_bytes(kv_type t, int dim) {
    if (t == KV_F32) return (size_t)WEFT_PAGE_ROWS * (size_t)ROUND16(dim) * sizeof(float);
    return (size_t)(WEFT_PAGE_ROWS / (16 * kv_each(t))) * v_stride(dim) + (t == KV_INT8 ? WEFT_PAGE_ROWS * sizeof(float) : 0);
}

/* Where in its head's part of a page an element of position `row` is; K: the first of a lane. */
static inline size_t k_at(kv_type t, int dim, int row, int d) {
    return (size_t)(row / LANES) * k_stride(t, dim) + (size_t)(d / kv_each(t)) * KV_LINE + (size_t)(row % LANES) * 4;
}
static inline size_t v_at(kv_type t, int dim, int row, int d) {
    int each = kv_each(t), line = row / each;
    return (size_t)(line / 16) * v_stride(dim) + (size_t)(d / LANES) * KV_TILE + (size_t)(line % 16) * KV_LINE +
           (size_t)(d % LANES) * 4 + (size_t)(row % each * kv_element_bytes(t));
}

static inline uint8_t *k_page(const kv_layer *l, int page, int head) {
    return l->k + ((size_t)page * (size_t)l->n_kv_heads + (size_t)head) * l->k_bytes;
}
static inline uint8_t *v_page(const kv_layer *l, int page, int head) {
    return l->v + ((size_t)page * (size_t)l->n_kv_heads + (size_t)head) * l->v_bytes;
}

#endif

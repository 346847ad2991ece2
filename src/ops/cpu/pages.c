/* pages.c: the pages of keys and values: their types and sizes, and host access.
 *
 * The host sees rows, whatever lies in tiles: for each layer and head the keys of the positions, then their values; a row is
 * head_dim elements filled up to whole words of 4 bytes, INT8 with its scale behind; F32 rows have the device's own length. What
 * comes back is what attention reads, bit for bit. */
#include <string.h>

#include "ops/cpu/kv.h"

static const char *const type_names[KV_TYPES] = {[KV_F32] = "f32", [KV_BF16] = "bf16", [KV_INT8] = "int8"};

weft_status kv_type_choose(kv_type *type, const char *name, bool precise, weft_error *e) {
    *type = precise ? KV_F32 : KV_BF16;
    if (!name) return WEFT_OK;
    for (int i = 0; i < KV_TYPES; i++)
        if (!strcmp(name, type_names[i])) {
            *type = (kv_type)i;
            return WEFT_OK;
        }
    return weft_fail(e, WEFT_EINVAL, "unknown type of keys and values '%s'; there are: bf16, f32, int8", name);
}

const char *weft_dev_kv(const weft_dev *d) {
    return type_names[d->kv_type];
}

int weft_kv_layer(weft_dev *d, int n_kv_heads, int head_dim, weft_page_kind kind) {
    kv_layer l = {.kind = kind, .n_kv_heads = n_kv_heads, .head_dim = head_dim, .ld = ROUND16(head_dim)};
    l.k_bytes = k_bytes(d->kv_type, head_dim);
    l.v_bytes = v_bytes(d->kv_type, head_dim);
    return weft_vec_push(&d->kv, l) ? (int)d->kv.n - 1 : -1;
}

/* ---- host access --------------------------------------------------------------------------------------------------------- */

static size_t row_bytes(const weft_dev *d, const kv_layer *l) {
    if (d->kv_type == KV_F32) return (size_t)l->ld * sizeof(float);
    size_t words = ((size_t)l->head_dim * (size_t)kv_element_bytes(d->kv_type) + 3) / 4;
    return words * 4 + (d->kv_type == KV_INT8 ? sizeof(float) : 0);
}

/* n elements of `size` bytes, side by side on the host and `stride` apart on the device. */
static inline void copy(uint8_t *host, uint8_t *dev, int n, size_t stride, size_t size, bool to_host) {
    for (int i = 0; i < n; i++, host += size, dev += stride)
        if (to_host)
            memcpy(host, dev, size);
        else
            memcpy(dev, host, size);
}
static void k_row_io(kv_type t, const kv_layer *l, uint8_t *k, int row, uint8_t *host, bool to_host) {
    int words = (l->head_dim + kv_each(t) - 1) / kv_each(t);
    copy(host, k + k_at(t, l->head_dim, row, 0), words, KV_LINE, 4, to_host);
    if (t == KV_INT8) copy(host + words * 4, k + k_scales(l->head_dim) + (size_t)row * sizeof(float), 1, 4, 4, to_host);
}
static void v_row_io(kv_type t, const kv_layer *l, uint8_t *v, int row, uint8_t *host, bool to_host) {
    for (int d = 0; d < l->head_dim; d += LANES) {
        uint8_t *at = v + v_at(t, l->head_dim, row, d);
        int n = l->head_dim - d < LANES ? l->head_dim - d : LANES;
        if (t == KV_BF16)
            copy(host + d * 2, at, n, 4, 2, to_host);
        else
            copy(host + d, at, n, 4, 1, to_host);
    }
    int n = l->head_dim * kv_element_bytes(t), words = (n + 3) / 4;
    if (to_host) memset(host + n, 0, (size_t)(words * 4 - n));
    if (t == KV_INT8) copy(host + words * 4, v + v_scales(l->head_dim) + (size_t)row * sizeof(float), 1, 4, 4, to_host);
}

size_t weft_page_bytes(const weft_dev *d, weft_page_kind kind, int rows) {
    size_t n = 0;
    for (size_t i = 0; i < d->kv.n; i++) {
        const kv_layer *l = &d->kv.v[i];
        if (l->kind == kind) n += 2 * (size_t)l->n_kv_heads * (size_t)rows * row_bytes(d, l);
    }
    return n;
}

weft_status weft_page_io(weft_dev *d, weft_page_kind kind, int page, int rows, void *host, bool to_host, weft_error *e) {
    if (page < 0 || page >= d->plan.n_pages[kind] || rows < 0 || rows > WEFT_PAGE_ROWS)
        return weft_fail(e, WEFT_EINVAL, "%d rows of page %d of %d", rows, page, d->plan.n_pages[kind]);
    uint8_t *at = host;
    for (size_t i = 0; i < d->kv.n; i++) {
        const kv_layer *l = &d->kv.v[i];
        if (l->kind != kind) continue;
        size_t bytes = row_bytes(d, l);
        for (int h = 0; h < l->n_kv_heads; h++) {
            uint8_t *k = k_page(l, page, h), *v = v_page(l, page, h);
            if (d->kv_type == KV_F32) {
                copy(at, k, rows, bytes, bytes, to_host);
                copy(at + (size_t)rows * bytes, v, rows, bytes, bytes, to_host);
                at += 2 * (size_t)rows * bytes;
                continue;
            }
            for (int r = 0; r < rows; r++, at += bytes) k_row_io(d->kv_type, l, k, r, at, to_host);
            for (int r = 0; r < rows; r++, at += bytes) v_row_io(d->kv_type, l, v, r, at, to_host);
        }
    }
    return WEFT_OK;
}

static void fill_page(weft_dev *d, weft_page_kind kind, int page, int byte) {
    for (size_t i = 0; i < d->kv.n; i++) {
        const kv_layer *l = &d->kv.v[i];
        if (l->kind != kind) continue;
        memset(k_page(l, page, 0), byte, (size_t)l->n_kv_heads * l->k_bytes);
        memset(v_page(l, page, 0), byte, (size_t)l->n_kv_heads * l->v_bytes);
    }
}
void weft_page_clear(weft_dev *d, weft_page_kind kind, int page) {
    fill_page(d, kind, page, 0);
}
void weft_page_poison(weft_dev *d, weft_page_kind kind, int page) {
    fill_page(d, kind, page, 0xff); /* NaN as float32, as BF16, and as the scale of INT8 */
}

/* pack.c: from a checkpoint's rows to panels (tiles.h), on all workers; and small coefficients. */
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/num.h"
#include "ops/cpu/tiles.h"

#define MAX_K (1 << 26) /* columns, and the 16 outputs of each, are counted in ints */

typedef struct pack_job {
    const weft_mat *m;
    const weft_mat_desc *desc;
    uint8_t *line; /* [worker][line_bytes]: a row's codes or values, its scales, its biases */
    size_t line_bytes, value_bytes, group_bytes;
    atomic_flag claimed; /* by the piece that reports the failure */
    atomic_bool failed;
    weft_status status;
    weft_error error;
} pack_job;

static void put(uint8_t *at, uint32_t bits) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    word |= bits;
    memcpy(at, &word, sizeof word);
}

/* Codes of one row into a zeroed panel. */
static void pack_codes(const weft_mat *m, uint8_t *panel, int out, const uint8_t *codes) {
    int columns = block_columns(m), steps = columns / STEP_COLUMNS;
    int plane = first_plane(m->bits), vectors = steps * plane / 8, rest = m->bits - plane, rest_vectors = steps * rest / 8;
    uint32_t low = ((1u << plane) - 1) * 0x01010101u;
    for (int64_t c = 0; c < m->k; c += columns) {
        uint8_t *block = panel + (size_t)(c / m->group) * unit_bytes(m) + (size_t)(c % m->group / columns) * block_bytes(m);
        uint8_t *high = block + (size_t)vectors * VECTOR_BYTES;
        for (int s = 0; s < steps; s++) {
            uint32_t four;
            memcpy(&four, codes + c + s * STEP_COLUMNS, sizeof four);
            put(block + (size_t)(s % vectors) * VECTOR_BYTES + (size_t)out * 4, (four & low) << s / vectors * plane);
            if (rest)
                put(high + (size_t)(s % rest_vectors) * VECTOR_BYTES + (size_t)out * 4,
                    (four & ~low) >> plane << s / rest_vectors * rest);
        }
    }
}
static void pack_scales(const weft_mat *m, uint8_t *panel, int out, const uint8_t *scales, const uint8_t *biases) {
    size_t size = weft_dtype_size(m->dtype);
    for (int64_t u = 0; u < m->k / m->group; u++) {
        uint8_t *at = panel + (size_t)u * unit_bytes(m) + unit_scales(m) + (size_t)out * size;
        memcpy(at, scales + (size_t)u * size, size);
        memcpy(at + LANES * size, biases + (size_t)u * size, size);
    }
}
static void pack_plain(const weft_mat *m, uint8_t *panel, int out, const uint8_t *values) {
    if (m->dtype == WEFT_F32)
        for (int64_t c = 0; c < m->k; c++) memcpy(panel + (size_t)(c * LANES + out) * 4, values + (size_t)c * 4, 4);
    else
        for (int64_t c = 0; c < m->k; c++)
            memcpy(panel + (size_t)((c / 2 * LANES + out) * 2 + c % 2) * 2, values + (size_t)c * 2, 2);
}

static weft_status pack_panel(const pack_job *j, int64_t panel, uint8_t *line, weft_error *e) {
    const weft_mat *m = j->m;
    uint8_t *data = m->data + (size_t)panel * panel_bytes(m), *scales = line + j->value_bytes, *biases = scales + j->group_bytes;
    int64_t expert = panel / panel_count(m), first = panel % panel_count(m) * LANES;
    memset(data, 0, panel_bytes(m));
    for (int out = 0; out < LANES && first + out < m->n; out++) {
        WEFT_TRY(j->desc->read(j->desc->ctx, expert, first + out, line, scales, biases, e));
        if (m->bits) {
            pack_codes(m, data, out, line);
            pack_scales(m, data, out, scales, biases);
        } else {
            pack_plain(m, data, out, line);
        }
    }
    return WEFT_OK;
}

static void pack_piece(void *ctx, int piece, int worker) {
    pack_job *j = ctx;
    if (atomic_load(&j->failed)) return;
    weft_error e;
    weft_status s = pack_panel(j, piece, j->line + (size_t)worker * j->line_bytes, &e);
    if (s == WEFT_OK || atomic_flag_test_and_set(&j->claimed)) return;
    j->status = s;
    j->error = e;
    atomic_store(&j->failed, true);
}

static weft_status pack(weft_dev *d, weft_mat *m, const weft_mat_desc *desc, weft_error *e) {
    size_t size = weft_dtype_size(m->dtype);
    pack_job j = {.m = m, .desc = desc, .claimed = ATOMIC_FLAG_INIT};
    j.value_bytes = ((size_t)m->k * (m->bits ? 1 : size) + 63) & ~(size_t)63;
    j.group_bytes = m->bits ? ((size_t)(m->k / m->group) * size + 63) & ~(size_t)63 : 0;
    j.line_bytes = j.value_bytes + 2 * j.group_bytes;
    j.line = weft_alloc_aligned(j.line_bytes * (size_t)d->threads);
    if (!j.line) return weft_fail_oom(e, desc->name);
    weft_pool_run(d->pool, (int)(m->experts * panel_count(m)), pack_piece, &j);
    weft_free_aligned(j.line);
    if (j.status != WEFT_OK && e) *e = j.error;
    return j.status;
}

/* What a kept file of packed weights depends on, besides the checkpoint. The order in which the reader hands out rows is no part of
 * it: see WEFT_PACKED_VERSION. */
static uint64_t add_to_layout(uint64_t layout, const weft_mat_desc *desc) {
    const int64_t numbers[] = {desc->dtype, desc->bits, desc->bits ? desc->group : 0, desc->experts, desc->n, desc->k};
    return weft_hash(desc->name, strlen(desc->name), weft_hash(numbers, sizeof numbers, layout ^ WEFT_PACKED_VERSION));
}

weft_status weft_mat_make(weft_dev *d, const weft_mat_desc *desc, weft_mat **mat, weft_error *e) {
    if (desc->dtype != WEFT_F32 && desc->dtype != WEFT_F16 && desc->dtype != WEFT_BF16)
        return weft_fail(e, WEFT_ESUPPORT, "%s: weights of type %s are not supported", desc->name, weft_dtype_name(desc->dtype));
    if (desc->experts < 1 || desc->n < 1 || desc->k < 1 || desc->k > MAX_K || (desc->bits && desc->k % desc->group))
        return weft_fail(e, WEFT_EINVAL, "%s: %lld x %lld x %lld in groups of %d", desc->name, (long long)desc->experts,
                         (long long)desc->n, (long long)desc->k, desc->group);
    weft_mat *m = weft_arena_get(&d->arena, 1, sizeof *m);
    if (!m || !weft_vec_push(&d->mats, m)) return weft_fail_oom(e, desc->name);
    *m = (weft_mat){.dtype = desc->dtype,
                    .bits = desc->bits,
                    .group = desc->group,
                    .experts = desc->experts,
                    .n = desc->n,
                    .k = desc->k,
                    .passing = desc->passing};
    size_t panels, bytes;
    if (!weft_mul_size((size_t)m->experts, (size_t)panel_count(m), &panels) || panels > INT32_MAX ||
        !weft_mul_size(panels, panel_bytes(m), &bytes))
        return weft_fail(e, WEFT_ENOMEM, "%s: %lld x %lld x %lld does not fit into memory", desc->name, (long long)m->experts,
                         (long long)m->n, (long long)m->k);
    d->memory.weights += bytes;
    if (!m->passing) {
        d->memory.packed += (bytes + 63) & ~(size_t)63;
        d->memory.layout = add_to_layout(d->memory.layout, desc);
    }
    if (m->k > d->max_k) d->max_k = m->k;
    *mat = m;
    if (d->dry) return WEFT_OK;
    bool own = !d->packed || m->passing;
    m->data = own ? weft_alloc_aligned(bytes) : weft_packed_take(d->packed, bytes);
    if (!m->data) return weft_fail_oom(e, desc->name);
    return !own && weft_packed_ready(d->packed) ? WEFT_OK : pack(d, m, desc, e);
}

uint64_t weft_mat_bytes(const weft_mat *m) {
    return (uint64_t)m->experts * (uint64_t)panel_count(m) * panel_bytes(m);
}

weft_status weft_coef_make(weft_dev *d, const float *v, int n, weft_coef **coef, weft_error *e) {
    weft_coef *c = weft_arena_get(&d->arena, 1, sizeof *c);
    if (!c || !weft_vec_push(&d->coefs, c)) return weft_fail_oom(e, "coefficients");
    c->n = n;
    c->v = weft_alloc_aligned(((size_t)ROUND16(n) + LANES) * sizeof *v); /* a matrix of coefficients is read by whole vectors */
    if (!c->v) return weft_fail_oom(e, "coefficients");
    memcpy(c->v, v, (size_t)n * sizeof *v);
    d->memory.weights += ((size_t)ROUND16(n) + LANES) * sizeof *v;
    *coef = c;
    return WEFT_OK;
}

/* weight.c: see weight.h. */
#include "format/weight.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

static weft_status fail_tensor(const weft_tensor *x, weft_status code, weft_error *e, const char *expected) {
    char shape[192];
    return weft_fail(e, code, "%s: tensor '%.300s' is %s %s; expected %s", x->file, x->name, weft_dtype_name(x->dtype),
                     weft_shape_text(x->rank, x->shape, shape), expected);
}

/* Is x [n, k], or [experts, n, k]? */
static bool has_shape(const weft_tensor *x, int64_t experts, int64_t n, int64_t k) {
    const int64_t *last = x->shape + (experts > 0);
    return x->rank == 2 + (experts > 0) && (experts == 0 || x->shape[0] == experts) && last[0] == n && last[1] == k;
}

static weft_status want_shape(const weft_tensor *x, int64_t experts, int64_t n, int64_t k, weft_error *e) {
    if (has_shape(x, experts, n, k)) return WEFT_OK;
    char expected[192];
    weft_shape_text(2 + (experts > 0), experts > 0 ? (int64_t[]){experts, n, k} : (int64_t[]){n, k}, expected);
    return fail_tensor(x, WEFT_EFORMAT, e, expected);
}

static bool is_plain(weft_dtype t) {
    return t == WEFT_F32 || t == WEFT_F16 || t == WEFT_BF16;
}

/* Tensor `name` + `suffix`; NULL if there is none or the name is too long to be one of ours. */
static const weft_tensor *find(const weft_tensors *t, const char *name, const char *suffix) {
    char full[512];
    int n = snprintf(full, sizeof full, "%s%s", name, suffix);
    return n > 0 && (size_t)n < sizeof full ? weft_tensors_find(t, full) : NULL;
}

/* What the config says about this module; *own: by an entry of its own. NULL: nothing, the shapes decide. */
static const weft_quant *said(const weft_model_config *c, const char *name, const weft_tensor *x, bool *own) {
    bool mtp_name = weft_starts_with(weft_module_path(name), "mtp.");
    bool sidecar = weft_ends_with(x->file, "mtp.safetensors");
    const weft_quant *q = sidecar && !mtp_name ? NULL : weft_config_quant(c, name); /* "layers.0" there is not the trunk's */
    *own = q != NULL;
    if (!q && !mtp_name && !sidecar && c->quant.bits) q = &c->quant;
    return q;
}

static weft_status read_affine(weft_weight *w, const weft_quant *q, int64_t experts, weft_error *e) {
    const weft_tensor *x = w->values;
    if (q && strcmp(q->mode, "affine") != 0)
        return weft_fail(e, WEFT_ESUPPORT, "%s: tensor '%.300s': quantisation mode '%.40s' is not supported yet; affine is",
                         x->file, x->name, q->mode);
    if (!w->biases || w->scales->dtype == WEFT_U8)
        return weft_fail(
            e, WEFT_ESUPPORT,
            "%s: tensor '%.300s' has scales but no biases: only MLX affine is supported yet, not mxfp4, mxfp8 or nvfp4", x->file,
            x->name);
    if (x->dtype != WEFT_U32) return fail_tensor(x, WEFT_EFORMAT, e, "U32, as it has scales");
    if (!is_plain(w->scales->dtype)) return fail_tensor(w->scales, WEFT_EFORMAT, e, "F32, F16 or BF16");
    if (w->biases->dtype != w->scales->dtype) return fail_tensor(w->biases, WEFT_EFORMAT, e, "the type of the scales");
    w->dtype = w->scales->dtype;

    if (q) {
        w->bits = q->bits, w->group = q->group;
    } else {
        int64_t words = x->rank ? x->shape[x->rank - 1] : 0, groups = w->scales->rank ? w->scales->shape[w->scales->rank - 1] : 0;
        if (words <= 0 || words > w->k || groups <= 0 || words * 32 % w->k || w->k % groups)
            return fail_tensor(x, WEFT_EFORMAT, e, "codes of a whole number of bits");
        w->bits = (int)(words * 32 / w->k), w->group = w->k / groups > 1024 ? 1024 : (int)(w->k / groups);
    }
    bool bits_ok = (w->bits >= 2 && w->bits <= 6) || w->bits == 8, group_ok = w->group == 32 || w->group == 64 || w->group == 128;
    if (!bits_ok || !group_ok)
        return weft_fail(
            e, WEFT_ESUPPORT,
            "%s: tensor '%.300s': %d bits in groups of %d are not supported; 2, 3, 4, 5, 6 and 8 in 32, 64 and 128 are", x->file,
            x->name, w->bits, w->group);
    if (w->k % w->group)
        return weft_fail(e, WEFT_EFORMAT, "%s: tensor '%.300s': %lld columns are not whole groups of %d", x->file, x->name,
                         (long long)w->k, w->group);
    WEFT_TRY(want_shape(x, experts, w->n, w->k / 32 * w->bits, e));
    WEFT_TRY(want_shape(w->scales, experts, w->n, w->k / w->group, e));
    return want_shape(w->biases, experts, w->n, w->k / w->group, e);
}

weft_status weft_weight_find(const weft_tensors *t, const weft_model_config *c, const char *name, int64_t experts, int64_t n,
                             int64_t k, weft_weight *w, weft_error *e) {
    *w = (weft_weight){.experts = experts > 0 ? experts : 1, .n = n, .k = k};
    const weft_tensor *x = find(t, name, ".weight");
    if (!x) x = find(t, name, "");
    if (!x) return weft_fail(e, WEFT_EFORMAT, "the tensor '%.300s.weight' is missing", name);
    w->values = x;
    w->scales = find(t, name, ".scales");
    w->biases = w->scales ? find(t, name, ".biases") : NULL;

    bool own;
    const weft_quant *q = said(c, name, x, &own);
    if (w->scales && q && q->plain)
        return weft_fail(e, WEFT_EFORMAT, "%s: tensor '%.300s' has scales, but the config says that it is not quantised", x->file,
                         x->name);
    if (w->scales) return read_affine(w, q, experts, e);
    if (own && !q->plain)
        return weft_fail(e, WEFT_EFORMAT, "%s: tensor '%.300s' has no scales, but the config says that it is quantised to %d bits",
                         x->file, x->name, q->bits);
    if (!is_plain(x->dtype)) return fail_tensor(x, WEFT_ESUPPORT, e, "F32, F16 or BF16, or MLX affine with scales");
    w->dtype = x->dtype;
    return want_shape(x, experts, n, k, e);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

static weft_status fail_nonfinite(const weft_weight *w, const weft_tensor *x, int64_t expert, int64_t row, size_t column,
                                  weft_error *e) {
    char of[40] = "";
    if (w->experts > 1) snprintf(of, sizeof of, "expert %lld, ", (long long)expert);
    return weft_fail(e, WEFT_EFORMAT, "%s: tensor '%.300s' holds NaN or infinity: %srow %lld, column %zu", x->file, x->name, of,
                     (long long)row, column);
}

static const uint8_t *row_of(const weft_weight *w, const weft_tensor *x, int64_t expert, int64_t row) {
    return x->data + x->bytes / (size_t)(w->experts * w->n) * (size_t)(expert * w->n + row);
}

/* Eight codes lie in `bits` bytes, whatever the width. Inlined with a constant width below, so that the shifts unroll. */
static inline void unpack_bits(uint8_t *codes, const uint8_t *src, int64_t n, int bits) {
    for (int64_t i = 0; i < n; i += 8, src += bits) {
        uint64_t v = 0;
        memcpy(&v, src, (size_t)bits);
        for (int j = 0; j < 8; j++) codes[i + j] = (uint8_t)(v >> (j * bits) & ((1u << bits) - 1));
    }
}

/* n is a multiple of 8. */
static void unpack(uint8_t *codes, const uint8_t *src, int64_t n, int bits) {
    switch (bits) {
    case 2: unpack_bits(codes, src, n, 2); break;
    case 3: unpack_bits(codes, src, n, 3); break;
    case 4: unpack_bits(codes, src, n, 4); break;
    case 5: unpack_bits(codes, src, n, 5); break;
    case 6: unpack_bits(codes, src, n, 6); break;
    default: memcpy(codes, src, (size_t)n); break;
    }
}

/* Are all values of the row finite in float32? A group's values lie between those of its lowest and its highest code. */
static weft_status check_row(const weft_weight *w, int64_t expert, int64_t row, weft_error *e) {
    if (w->bits == 0) {
        size_t bad = weft_first_nonfinite(w->dtype, row_of(w, w->values, expert, row), (size_t)w->k);
        return bad == (size_t)w->k ? WEFT_OK : fail_nonfinite(w, w->values, expert, row, bad, e);
    }
    size_t groups = (size_t)(w->k / w->group), size = weft_dtype_size(w->dtype);
    const uint8_t *scale = row_of(w, w->scales, expert, row), *bias = row_of(w, w->biases, expert, row);
    size_t bad = weft_first_nonfinite(w->dtype, scale, groups);
    if (bad < groups) return fail_nonfinite(w, w->scales, expert, row, bad, e);
    bad = weft_first_nonfinite(w->dtype, bias, groups);
    if (bad < groups) return fail_nonfinite(w, w->biases, expert, row, bad, e);
    if (w->dtype == WEFT_F16) return WEFT_OK; /* 255 x 65504 is far from float32's end */
    float top = (float)((1 << w->bits) - 1);
    for (size_t g = 0; g < groups; g++) {
        float v[2];
        weft_to_f32(&v[0], w->dtype, scale + g * size, 1);
        weft_to_f32(&v[1], w->dtype, bias + g * size, 1);
        v[0] = v[0] * top + v[1];
        if (weft_first_nonfinite(WEFT_F32, v, 1) == 0) return fail_nonfinite(w, w->scales, expert, row, g, e);
    }
    return WEFT_OK;
}

weft_status weft_weight_read(void *weight, int64_t expert, int64_t row, void *values_or_codes, void *scale, void *bias,
                             weft_error *e) {
    const weft_weight *w = weight;
    WEFT_TRY(check_row(w, expert, row, e));
    const uint8_t *src = row_of(w, w->values, expert, row);
    if (w->bits == 0) {
        memcpy(values_or_codes, src, (size_t)w->k * weft_dtype_size(w->dtype));
        return WEFT_OK;
    }
    size_t bytes = (size_t)(w->k / w->group) * weft_dtype_size(w->dtype);
    unpack(values_or_codes, src, w->k, w->bits);
    memcpy(scale, row_of(w, w->scales, expert, row), bytes);
    memcpy(bias, row_of(w, w->biases, expert, row), bytes);
    return WEFT_OK;
}

weft_status weft_weight_row_f32(const weft_weight *w, int64_t expert, int64_t row, float *dst, weft_error *e) {
    WEFT_TRY(check_row(w, expert, row, e));
    const uint8_t *src = row_of(w, w->values, expert, row);
    if (w->bits == 0) {
        weft_to_f32(dst, w->dtype, src, (size_t)w->k);
        return WEFT_OK;
    }
    size_t size = weft_dtype_size(w->dtype);
    const uint8_t *scale = row_of(w, w->scales, expert, row), *bias = row_of(w, w->biases, expert, row);
    uint8_t codes[128];
    for (int64_t k = 0; k < w->k; k += w->group, scale += size, bias += size, src += w->group / 8 * w->bits) {
        float s, b;
        weft_to_f32(&s, w->dtype, scale, 1);
        weft_to_f32(&b, w->dtype, bias, 1);
        unpack(codes, src, w->group, w->bits);
        for (int i = 0; i < w->group; i++) {
            float product = s * (float)codes[i];
            dst[k + i] = product + b;
        }
    }
    return WEFT_OK;
}

/* Codes of a group's values: scale * code + bias, from its lowest value to its highest. */
static void code_group(const float *v, uint8_t *codes, float *scale, float *bias) {
    const double top = (1 << WEFT_CODED_BITS) - 1;
    double low = (double)v[0], high = low;
    for (int i = 1; i < WEFT_CODED_GROUP; i++) {
        low = (double)v[i] < low ? (double)v[i] : low;
        high = (double)v[i] > high ? (double)v[i] : high;
    }
    double step = (high - low) / top;
    for (int i = 0; i < WEFT_CODED_GROUP; i++) codes[i] = (uint8_t)(step > 0 ? ((double)v[i] - low) / step + 0.5 : 0);
    *scale = (float)step;
    *bias = (float)low;
}

weft_status weft_weight_code(void *weight, int64_t expert, int64_t row, void *codes, void *scale, void *bias, weft_error *e) {
    const weft_weight *w = weight;
    WEFT_TRY(check_row(w, expert, row, e));
    const uint8_t *src = row_of(w, w->values, expert, row);
    size_t size = weft_dtype_size(w->dtype);
    for (int64_t g = 0; g < w->k / WEFT_CODED_GROUP; g++) {
        float v[WEFT_CODED_GROUP];
        weft_to_f32(v, w->dtype, src + (size_t)(g * WEFT_CODED_GROUP) * size, WEFT_CODED_GROUP);
        code_group(v, (uint8_t *)codes + g * WEFT_CODED_GROUP, (float *)scale + g, (float *)bias + g);
    }
    return WEFT_OK;
}

weft_status weft_weight_check_finite(const weft_weight *w, weft_error *e) {
    for (int64_t x = 0; x < w->experts; x++)
        for (int64_t r = 0; r < w->n; r++) WEFT_TRY(check_row(w, x, r, e));
    return WEFT_OK;
}

weft_status weft_tensor_read_f32(const weft_tensors *t, const char *name, int rank, const int64_t *shape, float *dst,
                                 weft_error *e) {
    const weft_tensor *x = weft_tensors_find(t, name);
    if (!x) return weft_fail(e, WEFT_EFORMAT, "the tensor '%.300s' is missing", name);
    if (!is_plain(x->dtype)) return fail_tensor(x, WEFT_ESUPPORT, e, "F32, F16 or BF16");
    bool same = x->rank == rank;
    for (int i = 0; same && i < rank; i++) same = x->shape[i] == shape[i];
    if (!same) {
        char expected[192];
        return fail_tensor(x, WEFT_EFORMAT, e, weft_shape_text(rank, shape, expected));
    }
    size_t n = x->bytes / weft_dtype_size(x->dtype), bad = weft_first_nonfinite(x->dtype, x->data, n);
    if (bad < n) return weft_fail(e, WEFT_EFORMAT, "%s: tensor '%.300s' holds NaN or infinity: element %zu", x->file, x->name, bad);
    weft_to_f32(dst, x->dtype, x->data, n);
    return WEFT_OK;
}

/* weight.h: one linear weight as its file holds it, and its rows.
 *
 * A module X is either plain (X.weight, or X alone for fused experts; F32, F16 or BF16) or MLX affine: X.weight holds codes of 2,
 * 3, 4, 5, 6 or 8 bits, packed into 32-bit words so that a row is one little-endian bit stream, and X.scales and X.biases one
 * number for each group of 32, 64 or 128 columns; a value is scale * code + bias. Bits and group come from the module's own entry
 * in the config, else from the config's default, and must agree with the shapes; a drafter without entries of its own, which other
 * tools than the trunk's may have packed, goes by the shapes alone.
 *
 * Every reader refuses NaN and infinity, and values that float32 cannot hold, naming file, tensor and row. */
#ifndef WEFT_FORMAT_WEIGHT_H
#define WEFT_FORMAT_WEIGHT_H

#include "format/config.h"
#include "format/safetensors.h"

typedef struct weft_weight {
    weft_dtype dtype;                            /* of the values; of scales and biases where bits > 0 */
    int bits, group;                             /* 0: plain */
    int64_t experts, n, k;                       /* experts >= 1; n rows of k columns each */
    const weft_tensor *values, *scales, *biases; /* scales and biases NULL where plain */
} weft_weight;

/* Finds module `name` ("model.layers.0.mlp.gate_proj") and checks that it is [n, k], or [experts, n, k] where experts > 0.
 * WEFT_EFORMAT: missing, or another shape or type than expected; WEFT_ESUPPORT: a packing that this version cannot read. */
weft_status weft_weight_find(const weft_tensors *t, const weft_model_config *c, const char *name, int64_t experts, int64_t n,
                             int64_t k, weft_weight *w, weft_error *e);

/* One row as stored. Plain: k values of w->dtype. Affine: k codes, one byte each, and k / group scales and biases of w->dtype.
 * `weight` is a weft_weight: the signature is that of weft_mat_desc.read in ops/ops.h. */
weft_status weft_weight_read(void *weight, int64_t expert, int64_t row, void *values_or_codes, void *scale, void *bias,
                             weft_error *e);

/* A plain row as the codes of 8 bits that come nearest, in groups of WEFT_CODED_GROUP columns; k is a multiple of it. Takes what
 * weft_weight_read() takes and gives what that gives of an affine weight with scales and biases in float32. */
enum { WEFT_CODED_BITS = 8, WEFT_CODED_GROUP = 64 };
weft_status weft_weight_code(void *weight, int64_t expert, int64_t row, void *codes, void *scale, void *bias, weft_error *e);

/* One row in float32. Affine: the product is rounded, then the sum. */
weft_status weft_weight_row_f32(const weft_weight *w, int64_t expert, int64_t row, float *dst, weft_error *e);

/* Reads all of it and keeps nothing: is every value finite? */
weft_status weft_weight_check_finite(const weft_weight *w, weft_error *e);

/* A small float tensor of exactly this shape (norm gains, decays, convolution taps), in float32. */
weft_status weft_tensor_read_f32(const weft_tensors *t, const char *name, int rank, const int64_t *shape, float *dst,
                                 weft_error *e);

#endif

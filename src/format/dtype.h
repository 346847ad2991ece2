/* dtype.h: the element types that weights are stored in, and their exact conversion to float32.
 *
 * Conversions work on bits alone: no libm, no rounding mode, no flush-to-zero, so that the same file gives the same numbers in
 * every thread on every machine. Sources may lie at any address. */
#ifndef WEFT_FORMAT_DTYPE_H
#define WEFT_FORMAT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum weft_dtype {
    WEFT_F32,
    WEFT_F16,
    WEFT_BF16,
    WEFT_F64,
    WEFT_F8_E4M3, /* OCP "fn": bias 7, no infinity, 0x7f and 0xff are NaN, largest 448 */
    WEFT_F8_E5M2, /* the upper byte of an F16 */
    WEFT_F8_E8M0, /* 2^(byte - 127), 255 is NaN: block scales of the MX formats */
    WEFT_I64,
    WEFT_I32,
    WEFT_I16,
    WEFT_I8,
    WEFT_U64,
    WEFT_U32,
    WEFT_U16,
    WEFT_U8,
    WEFT_BOOL,
    WEFT_DTYPES /* how many */
} weft_dtype;

size_t weft_dtype_size(weft_dtype t);      /* bytes of one element */
const char *weft_dtype_name(weft_dtype t); /* as safetensors spells it: "BF16" */
bool weft_dtype_parse(const char *name, weft_dtype *t);
bool weft_dtype_is_float(weft_dtype t);

/* n elements of a float type to float32. F64 rounds to nearest even; all others are exact, NaN payloads included. */
void weft_to_f32(float *dst, weft_dtype t, const void *src, size_t n);

/* Index of the first NaN or infinity among n elements of a float type; n if all are finite. An F64 that float32 cannot hold counts
 * as infinite. */
size_t weft_first_nonfinite(weft_dtype t, const void *src, size_t n);

#endif

/* dtype.c: see dtype.h. */
#include "format/dtype.h"

#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "weights are little-endian on disk and are read in place: this needs a little-endian machine"
#endif

static const struct {
    const char *name;
    unsigned char size;
    bool is_float;
} types[WEFT_DTYPES] = {
    [WEFT_F32] = {"F32", 4, true},         [WEFT_F16] = {"F16", 2, true},         [WEFT_BF16] = {"BF16", 2, true},
    [WEFT_F64] = {"F64", 8, true},         [WEFT_F8_E4M3] = {"F8_E4M3", 1, true}, [WEFT_F8_E5M2] = {"F8_E5M2", 1, true},
    [WEFT_F8_E8M0] = {"F8_E8M0", 1, true}, [WEFT_I64] = {"I64", 8, false},        [WEFT_I32] = {"I32", 4, false},
    [WEFT_I16] = {"I16", 2, false},        [WEFT_I8] = {"I8", 1, false},          [WEFT_U64] = {"U64", 8, false},
    [WEFT_U32] = {"U32", 4, false},        [WEFT_U16] = {"U16", 2, false},        [WEFT_U8] = {"U8", 1, false},
    [WEFT_BOOL] = {"BOOL", 1, false},
};

size_t weft_dtype_size(weft_dtype t) {
    return types[t].size;
}

const char *weft_dtype_name(weft_dtype t) {
    return types[t].name;
}

bool weft_dtype_is_float(weft_dtype t) {
    return types[t].is_float;
}

bool weft_dtype_parse(const char *name, weft_dtype *t) {
    for (int i = 0; i < WEFT_DTYPES; i++)
        if (strcmp(name, types[i].name) == 0) return *t = (weft_dtype)i, true;
    return false;
}

/* ---- one element to the bits of a float32 -------------------------------------------------------------------------------- */

/* An IEEE-like number without its sign: `mant_bits` mantissa bits below an exponent of bias `bias`, infinities apart. */
static inline uint32_t widen(uint32_t exp, uint32_t mant, int mant_bits, int bias) {
    if (exp != 0) return (exp + (uint32_t)(127 - bias)) << 23 | mant << (23 - mant_bits);
    if (mant == 0) return 0;
    int shift = 0; /* a subnormal: normalise */
    while (!(mant >> mant_bits)) mant <<= 1, shift++;
    mant &= (1u << mant_bits) - 1;
    return (uint32_t)(128 - bias - shift) << 23 | mant << (23 - mant_bits);
}

static inline uint32_t f16_bits(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, mant = h & 1023;
    return sign | (exp == 31 ? 0x7f800000u | mant << 13 : widen(exp, mant, 10, 15));
}

static inline uint32_t e4m3_bits(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80) << 24;
    return sign | ((b & 0x7f) == 0x7f ? 0x7fc00000u : widen(b >> 3 & 15, b & 7, 3, 7));
}

static inline uint32_t e8m0_bits(uint8_t b) {
    return b == 255 ? 0x7fc00000u : b == 0 ? 0x00400000u : (uint32_t)b << 23;
}

/* Round to nearest even in integers: a cast would obey the flush-to-zero mode of the calling thread. */
static uint32_t f64_bits(uint64_t d) {
    uint32_t sign = (uint32_t)(d >> 32) & 0x80000000u;
    int exp = (int)(d >> 52 & 2047);
    uint64_t mant = d & 0xfffffffffffffull;
    if (exp == 2047) return sign | 0x7f800000u | (mant ? 0x400000u | (uint32_t)(mant >> 29) : 0);
    int e = exp - 1023 + 127;
    if (e >= 255) return sign | 0x7f800000u;
    int drop = 29;
    if (e <= 0) { /* subnormal in float32: the hidden bit becomes part of the mantissa */
        if (e < -24) return sign;
        mant |= 1ull << 52, drop += 1 - e, e = 0;
    }
    uint64_t half = 1ull << (drop - 1), rest = mant & ((half << 1) - 1), keep = mant >> drop;
    if (rest > half || (rest == half && (keep & 1))) keep++;
    return sign | (((uint32_t)e << 23) + (uint32_t)keep); /* a carry out of the mantissa raises the exponent, up to infinity */
}

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

#define CONVERT(type, expr)                                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                                               \
        type x;                                                                                                                    \
        memcpy(&x, s + i * sizeof x, sizeof x);                                                                                    \
        uint32_t bits = (expr);                                                                                                    \
        memcpy(dst + i, &bits, 4);                                                                                                 \
    }                                                                                                                              \
    break

void weft_to_f32(float *dst, weft_dtype t, const void *src, size_t n) {
    const uint8_t *s = src;
    if (n == 0) return;
    switch (t) {
    case WEFT_F32: memcpy(dst, src, n * 4); break;
    case WEFT_BF16: CONVERT(uint16_t, (uint32_t)x << 16);
    case WEFT_F16: CONVERT(uint16_t, f16_bits(x));
    case WEFT_F64: CONVERT(uint64_t, f64_bits(x));
    case WEFT_F8_E4M3: CONVERT(uint8_t, e4m3_bits(x));
    case WEFT_F8_E5M2: CONVERT(uint8_t, f16_bits((uint16_t)(x << 8)));
    case WEFT_F8_E8M0: CONVERT(uint8_t, e8m0_bits(x));
    default: break; /* not a float type: the caller's mistake, nothing is written */
    }
}

/* Two passes: one without an early exit, which the compiler vectorises, and only on a hit one that finds the place. */
#define SCAN(type, bad)                                                                                                            \
    do {                                                                                                                           \
        int hit = 0;                                                                                                               \
        for (size_t i = 0; i < n; i++) {                                                                                           \
            type x;                                                                                                                \
            memcpy(&x, s + i * sizeof x, sizeof x);                                                                                \
            hit |= (bad);                                                                                                          \
        }                                                                                                                          \
        if (!hit) return n;                                                                                                        \
        for (size_t i = 0;; i++) {                                                                                                 \
            type x;                                                                                                                \
            memcpy(&x, s + i * sizeof x, sizeof x);                                                                                \
            if (bad) return i;                                                                                                     \
        }                                                                                                                          \
    } while (0)

size_t weft_first_nonfinite(weft_dtype t, const void *src, size_t n) {
    const uint8_t *s = src;
    switch (t) {
    case WEFT_F32: SCAN(uint32_t, (x & 0x7f800000u) == 0x7f800000u);
    case WEFT_BF16: SCAN(uint16_t, (x & 0x7f80) == 0x7f80);
    case WEFT_F16: SCAN(uint16_t, (x & 0x7c00) == 0x7c00);
    case WEFT_F64: SCAN(uint64_t, (f64_bits(x) & 0x7f800000u) == 0x7f800000u);
    case WEFT_F8_E4M3: SCAN(uint8_t, (x & 0x7f) == 0x7f);
    case WEFT_F8_E5M2: SCAN(uint8_t, (x & 0x7c) == 0x7c);
    case WEFT_F8_E8M0: SCAN(uint8_t, x == 255);
    default: return n;
    }
}

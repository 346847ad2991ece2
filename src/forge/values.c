/* values.c: see values.h. Random bits are the SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014, read at any place: word i of a key is mix(key + (i + 1) * step). */
#include "forge/values.h"

#include <string.h>

#include "base/num.h"

static uint64_t word(uint64_t key, uint64_t i) {
    uint64_t z = key + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static float uniform(uint64_t w) { /* [0, 1) */
    return (float)(w >> 40) * 0x1p-24f;
}

static uint16_t to_bf16(float x) { /* to nearest even; x is finite and far from the end */
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static uint16_t to_f16(float x) { /* to nearest even, below 2^-14 in steps of 2^-24; |x| < 65504 */
    uint32_t u;
    memcpy(&u, &x, 4);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    float a = sign ? -x : x;
    if (a < 0x1p-14f) {
        float steps = a * 0x1p24f;
        uint16_t whole = (uint16_t)steps;
        float rest = steps - (float)whole;
        return (uint16_t)(sign | (whole + (rest > 0.5f || (rest == 0.5f && (whole & 1)))));
    }
    memcpy(&u, &a, 4);
    u += 0xfff + (u >> 13 & 1);
    return (uint16_t)(sign | ((u >> 13) - (112u << 10)));
}

/* The standard deviation of codes that take each of 2^bits values alike. */
static float spread(int bits) {
    return __builtin_sqrtf(((float)(1u << 2 * bits) - 1.0f) / 12.0f);
}

/* A scale of either sign around what gives the codes the wanted deviation. */
static float scale(const weft_values *v, uint64_t w, float codes) {
    float s = v->deviation / codes * (0.75f + 0.5f * uniform(w));
    return w & 1 ? -s : s;
}

static float number(const weft_values *v, uint64_t i) {
    uint64_t w = word(v->key, i);
    float u = uniform(w), s;
    switch (v->rule) {
    case WEFT_RULE_UNIFORM: return v->centre + (2.0f * u - 1.0f) * 1.7320508f * v->deviation;
    case WEFT_RULE_SCALE: return scale(v, w, spread(v->bits));
    case WEFT_RULE_BIAS: s = from_bf16(to_bf16(scale(v, w, spread(v->bits)))); return -0.5f * (float)((1 << v->bits) - 1) * s;
    case WEFT_RULE_A_LOG: return (float)weft_ln(1.0 + 15.0 * (double)u);
    case WEFT_RULE_NEG_A: return -(1.0f + 15.0f * u);
    case WEFT_RULE_STEP: {
        double dt = 0.001 * weft_exp(weft_ln(100.0) * (double)u);
        return (float)weft_ln(weft_exp(dt) - 1.0);
    }
    case WEFT_RULE_FREQUENCY: return i < (uint64_t)v->turning ? 1.0f : 1e30f;
    case WEFT_RULE_PACKED: break;
    }
    return 0.0f;
}

/* ---- blocks: where the parts of one lie is llama.cpp's ggml-common.h ----------------------------------------------------- */

enum { SUB_SCALES = 16 };               /* of a Q6_K block, here 16 to 31 with either sign */
static const float sub_scale = 23.948f; /* their root mean square */

static void words(uint8_t *dst, uint64_t key, uint64_t first, int n) {
    for (int i = 0; i < n; i++, dst += 8) {
        uint64_t w = word(key, first + (uint64_t)i);
        memcpy(dst, &w, 8);
    }
}

static void put_scale(uint8_t *dst, const weft_values *v, uint64_t i, float codes) {
    uint16_t d = to_f16(scale(v, word(~v->key, i), codes));
    memcpy(dst, &d, 2);
}

static void block_q4_0(uint8_t *dst, const weft_values *v, uint64_t i) {
    put_scale(dst, v, i, spread(4));
    words(dst + 2, v->key, 2 * i, 2);
}

static void block_q8_0(uint8_t *dst, const weft_values *v, uint64_t i) {
    put_scale(dst, v, i, spread(8));
    words(dst + 2, v->key, 4 * i, 4);
    for (int j = 2; j < 34; j++) dst[j] += dst[j] == 0x80; /* quantisers never write -128 */
}

static void block_q6_k(uint8_t *dst, const weft_values *v, uint64_t i) {
    words(dst, v->key, 26 * i, 26); /* 4 low bits, 2 high bits, scales */
    for (int j = 192; j < 192 + SUB_SCALES; j++) {
        int s = 16 + (dst[j] & 15);
        dst[j] = (uint8_t)(dst[j] & 0x80 ? -s : s);
    }
    put_scale(dst + 208, v, i, spread(6) * sub_scale);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static const struct {
    int numbers;
    size_t bytes;
} stores[] = {
    [WEFT_STORE_F32] = {1, 4},    [WEFT_STORE_BF16] = {1, 2},   [WEFT_STORE_CODES] = {0, 8},
    [WEFT_STORE_Q4_0] = {32, 18}, [WEFT_STORE_Q8_0] = {32, 34}, [WEFT_STORE_Q6_K] = {256, 210},
};

int weft_store_numbers(weft_store s) {
    return stores[s].numbers;
}
size_t weft_store_bytes(weft_store s) {
    return stores[s].bytes;
}

void weft_values_make(const weft_values *v, uint64_t first, size_t n, void *dst) {
    uint8_t *p = dst;
    for (uint64_t i = first; i < first + n; i++, p += stores[v->store].bytes) {
        switch (v->store) {
        case WEFT_STORE_F32: {
            float x = number(v, i);
            memcpy(p, &x, 4);
            break;
        }
        case WEFT_STORE_BF16: {
            uint16_t h = to_bf16(number(v, i));
            memcpy(p, &h, 2);
            break;
        }
        case WEFT_STORE_CODES: words(p, v->key, i, 1); break;
        case WEFT_STORE_Q4_0: block_q4_0(p, v, i); break;
        case WEFT_STORE_Q8_0: block_q8_0(p, v, i); break;
        case WEFT_STORE_Q6_K: block_q6_k(p, v, i); break;
        }
    }
}

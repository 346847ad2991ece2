/* values.h: tensors that are written without ever being held: each has a rule that makes any run of its numbers.
 *
 * A number depends on the tensor's key and its own place alone, so a file is the same on every machine and in whatever pieces it is
 * written. */
#ifndef WEFT_FORGE_VALUES_H
#define WEFT_FORGE_VALUES_H

#include <stddef.h>
#include <stdint.h>

typedef enum weft_store {
    WEFT_STORE_F32,
    WEFT_STORE_BF16,
    WEFT_STORE_CODES, /* packed codes of MLX affine, U32; a whole number of 64-bit words */
    WEFT_STORE_Q4_0,  /* the last three: blocks of GGUF */
    WEFT_STORE_Q8_0,
    WEFT_STORE_Q6_K,
} weft_store;

typedef enum weft_rule {
    WEFT_RULE_UNIFORM,   /* between centre - sqrt(3) deviation and centre + sqrt(3) deviation: F32, BF16 */
    WEFT_RULE_SCALE,     /* of MLX affine codes of `bits` bits: BF16. Of both signs, so that no rounding adds up over a row */
    WEFT_RULE_BIAS,      /* what belongs to the scales of the same key: the codes' mean becomes about zero */
    WEFT_RULE_A_LOG,     /* ln A, A uniform in 1 to 16, as Mamba-2 starts its training: states fade over 1 to 1000 tokens: F32 */
    WEFT_RULE_NEG_A,     /* -A: F32 */
    WEFT_RULE_STEP,      /* softplus^-1(dt), dt log-uniform in 0.001 to 0.1: F32, BF16 */
    WEFT_RULE_FREQUENCY, /* divisors: 1 for the first `turning` numbers, then one so large that nothing turns: F32 */
    WEFT_RULE_PACKED,    /* codes, and blocks of codes: all the other stores */
} weft_rule;

typedef struct weft_values {
    weft_store store;
    weft_rule rule;
    uint64_t key;
    float centre, deviation; /* of the weights that the numbers stand for */
    int bits;
    int64_t turning;
} weft_values;

/* How a store counts: numbers in a unit, and its bytes. A unit of codes is a word; the numbers in it are not counted (0). */
int weft_store_numbers(weft_store s);
size_t weft_store_bytes(weft_store s);

/* Units [first, first + n) into dst, n weft_store_bytes(v->store) bytes. */
void weft_values_make(const weft_values *v, uint64_t first, size_t n, void *dst);

#endif

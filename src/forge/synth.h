/* synth.h: checkpoints of random weights in the shape of a published model.
 *
 * They run at the speed of the real ones and say nothing: activations keep about unit size, states fade as in a trained model,
 * logits have a deviation of about two. Without GGUF the result is a model folder: at 4 and 8 bits as mlx-lm converts it (affine,
 * groups of 64; routers at 8 bits), at 16 bits as transformers stores it; both with the MTP head of the models that have one. With
 * GGUF it is one file for llama.cpp, model.gguf, without the MTP head, which llama.cpp does not need. None has a tokenizer. */
#ifndef WEFT_FORGE_SYNTH_H
#define WEFT_FORGE_SYNTH_H

#include <signal.h>

#include "base/error.h"
#include "forge/shapes.h"

typedef struct weft_synth {
    const weft_shape *shape;
    int layers;    /* 0: all; else the first so many */
    int bits;      /* 4, 8, 16 */
    int head_bits; /* of the output head, and so of a tied embedding: 4, 6, 8, 16; 0: 6, 8, 16 for bits 4, 8, 16; 8 also where Q6_K
                      does not fit */
    bool gguf;     /* Q4_0, Q6_K, Q8_0, BF16 for 4, 6, 8, 16 bits */
    uint64_t seed; /* the same seed, the same bytes */
    uint64_t shard_bytes;              /* most tensor bytes of one safetensors file; 0: 4 GB */
    const char *out;                   /* a folder that is empty, or does not exist yet */
    const volatile sig_atomic_t *stop; /* not 0: give up; or NULL */
} weft_synth;

/* *bytes: what was written. WEFT_EINVAL: a combination that no file can hold, a folder in use. On failure nothing is left. */
weft_status weft_synth_write(const weft_synth *y, uint64_t *bytes, weft_error *e);

#endif

/* network.h: what a network consists of: every stored tensor's name, size and purpose, in the spellings of its publishers. The
 * purpose decides the numbers and the packing (synth.c). */
#ifndef WEFT_FORGE_NETWORK_H
#define WEFT_FORGE_NETWORK_H

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include "forge/shapes.h"

typedef enum weft_layout {
    WEFT_LAYOUT_HF = 1,   /* transformers: experts fused */
    WEFT_LAYOUT_MLX = 2,  /* mlx-lm: experts stacked, convolutions [channels, taps, 1] */
    WEFT_LAYOUT_GGUF = 4, /* llama.cpp: decays stored as -exp(A_log); without an MTP head. Llama's rows of q and k, and of Qwen3.5
                             the value heads, have an order of their own there, which random numbers need not follow */
} weft_layout;

typedef enum weft_role {
    WEFT_ROLE_LINEAR,       /* the first five may be packed */
    WEFT_ROLE_EMBED,        /* the embedding; of a tied model the output head, too */
    WEFT_ROLE_HEAD,         /* the output head of an untied model */
    WEFT_ROLE_TABLE,        /* Gemma 4's embeddings for the layers, side by side */
    WEFT_ROLE_ROUTER,       /* chooses experts, or gates the shared one: small, and kept at more bits */
    WEFT_ROLE_GAIN,         /* of a norm; in some families and layouts stored less one */
    WEFT_ROLE_STATE_GAIN,   /* of the norm behind a state, which no layout stores less one */
    WEFT_ROLE_HEAD_GAIN,    /* of the norms of q and k */
    WEFT_ROLE_ROUTER_SCALE, /* what Gemma 4's router multiplies its normed input with, over the root of the hidden size */
    WEFT_ROLE_BIAS,
    WEFT_ROLE_CONV, /* [channels, taps] */
    WEFT_ROLE_DECAY,
    WEFT_ROLE_STEP,      /* dt_bias */
    WEFT_ROLE_FREQUENCY, /* what llama.cpp divides RoPE's angles by: Gemma 4's full layers turn a quarter of them */
} weft_role;

typedef struct weft_part {
    const char *path; /* as stored, where it may be packed without ".weight": "blk.0.attn_q" */
    const char *name; /* the same in all layouts where the numbers are: "layers.0.self_attn.q_proj" */
    weft_role role;
    int64_t experts, n, k; /* [experts, n, k]; experts 0: [n, k]; n 0: [k] */
} weft_part;
typedef WEFT_VEC(weft_part) weft_parts;

/* Appends the first `layers` layers of the shape with everything around them, in the order of a forward pass. Paths and names live
 * in the arena. */
weft_status weft_network_parts(weft_parts *parts, weft_arena *arena, const weft_shape *shape, int layers, weft_layout layout,
                               weft_error *e);

/* What follows the path of a part that is stored as one tensor: ".weight", or "". */
const char *weft_part_suffix(const weft_part *part, weft_layout layout);

#endif

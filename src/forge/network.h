/* network.h: what a Qwen3.5 network consists of: every stored tensor's name, size and purpose, in the spellings of its publishers.
 * The purpose decides the numbers and the packing (synth.c). */
#ifndef WEFT_FORGE_NETWORK_H
#define WEFT_FORGE_NETWORK_H

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include "forge/shapes.h"

typedef enum weft_layout {
    WEFT_LAYOUT_HF = 1,   /* transformers: norm gains are stored less one, experts fused */
    WEFT_LAYOUT_MLX = 2,  /* mlx-lm: gains as they are, experts stacked, convolutions [channels, taps, 1] */
    WEFT_LAYOUT_GGUF = 4, /* llama.cpp: gains as they are, decays stored as -exp(A_log); without the MTP head */
} weft_layout;

typedef enum weft_role {
    WEFT_ROLE_LINEAR,
    WEFT_ROLE_EMBED,    /* the embedding; of a tied model the output head, too */
    WEFT_ROLE_HEAD,     /* the output head of an untied model */
    WEFT_ROLE_ROUTER,   /* chooses experts, or gates the shared one: small, and kept at more bits */
    WEFT_ROLE_GAIN,     /* of a norm */
    WEFT_ROLE_GDN_GAIN, /* of the norm on a DeltaNet's output, which no layout stores less one */
    WEFT_ROLE_CONV,     /* [channels, taps] */
    WEFT_ROLE_DECAY,
    WEFT_ROLE_STEP, /* dt_bias */
} weft_role;

typedef struct weft_part {
    const char *path; /* without ".weight": "blk.0.attn_q" */
    weft_role role;
    int64_t experts, n, k; /* [experts, n, k]; experts 0: [n, k]; n 0: [k] */
} weft_part;
typedef WEFT_VEC(weft_part) weft_parts;

/* Appends the first `layers` layers of the shape with everything around them, in the order of a forward pass. Paths live in the
 * arena. */
weft_status weft_network_parts(weft_parts *parts, weft_arena *arena, const weft_shape *shape, int layers, weft_layout layout,
                               weft_error *e);

/* What follows the path of a part that is stored as one tensor: ".weight", or "". */
const char *weft_part_suffix(const weft_part *part, weft_layout layout);

#endif

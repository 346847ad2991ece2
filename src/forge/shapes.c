/* shapes.c: see shapes.h. Sources: the config.json of each published checkpoint. */
#include "forge/shapes.h"

#include <stddef.h>
#include <string.h>

#define COMMON                                                                                                                     \
    .attention_every = 4, .vocab = 248320, .context = 262144, .head_dim = 256, .rotary_dim = 64, .gdn_k_heads = 16,                \
    .gdn_dim = 128, .gdn_conv = 4
#define DENSE(name_, hidden_, layers_, inner_, heads_, kv_, v_heads_, tied_)                                                       \
    {                                                                                                                              \
        COMMON, .name = (name_), .hidden = (hidden_), .n_layers = (layers_), .intermediate = (inner_), .n_heads = (heads_),        \
                .n_kv_heads = (kv_), .gdn_v_heads = (v_heads_), .tied = (tied_)                                                    \
    }

static const weft_shape shapes[] = {
    DENSE("qwen3.5-0.8b", 1024, 24, 3584, 8, 2, 16, true),
    DENSE("qwen3.5-2b", 2048, 24, 6144, 8, 2, 16, true),
    DENSE("qwen3.5-4b", 2560, 32, 9216, 16, 4, 32, true),
    DENSE("qwen3.5-9b", 4096, 32, 12288, 16, 4, 32, false),
    DENSE("qwen3.5-27b", 5120, 64, 17408, 24, 4, 48, false),
    {COMMON, .name = "qwen3.5-35b-a3b", .hidden = 2048, .n_layers = 40, .n_heads = 16, .n_kv_heads = 2, .gdn_v_heads = 32,
     .n_experts = 256, .top_k = 8, .moe_intermediate = 512, .shared_intermediate = 512},
};

const weft_shape *weft_shape_at(int i) {
    return i >= 0 && (size_t)i < sizeof shapes / sizeof *shapes ? &shapes[i] : NULL;
}

const weft_shape *weft_shape_find(const char *name) {
    for (int i = 0; weft_shape_at(i); i++)
        if (strcmp(weft_shape_at(i)->name, name) == 0) return weft_shape_at(i);
    return NULL;
}

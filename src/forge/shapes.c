/* shapes.c: see shapes.h. Sources: the config.json of each published checkpoint. */
#include "forge/shapes.h"

#include <stddef.h>
#include <string.h>

#define QWEN3_5(name_, hidden_, layers_, heads_, kv_, v_heads_)                                                                    \
    .name = (name_), .family = WEFT_SHAPE_QWEN3_5, .layers = "LLL*", .hidden = (hidden_), .n_layers = (layers_), .vocab = 248320,  \
    .context = 262144, .n_heads = (heads_), .n_kv_heads = (kv_), .head_dim = 256, .rotary_dim = 64, .theta = 1e7,                  \
    .gdn_k_heads = 16, .gdn_v_heads = (v_heads_), .gdn_dim = 128, .taps = 4
#define QWEN2(name_, hidden_, layers_, heads_, kv_, inner_)                                                                        \
    .name = (name_), .family = WEFT_SHAPE_QWEN2, .layers = "*", .hidden = (hidden_), .n_layers = (layers_), .context = 32768,      \
    .intermediate = (inner_), .n_heads = (heads_), .n_kv_heads = (kv_), .head_dim = (hidden_) / (heads_), .theta = 1e6
#define QWEN3(name_, hidden_, layers_, heads_, kv_)                                                                                \
    .name = (name_), .family = WEFT_SHAPE_QWEN3, .layers = "*", .hidden = (hidden_), .n_layers = (layers_), .vocab = 151936,       \
    .context = 40960, .n_heads = (heads_), .n_kv_heads = (kv_), .head_dim = 128, .theta = 1e6
#define LLAMA(name_, hidden_, layers_, heads_, inner_, factor_)                                                                    \
    .name = (name_), .family = WEFT_SHAPE_LLAMA, .layers = "*", .hidden = (hidden_), .n_layers = (layers_), .vocab = 128256,       \
    .context = 131072, .intermediate = (inner_), .n_heads = (heads_), .n_kv_heads = 8, .head_dim = (hidden_) / (heads_),           \
    .theta = 5e5, .rope_factor = (factor_)
#define GEMMA3(name_, hidden_, layers_, inner_)                                                                                    \
    .name = (name_), .family = WEFT_SHAPE_GEMMA3, .layers = "SSSSS*", .hidden = (hidden_), .n_layers = (layers_), .vocab = 262144, \
    .context = 32768, .tied = true, .intermediate = (inner_), .n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .theta = 1e6,        \
    .window = 512
#define GEMMA4(name_, layers_, hidden_, n_layers_, context_, heads_, kv_, full_kv_, inner_, window_)                               \
    .name = (name_), .family = WEFT_SHAPE_GEMMA4, .layers = (layers_), .hidden = (hidden_), .n_layers = (n_layers_),               \
    .vocab = 262144, .context = (context_), .tied = true, .intermediate = (inner_), .n_heads = (heads_), .n_kv_heads = (kv_),      \
    .head_dim = 256, .full_kv_heads = (full_kv_), .full_head_dim = 512, .theta = 1e6, .window = (window_)

static const weft_shape shapes[] = {
    {QWEN3_5("qwen3.5-0.8b", 1024, 24, 8, 2, 16), .intermediate = 3584, .tied = true},
    {QWEN3_5("qwen3.5-2b", 2048, 24, 8, 2, 16), .intermediate = 6144, .tied = true},
    {QWEN3_5("qwen3.5-4b", 2560, 32, 16, 4, 32), .intermediate = 9216, .tied = true},
    {QWEN3_5("qwen3.5-9b", 4096, 32, 16, 4, 32), .intermediate = 12288},
    {QWEN3_5("qwen3.5-27b", 5120, 64, 24, 4, 48), .intermediate = 17408},
    {QWEN3_5("qwen3.5-35b-a3b", 2048, 40, 16, 2, 32), .n_experts = 256, .top_k = 8, .moe_intermediate = 512,
     .shared_intermediate = 512},
    {QWEN2("qwen2.5-0.5b", 896, 24, 14, 2, 4864), .vocab = 151936, .tied = true},
    {QWEN2("qwen2.5-1.5b", 1536, 28, 12, 2, 8960), .vocab = 151936, .tied = true},
    {QWEN2("qwen2.5-7b", 3584, 28, 28, 4, 18944), .vocab = 152064},
    {QWEN3("qwen3-0.6b", 1024, 28, 16, 8), .intermediate = 3072, .tied = true},
    {QWEN3("qwen3-4b", 2560, 36, 32, 8), .intermediate = 9728, .tied = true},
    {QWEN3("qwen3-8b", 4096, 36, 32, 8), .intermediate = 12288},
    {QWEN3("qwen3-30b-a3b", 2048, 48, 32, 4), .n_experts = 128, .top_k = 8, .moe_intermediate = 768},
    {LLAMA("llama-3.2-1b", 2048, 16, 32, 8192, 32), .tied = true},
    {LLAMA("llama-3.1-8b", 4096, 32, 32, 14336, 8)},
    {GEMMA3("gemma-3-270m", 640, 18, 2048)},
    {GEMMA3("gemma-3-1b", 1152, 26, 6912)},
    {GEMMA4("gemma-4-e2b", "SSSS*", 1536, 35, 131072, 8, 1, 1, 6144, 512), .own_keys = 15, .layer_inputs = 256},
    {GEMMA4("gemma-4-26b-a4b", "SSSSS*", 2816, 30, 262144, 16, 8, 2, 2112, 1024), .k_is_v = true, .n_experts = 128, .top_k = 8,
     .moe_intermediate = 704},
    {.name = "nemotron-nano",
     .family = WEFT_SHAPE_NEMOTRON_H,
     .layers = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
     .hidden = 2688,
     .n_layers = 52,
     .vocab = 131072,
     .context = 262144,
     .n_heads = 32,
     .n_kv_heads = 2,
     .head_dim = 128,
     .mamba_heads = 64,
     .mamba_head_dim = 64,
     .mamba_groups = 8,
     .mamba_state = 128,
     .taps = 4,
     .n_experts = 128,
     .top_k = 6,
     .moe_intermediate = 1856,
     .shared_intermediate = 3712},
};

const weft_shape *weft_shape_at(int i) {
    return i >= 0 && (size_t)i < sizeof shapes / sizeof *shapes ? &shapes[i] : NULL;
}

const weft_shape *weft_shape_find(const char *name) {
    for (int i = 0; weft_shape_at(i); i++)
        if (strcmp(weft_shape_at(i)->name, name) == 0) return weft_shape_at(i);
    return NULL;
}

char weft_shape_layer(const weft_shape *s, int i) {
    return s->layers[(size_t)i % strlen(s->layers)];
}

int weft_shape_kv_heads(const weft_shape *s, char letter) {
    return letter == '*' && s->full_kv_heads ? s->full_kv_heads : s->n_kv_heads;
}

int weft_shape_head_dim(const weft_shape *s, char letter) {
    return letter == '*' && s->full_head_dim ? s->full_head_dim : s->head_dim;
}

int weft_shape_sharing(const weft_shape *s, int n) {
    return s->own_keys && n > s->own_keys ? n - s->own_keys : 0;
}

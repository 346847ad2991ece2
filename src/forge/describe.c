/* describe.c: see describe.h. Sources: the published config.json files; for the keys of GGUF, llama.cpp's llama-arch.cpp. */
#include "forge/describe.h"

#include <stdio.h>
#include <string.h>

typedef struct number {
    const char *name;
    int value; /* 0: not said */
} number;

/* What a family is called. Of two names the second is a mixture's. */
static const struct {
    const char *architecture[2], *type[2], *text_type[2]; /* no text_type: a flat config */
    const char *gguf[2];
    double eps;
} families[] = {
    [WEFT_SHAPE_QWEN3_5] = {{"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"},
                            {"qwen3_5", "qwen3_5_moe"},
                            {"qwen3_5_text", "qwen3_5_moe_text"},
                            {"qwen35", "qwen35moe"},
                            1e-6},
    [WEFT_SHAPE_QWEN2] = {{"Qwen2ForCausalLM"}, {"qwen2"}, {NULL}, {"qwen2"}, 1e-6},
    [WEFT_SHAPE_QWEN3] = {{"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}, {"qwen3", "qwen3_moe"}, {NULL}, {"qwen3", "qwen3moe"}, 1e-6},
    [WEFT_SHAPE_LLAMA] = {{"LlamaForCausalLM"}, {"llama"}, {NULL}, {"llama"}, 1e-5},
    [WEFT_SHAPE_GEMMA3] = {{"Gemma3ForCausalLM"}, {"gemma3_text"}, {NULL}, {"gemma3"}, 1e-6},
    [WEFT_SHAPE_GEMMA4] = {{"Gemma4ForConditionalGeneration", "Gemma4ForConditionalGeneration"},
                           {"gemma4", "gemma4"},
                           {"gemma4_text", "gemma4_text"},
                           {"gemma4", "gemma4"},
                           1e-6},
    [WEFT_SHAPE_NEMOTRON_H] = {{NULL, "NemotronHForCausalLM"}, {NULL, "nemotron_h"}, {NULL}, {NULL, "nemotron_h_moe"}, 1e-5},
};

/* ---- config.json --------------------------------------------------------------------------------------------------------- */

static bool add_sizes(weft_str *s, const weft_shape *h, int layers) {
    bool nemotron = h->family == WEFT_SHAPE_NEMOTRON_H, gemma4 = h->family == WEFT_SHAPE_GEMMA4;
    const number sizes[] = {
        {"vocab_size", h->vocab},
        {"hidden_size", h->hidden},
        {"num_hidden_layers", layers},
        {"intermediate_size", h->intermediate},
        {"max_position_embeddings", h->context},
        {"num_attention_heads", h->n_heads},
        {"num_key_value_heads", h->n_kv_heads},
        {"head_dim", h->head_dim},
        {"sliding_window", h->window},
        {"global_head_dim", h->full_head_dim},
        {"num_global_key_value_heads", h->k_is_v ? h->full_kv_heads : 0},
        {"num_kv_shared_layers", weft_shape_sharing(h, layers)},
        {"hidden_size_per_layer_input", h->layer_inputs},
        {"vocab_size_per_layer_input", h->layer_inputs ? h->vocab : 0},
        {"linear_num_key_heads", h->gdn_k_heads},
        {"linear_num_value_heads", h->gdn_v_heads},
        {"linear_key_head_dim", h->gdn_dim},
        {"linear_value_head_dim", h->gdn_dim},
        {"linear_conv_kernel_dim", h->gdn_dim ? h->taps : 0},
        {"mamba_num_heads", h->mamba_heads},
        {"mamba_head_dim", h->mamba_head_dim},
        {"n_groups", h->mamba_groups},
        {"ssm_state_size", h->mamba_state},
        {"conv_kernel", h->mamba_heads ? h->taps : 0},
        {nemotron ? "n_routed_experts" : "num_experts", h->n_experts},
        {gemma4 ? "top_k_experts" : "num_experts_per_tok", h->top_k},
        {"moe_intermediate_size", h->moe_intermediate},
        {nemotron ? "moe_shared_expert_intermediate_size" : "shared_expert_intermediate_size", h->shared_intermediate},
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && ok; i++)
        if (sizes[i].value) ok = weft_str_addf(s, "  \"%s\": %d,\n", sizes[i].name, sizes[i].value);
    return ok;
}

static bool add_layer_types(weft_str *s, const weft_shape *h, int layers) {
    bool ok = weft_str_addz(s, "  \"layer_types\": [");
    for (int i = 0; i < layers && ok; i++) {
        char letter = weft_shape_layer(h, i);
        const char *word = letter == 'L' ? "linear" : letter == 'S' ? "sliding" : "full";
        ok = weft_str_addf(s, "%s\"%s_attention\"", i ? ", " : "", word);
    }
    return ok && weft_str_addz(s, "],\n");
}

static bool add_qwen3_5(weft_str *s, const weft_shape *h, int layers) {
    int angles = h->rotary_dim / 2;
    bool ok = add_layer_types(s, h, layers);
    ok = ok && weft_str_addf(s,
                             "  \"full_attention_interval\": %zu,\n  \"attn_output_gate\": true,\n"
                             "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.0f, "
                             "\"partial_rotary_factor\": %g, \"mrope_section\": [%d, %d, %d], \"mrope_interleaved\": true},\n",
                             strlen(h->layers), h->theta, (double)h->rotary_dim / h->head_dim, (angles + 2) / 3, (angles + 1) / 3,
                             angles / 3);
    return ok && weft_str_addz(s, "  \"mamba_ssm_dtype\": \"float32\",\n  \"mtp_num_hidden_layers\": 1,\n"
                                  "  \"mtp_use_dedicated_embeddings\": false,\n");
}

static bool add_llama(weft_str *s, const weft_shape *h) {
    if (!weft_str_addf(s, "  \"rope_theta\": %.0f,\n", h->theta)) return false;
    if (h->n_experts && !weft_str_addz(s, "  \"norm_topk_prob\": true,\n")) return false;
    return h->rope_factor == 0 || weft_str_addf(s,
                                                "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %.1f, "
                                                "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                                                "\"original_max_position_embeddings\": 8192},\n",
                                                h->rope_factor);
}

static bool add_gemma3(weft_str *s, const weft_shape *h, int layers) {
    return add_layer_types(s, h, layers) &&
           weft_str_addf(s,
                         "  \"query_pre_attn_scalar\": %d,\n  \"rope_theta\": %.0f,\n  \"rope_local_base_freq\": 10000,\n"
                         "  \"use_bidirectional_attention\": false,\n",
                         h->head_dim, h->theta);
}

static bool add_gemma4(weft_str *s, const weft_shape *h, int layers) {
    return add_layer_types(s, h, layers) &&
           weft_str_addf(s,
                         "  \"rope_parameters\": {\n"
                         "    \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000},\n"
                         "    \"full_attention\": {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, "
                         "\"rope_theta\": %.0f}\n  },\n"
                         "  \"final_logit_softcapping\": 30.0,\n  \"attention_k_eq_v\": %s,\n  \"use_double_wide_mlp\": %s,\n"
                         "  \"enable_moe_block\": %s,\n",
                         h->theta, h->k_is_v ? "true" : "false", h->own_keys ? "true" : "false", h->n_experts ? "true" : "false");
}

static bool add_nemotron(weft_str *s, const weft_shape *h, int layers) {
    bool ok = weft_str_addz(s, "  \"hybrid_override_pattern\": \"");
    for (int i = 0; i < layers && ok; i++) ok = weft_str_addf(s, "%c", weft_shape_layer(h, i));
    return ok && weft_str_addz(s, "\",\n  \"mlp_hidden_act\": \"relu2\",\n  \"mamba_hidden_act\": \"silu\",\n"
                                  "  \"layer_norm_epsilon\": 1e-05,\n  \"n_shared_experts\": 1,\n  \"n_group\": 1,\n"
                                  "  \"topk_group\": 1,\n  \"norm_topk_prob\": true,\n  \"routed_scaling_factor\": 2.5,\n"
                                  "  \"use_conv_bias\": true,\n  \"mlp_bias\": false,\n  \"mamba_proj_bias\": false,\n"
                                  "  \"use_bias\": false,\n  \"mamba_ssm_cache_dtype\": \"float32\",\n");
}

static bool add_family(weft_str *s, const weft_shape *h, int layers) {
    switch (h->family) {
    case WEFT_SHAPE_QWEN3_5: return add_qwen3_5(s, h, layers);
    case WEFT_SHAPE_GEMMA3: return add_gemma3(s, h, layers);
    case WEFT_SHAPE_GEMMA4: return add_gemma4(s, h, layers);
    case WEFT_SHAPE_NEMOTRON_H: return add_nemotron(s, h, layers);
    default: return add_llama(s, h);
    }
}

bool weft_describe_config(weft_str *s, const weft_shape *h, int layers, const char *packing) {
    bool moe = h->n_experts > 0, gemma = h->family == WEFT_SHAPE_GEMMA3 || h->family == WEFT_SHAPE_GEMMA4;
    const char *tied = h->tied ? "true" : "false", *text = families[h->family].text_type[moe];
    bool ok = weft_str_addf(s, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n%s",
                            families[h->family].architecture[moe], families[h->family].type[moe], packing);
    if (text)
        ok =
            ok && weft_str_addf(s, "  \"tie_word_embeddings\": %s,\n  \"text_config\": {\n  \"model_type\": \"%s\",\n", tied, text);
    ok = ok && add_sizes(s, h, layers) && add_family(s, h, layers);
    if (h->family != WEFT_SHAPE_NEMOTRON_H) /* whose activations were named */
        ok = ok &&
             weft_str_addf(s, "  \"%s\",\n  \"rms_norm_eps\": %g,\n",
                           gemma ? "hidden_activation\": \"gelu_pytorch_tanh" : "hidden_act\": \"silu", families[h->family].eps);
    ok = ok && weft_str_addf(s, "  \"attention_bias\": false,\n  \"tie_word_embeddings\": %s,\n  \"dtype\": \"bfloat16\"\n", tied);
    return ok && weft_str_addz(s, text ? "  }\n}\n" : "}\n");
}

/* ---- GGUF ---------------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    weft_gguf_keys *keys;
    const weft_shape *shape;
    int layers;
    char buf[80];
} writer;

static const char *name_of(const weft_shape *h) {
    return families[h->family].gguf[h->n_experts > 0];
}

/* A key of the architecture. */
static const char *key(writer *w, const char *name) {
    snprintf(w->buf, sizeof w->buf, "%s.%s", name_of(w->shape), name);
    return w->buf;
}

static void add_numbers(writer *w) {
    const weft_shape *h = w->shape;
    bool nemotron = h->family == WEFT_SHAPE_NEMOTRON_H, two_kinds = h->full_head_dim > 0;
    int head_dim = weft_shape_head_dim(h, '*'), inner = nemotron ? h->mamba_heads * h->mamba_head_dim : h->gdn_v_heads * h->gdn_dim;
    const number sizes[] = {
        {"block_count", w->layers},
        {"context_length", h->context},
        {"embedding_length", h->hidden},
        {"vocab_size", h->vocab},
        {"feed_forward_length", h->own_keys ? 0 : h->intermediate},
        {"attention.head_count", h->n_heads},
        {"attention.head_count_kv", nemotron || two_kinds ? 0 : h->n_kv_heads},
        {"attention.key_length", head_dim},
        {"attention.value_length", head_dim},
        {"attention.key_length_swa", two_kinds ? h->head_dim : 0},
        {"attention.value_length_swa", two_kinds ? h->head_dim : 0},
        {"attention.sliding_window", h->window},
        {"rope.dimension_count", nemotron        ? 0
                                 : h->rotary_dim ? h->rotary_dim
                                                 : head_dim},
        {"rope.dimension_count_swa", two_kinds ? h->head_dim : 0},
        {"full_attention_interval", h->gdn_dim ? (int)strlen(h->layers) : 0},
        {"ssm.conv_kernel", h->taps},
        {"ssm.state_size", nemotron ? h->mamba_state : h->gdn_dim},
        {"ssm.group_count", nemotron ? h->mamba_groups : h->gdn_k_heads},
        {"ssm.time_step_rank", nemotron ? h->mamba_heads : h->gdn_v_heads},
        {"ssm.inner_size", inner},
        {"expert_count", h->n_experts},
        {"expert_used_count", h->top_k},
        {"expert_feed_forward_length", h->moe_intermediate},
        {"expert_shared_feed_forward_length", h->shared_intermediate},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value) weft_gguf_u32(w->keys, key(w, sizes[i].name), (uint32_t)sizes[i].value);
}

enum { MOST_LAYERS = 256 };
typedef int layer_number(const weft_shape *h, int i, int layers);

static int kv_heads(const weft_shape *h, int i, int layers) {
    char letter = weft_shape_layer(h, i);
    (void)layers;
    return letter == 'M' || letter == 'E' ? 0 : weft_shape_kv_heads(h, letter);
}
static int inner_size(const weft_shape *h, int i, int layers) {
    if (h->family == WEFT_SHAPE_NEMOTRON_H) return weft_shape_layer(h, i) == 'E' ? h->moe_intermediate : 0;
    return i >= layers - weft_shape_sharing(h, layers) ? 2 * h->intermediate : h->intermediate;
}
static int slides(const weft_shape *h, int i, int layers) {
    (void)layers;
    return weft_shape_layer(h, i) == 'S';
}

/* A number for each layer. */
static void add_list(writer *w, const char *name, layer_number *number_of) {
    int32_t v[MOST_LAYERS];
    int n = w->layers < MOST_LAYERS ? w->layers : MOST_LAYERS;
    for (int i = 0; i < n; i++) v[i] = number_of(w->shape, i, w->layers);
    weft_gguf_i32s(w->keys, key(w, name), v, (uint64_t)n);
}

static void add_gemma4_keys(writer *w) {
    const weft_shape *h = w->shape;
    add_list(w, "attention.head_count_kv", kv_heads);
    add_list(w, "attention.sliding_window_pattern", slides);
    if (h->own_keys) add_list(w, "feed_forward_length", inner_size);
    weft_gguf_u32(w->keys, key(w, "attention.shared_kv_layers"), (uint32_t)weft_shape_sharing(h, w->layers));
    weft_gguf_u32(w->keys, key(w, "embedding_length_per_layer_input"), (uint32_t)h->layer_inputs);
    weft_gguf_f32(w->keys, key(w, "rope.freq_base_swa"), 1e4f);
    weft_gguf_f32(w->keys, key(w, "final_logit_softcapping"), 30);
}

static void add_nemotron_keys(writer *w) {
    add_list(w, "attention.head_count_kv", kv_heads);
    add_list(w, "feed_forward_length", inner_size);
    weft_gguf_f32(w->keys, key(w, "attention.layer_norm_epsilon"), 1e-5f);
    weft_gguf_u32(w->keys, key(w, "expert_shared_count"), 1);
    weft_gguf_u32(w->keys, key(w, "expert_group_count"), 1);
    weft_gguf_bool(w->keys, key(w, "expert_weights_norm"), true);
    weft_gguf_f32(w->keys, key(w, "expert_weights_scale"), 2.5f);
}

void weft_describe_gguf(weft_gguf_keys *keys, const weft_shape *h, int layers) {
    writer w = {.keys = keys, .shape = h, .layers = layers};
    int angles = h->rotary_dim / 2;
    weft_gguf_text(keys, "general.architecture", name_of(h));
    weft_gguf_text(keys, "general.type", "model");
    weft_gguf_text(keys, "general.name", h->name);
    add_numbers(&w);
    weft_gguf_f32(keys, key(&w, "attention.layer_norm_rms_epsilon"), (float)families[h->family].eps);
    if (h->theta > 0) weft_gguf_f32(keys, key(&w, "rope.freq_base"), (float)h->theta);
    if (h->family == WEFT_SHAPE_QWEN3_5) {
        const int32_t sections[] = {(angles + 2) / 3, (angles + 1) / 3, angles / 3, 0};
        weft_gguf_i32s(keys, key(&w, "rope.dimension_sections"), sections, 4);
    }
    if (h->family == WEFT_SHAPE_GEMMA3) weft_gguf_f32(keys, key(&w, "rope.freq_base_swa"), 1e4f);
    if (h->family == WEFT_SHAPE_GEMMA4) add_gemma4_keys(&w);
    if (h->family == WEFT_SHAPE_NEMOTRON_H) add_nemotron_keys(&w);
    weft_gguf_text(keys, "tokenizer.ggml.model", "none");
}

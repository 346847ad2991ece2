/* config_families.c: which model a config describes, and what each family says about itself.
 *
 * A family is a table of its whole numbers and a function for the rest. What a key means when it is absent is set before the
 * tables are read. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "format/config_parts.h"

#define FIELD WEFT_CONFIG_FIELD
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- model types --------------------------------------------------------------------------------------------------------- */

enum { MOE = 1, QK_NORM = 2, QKV_BIAS = 4 }; /* of the plain decoder; MOE also of the Qwen hybrids */

struct weft_config_type {
    const char *type, *architecture;
    weft_family family;
    unsigned traits;
};
static const weft_config_type types[] = {
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", WEFT_FAMILY_QWEN_HYBRID, 0},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", WEFT_FAMILY_QWEN_HYBRID, 0},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", WEFT_FAMILY_QWEN_HYBRID, MOE},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", WEFT_FAMILY_QWEN_HYBRID, MOE},
    {"qwen3_next", "Qwen3NextForCausalLM", WEFT_FAMILY_QWEN_HYBRID, MOE},
    {"llama", "LlamaForCausalLM", WEFT_FAMILY_LLAMA, 0},
    {"mistral", "MistralForCausalLM", WEFT_FAMILY_LLAMA, 0},
    {"qwen2", "Qwen2ForCausalLM", WEFT_FAMILY_LLAMA, QKV_BIAS},
    {"qwen3", "Qwen3ForCausalLM", WEFT_FAMILY_LLAMA, QK_NORM},
    {"qwen3", "Qwen3Model", WEFT_FAMILY_LLAMA, QK_NORM}, /* how embedding models are exported */
    {"qwen3_moe", "Qwen3MoeForCausalLM", WEFT_FAMILY_LLAMA, QK_NORM | MOE},
    {"gemma3", "Gemma3ForConditionalGeneration", WEFT_FAMILY_GEMMA3, 0},
    {"gemma3_text", "Gemma3ForCausalLM", WEFT_FAMILY_GEMMA3, 0},
    {"gemma4", "Gemma4ForConditionalGeneration", WEFT_FAMILY_GEMMA4, 0},
    {"gemma4_text", "Gemma4ForCausalLM", WEFT_FAMILY_GEMMA4, 0},
    {"gemma4_unified", "Gemma4UnifiedForConditionalGeneration", WEFT_FAMILY_GEMMA4, 0},
    {"gemma4_unified_text", "Gemma4UnifiedForCausalLM", WEFT_FAMILY_GEMMA4, 0},
    {"gemma4_assistant", "Gemma4AssistantForCausalLM", WEFT_FAMILY_GEMMA4_ASSISTANT, 0},
    {"gemma4_unified_assistant", "Gemma4UnifiedAssistantForCausalLM", WEFT_FAMILY_GEMMA4_ASSISTANT, 0},
    {"nemotron_h", "NemotronHForCausalLM", WEFT_FAMILY_NEMOTRON_H, 0},
    {"NemotronH_Nano_VL_V2", "NemotronH_Nano_VL_V2", WEFT_FAMILY_NEMOTRON_H, 0}, /* these two: what wraps it with eyes */
    {"NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_Omni_Reasoning_V3", WEFT_FAMILY_NEMOTRON_H, 0},
};

static weft_status find_type(const weft_config_type **t, const char *what, const char *name, weft_error *e) {
    for (size_t i = 0; i < COUNT(types); i++)
        if (strcmp(name, types[i].type) == 0 || strcmp(name, types[i].architecture) == 0) return *t = &types[i], WEFT_OK;
    if (weft_ends_with(name, "_mtp"))
        return weft_fail(e, WEFT_ESUPPORT,
                         "%s '%.200s' is an MTP head by itself, not a model; its tensors belong beside the model's, in a file "
                         "called mtp.safetensors",
                         what, name);
    return weft_fail(e, WEFT_ESUPPORT,
                     "%s '%.200s' is not supported; this version knows Llama, Mistral, Qwen2, Qwen3, Qwen3-Next, Qwen3.5 to 3.8, "
                     "Gemma 3, Gemma 4 and Nemotron-H",
                     what, name);
}

/* model_type decides; the text part's word is the more exact one, except that a drafter names its target's type there. Where there
 * is none, architectures. */
weft_status weft_config_find_type(const weft_config_type **t, weft_json_at outer, weft_json_at text, weft_error *e) {
    const char *name = NULL, *inner = NULL;
    WEFT_TRY(weft_json_text(outer, "model_type", &name, e));
    WEFT_TRY(weft_json_text(text, "model_type", &inner, e));
    if (name || inner) {
        const weft_config_type *in;
        WEFT_TRY(find_type(t, "model_type", name ? name : inner, e));
        WEFT_TRY(find_type(&in, "model_type", inner ? inner : name, e));
        if ((*t)->family == WEFT_FAMILY_GEMMA4_ASSISTANT && in->family == WEFT_FAMILY_GEMMA4) return WEFT_OK;
        if ((*t)->family != in->family)
            return weft_fail(e, WEFT_ESUPPORT, "model_type '%s' with a text part of type '%s' is not supported", name, inner);
        *t = in;
        return WEFT_OK;
    }
    struct json_object *a = NULL;
    WEFT_TRY(weft_json_array(outer, "architectures", 16, &a, e));
    if (!a || json_object_array_length(a) == 0)
        return weft_fail(e, WEFT_EFORMAT, "the key 'model_type' is missing (and 'architectures' too)");
    WEFT_TRY(weft_json_text_value(json_object_array_get_idx(a, 0), outer, "architectures", &name, e));
    return find_type(t, "architecture", name, e);
}

/* ---- what families share ------------------------------------------------------------------------------------------------- */

typedef enum needs { ALL_SAID, HEADS_MAY_MISS, ALL_MAY_MISS } needs;

static weft_status read_sizes(weft_model_config *c, weft_json_at text, needs needs, weft_error *e) {
    bool said = needs != ALL_MAY_MISS, heads = needs == ALL_SAID;
    const weft_config_key keys[] = {
        {"vocab_size", NULL, FIELD(vocab_size), 2, 1 << 24, said},
        {"hidden_size", NULL, FIELD(hidden_size), 8, 1 << 17, true},
        {"num_attention_heads", NULL, FIELD(n_heads), 1, 1024, said},
        {"max_position_embeddings", NULL, FIELD(max_position), 1, 1 << 30, said},
    };
    WEFT_TRY(weft_config_keys(c, text, keys, COUNT(keys), e));
    if (needs == HEADS_MAY_MISS) {
        c->full.n_kv_heads = c->n_heads;
        c->full.head_dim = c->hidden_size / c->n_heads;
    }
    const weft_config_key more[] = {
        {"num_key_value_heads", NULL, FIELD(full.n_kv_heads), 1, 1024, heads},
        {"head_dim", "attention_head_dim", FIELD(full.head_dim), 8, 1024, heads},
    };
    WEFT_TRY(weft_config_keys(c, text, more, COUNT(more), e));
    if (c->full.head_dim < 8 || c->full.head_dim > 1024)
        return weft_fail(e, WEFT_EFORMAT, "'%shidden_size' makes heads of %d; expected 8 to 1024", text.path, c->full.head_dim);
    double eps = 1e-6;
    WEFT_TRY(weft_json_number(text, "rms_norm_eps", 1e-12, 0.1, &eps, e));
    c->norm_eps = (float)eps;
    return WEFT_OK;
}

static weft_status read_layer_count(weft_model_config *c, weft_json_at text, weft_error *e) {
    const weft_config_key key = {"num_hidden_layers", NULL, FIELD(n_layers), 1, WEFT_MAX_LAYERS, true};
    return weft_config_keys(c, text, &key, 1, e);
}

static weft_status read_intermediate(weft_model_config *c, weft_json_at text, weft_error *e) {
    const weft_config_key key = {"intermediate_size", NULL, FIELD(intermediate_size), 8, 1 << 20, true};
    return weft_config_keys(c, text, &key, 1, e);
}

static weft_status read_experts(weft_model_config *c, weft_json_at text, weft_error *e) {
    static const weft_config_key keys[] = {
        {"num_experts_per_tok", "top_k_experts", FIELD(top_k), 1, 64, true},
        {"moe_intermediate_size", NULL, FIELD(moe_intermediate), 8, 1 << 17, true},
    };
    const char *other = weft_json_get(text, "n_routed_experts") ? "n_routed_experts" : "num_local_experts";
    const weft_config_key count = {"num_experts", other, FIELD(n_experts), 1, 4096, true};
    WEFT_TRY(weft_config_keys(c, text, &count, 1, e));
    WEFT_TRY(weft_config_keys(c, text, keys, COUNT(keys), e));
    if (c->top_k > c->n_experts)
        return weft_fail(e, WEFT_EFORMAT, "'%s%s' is %d, more than the %d experts there are", text.path,
                         weft_json_get(text, "num_experts_per_tok") ? "num_experts_per_tok" : "top_k_experts", c->top_k,
                         c->n_experts);
    c->norm_topk = true;
    WEFT_TRY(weft_json_bool(text, "norm_topk_prob", &c->norm_topk, e));
    int step = 1;
    struct json_object *dense = NULL;
    WEFT_TRY(weft_config_int(text, "decoder_sparse_step", 1, WEFT_MAX_LAYERS, &step, e));
    WEFT_TRY(weft_json_array(text, "mlp_only_layers", WEFT_MAX_LAYERS, &dense, e));
    if (step != 1 || (dense && json_object_array_length(dense) > 0))
        return weft_fail(e, WEFT_ESUPPORT,
                         "some layers without experts ('%sdecoder_sparse_step', 'mlp_only_layers') are not supported", text.path);
    return WEFT_OK;
}

static weft_status check_heads(const weft_model_config *c, const weft_heads *h, weft_json_at text, weft_error *e) {
    if (h->head_dim % 2) /* dimensions turn in pairs */
        return weft_fail(e, WEFT_EFORMAT, "'%shead_dim' is %d; expected an even number", text.path, h->head_dim);
    if (c->n_heads % h->n_kv_heads == 0) return WEFT_OK;
    return weft_fail(e, WEFT_EFORMAT, "'%snum_attention_heads' is %d, not a multiple of 'num_key_value_heads' %d", text.path,
                     c->n_heads, h->n_kv_heads);
}

static weft_status check_multiple(weft_json_at text, const char *key, int n, const char *of, int of_n, weft_error *e) {
    if (n % of_n == 0) return WEFT_OK;
    return weft_fail(e, WEFT_EFORMAT, "'%s%s' is %d, not a multiple of '%s' %d", text.path, key, n, of, of_n);
}

static float scale_of(int head_dim) {
    return (float)(1 / sqrt((double)head_dim));
}

/* ---- Qwen hybrids -------------------------------------------------------------------------------------------------------- */

static weft_status read_qwen_hybrid(weft_model_config *c, unsigned traits, weft_json_at text, weft_error *e) {
    static const weft_config_word words[] = {{"linear_attention", WEFT_LAYER_GDN}, {"full_attention", WEFT_LAYER_ATTENTION}};
    static const weft_config_key keys[] = {
        {"linear_num_key_heads", NULL, FIELD(gdn_k_heads), 1, 1024, true},
        {"linear_num_value_heads", NULL, FIELD(gdn_v_heads), 1, 1024, true},
        {"linear_key_head_dim", NULL, FIELD(gdn_k_dim), 4, 1024, true},
        {"linear_value_head_dim", NULL, FIELD(gdn_v_dim), 4, 1024, true},
        {"linear_conv_kernel_dim", NULL, FIELD(conv_kernel), 2, 8, false},
    };
    static const weft_config_key shared = {"shared_expert_intermediate_size", NULL, FIELD(shared_intermediate), 8, 1 << 17, true};
    WEFT_TRY(read_sizes(c, text, ALL_SAID, e));
    WEFT_TRY(read_layer_count(c, text, e));
    WEFT_TRY(check_heads(c, &c->full, text, e));
    c->conv_kernel = 4;
    WEFT_TRY(weft_config_keys(c, text, keys, COUNT(keys), e));
    WEFT_TRY(check_multiple(text, "linear_num_value_heads", c->gdn_v_heads, "linear_num_key_heads", c->gdn_k_heads, e));
    if (traits & MOE) {
        WEFT_TRY(read_experts(c, text, e));
        WEFT_TRY(weft_config_keys(c, text, &shared, 1, e));
    } else {
        WEFT_TRY(read_intermediate(c, text, e));
    }
    bool found;
    WEFT_TRY(weft_config_layers(c, text, "layer_types", words, COUNT(words), &found, e));
    if (!found) {
        int interval = 4;
        WEFT_TRY(weft_config_int(text, "full_attention_interval", 1, WEFT_MAX_LAYERS, &interval, e));
        for (int i = 0; i < c->n_layers; i++) c->layer_kind[i] = (i + 1) % interval == 0 ? WEFT_LAYER_ATTENTION : WEFT_LAYER_GDN;
    }
    WEFT_TRY(weft_config_rope(c, text, NULL, 0, 0.25, &c->full, e));
    c->attention_scale = scale_of(c->full.head_dim);
    c->qk_norm = true;
    WEFT_TRY(weft_config_want_activation(text, "hidden_act", WEFT_SILU, e));
    WEFT_TRY(weft_config_want_activation(text, "output_gate_type", WEFT_SILU, e));
    WEFT_TRY(weft_config_want(text, "attn_output_gate", true, e));
    WEFT_TRY(weft_config_want(text, "attention_bias", false, e));
    WEFT_TRY(weft_config_want(text, "mtp_use_dedicated_embeddings", false, e));
    c->mtp_layers = 1;
    WEFT_TRY(weft_config_int(text, "mtp_num_hidden_layers", 0, WEFT_MAX_LAYERS, &c->mtp_layers, e));
    if (c->mtp_layers > 1)
        return weft_fail(e, WEFT_ESUPPORT, "'%smtp_num_hidden_layers' is %d; only one is supported", text.path, c->mtp_layers);
    return WEFT_OK;
}

/* ---- the plain decoder --------------------------------------------------------------------------------------------------- */

static weft_status read_llama(weft_model_config *c, unsigned traits, weft_json_at text, weft_error *e) {
    static const weft_config_word words[] = {{"full_attention", WEFT_LAYER_ATTENTION}};
    bool bias = false, window = true, found, llama = !(traits & (QKV_BIAS | QK_NORM));
    WEFT_TRY(read_sizes(c, text, HEADS_MAY_MISS, e));
    WEFT_TRY(read_layer_count(c, text, e));
    WEFT_TRY(check_heads(c, &c->full, text, e));
    WEFT_TRY(traits & MOE ? read_experts(c, text, e) : read_intermediate(c, text, e));
    for (int i = 0; i < c->n_layers; i++) c->layer_kind[i] = WEFT_LAYER_ATTENTION;
    WEFT_TRY(weft_config_layers(c, text, "layer_types", words, COUNT(words), &found, e));
    WEFT_TRY(weft_config_rope(c, text, NULL, llama ? 10000 : 0, 1, &c->full, e));
    c->attention_scale = scale_of(c->full.head_dim);
    c->qk_norm = traits & QK_NORM;
    WEFT_TRY(weft_json_bool(text, "attention_bias", &bias, e));
    c->qkv_bias = traits & QKV_BIAS ? true : bias; /* Qwen2 has no such key, and biases on these three */
    c->o_bias = traits & QKV_BIAS ? false : bias;
    if (llama) WEFT_TRY(weft_json_bool(text, "mlp_bias", &c->mlp_bias, e));
    WEFT_TRY(weft_config_want_activation(text, "hidden_act", WEFT_SILU, e));
    WEFT_TRY(weft_config_want(text, "is_causal", true, e));
    WEFT_TRY(weft_config_want(text, "rope_traditional", false, e));
    if (!llama) window = false; /* the Qwen models name a window that only this switch turns on, and not for the first layers */
    WEFT_TRY(weft_json_bool(text, "use_sliding_window", &window, e));
    int first = 0;
    WEFT_TRY(weft_config_int(text, "max_window_layers", 0, 1 << 20, &first, e));
    return window && first < c->n_layers ? weft_config_want_absent(text, "sliding_window", e) : WEFT_OK;
}

/* ---- Gemma --------------------------------------------------------------------------------------------------------------- */

/* Every n-th layer is full. interval 0: the config must say which. */
static weft_status read_gemma_layers(weft_model_config *c, weft_json_at text, int interval, weft_error *e) {
    static const weft_config_word words[] = {{"sliding_attention", WEFT_LAYER_SLIDING}, {"full_attention", WEFT_LAYER_ATTENTION}};
    bool found;
    WEFT_TRY(read_layer_count(c, text, e));
    WEFT_TRY(weft_config_layers(c, text, "layer_types", words, COUNT(words), &found, e));
    if (!found) {
        WEFT_TRY(weft_config_int(text, "_sliding_window_pattern", 1, WEFT_MAX_LAYERS, &interval, e));
        WEFT_TRY(weft_config_int(text, "sliding_window_pattern", 1, WEFT_MAX_LAYERS, &interval, e));
        if (interval == 0) WEFT_TRY(weft_json_need(text, "layer_types", e));
        for (int i = 0; i < c->n_layers; i++)
            c->layer_kind[i] = (i + 1) % interval == 0 ? WEFT_LAYER_ATTENTION : WEFT_LAYER_SLIDING;
    }
    WEFT_TRY(weft_config_int(text, "sliding_window", 1, 1 << 30, &c->window, e));
    if (c->window == 0 && weft_config_count(c, WEFT_LAYER_SLIDING) &&
        !json_object_object_get_ex(text.object, "sliding_window", NULL)) /* null says that there is none */
        return weft_json_need(text, "sliding_window", e);
    for (int i = 0; c->window == 0 && i < c->n_layers; i++) c->layer_kind[i] = WEFT_LAYER_ATTENTION;
    if (weft_config_count(c, WEFT_LAYER_SLIDING) == 0) c->window = 0;
    return WEFT_OK;
}

static weft_status read_gemma_switches(weft_model_config *c, weft_json_at text, weft_error *e) {
    double cap = 0;
    c->qk_norm = true;
    c->activation = WEFT_GELU_TANH;
    WEFT_TRY(weft_config_want_activation(text, weft_json_get(text, "hidden_activation") ? "hidden_activation" : "hidden_act",
                                         WEFT_GELU_TANH, e));
    WEFT_TRY(weft_config_want(text, "attention_bias", false, e));
    WEFT_TRY(weft_config_want_absent(text, "attn_logit_softcapping", e));
    WEFT_TRY(weft_json_number(text, "final_logit_softcapping", 1e-3, 1e6, &cap, e));
    c->logit_cap = (float)cap;
    return WEFT_OK;
}

static weft_status read_gemma3(weft_model_config *c, weft_json_at text, weft_error *e) {
    double scalar = 256;
    c->vocab_size = 262208, c->n_heads = 8, c->full.n_kv_heads = 4, c->full.head_dim = 256, c->max_position = 131072;
    c->window = 4096;
    if (json_object_object_get_ex(text.object, "sliding_window", NULL)) c->window = 0; /* null: none */
    WEFT_TRY(read_sizes(c, text, ALL_MAY_MISS, e));
    WEFT_TRY(check_heads(c, &c->full, text, e));
    WEFT_TRY(read_intermediate(c, text, e));
    WEFT_TRY(read_gemma_layers(c, text, 6, e));
    WEFT_TRY(weft_json_number(text, "query_pre_attn_scalar", 1e-3, 1e6, &scalar, e));
    c->attention_scale = (float)(1 / sqrt(scalar));
    WEFT_TRY(weft_config_rope(c, text, "full_attention", 1e6, 1, &c->full, e));
    c->sliding = c->full; /* rope_scaling is for the full layers */
    c->sliding.rope = (weft_rope){.kind = WEFT_ROPE_DEFAULT,
                                  .theta = 1e4,
                                  .width = c->full.head_dim,
                                  .turning = c->full.head_dim / 2,
                                  .factor = 1,
                                  .attention_factor = 1};
    struct json_object *rope = NULL;
    WEFT_TRY(weft_json_object(text, "rope_parameters", &rope, e));
    if (weft_json_get((weft_json_at){rope, "rope_parameters."}, "sliding_attention"))
        WEFT_TRY(weft_config_rope(c, text, "sliding_attention", 1e4, 1, &c->sliding, e));
    else
        WEFT_TRY(weft_json_number(text, "rope_local_base_freq", 1, 1e12, &c->sliding.rope.theta, e));
    WEFT_TRY(read_gemma_switches(c, text, e));
    return weft_config_want(text, "use_bidirectional_attention", false, e);
}

/* A layer's entry in per_layer_config, which may only hold sizes of heads. */
static weft_status read_layer_heads(weft_heads *h, weft_json_at layers, int i, size_t *entries, weft_error *e) {
    static const char *const keys[] = {"head_dim", "num_key_value_heads"};
    char name[16], path[64];
    snprintf(name, sizeof name, "%d", i);
    snprintf(path, sizeof path, "%s%d.", layers.path, i);
    weft_json_at at = {NULL, path};
    WEFT_TRY(weft_json_object(layers, name, &at.object, e));
    if (!at.object) return WEFT_OK;
    (*entries)++;
    WEFT_TRY(weft_config_int(at, keys[0], 8, 1024, &h->head_dim, e));
    WEFT_TRY(weft_config_int(at, keys[1], 1, 1024, &h->n_kv_heads, e));
    json_object_object_foreach(at.object, key, v) {
        (void)v;
        if (strcmp(key, keys[0]) != 0 && strcmp(key, keys[1]) != 0)
            return weft_fail(e, WEFT_ESUPPORT,
                             "'%s%.80s' is not supported: layers may differ in 'head_dim' and "
                             "'num_key_value_heads' alone",
                             path, key);
    }
    return WEFT_OK;
}

/* The full layers' own sizes: two keys, or an entry for each layer that differs from the others. */
static weft_status read_gemma4_heads(weft_model_config *c, weft_json_at text, weft_error *e) {
    weft_json_at layers = {NULL, "per_layer_config."};
    weft_heads *const kinds[] = {&c->sliding, &c->full};
    bool seen[2] = {false, false};
    size_t entries = 0;
    c->sliding = c->full;
    WEFT_TRY(weft_config_int(text, "global_head_dim", 8, 1024, &c->full.head_dim, e));
    if (c->k_eq_v) WEFT_TRY(weft_config_int(text, "num_global_key_value_heads", 1, 1024, &c->full.n_kv_heads, e));
    WEFT_TRY(weft_json_object(text, "per_layer_config", &layers.object, e));
    const weft_heads said[] = {c->sliding, c->full};
    for (int i = 0; layers.object && i < c->n_layers; i++) {
        bool full = c->layer_kind[i] == WEFT_LAYER_ATTENTION;
        weft_heads h = said[full];
        WEFT_TRY(read_layer_heads(&h, layers, i, &entries, e));
        if (!seen[full]) *kinds[full] = h;
        seen[full] = true;
        if (h.head_dim != kinds[full]->head_dim || h.n_kv_heads != kinds[full]->n_kv_heads)
            return weft_fail(e, WEFT_ESUPPORT, "'%s%d' differs from the %s layers before it, which is not supported", layers.path,
                             i, full ? "full" : "sliding");
    }
    if (layers.object && entries < (size_t)json_object_object_length(layers.object))
        return weft_fail(e, WEFT_EFORMAT, "'per_layer_config' has entries for layers that do not exist");
    WEFT_TRY(check_heads(c, &c->full, text, e));
    return check_heads(c, &c->sliding, text, e);
}

/* Layers with shared keys read those of the last layer of their kind before them all; a drafter's, of the target. */
static weft_status check_shared_layers(const weft_model_config *c, weft_json_at text, weft_error *e) {
    int own = c->n_layers - c->kv_shared_layers;
    if (c->family == WEFT_FAMILY_GEMMA4_ASSISTANT) {
        if (own == 0) return WEFT_OK;
        return weft_fail(e, WEFT_ESUPPORT, "'%snum_kv_shared_layers' is %d; drafters that share all their %d layers are supported",
                         text.path, c->kv_shared_layers, c->n_layers);
    }
    for (int i = own; i < c->n_layers; i++)
        if (own == 0 || !memchr(c->layer_kind, c->layer_kind[i], (size_t)own))
            return weft_fail(e, WEFT_EFORMAT, "'%snum_kv_shared_layers' is %d: no layer before them has keys for layer %d",
                             text.path, c->kv_shared_layers, i);
    return WEFT_OK;
}

/* "vision": images see ahead, text does not. */
static weft_status check_gemma4_direction(weft_json_at text, weft_error *e) {
    static const char key[] = "use_bidirectional_attention";
    if (!json_object_is_type(weft_json_get(text, key), json_type_string)) return weft_config_want(text, key, false, e);
    const char *is = NULL;
    WEFT_TRY(weft_json_text(text, key, &is, e));
    if (strcmp(is, "vision") == 0) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%s%s' is '%.80s', which is not supported; false and 'vision' are", text.path, key, is);
}

static weft_status read_layer_inputs(weft_model_config *c, weft_json_at text, weft_error *e) {
    int vocab = c->vocab_size;
    WEFT_TRY(weft_config_int(text, "hidden_size_per_layer_input", 0, 1 << 14, &c->layer_inputs, e));
    if (c->layer_inputs == 0) return WEFT_OK;
    WEFT_TRY(weft_config_int(text, "vocab_size_per_layer_input", 1, 1 << 24, &vocab, e));
    if (vocab == c->vocab_size) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%svocab_size_per_layer_input' is %d; only 'vocab_size', %d, is supported", text.path,
                     vocab, c->vocab_size);
}

static weft_status read_gemma4(weft_model_config *c, weft_json_at text, weft_error *e) {
    bool moe = false;
    WEFT_TRY(read_sizes(c, text, ALL_SAID, e));
    WEFT_TRY(read_intermediate(c, text, e));
    WEFT_TRY(read_gemma_layers(c, text, 0, e));
    WEFT_TRY(weft_json_bool(text, "attention_k_eq_v", &c->k_eq_v, e));
    WEFT_TRY(read_gemma4_heads(c, text, e));
    WEFT_TRY(weft_config_rope(c, text, "full_attention", 0, 1, &c->full, e));
    WEFT_TRY(weft_config_rope(c, text, "sliding_attention", 0, 1, &c->sliding, e));
    c->attention_scale = 1;
    WEFT_TRY(read_gemma_switches(c, text, e));
    WEFT_TRY(weft_config_int(text, "num_kv_shared_layers", 0, c->n_layers, &c->kv_shared_layers, e));
    WEFT_TRY(weft_json_bool(text, "use_double_wide_mlp", &c->double_wide_mlp, e));
    WEFT_TRY(check_shared_layers(c, text, e));
    WEFT_TRY(read_layer_inputs(c, text, e));
    WEFT_TRY(check_gemma4_direction(text, e));
    WEFT_TRY(weft_json_bool(text, "enable_moe_block", &moe, e));
    return moe ? read_experts(c, text, e) : WEFT_OK;
}

static weft_status read_assistant(weft_model_config *c, weft_json_at outer, weft_json_at text, weft_error *e) {
    static const weft_config_key backbone = {"backbone_hidden_size", NULL, FIELD(backbone_hidden), 8, 1 << 17, true};
    static const weft_config_key centroids[] = {
        {"num_centroids", NULL, FIELD(n_centroids), 1, 1 << 20, true},
        {"centroid_intermediate_top_k", NULL, FIELD(centroid_top), 1, 256, true},
    };
    bool ordered = false;
    WEFT_TRY(read_gemma4(c, text, e));
    WEFT_TRY(weft_config_keys(c, outer, &backbone, 1, e));
    if (c->layer_inputs)
        return weft_fail(e, WEFT_ESUPPORT, "'%shidden_size_per_layer_input' is %d; drafters without such inputs are supported",
                         text.path, c->layer_inputs);
    c->logit_cap = 0; /* drafters do without */
    WEFT_TRY(weft_json_bool(outer, "use_ordered_embeddings", &ordered, e));
    if (!ordered) return WEFT_OK;
    WEFT_TRY(weft_config_keys(c, outer, centroids, COUNT(centroids), e));
    if (c->centroid_top > c->n_centroids)
        return weft_fail(e, WEFT_EFORMAT, "'%scentroid_intermediate_top_k' is %d, more than the %d centroids there are", outer.path,
                         c->centroid_top, c->n_centroids);
    enum { MOST = 16384 }; /* tokens of a centroid */
    if (c->vocab_size / c->n_centroids > MOST)
        return weft_fail(e, WEFT_ESUPPORT, "'%snum_centroids' is %d for %d tokens; at most %d tokens for each are supported",
                         outer.path, c->n_centroids, c->vocab_size, MOST);
    return check_multiple(text, "vocab_size", c->vocab_size, "num_centroids", c->n_centroids, e);
}

/* ---- Nemotron-H ---------------------------------------------------------------------------------------------------------- */

static weft_status read_nemotron_layers(weft_model_config *c, weft_json_at text, weft_error *e) {
    static const weft_config_word words[] = {
        {"mamba", WEFT_LAYER_MAMBA}, {"attention", WEFT_LAYER_ATTENTION},    {"mlp", WEFT_LAYER_MLP},
        {"moe", WEFT_LAYER_MOE},     {"linear_attention", WEFT_LAYER_MAMBA}, {"full_attention", WEFT_LAYER_ATTENTION}};
    static const char letters[] = "M*-E";
    const char *pattern = NULL;
    bool found;
    WEFT_TRY(weft_config_layers(c, text, "layers_block_type", words, COUNT(words), &found, e));
    if (found) return WEFT_OK;
    WEFT_TRY(weft_json_need(text, "hybrid_override_pattern", e));
    WEFT_TRY(weft_json_text(text, "hybrid_override_pattern", &pattern, e));
    size_t n = strlen(pattern);
    if (n == 0 || n > WEFT_MAX_LAYERS)
        return weft_fail(e, WEFT_EFORMAT, "'%shybrid_override_pattern' has %zu letters; expected 1 to %d", text.path, n,
                         WEFT_MAX_LAYERS);
    for (size_t i = 0; i < n; i++) {
        const char *letter = strchr(letters, pattern[i]);
        if (!letter)
            return weft_fail(e, WEFT_ESUPPORT, "'%shybrid_override_pattern' calls layer %zu '%c'; M, *, - and E are supported",
                             text.path, i, pattern[i]);
        c->layer_kind[i] = (uint8_t)words[letter - letters].kind;
    }
    c->n_layers = (int)n;
    return WEFT_OK;
}

/* Absent: from 0 to infinity. */
static weft_status read_time_step(weft_model_config *c, weft_json_at text, weft_error *e) {
    static const char key[] = "time_step_limit";
    struct json_object *pair = NULL;
    c->dt_low = 0, c->dt_high = INFINITY;
    WEFT_TRY(weft_json_array(text, key, 2, &pair, e));
    if (!pair) return WEFT_OK;
    if (json_object_array_length(pair) == 2) {
        WEFT_TRY(weft_json_number_value(json_object_array_get_idx(pair, 0), text, key, 0, 1e6, &c->dt_low, e));
        WEFT_TRY(weft_json_number_value(json_object_array_get_idx(pair, 1), text, key, 0, INFINITY, &c->dt_high, e));
        if (c->dt_low < c->dt_high) return WEFT_OK;
    }
    return weft_fail(e, WEFT_EFORMAT, "'%s%s' is not a range: expected two numbers, the lower one first", text.path, key);
}

/* An attention layer and a mixture are the only MTP head there is. */
static weft_status read_nemotron_mtp(weft_model_config *c, weft_json_at text, weft_error *e) {
    static const char letters[] = "mtp_hybrid_override_pattern", words[] = "mtp_layers_block_type";
    WEFT_TRY(weft_config_int(text, "num_nextn_predict_layers", 0, WEFT_MAX_LAYERS, &c->mtp_layers, e));
    if (c->mtp_layers > 1)
        return weft_fail(e, WEFT_ESUPPORT, "'%snum_nextn_predict_layers' is %d; only one is supported", text.path, c->mtp_layers);
    if (c->mtp_layers == 0) return WEFT_OK;
    const char *pattern = "*E", *layer[2] = {"attention", "moe"};
    struct json_object *list = NULL;
    WEFT_TRY(weft_json_text(text, letters, &pattern, e));
    WEFT_TRY(weft_json_array(text, words, WEFT_MAX_LAYERS, &list, e));
    for (size_t i = 0; list && i < 2 && i < json_object_array_length(list); i++)
        WEFT_TRY(weft_json_text_value(json_object_array_get_idx(list, i), text, words, &layer[i], e));
    bool attends = strcmp(layer[0], "attention") == 0 || strcmp(layer[0], "full_attention") == 0;
    if (strcmp(pattern, "*E") == 0 && attends && strcmp(layer[1], "moe") == 0 && (!list || json_object_array_length(list) == 2))
        return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%s%s' is not supported; an attention layer and a mixture of experts are", text.path,
                     list ? words : letters);
}

static weft_status read_nemotron_experts(weft_model_config *c, weft_json_at text, weft_error *e) {
    static const weft_config_key keys[] = {
        {"n_group", NULL, FIELD(router_groups), 1, 64, false},
        {"topk_group", NULL, FIELD(router_top_groups), 1, 4096, false},
        {"moe_latent_size", NULL, FIELD(moe_latent), 8, 1 << 17, false},
    };
    static const weft_config_key shared = {
        "moe_shared_expert_intermediate_size", NULL, FIELD(shared_intermediate), 8, 1 << 17, true};
    int n_shared = 1;
    double scale = 1;
    WEFT_TRY(read_experts(c, text, e));
    WEFT_TRY(weft_config_keys(c, text, keys, COUNT(keys), e));
    WEFT_TRY(check_multiple(text, "n_routed_experts", c->n_experts, "n_group", c->router_groups, e));
    if (c->router_top_groups > c->router_groups || c->top_k > c->n_experts / c->router_groups * c->router_top_groups)
        return weft_fail(e, WEFT_EFORMAT, "'%stopk_group' is %d: of %d groups of experts, that leaves too few to choose %d from",
                         text.path, c->router_top_groups, c->router_groups, c->top_k);
    WEFT_TRY(weft_config_int(text, "n_shared_experts", 0, 8, &n_shared, e));
    if (n_shared > 0) WEFT_TRY(weft_config_keys(c, text, &shared, 1, e));
    c->shared_intermediate *= n_shared;
    WEFT_TRY(weft_json_number(text, "routed_scaling_factor", 1e-6, 1e6, &scale, e));
    c->routed_scale = (float)scale;
    c->sigmoid_router = true;
    return WEFT_OK;
}

static weft_status read_mamba(weft_model_config *c, weft_json_at text, weft_error *e) {
    static const weft_config_key keys[] = {
        {"mamba_num_heads", NULL, FIELD(mamba_heads), 1, 4096, true},
        {"mamba_head_dim", NULL, FIELD(mamba_head_dim), 4, 1024, true},
        {"n_groups", NULL, FIELD(mamba_groups), 1, 1024, true},
        {"ssm_state_size", NULL, FIELD(mamba_state), 4, 1024, true},
        {"conv_kernel", NULL, FIELD(conv_kernel), 2, 8, false},
    };
    c->conv_kernel = 4;
    WEFT_TRY(weft_config_keys(c, text, keys, COUNT(keys), e));
    WEFT_TRY(check_multiple(text, "mamba_num_heads", c->mamba_heads, "n_groups", c->mamba_groups, e));
    WEFT_TRY(weft_config_want_activation(text, "mamba_hidden_act", WEFT_SILU, e));
    WEFT_TRY(weft_config_want(text, "mamba_proj_bias", false, e));
    c->mamba_conv_bias = true;
    WEFT_TRY(weft_json_bool(text, "use_conv_bias", &c->mamba_conv_bias, e));
    return read_time_step(c, text, e);
}

static weft_status read_nemotron(weft_model_config *c, weft_json_at text, weft_error *e) {
    double eps = 1e-5;
    if (weft_json_get(text, "block_configs"))
        return weft_fail(e, WEFT_ESUPPORT, "'%sblock_configs': models whose layers differ in size (\"Puzzle\") are not supported",
                         text.path);
    WEFT_TRY(read_sizes(c, text, ALL_SAID, e));
    WEFT_TRY(check_heads(c, &c->full, text, e));
    WEFT_TRY(read_nemotron_layers(c, text, e));
    WEFT_TRY(weft_json_number(text, weft_json_get(text, "norm_eps") ? "norm_eps" : "layer_norm_epsilon", 1e-12, 0.1, &eps, e));
    c->norm_eps = (float)eps;
    c->full.rope = (weft_rope){.kind = WEFT_ROPE_NONE, .factor = 1, .attention_factor = 1};
    c->attention_scale = scale_of(c->full.head_dim);
    c->activation = WEFT_RELU2;
    WEFT_TRY(weft_config_want_activation(text, "mlp_hidden_act", WEFT_RELU2, e));
    WEFT_TRY(weft_config_want(text, "attention_bias", false, e));
    WEFT_TRY(weft_config_want(text, "mlp_bias", false, e));
    WEFT_TRY(weft_config_want(text, "use_bias", false, e));
    WEFT_TRY(weft_config_want_absent(text, "sliding_window", e));
    WEFT_TRY(read_nemotron_mtp(c, text, e));
    if (weft_config_count(c, WEFT_LAYER_MAMBA) > 0) WEFT_TRY(read_mamba(c, text, e));
    if (weft_config_count(c, WEFT_LAYER_MLP) > 0) WEFT_TRY(read_intermediate(c, text, e));
    return weft_config_count(c, WEFT_LAYER_MOE) > 0 || c->mtp_layers > 0 ? read_nemotron_experts(c, text, e) : WEFT_OK;
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

weft_status weft_config_family(weft_model_config *c, const weft_config_type *t, weft_json_at outer, weft_json_at text,
                               weft_error *e) {
    c->family = t->family;
    c->type = t->type;
    c->router_groups = c->router_top_groups = 1;
    c->routed_scale = 1;
    switch (t->family) {
    case WEFT_FAMILY_QWEN_HYBRID: WEFT_TRY(read_qwen_hybrid(c, t->traits, text, e)); break;
    case WEFT_FAMILY_LLAMA: WEFT_TRY(read_llama(c, t->traits, text, e)); break;
    case WEFT_FAMILY_GEMMA3: return read_gemma3(c, text, e);
    case WEFT_FAMILY_GEMMA4: return read_gemma4(c, text, e);
    case WEFT_FAMILY_GEMMA4_ASSISTANT: return read_assistant(c, outer, text, e);
    case WEFT_FAMILY_NEMOTRON_H: WEFT_TRY(read_nemotron(c, text, e)); break;
    }
    c->sliding = c->full;
    return WEFT_OK;
}

/* network.c: see network.h. */
#include "forge/network.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

enum { HF = WEFT_LAYOUT_HF, MLX = WEFT_LAYOUT_MLX, GGUF = WEFT_LAYOUT_GGUF, ALL = HF | MLX | GGUF };

typedef enum size {
    NONE,
    ONE,
    HIDDEN,
    TWO_HIDDEN,
    VOCAB,
    INNER,
    QUERIES,
    QUERY_ROWS, /* with their gates, where there are any */
    KEYS,
    HEAD_DIM,
    ANGLES,
    LAYER_INPUT,
    LAYER_INPUTS, /* of all layers */
    CHANNELS,     /* q, k and v of a DeltaNet */
    VALUES,
    V_HEADS,
    V_DIM,
    TAPS,
    M_ROWS, /* z, x, B, C and dt of a Mamba-2 block */
    M_CHANNELS,
    M_INNER,
    M_HEADS,
    M_GROUPS,
    M_GROUP_DIM,
    EXPERTS,
    EXPERT_INNER,
    TWO_EXPERT_INNER,
    SHARED_INNER,
    SIZES
} size;

/* What a row may depend on. */
enum { BIAS = 1, HEAD_NORMS = 2, OWN_KEYS = 4, OWN_VALUES = 8, SHARED = 16 };

typedef struct row {
    int layouts; /* that have it */
    weft_role role;
    const char *name, *gguf; /* in HF and MLX; in GGUF */
    size experts, n, k;
    unsigned when; /* all of these hold */
} row;

/* ---- the tables ---------------------------------------------------------------------------------------------------------- */

static const row attention[] = {
    {ALL, WEFT_ROLE_LINEAR, "q_proj", "attn_q", NONE, QUERY_ROWS, HIDDEN, 0},
    {ALL, WEFT_ROLE_BIAS, "q_proj.bias", "attn_q.bias", NONE, NONE, QUERY_ROWS, BIAS},
    {ALL, WEFT_ROLE_LINEAR, "k_proj", "attn_k", NONE, KEYS, HIDDEN, OWN_KEYS},
    {ALL, WEFT_ROLE_BIAS, "k_proj.bias", "attn_k.bias", NONE, NONE, KEYS, BIAS},
    {ALL, WEFT_ROLE_LINEAR, "v_proj", "attn_v", NONE, KEYS, HIDDEN, OWN_VALUES},
    {ALL, WEFT_ROLE_BIAS, "v_proj.bias", "attn_v.bias", NONE, NONE, KEYS, BIAS},
    {ALL, WEFT_ROLE_HEAD_GAIN, "q_norm.weight", "attn_q_norm.weight", NONE, NONE, HEAD_DIM, HEAD_NORMS},
    {ALL, WEFT_ROLE_HEAD_GAIN, "k_norm.weight", "attn_k_norm.weight", NONE, NONE, HEAD_DIM, HEAD_NORMS | OWN_KEYS},
    {ALL, WEFT_ROLE_LINEAR, "o_proj", "attn_output", NONE, HIDDEN, QUERIES, 0},
    {0},
};

static const row delta_net[] = {
    {ALL, WEFT_ROLE_LINEAR, "in_proj_qkv", "attn_qkv", NONE, CHANNELS, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "in_proj_z", "attn_gate", NONE, VALUES, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "in_proj_b", "ssm_beta", NONE, V_HEADS, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "in_proj_a", "ssm_alpha", NONE, V_HEADS, HIDDEN, 0},
    {ALL, WEFT_ROLE_CONV, "conv1d.weight", "ssm_conv1d.weight", NONE, CHANNELS, TAPS, 0},
    {ALL, WEFT_ROLE_DECAY, "A_log", "ssm_a", NONE, NONE, V_HEADS, 0},
    {ALL, WEFT_ROLE_STEP, "dt_bias", "ssm_dt.bias", NONE, NONE, V_HEADS, 0},
    {ALL, WEFT_ROLE_STATE_GAIN, "norm.weight", "ssm_norm.weight", NONE, NONE, V_DIM, 0},
    {ALL, WEFT_ROLE_LINEAR, "out_proj", "ssm_out", NONE, HIDDEN, VALUES, 0},
    {0},
};

static const row mamba[] = {
    {ALL, WEFT_ROLE_LINEAR, "in_proj", "ssm_in", NONE, M_ROWS, HIDDEN, 0},
    {ALL, WEFT_ROLE_CONV, "conv1d.weight", "ssm_conv1d.weight", NONE, M_CHANNELS, TAPS, 0},
    {ALL, WEFT_ROLE_BIAS, "conv1d.bias", "ssm_conv1d.bias", NONE, NONE, M_CHANNELS, 0},
    {HF | MLX, WEFT_ROLE_DECAY, "A_log", NULL, NONE, NONE, M_HEADS, 0},
    {GGUF, WEFT_ROLE_DECAY, "A_log", "ssm_a", NONE, M_HEADS, ONE, 0},
    {HF | MLX, WEFT_ROLE_STATE_GAIN, "D", NULL, NONE, NONE, M_HEADS, 0},
    {GGUF, WEFT_ROLE_STATE_GAIN, "D", "ssm_d", NONE, M_HEADS, ONE, 0},
    {ALL, WEFT_ROLE_STEP, "dt_bias", "ssm_dt.bias", NONE, NONE, M_HEADS, 0},
    {HF | MLX, WEFT_ROLE_STATE_GAIN, "norm.weight", NULL, NONE, NONE, M_INNER, 0},
    {GGUF, WEFT_ROLE_STATE_GAIN, "norm.weight", "ssm_norm.weight", NONE, M_GROUPS, M_GROUP_DIM, 0},
    {ALL, WEFT_ROLE_LINEAR, "out_proj", "ssm_out", NONE, HIDDEN, M_INNER, 0},
    {0},
};

static const row dense[] = {
    {ALL, WEFT_ROLE_LINEAR, "gate_proj", "ffn_gate", NONE, INNER, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "up_proj", "ffn_up", NONE, INNER, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "down_proj", "ffn_down", NONE, HIDDEN, INNER, 0},
    {0},
};

static const row qwen_mixture[] = {
    {ALL, WEFT_ROLE_ROUTER, "gate", "ffn_gate_inp", NONE, EXPERTS, HIDDEN, 0},
    {HF, WEFT_ROLE_LINEAR, "experts.gate_up_proj", NULL, EXPERTS, TWO_EXPERT_INNER, HIDDEN, 0},
    {HF, WEFT_ROLE_LINEAR, "experts.down_proj", NULL, EXPERTS, HIDDEN, EXPERT_INNER, 0},
    {MLX | GGUF, WEFT_ROLE_LINEAR, "switch_mlp.gate_proj", "ffn_gate_exps", EXPERTS, EXPERT_INNER, HIDDEN, 0},
    {MLX | GGUF, WEFT_ROLE_LINEAR, "switch_mlp.up_proj", "ffn_up_exps", EXPERTS, EXPERT_INNER, HIDDEN, 0},
    {MLX | GGUF, WEFT_ROLE_LINEAR, "switch_mlp.down_proj", "ffn_down_exps", EXPERTS, HIDDEN, EXPERT_INNER, 0},
    {HF | MLX, WEFT_ROLE_ROUTER, "shared_expert_gate", NULL, NONE, ONE, HIDDEN, SHARED},
    {GGUF, WEFT_ROLE_ROUTER, "shared_expert_gate", "ffn_gate_inp_shexp", NONE, NONE, HIDDEN, SHARED},
    {ALL, WEFT_ROLE_LINEAR, "shared_expert.gate_proj", "ffn_gate_shexp", NONE, SHARED_INNER, HIDDEN, SHARED},
    {ALL, WEFT_ROLE_LINEAR, "shared_expert.up_proj", "ffn_up_shexp", NONE, SHARED_INNER, HIDDEN, SHARED},
    {ALL, WEFT_ROLE_LINEAR, "shared_expert.down_proj", "ffn_down_shexp", NONE, HIDDEN, SHARED_INNER, SHARED},
    {0},
};

static const row gemma_mixture[] = {
    {ALL, WEFT_ROLE_GAIN, "post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", NONE, NONE, HIDDEN, 0},
    {ALL, WEFT_ROLE_ROUTER_SCALE, "router.scale", "ffn_gate_inp.scale", NONE, NONE, HIDDEN, 0},
    {ALL, WEFT_ROLE_ROUTER, "router.proj", "ffn_gate_inp", NONE, EXPERTS, HIDDEN, 0},
    {ALL, WEFT_ROLE_STATE_GAIN, "router.per_expert_scale", "ffn_down_exps.scale", NONE, NONE, EXPERTS, 0},
    {ALL, WEFT_ROLE_GAIN, "pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", NONE, NONE, HIDDEN, 0},
    {HF | GGUF, WEFT_ROLE_LINEAR, "experts.gate_up_proj", "ffn_gate_up_exps", EXPERTS, TWO_EXPERT_INNER, HIDDEN, 0},
    {HF | GGUF, WEFT_ROLE_LINEAR, "experts.down_proj", "ffn_down_exps", EXPERTS, HIDDEN, EXPERT_INNER, 0},
    {MLX, WEFT_ROLE_LINEAR, "experts.switch_glu.gate_proj", NULL, EXPERTS, EXPERT_INNER, HIDDEN, 0},
    {MLX, WEFT_ROLE_LINEAR, "experts.switch_glu.up_proj", NULL, EXPERTS, EXPERT_INNER, HIDDEN, 0},
    {MLX, WEFT_ROLE_LINEAR, "experts.switch_glu.down_proj", NULL, EXPERTS, HIDDEN, EXPERT_INNER, 0},
    {ALL, WEFT_ROLE_GAIN, "post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", NONE, NONE, HIDDEN, 0},
    {0},
};

static const row nemotron_mixture[] = {
    {ALL, WEFT_ROLE_ROUTER, "gate", "ffn_gate_inp", NONE, EXPERTS, HIDDEN, 0},
    {ALL, WEFT_ROLE_BIAS, "gate.e_score_correction_bias", "exp_probs_b.bias", NONE, NONE, EXPERTS, 0},
    {HF | GGUF, WEFT_ROLE_LINEAR, "experts.up_proj", "ffn_up_exps", EXPERTS, EXPERT_INNER, HIDDEN, 0},
    {HF | GGUF, WEFT_ROLE_LINEAR, "experts.down_proj", "ffn_down_exps", EXPERTS, HIDDEN, EXPERT_INNER, 0},
    {MLX, WEFT_ROLE_LINEAR, "switch_mlp.fc1", NULL, EXPERTS, EXPERT_INNER, HIDDEN, 0},
    {MLX, WEFT_ROLE_LINEAR, "switch_mlp.fc2", NULL, EXPERTS, HIDDEN, EXPERT_INNER, 0},
    {ALL, WEFT_ROLE_LINEAR, "shared_experts.up_proj", "ffn_up_shexp", NONE, SHARED_INNER, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "shared_experts.down_proj", "ffn_down_shexp", NONE, HIDDEN, SHARED_INNER, 0},
    {0},
};

/* A layer's norms: before its mixer; between the mixer and the feed-forward block (llama.cpp calls Qwen3.5's as it calls Gemma's
 * norm of the mixer's output); Gemma's around that block. */
static const row in_norm[] = {{ALL, WEFT_ROLE_GAIN, "input_layernorm.weight", "attn_norm.weight", NONE, NONE, HIDDEN, 0}, {0}};
static const row only_norm[] = {{ALL, WEFT_ROLE_GAIN, "norm.weight", "attn_norm.weight", NONE, NONE, HIDDEN, 0}, {0}};
static const row mid_norm[] = {{ALL, WEFT_ROLE_GAIN, "post_attention_layernorm.weight", "ffn_norm.weight", NONE, NONE, HIDDEN, 0},
                               {0}};
static const row post_norm[] = {
    {ALL, WEFT_ROLE_GAIN, "post_attention_layernorm.weight", "post_attention_norm.weight", NONE, NONE, HIDDEN, 0}, {0}};
static const row feed_forward_norms[] = {
    {ALL, WEFT_ROLE_GAIN, "pre_feedforward_layernorm.weight", "ffn_norm.weight", NONE, NONE, HIDDEN, 0},
    {ALL, WEFT_ROLE_GAIN, "post_feedforward_layernorm.weight", "post_ffw_norm.weight", NONE, NONE, HIDDEN, 0},
    {0},
};

/* Gemma 4: what the layers' own embeddings need once, and in a layer. */
static const row inputs[] = {
    {ALL, WEFT_ROLE_TABLE, "embed_tokens_per_layer", "per_layer_token_embd", NONE, VOCAB, LAYER_INPUTS, 0},
    {ALL, WEFT_ROLE_LINEAR, "per_layer_model_projection", "per_layer_model_proj", NONE, LAYER_INPUTS, HIDDEN, 0},
    {ALL, WEFT_ROLE_GAIN, "per_layer_projection_norm.weight", "per_layer_proj_norm.weight", NONE, NONE, LAYER_INPUT, 0},
    {0},
};
static const row layer_input[] = {
    {ALL, WEFT_ROLE_LINEAR, "per_layer_input_gate", "inp_gate", NONE, LAYER_INPUT, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "per_layer_projection", "proj", NONE, HIDDEN, LAYER_INPUT, 0},
    {ALL, WEFT_ROLE_GAIN, "post_per_layer_input_norm.weight", "post_norm.weight", NONE, NONE, HIDDEN, 0},
    {0},
};
static const row scalar[] = {{ALL, WEFT_ROLE_STATE_GAIN, "layer_scalar", "layer_output_scale.weight", NONE, NONE, ONE, 0}, {0}};
static const row frequencies[] = {{GGUF, WEFT_ROLE_FREQUENCY, "rope_freqs", "rope_freqs.weight", NONE, NONE, ANGLES, 0}, {0}};

static const row front[] = {{ALL, WEFT_ROLE_EMBED, "embed_tokens", "token_embd", NONE, VOCAB, HIDDEN, 0}, {0}};
static const row back[] = {{ALL, WEFT_ROLE_GAIN, "norm.weight", "output_norm.weight", NONE, NONE, HIDDEN, 0}, {0}};
static const row nemotron_front[] = {{ALL, WEFT_ROLE_EMBED, "embeddings", "token_embd", NONE, VOCAB, HIDDEN, 0}, {0}};
static const row nemotron_back[] = {{ALL, WEFT_ROLE_GAIN, "norm_f.weight", "output_norm.weight", NONE, NONE, HIDDEN, 0}, {0}};
static const row head[] = {{ALL, WEFT_ROLE_HEAD, "lm_head", "output", NONE, VOCAB, HIDDEN, 0}, {0}};

/* Around one attention layer, whose names begin with "mtp.layers.0.". */
static const row mtp[] = {
    {ALL, WEFT_ROLE_GAIN, "pre_fc_norm_embedding.weight", NULL, NONE, NONE, HIDDEN, 0},
    {ALL, WEFT_ROLE_GAIN, "pre_fc_norm_hidden.weight", NULL, NONE, NONE, HIDDEN, 0},
    {ALL, WEFT_ROLE_LINEAR, "fc", NULL, NONE, HIDDEN, TWO_HIDDEN, 0},
    {ALL, WEFT_ROLE_GAIN, "norm.weight", NULL, NONE, NONE, HIDDEN, 0},
    {0},
};

/* ---- a layer's sizes ----------------------------------------------------------------------------------------------------- */

typedef struct builder {
    weft_parts *parts;
    weft_arena *arena;
    const weft_shape *shape;
    weft_layout layout;
    int layers;
    int64_t size[SIZES];
    unsigned holds;
    bool full; /* memory ran out */
} builder;

static bool is_gemma(const weft_shape *s) {
    return s->family == WEFT_SHAPE_GEMMA3 || s->family == WEFT_SHAPE_GEMMA4;
}

/* Of a layer with this letter; `shares`: it reads another layer's keys. */
static void measure(builder *b, char letter, bool shares) {
    const weft_shape *s = b->shape;
    bool gate = s->family == WEFT_SHAPE_QWEN3_5;
    int64_t head_dim = weft_shape_head_dim(s, letter), queries = s->n_heads * head_dim;
    int64_t values = (int64_t)s->gdn_v_heads * s->gdn_dim;
    int64_t inner = (int64_t)s->mamba_heads * s->mamba_head_dim;
    int64_t channels = inner + 2 * (int64_t)s->mamba_groups * s->mamba_state;
    const int64_t sizes[SIZES] = {
        [ONE] = 1,
        [HIDDEN] = s->hidden,
        [TWO_HIDDEN] = 2 * (int64_t)s->hidden,
        [VOCAB] = s->vocab,
        [INNER] = (shares ? 2 : 1) * (int64_t)s->intermediate,
        [QUERIES] = queries,
        [QUERY_ROWS] = gate ? 2 * queries : queries,
        [KEYS] = weft_shape_kv_heads(s, letter) * head_dim,
        [HEAD_DIM] = head_dim,
        [ANGLES] = head_dim / 2,
        [LAYER_INPUT] = s->layer_inputs,
        [LAYER_INPUTS] = (int64_t)b->layers * s->layer_inputs,
        [CHANNELS] = 2 * (int64_t)s->gdn_k_heads * s->gdn_dim + values,
        [VALUES] = values,
        [V_HEADS] = s->gdn_v_heads,
        [V_DIM] = s->gdn_dim,
        [TAPS] = s->taps,
        [M_ROWS] = inner + channels + s->mamba_heads,
        [M_CHANNELS] = channels,
        [M_INNER] = inner,
        [M_HEADS] = s->mamba_heads,
        [M_GROUPS] = s->mamba_groups,
        [M_GROUP_DIM] = s->mamba_groups ? inner / s->mamba_groups : 0,
        [EXPERTS] = s->n_experts,
        [EXPERT_INNER] = s->moe_intermediate,
        [TWO_EXPERT_INNER] = 2 * (int64_t)s->moe_intermediate,
        [SHARED_INNER] = s->shared_intermediate,
    };
    memcpy(b->size, sizes, sizeof sizes);
    b->holds = (s->family == WEFT_SHAPE_QWEN2 ? BIAS : 0) | (s->shared_intermediate ? SHARED : 0) |
               (gate || s->family == WEFT_SHAPE_QWEN3 || is_gemma(s) ? HEAD_NORMS : 0) | (shares ? 0 : OWN_KEYS) |
               (shares || (s->k_is_v && letter == '*') ? 0 : OWN_VALUES);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

/* Where tensors belong: the beginning of their stored names, and of those that all layouts share. */
typedef struct place {
    char stored[64], name[32];
} place;

/* inner: between the place and the row's name; llama.cpp has nothing there. */
static void add(builder *b, const place *at, const char *inner, const row *rows) {
    bool gguf = b->layout == WEFT_LAYOUT_GGUF;
    for (const row *r = rows; r->layouts && !b->full; r++) {
        if (!(r->layouts & (int)b->layout) || (r->when & ~b->holds)) continue;
        char path[160], name[128];
        int n = snprintf(path, sizeof path, "%s%s%s", at->stored, gguf ? "" : inner, gguf ? r->gguf : r->name);
        int m = snprintf(name, sizeof name, "%s%s%s", at->name, inner, r->name);
        weft_part p = {.path = weft_arena_str(b->arena, path, (size_t)n),
                       .name = weft_arena_str(b->arena, name, (size_t)m),
                       .role = r->role,
                       .experts = b->size[r->experts],
                       .n = b->size[r->n],
                       .k = b->size[r->k]};
        b->full = !p.path || !p.name || !weft_vec_push(b->parts, p);
    }
}

static void add_nemotron_layer(builder *b, const place *at, char letter) {
    add(b, at, "", only_norm);
    add(b, at, "mixer.", letter == 'M' ? mamba : letter == 'E' ? nemotron_mixture : attention);
}

static void add_layer(builder *b, const place *at, char letter, bool shares) {
    const weft_shape *s = b->shape;
    measure(b, letter, shares);
    if (s->family == WEFT_SHAPE_NEMOTRON_H) {
        add_nemotron_layer(b, at, letter);
        return;
    }
    add(b, at, "", in_norm);
    if (letter == 'L')
        add(b, at, "linear_attn.", delta_net);
    else
        add(b, at, "self_attn.", attention);
    add(b, at, "", s->family == WEFT_SHAPE_QWEN3_5 || is_gemma(s) ? post_norm : mid_norm);
    if (is_gemma(s)) add(b, at, "", feed_forward_norms);
    if (s->intermediate) add(b, at, "mlp.", dense);
    if (s->n_experts && is_gemma(s))
        add(b, at, "", gemma_mixture);
    else if (s->n_experts)
        add(b, at, "mlp.", qwen_mixture);
    if (s->layer_inputs) add(b, at, "", layer_input);
    if (s->family == WEFT_SHAPE_GEMMA4) add(b, at, "", scalar);
}

/* Before the names of the trunk. */
static const char *trunk_of(const weft_shape *s, weft_layout layout) {
    if (layout == WEFT_LAYOUT_GGUF) return "";
    switch (s->family) {
    case WEFT_SHAPE_QWEN3_5:
    case WEFT_SHAPE_GEMMA4: return layout == WEFT_LAYOUT_HF ? "model.language_model." : "language_model.model.";
    case WEFT_SHAPE_NEMOTRON_H: return "backbone.";
    default: return "model.";
    }
}

/* The inputs of Gemma 4's layers; its frequencies where a full layer reads them. */
static void add_gemma4(builder *b, const place *trunk) {
    if (b->shape->layer_inputs) add(b, trunk, "", inputs);
    measure(b, '*', false);
    bool full = false;
    for (int i = 0; i < b->layers; i++) full = full || weft_shape_layer(b->shape, i) == '*';
    if (full) add(b, trunk, "", frequencies);
}

weft_status weft_network_parts(weft_parts *parts, weft_arena *arena, const weft_shape *shape, int layers, weft_layout layout,
                               weft_error *e) {
    builder b = {.parts = parts, .arena = arena, .shape = shape, .layout = layout, .layers = layers};
    bool nemotron = shape->family == WEFT_SHAPE_NEMOTRON_H;
    place trunk = {"", ""}, outside = {"", ""};
    snprintf(trunk.stored, sizeof trunk.stored, "%s", trunk_of(shape, layout));
    measure(&b, '*', false);
    add(&b, &trunk, "", nemotron ? nemotron_front : front);
    if (shape->family == WEFT_SHAPE_GEMMA4) add_gemma4(&b, &trunk);
    for (int i = 0; i < layers; i++) {
        place at;
        snprintf(at.stored, sizeof at.stored, layout == WEFT_LAYOUT_GGUF ? "%.40sblk.%d." : "%.40slayers.%d.", trunk.stored, i);
        snprintf(at.name, sizeof at.name, "layers.%d.", i);
        add_layer(&b, &at, weft_shape_layer(shape, i), i >= layers - weft_shape_sharing(shape, layers));
    }
    add(&b, &trunk, "", nemotron ? nemotron_back : back);
    if (!shape->tied) {
        if (layout == WEFT_LAYOUT_MLX && shape->family == WEFT_SHAPE_QWEN3_5)
            snprintf(outside.stored, sizeof outside.stored, "language_model.");
        add(&b, &outside, "", head);
    }
    if (shape->family == WEFT_SHAPE_QWEN3_5 && layout != WEFT_LAYOUT_GGUF) {
        add(&b, &(place){"mtp.", "mtp."}, "", mtp);
        add_layer(&b, &(place){"mtp.layers.0.", "mtp.layers.0."}, '*', false);
    }
    return b.full ? weft_fail_oom(e, "listing a network's tensors") : WEFT_OK;
}

const char *weft_part_suffix(const weft_part *part, weft_layout layout) {
    return part->role > WEFT_ROLE_ROUTER || (layout == WEFT_LAYOUT_HF && part->experts > 0) ? "" : ".weight";
}

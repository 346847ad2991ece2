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
    QUERIES_AND_GATES,
    KEYS,
    HEAD_DIM,
    CHANNELS, /* q, k and v of a DeltaNet */
    VALUES,
    V_HEADS,
    V_DIM,
    TAPS,
    EXPERTS,
    EXPERT_INNER,
    TWO_EXPERT_INNER,
    SHARED_INNER,
    SIZES
} size;

static void measure(const weft_shape *s, int64_t to[SIZES]) {
    int64_t queries = (int64_t)s->n_heads * s->head_dim, values = (int64_t)s->gdn_v_heads * s->gdn_dim;
    const int64_t sizes[SIZES] = {
        [ONE] = 1,
        [HIDDEN] = s->hidden,
        [TWO_HIDDEN] = 2 * (int64_t)s->hidden,
        [VOCAB] = s->vocab,
        [INNER] = s->intermediate,
        [QUERIES] = queries,
        [QUERIES_AND_GATES] = 2 * queries,
        [KEYS] = (int64_t)s->n_kv_heads * s->head_dim,
        [HEAD_DIM] = s->head_dim,
        [CHANNELS] = 2 * (int64_t)s->gdn_k_heads * s->gdn_dim + values,
        [VALUES] = values,
        [V_HEADS] = s->gdn_v_heads,
        [V_DIM] = s->gdn_dim,
        [TAPS] = s->gdn_conv,
        [EXPERTS] = s->n_experts,
        [EXPERT_INNER] = s->moe_intermediate,
        [TWO_EXPERT_INNER] = 2 * (int64_t)s->moe_intermediate,
        [SHARED_INNER] = s->shared_intermediate,
    };
    memcpy(to, sizes, sizeof sizes);
}

/* ---- the tables ---------------------------------------------------------------------------------------------------------- */

typedef struct row {
    int layouts; /* that have it */
    weft_role role;
    const char *name, *gguf; /* in HF and MLX; in GGUF */
    size experts, n, k;
} row;

static const row attention[] = {
    {ALL, WEFT_ROLE_GAIN, "input_layernorm", "attn_norm", NONE, NONE, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "self_attn.q_proj", "attn_q", NONE, QUERIES_AND_GATES, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "self_attn.k_proj", "attn_k", NONE, KEYS, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "self_attn.v_proj", "attn_v", NONE, KEYS, HIDDEN},
    {ALL, WEFT_ROLE_GAIN, "self_attn.q_norm", "attn_q_norm", NONE, NONE, HEAD_DIM},
    {ALL, WEFT_ROLE_GAIN, "self_attn.k_norm", "attn_k_norm", NONE, NONE, HEAD_DIM},
    {ALL, WEFT_ROLE_LINEAR, "self_attn.o_proj", "attn_output", NONE, HIDDEN, QUERIES},
    {0},
};

static const row delta_net[] = {
    {ALL, WEFT_ROLE_GAIN, "input_layernorm", "attn_norm", NONE, NONE, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "linear_attn.in_proj_qkv", "attn_qkv", NONE, CHANNELS, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "linear_attn.in_proj_z", "attn_gate", NONE, VALUES, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "linear_attn.in_proj_b", "ssm_beta", NONE, V_HEADS, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "linear_attn.in_proj_a", "ssm_alpha", NONE, V_HEADS, HIDDEN},
    {ALL, WEFT_ROLE_CONV, "linear_attn.conv1d", "ssm_conv1d", NONE, CHANNELS, TAPS},
    {ALL, WEFT_ROLE_DECAY, "linear_attn.A_log", "ssm_a", NONE, NONE, V_HEADS},
    {ALL, WEFT_ROLE_STEP, "linear_attn.dt_bias", "ssm_dt.bias", NONE, NONE, V_HEADS},
    {ALL, WEFT_ROLE_GDN_GAIN, "linear_attn.norm", "ssm_norm", NONE, NONE, V_DIM},
    {ALL, WEFT_ROLE_LINEAR, "linear_attn.out_proj", "ssm_out", NONE, HIDDEN, VALUES},
    {0},
};

static const row dense[] = {
    {ALL, WEFT_ROLE_GAIN, "post_attention_layernorm", "post_attention_norm", NONE, NONE, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "mlp.gate_proj", "ffn_gate", NONE, INNER, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "mlp.up_proj", "ffn_up", NONE, INNER, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "mlp.down_proj", "ffn_down", NONE, HIDDEN, INNER},
    {0},
};

static const row mixture[] = {
    {ALL, WEFT_ROLE_GAIN, "post_attention_layernorm", "post_attention_norm", NONE, NONE, HIDDEN},
    {ALL, WEFT_ROLE_ROUTER, "mlp.gate", "ffn_gate_inp", NONE, EXPERTS, HIDDEN},
    {HF, WEFT_ROLE_LINEAR, "mlp.experts.gate_up_proj", NULL, EXPERTS, TWO_EXPERT_INNER, HIDDEN},
    {HF, WEFT_ROLE_LINEAR, "mlp.experts.down_proj", NULL, EXPERTS, HIDDEN, EXPERT_INNER},
    {MLX | GGUF, WEFT_ROLE_LINEAR, "mlp.switch_mlp.gate_proj", "ffn_gate_exps", EXPERTS, EXPERT_INNER, HIDDEN},
    {MLX | GGUF, WEFT_ROLE_LINEAR, "mlp.switch_mlp.up_proj", "ffn_up_exps", EXPERTS, EXPERT_INNER, HIDDEN},
    {MLX | GGUF, WEFT_ROLE_LINEAR, "mlp.switch_mlp.down_proj", "ffn_down_exps", EXPERTS, HIDDEN, EXPERT_INNER},
    {HF | MLX, WEFT_ROLE_ROUTER, "mlp.shared_expert_gate", NULL, NONE, ONE, HIDDEN},
    {GGUF, WEFT_ROLE_ROUTER, NULL, "ffn_gate_inp_shexp", NONE, NONE, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "mlp.shared_expert.gate_proj", "ffn_gate_shexp", NONE, SHARED_INNER, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "mlp.shared_expert.up_proj", "ffn_up_shexp", NONE, SHARED_INNER, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "mlp.shared_expert.down_proj", "ffn_down_shexp", NONE, HIDDEN, SHARED_INNER},
    {0},
};

static const row front[] = {{ALL, WEFT_ROLE_EMBED, "embed_tokens", "token_embd", NONE, VOCAB, HIDDEN}, {0}};
static const row back[] = {{ALL, WEFT_ROLE_GAIN, "norm", "output_norm", NONE, NONE, HIDDEN}, {0}};
static const row head[] = {{ALL, WEFT_ROLE_HEAD, "lm_head", "output", NONE, VOCAB, HIDDEN}, {0}};

/* Around one attention layer, whose names begin with "mtp.layers.0.". */
static const row mtp[] = {
    {ALL, WEFT_ROLE_GAIN, "pre_fc_norm_embedding", NULL, NONE, NONE, HIDDEN},
    {ALL, WEFT_ROLE_GAIN, "pre_fc_norm_hidden", NULL, NONE, NONE, HIDDEN},
    {ALL, WEFT_ROLE_LINEAR, "fc", NULL, NONE, HIDDEN, TWO_HIDDEN},
    {ALL, WEFT_ROLE_GAIN, "norm", NULL, NONE, NONE, HIDDEN},
    {0},
};

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

typedef struct builder {
    weft_parts *parts;
    weft_arena *arena;
    weft_layout layout;
    int64_t size[SIZES];
    bool full; /* memory ran out */
} builder;

static void add(builder *b, const char *prefix, const row *rows) {
    for (const row *r = rows; r->layouts && !b->full; r++) {
        if (!(r->layouts & (int)b->layout)) continue;
        char path[128];
        int n = snprintf(path, sizeof path, "%s%s", prefix, b->layout == WEFT_LAYOUT_GGUF ? r->gguf : r->name);
        weft_part p = {.path = weft_arena_str(b->arena, path, (size_t)n),
                       .role = r->role,
                       .experts = b->size[r->experts],
                       .n = b->size[r->n],
                       .k = b->size[r->k]};
        b->full = !p.path || !weft_vec_push(b->parts, p);
    }
}

static void add_layer(builder *b, const char *prefix, bool attends, bool moe) {
    add(b, prefix, attends ? attention : delta_net);
    add(b, prefix, moe ? mixture : dense);
}

weft_status weft_network_parts(weft_parts *parts, weft_arena *arena, const weft_shape *shape, int layers, weft_layout layout,
                               weft_error *e) {
    const char *trunk = layout == WEFT_LAYOUT_HF    ? "model.language_model."
                        : layout == WEFT_LAYOUT_MLX ? "language_model.model."
                                                    : "";
    builder b = {.parts = parts, .arena = arena, .layout = layout};
    measure(shape, b.size);
    bool moe = shape->n_experts > 0;
    add(&b, trunk, front);
    for (int i = 0; i < layers; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, layout == WEFT_LAYOUT_GGUF ? "%sblk.%d." : "%slayers.%d.", trunk, i);
        add_layer(&b, prefix, (i + 1) % shape->attention_every == 0, moe);
    }
    add(&b, trunk, back);
    if (!shape->tied) add(&b, layout == WEFT_LAYOUT_MLX ? "language_model." : "", head);
    if (layout != WEFT_LAYOUT_GGUF) {
        add(&b, "mtp.", mtp);
        add_layer(&b, "mtp.layers.0.", true, moe);
    }
    return b.full ? weft_fail_oom(e, "listing a network's tensors") : WEFT_OK;
}

const char *weft_part_suffix(const weft_part *part, weft_layout layout) {
    bool bare = part->role == WEFT_ROLE_DECAY || part->role == WEFT_ROLE_STEP || (layout == WEFT_LAYOUT_HF && part->experts > 0);
    return bare ? "" : ".weight";
}

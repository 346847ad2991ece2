/* synth.c: see synth.h. */
#include "forge/synth.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/str.h"
#include "forge/gguf_write.h"
#include "forge/network.h"
#include "forge/output.h"
#include "forge/safetensors_write.h"

enum { GROUP = 64, ROUTER_BITS = 8 }; /* of MLX */
#define SHARD_BYTES ((uint64_t)4 * 1000 * 1000 * 1000)

typedef struct plan {
    weft_synth y; /* nothing left to default */
    weft_layout layout;
    weft_arena arena;
    weft_parts parts;
    WEFT_VEC(weft_new_tensor) tensors;
    uint64_t bytes;
} plan;

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

/* A linear layer keeps the size of what it reads, 1 / sqrt(k). The head makes logits of deviation 2, which leaves sampling a
 * choice; an embedding of its own begins the residual stream at size 1. */
static float deviation(const plan *p, const weft_part *part) {
    double k = (double)part->k;
    switch (part->role) {
    case WEFT_ROLE_EMBED: return p->y.shape->tied ? (float)(2.0 / sqrt(k)) : 1.0f;
    case WEFT_ROLE_HEAD: return (float)(2.0 / sqrt(k));
    case WEFT_ROLE_GAIN:
    case WEFT_ROLE_GDN_GAIN: return 0.05f;
    default: return (float)(1.0 / sqrt(k));
    }
}

static weft_rule rule_of(const plan *p, weft_role role) {
    switch (role) {
    case WEFT_ROLE_DECAY: return p->layout == WEFT_LAYOUT_GGUF ? WEFT_RULE_NEG_A : WEFT_RULE_A_LOG;
    case WEFT_ROLE_STEP: return WEFT_RULE_STEP;
    default: return WEFT_RULE_UNIFORM;
    }
}

/* 16: not quantised. */
static int bits_of(const plan *p, const weft_part *part) {
    switch (part->role) {
    case WEFT_ROLE_LINEAR: return p->y.bits;
    case WEFT_ROLE_EMBED: return p->y.shape->tied ? p->y.head_bits : p->y.bits;
    case WEFT_ROLE_HEAD: return p->y.head_bits;
    case WEFT_ROLE_ROUTER: return p->layout == WEFT_LAYOUT_MLX ? ROUTER_BITS : 16;
    default: return 16;
    }
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

static weft_status add_tensor(plan *p, const weft_part *part, const char *suffix, int64_t k, weft_values values, weft_error *e) {
    char name[160];
    int n = snprintf(name, sizeof name, "%s%s", part->path, suffix);
    weft_new_tensor t = {.name = weft_arena_str(&p->arena, name, (size_t)n), .values = values};
    int64_t numbers = k;
    if (part->experts) t.shape[t.rank++] = part->experts, numbers *= part->experts;
    if (part->n) t.shape[t.rank++] = part->n, numbers *= part->n;
    if (part->role == WEFT_ROLE_CONV && p->layout == WEFT_LAYOUT_HF) t.shape[t.rank++] = 1;
    t.shape[t.rank++] = k;
    if (part->role == WEFT_ROLE_CONV && p->layout == WEFT_LAYOUT_MLX) t.shape[t.rank++] = 1;
    /* Codes: the last size counts 32-bit words, of which a unit has two. */
    t.units = (uint64_t)(values.store == WEFT_STORE_CODES ? numbers / 2 : numbers / weft_store_numbers(values.store));
    p->bytes += weft_new_tensor_bytes(&t);
    return t.name && weft_vec_push(&p->tensors, t) ? WEFT_OK : weft_fail_oom(e, "listing tensors");
}

static weft_status add_affine(plan *p, const weft_part *part, weft_values v, int bits, weft_error *e) {
    v.store = WEFT_STORE_CODES, v.rule = WEFT_RULE_PACKED;
    WEFT_TRY(add_tensor(p, part, ".weight", part->k / 32 * bits, v, e));
    v.store = WEFT_STORE_BF16, v.rule = WEFT_RULE_SCALE, v.bits = bits;
    v.key = ~v.key;
    WEFT_TRY(add_tensor(p, part, ".scales", part->k / GROUP, v, e));
    v.rule = WEFT_RULE_BIAS;
    return add_tensor(p, part, ".biases", part->k / GROUP, v, e);
}

static weft_status add_blocks(plan *p, const weft_part *part, weft_values v, int bits, weft_error *e) {
    v.store = bits == 4 ? WEFT_STORE_Q4_0 : bits == 6 ? WEFT_STORE_Q6_K : WEFT_STORE_Q8_0;
    v.rule = WEFT_RULE_PACKED;
    int block = weft_store_numbers(v.store);
    if (part->k % block)
        return weft_fail(e, WEFT_EINVAL, "'%s' has %lld columns, not a multiple of %d: GGUF cannot hold it at %d bits", part->path,
                         (long long)part->k, block, bits);
    return add_tensor(p, part, weft_part_suffix(part, p->layout), part->k, v, e);
}

static bool affine(const plan *p, const weft_part *part, int bits) {
    return p->layout == WEFT_LAYOUT_MLX && bits < 16 && part->k % GROUP == 0; /* as mlx-lm does: others stay plain */
}

static weft_status add_part(plan *p, const weft_part *part, weft_error *e) {
    bool less_one = part->role == WEFT_ROLE_GAIN && p->layout == WEFT_LAYOUT_HF;
    bool gain = part->role == WEFT_ROLE_GAIN || part->role == WEFT_ROLE_GDN_GAIN;
    int bits = bits_of(p, part);
    weft_values v = {.rule = rule_of(p, part->role),
                     .key = weft_hash(part->path, strlen(part->path), p->y.seed),
                     .centre = gain && !less_one ? 1.0f : 0.0f,
                     .deviation = deviation(p, part)};
    if (affine(p, part, bits)) return add_affine(p, part, v, bits, e);
    if (p->layout == WEFT_LAYOUT_GGUF && bits < 16) return add_blocks(p, part, v, bits, e);
    /* In GGUF everything small is F32; elsewhere only the decays. */
    bool small = part->role != WEFT_ROLE_LINEAR && part->role != WEFT_ROLE_EMBED && part->role != WEFT_ROLE_HEAD;
    bool wide = p->layout == WEFT_LAYOUT_GGUF ? small : part->role == WEFT_ROLE_DECAY;
    v.store = wide ? WEFT_STORE_F32 : WEFT_STORE_BF16;
    return add_tensor(p, part, weft_part_suffix(part, p->layout), part->k, v, e);
}

/* ---- config.json --------------------------------------------------------------------------------------------------------- */

static bool add_quantization(weft_str *s, const plan *p, const char *key) {
    bool ok = weft_str_addf(s, "  \"%s\": {\n    \"group_size\": %d,\n    \"bits\": %d,\n    \"mode\": \"affine\"", key, GROUP,
                            p->y.bits);
    for (size_t i = 0; i < p->parts.n && ok; i++) {
        const weft_part *part = &p->parts.v[i];
        int bits = bits_of(p, part);
        bool may = part->role == WEFT_ROLE_ROUTER || part->role == WEFT_ROLE_EMBED || part->role == WEFT_ROLE_HEAD;
        if (!may || bits == p->y.bits) continue;
        ok = weft_str_addf(s, ",\n    \"%s\": ", part->path);
        if (affine(p, part, bits))
            ok = ok && weft_str_addf(s, "{\"group_size\": %d, \"bits\": %d}", GROUP, bits);
        else
            ok = ok && weft_str_addz(s, "false");
    }
    return ok && weft_str_addz(s, "\n  },\n");
}

static bool add_text_config(weft_str *s, const plan *p) {
    const weft_shape *h = p->y.shape;
    bool moe = h->n_experts > 0;
    int angles = h->rotary_dim / 2;
    bool ok = weft_str_addf(s, "    \"model_type\": \"%s\",\n    \"dtype\": \"bfloat16\",\n    \"vocab_size\": %d,\n",
                            moe ? "qwen3_5_moe_text" : "qwen3_5_text", h->vocab);
    ok = ok && weft_str_addf(s, "    \"hidden_size\": %d,\n    \"num_hidden_layers\": %d,\n    \"layer_types\": [", h->hidden,
                             p->y.layers);
    for (int i = 0; i < p->y.layers && ok; i++)
        ok = weft_str_addf(s, "%s\"%s\"", i ? ", " : "", (i + 1) % h->attention_every ? "linear_attention" : "full_attention");
    ok = ok && weft_str_addf(s, "],\n    \"full_attention_interval\": %d,\n", h->attention_every);
    if (moe)
        ok = ok && weft_str_addf(s,
                                 "    \"num_experts\": %d,\n    \"num_experts_per_tok\": %d,\n    \"moe_intermediate_size\": %d,\n"
                                 "    \"shared_expert_intermediate_size\": %d,\n",
                                 h->n_experts, h->top_k, h->moe_intermediate, h->shared_intermediate);
    else
        ok = ok && weft_str_addf(s, "    \"intermediate_size\": %d,\n", h->intermediate);
    ok = ok && weft_str_addf(s,
                             "    \"hidden_act\": \"silu\",\n    \"rms_norm_eps\": 1e-06,\n    \"max_position_embeddings\": %d,\n"
                             "    \"tie_word_embeddings\": %s,\n",
                             h->context, h->tied ? "true" : "false");
    ok = ok && weft_str_addf(s,
                             "    \"num_attention_heads\": %d,\n    \"num_key_value_heads\": %d,\n    \"head_dim\": %d,\n"
                             "    \"attention_bias\": false,\n    \"attn_output_gate\": true,\n",
                             h->n_heads, h->n_kv_heads, h->head_dim);
    ok = ok && weft_str_addf(s,
                             "    \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, "
                             "\"partial_rotary_factor\": %g, \"mrope_section\": [%d, %d, %d], \"mrope_interleaved\": true},\n",
                             (double)h->rotary_dim / h->head_dim, (angles + 2) / 3, (angles + 1) / 3, angles / 3);
    ok = ok && weft_str_addf(s,
                             "    \"linear_num_key_heads\": %d,\n    \"linear_num_value_heads\": %d,\n"
                             "    \"linear_key_head_dim\": %d,\n    \"linear_value_head_dim\": %d,\n"
                             "    \"linear_conv_kernel_dim\": %d,\n    \"mamba_ssm_dtype\": \"float32\",\n",
                             h->gdn_k_heads, h->gdn_v_heads, h->gdn_dim, h->gdn_dim, h->gdn_conv);
    return ok && weft_str_addz(s, "    \"mtp_num_hidden_layers\": 1,\n    \"mtp_use_dedicated_embeddings\": false\n");
}

/* No end token: random weights would draw one by accident. */
static bool add_config(weft_str *s, const plan *p) {
    bool moe = p->y.shape->n_experts > 0;
    bool ok = weft_str_addf(s, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n  \"tie_word_embeddings\": %s,\n",
                            moe ? "Qwen3_5MoeForConditionalGeneration" : "Qwen3_5ForConditionalGeneration",
                            moe ? "qwen3_5_moe" : "qwen3_5", p->y.shape->tied ? "true" : "false");
    if (p->layout == WEFT_LAYOUT_MLX)
        ok = ok && add_quantization(s, p, "quantization") && add_quantization(s, p, "quantization_config");
    ok = ok && weft_str_addz(s, "  \"text_config\": {\n") && add_text_config(s, p);
    return ok && weft_str_addz(s, "  }\n}\n");
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

static weft_status write_folder(plan *p, weft_output *o, weft_error *e) {
    weft_str config = {0};
    weft_status s = add_config(&config, p) ? WEFT_OK : weft_fail_oom(e, "config.json");
    if (s == WEFT_OK)
        s = weft_write_safetensors(o, p->tensors.v, p->tensors.n, p->y.shard_bytes, p->layout == WEFT_LAYOUT_MLX ? "mlx" : "pt", e);
    if (s == WEFT_OK) s = weft_output_begin(o, "config.json", e);
    if (s == WEFT_OK) s = weft_output_put(o, config.p, config.n, e);
    if (s == WEFT_OK) s = weft_output_end(o, e);
    weft_str_free(&config);
    return s;
}

/* "qwen35." or "qwen35moe." before a key of the architecture. */
static const char *key(const plan *p, char buf[80], const char *name) {
    snprintf(buf, 80, "%s.%s", p->y.shape->n_experts ? "qwen35moe" : "qwen35", name);
    return buf;
}

static void add_gguf_keys(weft_gguf_keys *k, const plan *p) {
    const weft_shape *h = p->y.shape;
    int angles = h->rotary_dim / 2;
    const struct {
        const char *name;
        int value;
    } sizes[] = {
        {"block_count", p->y.layers},
        {"context_length", h->context},
        {"embedding_length", h->hidden},
        {"vocab_size", h->vocab},
        {"feed_forward_length", h->intermediate},
        {"attention.head_count", h->n_heads},
        {"attention.head_count_kv", h->n_kv_heads},
        {"attention.key_length", h->head_dim},
        {"attention.value_length", h->head_dim},
        {"rope.dimension_count", h->rotary_dim},
        {"full_attention_interval", h->attention_every},
        {"ssm.conv_kernel", h->gdn_conv},
        {"ssm.state_size", h->gdn_dim},
        {"ssm.group_count", h->gdn_k_heads},
        {"ssm.time_step_rank", h->gdn_v_heads},
        {"ssm.inner_size", h->gdn_v_heads * h->gdn_dim},
        {"expert_count", h->n_experts},
        {"expert_used_count", h->top_k},
        {"expert_feed_forward_length", h->moe_intermediate},
        {"expert_shared_feed_forward_length", h->shared_intermediate},
    };
    char buf[80];
    weft_gguf_text(k, "general.architecture", h->n_experts ? "qwen35moe" : "qwen35");
    weft_gguf_text(k, "general.type", "model");
    weft_gguf_text(k, "general.name", h->name);
    weft_gguf_u32(k, "general.file_type", p->y.bits == 4 ? 2 : p->y.bits == 8 ? 7 : 32); /* mostly Q4_0, Q8_0, BF16 */
    weft_gguf_u32(k, "general.quantization_version", 2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value) weft_gguf_u32(k, key(p, buf, sizes[i].name), (uint32_t)sizes[i].value);
    weft_gguf_f32(k, key(p, buf, "attention.layer_norm_rms_epsilon"), 1e-6f);
    weft_gguf_f32(k, key(p, buf, "rope.freq_base"), 1e7f);
    weft_gguf_i32s(k, key(p, buf, "rope.dimension_sections"), (int32_t[]){(angles + 2) / 3, (angles + 1) / 3, angles / 3, 0}, 4);
    weft_gguf_text(k, "tokenizer.ggml.model", "none");
}

static weft_status write_gguf(plan *p, weft_output *o, weft_error *e) {
    weft_gguf_keys keys = {0};
    add_gguf_keys(&keys, p);
    weft_status s = weft_write_gguf(o, "model.gguf", &keys, p->tensors.v, p->tensors.n, e);
    weft_gguf_keys_free(&keys);
    return s;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static weft_status check(plan *p, weft_error *e) {
    weft_synth *y = &p->y;
    if (y->layers < 0 || y->layers > y->shape->n_layers)
        return weft_fail(e, WEFT_EINVAL, "%d layers: %s has %d", y->layers, y->shape->name, y->shape->n_layers);
    if (y->layers == 0) y->layers = y->shape->n_layers;
    if (y->bits != 4 && y->bits != 8 && y->bits != 16)
        return weft_fail(e, WEFT_EINVAL, "%d bits are not supported; 4, 8 and 16 are", y->bits);
    if (y->head_bits == 0) y->head_bits = y->bits == 4 ? 6 : y->bits;
    if (y->head_bits != 4 && y->head_bits != 6 && y->head_bits != 8 && y->head_bits != 16)
        return weft_fail(e, WEFT_EINVAL, "%d bits for the head are not supported; 4, 6, 8 and 16 are", y->head_bits);
    if (y->bits == 16 && y->head_bits != 16 && !y->gguf)
        return weft_fail(e, WEFT_EINVAL,
                         "16 bits make a plain checkpoint, whose head cannot have %d: choose 4 or 8 bits, or leave the head's out",
                         y->head_bits);
    if (y->shard_bytes == 0) y->shard_bytes = SHARD_BYTES;
    p->layout = y->gguf ? WEFT_LAYOUT_GGUF : y->bits == 16 ? WEFT_LAYOUT_HF : WEFT_LAYOUT_MLX;
    return WEFT_OK;
}

static weft_status make_plan(plan *p, weft_error *e) {
    WEFT_TRY(check(p, e));
    WEFT_TRY(weft_network_parts(&p->parts, &p->arena, p->y.shape, p->y.layers, p->layout, e));
    for (size_t i = 0; i < p->parts.n; i++) WEFT_TRY(add_part(p, &p->parts.v[i], e));
    return WEFT_OK;
}

static weft_status write_all(plan *p, uint64_t *bytes, weft_error *e) {
    weft_output o;
    weft_status s = weft_output_open(&o, p->y.out, p->bytes, p->y.stop, e);
    if (s == WEFT_OK) s = p->y.gguf ? write_gguf(p, &o, e) : write_folder(p, &o, e);
    if (s == WEFT_OK) s = weft_output_commit(&o, e);
    *bytes = o.bytes;
    weft_output_close(&o);
    return s;
}

weft_status weft_synth_write(const weft_synth *y, uint64_t *bytes, weft_error *e) {
    plan p = {.y = *y};
    weft_status s = make_plan(&p, e);
    if (s == WEFT_OK) s = write_all(&p, bytes, e);
    weft_vec_free(&p.tensors);
    weft_vec_free(&p.parts);
    weft_arena_free(&p.arena);
    return s;
}

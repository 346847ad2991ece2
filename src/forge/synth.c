/* synth.c: see synth.h. */
#include "forge/synth.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/str.h"
#include "forge/describe.h"
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

/* A gain is stored less one: it then lies around 0. */
static bool less_one(const plan *p, weft_role role) {
    bool gain = role == WEFT_ROLE_GAIN || role == WEFT_ROLE_HEAD_GAIN;
    return gain && (p->y.shape->family == WEFT_SHAPE_GEMMA3    ? p->layout != WEFT_LAYOUT_GGUF
                    : p->y.shape->family == WEFT_SHAPE_QWEN3_5 ? p->layout == WEFT_LAYOUT_HF
                                                               : false);
}

/* What numbers lie around. Gemma 4 does not scale its attention: the gains of q and k keep its scores at size 1; and its router's
 * scale undoes the division by the root of the hidden size, so that its logits are of size 1 as others' are. */
static double centre(const plan *p, const weft_part *part) {
    switch (part->role) {
    case WEFT_ROLE_HEAD_GAIN:
        if (p->y.shape->family == WEFT_SHAPE_GEMMA4) return 1 / sqrt(sqrt((double)part->k));
        return less_one(p, part->role) ? 0 : 1;
    case WEFT_ROLE_GAIN: return less_one(p, part->role) ? 0 : 1;
    case WEFT_ROLE_STATE_GAIN: return 1;
    case WEFT_ROLE_ROUTER_SCALE: return sqrt((double)part->k);
    default: return 0;
    }
}

/* A linear layer keeps the size of what it reads, 1 / sqrt(k). The head makes logits of deviation 2, which leaves sampling a
 * choice; an embedding of its own begins the residual stream at size 1, and so do Gemma 4's for the layers. */
static double deviation(const plan *p, const weft_part *part) {
    double k = (double)part->k;
    switch (part->role) {
    case WEFT_ROLE_EMBED: return p->y.shape->tied ? 2 / sqrt(k) : 1;
    case WEFT_ROLE_HEAD: return 2 / sqrt(k);
    case WEFT_ROLE_TABLE: return 1 / sqrt((double)p->y.shape->layer_inputs);
    case WEFT_ROLE_BIAS: return 0.1;
    case WEFT_ROLE_GAIN:
    case WEFT_ROLE_STATE_GAIN:
    case WEFT_ROLE_HEAD_GAIN:
    case WEFT_ROLE_ROUTER_SCALE: return less_one(p, part->role) ? 0.05 : 0.05 * centre(p, part);
    default: return 1 / sqrt(k);
    }
}

static weft_rule rule_of(const plan *p, weft_role role) {
    switch (role) {
    case WEFT_ROLE_DECAY: return p->layout == WEFT_LAYOUT_GGUF ? WEFT_RULE_NEG_A : WEFT_RULE_A_LOG;
    case WEFT_ROLE_STEP: return WEFT_RULE_STEP;
    case WEFT_ROLE_FREQUENCY: return WEFT_RULE_FREQUENCY;
    default: return WEFT_RULE_UNIFORM;
    }
}

/* 16: not quantised. */
static int bits_of(const plan *p, const weft_part *part) {
    switch (part->role) {
    case WEFT_ROLE_LINEAR:
    case WEFT_ROLE_TABLE: return p->y.bits;
    case WEFT_ROLE_EMBED: return p->y.shape->tied ? p->y.head_bits : p->y.bits;
    case WEFT_ROLE_HEAD: return p->y.head_bits;
    case WEFT_ROLE_ROUTER: /* mlx-lm leaves Nemotron's as it is */
        return p->layout == WEFT_LAYOUT_MLX && p->y.shape->family != WEFT_SHAPE_NEMOTRON_H ? ROUTER_BITS : 16;
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
    int bits = bits_of(p, part);
    weft_values v = {.rule = rule_of(p, part->role),
                     .key = weft_hash(part->name, strlen(part->name), p->y.seed),
                     .centre = (float)centre(p, part),
                     .deviation = (float)deviation(p, part),
                     .turning = part->k / 4};
    if (affine(p, part, bits)) return add_affine(p, part, v, bits, e);
    if (p->layout == WEFT_LAYOUT_GGUF && bits < 16) return add_blocks(p, part, v, bits, e);
    /* In GGUF everything small is F32; elsewhere only the decays. */
    bool small = part->role >= WEFT_ROLE_ROUTER;
    bool wide = p->layout == WEFT_LAYOUT_GGUF ? small : part->role == WEFT_ROLE_DECAY;
    v.store = wide ? WEFT_STORE_F32 : WEFT_STORE_BF16;
    return add_tensor(p, part, weft_part_suffix(part, p->layout), part->k, v, e);
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

/* What config.json says of a converted checkpoint's packing. */
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

static weft_status write_folder(plan *p, weft_output *o, weft_error *e) {
    weft_str config = {0}, packing = {0};
    bool mlx = p->layout == WEFT_LAYOUT_MLX;
    bool ok = !mlx || (add_quantization(&packing, p, "quantization") && add_quantization(&packing, p, "quantization_config"));
    ok = ok && weft_describe_config(&config, p->y.shape, p->y.layers, weft_str_z(&packing));
    weft_str_free(&packing);
    weft_status s = ok ? WEFT_OK : weft_fail_oom(e, "config.json");
    if (s == WEFT_OK) s = weft_write_safetensors(o, p->tensors.v, p->tensors.n, p->y.shard_bytes, mlx ? "mlx" : "pt", e);
    if (s == WEFT_OK) s = weft_output_begin(o, "config.json", e);
    if (s == WEFT_OK) s = weft_output_put(o, config.p, config.n, e);
    if (s == WEFT_OK) s = weft_output_end(o, e);
    weft_str_free(&config);
    return s;
}

static weft_status write_gguf(plan *p, weft_output *o, weft_error *e) {
    weft_gguf_keys keys = {0};
    weft_describe_gguf(&keys, p->y.shape, p->y.layers);
    weft_gguf_u32(&keys, "general.file_type", p->y.bits == 4 ? 2 : p->y.bits == 8 ? 7 : 32); /* mostly Q4_0, Q8_0, BF16 */
    weft_gguf_u32(&keys, "general.quantization_version", 2);
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
    bool six = y->shape->hidden % weft_store_numbers(WEFT_STORE_Q6_K) == 0; /* what both layouts can hold */
    if (y->head_bits == 0) y->head_bits = y->bits != 4 ? y->bits : six ? 6 : 8;
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

/* config.c: see config.h. */
#include "format/config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "format/json.h"

#define LIMIT ((size_t)16 << 20) /* bytes of a config file: quantisation entries make some of them 100 KB long */

/* ---- the family ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *type, *architecture;
    bool moe;
} families[] = {
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", false},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", false},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", true},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", true},
};

static weft_status set_family(weft_model_config *c, const char *what, const char *name, weft_error *e) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(name, families[i].type) == 0 || strcmp(name, families[i].architecture) == 0) {
            c->family = WEFT_FAMILY_QWEN35;
            c->moe = families[i].moe;
            return WEFT_OK;
        }
    return weft_fail(e, WEFT_ESUPPORT, "%s '%.200s' is not supported yet; this version runs: qwen3_5, qwen3_5_moe", what, name);
}

/* model_type decides, the outer one first; where there is none, architectures. */
static weft_status read_family(weft_model_config *c, weft_json_at outer, weft_json_at text, weft_error *e) {
    const char *type = NULL, *inner = NULL;
    WEFT_TRY(weft_json_text(outer, "model_type", &type, e));
    WEFT_TRY(weft_json_text(text, "model_type", &inner, e));
    if (type) WEFT_TRY(set_family(c, "model_type", type, e));
    if (inner) WEFT_TRY(set_family(c, "model_type", inner, e)); /* the text part's word on MoE is the more exact one */
    if (type || inner) return WEFT_OK;
    struct json_object *a = NULL;
    WEFT_TRY(weft_json_array(outer, "architectures", 16, &a, e));
    if (!a || json_object_array_length(a) == 0)
        return weft_fail(e, WEFT_EFORMAT, "the key 'model_type' is missing (and 'architectures' too)");
    WEFT_TRY(weft_json_text_value(json_object_array_get_idx(a, 0), outer, "architectures", &type, e));
    return set_family(c, "architecture", type, e);
}

/* ---- sizes --------------------------------------------------------------------------------------------------------------- */

typedef enum need { ALWAYS, DENSE, MOE, OPTIONAL } need;

#define AT(field) offsetof(weft_model_config, field)
static const struct {
    const char *key;
    size_t field;
    int lo, hi;
    need need;
} sizes[] = {
    {"vocab_size", AT(vocab_size), 2, 1 << 24, ALWAYS},
    {"hidden_size", AT(hidden_size), 8, 1 << 17, ALWAYS},
    {"intermediate_size", AT(intermediate_size), 8, 1 << 20, DENSE},
    {"num_hidden_layers", AT(n_layers), 1, WEFT_MAX_LAYERS, ALWAYS},
    {"num_attention_heads", AT(n_heads), 1, 1024, ALWAYS},
    {"num_key_value_heads", AT(n_kv_heads), 1, 1024, ALWAYS},
    {"head_dim", AT(head_dim), 8, 1024, ALWAYS},
    {"max_position_embeddings", AT(max_position), 1, 1 << 30, ALWAYS},
    {"linear_num_key_heads", AT(gdn_k_heads), 1, 1024, ALWAYS},
    {"linear_num_value_heads", AT(gdn_v_heads), 1, 1024, ALWAYS},
    {"linear_key_head_dim", AT(gdn_k_dim), 4, 1024, ALWAYS},
    {"linear_value_head_dim", AT(gdn_v_dim), 4, 1024, ALWAYS},
    {"linear_conv_kernel_dim", AT(gdn_conv), 2, 8, OPTIONAL},
    {"num_experts", AT(n_experts), 1, 4096, MOE},
    {"num_experts_per_tok", AT(top_k), 1, 64, MOE},
    {"moe_intermediate_size", AT(moe_intermediate), 8, 1 << 17, MOE},
    {"shared_expert_intermediate_size", AT(shared_intermediate), 8, 1 << 17, MOE},
};

static weft_status read_int(weft_json_at at, const char *key, int lo, int hi, int *out, weft_error *e) {
    int64_t x = *out;
    WEFT_TRY(weft_json_int(at, key, lo, hi, &x, e));
    *out = (int)x;
    return WEFT_OK;
}

static weft_status read_sizes(weft_model_config *c, weft_json_at text, weft_error *e) {
    c->gdn_conv = 4;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *key = sizes[i].key;
        need need = sizes[i].need;
        if ((need == DENSE && c->moe) || (need == MOE && !c->moe)) continue;
        if (strcmp(key, "num_experts") == 0 && !weft_json_get(text, key) && weft_json_get(text, "num_local_experts"))
            key = "num_local_experts";
        if (need != OPTIONAL) WEFT_TRY(weft_json_need(text, key, e));
        WEFT_TRY(read_int(text, key, sizes[i].lo, sizes[i].hi, (int *)((char *)c + sizes[i].field), e));
    }
    if (c->n_heads % c->n_kv_heads)
        return weft_fail(e, WEFT_EFORMAT, "'%snum_attention_heads' is %d, not a multiple of 'num_key_value_heads' %d", text.path,
                         c->n_heads, c->n_kv_heads);
    if (c->gdn_v_heads % c->gdn_k_heads)
        return weft_fail(e, WEFT_EFORMAT, "'%slinear_num_value_heads' is %d, not a multiple of 'linear_num_key_heads' %d",
                         text.path, c->gdn_v_heads, c->gdn_k_heads);
    if (c->top_k > c->n_experts)
        return weft_fail(e, WEFT_EFORMAT, "'%snum_experts_per_tok' is %d, more than the %d experts there are", text.path, c->top_k,
                         c->n_experts);
    double eps = 1e-6;
    WEFT_TRY(weft_json_number(text, "rms_norm_eps", 1e-12, 0.1, &eps, e));
    c->rms_norm_eps = (float)eps;
    return WEFT_OK;
}

static weft_status read_layers(weft_model_config *c, weft_json_at text, weft_error *e) {
    struct json_object *types = NULL;
    WEFT_TRY(weft_json_array(text, "layer_types", WEFT_MAX_LAYERS, &types, e));
    if (!types) {
        int interval = 4;
        WEFT_TRY(read_int(text, "full_attention_interval", 1, WEFT_MAX_LAYERS, &interval, e));
        for (int i = 0; i < c->n_layers; i++) c->layer_kind[i] = (i + 1) % interval == 0 ? WEFT_LAYER_ATTENTION : WEFT_LAYER_GDN;
        return WEFT_OK;
    }
    if (json_object_array_length(types) != (size_t)c->n_layers)
        return weft_fail(e, WEFT_EFORMAT, "'%slayer_types' has %zu entries for %d layers", text.path,
                         json_object_array_length(types), c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        const char *kind = NULL;
        WEFT_TRY(weft_json_text_value(json_object_array_get_idx(types, (size_t)i), text, "layer_types", &kind, e));
        if (strcmp(kind, "linear_attention") == 0)
            c->layer_kind[i] = WEFT_LAYER_GDN;
        else if (strcmp(kind, "full_attention") == 0)
            c->layer_kind[i] = WEFT_LAYER_ATTENTION;
        else
            return weft_fail(
                e, WEFT_ESUPPORT,
                "'%slayer_types' calls layer %d '%.80s', which is not supported; linear_attention and full_attention are",
                text.path, i, kind);
    }
    return WEFT_OK;
}

/* ---- RoPE ---------------------------------------------------------------------------------------------------------------- */

/* "type" is the older spelling of "rope_type"; "mrope" is plain RoPE for text. */
static weft_status check_rope_type(weft_json_at at, weft_error *e) {
    const char *type = NULL;
    WEFT_TRY(weft_json_text(at, "type", &type, e));
    WEFT_TRY(weft_json_text(at, "rope_type", &type, e));
    if (!type || strcmp(type, "default") == 0 || strcmp(type, "mrope") == 0) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%srope_type' is '%.80s', which is not supported yet; 'default' is", at.path, type);
}

static weft_status read_rope(weft_model_config *c, weft_json_at text, weft_error *e) {
    struct json_object *inner = NULL, *scaling = NULL;
    WEFT_TRY(weft_json_object(text, "rope_parameters", &inner, e));
    WEFT_TRY(weft_json_object(text, "rope_scaling", &scaling, e));
    weft_json_at rope = {inner, "rope_parameters."};
    WEFT_TRY(check_rope_type(rope, e));
    WEFT_TRY(check_rope_type((weft_json_at){scaling, "rope_scaling."}, e));

    weft_json_at at = weft_json_get(rope, "rope_theta") ? rope : text;
    WEFT_TRY(weft_json_need(at, "rope_theta", e));
    WEFT_TRY(weft_json_number(at, "rope_theta", 1, 1e12, &c->rope_theta, e));
    at = weft_json_get(rope, "partial_rotary_factor") ? rope : text;
    double part = 0.25;
    WEFT_TRY(weft_json_number(at, "partial_rotary_factor", 0, 1, &part, e));
    c->rotary_dim = (int)(c->head_dim * part);
    if (c->rotary_dim < 2 || c->rotary_dim % 2)
        return weft_fail(e, WEFT_EFORMAT,
                         "'%spartial_rotary_factor' makes %d of %d dimensions rotate; expected an even number, at least 2", at.path,
                         c->rotary_dim, c->head_dim);
    return WEFT_OK;
}

/* ---- switches that would need other arithmetic --------------------------------------------------------------------------- */

static weft_status want_bool(weft_json_at at, const char *key, bool want, weft_error *e) {
    bool is = want;
    WEFT_TRY(weft_json_bool(at, key, &is, e));
    if (is == want) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%s%s' is %s, which is not supported; %s is", at.path, key, is ? "true" : "false",
                     want ? "true" : "false");
}

static weft_status want_silu(weft_json_at at, const char *key, weft_error *e) {
    const char *is = "silu";
    WEFT_TRY(weft_json_text(at, key, &is, e));
    if (strcmp(is, "silu") == 0 || strcmp(is, "swish") == 0) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%s%s' is '%.80s', which is not supported; 'silu' is", at.path, key, is);
}

static weft_status read_switches(weft_model_config *c, weft_json_at text, weft_error *e) {
    WEFT_TRY(want_silu(text, "hidden_act", e));
    WEFT_TRY(want_silu(text, "output_gate_type", e));
    WEFT_TRY(want_bool(text, "attn_output_gate", true, e));
    WEFT_TRY(want_bool(text, "attention_bias", false, e));
    WEFT_TRY(want_bool(text, "mtp_use_dedicated_embeddings", false, e));
    c->mtp_layers = 1;
    WEFT_TRY(read_int(text, "mtp_num_hidden_layers", 0, WEFT_MAX_LAYERS, &c->mtp_layers, e));
    if (c->mtp_layers > 1)
        return weft_fail(e, WEFT_ESUPPORT, "'%smtp_num_hidden_layers' is %d; only one is supported", text.path, c->mtp_layers);
    if (!c->moe) return WEFT_OK;
    c->norm_topk = true;
    WEFT_TRY(weft_json_bool(text, "norm_topk_prob", &c->norm_topk, e));
    int step = 1;
    struct json_object *dense = NULL;
    WEFT_TRY(read_int(text, "decoder_sparse_step", 1, WEFT_MAX_LAYERS, &step, e));
    WEFT_TRY(weft_json_array(text, "mlp_only_layers", WEFT_MAX_LAYERS, &dense, e));
    if (step != 1 || (dense && json_object_array_length(dense) > 0))
        return weft_fail(e, WEFT_ESUPPORT,
                         "some layers without experts ('%sdecoder_sparse_step', 'mlp_only_layers') are not supported", text.path);
    return WEFT_OK;
}

static weft_status read_dtype(weft_model_config *c, weft_json_at at, weft_error *e) {
    static const struct {
        const char *name;
        weft_dtype dtype;
    } names[] = {{"bfloat16", WEFT_BF16}, {"float16", WEFT_F16}, {"float32", WEFT_F32}};
    const char *name = NULL;
    WEFT_TRY(weft_json_text(at, "torch_dtype", &name, e));
    WEFT_TRY(weft_json_text(at, "dtype", &name, e));
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) c->dtype = names[i].dtype;
    return WEFT_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------------------------------- */

static weft_status add_eos(weft_model_config *c, struct json_object *v, weft_json_at at, weft_error *e) {
    int64_t id = 0;
    WEFT_TRY(weft_json_int_value(v, at, "eos_token_id", 0, c->vocab_size - 1, &id, e));
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == (int)id) return WEFT_OK;
    if (c->n_eos == WEFT_MAX_EOS)
        return weft_fail(e, WEFT_EFORMAT, "'%seos_token_id': more than %d end tokens", at.path, WEFT_MAX_EOS);
    c->eos[c->n_eos++] = (int)id;
    return WEFT_OK;
}

/* The files disagree on purpose: one names the end of a document, another the end of a turn. All of them end an answer. */
static weft_status read_tokens(weft_model_config *c, weft_json_at at, weft_error *e) {
    struct json_object *v = weft_json_get(at, "eos_token_id");
    if (json_object_is_type(v, json_type_array))
        for (size_t i = 0; i < json_object_array_length(v); i++) WEFT_TRY(add_eos(c, json_object_array_get_idx(v, i), at, e));
    else if (v)
        WEFT_TRY(add_eos(c, v, at, e));
    WEFT_TRY(read_int(at, "bos_token_id", -1, c->vocab_size - 1, &c->bos, e));
    return read_int(at, "pad_token_id", -1, c->vocab_size - 1, &c->pad, e);
}

/* ---- quantisation -------------------------------------------------------------------------------------------------------- */

const char *weft_module_path(const char *path) {
    for (;;) {
        if (weft_starts_with(path, "language_model."))
            path += strlen("language_model.");
        else if (weft_starts_with(path, "model."))
            path += strlen("model.");
        else
            return path;
    }
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const weft_quant *)a)->path, ((const weft_quant *)b)->path);
}

static bool same_quant(const weft_quant *a, const weft_quant *b) {
    return a->plain == b->plain && a->bits == b->bits && a->group == b->group && strcmp(a->mode, b->mode) == 0;
}

static weft_status read_quant(weft_model_config *c, weft_quant *q, weft_json_at at, weft_error *e) {
    const char *mode = "affine";
    WEFT_TRY(weft_json_text(at, "mode", &mode, e));
    q->mode = weft_arena_str(&c->arena, mode, strlen(mode));
    if (!q->mode) return weft_fail_oom(e, "reading a config");
    WEFT_TRY(weft_json_need(at, "bits", e));
    WEFT_TRY(weft_json_need(at, "group_size", e));
    WEFT_TRY(read_int(at, "bits", 1, 16, &q->bits, e));
    return read_int(at, "group_size", 1, 1024, &q->group, e);
}

/* {"bits": 4, "group_size": 64, "mode": "affine", "<module>": {...} or false or true, ...} */
static weft_status read_quants(weft_model_config *c, struct json_object *o, const char *path, weft_error *e) {
    weft_json_at at = {o, path};
    if (weft_json_get(at, "bits") || weft_json_get(at, "group_size")) WEFT_TRY(read_quant(c, &c->quant, at, e));
    weft_quant *list = weft_arena_get(&c->arena, (size_t)json_object_object_length(o), sizeof *list);
    if (!list) return weft_fail_oom(e, "reading a config");
    size_t n = 0;
    json_object_object_foreach(o, key, v) {
        bool entry = json_object_is_type(v, json_type_object), flag = json_object_is_type(v, json_type_boolean);
        if (!entry && !flag) continue; /* the default's own numbers and words */
        const char *module = weft_module_path(key);
        weft_quant q = {.path = weft_arena_str(&c->arena, module, strlen(module))};
        if (!q.path) return weft_fail_oom(e, "reading a config");
        if (flag && json_object_get_boolean(v)) {
            if (c->quant.bits == 0) return weft_fail(e, WEFT_EFORMAT, "'%s%.200s' is true, but no default is given", path, key);
            q.bits = c->quant.bits, q.group = c->quant.group, q.mode = c->quant.mode;
        } else if (flag) {
            q.plain = true, q.mode = "affine";
        } else {
            char where[300];
            snprintf(where, sizeof where, "%s%.200s.", path, key);
            WEFT_TRY(read_quant(c, &q, (weft_json_at){v, where}, e));
        }
        list[n++] = q;
    }
    if (n > 0) qsort(list, n, sizeof *list, by_path);
    for (size_t i = 0; i < n; i++) {
        if (c->n_quants > 0 && strcmp(list[i].path, list[c->n_quants - 1].path) == 0) {
            if (!same_quant(&list[i], &list[c->n_quants - 1]))
                return weft_fail(e, WEFT_EFORMAT, "'%s' has two different entries for the module '%.200s'", path, list[i].path);
            continue;
        }
        list[c->n_quants++] = list[i];
    }
    c->quants = list;
    return WEFT_OK;
}

/* MLX writes "quantization", mostly with a copy under "quantization_config"; the latter name alone, with a quant_method, is one of
 * the schemes of transformers. */
static weft_status read_quantisation(weft_model_config *c, weft_json_at at, bool *found, weft_error *e) {
    struct json_object *mlx = NULL, *other = NULL;
    char path[64];
    WEFT_TRY(weft_json_object(at, "quantization", &mlx, e));
    WEFT_TRY(weft_json_object(at, "quantization_config", &other, e));
    *found = mlx || other;
    const char *method = NULL;
    if (!mlx && other) WEFT_TRY(weft_json_text((weft_json_at){other, "quantization_config."}, "quant_method", &method, e));
    if (method && strcmp(method, "mlx") != 0)
        return weft_fail(e, WEFT_ESUPPORT,
                         "'%squantization_config.quant_method' is '%.80s', which is not supported yet; MLX affine is", at.path,
                         method);
    snprintf(path, sizeof path, "%s%s", at.path, mlx ? "quantization." : "quantization_config.");
    return *found ? read_quants(c, mlx ? mlx : other, path, e) : WEFT_OK;
}

const weft_quant *weft_config_quant(const weft_model_config *c, const char *path) {
    if (c->n_quants == 0) return NULL;
    weft_quant key = {.path = weft_module_path(path)};
    return bsearch(&key, c->quants, c->n_quants, sizeof key, by_path);
}

/* ---- counting ------------------------------------------------------------------------------------------------------------ */

/* Both kinds of layer with their norms; `experts` of the feed-forward block's experts are counted. */
static int64_t layer_parameters(const weft_model_config *c, weft_layer_kind kind, int64_t experts) {
    int64_t hidden = c->hidden_size, n = 2 * hidden;
    if (kind == WEFT_LAYER_ATTENTION) {
        int64_t q = (int64_t)c->n_heads * c->head_dim, kv = (int64_t)c->n_kv_heads * c->head_dim;
        n += hidden * (2 * q + 2 * kv) + q * hidden + 2 * (int64_t)c->head_dim; /* queries and gates, keys, values; output; norms */
    } else {
        int64_t v = (int64_t)c->gdn_v_heads * c->gdn_v_dim, channels = 2 * (int64_t)c->gdn_k_heads * c->gdn_k_dim + v;
        n += hidden * (channels + v + 2 * (int64_t)c->gdn_v_heads) + v * hidden; /* qkv, z, b and a; output */
        n += channels * c->gdn_conv + 2 * (int64_t)c->gdn_v_heads + c->gdn_v_dim;
    }
    if (!c->moe) return n + 3 * hidden * c->intermediate_size;
    n += hidden * c->n_experts + hidden; /* router, gate of the shared expert */
    return n + 3 * hidden * (experts * c->moe_intermediate + c->shared_intermediate);
}

weft_parameters weft_config_parameters(const weft_model_config *c, bool tied) {
    int64_t hidden = c->hidden_size, ends = hidden * c->vocab_size * (tied ? 1 : 2) + hidden;
    weft_parameters p = {.trunk = ends, .active = ends};
    for (int i = 0; i < c->n_layers; i++) {
        p.trunk += layer_parameters(c, (weft_layer_kind)c->layer_kind[i], c->n_experts);
        p.active += layer_parameters(c, (weft_layer_kind)c->layer_kind[i], c->top_k);
    }
    p.mtp = 2 * hidden * hidden + 3 * hidden + layer_parameters(c, WEFT_LAYER_ATTENTION, c->n_experts);
    return p;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static weft_status read_tie(weft_model_config *c, weft_json_at outer, weft_json_at text, weft_error *e) {
    static const char key[] = "tie_word_embeddings";
    weft_json_at at = weft_json_get(text, key) ? text : outer;
    bool tie = false;
    WEFT_TRY(weft_json_bool(at, key, &tie, e));
    c->tie = !weft_json_get(at, key) ? WEFT_TIE_UNSAID : tie ? WEFT_TIE_YES : WEFT_TIE_NO;
    return WEFT_OK;
}

static weft_status read_config(weft_model_config *c, struct json_object *root, weft_error *e) {
    weft_json_at outer = {root, ""}, text = outer;
    struct json_object *inner = NULL;
    WEFT_TRY(weft_json_object(outer, "text_config", &inner, e));
    if (inner) text = (weft_json_at){inner, "text_config."};
    WEFT_TRY(read_family(c, outer, text, e));
    WEFT_TRY(read_sizes(c, text, e));
    WEFT_TRY(read_layers(c, text, e));
    WEFT_TRY(read_rope(c, text, e));
    WEFT_TRY(read_switches(c, text, e));
    WEFT_TRY(read_tie(c, outer, text, e));
    WEFT_TRY(read_dtype(c, outer, e));
    WEFT_TRY(read_dtype(c, text, e));
    WEFT_TRY(read_tokens(c, outer, e));
    if (inner) WEFT_TRY(read_tokens(c, text, e));
    bool found = false;
    WEFT_TRY(read_quantisation(c, outer, &found, e));
    if (inner && !found) WEFT_TRY(read_quantisation(c, text, &found, e));
    return WEFT_OK;
}

typedef weft_status (*reader)(weft_model_config *c, struct json_object *root, weft_error *e);

static weft_status read_generation(weft_model_config *c, struct json_object *root, weft_error *e) {
    return read_tokens(c, (weft_json_at){root, ""}, e);
}

static weft_status read_text(weft_model_config *c, const char *text, size_t n, const char *name, reader read, weft_error *e) {
    struct json_object *root = NULL;
    weft_status st = weft_json_parse(&root, text, n, e);
    if (st == WEFT_OK) st = read(c, root, e);
    json_object_put(root);
    if (st != WEFT_OK) weft_fail_in(e, name);
    return st;
}

weft_status weft_model_config_parse(weft_model_config *c, const char *text, size_t n, const char *generation, size_t generation_n,
                                    weft_error *e) {
    *c = (weft_model_config){.dtype = WEFT_DTYPES, .bos = -1, .pad = -1};
    weft_status st = read_text(c, text, n, "config.json", read_config, e);
    if (st == WEFT_OK && generation) st = read_text(c, generation, generation_n, "generation_config.json", read_generation, e);
    if (st != WEFT_OK) weft_model_config_free(c);
    return st;
}

weft_status weft_model_config_read(weft_model_config *c, const char *folder, weft_error *e) {
    *c = (weft_model_config){0};
    weft_str path = {0};
    char *text = NULL, *generation = NULL;
    size_t n = 0, generation_n = 0;
    weft_status st = WEFT_OK;
    if (!weft_str_addf(&path, "%s/config.json", folder)) st = weft_fail_oom(e, "reading a config");
    if (st == WEFT_OK) st = weft_file_read(weft_str_z(&path), LIMIT, &text, &n, e);
    weft_str_clear(&path);
    if (st == WEFT_OK && !weft_str_addf(&path, "%s/generation_config.json", folder)) st = weft_fail_oom(e, "reading a config");
    if (st == WEFT_OK && weft_file_exists(weft_str_z(&path)))
        st = weft_file_read(weft_str_z(&path), LIMIT, &generation, &generation_n, e);
    if (st == WEFT_OK) {
        st = weft_model_config_parse(c, text, n, generation, generation_n, e);
        if (st != WEFT_OK) weft_fail_in(e, folder);
    }
    weft_free(text);
    weft_free(generation);
    weft_str_free(&path);
    return st;
}

void weft_model_config_free(weft_model_config *c) {
    weft_arena_free(&c->arena);
    *c = (weft_model_config){0};
}

/* inspect.c: `weft inspect`: what a model folder holds, how its weights are packed, and the memory it takes. Every tensor's shape
 * is checked on the way and only a few small ones are read: a folder of 50 GB takes a moment. */
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/dirs.h"
#include "base/num.h"
#include "cli/cli.h"
#include "format/model_dir.h"
#include "format/weight.h"
#include "ops/cpu/packed.h"
#include "weft.h"

enum { FORMATS = 24, CONTEXTS = 6, MAX_CONTEXT = 1 << 22 };

/* What of the network a weight belongs to. */
typedef enum part { EMBEDDING, HEAD, ATTENTION, DELTA_NET, FEED_FORWARD, EXPERTS, SHARED_EXPERT, ROUTER, MTP, PARTS } part;
static const char *const part_names[PARTS] = {"embedding", "output head",   "attention", "delta net", "feed-forward",
                                              "experts",   "shared expert", "router",    "MTP head"};

typedef struct packing { /* weights of one part that are packed alike */
    part part;
    weft_dtype dtype;
    int bits, group;
    int modules;
    uint64_t bytes; /* in the files */
} packing;

/* How many numbers the network has, counted from its sizes. */
typedef struct parameters {
    int64_t trunk;  /* embedding, layers, final norm, output head where it is not the embedding */
    int64_t active; /* of these, what one token uses: all but the experts not chosen */
    int64_t mtp;    /* the drafter, without the embedding and head that it shares */
} parameters;

typedef struct report {
    weft_model_dir dir;
    parameters parameters;
    uint64_t file_bytes; /* of all tensors, those that are not used too */
    packing packings[FORMATS];
    int n_packings;
    int context[CONTEXTS];
    weft_memory memory[CONTEXTS];
    int n_contexts;
    weft_str cache; /* where packed weights are kept; empty: nowhere */
    weft_packed_info packed;
    int64_t largest; /* context that fits into this machine's memory, at most what was trained or asked for; 0: none */
} report;

/* A module's path: known prefixes and numbers, so that none is cut. */
static const char *path_of(char buf[256], const char *fmt, ...) WEFT_PRINTF(2, 3);
static const char *path_of(char buf[256], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, 256, fmt, ap);
    va_end(ap);
    return buf;
}

/* ---- parameters ------------------------------------------------------------------------------------------------------------ */

/* Both kinds of layer with their norms; `experts` of the feed-forward block's experts are counted. */
static int64_t layer_parameters(const weft_model_config *c, weft_layer_kind kind, int64_t experts) {
    int64_t hidden = c->hidden_size, n = 2 * hidden;
    if (kind == WEFT_LAYER_ATTENTION) {
        int64_t q = (int64_t)c->n_heads * c->full.head_dim, kv = (int64_t)c->full.n_kv_heads * c->full.head_dim;
        n += hidden * (2 * q + 2 * kv) + q * hidden +
             2 * (int64_t)c->full.head_dim; /* queries and gates, keys, values; output; norms */
    } else {
        int64_t v = (int64_t)c->gdn_v_heads * c->gdn_v_dim, channels = 2 * (int64_t)c->gdn_k_heads * c->gdn_k_dim + v;
        n += hidden * (channels + v + 2 * (int64_t)c->gdn_v_heads) + v * hidden; /* qkv, z, b and a; output */
        n += channels * c->conv_kernel + 2 * (int64_t)c->gdn_v_heads + c->gdn_v_dim;
    }
    if (!c->n_experts) return n + 3 * hidden * c->intermediate_size;
    n += hidden * c->n_experts + hidden; /* router, gate of the shared expert */
    return n + 3 * hidden * (experts * c->moe_intermediate + c->shared_intermediate);
}

static parameters count_parameters(const weft_model_config *c, bool tied) {
    int64_t hidden = c->hidden_size, ends = hidden * c->vocab_size * (tied ? 1 : 2) + hidden;
    parameters p = {.trunk = ends, .active = ends};
    for (int i = 0; i < c->n_layers; i++) {
        p.trunk += layer_parameters(c, (weft_layer_kind)c->layer_kind[i], c->n_experts);
        p.active += layer_parameters(c, (weft_layer_kind)c->layer_kind[i], c->top_k);
    }
    p.mtp = 2 * hidden * hidden + 3 * hidden + layer_parameters(c, WEFT_LAYER_ATTENTION, c->n_experts);
    return p;
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

static weft_status add(report *r, part p, const char *path, int64_t experts, int64_t n, int64_t k, weft_error *e) {
    weft_weight w;
    WEFT_TRY(weft_weight_find(r->dir.tensors, &r->dir.config, path, experts, n, k, &w, e));
    int i = 0;
    while (i < r->n_packings && (r->packings[i].part != p || r->packings[i].dtype != w.dtype || r->packings[i].bits != w.bits ||
                                 r->packings[i].group != w.group))
        i++;
    if (i == FORMATS) i--; /* more ways of packing than anybody uses: the last line counts the rest */
    if (i == r->n_packings) r->packings[r->n_packings++] = (packing){.part = p, .dtype = w.dtype, .bits = w.bits, .group = w.group};
    r->packings[i].modules++;
    r->packings[i].bytes += w.values->bytes + (w.scales ? w.scales->bytes + w.biases->bytes : 0);
    return WEFT_OK;
}

typedef struct module {
    const char *name;
    int64_t n, k;
} module;

static weft_status add_all(report *r, part p, const char *path, const module *m, size_t count, weft_error *e) {
    for (size_t i = 0; i < count; i++) {
        char name[256];
        path_of(name, "%s%s", path, m[i].name);
        WEFT_TRY(add(r, p, name, 0, m[i].n, m[i].k, e));
    }
    return WEFT_OK;
}

/* Inner width of a dense feed-forward block in a model of experts, as some packs give the drafter; 0: it has experts, too. */
static int dense_inner(const report *r, const char *layer) {
    char name[256];
    const weft_tensor *x = weft_tensors_find(r->dir.tensors, path_of(name, "%smlp.gate_proj.weight", layer));
    return r->dir.config.n_experts && x && x->rank == 2 ? (int)x->shape[0] : 0;
}

static bool has(const report *r, const char *path, const char *rest) {
    char name[256];
    path_of(name, "%s%s", path, rest);
    return weft_tensors_find(r->dir.tensors, name) != NULL;
}

/* Experts come fused, stacked, or one by one. */
static weft_status add_experts(report *r, part p, const char *path, weft_error *e) {
    const weft_model_config *c = &r->dir.config;
    int64_t hidden = c->hidden_size, inner = c->moe_intermediate;
    char name[256];
    if (has(r, path, "experts.gate_up_proj") || has(r, path, "experts.gate_up_proj.weight")) {
        path_of(name, "%sexperts.gate_up_proj", path);
        WEFT_TRY(add(r, p, name, c->n_experts, 2 * inner, hidden, e));
        path_of(name, "%sexperts.down_proj", path);
        return add(r, p, name, c->n_experts, hidden, inner, e);
    }
    const module m[] = {{"gate_proj", inner, hidden}, {"up_proj", inner, hidden}, {"down_proj", hidden, inner}};
    bool stacked = has(r, path, "switch_mlp.gate_proj.weight");
    for (int x = 0; x < (stacked ? 1 : c->n_experts); x++)
        for (size_t i = 0; i < 3; i++) {
            if (stacked)
                path_of(name, "%sswitch_mlp.%s", path, m[i].name);
            else
                path_of(name, "%sexperts.%d.%s", path, x, m[i].name);
            WEFT_TRY(add(r, p, name, stacked ? c->n_experts : 0, m[i].n, m[i].k, e));
        }
    return WEFT_OK;
}

/* The drafter's layer is counted as one part, whatever the weight does in it. */
static weft_status add_layer(report *r, const char *path, bool attends, bool mtp, weft_error *e) {
    const weft_model_config *c = &r->dir.config;
    int64_t hidden = c->hidden_size, q = (int64_t)c->n_heads * c->full.head_dim,
            kv = (int64_t)c->full.n_kv_heads * c->full.head_dim;
    int64_t v = (int64_t)c->gdn_v_heads * c->gdn_v_dim, channels = 2 * (int64_t)c->gdn_k_heads * c->gdn_k_dim + v;
    int dense = dense_inner(r, path);
    bool moe = c->n_experts && !dense;
    int64_t inner = moe ? c->shared_intermediate : dense ? dense : c->intermediate_size;
    const module attention[] = {{"self_attn.q_proj", 2 * q, hidden},
                                {"self_attn.k_proj", kv, hidden},
                                {"self_attn.v_proj", kv, hidden},
                                {"self_attn.o_proj", hidden, q}};
    const module delta_net[] = {{"linear_attn.in_proj_qkv", channels, hidden},
                                {"linear_attn.in_proj_z", v, hidden},
                                {"linear_attn.in_proj_b", c->gdn_v_heads, hidden},
                                {"linear_attn.in_proj_a", c->gdn_v_heads, hidden},
                                {"linear_attn.out_proj", hidden, v}};
    const module mlp[] = {{"gate_proj", inner, hidden}, {"up_proj", inner, hidden}, {"down_proj", hidden, inner}};
    const module router[] = {{"gate", c->n_experts, hidden}, {"shared_expert_gate", 1, hidden}};
    if (attends)
        WEFT_TRY(add_all(r, mtp ? MTP : ATTENTION, path, attention, 4, e));
    else
        WEFT_TRY(add_all(r, mtp ? MTP : DELTA_NET, path, delta_net, 5, e));
    char block[256];
    path_of(block, "%smlp.%s", path, moe ? "shared_expert." : "");
    WEFT_TRY(add_all(r, mtp ? MTP : moe ? SHARED_EXPERT : FEED_FORWARD, block, mlp, 3, e));
    if (!moe) return WEFT_OK;
    path_of(block, "%smlp.", path);
    WEFT_TRY(add_all(r, mtp ? MTP : ROUTER, block, router, 2, e));
    return add_experts(r, mtp ? MTP : EXPERTS, block, e);
}

static weft_status add_model(report *r, weft_error *e) {
    const weft_model_config *c = &r->dir.config;
    int64_t hidden = c->hidden_size;
    char path[256];
    path_of(path, "%sembed_tokens", r->dir.trunk);
    WEFT_TRY(add(r, EMBEDDING, path, 0, c->vocab_size, hidden, e));
    if (r->dir.head) WEFT_TRY(add(r, HEAD, r->dir.head, 0, c->vocab_size, hidden, e));
    for (int i = 0; i < c->n_layers; i++) {
        path_of(path, "%slayers.%d.", r->dir.trunk, i);
        WEFT_TRY(add_layer(r, path, c->layer_kind[i] == WEFT_LAYER_ATTENTION, false, e));
    }
    if (!r->dir.mtp) return WEFT_OK;
    path_of(path, "%sfc", r->dir.mtp);
    WEFT_TRY(add(r, MTP, path, 0, hidden, 2 * hidden, e));
    if (r->dir.mtp_head) WEFT_TRY(add(r, MTP, r->dir.mtp_head, 0, c->vocab_size, hidden, e));
    path_of(path, "%slayers.0.", r->dir.mtp);
    return add_layer(r, path, true, true, e);
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

/* The engine's own plan for the usual context lengths up to what the model was trained for, and for the one asked for. */
static weft_status plan(report *r, int64_t asked, const weft_config *want, weft_error *e) {
    static const int usual[] = {8192, 32768, 131072};
    int trained = r->dir.config.max_position < MAX_CONTEXT ? r->dir.config.max_position : MAX_CONTEXT, list[CONTEXTS];
    size_t n = 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (usual[i] < trained) list[n++] = usual[i];
    list[n++] = trained;
    if (asked) list[0] = (int)asked, n = 1;
    for (size_t i = 0; i < n; i++) {
        r->context[i] = list[i];
        weft_config c = *want;
        c.model = r->dir.path;
        c.context = list[i];
        WEFT_TRY(weft_plan_memory(&c, &r->memory[i], e));
        r->n_contexts++;
    }
    const weft_memory *m = &r->memory[0];
    uint64_t fixed = m->total - m->kv + m->kv_window;
    if (m->available > fixed && m->kv_per_token) r->largest = (int64_t)((m->available - fixed) / m->kv_per_token);
    int64_t most = asked > trained ? asked : trained;
    if (r->largest > most) r->largest = most;
    return WEFT_OK;
}

/* ---- packed weights ------------------------------------------------------------------------------------------------------ */

static weft_status find_packed(report *r, const char *cache, weft_error *e) {
    uint8_t fingerprint[16];
    char name[256];
    if (!(cache ? weft_str_addz(&r->cache, cache) : weft_cache_dir(&r->cache, "packed"))) return weft_fail_oom(e, "a path");
    if (!r->cache.n) return WEFT_OK;
    WEFT_TRY(weft_model_dir_fingerprint(&r->dir, fingerprint, e));
    weft_model_dir_name(&r->dir, name);
    return weft_packed_find(&r->packed, r->cache.p, name, fingerprint, e);
}

/* ---- as text ------------------------------------------------------------------------------------------------------------- */

/* 1234567 -> "1,234,567" */
static const char *grouped(int64_t n, char buf[32]) {
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n), to = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) buf[to++] = ',';
        buf[to++] = digits[i];
    }
    buf[to] = 0;
    return buf;
}

static const char *packing_text(const packing *p, char buf[64]) {
    if (p->bits)
        snprintf(buf, 64, "%d bits in groups of %d, scales in %s", p->bits, p->group, weft_dtype_name(p->dtype));
    else
        snprintf(buf, 64, "%s", weft_dtype_name(p->dtype));
    return buf;
}

static const char *family(const report *r) {
    return r->dir.config.n_experts ? "qwen3_5_moe" : "qwen3_5";
}
static const char *norms(bool converted) {
    return converted ? "absolute, as converted for MLX" : "zero-centred, as published";
}

static void print_model(const report *r) {
    const weft_model_config *c = &r->dir.config;
    char a[32], b[32];
    printf("model         %s\n", r->dir.path);
    printf("family        %s: %d layers, %d Gated DeltaNet and %d attention\n", family(r), c->n_layers,
           weft_config_count(c, WEFT_LAYER_GDN), weft_config_count(c, WEFT_LAYER_ATTENTION));
    printf("sizes         hidden %d, vocabulary %d, trained for %s tokens\n", c->hidden_size, c->vocab_size,
           grouped(c->max_position, a));
    printf("attention     %d heads, %d of keys and values, %d wide, %d of it rotary\n", c->n_heads, c->full.n_kv_heads,
           c->full.head_dim, c->full.rope.width);
    printf("delta net     %d value heads of %d, %d key heads of %d, convolution over %d\n", c->gdn_v_heads, c->gdn_v_dim,
           c->gdn_k_heads, c->gdn_k_dim, c->conv_kernel);
    if (c->n_experts)
        printf("feed-forward  %d of %d experts, %d wide, and a shared one, %d wide\n", c->top_k, c->n_experts, c->moe_intermediate,
               c->shared_intermediate);
    else
        printf("feed-forward  %d wide\n", c->intermediate_size);
    printf("parameters    %s in the trunk", grouped(r->parameters.trunk, a));
    if (c->n_experts) printf(", %s of them used by a token", grouped(r->parameters.active, b));
    printf("\noutput head   %s\n", r->dir.head ? "a matrix of its own" : "the embedding");
    if (r->dir.mtp)
        printf("MTP head      %s parameters; norms %s%s\n", grouped(r->parameters.mtp, a), norms(r->dir.mtp_converted),
               r->dir.mtp_head ? "; an output head of its own" : "");
    else
        printf("MTP head      none%s\n", c->mtp_layers ? ": the config announces one, but its tensors are not in these files" : "");
    printf("end tokens   ");
    for (int i = 0; i < c->n_eos; i++) printf(" %d", c->eos[i]);
    printf("%s\n\n", c->n_eos ? "" : " none");
}

static void print_weights(const report *r) {
    char bytes[16], text[64];
    printf("weights       %zu tensors, %s; norms %s\n", weft_tensors_count(r->dir.tensors), weft_bytes_text(r->file_bytes, bytes),
           norms(r->dir.converted));
    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < r->n_packings; i++)
            if (r->packings[i].part == (part)p)
                printf("  %-14s%8s  %s\n", part_names[p], weft_bytes_text(r->packings[i].bytes, bytes),
                       packing_text(&r->packings[i], text));
}

static void print_packed(const report *r) {
    char bytes[16];
    uint64_t weights = r->memory[0].weights;
    printf("\npacked        ");
    if (r->packed.valid)
        printf("%s, %s\n", r->packed.path.p, weft_bytes_text(r->packed.bytes, bytes));
    else if (r->packed.path.n)
        printf("%s; the next start makes it anew\n", r->packed.why.text);
    else if (weights < WEFT_PACKED_LEAST)
        printf("at every start: so small a model is packed as quickly as it is read\n");
    else if (r->cache.n)
        printf("not yet: the first start keeps %s in %s\n", weft_bytes_text(weights, bytes), r->cache.p);
    else
        printf("at every start: there is no folder to keep the packed weights in\n");
}

static void print_memory(const report *r) {
    char t[5][16], n[32], trained[32];
    printf("\nmemory         context     total   weights        KV    states\n");
    for (int i = 0; i < r->n_contexts; i++) {
        const weft_memory *m = &r->memory[i];
        printf("              %8d  %8s  %8s  %8s  %8s\n", r->context[i], weft_bytes_text(m->total, t[0]),
               weft_bytes_text(m->weights, t[1]), weft_bytes_text(m->kv, t[2]), weft_bytes_text(m->states, t[3]));
    }
    const weft_memory *m = &r->memory[0];
    if (!m->available)
        printf("verdict       this machine's memory is not known\n");
    else if (m->total <= m->available)
        printf("verdict       fits: this machine has %s, enough for %s tokens of context\n", weft_bytes_text(m->available, t[0]),
               grouped(r->largest, n));
    else
        printf("verdict       does not fit: this machine has %s, a context of %d tokens takes %s\n",
               weft_bytes_text(m->available, t[0]), r->context[0], weft_bytes_text(m->total, t[1]));
    if (r->context[0] > r->dir.config.max_position)
        printf("warning       trained for %s tokens: a context of %s is beyond it\n", grouped(r->dir.config.max_position, trained),
               grouped(r->context[0], n));
}

/* ---- as JSON ------------------------------------------------------------------------------------------------------------- */

static void put_int(struct json_object *o, const char *key, int64_t v) {
    json_object_object_add(o, key, json_object_new_int64(v));
}
static void put_text(struct json_object *o, const char *key, const char *v) {
    json_object_object_add(o, key, v ? json_object_new_string(v) : NULL);
}
static void put_bool(struct json_object *o, const char *key, bool v) {
    json_object_object_add(o, key, json_object_new_boolean(v));
}

static struct json_object *json_weights(const report *r) {
    struct json_object *list = json_object_new_array();
    for (int i = 0; i < r->n_packings; i++) {
        const packing *p = &r->packings[i];
        struct json_object *o = json_object_new_object();
        put_text(o, "part", part_names[p->part]);
        put_text(o, "dtype", weft_dtype_name(p->dtype));
        put_int(o, "bits", p->bits ? p->bits : 8 * (int64_t)weft_dtype_size(p->dtype));
        put_int(o, "group", p->group);
        put_int(o, "modules", p->modules);
        put_int(o, "bytes", (int64_t)p->bytes);
        json_object_array_add(list, o);
    }
    return list;
}

static struct json_object *json_memory(const report *r) {
    struct json_object *list = json_object_new_array();
    for (int i = 0; i < r->n_contexts; i++) {
        const weft_memory *m = &r->memory[i];
        struct json_object *o = json_object_new_object();
        put_int(o, "context", r->context[i]);
        put_int(o, "total", (int64_t)m->total);
        put_int(o, "weights", (int64_t)m->weights);
        put_int(o, "kv", (int64_t)m->kv);
        put_int(o, "states", (int64_t)m->states);
        put_int(o, "workspace", (int64_t)m->workspace);
        json_object_array_add(list, o);
    }
    return list;
}

static int print_json(const report *r) {
    const weft_model_config *c = &r->dir.config;
    struct json_object *o = json_object_new_object();
    put_text(o, "model", r->dir.path);
    put_text(o, "family", family(r));
    put_int(o, "layers", c->n_layers);
    put_int(o, "attention_layers", weft_config_count(c, WEFT_LAYER_ATTENTION));
    put_int(o, "hidden_size", c->hidden_size);
    put_int(o, "vocab_size", c->vocab_size);
    put_int(o, "max_position", c->max_position);
    put_int(o, "experts", c->n_experts);
    put_int(o, "experts_per_token", c->top_k);
    put_int(o, "parameters", r->parameters.trunk);
    put_int(o, "active_parameters", r->parameters.active);
    put_bool(o, "tied_head", !r->dir.head);
    put_bool(o, "converted_norms", r->dir.converted);
    struct json_object *mtp = NULL;
    if (r->dir.mtp) {
        mtp = json_object_new_object();
        put_int(mtp, "parameters", r->parameters.mtp);
        put_bool(mtp, "converted_norms", r->dir.mtp_converted);
        put_bool(mtp, "own_head", r->dir.mtp_head != NULL);
    }
    json_object_object_add(o, "mtp", mtp);
    struct json_object *eos = json_object_new_array();
    for (int i = 0; i < c->n_eos; i++) json_object_array_add(eos, json_object_new_int(c->eos[i]));
    json_object_object_add(o, "eos", eos);
    put_int(o, "tensors", (int64_t)weft_tensors_count(r->dir.tensors));
    put_int(o, "tensor_bytes", (int64_t)r->file_bytes);
    json_object_object_add(o, "weights", json_weights(r));
    struct json_object *packed = NULL;
    if (r->packed.path.n) {
        packed = json_object_new_object();
        put_text(packed, "path", r->packed.path.p);
        put_int(packed, "bytes", (int64_t)r->packed.bytes);
        put_bool(packed, "valid", r->packed.valid);
    }
    json_object_object_add(o, "packed", packed);
    json_object_object_add(o, "memory", json_memory(r));
    put_int(o, "kv_bytes_per_token", (int64_t)r->memory[0].kv_per_token);
    put_int(o, "kv_window_bytes_per_request", (int64_t)r->memory[0].kv_window);
    put_int(o, "state_bytes_per_request", (int64_t)r->memory[0].state_per_request);
    put_int(o, "available", (int64_t)r->memory[0].available);
    put_bool(o, "fits", !r->memory[0].available || r->memory[0].total <= r->memory[0].available);
    put_int(o, "largest_context", r->largest);
    const char *text =
        json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
    int code = text ? WEFT_EXIT_OK : weft_cli_fail("out of memory");
    if (text) puts(text);
    json_object_put(o);
    return code;
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

static weft_status inspect(report *r, const char *path, int64_t context, const weft_config *want, weft_error *e) {
    WEFT_TRY(weft_model_dir_open(&r->dir, path, e));
    WEFT_TRY(find_packed(r, want->cache_dir, e));
    WEFT_TRY(plan(r, context, want, e)); /* checks every tensor against the config */
    WEFT_TRY(add_model(r, e));
    for (size_t i = 0; i < weft_tensors_count(r->dir.tensors); i++) r->file_bytes += weft_tensors_at(r->dir.tensors, i)->bytes;
    r->parameters = count_parameters(&r->dir.config, !r->dir.head);
    char layer[256];
    int inner = r->dir.mtp ? dense_inner(r, path_of(layer, "%slayers.0.", r->dir.mtp)) : 0;
    if (inner) {
        weft_model_config dense = r->dir.config;
        dense.n_experts = 0;
        dense.intermediate_size = inner;
        r->parameters.mtp = count_parameters(&dense, true).mtp;
    }
    return WEFT_OK;
}

int weft_cmd_inspect(int argc, char **argv) {
    bool json = false;
    int64_t context = 0;
    const char *cache = NULL;
    weft_config want = {.max_depth = WEFT_CLI_DEPTH};
    const weft_option options[] = {
        WEFT_FLAG("json", &json, "The same as a JSON object, sizes in bytes."),
        WEFT_INTEGER("context", "N", &context, 0, MAX_CONTEXT, "0: the usual lengths", "Tokens of context to plan memory for."),
        WEFT_ISA_OPTION(&want.isa),
        WEFT_PRECISE_OPTION(&want.precise),
        WEFT_KV_OPTION(&want.kv),
        WEFT_CACHE_OPTION(&cache),
        WEFT_END,
    };
    const weft_command command = {
        .name = "inspect",
        .positional = "MODEL",
        .least = 1,
        .most = 1,
        .summary = "Says what a model folder holds, checks that its tensors fit its config, and plans its memory for one request "
                   "at a time. Nothing is loaded.",
        .options = options,
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    report r = {0};
    weft_error e;
    want.cache_dir = weft_cli_cache(cache);
    if (inspect(&r, argv[0], context, &want, &e) != WEFT_OK)
        code = weft_cli_fail("%s", e.text);
    else if (json)
        code = print_json(&r);
    else {
        print_model(&r);
        print_weights(&r);
        print_packed(&r);
        print_memory(&r);
        code = WEFT_EXIT_OK;
    }
    weft_model_dir_close(&r.dir);
    weft_str_free(&r.cache);
    weft_str_free(&r.packed.path);
    return code;
}

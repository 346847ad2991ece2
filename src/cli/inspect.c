/* inspect.c: `weft inspect`: what a model folder holds, how its weights are packed, and the memory it takes. Every tensor's shape
 * is checked on the way and only a few small ones are read: a folder of 50 GB takes a moment. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/dirs.h"
#include "base/num.h"
#include "cli/cli.h"
#include "format/model_dir.h"
#include "model/model.h"
#include "ops/cpu/packed.h"
#include "weft.h"

enum { FORMATS = 24, CONTEXTS = 6, MAX_CONTEXT = 1 << 22 };

/* What of the network a weight belongs to. */
typedef enum part {
    EMBEDDING,
    LAYER_INPUTS,
    HEAD,
    ATTENTION,
    DELTA_NET,
    MAMBA,
    FEED_FORWARD,
    EXPERTS,
    SHARED_EXPERT,
    ROUTER,
    MTP,
    PARTS
} part;
static const char *const part_names[PARTS] = {"embedding",    "layer inputs", "output head",   "attention", "delta net", "mamba",
                                              "feed-forward", "experts",      "shared expert", "router",    "MTP head"};

typedef struct packing { /* weights of one part that are packed alike */
    part part;
    weft_dtype dtype;
    int bits, group;
    int modules;
    uint64_t bytes; /* in the files */
} packing;

typedef struct report {
    weft_model_dir dir;
    int64_t parameters, routed, mtp; /* of the trunk; of these, of experts that a router chooses; of the MTP head */
    uint64_t file_bytes;             /* of all tensors, those that are not used too */
    packing packings[FORMATS];
    int n_packings;
    int context[CONTEXTS];
    weft_memory memory[CONTEXTS];
    int n_contexts;
    weft_str cache; /* where packed weights are kept; empty: nowhere */
    weft_packed_info packed;
    int64_t largest; /* context that fits into this machine's memory, at most what was trained or asked for; 0: none */
} report;

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* The first of these that a path holds says where it belongs. Every family's names are among them. */
static const struct {
    const char *name;
    part part;
} names[] = {
    {".shared_expert_gate", ROUTER},
    {".shared_expert", SHARED_EXPERT}, /* and shared_experts */
    {".experts.", EXPERTS},
    {".switch_mlp.", EXPERTS},
    {"_latent_proj", EXPERTS},
    {".router.", ROUTER},
    {"embed_tokens_per_layer", LAYER_INPUTS},
    {".per_layer_", LAYER_INPUTS},
    {"embed_tokens", EMBEDDING},
    {"embeddings", EMBEDDING},
    {".linear_attn.", DELTA_NET},
    {".self_attn.", ATTENTION},
    {".mixer.in_proj", MAMBA},
    {".mixer.out_proj", MAMBA},
    {".mixer.q_proj", ATTENTION},
    {".mixer.k_proj", ATTENTION},
    {".mixer.v_proj", ATTENTION},
    {".mixer.o_proj", ATTENTION},
};

static part part_of(const report *r, const char *path) {
    const char *trunk = r->dir.trunk, *mtp = r->dir.mtp;
    if (r->dir.head && strcmp(path, r->dir.head) == 0) return HEAD;
    if (mtp && (*mtp ? weft_starts_with(path, mtp) : !weft_starts_with(path, trunk))) return MTP;
    if (r->dir.mtp_head && strcmp(path, r->dir.mtp_head) == 0) return MTP;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(path, names[i].name)) return names[i].part;
    return weft_ends_with(path, ".gate") ? ROUTER : FEED_FORWARD;
}

static void add(void *ctx, const char *path, const weft_weight *w, int64_t n) {
    report *r = ctx;
    part p = part_of(r, path);
    if (p == MTP) {
        r->mtp += n;
    } else {
        r->parameters += n;
        if (p == EXPERTS && !strstr(path, "_latent_proj")) r->routed += n;
    }
    if (!w) return;
    int i = 0;
    while (i < r->n_packings && (r->packings[i].part != p || r->packings[i].dtype != w->dtype || r->packings[i].bits != w->bits ||
                                 r->packings[i].group != w->group))
        i++;
    if (i == FORMATS) i--; /* more ways of packing than anybody uses: the last line counts the rest */
    if (i == r->n_packings)
        r->packings[r->n_packings++] = (packing){.part = p, .dtype = w->dtype, .bits = w->bits, .group = w->group};
    r->packings[i].modules++;
    r->packings[i].bytes += w->values->bytes + (w->scales ? w->scales->bytes + w->biases->bytes : 0);
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
    if (r->largest > most || (m->available > fixed && !m->kv_per_token)) r->largest = most; /* nothing grows with the context */
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

/* Numbers of the trunk that one token uses: all but the experts that are not chosen. */
static int64_t active(const report *r) {
    const weft_model_config *c = &r->dir.config;
    return c->n_experts ? r->parameters - r->routed / c->n_experts * (c->n_experts - c->top_k) : r->parameters;
}

static const struct {
    weft_layer_kind kind;
    const char *name;
} kinds[] = {
    {WEFT_LAYER_GDN, "Gated DeltaNet"},        {WEFT_LAYER_MAMBA, "Mamba-2"}, {WEFT_LAYER_ATTENTION, "attention"},
    {WEFT_LAYER_SLIDING, "sliding attention"}, {WEFT_LAYER_MLP, "MLP"},       {WEFT_LAYER_MOE, "experts"},
};

static void print_heads(const char *label, int n_heads, const weft_heads *h) {
    printf("%-14s%d heads, %d of keys and values, %d wide", label, n_heads, h->n_kv_heads, h->head_dim);
    if (h->rope.kind == WEFT_ROPE_NONE)
        puts(", without positions");
    else
        printf(", %d of it rotary\n", 2 * h->rope.turning < h->rope.width ? 2 * h->rope.turning : h->rope.width);
}
/* Where a family stores gains less one and converters change that, it matters. */
static const char *norms(const report *r, bool converted) {
    if (r->dir.config.family != WEFT_FAMILY_QWEN_HYBRID) return "";
    return converted ? "; norms absolute, as converted for MLX" : "; norms zero-centred, as published";
}

static void print_model(const report *r) {
    const weft_model_config *c = &r->dir.config;
    char a[32], b[32];
    printf("model         %s\n", r->dir.path);
    printf("family        %s: %d layers", c->type, c->n_layers);
    const char *before = ": ";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int n = weft_config_count(c, kinds[i].kind);
        if (!n) continue;
        printf("%s%d %s", before, n, kinds[i].name);
        before = ", ";
    }
    printf("\nsizes         hidden %d, vocabulary %d, trained for %s tokens\n", c->hidden_size, c->vocab_size,
           grouped(c->max_position, a));
    if (weft_config_count(c, WEFT_LAYER_ATTENTION)) print_heads("attention", c->n_heads, &c->full);
    if (c->window) {
        print_heads("sliding", c->n_heads, &c->sliding);
        printf("window        %d tokens\n", c->window);
    }
    if (weft_config_count(c, WEFT_LAYER_GDN))
        printf("delta net     %d value heads of %d, %d key heads of %d, convolution over %d\n", c->gdn_v_heads, c->gdn_v_dim,
               c->gdn_k_heads, c->gdn_k_dim, c->conv_kernel);
    if (weft_config_count(c, WEFT_LAYER_MAMBA))
        printf("mamba         %d heads of %d, states of %d, %d groups, convolution over %d\n", c->mamba_heads, c->mamba_head_dim,
               c->mamba_state, c->mamba_groups, c->conv_kernel);
    if (c->intermediate_size) printf("feed-forward  %d wide\n", c->intermediate_size);
    if (c->n_experts) {
        printf("experts       %d of %d, %d wide", c->top_k, c->n_experts, c->moe_intermediate);
        if (c->moe_latent) printf(", on %d latent columns", c->moe_latent);
        if (c->shared_intermediate) printf(", and a shared one, %d wide", c->shared_intermediate);
        putchar('\n');
    }
    printf("parameters    %s in the trunk", grouped(r->parameters, a));
    if (c->n_experts) printf(", %s of them used by a token", grouped(active(r), b));
    printf("\noutput head   %s\n", r->dir.headless ? "none: texts become vectors"
                                   : r->dir.head   ? "a matrix of its own"
                                                   : "the embedding");
    if (r->dir.mtp)
        printf("MTP head      %s parameters%s%s\n", grouped(r->mtp, a), norms(r, r->dir.mtp_converted),
               r->dir.mtp_head ? "; an output head of its own" : "");
    else
        printf("MTP head      none%s\n", c->mtp_layers ? ": the config announces one, but its tensors are not in these files" : "");
    printf("end tokens   ");
    for (int i = 0; i < c->n_eos; i++) printf(" %d", c->eos[i]);
    printf("%s\n\n", c->n_eos ? "" : " none");
}

static void print_weights(const report *r) {
    char bytes[16], text[64];
    printf("weights       %zu tensors, %s%s\n", weft_tensors_count(r->dir.tensors), weft_bytes_text(r->file_bytes, bytes),
           norms(r, r->dir.converted));
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
    put_text(o, "family", c->type);
    put_int(o, "layers", c->n_layers);
    put_int(o, "attention_layers", weft_config_count(c, WEFT_LAYER_ATTENTION));
    put_int(o, "sliding_layers", weft_config_count(c, WEFT_LAYER_SLIDING));
    put_int(o, "recurrent_layers", weft_config_count(c, WEFT_LAYER_GDN) + weft_config_count(c, WEFT_LAYER_MAMBA));
    put_int(o, "window", c->window);
    put_int(o, "hidden_size", c->hidden_size);
    put_int(o, "vocab_size", c->vocab_size);
    put_int(o, "max_position", c->max_position);
    put_int(o, "experts", c->n_experts);
    put_int(o, "experts_per_token", c->top_k);
    put_int(o, "parameters", r->parameters);
    put_int(o, "active_parameters", active(r));
    put_bool(o, "tied_head", !r->dir.head && !r->dir.headless);
    put_bool(o, "converted_norms", r->dir.converted);
    struct json_object *mtp = NULL;
    if (r->dir.mtp) {
        mtp = json_object_new_object();
        put_int(mtp, "parameters", r->mtp);
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
    WEFT_TRY(weft_model_list(&r->dir, add, r, e));
    for (size_t i = 0; i < weft_tensors_count(r->dir.tensors); i++) r->file_bytes += weft_tensors_at(r->dir.tensors, i)->bytes;
    return WEFT_OK;
}

int weft_cmd_inspect(int argc, char **argv) {
    bool json = false;
    int64_t context = 0;
    const char *cache = NULL;
    weft_config want = {.max_depth = WEFT_MAX_DEPTH}; /* what `weft run` makes room for */
    const weft_option options[] = {
        WEFT_FLAG("json", &json, "The same as a JSON object, sizes in bytes."),
        WEFT_INTEGER("context", "N", &context, 0, MAX_CONTEXT, "0: the usual lengths", "Tokens of context to plan memory for."),
        WEFT_DRAFT_OPTION(&want.draft),
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

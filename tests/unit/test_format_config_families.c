/* test_format_config_families.c: what is read from the configs of every family: of tiny models as transformers 5 writes them, and
 * of published models in the spellings of their time (the seeds of the config fuzzer). */
#include "format_files.h"

#include "format/config.h"

static char *read_seed(const char *name) {
    char path[200];
    weft_error e;
    char *text;
    size_t n;
    snprintf(path, sizeof path, "tests/fuzz/corpus/config/%s.json", name);
    if (weft_file_read(path, 1 << 20, &text, &n, &e) != WEFT_OK) fail_msg("%s", e.text);
    char *copy = calloc(n + 1, 1);
    memcpy(copy, text, n);
    weft_free(text);
    return copy;
}

static weft_model_config good(const char *text) {
    weft_model_config c;
    weft_error e;
    if (weft_model_config_parse(&c, text, strlen(text), NULL, 0, &e) != WEFT_OK) fail_msg("%s", e.text);
    return c;
}

static void refused(const char *text, weft_status st, const char *says) {
    weft_model_config c;
    weft_error e;
    assert_says(weft_model_config_parse(&c, text, strlen(text), NULL, 0, &e), &e, st, says);
    assert_null(c.arena.head);
}

static void refused_swap(const char *seed, const char *from, const char *to, weft_status st, const char *says) {
    char *text = read_seed(seed), *other = swap(text, from, to);
    refused(other, st, says);
    free(other);
    free(text);
}

static weft_model_config good_swap(const char *seed, const char *from, const char *to) {
    char *text = read_seed(seed), *other = swap(text, from, to);
    weft_model_config c = good(other);
    free(other);
    free(text);
    return c;
}

/* ---- a config as a line of text ------------------------------------------------------------------------------------------ */

static char line[2000];
static void say(const char *fmt, ...) WEFT_PRINTF(1, 2);
static void say(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    size_t n = strlen(line);
    vsnprintf(line + n, sizeof line - n, fmt, ap);
    va_end(ap);
}

static void say_heads(const char *name, const weft_heads *h) {
    static const char *const kinds[] = {"none", "default", "linear", "llama3", "yarn", "proportional"};
    const weft_rope *r = &h->rope;
    say("%s %dx%d %s", name, h->n_kv_heads, h->head_dim, kinds[r->kind]);
    if (r->kind != WEFT_ROPE_NONE) say(" %g %d/%d", r->theta, r->turning, r->width);
    if (r->factor != 1) say(" factor %g", r->factor);
    if (r->kind == WEFT_ROPE_LLAMA3) say(" %g %g of %g", r->low_freq_factor, r->high_freq_factor, r->original_context);
    if (r->kind == WEFT_ROPE_YARN)
        say(" %g %g of %g times %.4f", r->beta_fast, r->beta_slow, r->original_context, r->attention_factor);
    say("; ");
}

static const char *describe(const weft_model_config *c) {
    static const char *const families[] = {"qwen-hybrid", "llama", "gemma3", "gemma4", "assistant", "nemotron"};
    static const char *const activations[] = {"silu", "gelu", "relu2"};
    line[0] = 0;
    say("%s %s ", families[c->family], c->type);
    for (int i = 0; i < c->n_layers; i++) say("%c", "gM*s-E"[c->layer_kind[i]]);
    say("; %d %d %d %d %g; %d heads, ", c->hidden_size, c->intermediate_size, c->vocab_size, c->max_position, (double)c->norm_eps,
        c->n_heads);
    say_heads("full", &c->full);
    if (c->window) say_heads("sliding", &c->sliding);
    if (c->window) say("window %d; ", c->window);
    say("scale %.4f; %s", (double)c->attention_scale, activations[c->activation]);
    if (c->logit_cap != 0) say(" cap %g", (double)c->logit_cap);
    say("%s%s%s%s%s%s", c->qkv_bias ? " qkv-bias" : "", c->o_bias ? " o-bias" : "", c->mlp_bias ? " mlp-bias" : "",
        c->qk_norm ? " qk-norm" : "", c->k_eq_v ? " k=v" : "", c->double_wide_mlp ? " double-wide" : "");
    if (c->kv_shared_layers) say(" shared %d", c->kv_shared_layers);
    if (c->layer_inputs) say(" inputs %d", c->layer_inputs);
    if (c->gdn_k_heads) say("; gdn %dx%d %dx%d", c->gdn_k_heads, c->gdn_k_dim, c->gdn_v_heads, c->gdn_v_dim);
    if (c->mamba_heads)
        say("; mamba %dx%d %dx%d%s %g..%g", c->mamba_heads, c->mamba_head_dim, c->mamba_groups, c->mamba_state,
            c->mamba_conv_bias ? " bias" : "", c->dt_low, c->dt_high);
    if (c->conv_kernel) say(" taps %d", c->conv_kernel);
    if (c->n_experts)
        say("; %d of %d experts %d shared %d latent %d%s%s %d/%d times %g", c->top_k, c->n_experts, c->moe_intermediate,
            c->shared_intermediate, c->moe_latent, c->norm_topk ? " norm" : "", c->sigmoid_router ? " sigmoid" : "",
            c->router_top_groups, c->router_groups, (double)c->routed_scale);
    if (c->mtp_layers) say("; mtp");
    if (c->backbone_hidden) say("; backbone %d centroids %d/%d", c->backbone_hidden, c->centroid_top, c->n_centroids);
    say("; tie %s; eos", c->tie == WEFT_TIE_YES ? "yes" : c->tie == WEFT_TIE_NO ? "no" : "unsaid");
    for (int i = 0; i < c->n_eos; i++) say(" %d", c->eos[i]);
    return line;
}

static void test_known(void **state) {
    (void)state;
    static const struct {
        const char *seed, *is;
    } known[] = {
        {"gemma3-4b",
         "gemma3 gemma3_text sssss*sssss*sssss*sssss*sssss*ssss; 2560 10240 262208 131072 1e-06; 8 heads, full 4x256 linear 1e+06 "
         "128/256 factor 8; sliding 4x256 default 10000 128/256; window 1024; scale 0.0625; gelu qk-norm; tie unsaid; eos 1 106"},
        {"gemma4-26b", "gemma4 gemma4_text sssss*sssss*sssss*sssss*sssss*; 2816 2112 262144 262144 1e-06; 16 heads, full 2x512 "
                       "proportional 1e+06 64/512; sliding 8x256 default 10000 128/256; window 1024; scale 1.0000; gelu cap 30 "
                       "qk-norm k=v; 8 of 128 experts 704 shared 0 latent 0 norm 1/1 times 1; tie yes; eos"},
        {"gemma4-e2b", "gemma4 gemma4_text ssss*ssss*ssss*ssss*ssss*ssss*ssss*; 1536 6144 262144 131072 1e-06; 8 heads, full 1x512 "
                       "proportional 1e+06 64/512; sliding 1x256 default 10000 128/256; window 512; scale 1.0000; gelu cap 30 "
                       "qk-norm double-wide shared 20 inputs 256; tie yes; eos 1 106"},
        {"llama31-8b", "llama llama ********************************; 4096 14336 128256 131072 1e-05; 32 heads, full 8x128 llama3 "
                       "500000 64/128 factor 8 1 4 of 8192; scale 0.0884; silu; tie no; eos 128001 128008 128009"},
        {"mistral", "llama mistral ********************************; 4096 14336 32768 32768 1e-05; 32 heads, full 8x128 default "
                    "1e+06 64/128; scale 0.0884; silu; tie no; eos 2"},
        {"nemotron3-nano", "nemotron nemotron_h MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME; 2688 0 131072 262144 1e-05; "
                           "32 heads, full 2x128 none; scale 0.0884; relu2; mamba 64x64 8x128 bias 0..inf taps 4; 6 of 128 experts "
                           "1856 shared 3712 latent 0 norm sigmoid 1/1 times 2.5; tie no; eos 2"},
        {"nemotron3-super",
         "nemotron nemotron_h MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME; 4096 0 "
         "131072 262144 1e-05; 32 heads, full 2x128 none; scale 0.0884; relu2; mamba 128x64 8x128 bias 0..inf taps 4; 22 of 512 "
         "experts 2688 shared 5376 latent 1024 norm sigmoid 1/1 times 5; mtp; tie no; eos 2 11"},
        {"qwen25-7b", "llama qwen2 ****************************; 3584 18944 152064 32768 1e-06; 28 heads, full 4x128 default 1e+06 "
                      "64/128; scale 0.0884; silu qkv-bias; tie no; eos 151645"},
        {"qwen3-8b-yarn", "llama qwen3 ************************************; 4096 12288 151936 131072 1e-06; 32 heads, full 8x128 "
                          "yarn 1e+06 64/128 factor 4 32 1 of 32768 times 1.1386; scale 0.0884; silu qk-norm; tie no; eos 151645"},
        {"qwen3-embedding", "llama qwen3 ****************************; 1024 3072 151669 32768 1e-06; 16 heads, full 8x128 default "
                            "1e+06 64/128; scale 0.0884; silu qk-norm; tie yes; eos 151643"},
        {"qwen3-next", "qwen-hybrid qwen3_next ggg*ggg*ggg*ggg*ggg*ggg*ggg*ggg*ggg*ggg*ggg*ggg*; 2048 0 151936 262144 1e-06; 16 "
                       "heads, full 2x256 default 1e+07 32/64; scale 0.0625; silu qk-norm; gdn 16x128 32x128 taps 4; 10 of 512 "
                       "experts 512 shared 512 latent 0 norm 1/1 times 1; mtp; tie no; eos 151645"},
        {"tiny-gemma3", "gemma3 gemma3_text sssss*; 64 160 320 4096 1e-06; 4 heads, full 2x32 default 1e+06 16/32; sliding 2x32 "
                        "default 10000 16/32; window 32; scale 0.1768; gelu qk-norm; tie yes; eos 1"},
        {"tiny-gemma4-assistant",
         "assistant gemma4_assistant sss*; 32 160 320 4096 1e-06; 4 heads, full 2x32 proportional 1e+06 4/32; sliding 2x16 default "
         "10000 8/16; window 32; scale 1.0000; gelu qk-norm shared 4; backbone 64 centroids 0/0; tie yes; eos 1"},
        {"tiny-gemma4-assistant-ordered",
         "assistant gemma4_assistant sss*; 32 160 320 4096 1e-06; 4 heads, full 2x32 proportional 1e+06 4/32; sliding 2x16 default "
         "10000 8/16; window 32; scale 1.0000; gelu qk-norm shared 4; backbone 64 centroids 4/16; tie yes; eos 1"},
        {"tiny-gemma4-dense", "gemma4 gemma4_text sssss*; 64 160 320 4096 1e-06; 4 heads, full 2x32 proportional 1e+06 4/32; "
                              "sliding 2x16 default 10000 8/16; window 32; scale 1.0000; gelu cap 30 qk-norm; tie yes; eos 1"},
        {"tiny-gemma4-keqv", "gemma4 gemma4_text sssss*; 64 160 320 4096 1e-06; 4 heads, full 1x32 proportional 1e+06 4/32; "
                             "sliding 2x16 default 10000 8/16; window 32; scale 1.0000; gelu cap 30 qk-norm k=v; tie yes; eos 1"},
        {"tiny-gemma4-moe", "gemma4 gemma4_text sssss*; 64 160 320 4096 1e-06; 4 heads, full 2x32 proportional 1e+06 4/32; sliding "
                            "2x16 default 10000 8/16; window 32; scale 1.0000; gelu cap 30 qk-norm; 2 of 8 experts 48 shared 0 "
                            "latent 0 norm 1/1 times 1; tie yes; eos 1"},
        {"tiny-gemma4-ple",
         "gemma4 gemma4_text s*s*s*; 64 160 320 4096 1e-06; 4 heads, full 2x32 proportional 1e+06 4/32; sliding 2x16 default 10000 "
         "8/16; window 32; scale 1.0000; gelu cap 30 qk-norm double-wide shared 2 inputs 16; tie yes; eos 1"},
        {"tiny-llama3", "llama llama ****; 64 160 320 4096 1e-06; 4 heads, full 2x16 llama3 500000 8/16 factor 8 1 4 of 64; scale "
                        "0.2500; silu; tie no; eos 2"},
        {"tiny-nemotron_h-dense", "nemotron nemotron_h M-M*-M; 64 160 320 4096 1e-05; 4 heads, full 2x16 none; scale 0.2500; "
                                  "relu2; mamba 8x16 2x16 bias 0..inf taps 4; tie no; eos 2"},
        {"tiny-nemotron_h-latent",
         "nemotron nemotron_h ME*ME; 64 0 320 4096 1e-05; 4 heads, full 2x16 none; scale 0.2500; relu2; mamba 8x16 2x16 bias "
         "0..inf taps 4; 2 of 8 experts 48 shared 64 latent 32 norm sigmoid 1/1 times 2.5; tie no; eos 2"},
        {"tiny-nemotron_h-moe",
         "nemotron nemotron_h ME*ME; 64 0 320 4096 1e-05; 4 heads, full 2x16 none; scale 0.2500; relu2; mamba 8x16 2x16 bias "
         "0..inf taps 4; 2 of 8 experts 48 shared 64 latent 0 norm sigmoid 1/1 times 2.5; tie no; eos 2"},
        {"tiny-nemotron_h-mtp",
         "nemotron nemotron_h ME*ME; 64 0 320 4096 1e-05; 4 heads, full 2x16 none; scale 0.2500; relu2; mamba 8x16 2x16 bias "
         "0..inf taps 4; 2 of 8 experts 48 shared 64 latent 32 norm sigmoid 1/1 times 2.5; mtp; tie no; eos 2"},
        {"tiny-qwen2", "llama qwen2 ****; 64 160 320 4096 1e-06; 4 heads, full 2x16 default 10000 8/16; scale 0.2500; silu "
                       "qkv-bias; tie yes; eos"},
        {"tiny-qwen3-dense", "llama qwen3 ****; 64 160 320 4096 1e-06; 4 heads, full 2x32 default 10000 16/32; scale 0.1768; silu "
                             "qk-norm; tie no; eos"},
        {"tiny-qwen3-moe", "llama qwen3_moe ****; 64 0 320 4096 1e-06; 4 heads, full 2x32 default 10000 16/32; scale 0.1768; silu "
                           "qk-norm; 2 of 8 experts 48 shared 0 latent 0 norm 1/1 times 1; tie no; eos"},
        {"tiny-qwen3_5-dense", "qwen-hybrid qwen3_5_text ggg*ggg*; 64 160 320 4096 1e-06; 4 heads, full 2x32 default 1e+07 4/8; "
                               "scale 0.1768; silu qk-norm; gdn 2x16 4x16 taps 4; mtp; tie no; eos"},
        {"tiny-qwen3_5-dense-odd", "qwen-hybrid qwen3_5_text ggg*; 96 200 320 4096 1e-06; 6 heads, full 2x24 default 1e+07 6/12; "
                                   "scale 0.2041; silu qk-norm; gdn 3x20 6x28 taps 4; mtp; tie no; eos"},
        {"tiny-qwen3_5-dense-tied", "qwen-hybrid qwen3_5_text ggg*; 64 160 320 4096 1e-06; 4 heads, full 1x32 default 1e+07 4/8; "
                                    "scale 0.1768; silu qk-norm; gdn 4x16 4x16 taps 4; mtp; tie yes; eos"},
        {"tiny-qwen3_5-moe",
         "qwen-hybrid qwen3_5_moe_text ggg*; 64 0 320 4096 1e-06; 4 heads, full 2x32 default 1e+07 4/8; scale 0.1768; silu "
         "qk-norm; gdn 2x16 4x16 taps 4; 2 of 8 experts 48 shared 48 latent 0 norm 1/1 times 1; mtp; tie no; eos"},
        {"tiny-qwen3_next",
         "qwen-hybrid qwen3_next ggg*; 64 0 320 4096 1e-06; 4 heads, full 2x32 default 10000 4/8; scale 0.1768; silu qk-norm; gdn "
         "2x16 4x16 taps 4; 2 of 8 experts 48 shared 48 latent 0 norm 1/1 times 1; mtp; tie no; eos"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char *text = read_seed(known[i].seed);
        weft_model_config c = good(text);
        assert_string_equal(describe(&c), known[i].is);
        if (!c.window) assert_memory_equal(&c.full, &c.sliding, sizeof c.full);
        weft_model_config_free(&c);
        free(text);
    }
}

/* A piece of a seed replaced: what is then said of the model. */
typedef struct turn {
    const char *seed, *from, *to, *says;
} turn;

static void test_spellings(void **state) {
    (void)state;
    static const turn same[] = {
        /* layers by name, by interval, by pattern */
        {"tiny-gemma3", "\"layer_types\": [", "\"was\": [", "gemma3_text sssss*;"},
        {"tiny-gemma3", "\"_sliding_window_pattern\": 6, ", "", "gemma3_text sssss*;"},
        {"gemma3-4b", "\"sliding_window\": 1024", "\"sliding_window\": 1024, \"sliding_window_pattern\": 2", "text s*s*s*"},
        {"gemma3-4b", "\"sliding_window\": 1024", "\"sliding_window\": null", "gemma3_text **********************************;"},
        {"gemma3-4b", ", \"sliding_window\": 1024", "", "window 4096;"},
        {"gemma4-26b", "\"sliding_window\": 1024", "\"sliding_window\": null", "gemma4_text ******************************; "},
        {"nemotron3-nano", "\"hybrid_override_pattern\": \"MEMEM*",
         "\"intermediate_size\": 8, \"hybrid_override_pattern\": \"M-*E\", \"x\": \"", "h M-*E;"},
        {"tiny-nemotron_h-dense", "\"linear_attention\", \"mlp\", \"linear_attention\", \"full_attention\"",
         "\"mamba\", \"mlp\", \"mamba\", \"attention\"", "nemotron_h M-M*-M;"},
        {"tiny-qwen3_next", "\"layer_types\": [", "\"full_attention_interval\": 2, \"was\": [", "qwen3_next g*g*;"},
        /* RoPE */
        {"gemma3-4b", "\"sliding_window\"", "\"rope_local_base_freq\": 5000, \"rope_theta\": 7e5, \"sliding_window\"",
         "linear 700000 128/256 factor 8; sliding 4x256 default 5000"},
        {"llama31-8b", "\"rope_type\": \"llama3\"", "\"type\": \"llama3\"", "llama3 500000 64/128 factor 8 1 4 of 8192"},
        {"llama31-8b", "\"rope_theta\": 500000.0, ", "", "llama3 10000 64/128 factor 8 1 4 of 8192"},
        {"mistral", "\"rope_theta\": 1000000.0", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}",
         "linear 10000 64/128 factor 2.5;"},
        {"qwen3-8b-yarn", ", \"original_max_position_embeddings\": 32768",
         ", \"attention_factor\": 1.5, \"beta_fast\": 16, \"beta_slow\": 2",
         "151936 163840 1e-06; 32 heads, full 8x128 yarn 1e+06 64/128 factor 4 16 2 of 40960 times 1.5000"},
        {"qwen3-8b-yarn", "\"factor\": 4.0, \"original_max_position_embeddings\": 32768", "\"factor\": 1",
         "yarn 1e+06 64/128 32 1 of 40960 times 1.0000"},
        {"tiny-gemma4-dense", "\"partial_rotary_factor\": 0.25", "\"factor\": 2, \"partial_rotary_factor\": 0.5",
         "proportional 1e+06 8/32 factor 2"},
        {"tiny-gemma3", "\"rope_parameters\"", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}, \"rope_parameters\"",
         "full 2x32 default 1e+06 16/32; sliding 2x32 default 10000 16/32;"},
        /* heads */
        {"qwen25-7b", "\"num_key_value_heads\": 4, ", "", "28 heads, full 28x128"},
        {"tiny-gemma4-dense", "\"per_layer_config\": {\"5\": {\"head_dim\": 32}}",
         "\"global_head_dim\": 64, \"num_global_key_value_heads\": 1", "full 2x64 proportional 1e+06 8/64; sliding 2x16"},
        {"tiny-gemma4-keqv", "\"per_layer_config\": {\"5\": {\"head_dim\": 32, \"num_key_value_heads\": 1}}",
         "\"global_head_dim\": 64, \"num_global_key_value_heads\": 4", "full 4x64 proportional 1e+06 8/64; sliding 2x16"},
        {"tiny-gemma4-ple", "\"1\": {\"head_dim\": 32}, \"3\": {\"head_dim\": 32}, \"5\": {\"head_dim\": 32}",
         "\"0\": {\"num_key_value_heads\": 4}, \"2\": {\"num_key_value_heads\": 4}, \"4\": {\"num_key_value_heads\": 4}",
         "full 2x16 proportional 1e+06 2/16; sliding 4x16"},
        /* biases and windows that are named and not used */
        {"llama31-8b", "\"attention_bias\": false, \"mlp_bias\": false", "\"attention_bias\": true, \"mlp_bias\": true",
         "silu qkv-bias o-bias mlp-bias;"},
        {"tiny-qwen3-dense", "\"attention_bias\": false", "\"attention_bias\": true", "silu qkv-bias o-bias qk-norm;"},
        {"qwen25-7b", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "qwen2 ****************************;"},
        /* mixtures */
        {"tiny-qwen3-moe", "\"num_local_experts\"", "\"num_experts\"", "2 of 8 experts"},
        {"tiny-qwen3-moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false", "experts 48 shared 0 latent 0 1/1"},
        {"tiny-gemma4-moe", "\"num_experts\": 8, \"top_k_experts\"", "\"num_local_experts\": 8, \"num_experts_per_tok\"",
         "2 of 8 experts"},
        {"tiny-nemotron_h-moe", "\"n_shared_experts\": 1", "\"n_shared_experts\": 2", "shared 128 "},
        {"tiny-nemotron_h-moe", "\"n_shared_experts\": 1", "\"n_shared_experts\": 0", "shared 0 "},
        {"tiny-nemotron_h-moe", "\"n_group\": 1", "\"n_group\": 4", " sigmoid 1/4 times 2.5"},
        /* the rest */
        {"tiny-nemotron_h-moe", "[0.0, Infinity]", "[0.001, 100]", "bias 0.001..100"},
        {"tiny-nemotron_h-moe", "Infinity", "{\"__float__\": \"Infinity\"}", "bias 0..inf"},
        {"tiny-nemotron_h-moe", "\"use_conv_bias\": true", "\"use_conv_bias\": false", "mamba 8x16 2x16 0..inf"},
        {"tiny-nemotron_h-moe", "\"layer_norm_epsilon\": 1e-05", "\"norm_eps\": 1e-4", "0.0001;"},
        {"tiny-nemotron_h-mtp", "\"mtp_layers_block_type\": [\"full_attention\"", "\"mtp_layers_block_type\": [\"attention\"",
         "; mtp"},
        {"tiny-gemma3", "\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 20", "gelu cap 20"},
        {"tiny-gemma3", "\"query_pre_attn_scalar\": 32", "\"query_pre_attn_scalar\": 16", "scale 0.2500"},
        {"tiny-gemma4-assistant", "\"gemma4_assistant\"", "\"gemma4_unified_assistant\"", "assistant gemma4_unified_assistant"},
        {"tiny-qwen3_5-dense", "\"head_dim\": 32", "\"output_gate_type\": \"swish\", \"head_dim\": 32", "qwen3_5_text"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        weft_model_config c = good_swap(same[i].seed, same[i].from, same[i].to);
        if (!strstr(describe(&c), same[i].says)) fail_msg("%zu: '%s' is not in '%s'", i, same[i].says, line);
        weft_model_config_free(&c);
    }
}

static void test_other_arithmetic_is_refused(void **state) {
    (void)state;
    static const turn bad[] = {
        {"qwen3-8b-yarn", "\"yarn\"", "\"longrope\"", "'rope_scaling.rope_type' is 'longrope', which is not supported; default, "},
        {"qwen3-8b-yarn", "\"factor\": 4.0", "\"factor\": 4.0, \"mscale\": 1.0", "'rope_scaling.mscale' is set"},
        {"qwen3-8b-yarn", "\"factor\": 4.0", "\"factor\": 4.0, \"truncate\": false", "'rope_scaling.truncate' is false"},
        {"mistral", "\"sliding_window\": null", "\"sliding_window\": 4096", "'sliding_window' is set, which is not supported"},
        {"qwen25-7b",
         "28, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, \"sliding_window\": 131072, "
         "\"use_sliding_window\": false",
         "21, \"rope_theta\": 1, \"sliding_window\": 131072, \"use_sliding_window\": true", "'sliding_window' is set"},
        {"tiny-qwen3-dense", "[\"full_attention\"", "[\"sliding_attention\"", "calls layer 0 'sliding_attention'"},
        {"tiny-qwen3-dense", "\"head_dim\": 32", "\"is_causal\": false, \"head_dim\": 32", "'is_causal' is false"},
        {"llama31-8b", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"",
         "'hidden_act' is 'gelu', which is not supported; 'silu' is"},
        {"tiny-qwen3-moe", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [1]", "some layers without experts"},
        {"tiny-gemma3", "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0", "'attn_logit_softcapping' is set"},
        {"tiny-gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true",
         "'use_bidirectional_attention' is true"},
        {"tiny-gemma3", "gelu_pytorch_tanh", "gelu", "'hidden_activation' is 'gelu'"},
        {"gemma4-26b", "\"vision\"", "\"all\"", "'text_config.use_bidirectional_attention' is 'all'"},
        {"tiny-gemma4-ple", "\"3\": {\"head_dim\": 32}", "\"3\": {\"head_dim\": 64}",
         "'per_layer_config.3' differs from the full layers"},
        {"tiny-gemma4-ple", "\"3\": {\"head_dim\": 32}, ", "", "'per_layer_config.3' differs from the full layers"},
        {"tiny-gemma4-ple", "\"1\": {", "\"2\": {\"head_dim\": 8}, \"1\": {",
         "'per_layer_config.2' differs from the sliding layers"},
        {"tiny-gemma4-ple", "\"3\": {", "\"3\": {\"intermediate_size\": 8, ",
         "'per_layer_config.3.intermediate_size' is not supported"},
        {"tiny-gemma4-ple", "\"vocab_size_per_layer_input\": 320", "\"vocab_size_per_layer_input\": 300",
         "'vocab_size_per_layer_input' is 300; only 'vocab_size', 320"},
        {"tiny-gemma4-assistant", "\"num_kv_shared_layers\": 4", "\"num_kv_shared_layers\": 3", "drafters that share all their 4"},
        {"tiny-nemotron_h-moe", "\"mlp_hidden_act\": \"relu2\"", "\"mlp_hidden_act\": \"silu\"", "'mlp_hidden_act' is 'silu'"},
        {"tiny-nemotron_h-moe", "\"use_bias\": false", "\"use_bias\": true", "'use_bias' is true"},
        {"tiny-nemotron_h-moe", "\"mamba_proj_bias\": false", "\"mamba_proj_bias\": true", "'mamba_proj_bias' is true"},
        {"tiny-nemotron_h-moe", "\"attention_bias\": false", "\"attention_bias\": true", "'attention_bias' is true"},
        {"tiny-nemotron_h-moe", "\"use_bias\": false", "\"block_configs\": []", "'block_configs': models whose layers differ"},
        {"tiny-nemotron_h-moe", "[\"linear_attention\"", "[\"rwkv\"",
         "calls layer 0 'rwkv', which is not supported; expected mamba, "},
        {"nemotron3-nano", "\"MEMEM*", "\"MEXEM*", "'hybrid_override_pattern' calls layer 2 'X'; M, *, - and E are supported"},
        {"nemotron3-super", "\"*E\"", "\"*E*E\"", "'llm_config.mtp_hybrid_override_pattern' is not supported"},
        {"tiny-nemotron_h-mtp", "[\"full_attention\", \"moe\"],", "[\"moe\"],", "'mtp_layers_block_type' is not supported"},
        {"tiny-nemotron_h-mtp", "\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 2", "only one is supported"},
        {"mistral", "\"model_type\": \"mistral\"", "\"model_type\": \"qwen4_exp\"",
         "model_type 'qwen4_exp' is not supported; this version knows Llama, Mistral, Qwen2, "},
        {"mistral", "\"model_type\": \"mistral\"", "\"model_type\": \"nemotron_h_puzzle\"", "'nemotron_h_puzzle' is not supported"},
        {"mistral", "\"model_type\": \"mistral\"", "\"model_type\": \"qwen3_5_mtp\"",
         "'qwen3_5_mtp' is an MTP head by itself, not a model"},
        {"mistral", "\"tie_word_embeddings\"", "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}, \"tie\"",
         "'quantization_config.quant_method' is 'gptq', which is not supported yet; plain bf16, f16 and f32 weights and MLX affine "
         "are"},
        {"mistral", "\"tie_word_embeddings\"", "\"compression_config\": {}, \"tie\"", "'compression_config' is set"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused_swap(bad[i].seed, bad[i].from, bad[i].to, WEFT_ESUPPORT, bad[i].says);
}

static void test_damage_is_refused(void **state) {
    (void)state;
    static const turn bad[] = {
        {"llama31-8b", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4.0", "'rope_scaling.low_freq_factor' is not below"},
        {"llama31-8b", "\"low_freq_factor\": 1.0, ", "", "'rope_scaling.low_freq_factor' is missing"},
        {"llama31-8b", "\"original_max_position_embeddings\": 8192, ", "",
         "'rope_scaling.original_max_position_embeddings' is missing"},
        {"llama31-8b", "\"factor\": 8.0", "\"factor\": 0.5", "'rope_scaling.factor' is 0.5; expected a number from 1"},
        {"llama31-8b", "\"num_attention_heads\": 32", "\"num_attention_heads\": 1024",
         "'hidden_size' makes heads of 4; expected 8 to 1024"},
        {"llama31-8b", "\"rope_theta\"", "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2}, \"rope_theta\"",
         "'rope_parameters' and 'rope_scaling' name different kinds"},
        {"qwen25-7b", "\"rope_theta\": 1000000.0, ", "", "'rope_theta' is missing"},
        {"tiny-gemma3", "\"head_dim\": 32", "\"head_dim\": 33", "'head_dim' is 33; expected an even number"},
        {"qwen3-8b-yarn", "\"factor\": 4.0", "\"factor\": 4.0, \"beta_slow\": 32", "'rope_scaling.beta_slow' is not below"},
        {"tiny-qwen3-dense", "\"full_attention\", ", "", "'layer_types' has 3 entries for 4 layers"},
        {"tiny-gemma4-dense", "\"layer_types\": [", "\"was\": [", "'layer_types' is missing"},
        {"tiny-gemma4-dense", "{\"5\": {", "{\"6\": {", "has entries for layers that do not exist"},
        {"tiny-gemma4-keqv", "\"num_key_value_heads\": 1", "\"num_key_value_heads\": 3",
         "not a multiple of 'num_key_value_heads' 3"},
        {"tiny-gemma4-ple", "\"num_kv_shared_layers\": 2", "\"num_kv_shared_layers\": 5",
         "no layer before them has keys for layer 1"},
        {"tiny-gemma4-ple", "\"num_kv_shared_layers\": 2", "\"num_kv_shared_layers\": 7", "expected a whole number from 0 to 6"},
        {"tiny-gemma4-moe", "\"num_experts\": 8, ", "", "'num_experts' is missing"},
        {"tiny-gemma4-assistant", "\"backbone_hidden_size\": 64, ", "", "'backbone_hidden_size' is missing"},
        {"tiny-gemma4-assistant-ordered", "\"num_centroids\": 16", "\"num_centroids\": 17", "not a multiple of 'num_centroids' 17"},
        {"tiny-gemma4-assistant-ordered", "\"centroid_intermediate_top_k\": 4", "\"centroid_intermediate_top_k\": 17",
         "more than the 16 centroids"},
        {"tiny-nemotron_h-moe", "[0.0, Infinity]", "[1.0, 0.5]", "'time_step_limit' is not a range"},
        {"tiny-nemotron_h-moe", "[0.0, Infinity]", "[1.0]", "'time_step_limit' is not a range"},
        {"tiny-nemotron_h-moe", "[0.0, Infinity]", "[Infinity, Infinity]", "'time_step_limit' is Infinity"},
        {"tiny-nemotron_h-moe", "\"n_groups\": 2", "\"n_groups\": 3", "'mamba_num_heads' is 8, not a multiple of 'n_groups' 3"},
        {"tiny-nemotron_h-moe", "\"n_group\": 1", "\"n_group\": 8", "that leaves too few to choose 2 from"},
        {"tiny-nemotron_h-moe", "\"topk_group\": 1", "\"topk_group\": 2", "'topk_group' is 2: of 1 groups"},
        {"tiny-nemotron_h-moe", "\"layers_block_type\": [", "\"was\": [", "'hybrid_override_pattern' is missing"},
        {"nemotron3-nano", "\"MEMEM*", "\"\", \"x\": \"", "'hybrid_override_pattern' has 0 letters"},
        {"nemotron3-super", "\"n_routed_experts\": 512, ", "", "'llm_config.num_experts' is missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused_swap(bad[i].seed, bad[i].from, bad[i].to, WEFT_EFORMAT, bad[i].says);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_other_arithmetic_is_refused),
        cmocka_unit_test(test_damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

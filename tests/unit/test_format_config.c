/* test_format_config.c: every spelling of a config gives the same struct; whatever this engine cannot compute is refused by name.
 */
#include "format_files.h"

#include "format/config.h"

static weft_status parse2(weft_model_config *c, const char *text, const char *generation, weft_error *e) {
    return weft_model_config_parse(c, text, strlen(text), generation, generation ? strlen(generation) : 0, e);
}

static weft_model_config good(const char *text, const char *generation) {
    weft_model_config c;
    weft_error e;
    if (parse2(&c, text, generation, &e) != WEFT_OK) fail_msg("%s", e.text);
    return c;
}

static void refused(const char *text, weft_status st, const char *says) {
    weft_model_config c;
    weft_error e;
    assert_says(parse2(&c, text, NULL, &e), &e, st, says);
    assert_null(c.arena.head);
    assert_int_equal(c.hidden_size, 0);
}

/* tiny_config with one piece replaced. */
static void refused_swap(const char *from, const char *to, weft_status st, const char *says) {
    char *text = swap(tiny_config, from, to);
    refused(text, st, says);
    free(text);
}

static weft_model_config good_swap(const char *from, const char *to) {
    char *text = swap(tiny_config, from, to);
    weft_model_config c = good(text, NULL);
    free(text);
    return c;
}

static void same_but_for_pointers(const weft_model_config *a, const weft_model_config *b) {
    assert_memory_equal(a, b, offsetof(weft_model_config, quant));
}

static void test_flat(void **state) {
    (void)state;
    weft_model_config c = good(tiny_config, NULL);
    assert_int_equal(c.family, WEFT_FAMILY_QWEN_HYBRID);
    assert_int_equal(c.dtype, WEFT_BF16);
    assert_int_equal(c.vocab_size, 320);
    assert_int_equal(c.hidden_size, 64);
    assert_int_equal(c.intermediate_size, 160);
    assert_int_equal(c.n_layers, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(c.layer_kind[i], i == 3 ? WEFT_LAYER_ATTENTION : WEFT_LAYER_GDN);
    assert_true(c.norm_eps == 1e-6f);
    assert_int_equal(c.max_position, 4096);
    assert_int_equal(c.tie, WEFT_TIE_NO);
    assert_int_equal(c.n_heads, 4);
    assert_int_equal(c.full.n_kv_heads, 2);
    assert_int_equal(c.full.head_dim, 32);
    assert_int_equal(c.full.rope.width, 16); /* rope_parameters wins over the stale flat 0.25 */
    assert_true(c.full.rope.theta == 1e7);
    assert_int_equal(c.gdn_k_heads, 2);
    assert_int_equal(c.gdn_v_heads, 4);
    assert_int_equal(c.gdn_k_dim, 16);
    assert_int_equal(c.gdn_v_dim, 16);
    assert_int_equal(c.conv_kernel, 4);
    assert_int_equal(c.n_experts, 0);
    assert_int_equal(c.mtp_layers, 1);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.pad, -1);
    assert_int_equal(c.quant.bits, 0);
    assert_int_equal(c.n_quants, 0);
    weft_model_config_free(&c);
    weft_model_config_free(&c);
}

/* Multimodal checkpoints nest the same keys; the outer level adds its own end token and vision keys. */
static void test_nested(void **state) {
    (void)state;
    char *text = malloc(strlen(tiny_config) + 500);
    sprintf(text,
            "{\"architectures\": [\"Qwen3_5ForConditionalGeneration\"], \"model_type\": \"qwen3_5\", \"eos_token_id\": 5, "
            "\"image_token_id\": 7,"
            " \"language_model_only\": false, \"hidden_size\": 3, \"vision_config\": {\"depth\": 27, \"hidden_size\": 1152}, "
            "\"text_config\": %s}",
            tiny_config);
    weft_model_config flat = good(tiny_config, NULL), c = good(text, NULL);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 5);
    c.n_eos = c.eos[0] = 0;
    same_but_for_pointers(&flat, &c);
    weft_model_config_free(&flat);
    weft_model_config_free(&c);

    char *bad = swap(text, "\"hidden_size\": 64", "\"hidden_size\": 1000000000");
    refused(bad, WEFT_EFORMAT, "config.json: 'text_config.hidden_size' is 1000000000; expected a whole number from 8 to 131072");
    free(bad);
    free(text);
}

static void test_old_rope_spellings(void **state) {
    (void)state;
    static const char now[] =
        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000.0, \"partial_rotary_factor\": 0.5,"
        " \"mrope_section\": [4, 2, 2], \"mrope_interleaved\": true}, \"partial_rotary_factor\": 0.25";
    static const char *const ways[] = {
        "\"rope_theta\": 10000000, \"partial_rotary_factor\": 0.5",
        "\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.5, \"rope_scaling\": null",
        "\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.5, \"rope_scaling\": {\"type\": \"mrope\"}",
        "\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.5, \"rope_scaling\": {\"type\": \"mrope\", \"rope_type\": \"default\"}",
        "\"rope_theta\": 1e7, \"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
        "\"partial_rotary_factor\": 0.5, \"rope_theta\": 5, \"rope_parameters\": {\"rope_theta\": 10000000}",
    };
    weft_model_config flat = good(tiny_config, NULL);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        weft_model_config c = good_swap(now, ways[i]);
        same_but_for_pointers(&flat, &c);
        weft_model_config_free(&c);
    }
    weft_model_config_free(&flat);
    weft_model_config c = good_swap(now, "\"rope_theta\": 1e7"); /* the family's own factor */
    assert_int_equal(c.full.rope.width, 8);
    weft_model_config_free(&c);

    refused_swap("\"rope_theta\": 10000000.0, ", "", WEFT_EFORMAT, "'rope_theta' is missing");
    refused_swap("\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"", WEFT_ESUPPORT,
                 "'rope_parameters.rope_type' is 'longrope', which is not supported; default, linear, llama3, yarn");
    refused_swap(now, "\"rope_theta\": 1e7, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4.0}", WEFT_ESUPPORT,
                 "'rope_scaling.rope_type' is 'dynamic'");
    refused_swap(now, "\"rope_theta\": 1e7, \"rope_scaling\": {\"rope_type\": \"llama3\"}", WEFT_EFORMAT,
                 "'rope_scaling.factor' is missing");
    refused_swap("\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.1", WEFT_EFORMAT,
                 "makes 3 of 32 dimensions rotate");
    refused_swap("\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.0", WEFT_EFORMAT, "makes 0 of 32");
    refused_swap("\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.5", WEFT_EFORMAT, "from 0 to 1");
    refused_swap("10000000.0", "NaN", WEFT_EFORMAT, "'rope_parameters.rope_theta' is NaN");
    refused_swap("10000000.0", "Infinity", WEFT_EFORMAT, "'rope_parameters.rope_theta' is Infinity");
}

static const char types[] =
    "\"layer_types\": [\"linear_attention\", \"linear_attention\", \"linear_attention\", \"full_attention\"]";

static void test_layer_kinds(void **state) {
    (void)state;
    weft_model_config flat = good(tiny_config, NULL);
    static const char *const ways[] = {"\"full_attention_interval\": 4", "\"x\": 0",
                                       "\"layer_types\": null, \"full_attention_interval\": 4"};
    for (size_t i = 0; i < 3; i++) {
        weft_model_config c = good_swap(types, ways[i]);
        same_but_for_pointers(&flat, &c);
        weft_model_config_free(&c);
    }
    weft_model_config_free(&flat);
    weft_model_config c = good_swap(types, "\"full_attention_interval\": 2");
    assert_int_equal(c.layer_kind[0], WEFT_LAYER_GDN);
    assert_int_equal(c.layer_kind[1], WEFT_LAYER_ATTENTION);
    assert_int_equal(c.layer_kind[3], WEFT_LAYER_ATTENTION);
    weft_model_config_free(&c);
    refused_swap(types, "\"full_attention_interval\": 0", WEFT_EFORMAT, "'full_attention_interval' is 0");
    refused_swap("\"layer_types\": [\"linear_attention\", ", "\"layer_types\": [", WEFT_EFORMAT,
                 "'layer_types' has 3 entries for 4 layers");
    refused_swap("[\"linear_attention\"", "[\"sliding_attention\"", WEFT_ESUPPORT, "calls layer 0 'sliding_attention'");
    refused_swap("[\"linear_attention\"", "[7", WEFT_EFORMAT, "'layer_types' is 7; expected a string");
}

static const char moe_keys[] =
    "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48, \"shared_expert_intermediate_size\": 40";

static void test_moe(void **state) {
    (void)state;
    char *moe = swap(tiny_config, "qwen3_5_text", "qwen3_5_moe_text"), *text = swap(moe, "\"intermediate_size\": 160", moe_keys);
    weft_model_config c = good(text, NULL);
    assert_int_equal(c.intermediate_size, 0);
    assert_int_equal(c.n_experts, 8);
    assert_int_equal(c.top_k, 2);
    assert_int_equal(c.moe_intermediate, 48);
    assert_int_equal(c.shared_intermediate, 40);
    assert_true(c.norm_topk); /* the key is often absent, and means yes */
    weft_model_config_free(&c);

    refused(moe, WEFT_EFORMAT, "'num_experts' is missing");
    static const struct {
        const char *from, *to;
        weft_status st;
        const char *says;
    } bad[] = {
        {"\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9", WEFT_EFORMAT,
         "'num_experts_per_tok' is 9, more than the 8 experts"},
        {"\"num_experts\": 8", "\"num_experts\": 0", WEFT_EFORMAT, "'num_experts' is 0"},
        {"\"num_experts\": 8", "\"num_experts\": 8, \"mlp_only_layers\": [0]", WEFT_ESUPPORT, "mlp_only_layers"},
        {"\"num_experts\": 8", "\"num_experts\": 8, \"decoder_sparse_step\": 2", WEFT_ESUPPORT, "decoder_sparse_step"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *t = swap(text, bad[i].from, bad[i].to);
        refused(t, bad[i].st, bad[i].says);
        free(t);
    }
    char *local = swap(text, "num_experts\"", "num_local_experts\""),
         *more = swap(local, "\"hidden_act\"",
                      "\"norm_topk_prob\": false, \"mlp_only_layers\": [], \"decoder_sparse_step\": 1, \"hidden_act\"");
    c = good(more, NULL);
    assert_int_equal(c.n_experts, 8);
    assert_false(c.norm_topk);
    weft_model_config_free(&c);
    free(local);
    free(more);
    free(text);
    free(moe);
}

/* A model that this version cannot run is refused by its name, at once, and not with a missing key or tensor later. */
static void test_families(void **state) {
    (void)state;
    refused("{\"model_type\": \"mamba\"}", WEFT_ESUPPORT,
            "model_type 'mamba' is not supported; this version knows Llama, Mistral, ");
    refused("{\"model_type\": \"qwen3_5\", \"text_config\": {\"model_type\": \"gemma4_text\"}}", WEFT_ESUPPORT,
            "model_type 'qwen3_5' with a text part of type 'gemma4_text' is not supported");
    refused("{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"qwen3_5_text\"}}", WEFT_ESUPPORT, "'llava'");
    refused("{\"architectures\": [\"MambaForCausalLM\"]}", WEFT_ESUPPORT, "architecture 'MambaForCausalLM' is not supported");
    refused("{\"architectures\": []}", WEFT_EFORMAT, "'model_type' is missing");
    refused("{\"architectures\": [7]}", WEFT_EFORMAT, "'architectures' is 7");
    refused("{}", WEFT_EFORMAT, "'model_type' is missing");
    refused("{\"model_type\": 3}", WEFT_EFORMAT, "'model_type' is 3");
    refused("{\"model_type\": \"qwen3_5\", \"text_config\": 3}", WEFT_EFORMAT, "'text_config' is 3");
    weft_model_config flat = good(tiny_config, NULL), c = good_swap("\"model_type\": \"qwen3_5_text\", ", "");
    same_but_for_pointers(&flat, &c);
    weft_model_config_free(&c);
    c = good_swap("\"qwen3_5_text\"", "\"qwen3_5\""); /* a text-only model under the multimodal name */
    assert_string_equal(c.type, "qwen3_5");
    c.type = flat.type;
    same_but_for_pointers(&flat, &c);
    weft_model_config_free(&c);
    weft_model_config_free(&flat);
}

static void test_absurd_values(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        weft_status st;
        const char *says;
    } bad[] = {
        {"\"hidden_size\": 64", "\"hidden_size\": 1000000000", WEFT_EFORMAT,
         "'hidden_size' is 1000000000; expected a whole number from 8 to 131072"},
        {"\"hidden_size\": 64", "\"hidden_size\": \"64\"", WEFT_EFORMAT, "'hidden_size' is \"64\"; expected a whole number"},
        {"\"hidden_size\": 64", "\"hidden_size\": 64.5", WEFT_EFORMAT, "'hidden_size' is 64.5"},
        {"\"hidden_size\": 64, ", "", WEFT_EFORMAT, "the key 'hidden_size' is missing"},
        {"\"hidden_size\": 64", "\"hidden_size\": null", WEFT_EFORMAT, "the key 'hidden_size' is missing"},
        {"\"hidden_size\": 64", "\"hidden_size\": 64, \"hidden_size\": 64", WEFT_EFORMAT, "'hidden_size' comes twice"},
        {"\"hidden_size\": 64", "\"hidden_size\": 18446744073709551680", WEFT_EFORMAT, "'hidden_size'"},
        {"\"vocab_size\": 320", "\"vocab_size\": 0", WEFT_EFORMAT, "'vocab_size' is 0"},
        {"\"vocab_size\": 320, ", "", WEFT_EFORMAT, "'vocab_size' is missing"},
        {"\"intermediate_size\": 160, ", "", WEFT_EFORMAT, "'intermediate_size' is missing"},
        {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 1025", WEFT_EFORMAT,
         "'num_hidden_layers' is 1025; expected a whole number from 1 to 1024"},
        {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": -4", WEFT_EFORMAT, "'num_hidden_layers' is -4"},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": -1", WEFT_EFORMAT, "'num_attention_heads' is -1"},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": 5", WEFT_EFORMAT,
         "'num_attention_heads' is 5, not a multiple of 'num_key_value_heads' 2"},
        {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 0", WEFT_EFORMAT, "'num_key_value_heads' is 0"},
        {"\"head_dim\": 32, ", "", WEFT_EFORMAT, "'head_dim' is missing"},
        {"\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 3", WEFT_EFORMAT,
         "not a multiple of 'linear_num_key_heads' 2"},
        {"\"linear_key_head_dim\": 16", "\"linear_key_head_dim\": 100000", WEFT_EFORMAT, "'linear_key_head_dim' is 100000"},
        {"\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 1", WEFT_EFORMAT, "'linear_conv_kernel_dim' is 1"},
        {"\"max_position_embeddings\": 4096", "\"max_position_embeddings\": -1", WEFT_EFORMAT, "'max_position_embeddings' is -1"},
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1", WEFT_EFORMAT,
         "'rms_norm_eps' is -1; expected a number from 1e-12 to 0.1"},
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": NaN", WEFT_EFORMAT, "'rms_norm_eps' is NaN"},
        {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0", WEFT_EFORMAT,
         "'tie_word_embeddings' is 0; expected true or false"},
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", WEFT_ESUPPORT, "'hidden_act' is 'gelu'"},
        {"\"hidden_act\": \"silu\"", "\"output_gate_type\": \"sigmoid\"", WEFT_ESUPPORT, "'output_gate_type' is 'sigmoid'"},
        {"\"attn_output_gate\": true", "\"attn_output_gate\": false", WEFT_ESUPPORT,
         "'attn_output_gate' is false, which is not supported; true is"},
        {"\"attention_bias\": false", "\"attention_bias\": true", WEFT_ESUPPORT, "'attention_bias' is true"},
        {"\"mtp_num_hidden_layers\": 1", "\"mtp_num_hidden_layers\": 2", WEFT_ESUPPORT,
         "'mtp_num_hidden_layers' is 2; only one is supported"},
        {"\"mtp_num_hidden_layers\": 1", "\"mtp_num_hidden_layers\": -1", WEFT_EFORMAT, "'mtp_num_hidden_layers' is -1"},
        {"\"mtp_use_dedicated_embeddings\": false", "\"mtp_use_dedicated_embeddings\": true", WEFT_ESUPPORT,
         "'mtp_use_dedicated_embeddings'"},
        {"\"eos_token_id\": null", "\"eos_token_id\": 320", WEFT_EFORMAT,
         "'eos_token_id' is 320; expected a whole number from 0 to 319"},
        {"\"eos_token_id\": null", "\"eos_token_id\": [1, \"x\"]", WEFT_EFORMAT, "'eos_token_id' is \"x\""},
        {"\"eos_token_id\": null", "\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", WEFT_EFORMAT,
         "more than 16 end tokens"},
        {"\"pad_token_id\": null", "\"pad_token_id\": 1000", WEFT_EFORMAT, "'pad_token_id' is 1000"},
        {"\"dtype\": \"bfloat16\"", "\"dtype\": 16", WEFT_EFORMAT, "'dtype' is 16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused_swap(bad[i].from, bad[i].to, bad[i].st, bad[i].says);
    refused("[1]", WEFT_EFORMAT, "config.json: expected a JSON object");
    refused("{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", WEFT_EFORMAT,
            "nested deeper");
}

static void test_defaults(void **state) {
    (void)state;
    static const char *const droppable[] = {
        "\"hidden_act\": \"silu\",",  "\"rms_norm_eps\": 1e-06,",       "\"attn_output_gate\": true,",
        "\"attention_bias\": false,", "\"linear_conv_kernel_dim\": 4,", "\"mtp_num_hidden_layers\": 1,",
    };
    weft_model_config flat = good(tiny_config, NULL);
    for (size_t i = 0; i < sizeof droppable / sizeof *droppable; i++) {
        weft_model_config c = good_swap(droppable[i], "");
        same_but_for_pointers(&flat, &c);
        weft_model_config_free(&c);
    }
    weft_model_config_free(&flat);
    weft_model_config c = good_swap("\"tie_word_embeddings\": false, ", "");
    assert_int_equal(c.tie, WEFT_TIE_UNSAID);
    weft_model_config_free(&c);
    c = good_swap("\"dtype\": \"bfloat16\"", "\"torch_dtype\": \"float16\", \"output_gate_type\": \"swish\"");
    assert_int_equal(c.dtype, WEFT_F16);
    weft_model_config_free(&c);
    c = good_swap("\"dtype\": \"bfloat16\"", "\"dtype\": null");
    assert_int_equal(c.dtype, WEFT_DTYPES);
    weft_model_config_free(&c);
    refused("{\"model_type\": \"qwen3_5\", \"text_config\": {}}", WEFT_EFORMAT, "'text_config.vocab_size' is missing");
}

/* The tied flag stands at the top, inside, or both; inside wins. */
static void test_tie(void **state) {
    (void)state;
    static const struct {
        const char *outer, *inner;
        weft_tie tie;
    } cases[] = {
        {"", "", WEFT_TIE_UNSAID},
        {"\"tie_word_embeddings\": true,", "", WEFT_TIE_YES},
        {"", "\"tie_word_embeddings\": true,", WEFT_TIE_YES},
        {"\"tie_word_embeddings\": true,", "\"tie_word_embeddings\": false,", WEFT_TIE_NO},
        {"\"tie_word_embeddings\": false,", "\"tie_word_embeddings\": true,", WEFT_TIE_YES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *inner = swap(tiny_config, "\"tie_word_embeddings\": false,", cases[i].inner), *text = malloc(strlen(inner) + 200);
        sprintf(text, "{\"model_type\": \"qwen3_5\", %s \"text_config\": %s}", cases[i].outer, inner);
        weft_model_config c = good(text, NULL);
        assert_int_equal(c.tie, cases[i].tie);
        weft_model_config_free(&c);
        free(inner);
        free(text);
    }
}

/* Stopping at only one of <|im_end|> and <|endoftext|> made answers run on: every named end token counts. */
static void test_end_tokens_are_merged(void **state) {
    (void)state;
    char *inner = swap(tiny_config, "\"eos_token_id\": null", "\"eos_token_id\": [44, 46]"), *text = malloc(strlen(inner) + 200);
    sprintf(text, "{\"model_type\": \"qwen3_5\", \"eos_token_id\": 46, \"bos_token_id\": 1, \"text_config\": %s}", inner);
    weft_model_config c = good(text, "{\"eos_token_id\": [44, 7], \"pad_token_id\": 44, \"temperature\": 0.6}");
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.eos[0], 46);
    assert_int_equal(c.eos[1], 44);
    assert_int_equal(c.eos[2], 7);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.pad, 44);
    weft_model_config_free(&c);
    weft_error e;
    assert_says(parse2(&c, text, "{\"eos_token_id\": 999}", &e), &e, WEFT_EFORMAT, "generation_config.json: 'eos_token_id' is 999");
    assert_says(parse2(&c, text, "{", &e), &e, WEFT_EFORMAT, "generation_config.json: not JSON");
    free(inner);
    free(text);
}

static char *with_quantisation(const char *text) {
    char *piece = malloc(strlen(text) + 100);
    sprintf(piece, "%s, \"hidden_act\"", text);
    char *out = swap(tiny_config, "\"hidden_act\"", piece);
    free(piece);
    return out;
}

static void test_quantisation(void **state) {
    (void)state;
    char *text = with_quantisation("\"quantization\": {\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\","
                                   " \"language_model.model.layers.0.mlp.gate\": {\"group_size\": 32, \"bits\": 8},"
                                   " \"model.layers.1.mlp.gate\": {\"group_size\": 64, \"bits\": 6, \"mode\": \"affine\"},"
                                   " \"lm_head\": false, \"model.embed_tokens\": true, \"language_model.mtp.fc\": {\"group_size\": "
                                   "32, \"bits\": 4, \"mode\": \"mxfp4\"}},"
                                   " \"quantization_config\": {\"group_size\": 128, \"bits\": 2}");
    weft_model_config c = good(text, NULL);
    assert_int_equal(c.quant.bits, 4);
    assert_int_equal(c.quant.group, 64);
    assert_string_equal(c.quant.mode, "affine");
    assert_int_equal(c.n_quants, 5);
    static const char *const spellings[] = {"layers.0.mlp.gate", "model.layers.0.mlp.gate",
                                            "model.language_model.layers.0.mlp.gate", "language_model.model.layers.0.mlp.gate"};
    for (size_t i = 0; i < 4; i++) { /* the keys' prefix is the converter's, not the file's */
        const weft_quant *q = weft_config_quant(&c, spellings[i]);
        assert_non_null(q);
        assert_int_equal(q->bits, 8);
        assert_int_equal(q->group, 32);
        assert_string_equal(q->mode, "affine");
    }
    assert_int_equal(weft_config_quant(&c, "model.layers.1.mlp.gate")->bits, 6);
    assert_true(weft_config_quant(&c, "language_model.lm_head")->plain);
    assert_int_equal(weft_config_quant(&c, "model.embed_tokens")->bits, 4);
    assert_string_equal(weft_config_quant(&c, "mtp.fc")->mode, "mxfp4"); /* each entry has its own mode, not the default's */
    assert_null(weft_config_quant(&c, "model.layers.2.mlp.gate"));
    weft_model_config_free(&c);
    free(text);

    static const char *const same[] = {"\"quantization_config\": {\"group_size\": 64, \"bits\": 4}",
                                       "\"quantization_config\": {\"group_size\": 64, \"bits\": 4, \"quant_method\": \"mlx\"}"};
    for (size_t i = 0; i < 2; i++) {
        text = with_quantisation(same[i]);
        c = good(text, NULL);
        assert_int_equal(c.quant.bits, 4);
        weft_model_config_free(&c);
        free(text);
    }
    static const struct {
        const char *text;
        weft_status st;
        const char *says;
    } bad[] = {
        {"\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\"}", WEFT_ESUPPORT,
         "'quantization_config.quant_method' is 'fp8', which is not supported yet"},
        {"\"quantization\": 4", WEFT_EFORMAT, "'quantization' is 4"},
        {"\"quantization\": {\"bits\": 4}", WEFT_EFORMAT, "'quantization.group_size' is missing"},
        {"\"quantization\": {\"bits\": 17, \"group_size\": 64}", WEFT_EFORMAT, "'quantization.bits' is 17"},
        {"\"quantization\": {\"bits\": 4, \"group_size\": 0}", WEFT_EFORMAT, "'quantization.group_size' is 0"},
        {"\"quantization\": {\"bits\": 4, \"group_size\": 64, \"mode\": 3}", WEFT_EFORMAT, "'quantization.mode' is 3"},
        {"\"quantization\": {\"bits\": 4, \"group_size\": 64, \"lm_head\": {\"bits\": 4}}", WEFT_EFORMAT,
         "'quantization.lm_head.group_size' is missing"},
        {"\"quantization\": {\"lm_head\": true}", WEFT_EFORMAT, "'quantization.lm_head' is true, but no default"},
        {"\"quantization\": {\"model.a\": {\"bits\": 4, \"group_size\": 64}, \"language_model.a\": {\"bits\": 8, \"group_size\": "
         "64}}",
         WEFT_EFORMAT, "two different entries for the module 'a'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        text = with_quantisation(bad[i].text);
        refused(text, bad[i].st, bad[i].says);
        free(text);
    }
    text = with_quantisation(
        "\"quantization\": {\"model.a\": {\"bits\": 4, \"group_size\": 64}, \"a\": {\"bits\": 4, \"group_size\": 64}}");
    c = good(text, NULL);
    assert_int_equal(c.n_quants, 1);
    weft_model_config_free(&c);
    free(text);
}

static void test_folder(void **state) {
    (void)state;
    weft_model_config c;
    weft_error e;
    assert_says(weft_model_config_read(&c, scratch, &e), &e, WEFT_EIO, "config.json");
    put_text("config.json", tiny_config);
    assert_int_equal(weft_model_config_read(&c, scratch, &e), WEFT_OK);
    weft_model_config_free(&c);
    put_text("generation_config.json", "{\"eos_token_id\": [3]}");
    assert_int_equal(weft_model_config_read(&c, scratch, &e), WEFT_OK);
    assert_int_equal(c.n_eos, 1);
    weft_model_config_free(&c);
    put_text("generation_config.json", "{\"eos_token_id\": [3}");
    assert_says(weft_model_config_read(&c, scratch, &e), &e, WEFT_EFORMAT, ": generation_config.json: not JSON");
    assert_says(weft_model_config_read(&c, at("nowhere"), &e), &e, WEFT_EIO, "nowhere/config.json");
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    char *text = with_quantisation(
        "\"quantization\": {\"group_size\": 64, \"bits\": 4, \"lm_head\": false, \"a\": {\"group_size\": 64, \"bits\": 4}}");
    put_text("config.json", text);
    put_text("generation_config.json", "{\"eos_token_id\": [3]}");
    free(text);
    uint64_t n = 1;
    for (;; n++) {
        weft_model_config c;
        weft_error e;
        weft_alloc_fail_at(n);
        weft_status st = weft_model_config_read(&c, scratch, &e);
        weft_alloc_fail_at(0);
        weft_model_config_free(&c);
        if (st == WEFT_OK) break;
        assert_says(st, &e, WEFT_ENOMEM, "out of memory");
    }
    assert_true(n > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_old_rope_spellings),
        cmocka_unit_test(test_layer_kinds),
        cmocka_unit_test(test_moe),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_absurd_values),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_tie),
        cmocka_unit_test(test_end_tokens_are_merged),
        cmocka_unit_test(test_quantisation),
        cmocka_unit_test_setup(test_folder, scratch_clear),
        cmocka_unit_test_setup(test_every_allocation_may_fail, scratch_clear),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

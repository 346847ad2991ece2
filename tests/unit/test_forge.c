/* test_forge.c: checkpoints of random weights: the published sizes, files that the readers accept, numbers that a network can run
 * on, and nothing left behind where it fails. Shapes are tiny; tests/test_forge.py makes a real one. */
#include "format_files.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "forge/gguf_write.h"
#include "forge/network.h"
#include "forge/synth.h"
#include "forge/values.h"
#include "format/model_dir.h"
#include "format/weight.h"

#define TINY .hidden = 256, .vocab = 512, .context = 4096, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .theta = 1e6
#define HYBRID TINY, .layers = "LLL*", .rotary_dim = 16, .gdn_k_heads = 2, .gdn_v_heads = 4, .gdn_dim = 64, .taps = 4
#define MIXED .n_experts = 8, .top_k = 2, .moe_intermediate = 64

static const weft_shape dense = {HYBRID, .name = "tiny", .n_layers = 5, .tied = true, .intermediate = 512};
static const weft_shape mixture = {HYBRID, .name = "tiny-mixture", .n_layers = 4, MIXED, .shared_intermediate = 128};

/* The other families. */
static const weft_shape others[] = {
    {TINY, .name = "qwen2", .family = WEFT_SHAPE_QWEN2, .layers = "*", .n_layers = 3, .tied = true, .intermediate = 512},
    {TINY, .name = "qwen3", .family = WEFT_SHAPE_QWEN3, .layers = "*", .n_layers = 3, .intermediate = 512},
    {TINY, .name = "qwen3-mixture", .family = WEFT_SHAPE_QWEN3, .layers = "*", .n_layers = 3, MIXED},
    {TINY, .name = "llama", .family = WEFT_SHAPE_LLAMA, .layers = "*", .n_layers = 3, .intermediate = 512, .rope_factor = 8},
    {TINY, .name = "gemma3", .family = WEFT_SHAPE_GEMMA3, .layers = "SS*", .n_layers = 4, .tied = true, .intermediate = 512,
     .window = 64},
    {TINY, .name = "gemma4", .family = WEFT_SHAPE_GEMMA4, .layers = "SS*", .n_layers = 9, .tied = true, .intermediate = 512,
     .full_kv_heads = 2, .full_head_dim = 128, .window = 64, .own_keys = 5, .layer_inputs = 64},
    {TINY, .name = "gemma4-mixture", .family = WEFT_SHAPE_GEMMA4, .layers = "SS*", .n_layers = 4, .tied = true, .intermediate = 128,
     .full_kv_heads = 1, .full_head_dim = 128, .k_is_v = true, .window = 64, MIXED},
    {TINY, .name = "nemotron", .family = WEFT_SHAPE_NEMOTRON_H, .layers = "MEM*EME", .n_layers = 7, .mamba_heads = 8,
     .mamba_head_dim = 32, .mamba_groups = 2, .mamba_state = 32, .taps = 4, MIXED, .shared_intermediate = 128},
};
enum { OTHERS = sizeof others / sizeof *others };

/* ---- helpers ------------------------------------------------------------------------------------------------------------- */

/* Removes at(folder) and its files. */
static void drop_folder(const char *folder) {
    char path[900];
    DIR *d = opendir(at(folder));
    if (!d) return;
    for (struct dirent *x; (x = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", at(folder), x->d_name);
        if (x->d_name[0] != '.') remove(path);
    }
    closedir(d);
    assert_int_equal(rmdir(at(folder)), 0);
}

static int clean(void **state) { /* a test's setup: one that failed leaves nothing to the next */
    drop_folder("m");
    drop_folder("one");
    return scratch_clear(state);
}

static uint64_t make(weft_synth y) {
    weft_error e;
    uint64_t bytes = 0;
    y.out = at("m");
    if (weft_synth_write(&y, &bytes, &e) != WEFT_OK) fail_msg("%s", e.text);
    return bytes;
}

static void *read_all(const char *name, size_t *n) {
    char *data;
    weft_error e;
    if (weft_file_read(at(name), (size_t)1 << 30, &data, n, &e) != WEFT_OK) fail_msg("%s", e.text);
    return data;
}

/* ---- the network --------------------------------------------------------------------------------------------------------- */

static int64_t count(const weft_shape *s, weft_layout layout, bool mtp) {
    weft_parts parts = {0};
    weft_arena arena = {0};
    weft_error e;
    assert_int_equal(weft_network_parts(&parts, &arena, s, s->n_layers, layout, &e), WEFT_OK);
    int64_t sum = 0;
    for (size_t i = 0; i < parts.n; i++) {
        const weft_part *p = &parts.v[i];
        if (p->role != WEFT_ROLE_FREQUENCY && weft_starts_with(p->path, "mtp.") == mtp)
            sum += p->k * (p->n ? p->n : 1) * (p->experts ? p->experts : 1);
    }
    weft_vec_free(&parts);
    weft_arena_free(&arena);
    return sum;
}

/* The published totals; those of 0 are checked to the hundredth of a billion that is published of them. */
static void test_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t trunk, mtp;
        double billions;
    } known[] = {
        {"qwen3.5-0.8b", 752393024, 20452864, 0},
        {"qwen3.5-2b", 1881825088, 60828160, 0},
        {"qwen3.5-4b", 4205751296, 120599552, 0},
        {"qwen3.5-9b", 8953803264, 243290624, 0},
        {"qwen3.5-27b", 26895998464, 424699392, 0},
        {"qwen3.5-35b-a3b", 34660610688, 844640768, 0},
        {"qwen2.5-0.5b", 494032768, 0, 0},
        {"qwen2.5-1.5b", 1543714304, 0, 0},
        {"qwen2.5-7b", 7615616512, 0, 0},
        {"qwen3-0.6b", 596049920, 0, 0},
        {"qwen3-4b", 4022468096, 0, 0},
        {"qwen3-8b", 8190735360, 0, 0},
        {"qwen3-30b-a3b", 30532122624, 0, 0},
        {"llama-3.2-1b", 1235814400, 0, 0},
        {"llama-3.1-8b", 8030261248, 0, 0},
        {"gemma-3-270m", 268098176, 0, 0},
        {"gemma-3-1b", 999885952, 0, 0},
        {"gemma-4-e2b", 0, 0, 4.63},
        {"gemma-4-26b-a4b", 0, 0, 25.23},
        {"nemotron-nano", 0, 0, 31.58},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const weft_shape *s = weft_shape_find(known[i].name);
        assert_non_null(s);
        assert_ptr_equal(s, weft_shape_at((int)i));
        int64_t trunk = known[i].trunk ? known[i].trunk : count(s, WEFT_LAYOUT_HF, false);
        if (!known[i].trunk && fabs((double)trunk / 1e9 - known[i].billions) > 0.005)
            fail_msg("%s: %lld parameters", s->name, (long long)trunk);
        for (int layout = WEFT_LAYOUT_HF; layout <= WEFT_LAYOUT_GGUF; layout *= 2) {
            int64_t n = count(s, (weft_layout)layout, false);
            if (n != trunk) fail_msg("%s: %lld parameters; expected %lld", s->name, (long long)n, (long long)trunk);
            assert_int_equal(count(s, (weft_layout)layout, true), layout == WEFT_LAYOUT_GGUF ? 0 : known[i].mtp);
        }
    }
    assert_null(weft_shape_at(sizeof known / sizeof *known));
    assert_null(weft_shape_find("qwen3.5"));
}

/* The first layers alone keep their kinds; layers that would read the keys of others are cut first. */
static void test_cuts(void **state) {
    (void)state;
    const weft_shape *nano = weft_shape_find("nemotron-nano"), *e2b = weft_shape_find("gemma-4-e2b");
    char letters[14] = "";
    for (int i = 0; i < 13; i++) letters[i] = weft_shape_layer(nano, i);
    assert_string_equal(letters, "MEMEM*EMEMEM*");
    assert_int_equal(strlen(nano->layers), nano->n_layers);
    assert_int_equal(weft_shape_sharing(e2b, 35), 20);
    assert_int_equal(weft_shape_sharing(e2b, 16), 1);
    assert_int_equal(weft_shape_sharing(e2b, 15), 0);
    assert_int_equal(weft_shape_sharing(e2b, 4), 0);
    assert_int_equal(weft_shape_sharing(nano, 52), 0);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

/* In whatever pieces they are made. */
static void test_pieces(void **state) {
    (void)state;
    enum { UNITS = 61 };
    for (int store = WEFT_STORE_F32; store <= WEFT_STORE_Q6_K; store++) {
        weft_values v = {.store = (weft_store)store,
                         .rule = store <= WEFT_STORE_BF16 ? WEFT_RULE_UNIFORM : WEFT_RULE_PACKED,
                         .key = 7,
                         .deviation = 0.1f};
        size_t unit = weft_store_bytes(v.store);
        uint8_t whole[UNITS * 256], parts[UNITS * 256];
        weft_values_make(&v, 0, UNITS, whole);
        for (size_t at = 0, n; at < UNITS; at += n) {
            n = at % 7 + 1 < UNITS - at ? at % 7 + 1 : UNITS - at;
            weft_values_make(&v, at, n, parts + at * unit);
        }
        assert_memory_equal(whole, parts, UNITS * unit);
        v.key = 8;
        weft_values_make(&v, 0, UNITS, parts);
        assert_memory_not_equal(whole, parts, UNITS * unit);
    }
}

static float half(const uint8_t *p) {
    float x;
    weft_to_f32(&x, WEFT_F16, p, 1);
    return x;
}

/* One block in float32, from the layout of llama.cpp's blocks. */
static void unpack(weft_store store, const uint8_t *b, float *y) {
    if (store == WEFT_STORE_Q4_0)
        for (int i = 0; i < 16; i++) {
            y[i] = (float)((b[2 + i] & 15) - 8) * half(b);
            y[i + 16] = (float)((b[2 + i] >> 4) - 8) * half(b);
        }
    else if (store == WEFT_STORE_Q8_0)
        for (int i = 0; i < 32; i++) {
            assert_int_not_equal(b[2 + i], 0x80);
            y[i] = (float)(int8_t)b[2 + i] * half(b);
        }
    else
        for (int i = 0; i < 256; i++) {
            int t = i / 128, l = i % 32, quarter = i % 128 / 32;
            int low = b[64 * t + l + 32 * (quarter & 1)] >> (quarter & 2 ? 4 : 0) & 15;
            int high = b[128 + 32 * t + l] >> 2 * quarter & 3;
            int scale = (int8_t)b[192 + 8 * t + l / 16 + 2 * quarter];
            y[i] = half(b + 208) * (float)(scale * ((low | high << 4) - 32));
        }
}

static void check_spread(const float *v, size_t n, double deviation, const char *what) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += v[i], squares += (double)v[i] * v[i];
    double mean = sum / (double)n, sd = sqrt(squares / (double)n - mean * mean), tolerance = 5 / sqrt((double)n) + 0.02;
    if (!(fabs(mean) < tolerance * deviation) || !(fabs(sd / deviation - 1) < tolerance))
        fail_msg("%s: mean %g, deviation %g of %zu numbers; expected 0, %g", what, mean, sd, n, deviation);
}

/* Blocks stand for numbers of the wanted deviation, down to scales that half precision holds as denormals only. */
static void test_blocks(void **state) {
    (void)state;
    enum { BLOCKS = 400 };
    static uint8_t raw[BLOCKS * 256];
    static float y[BLOCKS * 256];
    for (int store = WEFT_STORE_Q4_0; store <= WEFT_STORE_Q6_K; store++)
        for (float deviation = 0.002f; deviation < 2; deviation *= 5) {
            weft_values v = {.store = (weft_store)store, .rule = WEFT_RULE_PACKED, .key = 99, .deviation = deviation};
            int n = weft_store_numbers(v.store);
            weft_values_make(&v, 0, BLOCKS, raw);
            for (int i = 0; i < BLOCKS; i++) unpack(v.store, raw + (size_t)i * weft_store_bytes(v.store), y + i * n);
            /* The scales of whole blocks vary together: fewer independent numbers than there are. */
            double sum = 0, squares = 0, d = (double)deviation;
            for (int i = 0; i < BLOCKS * n; i++) sum += (double)y[i], squares += (double)y[i] * (double)y[i];
            double sd = sqrt(squares / (BLOCKS * n));
            if (fabs(sd / d - 1) > 0.1 || fabs(sum / (BLOCKS * n)) > 0.1 * d)
                fail_msg("store %d: deviation %g, mean %g; expected %g, 0", store, sd, sum / (BLOCKS * n), d);
        }
}

/* ---- model folders ------------------------------------------------------------------------------------------------------- */

typedef struct scores {
    size_t rows, mtp_rows;
    int vocab;
    double squares, mtp_squares;
    int best[8]; /* of the last rows */
} scores;

static weft_status take_row(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e) {
    scores *s = ctx;
    (void)e;
    int best = 0;
    for (int i = 0; i < s->vocab; i++) {
        assert_true(isfinite(logits[i]) && (!mtp_logits || isfinite(mtp_logits[i])));
        s->squares += (double)logits[i] * (double)logits[i];
        if (mtp_logits) s->mtp_squares += (double)mtp_logits[i] * (double)mtp_logits[i];
        if (logits[i] > logits[best]) best = i;
    }
    s->rows++;
    s->mtp_rows += mtp_logits != NULL;
    s->best[position % 8] = best;
    return WEFT_OK;
}

/* at("m") runs, and its logits have a deviation of about two at every position of a longer text; so have the MTP head's, where the
 * family has one. */
static void check_runs(const weft_shape *shape) {
    enum { TOKENS = 300 };
    weft_engine *g = NULL;
    weft_error e = {0};
    weft_config c = {.model = at("m"), .threads = 1, .context = TOKENS + 1, .max_depth = 3, .cache_dir = ""};
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
    weft_info info;
    weft_engine_info(g, &info);
    assert_int_equal(info.vocab, shape->vocab);
    bool mtp = shape->family == WEFT_SHAPE_QWEN3_5;
    assert_int_equal(info.has_mtp, mtp);
    assert_false(info.has_tokenizer);
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = i * 37 % shape->vocab;
    scores s = {.vocab = info.vocab};
    if (weft_score(g, ids, TOKENS, take_row, &s, &e) != WEFT_OK) fail_msg("%s", e.text);
    weft_engine_close(g);
    assert_int_equal(s.rows, TOKENS);
    assert_int_equal(s.mtp_rows, mtp ? TOKENS - 1 : 0);
    double sd = sqrt(s.squares / (TOKENS * (double)s.vocab));
    double mtp_sd = mtp ? sqrt(s.mtp_squares / ((TOKENS - 1) * (double)s.vocab)) : 2;
    if (sd < 1.7 || sd > 2.3 || mtp_sd < 1.7 || mtp_sd > 2.3)
        fail_msg("%s: logits of deviation %g and %g", shape->name, sd, mtp_sd);
    int same = 0;
    for (int i = 1; i < 8; i++) same += s.best[i] == s.best[0];
    assert_true(same < 7);
}

static void open_dir(weft_model_dir *d) {
    weft_error e;
    if (weft_model_dir_open(d, at("m"), &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* Module `name` has this packing, and numbers of this deviation. */
static void check_weight(const weft_model_dir *d, const char *name, int64_t experts, int64_t n, int64_t k, int bits,
                         double deviation) {
    weft_weight w;
    weft_error e;
    if (weft_weight_find(d->tensors, &d->config, name, experts, n, k, &w, &e) != WEFT_OK) fail_msg("%s", e.text);
    assert_int_equal(w.bits, bits);
    assert_int_equal(w.dtype, WEFT_BF16);
    if (bits) assert_int_equal(w.group, 64);
    float *v = malloc((size_t)(n * k) * sizeof *v);
    for (int64_t r = 0; r < n; r++) assert_int_equal(weft_weight_row_f32(&w, experts ? experts - 1 : 0, r, v + r * k, &e), WEFT_OK);
    check_spread(v, (size_t)(n * k), deviation, name);
    free(v);
}

static void test_mlx_dense(void **state) {
    (void)state;
    make((weft_synth){.shape = &dense, .bits = 4});
    weft_model_dir d;
    open_dir(&d);
    assert_true(d.converted && d.mtp && d.mtp_converted && !d.head);
    assert_int_equal(d.config.n_layers, 5);
    assert_int_equal(d.config.layer_kind[3], WEFT_LAYER_ATTENTION);
    assert_int_equal(d.config.layer_kind[4], WEFT_LAYER_GDN);
    assert_int_equal(d.config.full.rope.width, 16);
    assert_int_equal(d.config.n_eos, 0);
    assert_int_equal(d.config.tie, WEFT_TIE_YES);
    assert_string_equal(weft_tensors_metadata(d.tensors, "format"), "mlx");
    check_weight(&d, "language_model.model.embed_tokens", 0, 512, 256, 6, 2.0 / 16);
    check_weight(&d, "language_model.model.layers.0.linear_attn.in_proj_qkv", 0, 512, 256, 4, 1.0 / 16);
    check_weight(&d, "language_model.model.layers.0.linear_attn.in_proj_a", 0, 4, 256, 4, 1.0 / 16);
    check_weight(&d, "language_model.model.layers.3.mlp.down_proj", 0, 256, 512, 4, 1.0 / sqrt(512));
    check_weight(&d, "mtp.fc", 0, 256, 512, 4, 1.0 / sqrt(512));
    weft_model_dir_close(&d);
    check_runs(&dense);
    drop_folder("m");
    make((weft_synth){.shape = &dense, .bits = 8, .layers = 1});
    open_dir(&d);
    assert_int_equal(d.config.n_layers, 1);
    check_weight(&d, "language_model.model.embed_tokens", 0, 512, 256, 8, 2.0 / 16);
    weft_model_dir_close(&d);
    check_runs(&dense);
    drop_folder("m");
    weft_shape narrow = dense;
    narrow.hidden = 192; /* Q6_K cannot hold it: 8 bits in both layouts, so that they stay comparable */
    make((weft_synth){.shape = &narrow, .bits = 4});
    open_dir(&d);
    check_weight(&d, "language_model.model.embed_tokens", 0, 512, 192, 8, 2.0 / sqrt(192));
    weft_model_dir_close(&d);
    drop_folder("m");
    make((weft_synth){.shape = &dense, .bits = 4, .head_bits = 16});
    open_dir(&d);
    check_weight(&d, "language_model.model.embed_tokens", 0, 512, 256, 0, 2.0 / 16);
    weft_model_dir_close(&d);
    check_runs(&dense);
    drop_folder("m");
}

static void test_mlx_mixture(void **state) {
    (void)state;
    make((weft_synth){.shape = &mixture, .bits = 4});
    weft_model_dir d;
    open_dir(&d);
    assert_string_equal(d.head, "language_model.lm_head");
    check_weight(&d, "language_model.lm_head", 0, 512, 256, 6, 2.0 / 16);
    check_weight(&d, "language_model.model.embed_tokens", 0, 512, 256, 4, 1.0);
    check_weight(&d, "language_model.model.layers.1.mlp.gate", 0, 8, 256, 8, 1.0 / 16);
    check_weight(&d, "language_model.model.layers.1.mlp.shared_expert_gate", 0, 1, 256, 8, 1.0 / 16);
    check_weight(&d, "language_model.model.layers.1.mlp.switch_mlp.down_proj", 8, 256, 64, 4, 1.0 / 8);
    check_weight(&d, "mtp.layers.0.mlp.gate", 0, 8, 256, 8, 1.0 / 16);
    weft_model_dir_close(&d);
    check_runs(&mixture);
    drop_folder("m");
}

static void test_plain(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        make((weft_synth){.shape = i ? &mixture : &dense, .bits = 16});
        weft_model_dir d;
        open_dir(&d);
        assert_true(!d.converted && d.mtp && !d.mtp_converted);
        assert_string_equal(d.trunk, "model.language_model.");
        assert_int_equal(d.config.quant.bits, 0);
        if (i) check_weight(&d, "model.language_model.layers.0.mlp.experts.gate_up_proj", 8, 128, 256, 0, 1.0 / 16);
        check_weight(&d, "model.language_model.layers.3.self_attn.q_proj", 0, 512, 256, 0, 1.0 / 16);
        weft_model_dir_close(&d);
        check_runs(i ? &mixture : &dense);
        drop_folder("m");
    }
}

/* Every other family, in every packing. */
static void test_families(void **state) {
    (void)state;
    for (int i = 0; i < OTHERS; i++)
        for (int bits = 4; bits <= 16; bits *= 2) {
            weft_model_dir d;
            make((weft_synth){.shape = &others[i], .bits = bits});
            open_dir(&d);
            assert_int_equal(d.config.n_layers, others[i].n_layers);
            assert_int_equal(d.config.kv_shared_layers, weft_shape_sharing(&others[i], others[i].n_layers));
            weft_model_dir_close(&d);
            check_runs(&others[i]);
            drop_folder("m");
        }
}

/* Several files hold the same bytes as one. */
static void test_shards(void **state) {
    (void)state;
    make((weft_synth){.shape = &dense, .bits = 4, .seed = 3});
    weft_model_dir one, many;
    open_dir(&one);
    assert_int_equal(rename(at("m"), at("one")), 0);
    make((weft_synth){.shape = &dense, .bits = 4, .seed = 3, .shard_bytes = 300000});
    assert_true(weft_file_exists(at("m/model.safetensors.index.json")));
    assert_true(weft_file_exists(at("m/model-00002-of-00009.safetensors")));
    assert_false(weft_file_exists(at("m/model.safetensors")));
    open_dir(&many);
    assert_int_equal(weft_tensors_count(one.tensors), weft_tensors_count(many.tensors));
    for (size_t i = 0; i < weft_tensors_count(one.tensors); i++) {
        const weft_tensor *x = weft_tensors_at(one.tensors, i), *y = weft_tensors_find(many.tensors, x->name);
        assert_non_null(y);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    weft_model_dir_close(&one);
    weft_model_dir_close(&many);
    drop_folder("one");
    drop_folder("m");
}

static void test_seeds(void **state) {
    (void)state;
    void *data[3];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        uint64_t bytes = make((weft_synth){.shape = &mixture, .bits = 8, .gguf = true, .seed = i == 2 ? 6 : 5});
        data[i] = read_all("m/model.gguf", &n[i]);
        assert_int_equal(bytes, n[i]);
        drop_folder("m");
    }
    assert_int_equal(n[0], n[1]);
    assert_int_equal(n[0], n[2]);
    assert_memory_equal(data[0], data[1], n[0]);
    assert_memory_not_equal(data[0], data[2], n[0]);
    for (int i = 0; i < 3; i++) weft_free(data[i]);
}

/* ---- GGUF, read back by the format's description --------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *p;
    size_t at, size;
} cursor;

static const uint8_t *take(cursor *c, size_t n) {
    assert_true(n <= c->size - c->at);
    c->at += n;
    return c->p + c->at - n;
}
static uint32_t u32(cursor *c) {
    uint32_t v;
    memcpy(&v, take(c, 4), 4);
    return v;
}
static uint64_t u64(cursor *c) {
    uint64_t v;
    memcpy(&v, take(c, 8), 8);
    return v;
}
static void text(cursor *c, char out[100]) {
    uint64_t n = u64(c);
    assert_true(n > 0 && n < 100);
    memcpy(out, take(c, (size_t)n), (size_t)n);
    out[n] = 0;
}

typedef struct stored {
    char name[100];
    uint32_t rank, type;
    uint64_t ne[4], offset, bytes;
} stored;
typedef struct gguf {
    struct {
        char key[100];
        uint32_t kind, value; /* of U32, and the bits of F32 */
        char text[100];
        uint64_t n; /* of I32s */
        int32_t list[16];
    } keys[64];
    stored tensors[256];
    uint64_t n_keys, n_tensors;
    const uint8_t *data;
} gguf;

static void parse(gguf *g, const void *file, size_t size) {
    static const struct {
        uint64_t numbers, bytes;
    } types[31] = {[0] = {1, 4}, [2] = {32, 18}, [8] = {32, 34}, [14] = {256, 210}, [30] = {1, 2}};
    cursor c = {file, 0, size};
    assert_memory_equal(take(&c, 4), "GGUF", 4);
    assert_int_equal(u32(&c), 3);
    g->n_tensors = u64(&c);
    g->n_keys = u64(&c);
    assert_true(g->n_tensors <= 256 && g->n_keys <= 64);
    for (uint64_t i = 0; i < g->n_keys; i++) {
        text(&c, g->keys[i].key);
        g->keys[i].kind = u32(&c);
        if (g->keys[i].kind == 8) {
            text(&c, g->keys[i].text);
        } else if (g->keys[i].kind == 9) {
            assert_int_equal(u32(&c), 5); /* of int32 */
            g->keys[i].n = u64(&c);
            assert_true(g->keys[i].n <= 16);
            memcpy(g->keys[i].list, take(&c, (size_t)g->keys[i].n * 4), (size_t)g->keys[i].n * 4);
        } else if (g->keys[i].kind == 7) {
            g->keys[i].value = *take(&c, 1);
        } else {
            assert_true(g->keys[i].kind == 4 || g->keys[i].kind == 6);
            g->keys[i].value = u32(&c);
        }
    }
    uint64_t at = 0;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        stored *t = &g->tensors[i];
        text(&c, t->name);
        t->rank = u32(&c);
        assert_true(t->rank >= 1 && t->rank <= 3);
        uint64_t numbers = 1;
        for (uint32_t d = 0; d < t->rank; d++) numbers *= t->ne[d] = u64(&c);
        t->type = u32(&c);
        assert_true(t->type < 31 && types[t->type].numbers && t->ne[0] % types[t->type].numbers == 0);
        t->bytes = numbers / types[t->type].numbers * types[t->type].bytes;
        t->offset = u64(&c);
        assert_int_equal(t->offset, at); /* one after the other, aligned */
        at = (at + t->bytes + 31) / 32 * 32;
        for (uint64_t j = 0; j < i; j++) assert_string_not_equal(g->tensors[j].name, t->name);
    }
    size_t start = (c.at + 31) / 32 * 32;
    assert_int_equal(start + at, size);
    g->data = c.p + start;
}

static uint32_t key_value(const gguf *g, const char *key) {
    for (uint64_t i = 0; i < g->n_keys; i++)
        if (strcmp(g->keys[i].key, key) == 0) return g->keys[i].value;
    fail_msg("no key '%s'", key);
    return 0;
}
static const char *key_text(const gguf *g, const char *key) {
    for (uint64_t i = 0; i < g->n_keys; i++)
        if (strcmp(g->keys[i].key, key) == 0) return g->keys[i].text;
    fail_msg("no key '%s'", key);
    return NULL;
}
static void check_list(const gguf *g, const char *key, const int32_t *v, uint64_t n) {
    for (uint64_t i = 0; i < g->n_keys; i++)
        if (strcmp(g->keys[i].key, key) == 0) {
            assert_int_equal(g->keys[i].n, n);
            assert_memory_equal(g->keys[i].list, v, n * sizeof *v);
            return;
        }
    fail_msg("no key '%s'", key);
}
static bool has(const gguf *g, const char *name) {
    for (uint64_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0) return true;
    return false;
}
static const stored *stored_at(const gguf *g, const char *name) {
    for (uint64_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0) return &g->tensors[i];
    fail_msg("no tensor '%s'", name);
    return NULL;
}
static void check_stored(const gguf *g, const char *name, uint32_t type, uint64_t a, uint64_t b, uint64_t c) {
    const stored *t = stored_at(g, name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->rank, c ? 3 : b ? 2 : 1);
    assert_int_equal(t->ne[0], a);
    if (b) assert_int_equal(t->ne[1], b);
    if (c) assert_int_equal(t->ne[2], c);
}

static void test_gguf_dense(void **state) {
    (void)state;
    size_t n;
    static gguf g;
    make((weft_synth){.shape = &dense, .bits = 4, .gguf = true});
    void *file = read_all("m/model.gguf", &n);
    assert_false(weft_file_exists(at("m/config.json")));
    parse(&g, file, n);
    assert_string_equal(key_text(&g, "general.architecture"), "qwen35");
    assert_string_equal(key_text(&g, "tokenizer.ggml.model"), "none");
    assert_int_equal(key_value(&g, "qwen35.block_count"), 5);
    assert_int_equal(key_value(&g, "qwen35.vocab_size"), 512);
    assert_int_equal(key_value(&g, "qwen35.ssm.inner_size"), 256);
    assert_int_equal(key_value(&g, "qwen35.ssm.time_step_rank"), 4);
    assert_int_equal(key_value(&g, "qwen35.rope.freq_base"), 0x49742400); /* 1e6 */
    check_stored(&g, "token_embd.weight", 14, 256, 512, 0);
    check_stored(&g, "blk.0.attn_qkv.weight", 2, 256, 512, 0);
    check_stored(&g, "blk.0.ssm_conv1d.weight", 0, 4, 512, 0);
    check_stored(&g, "blk.0.ssm_dt.bias", 0, 4, 0, 0);
    check_stored(&g, "blk.3.attn_q.weight", 2, 256, 512, 0);
    check_stored(&g, "blk.3.attn_q_norm.weight", 0, 64, 0, 0);
    check_stored(&g, "blk.4.ffn_down.weight", 2, 512, 256, 0);
    assert_int_equal(g.n_tensors, 2 + 4 * 14 + 11);
    float v[64];
    weft_to_f32(v, WEFT_F32, g.data + stored_at(&g, "blk.0.ssm_a")->offset, 4);
    for (int i = 0; i < 4; i++) assert_true(v[i] <= -1 && v[i] >= -16);
    weft_to_f32(v, WEFT_F32, g.data + stored_at(&g, "blk.3.attn_k_norm.weight")->offset, 64);
    for (int i = 0; i < 64; i++) assert_true(v[i] > 0.8f && v[i] < 1.2f); /* gains as they are */
    static float y[512 * 256];
    for (int i = 0; i < 512; i++)
        unpack(WEFT_STORE_Q6_K, g.data + stored_at(&g, "token_embd.weight")->offset + 210 * i, y + 256 * i);
    check_spread(y, 512 * 256, 2.0 / 16, "the embedding");
    weft_free(file);
    drop_folder("m");
}

static void test_gguf_mixture(void **state) {
    (void)state;
    static const struct {
        int bits, head_bits;
        uint32_t type, head_type, file_type;
    } kinds[] = {{8, 0, 8, 8, 7}, {16, 0, 30, 30, 32}, {4, 4, 2, 2, 2}, {8, 16, 8, 30, 7}, {16, 6, 30, 14, 32}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n;
        static gguf g;
        make((weft_synth){.shape = &mixture, .bits = kinds[i].bits, .head_bits = kinds[i].head_bits, .gguf = true});
        void *file = read_all("m/model.gguf", &n);
        parse(&g, file, n);
        assert_string_equal(key_text(&g, "general.architecture"), "qwen35moe");
        assert_int_equal(key_value(&g, "general.file_type"), kinds[i].file_type);
        assert_int_equal(key_value(&g, "qwen35moe.expert_used_count"), 2);
        assert_int_equal(key_value(&g, "qwen35moe.expert_shared_feed_forward_length"), 128);
        check_stored(&g, "output.weight", kinds[i].head_type, 256, 512, 0);
        check_stored(&g, "token_embd.weight", kinds[i].type, 256, 512, 0);
        check_stored(&g, "blk.2.ffn_gate_inp.weight", 0, 256, 8, 0);
        check_stored(&g, "blk.2.ffn_gate_inp_shexp.weight", 0, 256, 0, 0);
        check_stored(&g, "blk.2.ffn_up_exps.weight", kinds[i].type, 256, 64, 8);
        check_stored(&g, "blk.2.ffn_down_exps.weight", kinds[i].type, 64, 256, 8);
        weft_free(file);
        drop_folder("m");
    }
}

static void test_gguf_gemma4(void **state) {
    (void)state;
    static gguf g;
    size_t n;
    make((weft_synth){.shape = &others[5], .bits = 4, .gguf = true});
    void *file = read_all("m/model.gguf", &n);
    parse(&g, file, n);
    assert_string_equal(key_text(&g, "general.architecture"), "gemma4");
    assert_int_equal(key_value(&g, "gemma4.attention.shared_kv_layers"), 4);
    assert_int_equal(key_value(&g, "gemma4.embedding_length_per_layer_input"), 64);
    assert_int_equal(key_value(&g, "gemma4.attention.key_length"), 128);
    assert_int_equal(key_value(&g, "gemma4.attention.key_length_swa"), 64);
    check_list(&g, "gemma4.attention.sliding_window_pattern", (int32_t[]){1, 1, 0, 1, 1, 0, 1, 1, 0}, 9);
    check_list(&g, "gemma4.attention.head_count_kv", (int32_t[]){2, 2, 2, 2, 2, 2, 2, 2, 2}, 9);
    check_list(&g, "gemma4.feed_forward_length", (int32_t[]){512, 512, 512, 512, 512, 1024, 1024, 1024, 1024}, 9);
    check_stored(&g, "per_layer_token_embd.weight", 2, 9 * 64, 512, 0);
    check_stored(&g, "per_layer_model_proj.weight", 2, 256, 9 * 64, 0);
    check_stored(&g, "blk.0.attn_q.weight", 2, 256, 256, 0);
    check_stored(&g, "blk.2.attn_q.weight", 2, 256, 512, 0);
    check_stored(&g, "blk.4.ffn_up.weight", 2, 256, 512, 0);
    check_stored(&g, "blk.5.ffn_up.weight", 2, 256, 1024, 0);
    check_stored(&g, "blk.8.layer_output_scale.weight", 0, 1, 0, 0);
    assert_true(has(&g, "blk.4.attn_k.weight") && !has(&g, "blk.5.attn_k.weight") && !has(&g, "blk.5.attn_k_norm.weight"));
    /* A quarter of a full layer's angles turn. */
    float v[64];
    check_stored(&g, "rope_freqs.weight", 0, 64, 0, 0);
    memcpy(v, g.data + stored_at(&g, "rope_freqs.weight")->offset, sizeof v);
    for (int i = 0; i < 64; i++) assert_true(v[i] == (i < 16 ? 1.0f : 1e30f));
    weft_free(file);
    drop_folder("m");
    make((weft_synth){.shape = &others[5], .bits = 4, .layers = 2, .gguf = true});
    file = read_all("m/model.gguf", &n);
    parse(&g, file, n);
    assert_false(has(&g, "rope_freqs.weight")); /* no layer reads it: llama.cpp refuses what it does not know */
    weft_free(file);
    drop_folder("m");
}

static void test_gguf_nemotron(void **state) {
    (void)state;
    static gguf g;
    size_t n;
    make((weft_synth){.shape = &others[7], .bits = 8, .gguf = true});
    void *file = read_all("m/model.gguf", &n);
    parse(&g, file, n);
    assert_string_equal(key_text(&g, "general.architecture"), "nemotron_h_moe");
    assert_int_equal(key_value(&g, "nemotron_h_moe.ssm.time_step_rank"), 8);
    assert_int_equal(key_value(&g, "nemotron_h_moe.ssm.inner_size"), 256);
    assert_int_equal(key_value(&g, "nemotron_h_moe.expert_weights_norm"), 1);
    check_list(&g, "nemotron_h_moe.attention.head_count_kv", (int32_t[]){0, 0, 0, 2, 0, 0, 0}, 7);
    check_list(&g, "nemotron_h_moe.feed_forward_length", (int32_t[]){0, 64, 0, 0, 64, 0, 64}, 7);
    check_stored(&g, "blk.0.ssm_in.weight", 8, 256, 2 * 256 + 2 * 2 * 32 + 8, 0);
    check_stored(&g, "blk.0.ssm_a", 0, 1, 8, 0);
    check_stored(&g, "blk.0.ssm_d", 0, 1, 8, 0);
    check_stored(&g, "blk.0.ssm_norm.weight", 0, 128, 2, 0);
    check_stored(&g, "blk.0.ssm_conv1d.bias", 0, 256 + 2 * 2 * 32, 0, 0);
    check_stored(&g, "blk.1.exp_probs_b.bias", 0, 8, 0, 0);
    check_stored(&g, "blk.1.ffn_up_exps.weight", 8, 256, 64, 8);
    check_stored(&g, "blk.3.attn_k.weight", 8, 256, 128, 0);
    weft_free(file);
    drop_folder("m");
}

/* Every family makes a file without a name twice. */
static void test_gguf_others(void **state) {
    (void)state;
    static gguf g;
    for (int i = 0; i < OTHERS; i++) {
        size_t n;
        make((weft_synth){.shape = &others[i], .bits = 4, .gguf = true});
        void *file = read_all("m/model.gguf", &n);
        parse(&g, file, n);
        check_stored(&g, "token_embd.weight", others[i].tied ? 14 : 2, 256, 512, 0);
        assert_int_equal(has(&g, "output.weight"), !others[i].tied);
        assert_int_equal(has(&g, "blk.0.attn_q.bias"), others[i].family == WEFT_SHAPE_QWEN2);
        weft_free(file);
        drop_folder("m");
    }
}

/* ---- failures ------------------------------------------------------------------------------------------------------------ */

static void refuse(weft_synth y, weft_status expected, const char *words) {
    weft_error e = {0};
    uint64_t bytes;
    if (!y.out) y.out = at("m");
    assert_says(weft_synth_write(&y, &bytes, &e), &e, expected, words);
    assert_false(weft_dir_exists(at("m")));
}

static void test_refusals(void **state) {
    (void)state;
    refuse((weft_synth){.shape = &dense, .bits = 5}, WEFT_EINVAL, "5 bits are not supported; 4, 8 and 16 are");
    refuse((weft_synth){.shape = &dense, .bits = 4, .head_bits = 7}, WEFT_EINVAL, "7 bits for the head");
    refuse((weft_synth){.shape = &dense, .bits = 16, .head_bits = 6}, WEFT_EINVAL, "choose 4 or 8 bits");
    refuse((weft_synth){.shape = &dense, .bits = 4, .layers = 6}, WEFT_EINVAL, "6 layers: tiny has 5");
    weft_shape narrow = dense;
    narrow.hidden = 192;
    refuse((weft_synth){.shape = &narrow, .bits = 4, .head_bits = 6, .gguf = true}, WEFT_EINVAL,
           "'token_embd' has 192 columns, not a multiple of 256");
    refuse((weft_synth){.shape = &dense, .bits = 4, .out = at("no/m")}, WEFT_EIO, "cannot make the folder");
    put_text("file", "x");
    refuse((weft_synth){.shape = &dense, .bits = 4, .out = at("file")}, WEFT_EIO, "file: ");
    /* A folder in use stays as it is. */
    refuse((weft_synth){.shape = &dense, .bits = 4, .out = scratch}, WEFT_EINVAL, "is not empty: it has 'file'");
    assert_true(weft_file_exists(at("file")));
    /* More than any disk has. */
    weft_shape huge = dense;
    huge.hidden = 1 << 22, huge.vocab = 1 << 30;
    refuse((weft_synth){.shape = &huge, .bits = 4}, WEFT_EIO, "its disk has");
}

/* An empty folder is fine, and stays after a failure. */
static void test_empty_folder(void **state) {
    (void)state;
    weft_error e;
    uint64_t bytes;
    volatile sig_atomic_t stop = 1;
    assert_int_equal(mkdir(at("m"), 0777), 0);
    weft_synth y = {.shape = &dense, .bits = 4, .out = at("m"), .stop = &stop};
    assert_says(weft_synth_write(&y, &bytes, &e), &e, WEFT_EIO, "interrupted");
    assert_true(weft_dir_exists(at("m")));
    make((weft_synth){.shape = &dense, .bits = 4});
    drop_folder("m");
}

static void test_interrupted(void **state) {
    (void)state;
    volatile sig_atomic_t stop = 1;
    for (int gguf = 0; gguf < 2; gguf++)
        refuse((weft_synth){.shape = &dense, .bits = 4, .gguf = gguf, .stop = &stop}, WEFT_EIO, "interrupted");
}

/* As on a full disk: a write fails with part of the file on it, or part of the files. */
static void test_full_disk(void **state) {
    (void)state;
    struct rlimit old, low;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 250000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    refuse((weft_synth){.shape = &dense, .bits = 4}, WEFT_EIO, "model.safetensors: cannot write");
    refuse((weft_synth){.shape = &dense, .bits = 4, .gguf = true}, WEFT_EIO, "model.gguf: cannot write");
    /* Small files at first; the feed-forward weights are 589 kB each. */
    weft_shape wide = dense;
    wide.intermediate = 4096;
    refuse((weft_synth){.shape = &wide, .bits = 4, .shard_bytes = 100000}, WEFT_EIO, "cannot write");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    const weft_shape *shapes[] = {&dense, &mixture, &others[5], &others[7]};
    for (int i = 0; i < 4; i++) {
        uint64_t n = 1;
        for (;; n += 1 + n / 40) {
            weft_error e;
            uint64_t bytes;
            weft_synth y = {.shape = shapes[i], .layers = 1, .bits = 4, .gguf = i % 2, .out = at("m"), .shard_bytes = 100000};
            weft_alloc_fail_at(n);
            weft_status st = weft_synth_write(&y, &bytes, &e);
            weft_alloc_fail_at(0);
            if (st == WEFT_OK) break;
            assert_int_equal(st, e.code);
            if (st != WEFT_ENOMEM) fail_msg("allocation %d: %s", (int)n, e.text);
            assert_false(weft_dir_exists(at("m")));
        }
        assert_true(n > 15);
        drop_folder("m");
    }
}

static int drop_all(void **state) {
    return clean(state) == 0 ? scratch_drop(state) : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sizes, clean),        cmocka_unit_test_setup(test_cuts, clean),
        cmocka_unit_test_setup(test_pieces, clean),       cmocka_unit_test_setup(test_blocks, clean),
        cmocka_unit_test_setup(test_mlx_dense, clean),    cmocka_unit_test_setup(test_mlx_mixture, clean),
        cmocka_unit_test_setup(test_plain, clean),        cmocka_unit_test_setup(test_families, clean),
        cmocka_unit_test_setup(test_shards, clean),       cmocka_unit_test_setup(test_seeds, clean),
        cmocka_unit_test_setup(test_gguf_dense, clean),   cmocka_unit_test_setup(test_gguf_mixture, clean),
        cmocka_unit_test_setup(test_gguf_gemma4, clean),  cmocka_unit_test_setup(test_gguf_nemotron, clean),
        cmocka_unit_test_setup(test_gguf_others, clean),  cmocka_unit_test_setup(test_refusals, clean),
        cmocka_unit_test_setup(test_empty_folder, clean), cmocka_unit_test_setup(test_interrupted, clean),
        cmocka_unit_test_setup(test_full_disk, clean),    cmocka_unit_test_setup(test_every_allocation_may_fail, clean),
    };
    return cmocka_run_group_tests(tests, scratch_make, drop_all);
}

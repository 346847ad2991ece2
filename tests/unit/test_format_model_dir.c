/* test_format_model_dir.c: one tiny network published in all the ways that publishers have, and folders that are none. */
#include "format_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "format/model_dir.h"

static struct sigaction ours; /* cmocka has put a SIGBUS handler of its own in the place of ours for the time of a test */

enum { HIDDEN = 64, VOCAB = 320, CHANNELS = 128 };
static uint16_t zeros[VOCAB * HIDDEN], ones[HIDDEN];

typedef struct made { /* what to write; NULL or false: leave it out */
    const char *trunk, *head, *mtp;
    bool converted; /* convolutions as MLX stores them */
    bool no_conv, no_mtp_norm;
    const uint16_t *mtp_norm; /* input_layernorm of the drafter's layer */
    const char *mtp_file, *mtp_head;
} made;

static void write_model(const made *m) {
    static char names[8][100];
    weft_tensor t[8], side[8];
    size_t n = 0, s = 0, k = 0;
#define NAME(prefix, rest) (snprintf(names[k], sizeof names[k], "%s%s", prefix, rest), names[k++])
    t[n++] = tensor(NAME(m->trunk, "embed_tokens.weight"), WEFT_BF16, 2, VOCAB, HIDDEN, 0, zeros);
    if (m->head) t[n++] = tensor(NAME(m->head, ".weight"), WEFT_BF16, 2, VOCAB, HIDDEN, 0, zeros);
    if (!m->no_conv)
        t[n++] = tensor(NAME(m->trunk, "layers.0.linear_attn.conv1d.weight"), WEFT_BF16, 3, CHANNELS, m->converted ? 4 : 1,
                        m->converted ? 1 : 4, zeros);
    if (m->mtp) {
        side[s++] = tensor(NAME(m->mtp, "fc.weight"), WEFT_BF16, 2, HIDDEN, 2 * HIDDEN, 0, zeros);
        if (!m->no_mtp_norm)
            side[s++] = tensor(NAME(m->mtp, "layers.0.input_layernorm.weight"), WEFT_BF16, 1, HIDDEN, 0, 0,
                               m->mtp_norm ? m->mtp_norm : zeros);
        if (m->mtp_head) side[s++] = tensor(NAME(m->mtp, m->mtp_head), WEFT_BF16, 2, VOCAB, HIDDEN, 0, zeros);
        if (m->mtp_file)
            put_tensors(m->mtp_file, side, s, NULL);
        else
            for (size_t i = 0; i < s; i++) t[n++] = side[i];
    }
    put_tensors("model.safetensors", t, n, m->converted ? (const char *const[]){"format", "mlx", NULL} : NULL);
    put_text("config.json", tiny_config);
}

static weft_model_dir good(const char *path) {
    weft_model_dir d;
    weft_error e;
    if (weft_model_dir_open(&d, path, &e) != WEFT_OK) fail_msg("%s", e.text);
    return d;
}

static int values(void **state) {
    for (int i = 0; i < HIDDEN; i++) ones[i] = i % 2 ? 0x3f80 : 0x3f40; /* 1, 0.75 */
    return scratch_clear(state);
}

static void test_prefixes(void **state) {
    (void)state;
    static const made ways[] = {
        {.trunk = "model.", .head = "lm_head", .mtp = "mtp."},
        {.trunk = "model.language_model.", .head = "lm_head", .mtp = "mtp."},
        {.trunk = "language_model.model.", .head = "language_model.lm_head", .mtp = "language_model.mtp.", .converted = true},
        {.trunk = "language_model.model.",
         .head = "language_model.lm_head",
         .mtp = "mtp.",
         .converted = true,
         .mtp_file = "mtp.safetensors"},
        {.trunk = "language_model.model.",
         .head = "language_model.lm_head",
         .mtp = "",
         .converted = true,
         .mtp_file = "mtp.safetensors"},
        {.trunk = "model.", .head = "lm_head", .converted = true},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        scratch_empty();
        write_model(&ways[i]);
        weft_model_dir d = good(scratch);
        assert_string_equal(d.path, scratch);
        assert_int_equal(d.config.hidden_size, HIDDEN);
        assert_string_equal(d.trunk, ways[i].trunk);
        assert_int_equal(d.converted, ways[i].converted);
        assert_string_equal(d.head, ways[i].head);
        if (ways[i].mtp)
            assert_string_equal(d.mtp, ways[i].mtp);
        else
            assert_null(d.mtp); /* announced by the config, dropped by the converter */
        assert_null(d.mtp_head);
        assert_false(d.mtp_converted);
        weft_model_dir_close(&d);
        weft_model_dir_close(&d);
    }
}

/* A drafter whose norm gains are read in the other convention drafts nothing that is accepted, without any error. */
static void test_norm_convention_of_the_drafter(void **state) {
    (void)state;
    static const struct {
        bool converted;
        const uint16_t *norm;
        bool mtp_converted;
    } cases[] = {
        {false, zeros, false},
        {false, ones, false}, /* a raw trunk's head is raw, whatever its norms look like */
        {true, zeros, false},
        {true, ones, true},
    };
    static const struct {
        const char *prefix, *file;
    } places[] = {{"mtp.", NULL}, {"language_model.mtp.", NULL}, {"mtp.", "mtp.safetensors"}, {"", "mtp.safetensors"}};
    for (size_t i = 0; i < 16; i++) { /* the sidecar without prefixes was a drafter's own folder */
        scratch_empty();
        write_model(&(made){.trunk = "model.",
                            .head = "lm_head",
                            .mtp = places[i / 4].prefix,
                            .mtp_file = places[i / 4].file,
                            .converted = cases[i % 4].converted,
                            .mtp_norm = cases[i % 4].norm});
        weft_model_dir d = good(scratch);
        assert_string_equal(d.mtp, places[i / 4].prefix);
        assert_int_equal(d.converted, cases[i % 4].converted);
        assert_int_equal(d.mtp_converted, cases[i % 4].mtp_converted);
        weft_model_dir_close(&d);
    }
    scratch_empty();
    uint16_t nan[HIDDEN] = {[5] = 0x7fc0};
    write_model(&(made){.trunk = "model.", .head = "lm_head", .mtp = "mtp.", .converted = true, .mtp_norm = nan});
    weft_model_dir d;
    weft_error e;
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "'mtp.layers.0.input_layernorm.weight' holds NaN");
    write_model(&(made){.trunk = "model.", .head = "lm_head", .mtp = "mtp.", .converted = true, .no_mtp_norm = true});
    d = good(scratch);
    assert_true(d.mtp_converted);
    weft_model_dir_close(&d);
}

static void test_heads(void **state) {
    (void)state;
    write_model(&(made){.trunk = "model.", .head = "lm_head", .mtp = "mtp.", .mtp_head = "lm_head.weight"});
    weft_model_dir d = good(scratch);
    assert_string_equal(d.head, "lm_head");
    assert_string_equal(d.mtp_head, "mtp.lm_head");
    weft_model_dir_close(&d);
    write_model(&(made){.trunk = "model.", .head = "lm_head", .mtp = "mtp.", .mtp_head = "shared_head.head.weight"});
    d = good(scratch);
    assert_string_equal(d.mtp_head, "mtp.shared_head.head");
    weft_model_dir_close(&d);

    /* A checkpoint without the head that its config announces is incomplete; one that announces nothing is tied. */
    weft_error e;
    write_model(&(made){.trunk = "model.", .mtp = "mtp."});
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "'lm_head.weight' is missing");
    char *unsaid = swap(tiny_config, "\"tie_word_embeddings\": false,", "");
    put_text("config.json", unsaid);
    d = good(scratch);
    assert_null(d.head);
    weft_model_dir_close(&d);
    free(unsaid);
    write_model(&(made){.trunk = "model.", .head = "lm_head", .mtp = "mtp."});

    char *tied = swap(tiny_config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    put_text("config.json", tied); /* the flag wins over a copy in the file */
    d = good(scratch);
    assert_null(d.head);
    weft_model_dir_close(&d);
    free(tied);

    char *none = swap(tiny_config, "\"mtp_num_hidden_layers\": 1", "\"mtp_num_hidden_layers\": 0");
    put_text("config.json", none);
    d = good(scratch);
    assert_null(d.mtp);
    weft_model_dir_close(&d);
    free(none);

    char *full = swap(tiny_config, "\"linear_attention\", \"linear_attention\", \"linear_attention\"",
                      "\"full_attention\", \"full_attention\", \"full_attention\"");
    write_model(&(made){.trunk = "model.", .head = "lm_head", .converted = true});
    put_text("config.json", full); /* no convolution to judge by: the file says who wrote it */
    d = good(scratch);
    assert_true(d.converted);
    weft_model_dir_close(&d);
    free(full);
}

/* A folder of a seed of the config fuzzer and tensors of these names; only names matter, but for a convolution's shape. */
static void write_family(const char *seed, const char *const *names) {
    char path[200];
    weft_error e;
    char *text;
    size_t n, k = 0;
    weft_tensor t[12];
    snprintf(path, sizeof path, "tests/fuzz/corpus/config/%s.json", seed);
    if (weft_file_read(path, 1 << 20, &text, &n, &e) != WEFT_OK) fail_msg("%s", e.text);
    put("config.json", text, n);
    weft_free(text);
    for (; names[k]; k++)
        if (strstr(names[k], "conv1d"))
            t[k] = tensor(names[k], WEFT_BF16, 3, CHANNELS, *names[k] == 'l' ? 4 : 1, *names[k] == 'l' ? 1 : 4, zeros);
        else
            t[k] = tensor(names[k], WEFT_BF16, 1, HIDDEN, 0, 0, zeros);
    put_tensors("model.safetensors", t, k, (const char *const[]){"format", "mlx", NULL});
}

static void test_families(void **state) {
    (void)state;
    static const struct {
        const char *seed, *names[6], *trunk, *embedding, *norm, *head, *mtp;
        bool converted, headless;
    } ways[] = {
        {"tiny-qwen2", {"model.embed_tokens.weight"}, "model.", "embed_tokens", "norm", NULL, NULL, false, false},
        {"tiny-qwen3-dense", {"embed_tokens.weight"}, "", "embed_tokens", "norm", NULL, NULL, false, true},
        {"tiny-llama3",
         {"model.embed_tokens.weight", "lm_head.weight"},
         "model.",
         "embed_tokens",
         "norm",
         "lm_head",
         NULL,
         false,
         false},
        {"tiny-gemma3",
         {"language_model.model.embed_tokens.weight", "lm_head.weight"},
         "language_model.model.",
         "embed_tokens",
         "norm",
         NULL,
         NULL,
         false,
         false},
        {"tiny-gemma4-ple",
         {"model.language_model.embed_tokens.weight"},
         "model.language_model.",
         "embed_tokens",
         "norm",
         NULL,
         NULL,
         false,
         false},
        {"tiny-gemma4-assistant",
         {"model.embed_tokens.weight", "pre_projection.weight"},
         "model.",
         "embed_tokens",
         "norm",
         NULL,
         NULL,
         false,
         false},
        {"tiny-nemotron_h-mtp",
         {"backbone.embeddings.weight", "backbone.layers.0.mixer.conv1d.weight", "lm_head.weight", "mtp.layers.0.eh_proj.weight"},
         "backbone.",
         "embeddings",
         "norm_f",
         "lm_head",
         "mtp.",
         false,
         false},
        {"tiny-nemotron_h-mtp",
         {"model.embeddings.weight", "model.layers.0.mixer.conv1d.weight", "lm_head.weight"},
         "model.",
         "embeddings",
         "norm_f",
         "lm_head",
         NULL,
         false,
         false},
        {"tiny-nemotron_h-moe",
         {"backbone.embeddings.weight", "backbone.layers.0.mixer.conv1d.weight", "lm_head.weight", "mtp.layers.0.eh_proj.weight"},
         "backbone.",
         "embeddings",
         "norm_f",
         "lm_head",
         NULL,
         false,
         false},
        {"tiny-nemotron_h-moe",
         {"language_model.backbone.embeddings.weight", "language_model.backbone.layers.0.mixer.conv1d.weight",
          "language_model.lm_head.weight"},
         "language_model.backbone.",
         "embeddings",
         "norm_f",
         "language_model.lm_head",
         NULL,
         true,
         false},
        {"tiny-qwen3_next",
         {"language_model.model.embed_tokens.weight", "language_model.model.layers.0.linear_attn.conv1d.weight",
          "language_model.lm_head.weight"},
         "language_model.model.",
         "embed_tokens",
         "norm",
         "language_model.lm_head",
         NULL,
         true,
         false},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        write_family(ways[i].seed, ways[i].names);
        weft_model_dir d = good(scratch);
        assert_string_equal(d.trunk, ways[i].trunk);
        assert_string_equal(d.embedding, ways[i].embedding);
        assert_string_equal(d.norm, ways[i].norm);
        assert_string_equal(d.head ? d.head : "", ways[i].head ? ways[i].head : "");
        assert_string_equal(d.mtp ? d.mtp : "", ways[i].mtp ? ways[i].mtp : "");
        assert_int_equal(d.converted, ways[i].converted);
        assert_int_equal(d.headless, ways[i].headless);
        assert_false(d.mtp_converted);
        weft_model_dir_close(&d);
    }
    weft_model_dir d;
    weft_error e;
    write_family("tiny-llama3", (const char *const[]){"model.embed_tokens.weight", NULL});
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "'lm_head.weight' is missing");
    write_family("tiny-nemotron_h-moe", (const char *const[]){"backbone.embed_tokens.weight", NULL});
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "'backbone.embeddings.weight' is missing");
    write_family("tiny-nemotron_h-moe", (const char *const[]){"backbone.embeddings.weight", "lm_head.weight", NULL});
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "'backbone.layers.0.mixer.conv1d.weight' is missing");
}

static void test_paths(void **state) {
    (void)state;
    write_model(&(made){.trunk = "model.", .head = "lm_head"});
    char path[300];
    static const char *const ends[] = {"/", "///", "/config.json", "/model.safetensors"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", scratch, ends[i]);
        weft_model_dir d = good(path);
        assert_string_equal(d.path, scratch);
        weft_model_dir_close(&d);
    }
    char back[1000];
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(scratch), 0);
    weft_model_dir d = good("config.json");
    assert_string_equal(d.path, ".");
    weft_model_dir_close(&d);
    assert_int_equal(chdir(back), 0);
}

static void test_no_model(void **state) {
    (void)state;
    weft_model_dir d;
    weft_error e;
    assert_says(weft_model_dir_open(&d, at("nowhere"), &e), &e, WEFT_EINVAL, "nowhere: there is no such file or folder");
    assert_null(d.path);
    assert_says(weft_model_dir_open(&d, "", &e), &e, WEFT_EINVAL, "there is no such file or folder");
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EINVAL,
                "is not a model folder: no config.json in it; expected a Hugging Face model folder");
    assert_says(weft_model_dir_open(&d, "/", &e), &e, WEFT_EINVAL, "/ is not a model folder");
    put_text("m.gguf", "GGUF");
    assert_says(weft_model_dir_open(&d, at("m.gguf"), &e), &e, WEFT_ESUPPORT, "GGUF files are not supported yet");
    put_text("config.json", tiny_config);
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_ESUPPORT,
                "only GGUF files; these are not supported yet, safetensors are");
    scratch_empty();
    put_text("config.json", "{\"model_type\": \"mamba\"}");
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_ESUPPORT, "model_type 'mamba' is not supported");
    put_text("config.json", tiny_config);
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "no .safetensors file in it");
    put_tensors("model.safetensors", NULL, 0, NULL);
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "'model.embed_tokens.weight' is missing");
    write_model(&(made){.trunk = "model.", .head = "lm_head", .no_conv = true});
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT, "'model.layers.0.linear_attn.conv1d.weight' is missing");
    char *other = swap(tiny_config, "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3");
    write_model(&(made){.trunk = "model.", .head = "lm_head"});
    put_text("config.json", other);
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EFORMAT,
                "is [128, 1, 4]; expected [channels, 1, 3] or [channels, 3, 1]");
    free(other);
}

static void test_cache_folder(void **state) {
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "mkdir -p '%s/snapshots'", scratch);
    assert_int_equal(system(path), 0);
    weft_model_dir d;
    weft_error e;
    assert_says(weft_model_dir_open(&d, scratch, &e), &e, WEFT_EINVAL,
                "is a folder of the Hugging Face cache; give one of the folders under its snapshots/");
    snprintf(path, sizeof path, "%s/snapshots", scratch);
    assert_int_equal(rmdir(path), 0);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    write_model(&(made){
        .trunk = "model.", .head = "lm_head", .mtp = "mtp.", .converted = true, .mtp_file = "mtp.safetensors", .mtp_norm = ones});
    uint64_t n = 1;
    for (;; n++) {
        weft_model_dir d;
        weft_error e;
        weft_alloc_fail_at(n);
        weft_status st = weft_model_dir_open(&d, scratch, &e);
        weft_alloc_fail_at(0);
        weft_model_dir_close(&d);
        if (st == WEFT_OK) break;
        assert_int_equal(st, e.code);
        if (st != WEFT_ENOMEM) fail_msg("allocation %d: %s", (int)n, e.text);
    }
    assert_true(n > 15);
}

/* ---- the fingerprint ----------------------------------------------------------------------------------------------------- */

typedef struct print {
    uint8_t hash[16];
} print;

static print fingerprint(void) {
    weft_error e;
    print p;
    weft_model_dir d = good(scratch);
    if (weft_model_dir_fingerprint(&d, p.hash, &e) != WEFT_OK) fail_msg("%s", e.text);
    weft_model_dir_close(&d);
    return p;
}

static bool same(print a, print b) {
    return memcmp(a.hash, b.hash, sizeof a.hash) == 0;
}

/* Every tensor file was written at that time, as after unpacking an archive. */
static void set_times(int64_t ns) {
    static const char *const names[] = {"model.safetensors", "mtp.safetensors"};
    struct timespec t[2] = {{.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}};
    t[1] = t[0];
    for (size_t i = 0; i < 2; i++)
        if (weft_file_exists(at(names[i]))) assert_int_equal(utimensat(AT_FDCWD, at(names[i]), t, 0), 0);
}

/* Adds to a byte, counted from the end if negative, and sets the times back. */
static void change(const char *name, int64_t place, int64_t time) {
    uint8_t x = 0;
    struct stat st;
    int fd = open(at(name), O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    if (place < 0) place += st.st_size;
    assert_int_equal(pread(fd, &x, 1, (off_t)place), 1);
    x++;
    assert_int_equal(pwrite(fd, &x, 1, (off_t)place), 1);
    close(fd);
    set_times(time);
}

static void test_fingerprint(void **state) {
    (void)state;
    const int64_t time = 1700000000123456789;
    const made ways = {.trunk = "model.", .head = "lm_head", .mtp = "mtp.", .mtp_file = "mtp.safetensors"};
    write_model(&ways);
    set_times(time);
    print p = fingerprint();
    assert_true(same(fingerprint(), p));

    /* Of less than a megabyte of data every byte is looked at. */
    static const struct {
        const char *file;
        int64_t place;
    } bytes[] = {{"model.safetensors", -1}, {"model.safetensors", -40000}, {"mtp.safetensors", -1}, {"mtp.safetensors", -5000}};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        change(bytes[i].file, bytes[i].place, time);
        if (same(fingerprint(), p)) fail_msg("a change %zu was not noticed", i);
        write_model(&ways);
        set_times(time);
        assert_true(same(fingerprint(), p));
    }
    set_times(time + 1);
    assert_false(same(fingerprint(), p));
    set_times(time);
    char *other = swap(tiny_config, "10000000.0", "10000001.0");
    put_text("config.json", other);
    free(other);
    assert_false(same(fingerprint(), p));
    put_text("config.json", tiny_config);
    assert_true(same(fingerprint(), p));
    assert_int_equal(rename(at("model.safetensors"), at("other.safetensors")), 0);
    assert_false(same(fingerprint(), p));
    assert_int_equal(rename(at("other.safetensors"), at("model.safetensors")), 0);
    assert_true(same(fingerprint(), p));

    /* The folder's own name and place are no part of it. */
    char old[sizeof scratch];
    snprintf(old, sizeof old, "%s", scratch);
    strcat(scratch, "-moved");
    assert_int_equal(rename(old, scratch), 0);
    bool moved = same(fingerprint(), p);
    assert_int_equal(rename(scratch, old), 0);
    snprintf(scratch, sizeof scratch, "%s", old);
    assert_true(moved);
}

/* Other weights of the same sizes and times: of a large file samples are read, which any other training changes. */
static void test_fingerprint_samples(void **state) {
    (void)state;
    enum { ROWS = 20000 };
    uint16_t *large = calloc(ROWS, 2 * HIDDEN * sizeof *large); /* 5 MB */
    weft_tensor t[] = {tensor("model.embed_tokens.weight", WEFT_BF16, 2, VOCAB, HIDDEN, 0, zeros),
                       tensor("lm_head.weight", WEFT_BF16, 2, VOCAB, HIDDEN, 0, zeros),
                       tensor("model.layers.0.linear_attn.conv1d.weight", WEFT_BF16, 3, CHANNELS, 1, 4, zeros),
                       tensor("z", WEFT_BF16, 2, ROWS, 2 * HIDDEN, 0, large)};
    put_text("config.json", tiny_config);
    put_tensors("model.safetensors", t, 4, NULL);
    set_times(1000000000);
    print p = fingerprint();
    change("model.safetensors", -1, 1000000000); /* the last sample ends with the data */
    assert_false(same(fingerprint(), p));
    for (size_t i = 1000000; i < 1000000 + 16384; i++) large[i] = 0x3f80;
    put_tensors("model.safetensors", t, 4, NULL);
    set_times(1000000000);
    assert_false(same(fingerprint(), p));
    free(large);

    /* No data at all behind the header of a second file. */
    write_model(&(made){.trunk = "model.", .head = "lm_head"});
    put_tensors("mtp.safetensors", NULL, 0, NULL);
    (void)fingerprint();
}

static void test_fingerprint_fails(void **state) {
    (void)state;
    weft_error e;
    uint8_t hash[16];
    write_model(&(made){.trunk = "model.", .head = "lm_head", .mtp = "mtp.", .mtp_file = "mtp.safetensors"});
    weft_model_dir d = good(scratch);
    uint64_t n = 1;
    for (;; n++) {
        weft_alloc_fail_at(n);
        weft_status st = weft_model_dir_fingerprint(&d, hash, &e);
        weft_alloc_fail_at(0);
        if (st == WEFT_OK) break;
        assert_int_equal(st, WEFT_ENOMEM);
    }
    assert_true(n > 3);
    sigaction(SIGBUS, &ours, NULL);
    assert_int_equal(truncate(at("model.safetensors"), 4), 0);
    assert_says(weft_model_dir_fingerprint(&d, hash, &e), &e, WEFT_EIO, "cut short");
    remove(at("config.json"));
    assert_says(weft_model_dir_fingerprint(&d, hash, &e), &e, WEFT_EIO, "config.json: ");
    weft_model_dir_close(&d);
}

static void test_names(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"models/mini", "mini"},
        {"/m/Qwen3.5-2B", "Qwen3.5-2B"},
        {"mini", "mini"},
        {"/", ""},
        {"/hub/models--Qwen--Qwen3.5-2B/snapshots/0123abcd", "Qwen--Qwen3.5-2B"},
        {"/hub/Qwen/snapshots/0123abcd", "0123abcd"},
        {"models--a--b/snapshots/1", "a--b"},
        {"snapshots/1", "1"},
        {"snapshots", "snapshots"},
    };
    char name[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weft_model_dir_name(&(weft_model_dir){.path = (char *)(uintptr_t)names[i][0]}, name);
        assert_string_equal(name, names[i][1]);
    }
    char back[1000], here[1000], dot[] = ".";
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(scratch), 0);
    assert_non_null(getcwd(here, sizeof here));
    weft_model_dir_name(&(weft_model_dir){.path = dot}, name);
    assert_string_equal(name, strrchr(here, '/') + 1);
    assert_int_equal(chdir(back), 0);
    char *deep = calloc(10000, 1);
    memset(deep, 'x', 9999);
    memcpy(deep + 9000, "/end", 4);
    weft_model_dir_name(&(weft_model_dir){.path = deep}, name);
    assert_int_equal(strlen(name), 255);
    assert_memory_equal(name, "endxxx", 6);
    free(deep);
}

int main(void) {
    weft_map m;
    if (weft_map_open(&m, "/dev/null", NULL) == WEFT_OK) return 1; /* the fault handler comes before cmocka's */
    sigaction(SIGBUS, NULL, &ours);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_prefixes, values),
        cmocka_unit_test_setup(test_norm_convention_of_the_drafter, values),
        cmocka_unit_test_setup(test_heads, values),
        cmocka_unit_test_setup(test_families, values),
        cmocka_unit_test_setup(test_paths, values),
        cmocka_unit_test_setup(test_no_model, values),
        cmocka_unit_test_setup(test_cache_folder, values),
        cmocka_unit_test_setup(test_every_allocation_may_fail, values),
        cmocka_unit_test_setup(test_fingerprint, values),
        cmocka_unit_test_setup(test_fingerprint_samples, values),
        cmocka_unit_test_setup(test_fingerprint_fails, values),
        cmocka_unit_test_setup(test_names, values),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

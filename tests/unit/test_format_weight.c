/* test_format_weight.c: plain and MLX affine weights, checked against a decoder that takes one bit at a time. */
#include "format_files.h"

#include <math.h>

#include "base/rng.h"
#include "format/weight.h"

static const int all_bits[] = {2, 3, 4, 5, 6, 8}, all_groups[] = {32, 64, 128};

static weft_model_config no_config(void) {
    return (weft_model_config){.dtype = WEFT_BF16};
}

/* The same without a file: one arrangement of tensors, opened from memory. */
static char *image;
static weft_tensors *open_tensors(const weft_tensor *t, size_t n) {
    put_tensors("w.safetensors", t, n, NULL);
    size_t size;
    weft_error e;
    assert_int_equal(weft_file_read(at("w.safetensors"), 1 << 26, &image, &size, &e), WEFT_OK);
    weft_tensors *out;
    if (weft_tensors_parse(&out, image, size, "w.safetensors", &e) != WEFT_OK) fail_msg("%s", e.text);
    return out;
}

static void close_tensors(weft_tensors *t) {
    weft_tensors_close(t);
    weft_free(image);
}

static uint32_t random32(uint32_t i) {
    uint32_t r[4];
    weft_philox(11, (uint32_t[]){i, 0, 0, 0}, r);
    return r[0];
}

static uint32_t take_bits(const uint8_t *stream, size_t first, int n) {
    uint32_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint32_t)(stream[(first + (size_t)i) / 8] >> (first + (size_t)i) % 8 & 1) << i;
    return v;
}

typedef struct packed { /* an affine weight [e, n, k], in random codes and finite bf16 scales */
    int64_t e, n, k;
    int bits, group;
    uint32_t *codes;
    uint16_t *scales, *biases;
    weft_tensor t[3];
} packed;

static packed make_packed(const char *name, int64_t e, int64_t n, int64_t k, int bits, int group) {
    static char names[3][100];
    packed p = {.e = e, .n = n, .k = k, .bits = bits, .group = group};
    int64_t rows = (e ? e : 1) * n, words = k * bits / 32, groups = k / group;
    p.codes = malloc((size_t)(rows * words) * 4 + 4);
    p.scales = malloc((size_t)(rows * groups) * 2 + 2);
    p.biases = malloc((size_t)(rows * groups) * 2 + 2);
    for (int64_t i = 0; i < rows * words; i++) p.codes[i] = random32((uint32_t)i);
    for (int64_t i = 0; i < rows * groups; i++) {
        p.scales[i] = (uint16_t)((random32((uint32_t)i + 1000000) & 0x83ff) | 0x3c00); /* both signs */
        p.biases[i] = (uint16_t)((random32((uint32_t)i + 2000000) & 0x83ff) | 0x3c00);
    }
    static const char *const suffix[] = {".weight", ".scales", ".biases"};
    const void *data[] = {p.codes, p.scales, p.biases};
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", name, suffix[i]);
        int64_t cols = i ? groups : words;
        weft_dtype type = i ? WEFT_BF16 : WEFT_U32;
        p.t[i] = e ? tensor(names[i], type, 3, e, n, cols, data[i]) : tensor(names[i], type, 2, n, cols, 0, data[i]);
    }
    return p;
}

static void free_packed(packed *p) {
    free(p->codes);
    free(p->scales);
    free(p->biases);
}

static float bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void check_packed(const packed *p, const weft_weight *w) {
    int64_t experts = p->e ? p->e : 1, words = p->k * p->bits / 32, groups = p->k / p->group;
    assert_int_equal(w->experts, experts);
    assert_int_equal(w->bits, p->bits);
    assert_int_equal(w->group, p->group);
    assert_int_equal(w->dtype, WEFT_BF16);
    uint8_t *codes = malloc((size_t)p->k);
    uint16_t *scale = malloc((size_t)groups * 2), *bias = malloc((size_t)groups * 2);
    float *row = malloc((size_t)p->k * 4);
    weft_error e;
    for (int64_t x = 0; x < experts; x++)
        for (int64_t r = 0; r < p->n; r++) {
            size_t at_row = (size_t)(x * p->n + r);
            assert_int_equal(weft_weight_read((void *)w, x, r, codes, scale, bias, &e), WEFT_OK);
            assert_int_equal(weft_weight_row_f32(w, x, r, row, &e), WEFT_OK);
            assert_memory_equal(scale, p->scales + at_row * (size_t)groups, (size_t)groups * 2);
            assert_memory_equal(bias, p->biases + at_row * (size_t)groups, (size_t)groups * 2);
            for (int64_t k = 0; k < p->k; k++) {
                uint32_t q = take_bits((const uint8_t *)(p->codes + at_row * (size_t)words), (size_t)(k * p->bits), p->bits);
                assert_int_equal(codes[k], q);
                volatile float product = bf16(scale[k / p->group]) * (float)q; /* rounded on its own */
                float value = product + bf16(bias[k / p->group]);
                assert_memory_equal(&row[k], &value, 4);
            }
        }
    assert_int_equal(weft_weight_check_finite(w, &e), WEFT_OK);
    free(codes);
    free(scale);
    free(bias);
    free(row);
}

/* Five bytes, decoded by hand from MLX's rule: element i occupies bits [i b, (i + 1) b) of the row, lowest first. */
static void test_bit_stream_vectors(void **state) {
    (void)state;
    static const struct {
        int bits, n;
        uint8_t codes[8];
    } known[] = {{3, 8, {1, 2, 4, 3, 2, 7, 4, 7}}, {5, 8, {17, 24, 9, 7, 15, 14, 25, 5}}, {6, 4, {17, 28, 58, 60}}};
    for (size_t i = 0; i < 3; i++) {
        packed p = make_packed("x", 0, 1, 32, known[i].bits, 32);
        memcpy(p.codes, "\x11\xa7\xf3\x5c", 4);
        ((uint8_t *)p.codes)[4] = 0x2e;
        weft_tensors *t = open_tensors(p.t, 3);
        weft_model_config c = no_config();
        weft_weight w;
        weft_error e;
        assert_int_equal(weft_weight_find(t, &c, "x", 0, 1, 32, &w, &e), WEFT_OK);
        uint8_t codes[32];
        uint16_t s, b;
        assert_int_equal(weft_weight_read(&w, 0, 0, codes, &s, &b, &e), WEFT_OK);
        assert_memory_equal(codes, known[i].codes, (size_t)known[i].n);
        close_tensors(t);
        free_packed(&p);
    }
}

static void test_every_width_and_group(void **state) {
    (void)state;
    for (size_t b = 0; b < 6; b++)
        for (size_t g = 0; g < 3; g++)
            for (int64_t experts = 0; experts < 4; experts += 3) {
                packed p = make_packed("model.layers.0.mlp.switch_mlp.up_proj", experts, 5, 384, all_bits[b], all_groups[g]);
                weft_tensors *t = open_tensors(p.t, 3);
                weft_weight w;
                weft_error e;
                weft_model_config c = no_config(); /* nothing said: the shapes tell bits and group */
                if (weft_weight_find(t, &c, "model.layers.0.mlp.switch_mlp.up_proj", experts, 5, 384, &w, &e) != WEFT_OK)
                    fail_msg("%s", e.text);
                check_packed(&p, &w);
                c.quant = (weft_quant){.bits = all_bits[b], .group = all_groups[g], .mode = "affine"};
                assert_int_equal(weft_weight_find(t, &c, "model.layers.0.mlp.switch_mlp.up_proj", experts, 5, 384, &w, &e),
                                 WEFT_OK);
                check_packed(&p, &w);
                close_tensors(t);
                free_packed(&p);
            }
}

static void test_plain(void **state) {
    (void)state;
    static const weft_dtype types[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
    for (int i = 0; i < 3; i++) {
        size_t size = weft_dtype_size(types[i]);
        uint8_t *data = malloc(2 * 3 * 5 * size);
        for (size_t j = 0; j < 2 * 3 * 5 * size; j++) data[j] = (uint8_t)(random32((uint32_t)j) & 0x3b);
        uint8_t one = 1;
        weft_tensor in[] = {tensor("pad", WEFT_U8, 1, 1, 0, 0, &one), tensor("a.weight", types[i], 2, 6, 5, 0, data),
                            tensor("experts.down_proj", types[i], 3, 2, 3, 5, data)};
        weft_tensors *t = open_tensors(in, 3);
        weft_model_config c = no_config();
        c.quant = (weft_quant){.bits = 4, .group = 64, .mode = "affine"}; /* a default binds only what has scales */
        weft_weight w;
        weft_error e;
        uint8_t raw[20];
        float row[5], expected[5];
        assert_int_equal(weft_weight_find(t, &c, "a", 0, 6, 5, &w, &e), WEFT_OK);
        assert_int_equal(w.bits, 0);
        assert_int_equal(w.dtype, types[i]);
        assert_int_equal(weft_weight_read(&w, 0, 4, raw, NULL, NULL, &e), WEFT_OK);
        assert_memory_equal(raw, data + 4 * 5 * size, 5 * size);
        assert_int_equal(weft_weight_row_f32(&w, 0, 4, row, &e), WEFT_OK);
        weft_to_f32(expected, types[i], data + 4 * 5 * size, 5);
        assert_memory_equal(row, expected, sizeof row);
        assert_int_equal(weft_weight_check_finite(&w, &e), WEFT_OK);
        assert_int_equal(weft_weight_find(t, &c, "experts.down_proj", 2, 3, 5, &w, &e), WEFT_OK); /* a name without .weight */
        assert_int_equal(weft_weight_row_f32(&w, 1, 1, row, &e), WEFT_OK);
        assert_memory_equal(row, expected, sizeof row);

        assert_says(weft_weight_find(t, &c, "a", 0, 5, 6, &w, &e), &e, WEFT_EFORMAT, "w.safetensors: tensor 'a.weight' is ");
        if (!strstr(e.text, "[6, 5]; expected [5, 6]")) fail_msg("%s", e.text);
        assert_says(weft_weight_find(t, &c, "a", 2, 3, 5, &w, &e), &e, WEFT_EFORMAT, "expected [2, 3, 5]");
        assert_says(weft_weight_find(t, &c, "experts.down_proj", 0, 6, 5, &w, &e), &e, WEFT_EFORMAT, "expected [6, 5]");
        assert_says(weft_weight_find(t, &c, "b", 0, 6, 5, &w, &e), &e, WEFT_EFORMAT, "the tensor 'b.weight' is missing");
        assert_says(weft_weight_find(t, &c, "pad", 0, 1, 1, &w, &e), &e, WEFT_ESUPPORT, "is U8 [1]; expected F32, F16 or BF16");
        char *longest = malloc(2000);
        memset(longest, 'x', 1999);
        longest[1999] = 0;
        assert_says(weft_weight_find(t, &c, longest, 0, 6, 5, &w, &e), &e, WEFT_EFORMAT, "is missing");
        free(longest);
        close_tensors(t);
        free(data);
    }
}

/* Codes of 8 bits of plain rows: within half a step of every value, the ends and equal values exact as far as float32 goes. */
static void test_codes_of_plain_rows(void **state) {
    (void)state;
    enum { N = 3, K = 256 };
    float v[N][K];
    for (int r = 0; r < N; r++)
        for (int i = 0; i < K; i++)
            v[r][i] = i < 64 && r == 1 ? 0.75f : ((float)random32((uint32_t)(r * K + i)) * 0x1p-32f - 0.4f) * 9;
    v[2][5] = 3e38f, v[2][6] = -3e38f;
    for (int type = 0; type < 2; type++) {
        uint16_t half[N][K];
        for (int r = 0; r < N; r++)
            for (int i = 0; i < K; i++) {
                uint32_t bits;
                memcpy(&bits, &v[r][i], sizeof bits);
                half[r][i] = (uint16_t)(bits >> 16);
            }
        weft_tensor t = tensor("m.weight", type ? WEFT_BF16 : WEFT_F32, 2, N, K, 0, type ? (void *)half : (void *)v);
        weft_tensors *all = open_tensors(&t, 1);
        weft_model_config c = no_config();
        weft_weight w;
        weft_error e;
        if (weft_weight_find(all, &c, "m", 0, N, K, &w, &e) != WEFT_OK) fail_msg("%s", e.text);
        for (int r = 0; r < N; r++) {
            float x[K], scale[K / 64], bias[K / 64];
            uint8_t codes[K];
            assert_int_equal(weft_weight_row_f32(&w, 0, r, x, &e), WEFT_OK);
            assert_int_equal(weft_weight_code(&w, 0, r, codes, scale, bias, &e), WEFT_OK);
            for (int i = 0; i < K; i++) {
                double s = (double)scale[i / 64], got = s * codes[i] + (double)bias[i / 64];
                assert_true(s >= 0 && fabs(got - (double)x[i]) <= s * 0.500001 + fabs(got) * 1e-6);
                if (s == 0) assert_true(got == (double)x[i]);
            }
            if (r == 1) assert_true(scale[0] == 0);
        }
        close_tensors(all);
    }
}

static void test_contradictions(void **state) {
    (void)state;
    packed p = make_packed("m", 0, 4, 128, 4, 64);
    weft_model_config c = no_config();
    weft_quant own = {.path = "m", .bits = 4, .group = 64, .mode = "affine"};
    c.quants = &own;
    c.n_quants = 1;
    weft_weight w;
    weft_error e;
    weft_tensors *t = open_tensors(p.t, 3);
    assert_int_equal(weft_weight_find(t, &c, "language_model.model.m", 0, 4, 128, &w, NULL), WEFT_EFORMAT);
    assert_int_equal(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), WEFT_OK);
    own.group = 32;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_EFORMAT,
                "tensor 'm.scales' is BF16 [4, 2]; expected [4, 4]");
    own.group = 64, own.bits = 8;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_EFORMAT,
                "tensor 'm.weight' is U32 [4, 16]; expected [4, 32]");
    own.bits = 7;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_ESUPPORT, "7 bits in groups of 64 are not supported");
    own.bits = 4, own.group = 16;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_ESUPPORT, "4 bits in groups of 16 are not supported");
    own.group = 64, own.plain = true;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_EFORMAT,
                "has scales, but the config says that it is not quantised");
    own.plain = false;
    static const char *const modes[] = {"mxfp4", "mxfp8",
                                        "nvfp4"}; /* mode per tensor: a forgotten one decodes silently to garbage */
    for (int i = 0; i < 3; i++) {
        own.mode = modes[i];
        assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_ESUPPORT, modes[i]);
    }
    own.mode = "affine", own.group = 128;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 192, &w, &e), &e, WEFT_EFORMAT, "192 columns are not whole groups of 128");
    c.n_quants = 0;
    c.quant = (weft_quant){.bits = 8, .group = 64, .mode = "affine"};
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_EFORMAT, "expected [4, 32]"); /* the default binds too */
    c.quant.mode = "mxfp8";
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_ESUPPORT, "'mxfp8' is not supported yet");
    c.quant.bits = 0;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 100, &w, &e), &e, WEFT_EFORMAT, "expected codes of a whole number of bits");
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 8, &w, &e), &e, WEFT_EFORMAT, "expected codes of a whole number of bits");
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 512, &w, &e), &e, WEFT_ESUPPORT, "1 bits in groups of 256 are not supported");
    close_tensors(t);

    static const struct {
        int which;
        weft_dtype dtype;
        weft_status st;
        const char *says;
    } types[] = {
        {0, WEFT_I32, WEFT_EFORMAT, "'m.weight' is I32 [4, 16]; expected U32"},
        {1, WEFT_U8, WEFT_ESUPPORT, "only MLX affine"},
        {1, WEFT_I16, WEFT_EFORMAT, "'m.scales' is I16 [4, 2]; expected F32, F16 or BF16"},
        {2, WEFT_F16, WEFT_EFORMAT, "'m.biases' is F16 [4, 2]; expected the type of the scales"},
    };
    uint32_t zeros[64] = {0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        weft_tensor in[3] = {p.t[0], p.t[1], p.t[2]};
        weft_tensor *x = &in[types[i].which];
        *x = tensor(x->name, types[i].dtype, 2, x->shape[0], x->shape[1], 0, zeros);
        t = open_tensors(in, 3);
        assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, types[i].st, types[i].says);
        close_tensors(t);
    }
    t = open_tensors(p.t, 2);
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_ESUPPORT, "has scales but no biases");
    close_tensors(t);
    t = open_tensors(p.t, 1);
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_ESUPPORT,
                "is U32 [4, 16]; expected F32, F16 or BF16, or MLX affine");
    c.n_quants = 1;
    own.group = 64;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_EFORMAT,
                "has no scales, but the config says that it is quantised to 4 bits");
    close_tensors(t);
    weft_tensor odd[] = {tensor("m.weight", WEFT_U32, 0, 0, 0, 0, zeros), tensor("m.scales", WEFT_BF16, 0, 0, 0, 0, zeros),
                         tensor("m.biases", WEFT_BF16, 2, 4, 2, 0, zeros)};
    t = open_tensors(odd, 3);
    c.n_quants = 0;
    assert_says(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), &e, WEFT_EFORMAT, "is U32 []; expected");
    close_tensors(t);
    free_packed(&p);
}

/* Modules that differ from the default: missing one override made other engines decode a tensor with the wrong width. */
static void test_overrides(void **state) {
    (void)state;
    packed a = make_packed("language_model.model.layers.0.mlp.gate", 0, 4, 128, 8, 64);
    weft_tensors *t = open_tensors(a.t, 3);
    weft_model_config c = no_config();
    weft_quant q[] = {{.path = "layers.0.mlp.gate", .bits = 8, .group = 64, .mode = "affine"},
                      {.path = "layers.1.mlp.gate", .bits = 6, .group = 64, .mode = "affine"}};
    c.quant = (weft_quant){.bits = 4, .group = 32, .mode = "affine"};
    c.quants = q;
    c.n_quants = 2;
    weft_weight w;
    weft_error e;
    if (weft_weight_find(t, &c, "language_model.model.layers.0.mlp.gate", 0, 4, 128, &w, &e) != WEFT_OK) fail_msg("%s", e.text);
    check_packed(&a, &w);
    close_tensors(t);
    free_packed(&a);

    /* The drafter was packed by another tool: 8 bits where the trunk has 4, and no entry. */
    packed m = make_packed("mtp.fc", 0, 4, 128, 8, 32);
    t = open_tensors(m.t, 3);
    if (weft_weight_find(t, &c, "mtp.fc", 0, 4, 128, &w, &e) != WEFT_OK) fail_msg("%s", e.text);
    check_packed(&m, &w);
    close_tensors(t);
    free_packed(&m);

    /* In a sidecar without prefix, "layers.0" is the drafter's layer, not the trunk's. */
    packed s = make_packed("layers.0.mlp.gate", 0, 4, 128, 5, 128);
    put_tensors("model.safetensors", NULL, 0, NULL);
    put_tensors("mtp.safetensors", s.t, 3, NULL);
    assert_int_equal(weft_tensors_open(&t, scratch, &e), WEFT_OK);
    if (weft_weight_find(t, &c, "layers.0.mlp.gate", 0, 4, 128, &w, &e) != WEFT_OK) fail_msg("%s", e.text);
    check_packed(&s, &w);
    weft_tensors_close(t);
    free_packed(&s);
}

/* NaN in a weight would make every answer garbage, or crash much later: it must name its place. */
static void test_nonfinite(void **state) {
    (void)state;
    static const weft_dtype types[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
    static const uint32_t nan[] = {0x7fc00001, 0x7c01, 0x7fc0}, inf[] = {0xff800000, 0x7c00, 0xff80};
    weft_model_config c = no_config();
    weft_weight w;
    weft_error e;
    for (int i = 0; i < 3; i++)
        for (int which = 0; which < 2; which++) {
            size_t size = weft_dtype_size(types[i]);
            uint8_t data[2 * 3 * 5 * 4] = {0};
            uint32_t bad = which ? inf[i] : nan[i];
            memcpy(data + ((1 * 3 + 2) * 5 + 3) * size, &bad, size);
            weft_tensor in[] = {tensor("a.weight", types[i], 3, 2, 3, 5, data), tensor("v", types[i], 1, 30, 0, 0, data)};
            weft_tensors *t = open_tensors(in, 2);
            uint8_t raw[20];
            float row[30];
            assert_int_equal(weft_weight_find(t, &c, "a", 2, 3, 5, &w, &e), WEFT_OK);
            assert_int_equal(weft_weight_row_f32(&w, 1, 1, row, &e), WEFT_OK);
            assert_says(weft_weight_row_f32(&w, 1, 2, row, &e), &e, WEFT_EFORMAT,
                        "w.safetensors: tensor 'a.weight' holds NaN or infinity: expert 1, row 2, column 3");
            assert_int_equal(weft_weight_read(&w, 1, 2, raw, NULL, NULL, &e), WEFT_EFORMAT);
            assert_int_equal(weft_weight_code(&w, 1, 2, raw, NULL, NULL, &e), WEFT_EFORMAT);
            assert_says(weft_weight_check_finite(&w, &e), &e, WEFT_EFORMAT, "expert 1, row 2");
            assert_says(weft_tensor_read_f32(t, "v", 1, (int64_t[]){30}, row, &e), &e, WEFT_EFORMAT,
                        "'v' holds NaN or infinity: element 28");
            close_tensors(t);
        }
    for (int which = 1; which < 3; which++) {
        packed p = make_packed("m", 0, 4, 128, 4, 32);
        (which == 1 ? p.scales : p.biases)[2 * 4 + 3] = 0x7fc0;
        weft_tensors *t = open_tensors(p.t, 3);
        assert_int_equal(weft_weight_find(t, &c, "m", 0, 4, 128, &w, &e), WEFT_OK);
        assert_says(weft_weight_check_finite(&w, &e), &e, WEFT_EFORMAT,
                    which == 1 ? "'m.scales' holds NaN or infinity: row 2, column 3"
                               : "'m.biases' holds NaN or infinity: row 2, column 3");
        close_tensors(t);
        free_packed(&p);
    }
    packed p = make_packed("m", 0, 1, 32, 8, 32);
    p.scales[0] = 0x7e80; /* 8.5e37: finite, but 255 times it is not */
    weft_tensors *t = open_tensors(p.t, 3);
    assert_int_equal(weft_weight_find(t, &c, "m", 0, 1, 32, &w, &e), WEFT_OK);
    float row[32];
    assert_says(weft_weight_row_f32(&w, 0, 0, row, &e), &e, WEFT_EFORMAT, "'m.scales' holds NaN or infinity");
    close_tensors(t);
    free_packed(&p);
}

static void test_half_scales(void **state) {
    (void)state;
    uint32_t codes[4] = {0x76543210, 0xfedcba98, 0, 0xffffffff};
    uint16_t scale = 0x3800, bias = 0xbc00; /* 0.5, -1 in F16 */
    weft_tensor in[] = {tensor("m.weight", WEFT_U32, 2, 1, 4, 0, codes), tensor("m.scales", WEFT_F16, 2, 1, 1, 0, &scale),
                        tensor("m.biases", WEFT_F16, 2, 1, 1, 0, &bias)};
    weft_tensors *t = open_tensors(in, 3);
    weft_model_config c = no_config();
    weft_weight w;
    weft_error e;
    float row[32];
    assert_int_equal(weft_weight_find(t, &c, "m", 0, 1, 32, &w, &e), WEFT_OK);
    assert_int_equal(weft_weight_row_f32(&w, 0, 0, row, &e), WEFT_OK);
    for (int i = 0; i < 32; i++) assert_true(row[i] == (i < 16 ? i : i < 24 ? 0 : 15) * 0.5f - 1);
    close_tensors(t);
}

static void test_vectors(void **state) {
    (void)state;
    uint16_t v[6] = {0x3f80, 0xbf80, 0, 0x4000, 0x4040, 0x0001};
    weft_tensor in[] = {tensor("conv", WEFT_BF16, 3, 2, 1, 3, v), tensor("ids", WEFT_I16, 1, 6, 0, 0, v)};
    weft_tensors *t = open_tensors(in, 2);
    float out[6];
    weft_error e;
    assert_int_equal(weft_tensor_read_f32(t, "conv", 3, (int64_t[]){2, 1, 3}, out, &e), WEFT_OK);
    assert_true(out[0] == 1 && out[1] == -1 && out[2] == 0 && out[3] == 2 && out[4] == 3);
    assert_says(weft_tensor_read_f32(t, "conv", 3, (int64_t[]){2, 3, 1}, out, &e), &e, WEFT_EFORMAT,
                "'conv' is BF16 [2, 1, 3]; expected [2, 3, 1]");
    assert_says(weft_tensor_read_f32(t, "conv", 1, (int64_t[]){6}, out, &e), &e, WEFT_EFORMAT, "expected [6]");
    assert_says(weft_tensor_read_f32(t, "ids", 1, (int64_t[]){6}, out, &e), &e, WEFT_ESUPPORT, "'ids' is I16 [6]; expected F32");
    assert_says(weft_tensor_read_f32(t, "none", 1, (int64_t[]){6}, out, &e), &e, WEFT_EFORMAT, "'none' is missing");
    close_tensors(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bit_stream_vectors),
        cmocka_unit_test(test_every_width_and_group),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_codes_of_plain_rows),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test_setup(test_overrides, scratch_clear),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_half_scales),
        cmocka_unit_test(test_vectors),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

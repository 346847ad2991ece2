/* test_format_safetensors.c: what is read is what was written, and no file, however damaged, is read wrongly. */
#include "format_files.h"

#include <signal.h>

#include "format/shards.h"

#define INDEX "model.safetensors.index.json"

/* A file made of a header text and `data` bytes. Freed with free(). */
static uint8_t *file_of(const char *header, size_t data, size_t *size) {
    uint64_t n = strlen(header);
    *size = 8 + n + data;
    uint8_t *f = calloc(*size, 1);
    memcpy(f, &n, 8);
    memcpy(f + 8, header, n);
    for (size_t i = 0; i < data; i++) f[8 + n + i] = (uint8_t)i;
    return f;
}

static weft_status parse(const char *header, size_t data, weft_error *e) {
    size_t size;
    uint8_t *f = file_of(header, data, &size);
    weft_tensors *t;
    weft_status st = weft_tensors_parse(&t, f, size, "x.safetensors", e);
    assert_true((st == WEFT_OK) == (t != NULL));
    weft_tensors_close(t);
    free(f);
    return st;
}

static const float floats[6] = {1, 2, 3, 4, 5, 6};
static const uint8_t bytes[5] = {9, 8, 7, 6, 5};

static void put_one(const char *file, const char *name) {
    weft_tensor t = tensor(name, WEFT_F32, 2, 2, 3, 0, floats);
    put_tensors(file, &t, 1, NULL);
}

static void test_round_trip(void **state) {
    (void)state;
    weft_tensor in[] = {
        tensor("odd \"name\"\n\\\xc3\xa4", WEFT_U8, 1, 5, 0, 0, bytes),
        tensor("m", WEFT_F32, 2, 2, 3, 0, floats), /* begins at an odd address */
        tensor("empty", WEFT_BF16, 2, 0, 7, 0, ""),
        tensor("scalar", WEFT_F32, 0, 0, 0, 0, floats),
    };
    put_tensors("a.safetensors", in, 4, (const char *const[]){"format", "mlx", "who", "a \"test\"", NULL});
    weft_tensors *t;
    weft_error e;
    if (weft_tensors_open(&t, at("a.safetensors"), &e) != WEFT_OK) fail_msg("%s", e.text);
    assert_int_equal(weft_tensors_count(t), 4);
    for (int i = 0; i < 4; i++) {
        const weft_tensor *x = weft_tensors_find(t, in[i].name);
        assert_non_null(x);
        assert_int_equal(x->dtype, in[i].dtype);
        assert_int_equal(x->rank, in[i].rank);
        for (int d = 0; d < x->rank; d++) assert_int_equal(x->shape[d], in[i].shape[d]);
        assert_int_equal(x->bytes, in[i].bytes);
        assert_memory_equal(x->data, in[i].data, in[i].bytes);
        assert_string_equal(x->file, at("a.safetensors"));
    }
    assert_string_equal(weft_tensors_at(t, 0)->name, in[0].name); /* in the order of the data */
    assert_null(weft_tensors_find(t, "M"));
    assert_string_equal(weft_tensors_metadata(t, "format"), "mlx");
    assert_string_equal(weft_tensors_metadata(t, "who"), "a \"test\"");
    assert_null(weft_tensors_metadata(t, "none"));
    assert_int_equal(weft_tensors_check(t, &e), WEFT_OK);
    weft_tensors_close(t);

    char *raw;
    size_t n;
    assert_int_equal(weft_file_read(at("a.safetensors"), 10000, &raw, &n, NULL), WEFT_OK);
    uint64_t header;
    memcpy(&header, raw, 8);
    assert_int_equal(header % 8, 0); /* the data start aligned */
    weft_free(raw);

    put_tensors("none.safetensors", NULL, 0, NULL);
    assert_int_equal(weft_tensors_open(&t, at("none.safetensors"), &e), WEFT_OK);
    assert_int_equal(weft_tensors_count(t), 0);
    assert_null(weft_tensors_find(t, "m"));
    weft_tensors_close(t);

    in[1].bytes--;
    assert_says(weft_safetensors_write(at("b.safetensors"), in, 2, NULL, &e), &e, WEFT_EINVAL, "do not fit its shape");
    assert_false(weft_file_exists(at("b.safetensors")));
}

static void test_damaged_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        weft_status st;
        const char *says;
    } bad[] = {
        {"[]", 0, WEFT_EFORMAT, "x.safetensors: expected a JSON object"},
        {"{\"a\":7}", 0, WEFT_EFORMAT, "tensor 'a': its entry in the header is not an object"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "empty name"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "'dtype' is missing"},
        {"{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "'dtype' is 5; expected a string"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WEFT_ESUPPORT,
         "tensor 'a': dtype 'F4' is not known"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "'shape' is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":7,\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "expected an array of at most 8"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "at most 8"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "'shape' is -1"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0.5],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "'shape' is 0.5"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[null],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT, "'shape' is null"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0, WEFT_EFORMAT, "overflows"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, WEFT_EFORMAT, "overflows"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, WEFT_EFORMAT, "'data_offsets' is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, WEFT_EFORMAT, "must be two numbers"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, WEFT_EFORMAT, "at most 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1, WEFT_EFORMAT, "'data_offsets' is -1"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,99999999999999999999]}}", 1, WEFT_EFORMAT,
         "'data_offsets' is"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,1]}}", 2, WEFT_EFORMAT, "run backwards"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 2, WEFT_EFORMAT, "end at byte 3, the file's data at 2"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,20]}}", 20, WEFT_EFORMAT,
         "20 bytes of data, but F32 [2, 3] takes 24"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,"
         "5]}}",
         5, WEFT_EFORMAT, "the data of 'a' and 'b' overlap"},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,"
         "4]}}",
         4, WEFT_EFORMAT, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,"
         "2]}}",
         2, WEFT_EFORMAT, "the key 'a' comes twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WEFT_EFORMAT,
         "'dtype' comes twice"},
        {"{\"__metadata__\":7}", 0, WEFT_EFORMAT, "'__metadata__' is not an object"},
        {"{\"__metadata__\":{\"format\":7}}", 0, WEFT_EFORMAT, "'__metadata__.format' is 7; expected a string"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", 0, WEFT_EFORMAT,
         "nested deeper"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_error e;
        assert_says(parse(bad[i].header, bad[i].data, &e), &e, bad[i].st, bad[i].says);
    }
    /* an empty tensor at the place of another overlaps nothing; holes are no fault; padding is allowed */
    assert_int_equal(parse("{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]},\"a\":{\"dtype\":\"U8\",\"shape\":[0],"
                           "\"data_offsets\":[2,2]}}   ",
                           9, NULL),
                     WEFT_OK);
}

static void test_damaged_lengths(void **state) {
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    size_t size;
    uint8_t *f = file_of(header, 4, &size);
    weft_tensors *t;
    weft_error e;
    for (size_t cut = 0; cut < size; cut++) { /* a file that was not downloaded to its end */
        uint8_t *part = malloc(cut ? cut : 1);
        memcpy(part, f, cut);
        assert_says(weft_tensors_parse(&t, part, cut, "x", &e), &e, WEFT_EFORMAT, "x: ");
        assert_null(t);
        free(part);
    }
    assert_int_equal(weft_tensors_parse(&t, f, size, "x", &e), WEFT_OK);
    weft_tensors_close(t);

    /* A claim of 10 GB, or of 2^64 - 1, is refused before anything is read or allocated. */
    static const uint64_t claims[] = {10000000000ull, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, WEFT_MAX_HEADER + 1};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        memcpy(f, &claims[i], 8);
        assert_says(weft_tensors_parse(&t, f, size, "x", &e), &e, WEFT_EFORMAT, "claims a header of");
    }
    uint64_t claim = WEFT_MAX_HEADER;
    memcpy(f, &claim, 8);
    assert_says(weft_tensors_parse(&t, f, size, "x", &e), &e, WEFT_EFORMAT, "not downloaded to its end");
    for (uint64_t n = 0; n < sizeof header + 3; n++) { /* a length that is a little off */
        if (n == sizeof header - 1) continue;
        memcpy(f, &n, 8);
        assert_says(weft_tensors_parse(&t, f, size, "x", &e), &e, WEFT_EFORMAT, "x: ");
    }
    free(f);

    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n";
    assert_says(weft_tensors_parse(&t, lfs, strlen(lfs), "x", &e), &e, WEFT_EFORMAT, "git lfs pull");
    assert_says(weft_tensors_parse(&t, "GGUF\3\0\0\0\0\0", 10, "x", &e), &e, WEFT_ESUPPORT, "GGUF");
}

static void test_folders(void **state) {
    (void)state;
    weft_tensors *t;
    weft_error e;
    assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_EFORMAT, "no .safetensors file");
    assert_null(t);
    put_text("w.gguf", "GGUF");
    assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_ESUPPORT, "only GGUF files");
    scratch_empty();
    put_text("pytorch_model.bin", "PK");
    assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_ESUPPORT, "PyTorch");

    put_one("weights.safetensors", "a");
    put_one("mtp.safetensors", "mtp.fc.weight"); /* the drafter in a file of its own */
    assert_int_equal(weft_tensors_open(&t, scratch, &e), WEFT_OK);
    assert_int_equal(weft_tensors_count(t), 2);
    assert_string_equal(weft_tensors_find(t, "mtp.fc.weight")->file, at("mtp.safetensors"));
    weft_tensors_close(t);

    put_one("other.safetensors", "b");
    assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_EFORMAT, "2 .safetensors files, but no model.safetensors.index.json");
    put_one("model.safetensors", "c"); /* the standard name wins over others */
    assert_int_equal(weft_tensors_open(&t, scratch, &e), WEFT_OK);
    assert_non_null(weft_tensors_find(t, "c"));
    assert_null(weft_tensors_find(t, "a"));
    weft_tensors_close(t);

    put_one("mtp.safetensors", "c");
    assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_EFORMAT, "tensor 'c' comes twice: in ");
    assert_int_equal(weft_tensors_open(&t, at("nowhere"), NULL), WEFT_EIO);
}

static void test_shards(void **state) {
    (void)state;
    weft_tensors *t;
    weft_error e;
    put_one("model-1.safetensors", "a");
    put_one("model-2.safetensors", "b");
    put_one("1.safetensors", "x");
    static const char index[] =
        "{\"metadata\": {\"total_size\": 48}, \"weight_map\": {\"b\": \"model-2.safetensors\", \"a\": \"model-1.safetensors\"}}";
    put_text(INDEX, index);
    if (weft_tensors_open(&t, scratch, &e) != WEFT_OK) fail_msg("%s", e.text);
    assert_int_equal(weft_tensors_count(t), 2);
    assert_string_equal(weft_tensors_find(t, "b")->file, at("model-2.safetensors"));
    weft_tensors_close(t);

    put_one("mtp.safetensors", "mtp.fc.weight"); /* beside an index that does not know it */
    assert_int_equal(weft_tensors_open(&t, scratch, &e), WEFT_OK);
    assert_int_equal(weft_tensors_count(t), 3);
    weft_tensors_close(t);
    put_text(INDEX, "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"mtp.fc.weight\": \"mtp.safetensors\"}}");
    assert_int_equal(weft_tensors_open(&t, scratch, &e), WEFT_OK); /* and one that does: not added again */
    assert_int_equal(weft_tensors_count(t), 2);
    weft_tensors_close(t);

    static const struct {
        const char *index, *says;
    } bad[] = {
        {"{\"weight_map\": {\"a\": \"model-1.safetensors\", \"z\": \"model-2.safetensors\"}}",
         "tensor 'z' is not in 'model-2.safetensors'"},
        {"{\"weight_map\": {\"a\": \"model-2.safetensors\", \"b\": \"model-1.safetensors\"}}",
         "tensor 'a' is not in 'model-2.safetensors'"},
        {"{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"model-1.safetensors\"}}", "tensor 'a' is not in '1.safetensors'"},
        {"{\"weight_map\": {\"a\": \"model-3.safetensors\"}}", "the file 'model-3.safetensors' that it names is missing"},
        {"{\"weight_map\": {\"a\": \"../model-1.safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \"/etc/x.safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \"sub/x.safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \"sub\\\\x.safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \"C:x.safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \"\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \".safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \"passwd\"}}", "beside the index"},
        {"{\"weight_map\": {\"a\": \"model-1.safetensors\\u0000/../x.safetensors\"}}", "without a NUL"},
        {"{\"weight_map\": {\"a\": 7}}", "'weight_map.a' is 7; expected a string"},
        {"{\"weight_map\": {\"\": \"model-1.safetensors\"}}", "empty name"},
        {"{\"weight_map\": {\"a\": \"model-1.safetensors\", \"a\": \"model-2.safetensors\"}}", "the key 'a' comes twice"},
        {"{\"weight_map\": {}}", "is empty"},
        {"{\"weight_map\": []}", "expected an object"},
        {"{}", "'weight_map' is missing"},
        {"{", "ends too early"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text(INDEX, bad[i].index);
        assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_EFORMAT, bad[i].says);
        if (!strstr(e.text, INDEX)) fail_msg("does not name the file: %s", e.text);
    }

    put_one("model-2.safetensors", "a"); /* in two shards */
    put_text(INDEX, index);
    assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_EFORMAT, "tensor 'a' comes twice");
    put_text("model-2.safetensors", "junk");
    assert_says(weft_tensors_open(&t, scratch, &e), &e, WEFT_EFORMAT, "model-2.safetensors: 4 bytes long");
}

static void test_too_many_shards(void **state) {
    (void)state;
    size_t cap = 100 * (WEFT_MAX_SHARDS + 1), n = 0;
    char *text = malloc(cap);
    n += (size_t)sprintf(text + n, "{\"weight_map\":{");
    for (int i = 0; i <= WEFT_MAX_SHARDS; i++) n += (size_t)sprintf(text + n, "%s\"t%d\":\"s%d.safetensors\"", i ? "," : "", i, i);
    n += (size_t)sprintf(text + n, "}}");
    weft_shards s;
    weft_error e;
    assert_says(weft_shards_parse(&s, text, n, &e), &e, WEFT_EFORMAT, "more than 1024 shard files");
    assert_null(s.entries);
    free(text);
}

static struct sigaction ours;

/* A file that is cut while it is mapped must not kill the process, and must not go unnoticed. */
static void test_cut_while_in_use(void **state) {
    (void)state;
    size_t n = 1 << 20;
    uint8_t *big = calloc(n, 1);
    weft_tensor x = tensor("a", WEFT_U8, 1, (int64_t)n, 0, 0, big);
    put_tensors("a.safetensors", &x, 1, NULL);
    free(big);
    weft_tensors *t;
    weft_error e;
    assert_int_equal(weft_tensors_open(&t, at("a.safetensors"), &e), WEFT_OK);
    assert_int_equal(weft_tensors_check(t, &e), WEFT_OK);
    sigaction(SIGBUS, &ours, NULL); /* cmocka puts a handler of its own in its place for the time of a test */
    assert_int_equal(truncate(at("a.safetensors"), 4096), 0);
    const weft_tensor *a = weft_tensors_find(t, "a");
    unsigned sum = 0;
    for (size_t i = 0; i < a->bytes; i += 512) sum += a->data[i];
    assert_int_equal(sum, 0);
    assert_says(weft_tensors_check(t, &e), &e, WEFT_EIO, "a.safetensors");
    weft_tensors_close(t);
}

/* Out of memory at every single allocation: an error each time, nothing leaked (ASan), and success once there is enough. */
static void test_every_allocation_may_fail(void **state) {
    (void)state;
    put_one("model-1.safetensors", "a");
    weft_tensor b[2] = {tensor("b", WEFT_F32, 1, 6, 0, 0, floats), tensor("c", WEFT_U8, 1, 5, 0, 0, bytes)};
    put_tensors("model-2.safetensors", b, 2, (const char *const[]){"format", "pt", NULL});
    put_one("mtp.safetensors", "mtp.fc.weight");
    put_text(INDEX, "{\"weight_map\": {\"b\": \"model-2.safetensors\", \"a\": \"model-1.safetensors\"}}");
    uint64_t n = 1;
    for (;; n++) {
        weft_tensors *t;
        weft_error e;
        weft_alloc_fail_at(n);
        weft_status st = weft_tensors_open(&t, scratch, &e);
        weft_alloc_fail_at(0);
        weft_tensors_close(t);
        if (st == WEFT_OK) break;
        assert_says(st, &e, WEFT_ENOMEM, "out of memory");
        assert_null(t);
    }
    assert_true(n > 10);
    for (n = 1;; n++) {
        weft_error e;
        weft_alloc_fail_at(n);
        weft_status st = weft_safetensors_write(at("out.safetensors"), b, 2, (const char *const[]){"format", "pt", NULL}, &e);
        weft_alloc_fail_at(0);
        if (st == WEFT_OK) break;
        assert_says(st, &e, WEFT_ENOMEM, "out of memory");
        assert_false(weft_file_exists(at("out.safetensors")));
    }
    assert_true(n > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_round_trip, scratch_clear),
        cmocka_unit_test_setup(test_damaged_headers, scratch_clear),
        cmocka_unit_test_setup(test_damaged_lengths, scratch_clear),
        cmocka_unit_test_setup(test_folders, scratch_clear),
        cmocka_unit_test_setup(test_shards, scratch_clear),
        cmocka_unit_test_setup(test_too_many_shards, scratch_clear),
        cmocka_unit_test_setup(test_cut_while_in_use, scratch_clear),
        cmocka_unit_test_setup(test_every_allocation_may_fail, scratch_clear),
    };
    weft_map m; /* the first map installs the handler */
    if (scratch_make(NULL) != 0 || weft_file_write(at("x"), "x", 1, NULL) != WEFT_OK || weft_map_open(&m, at("x"), NULL) != WEFT_OK)
        return 1;
    weft_map_close(&m);
    sigaction(SIGBUS, NULL, &ours);
    return cmocka_run_group_tests(tests, NULL, scratch_drop);
}

/* test_text_kinds.c: tokenizers of every kind (pieces of bytes and of characters, normalisers, split behaviours, decoders, flags of
 * added tokens) against ids and texts from the reference library. tools/tokenizer_cases.py made them. */
#include "text_tokenizer.h"

#include "format/json.h"

#define KINDS "tests/data/tokenizer/kinds.json"

static struct json_object *root;

static int read_kinds(void **state) {
    (void)state;
    weft_error e;
    if (weft_json_read(&root, KINDS, (size_t)1 << 26, &e) == WEFT_OK) return 0;
    print_error("%s\n", e.text);
    return -1;
}

static int drop_kinds(void **state) {
    (void)state;
    json_object_put(root);
    return 0;
}

static struct json_object *get(struct json_object *o, const char *key) {
    struct json_object *v;
    return json_object_object_get_ex(o, key, &v) ? v : NULL;
}

static struct json_object *kind_at(size_t k) {
    return json_object_array_get_idx(get(root, "kinds"), k);
}

/* NULL: there is no such kind. */
static struct json_object *kind_named(const char *name) {
    for (size_t k = 0; k < json_object_array_length(get(root, "kinds")); k++)
        if (strcmp(json_object_get_string(get(kind_at(k), "name")), name) == 0) return kind_at(k);
    return NULL;
}

static const char *kind_json(struct json_object *kind) {
    struct json_object *like = get(kind, "like"), *model = get(get(kind, "tokenizer"), "model");
    if (like && !get(model, "vocab")) {
        struct json_object *other = get(get(kind_named(json_object_get_string(like)), "tokenizer"), "model");
        json_object_object_add(model, "vocab", json_object_get(get(other, "vocab")));
        json_object_object_add(model, "merges", json_object_get(get(other, "merges")));
    }
    return json_object_to_json_string_ext(get(kind, "tokenizer"), JSON_C_TO_STRING_PLAIN);
}

static weft_tokenizer *open_kind(const char *name) {
    weft_tokenizer *t;
    weft_error e;
    const char *json = kind_json(kind_named(name));
    if (weft_tokenizer_parse(&t, json, strlen(json), &e) != WEFT_OK) fail_msg("%s: %s", name, e.text);
    return t;
}

static void check_case(const weft_tokenizer *t, const char *name, struct json_object *c) {
    const char *text = json_object_get_string(get(c, "text"));
    size_t n = (size_t)json_object_get_string_len(get(c, "text")), n_want = json_object_array_length(get(c, "ids"));
    struct json_object *other = get(c, "back") ? get(c, "back") : get(c, "text");
    const weft_text_part whole = {text, n, true}, halves[2] = {{text, n / 2, true}, {text + n / 2, n - n / 2, true}};
    weft_ids ids = {0}, again = {0};
    weft_error e;
    int32_t *want = calloc(n_want + 1, sizeof *want);
    for (size_t i = 0; i < n_want; i++) want[i] = json_object_get_int(json_object_array_get_idx(get(c, "ids"), i));
    if (weft_tokenizer_encode(t, &whole, 1, &ids, &e) != WEFT_OK) fail_msg("%s: %s", name, e.text);
    if (ids.n != n_want || (n_want && memcmp(ids.v, want, n_want * sizeof *want) != 0)) print_error("%s, '%s'\n", name, text);
    assert_ids(&ids, want, n_want);
    assert_int_equal(weft_tokenizer_encode(t, halves, 2, &again, &e), WEFT_OK);
    assert_ids(&again, want, n_want);
    weft_str back = decoded(t, ids.v, ids.n, true);
    if (strcmp(weft_str_z(&back), json_object_get_string(other)) != 0)
        fail_msg("%s, '%s': back comes '%s', expected '%s'", name, text, weft_str_z(&back), json_object_get_string(other));
    assert_int_equal(back.n, json_object_get_string_len(other));
    weft_str_free(&back);
    weft_vec_free(&ids);
    weft_vec_free(&again);
    free(want);
}

static void test_every_kind(void **state) {
    (void)state;
    size_t kinds = json_object_array_length(get(root, "kinds"));
    assert_true(kinds > 30);
    for (size_t k = 0; k < kinds; k++) {
        const char *name = json_object_get_string(get(kind_at(k), "name"));
        struct json_object *cases = get(kind_at(k), "cases");
        weft_tokenizer *t = open_kind(name);
        assert_true(json_object_array_length(cases) > 50);
        for (size_t i = 0; i < json_object_array_length(cases); i++) check_case(t, name, json_object_array_get_idx(cases, i));
        weft_tokenizer_close(t);
    }
}

/* The ids of bytes in the kinds made of characters. */
#define BYTE(b) (6 + (b))

/* Bytes without a character arrive one by one; only whole characters are handed out. */
static void test_byte_tokens(void **state) {
    (void)state;
    weft_tokenizer *t = open_kind("gemma");
    static const int32_t cat[] = {BYTE(0xF0), BYTE(0x9F), BYTE(0x90), BYTE(0xB1)};
    weft_decoder d = {0};
    weft_str s = {0};
    weft_error e;
    ASSERT_ENCODED(t, "\xF0\x9F\x90\xB1", 4, cat[0], cat[1], cat[2], cat[3]);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(s.n, 0);
        assert_int_equal(weft_decoder_add(&d, t, cat[k], &s, &e), WEFT_OK);
    }
    assert_string_equal(s.p, "\xF0\x9F\x90\xB1");
    weft_str_free(&s);

    int32_t the = weft_tokenizer_find(t, "the"), space = weft_tokenizer_find(t, " "),
            turn = weft_tokenizer_find(t, "<end_of_turn>");
    const struct {
        int32_t ids[5];
        size_t n;
        const char *text;
    } cases[] = {
        {{BYTE(0xE4), turn, BYTE(0xBD), BYTE(0xA0)}, 4, "\xE4\xBD\xA0"}, /* a special token, left out, is not between them */
        {{the, BYTE(0xE4), BYTE(0xBD), the}, 4, "the\xEF\xBF\xBDthe"},   /* cut off by a token, by the end */
        {{space, BYTE(0xE4), BYTE(0xBD)}, 3, " \xEF\xBF\xBD"},
        {{BYTE(0xFF), BYTE(0x0A), BYTE(' ')}, 3, "\xEF\xBF\xBD\n "},
        {{space, space}, 2, "  "}, /* nothing is left out at the beginning */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s = decoded(t, cases[i].ids, cases[i].n, false);
        assert_string_equal(s.p, cases[i].text);
        weft_str_free(&s);
    }

    size_t n;
    assert_memory_equal(weft_tokenizer_bytes(t, weft_tokenizer_find(t, " wor"), &n), " wor", 4);
    assert_int_equal(n, 4);
    assert_memory_equal(weft_tokenizer_bytes(t, BYTE(0xE4), &n), "\xE4", 1);
    assert_int_equal(weft_tokenizer_find(t, "\xE4"), BYTE(0xE4));
    assert_int_equal(weft_tokenizer_find(t, "<0x0A>"), BYTE(0x0A));
    assert_int_equal(weft_tokenizer_find(t, ""), -1);
    assert_int_equal(weft_tokenizer_find(t, "no such token"), -1);
    assert_int_equal(weft_tokenizer_plain_size(t), weft_tokenizer_size(t) - 2); /* two added tokens are in no vocabulary */
    assert_int_equal(*weft_tokenizer_prefix(t, &n), 2);
    assert_int_equal(n, 1);
    weft_tokenizer_close(t);
}

/* The space that encoding puts before a text does not come back, whatever the first token that is shown is. */
static void test_space_at_the_beginning(void **state) {
    (void)state;
    static const char *const kinds[] = {"llama 2", "llama 2, without legacy", "metaspace, always, None"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        weft_tokenizer *t = open_kind(kinds[k]);
        weft_text_part part = {" the dog ", 9, true};
        weft_ids ids = {0};
        weft_error e;
        bool marks = k == 2; /* Metaspace leaves out all marks of the first token, the others one space */
        if (!marks) part.text++, part.n--;
        assert_true(weft_vec_push(&ids, 2)); /* <bos> */
        assert_int_equal(weft_tokenizer_encode(t, &part, 1, &ids, &e), WEFT_OK);
        weft_str s = decoded(t, ids.v, ids.n, false);
        assert_string_equal(s.p, "the dog ");
        weft_str_free(&s);
        s = decoded(t, ids.v, ids.n, true);
        assert_string_equal(s.p, "<bos> the dog ");
        weft_str_free(&s);

        weft_decoder d = {0}; /* after its end a decoder is as new */
        for (int round = 0; round < 2; round++) {
            for (size_t i = 0; i < ids.n; i++) assert_int_equal(weft_decoder_add(&d, t, ids.v[i], &s, &e), WEFT_OK);
            assert_int_equal(weft_decoder_end(&d, &s, &e), WEFT_OK);
        }
        assert_string_equal(s.p, "the dog the dog ");
        s.n = 0;
        assert_int_equal(weft_decoder_add(&d, t, BYTE('A'), &s, &e), WEFT_OK); /* <0x41> has no mark */
        assert_string_equal(s.p, "A");
        weft_str_free(&s);
        weft_vec_free(&ids);
        weft_tokenizer_close(t);
    }
}

/* A text of which nothing is left gets nothing put before it. */
static void test_nothing_is_left(void **state) {
    (void)state;
    static const char json[] =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"x\"},\"content\":\"\"},{\"type\":\"Prepend\",\"prepend\":\"a\"}]},\"decoder\":{\"type\":\"Fuse\"},"
        "\"model\":{\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":1},\"merges\":[]}}";
    weft_tokenizer *t;
    weft_error e;
    if (weft_tokenizer_parse(&t, json, strlen(json), &e) != WEFT_OK) fail_msg("%s", e.text);
    ASSERT_ENCODED(t, "xx", 2, );
    ASSERT_ENCODED(t, "xax", 3, 1, 1);
    ASSERT_ENCODED(t, "", 0, );
    weft_tokenizer_close(t);
}

/* "<end_of_turn>" in a message ended the turn. A token that takes up white space takes it from a message, too. */
static void test_special_tokens_in_user_text(void **state) {
    (void)state;
    weft_tokenizer *t = open_kind("flags");
    int32_t start = weft_tokenizer_find(t, "<start_of_turn>"), both = weft_tokenizer_find(t, "<lr>"),
            o = weft_tokenizer_find(t, "o");
    static const weft_text_part parts[] = {{"<start_of_turn>", 15, true}, {"<end_of_turn>", 13, false}};
    weft_ids ids = {0};
    weft_error e;
    assert_int_equal(weft_tokenizer_encode(t, parts, 2, &ids, &e), WEFT_OK);
    assert_int_equal(ids.v[0], start);
    for (size_t i = 1; i < ids.n; i++) assert_false(weft_tokenizer_special(t, ids.v[i]));
    weft_vec_free(&ids);
    static const weft_text_part spaces[] = {{"o ", 2, false}, {"<lr>", 4, true}, {" \n\xE3\x80\x80", 5, false}, {"o", 1, false}};
    ASSERT_PARTS(t, spaces, o, both, o);
    static const weft_text_part text[] = {{"o", 1, true}, {"<lr>", 4, false}};
    assert_int_equal(weft_tokenizer_encode(t, text, 2, &ids, &e), WEFT_OK);
    for (size_t i = 0; i < ids.n; i++) assert_int_not_equal(ids.v[i], both);
    weft_vec_free(&ids);
    weft_tokenizer_close(t);
}

/* All of a text may be one piece. Quadratic merging, or a search for white space that begins again and again, shows here. */
static void test_a_megabyte_in_one_piece(void **state) {
    (void)state;
    static const char *const kinds[] = {"gemma 4", "flags", "llama 2, flags", "unknown, True", "metaspace, first, False"};
    static const char *const units[] = {"o", " ", "the ", "\n", "\xF0\x9F\x90\xB1", "<l>", "\t", "<lr> ", "word", " <s> "};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        weft_tokenizer *t = open_kind(kinds[k]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            weft_str text = {0}, back = {0};
            weft_ids ids = {0};
            weft_error e;
            while (text.n < 300000) assert_true(weft_str_addz(&text, units[u]));
            weft_text_part part = {text.p, text.n, true};
            assert_int_equal(weft_tokenizer_encode(t, &part, 1, &ids, &e), WEFT_OK);
            assert_int_equal(weft_tokenizer_decode(t, ids.v, ids.n, true, &back, &e), WEFT_OK);
            if (k == 0) assert_string_equal(back.p, text.p);
            weft_vec_free(&ids);
            weft_str_free(&text);
            weft_str_free(&back);
        }
        weft_tokenizer_close(t);
    }
}

static void test_without_memory(void **state) {
    (void)state;
    static const char *const kinds[] = {"llama 2, flags", "metaspace and digits", "some bytes, False"};
    static const weft_text_part parts[] = {{"<lr> the", 8, true}, {" \xF0\x9F\x90\xB1 two words 12 <l>", 20, false}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *json = kind_json(kind_named(kinds[k]));
        bool done = false;
        for (uint64_t n = 1; !done; n += n < 64 ? 1 : 7) { /* one by one at first, then by steps: most are those of tokens */
            weft_tokenizer *t;
            weft_error e = {0};
            weft_ids ids = {0};
            weft_str text = {0};
            weft_alloc_fail_at(n);
            weft_status s = weft_tokenizer_parse(&t, json, strlen(json), &e);
            assert_true((s == WEFT_OK) == (t != NULL));
            if (t) s = weft_tokenizer_encode(t, parts, 2, &ids, &e);
            if (t && s == WEFT_OK) s = weft_tokenizer_decode(t, ids.v, ids.n, true, &text, &e);
            weft_alloc_fail_at(0);
            if (s != WEFT_OK && s != WEFT_ENOMEM) fail_msg("%s, allocation %d: %d, %s", kinds[k], (int)n, s, e.text);
            done = s == WEFT_OK;
            weft_tokenizer_close(t);
            weft_vec_free(&ids);
            weft_str_free(&text);
        }
    }
}

/* A file of pieces of characters with other parts. */
#define CHARACTERS(vocab, model, parts)                                                                                            \
    "{" parts "\"model\":{\"type\":\"BPE\"," model "\"vocab\":{\"<unk>\":0" vocab "},\"merges\":[]}}"
#define UNKNOWN "\"unk_token\":\"<unk>\","
#define DECODER(steps) "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" steps "]},"
#define FUSE "{\"type\":\"Fuse\"}"
#define MARKED "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}"
#define BACK "{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}"
#define STRIP(content, start, stop) "{\"type\":\"Strip\",\"content\":\"" content "\",\"start\":" #start ",\"stop\":" #stop "}"
#define LONG_TEXT "0123456789012345678901234567890123456789012345678901234567890123456789"

static void test_refused_files(void **state) {
    (void)state;
    static const struct {
        const char *json;
        weft_status status;
        const char *says;
    } cases[] = {
        {CHARACTERS("", UNKNOWN, DECODER(BACK "," FUSE)), WEFT_OK, ""},
        {CHARACTERS("", UNKNOWN, DECODER(MARKED "," FUSE "," STRIP(" ", 1, 0))), WEFT_OK, ""},
        {CHARACTERS("", UNKNOWN, ""), WEFT_EFORMAT, "'decoder' is missing"},
        {CHARACTERS("", UNKNOWN, "\"decoder\":null,"), WEFT_EFORMAT, "'decoder' is missing"},
        {CHARACTERS("", UNKNOWN, DECODER("{\"type\":\"ByteLevel\"}")), WEFT_ESUPPORT, "decoder 'ByteLevel'"},
        {CHARACTERS("", UNKNOWN, DECODER(FUSE "," BACK)), WEFT_ESUPPORT, "decoder's step 'Replace'"},
        {CHARACTERS("", UNKNOWN, DECODER("{\"type\":\"ByteFallback\"}," BACK)), WEFT_ESUPPORT, "decoder's step 'Replace'"},
        {CHARACTERS("", UNKNOWN, DECODER(BACK "," MARKED)), WEFT_ESUPPORT, "decoder's step 'Metaspace'"},
        {CHARACTERS("", UNKNOWN, DECODER(MARKED "," BACK)), WEFT_ESUPPORT, "decoder's step 'Replace'"},
        {CHARACTERS("", UNKNOWN, DECODER(STRIP(" ", 1, 0))), WEFT_ESUPPORT, "Strip"},
        {CHARACTERS("", UNKNOWN, DECODER(FUSE "," STRIP(" ", 1, 1))), WEFT_ESUPPORT, "Strip"},
        {CHARACTERS("", UNKNOWN, DECODER(FUSE "," STRIP("\u4f60", 1, 0))), WEFT_ESUPPORT, "Strip"},
        {CHARACTERS("", UNKNOWN, DECODER(FUSE "," STRIP(" ", 1000, 0))), WEFT_ESUPPORT, "Strip"},
        {CHARACTERS("", "", DECODER(BACK)), WEFT_ESUPPORT, "text could get lost"},
        {CHARACTERS("", "\"byte_fallback\":true,", DECODER(BACK)), WEFT_ESUPPORT, "text could get lost"},
        {CHARACTERS("", "\"unk_token\":\"<none>\",", DECODER(BACK)), WEFT_EFORMAT, "'<none>', which is not a token"},
        {CHARACTERS("", UNKNOWN, "\"pre_tokenizer\":{\"type\":\"Digits\"},"), WEFT_ESUPPORT, "pre_tokenizer 'Digits'"},
        {CHARACTERS("", UNKNOWN, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"},"), WEFT_EFORMAT,
         "one character"},
        {CHARACTERS("", UNKNOWN, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"},"),
         WEFT_ESUPPORT, "prepend_scheme 'x'"},
        {CHARACTERS("", UNKNOWN, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false},"),
         WEFT_EFORMAT, "contradicts"},
        {CHARACTERS("", UNKNOWN, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" MARKED "," MARKED "]},"),
         WEFT_ESUPPORT, "after another"},
        {CHARACTERS("", UNKNOWN,
                    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" MARKED ",{\"type\":\"ByteLevel\"}]},"),
         WEFT_ESUPPORT, "both Metaspace and ByteLevel"},
        {CHARACTERS("", UNKNOWN, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"b\"},"),
         WEFT_ESUPPORT, "Regex"},
        {CHARACTERS("", UNKNOWN, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"b\"},"),
         WEFT_ESUPPORT, "empty text"},
        {CHARACTERS("", UNKNOWN, "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"" LONG_TEXT "\"},"), WEFT_ESUPPORT,
         "64 bytes"},
        {CHARACTERS("", UNKNOWN,
                    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
                    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"},"
                    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"}]},"),
         WEFT_ESUPPORT, "64 times longer"},
        {CHARACTERS("", UNKNOWN,
                    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"\"},"
                    "\"added_tokens\":[{\"id\":1,\"content\":\"xx\",\"normalized\":true}]," DECODER(BACK)),
         WEFT_EFORMAT, "normalised, has 0 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tokenizer *t;
        weft_error e = {0};
        weft_status s = weft_tokenizer_parse(&t, cases[i].json, strlen(cases[i].json), &e);
        if (s != cases[i].status || !strstr(e.text, cases[i].says) || (s == WEFT_OK) != (t != NULL))
            fail_msg("%s: %d, '%s'", cases[i].json, s, e.text);
        weft_tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_byte_tokens),
        cmocka_unit_test(test_space_at_the_beginning),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_special_tokens_in_user_text),
        cmocka_unit_test(test_a_megabyte_in_one_piece),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_refused_files),
    };
    return cmocka_run_group_tests(tests, read_kinds, drop_kinds);
}

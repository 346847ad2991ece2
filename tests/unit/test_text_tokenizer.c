/* test_text_tokenizer.c: encoding, decoding and loading with a tiny tokenizer. */
#include "text_tokenizer.h"

#include <pthread.h>

#include "base/clock.h"

#define CAT "\xF0\x9F\x90\xB1"

/* ---- encoding ------------------------------------------------------------------------------------------------------------ */

static void test_merges(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){.merges = {"b", "c", "a", "b", "a", "bc", "Ġ", "a", "a", "a"}});
    ASSERT_ENCODED(t, "abc", 3, 258); /* b c was learned before a b */
    ASSERT_ENCODED(t, "ab", 2, 257);
    ASSERT_ENCODED(t, "aaaaa", 5, 260, 260, 'a'); /* leftmost first */
    ASSERT_ENCODED(t, " abc aa", 7, ' ', 258, 259, 'a');
    ASSERT_ENCODED(t, "cab cab", 7, 'c', 257, ' ', 'c', 257);
    ASSERT_ENCODED(t, "x\nab", 4, 'x', '\n', 257);
    ASSERT_ENCODED(t, "", 0, );
    ASSERT_ENCODED(t, NULL, 0, );
    weft_tokenizer_close(t);
    t = tiny_open(&(tiny){.merges = {"b", "c", "a", "bc"}, .old_merges = true});
    ASSERT_ENCODED(t, "abcb", 4, 257, 'b');
    weft_tokenizer_close(t);
    t = tiny_open(&(tiny){.merges = {"a", "b", "ab", "c"}, .model = "\"ignore_merges\":true,"});
    ASSERT_ENCODED(t, "abc", 3, 257);
    ASSERT_ENCODED(t, "abcd", 4, 257, 'd');
    weft_tokenizer_close(t);
}

/* A pair given twice has its later rank, as in the reference library. */
static void test_merge_given_twice(void **state) {
    (void)state;
    weft_tokenizer *t;
    weft_error e;
    weft_str json = tiny_json(&(tiny){.merges = {"a", "b", "b", "c"}});
    char *at = strstr(json.p, "[\"b\",\"c\"]");
    weft_str twice = {0};
    weft_str_addf(&twice, "%.*s[\"b\",\"c\"],[\"a\",\"b\"]]}}", (int)(at - json.p), json.p);
    if (weft_tokenizer_parse(&t, twice.p, twice.n, &e) != WEFT_OK) fail_msg("%s", e.text);
    ASSERT_ENCODED(t, "abc", 3, 'a', 257);
    weft_str_free(&json);
    weft_str_free(&twice);
    weft_tokenizer_close(t);
}

/* mlx-serve: a control byte in a message broke the prompt. */
static void test_every_byte_of_text(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){0});
    char text[128];
    for (int b = 0; b < 128; b++) text[b] = (char)b;
    weft_ids ids = {0};
    weft_error e;
    weft_text_part part = {text, 128, false};
    assert_int_equal(weft_tokenizer_encode(t, &part, 1, &ids, &e), WEFT_OK);
    assert_int_equal(ids.n, 128);
    for (int b = 0; b < 128; b++) assert_int_equal(ids.v[b], b);
    weft_str back = decoded(t, ids.v, ids.n, true);
    assert_int_equal(back.n, 128);
    assert_memory_equal(back.p, text, 128);
    weft_str_free(&back);
    weft_vec_free(&ids);
    weft_tokenizer_close(t);
}

/* "<|im_end|>" in a message ended the turn. */
static void test_special_tokens_in_user_text(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){0});
    static const weft_text_part parts[] = {{"<|im_start|>", 12, true}, {"<|im_end|>", 10, false}, {"<|im_end|>", 10, true}};
    ASSERT_PARTS(t, parts, 1001, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', 1002);
    static const weft_text_part user[] = {{"<|im_end|>", 10, false}};
    ASSERT_PARTS(t, user, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    ASSERT_ENCODED(t, "a<|im_end|><|im_start|>", 23, 'a', 1002, 1001);

    /* completed by the template, begun by the template, cut inside the template */
    static const weft_text_part tail[] = {{"<|im_", 5, false}, {"end|>", 5, true}};
    ASSERT_PARTS(t, tail, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    static const weft_text_part head[] = {{"<|im_", 5, true}, {"end|>", 5, false}};
    ASSERT_PARTS(t, head, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    static const weft_text_part cut[] = {{"", 0, false}, {"<|im_", 5, true}, {"", 0, true}, {"end|>", 5, true}, {"x", 1, false}};
    ASSERT_PARTS(t, cut, 1002, 'x');

    /* other added tokens are recognised anywhere, as in the reference library, also over a cut */
    static const weft_text_part think[] = {{"<thi", 4, false}, {"nk>", 3, true}, {"<think>", 7, false}};
    ASSERT_PARTS(t, think, 1003, 1003);
    weft_tokenizer_close(t);
}

static void test_longest_added_token(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){.added = ADDED(300, "<a", "false") "," ADDED(301, "<ab>", "true") "," ADDED(
                                              302, "<ab", "false") "," ADDED(303, "b>c", "false")});
    ASSERT_ENCODED(t, "<ab>c", 5, 301, 'c'); /* leftmost, then longest */
    ASSERT_ENCODED(t, "<abc<a<", 7, 302, 'c', 300, '<');
    static const weft_text_part user[] = {{"<ab>c", 5, false}};
    ASSERT_PARTS(t, user, 302, '>', 'c');
    ASSERT_ENCODED(t, "<<ab", 4, '<', 302);
    weft_tokenizer_close(t);
}

/* Where parts are cut changes nothing else. */
static void test_parts_are_one_text(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){.merges = {"a", "b", "Ċ", "Ċ", "Ã", "©"}});
    static const weft_text_part merge[] = {{"xa", 2, true}, {"bx", 2, false}};
    ASSERT_PARTS(t, merge, 'x', 256, 'x');
    static const weft_text_part lines[] = {{"user\n", 5, true}, {"\nhi", 3, false}};
    ASSERT_PARTS(t, lines, 'u', 's', 'e', 'r', 257, 'h', 'i');
    static const weft_text_part accent[] = {{"e", 1, true}, {"\xCC\x81", 2, false}};
    ASSERT_PARTS(t, accent, 258);
    static const weft_text_part character[] = {{"\xC3", 1, false}, {"\xA9", 1, true}};
    ASSERT_PARTS(t, character, 258);
    weft_tokenizer_close(t);
}

static void test_normalised_text(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){.added = CHAT_TOKENS ",{\"id\":1004,\"content\":\"e\xCC\x81!\",\"special\":false}"});
    ASSERT_ENCODED(t, "e\xCC\x81", 3, 0xC3, 0xA9);
    ASSERT_ENCODED(t, "xe\xCC\x81!y", 6, 'x', 1004, 'y'); /* found after normalising: the file says nothing about "normalized" */
    ASSERT_ENCODED(t, "x\xC3\xA9!y", 5, 'x', 1004, 'y');
    /* a mark after a token is a text of its own, and does not turn ">" into "not greater" */
    ASSERT_ENCODED(t, "<think>\xCC\xB8", 9, 1003, 0xCC, 0xB8);
    weft_tokenizer_close(t);
    t = tiny_open(&(tiny){.normalizer = "null"});
    ASSERT_ENCODED(t, "e\xCC\x81", 3, 'e', 0xCC, 0x81);
    weft_tokenizer_close(t);
}

static void test_text_that_is_not_utf8(void **state) {
    (void)state;
    static const char *const normalizers[] = {NULL, "null"};
    for (int k = 0; k < 2; k++) {
        weft_tokenizer *t = tiny_open(&(tiny){.normalizer = normalizers[k]});
        ASSERT_ENCODED(t, "a\xFF\xE4\xBD<|im_end|>\xED\xA0", 16, 'a', 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD, 1002, 0xEF, 0xBF, 0xBD,
                       0xEF, 0xBF, 0xBD);
        weft_tokenizer_close(t);
    }
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------ */

/* mlx-vlm #834: an emoji spread over tokens raised UnicodeDecodeError, or came out as lone surrogates; mlx-lm #364: nothing is
 * handed out before the character is whole. */
static void test_character_over_several_tokens(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){0});
    static const int32_t cat[] = {0xF0, 0x9F, 0x90, 0xB1};
    weft_decoder d = {0};
    weft_str s = {0};
    weft_error e;
    for (int k = 0; k < 4; k++) {
        assert_int_equal(s.n, 0);
        assert_int_equal(weft_decoder_add(&d, t, cat[k], &s, &e), WEFT_OK);
    }
    assert_string_equal(s.p, CAT);
    assert_int_equal(weft_decoder_end(&d, &s, &e), WEFT_OK);
    assert_string_equal(s.p, CAT);
    weft_str_free(&s);
    weft_tokenizer_close(t);
}

static void test_decoding(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){.merges = {"Ġ", "h", "Ł", "Ĳ", "±", "a"}}); /* " h", 9F 90, B1 'a' */
    static const struct {
        int32_t ids[8];
        size_t n;
        bool with_special;
        const char *text;
    } cases[] = {
        {{'h', 256, 'i'}, 3, false, "h hi"}, /* mlx-lm #1041: "hĠhi" */
        {{0xF0, 257, 258}, 3, false, CAT "a"},
        {{1001, 'a', 1002, 1003}, 4, true, "<|im_start|>a<|im_end|><think>"},
        {{1001, 'a', 1002, 1003}, 4, false, "a<think>"},
        {{0xF0, 1002, 257, 0xB1}, 4, false, CAT}, /* what is left out is not between the halves */
        {{0xF0, 1002, 257, 0xB1}, 4, true, "\xEF\xBF\xBD<|im_end|>\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {{0xF0, 257, 'x', 0xE4}, 4, false, "\xEF\xBF\xBDx\xEF\xBF\xBD"},
        {{0xE4, 0xBD, 0xE4, 0xBD, 0xA0}, 5, false, "\xEF\xBF\xBD\xE4\xBD\xA0"},
        {{0xED, 0xA0, 0x80}, 3, false, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* a surrogate */
        {{0xFF, 0x80, 'a'},
         3,
         false,
         "\xEF\xBF\xBD\xEF\xBF\xBD"
         "a"},
        {{0}, 0, true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_str s = decoded(t, cases[i].ids, cases[i].n, cases[i].with_special);
        assert_string_equal(weft_str_z(&s), cases[i].text);
        weft_str_free(&s);
    }
    weft_tokenizer_close(t);
}

/* All sequences of up to four bytes of all kinds: one by one and at once, the text is the same. */
static void test_decoder_on_all_kinds_of_bytes(void **state) {
    (void)state;
    static const int32_t kinds[] = {'a', 0x80, 0x90, 0xA0, 0xBF, 0xC3, 0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0xFF};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    weft_tokenizer *t = tiny_open(&(tiny){0});
    for (int n = 0; n < KINDS * KINDS * KINDS * KINDS; n++) {
        int32_t ids[4];
        char bytes[4];
        for (int k = 0, rest = n; k < 4; k++, rest /= KINDS) {
            ids[k] = kinds[rest % KINDS];
            bytes[k] = (char)ids[k];
        }
        weft_str got = decoded(t, ids, 4, true), want = {0};
        assert_true(weft_utf8_add(&want, bytes, 4));
        assert_string_equal(got.p, want.p);
        weft_str_free(&got);
        weft_str_free(&want);
    }
    weft_tokenizer_close(t);
}

/* mlx-vlm #1805: padded ids were allowed to be sampled; mlx-examples #1077: an unknown id ended the program. */
static void test_ids_without_token(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){.merges = {"a", "b"}});
    static const int32_t bad[] = {-1, INT32_MIN, 257, 999, 1004, 248319, INT32_MAX};
    size_t n;
    assert_int_equal(weft_tokenizer_size(t), 1004);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_str s = {0};
        weft_error e = {0};
        int32_t ids[] = {'a', bad[i]};
        assert_false(weft_tokenizer_valid(t, bad[i]));
        assert_false(weft_tokenizer_special(t, bad[i]));
        assert_null(weft_tokenizer_bytes(t, bad[i], &n));
        assert_true(weft_str_addz(&s, "kept"));
        assert_int_equal(weft_tokenizer_decode(t, ids, 2, true, &s, &e), WEFT_EINVAL);
        assert_string_equal(s.p, "kept");
        assert_non_null(strstr(e.text, "is not the id of a token"));
        weft_str_free(&s);
    }
    assert_true(weft_tokenizer_valid(t, 256) && !weft_tokenizer_special(t, 256));
    assert_true(weft_tokenizer_special(t, 1000) && !weft_tokenizer_special(t, 1003));
    assert_memory_equal(weft_tokenizer_bytes(t, 256, &n), "ab", 2);
    assert_int_equal(n, 2);
    assert_int_equal(weft_tokenizer_find(t, "ab"), 256);
    assert_int_equal(weft_tokenizer_find(t, " "), ' ');
    assert_int_equal(weft_tokenizer_find(t, "<|im_end|>"), 1002);
    assert_int_equal(weft_tokenizer_find(t, "<|im_end|"), -1);
    assert_int_equal(weft_tokenizer_find(t, "<|im_end|>x"), -1);
    assert_int_equal(weft_tokenizer_find(t, "Ġ"), -1);
    assert_int_equal(weft_tokenizer_find(t, ""), -1);
    weft_tokenizer_close(t);
}

/* ---- loading ------------------------------------------------------------------------------------------------------------- */

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"

static void test_accepted_files(void **state) {
    (void)state;
    weft_tokenizer *t;
    size_t n;

    /* GPT-2's own expression */
    t = tiny_open(&(tiny){.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", .merges = {"Ġ", "1", "1", "2"}});
    ASSERT_ENCODED(t, "a 12", 4, 'a', 256, '2');
    weft_tokenizer_close(t);

    /* nothing but bytes; a decoder that contradicts the pre-tokenizer (mlx-lm #1041, mlx-knife #49: "Ġ" in the output) */
    t = tiny_open(
        &(tiny){.pre_tokenizer = BYTE_LEVEL,
                .merges = {"a", "Ġ", "aĠ", "b"},
                .root = "\"truncation\":{\"max_length\":2},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"},"});
    ASSERT_ENCODED(t, "a ba b", 6, 257, 257);
    weft_str s = decoded(t, (int32_t[]){257}, 1, false);
    assert_string_equal(s.p, "a b");
    weft_str_free(&s);
    weft_tokenizer_close(t);

    t = tiny_open(
        &(tiny){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFC\"}]}",
                .model = "\"dropout\":null,\"unk_token\":\"<unk>\",\"byte_fallback\":false,\"end_of_word_suffix\":\"\","});
    ASSERT_ENCODED(t, "e\xCC\x81", 3, 0xC3, 0xA9);
    assert_null(weft_tokenizer_prefix(t, &n));
    assert_int_equal(n, 0);
    weft_tokenizer_close(t);

    /* Llama's begin of sequence: not part of the text, but told */
    t = tiny_open(
        &(tiny){.root = "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL
                        ",{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|im_start|>\",\"type_id\":0}},"
                        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}]},"});
    const int32_t *prefix = weft_tokenizer_prefix(t, &n);
    assert_int_equal(n, 1);
    assert_int_equal(prefix[0], 1001);
    ASSERT_ENCODED(t, "a", 1, 'a');
    weft_tokenizer_close(t);

    /* an added token that is in the vocabulary, too, and one outside of the byte alphabet */
    t = tiny_open(&(tiny){.merges = {"Ġ", "a"}, .added = ADDED(256, "Ġa", "false") "," ADDED(300, "\u2581\u4f60", "true")});
    ASSERT_ENCODED(t, "Ġa", 3, 256);
    ASSERT_ENCODED(t, " a\u2581\u4f60", 8, 256, 300);
    s = decoded(t, (int32_t[]){256, 300}, 2, true);
    assert_string_equal(s.p, " a\u2581\u4f60");
    weft_str_free(&s);
    weft_tokenizer_close(t);
}

static void test_refused_files(void **state) {
    (void)state;
    static const struct {
        tiny file;
        weft_status status;
        const char *says;
    } cases[] = {
        {{.normalizer = "{\"type\":\"NFKC\"}"}, WEFT_ESUPPORT, "normalizer 'NFKC'"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}"},
         WEFT_ESUPPORT,
         "normalizer 'Lowercase'"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[3]}"}, WEFT_EFORMAT, "not an object"},
        {{.normalizer = "{\"type\":\"Sequence\"}"}, WEFT_EFORMAT, "'normalizer.normalizers' is missing"},
        {{.normalizer = "{}"}, WEFT_EFORMAT, "'normalizer.type' is missing"},
        {{.normalizer = "[]"}, WEFT_EFORMAT, "'normalizer'"},
        {{.pre_tokenizer = "null"}, WEFT_ESUPPORT, "lacks its ByteLevel step"},
        {{.pre_tokenizer = "{\"type\":\"Metaspace\"}"}, WEFT_EFORMAT, "replacement"},
        {{.pre_tokenizer = "{\"type\":\"Punctuation\"}"}, WEFT_ESUPPORT, "pre_tokenizer 'Punctuation'"},
        {{.pre_tokenizer = "{\"type\":\"ByteLevel\"}"}, WEFT_ESUPPORT, "add_prefix_space"},
        {{.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":1}"}, WEFT_EFORMAT, "true or false"},
        {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL "," BYTE_LEVEL "]}"},
         WEFT_ESUPPORT,
         "after ByteLevel"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Shuffled\"}"},
         WEFT_ESUPPORT,
         "behavior 'Shuffled'"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Glob\":\"a\"},\"behavior\":\"Isolated\"}"}, WEFT_EFORMAT, "String"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}"},
         WEFT_ESUPPORT,
         "empty match"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\"}"}, WEFT_EFORMAT, "pattern"},
        {{.pre_tokenizer = SPLIT("(")}, WEFT_ESUPPORT, "does not compile"},
        {{.model = "\"dropout\":0.1,"}, WEFT_EFORMAT, "dropout"},
        {{.model = "\"continuing_subword_prefix\":\"##\","}, WEFT_ESUPPORT, "##"},
        {{.model = "\"end_of_word_suffix\":\"</w>\","}, WEFT_ESUPPORT, "</w>"},
        {{.added = "7"}, WEFT_EFORMAT, "not an object"},
        {{.added = "{\"content\":\"x\"}"}, WEFT_EFORMAT, "added_tokens.id"},
        {{.added = "{\"id\":300}"}, WEFT_EFORMAT, "content"},
        {{.added = ADDED(300, "", "true")}, WEFT_EFORMAT, "0 bytes"},
        {{.added = ADDED(97, "zz", "true")}, WEFT_EFORMAT, "both have the id 97"},
        {{.added = ADDED(97, "\u4f60", "true")}, WEFT_EFORMAT, "both have the id 97"},
        {{.added = ADDED(300, "xx", "true") "," ADDED(301, "xx", "true")}, WEFT_EFORMAT, "occurs twice"},
        {{.added = ADDED(300, "\\ud83d", "true")}, WEFT_EFORMAT, "damaged character"}, /* oMLX #2011: a lone surrogate */
        {{.added = ADDED(300, "a\\u0000b", "true")}, WEFT_EFORMAT, "NUL"},
        {{.added = ADDED(2097152, "x", "true")}, WEFT_EFORMAT, "2097152"}, /* no 30 bytes may ask for gigabytes */
        {{.added = ADDED(-1, "x", "true")}, WEFT_EFORMAT, "-1"},
        {{.added = "{\"id\":300,\"content\":\"xx\",\"special\":true,\"normalized\":true}"},
         WEFT_ESUPPORT,
         "both special and normalized"},
        {{.added = "{\"id\":300,\"content\":\"x\",\"lstrip\":1}"}, WEFT_EFORMAT, "lstrip"},
        {{.added = ADDED(300, "x", "false")}, WEFT_EFORMAT, "in 'model.vocab' 120"},
        {{.merges = {"\u4f60", "a"}}, WEFT_EFORMAT, "lacks"},
        {{.merges = {"ab", "c"}}, WEFT_EFORMAT, "lacks"},
        {{.merges = {"", "zz"}}, WEFT_EFORMAT, "lacks"},
        {{.merges = {"a", "b c"}, .old_merges = true}, WEFT_EFORMAT, "not a pair"},
        {{.root = "\"post_processor\":{\"type\":\"BertProcessing\"},"}, WEFT_ESUPPORT, "post_processor 'BertProcessing'"},
        {{.root = "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{}]},"},
         WEFT_EFORMAT,
         "<s>"},
        {{.root = "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{},{\"SpecialToken\":{\"id\":\"a\"}}]},"},
         WEFT_ESUPPORT,
         "after the text"},
        {{.root = "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]},"}, WEFT_ESUPPORT, "after the text"},
        {{.root = "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[1]},"}, WEFT_EFORMAT, "not an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tokenizer *t;
        weft_error e = {0};
        if (tiny_parse(&t, &cases[i].file, &e) != cases[i].status || !strstr(e.text, cases[i].says) || t)
            fail_msg("case %zu, %s: %d, '%s'", i, cases[i].says, e.code, e.text);
    }
}

static void test_damaged_files(void **state) {
    (void)state;
    static const struct {
        const char *json;
        weft_status status;
        const char *says;
    } cases[] = {
        {"", WEFT_EFORMAT, "ends too early"},
        {"[]", WEFT_EFORMAT, "object"},
        {"{}", WEFT_EFORMAT, "'model' is missing"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL "}", WEFT_EFORMAT, "'model' is missing"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"type\":\"WordPiece\"}}", WEFT_ESUPPORT, "model 'WordPiece'"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"merges\":[]}}", WEFT_EFORMAT, "'model.vocab' is missing"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"vocab\":{}}}", WEFT_EFORMAT, "'model.merges' is missing"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"vocab\":{},\"merges\":[]}}", WEFT_ESUPPORT, "byte 00 has no token"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"vocab\":{\"a\":\"b\"},\"merges\":[]}}", WEFT_EFORMAT, "model.vocab.a"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", WEFT_EFORMAT,
         "the id 1 twice"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"vocab\":{\"a\":1,\"a\":2},\"merges\":[]}}", WEFT_EFORMAT, "twice"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"vocab\":{\"a\":4611686018427387904},\"merges\":[]}}", WEFT_EFORMAT,
         "model.vocab.a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_tokenizer *t;
        weft_error e = {0};
        if (weft_tokenizer_parse(&t, cases[i].json, strlen(cases[i].json), &e) != cases[i].status ||
            !strstr(e.text, cases[i].says) || t)
            fail_msg("%s: %d, '%s'", cases[i].json, e.code, e.text);
    }
    weft_tokenizer *t;
    weft_error e = {0};
    assert_int_equal(weft_tokenizer_open(&t, "no/such/tokenizer.json", &e), WEFT_EIO);
    assert_non_null(strstr(e.text, "no/such/tokenizer.json"));
    assert_null(t);

    weft_str json = tiny_json(&(tiny){.merges = {"a", "b"}}); /* every shorter file */
    for (size_t n = 0; n < json.n; n++) assert_int_not_equal(weft_tokenizer_parse(&t, json.p, n, NULL), WEFT_OK);
    weft_str_free(&json);
}

/* ---- memory, time, threads ----------------------------------------------------------------------------------------------- */

static void test_without_memory(void **state) {
    (void)state;
    static const weft_text_part parts[] = {{"<|im_start|>", 12, true},
                                           {"ab \xF0\x9F\x90\xB1 e\xCC\xA3\xCC\x81\xCC\x95\xCC\xA7!!", 19, false}};
    weft_str json = tiny_json(
        &(tiny){.merges = {"a", "b", "Ġ", "a"},
                .added = CHAT_TOKENS ",{\"id\":1004,\"content\":\"!!\"}",
                .root = "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\"}},{}]},"});
    bool done = false;
    int failures = 0;
    for (uint64_t n = 1; !done; n++) {
        weft_tokenizer *t;
        weft_error e = {0};
        weft_ids ids = {0};
        weft_str text = {0};
        assert_true(weft_vec_push(&ids, 7) && weft_str_addz(&text, "kept"));
        weft_alloc_fail_at(n);
        weft_status s = weft_tokenizer_parse(&t, json.p, json.n, &e);
        assert_true((s == WEFT_OK) == (t != NULL));
        if (t) {
            s = weft_tokenizer_encode(t, parts, 2, &ids, &e);
            if (s != WEFT_OK) assert_int_equal(ids.n, 1);
            if (s == WEFT_OK) {
                s = weft_tokenizer_decode(t, ids.v + 1, ids.n - 1, true, &text, &e);
                if (s != WEFT_OK) assert_string_equal(text.p, "kept");
            }
        }
        weft_alloc_fail_at(0);
        if (s != WEFT_OK && (s != WEFT_ENOMEM || e.code != WEFT_ENOMEM)) fail_msg("allocation %d: %d, %s", (int)n, s, e.text);
        done = s == WEFT_OK;
        failures += !done;
        weft_tokenizer_close(t);
        weft_vec_free(&ids);
        weft_str_free(&text);
    }
    assert_true(failures > 20);
    weft_str_free(&json);
}

/* Quadratic merging or detokenising shows here: each of these is one piece of a megabyte. */
static void test_a_megabyte_in_one_piece(void **state) {
    (void)state;
    static const char *const units[] = {"a", " ", "ab", "\xCC\x81\xCC\xA3", "abcdefgh", "<|im_star", "<"};
    weft_tokenizer *t =
        tiny_open(&(tiny){.merges = {"a", "a", "aa", "aa", "aaaa", "aaaa", "Ġ", "Ġ", "ĠĠ", "ĠĠ", "a", "b", "ab", "ab", "c", "d"}});
    uint64_t start = weft_now_ns();
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        weft_str text = {0};
        weft_ids ids = {0};
        weft_error e;
        while (text.n < 1 << 20) assert_true(weft_str_addz(&text, units[u]));
        weft_text_part part = {text.p, text.n, true};
        if (weft_tokenizer_encode(t, &part, 1, &ids, &e) != WEFT_OK) fail_msg("%s", e.text);
        weft_str back = decoded(t, ids.v, ids.n, true);
        assert_int_equal(back.n, text.n);
        if (u != 3) assert_memory_equal(back.p, text.p, text.n); /* those are reordered */
        weft_str_free(&back);
        weft_str_free(&text);
        weft_vec_free(&ids);
    }
    assert_true(weft_now_ns() - start < UINT64_C(120000000000));
    weft_tokenizer_close(t);
}

static void test_too_long_a_text(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){0});
    weft_ids ids = {0};
    weft_error e;
    weft_text_part parts[] = {{"a", 1, true}, {"a", SIZE_MAX, true}}; /* refused before it is read */
    assert_int_equal(weft_tokenizer_encode(t, parts, 2, &ids, &e), WEFT_EINVAL);
    assert_int_equal(ids.n, 0);
    weft_tokenizer_close(t);
}

static void *encode_often(void *tokenizer) {
    for (int k = 0; k < 200; k++) {
        weft_ids ids = {0};
        static const char text[] = "some text, e\xCC\x81 <think>";
        weft_text_part part = {text, sizeof text - 1, true};
        if (weft_tokenizer_encode(tokenizer, &part, 1, &ids, NULL) != WEFT_OK || ids.v[ids.n - 1] != 1003) return tokenizer;
        weft_vec_free(&ids);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    weft_tokenizer *t = tiny_open(&(tiny){.merges = {"t", "e"}});
    pthread_t thread[4];
    for (int k = 0; k < 4; k++) assert_int_equal(pthread_create(&thread[k], NULL, encode_often, t), 0);
    for (int k = 0; k < 4; k++) {
        void *failed;
        assert_int_equal(pthread_join(thread[k], &failed), 0);
        assert_null(failed);
    }
    weft_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_merge_given_twice),
        cmocka_unit_test(test_every_byte_of_text),
        cmocka_unit_test(test_special_tokens_in_user_text),
        cmocka_unit_test(test_longest_added_token),
        cmocka_unit_test(test_parts_are_one_text),
        cmocka_unit_test(test_normalised_text),
        cmocka_unit_test(test_text_that_is_not_utf8),
        cmocka_unit_test(test_character_over_several_tokens),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_decoder_on_all_kinds_of_bytes),
        cmocka_unit_test(test_ids_without_token),
        cmocka_unit_test(test_accepted_files),
        cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_a_megabyte_in_one_piece),
        cmocka_unit_test(test_too_long_a_text),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

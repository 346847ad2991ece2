/* test_text_cases.c [TOKENIZER CASES]: a tokenizer.json against ids from the reference library; the bundled model's where none is
 * named. CASES: {"cases": [{"text": "...", "ids": [..], "back": "..."}, ..]}, "back" being the text of the ids where that is not
 * the text in form C. */
#include "text_tokenizer.h"

#include "format/json.h"
#include "text/normalize.h"

static const char *tokenizer_path = "models/mini/tokenizer.json", *cases_path = "tests/data/tokenizer/cases.json";
static weft_tokenizer *tokenizer;
static int32_t find_every = 1; /* a token by its text is looked for among all, where its name is another: a sample then */

static int open_tokenizer(void **state) {
    (void)state;
    weft_error e;
    if (weft_tokenizer_open(&tokenizer, tokenizer_path, &e) == WEFT_OK) return 0;
    print_error("%s\n", e.text);
    return -1;
}

static int close_tokenizer(void **state) {
    (void)state;
    weft_tokenizer_close(tokenizer);
    return 0;
}

static void check_case(const char *text, size_t n, struct json_object *other, const int32_t *want, size_t n_want) {
    weft_ids ids = {0};
    weft_error e;
    weft_text_part whole = {text, n, true}, halves[2] = {{text, n / 2, true}, {text + n / 2, n - n / 2, true}};
    if (weft_tokenizer_encode(tokenizer, &whole, 1, &ids, &e) != WEFT_OK) fail_msg("%s", e.text);
    bool same = ids.n == n_want && (n_want == 0 || memcmp(ids.v, want, n_want * sizeof *want) == 0);
    if (!same) print_error("for the text '%s'\n", text);
    assert_ids(&ids, want, n_want);

    weft_str back = decoded(tokenizer, ids.v, ids.n, true), nfc = {0};
    weft_codepoints work = {0};
    if (other)
        assert_true(weft_str_add(&nfc, json_object_get_string(other), (size_t)json_object_get_string_len(other)));
    else
        assert_true(weft_nfc(&nfc, text, n, &work));
    assert_int_equal(back.n, nfc.n);
    assert_memory_equal(weft_str_z(&back), weft_str_z(&nfc), nfc.n);

    ids.n = 0;
    assert_int_equal(weft_tokenizer_encode(tokenizer, halves, 2, &ids, &e), WEFT_OK);
    assert_ids(&ids, want, n_want);
    weft_vec_free(&work);
    weft_str_free(&back);
    weft_str_free(&nfc);
    weft_vec_free(&ids);
}

static void test_cases_of_the_reference_library(void **state) {
    (void)state;
    struct json_object *root, *cases, *ids;
    weft_error e;
    if (weft_json_read(&root, cases_path, (size_t)1 << 30, &e) != WEFT_OK) fail_msg("%s", e.text);
    if (weft_json_array((weft_json_at){root, ""}, "cases", 1 << 20, &cases, &e) != WEFT_OK) fail_msg("%s", e.text);
    size_t n = json_object_array_length(cases);
    assert_true(n > 100);
    for (size_t k = 0; k < n; k++) {
        struct json_object *text, *c = json_object_array_get_idx(cases, k);
        assert_true(json_object_object_get_ex(c, "text", &text) && json_object_object_get_ex(c, "ids", &ids));
        size_t n_ids = json_object_array_length(ids);
        int32_t *want = calloc(n_ids + 1, sizeof *want);
        for (size_t i = 0; i < n_ids; i++) want[i] = json_object_get_int(json_object_array_get_idx(ids, i));
        struct json_object *other = NULL;
        json_object_object_get_ex(c, "back", &other);
        check_case(json_object_get_string(text), (size_t)json_object_get_string_len(text), other, want, n_ids);
        free(want);
    }
    json_object_put(root);
}

/* Every token behind an "a", as some tokenizers leave out a space at the beginning: its bytes, its text, and its id again. */
static void test_every_token(void **state) {
    (void)state;
    int tokens = 0;
    int32_t ids[2] = {weft_tokenizer_find(tokenizer, "a")};
    for (int32_t id = 0; id < weft_tokenizer_size(tokenizer); id++) {
        size_t n, n_found = 0;
        const char *bytes = weft_tokenizer_bytes(tokenizer, id, &n);
        assert_true((bytes != NULL) == weft_tokenizer_valid(tokenizer, id));
        if (!bytes) continue;
        tokens++;
        assert_true(n > 0);
        ids[1] = id;
        weft_str text = decoded(tokenizer, ids, 2, true), want = {0};
        assert_true(weft_str_addz(&want, "a") && weft_utf8_add(&want, bytes, n));
        assert_int_equal(text.n, want.n);
        assert_memory_equal(text.p, want.p, want.n);
        weft_str_free(&text);
        weft_str_clear(&want);
        assert_true(weft_str_add(&want, bytes, n));
        int32_t found = strlen(want.p) == n && id % find_every == 0 ? weft_tokenizer_find(tokenizer, want.p) : id;
        bytes = weft_tokenizer_bytes(tokenizer, found, &n_found);
        if (n_found != n || memcmp(bytes, want.p, n) != 0)
            fail_msg("the token '%s', %d, is found as %d", want.p, (int)id, (int)found);
        weft_str_free(&want);
    }
    assert_true(tokens > 1000);
}

int main(int argc, char **argv) {
    if (argc == 3) tokenizer_path = argv[1], cases_path = argv[2], find_every = 499;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_of_the_reference_library),
        cmocka_unit_test(test_every_token),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}

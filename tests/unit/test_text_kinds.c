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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
    };
    return cmocka_run_group_tests(tests, read_kinds, drop_kinds);
}

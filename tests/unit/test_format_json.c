/* test_format_json.c: what counts as JSON, and what values may be. */
#include "format_files.h"

#include "format/json.h"

static weft_status parse(const char *text, size_t n, weft_error *e) {
    struct json_object *root;
    char *exact = malloc(n ? n : 1); /* no terminator: reading past the end shows under ASan */
    memcpy(exact, text, n);
    weft_status st = weft_json_parse(&root, exact, n, e);
    assert_true((st == WEFT_OK) == (root != NULL));
    json_object_put(root);
    free(exact);
    return st;
}

static void test_good_text(void **state) {
    (void)state;
    static const char *const good[] = {
        "{}",
        " {} \n ",
        "{\"a\":{\"a\":[{\"a\":1},{\"a\":1}]}}",
        "{\"a:b\":\"c:d{[,\\\"'\"}",
        "{\"x\":[0.0, Infinity, -Infinity, NaN]}",
        "{\"a\":\"\\u0000\",\"\\u0061b\":1}",
        "{\"\\\\u0000\":1}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        weft_error e;
        if (parse(good[i], strlen(good[i]), &e) != WEFT_OK) fail_msg("%s: %s", good[i], e.text);
    }
}

static void test_bad_text(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "ends too early"},
        {"{\"a\":1", "ends too early"},
        {"{\"a\":\"\\", "ends too early"},
        {"{}x", "not JSON"},
        {"{\"a\":1,}", "not JSON"},
        {"{'a':1}", "not JSON"},
        {"{\"a\":1 'b':2}", "not JSON"},
        {"{\"a\":/**/1}", "not JSON"},
        {"{\"a\":01}", "not JSON"},
        {"{\"a\":True}", "not JSON"},
        {"{\"a\":\"\xff\"}", "not JSON"},
        {"\xef\xbb\xbf{}", "not JSON"},
        {"[1]", "expected a JSON object"},
        {"7 ", "expected a JSON object"},
        {"null ", "expected a JSON object"},
        {"{\"a\\u0000b\":1}", "NUL"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "the key 'a' comes twice"},
        {"{\"o\":{\"x\":1,\"x\":{\"y\":1}}}", "the key 'x' comes twice"},
        {"{\"o\":[{\"k\":[],\"k\":[]}]}", "the key 'k' comes twice"},
        {"{\"a\":1,\"\\u0061\":2}", "a key comes twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_error e = {0};
        assert_says(parse(bad[i].text, strlen(bad[i].text), &e), &e, WEFT_EFORMAT, bad[i].says);
    }
    weft_error e;
    assert_says(parse("{\"a\":1\0}", 8, &e), &e, WEFT_EFORMAT, "not JSON");
    assert_says(parse("{\"a\0\":1}", 8, &e), &e, WEFT_EFORMAT, "not JSON");
    struct json_object *root;
    assert_says(weft_json_parse(&root, "{}", (size_t)1 << 31, &e), &e, WEFT_EFORMAT, "too long"); /* refused before it is read */
}

/* Deep nesting must be an error, not a stack overflow. */
static void test_depth_is_bounded(void **state) {
    (void)state;
    for (int depth = 1; depth < 40; depth++) {
        char text[200] = "{\"a\":";
        for (int i = 1; i < depth; i++) strcat(text, "[");
        if (depth == 1) strcat(text, "1");
        for (int i = 1; i < depth; i++) strcat(text, "]");
        strcat(text, "}");
        weft_error e;
        weft_status st = parse(text, strlen(text), &e);
        if (depth <= WEFT_JSON_DEPTH)
            assert_int_equal(st, WEFT_OK);
        else
            assert_says(st, &e, WEFT_EFORMAT, "nested deeper than 32");
    }
    size_t n = 3000000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    weft_error e;
    assert_says(parse(deep, n, &e), &e, WEFT_EFORMAT, "");
    memcpy(deep, "{\"a\":", 5);
    assert_says(parse(deep, 1000, &e), &e, WEFT_EFORMAT, "nested deeper than 32");
    free(deep);
}

/* A 60 MB text of "[],[],[]," would make json-c take 7 GB. */
static void test_memory_is_bounded(void **state) {
    (void)state;
    static const char *const units[] = {"[],", "{},", "0,"};
    for (size_t u = 0; u < 3; u++) {
        size_t unit = strlen(units[u]), n = 60000000 / unit * unit;
        char *text = malloc(n + 16);
        memcpy(text, "{\"a\":[", 6);
        for (size_t i = 0; i < n; i += unit) memcpy(text + 6 + i, units[u], unit);
        memcpy(text + 6 + n - 1, "]}", 2);
        weft_error e;
        assert_says(weft_json_parse(&(struct json_object *){NULL}, text, 6 + n - 1 + 2, &e), &e, WEFT_EFORMAT, "over 1 GB");
        free(text);
    }
}

static void test_values(void **state) {
    (void)state;
    static const char text[] =
        "{\"i\": 7, \"whole\": 4096.0, \"half\": 0.5, \"huge\": 99999999999999999999, \"big\": 1e300, \"neg\": -3, \"s\": \"abc\","
        " \"nul\": \"a\\u0000b\", \"b\": true, \"null\": null, \"o\": {}, \"a\": [1, \"x\"], \"inf\": Infinity, \"nan\": NaN}";
    struct json_object *root;
    weft_error e;
    assert_int_equal(weft_json_parse(&root, text, strlen(text), &e), WEFT_OK);
    weft_json_at o = {root, "text_config."};

    int64_t i = -9;
    assert_int_equal(weft_json_int(o, "i", 1, 7, &i, &e), WEFT_OK);
    assert_int_equal(i, 7);
    assert_int_equal(weft_json_int(o, "whole", 1, 5000, &i, &e), WEFT_OK);
    assert_int_equal(i, 4096);
    assert_int_equal(weft_json_int(o, "absent", 1, 2, &i, &e), WEFT_OK);
    assert_int_equal(weft_json_int(o, "null", 1, 2, &i, &e), WEFT_OK);
    assert_int_equal(i, 4096); /* untouched */
    static const char *const not_int[] = {"half", "huge", "big", "neg", "s", "b", "o", "a", "inf", "nan"};
    for (size_t k = 0; k < sizeof not_int / sizeof *not_int; k++)
        assert_says(weft_json_int(o, not_int[k], 0, INT64_MAX - 1, &i, &e), &e, WEFT_EFORMAT,
                    "expected a whole number from 0 to 9223372036854775806");
    assert_says(weft_json_int(o, "i", 8, 9, &i, &e), &e, WEFT_EFORMAT, "'text_config.i' is 7; expected a whole number from 8 to 9");
    assert_int_equal(i, 4096);

    double d = 0;
    assert_int_equal(weft_json_number(o, "half", 0, 1, &d, &e), WEFT_OK);
    assert_true(d == 0.5);
    assert_int_equal(weft_json_number(o, "i", 0, 10, &d, &e), WEFT_OK);
    assert_true(d == 7);
    static const char *const not_number[] = {"big", "neg", "s", "b", "o", "a", "inf", "nan"};
    for (size_t k = 0; k < sizeof not_number / sizeof *not_number; k++)
        assert_says(weft_json_number(o, not_number[k], 0, 10, &d, &e), &e, WEFT_EFORMAT, "expected a number from 0 to 10");

    bool b = false;
    assert_int_equal(weft_json_bool(o, "b", &b, &e), WEFT_OK);
    assert_true(b);
    assert_says(weft_json_bool(o, "i", &b, &e), &e, WEFT_EFORMAT, "'text_config.i' is 7; expected true or false");

    const char *s = "kept";
    assert_int_equal(weft_json_text(o, "null", &s, &e), WEFT_OK);
    assert_string_equal(s, "kept");
    assert_int_equal(weft_json_text(o, "s", &s, &e), WEFT_OK);
    assert_string_equal(s, "abc");
    assert_says(weft_json_text(o, "nul", &s, &e), &e, WEFT_EFORMAT, "without a NUL");
    assert_says(weft_json_text(o, "a", &s, &e), &e, WEFT_EFORMAT, "is an array of 2 values; expected a string");

    struct json_object *v = NULL;
    assert_int_equal(weft_json_object(o, "o", &v, &e), WEFT_OK);
    assert_non_null(v);
    assert_says(weft_json_object(o, "s", &v, &e), &e, WEFT_EFORMAT, "is \"abc\"; expected an object");
    assert_int_equal(weft_json_array(o, "a", 2, &v, &e), WEFT_OK);
    assert_int_equal(json_object_array_length(v), 2);
    assert_says(weft_json_array(o, "a", 1, &v, &e), &e, WEFT_EFORMAT, "expected an array of at most 1 values");
    assert_says(weft_json_array(o, "o", 9, &v, &e), &e, WEFT_EFORMAT, "is an object; expected an array");
    assert_int_equal(weft_json_need(o, "i", &e), WEFT_OK);
    assert_says(weft_json_need(o, "null", &e), &e, WEFT_EFORMAT, "the key 'text_config.null' is missing");
    assert_says(weft_json_int_value(NULL, o, "a", 0, 1, &i, &e), &e, WEFT_EFORMAT, "'text_config.a' is null");
    json_object_put(root);
}

static void test_files(void **state) {
    (void)state;
    struct json_object *root;
    weft_error e;
    put_text("a.json", "{\"a\": [1]}");
    assert_int_equal(weft_json_read(&root, at("a.json"), 100, &e), WEFT_OK);
    json_object_put(root);
    assert_int_equal(weft_json_read(&root, at("a.json"), 9, &e), WEFT_EFORMAT);
    assert_null(root);
    put_text("b.json", "{\"a\": [1}");
    assert_says(weft_json_read(&root, at("b.json"), 100, &e), &e, WEFT_EFORMAT, "b.json: not JSON");
    assert_int_equal(weft_json_read(&root, at("none.json"), 100, NULL), WEFT_EIO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_text),         cmocka_unit_test(test_bad_text), cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_memory_is_bounded), cmocka_unit_test(test_values),   cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

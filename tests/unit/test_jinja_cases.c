/* test_jinja_cases.c [FILE...]: templates against what Python's jinja2 made of them; tests/data/jinja/features.json where no file
 * is named. A file: {"now": SECONDS, "template": TEXT, "vars": {..}, "cases": [{"template": .., "vars": {..}, "out": TEXT}, ..]}; a
 * case without a template or vars of its own has those of the file. Instead of "out" there is "raises", what raise_exception() was
 * given, or "error", what Python said of a template that failed: it must fail here, too, in whatever words. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "format/json.h"
#include "text/jinja.h"

static const char *const bundled[] = {"tests/data/jinja/features.json"};
static const char *const *files = bundled;
static size_t n_files = 1;

static struct json_object *get(struct json_object *o, struct json_object *fallback, const char *key) {
    struct json_object *v = NULL;
    if (json_object_object_get_ex(o, key, &v)) return v;
    return fallback && json_object_object_get_ex(fallback, key, &v) ? v : NULL;
}

static weft_jinja_vars *make_vars(struct json_object *object) {
    weft_jinja_vars *vars;
    assert_int_equal(weft_jinja_vars_open(&vars, NULL), WEFT_OK);
    json_object_object_foreach(object, key, value) {
        weft_jinja_set(vars, key, weft_jinja_json(vars, value, false));
    }
    return vars;
}

/* The parts cover the text and alternate. */
static void check_parts(const weft_jinja_output *out) {
    size_t at = 0;
    for (size_t i = 0; i < out->parts.n; i++) {
        assert_ptr_equal(out->parts.v[i].text, out->text.p + at);
        assert_true(out->parts.v[i].n > 0);
        assert_true(i == 0 || out->parts.v[i].special != out->parts.v[i - 1].special);
        at += out->parts.v[i].n;
    }
    assert_int_equal(at, out->text.n);
}

/* Whether rendering gave what the case says; a difference is shown. */
static bool same(const char *file, size_t number, struct json_object *c, weft_status st, const weft_jinja_output *out,
                 const weft_error *e, const char *template) {
    struct json_object *want = get(c, NULL, "out"), *raises = get(c, NULL, "raises"), *error = get(c, NULL, "error");
    bool ok;
    if (want) {
        size_t n = (size_t)json_object_get_string_len(want);
        ok = st == WEFT_OK && out->text.n == n && memcmp(weft_str_z(&out->text), json_object_get_string(want), n) == 0;
    } else if (raises) {
        const char *text = json_object_get_string(raises);
        ok = st == WEFT_EINVAL && (strpbrk(text, "\n\r\t") || strlen(text) > 900 || strcmp(e->text, text) == 0);
    } else {
        ok = st == WEFT_EFORMAT || st == WEFT_ESUPPORT;
    }
    if (ok) return true;
    print_error("%s, case %zu\n  template %.200s\n  expected %s %s\n  got      %s %s\n", file, number, template,
                want     ? "text"
                : raises ? "raise"
                         : "error",
                json_object_get_string(want     ? want
                                       : raises ? raises
                                                : error),
                weft_status_name(st), st == WEFT_OK ? weft_str_z(&out->text) : e->text);
    return false;
}

static void check_file(const char *path) {
    struct json_object *root, *cases;
    weft_error e;
    if (weft_json_read(&root, path, (size_t)1 << 30, &e) != WEFT_OK) fail_msg("%s", e.text);
    if (weft_json_array((weft_json_at){root, ""}, "cases", 1 << 20, &cases, &e) != WEFT_OK) fail_msg("%s", e.text);
    struct json_object *now = get(root, NULL, "now");
    weft_jinja_options options = {.now = now ? json_object_get_int64(now) : 0};
    size_t n = json_object_array_length(cases), failed = 0;
    assert_true(n > 0);
    weft_jinja *t = NULL;
    const char *source = NULL;
    for (size_t i = 0; i < n; i++) {
        struct json_object *c = json_object_array_get_idx(cases, i), *template = get(c, root, "template");
        weft_jinja_output out = {0};
        weft_status st = WEFT_OK;
        if (!t || source != json_object_get_string(template)) {
            weft_jinja_free(t);
            source = json_object_get_string(template);
            st = weft_jinja_compile(&t, source, (size_t)json_object_get_string_len(template), &e);
        }
        weft_jinja_vars *vars = make_vars(get(c, root, "vars"));
        if (st == WEFT_OK) st = weft_jinja_render(t, vars, &options, &out, &e);
        if (st == WEFT_OK) check_parts(&out);
        failed += !same(path, i, c, st, &out, &e, source);
        weft_jinja_output_free(&out);
        weft_jinja_vars_close(vars);
    }
    weft_jinja_free(t);
    json_object_put(root);
    if (failed) fail_msg("%s: %zu of %zu cases differ", path, failed, n);
    print_message("%s: %zu cases\n", path, n);
}

static void test_cases_of_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < n_files; i++) check_file(files[i]);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        files = (const char *const *)(argv + 1);
        n_files = (size_t)argc - 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases_of_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

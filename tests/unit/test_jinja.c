/* test_jinja.c: the template interpreter from outside: where text came from, errors, limits, memory. What templates print is
 * compared with Python in test_jinja_cases.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "format/json.h"
#include "text/jinja.h"

/* Renders; *text is the output with what was typed by somebody in [..]. */
static weft_status render(const char *source, const weft_jinja_vars *vars, const weft_jinja_options *options, weft_str *text,
                          weft_error *e) {
    weft_jinja *t;
    weft_jinja_output out = {0};
    weft_str_clear(text);
    weft_status st = weft_jinja_compile(&t, source, strlen(source), e);
    if (st != WEFT_OK) return st;
    st = weft_jinja_render(t, vars, options, &out, e);
    for (size_t i = 0; i < out.parts.n; i++) {
        const weft_text_part *p = &out.parts.v[i];
        assert_true(weft_str_addf(text, p->special ? "%.*s" : "[%.*s]", (int)p->n, p->text));
    }
    weft_jinja_output_free(&out);
    weft_jinja_free(t);
    return st;
}

static weft_jinja_vars *open_vars(void) {
    weft_jinja_vars *v;
    assert_int_equal(weft_jinja_vars_open(&v, NULL), WEFT_OK);
    return v;
}

static void set_text(weft_jinja_vars *v, const char *name, const char *text, bool trusted) {
    weft_jinja_set(v, name, weft_jinja_text(v, text, strlen(text), trusted));
}

static void check(const weft_jinja_vars *vars, const char *source, const char *want) {
    weft_str text = {0};
    weft_error e;
    if (render(source, vars, NULL, &text, &e) != WEFT_OK) fail_msg("%s: %s", source, e.text);
    assert_string_equal(weft_str_z(&text), want);
    weft_str_free(&text);
}

static void check_error(const weft_jinja_vars *vars, const weft_jinja_options *options, const char *source, weft_status want,
                        const char *message) {
    weft_str text = {0};
    weft_error e = {0};
    weft_status st = render(source, vars, options, &text, &e);
    if (st != want || !strstr(e.text, message))
        fail_msg("%.100s: %s, \"%s\"; expected %s, \"%s\"", source, weft_status_name(st), e.text, weft_status_name(want), message);
    weft_str_free(&text);
}

/* ---- where text came from ------------------------------------------------------------------------------------------------ */

static void test_marks(void **state) {
    (void)state;
    weft_jinja_vars *v = open_vars();
    set_text(v, "x", "  a<|im_end|>b ", false);
    set_text(v, "y", "Kay", false);
    set_text(v, "bos", "<s>", true);
    static const struct {
        const char *source, *want;
    } cases[] = {
        {"<|im_start|>{{ x }}<|im_end|>", "<|im_start|>[  a<|im_end|>b ]<|im_end|>"},
        {"{{ x | trim }}", "[a<|im_end|>b]"},
        {"{{ '<' + x.strip() + '>' }}", "<[a<|im_end|>b]>"},
        {"{{ '<' ~ y ~ '>' ~ 1 }}", "<[Kay]>1"},
        {"{{ bos }}{{ bos + y }}", "<s><s>[Kay]"},
        {"{{ y[1:] }}{{ ('<' + y)[:2] }}{{ ('<' + y + '>')[::-1] }}", "[ay]<[K]>[yaK]<"},
        {"{{ y | upper }}{{ ('<b' ~ y) | upper }}", "[KAY]<B[KAY]"},
        {"{{ y.replace('a', '<x>') }}{{ 'a-b'.replace('-', y) }}", "[K]<x>[y]a[Kay]b"},
        {"{{ 'one two' | replace('two', y) }}", "one [Kay]"},
        {"{{ [y, 'b', y] | join('|') }}", "[Kay]|b|[Kay]"},
        {"{{ y.join(['<', '>']) }}", "<[Kay]>"},
        {"{{ ('<' ~ y ~ '>').split('a') }}", "['<[K]', '[y]>']"},
        {"{{ [y] }}{{ {'k': y} }}{{ (y,) }}", "['[Kay]']{'k': '[Kay]'}('[Kay]',)"},
        {"{{ [y] | tojson }}{{ {y: 1} | tojson }}", "[\"[Kay]\"]{\"[Kay]\": 1}"},
        {"{{ ('\"' ~ y ~ '\\n') | tojson }}", "\"\\\"[Kay]\\n\""},
        {"{{ '%s!' % y }}{{ '{}?'.format(y) }}{{ '%5s' % y }}", "[Kay]![Kay]?  [Kay]"},
        {"{{ y * 2 }}", "[KayKay]"},
        {"{% set z %}<{{ y }}>{% endset %}{{ z }}", "<[Kay]>"},
        {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(y) }}", "<[Kay]>"},
        {"{% filter upper %}a{{ y }}{% endfilter %}", "A[KAY]"},
        {"{% for c in y %}{{ c }}-{% endfor %}", "[K]-[a]-[y]-"},
        {"{% generation %}{{ y }}{% endgeneration %}", "[Kay]"},
        {"{{ ('<' ~ y) | e }}{{ y | safe }}", "&lt;[KayKay]"},
        {"{{ (y ~ '\n<') | indent(2) }}", "[Kay]\n  <"},
        {"{{ y | default('d') }}{{ y or 'd' }}{{ y if y }}{{ [y] | first }}", "[KayKayKayKay]"},
        {"{{ y | list }}", "['[K]', '[a]', '[y]']"},
        {"{{ y | title }}{{ y | string }}{{ y.center(5, '<') }}", "[KayKay]<[Kay]<"},
        {"{{ {'a': {'b': y}}.a.b }}{{ (y ~ 'x').removesuffix('x') }}", "[KayKay]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(v, cases[i].source, cases[i].want);
    weft_jinja_vars_close(v);
}

static void test_variables(void **state) {
    (void)state;
    weft_jinja_vars *v = open_vars();
    weft_jinja_value m = weft_jinja_map(v), l = weft_jinja_list(v);
    weft_jinja_put(v, m, "role", 4, true, weft_jinja_text(v, "user", 4, true));
    weft_jinja_put(v, m, "content", 7, true, weft_jinja_text(v, "hi\xff", 3, false));
    weft_jinja_put(v, m, "role", 4, true, weft_jinja_text(v, "tool", 4, true));
    weft_jinja_append(v, l, m);
    weft_jinja_append(v, l, weft_jinja_none());
    weft_jinja_append(v, l, weft_jinja_bool(true));
    weft_jinja_append(v, l, weft_jinja_int(-3));
    weft_jinja_append(v, l, weft_jinja_float(0.5));
    weft_jinja_set(v, "l", weft_jinja_none());
    weft_jinja_set(v, "l", l);
    /* Putting and appending to anything else does nothing. */
    weft_jinja_append(v, m, m);
    weft_jinja_put(v, l, "k", 1, true, l);
    check(v, "{{ l }}", "[{'role': 'tool', 'content': '[hi\xEF\xBF\xBD]'}, None, True, -3, 0.5]");

    struct json_object *json = NULL;
    static const char text[] = "{\"a\": [1, -2.50, 18446744073709551615, true, null, \"\\u4e16\\u0000\"], \"b\": {\"c\": 1e400, "
                               "\"d\": -9223372036854775808}}";
    assert_int_equal(weft_json_parse(&json, text, strlen(text), NULL), WEFT_OK);
    weft_jinja_set(v, "j", weft_jinja_json(v, json, true));
    weft_jinja_set(v, "typed", weft_jinja_json(v, json, false));
    weft_jinja_set(v, "null", weft_jinja_json(v, NULL, false));
    json_object_put(json);
    check(v, "{{ j | tojson }}",
          "{\"a\": [1, -2.5, 18446744073709551615, true, null, \"\xE4\xB8\x96\\u0000\"], \"b\": {\"c\": Infinity, \"d\": "
          "-9223372036854775808}}");
    check(v, "{{ typed.b | tojson }}{{ null }}", "{\"[c]\": Infinity, \"[d]\": -9223372036854775808}None");
    weft_jinja_vars_close(v);
    weft_jinja_vars_close(NULL);
    check(NULL, "{{ x is defined }}{{ 1 }}", "False1");
}

/* Bytes 0 to 31 in messages are ordinary characters. */
static void test_control_bytes(void **state) {
    (void)state;
    weft_jinja_vars *v = open_vars();
    char all[33] = "";
    for (int i = 0; i < 32; i++) all[i] = (char)i;
    weft_jinja_set(v, "x", weft_jinja_text(v, all, 32, false));
    weft_jinja *t;
    weft_jinja_output out;
    static const char source[] = "<{{ x }}|{{ x | tojson | length }}>";
    assert_int_equal(weft_jinja_compile(&t, source, strlen(source), NULL), WEFT_OK);
    assert_int_equal(weft_jinja_render(t, v, NULL, &out, NULL), WEFT_OK);
    assert_int_equal(out.parts.n, 3);
    assert_memory_equal(out.parts.v[1].text, all, 32);
    assert_string_equal(out.parts.v[2].text, "|174>");
    weft_jinja_output_free(&out);
    weft_jinja_free(t);
    weft_jinja_vars_close(v);
}

static void test_mentions(void **state) {
    (void)state;
    weft_jinja *t;
    static const char source[] = "{% for m in messages %}{{ m.content }}{% if tools %}{% endif %}{% endfor %}";
    assert_int_equal(weft_jinja_compile(&t, source, strlen(source), NULL), WEFT_OK);
    assert_true(weft_jinja_mentions(t, "messages"));
    assert_true(weft_jinja_mentions(t, "tools"));
    assert_false(weft_jinja_mentions(t, "content"));
    assert_false(weft_jinja_mentions(t, "enable_thinking"));
    weft_jinja_free(t);
    weft_jinja_free(NULL);
}

static void test_clock(void **state) {
    (void)state;
    static const struct {
        int64_t now;
        const char *format, *want;
    } cases[] = {
        {1722006245, "%d %b %Y", "26 Jul 2024"},
        {951782400, "%Y-%m-%d %j %a", "2000-02-29 060 Tue"},
        {-1, "%F %T", "1969-12-31 23:59:59"},
        {4107542400, "%F %j %A", "2100-03-01 060 Monday"},
        {1609459200, "%G-%V-%u %U %W", "2020-53-5 00 00"},
        {1230768000, "%G-%V-%u %-d/%-m", "2009-01-4 1/1"},
        {1104537600, "%G-%V %I %p %l", "2004-53 12 AM 12"},
        {253402300799, "%F", "9999-12-31"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[100];
        weft_str text = {0};
        weft_jinja_options o = {.now = cases[i].now};
        snprintf(source, sizeof source, "{{ strftime_now('%s') }}", cases[i].format);
        assert_int_equal(render(source, NULL, &o, &text, NULL), WEFT_OK);
        assert_string_equal(weft_str_z(&text), cases[i].want);
        weft_str_free(&text);
    }
    check(NULL, "{{ strftime_now('%Y') | int > 2023 }}", "True");
}

/* ---- errors -------------------------------------------------------------------------------------------------------------- */

static void test_syntax_errors(void **state) {
    (void)state;
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"a\nb {{ x", "line 2: expected }}, found the end of the template"},
        {"{% if x %}\n\n", "line 1: the block that begins here has no end: expected {% elif else endif %}"},
        {"\n\n{% nosuch %}", "line 3: unexpected statement 'nosuch'"},
        {"{% endif %}", "line 1: unexpected statement 'endif'"},
        {"\n{{ x | nosuch }}", "line 2: no filter named 'nosuch'"},
        {"{{ 'a }}", "line 1: a string without its closing quote"},
        {"{{ (1] }}", "line 1: a closing bracket that does not fit"},
        {"{# x", "line 1: a comment without its #}"},
        {"\n{% raw %}", "line 2: {% raw %} without {% endraw %}"},
        {"{% set true = 1 %}", "line 1: cannot assign to this"},
        {"{% break %}", "line 1: {% break %} and {% continue %} belong into a loop"},
        {"{{ 1 is odd is even }}", "line 1: tests with 'is' cannot be chained"},
        {"{{ '\\x4' }}", "broken \\x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_error(NULL, NULL, cases[i].source, WEFT_EFORMAT, cases[i].message);
    check_error(NULL, NULL, "\n{% include 'x' %}", WEFT_ESUPPORT, "line 2: {% include %} is not supported");
}

static void test_render_errors(void **state) {
    (void)state;
    weft_jinja_vars *v = open_vars();
    set_text(v, "s", "text", false);
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"\n\n{{ x.y }}", "line 3: 'x' is undefined"},
        {"{{ s.x.y }}", "line 1: 'str object' has no attribute 'x'"},
        {"{{ [1][5] + 1 }}", "list object has no such element"},
        {"{{ s + 1 }}", "can only concatenate str (not \"int\") to str"},
        {"{{ 1 + s }}", "unsupported operand type(s) for +: 'int' and 'str'"},
        {"{{ 1 < s }}", "'<' not supported between instances of 'int' and 'str'"},
        {"{{ 1 > s }}", "'>' not supported between instances of 'int' and 'str'"},
        {"{{ s() }}", "'str' object is not callable"},
        {"{{ [].append(1) }}", "access to attribute 'append' is unsafe"},
        {"{{ s.split(sep=1) }}", "split() argument must be str, not int"},
        {"{{ s.split(nosuch=1) }}", "split() got an unexpected argument 'nosuch'"},
        {"{{ s.strip(chars='x') }}", "strip() takes no keyword arguments"},
        {"{{ s | replace('a') }}", "replace() misses its argument 'new'"},
        {"{{ range | tojson }}", "Object of type function is not JSON serializable"},
        {"{% for a, b in [[1]] %}{% endfor %}", "not enough values to unpack (expected 2, got 1)"},
        {"{{ {[]: 1} }}", "unhashable type: 'list'"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "the macro takes not more than 1 argument(s)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_error(v, NULL, cases[i].source, WEFT_EFORMAT, cases[i].message);
    weft_error e;
    weft_str text = {0};
    assert_int_equal(render("\n{{ raise_exception('No ' ~ s) }}", v, NULL, &text, &e), WEFT_EINVAL);
    assert_string_equal(e.text, "No text");
    weft_str_free(&text);
    weft_jinja_vars_close(v);
}

/* ---- limits -------------------------------------------------------------------------------------------------------------- */

static void test_limits(void **state) {
    (void)state;
    static const char *const hostile[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 9000000000000000000 }}",
        "{{ [1] * 9000000000000000000 }}",
        "{% set n = namespace(x='x' * 1000) %}{% for i in range(1000) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% "
        "endfor %}"
        "{{ n.x == n.y }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x | tojson }}",
        "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(100000) %}{% set n.x = n.x | map('string') %}{% endfor %}{{ n.x | list }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:99999999}'.format(1) }}",
        "{{ 'a'.center(999999999) }}",
        "{% set s = 'a' * 1000000 %}{% set t = 'a' * 500000 ~ 'b' %}{{ t in s }}",
        "{% set s = 'ab' * 1000000 %}{{ s.replace('', 'x' * 1000) }}",
        "{% set s = 'a' * 30000 %}{% for i in range(99999) %}{{ s | length ~ s.count('a') ~ s.split('a') }}{% endfor %}",
        "{{ 2 ** 64 }}",
        "{{ [1] | batch(9000000000000000000, 1) | list }}",
        "{{ [1] | slice(9000000000000000000) | list }}",
        "{{ 'a' | indent(9000000000000000000) }}",
        "{{ [1] | tojson(indent=9000000000000000000) }}",
    };
    weft_jinja_options o = {.work = 20 * 1000 * 1000, .memory = (size_t)256 << 20};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) check_error(NULL, &o, hostile[i], WEFT_ESUPPORT, "line 1: ");

    o = (weft_jinja_options){.output = 10};
    check_error(NULL, &o, "{% for i in range(11) %}x{% endfor %}", WEFT_ESUPPORT, "over 10 bytes");
    o = (weft_jinja_options){.iterations = 10};
    check_error(NULL, &o, "{% for i in range(11) %}x{% endfor %}", WEFT_ESUPPORT, "too many rounds");
    o = (weft_jinja_options){.memory = 1000};
    check_error(NULL, &o, "{{ 'x' * 1000 }}", WEFT_ESUPPORT, "too much memory");
    o = (weft_jinja_options){.work = 100};
    check_error(NULL, &o, "{% for i in range(111) %}x{% endfor %}", WEFT_ESUPPORT, "too many steps");
}

/* A template of one shape many times over; it must end in an error or not, but end. */
static void nest(const char *open, const char *middle, const char *close, size_t n, weft_status want) {
    weft_str s = {0};
    weft_jinja *t = NULL;
    for (size_t i = 0; i < n; i++) assert_true(weft_str_addz(&s, open));
    assert_true(weft_str_addz(&s, middle));
    for (size_t i = 0; i < n; i++) assert_true(weft_str_addz(&s, close));
    assert_int_equal(weft_jinja_compile(&t, s.p, s.n, NULL), want);
    weft_jinja_free(t);
    weft_str_free(&s);
}

static void test_nesting(void **state) {
    (void)state;
    nest("{% if x %}", "", "{% endif %}", 50, WEFT_OK);
    nest("{% if x %}", "", "{% endif %}", 10000, WEFT_ESUPPORT);
    nest("{% for x in y %}", "", "{% endfor %}", 10000, WEFT_ESUPPORT);
    nest("{{ (", "1", "", 1, WEFT_EFORMAT);
    weft_str s = {0};
    assert_true(weft_str_addz(&s, "{{ "));
    for (int i = 0; i < 10000; i++) assert_true(weft_str_addz(&s, "- "));
    nest(s.p, "1", " }}", 1, WEFT_ESUPPORT);
    weft_str_clear(&s);
    assert_true(weft_str_addz(&s, "{{ 1"));
    for (int i = 0; i < 300; i++) assert_true(weft_str_addz(&s, " + 1"));
    nest(s.p, " }}", "", 1, WEFT_OK);
    for (int i = 0; i < 10000; i++) assert_true(weft_str_addz(&s, " + 1"));
    nest(s.p, " }}", "", 1, WEFT_ESUPPORT);
    weft_str_clear(&s);
    assert_true(weft_str_addz(&s, "{{ x"));
    for (int i = 0; i < 10000; i++) assert_true(weft_str_addz(&s, "[0]"));
    nest(s.p, " }}", "", 1, WEFT_ESUPPORT);
    weft_str_clear(&s);
    assert_true(weft_str_addz(&s, "{{ 1"));
    for (int i = 0; i < 10000; i++) assert_true(weft_str_addz(&s, " if x else 1"));
    nest(s.p, " }}", "", 1, WEFT_ESUPPORT);
    weft_str_clear(&s);
    assert_true(weft_str_addz(&s, "{{ 1"));
    for (int i = 0; i < 10000; i++) assert_true(weft_str_addz(&s, " ~ 1"));
    nest(s.p, " }}", "", 1, WEFT_OK);
    weft_str_free(&s);
}

/* Whatever allocation fails, the result is an error and nothing is leaked. */
static void test_out_of_memory(void **state) {
    (void)state;
    static const char source[] =
        "{% macro m(a, b=1) %}<{{ a | upper }}{{ b }}>{% endmacro %}{% for x in l | sort %}{{ m(x) }}{{ loop.last }}{% endfor %}"
        "{{ l | tojson(indent=2) }}{{ s.split(',') | map('trim') | join('|') }}{{ 'x' * 5000 }}{{ strftime_now('%d %b') }}"
        "{% set n = namespace(a=[1]) %}{% set n.a = n.a + [2] %}{{ n.a }}{{ '%s %d' % (s, 4) }}{{ '{:>5}'.format(s) }}";
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        weft_jinja *t = NULL;
        weft_jinja_vars *v = NULL;
        weft_jinja_output out = {0};
        weft_error e = {0};
        weft_alloc_fail_at(n);
        weft_status st = weft_jinja_vars_open(&v, &e);
        if (st == WEFT_OK) {
            set_text(v, "s", "a, b", false);
            weft_jinja_value l = weft_jinja_list(v);
            for (int i = 0; i < 500; i++) weft_jinja_append(v, l, weft_jinja_int(500 - i));
            weft_jinja_set(v, "l", l);
            weft_jinja_set(v, "invalid", weft_jinja_text(v, "\xff", 1, false));
            st = weft_jinja_compile(&t, source, strlen(source), &e);
        }
        if (st == WEFT_OK) st = weft_jinja_render(t, v, NULL, &out, &e);
        weft_alloc_fail_at(0);
        done = st == WEFT_OK;
        if (!done) {
            assert_int_equal(st, WEFT_ENOMEM);
            assert_int_equal(e.code, WEFT_ENOMEM);
            assert_null(out.text.p);
        }
        weft_jinja_output_free(&out);
        weft_jinja_free(t);
        weft_jinja_vars_close(v);
        assert_true(n < 10000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),         cmocka_unit_test(test_variables), cmocka_unit_test(test_control_bytes),
        cmocka_unit_test(test_mentions),      cmocka_unit_test(test_clock),     cmocka_unit_test(test_syntax_errors),
        cmocka_unit_test(test_render_errors), cmocka_unit_test(test_limits),    cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_args.c: command lines: parsing, messages, help. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/args.c" /* the commands are no part of the library */

#include "base/alloc.h"

static bool stats, verbose;
static int64_t threads, seed;
static double temperature;
static const char *model, *accept;

static const weft_option options[] = {
    WEFT_HEADING("Model"),
    WEFT_TEXT("model", "DIR", &model, NULL, NULL, "the folder of the checkpoint"),
    WEFT_INTEGER("threads", "N", &threads, 0, 256, "all processors", "worker threads"),
    WEFT_HEADING("Sampling"),
    WEFT_NUMBER("temperature", "T", &temperature, 0, 2, NULL, "0 is greedy"),
    WEFT_INTEGER("seed", "N", &seed, INT64_MIN, INT64_MAX, NULL, "of the random numbers"),
    WEFT_TEXT("accept", "RULE", &accept, "coupled|rejection", NULL, "which drafts stay"),
    WEFT_FLAG("stats", &stats, "speeds at the end"),
    WEFT_FLAG("verbose", &verbose, "more lines"),
    WEFT_END,
};
static const weft_command command = {"run", "PROMPT [MORE]", 0, 2, "Answers a prompt.", options, NULL};

static weft_error e;
static bool help;
static int argc;
static char *argv[20];

static int reset(void **state) {
    (void)state;
    stats = verbose = help = false;
    threads = 0, seed = 1, temperature = 0.7, model = "models/mini", accept = "coupled";
    return 0;
}

static weft_status parse_with(const weft_command *c, const char *const *words) {
    static char copy[20][100];
    static char name[] = "run";
    argv[0] = name;
    argc = 1;
    for (; words[argc - 1]; argc++) {
        strcpy(copy[argc], words[argc - 1]);
        argv[argc] = copy[argc];
    }
    argv[argc] = NULL;
    return weft_args_parse(c, &argc, argv, &help, &e);
}
#define PARSE(...) parse_with(&command, (const char *const[]){__VA_ARGS__, NULL})

static void test_every_kind(void **state) {
    (void)state;
    assert_int_equal(
        PARSE("--model", "a b", "first", "--threads=8", "--temperature", "1.5", "--seed", "-9", "--stats", "--accept=rejection"),
        WEFT_OK);
    assert_string_equal(model, "a b");
    assert_int_equal(threads, 8);
    assert_true(temperature == 1.5);
    assert_int_equal(seed, -9);
    assert_true(stats && !verbose && !help);
    assert_string_equal(accept, "rejection");
    assert_int_equal(argc, 1);
    assert_string_equal(argv[0], "first");
}

static void test_positional(void **state) {
    (void)state;
    assert_int_equal(PARSE("-", "--stats", "--", "--threads"), WEFT_OK);
    assert_int_equal(argc, 2);
    assert_string_equal(argv[0], "-");
    assert_string_equal(argv[1], "--threads");
    assert_int_equal(PARSE("a", "b", "c"), WEFT_EINVAL);
    assert_non_null(strstr(e.text, "unexpected argument 'c'"));
    assert_int_equal(PARSE(""), WEFT_OK); /* an empty prompt is one */
    assert_int_equal(argc, 1);
    weft_command two = command;
    two.least = 2;
    assert_int_equal(parse_with(&two, (const char *const[]){"a", NULL}), WEFT_EINVAL);
    assert_string_equal(e.text, "missing argument; usage: weft run PROMPT [MORE]");
}

static void test_values(void **state) {
    (void)state;
    assert_int_equal(PARSE("--model="), WEFT_OK);
    assert_string_equal(model, "");
    assert_int_equal(PARSE("--model=a=b"), WEFT_OK);
    assert_string_equal(model, "a=b");
    assert_int_equal(PARSE("--model=--x"), WEFT_OK);
    assert_string_equal(model, "--x");
    assert_int_equal(PARSE("--threads", "1", "--threads", "2"), WEFT_OK); /* the last counts */
    assert_int_equal(threads, 2);
}

static void test_several(void **state) {
    (void)state;
    weft_texts vars = {.n = 0};
    const weft_option table[] = {WEFT_TEXTS("var", "K=V", &vars, "a variable"), WEFT_FLAG("stats", &stats, "speeds"), WEFT_END};
    const weft_command c = {"run", "", 0, 0, "Runs.", table, NULL};
    assert_int_equal(parse_with(&c, (const char *const[]){"--var", "a=1", "--stats", "--var=b=--x", NULL}), WEFT_OK);
    assert_int_equal(vars.n, 2);
    assert_string_equal(vars.v[0], "a=1");
    assert_string_equal(vars.v[1], "b=--x");
    vars.n = WEFT_TEXTS_MOST;
    assert_int_equal(parse_with(&c, (const char *const[]){"--var", "c=1", NULL}), WEFT_EINVAL);
    assert_string_equal(e.text, "--var is given more than 64 times");
    weft_str text = {0};
    assert_true(weft_args_help(&c, 80, &text));
    assert_non_null(strstr(text.p, "--var K=V  a variable\n"));
    weft_str_free(&text);
}

static void test_messages(void **state) {
    (void)state;
    const struct {
        const char *words[3], *text;
    } cases[] = {
        {{"--thredas", "3"}, "unknown option --thredas; did you mean --threads?"},
        {{"--threads3"}, "unknown option --threads3; did you mean --threads?"},
        {{"--temp=1"}, "unknown option --temp; did you mean --temperature?"},
        {{"-threads", "3"}, "unknown option -threads; did you mean --threads?"},
        {{"--xyz"}, "unknown option --xyz; see weft help run"},
        {{"-x"}, "unknown option -x; see weft help run"},
        {{"--=3"}, "unknown option --; see weft help run"},
        {{"--Model"}, "unknown option --Model; did you mean --model?"},
        {{"--threads"}, "--threads needs a value: --threads N"},
        {{"--threads", "--stats"}, "--threads needs a value: --threads N"},
        {{"--threads", "--"}, "--threads needs a value: --threads N"},
        {{"--threads", "257"}, "--threads 257: expected a whole number from 0 to 256"},
        {{"--threads", "-1"}, "--threads -1: expected a whole number from 0 to 256"},
        {{"--threads="}, "--threads : expected a whole number from 0 to 256"},
        {{"--threads=4x"}, "--threads 4x: expected a whole number from 0 to 256"},
        {{"--seed=9223372036854775808"},
         "--seed 9223372036854775808: expected a whole number from -9223372036854775808 to 9223372036854775807"},
        {{"--temperature", "nan"}, "--temperature nan: expected a number from 0 to 2"},
        {{"--temperature", "2.001"}, "--temperature 2.001: expected a number from 0 to 2"},
        {{"--temperature", "0,5"}, "--temperature 0,5: expected a number from 0 to 2"},
        {{"--accept", "coupledx"}, "--accept coupledx: expected one of coupled|rejection"},
        {{"--accept", ""}, "--accept : expected one of coupled|rejection"},
        {{"--stats=1"}, "--stats takes no value"},
        {{"--\x1b[2J"}, "unknown option --?[2J; see weft help run"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        reset(NULL);
        assert_int_equal(parse_with(&command, cases[i].words), WEFT_EINVAL);
        assert_string_equal(e.text, cases[i].text);
        assert_true(threads == 0 && temperature == 0.7 && seed == 1); /* a refused value leaves the default */
    }
}

static void test_long_words(void **state) {
    (void)state;
    char word[95];
    memset(word, 'q', sizeof word - 1);
    word[sizeof word - 1] = 0;
    word[0] = word[1] = '-';
    assert_int_equal(PARSE(word), WEFT_EINVAL);
    assert_non_null(strstr(e.text, "see weft help run"));
}

static void test_help_is_found_anywhere(void **state) {
    (void)state;
    assert_int_equal(PARSE("--bad", "x", "--help"), WEFT_OK);
    assert_true(help);
    assert_int_equal(PARSE("-h"), WEFT_OK);
    assert_true(help);
    assert_int_equal(PARSE("--", "--help"), WEFT_OK);
    assert_false(help);
}

static void test_help_text(void **state) {
    (void)state;
    weft_str s = {0};
    assert_true(weft_args_help(&command, 80, &s));
    assert_string_equal(s.p, "usage: weft run [options] PROMPT [MORE]\n"
                             "\n"
                             "Answers a prompt.\n"
                             "\n"
                             "Model\n"
                             "  --model DIR      the folder of the checkpoint (default models/mini)\n"
                             "  --threads N      worker threads (0 to 256; default all processors)\n"
                             "\n"
                             "Sampling\n"
                             "  --temperature T  0 is greedy (0 to 2; default 0.7)\n"
                             "  --seed N         of the random numbers (default 1)\n"
                             "  --accept RULE    which drafts stay (coupled|rejection; default coupled)\n"
                             "  --stats          speeds at the end\n"
                             "  --verbose        more lines\n"
                             "  --help           this text\n");
    weft_str_free(&s);
}

static void test_help_wraps(void **state) {
    (void)state;
    const weft_option long_ones[] = {
        WEFT_FLAG("a", &stats,
                  "several words that do not fit into one line of this width, \xc3\xa4\xc3\xb6\xc3\xbc included, and end"),
        WEFT_TEXT("an-option-with-a-very-long-name", "FILE", &model, NULL, "none", "short"),
        WEFT_END,
    };
    const weft_command c = {
        "x", "", 0, 0, "One sentence that is longer than the forty columns that there are.", long_ones, "notes\n  as they are"};
    weft_str s = {0};
    assert_true(weft_args_help(&c, 40, &s));
    assert_string_equal(s.p, "usage: weft x [options]\n"
                             "\n"
                             "One sentence that is longer than the\n"
                             "forty columns that there are.\n"
                             "\n"
                             "  --a     several words that do not fit\n"
                             "          into one line of this width,\n"
                             "          \xc3\xa4\xc3\xb6\xc3\xbc included, and end\n"
                             "  --an-option-with-a-very-long-name FILE\n"
                             "          short (default none)\n"
                             "  --help  this text\n"
                             "\n"
                             "notes\n"
                             "  as they are\n");
    weft_str_free(&s);
}

static void test_help_without_memory(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        weft_str s = {0};
        weft_alloc_fail_at(n);
        bool ok = weft_args_help(&command, 80, &s);
        weft_alloc_fail_at(0);
        weft_str_free(&s);
        if (ok) {
            assert_true(n > 5);
            break;
        }
    }
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const names[] = {"run", "inspect", "tokenize", "logits"};
    assert_string_equal(weft_args_nearest("rnu", names, 4), "run");
    assert_string_equal(weft_args_nearest("inspct", names, 4), "inspect");
    assert_string_equal(weft_args_nearest("tokenise", names, 4), "tokenize");
    assert_string_equal(weft_args_nearest("tok", names, 4), "tokenize");
    assert_null(weft_args_nearest("serve", names, 4));
    assert_null(weft_args_nearest("", names, 4));
    assert_null(weft_args_nearest("x", names, 4));
    assert_int_equal(distance("", "abc"), 3);
    assert_int_equal(distance("kitten", "sitting"), 3);
    assert_int_equal(distance("ab", "ba"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_kind, reset),
        cmocka_unit_test_setup(test_positional, reset),
        cmocka_unit_test_setup(test_values, reset),
        cmocka_unit_test_setup(test_several, reset),
        cmocka_unit_test_setup(test_messages, reset),
        cmocka_unit_test_setup(test_long_words, reset),
        cmocka_unit_test_setup(test_help_is_found_anywhere, reset),
        cmocka_unit_test_setup(test_help_text, reset),
        cmocka_unit_test_setup(test_help_wraps, reset),
        cmocka_unit_test_setup(test_help_without_memory, reset),
        cmocka_unit_test_setup(test_nearest, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

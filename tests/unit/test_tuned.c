/* test_tuned.c: the table of `weft tune`: written, read, refused when damaged or another's, and where the engine begins with it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/cpus.h"
#include "base/dirs.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/engine.h"

#define MODEL "tests/data/golden/qwen3_5-dense"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-tuned-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static weft_tuned example(const weft_tuned_key *key) {
    weft_tuned t = {.key = *key, .version = WEFT_VERSION, .date = 1700000000, .rounds = 5, .tokens = 48, .link_ns = 250};
    for (int r = 1; r <= WEFT_TUNED_ROWS; r++) t.pass_ns[r] = r == 7 ? 0 : 1000 + 125 * r;
    for (int i = 0; i < WEFT_MAX_DEPTH; i++) t.accepted[WEFT_DRAFTER_MODEL].share[i] = i < 6 ? 0.75f - 0.125f * (float)i : 0;
    t.accepted[WEFT_DRAFTER_LOOKUP].share[0] = 0.5f;
    t.sureness.share[7] = 0.875f;
    for (t.n_depths = 0; t.n_depths < WEFT_TUNED_DEPTHS; t.n_depths++) {
        weft_tuned_depth *d = &t.depths[t.n_depths];
        *d = (weft_tuned_depth){.depth = t.n_depths < WEFT_TUNED_DEPTHS - 1 ? t.n_depths : WEFT_DEPTH_AUTO,
                                .tok_s = 400,
                                .ratio = 1.25,
                                .least = 0.5,
                                .most = 1.5,
                                .tokens_per_pass = 1.75};
        for (int i = 0; i < WEFT_MAX_DEPTH; i++) d->accepted[i] = i < t.n_depths ? 0.25 : -1;
    }
    return t;
}

static const weft_tuned_key some_key = {.model = "a model",
                                        .source = {0xff, 0, 0x12, 7},
                                        .processor = "a processor",
                                        .isa = "avx2",
                                        .kv = "bf16",
                                        .threads = 3,
                                        .drafter = true};

static char *text_of(const weft_tuned *t) {
    struct json_object *o = weft_tuned_json(t);
    assert_non_null(o);
    char *text = weft_strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
    json_object_put(o);
    return text;
}

static void test_written_as_read(void **state) {
    (void)state;
    weft_error e;
    weft_tuned t = example(&some_key), back;
    char path[128];
    snprintf(path, sizeof path, "%s/new/folder/table.json", folder);
    assert_int_equal(weft_tuned_write(&t, path, &e), WEFT_OK);
    assert_int_equal(weft_tuned_write(&t, path, &e), WEFT_OK); /* over the old one */
    if (weft_tuned_read(&back, path, &some_key, &e) != WEFT_OK) fail_msg("%s", e.text);
    assert_int_equal(back.date, t.date);
    assert_memory_equal(back.key.source, t.key.source, 16);
    assert_string_equal(back.key.model, t.key.model);
    assert_memory_equal(back.pass_ns, t.pass_ns, sizeof t.pass_ns);
    assert_memory_equal(back.accepted, t.accepted, sizeof t.accepted);
    assert_memory_equal(back.depths, t.depths, sizeof t.depths);
    weft_costs costs = {0};
    weft_acceptance accepted[WEFT_MODES][WEFT_LEARNERS] = {0};
    weft_sureness sureness = {0};
    weft_tuned_start(&back, &costs, accepted, &sureness);
    assert_true(weft_costs_at(&costs, 1) == 1125 && weft_costs_at(&costs, 9) == 2125 && weft_costs_at(&costs, 7) == 1875);
    assert_true(costs.link_ns == 250);
    assert_true(weft_acceptance_at(&accepted[WEFT_MODE_TEXT][WEFT_DRAFTER_MODEL], 1, WEFT_DRAFTER_MODEL) == 0.625f);
    assert_true(weft_acceptance_at(&accepted[WEFT_MODE_TOOL][WEFT_DRAFTER_LOOKUP], 0, WEFT_DRAFTER_LOOKUP) == 0.5f);
    assert_true(weft_acceptance_at(&accepted[WEFT_MODE_TOOL][WEFT_DRAFTER_LOOKUP], 1, WEFT_DRAFTER_LOOKUP) >
                0); /* as without a table */
    assert_true(weft_sureness_at(&sureness, 7) == 0.875f && weft_sureness_at(&sureness, 0) > 0);
}

static void test_another_key(void **state) {
    (void)state;
    weft_error e;
    weft_tuned t = example(&some_key), back;
    char path[128];
    snprintf(path, sizeof path, "%s/key.json", folder);
    assert_int_equal(weft_tuned_write(&t, path, &e), WEFT_OK);
    weft_tuned_key other[7];
    for (int i = 0; i < 7; i++) other[i] = some_key;
    other[0].source[15] = 1;
    strcpy(other[1].processor, "another");
    strcpy(other[2].isa, "neon");
    strcpy(other[3].kv, "int8");
    other[4].threads = 4;
    other[5].precise = true;
    other[6].drafter = false;
    weft_str mine = {0}, theirs = {0};
    assert_true(weft_tuned_path(&mine, folder, &some_key));
    for (int i = 0; i < 7; i++) {
        assert_int_equal(weft_tuned_read(&back, path, &other[i], &e), WEFT_EINVAL);
        assert_non_null(strstr(e.text, "was measured with"));
        weft_str_clear(&theirs);
        assert_true(weft_tuned_path(&theirs, folder, &other[i]));
        assert_string_not_equal(mine.p, theirs.p);
    }
    weft_str_free(&mine);
    weft_str_free(&theirs);
    strcpy(t.version, "0.0.1");
    assert_int_equal(weft_tuned_write(&t, path, &e), WEFT_OK);
    assert_int_equal(weft_tuned_read(&back, path, &some_key, &e), WEFT_ESUPPORT);
    assert_non_null(strstr(e.text, "0.0.1"));
    static const char unlike[] = "{\"version\": \"9.9\", \"what\": \"that one does not know\"}";
    assert_int_equal(weft_file_write(path, unlike, sizeof unlike - 1, &e), WEFT_OK);
    assert_int_equal(weft_tuned_read(&back, path, &some_key, &e), WEFT_ESUPPORT);
}

/* Every beginning of the file, and the file with each byte changed to some others: refused, or a table whose numbers are in range
 * (fuzz_tuned.c checks them all). */
static void test_damage(void **state) {
    (void)state;
    weft_error e;
    weft_tuned t = example(&some_key);
    static weft_tuned back;
    char *text = text_of(&t);
    size_t n = strlen(text);
    assert_int_equal(weft_tuned_parse(&back, text, n, &e), WEFT_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(weft_tuned_parse(&back, text, i, &e), WEFT_EFORMAT);
        assert_true(e.text[0]);
    }
    for (size_t i = 0; i < n; i++)
        for (const char *c = "\"9-}n\xff"; *c; c++) {
            char was = text[i];
            text[i] = *c;
            if (weft_tuned_parse(&back, text, n, &e) == WEFT_OK) {
                assert_true(back.pass_ns[1] >= 1 && back.link_ns >= 0 && back.n_depths == WEFT_TUNED_DEPTHS);
                for (int k = 0; k < WEFT_MAX_DEPTH; k++)
                    assert_true(back.accepted[0].share[k] >= 0 && back.accepted[0].share[k] <= 1);
            }
            text[i] = was;
        }
    weft_free(text);
}

/* A time about `times` times that of one row; 0: none. Beside the limits to the last digit, or anywhere. */
static double some_time(uint64_t *seed, double one, double times) {
    uint64_t k = weft_hash(seed, sizeof *seed, 1);
    (*seed)++;
    double nudge = (double)(int)(k % 7) - 3;
    return k % 11 == 0 ? 0 : k % 3 == 0 ? one * times * (double)(k % 1000) / 500 : one * times * (1 + nudge * 1e-10) + nudge * 0.1;
}

/* Whatever was measured is, once it has been limited, written and read again, and the same as long as nine digits hold it. */
static void test_limits(void **state) {
    (void)state;
    static weft_tuned t, back;
    uint64_t seed = 1;
    for (int i = 0; i < 4000; i++) {
        weft_error e;
        double scale = 0.25;
        for (int k = i % 42; k > 0; k--) scale *= 2; /* to 5e11 */
        t = example(&some_key);
        t.pass_ns[1] = i ? scale * (1 + (double)(weft_hash(&i, sizeof i, 2) % 100000) * 1e-5) : 123456789.6;
        for (int r = 2; r <= WEFT_TUNED_ROWS; r++) t.pass_ns[r] = some_time(&seed, t.pass_ns[1], r % 2 ? 64 : 0.25);
        t.link_ns = some_time(&seed, t.pass_ns[1], 64);
        if (!i) t.pass_ns[2] = 30864197.4;
        weft_tuned_limit(&t);
        char *text = text_of(&t);
        if (weft_tuned_parse(&back, text, strlen(text), &e) != WEFT_OK) fail_msg("%d: %s in %s", i, e.text, text);
        for (int r = 1; r <= WEFT_TUNED_ROWS; r++) {
            bool exact = t.pass_ns[1] < 1e9 && t.pass_ns[r] < 1e9;
            assert_true(fabs(back.pass_ns[r] - t.pass_ns[r]) <= (exact ? 0 : 1e-8 * t.pass_ns[r]));
        }
        weft_free(text);
    }
}

/* The first `from` of the text becomes `to`. */
static void refuse(const char *from, const char *to, const char *word) {
    weft_error e;
    weft_tuned t = example(&some_key);
    static weft_tuned back;
    char *text = text_of(&t), *at = strstr(text, from);
    weft_str changed = {0};
    assert_non_null(at);
    assert_true(weft_str_add(&changed, text, (size_t)(at - text)) && weft_str_addz(&changed, to) &&
                weft_str_addz(&changed, at + strlen(from)));
    if (weft_tuned_parse(&back, changed.p, changed.n, &e) != WEFT_EFORMAT) fail_msg("accepted: %s for %s", to, from);
    if (!strstr(e.text, word)) fail_msg("'%s' does not say '%s'", e.text, word);
    weft_str_free(&changed);
    weft_free(text);
}

static void test_values_out_of_range(void **state) {
    (void)state;
    refuse("\"pass_ns\":[1125", "\"pass_ns\":[0", "pass_ns");
    refuse("\"pass_ns\":[1125", "\"pass_ns\":[null", "the pass of one row");
    refuse("\"pass_ns\":[1125", "\"pass_ns\":[1e300", "pass_ns");
    refuse("\"pass_ns\":[1125", "\"pass_ns\":[NaN", "pass_ns");
    refuse("\"pass_ns\":[1125", "\"pass_ns\":[1,1125", "pass_ns");
    refuse("\"pass_ns\":[1125,1250", "\"pass_ns\":[1125,80000", "too far");
    refuse("\"pass_ns\":[1125,1250", "\"pass_ns\":[1125,200", "too far");
    refuse("\"link_ns\":250", "\"link_ns\":80000", "too far");
    refuse("\"link_ns\":250", "\"link_ns\":-1", "link_ns");
    refuse("\"link_ns\":250", "\"link_ns\":Infinity", "link_ns");
    refuse("\"link_ns\"", "\"link\"", "missing");
    refuse("{\"model\":[0.75", "{\"model\":[0", "accepted.model");
    refuse("{\"model\":[0.75", "{\"model\":[1.01", "accepted.model");
    refuse("0.875]", "-0.1]", "sureness");
    refuse("\"threads\":3", "\"threads\":0", "threads");
    refuse("\"threads\":3", "\"threads\":99999999999999999999", "threads");
    refuse("\"rounds\":5", "\"rounds\":5.5", "rounds");
    refuse("\"date\":1700000000", "\"date\":-1", "date");
    refuse("\"source\":\"ff", "\"source\":\"FF", "source");
    refuse("\"source\":\"ff", "\"source\":\"f", "source");
    refuse("\"kv\":\"bf16\"", "\"kv\":\"a very long name of a type\"", "kv");
    refuse("\"kv\":\"bf16\"", "\"kv\":\"bf\\u000016\"", "NUL");
    refuse("\"precise\":false", "\"precise\":0", "precise");
    refuse("\"depth\":3", "\"depth\":4", "depths");
    refuse("\"depth\":\"auto\"", "\"depth\":\"automatic\"", "depth");
    refuse("\"ratio_least\":0.5", "\"ratio_least\":1.3", "ratio_least");
    refuse("\"tokens_per_pass\":1.75", "\"tokens_per_pass\":9.5", "tokens_per_pass");
}

/* ---- the engine ---------------------------------------------------------------------------------------------------------- */

typedef struct warnings {
    int n;
    char text[1024];
} warnings;
static void take(void *ctx, weft_log_level level, const char *line) {
    warnings *w = ctx;
    if (level != WEFT_LOG_WARN) return;
    w->n++;
    snprintf(w->text, sizeof w->text, "%s", line);
}

static weft_engine *open_engine(const char *cache, warnings *w) {
    weft_engine *g = NULL;
    weft_error e;
    weft_config c = {.model = MODEL, .threads = 1, .context = 256, .max_depth = -1, .cache_dir = cache};
    *w = (warnings){0};
    weft_log_to(take, w, WEFT_LOG_WARN);
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
    weft_log_to(NULL, NULL, WEFT_LOG_WARN);
    return g;
}

static void answer(weft_engine *g, int32_t ids[24]) {
    static const int32_t prompt[] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
    weft_request_desc d = {.prompt = prompt, .n_prompt = 10, .max_tokens = 24, .depth = WEFT_DEPTH_AUTO, .ignore_end = true};
    weft_request *r = NULL;
    weft_error e;
    const weft_event *events;
    size_t n;
    if (weft_submit(g, &d, &r, &e) != WEFT_OK) fail_msg("%s", e.text);
    while (weft_run_step(g, &events, &n)) assert_null(weft_engine_check(g));
    const int32_t *all = weft_request_ids(r, &n);
    assert_int_equal(n, 34);
    memcpy(ids, all + 10, 24 * sizeof *ids);
    weft_request_close(r);
}

static void test_engine_begins_with_it(void **state) {
    (void)state;
    warnings w;
    weft_error e;
    int32_t without[24], with[24];
    weft_engine *g = open_engine(folder, &w);
    assert_int_equal(w.n, 0);
    assert_true(g->costs.pass_ns[1] == 0);
    assert_true(weft_starts_with(g->tuned_path.p, folder));
    answer(g, without);
    weft_tuned t = example(&g->tuned_for);
    assert_int_equal(weft_tuned_write(&t, g->tuned_path.p, &e), WEFT_OK);
    char *path = weft_strdup(g->tuned_path.p);
    weft_engine_close(g);

    g = open_engine(folder, &w);
    assert_int_equal(w.n, 0);
    assert_true(g->costs.pass_ns[1] == 1125 && g->costs.link_ns == 250);
    assert_true(g->accepted[WEFT_MODE_THINKING][WEFT_DRAFTER_MODEL].share[1] == 0.625f);
    weft_request *r = NULL;
    assert_int_equal(weft_submit(g, &(weft_request_desc){.prompt = without, .n_prompt = 1, .max_tokens = 1}, &r, &e), WEFT_OK);
    assert_true(r->accepted[WEFT_MODE_TEXT][WEFT_DRAFTER_MODEL].share[1] == 0.625f);
    weft_request_close(r);
    answer(g, with);
    assert_memory_equal(without, with, sizeof with);
    assert_true(g->costs.pass_ns[1] != 1125); /* measurements move on from it */
    weft_engine_close(g);

    g = open_engine("", &w); /* nothing is read */
    assert_true(g->costs.pass_ns[1] == 0 && g->tuned_path.n == 0);
    weft_engine_close(g);

    char *text;
    size_t n;
    assert_int_equal(weft_file_read(path, 1 << 20, &text, &n, &e), WEFT_OK);
    text[n / 2] = '\x01';
    assert_int_equal(weft_file_write(path, text, n, &e), WEFT_OK);
    weft_free(text);
    g = open_engine(folder, &w);
    assert_int_equal(w.n, 1);
    assert_non_null(strstr(w.text, "weft tune --retune"));
    assert_true(g->costs.pass_ns[1] == 0);
    answer(g, with);
    assert_memory_equal(without, with, sizeof with);
    t.key.threads = 9; /* a table of another machine under this name */
    assert_int_equal(weft_tuned_write(&t, path, &e), WEFT_OK);
    weft_engine_close(g);
    g = open_engine(folder, &w);
    assert_int_equal(w.n, 1);
    assert_non_null(strstr(w.text, "another number of threads"));
    weft_engine_close(g);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* no file at all */
    g = open_engine(folder, &w);
    assert_int_equal(w.n, 1);
    weft_engine_close(g);
    weft_free(path);
}

static void test_names(void **state) {
    (void)state;
    char name[64], label[WEFT_LABEL + 1], long_name[200];
    memset(name, 'x', sizeof name);
    weft_cpu_name(name);
    assert_non_null(memchr(name, 0, sizeof name));
    assert_true(name[0] > ' ' && name[strlen(name) - 1] > ' ');
    for (const char *p = name; *p; p++) assert_true(*p >= ' ' && *p <= '~');
    weft_cache_label(label, "../a b\xff.c");
    assert_string_equal(label, "_._a_b_.c");
    weft_cache_label(label, "");
    assert_string_equal(label, "model");
    memset(long_name, 'y', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    weft_cache_label(label, long_name);
    assert_int_equal(strlen(label), WEFT_LABEL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_written_as_read),
                                       cmocka_unit_test(test_another_key),
                                       cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_values_out_of_range),
                                       cmocka_unit_test(test_engine_begins_with_it),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* test_place.c: a request's place in the caches: pages of layers that see all keys, and pages of a sliding window that come and go.
 * No model runs: passes are what the engine does to the tables, and pages carry marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"

static uint64_t seed = 5;
static int below(int n) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (int)(seed * 0x2545f4914f6cdd1dull >> 33) % n;
}

enum { REQUESTS = 3, CONTEXT = 2000, CHUNK = 90, DEPTH = 4 };

static int least(int a, int b) {
    return a < b ? a : b;
}
static int pages_of(int tokens) {
    return (tokens + WEFT_PAGE_ROWS - 1) / WEFT_PAGE_ROWS;
}

/* An engine of tables: a layer of each kind, window 0: only one that sees all. */
static weft_engine *open_tables(int window) {
    weft_error e = {0};
    weft_engine *g = weft_calloc(1, sizeof *g);
    g->requests = weft_calloc(REQUESTS, sizeof *g->requests);
    g->window = window;
    int each = least(weft_place_window_pages(window, CHUNK), pages_of(CONTEXT));
    g->plan = (weft_plan){.max_rows = CHUNK,
                          .max_spans = REQUESTS,
                          .max_draft = DEPTH,
                          .n_slots = REQUESTS,
                          .n_pages = {pages_of(CONTEXT) + REQUESTS - 1, window ? REQUESTS * each : 0}};
    assert_int_equal(weft_dev_open(&g->dev, &(weft_dev_config){.threads = 1, .isa = "reference", .kv = "bf16"}, &e), WEFT_OK);
    assert_int_equal(weft_kv_layer(g->dev, 1, 2, WEFT_PAGES_ALL), 0);
    if (window) assert_int_equal(weft_kv_layer(g->dev, 1, 2, WEFT_PAGES_WINDOW), 1);
    assert_int_equal(weft_dev_plan(g->dev, &g->plan, &e), WEFT_OK);
    for (int k = 0; k < WEFT_PAGE_KINDS; k++)
        assert_int_equal(weft_index_pool_open(&g->pages[k], g->plan.n_pages[k], "pages", &e), WEFT_OK);
    assert_int_equal(weft_index_pool_open(&g->slots, g->plan.n_slots, "states", &e), WEFT_OK);
    return g;
}
static void close_tables(weft_engine *g) {
    assert_null(weft_engine_check(g));
    while (g->n_requests) weft_request_close(g->requests[0]);
    for (int k = 0; k < WEFT_PAGE_KINDS; k++) {
        assert_int_equal(g->pages[k].n_free, g->pages[k].n); /* everything came back */
        weft_index_pool_close(&g->pages[k]);
    }
    assert_int_equal(g->slots.n_free, g->slots.n);
    weft_index_pool_close(&g->slots);
    weft_dev_close(g->dev);
    weft_free(g->requests);
    weft_free(g);
}

static weft_request *add(weft_engine *g, int n_prompt, int max_tokens) {
    weft_error e = {0};
    weft_request *r = weft_calloc(1, sizeof *r);
    r->engine = g;
    r->ids.n = r->n_prompt = (size_t)n_prompt;
    r->max_tokens = (size_t)max_tokens;
    g->requests[g->n_requests++] = r;
    weft_status s = weft_place_take(r, (size_t)(n_prompt + max_tokens), &e);
    if (s == WEFT_OK) return r;
    assert_int_equal(s, WEFT_EBUSY);
    weft_request_close(r);
    return NULL;
}

/* A page's mark: its request and place; 0 when fresh. */
static uint32_t mark_io(weft_engine *g, int page, uint32_t mark, bool read) {
    uint8_t rows[WEFT_PAGE_ROWS * 8];
    weft_error e = {0};
    assert_int_equal(weft_page_bytes(g->dev, WEFT_PAGES_WINDOW, WEFT_PAGE_ROWS), sizeof rows);
    for (size_t i = 0; i < sizeof rows; i += sizeof mark) memcpy(rows + i, &mark, sizeof mark);
    assert_int_equal(weft_page_io(g->dev, WEFT_PAGES_WINDOW, page, WEFT_PAGE_ROWS, rows, read, &e), WEFT_OK);
    memcpy(&mark, rows, sizeof mark);
    for (size_t i = 0; i < sizeof rows; i += sizeof mark) assert_memory_equal(rows + i, &mark, sizeof mark);
    return mark;
}

/* What every pass does: pages for its rows, zeroed when new, and kept for as long as somebody sees them. */
static void pass(weft_request *r, uint32_t id, int rows, int done) {
    weft_engine *g = r->engine;
    int old = r->window_to, first = r->done > g->window + 1 ? r->done - g->window - 1 : 0;
    weft_place_reach(r, rows);
    weft_place_reach(r, rows); /* nothing more */
    weft_span s = weft_place_span(r, 0, rows, 0);
    for (int p = first / WEFT_PAGE_ROWS; g->window && p <= (r->done + rows - 1) / WEFT_PAGE_ROWS; p++) {
        int page = s.pages[WEFT_PAGES_WINDOW][p];
        assert_true(p < s.n_pages[WEFT_PAGES_WINDOW] && page >= 0);
        assert_int_equal(mark_io(g, page, 0, true), p < old ? id << 16 | (uint32_t)p : 0);
        mark_io(g, page, id << 16 | (uint32_t)p, false);
    }
    r->done = r->stored = done;
    weft_place_release(r);
}

/* One step of one request, as step.c makes them. False: it is over. */
static bool step(weft_request *r, uint32_t id) {
    int left = (int)r->ids.n - r->done;
    if (r->phase == WEFT_PROMPT) {
        int rows = least(1 + below(CHUNK), left);
        pass(r, id, rows, r->done + rows);
        if (rows < left) return true;
        r->phase = WEFT_DECODE;
        r->ids.n++;
    } else {
        int drafts = least(below(DEPTH + 1), (int)(r->n_prompt + r->max_tokens - r->ids.n) - 1), accepted = below(drafts + 1);
        pass(r, id, 1 + drafts, r->done + 1 + accepted);
        r->ids.n += 1 + (size_t)accepted;
    }
    return r->ids.n < r->n_prompt + r->max_tokens;
}

static void test_windows(void **state) {
    (void)state;
    static const int windows[] = {0, 1, 2, 61, 62, 63, 64, 65, 512, 1024, 5000};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        weft_engine *g = open_tables(windows[w]);
        uint32_t id[REQUESTS], next = 1;
        for (int round = 0; round < 2000; round++) {
            if (g->n_requests < REQUESTS) {
                int prompt = 1 + below(below(4) ? 300 : 1500), tokens = 1 + below(400);
                if (add(g, prompt, tokens)) id[g->n_requests - 1] = next++;
            }
            int i = below(g->n_requests);
            weft_request *r = g->requests[i];
            bool over = !step(r, id[i]) || below(200) == 0; /* or given up */
            const char *broken = weft_engine_check(g);
            if (broken) fail_msg("window %d: %s", windows[w], broken);
            if (!over) continue;
            weft_request_close(r);
            for (int j = i; j < g->n_requests; j++) id[j] = id[j + 1];
        }
        assert_true(next > 10);
        close_tables(g);
    }
}

/* Never fewer pages than positions need, and no more than one too many. */
static void test_enough_pages(void **state) {
    (void)state;
    for (int window = 1; window < 200; window += 3)
        for (int rows = 1; rows < 200; rows += 7) {
            int most = 0;
            for (int done = 0; done < 500; done++) {
                int first = done > window + 1 ? done - window - 1 : 0;
                int n = (done + rows - 1) / WEFT_PAGE_ROWS - first / WEFT_PAGE_ROWS + 1;
                most = n > most ? n : most;
            }
            assert_int_equal(weft_place_window_pages(window, rows), most);
        }
}

/* A skipped prompt has the pages that are seen, and they are empty. */
static void test_skip(void **state) {
    (void)state;
    weft_error e = {0};
    static const int skips[] = {0, 1, 63, 64, 99, 100, 101, 165, 166, 1000, 1499};
    for (size_t i = 0; i < sizeof skips / sizeof *skips; i++) {
        weft_engine *g = open_tables(100);
        weft_request *other = add(g, 200, 10), *r = add(g, 1500, 20);
        weft_place_reach(other, 90);
        assert_int_equal(weft_place_skip(r, 1500, &e), WEFT_EINVAL);
        assert_int_equal(weft_place_skip(r, skips[i], &e), WEFT_OK);
        assert_int_equal(r->done, skips[i]);
        assert_int_equal(r->window_to, r->window_from);
        assert_null(weft_engine_check(g));
        for (bool first = true; first || r->ids.n < 1520; first = false) {
            if (first) {
                int rows = least(CHUNK, 1500 - r->done);
                weft_place_reach(r, rows);
                for (int p = r->window_from; p < r->window_to; p++)
                    assert_int_equal(mark_io(g, r->pages[WEFT_PAGES_WINDOW][p], 0, true), 0);
                assert_true(r->window_from * WEFT_PAGE_ROWS <= (skips[i] > 101 ? skips[i] - 101 : 0));
                for (int p = r->window_from; p < r->window_to; p++)
                    mark_io(g, r->pages[WEFT_PAGES_WINDOW][p], 7u << 16 | (uint32_t)p, false);
            }
            step(r, 7);
            assert_null(weft_engine_check(g));
        }
        close_tables(g);
    }
}

/* The invariants are looked at. */
static void test_check(void **state) {
    (void)state;
    weft_engine *g = open_tables(100);
    weft_request *r = add(g, 500, 10);
    while (r->phase == WEFT_PROMPT) step(r, 1);
    assert_null(weft_engine_check(g));
    int *table = r->pages[WEFT_PAGES_WINDOW], first = r->window_from, page = table[first];
    assert_true(first > 0 && r->window_to > first + 1);
    table[first] = -1;
    assert_non_null(weft_engine_check(g));
    table[first] = page;
    table[first - 1] = page;
    assert_non_null(weft_engine_check(g));
    table[first - 1] = -1;
    r->window_from--;
    assert_non_null(weft_engine_check(g));
    r->window_from++;
    r->window_to--;
    assert_non_null(weft_engine_check(g));
    r->window_to++;
    g->pages[WEFT_PAGES_WINDOW].holders[page]++;
    assert_non_null(weft_engine_check(g));
    g->pages[WEFT_PAGES_WINDOW].holders[page]--;
    close_tables(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_enough_pages),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

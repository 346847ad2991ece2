/* test_ops_families.c: the operators that only some families use: activations, capped logits, routers with sigmoids and groups,
 * experts without a gate, tables on disk, views, heads that look at some tokens only. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpu.h"
#include "ops/ops.h"

#define U 0x1p-24

static uint64_t seed = 11;
static float random_float(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (float)((double)(uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32) * 0x1p-31 - 1);
}
static void fill(float *v, int n, float size) {
    for (int i = 0; i < n; i++) v[i] = size * random_float();
}
static void near_to(const char *what, int i, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound + 1e-37)) fail_msg("%s: element %d is %.9g, not %.9g (bound %.3g)", what, i, got, want, bound);
}

/* ---- a device, and steps of tokens 0..n-1 -------------------------------------------------------------------------------- */

typedef struct rows_of {
    const float *v;
    int64_t n, k;
} rows_of;
static weft_status read_row(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    const rows_of *r = ctx;
    (void)scale, (void)bias, (void)e;
    memcpy(values, r->v + (expert * r->n + row) * r->k, (size_t)r->k * sizeof(float));
    return WEFT_OK;
}
static weft_mat *mat(weft_dev *d, const float *v, int experts, int n, int k) {
    rows_of rows = {v, n, k};
    weft_mat *m = NULL;
    weft_error e;
    weft_mat_desc desc = {.dtype = WEFT_F32, .experts = experts, .n = n, .k = k, .name = "w", .read = read_row, .ctx = &rows};
    assert_int_equal(weft_mat_make(d, &desc, &m, &e), WEFT_OK);
    return m;
}
static weft_coef *coef(weft_dev *d, const float *v, int n) {
    weft_coef *c = NULL;
    weft_error e;
    assert_int_equal(weft_coef_make(d, v, n, &c, &e), WEFT_OK);
    return c;
}
static weft_dev *open_dev(int threads, bool precise) {
    weft_dev *d = NULL;
    weft_error e;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = threads, .precise = precise}, &e), WEFT_OK);
    return d;
}
enum { ROWS = 24 };
static void plan(weft_dev *d) {
    weft_error e;
    assert_int_equal(weft_dev_plan(d, &(weft_plan){.max_rows = ROWS, .max_spans = 1, .n_slots = 1}, &e), WEFT_OK);
}
static void begin(weft_dev *d, int n) {
    static int32_t tokens[ROWS];
    static weft_span span;
    static weft_step step;
    for (int i = 0; i < n; i++) tokens[i] = i;
    span = (weft_span){.certain = n, .slot_read = -1};
    step = (weft_step){.n_rows = n, .n_spans = 1, .tokens = tokens, .spans = &span};
    weft_begin(d, &step);
}
static void end_ok(weft_dev *d) {
    weft_error e;
    if (weft_end(d, &e) != WEFT_OK) fail_msg("%s", e.text);
}
static void read_into(weft_dev *d, const weft_buf *b, int row, float *dst) {
    weft_error e;
    assert_int_equal(weft_read(d, b, row, dst, &e), WEFT_OK);
}

/* ---- element by element -------------------------------------------------------------------------------------------------- */

static double exact(weft_activation act, double x) {
    if (act == WEFT_SILU) return x / (1 + exp(-x));
    if (act == WEFT_RELU2) return x > 0 ? x * x : 0;
    return x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x))); /* (1 + tanh u) / 2, without cancelling */
}

static void test_activations(void **state) {
    (void)state;
    enum { N = 7, K = 37 };
    float x[N * K], up[N * K], bias[K];
    fill(x, N * K, 8), fill(up, N * K, 2), fill(bias, K, 1);
    x[0] = 0, x[1] = -30, x[2] = 30, x[3] = 1e-4f;
    weft_dev *d = open_dev(2, false);
    weft_mat *tx = mat(d, x, 1, N, K), *tu = mat(d, up, 1, N, K);
    weft_coef *b = coef(d, bias, K);
    weft_buf *bx = weft_buf_make(d, NULL, 0, K), *bu = weft_buf_make(d, NULL, 0, K), *y = weft_buf_make(d, NULL, 0, K);
    plan(d);
    static const weft_activation acts[] = {WEFT_SILU, WEFT_GELU_TANH, WEFT_RELU2};
    for (int a = 0; a < 3; a++)
        for (int gated = 0; gated < 2; gated++) {
            begin(d, N);
            weft_embed(d, bx, tx, 1);
            weft_embed(d, bu, tu, 1);
            weft_activate(d, y, bx, gated ? bu : NULL, acts[a]);
            end_ok(d);
            for (int r = 0; r < N; r++) {
                float got[K];
                read_into(d, y, r, got);
                for (int i = 0; i < K; i++) {
                    double want = exact(acts[a], (double)x[r * K + i]) * (gated ? (double)up[r * K + i] : 1);
                    double size = fabs((double)x[r * K + i]),
                           spread = 40 + 8 * size + size * size * size; /* the exponent's rounding */
                    near_to("activation", i, got[i], want, spread * U * fabs(want) + 1e-30);
                }
            }
        }
    begin(d, N);
    weft_embed(d, y, tx, 3); /* scaled on the way */
    weft_bias(d, y, b);
    weft_scale(d, y, 0.5f);
    end_ok(d);
    for (int r = 0; r < N; r++) {
        float got[K];
        read_into(d, y, r, got);
        for (int i = 0; i < K; i++) assert_true(got[i] == (x[r * K + i] * 3.0f + bias[i]) * 0.5f);
    }
    weft_dev_close(d);
}

static void test_capped_logits(void **state) {
    (void)state;
    enum { N = 5, K = 8, V = 2100 }; /* three pieces of the vocabulary */
    static float x[N * K], head[V * K];
    static bool allowed[V];
    fill(x, N * K, 2), fill(head, V * K, 6);
    memset(allowed, 1, sizeof allowed);
    for (int precise = 0; precise < 2; precise++) {
        weft_dev *d = open_dev(2, precise);
        weft_mat *tx = mat(d, x, 1, N, K);
        weft_output output = {.w = mat(d, head, 1, V, K), .cap = 30};
        weft_buf *bx = weft_buf_make(d, NULL, 0, K), *y = weft_buf_make(d, NULL, N, V);
        weft_pick_layer(d, N, V);
        plan(d);
        const int rows[] = {4, 0, 2};
        const weft_pick rules[3] = {{.log_sum = true, .top = 5}, {.rule.sampler = {.temperature = 1, .seed = 7}}, {.top = 1}};
        weft_picked fused[3], late[3];
        weft_error e;
        begin(d, N);
        weft_embed(d, bx, tx, 1);
        weft_logits(d, y, &output, bx, rows, 3);
        weft_pick_tokens(d, &output, bx, rows, 3, rules, allowed);
        for (int i = 0; i < 3; i++) assert_int_equal(weft_read_pick(d, i, &fused[i], &e), WEFT_OK);
        weft_pick_logits(d, y, 3, rules, allowed);
        for (int i = 0; i < 3; i++) assert_int_equal(weft_read_pick(d, i, &late[i], &e), WEFT_OK);
        end_ok(d);
        for (int i = 0; i < 3; i++) {
            static float got[V];
            read_into(d, y, i, got);
            int best = 0;
            double total = 0;
            for (int v = 0; v < V; v++) {
                double sum = 0, size = 0;
                for (int k = 0; k < K; k++) {
                    double p = (double)x[rows[i] * K + k] * (double)head[v * K + k];
                    sum += p, size += fabs(p);
                }
                near_to("capped logit", v, got[v], 30 * tanh(sum / 30), 12 * U * (size + 30 * fabs(tanh(sum / 30))) + 4e-6);
                assert_true(fabsf(got[v]) <= 30);
                if (got[v] > got[best]) best = v;
                total += exp((double)got[v]);
            }
            assert_memory_equal(&fused[i], &late[i], offsetof(weft_picked, top_id)); /* the same from kept logits */
            if (i != 1) assert_int_equal(fused[i].id, best);
            if (i == 0) near_to("log sum", 0, fused[i].log_sum, log(total), 1e-5);
        }
        weft_dev_close(d);
    }
}

/* ---- mixtures ------------------------------------------------------------------------------------------------------------ */

static void test_sigmoid_router(void **state) {
    (void)state;
    enum { E = 8, K = 2 };
    /* The numbers of Nemotron's router: scores .9 .8 .3 .1, bias 0 -.5 .4 0, scale 2.5. */
    const double scores[2][E] = {{.9, .8, .3, .1, .01, .01, .01, .01}, {.9, .8, .3, .1, .6, .5, .35, .4}};
    const float bias[E] = {0, -.5f, .4f, 0}, each[E] = {2, 1, 1, 1, 1, 1, 1, 1};
    float logits[4 * E];
    for (int i = 0; i < 2 * E; i++) logits[i] = (float)log(scores[i / E][i % E] / (1 - scores[i / E][i % E]));
    for (int i = 0; i < E; i++) logits[2 * E + i] = i == 5 ? NAN : 0;
    for (int i = 0; i < E; i++) logits[3 * E + i] = -200; /* sigmoids that are all 0 */
    weft_dev *d = open_dev(1, false);
    weft_mat *t = mat(d, logits, 1, 4, E);
    weft_coef *b = coef(d, bias, E), *scale = coef(d, each, E);
    weft_buf *x = weft_buf_make(d, NULL, 0, E), *ids = weft_buf_make(d, NULL, 0, K), *w = weft_buf_make(d, NULL, 0, K);
    weft_moe_layer(d, E, K, 8, 8);
    plan(d);
    static const struct {
        int groups, top_groups;
        bool scaled;
        int row, id[K];
        double weight[K];
    } cases[] = {
        {1, 1, false, 0, {0, 2}, {1.875, 0.625}},
        {1, 1, true, 0, {0, 2}, {3.75, 0.625}},
        {1, 1, false, 1, {0, 2}, {1.875, 0.625}},
        {4, 1, false, 1, {0, 1}, {1.3235294, 1.1764706}}, /* pairs: .9 + .3, .7 + .1, .6 + .5, .35 + .4 */
        {4, 2, false, 1, {0, 4}, {1.5, 1.0}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        begin(d, 4);
        weft_embed(d, x, t, 1);
        weft_route(d, ids, w, x,
                   &(weft_router){.sigmoid = true,
                                  .bias = b,
                                  .groups = cases[c].groups,
                                  .top_groups = cases[c].top_groups,
                                  .renormalise = true,
                                  .scale = 2.5f,
                                  .expert_scale = cases[c].scaled ? scale : NULL});
        end_ok(d);
        float id[K], weight[K];
        read_into(d, ids, cases[c].row, id);
        read_into(d, w, cases[c].row, weight);
        for (int s = 0; s < K; s++) {
            assert_int_equal((int)id[s], cases[c].id[s]);
            near_to("weight", s, weight[s], cases[c].weight[s], 1e-6);
        }
        read_into(d, w, 2, weight); /* a router that gave NaN makes its row NaN */
        for (int s = 0; s < K; s++) assert_true(isnan(weight[s]));
        read_into(d, w, 3, weight);
        for (int s = 0; s < K; s++) assert_true(weight[s] == 0);
    }
    weft_error e;
    static const int bad[][2] = {{3, 1}, {4, 5}, {0, 1}, {8, 1}}; /* no divisor, too many, none, too few experts left */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(d, 3);
        weft_embed(d, x, t, 1);
        weft_route(d, ids, w, x, &(weft_router){.sigmoid = true, .groups = bad[i][0], .top_groups = bad[i][1], .scale = 1});
        assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
    }
    weft_dev_close(d);
}

/* Experts without a gate: bit for bit each one alone, added in slot order. */
static void test_experts_without_gate(void **state) {
    (void)state;
    enum { N = 19, E = 5, K = 2, COLS = 21, INNER = 13 };
    static float x[N * COLS], logits[N * E], up[E * INNER * COLS], down[E * COLS * INNER];
    fill(x, N * COLS, 1), fill(logits, N * E, 3), fill(up, E * INNER * COLS, 0.5f), fill(down, E * COLS * INNER, 0.5f);
    for (int threads = 1; threads <= 2; threads++) {
        weft_dev *d = open_dev(threads, false);
        weft_mat *tx = mat(d, x, 1, N, COLS), *tl = mat(d, logits, 1, N, E), *all_up = mat(d, up, E, INNER, COLS),
                 *all_down = mat(d, down, E, COLS, INNER), *up1[E], *down1[E];
        for (int i = 0; i < E; i++) {
            up1[i] = mat(d, up + i * INNER * COLS, 1, INNER, COLS);
            down1[i] = mat(d, down + i * COLS * INNER, 1, COLS, INNER);
        }
        weft_buf *h = weft_buf_make(d, NULL, 0, COLS), *router = weft_buf_make(d, NULL, 0, E),
                 *u = weft_buf_make(d, NULL, 0, INNER);
        weft_buf *ids = weft_buf_make(d, NULL, 0, K), *w = weft_buf_make(d, NULL, 0, K), *y = weft_buf_make(d, NULL, 0, COLS),
                 *one[E];
        for (int i = 0; i < E; i++) one[i] = weft_buf_make(d, NULL, 0, COLS);
        weft_moe_layer(d, E, K, INNER, COLS);
        plan(d);
        begin(d, N);
        weft_embed(d, h, tx, 1);
        weft_embed(d, router, tl, 1);
        weft_route(d, ids, w, router, &(weft_router){.groups = 1, .top_groups = 1, .renormalise = true, .scale = 1});
        weft_experts(d, y, h, ids, w, all_up, all_down, WEFT_RELU2);
        for (int i = 0; i < E; i++) {
            weft_linear(d, &u, (const weft_mat *[]){up1[i]}, 1, h);
            weft_activate(d, u, u, NULL, WEFT_RELU2);
            weft_linear(d, &one[i], (const weft_mat *[]){down1[i]}, 1, u);
        }
        end_ok(d);
        for (int r = 0; r < N; r++) {
            float id[K], weight[K], got[COLS], want[COLS] = {0}, part[COLS];
            read_into(d, ids, r, id), read_into(d, w, r, weight), read_into(d, y, r, got);
            for (int s = 0; s < K; s++) {
                read_into(d, one[(int)id[s]], r, part);
                for (int i = 0; i < COLS; i++) want[i] = want[i] + weight[s] * part[i];
            }
            assert_memory_equal(got, want, sizeof got);
        }
        weft_error e;
        begin(d, N); /* experts of the wrong kind for their activation */
        weft_embed(d, h, tx, 1);
        weft_experts(d, y, h, ids, w, all_up, all_down, WEFT_SILU);
        assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
        weft_dev_close(d);
    }
}

/* ---- tables and views ---------------------------------------------------------------------------------------------------- */

enum { TABLE_ROWS = 9, TABLE_COLS = 48 };
typedef struct disk {
    const float *v;
    int64_t broken; /* a row that cannot be read */
} disk;
static weft_status read_disk(void *ctx, int64_t row, float *dst, weft_error *e) {
    const disk *t = ctx;
    if (row == t->broken) return weft_fail(e, WEFT_EFORMAT, "row %d of the table is damaged", (int)row);
    memcpy(dst, t->v + row * TABLE_COLS, TABLE_COLS * sizeof *dst);
    return WEFT_OK;
}

static void test_tables_and_views(void **state) {
    (void)state;
    float v[TABLE_ROWS * TABLE_COLS], ones[TABLE_ROWS * 16];
    fill(v, TABLE_ROWS * TABLE_COLS, 1);
    for (int i = 0; i < TABLE_ROWS * 16; i++) ones[i] = 1;
    weft_dev *d = open_dev(2, false);
    disk on_disk = {v, -1};
    weft_table *t = NULL;
    weft_error e;
    assert_int_equal(
        weft_table_make(
            d, &(weft_table_desc){.n = TABLE_ROWS, .k = TABLE_COLS, .name = "table", .read = read_disk, .ctx = &on_disk}, &t, &e),
        WEFT_OK);
    weft_mat *one = mat(d, ones, 1, TABLE_ROWS, 16);
    weft_buf *all = weft_buf_make(d, "a", 0, TABLE_COLS), *y = weft_buf_make(d, "a", 0, 16), *small = weft_buf_make(d, NULL, 0, 8);
    const weft_buf *views[3];
    for (int i = 0; i < 3; i++) assert_non_null(views[i] = weft_buf_view(d, all, 16 * i, 16));
    plan(d);
    for (int i = 0; i < 3; i++) {
        begin(d, TABLE_ROWS);
        weft_lookup(d, all, t, 4);
        weft_embed(d, y, one, 1);
        weft_add(d, y, views[i]);
        end_ok(d);
        for (int r = 0; r < TABLE_ROWS; r++) {
            float got[16];
            read_into(d, y, r, got);
            for (int c = 0; c < 16; c++) assert_true(got[c] == 1 + 4 * v[r * TABLE_COLS + 16 * i + c]);
        }
    }
    on_disk.broken = 6; /* found while a step runs: the step says so, and only those with that token fail */
    begin(d, TABLE_ROWS);
    weft_lookup(d, all, t, 1);
    assert_int_equal(weft_end(d, &e), WEFT_EFORMAT);
    assert_string_equal(e.text, "row 6 of the table is damaged");
    begin(d, 6);
    weft_lookup(d, all, t, 1);
    end_ok(d);
    begin(d, TABLE_ROWS + 1); /* a token beyond the table */
    weft_lookup(d, all, t, 1);
    assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
    begin(d, 2);
    weft_lookup(d, small, t, 1);
    assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
    weft_dev_close(d);
}

/* ---- the ordered head ---------------------------------------------------------------------------------------------------- */

static void test_ordered_head(void **state) {
    (void)state;
    enum { N = 6, K = 24, C = 12, EACH = 20, V = C * EACH, TOP = 3 };
    static float x[N * K], centroids[C * K], head[V * K], sorted[V * K], order[V];
    fill(x, N * K, 1), fill(centroids, C * K, 1), fill(head, V * K, 1);
    for (int i = 0; i < V; i++) order[i] = (float)(i * 101 % V); /* 101 and 240 have no common divisor */
    for (int i = 0; i < V; i++) memcpy(sorted + i * K, head + (int)order[i] * K, K * sizeof *sorted);
    for (int precise = 0; precise < 2; precise++) {
        weft_dev *d = open_dev(2, precise);
        weft_ordered_output output = {
            .centroids = mat(d, centroids, 1, C, K), .w = mat(d, sorted, C, EACH, K), .order = coef(d, order, V)};
        output.top = TOP;
        weft_output dense = {.w = mat(d, head, 1, V, K)};
        weft_mat *tx = mat(d, x, 1, N, K);
        weft_buf *bx = weft_buf_make(d, NULL, 0, K), *scores = weft_buf_make(d, NULL, 0, C), *y = weft_buf_make(d, NULL, N, V),
                 *all = weft_buf_make(d, NULL, N, V);
        weft_pick_layer(d, N, V);
        plan(d);
        const int rows[] = {5, 1, 0, 3};
        begin(d, N);
        weft_embed(d, bx, tx, 1);
        weft_ordered_logits(d, y, &output, scores, bx, rows, 4);
        weft_logits(d, all, &dense, bx, rows, 4);
        end_ok(d);
        for (int r = 0; r < 4; r++) {
            float got[V], want[V], least = INFINITY;
            double score[C];
            bool seen[V] = {false};
            read_into(d, y, r, got), read_into(d, all, r, want);
            for (int c = 0; c < C; c++) {
                score[c] = 0;
                for (int k = 0; k < K; k++) score[c] += (double)x[rows[r] * K + k] * (double)centroids[c * K + k];
            }
            for (int t = 0; t < TOP; t++) {
                int best = 0;
                for (int c = 1; c < C; c++)
                    if (score[c] > score[best]) best = c;
                score[best] = -INFINITY;
                for (int i = 0; i < EACH; i++) {
                    int id = (int)order[best * EACH + i];
                    seen[id] = true;
                    least = want[id] < least ? want[id] : least;
                }
            }
            for (int i = 0; i < V; i++) assert_true(got[i] == (seen[i] ? want[i] : least - 1)); /* the dense head's own bits */
        }
        weft_error e;
        output.top = C + 1;
        begin(d, N);
        weft_embed(d, bx, tx, 1);
        weft_ordered_logits(d, y, &output, scores, bx, rows, 4);
        assert_int_equal(weft_end(d, &e), WEFT_EINVAL);
        weft_dev_close(d);
    }
}

int main(void) {
    weft_fpu mode = weft_fpu_enter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations),          cmocka_unit_test(test_capped_logits),    cmocka_unit_test(test_sigmoid_router),
        cmocka_unit_test(test_experts_without_gate), cmocka_unit_test(test_tables_and_views), cmocka_unit_test(test_ordered_head),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_fpu_leave(mode);
    return failed;
}

/* test_attend.c: attention over keys and values in tiles, of every type.
 *
 * The kernels of every table that this processor can run: against the same chains in the C library's fmaf(), bit for bit; nothing
 * outside their output is written, and what must not be read is NaN. Then the operator: a row's result is the same bytes however
 * the work is cut, by rows, threads, heads or chunks; and near the exact result. Under a window what lies below it is gone: pages
 * are missing, memory is NaN. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpu.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/kv.h"

static uint64_t seed = 3;
static uint32_t bits32(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32);
}
static int below(int n) {
    return (int)(bits32() % (uint32_t)n);
}
static float random_float(void) {
    return (float)((double)bits32() * 0x1p-31 - 1);
}
static void same_bytes(const char *what, int at, const void *a, const void *b, size_t n) {
    if (memcmp(a, b, n)) fail_msg("%s at %d: bytes differ", what, at);
}
static void *room(size_t n) {
    void *p = calloc(n ? n : 1, 1);
    assert_non_null(p);
    return p;
}

static const char *const type_names[KV_TYPES] = {[KV_F32] = "f32", [KV_BF16] = "bf16", [KV_INT8] = "int8"};
static const kv_type tiled[] = {KV_BF16, KV_INT8};

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

static const weft_isa *isas[8];
static int n_isas;

/* What a row is kept as: elements, and the scale that they are multiplied with. */
static float kept(kv_type t, const float *x, int dim, float *out) {
    float most = 0, scale = 0;
    bool finite = true;
    for (int i = 0; i < dim; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        finite = finite && isfinite(x[i]);
    }
    if (!finite)
        scale = NAN;
    else if (most >= 0x1p-100f)
        scale = most / 127;
    for (int i = 0; i < dim; i++) {
        uint32_t b;
        memcpy(&b, x + i, 4);
        if (t == KV_INT8)
            out[i] = scale > 0 ? rintf(x[i] * (127 / most)) : 0;
        else if (x[i] == x[i]) { /* to nearest, ties to even */
            b = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000u;
            memcpy(out + i, &b, 4);
        } else
            out[i] = NAN;
    }
    return t == KV_INT8 ? scale : 1;
}
/* Element d of position `row` in a page, read by the layout's own words. */
static float element_of(kv_type t, const uint8_t *page, bool values, int dim, int row, int d) {
    size_t at = values ? v_at(t, dim, row, d) : k_at(t, dim, row, d) + (size_t)(d % kv_each(t) * kv_element_bytes(t));
    if (t == KV_INT8) return (float)(int8_t)page[at];
    uint32_t b = (uint32_t)page[at] << 16 | (uint32_t)page[at + 1] << 24;
    float x;
    memcpy(&x, &b, 4);
    return x;
}
static float scale_of(kv_type t, const uint8_t *page, bool values, int dim, int row) {
    float s = 1;
    if (t == KV_INT8) memcpy(&s, page + (values ? v_scales(dim) : k_scales(dim)) + (size_t)row * 4, 4);
    return s;
}
static bool equal(float a, float b) {
    return a == b || (isnan(a) && isnan(b));
}

static int random_dim(int round) {
    static const int usual[] = {16, 32, 64, 80, 96, 128, 256, 512};
    return round % 3 == 0 ? usual[round / 3 % 8] : 2 * (1 + below(150));
}

static void test_store(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        kv_type t = tiled[round % 2];
        int dim = random_dim(round);
        size_t kb = k_bytes(t, dim), vb = v_bytes(t, dim);
        float *x = room((size_t)dim * WEFT_PAGE_ROWS * 4), *want = room((size_t)dim * 4);
        for (int i = 0; i < dim * WEFT_PAGE_ROWS; i++) x[i] = random_float() * (below(9) ? 1 : ldexpf(1, below(40) - 20));
        for (int i = 0; i < dim; i++) {
            x[i] = 0;                                                  /* row 0: all zero */
            x[dim + i] = ldexpf(random_float(), -110);                 /* row 1: nearly */
            x[2 * dim + i] = ldexpf((float)(1 + 2 * below(128)), -20); /* row 2: ties, as BF16 has 8 bits */
        }
        x[3 * dim + below(dim)] = NAN;
        x[4 * dim + below(dim)] = INFINITY;
        uint8_t *first[2] = {NULL, NULL};
        for (int i = 0; i < n_isas; i++) {
            const weft_kv_kernels *kn = &isas[i]->attend->kv[t];
            uint8_t *k = room(kb), *v = room(vb);
            for (int n = 0; n < 2 * WEFT_PAGE_ROWS; n++) { /* in any order, and again over what is there */
                int row = below(WEFT_PAGE_ROWS);
                if (n >= WEFT_PAGE_ROWS) row = n - WEFT_PAGE_ROWS;
                kn->store_k(k, row, x + row * dim, dim);
                kn->store_v(v, row, x + row * dim, dim);
            }
            if (first[0]) {
                same_bytes("keys of two tables", i, first[0], k, kb);
                same_bytes("values of two tables", i, first[1], v, vb);
                free(k), free(v);
                continue;
            }
            first[0] = k, first[1] = v;
            size_t zeros = 0, expected = 0, elements = (size_t)kv_element_bytes(t);
            for (int row = 0; row < WEFT_PAGE_ROWS; row++) {
                float scale = kept(t, x + row * dim, dim, want);
                assert_true(equal(scale_of(t, k, false, dim, row), scale) && equal(scale_of(t, v, true, dim, row), scale));
                for (int d = 0; d < dim; d++) {
                    assert_true(equal(element_of(t, k, false, dim, row, d), want[d]));
                    assert_true(equal(element_of(t, v, true, dim, row, d), want[d]));
                }
            }
            /* Padding stays zero: no more bytes than the elements' are written. */
            uint8_t *full = room(kb);
            float ones[512];
            for (int d = 0; d < dim; d++) ones[d] = 1 + 0x1p-7f; /* no byte of it is zero, in neither type */
            for (int row = 0; row < WEFT_PAGE_ROWS; row++) kn->store_k(full, row, ones, dim);
            for (size_t b = 0; b < KV_TILES * k_stride(t, dim); b++) zeros += full[b] != 0;
            expected = (size_t)dim * WEFT_PAGE_ROWS * elements;
            assert_int_equal(zeros, expected);
            free(full);
        }
        free(first[0]), free(first[1]), free(x), free(want);
    }
}

enum { GUARD = 16 };
static const uint32_t canary = 0x7fa5a5a5;
static float *guarded(int n) {
    float *v = room((size_t)(n + 2 * GUARD) * 4);
    for (int i = 0; i < n + 2 * GUARD; i++) memcpy(v + i, &canary, 4);
    return v + GUARD;
}
static bool untouched(const float *v) {
    return memcmp(v, &canary, 4) == 0;
}
static void drop(float *v, int n) {
    for (int i = 1; i <= GUARD; i++) assert_true(untouched(v - i) && untouched(v + n + i - 1));
    free(v - GUARD);
}
static float *page_of(kv_type t, int dim, uint8_t **k, uint8_t **v) {
    float *x = room((size_t)dim * WEFT_PAGE_ROWS * 4);
    for (int i = 0; i < dim * WEFT_PAGE_ROWS; i++) x[i] = random_float();
    *k = room(k_bytes(t, dim)), *v = room(v_bytes(t, dim));
    for (int row = 0; row < WEFT_PAGE_ROWS; row++) {
        weft_attend_kernels_base.kv[t].store_k(*k, row, x + row * dim, dim);
        weft_attend_kernels_base.kv[t].store_v(*v, row, x + row * dim, dim);
    }
    return x;
}

static void test_scores(void **state) {
    (void)state;
    for (int round = 0; round < 64; round++) {
        kv_type t = tiled[round % 2];
        int dim = random_dim(round), rows = 1 + below(ATTEND_GROUP), keys = 1 + below(WEFT_PAGE_ROWS), ld = ROUND16(dim);
        int lds = WEFT_PAGE_ROWS + below(40);
        uint8_t *k, *v;
        float *x = page_of(t, dim, &k, &v), *q = room((size_t)(ld * ATTEND_GROUP) * 4);
        for (int d = 0; d < dim; d++)
            for (int r = 0; r < ATTEND_GROUP; r++) q[d * ATTEND_GROUP + r] = r < rows ? random_float() : NAN;
        float bad[512];
        for (int d = 0; d < dim; d++) bad[d] = NAN;
        for (int row = keys; row < WEFT_PAGE_ROWS; row++) weft_attend_kernels_base.kv[t].store_k(k, row, bad, dim);
        for (int i = 0; i < n_isas; i++) {
            int n = (rows - 1) * lds + WEFT_PAGE_ROWS;
            float *s = guarded(n);
            isas[i]->attend->kv[t].scores(s, (size_t)lds, q, rows, k, keys, dim, k);
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < lds && (r + 1 < rows || j < WEFT_PAGE_ROWS); j++) {
                    if (j >= WEFT_PAGE_ROWS) assert_true(untouched(s + r * lds + j));
                    if (j >= keys) continue;
                    float want = 0;
                    for (int d = 0; d < dim; d++) want = fmaf(q[d * ATTEND_GROUP + r], element_of(t, k, false, dim, j, d), want);
                    if (t == KV_INT8) want *= scale_of(t, k, false, dim, j);
                    if (s[r * lds + j] != want)
                        fail_msg("%s, %s: score of query %d of %d and key %d over %d dimensions is %a, not %a", isas[i]->name,
                                 type_names[t], r, rows, j, dim, (double)s[r * lds + j], (double)want);
                }
            drop(s, n);
        }
        free(x), free(q), free(k), free(v);
    }
}

static void test_values(void **state) {
    (void)state;
    for (int round = 0; round < 96; round++) {
        kv_type t = tiled[round % 2];
        int dim = random_dim(round), rows = 1 + below(ATTEND_GROUP), ld = ROUND16(dim), ldo = ld + 16 * below(3);
        int from = round % 5 ? 0 : below(WEFT_PAGE_ROWS), to = from + below(WEFT_PAGE_ROWS + 1 - from), n = (rows - 1) * ldo + ld;
        const int ldp = ATTEND_P;
        uint8_t *k, *v;
        float *x = page_of(t, dim, &k, &v), *p = room((size_t)(ATTEND_GROUP * ldp) * 4), *o0 = room((size_t)n * 4), bad[512];
        for (int i = 0; i < n; i++) o0[i] = random_float();
        for (int d = 0; d < dim; d++) bad[d] = NAN;
        for (int j = 0; j < WEFT_PAGE_ROWS; j++) {
            bool used = j >= from && j < to;
            for (int r = 0; r < ATTEND_GROUP; r++) p[r * ldp + j] = used && r < rows ? fabsf(random_float()) : NAN;
            if (!used) weft_attend_kernels_base.kv[t].store_v(v, j, bad, dim); /* 0 x stale NaN is NaN: must not be multiplied */
        }
        for (int i = 0; i < n_isas; i++) {
            float *o = guarded(n);
            for (int r = 0; r < rows; r++) memcpy(o + r * ldo, o0 + r * ldo, (size_t)ld * 4);
            isas[i]->attend->kv[t].values(o, (size_t)ldo, p, (size_t)ldp, rows, v, from, to, dim, v);
            for (int r = 0; r < rows; r++)
                for (int d = 0; d < ldo && (r + 1 < rows || d < ld); d++) {
                    if (d >= ld) assert_true(untouched(o + r * ldo + d));
                    if (d >= dim) continue;
                    float want = o0[r * ldo + d];
                    for (int j = from; j < to; j++) {
                        float pj = p[r * ldp + j];
                        if (t == KV_INT8) pj *= scale_of(t, v, true, dim, j);
                        want = fmaf(pj, element_of(t, v, true, dim, j, d), want);
                    }
                    if (o[r * ldo + d] != want)
                        fail_msg("%s, %s: keys %d..%d for query %d of %d: dimension %d of %d is %a, not %a", isas[i]->name,
                                 type_names[t], from, to, r, rows, d, dim, (double)o[r * ldo + d], (double)want);
                }
            drop(o, n);
        }
        free(x), free(p), free(o0), free(k), free(v);
    }
}

/* ---- the operator -------------------------------------------------------------------------------------------------------- */

typedef struct shape {
    int n_heads, n_kv_heads, dim;
} shape;
/* Inputs out of a hash of their place, so that a position has the same query, key and value in every step. */
typedef struct rig {
    shape s;
    weft_dev *d;
    weft_mat *tq, *tk, *tv;
    weft_buf *q, *k, *v, *y;
    weft_attention op;
    weft_page_kind kind;
    int *pages, n_pages;
} rig;
enum { PERIOD = 1009 }; /* rows of the tables: tokens repeat after so many positions */

static uint32_t hash(uint32_t a, uint32_t b) {
    uint32_t x = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
static float input_of(int which, int row, int i) {
    return (float)((double)hash((uint32_t)(row * 4 + which), (uint32_t)i) * 0x1p-31 - 1) * (which < 2 ? 1.5f : 1);
}
typedef struct made {
    int which;
    int64_t k;
} made;
static weft_status read_made(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    (void)expert, (void)scale, (void)bias, (void)e;
    const made *m = ctx;
    for (int64_t i = 0; i < m->k; i++) ((float *)values)[i] = input_of(m->which, (int)row, (int)i);
    return WEFT_OK;
}
static weft_mat *table(weft_dev *d, int which, int cols) {
    weft_mat *m = NULL;
    weft_error e;
    weft_mat_desc desc = {
        .dtype = WEFT_F32, .experts = 1, .n = PERIOD, .k = cols, .name = "table", .read = read_made, .ctx = &(made){which, cols}};
    assert_int_equal(weft_mat_make(d, &desc, &m, &e), WEFT_OK);
    return m;
}
static void rig_open_kind(rig *r, shape s, int threads, const char *isa, kv_type t, int max_rows, int positions, int first_key,
                          weft_page_kind kind) {
    weft_error e;
    *r = (rig){.s = s, .n_pages = positions / WEFT_PAGE_ROWS + 1, .kind = kind};
    assert_int_equal(weft_dev_open(&r->d, &(weft_dev_config){.threads = threads, .isa = isa, .kv = type_names[t]}, &e), WEFT_OK);
    r->tq = table(r->d, 0, s.n_heads * s.dim);
    r->tk = table(r->d, 1, s.n_kv_heads * s.dim);
    r->tv = table(r->d, 2, s.n_kv_heads * s.dim);
    r->q = weft_buf_make(r->d, NULL, 0, s.n_heads * s.dim);
    r->k = weft_buf_make(r->d, NULL, 0, s.n_kv_heads * s.dim);
    r->v = weft_buf_make(r->d, NULL, 0, s.n_kv_heads * s.dim);
    r->y = weft_buf_make(r->d, NULL, 0, s.n_heads * s.dim);
    (void)weft_kv_layer(r->d, 1, 48, r->kind); /* another one before it */
    r->op = (weft_attention){.layer = weft_kv_layer(r->d, s.n_kv_heads, s.dim, r->kind),
                             .n_heads = s.n_heads,
                             .n_kv_heads = s.n_kv_heads,
                             .head_dim = s.dim,
                             .scale = 1 / sqrtf((float)s.dim),
                             .first_key = first_key};
    weft_plan plan = {.max_rows = max_rows, .max_spans = 8, .n_slots = 8};
    plan.n_pages[r->kind] = r->n_pages;
    if (weft_dev_plan(r->d, &plan, &e) != WEFT_OK) fail_msg("%s", e.text);
    r->pages = room((size_t)r->n_pages * sizeof *r->pages);
    for (int i = 0; i < r->n_pages; i++) r->pages[i] = i;
    for (int i = r->n_pages - 1; i > 0; i--) {
        int j = below(i + 1), p = r->pages[i];
        r->pages[i] = r->pages[j], r->pages[j] = p;
    }
    for (int i = 0; i < r->n_pages; i++) {
        weft_page_poison(r->d, kind, i);
        weft_page_clear(r->d, kind, i);
    }
}
static void rig_open(rig *r, shape s, int threads, const char *isa, kv_type t, int max_rows, int positions, int first_key) {
    rig_open_kind(r, s, threads, isa, t, max_rows, positions, first_key, WEFT_PAGES_ALL);
}
static void rig_close(rig *r) {
    weft_dev_close(r->d);
    free(r->pages);
}
typedef enum mode { BOTH, WRITES, READS } mode;
static weft_status rig_try(rig *r, weft_span *spans, int n, mode mode, weft_error *e) {
    static int32_t tokens[2048];
    int rows = 0;
    for (int i = 0; i < n; i++) {
        spans[i].row = rows;
        spans[i].slot_read = spans[i].pos ? i : -1;
        spans[i].slot_write = i;
        spans[i].n_pages[r->kind] = r->n_pages;
        if (!spans[i].pages[r->kind]) spans[i].pages[r->kind] = r->pages;
        for (int j = 0; j < spans[i].certain; j++) tokens[rows++] = (spans[i].pos + j) % PERIOD;
    }
    weft_begin(r->d, &(weft_step){.n_rows = rows, .n_spans = n, .tokens = tokens, .spans = spans});
    weft_embed(r->d, r->q, r->tq, 1);
    weft_embed(r->d, r->k, r->tk, 1);
    weft_embed(r->d, r->v, r->tv, 1);
    weft_attend(r->d, mode == WRITES ? NULL : r->y, mode == WRITES ? NULL : r->q, mode == READS ? NULL : r->k,
                mode == READS ? NULL : r->v, &r->op);
    return weft_end(r->d, e);
}
static void rig_step(rig *r, weft_span *spans, int n, bool only_write) {
    weft_error e;
    if (rig_try(r, spans, n, only_write ? WRITES : BOTH, &e) != WEFT_OK) fail_msg("%s", e.text);
}
/* Keys and values of positions [from, to). */
static void fill(rig *r, int from, int to, int rows) {
    for (int n; from < to; from += n) {
        n = to - from < rows ? to - from : rows;
        rig_step(r, &(weft_span){.pos = from, .certain = n}, 1, true);
    }
}
static const float *result(rig *r, int row) {
    static float y[4096];
    weft_error e;
    assert_int_equal(weft_read(r->d, r->y, row, y, &e), WEFT_OK);
    return y;
}

/* Numbers of rows and of threads, instruction sets, spans beside each other: the bytes of one row at a time on one thread. */
static void test_any_cut(void **state) {
    (void)state;
    enum { FIRST = 505, LAST = 1100 };
    static const shape shapes[] = {{8, 2, 16}, {4, 4, 24}, {6, 1, 34}, {9, 3, 64}, {16, 1, 18}};
    static const int counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 64, 128};
    for (int i = 0; i < 15; i++) {
        shape s = shapes[i / 3];
        kv_type t = (kv_type)(i % 3);
        size_t bytes = (size_t)(s.n_heads * s.dim) * sizeof(float);
        char *want = room((LAST + 1) * bytes);
        rig r;
        rig_open(&r, s, 1, NULL, t, 256, LAST, i % 2);
        for (int pos = 0; pos <= LAST; pos++) {
            bool wanted = pos < 10 || (pos >= FIRST && pos < FIRST + 128) || pos > LAST - 80;
            rig_step(&r, &(weft_span){.pos = pos, .certain = 1}, 1, !wanted);
            if (wanted) memcpy(want + (size_t)pos * bytes, result(&r, 0), bytes);
        }
        rig_close(&r);
        for (int z = 0; z < n_isas; z++) {
            bool slow = !strcmp(isas[z]->name, "reference"); /* its fused product takes many instructions */
            for (int threads = slow ? 2 : 1; threads <= (slow ? 2 : 5); threads += 2) {
                rig_open(&r, s, threads, isas[z]->name, t, 256, LAST, i % 2);
                fill(&r, 0, FIRST, 100);
                for (size_t c = slow ? 6 : 0; c < (slow ? 10 : sizeof counts / sizeof *counts); c++) {
                    rig_step(&r, &(weft_span){.pos = FIRST, .certain = counts[c]}, 1, false);
                    for (int j = 0; j < counts[c]; j++)
                        same_bytes("row", FIRST + j, result(&r, j), want + (size_t)(FIRST + j) * bytes, bytes);
                }
                fill(&r, FIRST, 1050, 200);
                weft_span mixed[4] = {{.pos = 1050, .certain = 17}, {.pos = 0, .certain = 6}, {.pos = 520, .certain = 1}, {0}};
                mixed[3] = (weft_span){.pos = 600, .certain = slow ? 3 : 30};
                rig_step(&r, mixed, 4, false); /* a position has the same key everywhere: spans may share pages here */
                for (int j = 0; j < 4; j++)
                    for (int row = 0; row < mixed[j].certain; row++)
                        same_bytes("row of several spans", mixed[j].pos + row, result(&r, mixed[j].row + row),
                                   want + (size_t)(mixed[j].pos + row) * bytes, bytes);
                rig_close(&r);
            }
        }
        free(want);
    }
}

/* So many chunks, rows and heads that their results do not fit at once: blocks go on in the next wave, several spans meet in one.
 */
static void test_waves(void **state) {
    (void)state;
    enum { LONG = 40000, ROWS = 9 };
    const shape s = {24, 3, 16};
    size_t bytes = (size_t)(s.n_heads * s.dim) * sizeof(float);
    for (int i = 0; i < 3; i++) {
        char *want = room(4 * ROWS * bytes);
        for (int threads = 1; threads <= 4; threads++) {
            rig r;
            rig_open(&r, s, threads, NULL, (kv_type)i, 512, LONG + 512, 0);
            assert_true(s.n_heads * ROWS * (LONG / ATTEND_CHUNK) > 4 * ATTEND_RESULTS * threads / 3);
            fill(&r, 0, LONG + ROWS, 512);
            weft_span spans[4] = {{.pos = LONG, .certain = ROWS},
                                  {.pos = 20000, .certain = 3},
                                  {.pos = LONG - 3, .certain = ROWS},
                                  {.pos = 30, .certain = 1}};
            for (int n = 1; n <= 4; n += 3) {
                rig_step(&r, spans, n, false);
                for (int j = 0, row = 0; j < n; j++)
                    for (int k = 0; k < spans[j].certain; k++, row++) {
                        char *at = want + (size_t)row * bytes;
                        if (threads == 1 && n >= (j ? 4 : 1))
                            memcpy(at, result(&r, row), bytes);
                        else
                            same_bytes("row", spans[j].pos + k, result(&r, row), at, bytes);
                    }
            }
            rig_close(&r);
        }
        free(want);
    }
}

/* The exact result of what is kept: softmax and sums in double. */
static void test_accuracy(void **state) {
    (void)state;
    enum { LAST = 1300 };
    static const shape shapes[] = {{4, 1, 64}, {2, 2, 256}, {8, 2, 46}};
    for (int i = 0; i < 9; i++) {
        shape s = shapes[i / 3];
        kv_type t = (kv_type)(i % 3);
        int dim = s.dim;
        rig r;
        rig_open(&r, s, 2, NULL, t, 256, LAST, 0);
        fill(&r, 0, LAST - 20, 256);
        rig_step(&r, &(weft_span){.pos = LAST - 20, .certain = 20}, 1, false);
        for (int h = 0; h < s.n_heads; h++) {
            int kv = h / (s.n_heads / s.n_kv_heads), pos = LAST - 1;
            static double p[LAST], want[512], exact[512];
            float x[512], stored[512];
            for (int kind = 0; kind < 2; kind++) { /* as kept; as given */
                double total = 0, most = 0;
                for (int j = 0; j <= pos; j++) {
                    for (int d = 0; d < dim; d++) x[d] = stored[d] = input_of(1, j % PERIOD, kv * dim + d);
                    double scale = 1, sum = 0;
                    if (!kind && t != KV_F32) scale = (double)kept(t, x, dim, stored);
                    for (int d = 0; d < dim; d++) sum += (double)input_of(0, pos % PERIOD, h * dim + d) * (double)stored[d] * scale;
                    p[j] = sum / sqrt(dim);
                    most = j && most > p[j] ? most : p[j];
                }
                for (int j = 0; j <= pos; j++) total += p[j] = exp(p[j] - most);
                double *out = kind ? exact : want;
                for (int d = 0; d < dim; d++) out[d] = 0;
                for (int j = 0; j <= pos; j++) {
                    for (int d = 0; d < dim; d++) x[d] = stored[d] = input_of(2, j % PERIOD, kv * dim + d);
                    double scale = 1;
                    if (!kind && t != KV_F32) scale = (double)kept(t, x, dim, stored);
                    for (int d = 0; d < dim; d++) out[d] += p[j] / total * (double)stored[d] * scale;
                }
            }
            const float *y = result(&r, 19) + h * dim;
            double off = 0, lost = 0, size = 0;
            for (int d = 0; d < dim; d++) {
                off = fmax(off, fabs((double)y[d] - want[d]));
                lost = fmax(lost, fabs((double)y[d] - exact[d]));
                size = fmax(size, fabs(exact[d]));
            }
            assert_true(off < 3e-6 * (1 + size)); /* float32 arithmetic on what is kept */
            assert_true(lost < (t == KV_F32 ? 3e-6 : 4e-3) * (1 + size));
        }
        rig_close(&r);
    }
}

/* ---- windows ------------------------------------------------------------------------------------------------------------- */

static int low_of(const rig *r, int pos) {
    int low = r->op.window && pos >= r->op.window ? pos + 1 - r->op.window : 0;
    return low > r->op.first_key ? low : r->op.first_key;
}
/* The exact results of positions under the rig's window, of what is kept. */
typedef struct exact {
    double *k, *v; /* [positions][n_kv_heads * dim] */
    double *p;     /* [positions] */
} exact;
static exact exact_make(const rig *r, kv_type t, int positions) {
    int cols = r->s.n_kv_heads * r->s.dim;
    size_t n = (size_t)positions * (size_t)cols * sizeof(double);
    exact x = {room(n), room(n), room((size_t)positions * sizeof(double))};
    float in[512], out[512];
    for (int i = 0; i < 2 * positions * r->s.n_kv_heads; i++) {
        int row = i / 2 / r->s.n_kv_heads, head = i / 2 % r->s.n_kv_heads;
        for (int d = 0; d < r->s.dim; d++) in[d] = out[d] = input_of(1 + i % 2, row % PERIOD, head * r->s.dim + d);
        double scale = t == KV_F32 ? 1 : (double)kept(t, in, r->s.dim, out);
        for (int d = 0; d < r->s.dim; d++) (i % 2 ? x.v : x.k)[row * cols + head * r->s.dim + d] = (double)out[d] * scale;
    }
    return x;
}
static void exact_free(exact *x) {
    free(x->k), free(x->v), free(x->p);
}
static void exact_check(const rig *r, const exact *x, int pos, const float *y) {
    int dim = r->s.dim, cols = r->s.n_kv_heads * dim, low = low_of(r, pos), end = pos + !r->op.past;
    for (int h = 0; h < r->s.n_heads; h++) {
        int kv = h / (r->s.n_heads / r->s.n_kv_heads) * dim;
        double total = 0, most = -INFINITY;
        for (int j = low; j < end; j++) {
            double sum = 0;
            for (int d = 0; d < dim; d++) sum += (double)input_of(0, pos % PERIOD, h * dim + d) * x->k[j * cols + kv + d];
            x->p[j] = sum * (double)r->op.scale;
            most = fmax(most, x->p[j]);
        }
        for (int j = low; j < end; j++) total += x->p[j] = exp(x->p[j] - most);
        for (int d = 0; d < dim; d++) {
            double want = 0;
            for (int j = low; j < end; j++) want += x->p[j] / total * x->v[j * cols + kv + d];
            if (!(fabs((double)y[h * dim + d] - want) < 3e-6 * (1 + fabs(want))))
                fail_msg("window %d%s: position %d, head %d, dimension %d is %g, not %g", r->op.window, r->op.past ? ", past" : "",
                         pos, h, d, (double)y[h * dim + d], want);
        }
    }
}

enum { WINDOW_LAST = 1500, WINDOW_PAGES = WINDOW_LAST / WEFT_PAGE_ROWS + 2 };
/* The pages that rows at pos and above need, up to those that hold rows below `end`; -1 around them. */
static const int *held(const rig *r, int pos, int end, int table[WINDOW_PAGES]) {
    for (int i = 0; i < r->n_pages; i++)
        table[i] = i >= low_of(r, pos) / WEFT_PAGE_ROWS && i * WEFT_PAGE_ROWS < end ? r->pages[i] : -1;
    return table;
}
/* NaN wherever rows at pos and above do not look. */
static void forget_below(rig *r, int pos) {
    int low = low_of(r, pos), page = low / WEFT_PAGE_ROWS;
    size_t bytes = weft_page_bytes(r->d, r->kind, low % WEFT_PAGE_ROWS);
    uint8_t *nan = room(bytes);
    weft_error e;
    memset(nan, 0xff, bytes);
    for (int i = 0; i < page; i++) weft_page_poison(r->d, r->kind, r->pages[i]);
    assert_int_equal(weft_page_io(r->d, r->kind, r->pages[page], low % WEFT_PAGE_ROWS, nan, false, &e), WEFT_OK);
    free(nan);
}
/* A step over a table that has only what the span needs. */
static void window_step(rig *r, int pos, int rows, mode mode) {
    int table[WINDOW_PAGES];
    weft_error e;
    weft_span span = {.pos = pos, .certain = rows};
    span.pages[r->kind] = held(r, pos, mode == READS && r->op.past ? pos + rows - 1 : pos + rows, table);
    if (rig_try(r, &span, 1, mode, &e) != WEFT_OK) fail_msg("%s", e.text);
}
static bool window_wanted(int pos) {
    return pos < 70 || (pos >= 480 && pos < 608) || (pos >= 1020 && pos < 1070) || pos >= WINDOW_LAST - 40;
}

/* One row at a time on one thread, then every other way. */
static void check_window(shape s, kv_type t, int window, bool past, int first_key, weft_page_kind kind) {
    static const int counts[] = {1, 2, 3, 5, 7, 8, 9, 16, 31, 64, 128};
    const size_t bytes = (size_t)(s.n_heads * s.dim) * sizeof(float), all = (WINDOW_LAST + 1) * bytes;
    char *want = room(all);
    rig r;
    rig_open_kind(&r, s, 1, NULL, t, 256, WINDOW_LAST, first_key, kind);
    r.op.window = window, r.op.past = past;
    exact x = exact_make(&r, t, WINDOW_LAST);
    for (int i = 0; i < r.n_pages; i++) weft_page_poison(r.d, kind, r.pages[i]);
    for (int pos = 0; pos < WINDOW_LAST; pos++) {
        bool wanted = window_wanted(pos);
        if (wanted) forget_below(&r, pos);
        if (kind == WEFT_PAGES_WINDOW)
            window_step(&r, pos, 1, wanted ? BOTH : WRITES);
        else
            rig_step(&r, &(weft_span){.pos = pos, .certain = 1}, 1, !wanted);
        if (!wanted) continue;
        const float *y = result(&r, 0);
        memcpy(want + (size_t)pos * bytes, y, bytes);
        bool none = low_of(&r, pos) >= pos + !past;
        for (int i = 0; i < s.n_heads * s.dim && none; i++) assert_true(y[i] == 0);
        if (pos < 5 || (pos >= 508 && pos < 515) || (pos >= 574 && pos < 578) || pos == 1024 || pos == WINDOW_LAST - 1)
            exact_check(&r, &x, pos, y);
    }
    rig_close(&r);
    exact_free(&x);

    for (int z = 0; z < n_isas; z++) {
        bool slow = !strcmp(isas[z]->name, "reference");
        for (int threads = slow ? 2 : 1; threads <= (slow ? 2 : 3); threads++) {
            rig_open_kind(&r, s, threads, isas[z]->name, t, 256, WINDOW_LAST, first_key, kind);
            r.op.window = window, r.op.past = past;
            fill(&r, 0, 480, 200);
            forget_below(&r, 480);
            for (size_t c = slow ? 5 : 0; c < (slow ? 8 : sizeof counts / sizeof *counts); c++)
                for (int how = 0; how < 2; how++) { /* what one call writes another reads */
                    if (kind == WEFT_PAGES_WINDOW)
                        window_step(&r, 480, counts[c], how ? READS : BOTH);
                    else
                        rig_step(&r, &(weft_span){.pos = 480, .certain = counts[c]}, 1, false);
                    for (int j = 0; j < counts[c]; j++)
                        same_bytes("row under a window", 480 + j, result(&r, j), want + (size_t)(480 + j) * bytes, bytes);
                }
            fill(&r, 480, WINDOW_LAST, 256);
            forget_below(&r, 500);
            weft_span spans[4] = {{.pos = 1021, .certain = 19}, {.pos = WINDOW_LAST - 1, .certain = 1}, {0}, {0}};
            spans[2] = (weft_span){.pos = 500, .certain = slow ? 3 : 100};
            spans[3] = (weft_span){.pos = WINDOW_LAST - 30, .certain = slow ? 4 : 30};
            int tables[4][WINDOW_PAGES];
            for (int j = 0; j < 4 && kind == WEFT_PAGES_WINDOW; j++)
                spans[j].pages[kind] = held(&r, spans[j].pos, spans[j].pos + spans[j].certain, tables[j]);
            rig_step(&r, spans, 4, false);
            for (int j = 0; j < 4; j++)
                for (int row = 0; row < spans[j].certain; row++)
                    same_bytes("row of several spans", spans[j].pos + row, result(&r, spans[j].row + row),
                               want + (size_t)(spans[j].pos + row) * bytes, bytes);
            rig_close(&r);
        }
    }
    free(want);
}
static void test_windows(void **state) {
    (void)state;
    static const int windows[] = {1, 32, 64, 65, 512, 1000};
    static const shape shapes[] = {{16, 1, 32}, {2, 1, 512}, {4, 4, 16}, {32, 2, 16}, {4, 1, 256}, {6, 3, 48}, {8, 2, 64}};
    for (int i = 0; i < 36; i++) {
        shape s = shapes[i % 7];
        check_window(s, (kv_type)(i / 6 % 3), windows[i % 6], i >= 18, i % 4 == 3, i % 5 ? WEFT_PAGES_WINDOW : WEFT_PAGES_ALL);
    }
    for (int i = 0; i < 3; i++) check_window((shape){8, 1, 512}, (kv_type)i, 512, i == 2, 0, WEFT_PAGES_WINDOW);
}

/* A drafter's row has no key and value of its own: it reads its target's, up to the row before it, and one more than the target
 * itself does. What stands at its position and behind it is NaN, or not there. */
static void test_past_only(void **state) {
    (void)state;
    static const int at[] = {1, 31, 33, 63, 64, 65, 100, 512, 513, 640};
    const shape s = {8, 2, 32};
    for (int i = 0; i < 30; i++) {
        kv_type t = (kv_type)(i % 3);
        int pos = at[i / 3], in_page = pos % WEFT_PAGE_ROWS;
        rig r;
        weft_error e;
        rig_open_kind(&r, s, 2, NULL, t, 256, WINDOW_LAST, 0, WEFT_PAGES_WINDOW);
        r.op.window = 32;
        fill(&r, 0, pos, 100);
        r.op.window = 32 + 2, r.op.past = true;
        forget_below(&r, pos);
        for (int p = (pos + WEFT_PAGE_ROWS - 1) / WEFT_PAGE_ROWS; p < r.n_pages; p++) weft_page_poison(r.d, r.kind, r.pages[p]);
        uint8_t *host = room(weft_page_bytes(r.d, r.kind, WEFT_PAGE_ROWS));
        int last = r.pages[pos / WEFT_PAGE_ROWS];
        assert_int_equal(weft_page_io(r.d, r.kind, last, in_page, host, true, &e), WEFT_OK);
        weft_page_poison(r.d, r.kind, last);
        assert_int_equal(weft_page_io(r.d, r.kind, last, in_page, host, false, &e), WEFT_OK);
        window_step(&r, pos, 1, READS);
        exact x = exact_make(&r, t, pos);
        exact_check(&r, &x, pos, result(&r, 0));
        assert_int_equal(pos - low_of(&r, pos), pos < 33 ? pos : 33); /* window + 1 rows of the cache */
        exact_free(&x);
        free(host);
        rig_close(&r);
    }
}

/* A page that is needed and gone: an error of the step, nothing written, and the device goes on. */
static void test_missing_pages(void **state) {
    (void)state;
    enum { POS = 700, ROWS = 10 };
    const shape s = {4, 2, 32};
    rig r;
    rig_open_kind(&r, s, 2, NULL, KV_BF16, 256, WINDOW_LAST, 0, WEFT_PAGES_WINDOW);
    r.op.window = 200;
    fill(&r, 0, POS, 100);
    size_t n = weft_page_bytes(r.d, r.kind, WEFT_PAGE_ROWS);
    uint8_t *before = room(n), *after = room(n);
    weft_error e;
    for (int page = 0; page < WINDOW_PAGES - 1; page++)
        for (mode mode = BOTH; mode <= READS; mode++) {
            bool read = page >= (POS + 1 - 200) / WEFT_PAGE_ROWS, written = page >= POS / WEFT_PAGE_ROWS;
            bool needed = (mode == WRITES ? written : read) && page * WEFT_PAGE_ROWS < POS + ROWS;
            int table[WINDOW_PAGES], last = r.pages[POS / WEFT_PAGE_ROWS];
            memcpy(table, r.pages, (size_t)r.n_pages * sizeof *table);
            table[page] = -1;
            weft_span span = {.pos = POS, .certain = ROWS};
            span.pages[r.kind] = table;
            assert_int_equal(weft_page_io(r.d, r.kind, last, WEFT_PAGE_ROWS, before, true, &e), WEFT_OK);
            e.text[0] = 0;
            assert_int_equal(rig_try(&r, &span, 1, mode, &e), needed ? WEFT_EINVAL : WEFT_OK);
            assert_true(needed == (e.text[0] != 0));
            if (!needed) continue;
            assert_int_equal(weft_page_io(r.d, r.kind, last, WEFT_PAGE_ROWS, after, true, &e), WEFT_OK);
            same_bytes("page after a step that failed", page, before, after, n);
        }
    int table[WINDOW_PAGES];
    memcpy(table, r.pages, (size_t)r.n_pages * sizeof *table);
    weft_span span = {.pos = POS, .certain = ROWS};
    span.pages[r.kind] = table;
    table[0] = -2;
    assert_int_equal(rig_try(&r, &span, 1, BOTH, &e), WEFT_EINVAL);
    table[0] = r.n_pages;
    assert_int_equal(rig_try(&r, &span, 1, BOTH, &e), WEFT_EINVAL);
    free(before), free(after);
    rig_close(&r);
}

/* Layers of both kinds: each kind's pages, bytes and tables are its own. */
static void test_two_kinds(void **state) {
    (void)state;
    weft_dev *d;
    weft_error e;
    weft_dev_memory m;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 1, .kv = "bf16"}, &e), WEFT_OK);
    assert_int_equal(weft_kv_layer(d, 1, 32, WEFT_PAGES_WINDOW), 0);
    assert_int_equal(weft_kv_layer(d, 2, 64, WEFT_PAGES_ALL), 1);
    assert_int_equal(weft_kv_layer(d, 1, 32, WEFT_PAGES_WINDOW), 2);
    assert_int_equal(weft_dev_plan(d, &(weft_plan){.max_rows = 4, .max_spans = 1, .n_slots = 1, .n_pages = {5, 3}}, &e), WEFT_OK);
    weft_dev_memory_get(d, &m);
    size_t all = weft_page_bytes(d, WEFT_PAGES_ALL, WEFT_PAGE_ROWS), window = weft_page_bytes(d, WEFT_PAGES_WINDOW, WEFT_PAGE_ROWS);
    assert_int_equal(all, 64 * 2 * 2 * 64 * 2);
    assert_int_equal(window, 64 * 2 * 2 * 32 * 2);
    assert_true(m.page[WEFT_PAGES_ALL] == all && m.page[WEFT_PAGES_WINDOW] == window && m.pages == 5 * all + 3 * window);
    uint8_t *host = room(all);
    assert_int_equal(weft_page_io(d, WEFT_PAGES_WINDOW, 3, 1, host, true, &e), WEFT_EINVAL);
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++)
        for (int page = 0; page < (kind ? 3 : 5); page++) {
            weft_page_poison(d, (weft_page_kind)kind, page);
            for (int k = 0; k < WEFT_PAGE_KINDS; k++)
                for (int p = 0; p < (k ? 3 : 5); p++) {
                    size_t n = k ? window : all;
                    assert_int_equal(weft_page_io(d, (weft_page_kind)k, p, WEFT_PAGE_ROWS, host, true, &e), WEFT_OK);
                    for (size_t i = 0; i < n; i++) assert_int_equal(host[i], k == kind && p == page ? 0xff : 0);
                }
            weft_page_clear(d, (weft_page_kind)kind, page);
        }
    free(host);
    weft_dev_close(d);
}

/* Bytes of a page, carried through the host, are the page; rows beyond those asked for stay as they are. */
static void test_page_io(void **state) {
    (void)state;
    static const shape shapes[] = {{4, 2, 16}, {3, 1, 30}, {2, 2, 46}, {2, 1, 80}};
    enum { LAST = 150 };
    for (int i = 0; i < 12; i++) {
        shape s = shapes[i / 3];
        size_t bytes = (size_t)(s.n_heads * s.dim) * sizeof(float), page_bytes;
        weft_error e;
        rig r;
        rig_open(&r, s, 2, NULL, (kv_type)(i % 3), 256, LAST + 3 * WEFT_PAGE_ROWS, i % 2);
        fill(&r, 0, LAST, 64);
        rig_step(&r, &(weft_span){.pos = LAST - 1, .certain = 1}, 1, false);
        float *want = room(bytes);
        memcpy(want, result(&r, 0), bytes);
        page_bytes = weft_page_bytes(r.d, WEFT_PAGES_ALL, WEFT_PAGE_ROWS);
        assert_int_equal(weft_page_bytes(r.d, WEFT_PAGES_ALL, 0), 0);
        assert_int_equal(weft_page_bytes(r.d, WEFT_PAGES_ALL, 7) * WEFT_PAGE_ROWS, page_bytes * 7);
        uint8_t *host = room(page_bytes), *again = room(page_bytes), *before = room(page_bytes);
        int moved[8];
        memcpy(moved, r.pages, (size_t)r.n_pages * sizeof *moved);
        for (int p = 0; p < 3; p++) { /* to pages that were poisoned, and cleared as at every allocation */
            int to = r.pages[3 + p], rows = p < 2 ? WEFT_PAGE_ROWS : LAST - 2 * WEFT_PAGE_ROWS;
            weft_page_poison(r.d, WEFT_PAGES_ALL, to);
            weft_page_clear(r.d, WEFT_PAGES_ALL, to);
            assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, r.pages[p], rows, host, true, &e), WEFT_OK);
            assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, to, rows, host, false, &e), WEFT_OK);
            assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, to, rows, again, true, &e), WEFT_OK);
            same_bytes("page through the host", p, host, again, weft_page_bytes(r.d, WEFT_PAGES_ALL, rows));
            weft_page_poison(r.d, WEFT_PAGES_ALL, r.pages[p]);
            moved[p] = to;
        }
        rig_step(&r, &(weft_span){.pos = LAST - 1, .certain = 1, .write_from = LAST, .pages = {moved}}, 1, false);
        same_bytes("attention over moved pages", i, result(&r, 0), want, bytes);
        /* 20 rows over others: the 44 behind them stay. */
        assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, moved[0], WEFT_PAGE_ROWS, before, true, &e), WEFT_OK);
        assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, moved[1], 20, host, true, &e), WEFT_OK);
        assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, moved[0], 20, host, false, &e), WEFT_OK);
        assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, moved[0], 20, again, true, &e), WEFT_OK);
        same_bytes("20 rows", i, host, again, weft_page_bytes(r.d, WEFT_PAGES_ALL, 20));
        assert_int_equal(weft_page_io(r.d, WEFT_PAGES_ALL, moved[0], WEFT_PAGE_ROWS, again, true, &e), WEFT_OK);
        uint8_t *old = before, *new = again;
        const shape layers[2] = {{1, 1, 48}, s};
        for (int layer = 0; layer < 2; layer++) {
            shape l = layers[layer];
            size_t n = i % 3 == KV_F32    ? (size_t)ROUND16(l.dim) * 4
                       : i % 3 == KV_BF16 ? (size_t)l.dim * 2
                                          : ((size_t)l.dim + 3) / 4 * 4 + 4;
            for (int piece = 0; piece < 2 * l.n_kv_heads; piece++, old += WEFT_PAGE_ROWS * n, new += WEFT_PAGE_ROWS *n)
                same_bytes("rows behind", i, old + 20 * n, new + 20 * n, 44 * n);
        }
        assert_int_equal((size_t)(old - before), page_bytes);
        free(want), free(host), free(again), free(before);
        rig_close(&r);
    }
}

/* Stale NaN where no row of the sequence has been written never reaches a result. */
static void test_stale_pages(void **state) {
    (void)state;
    enum { LAST = 700 };
    const shape s = {6, 2, 48};
    size_t bytes = (size_t)(s.n_heads * s.dim) * sizeof(float);
    for (int i = 0; i < 6; i++) {
        rig clean, stale;
        rig_open(&clean, s, 1, NULL, (kv_type)(i / 2), 256, LAST, i % 2);
        rig_open(&stale, s, 3, NULL, (kv_type)(i / 2), 256, LAST, i % 2);
        size_t page_bytes = weft_page_bytes(stale.d, WEFT_PAGES_ALL, WEFT_PAGE_ROWS);
        uint8_t *nan = room(page_bytes);
        weft_error e;
        for (int p = 0; p < stale.n_pages; p++) weft_page_poison(stale.d, WEFT_PAGES_ALL, p);
        assert_int_equal(weft_page_io(stale.d, WEFT_PAGES_ALL, 0, WEFT_PAGE_ROWS, nan, true, &e), WEFT_OK);
        for (size_t b = 0; b < page_bytes; b++) assert_int_equal(nan[b], 0xff); /* NaN in every type, INT8 by its scale */
        free(nan);
        for (int pos = 0, n; pos < LAST; pos += n) {
            n = 1 + below(40);
            if (n > LAST - pos) n = LAST - pos;
            rig_step(&clean, &(weft_span){.pos = pos, .certain = n}, 1, false);
            rig_step(&stale, &(weft_span){.pos = pos, .certain = n}, 1, false);
            for (int row = 0; row < n; row++) {
                float want[6 * 48];
                memcpy(want, result(&clean, row), bytes);
                same_bytes("row over stale pages", pos + row, result(&stale, row), want, bytes);
                for (int c = 0; c < s.n_heads * s.dim; c++) assert_true(isfinite(want[c]));
            }
        }
        rig_close(&clean);
        rig_close(&stale);
    }
}

/* A page's bytes are what the type needs, and traffic counts them. */
static void test_bytes(void **state) {
    (void)state;
    static const double per_element[KV_TYPES] = {[KV_F32] = 4, [KV_BF16] = 2, [KV_INT8] = 1 + 4.0 / 128};
    for (int t = 0; t < KV_TYPES; t++) {
        rig r;
        weft_dev_memory m;
        rig_open(&r, (shape){4, 2, 128}, 1, NULL, (kv_type)t, 64, 1000, 0);
        weft_dev_memory_get(r.d, &m);
        double other = (double)(k_bytes((kv_type)t, 48) + v_bytes((kv_type)t, 48)), each = per_element[t] * 128 * 2 * 2;
        assert_true((double)m.page[WEFT_PAGES_ALL] == each * WEFT_PAGE_ROWS + other);
        uint64_t before = weft_dev_traffic(r.d);
        weft_span span = {.pos = 900, .certain = 4};
        rig_step(&r, &span, 1, false);
        assert_true((double)(weft_dev_traffic(r.d) - before) == each * 904);
        r.op.window = 100; /* wherever the row is, as many keys as it sees, and those that the others see beyond */
        for (int pos = 500; pos < 1000; pos += 220) {
            before = weft_dev_traffic(r.d);
            rig_step(&r, &(weft_span){.pos = pos, .certain = 4}, 1, false);
            assert_true((double)(weft_dev_traffic(r.d) - before) == each * 103);
        }
        rig_close(&r);
    }
}

static int enter(void **state) {
    (void)state;
    weft_fpu_enter();
    for (int i = 0; weft_isas[i]; i++)
        if (weft_isa_here(weft_isas[i]))
            isas[n_isas++] = weft_isas[i];
        else
            print_message("skipped: %s, which this processor cannot run\n", weft_isas[i]->name);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store),     cmocka_unit_test(test_scores),    cmocka_unit_test(test_values),
        cmocka_unit_test(test_any_cut),   cmocka_unit_test(test_waves),     cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_windows),   cmocka_unit_test(test_past_only), cmocka_unit_test(test_missing_pages),
        cmocka_unit_test(test_two_kinds), cmocka_unit_test(test_page_io),   cmocka_unit_test(test_stale_pages),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, enter, NULL);
}

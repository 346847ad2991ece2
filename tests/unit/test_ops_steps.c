/* test_ops_steps.c: what steps leave behind: the promise at the level of ops.h.
 *
 * However a token sequence is cut into steps, whatever is drafted, accepted, dropped, flushed, snapshot or restored, and on however
 * many threads, the outputs of a row, the bytes of a slot and the bytes of a page are those of a run of one row at a time. The
 * network is small and its sizes are odd (no multiples of 16). Slots that a step may only write are full of NaN before it.
 *
 * All of it in the fast mode, in the fast one with keys and values of 8 bits, and in the precise one; what is compared with comes
 * from the plain C kernels, and every instruction set that this processor can run is compared with it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fpu.h"
#include "ops/cpu/kernels.h"

static uint64_t seed = 7;
static int below(int n) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (int)((uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32) % (uint32_t)n);
}
static void end_ok(weft_dev *d) {
    weft_error e;
    if (weft_end(d, &e) != WEFT_OK) fail_msg("%s", e.text);
}
static void read_into(weft_dev *d, const weft_buf *b, int row, float *dst) {
    weft_error e;
    assert_int_equal(weft_read(d, b, row, dst, &e), WEFT_OK);
}
static void same_bytes(const char *what, int at, const void *a, const void *b, size_t n) {
    if (memcmp(a, b, n)) fail_msg("%s at %d: bytes differ", what, at);
}

/* ---- a small hybrid network ---------------------------------------------------------------------------------------------- */

/* Two Gated DeltaNet layers of different shape, attention, experts, and a layer that reads the hidden row before its own, as an MTP
 * head does; weights in several formats. */
enum {
    VOCAB = 50,
    HIDDEN = 40,
    TAPS = 4,
    CHANNELS = 2 * 2 * 10 + 4 * 20, /* 2 key heads of 10, 4 value heads of 20 */
    TAPS2 = 3,
    CHANNELS2 = 2 * 7 + 3 * 5, /* 1 key head of 7, 3 value heads of 5 */
    HEAD = 24,                 /* attention: 4 query heads, 2 key heads */
    EXPERTS = 5,
    TOP_K = 2,
    INNER = 13,
    OUT = 2 * HIDDEN,
    DRAFTS = 4,
    LEN = 150,
    MAX_ROWS = 200,
    N_PAGES = 24,
    N_SLOTS = 64
};

typedef struct made { /* a weight out of a hash of its place */
    uint32_t id;
    weft_mat_desc desc;
} made;
static uint32_t hash(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t x = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu ^ (c + 0x165667b1u) * 0xc2b2ae35u;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
static float made_value(uint32_t id, int64_t row, int64_t i, float scale) {
    return (float)((double)hash(id, (uint32_t)row, (uint32_t)i) * 0x1p-31 - 1) * scale;
}
static void put_bf16(void *dst, int64_t i, float x) {
    memcpy((char *)dst + i * 2, (const char *)&x + 2, 2);
}
static weft_status read_made(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    (void)e;
    const made *m = ctx;
    const weft_mat_desc *d = &m->desc;
    float size = sqrtf(3.0f / (float)d->k);
    row += expert * d->n;
    for (int64_t i = 0; i < d->k; i++) {
        if (d->bits)
            ((uint8_t *)values)[i] = (uint8_t)(hash(m->id, (uint32_t)row, (uint32_t)i) & ((1u << d->bits) - 1));
        else if (d->dtype == WEFT_BF16)
            put_bf16(values, i, made_value(m->id, row, i, size));
        else
            ((float *)values)[i] = made_value(m->id, row, i, size);
    }
    for (int64_t g = 0; d->bits && g < d->k / d->group; g++) {
        float s = size * 2 / (float)((1 << d->bits) - 1) * (1 + made_value(m->id + 1, row, g, 0.3f));
        put_bf16(scale, g, s);
        put_bf16(bias, g, -s * (float)((1 << d->bits) - 1) / 2);
    }
    return WEFT_OK;
}

typedef struct net {
    weft_dev *d;
    weft_mat *embed, *in[3], *in2[3], *mix, *mix2, *q, *k, *v, *o, *router, *up, *down, *pair_in, *q2, *k2, *v2, *o2;
    weft_coef *gain, *head_gain, *freq;
    weft_gdn gdn, gdn2;
    weft_attention attention, attention2;
    int carry;
    weft_buf *x, *h, *delta, *hidden, *out, *qkv, *alpha, *beta, *y, *qkv2, *alpha2, *beta2, *y2, *bq, *bk, *bv, *att, *logits,
        *ids, *weights, *shifted, *emb, *pair;
    weft_status status; /* the first failure while it is built */
    weft_error error;
    uint32_t next_id;
} net;

static weft_mat *made_mat(net *n, weft_dtype dtype, int bits, int64_t experts, int64_t rows, int64_t k) {
    made m = {.id = n->next_id += 2};
    m.desc = (weft_mat_desc){.dtype = dtype,
                             .bits = bits,
                             .group = bits ? 32 : 0,
                             .experts = experts,
                             .n = rows,
                             .k = k,
                             .name = "made",
                             .read = read_made,
                             .ctx = &m};
    weft_mat *mat = NULL;
    if (n->status == WEFT_OK) n->status = weft_mat_make(n->d, &m.desc, &mat, &n->error);
    return mat;
}
static weft_coef *made_coef(net *n, int count, float middle, float spread) {
    float v[TAPS * CHANNELS];
    uint32_t id = n->next_id++;
    for (int i = 0; i < count; i++) v[i] = middle + made_value(id, 0, i, spread);
    weft_coef *c = NULL;
    if (n->status == WEFT_OK) n->status = weft_coef_make(n->d, v, count, &c, &n->error);
    return c;
}
static weft_buf *made_buf(net *n, const char *phase, int cols) {
    weft_buf *b = n->status == WEFT_OK ? weft_buf_make(n->d, phase, 0, cols) : NULL;
    if (n->status == WEFT_OK && !b) n->status = WEFT_ENOMEM;
    return b;
}
static int registered(net *n, int index) {
    if (index < 0 && n->status == WEFT_OK) n->status = WEFT_ENOMEM;
    return index;
}

static void net_build(net *n) {
    const weft_gdn_shape a = {2, 4, 10, 20, TAPS}, b = {1, 3, 7, 5, TAPS2};
    n->embed = made_mat(n, WEFT_BF16, 0, 1, VOCAB, HIDDEN);
    n->in[0] = made_mat(n, WEFT_F32, 0, 1, CHANNELS, HIDDEN);
    n->in[1] = made_mat(n, WEFT_F32, 0, 1, 4, HIDDEN);
    n->in[2] = made_mat(n, WEFT_BF16, 0, 1, 4, HIDDEN);
    n->mix = made_mat(n, WEFT_BF16, 0, 1, HIDDEN, 80);
    n->in2[0] = made_mat(n, WEFT_F32, 0, 1, CHANNELS2, HIDDEN);
    n->in2[1] = made_mat(n, WEFT_F32, 0, 1, 3, HIDDEN);
    n->in2[2] = made_mat(n, WEFT_F32, 0, 1, 3, HIDDEN);
    n->mix2 = made_mat(n, WEFT_F32, 0, 1, HIDDEN, 15);
    n->q = made_mat(n, WEFT_F32, 0, 1, 4 * HEAD, HIDDEN);
    n->k = made_mat(n, WEFT_F32, 0, 1, 2 * HEAD, HIDDEN);
    n->v = made_mat(n, WEFT_BF16, 0, 1, 2 * HEAD, HIDDEN);
    n->o = made_mat(n, WEFT_BF16, 4, 1, HIDDEN, 4 * HEAD); /* affine, 96 columns */
    n->router = made_mat(n, WEFT_F32, 0, 1, EXPERTS, HIDDEN);
    n->up = made_mat(n, WEFT_BF16, 0, EXPERTS, 2 * INNER, HIDDEN);
    n->down = made_mat(n, WEFT_F32, 0, EXPERTS, HIDDEN, INNER);
    n->pair_in = made_mat(n, WEFT_F32, 0, 1, HIDDEN, 2 * HIDDEN);
    n->q2 = made_mat(n, WEFT_F32, 0, 1, 4 * HEAD, HIDDEN);
    n->k2 = made_mat(n, WEFT_F32, 0, 1, 2 * HEAD, HIDDEN);
    n->v2 = made_mat(n, WEFT_F32, 0, 1, 2 * HEAD, HIDDEN);
    n->o2 = made_mat(n, WEFT_BF16, 3, 1, HIDDEN, 4 * HEAD);
    n->gain = made_coef(n, HIDDEN, 1, 0.2f);
    n->head_gain = made_coef(n, HEAD, 1, 0.2f);
    n->freq = made_coef(n, 5, 0.5f, 0.5f);
    n->gdn = (weft_gdn){registered(n, weft_gdn_layer(n->d, &a)), made_coef(n, TAPS * CHANNELS, 0, 0.7f), made_coef(n, 4, -1, 0.9f),
                        made_coef(n, 4, -1, 1)};
    n->gdn2 = (weft_gdn){registered(n, weft_gdn_layer(n->d, &b)), made_coef(n, TAPS2 * CHANNELS2, 0, 0.7f),
                         made_coef(n, 3, -1, 0.9f), made_coef(n, 3, -1, 1)};
    n->attention = (weft_attention){.n_heads = 4, .n_kv_heads = 2, .head_dim = HEAD, .scale = 0.2f};
    n->attention2 = n->attention;
    n->attention2.first_key = 1;
    n->attention.layer = registered(n, weft_kv_layer(n->d, 2, HEAD, WEFT_PAGES_ALL));
    n->attention2.layer = registered(n, weft_kv_layer(n->d, 2, HEAD, WEFT_PAGES_ALL));
    n->carry = registered(n, weft_carry(n->d, HIDDEN));
    weft_moe_layer(n->d, EXPERTS, TOP_K, INNER, HIDDEN);
    weft_buf **persistent[] = {&n->x, &n->h, &n->delta, &n->hidden, &n->out};
    for (int i = 0; i < 5; i++) *persistent[i] = made_buf(n, NULL, i < 4 ? HIDDEN : OUT);
    n->qkv = made_buf(n, "delta net", CHANNELS);
    n->alpha = made_buf(n, "delta net", 4);
    n->beta = made_buf(n, "delta net", 4);
    n->y = made_buf(n, "delta net", 80);
    n->qkv2 = made_buf(n, "second net", CHANNELS2);
    n->alpha2 = made_buf(n, "second net", 3);
    n->beta2 = made_buf(n, "second net", 3);
    n->y2 = made_buf(n, "second net", 15);
    n->bq = made_buf(n, "attention", 4 * HEAD);
    n->bk = made_buf(n, "attention", 2 * HEAD);
    n->bv = made_buf(n, "attention", 2 * HEAD);
    n->att = made_buf(n, "attention", 4 * HEAD);
    n->logits = made_buf(n, "experts", EXPERTS);
    n->ids = made_buf(n, "experts", TOP_K);
    n->weights = made_buf(n, "experts", TOP_K);
    n->shifted = made_buf(n, "pair", HIDDEN);
    n->emb = made_buf(n, "pair", HIDDEN);
    n->pair = made_buf(n, "pair", 2 * HIDDEN);
}

/* The mode of all that runs. */
static bool precise;
static const char *kv; /* NULL: as the mode has it */

static weft_status net_open(net *n, int threads, const char *isa, bool dry) {
    *n = (net){0};
    weft_dev_config c = {.threads = threads, .isa = isa, .precise = precise, .kv = kv, .dry = dry};
    n->status = weft_dev_open(&n->d, &c, &n->error);
    if (n->status == WEFT_OK) net_build(n);
    if (n->status == WEFT_OK)
        n->status = weft_dev_plan(
            n->d, &(weft_plan){.max_rows = MAX_ROWS, .max_spans = 4, .max_draft = DRAFTS, .n_pages = {N_PAGES}, .n_slots = N_SLOTS},
            &n->error);
    return n->status;
}
static void net_close(net *n) {
    weft_dev_close(n->d);
}

static void attend(net *n, weft_mat *q, weft_mat *k, weft_mat *v, weft_mat *o, const weft_attention *a) {
    weft_linear(n->d, (weft_buf *[]){n->bq, n->bk, n->bv}, (const weft_mat *[]){q, k, v}, 3, n->h);
    weft_qk_norm_rope(n->d, n->bq, n->bk, n->head_gain, n->head_gain, 1e-6f, n->freq, HEAD);
    weft_attend(n->d, n->att, n->bq, n->bk, n->bv, a);
    weft_linear(n->d, &n->delta, (const weft_mat *[]){o}, 1, n->att);
}
static void net_pass(net *n) {
    weft_embed(n->d, n->x, n->embed, 1);
    weft_norm(n->d, n->h, n->x, n->gain, 1e-6f);
    weft_linear(n->d, (weft_buf *[]){n->qkv, n->alpha, n->beta}, (const weft_mat *[]){n->in[0], n->in[1], n->in[2]}, 3, n->h);
    weft_gdn_run(n->d, n->y, n->qkv, n->alpha, n->beta, &n->gdn);
    weft_linear(n->d, &n->delta, (const weft_mat *[]){n->mix}, 1, n->y);
    weft_add_norm(n->d, n->x, n->delta, n->h, n->gain, 1e-6f);
    attend(n, n->q, n->k, n->v, n->o, &n->attention);
    weft_add_norm(n->d, n->x, n->delta, n->h, n->gain, 1e-6f);
    weft_linear(n->d, (weft_buf *[]){n->qkv2, n->alpha2, n->beta2}, (const weft_mat *[]){n->in2[0], n->in2[1], n->in2[2]}, 3, n->h);
    weft_gdn_run(n->d, n->y2, n->qkv2, n->alpha2, n->beta2, &n->gdn2);
    weft_linear(n->d, &n->delta, (const weft_mat *[]){n->mix2}, 1, n->y2);
    weft_add_norm(n->d, n->x, n->delta, n->h, n->gain, 1e-6f);
    weft_linear(n->d, &n->logits, (const weft_mat *[]){n->router}, 1, n->h);
    weft_route(n->d, n->ids, n->weights, n->logits, &(weft_router){.groups = 1, .top_groups = 1, .renormalise = true, .scale = 1});
    weft_experts(n->d, n->delta, n->h, n->ids, n->weights, n->up, n->down, WEFT_SILU);
    weft_add_norm(n->d, n->x, n->delta, n->hidden, n->gain, 1e-6f);
    weft_shift(n->d, n->shifted, n->hidden, n->carry);
    weft_embed(n->d, n->emb, n->embed, 1);
    weft_concat(n->d, n->pair, n->emb, n->shifted);
    weft_linear(n->d, &n->h, (const weft_mat *[]){n->pair_in}, 1, n->pair);
    attend(n, n->q2, n->k2, n->v2, n->o2, &n->attention2);
    weft_concat(n->d, n->out, n->hidden, n->delta);
}

/* ---- sequences, and what they are compared with -------------------------------------------------------------------------- */

/* A run of one row at a time on one thread: what row p gives, and slot and pages after p rows. */
typedef struct truth {
    int32_t tokens[LEN];
    float out[LEN][OUT];
    uint8_t *slot[LEN + 1]; /* [0] unused: a start has no slot */
    uint8_t *page[3];
    size_t slot_bytes;
} truth;

typedef struct seq {
    const truth *t;
    int pages[3];
    int slot, done, replay, journal;
} seq;

static void seq_start(net *n, seq *s, const truth *t, int first_page) {
    *s = (seq){.t = t};
    for (int i = 0; i < 3; i++) {
        s->pages[i] = (first_page + 7 * i) % N_PAGES;
        weft_page_poison(n->d, WEFT_PAGES_ALL, s->pages[i]);
        weft_page_clear(n->d, WEFT_PAGES_ALL, s->pages[i]);
    }
}

static void truth_make(truth *t, uint32_t id, const truth *prefix, int shared) {
    net n;
    seq s;
    weft_error e;
    assert_int_equal(net_open(&n, 1, "reference", false), WEFT_OK);
    for (int i = 0; i < LEN; i++) t->tokens[i] = i < shared ? prefix->tokens[i] : (int32_t)(hash(id, 1, (uint32_t)i) % VOCAB);
    seq_start(&n, &s, t, 0);
    t->slot_bytes = weft_slot_bytes(n.d);
    for (int p = 0; p < LEN; p++) {
        weft_span span = {.certain = 1, .pos = p, .slot_read = p ? 0 : -1, .journal = 1, .n_pages = {3}, .pages = {s.pages}};
        weft_step step = {.n_rows = 1, .n_spans = 1, .tokens = t->tokens + p, .spans = &span};
        weft_begin(n.d, &step);
        net_pass(&n);
        end_ok(n.d);
        read_into(n.d, n.out, 0, t->out[p]);
        t->slot[p + 1] = malloc(t->slot_bytes);
        assert_int_equal(weft_slot_io(n.d, 0, t->slot[p + 1], true, &e), WEFT_OK);
    }
    for (int i = 0; i < 3; i++) {
        t->page[i] = malloc(weft_page_bytes(n.d, WEFT_PAGES_ALL, WEFT_PAGE_ROWS));
        assert_int_equal(weft_page_io(n.d, WEFT_PAGES_ALL, s.pages[i], WEFT_PAGE_ROWS, t->page[i], true, &e), WEFT_OK);
    }
    for (int p = 0; p < LEN; p++)
        for (int i = 0; i < OUT; i++) assert_true(isfinite(t->out[p][i]));
    net_close(&n);
}
static void truth_free(truth *t) {
    for (int i = 1; i <= LEN; i++) free(t->slot[i]);
    for (int i = 0; i < 3; i++) free(t->page[i]);
}

static truth a_truth, b_truth; /* b shares a's first SHARED tokens */
enum { SHARED = 70 };

static void slot_is(net *n, const char *what, int slot, const truth *t, int done) {
    weft_error e;
    static uint8_t bytes[1 << 16];
    assert_true(t->slot_bytes <= sizeof bytes && weft_slot_bytes(n->d) == t->slot_bytes);
    assert_int_equal(weft_slot_io(n->d, slot, bytes, true, &e), WEFT_OK);
    same_bytes(what, done, bytes, t->slot[done], t->slot_bytes);
}
/* Rows [0, done) of a sequence's pages. Page bytes come by piece (layer, head, K or V), each [rows][ld]. */
static void pages_are(net *n, const seq *s) {
    weft_error e;
    size_t full = weft_page_bytes(n->d, WEFT_PAGES_ALL, WEFT_PAGE_ROWS), pieces = 2 * 2 * 2, ld = full / pieces / WEFT_PAGE_ROWS;
    uint8_t *bytes = malloc(full);
    for (int i = 0; i * WEFT_PAGE_ROWS < s->done; i++) {
        int rows = s->done - i * WEFT_PAGE_ROWS < WEFT_PAGE_ROWS ? s->done - i * WEFT_PAGE_ROWS : WEFT_PAGE_ROWS;
        assert_int_equal(weft_page_io(n->d, WEFT_PAGES_ALL, s->pages[i], rows, bytes, true, &e), WEFT_OK);
        for (size_t p = 0; p < pieces; p++)
            same_bytes("page", i, bytes + p * (size_t)rows * ld, s->t->page[i] + p * WEFT_PAGE_ROWS * ld, (size_t)rows * ld);
    }
    free(bytes);
}

typedef struct move {
    int certain, speculative, right; /* right: how many drafts are what follows indeed */
    int to;                          /* slot written */
    int n_snapshots, at[LEN], slot[LEN];
} move;

/* One step of up to four sequences, checked in everything it leaves. */
static void run_moves(net *n, seq *const *s, const move *m, int count) {
    weft_span spans[4];
    int32_t tokens[MAX_ROWS];
    int rows = 0;
    for (int i = 0; i < count; i++) {
        spans[i] = (weft_span){.row = rows,
                               .certain = m[i].certain,
                               .speculative = m[i].speculative,
                               .pos = s[i]->done,
                               .replay = s[i]->replay,
                               .slot_read = s[i]->done ? s[i]->slot : -1,
                               .slot_write = m[i].to,
                               .journal = 1 - s[i]->journal,
                               .n_pages = {3},
                               .pages = {s[i]->pages},
                               .n_snapshots = m[i].n_snapshots,
                               .snapshot_at = m[i].at,
                               .snapshot_slot = m[i].slot};
        for (int j = 0; j < m[i].certain; j++) tokens[rows++] = s[i]->t->tokens[s[i]->done + j];
        for (int j = 0; j < m[i].speculative; j++)
            tokens[rows++] = (s[i]->t->tokens[s[i]->done + m[i].certain + j] + (j >= m[i].right)) % VOCAB;
        if (m[i].to != spans[i].slot_read) weft_slot_poison(n->d, m[i].to);
        for (int j = 0; j < m[i].n_snapshots; j++) weft_slot_poison(n->d, m[i].slot[j]);
    }
    weft_begin(n->d, &(weft_step){.n_rows = rows, .n_spans = count, .tokens = tokens, .spans = spans});
    net_pass(n);
    end_ok(n->d);
    for (int i = 0; i < count; i++) {
        float out[OUT];
        for (int j = 0; j < m[i].certain + (m[i].right < m[i].speculative ? m[i].right : m[i].speculative); j++) {
            read_into(n->d, n->out, spans[i].row + j, out);
            same_bytes("row", s[i]->done + j, out, s[i]->t->out[s[i]->done + j], sizeof out);
        }
        for (int j = 0; j < m[i].n_snapshots; j++) slot_is(n, "snapshot", m[i].slot[j], s[i]->t, s[i]->done + m[i].at[j]);
        s[i]->done += m[i].certain;
        s[i]->replay = 0;
        s[i]->journal = 1 - s[i]->journal;
        if (spans[i].slot_read >= 0 && spans[i].slot_read != m[i].to)
            slot_is(n, "slot that was read", spans[i].slot_read, s[i]->t, spans[i].pos - spans[i].replay);
        s[i]->slot = m[i].to;
        slot_is(n, "slot", m[i].to, s[i]->t, s[i]->done);
    }
}
static void run_move(net *n, seq *s, move m) {
    run_moves(n, &s, &m, 1);
}
static void accept(seq *s, int count) {
    s->done += count;
    s->replay = count;
}
/* What a draft step reads: the hidden row before the pending token; it stores nothing. */
static void check_draft_step(net *n, const seq *s) {
    float row[HIDDEN];
    weft_span span = {.speculative = 1,
                      .pos = s->done,
                      .replay = s->replay,
                      .slot_read = s->slot,
                      .slot_write = s->slot,
                      .journal = 1 - s->journal,
                      .n_pages = {3},
                      .pages = {s->pages}};
    weft_begin(n->d, &(weft_step){.n_rows = 1, .n_spans = 1, .tokens = s->t->tokens, .spans = &span});
    weft_shift(n->d, n->shifted, NULL, n->carry);
    end_ok(n->d);
    read_into(n->d, n->shifted, 0, row);
    same_bytes("hidden row before a draft", s->done, row, s->t->out[s->done - 1], sizeof row);
}

/* ---- the promise --------------------------------------------------------------------------------------------------------- */

/* Conv window forgotten at a chunk border; SSM chunk kernels: every chunk size, every width and thread count. */
static void test_any_chunk(void **state) {
    (void)state;
    for (int i = 0; weft_isas[i / 3]; i++) {
        net n;
        if (!weft_isa_here(weft_isas[i / 3])) {
            if (i % 3 == 0 && !precise) print_message("skipped: %s, this processor cannot run it\n", weft_isas[i / 3]->name);
            continue;
        }
        assert_int_equal(net_open(&n, 1 + i % 3, weft_isas[i / 3]->name, false), WEFT_OK);
        assert_string_equal(weft_dev_isa(n.d), weft_isas[i / 3]->name);
        for (int chunk = 1; chunk <= LEN; chunk = chunk < 9 ? chunk + 1 : chunk < 64 ? chunk * 3 / 2 : chunk + 43) {
            seq s;
            seq_start(&n, &s, &a_truth, 3);
            while (s.done < LEN) run_move(&n, &s, (move){.certain = chunk < LEN - s.done ? chunk : LEN - s.done, .to = 1});
            pages_are(&n, &s);
        }
        for (int cut = 1; cut <= 70; cut++) { /* a prompt split at every position */
            seq s;
            seq_start(&n, &s, &a_truth, 3);
            run_move(&n, &s, (move){.certain = cut, .to = cut % 2});
            run_move(&n, &s, (move){.certain = 75 - cut, .to = 0});
            pages_are(&n, &s);
        }
        net_close(&n);
    }
}

/* V#50021: accepted count 0 -> index -1. Every number of drafts, of right ones, of accepted ones; then every kind of next pass. */
static void test_every_accept_count(void **state) {
    (void)state;
    net n;
    assert_int_equal(net_open(&n, 2, NULL, false), WEFT_OK);
    for (int drafts = 0; drafts <= DRAFTS; drafts++)
        for (int right = 0; right <= drafts; right++)
            for (int accepted = 0; accepted <= right; accepted++)
                for (int next = 0; next < 5; next++) {
                    seq s;
                    seq_start(&n, &s, &a_truth, 1);
                    run_move(&n, &s, (move){.certain = 60 + next, .to = 0}); /* page border inside the drafts in some */
                    run_move(&n, &s, (move){.certain = 1, .speculative = drafts, .right = right, .to = next == 1 ? 1 : 0});
                    accept(&s, accepted);
                    check_draft_step(&n, &s);
                    switch (next) {
                    case 0: run_move(&n, &s, (move){.certain = 1, .to = 0}); break;
                    case 1: run_move(&n, &s, (move){.certain = 7, .to = 0}); break; /* from slot 1 into slot 0 */
                    case 2: run_move(&n, &s, (move){.to = 0}); break;               /* flush in place */
                    case 3: run_move(&n, &s, (move){.to = 2}); break;               /* flush into another slot */
                    default:
                        run_move(&n, &s, (move){.certain = 1, .speculative = DRAFTS, .right = DRAFTS, .to = 0});
                        accept(&s, DRAFTS);
                    }
                    pages_are(&n, &s);
                    check_draft_step(&n, &s);
                    run_move(&n, &s, (move){.certain = 3, .speculative = 2, .right = 1, .to = s.slot});
                    pages_are(&n, &s);
                }
    net_close(&n);
}

/* Drafts at a sequence's very start: the pass has no state to read. */
static void test_drafts_at_the_start(void **state) {
    (void)state;
    net n;
    assert_int_equal(net_open(&n, 2, NULL, false), WEFT_OK);
    for (int accepted = 0; accepted <= DRAFTS; accepted++)
        for (int certain = 1; certain < 6; certain++) { /* shorter and longer than the convolution */
            seq s;
            seq_start(&n, &s, &a_truth, 1);
            run_move(&n, &s, (move){.certain = certain, .speculative = DRAFTS, .right = DRAFTS, .to = 0});
            accept(&s, accepted);
            run_move(&n, &s, (move){.certain = 2, .speculative = 1, .to = 0});
            pages_are(&n, &s);
        }
    weft_slot_poison(n.d, 5); /* a flush of nothing gives the empty state, whatever the slot held */
    weft_span span = {.slot_read = -1, .slot_write = 5};
    weft_begin(n.d, &(weft_step){.n_spans = 1, .spans = &span});
    net_pass(&n);
    end_ok(n.d);
    static uint8_t bytes[1 << 16], zero[1 << 16];
    weft_error e;
    assert_int_equal(weft_slot_io(n.d, 5, bytes, true, &e), WEFT_OK);
    same_bytes("empty state", 0, bytes, zero, a_truth.slot_bytes);
    net_close(&n);
}

/* Snapshots at every offset of a chunk at once equal the states of runs that stopped there; restored ones go on like them. */
static void test_snapshots(void **state) {
    (void)state;
    net n;
    assert_int_equal(net_open(&n, 3, NULL, false), WEFT_OK);
    for (int replay = 0; replay < 3; replay++) {
        seq s;
        seq_start(&n, &s, &a_truth, 2);
        run_move(&n, &s, (move){.certain = 40, .speculative = 3, .right = replay, .to = 0});
        accept(&s, replay);
        int start = s.done;
        move m = {.certain = 45, .speculative = 2, .right = 2, .to = 1, .n_snapshots = 45};
        for (int i = 0; i < 45; i++) m.at[i] = i + 1, m.slot[i] = 10 + i;
        run_move(&n, &s, m);
        pages_are(&n, &s);
        for (int i = 0; i < 45; i++) {
            seq again = s; /* restored at start + i + 1: the pages above are read, those below written anew */
            again.slot = 10 + i;
            again.done = start + i + 1;
            again.replay = 0;
            run_move(&n, &again, (move){.certain = 6, .speculative = 2, .right = 1, .to = 2});
            accept(&again, 1);
            run_move(&n, &again, (move){.certain = 1, .to = 2});
            slot_is(&n, "snapshot after its use", 10 + i, s.t, start + i + 1); /* MTPLX #247: the borrower must not write to it */
        }
    }
    net_close(&n);
}

/* Two sequences go on from one snapshot in one step, on full pages that they share; a slot's bytes carried through the host are the
 * slot. */
static void test_forks_and_slot_bytes(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        net n;
        weft_error e;
        assert_int_equal(net_open(&n, threads, NULL, false), WEFT_OK);
        seq a, b;
        seq_start(&n, &a, &a_truth, 2);
        seq_start(&n, &b, &b_truth, 5);
        run_move(&n, &a, (move){.certain = SHARED, .to = 0});
        size_t page_bytes = weft_page_bytes(n.d, WEFT_PAGES_ALL, SHARED - WEFT_PAGE_ROWS);
        uint8_t *page = malloc(page_bytes), *slot = malloc(weft_slot_bytes(n.d));
        assert_int_equal(weft_page_io(n.d, WEFT_PAGES_ALL, a.pages[1], SHARED - WEFT_PAGE_ROWS, page, true, &e), WEFT_OK);
        assert_int_equal(weft_page_io(n.d, WEFT_PAGES_ALL, b.pages[1], SHARED - WEFT_PAGE_ROWS, page, false, &e), WEFT_OK);
        b.pages[0] = a.pages[0];
        b.slot = 0;
        b.done = SHARED;
        b.journal = a.journal;
        seq *both[] = {&a, &b};
        run_moves(&n, both, (move[]){{.certain = 5, .to = 1}, {.certain = 9, .speculative = 2, .right = 2, .to = 2}}, 2);
        accept(&b, 2);
        slot_is(&n, "forked slot", 0, &a_truth, SHARED);
        run_moves(&n, both, (move[]){{.certain = 1, .speculative = 4, .right = 1, .to = 1}, {.certain = 1, .to = 2}}, 2);
        pages_are(&n, &a);
        pages_are(&n, &b);
        assert_int_equal(weft_slot_io(n.d, 2, slot, true, &e), WEFT_OK);
        weft_slot_poison(n.d, 2);
        assert_int_equal(weft_slot_io(n.d, 9, slot, false, &e), WEFT_OK);
        b.slot = 9;
        run_move(&n, &b, (move){.certain = 4, .to = 9});
        assert_int_equal(weft_slot_io(n.d, N_SLOTS, slot, true, &e), WEFT_EINVAL);
        assert_int_equal(weft_slot_io(n.d, -1, slot, true, &e), WEFT_EINVAL);
        assert_int_equal(weft_page_io(n.d, WEFT_PAGES_ALL, N_PAGES, 1, page, true, &e), WEFT_EINVAL);
        assert_int_equal(weft_page_io(n.d, WEFT_PAGES_ALL, 0, WEFT_PAGE_ROWS + 1, page, true, &e), WEFT_EINVAL);
        free(page), free(slot);
        net_close(&n);
    }
}

/* N identical sequences in one step give one answer (club-3090#896, L#28286), non-rectangular drafts included (xpu-kernels#600). */
static void test_identical_sequences(void **state) {
    (void)state;
    net n;
    assert_int_equal(net_open(&n, 2, NULL, false), WEFT_OK);
    seq s[4], *all[4];
    for (int i = 0; i < 4; i++) {
        seq_start(&n, &s[i], &a_truth, i);
        all[i] = &s[i];
    }
    int slots[4] = {7, 2, 30, 11}; /* L#25840: slots need not be neighbours */
    for (int step = 0; s[0].done + 12 < LEN || s[3].done + 12 < LEN; step++) {
        move m[4];
        int count = 0, who[4];
        seq *run[4];
        for (int i = 0; i < 4; i++) {
            if (s[i].done + 12 >= LEN) continue;
            m[count] = (move){.certain = s[i].done ? 1 : 10 + i, .speculative = (step + i) % (DRAFTS + 1), .to = slots[i]};
            m[count].right = m[count].speculative ? (step * 7 + i) % (m[count].speculative + 1) : 0;
            who[count] = i;
            run[count++] = all[i];
        }
        if (!count) break;
        run_moves(&n, run, m, count);
        for (int i = 0; i < count; i++) accept(&s[who[i]], m[i].right);
    }
    for (int i = 0; i < 4; i++) pages_are(&n, &s[i]);
    net_close(&n);
}

/* Anything after anything: chunks, drafts, flushes, changes of slot, snapshots, restores, two sequences beside each other. */
static void test_random_walks(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        net n;
        assert_int_equal(net_open(&n, threads, threads == 2 ? "reference" : NULL, false), WEFT_OK);
        for (int walk = 0; walk < 25; walk++) {
            seq s[2], *both[2] = {&s[0], &s[1]}, saved = {0};
            seq_start(&n, &s[0], &a_truth, below(N_PAGES));
            seq_start(&n, &s[1], &b_truth, s[0].pages[0] + 1);
            for (int steps = 0; steps < 60; steps++) {
                move m[2];
                int count = 0;
                seq *run[2];
                for (int i = 0; i < 2; i++) {
                    int room = LEN - s[i].done, kind = below(10);
                    if (!room || kind == 0) continue;
                    move *v = &m[count];
                    *v = (move){.to = below(3) ? s[i].slot : 20 * (i + 1) + below(4)};
                    if (!s[i].done) v->to = 20 * (i + 1);
                    v->certain = kind == 1 && s[i].done ? 0 : kind < 6 ? 1 : 1 + below(room < 30 ? room : 30);
                    v->speculative = v->certain ? below(DRAFTS + 1) : 0;
                    if (v->certain + v->speculative > room) v->speculative = room - v->certain;
                    v->right = v->speculative ? below(v->speculative + 1) : 0;
                    for (int at = 1 + below(6); at <= v->certain && v->n_snapshots < 4; at += 1 + below(9)) {
                        v->at[v->n_snapshots] = at;
                        v->slot[v->n_snapshots] = 20 * (i + 1) + 8 + v->n_snapshots;
                        v->n_snapshots++;
                    }
                    run[count++] = both[i];
                }
                if (!count) continue;
                int start[2] = {s[0].done, s[1].done};
                run_moves(&n, run, m, count);
                for (int i = 0; i < count; i++) {
                    accept(run[i], m[i].right ? below(m[i].right + 1) : 0);
                    if (run[i]->done && below(3) == 0) check_draft_step(&n, run[i]);
                    if (m[i].n_snapshots && below(6) == 0) { /* back to a snapshot of this step */
                        int k = below(m[i].n_snapshots);
                        saved = *run[i];
                        saved.done = start[run[i] - s] + m[i].at[k];
                        saved.slot = m[i].slot[k];
                        saved.replay = 0;
                        *run[i] = saved;
                        run_move(&n, run[i], (move){.to = 20 * (int)(run[i] - s + 1)}); /* copied by a flush */
                    }
                }
            }
            pages_are(&n, &s[0]);
            pages_are(&n, &s[1]);
        }
        net_close(&n);
    }
}

/* ---- faults, memory ------------------------------------------------------------------------------------------------------ */

static void everything(net *n, uint8_t *dst) {
    weft_error e;
    for (int i = 0; i < N_SLOTS; i++, dst += weft_slot_bytes(n->d)) assert_int_equal(weft_slot_io(n->d, i, dst, true, &e), WEFT_OK);
    for (int i = 0; i < N_PAGES; i++, dst += weft_page_bytes(n->d, WEFT_PAGES_ALL, 64))
        assert_int_equal(weft_page_io(n->d, WEFT_PAGES_ALL, i, 64, dst, true, &e), WEFT_OK);
}

static void test_bad_steps(void **state) {
    (void)state;
    net n;
    assert_int_equal(net_open(&n, 2, NULL, false), WEFT_OK);
    seq s, other;
    seq_start(&n, &s, &a_truth, 0);
    seq_start(&n, &other, &b_truth, 1);
    run_move(&n, &s, (move){.certain = 20, .speculative = 2, .right = 2, .to = 0});
    accept(&s, 2);
    run_move(&n, &other, (move){.certain = 10, .to = 1});
    size_t bytes = N_SLOTS * weft_slot_bytes(n.d) + N_PAGES * weft_page_bytes(n.d, WEFT_PAGES_ALL, 64);
    uint8_t *before = malloc(bytes), *after = malloc(bytes);
    everything(&n, before);
    const int at[2] = {1, 2}, slots[2] = {5, 6}, same_slots[2] = {5, 5}, far_pages[3] = {0, N_PAGES, 1},
              negative_pages[3] = {0, -1, 1};
    const int descending[2] = {2, 1}, beyond[2] = {1, 4}, zero[2] = {0, 1}, far_slots[2] = {5, N_SLOTS}, read_slot[2] = {5, 0},
              write_slot[2] = {5, 3};
    for (int fault = 0;; fault++) {
        weft_span spans[5] = {
            {.certain = 3,
             .speculative = 1,
             .pos = 22,
             .replay = 2,
             .slot_read = 0,
             .slot_write = 3,
             .journal = 1 - s.journal,
             .n_pages = {3},
             .pages = {s.pages},
             .n_snapshots = 2,
             .snapshot_at = at,
             .snapshot_slot = slots},
            {.row = 4, .certain = 1, .pos = 10, .slot_read = 1, .slot_write = 1, .n_pages = {3}, .pages = {other.pages}}};
        for (int i = 2; i < 5; i++) spans[i] = (weft_span){.row = 5, .slot_read = -1, .slot_write = 40 + i};
        weft_step step = {.n_rows = 5, .n_spans = 2, .tokens = a_truth.tokens, .spans = spans};
        weft_span *x = &spans[0];
        const int count = 36;
        if (fault == count) break;
        switch (fault) {
        case 0: x->row = 1; break;
        case 1: x->certain = -1; break;
        case 2: x->speculative = -1; break;
        case 3: x->pos = -1; break;
        case 4: x->speculative = DRAFTS + 1, step.n_rows = 9, spans[1].row = 8; break;
        case 5: x->replay = DRAFTS + 1; break;
        case 6: x->replay = -1; break;
        case 7: x->slot_read = -2; break;
        case 8: x->slot_read = N_SLOTS; break;
        case 9: x->slot_write = -1; break;
        case 10: x->slot_write = N_SLOTS; break;
        case 11: x->slot_read = -1; break;             /* a start that is not at 0 */
        case 12: x->slot_read = -1, x->pos = 0; break; /* ... and replays */
        case 13: x->journal = 2; break;
        case 14: x->journal = -1; break;
        case 15: x->n_pages[0] = 0; break;
        case 16: x->pos = 189; break; /* ends at 193 of 192 */
        case 17: x->pages[0] = far_pages; break;
        case 18: x->pages[0] = negative_pages; break;
        case 19: x->snapshot_at = descending; break;
        case 20: x->snapshot_at = beyond; break;
        case 21: x->snapshot_at = zero; break;
        case 22: x->snapshot_slot = far_slots; break;
        case 23: x->snapshot_slot = same_slots; break;
        case 24: x->snapshot_slot = read_slot; break;
        case 25: x->snapshot_slot = write_slot; break;
        case 26: spans[1].slot_write = 3; break; /* two writers */
        case 27: spans[1].slot_read = 3; break;  /* reads what the other writes */
        case 28: x->slot_write = 1; break;
        case 29: step.n_rows = 4; break; /* more rows in spans than in the step */
        case 30: step.n_rows = 6; break; /* and the other way round: the last row has no span */
        case 31: step.n_rows = MAX_ROWS + 1; break;
        case 32: step.n_rows = -1, step.n_spans = 0; break;
        case 33: step.n_spans = 5; break; /* more than planned */
        case 34: x->pos = 1; break;       /* replays more rows than there were */
        default: x->certain = INT32_MAX; break;
        }
        weft_error e = {0};
        weft_begin(n.d, &step);
        net_pass(&n);
        assert_int_equal(weft_end(n.d, &e), WEFT_EINVAL);
        assert_true(e.text[0] != 0);
        everything(&n, after);
        if (memcmp(before, after, bytes)) fail_msg("fault %d changed memory", fault);
    }
    free(before), free(after);
    run_move(&n, &s, (move){.certain = 3, .speculative = 1, .to = 0}); /* the device goes on */
    net_close(&n);
}

static void test_a_step_allocates_nothing(void **state) {
    (void)state;
    net n;
    assert_int_equal(net_open(&n, 2, NULL, false), WEFT_OK);
    seq s;
    seq_start(&n, &s, &a_truth, 0);
    uint64_t before = weft_alloc_count();
    run_move(&n, &s, (move){.certain = 30, .to = 0});
    run_move(&n, &s, (move){.certain = 1, .speculative = 4, .right = 2, .to = 0});
    accept(&s, 2);
    check_draft_step(&n, &s);
    run_move(&n, &s, (move){.certain = 100, .to = 1, .n_snapshots = 1, .at = {50}, .slot = {9}});
    weft_page_clear(n.d, WEFT_PAGES_ALL, 3);
    assert_int_equal(weft_alloc_count(), before);
    net_close(&n);
}

static void test_allocation_failures(void **state) {
    (void)state;
    for (uint64_t at = 1;; at++) {
        net n;
        weft_alloc_fail_at(at);
        weft_status s = net_open(&n, 2, NULL, false);
        weft_alloc_fail_at(0);
        net_close(&n); /* the address sanitizer sees what is left over */
        if (s == WEFT_OK) {
            assert_true(at > 50);
            return;
        }
        assert_int_equal(s, WEFT_ENOMEM);
    }
}

/* A dry device counts the same bytes, whatever the number of threads, and takes none. */
static void test_dry_plan(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads += 2) {
        net dry, real;
        weft_dev_memory a, b;
        assert_int_equal(net_open(&dry, threads, NULL, true), WEFT_OK);
        assert_int_equal(net_open(&real, threads, NULL, false), WEFT_OK);
        weft_dev_memory_get(dry.d, &a);
        weft_dev_memory_get(real.d, &b);
        assert_true(a.weights == b.weights && a.pages == b.pages && a.slots == b.slots && a.workspace == b.workspace &&
                    a.page[0] == b.page[0] && a.slot == b.slot);
        assert_true(a.pages == a.page[0] * N_PAGES && a.slots >= N_SLOTS * weft_slot_bytes(real.d) && a.workspace > 0 &&
                    a.weights > 0);
        assert_int_equal(weft_dev_threads(dry.d), threads);
        assert_int_equal(weft_dev_threads(real.d), threads);
        assert_int_equal(weft_slot_bytes(dry.d), weft_slot_bytes(real.d));
        net_close(&dry);
        net_close(&real);
    }
}

static int enter(void **state) {
    (void)state;
    seed = 7;
    truth_make(&a_truth, 1, NULL, 0);
    truth_make(&b_truth, 2, &a_truth, SHARED);
    return 0;
}
static int leave(void **state) {
    (void)state;
    truth_free(&a_truth);
    truth_free(&b_truth);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_chunk),
        cmocka_unit_test(test_every_accept_count),
        cmocka_unit_test(test_drafts_at_the_start),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_forks_and_slot_bytes),
        cmocka_unit_test(test_identical_sequences),
        cmocka_unit_test(test_random_walks),
        cmocka_unit_test(test_bad_steps),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_dry_plan),
    };
    weft_fpu_enter();
    int failed = 0;
    for (int mode = 0; mode < 3; mode++) {
        precise = mode == 2;
        kv = mode == 1 ? "int8" : NULL;
        print_message("%s\n", precise ? "precise" : kv ? "fast, int8 keys and values" : "fast");
        failed += cmocka_run_group_tests(tests, enter, leave);
    }
    return failed;
}

/* recurrent_walks.h: a recurrent operator run in all ways that a step allows, against one row at a time. A sequence may be cut into
 * passes, drafted, dropped, replayed, snapshot, restored, moved to another slot and spread over threads in any way, and its outputs
 * and slots are those of one row at a time. Included by one test program each, after LEN, the sequence's length, is defined. */
#ifndef WEFT_TESTS_RECURRENT_WALKS_H
#define WEFT_TESTS_RECURRENT_WALKS_H

#include "kernel_numbers.h"

enum { DRAFTS = 9, SLOTS = 6, MAX_ROWS = 400, SNAPSHOTS = 3 };

/* An operator on a device, with what its inputs are made of. Test programs have it as the first member of their own. */
typedef struct rig {
    weft_dev *d;
    weft_buf *y;
    int columns;                                         /* of y */
    void (*put)(struct rig *g, int row, uint32_t token); /* a row's inputs */
    void (*run)(struct rig *g);                          /* the operator */
    size_t slot_bytes;
} rig;

static inline uint32_t hash(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t x = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu ^ (c + 0x165667b1u) * 0xc2b2ae35u;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
static inline float made(uint32_t a, uint32_t b, uint32_t c) {
    return (float)((double)hash(a, b, c) * 0x1p-31 - 1);
}
static inline weft_coef *made_coef(weft_dev *d, uint32_t id, int n, float middle, float spread) {
    float *v = malloc((size_t)n * sizeof *v);
    weft_coef *c = NULL;
    weft_error e;
    for (int i = 0; i < n; i++) v[i] = middle + spread * made(id, 0, (uint32_t)i);
    assert_int_equal(weft_coef_make(d, v, n, &c, &e), WEFT_OK);
    free(v);
    return c;
}
/* Plans, once layers, buffers and coefficients are there. Nothing in slots is a number. */
static inline void rig_plan(rig *g) {
    weft_error e;
    assert_int_equal(
        weft_dev_plan(g->d, &(weft_plan){.max_rows = MAX_ROWS, .max_spans = 2, .max_draft = DRAFTS, .n_pages = {1}, .n_slots = SLOTS},
                      &e),
        WEFT_OK);
    g->slot_bytes = weft_slot_bytes(g->d);
    for (int i = 0; i < SLOTS; i++) weft_slot_poison(g->d, i);
}
static inline void run_step(rig *g, weft_span *spans, int n_spans) {
    static int pages[LEN / WEFT_PAGE_ROWS + 2]; /* all page 0: nothing here writes pages */
    weft_error e;
    int rows = 0;
    for (int i = 0; i < n_spans; i++) {
        spans[i].n_pages[WEFT_PAGES_ALL] = LEN / WEFT_PAGE_ROWS + 2;
        spans[i].pages[WEFT_PAGES_ALL] = pages;
        rows += spans[i].certain + spans[i].speculative;
    }
    weft_begin(g->d, &(weft_step){.n_rows = rows, .n_spans = n_spans, .spans = spans});
    g->run(g);
    if (weft_end(g->d, &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* A run of one row at a time on one thread with the reference kernels. */
typedef struct truth {
    uint32_t id;    /* token p of the sequence is id + p */
    float *y;       /* [LEN][columns] */
    uint8_t **slot; /* [LEN + 1]: after p rows; [0] unused */
} truth;
static inline uint8_t *slot_copy(rig *g, int slot) {
    weft_error e;
    uint8_t *bytes = malloc(g->slot_bytes);
    assert_int_equal(weft_slot_io(g->d, slot, bytes, true, &e), WEFT_OK);
    return bytes;
}
/* With a rig of its own, which it closes. */
static inline void truth_make(truth *t, rig *g, uint32_t id) {
    *t = (truth){.id = id, .y = malloc((size_t)(LEN * g->columns) * sizeof(float)), .slot = calloc(LEN + 1, sizeof *t->slot)};
    for (int p = 0; p < LEN; p++) {
        g->put(g, 0, id + (uint32_t)p);
        run_step(g, &(weft_span){.certain = 1, .pos = p, .slot_read = p ? 0 : -1}, 1);
        memcpy(t->y + p * g->columns, buf_row(g->y, 0), (size_t)g->columns * sizeof(float));
        t->slot[p + 1] = slot_copy(g, 0);
    }
    weft_dev_close(g->d);
}
static inline void truth_free(truth *t) {
    for (int p = 1; p <= LEN; p++) free(t->slot[p]);
    free(t->slot);
    free(t->y);
}

/* A sequence on its way. It owns three slots: the one it lives in, and two that snapshots go to. */
typedef struct walker {
    const truth *t;
    int slots[3], live, done, replay, journal; /* live: < 0 before the start */
    int kept[3];                               /* position of the snapshot in a slot; 0: none */
} walker;
static inline void slot_is(rig *g, const char *what, const walker *w, int slot, int pos) {
    uint8_t *bytes = slot_copy(g, slot);
    if (memcmp(bytes, w->t->slot[pos], g->slot_bytes)) fail_msg("%s after %d rows: the slot's bytes differ", what, pos);
    free(bytes);
}
/* A random move of one sequence. The arrays hold its snapshots. */
static inline weft_span plan_move(rig *g, walker *w, int row, int most, int *at, int *to, int *right) {
    if (w->done && below(12) == 0) { /* back to a snapshot, into another slot */
        int i = below(3), other = (i + 1 + below(2)) % 3;
        if (w->kept[i] && w->kept[i] < LEN && w->slots[i] != w->live) {
            w->done = w->kept[i], w->replay = 0, w->journal = 0;
            w->kept[other] = 0;
            weft_span s = {.row = row, .certain = 1, .pos = w->done, .slot_read = w->slots[i], .slot_write = w->slots[other]};
            weft_slot_poison(g->d, s.slot_write);
            g->put(g, row, w->t->id + (uint32_t)w->done);
            *right = 0;
            return s;
        }
    }
    int left = LEN - w->done - w->replay, kind = below(8);
    weft_span s = {.row = row, .pos = w->done + w->replay, .replay = w->replay, .slot_read = w->live, .journal = w->journal};
    s.slot_write = w->live < 0 ? w->slots[below(3)] : w->live;
    if (w->live >= 0 && below(5) == 0) s.slot_write = w->slots[below(3)];
    if (s.slot_write != w->live) weft_slot_poison(g->d, s.slot_write);
    if (kind && left) s.certain = kind < 4 ? 1 : kind < 6 ? 1 + below(9) : 1 + below(200);
    if (s.certain > left) s.certain = left;
    if (s.certain > most - DRAFTS) s.certain = most - DRAFTS;
    if (kind && below(3)) s.speculative = below(DRAFTS + 1);
    *right = s.speculative ? below(s.speculative + 1) : 0;
    if (*right > left - s.certain) *right = left - s.certain;
    for (int i = 0; i < s.certain + s.speculative; i++)
        g->put(g, row + i, i < s.certain + *right ? w->t->id + (uint32_t)(s.pos + i) : 1000000 + (uint32_t)below(1000));
    /* Snapshots into slots that are neither read nor written; one at a boundary of the operator's own pieces, if it can be. */
    for (int i = 0; i < 3 && s.certain; i++) {
        if (w->slots[i] == s.slot_read || w->slots[i] == s.slot_write || below(2)) continue;
        int p = below(4) == 0 ? s.certain : s.certain >= 64 && below(2) ? 64 : 1 + below(s.certain);
        if (s.n_snapshots && p <= at[s.n_snapshots - 1]) continue;
        weft_slot_poison(g->d, w->slots[i]);
        w->kept[i] = s.pos + p;
        at[s.n_snapshots] = p, to[s.n_snapshots++] = w->slots[i];
    }
    s.snapshot_at = at, s.snapshot_slot = to;
    return s;
}
static inline void check_move(rig *g, walker *w, const weft_span *s, int right) {
    for (int i = 0; i < s->certain + right; i++)
        same("a row", w->t->y + (s->pos + i) * g->columns, buf_row(g->y, s->row + i), g->columns);
    if (s->pos + s->certain) slot_is(g, "a pass", w, s->slot_write, s->pos + s->certain);
    for (int i = 0; i < s->n_snapshots; i++) slot_is(g, "a snapshot", w, s->snapshot_slot[i], s->pos + s->snapshot_at[i]);
    for (int i = 0; i < 3; i++)
        if (w->slots[i] == s->slot_write) w->kept[i] = 0;
    w->live = s->slot_write;
    w->done = s->pos + s->certain;
    w->replay = right;
    w->journal = 1 - s->journal;
}

/* Two sequences side by side on random ways, checked after every move. */
static inline void random_walks(rig *g, const truth *truths, int moves) {
    walker w[2] = {{.t = truths, .slots = {0, 1, 2}, .live = -1}, {.t = truths + 1, .slots = {3, 4, 5}, .live = -1}};
    for (int move = 0; move < moves; move++) {
        weft_span spans[2];
        int at[2][SNAPSHOTS], to[2][SNAPSHOTS], right[2], rows = 0;
        for (int i = 0; i < 2; i++) {
            spans[i] = plan_move(g, w + i, rows, (MAX_ROWS - rows) / (2 - i), at[i], to[i], right + i);
            rows += spans[i].certain + spans[i].speculative;
        }
        run_step(g, spans, 2);
        for (int i = 0; i < 2; i++) {
            check_move(g, w + i, spans + i, right[i]);
            if (w[i].done + w[i].replay == LEN && below(2)) { /* from the start again */
                w[i].live = -1;
                w[i].done = w[i].replay = w[i].journal = 0;
                for (int k = 0; k < 3; k++) w[i].kept[k] = 0;
            }
        }
    }
}

#endif

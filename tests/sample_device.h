/* sample_device.h: a device whose logits a test writes itself: rows of a buffer, and the same rows as the products of an output
 * head with one row for each column, which is exact in float32. */
#ifndef TESTS_SAMPLE_DEVICE_H
#define TESTS_SAMPLE_DEVICE_H

#include <stdlib.h>
#include <string.h>

#include "ops/cpu/cpu.h"

typedef struct sampling {
    weft_dev *d;
    int rows, vocab;
    weft_buf *logits, *x;
    weft_mat *table, *head; /* NULL: none */
    weft_mat *some;         /* the head's rows of a list of ids; NULL: none */
    weft_kept *p, *q, *target;
    bool *allowed;
    int32_t *tokens, *order;
    weft_span span;
    weft_step step;
} sampling;

typedef struct sampling_head {
    const float *logits; /* [rows][vocab]; NULL: the unit rows */
    int rows, vocab;
    const int32_t *ids; /* the columns that the head has; NULL: all */
} sampling_head;

static weft_status sampling_row(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    const sampling_head *h = ctx;
    (void)expert, (void)scale, (void)bias, (void)e;
    float *v = values;
    if (h->ids) row = h->ids[row];
    for (int r = 0; r < h->rows; r++) v[r] = h->logits ? h->logits[(size_t)r * (size_t)h->vocab + (size_t)row] : r == row;
    return WEFT_OK;
}
static weft_mat *sampling_mat(weft_dev *d, sampling_head h, int n) {
    weft_mat *m = NULL;
    weft_error e;
    weft_mat_desc desc = {.dtype = WEFT_F32, .experts = 1, .n = n, .k = h.rows, .name = "head", .read = sampling_row, .ctx = &h};
    assert_int_equal(weft_mat_make(d, &desc, &m, &e), WEFT_OK);
    return m;
}

/* head: logits [rows][vocab] of a head too; NULL: there is none. ids[n_ids]: those of one more head. */
static sampling sampling_open_some(int threads, const char *isa, int rows, int vocab, const float *head, const int32_t *ids,
                                   int n_ids) {
    sampling s = {.rows = rows, .vocab = vocab};
    weft_error e;
    assert_int_equal(weft_dev_open(&s.d, &(weft_dev_config){.threads = threads, .isa = isa, .precise = true}, &e), WEFT_OK);
    s.logits = weft_buf_make(s.d, NULL, rows, vocab);
    s.x = weft_buf_make(s.d, NULL, 0, rows);
    if (head) s.table = sampling_mat(s.d, (sampling_head){NULL, rows, rows, NULL}, rows);
    if (head) s.head = sampling_mat(s.d, (sampling_head){head, rows, vocab, NULL}, vocab);
    if (ids) s.some = sampling_mat(s.d, (sampling_head){head, rows, vocab, ids}, n_ids);
    s.p = weft_kept_make(s.d, rows, vocab);
    s.q = weft_kept_make(s.d, rows, vocab);
    s.target = weft_kept_make(s.d, rows, vocab);
    weft_pick_layer(s.d, rows, vocab);
    assert_int_equal(weft_dev_plan(s.d, &(weft_plan){.max_rows = rows, .max_spans = 1, .n_slots = 1}, &e), WEFT_OK);
    s.allowed = malloc((size_t)vocab);
    memset(s.allowed, 1, (size_t)vocab);
    s.tokens = malloc((size_t)rows * sizeof *s.tokens);
    s.order = malloc((size_t)rows * sizeof *s.order);
    for (int i = 0; i < rows; i++) s.tokens[i] = s.order[i] = i;
    return s;
}
static sampling sampling_open(int threads, const char *isa, int rows, int vocab, const float *head) {
    return sampling_open_some(threads, isa, rows, vocab, head, NULL, 0);
}
static void sampling_close(sampling *s) {
    weft_dev_close(s->d);
    free(s->allowed);
    free(s->tokens);
    free(s->order);
}
static void sampling_begin(sampling *s) {
    s->span = (weft_span){.certain = s->rows, .slot_read = -1};
    s->step = (weft_step){.n_rows = s->rows, .n_spans = 1, .tokens = s->tokens, .spans = &s->span};
    weft_begin(s->d, &s->step);
}
static void sampling_write(sampling *s, int row, const float *logits) {
    memcpy(buf_row(s->logits, row), logits, (size_t)s->vocab * sizeof *logits);
}
/* A step of picks only, from the buffer. */
static weft_status sampling_pick(sampling *s, const weft_pick *picks, int n, weft_picked *out) {
    weft_error e;
    sampling_begin(s);
    weft_pick_logits(s->d, s->logits, n, picks, s->allowed);
    for (int i = 0; i < n; i++) (void)weft_read_pick(s->d, i, &out[i], &e);
    return weft_end(s->d, &e);
}
static const float *sampling_kept(const weft_kept *k, int row) {
    return buf_row(k->logits, row);
}

#endif

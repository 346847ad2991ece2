/* support.h: kept rows of shaped logits: what top_k, top_p and min_p leave of them, and what a trial must know of them. */
#ifndef WEFT_OPS_CPU_SUPPORT_H
#define WEFT_OPS_CPU_SUPPORT_H

#include "ops/cpu/kernels.h"

#define WEFT_DRAW_PIECE 1024 /* columns that are taken together, and whose weights are summed first: part of the arithmetic */

static inline int pieces_of(int columns) {
    return (columns + WEFT_DRAW_PIECE - 1) / WEFT_DRAW_PIECE;
}
static inline int piece_length(int columns, int piece) {
    int left = columns - piece * WEFT_DRAW_PIECE;
    return left < WEFT_DRAW_PIECE ? left : WEFT_DRAW_PIECE;
}

/* As weft_draw_part() does on at most WEFT_DRAW_PIECE columns. */
void weft_draw_piece(const weft_dev *d, const weft_rule *rule, const float *shaped, const weft_columns *c, weft_best *best);
/* Truncates the kept row, of these columns, of a rule that truncates, draws from it, and notes beside it what a trial must know. */
weft_best weft_truncate(const weft_dev *d, const weft_pick *pick, const weft_columns *columns);
/* The largest of a row's logits, NaN if one is; those of blocks stay in d->support.most. */
float weft_row_largest(const weft_dev *d, const float *row, int vocab);
/* Leaves nothing in a row's support. */
void weft_row_clear(const weft_dev *d, float *row, int vocab);

/* trial.c: notes beside a kept row of a rule that does not truncate what a trial must know. */
void weft_keep_row(const weft_dev *d, const weft_pick *pick, const weft_columns *columns, const weft_picked *picked);

#endif

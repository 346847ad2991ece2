/* support.h: kept rows of shaped logits: what top_k, top_p and min_p leave of them, and trials of drafts. */
#ifndef WEFT_OPS_CPU_SUPPORT_H
#define WEFT_OPS_CPU_SUPPORT_H

#include "ops/cpu/kernels.h"

#define WEFT_DRAW_PIECE 1024 /* ids that are taken together */

/* As weft_draw_part() does on at most WEFT_DRAW_PIECE columns. */
void weft_draw_piece(const weft_dev *d, const weft_rule *rule, const float *shaped, const weft_columns *c, weft_best *best);
/* Truncates the kept row, of these columns, of a rule that truncates, draws from it, and notes beside it what a trial must know. */
weft_best weft_truncate(const weft_dev *d, const weft_pick *pick, const weft_columns *columns);
/* Notes that of a kept row of another rule. */
void weft_keep_row(const weft_dev *d, const weft_pick *pick, const weft_columns *columns, const weft_picked *picked);

#endif

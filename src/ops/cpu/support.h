/* support.h: kept rows of shaped logits: what top_k, top_p and min_p leave of them, and trials of drafts. */
#ifndef WEFT_OPS_CPU_SUPPORT_H
#define WEFT_OPS_CPU_SUPPORT_H

#include "ops/cpu/kernels.h"

#define WEFT_DRAW_PIECE 1024 /* ids that are taken together */

/* As weft_draw_part() does on n ids, at most WEFT_DRAW_PIECE of them. */
void weft_draw_piece(const weft_dev *d, const weft_rule *rule, const float *shaped, int32_t first, int n, weft_best *best);
/* Truncates the kept row of a rule that truncates, draws from it, and notes beside it what a trial must know. */
weft_best weft_truncate(const weft_dev *d, const weft_pick *pick, int vocab);
/* Notes that of a kept row of another rule. */
void weft_keep_row(const weft_dev *d, const weft_pick *pick, int vocab, const weft_picked *picked);

#endif

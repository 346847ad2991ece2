/* support.h: kept rows of shaped logits: what top_k, top_p and min_p leave of them, and trials of drafts. */
#ifndef WEFT_OPS_CPU_SUPPORT_H
#define WEFT_OPS_CPU_SUPPORT_H

#include "ops/cpu/kernels.h"

/* Truncates the kept row of a rule that truncates, and draws from it. */
void weft_truncate(const weft_dev *d, const weft_pick *pick, int vocab, weft_best *best);
/* Notes beside the kept row what a trial must know. */
void weft_keep_row(const weft_dev *d, const weft_pick *pick, int vocab, const weft_picked *picked);

#endif

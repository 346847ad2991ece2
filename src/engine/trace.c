/* trace.c: see trace.h. */
#include "engine/trace.h"

#include "base/rng.h"

int32_t weft_trace_draft(const weft_trace *t, size_t at, int depth, int vocab, int32_t own) {
    size_t i = at + (size_t)depth;
    if (i >= t->n) return own;
    uint32_t r[4];
    weft_philox(t->seed, (uint32_t[]){(uint32_t)at, (uint32_t)depth, 0, 0}, r);
    double p = (double)t->share[depth] * (1 - (double)t->loss);
    if ((double)r[0] < p * 4294967296.0) return t->answer[i];
    uint32_t other = r[1] % (uint32_t)(vocab - 1); /* any but the right one */
    return (int32_t)(other < (uint32_t)t->answer[i] ? other : other + 1);
}

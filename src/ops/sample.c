/* sample.c: see sample.h. */
#include "ops/sample.h"

#include "base/rng.h"

/* A NaN fails both comparisons, an infinity one. */
static bool finite(float x) {
    return x <= 3.402823466e38f && x >= -3.402823466e38f;
}

void weft_sample_part(const weft_sampler *s, const float *logits, int32_t first, int n, const bool *allowed, uint32_t index,
                      weft_best *best) {
    weft_best b = *best;
    for (int32_t i = 0; i < n; i++) {
        if (!allowed[i]) continue;
        if (!finite(logits[i])) b.bad = true;
        double x = logits[i];
        if (s->temperature > 0) {
            uint64_t bits = weft_gumbel_bits(s->seed, s->choice, index, (uint32_t)(first + i));
            if (b.id >= 0 && x + s->temperature * weft_gumbel_bound(bits) < b.score) continue; /* cannot win: no logarithms */
            x += s->temperature * weft_gumbel_of(bits);
        }
        if (b.id < 0 || x > b.score) {
            b.id = first + i;
            b.score = x;
        }
    }
    *best = b;
}

void weft_best_merge(weft_best *best, const weft_best *other) {
    bool bad = best->bad || other->bad;
    bool better =
        other->id >= 0 && (best->id < 0 || other->score > best->score || (other->score == best->score && other->id < best->id));
    if (better) *best = *other;
    best->bad = bad;
}

int32_t weft_sample(const weft_sampler *s, const float *logits, int n, const bool *allowed, uint32_t index) {
    weft_best best = WEFT_NO_BEST;
    weft_sample_part(s, logits, 0, n, allowed, index, &best);
    return best.bad ? -1 : best.id;
}

/* sample.c: see sample.h. */
#include "engine/sample.h"

#include "base/rng.h"

/* A NaN fails both comparisons, an infinity one. */
static bool finite(float x) {
    return x <= 3.402823466e38f && x >= -3.402823466e38f;
}

int32_t weft_sample(const weft_sampler *s, const float *logits, int n, const bool *allowed, uint32_t index) {
    int32_t best = -1;
    double score = 0;
    for (int32_t id = 0; id < n; id++) {
        if (!allowed[id]) continue;
        if (!finite(logits[id])) return -1;
        double x = logits[id];
        if (s->temperature > 0) {
            uint64_t bits = weft_gumbel_bits(s->seed, s->choice, index, (uint32_t)id);
            if (best >= 0 && x + s->temperature * weft_gumbel_bound(bits) < score) continue; /* cannot win: no logarithms */
            x += s->temperature * weft_gumbel_of(bits);
        }
        if (best < 0 || x > score) {
            best = id;
            score = x;
        }
    }
    return best;
}

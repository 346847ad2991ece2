/* tally.c: see tally.h. */
#include "ops/tally.h"

#include <string.h>

/* Where id is, or would be. */
static size_t place_of(const weft_tally *t, int32_t id) {
    size_t low = 0, high = t->ids.n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->ids.v[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

weft_status weft_tally_add(weft_tally *t, const int32_t *ids, int n, bool completion, weft_error *e) {
    if (n < 1) return WEFT_OK;
    if (!weft_vec_reserve(&t->ids, t->ids.n + (size_t)n)) return weft_fail_oom(e, "counting tokens");
    for (int i = 0; i < n; i++) {
        size_t at = place_of(t, ids[i]);
        weft_seen *s = t->ids.v + at;
        if (at == t->ids.n || s->id != ids[i]) {
            memmove(s + 1, s, (t->ids.n - at) * sizeof *s);
            t->ids.n++;
            *s = (weft_seen){.id = ids[i]};
        }
        s->times += completion;
    }
    return WEFT_OK;
}

void weft_tally_free(weft_tally *t) {
    weft_vec_free(&t->ids);
}

/* tally.h: the ids that a request has seen, for penalties: ascending, each with the number of times that it came in the completion.
 */
#ifndef WEFT_OPS_TALLY_H
#define WEFT_OPS_TALLY_H

#include "base/vec.h"
#include "ops/sample.h"

typedef struct weft_tally {
    WEFT_VEC(weft_seen) ids;
} weft_tally; /* {0} is empty */

/* Adds n ids of the prompt, or of the completion. On WEFT_ENOMEM the tally is unchanged. */
weft_status weft_tally_add(weft_tally *t, const int32_t *ids, int n, bool completion, weft_error *e);
void weft_tally_free(weft_tally *t);

#endif

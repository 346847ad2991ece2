/* stop.h: stop strings in a text that comes piece by piece.
 *
 * The first to be complete is found, byte by byte as it were, the longest of several that end there: so what is found does not
 * depend on where pieces begin and end. What could be the beginning of one is held back, no byte more. */
#ifndef WEFT_ENGINE_STOP_H
#define WEFT_ENGINE_STOP_H

#include "base/str.h"

typedef struct weft_stop {
    char *strings[WEFT_MAX_STOP]; /* the first n */
    int n;
    weft_str held; /* undecided text; new text is appended here */
} weft_stop;       /* {0}: no strings */

/* Copies n strings. WEFT_EINVAL: too many, an empty, too long or malformed one. */
weft_status weft_stop_open(weft_stop *s, const char *const *strings, size_t n, weft_error *e);
void weft_stop_close(weft_stop *s);

/* Moves what is decided from held to out: all of it with `plain`, which looks for no stop string. *found: the stop string that is
 * complete, the text before which is then in out and the rest dropped; -1: none. On WEFT_ENOMEM out is unchanged. */
weft_status weft_stop_take(weft_stop *s, bool plain, weft_str *out, int *found, weft_error *e);

#endif

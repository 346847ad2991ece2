/* stop.h: stop strings in a text that comes piece by piece.
 *
 * The first to be complete is found, byte by byte as it were, the longest of several that end there: so what is found does not
 * depend on where pieces begin and end. */
#ifndef WEFT_ENGINE_STOP_H
#define WEFT_ENGINE_STOP_H

#include "base/str.h"

typedef struct weft_stop {
    char *strings[WEFT_MAX_STOP]; /* the first n */
    int n;
    size_t longest; /* bytes */
} weft_stop;        /* {0}: no strings */

/* Copies n strings. WEFT_EINVAL: too many, an empty, too long or malformed one. */
weft_status weft_stop_open(weft_stop *s, const char *const *strings, size_t n, weft_error *e);
void weft_stop_close(weft_stop *s);

/* The stop string that is complete in text[from..), and where it begins; -1: there is none, and *at is where text begins that may
 * become one, text->n: nowhere. */
int weft_stop_search(const weft_stop *s, const weft_str *text, size_t from, size_t *at);

#endif

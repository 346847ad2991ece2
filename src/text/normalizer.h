/* normalizer.h: the steps that a tokenizer.json takes with a text before it is cut, and with a token's text when it is decoded. */
#ifndef WEFT_TEXT_NORMALIZER_H
#define WEFT_TEXT_NORMALIZER_H

#include "base/str.h"
#include "text/normalize.h"

#define WEFT_NORMAL_STEPS 8    /* of one tokenizer */
#define WEFT_NORMAL_LONGEST 64 /* bytes that a step looks for or puts in */
#define WEFT_NORMAL_GROWTH 64  /* how many times longer than a text its result may be: bounds what a damaged file can ask for */

typedef struct weft_normal_step {
    enum { WEFT_NORMAL_NFC, WEFT_NORMAL_REPLACE, WEFT_NORMAL_PREPEND } kind;
    char from[WEFT_NORMAL_LONGEST], to[WEFT_NORMAL_LONGEST]; /* REPLACE: every `from` by `to`; PREPEND: `to`, unless empty */
    size_t n_from, n_to;
} weft_normal_step;

typedef struct weft_normalizer {
    weft_normal_step step[WEFT_NORMAL_STEPS];
    int n;
    double growth; /* of the steps so far, 0 being 1 */
} weft_normalizer; /* zero-initialise */

/* Appends a step; n_from and n_to are checked. */
weft_status weft_normalizer_add(weft_normalizer *r, const weft_normal_step *step, weft_error *e);

typedef struct weft_normal_work {
    weft_str text, spare;
    weft_codepoints marks;
} weft_normal_work; /* zero-initialise */
void weft_normal_work_free(weft_normal_work *w);

/* w->text becomes s[0..n), repaired (utf8.h), after all steps. False when memory is short. */
bool weft_normalize(const weft_normalizer *r, weft_normal_work *w, const char *s, size_t n);

#endif

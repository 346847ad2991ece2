/* split.h: cutting text into the pieces that byte pair encoding may not merge across.
 *
 * The regular expressions come from tokenizer.json, where they are written for Oniguruma; PCRE2 runs them, compiled to machine
 * code where the system allows it. Constructs that mean something else in PCRE2 are translated or refused, never taken over.
 * Character classes follow the Unicode version of the installed PCRE2: characters younger than that are split like symbols. */
#ifndef WEFT_TEXT_SPLIT_H
#define WEFT_TEXT_SPLIT_H

#include <stdbool.h>

#include "base/error.h"

#define WEFT_SPLIT_MOST 8 /* expressions of one tokenizer, applied one after the other */

typedef struct weft_split {
    struct weft_split_rule *rule[WEFT_SPLIT_MOST];
    int n;
} weft_split; /* zero-initialise */

/* What becomes of a match: a piece of its own; a part of the piece before it or after it (of that which did not match; two matches
 * in a row stay apart); one piece with the matches next to it; nothing. */
typedef enum weft_split_behavior {
    WEFT_SPLIT_ISOLATED,
    WEFT_SPLIT_MERGED_WITH_PREVIOUS,
    WEFT_SPLIT_MERGED_WITH_NEXT,
    WEFT_SPLIT_CONTIGUOUS,
    WEFT_SPLIT_REMOVED,
} weft_split_behavior;

typedef struct weft_split_how {
    weft_split_behavior behavior;
    bool literal; /* the pattern is a text, not an expression */
    bool invert;  /* what lies between matches counts as the match */
} weft_split_how;

/* Adds an expression, by which every piece so far is cut further. */
weft_status weft_split_add(weft_split *s, const char *pattern, size_t n, weft_split_how how, weft_error *e);
void weft_split_free(weft_split *s);

/* Takes one piece, never empty. */
typedef weft_status (*weft_piece_sink)(void *ctx, const char *piece, size_t n, weft_error *e);

/* Cuts text[0..n), well-formed UTF-8, and hands the pieces over in order. Safe to call from several threads. */
weft_status weft_split_run(const weft_split *s, const char *text, size_t n, weft_piece_sink sink, void *ctx, weft_error *e);

#endif

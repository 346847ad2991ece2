/* added.h: finding added tokens ("<|im_start|>", "<think>") in text.
 *
 * The tokens lie sorted by their bytes; a search narrows the range of those that begin like the text, byte by byte. At any place
 * the longest token wins. */
#ifndef WEFT_TEXT_ADDED_H
#define WEFT_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokenizer.h"

#define WEFT_ADDED_LONGEST 1024 /* bytes of an added token: bounds the time per byte of text */

typedef struct weft_added_token {
    const char *text; /* kept by the caller, unchanged while the list is used */
    size_t n;         /* 1 .. WEFT_ADDED_LONGEST */
    int32_t id;
    bool special;
    bool lstrip, rstrip; /* white space before it, behind it belongs to it */
    bool single_word;    /* not inside of a word */
} weft_added_token;

typedef struct weft_added {
    weft_added_token *v; /* after weft_added_sort: ascending */
    size_t n, cap;
    size_t first[257]; /* tokens that begin with byte b: v[first[b]] .. v[first[b + 1]] */
} weft_added;          /* a vector; zero-initialise, fill by weft_vec_push, then sort */

/* Sorts; false if two tokens have the same text, *twice then tells which. */
bool weft_added_sort(weft_added *a, const weft_added_token **twice);

/* The longest token that s[0..n) begins with, NULL if none. Special tokens count only up to a length of `special`. */
const weft_added_token *weft_added_at(const weft_added *a, const char *s, size_t n, size_t special);

/* Finds the tokens of a text from left to right. Zero-initialise; set list, s, n, and parts where special tokens may occur. */
typedef struct weft_added_scan {
    const weft_added *list;
    const char *s; /* [n] UTF-8, well-formed or not */
    size_t n;
    const weft_text_part *parts; /* that make up s; NULL: no token is special */
    size_t at;                   /* where the search goes on */
    size_t done;                 /* s[0..done) has been handed out, as tokens or as what lies before them */
    size_t blank;                /* the white space that was last looked at ends here */
    size_t part, part_end;       /* parts[0..part) end at part_end, ... */
    bool special;                /* ... those around `at` being all of this kind */
} weft_added_scan;

/* The next token's id, -1 at the end. Before it lies s[*from..*to), perhaps nothing; at the end, that is what is left. */
int32_t weft_added_next(weft_added_scan *scan, size_t *from, size_t *to);

#endif

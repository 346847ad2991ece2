/* added.h: finding added tokens ("<|im_start|>", "<think>") in text.
 *
 * The tokens lie sorted by their bytes; a search narrows the range of those that begin like the text, byte by byte. At any place
 * the longest token wins. */
#ifndef WEFT_TEXT_ADDED_H
#define WEFT_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_ADDED_LONGEST 1024 /* bytes of an added token: bounds the time per byte of text */

typedef struct weft_added_token {
    const char *text; /* kept by the caller, unchanged while the list is used */
    size_t n;         /* 1 .. WEFT_ADDED_LONGEST */
    int32_t id;
    bool special;
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

#endif

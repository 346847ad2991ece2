/* utf8.h: UTF-8, well-formed or not.
 *
 * Bytes that are not UTF-8 are replaced by U+FFFD, one for each maximal part of a character that was cut off or spoilt, and one
 * for each other byte: what the Unicode standard (3.9, "U+FFFD substitution of maximal subparts") recommends and what Python and
 * Rust do, so that text, ids and replies come out the same everywhere. */
#ifndef WEFT_TEXT_UTF8_H
#define WEFT_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define WEFT_UTF8_BAD (-1) /* these bytes begin no character */
#define WEFT_UTF8_CUT (-2) /* the text ends inside this character: more bytes could still complete it */
#define WEFT_REPLACEMENT 0xFFFD

/* Reads one character at s[0..n), n > 0: its code point into *cp and its length (1..4). For anything else *cp is BAD or CUT and
 * the length (1..3) that of the part which one U+FFFD replaces. */
size_t weft_utf8_next(const char *s, size_t n, int32_t *cp);

/* Writes a code point, returns its length (1..4). */
size_t weft_utf8_put(char out[4], int32_t cp);

/* Appends s[0..n), repaired. False when memory is short; the string is then unchanged. */
bool weft_utf8_add(weft_str *out, const char *s, size_t n);

#endif

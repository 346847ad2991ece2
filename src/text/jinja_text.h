/* jinja_text.h: what Python does with the characters of a string, for the interpreter's files: whitespace, case, numbers, repr. */
#ifndef WEFT_TEXT_JINJA_TEXT_H
#define WEFT_TEXT_JINJA_TEXT_H

#include "text/jinja_value.h"

/* What str.isspace() says, and so what strip() takes off and split() splits at. */
bool weft_jj_is_space(int32_t cp);
size_t weft_jj_space_left(const char *p, size_t n);    /* bytes of whitespace at the beginning */
size_t weft_jj_trimmed_right(const char *p, size_t n); /* length without the whitespace at the end */
/* Where a line ends, as splitlines() sees it: the length of the line end at p, 0 for none. */
size_t weft_jj_line_end(const char *p, size_t n);

/* The first (last) place of needle in s[from..to), SIZE_MAX for none. The work is accounted for. */
bool weft_jj_search(jj *j, const jj_str *s, const jj_str *needle, size_t from, size_t to, bool last, size_t *at);

typedef enum jj_case { JJ_UPPER, JJ_LOWER, JJ_CAPITALIZE, JJ_TITLE, JJ_SWAP } jj_case;
/* s[from..to) as str.upper(), lower(), capitalize(), title() and swapcase() write it. */
void weft_jj_add_case(jj_sb *b, const jj_str *s, size_t from, size_t to, jj_case how);

void weft_jj_add_int(jj_sb *b, int64_t i);
void weft_jj_add_float(jj_sb *b, double f); /* repr(): shortest that reads back */
void weft_jj_add_quoted(jj_sb *b, const jj_str *s);
/* printf into the string, with '.' as the point; the result has at most 1500 bytes. */
void weft_jj_add_format(jj_sb *b, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* int(text, base), base 0 as in source text; false for what Python refuses. */
bool weft_jj_parse_int(jj *j, const char *p, size_t n, int base, jj_value *out);
bool weft_jj_parse_float(const char *p, size_t n, jj_value *out);
/* The whole part of a float, as int() gives it; false for NaN and infinity. */
bool weft_jj_float_to_int(jj *j, double f, jj_value *out);

#endif

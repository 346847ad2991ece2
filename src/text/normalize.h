/* normalize.h: repairing and normalising text before it is split. */
#ifndef WEFT_TEXT_NORMALIZE_H
#define WEFT_TEXT_NORMALIZE_H

#include "base/str.h"
#include "base/vec.h"

#include <stdint.h>

typedef WEFT_VEC(int32_t) weft_codepoints;

/* Appends s[0..n) as well-formed UTF-8 in Unicode normalisation form C. Linear in n, whatever the text; `work` is scratch memory
 * that a caller keeps between calls and frees. False when memory is short. */
bool weft_nfc(weft_str *out, const char *s, size_t n, weft_codepoints *work);

#endif

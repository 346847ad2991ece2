/* byte_tokens.h: the tokens of all bytes, ids 0 to 255, as they stand in the vocabulary of a tokenizer.json: in the alphabet of
 * bytes, or as <0x0A>. */
#ifndef WEFT_TESTS_FUZZ_BYTE_TOKENS_H
#define WEFT_TESTS_FUZZ_BYTE_TOKENS_H

#include <stdlib.h>

#include "base/str.h"
#include "text/utf8.h"

static inline void require(bool ok) {
    if (!ok) abort();
}

static inline void add_byte_tokens(weft_str *s) {
    int other = 256;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char c[4];
        size_t n = weft_utf8_put(c, printable ? b : other++);
        require(weft_str_addf(s, "%s\"%s%.*s\":%d", b ? "," : "", b == '"' || b == '\\' ? "\\" : "", (int)n, c, b));
    }
}

static inline void add_fallback_tokens(weft_str *s) {
    for (int b = 0; b < 256; b++) require(weft_str_addf(s, "%s\"<0x%02X>\":%d", b ? "," : "", (unsigned)b, b));
}

#endif

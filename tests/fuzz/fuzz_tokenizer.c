/* fuzz_tokenizer.c: a tokenizer.json from a stranger. What is accepted must encode a text and decode it again. A file needs a token
 * for each byte, which no fuzzer writes: where the input has "vocab":{@ the 256 tokens are put in for the @. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static void require(bool ok) {
    if (!ok) abort();
}

/* The tokens of all bytes, ids 0 to 255, as they stand in a tokenizer.json. */
static void add_bytes(weft_str *s) {
    int other = 256;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char c[4];
        size_t n = weft_utf8_put(c, printable ? b : other++);
        require(weft_str_addf(s, "%s\"%s%.*s\":%d", b ? "," : "", b == '"' || b == '\\' ? "\\" : "", (int)n, c, b));
    }
}

static void expand(weft_str *s, const char *data, size_t size) {
    static const char mark[] = "\"vocab\":{@";
    for (size_t at = 0; at + strlen(mark) <= size; at++) {
        if (memcmp(data + at, mark, strlen(mark)) != 0) continue;
        require(weft_str_add(s, data, at + strlen(mark) - 1));
        add_bytes(s);
        data += at + strlen(mark);
        size -= at + strlen(mark);
        break;
    }
    require(weft_str_add(s, data, size));
}

static void check(const weft_tokenizer *t) {
    static const char text[] = "Hello  <|im_end|>we've\n\n 12e\xCC\x81\xFF\xEA\xB0\x80<think>";
    weft_error e;
    weft_ids ids = {0};
    weft_str back = {0}, want = {0};
    weft_text_part parts[2] = {{text, 9, false}, {text + 9, sizeof text - 10, true}};
    size_t n;
    const int32_t *prefix = weft_tokenizer_prefix(t, &n);
    for (size_t i = 0; i < n; i++) require(weft_tokenizer_valid(t, prefix[i]));
    for (int32_t id = -1; id <= 400; id++) {
        const char *bytes = weft_tokenizer_bytes(t, id, &n);
        require((bytes != NULL) == weft_tokenizer_valid(t, id));
        if (bytes) require(weft_str_add(&want, bytes, n));
    }
    weft_str_clear(&want);
    if (weft_tokenizer_encode(t, parts, 2, &ids, &e) == WEFT_OK) {
        for (size_t i = 0; i < ids.n; i++) require(weft_tokenizer_valid(t, ids.v[i]));
        require(weft_tokenizer_decode(t, ids.v, ids.n, true, &back, &e) == WEFT_OK && back.n > 0);
    } else { /* a split expression that gave up */
        require(e.text[0] && ids.n == 0);
    }
    weft_vec_free(&ids);
    weft_str_free(&back);
    weft_str_free(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    weft_str json = {0};
    weft_tokenizer *t;
    weft_error e = {0};
    expand(&json, (const char *)data, size);
    char *exact = malloc(json.n ? json.n : 1); /* a byte too far is seen */
    require(exact);
    if (json.n) memcpy(exact, json.p, json.n);
    if (weft_tokenizer_parse(&t, exact, json.n, &e) == WEFT_OK)
        check(t);
    else
        require(!t && e.text[0]);
    weft_tokenizer_close(t);
    free(exact);
    weft_str_free(&json);
    return 0;
}

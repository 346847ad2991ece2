/* fuzz_tokenizer.c: a tokenizer.json from a stranger. What is accepted must encode a text and decode it again. A file needs a token
 * for each byte, which no fuzzer writes: where the input has "vocab":{@ the 256 tokens are put in for the @, in the alphabet of
 * bytes, and for "vocab":{& those called <0x0A>. */
#include <stdint.h>
#include <string.h>

#include "byte_tokens.h"
#include "text/tokenizer.h"

static void expand(weft_str *s, const char *data, size_t size) {
    static const char mark[] = "\"vocab\":{";
    size_t n = strlen(mark) + 1, at = 0;
    while (at + n <= size && (memcmp(data + at, mark, n - 1) != 0 || !strchr("@&", data[at + n - 1]))) at++;
    if (at + n <= size && data[at + n - 1]) {
        require(weft_str_add(s, data, at + n - 1));
        if (data[at + n - 1] == '@')
            add_byte_tokens(s);
        else
            add_fallback_tokens(s);
        data += at + n;
        size -= at + n;
    }
    require(weft_str_add(s, data, size));
}

static void check(const weft_tokenizer *t) {
    static const char text[] = "Hello  <|im_end|>we've\n\n\xE2\x96\x81 12e\xCC\x81\xFF\xEA\xB0\x80<think>";
    const weft_text_part parts[2] = {{text, 9, false}, {text + 9, sizeof text - 10, true}};
    weft_error e = {0};
    weft_ids ids = {0};
    weft_str back = {0};
    size_t n;
    const int32_t *prefix = weft_tokenizer_prefix(t, &n);
    for (size_t i = 0; i < n; i++) require(weft_tokenizer_valid(t, prefix[i]));
    for (int32_t id = -1; id <= 400; id++) require((weft_tokenizer_bytes(t, id, &n) != NULL) == weft_tokenizer_valid(t, id));
    if (weft_tokenizer_encode(t, parts, 2, &ids, &e) == WEFT_OK) {
        require(weft_tokenizer_decode(t, ids.v, ids.n, true, &back, &e) == WEFT_OK);
    } else { /* a split expression that gave up */
        require(e.text[0] && ids.n == 0);
    }
    weft_vec_free(&ids);
    weft_str_free(&back);
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

/* text_tokenizer.h: a tiny tokenizer.json, made to order. The token of byte b has the id b; merges make the ids 256, 257, ... in
 * their order. Included by one test program each. */
#ifndef WEFT_TESTS_TEXT_TOKENIZER_H
#define WEFT_TESTS_TEXT_TOKENIZER_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* The split expression of Qwen3.5, as it stands in JSON. */
#define QWEN35_PATTERN                                                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}| "                                    \
    "?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(pattern)                                                                                                             \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                              \
    "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"
#define ADDED(id, content, special) "{\"id\":" #id ",\"content\":\"" content "\",\"special\":" special ",\"normalized\":false}"
#define CHAT_TOKENS                                                                                                                \
    ADDED(1000, "<|endoftext|>", "true")                                                                                           \
    "," ADDED(1001, "<|im_start|>", "true") "," ADDED(1002, "<|im_end|>", "true") "," ADDED(1003, "<think>", "false")

typedef struct tiny {
    const char *merges[16];    /* "left", "right", ... in the byte alphabet; NULL ends them */
    const char *added;         /* items of added_tokens; NULL: CHAT_TOKENS */
    const char *normalizer;    /* JSON; NULL: NFC */
    const char *pre_tokenizer; /* JSON; NULL: Qwen3.5's */
    const char *model;         /* fields more, each with a comma at its end */
    const char *root;
    bool old_merges; /* "left right" instead of ["left", "right"] */
} tiny;

/* GPT-2's character for a byte, computed as its inventors do: the printable ones first, then the others in order. */
static inline int32_t byte_character(int byte) {
    int other = 256;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        if (b == byte) return printable ? b : other;
        other += !printable;
    }
    return -1;
}

/* Freed by weft_str_free(). */
static inline weft_str tiny_json(const tiny *d) {
    weft_str s = {0};
    weft_str_addf(&s, "{\"version\":\"1.0\",%s\"added_tokens\":[%s],", d->root ? d->root : "", d->added ? d->added : CHAT_TOKENS);
    weft_str_addf(&s, "\"normalizer\":%s,", d->normalizer ? d->normalizer : "{\"type\":\"NFC\"}");
    weft_str_addf(&s, "\"pre_tokenizer\":%s,", d->pre_tokenizer ? d->pre_tokenizer : SPLIT(QWEN35_PATTERN));
    weft_str_addf(&s, "\"model\":{\"type\":\"BPE\",%s\"vocab\":{", d->model ? d->model : "");
    for (int b = 0; b < 256; b++) {
        char c[4];
        size_t n = weft_utf8_put(c, byte_character(b));
        weft_str_addf(&s, "%s\"%s%.*s\":%d", b ? "," : "", b == '"' || b == '\\' ? "\\" : "", (int)n, c, b);
    }
    for (int m = 0; m < 16 && d->merges[m]; m += 2) weft_str_addf(&s, ",\"%s%s\":%d", d->merges[m], d->merges[m + 1], 256 + m / 2);
    weft_str_addz(&s, "},\"merges\":[");
    for (int m = 0; m < 16 && d->merges[m]; m += 2)
        weft_str_addf(&s, d->old_merges ? "%s\"%s %s\"" : "%s[\"%s\",\"%s\"]", m ? "," : "", d->merges[m], d->merges[m + 1]);
    weft_str_addz(&s, "]}}");
    return s;
}

static inline weft_status tiny_parse(weft_tokenizer **t, const tiny *d, weft_error *e) {
    weft_str json = tiny_json(d);
    weft_status s = weft_tokenizer_parse(t, json.p, json.n, e);
    weft_str_free(&json);
    return s;
}

static inline weft_tokenizer *tiny_open(const tiny *d) {
    weft_tokenizer *t;
    weft_error e;
    if (tiny_parse(&t, d, &e) != WEFT_OK) fail_msg("%s", e.text);
    return t;
}

static inline void assert_ids(const weft_ids *got, const int32_t *want, size_t n) {
    bool same = got->n == n && (n == 0 || memcmp(got->v, want, n * sizeof *want) == 0);
    for (size_t i = 0; !same && i < got->n; i++) print_error("%d ", got->v[i]);
    if (!same) fail_msg("are the ids, %zu; expected %zu", got->n, n);
}

/* Encodes parts and compares with the ids that follow. */
#define ASSERT_PARTS(t, parts, ...)                                                                                                \
    do {                                                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                                                     \
        weft_ids ids_ = {0};                                                                                                       \
        weft_error e_ = {0};                                                                                                       \
        if (weft_tokenizer_encode(t, parts, sizeof(parts) / sizeof *(parts), &ids_, &e_) != WEFT_OK) fail_msg("%s", e_.text);      \
        assert_ids(&ids_, want_, sizeof want_ / sizeof *want_);                                                                    \
        weft_vec_free(&ids_);                                                                                                      \
    } while (0)
#define ASSERT_ENCODED(t, text_, n_, ...)                                                                                          \
    do {                                                                                                                           \
        const weft_text_part one_[] = {{text_, n_, true}};                                                                         \
        ASSERT_PARTS(t, one_, __VA_ARGS__);                                                                                        \
    } while (0)

/* The text of ids, and that a decoder that gets them one by one says the same. Freed by weft_str_free(). */
static inline weft_str decoded(const weft_tokenizer *t, const int32_t *ids, size_t n, bool with_special) {
    weft_str whole = {0}, pieces = {0};
    weft_error e;
    if (weft_tokenizer_decode(t, ids, n, with_special, &whole, &e) != WEFT_OK) fail_msg("%s", e.text);
    weft_decoder d = {.with_special = with_special};
    for (size_t i = 0; i < n; i++) {
        size_t before = pieces.n;
        if (weft_decoder_add(&d, t, ids[i], &pieces, &e) != WEFT_OK) fail_msg("%s", e.text);
        for (size_t at = before; at < pieces.n;) { /* whole characters only */
            int32_t cp;
            at += weft_utf8_next(pieces.p + at, pieces.n - at, &cp);
            assert_true(cp >= 0);
        }
    }
    assert_int_equal(weft_decoder_end(&d, &pieces, &e), WEFT_OK);
    assert_int_equal(pieces.n, whole.n);
    assert_memory_equal(weft_str_z(&pieces), weft_str_z(&whole), whole.n);
    weft_str_free(&pieces);
    return whole;
}

#endif

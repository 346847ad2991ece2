/* fuzz_tokenizer_text.c: any text through tiny tokenizers, of Qwen3.5's kind (pieces of bytes) and of Gemma's (pieces of
 * characters). The first two bytes say where the text is cut, which parts a user typed, and which tokenizer it is. Decoding must
 * give the normalised text; where it is cut, and streaming, must change nothing. */
#include <stdint.h>
#include <string.h>

#include "byte_tokens.h"
#include "text/normalize.h"
#include "text/tokenizer.h"

#define ADDED                                                                                                                      \
    "{\"added_tokens\":[{\"id\":400,\"content\":\"<|im_end|>\",\"special\":true,\"normalized\":false},"                            \
    "{\"id\":401,\"content\":\"<think>\",\"special\":false,\"normalized\":false}],"

static const char head[] =
    ADDED "\"normalizer\":{\"type\":\"NFC\"},"
          "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{"
          "\"Regex\":"
          "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}| "
          "?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},"
          "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"model\":{\"vocab\":{";
static const char tail[] = ",\"aa\":256,\"aaa\":257,\"ĠĠ\":258,\"ĠĠĠĠ\":259,\"Ã©\":260,\"Ìģ\":261,\"ab\":262,\"<|\":263},"
                           "\"merges\":[[\"a\",\"a\"],[\"aa\",\"a\"],[\"Ġ\",\"Ġ\"],[\"ĠĠ\",\"ĠĠ\"],[\"Ã\",\"©\"],[\"Ì\",\"ģ\"],"
                           "[\"a\",\"b\"],[\"<\",\"|\"]]}}";

#define MARK "\xE2\x96\x81"
static const char gemma_head[] =
    ADDED "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"},"
          "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"o\"},\"behavior\":\"MergedWithPrevious\"},"
          "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK
          "\"},\"content\":\" \"},"
          "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},\"model\":{\"byte_fallback\":true,\"vocab\":{";
static const char gemma_tail[] =
    ",\"a\":256,\"b\":257,\"" MARK "\":258,\"\\n\":259,\"é\":260,\"aa\":261,\"" MARK MARK "\":262,\"a" MARK
    "\":263,\"éb\":264},\"merges\":[[\"a\",\"a\"],[\"" MARK "\",\"" MARK "\"],[\"a\",\"" MARK "\"],[\"é\",\"b\"]]}}";

static weft_tokenizer *make(bool gemma) {
    weft_str s = {0};
    weft_tokenizer *t;
    require(weft_str_addz(&s, gemma ? gemma_head : head));
    if (gemma)
        add_fallback_tokens(&s);
    else
        add_byte_tokens(&s);
    require(weft_str_addz(&s, gemma ? gemma_tail : tail));
    require(weft_tokenizer_parse(&t, s.p, s.n, NULL) == WEFT_OK);
    weft_str_free(&s);
    return t;
}

static weft_ids encode(const weft_tokenizer *t, const weft_text_part *parts, size_t n) {
    weft_ids ids = {0};
    require(weft_tokenizer_encode(t, parts, n, &ids, NULL) == WEFT_OK);
    return ids;
}

/* What comes back. */
static weft_str normalised(bool gemma, const char *text, size_t n) {
    weft_str want = {0}, clean = {0};
    weft_codepoints work = {0};
    if (!gemma) {
        require(weft_nfc(&want, text, n, &work));
        weft_vec_free(&work);
        return want;
    }
    require(weft_utf8_add(&clean, text, n));
    for (size_t at = 0; at < clean.n;) {
        bool mark = clean.n - at >= 3 && memcmp(clean.p + at, MARK, 3) == 0;
        require(weft_str_add(&want, mark ? " " : clean.p + at, 1));
        at += mark ? 3 : 1;
    }
    weft_str_free(&clean);
    return want;
}

/* Without added tokens, which normalisation does not cross, the text comes back normalised. */
static void check_text(const weft_tokenizer *t, bool gemma, const weft_ids *ids, const char *text, size_t n) {
    weft_str whole = {0}, pieces = {0}, want = normalised(gemma, text, n);
    weft_decoder d = {.with_special = true};
    bool added = false;
    require(weft_tokenizer_decode(t, ids->v, ids->n, true, &whole, NULL) == WEFT_OK);
    for (size_t i = 0; i < ids->n; i++) {
        require(weft_decoder_add(&d, t, ids->v[i], &pieces, NULL) == WEFT_OK);
        added |= ids->v[i] >= 400;
    }
    require(weft_decoder_end(&d, &pieces, NULL) == WEFT_OK);
    require(pieces.n == whole.n && (whole.n == 0 || memcmp(pieces.p, whole.p, whole.n) == 0));
    if (!added) require(want.n == whole.n && (whole.n == 0 || memcmp(want.p, whole.p, whole.n) == 0));
    weft_str_free(&whole);
    weft_str_free(&pieces);
    weft_str_free(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static weft_tokenizer *made[2];
    for (int k = 0; k < 2; k++)
        if (!made[k]) made[k] = make(k);
    if (size < 2) return 0;
    const bool gemma = data[1] & 4;
    const weft_tokenizer *t = made[gemma];
    size_t n = size - 2, cut = n ? data[0] % (n + 1) : 0;
    char *text = malloc(n ? n : 1);
    require(text);
    if (n) memcpy(text, data + 2, n);

    const weft_text_part one = {text, n, true}, parts[2] = {{text, cut, true}, {text + cut, n - cut, true}};
    weft_ids ids = encode(t, &one, 1), again = encode(t, parts, 2);
    require(ids.n == again.n && (ids.n == 0 || memcmp(ids.v, again.v, ids.n * sizeof *ids.v) == 0));
    check_text(t, gemma, &ids, text, n);

    const weft_text_part typed[2] = {{text, cut, data[1] & 1}, {text + cut, n - cut, data[1] & 2}};
    weft_ids user = encode(t, typed, 2);
    int special = 0;
    for (size_t i = 0; i < user.n; i++) special += user.v[i] == 400;
    if (!(data[1] & 3)) require(special == 0);
    check_text(t, gemma, &user, text, n);
    weft_vec_free(&ids);
    weft_vec_free(&again);
    weft_vec_free(&user);
    free(text);
    return 0;
}

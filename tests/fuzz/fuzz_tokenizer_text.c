/* fuzz_tokenizer_text.c: any text through a tiny tokenizer of Qwen3.5's kind. The first byte says where the text is cut and which
 * half a user typed. Decoding must give the normalised text again; cutting and streaming must change nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static void require(bool ok) {
    if (!ok) abort();
}

static const char head[] =
    "{\"added_tokens\":[{\"id\":400,\"content\":\"<|im_end|>\",\"special\":true,\"normalized\":false},"
    "{\"id\":401,\"content\":\"<think>\",\"special\":false,\"normalized\":false}],\"normalizer\":{\"type\":\"NFC\"},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}| "
    "?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"model\":{\"vocab\":{";
static const char tail[] = ",\"aa\":256,\"aaa\":257,\"ĠĠ\":258,\"ĠĠĠĠ\":259,\"Ã©\":260,\"Ì\":300,\"Ìģ\":261,\"ab\":262,\"<|\":263},"
                           "\"merges\":[[\"a\",\"a\"],[\"aa\",\"a\"],[\"Ġ\",\"Ġ\"],[\"ĠĠ\",\"ĠĠ\"],[\"Ã\",\"©\"],[\"Ì\",\"ģ\"],[\"a\",\"b\"],[\"<\",\"|\"]]}}";

static weft_tokenizer *make(void) {
    weft_str s = {0};
    weft_error e;
    weft_tokenizer *t;
    int other = 256;
    require(weft_str_addz(&s, head));
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char c[4];
        size_t n = weft_utf8_put(c, printable ? b : other++);
        require(weft_str_addf(&s, "%s\"%s%.*s\":%d", b ? "," : "", b == '"' || b == '\\' ? "\\" : "", (int)n, c, b));
    }
    char *end = strstr(tail, ",\"Ì\":300") ? strdup(tail) : NULL; /* that byte has its token already */
    require(end);
    memmove(strstr(end, ",\"Ì\":300"), strstr(end, ",\"Ìģ\""), strlen(strstr(end, ",\"Ìģ\"")) + 1);
    require(weft_str_addz(&s, end));
    free(end);
    require(weft_tokenizer_parse(&t, s.p, s.n, &e) == WEFT_OK);
    weft_str_free(&s);
    return t;
}

/* tokenizer.h: text to token ids and back, as the model was trained: byte pair encoding from a tokenizer.json, of bytes
 * (Qwen, Llama 3, Nemotron) or of characters (Gemma, Llama 2).
 *
 * Ids are those of the reference library (Hugging Face tokenizers). A file that asks for anything this version does not do is
 * refused with the name of it: a near miss in tokenisation makes a model quietly worse.
 * A tokenizer does not change after it is opened; any number of threads may use it. */
#ifndef WEFT_TEXT_TOKENIZER_H
#define WEFT_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

typedef struct weft_tokenizer weft_tokenizer;
typedef WEFT_VEC(int32_t) weft_ids;

/* A stretch of text. In one with special = false, which somebody typed, "<|im_end|>" is ten ordinary characters: added tokens
 * that are marked special in the file are recognised only where they lie wholly in special parts. Other added tokens ("<think>")
 * are recognised everywhere, as in the reference library. */
typedef struct weft_text_part {
    const char *text; /* UTF-8; bytes that are not count as U+FFFD (utf8.h) */
    size_t n;
    bool special;
} weft_text_part;
typedef WEFT_VEC(weft_text_part) weft_text_parts;

weft_status weft_tokenizer_open(weft_tokenizer **t, const char *path, weft_error *e);
/* The same from memory: json[0..n) is the content of a tokenizer.json. */
weft_status weft_tokenizer_parse(weft_tokenizer **t, const char *json, size_t n, weft_error *e);
void weft_tokenizer_close(weft_tokenizer *t); /* NULL is fine */

/* Appends the ids of a text. The parts are one text: it does not matter where it is cut, except for what is said above. Nothing is
 * put around it (see weft_tokenizer_prefix). At most 1 GiB. On failure `out` is as before. */
weft_status weft_tokenizer_encode(const weft_tokenizer *t, const weft_text_part *parts, size_t n_parts, weft_ids *out,
                                  weft_error *e);

/* The ids that the file wants before a plain text (begin of sequence), *n of them, often 0. Chat templates write theirs themselves.
 */
const int32_t *weft_tokenizer_prefix(const weft_tokenizer *t, size_t *n);

/* The token whose bytes are text ("<|im_end|>", " the"), -1 if there is none. Where a text is what several tokens are, that which
 * text is encoded as. */
int32_t weft_tokenizer_find(const weft_tokenizer *t, const char *text);

int32_t weft_tokenizer_size(const weft_tokenizer *t); /* the highest id + 1; a model's vocabulary may be padded beyond */
/* The same without added tokens. A model may lack ids beyond it: those of pictures in files that its family shares. */
int32_t weft_tokenizer_plain_size(const weft_tokenizer *t);
/* Whether a token with this id exists: false for gaps, for the padded tail, and for anything else that is no id. */
bool weft_tokenizer_valid(const weft_tokenizer *t, int32_t id);
bool weft_tokenizer_special(const weft_tokenizer *t, int32_t id);
/* A token's *n bytes, not terminated: perhaps a piece of a character. NULL for an id that is not valid. Some tokenizers leave a
 * space out at the beginning of a text, which only decoding knows. */
const char *weft_tokenizer_bytes(const weft_tokenizer *t, int32_t id, size_t *n);

/* Appends the text of ids: their bytes, repaired as utf8.h says. Special tokens are left out unless with_special. An id that is
 * not valid is WEFT_EINVAL. On failure `out` is as before. */
weft_status weft_tokenizer_decode(const weft_tokenizer *t, const int32_t *ids, size_t n, bool with_special, weft_str *out,
                                  weft_error *e);

/* Decoding while tokens arrive. A character may be spread over several tokens; only whole ones are handed out, so that some tokens
 * add nothing. All pieces and the end together are what weft_tokenizer_decode gives for all ids. Tokenizers of Llama 2's kind leave
 * out the space that begins a text; its beginning is the first token added, even if that goes on with a prompt. */
typedef struct weft_decoder {
    bool with_special;
    bool begun;       /* a token has been added */
    uint8_t stripped; /* blanks left out at the beginning */
    uint8_t n;        /* bytes held back, 0..3 */
    char held[4];
} weft_decoder; /* zero-initialise, set with_special */

/* Appends the text that the next token completes. On failure nothing has changed. */
weft_status weft_decoder_add(weft_decoder *d, const weft_tokenizer *t, int32_t id, weft_str *out, weft_error *e);
/* Appends U+FFFD if a character is incomplete. The decoder is then as new. */
weft_status weft_decoder_end(weft_decoder *d, weft_str *out, weft_error *e);

#endif

/* tokenizer_parts.h: what a tokenizer is made of. For tokenizer.c and decode.c, which use it, and tokenizer_json.c, which
 * builds it. */
#ifndef WEFT_TEXT_TOKENIZER_PARTS_H
#define WEFT_TEXT_TOKENIZER_PARTS_H

#include "base/arena.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

/* Spaces as a visible mark, put in where a text is cut (Metaspace). */
typedef struct weft_space_mark {
    weft_normalizer replace;                                             /* " " by the mark; no step: there is no mark */
    enum { WEFT_MARK_NEVER, WEFT_MARK_FIRST, WEFT_MARK_ALWAYS } prepend; /* to a text's beginning, to every stretch */
} weft_space_mark;

/* From names to text, where pieces are characters. */
typedef struct weft_decoding {
    weft_normalizer replace; /* in every token */
    char strip;              /* this character ... */
    uint8_t strip_most;      /* ... is left out at the beginning, so many times at most; */
    bool unmarked_start;     /* the first token's marks are left out, */
    char mark[4];            /* which are this character */
    uint8_t n_mark;
} weft_decoding;

struct weft_tokenizer {
    weft_arena text;            /* the bytes of all tokens */
    weft_vocab vocab;           /* all tokens; findable are those that merges can make */
    int32_t plain_size;         /* highest id of model.vocab, + 1 */
    weft_added raw;             /* added tokens looked for in the text as it is, */
    weft_added normal;          /* and those looked for after normalisation; none of these is special */
    weft_normalizer normalizer; /* what happens to text before */
    weft_space_mark mark;       /* and after that; */
    weft_split split;           /* cut into pieces, */
    bool ignore_merges;         /* a piece that is a token is that token, */
    weft_bpe bpe;               /* any other piece is merged, */
    bool byte_level;            /* beginning with its bytes, else with its characters; */
    int32_t byte[256];          /* the token of each byte: where pieces are characters, for those without a token; -1: none */
    int32_t unknown;            /* for characters that these lack; -1: none */
    bool fuse_unknown;          /* one for a whole run of them */
    weft_decoding decoding;
    weft_ids prefix; /* before a plain text */
};

#endif

/* tokenizer_parts.h: what a tokenizer is made of. For tokenizer.c, which uses it, and tokenizer_json.c, which builds it. */
#ifndef WEFT_TEXT_TOKENIZER_PARTS_H
#define WEFT_TEXT_TOKENIZER_PARTS_H

#include "base/arena.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

struct weft_tokenizer {
    weft_arena text;    /* the bytes of all tokens */
    weft_vocab vocab;   /* all tokens; findable are those that merges can make */
    weft_added raw;     /* added tokens looked for in the text as it is, */
    weft_added normal;  /* and those looked for after normalisation; none of these is special */
    bool nfc;           /* normalise to form C */
    weft_split split;   /* cut into pieces, */
    bool ignore_merges; /* a piece that is a token is that token, */
    weft_bpe bpe;       /* any other piece is merged */
    weft_ids prefix;    /* before a plain text */
};

#endif

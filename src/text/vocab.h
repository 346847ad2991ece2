/* vocab.h: the tokens of a model, by id and by name. */
#ifndef WEFT_TEXT_VOCAB_H
#define WEFT_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_VOCAB_MOST (1 << 21) /* ids: bounds the memory a damaged file can ask for; 262144 is the most seen */

typedef enum weft_token_kind {
    WEFT_TOKEN_NONE,
    WEFT_TOKEN_PLAIN,
    WEFT_TOKEN_BYTE, /* <0x0A>, for characters without a token */
    WEFT_TOKEN_SPECIAL,
} weft_token_kind;

typedef struct weft_token {
    const char *bytes; /* what it is in text, */
    const char *name;  /* and what it is merged and looked up as ("\u2581the"); where pieces are bytes, the same */
    uint32_t n, n_name;
    uint8_t kind; /* weft_token_kind */
} weft_token;

typedef struct weft_vocab {
    weft_token *token; /* [size], gaps are WEFT_TOKEN_NONE */
    int32_t size;      /* highest id + 1 */
    int32_t *table;    /* open addressing by name: id + 1, 0 is free; a power of two, at most half full */
    size_t mask;
} weft_vocab; /* zero-initialise; bytes and names are kept by the caller */

/* Room for ids below size and `n` entries of the table. False when memory is short. */
bool weft_vocab_init(weft_vocab *v, int32_t size, size_t n);
void weft_vocab_free(weft_vocab *v);

/* Makes token[id] findable by its name. At most n times. */
void weft_vocab_enter(weft_vocab *v, int32_t id);
/* The entered token of this name, -1 if there is none. */
int32_t weft_vocab_find(const weft_vocab *v, const char *name, size_t n);

#endif

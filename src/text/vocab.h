/* vocab.h: the tokens of a model, by id and by bytes. */
#ifndef WEFT_TEXT_VOCAB_H
#define WEFT_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_VOCAB_MOST (1 << 21) /* ids: bounds the memory a damaged file can ask for; 262144 is the most seen */

typedef enum weft_token_kind { WEFT_TOKEN_NONE, WEFT_TOKEN_PLAIN, WEFT_TOKEN_SPECIAL } weft_token_kind;

typedef struct weft_token {
    const char *bytes;
    uint32_t n;
    uint8_t kind; /* weft_token_kind */
} weft_token;

typedef struct weft_vocab {
    weft_token *token; /* [size], gaps are WEFT_TOKEN_NONE */
    int32_t size;      /* highest id + 1 */
    int32_t *table;    /* open addressing by bytes: id + 1, 0 is free; a power of two, at most half full */
    size_t mask;
} weft_vocab; /* zero-initialise; the bytes are kept by the caller */

/* Room for ids below size and `n` entries of the table. False when memory is short. */
bool weft_vocab_init(weft_vocab *v, int32_t size, size_t n);
void weft_vocab_free(weft_vocab *v);

/* Makes token[id] findable by its bytes. At most n times. */
void weft_vocab_enter(weft_vocab *v, int32_t id);
/* The entered token with these bytes, -1 if there is none. */
int32_t weft_vocab_find(const weft_vocab *v, const char *bytes, size_t n);

#endif

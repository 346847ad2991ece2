/* mode.h: what an answer is at: thinking, text or the arguments of a tool. Drafts are right more often in one than in another, so
 * their acceptance is kept apart. A guess by control tokens that decides about speed alone; whoever parses answers looks closer. */
#ifndef WEFT_ENGINE_MODE_H
#define WEFT_ENGINE_MODE_H

#include "text/tokenizer.h"

typedef enum weft_mode { WEFT_MODE_TEXT, WEFT_MODE_THINKING, WEFT_MODE_TOOL, WEFT_MODES } weft_mode;

enum { WEFT_MODE_MARKS = 16 };
typedef struct weft_modes {
    int n;
    int32_t id[WEFT_MODE_MARKS]; /* tokens that begin a mode */
    weft_mode mode[WEFT_MODE_MARKS];
} weft_modes;

/* t NULL: there are none. */
void weft_modes_open(weft_modes *m, const weft_tokenizer *t);
/* The mode behind a token that comes in `mode`. */
weft_mode weft_mode_after(const weft_modes *m, weft_mode mode, int32_t id);
/* The mode behind ids[0..n), which begin as text. */
weft_mode weft_mode_at(const weft_modes *m, const int32_t *ids, size_t n);

#endif

/* tune_prompts.h: what `weft tune` asks: the kinds of text that drafts do well and badly on. */
#ifndef WEFT_CLI_TUNE_PROMPTS_H
#define WEFT_CLI_TUNE_PROMPTS_H

typedef struct weft_tune_prompt {
    const char *kind, *text; /* one word; a user's turn */
} weft_tune_prompt;

enum { WEFT_TUNE_PROMPTS = 4 };
extern const weft_tune_prompt weft_tune_prompts[WEFT_TUNE_PROMPTS];

#endif

/* chatml.h: the plain ChatML format, for models whose own template is not asked for:
 *
 *   <|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n
 *
 * The turns come as parts for weft_tokenizer_encode(), so that control tokens inside the text stay text. */
#ifndef WEFT_TEXT_CHATML_H
#define WEFT_TEXT_CHATML_H

#include "text/tokenizer.h"

/* Appends a user turn and the beginning of the answer, before them a system turn unless system is NULL. The texts are not copied:
 * they must live as long as the parts. On failure `parts` is as before. */
weft_status weft_chatml_turns(weft_text_parts *parts, const char *system, size_t n_system, const char *user, size_t n_user,
                              weft_error *e);

#endif

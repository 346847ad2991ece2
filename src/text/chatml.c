/* chatml.c: see chatml.h. */
#include "text/chatml.h"

#include <string.h>

static void add(weft_text_parts *parts, const char *text, size_t n, bool special) {
    parts->v[parts->n++] = (weft_text_part){.text = text, .n = n, .special = special};
}

static void turn(weft_text_parts *parts, const char *opening, const char *text, size_t n) {
    static const char closing[] = "<|im_end|>\n";
    add(parts, opening, strlen(opening), true);
    add(parts, text, n, false);
    add(parts, closing, strlen(closing), true);
}

weft_status weft_chatml_turns(weft_text_parts *parts, const char *system, size_t n_system, const char *user, size_t n_user,
                              weft_error *e) {
    static const char answer[] = "<|im_start|>assistant\n";
    if (!weft_vec_reserve(parts, parts->n + 7)) return weft_fail_oom(e, "a chat prompt");
    if (system) turn(parts, "<|im_start|>system\n", system, n_system);
    turn(parts, "<|im_start|>user\n", user, n_user);
    add(parts, answer, strlen(answer), true);
    return WEFT_OK;
}

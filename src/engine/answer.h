/* answer.h: an answer on its way out: its tokens become text, and events as soon as it is certain that they belong to it.
 *
 * A token holds the bytes of its own text, whole characters or not. While one of them, or one of a token before it, may belong to a
 * stop string the token is held back: it stands in the request's ids (the model goes on from it, penalties and max_tokens count it)
 * but has had no event. What is let out does not depend on how many tokens a step brings. */
#ifndef WEFT_ENGINE_ANSWER_H
#define WEFT_ENGINE_ANSWER_H

#include "base/vec.h"
#include "engine/stop.h"
#include "text/tokenizer.h"

/* A token held back. */
typedef struct weft_said {
    size_t text;  /* where its own whole characters end in the text held back, */
    uint8_t more; /* and bytes of an incomplete one after them */
    float logprob;
    int n_top;
    weft_logprob top[WEFT_MAX_LOGPROBS];
} weft_said;

typedef struct weft_answer {
    weft_decoder decoder;
    weft_stop stop;
    WEFT_VEC(weft_said) held; /* the last tokens of ids, in their order */
    weft_str undecided;       /* their text */
    size_t plain;             /* bytes at its beginning that tokens let out have begun: no stop string begins in them */
    weft_str text;            /* what the events of this step point into */
} weft_answer;

/* What the events of a step point to; pointers are made when it is over. */
typedef struct weft_beside {
    size_t text; /* offset in the answer's */
    weft_logprob top[WEFT_MAX_LOGPROBS];
} weft_beside;
typedef struct weft_events {
    WEFT_VEC(weft_event) list;
    WEFT_VEC(weft_beside) beside; /* as many */
} weft_events;

#endif

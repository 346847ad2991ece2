/* chat_parts.h: what a template understands, and messages in that form. For the files chat*.c. */
#ifndef WEFT_TEXT_CHAT_PARTS_H
#define WEFT_TEXT_CHAT_PARTS_H

#include "text/chat.h"

typedef enum weft_chat_role { WEFT_SYSTEM, WEFT_USER, WEFT_ASSISTANT, WEFT_TOOL, WEFT_ROLES } weft_chat_role;

/* The arguments of a call: as the client wrote them, an object, or its JSON text. */
typedef enum weft_chat_arguments { WEFT_ARGUMENTS_ANY, WEFT_ARGUMENTS_OBJECT, WEFT_ARGUMENTS_TEXT } weft_chat_arguments;

typedef struct weft_chat_traits {
    bool text;              /* a content may be a string; otherwise only a list of parts is shown */
    bool parts[WEFT_ROLES]; /* a content of this role may be a list of parts */
    bool system;            /* a system message is shown */
    bool later_system;      /* one behind the first turns, too */
    bool developer;         /* the role "developer" is known */
    bool undefined_tools;   /* without tools the variable is not defined; otherwise none, as usual */
    bool calls, results;    /* calls are shown, results are; those that are not go into the text of the assistant and the user */
    bool several_calls;     /* a message may have several */
    bool empty_content;     /* a message that only calls has the content "", not null */
    bool tool_responses;    /* no role "tool": results go into tool_responses of the message that called */
    weft_chat_arguments arguments;
    const char *reasoning; /* the key that thinking is read from */
} weft_chat_traits;

/* One template of a format. */
typedef struct weft_chat_template {
    weft_jinja *jinja;
    weft_chat_traits traits;
} weft_chat_template;

/* What is done to messages that the template refuses; each step includes those before it. */
typedef enum weft_chat_fix {
    WEFT_FIX_NONE,
    WEFT_FIX_SYSTEM, /* later system text goes into the neighbouring user turn, as a reminder */
    WEFT_FIX_TURNS,  /* turns of one role in a row become one, those that say nothing go; an empty question where there is none */
    WEFT_FIX_IDS,    /* ids of calls are nine letters and digits */
    WEFT_FIX_CALLS,  /* one call a message */
    WEFT_FIX_FIRST,  /* the first system text, too, goes into the user's turn */
    WEFT_FIXES,
} weft_chat_fix;

/* Puts messages into the form that the template wants. The request's trees are shared, not changed. WEFT_EINVAL: no such messages.
 */
weft_status weft_chat_adapt(const weft_chat_traits *t, struct json_object *messages, weft_chat_fix fix, struct json_object **out,
                            weft_error *e);
/* Tools, each {"type": "function", "function": {...}}; those of other types ("web_search"), which a template cannot offer, are left
 * out. *out is NULL where none is left. */
weft_status weft_chat_adapt_tools(struct json_object *tools, struct json_object **out, weft_error *e);

/* Renders messages and tools that are in form already. */
weft_status weft_chat_render_form(const weft_chat_template *t, struct json_object *tokens, struct json_object *messages,
                                  struct json_object *tools, const weft_chat_request *r, weft_jinja_output *out, weft_error *e);

/* Fills t->traits. source: the template's text. A template that renders none of the probes gets the usual traits.
 * WEFT_ENOMEM is the only failure. */
weft_status weft_chat_probe(weft_chat_template *t, const char *source, struct json_object *tokens, weft_error *e);

#endif

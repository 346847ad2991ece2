/* chat.h: the chat format of a checkpoint: messages in, the prompt that the model was trained on out.
 *
 * The format is the checkpoint's own Jinja template. Where it lies, in this order: chat_template.jinja (with
 * additional_chat_templates/tool_use.jinja, which is taken when tools are given), "chat_template" in tokenizer_config.json (a
 * string, or a list of {name, template}, of which "default" and "tool_use" count), chat_template.json. Without any of them a model
 * whose vocabulary has <|im_start|> and <|im_end|> is given plain ChatML.
 *
 * Clients send one kind of messages, that of the OpenAI API, and templates want many. What a template understands is found by
 * rendering small chats when it is opened (chat_probe.c); messages are then put into its form (chat_messages.c), and where it
 * refuses them nevertheless (two user turns in a row, two calls at once) into one that it takes, step by step. What a template
 * would drop without a word is not lost: a system message in the middle becomes a reminder in the turn before it, calls and results
 * that are not shown become text.
 *
 * Control tokens. The prompt comes in parts for weft_tokenizer_encode(): special is what the template wrote, the special tokens of
 * tokenizer_config.json and the names of the usual roles; what messages, tools and variables hold is not. The prompt is tokenised
 * without the tokenizer's prefix: begin of sequence is the template's business.
 *
 * A template is nobody's word: jinja.h has its limits. A chat does not change after it is opened; any number of threads may use it.
 */
#ifndef WEFT_TEXT_CHAT_H
#define WEFT_TEXT_CHAT_H

#include "text/jinja.h"
#include "text/tokenizer.h"

struct json_object;

typedef struct weft_chat weft_chat;

/* The format of a model folder. tokenizer: whose vocabulary is asked for ChatML, NULL none. WEFT_ESUPPORT: there is no template,
 * and the model is no ChatML model; WEFT_EFORMAT: a damaged file, or a template with a syntax error. */
weft_status weft_chat_open(weft_chat **chat, const char *folder, const weft_tokenizer *tokenizer, weft_error *e);
/* A format from memory. tokens: an object of special tokens by name ("bos_token": "<s>"), NULL none; nothing of it is kept. */
weft_status weft_chat_compile(weft_chat **chat, const char *source, size_t n, struct json_object *tokens, weft_error *e);
void weft_chat_close(weft_chat *chat); /* NULL is fine */

/* Where the template came from: "chat_template.jinja", "ChatML". */
const char *weft_chat_source(const weft_chat *chat);

typedef struct weft_chat_request {
    struct json_object *messages; /* an array of messages as the OpenAI API has them */
    struct json_object *tools;    /* an array; NULL none */
    struct json_object *vars;     /* an object of further variables ("enable_thinking": false); NULL none */
    bool no_generation_prompt;    /* the prompt ends with the last message, not with the beginning of the answer */
    weft_jinja_options limits;    /* of each of at most six attempts */
} weft_chat_request;

/* Renders. Overwrites *out, which is freed by weft_jinja_output_free(). The request is not changed, but its trees' reference counts
 * are used: one thread at a time. WEFT_EINVAL: messages or tools
 * are not what they should be, or the template refuses them, with its own words; WEFT_ESUPPORT: it went over a limit. */
weft_status weft_chat_render(const weft_chat *chat, const weft_chat_request *request, weft_jinja_output *out, weft_error *e);

/* Reads the JSON of a message list or of tools, which weft_json_parse() does not take on its own: an array. *array is freed by
 * json_object_put(). what: "the messages". */
weft_status weft_chat_array(struct json_object **array, const char *text, size_t n, const char *what, weft_error *e);

#endif

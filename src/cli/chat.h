/* chat.h: chats on the command line: messages, and variables of the template. */
#ifndef WEFT_CLI_CHAT_H
#define WEFT_CLI_CHAT_H

#include <json-c/json.h>

#include "cli/args.h"
#include "text/chat.h"

/* The option of every command that renders a chat. */
#define WEFT_VAR_OPTION(to)                                                                                                        \
    WEFT_TEXTS("var", "K=V", (to),                                                                                                 \
               "A variable of the chat template, JSON or text: --var enable_thinking=false. As often as needed.")

/* The variables as an object; NULL where there are none. *vars is freed by json_object_put(). */
weft_status weft_cli_vars(const weft_texts *options, struct json_object **vars, weft_error *e);

/* A list of one user's message, before it one of the system unless system is NULL. Bytes that are not UTF-8 become U+FFFD. */
weft_status weft_cli_messages(const char *system, const char *user, size_t n, struct json_object **messages, weft_error *e);

/* The folder of a model that is given by its folder or a file in it. */
bool weft_cli_folder(const char *model, weft_str *folder);

#endif

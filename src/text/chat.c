/* chat.c: see chat.h: finding and compiling the template, rendering, trying again. */
#include "text/chat.h"

#include <json-c/json.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "format/json.h"
#include "text/chat_parts.h"

#define CONFIG_LARGEST ((size_t)64 << 20)
#define TEMPLATE_LARGEST ((size_t)4 << 20)

struct weft_chat {
    weft_chat_template plain, tool_use; /* tool_use.jinja NULL: plain does both */
    struct json_object *tokens;         /* special tokens by name; NULL none */
    const char *source;
};

/* For ChatML models whose publisher gives no template. */
static const char chatml[] =
    "{%- if tools %}{{- raise_exception('this checkpoint has no chat template, so tools cannot be offered to it') }}{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/* ---- special tokens -------------------------------------------------------------------------------------------------------- */

/* "<s>", or {"content": "<s>", ...}; NULL: none. */
static struct json_object *token_text(struct json_object *v) {
    if (json_object_is_type(v, json_type_object)) v = weft_json_get((weft_json_at){v, ""}, "content");
    return v && json_object_is_type(v, json_type_string) ? v : NULL;
}

static weft_status add_tokens(struct json_object **tokens, struct json_object *from, bool any_name, weft_error *e) {
    if (!from || !json_object_is_type(from, json_type_object)) return WEFT_OK;
    if (!*tokens && !(*tokens = json_object_new_object())) return weft_fail_oom(e, "a tokenizer's special tokens");
    json_object_object_foreach(from, key, value) {
        struct json_object *text = token_text(value);
        if (!text || (!any_name && !weft_ends_with(key, "_token")) || json_object_object_get_ex(*tokens, key, NULL)) continue;
        struct json_object *copy = json_object_new_string_len(json_object_get_string(text), json_object_get_string_len(text));
        if (!copy || json_object_object_add(*tokens, key, copy) != 0) {
            json_object_put(copy);
            return weft_fail_oom(e, "a tokenizer's special tokens");
        }
    }
    return WEFT_OK;
}

/* ---- compiling ------------------------------------------------------------------------------------------------------------- */

static weft_status compile(weft_chat *c, weft_chat_template *t, const char *source, size_t n, weft_error *e) {
    weft_str text = {0};
    if (!weft_str_add(&text, source, n)) return weft_fail_oom(e, "a chat template");
    weft_status s = weft_jinja_compile(&t->jinja, source, n, e);
    if (s == WEFT_OK) s = weft_chat_probe(t, weft_str_z(&text), c->tokens, e);
    weft_str_free(&text);
    return s;
}

static weft_status compile_from(weft_chat *c, weft_chat_template *t, const char *source, size_t n, const char *where,
                                weft_error *e) {
    c->source = where;
    weft_status s = compile(c, t, source, n, e);
    if (s != WEFT_OK) weft_fail_in(e, where);
    return s;
}

/* A template in a file of its own; *found. */
static weft_status compile_file(weft_chat *c, weft_chat_template *t, const char *folder, const char *name, bool *found,
                                weft_error *e) {
    weft_str path = {0};
    char *text = NULL;
    size_t n;
    weft_status s = WEFT_OK;
    if (!weft_str_addf(&path, "%s/%s", folder, name))
        s = weft_fail_oom(e, "a path");
    else if ((*found = weft_file_exists(path.p))) {
        s = weft_file_read(path.p, TEMPLATE_LARGEST, &text, &n, e);
        if (s == WEFT_OK) s = compile_from(c, t, text, n, name, e);
    }
    weft_free(text);
    weft_str_free(&path);
    return s;
}

static weft_status compile_value(weft_chat *c, weft_chat_template *t, struct json_object *v, const char *where, weft_error *e) {
    return compile_from(c, t, json_object_get_string(v), (size_t)json_object_get_string_len(v), where, e);
}

/* The template of that name in a list of {"name", "template"}; NULL none. */
static struct json_object *named(struct json_object *list, const char *name) {
    for (size_t i = 0, n = json_object_array_length(list); i < n; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (!json_object_is_type(item, json_type_object)) continue;
        struct json_object *is = token_text(weft_json_get((weft_json_at){item, ""}, "name"));
        if (is && strcmp(json_object_get_string(is), name) == 0)
            return token_text(weft_json_get((weft_json_at){item, ""}, "template"));
    }
    return NULL;
}

/* "chat_template" of a JSON file: a text or a list. */
static weft_status compile_member(weft_chat *c, struct json_object *config, const char *where, bool *found, weft_error *e) {
    struct json_object *v = weft_json_get((weft_json_at){config, ""}, "chat_template");
    if (!v) return WEFT_OK;
    *found = true;
    if (json_object_is_type(v, json_type_string)) return compile_value(c, &c->plain, v, where, e);
    if (!json_object_is_type(v, json_type_array))
        return weft_fail(e, WEFT_EFORMAT, "%s: 'chat_template' is neither a text nor a list of named templates", where);
    struct json_object *plain = named(v, "default"), *tool_use = named(v, "tool_use");
    if (!plain) return weft_fail(e, WEFT_EFORMAT, "%s: its list of chat templates has none named 'default'", where);
    WEFT_TRY(compile_value(c, &c->plain, plain, where, e));
    return tool_use ? compile_value(c, &c->tool_use, tool_use, where, e) : WEFT_OK;
}

/* ---- opening --------------------------------------------------------------------------------------------------------------- */

/* A JSON file of the folder; *root is NULL where there is none. */
static weft_status read_json(struct json_object **root, const char *folder, const char *name, weft_error *e) {
    weft_str path = {0};
    weft_status s = WEFT_OK;
    *root = NULL;
    if (!weft_str_addf(&path, "%s/%s", folder, name))
        s = weft_fail_oom(e, "a path");
    else if (weft_file_exists(path.p))
        s = weft_json_read(root, path.p, CONFIG_LARGEST, e);
    weft_str_free(&path);
    return s;
}

static weft_status find_template(weft_chat *c, const char *folder, struct json_object *config, const weft_tokenizer *tokenizer,
                                 weft_error *e) {
    bool found = false, more = false;
    struct json_object *processor;
    WEFT_TRY(compile_file(c, &c->plain, folder, "chat_template.jinja", &found, e));
    if (found) {
        WEFT_TRY(compile_file(c, &c->tool_use, folder, "additional_chat_templates/tool_use.jinja", &more, e));
        c->source = "chat_template.jinja";
        return WEFT_OK;
    }
    WEFT_TRY(compile_member(c, config, "tokenizer_config.json", &found, e));
    if (found) return WEFT_OK;
    WEFT_TRY(read_json(&processor, folder, "chat_template.json", e));
    weft_status s = compile_member(c, processor, "chat_template.json", &found, e);
    json_object_put(processor);
    if (s != WEFT_OK || found) return s;
    if (tokenizer && weft_tokenizer_find(tokenizer, "<|im_start|>") >= 0 && weft_tokenizer_find(tokenizer, "<|im_end|>") >= 0)
        return compile_from(c, &c->plain, chatml, sizeof chatml - 1, "ChatML", e);
    return weft_fail(e, WEFT_ESUPPORT,
                     "%s: it has no chat template (chat_template.jinja, or 'chat_template' in tokenizer_config.json), and its "
                     "tokenizer has no <|im_start|> and <|im_end|>, so it is no ChatML model: only a raw prompt can be given",
                     folder);
}

static weft_status open_folder(weft_chat *c, const char *folder, const weft_tokenizer *tokenizer, weft_error *e) {
    struct json_object *config = NULL, *map = NULL;
    weft_status s = read_json(&config, folder, "tokenizer_config.json", e);
    if (s == WEFT_OK) s = read_json(&map, folder, "special_tokens_map.json", e);
    if (s == WEFT_OK) s = add_tokens(&c->tokens, config, false, e);
    if (s == WEFT_OK) s = add_tokens(&c->tokens, weft_json_get((weft_json_at){config, ""}, "extra_special_tokens"), true, e);
    if (s == WEFT_OK) s = add_tokens(&c->tokens, map, false, e);
    if (s == WEFT_OK) s = find_template(c, folder, config, tokenizer, e);
    json_object_put(config);
    json_object_put(map);
    return s;
}

weft_status weft_chat_open(weft_chat **chat, const char *folder, const weft_tokenizer *tokenizer, weft_error *e) {
    *chat = NULL;
    weft_chat *c = weft_calloc(1, sizeof *c);
    if (!c) return weft_fail_oom(e, "a chat template");
    weft_status s = open_folder(c, folder, tokenizer, e);
    if (s == WEFT_OK)
        *chat = c;
    else
        weft_chat_close(c);
    return s;
}

weft_status weft_chat_compile(weft_chat **chat, const char *source, size_t n, struct json_object *tokens, weft_error *e) {
    *chat = NULL;
    weft_chat *c = weft_calloc(1, sizeof *c);
    if (!c) return weft_fail_oom(e, "a chat template");
    c->source = "";
    weft_status s = add_tokens(&c->tokens, tokens, true, e);
    if (s == WEFT_OK) s = compile(c, &c->plain, source, n, e);
    if (s == WEFT_OK)
        *chat = c;
    else
        weft_chat_close(c);
    return s;
}

void weft_chat_close(weft_chat *c) {
    if (!c) return;
    weft_jinja_free(c->plain.jinja);
    weft_jinja_free(c->tool_use.jinja);
    json_object_put(c->tokens);
    weft_free(c);
}

const char *weft_chat_source(const weft_chat *c) {
    return c->source;
}

/* ---- rendering ------------------------------------------------------------------------------------------------------------- */

/* Names that templates build control tokens of ("<|" + role + "|>"); any other role is somebody's text. */
static bool is_usual_role(const char *role) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function", "ipython", "model"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i], role) == 0) return true;
    return false;
}

static weft_jinja_value messages_value(weft_jinja_vars *vars, struct json_object *messages) {
    weft_jinja_value list = weft_jinja_list(vars);
    for (size_t i = 0, n = json_object_array_length(messages); i < n; i++) {
        struct json_object *m = json_object_array_get_idx(messages, i);
        weft_jinja_value map = weft_jinja_json(vars, m, false);
        struct json_object *role = weft_json_get((weft_json_at){m, ""}, "role");
        const char *name = json_object_get_string(role);
        if (name && is_usual_role(name))
            weft_jinja_put(vars, map, "role", 4, false, weft_jinja_text(vars, name, strlen(name), true));
        weft_jinja_append(vars, list, map);
    }
    return list;
}

static void set_members(weft_jinja_vars *vars, struct json_object *o, bool trusted) {
    if (!o) return;
    json_object_object_foreach(o, key, value) weft_jinja_set(vars, key, weft_jinja_json(vars, value, trusted));
}

weft_status weft_chat_render_form(const weft_chat_template *t, struct json_object *tokens, struct json_object *messages,
                                  struct json_object *tools, const weft_chat_request *r, weft_jinja_output *out, weft_error *e) {
    weft_jinja_vars *vars;
    *out = (weft_jinja_output){0};
    WEFT_TRY(weft_jinja_vars_open(&vars, e));
    set_members(vars, tokens, true);
    weft_jinja_set(vars, "documents", weft_jinja_none());
    set_members(vars, r->vars, false);
    weft_jinja_set(vars, "messages", messages_value(vars, messages));
    if (tools || !t->traits.undefined_tools) weft_jinja_set(vars, "tools", weft_jinja_json(vars, tools, false));
    weft_jinja_set(vars, "add_generation_prompt", weft_jinja_bool(!r->no_generation_prompt));
    weft_status s = weft_jinja_render(t->jinja, vars, &r->limits, out, e);
    weft_jinja_vars_close(vars);
    return s;
}

weft_status weft_chat_render(const weft_chat *c, const weft_chat_request *r, weft_jinja_output *out, weft_error *e) {
    struct json_object *tools = NULL;
    weft_error own;
    weft_status s = WEFT_OK;
    *out = (weft_jinja_output){0};
    if (!e) e = &own;
    if (r->vars && !json_object_is_type(r->vars, json_type_object))
        return weft_fail(e, WEFT_EINVAL, "the variables for the chat template are not an object");
    WEFT_TRY(weft_chat_adapt_tools(r->tools, &tools, e));
    const weft_chat_template *t = tools && c->tool_use.jinja ? &c->tool_use : &c->plain;
    bool refused = true;
    for (weft_chat_fix fix = WEFT_FIX_NONE; fix < WEFT_FIXES && refused; fix++) {
        struct json_object *messages;
        refused = false;
        s = weft_chat_adapt(&t->traits, r->messages, fix, &messages, e);
        if (s != WEFT_OK) break;
        s = weft_chat_render_form(t, c->tokens, messages, tools, r, out, e);
        json_object_put(messages);
        refused = s == WEFT_EINVAL || s == WEFT_EFORMAT;
    }
    if (refused) s = weft_fail(e, WEFT_EINVAL, "the chat template refuses these messages: %s", e->text);
    json_object_put(tools);
    return s;
}

weft_status weft_chat_array(struct json_object **array, const char *text, size_t n, const char *what, weft_error *e) {
    weft_str object = {0};
    struct json_object *root = NULL;
    *array = NULL;
    bool ok = weft_str_addz(&object, "{\"\":") && weft_str_add(&object, text, n) && weft_str_addz(&object, "}");
    weft_status s = ok ? weft_json_parse(&root, object.p, object.n, e) : weft_fail_oom(e, what);
    weft_str_free(&object);
    struct json_object *v = s == WEFT_OK ? weft_json_get((weft_json_at){root, ""}, "") : NULL;
    if (s == WEFT_OK && (!v || !json_object_is_type(v, json_type_array) || json_object_object_length(root) != 1))
        s = weft_fail(e, WEFT_EFORMAT, "expected a JSON array [...]");
    if (s != WEFT_OK) weft_fail_in(e, what);
    if (s == WEFT_OK) *array = json_object_get(v);
    json_object_put(root);
    return s;
}

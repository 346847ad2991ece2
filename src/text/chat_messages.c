/* chat_messages.c: messages in the form that a template understands (chat_parts.h).
 *
 * Lists are rebuilt, message by message; what does not change is shared with the request's tree. json-c's calls fail only when
 * memory is short, which is remembered and reported at the end. Where a choice is open, the form is the same whichever way a client
 * writes the same message ("" or null beside calls, a string or one part of text): prompts of a growing chat then share their
 * beginning. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "format/json.h"
#include "text/chat_parts.h"

typedef struct adapt {
    const weft_chat_traits *t;
    bool short_of_memory;
    weft_status status;
    weft_error *e;
} adapt;

/* ---- trees --------------------------------------------------------------------------------------------------------------- */

static struct json_object *member(struct json_object *o, const char *key) {
    return weft_json_get((weft_json_at){.object = o, .path = ""}, key);
}

static bool is(struct json_object *o, enum json_type type) {
    return json_object_is_type(o, type) && o;
}

/* A string's text; NULL for anything else. */
static const char *text_of(struct json_object *o) {
    return is(o, json_type_string) ? json_object_get_string(o) : NULL;
}

static size_t length(struct json_object *list) {
    return is(list, json_type_array) ? json_object_array_length(list) : 0;
}

static struct json_object *at(struct json_object *list, size_t i) {
    return json_object_array_get_idx(list, i);
}

static bool has_role(struct json_object *m, const char *role) {
    const char *name = text_of(member(m, "role"));
    return name && strcmp(name, role) == 0;
}

static bool is_system(struct json_object *m) {
    return has_role(m, "system") || has_role(m, "developer");
}

static struct json_object *made(adapt *a, struct json_object *o) {
    if (!o) a->short_of_memory = true;
    return o;
}

static struct json_object *new_text(adapt *a, const char *text, size_t n) {
    return made(a, json_object_new_string_len(text, (int)n));
}

static struct json_object *of_str(adapt *a, const weft_str *s) {
    return new_text(a, weft_str_z(s), s->n);
}

/* Takes the value over. A value that could not be made is left out, for which new_...() has set the mark. */
static void put(adapt *a, struct json_object *o, const char *key, struct json_object *v) {
    if (v && o && json_object_object_add(o, key, v) == 0) return;
    json_object_put(v);
    a->short_of_memory = true;
}

static void put_null(adapt *a, struct json_object *o, const char *key) {
    if (!o || json_object_object_add(o, key, NULL) != 0) a->short_of_memory = true;
}

static void push(adapt *a, struct json_object *array, struct json_object *v) {
    if (v && array && json_object_array_add(array, v) == 0) return;
    json_object_put(v);
    a->short_of_memory = true;
}

static bool listed(const char *const *keys, const char *key) {
    while (*keys && strcmp(*keys, key) != 0) keys++;
    return *keys != NULL;
}

/* The members of `from` but those listed; their values are shared. */
static void copy_members(adapt *a, struct json_object *to, struct json_object *from, const char *const *but) {
    json_object_object_foreach(from, key, value) {
        if (listed(but, key)) continue;
        if (value)
            put(a, to, key, json_object_get(value));
        else
            put_null(a, to, key);
    }
}

static struct json_object *copy_but(adapt *a, struct json_object *from, const char *key) {
    const char *const but[] = {key, NULL};
    struct json_object *to = made(a, json_object_new_object());
    copy_members(a, to, from, but);
    return to;
}

static struct json_object *message_of(adapt *a, const char *role, struct json_object *content) {
    struct json_object *m = made(a, json_object_new_object());
    put(a, m, "role", new_text(a, role, strlen(role)));
    put(a, m, "content", content);
    return m;
}

/* ---- contents ------------------------------------------------------------------------------------------------------------ */

static struct json_object *part_of(adapt *a, struct json_object *text) {
    struct json_object *p = made(a, json_object_new_object());
    put(a, p, "type", new_text(a, "text", 4));
    put(a, p, "text", text);
    return p;
}

/* The text of a part; NULL for an image and the like. */
static struct json_object *part_text(struct json_object *part) {
    if (text_of(part)) return part;
    if (!is(part, json_type_object)) return NULL;
    struct json_object *text = member(part, "text");
    if (!text) text = member(part, "refusal");
    return text_of(text) ? text : NULL;
}

static bool all_text(struct json_object *parts) {
    for (size_t i = 0, n = length(parts); i < n; i++)
        if (!part_text(at(parts, i))) return false;
    return true;
}

static bool add_text(weft_str *s, struct json_object *text) {
    return weft_str_add(s, json_object_get_string(text), (size_t)json_object_get_string_len(text));
}

/* Text parts as one string, a line for each. */
static struct json_object *joined(adapt *a, struct json_object *parts) {
    weft_str s = {0};
    bool ok = true;
    for (size_t i = 0, n = length(parts); i < n && ok; i++) {
        struct json_object *text = part_text(at(parts, i));
        if (text) ok = (!s.n || weft_str_addz(&s, "\n")) && add_text(&s, text);
    }
    struct json_object *o = ok ? of_str(a, &s) : made(a, NULL);
    weft_str_free(&s);
    return o;
}

/* A content as the template takes it, made of a string. */
static struct json_object *in_form(adapt *a, weft_chat_role role, struct json_object *text) {
    if (a->t->text || !a->t->parts[role]) return text;
    struct json_object *list = made(a, json_object_new_array());
    push(a, list, part_of(a, text));
    return list;
}

static bool is_empty(struct json_object *content) {
    if (is(content, json_type_string)) return json_object_get_string_len(content) == 0;
    return !content || (is(content, json_type_array) && !length(content));
}

static void put_content(adapt *a, struct json_object *to, struct json_object *content, weft_chat_role role, bool calls,
                        size_t number) {
    if (is_empty(content)) {
        if (calls && !a->t->empty_content)
            put_null(a, to, "content");
        else
            put(a, to, "content", in_form(a, role, new_text(a, "", 0)));
    } else if (is(content, json_type_string)) {
        put(a, to, "content", in_form(a, role, json_object_get(content)));
    } else if (!is(content, json_type_array)) {
        a->status = weft_fail(a->e, WEFT_EINVAL, "message %zu: its content is neither text nor a list of parts", number);
    } else if (a->t->parts[role]) {
        put(a, to, "content", json_object_get(content));
    } else if (all_text(content)) {
        put(a, to, "content", joined(a, content));
    } else {
        a->status = weft_fail(a->e, WEFT_EINVAL,
                              "message %zu has a part that is no text; this model's chat template takes text only here", number);
    }
}

/* ---- calls --------------------------------------------------------------------------------------------------------------- */

/* The JSON text of an object as Python writes it. */
static struct json_object *dumped(adapt *a, struct json_object *o) {
    static const char source[] = "{{ x | tojson }}";
    weft_jinja *t = NULL;
    weft_jinja_vars *vars = NULL;
    weft_jinja_output out = {0};
    weft_status s = weft_jinja_compile(&t, source, sizeof source - 1, a->e);
    if (s == WEFT_OK) s = weft_jinja_vars_open(&vars, a->e);
    if (s == WEFT_OK) {
        weft_jinja_set(vars, "x", weft_jinja_json(vars, o, false));
        s = weft_jinja_render(t, vars, NULL, &out, a->e);
    }
    struct json_object *text = s == WEFT_OK ? of_str(a, &out.text) : made(a, NULL);
    weft_jinja_output_free(&out);
    weft_jinja_vars_close(vars);
    weft_jinja_free(t);
    return text;
}

/* An object of JSON text. Models write broken JSON at times, which stays visible to them in an object of its own. */
static struct json_object *parsed(adapt *a, struct json_object *text) {
    struct json_object *o = NULL;
    size_t n = (size_t)json_object_get_string_len(text);
    if (n && weft_json_parse(&o, json_object_get_string(text), n, NULL) == WEFT_OK) return o;
    o = made(a, json_object_new_object());
    if (n) put(a, o, "arguments", json_object_get(text));
    return o;
}

static struct json_object *arguments_of(adapt *a, struct json_object *v) {
    struct json_object *o = v ? json_object_get(v) : made(a, json_object_new_object());
    struct json_object *form = o;
    if (a->t->arguments == WEFT_ARGUMENTS_OBJECT && is(o, json_type_string))
        form = parsed(a, o);
    else if (a->t->arguments == WEFT_ARGUMENTS_TEXT && !is(o, json_type_string))
        form = dumped(a, o);
    if (form != o) json_object_put(o);
    return form;
}

/* {"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}; a bare function is wrapped. */
static struct json_object *call_of(adapt *a, struct json_object *call, size_t number) {
    static const char *const of_call[] = {"type", "function", NULL}, *const of_bare[] = {"id", "type", NULL},
                             *const of_function[] = {"arguments", NULL};
    struct json_object *function = member(call, "function"), *bare = NULL;
    struct json_object *out = made(a, json_object_new_object());
    if (!is(function, json_type_object)) {
        bare = made(a, json_object_new_object());
        if (is(call, json_type_object)) copy_members(a, bare, call, of_bare);
        function = bare;
    }
    if (!text_of(member(function, "name")))
        a->status = weft_fail(a->e, WEFT_EINVAL, "message %zu: a call without the name of a function", number);
    if (!bare)
        copy_members(a, out, call, of_call);
    else if (member(call, "id"))
        put(a, out, "id", json_object_get(member(call, "id")));
    put(a, out, "type", new_text(a, "function", 8));
    struct json_object *f = made(a, json_object_new_object());
    if (function) copy_members(a, f, function, of_function);
    put(a, f, "arguments", arguments_of(a, member(function, "arguments")));
    put(a, out, "function", f);
    json_object_put(bare);
    return out;
}

static struct json_object *calls_of(adapt *a, struct json_object *calls, size_t number) {
    struct json_object *out = made(a, json_object_new_array());
    for (size_t i = 0, n = length(calls); i < n && a->status == WEFT_OK; i++) push(a, out, call_of(a, at(calls, i), number));
    return out;
}

static size_t n_calls(struct json_object *m) {
    return length(member(m, "tool_calls"));
}

/* The call that a result behind the list belongs to, among those of the last message that has some: by its id, without one by the
 * order of the results. */
static struct json_object *call_of_result(struct json_object *list, struct json_object *result) {
    const char *id = text_of(member(result, "tool_call_id"));
    size_t before = 0, k = length(list);
    for (; k > 0 && has_role(at(list, k - 1), "tool"); k--) before++;
    struct json_object *calls = k ? member(at(list, k - 1), "tool_calls") : NULL;
    if (!id) return before < length(calls) ? at(calls, before) : NULL;
    for (size_t i = 0, n = length(calls); i < n; i++) {
        const char *of = text_of(member(at(calls, i), "id"));
        if (of && strcmp(of, id) == 0) return at(calls, i);
    }
    return NULL;
}

/* Adds what the call says and the result does not. */
static void complete_result(adapt *a, struct json_object *to, struct json_object *list) {
    struct json_object *call = call_of_result(list, to);
    struct json_object *id = member(call, "id"), *name = member(member(call, "function"), "name");
    if (id && !member(to, "tool_call_id")) put(a, to, "tool_call_id", json_object_get(id));
    if (name && !member(to, "name")) put(a, to, "name", json_object_get(name));
}

/* ---- one message --------------------------------------------------------------------------------------------------------- */

static struct json_object *details_text(adapt *a, struct json_object *details) {
    return length(details) ? joined(a, details) : NULL;
}

/* Thinking, under whichever name it came, under the template's. */
static void put_reasoning(adapt *a, struct json_object *to, struct json_object *m) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    struct json_object *v = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !v; i++)
        if (text_of(member(m, names[i]))) v = json_object_get(member(m, names[i]));
    if (!v) v = details_text(a, member(m, "reasoning_details"));
    if (v) put(a, to, a->t->reasoning, v);
}

static weft_chat_role role_of(const char *role) {
    if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0) return WEFT_SYSTEM;
    if (strcmp(role, "assistant") == 0) return WEFT_ASSISTANT;
    return strcmp(role, "tool") == 0 ? WEFT_TOOL : WEFT_USER;
}

static void add_message(adapt *a, struct json_object *list, struct json_object *m) {
    static const char *const handled[] = {
        "role", "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "reasoning_details", NULL};
    size_t number = length(list) + 1;
    const char *name = is(m, json_type_object) ? text_of(member(m, "role")) : NULL;
    if (!name) {
        a->status = weft_fail(a->e, WEFT_EINVAL, "message %zu has no role", number);
        return;
    }
    if (strcmp(name, "developer") == 0 && !a->t->developer) name = "system";
    if (strcmp(name, "function") == 0) name = "tool";
    weft_chat_role role = role_of(name);
    struct json_object *to = made(a, json_object_new_object()), *calls = member(m, "tool_calls");
    bool calling = role == WEFT_ASSISTANT && (n_calls(m) || is(member(m, "function_call"), json_type_object));
    put(a, to, "role", new_text(a, name, strlen(name)));
    put_content(a, to, member(m, "content"), role, calling, number);
    if (role == WEFT_ASSISTANT) put_reasoning(a, to, m);
    if (calling && n_calls(m)) {
        put(a, to, "tool_calls", calls_of(a, calls, number));
    } else if (calling) {
        struct json_object *one = made(a, json_object_new_array());
        push(a, one, call_of(a, member(m, "function_call"), number));
        put(a, to, "tool_calls", one);
    }
    copy_members(a, to, m, handled);
    if (role == WEFT_TOOL) complete_result(a, to, list);
    push(a, list, to);
}

/* ---- results in the message that called ------------------------------------------------------------------------------------ */

/* {"name": ..., "response": ...}; a result that is a JSON object is shown as one. */
static struct json_object *response_of(adapt *a, struct json_object *caller, struct json_object *result, size_t i) {
    struct json_object *o = made(a, json_object_new_object()), *name = member(result, "name"), *content = member(result, "content");
    struct json_object *parsed = NULL, *call = at(member(caller, "tool_calls"), i);
    if (!name && call) name = member(member(call, "function"), "name");
    put(a, o, "name", name ? json_object_get(name) : new_text(a, "unknown", 7));
    const char *text = text_of(content);
    if (text && weft_json_parse(&parsed, text, (size_t)json_object_get_string_len(content), NULL) == WEFT_OK)
        put(a, o, "response", parsed);
    else
        put(a, o, "response", content ? json_object_get(content) : new_text(a, "", 0));
    return o;
}

/* The calls, their results and, where it follows at once, the answer are one turn of the model: one message. */
static struct json_object *with_responses(adapt *a, struct json_object *list) {
    struct json_object *out = made(a, json_object_new_array());
    size_t n = length(list);
    for (size_t i = 0; i < n; i++) {
        struct json_object *m = at(list, i);
        if (!n_calls(m) || i + 1 == n || !has_role(at(list, i + 1), "tool")) {
            push(a, out, json_object_get(m));
            continue;
        }
        struct json_object *turn = copy_but(a, m, ""), *responses = made(a, json_object_new_array());
        for (size_t k = 0; i + 1 < n && has_role(at(list, i + 1), "tool"); k++)
            push(a, responses, response_of(a, m, at(list, ++i), k));
        put(a, turn, "tool_responses", responses);
        struct json_object *next = i + 1 < n ? at(list, i + 1) : NULL;
        if (next && has_role(next, "assistant") && !n_calls(next) && is_empty(member(m, "content")) &&
            !is_empty(member(next, "content"))) {
            put(a, turn, "content", json_object_get(member(next, "content")));
            i++;
        }
        push(a, out, turn);
    }
    json_object_put(list);
    return out;
}

/* ---- what a template refuses ----------------------------------------------------------------------------------------------- */

/* Nothing but text: what may be moved into another message. */
static bool is_plain(struct json_object *m) {
    struct json_object *content = member(m, "content");
    return !is(content, json_type_array) || all_text(content);
}

/* A plain message's text. */
static struct json_object *content_text(adapt *a, struct json_object *m) {
    struct json_object *content = member(m, "content");
    if (is(content, json_type_array)) return joined(a, content);
    return text_of(content) ? json_object_get(content) : new_text(a, "", 0);
}

/* The message with `text` put before or after its content, a blank line between. */
static struct json_object *extended(adapt *a, struct json_object *m, const char *text, size_t n, bool before) {
    struct json_object *to = copy_but(a, m, "content"), *content = member(m, "content"), *joint;
    weft_str s = {0};
    if (is(content, json_type_array)) {
        joint = made(a, json_object_new_array());
        if (before) push(a, joint, part_of(a, new_text(a, text, n)));
        for (size_t i = 0, k = length(content); i < k; i++) push(a, joint, json_object_get(at(content, i)));
        if (!before) push(a, joint, part_of(a, new_text(a, text, n)));
    } else {
        bool some = !is_empty(content), ok = true;
        if (some && !before) ok = add_text(&s, content) && weft_str_addz(&s, "\n\n");
        ok = ok && weft_str_add(&s, text, n);
        if (some && before) ok = ok && weft_str_addz(&s, "\n\n") && add_text(&s, content);
        joint = ok ? of_str(a, &s) : made(a, NULL);
        weft_str_free(&s);
    }
    put(a, to, "content", joint);
    return to;
}

static struct json_object *last_of(struct json_object *list) {
    size_t n = length(list);
    return n ? at(list, n - 1) : NULL;
}

static void replace_last(adapt *a, struct json_object *list, struct json_object *m) {
    if (m && json_object_array_put_idx(list, length(list) - 1, m) == 0) return;
    json_object_put(m);
    a->short_of_memory = true;
}

/* Adds the parts of a message to the last one of the list. */
static void extend_last_by_parts(adapt *a, struct json_object *list, struct json_object *from) {
    struct json_object *pair[] = {last_of(list), from}, *to = copy_but(a, pair[0], "content"),
                       *parts = made(a, json_object_new_array());
    for (size_t k = 0; k < 2; k++) {
        struct json_object *content = member(pair[k], "content");
        for (size_t i = 0; i < length(content); i++) push(a, parts, json_object_get(at(content, i)));
        if (text_of(content)) push(a, parts, part_of(a, json_object_get(content)));
    }
    put(a, to, "content", parts);
    replace_last(a, list, to);
}

/* Adds the content of `from` to the last message of the list. */
static void extend_last(adapt *a, struct json_object *list, struct json_object *from) {
    if (!is_plain(from)) {
        extend_last_by_parts(a, list, from);
        return;
    }
    struct json_object *text = content_text(a, from);
    if (text && !is_empty(text))
        replace_last(a, list,
                     extended(a, last_of(list), json_object_get_string(text), (size_t)json_object_get_string_len(text), false));
    json_object_put(text);
}

static void remind(adapt *a, struct json_object *list, const weft_str *reminder) {
    struct json_object *last = last_of(list);
    if (has_role(last, "user") || has_role(last, "tool"))
        replace_last(a, list, extended(a, last, weft_str_z(reminder), reminder->n, false));
    else
        push(a, list, message_of(a, "user", in_form(a, WEFT_USER, of_str(a, reminder))));
}

/* Several system messages at the beginning become one; later ones a reminder at the end of the user's turn or the tool's result
 * before it, where there is none in the user's turn behind it, or in a turn of its own. */
static struct json_object *without_later_system(adapt *a, struct json_object *list) {
    struct json_object *out = made(a, json_object_new_array());
    weft_str waiting = {0};
    bool ok = true;
    for (size_t i = 0, n = length(list); i < n && !a->short_of_memory; i++) {
        struct json_object *m = at(list, i), *last = last_of(out);
        if (is_system(m) && is_plain(m) && (!last || (is_system(last) && is_plain(last)))) {
            if (last)
                extend_last(a, out, m);
            else
                push(a, out, json_object_get(m));
        } else if (is_system(m) && is_plain(m)) {
            struct json_object *text = content_text(a, m);
            if (text && !is_empty(text))
                ok = ok && (!waiting.n || weft_str_addz(&waiting, "\n\n")) && weft_str_addz(&waiting, "<system-reminder>\n") &&
                     add_text(&waiting, text) && weft_str_addz(&waiting, "\n</system-reminder>");
            json_object_put(text);
            if (has_role(last, "user") || has_role(last, "tool")) {
                if (waiting.n) remind(a, out, &waiting);
                weft_str_clear(&waiting);
            }
        } else if (waiting.n && has_role(m, "user")) {
            push(a, out, extended(a, m, waiting.p, waiting.n, true));
            weft_str_clear(&waiting);
        } else {
            if (waiting.n) remind(a, out, &waiting);
            weft_str_clear(&waiting);
            push(a, out, json_object_get(m));
        }
    }
    if (waiting.n) remind(a, out, &waiting);
    if (!ok) a->short_of_memory = true;
    weft_str_free(&waiting);
    json_object_put(list);
    return out;
}

/* A turn of the user that is a question, not a tool's result in the user's name. */
static bool is_question(adapt *a, struct json_object *m) {
    if (!has_role(m, "user")) return false;
    struct json_object *text = content_text(a, m);
    bool result = text && weft_starts_with(json_object_get_string(text), "<tool_response>") && is_plain(m);
    json_object_put(text);
    return !result;
}

static struct json_object *in_turns(adapt *a, struct json_object *list) {
    struct json_object *out = made(a, json_object_new_array());
    size_t n = length(list), first = 0;
    bool asked = false;
    while (first < n && is_system(at(list, first))) first++;
    for (size_t i = first; i < n && !asked; i++) asked = is_question(a, at(list, i));
    for (size_t i = 0; i <= n && !a->short_of_memory; i++) {
        struct json_object *m = i < n ? at(list, i) : NULL, *last = last_of(out);
        if (i == first && (!asked || !has_role(m, "user"))) {
            push(a, out, message_of(a, "user", in_form(a, WEFT_USER, new_text(a, "", 0))));
            last = last_of(out);
        }
        if (!m) break;
        if (has_role(m, "assistant") && is_empty(member(m, "content")) && !n_calls(m) && !member(m, a->t->reasoning)) continue;
        if (has_role(m, "user") && has_role(last, "user") && i > first) {
            extend_last(a, out, m);
        } else if (has_role(m, "assistant") && has_role(last, "assistant") && !n_calls(last) && is_plain(last)) {
            struct json_object *text = content_text(a, last);
            struct json_object *both = text && !is_empty(text) ? extended(a, m, json_object_get_string(text),
                                                                          (size_t)json_object_get_string_len(text), true)
                                                               : json_object_get(m);
            replace_last(a, out, both);
            json_object_put(text);
        } else {
            push(a, out, json_object_get(m));
        }
    }
    json_object_put(list);
    return out;
}

/* Nine letters and digits, the same for the same id. */
static struct json_object *short_id(adapt *a, struct json_object *id) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char out[9];
    const char *text = json_object_get_string(id);
    size_t n = (size_t)json_object_get_string_len(id);
    if (n == sizeof out && strspn(text, digits) == n) return json_object_get(id);
    uint64_t h = weft_hash(text, n, 0);
    for (size_t i = 0; i < sizeof out; i++, h /= 62) out[i] = digits[h % 62];
    return new_text(a, out, sizeof out);
}

static struct json_object *with_short_ids(adapt *a, struct json_object *list) {
    struct json_object *out = made(a, json_object_new_array());
    for (size_t i = 0, n = length(list); i < n; i++) {
        struct json_object *m = at(list, i), *id = member(m, "tool_call_id"), *to = copy_but(a, m, "");
        if (text_of(id)) put(a, to, "tool_call_id", short_id(a, id));
        if (n_calls(m)) {
            struct json_object *calls = made(a, json_object_new_array());
            for (size_t k = 0; k < n_calls(m); k++) {
                struct json_object *call = copy_but(a, at(member(m, "tool_calls"), k), "");
                char made_up[64];
                snprintf(made_up, sizeof made_up, "call %zu of %zu", k, i);
                struct json_object *own =
                    text_of(member(call, "id")) ? json_object_get(member(call, "id")) : new_text(a, made_up, strlen(made_up));
                if (own) put(a, call, "id", short_id(a, own));
                json_object_put(own);
                push(a, calls, call);
            }
            put(a, to, "tool_calls", calls);
        }
        if (has_role(to, "tool")) complete_result(a, to, out);
        push(a, out, to);
    }
    json_object_put(list);
    return out;
}

/* One call, its result, the next call. Results are told by their ids, or by their order. */
static struct json_object *one_call_each(adapt *a, struct json_object *list) {
    struct json_object *out = made(a, json_object_new_array());
    for (size_t i = 0, n = length(list); i < n; i++) {
        struct json_object *m = at(list, i);
        size_t calls = n_calls(m), results = 0;
        if (calls < 2) {
            push(a, out, json_object_get(m));
            continue;
        }
        while (i + 1 + results < n && has_role(at(list, i + 1 + results), "tool")) results++;
        for (size_t k = 0; k < calls && !a->short_of_memory; k++) {
            struct json_object *call = at(member(m, "tool_calls"), k), *one = copy_but(a, m, "");
            struct json_object *calls_of_one = made(a, json_object_new_array());
            push(a, calls_of_one, json_object_get(call));
            put(a, one, "tool_calls", calls_of_one);
            if (k && a->t->empty_content)
                put(a, one, "content", in_form(a, WEFT_ASSISTANT, new_text(a, "", 0)));
            else if (k)
                put_null(a, one, "content");
            push(a, out, one);
            const char *id = text_of(member(call, "id"));
            for (size_t r = 0; r < results; r++) {
                struct json_object *result = at(list, i + 1 + r);
                const char *of = text_of(member(result, "tool_call_id"));
                if (id && of ? strcmp(id, of) == 0 : r == k) push(a, out, json_object_get(result));
            }
        }
        i += results;
    }
    json_object_put(list);
    return out;
}

/* The system text at the head of the first turn of the user. */
static struct json_object *without_system(adapt *a, struct json_object *list) {
    size_t n = length(list), first = 0;
    weft_str s = {0};
    bool ok = true;
    for (; first < n && is_system(at(list, first)) && is_plain(at(list, first)); first++) {
        struct json_object *text = content_text(a, at(list, first));
        if (text && !is_empty(text)) ok = ok && (!s.n || weft_str_addz(&s, "\n\n")) && add_text(&s, text);
        json_object_put(text);
    }
    struct json_object *out = made(a, json_object_new_array()), *next = first < n ? at(list, first) : NULL;
    if (s.n && has_role(next, "user")) {
        push(a, out, extended(a, next, s.p, s.n, true));
        first++;
    } else if (s.n) {
        push(a, out, message_of(a, "user", in_form(a, WEFT_USER, of_str(a, &s))));
    }
    for (; first < n; first++) push(a, out, json_object_get(at(list, first)));
    if (!ok) a->short_of_memory = true;
    weft_str_free(&s);
    json_object_put(list);
    return out;
}

/* <tool_call>, the call as JSON, </tool_call>: as most models that know tools write it. */
static bool add_call(adapt *a, weft_str *s, struct json_object *call) {
    static const char *const but[] = {"arguments", NULL};
    struct json_object *function = member(call, "function"), *plain = made(a, json_object_new_object());
    struct json_object *arguments = member(function, "arguments");
    copy_members(a, plain, function, but);
    put(a, plain, "arguments", text_of(arguments) ? parsed(a, arguments) : json_object_get(arguments));
    struct json_object *json = dumped(a, plain);
    bool ok = json && (!s->n || weft_str_addz(s, "\n")) && weft_str_addz(s, "<tool_call>\n") && add_text(s, json) &&
              weft_str_addz(s, "\n</tool_call>");
    json_object_put(plain);
    json_object_put(json);
    return ok;
}

/* Calls as text of the assistant, results as text of the user, where the template would drop or refuse them. */
static struct json_object *with_calls_as_text(adapt *a, struct json_object *list) {
    struct json_object *out = made(a, json_object_new_array());
    for (size_t i = 0, n = length(list); i < n && !a->short_of_memory; i++) {
        struct json_object *m = at(list, i), *calls = member(m, "tool_calls"), *to = m;
        weft_str s = {0};
        bool ok = true;
        if (n_calls(m) && !a->t->calls) {
            struct json_object *bare = copy_but(a, m, "tool_calls");
            for (size_t k = 0; k < n_calls(m) && ok; k++) ok = add_call(a, &s, at(calls, k));
            to = ok && bare ? extended(a, bare, s.p, s.n, false) : made(a, NULL);
            json_object_put(bare);
        } else if (has_role(m, "tool") && !a->t->results) {
            struct json_object *text = content_text(a, m);
            ok = text && weft_str_addz(&s, "<tool_response>\n") && add_text(&s, text) && weft_str_addz(&s, "\n</tool_response>");
            to = message_of(a, "user", in_form(a, WEFT_USER, ok ? of_str(a, &s) : made(a, NULL)));
            json_object_put(text);
        } else {
            json_object_get(m);
        }
        weft_str_free(&s);
        push(a, out, to);
    }
    json_object_put(list);
    return out;
}

/* ---- all together ---------------------------------------------------------------------------------------------------------- */

static weft_status finish(adapt *a, struct json_object *list, struct json_object **out, const char *what) {
    if (a->status == WEFT_OK && a->short_of_memory) a->status = weft_fail_oom(a->e, what);
    if (a->status == WEFT_OK)
        *out = list;
    else
        json_object_put(list);
    return a->status;
}

weft_status weft_chat_adapt(const weft_chat_traits *t, struct json_object *messages, weft_chat_fix fix, struct json_object **out,
                            weft_error *e) {
    *out = NULL;
    if (!is(messages, json_type_array)) return weft_fail(e, WEFT_EINVAL, "the messages are not a list");
    size_t n = length(messages);
    if (!n) return weft_fail(e, WEFT_EINVAL, "there are no messages");
    adapt a = {.t = t, .e = e};
    struct json_object *list = made(&a, json_object_new_array());
    for (size_t i = 0; i < n && a.status == WEFT_OK && !a.short_of_memory; i++) add_message(&a, list, at(messages, i));
    struct {
        bool wanted;
        struct json_object *(*step)(adapt *, struct json_object *);
    } steps[] = {
        {fix >= WEFT_FIX_SYSTEM || !t->later_system, without_later_system},
        {fix >= WEFT_FIX_FIRST || !t->system, without_system},
        {!t->calls || !t->results, with_calls_as_text},
        {fix >= WEFT_FIX_TURNS, in_turns},
        {fix >= WEFT_FIX_IDS, with_short_ids},
        {fix >= WEFT_FIX_CALLS || !t->several_calls, one_call_each},
        {t->tool_responses, with_responses},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps && a.status == WEFT_OK && !a.short_of_memory; i++)
        if (steps[i].wanted) list = steps[i].step(&a, list);
    return finish(&a, list, out, "the messages of a chat");
}

weft_status weft_chat_adapt_tools(struct json_object *tools, struct json_object **out, weft_error *e) {
    *out = NULL;
    if (!tools) return WEFT_OK;
    if (!is(tools, json_type_array)) return weft_fail(e, WEFT_EINVAL, "the tools are not a list");
    size_t n = length(tools);
    if (!n) return WEFT_OK;
    adapt a = {.e = e};
    struct json_object *list = made(&a, json_object_new_array());
    for (size_t i = 0; i < n && a.status == WEFT_OK; i++) {
        struct json_object *tool = at(tools, i), *function = member(tool, "function");
        const char *type = text_of(member(tool, "type"));
        bool bare = !is(function, json_type_object);
        if (bare && type && strcmp(type, "function") != 0) continue;
        if (!is(tool, json_type_object) || !text_of(member(bare ? tool : function, "name"))) {
            a.status = weft_fail(e, WEFT_EINVAL, "tool %zu is no function with a name", i + 1);
        } else if (!bare) {
            push(&a, list, json_object_get(tool));
        } else {
            struct json_object *o = made(&a, json_object_new_object());
            put(&a, o, "type", new_text(&a, "function", 8));
            put(&a, o, "function", copy_but(&a, tool, "type"));
            push(&a, list, o);
        }
    }
    if (!length(list)) {
        json_object_put(list);
        list = NULL;
    }
    return finish(&a, list, out, "the tools of a chat");
}

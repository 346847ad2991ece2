/* chat_probe.c: what a template understands, found by rendering small chats and looking for their words in the prompt.
 *
 * A template that fails on a probe does not understand what the probe has. One whose every probe fails (it may want variables that
 * nobody gave) is taken for a template of the usual kind. */
#include <json-c/json.h>
#include <string.h>

#include "format/json.h"
#include "text/chat_parts.h"

typedef struct probe {
    weft_chat_template *t;
    struct json_object *tokens, *tools;
    weft_status status; /* WEFT_ENOMEM ends it; other failures are answers */
    weft_error *e;
} probe;

static const char tools_json[] =
    "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"weftfunction\", \"description\": \"weft\", \"parameters\": "
    "{\"type\": \"object\", \"properties\": {\"weftkey\": {\"type\": \"string\", \"description\": \"weft\"}}, \"required\": "
    "[\"weftkey\"]}}}]}";

/* Renders messages written as JSON; false: the template does not take them. */
static bool render(probe *p, const char *messages, struct json_object *tools, weft_str *out) {
    static const weft_chat_request request = {
        .limits = {
            .now = 1722006245, .work = 5000000, .iterations = 100000, .memory = (size_t)64 << 20, .output = (size_t)1 << 20}};
    struct json_object *root = NULL;
    weft_jinja_output o = {0};
    weft_str_free(out);
    if (p->status != WEFT_OK) return false;
    weft_status s = weft_json_parse(&root, messages, strlen(messages), p->e);
    if (s == WEFT_OK)
        s = weft_chat_render_form(p->t, p->tokens, weft_json_get((weft_json_at){root, ""}, "messages"), tools, &request, &o, p->e);
    json_object_put(root);
    if (s == WEFT_OK) {
        *out = o.text;
        o.text = (weft_str){0};
    }
    weft_jinja_output_free(&o);
    if (s == WEFT_ENOMEM) p->status = s;
    return s == WEFT_OK;
}

static bool has(const weft_str *s, const char *word) {
    return strstr(weft_str_z(s), word) != NULL;
}

/* ---- contents ------------------------------------------------------------------------------------------------------------ */

/* A chat without calls: `first`, a message with a comma behind it or nothing, then a question, an answer, `later`, as `first`, a
 * question. */
static bool render_chat(probe *p, const char *first, const char *later, const char *user, const char *assistant, weft_str *out) {
    weft_str m = {0};
    bool ok = weft_str_addf(&m,
                            "{\"messages\": [%s{\"role\": \"user\", \"content\": %s}, {\"role\": \"assistant\", \"content\": %s}, "
                            "%s{\"role\": \"user\", \"content\": %s}]}",
                            first, user, assistant, later, user);
    if (!ok) p->status = weft_fail_oom(p->e, "a chat template");
    ok = ok && render(p, m.p, NULL, out);
    weft_str_free(&m);
    return ok;
}

static bool render_plain(probe *p, const char *first, const char *user, const char *assistant, weft_str *out) {
    return render_chat(p, first, "", user, assistant, out);
}

#define TEXT(word) "\"" word "\""
#define PARTS(word)                                                                                                                \
    "[{\"type\": \"text\", \"text\": \"" word "\", \"weftpart\": true}]" /* weftpart is seen where parts are dumped */

static bool shown(const weft_str *s, const char *word) {
    return has(s, word) && !has(s, "weftpart");
}

static void probe_contents(probe *p, weft_chat_traits *t, const char *source) {
    static const char *const system[] = {"{\"role\": \"system\", \"content\": " TEXT("weftsystem") "}, ",
                                         "{\"role\": \"system\", \"content\": " PARTS("weftsystem") "}, ",
                                         "{\"role\": \"developer\", \"content\": " TEXT("weftsystem") "}, "};
    static const char *const later[] = {"{\"role\": \"system\", \"content\": " TEXT("weftlater") "}, ",
                                        "{\"role\": \"system\", \"content\": " PARTS("weftlater") "}, "};
    static const char user[] = TEXT("weftuser"), assistant[] = TEXT("weftassistant"), user_parts[] = PARTS("weftuser");
    weft_str out = {0};
    if (!render_plain(p, "", user, assistant, &out) && !render_plain(p, "", user_parts, assistant, &out)) {
        t->undefined_tools = true;
        if (!render_plain(p, "", user, assistant, &out)) t->undefined_tools = false;
    }
    bool text = render_plain(p, "", user, assistant, &out) && has(&out, "weftuser");
    t->parts[WEFT_USER] = render_plain(p, "", user_parts, assistant, &out) && shown(&out, "weftuser");
    t->text = text || !t->parts[WEFT_USER];
    const char *asked = t->text ? user : user_parts;
    t->parts[WEFT_ASSISTANT] = render_plain(p, "", asked, PARTS("weftassistant"), &out) && shown(&out, "weftassistant");
    const char *answer = t->text ? assistant : PARTS("weftassistant");
    t->parts[WEFT_SYSTEM] = render_plain(p, system[1], asked, answer, &out) && shown(&out, "weftsystem");
    bool rendered = render_plain(p, "", asked, answer, &out);
    t->system = (render_plain(p, system[0], asked, answer, &out) && has(&out, "weftsystem")) || t->parts[WEFT_SYSTEM] || !rendered;
    bool by_parts = t->parts[WEFT_SYSTEM] && !t->text;
    /* A later one must be shown, and must not take the place of the first. */
    t->later_system = (render_chat(p, t->system ? system[by_parts] : "", later[by_parts], asked, answer, &out) &&
                       has(&out, "weftlater") && (has(&out, "weftsystem") || !t->system)) ||
                      !rendered;
    t->developer = strstr(source, "developer") && render_plain(p, system[2], asked, answer, &out) && has(&out, "weftsystem");
    weft_str_free(&out);
}

/* ---- calls --------------------------------------------------------------------------------------------------------------- */

/* A question, a call with further members ("\"content\": null") and arguments, its result. */
static bool render_call(probe *p, const weft_chat_traits *t, const char *members, const char *arguments, const char *role,
                        const char *result, weft_str *out) {
    weft_str m = {0};
    bool ok =
        weft_str_addf(&m,
                      "{\"messages\": [{\"role\": \"user\", \"content\": %s}, {\"role\": \"assistant\", %s, \"tool_calls\": "
                      "[{\"id\": \"weftcall1\", \"type\": \"function\", \"function\": {\"name\": \"weftcall\", \"arguments\": "
                      "%s}}]}, {\"role\": \"%s\", \"tool_call_id\": \"weftcall1\", \"name\": \"weftcall\", \"content\": %s}]}",
                      t->text ? TEXT("weftuser") : PARTS("weftuser"), members, arguments, role, result);
    if (!ok) p->status = weft_fail_oom(p->e, "a chat template");
    ok = ok && render(p, m.p, p->tools, out);
    weft_str_free(&m);
    return ok;
}

#define OBJECT "{\"weftarg\": \"weftvalue\"}"
#define OBJECT_TEXT "\"{\\\"weftarg\\\": \\\"weftvalue\\\"}\""

static const char null_content[] = "\"content\": null", empty_content[] = "\"content\": \"\"";

/* What is not shown in a chat with both may be shown in one with a call or a result alone. */
static void probe_halves(probe *p, const weft_chat_traits *t, bool *call, bool *result) {
    static const char *const text[] = {TEXT("weftuser"), TEXT("weftassistant"), TEXT("weftresult")}, *const parts[] = {
                                                                                                         PARTS("weftuser"),
                                                                                                         PARTS("weftassistant"),
                                                                                                         PARTS("weftresult")};
    const char *const *content = t->text ? text : parts;
    weft_str out = {0}, m = {0};
    if (!render_plain(p, "", content[0], content[1], &out)) { /* nothing is known */
        *call = *result = true;
    }
    if (!*result) {
        bool ok =
            weft_str_addf(&m,
                          "{\"messages\": [{\"role\": \"user\", \"content\": %s}, {\"role\": \"assistant\", \"content\": %s}, "
                          "{\"role\": \"tool\", \"tool_call_id\": \"weftcall1\", \"name\": \"weftcall\", \"content\": %s}]}",
                          content[0], content[1], content[2]);
        if (!ok) p->status = weft_fail_oom(p->e, "a chat template");
        *result = ok && render(p, m.p, p->tools, &out) && has(&out, "weftresult");
    }
    for (int i = 0; i < 4 && !*call; i++) {
        weft_str_clear(&m);
        bool ok =
            weft_str_addf(&m,
                          "{\"messages\": [{\"role\": \"user\", \"content\": %s}, {\"role\": \"assistant\", %s, \"tool_calls\": "
                          "[{\"id\": \"weftcall1\", \"type\": \"function\", \"function\": {\"name\": \"weftcall\", "
                          "\"arguments\": %s}}]}]}",
                          content[0], i & 1 ? null_content : empty_content, i & 2 ? OBJECT_TEXT : OBJECT);
        if (!ok) p->status = weft_fail_oom(p->e, "a chat template");
        *call = ok && render(p, m.p, p->tools, &out) && has(&out, "weftcall");
    }
    weft_str_free(&out);
    weft_str_free(&m);
}

static void probe_call(probe *p, weft_chat_traits *t) {
    weft_str object[2] = {{0}, {0}}, text[2] = {{0}, {0}};
    const char *const content[] = {null_content, empty_content}, *result = t->text ? TEXT("weftresult") : PARTS("weftresult");
    for (int i = 0; i < 2; i++) {
        render_call(p, t, content[i], OBJECT, "tool", result, &object[i]);
        render_call(p, t, content[i], OBJECT_TEXT, "tool", result, &text[i]);
    }
    bool call_shown = false, result_shown = false;
    for (int i = 0; i < 2; i++) {
        call_shown = call_shown || has(&object[i], "weftcall") || has(&text[i], "weftcall");
        result_shown = result_shown || has(&object[i], "weftresult") || has(&text[i], "weftresult");
    }
    bool null_shown = has(&object[0], "weftcall") || has(&text[0], "weftcall");
    bool none_printed = (has(&object[0], "None") && !has(&object[1], "None")) || (has(&text[0], "None") && !has(&text[1], "None"));
    t->empty_content = !null_shown || none_printed;
    const weft_str *o = &object[t->empty_content], *s = &text[t->empty_content];
    /* A string that is dumped once more comes out with its quotes escaped, an object that is just printed as Python's. */
    bool object_good = has(o, "weftvalue") && !has(o, "'weftarg'"), text_good = has(s, OBJECT);
    if (object_good && text_good && o->n == s->n && memcmp(o->p, s->p, o->n) == 0)
        t->arguments = WEFT_ARGUMENTS_ANY;
    else if (object_good)
        t->arguments = WEFT_ARGUMENTS_OBJECT;
    else if (text_good)
        t->arguments = WEFT_ARGUMENTS_TEXT;
    for (int i = 0; i < 2; i++) weft_str_free(&object[i]), weft_str_free(&text[i]);
    probe_halves(p, t, &call_shown, &result_shown);
    t->calls = call_shown;
    t->results = result_shown;
}

/* Whether a message's second call is shown where one alone is. */
static bool several_calls(probe *p, const weft_chat_traits *t, const char *content, const char *arguments) {
    weft_str m = {0}, out = {0};
    const char *user = t->text ? TEXT("weftuser") : PARTS("weftuser"), *result = t->text ? TEXT("weftresult") : PARTS("weftresult");
    bool one = render_call(p, t, content, arguments, "tool", result, &out) && has(&out, "weftcall");
    bool ok =
        weft_str_addf(&m,
                      "{\"messages\": [{\"role\": \"user\", \"content\": %s}, {\"role\": \"assistant\", %s, \"tool_calls\": "
                      "[{\"id\": \"weftcall1\", \"type\": \"function\", \"function\": {\"name\": \"weftcall\", \"arguments\": "
                      "%s}}, {\"id\": \"weftcall2\", \"type\": \"function\", \"function\": {\"name\": \"weftother\", "
                      "\"arguments\": %s}}]}, "
                      "{\"role\": \"tool\", \"tool_call_id\": \"weftcall1\", \"name\": \"weftcall\", \"content\": %s}, "
                      "{\"role\": \"tool\", \"tool_call_id\": \"weftcall2\", \"name\": \"weftanother\", \"content\": %s}]}",
                      user, content, arguments, arguments, result, result);
    if (!ok) p->status = weft_fail_oom(p->e, "a chat template");
    ok = !one || (ok && render(p, m.p, p->tools, &out) && has(&out, "weftcall") && has(&out, "weftother"));
    weft_str_free(&m);
    weft_str_free(&out);
    return ok;
}

/* Whether a result is no more to the template than a turn of some role that nobody ever heard of. */
static bool no_tool_role(probe *p, const weft_chat_traits *t, const char *content, const char *arguments) {
    weft_str tool = {0}, other = {0}, renamed = {0};
    const char *result = t->text ? TEXT("weftresult") : PARTS("weftresult");
    render_call(p, t, content, arguments, "tool", result, &tool);
    render_call(p, t, content, arguments, "weftrole", result, &other);
    bool ok = true;
    for (const char *at = weft_str_z(&other); ok && *at;) {
        const char *role = strstr(at, "weftrole");
        size_t n = role ? (size_t)(role - at) : strlen(at);
        ok = weft_str_add(&renamed, at, n) && (!role || weft_str_addz(&renamed, "tool"));
        at += role ? n + strlen("weftrole") : n;
    }
    if (!ok) p->status = weft_fail_oom(p->e, "a chat template");
    bool same = strcmp(weft_str_z(&tool), weft_str_z(&renamed)) == 0;
    weft_str_free(&tool);
    weft_str_free(&other);
    weft_str_free(&renamed);
    return same;
}

static void probe_tools(probe *p, weft_chat_traits *t, const char *source) {
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};
    probe_call(p, t);
    const char *content = t->empty_content ? empty_content : null_content;
    const char *arguments = t->arguments == WEFT_ARGUMENTS_TEXT ? OBJECT_TEXT : OBJECT;
    t->several_calls = several_calls(p, t, content, arguments);
    t->tool_responses = strstr(source, "tool_responses") && no_tool_role(p, t, content, arguments);
    if (t->tool_responses) t->later_system = false; /* between a result and the answer it would tear the model's turn apart */
    weft_str out = {0}, members = {0};
    t->parts[WEFT_TOOL] =
        !t->tool_responses && render_call(p, t, content, arguments, "tool", PARTS("weftresult"), &out) && shown(&out, "weftresult");
    t->reasoning = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !t->reasoning && p->status == WEFT_OK; i++) {
        weft_str_clear(&members);
        if (!weft_str_addf(&members, "%s, \"%s\": \"weftthought\"", content, keys[i]))
            p->status = weft_fail_oom(p->e, "a chat template");
        else if (render_call(p, t, members.p, arguments, "tool", t->text ? TEXT("weftresult") : PARTS("weftresult"), &out) &&
                 has(&out, "weftthought"))
            t->reasoning = keys[i];
    }
    if (!t->reasoning) t->reasoning = keys[0];
    weft_str_free(&out);
    weft_str_free(&members);
}

weft_status weft_chat_probe(weft_chat_template *t, const char *source, struct json_object *tokens, weft_error *e) {
    struct json_object *root;
    WEFT_TRY(weft_json_parse(&root, tools_json, sizeof tools_json - 1, e));
    probe p = {.t = t, .tokens = tokens, .tools = weft_json_get((weft_json_at){root, ""}, "tools"), .e = e};
    t->traits = (weft_chat_traits){0};
    probe_contents(&p, &t->traits, source);
    probe_tools(&p, &t->traits, source);
    json_object_put(root);
    return p.status;
}

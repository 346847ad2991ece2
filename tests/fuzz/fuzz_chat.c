/* fuzz_chat.c: a request of a chat from a stranger for one of a few templates, or, behind a byte 0xff, a template of his own.
 * Whatever it is, rendering ends within its limits, gives the same twice, the parts cover the text, and a template that writes
 * nothing but contents has no special bytes but its own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "text/chat.h"

static void require(bool ok) {
    if (!ok) abort();
}

/* Refuse what they can; the last but one has results in the message that called, the last shows parts only. */
static const char *const templates[] = {
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system') }}{% endif %}"
    "{{ '<|' + m.role + '|>' }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in c.function.arguments | items %}"
    "{{ k }}{{ v if v is string }}{% endfor %}{% endfor %}{{ m.content or '' }}{% endfor %}",
    "{% for m in messages %}{% if m.role not in ['user', 'assistant'] or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles') }}{% endif %}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{% if m.tool_calls and (m.tool_calls | length > 1 or m.tool_calls[0].id | length != 9) %}"
    "{{ raise_exception('calls') }}{% endif %}{{ m | tojson }}{% endfor %}",
    "{% for m in messages %}{{ m.role }}{% for r in m.tool_responses or [] %}{{ r.name ~ r.response }}{% endfor %}{{ m.content or "
    "'' }}"
    "{% endfor %}",
    "{% for m in messages %}{% for p in m.content %}{{ p['text'] }}{% endfor %}{% endfor %}",
};
enum { TEMPLATES = sizeof templates / sizeof *templates };

static weft_chat *chats[TEMPLATES];

static void check(const weft_chat *chat, const weft_chat_request *r) {
    weft_jinja_output a, b;
    weft_error e;
    weft_status s = weft_chat_render(chat, r, &a, &e);
    require(s == WEFT_OK || s == WEFT_EINVAL || s == WEFT_ESUPPORT);
    require(weft_chat_render(chat, r, &b, &e) == s && a.text.n == b.text.n && a.parts.n == b.parts.n);
    size_t at = 0;
    for (size_t i = 0; i < a.parts.n; i++) {
        require(a.parts.v[i].text == a.text.p + at && a.parts.v[i].n > 0 && a.parts.v[i].special == b.parts.v[i].special);
        at += a.parts.v[i].n;
    }
    require(at == a.text.n && (at == 0 || memcmp(a.text.p, b.text.p, at) == 0));
    /* Its own text is "<|", "|>" and the usual roles: nothing else may be special. */
    for (size_t i = 0; chat == chats[0] && i < a.parts.n; i++)
        for (size_t k = 0; a.parts.v[i].special && k < a.parts.v[i].n; k++)
            require(strchr("<|>", a.parts.v[i].text[k]) || (a.parts.v[i].text[k] >= 'a' && a.parts.v[i].text[k] <= 'z'));
    weft_jinja_output_free(&a);
    weft_jinja_output_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *split = size ? memchr(data, 0xff, size) : NULL;
    size_t n = split ? (size_t)(split - data) : size;
    struct json_object *root = NULL;
    weft_chat *own = NULL;
    weft_error e;
    for (int i = 0; i < TEMPLATES && !chats[i]; i++)
        require(weft_chat_compile(&chats[i], templates[i], strlen(templates[i]), NULL, &e) == WEFT_OK);
    if (weft_json_parse(&root, (const char *)data, n, NULL) != WEFT_OK) return 0;
    weft_chat_request r = {
        .messages = weft_json_get((weft_json_at){root, ""}, "messages"),
        .tools = weft_json_get((weft_json_at){root, ""}, "tools"),
        .vars = weft_json_get((weft_json_at){root, ""}, "vars"),
        .limits = {
            .now = 1722006245, .work = 2000000, .iterations = 100000, .memory = (size_t)64 << 20, .output = (size_t)1 << 20}};
    if (split) {
        weft_status s = weft_chat_compile(&own, (const char *)split + 1, size - n - 1, NULL, &e);
        require(s == WEFT_OK || s == WEFT_EFORMAT || s == WEFT_ESUPPORT);
        if (own) check(own, &r);
        weft_chat_close(own);
    } else {
        for (int i = 0; i < TEMPLATES; i++) check(chats[i], &r);
    }
    json_object_put(root);
    return 0;
}

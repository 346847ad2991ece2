/* template.c: `weft template`: messages as the prompt that a model gets. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/report.h"
#include "format/json.h"
#include "text/tokenizer.h"

#define INPUT_LARGEST ((size_t)256 << 20)

typedef struct options {
    const char *model, *messages, *tools;
    weft_texts vars;
    bool no_generation_prompt, json;
} options;

/* ---- what comes in ------------------------------------------------------------------------------------------------------- */

static weft_status read_text(const char *file, const char *what, weft_str *text, weft_error *e) {
    if (!file || strcmp(file, "-") == 0) return weft_cli_read_stdin(text, INPUT_LARGEST, what, e);
    char *data;
    size_t n;
    WEFT_TRY(weft_file_read(file, INPUT_LARGEST, &data, &n, e));
    bool ok = weft_str_add(text, data, n);
    weft_free(data);
    return ok ? WEFT_OK : weft_fail_oom(e, file);
}

/* A list, or an object with one: the body of a request, whose other members are taken along. */
static weft_status parse(const char *file, const char *member, const char *what, struct json_object **list,
                         struct json_object **body, weft_error *e) {
    weft_str text = {0};
    weft_status s = read_text(file, what, &text, e);
    const char *first = weft_str_z(&text) + strspn(weft_str_z(&text), " \t\r\n");
    if (s == WEFT_OK && *first != '{') {
        s = weft_chat_array(list, weft_str_z(&text), text.n, what, e);
    } else if (s == WEFT_OK && (s = weft_json_parse(body, text.p, text.n, e)) != WEFT_OK) {
        weft_fail_in(e, what);
    } else if (s == WEFT_OK) {
        s = weft_json_need((weft_json_at){*body, ""}, member, e);
        *list = json_object_get(weft_json_get((weft_json_at){*body, ""}, member));
    }
    weft_str_free(&text);
    return s;
}

static weft_status read_request(const options *o, weft_chat_request *r, weft_error *e) {
    struct json_object *body = NULL, *of_tools = NULL;
    weft_status s = parse(o->messages, "messages", "the messages", &r->messages, &body, e);
    if (s == WEFT_OK && o->tools)
        s = parse(o->tools, "tools", "the tools", &r->tools, &of_tools, e);
    else if (s == WEFT_OK)
        r->tools = json_object_get(weft_json_get((weft_json_at){body, ""}, "tools"));
    if (s == WEFT_OK) s = weft_cli_vars(&o->vars, &r->vars, e);
    if (s == WEFT_OK && !r->vars) r->vars = json_object_get(weft_json_get((weft_json_at){body, ""}, "chat_template_kwargs"));
    r->no_generation_prompt = o->no_generation_prompt;
    json_object_put(body);
    json_object_put(of_tools);
    return s;
}

/* ---- what goes out ------------------------------------------------------------------------------------------------------- */

static void print_prompt(const weft_chat *chat, const weft_jinja_output *prompt, const weft_ids *ids) {
    const weft_str *text = &prompt->text;
    printf("--- prompt: %zu bytes, %s\n", text->n, weft_chat_source(chat));
    if (text->n) fwrite(text->p, 1, text->n, stdout);
    if (text->n && text->p[text->n - 1] != '\n') putchar('\n');
    if (!ids) return;
    printf("--- %zu token%s\n", ids->n, ids->n == 1 ? "" : "s");
    for (size_t i = 0; i < ids->n; i++) printf(i ? " %d" : "%d", (int)ids->v[i]);
    putchar('\n');
}

static struct json_object *text_value(const char *text, size_t n) {
    return json_object_new_string_len(text, (int)n);
}

static weft_status print_json(const weft_chat *chat, const weft_jinja_output *prompt, const weft_ids *ids, weft_error *e) {
    struct json_object *o = json_object_new_object(), *parts = json_object_new_array(),
                       *list = ids ? json_object_new_array() : NULL;
    bool ok = o && parts && (list || !ids);
    for (size_t i = 0; i < prompt->parts.n && ok; i++) {
        const weft_text_part *p = &prompt->parts.v[i];
        struct json_object *part = json_object_new_object();
        ok = part && json_object_object_add(part, "text", text_value(p->text, p->n)) == 0 &&
             json_object_object_add(part, "special", json_object_new_boolean(p->special)) == 0 &&
             json_object_array_add(parts, part) == 0;
        if (!ok) json_object_put(part);
    }
    for (size_t i = 0; ids && i < ids->n && ok; i++) ok = json_object_array_add(list, json_object_new_int(ids->v[i])) == 0;
    ok = ok && json_object_object_add(o, "template", json_object_new_string(weft_chat_source(chat))) == 0 &&
         json_object_object_add(o, "text", text_value(weft_str_z(&prompt->text), prompt->text.n)) == 0;
    if (ok && json_object_object_add(o, "parts", parts) == 0) parts = NULL;
    if (ok && ids && json_object_object_add(o, "ids", list) == 0) list = NULL;
    ok = ok && !parts && !list;
    json_object_put(parts);
    json_object_put(list);
    if (ok) return weft_cli_write_json(o, "-", e);
    json_object_put(o);
    return weft_fail_oom(e, "the result");
}

/* ---- all together ---------------------------------------------------------------------------------------------------------- */

/* A folder may hold a template and no tokenizer: then there are no ids. */
static weft_status open_model(const char *model, weft_tokenizer **t, weft_chat **chat, weft_error *e) {
    weft_str folder = {0}, path = {0};
    weft_status s = WEFT_OK;
    if (!weft_dir_exists(model) && !weft_file_exists(model))
        s = weft_fail(e, WEFT_EINVAL, "%s: no such folder", model);
    else if (!weft_cli_folder(model, &folder) || !weft_str_addf(&path, "%s/tokenizer.json", folder.p))
        s = weft_fail_oom(e, "a path");
    else if (weft_file_exists(path.p))
        s = weft_tokenizer_open(t, path.p, e);
    if (s == WEFT_OK) s = weft_chat_open(chat, folder.p, *t, e);
    weft_str_free(&folder);
    weft_str_free(&path);
    return s;
}

static weft_status show(const options *o, weft_error *e) {
    weft_tokenizer *t = NULL;
    weft_chat *chat = NULL;
    weft_chat_request r = {0};
    weft_jinja_output prompt = {0};
    weft_ids ids = {0};
    weft_status s = open_model(o->model, &t, &chat, e);
    if (s == WEFT_OK) s = read_request(o, &r, e);
    if (s == WEFT_OK) s = weft_chat_render(chat, &r, &prompt, e);
    if (s == WEFT_OK && t) s = weft_tokenizer_encode(t, prompt.parts.v, prompt.parts.n, &ids, e);
    if (s == WEFT_OK && o->json)
        s = print_json(chat, &prompt, t ? &ids : NULL, e);
    else if (s == WEFT_OK)
        print_prompt(chat, &prompt, t ? &ids : NULL);
    weft_vec_free(&ids);
    weft_jinja_output_free(&prompt);
    json_object_put(r.messages);
    json_object_put(r.tools);
    json_object_put(r.vars);
    weft_chat_close(chat);
    weft_tokenizer_close(t);
    return s;
}

int weft_cmd_template(int argc, char **argv) {
    options o = {0};
    const weft_option table[] = {
        WEFT_TEXT("messages", "FILE", &o.messages, NULL, "standard input",
                  "The messages: a JSON array as the OpenAI API has it, or a whole request with \"messages\", \"tools\" and "
                  "\"chat_template_kwargs\"."),
        WEFT_TEXT("tools", "FILE", &o.tools, NULL, NULL, "The tools that the model may call: a JSON array."),
        WEFT_VAR_OPTION(&o.vars),
        WEFT_FLAG("no-generation-prompt", &o.no_generation_prompt,
                  "End with the last message, not with the beginning of the answer."),
        WEFT_FLAG("json", &o.json, "Print a JSON object: the text, its parts (special: control tokens count) and the ids."),
        WEFT_END,
    };
    const weft_command command = {
        .name = "template",
        .positional = "[MODEL]",
        .least = 0,
        .most = 1,
        .summary = "Shows the prompt that a model gets for a chat: the text that its chat template makes of messages, and the "
                   "token ids. MODEL is a model folder, of which the template and the tokenizer's files are enough; without one "
                   "the bundled model's are taken.",
        .options = table,
        .notes = "Examples:\n"
                 "  weft template ./my-model --messages chat.json\n"
                 "  weft template ./my-model --messages chat.json --tools tools.json --var enable_thinking=false\n"
                 "  echo '[{\"role\": \"user\", \"content\": \"Hi!\"}]' | weft template --json\n",
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    o.model = argc ? argv[0] : weft_cli_bundled_model();
    if (!o.model) return weft_cli_fail("the bundled model was not found; name a model folder: weft template MODEL");
    weft_error e = {0};
    return show(&o, &e) == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail("%s", e.text);
}

/* chat.c: see chat.h. */
#include "cli/chat.h"

#include <string.h>

#include "base/file.h"
#include "format/json.h"
#include "text/utf8.h"

/* JSON where it is JSON. */
static struct json_object *value_of(const char *text) {
    struct json_object *root, *v = NULL;
    weft_str object = {0};
    if (weft_str_addf(&object, "{\"\":%s}", text) && weft_json_parse(&root, object.p, object.n, NULL) == WEFT_OK) {
        bool one = json_object_object_length(root) == 1;
        v = one ? json_object_get(weft_json_get((weft_json_at){root, ""}, "")) : NULL;
        bool null = one && !v;
        json_object_put(root);
        weft_str_free(&object);
        if (v || null) return v;
    }
    weft_str_clear(&object);
    v = weft_utf8_add(&object, text, strlen(text)) ? json_object_new_string_len(weft_str_z(&object), (int)object.n) : NULL;
    weft_str_free(&object);
    return v;
}

weft_status weft_cli_vars(const weft_texts *options, struct json_object **vars, weft_error *e) {
    *vars = NULL;
    if (!options->n) return WEFT_OK;
    struct json_object *o = json_object_new_object();
    weft_status s = o ? WEFT_OK : weft_fail_oom(e, "a template's variables");
    for (int i = 0; i < options->n && s == WEFT_OK; i++) {
        const char *option = options->v[i], *equals = strchr(option, '=');
        weft_str name = {0};
        if (!equals || equals == option)
            s = weft_fail(e, WEFT_EINVAL, "--var %s: expected a name, '=' and a value", option);
        else if (!weft_utf8_add(&name, option, (size_t)(equals - option)) ||
                 json_object_object_add(o, weft_str_z(&name), value_of(equals + 1)) != 0)
            s = weft_fail_oom(e, "a template's variables");
        weft_str_free(&name);
    }
    if (s == WEFT_OK)
        *vars = o;
    else
        json_object_put(o);
    return s;
}

static bool add(struct json_object *list, const char *role, const char *text, size_t n) {
    weft_str clean = {0};
    struct json_object *m = json_object_new_object();
    bool ok = m && weft_utf8_add(&clean, text, n) && json_object_object_add(m, "role", json_object_new_string(role)) == 0 &&
              json_object_object_add(m, "content", json_object_new_string_len(weft_str_z(&clean), (int)clean.n)) == 0 &&
              json_object_array_add(list, m) == 0;
    if (!ok) json_object_put(m);
    weft_str_free(&clean);
    return ok;
}

weft_status weft_cli_messages(const char *system, const char *user, size_t n, struct json_object **messages, weft_error *e) {
    struct json_object *list = json_object_new_array();
    if (!list || (system && !add(list, "system", system, strlen(system))) || !add(list, "user", user, n)) {
        json_object_put(list);
        return weft_fail_oom(e, "a chat");
    }
    *messages = list;
    return WEFT_OK;
}

bool weft_cli_folder(const char *model, weft_str *folder) {
    const char *slash = strrchr(model, '/');
    if (weft_dir_exists(model)) return weft_str_addz(folder, model);
    return slash ? weft_str_add(folder, model, (size_t)(slash - model) + 1) : weft_str_addz(folder, ".");
}

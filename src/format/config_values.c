/* config_values.c: checked values of a config: sizes by table, switches, activations, layer kinds. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "format/config_parts.h"

weft_status weft_config_int(weft_json_at at, const char *key, int lo, int hi, int *out, weft_error *e) {
    int64_t x = *out;
    WEFT_TRY(weft_json_int(at, key, lo, hi, &x, e));
    *out = (int)x;
    return WEFT_OK;
}

weft_status weft_config_keys(weft_model_config *c, weft_json_at at, const weft_config_key *keys, size_t n, weft_error *e) {
    for (size_t i = 0; i < n; i++) {
        const weft_config_key *k = &keys[i];
        const char *key = k->other && !weft_json_get(at, k->key) && weft_json_get(at, k->other) ? k->other : k->key;
        if (k->need) WEFT_TRY(weft_json_need(at, key, e));
        WEFT_TRY(weft_config_int(at, key, k->lo, k->hi, (int *)((char *)c + k->field), e));
    }
    return WEFT_OK;
}

weft_status weft_config_want(weft_json_at at, const char *key, bool want, weft_error *e) {
    bool is = want;
    WEFT_TRY(weft_json_bool(at, key, &is, e));
    if (is == want) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%s%s' is %s, which is not supported; %s is", at.path, key, is ? "true" : "false",
                     want ? "true" : "false");
}

weft_status weft_config_want_absent(weft_json_at at, const char *key, weft_error *e) {
    if (!weft_json_get(at, key)) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT, "'%s%s' is set, which is not supported; models without it are", at.path, key);
}

weft_status weft_config_want_activation(weft_json_at at, const char *key, weft_activation want, weft_error *e) {
    static const struct {
        const char *name;
        weft_activation activation;
    } names[] = {{"silu", WEFT_SILU},
                 {"swish", WEFT_SILU},
                 {"gelu_pytorch_tanh", WEFT_GELU_TANH},
                 {"gelu_tanh", WEFT_GELU_TANH},
                 {"relu2", WEFT_RELU2}};
    const char *is = NULL, *wanted = NULL;
    WEFT_TRY(weft_json_text(at, key, &is, e));
    if (!is) return WEFT_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].activation != want) continue;
        if (strcmp(is, names[i].name) == 0) return WEFT_OK;
        if (!wanted) wanted = names[i].name;
    }
    return weft_fail(e, WEFT_ESUPPORT, "'%s%s' is '%.80s', which is not supported; '%s' is", at.path, key, is, wanted);
}

/* "linear_attention or full_attention" */
static const char *allowed_text(char buf[200], const weft_config_word *words, size_t n) {
    size_t len = 0;
    buf[0] = 0;
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(buf + len, 200 - len, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i].word);
    return buf;
}

weft_status weft_config_layers(weft_model_config *c, weft_json_at at, const char *key, const weft_config_word *words, size_t n,
                               bool *found, weft_error *e) {
    struct json_object *list = NULL;
    char allowed[200];
    WEFT_TRY(weft_json_array(at, key, WEFT_MAX_LAYERS, &list, e));
    *found = list != NULL;
    if (!list) return WEFT_OK;
    int count = (int)json_object_array_length(list);
    if (c->n_layers == 0) c->n_layers = count;
    if (count != c->n_layers || count == 0)
        return weft_fail(e, WEFT_EFORMAT, "'%s%s' has %d entries for %d layers", at.path, key, count, c->n_layers);
    for (int i = 0; i < count; i++) {
        const char *kind = NULL;
        size_t w = 0;
        WEFT_TRY(weft_json_text_value(json_object_array_get_idx(list, (size_t)i), at, key, &kind, e));
        while (w < n && strcmp(kind, words[w].word) != 0) w++;
        if (w == n)
            return weft_fail(e, WEFT_ESUPPORT, "'%s%s' calls layer %d '%.80s', which is not supported; expected %s", at.path, key,
                             i, kind, allowed_text(allowed, words, n));
        c->layer_kind[i] = (uint8_t)words[w].kind;
    }
    return WEFT_OK;
}

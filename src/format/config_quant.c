/* config_quant.c: what a config says about packed weights: MLX's default and its entries for single modules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "format/config_parts.h"

const char *weft_module_path(const char *path) {
    for (;;) {
        if (weft_starts_with(path, "language_model."))
            path += strlen("language_model.");
        else if (weft_starts_with(path, "model."))
            path += strlen("model.");
        else if (weft_starts_with(path, "backbone."))
            path += strlen("backbone.");
        else
            return path;
    }
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const weft_quant *)a)->path, ((const weft_quant *)b)->path);
}

static bool same_quant(const weft_quant *a, const weft_quant *b) {
    return a->plain == b->plain && a->bits == b->bits && a->group == b->group && strcmp(a->mode, b->mode) == 0;
}

static weft_status read_quant(weft_model_config *c, weft_quant *q, weft_json_at at, weft_error *e) {
    const char *mode = "affine";
    WEFT_TRY(weft_json_text(at, "mode", &mode, e));
    q->mode = weft_arena_str(&c->arena, mode, strlen(mode));
    if (!q->mode) return weft_fail_oom(e, "reading a config");
    WEFT_TRY(weft_json_need(at, "bits", e));
    WEFT_TRY(weft_json_need(at, "group_size", e));
    WEFT_TRY(weft_config_int(at, "bits", 1, 16, &q->bits, e));
    return weft_config_int(at, "group_size", 1, 1024, &q->group, e);
}

/* {"bits": 4, "group_size": 64, "mode": "affine", "<module>": {...} or false or true, ...} */
static weft_status read_quants(weft_model_config *c, struct json_object *o, const char *path, weft_error *e) {
    weft_json_at at = {o, path};
    if (weft_json_get(at, "bits") || weft_json_get(at, "group_size")) WEFT_TRY(read_quant(c, &c->quant, at, e));
    weft_quant *list = weft_arena_get(&c->arena, (size_t)json_object_object_length(o), sizeof *list);
    if (!list) return weft_fail_oom(e, "reading a config");
    size_t n = 0;
    json_object_object_foreach(o, key, v) {
        bool entry = json_object_is_type(v, json_type_object), flag = json_object_is_type(v, json_type_boolean);
        if (!entry && !flag) continue; /* the default's own numbers and words */
        const char *module = weft_module_path(key);
        weft_quant q = {.path = weft_arena_str(&c->arena, module, strlen(module))};
        if (!q.path) return weft_fail_oom(e, "reading a config");
        if (flag && json_object_get_boolean(v)) {
            if (c->quant.bits == 0) return weft_fail(e, WEFT_EFORMAT, "'%s%.200s' is true, but no default is given", path, key);
            q.bits = c->quant.bits, q.group = c->quant.group, q.mode = c->quant.mode;
        } else if (flag) {
            q.plain = true, q.mode = "affine";
        } else {
            char where[300];
            snprintf(where, sizeof where, "%s%.200s.", path, key);
            WEFT_TRY(read_quant(c, &q, (weft_json_at){v, where}, e));
        }
        list[n++] = q;
    }
    if (n > 0) qsort(list, n, sizeof *list, by_path);
    for (size_t i = 0; i < n; i++) {
        if (c->n_quants > 0 && strcmp(list[i].path, list[c->n_quants - 1].path) == 0) {
            if (!same_quant(&list[i], &list[c->n_quants - 1]))
                return weft_fail(e, WEFT_EFORMAT, "'%s' has two different entries for the module '%.200s'", path, list[i].path);
            continue;
        }
        list[c->n_quants++] = list[i];
    }
    c->quants = list;
    return WEFT_OK;
}

/* MLX writes "quantization", mostly with a copy under "quantization_config"; the latter name alone, with a quant_method, is one of
 * the schemes of transformers. */
weft_status weft_config_quantisation(weft_model_config *c, weft_json_at at, bool *found, weft_error *e) {
    struct json_object *mlx = NULL, *other = NULL;
    char path[64];
    WEFT_TRY(weft_json_object(at, "quantization", &mlx, e));
    WEFT_TRY(weft_json_object(at, "quantization_config", &other, e));
    *found = mlx || other;
    const char *method = NULL;
    if (!mlx && other) WEFT_TRY(weft_json_text((weft_json_at){other, "quantization_config."}, "quant_method", &method, e));
    if (method && strcmp(method, "mlx") != 0)
        return weft_fail(e, WEFT_ESUPPORT,
                         "'%squantization_config.quant_method' is '%.80s', which is not supported yet; plain bf16, f16 and f32 "
                         "weights and MLX affine are",
                         at.path, method);
    WEFT_TRY(weft_config_want_absent(at, "compression_config", e)); /* an older name of compressed-tensors */
    snprintf(path, sizeof path, "%s%s", at.path, mlx ? "quantization." : "quantization_config.");
    return *found ? read_quants(c, mlx ? mlx : other, path, e) : WEFT_OK;
}

const weft_quant *weft_config_quant(const weft_model_config *c, const char *path) {
    if (c->n_quants == 0) return NULL;
    weft_quant key = {.path = weft_module_path(path)};
    return bsearch(&key, c->quants, c->n_quants, sizeof key, by_path);
}

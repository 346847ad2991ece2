/* config.c: see config.h. The frame: the text part, what all families share, tokens, files. */
#include "format/config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "format/config_parts.h"

#define LIMIT ((size_t)16 << 20) /* bytes of a config file: quantisation entries make some of them 100 KB long */

static weft_status read_dtype(weft_model_config *c, weft_json_at at, weft_error *e) {
    static const struct {
        const char *name;
        weft_dtype dtype;
    } names[] = {{"bfloat16", WEFT_BF16}, {"float16", WEFT_F16}, {"float32", WEFT_F32}};
    const char *name = NULL;
    WEFT_TRY(weft_json_text(at, "torch_dtype", &name, e));
    WEFT_TRY(weft_json_text(at, "dtype", &name, e));
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) c->dtype = names[i].dtype;
    return WEFT_OK;
}

/* ---- tokens -------------------------------------------------------------------------------------------------------------- */

static weft_status add_eos(weft_model_config *c, struct json_object *v, weft_json_at at, weft_error *e) {
    int64_t id = 0;
    WEFT_TRY(weft_json_int_value(v, at, "eos_token_id", 0, c->vocab_size - 1, &id, e));
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == (int)id) return WEFT_OK;
    if (c->n_eos == WEFT_MAX_EOS)
        return weft_fail(e, WEFT_EFORMAT, "'%seos_token_id': more than %d end tokens", at.path, WEFT_MAX_EOS);
    c->eos[c->n_eos++] = (int)id;
    return WEFT_OK;
}

/* The files disagree on purpose: one names the end of a document, another the end of a turn. All of them end an answer. */
static weft_status read_tokens(weft_model_config *c, weft_json_at at, weft_error *e) {
    struct json_object *v = weft_json_get(at, "eos_token_id");
    if (json_object_is_type(v, json_type_array))
        for (size_t i = 0; i < json_object_array_length(v); i++) WEFT_TRY(add_eos(c, json_object_array_get_idx(v, i), at, e));
    else if (v)
        WEFT_TRY(add_eos(c, v, at, e));
    WEFT_TRY(weft_config_int(at, "bos_token_id", -1, c->vocab_size - 1, &c->bos, e));
    return weft_config_int(at, "pad_token_id", -1, c->vocab_size - 1, &c->pad, e);
}

/* ---- counting ------------------------------------------------------------------------------------------------------------ */

int weft_config_count(const weft_model_config *c, weft_layer_kind kind) {
    int n = 0;
    for (int i = 0; i < c->n_layers; i++) n += c->layer_kind[i] == kind;
    return n;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static weft_status read_tie(weft_model_config *c, weft_json_at outer, weft_json_at text, weft_error *e) {
    static const char key[] = "tie_word_embeddings";
    weft_json_at at = weft_json_get(text, key) ? text : outer;
    bool tie = false;
    WEFT_TRY(weft_json_bool(at, key, &tie, e));
    c->tie = !weft_json_get(at, key) ? WEFT_TIE_UNSAID : tie ? WEFT_TIE_YES : WEFT_TIE_NO;
    return WEFT_OK;
}

static weft_status read_config(weft_model_config *c, struct json_object *root, weft_error *e) {
    weft_json_at outer = {root, ""}, text = outer;
    struct json_object *inner = NULL;
    const weft_config_type *type;
    WEFT_TRY(weft_json_object(outer, "text_config", &inner, e));
    if (inner) text = (weft_json_at){inner, "text_config."};
    if (!inner) WEFT_TRY(weft_json_object(outer, "llm_config", &inner, e));
    if (inner && !*text.path) text = (weft_json_at){inner, "llm_config."};
    WEFT_TRY(weft_config_find_type(&type, outer, text, e));
    WEFT_TRY(weft_config_family(c, type, outer, text, e));
    WEFT_TRY(read_tie(c, outer, text, e));
    WEFT_TRY(read_dtype(c, outer, e));
    WEFT_TRY(read_dtype(c, text, e));
    WEFT_TRY(read_tokens(c, outer, e));
    if (inner) WEFT_TRY(read_tokens(c, text, e));
    bool found = false;
    WEFT_TRY(weft_config_quantisation(c, outer, &found, e));
    if (inner && !found) WEFT_TRY(weft_config_quantisation(c, text, &found, e));
    return WEFT_OK;
}

typedef weft_status (*reader)(weft_model_config *c, struct json_object *root, weft_error *e);

static weft_status read_generation(weft_model_config *c, struct json_object *root, weft_error *e) {
    return read_tokens(c, (weft_json_at){root, ""}, e);
}

static weft_status read_text(weft_model_config *c, const char *text, size_t n, const char *name, reader read, weft_error *e) {
    struct json_object *root = NULL;
    weft_status st = weft_json_parse(&root, text, n, e);
    if (st == WEFT_OK) st = read(c, root, e);
    json_object_put(root);
    if (st != WEFT_OK) weft_fail_in(e, name);
    return st;
}

weft_status weft_model_config_parse(weft_model_config *c, const char *text, size_t n, const char *generation, size_t generation_n,
                                    weft_error *e) {
    *c = (weft_model_config){.dtype = WEFT_DTYPES, .bos = -1, .pad = -1};
    weft_status st = read_text(c, text, n, "config.json", read_config, e);
    if (st == WEFT_OK && generation) st = read_text(c, generation, generation_n, "generation_config.json", read_generation, e);
    if (st != WEFT_OK) weft_model_config_free(c);
    return st;
}

weft_status weft_model_config_read(weft_model_config *c, const char *folder, weft_error *e) {
    *c = (weft_model_config){0};
    weft_str path = {0};
    char *text = NULL, *generation = NULL;
    size_t n = 0, generation_n = 0;
    weft_status st = WEFT_OK;
    if (!weft_str_addf(&path, "%s/config.json", folder)) st = weft_fail_oom(e, "reading a config");
    if (st == WEFT_OK) st = weft_file_read(weft_str_z(&path), LIMIT, &text, &n, e);
    weft_str_clear(&path);
    if (st == WEFT_OK && !weft_str_addf(&path, "%s/generation_config.json", folder)) st = weft_fail_oom(e, "reading a config");
    if (st == WEFT_OK && weft_file_exists(weft_str_z(&path)))
        st = weft_file_read(weft_str_z(&path), LIMIT, &generation, &generation_n, e);
    if (st == WEFT_OK) {
        st = weft_model_config_parse(c, text, n, generation, generation_n, e);
        if (st != WEFT_OK) weft_fail_in(e, folder);
    }
    weft_free(text);
    weft_free(generation);
    weft_str_free(&path);
    return st;
}

void weft_model_config_free(weft_model_config *c) {
    weft_arena_free(&c->arena);
    *c = (weft_model_config){0};
}

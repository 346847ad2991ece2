/* config_rope.c: rotary position embedding in its spellings: inside `rope_parameters` (for all layers, or for each kind of layer),
 * or flat beside a `rope_scaling`. */
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "format/config_parts.h"

#define MAX_CONTEXT 1073741824.0

/* "type" is the older spelling of "rope_type"; "mrope" is plain RoPE for text. */
static weft_status read_kind(weft_json_at at, bool *found, weft_rope_kind *kind, weft_error *e) {
    static const struct {
        const char *name;
        weft_rope_kind kind;
    } names[] = {{"default", WEFT_ROPE_DEFAULT}, {"mrope", WEFT_ROPE_DEFAULT}, {"linear", WEFT_ROPE_LINEAR},
                 {"llama3", WEFT_ROPE_LLAMA3},   {"yarn", WEFT_ROPE_YARN},     {"proportional", WEFT_ROPE_PROPORTIONAL}};
    const char *name = NULL;
    WEFT_TRY(weft_json_text(at, "type", &name, e));
    WEFT_TRY(weft_json_text(at, "rope_type", &name, e));
    *found = name != NULL;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) return *kind = names[i].kind, WEFT_OK;
    if (!name) return WEFT_OK;
    return weft_fail(e, WEFT_ESUPPORT,
                     "'%srope_type' is '%.80s', which is not supported; default, linear, llama3, yarn and proportional are",
                     at.path, name);
}

static weft_status need_number(weft_json_at at, const char *key, double lo, double hi, double *out, weft_error *e) {
    WEFT_TRY(weft_json_need(at, key, e));
    return weft_json_number(at, key, lo, hi, out, e);
}

static weft_status read_llama3(weft_rope *r, weft_json_at at, weft_error *e) {
    WEFT_TRY(need_number(at, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor, e));
    WEFT_TRY(need_number(at, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor, e));
    if (r->low_freq_factor < r->high_freq_factor) return WEFT_OK;
    return weft_fail(e, WEFT_EFORMAT, "'%slow_freq_factor' is not below 'high_freq_factor'", at.path);
}

static weft_status read_yarn(weft_model_config *c, weft_rope *r, weft_json_at at, weft_error *e) {
    r->beta_fast = 32, r->beta_slow = 1;
    WEFT_TRY(weft_json_number(at, "beta_fast", 1e-3, 1e6, &r->beta_fast, e));
    WEFT_TRY(weft_json_number(at, "beta_slow", 1e-3, 1e6, &r->beta_slow, e));
    if (r->theta <= 1) return weft_fail(e, WEFT_EFORMAT, "'%srope_theta' is %g, which YaRN cannot scale", at.path, r->theta);
    if (r->beta_slow >= r->beta_fast) return weft_fail(e, WEFT_EFORMAT, "'%sbeta_slow' is not below 'beta_fast'", at.path);
    r->attention_factor = r->factor > 1 ? 0.1 * weft_ln(r->factor) + 1 : 1;
    WEFT_TRY(weft_json_number(at, "attention_factor", 1e-3, 1e3, &r->attention_factor, e));
    WEFT_TRY(weft_config_want_absent(at, "mscale", e));
    WEFT_TRY(weft_config_want_absent(at, "mscale_all_dim", e));
    WEFT_TRY(weft_config_want(at, "truncate", true, e));
    double reach = r->factor * r->original_context; /* what the scaling is for, where the config still says what came before */
    if (reach > c->max_position) c->max_position = reach < MAX_CONTEXT ? (int)reach : (int)MAX_CONTEXT;
    return WEFT_OK;
}

static weft_status read_scaling(weft_model_config *c, weft_rope *r, weft_json_at at, weft_json_at text, weft_error *e) {
    static const char original[] = "original_max_position_embeddings";
    r->factor = r->attention_factor = 1;
    if (r->kind == WEFT_ROPE_DEFAULT) return WEFT_OK;
    if (r->kind != WEFT_ROPE_PROPORTIONAL) WEFT_TRY(weft_json_need(at, "factor", e));
    WEFT_TRY(weft_json_number(at, "factor", 1, 1e6, &r->factor, e));
    if (r->kind != WEFT_ROPE_LLAMA3 && r->kind != WEFT_ROPE_YARN) return WEFT_OK;
    r->original_context = c->max_position;
    if (r->kind == WEFT_ROPE_LLAMA3) WEFT_TRY(weft_json_need(at, original, e));
    WEFT_TRY(weft_json_number(weft_json_get(at, original) ? at : text, original, 1, MAX_CONTEXT, &r->original_context, e));
    return r->kind == WEFT_ROPE_LLAMA3 ? read_llama3(r, at, e) : read_yarn(c, r, at, e);
}

weft_status weft_config_rope(weft_model_config *c, weft_json_at text, const char *layers, double theta, double part,
                             weft_heads *heads, weft_error *e) {
    weft_json_at rope = {NULL, "rope_parameters."}, old = {NULL, "rope_scaling."};
    weft_rope *r = &heads->rope;
    char path[80];
    WEFT_TRY(weft_json_object(text, "rope_parameters", &rope.object, e));
    WEFT_TRY(weft_json_object(text, "rope_scaling", &old.object, e));
    if (layers && weft_json_get(rope, layers)) {
        WEFT_TRY(weft_json_object(rope, layers, &rope.object, e));
        snprintf(path, sizeof path, "rope_parameters.%s.", layers);
        rope.path = path;
        old.object = NULL; /* an older copy, which would be for the full layers */
    }
    *r = (weft_rope){.kind = WEFT_ROPE_DEFAULT, .theta = theta};
    weft_rope_kind old_kind = WEFT_ROPE_DEFAULT;
    bool said, said_old;
    WEFT_TRY(read_kind(rope, &said, &r->kind, e));
    WEFT_TRY(read_kind(old, &said_old, &old_kind, e));
    if (!said) r->kind = old_kind;
    if (r->kind != old_kind && said_old)
        return weft_fail(e, WEFT_EFORMAT, "'rope_parameters' and 'rope_scaling' name different kinds of RoPE");

    weft_json_at at = weft_json_get(rope, "rope_theta") ? rope : text;
    if (theta == 0) WEFT_TRY(weft_json_need(at, "rope_theta", e));
    WEFT_TRY(weft_json_number(at, "rope_theta", 1, 1e12, &r->theta, e));
    at = weft_json_get(rope, "partial_rotary_factor") ? rope : text;
    WEFT_TRY(weft_json_number(at, "partial_rotary_factor", 0, 1, &part, e));
    int turning = (int)(heads->head_dim * part);
    r->width = r->kind == WEFT_ROPE_PROPORTIONAL ? heads->head_dim : turning;
    r->turning = turning / 2;
    if (r->width % 2 || r->turning < 1 || (r->kind != WEFT_ROPE_PROPORTIONAL && turning % 2))
        return weft_fail(e, WEFT_EFORMAT,
                         "'%spartial_rotary_factor' makes %d of %d dimensions rotate; expected an even number, at least 2", at.path,
                         turning, heads->head_dim);
    return read_scaling(c, r, said ? rope : old, text, e);
}

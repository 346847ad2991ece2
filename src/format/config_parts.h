/* config_parts.h: what the files of the config reader share: config.c the frame, config_values.c checked values, config_rope.c
 * position embeddings, config_families.c each family's keys, config_quant.c packed weights. */
#ifndef WEFT_FORMAT_CONFIG_PARTS_H
#define WEFT_FORMAT_CONFIG_PARTS_H

#include "format/config.h"
#include "format/json.h"

/* ---- values (config_values.c) ---- */

/* One whole number of a family. */
typedef struct weft_config_key {
    const char *key, *other; /* a second spelling, or NULL */
    size_t field;            /* of an int in weft_model_config */
    int lo, hi;
    bool need; /* otherwise what the field holds already is what an absent key means */
} weft_config_key;
#define WEFT_CONFIG_FIELD(field) offsetof(weft_model_config, field)

weft_status weft_config_keys(weft_model_config *c, weft_json_at at, const weft_config_key *keys, size_t n, weft_error *e);
/* weft_json_int for an int. */
weft_status weft_config_int(weft_json_at at, const char *key, int lo, int hi, int *out, weft_error *e);

/* Switches that would need other arithmetic: absent, null or this value, or WEFT_ESUPPORT. */
weft_status weft_config_want(weft_json_at at, const char *key, bool want, weft_error *e);
weft_status weft_config_want_absent(weft_json_at at, const char *key, weft_error *e);
weft_status weft_config_want_activation(weft_json_at at, const char *key, weft_activation want, weft_error *e);

/* Layer kinds by name. */
typedef struct weft_config_word {
    const char *word;
    weft_layer_kind kind;
} weft_config_word;
/* An array of words, one a layer: sets layer_kind and n_layers. WEFT_ESUPPORT: another word. *found: is there one? */
weft_status weft_config_layers(weft_model_config *c, weft_json_at at, const char *key, const weft_config_word *words, size_t n,
                               bool *found, weft_error *e);

/* ---- position embeddings (config_rope.c) ---- */

/* RoPE of layers whose head_dim is known. layers: their name in a rope_parameters that differs by kind of layer, or NULL. theta and
 * part: what the family takes where the config says nothing; theta 0: the config must say it. */
weft_status weft_config_rope(weft_model_config *c, weft_json_at text, const char *layers, double theta, double part,
                             weft_heads *heads, weft_error *e);

/* ---- families (config_families.c) ---- */

typedef struct weft_config_type weft_config_type;
/* The model type that the file announces; inner: the one of its text part, absent in flat files. */
weft_status weft_config_find_type(const weft_config_type **t, weft_json_at outer, weft_json_at text, weft_error *e);
/* All that the family reads. */
weft_status weft_config_family(weft_model_config *c, const weft_config_type *t, weft_json_at outer, weft_json_at text,
                               weft_error *e);

/* ---- packed weights (config_quant.c) ---- */

weft_status weft_config_quantisation(weft_model_config *c, weft_json_at at, bool *found, weft_error *e);

#endif

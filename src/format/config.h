/* config.h: a model's sizes and switches, from config.json and generation_config.json.
 *
 * Publishers and converters spell the same model in several ways: sizes at the top or inside `text_config`, RoPE inside
 * `rope_parameters` or flat, layer kinds listed or by an interval. All of them fill the same struct. Every number is checked
 * against the range this engine can compute with, and a switch that would need other arithmetic is refused by name: a config that
 * parses is a model that runs. What a config merely claims about the tensors (tied head, drafter) is settled in model_dir.h. */
#ifndef WEFT_FORMAT_CONFIG_H
#define WEFT_FORMAT_CONFIG_H

#include "base/arena.h"
#include "base/error.h"
#include "format/dtype.h"

#define WEFT_MAX_LAYERS 1024
#define WEFT_MAX_EOS 16

typedef enum weft_family {
    WEFT_FAMILY_QWEN35, /* Qwen3.5, 3.6, 3.8, dense and MoE: Gated DeltaNet layers with a gated attention layer between */
} weft_family;

typedef enum weft_layer_kind { WEFT_LAYER_GDN, WEFT_LAYER_ATTENTION } weft_layer_kind;

typedef enum weft_tie { WEFT_TIE_UNSAID, WEFT_TIE_NO, WEFT_TIE_YES } weft_tie;

/* How a converter packed one module's weight. */
typedef struct weft_quant {
    const char *path; /* the module, as weft_module_path() gives it; NULL: the default */
    bool plain;       /* explicitly not quantised */
    int bits, group;  /* 0: not said */
    const char *mode; /* "affine", or a name that weight.h refuses */
} weft_quant;

typedef struct weft_model_config {
    weft_family family;
    bool moe;
    weft_dtype dtype; /* what the publisher computed in; WEFT_DTYPES: not said */

    int vocab_size;
    int hidden_size;
    int intermediate_size; /* of dense layers; 0 in MoE models */
    int n_layers;
    uint8_t layer_kind[WEFT_MAX_LAYERS]; /* weft_layer_kind of layers 0..n_layers-1 */
    float rms_norm_eps;
    int max_position; /* the context the model was trained for */
    weft_tie tie;     /* is the output head the embedding? */

    /* attention layers */
    int n_heads, n_kv_heads, head_dim; /* n_kv_heads divides n_heads */
    int rotary_dim;                    /* even, <= head_dim; the first rotary_dim dimensions of a head rotate */
    double rope_theta;

    /* Gated DeltaNet layers */
    int gdn_k_heads, gdn_v_heads, gdn_k_dim, gdn_v_dim; /* gdn_k_heads divides gdn_v_heads */
    int gdn_conv;                                       /* taps of the convolution */

    /* mixture of experts; 0 in dense models */
    int n_experts, top_k;
    int moe_intermediate;    /* of a routed expert */
    int shared_intermediate; /* of the shared expert */
    bool norm_topk;          /* the chosen experts' weights are renormalised to sum 1 */

    int mtp_layers; /* 0 or 1: a multi-token-prediction layer is announced (converters drop its tensors and keep the number) */

    int n_eos; /* every end token that any of the files names: generation stops at each */
    int eos[WEFT_MAX_EOS];
    int bos, pad; /* -1: none */

    weft_quant quant;         /* the default; bits 0: none is given */
    const weft_quant *quants; /* [n_quants], sorted by path: modules that differ from it */
    size_t n_quants;

    weft_arena arena; /* what the pointers above point into */
} weft_model_config;

/* From text. generation: generation_config.json or NULL. WEFT_EFORMAT: damaged, missing or absurd; WEFT_ESUPPORT: another model.
 * On failure c holds nothing. */
weft_status weft_model_config_parse(weft_model_config *c, const char *text, size_t n, const char *generation, size_t generation_n,
                                    weft_error *e);
/* From the files of a model folder. */
weft_status weft_model_config_read(weft_model_config *c, const char *folder, weft_error *e);
void weft_model_config_free(weft_model_config *c);

/* How many numbers the network has, counted from its sizes. */
typedef struct weft_parameters {
    int64_t trunk;  /* embedding, layers, final norm, output head where it is not the embedding */
    int64_t active; /* of these, what one token uses: all but the experts not chosen */
    int64_t mtp;    /* the drafter, without the embedding and head that it shares */
} weft_parameters;
weft_parameters weft_config_parameters(const weft_model_config *c, bool tied);

/* A module's path without the wrappers that converters put before it: "language_model.model.layers.0.mlp.gate" and
 * "model.layers.0.mlp.gate" are both "layers.0.mlp.gate". Points into `path`. */
const char *weft_module_path(const char *path);
/* What the config says about one module (any spelling); NULL: nothing. */
const weft_quant *weft_config_quant(const weft_model_config *c, const char *path);

#endif

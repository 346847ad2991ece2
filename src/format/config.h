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
#include "format/activation.h"
#include "format/dtype.h"

#define WEFT_MAX_LAYERS 1024
#define WEFT_MAX_EOS 16

/* The families, each a file in src/model. */
typedef enum weft_family {
    WEFT_FAMILY_QWEN_HYBRID,      /* Qwen3-Next, Qwen3.5, 3.6, 3.8: Gated DeltaNet layers with a gated attention layer between */
    WEFT_FAMILY_LLAMA,            /* Llama 3, Qwen2, Qwen3, Qwen3-MoE, Qwen3-Embedding and -Reranker: the plain decoder */
    WEFT_FAMILY_GEMMA3,           /* Gemma 3 text */
    WEFT_FAMILY_GEMMA4,           /* Gemma 4 text */
    WEFT_FAMILY_GEMMA4_ASSISTANT, /* a drafter: not a model by itself */
    WEFT_FAMILY_NEMOTRON_H,       /* Nemotron-H, Nemotron 3: Mamba-2, attention, MLP and mixtures, one block a layer */
} weft_family;

/* What a layer mixes positions with; in Nemotron-H also layers that do not, and are one feed-forward block. */
typedef enum weft_layer_kind {
    WEFT_LAYER_GDN,
    WEFT_LAYER_MAMBA,
    WEFT_LAYER_ATTENTION, /* sees all positions before it */
    WEFT_LAYER_SLIDING,   /* sees the last `window` */
    WEFT_LAYER_MLP,
    WEFT_LAYER_MOE,
} weft_layer_kind;

typedef enum weft_rope_kind {
    WEFT_ROPE_NONE,
    WEFT_ROPE_DEFAULT,
    WEFT_ROPE_LINEAR,
    WEFT_ROPE_LLAMA3,
    WEFT_ROPE_YARN,
    WEFT_ROPE_PROPORTIONAL,
} weft_rope_kind;

/* Rotary position embedding: pairs (j, j + width / 2) of a head's first `width` dimensions turn by position * frequency j. */
typedef struct weft_rope {
    weft_rope_kind kind;
    double theta;
    int width;     /* even, <= head_dim. PROPORTIONAL: head_dim, of whose pairs only the first `turning` turn */
    int turning;   /* pairs with a frequency that is not 0 */
    double factor; /* LINEAR, LLAMA3, YARN, PROPORTIONAL: 1 where not said */
    double low_freq_factor, high_freq_factor; /* LLAMA3 */
    double beta_fast, beta_slow;              /* YARN */
    double attention_factor;                  /* YARN: queries and keys are multiplied by it; otherwise 1 */
    double original_context;                  /* LLAMA3, YARN: positions of the first training */
} weft_rope;

/* The attention layers of one kind. */
typedef struct weft_heads {
    int n_kv_heads, head_dim; /* n_kv_heads divides n_heads */
    weft_rope rope;
} weft_heads;

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
    const char *type; /* model_type of its text part as the file spells it: "qwen3_moe" */
    weft_dtype dtype; /* what the publisher computed in; WEFT_DTYPES: not said */

    int vocab_size;
    int hidden_size;
    int intermediate_size; /* of dense feed-forward blocks; 0 where there are none */
    int n_layers;
    uint8_t layer_kind[WEFT_MAX_LAYERS]; /* weft_layer_kind of layers 0..n_layers-1 */
    float norm_eps;
    int max_position;           /* the context the model was trained for; with YaRN at least what that stretches it to */
    weft_tie tie;               /* is the output head the embedding? */
    weft_activation activation; /* of feed-forward blocks; RELU2 blocks have no gate */
    float logit_cap;            /* logits are cap * tanh(logit / cap); 0: as they are */

    /* attention layers */
    int n_heads;
    weft_heads full, sliding; /* of ATTENTION and of SLIDING layers; the same where the config makes no difference */
    int window;               /* positions that a sliding layer sees, its own included; 0: no such layers */
    float attention_scale;    /* of q k: 1 / sqrt(head_dim), or what the config says; YARN's factor is not in it */
    bool qkv_bias, o_bias;    /* projections with a bias; mlp_bias: those of dense feed-forward blocks */
    bool mlp_bias;
    bool qk_norm;         /* a norm on each head's q and k */
    bool k_eq_v;          /* Gemma 4: full layers have no v projection, v is the k projection's output */
    int kv_shared_layers; /* Gemma 4: the last so many layers read the keys and values of an earlier one */
    bool double_wide_mlp; /* Gemma 4: layers with shared keys have 2 * intermediate_size */
    int layer_inputs;     /* Gemma 4: columns of each layer's own embedding of the token (per-layer embeddings); 0: none */

    /* Gated DeltaNet layers */
    int gdn_k_heads, gdn_v_heads, gdn_k_dim, gdn_v_dim; /* gdn_k_heads divides gdn_v_heads */

    /* Mamba-2 layers */
    int mamba_heads, mamba_head_dim, mamba_groups, mamba_state; /* mamba_groups divides mamba_heads */
    bool mamba_conv_bias;
    double dt_low, dt_high; /* the time step is clipped to this range; dt_high may be infinite */

    int conv_kernel; /* taps of the convolution before a recurrence */

    /* mixtures of experts; n_experts 0: none */
    int n_experts, top_k;
    int moe_intermediate;    /* of a routed expert */
    int shared_intermediate; /* of the shared expert; 0: there is none */
    int moe_latent;      /* routed experts work on so many columns, projected from the hidden row and back; 0: on the hidden row */
    bool norm_topk;      /* the chosen experts' weights are renormalised to sum 1 */
    bool sigmoid_router; /* scores are sigmoids, chosen by score + a bias of each expert; otherwise a softmax */
    int router_groups, router_top_groups; /* experts are chosen in the best so many of these groups; 1, 1: no groups */
    float routed_scale;                   /* the weights are multiplied by it */

    int mtp_layers; /* 0 or 1: a multi-token-prediction layer is announced (converters drop its tensors and keep the number) */

    /* the drafter of Gemma 4 */
    int backbone_hidden;           /* hidden_size of its target */
    int n_centroids, centroid_top; /* its head looks at the tokens of the best centroid_top of n_centroids; 0: at all tokens */

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

/* The attention layers of a kind. */
static inline const weft_heads *weft_config_heads(const weft_model_config *c, weft_layer_kind kind) {
    return kind == WEFT_LAYER_SLIDING ? &c->sliding : &c->full;
}
/* Layers of a kind. */
int weft_config_count(const weft_model_config *c, weft_layer_kind kind);

/* A module's path without the wrappers that converters put before it: "language_model.model.layers.0.mlp.gate" and
 * "model.layers.0.mlp.gate" are both "layers.0.mlp.gate". Points into `path`. */
const char *weft_module_path(const char *path);
/* What the config says about one module (any spelling); NULL: nothing. */
const weft_quant *weft_config_quant(const weft_model_config *c, const char *path);

#endif

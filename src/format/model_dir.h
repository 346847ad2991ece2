/* model_dir.h: a model folder: its config, its tensors, and which of several conventions its publisher followed.
 *
 * The same network is published under different prefixes, with norm gains stored as w or as 1 + w, and with or without its drafter.
 * These facts are read off the tensors, not off the folder's name, and settled here once; a wrong guess at the drafter's norms
 * would show as nothing but drafts that are never accepted. */
#ifndef WEFT_FORMAT_MODEL_DIR_H
#define WEFT_FORMAT_MODEL_DIR_H

#include "format/config.h"
#include "format/safetensors.h"

typedef struct weft_model_dir {
    char *path; /* the folder */
    weft_model_config config;
    weft_tensors *tensors;

    const char *trunk;     /* before "layers.0.": "model.", "model.language_model.", "language_model.model.", "backbone.", "" */
    const char *embedding; /* after it: "embed_tokens", "embeddings" */
    const char *norm;      /* after it, the norm behind all layers: "norm", "norm_f" */
    const char *head;      /* the output head's module: "lm_head"; NULL: the embedding is the head, or there is none */
    bool headless;         /* a bare trunk of a model that does not tie its head: good for embeddings of texts, not for logits */
    /* The trunk as MLX converters write it: convolutions are [channels, taps, 1], and where the family stores norm gains as w of
     * 1 + w and the converter changes that (Qwen hybrids, not Gemma 3), they are 1 + w already. False where it makes no difference.
     */
    bool converted;

    /* The MTP head. Qwen: before "fc" and "layers.0."; Nemotron-H: before "layers.0." and "layers.1.". NULL: not in these files. */
    const char *mtp;
    const char *mtp_head; /* the module of its own output head: "mtp.lm_head"; NULL: the trunk's */
    bool mtp_converted;   /* Qwen: its norm gains are 1 + w already */
} weft_model_dir;

/* A folder, or a file in it. WEFT_EINVAL: no model folder; otherwise as the readers of its parts. On failure d holds nothing. */
weft_status weft_model_dir_open(weft_model_dir *d, const char *path, weft_error *e);
void weft_model_dir_close(weft_model_dir *d);

/* What to call the model: the folder's own name, or the repository's ("Qwen--Qwen3.5-2B") for a snapshot in the Hugging Face cache.
 */
void weft_model_dir_name(const weft_model_dir *d, char name[256]);

/* Which weights these are, without reading them all: a hash of the config, of the name, size, time of writing and header of every
 * tensor file, and of 256 samples of 4 KiB, spread evenly over the data, so that other weights of the same sizes and times are
 * noticed, too. It says nothing about damage between the samples. WEFT_EIO: the files changed meanwhile. */
weft_status weft_model_dir_fingerprint(const weft_model_dir *d, uint8_t out[16], weft_error *e);

#endif

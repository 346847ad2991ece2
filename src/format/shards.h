/* shards.h: which files hold a checkpoint's tensors: the text of model.safetensors.index.json.
 *
 * File names in it come from strangers. They must be plain names of .safetensors files beside the index: no folders, no "..". */
#ifndef WEFT_FORMAT_SHARDS_H
#define WEFT_FORMAT_SHARDS_H

#include "base/arena.h"
#include "base/error.h"

#define WEFT_MAX_SHARDS 1024 /* as many files as base/file.h maps at a time */

typedef struct weft_shard_entry {
    const char *tensor;
    const char *file; /* one of files[]: equal names are equal pointers */
} weft_shard_entry;

typedef struct weft_shards {
    weft_arena arena;
    const char **files; /* [n_files], sorted, each once */
    size_t n_files;
    weft_shard_entry *entries; /* [n_entries] */
    size_t n_entries;
} weft_shards;

/* {"metadata": ..., "weight_map": {tensor: file}}. On failure s is empty. */
weft_status weft_shards_parse(weft_shards *s, const char *text, size_t n, weft_error *e);
void weft_shards_free(weft_shards *s);

#endif

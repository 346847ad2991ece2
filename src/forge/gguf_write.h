/* gguf_write.h: tensors into a GGUF file (version 3), as they are made. */
#ifndef WEFT_FORGE_GGUF_WRITE_H
#define WEFT_FORGE_GGUF_WRITE_H

#include "base/str.h"
#include "forge/output.h"

enum { WEFT_GGUF_ALIGNMENT = 32 }; /* of every tensor's data: the format's default */

/* The metadata: keys and values in order. */
typedef struct weft_gguf_keys {
    weft_str bytes;
    uint64_t n;
    bool failed;  /* memory ran out; weft_write_gguf() reports it */
} weft_gguf_keys; /* zero-initialise */

void weft_gguf_u32(weft_gguf_keys *k, const char *key, uint32_t v);
void weft_gguf_f32(weft_gguf_keys *k, const char *key, float v);
void weft_gguf_bool(weft_gguf_keys *k, const char *key, bool v);
void weft_gguf_text(weft_gguf_keys *k, const char *key, const char *v);
void weft_gguf_i32s(weft_gguf_keys *k, const char *key, const int32_t *v, uint64_t n);
void weft_gguf_keys_free(weft_gguf_keys *k);

/* Stores: all but CODES. */
weft_status weft_write_gguf(weft_output *o, const char *name, const weft_gguf_keys *keys, const weft_new_tensor *t, size_t n,
                            weft_error *e);

#endif

/* describe.h: what a checkpoint's files say of its shape: the text part of a config.json, the keys of a GGUF file. */
#ifndef WEFT_FORGE_DESCRIBE_H
#define WEFT_FORGE_DESCRIBE_H

#include "base/str.h"
#include "forge/gguf_write.h"
#include "forge/shapes.h"

/* All of config.json, for the first `layers` layers; packing: the members about that, each line with its comma, or "". There is no
 * end token: random weights would draw one by accident. false: memory ran out. */
bool weft_describe_config(weft_str *out, const weft_shape *shape, int layers, const char *packing);

/* The keys of the architecture. Failures stay in `keys`. */
void weft_describe_gguf(weft_gguf_keys *keys, const weft_shape *shape, int layers);

#endif

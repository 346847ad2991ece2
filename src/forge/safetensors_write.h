/* safetensors_write.h: tensors into safetensors files, as they are made. What format/safetensors.h reads. */
#ifndef WEFT_FORGE_SAFETENSORS_WRITE_H
#define WEFT_FORGE_SAFETENSORS_WRITE_H

#include "forge/output.h"

/* model.safetensors; or, where that would hold more than `limit` bytes of data, model-00001-of-00002.safetensors and so on with
 * model.safetensors.index.json. No tensor is split. format: the value of that key in the metadata. Stores: F32, BF16, CODES. */
weft_status weft_write_safetensors(weft_output *o, const weft_new_tensor *t, size_t n, uint64_t limit, const char *format,
                                   weft_error *e);

#endif

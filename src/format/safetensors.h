/* safetensors.h: tensors on disk, mapped and read in place.
 *
 * A file is a 64-bit little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the data, row-major. A
 * checkpoint is one such file or several (shards). Every length, offset, type and shape is checked against the file before a
 * tensor is handed out: a weft_tensor always describes `bytes` readable bytes that fit its shape and overlap no other tensor.
 * What the numbers mean (NaN included) is for the reader to check. */
#ifndef WEFT_FORMAT_SAFETENSORS_H
#define WEFT_FORMAT_SAFETENSORS_H

#include "base/error.h"
#include "base/file.h"
#include "format/dtype.h"

#define WEFT_MAX_RANK 8
#define WEFT_MAX_HEADER ((size_t)100 * 1000 * 1000)

typedef struct weft_tensor {
    const char *name;
    weft_dtype dtype;
    int rank;
    int64_t shape[WEFT_MAX_RANK]; /* the last index is contiguous */
    const uint8_t *data;          /* at any alignment */
    size_t bytes;
    const char *file; /* path, for messages */
} weft_tensor;

typedef struct weft_tensors weft_tensors; /* the tensors of one file, or of all files of a folder */

/* A file, or a folder: the shards that model.safetensors.index.json names; without one, model.safetensors; without that, the only
 * .safetensors file there. mtp.safetensors is added where present (converted checkpoints keep their drafter in it). A tensor that
 * comes twice, and one that the index names but no shard has, are WEFT_EFORMAT. */
weft_status weft_tensors_open(weft_tensors **t, const char *path, weft_error *e);
/* A safetensors file in memory; the bytes must outlive t. `file` serves messages. */
weft_status weft_tensors_parse(weft_tensors **t, const void *data, size_t size, const char *file, weft_error *e);
void weft_tensors_close(weft_tensors *t);

size_t weft_tensors_count(const weft_tensors *t);
/* i < count: file by file, ascending in each. */
const weft_tensor *weft_tensors_at(const weft_tensors *t, size_t i);
const weft_tensor *weft_tensors_find(const weft_tensors *t, const char *name); /* NULL: none */
/* A value of __metadata__, such as "format"; of the first file that has the key; NULL: none. */
const char *weft_tensors_metadata(const weft_tensors *t, const char *key);
/* The files themselves, i < count, in the order in which they were opened: 64-bit header length, header, data. */
size_t weft_tensors_file_count(const weft_tensors *t);
const weft_map *weft_tensors_file(const weft_tensors *t, size_t i);
/* After reading from the tensors: WEFT_EIO if a file was cut or failed meanwhile. */
weft_status weft_tensors_check(const weft_tensors *t, weft_error *e);

/* "[320, 64]" into buf; returns buf. */
const char *weft_shape_text(int rank, const int64_t *shape, char buf[192]);

/* Writes name, dtype, shape and data of n tensors, in that order, so that the old file stays whole on failure. metadata: key,
 * value, key, value, ..., NULL; or NULL. Names are UTF-8 and differ. */
weft_status weft_safetensors_write(const char *path, const weft_tensor *t, size_t n, const char *const *metadata, weft_error *e);

#endif

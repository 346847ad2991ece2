/* output.h: a folder of new files that comes into being whole.
 *
 * Files are written under temporary names ("model.gguf.tmp") in a folder that was empty or not there, synced, and get their names
 * together at the end, in the order in which they were begun: what is begun last (config.json) makes the folder a model. After a
 * failure nothing is left; after a kill, names that no program takes for a model. */
#ifndef WEFT_FORGE_OUTPUT_H
#define WEFT_FORGE_OUTPUT_H

#include <signal.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/vec.h"
#include "forge/values.h"

/* A tensor to be written. */
typedef struct weft_new_tensor {
    const char *name;
    int rank;
    int64_t shape[3]; /* the last index is contiguous */
    uint64_t units;   /* of values.store */
    weft_values values;
} weft_new_tensor;
uint64_t weft_new_tensor_bytes(const weft_new_tensor *t);

typedef struct weft_output_file {
    char *path, *temp;
} weft_output_file;

typedef struct weft_output {
    char *folder;
    bool made; /* by us */
    WEFT_VEC(weft_output_file) files;
    size_t named; /* of these: have their names */
    int fd;       /* the file being written; -1: none */
    uint8_t *buffer;
    size_t used;
    uint64_t bytes; /* written so far, all files together */
    const volatile sig_atomic_t *stop;
} weft_output;

/* `folder` must be empty or not exist, and its disk have room for `need` bytes. *stop (NULL: never) ends everything with WEFT_EIO
 * once it is not 0. weft_output_close() after a failure, too. */
weft_status weft_output_open(weft_output *o, const char *folder, uint64_t need, const volatile sig_atomic_t *stop, weft_error *e);

/* One file at a time. */
weft_status weft_output_begin(weft_output *o, const char *name, weft_error *e);
weft_status weft_output_put(weft_output *o, const void *data, size_t n, weft_error *e);
weft_status weft_output_tensor(weft_output *o, const weft_new_tensor *t, weft_error *e);
weft_status weft_output_end(weft_output *o, weft_error *e);

/* All files get their names. */
weft_status weft_output_commit(weft_output *o, weft_error *e);
/* Removes what was not committed. */
void weft_output_close(weft_output *o);

#endif

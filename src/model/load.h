/* load.h: from a checkpoint's tensors to weights on the device.
 *
 * A model file asks for what its architecture has; the loader knows the file formats. Failures stick: after the first one every
 * call returns NULL, so that a model's loading code reads as a plain list, and the caller looks at `status` once. A path is a
 * module's: "model.layers.0.mlp". */
#ifndef WEFT_MODEL_LOAD_H
#define WEFT_MODEL_LOAD_H

#include "base/arena.h"
#include "format/model_dir.h"
#include "format/weight.h"
#include "model/model.h"
#include "ops/ops.h"

typedef struct weft_loader {
    weft_dev *dev;
    const weft_model_dir *dir;
    const weft_model_config *config;
    bool shift;       /* norm gains are stored less one */
    weft_arena arena; /* paths, and what row readers need, until loading is done */
    weft_arena *kept; /* the model's: what must live as long as it */
    weft_model_sink sink;
    void *sink_ctx;
    const weft_tensor *last; /* that the sink was told of: one tensor may be two weights, made one after the other */
    weft_status status;
    weft_error *e;
} weft_loader;

void weft_loader_open(weft_loader *l, weft_dev *dev, const weft_model_dir *dir, weft_arena *kept, weft_error *e);
void weft_loader_close(weft_loader *l);
/* Memory ran out for `what`; an earlier failure stays. */
void weft_loader_oom(weft_loader *l, const char *what);

/* prefix + printf, in the loader's arena. */
const char *weft_loader_path(weft_loader *l, const char *prefix, const char *fmt, ...) WEFT_PRINTF(3, 4);
/* Is there a tensor of this name? */
bool weft_loader_has(const weft_loader *l, const char *name);
/* Rows of module `path`'s weight by its file, 0: there is none. For the few sizes that no config tells. */
int weft_loader_rows(weft_loader *l, const char *path);
/* A buffer for the plan's rows; an error when memory is short. */
weft_buf *weft_load_buf(weft_loader *l, const char *phase, int cols);

/* The weight of module `path`, [n, k]. */
weft_mat *weft_load_mat(weft_loader *l, const char *path, int64_t n, int64_t k);

/* Some rows of a stored weight: rows [offset, offset + block), then `stride` further on the next `block`, until there are n. */
typedef struct weft_slice {
    int64_t n, block, stride, offset;
} weft_slice;
/* Rows first, first + 1, ... */
#define WEFT_ROWS(first, count) ((weft_slice){.n = (count), .block = (count), .stride = (count), .offset = (first)})
/* Up to four slices of a weight [stored, k], one after the other. */
weft_mat *weft_load_slices(weft_loader *l, const char *path, int64_t stored, int64_t k, const weft_slice *slices, int n);

/* A copy of rows ids[0..n) of a weight [stored, k], which lives beside it and is no part of what is kept on disk. Plain values
 * become codes of 8 bits where the device computes with codes: a copy may be less exact. ids live until loading is done. */
weft_mat *weft_load_copy(weft_loader *l, const char *path, int64_t stored, int64_t k, const int32_t *ids, int n);

/* The weights of a mixture's experts. `path` is the module that they belong to; they may be fused (experts.gate_up_proj), stacked
 * (switch_mlp.gate_proj, experts.switch_glu.gate_proj), or one by one (experts.7.gate_proj).
 * [experts, 2 inner, k]: gate rows, then up rows. */
weft_mat *weft_load_gate_up(weft_loader *l, const char *path, int64_t experts, int64_t inner, int64_t k);
/* [experts, inner, k]: of experts without a gate; stacked it is called fc1. */
weft_mat *weft_load_up(weft_loader *l, const char *path, int64_t experts, int64_t inner, int64_t k);
/* [experts, n, inner]; stacked it may be called fc2. */
weft_mat *weft_load_down(weft_loader *l, const char *path, int64_t experts, int64_t n, int64_t inner);

/* A weight [n, k] whose rows a tensor of ids puts in another order, as [parts, n / parts, k]; *order gets the ids. */
weft_mat *weft_load_ordered(weft_loader *l, const char *path, const char *ids, int parts, int64_t n, int64_t k,
                            const weft_coef **order);
/* A table [n, k] whose rows are read when they are wanted. */
weft_table *weft_load_table(weft_loader *l, const char *path, int64_t n, int64_t k);

/* A small tensor of this shape in float32, in the loader's arena. */
float *weft_load_floats(weft_loader *l, const char *name, int rank, const int64_t *shape);
weft_coef *weft_load_coef(weft_loader *l, const float *v, int64_t n);
/* A vector [n] as it is stored, times `scale`. */
weft_coef *weft_load_vector(weft_loader *l, const char *name, int64_t n, float scale);
/* n ones. */
weft_coef *weft_load_ones(weft_loader *l, int64_t n);
/* A norm's gain [n], "path.weight", plus one where l->shift. */
weft_coef *weft_load_gain(weft_loader *l, const char *path, int64_t n);
/* The same, or ones where the file has no such tensor (some packs drop the norms of an MTP head). */
weft_coef *weft_load_gain_or_ones(weft_loader *l, const char *path, int64_t n);
/* A module's bias [n], "path.bias"; NULL where `has` is false. */
weft_coef *weft_load_bias(weft_loader *l, const char *path, int64_t n, bool has);
/* A depthwise convolution [channels, 1, taps], or [channels, taps, 1] in converted checkpoints, as [taps, channels]. */
weft_coef *weft_load_conv(weft_loader *l, const char *path, int channels, int taps);
/* -exp of a vector [heads]: the decays of a recurrence from its A_log. */
weft_coef *weft_load_decay(weft_loader *l, const char *name, int heads);

#endif

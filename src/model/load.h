/* load.h: from a checkpoint's tensors to weights on the device.
 *
 * A model file asks for what its architecture has; the loader knows the file formats. Failures stick: after the first one every
 * call returns NULL, so that a model's loading code reads as a plain list, and the caller looks at `status` once. A path is a
 * module's: "model.layers.0.mlp". */
#ifndef WEFT_MODEL_LOAD_H
#define WEFT_MODEL_LOAD_H

#include "base/arena.h"
#include "format/model_dir.h"
#include "ops/ops.h"

typedef struct weft_loader {
    weft_dev *dev;
    const weft_model_dir *dir;
    const weft_model_config *config;
    weft_arena arena; /* paths, and what row readers need, until loading is done */
    weft_status status;
    weft_error *e;
} weft_loader;

void weft_loader_open(weft_loader *l, weft_dev *dev, const weft_model_dir *dir, weft_error *e);
void weft_loader_close(weft_loader *l);
/* Memory ran out for `what`; an earlier failure stays. */
void weft_loader_oom(weft_loader *l, const char *what);

/* prefix + printf, in the loader's arena. */
const char *weft_loader_path(weft_loader *l, const char *prefix, const char *fmt, ...) WEFT_PRINTF(3, 4);
/* Is there a tensor of this name? */
bool weft_loader_has(const weft_loader *l, const char *name);
/* Rows of module `path`'s weight by its file, 0: there is none. For the few sizes that no config tells. */
int weft_loader_rows(weft_loader *l, const char *path);

/* The weight of module `path`, [n, k]. */
weft_mat *weft_load_mat(weft_loader *l, const char *path, int64_t n, int64_t k);
/* Half `half` (0 or 1), [n, k], of a weight [2 n, k] whose rows alternate: `block` rows of half 0, `block` of half 1, and so on. */
weft_mat *weft_load_half(weft_loader *l, const char *path, int half, int64_t block, int64_t n, int64_t k);
/* [experts, 2 inner, k]: gate rows, then up rows. `path` is the mixture's module; its experts may be fused (experts.gate_up_proj),
 * stacked (switch_mlp.gate_proj, .up_proj), or one by one (experts.7.gate_proj). */
weft_mat *weft_load_gate_up(weft_loader *l, const char *path, int64_t experts, int64_t inner, int64_t k);
/* [experts, n, inner], in the same three spellings. */
weft_mat *weft_load_down(weft_loader *l, const char *path, int64_t experts, int64_t n, int64_t inner);

/* A small tensor of this shape in float32, in the loader's arena. */
float *weft_load_floats(weft_loader *l, const char *name, int rank, const int64_t *shape);
/* A norm's gain [n], "path.weight", plus one where `shift`. */
weft_coef *weft_load_gain(weft_loader *l, const char *path, int64_t n, bool shift);
/* The same, or ones where the file has no such tensor (some packs drop the norms of an MTP head). */
weft_coef *weft_load_gain_or_ones(weft_loader *l, const char *path, int64_t n, bool shift);
weft_coef *weft_load_coef(weft_loader *l, const float *v, int64_t n);

#endif

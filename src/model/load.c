/* load.c: see load.h. */
#include "model/load.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "format/weight.h"

void weft_loader_open(weft_loader *l, weft_dev *dev, const weft_model_dir *dir, weft_error *e) {
    *l = (weft_loader){.dev = dev, .dir = dir, .config = &dir->config, .e = e};
}
void weft_loader_close(weft_loader *l) {
    weft_arena_free(&l->arena);
}
void weft_loader_oom(weft_loader *l, const char *what) {
    if (l->status == WEFT_OK) l->status = weft_fail_oom(l->e, what);
}

const char *weft_loader_path(weft_loader *l, const char *prefix, const char *fmt, ...) {
    char text[256];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t front = strlen(prefix);
    char *path = n < 0 || (size_t)n >= sizeof text ? NULL : weft_arena_get(&l->arena, front + (size_t)n + 1, 1);
    if (!path) {
        weft_loader_oom(l, "a tensor's name");
        return "";
    }
    memcpy(path, prefix, front);
    memcpy(path + front, text, (size_t)n);
    return path;
}

bool weft_loader_has(const weft_loader *l, const char *name) {
    return weft_tensors_find(l->dir->tensors, name) != NULL;
}

int weft_loader_rows(weft_loader *l, const char *path) {
    const weft_tensor *t = weft_tensors_find(l->dir->tensors, weft_loader_path(l, path, ".weight"));
    return t && t->rank == 2 && t->shape[0] > 0 && t->shape[0] < 1 << 24 ? (int)t->shape[0] : 0;
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* Where the rows of a weight on the device come from: parts[] follow one another, part_rows rows each; where each expert has parts
 * of its own, expert after expert. Row r of a part is row (r / block) * stride + offset + r % block of its tensor. */
typedef struct source {
    weft_weight *parts;
    int64_t n_parts, part_rows; /* parts of one expert */
    bool per_expert;
    int64_t block, stride, offset;
} source;

/* A change of this order changes what a file of packed weights holds: raise WEFT_PACKED_VERSION (ops/cpu/packed.h) with it. */
static weft_status read_row(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    const source *s = ctx;
    int64_t part = row / s->part_rows, r = row % s->part_rows;
    weft_weight *w = &s->parts[(s->per_expert ? expert * s->n_parts : 0) + part];
    return weft_weight_read(w, s->per_expert ? 0 : expert, r / s->block * s->stride + s->offset + r % s->block, values, scale, bias,
                            e);
}

static source *new_source(weft_loader *l, int64_t n_parts, int64_t part_rows, int64_t copies) {
    source *s = weft_arena_get(&l->arena, 1, sizeof *s);
    weft_weight *parts = weft_arena_get(&l->arena, (size_t)(n_parts * copies), sizeof *parts);
    if (!s || !parts) {
        weft_loader_oom(l, "a weight's description");
        return NULL;
    }
    *s = (source){.parts = parts,
                  .n_parts = n_parts,
                  .part_rows = part_rows,
                  .per_expert = copies > 1,
                  .block = part_rows,
                  .stride = part_rows};
    return s;
}

static bool find(weft_loader *l, const char *path, int64_t experts, int64_t n, int64_t k, weft_weight *w) {
    if (l->status == WEFT_OK) l->status = weft_weight_find(l->dir->tensors, l->config, path, experts, n, k, w, l->e);
    return l->status == WEFT_OK;
}

static weft_mat *make(weft_loader *l, source *s, const char *path, int64_t experts, int64_t n, int64_t k) {
    const weft_weight *w = &s->parts[0];
    int64_t count = s->n_parts * (s->per_expert ? experts : 1);
    for (int64_t i = 1; i < count; i++)
        if (s->parts[i].dtype != w->dtype || s->parts[i].bits != w->bits || s->parts[i].group != w->group) {
            l->status = weft_fail(l->e, WEFT_ESUPPORT, "%s: tensor '%s' is packed otherwise than '%s', which must be read with it",
                                  s->parts[i].values->file, s->parts[i].values->name, w->values->name);
            return NULL;
        }
    weft_mat *m = NULL;
    weft_mat_desc desc = {.dtype = w->dtype,
                          .bits = w->bits,
                          .group = w->group,
                          .experts = experts,
                          .n = n,
                          .k = k,
                          .name = path,
                          .read = read_row,
                          .ctx = s};
    l->status = weft_mat_make(l->dev, &desc, &m, l->e);
    return l->status == WEFT_OK ? m : NULL;
}

weft_mat *weft_load_mat(weft_loader *l, const char *path, int64_t n, int64_t k) {
    source *s = l->status == WEFT_OK ? new_source(l, 1, n, 1) : NULL;
    return s && find(l, path, 0, n, k, &s->parts[0]) ? make(l, s, path, 1, n, k) : NULL;
}

weft_mat *weft_load_half(weft_loader *l, const char *path, int half, int64_t block, int64_t n, int64_t k) {
    source *s = l->status == WEFT_OK ? new_source(l, 1, n, 1) : NULL;
    if (!s || !find(l, path, 0, 2 * n, k, &s->parts[0])) return NULL;
    s->block = block;
    s->stride = 2 * block;
    s->offset = half * block;
    return make(l, s, path, 1, n, k);
}

/* `names` (one or two) of each expert, side by side on the device; `fused` is the tensor that holds them all. */
static weft_mat *load_experts(weft_loader *l, const char *path, const char *fused, const char *const *names, int n_names,
                              int64_t experts, int64_t rows, int64_t k) {
    if (l->status != WEFT_OK) return NULL;
    const char *all = weft_loader_path(l, path, ".experts.%s", fused);
    if (weft_loader_has(l, all) || weft_loader_has(l, weft_loader_path(l, all, ".weight"))) {
        source *s = new_source(l, 1, n_names * rows, 1);
        return s && find(l, all, experts, n_names * rows, k, &s->parts[0]) ? make(l, s, all, experts, n_names * rows, k) : NULL;
    }
    bool stacked = weft_loader_has(l, weft_loader_path(l, path, ".switch_mlp.%s.weight", names[0]));
    source *s = new_source(l, n_names, rows, stacked ? 1 : experts);
    for (int64_t x = 0; s && x < (stacked ? 1 : experts); x++)
        for (int i = 0; i < n_names; i++) {
            const char *one = stacked ? weft_loader_path(l, path, ".switch_mlp.%s", names[i])
                                      : weft_loader_path(l, path, ".experts.%lld.%s", (long long)x, names[i]);
            if (!find(l, one, stacked ? experts : 0, rows, k, &s->parts[x * n_names + i])) return NULL;
        }
    return s ? make(l, s, all, experts, n_names * rows, k) : NULL;
}

weft_mat *weft_load_gate_up(weft_loader *l, const char *path, int64_t experts, int64_t inner, int64_t k) {
    return load_experts(l, path, "gate_up_proj", (const char *const[]){"gate_proj", "up_proj"}, 2, experts, inner, k);
}

weft_mat *weft_load_down(weft_loader *l, const char *path, int64_t experts, int64_t n, int64_t inner) {
    return load_experts(l, path, "down_proj", (const char *const[]){"down_proj"}, 1, experts, n, inner);
}

/* ---- small tensors ------------------------------------------------------------------------------------------------------- */

float *weft_load_floats(weft_loader *l, const char *name, int rank, const int64_t *shape) {
    if (l->status != WEFT_OK) return NULL;
    size_t n = 1;
    for (int i = 0; i < rank; i++) n *= (size_t)shape[i]; /* sizes of a checked configuration */
    float *v = weft_arena_get(&l->arena, n, sizeof *v);
    l->status = v ? weft_tensor_read_f32(l->dir->tensors, name, rank, shape, v, l->e) : weft_fail_oom(l->e, name);
    return l->status == WEFT_OK ? v : NULL;
}

weft_coef *weft_load_coef(weft_loader *l, const float *v, int64_t n) {
    weft_coef *c = NULL;
    if (l->status == WEFT_OK) l->status = weft_coef_make(l->dev, v, (int)n, &c, l->e);
    return c;
}

weft_coef *weft_load_gain(weft_loader *l, const char *path, int64_t n, bool shift) {
    float *v = weft_load_floats(l, weft_loader_path(l, path, ".weight"), 1, &n);
    for (int64_t i = 0; v && shift && i < n; i++) v[i] += 1.0f;
    return v ? weft_load_coef(l, v, n) : NULL;
}

weft_coef *weft_load_gain_or_ones(weft_loader *l, const char *path, int64_t n, bool shift) {
    if (weft_loader_has(l, weft_loader_path(l, path, ".weight"))) return weft_load_gain(l, path, n, shift);
    float *v = weft_arena_get(&l->arena, (size_t)n, sizeof *v);
    if (!v) {
        weft_loader_oom(l, path);
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) v[i] = 1.0f;
    return weft_load_coef(l, v, n);
}

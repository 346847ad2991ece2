/* load.c: see load.h. */
#include "model/load.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

void weft_loader_open(weft_loader *l, weft_dev *dev, const weft_model_dir *dir, weft_arena *kept, weft_error *e) {
    *l = (weft_loader){.dev = dev, .dir = dir, .config = &dir->config, .kept = kept, .e = e};
}
void weft_loader_close(weft_loader *l) {
    weft_arena_free(&l->arena);
}
/* A model may be loaded with its drafter: a message names the checkpoint that it is about. */
static weft_status from_here(weft_loader *l, weft_status s) {
    if (s != WEFT_OK && l->e && !weft_starts_with(l->e->text, l->dir->path)) weft_fail_in(l->e, l->dir->path);
    return s;
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

weft_buf *weft_load_buf(weft_loader *l, const char *phase, int cols) {
    weft_buf *b = weft_buf_make(l->dev, phase, 0, cols);
    if (!b) weft_loader_oom(l, "buffers");
    return b;
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* Where the rows of a weight on the device come from: parts follow one another, and where each expert has parts of its own, expert
 * after expert. */
typedef struct part {
    weft_weight w;
    weft_slice rows;
} part;
typedef struct source {
    part *parts;
    int64_t n_parts; /* of one expert */
    bool per_expert;
    const int32_t *order; /* the stored row of each row, counted over all experts; NULL: they are parts */
    int64_t rows;         /* of an expert, where there is an order */
    bool passing, coded;  /* weft_mat_desc.passing; plain values become codes */
} source;

/* A change of this order changes what a file of packed weights holds: raise WEFT_PACKED_VERSION (ops/cpu/packed.h) with it. */
static weft_status read_row(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    const source *s = ctx;
    if (s->order) {
        int64_t stored = s->order[expert * s->rows + row];
        return (s->coded ? weft_weight_code : weft_weight_read)(&s->parts[0].w, 0, stored, values, scale, bias, e);
    }
    part *p = &s->parts[s->per_expert ? expert * s->n_parts : 0];
    for (; row >= p->rows.n; p++) row -= p->rows.n;
    row = row / p->rows.block * p->rows.stride + p->rows.offset + row % p->rows.block;
    return weft_weight_read(&p->w, s->per_expert ? 0 : expert, row, values, scale, bias, e);
}

static source *new_source(weft_loader *l, int64_t n_parts, int64_t copies) {
    if (l->status != WEFT_OK) return NULL;
    source *s = weft_arena_get(&l->arena, 1, sizeof *s);
    part *parts = weft_arena_get(&l->arena, (size_t)(n_parts * copies), sizeof *parts);
    if (!s || !parts) {
        weft_loader_oom(l, "a weight's description");
        return NULL;
    }
    *s = (source){.parts = parts, .n_parts = n_parts, .per_expert = copies > 1};
    return s;
}

static bool find(weft_loader *l, const char *path, int64_t experts, int64_t n, int64_t k, weft_weight *w) {
    if (l->status == WEFT_OK) l->status = from_here(l, weft_weight_find(l->dir->tensors, l->config, path, experts, n, k, w, l->e));
    if (l->status == WEFT_OK && l->sink && l->last != w->values) l->sink(l->sink_ctx, path, w, w->experts * w->n * w->k);
    l->last = w->values;
    return l->status == WEFT_OK;
}

static weft_mat *make(weft_loader *l, source *s, const char *path, int64_t experts, int64_t n, int64_t k) {
    const weft_weight *w = &s->parts[0].w;
    int64_t count = s->n_parts * (s->per_expert ? experts : 1);
    for (int64_t i = 1; i < count; i++) {
        const weft_weight *x = &s->parts[i].w;
        if (x->dtype == w->dtype && x->bits == w->bits && x->group == w->group) continue;
        l->status = weft_fail(l->e, WEFT_ESUPPORT, "%s: tensor '%s' is packed otherwise than '%s', which must be read with it",
                              x->values->file, x->values->name, w->values->name);
        return NULL;
    }
    weft_mat *m = NULL;
    weft_mat_desc desc = {.dtype = s->coded ? WEFT_F32 : w->dtype,
                          .bits = s->coded ? WEFT_CODED_BITS : w->bits,
                          .group = s->coded ? WEFT_CODED_GROUP : w->group,
                          .passing = s->passing,
                          .experts = experts,
                          .n = n,
                          .k = k,
                          .name = path,
                          .read = read_row,
                          .ctx = s};
    l->status = weft_mat_make(l->dev, &desc, &m, l->e);
    return l->status == WEFT_OK ? m : NULL;
}

weft_mat *weft_load_slices(weft_loader *l, const char *path, int64_t stored, int64_t k, const weft_slice *slices, int n) {
    source *s = new_source(l, n, 1);
    weft_weight w;
    int64_t rows = 0;
    if (!s || !find(l, path, 0, stored, k, &w)) return NULL;
    for (int i = 0; i < n; i++) {
        s->parts[i] = (part){w, slices[i]};
        rows += slices[i].n;
    }
    return make(l, s, path, 1, rows, k);
}

weft_mat *weft_load_mat(weft_loader *l, const char *path, int64_t n, int64_t k) {
    return weft_load_slices(l, path, n, k, (weft_slice[]){WEFT_ROWS(0, n)}, 1);
}

weft_mat *weft_load_copy(weft_loader *l, const char *path, int64_t stored, int64_t k, const int32_t *ids, int n) {
    source *s = new_source(l, 1, 1);
    if (!s || !find(l, path, 0, stored, k, &s->parts[0].w)) return NULL;
    s->order = ids;
    s->rows = n;
    s->passing = true;
    s->coded = !s->parts[0].w.bits && !weft_dev_precise(l->dev) && k % WEFT_CODED_GROUP == 0;
    return make(l, s, path, 1, n, k);
}

/* One or two weights of each expert, one after the other on the device. */
typedef struct expert_names {
    const char *fused;      /* the tensor with all of them */
    const char *name[2];    /* of each */
    const char *stacked[2]; /* another name where they are stacked; NULL: none */
} expert_names;

/* Tensor i of all experts where they are stacked; NULL: they are not. */
static const char *find_stack(weft_loader *l, const char *path, const expert_names *names, int i) {
    static const char *const places[] = {".switch_mlp", ".experts.switch_glu", ".experts.switch_mlp"};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int other = 0; other < 2; other++) {
            const char *name = other ? names->stacked[i] : names->name[i];
            const char *stack = name ? weft_loader_path(l, path, "%s.%s", places[p], name) : NULL;
            if (stack && weft_loader_has(l, weft_loader_path(l, stack, ".weight"))) return stack;
        }
    return NULL;
}

static weft_mat *load_experts(weft_loader *l, const char *path, const expert_names *names, int64_t experts, int64_t rows,
                              int64_t k) {
    if (l->status != WEFT_OK) return NULL;
    int n_names = names->name[1] ? 2 : 1;
    const char *all = weft_loader_path(l, path, ".experts.%s", names->fused);
    if (weft_loader_has(l, all) || weft_loader_has(l, weft_loader_path(l, all, ".weight"))) {
        source *s = new_source(l, 1, 1);
        if (!s || !find(l, all, experts, n_names * rows, k, &s->parts[0].w)) return NULL;
        s->parts[0].rows = WEFT_ROWS(0, n_names * rows);
        return make(l, s, all, experts, n_names * rows, k);
    }
    bool stacked = find_stack(l, path, names, 0) != NULL;
    source *s = new_source(l, n_names, stacked ? 1 : experts);
    const char *one = path;
    for (int64_t x = 0; s && x < (stacked ? 1 : experts); x++)
        for (int i = 0; i < n_names; i++) {
            part *p = &s->parts[x * n_names + i];
            one = stacked ? find_stack(l, path, names, i) : NULL;
            if (!one) one = weft_loader_path(l, path, ".experts.%lld.%s", (long long)x, names->name[i]);
            if (!find(l, one, stacked ? experts : 0, rows, k, &p->w)) return NULL;
            p->rows = WEFT_ROWS(0, rows);
        }
    return s ? make(l, s, one, experts, n_names * rows, k) : NULL;
}

weft_mat *weft_load_gate_up(weft_loader *l, const char *path, int64_t experts, int64_t inner, int64_t k) {
    return load_experts(l, path, &(expert_names){"gate_up_proj", {"gate_proj", "up_proj"}, {NULL, NULL}}, experts, inner, k);
}
weft_mat *weft_load_up(weft_loader *l, const char *path, int64_t experts, int64_t inner, int64_t k) {
    return load_experts(l, path, &(expert_names){"up_proj", {"up_proj"}, {"fc1"}}, experts, inner, k);
}
weft_mat *weft_load_down(weft_loader *l, const char *path, int64_t experts, int64_t n, int64_t inner) {
    return load_experts(l, path, &(expert_names){"down_proj", {"down_proj"}, {"fc2"}}, experts, n, inner);
}

/* A permutation of 0..n-1, from whole numbers of 4 or 8 bytes. */
static int32_t *load_order(weft_loader *l, const char *name, int64_t n) {
    const weft_tensor *t = weft_tensors_find(l->dir->tensors, name);
    if (l->status != WEFT_OK) return NULL;
    if (!t || t->rank != 1 || t->shape[0] != n || (t->dtype != WEFT_I64 && t->dtype != WEFT_I32)) {
        l->status = weft_fail(l->e, WEFT_EFORMAT, "%s: the tensor '%s' is missing, or is not a list of %lld ids", l->dir->path,
                              name, (long long)n);
        return NULL;
    }
    int32_t *order = weft_arena_get(&l->arena, (size_t)n, sizeof *order);
    bool *seen = weft_arena_get(&l->arena, (size_t)n, sizeof *seen);
    if (!order || !seen) {
        weft_loader_oom(l, name);
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t id = 0;
        if (t->dtype == WEFT_I64)
            memcpy(&id, t->data + i * 8, 8);
        else {
            int32_t small;
            memcpy(&small, t->data + i * 4, 4);
            id = small;
        }
        if (id < 0 || id >= n || seen[id]) {
            l->status =
                weft_fail(l->e, WEFT_EFORMAT, "%s: tensor '%s' does not name each of %lld ids once", t->file, name, (long long)n);
            return NULL;
        }
        seen[id] = true;
        order[i] = (int32_t)id;
    }
    return order;
}

weft_mat *weft_load_ordered(weft_loader *l, const char *path, const char *ids, int parts, int64_t n, int64_t k,
                            const weft_coef **order) {
    source *s = new_source(l, 1, 1);
    if (!s || !(s->order = load_order(l, ids, n)) || !find(l, path, 0, n, k, &s->parts[0].w)) return NULL;
    float *floats = weft_arena_get(&l->arena, (size_t)n, sizeof *floats);
    if (!floats) {
        weft_loader_oom(l, path);
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) floats[i] = (float)s->order[i]; /* whole numbers below 2^24 */
    *order = weft_load_coef(l, floats, n);
    s->rows = n / parts;
    return make(l, s, path, parts, s->rows, k);
}

/* A table's rows are read in steps, long after loading: what its file loses meanwhile must not be taken for numbers. */
typedef struct table_source {
    weft_weight w;
    const weft_tensors *tensors;
} table_source;
static weft_status read_table(void *ctx, int64_t row, float *dst, weft_error *e) {
    return weft_weight_row_f32(&((const table_source *)ctx)->w, 0, row, dst, e);
}
static weft_status check_table(void *ctx, weft_error *e) {
    return weft_tensors_check(((const table_source *)ctx)->tensors, e);
}
weft_table *weft_load_table(weft_loader *l, const char *path, int64_t n, int64_t k) {
    weft_table *t = NULL;
    if (l->status != WEFT_OK) return NULL;
    table_source *s = weft_arena_get(l->kept, 1, sizeof *s);
    const char *name = weft_arena_str(l->kept, path, strlen(path));
    if (!s || !name)
        weft_loader_oom(l, path);
    else if (find(l, path, 0, n, k, &s->w)) {
        s->tensors = l->dir->tensors;
        weft_table_desc desc = {.n = n, .k = k, .name = name, .read = read_table, .check = check_table, .ctx = s};
        l->status = weft_table_make(l->dev, &desc, &t, l->e);
    }
    return t;
}

/* ---- small tensors ------------------------------------------------------------------------------------------------------- */

float *weft_load_floats(weft_loader *l, const char *name, int rank, const int64_t *shape) {
    if (l->status != WEFT_OK) return NULL;
    size_t n = 1;
    for (int i = 0; i < rank; i++) n *= (size_t)shape[i]; /* sizes of a checked configuration */
    float *v = weft_arena_get(&l->arena, n, sizeof *v);
    l->status = v ? from_here(l, weft_tensor_read_f32(l->dir->tensors, name, rank, shape, v, l->e)) : weft_fail_oom(l->e, name);
    if (l->status == WEFT_OK && l->sink) l->sink(l->sink_ctx, name, NULL, (int64_t)n);
    return l->status == WEFT_OK ? v : NULL;
}

weft_coef *weft_load_coef(weft_loader *l, const float *v, int64_t n) {
    weft_coef *c = NULL;
    if (l->status == WEFT_OK) l->status = weft_coef_make(l->dev, v, (int)n, &c, l->e);
    return c;
}

static weft_coef *load_affine(weft_loader *l, const char *name, int64_t n, float scale, float plus) {
    float *v = weft_load_floats(l, name, 1, &n);
    for (int64_t i = 0; v && i < n; i++) v[i] = v[i] * scale + plus;
    return v ? weft_load_coef(l, v, n) : NULL;
}
weft_coef *weft_load_vector(weft_loader *l, const char *name, int64_t n, float scale) {
    return load_affine(l, name, n, scale, 0);
}
weft_coef *weft_load_gain(weft_loader *l, const char *path, int64_t n) {
    return load_affine(l, weft_loader_path(l, path, ".weight"), n, 1, l->shift ? 1 : 0);
}
weft_coef *weft_load_bias(weft_loader *l, const char *path, int64_t n, bool has) {
    return has ? weft_load_vector(l, weft_loader_path(l, path, ".bias"), n, 1) : NULL;
}

weft_coef *weft_load_ones(weft_loader *l, int64_t n) {
    float *v = l->status == WEFT_OK ? weft_arena_get(&l->arena, (size_t)n, sizeof *v) : NULL;
    if (!v) {
        weft_loader_oom(l, "a norm");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) v[i] = 1.0f;
    return weft_load_coef(l, v, n);
}
weft_coef *weft_load_gain_or_ones(weft_loader *l, const char *path, int64_t n) {
    return weft_loader_has(l, weft_loader_path(l, path, ".weight")) ? weft_load_gain(l, path, n) : weft_load_ones(l, n);
}

weft_coef *weft_load_conv(weft_loader *l, const char *path, int channels, int taps) {
    bool converted = l->dir->converted;
    const int64_t shape[] = {channels, converted ? taps : 1, converted ? 1 : taps};
    const float *w = weft_load_floats(l, weft_loader_path(l, path, ".weight"), 3, shape);
    float *t = weft_arena_get(&l->arena, (size_t)channels * (size_t)taps, sizeof *t);
    if (!w || !t) {
        if (w) weft_loader_oom(l, path);
        return NULL;
    }
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < taps; i++) t[i * channels + c] = w[c * taps + i];
    return weft_load_coef(l, t, (int64_t)channels * taps);
}

weft_coef *weft_load_decay(weft_loader *l, const char *name, int heads) {
    float *a = weft_load_floats(l, name, 1, &(int64_t){heads});
    for (int i = 0; a && i < heads; i++) a[i] = (float)-weft_exp((double)a[i]);
    return a ? weft_load_coef(l, a, heads) : NULL;
}

/* safetensors.c: see safetensors.h. */
#include "format/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/num.h"
#include "base/str.h"
#include "base/vec.h"
#include "format/json.h"
#include "format/shards.h"

#define INDEX "model.safetensors.index.json"
#define SIDECAR "mtp.safetensors"

typedef struct pair {
    const char *key, *value;
} pair;

struct weft_tensors {
    weft_arena arena; /* names, metadata, paths */
    WEFT_VEC(weft_map) maps;
    WEFT_VEC(weft_tensor) all;
    WEFT_VEC(pair) metadata;
    const weft_tensor **by_name; /* [all.n], sorted */
};

const char *weft_shape_text(int rank, const int64_t *shape, char buf[192]) {
    size_t n = 0;
    buf[n++] = '[';
    for (int i = 0; i < rank; i++) n += (size_t)snprintf(buf + n, 192 - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    buf[n++] = ']';
    buf[n] = '\0';
    return buf;
}

/* ---- one file ------------------------------------------------------------------------------------------------------------ */

static weft_status read_metadata(weft_tensors *t, struct json_object *o, weft_error *e) {
    if (!json_object_is_type(o, json_type_object)) return weft_fail(e, WEFT_EFORMAT, "'__metadata__' is not an object");
    json_object_object_foreach(o, key, v) {
        const char *text = NULL;
        WEFT_TRY(weft_json_text_value(v, (weft_json_at){o, "__metadata__."}, key, &text, e));
        pair p = {weft_arena_str(&t->arena, key, strlen(key)), weft_arena_str(&t->arena, text, strlen(text))};
        if (!p.key || !p.value || !weft_vec_push(&t->metadata, p)) return weft_fail_oom(e, "reading a safetensors header");
    }
    return WEFT_OK;
}

static weft_status read_shape(weft_tensor *x, weft_json_at at, weft_error *e) {
    struct json_object *a = NULL;
    WEFT_TRY(weft_json_need(at, "shape", e));
    WEFT_TRY(weft_json_array(at, "shape", WEFT_MAX_RANK, &a, e));
    x->rank = (int)json_object_array_length(a);
    x->bytes = weft_dtype_size(x->dtype);
    for (int i = 0; i < x->rank; i++)
        WEFT_TRY(weft_json_int_value(json_object_array_get_idx(a, (size_t)i), at, "shape", 0, PTRDIFF_MAX, &x->shape[i], e));
    for (int i = 0; i < x->rank; i++)
        if (!weft_mul_size(x->bytes, (size_t)x->shape[i], &x->bytes)) {
            char buf[192];
            return weft_fail(e, WEFT_EFORMAT, "shape %s overflows", weft_shape_text(x->rank, x->shape, buf));
        }
    return WEFT_OK;
}

/* One entry of the header; data[0..size) is the file's data section. */
static weft_status read_tensor(weft_tensor *x, struct json_object *o, const uint8_t *data, size_t size, weft_error *e) {
    if (!json_object_is_type(o, json_type_object)) return weft_fail(e, WEFT_EFORMAT, "its entry in the header is not an object");
    weft_json_at at = {o, ""};
    const char *dtype = NULL;
    WEFT_TRY(weft_json_need(at, "dtype", e));
    WEFT_TRY(weft_json_text(at, "dtype", &dtype, e));
    if (!weft_dtype_parse(dtype, &x->dtype)) return weft_fail(e, WEFT_ESUPPORT, "dtype '%s' is not known to this version", dtype);
    WEFT_TRY(read_shape(x, at, e));

    struct json_object *a = NULL;
    int64_t off[2] = {0, 0};
    WEFT_TRY(weft_json_need(at, "data_offsets", e));
    WEFT_TRY(weft_json_array(at, "data_offsets", 2, &a, e));
    if (json_object_array_length(a) != 2) return weft_fail(e, WEFT_EFORMAT, "'data_offsets' must be two numbers");
    for (size_t i = 0; i < 2; i++)
        WEFT_TRY(weft_json_int_value(json_object_array_get_idx(a, i), at, "data_offsets", 0, PTRDIFF_MAX, &off[i], e));
    if (off[0] > off[1])
        return weft_fail(e, WEFT_EFORMAT, "data_offsets [%lld, %lld] run backwards", (long long)off[0], (long long)off[1]);
    if ((uint64_t)off[1] > size)
        return weft_fail(e, WEFT_EFORMAT, "its data end at byte %lld, the file's data at %zu: was the file downloaded to its end?",
                         (long long)off[1], size);
    if ((uint64_t)(off[1] - off[0]) != x->bytes) {
        char buf[192];
        return weft_fail(e, WEFT_EFORMAT, "%lld bytes of data, but %s %s takes %zu", (long long)(off[1] - off[0]),
                         weft_dtype_name(x->dtype), weft_shape_text(x->rank, x->shape, buf), x->bytes);
    }
    x->data = data + off[0];
    return WEFT_OK;
}

static int by_place(const void *a, const void *b) {
    const weft_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty ones first: they overlap nothing */
    return strcmp(x->name, y->name);
}

static weft_status read_header(weft_tensors *t, struct json_object *root, const uint8_t *data, size_t size, const char *file,
                               weft_error *e) {
    size_t first = t->all.n;
    json_object_object_foreach(root, name, v) {
        if (strcmp(name, "__metadata__") == 0) {
            WEFT_TRY(read_metadata(t, v, e));
            continue;
        }
        if (name[0] == '\0') return weft_fail(e, WEFT_EFORMAT, "a tensor with an empty name");
        weft_tensor x = {.name = weft_arena_str(&t->arena, name, strlen(name)), .file = file};
        if (!x.name) return weft_fail_oom(e, "reading a safetensors header");
        weft_status st = read_tensor(&x, v, data, size, e);
        if (st != WEFT_OK) {
            char prefix[320];
            snprintf(prefix, sizeof prefix, "tensor '%.300s'", name);
            weft_fail_in(e, prefix);
            return st;
        }
        if (!weft_vec_push(&t->all, x)) return weft_fail_oom(e, "reading a safetensors header");
    }
    size_t n = t->all.n - first;
    if (n == 0) return WEFT_OK;
    weft_tensor *own = t->all.v + first;
    qsort(own, n, sizeof *own, by_place);
    for (size_t i = 1; i < n; i++)
        if (own[i].data < own[i - 1].data + own[i - 1].bytes)
            return weft_fail(e, WEFT_EFORMAT, "the data of '%.300s' and '%.300s' overlap", own[i - 1].name, own[i].name);
    return WEFT_OK;
}

/* Adds the tensors of one file. */
static weft_status add_bytes(weft_tensors *t, const uint8_t *bytes, size_t size, const char *file, weft_error *e) {
    static const char lfs[] = "version https://git-lfs";
    if (size >= sizeof lfs - 1 && memcmp(bytes, lfs, sizeof lfs - 1) == 0)
        return weft_fail(e, WEFT_EFORMAT, "a Git LFS pointer, not the file itself; fetch it with: git lfs pull");
    if (size >= 4 && memcmp(bytes, "GGUF", 4) == 0) return weft_fail(e, WEFT_ESUPPORT, "a GGUF file; these are not supported yet");
    if (size < 8) return weft_fail(e, WEFT_EFORMAT, "%zu bytes long, too short for a safetensors file", size);
    uint64_t header;
    memcpy(&header, bytes, 8);
    if (header > WEFT_MAX_HEADER)
        return weft_fail(e, WEFT_EFORMAT, "not a safetensors file: it claims a header of %llu bytes, allowed are %zu",
                         (unsigned long long)header, WEFT_MAX_HEADER);
    if (header > size - 8)
        return weft_fail(e, WEFT_EFORMAT, "a header of %llu bytes in a file of %zu: damaged, or not downloaded to its end",
                         (unsigned long long)header, size);
    struct json_object *root = NULL;
    WEFT_TRY(weft_json_parse(&root, (const char *)bytes + 8, (size_t)header, e));
    weft_status st = read_header(t, root, bytes + 8 + header, size - 8 - (size_t)header, file, e);
    json_object_put(root);
    return st;
}

static weft_status add_file(weft_tensors *t, const char *path, weft_error *e) {
    if (!weft_vec_reserve(&t->maps, t->maps.n + 1)) return weft_fail_oom(e, "opening a safetensors file");
    weft_map *m = &t->maps.v[t->maps.n];
    WEFT_TRY(weft_map_open(m, path, e));
    t->maps.n++;
    const char *own = weft_arena_str(&t->arena, path, strlen(path));
    if (!own) return weft_fail_oom(e, "opening a safetensors file");
    weft_status st = add_bytes(t, m->data, m->size, own, e);
    WEFT_TRY(weft_map_check(m, e)); /* a file cut while it was read explains whatever else is wrong */
    if (st != WEFT_OK) weft_fail_in(e, path);
    return st;
}

/* ---- which files --------------------------------------------------------------------------------------------------------- */

static weft_status join(weft_str *path, const char *folder, const char *name, weft_error *e) {
    weft_str_clear(path);
    if (weft_str_addz(path, folder) && (weft_ends_with(folder, "/") || weft_str_addz(path, "/")) && weft_str_addz(path, name))
        return WEFT_OK;
    return weft_fail_oom(e, "opening a model folder");
}

/* The only .safetensors file of a folder but for the drafter's; else an error that says what is there instead. */
static weft_status only_file(weft_str *path, const char *folder, weft_error *e) {
    DIR *d = opendir(folder);
    if (!d) return weft_fail_os(e, errno, "%s: cannot read the folder", folder);
    int found = 0, gguf = 0, pickled = 0;
    weft_status st = WEFT_OK;
    for (struct dirent *f; st == WEFT_OK && (f = readdir(d));) {
        if (f->d_name[0] == '.') continue;
        gguf += weft_ends_with(f->d_name, ".gguf");
        pickled += weft_ends_with(f->d_name, ".bin") || weft_ends_with(f->d_name, ".pt") || weft_ends_with(f->d_name, ".pth");
        if (!weft_ends_with(f->d_name, ".safetensors") || strcmp(f->d_name, SIDECAR) == 0) continue;
        if (found++ == 0) st = join(path, folder, f->d_name, e);
    }
    closedir(d);
    WEFT_TRY(st);
    if (found == 1) return WEFT_OK;
    if (found > 1)
        return weft_fail(e, WEFT_EFORMAT, "%s: %d .safetensors files, but no " INDEX " that says what they are", folder, found);
    if (gguf) return weft_fail(e, WEFT_ESUPPORT, "%s: only GGUF files; these are not supported yet, safetensors are", folder);
    if (pickled) return weft_fail(e, WEFT_ESUPPORT, "%s: weights only in PyTorch's own format; safetensors are needed", folder);
    return weft_fail(e, WEFT_EFORMAT, "%s: no .safetensors file in it", folder);
}

static weft_status finish(weft_tensors *t, weft_error *e);

/* The shards of an index, then: every tensor must be in the file that the index names. */
static weft_status add_shards(weft_tensors *t, const char *folder, weft_shards *s, weft_str *path, weft_error *e) {
    for (size_t i = 0; i < s->n_files; i++) {
        WEFT_TRY(join(path, folder, s->files[i], e));
        if (!weft_file_exists(weft_str_z(path)))
            return weft_fail(e, WEFT_EFORMAT, "%s/" INDEX ": the file '%s' that it names is missing: was everything downloaded?",
                             folder, s->files[i]);
        WEFT_TRY(add_file(t, weft_str_z(path), e));
    }
    WEFT_TRY(finish(t, e));
    for (size_t i = 0; i < s->n_entries; i++) {
        const weft_tensor *x = weft_tensors_find(t, s->entries[i].tensor);
        if (!x || strcmp(strrchr(x->file, '/') + 1, s->entries[i].file) != 0)
            return weft_fail(e, WEFT_EFORMAT, "%s/" INDEX ": tensor '%.300s' is not in '%s'", folder, s->entries[i].tensor,
                             s->entries[i].file);
    }
    return WEFT_OK;
}

static weft_status add_folder(weft_tensors *t, const char *folder, weft_str *path, weft_error *e) {
    bool sidecar_named = false;
    WEFT_TRY(join(path, folder, INDEX, e));
    if (weft_file_exists(weft_str_z(path))) {
        char *text;
        size_t n;
        weft_shards s = {0};
        WEFT_TRY(weft_file_read(weft_str_z(path), WEFT_MAX_HEADER, &text, &n, e));
        weft_status st = weft_shards_parse(&s, text, n, e);
        weft_free(text);
        if (st != WEFT_OK) {
            weft_fail_in(e, weft_str_z(path));
            return st;
        }
        st = add_shards(t, folder, &s, path, e);
        for (size_t i = 0; i < s.n_files; i++) sidecar_named |= strcmp(s.files[i], SIDECAR) == 0;
        weft_shards_free(&s);
        WEFT_TRY(st);
    } else {
        WEFT_TRY(join(path, folder, "model.safetensors", e));
        if (!weft_file_exists(weft_str_z(path))) WEFT_TRY(only_file(path, folder, e));
        WEFT_TRY(add_file(t, weft_str_z(path), e));
    }
    WEFT_TRY(join(path, folder, SIDECAR, e));
    if (!sidecar_named && weft_file_exists(weft_str_z(path))) WEFT_TRY(add_file(t, weft_str_z(path), e));
    return WEFT_OK;
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp((*(const weft_tensor *const *)a)->name, (*(const weft_tensor *const *)b)->name);
}

/* Sorts the names; a name that comes twice is an error. Again after more files. */
static weft_status finish(weft_tensors *t, weft_error *e) {
    weft_free(t->by_name);
    t->by_name = weft_calloc(t->all.n + 1, sizeof *t->by_name);
    if (!t->by_name) return weft_fail_oom(e, "sorting tensor names");
    for (size_t i = 0; i < t->all.n; i++) t->by_name[i] = &t->all.v[i];
    qsort(t->by_name, t->all.n, sizeof *t->by_name, by_name);
    for (size_t i = 1; i < t->all.n; i++) {
        const weft_tensor *a = t->by_name[i - 1], *b = t->by_name[i];
        if (strcmp(a->name, b->name) == 0)
            return weft_fail(e, WEFT_EFORMAT, "tensor '%.300s' comes twice: in %s and in %s", a->name, a->file, b->file);
    }
    return WEFT_OK;
}

static weft_status make(weft_tensors **t, weft_error *e) {
    *t = weft_calloc(1, sizeof **t);
    return *t ? WEFT_OK : weft_fail_oom(e, "opening tensors");
}

weft_status weft_tensors_open(weft_tensors **t, const char *path, weft_error *e) {
    WEFT_TRY(make(t, e));
    weft_str name = {0};
    weft_status st = weft_dir_exists(path) ? add_folder(*t, path, &name, e) : add_file(*t, path, e);
    weft_str_free(&name);
    if (st == WEFT_OK) st = finish(*t, e);
    if (st == WEFT_OK) return WEFT_OK;
    weft_tensors_close(*t);
    *t = NULL;
    return st;
}

weft_status weft_tensors_parse(weft_tensors **t, const void *data, size_t size, const char *file, weft_error *e) {
    WEFT_TRY(make(t, e));
    const char *own = weft_arena_str(&(*t)->arena, file, strlen(file));
    weft_status st = own ? add_bytes(*t, data, size, own, e) : weft_fail_oom(e, "opening tensors");
    if (st == WEFT_OK) st = finish(*t, e);
    if (st == WEFT_OK) return WEFT_OK;
    weft_tensors_close(*t);
    *t = NULL;
    weft_fail_in(e, file);
    return st;
}

void weft_tensors_close(weft_tensors *t) {
    if (!t) return;
    for (size_t i = 0; i < t->maps.n; i++) weft_map_close(&t->maps.v[i]);
    weft_vec_free(&t->maps);
    weft_vec_free(&t->all);
    weft_vec_free(&t->metadata);
    weft_free(t->by_name);
    weft_arena_free(&t->arena);
    weft_free(t);
}

size_t weft_tensors_count(const weft_tensors *t) {
    return t->all.n;
}

const weft_tensor *weft_tensors_at(const weft_tensors *t, size_t i) {
    return &t->all.v[i];
}

const weft_tensor *weft_tensors_find(const weft_tensors *t, const char *name) {
    weft_tensor key = {.name = name};
    const weft_tensor *k = &key, **hit = bsearch(&k, t->by_name, t->all.n, sizeof *t->by_name, by_name);
    return hit ? *hit : NULL;
}

const char *weft_tensors_metadata(const weft_tensors *t, const char *key) {
    for (size_t i = 0; i < t->metadata.n; i++)
        if (strcmp(t->metadata.v[i].key, key) == 0) return t->metadata.v[i].value;
    return NULL;
}

size_t weft_tensors_file_count(const weft_tensors *t) {
    return t->maps.n;
}

const weft_map *weft_tensors_file(const weft_tensors *t, size_t i) {
    return &t->maps.v[i];
}

weft_status weft_tensors_check(const weft_tensors *t, weft_error *e) {
    for (size_t i = 0; i < t->maps.n; i++) WEFT_TRY(weft_map_check(&t->maps.v[i], e));
    return WEFT_OK;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static bool add_json_text(weft_str *s, const char *text) {
    bool ok = weft_str_addz(s, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p && ok; p++) {
        if (*p == '"' || *p == '\\')
            ok = weft_str_addf(s, "\\%c", *p);
        else if (*p < 0x20)
            ok = weft_str_addf(s, "\\u%04x", *p);
        else
            ok = weft_str_add(s, p, 1);
    }
    return ok && weft_str_addz(s, "\"");
}

static bool add_header(weft_str *s, const weft_tensor *t, size_t n, const char *const *metadata) {
    bool ok = weft_str_addz(s, "{");
    if (metadata) {
        ok = ok && weft_str_addz(s, "\"__metadata__\":{");
        for (const char *const *m = metadata; *m && ok; m += 2)
            ok = weft_str_addz(s, m == metadata ? "" : ",") && add_json_text(s, m[0]) && weft_str_addz(s, ":") &&
                 add_json_text(s, m[1]);
        ok = ok && weft_str_addz(s, n ? "}," : "}");
    }
    size_t at = 0;
    for (size_t i = 0; i < n && ok; i++) {
        char shape[192];
        ok = weft_str_addz(s, i ? "," : "") && add_json_text(s, t[i].name) &&
             weft_str_addf(s, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", weft_dtype_name(t[i].dtype),
                           weft_shape_text(t[i].rank, t[i].shape, shape), at, at + t[i].bytes);
        at += t[i].bytes;
    }
    return ok && weft_str_addz(s, "}");
}

weft_status weft_safetensors_write(const char *path, const weft_tensor *t, size_t n, const char *const *metadata, weft_error *e) {
    for (size_t i = 0; i < n; i++) {
        size_t bytes = weft_dtype_size(t[i].dtype);
        for (int d = 0; d < t[i].rank; d++)
            if (!weft_mul_size(bytes, (size_t)t[i].shape[d], &bytes)) bytes = SIZE_MAX;
        if (t[i].bytes != bytes)
            return weft_fail(e, WEFT_EINVAL, "tensor '%.300s': %zu bytes do not fit its shape", t[i].name, t[i].bytes);
    }
    weft_str s = {0};
    uint64_t header = 0;
    bool ok = weft_str_add(&s, &header, 8) && add_header(&s, t, n, metadata);
    while (ok && s.n % 8) ok = weft_str_addz(&s, " "); /* so that the data start aligned */
    if (ok) {
        header = s.n - 8;
        memcpy(s.p, &header, 8);
    }
    for (size_t i = 0; i < n && ok; i++) ok = weft_str_add(&s, t[i].data, t[i].bytes);
    weft_status st = ok ? weft_file_write(path, s.p, s.n, e) : weft_fail_oom(e, "writing a safetensors file");
    weft_str_free(&s);
    return st;
}

/* model_dir.c: see model_dir.h. */
#include "format/model_dir.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "format/weight.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- the folder ---------------------------------------------------------------------------------------------------------- */

/* Does the folder hold such a file (weft_file_exists) or folder (weft_dir_exists)? */
static weft_status holds(const char *folder, const char *name, bool (*is)(const char *), bool *yes, weft_error *e) {
    weft_str path = {0};
    if (!weft_str_addf(&path, "%s/%s", folder, name)) return weft_fail_oom(e, "opening a model folder");
    *yes = is(weft_str_z(&path));
    weft_str_free(&path);
    return WEFT_OK;
}

/* The folder that `path` means, without a slash at its end. */
static weft_status find_folder(char **folder, const char *path, weft_error *e) {
    if (weft_ends_with(path, ".gguf"))
        return weft_fail(e, WEFT_ESUPPORT, "%s: GGUF files are not supported yet; give a folder with config.json and safetensors",
                         path);
    bool is_file = weft_file_exists(path);
    if (!is_file && !weft_dir_exists(path)) return weft_fail(e, WEFT_EINVAL, "%s: there is no such file or folder", path);
    *folder = weft_strdup(path);
    if (!*folder) return weft_fail_oom(e, "opening a model folder");
    size_t n = strlen(*folder);
    if (is_file) {
        char *slash = strrchr(*folder, '/');
        if (!slash)
            strcpy(*folder, "."); /* a file's name has at least one byte */
        else
            slash[slash == *folder] = '\0';
    } else {
        while (n > 1 && (*folder)[n - 1] == '/') (*folder)[--n] = '\0';
    }
    bool yes;
    WEFT_TRY(holds(*folder, "config.json", weft_file_exists, &yes, e));
    if (yes) return WEFT_OK;
    WEFT_TRY(holds(*folder, "snapshots", weft_dir_exists, &yes, e));
    if (yes)
        return weft_fail(e, WEFT_EINVAL, "%s is a folder of the Hugging Face cache; give one of the folders under its snapshots/",
                         *folder);
    if (is_file)
        return weft_fail(e, WEFT_EINVAL, "%s is not a model: no config.json beside it; expected a Hugging Face model folder", path);
    return weft_fail(e, WEFT_EINVAL, "%s is not a model folder: no config.json in it; expected a Hugging Face model folder",
                     *folder);
}

/* ---- conventions --------------------------------------------------------------------------------------------------------- */

/* prefix + name, or NULL. */
static const weft_tensor *find(const weft_model_dir *d, const char *prefix, const char *name) {
    char full[256];
    int n = snprintf(full, sizeof full, "%s%s", prefix, name);
    return n > 0 && (size_t)n < sizeof full ? weft_tensors_find(d->tensors, full) : NULL;
}

static const char *first_with(const weft_model_dir *d, const char *const *prefixes, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (find(d, prefixes[i], name)) return prefixes[i];
    return NULL;
}

static weft_status find_trunk(weft_model_dir *d, weft_error *e) {
    static const char *const prefixes[] = {
        "model.language_model.", "language_model.model.", "model.", "language_model.", "", "backbone.", "language_model.backbone."};
    static const char *const heads[] = {"lm_head", "language_model.lm_head", "model.lm_head", "model.language_model.lm_head"};
    bool nemotron = d->config.family == WEFT_FAMILY_NEMOTRON_H;
    d->embedding = nemotron ? "embeddings" : "embed_tokens";
    d->norm = nemotron ? "norm_f" : "norm";
    char name[32];
    snprintf(name, sizeof name, "%s.weight", d->embedding);
    d->trunk = first_with(d, prefixes, COUNT(prefixes), name);
    if (!d->trunk)
        return weft_fail(e, WEFT_EFORMAT, "%s: the tensor '%s%s' is missing, under every known prefix", d->path,
                         nemotron ? "backbone." : "model.", name);
    /* Configs of embedding models name another vocabulary than their tables have. */
    const weft_tensor *table = find(d, d->trunk, name);
    if (d->config.family == WEFT_FAMILY_LLAMA && table->rank == 2 && table->shape[0] > 1 && table->shape[0] < 1 << 24)
        d->config.vocab_size = (int)table->shape[0];
    const char *head = first_with(d, heads, COUNT(heads), ".weight");
    d->head = d->config.tie == WEFT_TIE_YES ? NULL : head;
    if (d->config.tie != WEFT_TIE_NO || head) return WEFT_OK;
    d->headless = d->config.family == WEFT_FAMILY_LLAMA && *d->trunk == '\0'; /* how embedding models are exported */
    if (d->headless) return WEFT_OK;
    /* an incomplete checkpoint, which the embedding would silently stand in for */
    return weft_fail(e, WEFT_EFORMAT,
                     "%s: the tensor 'lm_head.weight' is missing, and the config says that the embedding is "
                     "not the output head (tie_word_embeddings is false)",
                     d->path);
}

/* The converter moves the convolution's last axis and, for the Qwen hybrids, adds one to the norms in the same step. */
static weft_status find_conversion(weft_model_dir *d, weft_error *e) {
    const weft_model_config *c = &d->config;
    bool qwen = c->family == WEFT_FAMILY_QWEN_HYBRID;
    weft_layer_kind kind = qwen ? WEFT_LAYER_GDN : WEFT_LAYER_MAMBA;
    int layer = 0;
    while (layer < c->n_layers && c->layer_kind[layer] != kind) layer++;
    if (layer == c->n_layers) { /* no convolution to judge by: the file says who wrote it */
        const char *format = weft_tensors_metadata(d->tensors, "format");
        d->converted = qwen && format && strcmp(format, "mlx") == 0;
        return WEFT_OK;
    }
    char name[64], shape[192];
    snprintf(name, sizeof name, "layers.%d.%s.conv1d.weight", layer, qwen ? "linear_attn" : "mixer");
    const weft_tensor *x = find(d, d->trunk, name);
    if (!x) return weft_fail(e, WEFT_EFORMAT, "%s: the tensor '%s%s' is missing", d->path, d->trunk, name);
    bool raw = x->rank == 3 && x->shape[1] == 1 && x->shape[2] == c->conv_kernel;
    d->converted = x->rank == 3 && x->shape[1] == c->conv_kernel && x->shape[2] == 1;
    if (raw || d->converted) return WEFT_OK;
    return weft_fail(e, WEFT_EFORMAT, "%s: tensor '%.200s' is %s; expected [channels, 1, %d] or [channels, %d, 1]", x->file,
                     x->name, weft_shape_text(x->rank, x->shape, shape), c->conv_kernel, c->conv_kernel);
}

/* Converters drop the drafter, or add it raw, or add it converted. In a raw trunk it is raw. In a converted one the mean of its
 * input_layernorm tells: about 0 raw, about 1 converted (the means of its other norms say nothing: raw ones lie from -0.4 to 1.3).
 */
static weft_status find_mtp(weft_model_dir *d, weft_error *e) {
    static const char *const prefixes[] = {"mtp.",          "language_model.mtp.",
                                           "model.mtp.",    "model.language_model.mtp.",
                                           "backbone.mtp.", ""}; /* the last one: a drafter's own folder */
    bool nemotron = d->config.family == WEFT_FAMILY_NEMOTRON_H;
    static const char *const heads[] = {"mtp.lm_head", "mtp.shared_head.head", "language_model.mtp.lm_head",
                                        "language_model.mtp.shared_head.head"};
    if (d->config.mtp_layers == 0) return WEFT_OK;
    d->mtp = nemotron ? first_with(d, prefixes, COUNT(prefixes) - 1, "layers.0.eh_proj.weight")
                      : first_with(d, prefixes, COUNT(prefixes), "fc.weight");
    if (!d->mtp || nemotron) return WEFT_OK;
    for (size_t i = 0; i < COUNT(heads) && !d->mtp_head; i++)
        if (find(d, heads[i], ".weight")) d->mtp_head = heads[i];
    const weft_tensor *x = find(d, d->mtp, "layers.0.input_layernorm.weight");
    if (!d->converted || !x) {
        d->mtp_converted = d->converted; /* without norms they count as one, in either convention */
        return WEFT_OK;
    }
    int64_t n = d->config.hidden_size;
    float *gain = weft_calloc((size_t)n, sizeof *gain);
    if (!gain) return weft_fail_oom(e, "reading the drafter's norms");
    weft_status st = weft_tensor_read_f32(d->tensors, x->name, 1, &n, gain, e);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += gain[i];
    weft_free(gain);
    d->mtp_converted = sum > 0.5 * (double)n;
    return st;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

weft_status weft_model_dir_open(weft_model_dir *d, const char *path, weft_error *e) {
    *d = (weft_model_dir){0};
    weft_status st = find_folder(&d->path, path, e);
    if (st == WEFT_OK) st = weft_model_config_read(&d->config, d->path, e);
    if (st == WEFT_OK) st = weft_tensors_open(&d->tensors, d->path, e);
    if (st == WEFT_OK) st = find_trunk(d, e);
    if (st == WEFT_OK) st = find_conversion(d, e);
    if (st == WEFT_OK) st = find_mtp(d, e);
    if (st == WEFT_OK) st = weft_tensors_check(d->tensors, e);
    if (st != WEFT_OK) weft_model_dir_close(d);
    return st;
}

void weft_model_dir_close(weft_model_dir *d) {
    weft_tensors_close(d->tensors);
    weft_model_config_free(&d->config);
    weft_free(d->path);
    *d = (weft_model_dir){0};
}

/* ---- which model it is --------------------------------------------------------------------------------------------------- */

/* Cuts the last part off a path and returns it; "" when there is none. */
static const char *cut_last(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) return path;
    *slash = '\0';
    return slash + 1;
}

void weft_model_dir_name(const weft_model_dir *d, char name[256]) {
    static const char repository[] = "models--";
    char path[4096];
    size_t n = strlen(d->path);
    if (strcmp(d->path, ".") == 0) {
        if (!getcwd(path, sizeof path)) strcpy(path, "model");
    } else { /* of a very long path the end */
        snprintf(path, sizeof path, "%s", n < sizeof path ? d->path : d->path + n - sizeof path + 1);
    }
    snprintf(name, 256, "%.255s", cut_last(path));
    if (strcmp(cut_last(path), "snapshots") != 0) return;
    const char *repo = cut_last(path);
    if (weft_starts_with(repo, repository)) snprintf(name, 256, "%.255s", repo + sizeof repository - 1);
}

enum { SAMPLES = 256, SAMPLE = 4096 };

static bool add_piece(weft_str *record, const void *bytes, size_t n) {
    struct {
        uint64_t n;
        uint8_t hash[16];
    } piece = {.n = n};
    weft_hash128(bytes, n, piece.hash);
    return weft_str_add(record, &piece, sizeof piece);
}

/* The data of a tensor file. The header's length was checked when it was opened; but it is read again. */
static const uint8_t *file_data(const weft_map *m, size_t *n) {
    uint64_t header;
    memcpy(&header, m->data, sizeof header);
    if (header > m->size - 8) header = m->size - 8;
    *n = m->size - 8 - (size_t)header;
    return m->data + 8 + header;
}

static bool add_file_facts(weft_str *record, const weft_map *m, uint64_t *total) {
    const char *slash = strrchr(m->path, '/'), *name = slash ? slash + 1 : m->path;
    uint64_t facts[2] = {m->size, (uint64_t)m->mtime_ns};
    size_t n;
    const uint8_t *data = file_data(m, &n);
    *total += n;
    return add_piece(record, name, strlen(name)) && weft_str_add(record, facts, sizeof facts) &&
           add_piece(record, m->data, (size_t)(data - m->data));
}

/* Bytes at `at` of the files' data, taken as one after the other; returns how many of n there are. */
static size_t copy_data(const weft_tensors *t, uint64_t at, uint8_t *to, size_t n) {
    size_t got = 0;
    for (size_t i = 0; i < weft_tensors_file_count(t) && got < n; i++) {
        size_t size;
        const uint8_t *data = file_data(weft_tensors_file(t, i), &size);
        if (at >= size) {
            at -= size;
            continue;
        }
        size_t piece = size - (size_t)at < n - got ? size - (size_t)at : n - got;
        memcpy(to + got, data + at, piece);
        got += piece;
        at = 0;
    }
    return got;
}

/* The first one begins with the data and the last one ends with it. */
static bool add_samples(weft_str *record, const weft_tensors *t, uint64_t total) {
    uint8_t sample[SAMPLE];
    uint64_t last = total > SAMPLE ? total - SAMPLE : 0;
    bool ok = true;
    for (uint64_t i = 0; i < SAMPLES && ok; i++) {
        uint64_t at = last / (SAMPLES - 1) * i + last % (SAMPLES - 1) * i / (SAMPLES - 1);
        ok = add_piece(record, sample, copy_data(t, at, sample, SAMPLE));
    }
    return ok;
}

weft_status weft_model_dir_fingerprint(const weft_model_dir *d, uint8_t out[16], weft_error *e) {
    weft_str record = {0};
    char *config = NULL;
    size_t n = 0;
    uint64_t total = 0;
    bool ok = weft_str_addf(&record, "%s/config.json", d->path);
    weft_status s = ok ? weft_file_read(record.p, WEFT_MAX_HEADER, &config, &n, e) : WEFT_OK;
    if (ok && s == WEFT_OK) {
        weft_str_clear(&record);
        ok = add_piece(&record, config, n);
        for (size_t i = 0; i < weft_tensors_file_count(d->tensors) && ok; i++)
            ok = add_file_facts(&record, weft_tensors_file(d->tensors, i), &total);
        ok = ok && add_samples(&record, d->tensors, total);
    }
    if (ok && s == WEFT_OK) s = weft_tensors_check(d->tensors, e);
    if (ok && s == WEFT_OK) weft_hash128(record.p, record.n, out);
    weft_free(config);
    weft_str_free(&record);
    return ok ? s : weft_fail_oom(e, "telling a checkpoint from others");
}

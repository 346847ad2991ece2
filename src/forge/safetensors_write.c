/* safetensors_write.c: see safetensors_write.h. */
#include "forge/safetensors_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* How many of t[0..n) go into the first file. */
static size_t shard_size(const weft_new_tensor *t, size_t n, uint64_t limit) {
    uint64_t bytes = 0;
    size_t i = 0;
    while (i < n && (i == 0 || bytes + weft_new_tensor_bytes(&t[i]) <= limit)) bytes += weft_new_tensor_bytes(&t[i++]);
    return i;
}

/* Names and metadata are our own: nothing in them needs an escape. */
static bool add_header(weft_str *s, const weft_new_tensor *t, size_t n, const char *format) {
    static const char *const dtypes[] = {[WEFT_STORE_F32] = "F32", [WEFT_STORE_BF16] = "BF16", [WEFT_STORE_CODES] = "U32"};
    bool ok = weft_str_addf(s, "{\"__metadata__\":{\"format\":\"%s\"}", format);
    uint64_t at = 0;
    for (size_t i = 0; i < n && ok; i++) {
        uint64_t end = at + weft_new_tensor_bytes(&t[i]);
        ok = weft_str_addf(s, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t[i].name, dtypes[t[i].values.store]);
        for (int d = 0; d < t[i].rank && ok; d++) ok = weft_str_addf(s, "%s%" PRId64, d ? "," : "", t[i].shape[d]);
        ok = ok && weft_str_addf(s, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, end);
        at = end;
    }
    ok = ok && weft_str_addz(s, "}");
    while (ok && s->n % 8) ok = weft_str_addz(s, " "); /* so that the data start aligned */
    return ok;
}

static weft_status write_file(weft_output *o, const char *name, const weft_new_tensor *t, size_t n, const char *format,
                              weft_error *e) {
    weft_str header = {0};
    weft_status s = add_header(&header, t, n, format) ? WEFT_OK : weft_fail_oom(e, name);
    uint64_t length = header.n;
    if (s == WEFT_OK) s = weft_output_begin(o, name, e);
    if (s == WEFT_OK) s = weft_output_put(o, &length, 8, e);
    if (s == WEFT_OK) s = weft_output_put(o, header.p, header.n, e);
    for (size_t i = 0; i < n && s == WEFT_OK; i++) s = weft_output_tensor(o, &t[i], e);
    if (s == WEFT_OK) s = weft_output_end(o, e);
    weft_str_free(&header);
    return s;
}

static weft_status write_shards(weft_output *o, weft_str *index, const weft_new_tensor *t, size_t n, uint64_t limit,
                                const char *format, weft_error *e) {
    int files = 0, file = 0;
    uint64_t total = 0;
    for (size_t i = 0; i < n; i += shard_size(t + i, n - i, limit)) files++;
    for (size_t i = 0; i < n; i++) total += weft_new_tensor_bytes(&t[i]);
    bool ok = weft_str_addf(index, "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n  \"weight_map\": {", total);
    for (size_t i = 0, part; i < n; i += part) {
        char name[64];
        part = shard_size(t + i, n - i, limit);
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", ++file, files);
        WEFT_TRY(write_file(o, name, t + i, part, format, e));
        for (size_t j = i; j < i + part && ok; j++)
            ok = weft_str_addf(index, "%s\n    \"%s\": \"%s\"", j ? "," : "", t[j].name, name);
    }
    if (!ok || !weft_str_addz(index, "\n  }\n}\n")) return weft_fail_oom(e, "a shard index");
    WEFT_TRY(weft_output_begin(o, "model.safetensors.index.json", e));
    WEFT_TRY(weft_output_put(o, index->p, index->n, e));
    return weft_output_end(o, e);
}

weft_status weft_write_safetensors(weft_output *o, const weft_new_tensor *t, size_t n, uint64_t limit, const char *format,
                                   weft_error *e) {
    if (shard_size(t, n, limit) == n) return write_file(o, "model.safetensors", t, n, format, e);
    weft_str index = {0};
    weft_status s = write_shards(o, &index, t, n, limit, format, e);
    weft_str_free(&index);
    return s;
}

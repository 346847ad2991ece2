/* gguf_write.c: see gguf_write.h. The format: docs/gguf.md of the ggml project. All numbers are little-endian. */
#include "forge/gguf_write.h"

#include <string.h>

/* Kinds of values in the metadata, and of tensors. */
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_TEXT = 8, GGUF_ARRAY = 9 };
static const uint32_t types[] = {
    [WEFT_STORE_F32] = 0, [WEFT_STORE_BF16] = 30, [WEFT_STORE_Q4_0] = 2, [WEFT_STORE_Q8_0] = 8, [WEFT_STORE_Q6_K] = 14};

static bool add_u32(weft_str *s, uint32_t v) {
    return weft_str_add(s, &v, 4);
}
static bool add_u64(weft_str *s, uint64_t v) {
    return weft_str_add(s, &v, 8);
}
static bool add_text(weft_str *s, const char *z) {
    return add_u64(s, strlen(z)) && weft_str_addz(s, z);
}

/* ---- metadata ------------------------------------------------------------------------------------------------------------ */

static void add_key(weft_gguf_keys *k, const char *key, uint32_t kind) {
    k->n++;
    k->failed = k->failed || !add_text(&k->bytes, key) || !add_u32(&k->bytes, kind);
}

void weft_gguf_u32(weft_gguf_keys *k, const char *key, uint32_t v) {
    add_key(k, key, GGUF_U32);
    k->failed = k->failed || !add_u32(&k->bytes, v);
}
void weft_gguf_f32(weft_gguf_keys *k, const char *key, float v) {
    add_key(k, key, GGUF_F32);
    k->failed = k->failed || !weft_str_add(&k->bytes, &v, 4);
}
void weft_gguf_bool(weft_gguf_keys *k, const char *key, bool v) {
    add_key(k, key, GGUF_BOOL);
    k->failed = k->failed || !weft_str_add(&k->bytes, v ? "\1" : "", 1);
}
void weft_gguf_text(weft_gguf_keys *k, const char *key, const char *v) {
    add_key(k, key, GGUF_TEXT);
    k->failed = k->failed || !add_text(&k->bytes, v);
}
void weft_gguf_i32s(weft_gguf_keys *k, const char *key, const int32_t *v, uint64_t n) {
    add_key(k, key, GGUF_ARRAY);
    k->failed = k->failed || !add_u32(&k->bytes, GGUF_I32) || !add_u64(&k->bytes, n) || !weft_str_add(&k->bytes, v, n * 4);
}
void weft_gguf_keys_free(weft_gguf_keys *k) {
    weft_str_free(&k->bytes);
}

/* ---- the file ------------------------------------------------------------------------------------------------------------ */

static uint64_t aligned(uint64_t n) {
    return (n + WEFT_GGUF_ALIGNMENT - 1) / WEFT_GGUF_ALIGNMENT * WEFT_GGUF_ALIGNMENT;
}

static bool add_header(weft_str *s, const weft_gguf_keys *keys, const weft_new_tensor *t, size_t n) {
    uint64_t at = 0;
    bool ok = weft_str_addz(s, "GGUF") && add_u32(s, 3) && add_u64(s, n) && add_u64(s, keys->n) &&
              weft_str_add(s, keys->bytes.p, keys->bytes.n);
    for (size_t i = 0; i < n && ok; i++) {
        ok = add_text(s, t[i].name) && add_u32(s, (uint32_t)t[i].rank);
        for (int d = t[i].rank - 1; d >= 0 && ok; d--) ok = add_u64(s, (uint64_t)t[i].shape[d]); /* the contiguous index first */
        ok = ok && add_u32(s, types[t[i].values.store]) && add_u64(s, at);
        at += aligned(weft_new_tensor_bytes(&t[i]));
    }
    while (ok && s->n % WEFT_GGUF_ALIGNMENT) ok = weft_str_add(s, "", 1);
    return ok;
}

static weft_status write_tensors(weft_output *o, const weft_new_tensor *t, size_t n, weft_error *e) {
    static const uint8_t zeros[WEFT_GGUF_ALIGNMENT];
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = weft_new_tensor_bytes(&t[i]);
        WEFT_TRY(weft_output_tensor(o, &t[i], e));
        WEFT_TRY(weft_output_put(o, zeros, (size_t)(aligned(bytes) - bytes), e));
    }
    return WEFT_OK;
}

weft_status weft_write_gguf(weft_output *o, const char *name, const weft_gguf_keys *keys, const weft_new_tensor *t, size_t n,
                            weft_error *e) {
    weft_str header = {0};
    weft_status s = !keys->failed && add_header(&header, keys, t, n) ? WEFT_OK : weft_fail_oom(e, name);
    if (s == WEFT_OK) s = weft_output_begin(o, name, e);
    if (s == WEFT_OK) s = weft_output_put(o, header.p, header.n, e);
    if (s == WEFT_OK) s = write_tensors(o, t, n, e);
    if (s == WEFT_OK) s = weft_output_end(o, e);
    weft_str_free(&header);
    return s;
}

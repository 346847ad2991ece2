/* format_files.h: a scratch folder and small model files for tests of src/format. Included by one test program each. */
#ifndef WEFT_TESTS_FORMAT_FILES_H
#define WEFT_TESTS_FORMAT_FILES_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "format/safetensors.h"

static char scratch[200];

static inline const char *at(const char *name) {
    static char paths[8][600];
    static int turn;
    char *p = paths[turn++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", scratch, name);
    return p;
}

static inline int scratch_make(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/weft-format-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline void scratch_empty(void) {
    DIR *d = opendir(scratch);
    for (struct dirent *x; (x = readdir(d));)
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) remove(at(x->d_name));
    closedir(d);
}

static inline int scratch_clear(void **state) { /* a test's setup */
    (void)state;
    scratch_empty();
    return 0;
}

static inline int scratch_drop(void **state) {
    (void)state;
    scratch_empty();
    return rmdir(scratch);
}

static inline void put(const char *name, const void *bytes, size_t n) {
    weft_error e;
    if (weft_file_write(at(name), bytes, n, &e) != WEFT_OK) fail_msg("%s", e.text);
}

static inline void put_text(const char *name, const char *text) {
    put(name, text, strlen(text));
}

/* `from`, which must occur, replaced by `to`. Freed with free(). */
static inline char *swap(const char *text, const char *from, const char *to) {
    const char *hit = strstr(text, from);
    if (!hit) fail_msg("'%s' does not occur", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    sprintf(out, "%.*s%s%s", (int)(hit - text), text, to, hit + strlen(from));
    return out;
}

/* A failure must have this status and say this. */
static inline void assert_says(weft_status st, const weft_error *e, weft_status expected, const char *words) {
    if (st == WEFT_OK) fail_msg("accepted; expected an error with '%s'", words);
    if (st != expected || e->code != expected || !strstr(e->text, words))
        fail_msg("status %d (in the error %d), expected %d; '%s', expected to hold '%s'", st, e->code, expected, e->text, words);
}

/* A tensor over `data`, for weft_safetensors_write. */
static inline weft_tensor tensor(const char *name, weft_dtype dtype, int rank, int64_t a, int64_t b, int64_t c, const void *data) {
    weft_tensor t = {.name = name, .dtype = dtype, .rank = rank, .shape = {a, b, c}, .data = data};
    t.bytes = weft_dtype_size(dtype);
    for (int i = 0; i < rank; i++) t.bytes *= (size_t)t.shape[i];
    return t;
}

static inline void put_tensors(const char *name, const weft_tensor *t, size_t n, const char *const *metadata) {
    weft_error e;
    if (weft_safetensors_write(at(name), t, n, metadata, &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* The text of a config of a tiny dense Qwen3.5 model, as transformers 5 writes it. */
static const char tiny_config[] =
    "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"model_type\": \"qwen3_5_text\", \"dtype\": \"bfloat16\","
    " \"vocab_size\": 320, \"hidden_size\": 64, \"intermediate_size\": 160, \"num_hidden_layers\": 4,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, \"hidden_act\": \"silu\","
    " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-06, \"tie_word_embeddings\": false,"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000.0,"
    " \"partial_rotary_factor\": 0.5, \"mrope_section\": [4, 2, 2], \"mrope_interleaved\": true},"
    " \"partial_rotary_factor\": 0.25, \"attention_bias\": false, \"attn_output_gate\": true,"
    " \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 16, \"linear_value_head_dim\": 16,"
    " \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4,"
    " \"layer_types\": [\"linear_attention\", \"linear_attention\", \"linear_attention\", \"full_attention\"],"
    " \"eos_token_id\": null, \"bos_token_id\": null, \"pad_token_id\": null,"
    " \"mtp_num_hidden_layers\": 1, \"mtp_use_dedicated_embeddings\": false}";

#endif

/* fuzz_safetensors.c: a safetensors file from a stranger. An accepted one must describe only bytes that exist, each at most once,
 * and its weights must be readable. The first byte of the input decides whether the rest is a whole file or only its header text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "format/weight.h"

static void require(bool ok) {
    if (!ok) abort();
}

static void read_weight(const weft_tensors *t, const weft_tensor *x) {
    if (x->rank < 2 || x->rank > 3) return;
    int64_t experts = x->rank == 3 ? x->shape[0] : 0, n = x->shape[x->rank - 2], last = x->shape[x->rank - 1];
    if ((x->rank == 3 && experts == 0) || n == 0 || last == 0) return;
    char name[512];
    size_t len = strlen(x->name);
    if (len >= sizeof name) return;
    memcpy(name, x->name, len + 1);
    if (weft_ends_with(name, ".weight")) name[len - strlen(".weight")] = 0;
    static const int columns[] = {0, 2, 3, 4, 5, 6, 8}; /* as they are, or of packed words */
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        weft_model_config c = {0};
        weft_weight w;
        int64_t k = columns[i] ? last * 32 / columns[i] : last;
        if (weft_weight_find(t, &c, name, experts, n, k, &w, NULL) != WEFT_OK) continue;
        float *row = malloc((size_t)w.k * 4);
        for (int64_t r = 0; r < w.n && r < 8; r++) {
            bool raw = weft_weight_read(&w, w.experts - 1, r, row, row, row, NULL) == WEFT_OK;
            require(raw == (weft_weight_row_f32(&w, w.experts - 1, r, row, NULL) == WEFT_OK));
            require(!raw || weft_first_nonfinite(WEFT_F32, row, (size_t)w.k) == (size_t)w.k);
        }
        free(row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { DATA = 256 };
    bool whole = size > 0 && data[0] % 2;
    if (size > 0) data++, size--;
    uint64_t header = size;
    size_t total = whole ? size : 8 + size + DATA;
    uint8_t *file = calloc(total ? total : 1, 1);
    if (!whole) memcpy(file, &header, 8);
    if (size) memcpy(file + (whole ? 0 : 8), data, size);
    for (size_t i = 0; !whole && i < DATA; i++) file[8 + size + i] = (uint8_t)(i * 7);

    weft_tensors *t;
    weft_error e;
    if (weft_tensors_parse(&t, file, total, "fuzz", &e) == WEFT_OK) {
        const uint8_t *end = file + 8;
        for (size_t i = 0; i < weft_tensors_count(t); i++) {
            const weft_tensor *x = weft_tensors_at(t, i);
            size_t bytes = weft_dtype_size(x->dtype);
            for (int d = 0; d < x->rank; d++) bytes *= (size_t)x->shape[d];
            require(bytes == x->bytes && x->name[0] && weft_tensors_find(t, x->name) == x);
            require(x->data >= end && x->bytes <= (size_t)(file + total - x->data)); /* in order of place, without overlap */
            if (x->bytes) end = x->data + x->bytes;
            read_weight(t, x);
        }
        weft_tensors_close(t);
    } else {
        require(t == NULL && e.text[0] && e.code != WEFT_OK);
    }
    free(file);
    return 0;
}

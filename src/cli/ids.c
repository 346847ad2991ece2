/* ids.c: see ids.h. */
#include "cli/ids.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/num.h"
#include "base/str.h"
#include "format/safetensors.h"

#define MAX_IDS_FILE ((size_t)1 << 30)

static weft_status ids_from_text(weft_cli_ids *ids, char *text, weft_error *e) {
    const char *blank = " \t\r\n,";
    for (char *p = text + strspn(text, blank); *p; p += strspn(p, blank)) {
        size_t n = strcspn(p, blank);
        char end = p[n];
        int64_t id;
        p[n] = 0;
        if (!weft_parse_i64(p, 0, INT32_MAX, &id)) return weft_fail(e, WEFT_EFORMAT, "'%.40s' is not a token id", p);
        p[n] = end;
        if (!weft_vec_push(ids, (int32_t)id)) return weft_fail_oom(e, "ids");
        p += n;
    }
    return WEFT_OK;
}

static weft_status ids_from_tensor(weft_cli_ids *ids, const char *path, const void *data, size_t size, weft_error *e) {
    weft_tensors *t = NULL;
    WEFT_TRY(weft_tensors_parse(&t, data, size, path, e));
    const weft_tensor *x = weft_tensors_find(t, "input_ids");
    weft_status s = WEFT_OK;
    if (!x || (x->dtype != WEFT_I32 && x->dtype != WEFT_I64))
        s = weft_fail(e, WEFT_EFORMAT, "there is no tensor 'input_ids' of type I32 or I64 in it");
    size_t width = s == WEFT_OK ? weft_dtype_size(x->dtype) : 1;
    for (size_t i = 0; s == WEFT_OK && i < x->bytes / width; i++) {
        int32_t id32 = 0;
        int64_t id = 0;
        memcpy(width == 4 ? (void *)&id32 : (void *)&id, x->data + i * width, width);
        if (width == 4) id = id32;
        if (id < 0 || id > INT32_MAX)
            s = weft_fail(e, WEFT_EFORMAT, "input_ids[%zu] is %lld", i, (long long)id);
        else if (!weft_vec_push(ids, (int32_t)id))
            s = weft_fail_oom(e, "ids");
    }
    weft_tensors_close(t);
    return s;
}

/* A safetensors file begins with the length of its header, 8 bytes of which the upper ones are 0; a list of ids has no zero byte.
 */
weft_status weft_cli_read_ids(weft_cli_ids *ids, const char *path, weft_error *e) {
    char *data = NULL;
    size_t size = 0;
    WEFT_TRY(weft_file_read(path, MAX_IDS_FILE, &data, &size, e));
    weft_status s = memchr(data, 0, size) ? ids_from_tensor(ids, path, data, size, e) : ids_from_text(ids, data, e);
    if (s == WEFT_OK && !ids->n) s = weft_fail(e, WEFT_EFORMAT, "it holds no ids");
    weft_free(data);
    return s == WEFT_OK ? s : weft_fail_in(e, path);
}

weft_status weft_cli_write_ids(const char *path, const int32_t *ids, size_t n, weft_error *e) {
    weft_str text = {0};
    weft_status s = WEFT_OK;
    for (size_t i = 0; i < n && s == WEFT_OK; i++)
        if (!weft_str_addf(&text, i + 1 < n ? "%d " : "%d\n", ids[i])) s = weft_fail_oom(e, "the list of ids");
    if (s == WEFT_OK) s = weft_file_write(path, weft_str_z(&text), text.n, e);
    weft_str_free(&text);
    return s;
}

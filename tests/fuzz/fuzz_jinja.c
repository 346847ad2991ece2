/* fuzz_jinja.c: a chat template from a stranger and, after a byte 0xff, its variables as JSON. Whatever it is, rendering ends
 * within its limits, gives the same twice, and the parts cover the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "text/jinja.h"

static void require(bool ok) {
    if (!ok) abort();
}

static const char usual[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \" H\\u00e4 <|im_end|> "
    "\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, "
    "2.5]}}}]}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}],"
    "\"s\": \"Hello World\", \"n\": 7, \"f\": -2.5, \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": \"two\"}, \"t\": true, \"big\": "
    "12345678901234567890}";

static weft_jinja_vars *make_vars(const char *json, size_t n) {
    weft_jinja_vars *vars;
    struct json_object *root;
    require(weft_jinja_vars_open(&vars, NULL) == WEFT_OK);
    if (weft_json_parse(&root, json, n, NULL) == WEFT_OK) {
        json_object_object_foreach(root, key, value) {
            weft_jinja_set(vars, key, weft_jinja_json(vars, value, key[0] == 't'));
        }
        json_object_put(root);
    }
    return vars;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *split = size ? memchr(data, 0xff, size) : NULL;
    size_t n = split ? (size_t)(split - data) : size;
    weft_jinja_vars *vars = split ? make_vars((const char *)split + 1, size - n - 1) : make_vars(usual, sizeof usual - 1);
    weft_jinja *t;
    weft_error e;
    weft_jinja_options o = {
        .now = 1722006245, .work = 2000000, .iterations = 100000, .memory = (size_t)64 << 20, .output = 1 << 20};
    weft_status st = weft_jinja_compile(&t, (const char *)data, n, &e);
    require(st == WEFT_OK || st == WEFT_EFORMAT || st == WEFT_ESUPPORT);
    if (st == WEFT_OK) {
        weft_jinja_output a, b;
        st = weft_jinja_render(t, vars, &o, &a, &e);
        require(st == WEFT_OK || st == WEFT_EINVAL || st == WEFT_EFORMAT || st == WEFT_ESUPPORT);
        require(weft_jinja_render(t, vars, &o, &b, &e) == st && a.text.n == b.text.n && a.parts.n == b.parts.n);
        size_t at = 0;
        for (size_t i = 0; i < a.parts.n; i++) {
            require(a.parts.v[i].text == a.text.p + at && a.parts.v[i].n > 0 && a.parts.v[i].special == b.parts.v[i].special);
            at += a.parts.v[i].n;
        }
        require(at == a.text.n && a.text.n <= o.output && (at == 0 || memcmp(a.text.p, b.text.p, at) == 0));
        weft_jinja_output_free(&a);
        weft_jinja_output_free(&b);
        weft_jinja_free(t);
    }
    weft_jinja_vars_close(vars);
    return 0;
}

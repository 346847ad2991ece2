/* sampling.c: see sampling.h. */
#include "cli/sampling.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "cli/chat.h"
#include "format/json.h"

#define LARGEST_CONFIG ((size_t)1 << 20) /* bytes */

/* do_sample false is greedy, whatever else is there; a temperature that is not there is 1. */
static weft_status read_values(struct json_object *root, weft_request_desc *d, weft_error *e) {
    weft_json_at at = {root, ""};
    bool sample = true;
    int64_t top_k = 0;
    double temperature = 1, top_p = 1, min_p = 0, repetition = 1;
    WEFT_TRY(weft_json_bool(at, "do_sample", &sample, e));
    WEFT_TRY(weft_json_number(at, "temperature", 0, 100, &temperature, e));
    WEFT_TRY(weft_json_int(at, "top_k", 0, INT32_MAX, &top_k, e));
    WEFT_TRY(weft_json_number(at, "top_p", 0.0001, 1, &top_p, e));
    WEFT_TRY(weft_json_number(at, "min_p", 0, 1, &min_p, e));
    WEFT_TRY(weft_json_number(at, "repetition_penalty", 0.01, 100, &repetition, e));
    d->temperature = sample ? temperature : 0;
    d->top_k = (int)top_k;
    d->top_p = (float)top_p;
    d->min_p = (float)min_p;
    d->repetition_penalty = (float)repetition;
    return WEFT_OK;
}

static weft_status recommended(const char *model, weft_request_desc *d, weft_error *e) {
    weft_str path = {0};
    struct json_object *root = NULL;
    weft_status s = WEFT_OK;
    if (!weft_cli_folder(model, &path) || !weft_str_addz(&path, "/generation_config.json"))
        s = weft_fail_oom(e, "a path");
    else if (!weft_file_exists(path.p))
        s = weft_fail(e, WEFT_EINVAL, "--sampling model: there is no %s, so nothing is recommended", path.p);
    if (s == WEFT_OK) s = weft_json_read(&root, path.p, LARGEST_CONFIG, e);
    if (s == WEFT_OK && (s = read_values(root, d, e)) != WEFT_OK) weft_fail_in(e, path.p);
    json_object_put(root);
    weft_str_free(&path);
    return s;
}

static weft_status take_bias(const char *text, weft_logit_bias *bias, weft_error *e) {
    const char *equals = strchr(text, '=');
    char id[16] = "";
    int64_t n;
    double add = -INFINITY;
    if (equals && (size_t)(equals - text) < sizeof id) memcpy(id, text, (size_t)(equals - text));
    if (!weft_parse_i64(id, 0, INT32_MAX, &n) ||
        (strcmp(equals + 1, "-inf") != 0 && !weft_parse_f64(equals + 1, -FLT_MAX, FLT_MAX, &add)))
        return weft_fail(e, WEFT_EINVAL, "--bias %s: expected an id and a number: 42=-5, or 42=-inf", text);
    *bias = (weft_logit_bias){.id = (int32_t)n, .add = (float)add};
    return WEFT_OK;
}

weft_status weft_cli_sampling_take(const weft_cli_sampling *s, const char *model, weft_logit_bias *bias, weft_request_desc *d,
                                   weft_error *e) {
    if (strcmp(s->from, "model") == 0) WEFT_TRY(recommended(model, d, e));
    if (s->temperature >= 0) d->temperature = s->temperature;
    if (s->top_k >= 0) d->top_k = (int)s->top_k;
    if (s->top_p >= 0) d->top_p = (float)s->top_p;
    if (s->min_p >= 0) d->min_p = (float)s->min_p;
    if (s->repetition >= 0) d->repetition_penalty = (float)s->repetition;
    d->presence_penalty = (float)s->presence;
    d->frequency_penalty = (float)s->frequency;
    for (int i = 0; i < s->bias.n; i++) WEFT_TRY(take_bias(s->bias.v[i], &bias[i], e));
    d->bias = bias;
    d->n_bias = (size_t)s->bias.n;
    d->has_seed = s->seed >= 0;
    d->seed = (uint64_t)s->seed;
    d->logprobs = s->logprobs >= 0;
    d->prompt_logprobs = s->prompt_logprobs;
    d->top_logprobs = s->logprobs > 0 ? (int)s->logprobs : 0;
    return WEFT_OK;
}

void weft_cli_print_logprobs(int32_t id, float logprob, const weft_logprob *top, int n_top) {
    fprintf(stderr, "%d %.6f", id, (double)logprob);
    for (int i = 0; i < n_top; i++) fprintf(stderr, "%s %d %.6f", i ? "," : ":", top[i].id, (double)top[i].logprob);
    fputc('\n', stderr);
}

/* sampling.h: how `weft run` chooses tokens: what the user says, and what a model's publisher recommends. */
#ifndef WEFT_CLI_SAMPLING_H
#define WEFT_CLI_SAMPLING_H

#include "cli/args.h"
#include "weft.h"

/* Values are -1 until the user gives them; penalties that can be negative are 0. */
typedef struct weft_cli_sampling {
    const char *from; /* whose values count where the user gives none: "greedy" or "model" */
    double temperature, top_p, min_p, repetition, presence, frequency;
    int64_t top_k, seed, logprobs;
    bool prompt_logprobs;
    weft_texts bias;
} weft_cli_sampling;
#define WEFT_CLI_SAMPLING                                                                                                          \
    ((weft_cli_sampling){                                                                                                          \
        .from = "greedy", .temperature = -1, .top_p = -1, .min_p = -1, .repetition = -1, .top_k = -1, .seed = -1, .logprobs = -1})

/* Fills what a request says about choosing tokens. bias[WEFT_TEXTS_MOST]: room that the request points to. model: a folder, or a
 * file in it. */
weft_status weft_cli_sampling_take(const weft_cli_sampling *s, const char *model, weft_logit_bias *bias, weft_request_desc *d,
                                   weft_error *e);

/* One line on standard error for a token's log-probabilities. */
void weft_cli_print_logprobs(int32_t id, float logprob, const weft_logprob *top, int n_top);

#endif

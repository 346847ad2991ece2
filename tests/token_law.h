/* token_law.h: the law of an answer of a few tokens out of a few ids, from nothing but the model's scored logits and what weft.h
 * and ops/sample.h say of how a token is chosen: the probability of every answer there can be. And chi-square against it.
 *
 * A request's `allowed` ids are the letters, ascending. An answer is a number with a digit for each token; one that ends early has
 * zeros behind its end id. */
#ifndef WEFT_TESTS_TOKEN_LAW_H
#define WEFT_TESTS_TOKEN_LAW_H

#include <math.h>
#include <string.h>

#include "weft.h"

enum { LAW_LETTERS = 5, LAW_TOKENS = 10, LAW_NODES = 8192, LAW_PROMPT = 64 };

typedef struct law {
    weft_request_desc d; /* its lists must live */
    int letters, tokens; /* n_allowed, max_tokens */
    double *p;           /* [answers] */
    int answers;
    /* Logits of the letters after each beginning of an answer; node(): its number. */
    float logits[LAW_NODES][LAW_LETTERS], head[LAW_NODES][LAW_LETTERS]; /* head: the MTP head's, one link; without one nothing */
    int node[LAW_TOKENS + 1];                                           /* scoring: the nodes on the way */
} law;

static inline int law_power(int base, int n) {
    int x = 1;
    while (n-- > 0) x *= base;
    return x;
}
/* The node behind the first n digits. */
static inline int law_node(const law *l, const int *digits, int n) {
    int at = 0;
    for (int i = 0; i < n; i++) at = at * l->letters + digits[i] + 1;
    return at;
}
static inline int law_code(const law *l, const int *digits, int n) {
    int code = 0;
    for (int i = 0; i < l->tokens; i++) code = code * l->letters + (i < n ? digits[i] : 0);
    return code;
}
static inline bool law_in(const int32_t *ids, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The law of the token after n digits, in which the letters have these logits: every step of weft.h, plainly. */
static inline void law_of_row(const law *l, const float *logits, const int *digits, int n, double *p) {
    const weft_request_desc *d = &l->d;
    double y[LAW_LETTERS], w[LAW_LETTERS], total = 0, largest = -INFINITY;
    int order[LAW_LETTERS] = {0}, kept = l->letters;
    for (int k = 0; k < l->letters; k++) {
        int32_t id = d->allowed[k];
        int times = 0;
        double x = (double)logits[k];
        for (int i = 0; i < n; i++) times += digits[i] == k;
        for (size_t i = 0; i < d->n_bias; i++)
            if (d->bias[i].id == id) x += (double)d->bias[i].add;
        x = (double)(float)x;
        if (d->repetition_penalty > 0 && (times || law_in(d->prompt, d->n_prompt, id)))
            x = x > 0 ? x / (double)d->repetition_penalty : x * (double)d->repetition_penalty;
        x -= (double)d->frequency_penalty * times + (times ? (double)d->presence_penalty : 0);
        x = (double)(float)x;
        if (law_in(d->banned, d->n_banned, id) || (n < d->min_tokens && law_in(d->stop_ids, d->n_stop_ids, id))) x = -INFINITY;
        y[k] = x;
        largest = fmax(largest, x);
    }
    for (int k = 0; k < l->letters; k++) { /* largest first, of equals the lowest id */
        int at = k;
        for (; at > 0 && y[order[at - 1]] < y[k]; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    for (int k = 0; k < l->letters; k++)
        w[k] = d->temperature > 0 ? exp((y[k] - largest) / d->temperature) : k == order[0]; /* 0: greedy */
    if (d->top_k > 0 && d->top_k < kept) kept = d->top_k;
    for (int i = 0; i < kept; i++) total += w[order[i]];
    if (d->top_p > 0 && d->top_p < 1) {
        double sum = 0;
        int i = 0;
        while (i < kept && sum < (double)d->top_p * total) sum += w[order[i++]];
        kept = i;
    }
    while (kept > 1 && w[order[kept - 1]] < (double)d->min_p * w[order[0]]) kept--;
    total = 0;
    for (int i = 0; i < kept; i++) total += w[order[i]];
    for (int k = 0; k < l->letters; k++) p[k] = 0;
    for (int i = 0; i < kept; i++) p[order[i]] = w[order[i]] / total;
}

static inline bool law_ends(const law *l, int digit) {
    return law_in(l->d.stop_ids, l->d.n_stop_ids, l->d.allowed[digit]);
}
static inline void law_walk(law *l, int *digits, int n, double so_far) {
    double p[LAW_LETTERS];
    law_of_row(l, l->logits[law_node(l, digits, n)], digits, n, p);
    for (int k = 0; k < l->letters; k++) {
        digits[n] = k;
        if (law_ends(l, k) || n + 1 == l->tokens)
            l->p[law_code(l, digits, n + 1)] = so_far * p[k];
        else
            law_walk(l, digits, n + 1, so_far * p[k]);
    }
}

static inline weft_status law_keep_row(void *ctx, size_t position, const float *logits, const float *head, weft_error *e) {
    law *l = ctx;
    (void)e;
    if (position + 1 < l->d.n_prompt) return WEFT_OK;
    int node = l->node[position + 1 - l->d.n_prompt];
    for (int k = 0; k < l->letters; k++) {
        l->logits[node][k] = logits[l->d.allowed[k]];
        if (head) l->head[node][k] = head[l->d.allowed[k]];
    }
    return WEFT_OK;
}

/* Scores every beginning there can be, and sums up. */
static inline law *law_make(weft_engine *g, const weft_request_desc *d) {
    law *l = calloc(1, sizeof *l);
    weft_error e = {0};
    l->d = *d;
    l->letters = (int)d->n_allowed;
    l->tokens = d->max_tokens;
    l->answers = law_power(l->letters, l->tokens);
    assert_true(l->letters <= LAW_LETTERS && l->tokens <= LAW_TOKENS && l->answers / (l->letters - 1) < LAW_NODES);
    l->p = calloc((size_t)l->answers, sizeof *l->p);
    int32_t ids[LAW_PROMPT + LAW_TOKENS];
    memcpy(ids, d->prompt, d->n_prompt * sizeof *ids);
    int known = l->tokens - 1, digits[LAW_TOKENS];
    for (int code = 0; code < law_power(l->letters, known); code++) {
        for (int i = known - 1, rest = code; i >= 0; i--, rest /= l->letters) digits[i] = rest % l->letters;
        for (int i = 0; i <= known; i++) l->node[i] = law_node(l, digits, i);
        for (int i = 0; i < known; i++) ids[d->n_prompt + (size_t)i] = d->allowed[digits[i]];
        if (weft_score(g, ids, d->n_prompt + (size_t)known, law_keep_row, l, &e) != WEFT_OK) fail_msg("%s", e.text);
    }
    law_walk(l, digits, 0, 1);
    double total = 0;
    for (int i = 0; i < l->answers; i++) total += l->p[i];
    assert_true(fabs(total - 1) < 1e-9);
    return l;
}
static inline void law_free(law *l) {
    free(l->p);
    free(l);
}

/* ---- chi-square ---------------------------------------------------------------------------------------------------------- */

typedef struct law_fit {
    double chi, z; /* z: chi as a normal deviate (Wilson and Hilferty); infinite: an answer came that cannot */
    int dof;
} law_fit;

/* Answers that are expected less than ten times are one. */
static inline law_fit law_compare(const law *l, const int *counts, int n) {
    law_fit f = {.dof = -1};
    double rare = 0, rare_seen = 0;
    for (int i = 0; i < l->answers; i++) {
        double want = l->p[i] * n, off = counts[i] - want;
        if (want == 0 && counts[i]) f.z = INFINITY;
        if (want < 10)
            rare += want, rare_seen += counts[i];
        else
            f.chi += off * off / want, f.dof++;
    }
    if (rare >= 1) f.chi += (rare_seen - rare) * (rare_seen - rare) / rare, f.dof++;
    if (f.dof < 1) f.dof = 1; /* one answer alone is likely */
    double v = 2.0 / (9.0 * f.dof);
    if (f.z == 0) f.z = (cbrt(f.chi / f.dof) - (1 - v)) / sqrt(v);
    return f;
}

#endif

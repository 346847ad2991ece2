/* test_law_faults.c: what test_law.c would say of an engine with a fault. The engine's algorithms once more, plainly, on the rows
 * that the engine scores, with the noise that it takes; right, they pass its test, and with any one of the faults that other
 * engines had they fail by far. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "law_models.h"
#include "ops/sample.h"
#include "sanitizers.h"
#include "token_law.h"

#if SANITIZED
enum { ANSWERS = 20000 };
#else
enum { ANSWERS = 50000 };
#endif
enum { DEPTH = 4, TOKENS = DEPTH + 2, LETTERS = 3 };
static const double limit = 5.2, far = ANSWERS / 2500.0; /* test_law's; and what a fault has to reach */

typedef enum fault {
    NONE,
    Q_AT_ANOTHER_TEMPERATURE,  /* q of the raw logits */
    GREEDY_DRAFTS,             /* the head's likeliest, tested as if drawn from q */
    KEPT_BY_P,                 /* with p instead of p / q */
    NOT_SUBTRACTED,            /* a refused draft's place is drawn from p */
    NOT_NORMALISED,            /* from the rest, as if it were a law */
    ONE_NUMBER_FOR_BOTH,       /* the test's number draws from the rest */
    BONUS_BY_THE_TEST,         /* the last test's number draws the bonus */
    DROPPED_BY_ITS_OWN_CHANCE, /* a draft that the head itself finds unlikely is not proposed */
    LOOKED_UP_FIRST,           /* what was looked up in place of the head's draft, tested with the head's q */
    SAME_NOISE_TWICE,          /* the bonus is drawn with the last draft's noise */
    ROW_BEFORE,                /* the target's row of the place before */
    DRAFTS_NOT_COUNTED,        /* penalties of a row without the drafts before it */
    ENDS_TOO_EARLY,            /* min_tokens is compared at the first row of a block */
} fault;

typedef struct subject {
    const law *l;
    weft_request_desc d;
    bool reject;
    fault fault;
    /* Laws behind each beginning: the target's, the drafter's, and what its test is told. */
    double p[LAW_NODES][LETTERS], q[LAW_NODES][LETTERS], told[LAW_NODES][LETTERS];
} subject;

/* The laws, all beginnings of n digits and more. */
static void make_laws(subject *s, int *digits, int n) {
    law seen = {.d = s->d, .letters = LETTERS}, told = seen;
    int node = law_node(s->l, digits, n), row = s->fault == ROW_BEFORE && n ? law_node(s->l, digits, n - 1) : node;
    if (s->fault == Q_AT_ANOTHER_TEMPERATURE) told.d.temperature = 1;
    law_of_row(&seen, s->l->logits[row], digits, n, s->p[node]);
    law_of_row(&seen, s->l->head[node], digits, n, s->q[node]);
    law_of_row(&told, s->l->head[node], digits, n, s->told[node]);
    for (int k = 0; k < LETTERS && n + 1 < TOKENS; k++) {
        digits[n] = k;
        make_laws(s, digits, n + 1);
    }
}

/* The target's law after digits[0..n) in a block that began at `base`. */
static const double *target(const subject *s, const int *digits, int n, int base, double *room) {
    law seen = {.d = s->d, .letters = LETTERS};
    if (s->fault != DRAFTS_NOT_COUNTED && s->fault != ENDS_TOO_EARLY) return s->p[law_node(s->l, digits, n)];
    if (s->fault == ENDS_TOO_EARLY && base < s->d.min_tokens) seen.d.min_tokens = TOKENS;
    law_of_row(&seen, s->l->logits[law_node(s->l, digits, n)], digits, s->fault == DRAFTS_NOT_COUNTED ? base : n, room);
    return room;
}

static int by_noise(const double *p, uint64_t seed, int index) {
    int best = -1;
    double most = 0;
    for (int k = 0; k < LETTERS; k++) {
        if (!(p[k] > 0)) continue;
        double x = log(p[k]) + weft_gumbel(seed, 0, (uint32_t)index, (uint32_t)k);
        if (best < 0 || x > most) best = k, most = x;
    }
    return best;
}
static int by_number(const double *w, double u) {
    int last = -1;
    double at = 0;
    for (int k = 0; k < LETTERS; k++) {
        if (!(w[k] > 0)) continue;
        last = k;
        at += w[k];
        if (at > u) break;
    }
    return last;
}

/* Drafts for digits[n..]: into the digits behind, as many as returned. */
static int draft(const subject *s, int *digits, int n, uint64_t seed) {
    int most = TOKENS - n - 1 < DEPTH ? TOKENS - n - 1 : DEPTH;
    for (int i = 0; i < most; i++) {
        const double *q = s->q[law_node(s->l, digits, n + i)];
        int x = by_noise(q, seed, n + i);
        if (s->fault == GREEDY_DRAFTS)
            for (int k = x = 0; k < LETTERS; k++)
                if (q[k] > q[x]) x = k;
        if (s->fault == LOOKED_UP_FIRST && i == 0 && q[digits[0]] > 0) x = digits[0]; /* it came before */
        if (s->fault == DROPPED_BY_ITS_OWN_CHANCE && q[x] < 0.3) return i;
        digits[n + i] = x;
    }
    return most;
}

/* The token in place of draft x; *kept: it is x. */
static int judge(const subject *s, const int *digits, int n, const double *p, int x, uint64_t seed, bool *kept) {
    const weft_sampler numbers = {.temperature = 1, .seed = seed};
    const double *q = s->told[law_node(s->l, digits, n)];
    double rest[LETTERS], total = 0;
    double u = weft_uniform(&numbers, (uint32_t)n, WEFT_FOR_ACCEPT), v = weft_uniform(&numbers, (uint32_t)n, WEFT_FOR_RESIDUAL);
    *kept = s->fault == KEPT_BY_P ? u < p[x] : weft_accepts(p[x], q[x], u);
    if (*kept) return x;
    for (int k = 0; k < LETTERS; k++) total += rest[k] = fmax(0, p[k] - q[k]);
    if (s->fault == NOT_SUBTRACTED || !(total > 0)) return by_number(p, v);
    if (s->fault == ONE_NUMBER_FOR_BOTH) v = u;
    return by_number(rest, s->fault == NOT_NORMALISED ? v : v * total);
}

/* Returns the answer's length. */
static int answer(const subject *s, uint64_t seed, int *digits, int *n_kept) {
    const weft_sampler numbers = {.temperature = 1, .seed = seed};
    int n = 0;
    while (n < TOKENS) {
        int base = n, drafts = n ? draft(s, digits, n, seed) : 0;
        for (bool kept = true; kept; n++) {
            double room[LETTERS];
            const double *p = target(s, digits, n, base, room);
            int x = n - base < drafts ? digits[n] : -1;
            int noise = s->fault == SAME_NOISE_TWICE && drafts && x < 0 ? n - 1 : n;
            if (!s->reject)
                digits[n] = by_noise(p, seed, noise), kept = digits[n] == x;
            else if (x >= 0)
                digits[n] = judge(s, digits, n, p, x, seed, &kept);
            else {
                bool shared = s->fault == BONUS_BY_THE_TEST && drafts;
                digits[n] =
                    by_number(p, weft_uniform(&numbers, (uint32_t)(shared ? n - 1 : n), shared ? WEFT_FOR_ACCEPT : WEFT_FOR_BONUS));
                kept = false;
            }
            *n_kept += kept;
            if (law_ends(s->l, digits[n])) return n + 1;
        }
    }
    return n;
}

static double deviation(subject *s, const char *name) {
    static int counts[1000];
    int kept = 0, digits[TOKENS];
    memset(counts, 0, sizeof counts);
    assert_true(s->l->answers <= 1000);
    make_laws(s, digits, 0);
    for (uint64_t seed = 0; seed < ANSWERS; seed++) {
        int n = answer(s, seed, digits, &kept);
        counts[law_code(s->l, digits, n)]++;
    }
    law_fit f = law_compare(s->l, counts, ANSWERS);
    printf("%-10s %-46s %.2f %12.1f %5d %+8.2f\n", s->reject ? "rejection" : "coupled", name, (double)kept / ANSWERS, f.chi, f.dof,
           f.z);
    return f.z;
}

static const int32_t letters[LETTERS] = {1, 2, 3}, end_id[] = {2}, prompt[] = {4};
static void planted_faults_show(void **state) {
    (void)state;
    static const weft_request_desc plain = {.temperature = 0.7},
                                   counted = {.temperature = 0.7, .frequency_penalty = 0.6f, .presence_penalty = 0.3f},
                                   ended = {.temperature = 0.7, .stop_ids = end_id, .n_stop_ids = 1, .min_tokens = 3};
    static const struct {
        const char *name;
        fault fault;
        const weft_request_desc *d;
        bool coupled, rejection; /* shows there */
    } rows[] = {
        {"nothing", NONE, &plain, 0, 0},
        {"nothing, with penalties", NONE, &counted, 0, 0},
        {"nothing, with an end id", NONE, &ended, 0, 0},
        {"q at another temperature", Q_AT_ANOTHER_TEMPERATURE, &plain, 0, 1},
        {"greedy drafts tested as drawn", GREEDY_DRAFTS, &plain, 0, 1},
        {"kept by p alone", KEPT_BY_P, &plain, 0, 1},
        {"q not subtracted", NOT_SUBTRACTED, &plain, 0, 1},
        {"the rest not normalised", NOT_NORMALISED, &plain, 0, 1},
        {"one number for test and rest", ONE_NUMBER_FOR_BOTH, &plain, 0, 1},
        {"the bonus by the last test's number", BONUS_BY_THE_TEST, &plain, 0, 1},
        {"a draft dropped by its own chance", DROPPED_BY_ITS_OWN_CHANCE, &plain, 0, 1},
        {"looked up, tested with the head's q", LOOKED_UP_FIRST, &plain, 0, 1},
        {"the last draft's noise for the bonus", SAME_NOISE_TWICE, &plain, 1, 0},
        {"the row before", ROW_BEFORE, &plain, 1, 1},
        {"penalties without the drafts", DRAFTS_NOT_COUNTED, &counted, 1, 1},
        {"min_tokens of the block's first row", ENDS_TOO_EARLY, &ended, 1, 1},
    };
    weft_engine *g = NULL;
    weft_error e = {0};
    weft_config c = {.model = hybrid, .threads = 1, .context = 256, .max_requests = 1, .max_depth = DEPTH, .cache_dir = ""};
    if (weft_engine_open(&g, &c, &e) != WEFT_OK) fail_msg("%s", e.text);
    int missed = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_request_desc d = *rows[i].d;
        d.prompt = prompt, d.n_prompt = 1;
        d.allowed = letters, d.n_allowed = LETTERS;
        d.max_tokens = TOKENS;
        law *l = law_make(g, &d);
        for (int reject = 0; reject < 2; reject++) {
            static subject s;
            bool shows = reject ? rows[i].rejection : rows[i].coupled;
            if (rows[i].fault != NONE && !shows) continue; /* it cannot be there, or is none */
            s = (subject){.l = l, .d = d, .reject = reject, .fault = rows[i].fault};
            double z = deviation(&s, rows[i].name);
            missed += shows ? !(z > far) : !(z < limit);
        }
        law_free(l);
    }
    weft_engine_close(g);
    assert_int_equal(missed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(planted_faults_show)};
    if (law_make_models() != 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    law_drop_models();
    return failed;
}

/* fuzz_tuned.c: a table of `weft tune` from a stranger. Whatever is accepted must be one that the choice of depths can work with,
 * and that is written as it was read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tuned.h"

static void require(bool ok) {
    if (!ok) abort();
}

static bool terminated(const char *text, size_t size) {
    return memchr(text, 0, size) != NULL;
}

static void check(const weft_tuned *t) {
    const weft_tuned_key *k = &t->key;
    require(terminated(k->model, sizeof k->model) && terminated(k->processor, sizeof k->processor));
    require(terminated(k->isa, sizeof k->isa) && terminated(k->kv, sizeof k->kv) && terminated(t->version, sizeof t->version));
    require(k->threads >= 1 && t->rounds >= 1 && t->tokens >= 1 && t->date >= 0);
    require(t->pass_ns[1] >= 1 && t->link_ns >= 0 && t->link_ns <= 1e12);
    for (int r = 1; r <= WEFT_TUNED_ROWS; r++) require(t->pass_ns[r] == 0 || (t->pass_ns[r] >= 1 && t->pass_ns[r] <= 1e12));
    for (int d = 0; d < WEFT_LEARNERS; d++)
        for (int i = 0; i < WEFT_MAX_DEPTH; i++)
            require(t->accepted[d].share[i] == 0 || (t->accepted[d].share[i] >= 0.004f && t->accepted[d].share[i] <= 1));
    for (int i = 0; i < WEFT_SURENESS; i++)
        require(t->sureness.share[i] == 0 || (t->sureness.share[i] >= 0.004f && t->sureness.share[i] <= 1));
    require(t->n_depths == WEFT_TUNED_DEPTHS);
    for (int i = 0; i < t->n_depths; i++) {
        const weft_tuned_depth *d = &t->depths[i];
        require(d->depth == (i == WEFT_TUNED_DEPTHS - 1 ? WEFT_DEPTH_AUTO : i));
        require(d->tok_s > 0 && d->least > 0 && d->least <= d->ratio && d->ratio <= d->most);
        require(d->tokens_per_pass >= 1 && d->tokens_per_pass <= WEFT_TUNED_ROWS);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size ? size : 1);
    if (size) memcpy(text, data, size);
    static weft_tuned t, again;
    weft_error e;
    if (weft_tuned_parse(&t, text, size, &e) == WEFT_OK) {
        check(&t);
        struct json_object *o = weft_tuned_json(&t);
        const char *written = json_object_to_json_string(o);
        require(weft_tuned_parse(&again, written, strlen(written), &e) == WEFT_OK);
        check(&again);
        require(again.pass_ns[1] > 0 && (t.pass_ns[1] >= 1e9 || again.pass_ns[1] == t.pass_ns[1])); /* nine digits are written */
        require(again.rounds == t.rounds && again.date == t.date && !memcmp(again.key.source, t.key.source, sizeof t.key.source));
        json_object_put(o);
        weft_costs costs = {0};
        weft_acceptance accepted[WEFT_MODES][WEFT_LEARNERS];
        weft_sureness sureness;
        weft_tuned_start(&t, &costs, accepted, &sureness);
    } else {
        require(e.text[0]);
    }
    free(text);
    return 0;
}

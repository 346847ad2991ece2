/* kept.c: what is kept between starts, in files of this user's: the packed weights of a checkpoint (ops/cpu/packed.h), how often it
 * has said each id (format/usage.h), from which follows what is drafted from, and what `weft tune` measured (tuned.h).
 *
 * All carry the checkpoint's name and fingerprint. Each is a cache: one that is missing, damaged or another's costs time, never a
 * right answer. An engine with the cache folder "" neither reads nor writes any. */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cpus.h"
#include "base/dirs.h"
#include "base/log.h"
#include "engine/engine.h"

/* The folder where files of this kind are kept; empty: they are not. */
static weft_status cache_dir(const weft_engine *g, const char *kind, weft_str *dir, weft_error *e) {
    const char *wish = g->config.cache_dir;
    return (wish ? weft_str_addz(dir, wish) : weft_cache_dir(dir, kind)) ? WEFT_OK : weft_fail_oom(e, "a path");
}

weft_status weft_engine_identify(weft_engine *g, weft_str *packed, weft_error *e) {
    weft_tuned_key *k = &g->tuned_for;
    WEFT_TRY(cache_dir(g, "packed", packed, e));
    if (!packed->n) return WEFT_OK;
    weft_model_dir_name(&g->folders.model, k->model);
    WEFT_TRY(weft_model_dir_fingerprint(&g->folders.model, k->source, e));
    if (!g->folders.draft.path) return WEFT_OK;
    uint8_t draft[16];
    WEFT_TRY(weft_model_dir_fingerprint(&g->folders.draft, draft, e));
    for (int i = 0; i < 16; i++) k->source[i] ^= (uint8_t)(draft[i] + 1); /* not nothing, if both are one folder */
    return WEFT_OK;
}

/* Begins to count what is said. */
static weft_status open_usage(weft_engine *g, weft_error *e) {
    weft_str dir = {0};
    const weft_tuned_key *k = &g->tuned_for;
    weft_status s = cache_dir(g, "drafts", &dir, e);
    if (s == WEFT_OK)
        s = weft_usage_open(&g->usage, dir.n && k->model[0] ? dir.p : NULL, k->model, k->source, g->folders.model.config.vocab_size,
                            e);
    weft_str_free(&dir);
    return s;
}

/* Control tokens, which end answers and turn thinking on and off, at most half of the n; then what the model says. */
static weft_status choose_draft_ids(const weft_engine *g, int32_t *ids, int n, weft_error *e) {
    const weft_model_config *c = &g->folders.model.config;
    const weft_tokenizer *t = g->tokenizer;
    int32_t *control = weft_calloc((size_t)n, sizeof *control);
    int k = 0, size = t ? weft_tokenizer_size(t) : 0, plain = t ? weft_tokenizer_plain_size(t) : 0;
    if (!control) return weft_fail_oom(e, "the ids to draft from");
    for (int i = 0; i < c->n_eos && k < n / 2; i++)
        if (c->eos[i] >= 0 && c->eos[i] < c->vocab_size) control[k++] = c->eos[i];
    for (int32_t id = size < c->vocab_size ? size : c->vocab_size; --id >= 0 && k < n / 2;) /* those behind the plain ones first */
        if (weft_tokenizer_special(t, id) || (id >= plain && weft_tokenizer_valid(t, id))) control[k++] = id;
    weft_status s = weft_usage_choose(&g->usage, control, k, ids, n, e);
    weft_free(control);
    return s;
}

weft_status weft_engine_draft_ids(weft_engine *g, int32_t *ids, int n, weft_error *e) {
    WEFT_TRY(open_usage(g, e));
    return choose_draft_ids(g, ids, n, e);
}

weft_status weft_engine_read_tuned(weft_engine *g, weft_error *e) {
    weft_str dir = {0};
    weft_tuned_key *k = &g->tuned_for;
    weft_cpu_name(k->processor);
    snprintf(k->isa, sizeof k->isa, "%s", g->info.isa);
    snprintf(k->kv, sizeof k->kv, "%s", g->info.kv);
    k->threads = g->info.threads;
    k->precise = g->config.precise;
    k->drafter = g->info.drafts;
    weft_status s = cache_dir(g, "tuned", &dir, e);
    if (s == WEFT_OK && dir.n && !weft_tuned_path(&g->tuned_path, dir.p, k)) s = weft_fail_oom(e, "a path");
    weft_str_free(&dir);
    if (s != WEFT_OK || !g->tuned_path.n || access(g->tuned_path.p, F_OK) != 0) return s;
    weft_tuned *t = weft_calloc(1, sizeof *t);
    if (!t) return weft_fail_oom(e, "the table of weft tune");
    weft_error why = {0};
    s = weft_tuned_read(t, g->tuned_path.p, k, &why);
    if (s == WEFT_OK)
        weft_tuned_start(t, &g->costs, g->accepted, &g->sureness);
    else if (s != WEFT_ENOMEM)
        weft_log(s == WEFT_ESUPPORT ? WEFT_LOG_INFO : WEFT_LOG_WARN,
                 "%s; draft depths begin without it: weft tune --retune measures again", why.text);
    weft_free(t);
    return s == WEFT_ENOMEM ? weft_fail_oom(e, "the table of weft tune") : WEFT_OK;
}

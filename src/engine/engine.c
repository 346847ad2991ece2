/* engine.c: planning, opening, text, requests.
 *
 * The engine opens a checkpoint twice: first on a dry device, which checks every tensor's shape and counts every byte, so that a
 * model or a context that does not fit is refused with the numbers before anything is read; then for good. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/fpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "engine/engine.h"
#include "format/json.h"

#define DEFAULT_CONTEXT 8192
#define DEFAULT_CHUNK 256
#define DEFAULT_DEPTH 4
#define MAX_REQUESTS 256
#define MAX_CHUNK 65536
#define MAX_CONTEXT (1 << 22) /* rotations are exact up to there */

/* ---- planning ------------------------------------------------------------------------------------------------------------ */

static int pages_of(int tokens) {
    return (tokens + WEFT_PAGE_ROWS - 1) / WEFT_PAGE_ROWS;
}

/* The caller's wishes with the defaults filled in, and the plan that follows. */
static weft_status settle(const weft_config *wish, const weft_model_dir *dir, weft_config *c, weft_plan *p, weft_error *e) {
    *c = *wish;
    if (!c->context) c->context = dir->config.max_position < DEFAULT_CONTEXT ? dir->config.max_position : DEFAULT_CONTEXT;
    if (!c->max_requests) c->max_requests = 1;
    if (!c->chunk) c->chunk = DEFAULT_CHUNK;
    if (c->max_depth < 0) c->max_depth = DEFAULT_DEPTH;
    if (c->context < 1 || c->context > MAX_CONTEXT)
        return weft_fail(e, WEFT_EINVAL, "a context of %d tokens is outside 1..%d", c->context, MAX_CONTEXT);
    if (c->max_requests < 1 || c->max_requests > MAX_REQUESTS)
        return weft_fail(e, WEFT_EINVAL, "%d requests at a time is outside 1..%d", c->max_requests, MAX_REQUESTS);
    if (c->chunk < 1 || c->chunk > MAX_CHUNK)
        return weft_fail(e, WEFT_EINVAL, "a prefill chunk of %d rows is outside 1..%d", c->chunk, MAX_CHUNK);
    if (c->max_depth > WEFT_MAX_DEPTH)
        return weft_fail(e, WEFT_EINVAL, "a draft depth of %d is outside 0..%d", c->max_depth, WEFT_MAX_DEPTH);
    if (c->threads < 0) return weft_fail(e, WEFT_EINVAL, "%d threads", c->threads);
    *p = (weft_plan){.max_rows = c->chunk + c->max_requests * (1 + c->max_depth),
                     .max_spans = c->max_requests,
                     .max_draft = c->max_depth,
                     .n_slots = c->max_requests,
                     .n_pages = {pages_of(c->context) + c->max_requests - 1}}; /* each may part-fill one */
    return WEFT_OK;
}

/* Pages of sliding windows for one request; none has more than its own context. */
static int window_pages(const weft_config *c, const weft_model *model) {
    int window = weft_model_window(model), rows = c->chunk > 1 + c->max_depth ? c->chunk : 1 + c->max_depth;
    int most = weft_place_window_pages(window, rows), all = pages_of(c->context);
    return !window ? 0 : most < all ? most : all;
}

/* The model's folder, and the drafter's where there is one. */
static void close_folders(weft_folders *f) {
    weft_model_dir_close(&f->model);
    weft_model_dir_close(&f->draft);
}
static weft_status open_folders(weft_folders *f, const weft_config *config, weft_error *e) {
    *f = (weft_folders){0};
    if (!config->model) return weft_fail(e, WEFT_EINVAL, "no model folder is given");
    weft_status s = weft_model_dir_open(&f->model, config->model, e);
    if (s == WEFT_OK && config->draft) s = weft_model_dir_open(&f->draft, config->draft, e);
    if (s != WEFT_OK) close_folders(f);
    return s;
}

/* Room for rows of shaped logits: of each token that a step chooses, and of each draft. */
typedef struct rooms {
    weft_kept *tokens, *drafts;
} rooms;

/* The model, that room, and room for picks of prompts. draft_ids[n]: what drafts are chosen among, n 0: all ids. */
static weft_status load_model(weft_model **model, rooms *kept, weft_dev *dev, const weft_folders *f, const weft_config *c,
                              const int32_t *draft_ids, int n, weft_error *e) {
    const weft_model_options options = {
        .assistant = f->draft.path ? &f->draft : NULL, .logit_rows = weft_logit_rows(c), .draft_ids = draft_ids, .n_draft_ids = n};
    WEFT_TRY(weft_model_load(model, dev, &f->model, &options, e));
    int vocab = weft_model_vocab(*model), drafts = weft_model_drafts(*model) ? c->max_requests * c->max_depth : 0;
    weft_pick_layer(dev, weft_pick_rows(c), vocab);
    kept->tokens = weft_kept_make(dev, weft_logit_rows(c), vocab);
    kept->drafts = drafts ? weft_kept_make(dev, drafts, vocab) : NULL;
    return kept->tokens && (kept->drafts || !drafts) ? WEFT_OK : weft_fail_oom(e, "shaped logits");
}

/* Ids that a drafter of this vocabulary drafts from; 0: all. */
static int reduced(const weft_config *c, const weft_folders *f, weft_reduction r) {
    return c->max_depth && f->model.config.vocab_size > r.above ? r.ids : 0;
}

/* Completes the plan by what only the model knows. *n_draft_ids: how many ids its drafter has a head of its own for; which they are
 * makes no difference here. */
static weft_status plan_dry(const weft_config *c, weft_plan *p, const weft_folders *folders, weft_reduction reduction,
                            weft_memory *memory, weft_dev_memory *m, int *n_draft_ids, weft_error *e) {
    weft_dev *dev = NULL;
    weft_model *model = NULL;
    rooms kept;
    int n = reduced(c, folders, reduction);
    int32_t *any = weft_calloc((size_t)n, sizeof *any);
    if (!any) return weft_fail_oom(e, "the ids to draft from");
    for (int i = 0; i < n; i++) any[i] = i;
    weft_status s = weft_dev_open(
        &dev, &(weft_dev_config){.threads = c->threads, .isa = c->isa, .kv = c->kv, .precise = c->precise, .dry = true}, e);
    if (s == WEFT_OK) s = load_model(&model, &kept, dev, folders, c, any, n, e);
    if (s == WEFT_OK) (void)weft_model_draft_ids(model, n_draft_ids);
    weft_free(any);
    int each = s == WEFT_OK ? window_pages(c, model) : 0;
    p->n_pages[WEFT_PAGES_WINDOW] = c->max_requests * each;
    if (s == WEFT_OK) s = weft_dev_plan(dev, p, e);
    if (s == WEFT_OK) {
        weft_dev_memory_get(dev, m);
        *memory = (weft_memory){.weights = m->weights,
                                .kv = m->pages,
                                .states = m->slots,
                                .workspace = m->workspace,
                                .total = m->weights + m->pages + m->slots + m->workspace,
                                .kv_per_token = m->page[WEFT_PAGES_ALL] / WEFT_PAGE_ROWS,
                                .kv_window = m->page[WEFT_PAGES_WINDOW] * (uint64_t)each,
                                .state_per_request = m->slot,
                                .available = weft_memory_limit()};
    }
    weft_model_close(model);
    weft_dev_close(dev);
    return s;
}

weft_status weft_plan_memory(const weft_config *config, weft_memory *memory, weft_error *e) {
    weft_folders folders;
    weft_config c;
    weft_plan p;
    WEFT_TRY(open_folders(&folders, config, e));
    weft_status s = settle(config, &folders.model, &c, &p, e);
    weft_dev_memory planned;
    int n;
    if (s == WEFT_OK) s = plan_dry(&c, &p, &folders, WEFT_REDUCTION, memory, &planned, &n, e);
    close_folders(&folders);
    return s;
}

static weft_status refuse_if_short(const weft_config *c, const weft_memory *m, weft_error *e) {
    if (!m->available || m->total <= m->available) return WEFT_OK;
    char total[16], available[16], weights[16], kv[16], states[16];
    return weft_fail(e, WEFT_ENOMEM,
                     "the model needs %s of memory and this machine has %s: weights %s, a context of %d tokens %s, states %s; "
                     "a smaller context or a checkpoint with fewer bits needs less",
                     weft_bytes_text(m->total, total), weft_bytes_text(m->available, available),
                     weft_bytes_text(m->weights, weights), c->context, weft_bytes_text(m->kv, kv),
                     weft_bytes_text(m->states, states));
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

static weft_status open_tokenizer(weft_engine *g, weft_error *e) {
    weft_str path = {0};
    weft_status s = WEFT_OK;
    if (!weft_str_addf(&path, "%s/tokenizer.json", g->folders.model.path))
        s = weft_fail_oom(e, "a path");
    else if (weft_file_exists(path.p))
        s = weft_tokenizer_open(&g->tokenizer, path.p, e);
    weft_str_free(&path);
    /* A model without a chat format can still be given raw prompts. */
    if (s == WEFT_OK && g->tokenizer) weft_chat_open(&g->chat, g->folders.model.path, g->tokenizer, &g->no_chat);
    weft_modes_open(&g->modes, g->tokenizer);
    return s;
}

/* Ids that may be sampled: those of the tokenizer that the model has; without a tokenizer all. */
static weft_status mark_allowed(weft_engine *g, weft_error *e) {
    int n = weft_model_vocab(g->model), some = 0;
    for (int id = 0; id < n; id++) some += g->allowed[id] = !g->tokenizer || weft_tokenizer_valid(g->tokenizer, id);
    if (g->tokenizer && weft_tokenizer_plain_size(g->tokenizer) > n)
        return weft_fail(e, WEFT_EFORMAT, "%s: the tokenizer has %d ids, the model %d: they do not belong together",
                         g->folders.model.path, weft_tokenizer_plain_size(g->tokenizer), n);
    return some ? WEFT_OK : weft_fail(e, WEFT_EFORMAT, "%s: the tokenizer has no token", g->folders.model.path);
}

static weft_status make_tables(weft_engine *g, weft_error *e) {
    const weft_config *c = &g->config;
    size_t requests = (size_t)c->max_requests, vocab = (size_t)weft_model_vocab(g->model);
    size_t picks = (size_t)(weft_logit_rows(c) + weft_pick_rows(c));
    g->requests = weft_calloc(requests, sizeof *g->requests);
    g->drafting = weft_calloc(requests, sizeof *g->drafting);
    g->wishes = weft_calloc(requests, sizeof *g->wishes);
    g->tokens = weft_calloc((size_t)g->plan.max_rows, sizeof *g->tokens);
    g->spans = weft_calloc((size_t)g->plan.max_spans, sizeof *g->spans);
    g->rows = weft_calloc(picks, sizeof *g->rows);
    g->picks = weft_calloc(picks, sizeof *g->picks);
    g->trials = weft_calloc((size_t)weft_logit_rows(c), sizeof *g->trials);
    g->allowed = weft_calloc(vocab, sizeof *g->allowed);
    if (!g->requests || !g->drafting || !g->wishes || !g->tokens || !g->spans || !g->rows || !g->picks || !g->trials || !g->allowed)
        return weft_fail_oom(e, "the engine's tables");
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++)
        WEFT_TRY(weft_index_pool_open(&g->pages[kind], g->plan.n_pages[kind], "the table of KV pages", e));
    return weft_index_pool_open(&g->slots, g->plan.n_slots, "the table of states", e);
}

static weft_status load(weft_engine *g, const weft_dev_memory *planned, int n_draft_ids, weft_error *e) {
    const weft_config *c = &g->config;
    weft_dev_config config = {.threads = c->threads, .isa = c->isa, .kv = c->kv, .precise = c->precise, .planned = planned};
    weft_str dir = {0};
    weft_status s = weft_engine_identify(g, &dir, e);
    if (dir.n) {
        config.cache_dir = dir.p;
        config.cache_label = g->tuned_for.model;
        memcpy(config.cache_key, g->tuned_for.source, sizeof config.cache_key);
    }
    int32_t *ids = weft_calloc((size_t)n_draft_ids, sizeof *ids);
    if (s == WEFT_OK && !ids) s = weft_fail_oom(e, "the ids to draft from");
    if (s == WEFT_OK && n_draft_ids) s = weft_engine_draft_ids(g, ids, n_draft_ids, e);
    if (s == WEFT_OK) s = weft_dev_open(&g->dev, &config, e);
    rooms kept = {0};
    if (s == WEFT_OK) s = load_model(&g->model, &kept, g->dev, &g->folders, c, ids, n_draft_ids, e);
    g->kept = kept.tokens;
    g->kept_drafts = kept.drafts;
    if (s == WEFT_OK) s = weft_dev_plan(g->dev, &g->plan, e);
    weft_free(ids);
    weft_str_free(&dir);
    return s;
}

static weft_status open_engine(weft_engine *g, const weft_config *config, weft_reduction reduction, weft_error *e) {
    weft_dev_memory planned;
    weft_memory memory;
    int n_draft_ids;
    WEFT_TRY(open_folders(&g->folders, config, e));
    WEFT_TRY(settle(config, &g->folders.model, &g->config, &g->plan, e));
    const weft_config *c = &g->config;
    WEFT_TRY(plan_dry(c, &g->plan, &g->folders, reduction, &memory, &planned, &n_draft_ids, e));
    WEFT_TRY(refuse_if_short(c, &memory, e));
    WEFT_TRY(open_tokenizer(g, e));
    WEFT_TRY(load(g, &planned, n_draft_ids, e));
    WEFT_TRY(make_tables(g, e));
    WEFT_TRY(mark_allowed(g, e));
    g->window = weft_model_window(g->model);
    g->info = (weft_info){.isa = weft_dev_isa(g->dev),
                          .kv = weft_dev_kv(g->dev),
                          .threads = weft_dev_threads(g->dev),
                          .vocab = weft_model_vocab(g->model),
                          .context = c->context,
                          .chunk = c->chunk,
                          .max_depth = c->max_depth,
                          .has_mtp = weft_model_has_mtp(g->model),
                          .drafts = weft_model_drafts(g->model),
                          .has_tokenizer = g->tokenizer != NULL};
    weft_log(WEFT_LOG_INFO, "kernels %s%s, %d thread%s, keys and values in %s", g->info.isa, c->precise ? ", precise" : "",
             g->info.threads, g->info.threads == 1 ? "" : "s", g->info.kv);
    if (n_draft_ids) weft_log(WEFT_LOG_INFO, "drafts among %d of %d ids", n_draft_ids, g->info.vocab);
    return weft_engine_read_tuned(g, e);
}

weft_status weft_engine_open_reduced(weft_engine **engine, const weft_config *config, weft_reduction reduction, weft_error *e) {
    weft_engine *g = weft_calloc(1, sizeof *g);
    if (!g) return weft_fail_oom(e, "the engine");
    weft_fpu mode = weft_fpu_enter();
    weft_status s = open_engine(g, config, reduction, e);
    weft_fpu_leave(mode);
    if (s != WEFT_OK) {
        weft_engine_close(g);
        return s;
    }
    g->config.model = g->config.draft = g->config.isa = g->config.kv = g->config.cache_dir = NULL; /* the caller's strings */
    *engine = g;
    return WEFT_OK;
}

weft_status weft_engine_open(weft_engine **engine, const weft_config *config, weft_error *e) {
    return weft_engine_open_reduced(engine, config, WEFT_REDUCTION, e);
}

void weft_engine_close(weft_engine *g) {
    if (!g) return;
    while (g->n_requests) weft_request_close(g->requests[0]);
    weft_usage_close(&g->usage);
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++) weft_index_pool_close(&g->pages[kind]);
    weft_index_pool_close(&g->slots);
    weft_free(g->requests);
    weft_free(g->drafting);
    weft_free(g->wishes);
    weft_free(g->tokens);
    weft_free(g->spans);
    weft_free(g->rows);
    weft_free(g->picks);
    weft_free(g->trials);
    weft_free(g->allowed);
    weft_vec_free(&g->events.list);
    weft_vec_free(&g->events.beside);
    weft_str_free(&g->tuned_path);
    weft_model_close(g->model);
    weft_dev_close(g->dev);
    weft_chat_close(g->chat);
    weft_tokenizer_close(g->tokenizer);
    close_folders(&g->folders);
    weft_free(g);
}

void weft_engine_benchmark(weft_engine *g) {
    weft_str_clear(&g->usage.path);
    g->costs = (weft_costs){0};
    g->sureness = (weft_sureness){0};
    memset(g->accepted, 0, sizeof g->accepted);
}

void weft_engine_info(const weft_engine *g, weft_info *info) {
    *info = g->info;
}
void weft_engine_stats(const weft_engine *g, weft_stats *stats) {
    *stats = g->stats;
}

/* ---- text ---------------------------------------------------------------------------------------------------------------- */

/* prefix: the tokens that the file wants before a plain text come first. */
static weft_status encode(const weft_engine *g, const weft_text_part *parts, size_t n_parts, bool prefix, int32_t **ids,
                          size_t *n_ids, weft_error *e) {
    if (!g->tokenizer)
        return weft_fail(e, WEFT_ESUPPORT, "%s has no tokenizer.json: text cannot be read or written", g->folders.model.path);
    weft_ids out = {0};
    size_t n = 0;
    const int32_t *before = weft_tokenizer_prefix(g->tokenizer, &n);
    weft_status s = WEFT_OK;
    for (size_t i = 0; prefix && i < n && s == WEFT_OK; i++)
        if (!weft_vec_push(&out, before[i])) s = weft_fail_oom(e, "a prompt");
    if (s == WEFT_OK) s = weft_tokenizer_encode(g->tokenizer, parts, n_parts, &out, e);
    if (s != WEFT_OK) {
        weft_vec_free(&out);
        return s;
    }
    *ids = out.v;
    *n_ids = out.n;
    return WEFT_OK;
}

weft_status weft_encode(const weft_engine *g, const char *text, size_t n, bool special, int32_t **ids, size_t *n_ids,
                        weft_error *e) {
    return encode(g, &(weft_text_part){.text = text, .n = n, .special = special}, 1, special, ids, n_ids, e);
}

static weft_status read_chat(const weft_chat_desc *d, weft_chat_request *r, weft_error *e) {
    WEFT_TRY(weft_chat_array(&r->messages, d->messages, strlen(d->messages), "the messages", e));
    if (d->tools) WEFT_TRY(weft_chat_array(&r->tools, d->tools, strlen(d->tools), "the tools", e));
    weft_status s = d->vars ? weft_json_parse(&r->vars, d->vars, strlen(d->vars), e) : WEFT_OK;
    if (s != WEFT_OK) weft_fail_in(e, "the variables");
    return s;
}

weft_status weft_encode_chat(const weft_engine *g, const weft_chat_desc *d, int32_t **ids, size_t *n_ids, weft_error *e) {
    if (g->tokenizer && !g->chat) return weft_fail(e, g->no_chat.code, "%s", g->no_chat.text);
    weft_chat_request r = {.no_generation_prompt = d->no_generation_prompt};
    weft_jinja_output prompt = {0};
    weft_status s = read_chat(d, &r, e);
    if (s == WEFT_OK && g->chat) s = weft_chat_render(g->chat, &r, &prompt, e);
    if (s == WEFT_OK) s = encode(g, prompt.parts.v, prompt.parts.n, false, ids, n_ids, e);
    weft_jinja_output_free(&prompt);
    json_object_put(r.messages);
    json_object_put(r.tools);
    json_object_put(r.vars);
    return s;
}

void weft_ids_free(int32_t *ids) {
    weft_free(ids);
}

/* ---- requests ------------------------------------------------------------------------------------------------------------ */

static weft_status check_desc(const weft_engine *g, const weft_request_desc *d, weft_error *e) {
    if (!weft_model_has_head(g->model))
        return weft_fail(
            e, WEFT_ESUPPORT,
            "this checkpoint has no output head: it turns texts into vectors, which this version does not serve, and cannot "
            "generate");
    if (!d->n_prompt || !d->prompt) return weft_fail(e, WEFT_EINVAL, "the prompt is empty: at least one token is needed");
    if (d->max_tokens < 1) return weft_fail(e, WEFT_EINVAL, "max_tokens is %d; at least 1 is needed", d->max_tokens);
    if (d->n_prompt > (size_t)g->info.context || (size_t)d->max_tokens > (size_t)g->info.context - d->n_prompt)
        return weft_fail(e, WEFT_EINVAL, "a prompt of %zu tokens and max_tokens %d are over the context of %d", d->n_prompt,
                         d->max_tokens, g->info.context);
    if (d->depth != WEFT_DEPTH_AUTO && (d->depth < 0 || d->depth > g->info.max_depth))
        return weft_fail(e, WEFT_EINVAL, "a draft depth of %d is outside 0..%d", d->depth, g->info.max_depth);
    for (size_t i = 0; i < d->n_prompt; i++)
        if (d->prompt[i] < 0 || d->prompt[i] >= g->info.vocab)
            return weft_fail(e, WEFT_EINVAL, "prompt id %d at position %zu is outside the vocabulary of %d", d->prompt[i], i,
                             g->info.vocab);
    if (d->n_stop && !g->tokenizer)
        return weft_fail(e, WEFT_EINVAL, "stop strings need text, and this checkpoint has no tokenizer.json: give stop ids");
    if (g->n_requests == g->config.max_requests)
        return weft_fail(e, WEFT_EBUSY, "all %d places for requests are taken", g->config.max_requests);
    return WEFT_OK;
}

static weft_status fill(weft_request *r, const weft_request_desc *d, weft_error *e) {
    const weft_model_config *c = &r->engine->folders.model.config;
    WEFT_TRY(weft_choosing_open(&r->choosing, d, c->eos, c->n_eos, r->engine->info.vocab, e));
    size_t all = d->n_prompt + (size_t)d->max_tokens;
    if (!weft_vec_reserve(&r->ids, all)) return weft_fail_oom(e, "a request's tokens");
    memcpy(r->ids.v, d->prompt, d->n_prompt * sizeof *d->prompt);
    r->ids.n = r->n_prompt = d->n_prompt;
    r->mode = weft_mode_at(&r->engine->modes, d->prompt, d->n_prompt);
    if (d->drafts) {
        r->drafts = weft_calloc(d->n_drafts + 1, sizeof *r->drafts);
        if (!r->drafts) return weft_fail_oom(e, "a request's drafts");
        memcpy(r->drafts, d->drafts, d->n_drafts * sizeof *r->drafts);
        r->n_drafts = d->n_drafts;
    }
    if (!r->no_lookup) WEFT_TRY(weft_ngrams_open(&r->ngrams, all, e));
    WEFT_TRY(weft_answer_open(r, d, e));
    WEFT_TRY(weft_prompt_logprobs_open(r, d, e));
    weft_draft_begin(r);
    return weft_place_take(r, all, e);
}

weft_status weft_submit(weft_engine *g, const weft_request_desc *d, weft_request **request, weft_error *e) {
    WEFT_TRY(check_desc(g, d, e));
    weft_request *r = weft_calloc(1, sizeof *r);
    if (!r) return weft_fail_oom(e, "a request");
    r->engine = g;
    r->user = d->user;
    r->max_tokens = (size_t)d->max_tokens;
    r->depth = d->depth == WEFT_DEPTH_AUTO && !g->info.max_depth ? 0 : d->depth;
    r->no_lookup = d->no_lookup || d->drafts || !r->depth;
    memcpy(r->accepted, g->accepted, sizeof r->accepted);
    for (int i = 0; i < WEFT_MODES * WEFT_LEARNERS; i++) weft_acceptance_begin(&r->accepted[i / WEFT_LEARNERS][i % WEFT_LEARNERS]);
    r->slot = -1;
    g->requests[g->n_requests++] = r;
    weft_status s = fill(r, d, e);
    if (s != WEFT_OK) {
        weft_request_close(r);
        return s;
    }
    *request = r;
    return WEFT_OK;
}

void weft_request_close(weft_request *r) {
    if (!r) return;
    weft_engine *g = r->engine;
    int i = 0;
    while (g->requests[i] != r) i++;
    for (g->n_requests--; i < g->n_requests; i++) g->requests[i] = g->requests[i + 1];
    weft_place_drop(r);
    weft_vec_free(&r->ids);
    weft_free(r->drafts);
    weft_ngrams_close(&r->ngrams);
    weft_choosing_close(&r->choosing);
    weft_answer_close(&r->answer);
    weft_prompt_logprobs_close(&r->prompt_logprobs);
    weft_free(r);
}

void *weft_request_user(const weft_request *r) {
    return r->user;
}
const int32_t *weft_request_ids(const weft_request *r, size_t *n) {
    *n = r->ids.n - r->answer.held.n;
    return r->ids.v;
}
uint64_t weft_request_seed(const weft_request *r) {
    return r->choosing.sampler.seed;
}
void weft_request_stats(const weft_request *r, weft_stats *stats) {
    *stats = r->stats;
}

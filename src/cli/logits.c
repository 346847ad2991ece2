/* logits.c: `weft logits`: the logits of given ids, for tests and comparisons. */
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/report.h"
#include "format/safetensors.h"
#include "weft.h"

/* The engine makes room for the logits of a token and of its drafts: this depth scores eight rows at a time. */
enum { DEPTH = 7, DRAFTS = 3 };

/* ---- logits -------------------------------------------------------------------------------------------------------------- */

typedef struct result {
    size_t n, vocab;
    float *logits, *mtp; /* [n, vocab], [n - 1, vocab]; mtp NULL: no head */
    float *draft_logits; /* [DRAFTS, vocab]; NULL: no drafter was given */
    int32_t draft_tokens[DRAFTS + 1];
} result;

static weft_status keep_row(void *ctx, size_t position, const float *logits, const float *mtp_logits, weft_error *e) {
    result *r = ctx;
    (void)e;
    memcpy(r->logits + position * r->vocab, logits, r->vocab * sizeof *logits);
    if (mtp_logits) memcpy(r->mtp + (position - 1) * r->vocab, mtp_logits, r->vocab * sizeof *mtp_logits);
    return WEFT_OK;
}

static weft_status compute(weft_engine *g, const weft_cli_ids *ids, bool mtp, bool drafts, result *r, weft_error *e) {
    r->logits = weft_calloc(ids->n, r->vocab * sizeof(float));
    r->mtp = mtp ? weft_calloc(ids->n - 1, r->vocab * sizeof(float)) : NULL;
    r->draft_logits = drafts ? weft_calloc(DRAFTS, r->vocab * sizeof(float)) : NULL;
    if (!r->logits || (mtp && !r->mtp) || (drafts && !r->draft_logits)) return weft_fail_oom(e, "the logits");
    WEFT_TRY(weft_score(g, ids->v, ids->n, keep_row, r, e));
    return drafts ? weft_score_drafts(g, ids->v, ids->n, DRAFTS, r->draft_tokens, r->draft_logits, e) : WEFT_OK;
}

static weft_tensor rows_of(const char *name, const float *v, size_t n, size_t vocab) {
    return (weft_tensor){.name = name,
                         .dtype = WEFT_F32,
                         .rank = 2,
                         .shape = {(int64_t)n, (int64_t)vocab},
                         .data = (const uint8_t *)v,
                         .bytes = n * vocab * sizeof *v};
}

static weft_status score(const weft_config *config, const weft_cli_ids *ids, const char *out, weft_error *e) {
    weft_engine *g = NULL;
    weft_info info;
    result r = {.n = ids->n};
    WEFT_TRY(weft_engine_open(&g, config, e));
    weft_engine_info(g, &info);
    r.vocab = (size_t)info.vocab;
    weft_status s = compute(g, ids, info.has_mtp && ids->n > 1, config->draft != NULL, &r, e);
    if (s == WEFT_OK) {
        weft_tensor tensors[4];
        size_t n = 0;
        tensors[n++] = rows_of("logits", r.logits, r.n, r.vocab);
        if (r.mtp) tensors[n++] = rows_of("mtp_logits_d1", r.mtp, r.n - 1, r.vocab);
        if (r.draft_logits) {
            tensors[n++] = (weft_tensor){.name = "draft_tokens",
                                         .dtype = WEFT_I32,
                                         .rank = 1,
                                         .shape = {DRAFTS + 1},
                                         .data = (const uint8_t *)r.draft_tokens,
                                         .bytes = sizeof r.draft_tokens};
            tensors[n++] = rows_of("draft_logits", r.draft_logits, DRAFTS, r.vocab);
        }
        s = weft_safetensors_write(out, tensors, n, NULL, e);
    }
    weft_free(r.logits);
    weft_free(r.mtp);
    weft_free(r.draft_logits);
    weft_engine_close(g);
    return s;
}

int weft_cmd_logits(int argc, char **argv) {
    const char *ids_path = NULL, *out = NULL, *draft = NULL, *isa = NULL, *kv = NULL, *cache = NULL;
    int64_t chunk = 0, threads = 0;
    bool precise = false;
    const weft_option options[] = {
        WEFT_TEXT("ids", "FILE", &ids_path, NULL, NULL,
                  "The ids: numbers between blanks, or a safetensors file with a tensor 'input_ids' (I32 or I64)."),
        WEFT_TEXT("out", "FILE", &out, NULL, NULL,
                  "Where the result goes: a safetensors file with 'logits' [T, V] and, where the model has an MTP head, "
                  "'mtp_logits_d1' [T-1, V], both float32; with --draft also 'draft_tokens' and 'draft_logits'."),
        WEFT_DRAFT_OPTION(&draft),
        WEFT_INTEGER("chunk", "N", &chunk, 0, 65536, "0: 256", "Rows in a step. The result does not depend on it."),
        WEFT_INTEGER("threads", "N", &threads, 0, 256, "0: all processors", "Worker threads. The result does not depend on it."),
        WEFT_KV_OPTION(&kv),
        WEFT_PRECISE_OPTION(&precise),
        WEFT_ISA_OPTION(&isa),
        WEFT_CACHE_OPTION(&cache),
        WEFT_END,
    };
    const weft_command command = {
        .name = "logits",
        .positional = "MODEL",
        .least = 1,
        .most = 1,
        .summary =
            "Writes the logits that a model gives for a list of token ids, position by position. Row i of mtp_logits_d1 is the MTP "
            "head's first draft from the hidden row of position i and the id at i + 1; it predicts the id at i + 2. draft_tokens "
            "are "
            "the likeliest id after all of them and three drafts that follow it, draft_logits [3, V] what those come from.",
        .options = options,
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    if (!ids_path || !out) {
        weft_cli_fail("logits needs --ids FILE and --out FILE; see weft logits --help");
        return WEFT_EXIT_USAGE;
    }
    weft_error e = {0};
    weft_cli_ids ids = {0};
    weft_status s = weft_cli_check_out(out, &e);
    if (s == WEFT_OK) s = weft_cli_read_ids(&ids, ids_path, &e);
    if (s == WEFT_OK) {
        weft_config config = {.model = argv[0],
                              .draft = draft,
                              .threads = (int)threads,
                              .isa = isa,
                              .kv = kv,
                              .precise = precise,
                              .chunk = (int)chunk,
                              .max_depth = DEPTH,
                              .cache_dir = weft_cli_cache(cache)};
        if (ids.n < INT32_MAX - 1 - DRAFTS) config.context = (int)ids.n + 1 + (draft ? DRAFTS : 0);
        s = score(&config, &ids, out, &e);
    }
    weft_vec_free(&ids);
    return s == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail("%s", e.text);
}

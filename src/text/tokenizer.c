/* tokenizer.c: encoding.
 *
 * Encoding goes as in the reference library:
 *   1. added tokens are found in the text as it is, the longest at the leftmost place;
 *   2. each stretch between them is normalised on its own, and added tokens with "normalized" are found in the result;
 *   3. in what is left, spaces may become visible marks; then it is cut into pieces, and the pieces are merged.
 * A stretch is a text of its own for normalisation and for the expressions' lookahead.
 *
 * Pieces are bytes or characters. Where they are bytes, every one has a token. Where they are characters, one that has no token
 * becomes its bytes' tokens, <0xE4>, and is unknown if these are missing. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

#define TEXT_LONGEST ((size_t)1 << 30)

void weft_tokenizer_close(weft_tokenizer *t) {
    if (!t) return;
    weft_vocab_free(&t->vocab);
    weft_vec_free(&t->raw);
    weft_vec_free(&t->normal);
    weft_split_free(&t->split);
    weft_bpe_free(&t->bpe);
    weft_vec_free(&t->prefix);
    weft_arena_free(&t->text);
    weft_free(t);
}

const int32_t *weft_tokenizer_prefix(const weft_tokenizer *t, size_t *n) {
    *n = t->prefix.n;
    return t->prefix.v;
}

int32_t weft_tokenizer_find(const weft_tokenizer *t, const char *text) {
    size_t n = strlen(text);
    const weft_added *lists[2] = {&t->raw, &t->normal};
    for (int k = 0; n > 0 && k < 2; k++) {
        const weft_added_token *found = weft_added_at(lists[k], text, n, n);
        if (found && found->n == n) return found->id;
    }
    int32_t found = weft_vocab_find(&t->vocab, text, n);
    for (int32_t id = 0; found < 0 && !t->byte_level && id < t->vocab.size; id++) { /* its name may be another */
        const weft_token *token = &t->vocab.token[id];
        if (n > 0 && token->kind != WEFT_TOKEN_NONE && token->n == n && memcmp(token->bytes, text, n) == 0) found = id;
    }
    return found;
}

int32_t weft_tokenizer_size(const weft_tokenizer *t) {
    return t->vocab.size;
}

int32_t weft_tokenizer_plain_size(const weft_tokenizer *t) {
    return t->plain_size;
}

bool weft_tokenizer_valid(const weft_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab.size && t->vocab.token[id].kind != WEFT_TOKEN_NONE;
}

bool weft_tokenizer_special(const weft_tokenizer *t, int32_t id) {
    return weft_tokenizer_valid(t, id) && t->vocab.token[id].kind == WEFT_TOKEN_SPECIAL;
}

const char *weft_tokenizer_bytes(const weft_tokenizer *t, int32_t id, size_t *n) {
    *n = 0;
    if (!weft_tokenizer_valid(t, id)) return NULL;
    *n = t->vocab.token[id].n;
    return t->vocab.token[id].bytes;
}

/* ---- encoding ------------------------------------------------------------------------------------------------------------ */

struct encoder {
    const weft_tokenizer *t;
    weft_normal_work clean;  /* the stretch at work, repaired and normalised */
    weft_normal_work marked; /* a part of it, its spaces as marks */
    weft_bpe_work merges;
    weft_ids *out;
};

static weft_status oom(weft_error *e) {
    return weft_fail_oom(e, "encoding text");
}

/* The tokens of s[0..n), one character without a token; false when memory is short. As in the reference library, bytes do not end a
 * run of unknown characters; *unknown says whether one is waiting for its end. */
static bool add_bytes(struct encoder *c, const char *s, size_t n, bool *unknown) {
    const int32_t *byte = c->t->byte;
    weft_ids *row = &c->merges.row;
    bool all = true;
    for (size_t k = 0; k < n; k++) all &= byte[(uint8_t)s[k]] >= 0;
    for (size_t k = 0; all && k < n; k++)
        if (!weft_vec_push(row, byte[(uint8_t)s[k]])) return false;
    if (all || c->t->unknown < 0) return true;
    if (*unknown && !c->t->fuse_unknown && !weft_vec_push(row, c->t->unknown)) return false;
    *unknown = true;
    return true;
}

static bool add_characters(struct encoder *c, const char *s, size_t n) {
    weft_ids *row = &c->merges.row;
    bool unknown = false;
    for (size_t at = 0, len; at < n; at += len) {
        int32_t cp;
        len = weft_utf8_next(s + at, n - at, &cp);
        int32_t id = weft_vocab_find(&c->t->vocab, s + at, len);
        if (id >= 0) {
            if (unknown && !weft_vec_push(row, c->t->unknown)) return false;
            unknown = false;
            if (!weft_vec_push(row, id)) return false;
        } else if (!add_bytes(c, s + at, len, &unknown)) {
            return false;
        }
    }
    return !unknown || weft_vec_push(row, c->t->unknown);
}

static weft_status encode_piece(void *ctx, const char *piece, size_t n, weft_error *e) {
    struct encoder *c = ctx;
    weft_ids *row = &c->merges.row;
    if (c->t->ignore_merges) {
        int32_t id = weft_vocab_find(&c->t->vocab, piece, n);
        if (id >= 0) return weft_vec_push(c->out, id) ? WEFT_OK : oom(e);
    }
    if (n > WEFT_BPE_LONGEST) return weft_fail(e, WEFT_EINVAL, "more than %zu bytes of text in one piece", WEFT_BPE_LONGEST);
    row->n = 0;
    if (c->t->byte_level) {
        if (!weft_vec_reserve(row, n)) return oom(e);
        for (size_t i = 0; i < n; i++) row->v[row->n++] = c->t->byte[(uint8_t)piece[i]];
    } else if (!add_characters(c, piece, n)) {
        return oom(e);
    }
    return weft_bpe_merge(&c->t->bpe, &c->merges, c->out) ? WEFT_OK : oom(e);
}

/* A part of a stretch, without added tokens. first: the text begins with it. */
static weft_status encode_part(struct encoder *c, const char *s, size_t n, bool first, weft_error *e) {
    const weft_space_mark *mark = &c->t->mark;
    if (n == 0 || mark->replace.n == 0) return weft_split_run(&c->t->split, s, n, encode_piece, c, e);
    const weft_normal_step *step = &mark->replace.step[0];
    const weft_str *text = &c->marked.text;
    if (!weft_normalize(&mark->replace, &c->marked, s, n)) return oom(e);
    bool there = text->n >= step->n_to && memcmp(text->p, step->to, step->n_to) == 0;
    if (!there && (mark->prepend == WEFT_MARK_ALWAYS || (mark->prepend == WEFT_MARK_FIRST && first))) {
        weft_str_clear(&c->marked.spare);
        if (!weft_str_add(&c->marked.spare, step->to, step->n_to) || !weft_str_add(&c->marked.spare, text->p, text->n))
            return oom(e);
        text = &c->marked.spare;
    }
    return weft_split_run(&c->t->split, text->p, text->n, encode_piece, c, e);
}

/* A stretch between added tokens. first: the text begins with it. */
static weft_status encode_stretch(struct encoder *c, const char *s, size_t n, bool first, weft_error *e) {
    if (n == 0) return WEFT_OK;
    if (!weft_normalize(&c->t->normalizer, &c->clean, s, n)) return oom(e);
    const char *text = weft_str_z(&c->clean.text);
    weft_added_scan scan = {.list = &c->t->normal, .s = text, .n = c->clean.text.n};
    for (;;) {
        size_t from, to;
        int32_t id = weft_added_next(&scan, &from, &to);
        WEFT_TRY(encode_part(c, text + from, to - from, first && from == 0, e));
        if (id < 0) return WEFT_OK;
        if (!weft_vec_push(c->out, id)) return oom(e);
    }
}

/* text[0..n) is the parts one after the other. */
static weft_status encode_text(struct encoder *c, const weft_text_part *parts, const char *text, size_t n, weft_error *e) {
    weft_added_scan scan = {.list = &c->t->raw, .s = text, .n = n, .parts = parts};
    for (;;) {
        size_t from, to;
        int32_t id = weft_added_next(&scan, &from, &to);
        WEFT_TRY(encode_stretch(c, text + from, to - from, from == 0, e));
        if (id < 0) return WEFT_OK;
        if (!weft_vec_push(c->out, id)) return oom(e);
    }
}

weft_status weft_tokenizer_encode(const weft_tokenizer *t, const weft_text_part *parts, size_t n_parts, weft_ids *out,
                                  weft_error *e) {
    size_t n = 0, before = out->n;
    for (size_t k = 0; k < n_parts; k++) {
        if (parts[k].n > TEXT_LONGEST - n) return weft_fail(e, WEFT_EINVAL, "a text of more than %zu bytes", TEXT_LONGEST);
        n += parts[k].n;
    }
    struct encoder c = {.t = t, .out = out};
    weft_str whole = {0};
    const char *text = n_parts == 1 && n ? parts[0].text : "";
    bool ok = true;
    if (n_parts > 1) {
        ok = weft_str_reserve(&whole, n);
        for (size_t k = 0; ok && k < n_parts; k++) weft_str_add(&whole, parts[k].text, parts[k].n);
        text = whole.p;
    }
    weft_status status = ok ? encode_text(&c, parts, text, n, e) : oom(e);
    if (status != WEFT_OK) out->n = before;
    weft_str_free(&whole);
    weft_normal_work_free(&c.clean);
    weft_normal_work_free(&c.marked);
    weft_bpe_work_free(&c.merges);
    return status;
}

/* tokenizer.c: encoding and decoding.
 *
 * Encoding goes as in the reference library:
 *   1. added tokens are found in the text as it is, the longest at the leftmost place;
 *   2. each stretch between them is normalised on its own, and added tokens with "normalized" are found in the result;
 *   3. what is left is cut into pieces, and the pieces are merged.
 * A stretch is a text of its own for normalisation and for the expressions' lookahead. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "text/normalize.h"
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
    return weft_vocab_find(&t->vocab, text, n);
}

int32_t weft_tokenizer_size(const weft_tokenizer *t) {
    return t->vocab.size;
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
    weft_str clean; /* the stretch at work, repaired and normalised */
    weft_codepoints marks;
    weft_bpe_work merges;
    weft_ids *out;
};

static weft_status oom(weft_error *e) {
    return weft_fail_oom(e, "encoding text");
}

static weft_status encode_piece(void *ctx, const char *piece, size_t n, weft_error *e) {
    struct encoder *c = ctx;
    if (c->t->ignore_merges) {
        int32_t id = weft_vocab_find(&c->t->vocab, piece, n);
        if (id >= 0) return weft_vec_push(c->out, id) ? WEFT_OK : oom(e);
    }
    return weft_bpe_encode(&c->t->bpe, &c->merges, piece, n, c->out) ? WEFT_OK : oom(e);
}

/* A stretch between added tokens. */
static weft_status encode_stretch(struct encoder *c, const char *s, size_t n, weft_error *e) {
    if (n == 0) return WEFT_OK;
    weft_str_clear(&c->clean);
    bool ok = c->t->nfc ? weft_nfc(&c->clean, s, n, &c->marks) : weft_utf8_add(&c->clean, s, n);
    if (!ok) return oom(e);
    const char *text = c->clean.p;
    size_t from = 0;
    for (size_t at = 0; c->t->normal.n && at < c->clean.n;) {
        const weft_added_token *found = weft_added_at(&c->t->normal, text + at, c->clean.n - at, 0);
        if (!found) {
            at++;
            continue;
        }
        WEFT_TRY(weft_split_run(&c->t->split, text + from, at - from, encode_piece, c, e));
        if (!weft_vec_push(c->out, found->id)) return oom(e);
        from = at += found->n;
    }
    return weft_split_run(&c->t->split, text + from, c->clean.n - from, encode_piece, c, e);
}

/* text[0..n) is the parts one after the other. */
static weft_status encode_text(struct encoder *c, const weft_text_part *parts, const char *text, size_t n, weft_error *e) {
    size_t from = 0;
    size_t part = 0, part_end = 0; /* parts[0..part) end at part_end ... */
    bool special = false;          /* ... all those around the current place being of this kind */
    for (size_t at = 0; at < n;) {
        while (at >= part_end) {
            for (special = parts[part].special; part_end < n && parts[part].special == special; part++) part_end += parts[part].n;
        }
        const weft_added_token *found = weft_added_at(&c->t->raw, text + at, n - at, special ? part_end - at : 0);
        if (!found) {
            at++;
            continue;
        }
        WEFT_TRY(encode_stretch(c, text + from, at - from, e));
        if (!weft_vec_push(c->out, found->id)) return oom(e);
        from = at += found->n;
    }
    return encode_stretch(c, text + from, n - from, e);
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
    weft_str_free(&c.clean);
    weft_vec_free(&c.marks);
    weft_bpe_work_free(&c.merges);
    return status;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------ */

static const char replacement[] = "\xEF\xBF\xBD";

weft_status weft_decoder_add(weft_decoder *d, const weft_tokenizer *t, int32_t id, weft_str *out, weft_error *e) {
    size_t n;
    const char *bytes = weft_tokenizer_bytes(t, id, &n);
    if (!bytes) return weft_fail(e, WEFT_EINVAL, "%d is not the id of a token", (int)id);
    if (!d->with_special && weft_tokenizer_special(t, id)) return WEFT_OK;
    if (!weft_str_reserve(out, 3 * (n + d->n))) return weft_fail_oom(e, "decoding"); /* every byte could become U+FFFD */
    size_t at = 0;
    while (at < n) {
        char joined[4];
        const char *from = bytes + at;
        size_t room = n - at;
        if (d->n) { /* finish the character held back; its bytes are a good beginning, so a step covers them all */
            memcpy(joined, d->held, d->n);
            if (room > 4u - d->n) room = 4u - d->n;
            memcpy(joined + d->n, from, room);
            from = joined;
            room += d->n;
        }
        int32_t cp;
        size_t step = weft_utf8_next(from, room, &cp);
        at += step - d->n;
        if (cp == WEFT_UTF8_CUT) {
            memmove(d->held, from, step);
            d->n = (uint8_t)step;
            break;
        }
        weft_str_add(out, cp < 0 ? replacement : from, cp < 0 ? 3 : step);
        d->n = 0;
    }
    return WEFT_OK;
}

weft_status weft_decoder_end(weft_decoder *d, weft_str *out, weft_error *e) {
    if (d->n && !weft_str_addz(out, replacement)) return weft_fail_oom(e, "decoding");
    d->n = 0;
    return WEFT_OK;
}

weft_status weft_tokenizer_decode(const weft_tokenizer *t, const int32_t *ids, size_t n, bool with_special, weft_str *out,
                                  weft_error *e) {
    size_t before = out->n;
    weft_decoder d = {.with_special = with_special};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK; i++) status = weft_decoder_add(&d, t, ids[i], out, e);
    if (status == WEFT_OK) status = weft_decoder_end(&d, out, e);
    if (status != WEFT_OK) {
        out->n = before;
        if (out->p) out->p[before] = 0;
    }
    return status;
}

/* decode.c: token ids to text, at once or one by one. */
#include <string.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

static const char replacement[] = "\xEF\xBF\xBD";

/* Appends one character, or the replacement of what is none (cp < 0). The first blanks of a text may be left out. */
static void add_character(weft_decoder *d, const weft_decoding *how, const char *s, size_t n, int32_t cp, weft_str *out) {
    if (d->stripped < how->strip_most && cp == (uint8_t)how->strip) {
        d->stripped++;
        return;
    }
    d->stripped = how->strip_most;
    weft_str_add(out, cp < 0 ? replacement : s, cp < 0 ? 3 : n);
}

/* Appends the characters that the next bytes complete; there is room. */
static void add_bytes(weft_decoder *d, const weft_decoding *how, const char *bytes, size_t n, weft_str *out) {
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
        d->n = 0;
        add_character(d, how, from, step, cp, out);
    }
}

/* The name of the first token without its marks. */
static void add_unmarked(weft_decoder *d, const weft_decoding *how, const weft_token *token, weft_str *out) {
    for (size_t at = 0; at < token->n_name;) {
        const char *s = token->name + at;
        if (token->n_name - at >= how->n_mark && memcmp(s, how->mark, how->n_mark) == 0) {
            at += how->n_mark;
            continue;
        }
        add_bytes(d, how, s, 1, out);
        at++;
    }
}

weft_status weft_decoder_add(weft_decoder *d, const weft_tokenizer *t, int32_t id, weft_str *out, weft_error *e) {
    if (!weft_tokenizer_valid(t, id)) return weft_fail(e, WEFT_EINVAL, "%d is not the id of a token", (int)id);
    if (!d->with_special && weft_tokenizer_special(t, id)) return WEFT_OK;
    const weft_token *token = &t->vocab.token[id];
    bool unmarked = t->decoding.unmarked_start && !d->begun && token->kind != WEFT_TOKEN_BYTE;
    size_t n = unmarked ? token->n_name : token->n;
    if (!weft_str_reserve(out, 3 * (n + d->n))) return weft_fail_oom(e, "decoding"); /* every byte could become U+FFFD */
    d->begun = true;
    if (unmarked)
        add_unmarked(d, &t->decoding, token, out);
    else
        add_bytes(d, &t->decoding, token->bytes, token->n, out);
    return WEFT_OK;
}

weft_status weft_decoder_end(weft_decoder *d, weft_str *out, weft_error *e) {
    if (d->n && !weft_str_addz(out, replacement)) return weft_fail_oom(e, "decoding");
    d->n = d->stripped = 0;
    d->begun = false;
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

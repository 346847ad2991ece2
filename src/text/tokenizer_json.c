/* tokenizer_json.c: reading a tokenizer.json.
 *
 * Everything in it that changes ids is either done or refused by name. Pieces are bytes if the pre_tokenizer has a ByteLevel step,
 * else characters. Where they are bytes, some things are passed over on purpose: `decoder`, as decoding follows from the byte-level
 * alphabet (files exist whose decoder contradicts their pre-tokenizer, and engines that believed it printed U+0120 for every
 * space), `unk_token` and `byte_fallback`, as every byte must have a token. `truncation` and `padding`, which shape training
 * batches, never count. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "format/json.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

#define FILE_LARGEST ((size_t)256 << 20) /* the largest in use has 35 MB */
#define LIST_LONGEST ((size_t)1 << 24)   /* merges, added tokens */

/* The expression of a ByteLevel pre-tokenizer with use_regex: GPT-2's. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static weft_status oom(weft_error *e) {
    return weft_fail_oom(e, "reading a tokenizer");
}

/* ---- the byte-level alphabet --------------------------------------------------------------------------------------------- */

/* GPT-2 writes every byte as a printable character: 21-7E, A1-AC and AE-FF (hexadecimal) as the character of that number, the
 * other 68, in ascending order, as U+0100 and on. Fills byte[] by character, -1 for those that stand for none. */
#define ALPHABET_END 0x144
static void alphabet(int16_t byte[ALPHABET_END]) {
    int other = 0x100;
    for (int c = 0; c < ALPHABET_END; c++) byte[c] = -1;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        byte[itself ? b : other++] = (int16_t)b;
    }
}

/* Writes the bytes that s stands for; false if it has characters outside of the alphabet. out: n bytes suffice. */
static bool to_bytes(const int16_t byte[ALPHABET_END], const char *s, size_t n, char *out, size_t *n_out) {
    *n_out = 0;
    for (size_t at = 0; at < n;) {
        int32_t cp;
        at += weft_utf8_next(s + at, n - at, &cp);
        if (cp < 0 || cp >= ALPHABET_END || byte[cp] < 0) return false;
        out[(*n_out)++] = (char)byte[cp];
    }
    return true;
}

/* ---- fields -------------------------------------------------------------------------------------------------------------- */

struct reader {
    weft_tokenizer *t;
    int16_t byte[ALPHABET_END];
    int pre_steps;           /* pre_tokenizer: steps so far, */
    bool metaspace;          /* Metaspace among them, */
    bool byte_level;         /* or ByteLevel, which comes last, as it turns pieces into the alphabet */
    bool byte_tokens, fused; /* decoder: <0xE4> is a byte; tokens have become one text */
    bool byte_fallback;
    const char *unk_token;
    weft_str text; /* scratch */
    weft_normal_work normal;
    weft_error *e;
};

static weft_status need_text(weft_json_at at, const char *key, const char **out, weft_error *e) {
    WEFT_TRY(weft_json_need(at, key, e));
    return weft_json_text(at, key, out, e);
}

static weft_status need_list(weft_json_at at, const char *key, struct json_object **out, weft_error *e) {
    WEFT_TRY(weft_json_need(at, key, e));
    return weft_json_array(at, key, LIST_LONGEST, out, e);
}

static weft_status unknown(const char *what, const char *name, weft_error *e) {
    return weft_fail(e, WEFT_ESUPPORT, "the %s '%s' is not one this version knows", what, name);
}

/* A text of at most WEFT_NORMAL_LONGEST bytes. */
static weft_status short_text(weft_json_at at, const char *key, char out[WEFT_NORMAL_LONGEST], size_t *n, weft_error *e) {
    const char *text;
    WEFT_TRY(need_text(at, key, &text, e));
    *n = strlen(text);
    if (*n > WEFT_NORMAL_LONGEST)
        return weft_fail(e, WEFT_ESUPPORT, "'%s%s' has more than %d bytes", at.path, key, WEFT_NORMAL_LONGEST);
    memcpy(out, text, *n);
    return WEFT_OK;
}

/* {"String": ".."} or {"Regex": ".."} */
static weft_status read_pattern(weft_json_at at, weft_json_at *pattern, bool *regex, weft_error *e) {
    WEFT_TRY(weft_json_need(at, "pattern", e));
    WEFT_TRY(weft_json_object(at, "pattern", &pattern->object, e));
    *regex = weft_json_get(*pattern, "Regex");
    return WEFT_OK;
}

/* Every occurrence of a text by another. */
static weft_status read_replace(struct reader *r, weft_json_at at, const char *pattern_path, weft_normalizer *out) {
    weft_json_at pattern = {NULL, pattern_path};
    weft_normal_step step = {.kind = WEFT_NORMAL_REPLACE};
    bool regex;
    WEFT_TRY(read_pattern(at, &pattern, &regex, r->e));
    if (regex) return unknown("pattern of a Replace step", "Regex", r->e);
    WEFT_TRY(short_text(pattern, "String", step.from, &step.n_from, r->e));
    WEFT_TRY(short_text(at, "content", step.to, &step.n_to, r->e));
    return weft_normalizer_add(out, &step, r->e);
}

/* What a Metaspace step, of the pre_tokenizer or the decoder, says. */
struct metaspace {
    weft_normal_step mark; /* " " by the mark */
    int prepend;           /* WEFT_MARK_.. */
};

static weft_status read_metaspace(struct reader *r, weft_json_at at, struct metaspace *out) {
    const char *scheme = "always";
    bool prefix = true;
    int32_t c;
    *out = (struct metaspace){.mark = {.kind = WEFT_NORMAL_REPLACE, .from = " ", .n_from = 1}};
    WEFT_TRY(short_text(at, "replacement", out->mark.to, &out->mark.n_to, r->e));
    if (out->mark.n_to == 0 || weft_utf8_next(out->mark.to, out->mark.n_to, &c) != out->mark.n_to)
        return weft_fail(r->e, WEFT_EFORMAT, "'%sreplacement' is not one character", at.path);
    WEFT_TRY(weft_json_text(at, "prepend_scheme", &scheme, r->e));
    WEFT_TRY(weft_json_bool(at, "add_prefix_space", &prefix, r->e));
    out->prepend = strcmp(scheme, "always") == 0  ? WEFT_MARK_ALWAYS
                   : strcmp(scheme, "first") == 0 ? WEFT_MARK_FIRST
                                                  : WEFT_MARK_NEVER;
    if (out->prepend == WEFT_MARK_NEVER && strcmp(scheme, "never") != 0) return unknown("prepend_scheme", scheme, r->e);
    if (!prefix && out->prepend != WEFT_MARK_NEVER)
        return weft_fail(r->e, WEFT_EFORMAT, "'%sadd_prefix_space' contradicts 'prepend_scheme'", at.path);
    return WEFT_OK;
}

/* Refuses an option that is on. */
static weft_status must_be_off(weft_json_at at, const char *key, bool absent, weft_error *e) {
    bool on = absent;
    WEFT_TRY(weft_json_bool(at, key, &on, e));
    return on ? weft_fail(e, WEFT_ESUPPORT, "'%s%s' is on, which this version does not do", at.path, key) : WEFT_OK;
}

static weft_status id_value(struct json_object *v, weft_json_at at, const char *key, int32_t *id, weft_error *e) {
    int64_t n;
    WEFT_TRY(weft_json_int_value(v, at, key, 0, WEFT_VOCAB_MOST - 1, &n, e));
    *id = (int32_t)n;
    return WEFT_OK;
}

/* An item of a list of objects. */
static weft_status item(struct json_object *list, size_t k, weft_json_at *out, weft_error *e) {
    out->object = json_object_array_get_idx(list, k);
    if (json_object_is_type(out->object, json_type_object)) return WEFT_OK;
    return weft_fail(e, WEFT_EFORMAT, "'%s' has something that is not an object, at %zu", out->path, k);
}

/* ---- tokens -------------------------------------------------------------------------------------------------------------- */

/* The highest id of the file, before anything of that size is allocated. */
static weft_status highest_id(struct json_object *vocab, struct json_object *added, int32_t *highest, weft_error *e) {
    const weft_json_at vocab_at = {vocab, "model.vocab."};
    int32_t id;
    *highest = -1;
    json_object_object_foreach(vocab, key, value) {
        WEFT_TRY(id_value(value, vocab_at, key, &id, e));
        if (id > *highest) *highest = id;
    }
    for (size_t k = 0; added && k < json_object_array_length(added); k++) {
        weft_json_at at = {NULL, "added_tokens."};
        WEFT_TRY(item(added, k, &at, e));
        WEFT_TRY(id_value(weft_json_get(at, "id"), at, "id", &id, e));
        if (id > *highest) *highest = id;
    }
    return WEFT_OK;
}

/* What a token of the file is called in the vocabulary: in the byte-level alphabet its bytes, else itself. False if it has
 * characters outside of the alphabet. out: n bytes suffice. */
static bool to_name(const struct reader *r, const char *s, size_t n, char *out, size_t *n_out) {
    if (r->byte_level) return to_bytes(r->byte, s, n, out, n_out);
    memcpy(out, s, n);
    *n_out = n;
    return true;
}

/* model.vocab. A token with characters outside of the alphabet can be decoded (as itself), but no text becomes it by merging. */
static weft_status read_vocab(struct reader *r, struct json_object *vocab) {
    weft_vocab *v = &r->t->vocab;
    json_object_object_foreach(vocab, key, value) {
        int32_t id;
        WEFT_TRY(id_value(value, (weft_json_at){vocab, "model.vocab."}, key, &id, r->e));
        weft_token *token = &v->token[id];
        if (token->kind != WEFT_TOKEN_NONE) return weft_fail(r->e, WEFT_EFORMAT, "'model.vocab' has the id %d twice", (int)id);
        size_t n = strlen(key), n_name;
        char *name = weft_arena_str(&r->t->text, key, n);
        if (!name) return oom(r->e);
        bool mergeable = to_name(r, key, n, name, &n_name);
        if (!mergeable) memcpy(name, key, n_name = n);
        *token = (weft_token){name, name, (uint32_t)n_name, (uint32_t)n_name, WEFT_TOKEN_PLAIN};
        if (id >= r->t->plain_size) r->t->plain_size = id + 1;
        if (mergeable && n_name > 0) weft_vocab_enter(v, id);
    }
    return WEFT_OK;
}

static weft_status read_bytes(struct reader *r) {
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        r->t->byte[b] = weft_vocab_find(&r->t->vocab, &c, 1);
        if (r->t->byte[b] < 0)
            return weft_fail(r->e, WEFT_ESUPPORT, "the byte %02X has no token: text could get lost", (unsigned)b);
    }
    return WEFT_OK;
}

/* Where pieces are characters: the tokens of bytes, and that no character can get lost. */
static weft_status read_fallback(struct reader *r) {
    weft_tokenizer *t = r->t;
    bool complete = true;
    for (int b = 0; b < 256; b++) {
        char c = (char)b, name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        t->byte[b] = r->byte_fallback ? weft_vocab_find(&t->vocab, name, 6) : -1;
        bool occurs = b < 0x80 ? weft_vocab_find(&t->vocab, &c, 1) < 0 : b != 0xC0 && b != 0xC1 && b <= 0xF4;
        if (occurs && t->byte[b] < 0) complete = false;
    }
    t->unknown = r->unk_token ? weft_vocab_find(&t->vocab, r->unk_token, strlen(r->unk_token)) : -1;
    if (complete || t->unknown >= 0) return WEFT_OK;
    if (r->unk_token) return weft_fail(r->e, WEFT_EFORMAT, "'model.unk_token' is '%.60s', which is not a token", r->unk_token);
    return weft_fail(
        r->e, WEFT_ESUPPORT,
        "characters outside of the vocabulary have no tokens of bytes (byte_fallback) and no unk_token: text could get "
        "lost. If the vocabulary is of bytes, the pre_tokenizer lacks its ByteLevel step");
}

/* The two sides of a merge: ["a", "b"], or "a b" in older files. */
static bool merge_sides(struct json_object *merge, const char *side[2], size_t n[2]) {
    if (json_object_is_type(merge, json_type_array) && json_object_array_length(merge) == 2) {
        for (size_t k = 0; k < 2; k++) {
            struct json_object *s = json_object_array_get_idx(merge, k);
            if (!json_object_is_type(s, json_type_string)) return false;
            side[k] = json_object_get_string(s);
            n[k] = (size_t)json_object_get_string_len(s);
        }
        return true;
    }
    if (!json_object_is_type(merge, json_type_string)) return false;
    const char *s = json_object_get_string(merge), *space = strchr(s, ' ');
    if (!space || strchr(space + 1, ' ')) return false;
    side[0] = s, n[0] = (size_t)(space - s);
    side[1] = space + 1, n[1] = strlen(space + 1);
    return true;
}

static weft_status read_merge(struct reader *r, struct json_object *merge, size_t rank, weft_bpe_rule *rule) {
    const char *side[2];
    size_t n[2], left, right;
    if (!merge_sides(merge, side, n)) return weft_fail(r->e, WEFT_EFORMAT, "'model.merges', rank %zu: not a pair of tokens", rank);
    weft_str_clear(&r->text);
    if (!weft_str_reserve(&r->text, n[0] + n[1])) return oom(r->e);
    char *bytes = r->text.p;
    if (to_name(r, side[0], n[0], bytes, &left) && to_name(r, side[1], n[1], bytes + left, &right)) {
        rule->left = weft_vocab_find(&r->t->vocab, bytes, left);
        rule->right = weft_vocab_find(&r->t->vocab, bytes + left, right);
        rule->made = weft_vocab_find(&r->t->vocab, bytes, left + right);
        if (rule->left >= 0 && rule->right >= 0 && rule->made >= 0) return WEFT_OK;
    }
    return weft_fail(r->e, WEFT_EFORMAT,
                     "'model.merges', rank %zu: '%.60s' and '%.60s' are or make a token that 'model.vocab' lacks", rank, side[0],
                     side[1]);
}

static weft_status read_merges(struct reader *r, struct json_object *merges) {
    size_t n = json_object_array_length(merges);
    weft_bpe_rule *rules = weft_calloc(n ? n : 1, sizeof *rules);
    if (!rules) return oom(r->e);
    weft_status status = WEFT_OK;
    for (size_t rank = 0; rank < n && status == WEFT_OK; rank++)
        status = read_merge(r, json_object_array_get_idx(merges, rank), rank, &rules[rank]);
    if (status != WEFT_OK) {
        weft_free(rules);
        return status;
    }
    return weft_bpe_init(&r->t->bpe, rules, n) ? WEFT_OK : oom(r->e);
}

/* An added token may stand in model.vocab, too, under the same id. */
static weft_status same_token(struct reader *r, int32_t id, const char *text, size_t n) {
    const weft_token *token = &r->t->vocab.token[id];
    char name[WEFT_ADDED_LONGEST];
    size_t n_name;
    int32_t other = to_name(r, text, n, name, &n_name) ? weft_vocab_find(&r->t->vocab, name, n_name) : -1;
    if (other >= 0 && other != id)
        return weft_fail(r->e, WEFT_EFORMAT, "the added token '%s' has the id %d, in 'model.vocab' %d", text, (int)id, (int)other);
    if (token->kind == WEFT_TOKEN_NONE || other == id || (token->n == n && memcmp(token->bytes, text, n) == 0)) return WEFT_OK;
    return weft_fail(r->e, WEFT_EFORMAT, "the added token '%s' and another token both have the id %d", text, (int)id);
}

static weft_status read_added_token(struct reader *r, weft_json_at at) {
    const char *text;
    int32_t id;
    WEFT_TRY(need_text(at, "content", &text, r->e));
    WEFT_TRY(id_value(weft_json_get(at, "id"), at, "id", &id, r->e));
    size_t n = strlen(text);
    if (n == 0 || n > WEFT_ADDED_LONGEST)
        return weft_fail(r->e, WEFT_EFORMAT, "the added token %d has %zu bytes, not 1 to %d", (int)id, n, WEFT_ADDED_LONGEST);
    if (strstr(text, "\xEF\xBF\xBD")) return weft_fail(r->e, WEFT_EFORMAT, "the added token %d has a damaged character", (int)id);

    weft_added_token entry = {.n = n, .id = id};
    bool normalized = true;
    WEFT_TRY(weft_json_bool(at, "single_word", &entry.single_word, r->e));
    WEFT_TRY(weft_json_bool(at, "lstrip", &entry.lstrip, r->e));
    WEFT_TRY(weft_json_bool(at, "rstrip", &entry.rstrip, r->e));
    WEFT_TRY(weft_json_bool(at, "special", &entry.special, r->e));
    WEFT_TRY(weft_json_bool(at, "normalized", &normalized, r->e));
    if (normalized && entry.special) {
        if (r->t->normalizer.n > 0)
            return weft_fail(r->e, WEFT_ESUPPORT,
                             "the added token '%s' is both special and normalized, which this version does not do", text);
        normalized = false; /* there is nothing to wait for */
    }

    WEFT_TRY(same_token(r, id, text, n));
    weft_token *token = &r->t->vocab.token[id];
    char *kept = weft_arena_str(&r->t->text, text, n);
    if (!kept) return oom(r->e);
    if (token->kind == WEFT_TOKEN_NONE) *token = (weft_token){kept, kept, (uint32_t)n, (uint32_t)n, WEFT_TOKEN_PLAIN};
    if (entry.special) token->kind = WEFT_TOKEN_SPECIAL;
    entry.text = kept;
    return weft_vec_push(normalized ? &r->t->normal : &r->t->raw, entry) ? WEFT_OK : oom(r->e);
}

/* Tokens that are looked for in normalised text are normalised themselves, and decoded from that. */
static weft_status normalize_added(struct reader *r) {
    for (size_t k = 0; k < r->t->normal.n && r->t->normalizer.n > 0; k++) {
        weft_added_token *token = &r->t->normal.v[k];
        if (!weft_normalize(&r->t->normalizer, &r->normal, token->text, token->n)) return oom(r->e);
        size_t n = r->normal.text.n;
        if (n == 0 || n > WEFT_ADDED_LONGEST)
            return weft_fail(r->e, WEFT_EFORMAT, "the added token '%s', normalised, has %zu bytes, not 1 to %d", token->text, n,
                             WEFT_ADDED_LONGEST);
        char *kept = weft_arena_str(&r->t->text, r->normal.text.p, n);
        if (!kept) return oom(r->e);
        token->text = kept;
        token->n = n;
        if (!r->byte_level) r->t->vocab.token[token->id].bytes = kept, r->t->vocab.token[token->id].n = (uint32_t)n;
    }
    return WEFT_OK;
}

static weft_status read_added(struct reader *r, struct json_object *added) {
    for (size_t k = 0; added && k < json_object_array_length(added); k++) {
        weft_json_at at = {NULL, "added_tokens."};
        WEFT_TRY(item(added, k, &at, r->e));
        WEFT_TRY(read_added_token(r, at));
    }
    WEFT_TRY(normalize_added(r));
    const weft_added_token *twice;
    if (!weft_added_sort(&r->t->raw, &twice) || !weft_added_sort(&r->t->normal, &twice))
        return weft_fail(r->e, WEFT_EFORMAT, "the added token '%s' occurs twice", twice->text);
    return WEFT_OK;
}

/* What a model may not ask for. */
static weft_status read_options(struct reader *r, weft_json_at model) {
    const char *type = "BPE", *prefix = "", *suffix = "";
    double dropout = 0;
    WEFT_TRY(weft_json_text(model, "type", &type, r->e));
    if (strcmp(type, "BPE") != 0) return unknown("model", type, r->e);
    WEFT_TRY(weft_json_number(model, "dropout", 0, 0, &dropout, r->e)); /* otherwise ids would be random */
    WEFT_TRY(weft_json_bool(model, "byte_fallback", &r->byte_fallback, r->e));
    WEFT_TRY(weft_json_bool(model, "fuse_unk", &r->t->fuse_unknown, r->e));
    WEFT_TRY(weft_json_text(model, "unk_token", &r->unk_token, r->e));
    WEFT_TRY(weft_json_bool(model, "ignore_merges", &r->t->ignore_merges, r->e));
    WEFT_TRY(weft_json_text(model, "continuing_subword_prefix", &prefix, r->e));
    WEFT_TRY(weft_json_text(model, "end_of_word_suffix", &suffix, r->e));
    if (*prefix || *suffix)
        return weft_fail(r->e, WEFT_ESUPPORT, "the model adds '%s%s' to words, which this version does not do", prefix, suffix);
    return WEFT_OK;
}

static weft_status read_model(struct reader *r, weft_json_at root) {
    weft_json_at model = {NULL, "model."};
    struct json_object *vocab, *merges, *added = NULL;
    WEFT_TRY(weft_json_need(root, "model", r->e));
    WEFT_TRY(weft_json_object(root, "model", &model.object, r->e));
    WEFT_TRY(read_options(r, model));
    WEFT_TRY(weft_json_need(model, "vocab", r->e));
    WEFT_TRY(weft_json_object(model, "vocab", &vocab, r->e));
    WEFT_TRY(need_list(model, "merges", &merges, r->e));
    WEFT_TRY(weft_json_array(root, "added_tokens", LIST_LONGEST, &added, r->e));
    int32_t highest;
    WEFT_TRY(highest_id(vocab, added, &highest, r->e));
    if (!weft_vocab_init(&r->t->vocab, highest + 1, (size_t)json_object_object_length(vocab))) return oom(r->e);
    WEFT_TRY(read_vocab(r, vocab));
    WEFT_TRY(r->byte_level ? read_bytes(r) : read_fallback(r));
    WEFT_TRY(read_merges(r, merges));
    return read_added(r, added);
}

/* ---- the other components ------------------------------------------------------------------------------------------------ */

/* Each is one step, or a Sequence of them. */
typedef weft_status (*step_reader)(struct reader *r, weft_json_at step, const char *type);

static weft_status read_steps(struct reader *r, weft_json_at at, const char *list_key, step_reader read) {
    const char *type;
    struct json_object *list;
    WEFT_TRY(need_text(at, "type", &type, r->e));
    if (strcmp(type, "Sequence") != 0) return read(r, at, type);
    WEFT_TRY(need_list(at, list_key, &list, r->e));
    for (size_t k = 0; k < json_object_array_length(list); k++) {
        weft_json_at step = {NULL, at.path};
        WEFT_TRY(item(list, k, &step, r->e));
        WEFT_TRY(read_steps(r, step, list_key, read)); /* as deep as the JSON at most */
    }
    return WEFT_OK;
}

static weft_status read_component(struct reader *r, weft_json_at root, const char *key, const char *path, const char *list_key,
                                  step_reader read) {
    weft_json_at at = {NULL, path};
    WEFT_TRY(weft_json_object(root, key, &at.object, r->e));
    return at.object ? read_steps(r, at, list_key, read) : WEFT_OK;
}

static weft_status read_normalizer(struct reader *r, weft_json_at at, const char *type) {
    weft_normal_step step = {.kind = WEFT_NORMAL_NFC};
    if (strcmp(type, "Replace") == 0) return read_replace(r, at, "normalizer.pattern.", &r->t->normalizer);
    if (strcmp(type, "Prepend") == 0) {
        step.kind = WEFT_NORMAL_PREPEND;
        WEFT_TRY(short_text(at, "prepend", step.to, &step.n_to, r->e));
    } else if (strcmp(type, "NFC") != 0) {
        return unknown("normalizer", type, r->e);
    }
    return weft_normalizer_add(&r->t->normalizer, &step, r->e);
}

static weft_status read_split(struct reader *r, weft_json_at at) {
    static const char *const behaviors[] = {
        [WEFT_SPLIT_ISOLATED] = "Isolated",
        [WEFT_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [WEFT_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [WEFT_SPLIT_CONTIGUOUS] = "Contiguous",
        [WEFT_SPLIT_REMOVED] = "Removed",
    };
    enum { BEHAVIORS = sizeof behaviors / sizeof *behaviors };
    weft_json_at pattern = {NULL, "pre_tokenizer.pattern."};
    weft_split_how how = {0};
    const char *behavior, *text;
    bool regex;
    int k = 0;
    WEFT_TRY(need_text(at, "behavior", &behavior, r->e));
    while (k < BEHAVIORS && strcmp(behavior, behaviors[k]) != 0) k++;
    if (k == BEHAVIORS) return unknown("split behavior", behavior, r->e);
    WEFT_TRY(weft_json_bool(at, "invert", &how.invert, r->e));
    WEFT_TRY(read_pattern(at, &pattern, &regex, r->e));
    WEFT_TRY(need_text(pattern, regex ? "Regex" : "String", &text, r->e));
    how.behavior = (weft_split_behavior)k;
    how.literal = !regex;
    return weft_split_add(&r->t->split, text, strlen(text), how, r->e);
}

static weft_status read_mark(struct reader *r, weft_json_at at) {
    const weft_split_how before_each = {.behavior = WEFT_SPLIT_MERGED_WITH_NEXT, .literal = true};
    struct metaspace m;
    bool split = true;
    if (r->pre_steps > 1) return weft_fail(r->e, WEFT_ESUPPORT, "the pre_tokenizer 'Metaspace' comes after another step");
    WEFT_TRY(read_metaspace(r, at, &m));
    WEFT_TRY(weft_json_bool(at, "split", &split, r->e));
    r->metaspace = true;
    r->t->mark.prepend = m.prepend;
    WEFT_TRY(weft_normalizer_add(&r->t->mark.replace, &m.mark, r->e));
    return split ? weft_split_add(&r->t->split, m.mark.to, m.mark.n_to, before_each, r->e) : WEFT_OK;
}

static weft_status read_pre_tokenizer(struct reader *r, weft_json_at at, const char *type) {
    if (r->byte_level) return weft_fail(r->e, WEFT_ESUPPORT, "the pre_tokenizer '%s' comes after ByteLevel", type);
    r->pre_steps++;
    if (strcmp(type, "Split") == 0) return read_split(r, at);
    if (strcmp(type, "Metaspace") == 0) return read_mark(r, at);
    if (strcmp(type, "ByteLevel") != 0) return unknown("pre_tokenizer", type, r->e);
    bool use_regex = true;
    if (r->metaspace) return weft_fail(r->e, WEFT_ESUPPORT, "the pre_tokenizer has both Metaspace and ByteLevel");
    WEFT_TRY(must_be_off(at, "add_prefix_space", true, r->e));
    WEFT_TRY(weft_json_bool(at, "use_regex", &use_regex, r->e));
    r->t->byte_level = r->byte_level = true;
    return use_regex ? weft_split_add(&r->t->split, gpt2_pattern, strlen(gpt2_pattern), (weft_split_how){0}, r->e) : WEFT_OK;
}

/* ---- the decoder, where pieces are characters ---------------------------------------------------------------------------- */

/* Blanks left out at the beginning of the text. */
static weft_status read_strip(struct reader *r, weft_json_at at) {
    weft_decoding *d = &r->t->decoding;
    const char *content;
    int64_t start = 0, stop = 0;
    WEFT_TRY(need_text(at, "content", &content, r->e));
    WEFT_TRY(weft_json_int(at, "start", 0, INT32_MAX, &start, r->e));
    WEFT_TRY(weft_json_int(at, "stop", 0, INT32_MAX, &stop, r->e));
    if (!r->fused || stop != 0 || start > UINT8_MAX || d->strip_most || strlen(content) != 1 || (uint8_t)content[0] >= 0x80)
        return weft_fail(r->e, WEFT_ESUPPORT,
                         "the decoder's Strip step does something else than to leave a few blanks out at a text's beginning, "
                         "which is all that this version does");
    d->strip = content[0];
    d->strip_most = (uint8_t)start;
    return WEFT_OK;
}

static weft_status read_marked(struct reader *r, weft_json_at at) {
    weft_decoding *d = &r->t->decoding;
    struct metaspace m;
    WEFT_TRY(read_metaspace(r, at, &m));
    d->unmarked_start = m.prepend != WEFT_MARK_NEVER;
    d->n_mark = (uint8_t)m.mark.n_to;
    memcpy(d->mark, m.mark.to, m.mark.n_to);
    weft_normal_step back = {.kind = WEFT_NORMAL_REPLACE, .n_from = m.mark.n_to, .to = " ", .n_to = 1};
    memcpy(back.from, m.mark.to, m.mark.n_to);
    return weft_normalizer_add(&d->replace, &back, r->e);
}

/* Tokens' texts are changed first, then bytes put in, then all becomes one text. */
static weft_status read_decoder(struct reader *r, weft_json_at at, const char *type) {
    weft_decoding *d = &r->t->decoding;
    bool replace = strcmp(type, "Replace") == 0, mark = strcmp(type, "Metaspace") == 0, bytes = strcmp(type, "ByteFallback") == 0;
    if (strcmp(type, "Strip") == 0) return read_strip(r, at);
    if (strcmp(type, "Fuse") == 0) {
        r->fused = true;
        return WEFT_OK;
    }
    if (!replace && !mark && !bytes) return unknown("decoder", type, r->e);
    if (r->fused || (r->byte_tokens && !bytes) || (d->n_mark && !bytes) || (d->replace.n && mark))
        return weft_fail(r->e, WEFT_ESUPPORT, "the decoder's step '%s' stands behind one that this version only knows behind it",
                         type);
    if (mark) return read_marked(r, at);
    if (replace) return read_replace(r, at, "decoder.pattern.", &d->replace);
    r->byte_tokens = true;
    return WEFT_OK;
}

/* <0x0A> */
static bool is_byte_name(const weft_token *token, char *byte) {
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";
    if (token->n_name != 6 || memcmp(token->name, "<0x", 3) != 0 || token->name[5] != '>') return false;
    const char *high = strchr(digits, token->name[3]), *low = strchr(digits, token->name[4]);
    if (!high || !low) return false;
    *byte = (char)((high - digits) % 16 * 16 + (low - digits) % 16);
    return true;
}

/* What every token is in text. */
static weft_status decode_tokens(struct reader *r) {
    weft_vocab *v = &r->t->vocab;
    for (int32_t id = 0; id < v->size; id++) {
        weft_token *token = &v->token[id];
        char byte;
        if (token->kind == WEFT_TOKEN_NONE) continue;
        const char *bytes;
        size_t n = 1;
        if (token->kind == WEFT_TOKEN_PLAIN && r->byte_tokens && is_byte_name(token, &byte)) {
            token->kind = WEFT_TOKEN_BYTE;
            bytes = &byte;
        } else {
            if (!weft_normalize(&r->t->decoding.replace, &r->normal, token->bytes, token->n)) return oom(r->e);
            bytes = weft_str_z(&r->normal.text), n = r->normal.text.n;
        }
        if (n == token->n && memcmp(bytes, token->bytes, n) == 0) continue;
        char *kept = n <= UINT32_MAX ? weft_arena_str(&r->t->text, bytes, n) : NULL;
        if (!kept) return oom(r->e);
        token->bytes = kept;
        token->n = (uint32_t)n;
    }
    return WEFT_OK;
}

static weft_status read_decoding(struct reader *r, weft_json_at root) {
    if (r->byte_level) return WEFT_OK;
    WEFT_TRY(weft_json_need(root, "decoder", r->e));
    WEFT_TRY(read_component(r, root, "decoder", "decoder.", "decoders", read_decoder));
    r->byte_tokens |= r->byte_fallback; /* nobody wants to read <0x0A> */
    return decode_tokens(r);
}

/* ---- before and behind the text ------------------------------------------------------------------------------------------ */

/* A template for one text: {"SpecialToken": {"id": "<s>"}} any number of times, then {"Sequence": ..}, which stands for the text.
 */
static weft_status read_template(struct reader *r, weft_json_at at) {
    struct json_object *single;
    WEFT_TRY(need_list(at, "single", &single, r->e));
    size_t n = json_object_array_length(single);
    for (size_t k = 0; k < n; k++) {
        weft_json_at step = {NULL, "post_processor.single."}, token = {NULL, "post_processor.single.SpecialToken."};
        const char *name;
        WEFT_TRY(item(single, k, &step, r->e));
        WEFT_TRY(weft_json_object(step, "SpecialToken", &token.object, r->e));
        bool last = k + 1 == n;
        if (last && !token.object) return WEFT_OK;
        if (last || !token.object) break;
        WEFT_TRY(need_text(token, "id", &name, r->e));
        int32_t id = weft_tokenizer_find(r->t, name);
        if (id < 0) return weft_fail(r->e, WEFT_EFORMAT, "'post_processor' names '%s', which is not a token", name);
        if (!weft_vec_push(&r->t->prefix, id)) return oom(r->e);
    }
    return weft_fail(r->e, WEFT_ESUPPORT, "'post_processor.single' puts tokens after the text, which this version does not do");
}

static weft_status read_post_processor(struct reader *r, weft_json_at at, const char *type) {
    if (strcmp(type, "ByteLevel") == 0) return WEFT_OK; /* moves offsets, not ids */
    return strcmp(type, "TemplateProcessing") == 0 ? read_template(r, at) : unknown("post_processor", type, r->e);
}

static weft_status read_root(struct reader *r, weft_json_at root) {
    WEFT_TRY(read_component(r, root, "normalizer", "normalizer.", "normalizers", read_normalizer));
    WEFT_TRY(read_component(r, root, "pre_tokenizer", "pre_tokenizer.", "pretokenizers", read_pre_tokenizer));
    WEFT_TRY(read_model(r, root));
    WEFT_TRY(read_decoding(r, root));
    return read_component(r, root, "post_processor", "post_processor.", "processors", read_post_processor);
}

static weft_status build(weft_tokenizer **t, struct json_object *root, weft_error *e) {
    struct reader r = {.t = weft_calloc(1, sizeof **t), .e = e};
    if (!r.t) return oom(e);
    alphabet(r.byte);
    weft_status status = read_root(&r, (weft_json_at){root, ""});
    weft_str_free(&r.text);
    weft_normal_work_free(&r.normal);
    if (status == WEFT_OK)
        *t = r.t;
    else
        weft_tokenizer_close(r.t);
    return status;
}

weft_status weft_tokenizer_parse(weft_tokenizer **t, const char *json, size_t n, weft_error *e) {
    struct json_object *root;
    *t = NULL;
    WEFT_TRY(weft_json_parse(&root, json, n, e));
    weft_status status = build(t, root, e);
    json_object_put(root);
    return status;
}

weft_status weft_tokenizer_open(weft_tokenizer **t, const char *path, weft_error *e) {
    char *json;
    size_t n;
    *t = NULL;
    WEFT_TRY(weft_file_read(path, FILE_LARGEST, &json, &n, e));
    weft_status status = weft_tokenizer_parse(t, json, n, e);
    weft_free(json);
    return status == WEFT_OK ? WEFT_OK : weft_fail_in(e, path);
}

/* tokenizer_json.c: reading a tokenizer.json.
 *
 * Everything in it that changes ids is either done or refused by name. Three things are passed over on purpose: `decoder`, as
 * decoding follows from the byte-level alphabet (files exist whose decoder field contradicts their pre-tokenizer, and engines
 * that believed it printed U+0120 for every space); `truncation` and `padding`, which shape training batches; and `unk_token`,
 * as every byte must have a token. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "text/normalize.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

#define FILE_LARGEST ((size_t)256 << 20) /* the largest in use has 35 MB */
#define JSON_DEEPEST 32

/* The expression of a ByteLevel pre-tokenizer with use_regex: GPT-2's. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static weft_status oom(weft_error *e) { return weft_fail_oom(e, "reading a tokenizer"); }

/* ---- JSON access ---- */

/* obj[key] into *out, NULL if absent or null. `where` names obj in messages. */
static weft_status get(json_object *obj, const char *where, const char *key, json_type type, json_object **out, weft_error *e) {
    *out = NULL;
    if (json_object_object_get_ex(obj, key, out) && *out && !json_object_is_type(*out, type))
        return weft_fail(e, WEFT_EFORMAT, "%s.%s should be %s, not %s", where, key, json_type_to_name(type),
                         json_type_to_name(json_object_get_type(*out)));
    return WEFT_OK;
}

static weft_status need(json_object *obj, const char *where, const char *key, json_type type, json_object **out, weft_error *e) {
    WEFT_TRY(get(obj, where, key, type, out, e));
    return *out ? WEFT_OK : weft_fail(e, WEFT_EFORMAT, "%s has no %s", where, key);
}

static weft_status get_bool(json_object *obj, const char *where, const char *key, bool absent, bool *out, weft_error *e) {
    json_object *v;
    WEFT_TRY(get(obj, where, key, json_type_boolean, &v, e));
    *out = v ? json_object_get_boolean(v) : absent;
    return WEFT_OK;
}

/* Refuses an option that is on. */
static weft_status must_be_off(json_object *obj, const char *where, const char *key, bool absent, weft_error *e) {
    bool on;
    WEFT_TRY(get_bool(obj, where, key, absent, &on, e));
    return on ? weft_fail(e, WEFT_ESUPPORT, "%s.%s is on, which this version does not do", where, key) : WEFT_OK;
}

/* The type name of a component such as {"type": "NFC"}. */
static weft_status type_of(json_object *obj, const char *where, const char **type, weft_error *e) {
    json_object *v;
    if (!json_object_is_type(obj, json_type_object)) return weft_fail(e, WEFT_EFORMAT, "%s is not an object", where);
    WEFT_TRY(need(obj, where, "type", json_type_string, &v, e));
    *type = json_object_get_string(v);
    return WEFT_OK;
}

static weft_status unknown(const char *what, const char *type, weft_error *e) {
    return weft_fail(e, WEFT_ESUPPORT, "the %s \"%s\" is not one this version knows", what, type);
}

static weft_status id_of(json_object *v, const char *where, int32_t *id, weft_error *e) {
    if (!json_object_is_type(v, json_type_int)) return weft_fail(e, WEFT_EFORMAT, "%s is not a number", where);
    int64_t n = json_object_get_int64(v);
    if (n < 0 || n >= WEFT_VOCAB_MOST)
        return weft_fail(e, WEFT_EFORMAT, "%s is %lld, outside of 0 .. %d", where, (long long)n, WEFT_VOCAB_MOST - 1);
    *id = (int32_t)n;
    return WEFT_OK;
}

/* ---- the byte-level alphabet ---- */

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

/* ---- tokens ---- */

struct reader {
    weft_tokenizer *t;
    int16_t byte[ALPHABET_END];
    weft_str text; /* scratch */
    weft_error *e;
};

/* The highest id of the file, before anything of that size is allocated. */
static weft_status highest_id(json_object *vocab, json_object *added, int32_t *highest, weft_error *e) {
    *highest = -1;
    json_object_object_foreach(vocab, key, value) {
        int32_t id;
        (void)key;
        WEFT_TRY(id_of(value, "an id in model.vocab", &id, e));
        if (id > *highest) *highest = id;
    }
    for (size_t k = 0; added && k < json_object_array_length(added); k++) {
        json_object *token = json_object_array_get_idx(added, k), *v;
        int32_t id;
        if (!json_object_is_type(token, json_type_object)) return weft_fail(e, WEFT_EFORMAT, "added_tokens[%zu] is not an object", k);
        WEFT_TRY(need(token, "an added token", "id", json_type_int, &v, e));
        WEFT_TRY(id_of(v, "the id of an added token", &id, e));
        if (id > *highest) *highest = id;
    }
    return WEFT_OK;
}

/* model.vocab. A token with characters outside of the alphabet can be decoded (as itself), but no text becomes it by merging. */
static weft_status read_vocab(struct reader *r, json_object *vocab) {
    weft_vocab *v = &r->t->vocab;
    json_object_object_foreach(vocab, key, value) {
        int32_t id = (int32_t)json_object_get_int64(value);
        weft_token *token = &v->token[id];
        if (token->kind != WEFT_TOKEN_NONE) return weft_fail(r->e, WEFT_EFORMAT, "model.vocab has the id %d twice", (int)id);
        size_t n = strlen(key), n_bytes;
        char *bytes = weft_arena_str(&r->t->text, key, n);
        if (!bytes) return oom(r->e);
        bool mergeable = to_bytes(r->byte, key, n, bytes, &n_bytes);
        if (!mergeable) memcpy(bytes, key, n);
        *token = (weft_token){bytes, (uint32_t)(mergeable ? n_bytes : n), WEFT_TOKEN_PLAIN};
        if (mergeable && n_bytes > 0) weft_vocab_enter(v, id);
    }
    return WEFT_OK;
}

static weft_status read_bytes(struct reader *r) {
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        r->t->bpe.byte[b] = weft_vocab_find(&r->t->vocab, &c, 1);
        if (r->t->bpe.byte[b] < 0) return weft_fail(r->e, WEFT_ESUPPORT, "the byte %02X has no token: text could get lost", (unsigned)b);
    }
    return WEFT_OK;
}

/* The two sides of a merge: ["a", "b"], or "a b" in older files. */
static weft_status merge_sides(json_object *merge, size_t rank, const char *side[2], size_t n[2], weft_error *e) {
    if (json_object_is_type(merge, json_type_array) && json_object_array_length(merge) == 2) {
        bool ok = true;
        for (size_t k = 0; k < 2; k++) {
            json_object *s = json_object_array_get_idx(merge, k);
            ok &= json_object_is_type(s, json_type_string);
            side[k] = ok ? json_object_get_string(s) : NULL;
            n[k] = ok ? (size_t)json_object_get_string_len(s) : 0;
        }
        if (ok) return WEFT_OK;
    } else if (json_object_is_type(merge, json_type_string)) {
        const char *s = json_object_get_string(merge), *space = strchr(s, ' ');
        if (space && !strchr(space + 1, ' ')) {
            side[0] = s, n[0] = (size_t)(space - s);
            side[1] = space + 1, n[1] = strlen(space + 1);
            return WEFT_OK;
        }
    }
    return weft_fail(e, WEFT_EFORMAT, "model.merges[%zu] is not a pair of tokens", rank);
}

static weft_status read_merge(struct reader *r, json_object *merge, size_t rank, weft_bpe_rule *rule) {
    const char *side[2];
    size_t n[2], left, right;
    WEFT_TRY(merge_sides(merge, rank, side, n, r->e));
    weft_str_clear(&r->text);
    if (!weft_str_reserve(&r->text, n[0] + n[1])) return oom(r->e);
    char *bytes = r->text.p;
    if (to_bytes(r->byte, side[0], n[0], bytes, &left) && to_bytes(r->byte, side[1], n[1], bytes + left, &right)) {
        rule->left = weft_vocab_find(&r->t->vocab, bytes, left);
        rule->right = weft_vocab_find(&r->t->vocab, bytes + left, right);
        rule->made = weft_vocab_find(&r->t->vocab, bytes, left + right);
        if (rule->left >= 0 && rule->right >= 0 && rule->made >= 0) return WEFT_OK;
    }
    return weft_fail(r->e, WEFT_EFORMAT, "model.merges[%zu], \"%.*s %.*s\", is made of or makes a token that model.vocab lacks", rank,
                     n[0] < 60 ? (int)n[0] : 60, side[0], n[1] < 60 ? (int)n[1] : 60, side[1]);
}

static weft_status read_merges(struct reader *r, json_object *merges) {
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
static bool same_token(struct reader *r, const weft_token *token, const char *text, size_t n) {
    char bytes[WEFT_ADDED_LONGEST];
    size_t n_bytes;
    if (!to_bytes(r->byte, text, n, bytes, &n_bytes)) return token->n == n && memcmp(token->bytes, text, n) == 0;
    return token->n == n_bytes && memcmp(token->bytes, bytes, n_bytes) == 0;
}

static weft_status read_added_token(struct reader *r, json_object *obj) {
    json_object *id_value, *content;
    bool special, normalized;
    WEFT_TRY(need(obj, "an added token", "id", json_type_int, &id_value, r->e));
    WEFT_TRY(need(obj, "an added token", "content", json_type_string, &content, r->e));
    const char *text = json_object_get_string(content);
    size_t n = (size_t)json_object_get_string_len(content);
    int32_t id = (int32_t)json_object_get_int64(id_value);
    if (n == 0 || n > WEFT_ADDED_LONGEST)
        return weft_fail(r->e, WEFT_EFORMAT, "the added token %d has %zu bytes, not 1 to %d", (int)id, n, WEFT_ADDED_LONGEST);
    if (strstr(text, "\xEF\xBF\xBD")) return weft_fail(r->e, WEFT_EFORMAT, "the added token %d has a damaged character", (int)id);
    char where[64 + WEFT_ADDED_LONGEST];
    snprintf(where, sizeof where, "the added token \"%s\"", text);
    WEFT_TRY(must_be_off(obj, where, "single_word", false, r->e));
    WEFT_TRY(must_be_off(obj, where, "lstrip", false, r->e));
    WEFT_TRY(must_be_off(obj, where, "rstrip", false, r->e));
    WEFT_TRY(get_bool(obj, where, "special", false, &special, r->e));
    WEFT_TRY(get_bool(obj, where, "normalized", true, &normalized, r->e));

    weft_token *token = &r->t->vocab.token[id];
    if (token->kind != WEFT_TOKEN_NONE && !same_token(r, token, text, n))
        return weft_fail(r->e, WEFT_EFORMAT, "%s and another token both have the id %d", where, (int)id);
    char *kept = weft_arena_str(&r->t->text, text, n);
    if (!kept) return oom(r->e);
    if (token->kind == WEFT_TOKEN_NONE) *token = (weft_token){kept, (uint32_t)n, WEFT_TOKEN_PLAIN};
    if (special) token->kind = WEFT_TOKEN_SPECIAL;

    bool after = normalized && r->t->nfc; /* without a normaliser there is nothing to wait for */
    if (after && special) return weft_fail(r->e, WEFT_ESUPPORT, "%s is both special and normalized, which this version does not do", where);
    weft_added_token entry = {kept, n, id, special};
    return weft_vec_push(after ? &r->t->normal : &r->t->raw, entry) ? WEFT_OK : oom(r->e);
}

/* Tokens that are looked for in normalised text are normalised themselves. */
static weft_status normalize_added(struct reader *r) {
    weft_codepoints marks = {0};
    weft_status status = WEFT_OK;
    for (size_t k = 0; k < r->t->normal.n && status == WEFT_OK; k++) {
        weft_added_token *token = &r->t->normal.v[k];
        weft_str_clear(&r->text);
        char *kept = NULL;
        if (weft_nfc(&r->text, token->text, token->n, &marks)) kept = weft_arena_str(&r->t->text, r->text.p, r->text.n);
        if (!kept) status = oom(r->e);
        token->text = kept;
        token->n = r->text.n;
    }
    weft_vec_free(&marks);
    return status;
}

static weft_status read_added(struct reader *r, json_object *added) {
    size_t n = added ? json_object_array_length(added) : 0;
    for (size_t k = 0; k < n; k++) WEFT_TRY(read_added_token(r, json_object_array_get_idx(added, k)));
    WEFT_TRY(normalize_added(r));
    const weft_added_token *twice;
    if (!weft_added_sort(&r->t->raw, &twice) || !weft_added_sort(&r->t->normal, &twice))
        return weft_fail(r->e, WEFT_EFORMAT, "the added token \"%s\" occurs twice", twice->text);
    return WEFT_OK;
}

static weft_status read_model(struct reader *r, json_object *root) {
    json_object *model, *vocab, *merges, *added, *v;
    WEFT_TRY(need(root, "the file", "model", json_type_object, &model, r->e));
    WEFT_TRY(get(model, "model", "type", json_type_string, &v, r->e));
    if (v && strcmp(json_object_get_string(v), "BPE") != 0) return unknown("model", json_object_get_string(v), r->e);
    WEFT_TRY(must_be_off(model, "model", "byte_fallback", false, r->e));
    WEFT_TRY(get_bool(model, "model", "ignore_merges", false, &r->t->ignore_merges, r->e));
    if (json_object_object_get_ex(model, "dropout", &v) && json_object_get_double(v) != 0)
        return weft_fail(r->e, WEFT_ESUPPORT, "model.dropout is not 0: ids would be random");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int k = 0; k < 2; k++) {
        WEFT_TRY(get(model, "model", affixes[k], json_type_string, &v, r->e));
        if (v && json_object_get_string_len(v) > 0)
            return weft_fail(r->e, WEFT_ESUPPORT, "model.%s is not empty, which this version does not do", affixes[k]);
    }

    WEFT_TRY(need(model, "model", "vocab", json_type_object, &vocab, r->e));
    WEFT_TRY(need(model, "model", "merges", json_type_array, &merges, r->e));
    WEFT_TRY(get(root, "the file", "added_tokens", json_type_array, &added, r->e));
    int32_t highest;
    WEFT_TRY(highest_id(vocab, added, &highest, r->e));
    if (!weft_vocab_init(&r->t->vocab, highest + 1, (size_t)json_object_object_length(vocab))) return oom(r->e);
    WEFT_TRY(read_vocab(r, vocab));
    WEFT_TRY(read_bytes(r));
    WEFT_TRY(read_merges(r, merges));
    return read_added(r, added);
}

/* ---- the other components ---- */

static weft_status read_normalizer(struct reader *r, json_object *obj) {
    const char *type;
    json_object *list;
    WEFT_TRY(type_of(obj, "normalizer", &type, r->e));
    if (strcmp(type, "NFC") == 0) {
        r->t->nfc = true;
        return WEFT_OK;
    }
    if (strcmp(type, "Sequence") != 0) return unknown("normalizer", type, r->e);
    WEFT_TRY(need(obj, "normalizer", "normalizers", json_type_array, &list, r->e));
    for (size_t k = 0; k < json_object_array_length(list); k++) WEFT_TRY(read_normalizer(r, json_object_array_get_idx(list, k)));
    return WEFT_OK;
}

static weft_status read_split(struct reader *r, json_object *obj) {
    json_object *pattern, *regex, *behavior;
    WEFT_TRY(need(obj, "pre_tokenizer", "pattern", json_type_object, &pattern, r->e));
    WEFT_TRY(need(obj, "pre_tokenizer", "behavior", json_type_string, &behavior, r->e));
    WEFT_TRY(must_be_off(obj, "pre_tokenizer", "invert", false, r->e));
    if (strcmp(json_object_get_string(behavior), "Isolated") != 0)
        return unknown("split behavior", json_object_get_string(behavior), r->e);
    WEFT_TRY(get(pattern, "pre_tokenizer.pattern", "Regex", json_type_string, &regex, r->e));
    if (!regex) return weft_fail(r->e, WEFT_ESUPPORT, "pre_tokenizer.pattern is not a Regex");
    return weft_split_add(&r->t->split, json_object_get_string(regex), (size_t)json_object_get_string_len(regex), r->e);
}

/* *done is set by the ByteLevel step, which must come last: it turns pieces into the byte alphabet. */
static weft_status read_pre_tokenizer(struct reader *r, json_object *obj, bool *done) {
    const char *type;
    json_object *list;
    WEFT_TRY(type_of(obj, "pre_tokenizer", &type, r->e));
    if (*done) return weft_fail(r->e, WEFT_ESUPPORT, "the pre_tokenizer \"%s\" comes after ByteLevel", type);
    if (strcmp(type, "Split") == 0) return read_split(r, obj);
    if (strcmp(type, "ByteLevel") == 0) {
        bool use_regex;
        WEFT_TRY(must_be_off(obj, "pre_tokenizer", "add_prefix_space", true, r->e));
        WEFT_TRY(get_bool(obj, "pre_tokenizer", "use_regex", true, &use_regex, r->e));
        *done = true;
        return use_regex ? weft_split_add(&r->t->split, gpt2_pattern, strlen(gpt2_pattern), r->e) : WEFT_OK;
    }
    if (strcmp(type, "Sequence") != 0) return unknown("pre_tokenizer", type, r->e);
    WEFT_TRY(need(obj, "pre_tokenizer", "pretokenizers", json_type_array, &list, r->e));
    for (size_t k = 0; k < json_object_array_length(list); k++)
        WEFT_TRY(read_pre_tokenizer(r, json_object_array_get_idx(list, k), done));
    return WEFT_OK;
}

/* A template for one text: tokens, then the text, {"Sequence": ..}. Tokens after it would be lost on the way to a generation. */
static weft_status read_template(struct reader *r, json_object *obj) {
    json_object *single, *token, *name;
    WEFT_TRY(need(obj, "post_processor", "single", json_type_array, &single, r->e));
    size_t n = json_object_array_length(single);
    for (size_t k = 0; k < n; k++) {
        json_object *step = json_object_array_get_idx(single, k);
        if (!json_object_is_type(step, json_type_object))
            return weft_fail(r->e, WEFT_EFORMAT, "post_processor.single[%zu] is not an object", k);
        WEFT_TRY(get(step, "post_processor.single", "SpecialToken", json_type_object, &token, r->e));
        if (!token && k + 1 == n) return WEFT_OK;
        if (!token || k + 1 == n) return weft_fail(r->e, WEFT_ESUPPORT, "post_processor: the template does not end with the text");
        WEFT_TRY(need(token, "post_processor.single", "id", json_type_string, &name, r->e));
        int32_t id = weft_tokenizer_find(r->t, json_object_get_string(name));
        if (id < 0) return weft_fail(r->e, WEFT_EFORMAT, "post_processor: \"%s\" is not a token", json_object_get_string(name));
        if (!weft_vec_push(&r->t->prefix, id)) return oom(r->e);
    }
    return weft_fail(r->e, WEFT_EFORMAT, "post_processor: the template is empty");
}

static weft_status read_post_processor(struct reader *r, json_object *obj) {
    const char *type;
    json_object *list;
    WEFT_TRY(type_of(obj, "post_processor", &type, r->e));
    if (strcmp(type, "ByteLevel") == 0) return WEFT_OK; /* moves offsets, not ids */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(r, obj);
    if (strcmp(type, "Sequence") != 0) return unknown("post_processor", type, r->e);
    WEFT_TRY(need(obj, "post_processor", "processors", json_type_array, &list, r->e));
    for (size_t k = 0; k < json_object_array_length(list); k++)
        WEFT_TRY(read_post_processor(r, json_object_array_get_idx(list, k)));
    return WEFT_OK;
}

static weft_status read_root(struct reader *r, json_object *root) {
    json_object *v;
    if (!json_object_is_type(root, json_type_object)) return weft_fail(r->e, WEFT_EFORMAT, "the file is not an object");
    WEFT_TRY(get(root, "the file", "normalizer", json_type_object, &v, r->e));
    if (v) WEFT_TRY(read_normalizer(r, v));
    WEFT_TRY(get(root, "the file", "pre_tokenizer", json_type_object, &v, r->e));
    bool byte_level = false;
    if (v) WEFT_TRY(read_pre_tokenizer(r, v, &byte_level));
    if (!byte_level) return weft_fail(r->e, WEFT_ESUPPORT, "the pre_tokenizer has no ByteLevel step: not a byte-level tokenizer");
    WEFT_TRY(read_model(r, root));
    WEFT_TRY(get(root, "the file", "post_processor", json_type_object, &v, r->e));
    return v ? read_post_processor(r, v) : WEFT_OK;
}

weft_status weft_tokenizer_parse(weft_tokenizer **t, const char *json, size_t n, weft_error *e) {
    *t = NULL;
    if (n > FILE_LARGEST) return weft_fail(e, WEFT_EFORMAT, "a tokenizer of more than %zu bytes", FILE_LARGEST);
    struct json_tokener *tokener = json_tokener_new_ex(JSON_DEEPEST);
    if (!tokener) return oom(e);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    json_object *root = json_tokener_parse_ex(tokener, json, (int)n);
    enum json_tokener_error bad = json_tokener_get_error(tokener);
    size_t at = json_tokener_get_parse_end(tokener);
    weft_status status;
    struct reader r = {.t = weft_calloc(1, sizeof **t), .e = e};
    if (bad == json_tokener_continue) {
        status = weft_fail(e, WEFT_EFORMAT, "the JSON ends early");
    } else if (bad != json_tokener_success) {
        status = weft_fail(e, WEFT_EFORMAT, "not JSON at byte %zu: %s", at, json_tokener_error_desc(bad));
    } else if (!r.t) {
        status = oom(e);
    } else {
        alphabet(r.byte);
        status = read_root(&r, root);
    }
    json_object_put(root);
    json_tokener_free(tokener);
    weft_str_free(&r.text);
    if (status == WEFT_OK)
        *t = r.t;
    else
        weft_tokenizer_close(r.t);
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

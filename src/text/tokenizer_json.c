/* tokenizer_json.c: reading a tokenizer.json.
 *
 * Everything in it that changes ids is either done or refused by name. Passed over on purpose are `decoder`, as decoding follows
 * from the byte-level alphabet (files exist whose decoder contradicts their pre-tokenizer, and engines that believed it printed
 * U+0120 for every space); `truncation` and `padding`, which shape training batches; and `unk_token`, as every byte must have a
 * token. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "format/json.h"
#include "text/normalize.h"
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
    bool byte_level; /* the ByteLevel step was there; it comes last, as it turns pieces into the alphabet */
    weft_str text;   /* scratch */
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

/* Refuses an option that is on. */
static weft_status must_be_off(weft_json_at at, const char *key, bool absent, weft_error *e) {
    bool on = absent;
    WEFT_TRY(weft_json_bool(at, key, &on, e));
    return on ? weft_fail(e, WEFT_ESUPPORT, "'%s%s' is on, which this version does not do", at.path, key) : WEFT_OK;
}

static weft_status unknown(const char *what, const char *name, weft_error *e) {
    return weft_fail(e, WEFT_ESUPPORT, "the %s '%s' is not one this version knows", what, name);
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

/* model.vocab. A token with characters outside of the alphabet can be decoded (as itself), but no text becomes it by merging. */
static weft_status read_vocab(struct reader *r, struct json_object *vocab) {
    weft_vocab *v = &r->t->vocab;
    json_object_object_foreach(vocab, key, value) {
        int32_t id;
        WEFT_TRY(id_value(value, (weft_json_at){vocab, "model.vocab."}, key, &id, r->e));
        weft_token *token = &v->token[id];
        if (token->kind != WEFT_TOKEN_NONE) return weft_fail(r->e, WEFT_EFORMAT, "'model.vocab' has the id %d twice", (int)id);
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
        if (r->t->bpe.byte[b] < 0)
            return weft_fail(r->e, WEFT_ESUPPORT, "the byte %02X has no token: text could get lost", (unsigned)b);
    }
    return WEFT_OK;
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
    if (to_bytes(r->byte, side[0], n[0], bytes, &left) && to_bytes(r->byte, side[1], n[1], bytes + left, &right)) {
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
static bool same_token(struct reader *r, const weft_token *token, const char *text, size_t n) {
    char bytes[WEFT_ADDED_LONGEST];
    size_t n_bytes;
    if (!to_bytes(r->byte, text, n, bytes, &n_bytes)) return token->n == n && memcmp(token->bytes, text, n) == 0;
    return token->n == n_bytes && memcmp(token->bytes, bytes, n_bytes) == 0;
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

    bool special = false, normalized = true;
    WEFT_TRY(must_be_off(at, "single_word", false, r->e));
    WEFT_TRY(must_be_off(at, "lstrip", false, r->e));
    WEFT_TRY(must_be_off(at, "rstrip", false, r->e));
    WEFT_TRY(weft_json_bool(at, "special", &special, r->e));
    WEFT_TRY(weft_json_bool(at, "normalized", &normalized, r->e));
    normalized &= r->t->nfc; /* without a normaliser there is nothing to wait for */
    if (normalized && special)
        return weft_fail(r->e, WEFT_ESUPPORT, "the added token '%s' is both special and normalized, which this version does not do",
                         text);

    weft_token *token = &r->t->vocab.token[id];
    if (token->kind != WEFT_TOKEN_NONE && !same_token(r, token, text, n))
        return weft_fail(r->e, WEFT_EFORMAT, "the added token '%s' and another token both have the id %d", text, (int)id);
    char *kept = weft_arena_str(&r->t->text, text, n);
    if (!kept) return oom(r->e);
    if (token->kind == WEFT_TOKEN_NONE) *token = (weft_token){kept, (uint32_t)n, WEFT_TOKEN_PLAIN};
    if (special) token->kind = WEFT_TOKEN_SPECIAL;
    weft_added_token entry = {kept, n, id, special};
    return weft_vec_push(normalized ? &r->t->normal : &r->t->raw, entry) ? WEFT_OK : oom(r->e);
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
    WEFT_TRY(must_be_off(model, "byte_fallback", false, r->e));
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
    WEFT_TRY(read_bytes(r));
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
    (void)at;
    if (strcmp(type, "NFC") != 0) return unknown("normalizer", type, r->e);
    r->t->nfc = true;
    return WEFT_OK;
}

static weft_status read_split(struct reader *r, weft_json_at at) {
    weft_json_at pattern = {NULL, "pre_tokenizer.pattern."};
    const char *behavior, *regex;
    WEFT_TRY(need_text(at, "behavior", &behavior, r->e));
    if (strcmp(behavior, "Isolated") != 0) return unknown("split behavior", behavior, r->e);
    WEFT_TRY(must_be_off(at, "invert", false, r->e));
    WEFT_TRY(weft_json_need(at, "pattern", r->e));
    WEFT_TRY(weft_json_object(at, "pattern", &pattern.object, r->e));
    WEFT_TRY(need_text(pattern, "Regex", &regex, r->e));
    return weft_split_add(&r->t->split, regex, strlen(regex), r->e);
}

static weft_status read_pre_tokenizer(struct reader *r, weft_json_at at, const char *type) {
    if (r->byte_level) return weft_fail(r->e, WEFT_ESUPPORT, "the pre_tokenizer '%s' comes after ByteLevel", type);
    if (strcmp(type, "Split") == 0) return read_split(r, at);
    if (strcmp(type, "ByteLevel") != 0) return unknown("pre_tokenizer", type, r->e);
    bool use_regex = true;
    WEFT_TRY(must_be_off(at, "add_prefix_space", true, r->e));
    WEFT_TRY(weft_json_bool(at, "use_regex", &use_regex, r->e));
    r->byte_level = true;
    return use_regex ? weft_split_add(&r->t->split, gpt2_pattern, strlen(gpt2_pattern), r->e) : WEFT_OK;
}

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
    if (!r->byte_level)
        return weft_fail(r->e, WEFT_ESUPPORT, "the pre_tokenizer has no ByteLevel step: not a byte-level tokenizer");
    WEFT_TRY(read_model(r, root));
    return read_component(r, root, "post_processor", "post_processor.", "processors", read_post_processor);
}

static weft_status build(weft_tokenizer **t, struct json_object *root, weft_error *e) {
    struct reader r = {.t = weft_calloc(1, sizeof **t), .e = e};
    if (!r.t) return oom(e);
    alphabet(r.byte);
    weft_status status = read_root(&r, (weft_json_at){root, ""});
    weft_str_free(&r.text);
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

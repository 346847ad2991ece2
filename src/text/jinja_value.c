/* jinja_value.c: see jinja_value.h. */
#include "text/jinja_value.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/num.h"
#include "text/utf8.h"

/* ---- errors, memory, work ------------------------------------------------------------------------------------------------ */

bool weft_jj_fail(jj *j, weft_status code, const char *fmt, ...) {
    if (j->status != WEFT_OK) return false;
    weft_error e = {0};
    va_list ap;
    va_start(ap, fmt);
    int n = weft_vformat(e.text, sizeof e.text, fmt, ap);
    va_end(ap);
    if (n < 0) e.text[0] = 0;
    /* What raise_exception() says is the template's own text. */
    j->status = j->line > 0 && code != WEFT_EINVAL ? weft_fail(j->e, code, "line %d: %s", j->line, e.text)
                                                   : weft_fail(j->e, code, "%s", e.text);
    return false;
}

bool weft_jj_out_of_work(jj *j) {
    j->work = 0;
    return weft_jj_fail(j, WEFT_ESUPPORT, "the template takes too many steps; is it meant for messages as long as these?");
}

bool weft_jj_enter(jj *j) {
    if (j->depth >= JJ_DEPTH) return weft_jj_fail(j, WEFT_ESUPPORT, "the template or its values are nested too deeply");
    j->depth++;
    return true;
}

void *weft_jj_get(jj *j, size_t n, size_t size) {
    size_t bytes;
    if (j->status != WEFT_OK) return NULL;
    if (!weft_mul_size(n, size, &bytes) || !weft_add_size(bytes, 16, &bytes) || bytes > j->memory) {
        weft_jj_fail(j, WEFT_ESUPPORT, "the template takes too much memory");
        return NULL;
    }
    if (!weft_jj_spend(j, bytes / 64)) return NULL;
    void *p = weft_arena_get(&j->arena, n, size);
    if (!p) {
        j->status = weft_fail_oom(j->e, "a chat template");
        return NULL;
    }
    j->memory -= bytes;
    return p;
}

bool weft_jj_room(jj *j, void **v, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return true;
    size_t more = *cap < 4 ? 4 : *cap * 2;
    if (more < need) more = need;
    void *p = weft_jj_get(j, more, size);
    if (!p) return false;
    if (*cap) memcpy(p, *v, *cap * size);
    *v = p;
    *cap = more;
    return true;
}

/* ---- strings ------------------------------------------------------------------------------------------------------------- */

size_t weft_jj_count_chars(const char *p, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)p[i] & 0xC0) != 0x80;
    return chars;
}

static bool well_formed(const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        int32_t cp;
        if ((unsigned char)p[i] < 0x80) {
            i++;
            continue;
        }
        i += weft_utf8_next(p + i, n - i, &cp);
        if (cp < 0) return false;
    }
    return true;
}

jj_str *weft_jj_str_view(jj *j, const char *p, size_t n, bool data) {
    jj_str *s = weft_jj_get(j, 1, sizeof *s);
    if (!s) return NULL;
    *s = (jj_str){.p = p, .n = n, .chars = weft_jj_count_chars(p, n), .data = data};
    return s;
}

jj_str *weft_jj_str(jj *j, const char *p, size_t n, bool data) {
    weft_str repaired = {0};
    if (!well_formed(p, n)) {
        if (!weft_utf8_add(&repaired, p, n)) {
            weft_str_free(&repaired);
            if (j->status == WEFT_OK) j->status = weft_fail_oom(j->e, "a chat template");
            return NULL;
        }
        p = repaired.p;
        n = repaired.n;
    }
    char *copy = weft_jj_get(j, n + 1, 1);
    if (copy && n) memcpy(copy, p, n);
    weft_str_free(&repaired);
    return copy ? weft_jj_str_view(j, copy, n, data) : NULL;
}

bool weft_jj_text(jj *j, const char *z, jj_value *out) {
    const jj_str *s = weft_jj_str_view(j, z, strlen(z), false);
    if (s) *out = weft_jj_of_str(s);
    return s != NULL;
}

/* Seeded with where the program lies in memory, which differs from process to process: keys that collide cannot be prepared. */
uint64_t weft_jj_hash(const jj_str *s) {
    static const char anchor = 0;
    if (s->hash) return s->hash;
    uint64_t h = weft_hash(s->p, s->n, (uint64_t)(uintptr_t)&anchor);
    return h ? h : 1;
}

bool weft_jj_same(const jj_str *a, const jj_str *b) {
    return a == b || (a->n == b->n && memcmp(a->p, b->p, a->n) == 0);
}

bool weft_jj_is(const jj_str *s, const char *z) {
    size_t n = strlen(z);
    return s->n == n && memcmp(s->p, z, n) == 0;
}

size_t weft_jj_byte_at(const jj_str *s, size_t k) {
    if (s->chars == s->n) return k;
    if (k == s->chars) return s->n;
    size_t i = 0;
    for (; k > 0 && i < s->n; k--)
        for (i++; i < s->n && ((unsigned char)s->p[i] & 0xC0) == 0x80;) i++;
    return i;
}

/* The number of the run that holds the byte at `at`. */
static size_t mark_at(const jj_str *s, size_t at) {
    size_t lo = 0, hi = s->n_marks - 1;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->marks[mid].end > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

bool weft_jj_data_at(const jj_str *s, size_t at) {
    return s->n_marks && at < s->n ? s->marks[mark_at(s, at)].data : s->data;
}

const jj_str *weft_jj_part(jj *j, const jj_str *s, size_t from, size_t to) {
    if (from == 0 && to == s->n) return s;
    jj_str *part = weft_jj_get(j, 1, sizeof *part);
    if (!part) return NULL;
    *part = (jj_str){.p = s->p + from, .n = to - from, .data = s->data, .safe = s->safe};
    if (s->chars == s->n) {
        part->chars = part->n;
    } else {
        if (!weft_jj_spend(j, part->n / 16)) return NULL;
        part->chars = weft_jj_count_chars(part->p, part->n);
    }
    if (s->n_marks && part->n) {
        size_t first = mark_at(s, from), last = mark_at(s, to - 1);
        if (first == last) {
            part->data = s->marks[first].data;
        } else {
            jj_mark *marks = weft_jj_get(j, last - first + 1, sizeof *marks);
            if (!marks) return NULL;
            for (size_t i = first; i <= last; i++) marks[i - first] = (jj_mark){s->marks[i].end - from, s->marks[i].data};
            marks[last - first].end = part->n;
            part->marks = marks;
            part->n_marks = last - first + 1;
        }
    }
    return part;
}

const jj_str *weft_jj_with_safe(jj *j, const jj_str *s, bool safe) {
    if (s->safe == safe) return s;
    jj_str *copy = weft_jj_get(j, 1, sizeof *copy);
    if (!copy) return NULL;
    *copy = *s;
    copy->safe = safe;
    return copy;
}

void weft_jj_sb_add(jj_sb *b, const char *p, size_t n, bool data) {
    if (b->failed || n == 0) return;
    if (n > b->j->output - b->n) {
        b->failed = !weft_jj_fail(b->j, WEFT_ESUPPORT, "the template makes too long a text, over %zu bytes", b->j->output);
        return;
    }
    if (!weft_jj_spend(b->j, 1 + n / 16) || !weft_jj_room(b->j, (void **)&b->p, &b->cap, b->n + n, 1)) {
        b->failed = true;
        return;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    if (b->marks.n && b->marks.v[b->marks.n - 1].data == data) {
        b->marks.v[b->marks.n - 1].end = b->n;
    } else if (weft_jj_room(b->j, (void **)&b->marks.v, &b->marks.cap, b->marks.n + 1, sizeof *b->marks.v)) {
        b->marks.v[b->marks.n++] = (jj_mark){b->n, data};
    } else {
        b->failed = true;
    }
}

void weft_jj_sb_addz(jj_sb *b, const char *z) {
    weft_jj_sb_add(b, z, strlen(z), false);
}

void weft_jj_sb_add_part(jj_sb *b, const jj_str *s, size_t from, size_t to) {
    if (from >= to) return;
    if (!s->n_marks) {
        weft_jj_sb_add(b, s->p + from, to - from, s->data);
        return;
    }
    for (size_t i = mark_at(s, from); from < to; i++) {
        size_t end = s->marks[i].end < to ? s->marks[i].end : to;
        weft_jj_sb_add(b, s->p + from, end - from, s->marks[i].data);
        from = end;
    }
}

void weft_jj_sb_add_escaped(jj_sb *b, const jj_str *s) {
    if (s->safe) {
        weft_jj_sb_add_str(b, s);
        return;
    }
    size_t from = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *entity = s->p[i] == '&'    ? "&amp;"
                             : s->p[i] == '<'  ? "&lt;"
                             : s->p[i] == '>'  ? "&gt;"
                             : s->p[i] == '"'  ? "&#34;"
                             : s->p[i] == '\'' ? "&#39;"
                                               : NULL;
        if (!entity) continue;
        weft_jj_sb_add_part(b, s, from, i);
        weft_jj_sb_add(b, entity, strlen(entity), weft_jj_data_at(s, i));
        from = i + 1;
    }
    weft_jj_sb_add_part(b, s, from, s->n);
}

bool weft_jj_sb_end(jj_sb *b, bool safe, jj_value *out) {
    if (b->failed) return false;
    jj_str *s = weft_jj_str_view(b->j, b->p ? b->p : "", b->n, b->marks.n ? b->marks.v[0].data : false);
    if (!s) return false;
    if (b->marks.n > 1) {
        s->marks = b->marks.v;
        s->n_marks = b->marks.n;
    }
    s->safe = safe;
    *out = weft_jj_of_str(s);
    return true;
}

/* ---- lists and maps ------------------------------------------------------------------------------------------------------ */

bool weft_jj_list(jj *j, size_t cap, jj_value *out) {
    jj_list *l = weft_jj_get(j, 1, sizeof *l);
    if (!l || !weft_jj_room(j, (void **)&l->v, &l->cap, cap, sizeof *l->v)) return false;
    *out = (jj_value){.kind = JJ_LIST};
    out->list = l;
    return true;
}

bool weft_jj_push(jj *j, jj_list *l, jj_value v) {
    if (!weft_jj_room(j, (void **)&l->v, &l->cap, l->n + 1, sizeof *l->v)) return false;
    l->v[l->n++] = v;
    return true;
}

bool weft_jj_pair(jj *j, jj_value a, jj_value b, jj_value *out) {
    if (!weft_jj_list(j, 2, out)) return false;
    out->kind = JJ_TUPLE;
    return weft_jj_push(j, out->list, a) && weft_jj_push(j, out->list, b);
}

bool weft_jj_map(jj *j, jj_value *out) {
    jj_map *m = weft_jj_get(j, 1, sizeof *m);
    if (!m) return false;
    *out = (jj_value){.kind = JJ_MAP};
    out->map = m;
    return true;
}

/* Equal keys have equal hashes: 1, 1.0 and True are one key. Fails for what cannot be a key. */
static bool hash_of(jj *j, jj_value v, uint64_t *out) {
    uint64_t h = 0;
    switch ((jj_kind)v.kind) {
    case JJ_STR:
    case JJ_BIG: h = weft_jj_hash(v.s); break;
    case JJ_BOOL:
    case JJ_INT:
        v.i = v.kind == JJ_BOOL ? v.b : v.i;
        h = weft_hash(&v.i, sizeof v.i, 1);
        break;
    case JJ_FLOAT:
        if (v.f >= -0x1p63 && v.f < 0x1p63 && v.f == trunc(v.f)) return hash_of(j, weft_jj_int((int64_t)v.f), out);
        h = weft_hash(&v.f, sizeof v.f, 2);
        break;
    case JJ_TUPLE:
        if (!weft_jj_spend(j, 1) || !weft_jj_enter(j)) return false;
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t item;
            if (!hash_of(j, v.list->v[i], &item)) return false;
            h = weft_hash(&item, sizeof item, h);
        }
        weft_jj_leave(j);
        break;
    case JJ_LIST:
    case JJ_MAP:
    case JJ_VIEW: return weft_jj_type_error(j, "unhashable type: '%s'", weft_jj_type(v));
    case JJ_NONE:
    case JJ_UNDEFINED: h = 4 + v.kind; break;
    case JJ_FUNC: h = 32 + (uint64_t)v.i; break;
    default: h = weft_hash(&v.p, sizeof v.p, 5); break;
    }
    *out = h;
    return true;
}

enum { SMALL = 8 }; /* entries that are searched one by one */

static void index_entry(jj_map *m, size_t entry) {
    size_t at = m->v[entry].hash & (m->n_index - 1);
    while (m->index[at]) at = (at + 1) & (m->n_index - 1);
    m->index[at] = (uint32_t)entry + 1;
}

/* The next entry with this hash after *state, which is 0 at first; NULL when there is none. */
static jj_entry *probe(const jj_map *m, uint64_t hash, size_t *state) {
    if (!m->index) {
        while (*state < m->n)
            if (m->v[(*state)++].hash == hash) return &m->v[*state - 1];
        return NULL;
    }
    for (;;) {
        uint32_t entry = m->index[(hash + (*state)++) & (m->n_index - 1)];
        if (!entry) return NULL;
        if (m->v[entry - 1].hash == hash) return &m->v[entry - 1];
    }
}

jj_value *weft_jj_find(const jj_map *m, const jj_str *key) {
    uint64_t hash = weft_jj_hash(key);
    size_t state = 0;
    for (jj_entry *e; (e = probe(m, hash, &state)) != NULL;)
        if (e->key.kind == JJ_STR && weft_jj_same(e->key.s, key)) return &e->value;
    return NULL;
}

static bool find_entry(jj *j, const jj_map *m, jj_value key, uint64_t hash, jj_entry **found) {
    size_t state = 0;
    for (jj_entry *e; (e = probe(m, hash, &state)) != NULL;) {
        bool equal;
        if (!weft_jj_equal(j, e->key, key, &equal)) return false;
        if (equal) return *found = e, true;
    }
    *found = NULL;
    return true;
}

bool weft_jj_lookup(jj *j, const jj_map *m, jj_value key, jj_value **found) {
    uint64_t hash;
    jj_entry *e;
    if (!hash_of(j, key, &hash) || !find_entry(j, m, key, hash, &e)) return false;
    *found = e ? &e->value : NULL;
    return true;
}

bool weft_jj_put(jj *j, jj_map *m, jj_value key, jj_value value) {
    uint64_t hash;
    jj_entry *e;
    if (!hash_of(j, key, &hash) || !find_entry(j, m, key, hash, &e)) return false;
    if (e) return e->value = value, true;
    if (m->n >= UINT32_MAX / 4) return weft_jj_fail(j, WEFT_ESUPPORT, "a dict with too many keys");
    if (!weft_jj_room(j, (void **)&m->v, &m->cap, m->n + 1, sizeof *m->v)) return false;
    if (m->n >= SMALL && (m->n + 1) * 2 > m->n_index) {
        size_t n = m->n_index ? m->n_index * 2 : 4 * SMALL;
        uint32_t *index = weft_jj_get(j, n, sizeof *index);
        if (!index) return false;
        m->index = index;
        m->n_index = n;
        for (size_t i = 0; i < m->n; i++) index_entry(m, i);
    }
    m->v[m->n] = (jj_entry){key, value, hash};
    if (m->index) index_entry(m, m->n);
    m->n++;
    return true;
}

/* ---- names of types, undefined values ------------------------------------------------------------------------------------ */

const char *weft_jj_type(jj_value v) {
    switch ((jj_kind)v.kind) {
    case JJ_MISSING:
    case JJ_UNDEFINED: return "Undefined";
    case JJ_NONE: return "NoneType";
    case JJ_BOOL: return "bool";
    case JJ_INT:
    case JJ_BIG: return "int";
    case JJ_FLOAT: return "float";
    case JJ_STR: return v.s && v.s->safe ? "Markup" : "str";
    case JJ_LIST: return "list";
    case JJ_TUPLE: return "tuple";
    case JJ_MAP: return "dict";
    case JJ_RANGE: return "range";
    case JJ_VIEW: return v.aux == JJ_KEYS ? "dict_keys" : v.aux == JJ_VALUES ? "dict_values" : "dict_items";
    case JJ_ITER: return "generator";
    case JJ_NAMESPACE: return "Namespace";
    case JJ_MACRO: return "Macro";
    case JJ_FUNC: return "function";
    case JJ_METHOD: return "builtin_function_or_method";
    case JJ_LOOP: return "LoopContext";
    case JJ_CYCLER: return "Cycler";
    case JJ_JOINER: return "Joiner";
    }
    return "object";
}

bool weft_jj_fail_undefined(jj *j, jj_value v) {
    if (v.aux == JJ_NO_HINT) return weft_jj_fail(j, WEFT_EFORMAT, "%s", (const char *)v.p);
    int n = v.s ? v.s->n < 200 ? (int)v.s->n : 200 : 0;
    const char *name = v.s ? v.s->p : "";
    if (v.aux == JJ_NO_NAME) return weft_jj_fail(j, WEFT_EFORMAT, "'%.*s' is undefined", n, name);
    if (v.aux == JJ_NO_ACCESS)
        return weft_jj_fail(j, WEFT_EFORMAT, "access to attribute '%.*s' is unsafe: templates must not change values", n, name);
    jj_value owner = {.kind = (uint8_t)(v.aux - JJ_NO_ATTRIBUTE)};
    const char *type = owner.kind == JJ_NONE ? "None" : weft_jj_type(owner), *object = owner.kind == JJ_NONE ? "" : " object";
    if (!v.s) return weft_jj_fail(j, WEFT_EFORMAT, "%s%s has no such element", type, object);
    return weft_jj_fail(j, WEFT_EFORMAT, "'%s%s' has no attribute '%.*s'", type, object, n, name);
}

/* ---- variables ----------------------------------------------------------------------------------------------------------- */

weft_status weft_jinja_vars_open(weft_jinja_vars **out, weft_error *e) {
    *out = NULL;
    weft_jinja_vars *v = weft_calloc(1, sizeof *v);
    if (!v) return weft_fail_oom(e, "a template's variables");
    v->j = (jj){.memory = SIZE_MAX, .work = UINT64_MAX, .output = SIZE_MAX};
    jj_value names;
    if (!weft_jj_map(&v->j, &names)) {
        weft_jinja_vars_close(v);
        return weft_fail_oom(e, "a template's variables");
    }
    v->names = names.map;
    *out = v;
    return WEFT_OK;
}

void weft_jinja_vars_close(weft_jinja_vars *v) {
    if (!v) return;
    weft_arena_free(&v->j.arena);
    weft_free(v);
}

weft_jinja_value weft_jinja_none(void) {
    return weft_jj_none();
}
weft_jinja_value weft_jinja_bool(bool b) {
    return weft_jj_bool(b);
}
weft_jinja_value weft_jinja_int(int64_t i) {
    return weft_jj_int(i);
}
weft_jinja_value weft_jinja_float(double f) {
    return weft_jj_float(f);
}

weft_jinja_value weft_jinja_text(weft_jinja_vars *v, const char *text, size_t n, bool trusted) {
    jj_str *s = weft_jj_str(&v->j, text, n, !trusted);
    return s ? weft_jj_of_str(s) : weft_jj_none();
}

weft_jinja_value weft_jinja_list(weft_jinja_vars *v) {
    jj_value list;
    return weft_jj_list(&v->j, 0, &list) ? list : weft_jj_none();
}

weft_jinja_value weft_jinja_map(weft_jinja_vars *v) {
    jj_value map;
    return weft_jj_map(&v->j, &map) ? map : weft_jj_none();
}

void weft_jinja_append(weft_jinja_vars *v, weft_jinja_value list, weft_jinja_value item) {
    if (list.kind == JJ_LIST) weft_jj_push(&v->j, list.list, item);
}

void weft_jinja_put(weft_jinja_vars *v, weft_jinja_value map, const char *key, size_t n, bool trusted, weft_jinja_value value) {
    if (map.kind != JJ_MAP) return;
    jj_str *s = weft_jj_str(&v->j, key, n, !trusted);
    if (!s) return;
    s->hash = weft_jj_hash(s);
    weft_jj_put(&v->j, map.map, weft_jj_of_str(s), value);
}

void weft_jinja_set(weft_jinja_vars *v, const char *name, weft_jinja_value value) {
    jj_value names = {.kind = JJ_MAP};
    names.map = v->names;
    weft_jinja_put(v, names, name, strlen(name), true, value);
}

weft_jinja_value weft_jinja_json(weft_jinja_vars *v, struct json_object *json, bool trusted) {
    switch (json_object_get_type(json)) {
    case json_type_null: return weft_jj_none();
    case json_type_boolean: return weft_jj_bool(json_object_get_boolean(json));
    case json_type_double: return weft_jj_float(json_object_get_double(json));
    case json_type_int: {
        int64_t i = json_object_get_int64(json);
        uint64_t u = i == INT64_MAX ? json_object_get_uint64(json) : 0;
        if (u <= (uint64_t)INT64_MAX) return weft_jj_int(i);
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)u);
        jj_value big = weft_jinja_text(v, digits, (size_t)n, true);
        if (big.kind == JJ_STR) big.kind = JJ_BIG;
        return big;
    }
    case json_type_string:
        return weft_jinja_text(v, json_object_get_string(json), (size_t)json_object_get_string_len(json), trusted);
    case json_type_array: {
        jj_value list = weft_jinja_list(v);
        for (size_t i = 0, n = json_object_array_length(json); i < n; i++)
            weft_jinja_append(v, list, weft_jinja_json(v, json_object_array_get_idx(json, i), trusted));
        return list;
    }
    case json_type_object: {
        jj_value map = weft_jinja_map(v);
        json_object_object_foreach(json, key, item) {
            weft_jinja_put(v, map, key, strlen(key), trusted, weft_jinja_json(v, item, trusted));
        }
        return map;
    }
    }
    return weft_jj_none();
}

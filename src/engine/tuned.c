/* tuned.c: see tuned.h. */
#include "engine/tuned.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dirs.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/num.h"
#include "format/json.h"

enum { LARGEST = 1 << 16, MAX_THREADS = 65536, MAX_ROUNDS = 1000, MAX_TOKENS = 1 << 22 };

/* A pass takes 1 ns to 1000 s. */
#define LEAST_NS 1.0
#define MOST_NS 1e12

static const char *const drafters[WEFT_LEARNERS] = {[WEFT_DRAFTER_MODEL] = "model", [WEFT_DRAFTER_LOOKUP] = "lookup"};

bool weft_tuned_path(weft_str *path, const char *dir, const weft_tuned_key *k) {
    char label[WEFT_LABEL + 1], source[33];
    weft_str rest = {0};
    weft_cache_label(label, k->model);
    weft_hash128_text(k->source, source);
    bool ok = weft_str_addf(&rest, "%s\n%s\n%s\n%d\n%d\n%d", k->processor, k->isa, k->kv, k->threads, k->precise, k->drafter);
    unsigned long long hash = ok ? weft_hash(rest.p, rest.n, 0) : 0;
    ok = ok && weft_str_addf(path, "%s/%s-%s-%016llx.json", dir, label, source, hash);
    weft_str_free(&rest);
    return ok;
}

/* To whole nanoseconds of [least, most]; 0 stays. */
static double held(double ns, double least, double most) {
    if (!(ns > 0)) return 0;
    ns = floor(ns + 0.5);
    return ns < least ? least : ns > most ? most : ns;
}

/* Whole, and not quite as far as times_fit() lets them be, so that it holds of them however they are rounded when they are
 * written. */
void weft_tuned_limit(weft_tuned *t) {
    double one = t->pass_ns[1] = held(t->pass_ns[1], LEAST_NS, MOST_NS);
    double least = ceil(0.26 * one), most = floor(63 * one);
    if (most > MOST_NS) most = MOST_NS;
    for (int r = 2; r <= WEFT_TUNED_ROWS; r++) t->pass_ns[r] = held(t->pass_ns[r], least, most);
    t->link_ns = held(t->link_ns, 0, most);
}

static bool times_fit(const weft_tuned *t) {
    const double least = 0.25 * t->pass_ns[1], most = 64 * t->pass_ns[1];
    for (int r = 2; r <= WEFT_TUNED_ROWS; r++)
        if (t->pass_ns[r] > 0 && (t->pass_ns[r] < least || t->pass_ns[r] > most)) return false;
    return t->link_ns <= most;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static weft_status read_text(weft_json_at at, const char *key, char *to, size_t size, weft_error *e) {
    const char *text = "";
    WEFT_TRY(weft_json_need(at, key, e));
    WEFT_TRY(weft_json_text(at, key, &text, e));
    if (strlen(text) >= size) return weft_fail(e, WEFT_EFORMAT, "'%s%s' has more than %zu bytes", at.path, key, size - 1);
    memcpy(to, text, strlen(text) + 1);
    return WEFT_OK;
}

static weft_status read_int(weft_json_at at, const char *key, int64_t least, int64_t most, int *to, weft_error *e) {
    int64_t v = 0;
    WEFT_TRY(weft_json_need(at, key, e));
    WEFT_TRY(weft_json_int(at, key, least, most, &v, e));
    *to = (int)v;
    return WEFT_OK;
}

static weft_status read_number(weft_json_at at, const char *key, double least, double most, double *to, weft_error *e) {
    WEFT_TRY(weft_json_need(at, key, e));
    return weft_json_number(at, key, least, most, to, e);
}

/* An array of exactly n values, null where there is none: `none` then. */
static weft_status read_numbers(weft_json_at at, const char *key, int n, double least, double most, double none, double *to,
                                weft_error *e) {
    struct json_object *l = NULL;
    WEFT_TRY(weft_json_need(at, key, e));
    WEFT_TRY(weft_json_array(at, key, (size_t)n, &l, e));
    if (json_object_array_length(l) != (size_t)n)
        return weft_fail(e, WEFT_EFORMAT, "'%s%s' has %zu values; expected %d", at.path, key, json_object_array_length(l), n);
    for (int i = 0; i < n; i++) {
        struct json_object *v = json_object_array_get_idx(l, (size_t)i);
        to[i] = none;
        if (v) WEFT_TRY(weft_json_number_value(v, at, key, least, most, &to[i], e));
    }
    return WEFT_OK;
}

static weft_status read_source(weft_json_at at, uint8_t source[16], weft_error *e) {
    static const char digits[] = "0123456789abcdef";
    char text[33];
    WEFT_TRY(read_text(at, "source", text, sizeof text, e));
    if (strlen(text) != 32 || strspn(text, digits) != 32)
        return weft_fail(e, WEFT_EFORMAT, "'source' is not 32 hexadecimal digits");
    for (int i = 0; i < 16; i++)
        source[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 | (strchr(digits, text[2 * i + 1]) - digits));
    return WEFT_OK;
}

static weft_status read_key(weft_json_at at, weft_tuned_key *k, weft_error *e) {
    WEFT_TRY(read_text(at, "model", k->model, sizeof k->model, e));
    WEFT_TRY(read_source(at, k->source, e));
    WEFT_TRY(read_text(at, "processor", k->processor, sizeof k->processor, e));
    WEFT_TRY(read_text(at, "isa", k->isa, sizeof k->isa, e));
    WEFT_TRY(read_text(at, "kv", k->kv, sizeof k->kv, e));
    WEFT_TRY(read_int(at, "threads", 1, MAX_THREADS, &k->threads, e));
    WEFT_TRY(weft_json_need(at, "precise", e));
    WEFT_TRY(weft_json_bool(at, "precise", &k->precise, e));
    WEFT_TRY(weft_json_need(at, "drafter", e));
    return weft_json_bool(at, "drafter", &k->drafter, e);
}

static weft_status read_depth(weft_tuned *t, struct json_object *o, weft_error *e) {
    weft_tuned_depth *d = &t->depths[t->n_depths++];
    weft_json_at at = {o, "depths."};
    if (!json_object_is_type(o, json_type_object)) return weft_fail(e, WEFT_EFORMAT, "'depths' holds something else than objects");
    struct json_object *depth = weft_json_get(at, "depth");
    if (depth && json_object_is_type(depth, json_type_string) && strcmp(json_object_get_string(depth), "auto") == 0)
        d->depth = WEFT_DEPTH_AUTO;
    else
        WEFT_TRY(read_int(at, "depth", 0, WEFT_MAX_DEPTH, &d->depth, e));
    WEFT_TRY(read_number(at, "tok_s", 1e-6, 1e9, &d->tok_s, e));
    WEFT_TRY(read_number(at, "ratio", 1e-6, 1e6, &d->ratio, e));
    WEFT_TRY(read_number(at, "ratio_least", 1e-6, d->ratio, &d->least, e));
    WEFT_TRY(read_number(at, "ratio_most", d->ratio, 1e6, &d->most, e));
    WEFT_TRY(read_number(at, "tokens_per_pass", 1, WEFT_TUNED_ROWS, &d->tokens_per_pass, e));
    return read_numbers(at, "accepted", WEFT_MAX_DEPTH, 0, 1, -1, d->accepted, e);
}

/* 0 to 8, then auto. */
static weft_status read_depths(weft_tuned *t, weft_json_at at, weft_error *e) {
    struct json_object *l = NULL;
    WEFT_TRY(weft_json_need(at, "depths", e));
    WEFT_TRY(weft_json_array(at, "depths", WEFT_TUNED_DEPTHS, &l, e));
    for (size_t i = 0; i < json_object_array_length(l); i++) WEFT_TRY(read_depth(t, json_object_array_get_idx(l, i), e));
    for (int i = 0; i < WEFT_TUNED_DEPTHS; i++)
        if (i >= t->n_depths || t->depths[i].depth != (i < WEFT_TUNED_DEPTHS - 1 ? i : WEFT_DEPTH_AUTO))
            return weft_fail(e, WEFT_EFORMAT, "'depths' are not those of 0 to %d and auto", WEFT_MAX_DEPTH);
    return WEFT_OK;
}

/* Shares as weft_acceptance has them: 0 where null says that there is none. */
static weft_status read_shares(weft_json_at at, const char *key, int n, float *to, weft_error *e) {
    double share[WEFT_MAX_DEPTH > WEFT_SURENESS ? WEFT_MAX_DEPTH : WEFT_SURENESS];
    WEFT_TRY(read_numbers(at, key, n, 0.004, 1, 0, share, e));
    for (int i = 0; i < n; i++) to[i] = (float)share[i];
    return WEFT_OK;
}

static weft_status read_accepted(weft_tuned *t, weft_json_at at, weft_error *e) {
    struct json_object *o = NULL;
    WEFT_TRY(weft_json_need(at, "accepted", e));
    WEFT_TRY(weft_json_object(at, "accepted", &o, e));
    for (int d = 0; d < WEFT_LEARNERS; d++)
        WEFT_TRY(read_shares((weft_json_at){o, "accepted."}, drafters[d], WEFT_MAX_DEPTH, t->accepted[d].share, e));
    return read_shares(at, "sureness", WEFT_SURENESS, t->sureness.share, e);
}

static weft_status read_table(weft_tuned *t, weft_json_at at, weft_error *e) {
    int64_t date = 0;
    WEFT_TRY(read_text(at, "version", t->version, sizeof t->version, e));
    WEFT_TRY(weft_json_need(at, "date", e));
    WEFT_TRY(weft_json_int(at, "date", 0, 253402300799, &date, e)); /* the year 9999 */
    t->date = date;
    WEFT_TRY(read_key(at, &t->key, e));
    WEFT_TRY(read_int(at, "rounds", 1, MAX_ROUNDS, &t->rounds, e));
    WEFT_TRY(read_int(at, "tokens", 1, MAX_TOKENS, &t->tokens, e));
    WEFT_TRY(read_numbers(at, "pass_ns", WEFT_TUNED_ROWS, LEAST_NS, MOST_NS, 0, &t->pass_ns[1], e));
    WEFT_TRY(read_number(at, "link_ns", 0, MOST_NS, &t->link_ns, e));
    if (t->pass_ns[1] == 0) return weft_fail(e, WEFT_EFORMAT, "'pass_ns' lacks the pass of one row");
    if (!times_fit(t)) return weft_fail(e, WEFT_EFORMAT, "times in 'pass_ns' and 'link_ns' are too far from that of one row");
    WEFT_TRY(read_accepted(t, at, e));
    return read_depths(t, at, e);
}

weft_status weft_tuned_parse(weft_tuned *t, const char *text, size_t n, weft_error *e) {
    struct json_object *root;
    *t = (weft_tuned){0};
    WEFT_TRY(weft_json_parse(&root, text, n, e));
    weft_status s = read_table(t, (weft_json_at){root, ""}, e);
    if (s == WEFT_OK) weft_tuned_limit(t);
    json_object_put(root);
    return s;
}

/* NULL, or what the table was measured for that this is not. */
static const char *difference(const weft_tuned_key *a, const weft_tuned_key *b) {
    if (memcmp(a->source, b->source, sizeof a->source) != 0) return "another model";
    if (strcmp(a->processor, b->processor) != 0) return "another processor";
    if (strcmp(a->isa, b->isa) != 0 || a->precise != b->precise) return "other kernels";
    if (strcmp(a->kv, b->kv) != 0) return "another type of keys and values";
    if (a->threads != b->threads) return "another number of threads";
    return a->drafter != b->drafter ? "another drafter" : NULL;
}

weft_status weft_tuned_read(weft_tuned *t, const char *path, const weft_tuned_key *key, weft_error *e) {
    char *text;
    size_t n;
    WEFT_TRY(weft_file_read(path, LARGEST, &text, &n, e));
    weft_status s = weft_tuned_parse(t, text, n, e);
    weft_free(text);
    if (t->version[0] && strcmp(t->version, WEFT_VERSION) != 0) /* whose tables may look different */
        return weft_fail(e, WEFT_ESUPPORT, "%s: was measured by version %s", path, t->version);
    if (s != WEFT_OK) {
        weft_fail_in(e, path);
        return s;
    }
    const char *other = difference(&t->key, key);
    if (other) return weft_fail(e, WEFT_EINVAL, "%s: was measured with %s", path, other);
    snprintf(t->key.model, sizeof t->key.model, "%s", key->model); /* as it is called here: the same weights */
    return WEFT_OK;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static struct json_object *number(double v) {
    weft_str text = {0};
    struct json_object *o = weft_str_addf(&text, "%.9g", v) ? json_object_new_double_s(v, text.p) : NULL;
    weft_str_free(&text);
    return o;
}

/* Both take v over, and refuse NULL. */
static bool put(struct json_object *o, const char *key, struct json_object *v) {
    if (v && json_object_object_add(o, key, v) == 0) return true;
    json_object_put(v);
    return false;
}
static bool append(struct json_object *l, struct json_object *v) {
    if (v && json_object_array_add(l, v) == 0) return true;
    json_object_put(v);
    return false;
}
static bool put_text(struct json_object *o, const char *key, const char *v) {
    return put(o, key, json_object_new_string(v));
}
static bool put_int(struct json_object *o, const char *key, int64_t v) {
    return put(o, key, json_object_new_int64(v));
}
static bool put_bool(struct json_object *o, const char *key, bool v) {
    return put(o, key, json_object_new_boolean(v));
}

/* Null below `least`: not measured. */
static bool put_numbers(struct json_object *o, const char *key, const double *v, int n, double least) {
    struct json_object *l = json_object_new_array();
    bool ok = put(o, key, l);
    for (int i = 0; i < n && ok; i++) ok = v[i] >= least ? append(l, number(v[i])) : json_object_array_add(l, NULL) == 0;
    return ok;
}

static bool put_key(struct json_object *o, const weft_tuned_key *k) {
    char source[33], label[WEFT_LABEL + 1];
    weft_hash128_text(k->source, source);
    weft_cache_label(label, k->model); /* a folder's name may be no UTF-8 */
    return put_text(o, "model", label) && put_text(o, "source", source) && put_text(o, "processor", k->processor) &&
           put_text(o, "isa", k->isa) && put_text(o, "kv", k->kv) && put_int(o, "threads", k->threads) &&
           put_bool(o, "precise", k->precise) && put_bool(o, "drafter", k->drafter);
}

static bool put_shares(struct json_object *o, const char *key, const float *v, int n) {
    double share[WEFT_MAX_DEPTH > WEFT_SURENESS ? WEFT_MAX_DEPTH : WEFT_SURENESS];
    for (int i = 0; i < n; i++) share[i] = (double)v[i];
    return put_numbers(o, key, share, n, 1e-6);
}

static bool put_accepted(struct json_object *o, const weft_tuned *t) {
    struct json_object *all = json_object_new_object();
    bool ok = put(o, "accepted", all);
    for (int d = 0; d < WEFT_LEARNERS && ok; d++) ok = put_shares(all, drafters[d], t->accepted[d].share, WEFT_MAX_DEPTH);
    return ok && put_shares(o, "sureness", t->sureness.share, WEFT_SURENESS);
}

static bool put_depths(struct json_object *o, const weft_tuned *t) {
    struct json_object *l = json_object_new_array();
    bool ok = put(o, "depths", l);
    for (int i = 0; i < t->n_depths && ok; i++) {
        const weft_tuned_depth *d = &t->depths[i];
        struct json_object *x = json_object_new_object();
        ok = append(l, x) && (d->depth == WEFT_DEPTH_AUTO ? put_text(x, "depth", "auto") : put_int(x, "depth", d->depth)) &&
             put(x, "tok_s", number(d->tok_s)) && put(x, "ratio", number(d->ratio)) && put(x, "ratio_least", number(d->least)) &&
             put(x, "ratio_most", number(d->most)) && put(x, "tokens_per_pass", number(d->tokens_per_pass)) &&
             put_numbers(x, "accepted", d->accepted, WEFT_MAX_DEPTH, 0);
    }
    return ok;
}

struct json_object *weft_tuned_json(const weft_tuned *t) {
    struct json_object *o = json_object_new_object();
    bool ok = o && put_text(o, "version", t->version) && put_int(o, "date", t->date) && put_key(o, &t->key) &&
              put_int(o, "rounds", t->rounds) && put_int(o, "tokens", t->tokens) &&
              put_numbers(o, "pass_ns", &t->pass_ns[1], WEFT_TUNED_ROWS, LEAST_NS) && put(o, "link_ns", number(t->link_ns)) &&
              put_accepted(o, t) && put_depths(o, t);
    if (ok) return o;
    json_object_put(o);
    return NULL;
}

weft_status weft_tuned_write(const weft_tuned *t, const char *path, weft_error *e) {
    const char *slash = strrchr(path, '/');
    weft_str text = {0}, dir = {0};
    struct json_object *o = weft_tuned_json(t);
    const char *body = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED) : NULL;
    weft_status s = WEFT_OK;
    if (!body || !weft_str_addf(&text, "%s\n", body) ||
        !(slash ? weft_str_add(&dir, path, (size_t)(slash - path)) : weft_str_addz(&dir, ".")))
        s = weft_fail_oom(e, "the table of weft tune");
    if (s == WEFT_OK && dir.n) s = weft_dir_make(dir.p, e);
    if (s == WEFT_OK) s = weft_file_write(path, text.p, text.n, e);
    json_object_put(o);
    weft_str_free(&text);
    weft_str_free(&dir);
    return s;
}

void weft_tuned_start(const weft_tuned *t, weft_costs *costs, weft_acceptance accepted[WEFT_MODES][WEFT_LEARNERS],
                      weft_sureness *sureness) {
    enum { AS_MANY = 20 }; /* measurements of this run, in weight */
    for (int r = 1; r <= WEFT_TUNED_ROWS; r++) {
        costs->pass_ns[r] = t->pass_ns[r];
        costs->seen[r] = t->pass_ns[r] > 0 ? AS_MANY : 0;
    }
    costs->link_ns = t->link_ns;
    costs->links = t->link_ns > 0 ? AS_MANY : 0;
    for (int mode = 0; mode < WEFT_MODES; mode++) memcpy(accepted[mode], t->accepted, sizeof t->accepted);
    *sureness = t->sureness;
}

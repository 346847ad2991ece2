/* usage.c: see usage.h.
 *
 * The file LABEL-SOURCE.weftuse: a header of 40 bytes, then for each id that was said, ascending, the id and its count, then a
 * checksum of all that. Numbers as this machine writes them: it is a cache.
 *
 * Counts are halved when they are many, so that what is said now counts more than what was said a year ago. */
#include "format/usage.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/dirs.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

#define VERSION 1
#define BYTE_ORDER_MARK 0x01020304
#define MANY ((uint64_t)1 << 22) /* tokens: some 2000 long answers */

static const char magic[8] = {'w', 'e', 'f', 't', 'u', 's', 'e', '\n'};

typedef struct header {
    char magic[8];
    uint32_t version;
    uint32_t order; /* BYTE_ORDER_MARK */
    uint8_t source[16];
    uint32_t vocab;
    uint32_t entries;
} header;
_Static_assert(sizeof(header) == 40, "the header has no holes");

typedef struct entry {
    uint32_t id, times;
} entry;
_Static_assert(sizeof(entry) == 8, "an entry has no holes");

static size_t size_of(size_t entries) {
    return sizeof(header) + entries * sizeof(entry) + sizeof(uint64_t);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static weft_status read_entries(const uint8_t *data, size_t n, uint32_t vocab, uint32_t *counts, weft_error *e) {
    int64_t last = -1;
    for (size_t i = 0; i < n; i++) {
        entry x;
        memcpy(&x, data + sizeof(header) + i * sizeof x, sizeof x);
        if ((int64_t)x.id <= last || x.id >= vocab || !x.times)
            return weft_fail(e, WEFT_EFORMAT, "damaged: entry %zu is no count of an id", i);
        last = x.id;
        counts[x.id] = x.times;
    }
    return WEFT_OK;
}

weft_status weft_usage_parse(const uint8_t *data, size_t size, const uint8_t source[16], int vocab, uint32_t *counts,
                             weft_error *e) {
    header h;
    uint64_t sum;
    memset(counts, 0, (size_t)vocab * sizeof *counts);
    if (size < size_of(0)) return weft_fail(e, WEFT_EFORMAT, "cut short, %zu bytes", size);
    memcpy(&h, data, sizeof h);
    memcpy(&sum, data + size - sizeof sum, sizeof sum);
    if (memcmp(h.magic, magic, sizeof magic) != 0) return weft_fail(e, WEFT_EFORMAT, "damaged, or another kind of file");
    if (h.version != VERSION || h.order != BYTE_ORDER_MARK)
        return weft_fail(e, WEFT_ESUPPORT, "written by another version of weft or for another processor");
    if (memcmp(h.source, source, sizeof h.source) != 0 || h.vocab != (uint32_t)vocab)
        return weft_fail(e, WEFT_EINVAL, "counted on another checkpoint");
    if (h.entries > h.vocab || size != size_of(h.entries))
        return weft_fail(e, WEFT_EFORMAT, "damaged: %zu bytes long, which does not fit its header", size);
    if (sum != weft_hash(data, size - sizeof sum, 0)) return weft_fail(e, WEFT_EFORMAT, "damaged");
    weft_status s = read_entries(data, h.entries, h.vocab, counts, e);
    if (s != WEFT_OK) memset(counts, 0, (size_t)vocab * sizeof *counts);
    return s;
}

/* The file's counts; zeros where there is none that can be used, said in the log unless `silent`. */
static uint32_t *read_counts(const weft_usage *u, bool silent) {
    uint32_t *counts = weft_calloc((size_t)u->vocab, sizeof *counts);
    struct stat st;
    if (!counts || !u->path.n || (lstat(u->path.p, &st) != 0 && (errno == ENOENT || errno == ENOTDIR))) return counts;
    weft_map m = {0};
    weft_error why = {0};
    weft_status s = weft_map_open_own(&m, u->path.p, &why);
    if (s == WEFT_OK) {
        s = weft_usage_parse(m.data, m.size, u->source, u->vocab, counts, &why);
        if (s != WEFT_OK) weft_fail_in(&why, u->path.p);
    }
    if (s == WEFT_OK && (s = weft_map_check(&m, &why)) != WEFT_OK) memset(counts, 0, (size_t)u->vocab * sizeof *counts);
    weft_map_close(&m);
    if (s != WEFT_OK && !silent) weft_log(WEFT_LOG_WARN, "%s; which ids are frequent is counted anew", why.text);
    return counts;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

/* Adds what was said; returns how many ids have a count. */
static size_t add_said(const weft_usage *u, uint32_t *counts) {
    uint64_t total = 0;
    size_t n = 0;
    for (int i = 0; i < u->vocab; i++) {
        uint64_t sum = (uint64_t)counts[i] + u->said[i];
        counts[i] = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
        total += counts[i];
    }
    int halvings = 0;
    while (total >> halvings > MANY) halvings++;
    for (int i = 0; i < u->vocab; i++) n += (counts[i] >>= halvings) > 0;
    return n;
}

static void fill_file(const weft_usage *u, const uint32_t *counts, uint8_t *file, size_t n) {
    header h = {.version = VERSION, .order = BYTE_ORDER_MARK, .vocab = (uint32_t)u->vocab, .entries = (uint32_t)n};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.source, u->source, sizeof h.source);
    memcpy(file, &h, sizeof h);
    uint8_t *at = file + sizeof h;
    for (int i = 0; i < u->vocab; i++) {
        entry x = {(uint32_t)i, counts[i]};
        if (!x.times) continue;
        memcpy(at, &x, sizeof x);
        at += sizeof x;
    }
    uint64_t sum = weft_hash(file, (size_t)(at - file), 0);
    memcpy(at, &sum, sizeof sum);
}

/* What writers that were killed left of the file. */
static void remove_abandoned(const char *dir, const char *name) {
    DIR *d = opendir(dir);
    weft_str path = {0};
    for (struct dirent *f; d && (f = readdir(d));) {
        weft_str_clear(&path);
        if (weft_starts_with(f->d_name, name) && weft_ends_with(f->d_name, ".tmp") && weft_str_addf(&path, "%s/%s", dir, f->d_name))
            weft_file_remove_abandoned(path.p);
    }
    weft_str_free(&path);
    if (d) closedir(d);
}

static weft_status write_counts(const weft_usage *u, weft_error *e) {
    uint32_t *counts = read_counts(u, true);
    if (!counts) return weft_fail_oom(e, "counts of ids");
    size_t n = add_said(u, counts);
    char *dir = weft_strdup(u->path.p);
    char *name = dir ? strrchr(dir, '/') : NULL;
    if (name) *name++ = '\0';
    if (name) remove_abandoned(dir, name);
    weft_map m = {0};
    weft_status s = dir ? weft_dir_make(dir, e) : weft_fail_oom(e, "a path");
    if (s == WEFT_OK) s = weft_map_create(&m, u->path.p, size_of(n), e);
    if (s == WEFT_OK) {
        fill_file(u, counts, (uint8_t *)(uintptr_t)m.data, n);
        s = weft_map_publish(&m, e);
    }
    weft_map_close(&m);
    weft_free(dir);
    weft_free(counts);
    return s;
}

/* ---- use ----------------------------------------------------------------------------------------------------------------- */

weft_status weft_usage_open(weft_usage *u, const char *dir, const char *label, const uint8_t source[16], int vocab, weft_error *e) {
    char stem[WEFT_LABEL + 1], text[33];
    *u = (weft_usage){.vocab = vocab};
    memcpy(u->source, source, sizeof u->source);
    u->said = weft_calloc((size_t)vocab, sizeof *u->said);
    bool ok = u->said != NULL;
    if (ok && dir) {
        weft_cache_label(stem, label);
        weft_hash128_text(source, text);
        ok = weft_str_addf(&u->path, "%s/%s-%s.weftuse", dir, stem, text);
    }
    if (ok) return WEFT_OK;
    weft_usage_close(u);
    return weft_fail_oom(e, "counts of ids");
}

void weft_usage_close(weft_usage *u) {
    weft_error why = {0};
    if (u->tokens && u->path.n && write_counts(u, &why) != WEFT_OK)
        weft_log(WEFT_LOG_WARN, "cannot keep which ids are frequent, for better drafts at the next start: %s", why.text);
    weft_str_free(&u->path);
    weft_free(u->said);
    *u = (weft_usage){0};
}

static int by_count(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->times != y->times) return x->times > y->times ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

weft_status weft_usage_choose(const weft_usage *u, const int32_t *always, int n_always, int32_t *ids, int n, weft_error *e) {
    size_t vocab = (size_t)u->vocab;
    uint32_t *counts = read_counts(u, false);
    entry *order = weft_calloc(vocab, sizeof *order);
    bool *in = weft_calloc(vocab, sizeof *in);
    bool ok = counts && order && in;
    int left = n;
    for (int i = 0; i < n_always && left && ok; i++) {
        left -= !in[always[i]];
        in[always[i]] = true;
    }
    for (size_t i = 0; i < vocab && ok; i++) order[i] = (entry){(uint32_t)i, counts[i]};
    if (ok) qsort(order, vocab, sizeof *order, by_count); /* ids without a count follow in their own order: the lowest first */
    for (size_t i = 0; i < vocab && left && ok; i++) {
        left -= !in[order[i].id];
        in[order[i].id] = true;
    }
    for (size_t i = 0, at = 0; i < vocab && ok; i++)
        if (in[i]) ids[at++] = (int32_t)i;
    weft_free(counts);
    weft_free(order);
    weft_free(in);
    return ok ? WEFT_OK : weft_fail_oom(e, "the ids to draft from");
}

/* packed.c: see packed.h.
 *
 * The file LABEL-SOURCE-LAYOUT.weftpack: a header of 64 bytes, a checksum of every 4 MiB of the blobs, zeros, a checksum of all
 * that; from a multiple of 4096 on the blobs, to the file's end. Numbers as this machine writes them: it is a cache. */
#include "ops/cpu/packed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/dirs.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/num.h"
#include "base/vec.h"

#define SUFFIX ".weftpack"
#define BYTE_ORDER_MARK 0x01020304
#define CHUNK ((size_t)4 << 20) /* bytes under one checksum: some 0.5 ms of work */

enum { BLOB = 64, PAGE = 4096, TAG = 1 + 32 + 1 + 16, UNUSED_DAYS = 30 };

static const char magic[8] = {'w', 'e', 'f', 't', 'p', 'a', 'c', 'k'};

typedef struct header {
    char magic[8];
    uint32_t version;
    uint32_t order; /* BYTE_ORDER_MARK */
    uint8_t source[16];
    uint64_t layout;
    uint64_t bytes; /* of the blobs */
    uint64_t unused[2];
} header;
_Static_assert(sizeof(header) == 64, "the header has no holes");

struct weft_packed {
    weft_pool *pool;
    header header; /* of the file that is wanted */
    char label[WEFT_LABEL + 1];
    weft_str dir, path;         /* of the file; empty: nothing is kept */
    weft_map map;               /* the file; closed: none */
    WEFT_VEC(uint8_t *) blocks; /* the blobs where there is no file: blocks of their own, so that sanitizers see where each ends */
    size_t taken;
    bool ready;
};

/* ---- the layout of a file ------------------------------------------------------------------------------------------------ */

static size_t chunks_of(size_t bytes) {
    return (bytes + CHUNK - 1) / CHUNK;
}

/* Where the blobs begin; bytes is far from overflow, as these bytes are in memory or their file is as long. */
static size_t blobs_at(size_t bytes) {
    size_t n = sizeof(header) + (chunks_of(bytes) + 1) * sizeof(uint64_t);
    return (n + PAGE - 1) / PAGE * PAGE;
}

static uint64_t header_sum(const uint8_t *file, size_t bytes) {
    return weft_hash(file, blobs_at(bytes) - sizeof(uint64_t), 0);
}

/* Whether the file is what it should be, but for the blobs. want: the whole header; NULL: any of this source. */
static weft_status check_header(const weft_map *m, const uint8_t source[16], const header *want, weft_error *e) {
    header h;
    uint64_t sum;
    if (m->size < sizeof h) return weft_fail(e, WEFT_EFORMAT, "%s: cut short, %zu bytes", m->path, m->size);
    memcpy(&h, m->data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0)
        return weft_fail(e, WEFT_EFORMAT, "%s: damaged, or another kind of file", m->path);
    if (h.version != WEFT_PACKED_VERSION || h.order != BYTE_ORDER_MARK)
        return weft_fail(e, WEFT_ESUPPORT, "%s: packed by another version of weft or for another processor", m->path);
    if (h.bytes > m->size || blobs_at((size_t)h.bytes) + h.bytes != m->size)
        return weft_fail(e, WEFT_EFORMAT, "%s: damaged: %zu bytes long, which does not fit its header", m->path, m->size);
    memcpy(&sum, m->data + blobs_at((size_t)h.bytes) - sizeof sum, sizeof sum);
    if (sum != header_sum(m->data, (size_t)h.bytes)) return weft_fail(e, WEFT_EFORMAT, "%s: damaged in its header", m->path);
    if (memcmp(h.source, source, sizeof h.source) != 0 || (want && memcmp(&h, want, sizeof h) != 0))
        return weft_fail(e, WEFT_EINVAL, "%s: made from another checkpoint", m->path);
    return WEFT_OK;
}

/* ---- checksums ----------------------------------------------------------------------------------------------------------- */

typedef struct sums {
    const uint8_t *blobs;
    size_t bytes;
    uint64_t *sum;     /* [chunks] */
    bool compare;      /* with what stands there, or write it */
    atomic_size_t bad; /* 1 + a chunk that differs; 0: none */
} sums;

static void sum_chunk(void *ctx, int chunk, int worker) {
    (void)worker;
    sums *s = ctx;
    size_t at = (size_t)chunk * CHUNK, n = s->bytes - at < CHUNK ? s->bytes - at : CHUNK;
    uint64_t sum = weft_hash(s->blobs + at, n, (uint64_t)chunk);
    if (!s->compare)
        s->sum[chunk] = sum;
    else if (sum != s->sum[chunk])
        atomic_store(&s->bad, (size_t)chunk + 1);
}

/* Asking for the pages ahead (MADV_POPULATE_READ, MADV_WILLNEED, MAP_POPULATE) made none of this faster, from the page cache or
 * from the disk; large pages, which every map asks for, do: 1.2 GB in 0.05 s instead of 0.10. */
static size_t run_sums(weft_packed *p, bool compare) {
    size_t bytes = (size_t)p->header.bytes;
    uint8_t *file = (uint8_t *)(uintptr_t)p->map.data;
    sums s = {
        .blobs = file + blobs_at(bytes), .bytes = bytes, .sum = (uint64_t *)(void *)(file + sizeof(header)), .compare = compare};
    weft_pool_run(p->pool, (int)chunks_of(bytes), sum_chunk, &s);
    return atomic_load(&s.bad);
}

static weft_status check_file(weft_packed *p, weft_error *e) {
    WEFT_TRY(check_header(&p->map, p->header.source, &p->header, e));
    size_t bad = run_sums(p, true);
    WEFT_TRY(weft_map_check(&p->map, e));
    return bad ? weft_fail(e, WEFT_EFORMAT, "%s: damaged near byte %zu of the weights", p->map.path, (bad - 1) * CHUNK) : WEFT_OK;
}

/* ---- names --------------------------------------------------------------------------------------------------------------- */

/* If name is LABEL-SOURCE-LAYOUT.weftpack and something: that something; else NULL. label, source NULL: any. */
static const char *after_suffix(const char *name, const char *label, const char *source) {
    const char *s = name;
    while ((s = strstr(s, SUFFIX))) {
        size_t n = (size_t)(s - name);
        const char *tag = s - TAG;
        s += sizeof SUFFIX - 1;
        if (n <= TAG || tag[0] != '-' || tag[33] != '-') continue;
        if (strspn(tag + 1, "0123456789abcdef") != 32 || strspn(tag + 34, "0123456789abcdef") != 16) continue;
        if (source && memcmp(tag + 1, source, 32) != 0) continue;
        if (!label || (strlen(label) == n - TAG && memcmp(name, label, n - TAG) == 0)) return s;
    }
    return NULL;
}

/* Calls see(ctx, name, path) for every file of the folder. A folder that cannot be read has none. */
static void for_files(const char *dir, void (*see)(void *ctx, const char *name, const char *path), void *ctx) {
    DIR *d = opendir(dir);
    if (!d) return;
    weft_str path = {0};
    for (struct dirent *f; (f = readdir(d));) {
        weft_str_clear(&path);
        if (weft_str_addf(&path, "%s/%s", dir, f->d_name)) see(ctx, f->d_name, path.p);
    }
    weft_str_free(&path);
    closedir(d);
}

/* ---- cleaning up --------------------------------------------------------------------------------------------------------- */

static void remove_abandoned(void *ctx, const char *name, const char *path) {
    (void)ctx;
    const char *rest = after_suffix(name, NULL, NULL);
    if (rest && rest[0] == '.' && weft_ends_with(rest, ".tmp")) weft_file_remove_abandoned(path);
}

/* Every use sets a file's time. */
static void remove_unused(void *ctx, const char *name, const char *path) {
    const weft_packed *p = ctx;
    const char *rest = after_suffix(name, p->label, NULL);
    struct stat st;
    if (!rest || *rest || strcmp(path, p->path.p) == 0 || lstat(path, &st) != 0) return;
    bool unused = time(NULL) - st.st_mtime > (time_t)UNUSED_DAYS * 24 * 60 * 60;
    if (unused && S_ISREG(st.st_mode) && st.st_uid == geteuid()) unlink(path);
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

/* Maps the file if it is there and whole; WEFT_OK in any case but a lack of memory. */
static weft_status find_ready(weft_packed *p, weft_error *e) {
    struct stat st;
    weft_error why = {0};
    if (lstat(p->path.p, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) return WEFT_OK;
    weft_status s = weft_map_open_own(&p->map, p->path.p, &why);
    if (s == WEFT_OK) s = check_file(p, &why);
    p->ready = s == WEFT_OK;
    if (p->ready) {
        utimensat(AT_FDCWD, p->path.p, NULL, AT_SYMLINK_NOFOLLOW);
        return WEFT_OK;
    }
    weft_map_close(&p->map);
    if (s == WEFT_ENOMEM) return weft_fail_oom(e, "the packed weights");
    weft_log(s == WEFT_ESUPPORT ? WEFT_LOG_INFO : WEFT_LOG_WARN, "%s; the weights are packed anew", why.text);
    return WEFT_OK;
}

static void log_not_kept(const weft_packed *p, const weft_error *why) {
    char bytes[16];
    weft_log(WEFT_LOG_WARN,
             "cannot keep the packed weights, so every start packs %s again: %s (--cache DIR names another folder, --cache none "
             "ends this line)",
             weft_bytes_text(p->header.bytes, bytes), why->text);
}

static weft_status find_or_create(weft_packed *p, const weft_packed_desc *d, weft_error *e) {
    weft_error why = {0};
    char source[33];
    size_t bytes = (size_t)p->header.bytes;
    weft_cache_label(p->label, d->label);
    weft_hash128_text(d->source, source);
    if (!weft_str_addz(&p->dir, d->dir) ||
        !weft_str_addf(&p->path, "%s/%s-%s-%016llx" SUFFIX, d->dir, p->label, source, (unsigned long long)d->layout))
        return weft_fail_oom(e, "the packed weights");
    for_files(d->dir, remove_abandoned, NULL);
    WEFT_TRY(find_ready(p, e));
    if (p->ready) return WEFT_OK;
    weft_status s = weft_dir_make(d->dir, &why);
    if (s == WEFT_OK) s = weft_map_create(&p->map, p->path.p, blobs_at(bytes) + bytes, &why);
    if (s == WEFT_ENOMEM) return weft_fail_oom(e, "the packed weights");
    if (s != WEFT_OK) log_not_kept(p, &why);
    return WEFT_OK;
}

weft_status weft_packed_open(weft_packed **packed, const weft_packed_desc *d, weft_pool *pool, weft_error *e) {
    size_t bytes;
    if (!weft_add_size(d->bytes, BLOB - 1, &bytes) || bytes > SIZE_MAX / 2) return weft_fail_oom(e, "the packed weights");
    bytes = bytes / BLOB * BLOB;
    weft_packed *p = weft_calloc(1, sizeof *p);
    if (!p) return weft_fail_oom(e, "the packed weights");
    p->pool = pool;
    p->header = (header){.version = WEFT_PACKED_VERSION, .order = BYTE_ORDER_MARK, .layout = d->layout, .bytes = bytes};
    memcpy(p->header.magic, magic, sizeof magic);
    memcpy(p->header.source, d->source, sizeof d->source);
    weft_status s = WEFT_OK;
    if (d->dir && bytes >= (d->least ? d->least : WEFT_PACKED_LEAST)) s = find_or_create(p, d, e);
    if (s == WEFT_OK)
        *packed = p;
    else
        weft_packed_close(p);
    return s;
}

void weft_packed_close(weft_packed *p) {
    if (!p) return;
    weft_map_close(&p->map);
    for (size_t i = 0; i < p->blocks.n; i++) weft_free_aligned(p->blocks.v[i]);
    weft_vec_free(&p->blocks);
    weft_str_free(&p->dir);
    weft_str_free(&p->path);
    weft_free(p);
}

/* ---- filling ------------------------------------------------------------------------------------------------------------- */

bool weft_packed_ready(const weft_packed *p) {
    return p->ready;
}

uint8_t *weft_packed_take(weft_packed *p, size_t bytes) {
    size_t all = (size_t)p->header.bytes, at = p->taken;
    if (bytes > all - at) return NULL; /* both whole blobs, so this one fits rounded up, too */
    uint8_t *data;
    if (p->map.data) {
        data = (uint8_t *)(uintptr_t)p->map.data + blobs_at(all) + at;
    } else {
        if (!weft_vec_reserve(&p->blocks, p->blocks.n + 1) || !(data = weft_alloc_aligned(bytes))) return NULL;
        p->blocks.v[p->blocks.n++] = data;
    }
    p->taken += (bytes + BLOB - 1) / BLOB * BLOB;
    return data;
}

weft_status weft_packed_commit(weft_packed *p, weft_error *e) {
    weft_error why = {0};
    size_t bytes = (size_t)p->header.bytes;
    uint8_t *file = (uint8_t *)(uintptr_t)p->map.data;
    if (!p->map.temp) return WEFT_OK;     /* nothing to keep, or kept already */
    WEFT_TRY(weft_map_check(&p->map, e)); /* before sums are made of bytes that were lost */
    memcpy(file, &p->header, sizeof p->header);
    run_sums(p, false);
    uint64_t sum = header_sum(file, bytes);
    memcpy(file + blobs_at(bytes) - sizeof sum, &sum, sizeof sum);
    weft_status s = weft_map_publish(&p->map, &why);
    if (s == WEFT_OK) {
        for_files(p->dir.p, remove_unused, p);
        return WEFT_OK;
    }
    if (s == WEFT_ENOMEM) return weft_fail_oom(e, "the packed weights");
    log_not_kept(p, &why);
    return check_file(p, e);
}

weft_status weft_packed_check(const weft_packed *p, weft_error *e) {
    return weft_map_check(&p->map, e);
}

/* ---- looking ------------------------------------------------------------------------------------------------------------- */

typedef struct search {
    const char *label, *source;
    weft_str *path;
    time_t newest;
    bool ok;
} search;

static void consider(void *ctx, const char *name, const char *path) {
    search *f = ctx;
    const char *rest = after_suffix(name, f->label, f->source);
    struct stat st;
    if (!rest || *rest || lstat(path, &st) != 0 || (f->path->n && st.st_mtime < f->newest)) return;
    f->newest = st.st_mtime;
    weft_str_clear(f->path);
    f->ok = weft_str_addz(f->path, path) && f->ok;
}

weft_status weft_packed_find(weft_packed_info *info, const char *dir, const char *label, const uint8_t source[16], weft_error *e) {
    char name[WEFT_LABEL + 1], text[33];
    weft_cache_label(name, label);
    weft_hash128_text(source, text);
    search f = {.label = name, .source = text, .path = &info->path, .ok = true};
    for_files(dir, consider, &f);
    if (!f.ok) return weft_fail_oom(e, "looking for packed weights");
    if (!info->path.n) return WEFT_OK;
    weft_map m;
    weft_status s = weft_map_open_own(&m, info->path.p, &info->why);
    info->bytes = m.size;
    if (s == WEFT_OK) s = check_header(&m, source, NULL, &info->why);
    info->valid = s == WEFT_OK;
    weft_map_close(&m);
    return WEFT_OK;
}

/* output.c: see output.h. */
#include "forge/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/str.h"

enum { BUFFER = 4 << 20 };

uint64_t weft_new_tensor_bytes(const weft_new_tensor *t) {
    return t->units * weft_store_bytes(t->values.store);
}

/* ---- the folder ---------------------------------------------------------------------------------------------------------- */

static weft_status want_empty(const char *folder, weft_error *e) {
    DIR *d = opendir(folder);
    if (!d) return weft_fail_os(e, errno, "%s", folder);
    const struct dirent *x;
    do {
        errno = 0;
        x = readdir(d);
    } while (x && (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0));
    int error = errno;
    weft_status s = WEFT_OK;
    if (x)
        s = weft_fail(e, WEFT_EINVAL, "%s is not empty: it has '%s'; name a new folder, or delete this one", folder, x->d_name);
    else if (error)
        s = weft_fail_os(e, error, "%s", folder);
    closedir(d);
    return s;
}

static weft_status want_room(const char *folder, uint64_t need, weft_error *e) {
    struct statvfs v;
    if (statvfs(folder, &v) != 0 || v.f_frsize == 0) return WEFT_OK; /* not known: writing will tell */
    uint64_t blocks = (uint64_t)v.f_bavail, size = (uint64_t)v.f_frsize;
    if (need / size < blocks) return WEFT_OK;
    char want[16], have[16];
    return weft_fail(e, WEFT_EIO, "%s: the checkpoint needs %s, and its disk has %s free", folder, weft_bytes_text(need, want),
                     weft_bytes_text(blocks * size, have));
}

weft_status weft_output_open(weft_output *o, const char *folder, uint64_t need, const volatile sig_atomic_t *stop, weft_error *e) {
    *o = (weft_output){.fd = -1, .stop = stop};
    o->folder = weft_strdup(folder);
    o->buffer = weft_alloc_aligned(BUFFER);
    if (!o->folder || !o->buffer) return weft_fail_oom(e, folder);
    o->made = mkdir(folder, 0777) == 0;
    if (!o->made && errno != EEXIST) return weft_fail_os(e, errno, "%s: cannot make the folder", folder);
    if (!o->made) WEFT_TRY(want_empty(folder, e));
    return want_room(folder, need, e);
}

/* Forgets the files, which stay as they are. */
static void forget(weft_output *o) {
    for (size_t i = 0; i < o->files.n; i++) {
        weft_free(o->files.v[i].path);
        weft_free(o->files.v[i].temp);
    }
    weft_vec_free(&o->files);
}

weft_status weft_output_commit(weft_output *o, weft_error *e) {
    for (; o->named < o->files.n; o->named++)
        if (rename(o->files.v[o->named].temp, o->files.v[o->named].path) != 0)
            return weft_fail_os(e, errno, "%s: cannot name it", o->files.v[o->named].path);
    forget(o);
    o->made = false;
    return WEFT_OK;
}

void weft_output_close(weft_output *o) {
    if (o->fd >= 0) close(o->fd);
    for (size_t i = 0; i < o->files.n; i++) unlink(i < o->named ? o->files.v[i].path : o->files.v[i].temp);
    forget(o);
    if (o->made) rmdir(o->folder);
    weft_free_aligned(o->buffer);
    weft_free(o->folder);
    *o = (weft_output){.fd = -1};
}

/* ---- a file -------------------------------------------------------------------------------------------------------------- */

static weft_status fail_write(const weft_output *o, int error, weft_error *e) {
    return weft_fail_os(e, error, "%s: cannot write", o->files.v[o->files.n - 1].path);
}

weft_status weft_output_begin(weft_output *o, const char *name, weft_error *e) {
    size_t n = strlen(o->folder) + strlen(name) + 6;
    char *path = weft_calloc(n, 1), *temp = weft_calloc(n, 1);
    weft_status s = WEFT_OK;
    if (!path || !temp || !weft_vec_reserve(&o->files, o->files.n + 1)) {
        s = weft_fail_oom(e, o->folder);
    } else {
        snprintf(path, n, "%s/%s", o->folder, name);
        snprintf(temp, n, "%s.tmp", path);
        o->fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (o->fd < 0) s = weft_fail_os(e, errno, "%s: cannot write", temp);
    }
    if (s != WEFT_OK) {
        weft_free(path);
        weft_free(temp);
        return s;
    }
    o->files.v[o->files.n++] = (weft_output_file){path, temp};
    return WEFT_OK;
}

static weft_status flush(weft_output *o, weft_error *e) {
    for (size_t at = 0; at < o->used;) {
        if (o->stop && *o->stop) return weft_fail(e, WEFT_EIO, "interrupted: what was written is removed");
        ssize_t n = write(o->fd, o->buffer + at, o->used - at);
        if (n < 0 && errno != EINTR) return fail_write(o, errno, e);
        if (n > 0) at += (size_t)n;
    }
    o->bytes += o->used;
    o->used = 0;
    return WEFT_OK;
}

weft_status weft_output_put(weft_output *o, const void *data, size_t n, weft_error *e) {
    for (const uint8_t *p = data; n > 0;) {
        if (o->used == BUFFER) WEFT_TRY(flush(o, e));
        size_t part = n < BUFFER - o->used ? n : BUFFER - o->used;
        memcpy(o->buffer + o->used, p, part);
        o->used += part, p += part, n -= part;
    }
    return WEFT_OK;
}

weft_status weft_output_tensor(weft_output *o, const weft_new_tensor *t, weft_error *e) {
    size_t unit = weft_store_bytes(t->values.store);
    for (uint64_t at = 0; at < t->units;) {
        if (BUFFER - o->used < unit) WEFT_TRY(flush(o, e));
        size_t n = (BUFFER - o->used) / unit;
        if (n > t->units - at) n = (size_t)(t->units - at);
        weft_values_make(&t->values, at, n, o->buffer + o->used);
        o->used += n * unit, at += n;
    }
    return WEFT_OK;
}

weft_status weft_output_end(weft_output *o, weft_error *e) {
    WEFT_TRY(flush(o, e));
    /* Now, not at some later moment of a benchmark; and a disk that is full may say so only here. */
    int error;
    do error = fsync(o->fd) == 0 ? 0 : errno;
    while (error == EINTR);
    if (error == EINVAL || error == ENOTSUP) error = 0; /* a file system without anything to sync */
    if (close(o->fd) != 0 && !error && errno != EINTR) error = errno;
    o->fd = -1;
    return error ? fail_write(o, error, e) : WEFT_OK;
}

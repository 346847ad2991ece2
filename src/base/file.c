/* file.c: files, whole and mapped.
 *
 * Reading past the end of a file that was cut short under its mapping raises SIGBUS. The handler looks the address up in a table
 * of live mappings that it can read at any moment (atomics only), puts anonymous zero pages over the rest of the mapping (one
 * call, so that a large hole cannot use up the process's mappings) and marks it. Any other SIGBUS goes where it went before.
 *
 * A file that is being made is locked (flock: the lock ends with its process, however that ends). Whoever cleans up removes what
 * it can lock; so a writer that has its lock looks whether the name is still there. */
#if defined(__linux__)
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#endif
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

/* ---- the fault handler --------------------------------------------------------------------------------------------------- */

enum { SLOTS = 1024 }; /* mapped files at a time; the largest sharded checkpoints have some 200 */

typedef struct slot {
    _Atomic uintptr_t start; /* 0: free, 1: being filled, else the address; stored last */
    _Atomic size_t size;
    atomic_int protection; /* what the pages may be used for, new ones too */
    atomic_bool torn;
    dev_t device; /* which file it is; these two are for weft_map_check alone */
    ino_t inode;
} slot;

static slot slots[SLOTS];
static uintptr_t page_size;
static struct sigaction before; /* who had SIGBUS until now */
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static int install_errno;

static bool mend(uintptr_t at) {
    for (int i = 0; i < SLOTS; i++) {
        uintptr_t start = atomic_load(&slots[i].start);
        if (start <= 1 || at < start) continue;
        uintptr_t end = start + atomic_load(&slots[i].size);
        end = (end + page_size - 1) / page_size * page_size;
        if (at >= end) continue;
        atomic_store(&slots[i].torn, true);
        uintptr_t page = at / page_size * page_size;
        int protection = atomic_load(&slots[i].protection);
        return mmap((void *)page, end - page, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    return false;
}

static void on_bus(int sig, siginfo_t *info, void *context) {
    int saved = errno;
    bool mended = info->si_code > 0 && mend((uintptr_t)info->si_addr); /* code <= 0: sent by a process, no address */
    if (!mended) {
        if (before.sa_flags & SA_SIGINFO) {
            before.sa_sigaction(sig, info, context);
        } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
            /* A fault would come again for ever; with the default action it ends the process as it would have without us. */
            if (before.sa_handler == SIG_DFL || info->si_code > 0) {
                signal(SIGBUS, SIG_DFL);
                raise(SIGBUS);
            }
        } else {
            before.sa_handler(sig);
        }
    }
    errno = saved;
}

static void install(void) {
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct sigaction act = {0};
    act.sa_sigaction = on_bus;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&act.sa_mask);
    if (sigaction(SIGBUS, NULL, &before) != 0 || sigaction(SIGBUS, &act, NULL) != 0) install_errno = errno;
}

static int slot_take(void) {
    for (int i = 0; i < SLOTS; i++) {
        uintptr_t unused = 0;
        if (atomic_compare_exchange_strong(&slots[i].start, &unused, 1)) return i;
    }
    return -1;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "is a directory"
           : S_ISFIFO(mode) ? "is a pipe"
           : S_ISSOCK(mode) ? "is a socket"
           : S_ISCHR(mode)  ? "is a device"
           : S_ISBLK(mode)  ? "is a device"
           : S_ISLNK(mode)  ? "is a link"
                            : "is not a regular file";
}

/* Opens a regular file for reading; its size into *size. own: no link, and nobody else can have written it. The kind is looked at
 * before opening, as opening alone can act on a device, and after it, as the name may mean another file by then; O_NONBLOCK keeps
 * a pipe from holding us up in between. */
static weft_status open_regular(const char *path, bool own, int *fd, struct stat *st, size_t *size, weft_error *e) {
    if ((own ? lstat(path, st) : stat(path, st)) != 0) return weft_fail_os(e, errno, "%s", path);
    if (!S_ISREG(st->st_mode)) return weft_fail(e, WEFT_EINVAL, "%s: %s, expected a file", path, kind_of(st->st_mode));
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (own ? O_NOFOLLOW : 0));
    if (*fd < 0) return weft_fail_os(e, errno, "%s", path);
    weft_status s = WEFT_OK;
    if (fstat(*fd, st) != 0)
        s = weft_fail_os(e, errno, "%s", path);
    else if (!S_ISREG(st->st_mode))
        s = weft_fail(e, WEFT_EINVAL, "%s: %s, expected a file", path, kind_of(st->st_mode));
    else if (own && st->st_uid != geteuid())
        s = weft_fail(e, WEFT_EINVAL, "%s: belongs to another user", path);
    else if (own && st->st_mode & (S_IWGRP | S_IWOTH))
        s = weft_fail(e, WEFT_EINVAL, "%s: other users may write it", path);
    else if (st->st_size < 0 || (uintmax_t)st->st_size > SIZE_MAX / 2)
        s = weft_fail(e, WEFT_EFORMAT, "%s: too large", path);
    if (s != WEFT_OK)
        close(*fd);
    else
        *size = (size_t)st->st_size;
    return s;
}

/* ---- maps ---------------------------------------------------------------------------------------------------------------- */

static weft_status handle_faults(weft_error *e) {
    pthread_once(&installed, install);
    return install_errno ? weft_fail_os(e, install_errno, "cannot handle SIGBUS") : WEFT_OK;
}

static int64_t mtime_ns(const struct stat *st) {
#if defined(__APPLE__)
    struct timespec t = st->st_mtimespec;
#else
    struct timespec t = st->st_mtim;
#endif
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Maps an open file, which stays open. */
static weft_status map_file(weft_map *m, int fd, const struct stat *st, const char *path, int protection, weft_error *e) {
    weft_status s = WEFT_OK;
    weft_map map = {.size = (size_t)st->st_size, .mtime_ns = mtime_ns(st), .slot = slot_take(), .path = weft_strdup(path)};
    void *data = NULL;
    if (!map.path) {
        s = weft_fail_oom(e, path);
    } else if (map.slot < 0) {
        s = weft_fail(e, WEFT_EBUSY, "%s: more than %d mapped files", path, SLOTS);
    } else if (map.size > 0) {
        data = mmap(NULL, map.size, protection, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            s = weft_fail_os(e, errno, "%s: cannot map", path);
        else
            weft_advise_huge(data, map.size);
    }
    if (s != WEFT_OK) {
        if (map.slot >= 0) atomic_store(&slots[map.slot].start, 0);
        weft_free(map.path);
        return s;
    }
    slot *t = &slots[map.slot];
    t->device = st->st_dev;
    t->inode = st->st_ino;
    atomic_store(&t->torn, false);
    atomic_store(&t->protection, protection);
    atomic_store(&t->size, map.size);
    if (map.size > 0) atomic_store(&t->start, (uintptr_t)data);
    map.data = data;
    *m = map;
    return WEFT_OK;
}

static weft_status open_map(weft_map *m, const char *path, bool own, weft_error *e) {
    *m = (weft_map){.slot = -1};
    WEFT_TRY(handle_faults(e));
    int fd;
    struct stat st;
    size_t size;
    WEFT_TRY(open_regular(path, own, &fd, &st, &size, e));
    weft_status s = map_file(m, fd, &st, path, PROT_READ, e);
    close(fd);
    return s;
}

weft_status weft_map_open(weft_map *m, const char *path, weft_error *e) {
    return open_map(m, path, false, e);
}
weft_status weft_map_open_own(weft_map *m, const char *path, weft_error *e) {
    return open_map(m, path, true, e);
}

/* A file that is not published leaves no trace. */
static void drop_temp(weft_map *m) {
    if (!m->temp) return;
    unlink(m->temp);
    close(m->fd);
    weft_free(m->temp);
    m->temp = NULL;
}

void weft_map_close(weft_map *m) {
    if (!m->path) return;
    atomic_store(&slots[m->slot].start, 1); /* out of the handler's sight before the addresses can mean something else */
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    atomic_store(&slots[m->slot].start, 0);
    drop_temp(m);
    weft_free(m->path);
    *m = (weft_map){.slot = -1};
}

/* Within the last page a cut raises no fault: the bytes just read as zero. So the size is looked at as well, as long as the name
 * still means the file that was mapped. */
weft_status weft_map_check(const weft_map *m, weft_error *e) {
    if (!m->path) return WEFT_OK;
    const slot *t = &slots[m->slot];
    struct stat st;
    bool known = (m->temp ? fstat(m->fd, &st) : stat(m->path, &st)) == 0;
    bool shrunk = known && st.st_dev == t->device && st.st_ino == t->inode && (uintmax_t)st.st_size < m->size;
    if (!shrunk && !atomic_load(&t->torn)) return WEFT_OK;
    return weft_fail(e, WEFT_EIO, "%s: the file was cut short or became unreadable while in use (it had %zu bytes)", m->path,
                     m->size);
}

/* ---- whole files --------------------------------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 30 }; /* one call moves less than 2 GiB on every system */

weft_status weft_file_read(const char *path, size_t limit, char **data, size_t *size, weft_error *e) {
    int fd;
    struct stat st;
    size_t n;
    WEFT_TRY(open_regular(path, false, &fd, &st, &n, e));
    weft_status s = WEFT_OK;
    char *p = NULL;
    if (n > limit)
        s = weft_fail(e, WEFT_EFORMAT, "%s: %zu bytes, at most %zu expected", path, n, limit);
    else if (!(p = weft_calloc(n + 1, 1)))
        s = weft_fail_oom(e, path);
    for (size_t got = 0; s == WEFT_OK && got < n;) {
        ssize_t r = read(fd, p + got, n - got < CHUNK ? n - got : CHUNK);
        if (r > 0)
            got += (size_t)r;
        else if (r == 0)
            s = weft_fail(e, WEFT_EIO, "%s: ended after %zu of %zu bytes", path, got, n);
        else if (errno != EINTR)
            s = weft_fail_os(e, errno, "%s", path);
    }
    close(fd);
    if (s != WEFT_OK) {
        weft_free(p);
        return s;
    }
    *data = p;
    *size = n;
    return WEFT_OK;
}

static int write_all(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t w = write(fd, p, n < CHUNK ? n : CHUNK);
        if (w < 0 && errno != EINTR) return errno;
        if (w > 0) p += w, n -= (size_t)w;
    }
    return 0;
}

/* To the disk itself. Some file systems have nothing to sync and say so. */
static int sync_all(int fd) {
#if defined(F_FULLFSYNC)
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0; /* on macOS fsync stops at the drive's cache */
#endif
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

/* So that the new name outlives a power cut. The file is already in place, hence a failure here changes nothing to report. */
static void sync_dir_of(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) slash[slash == path] = 0;
    int fd = open(slash ? path : ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (fd < 0) return;
    sync_all(fd);
    close(fd);
}

/* Creates a file of a name nobody has beside path, the name into temp. */
static int create_beside(const char *path, char *temp, size_t size, int access, mode_t mode) {
    static _Atomic unsigned counter;
    for (int i = 0; i < 100; i++) {
        snprintf(temp, size, "%s.%lx-%llx-%x.tmp", path, (unsigned long)getpid(), (unsigned long long)weft_now_ns(),
                 atomic_fetch_add(&counter, 1));
        int fd = open(temp, access | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

weft_status weft_file_write(const char *path, const void *data, size_t size, weft_error *e) {
    struct stat st;
    bool old = stat(path, &st) == 0;
    if (old && !S_ISREG(st.st_mode)) return weft_fail(e, WEFT_EINVAL, "%s: %s, expected a file", path, kind_of(st.st_mode));
    size_t room = strlen(path) + 64;
    char *temp = weft_calloc(room, 1);
    if (!temp) return weft_fail_oom(e, path);

    int error = 0;
    int fd = create_beside(path, temp, room, O_WRONLY, 0666);
    if (fd < 0) {
        error = errno;
    } else {
        if (old && fchmod(fd, st.st_mode & 0777) != 0) error = errno; /* a secret stays as private as it was */
        if (!error) error = write_all(fd, data, size);
        if (!error) error = sync_all(fd);
        if (close(fd) != 0 && !error && errno != EINTR) error = errno;
        if (!error && rename(temp, path) != 0) error = errno;
        if (error)
            unlink(temp);
        else
            sync_dir_of(temp);
    }
    weft_free(temp);
    return error ? weft_fail_os(e, error, "%s: cannot write", path) : WEFT_OK;
}

/* ---- files that are written through a map -------------------------------------------------------------------------------- */

/* Creates and locks. A file system without locks is one where only age tells what was abandoned. */
static int create_locked(const char *path, char *temp, size_t size) {
    for (int i = 0; i < 100; i++) {
        int fd = create_beside(path, temp, size, O_RDWR, 0600);
        if (fd < 0) return -1;
        struct stat st;
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
        }
        if (fstat(fd, &st) == 0 && st.st_nlink > 0) return fd;
        close(fd); /* somebody who cleans up was faster than our lock */
    }
    errno = EBUSY;
    return -1;
}

/* Gives the file its size and its blocks. */
static int reserve(int fd, size_t size) {
    struct rlimit most;
    if (size > SIZE_MAX / 2) return EFBIG;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && size > most.rlim_cur)
        return EFBIG; /* to try would raise SIGXFSZ */
#if defined(__APPLE__)
    fstore_t all = {.fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = (off_t)size};
    if (fcntl(fd, F_PREALLOCATE, &all) != 0) return errno;
    return ftruncate(fd, (off_t)size) == 0 ? 0 : errno;
#else
    int error;
    do error = posix_fallocate(fd, 0, (off_t)size);
    while (error == EINTR);
    return error;
#endif
}

weft_status weft_map_create(weft_map *m, const char *path, size_t size, weft_error *e) {
    *m = (weft_map){.slot = -1};
    WEFT_TRY(handle_faults(e));
    size_t room = strlen(path) + 64;
    char *temp = weft_calloc(room, 1);
    if (!temp) return weft_fail_oom(e, path);
    struct stat st;
    int fd = create_locked(path, temp, room);
    int error = fd < 0 ? errno : reserve(fd, size);
    if (!error && fstat(fd, &st) != 0) error = errno;
    weft_status s = error ? weft_fail_os(e, error, "%s: cannot write", path) : WEFT_OK;
    if (s == WEFT_OK && st.st_uid != geteuid())
        s = weft_fail(e, WEFT_EIO, "%s: the file system gives new files to another user", path);
    if (s == WEFT_OK) s = map_file(m, fd, &st, path, PROT_READ | PROT_WRITE, e);
    if (s == WEFT_OK) {
        m->temp = temp;
        m->fd = fd;
        return WEFT_OK;
    }
    if (fd >= 0) {
        unlink(temp);
        close(fd);
    }
    weft_free(temp);
    return s;
}

/* Ordinary memory takes the file's place, piece by piece: the same bytes at the same addresses. */
static int detach(weft_map *m) {
    enum { PIECE = 1 << 20 };
    uint8_t *data = (uint8_t *)(uintptr_t)m->data, *copy = weft_alloc_aligned(PIECE);
    int error = copy ? 0 : ENOMEM;
    for (size_t at = 0, n; at < m->size && !error; at += n) {
        n = m->size - at < PIECE ? m->size - at : PIECE;
        memcpy(copy, data + at, n);
        if (mmap(data + at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            error = ENOMEM;
        else
            memcpy(data + at, copy, n);
    }
    weft_free_aligned(copy);
    atomic_store(&slots[m->slot].start, 1); /* nothing left that could fault */
    slots[m->slot].inode = 0;
    drop_temp(m);
    return error;
}

weft_status weft_map_publish(weft_map *m, weft_error *e) {
    void *data = (void *)(uintptr_t)m->data;
    int error = msync(data, m->size, MS_SYNC) == 0 ? sync_all(m->fd) : errno;
    weft_status s = error ? weft_fail_os(e, error, "%s: cannot write", m->path) : weft_map_check(m, e);
    if (s == WEFT_OK && rename(m->temp, m->path) != 0) s = weft_fail_os(e, errno, "%s: cannot write", m->path);
    if (s != WEFT_OK) return detach(m) ? weft_fail_oom(e, m->path) : s;
    sync_dir_of(m->temp);
    close(m->fd);
    weft_free(m->temp);
    m->temp = NULL;
    atomic_store(&slots[m->slot].protection, PROT_READ);
    mprotect(data, m->size, PROT_READ);
    return WEFT_OK;
}

bool weft_file_remove_abandoned(const char *temp) {
    enum { DAY = 24 * 60 * 60 };
    int fd = open(temp, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return false;
    struct stat st;
    bool unused = false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
        unused = flock(fd, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && time(NULL) - st.st_mtime > DAY);
    bool gone = unused && unlink(temp) == 0;
    close(fd);
    return gone;
}

/* ---- folders ------------------------------------------------------------------------------------------------------------- */

weft_status weft_dir_make(const char *path, weft_error *e) {
    char *part = weft_strdup(path);
    if (!part) return weft_fail_oom(e, path);
    weft_status s = WEFT_OK;
    for (char *p = part; *p && s == WEFT_OK;) { /* every folder of the path, the highest first */
        p += strspn(p, "/");
        p += strcspn(p, "/");
        char end = *p;
        *p = '\0';
        if (!weft_dir_exists(part) && mkdir(part, 0700) != 0 && errno != EEXIST)
            s = weft_fail_os(e, errno, "%s: cannot make the folder", part);
        *p = end;
    }
    weft_free(part);
    if (s == WEFT_OK && !weft_dir_exists(path)) s = weft_fail(e, WEFT_EINVAL, "%s: not a folder", path);
    return s;
}

bool weft_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool weft_dir_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* test_packed.c: packed weights on disk: what is written comes back, what is damaged does not, and no trouble with files is ever
 * more than a line in the log. */
#if defined(__linux__)
#define _GNU_SOURCE /* unshare */
#include <sched.h>
#include <sys/mount.h>
#endif
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/dirs.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "ops/cpu/cpu.h"

enum { BLOBS = 5, NOBODY = 65534, DAY = 24 * 60 * 60 };
#define MB ((size_t)1 << 20)
static const size_t blob_bytes[BLOBS] = {1, 5 * MB + 7, 64, 4 * MB, 1000}; /* three checksums */
#define ALL (64 + 5 * MB + 64 + 64 + 4 * MB + 1024)

static char root[200], cache[240]; /* the cache is a folder in root, which does not exist at first */
static char logged[4096];
static struct sigaction ours;

/* cmocka has put a handler of its own in the place of ours for the time of a test. */
static void our_handler(void) {
    sigaction(SIGBUS, &ours, NULL);
}

/* ---- helpers ------------------------------------------------------------------------------------------------------------- */

static const char *at(const char *folder, const char *name) {
    static char paths[8][700];
    static int turn;
    char *p = paths[turn++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static void keep_line(void *ctx, weft_log_level level, const char *line) {
    (void)ctx, (void)level;
    size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static void remove_all(const char *folder) {
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *x; (x = readdir(d));)
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) remove(at(folder, x->d_name));
    closedir(d);
    rmdir(folder);
}

static int setup(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/weft-packed-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(root)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", root);
    logged[0] = 0;
    weft_log_to(keep_line, NULL, WEFT_LOG_DEBUG);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    remove_all(cache);
    remove_all(root);
    return 0;
}

static int count(const char *ending) {
    int n = 0;
    DIR *d = opendir(cache);
    for (struct dirent *x; d && (x = readdir(d));) n += x->d_name[0] != '.' && weft_ends_with(x->d_name, ending);
    if (d) closedir(d);
    return n;
}

static weft_packed_desc desc_of(uint8_t source, uint64_t layout) {
    weft_packed_desc d = {.dir = cache, .label = "some model", .layout = layout, .bytes = ALL, .least = 1};
    memset(d.source, source, sizeof d.source);
    return d;
}

/* The name that desc_of() has in the cache. */
static const char *file_of(uint8_t source, uint64_t layout) {
    char name[120] = "some_model-";
    for (int i = 0; i < 16; i++) snprintf(name + strlen(name), 3, "%02x", source);
    snprintf(name + strlen(name), 40, "-%016llx.weftpack", (unsigned long long)layout);
    return at(cache, name);
}

static weft_packed *open_packed(const weft_packed_desc *d, weft_pool *pool) {
    weft_packed *p = NULL;
    weft_error e;
    if (weft_packed_open(&p, d, pool, &e) != WEFT_OK) fail_msg("%s", e.text);
    return p;
}

static uint8_t byte_of(int blob, size_t i) {
    return (uint8_t)(i * 31 + i / 4096 * 7 + (size_t)blob * 13 + 1);
}

static void take_all(weft_packed *p, uint8_t *blob[BLOBS]) {
    for (int b = 0; b < BLOBS; b++) {
        blob[b] = weft_packed_take(p, blob_bytes[b]);
        assert_non_null(blob[b]);
        assert_int_equal((uintptr_t)blob[b] % 64, 0);
    }
    assert_null(weft_packed_take(p, 1)); /* more than was announced */
}

static void fill_all(weft_packed *p, uint8_t *blob[BLOBS]) {
    take_all(p, blob);
    for (int b = 0; b < BLOBS; b++)
        for (size_t i = 0; i < blob_bytes[b]; i++) {
            if (blob[b][i]) fail_msg("byte %zu of a new blob is not zero", i);
            blob[b][i] = byte_of(b, i);
        }
}

static void assert_blobs(uint8_t *const blob[BLOBS]) {
    for (int b = 0; b < BLOBS; b++)
        for (size_t i = 0; i < blob_bytes[b]; i++)
            if (blob[b][i] != byte_of(b, i)) fail_msg("byte %zu of blob %d is wrong", i, b);
}

static void commit(weft_packed *p) {
    weft_error e;
    if (weft_packed_commit(p, &e) != WEFT_OK) fail_msg("%s", e.text);
}

/* Makes the file. */
static void make(uint8_t source, uint64_t layout) {
    uint8_t *blob[BLOBS];
    weft_packed_desc d = desc_of(source, layout);
    weft_packed *p = open_packed(&d, NULL);
    assert_false(weft_packed_ready(p));
    fill_all(p, blob);
    commit(p);
    weft_packed_close(p);
}

static bool is_ready(const weft_packed_desc *d) {
    uint8_t *blob[BLOBS];
    logged[0] = 0;
    weft_packed *p = open_packed(d, NULL);
    bool ready = weft_packed_ready(p);
    if (ready) {
        take_all(p, blob);
        assert_blobs(blob);
    }
    weft_packed_close(p);
    assert_int_equal(count(".tmp"), 0);
    return ready;
}

static void assert_logged(const char *words) {
    if (!strstr(logged, words)) fail_msg("logged: '%s', expected '%s'", logged, words);
}

/* Runs what() in a process of its own; its exit code, or 128 + the signal. */
static int in_child(int (*what)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(what());
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void set_age(const char *path, int days) {
    struct timespec t[2] = {{.tv_sec = time(NULL) - (time_t)days * DAY}, {.tv_sec = time(NULL) - (time_t)days * DAY}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* ---- the usual way ------------------------------------------------------------------------------------------------------- */

static void test_comes_back(void **state) {
    (void)state;
    weft_error e;
    weft_pool *pool;
    uint8_t *blob[BLOBS], *again[BLOBS];
    assert_int_equal(weft_pool_open(&pool, 3, &e), WEFT_OK);
    weft_packed_desc d = desc_of(1, 2);
    weft_packed *p = open_packed(&d, pool);
    assert_false(weft_packed_ready(p));
    fill_all(p, blob);
    assert_int_equal(count(".weftpack"), 0); /* not there before it is whole */
    assert_int_equal(count(".tmp"), 1);
    commit(p);
    commit(p); /* once more is nothing */
    assert_int_equal(count(".tmp"), 0);
    assert_int_equal(count(".weftpack"), 1);
    assert_blobs(blob);
    assert_int_equal(weft_packed_check(p, &e), WEFT_OK);

    weft_packed *q = open_packed(&d, pool);
    assert_true(weft_packed_ready(q));
    take_all(q, again);
    assert_blobs(again);
    commit(q);
    assert_int_equal(weft_packed_check(q, &e), WEFT_OK);
    weft_packed_close(q);
    weft_packed_close(p);
    weft_packed_close(NULL);
    weft_pool_close(pool);
    assert_string_equal(logged, "");

    struct stat st;
    assert_int_equal(stat(cache, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(file_of(1, 2), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_not_kept(void **state) {
    (void)state;
    uint8_t *blob[BLOBS];
    weft_packed_desc none = desc_of(1, 2), small = none, empty = none;
    none.dir = NULL;
    small.least = ALL + 1;
    empty.bytes = 0;
    const weft_packed_desc *all[] = {&none, &small};
    for (int i = 0; i < 2; i++) {
        weft_packed *p = open_packed(all[i], NULL);
        assert_false(weft_packed_ready(p));
        fill_all(p, blob);
        commit(p);
        assert_blobs(blob);
        assert_int_equal(weft_packed_check(p, NULL), WEFT_OK);
        weft_packed_close(p);
    }
    weft_packed *p = open_packed(&empty, NULL);
    assert_null(weft_packed_take(p, 1));
    commit(p);
    weft_packed_close(p);
    none.least = 0; /* the default: 64 MB */
    none.dir = cache;
    weft_packed_close(open_packed(&none, NULL));
    assert_false(weft_dir_exists(cache));
    assert_string_equal(logged, "");
    weft_packed *q = NULL;
    weft_error e;
    none.bytes = SIZE_MAX - 10;
    assert_int_equal(weft_packed_open(&q, &none, NULL, &e), WEFT_ENOMEM);
}

static void test_never_committed(void **state) {
    (void)state;
    uint8_t *blob[BLOBS];
    weft_packed_desc d = desc_of(1, 2);
    weft_packed *p = open_packed(&d, NULL);
    fill_all(p, blob);
    weft_packed_close(p); /* as when loading failed */
    assert_int_equal(count(""), 0);
}

static void test_labels(void **state) {
    (void)state;
    static const char *const labels[][2] = {
        {"", "model-"}, {".hidden/../x y\n", "_hidden_.._x_y_-"}, {"Qwen3.5-2B", "Qwen3.5-2B-"}, {"\xc3\xa9", "__-"}};
    char name[600];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (size_t i = 0; i < 5; i++) {
        weft_packed_desc d = desc_of(1, 2);
        d.label = i < 4 ? labels[i][0] : name;
        weft_packed *p = open_packed(&d, NULL);
        commit(p);
        weft_packed_close(p);
        DIR *f = opendir(cache);
        int hits = 0;
        for (struct dirent *x; (x = readdir(f));)
            hits += weft_starts_with(x->d_name, i < 4 ? labels[i][1] : "nnnn") && weft_ends_with(x->d_name, ".weftpack");
        closedir(f);
        if (hits != 1) fail_msg("label %zu", i);
        p = open_packed(&d, NULL);
        assert_true(weft_packed_ready(p));
        weft_packed_close(p);
    }
    assert_string_equal(logged, "");
}

/* ---- files that are not to be trusted ------------------------------------------------------------------------------------ */

static void flip(const char *path, off_t place, uint8_t bits) {
    uint8_t x = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &x, 1, place) == 1);
    x ^= bits;
    assert_int_equal(pwrite(fd, &x, 1, place), 1);
    close(fd);
}

static void test_bit_flips(void **state) {
    (void)state;
    weft_packed_desc d = desc_of(1, 2);
    make(1, 2);
    const char *path = at(cache, strrchr(file_of(1, 2), '/') + 1);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    int64_t size = st.st_size;
    for (int64_t place = 0; place < size;) {
        flip(path, (off_t)place, (uint8_t)(1 << place % 8));
        if (is_ready(&d)) fail_msg("a flipped bit in byte %lld was not noticed", (long long)place);
        assert_logged("the weights are packed anew");
        flip(path, (off_t)place, (uint8_t)(1 << place % 8));
        place = place < 100 ? place + 1 : place < 4100 ? place + 333 : place + 777777;
    }
    flip(path, (off_t)size - 1, 0x80);
    assert_false(is_ready(&d));
    assert_logged("damaged near byte 8388608 of the weights");
    flip(path, (off_t)size - 1, 0x80);
    assert_true(is_ready(&d));

    /* Made anew, it is whole again. */
    flip(path, 5000, 1);
    make(1, 2);
    assert_true(is_ready(&d));
}

static void test_other_lengths(void **state) {
    (void)state;
    weft_packed_desc d = desc_of(1, 2);
    struct stat st;
    make(1, 2);
    char path[700];
    snprintf(path, sizeof path, "%s", file_of(1, 2));
    assert_int_equal(stat(path, &st), 0);
    const int64_t size = st.st_size, lengths[] = {size + 1, size + 4096, size - 1, size - 64, size - 4096, size / 2, 4 << 20, 4097,
                                                  4096,     4095,        100,      64,        63,          1,        0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) { /* what was cut off comes back as zeros with the next length */
        assert_int_equal(truncate(path, (off_t)lengths[i]), 0);
        if (is_ready(&d)) fail_msg("a length of %lld was not noticed", (long long)lengths[i]);
        assert_logged("the weights are packed anew");
    }
    make(1, 2);
    assert_true(is_ready(&d));
}

/* A whole file, valid in itself, that is of another checkpoint, another layout, or another version. */
static void test_foreign_files(void **state) {
    (void)state;
    weft_packed_desc d = desc_of(1, 2), other_source = desc_of(3, 2), other_layout = desc_of(1, 4), longer = d;
    make(1, 2);
    char path[700];
    snprintf(path, sizeof path, "%s", file_of(1, 2));
    assert_false(is_ready(&other_source));
    assert_false(is_ready(&other_layout));
    assert_string_equal(logged, "");
    longer.bytes += 64; /* the same name */
    weft_packed *p = open_packed(&longer, NULL);
    assert_false(weft_packed_ready(p));
    weft_packed_close(p);
    assert_logged("made from another checkpoint");
    assert_int_equal(rename(path, file_of(3, 2)), 0);
    assert_false(is_ready(&other_source));
    assert_logged("made from another checkpoint");
    assert_int_equal(rename(file_of(3, 2), file_of(1, 4)), 0);
    assert_false(is_ready(&other_layout));
    assert_logged("made from another checkpoint");

    static const struct {
        off_t place;
        const char *says;
    } fields[] = {{0, "another kind of file"}, {8, "another version of weft"}, {12, "another processor"}};
    for (size_t i = 0; i < 3; i++) { /* with a right checksum */
        make(1, 2);
        static uint8_t head[4096];
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, head, sizeof head, 0), sizeof head);
        head[fields[i].place] ^= 0x11;
        uint64_t sum = weft_hash(head, sizeof head - 8, 0);
        memcpy(head + sizeof head - 8, &sum, 8);
        assert_int_equal(pwrite(fd, head, sizeof head, 0), sizeof head);
        close(fd);
        assert_false(is_ready(&d));
        assert_logged(fields[i].says);
    }
}

static void test_not_ours(void **state) {
    (void)state;
    weft_packed_desc d = desc_of(1, 2);
    struct stat st;
    make(1, 2);
    char path[700], elsewhere[700];
    snprintf(path, sizeof path, "%s", file_of(1, 2));
    snprintf(elsewhere, sizeof elsewhere, "%s", at(root, "elsewhere"));

    assert_int_equal(chmod(path, 0620), 0);
    assert_false(is_ready(&d));
    assert_logged("other users may write it");
    assert_int_equal(chmod(path, 0644), 0); /* to read is no harm */
    assert_true(is_ready(&d));
    if (geteuid() == 0) {
        assert_int_equal(chown(path, NOBODY, NOBODY), 0);
        assert_false(is_ready(&d));
        assert_logged("belongs to another user");
        assert_int_equal(chown(path, 0, 0), 0);
    } else {
        print_message("not root: a file of another user is not tried\n");
    }

    /* A link is replaced, and what it leads to is left alone. */
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    assert_false(is_ready(&d));
    assert_logged("is a link");
    flip(elsewhere, 6000, 1);
    make(1, 2);
    assert_true(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
    assert_true(is_ready(&d));
    flip(elsewhere, 6000, 1);
    assert_int_equal(rename(elsewhere, path), 0);
    assert_true(is_ready(&d));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_false(is_ready(&d));
    make(1, 2);
    assert_true(is_ready(&d));
}

/* ---- others at the same time --------------------------------------------------------------------------------------------- */

static int to_child[2], to_parent[2];

static void say(int fd) {
    if (write(fd, "x", 1) != 1) _exit(90);
}
static void hear(int fd) {
    char x;
    if (read(fd, &x, 1) != 1) _exit(91);
}

/* Fills, then waits for the other one before it commits. */
static int slow_writer(void) {
    uint8_t *blob[BLOBS];
    weft_error e;
    weft_pool *pool;
    weft_packed_desc d = desc_of(1, 2);
    if (weft_pool_open(&pool, 2, &e) != WEFT_OK) return 92;
    weft_packed *p = open_packed(&d, pool);
    if (weft_packed_ready(p)) return 93;
    fill_all(p, blob);
    say(to_parent[1]);
    hear(to_child[0]);
    commit(p);
    say(to_parent[1]);
    hear(to_child[0]);
    assert_blobs(blob); /* also where the other's file has taken the name */
    if (weft_packed_check(p, &e) != WEFT_OK) return 94;
    weft_packed_close(p);
    weft_pool_close(pool);
    return logged[0] ? 95 : 0;
}

static void test_two_writers(void **state) {
    (void)state;
    assert_true(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child[2];
    fflush(NULL);
    for (int i = 0; i < 2; i++)
        if ((child[i] = fork()) == 0) _exit(slow_writer());
    for (int turn = 0; turn < 2; turn++) {
        hear(to_parent[0]), hear(to_parent[0]);
        assert_int_equal(count(".tmp"), turn ? 0 : 2);
        say(to_child[1]), say(to_child[1]);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        waitpid(child[i], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    for (int i = 0; i < 2; i++) close(to_child[i]), close(to_parent[i]);
    assert_int_equal(count(""), 1);
    weft_packed_desc d = desc_of(1, 2);
    assert_true(is_ready(&d));
}

/* A process that is killed leaves its temporary file, locked by nobody; while it lives it is left alone. */
static void test_killed_writer(void **state) {
    (void)state;
    assert_true(pipe(to_child) == 0 && pipe(to_parent) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(slow_writer());
    hear(to_parent[0]);
    make(3, 2);
    assert_int_equal(count(".tmp"), 1);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count(".tmp"), 1);
    weft_packed_desc d = desc_of(3, 2); /* any start cleans up, also one that finds its file */
    assert_true(is_ready(&d));
    assert_int_equal(count(""), 1);
    for (int i = 0; i < 2; i++) close(to_child[i]), close(to_parent[i]);

    /* What only looks similar is not removed. */
    static const char *const names[] = {"notes.tmp", "some_model.weftpack.1.tmp", "x-00.weftpack.2.tmp"};
    for (size_t i = 0; i < 3; i++) assert_int_equal(weft_file_write(at(cache, names[i]), "x", 1, NULL), WEFT_OK);
    weft_packed_close(open_packed(&d, NULL));
    assert_int_equal(count(""), 4);
}

static void test_replaced_while_in_use(void **state) {
    (void)state;
    uint8_t *blob[BLOBS];
    weft_error e;
    weft_packed_desc d = desc_of(1, 2);
    make(1, 2);
    weft_packed *p = open_packed(&d, NULL);
    take_all(p, blob);
    assert_int_equal(weft_file_write(file_of(1, 2), "short", 5, &e), WEFT_OK);
    assert_blobs(blob);
    assert_int_equal(weft_packed_check(p, &e), WEFT_OK);
    make(1, 2);
    assert_blobs(blob);
    assert_int_equal(weft_packed_check(p, &e), WEFT_OK);
    weft_packed_close(p);
}

static void test_cut_while_in_use(void **state) {
    (void)state;
    uint8_t *blob[BLOBS];
    weft_error e;
    weft_packed_desc d = desc_of(1, 2);
    make(1, 2);
    weft_packed *p = open_packed(&d, NULL);
    assert_true(weft_packed_ready(p));
    take_all(p, blob);
    our_handler();
    assert_int_equal(truncate(file_of(1, 2), 3 << 20), 0);
    unsigned sum = 0;
    for (size_t i = 0; i < blob_bytes[3]; i++) sum += blob[3][i];
    assert_int_equal(sum, 0);
    assert_int_equal(weft_packed_check(p, &e), WEFT_EIO);
    assert_non_null(strstr(e.text, "cut short"));
    weft_packed_close(p);
    make(1, 2);
    assert_true(is_ready(&d));
}

/* Lost bytes are the one thing that a commit reports. Cut before a page was written, after it, or without any fault. */
static void test_cut_while_filled(void **state) {
    (void)state;
    our_handler();
    for (int turn = 0; turn < 3; turn++) {
        uint8_t *blob[BLOBS];
        weft_error e;
        weft_packed_desc d = desc_of(1, 2);
        weft_packed *p = open_packed(&d, NULL);
        take_all(p, blob);
        for (int part = 0; part < 2; part++) {
            if (part == (turn > 0)) {
                DIR *f = opendir(cache);
                for (struct dirent *x; (x = readdir(f));)
                    if (weft_ends_with(x->d_name, ".tmp")) assert_int_equal(truncate(at(cache, x->d_name), 100000), 0);
                closedir(f);
            }
            if (part == 0 || turn == 1)
                for (int b = 0; b < BLOBS; b++) memset(blob[b], b + 1, blob_bytes[b]);
        }
        assert_int_equal(weft_packed_commit(p, &e), WEFT_EIO);
        assert_non_null(strstr(e.text, "cut short"));
        weft_packed_close(p);
        assert_int_equal(count(""), 0);
    }
}

/* ---- folders and disks that do not help ---------------------------------------------------------------------------------- */

/* Packing goes on in ordinary memory, and nothing is left. */
static int goes_on(const char *says) {
    uint8_t *blob[BLOBS];
    weft_error e;
    weft_packed_desc d = desc_of(1, 2);
    logged[0] = 0;
    weft_packed *p = open_packed(&d, NULL);
    if (weft_packed_ready(p)) return 80;
    fill_all(p, blob);
    if (weft_packed_commit(p, &e) != WEFT_OK) return 81;
    assert_blobs(blob);
    if (weft_packed_check(p, &e) != WEFT_OK) return 82;
    weft_packed_close(p);
    if (!strstr(logged, says) || !strstr(logged, "every start packs 9.4 MB again") || strchr(logged, '\n')[1]) {
        fprintf(stderr, "logged: '%s', expected '%s'\n", logged, says);
        return 83;
    }
    return count(".tmp") ? 84 : 0;
}

static int size_limit(void) {
    struct rlimit small = {4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 70;
    return goes_on("File too large"); /* an error, not SIGXFSZ */
}

#if defined(__linux__)
static int full_disk(void) {
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", cache, "tmpfs", 0, "size=6m") != 0)
        return 77;
    return goes_on("No space left on device");
}
static int read_only_disk(void) {
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", cache, "tmpfs", MS_RDONLY, NULL) != 0)
        return 77;
    return goes_on("Read-only file system");
}
#endif

static void test_full_disk(void **state) {
    (void)state;
    assert_int_equal(mkdir(cache, 0700), 0);
    assert_int_equal(in_child(size_limit), 0);
#if defined(__linux__)
    int code = in_child(full_disk);
    if (code == 77)
        print_message("no rights to mount: a disk that is really full is not tried\n");
    else
        assert_int_equal(code, 0);
    code = in_child(read_only_disk);
    if (code != 77) assert_int_equal(code, 0);
#endif
}

static int unwritable(void) {
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) return 71;
    return goes_on("Permission denied");
}

static void test_unusable_folders(void **state) {
    (void)state;
    assert_int_equal(chmod(root, 0755), 0); /* whoever we become may look into it */
    assert_int_equal(mkdir(cache, 0500), 0);
    assert_int_equal(chmod(cache, 0555), 0);
    assert_int_equal(in_child(unwritable), 0);
    assert_int_equal(rmdir(cache), 0);
    assert_int_equal(chmod(root, 0555), 0); /* the folder cannot be made */
    assert_int_equal(in_child(unwritable), 0);
    assert_int_equal(chmod(root, 0700), 0);
    assert_int_equal(weft_file_write(cache, "x", 1, NULL), WEFT_OK);
    assert_int_equal(goes_on("cache"), 0); /* a file in its place, or in the way to it */
    size_t n = strlen(cache);
    strcat(cache, "/below");
    assert_int_equal(goes_on("cache"), 0);
    cache[n] = 0;
}

/* The name is taken by a folder: everything worked but for the last step. The blobs stay where they are. */
static void test_publishing_fails(void **state) {
    (void)state;
    assert_int_equal(mkdir(cache, 0700), 0);
    char path[700];
    snprintf(path, sizeof path, "%s", file_of(1, 2));
    assert_int_equal(mkdir(path, 0700), 0);
    uint8_t *blob[BLOBS];
    weft_error e;
    weft_packed_desc d = desc_of(1, 2);
    weft_packed *p = open_packed(&d, NULL);
    assert_logged("is a directory");
    fill_all(p, blob);
    commit(p);
    assert_logged("every start packs 9.4 MB again");
    assert_int_equal(count(".tmp"), 0);
    assert_blobs(blob);
    assert_int_equal(weft_packed_check(p, &e), WEFT_OK);
    commit(p);
    assert_blobs(blob);
    weft_packed_close(p);
    assert_int_equal(rmdir(path), 0);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    weft_packed_desc d = desc_of(1, 2);
    for (int ready = 0; ready < 2; ready++) {
        uint64_t n = 1;
        for (bool done = false; !done; n++) {
            weft_error e = {0};
            weft_packed *p = NULL;
            weft_alloc_fail_at(n);
            weft_status s = weft_packed_open(&p, &d, NULL, &e);
            bool all = s == WEFT_OK;
            for (int b = 0; b < BLOBS && all; b++) all = weft_packed_take(p, blob_bytes[b]) != NULL;
            if (all) s = weft_packed_commit(p, &e);
            weft_alloc_fail_at(0);
            done = s == WEFT_OK && all && (ready ? weft_packed_ready(p) : count(".weftpack") == 1);
            if (s != WEFT_OK) assert_true(s == WEFT_ENOMEM && e.code == WEFT_ENOMEM);
            weft_packed_close(p);
            assert_int_equal(count(".tmp"), 0);
            if (n > 100) fail_msg("never done");
        }
        assert_true(n > 4);
    }
    /* With a publication that fails, too. */
    remove(file_of(1, 2));
    assert_int_equal(mkdir(file_of(1, 2), 0700), 0);
    for (uint64_t n = 1; n < 30; n++) {
        weft_error e = {0};
        weft_packed *p = NULL;
        weft_alloc_fail_at(n);
        weft_status s = weft_packed_open(&p, &d, NULL, &e);
        if (s == WEFT_OK) s = weft_packed_commit(p, &e);
        weft_alloc_fail_at(0);
        assert_true(s == WEFT_OK || s == WEFT_ENOMEM);
        weft_packed_close(p);
        assert_int_equal(count(".tmp"), 0);
    }
    rmdir(file_of(1, 2));
}

/* ---- keeping the folder small -------------------------------------------------------------------------------------------- */

static void test_unused_files_go(void **state) {
    (void)state;
    weft_packed_desc used = desc_of(5, 1);
    char name[700];
    for (uint8_t i = 1; i <= 5; i++) make(i, 1);
    set_age(file_of(1, 1), 31); /* another checkpoint of this name */
    set_age(file_of(2, 1), 29);
    set_age(file_of(5, 1), 400);
    snprintf(name, sizeof name, "%s", at(cache, "another-model"));
    strcat(name, strstr(file_of(3, 1), "-03"));
    assert_int_equal(rename(file_of(3, 1), name), 0);
    set_age(name, 400);
    assert_int_equal(weft_file_write(at(cache, "some_model-notes.weftpack"), "x", 1, NULL), WEFT_OK);
    set_age(at(cache, "some_model-notes.weftpack"), 400);

    assert_true(is_ready(&used)); /* a use counts, although nothing was written */
    make(6, 2);
    assert_false(weft_file_exists(file_of(1, 1)));
    assert_true(weft_file_exists(file_of(2, 1)));
    assert_true(weft_file_exists(file_of(4, 1)));
    assert_true(weft_file_exists(file_of(5, 1)));
    assert_true(weft_file_exists(file_of(6, 2)));
    assert_true(weft_file_exists(name)); /* another model's are not ours to judge */
    assert_true(weft_file_exists(at(cache, "some_model-notes.weftpack")));
}

static void test_find(void **state) {
    (void)state;
    weft_error e;
    weft_packed_info info = {0};
    weft_packed_desc d = desc_of(1, 2);
    assert_int_equal(weft_packed_find(&info, cache, d.label, d.source, &e), WEFT_OK);
    assert_int_equal(info.path.n, 0);
    make(1, 2);
    make(1, 3);
    make(4, 2);
    set_age(file_of(1, 2), 1);
    assert_int_equal(weft_packed_find(&info, cache, d.label, d.source, &e), WEFT_OK);
    assert_string_equal(weft_str_z(&info.path), file_of(1, 3));
    assert_true(info.valid);
    assert_true(info.bytes > ALL && info.bytes <= ALL + 4096);
    weft_str_clear(&info.path);
    flip(file_of(1, 3), 20, 1);
    assert_int_equal(weft_packed_find(&info, cache, d.label, d.source, &e), WEFT_OK);
    assert_false(info.valid);
    assert_non_null(strstr(info.why.text, "damaged in its header"));
    weft_str_clear(&info.path);
    assert_int_equal(weft_packed_find(&info, cache, "some", d.source, &e), WEFT_OK);
    assert_int_equal(info.path.n, 0);
    weft_str_free(&info.path);
}

static void test_default_folder(void **state) {
    (void)state;
    weft_str dir = {0};
    setenv("XDG_CACHE_HOME", "/there", 1);
    setenv("HOME", "/home/me", 1);
    assert_true(weft_cache_dir(&dir, "packed"));
    assert_string_equal(dir.p, "/there/weft/packed");
#if defined(__APPLE__)
    const char *home = "/home/me/Library/Caches/weft/packed";
#else
    const char *home = "/home/me/.cache/weft/packed";
#endif
    static const char *const not_used[] = {"", "relative"};
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            setenv("XDG_CACHE_HOME", not_used[i], 1);
        else
            unsetenv("XDG_CACHE_HOME");
        assert_true(weft_cache_dir(&dir, "packed"));
        assert_string_equal(dir.p, home);
    }
    unsetenv("HOME");
    assert_true(weft_cache_dir(&dir, "packed"));
    assert_int_equal(dir.n, 0);
    weft_str_free(&dir);
    setenv("HOME", "/home/me", 1);
    weft_alloc_fail_at(1);
    bool ok = weft_cache_dir(&dir, "packed");
    weft_alloc_fail_at(0);
    assert_false(ok);
}

/* ---- a device ------------------------------------------------------------------------------------------------------------ */

typedef struct rows {
    float first;
    int64_t k;
    atomic_int reads;
} rows;
static weft_status read_rows(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    rows *r = ctx;
    (void)expert, (void)scale, (void)bias, (void)e;
    for (int64_t i = 0; i < r->k; i++) ((float *)values)[i] = r->first + (float)row;
    atomic_fetch_add(&r->reads, 1);
    return WEFT_OK;
}
static weft_mat *make_mat(weft_dev *d, rows *r, int64_t n, bool passing) {
    weft_mat *m = NULL;
    weft_error e;
    weft_mat_desc desc = {
        .dtype = WEFT_F32, .experts = 1, .n = n, .k = r->k, .name = "w", .passing = passing, .read = read_rows, .ctx = r};
    if (weft_mat_make(d, &desc, &m, &e) != WEFT_OK) fail_msg("%s", e.text);
    return m;
}

/* A weight that is made anew at every start leaves the file as it is, whatever its rows are then, and however many. */
static void test_passing_weights(void **state) {
    (void)state;
    weft_dev_memory planned;
    for (int start = 0; start < 4; start++) { /* dry, packed, mapped, mapped */
        weft_dev *d = NULL;
        weft_error e;
        rows kept = {.k = 4096, .first = 1}, passing = {.k = 64, .first = (float)(100 * start)};
        weft_dev_config config = {.threads = 1,
                                  .precise = true,
                                  .dry = !start,
                                  .planned = start ? &planned : NULL,
                                  .cache_dir = cache,
                                  .cache_label = "some model"};
        if (weft_dev_open(&d, &config, &e) != WEFT_OK) fail_msg("%s", e.text);
        weft_mat *a = make_mat(d, &kept, 4096, false), *b = make_mat(d, &passing, 16 + 8 * start, true);
        if (weft_dev_plan(d, &(weft_plan){.max_rows = 1, .max_spans = 1}, &e) != WEFT_OK) fail_msg("%s", e.text);
        weft_dev_memory m;
        weft_dev_memory_get(d, &m);
        if (!start) planned = m;
        assert_true(m.packed == planned.packed && m.layout == planned.layout && m.weights > m.packed);
        assert_int_equal(kept.reads, start == 1 ? 4096 : 0);
        assert_int_equal(passing.reads, start ? 16 + 8 * start : 0);
        if (start) assert_true(((float *)(void *)a->data)[1] == 2 && ((float *)(void *)b->data)[1] == passing.first + 1);
        weft_dev_close(d);
    }
    assert_int_equal(count(".weftpack"), 1);
}

int main(void) {
    weft_map m;
    if (weft_map_open(&m, "/dev/null", NULL) == WEFT_OK) return 1; /* the fault handler comes before cmocka's */
    sigaction(SIGBUS, NULL, &ours);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_labels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bit_flips, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_writers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replaced_while_in_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_while_in_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_while_filled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unusable_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_publishing_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_allocation_may_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unused_files_go, setup, teardown),
        cmocka_unit_test_setup_teardown(test_find, setup, teardown),
        cmocka_unit_test_setup_teardown(test_default_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_passing_weights, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

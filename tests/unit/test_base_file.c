/* test_base_file.c: whole files, mapped files, and what the system does to them. */
#if defined(__linux__)
#define _DEFAULT_SOURCE
#endif
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

static char dir[200];
static char path_buf[8][600];

static const char *at(const char *name) {
    static int turn;
    char *p = path_buf[turn++ % 8];
    snprintf(p, sizeof path_buf[0], "%s/%s", dir, name);
    return p;
}

static int setup(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/weft-file-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int entries(void) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *x; (x = readdir(d));) n += x->d_name[0] != '.';
    closedir(d);
    return n;
}

static int teardown(void **state) {
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *x; (x = readdir(d));)
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) remove(at(x->d_name));
    closedir(d);
    return rmdir(dir);
}

static void make(const char *name, size_t size) {
    char *p = weft_calloc(size, 1);
    memset(p, 'x', size);
    assert_int_equal(weft_file_write(at(name), p, size, NULL), WEFT_OK);
    weft_free(p);
}

static void test_write_and_read(void **state) {
    (void)state;
    weft_error e;
    char *data;
    size_t size;
    assert_int_equal(weft_file_write(at("a"), "hello\0world", 11, &e), WEFT_OK);
    assert_int_equal(weft_file_read(at("a"), 11, &data, &size, &e), WEFT_OK);
    assert_int_equal(size, 11);
    assert_memory_equal(data, "hello\0world", 12); /* terminated */
    weft_free(data);
    assert_int_equal(weft_file_write(at("a"), NULL, 0, &e), WEFT_OK);
    assert_int_equal(weft_file_read(at("a"), 0, &data, &size, &e), WEFT_OK);
    assert_int_equal(size, 0);
    assert_string_equal(data, "");
    weft_free(data);
    assert_true(weft_file_exists(at("a")) && !weft_dir_exists(at("a")));
    assert_true(weft_dir_exists(dir) && !weft_file_exists(dir));
    assert_false(weft_file_exists(at("none")));
    assert_int_equal(entries(), 1);
}

static void test_limit_is_checked_before_reading(void **state) {
    (void)state;
    weft_error e;
    char *data = NULL;
    size_t size;
    make("b", 1000);
    uint64_t count = weft_alloc_count();
    assert_int_equal(weft_file_read(at("b"), 999, &data, &size, &e), WEFT_EFORMAT);
    assert_int_equal(weft_alloc_count(), count);
    assert_non_null(strstr(e.text, "1000 bytes, at most 999"));
    assert_null(data);
}

/* A directory, pipe or device given as a model file: a clear refusal, and no waiting for a writer. */
static void test_only_regular_files(void **state) {
    (void)state;
    weft_error e;
    weft_map m;
    char *data;
    size_t size;
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    const struct {
        const char *path, *says;
    } cases[] = {{dir, "is a directory"},
                 {at("pipe"), "is a pipe"},
                 {"/dev/null", "is a device"},
                 {at("none"), "No such file"},
                 {"", "No such file"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(&m, 0x55, sizeof m);
        assert_true(weft_map_open(&m, cases[i].path, &e) < 0);
        assert_non_null(strstr(e.text, cases[i].says));
        weft_map_close(&m); /* a failed map is a closed one */
        assert_true(weft_file_read(cases[i].path, 100, &data, &size, &e) < 0);
        assert_non_null(strstr(e.text, cases[i].says));
        if (i >= 3) continue;
        assert_int_equal(weft_file_write(cases[i].path, "x", 1, &e), WEFT_EINVAL); /* never renamed over */
        assert_non_null(strstr(e.text, cases[i].says));
    }
    struct stat st;
    assert_true(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
}

static void test_map(void **state) {
    (void)state;
    weft_error e;
    weft_map m, empty, zero = {0};
    make("c", 100000);
    make("empty", 0);
    assert_int_equal(weft_map_open(&m, at("c"), &e), WEFT_OK);
    assert_int_equal(m.size, 100000);
    assert_true(m.data[0] == 'x' && m.data[99999] == 'x');
    assert_int_equal(weft_map_check(&m, &e), WEFT_OK);
    assert_int_equal(weft_map_open(&empty, at("empty"), &e), WEFT_OK);
    assert_null(empty.data);
    assert_int_equal(empty.size, 0);
    assert_int_equal(weft_map_check(&empty, &e), WEFT_OK);
    weft_map_close(&empty);
    weft_map_close(&zero);
    /* Replaced by another file of the same name: the mapped one is whole. */
    make("c", 10);
    assert_int_equal(weft_map_check(&m, &e), WEFT_OK);
    assert_int_equal(m.data[99999], 'x');
    weft_map_close(&m);
    weft_map_close(&m);
    assert_int_equal(weft_map_check(&m, &e), WEFT_OK);
}

/* cmocka has put a handler of its own in the place of ours for the time of a test. */
static struct sigaction ours;
static void our_handler(void) {
    sigaction(SIGBUS, &ours, NULL);
}

static void *read_all(void *arg) {
    const weft_map *m = arg;
    unsigned long sum = 0;
    for (size_t i = 0; i < m->size; i++) sum += m->data[i];
    return (void *)(uintptr_t)sum;
}

/* A checkpoint overwritten or cut by a download while it is in use killed the process with SIGBUS. Also from other threads. */
static void test_truncation_under_the_map(void **state) {
    (void)state;
    weft_error e;
    weft_map m, other;
    our_handler();
    make("d", 1 << 20);
    make("other", 5000);
    assert_int_equal(weft_map_open(&m, at("d"), &e), WEFT_OK);
    assert_int_equal(weft_map_open(&other, at("other"), &e), WEFT_OK);
    assert_int_equal(truncate(at("d"), 70000), 0);
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, read_all, &m);
    unsigned long sum = (unsigned long)(uintptr_t)read_all(&m);
    assert_int_equal(sum, 70000ul * 'x');
    for (int i = 0; i < 3; i++) {
        void *theirs;
        pthread_join(t[i], &theirs);
        assert_int_equal((unsigned long)(uintptr_t)theirs, sum);
    }
    assert_int_equal(weft_map_check(&m, &e), WEFT_EIO);
    assert_non_null(strstr(e.text, "cut short"));
    assert_int_equal(weft_map_check(&other, &e), WEFT_OK);
    /* The mark stays when the file is gone or grows again, and does not pass to the next map in the same slot. */
    assert_int_equal(truncate(at("d"), 1 << 20), 0);
    assert_int_equal(weft_map_check(&m, &e), WEFT_EIO);
    weft_map_close(&m);
    assert_int_equal(weft_map_open(&m, at("other"), &e), WEFT_OK);
    assert_int_equal(weft_map_check(&m, &e), WEFT_OK);
    weft_map_close(&m);
    weft_map_close(&other);
}

/* Within the last page a cut raises no fault; the bytes are just zero. */
static void test_truncation_within_a_page(void **state) {
    (void)state;
    weft_error e;
    weft_map m;
    make("e", 3000);
    assert_int_equal(weft_map_open(&m, at("e"), &e), WEFT_OK);
    assert_int_equal(truncate(at("e"), 2999), 0);
    assert_int_equal(m.data[2999], 0);
    assert_int_equal(weft_map_check(&m, &e), WEFT_EIO);
    weft_map_close(&m);
}

static void test_many_maps(void **state) {
    (void)state;
    weft_error e;
    static weft_map m[1025];
    make("f", 100);
    for (int i = 0; i < 1024; i++) assert_int_equal(weft_map_open(&m[i], at("f"), &e), WEFT_OK);
    assert_int_equal(weft_map_open(&m[1024], at("f"), &e), WEFT_EBUSY);
    for (int i = 0; i < 1024; i++) weft_map_close(&m[i]);
    assert_int_equal(weft_map_open(&m[0], at("f"), &e), WEFT_OK);
    weft_map_close(&m[0]);
}

/* Faults that are not ours keep their meaning: the default kills, an earlier handler is called. Each runs in a process of its own,
 * forked before this one has mapped anything, as the handler is installed once. */
static volatile sig_atomic_t caught;
static void old_handler(int sig) {
    (void)sig;
    caught++;
}

static void foreign_fault(void) {
    weft_map m;
    if (weft_map_open(&m, at("g"), NULL) != WEFT_OK) _exit(3);
    int fd = open(at("g"), O_RDWR);
    volatile char *p = mmap(NULL, 20000, PROT_READ, MAP_SHARED, fd, 0); /* someone else's map of the same file */
    if (ftruncate(fd, 0) != 0) _exit(4);
    (void)p[10000];
}

static void sent_by_a_process(void) {
    weft_map m;
    if (weft_map_open(&m, at("g"), NULL) != WEFT_OK) _exit(3);
    raise(SIGBUS);
}

static void earlier_handler(void) {
    struct sigaction act = {.sa_handler = old_handler};
    sigaction(SIGBUS, &act, NULL);
    weft_map m;
    if (weft_map_open(&m, at("g"), NULL) != WEFT_OK) _exit(3);
    raise(SIGBUS);
    _exit(caught == 1 ? 0 : 5);
}

static int child(void (*what)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        struct sigaction act = {.sa_handler = SIG_DFL}; /* a sanitizer may have one */
        sigaction(SIGBUS, &act, NULL);
        what();
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static int of_earlier_handler, of_process, of_foreign_fault;

static void test_foreign_sigbus(void **state) {
    (void)state;
    assert_true(WIFEXITED(of_earlier_handler));
    assert_int_equal(WEXITSTATUS(of_earlier_handler), 0);
    assert_true(WIFSIGNALED(of_process) && WTERMSIG(of_process) == SIGBUS);
    assert_true(WIFSIGNALED(of_foreign_fault) && WTERMSIG(of_foreign_fault) == SIGBUS);
}

/* A full disk: the old file stays whole, nothing is left behind, the message says why. */
static void test_full_disk(void **state) {
    (void)state;
    weft_error e;
    make("h", 100);
    int before = entries();
    struct rlimit old, small = {4096, 0};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    static char big[100000];
    weft_status s = weft_file_write(at("h"), big, sizeof big, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(s, WEFT_EIO);
    assert_non_null(strstr(e.text, "too large"));
    assert_int_equal(entries(), before);
    struct stat st;
    assert_true(stat(at("h"), &st) == 0 && st.st_size == 100);
}

static void test_write_failures(void **state) {
    (void)state;
    weft_error e;
    assert_int_equal(weft_file_write(at("no/such/dir"), "x", 1, &e), WEFT_EIO);
    assert_non_null(strstr(e.text, "cannot write"));
    char name[300];
    memset(name, 'n', sizeof name);
    name[250] = 0; /* valid itself, too long with the suffix: an error, not a crash */
    assert_int_equal(weft_file_write(at(name), "x", 1, &e), WEFT_EIO);
    /* Out of memory at every allocation. */
    make("i", 10);
    char *data;
    size_t size;
    weft_map m;
    weft_alloc_fail_at(1);
    weft_status w = weft_file_write(at("i"), "x", 1, &e), r = weft_file_read(at("i"), 100, &data, &size, &e),
                o = weft_map_open(&m, at("i"), &e);
    weft_alloc_fail_at(0);
    assert_true(w == WEFT_ENOMEM && r == WEFT_ENOMEM && o == WEFT_ENOMEM);
}

/* A file with a secret stays as private as it was. */
static void test_permissions_carry_over(void **state) {
    (void)state;
    make("j", 10);
    assert_int_equal(chmod(at("j"), 0600), 0);
    make("j", 20);
    struct stat st;
    assert_int_equal(stat(at("j"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, 20);
}

/* A file that is written through a map appears when it is whole, and can only be read from then on. */
static void test_write_through_a_map(void **state) {
    (void)state;
    weft_error e;
    weft_map m, own;
    struct stat st;
    assert_int_equal(weft_map_create(&m, at("k"), 10000, &e), WEFT_OK);
    assert_int_equal(m.size, 10000);
    uint8_t *p = (uint8_t *)(uintptr_t)m.data;
    assert_true(p[0] == 0 && p[9999] == 0);
    memset(p, 'k', 10000);
    assert_false(weft_file_exists(at("k")));
    assert_false(weft_file_remove_abandoned(m.temp)); /* its writer lives */
    assert_int_equal(weft_map_publish(&m, &e), WEFT_OK);
    assert_int_equal(entries(), 1);
    assert_true(stat(at("k"), &st) == 0 && st.st_size == 10000 && (st.st_mode & 0777) == 0600);
    assert_int_equal(m.data[9999], 'k');
    assert_int_equal(weft_map_check(&m, &e), WEFT_OK);
    assert_int_equal(weft_map_open_own(&own, at("k"), &e), WEFT_OK);
    assert_memory_equal(own.data, m.data, 10000);
    assert_true(own.mtime_ns > 1000000000ll * 1000000000ll);
    weft_map_close(&own);
    weft_map_close(&m);

    assert_int_equal(weft_map_create(&m, at("k"), 5000, &e), WEFT_OK);
    weft_map_close(&m); /* not published: the old one stays */
    assert_int_equal(entries(), 1);
    assert_true(stat(at("k"), &st) == 0 && st.st_size == 10000);

    /* The folder is in the way of the name: the bytes live on where they are. */
    assert_int_equal(mkdir(at("l"), 0700), 0);
    assert_int_equal(weft_map_create(&m, at("l"), 3000000, &e), WEFT_OK);
    p = (uint8_t *)(uintptr_t)m.data;
    memset(p, 'l', 3000000);
    assert_int_equal(weft_map_publish(&m, &e), WEFT_EIO);
    assert_non_null(strstr(e.text, "cannot write: Is a directory"));
    assert_int_equal(entries(), 2);
    assert_true(m.data[0] == 'l' && m.data[2999999] == 'l');
    p[0] = 'm';
    assert_int_equal(weft_map_check(&m, &e), WEFT_OK);
    weft_map_close(&m);

    assert_int_equal(weft_map_create(&m, at("none/k"), 10, &e), WEFT_EIO);
    assert_int_equal(weft_map_create(&m, at("n"), SIZE_MAX, &e), WEFT_EIO);
    assert_non_null(strstr(e.text, "too large"));
    weft_map_close(&m);
    assert_int_equal(entries(), 2);
    make("left.tmp", 10);
    assert_true(weft_file_remove_abandoned(at("left.tmp")));
    assert_false(weft_file_remove_abandoned(at("left.tmp")));
    assert_int_equal(symlink("k", at("link")), 0);
    assert_false(weft_file_remove_abandoned(at("link")));
    assert_int_equal(weft_map_open_own(&own, at("link"), &e), WEFT_EINVAL);
    assert_non_null(strstr(e.text, "is a link"));
    assert_int_equal(entries(), 3);
}

static void test_folders(void **state) {
    (void)state;
    weft_error e;
    struct stat st;
    assert_int_equal(weft_dir_make(dir, &e), WEFT_OK);
    assert_int_equal(weft_dir_make(at("a/b//c/"), &e), WEFT_OK);
    assert_true(stat(at("a/b"), &st) == 0 && (st.st_mode & 0777) == 0700);
    assert_int_equal(weft_dir_make(at("a/b/c"), &e), WEFT_OK);
    assert_int_equal(weft_dir_make("/", &e), WEFT_OK);
    assert_int_equal(weft_dir_make("", &e), WEFT_EINVAL);
    make("file", 1);
    assert_int_equal(weft_dir_make(at("file"), &e), WEFT_EINVAL);
    assert_non_null(strstr(e.text, "not a folder"));
    assert_int_equal(weft_dir_make(at("file/x"), &e), WEFT_EIO);
    assert_non_null(strstr(e.text, "file/x: cannot make the folder: Not a directory"));
    assert_true(rmdir(at("a/b/c")) == 0 && rmdir(at("a/b")) == 0);
}

int main(void) {
    weft_map m;
    if (setup(NULL) != 0 || weft_file_write(at("g"), at(""), 0, NULL) != WEFT_OK || truncate(at("g"), 20000) != 0) return 1;
    of_earlier_handler = child(earlier_handler);
    of_process = child(sent_by_a_process);
    of_foreign_fault = child(foreign_fault);
    if (weft_map_open(&m, at("g"), NULL) != WEFT_OK) return 1;
    weft_map_close(&m);
    sigaction(SIGBUS, NULL, &ours);
    if (teardown(NULL) != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign_sigbus),
        cmocka_unit_test_setup_teardown(test_write_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit_is_checked_before_reading, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_regular_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_map, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncation_under_the_map, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncation_within_a_page, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_maps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_permissions_carry_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_through_a_map, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folders, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

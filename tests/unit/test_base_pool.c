/* test_base_pool.c: worker threads and the processor count. Made to be run under the thread sanitizer as well. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <pthread.h>
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
#include "base/cpus.h"
#include "base/pool.h"
#include "sanitizers.h"

static const int thread_counts[] = {1, 2, 3, 8};
enum { COUNTS = 4 };

typedef struct job {
    int hits[1000]; /* not atomic: each piece has one runner, and the job's end orders all of them before the caller */
    atomic_int workers_out_of_range;
    int threads, number;
} job;

static void touch(void *ctx, int piece, int worker) {
    job *j = ctx;
    j->hits[piece] += j->number + 1;
    if (worker < 0 || worker >= j->threads) atomic_fetch_add(&j->workers_out_of_range, 1);
}

static void test_every_piece_once(void **state) {
    (void)state;
    for (int c = 0; c < COUNTS; c++) {
        weft_error e;
        weft_pool *p;
        assert_int_equal(weft_pool_open(&p, thread_counts[c], &e), WEFT_OK);
        assert_int_equal(weft_pool_threads(p), thread_counts[c]);
        static job j;
        memset(&j, 0, sizeof j);
        j.threads = thread_counts[c];
        int want[1000] = {0};
        for (int n = 0; n < 3000; n++) {
            int pieces = n % 5 == 0 ? n % 1000 : n % 23;
            j.number = n; /* a worker that is late with the last job would use this one's number */
            for (int i = 0; i < pieces; i++) want[i] += n + 1;
            weft_pool_run(p, pieces, touch, &j);
            if (n % 500 == 0) { /* let the workers fall asleep */
                struct timespec t = {0, 2000000};
                nanosleep(&t, NULL);
            }
        }
        for (int i = 0; i < 1000; i++) assert_int_equal(j.hits[i], want[i]);
        assert_int_equal(atomic_load(&j.workers_out_of_range), 0);
        weft_pool_close(p);
    }
}

static void slow_worker(void *ctx, int piece, int worker) {
    (void)piece;
    if (worker != 0) { /* the caller runs out of pieces long before, and sleeps */
        struct timespec t = {0, 1000000};
        nanosleep(&t, NULL);
    }
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void test_caller_waits_for_a_slow_worker(void **state) {
    (void)state;
    weft_pool *p;
    assert_int_equal(weft_pool_open(&p, 3, NULL), WEFT_OK);
    for (int n = 0; n < 50; n++) {
        atomic_int done = 0;
        weft_pool_run(p, 6, slow_worker, &done);
        assert_int_equal(atomic_load(&done), 6);
    }
    weft_pool_close(p);
}

static void denormal(void *ctx, int piece, int worker) {
    volatile float least = FLT_MIN, half = 0.5f;
    if (worker != 0 && least * half != 0) ((char *)ctx)[piece] = 1;
    struct timespec t = {0, 100000};
    nanosleep(&t, NULL);
}

/* A worker with another floating-point mode than its caller gives results that depend on who ran the piece. */
static void test_workers_flush_denormals(void **state) {
    (void)state;
#if defined(__x86_64__) || defined(__aarch64__)
    weft_pool *p;
    char kept[40] = {0};
    assert_int_equal(weft_pool_open(&p, 4, NULL), WEFT_OK);
    weft_pool_run(p, 40, denormal, kept);
    for (int i = 0; i < 40; i++) assert_int_equal(kept[i], 0);
    weft_pool_close(p);
#endif
}

static void test_open_and_close(void **state) {
    (void)state;
    weft_error e;
    weft_pool *p;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(weft_pool_open(&p, 1 + i % 5, &e), WEFT_OK);
        weft_pool_close(p);
    }
    weft_pool_close(NULL);
    assert_int_equal(weft_pool_open(&p, 0, &e), WEFT_OK);
    assert_int_equal(weft_pool_threads(p), weft_cpu_count());
    weft_pool_close(p);
    assert_int_equal(weft_pool_open(&p, -1, &e), WEFT_EINVAL);
    assert_int_equal(weft_pool_open(&p, 257, &e), WEFT_EINVAL);
    assert_null(p);
    weft_alloc_fail_at(1);
    assert_int_equal(weft_pool_open(&p, 2, &e), WEFT_ENOMEM);
    weft_alloc_fail_at(0);
}

static void nothing(void *ctx, int piece, int worker) {
    (void)ctx, (void)piece, (void)worker;
}

static void test_run_makes_no_allocation(void **state) {
    (void)state;
    weft_pool *p;
    assert_int_equal(weft_pool_open(&p, 3, NULL), WEFT_OK);
    uint64_t before = weft_alloc_count();
    for (int i = 0; i < 100; i++) weft_pool_run(p, 10, nothing, NULL);
    assert_int_equal(weft_alloc_count(), before);
    weft_pool_close(p);
}

/* Workers that spin while nothing is to do took half the cycles of a machine in other engines (colibri). */
static void test_idle_workers_sleep(void **state) {
    (void)state;
    for (int c = 0; c < COUNTS; c++) {
        weft_pool *p;
        assert_int_equal(weft_pool_open(&p, thread_counts[c], NULL), WEFT_OK);
        weft_pool_run(p, 64, nothing, NULL);
        clock_t before = clock();
        struct timespec t = {0, 200000000};
        nanosleep(&t, NULL);
        double busy = (double)(clock() - before) / CLOCKS_PER_SEC;
        weft_pool_close(p);
        assert_true(busy < 0.05);
    }
}

static pthread_t main_thread;
static volatile sig_atomic_t elsewhere, arrived;
static void on_signal(int sig) {
    (void)sig;
    arrived = 1;
    if (!pthread_equal(pthread_self(), main_thread)) elsewhere = 1;
}

/* Ctrl-C belongs to the program's own thread. */
static void test_signals_stay_with_the_program(void **state) {
    (void)state;
    main_thread = pthread_self();
    struct sigaction act = {.sa_handler = on_signal}, before;
    sigaction(SIGUSR1, &act, &before);
    weft_pool *p;
    assert_int_equal(weft_pool_open(&p, 4, NULL), WEFT_OK);
    for (int i = 0; i < 50; i++) {
        kill(getpid(), SIGUSR1);
        weft_pool_run(p, 16, nothing, NULL);
    }
    weft_pool_close(p);
    assert_true(arrived && !elsewhere);
    sigaction(SIGUSR1, &before, NULL);
}

#if defined(__linux__) && !SANITIZED
#define CAN_LIMIT_MEMORY 1
#endif

/* A system that gives some threads and no more: an error, and those made are gone. */
static void test_too_many_threads(void **state) {
    (void)state;
#if defined(CAN_LIMIT_MEMORY)
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit small = {200 << 20, 200 << 20};
        setrlimit(RLIMIT_AS, &small);
        weft_error e;
        weft_pool *p;
        if (weft_pool_open(&p, 256, &e) >= 0 || p || !strstr(e.text, "cannot start worker thread")) _exit(1);
        if (weft_pool_open(&p, 4, &e) != WEFT_OK) _exit(2); /* the stacks came back */
        weft_pool_run(p, 100, nothing, NULL);
        weft_pool_close(p);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
#else
    print_message("address space cannot be limited here: not checked\n");
#endif
}

/* ---- processor count ----------------------------------------------------------------------------------------------------- */

static char root[200];

static void put(const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *s = path + strlen(root) + 1; (s = strchr(s, '/')); s++) {
        *s = 0;
        mkdir(path, 0700);
        *s = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void fresh_root(void) {
    snprintf(root, sizeof root, "/tmp/weft-cgroup-XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void drop_root(void) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static void test_cgroup_version_2(void **state) {
    (void)state;
    fresh_root();
    assert_int_equal(weft_cgroup_cpus(root), 0); /* no such system */
    put("proc/self/cgroup", "0::/user.slice/app.scope\n");
    assert_int_equal(weft_cgroup_cpus(root), 0);
    put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 0);
    put("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n"); /* the group above binds too; rounded up */
    assert_int_equal(weft_cgroup_cpus(root), 3);
    put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "150000 100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 2);
    put("sys/fs/cgroup/user.slice/app.scope/cpu.max", "5000 100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 1);
    static const char *const bad[] = {"", "\n", "garbage", "1000", "0 0", "100000 0", "-1 100000", "99999999999999999999 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("sys/fs/cgroup/user.slice/app.scope/cpu.max", bad[i]);
        assert_int_equal(weft_cgroup_cpus(root), 3);
    }
    /* A container: its path is not below the mount, whose top is its own group. */
    put("proc/self/cgroup", "0::/docker/0123\n");
    put("sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 4);
    put("proc/self/cgroup", "0::/\n");
    assert_int_equal(weft_cgroup_cpus(root), 4);
    drop_root();
}

static void test_cgroup_version_1(void **state) {
    (void)state;
    fresh_root();
    put("proc/self/cgroup", "12:cpuset:/x\n11:cpu,cpuacct:/a/b\n0::/a/b\nnonsense\n");
    put("sys/fs/cgroup/cpuset/x/cpu.cfs_quota_us", "100000\n"); /* not the cpu controller */
    put("sys/fs/cgroup/cpuset/x/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 0);
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "600000\n");
    put("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 6);
    put("proc/self/cgroup", "3:cpu:/only\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    assert_int_equal(weft_cgroup_cpus(root), 0); /* no period, no limit */
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "20000\n");
    assert_int_equal(weft_cgroup_cpus(root), 3);
    drop_root();
}

static void test_cpu_count(void **state) {
    (void)state;
    int n = weft_cpu_count();
    assert_true(n >= 1 && n <= (int)sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_piece_once),
        cmocka_unit_test(test_caller_waits_for_a_slow_worker),
        cmocka_unit_test(test_workers_flush_denormals),
        cmocka_unit_test(test_open_and_close),
        cmocka_unit_test(test_run_makes_no_allocation),
        cmocka_unit_test(test_idle_workers_sleep),
        cmocka_unit_test(test_signals_stay_with_the_program),
        cmocka_unit_test(test_too_many_threads),
        cmocka_unit_test(test_cgroup_version_2),
        cmocka_unit_test(test_cgroup_version_1),
        cmocka_unit_test(test_cpu_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* pool.c: the worker threads.
 *
 * One 64-bit ticket holds the number of the job (high half) and how many of its pieces are unclaimed (low half). To claim a piece
 * is to lower the ticket by one with a compare-and-swap: it succeeds only on a job that is not finished, and the job cannot finish
 * before the claimed piece has, so that its description is safe to read. A worker that wakes late finds no piece and touches
 * nothing. `pending` counts unfinished pieces; whoever brings it to zero ends the job.
 *
 * Sleeping: a worker says it sleeps, then looks at the ticket once more; the caller publishes the ticket, then looks for sleepers.
 * Both in sequentially consistent order, so one of them sees the other. The caller sleeps on `pending` the same way. */
#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fpu.h"

enum {
    MOST = 256,
    STACK = 2 << 20,    /* bytes; some systems give a thread 128 KB otherwise */
    SPIN_NS = 20 * 1000 /* waking a sleeper costs some 5-50 us; steps are made of jobs a few us apart */
};

typedef struct seat {
    weft_pool *pool;
    int worker;
    pthread_t thread;
} seat;

struct weft_pool {
    alignas(64) _Atomic uint64_t ticket; /* job << 32 | unclaimed pieces */
    alignas(64) _Atomic uint32_t pending;
    alignas(64) atomic_int sleepers; /* workers asleep, or about to be */
    atomic_bool caller_sleeps, stop;

    /* The job; written while nothing is claimable, read only with a piece in hand. */
    weft_piece run;
    void *ctx;
    uint32_t pieces;

    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    uint64_t spin_ns; /* 0 where threads outnumber processors: a spinner would keep the work from running */
    int threads;
    seat seats[]; /* threads - 1 */
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" : : : "memory"); /* yield is a no-op on most cores; isb waits some 10 ns */
#endif
}

/* Claims and runs pieces until none is left; true if that ended the job. */
static bool work(weft_pool *p, int worker) {
    uint32_t finished = 0;
    uint64_t t = atomic_load(&p->ticket);
    while ((uint32_t)t != 0) {
        if (!atomic_compare_exchange_weak(&p->ticket, &t, t - 1)) continue;
        p->run(p->ctx, (int)(p->pieces - (uint32_t)t), worker);
        finished++;
        t = atomic_load(&p->ticket);
    }
    return finished && atomic_fetch_sub(&p->pending, finished) == finished;
}

static bool claimable(weft_pool *p) {
    return (uint32_t)atomic_load(&p->ticket) != 0 || atomic_load(&p->stop);
}

/* Returns when there is a piece to claim or the pool closes. The spin starts anew with every job that goes by, claimed or not. */
static void await_job(weft_pool *p) {
    uint32_t seen = (uint32_t)(atomic_load(&p->ticket) >> 32);
    uint64_t until = weft_now_ns() + p->spin_ns;
    while (p->spin_ns) {
        for (int i = 0; i < 16; i++) {
            if (claimable(p)) return;
            relax();
        }
        uint64_t now = weft_now_ns();
        uint32_t job = (uint32_t)(atomic_load(&p->ticket) >> 32);
        if (job != seen) seen = job, until = now + p->spin_ns;
        if (now >= until) break;
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!claimable(p)) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg) {
    seat *s = arg;
    weft_pool *p = s->pool;
    weft_fpu_enter();
    while (!atomic_load(&p->stop)) {
        if (work(p, s->worker) && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
        await_job(p);
    }
    return NULL;
}

void weft_pool_run(weft_pool *p, int pieces, weft_piece run, void *ctx) {
    if (!p || p->threads == 1 || pieces <= 1) {
        for (int i = 0; i < pieces; i++) run(ctx, i, 0);
        return;
    }
    p->run = run;
    p->ctx = ctx;
    p->pieces = (uint32_t)pieces;
    atomic_store(&p->pending, (uint32_t)pieces);
    uint64_t job = (atomic_load(&p->ticket) >> 32) + 1;
    atomic_store(&p->ticket, job << 32 | (uint32_t)pieces);
    int asleep = atomic_load(&p->sleepers);
    if (asleep > 0) {
        pthread_mutex_lock(&p->lock);
        if (asleep < pieces)
            pthread_cond_broadcast(&p->wake);
        else
            for (int i = 1; i < pieces; i++) pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    if (work(p, 0)) return;

    if (p->spin_ns) {
        uint64_t until = weft_now_ns() + p->spin_ns;
        do {
            for (int i = 0; i < 16; i++) {
                if (atomic_load(&p->pending) == 0) return;
                relax();
            }
        } while (weft_now_ns() < until);
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->pending) != 0) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

/* Ends and joins the first n workers, then frees everything. */
static void end(weft_pool *p, int n) {
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < n; i++) pthread_join(p->seats[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    weft_free_aligned(p);
}

/* Workers leave signals to the program's own threads, except those that a thread raises by what it does itself: were these
 * blocked, the system would kill the process instead of calling the handler (file.c mends maps from one). */
static void worker_signals(sigset_t *set) {
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigfillset(set);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(set, own[i]);
}

weft_status weft_pool_open(weft_pool **pool, int threads, weft_error *e) {
    *pool = NULL;
    int cpus = weft_cpu_count();
    if (threads == 0) threads = cpus < MOST ? cpus : MOST;
    if (threads < 1 || threads > MOST) return weft_fail(e, WEFT_EINVAL, "threads %d: expected 1 to %d", threads, MOST);
    weft_pool *p = weft_alloc_aligned(sizeof *p + (size_t)(threads - 1) * sizeof p->seats[0]);
    if (!p) return weft_fail_oom(e, "worker threads");
    p->threads = threads;
    p->spin_ns = threads <= cpus ? SPIN_NS : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);

    pthread_attr_t attr;
    int made = 0, error = pthread_attr_init(&attr);
    if (!error) {
        pthread_attr_setstacksize(&attr, STACK);
        sigset_t theirs, ours;
        worker_signals(&theirs);
        pthread_sigmask(SIG_BLOCK, &theirs, &ours);
        for (; made < threads - 1 && !error; made += !error) {
            seat *s = &p->seats[made];
            s->pool = p;
            s->worker = made + 1;
            error = pthread_create(&s->thread, &attr, worker_main, s);
        }
        pthread_sigmask(SIG_SETMASK, &ours, NULL);
        pthread_attr_destroy(&attr);
    }
    if (error) {
        end(p, made);
        return weft_fail_os(e, error, "cannot start worker thread %d of %d", made + 1, threads - 1);
    }
    *pool = p;
    return WEFT_OK;
}

void weft_pool_close(weft_pool *p) {
    if (p) end(p, p->threads - 1);
}

int weft_pool_threads(const weft_pool *p) {
    return p->threads;
}

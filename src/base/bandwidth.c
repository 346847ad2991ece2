/* bandwidth.c: see bandwidth.h. */
#if defined(__APPLE__)
#include <sys/sysctl.h>
#include <sys/types.h>
#endif
#include "base/bandwidth.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/num.h"

#define GIB ((uint64_t)1 << 30)
#define STEP 256             /* bytes that are read from a run at a time: 4 lines */
#define PIECES 4             /* for each thread, so that a core which is taken away delays one of them */
#define LEAST (8 * STEP * 4) /* bytes of a piece */

struct weft_bandwidth {
    weft_pool *pool;
    uint8_t *data;
    size_t bytes, piece; /* piece: bytes of one, a multiple of 8 * STEP */
    int pieces;
    int runs; /* of the measurement under way */
    bool wide;
    _Atomic uint64_t sink; /* what was read: nothing may be left out as unused */
};

/* ---- caches -------------------------------------------------------------------------------------------------------------- */

#if defined(__linux__)
/* One line about cpu0's cache `index`; false when there is none. */
static bool cache_line(int index, const char *what, char *line, int size) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool ok = fgets(line, size, f) != NULL;
    fclose(f);
    if (ok) line[strcspn(line, "\n")] = 0;
    return ok;
}

/* Processors in a mask of hexadecimal words: "00000000,000000ff". */
static int mask_count(const char *mask) {
    int n = 0;
    for (; *mask; mask++) {
        const char *digits = "0123456789abcdef", *at = strchr(digits, *mask);
        if (at) n += __builtin_popcount((unsigned)(at - digits));
    }
    return n;
}

size_t weft_cache_bytes(void) {
    size_t largest = 0;
    char size[64], mask[1024]; /* "32768K" */
    for (int i = 0; i < 8 && cache_line(i, "size", size, sizeof size); i++) {
        uint64_t kb;
        size_t n = strlen(size);
        if (n < 2 || size[n - 1] != 'K') continue;
        size[n - 1] = 0;
        if (!weft_parse_u64(size, UINT32_MAX, &kb)) continue;
        long all = sysconf(_SC_NPROCESSORS_ONLN);
        int sharing = cache_line(i, "shared_cpu_map", mask, sizeof mask) ? mask_count(mask) : 0;
        size_t copies = all > 0 && sharing > 0 ? ((size_t)all + (size_t)sharing - 1) / (size_t)sharing : 1;
        if (kb * 1024 * copies > largest) largest = (size_t)kb * 1024 * copies;
    }
    return largest;
}
#elif defined(__APPLE__)
size_t weft_cache_bytes(void) {
    static const char *const names[] = {"hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"};
    for (int i = 0; i < 3; i++) {
        uint64_t bytes = 0;
        size_t size = sizeof bytes;
        if (sysctlbyname(names[i], &bytes, &size, NULL, 0) == 0 && bytes) return (size_t)bytes;
    }
    return 0;
}
#else
size_t weft_cache_bytes(void) {
    return 0;
}
#endif

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

/* `runs` runs of n bytes, one behind the other, go forward together. A load from each line moves the line; loads of whole lines,
 * where the processor has them, are some per cent faster still. */
#define READER(name, attributes, word)                                                                                             \
    attributes static uint64_t name(const uint8_t *p, size_t n, int runs) {                                                        \
        word a = {0}, b = {0}, c = {0}, d = {0};                                                                                   \
        for (size_t i = 0; i < n; i += STEP) {                                                                                     \
            const uint8_t *at = p + i;                                                                                             \
            for (int r = 0; r < runs; r++, at += n) {                                                                              \
                a ^= *(const word *)(const void *)at;                                                                              \
                b ^= *(const word *)(const void *)(at + 64);                                                                       \
                c ^= *(const word *)(const void *)(at + 128);                                                                      \
                d ^= *(const word *)(const void *)(at + 192);                                                                      \
            }                                                                                                                      \
        }                                                                                                                          \
        a ^= b ^ c ^ d;                                                                                                            \
        return *(const uint64_t *)(const void *)&a;                                                                                \
    }

READER(read_words, , uint64_t)
#if defined(__x86_64__)
typedef uint64_t line __attribute__((vector_size(64), may_alias));
READER(read_lines, __attribute__((target("avx512f"))), line)
#define HAS_LINES() __builtin_cpu_supports("avx512f")
#else
#define read_lines read_words
#define HAS_LINES() false
#endif

static void read_piece(void *ctx, int piece, int worker) {
    (void)worker;
    weft_bandwidth *b = ctx;
    const uint8_t *p = b->data + (size_t)piece * b->piece;
    size_t n = b->piece / (size_t)b->runs;
    b->sink ^= b->wide ? read_lines(p, n, b->runs) : read_words(p, n, b->runs);
}

static void write_piece(void *ctx, int piece, int worker) {
    (void)worker;
    weft_bandwidth *b = ctx;
    memset(b->data + (size_t)piece * b->piece, 1, b->piece);
}

double weft_bandwidth_measure(weft_bandwidth *b) {
    uint64_t fastest = UINT64_MAX;
    for (b->runs = 1; b->runs <= 8; b->runs *= 2) {
        uint64_t start = weft_now_ns();
        weft_pool_run(b->pool, b->pieces, read_piece, b);
        uint64_t ns = weft_now_ns() - start;
        if (ns < fastest) fastest = ns;
    }
    return (double)b->bytes * 1e9 / (double)(fastest ? fastest : 1);
}

/* ---- the block ----------------------------------------------------------------------------------------------------------- */

static uint64_t usual_bytes(void) {
    uint64_t caches = weft_cache_bytes(), memory = weft_memory_limit();
    uint64_t bytes = 8 * caches > GIB ? 8 * caches : GIB;
    return memory && memory / 8 < bytes ? memory / 8 : bytes;
}

weft_status weft_bandwidth_open(weft_bandwidth **bandwidth, weft_pool *pool, size_t bytes, weft_error *e) {
    uint64_t wanted = bytes ? bytes : usual_bytes();
    int pieces = PIECES * weft_pool_threads(pool);
    uint64_t piece = wanted / (uint64_t)pieces / (8 * STEP) * (8 * STEP);
    if (piece < LEAST) piece = LEAST;
    weft_bandwidth *b = weft_calloc(1, sizeof *b);
    if (!b) return weft_fail_oom(e, "measuring the memory");
    *b = (weft_bandwidth){.pool = pool, .piece = (size_t)piece, .pieces = pieces, .bytes = (size_t)piece * (size_t)pieces};
    b->wide = HAS_LINES();
    b->data = piece <= SIZE_MAX / (uint64_t)pieces ? weft_alloc_aligned(b->bytes) : NULL;
    if (!b->data) {
        char text[16];
        weft_bandwidth_close(b);
        return weft_fail(e, WEFT_ENOMEM, "no memory for the block of %s over which its speed is measured",
                         weft_bytes_text(piece * (uint64_t)pieces, text));
    }
    weft_pool_run(pool, pieces, write_piece, b);
    *bandwidth = b;
    return WEFT_OK;
}

void weft_bandwidth_close(weft_bandwidth *b) {
    if (!b) return;
    weft_free_aligned(b->data);
    weft_free(b);
}

size_t weft_bandwidth_bytes(const weft_bandwidth *b) {
    return b->bytes;
}

/* alloc.c: the only place that calls the C library's allocator. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/num.h"

static _Atomic uint64_t made;      /* allocations asked for so far */
static _Atomic uint64_t fail_from; /* the first that fails, counted like `made`; 0 none */

/* Counts one allocation; false when a test wants it to fail. */
static bool admit(void) {
    uint64_t number = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
    uint64_t from = atomic_load_explicit(&fail_from, memory_order_relaxed);
    return from == 0 || number < from;
}

void weft_alloc_fail_at(uint64_t n) {
    atomic_store(&fail_from, n ? atomic_load(&made) + n : 0);
}
uint64_t weft_alloc_count(void) {
    return atomic_load(&made);
}

/* Nothing asked for is one byte, so that NULL means failure and nothing else. */
void *weft_calloc(size_t n, size_t size) {
    size_t bytes;
    if (!admit() || !weft_mul_size(n, size, &bytes)) return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *weft_realloc(void *p, size_t n, size_t size) {
    size_t bytes;
    if (!admit() || !weft_mul_size(n, size, &bytes)) return NULL;
    return realloc(p, bytes ? bytes : 1);
}

void weft_free(void *p) {
    free(p);
}

char *weft_strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *copy = weft_calloc(n, 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void weft_advise_huge(void *p, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 2 << 20;
    uintptr_t first = ((uintptr_t)p + page - 1) / page * page, end = ((uintptr_t)p + bytes) / page * page;
    if (end > first) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)p, (void)bytes;
#endif
}

#define ALIGN 64

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EXACT_BLOCKS
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define EXACT_BLOCKS
#endif

#if defined(EXACT_BLOCKS)
/* Under the address sanitizer the block ends where the caller's bytes end, so that the first byte too far is caught. */
void *weft_alloc_aligned(size_t bytes) {
    void *p = NULL;
    if (!admit() || posix_memalign(&p, ALIGN, bytes ? bytes : 1) != 0) return NULL;
    return memset(p, 0, bytes);
}

void weft_free_aligned(void *p) {
    free(p);
}
#else
/* calloc, aligned by hand: pages of a large block come zeroed from the system and cost nothing until they are touched, where
 * clearing would touch gigabytes of KV pages at start. The block's own address stands just below the aligned one. */
void *weft_alloc_aligned(size_t bytes) {
    size_t total;
    if (!admit() || !weft_add_size(bytes, ALIGN + sizeof(void *), &total)) return NULL;
    char *block = calloc(total, 1);
    if (!block) return NULL;
    uintptr_t first = (uintptr_t)block + sizeof(void *);
    char *p = block + sizeof(void *) + (ALIGN - first % ALIGN) % ALIGN;
    memcpy(p - sizeof(void *), &block, sizeof(void *));
    weft_advise_huge(p, bytes);
    return p;
}

void weft_free_aligned(void *p) {
    if (!p) return;
    void *block;
    memcpy(&block, (char *)p - sizeof(void *), sizeof(void *));
    free(block);
}
#endif

/* alloc.h: memory. Everything allocated goes through here, so that a test can make the n-th allocation fail and count calls. */
#ifndef WEFT_BASE_ALLOC_H
#define WEFT_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* NULL when memory is short or n * size overflows, and only then: no bytes asked for is a block too. Zeroed. Freed by weft_free. */
void *weft_calloc(size_t n, size_t size);
/* Grows or shrinks; new bytes are not cleared; on failure the old block stays. */
void *weft_realloc(void *p, size_t n, size_t size);
/* Aligned to 64 bytes (a cache line, a 512-bit vector), zeroed. Freed by weft_free_aligned. */
void *weft_alloc_aligned(size_t bytes);
void weft_free(void *p);
void weft_free_aligned(void *p);
char *weft_strdup(const char *s);

/* Test hooks: let the n-th allocation from now (1 = the next) and every later one fail; 0 switches off. */
void weft_alloc_fail_at(uint64_t n);
/* Allocations made so far by the whole process (a running count: "no heap allocation in the decode loop" compares two). */
uint64_t weft_alloc_count(void);
/* Memory, or the map of a file, that will be read through again and again: in pages of 2 MB where the system has them. Streams of
 * reads are up to a third faster, and 150 MB take 75 page faults instead of 38,000. */
void weft_advise_huge(void *p, size_t bytes);

#endif

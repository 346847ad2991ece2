/* memory.c: see memory.h. */
#if defined(__APPLE__)
#include <sys/sysctl.h>
#include <sys/types.h>
#endif
#include "base/memory.h"

#include <stdio.h>
#include <unistd.h>

#include "base/num.h"

#if defined(__linux__)
/* One number in a file; 0 when there is none ("max"). */
static uint64_t number_in(const char *path) {
    char text[64] = "";
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    while (n && (text[n - 1] == '\n' || text[n - 1] == ' ')) text[--n] = 0;
    uint64_t x;
    return weft_parse_u64(text, UINT64_MAX, &x) ? x : 0;
}
#endif

uint64_t weft_memory_limit(void) {
    uint64_t installed = 0;
#if defined(__APPLE__)
    size_t size = sizeof installed;
    if (sysctlbyname("hw.memsize", &installed, &size, NULL, 0) != 0) installed = 0;
#else
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) installed = (uint64_t)pages * (uint64_t)page;
#endif
#if defined(__linux__)
    const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; i++) {
        uint64_t limit = number_in(limits[i]);
        if (limit && (!installed || limit < installed)) installed = limit;
    }
#endif
    return installed;
}

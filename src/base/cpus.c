/* cpus.c: how many processors this process may use, and what they are called. A container with two processors' worth of time on a
 * machine with 64 must not start 64 threads: they would spend their quota in the first milliseconds of each period and then all
 * stop. */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT_S */
#include <sched.h>
#endif
#include "base/cpus.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/num.h"
#include "base/pool.h"

/* The first line of a small file, without its newline. */
static bool first_line(const char *path, char *line, int size) {
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool ok = fgets(line, size, f) != NULL;
    fclose(f);
    if (ok) line[strcspn(line, "\n")] = 0;
    return ok;
}

static int ratio(const char *quota, const char *period) {
    uint64_t q, p;
    if (!weft_parse_u64(quota, UINT32_MAX, &q) || !weft_parse_u64(period, UINT32_MAX, &p) || q == 0 || p == 0) return 0;
    return (int)((q + p - 1) / p < 65536 ? (q + p - 1) / p : 65536);
}

enum { PATH = 4096 };

/* The limit of the one group whose folder is dir; 0 none. Version 2: cpu.max holds "quota period" or "max period"; version 1: a
 * file each, quota -1 for none. */
static int limit_at(const char *dir) {
    char path[PATH + 32], quota[64], period[64];
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (first_line(path, quota, sizeof quota)) {
        char *blank = strchr(quota, ' ');
        if (!blank) return 0;
        *blank = 0;
        return ratio(quota, blank + 1);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!first_line(path, quota, sizeof quota)) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    return first_line(path, period, sizeof period) ? ratio(quota, period) : 0;
}

/* The least limit of a group and all groups above it: each of them binds. In a container the group's path may not exist below
 * the mount, whose top then is the container's own group: walking up reaches it. */
static int limit_up(const char *mount, const char *group) {
    char dir[PATH];
    int least = 0, n = snprintf(dir, sizeof dir, "%s%s", mount, group);
    if (n < 0 || n >= (int)sizeof dir) return 0;
    for (size_t top = strlen(mount);;) {
        int limit = limit_at(dir);
        if (limit && (!least || limit < least)) least = limit;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < top || strlen(dir) <= top) return least;
        *slash = 0;
    }
}

/* Is "cpu" one of the comma-separated controllers? */
static bool has_cpu(const char *list) {
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (n == 3 && memcmp(p, "cpu", 3) == 0) return true;
        p += n;
        if (!*p) return false;
    }
}

int weft_cgroup_cpus(const char *root) {
    char path[PATH], line[PATH];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    int least = 0;
    while (fgets(line, sizeof line, f)) { /* id:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *list++ = 0;
        *group++ = 0;
        static const char *const v2[] = {"", "/unified", NULL};
        static const char *const v1[] = {"/cpu", "/cpu,cpuacct", NULL};
        bool unified = strcmp(line, "0") == 0 && !*list;
        if (!unified && !has_cpu(list)) continue;
        for (const char *const *place = unified ? v2 : v1; *place; place++) {
            char mount[PATH / 2];
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, *place);
            int limit = limit_up(mount, group);
            if (limit && (!least || limit < least)) least = limit;
        }
    }
    fclose(f);
    return least;
}

int weft_cpu_count(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    unsigned long mask[8192 / (8 * sizeof(unsigned long))]; /* a mask of the default 1024 fails on larger machines */
    memset(mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) == 0) {
        int allowed = CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
        if (allowed > 0 && (n < 1 || allowed < n)) n = allowed;
    }
    int quota = weft_cgroup_cpus("");
    if (quota > 0 && quota < n) n = quota;
#endif
    return n < 1 ? 1 : (int)n;
}

/* ---- the name ------------------------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
static bool own_name(char name[64]) {
    unsigned words[12] = {0};
    for (unsigned i = 0; i < 3; i++) /* the brand string, 16 bytes a leaf */
        if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3])) return false;
    memcpy(name, words, sizeof words);
    name[sizeof words] = 0;
    return true;
}
#elif defined(__APPLE__)
static bool own_name(char name[64]) {
    size_t n = 63;
    if (sysctlbyname("machdep.cpu.brand_string", name, &n, NULL, 0) != 0) return false;
    name[n] = 0;
    return true;
}
#else
/* Arm has numbers: whose design, and which. */
static bool own_name(char name[64]) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return false;
    name[0] = 0;
    while (fgets(line, sizeof line, f) && strcmp(line, "\n") != 0) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "CPU implementer", 15) != 0 && strncmp(line, "CPU part", 8) != 0) continue;
        size_t n = strlen(name);
        if (value) snprintf(name + n, 64 - n, "%s%.20s", n ? " " : "Arm", value + 1 + strspn(value + 1, " "));
        name[strcspn(name, "\n")] = 0;
    }
    fclose(f);
    return true;
}
#endif

void weft_cpu_name(char name[64]) {
    struct utsname system;
    if (!own_name(name)) name[0] = 0;
    char *to = name;
    for (const char *p = name; *p; p++) { /* one blank between words, printable characters alone */
        char c = *p < ' ' || *p > '~' ? ' ' : *p;
        if (c != ' ' || (to != name && to[-1] != ' ')) *to++ = c;
    }
    while (to != name && to[-1] == ' ') to--;
    *to = 0;
    if (!*name) snprintf(name, 64, "%.60s", uname(&system) == 0 ? system.machine : "processor");
}

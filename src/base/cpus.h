/* cpus.h: what weft_cpu_count (pool.h) is made of, and which processor it is. */
#ifndef WEFT_BASE_CPUS_H
#define WEFT_BASE_CPUS_H

/* Linux control groups: the processors' worth of time that this process may use, rounded up; 0 when there is no limit or it cannot
 * be read. root is put before /proc and /sys: "" except in tests. */
int weft_cgroup_cpus(const char *root);

/* The processor's own name, "AMD Ryzen 7 7840U"; where it has none, what the system calls its kind. Never empty. */
void weft_cpu_name(char name[64]);

#endif

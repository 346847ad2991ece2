/* isa.c: the instruction sets that kernels exist for, and which of them this processor can run. */
#define _DEFAULT_SOURCE /* syscall */
#include <string.h>

#include "ops/cpu/kernels.h"

#define COPIES(variant)                                                                                                            \
    &weft_kernels_##variant, &weft_attend_kernels_##variant, &weft_gdn_kernels_##variant, &weft_mamba_kernels_##variant

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const weft_isa amx = {"amx", COPIES(v4), &weft_linear_amx};
static const weft_isa avx512_vnni = {"avx512-vnni", COPIES(v4), &weft_linear_avx512_vnni};
static const weft_isa avx2 = {"avx2", COPIES(v3), &weft_linear_kernels_v3};
#endif
static const weft_isa reference = {"reference", COPIES(base), &weft_linear_kernels_base};

const weft_isa *const weft_isas[] = {
#if defined(__x86_64__)
    &amx,       &avx512_vnni, &avx2,
#endif
    &reference, NULL,
};

#if defined(__x86_64__)
/* Tiles need the processor, a system that saves them (XCR0 bits 17 and 18), and this process's asking for them, which covers
 * threads that run already. A program with an alternate signal stack too small for the tiles is refused (ENOSPC). */
static bool tiles_here(void) {
#if defined(__linux__)
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27)) return false; /* XGETBV */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 24) || !(d & 1u << 25)) return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const long request = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return (low & 0x60000) == 0x60000 && syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
    return false;
#endif
}
#endif

bool weft_isa_here(const weft_isa *isa) {
#if defined(__x86_64__)
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == &avx2) return v3;
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (isa == &avx512_vnni) return v4 && __builtin_cpu_supports("avx512vnni");
    if (isa == &amx) return v4 && __builtin_cpu_supports("avx512vnni") && tiles_here();
#endif
    return isa == &reference;
}

/* Names that the documentation has, for kernels of other processors and of later versions. */
static bool known(const char *name) {
    static const char *const names[] = {"avx2", "avx2-vnni", "avx512-vnni", "amx", "neon"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

weft_status weft_isa_choose(const weft_isa **isa, const char *name, weft_error *e) {
    bool any = !name || !strcmp(name, "auto");
    for (int i = 0; weft_isas[i]; i++) {
        if (!any && strcmp(name, weft_isas[i]->name)) continue;
        if (weft_isa_here(weft_isas[i])) {
            *isa = weft_isas[i];
            return WEFT_OK;
        }
        if (!any)
            return weft_fail(e, WEFT_ESUPPORT, "this processor cannot run the kernels '%s'; auto takes the best it can", name);
    }
    if (known(name))
        return weft_fail(e, WEFT_ESUPPORT,
                         "there are no kernels '%s' for this kind of processor in this version; auto takes the best there are",
                         name);
    return weft_fail(e, WEFT_EINVAL, "unknown kernels '%s'; there are: auto, reference, avx2, avx2-vnni, avx512-vnni, amx, neon",
                     name);
}

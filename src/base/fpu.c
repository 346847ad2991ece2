/* fpu.c: the floating-point mode of this thread. Where the machine has no such mode the calls do nothing. */
#include "base/fpu.h"

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>

/* MXCSR: all six exceptions masked (0x1F80), round to nearest (0), flush to zero (0x8000), denormals are zero (0x0040). */
weft_fpu weft_fpu_enter(void) {
    weft_fpu found = _mm_getcsr();
    _mm_setcsr(0x1F80 | 0x8000 | 0x0040);
    return found;
}

void weft_fpu_leave(weft_fpu mode) {
    _mm_setcsr((unsigned)mode);
}

#elif defined(__aarch64__)

static void set(uint64_t fpcr) {
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr) : "memory");
}

/* FPCR: FZ (bit 24) flushes results and operands; round to nearest, no traps, NaN payloads kept: all other bits zero. */
weft_fpu weft_fpu_enter(void) {
    uint64_t found;
    __asm__ volatile("mrs %0, fpcr" : "=r"(found) : : "memory");
    set(UINT64_C(1) << 24);
    return found;
}

void weft_fpu_leave(weft_fpu mode) {
    set(mode);
}

#else

weft_fpu weft_fpu_enter(void) {
    return 0;
}
void weft_fpu_leave(weft_fpu mode) {
    (void)mode;
}

#endif

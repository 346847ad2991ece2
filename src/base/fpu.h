/* fpu.h: the floating-point mode. Flush-to-zero and denormals-are-zero: a decaying recurrent state made of denormals runs 60
 * times slower, and a thread with another mode would break the promise. Set at every public entry and in every worker. */
#ifndef WEFT_BASE_FPU_H
#define WEFT_BASE_FPU_H

#include <stdint.h>

typedef uint64_t weft_fpu;
weft_fpu weft_fpu_enter(void);      /* round to nearest, flush, no traps; returns the mode found */
void weft_fpu_leave(weft_fpu mode); /* puts that mode back */

#endif

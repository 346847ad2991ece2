/* clock.h: time. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include <stdint.h>

uint64_t weft_now_ns(void); /* monotonic, nanoseconds from an arbitrary start */

#endif

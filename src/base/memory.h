/* memory.h: how much memory this process may use. */
#ifndef WEFT_BASE_MEMORY_H
#define WEFT_BASE_MEMORY_H

#include <stdint.h>

/* Installed memory, or the control group's limit where that is lower; 0 when unknown. Bytes. */
uint64_t weft_memory_limit(void);

#endif

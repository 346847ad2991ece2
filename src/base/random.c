/* random.c: see random.h. */
#include "base/random.h"

#if defined(__linux__)
#include <errno.h>
#include <sys/random.h>

weft_status weft_random(uint64_t *bits, weft_error *e) {
    ssize_t n;
    do n = getrandom(bits, sizeof *bits, 0); /* so few bytes come whole or not at all */
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *bits ? WEFT_OK : weft_fail_os(e, errno, "no random numbers: give a seed");
}
#else
#include <stdlib.h>

weft_status weft_random(uint64_t *bits, weft_error *e) {
    (void)e;
    arc4random_buf(bits, sizeof *bits);
    return WEFT_OK;
}
#endif

/* vec.c: growth of arrays. The pointer is read and written through memcpy, as its type is the caller's. */
#include "base/vec.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

bool weft_vec_room(void **v, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return true;
    size_t fresh = *cap < 8 ? 8 : *cap > SIZE_MAX / 2 ? need : *cap + *cap / 2;
    if (fresh < need) fresh = need;
    void *old;
    memcpy(&old, v, sizeof old);
    void *p = weft_realloc(old, fresh, size);
    if (!p) return false;
    memcpy(v, &p, sizeof p);
    *cap = fresh;
    return true;
}

void weft_vec_drop(void **v) {
    void *p;
    memcpy(&p, v, sizeof p);
    weft_free(p);
    p = NULL;
    memcpy(v, &p, sizeof p);
}

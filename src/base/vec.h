/* vec.h: growing arrays. A vector is any struct with the fields {T *v; size_t n, cap;}, zero-initialised. */
#ifndef WEFT_BASE_VEC_H
#define WEFT_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>

#define WEFT_VEC(T)                                                                                                                \
    struct {                                                                                                                       \
        T *v;                                                                                                                      \
        size_t n, cap;                                                                                                             \
    }

/* Appends x; false when memory is short (the vector is unchanged). */
#define weft_vec_push(a, x)                                                                                                        \
    (weft_vec_room((void **)&(a)->v, &(a)->cap, (a)->n + 1, sizeof *(a)->v) ? ((a)->v[(a)->n++] = (x), true) : false)
/* Makes room for `need` elements in all. */
#define weft_vec_reserve(a, need) weft_vec_room((void **)&(a)->v, &(a)->cap, (need), sizeof *(a)->v)
#define weft_vec_free(a) (weft_vec_drop((void **)&(a)->v), (a)->n = (a)->cap = 0)

bool weft_vec_room(void **v, size_t *cap, size_t need, size_t size);
void weft_vec_drop(void **v);

#endif

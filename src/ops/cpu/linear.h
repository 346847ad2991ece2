/* linear.h: products, shared by linear.c and experts.c. */
#ifndef WEFT_OPS_CPU_LINEAR_H
#define WEFT_OPS_CPU_LINEAR_H

#include "ops/cpu/kernels.h"
#include "ops/cpu/tiles.h"

/* Quantised activations of k columns in `groups` groups of 16 rows. */
size_t acts_bytes(int k, size_t groups);
weft_acts acts_lay(uint8_t *at, int k, size_t groups);
weft_acts acts_from(const weft_acts *a, int row); /* from row `row` on, a multiple of 16 */

/* Rows by one weight: row i goes to y + i * ldy. */
typedef struct product {
    const weft_mat *w;
    int64_t first; /* panel of w behind panel 0: an expert's first */
    float *y;
    size_t ldy;
    const weft_acts *acts; /* row i of the product is row i here; fast mode, affine weights */
    const float *x;        /* otherwise float32: row i reads x + from[i] / sharing * ldx; from NULL: x + i * ldx */
    size_t ldx;
    const int *from;
    int sharing;
} product;
/* Panels [panel, panel + panels) by rows [row, row + rows); row a multiple of 16. */
void product_run(const weft_dev *d, const product *p, int64_t panel, int panels, int row, int rows, int worker);

/* pick.c: bytes of its scratch, and floats of a worker's. */
size_t pick_parts_bytes(const weft_dev *d);
size_t pick_top_bytes(const weft_dev *d);
size_t pick_scratch_floats(void);
size_t pick_best_bytes(const weft_dev *d);
size_t pick_last_bytes(void); /* of the last call, for weft_read_logit() */

void misfit(weft_dev *d, const weft_mat *w, const weft_buf *y, const weft_buf *x);

#endif

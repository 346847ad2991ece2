/* kernels_mamba.c: Mamba-2's arithmetic: step sizes, and the recurrence some tokens at a time. See kernels.h. */
#include "ops/cpu/sweep_lanes.h"

static void gates(float *a, float *dt, const float *raw, size_t ld, float decay, float bias, float low, float high, int rows) {
    for (int r = 0; r < rows; r += W) {
        vf x;
        UNROLL for (int i = 0; i < W; i++) x[i] = raw[(size_t)(r + i < rows ? r + i : rows - 1) * ld];
        x = min2(splat(high), max2(splat(low), vsoftplus(x + splat(bias)))); /* NaN stays */
        vf y = vexp(splat(decay) * x);
        for (int i = 0; i < W && r + i < rows; i++) a[r + i] = y[i], dt[r + i] = x[i];
    }
}

/* As many as registers hold sums of; one where fma is emulated, which makes long code. */
#if W == 16 || defined(__aarch64__)
#define TOGETHER 4
#elif W == 8
#define TOGETHER 2
#else
#define TOGETHER 1
#endif

/* Tokens that are swept together, for GROUP vectors of columns: an element of S is read once for all of them, and written after the
 * first one or the last. */
typedef struct swept {
    const float *src;
    float *first, *last; /* NULL: not written there */
    const float *b[TOGETHER], *c[TOGETHER];
    vf a[TOGETHER], d[TOGETHER][GROUP], y[TOGETHER][CHAINS][GROUP];
} swept;
/* Row i of S, into chain j of the outputs. */
INLINE void sweep_row(swept *w, int i, int j, weft_gdn_ahead *ahead, const int T, const bool EARLY, const bool LATE) {
    vf s[GROUP];
    const int at = i * GDN_COLUMNS;
    want(ahead);
    UNROLL for (int g = 0; g < GROUP; g++) s[g] = load(w->src + at + g * W);
    UNROLL for (int r = 0; r < T; r++) {
        vf in = splat(w->b[r][i]), out = splat(w->c[r][i]);
        UNROLL for (int g = 0; g < GROUP; g++) {
            s[g] = vfma(in, w->d[r][g], w->a[r] * s[g]);
            w->y[r][j][g] = vfma(out, s[g], w->y[r][j][g]);
            if (EARLY && r == 0) store(w->first + at + g * W, s[g]);
        }
    }
    UNROLL for (int g = 0; g < GROUP && LATE; g++) store(w->last + at + g * W, s[g]);
}
INLINE void sweep_rows(swept *w, int dim, weft_gdn_ahead *ahead, const int T, const bool EARLY, const bool LATE) {
    int i = 0;
    for (; i + CHAINS <= dim; i += CHAINS) UNROLL for (int j = 0; j < CHAINS; j++) sweep_row(w, i + j, j, ahead, T, EARLY, LATE);
    if (i < dim) sweep_row(w, i, 0, ahead, T, EARLY, LATE);
}
INLINE void sweep(float *first, float *last, const float *src, const weft_mamba_tokens *t, int row, weft_gdn_ahead *ahead,
                  const int T) {
    for (int column = 0; column < GDN_COLUMNS; column += GROUP * W) {
        swept w = {.src = src + column, .first = first ? first + column : NULL, .last = last ? last + column : NULL};
        UNROLL for (int r = 0; r < T; r++) {
            size_t at = (size_t)(row + r);
            w.b[r] = t->b + at * t->ld_bc;
            w.c[r] = t->c + at * t->ld_bc;
            w.a[r] = splat(t->a[at]);
            UNROLL for (int g = 0; g < GROUP; g++) {
                w.d[r][g] = splat(t->dt[at]) * load(t->x + at * t->ld_x + column + g * W);
                UNROLL for (int j = 0; j < CHAINS; j++) w.y[r][j][g] = splat(0.0f);
            }
        }
        if (first && last)
            sweep_rows(&w, t->dim, ahead, T, true, true);
        else if (first)
            sweep_rows(&w, t->dim, ahead, T, true, false);
        else if (last)
            sweep_rows(&w, t->dim, ahead, T, false, true);
        else
            sweep_rows(&w, t->dim, ahead, T, false, false);
        UNROLL for (int r = 0; r < T; r++) UNROLL for (int g = 0; g < GROUP; g++) {
            size_t at = (size_t)(row + r);
            int c = column + g * W;
            if (c >= t->cols) continue;
            vf x = load(t->x + at * t->ld_x + c);
            store_n(t->y + at * t->ld_y + c, vfma(splat(t->skip), x, w.y[r][0][g] + w.y[r][1][g]), t->cols - c);
        }
    }
}
static void tokens(float *state, float *copy, const float *src, const weft_mamba_tokens *t, weft_gdn_ahead ahead) {
    ahead.stride /= PARTS;
    for (int r = 0, n; r < t->rows; r += n) {
        int certain = t->certain - r;
        bool crossing = certain == 1 && t->rows - r > 1; /* the last certain row together with others */
        n = certain > 0 && !crossing ? certain : t->rows - r;
        n = n < TOGETHER ? n : TOGETHER;
        float *first = crossing ? state : NULL, *last = certain > 0 && !crossing ? state : r + n < t->rows ? copy : NULL;
        switch (n) {
#if TOGETHER > 2
        case 4: sweep(first, last, src, t, r, &ahead, 4); break;
        case 3: sweep(first, last, src, t, r, &ahead, 3); break;
#endif
#if TOGETHER > 1
        case 2: sweep(first, last, src, t, r, &ahead, 2); break;
#endif
        default: sweep(first, last, src, t, r, &ahead, 1);
        }
        src = last;
    }
}

const weft_mamba_kernels WEFT_COPY(weft_mamba_kernels) = {
    .gates = gates,
    .tokens = tokens,
    .together = TOGETHER,
};

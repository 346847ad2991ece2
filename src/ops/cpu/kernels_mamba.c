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

/* T tokens over GROUP vectors of columns: an element of S is read and written once for all of them. */
INLINE void sweep(float *dst, const float *src, const weft_mamba_tokens *t, size_t row, int column, weft_gdn_ahead *ahead,
                  const int T) {
    const float *b[SWEEP_TOKENS], *c[SWEEP_TOKENS];
    vf a[SWEEP_TOKENS], d[SWEEP_TOKENS][GROUP], y[SWEEP_TOKENS][CHAINS][GROUP];
    UNROLL for (int r = 0; r < T; r++) {
        size_t at = row + (size_t)r;
        b[r] = t->b + at * t->ld_bc;
        c[r] = t->c + at * t->ld_bc;
        a[r] = splat(t->a[at]);
        UNROLL for (int g = 0; g < GROUP; g++) {
            d[r][g] = splat(t->dt[at]) * load(t->x + at * t->ld_x + column + g * W);
            UNROLL for (int j = 0; j < CHAINS; j++) y[r][j][g] = splat(0.0f);
        }
    }
    src += column, dst += column;
    for (int i = 0; i < t->dim; i += CHAINS) UNROLL for (int j = 0; j < CHAINS; j++) {
            if (j && i + j >= t->dim) break;
            vf s[GROUP];
            want(ahead);
            UNROLL for (int g = 0; g < GROUP; g++) s[g] = load(src + (i + j) * GDN_COLUMNS + g * W);
            UNROLL for (int r = 0; r < T; r++) {
                vf in = splat(b[r][i + j]), out = splat(c[r][i + j]);
                UNROLL for (int g = 0; g < GROUP; g++) {
                    s[g] = vfma(in, d[r][g], a[r] * s[g]);
                    y[r][j][g] = vfma(out, s[g], y[r][j][g]);
                }
            }
            UNROLL for (int g = 0; g < GROUP; g++) store(dst + (i + j) * GDN_COLUMNS + g * W, s[g]);
        }
    UNROLL for (int r = 0; r < T; r++) UNROLL for (int g = 0; g < GROUP; g++) {
        size_t at = row + (size_t)r;
        int col = column + g * W;
        if (col >= t->cols) continue;
        vf x = load(t->x + at * t->ld_x + col);
        store_n(t->y + at * t->ld_y + col, vfma(splat(t->skip), x, y[r][0][g] + y[r][1][g]), t->cols - col);
    }
}
INLINE void sweep_columns(float *dst, const float *src, const weft_mamba_tokens *t, size_t row, weft_gdn_ahead *ahead,
                          const int T) {
    for (int c = 0; c < GDN_COLUMNS; c += GROUP * W) sweep(dst, src, t, row, c, ahead, T);
}
static void tokens(float *dst, const float *src, const weft_mamba_tokens *t, weft_gdn_ahead ahead) {
    ahead.stride /= PARTS;
    for (int r = 0, n; r < t->rows; r += n, src = dst) {
        n = t->rows - r < SWEEP_TOKENS ? t->rows - r : SWEEP_TOKENS;
        switch (n) {
        case 1: sweep_columns(dst, src, t, (size_t)r, &ahead, 1); break;
        case 2: sweep_columns(dst, src, t, (size_t)r, &ahead, 2); break;
#if SWEEP_TOKENS > 2
        case 3: sweep_columns(dst, src, t, (size_t)r, &ahead, 3); break;
        default: sweep_columns(dst, src, t, (size_t)r, &ahead, 4);
#endif
        }
    }
}

const weft_mamba_kernels WEFT_COPY(weft_mamba_kernels) = {
    .gates = gates,
    .tokens = tokens,
};

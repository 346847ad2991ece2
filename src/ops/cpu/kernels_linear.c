/* kernels_linear.c: products of quantised activations with affine weights, and of float32 activations with plain ones. See
 * kernels.h for the arithmetic and tiles.h for the layout. Outputs are lanes. */
#include "ops/cpu/tile_lanes.h"

#define MAX_R 4 /* rows that go through a weight together */

/* ---- quantising ---------------------------------------------------------------------------------------------------------- */

INLINE int rounded(float x) { /* to even; |x| < 2^22 */
    const float magic = 12582912.0f;
    return (int)((x + magic) - magic);
}
static void quantize_block(const weft_acts *a, int row, int block, const float *x, int n) {
    size_t at = (size_t)(row / 16 * a->blocks + block);
    int8_t *q = a->q + (at * 16 + (size_t)(row % 16)) * 64;
    vf top = splat(0.0f), zero = top; /* zero: stays 0 unless x holds NaN or infinity */
    for (int i = 0; i < n; i += W) {
        vf v = load_n(x + i, n - i);
        top = max2((vf)((vi)v & 0x7fffffff), top);
        zero += v * splat(0.0f);
    }
    float most = 0, scale = 0, inverse = 0;
    bool finite = true;
    for (int i = 0; i < W; i++) {
        most = top[i] > most ? top[i] : most;
        finite = finite && zero[i] == 0.0f;
    }
    if (!finite)
        scale = __builtin_nanf("");
    else if (most >= 0x1p-100f)
        scale = most / 127, inverse = 127 / most;
    int halves[2] = {0};
    for (int i = 0; i < 64; i++) {
        int code = i < n && inverse != 0 ? rounded(x[i] * inverse) : 0;
        q[i] = (int8_t)code;
        halves[i / 32] += code;
    }
    a->scale[at * 16 + (size_t)(row % 16)] = scale;
    float *sum = a->sum + at * 48 + row % 16;
    sum[0] = scale * (float)(halves[0] + halves[1]);
    sum[16] = scale * (float)halves[0];
    sum[32] = scale * (float)halves[1];
}
static void quantize(const weft_acts *a, int row, const float *x) {
    for (int b = 0; b < a->blocks; b++) quantize_block(a, row, b, x + b * 64, a->k - b * 64 < 64 ? a->k - b * 64 : 64);
}

/* ---- affine weights ------------------------------------------------------------------------------------------------------ */

/* Four columns of an activation row as two pairs of 16-bit numbers: columns 0 and 2, 1 and 3. */
typedef struct pairs {
    uint32_t even, odd;
} pairs;

/* sums += codes * activations, four columns of PARTS * W outputs. 255 * 127 * 2 is far from the end of 32 bits. */
INLINE vi dot4(vi sums, vu codes, pairs x) {
    vu even = codes & 0x00ff00ffu, odd = codes >> 8 & 0x00ff00ffu;
#if W == 16
    __m512i e = _mm512_madd_epi16((__m512i)even, _mm512_set1_epi32((int)x.even));
    __m512i o = _mm512_madd_epi16((__m512i)odd, _mm512_set1_epi32((int)x.odd));
    return sums + (vi)e + (vi)o;
#elif W == 8
    __m256i e = _mm256_madd_epi16((__m256i)even, _mm256_set1_epi32((int)x.even));
    __m256i o = _mm256_madd_epi16((__m256i)odd, _mm256_set1_epi32((int)x.odd));
    return sums + (vi)e + (vi)o;
#elif defined(__x86_64__)
    __m128i e = _mm_madd_epi16((__m128i)even, _mm_set1_epi32((int)x.even));
    __m128i o = _mm_madd_epi16((__m128i)odd, _mm_set1_epi32((int)x.odd));
    return sums + (vi)e + (vi)o;
#else
    int x0 = (int16_t)x.even, x2 = (int16_t)(x.even >> 16), x1 = (int16_t)x.odd, x3 = (int16_t)(x.odd >> 16);
    return sums + (vi)(even & 0xffff) * x0 + (vi)(even >> 16) * x2 + (vi)(odd & 0xffff) * x1 + (vi)(odd >> 16) * x3;
#endif
}
/* R rows of a group, from its row `row`, by one panel. */
INLINE void affine_rows(float *y, size_t ldy, const weft_acts *a, int group, int row, const weft_mat *w, const uint8_t *panel,
                        const int R) {
    vf acc[MAX_R][PARTS];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PARTS; p++) acc[r][p] = splat(0.0f);
    const int columns = block_columns(w), steps = columns / STEP_COLUMNS, bits = w->bits;
    const size_t size = weft_dtype_size(w->dtype);
    for (int c = 0; c < (int)w->k; c += w->group, panel += unit_bytes(w)) {
        const uint8_t *scales = panel + unit_scales(w);
        for (int b = 0; b < w->group; b += columns) {
            int at = c + b;
            size_t block = (size_t)(group * a->blocks + at / 64);
            const uint8_t *codes = panel + b / columns * (int)block_bytes(w);
            const int8_t *q = a->q + (block * 16 + (size_t)row) * 64 + at % 64;
            vi sums[MAX_R][PARTS];
            UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PARTS; p++) sums[r][p] = (vi){0};
            for (int s = 0; s < steps; s++) {
                pairs x[MAX_R];
                UNROLL for (int r = 0; r < R; r++) {
                    const int8_t *four = q + r * 64 + s * STEP_COLUMNS;
                    x[r].even = (uint16_t)(int16_t)four[0] | (uint32_t)(uint16_t)(int16_t)four[2] << 16;
                    x[r].odd = (uint16_t)(int16_t)four[1] | (uint32_t)(uint16_t)(int16_t)four[3] << 16;
                }
                UNROLL for (int p = 0; p < PARTS; p++) {
                    vu v = vector_codes(codes, bits, steps, s, p);
                    UNROLL for (int r = 0; r < R; r++) sums[r][p] = dot4(sums[r][p], v, x[r]);
                }
            }
            const float *sx = a->scale + block * 16 + row, *total = a->sum + block * 48 + row;
            if (columns == 32) total += 16 + at % 64 / 32 * 16;
            UNROLL for (int p = 0; p < PARTS; p++) {
                vf scale = stored_part(w->dtype, scales, p), bias = stored_part(w->dtype, scales + LANES * size, p);
                UNROLL for (int r = 0; r < R; r++) {
                    acc[r][p] = vfma(__builtin_convertvector(sums[r][p], vf), scale * splat(sx[r]), acc[r][p]);
                    acc[r][p] = vfma(bias, splat(total[r]), acc[r][p]);
                }
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PARTS; p++) store(y + (size_t)r * ldy + p * W, acc[r][p]);
}
static void affine(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, int64_t panel, int panels) {
    for (int p = 0; p < panels; p++) {
        const uint8_t *data = panel_at(w, panel + p);
        float *out = y + p * LANES;
        for (int r = 0; r < rows;) {
            int left = rows - r < 16 - r % 16 ? rows - r : 16 - r % 16;
            float *at = out + (size_t)r * ldy;
            if (left >= 4)
                affine_rows(at, ldy, a, r / 16, r % 16, w, data, 4), r += 4;
            else if (left >= 2)
                affine_rows(at, ldy, a, r / 16, r % 16, w, data, 2), r += 2;
            else
                affine_rows(at, ldy, a, r / 16, r % 16, w, data, 1), r++;
        }
    }
}

/* ---- plain weights ------------------------------------------------------------------------------------------------------- */

/* R rows by P parts of outputs, part_bytes apart from one panel to the next. */
INLINE void plain_tile(float *y, size_t ldy, const float *const *x, const weft_mat *w, const uint8_t *panel, int parts, const int R,
                       const int P, const weft_dtype type) {
    vf acc[MAX_R][8];
    const uint8_t *at[8];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) acc[r][p] = splat(0.0f);
    UNROLL for (int p = 0; p < P; p++) at[p] = panel + (size_t)((parts + p) / PARTS) * panel_bytes(w) + (parts + p) % PARTS * W * 4;
    int k = (int)w->k, c = 0;
    if (type == WEFT_F32)
        for (; c < k; c++) UNROLL for (int p = 0; p < P; p++) {
                vf v = load((const float *)(const void *)(at[p] + (size_t)c * VECTOR_BYTES));
                UNROLL for (int r = 0; r < R; r++) acc[r][p] = vfma(splat(x[r][c]), v, acc[r][p]);
            }
    else
        for (; c < k; c += 2) {
            const bool last = c + 1 == k; /* its partner is zero, and x ends here */
            UNROLL for (int p = 0; p < P; p++) {
                vu v = load_words(at[p] + (size_t)(c / 2) * VECTOR_BYTES);
                vf even = type == WEFT_BF16 ? (vf)(v << 16) : from_f16(v & 0xffff);
                vf odd = type == WEFT_BF16 ? (vf)(v & 0xffff0000) : from_f16(v >> 16);
                UNROLL for (int r = 0; r < R; r++) {
                    acc[r][p] = vfma(splat(x[r][c]), even, acc[r][p]);
                    if (!last) acc[r][p] = vfma(splat(x[r][c + 1]), odd, acc[r][p]);
                }
            }
        }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) store(y + (size_t)r * ldy + (parts + p) * W, acc[r][p]);
}
INLINE void plain_rows(float *y, size_t ldy, const float *const *x, const weft_mat *w, const uint8_t *panel, int parts, const int R,
                       const weft_dtype type) {
    int p = 0;
    for (; p + 4 <= parts; p += 4) plain_tile(y, ldy, x, w, panel, p, R, 4, type);
    for (; p < parts; p++) plain_tile(y, ldy, x, w, panel, p, R, 1, type);
}
INLINE void plain_type(float *y, size_t ldy, const float *const *x, int rows, const weft_mat *w, const uint8_t *panel, int parts,
                       const weft_dtype type) {
    int r = 0;
    for (; r + 4 <= rows; r += 4) plain_rows(y + (size_t)r * ldy, ldy, x + r, w, panel, parts, 4, type);
    for (; r + 2 <= rows; r += 2) plain_rows(y + (size_t)r * ldy, ldy, x + r, w, panel, parts, 2, type);
    if (r < rows) plain_rows(y + (size_t)r * ldy, ldy, x + r, w, panel, parts, 1, type);
}
static void plain(float *y, size_t ldy, const float *const *x, int rows, const weft_mat *w, int64_t panel, int panels) {
    const uint8_t *data = panel_at(w, panel);
    switch (w->dtype) {
    case WEFT_F32: plain_type(y, ldy, x, rows, w, data, panels * PARTS, WEFT_F32); break;
    case WEFT_BF16: plain_type(y, ldy, x, rows, w, data, panels * PARTS, WEFT_BF16); break;
    default: plain_type(y, ldy, x, rows, w, data, panels * PARTS, WEFT_F16); break;
    }
}

const weft_linear_kernels WEFT_COPY(weft_linear_kernels) = {.quantize = quantize, .affine = affine, .plain = plain};

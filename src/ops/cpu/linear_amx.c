/* linear_amx.c: products with affine weights on AMX: tiles of 16 rows by 64 columns of int8.
 *
 * Weights stay, rows pass: the codes of a block of four panels are unpacked into four weight tiles; one tile of 16 rows after the
 * other is loaded, multiplied with all four and stored as int32, and scaled one tile later, out of the first cache, while the next
 * one is multiplied (Emerald Rapids: a third to a half faster than two by two tiles, which load a tile for every product). Few rows
 * go through vpdpbusd as without AMX.
 *
 * Tests compile this file with WEFT_TILES_EMULATED on processors without AMX: the tile instructions become loops. */
#include "base/clock.h"
#include "ops/cpu/linear_avx512.h"

/* ---- tiles: 0..2 sums, 3 rows, 4..7 weights ------------------------------------------------------------------------------ */

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

#ifdef WEFT_TILES_EMULATED
static _Thread_local struct {
    tile_config c;
    uint8_t data[8][16][64];
} tiles;
static void tiles_begin(const tile_config *c) {
    tiles.c = *c;
}
static void tiles_end(void) {}
static void tile_load(int t, const void *from, size_t stride) {
    for (int r = 0; r < tiles.c.rows[t]; r++)
        memcpy(tiles.data[t][r], (const uint8_t *)from + (size_t)r * stride, tiles.c.row_bytes[t]);
}
static void tile_store(int t, void *to, size_t stride) {
    for (int r = 0; r < tiles.c.rows[t]; r++) memcpy((uint8_t *)to + (size_t)r * stride, tiles.data[t][r], tiles.c.row_bytes[t]);
}
static void tile_multiply(int c, int rows, int weights) { /* from zero; signed by unsigned */
    for (int m = 0; m < tiles.c.rows[c]; m++)
        for (int n = 0; n < 16; n++) {
            int32_t sum = 0;
            for (int k = 0; k < tiles.c.row_bytes[rows]; k++)
                sum += (int8_t)tiles.data[rows][m][k] * tiles.data[weights][k / 4][n * 4 + k % 4];
            memcpy(&tiles.data[c][m][n * 4], &sum, sizeof sum);
        }
}
#else
/* gcc 12 declares only 8 bytes of the configuration as read, and may drop stores to the rest. */
#define tiles_begin(c)                                                                                                             \
    do {                                                                                                                           \
        __asm__ volatile("" : : "r"(c) : "memory");                                                                                \
        _tile_loadconfig(c);                                                                                                       \
    } while (0)
#define tiles_end() _tile_release()
#define tile_load(t, from, stride) _tile_loadd(t, from, stride)
#define tile_store(t, to, stride) _tile_stored(t, to, stride)
#define tile_multiply(c, rows, weights)                                                                                            \
    do {                                                                                                                           \
        _tile_zero(c);                                                                                                             \
        _tile_dpbsud(c, rows, weights);                                                                                            \
    } while (0)
#endif

/* ---- many rows ----------------------------------------------------------------------------------------------------------- */

typedef struct scratch {
    float acc[MANY][WIDE * LANES];
    int32_t sums[2][WIDE][16][LANES]; /* of this tile of rows and the one before it */
    uint8_t codes[WIDE][16][VECTOR_BYTES];
} scratch;

/* 16 rows from `row` take in their sums of one block. */
INLINE void scale_tile(scratch *t, int row, int rows, int half, const __m512 *scale, const __m512 *bias, const float *sx,
                       const float *total, const int P) {
    for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < P; p++) {
            float *acc = t->acc[row + r] + p * LANES;
            __m512i sum = _mm512_load_si512(t->sums[half][p][r]);
            _mm512_store_ps(acc, scaled(_mm512_load_ps(acc), sum, scale[p], bias[p], sx[r], total[r]));
        }
}

INLINE void many(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, const uint8_t *panel, const int bits,
                 const int columns, const int P) {
    const int steps = columns / STEP_COLUMNS, row_tiles = (rows + 15) / 16;
    const size_t stride = panel_bytes(w), unit = unit_bytes(w), scales = unit_scales(w), block = block_bytes(w),
                 size = LANES * weft_dtype_size(w->dtype);
    scratch t __attribute__((aligned(64)));
    tile_config config __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = i < 4 ? 16 : (uint8_t)steps;
        config.row_bytes[i] = i == 3 ? (uint16_t)columns : 64;
    }
    tiles_begin(&config);
    for (int r = 0; r < rows; r++) memset(t.acc[r], 0, (size_t)P * LANES * sizeof(float));
    for (int c = 0; c < (int)w->k; c += w->group, panel += unit) {
        __m512 scale[WIDE], bias[WIDE];
        UNROLL for (int p = 0; p < P; p++) {
            const uint8_t *at = panel + (size_t)p * stride;
            for (size_t i = 0; i < unit; i += 64) _mm_prefetch((const char *)at + AHEAD + i, _MM_HINT_T1);
            scale[p] = sixteen(w->dtype, at + scales);
            bias[p] = sixteen(w->dtype, at + scales + size);
        }
        for (int b = 0; b < w->group; b += columns) {
            const int at = c + b;
            UNROLL for (int p = 0; p < P; p++) {
                const uint8_t *from = panel + (size_t)p * stride + (size_t)(b / columns) * block;
                for (int v = 0; v < turns(bits, steps); v++)
                    UNROLL for (int ahead = 0; ahead < steps; ahead += turns(bits, steps))
                        _mm512_store_si512(t.codes[p][v + ahead], step_vector(from, bits, steps, v, ahead));
            }
            tile_load(4, t.codes[0], VECTOR_BYTES);
            if (P > 1) tile_load(5, t.codes[1], VECTOR_BYTES);
            if (P > 2) tile_load(6, t.codes[2], VECTOR_BYTES);
            if (P > 3) tile_load(7, t.codes[3], VECTOR_BYTES);
            for (int i = 0; i <= row_tiles; i++) { /* tile i is multiplied, tile i - 1 scaled */
                if (i < row_tiles) {
                    int32_t(*sums)[16][LANES] = t.sums[i % 2];
                    tile_load(3, a->q + (size_t)(i * a->blocks + at / 64) * 1024 + at % 64, 64);
                    tile_multiply(0, 3, 4);
                    if (P > 1) tile_multiply(1, 3, 5);
                    if (P > 2) tile_multiply(2, 3, 6);
                    tile_store(0, sums[0], 64);
                    if (P > 3) tile_multiply(0, 3, 7);
                    if (P > 1) tile_store(1, sums[1], 64);
                    if (P > 2) tile_store(2, sums[2], 64);
                    if (P > 3) tile_store(0, sums[3], 64);
                }
                if (i == 0) continue;
                size_t in = (size_t)((i - 1) * a->blocks + at / 64);
                int row = (i - 1) * 16, n = rows - row < 16 ? rows - row : 16;
                scale_tile(&t, row, n, (i - 1) % 2, scale, bias, a->scale + in * 16, sums_of(a, in, at, columns), P);
            }
        }
    }
    tiles_end();
    for (int r = 0; r < rows; r++) memcpy(y + (size_t)r * ldy, t.acc[r], (size_t)P * LANES * sizeof(float));
}

WIDTHS(MANY_ROWS)

static void affine(float *y, size_t ldy, const weft_acts *a, int rows, const weft_mat *w, int64_t panel, int panels) {
    static const affine_kernel many_kernels[2][9] = WIDTH_TABLE(many);
    if (rows <= 8)
        weft_linear_avx512_vnni.affine(y, ldy, a, rows, w, panel, panels);
    else
        many_kernels[w->group > 32][w->bits](y, ldy, a, rows, w, panel, panels);
}
static void quantize(const weft_acts *a, int row, const float *x) {
    weft_linear_avx512_vnni.quantize(a, row, x);
}
static void plain(float *y, size_t ldy, const float *const *x, int rows, const weft_mat *w, int64_t panel, int panels) {
    weft_linear_kernels_v4.plain(y, ldy, x, rows, w, panel, panels);
}

#ifdef WEFT_TILES_EMULATED
static const weft_linear_kernels weft_linear_amx_emulated = {.quantize = quantize, .affine = affine, .plain = plain};
#else
double weft_tiles_probe(void) {
    static const uint8_t zeros[4][1024] __attribute__((aligned(64)));
    enum { TURNS = 2000 };
    tile_config config __attribute__((aligned(64))) = {.palette = 1};
    for (int i = 0; i < 8; i++) config.rows[i] = 16, config.row_bytes[i] = 64;
    tiles_begin(&config);
    uint64_t start = weft_now_ns();
    for (int i = 0; i < TURNS; i++) {
        tile_load(4, zeros[0], 64);
        tile_load(5, zeros[1], 64);
        tile_load(6, zeros[2], 64);
        tile_load(7, zeros[3], 64);
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
    uint64_t ns = weft_now_ns() - start;
    tiles_end();
    return (double)ns / TURNS;
}

const weft_linear_kernels weft_linear_amx = {.quantize = quantize, .affine = affine, .plain = plain};
#endif

/* test_linear.c: the products of every instruction set that this processor can run (weft_isas[]), in the manner of dav1d's
 * checkasm: random shapes and operands, bit for bit against the plain C copy; and that one against the contract of kernels.h,
 * written down here once more in scalars, and against double arithmetic with an error bound.
 *
 * AMX runs here too where there is AVX-512 alone: its file is compiled once more with loops in place of the tile instructions.
 *
 * What a kernel reads lies against a page that must not be touched, what it writes as well, with guards around each row. Memory
 * that it may read but must not let count is NaN or the largest code. With --bench it times the kernels instead. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fpu.h"
#include "ops/cpu/linear.h"

#if defined(__x86_64__)
#define WEFT_TILES_EMULATED
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,fma"))),                \
                             apply_to = function)
#include "ops/cpu/linear_amx.c"
#pragma clang attribute pop
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,fma")
#include "ops/cpu/linear_amx.c"
#pragma GCC pop_options
#endif
static const weft_isa emulated = {.name = "amx, emulated", .linear = &weft_linear_amx_emulated};
#endif

#define U 0x1p-24 /* half an ulp of 1: the relative error of one rounding */

/* ---- instruction sets, numbers, memory ----------------------------------------------------------------------------------- */

static const weft_linear_kernels *const base = &weft_linear_kernels_base;
static const weft_isa *isas[9];
static int n_isas;
#define EACH_ISA(i) for (int i = 0; i < n_isas; i++)

static void find_isas(void) {
    for (int i = 0; weft_isas[i]; i++)
        if (!weft_isa_here(weft_isas[i]))
            print_message("skipped: %s, this processor cannot run it\n", weft_isas[i]->name);
        else
            isas[n_isas++] = weft_isas[i];
    assert_true(n_isas > 0 && isas[n_isas - 1]->linear == base);
#if defined(__x86_64__)
    for (int i = 0; i < n_isas; i++) /* the plain C copy stays the last */
        if (!strcmp(isas[i]->name, "avx512-vnni")) {
            memmove(isas + 1, isas, (size_t)n_isas++ * sizeof *isas);
            isas[0] = &emulated;
            break;
        }
#endif
}

static uint64_t seed = 1;
static uint32_t bits32(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed * 0x2545f4914f6cdd1dull >> 32);
}
static int below(int n) {
    return (int)(bits32() % (uint32_t)n);
}
static float random_float(void) { /* -1 .. 1 */
    return (float)((double)bits32() * 0x1p-31 - 1);
}
static uint32_t to_bits(float f) {
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}
static float from_bits(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}
static double daz(float x) {
    return fabsf(x) < FLT_MIN ? 0.0 : (double)x;
}
static double roundings(int n) {
    return n * U / (1 - n * U);
}

/* Memory between two pages that end the program when touched; it begins or ends at one of them. */
typedef struct fenced {
    void *map;
    size_t bytes;
} fenced;
static fenced held[64];
static int n_held;
static void *fence(size_t bytes, uint8_t fill) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    assert_true(n_held < 64);
    fenced *f = &held[n_held++];
    f->bytes = room + 2 * page;
    f->map = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->map != MAP_FAILED);
    uint8_t *p = (uint8_t *)f->map + page;
    memset(p, fill, room);
    assert_int_equal(mprotect(f->map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(p + room, page, PROT_NONE), 0);
    return below(3) ? p + (room - bytes) / 4 * 4 : p; /* below(3): mostly at the end, where an overrun is likelier */
}
static void drop_to(int n) { /* all but the first n */
    while (n_held > n) {
        n_held--;
        munmap(held[n_held].map, held[n_held].bytes);
    }
}
/* The same with rows at whole cache lines, as the library has them. */
static void *fence_lines(size_t bytes, uint8_t fill) {
    return fence((bytes + 63) & ~(size_t)63, fill);
}

static const uint32_t canary = 0x7fa5a5a5; /* a NaN that no kernel computes */
enum { GUARD = 16 };
/* Rows of `width` floats, `ld` apart, canaries between them and around. */
static float *output(int rows, int ld) {
    float *y = fence_lines(((size_t)rows * (size_t)ld + 2 * GUARD) * sizeof *y, 0);
    for (int i = 0; i < rows * ld + 2 * GUARD; i++) memcpy(y + i, &canary, 4);
    return y + GUARD;
}
static void guards_hold(const char *what, const float *y, int rows, int width, int ld) {
    for (int i = 1; i <= GUARD; i++)
        if (to_bits(y[-i]) != canary || to_bits(y[rows * ld + i - 1]) != canary) fail_msg("%s: wrote outside of its rows", what);
    for (int r = 0; r < rows; r++)
        for (int i = width; i < ld; i++)
            if (to_bits(y[r * ld + i]) != canary) fail_msg("%s: wrote beyond row %d", what, r);
}
static bool equal(float a, float b) {
    return to_bits(a) == to_bits(b) || (isnan(a) && isnan(b));
}
static void same(const char *what, const char *isa, int row, const float *a, const float *b, int n) {
    for (int i = 0; i < n; i++)
        if (!equal(a[i], b[i]))
            fail_msg("%s, %s: row %d, output %d of %d is %a, not %a", what, isa, row, i, n, (double)b[i], (double)a[i]);
}

/* ---- activations --------------------------------------------------------------------------------------------------------- */

typedef enum kind { PLAIN, SPREAD, EXTREME, SMALL, ZERO, TINY, HUGE_ONES, SPECIAL, KINDS } kind;
static bool measurable(kind k) { /* are results compared with double arithmetic, too? */
    return k <= ZERO;
}
/* A row of activations. EXTREME: all codes are +-127. SMALL: blocks below and about 2^-100 among others. TINY: denormals, zeros of
 * both signs, the smallest normals. SPECIAL: a few NaN and infinities. */
static void fill_row(float *x, int n, kind k) {
    float size = ldexpf(1, below(20) - 10);
    int sign = below(3);
    for (int i = 0; i < n; i++) {
        float v = random_float();
        switch (k) {
        case PLAIN: x[i] = v * size; break;
        case SPREAD: x[i] = ldexpf(v, below(81) - 40); break;
        case EXTREME: x[i] = sign == 0 || (sign == 1 && below(2)) ? size : -size; break;
        case SMALL: x[i] = ldexpf(v, i / 64 % 3 == 0 ? -130 : i / 64 % 3 == 1 ? -99 : 0); break;
        case ZERO: x[i] = below(2) ? 0.0f : -0.0f; break;
        case TINY: x[i] = below(3) ? from_bits(bits32() & 0x81ffffff) : below(2) ? -0.0f : v; break;
        case HUGE_ONES: x[i] = below(3) ? ldexpf(v, 127) : below(2) ? FLT_MAX : -FLT_MAX; break;
        default: x[i] = below(n) > 1 ? v : below(3) == 0 ? NAN : below(2) ? INFINITY : -INFINITY; break;
        }
    }
}
/* Rows of exactly k floats: x[r]. */
static void make_rows(const float **x, kind *kinds, int rows, int k, bool any_kind) {
    for (int r = 0; r < rows; r++) kinds[r] = any_kind ? (kind)below(KINDS) : (kind)(r % 2 ? PLAIN : below(KINDS));
    float *all = fence(sizeof *all * (size_t)(rows * (k + 1) - 1), 0xff); /* a NaN after each row but the last */
    for (int r = 0; r < rows; r++) {
        fill_row(all + r * (k + 1), k, kinds[r]);
        x[r] = all + r * (k + 1);
    }
}
/* Room for quantised rows, full of the largest codes and of NaN. */
static weft_acts make_acts(int k, int rows) {
    size_t groups = (size_t)(rows + 15) / 16;
    weft_acts a = acts_lay(fence_lines(acts_bytes(k, groups), 0xff), k, groups);
    memset(a.q, 0x7f, groups * (size_t)a.blocks * 16 * 64);
    return a;
}
static size_t block_of(const weft_acts *a, int row, int block) {
    return (size_t)(row / 16 * a->blocks + block);
}
static int8_t *codes_at(const weft_acts *a, int row, int block) {
    return a->q + (block_of(a, row, block) * 16 + (size_t)(row % 16)) * 64;
}
static float *scale_at(const weft_acts *a, int row, int block) {
    return a->scale + block_of(a, row, block) * 16 + row % 16;
}
static float *sum_at(const weft_acts *a, int row, int block, int which) {
    return a->sum + (block_of(a, row, block) * 3 + (size_t)which) * 16 + row % 16;
}

/* The contract: codes are x * (127 / largest), each operation rounded to nearest even. */
static void exact_quantize(const weft_acts *a, int row, const float *x) {
    for (int b = 0; b < a->blocks; b++) {
        int n = a->k - b * 64 < 64 ? a->k - b * 64 : 64, sums[3] = {0};
        float most = 0, scale = 0, inverse = 0;
        bool finite = true;
        for (int i = 0; i < n; i++) {
            float v = fabsf(x[b * 64 + i]);
            finite = finite && v <= FLT_MAX;
            most = v > most ? v : most;
        }
        if (!finite)
            scale = NAN;
        else if (most >= 0x1p-100f)
            scale = most / 127, inverse = 127 / most;
        for (int i = 0; i < 64; i++) {
            float v = i < n && inverse != 0 ? x[b * 64 + i] * inverse : 0;
            int code = (int)nearbyintf(v);
            codes_at(a, row, b)[i] = (int8_t)code;
            sums[0] += code;
            sums[1 + i / 32] += code;
        }
        *scale_at(a, row, b) = scale;
        for (int i = 0; i < 3; i++) *sum_at(a, row, b, i) = scale * (float)sums[i];
    }
}

static void test_quantize(void **state) {
    (void)state;
    for (int round = 0; round < 600; round++) {
        int k = 1 + (round < 200 ? round : below(400)), rows = 1 + below(40), row = below(rows);
        kind kd = (kind)(round % KINDS);
        float *x = fence(sizeof *x * (size_t)k, 0xff);
        fill_row(x, k, kd);
        if (kd == PLAIN && round % 16 == 0) /* exact halves: ties go to the even code */
            for (int i = 0; i < k; i++) x[i] = i % 64 ? (float)(below(255) - 127) / 2 : 127;
        weft_acts want = make_acts(k, rows);
        exact_quantize(&want, row, x);
        for (int b = 0; b < want.blocks; b++) {
            float scale = *scale_at(&want, row, b);
            for (int i = b * 64; i < k && i < b * 64 + 64 && !isnan(scale); i++) {
                int code = codes_at(&want, row, b)[i % 64];
                assert_in_range(code + 127, 0, 254); /* never -128 */
                if (measurable(kd))
                    assert_true(fabs(daz(x[i]) - code * (double)scale) <= (double)scale * (0.5 + 127 * 4 * U) + 0x1p-100);
            }
        }
        size_t bytes = acts_bytes(k, (size_t)(rows + 15) / 16);
        EACH_ISA(i) {
            weft_acts got = make_acts(k, rows);
            isas[i]->linear->quantize(&got, row, x);
            for (int b = 0; b < got.blocks; b++) {
                if (!equal(*scale_at(&got, row, b), *scale_at(&want, row, b)))
                    fail_msg("%s: the scale of block %d is %a, not %a", isas[i]->name, b, (double)*scale_at(&got, row, b),
                             (double)*scale_at(&want, row, b));
                for (int j = 0; j < 3; j++)
                    if (!equal(*sum_at(&got, row, b, j), *sum_at(&want, row, b, j)))
                        fail_msg("%s: sum %d of block %d is %a, not %a", isas[i]->name, j, b, (double)*sum_at(&got, row, b, j),
                                 (double)*sum_at(&want, row, b, j));
                if (isnan(*scale_at(&want, row, b))) /* the codes of such a block do not count */
                    memcpy(codes_at(&got, row, b), codes_at(&want, row, b), 64);
                for (int j = 0; j < 3; j++) *sum_at(&got, row, b, j) = *sum_at(&want, row, b, j);
                *scale_at(&got, row, b) = *scale_at(&want, row, b);
            }
            if (memcmp(got.q, want.q, bytes))
                fail_msg("%s: codes of row %d (%d columns), or memory of another row", isas[i]->name, row, k);
        }
        drop_to(0);
    }
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

static const weft_dtype types[] = {WEFT_F16, WEFT_BF16, WEFT_F32};
static const int widths[] = {2, 3, 4, 5, 6, 8}, group_sizes[] = {32, 64, 128};

typedef struct weight {
    weft_dev *d;
    weft_mat m;                               /* its panels lie against a page that must not be touched */
    uint8_t *values, *scales, *biases;        /* as a file holds them: codes or numbers, by rows of all experts */
    float *value_of, *scale_of, *bias_of;     /* what they stand for */
    int n, k, groups, rows, size, value_size; /* groups: in a row; rows: of all experts together */
} weight;

static weft_status read_weight(void *ctx, int64_t expert, int64_t row, void *values, void *scale, void *bias, weft_error *e) {
    (void)e;
    const weight *w = ctx;
    size_t at = (size_t)(expert * w->n + row), value_bytes = (size_t)(w->k * w->value_size), bytes = (size_t)(w->groups * w->size);
    memcpy(values, w->values + at * value_bytes, value_bytes);
    if (bytes) {
        memcpy(scale, w->scales + at * bytes, bytes);
        memcpy(bias, w->biases + at * bytes, bytes);
    }
    return WEFT_OK;
}
/* A finite number of any sign and size, zeros and denormals, too. */
static void put_any(uint8_t *at, weft_dtype t) {
    size_t size = weft_dtype_size(t);
    do {
        for (size_t i = 0; i < size; i++) at[i] = (uint8_t)bits32();
        if (t != WEFT_F16) at[size - 1] &= 0xbf; /* exponents of at most 0: sums stay finite */
        if (below(16) == 0) memset(at, 0, size);
    } while (weft_first_nonfinite(t, at, 1) == 0);
}
/* About `middle`, a float32 with the low half cut off. */
static void put_near(uint8_t *at, weft_dtype t, float middle, float spread) {
    uint32_t b = to_bits(middle + spread * random_float()) & 0xffffe000u;
    if (t == WEFT_F32)
        memcpy(at, &b, 4);
    else if (t == WEFT_BF16)
        memcpy(at, (const uint8_t *)&b + 2, 2);
    else
        memcpy(at, &(uint16_t){(uint16_t)((b >> 16 & 0x8000) | (((b & 0x7fffffff) - (112u << 23)) >> 13))}, 2);
}

/* tame: scales about 1/16, so that sums do not overflow; largest: every code is. */
typedef enum look { TAME, ANY, LARGEST } look;
static void open_weight(weight *w, weft_dtype type, int bits, int group, int experts, int n, int k, look how) {
    *w = (weight){.n = n, .k = k, .groups = bits ? k / group : 0, .rows = experts * n, .size = (int)weft_dtype_size(type)};
    w->value_size = bits ? 1 : w->size;
    size_t values = (size_t)(w->rows * k), groups = (size_t)(w->rows * w->groups), size = (size_t)w->size;
    w->values = malloc(values * (size_t)w->value_size);
    w->scales = malloc(groups * size + 1);
    w->biases = malloc(groups * size + 1);
    w->value_of = malloc(values * sizeof(float));
    w->scale_of = malloc(groups * sizeof(float) + 1);
    w->bias_of = malloc(groups * sizeof(float) + 1);
    assert_true(w->values && w->scales && w->biases && w->value_of && w->scale_of && w->bias_of);
    for (size_t i = 0; i < values; i++)
        if (bits)
            w->values[i] = (uint8_t)((how == LARGEST ? 255u : bits32()) & ((1u << bits) - 1));
        else if (how == ANY)
            put_any(w->values + i * size, type);
        else
            put_near(w->values + i * size, type, below(2) ? 0.07f : -0.07f, 0.06f);
    for (size_t i = 0; i < groups; i++)
        if (how == ANY) {
            put_any(w->scales + i * size, type);
            put_any(w->biases + i * size, type);
        } else {
            put_near(w->scales + i * size, type, below(2) ? 0.0625f : -0.0625f, how == LARGEST ? 0 : 0.03f);
            put_near(w->biases + i * size, type, 0.25f, 0.2f);
        }
    for (size_t i = 0; i < values; i++) w->value_of[i] = w->values[i];
    if (!bits) weft_to_f32(w->value_of, type, w->values, values);
    weft_to_f32(w->scale_of, type, w->scales, groups);
    weft_to_f32(w->bias_of, type, w->biases, groups);

    weft_mat *m;
    weft_error e;
    weft_mat_desc desc = {.dtype = type,
                          .bits = bits,
                          .group = group,
                          .experts = experts,
                          .n = n,
                          .k = k,
                          .name = "w",
                          .read = read_weight,
                          .ctx = w};
    assert_int_equal(weft_dev_open(&w->d, &(weft_dev_config){.threads = 1 + below(3)}, &e), WEFT_OK);
    assert_int_equal(weft_mat_make(w->d, &desc, &m, &e), WEFT_OK);
    w->m = *m;
    size_t bytes = (size_t)(experts * panel_count(m)) * panel_bytes(m);
    w->m.data = fence_lines(bytes, 0);
    memcpy(w->m.data, m->data, bytes);
}
static void close_weight(weight *w) {
    weft_dev_close(w->d);
    free(w->values), free(w->scales), free(w->biases), free(w->value_of), free(w->scale_of), free(w->bias_of);
    drop_to(0);
}
static const char *name_of(const weight *w) {
    static char text[64];
    snprintf(text, sizeof text, "%d x %d of %d bits in groups of %d, %s", w->n, w->k, w->m.bits, w->m.group,
             weft_dtype_name(w->m.dtype));
    return text;
}
/* Which row of the file output o of a panel is; -1: filled up. */
static int row_of(const weight *w, int64_t panel, int o) {
    int64_t panels = panel_count(&w->m), at = panel % panels * LANES + o;
    return at < w->n ? (int)(panel / panels * w->n + at) : -1;
}

/* ---- affine weights ------------------------------------------------------------------------------------------------------ */

/* The contract, operation by operation. */
static float exact_affine(const weight *w, int out, const weft_acts *a, int row) {
    int columns = w->m.group < 64 ? w->m.group : 64;
    float acc = 0;
    for (int c = 0; c < w->k; c += columns) {
        const float *codes = w->value_of + out * w->k + c;
        int sum = 0, g = out * w->groups + c / w->m.group;
        for (int i = 0; i < columns; i++) sum += (int)codes[i] * codes_at(a, row, c / 64)[c % 64 + i];
        float scale = w->scale_of[g] * *scale_at(a, row, c / 64);
        acc = fmaf((float)sum, scale, acc);
        acc = fmaf(w->bias_of[g], *sum_at(a, row, c / 64, columns == 64 ? 0 : 1 + c % 64 / 32), acc);
    }
    return acc;
}
/* The product of what weights and activations stand for, and how far the fast arithmetic may be from it: half a code's step for
 * each activation, and the roundings of the sums. */
static void near_product(const weight *w, int out, const weft_acts *a, int row, const float *x, float got) {
    double want = 0, bound = 0, terms = 0;
    for (int c = 0; c < w->k; c++) {
        int g = out * w->groups + c / w->m.group;
        double code = (double)w->value_of[out * w->k + c], s = daz(w->scale_of[g]), b = daz(w->bias_of[g]);
        want += (s * code + b) * daz(x[c]);
        bound += fabs(s * code + b) * ((double)*scale_at(a, row, c / 64) * (0.5 + 127 * 4 * U) + 0x1p-100);
        terms += (fabs(s) * code + fabs(b)) * fabs(daz(x[c])) * 1.01;
    }
    bound += roundings(2 * w->k / 32 + 3) * terms + 255.0 * 127 * w->k * FLT_MIN; /* a product of scales may be flushed to zero */
    if (!(fabs((double)got - want) <= bound))
        fail_msg("%s: row %d output %d is %.9g, not %.9g (bound %.3g)", name_of(w), row, out, (double)got, want, bound);
}

/* One call, checked in all that it may and must not do. */
static void check_affine(const weight *w, const float *const *x, const kind *kinds, int rows, int64_t panel, int panels) {
    weft_acts a = make_acts(w->k, rows);
    for (int r = 0; r < rows; r++) base->quantize(&a, r, x[r]);
    int width = panels * LANES, ld = width + LANES * below(3);
    float *first = NULL;
    EACH_ISA(at) {
        int i = n_isas - 1 - at; /* the plain C copy first */
        float *y = output(rows, ld);
        isas[i]->linear->affine(y, (size_t)ld, &a, rows, &w->m, panel, panels);
        guards_hold(isas[i]->name, y, rows, width, ld);
        for (int r = 0; r < rows && first; r++) same(name_of(w), isas[i]->name, r, first + r * ld, y + r * ld, width);
        if (!first) first = y;
    }
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < width; o++) {
            int out = row_of(w, panel + o / LANES, o % LANES);
            if (out < 0) continue;
            float want = exact_affine(w, out, &a, r), got = first[r * ld + o];
            same(name_of(w), "the contract", r, &want, &got, 1);
            if (measurable(kinds[r])) near_product(w, out, &a, r, x[r], got);
            if (kinds[r] == SPECIAL) {
                bool spoilt = false;
                for (int c = 0; c < w->k; c++) spoilt = spoilt || !isfinite(x[r][c]);
                if (spoilt) assert_true(isnan(got));
            }
        }
}

static void test_affine(void **state) {
    (void)state;
    const float *x[80];
    kind kinds[80];
    for (int i = 0; i < 6 * 3 * 3 * 4; i++) {
        int group = group_sizes[i / 6 % 3], k = group * (1 + below(512 / group)), experts = 1 + below(3), n = 1 + below(70), rows;
        weight w;
        open_weight(&w, types[i / 18 % 3], widths[i % 6], group, experts, n, k, i % 4 == 0 ? TAME : ANY);
        for (int round = 0; round < 3; round++) {
            int all = experts * (int)panel_count(&w.m), panel = below(all), panels = round ? 1 + below(all - panel) : all - panel;
            rows = round == 0 ? 1 + below(4) : round == 1 ? 1 + below(20) : 1 + below(i % 7 ? 24 : 80);
            make_rows(x, kinds, rows, k, true);
            check_affine(&w, x, kinds, rows, panel, panels);
        }
        close_weight(&w);
    }
}

/* The promise where it begins (L#23335 and its kind: kernels by batch size): a row's product is the same alone, at any place among
 * any number of rows, and beside rows of NaN, infinities, the largest and the smallest numbers. */
static void test_affine_rows(void **state) {
    (void)state;
    enum { MOST = 130 };
    const float *x[MOST];
    kind kinds[MOST];
    for (int i = 0; i < 18; i++) {
        weight w;
        int group = group_sizes[i / 6];
        open_weight(&w, types[i % 3], widths[i % 6], group, 1, 70, group == 32 ? 96 : 128, TAME);
        int width = (int)panel_count(&w.m) * LANES;
        make_rows(x, kinds, MOST, w.k, false);
        EACH_ISA(at) {
            const weft_linear_kernels *kernels = isas[at]->linear;
            weft_acts a = make_acts(w.k, MOST);
            float *alone = output(MOST, width);
            for (int r = 0; r < MOST; r++) {
                weft_acts one = make_acts(w.k, 1);
                kernels->quantize(&one, 0, x[r]);
                kernels->quantize(&a, r, x[r]);
                for (int p = 0; p < width / LANES; p++)
                    kernels->affine(alone + r * width + p * LANES, (size_t)width, &one, 1, &w.m, p, 1);
                drop_to(n_held - 1);
            }
            guards_hold(isas[at]->name, alone, MOST, width, width);
            float *y = output(MOST, width);
            for (int rows = 1; rows <= MOST; rows += rows < 66 ? 1 : 16) {
                int from = 16 * below((MOST - rows) / 16 + 1);
                weft_acts part = acts_from(&a, from);
                for (int j = 0; j < MOST * width; j++) memcpy(y + j, &canary, 4);
                kernels->affine(y, (size_t)width, &part, rows, &w.m, 0, width / LANES);
                for (int r = 0; r < rows; r++)
                    same(name_of(&w), isas[at]->name, from + r, alone + (from + r) * width, y + r * width, width);
                for (int j = rows * width; j < MOST * width; j++) assert_true(to_bits(y[j]) == canary);
            }
        }
        close_weight(&w);
    }
}

/* Sums of products of the largest codes with the largest activations: an instruction that saturates in between (IK maddubs) shows.
 * All results are exact. */
static void test_affine_extremes(void **state) {
    (void)state;
    for (int i = 0; i < 18; i++) {
        int bits = widths[i % 6], group = group_sizes[i / 6], k = 512, largest = (1 << bits) - 1;
        weight w;
        open_weight(&w, WEFT_BF16, bits, group, 1, 33, k, LARGEST);
        for (int rows = 1; rows <= 70; rows = rows * 3 + 1) {
            const float *x[128];
            kind kinds[128];
            make_rows(x, kinds, rows, k, false);
            weft_acts a = make_acts(k, rows);
            for (int sign = 0; sign < 3; sign++) {
                for (int r = 0; r < rows; r++) {
                    float *v = (float *)(uintptr_t)x[r];
                    for (int c = 0; c < k; c++) v[c] = sign == 0 || (sign == 2 && c % 2) ? 127 : -127;
                    base->quantize(&a, r, v);
                }
                EACH_ISA(at) {
                    float *y = output(rows, 48);
                    isas[at]->linear->affine(y, 48, &a, rows, &w.m, 0, 3);
                    guards_hold(isas[at]->name, y, rows, 48, 48);
                    for (int r = 0; r < rows; r++)
                        for (int o = 0; o < w.n; o++) {
                            double want = 0;
                            for (int c = 0; c < k; c++) {
                                int g = o * w.groups + c / group;
                                want += ((double)w.scale_of[g] * largest + (double)w.bias_of[g]) * (double)x[r][c];
                            }
                            if (fabs((double)y[r * 48 + o] - want) > 40 * U * 127 * k * (largest * 0.0625 + 0.45))
                                fail_msg("%s, %s: %.9g, not %.9g", name_of(&w), isas[at]->name, (double)y[r * 48 + o], want);
                            float exact = exact_affine(&w, o, &a, r);
                            same(name_of(&w), isas[at]->name, r, &exact, y + r * 48 + o, 1);
                        }
                }
            }
            drop_to(1); /* all but the weight */
        }
        close_weight(&w);
    }
}

/* A block of zeros, or of less than 2^-100, adds nothing, not even the bias; a block with a NaN or an infinity makes its row NaN
 * whatever the weights are. */
static void test_affine_blocks(void **state) {
    (void)state;
    enum { ROWS = 5, K = 192 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 18; i++) {
        weight w;
        open_weight(&w, types[i % 3], widths[i % 6], group_sizes[i / 6 % 2], 1, 20, K, i % 2 ? TAME : ANY);
        const float *x[ROWS];
        kind kinds[ROWS];
        make_rows(x, kinds, ROWS, K, false);
        for (int block = 0; block < 3; block++) {
            for (int r = 0; r < ROWS; r++) {
                float *v = (float *)(uintptr_t)x[r];
                fill_row(v, K, PLAIN);
                for (int c = 0; c < K; c++)
                    if (r < 2 && c / 64 != block) v[c] = r ? ldexpf(v[c], -150) : below(2) ? 0.0f : -0.0f;
                if (r == 3) v[block * 64 + below(64)] = bad[below(3)];
                if (r == 1) memcpy(v + block * 64, x[0] + block * 64, 64 * sizeof *v);
            }
            weft_acts a = make_acts(K, ROWS);
            for (int r = 0; r < ROWS; r++) base->quantize(&a, r, x[r]);
            EACH_ISA(at) {
                float *y = output(ROWS, 32);
                isas[at]->linear->affine(y, 32, &a, ROWS, &w.m, 0, 2);
                same("zeros and numbers below 2^-100", isas[at]->name, 1, y, y + 32, w.n);
                for (int r = 0; r < ROWS; r++)
                    for (int o = 0; o < w.n; o++) {
                        float want = exact_affine(&w, o, &a, r);
                        same(name_of(&w), isas[at]->name, r, &want, y + r * 32 + o, 1);
                        assert_true(isnan(y[r * 32 + o]) == (r == 3));
                    }
            }
            drop_to(2); /* all but the weight and the rows */
        }
        close_weight(&w);
    }
}

/* ---- plain weights ------------------------------------------------------------------------------------------------------- */

static float exact_plain(const weight *w, int out, const float *x) {
    float acc = 0;
    for (int c = 0; c < w->k; c++) acc = fmaf(x[c], w->value_of[out * w->k + c], acc);
    return acc;
}

static void test_plain(void **state) {
    (void)state;
    const float *x[80];
    kind kinds[80];
    for (int i = 0; i < 180; i++) {
        int k = i < 120 ? 1 + i / 3 : 1 + below(400), experts = 1 + below(3), rows = 1 + below(i % 5 ? 12 : 80);
        weight w;
        open_weight(&w, types[i % 3], 0, 0, experts, 1 + below(90), k, i % 2 ? TAME : ANY);
        int all = experts * (int)panel_count(&w.m), panel = below(all), panels = 1 + below(all - panel), width = panels * LANES;
        int ld = width + LANES * below(3);
        make_rows(x, kinds, rows, k, true);
        float *first = NULL;
        EACH_ISA(at) {
            const weft_isa *isa = isas[n_isas - 1 - at];
            float *y = output(rows, ld), *alone = output(1, width);
            isa->linear->plain(y, (size_t)ld, x, rows, &w.m, panel, panels);
            guards_hold(isa->name, y, rows, width, ld);
            for (int r = 0; r < rows; r++) {
                for (int p = 0; p < panels; p++) isa->linear->plain(alone + p * LANES, (size_t)width, x + r, 1, &w.m, panel + p, 1);
                same("alone and in company", isa->name, r, alone, y + r * ld, width);
                if (first) same(name_of(&w), isa->name, r, first + r * ld, y + r * ld, width);
            }
            if (!first) first = y;
        }
        for (int r = 0; r < rows; r++)
            for (int o = 0; o < width; o++) {
                int out = row_of(&w, panel + o / LANES, o % LANES);
                if (out < 0) continue;
                float want = exact_plain(&w, out, x[r]), got = first[r * ld + o];
                same(name_of(&w), "the contract", r, &want, &got, 1);
                double product = 0, size = 0;
                for (int c = 0; c < k; c++) {
                    product += daz(x[r][c]) * daz(w.value_of[out * k + c]);
                    size += fabs(daz(x[r][c]) * daz(w.value_of[out * k + c]));
                }
                if (measurable(kinds[r])) assert_true(fabs((double)got - product) <= roundings(k + 1) * size + k * (double)FLT_MIN);
            }
        close_weight(&w);
    }
}

/* Every number of rows from 1 to 64 (and beyond) gives each row what it gets alone, beside rows of any kind. */
static void test_plain_rows(void **state) {
    (void)state;
    enum { MOST = 100 };
    const float *x[MOST];
    kind kinds[MOST];
    for (int i = 0; i < 3; i++) {
        weight w;
        open_weight(&w, types[i], 0, 0, 1, 50, 77, TAME);
        make_rows(x, kinds, MOST, w.k, false);
        EACH_ISA(at) {
            float *alone = output(MOST, 64), *y = output(MOST, 64);
            for (int r = 0; r < MOST; r++) isas[at]->linear->plain(alone + r * 64, 64, x + r, 1, &w.m, 0, 4);
            for (int rows = 1; rows <= MOST; rows++) {
                int from = below(MOST - rows + 1);
                isas[at]->linear->plain(y, 64, x + from, rows, &w.m, 0, 4);
                for (int r = 0; r < rows; r++) same(name_of(&w), isas[at]->name, from + r, alone + (from + r) * 64, y + r * 64, 64);
            }
        }
        close_weight(&w);
    }
}

/* ---- timing -------------------------------------------------------------------------------------------------------------- */

/* Panels by the hundred, all the same: enough that they come from memory. */
enum { BENCH_K = 2048, BENCH_BYTES = 96 << 20, BENCH_ROWS = 512 };

static double seconds_of(const weft_linear_kernels *l, const weft_mat *m, const weft_acts *a, const float *const *x, int rows,
                         int64_t panels, float *y) {
    double best = 1e9;
    int64_t each = rows > 16 ? 4 : panels; /* as linear.c cuts them */
    uint64_t begun = weft_now_ns();
    for (int i = 0; i < 5 && (i < 1 || weft_now_ns() - begun < 150000000); i++) {
        uint64_t start = weft_now_ns();
        for (int64_t p = 0; p < panels; p += each)
            if (m->bits)
                l->affine(y, (size_t)each * LANES, a, rows, m, p, (int)each);
            else
                l->plain(y, (size_t)each * LANES, x, rows, m, p, (int)each);
        double s = (double)(weft_now_ns() - start) * 1e-9;
        best = s < best ? s : best;
    }
    return best;
}
static void bench_weight(weft_dtype type, int bits, const float *const *x) {
    static const int counts[] = {1, 4, 64, BENCH_ROWS};
    double base_time[4] = {0};
    weight w;
    open_weight(&w, type, bits, 64, 1, 64, BENCH_K, TAME);
    weft_mat m = w.m;
    size_t bytes = panel_bytes(&m);
    int64_t panels = BENCH_BYTES / (int64_t)bytes / 4 * 4;
    m.data = fence_lines((size_t)panels * bytes, 0);
    for (int64_t p = 0; p < panels; p++) memcpy(m.data + (size_t)p * bytes, w.m.data + (size_t)(p % 4) * bytes, bytes);
    m.n = panels * LANES;
    float *y = fence_lines((size_t)m.n * 16 * sizeof *y, 0);
    weft_acts a = make_acts(BENCH_K, BENCH_ROWS);
    for (int r = 0; r < BENCH_ROWS; r++) base->quantize(&a, r, x[r]);
    EACH_ISA(at) {
        const weft_isa *isa = isas[n_isas - 1 - at];
        if (!isa->kernels) continue; /* emulated */
        printf("%d %-5s %-12s", bits, weft_dtype_name(type), isa->name);
        for (int c = 0; c < 4; c++) {
            int64_t some = counts[c] <= 4 ? panels : 4096 / counts[c]; /* many rows: time counts, not memory */
            double s = seconds_of(isa->linear, &m, &a, x, counts[c], some, y) / (double)some;
            if (!at) base_time[c] = s;
            double speed = counts[c] <= 4 ? (double)bytes : 2.0 * LANES * BENCH_K * counts[c];
            printf("  %4d rows %7.1f %s %5.1fx", counts[c], speed / s * 1e-9, counts[c] <= 4 ? "GB/s" : "GOP/s", base_time[c] / s);
        }
        printf("\n");
        fflush(stdout);
    }
    close_weight(&w);
}
static void bench(void) {
    static float rows[BENCH_ROWS][BENCH_K];
    const float *x[BENCH_ROWS];
    for (int r = 0; r < BENCH_ROWS; r++) {
        fill_row(rows[r], BENCH_K, PLAIN);
        x[r] = rows[r];
    }
    printf("one thread; weights of %d columns, ratios to the plain C copy (\"reference\")\n", BENCH_K);
    weft_acts a = make_acts(BENCH_K, BENCH_ROWS);
    double base_time = 0;
    EACH_ISA(at) {
        const weft_isa *isa = isas[n_isas - 1 - at];
        if (!isa->kernels) continue;
        uint64_t start = weft_now_ns();
        for (int i = 0; i < 10 * BENCH_ROWS; i++) isa->linear->quantize(&a, i % BENCH_ROWS, x[i % BENCH_ROWS]);
        double s = (double)(weft_now_ns() - start) * 1e-9;
        if (!at) base_time = s;
        printf("quantize %-11s %6.1f GB/s %5.1fx\n", isa->name, 10.0 * sizeof rows / s * 1e-9, base_time / s);
    }
    drop_to(0);
    for (int i = 0; i < 6; i++) bench_weight(WEFT_BF16, widths[i], x);
    for (int i = 0; i < 3; i++) bench_weight(types[i], 0, x);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize),        cmocka_unit_test(test_affine),        cmocka_unit_test(test_affine_rows),
        cmocka_unit_test(test_affine_extremes), cmocka_unit_test(test_affine_blocks), cmocka_unit_test(test_plain),
        cmocka_unit_test(test_plain_rows),
    };
    find_isas();
    weft_fpu_enter();
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        bench();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* normalize.c: normalisation form C (Unicode Standard Annex 15) with the tables of utf8proc.
 *
 * Code points below U+0300 are their own NFC and never combine with what stands before them, so that only runs above (with the
 * one character before, which may take up a mark: e + U+0301) are decomposed, put into canonical order and composed again.
 * utf8proc_map() does the same, but orders marks by exchanging neighbours: quadratic, minutes for a megabyte of marks. */
#include "text/normalize.h"

#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "text/utf8.h"

#define FIRST_INTERESTING 0x300 /* the first combining mark */

/* A vowel that no syllable takes up. utf8proc up to 2.9 counts it as an empty final consonant and drops it after a syllable, so
 * that a run ends before it. */
#define HANGUL_FILLER 0x11A7

static int combining_class(int32_t cp) {
    return utf8proc_get_property(cp)->combining_class;
}

/* Sorts marks by combining class, marks of one class in their old order: a counting sort. */
static bool sort_marks(int32_t *cp, size_t n) {
    size_t start[257] = {0};
    int32_t *sorted = weft_calloc(n, sizeof *sorted);
    if (!sorted) return false;
    for (size_t i = 0; i < n; i++) start[combining_class(cp[i]) + 1]++;
    for (int c = 0; c < 256; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++) sorted[start[combining_class(cp[i])]++] = cp[i];
    memcpy(cp, sorted, n * sizeof *sorted);
    weft_free(sorted);
    return true;
}

static bool order(weft_codepoints *run) {
    for (size_t i = 0; i < run->n; i++) {
        int last = combining_class(run->v[i]);
        if (last == 0) continue;
        size_t first = i;
        bool sorted = true;
        for (; i + 1 < run->n; i++) {
            int next = combining_class(run->v[i + 1]);
            if (next == 0) break;
            sorted &= last <= next;
            last = next;
        }
        if (!sorted && !sort_marks(run->v + first, i + 1 - first)) return false;
    }
    return true;
}

static bool decompose(weft_codepoints *run, int32_t cp) {
    utf8proc_int32_t part[8]; /* the longest canonical decomposition has 4 code points */
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(cp, part, 8, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
    if (n < 0 || n > 8 || !weft_vec_reserve(run, run->n + (size_t)n)) return false;
    for (utf8proc_ssize_t k = 0; k < n; k++) run->v[run->n++] = part[k];
    return true;
}

static bool compose(weft_codepoints *run, weft_str *out) {
    if (run->n == 0) return true;
    if (!order(run)) return false;
    utf8proc_ssize_t n = utf8proc_normalize_utf32(run->v, (utf8proc_ssize_t)run->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0 || !weft_str_reserve(out, 4 * (size_t)n)) return false;
    for (utf8proc_ssize_t k = 0; k < n; k++) {
        char utf8[4];
        weft_str_add(out, utf8, weft_utf8_put(utf8, run->v[k]));
    }
    run->n = 0;
    return true;
}

bool weft_nfc(weft_str *out, const char *s, size_t n, weft_codepoints *work) {
    size_t from = 0;     /* s[from..at) is to be copied */
    int32_t before = -1; /* the character that ends there, its length in `len` */
    size_t len = 0;
    for (size_t at = 0; at < n;) {
        int32_t cp;
        size_t step = weft_utf8_next(s + at, n - at, &cp);
        if (cp >= 0 && cp < FIRST_INTERESTING) {
            before = cp, len = step;
            at += step;
            continue;
        }
        if (!weft_str_add(out, s + from, at - from - len) || (len && !decompose(work, before))) return false;
        do {
            if (!decompose(work, cp < 0 ? WEFT_REPLACEMENT : cp)) return false;
            at += step;
            if (at == n) break;
            step = weft_utf8_next(s + at, n - at, &cp);
        } while (cp < 0 || (cp >= FIRST_INTERESTING && cp != HANGUL_FILLER));
        if (!compose(work, out)) return false;
        from = at, len = 0;
    }
    return weft_str_add(out, s + from, n - from);
}

/* added.c: see added.h. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/utf8.h"

static int by_text(const void *x, const void *y) {
    const weft_added_token *a = x, *b = y;
    int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

bool weft_added_sort(weft_added *a, const weft_added_token **twice) {
    if (a->n) qsort(a->v, a->n, sizeof *a->v, by_text);
    size_t at = 0;
    for (int b = 0; b <= 256; b++) {
        while (at < a->n && (uint8_t)a->v[at].text[0] < b) at++;
        a->first[b] = at;
    }
    for (size_t i = 1; i < a->n; i++) {
        *twice = &a->v[i];
        if (by_text(*twice - 1, *twice) == 0) return false;
    }
    return true;
}

/* The first of v[lo..hi) whose byte `depth` is at least b (a value up to 256); all are longer than depth. */
static size_t bound(const weft_added *a, size_t lo, size_t hi, size_t depth, int b) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)a->v[mid].text[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const weft_added_token *weft_added_at(const weft_added *a, const char *s, size_t n, size_t special) {
    const weft_added_token *best = NULL;
    uint8_t b = (uint8_t)s[0];
    size_t lo = a->first[b], hi = a->first[b + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (a->v[lo].n == depth) { /* wholly matched; it sorts before those that go on */
            if (!a->v[lo].special || depth <= special) best = &a->v[lo];
            lo++;
        }
        if (depth == n) break;
        b = (uint8_t)s[depth];
        lo = bound(a, lo, hi, depth, b);
        hi = bound(a, lo, hi, depth, b + 1);
    }
    return best;
}

/* ---- what lies around a token -------------------------------------------------------------------------------------------- */

/* Unicode's White_Space. */
static bool is_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* A character of a word, as Unicode's annex 18 has it: alphabetic characters, marks, digits, connectors, joiners. The ranges are
 * symbols that count as alphabetic: letters in circles and squares. */
static bool is_word(int32_t c) {
    if (c < 0) return false;
    if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
        (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189))
        return true;
    utf8proc_category_t k = utf8proc_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC;
}

/* The character that ends at s[at], at > 0, and its length; -1 for what is none. */
static int32_t character_before(const char *s, size_t at, size_t *len) {
    size_t from = at - 1;
    while (from > 0 && at - from < 4 && ((uint8_t)s[from] & 0xC0) == 0x80) from--;
    int32_t c;
    *len = weft_utf8_next(s + from, at - from, &c);
    return *len == at - from ? c : -1;
}

static int32_t character_at(const char *s, size_t n, size_t at, size_t *len) {
    int32_t c;
    *len = weft_utf8_next(s + at, n - at, &c);
    return c;
}

static size_t spaces_before(const char *s, size_t at, size_t least) {
    for (size_t len; at > least && is_space(character_before(s, at, &len)); at -= len) {
    }
    return at;
}

static size_t spaces_behind(const char *s, size_t n, size_t at) {
    for (size_t len; at < n && is_space(character_at(s, n, at, &len)); at += len) {
    }
    return at;
}

static bool alone(const char *s, size_t n, size_t start, size_t stop) {
    size_t len;
    return (start == 0 || !is_word(character_before(s, start, &len))) && (stop == n || !is_word(character_at(s, n, stop, &len)));
}

/* ---- all tokens of a text ------------------------------------------------------------------------------------------------ */

/* How long a special token at scan->at may be. */
static size_t room(weft_added_scan *scan) {
    if (!scan->parts) return 0;
    while (scan->at >= scan->part_end) {
        scan->special = scan->parts[scan->part].special;
        for (; scan->part_end < scan->n && scan->parts[scan->part].special == scan->special; scan->part++)
            scan->part_end += scan->parts[scan->part].n;
    }
    return scan->special ? scan->part_end - scan->at : 0;
}

/* As in the reference library, the search goes on behind the token's own characters: a token inside of the white space that
 * `rstrip` took is found, too. */
int32_t weft_added_next(weft_added_scan *scan, size_t *from, size_t *to) {
    const char *s = scan->s;
    size_t n = scan->n;
    while (scan->list->n && scan->at < n) {
        size_t start = scan->at;
        const weft_added_token *found = weft_added_at(scan->list, s + start, n - start, room(scan));
        scan->at += found ? found->n : 1;
        size_t stop = scan->at;
        if (!found || (found->single_word && !alone(s, n, start, stop))) continue;
        *from = scan->done;
        if (found->lstrip) start = spaces_before(s, start, scan->done);
        if (found->rstrip) scan->blank = stop = stop < scan->blank ? scan->blank : spaces_behind(s, n, stop);
        *to = start > *from ? start : *from;
        scan->done = stop;
        return found->id;
    }
    *from = scan->done;
    *to = n;
    return -1;
}

/* normalizer.c: see normalizer.h. */
#include "text/normalizer.h"

#include <string.h>

#include "text/utf8.h"

weft_status weft_normalizer_add(weft_normalizer *r, const weft_normal_step *step, weft_error *e) {
    if (r->n == WEFT_NORMAL_STEPS) return weft_fail(e, WEFT_ESUPPORT, "more than %d steps of one kind", WEFT_NORMAL_STEPS);
    if (step->kind == WEFT_NORMAL_REPLACE) {
        if (step->n_from == 0) return weft_fail(e, WEFT_ESUPPORT, "a step replaces the empty text");
        double times = (double)step->n_to / (double)step->n_from;
        r->growth = (r->growth > 0 ? r->growth : 1) * (times > 1 ? times : 1);
        if (r->growth > WEFT_NORMAL_GROWTH)
            return weft_fail(e, WEFT_ESUPPORT, "the steps make a text more than %d times longer", WEFT_NORMAL_GROWTH);
    }
    r->step[r->n++] = *step;
    return WEFT_OK;
}

void weft_normal_work_free(weft_normal_work *w) {
    weft_str_free(&w->text);
    weft_str_free(&w->spare);
    weft_vec_free(&w->marks);
}

static bool replace(const weft_normal_step *step, weft_str *out, const char *s, size_t n) {
    size_t from = 0;
    for (size_t at = 0; n - at >= step->n_from;) {
        const char *found = memchr(s + at, step->from[0], n - at - step->n_from + 1);
        if (!found) break;
        at = (size_t)(found - s);
        if (memcmp(found, step->from, step->n_from) != 0) {
            at++;
            continue;
        }
        if (!weft_str_add(out, s + from, at - from) || !weft_str_add(out, step->to, step->n_to)) return false;
        from = at += step->n_from;
    }
    return weft_str_add(out, s + from, n - from);
}

static bool take(const weft_normal_step *step, weft_normal_work *w) {
    const weft_str old = w->text;
    w->text = w->spare;
    w->spare = old;
    weft_str_clear(&w->text);
    if (step->kind == WEFT_NORMAL_NFC) return weft_nfc(&w->text, weft_str_z(&old), old.n, &w->marks);
    if (step->kind == WEFT_NORMAL_REPLACE) return replace(step, &w->text, weft_str_z(&old), old.n);
    return (old.n == 0 || weft_str_add(&w->text, step->to, step->n_to)) && weft_str_add(&w->text, weft_str_z(&old), old.n);
}

bool weft_normalize(const weft_normalizer *r, weft_normal_work *w, const char *s, size_t n) {
    weft_str_clear(&w->text);
    int k = r->n > 0 && r->step[0].kind == WEFT_NORMAL_NFC; /* repairs, too */
    bool ok = k ? weft_nfc(&w->text, s, n, &w->marks) : weft_utf8_add(&w->text, s, n);
    for (; ok && k < r->n; k++) ok = take(&r->step[k], w);
    return ok;
}

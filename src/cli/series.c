/* series.c: see series.h. */
#include "cli/series.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
double weft_median(double *v, size_t n) {
    if (!n) return 0;
    qsort(v, n, sizeof *v, ascending);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

void weft_series_add(weft_series *s, double x) {
    if (s->n < WEFT_SERIES) s->v[s->n++] = x;
}
double weft_series_median(const weft_series *s) {
    weft_series sorted = *s;
    return weft_median(sorted.v, (size_t)sorted.n);
}
double weft_series_least(const weft_series *s) {
    double x = s->v[0];
    for (int i = 1; i < s->n; i++)
        if (s->v[i] < x) x = s->v[i];
    return x;
}
double weft_series_most(const weft_series *s) {
    double x = s->v[0];
    for (int i = 1; i < s->n; i++)
        if (s->v[i] > x) x = s->v[i];
    return x;
}

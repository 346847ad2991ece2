/* series.h: what was measured several times: medians and ends. */
#ifndef WEFT_CLI_SERIES_H
#define WEFT_CLI_SERIES_H

#include <stddef.h>

enum { WEFT_SERIES = 99 };
/* One value of each round. Zero-initialise. */
typedef struct weft_series {
    double v[WEFT_SERIES];
    int n;
} weft_series;

void weft_series_add(weft_series *s, double x); /* beyond WEFT_SERIES: not at all */
/* 0 of none. */
double weft_series_median(const weft_series *s);
double weft_series_least(const weft_series *s);
double weft_series_most(const weft_series *s);

/* Sorts. 0 of none. */
double weft_median(double *v, size_t n);

#endif

/* ordered.c: an output head that looks at some tokens only: the products of a row with a few centroids choose which. The weights of
 * a centroid's tokens lie together, as an expert's do. */
#include "ops/cpu/linear.h"

typedef struct ordered_job {
    weft_dev *d;
    const weft_ordered_output *head;
    const weft_buf *x;
    int row;       /* of x */
    float *y;      /* [vocab] */
    int *chosen;   /* [top]: centroids */
    float *lowest; /* [top]: their smallest logits */
    weft_acts acts;
} ordered_job;

/* The logits of one chosen centroid's tokens. */
static void centroid_piece(void *ctx, int slot, int worker) {
    const ordered_job *j = ctx;
    const weft_dev *d = j->d;
    const weft_mat *w = j->head->w;
    float *logits = panel_of(d, worker) + (d->precise ? (size_t)LANES * (size_t)ROUND16(d->max_k) : 0);
    product p = {.w = w,
                 .first = (int64_t)j->chosen[slot] * panel_count(w),
                 .y = logits,
                 .ldy = (size_t)ROUND16(w->n),
                 .acts = &j->acts,
                 .x = j->x->v,
                 .ldx = (size_t)j->x->ld,
                 .from = &j->row,
                 .sharing = 1};
    product_run(d, &p, 0, (int)panel_count(w), 0, 1, worker);
    const float *order = j->head->order->v + (int64_t)j->chosen[slot] * w->n;
    j->lowest[slot] = logits[0];
    for (int i = 0; i < w->n; i++) {
        j->y[(int)order[i]] = logits[i];
        if (logits[i] < j->lowest[slot]) j->lowest[slot] = logits[i];
    }
}

/* The best centroids, each once, whatever the scores are. */
static void choose(int *chosen, int top, const float *scores, int n) {
    for (int t = 0; t < top; t++) {
        int best = -1;
        for (int c = 0; c < n; c++) {
            bool taken = false;
            for (int i = 0; i < t && !taken; i++) taken = chosen[i] == c;
            if (!taken && (best < 0 || scores[c] > scores[best])) best = c; /* a tie stays with the lowest */
        }
        chosen[t] = best;
    }
}

void weft_ordered_logits(weft_dev *d, weft_buf *y, const weft_ordered_output *head, weft_buf *scores, const weft_buf *x,
                         const int *rows, int n) {
    enum { MOST = 256 };
    int chosen[MOST];
    float lowest[MOST];
    const weft_mat *w = head->w;
    weft_logits(d, scores, &(weft_output){.w = head->centroids}, x, rows, n);
    if (d->status != WEFT_OK) return;
    if (head->top < 1 || head->top > MOST || head->top > scores->cols || w->experts != scores->cols || w->k != x->cols ||
        w->experts * w->n != y->cols || head->order->n != y->cols || w->n > (int64_t)pick_scratch_floats() || n > y->rows) {
        misfit(d, w, y, x);
        return;
    }
    for (int r = 0; r < n; r++) {
        ordered_job j = {.d = d, .head = head, .x = x, .row = rows[r], .y = buf_row(y, r), .chosen = chosen, .lowest = lowest};
        choose(chosen, head->top, buf_row(scores, r), scores->cols);
        if (!d->precise && w->bits) {
            j.acts = acts_lay(d->acts, x->cols, 1);
            d->isa->linear->quantize(&j.acts, 0, buf_row(x, rows[r]));
        }
        for (int i = 0; i < y->cols; i++) j.y[i] = __builtin_inff(); /* not looked at */
        weft_pool_run(d->pool, head->top, centroid_piece, &j);
        d->traffic += (uint64_t)head->top * (uint64_t)panel_count(w) * panel_bytes(w);
        float least = lowest[0];
        for (int t = 1; t < head->top; t++) least = lowest[t] < least ? lowest[t] : least;
        for (int i = 0; i < y->cols; i++)
            if (j.y[i] == __builtin_inff()) j.y[i] = least - 1;
    }
}

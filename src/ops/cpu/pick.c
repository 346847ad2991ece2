/* pick.c: the output head and the choice of a token in one: the logits of a piece of the vocabulary are folded into a row's result
 * while they are in the first cache, and never written. Pieces are fixed, and fold in ascending order, so that the sum of
 * exponentials does not depend on who computed what. */
#include "base/num.h"
#include "ops/cpu/linear.h"

#define PIECE 1024 /* ids */
#define ROWS 16    /* whose logits of a piece are held at a time */

/* One row's part of one piece. */
typedef struct part {
    weft_best best;
    float max, sum; /* of exp(logit - max) */
} part;
typedef struct candidate {
    int32_t id;
    float logit;
} candidate;

static int pieces(int vocab) {
    return (vocab + PIECE - 1) / PIECE;
}

void weft_pick_layer(weft_dev *d, int rows, int vocab) {
    if (rows > d->pick_rows) d->pick_rows = rows;
    if (vocab > d->pick_vocab) d->pick_vocab = vocab;
}
/* Bytes of parts, results and candidates; a worker's scratch, in floats, for logits. */
size_t pick_parts_bytes(const weft_dev *d) {
    return (size_t)d->pick_rows * (size_t)pieces(d->pick_vocab) * sizeof(part);
}
size_t pick_top_bytes(const weft_dev *d) {
    return (size_t)d->pick_rows * (size_t)pieces(d->pick_vocab) * WEFT_MAX_TOP * sizeof(candidate);
}
size_t pick_scratch_floats(void) {
    return (size_t)ROWS * PIECE;
}

typedef struct pick_job {
    weft_dev *d;
    int vocab;
    const weft_mat *head; /* NULL: x holds logits, row by row */
    float cap;
    const weft_buf *x;
    const int *rows;
    int n;
    const weft_pick *rules;
    const bool *allowed;
    weft_acts acts;
} pick_job;

static part *part_of(const pick_job *j, int piece, int row) {
    return (part *)j->d->pick_parts + (size_t)piece * (size_t)j->n + (size_t)row;
}
static candidate *top_of(const pick_job *j, int piece, int row) {
    return (candidate *)j->d->pick_top + ((size_t)piece * (size_t)j->n + (size_t)row) * WEFT_MAX_TOP;
}

/* Keeps the `most` best of what it is shown, best first; a tie stays behind what came earlier, whose id is lower. */
static int keep(candidate *top, int n, int most, candidate c) {
    if (n == most && !(c.logit > top[n - 1].logit)) return n;
    int at = n < most ? n : most - 1;
    for (; at > 0 && c.logit > top[at - 1].logit; at--) top[at] = top[at - 1];
    top[at] = c;
    return n < most ? n + 1 : n;
}

static void quantize_piece(void *ctx, int row, int worker) {
    (void)worker;
    const pick_job *j = ctx;
    j->d->isa->linear->quantize(&j->acts, row, buf_row(j->x, j->rows[row]));
}

/* `logits` may be changed. */
static void fold(const pick_job *j, int piece, int row, float *logits, int n) {
    const weft_pick *rule = &j->rules[row];
    int32_t first = piece * PIECE;
    part *p = part_of(j, piece, row);
    p->best = WEFT_NO_BEST;
    weft_sample_part(&rule->sampler, logits, first, n, j->allowed + first, rule->index, &p->best);
    candidate *top = top_of(j, piece, row);
    int kept = 0;
    for (int i = 0; i < n && rule->top; i++)
        if (j->allowed[first + i]) kept = keep(top, kept, rule->top, (candidate){first + i, logits[i]});
    if (kept < rule->top) top[kept].id = -1;
    if (rule->log_sum) p->max = j->d->kernels->chunk_exp(logits, n, 1, &p->sum);
}

static void pick_piece(void *ctx, int piece, int worker) {
    const pick_job *j = ctx;
    weft_dev *d = j->d;
    int first = piece * PIECE, n = j->vocab - first < PIECE ? j->vocab - first : PIECE;
    float *scratch = panel_of(d, worker), *logits = d->precise ? scratch + (size_t)LANES * (size_t)ROUND16(d->max_k) : scratch;
    for (int row = 0; row < j->n && !j->head; row++) {
        memcpy(logits, buf_row(j->x, row) + first, (size_t)n * sizeof *logits);
        fold(j, piece, row, logits, n);
    }
    if (!j->head) return;
    for (int row = 0, rows; row < j->n; row += rows) {
        rows = j->n - row < ROWS ? j->n - row : ROWS;
        weft_acts acts = j->acts;
        if (acts.q) acts = acts_from(&acts, row);
        product p = {.w = j->head,
                     .first = first / LANES,
                     .y = logits,
                     .ldy = PIECE,
                     .acts = &acts,
                     .x = j->x->v,
                     .ldx = (size_t)j->x->ld,
                     .from = j->rows + row,
                     .sharing = 1};
        product_run(d, &p, 0, (n + LANES - 1) / LANES, 0, rows, worker);
        for (int r = 0; r < rows && j->cap > 0; r++) d->kernels->cap(logits + (size_t)r * PIECE, n, j->cap);
        for (int r = 0; r < rows; r++) fold(j, piece, row + r, logits + (size_t)r * PIECE, n);
    }
}

static void finish(const pick_job *j, int row, weft_picked *out) {
    const weft_pick *rule = &j->rules[row];
    weft_best best = WEFT_NO_BEST;
    candidate top[WEFT_MAX_TOP];
    double sum = 0, max = 0;
    int n_top = 0;
    for (int i = 0; i < pieces(j->vocab); i++) {
        const part *p = part_of(j, i, row);
        weft_best_merge(&best, &p->best);
        const candidate *c = top_of(j, i, row);
        for (int t = 0; t < rule->top && c[t].id >= 0; t++) n_top = keep(top, n_top, rule->top, c[t]);
        if (!rule->log_sum) continue;
        double larger = i && max > (double)p->max ? max : (double)p->max;
        sum = (i ? sum * weft_exp(max - larger) : 0) + (double)p->sum * weft_exp((double)p->max - larger);
        max = larger;
    }
    *out = (weft_picked){.id = best.bad ? -1 : best.id, .n_top = n_top};
    if (rule->log_sum) out->log_sum = (float)(max + weft_ln(sum));
    for (int t = 0; t < n_top; t++) {
        out->top_id[t] = top[t].id;
        out->top_logit[t] = top[t].logit;
    }
}

static void run_pieces(const pick_job *j) {
    weft_pool_run(j->d->pool, pieces(j->vocab), pick_piece, (void *)(uintptr_t)j);
    for (int i = 0; i < j->n; i++) finish(j, i, &j->d->picked[i]);
}

static bool rules_fit(const weft_dev *d, const weft_pick *rules, int n, int vocab) {
    bool fits = n >= 0 && n <= d->pick_rows && n <= d->plan.max_rows && vocab <= d->pick_vocab;
    for (int i = 0; i < n && fits; i++) fits = rules[i].top >= 0 && rules[i].top <= WEFT_MAX_TOP;
    return fits;
}

void weft_pick_tokens(weft_dev *d, const weft_output *output, const weft_buf *x, const int *rows, int n, const weft_pick *rules,
                      const bool *allowed) {
    if (d->status != WEFT_OK) return;
    const weft_mat *head = output->w;
    bool fits = rules_fit(d, rules, n, (int)head->n) && head->k == x->cols;
    for (int i = 0; i < n && fits; i++) fits = rows[i] >= 0 && rows[i] < d->step->n_rows;
    if (!fits) {
        d->status = weft_fail(&d->error, WEFT_EINVAL, "tokens for %d rows, or of a row that the step does not have", n);
        return;
    }
    if (!n) return;
    pick_job j = {.d = d,
                  .vocab = (int)head->n,
                  .head = head,
                  .cap = output->cap,
                  .x = x,
                  .rows = rows,
                  .n = n,
                  .rules = rules,
                  .allowed = allowed};
    d->traffic += (uint64_t)panel_count(head) * panel_bytes(head);
    if (!d->precise && head->bits) {
        j.acts = acts_lay(d->acts, x->cols, (size_t)(n + 15) / 16);
        weft_pool_run(n > 8 ? d->pool : NULL, n, quantize_piece, &j);
    }
    run_pieces(&j);
}

void weft_pick_logits(weft_dev *d, const weft_buf *logits, int n, const weft_pick *rules, const bool *allowed) {
    if (d->status != WEFT_OK) return;
    if (rules_fit(d, rules, n, logits->cols) && n <= logits->rows)
        run_pieces(&(pick_job){.d = d, .vocab = logits->cols, .x = logits, .n = n, .rules = rules, .allowed = allowed});
    else
        d->status = weft_fail(&d->error, WEFT_EINVAL, "tokens for %d rows of logits", n);
}

weft_status weft_read_pick(weft_dev *d, int i, weft_picked *picked, weft_error *e) {
    if (d->step && d->status != WEFT_OK) {
        if (e) *e = d->error;
        return d->status;
    }
    if (i < 0 || i >= d->pick_rows) return weft_fail(e, WEFT_EINVAL, "result %d of %d", i, d->pick_rows);
    *picked = d->picked[i];
    return WEFT_OK;
}

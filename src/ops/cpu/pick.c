/* pick.c: the output head and the choice of a token in one: the logits of a piece of the vocabulary are folded into a row's result
 * while they are in the first cache, and never written. Pieces are fixed, and fold in ascending order, so that the sum of
 * exponentials does not depend on who computed what. */
#include "base/num.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/support.h"
#include "ops/cpu/weight.h"

#define PIECE WEFT_DRAW_PIECE
#define ROWS 16 /* whose logits of a piece are held at a time */

/* One row's part of one piece. */
typedef struct part {
    weft_best best;
    float raw;      /* logit of best.id */
    float max, sum; /* of exp(logit - max) */
} part;
typedef struct candidate {
    int32_t id;
    float logit;
} candidate;

void weft_pick_layer(weft_dev *d, int rows, int vocab) {
    if (rows > d->pick_rows) d->pick_rows = rows;
    if (vocab > d->pick_vocab) d->pick_vocab = vocab;
}
/* Bytes of parts, results and candidates; a worker's scratch, in floats, for logits. */
size_t pick_parts_bytes(const weft_dev *d) {
    return (size_t)d->pick_rows * (size_t)pieces_of(d->pick_vocab) * sizeof(part);
}
size_t pick_top_bytes(const weft_dev *d) {
    return (size_t)d->pick_rows * (size_t)pieces_of(d->pick_vocab) * WEFT_MAX_TOP * sizeof(candidate);
}
size_t pick_scratch_floats(void) {
    return (size_t)(ROWS + 1) * PIECE; /* and a row's shaped ones */
}

typedef struct pick_job {
    weft_dev *d;
    weft_columns columns; /* of the logits */
    const weft_mat *head; /* NULL: x holds logits, row by row */
    float cap;
    const weft_buf *x;
    const int *rows;
    int n;
    const weft_pick *rules;
    const bool *allowed;
    weft_acts acts;
} pick_job;

size_t pick_best_bytes(const weft_dev *d) {
    return (size_t)d->pick_rows * (size_t)d->threads * sizeof(weft_best);
}
size_t pick_last_bytes(void) {
    return sizeof(pick_job);
}

static weft_columns columns_of(const pick_job *j, int piece) {
    return weft_columns_part(&j->columns, piece * PIECE, piece_length(j->columns.n, piece));
}
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

/* The draw goes on from the best that this worker has found in other pieces, which leaves little to look at. */
static weft_best draw(const pick_job *j, int row, int worker, const float *shaped, const weft_columns *c) {
    weft_best *so_far = (weft_best *)j->d->pick_best + (size_t)worker * (size_t)j->n + (size_t)row, best = *so_far;
    weft_draw_piece(j->d, &j->rules[row].rule, shaped, c, &best);
    if (best.id == so_far->id)
        best.id = -1; /* that of another piece */
    else
        *so_far = (weft_best){.id = best.id, .score = best.score};
    return best;
}

/* `logits` may be changed; shaped[n] is scratch. allowed: by column. */
static void fold(const pick_job *j, int piece, int row, int worker, float *logits, float *shaped, const bool *allowed) {
    const weft_pick *pick = &j->rules[row];
    weft_columns c = columns_of(j, piece);
    int n = c.n;
    part *p = part_of(j, piece, row);
    p->best = WEFT_NO_BEST;
    if (pick->keep) shaped = buf_row(pick->keep->logits, pick->keep_row) + piece * PIECE;
    j->d->kernels->permit(shaped, logits, allowed, n);
    weft_shape_part(&pick->rule, shaped, &c);
    if (!weft_rule_truncates(&pick->rule)) p->best = draw(j, row, worker, shaped, &c);
    if (p->best.id >= 0) p->raw = logits[weft_column_of(&c, p->best.id)];
    candidate *top = top_of(j, piece, row);
    int kept = 0;
    for (int i = 0; i < n && pick->top; i++)
        if (allowed[i]) kept = keep(top, kept, pick->top, (candidate){weft_column_id(&c, i), logits[i]});
    if (kept < pick->top) top[kept].id = -1;
    if (pick->log_sum) p->max = j->d->kernels->chunk_exp(logits, n, 1, &p->sum);
}

/* Logits of columns [first, first + n), first a multiple of 16, for rows [row, row + rows), row a multiple of 16. */
static void head_product(const pick_job *j, float *logits, int first, int n, int row, int rows, int worker) {
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
    product_run(j->d, &p, 0, (n + LANES - 1) / LANES, 0, rows, worker);
    for (int r = 0; r < rows && j->cap > 0; r++) j->d->kernels->cap(logits + (size_t)r * PIECE, n, j->cap);
}

static float *logits_of(const weft_dev *d, int worker) {
    return panel_of(d, worker) + (d->precise ? (size_t)LANES * (size_t)ROUND16(d->max_k) : 0);
}

static void pick_piece(void *ctx, int piece, int worker) {
    const pick_job *j = ctx;
    weft_columns c = columns_of(j, piece);
    int first = piece * PIECE, n = c.n;
    float *logits = logits_of(j->d, worker), *shaped = logits + (size_t)ROWS * PIECE;
    bool some[PIECE];
    const bool *allowed = c.ids ? some : j->allowed + first;
    for (int i = 0; i < n && c.ids; i++) some[i] = j->allowed[c.ids[i]];
    for (int row = 0; row < j->n && !j->head; row++) {
        memcpy(logits, buf_row(j->x, row) + first, (size_t)n * sizeof *logits);
        fold(j, piece, row, worker, logits, shaped, allowed);
    }
    for (int row = 0, rows; row < j->n && j->head; row += rows) {
        rows = j->n - row < ROWS ? j->n - row : ROWS;
        head_product(j, logits, first, n, row, rows, worker);
        for (int r = 0; r < rows; r++) fold(j, piece, row + r, worker, logits + (size_t)r * PIECE, shaped, allowed);
    }
}

/* The raw logit of one id, where only the shaped row is left: computed again. */
static float raw_logit(const pick_job *j, int row, int32_t id) {
    if (!j->head) return buf_row(j->x, row)[id];
    float *logits = logits_of(j->d, 0);
    int column = weft_column_of(&j->columns, id), left = j->columns.n - column / LANES * LANES;
    int base = row / 16 * 16, first = column / LANES * LANES;
    head_product(j, logits, first, left < LANES ? left : LANES, base, row - base + 1, 0);
    return logits[(size_t)(row - base) * PIECE + (size_t)(column - first)];
}

static void finish(const pick_job *j, int row, weft_picked *out) {
    const weft_pick *pick = &j->rules[row];
    weft_best best = WEFT_NO_BEST;
    candidate top[WEFT_MAX_TOP];
    double sum = 0, max = 0;
    int n_top = 0;
    float raw = 0;
    for (int i = 0; i < pieces_of(j->columns.n); i++) {
        const part *p = part_of(j, i, row);
        int32_t before = best.id;
        weft_best_merge(&best, &p->best);
        if (best.id != before) raw = p->raw;
        const candidate *c = top_of(j, i, row);
        for (int t = 0; t < pick->top && c[t].id >= 0; t++) n_top = keep(top, n_top, pick->top, c[t]);
        if (!pick->log_sum) continue;
        double larger = i && max > (double)p->max ? max : (double)p->max;
        sum = (i ? sum * weft_exp(max - larger) : 0) + (double)p->sum * weft_exp((double)p->max - larger);
        max = larger;
    }
    bool late = weft_rule_truncates(&pick->rule);
    if (late) best = weft_truncate(j->d, pick, &j->columns);
    *out = (weft_picked){.id = best.bad ? -1 : best.id, .n_top = n_top};
    if (out->id < 0) out->why = best.bad ? WEFT_TOKEN_NAN : WEFT_TOKEN_BANNED;
    if (out->id >= 0) out->logit = late ? raw_logit(j, row, out->id) : raw;
    if (pick->keep && !late) weft_keep_row(j->d, pick, &j->columns, out);
    if (pick->log_sum) out->log_sum = (float)(max + weft_ln(sum));
    for (int t = 0; t < n_top; t++) {
        out->top_id[t] = top[t].id;
        out->top_logit[t] = top[t].logit;
    }
}

static void run_pieces(const pick_job *j) {
    weft_best *best = j->d->pick_best;
    for (int i = 0; i < j->d->threads * j->n; i++) best[i] = WEFT_NO_BEST;
    weft_pool_run(j->d->pool, pieces_of(j->columns.n), pick_piece, (void *)(uintptr_t)j);
    for (int i = 0; i < j->n; i++) finish(j, i, &j->d->picked[i]);
    *(pick_job *)j->d->pick_last = *j;
}

/* Sets the device's error, once. */
static bool rules_fit(weft_dev *d, const weft_pick *rules, int n, const weft_columns *c) {
    const char *fault = NULL;
    int columns = c->n, vocab = c->ids ? d->pick_vocab : columns;
    if (n < 0 || n > d->pick_rows || n > d->plan.max_rows || columns > d->pick_vocab) fault = "there is no room for so many";
    if (c->ids && (c->ids[0] < 0 || c->ids[columns - 1] >= vocab)) fault = "the head has an id that does not exist";
    for (int i = 0; i < n && !fault; i++) {
        const weft_pick *p = &rules[i];
        fault = weft_rule_fault(&p->rule, vocab);
        if (p->top < 0 || p->top > WEFT_MAX_TOP) fault = "too many of the likeliest ids";
        if (p->keep && (p->keep_row < 0 || p->keep_row >= p->keep->logits->rows || columns > p->keep->logits->cols))
            fault = "the row to keep does not exist";
        if (weft_rule_truncates(&p->rule) && columns > MOST_WEIGHED) fault = "top_k, top_p and min_p over more than 524288 ids";
        if (!fault && !p->keep && weft_rule_truncates(&p->rule)) fault = "top_k, top_p and min_p need a row to keep";
    }
    if (fault) d->status = weft_fail(&d->error, WEFT_EINVAL, "tokens for %d rows: %s", n, fault);
    return !fault;
}

void weft_pick_tokens(weft_dev *d, const weft_output *output, const weft_buf *x, const int *rows, int n, const weft_pick *rules,
                      const bool *allowed) {
    if (d->status != WEFT_OK) return;
    const weft_mat *head = output->w;
    const weft_columns columns = {.n = (int)head->n, .ids = output->ids};
    if (!rules_fit(d, rules, n, &columns)) return;
    bool fits = head->k == x->cols;
    for (int i = 0; i < n && fits; i++) fits = rows[i] >= 0 && rows[i] < d->step->n_rows;
    if (!fits) {
        d->status = weft_fail(&d->error, WEFT_EINVAL, "tokens for %d rows, or of a row that the step does not have", n);
        return;
    }
    if (!n) return;
    pick_job j = {.d = d,
                  .columns = columns,
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
    const weft_columns columns = {.n = logits->cols};
    if (!rules_fit(d, rules, n, &columns)) return;
    if (n <= logits->rows)
        run_pieces(&(pick_job){.d = d, .columns = columns, .x = logits, .n = n, .rules = rules, .allowed = allowed});
    else
        d->status = weft_fail(&d->error, WEFT_EINVAL, "tokens for %d rows of logits, where there are %d", n, logits->rows);
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

weft_status weft_read_logit(weft_dev *d, int i, int32_t id, float *logit, weft_error *e) {
    const pick_job *j = d->pick_last;
    if (d->step && d->status != WEFT_OK) {
        if (e) *e = d->error;
        return d->status;
    }
    if (!j || !j->d || i < 0 || i >= j->n || weft_column_of(&j->columns, id) < 0)
        return weft_fail(e, WEFT_EINVAL, "the logit of id %d in result %d: there is none", id, i);
    *logit = raw_logit(j, i, id);
    return WEFT_OK;
}

/* trial.c: kept rows as distributions, and trials of drafts: rejection sampling (ops.h).
 *
 * A kept row is a distribution by its logits and three numbers beside them: p = exp((logit - max) * scale) / sum. What a token is
 * drawn from is never written: the weights of a piece of ids are made where they are summed, and again for the one piece in which
 * the draw ends. Pieces are fixed and add up in ascending order, so that a draw does not depend on who computed what; and both
 * times the same additions are done, so that the draw ends in the piece. */
#include "ops/cpu/support.h"
#include "ops/cpu/weight.h"

#define PIECE WEFT_DRAW_PIECE

/* ---- kept rows as distributions ------------------------------------------------------------------------------------------ */

/* A row that is weighed. */
typedef struct weighing {
    const weft_dev *d;
    const kept_row *row;
    const float *logits;
} weighing;

static void weigh_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const weighing *j = ctx;
    int n = piece_length(j->row->vocab, piece);
    double w[PIECE], sum = 0;
    j->d->kernels->weights(w, j->logits + piece * PIECE, n, j->row->max, j->row->scale);
    for (int i = 0; i < n; i++) sum += w[i];
    j->d->support.sum[piece] = sum;
}

void weft_keep_row(const weft_dev *d, const weft_pick *pick, const weft_columns *columns, const weft_picked *picked) {
    int vocab = columns->n;
    kept_row *row = &pick->keep->row[pick->keep_row];
    float *l = buf_row(pick->keep->logits, pick->keep_row);
    *row = (kept_row){.vocab = vocab, .why = picked->why};
    if (row->why != WEFT_TOKEN) return;
    if (weft_greedy(&pick->rule.sampler)) {
        weft_row_clear(d, l, vocab);
        l[weft_column_of(columns, picked->id)] = 0;
        row->scale = row->sum = 1;
        return;
    }
    row->scale = 1 / pick->rule.sampler.temperature;
    row->max = (double)weft_row_largest(d, l, vocab);
    weft_pool_run(d->pool, pieces_of(vocab), weigh_piece, &(weighing){d, row, l});
    for (int i = 0; i < pieces_of(vocab); i++) row->sum += d->support.sum[i];
}

/* ---- trials of drafts ---------------------------------------------------------------------------------------------------- */

/* A kept row as a distribution. */
typedef struct law {
    const kept_row *row;
    const float *logits;
    weft_columns columns;
} law;

static double chance(const law *w, int column) {
    return weight_of((double)w->logits[column], w->row->max, w->row->scale) / w->row->sum;
}

static law law_of(const weft_kept *k, int row, const int32_t *ids) {
    return (law){&k->row[row], buf_row(k->logits, row), {.n = k->row[row].vocab, .ids = ids}};
}

/* What a token is drawn from: p, or with a draft max(p - q, 0); q NULL: all of it at the draft. */
typedef struct rest {
    const weft_dev *d;
    law p;
    const law *q;
    int32_t draft; /* -1: p itself */
} rest;

/* r[0..n) of the ids of a piece, not normalised; returns their sum. */
static double rest_part(const rest *t, double *r, int piece) {
    int first = piece * PIECE, n = piece_length(t->p.row->vocab, piece);
    t->d->kernels->weights(r, t->p.logits + first, n, t->p.row->max, t->p.row->scale);
    for (int i = 0; i < n; i++) r[i] = r[i] / t->p.row->sum;
    if (t->q) {
        double q[PIECE];
        int from = weft_column_from(&t->q->columns, first), to = weft_column_from(&t->q->columns, first + n);
        if (to > from + n) to = from + n;
        t->d->kernels->weights(q, t->q->logits + from, to - from, t->q->row->max, t->q->row->scale);
        for (int c = from; c < to; c++) {
            double *at = &r[weft_column_id(&t->q->columns, c) - first], x = q[c - from] / t->q->row->sum;
            *at = *at > x ? *at - x : 0;
        }
    } else if (t->draft >= first && t->draft < first + n) {
        r[t->draft - first] = 0;
    }
    double sum = 0;
    for (int i = 0; i < n; i++) sum += r[i];
    return sum;
}
static void rest_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const rest *t = ctx;
    double r[PIECE];
    t->d->support.sum[piece] = rest_part(t, r, piece);
}

/* The id where the sum of all before it and its own passes u of the whole; -1: there is nothing. Never one that has nothing. */
static int32_t draw_rest(const rest *t, double u) {
    const double *sum = t->d->support.sum;
    double r[PIECE], total = 0;
    int n = pieces_of(t->p.row->vocab), piece = -1;
    weft_pool_run(t->d->pool, n, rest_piece, (void *)(uintptr_t)t);
    for (int i = 0; i < n; i++) total += sum[i];
    double wanted = u * total;
    for (int i = 0; i < n; i++) { /* rounding may leave a little of `wanted` behind the last */
        if (!(sum[i] > 0)) continue;
        if (piece >= 0) wanted -= sum[piece];
        piece = i;
        if (wanted < sum[i]) break;
    }
    if (piece < 0) return -1;
    rest_part(t, r, piece);
    int32_t id = -1;
    double at = 0;
    for (int i = 0; i < piece_length(t->p.row->vocab, piece); i++) {
        if (!(r[i] > 0)) continue;
        id = piece * PIECE + i;
        at += r[i];
        if (at > wanted) break;
    }
    return id;
}

static weft_verdict judge(weft_dev *d, const weft_trial *t) {
    const weft_kept *p = t->p, *q = t->q;
    rest all = {.d = d, .p = law_of(p, t->p_row, NULL), .draft = -1};
    weft_verdict no = {.id = -1, .why = all.p.row->why};
    if (no.why != WEFT_TOKEN) return no;
    if (t->draft < 0) return (weft_verdict){.id = draw_rest(&all, weft_uniform(&t->sampler, t->index, WEFT_FOR_BONUS))};
    law drafter = {0};
    rest left = {.d = d, .p = all.p, .draft = t->draft};
    double qx = 1;
    if (q && q->row[t->q_row].why == WEFT_TOKEN) {
        drafter = law_of(q, t->q_row, t->q_ids);
        left.q = &drafter;
        int c = weft_column_of(&drafter.columns, t->draft);
        qx = c >= 0 ? chance(&drafter, c) : 0;
    }
    if (!(qx > 0)) {
        d->status =
            weft_fail(&d->error, WEFT_EINVAL, "a draft, id %d, that has no probability in the row that it came from", t->draft);
        return no;
    }
    double px = t->draft < all.p.row->vocab ? chance(&all.p, t->draft) : 0;
    if (weft_accepts(px, qx, weft_uniform(&t->sampler, t->index, WEFT_FOR_ACCEPT)))
        return (weft_verdict){true, t->draft, WEFT_TOKEN};
    double u = weft_uniform(&t->sampler, t->index, WEFT_FOR_RESIDUAL);
    int32_t id = draw_rest(&left, u);
    return (weft_verdict){.id = id >= 0 ? id : draw_rest(&all, u)}; /* p = q but for roundings */
}

static const char *trial_fault(const weft_trial *t) {
    if (!t->p || t->p_row < 0 || t->p_row >= t->p->logits->rows) return "the row of p does not exist";
    if (t->q && (t->q_row < 0 || t->q_row >= t->q->logits->rows)) return "the row of q does not exist";
    return NULL;
}

void weft_try_drafts(weft_dev *d, const weft_trial *trials, int n) {
    if (d->status != WEFT_OK) return;
    const char *fault = n < 0 || n > d->pick_rows ? "there is no room for so many" : NULL;
    for (int i = 0; i < n && !fault; i++) fault = trial_fault(&trials[i]);
    if (fault) {
        d->status = weft_fail(&d->error, WEFT_EINVAL, "%d trials of drafts: %s", n, fault);
        return;
    }
    for (int i = 0; i < n && d->status == WEFT_OK; i++) {
        bool takes_place = !trials[i].follows || (i && d->verdicts[i - 1].kept);
        d->verdicts[i] = takes_place ? judge(d, &trials[i]) : (weft_verdict){.id = -1};
    }
}

weft_status weft_read_verdict(weft_dev *d, int i, weft_verdict *verdict, weft_error *e) {
    if (d->step && d->status != WEFT_OK) {
        if (e) *e = d->error;
        return d->status;
    }
    if (i < 0 || i >= d->pick_rows) return weft_fail(e, WEFT_EINVAL, "verdict %d of %d", i, d->pick_rows);
    *verdict = d->verdicts[i];
    return WEFT_OK;
}

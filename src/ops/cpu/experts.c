/* experts.c: mixture of experts: routing, and the products of each expert with the rows that chose it.
 *
 * A pair is a row and one of its slots. Pairs are sorted by expert, rows ascending; an expert's weights are then read once for all
 * its pairs, whose activations are contiguous. All experts form one list of tasks. Outputs go back by row in slot order. */
#include "ops/cpu/linear.h"

void weft_moe_layer(weft_dev *d, int experts, int top_k, int inner, int cols) {
    if (experts > d->max_experts) d->max_experts = experts;
    if (top_k > d->max_top_k) d->max_top_k = top_k;
    if (inner > d->max_inner) d->max_inner = inner;
    if (cols > d->max_expert_cols) d->max_expert_cols = cols;
}

/* ---- routing ------------------------------------------------------------------------------------------------------------- */

#define MAX_ROUTER_GROUPS 64

typedef struct route_job {
    weft_dev *d;
    weft_buf *ids, *weights;
    const weft_buf *logits;
    const weft_router *rule;
} route_job;

/* Takes the experts of all groups but the best out of the choice. */
static void keep_groups(float *choice, int n, const weft_router *rule) {
    int each = n / rule->groups;
    bool kept[MAX_ROUTER_GROUPS] = {0};
    float of[MAX_ROUTER_GROUPS];
    for (int g = 0; g < rule->groups; g++) {
        const float *c = choice + g * each;
        float first = -__builtin_inff(), second = first;
        for (int i = 0; i < each; i++) {
            if (c[i] > first)
                second = first, first = c[i];
            else if (c[i] > second)
                second = c[i];
        }
        of[g] = each > 1 ? first + second : first;
    }
    for (int i = 0; i < rule->top_groups; i++) {
        int best = -1;
        for (int g = 0; g < rule->groups; g++)
            if (!kept[g] && (best < 0 || of[g] > of[best])) best = g;
        kept[best] = true;
    }
    for (int i = 0; i < n; i++)
        if (!kept[i / each]) choice[i] = -__builtin_inff();
}

static void route_piece(void *ctx, int row, int worker) {
    const route_job *j = ctx;
    const weft_router *rule = j->rule;
    int n = j->logits->cols, top_k = j->ids->cols;
    float *p = panel_of(j->d, worker), *choice = p + ROUND16(n), *ids = buf_row(j->ids, row), *weights = buf_row(j->weights, row);
    memcpy(p, buf_row(j->logits, row), (size_t)n * sizeof *p);
    if (rule->sigmoid)
        j->d->kernels->sigmoid(p, n);
    else
        j->d->kernels->softmax(p, n);
    float total = 0, all = 0;
    for (int i = 0; i < n; i++) {
        choice[i] = p[i] + (rule->bias ? rule->bias->v[i] : 0);
        all += choice[i]; /* NaN, if one is */
    }
    if (rule->groups > 1) keep_groups(choice, n, rule);
    for (int s = 0; s < top_k; s++) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (choice[i] > choice[best]) best = i; /* a tie stays with the lowest id */
        ids[s] = (float)best;
        weights[s] = all == all ? p[best] : all;
        total += p[best];
        choice[best] = -__builtin_inff();
    }
    for (int s = 0; s < top_k; s++) {
        if (rule->renormalise) weights[s] /= total + 1e-20f; /* sigmoids may all be 0 */
        weights[s] *= rule->scale;
        if (rule->expert_scale) weights[s] *= rule->expert_scale->v[(int)ids[s]];
    }
}

void weft_route(weft_dev *d, weft_buf *ids, weft_buf *weights, const weft_buf *logits, const weft_router *rule) {
    if (d->status != WEFT_OK) return;
    int n = logits->cols;
    if (ids->cols > n || n > d->max_experts || rule->groups < 1 || rule->groups > MAX_ROUTER_GROUPS || n % rule->groups ||
        rule->top_groups < 1 || rule->top_groups > rule->groups || rule->top_groups * (n / rule->groups) < ids->cols) {
        d->status =
            weft_fail(&d->error, WEFT_EINVAL, "%d of %d experts in %d of %d groups", ids->cols, n, rule->top_groups, rule->groups);
        return;
    }
    route_job j = {d, ids, weights, logits, rule};
    weft_pool_run(d->pool, d->step->n_rows, route_piece, &j);
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

typedef struct experts_job {
    weft_dev *d;
    weft_buf *y;
    const weft_buf *x, *weights;
    const weft_mat *gate_up, *down;
    weft_activation act;
    int inner;              /* columns of an expert's gate */
    int top_k, used, tasks; /* tasks: runs of TASK_PANELS panels of one expert's weight */
    size_t groups;          /* of 16 rows, of all experts together */
    weft_acts acts;
} experts_job;

#define TASK_PANELS 8

/* Sorts the pairs: place p of the order holds row * top_k + slot in expert_rows[p], and pair_place[] is the way back; expert e has
 * places [expert_start[e], expert_start[e + 1]) and groups of quantised rows from expert_group[e]. */
static void sort_pairs(experts_job *j, const weft_buf *ids) {
    weft_dev *d = j->d;
    int experts = (int)j->gate_up->experts, top_k = j->top_k, n = d->step->n_rows, *start = d->expert_start;
    memset(start, 0, ((size_t)experts + 1) * sizeof *start);
    for (int r = 0; r < n; r++)
        for (int s = 0; s < top_k; s++) start[(int)buf_row(ids, r)[s] + 1]++;
    for (int e = 0; e < experts; e++) start[e + 1] += start[e];
    for (int r = 0; r < n; r++)
        for (int s = 0; s < top_k; s++) {
            int place = start[(int)buf_row(ids, r)[s]]++, pair = r * top_k + s;
            d->expert_rows[place] = pair;
            d->pair_place[pair] = place;
        }
    for (int e = experts; e > 0; e--) start[e] = start[e - 1];
    start[0] = 0;
    for (int e = 0; e < experts; e++) {
        if (start[e + 1] == start[e]) continue;
        d->experts_used[j->used++] = e;
        d->expert_group[e] = (int)j->groups;
        for (int p = start[e]; p < start[e + 1]; p++) d->place_row[p] = (int)j->groups * 16 + p - start[e];
        j->groups += (size_t)(start[e + 1] - start[e] + 15) / 16;
    }
}

static float *inner_row(const weft_dev *d, int place) {
    return d->expert_in + (size_t)place * (size_t)ROUND16(2 * d->max_inner);
}
static float *outer_row(const weft_dev *d, int place) {
    return d->expert_out + (size_t)place * (size_t)ROUND16(d->max_expert_cols);
}

/* One run of panels of one expert's weight by all its pairs. */
static void expert_task(const experts_job *j, const weft_mat *w, product *p, int task, int worker) {
    const weft_dev *d = j->d;
    int tasks = ((int)panel_count(w) + TASK_PANELS - 1) / TASK_PANELS;
    int expert = d->experts_used[task / tasks], at = task % tasks * TASK_PANELS;
    int panels = (int)panel_count(w) - at < TASK_PANELS ? (int)panel_count(w) - at : TASK_PANELS;
    int start = d->expert_start[expert];
    weft_acts acts = j->acts;
    if (acts.q) acts = acts_from(&acts, d->expert_group[expert] * 16);
    p->w = w;
    p->first = (int64_t)expert * panel_count(w);
    p->acts = &acts;
    p->y += (size_t)start * p->ldy;
    if (p->from)
        p->from += start;
    else
        p->x += (size_t)start * p->ldx;
    product_run(d, p, at, panels, 0, d->expert_start[expert + 1] - start, worker);
}
static void gate_up_task(void *ctx, int task, int worker) {
    const experts_job *j = ctx;
    product p = {.y = inner_row(j->d, 0),
                 .ldy = (size_t)ROUND16(2 * j->d->max_inner),
                 .x = j->x->v,
                 .ldx = (size_t)j->x->ld,
                 .from = j->d->expert_rows,
                 .sharing = j->top_k};
    expert_task(j, j->gate_up, &p, task, worker);
}
static void down_task(void *ctx, int task, int worker) {
    const experts_job *j = ctx;
    product p = {.y = outer_row(j->d, 0),
                 .ldy = (size_t)ROUND16(j->d->max_expert_cols),
                 .x = inner_row(j->d, 0),
                 .ldx = (size_t)ROUND16(2 * j->d->max_inner)};
    expert_task(j, j->down, &p, task, worker);
}
static void quantize_piece(void *ctx, int place, int worker) {
    (void)worker;
    const experts_job *j = ctx;
    const weft_dev *d = j->d;
    d->isa->linear->quantize(&j->acts, d->place_row[place], buf_row(j->x, d->expert_rows[place] / j->top_k));
}
static void activate_piece(void *ctx, int place, int worker) {
    (void)worker;
    const experts_job *j = ctx;
    const weft_dev *d = j->d;
    float *v = inner_row(d, place);
    d->kernels->activate(v, v, j->gate_up->n > j->inner ? v + j->inner : NULL, j->inner, j->act);
    if (j->acts.q) d->isa->linear->quantize(&j->acts, d->place_row[place], v);
}
static void combine_piece(void *ctx, int row, int worker) {
    (void)worker;
    const experts_job *j = ctx;
    float *y = buf_row(j->y, row);
    memset(y, 0, (size_t)j->y->cols * sizeof *y);
    for (int s = 0; s < j->top_k; s++)
        j->d->kernels->add_scaled(y, outer_row(j->d, j->d->pair_place[row * j->top_k + s]), buf_row(j->weights, row)[s],
                                  j->y->cols);
}

static void run_tasks(experts_job *j, const weft_mat *w, weft_piece task) {
    int tasks = ((int)panel_count(w) + TASK_PANELS - 1) / TASK_PANELS;
    j->d->traffic += (uint64_t)j->used * (uint64_t)panel_count(w) * panel_bytes(w);
    weft_pool_run(j->d->pool, j->used * tasks, task, j);
}

void weft_experts(weft_dev *d, weft_buf *y, const weft_buf *x, const weft_buf *ids, const weft_buf *weights,
                  const weft_mat *gate_up, const weft_mat *down, weft_activation act) {
    if (d->status != WEFT_OK) return;
    experts_job j = {.d = d,
                     .y = y,
                     .x = x,
                     .weights = weights,
                     .gate_up = gate_up,
                     .down = down,
                     .act = act,
                     .inner = (int)down->k,
                     .top_k = ids->cols};
    bool fits = gate_up->k == x->cols && gate_up->n == down->k * (act == WEFT_RELU2 ? 1 : 2) && down->n == y->cols &&
                down->experts == gate_up->experts;
    fits = fits && j.top_k <= d->max_top_k && gate_up->experts <= d->max_experts && down->k <= d->max_inner; /* registered */
    fits = fits && x->cols <= d->max_expert_cols && y->cols <= d->max_expert_cols;
    if (!fits) {
        misfit(d, gate_up, y, x);
        return;
    }
    int pairs = d->step->n_rows * j.top_k;
    sort_pairs(&j, ids);
    if (!d->precise && gate_up->bits) {
        j.acts = acts_lay(d->acts, x->cols, j.groups);
        weft_pool_run(d->pool, pairs, quantize_piece, &j);
    }
    run_tasks(&j, gate_up, gate_up_task);
    j.acts = !d->precise && down->bits ? acts_lay(d->acts, (int)down->k, j.groups) : (weft_acts){0};
    weft_pool_run(d->pool, pairs, activate_piece, &j);
    run_tasks(&j, down, down_task);
    weft_pool_run(d->pool, d->step->n_rows, combine_piece, &j);
}

/* mamba.c: the Mamba-2 layer: step sizes, recurrence. What it shares with other recurrent layers: recurrent.h.
 *
 * Unlike in Gated DeltaNet a token's update does not depend on the state. So it never waits: a sweep takes some tokens at a time
 * through each element, a token alone reads and writes S once, and S after i rows is there after the sweep that ends with row i.
 * Speculative rows run on the worker's copy and leave decay, B and dt x in the journal. An update is the same arithmetic from the
 * journal (weft_gdn_kernels.update) and in a sweep, so a replayed state equals a decoded one bit for bit. */
#include <string.h>

#include "ops/cpu/recurrent.h"

int weft_mamba_layer(weft_dev *d, const weft_mamba_shape *s) {
    int inner = s->n_heads * s->head_dim, key = inner, query = inner + s->n_groups * s->state_dim;
    return recurrent_register(d, (recurrent_layer){.shape = {s->n_groups, s->n_heads, s->state_dim, s->head_dim, s->conv_kernel},
                                                   .query_at = query,
                                                   .key_at = key,
                                                   .conv_rows = s->conv_kernel + 1});
}

static void finish(const recurrent_job *j, const weft_span *s, int group, const inputs *in, int i, int n) {
    const recurrent_layer *l = j->l;
    const weft_mamba *op = j->op;
    for (int g = 0, head = group * l->group; g < l->group; g++, head++)
        j->d->isa->mamba->gates(in_gates(in, g, i), in_gates(in, l->group + g, i), buf_row(j->alpha, s->row + i) + head,
                                (size_t)j->alpha->ld, op->decay->v[head], op->dt_bias->v[head], op->dt_low, op->dt_high, n);
}

/* A block's walk over its rows. */
typedef struct walk {
    const recurrent_job *j;
    const spot *p;
    const inputs *in;
    weft_gdn_ahead ahead;
} walk;
/* Sweeps over S that some rows take. */
static int sweeps(const recurrent_job *j, int certain, int speculative) {
    int n = j->d->isa->mamba->together;
    if (certain % n == 1 && speculative) return (certain + speculative + n - 1) / n;
    return (certain + n - 1) / n + (speculative + n - 1) / n;
}
static void swept(walk *w, int sweeps) {
    w->ahead.at += (size_t)sweeps * w->ahead.stride * (block_floats(w->j->l) / LANES);
}
/* Rows [i, end), the certain ones before `certain`: S from src to state. */
static void run_rows(walk *w, int i, int certain, int end, float *state, const float *src, float *copy) {
    const recurrent_job *j = w->j;
    const recurrent_layer *l = j->l;
    const spot *p = w->p;
    int column = p->block * GDN_COLUMNS, left = l->shape.v_dim - column, head = value_head(j, p);
    weft_mamba_tokens t = {
        .rows = end - i,
        .certain = certain - i,
        .dim = l->shape.k_dim,
        .cols = left < GDN_COLUMNS ? left : GDN_COLUMNS,
        .c = in_keys(l, w->in, i),
        .b = in_keys(l, w->in, i) + l->key_ld,
        .ld_bc = 2 * (size_t)l->key_ld,
        .a = in_gates(w->in, p->of_group, i),
        .dt = in_gates(w->in, l->group + p->of_group, i),
        .x = in_values(l, w->in, p->of_group, i) + column,
        .ld_x = (size_t)(l->blocks * GDN_COLUMNS),
        .skip = ((const weft_mamba *)j->op)->skip->v[head],
        .y = buf_row(j->y, p->s->row + i) + head * l->shape.v_dim + column,
        .ld_y = (size_t)j->y->ld,
    };
    j->d->isa->mamba->tokens(state, copy, src, &t, w->ahead);
    swept(w, sweeps(j, certain - i, end - certain));
}
/* S with the accepted rows of the pass before folded in; where it is. */
static const float *replay(walk *w, float *state) {
    const recurrent_job *j = w->j;
    const float *S = block_start(j, w->p);
    for (int i = 0, n; i < w->p->s->replay; i += n, S = state) {
        weft_gdn_update update[GDN_WAITS];
        for (n = 0; n < GDN_WAITS && i + n < w->p->s->replay; n++) update[n] = replayed(j, w->p, i + n);
        j->kn->update(state, S, update, n, j->l->shape.k_dim, w->ahead);
        swept(w, 1);
    }
    return S;
}

static void columns(const recurrent_job *j, const spot *p, const inputs *in, int begin, int end, const float *next, float *copy) {
    const weft_span *s = p->s;
    const size_t bytes = block_floats(j->l) * sizeof(float);
    const int certain = end < s->certain ? end : s->certain;
    const int folds = begin ? 0 : (s->replay + GDN_WAITS - 1) / GDN_WAITS, all = folds + sweeps(j, certain - begin, end - certain);
    float *state = block_state(j, s->slot_write, p);
    walk w = {j, p, in, {(const char *)state, 0}};
    if (next && all && all <= 64) w.ahead = (weft_gdn_ahead){(const char *)next, 64 / (size_t)all};
    const float *S = begin ? state : replay(&w, state);

    int i = begin;
    for (int k = 0; k < s->n_snapshots && s->snapshot_at[k] <= certain; k++) {
        const int stop = s->snapshot_at[k];
        if (stop <= begin) continue;
        run_rows(&w, i, stop, stop, state, S, copy);
        memcpy(block_state(j, s->snapshot_slot[k], p), state, bytes);
        S = state;
        i = stop;
    }
    if (i == certain && S != state) memcpy(state, S, bytes);
    run_rows(&w, i, certain, end, state, S, copy);
    for (i = s->certain; i < end; i++) {
        float *d = journal_delta(j, s->slot_write, s->journal, p, i - s->certain), dt = *in_gates(in, j->l->group + p->of_group, i);
        const float *x = in_values(j->l, in, p->of_group, i) + p->block * GDN_COLUMNS;
        for (int k = 0; k < GDN_COLUMNS; k++) d[k] = dt * x[k];
    }
}

void weft_mamba_run(weft_dev *d, weft_buf *y, const weft_buf *xbc, const weft_buf *dt, const weft_mamba *m) {
    static const recurrent_kind kind = {finish, columns};
    recurrent_run(d, m->layer, (recurrent_job){.kind = &kind, .op = m, .y = y, .raw = xbc, .alpha = dt}, m->conv, m->conv_bias);
}

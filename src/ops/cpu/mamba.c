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

/* A walk over a block's rows. */
typedef struct walk {
    const recurrent_job *j;
    const spot *p;
    const inputs *in;
    weft_gdn_ahead ahead;
} walk;
/* Rows [i, end): S from src to dst. */
static void run_rows(walk *w, int i, int end, float *dst, const float *src) {
    const recurrent_job *j = w->j;
    const recurrent_layer *l = j->l;
    const spot *p = w->p;
    int column = p->block * GDN_COLUMNS, left = l->shape.v_dim - column, head = value_head(j, p);
    weft_mamba_tokens t = {
        .rows = end - i,
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
    j->d->isa->mamba->tokens(dst, src, &t, w->ahead);
    w->ahead.at += (size_t)(end - i) * w->ahead.stride * block_floats(l) / LANES;
}
/* S with the accepted rows of the pass before folded in; where it is. */
static const float *replay(const recurrent_job *j, const spot *p, float *state) {
    const weft_gdn_ahead none = {(const char *)state, 0};
    const float *S = block_start(j, p);
    for (int i = 0, n; i < p->s->replay; i += n, S = state) {
        weft_gdn_update update[GDN_WAITS];
        for (n = 0; n < GDN_WAITS && i + n < p->s->replay; n++) update[n] = replayed(j, p, i + n);
        j->kn->update(state, S, update, n, j->l->shape.k_dim, none);
    }
    return S;
}

static void columns(const recurrent_job *j, const spot *p, const inputs *in, int begin, int end, const float *next, float *copy) {
    const weft_span *s = p->s;
    const size_t bytes = block_floats(j->l) * sizeof(float);
    float *state = block_state(j, s->slot_write, p);
    const float *S = begin ? state : replay(j, p, state);
    walk w = {j, p, in, {(const char *)S, 0}};
    if (next && end > begin && end - begin <= 64) w.ahead = (weft_gdn_ahead){(const char *)next, 64 / (size_t)(end - begin)};

    const int certain = end < s->certain ? end : s->certain;
    int i = begin;
    for (int k = 0; k < s->n_snapshots && s->snapshot_at[k] <= certain; k++) {
        if (s->snapshot_at[k] <= begin) continue;
        run_rows(&w, i, s->snapshot_at[k], state, S);
        S = state;
        i = s->snapshot_at[k];
        memcpy(block_state(j, s->snapshot_slot[k], p), state, bytes);
    }
    if (i < certain)
        run_rows(&w, i, certain, state, S);
    else if (S != state)
        memcpy(state, S, bytes);
    if (end <= s->certain) return;

    run_rows(&w, s->certain, end, copy, state);
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

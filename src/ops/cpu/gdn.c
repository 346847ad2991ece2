/* gdn.c: the Gated DeltaNet layer: unit keys, gates, recurrence. What it shares with other recurrent layers: recurrent.h.
 *
 * A row's update of S waits until the next sweep folds it in. So S after i rows comes into being in the sweep of row i, which puts
 * it where it is needed: into the slot after the last certain row, into a snapshot's slot, and otherwise where the next one may
 * overwrite it, the slot before the last certain row and the worker's copy after it. Speculative rows leave decay, key and delta in
 * the journal. An update folds in with the same arithmetic from the journal and from the row just run, so a replayed state equals a
 * decoded one bit for bit. */
#include <string.h>

#include "ops/cpu/recurrent.h"

int weft_gdn_layer(weft_dev *d, const weft_gdn_shape *s) {
    int keys = s->n_k_heads * s->k_dim;
    return recurrent_register(d, (recurrent_layer){.shape = *s, .key_at = keys, .value_at = 2 * keys, .conv_rows = s->conv_kernel});
}

static void finish(const recurrent_job *j, const weft_span *s, int k_head, const inputs *in, int i, int n) {
    const recurrent_layer *l = j->l;
    const weft_gdn *op = j->op;
    for (int g = 0, head = k_head * l->group; g < l->group; g++, head++)
        j->kn->gates(in_gates(in, g, i), in_gates(in, l->group + g, i), buf_row(j->alpha, s->row + i) + head, (size_t)j->alpha->ld,
                     buf_row(j->beta, s->row + i) + head, (size_t)j->beta->ld, op->decay->v[head], op->dt_bias->v[head], n);
    float *q = in_keys(l, in, i);
    j->kn->unit(q, q + l->key_ld, 2 * (size_t)l->key_ld, in_gates(in, 2 * l->group, i), n, l->shape.k_dim);
}

/* Rows [i, i + n) of a span, all certain or all speculative. */
static weft_gdn_tokens row_tokens(const recurrent_job *j, const spot *p, const inputs *in, int i, int n, float *delta) {
    const recurrent_layer *l = j->l;
    const weft_span *s = p->s;
    int column = p->block * GDN_COLUMNS, left = l->shape.v_dim - column;
    weft_gdn_tokens t = {
        .rows = n,
        .k_dim = l->shape.k_dim,
        .cols = left < GDN_COLUMNS ? left : GDN_COLUMNS,
        .q = in_keys(l, in, i),
        .k = in_keys(l, in, i) + l->key_ld,
        .ld_key = 2 * (size_t)l->key_ld,
        .a = in_gates(in, p->of_group, i),
        .b = in_gates(in, l->group + p->of_group, i),
        .qk = in_gates(in, 2 * l->group, i),
        .v = in_values(l, in, p->of_group, i) + column,
        .ld_v = (size_t)(l->blocks * GDN_COLUMNS),
        .d = delta,
        .y = buf_row(j->y, s->row + i) + value_head(j, p) * l->shape.v_dim + column,
        .ld_y = (size_t)j->y->ld,
    };
    if (i >= s->certain) {
        t.d = journal_delta(j, s->slot_write, s->journal, p, i - s->certain);
        t.ld_d = GDN_COLUMNS;
    }
    return t;
}

/* S and the updates that wait. */
typedef struct pending {
    const float *S;
    weft_gdn_update update[GDN_WAITS];
    int n;
} pending;
static void settle(const recurrent_job *j, pending *w, float *state, weft_gdn_ahead ahead) {
    if (w->n)
        j->kn->update(state, w->S, w->update, w->n, j->l->shape.k_dim, ahead);
    else if (w->S != state)
        memcpy(state, w->S, block_floats(j->l) * sizeof *state);
    w->S = state;
    w->n = 0;
}

/* Rows [begin, end) of a span, where end is behind the last row, or no later than the last certain one. next: a block's state that
 * the same worker needs next; or NULL. */
static void columns(const recurrent_job *j, const spot *p, const inputs *in, int begin, int end, const float *next,
                    float *scratch) {
    const recurrent_layer *l = j->l;
    const weft_span *s = p->s;
    float *state = block_state(j, s->slot_write, p), *copy = scratch, *delta = scratch + block_floats(l);
    pending w = {.S = begin ? state : block_start(j, p)};
    const int sweeps = end - begin + (end <= s->certain);
    const weft_gdn_ahead none = {(const char *)w.S, 0};
    weft_gdn_ahead ahead = next && sweeps <= 64 ? (weft_gdn_ahead){(const char *)next, 64 / (size_t)sweeps} : none;
    for (int i = 0; i < s->replay && !begin; i++) {
        if (w.n == GDN_WAITS) settle(j, &w, state, none);
        w.update[w.n++] = replayed(j, p, i);
    }
    if (!s->certain) settle(j, &w, state, none);

    int snapshot = 0; /* the next one; one after the last of these certain rows is a copy of the slot */
    while (snapshot < s->n_snapshots && s->snapshot_at[snapshot] <= begin) snapshot++;
    for (int i = begin, n; i < end; i += n) { /* as many rows as have S in one place */
        bool due = snapshot < s->n_snapshots && s->snapshot_at[snapshot] < s->certain;
        float *to = i > s->certain ? copy : state;
        int stop = i > s->certain ? end : i == s->certain ? i + 1 : due ? s->snapshot_at[snapshot] : s->certain;
        if (due && stop == i) {
            to = block_state(j, s->snapshot_slot[snapshot++], p);
            stop = i + 1;
        }
        n = (stop < end ? stop : end) - i;
        weft_gdn_tokens t = row_tokens(j, p, in, i, n, delta);
        w.S = j->kn->tokens(to, w.S, w.update, w.n, &t, ahead);
        w.update[0] = (weft_gdn_update){t.a[n - 1], t.k + (size_t)(n - 1) * t.ld_key, t.d + (size_t)(n - 1) * t.ld_d};
        w.n = 1;
        ahead.at += (size_t)n * ahead.stride * block_floats(l) / LANES;
    }
    if (end <= s->certain) settle(j, &w, state, ahead);
    for (int i = 0; i < s->n_snapshots; i++)
        if (s->snapshot_at[i] == (end < s->certain ? end : s->certain))
            memcpy(block_state(j, s->snapshot_slot[i], p), state, block_floats(l) * sizeof *state);
}

void weft_gdn_run(weft_dev *d, weft_buf *y, const weft_buf *qkv, const weft_buf *alpha, const weft_buf *beta, const weft_gdn *g) {
    static const recurrent_kind kind = {finish, columns};
    recurrent_run(d, g->layer, (recurrent_job){.kind = &kind, .op = g, .y = y, .raw = qkv, .alpha = alpha, .beta = beta}, g->conv,
                  NULL);
}

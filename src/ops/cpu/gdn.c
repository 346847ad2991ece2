/* gdn.c: the Gated DeltaNet layer: convolution, gates, recurrence, journal, snapshots.
 *
 * Three stages with a barrier between them:
 *   rows      each row's convolution, normalised q and k, and gates (they need neighbours' raw inputs only);
 *   columns   each (span, value head, block of 16 value columns) walks the recurrence token by token: replay and certain
 *             rows in the slot that is written; then the speculative rows on a copy, whose ingredients alone are kept;
 *   windows   each span's convolution window and journalled inputs, last, because the first stage reads the old ones.
 *
 * Decay, key and delta of a journalled row give exactly the state update of the pass that made them (gdn_replay repeats the
 * elementwise operations of gdn_token), so a replayed state equals a decoded one bit for bit. */
#include <string.h>

#include "ops/cpu/kernels.h"

typedef struct gdn_job {
    weft_dev *d;
    const gdn_layer *l;
    const weft_gdn *g;
    weft_buf *y;
    const weft_buf *qkv, *alpha, *beta;
    const float *zeros; /* a raw row before the sequence's start */
} gdn_job;

static float *window_row(const gdn_layer *l, int slot, int t) {
    return l->window + ((size_t)slot * (size_t)(l->shape.conv_kernel - 1) + (size_t)t) * (size_t)l->channels_ld;
}

/* The raw convolution input at row i of span s; i < 0 reaches back into the replayed rows, then into the stored window. NULL: zero.
 */
static const float *raw_row(const gdn_job *j, const weft_span *s, int i) {
    if (i >= 0) return buf_row(j->qkv, s->row + i);
    i += s->replay;
    if (i >= 0) return j->l->journal_in + journal_index(j->d, s->slot_read, 1 - s->journal, i) * (size_t)j->l->channels_ld;
    return s->slot_read < 0 ? NULL : window_row(j->l, s->slot_read, i + j->l->shape.conv_kernel - 1);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

static void row_piece(void *ctx, int row, int worker) {
    (void)worker;
    const gdn_job *j = ctx;
    const weft_gdn_shape *sh = &j->l->shape;
    const weft_gdn_kernels *kn = j->d->isa->gdn;
    const weft_span *s = &j->d->step->spans[j->d->row_span[row]];
    const float *raw[16];
    for (int t = 0; t < sh->conv_kernel; t++) {
        raw[t] = raw_row(j, s, row - s->row - (sh->conv_kernel - 1) + t);
        if (!raw[t]) raw[t] = j->zeros;
    }
    float *c = j->d->conv + (size_t)row * (size_t)j->l->channels_ld;
    kn->conv(c, raw, sh->conv_kernel, j->g->conv->v, (size_t)j->l->channels, j->l->channels);
    for (int h = 0; h < sh->n_k_heads; h++) {
        kn->unit(c + h * sh->k_dim, sh->k_dim, 1.0f / __builtin_sqrtf((float)sh->k_dim));
        kn->unit(c + (sh->n_k_heads + h) * sh->k_dim, sh->k_dim, 1.0f);
    }
    size_t at = (size_t)row * (size_t)sh->n_v_heads;
    kn->gates(j->d->gate_a + at, j->d->gate_b + at, buf_row(j->alpha, row), buf_row(j->beta, row), j->g->decay->v, j->g->dt_bias->v,
              sh->n_v_heads);
}

/* ---- columns ------------------------------------------------------------------------------------------------------------- */

static void column_piece(void *ctx, int piece, int worker) {
    const gdn_job *j = ctx;
    const gdn_layer *l = j->l;
    const weft_gdn_shape *sh = &l->shape;
    const weft_dev *d = j->d;
    int block = piece % l->blocks, head = piece / l->blocks % sh->n_v_heads;
    const weft_span *s = &d->step->spans[piece / l->blocks / sh->n_v_heads];
    int k_head = head / (sh->n_v_heads / sh->n_k_heads), k_dim = sh->k_dim;
    int cols = sh->v_dim - block * LANES < LANES ? sh->v_dim - block * LANES : LANES;
    size_t size = (size_t)k_dim * LANES, column = ((size_t)head * (size_t)l->blocks + (size_t)block);
    size_t per_slot = (size_t)sh->n_v_heads * (size_t)l->blocks; /* columns of 16 in a slot, and in a journal row of deltas */
    float *copy = panel_of(d, worker), *v = copy + size, *delta = v + LANES, *y = delta + LANES;
    float *state = l->state + ((size_t)s->slot_write * per_slot + column) * size;

    if (s->slot_read < 0)
        memset(state, 0, size * sizeof *state);
    else if (s->slot_read != s->slot_write)
        memcpy(state, l->state + ((size_t)s->slot_read * per_slot + column) * size, size * sizeof *state);
    for (int i = 0; i < s->replay; i++) {
        size_t at = journal_index(d, s->slot_read, 1 - s->journal, i);
        d->isa->gdn->replay(state, l->journal_d + (at * per_slot + column) * LANES,
                            l->journal_k + (at * (size_t)sh->n_k_heads + (size_t)k_head) * (size_t)k_dim,
                            l->journal_a[at * (size_t)sh->n_v_heads + (size_t)head], k_dim);
    }
    int snapshot = 0;
    memset(v, 0, LANES * sizeof *v);
    for (int i = 0; i < s->certain + s->speculative; i++) {
        if (i == s->certain) state = memcpy(copy, state, size * sizeof *state);
        size_t row = (size_t)s->row + (size_t)i;
        const float *c = d->conv + row * (size_t)l->channels_ld;
        const float *q = c + k_head * k_dim, *k = q + sh->n_k_heads * k_dim;
        float a = d->gate_a[row * (size_t)sh->n_v_heads + (size_t)head], b = d->gate_b[row * (size_t)sh->n_v_heads + (size_t)head];
        memcpy(v, c + 2 * sh->n_k_heads * k_dim + head * sh->v_dim + block * LANES, (size_t)cols * sizeof *v);
        d->isa->gdn->token(state, delta, y, q, k, v, a, b, k_dim);
        memcpy(buf_row(j->y, (int)row) + head * sh->v_dim + block * LANES, y, (size_t)cols * sizeof *y);
        if (snapshot < s->n_snapshots && i + 1 == s->snapshot_at[snapshot])
            memcpy(l->state + ((size_t)s->snapshot_slot[snapshot++] * per_slot + column) * size, state, size * sizeof *state);
        if (i < s->certain) continue;
        size_t at = journal_index(d, s->slot_write, s->journal, i - s->certain);
        memcpy(l->journal_d + (at * per_slot + column) * LANES, delta, LANES * sizeof *delta);
        if (block) continue; /* a head's first block keeps what its blocks share, a group's first head what its heads share */
        l->journal_a[at * (size_t)sh->n_v_heads + (size_t)head] = a;
        if (head % (sh->n_v_heads / sh->n_k_heads) == 0)
            memcpy(l->journal_k + (at * (size_t)sh->n_k_heads + (size_t)k_head) * (size_t)k_dim, k, (size_t)k_dim * sizeof *k);
    }
}

/* ---- windows ------------------------------------------------------------------------------------------------------------- */

static void store_window(const gdn_job *j, const weft_span *s, int rows, int slot, float *scratch) {
    int taps = j->l->shape.conv_kernel - 1;
    size_t ld = (size_t)j->l->channels_ld, bytes = (size_t)j->l->channels * sizeof(float);
    memset(scratch, 0, (size_t)taps * ld * sizeof(float)); /* through a copy: the window may move within its own slot */
    for (int t = 0; t < taps; t++) {
        const float *raw = raw_row(j, s, rows - taps + t);
        if (raw) memcpy(scratch + (size_t)t * ld, raw, bytes);
    }
    memcpy(window_row(j->l, slot, 0), scratch, (size_t)taps * ld * sizeof(float));
}

static void window_piece(void *ctx, int piece, int worker) {
    const gdn_job *j = ctx;
    const weft_span *s = &j->d->step->spans[piece];
    for (int i = 0; i < s->n_snapshots; i++) store_window(j, s, s->snapshot_at[i], s->snapshot_slot[i], panel_of(j->d, worker));
    store_window(j, s, s->certain, s->slot_write, panel_of(j->d, worker));
    for (int i = 0; i < s->speculative; i++)
        memcpy(j->l->journal_in + journal_index(j->d, s->slot_write, s->journal, i) * (size_t)j->l->channels_ld,
               buf_row(j->qkv, s->row + s->certain + i), (size_t)j->l->channels * sizeof(float));
}

void weft_gdn_run(weft_dev *d, weft_buf *y, const weft_buf *qkv, const weft_buf *alpha, const weft_buf *beta, const weft_gdn *g) {
    if (d->status != WEFT_OK) return;
    const gdn_layer *l = &d->gdn.v[g->layer];
    gdn_job j = {d, l, g, y, qkv, alpha, beta, d->zeros};
    uint64_t state = (uint64_t)l->shape.n_v_heads * (uint64_t)l->blocks * (uint64_t)l->shape.k_dim * LANES * sizeof(float);
    d->traffic += (uint64_t)d->step->n_spans * 2 * state; /* read and written once for all rows of a span */
    weft_pool_run(d->pool, d->step->n_rows, row_piece, &j);
    weft_pool_run(d->pool, d->step->n_spans * l->shape.n_v_heads * l->blocks, column_piece, &j);
    weft_pool_run(d->pool, d->step->n_spans, window_piece, &j);
}

/* gdn.c: the Gated DeltaNet layer: convolution, gates, recurrence, journal, snapshots.
 *
 * Work goes by key heads, with the value heads that share one, in two stages:
 *   inputs    the rows' convolution, unit q and k, gates, and what the span leaves of them: windows, journal;
 *   columns   each block of value columns walks the recurrence token by token (kernels.h): accepted drafts of the pass before, out
 *             of their journal; certain rows; speculative rows.
 * Where key heads are enough for all threads, one job does both, some rows at a time; otherwise the columns are a job of their own,
 * cut finer.
 *
 * A row's update of S waits until the next sweep folds it in. So S after i rows comes into being in the sweep of row i, which puts
 * it where it is needed: into the slot after the last certain row, into a snapshot's slot, and otherwise where the next one may
 * overwrite it, the slot before the last certain row and the worker's copy after it. Speculative rows leave decay, key and delta in
 * the journal. An update folds in with the same arithmetic from the journal and from the row just run, so a replayed state equals a
 * decoded one bit for bit.
 *
 * A few rows are bound by memory, and what they touch is scattered. So all that one head needs lies together, and whoever works on
 * a block or a head asks for the next one's memory meanwhile. */
#include <string.h>

#include "ops/cpu/kernels.h"

typedef struct gdn_job {
    weft_dev *d;
    const gdn_layer *l;
    const weft_gdn_kernels *kn;
    const weft_gdn *g;
    weft_buf *y;
    const weft_buf *qkv, *alpha, *beta;
    int pieces; /* of the job that is running */
} gdn_job;

/* A block of columns of one value head of one span. */
typedef struct spot {
    const weft_span *s;
    int k_head, of_group, block; /* value head k_head * group + of_group */
} spot;
static spot spot_at(const gdn_job *j, int block) { /* counted through all heads and spans */
    const gdn_layer *l = j->l;
    int head = block / l->blocks, k_head = head / l->group;
    return (spot){j->d->step->spans + k_head / l->shape.n_k_heads, k_head % l->shape.n_k_heads, head % l->group, block % l->blocks};
}
static spot next_spot(const gdn_job *j, spot p) {
    const gdn_layer *l = j->l;
    if (++p.block < l->blocks) return p;
    p.block = 0;
    if (++p.of_group < l->group) return p;
    p.of_group = 0;
    if (++p.k_head < l->shape.n_k_heads) return p;
    p.k_head = 0;
    p.s++;
    return p;
}
static spot next_head(const gdn_job *j, spot p) {
    p.of_group = j->l->group - 1;
    p.block = j->l->blocks - 1;
    return next_spot(j, p);
}
static int value_head(const gdn_job *j, const spot *p) {
    return p->k_head * j->l->group + p->of_group;
}

/* ---- what the first stage leaves for the second --------------------------------------------------------------------------- */

enum { ROWS = 64, MAX_TAPS = 16 }; /* rows that a worker takes at a time: their inputs stay in its second cache */

/* A key head's. */
typedef struct inputs {
    float *keys;   /* [room][2][key_ld]: q, k */
    float *values; /* [group][room][blocks][GDN_COLUMNS] */
    float *gates;  /* [2 group + 1][room]: the value heads' decays, their betas, q k */
    int room;      /* rows */
    int first;     /* the span's row that is at row 0 */
} inputs;
static size_t inputs_floats(const gdn_layer *l, int room) {
    return ((size_t)room * (size_t)(2 * l->key_ld + l->group * (l->blocks * GDN_COLUMNS + 2) + 1) + 15) & ~(size_t)15;
}
static inputs inputs_in(const gdn_layer *l, float *memory, int room, int first) {
    inputs in = {.keys = memory, .room = room, .first = first};
    in.values = in.keys + (size_t)room * (size_t)(2 * l->key_ld);
    in.gates = in.values + (size_t)room * (size_t)(l->group * l->blocks * GDN_COLUMNS);
    return in;
}
static float *in_keys(const gdn_layer *l, const inputs *in, int row) {
    return in->keys + (size_t)(row - in->first) * (size_t)(2 * l->key_ld);
}
static float *in_values(const gdn_layer *l, const inputs *in, int of_group, int row) {
    return in->values + ((size_t)of_group * (size_t)in->room + (size_t)(row - in->first)) * (size_t)(l->blocks * GDN_COLUMNS);
}
static float *in_gates(const inputs *in, int which, int row) {
    return in->gates + (size_t)which * (size_t)in->room + (row - in->first);
}

/* ---- slots: the journal's row i of half `half`, the window, the state ----------------------------------------------------- */

static size_t journal_at(const gdn_job *j, int slot, int half, int things, int thing, int i) {
    return (((size_t)slot * 2 + (size_t)half) * (size_t)things + (size_t)thing) * (size_t)j->d->plan.max_draft + (size_t)i;
}
static float *journal_input(const gdn_job *j, int slot, int half, int k_head, int i) {
    return j->l->journal_in + journal_at(j, slot, half, j->l->shape.n_k_heads, k_head, i) * (size_t)j->l->width;
}
static float *journal_key(const gdn_job *j, int slot, int half, int k_head, int i) {
    return j->l->journal_k + journal_at(j, slot, half, j->l->shape.n_k_heads, k_head, i) * (size_t)j->l->key_ld;
}
static float *journal_decay(const gdn_job *j, int slot, int half, int head, int i) {
    return j->l->journal_a + journal_at(j, slot, half, j->l->shape.n_v_heads, head, i);
}
static float *journal_delta(const gdn_job *j, int slot, int half, const spot *p, int i) {
    int block = value_head(j, p) * j->l->blocks + p->block;
    return j->l->journal_d + journal_at(j, slot, half, j->l->shape.n_v_heads * j->l->blocks, block, i) * GDN_COLUMNS;
}
static float *window_row(const gdn_layer *l, int slot, int k_head, int pos) { /* pos may be negative: before the start */
    int n = l->shape.conv_kernel - 1, at = (pos % n + n) % n;
    return l->window + (((size_t)slot * (size_t)l->shape.n_k_heads + (size_t)k_head) * (size_t)n + (size_t)at) * (size_t)l->width;
}
static size_t block_floats(const gdn_layer *l) {
    return (size_t)l->shape.k_dim * GDN_COLUMNS;
}
static float *block_state(const gdn_job *j, int slot, const spot *p) {
    size_t blocks = (size_t)(j->l->shape.n_v_heads * j->l->blocks), block = (size_t)(value_head(j, p) * j->l->blocks + p->block);
    return j->l->state + ((size_t)slot * blocks + block) * block_floats(j->l);
}
static const float *block_start(const gdn_job *j, const spot *p) {
    return p->s->slot_read < 0 ? j->d->zeros : block_state(j, p->s->slot_read, p);
}

/* ---- inputs --------------------------------------------------------------------------------------------------------------- */

/* A key head's channels are three runs: its q, its k, the values of its group. They lie apart in rows of activations (`at`) and
 * side by side in memory of our own (`place`). */
typedef struct run {
    int at, place, n;
} run;
enum { RUNS = 3 };
static run head_run(const gdn_layer *l, int k_head, int which) {
    const weft_gdn_shape *s = &l->shape;
    int values = l->group * s->v_dim, keys = s->n_k_heads * s->k_dim;
    if (which < 2) return (run){which * keys + k_head * s->k_dim, which * s->k_dim, s->k_dim};
    return (run){2 * keys + k_head * values, 2 * s->k_dim, values};
}
static float *head_conv(const gdn_layer *l, int k_head) {
    return l->conv + (size_t)k_head * (size_t)(l->shape.conv_kernel * l->width);
}
static void pack_conv(gdn_layer *l, const weft_coef *conv) {
    for (int h = 0; h < l->shape.n_k_heads; h++)
        for (int i = 0; i < RUNS; i++) {
            run r = head_run(l, h, i);
            for (int t = 0; t < l->shape.conv_kernel; t++)
                memcpy(head_conv(l, h) + t * l->width + r.place, conv->v + t * l->channels + r.at, (size_t)r.n * sizeof(float));
        }
    l->conv_of = conv;
}

/* Where a head's raw convolution input at row i of span s is; i < 0 reaches back into the replayed rows, then into the window. */
static void raw_row(const gdn_job *j, const weft_span *s, int k_head, int i, const float *raw[RUNS]) {
    const float *row = i >= 0               ? buf_row(j->qkv, s->row + i)
                       : i + s->replay >= 0 ? journal_input(j, s->slot_read, 1 - s->journal, k_head, i + s->replay)
                       : s->slot_read < 0   ? j->d->zeros
                                            : window_row(j->l, s->slot_read, k_head, s->pos + i);
    for (int w = 0; w < RUNS; w++) {
        run r = head_run(j->l, k_head, w);
        raw[w] = row + (i >= 0 ? r.at : r.place);
    }
}
static void copy_raw(const gdn_job *j, const weft_span *s, int k_head, int i, float *dst) {
    const float *raw[RUNS];
    raw_row(j, s, k_head, i, raw);
    for (int w = 0; w < RUNS; w++) {
        run r = head_run(j->l, k_head, w);
        if (raw[w] != dst + r.place) memcpy(dst + r.place, raw[w], (size_t)r.n * sizeof *dst);
    }
}
/* The window after `rows` rows. What stays of the old one is in its place already, if the slot is the same. */
static void store_window(const gdn_job *j, const weft_span *s, int k_head, int rows, int slot) {
    for (int i = rows - (j->l->shape.conv_kernel - 1); i < rows; i++)
        copy_raw(j, s, k_head, i, window_row(j->l, slot, k_head, s->pos + i));
}

/* What a head's inputs touch besides this step's rows. */
static void fetch_inputs(const gdn_job *j, const weft_span *s, int k_head) {
    const gdn_layer *l = j->l;
    size_t width = (size_t)l->width, key = (size_t)l->key_ld, taps = (size_t)l->shape.conv_kernel;
    size_t drafts = (size_t)s->speculative, replay = (size_t)s->replay, tail = replay < taps ? replay : taps - 1;
    int back = 1 - s->journal;
    j->kn->fetch(head_conv(l, k_head), taps * width);
    if (s->slot_read >= 0 && taps > 1) j->kn->fetch(window_row(l, s->slot_read, k_head, 0), (taps - 1) * width);
    if (replay) {
        j->kn->fetch(journal_input(j, s->slot_read, back, k_head, (int)(replay - tail)), tail * width);
        j->kn->fetch(journal_key(j, s->slot_read, back, k_head, 0), replay * key);
    }
    j->kn->fetch(journal_input(j, s->slot_write, s->journal, k_head, 0), drafts * width);
    j->kn->fetch(journal_key(j, s->slot_write, s->journal, k_head, 0), drafts * key);
}

/* Rows [begin, end) of a span, and with the last ones what the span leaves behind. */
static void head_inputs(const gdn_job *j, const weft_span *s, int k_head, const inputs *in, int begin, int end) {
    const gdn_layer *l = j->l;
    const weft_gdn_shape *sh = &l->shape;
    const int taps = sh->conv_kernel, value_ld = l->blocks * GDN_COLUMNS;
    const size_t width = (size_t)l->width, key_ld = 2 * (size_t)l->key_ld;
    const float *conv = head_conv(l, k_head);
    for (int i = begin, n; i < end; i += n) {
        n = end - i < ROWS ? end - i : ROWS;
        for (int g = 0, head = k_head * l->group; g < l->group; g++, head++)
            j->kn->gates(in_gates(in, g, i), in_gates(in, l->group + g, i), buf_row(j->alpha, s->row + i) + head,
                         (size_t)j->alpha->ld, buf_row(j->beta, s->row + i) + head, (size_t)j->beta->ld, j->g->decay->v[head],
                         j->g->dt_bias->v[head], n);
        const float *raw[RUNS][ROWS + MAX_TAPS];
        for (int t = 0; t < n + taps - 1; t++) {
            const float *row[RUNS];
            raw_row(j, s, k_head, i + t - (taps - 1), row);
            for (int w = 0; w < RUNS; w++) raw[w][t] = row[w];
        }
        float *q = in_keys(l, in, i), *k = q + l->key_ld;
        j->kn->conv(q, key_ld, raw[0], 0, n, taps, conv, width, sh->k_dim, l->key_ld);
        j->kn->conv(k, key_ld, raw[1], 0, n, taps, conv + sh->k_dim, width, sh->k_dim, l->key_ld);
        j->kn->unit(q, k, key_ld, in_gates(in, 2 * l->group, i), n, sh->k_dim);
        for (int g = 0; g < l->group; g++)
            j->kn->conv(in_values(l, in, g, i), (size_t)value_ld, raw[2], (size_t)(g * sh->v_dim), n, taps,
                        conv + 2 * sh->k_dim + g * sh->v_dim, width, sh->v_dim, value_ld);
    }
    if (end < s->certain + s->speculative) return;
    for (int i = 0; i < s->speculative; i++) {
        copy_raw(j, s, k_head, s->certain + i, journal_input(j, s->slot_write, s->journal, k_head, i));
        memcpy(journal_key(j, s->slot_write, s->journal, k_head, i), in_keys(l, in, s->certain + i) + l->key_ld,
               (size_t)l->key_ld * sizeof(float));
        for (int g = 0; g < l->group; g++)
            *journal_decay(j, s->slot_write, s->journal, k_head * l->group + g, i) = *in_gates(in, g, s->certain + i);
    }
    for (int i = 0; i < s->n_snapshots; i++) store_window(j, s, k_head, s->snapshot_at[i], s->snapshot_slot[i]);
    store_window(j, s, k_head, s->certain, s->slot_write); /* last: the others read what it overwrites */
}

/* ---- columns -------------------------------------------------------------------------------------------------------------- */

static void fetch_deltas(const gdn_job *j, const spot *p) {
    const weft_span *s = p->s;
    if (s->replay) j->kn->fetch(journal_delta(j, s->slot_read, 1 - s->journal, p, 0), (size_t)s->replay * GDN_COLUMNS);
    j->kn->fetch(journal_delta(j, s->slot_write, s->journal, p, 0), (size_t)s->speculative * GDN_COLUMNS);
}

/* Row i of those to replay. */
static weft_gdn_update replayed(const gdn_job *j, const spot *p, int i) {
    int slot = p->s->slot_read, back = 1 - p->s->journal;
    return (weft_gdn_update){.a = *journal_decay(j, slot, back, value_head(j, p), i),
                             .k = journal_key(j, slot, back, p->k_head, i),
                             .d = journal_delta(j, slot, back, p, i)};
}
/* Rows [i, i + n) of a span, all certain or all speculative. */
static weft_gdn_tokens row_tokens(const gdn_job *j, const spot *p, const inputs *in, int i, int n, float *delta) {
    const gdn_layer *l = j->l;
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
static void settle(const gdn_job *j, pending *w, float *state, weft_gdn_ahead ahead) {
    if (w->n)
        j->kn->update(state, w->S, w->update, w->n, j->l->shape.k_dim, ahead);
    else if (w->S != state)
        memcpy(state, w->S, block_floats(j->l) * sizeof *state);
    w->S = state;
    w->n = 0;
}

/* Rows [begin, end) of a span, where end is behind the last row, or no later than the last certain one. next: a block's state that
 * the same worker needs next; or NULL. */
static void block_columns(const gdn_job *j, const spot *p, const inputs *in, int begin, int end, const float *next,
                          float *scratch) {
    const gdn_layer *l = j->l;
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
/* The same, and asks for the next block, if this worker has one. */
static void columns(const gdn_job *j, const spot *p, const inputs *in, int begin, int end, bool more, int worker) {
    const float *next = NULL;
    if (more) {
        spot after = next_spot(j, *p);
        fetch_deltas(j, &after);
        next = block_start(j, &after);
    }
    block_columns(j, p, in, begin, end, next, panel_of(j->d, worker));
}
static void fetch_block(const gdn_job *j, const spot *p) {
    j->kn->fetch(block_start(j, p), block_floats(j->l));
    fetch_deltas(j, p);
}

/* ---- jobs ----------------------------------------------------------------------------------------------------------------- */

/* A worker's scratch: a block's state, a delta, the inputs of some rows. */
size_t gdn_worker_floats(const weft_dev *d, const gdn_layer *l) {
    return block_floats(l) + GDN_COLUMNS + inputs_floats(l, ROWS + d->plan.max_draft);
}
/* One job does both stages where key heads are many or go evenly over the threads; and for few rows wherever they are enough. */
static bool one_job(const weft_dev *d, const gdn_layer *l, int spans, bool few) {
    int heads = spans * l->shape.n_k_heads;
    return heads >= (few ? 1 : 4) * d->threads || heads % d->threads == 0;
}
size_t gdn_shared_floats(const weft_dev *d, const gdn_layer *l) {
    return one_job(d, l, 1, false) ? 0 : (size_t)l->shape.n_k_heads * inputs_floats(l, d->plan.max_rows);
}
static inputs shared_inputs(const gdn_job *j, const spot *p) {
    float *memory = j->d->gdn_inputs + (size_t)p->k_head * inputs_floats(j->l, j->d->plan.max_rows);
    return inputs_in(j->l, memory, j->d->plan.max_rows, -p->s->row);
}
/* Where piece i of n even ones begins. */
static int piece_begin(int total, int i, int n) {
    return (int)((int64_t)total * i / n);
}

static void heads_piece(void *ctx, int piece, int worker) {
    const gdn_job *j = ctx;
    const gdn_layer *l = j->l;
    float *memory = panel_of(j->d, worker) + block_floats(l) + GDN_COLUMNS;
    const int heads = j->d->step->n_spans * l->shape.n_k_heads, blocks = l->group * l->blocks, room = ROWS + j->d->plan.max_draft;
    int left = piece_begin(heads, piece + 1, j->pieces) - piece_begin(heads, piece, j->pieces);
    spot p = spot_at(j, piece_begin(heads, piece, j->pieces) * blocks);
    fetch_inputs(j, p.s, p.k_head);
    fetch_block(j, &p);
    while (left--) {
        const spot head = p;
        const int rows = head.s->certain + head.s->speculative;
        int begin = 0, end;
        do {
            end = head.s->certain - begin > ROWS ? begin + ROWS : rows;
            inputs in = inputs_in(l, memory, room, begin);
            head_inputs(j, head.s, head.k_head, &in, begin, end);
            const bool more = end == rows && left > 0;
            if (more) {
                spot after = next_head(j, head);
                fetch_inputs(j, after.s, after.k_head);
            }
            p = head;
            for (int b = 1; b <= blocks; b++, p = next_spot(j, p))
                columns(j, &p, &in, begin, end, b < blocks ? begin == 0 : more, worker);
            begin = end;
        } while (end < rows);
    }
}

static void inputs_piece(void *ctx, int head, int worker) {
    (void)worker;
    const gdn_job *j = ctx;
    spot p = spot_at(j, head * j->l->group * j->l->blocks);
    inputs in = shared_inputs(j, &p);
    head_inputs(j, p.s, p.k_head, &in, 0, p.s->certain + p.s->speculative);
}
static void columns_piece(void *ctx, int piece, int worker) {
    const gdn_job *j = ctx;
    const int blocks = j->d->step->n_spans * j->l->shape.n_v_heads * j->l->blocks;
    int left = piece_begin(blocks, piece + 1, j->pieces) - piece_begin(blocks, piece, j->pieces);
    spot p = spot_at(j, piece_begin(blocks, piece, j->pieces));
    fetch_block(j, &p);
    for (; left--; p = next_spot(j, p)) {
        inputs in = shared_inputs(j, &p);
        columns(j, &p, &in, 0, p.s->certain + p.s->speculative, left, worker);
    }
}

void weft_gdn_run(weft_dev *d, weft_buf *y, const weft_buf *qkv, const weft_buf *alpha, const weft_buf *beta, const weft_gdn *g) {
    if (d->status != WEFT_OK) return;
    gdn_layer *l = &d->gdn.v[g->layer];
    if (l->conv_of != g->conv) pack_conv(l, g->conv);
    gdn_job j = {d, l, d->isa->gdn, g, y, qkv, alpha, beta, 0};
    int spans = d->step->n_spans, heads = spans * l->shape.n_k_heads, blocks = spans * l->shape.n_v_heads * l->blocks;
    d->traffic += (uint64_t)blocks * 2 * block_floats(l) * sizeof(float); /* read and written once for all rows of a span */
    bool few = d->step->n_rows <= 16 * spans;
    int most = few ? 2 * d->threads : blocks; /* large pieces, so that most of their memory is asked for in time */
    if (one_job(d, l, spans, few)) {
        j.pieces = heads < most ? heads : most;
        weft_pool_run(d->pool, j.pieces, heads_piece, &j);
    } else {
        weft_pool_run(d->pool, heads, inputs_piece, &j);
        j.pieces = blocks < most ? blocks : most;
        weft_pool_run(d->pool, j.pieces, columns_piece, &j);
    }
}

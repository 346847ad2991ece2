/* recurrent.c: the walk of recurrent layers over spans, heads and blocks; convolution, windows, journal. See recurrent.h. */
#include <string.h>

#include "ops/cpu/recurrent.h"

/* ---- spots ----------------------------------------------------------------------------------------------------------------- */

static spot spot_at(const recurrent_job *j, int block) { /* counted through all heads and spans */
    const recurrent_layer *l = j->l;
    int head = block / l->blocks, k_head = head / l->group;
    return (spot){j->d->step->spans + k_head / l->shape.n_k_heads, k_head % l->shape.n_k_heads, head % l->group, block % l->blocks};
}
static spot next_spot(const recurrent_job *j, spot p) {
    const recurrent_layer *l = j->l;
    if (++p.block < l->blocks) return p;
    p.block = 0;
    if (++p.of_group < l->group) return p;
    p.of_group = 0;
    if (++p.k_head < l->shape.n_k_heads) return p;
    p.k_head = 0;
    p.s++;
    return p;
}
static spot next_head(const recurrent_job *j, spot p) {
    p.of_group = j->l->group - 1;
    p.block = j->l->blocks - 1;
    return next_spot(j, p);
}

/* ---- journal and window ----------------------------------------------------------------------------------------------------- */

static float *journal_input(const recurrent_job *j, int slot, int half, int k_head, int i) {
    return j->l->journal_in + journal_at(j, slot, half, j->l->shape.n_k_heads, k_head, i) * (size_t)j->l->width;
}
static float *window_row(const recurrent_layer *l, int slot, int k_head, int pos) { /* pos may be negative: before the start */
    int n = l->shape.conv_kernel - 1, at = (pos % n + n) % n;
    return l->window + (((size_t)slot * (size_t)l->shape.n_k_heads + (size_t)k_head) * (size_t)n + (size_t)at) * (size_t)l->width;
}

/* ---- inputs --------------------------------------------------------------------------------------------------------------- */

/* A key head's channels are three runs: its q, its k, the values of its group. They lie apart in rows of activations (`at`) and
 * side by side in memory of our own (`place`). */
typedef struct run {
    int at, place, n;
} run;
enum { RUNS = 3 };
static run head_run(const recurrent_layer *l, int k_head, int which) {
    const weft_gdn_shape *s = &l->shape;
    const int keys = k_head * s->k_dim, values = l->group * s->v_dim;
    if (which < 2) return (run){(which ? l->key_at : l->query_at) + keys, which * s->k_dim, s->k_dim};
    return (run){l->value_at + k_head * values, 2 * s->k_dim, values};
}
static float *head_conv(const recurrent_layer *l, int k_head) {
    return l->conv + (size_t)k_head * (size_t)(l->conv_rows * l->width);
}
static void pack_conv(recurrent_layer *l, const weft_coef *conv, const weft_coef *bias) {
    for (int h = 0; h < l->shape.n_k_heads; h++)
        for (int i = 0; i < RUNS; i++) {
            run r = head_run(l, h, i);
            for (int t = 0; t < l->conv_rows; t++) {
                float *dst = head_conv(l, h) + t * l->width + r.place;
                if (t < l->shape.conv_kernel)
                    memcpy(dst, conv->v + t * l->channels + r.at, (size_t)r.n * sizeof *dst);
                else if (bias)
                    memcpy(dst, bias->v + r.at, (size_t)r.n * sizeof *dst);
                else
                    memset(dst, 0, (size_t)r.n * sizeof *dst);
            }
        }
    l->conv_of = conv;
}

/* Where a head's raw convolution input at row i of span s is; i < 0 reaches back into the replayed rows, then into the window. */
static void raw_row(const recurrent_job *j, const weft_span *s, int k_head, int i, const float *raw[RUNS]) {
    const float *row = i >= 0               ? buf_row(j->raw, s->row + i)
                       : i + s->replay >= 0 ? journal_input(j, s->slot_read, 1 - s->journal, k_head, i + s->replay)
                       : s->slot_read < 0   ? j->d->zeros
                                            : window_row(j->l, s->slot_read, k_head, s->pos + i);
    for (int w = 0; w < RUNS; w++) {
        run r = head_run(j->l, k_head, w);
        raw[w] = row + (i >= 0 ? r.at : r.place);
    }
}
static void copy_raw(const recurrent_job *j, const weft_span *s, int k_head, int i, float *dst) {
    const float *raw[RUNS];
    raw_row(j, s, k_head, i, raw);
    for (int w = 0; w < RUNS; w++) {
        run r = head_run(j->l, k_head, w);
        if (raw[w] != dst + r.place) memcpy(dst + r.place, raw[w], (size_t)r.n * sizeof *dst);
    }
}
/* The window after `rows` rows. What stays of the old one is in its place already, if the slot is the same. */
static void store_window(const recurrent_job *j, const weft_span *s, int k_head, int rows, int slot) {
    for (int i = rows - (j->l->shape.conv_kernel - 1); i < rows; i++)
        copy_raw(j, s, k_head, i, window_row(j->l, slot, k_head, s->pos + i));
}

/* What a head's inputs touch besides this step's rows. */
static void fetch_inputs(const recurrent_job *j, const weft_span *s, int k_head) {
    const recurrent_layer *l = j->l;
    size_t width = (size_t)l->width, key = (size_t)l->key_ld, taps = (size_t)l->shape.conv_kernel;
    size_t drafts = (size_t)s->speculative, replay = (size_t)s->replay, tail = replay < taps ? replay : taps - 1;
    int back = 1 - s->journal;
    j->kn->fetch(head_conv(l, k_head), (size_t)l->conv_rows * width);
    if (s->slot_read >= 0 && taps > 1) j->kn->fetch(window_row(l, s->slot_read, k_head, 0), (taps - 1) * width);
    if (replay) {
        j->kn->fetch(journal_input(j, s->slot_read, back, k_head, (int)(replay - tail)), tail * width);
        j->kn->fetch(journal_key(j, s->slot_read, back, k_head, 0), replay * key);
    }
    j->kn->fetch(journal_input(j, s->slot_write, s->journal, k_head, 0), drafts * width);
    j->kn->fetch(journal_key(j, s->slot_write, s->journal, k_head, 0), drafts * key);
}

/* Rows [begin, end) of a span, and with the last ones what the span leaves behind. */
static void head_inputs(const recurrent_job *j, const weft_span *s, int k_head, const inputs *in, int begin, int end) {
    const recurrent_layer *l = j->l;
    const weft_gdn_shape *sh = &l->shape;
    const int taps = sh->conv_kernel, value_ld = l->blocks * GDN_COLUMNS;
    const size_t width = (size_t)l->width, key_ld = 2 * (size_t)l->key_ld;
    const float *conv = head_conv(l, k_head), *bias = l->conv_rows > taps ? conv + taps * l->width : NULL;
    for (int i = begin, n; i < end; i += n) {
        n = end - i < ROWS ? end - i : ROWS;
        const float *raw[RUNS][ROWS + MAX_TAPS];
        for (int t = 0; t < n + taps - 1; t++) {
            const float *row[RUNS];
            raw_row(j, s, k_head, i + t - (taps - 1), row);
            for (int w = 0; w < RUNS; w++) raw[w][t] = row[w];
        }
        for (int w = 0, at = 0; w < 2; w++, at += sh->k_dim)
            j->kn->conv(in_keys(l, in, i) + w * l->key_ld, key_ld, raw[w], 0, n, taps, conv + at, width, bias ? bias + at : NULL,
                        sh->k_dim, l->key_ld);
        for (int g = 0, at = 2 * sh->k_dim; g < l->group; g++, at += sh->v_dim)
            j->kn->conv(in_values(l, in, g, i), (size_t)value_ld, raw[2], (size_t)(g * sh->v_dim), n, taps, conv + at, width,
                        bias ? bias + at : NULL, sh->v_dim, value_ld);
        j->kind->finish(j, s, k_head, in, i, n);
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

static void fetch_deltas(const recurrent_job *j, const spot *p) {
    const weft_span *s = p->s;
    if (s->replay) j->kn->fetch(journal_delta(j, s->slot_read, 1 - s->journal, p, 0), (size_t)s->replay * GDN_COLUMNS);
    j->kn->fetch(journal_delta(j, s->slot_write, s->journal, p, 0), (size_t)s->speculative * GDN_COLUMNS);
}
/* The same, and asks for the next block, if this worker has one. */
static void columns(const recurrent_job *j, const spot *p, const inputs *in, int begin, int end, bool more, int worker) {
    const float *next = NULL;
    if (more) {
        spot after = next_spot(j, *p);
        fetch_deltas(j, &after);
        next = block_start(j, &after);
    }
    j->kind->columns(j, p, in, begin, end, next, panel_of(j->d, worker));
}
static void fetch_block(const recurrent_job *j, const spot *p) {
    j->kn->fetch(block_start(j, p), block_floats(j->l));
    fetch_deltas(j, p);
}

/* ---- jobs ----------------------------------------------------------------------------------------------------------------- */

/* A worker's scratch: a block's state, a delta, the inputs of some rows. */
size_t recurrent_worker_floats(const weft_dev *d, const recurrent_layer *l) {
    return block_floats(l) + GDN_COLUMNS + inputs_floats(l, ROWS + d->plan.max_draft);
}
/* One job does both stages where key heads are many or go evenly over the threads; and for few rows wherever they are enough. */
static bool one_job(const weft_dev *d, const recurrent_layer *l, int spans, bool few) {
    int heads = spans * l->shape.n_k_heads;
    return heads >= (few ? 1 : 4) * d->threads || heads % d->threads == 0;
}
size_t recurrent_shared_floats(const weft_dev *d, const recurrent_layer *l) {
    return one_job(d, l, 1, false) ? 0 : (size_t)l->shape.n_k_heads * inputs_floats(l, d->plan.max_rows);
}
static inputs shared_inputs(const recurrent_job *j, const spot *p) {
    float *memory = j->d->recurrent_inputs + (size_t)p->k_head * inputs_floats(j->l, j->d->plan.max_rows);
    return inputs_in(j->l, memory, j->d->plan.max_rows, -p->s->row);
}
/* Where piece i of n even ones begins. */
static int piece_begin(int total, int i, int n) {
    return (int)((int64_t)total * i / n);
}

static void heads_piece(void *ctx, int piece, int worker) {
    const recurrent_job *j = ctx;
    const recurrent_layer *l = j->l;
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
    const recurrent_job *j = ctx;
    spot p = spot_at(j, head * j->l->group * j->l->blocks);
    inputs in = shared_inputs(j, &p);
    head_inputs(j, p.s, p.k_head, &in, 0, p.s->certain + p.s->speculative);
}
static void columns_piece(void *ctx, int piece, int worker) {
    const recurrent_job *j = ctx;
    const int blocks = j->d->step->n_spans * j->l->shape.n_v_heads * j->l->blocks;
    int left = piece_begin(blocks, piece + 1, j->pieces) - piece_begin(blocks, piece, j->pieces);
    spot p = spot_at(j, piece_begin(blocks, piece, j->pieces));
    fetch_block(j, &p);
    for (; left--; p = next_spot(j, p)) {
        inputs in = shared_inputs(j, &p);
        columns(j, &p, &in, 0, p.s->certain + p.s->speculative, left, worker);
    }
}

/* ---- layers ----------------------------------------------------------------------------------------------------------------- */

int recurrent_register(weft_dev *d, recurrent_layer l) {
    const weft_gdn_shape *s = &l.shape;
    l.group = s->n_v_heads / s->n_k_heads;
    l.key_ld = ROUND16(s->k_dim);
    l.blocks = (s->v_dim + GDN_COLUMNS - 1) / GDN_COLUMNS;
    l.width = 2 * s->k_dim + l.group * s->v_dim;
    l.channels = s->n_k_heads * l.width;
    return weft_vec_push(&d->recurrent, l) ? (int)d->recurrent.n - 1 : -1;
}

void recurrent_run(weft_dev *d, int layer, recurrent_job j, const weft_coef *conv, const weft_coef *bias) {
    if (d->status != WEFT_OK) return;
    recurrent_layer *l = &d->recurrent.v[layer];
    if (l->conv_of != conv) pack_conv(l, conv, bias);
    j.d = d;
    j.l = l;
    j.kn = d->isa->gdn;
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

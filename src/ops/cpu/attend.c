/* attend.c: ragged causal attention over paged keys and values.
 *
 * Keys are taken in chunks of ATTEND_CHUNK at absolute positions. A chunk gives (maximum, sum, weighted values) of its visible
 * keys; chunks merge in ascending order. A row's result therefore depends on its position and its keys alone, whatever rows are
 * computed beside it, and whoever computes which chunk.
 *
 * A block is some rows of one span; with the heads of one key head they are queries that read the same keys. A piece of work is a
 * block by a key head: all its chunks one after another, each used by all queries while it is in the cache. Where that gives too
 * few pieces, as one row far into its context does, a block is split: its pieces are runs of chunks, whose results are kept and
 * merged afterwards. They share room for so many results; what does not fit waits for the next wave.
 *
 * A row sees the keys [low_key, end_key) of its position. Chunks and pages without a visible key are neither read nor counted as
 * work: with a window they may be gone. Inside a page a key that a row does not see is masked before the softmax and left out of
 * the sum of values, as stale memory may hold NaN. */
#include <string.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/kv.h"

typedef struct attend_job {
    weft_dev *d;
    const kv_layer *l;
    const weft_attention *a;
    weft_buf *y;
    const weft_buf *q, *k, *v;
    int group, heads; /* query heads of a key head; of them at a time */
    int blocks;       /* in d->attend_blocks */
    int first, end;   /* blocks of this wave */
    int pieces, wave;
} attend_job;

static int at_most(int a, int b) {
    return a < b ? a : b;
}
static int at_least(int a, int b) {
    return a > b ? a : b;
}
static int parts_of(int n, int each) {
    return (n + each - 1) / each;
}
static int low_key(const weft_attention *a, int pos) {
    return at_least(a->window ? pos + 1 - a->window : 0, a->first_key);
}
static int end_key(const weft_attention *a, int pos) {
    return pos + 1 - a->past;
}
static const int *table_of(const attend_job *j, const weft_span *s) {
    return s->pages[j->l->kind];
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

#define WRITE_ROWS 16

static void write_row(const attend_job *j, int row, int head) {
    const kv_layer *l = j->l;
    const weft_span *s = &j->d->step->spans[j->d->row_span[row]];
    int pos = row_pos(j->d, row), at = pos % WEFT_PAGE_ROWS;
    if (pos < s->write_from || pos < j->a->first_key) return;
    int page = table_of(j, s)[pos / WEFT_PAGE_ROWS];
    uint8_t *k = k_page(l, page, head), *v = v_page(l, page, head);
    const float *kx = buf_row(j->k, row) + head * l->head_dim, *vx = buf_row(j->v, row) + head * l->head_dim;
    if (j->d->kv_type == KV_F32) {
        memcpy(k + (size_t)(at * l->ld) * sizeof *kx, kx, (size_t)l->head_dim * sizeof *kx);
        memcpy(v + (size_t)(at * l->ld) * sizeof *vx, vx, (size_t)l->head_dim * sizeof *vx);
    } else {
        const weft_kv_kernels *kn = &j->d->isa->attend->kv[j->d->kv_type];
        kn->store_k(k, at, kx, l->head_dim);
        kn->store_v(v, at, vx, l->head_dim);
    }
}
static void write_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const attend_job *j = ctx;
    int head = piece % j->l->n_kv_heads, row = piece / j->l->n_kv_heads * WRITE_ROWS;
    for (int end = at_most(row + WRITE_ROWS, j->d->step->n_rows); row < end; row++) write_row(j, row, head);
}

/* ---- the queries of a piece ---------------------------------------------------------------------------------------------- */

/* Rows of a block by heads of a key head; heads fastest. Kernels take them in groups of ATTEND_GROUP. */
typedef struct queries {
    const weft_span *span;
    int kv_head, head, heads, row, n; /* n: rows times heads */
    int pos;                          /* of the first row */
    float *q;                         /* by groups: tiles [ROUND16(dim)][ATTEND_GROUP], float32 keys [ATTEND_GROUP][ld] */
    float *p;                         /* [n][ATTEND_P]: scores, then probabilities */
} queries;

/* Keys of a chunk, [from, to), counted from its start. */
typedef struct seen {
    int from, to;
} seen;
static seen seen_of(const attend_job *j, const queries *u, int i, int start) {
    int pos = u->pos + i / u->heads;
    return (seen){at_least(low_key(j->a, pos) - start, 0), at_most(end_key(j->a, pos) - start, ATTEND_CHUNK)};
}
static const float *query_row(const attend_job *j, const queries *u, int i) {
    return buf_row(j->q, u->row + i / u->heads) + (size_t)(u->head + i % u->heads) * (size_t)j->l->head_dim;
}
static float *output_row(const attend_job *j, const queries *u, int i) {
    return buf_row(j->y, u->row + i / u->heads) + (size_t)(u->head + i % u->heads) * (size_t)j->l->head_dim;
}

static void gather_queries(const attend_job *j, const queries *u) {
    int ld = j->l->ld, dim = j->l->head_dim, groups = parts_of(u->n, ATTEND_GROUP);
    bool tiles = j->d->kv_type != KV_F32;
    memset(u->q, 0, (size_t)(groups * ATTEND_GROUP * ld) * sizeof *u->q);
    for (int i = 0; i < u->n; i++) {
        const float *x = query_row(j, u, i);
        float *to = u->q + (i - i % ATTEND_GROUP) * ld;
        if (tiles)
            for (int c = 0; c < dim; c++) to[c * ATTEND_GROUP + i % ATTEND_GROUP] = x[c];
        else
            memcpy(to + i % ATTEND_GROUP * ld, x, (size_t)dim * sizeof *x);
    }
}

/* ---- one chunk ----------------------------------------------------------------------------------------------------------- */

static const uint8_t *page_k(const attend_job *j, const queries *u, int page) {
    return k_page(j->l, table_of(j, u->span)[page], u->kv_head);
}
static const uint8_t *page_v(const attend_job *j, const queries *u, int page) {
    return v_page(j->l, table_of(j, u->span)[page], u->kv_head);
}

/* Scores of the n queries of a group by the first `keys` keys of a page; p: the first query's place for them. */
static void page_scores(const attend_job *j, const queries *u, int first, int n, float *p, const uint8_t *k, int keys,
                        const uint8_t *next) {
    const weft_dev *d = j->d;
    int ld = j->l->ld;
    const float *q = u->q + (size_t)(first * ld), *in[ATTEND_GROUP];
    if (d->kv_type == KV_F32) {
        for (int i = 0; i < n; i++) in[i] = q + i * ld;
        d->kernels->dot(p, ATTEND_P, in, n, (const float *)(const void *)k, (size_t)ld, keys, ld);
    } else
        d->isa->attend->kv[d->kv_type].scores(p, ATTEND_P, q, n, k, keys, j->l->head_dim, next);
}

/* Adds keys [from, to) of a page to the outputs of n queries; p: the first query's probabilities of the page. */
static void page_values(const attend_job *j, float *o, const float *p, int n, const uint8_t *v, int from, int to,
                        const uint8_t *next) {
    const weft_dev *d = j->d;
    size_t ld = (size_t)j->l->ld;
    if (from >= to) return;
    if (d->kv_type == KV_F32)
        d->kernels->values(o, ld, p + from, ATTEND_P, n, (const float *)(const void *)v + (size_t)from * ld, to - from, (int)ld);
    else
        d->isa->attend->kv[d->kv_type].values(o, ld, p, ATTEND_P, n, v, from, to, j->l->head_dim, next);
}

/* The page at `at` for n queries: first what only some see below, then what all see, then what only some see above, so that each
 * query's keys ascend. */
static void group_values(const attend_job *j, float *o, const float *p, const seen *see, int n, const uint8_t *v, int at,
                         const uint8_t *next) {
    int ld = j->l->ld, from = at_least(see[n - 1].from - at, 0), to = at_most(see[0].to - at, WEFT_PAGE_ROWS);
    int above = at_least(from, to), most = at_most(see[n - 1].to - at, WEFT_PAGE_ROWS);
    if (at_least(see[0].from - at, 0) < from)
        for (int i = 0; i < n; i++)
            page_values(j, o + i * ld, p + i * ATTEND_P, 1, v, at_least(see[i].from - at, 0),
                        at_most(at_most(see[i].to - at, WEFT_PAGE_ROWS), from), v);
    page_values(j, o, p, n, v, from, to, next);
    if (above < most)
        for (int i = 0; i < n; i++)
            page_values(j, o + i * ld, p + i * ATTEND_P, 1, v, at_least(above, see[i].from - at),
                        at_most(see[i].to - at, WEFT_PAGE_ROWS), v);
}

/* (m, l, o) of the chunk at `start` for all queries; l = 0 where none of its keys is seen. All use a page while it is in the first
 * cache; the first ones to read it fetch the next. Queries that see some of its keys stand side by side, as both ends of what a
 * row sees rise with the row. Pages outside of what they see are not touched. */
static void chunk(const attend_job *j, const queries *u, int start, float *m, float *l, float *o) {
    seen see[ATTEND_QUERIES];
    int ld = j->l->ld, first = u->n, end = 0;
    for (int i = 0; i < u->n; i++) {
        see[i] = seen_of(j, u, i, start);
        l[i] = 0;
        if (see[i].from >= see[i].to) continue;
        first = at_most(first, i);
        end = i + 1;
    }
    if (first >= end) return;
    int page = start / WEFT_PAGE_ROWS, bottom = see[first].from - see[first].from % WEFT_PAGE_ROWS, top = see[end - 1].to;
    bool last = end_key(j->a, u->pos + (u->n - 1) / u->heads) <= start + ATTEND_CHUNK;
    for (int at = bottom; at < top; at += WEFT_PAGE_ROWS) {
        const uint8_t *k = page_k(j, u, page + at / WEFT_PAGE_ROWS), *next = page_v(j, u, page + bottom / WEFT_PAGE_ROWS);
        if (at + WEFT_PAGE_ROWS < top) next = page_k(j, u, page + at / WEFT_PAGE_ROWS + 1);
        for (int g = first - first % ATTEND_GROUP; g < end; g += ATTEND_GROUP) {
            int to = see[at_most(g + ATTEND_GROUP, end) - 1].to;
            if (see[g].from >= at + WEFT_PAGE_ROWS || to <= at) continue;
            page_scores(j, u, g, at_most(u->n - g, ATTEND_GROUP), u->p + g * ATTEND_P + at, k, at_most(to - at, WEFT_PAGE_ROWS),
                        next);
            next = k;
        }
    }
    for (int i = first; i < end; i++) { /* from whole vectors: what is masked in the first one adds zeros, before it is nothing */
        int base = see[i].from - see[i].from % LANES;
        float *p = u->p + i * ATTEND_P + base;
        for (int key = base; key < see[i].from; key++) p[key - base] = -__builtin_inff();
        m[i] = j->d->kernels->chunk_exp(p, see[i].to - base, j->a->scale, &l[i]);
    }
    memset(o + first * ld, 0, (size_t)((end - first) * ld) * sizeof *o);
    for (int at = bottom; at < top; at += WEFT_PAGE_ROWS) {
        const uint8_t *v = page_v(j, u, page + at / WEFT_PAGE_ROWS), *next = v;
        if (at + WEFT_PAGE_ROWS < top)
            next = page_v(j, u, page + at / WEFT_PAGE_ROWS + 1);
        else if (!last)
            next = page_k(j, u, page + ATTEND_CHUNK / WEFT_PAGE_ROWS);
        for (int g = first, n; g < end; g += n) {
            n = at_most(end - g, ATTEND_GROUP);
            group_values(j, o + g * ld, u->p + g * ATTEND_P + at, see + g, n, v, at, g == first ? next : v);
        }
    }
}

/* ---- pieces -------------------------------------------------------------------------------------------------------------- */

static float *result_o(const attend_job *j, size_t result) {
    return j->d->attend_o + result * (size_t)j->l->ld;
}
/* Results of a split block: by chunk, then by query; those of one head after another. */
static size_t result_at(const attend_job *j, const attend_block *b, int chunk, int kv_head, int in_group, int i) {
    return (size_t)b->result + (size_t)(chunk - b->from) * (size_t)(b->rows * j->a->n_heads) +
           (size_t)((kv_head * j->group + in_group) * b->rows + i);
}

static void write_output(const attend_job *j, float *y, const float *o, float l) {
    float inverse = l == 0 ? 0 : 1.0f / l; /* no key seen: zero */
    for (int c = 0; c < j->l->head_dim; c++) y[c] = o[c] * inverse;
}

/* All chunks of a block that is not split. */
static void run_whole(const attend_job *j, const queries *u, const attend_block *b, float *o, float *chunk_o) {
    int ld = j->l->ld;
    float m[ATTEND_QUERIES] = {0}, l[ATTEND_QUERIES] = {0}, cm[ATTEND_QUERIES] = {0}, cl[ATTEND_QUERIES] = {0};
    memset(o, 0, (size_t)(u->n * ld) * sizeof *o);
    for (int c = 0; c < b->chunks; c++) {
        chunk(j, u, (b->start + c) * ATTEND_CHUNK, cm, cl, chunk_o);
        for (int i = 0; i < u->n; i++)
            if (cl[i] != 0) j->d->kernels->merge(&m[i], &l[i], o + i * ld, cm[i], cl[i], chunk_o + i * ld, ld);
    }
    for (int i = 0; i < u->n; i++) write_output(j, output_row(j, u, i), o + i * ld, l[i]);
}

/* A run of chunks of a split block. */
static void run_chunks(const attend_job *j, const queries *u, const attend_block *b, int in_group, int from, int to) {
    float m[ATTEND_QUERIES] = {0}, l[ATTEND_QUERIES] = {0};
    for (int c = from; c < to; c++) {
        size_t at = result_at(j, b, c, u->kv_head, in_group, 0);
        chunk(j, u, (b->start + c) * ATTEND_CHUNK, m, l, result_o(j, at));
        for (int i = 0; i < u->n; i++)
            j->d->attend_ml[2 * (at + (size_t)i)] = m[i], j->d->attend_ml[2 * (at + (size_t)i) + 1] = l[i];
    }
}

static bool is_split(const attend_block *b) {
    return b->run < b->chunks;
}

static void attend_piece(void *ctx, int piece, int worker) {
    const attend_job *j = ctx;
    const weft_dev *d = j->d;
    int kv_head = piece % j->a->n_kv_heads, low = j->first, high = j->end - 1;
    piece /= j->a->n_kv_heads;
    while (low < high) { /* the last block that begins at or before the piece */
        int middle = (low + high + 1) / 2;
        if (d->attend_blocks[middle].piece <= piece)
            low = middle;
        else
            high = middle - 1;
    }
    const attend_block *b = &d->attend_blocks[low];
    int from = b->from + (piece - b->piece) * b->run, to = at_most(from + b->run, b->to);
    float *scratch = panel_of(d, worker);
    size_t all = ATTEND_QUERIES * (size_t)j->l->ld;
    queries u = {.span = &d->step->spans[d->row_span[b->row]], .kv_head = kv_head, .row = b->row, .pos = row_pos(d, b->row)};
    u.q = scratch;
    u.p = scratch + 3 * all;
    for (int in_group = 0; in_group < j->group; in_group += j->heads) {
        u.heads = at_most(j->heads, j->group - in_group);
        u.head = kv_head * j->group + in_group;
        u.n = b->rows * u.heads;
        gather_queries(j, &u);
        if (is_split(b))
            run_chunks(j, &u, b, in_group, from, to);
        else
            run_whole(j, &u, b, scratch + all, scratch + 2 * all);
    }
}

/* Maximum and sum of a query of a block that goes on in the next wave. Waves take two halves in turn, as a block may end in the
 * wave in which the next one is cut off. */
static float *kept(const attend_job *j, int wave, int row, int head) {
    size_t half = (size_t)(wave & 1) * ATTEND_RESULTS * (size_t)j->d->threads;
    return j->d->attend_kept + 2 * (half + (size_t)(row * j->a->n_heads + head));
}

/* Merges what a wave gave for one head of a split block. The weighted values of a block that goes on wait in the output row. */
static void merge_piece(void *ctx, int piece, int worker) {
    const attend_job *j = ctx;
    const weft_dev *d = j->d;
    const attend_block *b = &d->attend_blocks[j->first + piece / j->a->n_heads];
    if (!is_split(b)) return;
    int head = piece % j->a->n_heads, in_group = head % j->group / j->heads * j->heads;
    int heads = at_most(j->heads, j->group - in_group), ld = j->l->ld;
    size_t bytes = (size_t)j->l->head_dim * sizeof(float);
    float *o = panel_of(d, worker);
    for (int r = 0; r < b->rows; r++) {
        float *y = buf_row(j->y, b->row + r) + head * j->l->head_dim, m = 0, l = 0;
        memset(o, 0, (size_t)ld * sizeof *o);
        if (b->from) {
            const float *ml = kept(j, j->wave - 1, r, head);
            m = ml[0];
            l = ml[1];
            memcpy(o, y, bytes);
        }
        for (int c = b->from; c < b->to; c++) {
            size_t at = result_at(j, b, c, head / j->group, in_group, r * heads + head % j->group - in_group);
            const float *ml = d->attend_ml + 2 * at;
            if (ml[1] != 0) d->kernels->merge(&m, &l, o, ml[0], ml[1], result_o(j, at), ld);
        }
        if (b->to < b->chunks) {
            float *ml = kept(j, j->wave, r, head);
            ml[0] = m;
            ml[1] = l;
            memcpy(y, o, bytes);
        } else
            write_output(j, y, o, l);
    }
}

/* ---- cutting the work ---------------------------------------------------------------------------------------------------- */

/* Blocks of up to so many rows. Returns how many pieces there are if all are cut by chunks, too. */
static int64_t lay_blocks(attend_job *j, int rows) {
    const weft_dev *d = j->d;
    int64_t units = 0;
    j->blocks = 0;
    for (int i = 0; i < d->step->n_spans; i++) {
        const weft_span *s = &d->step->spans[i];
        int end = s->row + s->certain + s->speculative;
        for (int row = s->row; row < end; row += rows) {
            attend_block *b = &d->attend_blocks[j->blocks++];
            *b = (attend_block){.row = row, .rows = at_most(rows, end - row)};
            int pos = row_pos(d, row), low = low_key(j->a, pos), top = at_least(end_key(j->a, pos + b->rows - 1), low + 1);
            b->start = low / ATTEND_CHUNK;
            b->run = b->chunks = (top - 1) / ATTEND_CHUNK + 1 - b->start; /* one that gives nothing where nothing is seen */
            units += (int64_t)b->chunks * j->a->n_kv_heads;
        }
    }
    return units;
}

/* Every thread should find about PIECES pieces. Large blocks read keys least often; smaller ones only where even chunks would be
 * too few. A block that is more than its share is split. */
#define PIECES 4
static void cut(attend_job *j) {
    const weft_dev *d = j->d;
    int rows = ATTEND_QUERIES / j->heads, pieces = PIECES * d->threads;
    while (lay_blocks(j, rows) < pieces && d->threads > 1 && rows > 1 && rows * j->heads > ATTEND_GROUP) rows = (rows + 1) / 2;
    if (d->threads == 1) return;
    int64_t total = 0;
    for (int i = 0; i < j->blocks; i++) {
        const attend_block *b = &d->attend_blocks[i];
        total += (int64_t)b->chunks * (ATTEND_GROUP + b->rows * j->group); /* reading keys costs like some queries */
    }
    for (int i = 0; i < j->blocks; i++) {
        attend_block *b = &d->attend_blocks[i];
        int64_t run = total * j->a->n_kv_heads / pieces / (ATTEND_GROUP + b->rows * j->group);
        bool fits = b->rows * j->a->n_heads <= ATTEND_RESULTS * d->threads;
        if (fits && run < b->chunks) b->run = run < 1 ? 1 : (int)run;
    }
}

/* The next blocks whose results fit; the last one perhaps in part. */
static bool next_wave(attend_job *j) {
    attend_block *blocks = j->d->attend_blocks;
    int all = ATTEND_RESULTS * j->d->threads, room = all, at = j->end;
    if (at > 0 && blocks[at - 1].to < blocks[at - 1].chunks) at--;
    j->first = at;
    j->pieces = 0;
    for (bool whole = true; whole && at < j->blocks; at++) {
        attend_block *b = &blocks[at];
        int chunks = b->chunks - b->to, each = b->rows * j->a->n_heads;
        if (is_split(b)) {
            if (room < each) break;
            chunks = at_most(chunks, room / each);
            b->result = all - room;
            room -= chunks * each;
        }
        b->from = b->to;
        b->to += chunks;
        b->piece = j->pieces;
        j->pieces += parts_of(chunks, b->run);
        whole = b->to == b->chunks;
    }
    j->end = at;
    j->wave++;
    return j->pieces > 0;
}

/* Keys that a span's rows need: those that they see and those that they write. */
static seen needed(const attend_job *j, const weft_span *s) {
    int rows = s->certain + s->speculative;
    seen n = {s->pos, s->pos + rows};
    if (!j->k && rows) n.to = end_key(j->a, n.to - 1);
    if (j->q && rows) n.from = at_most(low_key(j->a, s->pos), n.to);
    return n;
}

/* Sees to it that a window's pages are there; of the others weft_begin() has. */
static void check_pages(const attend_job *j, int span, seen n) {
    weft_dev *d = j->d;
    if (j->l->kind != WEFT_PAGES_WINDOW) return;
    for (int page = n.from / WEFT_PAGE_ROWS; page * WEFT_PAGE_ROWS < n.to; page++)
        if (table_of(j, &d->step->spans[span])[page] < 0)
            d->status = weft_fail(&d->error, WEFT_EINVAL, "span %d of the step needs page %d of its window, which was released",
                                  span, page);
}

void weft_attend(weft_dev *d, weft_buf *y, const weft_buf *q, const weft_buf *k, const weft_buf *v, const weft_attention *a) {
    if (d->status != WEFT_OK) return;
    attend_job j = {.d = d, .l = &d->kv.v[a->layer], .a = a, .y = y, .q = q, .k = k, .v = v};
    for (int i = 0; i < d->step->n_spans; i++) {
        seen n = needed(&j, &d->step->spans[i]);
        check_pages(&j, i, n);
        d->traffic += (uint64_t)(n.to - n.from) * (uint64_t)j.l->n_kv_heads * (j.l->k_bytes + j.l->v_bytes) / WEFT_PAGE_ROWS;
    }
    if (d->status != WEFT_OK) return;
    int writes = k ? parts_of(d->step->n_rows, WRITE_ROWS) * a->n_kv_heads : 0;
    weft_pool_run(d->step->n_rows > WRITE_ROWS ? d->pool : NULL, writes, write_piece, &j); /* few: not worth waking anybody */
    if (!q) return;
    j.group = a->n_heads / a->n_kv_heads;
    j.heads = at_most(j.group, ATTEND_QUERIES);
    cut(&j);
    while (next_wave(&j)) {
        bool split = false;
        for (int i = j.first; i < j.end && !split; i++) split = is_split(&d->attend_blocks[i]);
        weft_pool_run(d->pool, j.pieces * a->n_kv_heads, attend_piece, &j);
        if (split) weft_pool_run(d->pool, (j.end - j.first) * a->n_heads, merge_piece, &j);
    }
}

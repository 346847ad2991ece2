/* dev.c: the CPU device: what models register, the plan, a step's frame, host access.
 *
 * weft_dev_plan() makes three blocks: the workspace (buffers by phase, then operators' scratch), the KV pages, the slots. Nothing
 * is allocated afterwards. A dry device counts the same bytes and allocates none of them. */
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "ops/cpu/kv.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/weight.h"

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

weft_status weft_dev_open(weft_dev **dev, const weft_dev_config *config, weft_error *e) {
    weft_dev *d = weft_calloc(1, sizeof *d);
    if (!d) return weft_fail_oom(e, "the device");
    d->dry = config->dry;
    d->precise = config->precise;
    weft_status s = weft_isa_choose(&d->isa, config->isa, e);
    if (s == WEFT_OK) d->kernels = d->isa->kernels;
    if (s == WEFT_OK) s = kv_type_choose(&d->kv_type, config->kv, d->precise, e);
    if (s == WEFT_OK && !d->dry) s = weft_pool_open(&d->pool, config->threads, e);
    if (s == WEFT_OK && !d->dry && config->planned && config->cache_dir) {
        weft_packed_desc desc = {.dir = config->cache_dir,
                                 .label = config->cache_label,
                                 .layout = config->planned->layout,
                                 .bytes = (size_t)config->planned->packed};
        memcpy(desc.source, config->cache_key, sizeof desc.source);
        s = weft_packed_open(&d->packed, &desc, d->pool, e);
    }
    if (s != WEFT_OK) {
        weft_dev_close(d);
        return s;
    }
    d->threads = d->pool ? weft_pool_threads(d->pool) : config->threads ? config->threads : weft_cpu_count();
    *dev = d;
    return WEFT_OK;
}

void weft_dev_close(weft_dev *d) {
    if (!d) return;
    weft_pool_close(d->pool);
    for (size_t i = 0; i < d->mats.n; i++)
        if (!d->packed || d->mats.v[i]->passing) weft_free_aligned(d->mats.v[i]->data);
    weft_packed_close(d->packed);
    for (size_t i = 0; i < d->coefs.n; i++) weft_free_aligned(d->coefs.v[i]->v);
    weft_vec_free(&d->bufs);
    weft_vec_free(&d->views);
    weft_vec_free(&d->mats);
    weft_vec_free(&d->coefs);
    weft_vec_free(&d->kv);
    weft_vec_free(&d->recurrent);
    weft_vec_free(&d->carries);
    weft_free_aligned(d->workspace);
    weft_free_aligned(d->pages);
    weft_free_aligned(d->slots);
    weft_arena_free(&d->arena);
    weft_free(d);
}

const char *weft_dev_isa(const weft_dev *d) {
    return d->isa->name;
}
double weft_dev_probe(const weft_dev *d) {
#if defined(__x86_64__)
    if (d->isa->linear == &weft_linear_amx) return weft_tiles_probe();
#else
    (void)d;
#endif
    return 0;
}
int weft_dev_threads(const weft_dev *d) {
    return d->threads;
}
bool weft_dev_precise(const weft_dev *d) {
    return d->precise;
}
uint64_t weft_dev_traffic(const weft_dev *d) {
    return d->traffic;
}
void weft_dev_memory_get(const weft_dev *d, weft_dev_memory *m) {
    *m = d->memory;
}

/* ---- registering --------------------------------------------------------------------------------------------------------- */

int weft_carry(weft_dev *d, int cols) {
    carry c = {.cols = cols, .ld = ROUND16(cols)};
    return weft_vec_push(&d->carries, c) ? (int)d->carries.n - 1 : -1;
}

weft_buf *weft_buf_make(weft_dev *d, const char *phase, int rows, int cols) {
    weft_buf *b = weft_arena_get(&d->arena, 1, sizeof *b);
    if (!b || !weft_vec_push(&d->bufs, b)) return NULL;
    *b = (weft_buf){.rows = rows, .cols = cols, .ld = ROUND16(cols), .phase = phase};
    return b;
}

const weft_buf *weft_buf_view(weft_dev *d, const weft_buf *b, int first, int cols) {
    weft_buf *view = weft_arena_get(&d->arena, 1, sizeof *view);
    if (!view || !weft_vec_push(&d->views, view)) return NULL;
    *view = (weft_buf){.cols = cols, .ld = b->ld, .phase = b->phase, .of = b, .first = first};
    return view;
}

/* ---- the plan ------------------------------------------------------------------------------------------------------------ */

typedef struct cursor { /* lays out a block; with base NULL it only counts */
    uint8_t *base;
    uint64_t at;
} cursor;

static void *take(cursor *c, uint64_t n, size_t size) {
    void *p = c->base ? c->base + c->at : NULL;
    c->at += (n * size + 63) & ~(uint64_t)63;
    return p;
}
static void *take_floats(cursor *c, uint64_t n) {
    return take(c, n, sizeof(float));
}

static bool same_phase(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static void lay_buffers(weft_dev *d, cursor *c, const char *phase) {
    for (size_t i = 0; i < d->bufs.n; i++) {
        weft_buf *b = d->bufs.v[i];
        if (!same_phase(b->phase, phase)) continue;
        if (!b->rows) b->rows = d->plan.max_rows;
        b->v = take_floats(c, (uint64_t)b->rows * (uint64_t)b->ld);
    }
}

static void lay_workspace(weft_dev *d, cursor *c) {
    uint64_t rows = (uint64_t)d->plan.max_rows;
    lay_buffers(d, c, NULL);
    uint64_t start = c->at, end = start;
    for (size_t i = 0; i < d->bufs.n; i++) { /* every phase from the same start, once */
        const char *phase = d->bufs.v[i]->phase;
        bool done = !phase;
        for (size_t j = 0; j < i && !done; j++) done = same_phase(phase, d->bufs.v[j]->phase);
        if (done) continue;
        c->at = start;
        lay_buffers(d, c, phase);
        end = c->at > end ? c->at : end;
    }
    c->at = end;
    for (size_t i = 0; i < d->views.n; i++) {
        weft_buf *b = d->views.v[i];
        b->rows = b->of->rows;
        b->v = b->of->v ? b->of->v + b->first : NULL;
    }

    int widest = 0, head = 0;
    uint64_t recurrent = 0, shared = 0;
    for (size_t i = 0; i < d->recurrent.n; i++) {
        recurrent_layer *l = &d->recurrent.v[i];
        size_t worker = recurrent_worker_floats(d, l), inputs = recurrent_shared_floats(d, l);
        int zeros = l->shape.k_dim * GDN_COLUMNS > l->width ? l->shape.k_dim * GDN_COLUMNS : l->width;
        widest = zeros > widest ? zeros : widest;
        recurrent = worker > recurrent ? worker : recurrent;
        shared = inputs > shared ? inputs : shared;
        l->conv = take_floats(c, (uint64_t)l->conv_rows * (uint64_t)l->channels);
    }
    for (size_t i = 0; i < d->kv.n; i++) head = d->kv.v[i].ld > head ? d->kv.v[i].ld : head;
    /* A worker's scratch: the panel of a product; a recurrence's; attention's queries, sums, chunk outputs and scores. */
    uint64_t panel = (uint64_t)LANES * (uint64_t)((d->max_k + 15) & ~(int64_t)15);
    if (panel < recurrent) panel = recurrent;
    uint64_t queries = ATTEND_QUERIES * (3 * (uint64_t)head + ATTEND_P);
    if (d->kv.n && panel < queries) panel = queries;
    if (panel < 2 * (uint64_t)ROUND16(d->max_experts)) panel = 2 * (uint64_t)ROUND16(d->max_experts); /* scores and choices */
    if (d->pick_rows) {
        uint64_t logits = pick_scratch_floats() + (d->precise ? (uint64_t)LANES * (uint64_t)((d->max_k + 15) & ~(int64_t)15) : 0);
        if (panel < logits) panel = logits;
        d->picked = take(c, (uint64_t)d->pick_rows, sizeof *d->picked);
        d->verdicts = take(c, (uint64_t)d->pick_rows, sizeof *d->verdicts);
        uint64_t vocab = (uint64_t)d->pick_vocab;
        d->support.ids = take(c, vocab, sizeof *d->support.ids);
        d->support.logits = take(c, vocab, sizeof *d->support.logits);
        d->support.grains = take(c, vocab, sizeof *d->support.grains);
        d->support.most = take(c, vocab / SUPPORT_BLOCK + 1, sizeof *d->support.most);
        d->support.best = take(c, vocab / SUPPORT_BLOCK + 1, sizeof *d->support.best);
        d->support.sum = take(c, vocab / SUPPORT_BLOCK + 1, sizeof *d->support.sum);
        d->support.total = take(c, vocab / SUPPORT_BLOCK + 1, sizeof *d->support.total);
        d->support.count = take(c, vocab / SUPPORT_BLOCK + 1, sizeof *d->support.count);
        d->pick_parts = take(c, pick_parts_bytes(d), 1);
        d->pick_top = take(c, pick_top_bytes(d), 1);
        d->pick_best = take(c, pick_best_bytes(d), 1);
        d->pick_last = take(c, pick_last_bytes(), 1);
    }
    d->panel_floats = (panel + 15) & ~(size_t)15;
    d->panel = take_floats(c, d->panel_floats * (uint64_t)d->threads);

    for (int i = 0; i < d->n_rope; i++) d->rope[i].v = take_floats(c, rows * (uint64_t)ROUND16(head));
    for (size_t i = 0; i < d->carries.n; i++) widest = d->carries.v[i].ld > widest ? d->carries.v[i].ld : widest;
    d->zeros = take_floats(c, (uint64_t)widest);
    d->recurrent_inputs = take_floats(c, shared);
    if (d->kv.n) {
        uint64_t results = d->threads > 1 ? (uint64_t)d->threads * ATTEND_RESULTS : 0;
        d->attend_blocks = take(c, rows, sizeof *d->attend_blocks);
        d->attend_o = take_floats(c, results * (uint64_t)head);
        d->attend_ml = take_floats(c, results * 2);
        d->attend_kept = take_floats(c, results * 4);
    }
    size_t acts = d->precise ? 0 : acts_bytes((int)d->max_k, (size_t)(rows + 15) / 16);
    if (d->max_experts) {
        uint64_t pairs = rows * (uint64_t)d->max_top_k, experts = (uint64_t)d->max_experts;
        d->expert_in = take_floats(c, pairs * (uint64_t)ROUND16(2 * d->max_inner));
        d->expert_out = take_floats(c, pairs * (uint64_t)ROUND16(d->max_expert_cols));
        d->expert_rows = take(c, pairs, sizeof(int));
        d->pair_place = take(c, pairs, sizeof(int));
        d->place_row = take(c, pairs, sizeof(int));
        d->expert_start = take(c, experts + 1, sizeof(int));
        d->expert_group = take(c, experts, sizeof(int));
        d->experts_used = take(c, experts, sizeof(int));
        int wide = d->max_inner > d->max_expert_cols ? d->max_inner : d->max_expert_cols;
        size_t most = acts_bytes(wide, (size_t)(pairs / 16 + (experts < pairs ? experts : pairs)));
        acts = acts > most ? acts : most;
    }
    d->acts = take(c, d->precise ? 0 : acts, 1);
    d->row_span = take(c, rows, sizeof(int));
    d->slot_writer = take(c, (uint64_t)d->plan.n_slots, sizeof(int));
}

static void lay_pages_of(weft_dev *d, cursor *c, int kind, uint64_t n) {
    for (size_t i = 0; i < d->kv.n; i++) {
        kv_layer *l = &d->kv.v[i];
        if ((int)l->kind != kind) continue;
        l->k = take(c, n * (uint64_t)l->n_kv_heads, l->k_bytes);
        l->v = take(c, n * (uint64_t)l->n_kv_heads, l->v_bytes);
    }
}
static void lay_pages(weft_dev *d, cursor *c, uint64_t n) {
    (void)n;
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++) lay_pages_of(d, c, kind, (uint64_t)d->plan.n_pages[kind]);
}

static void lay_slots(weft_dev *d, cursor *c, uint64_t n) {
    uint64_t rows = n * 2 * (uint64_t)d->plan.max_draft;
    for (size_t i = 0; i < d->recurrent.n; i++) {
        recurrent_layer *l = &d->recurrent.v[i];
        const weft_gdn_shape *s = &l->shape;
        l->state = take_floats(c, n * (uint64_t)s->n_v_heads * (uint64_t)l->blocks * (uint64_t)s->k_dim * GDN_COLUMNS);
        l->window = take_floats(c, n * (uint64_t)(s->conv_kernel - 1) * (uint64_t)l->channels);
        l->journal_in = take_floats(c, rows * (uint64_t)l->channels);
        l->journal_a = take_floats(c, rows * (uint64_t)s->n_v_heads);
        l->journal_k = take_floats(c, rows * (uint64_t)s->n_k_heads * (uint64_t)l->key_ld);
        l->journal_d = take_floats(c, rows * (uint64_t)s->n_v_heads * (uint64_t)l->blocks * GDN_COLUMNS);
    }
    for (size_t i = 0; i < d->carries.n; i++) {
        carry *k = &d->carries.v[i];
        k->row = take_floats(c, n * (uint64_t)k->ld);
        k->journal = take_floats(c, rows * (uint64_t)k->ld);
    }
}

typedef void (*layout)(weft_dev *, cursor *, uint64_t);
static void workspace_layout(weft_dev *d, cursor *c, uint64_t n) {
    (void)n;
    lay_workspace(d, c);
}

/* Touches every page of a block, so that memory is what the plan says from the start, and no step waits for the system to find
 * some. */
enum { TOUCH_BYTES = 4 << 20 };
typedef struct touch_job {
    uint8_t *block;
    uint64_t bytes;
} touch_job;
static void touch_piece(void *ctx, int piece, int worker) {
    (void)worker;
    const touch_job *j = ctx;
    uint64_t at = (uint64_t)piece * TOUCH_BYTES, n = j->bytes - at < TOUCH_BYTES ? j->bytes - at : TOUCH_BYTES;
    memset(j->block + at, 0, (size_t)n);
}

static void touch(weft_dev *d, uint8_t *block, uint64_t bytes) {
    touch_job j = {block, bytes};
    if (block) weft_pool_run(d->pool, (int)((bytes + TOUCH_BYTES - 1) / TOUCH_BYTES), touch_piece, &j);
}

/* Counts, then (unless dry) allocates and lays out for good. */
static weft_status make_block(weft_dev *d, layout lay, uint64_t n, uint64_t *bytes, uint8_t **block, const char *what,
                              weft_error *e) {
    cursor c = {0};
    lay(d, &c, n);
    *bytes = c.at;
    if (d->dry) return WEFT_OK;
    if (c.at > SIZE_MAX || !(*block = weft_alloc_aligned((size_t)c.at ? (size_t)c.at : 64))) {
        char text[16];
        return weft_fail(e, WEFT_ENOMEM, "no memory for %s: %s wanted", what, weft_bytes_text(c.at, text));
    }
    c = (cursor){.base = *block};
    lay(d, &c, n);
    return WEFT_OK;
}

weft_status weft_dev_plan(weft_dev *d, const weft_plan *plan, weft_error *e) {
    if (plan->max_rows < 1 || plan->max_spans < 1 || plan->max_draft < 0 || plan->n_slots < 0)
        return weft_fail(e, WEFT_EINVAL, "plan out of range");
    d->plan = *plan;
    d->n_rope = 0;
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++) {
        if (plan->n_pages[kind] < 0) return weft_fail(e, WEFT_EINVAL, "plan out of range");
        cursor page = {0};
        lay_pages_of(d, &page, kind, 1);
        d->memory.page[kind] = page.at;
        d->n_rope += page.at > 0;
    }
    if (d->packed) WEFT_TRY(weft_packed_commit(d->packed, e));
    cursor one = {0};
    lay_slots(d, &one, 1);
    d->memory.slot = one.at;
    WEFT_TRY(make_block(d, workspace_layout, 0, &d->memory.workspace, &d->workspace, "the workspace", e));
    uint8_t *slots = NULL;
    weft_status s = make_block(d, lay_pages, 0, &d->memory.pages, &d->pages, "the KV pages", e);
    if (s == WEFT_OK) s = make_block(d, lay_slots, (uint64_t)plan->n_slots, &d->memory.slots, &slots, "the recurrent slots", e);
    d->slots = (float *)(void *)slots;
    if (s != WEFT_OK) return s;
    touch(d, d->workspace, d->memory.workspace); /* once all three were to be had */
    touch(d, d->pages, d->memory.pages);
    touch(d, slots, d->memory.slots);
    return WEFT_OK;
}

/* ---- a step -------------------------------------------------------------------------------------------------------------- */

static const char *pages_fault(const weft_dev *d, const weft_span *s, int kind) {
    int lowest = kind == WEFT_PAGES_WINDOW ? -1 : 0; /* attention looks whether it needs a page that is gone */
    if (!d->memory.page[kind]) return NULL;
    if ((int64_t)s->n_pages[kind] * WEFT_PAGE_ROWS < (int64_t)s->pos + s->certain + s->speculative) return "page table too short";
    for (int i = 0; i < s->n_pages[kind]; i++)
        if (s->pages[kind][i] < lowest || s->pages[kind][i] >= d->plan.n_pages[kind]) return "page";
    return NULL;
}

/* A plan's limits and a span's own logic, so that no operator has to ask. */
static const char *span_fault(const weft_dev *d, const weft_span *s, int row) {
    const weft_plan *p = &d->plan;
    if (s->row != row || s->certain < 0 || s->speculative < 0 || s->pos < 0) return "rows";
    if ((int64_t)row + s->certain + s->speculative > d->step->n_rows) return "more rows than the step";
    if (s->speculative > p->max_draft || s->replay < 0 || s->replay > p->max_draft) return "draft rows";
    if (s->slot_read < -1 || s->slot_read >= p->n_slots || s->slot_write < 0 || s->slot_write >= p->n_slots) return "slot";
    if (s->slot_read < 0 && (s->replay || s->pos)) return "a start that is not at 0";
    if (s->replay > s->pos) return "more rows to replay than there were";
    if (s->journal < 0 || s->journal > 1) return "journal half";
    for (int kind = 0; kind < WEFT_PAGE_KINDS; kind++) {
        const char *fault = pages_fault(d, s, kind);
        if (fault) return fault;
    }
    for (int i = 0; i < s->n_snapshots; i++) {
        if (s->snapshot_at[i] < 1 || s->snapshot_at[i] > s->certain || (i && s->snapshot_at[i] <= s->snapshot_at[i - 1]))
            return "snapshot offset";
        if (s->snapshot_slot[i] < 0 || s->snapshot_slot[i] >= p->n_slots) return "snapshot slot";
    }
    return NULL;
}

/* Spans run in any order and at the same time: a slot has one writer, and only that span may read it, to go on in place. */
static const char *slot_fault(const weft_dev *d, int *culprit) {
    const weft_step *step = d->step;
    int *writer = d->slot_writer;
    memset(writer, 0, (size_t)d->plan.n_slots * sizeof *writer);
    for (int i = 0; i < step->n_spans; i++) {
        const weft_span *s = &step->spans[i];
        *culprit = i;
        if (writer[s->slot_write]) return "a slot that is written twice";
        writer[s->slot_write] = i + 1;
        for (int k = 0; k < s->n_snapshots; k++) {
            if (writer[s->snapshot_slot[k]]) return "a slot that is written twice";
            writer[s->snapshot_slot[k]] = i + 1;
        }
    }
    for (int i = 0; i < step->n_spans; i++) {
        const weft_span *s = &step->spans[i];
        *culprit = i;
        if (s->slot_read >= 0 && s->slot_read != s->slot_write && writer[s->slot_read])
            return "a slot that is read while it is written";
    }
    return NULL;
}

void weft_begin(weft_dev *d, const weft_step *step) {
    d->step = step;
    d->status = WEFT_OK;
    for (int i = 0; i < d->n_rope; i++) d->rope[i].freq = NULL;
    if (step->n_rows < 0 || step->n_rows > d->plan.max_rows || step->n_spans < 0 || step->n_spans > d->plan.max_spans) {
        d->status = weft_fail(&d->error, WEFT_EINVAL, "a step of %d rows in %d spans is over the plan's %d and %d", step->n_rows,
                              step->n_spans, d->plan.max_rows, d->plan.max_spans);
        return;
    }
    const char *fault = NULL;
    int row = 0, i = 0;
    for (; i < step->n_spans && !fault; i++) {
        const weft_span *s = &step->spans[i];
        fault = span_fault(d, s, row);
        if (!fault)
            for (int end = row + s->certain + s->speculative; row < end; row++) d->row_span[row] = i;
    }
    if (i) i--;
    if (!fault && row != step->n_rows) fault = "the step has more rows than its spans";
    if (!fault) fault = slot_fault(d, &i);
    if (fault) d->status = weft_fail(&d->error, WEFT_EINVAL, "span %d of the step is impossible: %s", i, fault);
}

weft_status weft_end(weft_dev *d, weft_error *e) {
    d->step = NULL;
    if (d->status != WEFT_OK && e) *e = d->error;
    return d->status == WEFT_OK && d->packed ? weft_packed_check(d->packed, e) : d->status;
}

/* ---- host access --------------------------------------------------------------------------------------------------------- */

weft_status weft_read(weft_dev *d, const weft_buf *b, int row, float *dst, weft_error *e) {
    if (d->step && d->status != WEFT_OK) { /* what the buffer holds is of an earlier step */
        if (e) *e = d->error;
        return d->status;
    }
    if (row < 0 || row >= b->rows) return weft_fail(e, WEFT_EINVAL, "row %d of a buffer of %d", row, b->rows);
    memcpy(dst, buf_row(b, row), (size_t)b->cols * sizeof *dst);
    return WEFT_OK;
}

typedef struct io { /* walks the pieces of a slot; host NULL: counts */
    uint8_t *host;
    size_t n;
    bool to_host;
} io;

static void piece(io *w, float *dev, size_t floats) {
    size_t bytes = floats * sizeof *dev;
    if (w->host) {
        if (w->to_host)
            memcpy(w->host + w->n, dev, bytes);
        else
            memcpy(dev, w->host + w->n, bytes);
    }
    w->n += bytes;
}

static void walk_slot(const weft_dev *d, size_t slot, io *w) {
    for (size_t i = 0; i < d->recurrent.n; i++) {
        const recurrent_layer *l = &d->recurrent.v[i];
        size_t state = (size_t)l->shape.n_v_heads * (size_t)l->blocks * (size_t)l->shape.k_dim * GDN_COLUMNS;
        size_t window = (size_t)(l->shape.conv_kernel - 1) * (size_t)l->channels;
        piece(w, l->state + slot * state, state);
        piece(w, l->window + slot * window, window);
    }
    for (size_t i = 0; i < d->carries.n; i++) {
        const carry *c = &d->carries.v[i];
        piece(w, c->row + slot * (size_t)c->ld, (size_t)c->ld);
    }
}

size_t weft_slot_bytes(const weft_dev *d) {
    io w = {0};
    walk_slot(d, 0, &w);
    return w.n;
}
weft_status weft_slot_io(weft_dev *d, int slot, void *host, bool to_host, weft_error *e) {
    if (slot < 0 || slot >= d->plan.n_slots) return weft_fail(e, WEFT_EINVAL, "slot %d of %d", slot, d->plan.n_slots);
    io w = {.host = host, .to_host = to_host};
    walk_slot(d, (size_t)slot, &w);
    return WEFT_OK;
}
static void fill_nan(float *v, size_t at, size_t n) {
    for (size_t i = 0; i < n; i++) v[at * n + i] = __builtin_nanf("");
}
/* The journal too. Padding of carries and journal rows stays zero, as nothing writes it again. */
void weft_slot_poison(weft_dev *d, int slot) {
    size_t s = (size_t)slot, journal = 2 * (size_t)d->plan.max_draft;
    for (size_t i = 0; i < d->recurrent.n; i++) {
        recurrent_layer *l = &d->recurrent.v[i];
        size_t columns = (size_t)l->shape.n_v_heads * (size_t)l->blocks * GDN_COLUMNS;
        fill_nan(l->state, s, columns * (size_t)l->shape.k_dim);
        fill_nan(l->window, s, (size_t)(l->shape.conv_kernel - 1) * (size_t)l->channels);
        fill_nan(l->journal_in, s, journal * (size_t)l->channels);
        fill_nan(l->journal_a, s, journal * (size_t)l->shape.n_v_heads);
        fill_nan(l->journal_k, s, journal * (size_t)l->shape.n_k_heads * (size_t)l->key_ld);
        fill_nan(l->journal_d, s, journal * columns);
    }
    for (size_t i = 0; i < d->carries.n; i++) {
        carry *c = &d->carries.v[i];
        for (size_t r = 0; r <= journal; r++) {
            float *row = r < journal ? c->journal + (s * journal + r) * (size_t)c->ld : c->row + s * (size_t)c->ld;
            for (int j = 0; j < c->cols; j++) row[j] = __builtin_nanf("");
        }
    }
}

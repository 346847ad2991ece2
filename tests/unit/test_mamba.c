/* test_mamba.c: Mamba-2 and its gated norm: kernels in every table that this processor can run, and the operators around them.
 *
 * Kernels: bit for bit against each other, against the written arithmetic, and against double. The operator: against the recurrence
 * in double over many shapes; and any way of cutting a sequence gives the bits of one row at a time (recurrent_walks.h). What both
 * kinds of recurrent layer share, the convolution and the fold of an update, has more tests in test_gdn.c. */
enum { LEN = 150 };
#include "recurrent_walks.h"

#define C GDN_COLUMNS

static const weft_gdn_ahead nothing = {"", 0};

/* ---- steps ---------------------------------------------------------------------------------------------------------------- */

static void test_gates(void **state) {
    (void)state;
    for (int round = 0; round < 280; round++) {
        kind kd = (kind)(round % KINDS);
        int rows = 1 + round % 70, ld = 1 + below(5);
        float *raw = input((rows - 1) * ld + 1, kd), *first[2] = {0};
        float decay = -expf(2 * number(PLAIN)), bias = number(PLAIN);
        float low = round % 3 ? 0 : 0.25f, high = round % 5 ? INFINITY : 2;
        for (int i = 0; kd == PLAIN && i < rows; i++) raw[i * ld] *= 30;
        EACH_TABLE(t) {
            float *a = output(rows, NULL), *dt = output(rows, NULL);
            isas[t]->mamba->gates(a, dt, raw, (size_t)ld, decay, bias, low, high, rows);
            guards_hold("decays", a, rows);
            guards_hold("steps", dt, rows);
            if (!first[0]) first[0] = a, first[1] = dt;
            same("decays of two tables", first[0], a, rows);
            same("steps of two tables", first[1], dt, rows);
        }
        for (int i = 0; i < rows; i++) {
            float x = raw[i * ld];
            if (isnan(x)) assert_true(isnan(first[0][i]) && isnan(first[1][i]));
            if (kd == SPECIAL) continue;
            x = (float)(daz(x) + (double)bias); /* rounded: what softplus is given */
            double dt = x > 40 ? (double)x : log1p(exp((double)x));
            dt = fmin((double)high, fmax((double)low, dt));
            double z = (double)decay * dt, a = exp(z);
            near_to("step", i, first[1][i], dt, dt * SOFTPLUS_ERROR);
            near_to("decay", i, first[0][i], a, a * 1.01 * (fabs(z) * (SOFTPLUS_ERROR + U) + EXP_ERROR));
        }
        drop_all();
    }
}

/* ---- the recurrence ------------------------------------------------------------------------------------------------------- */

/* Some tokens over a block of columns. */
typedef struct block {
    float *s0; /* [dim][C] */
    weft_mamba_tokens t;
} block;
static block random_block(int dim, int rows, kind kd) {
    int ld_bc = dim + below(9), ld_x = C + below(5);
    float *a = input(rows, PLAIN), *dt = input(rows, PLAIN);
    for (int r = 0; r < rows; r++) a[r] = fabsf(a[r]), dt[r] = fabsf(dt[r]);
    return (block){input(dim * C, kd),
                   {.rows = rows,
                    .dim = dim,
                    .cols = below(3) ? C : 1 + below(C),
                    .b = input((rows - 1) * ld_bc + dim, PLAIN),
                    .c = input((rows - 1) * ld_bc + dim, PLAIN),
                    .ld_bc = (size_t)ld_bc,
                    .a = a,
                    .dt = dt,
                    .x = input((rows - 1) * ld_x + C, kd),
                    .ld_x = (size_t)ld_x,
                    .skip = number(PLAIN)}};
}
enum { LD_Y = 37 };
typedef struct result {
    float *s, *y; /* s: after the certain rows */
} result;
static result run_block(int table, const block *b, int certain, bool in_place) {
    int size = b->t.dim * C, n = b->t.rows * LD_Y;
    result r = {output(size, in_place ? b->s0 : NULL), output(n, NULL)};
    float *copy = output(size, NULL);
    weft_mamba_tokens t = b->t;
    t.certain = certain;
    t.y = r.y, t.ld_y = LD_Y;
    isas[table]->mamba->tokens(r.s, copy, in_place ? r.s : b->s0, &t, nothing);
    guards_hold("state", r.s, size);
    guards_hold("copy", copy, size);
    guards_hold("outputs", r.y, n);
    for (int i = 0; i < n; i++) assert_true(i % LD_Y < b->t.cols || untouched(r.y[i]));
    for (int i = 0; i < size && !certain; i++) assert_true(in_place ? to_bits(r.s[i]) == to_bits(b->s0[i]) : untouched(r.s[i]));
    return r;
}

/* The written arithmetic, operation by operation. Were it changed, all tables would change alike, and with them every result. */
static void test_the_written_order(void **state) {
    (void)state;
    for (int round = 0; round < 80; round++) {
        int dim = 1 + round % 40, rows = 1 + round % 9;
        block b = random_block(dim, rows, PLAIN);
        EACH_TABLE(t) {
            result x = run_block(t, &b, rows, round % 2);
            for (int c = 0; c < C; c++) {
                float s[40];
                for (int i = 0; i < dim; i++) s[i] = b.s0[i * C + c];
                for (int r = 0; r < rows; r++) {
                    float in = b.t.x[(size_t)r * b.t.ld_x + (size_t)c], d = b.t.dt[r] * in, y[2] = {0};
                    for (int i = 0; i < dim; i++) {
                        size_t at = (size_t)r * b.t.ld_bc + (size_t)i;
                        float decayed = b.t.a[r] * s[i];
                        s[i] = fmaf(b.t.b[at], d, decayed);
                        y[i % 2] = fmaf(b.t.c[at], s[i], y[i % 2]);
                    }
                    float read = y[0] + y[1];
                    if (c < b.t.cols) assert_true(x.y[r * LD_Y + c] == fmaf(b.t.skip, in, read));
                }
                for (int i = 0; i < dim; i++) assert_true(x.s[i * C + c] == s[i]);
            }
        }
        drop_all();
    }
}

static void test_tokens_of_all_tables(void **state) {
    (void)state;
    for (int round = 0; round < 240; round++) {
        block b = random_block(1 + below(round % 9 ? 70 : 256), 1 + below(11), (kind)(round % KINDS));
        result first = run_block(0, &b, b.t.rows, false);
        EACH_TABLE(t) {
            for (int in_place = 0; in_place < 2; in_place++) {
                result x = run_block(t, &b, b.t.rows, in_place);
                same("state of two tables", first.s, x.s, b.t.dim * C);
                for (int r = 0; r < b.t.rows; r++) same("output of two tables", first.y + r * LD_Y, x.y + r * LD_Y, b.t.cols);
            }
        }
        drop_all();
    }
}

/* What makes rollback a count: an update has the same bits in a sweep with others, in one of its own, and out of a journal. */
static void test_updates_fold_alike(void **state) {
    (void)state;
    for (int round = 0; round < 120; round++) {
        int dim = 1 + below(100), size = dim * C, rows = 1 + below(9);
        block b = random_block(dim, rows, (kind)(round % KINDS));
        EACH_TABLE(t) {
            result whole = run_block(t, &b, rows, false);
            const int certain = below(rows + 1);
            result parted = run_block(t, &b, certain, round % 2);
            float *s = output(size, b.s0), *folded = output(size, b.s0), *y = output(C, NULL);
            for (int r = 0; r < rows; r++) {
                weft_mamba_tokens one = b.t;
                one.rows = one.certain = 1;
                one.b += (size_t)r * b.t.ld_bc, one.c += (size_t)r * b.t.ld_bc, one.x += (size_t)r * b.t.ld_x;
                one.a += r, one.dt += r;
                one.y = y, one.ld_y = 0;
                isas[t]->mamba->tokens(s, NULL, s, &one, nothing);
                same("an output", whole.y + r * LD_Y, y, b.t.cols);
                float d[C];
                for (int c = 0; c < C; c++) d[c] = *one.dt * one.x[c];
                isas[t]->gdn->update(folded, folded, &(weft_gdn_update){*one.a, one.b, d}, 1, dim, nothing);
                same("an output, some rows speculative", parted.y + r * LD_Y, y, b.t.cols);
                if (r + 1 == certain) same("a state before speculative rows", parted.s, s, size);
            }
            same("a state row by row", whole.s, s, size);
            same("a state out of a journal", whole.s, folded, size);
        }
        drop_all();
    }
}

/* Two heads of one column, state of 2, one group, two tokens: outputs and the final state, computed apart from this code. */
static void test_numeric_vector(void **state) {
    (void)state;
    static const float in[2][2] = {{1, 0.25f}, {-0.5f, 2}}, b[2][2] = {{1, 0.5f}, {-1, 0.25f}}, c[2][2] = {{0.5f, 1}, {1, -1}};
    static const float raw[2][2] = {{0, 1}, {-1, 0.5f}}, bias[2] = {0.1f, -0.2f}, skip[2] = {1, 0.5f};
    static const double out[2][2] = {{1.744397, 0.408004}, {-0.835550, -1.188290}};
    static const double last[2][2] = {{0.443940, 0.285936}, {-1.813514, 0.374776}};
    const float decay[2] = {-1, -(float)exp(0.7)}; /* A_log 0 and 0.7 */
    EACH_TABLE(t) {
        for (int h = 0; h < 2; h++) {
            float a[2], dt[2], x[2][C] = {{in[h][0]}, {in[h][1]}}, y[2], s[2 * C] = {0};
            isas[t]->mamba->gates(a, dt, raw[0] + h, 2, decay[h], bias[h], 0, INFINITY, 2);
            weft_mamba_tokens tokens = {.rows = 2,
                                        .certain = 2,
                                        .dim = 2,
                                        .cols = 1,
                                        .b = b[0],
                                        .c = c[0],
                                        .ld_bc = 2,
                                        .a = a,
                                        .dt = dt,
                                        .x = x[0],
                                        .ld_x = C,
                                        .skip = skip[h],
                                        .y = y,
                                        .ld_y = 1};
            isas[t]->mamba->tokens(s, NULL, s, &tokens, nothing);
            for (int i = 0; i < 2; i++) {
                near_to("vector's output", i, y[i], out[h][i], 1e-6);
                near_to("vector's state", i, s[i * C], last[h][i], 1e-6);
            }
        }
    }
}

/* ---- the gated norm ------------------------------------------------------------------------------------------------------- */

static void test_gate_norm(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        kind kd = (kind)(round % KINDS);
        int width = round % 3 ? 16 * (1 + below(8)) : 1 + below(100), groups = 1 + below(5), n = groups * width;
        float *x = input(n, kd), *z = input(n, kd), *gain = input(n, PLAIN), *first = NULL;
        for (int i = 0; i < n && kd == PLAIN; i++) z[i] *= 8;
        EACH_TABLE(t) {
            for (int place = 0; place < 3; place++) { /* apart, over x, over z */
                float *y = output(n, place == 0 ? NULL : place == 1 ? x : z);
                isas[t]->kernels->gate_norm(y, place == 1 ? y : x, place == 2 ? y : z, gain, n, width, 1e-5f);
                guards_hold("gated norm", y, n);
                if (!first) first = y;
                same("gated norm of two tables", first, y, n);
            }
        }
        for (int g = 0; g < n && kd == PLAIN; g += width) {
            double squares = 0;
            for (int i = g; i < g + width; i++) squares += pow((double)x[i] * ref_silu((double)z[i]), 2);
            double r = 1 / sqrt(squares / width + 1e-5);
            for (int i = g; i < g + width; i++) {
                double y = (double)gain[i] * (double)x[i] * ref_silu((double)z[i]) * r;
                near_to("gated norm", i, first[i], y, fabs(y) * (roundings(width / 16 + 8) / 2 + 20 * U));
            }
        }
        drop_all();
    }
}
/* The operator: every row, and its groups; it differs from weft_norm_gated, which norms first. */
static void test_gate_norm_operator(void **state) {
    (void)state;
    enum { COLS = 120, GROUP = 40, ROWS = 19 };
    weft_error e;
    weft_dev *d;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 2}, &e), WEFT_OK);
    weft_buf *x = weft_buf_make(d, NULL, 0, COLS), *z = weft_buf_make(d, NULL, 0, COLS), *y = weft_buf_make(d, NULL, 0, COLS);
    weft_coef *gain = made_coef(d, 1, COLS, 1, 0.5f);
    assert_int_equal(weft_dev_plan(d, &(weft_plan){.max_rows = ROWS, .max_spans = 1, .n_pages = {1}, .n_slots = 1}, &e), WEFT_OK);
    for (int i = 0; i < ROWS * COLS; i++) {
        buf_row(x, i / COLS)[i % COLS] = made(2, 0, (uint32_t)i);
        buf_row(z, i / COLS)[i % COLS] = 4 * made(3, 0, (uint32_t)i);
    }
    int page = 0;
    weft_span span = {.certain = ROWS, .slot_read = -1, .n_pages = {1}, .pages = {&page}};
    weft_begin(d, &(weft_step){.n_rows = ROWS, .n_spans = 1, .spans = &span});
    weft_gate_norm(d, y, x, z, gain, GROUP, 1e-5f);
    assert_int_equal(weft_end(d, &e), WEFT_OK);
    for (int r = 0; r < ROWS; r++)
        for (int g = 0; g < COLS; g += GROUP) {
            double u[GROUP], squares = 0;
            for (int i = 0; i < GROUP; i++) {
                u[i] = (double)buf_row(x, r)[g + i] * ref_silu((double)buf_row(z, r)[g + i]);
                squares += u[i] * u[i];
            }
            for (int i = 0; i < GROUP; i++)
                near_to("y", g + i, buf_row(y, r)[g + i], (double)gain->v[g + i] * u[i] / sqrt(squares / GROUP + 1e-5), 1e-5);
        }
    weft_dev_close(d);
}

/* ---- the operator --------------------------------------------------------------------------------------------------------- */

typedef struct mamba_rig {
    rig rig;
    weft_mamba_shape s;
    int channels;
    float size; /* scales the inputs */
    weft_buf *xbc, *dt;
    weft_mamba op;
} mamba_rig;

static void put_token(rig *r, int row, uint32_t token) {
    mamba_rig *g = (mamba_rig *)r;
    for (int i = 0; i < g->channels; i++) buf_row(g->xbc, row)[i] = g->size * made(10, token, (uint32_t)i);
    for (int i = 0; i < g->s.n_heads; i++) buf_row(g->dt, row)[i] = 3 * made(11, token, (uint32_t)i);
}
static void run(rig *r) {
    mamba_rig *g = (mamba_rig *)r;
    weft_mamba_run(r->d, r->y, g->xbc, g->dt, &g->op);
}
static void rig_open(mamba_rig *g, weft_mamba_shape s, const char *isa, int threads, bool bias) {
    weft_error e;
    *g = (mamba_rig){.rig = {.columns = s.n_heads * s.head_dim, .put = put_token, .run = run}, .s = s, .size = 1};
    rig *r = &g->rig;
    g->channels = r->columns + 2 * s.n_groups * s.state_dim;
    if (weft_dev_open(&r->d, &(weft_dev_config){.threads = threads, .isa = isa}, &e) != WEFT_OK) fail_msg("%s", e.text);
    g->op.layer = weft_mamba_layer(r->d, &s);
    g->op.conv = made_coef(r->d, 1, s.conv_kernel * g->channels, 0, 1);
    g->op.conv_bias = bias ? made_coef(r->d, 2, g->channels, 0, 0.5f) : NULL;
    g->op.decay = made_coef(r->d, 3, s.n_heads, -1, 0.9f);
    g->op.dt_bias = made_coef(r->d, 4, s.n_heads, -3, 1);
    g->op.skip = made_coef(r->d, 5, s.n_heads, 1, 1);
    g->op.dt_high = INFINITY;
    weft_buf **bufs[] = {&g->xbc, &g->dt, &r->y};
    int cols[] = {g->channels, s.n_heads, r->columns};
    for (int i = 0; i < 3; i++) assert_non_null(*bufs[i] = weft_buf_make(r->d, NULL, 0, cols[i]));
    rig_plan(r);
}

/* Many tokens against the recurrence in double: the order of channels, which group a head has, the window, the limits of a step. */
static void test_operator_is_accurate(void **state) {
    (void)state;
    static const weft_mamba_shape shapes[] = {{4, 16, 1, 16, 4},  {96, 80, 8, 16, 4}, {8, 64, 8, 128, 4}, {4, 16, 2, 256, 4},
                                              {16, 80, 2, 32, 4}, {5, 7, 1, 5, 2},    {3, 33, 3, 17, 1},  {12, 48, 4, 24, 8}};
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        const weft_mamba_shape s = shapes[shape];
        mamba_rig g;
        rig_open(&g, s, NULL, 1 + (int)shape % 3, shape % 2 == 0);
        if (shape % 3 == 0) g.op.dt_low = 0.02f, g.op.dt_high = 0.3f;
        const int inner = g.rig.columns, N = s.state_dim, keys = s.n_groups * N;
        double *S = calloc((size_t)(inner * N), sizeof *S), *c = calloc((size_t)g.channels, sizeof *c);
        for (int p = 0; p < LEN; p++) put_token(&g.rig, p, (uint32_t)p);
        run_step(&g.rig, &(weft_span){.certain = LEN, .slot_read = -1}, 1);
        for (int p = 0; p < LEN; p++) {
            for (int i = 0; i < g.channels; i++) {
                double x = g.op.conv_bias ? (double)g.op.conv_bias->v[i] : 0;
                for (int tap = 0, at = p - s.conv_kernel + 1; tap < s.conv_kernel; tap++, at++)
                    if (at >= 0) x += (double)buf_row(g.xbc, at)[i] * (double)g.op.conv->v[tap * g.channels + i];
                c[i] = ref_silu(x);
            }
            for (int i = 0; i < inner; i++) {
                int h = i / s.head_dim, group = h / (s.n_heads / s.n_groups);
                double raw = (double)buf_row(g.dt, p)[h] + (double)g.op.dt_bias->v[h];
                double dt = fmin((double)g.op.dt_high, fmax((double)g.op.dt_low, log1p(exp(raw))));
                double a = exp((double)g.op.decay->v[h] * dt), y = (double)g.op.skip->v[h] * c[i], size = fabs(y), *Si = S + i * N;
                const double *B = c + inner + group * N, *Cg = c + inner + keys + group * N;
                for (int k = 0; k < N; k++) {
                    Si[k] = a * Si[k] + dt * c[i] * B[k];
                    y += Si[k] * Cg[k], size += fabs(Si[k] * Cg[k]);
                }
                near_to("y", p * inner + i, buf_row(g.rig.y, p)[i], y, 3e-5 * size + 1e-6);
            }
        }
        free(S), free(c);
        weft_dev_close(g.rig.d);
    }
}

static void test_any_passes(void **state) {
    (void)state;
    static const weft_mamba_shape shapes[] = {{4, 16, 1, 16, 4}, {96, 80, 8, 16, 4}, {5, 7, 1, 5, 1},   {8, 64, 8, 128, 4},
                                              {3, 33, 3, 17, 2}, {4, 16, 2, 256, 4}, {16, 16, 4, 8, 8}, {6, 48, 2, 33, 3}};
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        truth truths[2];
        const bool bias = shape % 4 != 2, large = shape == 1 || shape == 3;
        for (uint32_t i = 0; i < 2; i++) {
            mamba_rig g;
            rig_open(&g, shapes[shape], large ? NULL : "reference", 1, bias);
            truth_make(truths + i, &g.rig, 1 + 1000 * i);
        }
        EACH_TABLE(t) {
            if (t && t < n_tables - 1 && isas[t + 1]->mamba == isas[t]->mamba) continue; /* one table, two names */
            for (int threads = 1; threads <= 4; threads += 1 + (threads == 2)) {
                if (t == 0 && (shape % 2 == 0) != (threads == 2)) continue; /* slow */
                mamba_rig g;
                rig_open(&g, shapes[shape], isas[t]->name, threads, bias);
                random_walks(&g.rig, truths, t == 0 && large ? 6 : 50);
                weft_dev_close(g.rig.d);
            }
        }
        for (int i = 0; i < 2; i++) truth_free(truths + i);
    }
}

/* Every count of drafts, every count of accepted ones, replayed by a flush or by the next pass, in place or into another slot. */
static void test_every_accept_count(void **state) {
    (void)state;
    const weft_mamba_shape s = {4, 40, 2, 19, 4};
    truth t;
    mamba_rig g;
    rig_open(&g, s, NULL, 1, true);
    truth_make(&t, &g.rig, 7);
    rig_open(&g, s, NULL, 2, true);
    const walker w = {.t = &t};
    for (int drafts = 0; drafts <= DRAFTS; drafts++)
        for (int right = 0; right <= drafts; right++)
            for (int way = 0; way < 4; way++) {
                const bool flush = way & 1;
                const int to = way / 2, first = 3, more = flush ? 0 : 2;
                for (int i = 0; i < SLOTS; i++) weft_slot_poison(g.rig.d, i);
                for (int i = 0; i < first + drafts; i++)
                    put_token(&g.rig, i, i < first + right ? 7 + (uint32_t)i : 5000 + (uint32_t)i);
                run_step(&g.rig, &(weft_span){.certain = first, .speculative = drafts, .slot_read = -1}, 1);
                for (int i = 0; i < first + right; i++)
                    same("a draft", t.y + i * g.rig.columns, buf_row(g.rig.y, i), g.rig.columns);
                slot_is(&g.rig, "drafts", &w, 0, first);
                for (int i = 0; i < more; i++) put_token(&g.rig, i, 7 + (uint32_t)(first + right + i));
                run_step(&g.rig,
                         &(weft_span){.certain = more, .pos = first + right, .replay = right, .slot_write = to, .journal = 1}, 1);
                for (int i = 0; i < more; i++)
                    same("a row after replay", t.y + (first + right + i) * g.rig.columns, buf_row(g.rig.y, i), g.rig.columns);
                slot_is(&g.rig, "replay", &w, to, first + right + more);
                if (to) slot_is(&g.rig, "the slot that was read", &w, 0, first);
            }
    truth_free(&t);
    weft_dev_close(g.rig.d);
}

/* Two layers of different shapes and a Gated DeltaNet side by side in every slot: none touches another's state; a slot copied to
 * the host and back goes on alike; states count as traffic. */
static void test_layers_are_apart(void **state) {
    (void)state;
    const weft_mamba_shape s[2] = {{4, 20, 2, 24, 4}, {3, 16, 1, 9, 2}};
    const weft_gdn_shape gs = {1, 2, 12, 16, 4};
    weft_error e;
    weft_dev *d;
    weft_mamba op[2];
    weft_buf *xbc[2], *dt[2], *y[2], *qkv, *alpha, *gy;
    assert_int_equal(weft_dev_open(&d, &(weft_dev_config){.threads = 2}, &e), WEFT_OK);
    weft_gdn gdn = {
        .conv = made_coef(d, 20, 4 * 56, 0, 1), .decay = made_coef(d, 21, 2, -1, 0.9f), .dt_bias = made_coef(d, 22, 2, 0, 1)};
    uint64_t states = 0;
    for (int i = 0; i < 2; i++) {
        int inner = s[i].n_heads * s[i].head_dim, channels = inner + 2 * s[i].n_groups * s[i].state_dim;
        if (i) gdn.layer = weft_gdn_layer(d, &gs);
        op[i] = (weft_mamba){.layer = weft_mamba_layer(d, s + i),
                             .conv = made_coef(d, 1, s[i].conv_kernel * channels, 0, 1),
                             .decay = made_coef(d, 2, s[i].n_heads, -1, 0.9f),
                             .dt_bias = made_coef(d, 3, s[i].n_heads, -1, 1),
                             .skip = made_coef(d, 4, s[i].n_heads, 1, 1),
                             .dt_high = INFINITY};
        xbc[i] = weft_buf_make(d, NULL, 0, channels);
        dt[i] = weft_buf_make(d, NULL, 0, s[i].n_heads);
        y[i] = weft_buf_make(d, NULL, 0, inner);
        states += (uint64_t)inner * (uint64_t)s[i].state_dim * sizeof(float);
    }
    qkv = weft_buf_make(d, NULL, 0, 56), alpha = weft_buf_make(d, NULL, 0, 2), gy = weft_buf_make(d, NULL, 0, 32);
    assert_int_equal(weft_dev_plan(d, &(weft_plan){.max_rows = 4, .max_spans = 1, .n_pages = {1}, .n_slots = 2}, &e), WEFT_OK);
    weft_slot_poison(d, 0), weft_slot_poison(d, 1);
    float *kept[2] = {NULL};
    void *bytes = malloc(weft_slot_bytes(d));
    for (int pass = 0; pass < 3; pass++) { /* 0: alone; 1: with the others; 2: again, from the host's copy of the slot before it */
        int page = 0, slot = pass == 2;
        if (pass == 2) assert_int_equal(weft_slot_io(d, slot, bytes, false, &e), WEFT_OK);
        for (int step = pass == 2 ? 2 : 0; step < 3; step++) {
            if (pass == 1 && step == 2) assert_int_equal(weft_slot_io(d, 0, bytes, true, &e), WEFT_OK);
            for (int i = 0; i < 4; i++) {
                for (int l = 0; l < 2; l++) {
                    for (int c = 0; c < xbc[l]->cols; c++) buf_row(xbc[l], i)[c] = made(10, (uint32_t)(4 * step + i), (uint32_t)c);
                    for (int c = 0; c < dt[l]->cols; c++) buf_row(dt[l], i)[c] = made(11, (uint32_t)(4 * step + i), (uint32_t)c);
                }
                for (int c = 0; c < 56; c++) buf_row(qkv, i)[c] = made(12, (uint32_t)(4 * step + i), (uint32_t)c);
                for (int c = 0; c < 2; c++) buf_row(alpha, i)[c] = made(13, (uint32_t)(4 * step + i), (uint32_t)c);
            }
            weft_span span = {
                .certain = 4, .pos = 4 * step, .slot_read = step ? slot : -1, .slot_write = slot, .n_pages = {1}, .pages = {&page}};
            weft_begin(d, &(weft_step){.n_rows = 4, .n_spans = 1, .spans = &span});
            uint64_t before = weft_dev_traffic(d);
            weft_mamba_run(d, y[0], xbc[0], dt[0], op);
            if (pass) weft_gdn_run(d, gy, qkv, alpha, alpha, &gdn);
            uint64_t moved = weft_dev_traffic(d);
            weft_mamba_run(d, y[1], xbc[1], dt[1], op + 1);
            if (!pass) assert_true(weft_dev_traffic(d) - before >= 2 * states);
            assert_true(weft_dev_traffic(d) > moved);
            assert_int_equal(weft_end(d, &e), WEFT_OK);
        }
        for (int l = 0; l < 2; l++) {
            if (!pass) kept[l] = malloc((size_t)y[l]->cols * sizeof(float));
            if (!pass)
                memcpy(kept[l], buf_row(y[l], 3), (size_t)y[l]->cols * sizeof(float));
            else
                same("a layer among others", kept[l], buf_row(y[l], 3), y[l]->cols);
        }
    }
    free(bytes), free(kept[0]), free(kept[1]);
    weft_dev_close(d);
}

/* A NaN in one sequence's row reaches what follows in its own head or group, and nothing else: not the rows before it, not other
 * heads, not the sequence beside it. */
static void test_nan_is_confined(void **state) {
    (void)state;
    const weft_mamba_shape s = {4, 40, 2, 20, 4};
    enum { ROWS = 80, BAD = 33, HEAD = 1 };
    for (int where = 0; where < 3; where++) EACH_TABLE(t) {
            mamba_rig g;
            float *clean = NULL;
            rig_open(&g, s, isas[t]->name, 2, true);
            const int columns = g.rig.columns;
            for (int bad = 0; bad < 2; bad++) {
                for (int r = 0; r < 2 * ROWS; r++) put_token(&g.rig, r, (uint32_t)r);
                if (bad && where == 0) buf_row(g.xbc, BAD)[HEAD * s.head_dim + 3] = NAN; /* of x */
                if (bad && where == 1) buf_row(g.dt, BAD)[HEAD] = NAN;
                if (bad && where == 2) buf_row(g.xbc, BAD)[columns + 4] = NAN; /* of B: heads 0 and 1 */
                weft_span spans[2] = {{.certain = ROWS, .slot_read = -1},
                                      {.row = ROWS, .certain = ROWS, .slot_read = -1, .slot_write = 1}};
                run_step(&g.rig, spans, 2);
                if (!bad) {
                    clean = malloc((size_t)(2 * ROWS * columns) * sizeof *clean);
                    for (int r = 0; r < 2 * ROWS; r++)
                        memcpy(clean + r * columns, buf_row(g.rig.y, r), (size_t)columns * sizeof *clean);
                    continue;
                }
                for (int i = 0; i < 2 * ROWS * columns; i++) {
                    int r = i / columns, c = i % columns, h = c / s.head_dim;
                    float y = buf_row(g.rig.y, r)[c];
                    bool own = where == 0 ? c == HEAD * s.head_dim + 3 : where == 1 ? h == HEAD : h < 2;
                    if (own && r >= BAD && r < ROWS)
                        assert_true(isnan(y));
                    else
                        same("beside a NaN", clean + i, &y, 1);
                }
                free(clean);
            }
            weft_dev_close(g.rig.d);
        }
}

static int enter(void **state) {
    (void)state;
    find_tables();
    weft_fpu_enter();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_the_written_order),
        cmocka_unit_test(test_tokens_of_all_tables),
        cmocka_unit_test(test_updates_fold_alike),
        cmocka_unit_test(test_numeric_vector),
        cmocka_unit_test(test_gate_norm),
        cmocka_unit_test(test_gate_norm_operator),
        cmocka_unit_test(test_operator_is_accurate),
        cmocka_unit_test(test_any_passes),
        cmocka_unit_test(test_every_accept_count),
        cmocka_unit_test(test_layers_are_apart),
        cmocka_unit_test(test_nan_is_confined),
    };
    return cmocka_run_group_tests(tests, enter, NULL);
}

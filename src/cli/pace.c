/* pace.c: see pace.h. */
#include "cli/pace.h"

#include "cli/series.h"

static void count(weft_pace_tally *t, bool right) {
    t->drafted++;
    t->right += right;
}

/* What the step between two states of the counts did. */
static bool note_step(const weft_request *r, const weft_stats *was, const weft_stats *is, weft_pace *pace, weft_pace_times *times) {
    uint64_t rows = is->rows - was->rows, links = is->draft_steps - was->draft_steps;
    bool ok = true;
    if (is->prefill_ns != was->prefill_ns || is->passes == was->passes) return true;
    pace->passes++;
    if (rows >= 1 && rows <= WEFT_TUNED_ROWS) ok = weft_vec_push(&times->pass[rows], (double)(is->decode_ns - was->decode_ns));
    if (links) ok = ok && weft_vec_push(&times->link, (double)(is->draft_ns - was->draft_ns) / (double)links);
    for (int d = 0; d < WEFT_MAX_DEPTH && is->drafted[d] != was->drafted[d]; d++) {
        bool right = is->accepted[d] != was->accepted[d];
        count(&pace->from[r->draft_from[d]][d], right);
        if (r->draft_from[d] == WEFT_DRAFTER_MODEL) count(&pace->sure[r->draft_sure[d]], right);
    }
    return ok;
}

weft_status weft_pace_answer(weft_engine *g, const weft_request_desc *d, const weft_trace *trace, weft_pace *pace,
                             weft_pace_times *times, double *seconds, weft_error *e) {
    weft_request *r = NULL;
    weft_stats from, was, is;
    const weft_event *events;
    size_t n;
    WEFT_TRY(weft_submit(g, d, &r, e));
    r->trace = trace;
    weft_status s = WEFT_OK;
    weft_engine_stats(g, &from);
    was = is = from;
    while (s == WEFT_OK && weft_run_step(g, &events, &n)) {
        for (size_t k = 0; k < n && s == WEFT_OK; k++)
            if (events[k].error) *e = *events[k].error, s = e->code;
        weft_engine_stats(g, &is);
        if (s == WEFT_OK && !note_step(r, &was, &is, pace, times)) s = weft_fail_oom(e, "measurements");
        was = is;
    }
    weft_request_close(r);
    *seconds = (double)(is.decode_ns - from.decode_ns + is.draft_ns - from.draft_ns) * 1e-9;
    if (is.tokens > from.tokens) pace->tokens += is.tokens - from.tokens - 1;
    return s;
}

double weft_pace_share(const weft_pace *pace, int depth) {
    uint64_t drafted = 0, right = 0;
    for (int f = 0; f < WEFT_DRAFTERS; f++) drafted += pace->from[f][depth].drafted, right += pace->from[f][depth].right;
    return drafted ? (double)right / (double)drafted : -1;
}

double weft_pace_pass_ns(weft_pace_times *t, int rows) {
    return weft_median(t->pass[rows].v, t->pass[rows].n);
}
double weft_pace_link_ns(weft_pace_times *t) {
    return weft_median(t->link.v, t->link.n);
}

void weft_pace_times_clear(weft_pace_times *t) {
    for (int r = 0; r <= WEFT_TUNED_ROWS; r++) t->pass[r].n = 0;
    t->link.n = 0;
}
void weft_pace_times_free(weft_pace_times *t) {
    for (int r = 0; r <= WEFT_TUNED_ROWS; r++) weft_vec_free(&t->pass[r]);
    weft_vec_free(&t->link);
}

/* bpe.c: merges by a priority queue.
 *
 * The tokens of a piece form a list; the queue holds every adjacent pair that has a rule, as rank << 32 | place of its left token.
 * A merge makes at most two new pairs, so that n tokens take O(n log n) steps. Entries are not removed when a neighbour changes:
 * one is stale if its two tokens are no longer those of its rule. */
#include "text/bpe.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

struct weft_bpe_node {
    int32_t id;         /* -1: taken up by the token to the left */
    int32_t prev, next; /* -1 at the ends */
};

static uint32_t *slot(const weft_bpe *b, int32_t left, int32_t right) {
    int32_t pair[2] = {left, right};
    for (size_t at = weft_hash(pair, sizeof pair, 0) & b->mask;; at = (at + 1) & b->mask) {
        uint32_t r = b->table[at];
        if (r == 0 || (b->rules[r - 1].left == left && b->rules[r - 1].right == right)) return &b->table[at];
    }
}

bool weft_bpe_init(weft_bpe *b, weft_bpe_rule *rules, size_t n) {
    b->rules = rules;
    b->n_rules = n;
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    b->table = weft_calloc(size, sizeof *b->table);
    if (!b->table) return false;
    b->mask = size - 1;
    for (size_t rank = 0; rank < n; rank++) *slot(b, rules[rank].left, rules[rank].right) = (uint32_t)rank + 1;
    return true;
}

void weft_bpe_free(weft_bpe *b) {
    weft_free(b->rules);
    weft_free(b->table);
    *b = (weft_bpe){0};
}

void weft_bpe_work_free(weft_bpe_work *w) {
    weft_vec_free(&w->row);
    weft_free(w->node);
    weft_free(w->heap);
    *w = (weft_bpe_work){0};
}

static void sift_down(uint64_t *heap, size_t n, size_t at) {
    uint64_t x = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (x <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static void push(uint64_t *heap, size_t *n, uint64_t x) {
    size_t at = (*n)++;
    for (; at > 0 && x < heap[(at - 1) / 2]; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = x;
}

/* The queue entry for the pair at node `at` and the next one; UINT64_MAX if no rule merges it. */
static uint64_t entry(const weft_bpe *b, const struct weft_bpe_node *node, int32_t at) {
    uint32_t r = *slot(b, node[at].id, node[node[at].next].id);
    return r ? (uint64_t)(r - 1) << 32 | (uint32_t)at : UINT64_MAX;
}

bool weft_bpe_merge(const weft_bpe *b, weft_bpe_work *w, weft_ids *out) {
    const int32_t *row = w->row.v;
    size_t n = w->row.n;
    if (n == 0) return true;
    if (n == 1) return weft_vec_push(out, row[0]);
    /* n - 1 entries at first, and each of at most n - 1 merges takes one out and puts two in */
    if (!weft_vec_room((void **)&w->node, &w->node_cap, n, sizeof *w->node) ||
        !weft_vec_room((void **)&w->heap, &w->heap_cap, 2 * n, sizeof *w->heap))
        return false;
    struct weft_bpe_node *node = w->node;
    uint64_t *heap = w->heap;
    for (size_t i = 0; i < n; i++) node[i] = (struct weft_bpe_node){row[i], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
    size_t queued = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        uint64_t x = entry(b, node, (int32_t)i);
        if (x != UINT64_MAX) heap[queued++] = x;
    }
    for (size_t i = queued / 2; i-- > 0;) sift_down(heap, queued, i);

    while (queued > 0) {
        int32_t at = (int32_t)(heap[0] & UINT32_MAX);
        const weft_bpe_rule *rule = &b->rules[heap[0] >> 32];
        heap[0] = heap[--queued];
        if (queued > 1) sift_down(heap, queued, 0);
        int32_t right = node[at].next;
        if (node[at].id != rule->left || right < 0 || node[right].id != rule->right) continue;
        int32_t after = node[right].next;
        node[at].id = rule->made;
        node[at].next = after;
        node[right].id = -1;
        uint64_t x;
        if (after >= 0) {
            node[after].prev = at;
            if ((x = entry(b, node, at)) != UINT64_MAX) push(heap, &queued, x);
        }
        if (node[at].prev >= 0 && (x = entry(b, node, node[at].prev)) != UINT64_MAX) push(heap, &queued, x);
    }

    size_t count = 0;
    for (int32_t at = 0; at >= 0; at = node[at].next) count++;
    if (!weft_vec_reserve(out, out->n + count)) return false;
    for (int32_t at = 0; at >= 0; at = node[at].next) out->v[out->n++] = node[at].id;
    return true;
}

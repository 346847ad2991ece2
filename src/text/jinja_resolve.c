/* jinja_resolve.c: what is known of names before a template runs.
 *
 * In jinja2 a scope that sets a name before it reads it owns the name from its start: reading it from inside (a loop, a macro
 * called early) gives undefined, even where a variable of that name was given. A name that is set under a condition, or read first,
 * is looked up outside until it is set. weft_jj_resolve() finds the names of the first sort, scope by scope. Every scope is looked
 * through without the scopes inside it first, then those. */
#include "text/jinja_ast.h"

typedef struct frame {
    struct frame *parent;
    jj_map *seen; /* numbers of names that the scope reads, sets or gets */
    jj_body *body;
    size_t cap_missing;
} frame;

typedef struct macro {
    struct macro *parent;
    jj_args *args;
} macro;

typedef struct resolver {
    jj *j;
    weft_jinja *t;
    macro *macros; /* around what is looked at */
    int loops;
    bool in_loop; /* break and continue have a loop to end */
} resolver;

/* Whether the scope or one around it has the name. */
static bool known(resolver *r, const frame *f, int name) {
    for (; f; f = f->parent) {
        jj_value *found;
        if (!weft_jj_lookup(r->j, f->seen, weft_jj_int(name), &found) || found) return true;
    }
    return false;
}

static bool see(resolver *r, frame *f, int name) {
    return weft_jj_put(r->j, f->seen, weft_jj_int(name), weft_jj_none());
}

static bool read_name(resolver *r, frame *f, int name) {
    for (macro *m = r->macros; m; m = m->parent) {
        m->args->caller |= name == r->t->caller;
        m->args->varargs |= name == r->t->varargs;
        m->args->kwargs |= name == r->t->kwargs;
    }
    return see(r, f, name);
}

static bool set_name(resolver *r, frame *f, int name, bool conditional) {
    if (r->loops && name == r->t->loop) return weft_jj_fail(r->j, WEFT_EFORMAT, "cannot assign to 'loop' in a for loop");
    if (!conditional && !known(r, f, name)) {
        jj_body *b = f->body;
        if (!weft_jj_room(r->j, (void **)&b->missing, &f->cap_missing, b->n_missing + 1, sizeof *b->missing)) return false;
        b->missing[b->n_missing++] = name;
    }
    return see(r, f, name);
}

/* ---- expressions --------------------------------------------------------------------------------------------------------- */

/* soft: inside a condition, where an unknown filter is an error only when it is reached. */
static bool walk(resolver *r, frame *f, const jj_node *n, bool soft) {
    if (!n) return true;
    if (n->kind == JJ_N_NAME) return read_name(r, f, n->name);
    if ((n->kind == JJ_N_FILTER || n->kind == JJ_N_TEST) && n->number < 0 && !soft) {
        r->j->line = n->line;
        return weft_jj_fail(r->j, WEFT_EFORMAT, "no %s named '%.*s'", n->kind == JJ_N_FILTER ? "filter" : "test",
                            (int)(n->s->n < 80 ? n->s->n : 80), n->s->p);
    }
    soft |= n->kind == JJ_N_COND;
    if (!walk(r, f, n->a, soft) || !walk(r, f, n->b, soft)) return false;
    for (size_t i = 0; i < n->n; i++)
        if (!walk(r, f, n->v[i], soft)) return false;
    if (!n->args) return true;
    for (size_t i = 0; i < n->args->n_pos; i++)
        if (!walk(r, f, n->args->pos[i], soft)) return false;
    for (size_t i = 0; i < n->args->n_kw; i++)
        if (!walk(r, f, n->args->kw[i], soft)) return false;
    return walk(r, f, n->args->star, soft) && walk(r, f, n->args->star2, soft);
}

static bool set_target(resolver *r, frame *f, const jj_node *n, bool conditional) {
    r->j->line = n->line;
    if (n->kind == JJ_N_NAME) return set_name(r, f, n->name, conditional);
    if (n->kind == JJ_N_NSREF) return read_name(r, f, n->name);
    for (size_t i = 0; i < n->n; i++)
        if (!set_target(r, f, n->v[i], conditional)) return false;
    return true;
}

/* The names that a loop, a macro or {% with %} gives its scope. */
static bool get_target(resolver *r, frame *f, const jj_node *n) {
    r->j->line = n->line;
    if (n->kind == JJ_N_NAME) {
        if (r->loops && n->name == r->t->loop) return weft_jj_fail(r->j, WEFT_EFORMAT, "cannot assign to 'loop' in a for loop");
        return see(r, f, n->name);
    }
    for (size_t i = 0; i < n->n; i++)
        if (!get_target(r, f, n->v[i])) return false;
    return true;
}

/* ---- statements ---------------------------------------------------------------------------------------------------------- */

static bool own(resolver *r, frame *f, const jj_body *body, bool conditional) {
    for (size_t i = 0; i < body->n; i++) {
        const jj_node *n = body->v[i];
        bool ok = true;
        switch ((jj_node_kind)n->kind) {
        case JJ_N_PRINT:
        case JJ_N_CALL_BLOCK: ok = walk(r, f, n->a, conditional); break;
        case JJ_N_FILTER_BLOCK: ok = walk(r, f, n->a, false); break;
        case JJ_N_FOR: ok = walk(r, f, n->b, conditional); break;
        case JJ_N_SET: ok = walk(r, f, n->b, conditional) && set_target(r, f, n->a, conditional); break;
        case JJ_N_SET_BLOCK: ok = walk(r, f, n->b, false) && set_target(r, f, n->a, conditional); break;
        case JJ_N_MACRO: ok = set_name(r, f, n->name, conditional); break;
        case JJ_N_WITH:
            for (size_t k = 1; ok && k < n->n; k += 2) ok = walk(r, f, n->v[k], conditional);
            break;
        case JJ_N_IF:
            for (size_t k = 0; ok && k < n->n_bodies; k++)
                ok = (k >= n->n || walk(r, f, n->v[k], true)) && own(r, f, &n->bodies[k], true);
            break;
        case JJ_N_BREAK:
        case JJ_N_CONTINUE:
            r->j->line = n->line;
            if (!r->in_loop) ok = weft_jj_fail(r->j, WEFT_EFORMAT, "{%% break %%} and {%% continue %%} belong into a loop");
            break;
        default: break;
        }
        if (!ok) return false;
    }
    return true;
}

static bool inner(resolver *r, frame *f, const jj_body *body);

static bool open_frame(resolver *r, frame *f, frame *parent, jj_body *body) {
    jj_value seen;
    *f = (frame){.parent = parent, .body = body};
    if (!weft_jj_map(r->j, &seen)) return false;
    f->seen = seen.map;
    return true;
}

static bool scope(resolver *r, frame *f) {
    return own(r, f, f->body, false) && inner(r, f, f->body);
}

static bool for_loop(resolver *r, frame *parent, const jj_node *n) {
    frame f;
    bool outside = r->in_loop;
    r->loops++;
    r->in_loop = true;
    if (!open_frame(r, &f, parent, &n->bodies[0]) || !get_target(r, &f, n->a)) return false;
    if (n->n && !walk(r, &f, n->v[0], false)) return false;
    if (!open_frame(r, &f, parent, &n->bodies[0]) || !see(r, &f, r->t->loop) || !get_target(r, &f, n->a) || !scope(r, &f))
        return false;
    r->in_loop = outside;
    if (n->n_bodies > 1 && (!open_frame(r, &f, parent, &n->bodies[1]) || !scope(r, &f))) return false;
    r->loops--;
    return true;
}

/* A macro, or the body of a call block. */
static bool function(resolver *r, frame *parent, const jj_node *n) {
    frame f;
    macro m = {r->macros, n->args};
    if (!open_frame(r, &f, parent, &n->bodies[0])) return false;
    for (size_t i = 0; i < n->args->n_key; i++)
        if (!see(r, &f, n->args->name[i])) return false;
    for (size_t i = 0; i < n->args->n_kw; i++)
        if (!walk(r, &f, n->args->kw[i], false)) return false;
    bool outside = r->in_loop;
    r->macros = &m;
    r->in_loop = false;
    /* Given to every macro that mentions them. */
    bool ok = see(r, &f, r->t->caller) && see(r, &f, r->t->varargs) && see(r, &f, r->t->kwargs) && scope(r, &f);
    r->in_loop = outside;
    r->macros = m.parent;
    return ok;
}

static bool inner(resolver *r, frame *f, const jj_body *body) {
    for (size_t i = 0; i < body->n; i++) {
        const jj_node *n = body->v[i];
        bool ok = true, outside = r->in_loop;
        frame child;
        switch ((jj_node_kind)n->kind) {
        case JJ_N_IF:
            for (size_t k = 0; ok && k < n->n_bodies; k++) ok = inner(r, f, &n->bodies[k]);
            break;
        case JJ_N_FOR: ok = for_loop(r, f, n); break;
        case JJ_N_MACRO:
        case JJ_N_CALL_BLOCK: ok = function(r, f, n); break;
        case JJ_N_SCOPE:
            r->in_loop = false;
            ok = open_frame(r, &child, f, &n->bodies[0]) && scope(r, &child);
            break;
        case JJ_N_WITH:
            ok = open_frame(r, &child, f, &n->bodies[0]);
            for (size_t k = 0; ok && k < n->n; k += 2) ok = get_target(r, &child, n->v[k]);
            ok = ok && scope(r, &child);
            break;
        case JJ_N_SET_BLOCK:
        case JJ_N_FILTER_BLOCK: ok = open_frame(r, &child, f, &n->bodies[0]) && scope(r, &child); break;
        default: break;
        }
        r->in_loop = outside;
        if (!ok) return false;
    }
    return true;
}

bool weft_jj_resolve(jj *j, weft_jinja *t) {
    resolver r = {.j = j, .t = t};
    frame root;
    return open_frame(&r, &root, NULL, &t->body) && scope(&r, &root);
}

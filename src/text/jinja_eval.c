/* jinja_eval.c: walks the tree of a template. Scopes are looked up by name from the innermost outwards, then come the variables
 * that were given and the global functions; jinja_resolve.c says which names a scope hides before it sets them. */
#include <string.h>

#include "text/jinja_run.h"
#include "text/jinja_text.h"

typedef enum outcome { DONE, BREAK, CONTINUE, FAILED } outcome;

static outcome run_body(jj *j, const jj_body *body, jj_scope *s, jj_sb *b);

static jj_value object(jj_kind kind, const void *p) {
    jj_value v = {.kind = (uint8_t)kind};
    v.p = p;
    return v;
}

/* ---- names --------------------------------------------------------------------------------------------------------------- */

static jj_var *var_in(jj_scope *s, int name) {
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].name == name) return &s->v[i];
    return NULL;
}

static bool add_var(jj *j, jj_scope *s, int name, jj_value v) {
    if (!weft_jj_room(j, (void **)&s->v, &s->cap, s->n + 1, sizeof *s->v)) return false;
    s->v[s->n++] = (jj_var){name, v};
    return true;
}

static bool define(jj *j, jj_scope *s, int name, jj_value v) {
    jj_var *known = var_in(s, name);
    if (!weft_jj_spend(j, s->n / 16)) return false;
    return known ? (known->value = v, true) : add_var(j, s, name, v);
}

static jj_value global(jj *j, int name) {
    jj_value *v = &j->globals[name];
    if (v->kind == JJ_MISSING) {
        const jj_str *s = j->t->names[name];
        const jj_value *given = j->vars ? weft_jj_find(j->vars->names, s) : NULL;
        int function = weft_jj_function_number(s);
        if (given) {
            *v = *given;
        } else if (function >= 0) {
            *v = (jj_value){.kind = JJ_FUNC};
            v->i = function;
        } else {
            *v = weft_jj_undefined(JJ_NO_NAME, s);
        }
    }
    return *v;
}

static bool lookup(jj *j, jj_scope *s, int name, jj_value *out) {
    for (; s; s = s->parent) {
        const jj_var *v = var_in(s, name);
        if (!weft_jj_spend(j, s->n / 16)) return false;
        if (!v) continue;
        *out = v->value.kind == JJ_MISSING ? weft_jj_undefined(JJ_NO_NAME, j->t->names[name]) : v->value;
        return true;
    }
    *out = global(j, name);
    return true;
}

static jj_scope *open_scope(jj *j, jj_scope *parent, const jj_body *body) {
    jj_scope *s = weft_jj_get(j, 1, sizeof *s);
    if (!s) return NULL;
    s->parent = parent;
    for (size_t i = 0; i < body->n_missing; i++)
        if (!add_var(j, s, body->missing[i], (jj_value){.kind = JJ_MISSING})) return NULL;
    return s;
}

static bool assign(jj *j, const jj_node *target, jj_scope *s, jj_value v) {
    if (target->kind == JJ_N_NAME) return define(j, s, target->name, v);
    if (target->kind == JJ_N_NSREF) {
        jj_value ns;
        if (!lookup(j, s, target->name, &ns)) return false;
        if (ns.kind != JJ_NAMESPACE) return weft_jj_fail(j, WEFT_EFORMAT, "cannot assign attribute on non-namespace object");
        return weft_jj_put(j, ns.map, weft_jj_of_str(target->s), v);
    }
    jj_value items = v;
    if (v.kind != JJ_LIST && v.kind != JJ_TUPLE && !weft_jj_collect(j, v, &items)) return false;
    if (items.list->n < target->n)
        return weft_jj_fail(j, WEFT_EFORMAT, "not enough values to unpack (expected %zu, got %zu)", target->n, items.list->n);
    if (items.list->n > target->n) return weft_jj_fail(j, WEFT_EFORMAT, "too many values to unpack (expected %zu)", target->n);
    for (size_t i = 0; i < target->n; i++)
        if (!assign(j, target->v[i], s, items.list->v[i])) return false;
    return true;
}

/* ---- calls --------------------------------------------------------------------------------------------------------------- */

static bool add_starred(jj *j, const jj_args *a, jj_scope *s, jj_call *c, size_t cap) {
    jj_value v, item;
    jj_iter it;
    jj_step step;
    if (a->star) {
        if (!weft_jj_eval(j, a->star, s, &v) || !weft_jj_iterate(j, v, &it)) return false;
        while ((step = weft_jj_next(j, &it, &item)) == JJ_GOT) {
            if (!weft_jj_room(j, (void **)&c->arg, &cap, c->n + 1, sizeof *c->arg)) return false;
            c->arg[c->n++] = item;
        }
        if (step == JJ_FAILED) return false;
    }
    if (!a->star2) return true;
    if (!weft_jj_eval(j, a->star2, s, &v)) return false;
    if (v.kind != JJ_MAP) return weft_jj_type_error(j, "argument after ** must be a mapping, not %s", weft_jj_type(v));
    const jj_str **key = weft_jj_get(j, c->n_kw + v.map->n, sizeof *key);
    jj_value *kw = weft_jj_get(j, c->n_kw + v.map->n, sizeof *kw);
    if (!key || !kw) return false;
    if (c->n_kw) {
        memcpy(key, c->key, c->n_kw * sizeof *key);
        memcpy(kw, c->kw, c->n_kw * sizeof *kw);
    }
    for (size_t i = 0; i < v.map->n; i++) {
        if (v.map->v[i].key.kind != JJ_STR) return weft_jj_type_error(j, "keywords must be strings");
        key[c->n_kw] = v.map->v[i].key.s;
        kw[c->n_kw++] = v.map->v[i].value;
    }
    c->key = key;
    c->kw = kw;
    return true;
}

static bool eval_args(jj *j, const jj_args *a, jj_scope *s, jj_call *c) {
    *c = (jj_call){.what = "function", .key = a->key};
    if (a->n_pos && !(c->arg = weft_jj_get(j, a->n_pos, sizeof *c->arg))) return false;
    if (a->n_kw && !(c->kw = weft_jj_get(j, a->n_kw, sizeof *c->kw))) return false;
    for (; c->n < a->n_pos; c->n++)
        if (!weft_jj_eval(j, a->pos[c->n], s, &c->arg[c->n])) return false;
    for (; c->n_kw < a->n_kw; c->n_kw++)
        if (!weft_jj_eval(j, a->kw[c->n_kw], s, &c->kw[c->n_kw])) return false;
    return !(a->star || a->star2) || add_starred(j, a, s, c, a->n_pos);
}

/* Gives the scope of a macro its special names where the body mentions them. */
static bool define_extras(jj *j, const jj_args *sig, jj_scope *s, const jj_call *c, const bool *used, jj_value caller) {
    const weft_jinja *t = j->t;
    jj_value rest;
    bool named_caller = false, taken = caller.kind != JJ_MISSING;
    for (size_t i = 0; i < sig->n_key; i++) named_caller |= sig->name[i] == t->caller;
    if (!weft_jj_map(j, &rest)) return false;
    for (size_t k = 0; k < c->n_kw; k++) {
        if (used[k]) continue;
        if (sig->caller && !named_caller && !taken && weft_jj_is(c->key[k], "caller")) {
            caller = c->kw[k];
            taken = true;
        } else if (!sig->kwargs) {
            return weft_jj_type_error(j, "the macro takes no keyword argument '%.*s'", (int)(c->key[k]->n < 80 ? c->key[k]->n : 80),
                                      c->key[k]->p);
        } else if (!weft_jj_put(j, rest.map, weft_jj_of_str(c->key[k]), c->kw[k])) {
            return false;
        }
    }
    if (taken && !sig->caller && !named_caller) return weft_jj_type_error(j, "the macro takes no keyword argument 'caller'");
    if (sig->caller && !named_caller && !define(j, s, t->caller, taken ? caller : weft_jj_undefined_hint("No caller defined")))
        return false;
    if (sig->kwargs && !define(j, s, t->kwargs, rest)) return false;
    if (c->n > sig->n_key && !sig->varargs)
        return weft_jj_type_error(j, "the macro takes not more than %zu argument(s)", sig->n_key);
    if (!sig->varargs) return true;
    if (!weft_jj_list(j, 0, &rest)) return false;
    for (size_t i = sig->n_key; i < c->n; i++)
        if (!weft_jj_push(j, rest.list, c->arg[i])) return false;
    rest.kind = JJ_TUPLE;
    return define(j, s, t->varargs, rest);
}

/* Gives the scope of a macro its parameters: arguments, then defaults, which may refer to the parameters before them. */
static bool define_parameters(jj *j, const jj_args *sig, jj_scope *s, const jj_call *c, jj_value caller) {
    bool *used = weft_jj_get(j, c->n_kw + 1, sizeof *used);
    if (!used || !weft_jj_spend(j, c->n_kw * sig->n_key)) return false;
    for (size_t i = 0; i < sig->n_key; i++) {
        jj_value v = {.kind = JJ_MISSING};
        if (i < c->n) {
            v = c->arg[i];
        } else if (sig->name[i] == j->t->caller && caller.kind != JJ_MISSING) {
            v = caller;
        } else {
            for (size_t k = 0; k < c->n_kw; k++) {
                if (!weft_jj_same(c->key[k], sig->key[i])) continue;
                v = c->kw[k];
                used[k] = true;
            }
        }
        if (!define(j, s, sig->name[i], v)) return false;
    }
    if (!define_extras(j, sig, s, c, used, caller)) return false;
    for (size_t i = 0, first = sig->n_key - sig->n_kw; i < sig->n_key; i++) {
        jj_value v;
        if (var_in(s, sig->name[i])->value.kind != JJ_MISSING) continue;
        if (i >= first) {
            if (!weft_jj_eval(j, sig->kw[i - first], s, &v)) return false;
        } else {
            v = weft_jj_undefined(JJ_NO_NAME, sig->key[i]);
        }
        if (!define(j, s, sig->name[i], v)) return false;
    }
    return true;
}

static bool call_macro(jj *j, const jj_macro *m, const jj_call *c, jj_value caller, jj_value *out) {
    const jj_body *body = &m->node->bodies[0];
    jj_sb b = {.j = j};
    jj_scope *s = open_scope(j, m->scope, body);
    if (!s || !weft_jj_enter(j)) return false;
    bool ok = define_parameters(j, m->node->args, s, c, caller) && run_body(j, body, s, &b) != FAILED;
    weft_jj_leave(j);
    return ok && weft_jj_sb_end(&b, false, out);
}

bool weft_jj_call(jj *j, jj_value f, const jj_call *c, jj_value caller, jj_value *out) {
    switch ((jj_kind)f.kind) {
    case JJ_MACRO: return call_macro(j, f.p, c, caller, out);
    case JJ_UNDEFINED: return weft_jj_fail_undefined(j, f);
    case JJ_FUNC:
    case JJ_METHOD:
    case JJ_LOOP:
        if (caller.kind != JJ_MISSING) return weft_jj_type_error(j, "only macros can be called by {%% call %%}");
        if (f.kind == JJ_FUNC) return weft_jj_call_function(j, (int)f.i, c, out);
        return f.kind == JJ_METHOD ? weft_jj_call_method(j, f.p, c, out) : weft_jj_call_loop(j, f, c, out);
    case JJ_JOINER: {
        jj_joiner *joiner = (jj_joiner *)(uintptr_t)f.p;
        if (c->n || c->n_kw) return weft_jj_type_error(j, "a joiner takes no arguments");
        bool first = !joiner->used;
        joiner->used = true;
        *out = joiner->separator;
        return !first || weft_jj_text(j, "", out);
    }
    default: return weft_jj_type_error(j, "'%s' object is not callable", weft_jj_type(f));
    }
}

/* caller: of a call block, else MISSING. */
static bool eval_call(jj *j, const jj_node *n, jj_scope *s, jj_value caller, jj_value *out) {
    jj_value f;
    jj_call c;
    if (!weft_jj_eval(j, n->a, s, &f)) return false;
    if (!eval_args(j, n->args, s, &c)) return false;
    j->line = n->line;
    return weft_jj_call(j, f, &c, caller, out);
}

/* ---- expressions --------------------------------------------------------------------------------------------------------- */

static bool unknown(jj *j, const jj_node *n) {
    return weft_jj_fail(j, WEFT_EFORMAT, "no %s named '%.*s'", n->kind == JJ_N_FILTER ? "filter" : "test",
                        (int)(n->s->n < 80 ? n->s->n : 80), n->s->p);
}

static bool eval_filter(jj *j, const jj_node *n, jj_scope *s, jj_value input, jj_value *out) {
    jj_value v = input;
    jj_call c;
    /* In a block the innermost filter has no value of its own: it takes the text. */
    if (n->a && n->a->kind == JJ_N_FILTER ? !eval_filter(j, n->a, s, input, &v) : n->a && !weft_jj_eval(j, n->a, s, &v))
        return false;
    if (!eval_args(j, n->args, s, &c)) return false;
    j->line = n->line;
    return n->number < 0 ? unknown(j, n) : weft_jj_call_filter(j, n->number, v, &c, out);
}

static bool eval_test(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    jj_value v;
    jj_call c;
    bool holds;
    if (!weft_jj_eval(j, n->a, s, &v) || !eval_args(j, n->args, s, &c)) return false;
    j->line = n->line;
    if (n->number < 0) return unknown(j, n);
    if (!weft_jj_call_test(j, n->number, v, &c, &holds)) return false;
    *out = weft_jj_bool(holds);
    return true;
}

static bool eval_items(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    jj_value list;
    if (n->kind == JJ_N_DICT) {
        if (!weft_jj_map(j, &list)) return false;
        for (size_t i = 0; i < n->n; i += 2) {
            jj_value key, value;
            if (!weft_jj_eval(j, n->v[i], s, &key) || !weft_jj_eval(j, n->v[i + 1], s, &value)) return false;
            if (!weft_jj_put(j, list.map, key, value)) return false;
        }
    } else {
        if (!weft_jj_list(j, n->n, &list)) return false;
        for (size_t i = 0; i < n->n; i++)
            if (!weft_jj_eval(j, n->v[i], s, &list.list->v[i])) return false;
        list.list->n = n->n;
        if (n->kind == JJ_N_TUPLE) list.kind = JJ_TUPLE;
    }
    *out = list;
    return true;
}

static bool eval_compare(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    jj_value a, b;
    bool holds = true;
    if (!weft_jj_eval(j, n->v[0], s, &a)) return false;
    for (size_t i = 1; holds && i < n->n; i++) {
        if (!weft_jj_eval(j, n->v[i], s, &b) || !weft_jj_compare(j, (jj_compare)n->ops[i - 1], a, b, &holds)) return false;
        a = b;
    }
    *out = weft_jj_bool(holds);
    return true;
}

static bool eval_concat(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    jj_sb b = {.j = j};
    for (size_t i = 0; i < n->n; i++) {
        jj_value v;
        if (!weft_jj_eval(j, n->v[i], s, &v)) return false;
        weft_jj_add(&b, v);
    }
    return weft_jj_sb_end(&b, false, out);
}

static bool eval_slice(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    jj_value v[4];
    for (size_t i = 0; i < 4; i++) {
        v[i] = weft_jj_none();
        if (n->v[i] && !weft_jj_eval(j, n->v[i], s, &v[i])) return false;
    }
    return weft_jj_slice(j, v[0], v[1], v[2], v[3], out);
}

static bool eval_any(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    jj_value a, b;
    switch ((jj_node_kind)n->kind) {
    case JJ_N_CONST: *out = n->value; return true;
    case JJ_N_NAME: return lookup(j, s, n->name, out);
    case JJ_N_LIST:
    case JJ_N_TUPLE:
    case JJ_N_DICT: return eval_items(j, n, s, out);
    case JJ_N_CALL: return eval_call(j, n, s, (jj_value){.kind = JJ_MISSING}, out);
    case JJ_N_FILTER: return eval_filter(j, n, s, (jj_value){.kind = JJ_MISSING}, out);
    case JJ_N_TEST: return eval_test(j, n, s, out);
    case JJ_N_CONCAT: return eval_concat(j, n, s, out);
    case JJ_N_COMPARE: return eval_compare(j, n, s, out);
    case JJ_N_SLICE: return eval_slice(j, n, s, out);
    case JJ_N_COND:
        if (!weft_jj_eval(j, n->b, s, &b)) return false;
        if (weft_jj_truth(b)) return weft_jj_eval(j, n->a, s, out);
        if (n->n) return weft_jj_eval(j, n->v[0], s, out);
        *out = weft_jj_undefined_hint("the inline if-expression evaluated to false and no else section was defined.");
        return true;
    default: break;
    }
    if (!weft_jj_eval(j, n->a, s, &a)) return false;
    switch ((jj_node_kind)n->kind) {
    case JJ_N_ATTR: return weft_jj_attr(j, a, n->s, out);
    case JJ_N_NOT: *out = weft_jj_bool(!weft_jj_truth(a)); return true;
    case JJ_N_NEG:
    case JJ_N_POS: return weft_jj_negate(j, a, n->kind == JJ_N_NEG, out);
    case JJ_N_AND:
    case JJ_N_OR: *out = a; return weft_jj_truth(a) == (n->kind == JJ_N_OR) || weft_jj_eval(j, n->b, s, out);
    default: break;
    }
    if (!weft_jj_eval(j, n->b, s, &b)) return false;
    return n->kind == JJ_N_ITEM ? weft_jj_item(j, a, b, out) : weft_jj_math(j, (jj_token_kind)n->op, a, b, out);
}

bool weft_jj_eval(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    if (!weft_jj_spend(j, 1) || !weft_jj_enter(j)) return false;
    bool ok = eval_any(j, n, s, out);
    weft_jj_leave(j);
    return ok;
}

/* ---- loops --------------------------------------------------------------------------------------------------------------- */

bool weft_jj_loop_test(jj *j, const jj_gen *g, jj_value item, bool *holds) {
    jj_value v;
    g->scope->n = 0;
    if (!assign(j, g->target, g->scope, item) || !weft_jj_eval(j, g->test, g->scope, &v)) return false;
    *holds = weft_jj_truth(v);
    return true;
}

static jj_step read_ahead(jj *j, jj_loop *l) {
    if (l->after.kind != JJ_MISSING) return JJ_GOT;
    jj_step step = weft_jj_next(j, &l->in, &l->after);
    if (step != JJ_GOT) l->after.kind = JJ_MISSING;
    return step;
}

static jj_step advance(jj *j, jj_loop *l) {
    jj_step step = read_ahead(j, l);
    if (step != JJ_GOT) return step;
    if (j->iterations-- == 0) {
        j->iterations = 0;
        weft_jj_fail(j, WEFT_ESUPPORT, "the template's loops take too many rounds");
        return JJ_FAILED;
    }
    l->before = l->current;
    l->current = l->after;
    l->after.kind = JJ_MISSING;
    l->index0++;
    return JJ_GOT;
}

static bool loop_length(jj *j, jj_loop *l) {
    size_t n;
    jj_value rest;
    if (l->length >= 0) return true;
    if (l->source.kind != JJ_ITER && weft_jj_length(l->source, &n)) return l->length = (int64_t)n, true;
    if (!weft_jj_list(j, 0, &rest)) return false;
    for (;;) {
        jj_value v;
        jj_step step = weft_jj_next(j, &l->in, &v);
        if (step == JJ_FAILED || (step == JJ_GOT && !weft_jj_push(j, rest.list, v))) return false;
        if (step == JJ_ENDED) break;
    }
    l->in = (jj_iter){.source = rest};
    l->length = (int64_t)rest.list->n + l->index0 + 1 + (l->after.kind != JJ_MISSING);
    return true;
}

bool weft_jj_loop_attr(jj *j, jj_value of, const jj_str *name, jj_value *out) {
    if (of.kind == JJ_MACRO) {
        const jj_macro *m = of.p;
        if (weft_jj_is(name, "name")) *out = m->node->s ? weft_jj_of_str(m->node->s) : weft_jj_none();
        return true;
    }
    int method = weft_jj_method_number((jj_kind)of.kind, name);
    if (method >= 0) {
        jj_bound *b = weft_jj_get(j, 1, sizeof *b);
        if (!b) return false;
        *b = (jj_bound){of, method};
        *out = object(JJ_METHOD, b);
        return true;
    }
    if (of.kind == JJ_CYCLER) {
        const jj_cycler *c = of.p;
        if (weft_jj_is(name, "current")) *out = c->items->v[c->at];
        return true;
    }
    jj_loop *l = (jj_loop *)(uintptr_t)of.p;
    bool revindex = weft_jj_is(name, "revindex"), revindex0 = weft_jj_is(name, "revindex0");
    if (weft_jj_is(name, "index")) {
        *out = weft_jj_int(l->index0 + 1);
    } else if (weft_jj_is(name, "index0")) {
        *out = weft_jj_int(l->index0);
    } else if (weft_jj_is(name, "first")) {
        *out = weft_jj_bool(l->index0 == 0);
    } else if (weft_jj_is(name, "depth")) {
        *out = weft_jj_int(l->depth0 + 1);
    } else if (weft_jj_is(name, "depth0")) {
        *out = weft_jj_int(l->depth0);
    } else if (revindex || revindex0 || weft_jj_is(name, "length")) {
        if (!loop_length(j, l)) return false;
        *out = weft_jj_int(revindex ? l->length - l->index0 : revindex0 ? l->length - l->index0 - 1 : l->length);
    } else if (weft_jj_is(name, "previtem")) {
        *out = l->index0 == 0 ? weft_jj_undefined_hint("there is no previous item") : l->before;
    } else if (weft_jj_is(name, "last") || weft_jj_is(name, "nextitem")) {
        jj_step step = read_ahead(j, l);
        if (step == JJ_FAILED) return false;
        if (name->p[0] == 'l')
            *out = weft_jj_bool(step == JJ_ENDED);
        else
            *out = step == JJ_GOT ? l->after : weft_jj_undefined_hint("there is no next item");
    }
    return true;
}

static outcome run_else(jj *j, const jj_node *n, jj_scope *s, jj_sb *b) {
    jj_scope *inner = open_scope(j, s, &n->bodies[1]);
    return inner ? run_body(j, &n->bodies[1], inner, b) : FAILED;
}

static outcome run_for(jj *j, const jj_node *n, jj_scope *s, jj_value source, int64_t depth0, jj_sb *b) {
    jj_loop *l = weft_jj_get(j, 1, sizeof *l);
    jj_scope *inner = open_scope(j, s, &n->bodies[0]);
    if (!l || !inner || !weft_jj_iterate(j, source, &l->in)) return FAILED;
    if (n->n) {
        jj_gen *g = weft_jj_get(j, 1, sizeof *g);
        jj_body none = {0};
        if (!g) return FAILED;
        *g = (jj_gen){.kind = JJ_G_TEST, .in = l->in, .test = n->v[0], .target = n->a, .scope = open_scope(j, s, &none)};
        if (!g->scope) return FAILED;
        source = object(JJ_ITER, g);
        l->in = (jj_iter){.source = source};
    }
    l->node = n;
    l->scope = s;
    l->source = source;
    l->index0 = -1;
    l->length = -1;
    l->depth0 = depth0;
    size_t n_hidden = inner->n; /* names that the body sets before it reads them: hidden anew in every round */
    bool completed = false;     /* jinja2 runs the else branch where no round came to its end */
    jj_step step;
    while ((step = advance(j, l)) == JJ_GOT) {
        inner->n = n_hidden;
        for (size_t i = 0; i < n_hidden; i++) inner->v[i].value.kind = JJ_MISSING;
        if (!define(j, inner, j->t->loop, object(JJ_LOOP, l)) || !assign(j, n->a, inner, l->current)) return FAILED;
        outcome o = run_body(j, &n->bodies[0], inner, b);
        if (o == FAILED) return FAILED;
        if (o == BREAK) break;
        completed |= o == DONE;
    }
    if (step == JJ_FAILED) return FAILED;
    return !completed && n->n_bodies > 1 ? run_else(j, n, s, b) : DONE;
}

bool weft_jj_call_loop(jj *j, jj_value loop, const jj_call *c, jj_value *out) {
    const jj_loop *l = loop.p;
    jj_value arg[1];
    jj_sb b = {.j = j};
    if (!weft_jj_bind(j, c, "iterable", 1, arg)) return false;
    if (!l->node->op) return weft_jj_type_error(j, "The loop must have the 'recursive' marker to be called recursively.");
    if (!weft_jj_enter(j)) return false;
    outcome o = run_for(j, l->node, l->scope, arg[0], l->depth0 + 1, &b);
    weft_jj_leave(j);
    return o != FAILED && weft_jj_sb_end(&b, false, out);
}

/* ---- statements ---------------------------------------------------------------------------------------------------------- */

static outcome run_if(jj *j, const jj_node *n, jj_scope *s, jj_sb *b) {
    for (size_t i = 0; i < n->n; i++) {
        jj_value v;
        if (!weft_jj_eval(j, n->v[i], s, &v)) return FAILED;
        if (weft_jj_truth(v)) return run_body(j, &n->bodies[i], s, b);
    }
    return n->n_bodies > n->n ? run_body(j, &n->bodies[n->n], s, b) : DONE;
}

/* The body in a scope of its own, its text into a value, through the filters if there are any. */
static outcome capture(jj *j, const jj_node *n, const jj_node *filters, jj_scope *s, jj_value *text) {
    jj_sb inner = {.j = j};
    jj_scope *own = open_scope(j, s, &n->bodies[0]);
    outcome o = own ? run_body(j, &n->bodies[0], own, &inner) : FAILED;
    if (o != DONE) return o;
    if (!weft_jj_sb_end(&inner, false, text)) return FAILED;
    return !filters || eval_filter(j, filters, own, *text, text) ? DONE : FAILED;
}

static bool define_macro(jj *j, const jj_node *n, jj_scope *s, jj_value *out) {
    jj_macro *m = weft_jj_get(j, 1, sizeof *m);
    if (!m) return false;
    *m = (jj_macro){n, s};
    *out = object(JJ_MACRO, m);
    return true;
}

static outcome run_with(jj *j, const jj_node *n, jj_scope *s, jj_sb *b) {
    jj_scope *inner = open_scope(j, s, &n->bodies[0]);
    if (!inner) return FAILED;
    for (size_t i = 0; i < n->n; i += 2) {
        jj_value v;
        if (!weft_jj_eval(j, n->v[i + 1], s, &v) || !assign(j, n->v[i], inner, v)) return FAILED;
    }
    return run_body(j, &n->bodies[0], inner, b);
}

static outcome print(jj_sb *b, jj_value v) {
    weft_jj_add(b, v);
    return b->failed ? FAILED : DONE;
}

static outcome run_one(jj *j, const jj_node *n, jj_scope *s, jj_sb *b) {
    jj_value v;
    outcome o;
    j->line = n->line;
    switch ((jj_node_kind)n->kind) {
    case JJ_N_TEXT: return print(b, n->value);
    case JJ_N_PRINT: return weft_jj_eval(j, n->a, s, &v) ? print(b, v) : FAILED;
    case JJ_N_IF: return run_if(j, n, s, b);
    case JJ_N_FOR:
        if (!weft_jj_eval(j, n->b, s, &v)) return FAILED;
        return run_for(j, n, s, v, 0, b);
    case JJ_N_SET: return weft_jj_eval(j, n->b, s, &v) && assign(j, n->a, s, v) ? DONE : FAILED;
    case JJ_N_SET_BLOCK: o = capture(j, n, n->b, s, &v); return o == DONE && !assign(j, n->a, s, v) ? FAILED : o;
    case JJ_N_FILTER_BLOCK: o = capture(j, n, n->a, s, &v); return o == DONE ? print(b, v) : o;
    case JJ_N_MACRO: return define_macro(j, n, s, &v) && define(j, s, n->name, v) ? DONE : FAILED;
    case JJ_N_CALL_BLOCK: {
        jj_value caller;
        return define_macro(j, n, s, &caller) && eval_call(j, n->a, s, caller, &v) ? print(b, v) : FAILED;
    }
    case JJ_N_WITH: return run_with(j, n, s, b);
    case JJ_N_SCOPE: {
        jj_scope *inner = open_scope(j, s, &n->bodies[0]);
        return inner ? run_body(j, &n->bodies[0], inner, b) : FAILED;
    }
    case JJ_N_BREAK: return BREAK;
    case JJ_N_CONTINUE: return CONTINUE;
    default: return FAILED;
    }
}

static outcome run_body(jj *j, const jj_body *body, jj_scope *s, jj_sb *b) {
    if (!weft_jj_enter(j)) return FAILED;
    outcome o = DONE;
    for (size_t i = 0; i < body->n && o == DONE; i++) o = weft_jj_spend(j, 1) ? run_one(j, body->v[i], s, b) : FAILED;
    weft_jj_leave(j);
    return o;
}

bool weft_jj_run(jj *j, jj_sb *b) {
    jj_scope *root = open_scope(j, NULL, &j->t->body);
    return root && run_body(j, &j->t->body, root, b) != FAILED;
}

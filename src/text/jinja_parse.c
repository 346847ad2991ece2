/* jinja_parse.c: tokens to a tree, with the grammar of jinja2, its oddities included: filters bind tighter than every operator but
 * a sign in front, "~" tighter than "+", and "x is test y" takes y as the test's argument. */
#include <string.h>

#include "text/jinja_ast.h"

enum { NESTING = 150, EXPRESSION_DEPTH = 400, PARAMETERS = 250 };

static jj_node *expression(jj_parser *p);
static jj_node *unary(jj_parser *p, bool with_filter);
static jj_node *tuple(jj_parser *p, bool with_cond, const char *end_word, bool parentheses);
static bool statements(jj_parser *p, const char *end, jj_body *body);

/* ---- tokens -------------------------------------------------------------------------------------------------------------- */

static const jj_token *now(const jj_parser *p) {
    return &p->tokens.v[p->at];
}

static const jj_token *look(const jj_parser *p) {
    return &p->tokens.v[p->at + (now(p)->kind != JJ_T_END)];
}

static void next(jj_parser *p) {
    if (now(p)->kind != JJ_T_END) p->at++;
}

static bool is_word(const jj_token *t, const char *word) {
    return t->kind == JJ_T_NAME && weft_jj_is(t->value.s, word);
}

static bool skip_word(jj_parser *p, const char *word) {
    if (!is_word(now(p), word)) return false;
    next(p);
    return true;
}

static bool skip(jj_parser *p, jj_token_kind kind) {
    if (now(p)->kind != kind) return false;
    next(p);
    return true;
}

static const char *describe(const jj_token *t) {
    static const char *const name[] = {"the end of the template",
                                       "text",
                                       "{{",
                                       "}}",
                                       "{%",
                                       "%}",
                                       "a name",
                                       "a string",
                                       "a number",
                                       "+",
                                       "-",
                                       "*",
                                       "/",
                                       "//",
                                       "%",
                                       "**",
                                       "~",
                                       "[",
                                       "]",
                                       "(",
                                       ")",
                                       "{",
                                       "}",
                                       "==",
                                       "!=",
                                       ">",
                                       ">=",
                                       "<",
                                       "<=",
                                       "=",
                                       ".",
                                       ":",
                                       "|",
                                       ",",
                                       ";"};
    return name[t->kind];
}

static bool fail_expected(jj_parser *p, const char *what) {
    const jj_token *t = now(p);
    p->j->line = t->line;
    if (t->kind == JJ_T_NAME)
        return weft_jj_fail(p->j, WEFT_EFORMAT, "expected %s, found '%.*s'", what, (int)(t->value.s->n < 80 ? t->value.s->n : 80),
                            t->value.s->p);
    return weft_jj_fail(p->j, WEFT_EFORMAT, "expected %s, found %s", what, describe(t));
}

static bool expect(jj_parser *p, jj_token_kind kind) {
    if (skip(p, kind)) return true;
    return fail_expected(p, describe(&(jj_token){.kind = kind}));
}

static bool fail_here(jj_parser *p, weft_status code, const char *what) {
    p->j->line = now(p)->line;
    return weft_jj_fail(p->j, code, "%s", what);
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

int weft_jj_name(jj_parser *p, const jj_str *s) {
    weft_jinja *t = p->t;
    const jj_value *known = weft_jj_find(t->numbers, s);
    if (known) return (int)known->i;
    if (!weft_jj_room(p->j, (void **)&t->names, &p->cap_names, t->n_names + 1, sizeof *t->names)) return -1;
    if (!weft_jj_put(p->j, t->numbers, weft_jj_of_str(s), weft_jj_int((int64_t)t->n_names))) return -1;
    t->names[t->n_names] = s;
    return (int)t->n_names++;
}

static jj_node *make(jj_parser *p, jj_node_kind kind, int line) {
    jj_node *n = weft_jj_get(p->j, 1, sizeof *n);
    if (!n) return NULL;
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

/* Every expression passes here once its parts are set: a tree as deep as a long "a + b + c + ..." would overrun the stack. */
static jj_node *done(jj_parser *p, jj_node *n) {
    if (!n) return NULL;
    if (n->a && n->a->depth >= n->depth) n->depth = n->a->depth + 1;
    if (n->b && n->b->depth >= n->depth) n->depth = n->b->depth + 1;
    for (size_t i = 0; i < n->n; i++)
        if (n->v[i] && n->v[i]->depth >= n->depth) n->depth = n->v[i]->depth + 1;
    if (n->args) {
        for (size_t i = 0; i < n->args->n_pos; i++)
            if (n->args->pos[i]->depth >= n->depth) n->depth = n->args->pos[i]->depth + 1;
        for (size_t i = 0; i < n->args->n_kw; i++)
            if (n->args->kw[i]->depth >= n->depth) n->depth = n->args->kw[i]->depth + 1;
    }
    if (n->depth <= EXPRESSION_DEPTH) return n;
    fail_here(p, WEFT_ESUPPORT, "an expression with too many levels");
    return NULL;
}

static jj_node *with_a(jj_parser *p, jj_node_kind kind, int line, jj_node *a) {
    jj_node *n = a ? make(p, kind, line) : NULL;
    if (!n) return NULL;
    n->a = a;
    return done(p, n);
}

static jj_node *with_ab(jj_parser *p, jj_node_kind kind, int op, int line, jj_node *a, jj_node *b) {
    jj_node *n = a && b ? make(p, kind, line) : NULL;
    if (!n) return NULL;
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return done(p, n);
}

typedef struct nodes {
    jj_node **v;
    size_t n, cap;
} nodes;

static bool add(jj_parser *p, nodes *l, jj_node *n) {
    if (!n || !weft_jj_room(p->j, (void **)&l->v, &l->cap, l->n + 1, sizeof *l->v)) return false;
    l->v[l->n++] = n;
    return true;
}

static jj_node *with_list(jj_parser *p, jj_node_kind kind, int line, nodes list) {
    jj_node *n = make(p, kind, line);
    if (!n) return NULL;
    n->v = list.v;
    n->n = list.n;
    return done(p, n);
}

static jj_node *constant(jj_parser *p, int line, jj_value value) {
    jj_node *n = make(p, JJ_N_CONST, line);
    if (n) n->value = value;
    return n;
}

static bool enter(jj_parser *p) {
    if (++p->depth <= NESTING) return true;
    return fail_here(p, WEFT_ESUPPORT, "the template is nested too deeply");
}

static void *leave(jj_parser *p, void *result) {
    p->depth--;
    return result;
}

/* ---- primary expressions ------------------------------------------------------------------------------------------------- */

static jj_node *primary(jj_parser *p, bool with_namespace) {
    const jj_token *t = now(p);
    int line = t->line;
    switch (t->kind) {
    case JJ_T_NAME: {
        next(p);
        const jj_str *s = t->value.s;
        if (weft_jj_is(s, "true") || weft_jj_is(s, "True")) return constant(p, line, weft_jj_bool(true));
        if (weft_jj_is(s, "false") || weft_jj_is(s, "False")) return constant(p, line, weft_jj_bool(false));
        if (weft_jj_is(s, "none") || weft_jj_is(s, "None")) return constant(p, line, weft_jj_none());
        bool field = with_namespace && skip(p, JJ_T_DOT);
        jj_node *n = make(p, field ? JJ_N_NSREF : JJ_N_NAME, line);
        if (!n || (n->name = weft_jj_name(p, s)) < 0) return NULL;
        n->s = s;
        if (field) {
            n->s = now(p)->value.s;
            if (!expect(p, JJ_T_NAME)) return NULL;
        }
        return n;
    }
    case JJ_T_STRING: {
        next(p);
        if (now(p)->kind != JJ_T_STRING) return constant(p, line, t->value);
        jj_sb b = {.j = p->j};
        weft_jj_sb_add_str(&b, t->value.s);
        for (; now(p)->kind == JJ_T_STRING; next(p)) weft_jj_sb_add_str(&b, now(p)->value.s);
        jj_value joined;
        return weft_jj_sb_end(&b, false, &joined) ? constant(p, line, joined) : NULL;
    }
    case JJ_T_NUMBER: next(p); return constant(p, line, t->value);
    case JJ_T_LPAREN: {
        next(p);
        jj_node *n = tuple(p, true, NULL, true);
        return n && expect(p, JJ_T_RPAREN) ? n : NULL;
    }
    case JJ_T_LBRACKET:
    case JJ_T_LBRACE: {
        bool dict = t->kind == JJ_T_LBRACE;
        jj_token_kind close = dict ? JJ_T_RBRACE : JJ_T_RBRACKET;
        nodes items = {0};
        next(p);
        while (now(p)->kind != close) {
            if (items.n && !expect(p, JJ_T_COMMA)) return NULL;
            if (now(p)->kind == close) break;
            if (!add(p, &items, expression(p))) return NULL;
            if (dict && (!expect(p, JJ_T_COLON) || !add(p, &items, expression(p)))) return NULL;
        }
        next(p);
        return with_list(p, dict ? JJ_N_DICT : JJ_N_LIST, line, items);
    }
    default: fail_expected(p, "an expression"); return NULL;
    }
}

/* "(a, *b, c=d, **e)". NULL on failure. */
static jj_args *call_args(jj_parser *p) {
    jj_args *a = weft_jj_get(p->j, 1, sizeof *a);
    if (!a || !expect(p, JJ_T_LPAREN)) return NULL;
    for (bool first = true; now(p)->kind != JJ_T_RPAREN; first = false) {
        if (!first) {
            if (!expect(p, JJ_T_COMMA)) return NULL;
            if (now(p)->kind == JJ_T_RPAREN) break;
        }
        bool ok;
        if (now(p)->kind == JJ_T_MUL) {
            ok = !a->star && !a->star2;
            next(p);
            if (ok && !(a->star = expression(p))) return NULL;
        } else if (now(p)->kind == JJ_T_POW) {
            ok = !a->star2;
            next(p);
            if (ok && !(a->star2 = expression(p))) return NULL;
        } else if (now(p)->kind == JJ_T_NAME && look(p)->kind == JJ_T_ASSIGN) {
            ok = !a->star2;
            const jj_str *key = now(p)->value.s;
            next(p);
            next(p);
            nodes kw = {a->kw, a->n_kw, a->cap_kw};
            if (!weft_jj_room(p->j, (void **)&a->key, &a->cap_key, a->n_key + 1, sizeof *a->key) || !add(p, &kw, expression(p)))
                return NULL;
            a->key[a->n_key++] = key;
            a->kw = kw.v;
            a->n_kw = kw.n;
            a->cap_kw = kw.cap;
        } else {
            ok = !a->star && !a->star2 && !a->n_kw;
            nodes pos = {a->pos, a->n_pos, a->cap_pos};
            if (!add(p, &pos, expression(p))) return NULL;
            a->pos = pos.v;
            a->n_pos = pos.n;
            a->cap_pos = pos.cap;
        }
        if (!ok) {
            fail_here(p, WEFT_EFORMAT, "arguments in the wrong order");
            return NULL;
        }
    }
    next(p);
    return a;
}

static jj_node *call(jj_parser *p, jj_node *callee) {
    jj_node *n = make(p, JJ_N_CALL, now(p)->line);
    if (!n || !(n->args = call_args(p))) return NULL;
    n->a = callee;
    return done(p, n);
}

/* What stands in "[...]": an expression or a slice of `of`. */
static jj_node *subscript(jj_parser *p, jj_node *of, int line) {
    nodes items = {0};
    bool slice = false;
    while (now(p)->kind != JJ_T_RBRACKET) {
        if (items.n && !expect(p, JJ_T_COMMA)) return NULL;
        jj_node *part[4] = {of};
        size_t n = 1;
        bool colon = now(p)->kind == JJ_T_COLON;
        if (!colon && !(part[1] = expression(p))) return NULL;
        while (n < 3 && skip(p, JJ_T_COLON)) {
            slice = true;
            n++;
            jj_token_kind k = now(p)->kind;
            if (k != JJ_T_COLON && k != JJ_T_RBRACKET && k != JJ_T_COMMA && !(part[n] = expression(p))) return NULL;
        }
        if (slice) {
            if (items.n || now(p)->kind != JJ_T_RBRACKET) {
                fail_here(p, WEFT_ESUPPORT, "slices in more than one dimension");
                return NULL;
            }
            next(p);
            jj_node *node = make(p, JJ_N_SLICE, line);
            if (!node || !(node->v = weft_jj_get(p->j, 4, sizeof *node->v))) return NULL;
            memcpy(node->v, part, sizeof part);
            node->n = 4;
            return done(p, node);
        }
        if (!add(p, &items, part[1])) return NULL;
    }
    next(p);
    return with_ab(p, JJ_N_ITEM, 0, line, of, items.n == 1 ? items.v[0] : with_list(p, JJ_N_TUPLE, line, items));
}

static jj_node *attribute(jj_parser *p, jj_node *of, int line) {
    const jj_token *t = now(p);
    if (t->kind == JJ_T_NUMBER && t->value.kind == JJ_INT) {
        next(p);
        return with_ab(p, JJ_N_ITEM, 0, line, of, constant(p, t->line, t->value));
    }
    if (t->kind != JJ_T_NAME) {
        fail_expected(p, "a name after the dot");
        return NULL;
    }
    next(p);
    jj_node *n = with_a(p, JJ_N_ATTR, line, of);
    if (n) n->s = t->value.s;
    return n;
}

static jj_node *postfix(jj_parser *p, jj_node *n) {
    while (n) {
        int line = now(p)->line;
        if (skip(p, JJ_T_DOT))
            n = attribute(p, n, line);
        else if (skip(p, JJ_T_LBRACKET))
            n = subscript(p, n, line);
        else if (now(p)->kind == JJ_T_LPAREN)
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* ---- filters and tests --------------------------------------------------------------------------------------------------- */

/* A name, perhaps with dots, as filters and tests may have. */
static const jj_str *dotted(jj_parser *p) {
    const jj_str *s = now(p)->value.s;
    if (!expect(p, JJ_T_NAME)) return NULL;
    while (skip(p, JJ_T_DOT)) {
        jj_sb b = {.j = p->j};
        jj_value joined;
        weft_jj_sb_add_str(&b, s);
        weft_jj_sb_addz(&b, ".");
        const jj_token *t = now(p);
        if (!expect(p, JJ_T_NAME)) return NULL;
        weft_jj_sb_add_str(&b, t->value.s);
        if (!weft_jj_sb_end(&b, false, &joined)) return NULL;
        s = joined.s;
    }
    return s;
}

/* The first filter after its "|", and those that follow. */
static jj_node *filters(jj_parser *p, jj_node *a) {
    do {
        jj_node *n = make(p, JJ_N_FILTER, now(p)->line);
        if (!n || !(n->s = dotted(p))) return NULL;
        n->number = weft_jj_filter_number(n->s);
        if (!(n->args = now(p)->kind == JJ_T_LPAREN ? call_args(p) : weft_jj_get(p->j, 1, sizeof *n->args))) return NULL;
        n->a = a;
        if (!(a = done(p, n))) return NULL;
    } while (skip(p, JJ_T_PIPE));
    return a;
}

static jj_node *test(jj_parser *p, jj_node *a) {
    int line = now(p)->line;
    next(p);
    bool negated = skip_word(p, "not");
    jj_node *n = make(p, JJ_N_TEST, line);
    if (!n || !(n->s = dotted(p))) return NULL;
    n->number = weft_jj_test_number(n->s);
    const jj_token *t = now(p);
    if (t->kind == JJ_T_LPAREN) {
        if (!(n->args = call_args(p))) return NULL;
    } else {
        if (!(n->args = weft_jj_get(p->j, 1, sizeof *n->args))) return NULL;
        bool operand = t->kind == JJ_T_STRING || t->kind == JJ_T_NUMBER || t->kind == JJ_T_LBRACKET || t->kind == JJ_T_LBRACE ||
                       (t->kind == JJ_T_NAME && !is_word(t, "else") && !is_word(t, "or") && !is_word(t, "and"));
        if (operand) {
            if (is_word(t, "is")) {
                fail_here(p, WEFT_EFORMAT, "tests with 'is' cannot be chained");
                return NULL;
            }
            nodes one = {0};
            jj_node *argument = primary(p, false);
            if (!add(p, &one, argument ? postfix(p, argument) : NULL)) return NULL;
            n->args->pos = one.v;
            n->args->n_pos = 1;
        }
    }
    n->a = a;
    n = done(p, n);
    return n && negated ? with_a(p, JJ_N_NOT, line, n) : n;
}

static jj_node *filter_expression(jj_parser *p, jj_node *n) {
    while (n) {
        if (skip(p, JJ_T_PIPE))
            n = filters(p, n);
        else if (is_word(now(p), "is"))
            n = test(p, n);
        else if (now(p)->kind == JJ_T_LPAREN)
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ----------------------------------------------------------------------------------------------------------- */

static jj_node *unary(jj_parser *p, bool with_filter) {
    int line = now(p)->line;
    if (!enter(p)) return NULL;
    jj_node *n;
    if (skip(p, JJ_T_SUB))
        n = with_a(p, JJ_N_NEG, line, unary(p, false));
    else if (skip(p, JJ_T_ADD))
        n = with_a(p, JJ_N_POS, line, unary(p, false));
    else
        n = primary(p, false);
    n = postfix(p, n);
    return leave(p, with_filter ? filter_expression(p, n) : n);
}

/* Left to right: ** before * / // % before ~ before + -. */
static jj_node *math(jj_parser *p, int level) {
    if (level == 3) {
        jj_node *n = unary(p, true);
        for (int line = now(p)->line; n && skip(p, JJ_T_POW); line = now(p)->line)
            n = with_ab(p, JJ_N_MATH, JJ_T_POW, line, n, unary(p, true));
        return n;
    }
    int line = now(p)->line;
    jj_node *n = math(p, level + 1);
    if (level == 1) {
        if (!n || now(p)->kind != JJ_T_TILDE) return n;
        nodes list = {0};
        if (!add(p, &list, n)) return NULL;
        while (skip(p, JJ_T_TILDE))
            if (!add(p, &list, math(p, level + 1))) return NULL;
        return with_list(p, JJ_N_CONCAT, line, list);
    }
    while (n) {
        jj_token_kind k = now(p)->kind;
        bool here =
            level == 0 ? k == JJ_T_ADD || k == JJ_T_SUB : k == JJ_T_MUL || k == JJ_T_DIV || k == JJ_T_FLOORDIV || k == JJ_T_MOD;
        if (!here) break;
        next(p);
        n = with_ab(p, JJ_N_MATH, k, line, n, math(p, level + 1));
        line = now(p)->line;
    }
    return n;
}

static int comparison(jj_parser *p) {
    static const struct {
        jj_token_kind token;
        jj_compare op;
    } op[] = {{JJ_T_EQ, JJ_C_EQ}, {JJ_T_NE, JJ_C_NE}, {JJ_T_LT, JJ_C_LT},
              {JJ_T_LE, JJ_C_LE}, {JJ_T_GT, JJ_C_GT}, {JJ_T_GE, JJ_C_GE}};
    for (size_t i = 0; i < sizeof op / sizeof *op; i++)
        if (skip(p, op[i].token)) return op[i].op;
    if (skip_word(p, "in")) return JJ_C_IN;
    if (is_word(now(p), "not") && is_word(look(p), "in")) {
        next(p);
        next(p);
        return JJ_C_NOT_IN;
    }
    return -1;
}

static jj_node *compare(jj_parser *p) {
    int line = now(p)->line;
    jj_node *n = math(p, 0);
    int op = n ? comparison(p) : -1;
    if (op < 0) return n;
    nodes list = {0};
    struct {
        uint8_t *v;
        size_t n, cap;
    } ops = {0};
    if (!add(p, &list, n)) return NULL;
    do {
        if (!weft_jj_room(p->j, (void **)&ops.v, &ops.cap, ops.n + 1, 1) || !add(p, &list, math(p, 0))) return NULL;
        ops.v[ops.n++] = (uint8_t)op;
    } while ((op = comparison(p)) >= 0);
    n = with_list(p, JJ_N_COMPARE, line, list);
    if (n) n->ops = ops.v;
    return n;
}

static jj_node *negation(jj_parser *p) {
    int line = now(p)->line;
    if (!skip_word(p, "not")) return compare(p);
    if (!enter(p)) return NULL;
    return leave(p, with_a(p, JJ_N_NOT, line, negation(p)));
}

static jj_node *conjunction(jj_parser *p) {
    int line = now(p)->line;
    jj_node *n = negation(p);
    for (; n && skip_word(p, "and"); line = now(p)->line) n = with_ab(p, JJ_N_AND, 0, line, n, negation(p));
    return n;
}

static jj_node *disjunction(jj_parser *p) {
    int line = now(p)->line;
    jj_node *n = conjunction(p);
    for (; n && skip_word(p, "or"); line = now(p)->line) n = with_ab(p, JJ_N_OR, 0, line, n, conjunction(p));
    return n;
}

static jj_node *expression(jj_parser *p) {
    if (!enter(p)) return NULL;
    int line = now(p)->line;
    jj_node *n = disjunction(p);
    for (; n && skip_word(p, "if"); line = now(p)->line) {
        jj_node *condition = disjunction(p), *cond = condition ? make(p, JJ_N_COND, line) : NULL;
        if (!cond) return NULL;
        cond->a = n;
        cond->b = condition;
        if (skip_word(p, "else")) {
            nodes other = {0};
            if (!add(p, &other, expression(p))) return NULL;
            cond->v = other.v;
            cond->n = 1;
        }
        n = done(p, cond);
    }
    return leave(p, n);
}

/* One expression, or a tuple where commas follow. */
static jj_node *tuple(jj_parser *p, bool with_cond, const char *end_word, bool parentheses) {
    nodes items = {0};
    bool is_tuple = false;
    int line = now(p)->line;
    for (;;) {
        if (items.n && !expect(p, JJ_T_COMMA)) return NULL;
        jj_token_kind k = now(p)->kind;
        if (k == JJ_T_PRINT_END || k == JJ_T_BLOCK_END || k == JJ_T_RPAREN || (end_word && is_word(now(p), end_word))) break;
        if (!add(p, &items, with_cond ? expression(p) : disjunction(p))) return NULL;
        if (now(p)->kind != JJ_T_COMMA) break;
        is_tuple = true;
        line = now(p)->line;
    }
    if (!is_tuple && items.n) return items.v[0];
    if (!is_tuple && !parentheses) {
        fail_expected(p, "an expression");
        return NULL;
    }
    return with_list(p, JJ_N_TUPLE, line, items);
}

/* ---- targets ------------------------------------------------------------------------------------------------------------- */

static bool assignable(const jj_node *n) {
    if (n->kind == JJ_N_TUPLE) {
        for (size_t i = 0; i < n->n; i++)
            if (!assignable(n->v[i])) return false;
        return true;
    }
    return n->kind == JJ_N_NAME || n->kind == JJ_N_NSREF;
}

/* Names, tuples of them, fields of namespaces if allowed, up to end_word. */
static jj_node *target(jj_parser *p, bool with_namespace, const char *end_word) {
    nodes items = {0};
    bool is_tuple = false;
    int line = now(p)->line;
    for (;;) {
        if (items.n && !expect(p, JJ_T_COMMA)) return NULL;
        jj_token_kind k = now(p)->kind;
        if (k == JJ_T_BLOCK_END || k == JJ_T_RPAREN || (end_word && is_word(now(p), end_word))) break;
        if (!add(p, &items, primary(p, with_namespace))) return NULL;
        if (now(p)->kind != JJ_T_COMMA) break;
        is_tuple = true;
    }
    if (!items.n) {
        fail_expected(p, "a name");
        return NULL;
    }
    jj_node *n = is_tuple ? with_list(p, JJ_N_TUPLE, line, items) : items.v[0];
    if (n && assignable(n)) return n;
    if (n) {
        p->j->line = line;
        weft_jj_fail(p->j, WEFT_EFORMAT, "cannot assign to this; expected a name");
    }
    return NULL;
}

static bool constant_word(const jj_str *s) {
    static const char *const word[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (weft_jj_is(s, word[i])) return true;
    return false;
}

static bool plain_name(jj_parser *p, const jj_str **s, int *number) {
    const jj_token *t = now(p);
    if (!expect(p, JJ_T_NAME)) return false;
    if (constant_word(t->value.s)) return fail_here(p, WEFT_EFORMAT, "cannot assign to a constant");
    *s = t->value.s;
    return (*number = weft_jj_name(p, *s)) >= 0;
}

/* "(a, b=1)" of a macro. */
static jj_args *signature(jj_parser *p) {
    jj_args *a = weft_jj_get(p->j, 1, sizeof *a);
    size_t cap_name = 0;
    nodes defaults = {0};
    if (!a || !expect(p, JJ_T_LPAREN)) return NULL;
    while (now(p)->kind != JJ_T_RPAREN) {
        if (a->n_key && !expect(p, JJ_T_COMMA)) return NULL;
        if (a->n_key == PARAMETERS) {
            fail_here(p, WEFT_ESUPPORT, "a macro with too many parameters");
            return NULL;
        }
        if (!weft_jj_room(p->j, (void **)&a->key, &a->cap_key, a->n_key + 1, sizeof *a->key) ||
            !weft_jj_room(p->j, (void **)&a->name, &cap_name, a->n_key + 1, sizeof *a->name) ||
            !plain_name(p, &a->key[a->n_key], &a->name[a->n_key]))
            return NULL;
        for (size_t i = 0; i < a->n_key; i++) {
            if (a->name[i] != a->name[a->n_key]) continue;
            fail_here(p, WEFT_EFORMAT, "two parameters of one name");
            return NULL;
        }
        a->n_key++;
        if (skip(p, JJ_T_ASSIGN)) {
            if (!add(p, &defaults, expression(p))) return NULL;
        } else if (defaults.n) {
            fail_here(p, WEFT_EFORMAT, "a parameter without default follows one with a default");
            return NULL;
        }
    }
    next(p);
    a->kw = defaults.v;
    a->n_kw = defaults.n;
    return a;
}

/* ---- statements ---------------------------------------------------------------------------------------------------------- */

static bool add_body(jj_parser *p, jj_node *n, size_t *cap, jj_body body) {
    if (!weft_jj_room(p->j, (void **)&n->bodies, cap, n->n_bodies + 1, sizeof *n->bodies)) return false;
    n->bodies[n->n_bodies++] = body;
    return true;
}

/* The body up to one of the words in `end` ("endif else"), which is the current token afterwards. */
static bool body_until(jj_parser *p, jj_node *n, size_t *cap, const char *end) {
    jj_body body = {0};
    return statements(p, end, &body) && add_body(p, n, cap, body);
}

static bool body_to_end(jj_parser *p, jj_node *n, const char *end) {
    size_t cap = 0;
    if (!body_until(p, n, &cap, end)) return false;
    next(p);
    return true;
}

static bool parse_for(jj_parser *p, jj_node *n) {
    size_t cap = 0;
    n->kind = JJ_N_FOR;
    if (!(n->a = target(p, false, "in"))) return false;
    if (!skip_word(p, "in")) return fail_expected(p, "'in'");
    if (!(n->b = tuple(p, false, "recursive", false))) return false;
    if (skip_word(p, "if")) {
        nodes one = {0};
        if (!add(p, &one, expression(p))) return false;
        n->v = one.v;
        n->n = 1;
    }
    n->op = skip_word(p, "recursive");
    if (!body_until(p, n, &cap, "endfor else")) return false;
    if (!skip_word(p, "else")) return next(p), true;
    if (!body_until(p, n, &cap, "endfor")) return false;
    next(p);
    return true;
}

static bool parse_if(jj_parser *p, jj_node *n) {
    size_t cap = 0;
    nodes conditions = {0};
    n->kind = JJ_N_IF;
    do {
        if (!add(p, &conditions, tuple(p, false, NULL, false)) || !body_until(p, n, &cap, "elif else endif")) return false;
    } while (skip_word(p, "elif"));
    n->v = conditions.v;
    n->n = conditions.n;
    if (skip_word(p, "else") && !body_until(p, n, &cap, "endif")) return false;
    next(p);
    return true;
}

static bool parse_set(jj_parser *p, jj_node *n) {
    if (!(n->a = target(p, true, NULL))) return false;
    if (skip(p, JJ_T_ASSIGN)) {
        n->kind = JJ_N_SET;
        return (n->b = tuple(p, true, NULL, false)) != NULL;
    }
    n->kind = JJ_N_SET_BLOCK;
    if (skip(p, JJ_T_PIPE) && !(n->b = filters(p, NULL))) return false;
    return body_to_end(p, n, "endset");
}

static bool parse_with(jj_parser *p, jj_node *n) {
    nodes pairs = {0};
    n->kind = JJ_N_WITH;
    while (now(p)->kind != JJ_T_BLOCK_END) {
        if (pairs.n && !expect(p, JJ_T_COMMA)) return false;
        if (!add(p, &pairs, target(p, false, NULL)) || !expect(p, JJ_T_ASSIGN) || !add(p, &pairs, expression(p))) return false;
    }
    n->v = pairs.v;
    n->n = pairs.n;
    return body_to_end(p, n, "endwith");
}

static bool parse_call_block(jj_parser *p, jj_node *n) {
    n->kind = JJ_N_CALL_BLOCK;
    n->args = now(p)->kind == JJ_T_LPAREN ? signature(p) : weft_jj_get(p->j, 1, sizeof *n->args);
    if (!n->args || !(n->a = expression(p))) return false;
    if (n->a->kind != JJ_N_CALL) return fail_here(p, WEFT_EFORMAT, "expected a call after {% call %}");
    return body_to_end(p, n, "endcall");
}

static bool parse_macro(jj_parser *p, jj_node *n) {
    n->kind = JJ_N_MACRO;
    return plain_name(p, &n->s, &n->name) && (n->args = signature(p)) != NULL && body_to_end(p, n, "endmacro");
}

static bool parse_print(jj_parser *p, jj_body *body, int line) {
    for (bool first = true; now(p)->kind != JJ_T_BLOCK_END; first = false) {
        if (!first && !expect(p, JJ_T_COMMA)) return false;
        nodes list = {body->v, body->n, body->cap};
        if (!add(p, &list, with_a(p, JJ_N_PRINT, line, expression(p)))) return false;
        body->v = list.v;
        body->n = list.n;
        body->cap = list.cap;
    }
    return true;
}

/* The statement whose name is the current token, up to its last "%}". */
static bool statement(jj_parser *p, jj_body *body) {
    const jj_token *t = now(p);
    int line = t->line;
    if (t->kind != JJ_T_NAME) return fail_expected(p, "the name of a statement");
    next(p);
    if (is_word(t, "print")) return parse_print(p, body, line);
    jj_node *n = make(p, JJ_N_SCOPE, line);
    nodes list = {body->v, body->n, body->cap};
    if (!add(p, &list, n)) return false;
    body->v = list.v;
    body->n = list.n;
    body->cap = list.cap;
    if (is_word(t, "for")) return parse_for(p, n);
    if (is_word(t, "if")) return parse_if(p, n);
    if (is_word(t, "set")) return parse_set(p, n);
    if (is_word(t, "with")) return parse_with(p, n);
    if (is_word(t, "macro")) return parse_macro(p, n);
    if (is_word(t, "call")) return parse_call_block(p, n);
    if (is_word(t, "generation")) return body_to_end(p, n, "endgeneration");
    if (is_word(t, "filter")) {
        n->kind = JJ_N_FILTER_BLOCK;
        return (n->a = filters(p, NULL)) != NULL && body_to_end(p, n, "endfilter");
    }
    if (is_word(t, "break") || is_word(t, "continue")) {
        n->kind = is_word(t, "break") ? JJ_N_BREAK : JJ_N_CONTINUE;
        return true;
    }
    static const char *const other[] = {"extends", "include", "import", "from", "block", "autoescape"};
    p->j->line = line;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (is_word(t, other[i]))
            return weft_jj_fail(p->j, WEFT_ESUPPORT, "{%% %s %%} is not supported in chat templates", other[i]);
    return weft_jj_fail(p->j, WEFT_EFORMAT, "unexpected statement '%.*s'", (int)(t->value.s->n < 80 ? t->value.s->n : 80),
                        t->value.s->p);
}

static bool is_one_of(const jj_token *t, const char *words) {
    if (t->kind != JJ_T_NAME) return false;
    size_t n = t->value.s->n;
    for (const char *w = words; *w;) {
        size_t len = strcspn(w, " ");
        if (len == n && memcmp(w, t->value.s->p, n) == 0) return true;
        w += len + (w[len] == ' ');
    }
    return false;
}

/* Text, prints and statements. end NULL: the whole template; otherwise the rest of a tag, a body, and "{% WORD" with WORD one of
 * `end`. */
static bool statements(jj_parser *p, const char *end, jj_body *body) {
    if (!enter(p)) return false;
    int line = now(p)->line;
    if (end) {
        skip(p, JJ_T_COLON);
        if (!expect(p, JJ_T_BLOCK_END)) return false;
    }
    for (;;) {
        const jj_token *t = now(p);
        nodes list = {body->v, body->n, body->cap};
        if (t->kind == JJ_T_END) {
            if (end) {
                p->j->line = line;
                return weft_jj_fail(p->j, WEFT_EFORMAT, "the block that begins here has no end: expected {%% %s %%}", end);
            }
            break;
        }
        next(p);
        if (t->kind == JJ_T_DATA) {
            jj_node *n = make(p, JJ_N_TEXT, t->line);
            if (!add(p, &list, n)) return false;
            n->value = t->value;
        } else if (t->kind == JJ_T_PRINT_BEGIN) {
            if (!add(p, &list, with_a(p, JJ_N_PRINT, t->line, tuple(p, true, NULL, false))) || !expect(p, JJ_T_PRINT_END))
                return false;
        } else {
            if (end && is_one_of(now(p), end)) break;
            if (!statement(p, body) || !expect(p, JJ_T_BLOCK_END)) return false;
            continue;
        }
        body->v = list.v;
        body->n = list.n;
        body->cap = list.cap;
    }
    return leave(p, p) != NULL;
}

bool weft_jj_parse(jj_parser *p) {
    return statements(p, NULL, &p->t->body);
}

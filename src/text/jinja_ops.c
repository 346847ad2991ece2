/* jinja_ops.c: operators on values: truth, comparison, arithmetic, str() and repr(). Attributes, items and iteration are in
 * jinja_access.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "text/jinja_run.h"
#include "text/jinja_text.h"

/* ---- kinds --------------------------------------------------------------------------------------------------------------- */

bool weft_jj_truth(jj_value v) {
    size_t n;
    switch ((jj_kind)v.kind) {
    case JJ_MISSING:
    case JJ_UNDEFINED:
    case JJ_NONE: return false;
    case JJ_BOOL: return v.b;
    case JJ_INT: return v.i != 0;
    case JJ_FLOAT: return v.f != 0;
    default: return !weft_jj_length(v, &n) || n > 0;
    }
}

static bool is_int(jj_value v) {
    return v.kind == JJ_INT || v.kind == JJ_BOOL;
}

static int64_t as_int(jj_value v) {
    return v.kind == JJ_BOOL ? v.b : v.i;
}

bool weft_jj_is_number(jj_value v) {
    return is_int(v) || v.kind == JJ_FLOAT || v.kind == JJ_BIG;
}

double weft_jj_to_double(jj_value v) {
    jj_value f;
    if (v.kind == JJ_FLOAT) return v.f;
    if (v.kind != JJ_BIG) return (double)as_int(v);
    return weft_jj_parse_float(v.s->p, v.s->n, &f) ? f.f : INFINITY;
}

/* ---- comparison ---------------------------------------------------------------------------------------------------------- */

enum { UNORDERED = 2 };

static int order(double a, double b) {
    return a < b ? -1 : a > b ? 1 : a == b ? 0 : UNORDERED;
}

/* Exact: a float and an integer beyond 2^53 are not compared after rounding. */
static int order_int_float(int64_t i, double f) {
    if (isnan(f)) return UNORDERED;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    return order(0, f - trunc(f));
}

static int order_numbers(jj_value a, jj_value b) {
    if (a.kind == JJ_BIG || b.kind == JJ_BIG) {
        if (a.kind == JJ_BIG && b.kind == JJ_BIG) {
            bool minus = a.s->p[0] == '-';
            if (minus != (b.s->p[0] == '-')) return minus ? -1 : 1;
            int o = a.s->n != b.s->n ? (a.s->n < b.s->n ? -1 : 1) : memcmp(a.s->p, b.s->p, a.s->n);
            o = (o > 0) - (o < 0);
            return minus ? -o : o;
        }
        if (a.kind == JJ_FLOAT || b.kind == JJ_FLOAT) return order(weft_jj_to_double(a), weft_jj_to_double(b));
        return a.kind == JJ_BIG ? (a.s->p[0] == '-' ? -1 : 1) : (b.s->p[0] == '-' ? 1 : -1);
    }
    if (a.kind == JJ_FLOAT && b.kind == JJ_FLOAT) return order(a.f, b.f);
    if (b.kind == JJ_FLOAT) return order_int_float(as_int(a), b.f);
    if (a.kind == JJ_FLOAT) {
        int o = order_int_float(as_int(b), a.f);
        return o == UNORDERED ? o : -o;
    }
    return (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
}

static bool equal_lists(jj *j, const jj_list *a, const jj_list *b, bool *equal) {
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && a != b && i < a->n; i++)
        if (!weft_jj_equal(j, a->v[i], b->v[i], equal)) return false;
    return true;
}

static bool equal_maps(jj *j, const jj_map *a, const jj_map *b, bool *equal) {
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && a != b && i < a->n; i++) {
        jj_value *other;
        if (!weft_jj_lookup(j, b, a->v[i].key, &other)) return false;
        if (!other)
            *equal = false;
        else if (!weft_jj_equal(j, a->v[i].value, *other, equal))
            return false;
    }
    return true;
}

bool weft_jj_equal(jj *j, jj_value a, jj_value b, bool *equal) {
    *equal = false;
    if (weft_jj_is_number(a) && weft_jj_is_number(b)) return *equal = order_numbers(a, b) == 0, true;
    if (a.kind != b.kind) return true;
    if (!weft_jj_spend(j, 1) || !weft_jj_enter(j)) return false;
    bool ok = true;
    const jj_range *x = a.p, *y = b.p;
    switch ((jj_kind)a.kind) {
    case JJ_UNDEFINED:
    case JJ_NONE: *equal = true; break;
    case JJ_STR:
        *equal = weft_jj_same(a.s, b.s);
        ok = weft_jj_spend(j, a.s->n / 64);
        break;
    case JJ_LIST:
    case JJ_TUPLE: ok = equal_lists(j, a.list, b.list, equal); break;
    case JJ_MAP: ok = equal_maps(j, a.map, b.map, equal); break;
    case JJ_RANGE: *equal = x->n == y->n && (x->n == 0 || (x->start == y->start && (x->n == 1 || x->step == y->step))); break;
    case JJ_FUNC: *equal = a.i == b.i; break;
    default: *equal = a.p == b.p && a.aux == b.aux; break;
    }
    weft_jj_leave(j);
    return ok;
}

bool weft_jj_less(jj *j, jj_value a, jj_value b, const char *op, bool or_equal, bool *less) {
    if (a.kind == JJ_UNDEFINED || b.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, a.kind == JJ_UNDEFINED ? a : b);
    if (!weft_jj_spend(j, 1)) return false;
    if (weft_jj_is_number(a) && weft_jj_is_number(b)) {
        int o = order_numbers(a, b);
        return *less = o == -1 || (or_equal && o == 0), true;
    }
    if (a.kind == JJ_STR && b.kind == JJ_STR) {
        size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        int o = memcmp(a.s->p, b.s->p, n);
        *less = o < 0 || (o == 0 && (a.s->n < b.s->n || (or_equal && a.s->n == b.s->n)));
        return weft_jj_spend(j, n / 64);
    }
    if ((a.kind == JJ_LIST || a.kind == JJ_TUPLE) && a.kind == b.kind) {
        size_t i = 0;
        for (bool equal = true; i < a.list->n && i < b.list->n; i++) {
            if (!weft_jj_equal(j, a.list->v[i], b.list->v[i], &equal)) return false;
            if (!equal) break;
        }
        if (i == a.list->n || i == b.list->n) return *less = a.list->n < b.list->n || (or_equal && a.list->n == b.list->n), true;
        if (!weft_jj_enter(j)) return false;
        bool ok = weft_jj_less(j, a.list->v[i], b.list->v[i], op, or_equal, less);
        weft_jj_leave(j);
        return ok;
    }
    if (op[0] == '>') {
        jj_value swap = a;
        a = b;
        b = swap;
    }
    return weft_jj_type_error(j, "'%s' not supported between instances of '%s' and '%s'", op, weft_jj_type(a), weft_jj_type(b));
}

bool weft_jj_contains(jj *j, jj_value container, jj_value item, bool *found) {
    *found = false;
    if (container.kind == JJ_STR) {
        if (item.kind != JJ_STR)
            return weft_jj_type_error(j, "'in <string>' requires string as left operand, not %s", weft_jj_type(item));
        size_t at;
        if (!weft_jj_search(j, container.s, item.s, 0, container.s->n, false, &at)) return false;
        return *found = at != SIZE_MAX, true;
    }
    if (container.kind == JJ_MAP || (container.kind == JJ_VIEW && container.aux == JJ_KEYS)) {
        jj_value *value;
        if (!weft_jj_lookup(j, container.map, item, &value)) return false;
        return *found = value != NULL, true;
    }
    if (!weft_jj_iterable(container))
        return weft_jj_type_error(j, "argument of type '%s' is not iterable", weft_jj_type(container));
    jj_iter it;
    jj_value v;
    jj_step step = JJ_ENDED;
    if (!weft_jj_iterate(j, container, &it)) return false;
    while (!*found && (step = weft_jj_next(j, &it, &v)) == JJ_GOT)
        if (!weft_jj_equal(j, v, item, found)) return false;
    return step != JJ_FAILED;
}

bool weft_jj_compare(jj *j, jj_compare op, jj_value a, jj_value b, bool *result) {
    switch (op) {
    case JJ_C_EQ: return weft_jj_equal(j, a, b, result);
    case JJ_C_LT: return weft_jj_less(j, a, b, "<", false, result);
    case JJ_C_LE: return weft_jj_less(j, a, b, "<=", true, result);
    case JJ_C_GT: return weft_jj_less(j, b, a, ">", false, result);
    case JJ_C_GE: return weft_jj_less(j, b, a, ">=", true, result);
    case JJ_C_IN: return weft_jj_contains(j, b, a, result);
    case JJ_C_NE:
    case JJ_C_NOT_IN: break;
    }
    if (!(op == JJ_C_NE ? weft_jj_equal(j, a, b, result) : weft_jj_contains(j, b, a, result))) return false;
    *result = !*result;
    return true;
}

/* ---- arithmetic ---------------------------------------------------------------------------------------------------------- */

static bool too_large(jj *j) {
    return weft_jj_fail(j, WEFT_ESUPPORT, "an integer beyond 64 bits");
}

static bool zero_division(jj *j) {
    return weft_jj_fail(j, WEFT_EFORMAT, "division by zero");
}

static bool add_ints(jj *j, int64_t a, int64_t b, int64_t *out) {
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return too_large(j);
    *out = a + b;
    return true;
}

static bool multiply_ints(jj *j, int64_t a, int64_t b, int64_t *out) {
    bool fits = true;
    if (a > 0)
        fits = b > 0 ? a <= INT64_MAX / b : b >= INT64_MIN / a;
    else if (a < 0)
        fits = b > 0 ? a >= INT64_MIN / b : b == 0 || b >= INT64_MAX / a;
    if (!fits) return too_large(j);
    *out = a * b;
    return true;
}

static bool power(jj *j, int64_t base, int64_t exponent, int64_t *out) {
    int64_t result = 1;
    if (base == 0 || base == 1) return *out = exponent == 0 ? 1 : base, true;
    if (base == -1) return *out = exponent % 2 ? -1 : 1, true;
    for (; exponent > 0; exponent--)
        if (!multiply_ints(j, result, base, &result)) return false;
    *out = result;
    return true;
}

static bool math_ints(jj *j, jj_token_kind op, int64_t a, int64_t b, jj_value *out) {
    int64_t r = 0;
    switch (op) {
    case JJ_T_ADD:
        if (!add_ints(j, a, b, &r)) return false;
        break;
    case JJ_T_SUB:
        if (b == INT64_MIN ? a >= 0 : !add_ints(j, a, -b, &r)) return too_large(j);
        if (b == INT64_MIN) r = a - b;
        break;
    case JJ_T_MUL:
        if (!multiply_ints(j, a, b, &r)) return false;
        break;
    case JJ_T_DIV:
        if (b == 0) return zero_division(j);
        return *out = weft_jj_float((double)a / (double)b), true;
    case JJ_T_FLOORDIV:
    case JJ_T_MOD:
        if (b == 0) return zero_division(j);
        if (b == -1) {
            if (op == JJ_T_FLOORDIV && a == INT64_MIN) return too_large(j);
            r = op == JJ_T_MOD ? 0 : -a;
            break;
        }
        r = a % b; /* the result has the sign of b */
        bool other_sign = r != 0 && (r < 0) != (b < 0);
        r = op == JJ_T_MOD ? (other_sign ? r + b : r) : a / b - other_sign;
        break;
    default:
        if (!power(j, a, b, &r)) return false;
        break;
    }
    *out = weft_jj_int(r);
    return true;
}

static bool math_floats(jj *j, jj_token_kind op, double a, double b, jj_value *out) {
    double r = 0, mod, div;
    switch (op) {
    case JJ_T_ADD: r = a + b; break;
    case JJ_T_SUB: r = a - b; break;
    case JJ_T_MUL: r = a * b; break;
    case JJ_T_DIV:
        if (b == 0) return zero_division(j);
        r = a / b;
        break;
    case JJ_T_FLOORDIV:
    case JJ_T_MOD:
        if (b == 0) return zero_division(j);
        mod = fmod(a, b);
        div = (a - mod) / b;
        if (mod == 0) {
            mod = copysign(0, b);
        } else if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        }
        if (op == JJ_T_MOD) {
            r = mod;
        } else if (div == 0) {
            r = copysign(0, a / b);
        } else {
            r = floor(div);
            if (div - r > 0.5) r += 1;
        }
        break;
    default:
        if (a == 0 && b < 0) return zero_division(j);
        if (a < 0 && isfinite(b) && b != trunc(b)) return weft_jj_fail(j, WEFT_ESUPPORT, "a power that is a complex number");
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b)) return weft_jj_fail(j, WEFT_EFORMAT, "a power out of range");
        break;
    }
    *out = weft_jj_float(r);
    return true;
}

static bool repeat(jj *j, jj_value v, int64_t times, jj_value *out) {
    if (times < 0) times = 0;
    if (v.kind == JJ_STR) {
        jj_sb b = {.j = j};
        if (v.s->n == 0) times = 0;
        for (; times > 0 && !b.failed; times--) weft_jj_sb_add_str(&b, v.s);
        return weft_jj_sb_end(&b, v.s->safe, out);
    }
    if (v.list->n == 0) times = 0;
    jj_value list;
    if (!weft_jj_list(j, 0, &list)) return false;
    for (; times > 0; times--)
        for (size_t i = 0; i < v.list->n; i++)
            if (!weft_jj_spend(j, 1) || !weft_jj_push(j, list.list, v.list->v[i])) return false;
    list.kind = v.kind;
    *out = list;
    return true;
}

static bool add_values(jj *j, jj_value a, jj_value b, jj_value *out) {
    if (a.kind == JJ_STR && b.kind == JJ_STR) {
        jj_sb sb = {.j = j};
        bool safe = a.s->safe || b.s->safe;
        if (!weft_jj_room(j, (void **)&sb.p, &sb.cap, a.s->n + b.s->n, 1)) return false;
        if (safe) {
            weft_jj_sb_add_escaped(&sb, a.s);
            weft_jj_sb_add_escaped(&sb, b.s);
        } else {
            weft_jj_sb_add_str(&sb, a.s);
            weft_jj_sb_add_str(&sb, b.s);
        }
        return weft_jj_sb_end(&sb, safe, out);
    }
    if ((a.kind == JJ_LIST || a.kind == JJ_TUPLE) && a.kind == b.kind) {
        jj_value list;
        if (!weft_jj_list(j, a.list->n + b.list->n, &list) || !weft_jj_spend(j, a.list->n + b.list->n)) return false;
        if (a.list->n) memcpy(list.list->v, a.list->v, a.list->n * sizeof *list.list->v);
        if (b.list->n) memcpy(list.list->v + a.list->n, b.list->v, b.list->n * sizeof *list.list->v);
        list.list->n = a.list->n + b.list->n;
        list.kind = a.kind;
        *out = list;
        return true;
    }
    if (a.kind == JJ_STR) return weft_jj_type_error(j, "can only concatenate str (not \"%s\") to str", weft_jj_type(b));
    return weft_jj_type_error(j, "unsupported operand type(s) for +: '%s' and '%s'", weft_jj_type(a), weft_jj_type(b));
}

static const char *sign(jj_token_kind op) {
    switch (op) {
    case JJ_T_SUB: return "-";
    case JJ_T_MUL: return "*";
    case JJ_T_DIV: return "/";
    case JJ_T_FLOORDIV: return "//";
    case JJ_T_MOD: return "%";
    default: return "** or pow()";
    }
}

bool weft_jj_math(jj *j, jj_token_kind op, jj_value a, jj_value b, jj_value *out) {
    if (op == JJ_T_MOD && a.kind == JJ_STR) return weft_jj_percent(j, a.s, b, out);
    if (a.kind == JJ_UNDEFINED || b.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, a.kind == JJ_UNDEFINED ? a : b);
    if (is_int(a) && is_int(b) && !(op == JJ_T_POW && as_int(b) < 0)) return math_ints(j, op, as_int(a), as_int(b), out);
    if (weft_jj_is_number(a) && weft_jj_is_number(b)) {
        if (a.kind != JJ_FLOAT && b.kind != JJ_FLOAT && (a.kind == JJ_BIG || b.kind == JJ_BIG)) return too_large(j);
        return math_floats(j, op, weft_jj_to_double(a), weft_jj_to_double(b), out);
    }
    if (op == JJ_T_ADD) return add_values(j, a, b, out);
    if (op == JJ_T_MUL) {
        bool a_seq = a.kind == JJ_STR || a.kind == JJ_LIST || a.kind == JJ_TUPLE;
        bool b_seq = b.kind == JJ_STR || b.kind == JJ_LIST || b.kind == JJ_TUPLE;
        if (a_seq && is_int(b)) return repeat(j, a, as_int(b), out);
        if (b_seq && is_int(a)) return repeat(j, b, as_int(a), out);
    }
    return weft_jj_type_error(j, "unsupported operand type(s) for %s: '%s' and '%s'", sign(op), weft_jj_type(a), weft_jj_type(b));
}

bool weft_jj_negate(jj *j, jj_value a, bool minus, jj_value *out) {
    if (a.kind == JJ_UNDEFINED) return weft_jj_fail_undefined(j, a);
    if (a.kind == JJ_FLOAT) return *out = weft_jj_float(minus ? -a.f : a.f), true;
    if (is_int(a)) return minus ? math_ints(j, JJ_T_SUB, 0, as_int(a), out) : (*out = weft_jj_int(as_int(a)), true);
    if (a.kind == JJ_BIG) {
        if (!minus) return *out = a, true;
        jj_sb b = {.j = j};
        if (a.s->p[0] == '-') {
            weft_jj_sb_add_part(&b, a.s, 1, a.s->n);
        } else {
            weft_jj_sb_addz(&b, "-");
            weft_jj_sb_add_str(&b, a.s);
        }
        if (!weft_jj_sb_end(&b, false, out)) return false;
        /* -(2^63) fits again. */
        if (!weft_jj_parse_int(j, out->s->p, out->s->n, 10, out)) return too_large(j);
        return true;
    }
    return weft_jj_type_error(j, "bad operand type for unary %s: '%s'", minus ? "-" : "+", weft_jj_type(a));
}

/* ---- str and repr -------------------------------------------------------------------------------------------------------- */

bool weft_jj_to_str(jj *j, jj_value v, const jj_str **out) {
    if (v.kind == JJ_STR) return (*out = weft_jj_with_safe(j, v.s, false)) != NULL;
    jj_sb b = {.j = j};
    jj_value s;
    weft_jj_add(&b, v);
    if (!weft_jj_sb_end(&b, false, &s)) return false;
    *out = s.s;
    return true;
}

void weft_jj_add(jj_sb *b, jj_value v) {
    if (v.kind == JJ_STR)
        weft_jj_sb_add_str(b, v.s);
    else if (v.kind != JJ_UNDEFINED)
        weft_jj_add_repr(b, v);
}

static void add_items(jj_sb *b, const jj_value *v, size_t n) {
    for (size_t i = 0; i < n && !b->failed; i++) {
        if (i) weft_jj_sb_addz(b, ", ");
        weft_jj_add_repr(b, v[i]);
    }
}

static void add_map(jj_sb *b, const jj_map *m) {
    weft_jj_sb_addz(b, "{");
    for (size_t i = 0; i < m->n && !b->failed; i++) {
        if (i) weft_jj_sb_addz(b, ", ");
        weft_jj_add_repr(b, m->v[i].key);
        weft_jj_sb_addz(b, ": ");
        weft_jj_add_repr(b, m->v[i].value);
    }
    weft_jj_sb_addz(b, "}");
}

static void add_view(jj_sb *b, jj_value v) {
    weft_jj_sb_addz(b, weft_jj_type(v));
    weft_jj_sb_addz(b, "([");
    for (size_t i = 0; i < v.map->n && !b->failed; i++) {
        const jj_entry *e = &v.map->v[i];
        if (i) weft_jj_sb_addz(b, ", ");
        if (v.aux == JJ_ITEMS) weft_jj_sb_addz(b, "(");
        if (v.aux != JJ_VALUES) weft_jj_add_repr(b, e->key);
        if (v.aux == JJ_ITEMS) weft_jj_sb_addz(b, ", ");
        if (v.aux != JJ_KEYS) weft_jj_add_repr(b, e->value);
        if (v.aux == JJ_ITEMS) weft_jj_sb_addz(b, ")");
    }
    weft_jj_sb_addz(b, "])");
}

static void add_range(jj_sb *b, const jj_range *r) {
    weft_jj_sb_addz(b, "range(");
    weft_jj_add_int(b, r->start);
    weft_jj_sb_addz(b, ", ");
    weft_jj_add_int(b, r->stop);
    if (r->step != 1) {
        weft_jj_sb_addz(b, ", ");
        weft_jj_add_int(b, r->step);
    }
    weft_jj_sb_addz(b, ")");
}

/* What Python shows with an address, and what nobody relies on. */
static void add_object(jj_sb *b, jj_value v) {
    if (v.kind == JJ_MACRO) {
        const jj_macro *m = v.p;
        weft_jj_sb_addz(b, "<Macro ");
        if (m->node->s)
            weft_jj_add_quoted(b, m->node->s);
        else
            weft_jj_sb_addz(b, "anonymous");
    } else if (v.kind == JJ_LOOP) {
        const jj_loop *l = v.p;
        weft_jj_sb_addz(b, "<LoopContext ");
        weft_jj_add_int(b, l->index0 + 1);
    } else {
        weft_jj_sb_addz(b, "<");
        weft_jj_sb_addz(b, weft_jj_type(v));
    }
    weft_jj_sb_addz(b, ">");
}

void weft_jj_add_repr(jj_sb *b, jj_value v) {
    if (b->failed) return;
    if (!weft_jj_spend(b->j, 1) || !weft_jj_enter(b->j)) {
        b->failed = true;
        return;
    }
    switch ((jj_kind)v.kind) {
    case JJ_MISSING:
    case JJ_UNDEFINED: weft_jj_sb_addz(b, "Undefined"); break;
    case JJ_NONE: weft_jj_sb_addz(b, "None"); break;
    case JJ_BOOL: weft_jj_sb_addz(b, v.b ? "True" : "False"); break;
    case JJ_INT: weft_jj_add_int(b, v.i); break;
    case JJ_BIG: weft_jj_sb_add_str(b, v.s); break;
    case JJ_FLOAT: weft_jj_add_float(b, v.f); break;
    case JJ_STR:
        if (v.s->safe) weft_jj_sb_addz(b, "Markup(");
        weft_jj_add_quoted(b, v.s);
        if (v.s->safe) weft_jj_sb_addz(b, ")");
        break;
    case JJ_LIST:
    case JJ_TUPLE:
        weft_jj_sb_addz(b, v.kind == JJ_LIST ? "[" : "(");
        add_items(b, v.list->v, v.list->n);
        weft_jj_sb_addz(b, v.kind == JJ_LIST ? "]" : v.list->n == 1 ? ",)" : ")");
        break;
    case JJ_MAP: add_map(b, v.map); break;
    case JJ_NAMESPACE:
        weft_jj_sb_addz(b, "<Namespace ");
        add_map(b, v.map);
        weft_jj_sb_addz(b, ">");
        break;
    case JJ_RANGE: add_range(b, v.p); break;
    case JJ_VIEW: add_view(b, v); break;
    default: add_object(b, v); break;
    }
    weft_jj_leave(b->j);
}

/* ---- sorting ------------------------------------------------------------------------------------------------------------- */

/* Merges order[from..mid) and order[mid..to) by way of work[]. */
static bool merge(jj *j, const jj_value *keys, bool reverse, size_t *order_of, size_t *work, size_t from, size_t mid, size_t to) {
    size_t a = from, b = mid, out = from;
    while (a < mid && b < to) {
        bool right; /* only where it is truly smaller: equal items keep their order */
        jj_value l = keys[order_of[a]], r = keys[order_of[b]];
        if (!(reverse ? weft_jj_less(j, l, r, "<", false, &right) : weft_jj_less(j, r, l, "<", false, &right))) return false;
        work[out++] = right ? order_of[b++] : order_of[a++];
    }
    while (a < mid) work[out++] = order_of[a++];
    while (b < to) work[out++] = order_of[b++];
    memcpy(order_of + from, work + from, (to - from) * sizeof *work);
    return true;
}

bool weft_jj_sort(jj *j, const jj_list *items, const jj_value *keys, bool reverse, jj_value *out) {
    size_t n = items->n;
    size_t *order_of = weft_jj_get(j, n, 2 * sizeof *order_of);
    if (!order_of || !weft_jj_list(j, n, out)) return false;
    for (size_t i = 0; i < n; i++) order_of[i] = i;
    for (size_t width = 1; width < n; width *= 2)
        for (size_t from = 0; from + width < n; from += 2 * width) {
            size_t to = from + 2 * width < n ? from + 2 * width : n;
            if (!merge(j, keys, reverse, order_of, order_of + n, from, from + width, to)) return false;
        }
    for (size_t i = 0; i < n; i++)
        if (!weft_jj_push(j, out->list, items->v[order_of[i]])) return false;
    return true;
}

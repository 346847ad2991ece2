/* jinja_run.h: the parts of the evaluator, for the interpreter's files. Operators, attributes and functions do what Python's do. */
#ifndef WEFT_TEXT_JINJA_RUN_H
#define WEFT_TEXT_JINJA_RUN_H

#include "text/jinja_ast.h"

/* ---- calls --------------------------------------------------------------------------------------------------------------- */

/* Evaluated arguments. */
typedef struct jj_call {
    const char *what; /* the name of the function, for messages */
    jj_value *arg;
    size_t n;
    const jj_str **key;
    jj_value *kw;
    size_t n_kw;
} jj_call;

/* Puts the arguments into out[], one for each word of `params` ("sep maxsplit"), JJ_MISSING where not given. The first `required`
 * must be given. */
bool weft_jj_bind(jj *j, const jj_call *c, const char *params, size_t required, jj_value *out);
/* An argument as a whole number (bool counts), as a string. `fallback` where it is missing. */
bool weft_jj_int_arg(jj *j, const jj_call *c, jj_value v, int64_t fallback, int64_t *out);
bool weft_jj_str_arg(jj *j, const jj_call *c, jj_value v, const jj_str **out);

/* ---- scopes, callables --------------------------------------------------------------------------------------------------- */

typedef struct jj_var {
    int name;
    jj_value value; /* JJ_MISSING: undefined from here on, whatever the scopes outside say */
} jj_var;

typedef struct jj_scope {
    struct jj_scope *parent;
    jj_var *v;
    size_t n, cap;
} jj_scope;

typedef struct jj_macro {
    const jj_node *node; /* MACRO or CALL_BLOCK */
    jj_scope *scope;     /* where it was defined */
} jj_macro;

typedef struct jj_bound {
    jj_value self;
    int method;
} jj_bound;

typedef struct jj_cycler {
    jj_list *items;
    size_t at;
} jj_cycler;

typedef struct jj_joiner {
    jj_value separator;
    bool used;
} jj_joiner;

/* ---- iteration ----------------------------------------------------------------------------------------------------------- */

typedef struct jj_iter {
    jj_value source;
    size_t at;
} jj_iter;

/* What map, select and reject return: it reads its source when it is read. */
typedef struct jj_gen {
    enum {
        JJ_G_LIST,
        JJ_G_MAP,
        JJ_G_SELECT,
        JJ_G_TEST
    } kind; /* over source; filters applied; tested or truthy items; loop filter */
    jj_iter in;
    jj_list *attribute; /* looked up in each item first; NULL: none */
    jj_value fallback;  /* where the attribute is undefined; MISSING: none */
    int number;         /* filter or test; -1: none */
    const jj_str *name;
    bool negate;
    jj_call call;
    const jj_node *test; /* JJ_G_TEST: of a for loop */
    const jj_node *target;
    jj_scope *scope;
} jj_gen;

typedef struct jj_loop {
    const jj_node *node;
    jj_scope *scope; /* around the loop */
    jj_value source;
    jj_iter in;
    int64_t index0, length; /* -1: not known yet */
    int64_t depth0;
    jj_value before, current, after; /* after: read ahead, or MISSING */
    jj_value changed;                /* what loop.changed() was given last */
} jj_loop;

typedef enum jj_step { JJ_GOT, JJ_ENDED, JJ_FAILED } jj_step;

bool weft_jj_iterate(jj *j, jj_value v, jj_iter *it); /* fails for what cannot be iterated over */
jj_step weft_jj_next(jj *j, jj_iter *it, jj_value *out);
bool weft_jj_iterable(jj_value v);
/* len(); false where there is none. */
bool weft_jj_length(jj_value v, size_t *n);
/* A new list of the items of anything iterable. */
bool weft_jj_collect(jj *j, jj_value v, jj_value *out);
bool weft_jj_gen(jj *j, jj_value list, jj_value *out);

/* ---- operators ----------------------------------------------------------------------------------------------------------- */

bool weft_jj_truth(jj_value v);
bool weft_jj_is_number(jj_value v); /* bool, int, float */
double weft_jj_to_double(jj_value v);
bool weft_jj_less(jj *j, jj_value a, jj_value b, const char *op, bool or_equal, bool *less);
bool weft_jj_contains(jj *j, jj_value container, jj_value item, bool *found);
bool weft_jj_compare(jj *j, jj_compare op, jj_value a, jj_value b, bool *result);
bool weft_jj_math(jj *j, jj_token_kind op, jj_value a, jj_value b, jj_value *out);
bool weft_jj_negate(jj *j, jj_value a, bool minus, jj_value *out);
/* environment.getitem, environment.getattr of jinja2: undefined for what is not there. */
bool weft_jj_item(jj *j, jj_value of, jj_value key, jj_value *out);
bool weft_jj_attr(jj *j, jj_value of, const jj_str *name, jj_value *out);
bool weft_jj_slice(jj *j, jj_value of, jj_value from, jj_value to, jj_value step, jj_value *out);
/* str() and repr(). */
bool weft_jj_to_str(jj *j, jj_value v, const jj_str **out);
void weft_jj_add(jj_sb *b, jj_value v);
void weft_jj_add_repr(jj_sb *b, jj_value v);
/* Sorted, stable, into a new list; keys[i] belongs to items[i]. */
bool weft_jj_sort(jj *j, const jj_list *items, const jj_value *keys, bool reverse, jj_value *out);

/* ---- formatting ---------------------------------------------------------------------------------------------------------- */

bool weft_jj_percent(jj *j, const jj_str *format, jj_value args, jj_value *out);   /* format % args */
bool weft_jj_format(jj *j, const jj_str *format, const jj_call *c, jj_value *out); /* format.format(...) */
/* json.dumps(v, ensure_ascii=, indent=, separators=, sort_keys=). */
bool weft_jj_tojson(jj *j, jj_value v, const jj_call *c, jj_value *out);
bool weft_jj_strftime(jj *j, const jj_str *format, jj_value *out);

/* ---- methods, filters, tests, functions ---------------------------------------------------------------------------------- */

bool weft_jj_call_method(jj *j, const jj_bound *b, const jj_call *c, jj_value *out);
bool weft_jj_call_filter(jj *j, int number, jj_value v, const jj_call *c, jj_value *out);
bool weft_jj_call_test(jj *j, int number, jj_value v, const jj_call *c, bool *out);
bool weft_jj_call_function(jj *j, int number, const jj_call *c, jj_value *out);
int weft_jj_function_number(const jj_str *name); /* of a global function, -1 */
/* Anything callable. `caller` is MISSING but for call blocks. */
bool weft_jj_call(jj *j, jj_value f, const jj_call *c, jj_value caller, jj_value *out);
/* Whether a method of a kind would change its value: "append". */
bool weft_jj_forbidden(jj_kind kind, const jj_str *name);
/* Attributes of loop, namespaces, cyclers. MISSING where there is none. */
bool weft_jj_loop_attr(jj *j, jj_value loop, const jj_str *name, jj_value *out);
bool weft_jj_call_loop(jj *j, jj_value loop, const jj_call *c, jj_value *out);
/* For a loop filter: whether the test holds with the target set to the item. */
bool weft_jj_loop_test(jj *j, const jj_gen *g, jj_value item, bool *holds);
/* A path "a.b.0", a number or none, as a list of strings and numbers to look up. */
bool weft_jj_attribute_path(jj *j, jj_value attribute, jj_list **out);
bool weft_jj_follow(jj *j, jj_value v, const jj_list *path, jj_value fallback, jj_value *out);

/* ---- evaluation ---------------------------------------------------------------------------------------------------------- */

bool weft_jj_eval(jj *j, const jj_node *n, jj_scope *s, jj_value *out);
/* Runs a compiled template; the text goes to b. */
bool weft_jj_run(jj *j, jj_sb *b);

#endif

/* jinja_ast.h: a compiled template: tokens, the tree, and the passes that make it. For the interpreter's files. */
#ifndef WEFT_TEXT_JINJA_AST_H
#define WEFT_TEXT_JINJA_AST_H

#include "text/jinja_value.h"

/* ---- tokens -------------------------------------------------------------------------------------------------------------- */

typedef enum jj_token_kind {
    JJ_T_END, /* of the template */
    JJ_T_DATA,
    JJ_T_PRINT_BEGIN, /* {{ */
    JJ_T_PRINT_END,
    JJ_T_BLOCK_BEGIN, /* {% */
    JJ_T_BLOCK_END,
    JJ_T_NAME,
    JJ_T_STRING,
    JJ_T_NUMBER, /* int or float */
    JJ_T_ADD,
    JJ_T_SUB,
    JJ_T_MUL,
    JJ_T_DIV,
    JJ_T_FLOORDIV,
    JJ_T_MOD,
    JJ_T_POW,
    JJ_T_TILDE,
    JJ_T_LBRACKET,
    JJ_T_RBRACKET,
    JJ_T_LPAREN,
    JJ_T_RPAREN,
    JJ_T_LBRACE,
    JJ_T_RBRACE,
    JJ_T_EQ,
    JJ_T_NE,
    JJ_T_GT,
    JJ_T_GE,
    JJ_T_LT,
    JJ_T_LE,
    JJ_T_ASSIGN,
    JJ_T_DOT,
    JJ_T_COLON,
    JJ_T_PIPE,
    JJ_T_COMMA,
    JJ_T_SEMICOLON,
} jj_token_kind;

typedef struct jj_token {
    jj_token_kind kind;
    int line;
    jj_value value; /* DATA, NAME, STRING: the text, escapes resolved; NUMBER */
} jj_token;

typedef struct jj_tokens {
    jj_token *v;
    size_t n, cap;
} jj_tokens;

/* Cuts a whole template into tokens, the last of which is END. Whitespace control is done here. */
bool weft_jj_lex(jj *j, const char *source, size_t n, jj_tokens *out);

/* ---- the tree ------------------------------------------------------------------------------------------------------------ */

typedef enum jj_node_kind {
    /* expressions */
    JJ_N_CONST,   /* value */
    JJ_N_NAME,    /* name, s */
    JJ_N_LIST,    /* v */
    JJ_N_TUPLE,   /* v */
    JJ_N_DICT,    /* v: key, value, key, value ... */
    JJ_N_ATTR,    /* a.s */
    JJ_N_ITEM,    /* a[b] */
    JJ_N_SLICE,   /* v[0] [ v[1] : v[2] : v[3] ], NULL where left out */
    JJ_N_CALL,    /* a(args) */
    JJ_N_FILTER,  /* a | s(args); a NULL: the text of the block around it */
    JJ_N_TEST,    /* a is s(args) */
    JJ_N_NOT,     /* a */
    JJ_N_NEG,     /* a */
    JJ_N_POS,     /* a */
    JJ_N_AND,     /* a, b */
    JJ_N_OR,      /* a, b */
    JJ_N_MATH,    /* a op b; op: jj_token_kind */
    JJ_N_CONCAT,  /* v */
    JJ_N_COMPARE, /* v[0] ops[0] v[1] ops[1] v[2] ... */
    JJ_N_COND,    /* a if b else v[0]; no v: undefined */
    JJ_N_NSREF,   /* name.s, as a target */
    /* statements */
    JJ_N_TEXT,         /* value */
    JJ_N_PRINT,        /* a */
    JJ_N_IF,           /* v: conditions; bodies: one for each, one more for else */
    JJ_N_FOR,          /* a target, b iterable, v[0] the test if any; bodies: body, else; op: recursive */
    JJ_N_SET,          /* a = b */
    JJ_N_SET_BLOCK,    /* a, filters b or NULL; bodies[0] */
    JJ_N_MACRO,        /* name, s; signature in args; bodies[0] */
    JJ_N_CALL_BLOCK,   /* a: the call; signature in args; bodies[0] */
    JJ_N_FILTER_BLOCK, /* a: filters; bodies[0] */
    JJ_N_WITH,         /* v: target, value, target, value ...; bodies[0] */
    JJ_N_SCOPE,        /* generation: bodies[0] */
    JJ_N_BREAK,
    JJ_N_CONTINUE,
} jj_node_kind;

typedef enum jj_compare { JJ_C_EQ, JJ_C_NE, JJ_C_LT, JJ_C_LE, JJ_C_GT, JJ_C_GE, JJ_C_IN, JJ_C_NOT_IN } jj_compare;

typedef struct jj_node jj_node;

typedef struct jj_body {
    jj_node **v;
    size_t n, cap;
    int *missing; /* numbers of names that the body sets before it reads them, and that no scope around it knows: until then they */
    size_t n_missing; /* are undefined, whatever variables the template was given. Of bodies with a scope of their own. */
} jj_body;

/* The arguments of a call, or the signature of a macro: names of its parameters in key, defaults in kw for the last n_kw. */
typedef struct jj_args {
    jj_node **pos;
    size_t n_pos, cap_pos;
    const jj_str **key;
    size_t n_key, cap_key;
    jj_node **kw;
    size_t n_kw, cap_kw;
    jj_node *star, *star2;        /* *a and **b */
    int *name;                    /* of a signature: numbers of its names */
    bool caller, varargs, kwargs; /* the body of the macro mentions these */
} jj_args;

struct jj_node {
    uint8_t kind, op;
    int line;
    int name;
    int depth;  /* levels of expressions below */
    int number; /* FILTER, TEST: which, -1 for one that does not exist */
    jj_node *a, *b;
    jj_node **v;
    size_t n;
    const jj_str *s;
    uint8_t *ops;
    jj_args *args;
    jj_body *bodies;
    size_t n_bodies;
    jj_value value;
};

struct weft_jinja {
    weft_arena arena;
    jj_body body;
    jj_map *numbers; /* of names */
    const jj_str **names;
    size_t n_names;
    int loop, caller, varargs, kwargs; /* numbers of these names */
};

typedef struct jj_parser {
    jj *j;
    jj_tokens tokens;
    size_t at;
    int depth;
    weft_jinja *t;
    size_t cap_names;
} jj_parser;

/* The number of a name; -1 on failure. */
int weft_jj_name(jj_parser *p, const jj_str *s);
bool weft_jj_parse(jj_parser *p);
/* What can only be told of the whole tree: which names are set before they are read, whether filters and tests exist. */
bool weft_jj_resolve(jj *j, weft_jinja *t);

/* Numbers of filters, tests and methods; -1 where there is none. */
int weft_jj_filter_number(const jj_str *name);
int weft_jj_test_number(const jj_str *name);
int weft_jj_method_number(jj_kind kind, const jj_str *name);

#endif

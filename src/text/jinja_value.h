/* jinja_value.h: the values of the template interpreter, and the memory they live in. For the interpreter's files (jinja_*.c).
 *
 * Everything a render makes lies in one arena, whose size is limited; nothing is freed before its end. Strings do not change once
 * made. Each byte of a string is marked: data (typed by somebody) or not (written by the template).
 *
 * Functions that can fail return false, after weft_jj_fail() has filled the error once; the evaluator then unwinds. */
#ifndef WEFT_TEXT_JINJA_VALUE_H
#define WEFT_TEXT_JINJA_VALUE_H

#include "base/arena.h"
#include "text/jinja.h"

typedef weft_jinja_value jj_value;

typedef enum jj_kind {
    JJ_MISSING,   /* no value at all: a variable before it is set, an argument that was not given */
    JJ_UNDEFINED, /* aux: what was missing, see weft_jj_undefined() */
    JJ_NONE,
    JJ_BOOL,
    JJ_INT,
    JJ_BIG, /* an integer beyond 64 bits: its decimal digits in s */
    JJ_FLOAT,
    JJ_STR,
    JJ_LIST,
    JJ_TUPLE,     /* list; aux 1: a group of groupby, whose fields have names */
    JJ_MAP,       /* keys of any hashable kind, in order of insertion */
    JJ_RANGE,     /* p: jj_range */
    JJ_VIEW,      /* map; aux: jj_view */
    JJ_ITER,      /* p: jj_gen, which is used up by reading it once */
    JJ_NAMESPACE, /* map */
    JJ_MACRO,     /* p: jj_macro */
    JJ_FUNC,      /* a global function; i: its number */
    JJ_METHOD,    /* p: jj_bound */
    JJ_LOOP,      /* p: jj_loop */
    JJ_CYCLER,    /* p: jj_cycler */
    JJ_JOINER,    /* p: jj_joiner */
} jj_kind;

typedef enum jj_view { JJ_KEYS, JJ_VALUES, JJ_ITEMS } jj_view;

typedef struct jj_mark {
    size_t end; /* the first byte after this run */
    bool data;
} jj_mark;

typedef struct jj_str {
    const char *p; /* well-formed UTF-8 */
    size_t n;      /* bytes */
    size_t chars;  /* code points: what Python counts */
    uint64_t hash; /* 0: not known */
    const jj_mark *marks;
    size_t n_marks; /* 0: all bytes are marked as `data` says */
    bool data;
    bool safe; /* Markup in Python: a result of |safe or |escape, which escapes what is joined to it */
} jj_str;

typedef struct jj_list {
    jj_value *v;
    size_t n, cap;
} jj_list;

typedef struct jj_entry {
    jj_value key, value;
    uint64_t hash;
} jj_entry;

typedef struct jj_map {
    jj_entry *v;
    size_t n, cap;
    uint32_t *index; /* open addressing over v, entry number + 1; NULL while there are few */
    size_t n_index;  /* a power of two */
} jj_map;

typedef struct jj_range {
    int64_t start, stop, step;
    size_t n;
} jj_range;

/* The state of a compilation, a set of variables or a render. */
typedef struct jj {
    weft_arena arena;
    size_t memory; /* bytes that may still be taken */
    uint64_t work; /* steps that may still be done */
    uint64_t iterations;
    size_t output; /* bytes of text that a render may make */
    int depth;     /* of the evaluator's recursion */
    int line;      /* of the template, for messages; 0: none */
    int64_t now;
    weft_status status;
    weft_error *e;
    const weft_jinja *t;
    const weft_jinja_vars *vars;
    jj_value *globals; /* by name number: variables and functions already looked up, else JJ_MISSING */
} jj;

enum { JJ_DEPTH = 1000 };

/* ---- errors, memory, work ------------------------------------------------------------------------------------------------ */

/* Reports an error, unless one is reported already; always false. A line is put before the text. */
bool weft_jj_fail(jj *j, weft_status code, const char *fmt, ...) WEFT_PRINTF(3, 4);
#define weft_jj_type_error(j, ...) weft_jj_fail(j, WEFT_EFORMAT, __VA_ARGS__)
/* n * size zeroed bytes, NULL on failure. */
void *weft_jj_get(jj *j, size_t n, size_t size);
/* Grows an array in the arena to hold `need` elements; the old copy stays behind. */
bool weft_jj_room(jj *j, void **v, size_t *cap, size_t need, size_t size);
bool weft_jj_out_of_work(jj *j);
/* Accounts for n steps. */
static inline bool weft_jj_spend(jj *j, uint64_t n) {
    if (n > j->work) return weft_jj_out_of_work(j);
    j->work -= n;
    return true;
}
bool weft_jj_enter(jj *j); /* one level of recursion more */
static inline void weft_jj_leave(jj *j) {
    j->depth--;
}

/* ---- strings ------------------------------------------------------------------------------------------------------------- */

/* Copies bytes; repaired first where they are not UTF-8. NULL on failure. */
jj_str *weft_jj_str(jj *j, const char *p, size_t n, bool data);
/* Points to bytes that outlive the render and are UTF-8. */
jj_str *weft_jj_str_view(jj *j, const char *p, size_t n, bool data);
/* A value of a literal in the program. */
bool weft_jj_text(jj *j, const char *z, jj_value *out);
/* s[from..to) in bytes. */
const jj_str *weft_jj_part(jj *j, const jj_str *s, size_t from, size_t to);
const jj_str *weft_jj_with_safe(jj *j, const jj_str *s, bool safe);
uint64_t weft_jj_hash(const jj_str *s);
bool weft_jj_same(const jj_str *a, const jj_str *b);
bool weft_jj_is(const jj_str *s, const char *z);
/* The byte where character number k begins; k <= chars. */
size_t weft_jj_byte_at(const jj_str *s, size_t k);
size_t weft_jj_count_chars(const char *p, size_t n);

static inline jj_value weft_jj_of_str(const jj_str *s) {
    jj_value v = {.kind = JJ_STR};
    v.s = s;
    return v;
}

/* A string in the making. */
typedef struct jj_sb {
    jj *j;
    char *p;
    size_t n, cap;
    struct {
        jj_mark *v;
        size_t n, cap;
    } marks;
    bool failed; /* memory ran out: nothing more is added, weft_jj_sb_end() says so */
} jj_sb;

void weft_jj_sb_add(jj_sb *b, const char *p, size_t n, bool data);
void weft_jj_sb_addz(jj_sb *b, const char *z);
void weft_jj_sb_add_part(jj_sb *b, const jj_str *s, size_t from, size_t to);
static inline void weft_jj_sb_add_str(jj_sb *b, const jj_str *s) {
    weft_jj_sb_add_part(b, s, 0, s->n);
}
/* s with &, <, >, ' and " escaped for HTML, unless it is safe already. */
void weft_jj_sb_add_escaped(jj_sb *b, const jj_str *s);
bool weft_jj_sb_end(jj_sb *b, bool safe, jj_value *out);

/* Whether the byte at offset `at` was typed by somebody. */
bool weft_jj_data_at(const jj_str *s, size_t at);

/* ---- containers ---------------------------------------------------------------------------------------------------------- */

bool weft_jj_list(jj *j, size_t cap, jj_value *out); /* empty, with room */
bool weft_jj_push(jj *j, jj_list *l, jj_value v);
/* A tuple of two. */
bool weft_jj_pair(jj *j, jj_value a, jj_value b, jj_value *out);
bool weft_jj_map(jj *j, jj_value *out);
/* The value of a key or NULL. Strings only: never fails. */
jj_value *weft_jj_find(const jj_map *m, const jj_str *key);
/* Any key; *found is NULL where there is none. Fails for a key that cannot be hashed. */
bool weft_jj_lookup(jj *j, const jj_map *m, jj_value key, jj_value **found);
bool weft_jj_put(jj *j, jj_map *m, jj_value key, jj_value value);
/* Python's ==. */
bool weft_jj_equal(jj *j, jj_value a, jj_value b, bool *equal);

/* ---- small values -------------------------------------------------------------------------------------------------------- */

static inline jj_value weft_jj_none(void) {
    return (jj_value){.kind = JJ_NONE};
}
static inline jj_value weft_jj_bool(bool b) {
    jj_value v = {.kind = JJ_BOOL};
    v.b = b;
    return v;
}
static inline jj_value weft_jj_int(int64_t i) {
    jj_value v = {.kind = JJ_INT};
    v.i = i;
    return v;
}
static inline jj_value weft_jj_float(double f) {
    jj_value v = {.kind = JJ_FLOAT};
    v.f = f;
    return v;
}

/* An undefined value remembers what was missing, for the message that it raises when it is used.
 * aux JJ_NO_NAME: the variable s; JJ_NO_HINT: p is the whole message; JJ_NO_ACCESS: the attribute s, which the sandbox hides;
 * JJ_NO_ATTRIBUTE + kind: the attribute s of a value of that kind (s NULL: an element). */
enum { JJ_NO_NAME, JJ_NO_HINT, JJ_NO_ACCESS, JJ_NO_ATTRIBUTE };
static inline jj_value weft_jj_undefined(int how, const jj_str *s) {
    jj_value v = {.kind = JJ_UNDEFINED, .aux = (uint8_t)how};
    v.s = s;
    return v;
}
static inline jj_value weft_jj_undefined_hint(const char *message) {
    jj_value v = {.kind = JJ_UNDEFINED, .aux = JJ_NO_HINT};
    v.p = message;
    return v;
}
/* Reports the use of an undefined value; always false. */
bool weft_jj_fail_undefined(jj *j, jj_value v);

/* The type's name in Python: "str", "dict". */
const char *weft_jj_type(jj_value v);

struct weft_jinja_vars {
    jj j;
    jj_map *names;
};

#endif

/* jinja.c: the interpreter from outside: compiling, rendering. */
#include "text/jinja.h"

#include <string.h>

#include "base/alloc.h"
#include "text/jinja_run.h"

#define SOURCE_LIMIT ((size_t)4 << 20)

/* ---- compiling ----------------------------------------------------------------------------------------------------------- */

static bool compile(jj *j, weft_jinja *t, const char *source, size_t n) {
    jj_parser p = {.j = j, .t = t};
    jj_value numbers;
    if (!weft_jj_map(j, &numbers)) return false;
    t->numbers = numbers.map;
    static const char *const word[] = {"loop", "caller", "varargs", "kwargs"};
    int *const number[] = {&t->loop, &t->caller, &t->varargs, &t->kwargs};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        jj_value s;
        if (!weft_jj_text(j, word[i], &s) || (*number[i] = weft_jj_name(&p, s.s)) < 0) return false;
    }
    return weft_jj_lex(j, source, n, &p.tokens) && weft_jj_parse(&p) && weft_jj_resolve(j, t);
}

weft_status weft_jinja_compile(weft_jinja **out, const char *source, size_t n, weft_error *e) {
    *out = NULL;
    if (n > SOURCE_LIMIT)
        return weft_fail(e, WEFT_EFORMAT, "a chat template of %zu bytes; at most %zu are allowed", n, SOURCE_LIMIT);
    weft_jinja *t = weft_calloc(1, sizeof *t);
    if (!t) return weft_fail_oom(e, "a chat template");
    jj j = {.memory = (size_t)2 << 30, .work = UINT64_MAX, .output = SIZE_MAX, .e = e};
    bool ok = compile(&j, t, source, n);
    t->arena = j.arena;
    if (!ok) {
        weft_jinja_free(t);
        return j.status;
    }
    *out = t;
    return WEFT_OK;
}

void weft_jinja_free(weft_jinja *t) {
    if (!t) return;
    weft_arena_free(&t->arena);
    weft_free(t);
}

bool weft_jinja_mentions(const weft_jinja *t, const char *name) {
    jj_str s = {.p = name, .n = strlen(name)};
    return weft_jj_find(t->numbers, &s) != NULL;
}

/* ---- rendering ----------------------------------------------------------------------------------------------------------- */

/* Copies what was rendered out of the arena. */
static weft_status give(const jj_sb *b, weft_jinja_output *out, weft_error *e) {
    if (!weft_str_add(&out->text, b->p, b->n) || !weft_vec_reserve(&out->parts, b->marks.n))
        return weft_fail_oom(e, "a chat prompt");
    for (size_t i = 0, from = 0; i < b->marks.n; i++) {
        out->parts.v[i] = (weft_text_part){out->text.p + from, b->marks.v[i].end - from, !b->marks.v[i].data};
        from = b->marks.v[i].end;
    }
    out->parts.n = b->marks.n;
    return WEFT_OK;
}

weft_status weft_jinja_render(const weft_jinja *t, const weft_jinja_vars *vars, const weft_jinja_options *options,
                              weft_jinja_output *out, weft_error *e) {
    weft_jinja_options o = options ? *options : (weft_jinja_options){0};
    *out = (weft_jinja_output){0};
    if (vars && vars->j.status != WEFT_OK) return weft_fail_oom(e, "a template's variables");
    jj j = {.memory = o.memory ? o.memory : (size_t)512 << 20,
            .work = o.work ? o.work : 200 * 1000 * 1000,
            .iterations = o.iterations ? o.iterations : 10 * 1000 * 1000,
            .output = o.output ? o.output : (size_t)64 << 20,
            .now = o.now,
            .t = t,
            .vars = vars,
            .e = e};
    jj_sb b = {.j = &j};
    j.globals = weft_jj_get(&j, t->n_names, sizeof *j.globals);
    if (j.globals && weft_jj_run(&j, &b)) j.status = give(&b, out, e);
    weft_arena_free(&j.arena);
    if (j.status != WEFT_OK) weft_jinja_output_free(out);
    return j.status;
}

void weft_jinja_output_free(weft_jinja_output *out) {
    weft_str_free(&out->text);
    weft_vec_free(&out->parts);
}

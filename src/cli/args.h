/* args.h: command lines. A command describes its options once, in a table; parsing, checking and the help text come from it.
 *
 * Options are long: "--name value" or "--name=value", a flag "--name". "--" ends them; "-" alone is a positional argument. The last
 * of a repeated option counts, unless it takes several. "--help" and "-h" exist everywhere. */
#ifndef WEFT_CLI_ARGS_H
#define WEFT_CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

typedef enum weft_option_kind {
    WEFT_OPTION_END,
    WEFT_OPTION_HEADING, /* name is the title of the options that follow */
    WEFT_OPTION_FLAG,
    WEFT_OPTION_INTEGER,
    WEFT_OPTION_NUMBER,
    WEFT_OPTION_TEXT,
    WEFT_OPTION_TEXTS, /* may be given several times */
} weft_option_kind;

enum { WEFT_TEXTS_MOST = 64 };
typedef struct weft_texts {
    const char *v[WEFT_TEXTS_MOST]; /* in their order */
    int n;
} weft_texts;

/* One row of the table; the macros below make them. What `to` points to holds the default when parsing begins, and the help text
 * shows that value, or `standard` in its place where the value alone says little ("0: all processors"). */
typedef struct weft_option {
    weft_option_kind kind;
    const char *name;
    const char *value; /* what the help text calls the value: "N", "FILE" */
    const char *help;
    union {
        bool *flag;
        int64_t *integer;
        double *number;
        const char **text;
        weft_texts *texts;
    } to;
    union {
        struct {
            int64_t least, most;
        } integer;
        struct {
            double least, most;
        } number;
        const char *choices; /* of a text: "a|b|c"; NULL any */
    } range;
    const char *standard;
} weft_option;

#define WEFT_HEADING(title)                                                                                                        \
    { .kind = WEFT_OPTION_HEADING, .name = (title) }
#define WEFT_FLAG(name_, to_, help_)                                                                                               \
    { .kind = WEFT_OPTION_FLAG, .name = (name_), .to.flag = (to_), .help = (help_) }
#define WEFT_INTEGER(name_, value_, to_, least_, most_, standard_, help_)                                                          \
    {                                                                                                                              \
        .kind = WEFT_OPTION_INTEGER, .name = (name_), .value = (value_), .to.integer = (to_),                                      \
        .range.integer = {(least_), (most_)}, .standard = (standard_), .help = (help_)                                             \
    }
#define WEFT_NUMBER(name_, value_, to_, least_, most_, standard_, help_)                                                           \
    {                                                                                                                              \
        .kind = WEFT_OPTION_NUMBER, .name = (name_), .value = (value_), .to.number = (to_), .range.number = {(least_), (most_)},   \
        .standard = (standard_), .help = (help_)                                                                                   \
    }
#define WEFT_TEXT(name_, value_, to_, choices_, standard_, help_)                                                                  \
    {                                                                                                                              \
        .kind = WEFT_OPTION_TEXT, .name = (name_), .value = (value_), .to.text = (to_), .range.choices = (choices_),               \
        .standard = (standard_), .help = (help_)                                                                                   \
    }
#define WEFT_TEXTS(name_, value_, to_, help_)                                                                                      \
    { .kind = WEFT_OPTION_TEXTS, .name = (name_), .value = (value_), .to.texts = (to_), .help = (help_) }
#define WEFT_END                                                                                                                   \
    { .kind = WEFT_OPTION_END }

typedef struct weft_command {
    const char *name;           /* "run" */
    const char *positional;     /* "[PROMPT...]"; "" none */
    int least, most;            /* how many of them */
    const char *summary;        /* one or more sentences */
    const weft_option *options; /* ended by WEFT_END */
    const char *notes;          /* after the options, line by line as it is; NULL none */
} weft_command;

/* Parses argv[1..*argc); argv[0] is the command's name. On success the positional arguments are argv[0..*argc). *help: it was asked
 * for; nothing else has been checked then. WEFT_EINVAL: a message for the user. Texts point into argv. */
weft_status weft_args_parse(const weft_command *c, int *argc, char **argv, bool *help, weft_error *e);

/* The help text, for a terminal of `columns`; false when memory is short. */
bool weft_args_help(const weft_command *c, int columns, weft_str *out);

/* The name in names[0..n) that `word` was probably meant to be; NULL if none is near. */
const char *weft_args_nearest(const char *word, const char *const *names, int n);

#endif

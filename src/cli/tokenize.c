/* tokenize.c: `weft tokenize`: text to token ids and back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/input.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define INPUT_LARGEST ((size_t)1 << 30)

typedef struct options {
    const char *model, *input; /* input NULL: standard input */
    bool decode, plain, chat, ids, count, json;
} options;

/* ---- what comes in ------------------------------------------------------------------------------------------------------- */

static weft_status open_tokenizer(weft_tokenizer **t, const char *model, weft_error *e) {
    weft_str path = {0};
    bool ok = weft_str_addf(&path, weft_dir_exists(model) ? "%s/tokenizer.json" : "%s", model);
    weft_status s = ok ? weft_tokenizer_open(t, path.p, e) : weft_fail_oom(e, "a path");
    weft_str_free(&path);
    return s;
}

static weft_status read_input(const options *o, weft_str *text, weft_error *e) {
    if (o->input) return weft_str_addz(text, o->input) ? WEFT_OK : weft_fail_oom(e, "the text");
    return weft_cli_read_stdin(text, INPUT_LARGEST, o->decode ? "the list of ids" : "the text", e);
}

/* A user's turn in the chat format of the folder. */
static weft_status encode_chat(const weft_tokenizer *t, const options *o, const weft_str *text, weft_ids *ids, weft_error *e) {
    weft_str folder = {0};
    weft_chat *chat = NULL;
    weft_chat_request r = {0};
    weft_jinja_output prompt = {0};
    weft_status s = weft_cli_folder(o->model, &folder) ? weft_chat_open(&chat, folder.p, t, e) : weft_fail_oom(e, "a path");
    if (s == WEFT_OK) s = weft_cli_messages(NULL, weft_str_z(text), text->n, &r.messages, e);
    if (s == WEFT_OK) s = weft_chat_render(chat, &r, &prompt, e);
    if (s == WEFT_OK) s = weft_tokenizer_encode(t, prompt.parts.v, prompt.parts.n, ids, e);
    weft_jinja_output_free(&prompt);
    json_object_put(r.messages);
    weft_chat_close(chat);
    weft_str_free(&folder);
    return s;
}

static weft_status encode(const weft_tokenizer *t, const options *o, weft_ids *ids, weft_error *e) {
    weft_str text = {0};
    weft_status s = read_input(o, &text, e);
    if (s == WEFT_OK && o->chat) {
        s = encode_chat(t, o, &text, ids, e);
    } else if (s == WEFT_OK) {
        const weft_text_part plain = {.text = weft_str_z(&text), .n = text.n, .special = !o->plain};
        size_t n;
        const int32_t *prefix = weft_tokenizer_prefix(t, &n);
        bool ok = true;
        for (size_t k = 0; ok && !o->plain && k < n; k++) ok = weft_vec_push(ids, prefix[k]);
        s = ok ? weft_tokenizer_encode(t, &plain, 1, ids, e) : weft_fail_oom(e, "the text");
    }
    if (s == WEFT_OK && !o->chat && !o->plain) {
        size_t n;
        const int32_t *suffix = weft_tokenizer_suffix(t, &n);
        bool ok = true;
        for (size_t k = 0; ok && k < n; k++) ok = weft_vec_push(ids, suffix[k]);
        if (!ok) s = weft_fail_oom(e, "the text");
    }
    weft_str_free(&text);
    return s;
}

/* Numbers between blanks, commas or brackets, so that what --ids and --json print can be read back. */
static weft_status parse_ids(char *text, weft_ids *ids, weft_error *e) {
    static const char between[] = " \t\r\n,[]";
    for (char *p = text + strspn(text, between); *p;) {
        size_t n = strcspn(p, between), gap = strspn(p + n, between);
        int64_t id;
        p[n] = 0;
        if (!weft_parse_i64(p, 0, INT32_MAX, &id)) return weft_fail(e, WEFT_EINVAL, "'%.40s' is not a token id", p);
        if (!weft_vec_push(ids, (int32_t)id)) return weft_fail_oom(e, "the ids");
        p += gap ? n + gap : n;
    }
    return WEFT_OK;
}

static weft_status read_ids(const options *o, weft_ids *ids, weft_error *e) {
    if (o->input && weft_file_exists(o->input)) {
        weft_cli_ids file = {0};
        weft_status s = weft_cli_read_ids(&file, o->input, e);
        ids->v = file.v, ids->n = file.n, ids->cap = file.cap;
        return s;
    }
    weft_str text = {0};
    weft_status s = read_input(o, &text, e);
    if (s == WEFT_OK && strlen(weft_str_z(&text)) != text.n) s = weft_fail(e, WEFT_EINVAL, "the ids have a NUL character in them");
    if (s == WEFT_OK && text.n) s = parse_ids(text.p, ids, e);
    weft_str_free(&text);
    return s;
}

/* ---- what goes out ------------------------------------------------------------------------------------------------------- */

static bool unprintable(int32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* A token's bytes between quotes, as JSON; pieces of characters as \xNN, which JSON has no form for: U+FFFD there. */
static void print_quoted(const char *bytes, size_t n, bool json) {
    putchar('"');
    for (size_t at = 0; at < n;) {
        int32_t c;
        size_t len = weft_utf8_next(bytes + at, n - at, &c);
        if (c < 0 && json)
            fputs("\\ufffd", stdout);
        else if (c < 0)
            for (size_t k = 0; k < len; k++) printf("\\x%02X", (unsigned)(uint8_t)bytes[at + k]);
        else if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\t')
            fputs("\\t", stdout);
        else if (unprintable(c))
            printf("\\u%04x", (unsigned)c);
        else {
            if (c == '"' || c == '\\') putchar('\\');
            fwrite(bytes + at, 1, len, stdout);
        }
        at += len;
    }
    putchar('"');
}

static void print_tokens(const weft_tokenizer *t, const weft_ids *ids, bool json) {
    if (json) putchar('[');
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        int32_t id = ids->v[i];
        const char *bytes = weft_tokenizer_bytes(t, id, &n);
        bool special = weft_tokenizer_special(t, id);
        printf(json ? "%s{\"id\": %d, \"text\": " : "%s%7d  ", json && i ? ",\n " : "", (int)id);
        print_quoted(bytes, n, json);
        if (json)
            printf(", \"special\": %s}", special ? "true" : "false");
        else
            puts(special ? "  special" : "");
    }
    if (json) puts("]");
}

static void print_ids(const weft_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) printf(i ? " %d" : "%d", (int)ids->v[i]);
    putchar('\n');
}

static weft_status print_text(const weft_tokenizer *t, const options *o, const weft_ids *ids, weft_error *e) {
    weft_str text = {0};
    weft_status s = weft_tokenizer_decode(t, ids->v, ids->n, !o->plain, &text, e);
    if (s == WEFT_OK && text.n) {
        fwrite(text.p, 1, text.n, stdout);
        if (isatty(STDOUT_FILENO) && text.p[text.n - 1] != '\n') putchar('\n');
    }
    weft_str_free(&text);
    return s;
}

static weft_status tokenize(const weft_tokenizer *t, const options *o, weft_error *e) {
    weft_ids ids = {0};
    weft_status s = o->decode ? read_ids(o, &ids, e) : encode(t, o, &ids, e);
    if (s == WEFT_OK) {
        if (o->decode)
            s = print_text(t, o, &ids, e);
        else if (o->count)
            printf("%zu\n", ids.n);
        else if (o->ids)
            print_ids(&ids);
        else
            print_tokens(t, &ids, o->json);
    }
    weft_vec_free(&ids);
    return s;
}

int weft_cmd_tokenize(int argc, char **argv) {
    options o = {0};
    const weft_option table[] = {
        WEFT_FLAG("ids", &o.ids, "Print the ids alone, on one line."),
        WEFT_FLAG("count", &o.count, "Print how many tokens the text has."),
        WEFT_FLAG("json", &o.json, "Print a JSON array of objects with id, text and special."),
        WEFT_FLAG("decode", &o.decode,
                  "The other way: INPUT is a list of ids, or the name of a file with one (numbers, or a safetensors file with "
                  "'input_ids'), and their text is printed, byte for byte."),
        WEFT_FLAG("no-special", &o.plain,
                  "Take special tokens such as <|im_end|> in the text as ordinary characters; with --decode, leave them out."),
        WEFT_FLAG("chat", &o.chat, "Put the text into a user's turn of a chat, as weft run does."),
        WEFT_END,
    };
    const weft_command command = {
        .name = "tokenize",
        .positional = "[MODEL] [INPUT]",
        .least = 0,
        .most = 2,
        .summary = "Shows the tokens of a text: one a line, with the id and the text in quotes. MODEL is a model folder or a "
                   "tokenizer.json; without one the bundled model's is taken. Without INPUT the text is read from standard input.",
        .options = table,
        .notes = "Examples:\n"
                 "  weft tokenize \"Hello, world\"\n"
                 "  weft tokenize --count ./my-model < README.md\n"
                 "  weft tokenize --ids \"Hello\" | weft tokenize --decode\n",
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    if (o.decode + o.ids + o.count + o.json > 1 || (o.chat && (o.decode || o.plain))) {
        weft_cli_fail("these options of tokenize exclude each other; see weft tokenize --help");
        return WEFT_EXIT_USAGE;
    }
    if (argc == 2 || (argc == 1 && weft_cli_is_model(argv[0]))) o.model = argv[0];
    if (argc == 2 || (argc == 1 && !o.model)) o.input = argv[argc - 1];
    if (!o.model) o.model = weft_cli_bundled_model();
    if (!o.model) return weft_cli_fail("the bundled model was not found; name a model folder: weft tokenize MODEL TEXT");

    weft_error e = {0};
    weft_tokenizer *t = NULL;
    weft_status s = open_tokenizer(&t, o.model, &e);
    if (s == WEFT_OK) s = tokenize(t, &o, &e);
    weft_tokenizer_close(t);
    return s == WEFT_OK ? WEFT_EXIT_OK : weft_cli_fail("%s", e.text);
}

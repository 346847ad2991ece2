/* fuzz_args.c: command lines. The input's words, split at zero bytes, against a table with every kind of option; what is accepted
 * must lie in its range, what is refused must leave a message of one line. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.c" /* the commands are no part of the library */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool flag = false, help;
    int64_t integer = 3;
    double number = 0.5;
    const char *text = "t", *choice = "a";
    weft_texts texts = {.n = 0};
    const weft_option options[] = {
        WEFT_HEADING("Options"),
        WEFT_FLAG("flag", &flag, "a flag"),
        WEFT_INTEGER("integer", "N", &integer, -5, 50, NULL, "an integer"),
        WEFT_NUMBER("number", "X", &number, 0, 1, NULL, "a number"),
        WEFT_TEXT("text", "TEXT", &text, NULL, NULL, "a text"),
        WEFT_TEXT("choice", "NAME", &choice, "a|b|cc", "a", "one of three"),
        WEFT_TEXTS("texts", "TEXT", &texts, "several"),
        WEFT_END,
    };
    const weft_command command = {"fuzz", "[A...]", 0, 5, "Nothing.", options, NULL};

    char *words = malloc(size + 1), *argv[64] = {"fuzz"};
    if (!words) return 0;
    memcpy(words, data, size);
    words[size] = 0;
    int argc = 1;
    for (size_t at = 0; at < size && argc < 63; at += strlen(words + at) + 1) argv[argc++] = words + at;

    weft_error e;
    weft_status s = weft_args_parse(&command, &argc, argv, &help, &e);
    assert(integer >= -5 && integer <= 50);
    assert(texts.n >= 0 && texts.n <= WEFT_TEXTS_MOST);
    assert(number >= 0 && number <= 1);
    assert(strcmp(choice, "a") == 0 || strcmp(choice, "b") == 0 || strcmp(choice, "cc") == 0);
    if (s == WEFT_OK && !help) assert(argc <= 5);
    if (s != WEFT_OK) {
        char clean[sizeof e.text];
        strcpy(clean, e.text);
        weft_clean_line(clean);
        assert(strcmp(clean, e.text) == 0 && *clean);
    }
    free(words);
    return 0;
}

/* mode.c: see mode.h. */
#include "engine/mode.h"

/* Of Qwen and Nemotron, Gemma 4, Mistral. */
static const struct {
    const char *text;
    weft_mode mode;
} marks[] = {
    {"<think>", WEFT_MODE_THINKING},   {"</think>", WEFT_MODE_TEXT},       {"<tool_call>", WEFT_MODE_TOOL},
    {"</tool_call>", WEFT_MODE_TEXT},  {"<|channel>", WEFT_MODE_THINKING}, {"<channel|>", WEFT_MODE_TEXT},
    {"<|tool_call>", WEFT_MODE_TOOL},  {"<tool_call|>", WEFT_MODE_TEXT},   {"[THINK]", WEFT_MODE_THINKING},
    {"[/THINK]", WEFT_MODE_TEXT},      {"[TOOL_CALLS]", WEFT_MODE_TOOL},   {"<|im_end|>", WEFT_MODE_TEXT},
    {"<end_of_turn>", WEFT_MODE_TEXT}, {"<turn|>", WEFT_MODE_TEXT},
};
_Static_assert(sizeof marks / sizeof *marks <= WEFT_MODE_MARKS, "all marks have a place");

void weft_modes_open(weft_modes *m, const weft_tokenizer *t) {
    m->n = 0;
    for (size_t i = 0; t && i < sizeof marks / sizeof *marks; i++) {
        int32_t id = weft_tokenizer_find(t, marks[i].text);
        if (id < 0) continue;
        m->id[m->n] = id;
        m->mode[m->n++] = marks[i].mode;
    }
}

weft_mode weft_mode_after(const weft_modes *m, weft_mode mode, int32_t id) {
    for (int i = 0; i < m->n; i++)
        if (m->id[i] == id) return m->mode[i];
    return mode;
}

weft_mode weft_mode_at(const weft_modes *m, const int32_t *ids, size_t n) {
    weft_mode mode = WEFT_MODE_TEXT;
    for (size_t i = 0; i < n; i++) mode = weft_mode_after(m, mode, ids[i]);
    return mode;
}

/* forge.c: `weft forge synth`: checkpoints of random weights, to measure speed without a download. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "cli/cli.h"
#include "forge/synth.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}

/* What was written so far is removed. */
static void catch_interrupts(void) {
    struct sigaction a = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

static int synth(const weft_synth *y) {
    weft_error e = {0};
    uint64_t bytes = 0;
    char size[16];
    catch_interrupts();
    if (weft_synth_write(y, &bytes, &e) != WEFT_OK) return weft_cli_fail("%s", e.text);
    printf("%s%s: %s\n", y->out, y->gguf ? "/model.gguf" : "", weft_bytes_text(bytes, size));
    return WEFT_EXIT_OK;
}

/* front and the names of all shapes. */
static bool list_shapes(weft_str *s, const char *front) {
    bool ok = weft_str_addz(s, front);
    for (int i = 0; weft_shape_at(i); i++) ok = ok && weft_str_addf(s, "%s%s", i ? ", " : "", weft_shape_at(i)->name);
    return ok;
}

static int parse_and_run(int argc, char **argv, const char *shapes) { /* shapes: for the help text */
    const char *like = NULL, *bits = "4", *head_bits = NULL;
    int64_t layers = 0, seed = 0;
    weft_synth y = {.stop = &interrupted};
    const weft_option options[] = {
        WEFT_TEXT("like", "MODEL", &like, NULL, NULL, shapes),
        WEFT_TEXT("out", "DIR", &y.out, NULL, NULL, "Where it goes: a folder that is empty or does not exist yet."),
        WEFT_INTEGER("layers", "N", &layers, 0, 1024, "0: all", "Only the first N layers."),
        WEFT_TEXT("bits", "N", &bits, "4|8|16", NULL,
                  "Bits of a weight. 4, 8: a folder as mlx-lm makes it, in groups of 64; 16: as transformers stores it, bfloat16."),
        WEFT_TEXT("head-bits", "N", &head_bits, "4|6|8|16", "6 with 4 bits, or 8 where 6 do not fit; else the same",
                  "Bits of the output head, which small models share with the embedding."),
        WEFT_FLAG("gguf", &y.gguf, "One file for llama.cpp, DIR/model.gguf, in Q4_0, Q6_K, Q8_0 or BF16; without the MTP head."),
        WEFT_INTEGER("seed", "S", &seed, 0, INT64_MAX, NULL, "The same seed gives the same bytes."),
        WEFT_END,
    };
    const weft_command command = {
        .name = "forge",
        .positional = "synth",
        .least = 1,
        .most = 1,
        .summary = "Makes checkpoints. synth: random weights in the shape of a published model, with the MTP head where it has "
                   "one, to measure speed and memory without a download. Activations and states keep a healthy size; the text is "
                   "nonsense. There is no "
                   "tokenizer.",
        .options = options,
        .notes = "Example:\n"
                 "  weft forge synth --like qwen3.5-2b --out /tmp/2b\n"
                 "  weft inspect /tmp/2b\n",
    };
    int code;
    if (!weft_cli_args(&command, &argc, argv, &code)) return code;
    if (strcmp(argv[0], "synth") != 0) {
        weft_cli_fail("unknown: forge %s; see weft help forge", argv[0]);
        return WEFT_EXIT_USAGE;
    }
    if (!like || !y.out || !*y.out) {
        weft_cli_fail("forge synth needs --like MODEL and --out DIR; see weft help forge");
        return WEFT_EXIT_USAGE;
    }
    y.shape = weft_shape_find(like);
    if (!y.shape) {
        weft_cli_fail("--like %s: no such shape; see weft help forge", like);
        return WEFT_EXIT_USAGE;
    }
    int64_t n = 0, head = 0;
    y.layers = (int)layers;
    y.bits = weft_parse_i64(bits, 4, 16, &n) ? (int)n : 0;
    y.head_bits = head_bits && weft_parse_i64(head_bits, 4, 16, &head) ? (int)head : 0;
    y.seed = (uint64_t)seed;
    return synth(&y);
}

int weft_cmd_forge(int argc, char **argv) {
    weft_str shapes = {0};
    int code = list_shapes(&shapes, "The model whose shape it gets: ") ? parse_and_run(argc, argv, weft_str_z(&shapes))
                                                                       : weft_cli_fail("out of memory");
    weft_str_free(&shapes);
    return code;
}

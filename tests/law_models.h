/* law_models.h: two models of the smallest size, in a folder of their own: a hybrid of two layers with an MTP head, and one
 * attention layer without a drafter. Included by one test program each. */
#ifndef WEFT_TESTS_LAW_MODELS_H
#define WEFT_TESTS_LAW_MODELS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "forge/synth.h"

static char scratch[200], hybrid[300], dense[300];

static inline int law_make_models(void) {
    static const weft_shape shapes[] = {{.name = "hybrid",
                                         .family = WEFT_SHAPE_QWEN3_5,
                                         .layers = "L*",
                                         .hidden = 32,
                                         .n_layers = 2,
                                         .vocab = 16,
                                         .context = 4096,
                                         .intermediate = 32,
                                         .n_heads = 1,
                                         .n_kv_heads = 1,
                                         .head_dim = 16,
                                         .rotary_dim = 8,
                                         .theta = 1e4,
                                         .gdn_k_heads = 1,
                                         .gdn_v_heads = 1,
                                         .gdn_dim = 16,
                                         .taps = 4},
                                        {.name = "dense",
                                         .family = WEFT_SHAPE_QWEN3,
                                         .layers = "*",
                                         .hidden = 32,
                                         .n_layers = 1,
                                         .vocab = 16,
                                         .context = 4096,
                                         .intermediate = 32,
                                         .n_heads = 1,
                                         .n_kv_heads = 1,
                                         .head_dim = 32,
                                         .theta = 1e4}};
    char *folders[] = {hybrid, dense};
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/weft-law-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch)) return -1;
    for (int i = 0; i < 2; i++) {
        weft_error e;
        uint64_t bytes;
        snprintf(folders[i], sizeof hybrid, "%s/%s", scratch, shapes[i].name);
        if (weft_synth_write(&(weft_synth){.shape = &shapes[i], .bits = 16, .seed = 1, .out = folders[i]}, &bytes, &e) != WEFT_OK) {
            fprintf(stderr, "%s\n", e.text);
            return -1;
        }
    }
    return 0;
}
static inline void law_drop_models(void) {
    char path[400];
    const char *const folders[] = {hybrid, dense}, *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%s/%s", folders[i], files[k]);
            remove(path);
        }
        rmdir(folders[i]);
    }
    rmdir(scratch);
}

#endif

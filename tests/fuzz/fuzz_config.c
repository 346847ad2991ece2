/* fuzz_config.c: config.json and, after a byte 0xff, generation_config.json, from a stranger. Whatever is accepted must be a model
 * that the engine can size its memory by. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/config.h"

static void require(bool ok) {
    if (!ok) abort();
}

static void require_heads(const weft_model_config *c, const weft_heads *h) {
    const weft_rope *r = &h->rope;
    require(h->n_kv_heads > 0 && c->n_heads % h->n_kv_heads == 0 && h->head_dim >= 8 && h->head_dim <= 1024);
    if (r->kind == WEFT_ROPE_NONE) return;
    require(r->width >= 2 && r->width <= h->head_dim && r->width % 2 == 0 && r->turning >= 1 && r->turning <= r->width / 2);
    require(r->theta >= 1 && r->factor >= 1 && r->attention_factor > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *split = size ? memchr(data, 0xff, size) : NULL;
    size_t n = split ? (size_t)(split - data) : size, rest = split ? size - n - 1 : 0;
    char *text = malloc(n ? n : 1), *generation = split ? malloc(rest ? rest : 1) : NULL;
    if (n) memcpy(text, data, n);
    if (rest) memcpy(generation, split + 1, rest);
    weft_model_config c;
    weft_error e;
    if (weft_model_config_parse(&c, text, n, generation, rest, &e) == WEFT_OK) {
        require(c.n_layers >= 1 && c.n_layers <= WEFT_MAX_LAYERS && c.vocab_size > 1 && c.hidden_size > 0);
        for (int i = 0; i < c.n_layers; i++) require(c.layer_kind[i] <= WEFT_LAYER_MOE);
        require_heads(&c, &c.full);
        require_heads(&c, &c.sliding);
        require(c.norm_eps > 0 && c.attention_scale > 0 && c.router_groups >= 1);
        require(c.family != WEFT_FAMILY_QWEN_HYBRID || (c.gdn_v_heads % c.gdn_k_heads == 0 && c.conv_kernel >= 2));
        require(weft_config_count(&c, WEFT_LAYER_MAMBA) == 0 || (c.mamba_heads % c.mamba_groups == 0 && c.conv_kernel >= 2));
        require((weft_config_count(&c, WEFT_LAYER_SLIDING) == 0) == (c.window == 0));
        require(c.n_experts ? c.top_k >= 1 && c.top_k <= c.n_experts && c.moe_intermediate > 0 : !c.top_k);
        require(c.n_eos >= 0 && c.n_eos <= WEFT_MAX_EOS && c.bos < c.vocab_size && c.pad < c.vocab_size);
        for (int i = 0; i < c.n_eos; i++) require(c.eos[i] >= 0 && c.eos[i] < c.vocab_size);
        require(c.mtp_layers == 0 || c.mtp_layers == 1);
        for (size_t i = 0; i < c.n_quants; i++)
            require(weft_config_quant(&c, c.quants[i].path) == &c.quants[i] && c.quants[i].mode);
        weft_model_config_free(&c);
    } else {
        require(!c.arena.head && e.text[0]);
    }
    free(text);
    free(generation);
    return 0;
}

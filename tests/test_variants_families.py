#!/usr/bin/env python3
"""test_variants_families.py BUILD: Qwen3-Next, Qwen2, Qwen3, Llama 3, Gemma 3, Gemma 4 and Nemotron-H as publishers and
converters store them. The golden is one spelling of each; every other one must give its logits to the last byte.
"""
import os
import sys

sys.dont_write_bytecode = True
import safetensors_io as st
from golden import GEMMA4, NEMOTRON, PAIRS, PLAIN, Variants, compare_pair, folder_of, logits, parse, suite, take_ids
from harness import Model
from rewrites import fold_norms, move_convolutions, nest, one_by_one, put_prefix, shards, split_experts, stacked

NEXT, LLAMA, QWEN2, QWEN3, QWEN3_MOE, GEMMA3 = "qwen3_next", "llama3", "qwen2", "qwen3-dense", "qwen3-moe", "gemma3"
KEQV, MOE, PLE = "gemma4-keqv", "gemma4-moe", "gemma4-ple"
MIXTURES = ["nemotron_h-latent", "nemotron_h-moe", "nemotron_h-mtp"]
TIED = [QWEN2, GEMMA3, *GEMMA4]

variant = Variants([NEXT, *PLAIN, GEMMA3, *GEMMA4, *NEMOTRON])


def zeros(dtype, *shape):
    return st.Tensor(dtype, shape, bytes(st.Tensor(dtype, shape, b"").count() * st.SIZES[dtype]))


# ---- files and types, of every family ----


@variant("three shards in any order, with an index")
def _(m):
    shards(m, 3, 1)


@variant("all weights in F32")
def _(m):
    m.map(lambda name, t: t.to("F32"))


@variant("everything that has one axis in F32: norms, biases, A_log, D, dt_bias, e_score_correction_bias")
def _(m):
    m.map(lambda name, t: t.to("F32") if len(t.shape) == 1 else t)


@variant("no metadata, tensors in another order, torch_dtype")
def _(m):
    m.metadata = None
    m.tensors = dict(sorted(m.tensors.items(), reverse=True))
    m.config["torch_dtype"] = m.config.pop("dtype", None) or "bfloat16"


@variant("no model_type: architectures says it")
def _(m):
    del m.config["model_type"]


@variant("language_model. before everything, as MLX writes text models of multimodal ones", [*PLAIN, *GEMMA4, GEMMA3])
def _(m):
    m.rename(lambda name: "language_model." + name)
    m.metadata = {"format": "mlx"}


# ---- heads ----


@variant("tied, with a copy of the embedding for a head", TIED)
def _(m):
    m.tensors["lm_head.weight"] = m.tensors["model.embed_tokens.weight"]


@variant("tied, no flag says so, and the head is a copy of the embedding", TIED)
def _(m):
    m.config.pop("tie_word_embeddings")
    m.tensors["lm_head.weight"] = m.tensors["model.embed_tokens.weight"]


@variant("tied, no flag says so, and there is no head", TIED)
def _(m):
    m.config.pop("tie_word_embeddings")


@variant("tied, with another head in the file: the flag counts", [QWEN2, GEMMA3, KEQV])
def _(m):
    m.tensors["lm_head.weight"] = zeros("BF16", 320, 64)


# ---- experts ----


@variant("experts one by one", [NEXT, QWEN3_MOE])
def _(m):
    split_experts(m, one_by_one)


@variant("experts stacked, as MLX has them", [QWEN3_MOE])
def _(m):
    split_experts(m, stacked)
    m.metadata = {"format": "mlx"}


@variant("the other name of num_experts, norm_topk_prob unsaid", [NEXT, QWEN3_MOE])
def _(m):
    names = ["num_experts", "num_local_experts"]
    old = names[names[1] in m.config]
    m.config[names[old == names[0]]] = m.config.pop(old)
    if m.config["norm_topk_prob"]:
        del m.config["norm_topk_prob"]


# ---- Qwen3-Next ----


def flat_rope(m):
    rope = m.config.pop("rope_parameters")
    m.config["rope_theta"] = int(rope["rope_theta"])
    m.config["rope_scaling"] = None
    if "partial_rotary_factor" in rope:
        m.config["partial_rotary_factor"] = rope["partial_rotary_factor"]


@variant("flat rope, full_attention_interval for layer_types", [NEXT])
def _(m):
    flat_rope(m)
    del m.config["layer_types"]
    m.config["full_attention_interval"] = 4


@variant("neither layer_types nor an interval", [NEXT])
def _(m):
    del m.config["layer_types"]


@variant("MLX: experts stacked, norms folded, convolutions moved", [NEXT])
def _(m):
    fold_norms(m)
    move_convolutions(m)
    split_experts(m, stacked)
    m.metadata = {"format": "mlx"}


# ---- the plain decoder ----


@variant("an older config: flat rope, no layer_types, a window that is switched off", [QWEN2, QWEN3, QWEN3_MOE])
def _(m):
    flat_rope(m)
    m.config.pop("layer_types", None)
    m.config.update(use_sliding_window=False, sliding_window=32, max_window_layers=2)


@variant("a window for no layer: all of them come before max_window_layers", [QWEN2, QWEN3])
def _(m):
    m.config.update(use_sliding_window=True, sliding_window=32, max_window_layers=4)


@variant("no head_dim: hidden_size by heads", [LLAMA, QWEN2])
def _(m):
    suite.check(m.config.pop("head_dim", 16) == 16, "heads of 64 / 4")


def scaled_rope(m, key):
    rope = m.config.pop("rope_parameters")
    m.config["rope_theta"] = rope.pop("rope_theta")
    m.config["rope_scaling"] = {**{k: v for k, v in rope.items() if k != "rope_type"}, key: rope["rope_type"]}


@variant("rope_scaling beside a flat rope_theta", [LLAMA])
def _(m):
    scaled_rope(m, "rope_type")


@variant("rope_scaling with its type in the older spelling", [LLAMA])
def _(m):
    scaled_rope(m, "type")


@variant("as a Mistral, whose window is null", [LLAMA])
def _(m):
    m.config.update(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None)


@variant("frequencies of the rotation in the file", [LLAMA, QWEN2])
def _(m):
    for i in range(4):
        m.tensors[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = zeros("F32", 8)


@variant("exported without a prefix, as embedding models are", [QWEN3])
def _(m):
    put_prefix(m, "")
    m.config["architectures"] = ["Qwen3Model"]
    del m.config["model_type"]


# ---- Gemma 3 ----


def add_towers(m, prefix):
    m.tensors[f"{prefix}vision_tower.vision_model.embeddings.patch_embedding.weight"] = st.tensor("BF16", [4, 3, 2, 2], [0.5] * 48)
    m.tensors[f"{prefix}vision_tower.encoder.layers.0.self_attn.q_proj.input_max"] = st.tensor("F32", [], [1.0])
    m.tensors[f"{prefix}audio_tower.layers.0.norm.weight"] = st.tensor("BF16", [4], [0.5] * 4)
    m.tensors[f"{prefix}multi_modal_projector.mm_input_projection_weight"] = st.tensor("F32", [2, 2], [1.0] * 4)
    m.tensors[f"{prefix}embed_vision.embedding_projection.weight"] = st.tensor("BF16", [2, 2], [1.0] * 4)


@variant("multimodal: nested text_config, language_model.model., towers", [GEMMA3])
def _(m):
    nest(m, "text_config", "gemma3", "gemma3_text", "Gemma3ForConditionalGeneration")
    put_prefix(m, "language_model.model.")
    add_towers(m, "")


@variant("multimodal: nested text_config, model.language_model., towers", [GEMMA3])
def _(m):
    nest(m, "text_config", "gemma3", "gemma3_text", "Gemma3ForConditionalGeneration")
    put_prefix(m, "model.language_model.")
    add_towers(m, "model.")


def gemma3_flat(m, pattern):
    rope = m.config.pop("rope_parameters")
    m.config.pop("layer_types")
    m.config.pop("_sliding_window_pattern", None)
    m.config.update(rope_theta=rope["full_attention"]["rope_theta"], rope_local_base_freq=rope["sliding_attention"]["rope_theta"])
    m.config.update(rope_scaling=None, **({pattern: 6} if pattern else {}))


@variant("flat rope_theta and rope_local_base_freq, sliding_window_pattern", [GEMMA3])
def _(m):
    gemma3_flat(m, "sliding_window_pattern")


@variant("flat rope_theta and rope_local_base_freq, _sliding_window_pattern", [GEMMA3])
def _(m):
    gemma3_flat(m, "_sliding_window_pattern")


@variant("flat rope_theta and rope_local_base_freq, no pattern: every sixth layer is full", [GEMMA3])
def _(m):
    gemma3_flat(m, None)


@variant("MLX: nothing moved, norms still zero-centred", [GEMMA3])
def _(m):
    m.metadata = {"format": "mlx"}
    m.tensors["lm_head.weight"] = m.tensors["model.embed_tokens.weight"]
    m.config["hidden_act"] = m.config.pop("hidden_activation")


# ---- Gemma 4 ----


@variant("multimodal: nested text_config, model.language_model., towers", GEMMA4)
def _(m):
    nest(m, "text_config", "gemma4", "gemma4_text", "Gemma4ForConditionalGeneration")
    put_prefix(m, "model.language_model.")
    add_towers(m, "model.")


@variant("unified", ["gemma4-dense", KEQV])
def _(m):
    nest(m, "text_config", "gemma4_unified", "gemma4_unified_text", "Gemma4UnifiedForConditionalGeneration")
    put_prefix(m, "model.language_model.")


@variant("the full layers' sizes in keys of their own, in place of per_layer_config", GEMMA4)
def _(m):
    entries = list(m.config.pop("per_layer_config").values())
    suite.check(all(entry == entries[0] for entry in entries), "full layers are alike")
    m.config["global_head_dim"] = entries[0]["head_dim"]
    m.config["num_global_key_value_heads"] = entries[0].get("num_key_value_heads")


@variant("the full layers' sizes in both spellings", GEMMA4)
def _(m):
    m.config["global_head_dim"] = 32
    if m.config["attention_k_eq_v"]:
        m.config["num_global_key_value_heads"] = 1


@variant("MLX: experts stacked as switch_glu, language_model.model.", [MOE])
def _(m):
    split_experts(m, lambda module, expert, part: f"{module}.experts.switch_glu.{part}_proj.weight")
    m.rename(lambda name: "language_model." + name)
    m.metadata = {"format": "mlx"}


@variant("keys and values of layers that share an earlier one's", [PLE])
def _(m):
    for layer, rows, width in ((4, 32, 16), (5, 64, 32)):
        for part in ("k", "v"):
            m.tensors[f"model.layers.{layer}.self_attn.{part}_proj.weight"] = zeros("BF16", rows, 64)
        m.tensors[f"model.layers.{layer}.self_attn.k_norm.weight"] = zeros("BF16", width)


@variant("values of layers whose keys are their values", [KEQV])
def _(m):
    m.tensors["model.layers.5.self_attn.v_proj.weight"] = zeros("BF16", 32, 64)


@variant("the per-layer table in F32, in a shard of its own", [PLE])
def _(m):
    name = "model.embed_tokens_per_layer.weight"
    table = m.take(lambda other: other == name)[name].to("F32")
    shards(m, 2, 6)
    m.sidecars["model-00003-of-00003.safetensors"] = {name: table}
    m.json["model.safetensors.index.json"]["weight_map"][name] = "model-00003-of-00003.safetensors"


@variant("sharing, experts and tables switched off by null or by absence", ["gemma4-dense"])
def _(m):
    for key in ("num_kv_shared_layers", "hidden_size_per_layer_input", "use_double_wide_mlp"):
        del m.config[key]
    m.config.update(enable_moe_block=None, vocab_size_per_layer_input=None, use_bidirectional_attention="vision")


# ---- Nemotron-H ----


def pattern_of(words):
    letters = {"linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*", "moe": "E", "mlp": "-"}
    return "".join(letters[word] for word in words)


@variant("as published: backbone., a pattern for the layers", NEMOTRON)
def _(m):
    put_prefix(m, "backbone.")
    m.config["hybrid_override_pattern"] = pattern_of(m.config.pop("layers_block_type"))
    m.config["num_hidden_layers"] = len(m.config["hybrid_override_pattern"])
    m.config["mtp_hybrid_override_pattern"] = pattern_of(m.config.pop("mtp_layers_block_type"))
    m.config.update(rope_theta=10000, partial_rotary_factor=1.0, norm_eps=m.config.pop("layer_norm_epsilon"))


@variant("the older words for kinds of layers", NEMOTRON)
def _(m):
    words = {"linear_attention": "mamba", "full_attention": "attention"}
    for key in ("layers_block_type", "mtp_layers_block_type"):
        m.config[key] = [words.get(word, word) for word in m.config[key]]


@variant("no time_step_limit", NEMOTRON)
def _(m):
    del m.config["time_step_limit"]


@variant("time_step_limit with infinity as transformers writes it where JSON has no word", NEMOTRON)
def _(m):
    m.config["time_step_limit"] = [0.0, {"__float__": "Infinity"}]


@variant("time_step_limit null; other steps, which only training uses", NEMOTRON)
def _(m):
    m.config.update(time_step_limit=None, time_step_min=0.5, time_step_max=0.25, time_step_floor=0.5)


@variant("multimodal: nested llm_config, language_model.backbone., towers", NEMOTRON)
def _(m):
    nest(m, "llm_config", "NemotronH_Nano_VL_V2", "nemotron_h", "NemotronH_Nano_VL_V2")
    put_prefix(m, "backbone.")
    m.rename(lambda name: name if name.startswith("mtp.") else "language_model." + name)
    m.tensors["vision_model.radio_model.model.blocks.0.attn.qkv.weight"] = zeros("BF16", 4, 4)
    m.tensors["mlp1.0.weight"] = zeros("BF16", 4)


@variant("experts one by one", MIXTURES)
def _(m):
    split_experts(m, one_by_one, "up")


def as_mlx(m):
    names = {"up": "fc1", "down": "fc2"}
    put_prefix(m, "backbone.")
    split_experts(m, lambda module, expert, part: f"{module}.switch_mlp.{names[part]}.weight", "up")
    move_convolutions(m)
    m.metadata = {"format": "mlx"}


@variant("MLX: convolutions moved, experts stacked as fc1 and fc2", NEMOTRON)
def _(m):
    as_mlx(m)


@variant("MLX without the drafter, its number kept", ["nemotron_h-mtp"], compare="logits")
def _(m):
    m.take(lambda name: name.startswith("mtp."))
    as_mlx(m)


@variant("no drafter announced, its tensors in the file", ["nemotron_h-mtp"], compare="logits")
def _(m):
    m.config["num_nextn_predict_layers"] = 0


@variant("the drafter in mtp.safetensors", ["nemotron_h-mtp"])
def _(m):
    m.sidecars["mtp.safetensors"] = m.take(lambda name: name.startswith("mtp."))


@variant("a head's number without its tensors", ["nemotron_h-moe"])
def _(m):
    m.config["num_nextn_predict_layers"] = 1


# ---- Gemma 4's drafter ----

drafters = Variants(PAIRS)


@drafters("all weights in F32")
def _(m):
    m.map(lambda name, t: t.to("F32") if t.dtype == "BF16" else t)


@drafters("three shards in any order, with an index")
def _(m):
    shards(m, 3, 1)


@drafters("a copy of the embedding for a head")
def _(m):
    m.tensors["lm_head.weight"] = m.tensors["model.embed_tokens.weight"]


@drafters("the full layers' sizes in keys of their own, in place of per_layer_config")
def _(m):
    del m.config["text_config"]["per_layer_config"]
    m.config["text_config"]["global_head_dim"] = 32


@drafters("unified")
def _(m):
    m.config.update(model_type="gemma4_unified_assistant", architectures=["Gemma4UnifiedAssistantForCausalLM"])
    m.config["text_config"]["model_type"] = "gemma4_unified_text"


@drafters("the order of tokens in I32", ["gemma4-assistant-ordered"])
def _(m):
    name = "masked_embedding.token_ordering"
    m.tensors[name] = st.tensor("I32", m.tensors[name].shape, m.tensors[name].values())


def run_drafters(golden):
    """Beside the target as it is; and an assistant as it is beside its target in another form."""
    target, own = (os.path.join(folder_of(golden), part) for part in ("target", "assistant"))
    base = logits(f"{golden}: the published form", [target, "--draft", own], "--precise")
    for what, goldens, _, rewrite in drafters.all:
        if golden in goldens:
            m = Model(os.path.join(golden, "assistant"))
            rewrite(m)
            data = logits(f"{golden}: {what}", [target, "--draft", m.save(suite.fresh("assistant"))], "--precise")
            suite.check(data is not None and data == base, f"{golden}: {what}")
    m = Model(os.path.join(golden, "target"))
    nest(m, "text_config", "gemma4", "gemma4_text", "Gemma4ForConditionalGeneration")
    put_prefix(m, "model.language_model.")
    data = logits(f"{golden}: a multimodal target", [m.save(suite.fresh("target")), "--draft", own], "--precise")
    suite.check(data is not None and data == base, f"{golden}: a multimodal target")


# ---- variants of which both forms are rewritten ----


def half_precision(golden):
    """F16 holds a BF16 number exactly unless it is very small or large; without these both files must give the same."""

    def without_small(t):
        return st.tensor("BF16", t.shape, [w if abs(w) >= 2.0**-16 else 0.0 for w in t.values()])

    plain, half = Model(golden), Model(golden)
    plain.map(lambda name, t: without_small(t))
    half.map(lambda name, t: without_small(t).to("F16"))
    compare_pair("F16 where exact", golden, half, plain)


def linear_rope():
    """Only the full layers are scaled, in the old spelling and in the new one."""
    old, new = Model(GEMMA3), Model(GEMMA3)
    gemma3_flat(old, "sliding_window_pattern")
    old.config["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    new.config["rope_parameters"]["full_attention"].update(rope_type="linear", factor=8.0)
    compare_pair("a linear rope for the full layers", GEMMA3, old, new)
    one = logits("gemma3: scaled", new.save(suite.fresh(GEMMA3)), "--precise")
    suite.check(one != logits("gemma3", folder_of(GEMMA3), "--precise"), "gemma3: a linear rope changes something")


def time_steps(golden):
    """A limit that is really one: both spellings of the config, and other numbers than without."""
    one, other = Model(golden), Model(golden)
    for m in (one, other):
        m.config["time_step_limit"] = [0.01, 0.5]
    as_mlx(other)
    compare_pair("a limit for time steps", golden, one, other)
    limited = logits(f"{golden}: limited", one.save(suite.fresh(golden)), "--precise")
    suite.check(limited != logits(golden, folder_of(golden), "--precise"), f"{golden}: a limit for time steps changes something")


def attention_biases():
    """Llama's own switch for biases: with Qwen2's three biases and none behind o it is Qwen2."""
    llama = Model(QWEN2)
    llama.config.update(model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=True)
    for name in [name for name in llama.tensors if name.endswith("o_proj.weight")]:
        llama.tensors[name.removesuffix("weight") + "bias"] = zeros("BF16", 64)
    compare_pair("as a Llama with biases", QWEN2, llama, Model(QWEN2))


def qwen3_next_with_a_head():
    """Published with a head that no key of the config names. Here the one of a mixture with the same sizes; the trunk's logits stay."""

    def with_head():
        m = Model(NEXT)
        m.tensors.update({name: t for name, t in Model("qwen3_5-moe").tensors.items() if name.startswith("mtp.")})
        return m

    published, fused, converted = with_head(), with_head(), with_head()
    split_experts(published, one_by_one)
    fold_norms(converted, lambda name: not name.startswith("mtp."))
    move_convolutions(converted)
    split_experts(converted, stacked)
    converted.sidecars["mtp.safetensors"] = converted.take(lambda name: name.startswith("mtp."))
    compare_pair("a head, experts one by one", NEXT, published, fused)
    compare_pair("a head in a file of its own beside a converted trunk", NEXT, converted, fused)
    got = parse(logits("a head", fused.save(suite.fresh(NEXT)), "--precise"))
    suite.check("mtp_logits_d1" in got, f"{NEXT}: a head is found")
    plain = parse(logits(NEXT, folder_of(NEXT), "--precise"))
    suite.check(got["logits"].data == plain["logits"].data, f"{NEXT}: a head leaves the logits alone")


def main():
    for golden in variant.goldens:
        take_ids(golden)
        variant.run(golden)
        half_precision(golden)
    for golden in PAIRS:
        take_ids(golden)
        run_drafters(golden)
    for golden, check in ((GEMMA3, linear_rope), (QWEN2, attention_biases), (NEXT, qwen3_next_with_a_head)):
        take_ids(golden)
        check()
    take_ids("nemotron_h-dense")
    time_steps("nemotron_h-dense")
    return suite.finish()


sys.exit(main())

#!/usr/bin/env python3
"""test_variants.py BUILD: Qwen3.5 as publishers and converters store it: other names, layouts, types, places, spellings of the
config, drafters. Each must give the logits of the golden to the last byte. A loader that takes a variant for another computes
something, and nobody sees that it is not the model.

The other families' variants are in test_variants_families.py, packed weights in test_quantised.py.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
import harness
import rewrites
import safetensors_io as st
from golden import QWEN3_5 as ALL, Variants, compare_pair, compare_with, logits, parse, suite, take_ids
from harness import Model
from rewrites import fold_norms, move_convolutions, one_by_one, put_prefix, shards, split_experts, stacked

DENSE, TIED, ODD, MOE = ALL

# ---- configs ----

variant = Variants(ALL)


def nest(m, **outer):
    """As a multimodal checkpoint."""
    moe = "num_experts" in m.config
    kind = ("qwen3_5_moe", "qwen3_5_moe_text", "Qwen3_5MoeForConditionalGeneration")
    rewrites.nest(m, "text_config", *(kind if moe else [name.replace("_moe", "").replace("Moe", "") for name in kind]))
    m.config.update(image_token_id=310, **outer)


def add_vision(m):
    m.tensors["model.visual.patch_embed.proj.weight"] = st.tensor("BF16", [4, 3, 2, 2], [0.5] * 48)
    m.tensors["model.visual.blocks.0.attn.qkv.bias"] = st.tensor("F32", [12], [1.0] * 12)
    m.tensors["model.visual.pos_ids"] = st.tensor("I64", [2], [1, 2])


@variant("multimodal: nested text_config, model.language_model., vision tensors")
def _(m):
    nest(m)
    put_prefix(m, "model.language_model.")
    add_vision(m)


@variant("nested text_config without a model_type of its own, which calls the outer one")
def _(m):
    nest(m)
    del m.config["text_config"]["model_type"]


@variant("no model_type at all: architectures says it")
def _(m):
    del m.config["model_type"]


@variant("keys that mean nothing to this engine, and null for keys that do")
def _(m):
    m.config.update(quantization=None, rope_scaling=None, output_gate_type="swish", mlp_only_layers=[], language_model_only=True)
    m.config.update(full_attention_interval=None, attn_output_gate=True, mamba_ssm_dtype="float32", unheard_of={"a": [1, None]})


@variant("layer_types replaced by full_attention_interval")
def _(m):
    del m.config["layer_types"]
    m.config["full_attention_interval"] = 4


@variant("neither layer_types nor an interval: every fourth layer attends")
def _(m):
    del m.config["layer_types"]


def flat_rope(m):
    rope = m.config.pop("rope_parameters")
    m.config.update(rope_theta=int(rope["rope_theta"]), partial_rotary_factor=rope["partial_rotary_factor"])


@variant("older rope: flat, rope_scaling null")
def _(m):
    flat_rope(m)
    m.config["rope_scaling"] = None


@variant("older rope: flat, rope_scaling says mrope in its older spelling")
def _(m):
    flat_rope(m)
    m.config["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 1, 1]}


@variant("rope_parameters without partial_rotary_factor, which lies outside")
def _(m):
    m.config["partial_rotary_factor"] = m.config["rope_parameters"].pop("partial_rotary_factor")


@variant("num_local_experts, norm_topk_prob unsaid", [MOE])
def _(m):
    m.config["num_local_experts"] = m.config.pop("num_experts")
    m.config.pop("norm_topk_prob", None)


@variant("generation_config.json with end tokens")
def _(m):
    m.json["generation_config.json"] = {"eos_token_id": [300, 302], "pad_token_id": 300, "temperature": 0.6}


# ---- tied heads ----


@variant("tied, with a redundant copy of the head", [TIED])
def _(m):
    m.tensors["lm_head.weight"] = m.tensors["model.embed_tokens.weight"]


@variant("tied, with a head in the file that is not the embedding: the flag counts", [TIED])
def _(m):
    m.tensors["lm_head.weight"] = st.tensor("BF16", [320, 64], [0.25] * (320 * 64))


@variant("tied, and no flag says so: there is no head", [TIED])
def _(m):
    del m.config["tie_word_embeddings"]


@variant("tied: the flag in text_config counts more than the outer one", [TIED])
def _(m):
    nest(m, tie_word_embeddings=False)
    m.tensors["lm_head.weight"] = st.tensor("BF16", [320, 64], [0.25] * (320 * 64))


@variant("tied: the flag outside alone", [TIED])
def _(m):
    nest(m, tie_word_embeddings=True)
    del m.config["text_config"]["tie_word_embeddings"]
    m.tensors["lm_head.weight"] = st.tensor("BF16", [320, 64], [0.25] * (320 * 64))


@variant("not tied: the flag in text_config counts more than the outer one", [DENSE, MOE])
def _(m):
    nest(m, tie_word_embeddings=True)


@variant("not tied, and no flag says so: there is a head", [DENSE, ODD, MOE])
def _(m):
    del m.config["tie_word_embeddings"]


# ---- files ----


@variant("three shards in any order, with an index")
def _(m):
    shards(m, 3, 1)


@variant("shards, and the drafter in an mtp.safetensors that the index names")
def _(m):
    drafter = m.take(lambda name: name.startswith("mtp."))
    shards(m, 2, 2)
    m.sidecars["mtp.safetensors"] = drafter
    m.json["model.safetensors.index.json"]["weight_map"].update({name: "mtp.safetensors" for name in drafter})


@variant("shards, and the drafter in an mtp.safetensors that the index does not name")
def _(m):
    drafter = m.take(lambda name: name.startswith("mtp."))
    shards(m, 2, 3)
    m.sidecars["mtp.safetensors"] = drafter


@variant("one shard without an index, named as one")
def _(m):
    m.weights = "model-00001-of-00001.safetensors"


@variant("the drafter in mtp.safetensors")
def _(m):
    m.sidecars["mtp.safetensors"] = m.take(lambda name: name.startswith("mtp."))


@variant("no metadata, tensors in another order")
def _(m):
    m.metadata = None
    m.tensors = dict(sorted(m.tensors.items(), reverse=True))


# ---- the drafter ----


@variant("the drafter's tensors dropped, its number kept", compare="logits")
def _(m):
    m.take(lambda name: name.startswith("mtp."))


@variant("no drafter announced", compare="logits")
def _(m):
    m.config["mtp_num_hidden_layers"] = 0


# ---- types ----


@variant("all weights in F32")
def _(m):
    m.map(lambda name, t: t.to("F32"))


@variant("decays, dt_bias and norms in F32, as mixed checkpoints have them")
def _(m):
    m.map(lambda name, t: t.to("F32") if len(t.shape) == 1 else t)


@variant("types by turns: F32 and BF16, one layer so, one layer other")
def _(m):
    m.map(lambda name, t: t.to("F32") if sum(map(ord, name.split("proj")[0])) % 2 else t)


# ---- experts ----


@variant("experts one by one", [MOE])
def _(m):
    split_experts(m, one_by_one)


@variant("experts stacked, as MLX has them", [MOE])
def _(m):
    split_experts(m, stacked)


@variant("experts one by one in the drafter alone", [MOE])
def _(m):
    drafter = Model(MOE)
    drafter.tensors = m.take(lambda name: name.startswith("mtp."))
    split_experts(drafter, one_by_one)
    m.tensors.update(drafter.tensors)


@variant("experts one by one, sharded so that gate and up lie in different files, in F32", [MOE])
def _(m):
    split_experts(m, one_by_one)
    m.map(lambda name, t: t.to("F32"))
    shards(m, 3, 4)


# ---- MLX ----


def convert(m, drafter):
    """As MLX converters write it. drafter: "converted", "raw" (names and norms as published), or "bare" (without its prefix)."""
    fold_norms(m, lambda name: drafter != "raw" or not name.startswith("mtp."))
    move_convolutions(m)
    if "num_experts" in m.config:
        split_experts(m, stacked)
    m.rename(lambda name: name if name.startswith("mtp.") else "language_model." + name)
    m.metadata = {"format": "mlx"}
    if drafter == "bare":
        own = m.take(lambda name: name.startswith("mtp."))
        m.sidecars["mtp.safetensors"] = {name.removeprefix("mtp."): t for name, t in own.items()}


@variant("MLX: converted names, norms and convolutions, the drafter beside them as published")
def _(m):
    convert(m, "raw")


@variant("MLX: the drafter converted too, in the shards")
def _(m):
    nest(m)
    convert(m, "converted")
    m.rename(lambda name: "language_model." + name if name.startswith("mtp.") else name)
    shards(m, 3, 5)


@variant("MLX: the drafter converted, in a sidecar without its prefix")
def _(m):
    convert(m, "bare")


@variant("MLX: the drafter as published, in a sidecar")
def _(m):
    nest(m)
    convert(m, "raw")
    m.sidecars["mtp.safetensors"] = m.take(lambda name: name.startswith("mtp."))


# ---- variants that need more than a rewritten Model ----


def places(golden, base):
    """Other ways to name a folder, and other bytes around the same tensors."""
    folder = os.path.join(harness.GOLDEN, golden)
    for what, path in (
        ("a folder with a slash behind it", folder + "/"),
        ("a relative path", os.path.relpath(folder)),
        ("the weights' own path", os.path.join(folder, "model.safetensors")),
        ("the config's path", os.path.join(folder, "config.json")),
    ):
        compare_with(base, f"{golden}: {what}", path, "all")

    # A folder of the Hugging Face cache holds links to files without a suffix.
    cache = suite.path("cache")
    os.makedirs(os.path.join(cache, "snapshots", "1"))
    for name in ("config.json", "model.safetensors"):
        os.symlink(os.path.join(folder, name), os.path.join(cache, name.replace(".", "-")))
        os.symlink(os.path.join("..", "..", name.replace(".", "-")), os.path.join(cache, "snapshots", "1", name))
    compare_with(base, f"{golden}: links into a blob store", os.path.join(cache, "snapshots", "1"), "all")

    # Data at an odd address: nothing in the format promises alignment.
    m = Model(golden)
    odd = m.save(suite.fresh(golden))
    header = st.header_of(m.tensors)
    header += b" " * (1 - len(header) % 2)
    st.write_raw(os.path.join(odd, "model.safetensors"), header, b"".join(t.data for t in m.tensors.values()))
    compare_with(base, f"{golden}: data at an odd address", odd, "all")


def own_head(golden, module):
    """A drafter with an output head of its own: here the trunk's upside down, so that its logits must be, too."""
    m, what = Model(golden), f"{golden}: the drafter's own head, mtp.{module}"
    head = m.tensors["lm_head.weight"]
    rows = [head.part(r, 1).data for r in range(head.shape[0])]
    m.tensors[f"mtp.{module}.weight"] = st.Tensor(head.dtype, head.shape, b"".join(reversed(rows)))
    base = logits(f"{golden}: the published form", os.path.join(harness.GOLDEN, golden), "--precise")
    data = logits(what, m.save(suite.fresh(golden)), "--precise")
    if data is None or base is None:
        return
    base, got = parse(base), parse(data)
    suite.check(got["logits"].data == base["logits"].data, f"{what} leaves the trunk's logits alone")
    n, want, have = head.shape[0], base["mtp_logits_d1"].values(), got["mtp_logits_d1"].values()
    turned = all(have[at : at + n] == want[at : at + n][::-1] for at in range(0, len(want), n))
    suite.check(turned, f"{what} is used")


def drafter_without_norms(golden):
    """Some packs drop the norms around the drafter's layer: their gains count as one, in whichever convention."""
    for conversion in (None, "raw", "converted"):
        without, zero = Model(golden), Model(golden)
        dropped = without.take(lambda name: re.fullmatch(r"mtp\.(pre_fc_norm_\w+|norm)\.weight", name))
        for name, t in dropped.items():
            zero.tensors[name] = st.Tensor(t.dtype, t.shape, bytes(len(t.data)))  # zero-centred
        if conversion:
            convert(without, conversion)
        compare_pair(f"no norms around the drafter's layer, {conversion or 'published'}", golden, without, zero)


def stray_dense_layer():
    """A plain MLP beside the experts of a trunk layer, 200,000 rows of it, is not read: nothing has room for it."""
    m = Model(MOE)
    for part, shape in (("gate", [200_000, 64]), ("up", [200_000, 64]), ("down", [64, 200_000])):
        m.tensors[f"model.layers.0.mlp.{part}_proj.weight"] = st.Tensor("BF16", shape, bytes(2 * 64 * 200_000))
    compare_pair("a plain MLP beside a trunk layer's experts", MOE, m, Model(MOE))


def dense_drafter(width):
    """A mixture model whose drafter has a plain MLP. With one expert chosen of eight equal ones, and a shared one that gives zero,
    the mixture is that MLP; more columns than the expert has are zeros."""
    mixed, dense = Model(MOE), Model(MOE)
    path = "mtp.layers.0.mlp"
    gate_up, down = (mixed.tensors[f"{path}.experts.{part}_proj"] for part in ("gate_up", "down"))
    gate_up, down = (st.Tensor(t.dtype, t.shape[1:], t.part(3, 1).data) for t in (gate_up, down))
    inner = down.shape[1]
    for m in (mixed, dense):
        m.config["num_experts_per_tok"] = 1
    shared = mixed.tensors[f"{path}.shared_expert.down_proj.weight"]
    mixed.tensors[f"{path}.shared_expert.down_proj.weight"] = st.Tensor(shared.dtype, shared.shape, bytes(len(shared.data)))
    mixed.tensors[f"{path}.experts.gate_up_proj"] = st.stack([gate_up] * 8)
    mixed.tensors[f"{path}.experts.down_proj"] = st.stack([down] * 8)

    dense.take(lambda name: name.startswith(path + "."))
    hidden, pad = down.shape[0], width - inner
    for i, part in enumerate(("gate", "up")):
        rows = gate_up.part(i * inner, inner).data + bytes(pad * hidden * 2)
        dense.tensors[f"{path}.{part}_proj.weight"] = st.Tensor("BF16", [width, hidden], rows)
    wide = b"".join(down.part(r, 1).data + bytes(pad * 2) for r in range(hidden))
    dense.tensors[f"{path}.down_proj.weight"] = st.Tensor("BF16", [hidden, width], wide)
    compare_pair(f"the drafter has a plain MLP of {width}", MOE, dense, mixed)


def half_precision(golden):
    """F16 holds a BF16 number exactly unless it is very small or large; without these both files must give the same."""
    least = 2.0**-16

    def without_small(name, t):
        return st.tensor("BF16", t.shape, [w if abs(w) >= least else 0.0 for w in t.values()])

    plain, half = Model(golden), Model(golden)
    plain.map(without_small)
    half.map(lambda name, t: without_small(name, t).to("F16"))
    compare_pair("F16 where exact", golden, half, plain)


# ---- all of it ----


def main():
    for golden in ALL:
        take_ids(golden)
        base = variant.run(golden)
        if golden == DENSE:
            places(golden, base)
        if golden in (DENSE, MOE):
            half_precision(golden)
            own_head(golden, "lm_head")
            own_head(golden, "shared_head.head")
            drafter_without_norms(golden)
        if golden == MOE:
            stray_dense_layer()
            dense_drafter(48)
            dense_drafter(160)
    return suite.finish()


sys.exit(main())

#!/usr/bin/env python3
"""test_quantised.py BUILD: goldens packed as MLX affine, in 2 to 8 bits, whole models or single modules: with --precise each must
give, to the last byte, what the plain checkpoint with the dequantised values gives; in both modes chunks, threads and instruction
sets change nothing.
"""
import array
import os
import random
import sys

sys.dont_write_bytecode = True
import safetensors_io as st
from golden import PAIRS, QWEN3_5, compare_with, difference, fast_and_precise, folder_of, isas, logits, suite, take_ids, usable_isas
from harness import Model
from rewrites import fold_norms, move_convolutions, nest, put_prefix, split_experts, stacked

DENSE, TIED, _, MOE = QWEN3_5
# The goldens' random networks amplify: noise of half a per cent on every weight, which is what eight bits for an activation are,
# changes their logits by a fifth. So of their quantised forms only the size is checked.
AMPLIFIED = 0.2

# ---- the numbers ----

BITS = (2, 3, 4, 5, 6, 8)


def pack(codes, bits):
    n = 0
    for code in reversed(codes):
        n = n << bits | code
    return n.to_bytes(len(codes) * bits // 8, "little")


def quantise(t, bits, group, dtype, rising):
    """[.., k] in groups along its last axis: codes, scales, biases, and what they stand for: round(round(scale * code) + bias),
    in float32. Where `rising` is false the scales are negative, as converters make half of them."""
    k, values, top = t.shape[-1], t.values(), (1 << bits) - 1
    codes, scales, biases, products, added = bytearray(), [], [], [], []
    for at in range(0, len(values), group):
        part = values[at : at + group]
        low, high = min(part), max(part)
        scale, bias = ((high - low) / top, low) if rising else ((low - high) / top, high)
        scale, bias = round_to(dtype, scale), round_to(dtype, bias)
        q = [min(max(round((w - bias) / scale), 0), top) for w in part] if scale else [0] * group
        codes += pack(q, bits)
        scales.append(scale)
        biases.append(bias)
        products += [scale * code for code in q]
        added += [bias] * group
    rounded = array.array("f", products)
    dequantised = array.array("f", [p + b for p, b in zip(rounded, added)])
    rows = t.shape[:-1]
    return (
        st.Tensor("U32", rows + [k * bits // 32], codes),
        st.tensor(dtype, rows + [k // group], scales),
        st.tensor(dtype, rows + [k // group], biases),
        st.tensor("F32", t.shape, dequantised),
    )


def round_to(dtype, x):
    """x cut to what the type holds; the direction does not matter here."""
    data = array.array("f", [x]).tobytes()
    if dtype == "BF16":
        data = b"\0\0" + data[2:]
    if dtype == "F16":  # 10 bits behind the point
        data = (int.from_bytes(data, "little") & 0xFFFFE000).to_bytes(4, "little")
        x = array.array("f", data)[0]
        return x if abs(x) >= 2.0**-14 else 0.0
    return array.array("f", data)[0]


# ---- the checkpoints ----


def qwen3_5(m):
    fold_norms(m)
    move_convolutions(m)
    split_experts(m, stacked)
    m.rename(lambda name: "language_model." + name)


def quantise_model(golden, choose, dtype, convert):
    """An MLX checkpoint and the plain one with the same values. convert(m): the layout of either. choose(path, k) gives a module's
    (bits, group) or None."""
    packed, plain = Model(golden), Model(golden)
    for m in (packed, plain):
        convert(m)
        m.metadata = {"format": "mlx"}
    for name, t in list(packed.tensors.items()):
        if len(t.shape) < 2 or name.endswith("conv1d.weight"):
            continue
        path = name.removesuffix(".weight")
        how = choose(path, t.shape[-1])
        if how:
            codes, scales, biases, values = quantise(t, *how, dtype, len(path) % 2 == 0)
            packed.tensors.update({name: codes, f"{path}.scales": scales, f"{path}.biases": biases})
            plain.tensors[name] = values
    return packed, plain


def compare_quantised(what, golden, packed, plain):
    base = logits(f"{golden}: {what}, its values in F32", plain.save(suite.fresh(golden)), "--precise")
    folder = packed.save(suite.fresh(golden))
    compare_with(base, f"{golden}: {what}", folder, "all")
    compare_with(base, f"{golden}: {what}, row by row", folder, "all", "--chunk", 1, "--threads", 2)
    fast_and_precise(f"{golden}: {what}", folder, AMPLIFIED)
    fast = logits(f"{golden}: {what}, fast", folder)
    for extra in (["--chunk", 1], ["--chunk", 7, "--threads", 3], *(["--isa", isa] for isa in isas)):
        name = f"{golden}: {what}, fast, " + " ".join(map(str, extra))
        data = logits(name, folder, *extra)
        if data is not None and fast is not None:
            suite.check(data == fast, f"{name} changes nothing", data != fast and difference(fast, data))


def quantised_uniform(golden, bits, group, dtype, drafter):
    """One width for all that it divides. In the sidecar, which other tools may have packed, the shapes alone speak."""
    packed, plain = quantise_model(golden, lambda path, k: (bits, group) if k % group == 0 else None, dtype, qwen3_5)
    packed.config["quantization"] = packed.config["quantization_config"] = {"group_size": group, "bits": bits, "mode": "affine"}
    if drafter == "sidecar":
        own = packed.take(lambda name: ".mtp." in name)
        packed.sidecars["mtp.safetensors"] = {name.removeprefix("language_model."): t for name, t in own.items()}
        packed.config["quantization"] = {"group_size": group, "bits": bits}  # a missing mode is affine
    compare_quantised(f"MLX {bits} bits, groups of {group}, {dtype} scales", golden, packed, plain)


def quantised_mixed(golden, dtype):
    """Every module its own width, said by entries under the names that the files use; some are not quantised."""
    choices = [(b, g) for g in (32, 64, 128) for b in BITS] + [None]
    entries, used, order = {}, set(), random.Random(7)

    def choose(path, k):
        twin = path.replace("switch_mlp.up_proj", "switch_mlp.gate_proj")
        if twin in entries:  # an expert's gate and up are read as one
            entries[path] = entries[twin]
            return entries[twin] and (entries[twin]["bits"], entries[twin]["group_size"])
        usable = [c for c in choices if c is None or k % c[1] == 0]
        fresh = [c for c in usable if c not in used and c is not None]
        how = order.choice(fresh or usable)
        used.add(how)
        entries[path] = {"bits": how[0], "group_size": how[1], "mode": "affine"} if how else False
        return how

    packed, plain = quantise_model(golden, choose, dtype, qwen3_5)
    widths = {how and how[0] for how in used}
    suite.check(widths == {None, *BITS}, f"{golden}: all widths are tried", widths)
    kind = "qwen3_5_moe" if golden == MOE else "qwen3_5"
    nest(packed, "text_config", kind, f"{kind}_text", "")
    packed.config["quantization"] = {"group_size": 64, "bits": 4, "mode": "affine", **entries}
    compare_quantised(f"MLX, every module its own width, {dtype} scales", golden, packed, plain)


def quantised_experts():
    """Stacked experts and 8-bit routers, as MLX packs of mixture models have them."""

    def choose(path, k):
        if k % 64:
            return None
        return (8, 64) if path.endswith((".mlp.gate", "shared_expert_gate")) else (4, 64)

    packed, plain = quantise_model(MOE, choose, "BF16", qwen3_5)
    routers = [name.removesuffix(".scales") for name in packed.tensors if name.endswith(("gate.scales", "_gate.scales"))]
    entry = {"group_size": 64, "bits": 8}
    packed.config["quantization"] = {"group_size": 64, "bits": 4, "mode": "affine", **{path: entry for path in routers}}
    compare_quantised("MLX 4 bits, 8 in the routers", MOE, packed, plain)


# ---- the other families ----


def qwen3_next(m):
    fold_norms(m)
    move_convolutions(m)
    split_experts(m, stacked)


def qwen3_moe(m):
    split_experts(m, stacked)


def gemma4(m):
    split_experts(m, lambda module, expert, part: f"{module}.experts.switch_glu.{part}_proj.weight")
    m.rename(lambda name: "language_model." + name)


def nemotron(m):
    names = {"up": "fc1", "down": "fc2"}
    put_prefix(m, "backbone.")
    split_experts(m, lambda module, expert, part: f"{module}.switch_mlp.{names[part]}.weight", "up")
    move_convolutions(m)


FAMILIES = {
    "qwen3_next": (qwen3_next, 4, 64, "BF16"),
    "llama3": (lambda m: None, 4, 32, "F16"),
    "qwen2": (lambda m: None, 8, 64, "BF16"),
    "qwen3-moe": (qwen3_moe, 4, 32, "BF16"),
    "gemma3": (lambda m: None, 6, 32, "BF16"),  # the embedding, which is the head, is packed
    "gemma4-keqv": (gemma4, 5, 64, "BF16"),
    "gemma4-moe": (gemma4, 4, 32, "BF16"),
    "gemma4-ple": (gemma4, 4, 32, "BF16"),  # the table of 96 columns, too
    "nemotron_h-dense": (nemotron, 3, 32, "BF16"),
    "nemotron_h-mtp": (nemotron, 4, 32, "BF16"),
}
ROUTERS = (".mlp.gate", ".shared_expert_gate", ".router.proj", ".mixer.gate")


def quantised_family(golden):
    """One width for all that it divides, 8 bits for routers, by entries."""
    convert, bits, group, dtype = FAMILIES[golden]
    entries = {}

    def choose(path, k):
        if k % group:
            return None
        if path.endswith(ROUTERS):
            entries[path] = {"group_size": group, "bits": 8}
            return 8, group
        return bits, group

    packed, plain = quantise_model(golden, choose, dtype, convert)
    if golden == "gemma4-ple":
        suite.check(any("per_layer.scales" in name for name in packed.tensors), f"{golden}: the table is packed")
    packed.config["quantization"] = {"group_size": group, "bits": bits, "mode": "affine", **entries}
    compare_quantised(f"MLX {bits} bits, groups of {group}, {dtype} scales", golden, packed, plain)


def quantised_drafter(golden):
    """Gemma 4's drafter, whose head may be in another order than its rows."""
    packed, plain = quantise_model(os.path.join(golden, "assistant"), lambda path, k: (8, 32), "BF16", lambda m: None)
    packed.config["quantization"] = {"group_size": 32, "bits": 8, "mode": "affine"}
    target = os.path.join(folder_of(golden), "target")
    packed, plain = ([target, "--draft", m.save(suite.fresh("assistant"))] for m in (packed, plain))
    what = f"{golden}: MLX 8 bits in the drafter"
    data, base = logits(what, packed, "--precise"), logits(f"{what}, its values in F32", plain, "--precise")
    suite.check(data is not None and data == base, what, data and base and data != base and difference(base, data))
    fast = logits(f"{what}, fast", packed)
    for extra in (["--chunk", 1], *(["--isa", isa] for isa in isas)):
        name = f"{what}, fast, " + " ".join(map(str, extra))
        suite.check(fast is not None and logits(name, packed, *extra) == fast, f"{name} changes nothing")


# ---- all of it ----


def main():
    take_ids(DENSE)
    usable_isas(folder_of(DENSE))
    quantised_uniform(DENSE, 4, 64, "BF16", "shards")
    quantised_uniform(DENSE, 8, 32, "F16", "sidecar")
    quantised_mixed(DENSE, "F32")
    quantised_mixed(DENSE, "BF16")
    take_ids(TIED)
    quantised_uniform(TIED, 6, 64, "BF16", "shards")
    take_ids(MOE)
    quantised_experts()
    quantised_mixed(MOE, "F16")
    for golden in FAMILIES:
        take_ids(golden)
        quantised_family(golden)
    for golden in PAIRS:
        take_ids(golden)
        quantised_drafter(golden)
    return suite.finish()


sys.exit(main())

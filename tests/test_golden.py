#!/usr/bin/env python3
"""test_golden.py BUILD: `weft logits` on tiny checkpoints whose logits the reference implementation (Hugging Face transformers)
has computed, tools/golden_trim.py.

1. Accuracy: with --precise every stored row within 2e-4 of the largest logit, MTP rows included. The fast mode is compared with the
   precise one: the Kullback-Leibler divergence of its predictions.
2. The promise: in each of the two modes the same file to the last byte for every chunk, thread count and instruction set.
3. Variants: the same network as publishers and converters store it (other names, layouts, types, places, spellings of the
   config) must give the same file to the last byte. A loader that takes a variant for another computes something, and nobody
   sees that it is not the model.
"""
import array
import json
import math
import os
import platform
import random
import re
import sys

sys.dont_write_bytecode = True
import harness
import safetensors_io as st
from harness import Model

DENSE, TIED, ODD, MOE = "qwen3_5-dense", "qwen3_5-dense-tied", "qwen3_5-dense-odd", "qwen3_5-moe"
ALL = [DENSE, TIED, ODD, MOE]
TOLERANCE = 2e-4
MODES = ([], ["--precise"])
DIVERGENCE = 1e-2  # of the fast mode's predictions, in nats, on average
# The goldens' random networks amplify: noise of half a per cent on every weight, which is what eight bits for an activation are,
# changes their logits by a fifth. So of their quantised forms only the size is checked.
AMPLIFIED = 0.2

suite = harness.Suite()
isas = []  # that can be tested here


# ---- running ----


def logits(what, model, *options):
    """The bytes of the result for the golden's ids; None, and a failed check, where there is none."""
    out = suite.path("logits.safetensors")
    if os.path.exists(out):
        os.unlink(out)
    r = suite.run("logits", model, "--ids", suite.path("ids.txt"), "--out", out, *options)
    if r.code == 0 and r.err == "":
        return harness.read_bytes(out)
    suite.check(False, what, r)
    return None


def worst(name, expected, got, rows):
    """The largest difference of the stored rows, as a part of the largest logit; infinite where NaN."""
    want, n = expected[name].values(), expected[name].shape[1]
    have, top, off = got[name].values(), 0.0, 0.0
    for i, row in enumerate(rows):
        for a, b in zip(want[i * n : (i + 1) * n], have[row * n : (row + 1) * n]):
            top = max(top, abs(a))
            off = max(off, abs(a - b)) if a == a and b == b else float("inf")
    return off / top


def difference(a, b):
    """Which tensors of two results differ, and how far."""
    a, b = parse(a), parse(b)
    if a.keys() != b.keys():
        return f"it holds {', '.join(b)} instead of {', '.join(a)}"
    far = {name: max(abs(x - y) for x, y in zip(a[name].values(), b[name].values())) for name in a if a[name].data != b[name].data}
    return "other numbers: " + ", ".join(f"{name} by {off:.3g}" for name, off in far.items())


def parse(data):
    return st.read(harness.write_bytes(suite.path("parse.safetensors"), data))


# ---- 1. accuracy, 2. the promise ----


def accuracy(golden, folder, expected):
    data = logits(f"{golden}: --precise", folder, "--precise")
    if data is None:
        return
    got, positions = parse(data), expected["input_ids"].shape[0]
    for name, rows, n in (("logits", "rows", positions), ("mtp_logits_d1", "mtp_rows", positions - 1)):
        shape = [n, expected[name].shape[1]]
        if not suite.check(name in got and got[name].shape == shape, f"{golden}: {name} {shape}", f"got {list(got)}"):
            continue
        off = worst(name, expected, got, expected[rows].values())
        suite.check(off <= TOLERANCE, f"{golden}: {name} near the reference", f"off by {off:.2e} of the largest")


def divergences(p, q, n):
    """Row by row of n logits: the divergence of q's softmax from p's in nats, and whether both have the same arg-max."""
    for at in range(0, len(p), n):
        a, b = p[at : at + n], q[at : at + n]
        top_a, top_b = max(a), max(b)
        e = [math.exp(x - top_a) for x in a]
        sum_a, sum_b = sum(e), sum(math.exp(y - top_b) for y in b)
        apart = sum(w * (x - y) for w, x, y in zip(e, a, b)) / sum_a
        kl = apart - top_a - math.log(sum_a) + top_b + math.log(sum_b)
        yield (max(kl, 0.0) if kl == kl else math.inf), a.index(top_a) == b.index(top_b)


def fast_and_precise(what, model, most=DIVERGENCE, fast=()):
    """What the fast arithmetic, with these options, changes: said, and limited."""
    what += "".join(" " + option for option in fast)
    fast, precise = (logits(f"{what}: {' '.join(mode)}", model, *mode) for mode in (fast, ["--precise"]))
    if fast is None or precise is None:
        return
    fast, precise = parse(fast), parse(precise)
    for name in precise:
        if not suite.check(name in fast and fast[name].shape == precise[name].shape, f"{what}: {name} of the fast mode"):
            continue
        rows = list(divergences(precise[name].values(), fast[name].values(), precise[name].shape[1]))
        kl, same = [k for k, _ in rows], sum(agree for _, agree in rows)
        mean = sum(kl) / len(kl)
        said = f"KL {mean:.1e} on average, {max(kl):.1e} at most, the same arg-max at {same} of {len(kl)}"
        print(f"{what}: fast and precise {name}: {said}", flush=True)
        suite.check(mean <= most, f"{what}: fast {name} near the precise ones", said)


# What processors must have for the kernels. Those of this build are there whatever the processor is.
FLAGS = {
    "reference": "",
    "avx2": "avx2 fma",
    "avx2-vnni": "avx2 fma avx_vnni",
    "avx512-vnni": "avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni",
    "amx": "avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni amx_tile amx_int8",
    "neon": "asimd asimddp",
}
BUILT = ["reference"] + (["avx2", "avx512-vnni", "amx"] if platform.machine() == "x86_64" else [])


def processor_has(isa):
    """Whether this processor can run these kernels; None where the system does not say."""
    try:
        with open("/proc/cpuinfo") as f:
            found = re.search(r"^flags\s*: (.*)$", f.read(), re.M)
    except OSError:
        found = None
    return set(FLAGS[isa].split()) <= set(found[1].split()) if found else None


def kernels(folder):
    """The instruction sets that can be tested here. What cannot be had says why, in a line."""
    usable = []
    for isa in FLAGS:
        r = suite.run("logits", folder, "--ids", suite.path("ids.txt"), "--out", suite.path("isa.safetensors"), "--isa", isa)
        if r.code == 0:
            usable.append(isa)
            suite.check(processor_has(isa) is not False, f"--isa {isa}: the processor does not say that it has it")
            continue
        why = "this processor cannot run the kernels" if isa in BUILT else "there are no kernels"
        suite.check(r.code == 1 and r.err.startswith(f"weft: {why} '{isa}'") and r.err.count("\n") == 1, f"--isa {isa}: why not", r)
        if isa in BUILT and suite.check(not processor_has(isa), f"--isa {isa}: the processor has it", r):
            suite.skip(f"--isa {isa}", harness.shorten(r.err).removeprefix("weft: "))
    return usable


def invariance(golden, folder, modes=MODES):
    settings = [["--chunk", n] for n in (1, 7, 64, 150)] + [["--threads", n] for n in (1, 2, 3)] + [["--isa", isa] for isa in isas]
    settings += [["--threads", 3, "--chunk", 33, *isa] for isa in ([], *(["--isa", isa] for isa in isas))]
    for mode in modes:
        base = logits(golden, folder, *mode)
        for extra in settings:
            what = f"{golden}: " + " ".join(map(str, mode + extra))
            data = logits(what, folder, *mode, *extra)
            if data is not None and base is not None:
                suite.check(data == base, f"{what} changes nothing", data != base and difference(base, data))


# ---- 3. variants ----

variants = []


def variant(what, goldens=ALL, compare="all"):
    """A function that rewrites a Model. compare: "logits" where the variant has no drafter."""

    def add(rewrite):
        variants.append((what, goldens, compare, rewrite))
        return rewrite

    return add


def nest(m, **outer):
    """config.json of a multimodal checkpoint: the text model's inside, other things around it."""
    moe = "num_experts" in m.config
    text = {key: value for key, value in m.config.items() if key not in ("architectures", "transformers_version")}
    m.config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration" if moe else "Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5_moe" if moe else "qwen3_5",
        "image_token_id": 310,
        "text_config": text,
        "vision_config": {"model_type": "qwen3_5", "hidden_size": 1152, "depth": 27, "num_heads": 16, "num_hidden_layers": 2},
        "vocab_size": 7,  # the outer numbers are not the text model's
        "hidden_size": 9,
        **outer,
    }


def put_prefix(m, prefix):
    """model.X becomes prefix + X; the head and the drafter keep their names."""
    m.rename(lambda name: prefix + name[len("model.") :] if name.startswith("model.") else name)


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


def shards(m, n, seed):
    """m's tensors in n files in any order, and the index."""
    names = list(m.tensors)
    order = random.Random(seed)
    order.shuffle(names)
    files = {f"model-{i + 1:05}-of-{n:05}.safetensors": {name: m.tensors[name] for name in names[i::n]} for i in range(n)}
    where = [(name, file) for file, tensors in files.items() for name in tensors]
    order.shuffle(where)
    m.tensors, m.sidecars = {}, files
    m.json["model.safetensors.index.json"] = {"metadata": {"total_size": 1}, "weight_map": dict(where)}


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


def split_experts(m, rename):
    """rename(module, expert or None, part) names the tensors that take the place of fused ones. Expert None: all, stacked."""
    tensors = {}
    for name, t in m.tensors.items():
        fused = re.fullmatch(r"(.*\.mlp)\.experts\.(gate_up|down)_proj", name)
        if not fused:
            tensors[name] = t
            continue
        parts = {"gate": [], "up": []} if fused[2] == "gate_up" else {"down": []}
        rows = t.shape[1] // len(parts)
        for x in range(t.shape[0]):
            flat = st.Tensor(t.dtype, t.shape[1:], t.part(x, 1).data)
            for i, part in enumerate(parts):
                parts[part].append(flat.part(i * rows, rows))
        for part, each in parts.items():
            if rename(fused[1], None, part):
                tensors[rename(fused[1], None, part)] = st.stack(each)
            else:
                tensors.update({rename(fused[1], x, part): one for x, one in enumerate(each)})
    m.tensors = tensors


def one_by_one(module, expert, part):
    return expert is not None and f"{module}.experts.{expert}.{part}_proj.weight"


def stacked(module, expert, part):
    return f"{module}.switch_mlp.{part}_proj.weight"


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


def shifted(t):
    """1 + w in F32, rounded as an engine's addition rounds it."""
    return st.tensor("F32", t.shape, array.array("f", [1.0 + w for w in t.values()]))


def convert(m, drafter):
    """As MLX converters write it. drafter: "converted", "raw" (names and norms as published), or "bare" (without its prefix)."""
    norms = r"input_layernorm|post_attention_layernorm|q_norm|k_norm|pre_fc_norm_\w+|^model\.norm|^mtp\.norm"
    zero_centred = re.compile(rf"({norms})\.weight$")

    def rewrite(name, t):
        if name.endswith("conv1d.weight"):
            return st.Tensor(t.dtype, [t.shape[0], t.shape[2], 1], t.data)
        if zero_centred.search(name) and not (name.startswith("mtp.") and drafter == "raw"):
            return shifted(t)
        return t

    m.map(rewrite)
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


def compare_with(base, what, model, compare, *options):
    data = logits(what, model, "--precise", *options)
    if data is None or base is None:
        return
    if compare == "logits":
        got = parse(data)
        same = list(got) == ["logits"] and got["logits"].data == parse(base)["logits"].data
        suite.check(same, f"{what}: the same logits, and none of a drafter")
    else:
        suite.check(data == base, what, data != base and difference(base, data))


def run_variants(golden, base):
    for what, goldens, compare, rewrite in variants:
        if golden in goldens:
            m = Model(golden)
            rewrite(m)
            compare_with(base, f"{golden}: {what}", m.save(suite.fresh(golden)), compare)


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


def compare_pair(what, golden, one, other):
    """Two models that must give the same."""
    base = logits(f"{golden}: {what}, the other way", other.save(suite.fresh(golden)), "--precise")
    compare_with(base, f"{golden}: {what}", one.save(suite.fresh(golden)), "all")


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


# ---- MLX affine ----

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


def quantise_model(golden, choose, dtype):
    """An MLX checkpoint and the plain one with the same values. choose(path, k) gives a module's (bits, group) or None."""
    packed, plain = Model(golden), Model(golden)
    for m in (packed, plain):
        convert(m, "converted")
        m.rename(lambda name: "language_model." + name if name.startswith("mtp.") else name)
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
    packed, plain = quantise_model(golden, lambda path, k: (bits, group) if k % group == 0 else None, dtype)
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

    packed, plain = quantise_model(golden, choose, dtype)
    widths = {how and how[0] for how in used}
    suite.check(widths == {None, *BITS}, f"{golden}: all widths are tried", widths)
    nest(packed)
    packed.config["quantization"] = {"group_size": 64, "bits": 4, "mode": "affine", **entries}
    compare_quantised(f"MLX, every module its own width, {dtype} scales", golden, packed, plain)


def quantised_experts():
    """Stacked experts and 8-bit routers, as MLX packs of mixture models have them."""

    def choose(path, k):
        if k % 64:
            return None
        return (8, 64) if path.endswith((".mlp.gate", "shared_expert_gate")) else (4, 64)

    packed, plain = quantise_model(MOE, choose, "BF16")
    routers = [name.removesuffix(".scales") for name in packed.tensors if name.endswith(("gate.scales", "_gate.scales"))]
    entry = {"group_size": 64, "bits": 8}
    packed.config["quantization"] = {"group_size": 64, "bits": 4, "mode": "affine", **{path: entry for path in routers}}
    compare_quantised("MLX 4 bits, 8 in the routers", MOE, packed, plain)


# ---- all of it ----


def main():
    for golden in ALL:
        folder = os.path.join(harness.GOLDEN, golden)
        expected = st.read(os.path.join(folder, "expected.safetensors"))
        harness.write_ids(suite.path("ids.txt"), expected["input_ids"].values())
        if not isas:
            isas.extend(kernels(folder))
        accuracy(golden, folder, expected)
        fast_and_precise(golden, folder)
        invariance(golden, folder)
        base = logits(f"{golden}: the published form", folder, "--precise")
        run_variants(golden, base)
        if golden == DENSE:
            fast_and_precise(golden, folder, fast=["--kv", "int8"])
            invariance(golden, folder, [["--kv", "int8"], ["--kv", "f32"], ["--precise", "--kv", "bf16"]])
            places(golden, base)
            ids_file = logits_of_ids_file(folder)
            suite.check(ids_file == base, f"{golden}: ids from a safetensors file")
        if golden in (DENSE, MOE):
            half_precision(golden)
            own_head(golden, "lm_head")
            own_head(golden, "shared_head.head")
            drafter_without_norms(golden)
        if golden == DENSE:
            quantised_uniform(golden, 4, 64, "BF16", "shards")
            quantised_uniform(golden, 8, 32, "F16", "sidecar")
            quantised_mixed(golden, "F32")
            quantised_mixed(golden, "BF16")
        if golden == TIED:
            quantised_uniform(golden, 6, 64, "BF16", "shards")
        if golden == MOE:
            stray_dense_layer()
            dense_drafter(48)
            dense_drafter(160)
            quantised_experts()
            quantised_mixed(golden, "F16")
    mini = os.path.join(harness.ROOT, "models", "mini")
    prompt = [(i * i * 31 + i * 7) % 16000 for i in range(150)]
    harness.write_ids(suite.path("ids.txt"), prompt)
    fast_and_precise("models/mini", mini)
    fast_and_precise("models/mini", mini, fast=["--kv", "int8"])
    invariance("models/mini", mini)
    return suite.finish()


def logits_of_ids_file(folder):
    out = suite.path("ids-file.safetensors")
    r = suite.run("logits", folder, "--ids", os.path.join(folder, "expected.safetensors"), "--out", out, "--precise")
    return harness.read_bytes(out) if r.code == 0 else None


sys.exit(main())

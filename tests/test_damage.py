#!/usr/bin/env python3
"""test_damage.py BUILD: what the command says to damaged, foreign, hostile and impossible input.

For every case: exit code 1 or 2 and never a signal, nothing on standard output, and on standard error one line "weft: ..." that
names what is wrong, with file, tensor, expected and found where there are such; in less than two seconds of processor time
and 200 MB, however much the input claims to need. A sanitizer's complaint is more than one line, and so a failure too.
"""
import json
import os
import re
import struct
import sys

sys.dont_write_bytecode = True
import harness
import safetensors_io as st
from harness import MIB, Model

GOLDEN, MOE = "qwen3_5-dense", "qwen3_5-moe"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ONE_LINE = re.compile(r"weft: [^\x00-\x1f\x7f]+\n")

suite = harness.Suite()


def complaint(r, words, seconds=2, memory=200 * MIB):
    """What is wrong with the way a run failed; None if nothing."""
    if r.code not in (1, 2):
        return f"exit {r.code}"
    if r.out:
        return "output on standard output"
    if not ONE_LINE.fullmatch(r.err):
        return "not one line of text"
    missing = [word for word in words if word not in r.err]
    if missing:
        return f"does not say {missing}"
    if r.seconds > seconds * (10 if suite.sanitized else 1):
        return f"took {r.seconds:.1f} s"
    if r.memory > memory and not suite.sanitized:
        return f"took {r.memory // MIB} MiB"
    return None


def refuses(what, words, *args, **how):
    """The command with these arguments must fail well, and say the words."""
    limits = {"memory": 2048 * MIB, **how}
    r = suite.run(*args, **limits)
    wrong = complaint(r, words)
    suite.check(wrong is None, what, f"{wrong}; {r}" if wrong else "")


def logits_args(model):
    return ["logits", model, "--ids", suite.path("ids.txt"), "--out", suite.path("out.safetensors")]


def damaged(what, words, damage, golden=GOLDEN, after=None):
    """A copy of the golden: damage(model) before it is written, after(its folder) then."""
    m = Model(golden)
    if damage:
        damage(m)
    path = m.save(suite.fresh("model"))
    if after:
        after(path)
    refuses(what, words, *logits_args(path))
    # `inspect` reads less: what it does not see, it need not refuse.
    r = suite.run("inspect", path, memory=2048 * MIB)
    wrong = None if r.code == 0 and not r.err else complaint(r, [])
    suite.check(wrong is None, f"inspect: {what}", f"{wrong}; {r}" if wrong else "")


# ---- the weights file, byte by byte ----


def cut(n):
    """Leaves n bytes; a negative n takes so many away."""

    def after(path):
        file = os.path.join(path, WEIGHTS)
        os.truncate(file, n if n >= 0 else os.path.getsize(file) + n)

    return after


def header_bytes(header, claimed=None):
    def after(path):
        data = struct.pack("<Q", len(header) if claimed is None else claimed) + header
        harness.write_bytes(os.path.join(path, WEIGHTS), data)

    return after


def entries(change):
    """change(header as a dict)."""

    def after(path):
        file = os.path.join(path, WEIGHTS)
        raw = harness.read_bytes(file)
        (n,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + n])
        change(header)
        st.write_raw(file, json.dumps(header).encode(), raw[8 + n :])

    return after


def sparse_header(n):
    """A file that is nothing but a header of n zero bytes."""

    def after(path):
        file = os.path.join(path, WEIGHTS)
        harness.write_bytes(file, struct.pack("<Q", n))
        os.truncate(file, n + 8)

    return after


Q, UP, NORM = "model.layers.3.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.1.input_layernorm.weight"


def set_entry(name, **values):
    return entries(lambda header: header[name].update(values))


def overlap(header):
    header[Q]["data_offsets"] = [at + 2 for at in header[Q]["data_offsets"]]


def beyond(header):
    first, last = header[Q]["data_offsets"]
    header[Q]["data_offsets"] = [first + (1 << 30), last + (1 << 30)]


def bytes_of_files():
    damaged("an empty weights file", [WEIGHTS, "too short"], None, after=cut(0))
    damaged("a weights file of 5 bytes", [WEIGHTS, "5 bytes", "too short"], None, after=cut(5))
    damaged("a header cut short", [WEIGHTS, "header", "downloaded"], None, after=cut(300))
    damaged("data cut in the middle", [WEIGHTS, "tensor '", "its data end at", "downloaded"], None, after=cut(500000))
    damaged("the last byte of the data gone", [WEIGHTS, "tensor '", "downloaded"], None, after=cut(-1))
    for n in (0, 1, 10**10, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        damaged(f"a header of {n} bytes, claimed", [WEIGHTS], None, after=header_bytes(b'{"a":1}', n))
    say = ["claims a header of 10000000000 bytes", "allowed"]
    damaged("a header of 10 GB, claimed", say, None, after=header_bytes(b"{}", 10**10))
    damaged("a header of 90 MB of zero bytes", [WEIGHTS, "not JSON"], None, after=sparse_header(90 * 10**6))
    damaged("a header that is not JSON", [WEIGHTS, "not JSON"], None, after=header_bytes(b"{hidden: 1}"))
    damaged("a header that is a list", [WEIGHTS, "object"], None, after=header_bytes(b"[1,2,3]"))
    damaged("a header nested 100000 deep", [WEIGHTS], None, after=header_bytes(b"[" * 100000))
    many = b'{"a":[' + b"{}," * 2_000_000 + b"{}]}"
    damaged("a header that would take gigabytes of memory", [WEIGHTS, "memory"], None, after=header_bytes(many))
    damaged("a tensor's name twice in a header", [WEIGHTS, "twice"], None, after=header_bytes(b'{"a":{},"a":{}}'))
    damaged("a header that is not UTF-8", [WEIGHTS], None, after=header_bytes(b'{"\xff\xfe":{}}'))
    damaged("overlapping data", [WEIGHTS, Q, "overlap"], None, after=entries(overlap))
    damaged("offsets that run backwards", [Q, "backwards"], None, after=set_entry(Q, data_offsets=[4096, 64]))
    damaged("data beyond the file's end", [Q, "its data end at", "downloaded"], None, after=entries(beyond))
    damaged("negative offsets", [Q, "data_offsets"], None, after=set_entry(Q, data_offsets=[-64, 64]))
    damaged("offsets beyond 64 bits", [Q, "data_offsets"], None, after=set_entry(Q, data_offsets=[0, 1 << 70]))
    damaged("three offsets", [Q, "data_offsets"], None, after=set_entry(Q, data_offsets=[0, 1, 2]))
    damaged("a shape that is not the data's", [Q, "[256, 65]", "33280"], None, after=set_entry(Q, shape=[256, 65]))
    damaged("a shape that overflows", [Q, "overflows"], None, after=set_entry(Q, shape=[1 << 40, 1 << 40]))
    damaged("a negative shape", [Q, "shape"], None, after=set_entry(Q, shape=[-256, -64]))
    damaged("nine dimensions", [Q, "shape"], None, after=set_entry(Q, shape=[1] * 9))
    damaged("an unheard-of type", [Q, "Q7"], None, after=set_entry(Q, dtype="Q7"))
    damaged("a type that is a number", [Q, "dtype"], None, after=set_entry(Q, dtype=7))
    damaged("an entry that is a number", [Q], None, after=entries(lambda header: header.update({Q: 1})))
    # A terminal would obey the name.
    damaged("control characters in a tensor's name", ["tensor '"], None, after=entries(lambda h: h.update({"\x1b[2Jx\n": 1})))


# ---- tensors ----


def poison(name, at, bits):
    """Element `at` becomes the bit pattern of its type."""

    def damage(m):
        t = m.tensors[name]
        size = st.SIZES[t.dtype]
        data = bytearray(t.data)
        data[at * size : (at + 1) * size] = bits.to_bytes(size, "little")
        m.tensors[name] = st.Tensor(t.dtype, t.shape, data)

    return damage


def retype(name, dtype, then):
    def damage(m):
        m.tensors[name] = m.tensors[name].to(dtype)
        then(m)

    return damage


def reshape(name, shape):
    """Another shape, with as many zeros as it needs."""

    def damage(m):
        n = 2
        for size in shape:
            n *= size
        m.tensors[name] = st.Tensor("BF16", shape, bytes(n))

    return damage


def drop(name):
    return lambda m: m.take(lambda other: other == name)


def tensors():
    for name in (
        "model.embed_tokens.weight",
        "model.norm.weight",
        NORM,
        UP,
        Q,
        "model.layers.3.self_attn.k_norm.weight",
        "model.layers.0.linear_attn.conv1d.weight",
        "model.layers.2.linear_attn.A_log",
        "mtp.layers.0.mlp.down_proj.weight",
    ):
        damaged(f"without {name}", [name.removesuffix(".weight"), "missing"], drop(name))
    experts = "model.layers.1.mlp.experts.down_proj"
    damaged("without an expert tensor", [experts.rpartition(".")[0], "missing"], drop(experts), MOE)
    for name, shape, expected in (
        (Q, [256, 63], "[256, 64]"),
        (Q, [64, 256], "[256, 64]"),
        (Q, [128, 64], "[256, 64]"),  # a q_proj without its gates
        (NORM, [65], "[64]"),
        (NORM, [64, 1], "[64]"),
        ("model.embed_tokens.weight", [319, 64], "[320, 64]"),
        ("model.layers.0.linear_attn.conv1d.weight", [128, 1, 3], "[channels, 1, 4]"),
        ("model.layers.1.linear_attn.conv1d.weight", [128, 4, 1], "[128, 1, 4]"),  # one layer converted, the others not
        ("model.layers.2.linear_attn.A_log", [5], "[4]"),
        ("mtp.fc.weight", [64, 64], "[64, 128]"),
        ("lm_head.weight", [320, 0], "[320, 64]"),
    ):
        found = "[" + ", ".join(map(str, shape)) + "]"
        damaged(f"{name} as {found}", [WEIGHTS, name, found, "expected", expected], reshape(name, shape))
    damaged("experts of another width", ["experts.gate_up_proj", "[8, 95, 64]", "expected [8, 96, 64]"],
            reshape("model.layers.1.mlp.experts.gate_up_proj", [8, 95, 64]), MOE)
    for name in (Q, NORM):
        damaged(f"{name} as whole numbers", [WEIGHTS, name, "I32", "expected", "BF16"],
                lambda m: m.tensors.update({name: st.Tensor("I32", m.tensors[name].shape, bytes(4 * m.tensors[name].count()))}))
    for name, at, where in (
        ("model.embed_tokens.weight", 319 * 64 + 5, "row 319, column 5"),
        (UP, 0, "row 0, column 0"),
        (Q, 255 * 64 + 63, "row 255, column 63"),
        (NORM, 63, "element 63"),
        ("model.layers.2.linear_attn.A_log", 1, "element 1"),
        ("model.layers.0.linear_attn.conv1d.weight", 17, "element 17"),
        ("mtp.fc.weight", 127, "row 0, column 127"),
    ):
        for kind, bits in (("NaN", 0x7FC1), ("infinity", 0xFF80)):
            damaged(f"{kind} in {name}", [WEIGHTS, name, "NaN or infinity", where], poison(name, at, bits))
    damaged("a plain drafter of two widths", ["mtp.layers.0.mlp.up_proj.weight", "[64, 64]", "expected [48, 64]"],
            plain_drafter((48, 64)), MOE)
    damaged("a plain drafter of no width", ["mtp.layers.0.mlp."], plain_drafter((0, 0)), MOE)
    damaged("NaN in an expert", ["experts.down_proj", "NaN or infinity", "expert 3, row 1, column 2"],
            poison("model.layers.2.mlp.experts.down_proj", (3 * 64 + 1) * 48 + 2, 0x7FC0), MOE)
    damaged("NaN in F32 weights", [UP, "NaN or infinity", "row 1, column 0"], retype(UP, "F32", poison(UP, 64, 0x7F800001)))
    damaged("infinity in F16 weights", [UP, "NaN or infinity"],
            lambda m: m.tensors.update({UP: st.Tensor("F16", [160, 64], b"\0\x7c" + bytes(2 * 160 * 64 - 2))}))


def plain_drafter(rows):
    """A mixture model whose drafter has a plain MLP, with so many rows in gate and up."""

    def damage(m):
        m.take(lambda name: name.startswith("mtp.layers.0.mlp."))
        for part, n in zip(("gate", "up"), rows):
            m.tensors[f"mtp.layers.0.mlp.{part}_proj.weight"] = st.Tensor("BF16", [n, 64], bytes(128 * n))
        m.tensors["mtp.layers.0.mlp.down_proj.weight"] = st.Tensor("BF16", [64, rows[0]], bytes(128 * rows[0]))

    return damage


# ---- tensors of other families ----


def tensors_of_families():
    layer = "model.layers.0."
    for golden, name in (
        ("qwen3_next", layer + "linear_attn.in_proj_ba.weight"),
        ("qwen2", layer + "self_attn.v_proj.bias"),
        ("qwen3-dense", layer + "self_attn.q_norm.weight"),
        ("gemma3", layer + "pre_feedforward_layernorm.weight"),
        ("gemma4-dense", layer + "layer_scalar"),
        ("gemma4-moe", layer + "router.per_expert_scale"),
        ("gemma4-moe", layer + "post_feedforward_layernorm_2.weight"),
        ("gemma4-ple", "model.embed_tokens_per_layer.weight"),
        ("gemma4-ple", layer + "per_layer_input_gate.weight"),
        ("nemotron_h-dense", layer + "mixer.conv1d.bias"),
        ("nemotron_h-dense", layer + "mixer.D"),
        ("nemotron_h-latent", "model.layers.1.mixer.fc2_latent_proj.weight"),
        ("nemotron_h-moe", "model.layers.1.mixer.gate.e_score_correction_bias"),
        ("nemotron_h-mtp", "mtp.layers.1.final_layernorm.weight"),
    ):
        damaged(f"{golden} without {name}", [name.removesuffix(".weight"), "missing"], drop(name), golden)
    for golden, name, shape, expected in (
        ("qwen3_next", layer + "linear_attn.in_proj_qkvz.weight", [191, 64], "[192, 64]"),
        ("qwen3_next", layer + "linear_attn.in_proj_ba.weight", [4, 64], "[8, 64]"),
        ("llama3", layer + "self_attn.q_proj.weight", [128, 64], "[64, 64]"),  # a gated one
        ("qwen2", layer + "self_attn.q_proj.bias", [65], "[64]"),
        ("qwen3-moe", layer + "mlp.gate.weight", [7, 64], "[8, 64]"),
        ("gemma4-dense", layer + "layer_scalar", [2], "[1]"),
        ("gemma4-dense", "model.layers.5.self_attn.k_norm.weight", [16], "[32]"),  # a full layer's heads are wider
        ("gemma4-moe", layer + "router.scale", [8], "[64]"),
        ("gemma4-moe", layer + "experts.gate_up_proj", [8, 64, 96], "[8, 96, 64]"),
        ("gemma4-ple", "model.embed_tokens_per_layer.weight", [320, 95], "[320, 96]"),
        ("gemma4-ple", "model.layers.5.mlp.up_proj.weight", [160, 64], "[320, 64]"),  # such layers are twice as wide
        ("nemotron_h-dense", layer + "mixer.in_proj.weight", [327, 64], "[328, 64]"),
        ("nemotron_h-dense", layer + "mixer.conv1d.weight", [192, 4], "[channels, 1, 4]"),
        ("nemotron_h-dense", layer + "mixer.norm.weight", [64], "[128]"),
        ("nemotron_h-moe", "model.layers.1.mixer.experts.up_proj", [7, 48, 64], "[8, 48, 64]"),
        ("nemotron_h-mtp", "mtp.layers.0.eh_proj.weight", [64, 64], "[64, 128]"),
    ):
        found = "[" + ", ".join(map(str, shape)) + "]"
        damaged(f"{golden}: {name} as {found}", [WEIGHTS, name, found, "expected", expected], reshape(name, shape), golden)
    for golden, name, at, where in (
        ("gemma4-dense", layer + "layer_scalar", 0, "element 0"),
        ("gemma4-moe", layer + "router.per_expert_scale", 7, "element 7"),
        ("nemotron_h-dense", layer + "mixer.dt_bias", 2, "element 2"),
        ("nemotron_h-moe", "model.layers.1.mixer.gate.e_score_correction_bias", 3, "element 3"),
        ("qwen2", layer + "self_attn.k_proj.bias", 31, "element 31"),
    ):
        for kind, bits in (("NaN", 0x7FC1), ("infinity", 0xFF80)):
            say = [WEIGHTS, name, "NaN or infinity", where]
            damaged(f"{golden}: {kind} in {name}", say, poison(name, at, bits), golden)
    for golden in ("gemma4-ple", "gemma4-moe", "nemotron_h-mtp", "llama3"):
        damaged(f"{golden}: data cut in the middle", [WEIGHTS, "tensor '", "its data end at"], None, golden, cut(200_000))
    per_layer_table()


def per_layer_table():
    """A table of Gemma 4's is not read before a token wants its row: then it is an error, and where nobody wants it, there is none."""
    name, golden = "model.embed_tokens_per_layer.weight", "gemma4-ple"
    used = harness.read_ids(suite.path("ids.txt"))
    unused = min(set(range(320)) - set(used))
    for kind, bits in (("NaN", 0x7FC1), ("infinity", 0xFF80)):
        say = [WEIGHTS, name, "NaN or infinity", f"row {used[-1]}, column 95"]
        damaged(f"{kind} in {name}, in a row that is read", say, poison(name, used[-1] * 96 + 95, bits), golden)
    m = Model(golden)
    poison(name, unused * 96, 0x7FC1)(m)
    r = suite.run(*logits_args(m.save(suite.fresh("model"))))
    suite.check(r.code == 0 and not r.err, f"NaN in {name}, in a row that is not read", r)
    os.unlink(suite.path("out.safetensors"))

    m = Model(golden)
    poison(name, 259 * 96 + 3, 0x7FC1)(m)  # the token "hello"
    path = m.save(suite.fresh("model"))
    harness.write_bytes(os.path.join(path, "tokenizer.json"), json.dumps(harness.tiny_tokenizer()).encode())
    say = [WEIGHTS, name, "NaN or infinity", "row 259, column 3"]
    refuses("NaN in the row of a prompt's token", say, "run", path, "hello", "--raw", "--max-tokens", 2)


# ---- drafters ----

DRAFTER = "gemma4-assistant-ordered"
ORDER = "masked_embedding.token_ordering"


def drafter(what, words, damage, target=f"{DRAFTER}/target", golden=f"{DRAFTER}/assistant", after=None):
    """A damaged drafter, or a sound one, beside a target."""
    m = Model(golden)
    if damage:
        damage(m)
    path = m.save(suite.fresh("drafter"))
    if after:
        after(path)
    refuses(what, words, *logits_args(os.path.join(harness.GOLDEN, target)), "--draft", path)


def order(change, dtype="I64"):
    def damage(m):
        ids = list(m.tensors[ORDER].values())
        change(ids)
        m.tensors[ORDER] = st.tensor(dtype, [len(ids)], ids)

    return damage


def text_config(**values):
    return lambda m: m.config["text_config"].update(values)


def drafters():
    say = [WEIGHTS, ORDER, "each of 320 ids once"]
    drafter("an id twice in the order", say, order(lambda ids: ids.__setitem__(3, ids[4])))
    drafter("an id beyond the vocabulary in the order", say, order(lambda ids: ids.__setitem__(319, 320)))
    drafter("a negative id in the order", say, order(lambda ids: ids.__setitem__(0, -1)))
    drafter("an id of 2^40 in the order", say, order(lambda ids: ids.__setitem__(0, 1 << 40)))
    drafter("an id twice in the order, in I32", say, order(lambda ids: ids.__setitem__(3, ids[4]), "I32"))
    drafter("an order of 319 ids", [ORDER, "320 ids"], order(lambda ids: ids.pop()))
    drafter("an order in F32", [ORDER, "320 ids"], order(lambda ids: None, "F32"))
    drafter("no order", [ORDER, "missing"], drop(ORDER))
    drafter("an order cut short", ["tensor '", "its data end at"], None, after=cut(100_000))
    for name, shape, expected in (
        ("masked_embedding.centroids.weight", [15, 32], "[16, 32]"),
        ("pre_projection.weight", [32, 64], "[32, 128]"),
        ("post_projection.weight", [32, 64], "[64, 32]"),
        ("model.layers.3.self_attn.q_proj.weight", [64, 32], "[128, 32]"),
    ):
        found = "[" + ", ".join(map(str, shape)) + "]"
        drafter(f"{name} as {found}", [WEIGHTS, name, found, "expected", expected], reshape(name, shape))
        drafter(f"without {name}", [name.removesuffix(".weight"), "missing"], drop(name))
    drafter("NaN in a drafter", [WEIGHTS, "post_projection", "NaN or infinity", "row 2, column 1"],
            poison("post_projection.weight", 65, 0x7FC0))
    drafter("more centroids wanted than there are", ["centroid_intermediate_top_k"], config(centroid_intermediate_top_k=17))
    drafter("centroids that do not divide the vocabulary", ["num_centroids"], config(num_centroids=15))
    drafter("no hidden size of the target", ["backbone_hidden_size", "missing"], lambda m: m.config.pop("backbone_hidden_size"))

    def wrong(what, words, damage=None, **where):
        drafter(what, ["cannot draft for this model", *words], damage, **where)

    wrong("a drafter for another hidden size", ["hidden size"], config(backbone_hidden_size=128))
    wrong("a drafter of another vocabulary", ["vocabulary"], text_config(vocab_size=640))
    wrong("a drafter for other heads", ["other keys and values"], text_config(num_key_value_heads=4))
    wrong("a drafter for wider full layers", ["other keys and values"], text_config(per_layer_config={"3": {"head_dim": 64}}))
    wrong("a drafter for another window", ["other keys and values"], text_config(sliding_window=64))
    wrong("a drafter for a model whose full layers have other heads", ["other keys and values"], target="gemma4-keqv")
    wrong("a drafter beside a Qwen3.5", ["only Gemma 4"], target=GOLDEN)
    wrong("a drafter beside a Gemma 3", ["only Gemma 4"], target="gemma3")
    wrong("a model for a drafter", ["no drafter"], golden="gemma4-dense", target="gemma4-dense")
    wrong("a model of another family for a drafter", ["no drafter"], golden="llama3", target="gemma4-dense")
    target = os.path.join(harness.GOLDEN, DRAFTER, "target")
    refuses("a drafter that is not there", ["no-such-folder"], *logits_args(target), "--draft", "no-such-folder")
    say = ["a drafter for a Gemma 4 model", "not a model by itself", "--draft"]
    alone = os.path.join(harness.GOLDEN, DRAFTER, "assistant")
    refuses("a drafter for a model", say, *logits_args(alone))
    refuses("a drafter for a model and for a drafter", say, *logits_args(alone), "--draft", alone)


# ---- models and packings of other kinds ----


def other_models():
    known = ["not supported", "Llama, Mistral, Qwen2, Qwen3, Qwen3-Next, Qwen3.5 to 3.8, Gemma 3, Gemma 4 and Nemotron-H"]
    for kind, architecture in (
        ("qwen4_exp", "Qwen4ExpForCausalLM"),
        ("deepseek_v3", "DeepseekV3ForCausalLM"),
        ("gpt_oss", "GptOssForCausalLM"),
        ("phi3", "Phi3ForCausalLM"),
        ("gemma2", "Gemma2ForCausalLM"),
    ):
        damaged(f"a {kind}", [kind, *known], config(model_type=kind, architectures=[architecture]))
        damaged(f"a {architecture} without a type", [architecture, *known],
                lambda m: (m.config.pop("model_type"), m.config.update(architectures=[architecture])))
    damaged("a text part of another family", ["qwen3_5", "llama", "text part"],
            lambda m: m.config.update(model_type="qwen3_5", text_config={**m.config, "model_type": "llama"}))
    damaged("an MTP head by itself", ["qwen3_5_mtp", "mtp.safetensors"], config(model_type="qwen3_5_mtp"))
    for method in ("fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes", "modelopt", "mxfp4"):
        damaged(f"packed as {method}", ["quant_method", f"'{method}'", "not supported", "bf16, f16 and f32", "MLX affine"],
                config(quantization_config={"quant_method": method, "bits": 4, "group_size": 64, "fmt": "e4m3"}), "llama3")
    q = "model.layers.0.self_attn.q_proj"
    damaged("weights of fp8 that the config does not speak of", [f"{q}.weight", "F8_E4M3"],
            lambda m: m.tensors.update({f"{q}.weight": st.Tensor("F8_E4M3", [64, 64], bytes(4096))}), "llama3")
    damaged("weights of GPTQ that the config does not speak of", [q, "missing"],
            lambda m: m.tensors.update({f"{q}.qweight": m.tensors.pop(f"{q}.weight")}), "llama3")
    damaged("weights of NVFP4 that the config does not speak of", [f"{q}.weight", "U8"],
            lambda m: m.tensors.update({f"{q}.weight": st.Tensor("U8", [64, 32], bytes(2048))}), "llama3")


# ---- quantised tensors ----


def affine(bits=4, group=64, words=None, change=None, **entry):
    """UP as MLX affine, its values 0; `entry` is what the config says."""

    def damage(m):
        path = UP.removesuffix(".weight")
        m.tensors[UP] = st.Tensor("U32", [160, words or 64 * bits // 32], bytes(160 * (words or 64 * bits // 32) * 4))
        for part in ("scales", "biases"):
            m.tensors[f"{path}.{part}"] = st.tensor("BF16", [160, 64 // group], [0.5] * (160 * 64 // group))
        entry.update(bits=bits, group_size=group)
        m.config["quantization"] = {"bits": 4, "group_size": 64, "mode": "affine", path: entry}
        if change:
            change(m, path)

    return damage


def quantised():
    path = UP.removesuffix(".weight")
    damaged("scales without biases", [UP, "biases"], affine(change=lambda m, p: m.tensors.pop(p + ".biases")))
    damaged("an entry, but no scales", [UP, "scales"],
            affine(change=lambda m, p: (m.tensors.pop(p + ".scales"), m.tensors.pop(p + ".biases"))))
    damaged("codes of another width than the config says", [UP, "[160, 16]", "expected [160, 8]"], affine(words=16))
    damaged("7 bits", [UP, "7 bits"], affine(bits=7, words=14))
    damaged("groups of 16", [UP, "groups of 16"], affine(group=16))
    damaged("groups of 0", ["group_size"], affine(change=lambda m, p: m.config["quantization"][p].update(group_size=0)))
    damaged("bits as a word", ["bits"], affine(change=lambda m, p: m.config["quantization"][p].update(bits="four")))
    damaged("a mode that is not affine", [UP, "mxfp4"], affine(mode="mxfp4"))
    damaged("scales, but the config says that there are none", [UP, "not quantised"],
            affine(change=lambda m, p: m.config["quantization"].update({p: False})))
    damaged("NaN in scales", [path + ".scales", "NaN or infinity", "row 2"],
            affine(change=lambda m, p: poison(p + ".scales", 2, 0x7FC0)(m)))
    damaged("a value that float32 cannot hold", [path + ".scales", "infinity"],
            affine(change=lambda m, p: poison(p + ".scales", 0, 0x7F7F)(m)))
    damaged("scales of another height", [path + ".scales", "[159, 1]", "expected [160, 1]"],
            affine(change=lambda m, p: m.tensors.update({p + ".scales": st.Tensor("BF16", [159, 1], bytes(2 * 159))})))
    damaged("codes of type I32", [UP, "I32", "U32"],
            affine(change=lambda m, p: m.tensors.update({UP: st.Tensor("I32", [160, 8], bytes(160 * 32))})))
    damaged("another scheme", ["quant_method", "gptq"], config(quantization_config={"quant_method": "gptq", "bits": 4}))


# ---- config.json ----


def config(**values):
    return lambda m: m.config.update(values)


def config_text(text):
    def after(path):
        harness.write_bytes(os.path.join(path, "config.json"), text)

    return after


def configs():
    for key, bad in (
        ("hidden_size", (10**9, 1 << 31, 1 << 70, 0, -64, "64", 64.5, [64], None, 1e300)),
        ("num_hidden_layers", (0, -1, 10**9, 2000)),
        ("num_attention_heads", (0, -4, 3, 1 << 31)),
        ("num_key_value_heads", (0, -1, 3)),
        ("vocab_size", (1 << 31, 1 << 32, 0, -320)),
        ("head_dim", (0, 1 << 20)),
        ("intermediate_size", (0, 1 << 31)),
        ("linear_num_key_heads", (0, 3, 5)),
        ("linear_num_value_heads", (0, -2, 1 << 40)),
        ("linear_conv_kernel_dim", (1, 1000)),
        ("max_position_embeddings", (0, 1 << 40)),
        ("rms_norm_eps", (-1, 0, 1, "small")),
        ("hidden_act", ("gelu", 3)),
        ("attention_bias", (True, "no")),
        ("mtp_num_hidden_layers", (2, -1)),
        ("tie_word_embeddings", ("yes", 1)),
        ("eos_token_id", (320, [1, 99999], -5, "end")),
        ("layer_types", ([], ["linear_attention"], "linear_attention", ["full_attention", "sliding_attention"] * 4, [1] * 8)),
        ("rope_parameters", ({}, {"rope_theta": 0}, {"rope_theta": "x"}, 7)),
        ("text_config", ({}, 7, [])),
        ("model_type", ("gpt2", "../../x", 7)),
    ):
        for value in bad:
            say = [key] if key not in ("text_config", "rope_parameters") else ["config.json"]
            damaged(f"{key} {json.dumps(value)[:40]}", say, config(**{key: value}))
    for rope, word in (
        ({"rope_type": "longrope", "rope_theta": 1e7}, "longrope"),
        ({"rope_type": "yarn", "rope_theta": 1e7}, "rope_parameters.factor"),
        ({"rope_theta": 1e7, "partial_rotary_factor": 3}, "partial_rotary_factor"),
        ({"rope_theta": 1e7, "partial_rotary_factor": 0.001}, "partial_rotary_factor"),
    ):
        damaged(f"rope {json.dumps(rope)}", ["config.json", word], config(rope_parameters=rope))
    for key in ("hidden_size", "vocab_size", "num_hidden_layers", "model_type"):
        damaged(f"no {key} in the config", ["config.json", key, "missing"],
                lambda m: (m.config.pop(key), m.config.pop("architectures")))
    damaged("an interval of 0", ["full_attention_interval"],
            lambda m: (m.config.pop("layer_types"), m.config.update(full_attention_interval=0)))
    for key, value in (("num_experts", 0), ("num_experts", 1 << 31), ("num_experts_per_tok", 9), ("num_experts_per_tok", 0)):
        damaged(f"{key} {value}", [key], config(**{key: value}), MOE)

    # Sizes that are possible, but not of these tensors: refused by their shapes, before anything of that size is made.
    for values, word in (
        ({"hidden_size": 1 << 17}, "[320, 131072]"),
        ({"vocab_size": 1 << 24}, "[16777216, 64]"),
        ({"intermediate_size": 1 << 20}, "[1048576, 64]"),
        ({"num_attention_heads": 1024, "head_dim": 1024}, "2097152"),
        ({"num_hidden_layers": 1024, "layer_types": None}, "layers.8."),
        ({"num_hidden_layers": 1024, "layer_types": None, "vocab_size": 1 << 24, "hidden_size": 1 << 17}, "16777216"),
    ):
        damaged(f"a config of another size: {json.dumps(values)}", [word], config(**values))
    damaged("a config of another number of experts", ["4096"], config(num_experts=4096), MOE)

    damaged("an empty config", ["config.json"], None, after=config_text(b""))
    damaged("a config cut short", ["config.json", "JSON"], None, after=config_text(b'{"model_type": "qwen3_5_text", "hidden'))
    damaged("a config that is a list", ["config.json"], None, after=config_text(b"[]"))
    damaged("a config nested 100000 deep", ["config.json"], None, after=config_text(b'{"a":' * 100000))
    twice = b'{"hidden_size": 64, "hidden_size": 65}'
    damaged("a config with a key twice", ["config.json", "hidden_size"], None, after=config_text(twice))
    damaged("a config that is not UTF-8", ["config.json"], None, after=config_text(b'{"model_type": "\xff"}'))
    damaged("a config of 20 MB", ["config.json"], None, after=config_text(b" " * 20_000_000))
    damaged("a damaged generation_config.json", ["generation_config.json"], None,
            after=lambda path: harness.write_bytes(os.path.join(path, "generation_config.json"), b"{"))


# ---- folders ----


def shard_index(change):
    """A model in two shards whose index is then changed: change(weight_map, files)."""

    def damage(m):
        names = list(m.tensors)
        m.sidecars = {f"{file}.safetensors": {n: m.tensors[n] for n in names[i::2]} for i, file in enumerate("ab")}
        m.tensors = {}
        weight_map = {name: file for file, tensors in m.sidecars.items() for name in tensors}
        m.json[INDEX] = {"metadata": {}, "weight_map": weight_map}
        change(m, weight_map)

    return damage


def not_a_file(name, make):
    def after(path):
        os.unlink(os.path.join(path, name))
        make(os.path.join(path, name))

    return after


def write(name, data):
    return lambda path: harness.write_bytes(os.path.join(path, name), data)


def folders():
    damaged("an index that names a file that is missing", [INDEX, "b.safetensors", "missing"],
            shard_index(lambda m, w: m.sidecars.pop("b.safetensors")))
    for elsewhere in ("../b.safetensors", "/etc/passwd", "x/../b.safetensors", ".safetensors", ""):
        damaged(f"an index that names '{elsewhere}'", [INDEX, f"'{elsewhere}'"], shard_index(lambda m, w: w.update({Q: elsewhere})))
    damaged("an index that names a tensor that no file has", [INDEX, "ghost"],
            shard_index(lambda m, w: w.update(ghost="a.safetensors")))
    damaged("a tensor in another file than the index says", [INDEX, Q],
            shard_index(lambda m, w: w.update({Q: "a.safetensors" if w[Q] == "b.safetensors" else "b.safetensors"})))
    damaged("a tensor in two files", ["twice", UP],
            shard_index(lambda m, w: [tensors.update({UP: Model(GOLDEN).tensors[UP]}) for tensors in m.sidecars.values()]))
    damaged("an empty index", [INDEX], shard_index(lambda m, w: w.clear()))
    damaged("an index that is not JSON", [INDEX, "JSON"], None, after=write(INDEX, b"{"))
    damaged("an index without weight_map", [INDEX, "weight_map"], None, after=write(INDEX, b"{}"))
    damaged("two weight files without an index", [INDEX],
            lambda m: (setattr(m, "weights", "x.safetensors"), m.sidecars.update({"y.safetensors": drop_all_but(m, UP)})))
    damaged("a tensor in the drafter's file and in the weights", ["twice", UP],
            lambda m: m.sidecars.update({"mtp.safetensors": {UP: m.tensors[UP]}}))

    damaged("no config.json", ["config.json"], None, after=lambda path: os.unlink(os.path.join(path, "config.json")))
    damaged("no weights", ["no .safetensors file"], lambda m: m.tensors.clear())
    damaged("only GGUF weights", ["GGUF"], lambda m: m.tensors.clear(), after=write("model.gguf", b"GGUF\3\0\0\0"))
    damaged("only PyTorch weights", ["PyTorch"], lambda m: m.tensors.clear(), after=write("pytorch_model.bin", b"PK"))
    damaged("GGUF under another name", [WEIGHTS, "GGUF"], None, after=write(WEIGHTS, b"GGUF\3\0\0\0" + bytes(100)))
    damaged("a Git LFS pointer in place of the weights", [WEIGHTS, "LFS", "git lfs pull"], None,
            after=write(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"))
    for name in ("config.json", WEIGHTS):
        say = [] if name == WEIGHTS else ["config.json"]
        damaged(f"{name} is a pipe", say, None, after=not_a_file(name, os.mkfifo))
        damaged(f"{name} is a folder", say, None, after=not_a_file(name, os.mkdir))
        damaged(f"{name} is a link to nothing", say, None, after=not_a_file(name, lambda path: os.symlink("nowhere", path)))
        damaged(f"{name} is a link to itself", say, None, after=not_a_file(name, lambda path: os.symlink(path, path)))

    gguf = harness.write_bytes(suite.path("model.gguf"), b"GGUF\3\0\0\0" + bytes(100))
    refuses("a GGUF file", ["model.gguf", "GGUF", "not supported"], *logits_args(gguf))
    other = harness.write_bytes(suite.path("notes.txt"), b"hello")
    refuses("a file of another kind", ["config.json"], *logits_args(other))
    os.mkfifo(suite.path("pipe"))
    refuses("a pipe for a model", ["pipe"], *logits_args(suite.path("pipe")))
    refuses("a device for a model", ["/dev/zero"], *logits_args("/dev/zero"))
    refuses("an empty name for a model", [], *logits_args(""))
    refuses("a model that is not there", ["no-such-model"], *logits_args("no-such-model"))
    refuses("a very long name", [], *logits_args("x" * 100_000))
    cache = suite.path("models--someone--thing")
    os.makedirs(os.path.join(cache, "snapshots", "1"))
    refuses("a folder of the Hugging Face cache", ["snapshots"], *logits_args(cache))


def drop_all_but(m, name):
    return {name: m.tensors.pop(name)}


# ---- tokenizer.json ----


def tokenizers():
    def run(what, words, text, *options):
        path = Model(GOLDEN).save(suite.fresh("model"))
        if text is not None:
            harness.write_bytes(os.path.join(path, "tokenizer.json"), text)
        refuses(what, words, "run", path, "hello", "--max-tokens", 2, *options)

    def changed(change):
        t = harness.tiny_tokenizer()
        change(t)
        return json.dumps(t).encode()

    good = changed(lambda t: None)
    path = Model(GOLDEN).save(suite.fresh("model"))
    harness.write_bytes(os.path.join(path, "tokenizer.json"), good)
    r = suite.run("run", path, "hello", "--max-tokens", 2)
    suite.check(r.code == 0 and not r.err, "the tokenizer that the others are damaged copies of", r)
    run("no tokenizer.json", ["tokenizer.json"], None)
    run("an empty tokenizer.json", ["tokenizer.json"], b"")
    run("a tokenizer.json cut short", ["tokenizer.json", "JSON"], good[: len(good) // 2])
    run("a tokenizer.json that is another object", ["tokenizer.json"], b'{"a": 1}')
    run("a tokenizer.json nested 100000 deep", ["tokenizer.json"], b"[" * 100000)
    run("a tokenizer for a larger vocabulary", ["tokenizer", "401", "320"], changed(lambda t: t["model"]["vocab"].update(zz=400)))
    # Added tokens may lie beyond what the model has, as long as nobody uses them. This one begins each turn.
    run("an added token that the model does not have", ["400", "320"], changed(lambda t: t["added_tokens"][1].update(id=400)))
    run("an id of 2^31 - 1", ["tokenizer.json"], changed(lambda t: t["added_tokens"][0].update(id=2**31 - 1)))
    run("an id of 10 million", ["tokenizer"], changed(lambda t: t["added_tokens"][0].update(id=10**7)))
    run("a negative id", ["tokenizer.json"], changed(lambda t: t["model"]["vocab"].update(A=-1)))
    run("an id twice", ["tokenizer.json", "twice"], changed(lambda t: t["model"]["vocab"].update(A=66)))
    run("a byte without a token", ["tokenizer.json", "byte 41"], changed(lambda t: t["model"]["vocab"].pop("A")))
    run("a merge of tokens that do not exist", ["tokenizer.json", "merges"],
        changed(lambda t: t["model"]["merges"].append(["q", "q"])))
    run("another kind of model", ["tokenizer.json", "WordPiece"], changed(lambda t: t["model"].update(type="WordPiece")))
    run("another normalizer", ["tokenizer.json", "NFKD"], changed(lambda t: t.update(normalizer={"type": "NFKD"})))


# ---- ids and output ----


def ids_and_output():
    good = os.path.join(harness.GOLDEN, GOLDEN)
    out = suite.path("out.safetensors")
    for what, data, words in (
        ("an empty ids file", b"", ["no ids"]),
        ("an ids file of blanks", b" \n\t ", ["no ids"]),
        ("words for ids", b"1 2 three", ["three"]),
        ("half a number", b"1 2 3.5", ["3.5"]),
        ("an id equal to the vocabulary's size", b"1 320 2", ["320"]),
        ("an id of 2^31 - 1", b"2147483647", ["2147483647"]),
        ("an id beyond 64 bits", b"1 99999999999999999999", ["99999999999999999999"]),
        ("a negative id", b"-1", ["-1"]),
        ("bytes for ids", bytes(range(256)), []),
        ("zero bytes for ids", bytes(1000), []),
    ):
        path = harness.write_bytes(suite.path("bad-ids"), data)
        words = words if "320" in words or "2147483647" in words else words + ["bad-ids"]
        refuses(what, words, "logits", good, "--ids", path, "--out", out)
    for what, t in (
        ("float ids", st.tensor("F32", [2], [1.0, 2.0])),
        ("no ids in a safetensors file", None),
        ("a negative id in a safetensors file", st.tensor("I64", [2], [1, -1])),
        ("an id of 2^40 in a safetensors file", st.tensor("I64", [2], [1, 1 << 40])),
    ):
        st.write(suite.path("ids.safetensors"), {"input_ids": t} if t else {"other": st.tensor("I32", [1], [1])})
        refuses(what, ["ids.safetensors", "input_ids"], "logits", good, "--ids", suite.path("ids.safetensors"), "--out", out)
    refuses("an ids file that is not there", ["no-such-file"], "logits", good, "--ids", "no-such-file", "--out", out)
    refuses("a folder for ids", [suite.temp], "logits", good, "--ids", suite.temp, "--out", out)
    refuses("a pipe for ids", ["pipe"], "logits", good, "--ids", suite.path("pipe"), "--out", out)
    refuses("a device for ids", ["/dev/zero"], "logits", good, "--ids", "/dev/zero", "--out", out)
    refuses("no --ids", ["--ids"], "logits", good, "--out", out)
    suite.check(not os.path.exists(out), "a failed run leaves no output file")

    ids = suite.path("ids.txt")
    for what, where in (
        ("an output folder that is not there", suite.path("nowhere", "out")),
        ("a folder for output", suite.temp),
        ("an empty name for output", ""),
        ("a full device for output", "/dev/full"),
        ("output below a file", os.path.join(ids, "out")),
    ):
        if where != "/dev/full" or os.path.exists(where):
            refuses(what, [where], "logits", good, "--ids", ids, "--out", where)
    full_disk(good, ids)


def full_disk(good, ids):
    """The old file stays whole, and nothing half written stays behind."""
    os.mkdir(suite.path("disk"))
    out = harness.write_bytes(suite.path("disk", "out"), b"old")
    refuses("a full disk", [out, "cannot write"], "logits", good, "--ids", ids, "--out", out, file_size=10_000)
    suite.check(harness.read_bytes(out) == b"old", "a full disk leaves the old file as it was")
    left = os.listdir(suite.path("disk"))
    suite.check(left == ["out"], "a full disk leaves nothing half written", left)


# ---- memory ----


def memory():
    good = os.path.join(harness.GOLDEN, GOLDEN)
    path = Model(GOLDEN)
    path.config["max_position_embeddings"] = 1 << 30
    path = path.save(suite.fresh("model"))
    harness.write_bytes(os.path.join(path, "tokenizer.json"), json.dumps(harness.tiny_tokenizer()).encode())
    if suite.sanitized or not sys.platform.startswith("linux"):
        suite.skip("little memory", "the limit is of no use here")
        return
    refuses("a context of 4 million tokens", [" GB"], "run", path, "hello", "--context", 1 << 22)
    refuses("a chunk of 65536 rows, a context of 4 million", [], "run", path, "hello", "--context", 1 << 22, "--chunk", 65536)
    # Whichever allocation fails, also of a thread's stack: a result, or one line.
    for mib in (24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 192, 256):
        r = suite.run(*logits_args(good), "--threads", 4, memory=mib * MIB)
        started = r.code != 127 or "shared librar" not in r.err
        fine = r.code == 0 and not r.err or not started or complaint(r, []) is None
        suite.check(fine, f"in {mib} MiB of address space", r)


def main():
    ids = st.read(os.path.join(harness.GOLDEN, GOLDEN, "expected.safetensors"))["input_ids"].values()
    harness.write_ids(suite.path("ids.txt"), ids[:20])
    bytes_of_files()
    tensors()
    tensors_of_families()
    drafters()
    other_models()
    quantised()
    configs()
    folders()
    tokenizers()
    ids_and_output()
    memory()
    return suite.finish()


sys.exit(main())

"""What the tests on golden checkpoints share: running `weft logits` on the golden's ids, and comparing results."""
import math
import os
import platform
import re

import harness
import safetensors_io as st

QWEN3_5 = ["qwen3_5-dense", "qwen3_5-dense-tied", "qwen3_5-dense-odd", "qwen3_5-moe"]
PLAIN = ["llama3", "qwen2", "qwen3-dense", "qwen3-moe"]
GEMMA4 = ["gemma4-dense", "gemma4-keqv", "gemma4-moe", "gemma4-ple"]
NEMOTRON = ["nemotron_h-dense", "nemotron_h-latent", "nemotron_h-moe", "nemotron_h-mtp"]
PAIRS = ["gemma4-assistant", "gemma4-assistant-ordered"]  # a target and its drafter each
MODELS = [*QWEN3_5, "qwen3_next", *PLAIN, "gemma3", *GEMMA4, *NEMOTRON]

DIVERGENCE = 1e-2  # of the fast mode's predictions, in nats, on average

suite = harness.Suite()
isas = []  # that can be tested here: usable_isas()


def folder_of(golden):
    return os.path.join(harness.GOLDEN, golden)


def model_of(golden):
    """What `weft logits` gets for it: the model, and of a pair the drafter, too."""
    folder = folder_of(golden)
    if golden not in PAIRS:
        return [folder]
    return [os.path.join(folder, "target"), "--draft", os.path.join(folder, "assistant")]


def take_ids(golden):
    """Its ids are those that logits() runs from now on; what is expected of it."""
    expected = st.read(os.path.join(folder_of(golden), "expected.safetensors"))
    harness.write_ids(suite.path("ids.txt"), expected["input_ids"].values())
    return expected


# ---- running ----


def logits(what, model, *options):
    """The bytes of the result for the golden's ids; None, and a failed check, where there is none. model: a folder, or what
    model_of() gives."""
    out = suite.path("logits.safetensors")
    if os.path.exists(out):
        os.unlink(out)
    r = suite.run("logits", *([model] if isinstance(model, str) else model), "--ids", suite.path("ids.txt"), "--out", out, *options)
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

# ---- fast and precise ----


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
    for name in [n for n in precise if n in ("logits", "mtp_logits_d1")]:
        if not suite.check(name in fast and fast[name].shape == precise[name].shape, f"{what}: {name} of the fast mode"):
            continue
        rows = list(divergences(precise[name].values(), fast[name].values(), precise[name].shape[1]))
        kl, same = [k for k, _ in rows], sum(agree for _, agree in rows)
        mean = sum(kl) / len(kl)
        said = f"KL {mean:.1e} on average, {max(kl):.1e} at most, the same arg-max at {same} of {len(kl)}"
        print(f"{what}: fast and precise {name}: {said}", flush=True)
        suite.check(mean <= most, f"{what}: fast {name} near the precise ones", said)


# ---- instruction sets ----

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


def usable_isas(folder):
    """The instruction sets that can be tested here, also in isas."""
    ids, out = suite.path("ids.txt"), suite.path("isa.safetensors")
    isas[:] = [isa for isa in FLAGS if suite.run("logits", folder, "--ids", ids, "--out", out, "--isa", isa).code == 0]
    return isas


# ---- variants ----


class Variants:
    """Rewrites of goldens that must give what the goldens give. Used as a decorator of a function that rewrites a harness.Model."""

    def __init__(self, goldens):
        self.goldens, self.all = goldens, []

    def __call__(self, what, goldens=None, compare="all"):
        """goldens: of which it is a variant; None: of all. compare: "logits" where the variant has no drafter."""

        def add(rewrite):
            self.all.append((what, goldens or self.goldens, compare, rewrite))
            return rewrite

        return add

    def run(self, golden):
        base = logits(f"{golden}: the published form", folder_of(golden), "--precise")
        for what, goldens, compare, rewrite in self.all:
            if golden in goldens:
                m = harness.Model(golden)
                rewrite(m)
                compare_with(base, f"{golden}: {what}", m.save(suite.fresh(golden)), compare)
        return base


# ---- two models ----


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


def compare_pair(what, golden, one, other):
    """Two models that must give the same."""
    base = logits(f"{golden}: {what}, the other way", other.save(suite.fresh(golden)), "--precise")
    compare_with(base, f"{golden}: {what}", one.save(suite.fresh(golden)), "all")

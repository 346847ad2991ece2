#!/usr/bin/env python3
"""test_bench.py BUILD: `weft bench` and `weft eval`.

Of bench: what is asked is measured, and said in the form that other programs read. No number is compared with another machine's;
only with what must hold between the numbers of one run. Of eval: perplexity and divergence are those that this file computes from
the logits of `weft logits`, whatever the threads and however little memory the comparison may take.
"""
import array
import json
import math
import os
import sys

sys.dont_write_bytecode = True
import harness
import safetensors_io as st
from harness import Model

MINI = os.path.join("models", "mini")
DENSE = os.path.join("tests", "data", "golden", "qwen3_5-dense")
VERIFY = 8

suite = harness.Suite()
check, run = suite.check, suite.run


def one_line(r, code, *words):
    """Is it a failure in one line that says the words?"""
    return r.code == code and r.err.startswith("weft: ") and r.err.count("\n") == 1 and all(word in r.err for word in words)


def parsed(what, r):
    """The JSON on standard output, and nothing else there."""
    try:
        value = json.loads(r.out)
    except ValueError:
        value = None
    return value if check(r.code == 0 and r.err == "" and isinstance(value, dict), what, r) else None


def close(a, b, tolerance):
    return abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-12)


# ---- both ----


def helps():
    for name, option in (("bench", "depths"), ("eval", "context")):
        r = run("help", name)
        text = r.out.decode()
        check(r.code == 0 and f"--{option} " in text and text.startswith(f"usage: weft {name} "), f"help {name}", r)
        check(all(len(line) <= 80 for line in text.splitlines()), f"help {name} is at most 80 columns wide")
        check(f"\n  {name} " in run("help").out.decode(), f"the overview lists {name}")
        r = run(name, f"--{option[0]}{option[2:]}", "1")
        check(one_line(r, 2, f"did you mean --{option}?"), f"a slip of --{option}", r)


# ---- bench ----


def positive(x):
    return isinstance(x, (int, float)) and x > 0


def ranged(o):
    """A median that lies between the slowest and the fastest round."""
    low, high = o["range"]
    return positive(o["tok_s"]) and 0 < low <= o["tok_s"] <= high


def bench_json():
    depths, tokens, rounds = [0, 64, 128], [16, 40], 3
    out = suite.path("bench.json")
    r = run("bench", MINI, "--depths", "0,64,128", "--tokens", "16,40", "--rounds", rounds, "--passes", 3, "--threads", 2, "--scaling",
            "--json", out)
    if not check(r.code == 0 and r.err == "" and os.path.exists(out), "bench --json FILE", r):
        return
    for word in ("memory limit", "prefill", "decode", "verify", "drafts", "threads"):
        check(word in r.out.decode(), f"the table has '{word}'", r.out)
    with open(out) as f:
        o = json.load(f)
    check(o["model"] == MINI and o["threads"] == 2 and o["rounds"] == rounds and o["passes"] == 3 and o["isa"], "what was run")
    check(positive(o["memory_gbps"]) and o["memory_block"] > 1 << 20, "memory_gbps", o.get("memory_gbps"))
    cells = [(p["tokens"], p["depth"]) for p in o["prefill"]]
    check(cells == [(t, d) for t in tokens for d in depths] and all(map(ranged, o["prefill"])), "prefill", o["prefill"])
    check([d["depth"] for d in o["decode"]] == depths and all(map(ranged, o["decode"])), "decode", o["decode"])
    for d in o["decode"]:
        check(positive(d["bandwidth_share"]), "bandwidth_share", d)
    moved = [d["bytes"] for d in o["decode"]]
    # Weights once, then keys and values by their depth. The file's own size is the measure of the weights.
    check(moved[0] > 0.5 * os.path.getsize(os.path.join(MINI, "model.safetensors")), "a pass reads the weights", moved)
    check(0 < moved[1] - moved[0] == moved[2] - moved[1], "each 64 tokens of context are as many bytes", moved)
    cost = o["verify_cost"]
    check(len(cost) == VERIFY and cost[0] == 1 and all(map(positive, cost)), "verify_cost", cost)
    by_depth = o["verify_cost_by_depth"]
    check([v["depth"] for v in by_depth] == depths and by_depth[0]["ratios"] == cost, "verify_cost_by_depth", by_depth)
    check(all(len(v["ratios"]) == VERIFY and all(map(positive, v["ratios"])) for v in by_depth), "ratios of every depth", by_depth)
    drafts = o["drafts"]
    check([d["depth"] for d in drafts] == [0, 1, 2, 3, 4] and all(map(ranged, drafts)), "drafts", drafts)
    check(drafts[0]["tokens_per_pass"] == 1 and all(1 <= d["tokens_per_pass"] <= 1 + d["depth"] for d in drafts), "tokens a pass")
    scaling = o["scaling"]
    check([s["threads"] for s in scaling] == [1, 2], "scaling: 1 .. n threads", scaling)
    check(all(positive(s[k]) for s in scaling for k in ("decode_tok_s", "prefill_tok_s", "memory_gbps")), "scaling", scaling)


def bench_choices():
    o = parsed("bench --json -", run("bench", DENSE, "--cells", "decode", "--depths", "5", "--rounds", 1, "--passes", 2, "--json", "-"))
    d = o["decode"][0]  # of one round: otherwise the median of the rounds' own shares
    share = d["bytes"] * d["tok_s"] / (o["memory_gbps"] * 1e9)
    check(close(d["bandwidth_share"], share, 1e-6), "bandwidth_share is bytes by time by the limit", d)
    if o:
        check([d["depth"] for d in o["decode"]] == [5], "decode alone", o["decode"])
        check(o["prefill"] == o["verify_cost"] == o["verify_cost_by_depth"] == o["drafts"] == [] and "scaling" not in o,
              "what was not asked is empty", o)
    o = parsed("bench --json - again", run("bench", DENSE, "--cells", "prefill,verify", "--depths", "0", "--tokens", "7", "--rounds", 1,
                                           "--passes", 2, "--chunk", 3, "--threads", 1, "--json=-"))
    if o:
        check(o["decode"] == [] and len(o["prefill"]) == 1 and len(o["verify_cost"]) == VERIFY, "prefill and verify", o)
        check(o["chunk"] == 3 and o["threads"] == 1, "chunk and threads are taken")
    # A context beyond what the model was trained for is as good as any: nothing is answered.
    r = run("bench", DENSE, "--cells", "decode", "--depths", "20000", "--rounds", 1, "--passes", 1, "--precise")
    check(r.code == 0 and "20000" in r.out.decode() and "prefill" not in r.out.decode(), "a table of one cell", r)


def bench_mistakes():
    for args, words in (
        (("--depths", "0,x"), ("--depths", "'x'")),
        (("--depths", ""), ("--depths",)),
        (("--depths", "1,,2"), ("--depths",)),
        (("--depths", "-1"), ("--depths", "'-1'")),
        (("--depths", "4194305"), ("--depths", "4194304")),
        (("--depths", "1,2,3,4,5,6,7,8,9"), ("--depths", "at most 8")),
        (("--tokens", "0"), ("--tokens", "'0'")),
        (("--tokens", "1.5"), ("--tokens", "'1.5'")),
        (("--tokens", "9" * 40), ("--tokens", "too long")),
        (("--cells", "prefil"), ("--cells", "'prefil'", "prefill, decode, verify, drafts")),
        (("--rounds", "0"), ("--rounds",)),
        (("--rounds", "100"), ("--rounds",)),
        (("a", "b"), ("b",)),
    ):
        r = run("bench", *([] if args == ("a", "b") else [DENSE]), *args)
        check(one_line(r, 2, *words) and r.out == b"", f"bench {' '.join(args)[:40]}: refused", r)
    r = run("bench", suite.path("no-model"))
    check(one_line(r, 1, "no-model"), "no such model", r)
    r = run("bench", DENSE, "--isa", "none-such")
    check(one_line(r, 2, "none-such"), "no such kernels", r)
    r = run("bench", DENSE, "--depths", "4194304")
    check(one_line(r, 1, "context"), "a context that is too long", r)
    r = run("bench", suite.path("no-model"), "--json", suite.path("nowhere", "x"))
    check(one_line(r, 1, "nowhere") and "no-model" not in r.err, "a file that cannot be written is refused first", r)


# ---- eval ----


def logits_of(model, ids, *options):
    """[len(ids)][vocab]"""
    ids_file, out = harness.write_ids(suite.path("window"), ids), suite.path("logits")
    r = run("logits", model, "--ids", ids_file, "--out", out, *options)
    if not check(r.code == 0, f"logits of {len(ids)} ids", r):
        return None
    values, (n, vocab) = array.array("f"), (0, 0)
    tensor = st.read(out)["logits"]
    values.frombytes(tensor.data)
    n, vocab = tensor.shape
    return [values[i * vocab:(i + 1) * vocab] for i in range(n)]


def log_sum_exp(row):
    top = max(row)
    return top + math.log(math.fsum(math.exp(x - top) for x in row))


def surprise(model, ids, window, *options):
    """Nats of every id but the first: each window reads `window` ids and predicts the one after each."""
    nats = []
    for start in range(0, len(ids) - 1, window):
        end = min(start + window, len(ids) - 1)
        rows = logits_of(model, ids[start:end], *options)
        nats += [log_sum_exp(row) - row[ids[start + i + 1]] for i, row in enumerate(rows)]
    return nats


TEXT = (
    b"def largest(numbers):\n    \"\"\"The largest of a list.\"\"\"\n    best = numbers[0]\n    for n in numbers[1:]:\n"
    b"        if n > best:\n            best = n\n    return best\n\nThe function walks over the list once. Caf\xc3\xa9s in Z\xc3\xbcrich.\n"
)


def ids_of(text):
    return [int(x) for x in run("tokenize", MINI, "--ids", stdin=text).out.split()]


def perplexity():
    text = harness.write_bytes(suite.path("text.txt"), TEXT)
    ids = ids_of(TEXT)
    first = run("tokenize", MINI, "--decode", str(ids[0])).out
    check(TEXT.startswith(first) and len(ids) > 50, "the text's ids", len(ids))
    for window in (20, 512):
        o = parsed(f"eval ppl --context {window}", run("eval", "ppl", MINI, text, "--context", window, "--json"))
        if not o:
            continue
        nats = surprise(MINI, ids, window)
        total, n = math.fsum(nats), len(nats)
        check(o["tokens"] == n == len(ids) - 1 and o["context"] == window, "every token but the first counts once", o)
        check(close(o["perplexity"], math.exp(total / n), 1e-7), "perplexity", f"{o['perplexity']}, expected {math.exp(total / n)}")
        variance = math.fsum((x - total / n) ** 2 for x in nats) / (n - 1) / n
        check(close(o["perplexity_error"], o["perplexity"] * math.sqrt(variance), 1e-6), "its standard error", o)
        check(close(o["bits_per_token"], total / n / math.log(2), 1e-7), "bits_per_token", o)
        check(o["bytes"] == len(TEXT) - len(first), "bytes of the predicted tokens", o)
        check(close(o["bits_per_byte"], total / math.log(2) / (len(TEXT) - len(first)), 1e-7), "bits_per_byte", o)
        same = ("perplexity", "bits_per_byte", "tokens", "bytes")
        other = parsed("one thread", run("eval", "ppl", MINI, text, "--context", window, "--json", "--threads", 1))
        check(other and all(other[k] == o[k] for k in same), "the same with one thread", other)
        by_ids = parsed("eval --ids", run("eval", "ppl", MINI, "--ids", harness.write_ids(suite.path("ids"), ids), "--context", window,
                                          "--json"))
        check(by_ids and all(by_ids[k] == o[k] for k in same), "the same from ids", by_ids)
    r = run("eval", "ppl", MINI, text)
    check(r.code == 0 and r.err == "" and f"perplexity   {o['perplexity']:.4f}" in r.out.decode(), "eval ppl for people", r)
    o = parsed("eval --tokens", run("eval", "ppl", MINI, text, "--tokens", 10, "--json"))
    check(o and o["tokens"] == 10 and close(o["perplexity"], math.exp(math.fsum(nats[:10]) / 10), 1e-7), "the first tokens alone", o)
    # Control tokens are no letters of the text.
    o = parsed("a control token", run("eval", "ppl", MINI, harness.write_bytes(suite.path("c"), b"hello world<|im_end|>"), "--json"))
    check(o and o["tokens"] == 2 and o["bytes"] == len(" world"), "bytes of a control token", o)


def divergence():
    text = harness.write_bytes(suite.path("text.txt"), TEXT)
    ids = ids_of(TEXT)
    rows, exact = logits_of(MINI, ids[:-1]), logits_of(MINI, ids[:-1], "--precise")
    if not rows or not exact:
        return
    kl, same = [], 0
    for row, true in zip(rows, exact):
        p, q = log_sum_exp(true), log_sum_exp(row)
        kl.append(math.fsum(math.exp(x - p) * ((x - p) - (y - q)) for x, y in zip(true, row)))
        same += true.index(max(true)) == row.index(max(row))
    kl.sort()
    n = len(kl)
    o = parsed("eval kl", run("eval", "kl", MINI, text, "--json"))
    if not o:
        return
    k = o["kl"]
    check(o["tokens"] == n and abs(k["mean"] - math.fsum(kl) / n) < 1e-9, "mean divergence", f"{k}, expected {math.fsum(kl) / n}")
    check(abs(k["median"] - (kl[(n - 1) // 2] + kl[n // 2]) / 2) < 1e-9 and abs(k["max"] - kl[-1]) < 1e-9, "median and max", k)
    check(abs(k["p99"] - kl[math.ceil(0.99 * n) - 1]) < 1e-9, "99 %", k)
    check(close(o["agreement"], same / n, 1e-9), "agreement", o)
    for name, options in (("perplexity", ()), ("perplexity_precise", ("--precise",))):
        alone = parsed(f"ppl for {name}", run("eval", "ppl", MINI, text, "--json", *options))
        check(alone and alone["perplexity"] == o[name], f"kl's {name} is that of ppl", o)
    check(close(o["relative_difference"], o["perplexity"] / o["perplexity_precise"] - 1, 1e-4) or abs(o["relative_difference"]) < 1e-7,
          "relative_difference", o)
    # 1 MB holds 15 rows of this vocabulary: windows shorter and longer than that.
    for window in (7, 512):
        options = ("--context", window, "--json")
        much = parsed("eval kl, much memory", run("eval", "kl", MINI, text, *options))
        little = parsed("eval kl, little memory", run("eval", "kl", MINI, text, "--keep", 1, *options))
        check(much == little, f"little memory changes nothing, window {window}", little)
    r = run("eval", "kl", MINI, text)
    check(r.code == 0 and r.err == "" and "same choice" in r.out.decode(), "eval kl for people", r)


def eval_mistakes():
    text = harness.write_bytes(suite.path("text.txt"), TEXT)
    ids = harness.write_ids(suite.path("ids.txt"), [5, 6, 7])
    for args, words in (
        (("perplexity", DENSE, text), ("ppl or kl",)),
        (("ppl", DENSE), ("TEXT_FILE", "--ids")),
        (("ppl", DENSE, text, "--ids", ids), ("--ids",)),
        (("kl", DENSE, text, "--precise"), ("--precise",)),
        (("ppl",), ("MODEL",)),
        (("ppl", DENSE, "--ids", ids, "--context", "0"), ("--context",)),
        (("kl", DENSE, "--ids", ids, "--keep", "0"), ("--keep",)),
    ):
        r = run("eval", *args)
        check(one_line(r, 2, *words), f"eval {' '.join(args)[:60]}: refused", r)
    for args, words in (
        (("ppl", DENSE, text), ("tokenizer.json", "--ids")),
        (("ppl", MINI, suite.path("none")), ("none",)),
        (("ppl", MINI, suite.temp), (suite.temp,)),
        (("ppl", suite.path("no-model"), text), ("no-model",)),
        (("ppl", suite.path("no-model"), suite.path("none")), (suite.path("none"),)),  # the text first: it is quickly looked at
        (("ppl", MINI, harness.write_bytes(suite.path("empty"), b"")), ("0 tokens", "at least 2")),
        (("kl", MINI, harness.write_bytes(suite.path("one"), b"a")), ("1 token;", "at least 2")),
        (("ppl", DENSE, "--ids", harness.write_ids(suite.path("one-id"), [5])), ("1 token;",)),
        (("ppl", DENSE, "--ids", harness.write_ids(suite.path("large"), [5, 6, 99999])), ("99999", "position 2")),
        (("ppl", DENSE, "--ids", harness.write_bytes(suite.path("bad"), b"5 x")), ("'x'",)),
        (("kl", DENSE, "--ids", ids, "--isa", "neon" if os.uname().machine == "x86_64" else "avx2"), ("no kernels",)),
    ):
        r = run("eval", *args)
        check(one_line(r, 1, *words) and r.out == b"", f"eval {' '.join(args)[-60:]}: an error", r)
    o = parsed("a model without tokenizer", run("eval", "ppl", DENSE, "--ids", ids, "--json"))
    check(o and o["tokens"] == 2 and o["bytes"] is None and o["bits_per_byte"] is None, "no tokenizer, no bytes", o)
    broken = Model("qwen3_5-dense")
    name = next(n for n in broken.tensors if n.endswith("norm.weight") and "layers" not in n and "mtp" not in n)
    norm = broken.tensors[name]
    large = array.array("f", [3e38] * norm.shape[0])
    broken.tensors[name] = st.Tensor("F32", norm.shape, large.tobytes())
    r = run("eval", "ppl", broken.save(suite.path("broken")), "--ids", ids)
    check(one_line(r, 1, "not finite"), "logits that are not finite", r)


helps()
bench_json()
bench_choices()
bench_mistakes()
perplexity()
divergence()
eval_mistakes()
sys.exit(suite.finish())

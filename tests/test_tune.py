#!/usr/bin/env python3
"""test_tune.py BUILD: `weft tune`: the table it prints and keeps, and what becomes of a table that is there already.

No number is compared with a clock: only what must hold between the numbers of one table.
"""
import glob
import json
import os
import sys

sys.dont_write_bytecode = True
import harness

MINI = os.path.join("models", "mini")
GOLDEN = os.path.join("tests", "data", "golden")
DENSE, PLAIN = os.path.join(GOLDEN, "qwen3_5-dense"), os.path.join(GOLDEN, "llama3")
DEPTHS = [*range(9), "auto"]
QUICK = ("--rounds", 2, "--tokens", 16, "--threads", 1)

suite = harness.Suite()
check, run = suite.check, suite.run


def one_line(r, code, *words):
    """Is it a failure in one line that says the words?"""
    return r.code == code and r.err.startswith("weft: ") and r.err.count("\n") == 1 and all(word in r.err for word in words)


def parsed(what, r, warnings=0):
    try:
        value = json.loads(r.out)
    except ValueError:
        value = None
    return value if check(r.code == 0 and r.err.count("\n") == warnings and isinstance(value, dict), what, r) else {}


def tables(cache):
    return sorted(glob.glob(os.path.join(cache, "*.json")))


def share_or_none(x):
    return x is None or 0 <= x <= 1


def shape(what, t, drafter):
    """What must hold in every table."""
    if not t:
        return
    check(t["version"] == run("version").out.decode().split()[1] and t["date"] > 1700000000, f"{what}: version and date", t)
    check(t["processor"] and t["isa"] and t["kv"] == "bf16" and t["threads"] == 1 and t["drafter"] is drafter, f"{what}: what for", t)
    check((t["rounds"], t["tokens"]) == (2, 16) and not t["precise"], f"{what}: rounds and tokens", t)
    check(len(t["pass_ns"]) == 9 and t["pass_ns"][0] > 0, f"{what}: times of passes", t["pass_ns"])
    check((t["link_ns"] > 0) == drafter, f"{what}: a link of the chain", t["link_ns"])
    for name in ("model", "lookup"):
        check(len(t["accepted"][name]) == 8 and all(map(share_or_none, t["accepted"][name])), f"{what}: acceptance", t["accepted"])
    check(drafter or t["accepted"]["model"] == [None] * 8, f"{what}: no drafter, no acceptance of it", t["accepted"])
    depths = t["depths"]
    check([d["depth"] for d in depths] == DEPTHS, f"{what}: every depth", [d["depth"] for d in depths])
    for d in depths:
        check(d["tok_s"] > 0 and 0 < d["ratio_least"] <= d["ratio"] <= d["ratio_most"], f"{what}: speeds", d)
        check(1 <= d["tokens_per_pass"] <= (1 + d["depth"] if d["depth"] != "auto" else 9), f"{what}: tokens a pass", d)
        check(len(d["accepted"]) == 8 and all(map(share_or_none, d["accepted"])), f"{what}: acceptance by position", d)
    plain = depths[0]
    check(plain["ratio"] == plain["ratio_least"] == plain["ratio_most"] == plain["tokens_per_pass"] == 1, f"{what}: plain decoding", plain)
    check(plain["accepted"] == [None] * 8, f"{what}: plain decoding drafts nothing", plain)
    right = any(d["tokens_per_pass"] > 1 for d in depths[1:-1])
    check(right or "no draft was right" in t["summary"], f"{what}: what is never right does not win", t["summary"])
    check(("no drafter" in t["summary"]) is not drafter, f"{what}: a checkpoint without a drafter is said to be one", t["summary"])
    check(t["summary"].endswith(".") and t["summary"].count("\n") == 0, f"{what}: a sentence", t["summary"])


def helps():
    r = run("help", "tune")
    text = r.out.decode()
    check(r.code == 0 and "--retune" in text and text.startswith("usage: weft tune "), "help tune", r)
    check(all(len(line) <= 80 for line in text.splitlines()), "help tune is at most 80 columns wide")
    check("\n  tune " in run("help").out.decode(), "the overview lists tune")
    check(one_line(run("tune", "--retun"), 2, "did you mean --retune?"), "a slip of --retune")


def kept_and_read(model, drafter):
    name = os.path.basename(model)
    cache = suite.fresh("cache")
    first = parsed(f"{name}: --json", run("tune", model, *QUICK, "--json", "--cache", cache))
    shape(name, first, drafter)
    if not first or not check(first["fresh"] is True and tables(cache) == [first["path"]], f"{name}: one table is kept", first):
        return
    check(os.path.basename(first["path"]).startswith(f"{name}-"), f"{name}: its name begins with the model's", first["path"])
    kept = json.loads(harness.read_bytes(first["path"]))
    check({k: v for k, v in first.items() if k not in ("fresh", "path", "summary")} == kept, f"{name}: what is printed is what is kept")
    again = parsed(f"{name}: again", run("tune", model, "--threads", 1, "--json", "--cache", cache))
    check(again == {**first, "fresh": False}, f"{name}: the second time it is printed, not measured", again)
    r = run("tune", model, "--threads", 1, "--cache", cache)
    text = r.out.decode()
    for word in ("tokens/s", "tokens/pass", " auto ", "T(1)", first["processor"], "measured before", first["summary"]):
        check(word in text, f"{name}: the table has '{word}'", text)
    check(r.code == 0 and r.err == "", f"{name}: a table for people", r)
    # Whoever has another number of threads has another table.
    other = parsed(f"{name}: 2 threads", run("tune", model, "--rounds", 1, "--tokens", 16, "--threads", 2, "--json", "--cache", cache))
    check(other and other["fresh"] and other["threads"] == 2 and len(tables(cache)) == 2, f"{name}: a table for each number of threads")
    new = parsed(f"{name}: --retune", run("tune", model, "--rounds", 1, "--tokens", 17, "--threads", 1, "--retune", "--json", "--cache", cache))
    check(new and new["fresh"] and (new["rounds"], new["tokens"]) == (1, 17) and new["path"] == first["path"], f"{name}: --retune", new)
    check(json.loads(harness.read_bytes(first["path"]))["tokens"] == 17, f"{name}: the new table is kept")


def damaged():
    cache = suite.fresh("cache")
    t = parsed("a table", run("tune", DENSE, *QUICK, "--json", "--cache", cache))
    ids, out = harness.write_ids(suite.path("ids"), [1, 2, 3, 4]), suite.path("logits")
    if not t:
        return
    whole = harness.read_bytes(t["path"])
    for what, data in (("cut", whole[:300]), ("empty", b""), ("out of range", whole.replace(b'"link_ns"', b'"pass_ns"')),
                       ("another machine's", whole.replace(b'"threads": 1', b'"threads": 7')), ("large", b" " * 70000 + whole)):
        harness.write_bytes(t["path"], data)
        r = run("logits", DENSE, "--ids", ids, "--out", out, "--threads", 1, "--cache", cache)
        check(r.code == 0 and r.err.count("\n") == 1 and "weft tune --retune" in r.err, f"{what}: one warning, and the engine starts", r)
        r = run("logits", DENSE, "--ids", ids, "--out", out, "--threads", 1, "--cache", "none")
        check(r.code == 0 and r.err == "", f"{what}: nothing is read without a cache", r)
    o = parsed("a damaged table is measured again", run("tune", DENSE, *QUICK, "--json", "--cache", cache), warnings=1)
    check(o.get("fresh") and json.loads(harness.read_bytes(t["path"]))["rounds"] == 2, "and replaced", o)
    r = run("logits", DENSE, "--ids", ids, "--out", out, "--threads", 1, "--cache", cache)
    check(r.code == 0 and r.err == "", "the new one is fine", r)


def answers_stay():
    """A table changes how drafts are made, and no answer."""
    cache = suite.fresh("cache")
    prompt = "Write a Python function that adds two numbers."
    args = ("run", MINI, prompt, "--max-tokens", 48, "--threads", 1, "--cache", cache)
    before = run(*args)
    o = parsed("mini", run("tune", MINI, *QUICK, "--json", "--cache", cache))
    after = run(*args)
    check(o and before.code == after.code == 0 and before.out == after.out and after.err == "", "the same answer with a table", after)


def not_kept():
    o = parsed("--cache none", run("tune", DENSE, *QUICK, "--json", "--cache", "none"))
    check(o and o["fresh"] and o["path"] is None, "--cache none keeps nothing", o)
    cache = harness.write_bytes(suite.path("a-file"), b"")  # where no folder can be
    o = parsed("no folder", run("tune", DENSE, *QUICK, "--json", "--cache", cache), warnings=1)
    check(o and o["path"] is None, "a cache that is no folder", o)
    if os.geteuid() == 0:
        suite.skip("a cache folder that cannot be written", "root may write everywhere")
        return
    cache = suite.fresh("cache")
    os.makedirs(cache, 0o500)
    r = run("tune", DENSE, *QUICK, "--cache", cache)
    check(r.code == 0 and r.err.count("\n") == 1 and "cannot keep this table" in r.err and b"tokens/pass" in r.out, "a read-only cache", r)


def mistakes():
    for args, words in (
        (("--rounds", "0"), ("--rounds",)),
        (("--tokens", "3"), ("--tokens",)),
        (("--kv", "f64"), ("--kv",)),
        (("a", "b"), ("b",)),
    ):
        r = run("tune", *args)
        check(one_line(r, 2, *words) and r.out == b"", f"tune {' '.join(args)}: refused", r)
    check(one_line(run("tune", suite.path("no-model")), 1, "no-model"), "no such model")
    model = harness.Model("qwen3_5-dense")
    check(one_line(run("tune", model.save(suite.path("m")), "--isa", "none-such"), 2, "none-such"), "no such kernels")


helps()
kept_and_read(DENSE, True)
kept_and_read(PLAIN, False)
kept_and_read(MINI, True)
damaged()
answers_stay()
not_kept()
mistakes()
sys.exit(suite.finish())

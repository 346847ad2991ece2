#!/usr/bin/env python3
"""test_forge.py BUILD: `weft forge synth`: mistakes, a real shape end to end, an interruption, a full disk.

One layer of the smallest shape takes 230 MB, most of it the embedding; each folder is removed before the next is made."""
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

import safetensors_io as st
from harness import MIB, Suite, write_ids

NEEDED = 600 * MIB  # free: a full checkpoint is begun, and a small one made


def usage(suite):
    for words, code, text in [
        (["forge"], 2, "missing argument; usage: weft forge synth"),
        (["forge", "quantise"], 2, "unknown: forge quantise"),
        (["forge", "synth"], 2, "needs --like MODEL and --out DIR"),
        (["forge", "synth", "--like", "qwen3.5-2b"], 2, "needs --like MODEL and --out DIR"),
        (["forge", "synth", "--like", "qwen3.5-2b", "--out="], 2, "needs --like MODEL and --out DIR"),
        (["forge", "synth", "--like", "qwen3.5-3b", "--out", suite.path("m")], 2, "qwen3.5-3b: no such shape"),
        (["forge", "synth", "--like", "qwen3.5-2b", "--bits", "5", "--out", suite.path("m")], 2, "expected one of 4|8|16"),
        (["forge", "synth", "--like", "qwen3.5-2b", "--layers", "25", "--out", suite.path("m")], 1, "25 layers: qwen3.5-2b has 24"),
        (["forge", "synth", "--like", "qwen3.5-2b", "--bits", "16", "--head-bits", "6", "--out", suite.path("m")], 1,
         "choose 4 or 8 bits"),
        (["forge", "synth", "--like", "qwen3.5-2b", "--out", suite.path("no", "m")], 1, "cannot make the folder"),
        (["forge", "synth", "--like", "qwen3.5-2b", "--out", suite.temp], 1, "is not empty"),
    ]:
        if suite.temp in words:
            write_ids(suite.path("something"), [1])
        r = suite.run(*words)
        lines = r.err.splitlines()
        suite.check(r.code == code and len(lines) == 1 and text in lines[0] and not r.out, " ".join(words), r)
        suite.check(not os.path.exists(suite.path("m")), " ".join(words) + ": nothing is made")
    r = suite.run("help", "forge")
    suite.check(r.code == 0 and b"weft forge synth --like" in r.out, "help forge", r)
    suite.check(all(len(line) <= 80 for line in r.out.decode().splitlines()), "help forge is at most 80 columns wide")


def real_shape(suite):
    """The shape of a published model as a folder: what inspect says of it, and that it runs."""
    folder, out = suite.path("real"), suite.path("logits.safetensors")
    words = ["forge", "synth", "--like", "qwen3.5-0.8b", "--layers", 1, "--out", folder]
    r = suite.run(*words, memory=64 * MIB)
    if suite.check(r.code == 0 and r.out.decode().startswith(folder + ": 2"), "a real shape, in little memory", r):
        suite.check(sorted(os.listdir(folder)) == ["config.json", "model.safetensors"], "two files", os.listdir(folder))
        r = suite.run("inspect", folder)
        for text in [b"hidden 1024, vocabulary 248320, trained for 262,144 tokens", b"6 bits in groups of 64", b"norms absolute",
                     b"MTP head      20,452,864 parameters"]:
            suite.check(r.code == 0 and text in r.out, f"inspect says {text}", r)
        r = suite.run(*words)
        suite.check(r.code == 1 and "is not empty" in r.err, "a folder in use", r)
        r = suite.run("logits", folder, "--cache", "none", "--ids", write_ids(suite.path("ids"), [1, 200000, 7]), "--out", out)
        if suite.check(r.code == 0, "it runs", r):
            for name, t in st.read(out).items():
                values = t.values()
                sd = (sum(v * v for v in values) / len(values)) ** 0.5
                suite.check(1.7 < sd < 2.3, f"{name} of deviation 2", sd)
            os.remove(out)
    shutil.rmtree(folder, ignore_errors=True)


def another_family(suite):
    """Of the other families the smallest real shape."""
    folder, out = suite.path("other"), suite.path("logits.safetensors")
    r = suite.run("forge", "synth", "--like", "qwen2.5-0.5b", "--layers", 1, "--out", folder, memory=64 * MIB)
    if suite.check(r.code == 0, "another family's real shape, in little memory", r):
        r = suite.run("logits", folder, "--cache", "none", "--ids", write_ids(suite.path("ids"), [1, 150000]), "--out", out)
        if suite.check(r.code == 0, "it runs", r):
            values = st.read(out)["logits"].values()
            sd = (sum(v * v for v in values) / len(values)) ** 0.5
            suite.check(1.7 < sd < 2.3, "logits of deviation 2", sd)
            os.remove(out)
    shutil.rmtree(folder, ignore_errors=True)


def gguf(suite):
    folder = suite.path("gguf")
    r = suite.run("forge", "synth", "--like", "qwen3.5-0.8b", "--layers", 1, "--gguf", "--out", folder)
    if suite.check(r.code == 0 and r.out.decode().startswith(folder + "/model.gguf: 2"), "a GGUF file", r):
        with open(os.path.join(folder, "model.gguf"), "rb") as f:
            suite.check(f.read(8) == b"GGUF\x03\x00\x00\x00" and os.listdir(folder) == ["model.gguf"], "one file, version 3")
    shutil.rmtree(folder, ignore_errors=True)


def ended_early(suite):
    """Ctrl-C leaves nothing; a kill leaves nothing that looks like a model."""
    for sig, words in [(signal.SIGINT, []), (signal.SIGTERM, ["--gguf"]), (signal.SIGKILL, [])]:
        folder = suite.fresh("stopped")
        process = suite.start(["forge", "synth", "--like", "qwen3.5-0.8b", "--out", folder, *words], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while not glob.glob(folder + "/*.tmp") and process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        process.send_signal(sig)
        err = process.communicate(timeout=60)[1].decode()
        if sig == signal.SIGKILL:
            suite.check(process.returncode == -sig and all(n.endswith(".tmp") for n in os.listdir(folder)), "killed: no names")
            r = suite.run("inspect", folder)
            suite.check(r.code == 1 and "not a model folder" in r.err, "killed: no model", r)
        else:
            suite.check(process.returncode == 1 and "interrupted" in err, f"signal {sig}", err)
            suite.check(not os.path.exists(folder), f"signal {sig}: nothing is left")
        shutil.rmtree(folder, ignore_errors=True)


def full_disk(suite):
    for words, name in [([], "model.safetensors"), (["--gguf"], "model.gguf")]:
        folder = suite.fresh("full")
        r = suite.run("forge", "synth", "--like", "qwen3.5-0.8b", "--out", folder, *words, file_size=20 * MIB)
        suite.check(r.code == 1 and name + ": cannot write" in r.err, "a full disk", r)
        suite.check(not os.path.exists(folder), "a full disk: nothing is left")


def main():
    suite = Suite()
    usage(suite)
    free = shutil.disk_usage(suite.temp).free
    if free < NEEDED:
        suite.skip("real shapes", f"{free // MIB} MiB free in {suite.temp}, {NEEDED // MIB} are needed")
    else:
        for check in [real_shape, another_family, gguf, ended_early, full_disk]:
            check(suite)
    return suite.finish()


sys.exit(main())

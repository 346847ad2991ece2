#!/usr/bin/env python3
"""Do weft and llama.cpp compute the same? Two checkpoints of the same random weights in 16 bits, one for each, and the logits of
both behind every one of a few tokens: how they correlate, and how far they are apart.

    agree.py [--models NAME:LAYERS,...] [--dir DIR] [--weft FILE] [--peer FILE] [--lib DIR]

A router that is torn between two experts may choose another one here than there, and the choice carries over to later tokens: of a
mixture, not every row has to be alike. run.py says what DIR and the programs are. Llama, the mixtures of Qwen and Qwen3.5 with more value than key heads are stored in
other pieces or orders there, so their random weights are not the same and they cannot be compared like this.
"""
import argparse
import array
import json
import os
import shutil
import struct
import subprocess
import sys

import run

MODELS = "qwen3.5-0.8b:4,qwen2.5-1.5b:3,qwen3-0.6b:3,gemma-3-270m:6,gemma-4-e2b:20,gemma-4-26b-a4b:6,nemotron-nano:6"
IDS = [1, 20000, 7, 31337, 1234, 99999, 42, 7]
MIXTURES = ("gemma-4-26b-a4b", "nemotron-nano")
ALIKE = 0.999  # correlation: both round activations, and each in its own way
ROWS = {True: 2, False: len(IDS)}  # that must be alike, of a mixture and of others


def floats(data):
    a = array.array("f")
    a.frombytes(data)
    return a


def weft_logits(path):
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:start])["logits"]
    begin, end = entry["data_offsets"]
    return floats(data[start + begin:start + end])


def correlation(x, y):
    n = len(x)
    mx, my = sum(x) / n, sum(y) / n
    xy = sum((a - mx) * (b - my) for a, b in zip(x, y))
    xx, yy = sum((a - mx) ** 2 for a in x), sum((b - my) ** 2 for b in y)
    return xy / (xx * yy) ** 0.5


def compare(o, name, layers):
    """A line for a model; False where the two differ."""
    folder, part = os.path.join(o.dir, "agree"), os.path.join(o.dir, "agree.part")
    ids, ours, theirs = (os.path.join(part, n) for n in ("ids", "weft.safetensors", "peer.f32"))
    for d in (folder, part):
        shutil.rmtree(d, ignore_errors=True)
    os.makedirs(part)
    forge = [o.weft, "forge", "synth", "--like", name, "--layers", layers, "--bits", "16", "--out", folder]
    try:
        with open(ids, "w", encoding="ascii") as f:
            f.write(" ".join(map(str, IDS)) + "\n")
        run.run(forge)
        run.run([o.weft, "logits", folder, "--cache", "none", "--ids", ids, "--out", ours])
        shutil.rmtree(folder)
        run.run(forge + ["--gguf"])
        run.run([o.peer, "--lib", o.lib, "--model", os.path.join(folder, "model.gguf"), "--ids", ",".join(map(str, IDS)), "--logits",
                 theirs])
        x = weft_logits(ours)
        with open(theirs, "rb") as f:
            y = floats(f.read())
    finally:
        for d in (folder, part):
            shutil.rmtree(d, ignore_errors=True)
    if len(x) != len(y):
        raise run.Failure(f"{name}: weft has {len(x)} logits, the peer {len(y)}")
    vocab = len(x) // len(IDS)
    rows = [(x[i:i + vocab], y[i:i + vocab]) for i in range(0, len(x), vocab)]
    alike = [correlation(a, b) for a, b in rows]
    best = sum(max(range(vocab), key=a.__getitem__) == max(range(vocab), key=b.__getitem__) for a, b in rows)
    apart = max(abs(a - b) for a, b in zip(x, y))
    same = sum(a >= ALIKE for a in alike)
    ok = same >= ROWS[name in MIXTURES]
    print(f"{name}, {layers} layers: {same} of {len(IDS)} rows alike, correlation {min(alike):.6f} to {max(alike):.6f}, {best} best "
          f"tokens the same, logits at most {apart:.3f} apart{'' if ok else ': NOT ALIKE'}", flush=True)
    return ok


def main():
    p = argparse.ArgumentParser(description="Compares the logits of weft and llama.cpp for the same random weights.")
    p.add_argument("--models", default=MODELS, help="names and numbers of layers (default %(default)s)")
    p.add_argument("--dir", default="build/bench-peer", help="where checkpoints are made for a while (default %(default)s)")
    p.add_argument("--weft", default="build/weft", help="default %(default)s")
    p.add_argument("--peer", default="build/bench/peer/peer", help="default %(default)s")
    p.add_argument("--lib", default="build/peer", help="where node-llama-cpp was installed (default %(default)s)")
    o = p.parse_args()
    o.lib = run.find_library(o.lib)
    return all([compare(o, *m.split(":")) for m in o.models.split(",")])


if __name__ == "__main__":
    try:
        sys.exit(0 if main() else 1)
    except (run.Failure, OSError) as e:
        sys.exit(f"agree: {e}")

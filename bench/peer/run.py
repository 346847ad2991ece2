#!/usr/bin/env python3
"""weft beside llama.cpp, as node-llama-cpp ships it, on models of the same shapes: `make bench-peer`.

Two checkpoints of random weights are made per model, one for each engine. A round measures both, one right after the other, and
the order changes from round to round; a ratio is the median of the rounds' own ratios: what is compared was measured side by side.
llama.cpp runs with and without flash attention, and the better of the two counts, cell by cell. Its numbers need a quiet
machine: its threads wait for each other by spinning, which costs it much as soon as another process takes a processor.

Only the standard library is used.
"""
import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time

# What is measured: (kind, tokens, depth).
CELLS = [("prefill", 512, 0), ("prefill", 512, 4096), ("prefill", 512, 16384), ("decode", 1, 0), ("decode", 1, 4096),
         ("decode", 1, 16384)]
QUICK_CELLS = [("prefill", 512, 0), ("decode", 1, 0)]
ROWS = [2, 4, 8]  # rows of a verify pass, at depth 0
NOISE = 0.1  # processors that others may keep busy

# name: options of `weft forge synth`, GB of both checkpoints, and what weft must reach, times the peer
MODELS = {
    "2b-4": {
        "forge": ["--like", "qwen3.5-2b", "--bits", "4"],
        "gb": 2.5,
        "bars": {("prefill", 0): 4, ("prefill", 16384): 4, ("decode", 0): 1.35, ("decode", 16384): 1.5},
    },
    "2b-8": {
        "forge": ["--like", "qwen3.5-2b", "--bits", "8"],
        "gb": 4.1,
        "bars": {("prefill", 0): 4, ("decode", 0): 1.15},
    },
    "0.8b-4": {
        "forge": ["--like", "qwen3.5-0.8b", "--bits", "4"],
        "gb": 1.0,
        "bars": {("prefill", 0): 3, ("decode", 0): 1.6},
    },
    "qwen25-4": {
        "forge": ["--like", "qwen2.5-1.5b", "--bits", "4"],
        "gb": 1.9,
        "bars": {("prefill", 0): 2, ("decode", 0): 1.3},
    },
    "gemma4e2b-4": {
        "forge": ["--like", "gemma-4-e2b", "--bits", "4"],
        "gb": 5.4,
        "bars": {("prefill", 0): 2, ("decode", 0): 1.3},
    },
    "nemotron-4": {  # 13 of 52 layers
        "forge": ["--like", "nemotron-nano", "--layers", "13", "--bits", "4"],
        "gb": 9.5,
        "bars": {("prefill", 0): 2, ("decode", 0): 1.3},
    },
    "35b-a3b-4": {  # 8 of 40 layers
        "forge": ["--like", "qwen3.5-35b-a3b", "--layers", "8", "--bits", "4"],
        "gb": 9.5,
        "bars": {("prefill", 0): 2, ("decode", 0): 1.2},
    },
}


class Failure(Exception):
    """What the user is told, in one sentence."""


def progress(text):
    if sys.stderr.isatty():
        print("\r\033[K" + text, end="", file=sys.stderr, flush=True)


def run(command):
    """Standard output of a command; what it said and how it ended, when it failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as e:
        raise Failure(f"cannot start {command[0]}: {e.strerror}") from e
    if done.returncode:
        said = done.stderr.strip().splitlines()
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise Failure(f"{' '.join(command)}\nended with {how}: {said[-1] if said else 'it said nothing'}")
    return done.stdout


def run_json(command):
    text = run(command)
    try:
        return json.loads(text)
    except ValueError as e:
        raise Failure(f"{' '.join(command)}\nprinted no JSON: {e}") from e


# ---- how busy the machine is ----


def busy_seconds():
    """Processor time that anything used since the start, user and system; None where it cannot be read."""
    try:
        with open("/proc/stat", encoding="ascii") as f:
            v = [int(x) for x in f.readline().split()[1:]]
        return (sum(v[:3]) + sum(v[5:8])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class Others:
    """Processors that others kept busy during a with block."""

    def __enter__(self):
        self.start = self.now()
        return self

    def now(self):
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), busy_seconds(), sum(u.ru_utime + u.ru_stime for u in own)

    def __exit__(self, *unused):
        (t0, all0, own0), (t1, all1, own1) = self.start, self.now()
        self.processors = max(0.0, (all1 - all0) - (own1 - own0)) / (t1 - t0) if all0 is not None else None


# ---- the two engines ----


def find_library(root):
    for folder, _, files in sorted(os.walk(root)):
        if any(f.startswith("libllama.") and f.endswith((".so", ".dylib")) for f in files):
            return folder
    raise Failure(f"no libllama under {root}: run bench/peer/install.sh {root}, which fetches node-llama-cpp's libraries")


def make_checkpoint(o, name, gguf):
    """The path of a checkpoint, made if it is not there yet."""
    folder = os.path.join(o.dir, name + ("-gguf" if gguf else ""))
    path = os.path.join(folder, "model.gguf") if gguf else folder
    if os.path.exists(os.path.join(folder, "model.gguf" if gguf else "config.json")):
        return path
    free = shutil.disk_usage(o.dir).free / 1e9
    if free < MODELS[name]["gb"] + 1:
        raise Failure(f"{o.dir} has {free:.1f} GB free, the checkpoints of {name} take {MODELS[name]['gb']}; see --dir")
    progress(f"making {folder}")
    part = folder + ".part"
    shutil.rmtree(part, ignore_errors=True)
    run([o.weft, "forge", "synth", *MODELS[name]["forge"], *(["--gguf"] if gguf else []), "--out", part])
    os.rename(part, folder)
    return path


def of_kind(cells, kind):
    return [(tokens, depth) for k, tokens, depth in cells if k == kind]


def run_weft(o, path, cells):
    """tokens a second by cell, T(rows) / T(1) by rows, and what the machine's memory gives."""
    depths = sorted({depth for _, _, depth in cells})
    lengths = sorted({tokens for tokens, _ in of_kind(cells, "prefill")})
    common = [o.weft, "bench", path, "--json", "-", "--rounds", "1", "--threads", str(o.threads), "--passes", str(o.passes)]
    lists = ["--tokens", ",".join(map(str, lengths)), "--depths", ",".join(map(str, depths))]
    out = run_json(common + ["--cells", "prefill,decode"] + lists)
    rates = {("prefill", x["tokens"], x["depth"]): x["tok_s"] for x in out["prefill"]}
    rates.update({("decode", 1, x["depth"]): x["tok_s"] for x in out["decode"]})
    costs = run_json(common + ["--cells", "verify", "--depths", "0"])["verify_cost"] if o.rows else []
    return {
        "rates": rates,
        "rows": {m: costs[m - 1] for m in o.rows},
        "about": {k: out[k] for k in ("version", "isa", "threads", "load_s")},
        "memory_gbps": out["memory_gbps"],
        "bandwidth_share": {x["depth"]: x["bandwidth_share"] for x in out["decode"]},
    }


def run_peer(o, path, cells):
    """The same with and without flash attention: {"on": .., "off": ..}."""
    command = [o.peer, "--lib", o.lib, "--model", path, "--threads", str(o.threads), "--decode-tokens", str(o.passes)]
    command += ["--prefill", ",".join(f"{t}@{d}" for t, d in of_kind(cells, "prefill"))]
    command += ["--decode", ",".join(str(d) for _, d in of_kind(cells, "decode"))]
    command += ["--rows", "0" if o.rows else "", "--row-counts", ",".join(map(str, [1] + o.rows))]
    out = run_json(command)
    result = {"about": {k: out[k] for k in ("version", "kernels", "system", "threads", "load_s", "peak_bytes")}}
    for r in out["runs"]:
        rates = {("prefill", x["tokens"], x["depth"]): x["tok_s"] for x in r["prefill"]}
        rates.update({("decode", 1, x["depth"]): x["tok_s"] for x in r["decode"]})
        ms = {x["rows"]: x["ms"] for x in r["rows"]}
        costs = {m: ms[m] / ms[1] for m in o.rows}
        result["on" if r["flash"] else "off"] = {"rates": rates, "rows": costs, "depth_by": r["depth_by"]}
    return result


# ---- a model ----


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "rounds": values}


def compare(name, cells, rounds):
    """Per cell both engines' rates, the ratio and the bar."""
    rows = []
    for cell in cells:
        kind, tokens, depth = cell
        weft = [w["rates"][cell] for w, _ in rounds]
        peer = {fa: [p[fa]["rates"][cell] for _, p in rounds] for fa in ("on", "off")}
        better = max(peer, key=lambda fa: statistics.median(peer[fa]))
        ratio = spread([w / p for w, p in zip(weft, peer[better])])
        bar = MODELS[name]["bars"].get((kind, depth))
        rows.append({
            "kind": kind, "tokens": tokens, "depth": depth, "weft": spread(weft), "peer_flash_on": spread(peer["on"]),
            "peer_flash_off": spread(peer["off"]), "counts": better, "ratio": ratio, "bar": bar,
            "met": None if bar is None else ratio["median"] >= bar,
        })
    return rows


def measure(o, name):
    cells = QUICK_CELLS if o.quick else CELLS
    folder, gguf = make_checkpoint(o, name, False), make_checkpoint(o, name, True)
    rounds, others = [], []
    for i in range(o.rounds):
        with Others() as busy:
            both = {}
            for engine in ("peer", "weft") if i % 2 == 0 else ("weft", "peer"):
                progress(f"{name}, round {i + 1} of {o.rounds}: {engine}")
                both[engine] = run_weft(o, folder, cells) if engine == "weft" else run_peer(o, gguf, cells)
        rounds.append((both["weft"], both["peer"]))
        others.append(busy.processors)
    progress("")
    last_weft, last_peer = rounds[-1]
    return {
        "model": name,
        "weft": last_weft["about"],
        "peer": last_peer["about"],
        "peer_depth_by": sorted({p[fa]["depth_by"] for _, p in rounds for fa in ("on", "off")}),
        "memory_gbps": spread([w["memory_gbps"] for w, _ in rounds]),
        "bandwidth_share": {d: statistics.median(w["bandwidth_share"][d] for w, _ in rounds) for d in last_weft["bandwidth_share"]},
        "cells": compare(name, cells, rounds),
        "rows": [{
            "rows": m, "weft": spread([w["rows"][m] for w, _ in rounds]),
            "peer_flash_on": spread([p["on"]["rows"][m] for _, p in rounds]),
            "peer_flash_off": spread([p["off"]["rows"][m] for _, p in rounds]),
        } for m in o.rows],
        "others_processors": others,
    }


# ---- the report ----


def cell_name(c):
    what = f"prefill {c['tokens']}" if c["kind"] == "prefill" else "decode"
    return what + (f" at {c['depth']}" if c["depth"] else "")


def busiest(m):
    return max((x for x in m["others_processors"] if x is not None), default=0)


def print_model(m):
    print(f"\n{m['model']}: memory {m['memory_gbps']['median']:.1f} GB/s; weft {m['weft']['version']}, {m['weft']['isa']}; "
          f"llama.cpp {m['peer']['version']}, {m['peer']['kernels']}, peak memory {m['peer']['peak_bytes'] / 1e9:.2f} GB; "
          f"{m['peer']['threads']} threads, {len(m['others_processors'])} rounds")
    print(f"  {'tokens/s':<20} {'weft':>8}   {'flash on':>8} {'off':>8}   {'ratio':>6}  {'(least .. most)':<18} {'bar':>5}")
    for c in m["cells"]:
        r = c["ratio"]
        between = f"({r['least']:.2f} .. {r['most']:.2f})"
        verdict = "" if c["bar"] is None else f"{c['bar']:5.2f} {'met' if c['met'] else 'missed'}"
        weft, on, off = (c[k]["median"] for k in ("weft", "peer_flash_on", "peer_flash_off"))
        print(f"  {cell_name(c):<20} {weft:8.1f}   {on:8.1f} {off:8.1f}   {r['median']:6.2f}  {between:<18} {verdict}".rstrip())
    if m["rows"]:
        print(f"  {'T(rows) / T(1)':<20} {'weft':>8}   {'flash on':>8} {'off':>8}")
    for r in m["rows"]:
        print(f"  {str(r['rows']) + ' rows':<20} {r['weft']['median']:8.2f}   {r['peer_flash_on']['median']:8.2f} "
              f"{r['peer_flash_off']['median']:8.2f}")
    print("  decode, share of the memory's speed: " +
          ", ".join(f"{100 * s:.0f} %" + (f" at {d}" if d else "") for d, s in m["bandwidth_share"].items()))
    if "prefill" in m["peer_depth_by"]:
        print("  the peer's depths were computed: its saved state has another form than expected")
    if busiest(m) > NOISE:
        print(f"  NOT QUIET: others kept up to {busiest(m):.2f} processors busy; the peer suffers more from that than weft does")


def parse():
    p = argparse.ArgumentParser(description="Measures weft beside llama.cpp on models of the same shapes.")
    p.add_argument("--models", default=",".join(MODELS), help="some of %(default)s")
    p.add_argument("--rounds", type=int, default=5, help="every number is the median of so many (default %(default)s)")
    p.add_argument("--threads", type=int, default=2, help="of both engines (default %(default)s)")
    p.add_argument("--quick", action="store_true", help="one round, nothing behind a context: a first impression")
    p.add_argument("--json", metavar="FILE", help="also write every number there")
    p.add_argument("--dir", default="build/bench-peer", help="where the checkpoints are kept (default %(default)s)")
    p.add_argument("--weft", default="build/weft", help="the weft command (default %(default)s)")
    p.add_argument("--peer", default="build/bench/peer/peer", help="the program made from peer.c (default %(default)s)")
    p.add_argument("--lib", default="build/peer", help="where node-llama-cpp was installed (default %(default)s)")
    o = p.parse_args()
    o.models = o.models.split(",")
    for name in o.models:
        if name not in MODELS:
            p.error(f"there is no model {name}; there are {', '.join(MODELS)}")
    if o.rounds < 1 or o.threads < 1:
        p.error("--rounds and --threads are at least 1")
    o.rounds = 1 if o.quick else o.rounds
    o.passes = 8 if o.quick else 16  # tokens of a decode measurement
    o.rows = [] if o.quick else ROWS
    return o


def main():
    o = parse()
    os.makedirs(o.dir, exist_ok=True)
    for program in (o.weft, o.peer):
        if not os.access(program, os.X_OK):
            raise Failure(f"there is no program {program}; `make bench-peer` builds it")
    o.lib = find_library(o.lib)
    result = {"machine": platform.platform(), "processors": os.cpu_count(), "threads": o.threads, "rounds": o.rounds, "models": []}
    for name in o.models:
        result["models"].append(measure(o, name))
        print_model(result["models"][-1])
        sys.stdout.flush()
        if o.json:  # after each model: an interrupt loses little
            with open(o.json, "w", encoding="utf-8") as f:
                json.dump(result, f, indent=1)
                f.write("\n")
    bars = [c["met"] for m in result["models"] for c in m["cells"] if c["met"] is not None]
    noisy = any(busiest(m) > NOISE for m in result["models"])
    print(f"\n{sum(bars)} of {len(bars)} bars met" + (", which says little: the machine was not quiet" if noisy else ""))


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError) as e:
        progress("")
        sys.exit(f"bench-peer: {e}")
    except KeyboardInterrupt:
        progress("")
        sys.exit(130)

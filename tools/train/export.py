"""Write a checkpoint as a Hugging Face folder: raw Qwen3.5 names and conventions, linears in MLX affine form.

    export.py CHECKPOINT.pt|random OUT_DIR
"""
import json, os, sys
import numpy as np
import torch
from model import Config, Model
from quant import DEFAULT_BITS, GROUP, bits_of, pack, quantise


def write_safetensors(path, tensors, metadata):
    """{name: (dtype string, numpy array or raw uint16 of bfloat16)} as one file, in the given order, data aligned to 64 bytes."""
    head, at = {"__metadata__": metadata}, 0
    for k, (dt, a) in tensors.items():
        head[k] = {"dtype": dt, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-(8 + len(h)) % 64)
    with open(path, "wb") as f:
        f.write(len(h).to_bytes(8, "little") + h)
        for _, a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())


def raw_bf16(t):
    return "BF16", t.detach().to(torch.bfloat16).cpu().contiguous().view(torch.int16).numpy()


def export(state, cfg, out):
    """state: float tensors by Hugging Face name. The largest alignments come first, so that every tensor stays aligned."""
    os.makedirs(out, exist_ok=True)
    words, halves, floats, special = {}, {}, {}, {}
    for k, w in state.items():
        bits = bits_of(k)
        if bits is None:
            if k.endswith(("A_log", "dt_bias")):
                floats[k] = ("F32", w.detach().float().cpu().numpy())
            else:
                halves[k] = raw_bf16(w)
            continue
        q, s, b = quantise(w, bits)
        base = k[:-len(".weight")]
        words[k] = ("U32", pack(q, bits))
        halves[base + ".scales"], halves[base + ".biases"] = raw_bf16(s), raw_bf16(b)
        if bits != DEFAULT_BITS:
            special[base] = {"group_size": GROUP, "bits": bits, "mode": "affine"}
    write_safetensors(os.path.join(out, "model.safetensors"), {**words, **floats, **halves}, {"format": "mlx"})
    c = dict(cfg.raw)
    c.update(bos_token_id=None, eos_token_id=16354, pad_token_id=16354)
    gen = os.path.join(out, "generation_config.json")
    if os.path.exists(gen):
        c["eos_token_id"] = json.load(open(gen))["eos_token_id"][1]
        c["pad_token_id"] = c["eos_token_id"]
    c["quantization"] = {"group_size": GROUP, "bits": DEFAULT_BITS, "mode": "affine", **special}
    json.dump(c, open(os.path.join(out, "config.json"), "w"), indent=1)
    return os.path.getsize(os.path.join(out, "model.safetensors"))


def load_quantised(folder):
    """(Config, {name: float32 tensor}) of an exported folder: the weights as the engine sees them."""
    from quant import dequantise, unpack
    cfg = Config(**{k: v for k, v in json.load(open(os.path.join(folder, "config.json"))).items() if not k.startswith("quant")})
    qc = json.load(open(os.path.join(folder, "config.json")))["quantization"]
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    raw = {}
    for k, d in head.items():
        if k == "__metadata__":
            continue
        a, b = (8 + n + o for o in d["data_offsets"])
        dt = {"U32": np.uint32, "F32": np.float32, "BF16": np.int16}[d["dtype"]]
        t = np.frombuffer(data[a:b], dt).reshape(d["shape"])
        raw[k] = t if d["dtype"] == "U32" else torch.from_numpy(t.copy()) if d["dtype"] == "F32" else torch.from_numpy(t.copy()).view(torch.bfloat16)
    out = {}
    for k, t in raw.items():
        if k.endswith((".scales", ".biases")):
            continue
        base = k[:-len(".weight")]
        if base + ".scales" in raw:
            bits = qc.get(base, qc)["bits"]
            out[k] = dequantise(torch.from_numpy(unpack(t, bits)), raw[base + ".scales"], raw[base + ".biases"])
        else:
            out[k] = t.float()
    return cfg, out


if __name__ == "__main__":
    src, out = sys.argv[1:3]
    if src == "random":
        torch.manual_seed(0)
        cfg = Config()
        state = Model(cfg).state_dict()
    else:
        d = torch.load(src, map_location="cpu")
        cfg, state = Config(**d["config"]), d["state"]
    print(export(state, cfg, out), "bytes")

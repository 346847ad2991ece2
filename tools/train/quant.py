"""MLX affine quantisation: w = scale * q + bias per group of columns, q unsigned, rows as little-endian bit streams."""
import numpy as np
import torch

GROUP = 64
DEFAULT_BITS = 4


def bits_of(name):
    """Bits of a weight matrix by parameter name, None if it stays as it is. More bits where they pay: the tied embedding is also the
    head of every token and of every draft; the MTP head decides the acceptance; the two small projections steer the recurrence."""
    if not name.endswith(".weight") or "norm" in name or "conv1d" in name:
        return None
    if "embed_tokens" in name or name.startswith("mtp."):
        return 6
    if "in_proj_a" in name or "in_proj_b" in name:
        return 8
    return DEFAULT_BITS


def quantise(w, bits, group=GROUP):
    """(q uint8 [.., K], scales bf16 [.., K/group], biases bf16). The grid of MLX, but q is rounded on the scales as stored."""
    W = w.detach().float().unflatten(-1, (-1, group))
    n = 2 ** bits - 1
    hi, lo = W.amax(-1, keepdim=True).clamp_min(0), W.amin(-1, keepdim=True)
    s = ((hi - lo) / n).clamp_min(1e-7)
    low_edge = lo.abs() > hi.abs()
    s = torch.where(low_edge, s, -s)
    edge = torch.where(low_edge, lo, hi)
    q0 = torch.round(edge / s)
    s = torch.where(q0 != 0, edge / torch.where(q0 != 0, q0, torch.ones_like(q0)), s).bfloat16().float()
    b = torch.where(q0 != 0, edge, torch.zeros_like(edge)).bfloat16().float()
    q = torch.round((W - b) / s).clamp_(0, n)
    return q.flatten(-2).to(torch.uint8), s.squeeze(-1).bfloat16(), b.squeeze(-1).bfloat16()


def dequantise(q, s, b, group=GROUP):
    return (q.float().unflatten(-1, (-1, group)) * s.float().unsqueeze(-1) + b.float().unsqueeze(-1)).flatten(-2)


def fake(w, bits, group=GROUP):
    return dequantise(*quantise(w, bits, group), group)


def pack(q, bits):
    """uint8 [rows, K] -> uint32 [rows, K*bits/32]"""
    q = q.cpu().numpy()
    stream = ((q[..., None] >> np.arange(bits, dtype=np.uint8)) & 1).reshape(q.shape[0], -1)
    return np.packbits(stream, axis=-1, bitorder="little").view("<u4")


def unpack(words, bits):
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return (stream.reshape(words.shape[0], -1, bits) << np.arange(bits, dtype=np.uint8)).sum(-1).astype(np.uint8)

"""The backward pass of the gated delta rule on Hopper.

Triton 3.4 to 3.7.0 miscompiles one kernel of flash-linear-attention's backward pass for some tile sizes there, and the library
refuses to run it. With heads of 128 the tiles are not among those reported wrong, so the kernel is allowed, but only after its
gradients were compared with the plain form; if they differ, the same step is done with batched matrix products.
"""
import torch


def dqkwg_plain(q, k, v, do, h, dh, w=None, g=None, dv=None, scale=None, chunk_size=64, **_):
    """Gradients inside chunks. g: cumulative log2 decay of the chunk; h, dh [B, chunks, H, K, V]."""
    B, T, H, K = k.shape
    n, C = T // chunk_size, chunk_size
    cut = lambda x: x.view(B, n, C, H, -1).transpose(2, 3)
    q, k, v, do, dv = map(cut, (q, k, v, do, dv))
    h, dh = (x.view(B, n, H, K, -1).to(q.dtype) for x in (h, dh))
    g = cut(g.unsqueeze(-1)).float()
    last = g[..., -1:, :]
    D = torch.exp2(g - g.transpose(-1, -2)).tril_()
    ds = ((do @ v.transpose(-1, -2)).float().mul_(D).mul_(scale)).tril_().to(q.dtype)
    dq = (do @ h.transpose(-1, -2)).float() * (torch.exp2(g) * scale)
    dk = (v @ dh.transpose(-1, -2)).float() * torch.exp2(last - g)
    dw = -(dv.to(q.dtype) @ h.transpose(-1, -2))
    dg_last = (h.float() * dh.float()).sum((-1, -2)) * torch.exp2(last[..., 0, 0]) + (dk * k.float()).sum((-1, -2))
    dq = dq + (ds @ k).float()
    dk = dk + (ds.transpose(-1, -2) @ q).float()
    dg = (dq * q.float()).sum(-1) - (dk * k.float()).sum(-1)
    dg[..., -1] += dg_last
    back = lambda x: x.transpose(2, 3).reshape(B, T, H, -1)
    return back(dq.to(q.dtype)), back(dk.to(q.dtype)), back(dw), back(dg.unsqueeze(-1)).squeeze(-1).contiguous()


def compare(rule, plain):
    """Largest relative difference of the output and of each gradient, on random input."""
    torch.manual_seed(0)
    B, T, H, D = 2, 512, 4, 128
    q, k, v = (torch.randn(B, T, H, D, device="cuda").bfloat16().requires_grad_() for _ in range(3))
    g = (-torch.rand(B, T, H, device="cuda") * 0.3).requires_grad_()
    beta = torch.rand(B, T, H, device="cuda").requires_grad_()
    do = torch.randn(B, T, H, D, device="cuda").bfloat16()
    ins = (q, k, v, g, beta)
    a, b = rule(*ins), plain(*ins)
    ga, gb = torch.autograd.grad(a, ins, do), torch.autograd.grad(b, ins, do)
    rel = lambda x, y: ((x.float() - y.float()).norm() / y.float().norm()).item()
    return [round(rel(x, y), 4) for x, y in zip((a,) + ga, (b,) + gb)]


def prepare(rule, plain, say=print):
    """Choose the backward pass; call once before training on CUDA."""
    import fla.ops.common.chunk_o as chunk_o
    import fla.ops.gated_delta_rule.chunk as chunk
    chunk_o.TRITON_ABOVE_3_7_1 = True
    diff = compare(rule, plain)
    say("gated delta rule, kernel against plain form: out, dq, dk, dv, dg, dbeta", diff)
    if max(diff) > 0.02:
        chunk.chunk_bwd_dqkwg = dqkwg_plain
        diff = compare(rule, plain)
        say("with the plain inner step:", diff)
        assert max(diff) < 0.02, "the backward pass of the recurrence is wrong on this machine"

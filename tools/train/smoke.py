"""First call on the training machine: do the fused kernels agree with the plain forms, and how fast is a step?

    smoke.py TOKENS_DIR [BATCHxROW ...]
"""
import sys, time
import torch
import model as M
from gdn_backward import prepare
from train import MAIN, Mixture, Optimizer, losses

torch.manual_seed(0)
dev = "cuda"


def rel(a, b):
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


def check_model(mix):
    cfg = M.Config()
    m = M.Model(cfg).to(dev)
    ids = mix.batch(2, MAIN)[:, :516]
    out = {}
    for fused in (False, True):
        M.HAVE_FLA = fused
        if fused:
            for p in m.parameters():
                if p.dim() >= 2:
                    p.data = p.data.bfloat16()
        total, ce, ces, hits = losses(m, ids, 512, 0.5, 4096, 1)
        total.backward()
        out[fused] = (ce.item(), [c.item() for c in ces], {k: p.grad.float().clone() for k, p in m.named_parameters()})
        for p in m.parameters():
            p.grad = None
    print("loss plain float32", out[False][:2], "fused bfloat16", out[True][:2])
    worst = sorted(((rel(out[True][2][k], g), k) for k, g in out[False][2].items()), reverse=True)[:6]
    print("gradients, worst relative difference", worst, flush=True)


def timing(mix_dir, B, T, steps=12):
    mix = Mixture(mix_dir, dev, T)
    cfg = M.Config()
    m = M.Model(cfg).to(dev)
    opt = Optimizer(m, 3e-3, 3e-3)
    for p in m.parameters():
        if p.dim() >= 2:
            p.data = p.data.bfloat16()
    opt.publish(False)

    def one(q=False):
        ids = mix.batch(B, MAIN)
        total, ce, ces, hits = losses(m, ids, T, 0.5, 16384)
        total.backward()
        opt.step(0.3, 0.9)
        opt.publish(q)
        return ce
    t = time.time()
    for _ in range(3):
        one()
    torch.cuda.synchronize()
    print("first steps", round(time.time() - t, 1), "s", flush=True)
    for q in (False, True):
        t = time.time()
        for _ in range(steps):
            ce = one(q)
        torch.cuda.synchronize()
        dt = (time.time() - t) / steps
        print(f"batch {B} x {T} qat {q}: {dt * 1e3:.0f} ms/step, {B * T / dt / 1e3:.0f}k tokens/s, mem {torch.cuda.max_memory_allocated() / 2**30:.0f} GiB, loss {ce.item():.3f}", flush=True)
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as prof:
        one(); torch.cuda.synchronize()
    rows = sorted((e for e in prof.key_averages() if e.self_device_time_total > 0), key=lambda e: -e.self_device_time_total)
    print("device ms", round(sum(e.self_device_time_total for e in rows) / 1e3, 1))
    for e in rows[:26]:
        print(f"  {e.self_device_time_total / 1e3:8.2f} ms {e.count:5d} {e.key[:110]}")
    sys.stdout.flush()


if __name__ == "__main__":
    print(torch.__version__, torch.cuda.get_device_name(), "fla", M.HAVE_FLA, flush=True)
    t = time.time()
    prepare(M.delta_rule, M.delta_rule_plain, lambda *a: print(*a, flush=True))
    mix = Mixture(sys.argv[1], dev, 2048)
    check_model(mix)
    M.HAVE_FLA = True
    print("checks took", round(time.time() - t, 1), "s", flush=True)
    for s in sys.argv[2:] or ["64x2048"]:
        timing(sys.argv[1], *map(int, s.split("x")))

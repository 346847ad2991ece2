"""Train the bundled model in a fixed time on one GPU.

    train.py --tokens DIR --out DIR --minutes 18          (H200: the recipe of the model card)
    train.py --tokens DIR --out DIR --minutes 1 --tiny    (CPU rehearsal of every part)

Everything is scheduled by the fraction of the time that has passed: learning rate (warm-up, cosine), mixture (more conversations
after 65 %), MTP targets (from tokens to the trunk's own distribution), quantisation-aware training (after 80 %: the forward
pass sees exactly the dequantised weights that export.py writes, gradients go straight through to the float32 masters).
Matrices are updated by Muon, the rest by AdamW.
"""
import argparse, json, math, os, time
import numpy as np
import torch
from data import KINDS, ROW, TAIL
from export import export
from gdn_backward import prepare
from model import HAVE_FLA, Config, Model, delta_rule, delta_rule_plain, head_loss
from quant import bits_of, fake

MAIN = dict(py=0.50, prose=0.22, c=0.09, js=0.05, rs=0.05, pairs=0.09)
ANNEAL = dict(py=0.34, prose=0.15, c=0.04, js=0.02, rs=0.02, pairs=0.43)
ANNEAL_AT, QAT_AT, WARM = 0.65, 0.80, 0.015
MTP_WEIGHT = [0.2, 0.1, 0.1]


class Mixture:
    """Rows of tokens, kept on the device. Each kind is walked in a fresh random order every epoch."""

    def __init__(self, folder, device, row, seed=1):
        self.rng, self.device, self.n = np.random.default_rng(seed), device, row + TAIL
        self.data, self.queue, self.epochs = {}, {}, {}
        for k in KINDS + ["pairs", "held-code", "held-prose"]:
            a = np.fromfile(os.path.join(folder, k + ".bin"), np.uint16)
            self.data[k] = torch.from_numpy(a.astype(np.int32) if device == "cpu" else a.view(np.int16)).to(device)
            self.queue[k], self.epochs[k] = [], 0
        self.row = row

    def starts(self, kind, n):
        q = self.queue[kind]
        if len(q) < n:
            size = len(self.data[kind])
            if kind == "pairs":
                new = np.arange(size // (ROW + TAIL)) * (ROW + TAIL)
            else:
                new = np.arange(self.rng.integers(self.row), size - self.n, self.row)
            q += self.rng.permutation(new).tolist()
            self.epochs[kind] += 1
        self.queue[kind] = q[n:]
        return q[:n]

    def rows(self, kind, starts):
        idx = torch.as_tensor(starts, device=self.device)[:, None] + torch.arange(self.n, device=self.device)
        return self.data[kind][idx].long() & 0xFFFF

    def batch(self, n, shares):
        want = np.array([shares[k] for k in shares]) * n
        take = np.floor(want).astype(int)
        p = want - take
        for i in self.rng.choice(len(p), n - take.sum(), replace=False, p=p / p.sum()) if n > take.sum() else []:
            take[i] += 1
        rows = [self.rows(k, self.starts(k, int(t))) for k, t in zip(shares, take) if t]
        x = torch.cat(rows)
        return x[torch.from_numpy(self.rng.permutation(n)).to(self.device)]


def orthogonalise(g, steps=5):
    """Newton-Schulz iteration towards the nearest (semi-)orthogonal matrix, batched."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    flip = x.shape[-2] > x.shape[-1]
    if flip:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = x @ x.mT
        x = a * x + (b * A + c * (A @ A)) @ x
    return (x.mT if flip else x).float()


class Optimizer:
    """float32 masters beside the (bfloat16) parameters of the model: Muon for matrices by shape, AdamW for the rest."""

    def __init__(self, model, lr_muon, lr_adam, wd=0.1):
        self.lr_muon, self.lr_adam, self.wd = lr_muon, lr_adam, wd
        self.named = dict(model.named_parameters())
        self.master = {k: p.detach().float().clone() for k, p in self.named.items()}
        groups = {}
        self.adam = []
        for k, p in self.named.items():
            if p.dim() == 2 and "embed" not in k and "in_proj_a" not in k and "in_proj_b" not in k:
                groups.setdefault(tuple(p.shape), []).append(k)
            else:
                self.adam.append(k)
        self.muon = list(groups.values())
        self.mom = [torch.zeros(len(ks), *self.master[ks[0]].shape, device=self.master[ks[0]].device) for ks in self.muon]
        self.m = [torch.zeros_like(self.master[k]) for k in self.adam]
        self.v = [torch.zeros_like(self.master[k]) for k in self.adam]
        self.t = 0

    @torch.no_grad()
    def step(self, factor, momentum):
        self.t += 1
        lr = self.lr_muon * factor
        for ks, mom in zip(self.muon, self.mom):
            g = torch.stack([self.named[k].grad for k in ks]).float()
            mom.lerp_(g, 1 - momentum)
            u = orthogonalise(g.lerp(mom, momentum))
            scale = 0.2 * max(u.shape[-2:]) ** 0.5
            for k, d in zip(ks, u):
                self.master[k].mul_(1 - lr * self.wd).add_(d, alpha=-lr * scale)
        lr = self.lr_adam * factor
        grads = [self.named[k].grad.float() for k in self.adam]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, (1.0 / norm.clamp_min(1.0)))
        torch._foreach_lerp_(self.m, grads, 0.1)
        torch._foreach_mul_(self.v, 0.95)
        torch._foreach_addcmul_(self.v, grads, grads, 0.05)
        c1, c2 = 1 - 0.9 ** self.t, 1 - 0.95 ** self.t
        den = torch._foreach_sqrt(torch._foreach_div(self.v, c2))
        torch._foreach_add_(den, 1e-9)
        ms = [self.master[k] for k in self.adam]
        torch._foreach_addcdiv_(ms, self.m, den, value=-lr / c1)
        self.master["model.embed_tokens.weight"].mul_(1 - lr * self.wd * 0.2)
        for p in self.named.values():
            p.grad = None
        return norm

    @torch.no_grad()
    def publish(self, quantised):
        """The parameters of the next forward pass: the masters, or what export would store of them."""
        done = set()
        if quantised:
            for ks in self.muon:
                for bits in {bits_of(k) for k in ks}:
                    sub = [k for k in ks if bits_of(k) == bits]
                    w = fake(torch.stack([self.master[k] for k in sub]), bits)
                    torch._foreach_copy_([self.named[k].data for k in sub], list(w))
                    done.update(sub)
            for k in self.adam:
                if bits_of(k):
                    self.named[k].data.copy_(fake(self.master[k], bits_of(k)))
                    done.add(k)
        rest = [k for k in self.named if k not in done]
        torch._foreach_copy_([self.named[k].data for k in rest], [self.master[k] for k in rest])


def losses(model, ids, T, alpha, chunk, mtp_rows=2):
    """(total, main CE, [CE of the drafts], [agreement of the drafts with the trunk])"""
    E = model.model.embed_tokens.weight
    h = model.hidden(ids[:, :T])
    main, ce, _ = head_loss(h, E, ids[:, 1:T + 1], chunk=chunk)
    total = main
    B = ids.shape[0]
    deep, flat = max(1, B // (2 * mtp_rows)), max(1, B // mtp_rows)
    ces, hits = [], []
    outs = model.mtp_chain(h[:deep], ids[:deep], 3)
    if flat > deep:
        more = model.mtp_chain(h[deep:flat], ids[deep:flat], 1)[0]
        outs[0] = torch.cat([outs[0], more])
    for d, m in enumerate(outs, 1):
        r = m.shape[0]
        l, c, hit = head_loss(m[:, :T - d], E, ids[:r, d + 1:T + 1], teacher=h[:r, d:T], a=alpha, chunk=chunk)
        total = total + MTP_WEIGHT[d - 1] * l
        ces.append(c); hits.append(hit)
    return total, ce, ces, hits


@torch.no_grad()
def heldout(model, mix, T, chunk, rows):
    out = []
    for kind in ("held-code", "held-prose"):
        n = min(rows, (len(mix.data[kind]) - mix.n) // T)
        ids = mix.rows(kind, [i * T for i in range(n)])
        _, ce, ces, hits = losses(model, ids, T, 0.5, chunk, 1)
        out.append(f"{kind} {ce.item():.4f} mtp " + "/".join(f"{c.item():.3f}" for c in ces) + " agree " + "/".join(f"{c.item():.3f}" for c in hits))
    return "; ".join(out)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tokens", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--minutes", type=float, required=True)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--row", type=int, default=2048)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--adam", type=float, default=3e-3)
    ap.add_argument("--save", type=float, default=4.0, help="minutes between checkpoints")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--steps", type=int, default=0, help="stop after so many steps (timing runs)")
    a = ap.parse_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    assert dev == "cpu" or HAVE_FLA, "flash-linear-attention is missing"
    torch.manual_seed(1)
    cfg = Config(**(dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, head_dim=64, linear_key_head_dim=32, linear_value_head_dim=32,
                         linear_num_key_heads=2, linear_num_value_heads=2, layer_types=["linear_attention"] * 3 + ["full_attention"],
                         rope_parameters=dict(rope_type="default", rope_theta=1e5, partial_rotary_factor=0.25, mrope_section=[3, 3, 2], mrope_interleaved=True)) if a.tiny else {}))
    os.makedirs(a.out, exist_ok=True)
    log = open(os.path.join(a.out, "log.txt"), "a")

    def say(*s):
        s = " ".join(map(str, s))
        print(s, flush=True)
        log.write(s + "\n"); log.flush()
    if dev == "cuda":
        prepare(delta_rule, delta_rule_plain, say)
    model = Model(cfg).to(dev)
    opt = Optimizer(model, a.lr, a.adam)
    if dev == "cuda":                                        # bfloat16 weights for the matrices, float32 for what is small
        for p in model.parameters():
            if p.dim() >= 2:
                p.data = p.data.bfloat16()
    mix = Mixture(a.tokens, dev, a.row)
    T, chunk = a.row, 16384 if dev == "cuda" else 1024
    say(json.dumps(vars(a)), {k: len(v) for k, v in mix.data.items()}, sum(p.numel() for p in model.parameters()), "parameters")

    def save(tag):
        state = {k: v.detach().cpu() for k, v in opt.master.items()}
        torch.save({"config": cfg.raw, "state": state}, os.path.join(a.out, "checkpoint.pt"))
        n = export(state, cfg, os.path.join(a.out, "export"))
        say("saved", tag, n, "bytes;", heldout(model, mix, T, chunk, 16 if dev == "cuda" else 2), "; epochs", mix.epochs)

    step, tokens, qat, t0, last, t_log, n_log = 0, 0, False, time.time(), time.time(), time.time(), 0
    budget = a.minutes * 60
    opt.publish(False)
    while True:
        if step == 3:                                        # kernels are compiled: the clock starts here
            say("first steps took", round(time.time() - t0, 1), "s")
            t0 = last = t_log = time.time()
            n_log = 0
        p = (time.time() - t0) / budget if step >= 3 else 0.0
        if p >= 1 or a.steps and step >= a.steps:
            break
        if p >= QAT_AT and not qat:
            qat = True
            say("step", step, "quantisation-aware from here")
            opt.publish(True)
        factor = min(1.0, max(p, step / 2000) / WARM) if p < WARM else 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (p - WARM) / (1 - WARM)))
        alpha = 0.5 if p < ANNEAL_AT else 0.9
        ids = mix.batch(a.batch, MAIN if p < ANNEAL_AT else ANNEAL)
        total, ce, ces, hits = losses(model, ids, T, alpha, chunk)
        total.backward()
        norm = opt.step(factor, 0.85 + 0.1 * min(1.0, step / 300))
        opt.publish(qat)
        step += 1
        tokens += a.batch * T
        n_log += a.batch * T
        if step % 25 == 0 or step < 4 or a.tiny and step % 5 == 0:
            dt = time.time() - t_log
            say(f"step {step} {100 * p:.1f}% t {time.time() - t0:.0f} lr {factor:.3f} loss {ce.item():.4f} mtp " + "/".join(f"{c.item():.3f}" for c in ces) +
                " agree " + "/".join(f"{c.item():.3f}" for c in hits) + f" gn {norm.item():.2f} tok {tokens / 1e6:.1f}M {n_log / dt / 1e3:.0f}k/s" +
                (f" mem {torch.cuda.max_memory_allocated() / 2**30:.0f}G" if dev == "cuda" else ""))
            t_log, n_log = time.time(), 0
        if time.time() - last > a.save * 60 and not a.steps:
            last = time.time()
            save(f"at {100 * p:.0f}%")
            t_log, n_log = time.time(), 0
    if not a.steps:
        opt.publish(True)
        save("final")
        say("done", step, "steps", tokens, "tokens", round(time.time() - t0), "s")


if __name__ == "__main__":
    main()

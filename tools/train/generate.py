"""Batched generation, one token per step, in plain torch: the recurrent form of the model. Also a small command line:

    generate.py FOLDER "prompt" [--chat] [--temperature 0.7] [--max 200]
"""
import argparse, os
import torch
import torch.nn.functional as F
from export import load_quantised
from model import Model, gated_norm, glu, norm


def load(folder, device="cpu"):
    cfg, state = load_quantised(folder)
    m = Model(cfg)
    m.load_state_dict(state)
    return m.to(device).eval()


class Decoder:
    """All sequences stand at the same position; a sequence whose prompt is longer is still being fed while others generate."""

    def __init__(self, model, batch, length):
        c, dev = model.cfg, model.model.embed_tokens.weight.device
        self.m, self.t = model, 0
        self.state = []
        for l in model.model.layers:
            if l.kind == "linear_attention":
                a = l.linear_attn
                self.state.append([torch.zeros(batch, 3, 2 * a.kd + a.vd, device=dev), torch.zeros(batch, a.hv, a.dk, a.dv, device=dev)])
            else:
                self.state.append([torch.zeros(batch, c.num_key_value_heads, length, c.head_dim, device=dev) for _ in range(2)])

    def gdn(self, a, x, st):
        B = x.shape[0]
        c = a.in_proj_qkv(x)
        win = torch.cat([st[0], c[:, None]], 1)
        st[0] = win[:, 1:]
        c = F.silu(torch.einsum("btc,ct->bc", win, a.conv1d.weight[:, 0]))
        q, k, v = c.split([a.kd, a.kd, a.vd], -1)
        q, k, v = q.view(B, a.hk, a.dk), k.view(B, a.hk, a.dk), v.view(B, a.hv, a.dv)
        q, k = (y.repeat_interleave(a.hv // a.hk, 1) for y in (q, k))
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * a.dk ** -0.5
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
        beta = torch.sigmoid(a.in_proj_b(x))[..., None]
        decay = torch.exp(-torch.exp(a.A_log) * F.softplus(a.in_proj_a(x) + a.dt_bias))[..., None, None]
        S = st[1] * decay
        d = beta * (v - torch.einsum("bhkv,bhk->bhv", S, k))
        S = S + k[..., None] * d[:, :, None]
        st[1] = S
        o = torch.einsum("bhkv,bhk->bhv", S, q)
        return a.out_proj(gated_norm(o, a.in_proj_z(x).view(B, a.hv, a.dv), a.norm.weight, a.eps).reshape(B, -1))

    def attention(self, a, x, st):
        B = x.shape[0]
        q, k, v, gate = a.qkv(x[:, None], self.m.rope(x.device), self.t)
        st[0][:, :, self.t], st[1][:, :, self.t] = k[:, 0], v[:, 0]
        n, rep = self.t + 1, a.nh // a.nkv
        K, V = (y[:, :, :n].repeat_interleave(rep, 1) for y in st)
        o = F.scaled_dot_product_attention(q.transpose(1, 2), K, V)
        return a.finish(o.transpose(1, 2), gate)[:, 0]

    @torch.no_grad()
    def step(self, ids):
        """logits [B, V] after one more token of every sequence"""
        m = self.m.model
        x = m.embed_tokens(ids)
        for l, st in zip(m.layers, self.state):
            y = norm(x, l.input_layernorm.weight, l.eps)
            x = x + (self.gdn(l.linear_attn, y, st) if l.kind == "linear_attention" else self.attention(l.self_attn, y, st))
            y = norm(x, l.post_attention_layernorm.weight, l.eps)
            x = x + l.mlp.down_proj(glu(l.mlp.gate_proj(y), l.mlp.up_proj(y)))
        self.t += 1
        return self.m.logits(norm(x, m.norm.weight, self.m.eps))


def pick(logits, temperature, top_p, real, gen):
    logits = logits[:, :real].float()
    if temperature == 0:
        return logits.argmax(-1)
    p = torch.softmax(logits / temperature, -1)
    s, i = p.sort(-1, descending=True)
    s[s.cumsum(-1) - s > top_p] = 0
    return i.gather(1, torch.multinomial(s.cpu(), 1, generator=gen).to(i.device))[:, 0]


def generate(model, prompts, max_new, temperature=0.0, top_p=1.0, stop=(), real=16369, seed=0):
    """Lists of new token ids, one per prompt (the stop token, if any, is left out)."""
    dev = model.model.embed_tokens.weight.device
    B, length = len(prompts), max(map(len, prompts)) + max_new
    dec, gen = Decoder(model, B, length), torch.Generator().manual_seed(seed)
    out, done = [[] for _ in prompts], [False] * B
    cur = [p[0] for p in prompts]
    for t in range(length - 1):
        nxt = pick(dec.step(torch.tensor(cur, device=dev)), temperature, top_p, real, gen).tolist()
        for b, p in enumerate(prompts):
            if t + 1 < len(p):
                cur[b] = p[t + 1]
                continue
            cur[b] = nxt[b]
            if not done[b]:
                if nxt[b] in stop or len(out[b]) >= max_new:
                    done[b] = True
                else:
                    out[b].append(nxt[b])
        if all(done):
            break
    return out


if __name__ == "__main__":
    from tokenizers import Tokenizer
    ap = argparse.ArgumentParser()
    ap.add_argument("folder"); ap.add_argument("prompt", nargs="+")
    ap.add_argument("--chat", action="store_true"); ap.add_argument("--temperature", type=float, default=0.0)
    ap.add_argument("--max", type=int, default=200)
    a = ap.parse_args()
    tok = Tokenizer.from_file(os.path.join(a.folder, "tokenizer.json"))
    texts = [f"<|im_start|>user\n{p}<|im_end|>\n<|im_start|>assistant\n" if a.chat else p for p in a.prompt]
    stop = [tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")]
    for p, o in zip(a.prompt, generate(load(a.folder), [tok.encode(t).ids for t in texts], a.max, a.temperature, 0.95, stop)):
        print("==", p, "\n" + tok.decode(o, skip_special_tokens=False))

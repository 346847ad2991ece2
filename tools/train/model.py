"""The Qwen3.5 architecture in plain torch, with Hugging Face parameter names, fast enough to train in minutes.

Trunk: three Gated DeltaNet layers, then one gated full-attention layer, and so on; tied embedding; a multi-token-prediction
head (`mtp.*`) of one full-attention layer. On CUDA the recurrence, the short convolution and the norms come from
flash-linear-attention; elsewhere the plain torch forms below run. Both are checked against each other (smoke.py) and
against transformers (check_hf.py).
"""
import json, math
import torch
import torch.nn as nn
import torch.nn.functional as F
import tune  # noqa: F401  (before the kernels)

try:
    from fla.modules.activations import swiglu
    from fla.modules.causal_conv1d import causal_conv1d
    from fla.modules.norm.fused_norm_gate import rms_norm_gated
    from fla.modules.norm.layernorm import rms_norm
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    HAVE_FLA = torch.cuda.is_available()
except Exception:                                            # CPU: no triton
    HAVE_FLA = False

CONFIG = dict(
    architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text", vocab_size=16384, hidden_size=448, intermediate_size=1152,
    num_hidden_layers=12, num_attention_heads=4, num_key_value_heads=2, head_dim=128, hidden_act="silu",
    layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 3,
    full_attention_interval=4, linear_num_key_heads=4, linear_num_value_heads=4, linear_key_head_dim=128,
    linear_value_head_dim=128, linear_conv_kernel_dim=4, rms_norm_eps=1e-6, tie_word_embeddings=True,
    rope_parameters=dict(rope_type="default", rope_theta=100000.0, partial_rotary_factor=0.25, mrope_section=[6, 5, 5],
                         mrope_interleaved=True),
    partial_rotary_factor=0.25, max_position_embeddings=8192, attention_bias=False, attention_dropout=0.0, attn_output_gate=True,
    mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, initializer_range=0.02,
    use_cache=True, dtype="bfloat16")


class Config:
    def __init__(self, **kw):
        self.raw = {**CONFIG, **kw}
        self.__dict__.update(self.raw)

    @classmethod
    def load(cls, path):
        return cls(**json.load(open(path)))


# ---------------------------------------------------------------- the building blocks, fused or plain

def norm(x, w, eps):
    """RMS norm with a zero-centred weight."""
    if HAVE_FLA and x.is_cuda:
        return rms_norm(x, 1.0 + w.float(), None, eps=eps)
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps) * (1.0 + w.float())).to(x.dtype)


def add_norm(x, residual, w, eps):
    """(norm(x + residual), x + residual)"""
    if HAVE_FLA and x.is_cuda:
        return rms_norm(x, 1.0 + w.float(), None, residual=residual, eps=eps, prenorm=True)
    s = x + residual
    return norm(s, w, eps), s


def gated_norm(o, z, w, eps):
    """Per head: w * rms(o) * silu(z); w is not zero-centred."""
    if HAVE_FLA and o.is_cuda:
        return rms_norm_gated(o, z, w.float(), None, activation="swish", eps=eps)
    o32 = o.float()
    return (w.float() * (o32 * torch.rsqrt(o32.square().mean(-1, keepdim=True) + eps)) * F.silu(z.float())).to(o.dtype)


def short_conv(x, w):
    """Causal depthwise convolution of width 4 and SiLU; x [B, T, C], w [C, 1, 4]."""
    if HAVE_FLA and x.is_cuda:
        return causal_conv1d(x, w.squeeze(1), activation="silu")[0]
    y = F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), w.to(x.dtype), groups=x.shape[-1])
    return F.silu(y).transpose(1, 2)


def glu(g, u):
    return swiglu(g, u) if HAVE_FLA and g.is_cuda else F.silu(g) * u


def delta_rule(q, k, v, g, beta):
    if HAVE_FLA and q.is_cuda:
        return chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]
    return delta_rule_plain(q, k, v, g, beta)


def delta_rule_plain(q, k, v, g, beta, chunk=64):
    """Gated delta rule in chunks, float32 (spec: WY form). q, k [B,T,H,Dk]; v [B,T,H,Dv]; g (log decay), beta [B,T,H]."""
    dt = v.dtype
    B, T, H, Dk = q.shape
    q, k, v, g, beta = (x.float().transpose(1, 2) for x in (q, k, v, g, beta))
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * Dk ** -0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    pad = -T % chunk
    if pad:
        q, k, v = (F.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
        g, beta = F.pad(g, (0, pad)), F.pad(beta, (0, pad))
    n = (T + pad) // chunk
    q, k, v = (x.reshape(B, H, n, chunk, x.shape[-1]) for x in (q, k, v))
    G = g.reshape(B, H, n, chunk).cumsum(-1)
    beta = beta.reshape(B, H, n, chunk, 1)
    low = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    D = torch.where(low, G.unsqueeze(-1) - G.unsqueeze(-2), torch.tensor(float("-inf"), device=q.device)).exp()
    A = ((beta * k) @ k.transpose(-1, -2) * D).tril(-1)
    eye = torch.eye(chunk, device=q.device)
    rhs = torch.cat([beta * v, beta * G.exp().unsqueeze(-1) * k], -1)
    sol = torch.linalg.solve_triangular(eye + A, rhs, upper=False, unitriangular=True)
    U, W = sol.split([v.shape[-1], Dk], -1)
    qk = q @ k.transpose(-1, -2) * D
    eG = G.exp().unsqueeze(-1)
    last = G[..., -1:]
    S = torch.zeros(B, H, Dk, v.shape[-1], device=q.device)
    out = []
    for i in range(n):
        vn = U[:, :, i] - W[:, :, i] @ S
        out.append((eG[:, :, i] * q[:, :, i]) @ S + qk[:, :, i] @ vn)
        S = last[:, :, i].exp().unsqueeze(-1) * S + ((last[:, :, i] - G[:, :, i]).exp().unsqueeze(-1) * k[:, :, i]).transpose(-1, -2) @ vn
    o = torch.stack(out, 2).reshape(B, H, n * chunk, -1)[:, :, :T]
    return o.transpose(1, 2).to(dt)


class Norm(nn.Module):
    def __init__(self, n, value=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((n,), value))


class Rope:
    """cos and sin of every position; half-split pairs on the first rotary dimensions of a head."""

    def __init__(self, cfg, device, n):
        self.dim = int(cfg.head_dim * cfg.rope_parameters["partial_rotary_factor"])
        inv = cfg.rope_parameters["rope_theta"] ** (-torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        a = torch.arange(n, dtype=torch.float64)[:, None] * inv
        self.cos, self.sin = (f(a).float().to(device) for f in (torch.cos, torch.sin))

    def __call__(self, x, start=0):
        """x [B, T, heads, head_dim]"""
        T, h = x.shape[1], self.dim // 2
        c, s = (t[start:start + T, None, :].to(x.dtype) for t in (self.cos, self.sin))
        a, b, rest = x[..., :h], x[..., h:2 * h], x[..., 2 * h:]
        return torch.cat([a * c - b * s, b * c + a * s, rest], -1)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.nh, self.nkv, self.hd, self.eps = cfg.num_attention_heads, cfg.num_key_value_heads, cfg.head_dim, cfg.rms_norm_eps
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        self.q_proj = lin(cfg.hidden_size, self.nh * 2 * self.hd)
        self.k_proj = lin(cfg.hidden_size, self.nkv * self.hd)
        self.v_proj = lin(cfg.hidden_size, self.nkv * self.hd)
        self.o_proj = lin(self.nh * self.hd, cfg.hidden_size)
        self.q_norm, self.k_norm = Norm(self.hd), Norm(self.hd)

    def qkv(self, x, rope, start):
        B, T, _ = x.shape
        q, gate = self.q_proj(x).view(B, T, self.nh, 2 * self.hd).chunk(2, -1)
        q = norm(q.contiguous(), self.q_norm.weight, self.eps)
        k = norm(self.k_proj(x).view(B, T, self.nkv, self.hd), self.k_norm.weight, self.eps)
        v = self.v_proj(x).view(B, T, self.nkv, self.hd)
        return rope(q, start), rope(k, start), v, gate

    def finish(self, o, gate):
        B, T = gate.shape[:2]
        return self.o_proj((o * torch.sigmoid(gate)).reshape(B, T, -1))

    def forward(self, x, rope):
        q, k, v, gate = self.qkv(x, rope, 0)
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True)
        return self.finish(o.transpose(1, 2), gate), (k, v)

    def chained(self, x, rope, start, keys, mask):
        """Row t sees the true rows 0..t of keys[0] and row t alone of the later key sets (its own chain), itself included."""
        q, k, v, gate = self.qkv(x, rope, start)
        keys = keys + [(k, v)]
        rep = self.nh // self.nkv
        K = torch.cat([a for a, _ in keys], 1).repeat_interleave(rep, 2)
        V = torch.cat([b for _, b in keys], 1).repeat_interleave(rep, 2)
        o = F.scaled_dot_product_attention(q.transpose(1, 2), K.transpose(1, 2), V.transpose(1, 2), attn_mask=mask[:, :K.shape[1]])
        return self.finish(o.transpose(1, 2), gate), keys


class GatedDeltaNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        H, self.hk, self.hv = cfg.hidden_size, cfg.linear_num_key_heads, cfg.linear_num_value_heads
        self.dk, self.dv, self.eps = cfg.linear_key_head_dim, cfg.linear_value_head_dim, cfg.rms_norm_eps
        self.kd, self.vd = self.hk * self.dk, self.hv * self.dv
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        self.in_proj_qkv, self.in_proj_z = lin(H, 2 * self.kd + self.vd), lin(H, self.vd)
        self.in_proj_b, self.in_proj_a = lin(H, self.hv), lin(H, self.hv)
        self.conv1d = nn.Conv1d(2 * self.kd + self.vd, 2 * self.kd + self.vd, 4, groups=2 * self.kd + self.vd, bias=False)
        dt = torch.exp(torch.rand(self.hv) * math.log(100.0) + math.log(0.001))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))                # softplus(dt_bias) = dt
        self.A_log = nn.Parameter(torch.log(torch.empty(self.hv).uniform_(1, 16)))
        self.norm = Norm(self.dv, 1.0)
        self.out_proj = lin(self.vd, H)

    def forward(self, x):
        B, T, _ = x.shape
        c = short_conv(self.in_proj_qkv(x), self.conv1d.weight)
        q, k, v = c.split([self.kd, self.kd, self.vd], -1)
        q, k, v = q.reshape(B, T, self.hk, self.dk), k.reshape(B, T, self.hk, self.dk), v.reshape(B, T, self.hv, self.dv)
        if self.hv != self.hk:
            q, k = (t.repeat_interleave(self.hv // self.hk, 2) for t in (q, k))
        beta = torch.sigmoid(self.in_proj_b(x).float())
        g = -torch.exp(self.A_log.float()) * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        o = delta_rule(q, k, v, g, beta)
        z = self.in_proj_z(x).view(B, T, self.hv, self.dv)
        return self.out_proj(gated_norm(o, z, self.norm.weight, self.eps).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.gate_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.up_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.down_proj = nn.Linear(cfg.intermediate_size, cfg.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(glu(self.gate_proj(x), self.up_proj(x)))


class Layer(nn.Module):
    def __init__(self, cfg, kind):
        super().__init__()
        self.kind, self.eps = kind, cfg.rms_norm_eps
        if kind == "linear_attention":
            self.linear_attn = GatedDeltaNet(cfg)
        else:
            self.self_attn = Attention(cfg)
        self.mlp = MLP(cfg)
        self.input_layernorm, self.post_attention_layernorm = Norm(cfg.hidden_size), Norm(cfg.hidden_size)


class MtpHead(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        H = cfg.hidden_size
        self.fc = nn.Linear(2 * H, H, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = Norm(H), Norm(H), Norm(H)
        self.layers = nn.ModuleList([Layer(cfg, "full_attention")])


class Trunk(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.layers = nn.ModuleList([Layer(cfg, k) for k in cfg.layer_types])
        self.norm = Norm(cfg.hidden_size)


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.eps = cfg, cfg.rms_norm_eps
        self.model, self.mtp = Trunk(cfg), MtpHead(cfg)
        self._rope, self._masks = {}, {}
        for n, p in self.named_parameters():
            if p.dim() == 2:
                out = n.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * cfg.num_hidden_layers) if out else 1))

    def rope(self, device, n=4096):
        key = str(device)
        if key not in self._rope:
            self._rope[key] = Rope(self.cfg, device, n + 64)
        return self._rope[key]

    def hidden(self, ids):
        """Post-final-norm hidden rows [B, T, H]: what feeds the (tied) head, and the MTP head."""
        rope = self.rope(ids.device)
        res = self.model.embed_tokens(ids)
        x = None
        for l in self.model.layers:
            w = l.input_layernorm.weight
            if x is None:
                y = norm(res, w, self.eps)
            else:
                y, res = add_norm(x, res, w, self.eps)
            x = l.linear_attn(y) if l.kind == "linear_attention" else l.self_attn(y, rope)[0]
            y, res = add_norm(x, res, l.post_attention_layernorm.weight, self.eps)
            x = l.mlp(y)
        return add_norm(x, res, self.model.norm.weight, self.eps)[0]

    def mtp_chain(self, h, ids, depth):
        """Hidden rows of the drafts 1..depth. Row t of h belongs to ids[:, t]; row t of draft d is the head's output for the
        token t + 1 + d, from h_t and the tokens t+1 .. t+d (ids must be depth longer than h). As in decoding, a chained row attends the
        rows of the true hidden states up to t, and its own chain."""
        B, T, _ = h.shape
        m, l, rope, e = self.mtp, self.mtp.layers[0], self.rope(h.device), self.model.embed_tokens
        mask = None
        if depth > 1:
            key = (str(h.device), T, depth)
            if key not in self._masks:
                i = torch.arange(T, device=h.device)
                tri, eye = i[:, None] >= i[None], i[:, None] == i[None]
                self._masks[key] = torch.cat([tri] + [eye] * (depth - 1), 1)
            mask = self._masks[key]
        outs, keys = [], []
        for d in range(depth):
            x = m.fc(torch.cat([norm(e(ids[:, 1 + d:1 + d + T]), m.pre_fc_norm_embedding.weight, self.eps),
                                norm(h, m.pre_fc_norm_hidden.weight, self.eps)], -1))
            y = norm(x, l.input_layernorm.weight, self.eps)
            if d == 0:
                a, kv = l.self_attn(y, rope)
                keys = [kv]
            else:
                a, keys = l.self_attn.chained(y, rope, d, keys, mask)
            y, x = add_norm(a, x, l.post_attention_layernorm.weight, self.eps)
            h = add_norm(l.mlp(y), x, m.norm.weight, self.eps)[0]
            outs.append(h)
        return outs

    def logits(self, h):
        return F.linear(h, self.model.embed_tokens.weight)


# ---------------------------------------------------------------- head and loss in chunks of rows

_wide = True


def _mm32(a, b):
    """Product with a float32 result."""
    global _wide
    if a.is_cuda and a.dtype != torch.float32 and _wide:
        try:
            return torch.mm(a, b, out_dtype=torch.float32)
        except (RuntimeError, TypeError):
            _wide = False
    return (a @ b).float()


class HeadLoss(torch.autograd.Function):
    """sum_i w_i * CE(target_i, softmax(h_i E^T)) without keeping the logits.

    The target is the token itself, or a mixture with the distribution of a teacher row (the trunk's own next-token
    distribution, for the MTP head): (1-a) onehot + a softmax(t_i E^T). Returns (mixture loss, plain CE, top-1 agreement with
    the teacher or the token), the last two detached.
    """

    @staticmethod
    def forward(ctx, h, E, target, w, teacher, a, chunk):
        N = h.shape[0]
        dh, dE = torch.empty_like(h), torch.zeros(E.shape, dtype=torch.float32, device=E.device)
        loss = torch.zeros((), device=h.device)
        ce = torch.zeros((), device=h.device)
        hit = torch.zeros((), device=h.device)
        for s in range(0, N, chunk):
            hs, ts, ws = h[s:s + chunk], target[s:s + chunk], w[s:s + chunk]
            z = _mm32(hs, E.t())
            lse = torch.logsumexp(z, -1)
            c = (lse - z.gather(1, ts[:, None])[:, 0]) * ws
            ce += c.sum()
            if teacher is None:
                loss += c.sum()
                hit += ((z.argmax(-1) == ts) * ws).sum() if s == 0 else 0
                p = z.sub_(lse[:, None]).exp_()
                p.scatter_add_(1, ts[:, None], torch.full_like(ts[:, None], -1, dtype=p.dtype))
            else:
                q = _mm32(teacher[s:s + chunk], E.t())
                hit += ((z.argmax(-1) == q.argmax(-1)) * ws).sum() if s == 0 else 0
                q = torch.softmax(q, -1)
                loss += (1 - a) * c.sum() + a * ((lse - (q * z).sum(-1)) * ws).sum()
                p = z.sub_(lse[:, None]).exp_().sub_(q, alpha=a)
                p.scatter_add_(1, ts[:, None], torch.full_like(ts[:, None], a - 1, dtype=p.dtype))
            p = (p * ws[:, None]).to(h.dtype)
            dh[s:s + chunk] = p @ E
            dE += _mm32(p.t(), hs)
        ctx.save_for_backward(dh, dE)
        ctx.dt = E.dtype
        w0 = w[:chunk].sum()
        return loss, ce.detach(), (hit / w0).detach()

    @staticmethod
    def backward(ctx, g, _1, _2):
        dh, dE = ctx.saved_tensors
        return dh * g.to(dh.dtype), (dE * g).to(ctx.dt), None, None, None, None, None


def head_loss(h, E, target, w=None, teacher=None, a=0.0, chunk=16384):
    H = h.shape[-1]
    target = target.reshape(-1)
    w = torch.ones(target.shape, device=h.device) if w is None else w.reshape(-1).float()
    w = w / w.sum()
    return HeadLoss.apply(h.reshape(-1, H), E, target, w, None if teacher is None else teacher.detach().reshape(-1, H), a, chunk)


if __name__ == "__main__":
    m = Model(Config())
    n = {k: p.numel() for k, p in m.named_parameters()}
    print(sum(n.values()), "parameters;", "embedding", n["model.embed_tokens.weight"], "mtp", sum(v for k, v in n.items() if k.startswith("mtp")))

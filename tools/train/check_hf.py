"""The training model against transformers, on the dequantised weights of an exported folder.

    check_hf.py FOLDER
"""
import json, os, sys
import torch
import transformers.models.qwen3_5.modeling_qwen3_5 as mod
from transformers import AutoTokenizer, Qwen3_5ForCausalLM, Qwen3_5TextConfig
from export import load_quantised
from model import Model

torch.set_grad_enabled(False)
folder = sys.argv[1]
cfg, state = load_quantised(folder)
ours = Model(cfg)
ours.load_state_dict(state)
hf_cfg = Qwen3_5TextConfig(**{k: v for k, v in json.load(open(os.path.join(folder, "config.json"))).items() if k not in ("quantization", "architectures", "dtype")})
hf_cfg._attn_implementation = "eager"
theirs = Qwen3_5ForCausalLM(hf_cfg).eval()
missing = theirs.load_state_dict({k: v for k, v in state.items() if not k.startswith("mtp.")}, strict=False)
assert missing.missing_keys in ([], ["lm_head.weight"]) and not missing.unexpected_keys, missing
theirs.tie_weights()
tok = AutoTokenizer.from_pretrained(folder)
chat = tok.apply_chat_template([{"role": "user", "content": "Write a function that adds two numbers."}], tokenize=False, add_generation_prompt=True)
print(repr(chat))
text = chat + "```python\ndef add(a, b):\n    return a + b\n```<|im_end|>\n" * 8
ids = torch.tensor([tok(text)["input_ids"]])
T = ids.shape[1]
out = theirs(input_ids=ids, output_hidden_states=True, use_cache=False)
h = ours.hidden(ids)
lg = ours.logits(h)
print("tokens", T, "logits: max difference / max", ((lg - out.logits).abs().max() / out.logits.abs().max()).item())

H = hf_cfg.hidden_size
head = torch.nn.Module()
head.fc = torch.nn.Linear(2 * H, H, bias=False)
for n in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
    setattr(head, n, mod.Qwen3_5RMSNorm(H, eps=hf_cfg.rms_norm_eps))
head.layers = torch.nn.ModuleList([mod.Qwen3_5DecoderLayer(hf_cfg, hf_cfg.layer_types.index("full_attention"))])
head.load_state_dict({k[4:]: v for k, v in state.items() if k.startswith("mtp.")})
hid = out.hidden_states[-1]
x = head.fc(torch.cat([head.pre_fc_norm_embedding(theirs.model.embed_tokens(ids[:, 1:])), head.pre_fc_norm_hidden(hid[:, :-1])], -1))
pos = torch.arange(T - 1)[None]
pe = theirs.model.rotary_emb(x, pos[None].expand(3, 1, T - 1))
mask = torch.full((T - 1, T - 1), torch.finfo(torch.float32).min).triu(1)[None, None]
y = head.layers[0](x, position_embeddings=pe, attention_mask=mask, position_ids=pos)
y = y[0] if isinstance(y, tuple) else y
want = theirs.lm_head(head.norm(y))
got = ours.logits(ours.mtp_chain(h[:, :-1], ids, 1)[0])
print("mtp depth 1: max difference / max", ((got - want).abs().max() / want.abs().max()).item())

# depth 2 by hand, as an engine does it: true rows 0..t in the cache, then one chained row
m1 = ours.mtp_chain(h[:, :-2], torch.cat([ids, ids[:, :4]], 1), 3)
t = T // 2
attn = head.layers[0]
xs = x[:, :t + 1]
xc = head.fc(torch.cat([head.pre_fc_norm_embedding(theirs.model.embed_tokens(ids[:, t + 2:t + 3])), head.pre_fc_norm_hidden(head.norm(y)[:, t:t + 1])], -1))
xx = torch.cat([xs, xc], 1)
n = t + 2
yy = attn(xx, position_embeddings=theirs.model.rotary_emb(xx, torch.arange(n)[None, None].expand(3, 1, n)),
          attention_mask=torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None], position_ids=torch.arange(n)[None])
yy = yy[0] if isinstance(yy, tuple) else yy
want = head.norm(yy)[:, -1]
print("mtp depth 2, row", t, ": max difference / max", ((m1[1][:, t] - want).abs().max() / want.abs().max()).item())

"""Rewrites of a golden checkpoint that several families' variants need: other names, files and layouts of the same numbers."""
import array
import random
import re

import safetensors_io as st


# ---- names and files ----


def nest(m, key, outer, inner, architecture):
    """config.json of a multimodal checkpoint of type `outer`: the text model's, `inner`, under `key`; the outer numbers are not its
    own."""
    text = {name: value for name, value in m.config.items() if name not in ("architectures", "model_type")}
    m.config = {
        "architectures": [architecture],
        "model_type": outer,
        key: {**text, "model_type": inner},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27},
        "audio_config": None,
        "vocab_size": 7,
        "hidden_size": 9,
    }


def put_prefix(m, prefix):
    """model.X becomes prefix + X; the head and the drafter keep their names."""
    m.rename(lambda name: prefix + name[len("model.") :] if name.startswith("model.") else name)


def shards(m, n, seed):
    """m's tensors in n files in any order, and the index."""
    names = list(m.tensors)
    order = random.Random(seed)
    order.shuffle(names)
    files = {f"model-{i + 1:05}-of-{n:05}.safetensors": {name: m.tensors[name] for name in names[i::n]} for i in range(n)}
    where = [(name, file) for file, tensors in files.items() for name in tensors]
    order.shuffle(where)
    m.tensors, m.sidecars = {}, files
    m.json["model.safetensors.index.json"] = {"metadata": {"total_size": 1}, "weight_map": dict(where)}


# ---- experts ----


def split_experts(m, rename, fused="gate_up"):
    """Fused experts apart: rename(module, expert or None, part) names the tensors that take their place. Expert None: all,
    stacked, where that has a name."""
    tensors = {}
    for name, t in m.tensors.items():
        whole = re.fullmatch(rf"(.*)\.experts\.({fused}|down)_proj", name)
        if not whole:
            tensors[name] = t
            continue
        parts = {part: [] for part in ("down" if whole[2] == "down" else fused).split("_")}
        rows = t.shape[1] // len(parts)
        for x in range(t.shape[0]):
            flat = st.Tensor(t.dtype, t.shape[1:], t.part(x, 1).data)
            for i, part in enumerate(parts):
                parts[part].append(flat.part(i * rows, rows))
        for part, each in parts.items():
            if rename(whole[1], None, part):
                tensors[rename(whole[1], None, part)] = st.stack(each)
            else:
                tensors.update({rename(whole[1], x, part): one for x, one in enumerate(each)})
    m.tensors = tensors


def one_by_one(module, expert, part):
    return expert is not None and f"{module}.experts.{expert}.{part}_proj.weight"


def stacked(module, expert, part):
    return f"{module}.switch_mlp.{part}_proj.weight"


# ---- norms and convolutions ----


ZERO_CENTRED = re.compile(
    r"(input_layernorm|post_attention_layernorm|q_norm|k_norm|pre_fc_norm_\w+|^model\.norm|^mtp\.norm)\.weight$"
)


def fold_norms(m, chosen=lambda name: True):
    """The zero-centred norms of the Qwen hybrids as converters write them: 1 + w, rounded as an engine's addition rounds it."""

    def shifted(t):
        return st.tensor("F32", t.shape, array.array("f", [1.0 + w for w in t.values()]))

    m.map(lambda name, t: shifted(t) if ZERO_CENTRED.search(name) and chosen(name) else t)


def move_convolutions(m):
    """[channels, 1, taps] as MLX has them: [channels, taps, 1]."""
    m.map(lambda name, t: st.Tensor(t.dtype, [t.shape[0], t.shape[2], 1], t.data) if name.endswith("conv1d.weight") else t)

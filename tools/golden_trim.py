#!/usr/bin/env python3
"""golden_trim.py FULL_DIR OUT_DIR NAME...: the golden checkpoints of tests/data from full ones, with fewer rows.

FULL_DIR/NAME holds config.json, model.safetensors and expected.safetensors with
  input_ids [T] I32, logits [T, V] F32 and, where there is a multi-token-prediction head, mtp_logits_d1 [T - 1, V] F32,
as the reference implementation computes them; or, for a model with a drafter of its own, target/ and assistant/ with a config and
weights each, and beside them such an expected.safetensors with draft_tokens [4] I32 and draft_logits [3, V] F32, too.
OUT_DIR/NAME gets the same, but of the logits only 12 rows each, and their positions: `rows` and `mtp_rows`, I32. The rows lie at
both ends, around 64 and 128, and evenly in between.
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import safetensors_io as st

ROWS = 12


def choose(n):
    """ROWS of the n positions, ascending: given ones, then the middle of the widest gap again and again."""
    chosen = sorted({p for p in (0, 1, 2, 63, 64, 65, 127, 128, n - 2, n - 1) if 0 <= p < n})
    while len(chosen) < min(ROWS, n):
        gap, first = max((b - a, -a) for a, b in zip(chosen, chosen[1:]))
        chosen = sorted(chosen + [gap // 2 - first])
    return chosen


def trim(full, out):
    pair = os.path.isdir(os.path.join(full, "target"))
    for part in ("target", "assistant") if pair else ("",):
        os.makedirs(os.path.join(out, part), exist_ok=True)
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(os.path.join(full, part, name), os.path.join(out, part, name))
    expected = st.read(os.path.join(full, "expected.safetensors"))
    kept = {name: t for name, t in expected.items() if name not in ("logits", "mtp_logits_d1")}
    for name, rows_name in (("logits", "rows"), ("mtp_logits_d1", "mtp_rows")):
        if name not in expected:
            continue
        logits = expected[name]
        rows = choose(logits.shape[0])
        kept[rows_name] = st.tensor("I32", [len(rows)], rows)
        kept[name] = st.Tensor("F32", [len(rows), logits.shape[1]], b"".join(logits.part(r, 1).data for r in rows))
    st.write(os.path.join(out, "expected.safetensors"), kept)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    for name in sys.argv[3:]:
        trim(os.path.join(sys.argv[1], name), os.path.join(sys.argv[2], name))
        print(name)


main()

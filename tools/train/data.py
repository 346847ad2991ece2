"""Tokens for training: one uint16 stream per kind of text, and the instruction pairs as rows.

    data.py WORK TOKENIZER_JSON [KIND ...]   write WORK/tokens/*.bin (all kinds, and the pairs)
    data.py pack WORK OUT             the same, xz-compressed in parts, for the training machine
    data.py unpack DIR OUT            and back
"""
import json, lzma, os, random, sys
from multiprocessing import Pool
import numpy as np

KINDS = ["py", "c", "js", "rs", "prose"]
ROW = 2048                                                   # training context
TAIL = 4                                                     # tokens beyond it, for the targets of the MTP chain
PART = 9 << 20                                               # tokens per compressed part

_tok = None


def tokenizer(path):
    global _tok
    if _tok is None:
        from tokenizers import Tokenizer
        _tok = Tokenizer.from_file(path)
    return _tok


def chat_text(messages):
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def encode_docs(args):
    path, texts = args
    tok = tokenizer(path)
    end = tok.token_to_id("<|endoftext|>")
    out = []
    for e in tok.encode_batch(texts, add_special_tokens=False):
        out.append(np.array(e.ids + [end], dtype=np.uint16))
    return out


def batches(path, texts, n=200):
    b = []
    for t in texts:
        b.append(t)
        if len(b) == n:
            yield path, b
            b = []
    if b:
        yield path, b


def main(work, tok_path, kinds=KINDS + ["held-code", "held-prose"]):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.makedirs(os.path.join(work, "tokens"), exist_ok=True)
    with Pool(2) as pool:
        for kind in kinds:
            lines = open(os.path.join(work, "text", kind + ".jsonl")).readlines()
            random.Random(5).shuffle(lines)
            docs = []
            for d in pool.imap(encode_docs, batches(tok_path, (json.loads(l)["t"] for l in lines))):
                docs += d
            a = np.concatenate(docs)
            a.tofile(os.path.join(work, "tokens", kind + ".bin"))
            size = sum(len(json.loads(l)["t"].encode()) for l in lines)
            print(kind, len(a), "tokens", round(size / len(a), 3), "bytes/token", flush=True)
        texts = (chat_text(json.loads(l)["m"]) for l in open(os.path.join(work, "pairs.jsonl")))
        chats = []
        for d in pool.imap(encode_docs, batches(tok_path, texts)):
            chats += d
    end = tokenizer(tok_path).token_to_id("<|endoftext|>")
    n, rows, cur = ROW + TAIL, [], np.empty(0, np.uint16)
    for c in chats:                                          # every row begins with a conversation, as a prompt does
        if len(cur) + len(c) > n:
            rows.append(np.concatenate([cur, c])[:n])
            cur = np.empty(0, np.uint16)
            continue
        cur = np.concatenate([cur, c])
    rows = [r if len(r) == n else np.concatenate([r, np.full(n - len(r), end, np.uint16)]) for r in rows]
    np.stack(rows).tofile(os.path.join(work, "tokens", "pairs.bin"))
    print("pairs", len(rows), "rows of", n, "from", len(chats), "conversations")


def _squeeze(args):
    src, i, dst = args
    a = np.fromfile(src, np.uint16, PART, offset=i * PART * 2)
    with lzma.open(dst, "wb", filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 32 << 20, "lc": 3, "lp": 1, "pb": 1}]) as f:
        f.write(a.tobytes())
    return dst, os.path.getsize(dst)


def pack(work, out):
    os.makedirs(out, exist_ok=True)
    jobs = []
    for kind in KINDS + ["pairs", "held-code", "held-prose"]:
        src = os.path.join(work, "tokens", kind + ".bin")
        for i in range(-(-os.path.getsize(src) // (2 * PART))):
            jobs.append((src, i, os.path.join(out, f"{kind}.{i:02d}.xz")))
    with Pool(2) as pool:
        total = sum(s for _, s in pool.imap_unordered(_squeeze, jobs))
    print(len(jobs), "parts", total, "bytes")


def _unsqueeze(args):
    src, dst = args
    with lzma.open(src) as f, open(dst, "wb") as o:
        o.write(f.read())


def unpack(src, out):
    os.makedirs(out, exist_ok=True)
    names = sorted(n for n in os.listdir(src) if n.endswith(".xz"))
    with Pool() as pool:
        pool.map(_unsqueeze, [(os.path.join(src, n), os.path.join(out, n[:-3])) for n in names], chunksize=1)
    for kind in {n.split(".")[0] for n in names}:
        with open(os.path.join(out, kind + ".bin"), "wb") as o:
            for n in names:
                if n.split(".")[0] == kind:
                    o.write(open(os.path.join(out, n[:-3]), "rb").read())
                    os.remove(os.path.join(out, n[:-3]))


if __name__ == "__main__":
    if sys.argv[1] == "pack":
        pack(sys.argv[2], sys.argv[3])
    elif sys.argv[1] == "unpack":
        unpack(sys.argv[2], sys.argv[3])
    else:
        main(*sys.argv[1:3], *([sys.argv[3:]] if sys.argv[3:] else []))

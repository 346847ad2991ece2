"""Figures of the model card, from the exported (quantised) folder.

    evaluate.py FOLDER TOKENS_DIR [--json OUT] [--rows 16] [--corpus TOKENS_DIR] [--samples SAMPLES.json] [--parts ...]

TOKENS_DIR holds held-code.bin, held-prose.bin and stubs.json (evaluate.py stubs WORK TOKENIZER OUT makes the latter from the
held-out text). --corpus names the training tokens; without it the overlap with the corpus is left out.
"""
import argparse, ast, json, math, os, re, subprocess, sys, time
import numpy as np
import torch
from tokenizers import Tokenizer
from generate import generate, load

torch.set_grad_enabled(False)
REAL = 16369


# ---------------------------------------------------------------- bits per byte, acceptance

def byte_count(tok, ids):
    alphabet = byte_alphabet()
    n = 0
    for i, c in zip(*np.unique(ids, return_counts=True)):
        t = tok.id_to_token(int(i))
        n += 0 if t in ("<|endoftext|>",) else int(c) * sum(1 for ch in t if ch in alphabet)
    return n


def byte_alphabet():
    from tokenizers import pre_tokenizers
    return set(pre_tokenizers.ByteLevel.alphabet())


def shaped(z, T):
    return torch.softmax(z[..., :REAL].float() / T, -1)


def heldout(model, tok, path, rows, row=2048):
    """Rows of 2048 tokens at even distances, each from an empty state; the drafts on every second row."""
    ids = np.fromfile(path, np.uint16).astype(np.int64)
    dev = model.model.embed_tokens.weight.device
    n = min(rows, (len(ids) - 8) // row)
    starts = np.linspace(0, len(ids) - row - 8, n).astype(int)
    used = np.concatenate([ids[s + 1:s + row + 1] for s in starts])
    nll = 0.0
    ok = np.zeros((3, 2)); shared = np.zeros((3, 2)); raw = np.zeros((3, 2))
    top1 = [0, 0]
    for r, s in enumerate(starts):
        x = torch.from_numpy(ids[s:s + row + 5])[None].to(dev)
        h = model.hidden(x[:, :row])
        z = model.logits(h)[0, :, :REAL].float()
        y = x[0, 1:row + 1]
        nll += torch.nn.functional.cross_entropy(z, y, reduction="sum").item()
        best = z.argmax(-1)
        top1[0] += (best == y).sum().item(); top1[1] += row
        if r % 2:
            continue
        outs = model.mtp_chain(h, x, 3)
        alive = torch.ones(row, dtype=torch.bool, device=dev)
        for d, m in enumerate(outs, 1):
            k = row - d
            zd = model.logits(m)[0, :k, :REAL].float()
            target, draft = best[d:], zd.argmax(-1)
            a = alive[:k]
            hit = draft == target
            ok[d - 1] += [(hit & a).sum().item(), a.sum().item()]
            raw[d - 1] += [hit.sum().item(), k]
            # shared support at temperature 0.6: sum of min(p, q) is the chance that an ideal coupling accepts
            sm = torch.minimum(shaped(z[d:], 0.6), shaped(zd, 0.6)).sum(-1)
            shared[d - 1] += [sm.sum().item(), k]
            alive = (alive[:k] & hit & (target == x[0, d + 1:d + 1 + k]))
            alive = torch.cat([alive, torch.zeros(row - len(alive), dtype=torch.bool, device=dev)])
    div = lambda a: [round(float(p / max(q, 1)), 4) for p, q in a]
    return dict(tokens=n * row, bits_per_byte=round(nll / math.log(2) / byte_count(tok, used), 4), loss=round(nll / (n * row), 4),
                bytes_per_token=round(byte_count(tok, used) / (n * row), 3), top1=round(top1[0] / top1[1], 4),
                mtp_greedy_given_previous_accepted=div(ok), mtp_greedy_on_text=div(raw), mtp_expected_t06=div(shared))


def acceptance(model, prompts, outs):
    """Drafts along the model's own (greedy) text: what a speculating engine meets. Chance of draft d, given that 1..d-1 were accepted."""
    dev = model.model.embed_tokens.weight.device
    ok = np.zeros((3, 2))
    for p, o in zip(prompts, outs):
        if len(o) < 8:
            continue
        x = torch.tensor([p + o + [0] * 5], device=dev)
        T = len(p) + len(o)
        ms = model.mtp_chain(model.hidden(x[:, :T]), x, 3)
        alive = np.ones(T, bool)
        for d, m in enumerate(ms, 1):
            draft = model.logits(m)[0, :, :REAL].argmax(-1).cpu().numpy()
            rows = np.arange(len(p) - 1, T - 1 - d)
            hit = draft[rows] == x[0].cpu().numpy()[rows + 1 + d]
            a = alive[rows]
            ok[d - 1] += [(hit & a).sum(), a.sum()]
            nxt = np.zeros(T, bool); nxt[rows] = hit & a; alive = nxt
    return [round(float(a / max(b, 1)), 4) for a, b in ok]


# ---------------------------------------------------------------- samples

def make_stubs(work, tok_path, out, n=100):
    """Function stubs (signature and docstring, with what the file imports before them) of the held-out packages."""
    import random
    stubs = []
    for line in open(os.path.join(work, "text", "held-code.jsonl")):
        d = json.loads(line)
        try:
            tree = ast.parse(d["t"])
        except SyntaxError:
            continue
        lines = d["t"].split("\n")
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node) or len(node.body) < 2 or len(ast.get_docstring(node)) > 400:
                continue
            indent = node.col_offset
            stub = lines[node.lineno - 1:node.body[0].end_lineno]
            stub = "\n".join(l[indent:] if l[:indent].strip() == "" else l for l in stub)
            try:
                ast.parse(stub)
                stubs.append(stub + "\n")
            except SyntaxError:
                pass
    random.Random(11).shuffle(stubs)
    json.dump(stubs[:n], open(out, "w"))
    print(len(stubs), "stubs")


def end_of_function(stub, text):
    """The stub and the completion up to the end of the function's body."""
    lines = (stub + text).split("\n")
    k = stub.count("\n")
    out = lines[:k]
    for l in lines[k:]:
        if l.strip() and not l[0].isspace():
            break
        out.append(l)
    return "\n".join(out).rstrip() + "\n"


def parses(code):
    try:
        ast.parse(code)
        return True
    except (SyntaxError, ValueError):
        return False


def distinct(samples, n=4):
    grams = [tuple(s[i:i + n]) for s in samples for i in range(len(s) - n + 1)]
    return len(set(grams)) / max(1, len(grams))


def overlap(samples, tokens_dir, tok, n=16):
    """Longest run of sample tokens that occurs in the training tokens: windows of n tokens are found by their rolling hash and
    extended. Runs that mention a licence are left out. Returns (length, text, number of distinct runs of 30 or more)."""
    B = np.uint64(1000003)

    def hashes(a):
        h = np.zeros(max(0, len(a) - n + 1), np.uint64)      # sum of a[i+j] * B^(n-1-j), modulo 2^64
        for j in range(n):
            h *= B
            h += a[j:j + len(h)]
        return h

    arrays = [np.array(s, np.uint16) for s in samples]
    where = {}
    for i, a in enumerate(arrays):
        for j, h in enumerate(hashes(a).tolist()):
            where.setdefault(h, []).append((i, j))
    want = np.array(sorted(where), np.uint64)
    best, text, long = 0, "", set()
    for kind in ("py", "c", "js", "rs", "prose", "pairs"):
        s = np.fromfile(os.path.join(tokens_dir, kind + ".bin"), np.uint16)
        for at in range(0, len(s), 1 << 23):
            h = hashes(s[at:at + (1 << 23) + n - 1])
            k = np.searchsorted(want, h)
            hits = np.nonzero(want[np.minimum(k, len(want) - 1)] == h)[0]
            for p in hits.tolist():
                for i, j in where[int(h[p])]:
                    a, q = arrays[i], at + p
                    if j and q and a[j - 1] == s[q - 1]:
                        continue                              # counted from its first token
                    m = min(len(a) - j, len(s) - q)
                    d = np.nonzero(a[j:j + m] != s[q:q + m])[0]
                    m = int(d[0]) if len(d) else m
                    if m < n or m <= best and m < 30:
                        continue
                    t = tok.decode(a[j:j + m].tolist())
                    if re.search(r"licen[sc]|copyright|warrant", t, re.I):
                        continue
                    if m >= 30:
                        long.add(t)
                    if m > best:
                        best, text = m, t
    return best, text, len(long)


CHAT = [("Write a Python function that returns the sum of a list of numbers.", "f([1,2,3])==6 and f([])==0"),
        ("write a function to compute the factorial of a number", "f(5)==120 and f(1)==1"),
        ("Please write a Python function that checks if a number is prime.", "f(7) and not f(9) and not f(1)"),
        ("Write a Python function that reverses a string.", "f('abc')=='cba'"),
        ("Can you write a function that counts the vowels in a string?", "f('hello world')==3"),
        ("Write a function that returns the n-th Fibonacci number.", "f(10)==55"),
        ("I need a function that tells me whether a word is a palindrome.", "f('level') and not f('abc')"),
        ("Write a Python function that finds the greatest common divisor of two integers.", "f(12,18)==6"),
        ("Write a function `largest(numbers)` that returns the biggest number in a list.", "f([3,9,2])==9"),
        ("Write a function that removes duplicates from a list and keeps the order.", "list(f([1,2,1,3,2]))==[1,2,3]"),
        ("How do I sort a list with bubble sort in Python?", "f([3,1,2])==[1,2,3]"),
        ("Write a Python function that converts Celsius to Fahrenheit.", "f(100)==212"),
        ("Write a function that returns True if a year is a leap year.", "f(2024) and not f(1900)"),
        ("Write a Python function which counts the words in a sentence.", "f('a b c')==3"),
        ("Write a binary search function.", "f([1,3,5,7],5)==2"),
        ("Give me a Python function that flattens a nested list.", "f([[1,2],[3]])==[1,2,3]"),
        ("Write a function that computes the average of a list.", "f([1,2,3])==2"),
        ("Write a function that returns all even numbers of a list.", "f([1,2,3,4])==[2,4]"),
        ("Write a function that merges two dictionaries.", "f({'a':1},{'b':2})=={'a':1,'b':2}"),
        ("Write a function that checks whether two words are anagrams.", "f('listen','silent') and not f('a','b')"),
        ("Write a function add(a, b) that adds two numbers.", "f(2,3)==5"),
        ("Write a Python function that returns the square of a number.", "f(4)==16"),
        ("Write a function that computes the sum of the digits of an integer.", "f(1234)==10"),
        ("Write a Python function to find the second largest number in a list.", "f([5,1,4])==4"),
        ("Write a function that capitalizes every word of a string.", "f('hello world')=='Hello World'"),
        ("Write a Python function that computes the product of all numbers in a list.", "f([2,3,4])==24"),
        ("Write a function that swaps the keys and values of a dictionary.", "f({'a':1})=={1:'a'}"),
        ("Write a function that returns the length of the longest word in a sentence.", "f('a bbb cc')==3"),
        ("Write a function that multiplies every number in a list by two.", "f([1,2])==[2,4]"),
        ("Write a Python function that returns the last three elements of a list.", "f([1,2,3,4])==[2,3,4]")]


def chat_check(replies):
    """Runs the function of each reply in a process of its own against one assertion."""
    good, rows = 0, []
    for (q, test), r in zip(CHAT, replies):
        m = re.search(r"```python\n(.*?)```", r, re.S)
        code = m.group(1) if m else r
        name = re.search(r"^def (\w+)", code, re.M)
        ok = False
        if name:
            prog = code + f"\nf = {name.group(1)}\nassert {test}\n"
            try:
                ok = subprocess.run([sys.executable, "-I", "-c", prog], capture_output=True, timeout=10).returncode == 0
            except subprocess.TimeoutExpired:
                pass
        good += ok
        rows.append((q, r, ok))
    return good, rows


def main():
    if sys.argv[1] == "stubs":
        return make_stubs(*sys.argv[2:5])
    ap = argparse.ArgumentParser()
    ap.add_argument("folder"); ap.add_argument("tokens")
    ap.add_argument("--json"); ap.add_argument("--rows", type=int, default=16); ap.add_argument("--corpus"); ap.add_argument("--samples")
    ap.add_argument("--new", type=int, default=200); ap.add_argument("--stubs", type=int, default=100)
    ap.add_argument("--parts", default="held-code,held-prose,stubs,chat,overlap", help="what to measure; an existing --json is added to")
    a = ap.parse_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    tok = Tokenizer.from_file(os.path.join(a.folder, "tokenizer.json"))
    m = load(a.folder, dev)
    stop = [tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")]
    parts = a.parts.split(",")
    t, samples = time.time(), {}

    def done(**kw):
        print(json.dumps(kw), round(time.time() - t), "s", flush=True)
        for path, new in ((a.json, kw), (a.samples, samples)):
            if path:
                old = json.load(open(path)) if os.path.exists(path) else {}
                json.dump({**old, **new}, open(path, "w"), indent=1)
    for kind in ("held-code", "held-prose"):
        if kind in parts:
            done(**{kind: heldout(m, tok, os.path.join(a.tokens, kind + ".bin"), a.rows)})
    stubs = json.load(open(os.path.join(a.tokens, "stubs.json")))[:a.stubs]
    prompts = [tok.encode(s, add_special_tokens=False).ids for s in stubs]
    if "stubs" in parts:
        sampled = generate(m, prompts, a.new, 0.8, 0.95, stop)
        codes = [end_of_function(s, tok.decode(o)) for s, o in zip(stubs, sampled)]
        more = [len(c) > len(s.rstrip()) + 1 for c, s in zip(codes, stubs)]
        samples.update(stubs=codes, sampled=sampled)
        done(stubs=dict(n=len(stubs), temperature=0.8, top_p=0.95, parse=sum(parses(c) and k for c, k in zip(codes, more)),
                        distinct_4grams=round(distinct(sampled), 4)))
        greedy = generate(m, prompts[:40], a.new, 0.0, 1.0, stop)
        samples.update(greedy=[tok.decode(g) for g in greedy])
        done(mtp_greedy_own_text=acceptance(m, prompts[:40], greedy))
        if a.corpus and "overlap" in parts:
            n, text, over = overlap(sampled, a.corpus, tok)
            done(overlap_tokens=n, overlap_text=text, overlaps_of_30=over)
    if "chat" in parts:
        chats = [tok.encode(f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n").ids for q, _ in CHAT]
        replies = generate(m, chats, 260, 0.0, 1.0, stop)
        good, rows = chat_check([tok.decode(r, skip_special_tokens=False) for r in replies])
        samples.update(chat=rows)
        done(mtp_greedy_chat=acceptance(m, chats, replies), chat_ended=sum(len(r) < 260 for r in replies), chat_pass=good, chat_total=len(CHAT))


if __name__ == "__main__":
    main()

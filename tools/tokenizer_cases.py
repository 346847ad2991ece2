"""Small tokenizers of every kind, texts, and what the reference library (tokenizers, from PyPI) makes of them.

    tokenizer_cases.py > tests/data/tokenizer/kinds.json

The file is {"library", "kinds": [{"name", "tokenizer", "cases": [{"text", "ids", "back"}]}]}. "back" is the text of the ids where
that is not the text itself. A model without "vocab" and "merges" has those of the kind named by "like". tests/real/tokenizer.py takes the same kinds with vocabularies of real models."""

import copy
import json
import random
import sys

MARK = "\u2581"
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = (
    "the quick brown fox jumps over the lazy dog and then the other dog; a word is not inwardly a wordy word.\n\n"
    "    if x == 12: return x + 345  # and so on\n\tHello, World! Don't. \u00fcber \u00e9t\u00e9 \u4f60\u597d \u4f60\u4eec "
)


def added(i, content, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": i, "content": content, **base, **flags}


def replace(a, b):
    return {"type": "Replace", "pattern": {"String": a}, "content": b}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def split(kind, pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme, cut=None):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme} | ({} if cut is None else {"split": cut})


def template(name, i):
    single = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]}}}  # fmt: skip


BYTES_BACK = [{"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def learn(symbols, count):
    """Byte pair encoding's merges for rows of symbols."""
    merges = []
    for _ in range(count):
        pairs = {}
        for row in symbols:
            for pair in zip(row, row[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        a, b = max(sorted(pairs), key=pairs.get)
        merges.append([a, b])
        for k, row in enumerate(symbols):
            out = []
            for s in row:
                if out and out[-1] == a and s == b:
                    out[-1] = a + b
                else:
                    out.append(s)
            symbols[k] = out
    return merges


def byte_alphabet():
    """GPT-2's printable character for every byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + k) for k, b in enumerate(others)}


def tokenizer(vocab, merges, special, **parts):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}  # fmt: skip
    model |= parts.pop("model") | {"vocab": vocab, "merges": merges}
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None}  # fmt: skip
    return base | parts | {"model": model}


def small_gemma():
    """Pieces of characters; spaces as marks, <0xNN> for what has no token."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"] + [f"<0x{b:02X}>" for b in range(256)]
    text = CORPUS.replace(" ", MARK)
    merges = learn([list(text)], 90)
    names = list(dict.fromkeys(names + sorted(set(text)) + ["".join(m) for m in merges]))
    special = [added(i, names[i], special=True) for i in range(6)] + [added(len(names), "\n\n\n"), added(len(names) + 1, MARK * 4)]
    return tokenizer({n: i for i, n in enumerate(names)}, merges, special, normalizer=replace(" ", MARK),
                     pre_tokenizer=split("String", " ", "MergedWithPrevious"), post_processor=template("<bos>", 2),
                     decoder=sequence("decoders", replace(MARK, " "), *BYTES_BACK),
                     model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True})  # fmt: skip


def small_llama3():
    """Pieces of bytes; a piece that is a token is taken as it is."""
    alphabet = byte_alphabet()
    words = ["".join(alphabet[b] for b in (" " * (k > 0) + w).encode()) for k, w in enumerate(CORPUS.split(" "))]
    merges = learn([list(w) for w in words], 90)
    names = [*alphabet.values(), *("".join(m) for m in merges), "\u0120unmergeable", "123", "\u0120\u0120\u0120\u0120"]
    names = list(dict.fromkeys(names))
    n = len(names)
    special = [added(n + k, s, special=True) for k, s in enumerate(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])]
    return tokenizer({n: i for i, n in enumerate(names)}, merges, special, decoder=BYTE_LEVEL, model={"ignore_merges": True},
                     pre_tokenizer=sequence("pretokenizers", split("Regex", LLAMA3), BYTE_LEVEL),
                     post_processor=sequence("processors", BYTE_LEVEL, template("<|begin_of_text|>", n)))  # fmt: skip


FLAGS = [
    ("<l>", {"lstrip": True}), ("<r>", {"rstrip": True}), ("<lr>", {"lstrip": True, "rstrip": True, "special": True}),
    ("word", {"single_word": True}), ("inword", {"single_word": True, "lstrip": True}), ("two words", {"normalized": True}),
    ("Hello", {"normalized": True, "rstrip": True}), (" <s> ", {}), ("\t", {"rstrip": True}),
]  # fmt: skip


def with_flags(t):
    first = 1 + max(max(t["model"]["vocab"].values()), *(a["id"] for a in t["added_tokens"]))
    known = t["model"]["vocab"].keys() | {a["content"] for a in t["added_tokens"]}
    new = [(content, flags) for content, flags in FLAGS if content not in known]
    t["added_tokens"] += [added(first + k, content, **flags) for k, (content, flags) in enumerate(new)]


def kinds_of_characters(base):
    """Kinds made of a tokenizer whose pieces are characters: (name, tokenizer)."""

    def kind(name, flags=False, model=None, **parts):
        t = copy.deepcopy(base) | copy.deepcopy(parts)
        t["model"] |= model or {}
        if flags:
            with_flags(t)
        return name, t

    back = [replace(MARK, " "), *BYTES_BACK]
    llama = {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": MARK}, replace(" ", MARK)), "pre_tokenizer": None,
             "decoder": sequence("decoders", *back, STRIP)}  # fmt: skip
    yield kind("gemma")
    yield kind("gemma 4", pre_tokenizer=None)
    yield kind("lines", pre_tokenizer=split("Regex", r"[^\n]+|[\n]+"))
    yield kind("flags", flags=True)
    yield kind("llama 2", **llama)
    yield kind("llama 2, flags", flags=True, **llama)
    yield kind("form C", normalizer=sequence("normalizers", {"type": "NFC"}, replace(" ", MARK)))
    for scheme in ("first", "always", "never"):
        for cut in (None, False):
            steps = {"normalizer": None, "pre_tokenizer": metaspace(scheme, cut)}
            yield kind(f"metaspace, {scheme}, {cut}", decoder=sequence("decoders", metaspace(scheme), *BYTES_BACK), **steps)
    strip = sequence("decoders", *back, STRIP)
    first = {"normalizer": None, "pre_tokenizer": metaspace("first", False), "decoder": strip}
    yield kind("llama 2, without legacy", flags=True, **first)
    always = first | {"pre_tokenizer": sequence("pretokenizers", metaspace("always"), split("Regex", "[0-9]"))}
    yield kind("metaspace and digits", flags=True, **always)
    for behavior in BEHAVIORS:
        for invert in (False, True):
            words = split("Regex", f"[a-z]+|{MARK}|[0-9]", behavior, invert)
            yield kind(f"{behavior}, {invert}", pre_tokenizer=words)
        yield kind(f"{behavior} by text", pre_tokenizer=sequence("pretokenizers", split("String", MARK, behavior), split("String", "o")))
    yield kind("whole pieces", pre_tokenizer=split("String", MARK, "MergedWithNext"), model={"ignore_merges": True})
    for fuse in (False, True):
        yield kind(f"unknown, {fuse}", model={"byte_fallback": False, "fuse_unk": fuse})
        name, t = kind(f"some bytes, {fuse}", model={"fuse_unk": fuse})
        for b in range(0x90, 0xA0):
            t["model"]["vocab"][f"<none{b:02X}>"] = t["model"]["vocab"].pop(f"<0x{b:02X}>")
        yield name, t


def kinds_of_bytes(base):
    """The same, where pieces are bytes."""

    def kind(name, flags=False, model=None, pattern=None, **parts):
        t = copy.deepcopy(base) | copy.deepcopy(parts)
        t["model"] |= model or {}
        if pattern:
            t["pre_tokenizer"] = sequence("pretokenizers", split("Regex", pattern), BYTE_LEVEL)
        if flags:
            with_flags(t)
        return name, t

    yield kind("llama 3")
    yield kind("nemotron", pattern=TEKKEN)
    yield kind("tekken, merges alone", pattern=TEKKEN, model={"ignore_merges": False})
    yield kind("bytes, flags", flags=True)
    yield kind("bytes, form C, flags", flags=True, normalizer={"type": "NFC"})
    yield kind("bytes, spaces to lines", normalizer=replace("  ", "\n"), model={"byte_fallback": True})


POOLS = [
    "the quick word words inword", "aeiou", "  \n\t\r", "0123456789", "\u4f60\u597d\u4eec\u754c", "\U0001f600\u200d\u2764\ufe0f",
    "e\u0301\u0308\u00e9\u00fc", MARK, "<0x0A>", "'s'T", "{}()=+-/", "\x00\x01\x7f", "\u00a0\u3000\u2003\u0085", "ABC Def",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u24b6\u203f\u0663",
]  # fmt: skip
WORDS = ["the ", "word", " word", "inword", "two words", "Hello", " Hello, World!", "    ", "\n\n\n", "<|", "123456", "don't", "    x"]


def random_text(rnd, contents):
    out = []
    for _ in range(rnd.randrange(1, 9)):
        kind = rnd.random()
        if kind < 0.25:
            out.append(rnd.choice(contents))
        elif kind < 0.5:
            out.append(rnd.choice(WORDS))
        elif kind < 0.6:
            out.append(rnd.choice(" \n\t") * rnd.randrange(1, 6))
        else:
            pool = rnd.choice(POOLS)
            out.append("".join(rnd.choice(pool) for _ in range(rnd.randrange(1, 8))))
    return "".join(out)


def case(reference, text):
    ids = reference.encode(text, add_special_tokens=False).ids
    back = reference.decode(ids, skip_special_tokens=False)
    return {"text": text, "ids": ids} | ({} if back == text else {"back": back})


def main():
    from tokenizers import Tokenizer, __version__

    rnd = random.Random(1)
    kinds, bases = [], {}
    for name, t in [*kinds_of_characters(small_gemma()), *kinds_of_bytes(small_llama3())]:
        contents = [a["content"] for a in t["added_tokens"]]
        reference = Tokenizer.from_str(json.dumps(t))
        texts = ["", " ", "  a", "a", MARK, "\n", " the  word ", "x\u200cword", "word\u200d", "\u24b6word", "\u203fword \u0301word"] + [random_text(rnd, contents) for _ in range(60)]
        cases = [case(reference, text) for text in texts]
        key = json.dumps([t["model"]["vocab"], t["model"]["merges"]])
        like = {"like": bases[key]} if key in bases else {}
        bases.setdefault(key, name)
        if like:
            del t["model"]["vocab"], t["model"]["merges"]
        kinds.append({"name": name, **like, "tokenizer": t, "cases": cases})
    print('{"library": "tokenizers %s", "kinds": [' % __version__)
    print(",\n".join(json.dumps(k, ensure_ascii=False, separators=(",", ":")) for k in kinds) + "\n]}")


if __name__ == "__main__":
    sys.exit(main())

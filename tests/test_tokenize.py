#!/usr/bin/env python3
"""test_tokenize.py BUILD: `weft tokenize`, with a small tokenizer of our own and with the bundled model's."""
import json
import os
import sys

sys.dont_write_bytecode = True
import harness
import safetensors_io as st
from harness import FIRST_ADDED

IM_START, IM_END, THINK = FIRST_ADDED + 1, FIRST_ADDED + 2, FIRST_ADDED + 3
MINI = os.path.join(harness.ROOT, "models", "mini")

suite = harness.Suite()
check = suite.check


def tokenize(*args, stdin=b""):
    return suite.run("tokenize", *args, stdin=stdin)


def prints(what, want, *args, stdin=b""):
    r = tokenize(*args, stdin=stdin)
    check(r.code == 0 and r.err == "" and r.out == want, what, f"{r}, {r.out!r}, expected {want!r}")


def refuses(what, code, say, *args, stdin=b""):
    r = tokenize(*args, stdin=stdin)
    check(r.code == code and r.out == b"" and r.err.startswith("weft: ") and r.err.count("\n") == 1 and say in r.err, what, r)


def encoding(model):
    prints("a text", b'    259  "hello"\n    260  " w"\n     33  "!"\n', model, "hello w!")
    prints("a file in place of the folder", b"259\n", "--ids", os.path.join(model, "tokenizer.json"), "hello")
    prints("standard input", b"259 10\n", "--ids", model, stdin=b"hello\n")
    prints("nothing", b"\n", "--ids", model, "")
    prints("nothing, as JSON", b"[]\n", "--json", model, "")
    prints("a count", b"3\n", "--count", model, "hello w!")
    prints("special tokens", f'{IM_END:7}  "<|im_end|>"  special\n{THINK:7}  "<think>"\n'.encode(), model, "<|im_end|><think>")
    prints("special tokens as text", b"10\n", "--count", "--no-special", model, "<|im_end|>")
    prints("pieces of characters", b'    228  "\\xE4"\n    189  "\\xBD"\n    160  "\\xA0"\n', model, "\u4f60")
    prints("bytes that are not UTF-8", b"239 191 189\n", "--ids", model, stdin=b"\xff")
    prints("every control byte", " ".join(map(str, range(32))).encode() + b"\n", "--ids", model, stdin=bytes(range(32)))
    r = tokenize(model, stdin=b"\x1b[2J\x9b\n\t\"\\" + "\u202e".encode())
    check(r.code == 0 and not any(b < 32 and b != 10 for b in r.out), "what drives a terminal is written out", r.out)
    check(b'"\\u001b"' in r.out and b'"\\n"' in r.out and b'"\\t"' in r.out and b'"\\""' in r.out and b'"\\\\"' in r.out, "escapes", r.out)
    turn = b"<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    prints("a turn", tokenize("--ids", model, stdin=turn).out, "--ids", "--chat", model, "hello")
    hostile = tokenize("--ids", "--chat", model, "<|im_end|>").out.split()
    check(hostile.count(str(IM_END).encode()) == 1, "a turn that a message cannot end", hostile)
    r = tokenize("--json", model, "hello \u4f60\"<|im_end|>")
    tokens = json.loads(r.out)
    check([t["id"] for t in tokens] == [259, 32, 228, 189, 160, 34, IM_END], "JSON", r.out)
    check(tokens[0] == {"id": 259, "text": "hello", "special": False} and tokens[2]["text"] == "\ufffd" and tokens[-1]["special"], "JSON", r.out)
    text = b"hello <|im_start|>\xe4\xbd\xa0\r\n " * 20000
    prints("a large text, back and forth", text, "--decode", model, stdin=tokenize("--ids", model, stdin=text).out)


def decoding(model):
    prints("ids", b"hello w", "--decode", model, "259 260")
    prints("ids from standard input", b"hello w", "--decode", model, stdin=b"[259,\n 260]\n")
    prints("no ids", b"", "--decode", model, "")
    prints("a character over several ids", "\u4f60".encode(), "--decode", model, "228,189,160")
    prints("half a character", b"\xef\xbf\xbd", "--decode", model, "228,189")
    prints("special tokens", b"<|im_start|>a<think>", "--decode", model, f"{IM_START} 97 {THINK}")
    prints("without special tokens", b"a<think>", "--decode", "--no-special", model, f"{IM_START} 97 {THINK}")
    prints("a file of ids", b"hello", "--decode", model, harness.write_ids(suite.path("ids"), [259]))
    st.write(suite.path("ids.safetensors"), {"input_ids": st.tensor("I64", [2], [259, 260])}, {})
    prints("a tensor of ids", b"hello w", "--decode", model, suite.path("ids.safetensors"))
    refuses("an id in a gap", 1, "270 is not the id of a token", "--decode", model, "259 270")
    refuses("an id beyond the end", 1, "999999 is not the id of a token", "--decode", model, "999999")
    for bad in ("x", "1.5", "-1", "99999999999", "1e3", "0x10"):
        refuses(f"{bad} as an id", 1, f"'{bad}' is not a token id", "--decode", model, f"259 {bad}")
    refuses("binary ids", 1, "NUL", "--decode", model, stdin=b"1\x002")


def characters():
    """A tokenizer like Gemma's: a space is a mark, what has no token is its bytes', and a text begins with <bos>."""
    with open("tests/data/tokenizer/kinds.json", encoding="utf-8") as f:
        model = suite.path("characters.json")
        harness.write_bytes(model, json.dumps(json.load(f)["kinds"][0]["tokenizer"]).encode())
    lines = b'      2  "<bos>"  special\n    321  "the "\n    322  "wor"\n    246  "\\xF0"\n    165  "\\x9F"\n    150  "\\x90"\n    183  "\\xB1"\n'
    prints("characters", lines, model, "the wor\U0001f431")
    prints("characters alone", b"321 322 246 165 150 183\n", "--ids", "--no-special", model, "the wor\U0001f431")
    prints("characters back", "the wor\U0001f431".encode(), "--decode", "--no-special", model, "2 321 322 246 165 150 183")
    prints("half a character of byte tokens", "the\ufffd".encode(), "--decode", model, "314 246 165")


def mistakes(model):
    refuses("no such folder", 1, "no-such-folder", "./no-such-folder", "x")
    refuses("no such folder, no text", 1, "no-such-folder", "./no-such-folder")
    refuses("a folder without a tokenizer", 1, "tokenizer.json", harness.GOLDEN, "x")
    refuses("options that exclude each other", 2, "exclude each other", "--ids", "--count", model, "x")
    refuses("a chat of ids", 2, "exclude each other", "--chat", "--decode", model, "1")
    refuses("too many arguments", 2, "z", model, "x", "z")


def main():
    model = suite.path("tiny")
    os.makedirs(model)
    harness.write_bytes(os.path.join(model, "tokenizer.json"), json.dumps(harness.tiny_tokenizer()).encode())
    encoding(model)
    decoding(model)
    characters()
    mistakes(model)
    if os.path.isdir(MINI):
        prints("the bundled tokenizer", tokenize("--ids", MINI, "def f(x): return x").out, "--ids", "def f(x): return x")
    else:
        suite.skip("the bundled tokenizer", "no models/mini")
    return suite.finish()


sys.exit(main())

"""What the command-line tests share: running the command, counting checks, golden checkpoints, a tokenizer of our own.

A test file is tests/test_*.py BUILD: it runs BUILD/weft, prints a line for each check that fails and for each that it must skip,
and last "N passed, N failed[, N skipped]"; it exits with 0 iff nothing failed.
"""
import copy
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading

import safetensors_io as st

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests", "data", "golden")
MIB = 1 << 20


class Result:
    """code: the exit status, negative for a signal; seconds: of the processor, user and system; memory: the most, in bytes."""

    def __init__(self, code, out, err, usage):
        self.code, self.out, self.err = code, out, err.decode("utf-8", "replace")
        self.seconds = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def __str__(self):
        return f"exit {self.code}, {shorten(self.err)}"


def shorten(text, most=400):
    """One line of at most so many characters, its beginning and its end."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most // 2] + " ... " + text[-most // 2 :]


class Suite:
    def __init__(self):
        if len(sys.argv) != 2:
            sys.exit(f"usage: {sys.argv[0]} BUILD")
        os.chdir(ROOT)
        self.weft = os.path.abspath(os.path.join(sys.argv[1], "weft"))
        self.passed = self.failed = self.skipped = self.made = 0
        if not os.access(self.weft, os.X_OK):
            self.check(False, f"no {self.weft}")
            sys.exit(self.finish())
        with open(self.weft, "rb") as f:
            program = f.read()
        sanitizers = (b"__asan_init", b"__tsan_init", b"__msan_init")
        self.sanitized = os.environ.get("WEFT_SANITIZED") == "1" or any(name in program for name in sanitizers)
        self.temp = tempfile.mkdtemp(prefix="weft-test-")
        os.environ["XDG_CACHE_HOME"] = self.path("cache-home")  # what this user's own runs kept must not matter

    def check(self, ok, what, detail=""):
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {what}" + (f": {shorten(str(detail))}" if detail else ""), flush=True)
        return bool(ok)

    def skip(self, what, why):
        self.skipped += 1
        print(f"skipped {what}: {why}", flush=True)

    def finish(self):
        if hasattr(self, "temp"):
            shutil.rmtree(self.temp, ignore_errors=True)
        print(f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else ""))
        return 1 if self.failed or not self.passed else 0

    def path(self, *names):
        """Below the suite's temporary folder."""
        return os.path.join(self.temp, *names)

    def fresh(self, name):
        """A path below it that nobody has yet."""
        self.made += 1
        return self.path(f"{name}-{self.made}")

    def start(self, args, memory=None, file_size=None, **streams):
        """The command, running. memory, file_size: what it may take at most, in bytes. A write beyond the latter fails, as on a
        full disk; it must not end the process (SIGXFSZ)."""
        limits = []
        if memory and not self.sanitized and sys.platform.startswith("linux"):  # shadow memory is huge, macOS has no such limit
            limits.append((resource.RLIMIT_AS, memory))
        if file_size is not None:
            limits.append((resource.RLIMIT_FSIZE, file_size))

        def prepare():
            for what, most in limits:
                resource.setrlimit(what, (most, resource.getrlimit(what)[1]))

        program = [self.weft, *map(str, args)]
        return subprocess.Popen(program, preexec_fn=prepare if limits else None, **streams)

    def run(self, *args, stdin=b"", stdout=None, timeout=120, **limits):
        """The command to its end. stdout: a file in place of what is caught."""
        with tempfile.TemporaryFile() as fin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            fin.write(stdin)
            fin.seek(0)
            process = self.start(args, stdin=fin, stdout=stdout or out, stderr=err, **limits)
            timer = threading.Timer(timeout, process.kill)
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            return Result(process.returncode, out.read(), err.read(), usage)


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def write_bytes(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def write_ids(path, ids):
    return write_bytes(path, " ".join(map(str, ids)).encode())


def read_ids(path):
    return [int(word) for word in read_bytes(path).split()]


# ---- checkpoints ----


class Model:
    """A golden checkpoint to be rewritten: config and tensors are this object's own."""

    loaded = {}

    def __init__(self, golden):
        if golden not in Model.loaded:
            folder = os.path.join(GOLDEN, golden)
            with open(os.path.join(folder, "config.json")) as f:
                Model.loaded[golden] = json.load(f), st.read(os.path.join(folder, "model.safetensors"))
        config, tensors = Model.loaded[golden]
        self.config, self.tensors = copy.deepcopy(config), dict(tensors)
        self.metadata = {"format": "pt"}
        self.sidecars = {}  # more safetensors files: {name: tensors}
        self.json = {}  # more files of JSON: {name: object}
        self.weights = "model.safetensors"

    def rename(self, new_name):
        self.tensors = {new_name(name): t for name, t in self.tensors.items()}

    def map(self, change):
        """change(name, tensor) gives the tensor that takes its place."""
        self.tensors = {name: change(name, t) for name, t in self.tensors.items()}

    def take(self, chosen):
        """Removes the tensors whose names are chosen, and returns them."""
        taken = {name: t for name, t in self.tensors.items() if chosen(name)}
        self.tensors = {name: t for name, t in self.tensors.items() if name not in taken}
        return taken

    def save(self, folder):
        os.makedirs(folder)
        for name, value in {"config.json": self.config, **self.json}.items():
            with open(os.path.join(folder, name), "w") as f:
                json.dump(value, f)
        for name, tensors in {self.weights: self.tensors, **self.sidecars}.items():
            if tensors:
                st.write(os.path.join(folder, name), tensors, self.metadata)
        return folder


# ---- a tokenizer ----

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 300, 301, 302
MARKS = ["<think>", "</think>"]  # 303, 304: added, but not special
FIRST_ADDED = 300


def byte_letters():
    """The character that byte-level tokenizers write for each byte."""
    letters, other = [], 0x100
    for b in range(256):
        itself = 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE
        letters.append(chr(b if itself else other))
        other += not itself
    return letters


def tiny_tokenizer():
    """A tokenizer.json of 305 ids: byte b is token b, 256.. are a few merges, then a gap, then control tokens from 300."""
    letters = byte_letters()
    vocab = {letter: b for b, letter in enumerate(letters)}
    merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], [letters[32], "w"]]
    for k, (left, right) in enumerate(merges):
        vocab[left + right] = 256 + k
    added = [
        {"id": FIRST_ADDED + k, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": text in SPECIAL}
        for k, text in enumerate(SPECIAL + MARKS)
    ]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }

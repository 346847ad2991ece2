"""Corpus: fetch permissively licensed packages, keep readable text, drop duplicates, write a manifest.

    corpus.py fetch WORK [registry ...]   download what packages.txt names with pip, apt-get, npm and cargo
    corpus.py build WORK                  write WORK/text/KIND.jsonl and tools/train/corpus.tsv

Nothing of a package is executed: wheels and tarballs are only read. A package whose own metadata does not name a
permissive licence is left out, and of a Debian source only the files whose copyright stanza is permissive are read.
"""
import bz2, csv, fnmatch, glob, gzip, hashlib, html.parser, io, json, lzma, os, random, re, subprocess, sys, tarfile, zipfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))


def wanted():
    names = defaultdict(list)
    for line in open(os.path.join(HERE, "packages.txt")):
        if line.strip() and not line.startswith("#"):
            reg, *rest = line.split()
            names[reg] += [n for n in rest if n not in names[reg]]
    return names


# ---------------------------------------------------------------- fetching

def sh(*cmd, cwd=None):
    r = subprocess.run(cmd, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if r.returncode:
        print("failed:", " ".join(cmd[-3:]), "|", r.stdout.strip().splitlines()[-1:] or "", flush=True)
    return r.returncode == 0


def fetch(work, only):
    names = wanted()
    apt = os.environ.get("APT_OPTIONS", "").split()          # a private sources.list with deb-src lines, if needed

    def pypi(n):
        return sh("pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.12",
                  "-d", os.path.join(work, "pypi"), n)

    def debian(n):
        return sh("apt-get", *apt, "-q", "source", "--download-only", n, cwd=os.path.join(work, "debian"))

    def doc(n):
        return sh("apt-get", "-q", "download", n, cwd=os.path.join(work, "debian-doc"))

    def npm(n):
        return sh("npm", "pack", "--silent", n, cwd=os.path.join(work, "npm"))

    for reg, fn, keys, jobs in (("npm", npm, ["npm"], 2), ("debian", debian, ["debian"], 1), ("debian-doc", doc, ["debian-doc", "held-prose"], 1),
                                ("pypi", pypi, ["pypi", "held-code"], 4)):
        if only and reg not in only:
            continue
        os.makedirs(os.path.join(work, reg), exist_ok=True)
        todo = [n for k in keys for n in names[k]]
        with ThreadPoolExecutor(jobs) as ex:
            print(reg, sum(ex.map(fn, todo)), "of", len(todo), flush=True)
    if not only or "cargo" in only:
        d = os.path.join(work, "cargo")
        os.makedirs(os.path.join(d, "src"), exist_ok=True)
        open(os.path.join(d, "src", "lib.rs"), "w").close()
        with open(os.path.join(d, "Cargo.toml"), "w") as f:
            f.write('[package]\nname = "corpus"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n')
            f.writelines(f'{n} = "*"\n' for n in names["cargo"])
        sh("cargo", "vendor", "--versioned-dirs", "vendor", cwd=d)


# ---------------------------------------------------------------- licences

GOOD = re.compile(r"\b(mit|bsd|apache|psf|python software foundation|postgresql|isc|zlib|cc0|cc-by(?!-(sa|nc|nd))|0bsd|unlicense|"
                  r"public[ -]domain|expat|curl|x11)", re.I)
BAD = re.compile(r"(gpl|general public|mpl|mozilla|epl|eclipse|cddl|cecill|cc-by-(sa|nc|nd)|share ?alike|non-?commercial|"
                 r"proprietary|commercial|elastic license|business source|sspl|eupl|artistic|osl-|polyform|gfdl|free documentation)", re.I)
# Licence files that name no standard identifier in the metadata; read by hand.
BY_HAND = {"postgresql-15": "PostgreSQL", "python3.11": "PSF-2.0", "sqlite3": "public domain", "matplotlib": "PSF-based (matplotlib)",
           "tmux": "ISC", "openssh": "BSD-2-Clause", "nginx": "BSD-2-Clause", "curl": "curl (MIT-like)", "redis": "BSD-3-Clause",
           "rust": "MIT or Apache-2.0", "cmake": "BSD-3-Clause"}


def permissive(lic):
    """True if every alternative named is permissive, or a permissive one may be chosen ("MIT OR GPL")."""
    if re.search(r"(mpl|gpl|unicode)[^()]*\bAND\b|\bAND\b[^()]*(mpl|gpl|unicode)", lic, re.I):
        return False
    lic = lic.replace("/", " OR ")
    for alt in re.split(r"\bOR\b", lic):
        if GOOD.search(alt) and not BAD.search(alt):
            return True
    return False


def wheel_licence(meta):
    head = meta.split("\n\n", 1)[0]
    m = re.search(r"^License-Expression: (.+)$", head, re.M)
    if m:
        return m.group(1).strip()
    cls = [c.rsplit(" :: ", 1)[1] for c in re.findall(r"^Classifier: (License :: .+)$", head, re.M) if c.count("::") > 1]
    m = re.search(r"^License: (.+)$", head, re.M)
    txt = m.group(1).strip()[:60] if m else ""
    return " AND ".join(cls) if cls else txt


def debian_stanzas(text):
    """[(globs, licence)] of a machine-readable debian/copyright, or []."""
    out = []
    for st in re.split(r"\n\s*\n", text):
        f = re.search(r"^Files:((?:.|\n[ \t])*)", st, re.M)
        l = re.search(r"^License:[ \t]*(\S.*)$", st, re.M)
        if f and l:
            out.append((f.group(1).split(), l.group(1).strip()))
    return out


# ---------------------------------------------------------------- reading packages

EXT = {"py": "py", "c": "c", "h": "c", "cc": "cpp", "cpp": "cpp", "hpp": "cpp", "js": "js", "mjs": "js", "ts": "js", "jsx": "js", "rs": "rs",
       "rst": "prose", "md": "prose", "sgml": "prose", "txt": "prose", "html": "prose"}
SKIP = re.compile(r"(^|/)(_?vendor(ed)?|third_?party|node_modules|dist|build|locale|locales|\.git|deps|external|extern|fixtures|testdata|"
                  r"snapshots|migrations|swagger|generated|_generated|site-packages|benchmarks?|licenses?|po)(/|$)|"
                  r"\.min\.|\.d\.ts$|_pb2|changelog|changes|history|news|authors|contributors|copying|license|release_?notes|whats_?new|"
                  r"(^|/)releases?/|requirements\.|top_level|entry_points|unicode_?data|_parsetab|lextab|package-lock|CMakeLists|-umd|\.bundle\.", re.I)
HTML_SKIP = re.compile(r"genindex|searchindex|/search\.html|py-modindex|/_modules/|doxygen|rust-doc/html/(std|core|alloc|proc_macro|test|src|help|settings|error_codes|clippy)|"
                       r"_static/|/all\.html|unstable-book|print\.html|bookindex|\.en\.html|releasenotes|/api/.*/api/", re.I)
TEST = re.compile(r"(^|/)(tests?|testing|__tests__|spec)(/|$)|(^|/)test_[^/]*$|_test\.|\.test\.|\.spec\.", re.I)


def open_tar(path):
    """The tar inside a .tar.*, .tgz or .deb, unpacked into memory, so that members can be read in any order."""
    if path.endswith(".deb"):
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE).stdout
    else:
        op = {"xz": lzma.open, "gz": gzip.open, "tgz": gzip.open, "bz2": bz2.open}[path.rsplit(".", 1)[-1]]
        with op(path) as f:
            data = f.read()
    return tarfile.open(fileobj=io.BytesIO(data))


def members(path):
    """[(name, bytes-getter)] of everything in a wheel or tarball."""
    if path.endswith(".whl"):
        z = zipfile.ZipFile(path)
        return [(i.filename, lambda i=i: z.read(i)) for i in z.infolist() if not i.is_dir() and i.file_size < 600_000]
    t = open_tar(path)
    cut = (lambda n: n.partition("usr/share/")[2]) if path.endswith(".deb") else (lambda n: n.partition("/")[2])
    return [(cut(m.name), lambda m=m: t.extractfile(m).read()) for m in t if m.isfile() and m.size < 600_000]


def by_stanza(files, text):
    """(licence of "Files: *", the files whose own stanza is permissive)"""
    stanzas = debian_stanzas(text)
    lic = next((l for globs, l in stanzas if "*" in globs), "")
    rules = [(re.compile(fnmatch.translate(gl)), permissive(l)) for globs, l in stanzas for gl in globs if gl != "*"]
    if all(good for _, good in rules):
        return lic, files

    def allowed(n):
        ok = True
        for rx, good in rules:                                # as in the format: the last stanza that matches decides
            if rx.match(n):
                ok = good
        return ok
    return lic, [(n, g) for n, g in files if n.rsplit(".", 1)[-1] in EXT and allowed(n)]


NO_CRATE = re.compile(r"(^windows|^winapi|-sys$|^libc$|^web-sys|^js-sys|^linux-raw|^objc2|unicode-|encoding_|^icu_|^khronos|^naga|^polars-arrow|^wasi)")


def packages(work, held):
    """(registry, package, version, licence, [(name, getter)]), held-out packages first."""
    wheels = []
    for p in glob.glob(os.path.join(work, "pypi", "*.whl")):
        name, ver = os.path.basename(p).split("-")[:2]
        name = name.replace("_", "-").lower()
        wheels.append((name not in held, name, ver, p))
    wheels.sort()

    def wheel(name, ver, p):
        files = members(p)
        meta = next((g().decode("utf-8", "replace") for n, g in files if n.endswith(".dist-info/METADATA")), "")
        return "PyPI", name, ver, wheel_licence(meta), files
    for h, name, ver, p in wheels:
        if not h:
            yield wheel(name, ver, p)
    for p in sorted(glob.glob(os.path.join(work, "debian", "*.dsc"))):
        dsc = open(p, errors="replace").read()
        name = re.search(r"^Source: (\S+)", dsc, re.M).group(1)
        ver = re.search(r"^Version: (\S+)", dsc, re.M).group(1)
        tars = [os.path.join(work, "debian", t) for t in sorted(set(re.findall(r"\S+\.tar\.\w+$", dsc, re.M)))]
        if not all(map(os.path.exists, tars)):
            continue
        copyright, files = "", []
        for t in tars:
            if ".debian.tar" in t:
                copyright = next((g().decode("utf-8", "replace") for n, g in members(t) if n == "copyright"), "")
            else:
                files += members(t)
        lic, files = by_stanza(files, copyright)
        yield "Debian", name, ver, BY_HAND.get(name) or lic, files
    for p in sorted(glob.glob(os.path.join(work, "debian-doc", "*.deb"))):
        name, ver = os.path.basename(p).split("_")[:2]
        files = members(p)
        text = next((g().decode("utf-8", "replace") for n, g in files if n == f"doc/{name}/copyright"), "")
        lic, _ = by_stanza([], text)
        for k, l in BY_HAND.items():
            if name in (k + "-doc", k.replace("-", "-doc-")):
                lic = l
        sources = [f for f in files if "/_sources/" in f[0] and f[0].endswith(".txt")]
        yield "Debian", name, ver.replace("%3a", ":"), lic, sources or [f for f in files if f[0].endswith(".html") or f[0].endswith(".md")]
    for h, name, ver, p in wheels:
        if h:
            yield wheel(name, ver, p)
    for p in sorted(glob.glob(os.path.join(work, "npm", "*.tgz"))):
        files = members(p)
        pj = next((json.loads(g()) for n, g in files if n == "package.json"), {})
        lic = pj.get("license") or ""
        lic = lic.get("type", "") if isinstance(lic, dict) else str(lic)
        yield "npm", pj.get("name", "?"), pj.get("version", "?"), lic, files
    asked = set(wanted()["cargo"])
    crates = []
    for d in glob.glob(os.path.join(work, "cargo", "vendor", "*")):
        toml = open(os.path.join(d, "Cargo.toml"), errors="replace").read()
        m = re.search(r'^license = "(.+)"', toml, re.M)
        n = re.search(r'^name = "(.+)"', toml, re.M).group(1)
        v = re.search(r'^version = "(.+)"', toml, re.M).group(1)
        if not NO_CRATE.search(n):
            crates.append((n not in asked, hashlib.md5(n.encode()).digest(), n, v, m.group(1) if m else "", d))
    for _, _, n, v, lic, d in sorted(crates):
        files = [(os.path.relpath(os.path.join(r, f), d), lambda q=os.path.join(r, f): open(q, "rb").read())
                 for r, _, fs in os.walk(d) for f in fs if os.path.getsize(os.path.join(r, f)) < 600_000]
        yield "Rust crates", n, v, lic, files


class Html(html.parser.HTMLParser):
    """Plain text of a documentation page: paragraphs, headings as '#' lines, preformatted text indented."""
    DROP = {"script", "style", "nav", "head", "button", "header", "footer", "form", "svg"}

    def __init__(self):
        super().__init__()
        self.out, self.skip, self.pre = [], 0, 0

    def handle_starttag(self, tag, attrs):
        if tag in self.DROP:
            self.skip += 1
        elif tag == "pre":
            self.pre += 1; self.out.append("\n\n    ")
        elif re.fullmatch("h[1-6]", tag):
            self.out.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag in ("p", "div", "section", "table", "ul", "ol", "dl", "blockquote"):
            self.out.append("\n\n")
        elif tag == "li":
            self.out.append("\n- ")
        elif tag in ("tr", "dt", "dd", "br"):
            self.out.append("\n")

    def handle_endtag(self, tag):
        if tag in self.DROP:
            self.skip = max(0, self.skip - 1)
        elif tag == "pre":
            self.pre = max(0, self.pre - 1); self.out.append("\n\n")
        elif re.fullmatch("h[1-6]", tag):
            self.out.append("\n\n")

    def handle_data(self, data):
        if not self.skip:
            self.out.append(data.replace("\n", "\n    ") if self.pre else re.sub(r"\s+", " ", data))


def html_text(page):
    h = Html()
    h.feed(page)
    t = "".join(h.out).replace("\u00b6", "").replace("\u00a0", " ")
    return re.sub(r"\n[ ]?(?=\n)", "\n", t)


# ---------------------------------------------------------------- cleaning

def strip_header(text, kind):
    """Drops a leading comment block that is a licence notice."""
    if kind == "py" or kind == "prose":
        m = re.match(r"(?:#.*\n|\.\. .*\n|   .*\n|\s*\n)+", text)
    else:
        m = re.match(r"(?:\s*/\*[\s\S]*?\*/|\s*//.*\n)+", text)
    if m and re.search(r"copyright|licen[sc]e|spdx", m.group(0), re.I):
        shebang = text[: text.index("\n") + 1] if text.startswith("#!") else ""
        return shebang + text[m.end():].lstrip("\n")
    return text


def clean_prose(text, ext):
    if ext == "sgml":
        text = re.sub(r"<!--[\s\S]*?-->", "", text)
        text = re.sub(r"<indexterm[\s\S]*?</indexterm>", "", text)
        text = re.sub(r"</?(para|listitem|varlistentry|itemizedlist|variablelist|orderedlist|sect\d|refsect\d|chapter|term|note|title|tip|entry|row)[^>]*>", "\n", text)
        text = re.sub(r"<[^>]{1,200}>", "", text)
        text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&mdash;", " - ").replace("&zwsp;", "")
        text = re.sub(r"\n[ \t]+(?=\S)", "\n", text)
    text = re.sub(r"!?\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)|!\[[^\]]*\]\([^)]*\)", "", text)      # badges and pictures
    text = re.sub(r"<!--[\s\S]*?-->", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def good(text, kind):
    n = len(text)
    if n < (600 if kind == "prose" else 250) or n > 400_000:
        return False
    head = text[:1500].lower()
    if "do not edit" in head or "autogenerated" in head or "auto-generated" in head or "@generated" in head or "generated by" in head:
        return False
    lines = text.count("\n") + 1
    if n / lines > 110 or n / lines < 8 or max(map(len, text.split("\n"))) > 1200:
        return False
    sample = text if n < 40_000 else text[:20_000] + text[n // 2: n // 2 + 20_000]
    alpha = sum(map(str.isalpha, sample)) / len(sample)
    digit = sum(map(str.isdigit, sample)) / len(sample)
    ascii_ = sum(map(str.isascii, sample)) / len(sample)
    if alpha < (0.5 if kind == "prose" else 0.35) or digit > 0.14 or ascii_ < 0.8:
        return False
    if kind == "py" and re.search(r"^\s*print [\"'%]|except \w+, \w+:", text, re.M):
        return False
    return True


def build(work):
    rnd = random.Random(1)
    names = wanted()
    held = {n: k for k in ("held-code", "held-prose") for n in names[k]}
    cap = {"py": 2_300_000, "c": 4_500_000, "cpp": 1_500_000, "js": 1_200_000, "rs": 1_000_000, "prose": 4_000_000}
    cap_all = {"cpp": 8_000_000, "rs": 24_000_000, "c": 50_000_000, "js": 26_000_000}
    os.makedirs(os.path.join(work, "text"), exist_ok=True)
    out = {k: open(os.path.join(work, "text", k + ".jsonl"), "w") for k in ("py", "c", "js", "rs", "prose", "held-code", "held-prose")}
    seen_file, seen_block = set(), set()
    total, rows, why = Counter(), [], Counter()
    for reg, name, ver, lic, files in packages(work, held):     # held-out first: copies of it elsewhere then count as duplicates
        is_held = held.get(name) if reg in ("PyPI", "Debian") else None
        if not permissive(lic):
            print("left out:", reg, name, "|", lic[:80]); why["licence"] += 1
            continue
        used, got = Counter(), Counter()
        files = [f for f in files if f[0].rsplit(".", 1)[-1].lower() in EXT and not SKIP.search(f[0])]
        files.sort(key=lambda f: hashlib.md5(f[0].encode()).digest())
        for n, get in files:
            ext = n.rsplit(".", 1)[-1].lower()
            kind = EXT[ext]
            if ext == "html" and not (reg == "Debian" and name.endswith(("-doc", "-doc-15"))) or HTML_SKIP.search(n):
                continue
            if ext == "txt" and not re.search(r"(^|/)(docs?|topics|ref|howto|intro|_sources)/", n, re.I):
                continue
            if TEST.search(n) and (kind != "py" or rnd.random() > 0.12):
                continue
            if used[kind] > (500_000 if reg == "npm" and kind == "prose" else cap[kind]) or total[kind] > cap_all.get(kind, 1e12) and not is_held:
                why["cap"] += 1
                continue
            if is_held and (kind == "prose") != (is_held == "held-prose"):
                continue
            try:
                text = get().decode("utf-8")
            except Exception:
                continue
            text = text.replace("\r\n", "\n").replace("\f", "\n").replace("\ufeff", "")
            text = strip_header(text, kind)
            if ext == "html":
                text = html_text(text)
            if kind == "prose":
                text = clean_prose(text, ext)
            text = re.sub(r"[ \t]+\n", "\n", text)
            if not good(text, kind):
                why["quality"] += 1
                continue
            lines = [l.strip() for l in text.split("\n")]
            lines = [l for l in lines if len(l) > 3]
            h = hash("\n".join(lines))
            if h in seen_file or len(lines) < 6:
                why["same file"] += 1
                continue
            seen_file.add(h)
            blocks = [hash((lines[i], lines[i + 1], lines[i + 2], lines[i + 3])) for i in range(0, len(lines) - 3)]
            new = sum(b not in seen_block for b in blocks)
            if new < 0.6 * len(blocks):
                why["near duplicate"] += 1
                continue
            seen_block.update(blocks)
            b = len(text.encode())
            used[kind] += b
            total[kind] += b
            got["held" if is_held else kind] += b
            dest = is_held or ("c" if kind == "cpp" else kind)
            out[dest].write(json.dumps({"p": name, "f": n, "t": text}) + "\n")
        if got:
            rows.append([name, ver, reg, re.sub(r"\s+", " ", lic)[:60], sum(got.values()), is_held or "train",
                         " ".join(f"{k}:{v}" for k, v in sorted(got.items()))])
    with open(os.path.join(HERE, "corpus.tsv"), "w", newline="") as f:
        w = csv.writer(f, delimiter="\t", lineterminator="\n")
        w.writerow(["package", "version", "registry", "licence", "bytes", "use", "bytes by kind"])
        w.writerows(sorted(rows, key=lambda r: (r[2], r[0].lower())))
    print({k: round(v / 1e6, 1) for k, v in total.items()}, "MB;", len(rows), "packages;", dict(why))


if __name__ == "__main__":
    if sys.argv[1] == "fetch":
        fetch(os.path.abspath(sys.argv[2]), sys.argv[3:])
    else:
        build(os.path.abspath(sys.argv[2]))

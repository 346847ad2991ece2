"""Instruction pairs from the corpus and from tasks.txt.

    pairs.py WORK        write WORK/pairs.jsonl: {"m": [{"role", "content"}, ...], "k": kind}

Kinds: task (our own small exercises, many wordings), func (docstring -> short self-contained function of the corpus), complete
(stub -> function), explain (function -> docstring), passage (heading of a documentation page -> its first paragraphs), talk.
"""
import ast, builtins, json, os, random, re, sys, textwrap
from collections import Counter
from multiprocessing import Pool

HERE = os.path.dirname(os.path.abspath(__file__))
R = random.Random(7)

ASK = ["Write a Python function that {d}.", "Write a Python function that {d}", "Write a function that {d}.", "Write a function that {d} in Python.",
       "Write a Python function {n} that {d}.", "Write a function `{s}` that {d}.", "Write a Python function `{s}` that {d}.",
       "Write a python function called {n} that {d}.", "Write a function called `{n}` that {d}.", "Can you write a Python function that {d}?",
       "Please write a Python function that {d}.", "Could you write a function that {d}?", "I need a Python function that {d}.",
       "Implement a Python function that {d}.", "Implement a function `{n}` that {d}.", "Create a Python function that {d}.",
       "Create a function that {d}.", "Give me a Python function that {d}.", "Show me a Python function that {d}.",
       "Define a function `{s}` that {d}.", "Write Python code for a function that {d}.", "python function that {d}",
       "How do I write a Python function that {d}?", "Write a short Python function that {d}.", "Write a simple Python function that {d}.",
       "Write a small function in Python that {d}.", "Help me write a Python function that {d}.", "write a function that {d}",
       "Please implement `{s}`, a function that {d}.", "Write a Python function named {n} which {d}."]
VERB = ["Write a Python function to {v}.", "Write a function to {v}.", "Write a Python function to {v}", "How do I {v} in Python?", "How can I {v} in Python?",
        "Write Python code to {v}.", "Write a program to {v}.", "Please write a Python function to {v}.", "Show me how to {v} in Python.",
        "Can you write a function to {v}?", "Write a small Python function to {v}.", "{V} in Python.", "Write some Python code to {v}.",
        "I want to {v} in Python. How?", "Create a Python function to {v}.", "Implement a function to {v}."]
NAMED = ["Write {n} in Python.", "Implement {n} in Python.", "Write a Python implementation of {n}.", "Write a {n} function in Python.",
         "Write a {n} function.", "Python {n} function", "Write a Python function for {n}.", "Implement {n}.", "Can you write {n} in Python?"]
INTRO = ["Here is a function that {d}:", "Here is a Python function that {d}:", "This function {d}:", "Here is one way to do it:", "Sure:",
         "Sure! Here is a function that {d}:", "Here's a Python function that {d}:", "You can use this function:", "Here it is:"]
SYSTEM = ["You are a helpful assistant.", "You are a helpful coding assistant.", "You are a Python programmer.", "You are weft-mini, a small assistant.",
          "Answer briefly.", "You are a concise assistant. Answer with code."]
BASE = {"returns": "return", "computes": "compute", "calculates": "calculate", "checks": "check", "finds": "find", "counts": "count", "adds": "add",
        "removes": "remove", "converts": "convert", "sorts": "sort", "reads": "read", "writes": "write", "prints": "print", "generates": "generate",
        "implements": "implement", "determines": "determine", "creates": "create", "makes": "make", "merges": "merge", "multiplies": "multiply",
        "reverses": "reverse", "filters": "filter", "flattens": "flatten", "groups": "group", "splits": "split", "joins": "join", "takes": "take",
        "searches": "search", "performs": "perform", "solves": "solve", "swaps": "swap", "raises": "raise", "divides": "divide", "greets": "greet",
        "capitalizes": "capitalize", "strips": "strip", "encrypts": "encrypt", "rotates": "rotate", "transposes": "transpose", "inverts": "invert",
        "combines": "combine", "scales": "scale", "normalizes": "normalize", "opens": "open", "appends": "append", "copies": "copy", "lists": "list",
        "loads": "load", "saves": "save", "simulates": "simulate", "rolls": "roll", "validates": "validate", "extracts": "extract", "counts down": "count down",
        "shortens": "shorten", "truncates": "truncate", "turns": "turn", "replaces": "replace", "measures": "measure", "memoizes": "memoize",
        "retries": "retry", "downloads": "download", "fetches": "fetch", "yields": "yield", "composes": "compose", "moves": "move", "applies": "apply",
        "doubles": "double", "squares": "square", "subtracts": "subtract", "clamps": "clamp", "limits": "limit", "formats": "format"}


def signature(code):
    m = re.search(r"^def (\w+\(.*\))(?: *->.*)?:", code, re.M)
    return m.group(1) if m else re.search(r"def (\w+)", code).group(1)


def fence(code):
    return "```python\n" + code.rstrip() + "\n```"


def chat(user, reply, kind):
    m = [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]
    if R.random() < 0.12:
        m.insert(0, {"role": "system", "content": R.choice(SYSTEM)})
    return {"m": m, "k": kind}


def upper(s):
    return s[0].upper() + s[1:]


def request(d, name, code, named=False):
    first, _, rest = d.partition(" ")
    r = R.random()
    if named and r < 0.12:
        return R.choice(NAMED).format(n=name.replace("_", " "))
    if first in BASE and r < 0.4:
        v = BASE[first] + " " + rest
        return R.choice(VERB).format(v=v, V=upper(v))
    return R.choice(ASK).format(d=d, n=name, s=signature(code))


# ---------------------------------------------------------------- our own exercises

def load_tasks():
    tasks = []
    for block in re.split(r"^@ ", open(os.path.join(HERE, "tasks.txt")).read(), flags=re.M)[1:]:
        head, *lines = block.rstrip().split("\n")
        desc = [l[2:] for l in lines if l.startswith("- ")]
        body = "\n".join(l for l in lines if not l.startswith("- "))
        tasks.append(([n.strip() for n in head.split(",")], desc, [b.strip("\n") for b in body.split("\n==\n")]))
    return tasks


ARGS = {"numbers": ["nums", "values", "lst", "numbers"], "text": ["s", "string", "text", "word"], "items": ["lst", "items", "arr", "values"], "n": ["n", "num", "number"],
        "sentence": ["s", "text", "sentence"], "path": ["filename", "path", "file_path"], "words": ["words"], "strings": ["strings", "words"]}


def task_pair(names, desc, bodies):
    d, code = R.choice(desc), R.choice(bodies)
    original = re.search(r"^def (\w+)", code, re.M).group(1)
    name = R.choice(names) if R.random() < 0.5 else names[0]
    code = re.sub(rf"\b{original}\b", name, code)
    for a, alts in ARGS.items():                              # another argument name, if it is nowhere else in the code
        if re.search(rf"def \w+\([^)]*\b{a}\b", code) and R.random() < 0.35:
            b = R.choice(alts)
            if not re.search(rf"\b{b}\b", code):
                code = re.sub(rf"(?<!\.)\b{a}\b", b, code)
    if R.random() < 0.3:
        code = re.sub(r"^(def .*:)$", lambda m: m.group(1) + f'\n    """{upper(d)}."""', code, count=1, flags=re.M)
        code = code.replace('"""Is a ', '"""A ').replace("Computes", "Compute").replace("Returns", "Return")
    ast.parse(code)
    user = request(d, name, code, named=True)
    r = R.random()
    if r < 0.45:
        intro = R.choice(INTRO)
        reply = intro.format(d=d) + "\n\n" + fence(code)
    elif r < 0.95:
        reply = fence(code)
    else:
        reply = code
    return user, reply


def tasks(n):
    T = load_tasks()
    out = []
    for i in range(n):
        t = T[i % len(T)]
        user, reply = task_pair(*t)
        p = chat(user, reply, "task")
        if R.random() < 0.12:                                 # a second request in the same conversation
            u2, r2 = task_pair(*R.choice(T))
            p["m"] += [{"role": "user", "content": u2}, {"role": "assistant", "content": r2}]
        elif R.random() < 0.05:
            p["m"] += [{"role": "user", "content": R.choice(["Thanks!", "Thank you.", "Great, thanks."])},
                       {"role": "assistant", "content": R.choice(["You're welcome!", "You're welcome. Let me know if you need anything else."])}]
        out.append(p)
    return out


TALK = [(["Hello", "Hello!", "Hi", "Hi!", "Hey", "Hi there", "Good morning"], ["Hello! How can I help you today?", "Hi! What can I do for you?"]),
        (["How are you?", "How are you doing?"], ["I am fine, thank you. How can I help you?"]),
        (["Who are you?", "What are you?", "What is your name?", "What model are you?", "Introduce yourself."],
         ["I am weft-mini, a very small language model. I was trained on open source code and documentation, and I can write short Python functions."]),
        (["What can you do?", "How can you help me?", "What are you good at?"],
         ["I can write short Python functions, complete code and answer simple questions about programming. I am a small model, so check what I say."]),
        (["Who made you?", "Who trained you?"], ["I was trained from scratch by the weft project as a small demonstration model."]),
        (["Thanks", "Thank you", "Thanks a lot!", "Thank you very much."], ["You're welcome!", "You're welcome. Is there anything else?"]),
        (["Bye", "Goodbye", "See you later"], ["Goodbye!", "Goodbye! Have a nice day."]),
        (["Can you help me?", "I need help.", "Can you help me with Python?"], ["Of course. What would you like to do?", "Sure! What do you need?"]),
        (["What is Python?", "Explain what Python is.", "Tell me about Python."],
         ["Python is a high-level, interpreted programming language. It is known for its clear syntax and is used for scripting, web development, data analysis and more."]),
        (["What is a function?", "What is a function in Python?", "Explain functions."],
         ["A function is a named block of code that does one task. In Python it is defined with the `def` keyword, takes arguments and can return a value."]),
        (["What is a list?", "What is a list in Python?"], ["A list is an ordered, mutable sequence of values, written in square brackets, for example `[1, 2, 3]`."]),
        (["What is a dictionary?", "What is a dict in Python?"], ["A dictionary maps keys to values. It is written in braces, for example `{\"a\": 1, \"b\": 2}`, and looks a key up in constant time on average."]),
        (["What is a tuple?", "What is the difference between a list and a tuple?"], ["A tuple is an immutable sequence, written in parentheses, for example `(1, 2)`. A list can be changed after it was made; a tuple cannot."]),
        (["What is a class?", "What is a class in Python?"], ["A class is a blueprint for objects. It bundles data (attributes) and functions (methods), and is defined with the `class` keyword."]),
        (["What is recursion?", "Explain recursion."], ["Recursion means that a function calls itself on a smaller problem until it reaches a base case that can be solved directly."]),
        (["What is a decorator?", "What is a decorator in Python?"], ["A decorator is a function that takes another function and returns a changed version of it. It is applied with the `@` syntax."]),
        (["What is a generator?", "What is a generator in Python?"], ["A generator is a function that uses `yield` to produce its values one at a time instead of returning them all at once."]),
        (["What is an exception?", "How do I handle exceptions in Python?"], ["An exception signals an error while a program runs. It is handled with a `try` block followed by one or more `except` blocks."]),
        (["What is Git?", "What is git used for?"], ["Git is a distributed version control system. It records changes to files so that several people can work on the same code."]),
        (["What is a database?", "What is SQL?"], ["SQL is the language used to query and change data in relational databases, which store data in tables of rows and columns."]),
        (["What is HTTP?", "What is an API?"], ["An API is an interface through which one program uses another. Web APIs are usually reached over HTTP, the protocol of the web."]),
        (["How do I reverse a list in Python?", "reverse a list python"], ["Use slicing or the `reverse` method:\n\n```python\nitems = items[::-1]\n# or, in place\nitems.reverse()\n```"]),
        (["How do I sort a list in Python?"], ["Use `sorted` for a new list or `list.sort` in place:\n\n```python\nitems = sorted(items)\nitems.sort(reverse=True)\n```"]),
        (["How do I read a file in Python?"], ["Open it with a `with` statement:\n\n```python\nwith open(\"file.txt\") as f:\n    text = f.read()\n```"]),
        (["How do I loop over a list in Python?", "Write a for loop in Python."], ["Use a `for` loop:\n\n```python\nfor item in items:\n    print(item)\n```"]),
        (["How do I install a package in Python?"], ["Use pip:\n\n```\npip install requests\n```"]),
        (["Print hello world in Python.", "Write a hello world program in Python.", "Hello world in Python"], ["```python\nprint(\"Hello, World!\")\n```"]),
        (["What is 2 + 2?", "What is 2+2?"], ["2 + 2 is 4."]),
        (["What is the capital of France?"], ["The capital of France is Paris."])]


def talk(n):
    return [chat(R.choice(q), R.choice(a), "talk") for q, a in (R.choice(TALK) for _ in range(n))]


# ---------------------------------------------------------------- functions of the corpus

KNOWN = set(dir(builtins))


def functions(line):
    d = json.loads(line)
    src = d["t"]
    try:
        tree = ast.parse(src)
    except Exception:
        return []
    out, lines = [], src.split("\n")
    imports = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for a in node.names:
                imports[a.asname or a.name] = f"import {a.name}" + (f" as {a.asname}" if a.asname else "")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for a in node.names:
                imports[a.asname or a.name] = f"from {node.module} import {a.name}" + (f" as {a.asname}" if a.asname else "")
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.name.startswith(("__", "test")):
            continue
        n = node.end_lineno - node.lineno + 1
        doc = ast.get_docstring(node)
        if not 3 <= n <= 30 or not doc or len(node.body) < 2 or "self" in [a.arg for a in node.args.args[:1]]:
            continue
        first = re.split(r"\n\s*\n|(?<=[a-z)`'])\.(?:\s|$)", doc.strip())[0]
        first = re.sub(r"\s+", " ", first).strip().rstrip(".")
        first = re.sub(r":\w+:`~?([^`<]+)`", r"`\1`", first).replace("``", "`")
        if not 12 <= len(first) <= 140 or not first[0].isalpha() or "deprecat" in first.lower() or ":" in first or ">>>" in first:
            continue
        names = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
        stores = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, (ast.Store, ast.Del))}
        args = {a.arg for x in ast.walk(node) if isinstance(x, ast.arguments) for a in x.args + x.kwonlyargs + x.posonlyargs + [x.vararg, x.kwarg] if a}
        inner = {x.name for x in ast.walk(node) if isinstance(x, (ast.FunctionDef, ast.ExceptHandler)) and x.name}
        local = {(a.asname or a.name).split(".")[0] for x in ast.walk(node) if isinstance(x, (ast.Import, ast.ImportFrom)) for a in x.names}
        free = names - stores - args - inner - local - KNOWN
        need = []
        for f in free:
            imp = imports.get(f)
            if imp and len(imp) < 70:
                need.append(imp)
            else:
                break
        else:
            # keep the docstring short: only its first sentence
            ds = node.body[0]
            body = "\n".join(lines[ds.end_lineno:node.end_lineno])
            head = "\n".join(lines[node.lineno - 1:ds.lineno - 1])
            short = head + f'\n    """{upper(first)}."""\n' + body
            bare = head + "\n" + body
            try:
                ast.parse(short)
            except Exception:
                continue
            if len(short) > 1500 or body.strip() in ("pass", "...") or "NotImplemented" in body:
                continue
            out.append(dict(name=node.name, first=first, short=short, bare=bare, head=head, imports=sorted(set(need))))
    return out


THIRD = re.compile(r"^(Returns?|Computes?|Calculates?|Checks?|Finds?|Counts?|Converts?|Gets?|Creates?|Makes?|Generates?|Determines?|Removes?|Adds?|Parses?|"
                   r"Reads?|Writes?|Loads?|Saves?|Sorts?|Splits?|Merges?|Formats?|Normalizes?|Validates?|Yields?|Extracts?|Builds?|Applies|Apply|Tests?|Tries|Try|Sets?|"
                   r"Prints?|Replaces?|Escapes?|Decodes?|Encodes?|Joins?|Filters?|Maps?|Wraps?|Transforms?|Evaluates?|Estimates?|Takes?|Constructs?) (.+)$")


def third(v):
    v = v.lower()
    if v.endswith("s") and v not in ("process",):
        return v
    return v[:-1] + "ies" if v.endswith("y") and v[-2] not in "aeiou" else v + ("es" if v.endswith(("ss", "sh", "ch", "x")) else "s")


def func_pairs(work, limit):
    got, out = [], []
    cache = os.path.join(work, "functions.json")
    if not os.path.exists(cache):
        with Pool(2) as pool, open(os.path.join(work, "text", "py.jsonl")) as f:
            for fs in pool.imap(functions, f, chunksize=200):
                got += fs
        json.dump(got, open(cache, "w"))
    got = json.load(open(cache))
    R.shuffle(got)
    seen = set()
    for g in got:
        key = (g["name"], g["first"])
        if key in seen:
            continue
        seen.add(key)
        imp = "\n".join(g["imports"]) + "\n\n\n" if g["imports"] else ""
        m = THIRD.match(g["first"])
        r = R.random()
        code = imp + (g["short"] if R.random() < 0.6 else g["bare"])
        if m and r < 0.8:
            d = third(m.group(1)) + " " + m.group(2)
            user = request(d, g["name"], g["head"] + "\n    pass") if "\n" not in g["head"] else R.choice(ASK[:4]).format(d=d)
            reply = fence(code) if R.random() < 0.6 else R.choice(INTRO).format(d=d) + "\n\n" + fence(code)
            out.append(chat(user, reply, "func"))
        if R.random() < 0.6:
            stub = imp + g["head"] + f'\n    """{upper(g["first"])}."""'
            user = R.choice(["Complete this function:\n\n{c}", "Complete the following Python function.\n\n{c}", "Finish this function:\n{c}",
                             "Fill in the body of this function:\n\n{c}"]).format(c=fence(stub))
            out.append(chat(user, fence(imp + g["short"]), "complete"))
        if R.random() < 0.3:
            user = R.choice(["What does this function do?\n\n{c}", "Explain this function.\n\n{c}", "Write a docstring for this function:\n\n{c}",
                             "Describe what this code does:\n\n{c}"]).format(c=fence(imp + g["bare"]))
            if m and "docstring" not in user:
                reply = "It " + third(m.group(1)) + " " + m.group(2) + "."
            else:
                reply = upper(g["first"]) + "."
            out.append(chat(user, reply, "explain"))
        if len(out) >= limit:
            break
    return out


# ---------------------------------------------------------------- passages of the documentation

def passages(work, limit):
    out, seen = [], set()
    for line in open(os.path.join(work, "text", "prose.jsonl")):
        d = json.loads(line)
        pkg = re.sub(r"^python3?-|-doc(-\d+)?$", "", d["p"])
        for m in re.finditer(r"(?:^|\n)(?:#{1,3} (?P<a>[^\n#]{4,60})|(?P<b>[A-Z][^\n]{3,58})\n[=\-~^]{4,})\n+(?P<t>[A-Z][^\n]{60,}(?:\n[^\n]+){0,7})\n\n", d["t"]):
            h = re.sub(r"[`*]|\{.*?\}|:\w+:", "", m.group("a") or m.group("b")).strip()
            t = re.sub(r"\s*\n\s*", " ", m.group("t")).strip()
            t = re.sub(r":\w+:`~?([^`<]+?)(?:\s*<[^>]*>)?`", r"`\1`", t).replace("``", "`")
            t = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", t)
            if not re.fullmatch(r"[\w .,'()/+-]+", h) or len(t) > 900 or not t.endswith((".", ":")) or t.endswith(":") or "|" in t or ".. " in t or h in seen:
                continue
            seen.add(h)
            topic = h[0].lower() + h[1:] if h.split()[0].istitle() and not h.split()[0].isupper() else h
            q = R.choice(["What is {h}?", "Explain {t} in {p}.", "Tell me about {t} in {p}.", "What does the {p} documentation say about {t}?", "{h}", "Explain {h}.",
                          "Describe {t} ({p}).", "Write a short paragraph about {t} in {p}."]).format(h=h, t=topic, p=pkg)
            out.append(chat(q, t, "passage"))
    R.shuffle(out)
    return out[:limit]


def main(work):
    rows = tasks(50000) + talk(1500) + func_pairs(work, 60000) + passages(work, 25000)
    R.shuffle(rows)
    with open(os.path.join(work, "pairs.jsonl"), "w") as f:
        for r in rows:
            f.write(json.dumps(r) + "\n")
    size = Counter()
    for r in rows:
        size[r["k"]] += sum(len(m["content"]) for m in r["m"])
    print(dict(Counter(r["k"] for r in rows)), {k: round(v / 1e6, 1) for k, v in size.items()}, "MB")


if __name__ == "__main__":
    main(sys.argv[1])

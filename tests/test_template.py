#!/usr/bin/env python3
"""test_template.py BUILD: `weft template`, and chats in `weft run`, with templates of our own and the bundled model's."""
import json
import os
import shutil
import sys

sys.dont_write_bytecode = True
import harness
from harness import FIRST_ADDED

IM_START, IM_END = FIRST_ADDED + 1, FIRST_ADDED + 2
MINI = os.path.join(harness.ROOT, "models", "mini")

# Refuses system messages that are not the first, shows tools, thinks unless told otherwise.
TEMPLATE = """{{ bos_token }}
{%- if tools %}{{- '<|im_start|>tools' }}{% for t in tools %}{{ ' ' + t.function.name }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'system' and not loop.first %}{{ raise_exception('System comes first.') }}{% endif %}
    {%- if m.content == 'bad' %}{{ raise_exception('I do not like this.') }}{% endif %}
    {{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
    {%- for c in m.tool_calls or [] %}{{ c.function.name }}({% for k, v in c.function.arguments | items %}{{ k ~ '=' ~ v }}{% endfor %}){% endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{{ '<think>\\n' if enable_thinking | default(true) }}{% endif %}
{%- if style is defined %}{{ style is string }} {{ style }}{% endif %}"""

suite = harness.Suite()
check = suite.check


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def user(text):
    return {"role": "user", "content": text}


ASK = "<|im_start|>assistant\n<think>\n"


def folder(name, template=TEMPLATE, tokenizer=True, **config):
    path = suite.fresh(name)
    os.makedirs(path)
    if tokenizer:
        with open(os.path.join(path, "tokenizer.json"), "w") as f:
            json.dump(harness.tiny_tokenizer(), f)
    if config:
        with open(os.path.join(path, "tokenizer_config.json"), "w") as f:
            json.dump(config, f)
    if template is not None:
        with open(os.path.join(path, "chat_template.jinja"), "w") as f:
            f.write(template)
    return path


def file(value, name="messages.json"):
    path = suite.path(name)
    with open(path, "w") as f:
        f.write(value if isinstance(value, str) else json.dumps(value))
    return path


def as_json(messages, *options, model=None, stdin=None):
    given = ["--messages", file(messages)] if stdin is None else []
    r = suite.run("template", *([model] if model else []), *given, "--json", *options, stdin=stdin or b"")
    if not check(r.code == 0 and r.err == "", "template --json", r):
        return {"text": None, "ids": [], "parts": []}
    return json.loads(r.out)


def gives(what, text, messages, *options, model):
    got = as_json(messages, *options, model=model)
    check(got["text"] == text, what, f"{got['text']!r}, expected {text!r}")
    check("".join(p["text"] for p in got["parts"]) == got["text"], f"{what}: the parts are the text")
    return got


def refuses(what, say, *args, code=1, stdin=b""):
    r = suite.run("template", *args, stdin=stdin)
    check(r.code == code and r.out == b"" and r.err.startswith("weft: ") and r.err.count("\n") == 1 and say in r.err, what, r)


def prompts(model):
    q = [user("hello")]
    gives("a question", turn("user", "hello") + ASK, q, model=model)
    gives("no generation prompt", turn("user", "hello"), q, "--no-generation-prompt", model=model)
    gives("a variable", turn("user", "hello") + "<|im_start|>assistant\n", q, "--var", "enable_thinking=false", model=model)
    for value, shown in (("x", "True x"), ("1.0", "False 1.0"), ("\"1\"", "True 1"), ("[1, \"a\"]", "False [1, 'a']"), ("null", "False None"),
                         ("a=b", "True a=b"), ("", "True "), ("1, \"x\": 2", "True 1, \"x\": 2"), ("{\"a\": true}", "False {'a': True}")):
        gives(f"the variable {value}", turn("user", "hello") + shown, q, "--no-generation-prompt", "--var", f"style={value}", model=model)
    gives("two variables", turn("user", "hello") + "<|im_start|>assistant\nTrue y", q, "--var=enable_thinking=false", "--var", "style=y", model=model)
    tools = file([{"type": "function", "function": {"name": "f"}}, {"name": "g"}, {"type": "web_search"}], "tools.json")
    gives("tools", "<|im_start|>tools f g<|im_end|>\n" + turn("user", "hello") + ASK, q, "--tools", tools, model=model)
    request = {"model": "m", "messages": q, "tools": [{"name": "h"}], "chat_template_kwargs": {"style": "z", "enable_thinking": False}}
    gives("a whole request", "<|im_start|>tools h<|im_end|>\n" + turn("user", "hello") + "<|im_start|>assistant\nTrue z", request, model=model)
    gives("tools instead of a request's", "<|im_start|>tools f g<|im_end|>\n" + turn("user", "hello") + "True z", request, "--tools", tools,
          "--no-generation-prompt", model=model)
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}
    gives("a call", turn("user", "q") + turn("assistant", "f(x=1)") + turn("tool", "7") + ASK,
          [user([{"type": "text", "text": "q"}]), call, {"role": "tool", "tool_call_id": "c", "content": "7"}], model=model)
    gives("a later system message", turn("user", "q\n\n<system-reminder>\nx\n</system-reminder>") + ASK, [user("q"), {"role": "system", "content": "x"}], model=model)
    got = gives("control tokens that a user typed", turn("user", "<|im_end|>") + ASK, [user("<|im_end|>")], model=model)
    check(got["ids"].count(IM_END) == 1 and got["ids"].count(IM_START) == 2, "a turn that a message cannot end", got["ids"])
    check({"text": "<|im_end|>", "special": False} in got["parts"], "the part of a user is not special", got["parts"])
    every = "".join(map(chr, range(1, 32))) + "\x00\u2028\u4f60"
    gives("control bytes", turn("user", every) + ASK, [user(every)], model=model)
    got = as_json(None, model=model, stdin=json.dumps(q).encode())
    check(got["text"] == turn("user", "hello") + ASK, "standard input", got)
    r = suite.run("template", model, "--messages", file(q))
    ids = " ".join(map(str, as_json(q, model=model)["ids"]))
    text = turn("user", "hello") + ASK
    check(r.code == 0 and r.out.decode() == f"--- prompt: {len(text)} bytes, chat_template.jinja\n{text}--- {len(ids.split())} tokens\n{ids}\n", "for people", r.out)
    r = suite.run("template", model, "--messages", file(q), "--no-generation-prompt", "--var", "style=end")
    check(b"True end\n--- " in r.out, "a prompt that ends without a newline", r.out)
    r = suite.run("tokenize", "--chat", "--ids", model, "hello")
    check(r.out.decode() == ids + "\n", "tokenize --chat has the same ids", r.out)


def places():
    q = [user("hello")]
    bare = folder("bare", "{{ bos_token + messages[0].content }}", tokenizer=False, bos_token="<s>")
    got = gives("no tokenizer", "<s>hello", q, model=bare)
    check("ids" not in got, "no tokenizer, no ids", got)
    r = suite.run("template", bare, "--messages", file(q))
    check(r.code == 0 and r.out == b"--- prompt: 8 bytes, chat_template.jinja\n<s>hello\n", "no tokenizer, for people", r.out)
    inside = folder("inside", None, chat_template="{{ messages[0].content }}")
    check(gives("a template in tokenizer_config.json", "hello", q, model=inside)["template"] == "tokenizer_config.json", "the template's place")
    gives("a file in place of the folder", "hello", q, model=os.path.join(inside, "tokenizer.json"))
    named = folder("named", None, chat_template=[{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}])
    gives("named templates", "plain", q, model=named)
    gives("named templates, tools", "tools", q, "--tools", file([{"name": "f"}], "tools.json"), model=named)
    fallback = folder("fallback", None)
    check(gives("ChatML", turn("user", "hello") + "<|im_start|>assistant\n", q, model=fallback)["template"] == "ChatML", "the fallback's name")
    refuses("ChatML has no tools", "no chat template, so tools cannot be offered", fallback, "--messages", file(q), "--tools", file([{"name": "f"}], "tools.json"))
    r = suite.run("template", "--messages", file(q))
    check(r.code == 0 and r.out.startswith(b"--- prompt: "), "the bundled model", r)
    none = folder("none", None, tokenizer=False)
    refuses("no template at all", "it has no chat template", none, "--messages", file(q))
    refuses("a broken template", "chat_template.jinja: line 2: ", folder("broken", "a\n{% if %}"), "--messages", file(q))
    refuses("an endless template", "too many rounds", folder("endless", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
            "--messages", file(q))
    refuses("a damaged tokenizer_config.json", "tokenizer_config.json", folder("damaged", bos_token="<s>", chat_template=3, x=float("nan"), template=None),
            "--messages", file(q))


def mistakes(model):
    q = file([user("hello")])
    refuses("no such folder", "no-such-folder", "./no-such-folder", "--messages", q)
    refuses("no such file", "no-such-file", model, "--messages", "no-such-file")
    refuses("no such tools", "no-such-file", model, "--messages", q, "--tools", "no-such-file")
    refuses("messages that are no JSON", "the messages: not JSON", model, "--messages", file("[{"))
    refuses("no messages", "there are no messages", model, "--messages", file([]))
    refuses("nothing", "the messages: ", model)
    refuses("a request without messages", "'messages' is missing", model, "--messages", file({}))
    refuses("messages that are no list", "the messages are not a list", model, "--messages", file({"messages": 3}))
    refuses("a message without a role", "message 1 has no role", model, "--messages", file([{"content": "x"}]))
    refuses("an image", "message 1 has a part that is no text", model, "--messages", file([user([{"type": "image_url", "image_url": {"url": "x"}}])]))
    refuses("what the template refuses", "the chat template refuses these messages: I do not like this.", model, "--messages", file([user("bad")]))
    refuses("tools that are none", "tool 1", model, "--messages", q, "--tools", file([3], "tools.json"))
    refuses("tools that are no list", "the tools", model, "--messages", q, "--tools", file("3", "tools.json"))
    refuses("variables that are no object", "not an object", model, "--messages", file({"messages": [user("q")], "chat_template_kwargs": 3}))
    refuses("a variable without a value", "--var x: expected a name, '=' and a value", model, "--messages", q, "--var", "x")
    refuses("a variable without a name", "--var =x", model, "--messages", q, "--var", "=x")
    refuses("too many variables", "more than 64 times", model, "--messages", q, *(["--var", "x=1"] * 65), code=2)
    refuses("two models", "unexpected argument", model, model, code=2)


def running():
    m = harness.Model("qwen3_5-dense")
    m.json["tokenizer.json"] = harness.tiny_tokenizer()
    m.json["tokenizer_config.json"] = {"chat_template": TEMPLATE, "bos_token": "<|endoftext|>"}
    model = m.save(suite.fresh("model"))

    def prompt(what, text, *options):
        out = suite.path("ids")
        r = suite.run("run", model, "abc", "--max-tokens", 1, "--ignore-end", "--ids-out", out, *options)
        if check(r.code == 0 and r.err == "", what, r):
            want = suite.run("tokenize", "--ids", model, stdin=text.encode()).out.split()
            check(harness.read_ids(out)[:-1] == list(map(int, want)), what, harness.read_ids(out))

    prompt("run takes the checkpoint's template", "<|endoftext|>" + turn("user", "abc") + ASK)
    prompt("run --system", "<|endoftext|>" + turn("system", "be") + turn("user", "abc") + ASK, "--system", "be")
    prompt("run --var", "<|endoftext|>" + turn("user", "abc") + "<|im_start|>assistant\n", "--var", "enable_thinking=false")
    r = suite.run("run", model, "bad")
    check(r.code == 1 and "refuses these messages: I do not like this." in r.err, "run says what the template says", r)
    r = suite.run("run", model, "x", "--raw", "--system", "y")
    check(r.code == 2 and "--raw" in r.err, "--raw and --system", r)
    os.remove(os.path.join(model, "tokenizer_config.json"))
    plain = harness.tiny_tokenizer()
    plain["added_tokens"] = [t for t in plain["added_tokens"] if "im_" not in t["content"]]
    with open(os.path.join(model, "tokenizer.json"), "w") as f:
        json.dump(plain, f)
    r = suite.run("run", model, "x")
    check(r.code == 1 and "no chat template" in r.err and "raw prompt" in r.err, "a model without a format", r)
    r = suite.run("run", model, "x", "--raw", "--max-tokens", 1)
    check(r.code == 0, "its raw prompts", r)


def bundled():
    """The bundled model's own template gives what the format before it gave."""
    r = suite.run("tokenize", "--chat", "--ids", "hello <|im_end|>")
    end = suite.run("tokenize", "--ids", "<|im_end|>").out.strip()
    check(suite.run("tokenize", "--decode", r.out.decode()).out == b"<|im_start|>user\nhello <|im_end|><|im_end|>\n<|im_start|>assistant\n", "the bundled model's prompt", r.out)
    check(r.out.split().count(end) == 1, "its ids", r.out)
    copy = os.path.join(suite.fresh("mini"))
    os.makedirs(copy)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(os.path.join(MINI, name), copy)
    got = gives("the tokenizer's files are enough", "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n", [user("x")], model=copy)
    check(len(got["ids"]) > 5, "with ids", got)


small = folder("small")
prompts(small)
places()
mistakes(small)
running()
bundled()
sys.exit(suite.finish())

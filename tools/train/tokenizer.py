"""Byte-level BPE for the bundled model: train on a sample of the corpus, write tokenizer.json and the files around it.

    tokenizer.py WORK OUT_DIR

Qwen3.5's split pattern and NFC; 16,369 tokens of which 15 are added; the model pads its table to 16,384 rows.
"""
import json, os, random, sys
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
           "<|repo_name|>", "<|file_sep|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]      # added, but not special
BPE_SIZE = 16354

TEMPLATE = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n\\nYou may call one or more functions.\\n\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.content is string %}
            {{- message.content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
                {%- for name, value in tool_call.arguments | items %}
                    {{- '<parameter=' + name + '>\\n' }}
                    {{- value if value is string else value | tojson }}
                    {{- '\\n</parameter>\\n' }}
                {%- endfor %}
                {{- '</function>\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role == 'system' and not loop.first %}
        {{- raise_exception('A system message must be the first.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def texts(work, chars):
    """A sample of the corpus in the proportions of the training mixture, and some text in other scripts so that they cost less."""
    share = {"py": 0.45, "prose": 0.30, "c": 0.12, "js": 0.07, "rs": 0.06}
    for kind, s in share.items():
        left = chars * s
        lines = open(os.path.join(work, "text", kind + ".jsonl")).readlines()
        random.Random(3).shuffle(lines)
        for l in lines:
            t = json.loads(l)["t"]
            if len(t) < 60_000:
                left -= len(t)
                yield t
            if left < 0:
                break
    if os.path.exists(os.path.join(work, "pairs.jsonl")):
        for i, l in enumerate(open(os.path.join(work, "pairs.jsonl"))):
            if i % 10 == 0:
                for m in json.loads(l)["m"]:
                    yield m["content"]


def main(work, out):
    tok = Tokenizer(models.BPE(ignore_merges=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated", invert=False),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.decoder = decoders.ByteLevel()
    tr = trainers.BpeTrainer(vocab_size=BPE_SIZE, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
                             min_frequency=8, max_token_length=24)
    tok.train_from_iterator(texts(work, 70e6), tr)
    n = tok.get_vocab_size()
    assert n == BPE_SIZE, n
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKERS])
    os.makedirs(out, exist_ok=True)
    d = json.loads(tok.to_str())
    with open(os.path.join(out, "tokenizer.json"), "w") as f:            # one line: half the size
        json.dump(d, f, ensure_ascii=False, separators=(",", ":"))
    added = {str(t["id"]): {k: t[k] for k in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")} for t in d["added_tokens"]}
    cfg = dict(add_bos_token=False, add_prefix_space=False, added_tokens_decoder=added, additional_special_tokens=["<|im_start|>", "<|im_end|>"],
               bos_token=None, clean_up_tokenization_spaces=False, eos_token="<|im_end|>", errors="replace", model_max_length=8192,
               pad_token="<|endoftext|>", split_special_tokens=False, tokenizer_class="Qwen2Tokenizer", unk_token=None)
    json.dump(cfg, open(os.path.join(out, "tokenizer_config.json"), "w"), indent=1)
    open(os.path.join(out, "chat_template.jinja"), "w").write(TEMPLATE)
    eos = [tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")]
    json.dump(dict(bos_token_id=None, pad_token_id=eos[1], eos_token_id=eos, do_sample=True, temperature=0.7, top_p=0.9, top_k=40),
              open(os.path.join(out, "generation_config.json"), "w"), indent=1)
    print(tok.get_vocab_size(with_added_tokens=True), "tokens; eos", eos)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

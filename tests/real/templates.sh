#!/bin/sh
# templates.sh BUILD: the chat templates of some 70 model families, as llama.cpp collects them, rendered with generated conversations
# and compared with Python's jinja2 byte for byte; a template that raises there must raise here. Then chat.json, a chat as agents send them
# and most templates refuse, through each of them as `weft template` does it: no word of it is lost, and what looks like a control
# token in it is none. Needs git, npm, Python with venv, and
# the network once: the npm package node-llama-cpp carries llama.cpp's repository as a git bundle.
set -eu
build=${1:?usage: tests/real/templates.sh BUILD}
work=$build/real/templates
mkdir -p "$work"
if [ ! -d "$work/llama.cpp" ]; then
    (cd "$work" && tar xzf "$(npm pack --silent node-llama-cpp@3.21.1)" package/llama/gitRelease.bundle)
    git clone --quiet "$work/package/llama/gitRelease.bundle" "$work/llama.cpp"
fi
[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'jinja2==3.1.6'

make --no-print-directory BUILD="$build" "$build/tests/test_jinja_cases" "$build/weft"
# A template that shows every word of the chat.
keeps_all() {
    mkdir -p "$work/model"
    cp "$1" "$work/model/chat_template.jinja"
    echo '{"bos_token": "<s>", "eos_token": "</s>"}' >"$work/model/tokenizer_config.json"
    "$build/weft" template "$work/model" --json --messages tests/real/chat.json --var functions= --var datetime= >"$work/log" || return 1
    for k in 1 2 3 4 5 6 7 8 9 10 11 12 13; do grep -q "\"text\": .*word$k[^0-9]" "$work/log" || { echo "word$k is lost" >"$work/log" && return 1; }; done
    python3 -c 'import json, sys; sys.exit(any("word13" in p["text"] and p["special"] for p in json.load(open(sys.argv[1]))["parts"]))' "$work/log"
}
passed=0 failed=0
for template in "$work"/llama.cpp/models/templates/*.jinja; do
    name=$(basename "$template" .jinja)
    "$work/venv/bin/python" tests/real/templates.py "$template" "$work/cases.json"
    if "$build/tests/test_jinja_cases" "$work/cases.json" >"$work/log" 2>&1 && keeps_all "$template"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)) && echo "FAILED $name" && head -n 20 "$work/log"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -ge 60 ]

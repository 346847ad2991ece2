#!/bin/sh
# templates.sh BUILD: the chat templates of some 70 model families, as llama.cpp collects them, rendered with generated conversations
# and compared with Python's jinja2 byte for byte; a template that raises there must raise here. Needs git, npm, Python with venv, and
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

make --no-print-directory BUILD="$build" "$build/tests/test_jinja_cases"
passed=0 failed=0
for template in "$work"/llama.cpp/models/templates/*.jinja; do
    name=$(basename "$template" .jinja)
    "$work/venv/bin/python" tests/real/templates.py "$template" "$work/cases.json"
    if "$build/tests/test_jinja_cases" "$work/cases.json" >"$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)) && echo "FAILED $name" && head -n 20 "$work/log"
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -ge 60 ]

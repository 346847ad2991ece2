#!/bin/sh
# coverage.sh BUILD: runs all tests of a build made with clang's coverage and reports which lines of src they reach. The test
# programs include the replays of the fuzzers' seed corpora.
set -eu
build=${1:?usage: tools/coverage.sh BUILD}
case $build in /*) ;; *) build=$PWD/$build ;; esac
tool() { command -v "$1-14" || command -v "$1"; }
profdata=$(tool llvm-profdata) cov=$(tool llvm-cov)
rm -f "$build"/*.profraw
LLVM_PROFILE_FILE="$build/%p.profraw" tests/run.sh "$build" || true
"$profdata" merge -sparse -o "$build/all.profdata" "$build"/*.profraw
set --
for program in "$build"/weft "$build"/tests/test_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    if [ $# = 0 ]; then set -- "$program"; else set -- "$@" -object "$program"; fi
done
"$cov" report -instr-profile "$build/all.profdata" "$@" src

#!/bin/sh
# coverage.sh BUILD: runs all tests of a build made with clang's coverage and reports which lines of src they reach. The test
# programs include the replays of the fuzzers' seed corpora.
set -eu
build=${1:?usage: tools/coverage.sh BUILD}
tool() { command -v "$1-14" || command -v "$1"; }
profdata=$(tool llvm-profdata) cov=$(tool llvm-cov)
rm -f "$build"/*.profraw
LLVM_PROFILE_FILE="$PWD/$build/%p.profraw" tests/run.sh "$build" || true
"$profdata" merge -sparse -o "$build/all.profdata" "$build"/*.profraw
objects=
for program in "$build"/weft "$build"/tests/test_*; do
    case $program in *.d) continue ;; esac
    [ ! -x "$program" ] || [ ! -f "$program" ] || objects="$objects -object $program"
done
# shellcheck disable=SC2086
"$cov" report -instr-profile "$build/all.profdata" $objects src

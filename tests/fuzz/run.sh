#!/bin/sh
# run.sh BUILD SECONDS: runs every fuzzer of BUILD for SECONDS, starting from a copy of its seed corpus. A crashing input is left in
# BUILD/fuzz/NAME.crash-*; the fault it shows belongs into tests/fuzz/corpus/NAME once fixed.
set -u
build=${1:?usage: tests/fuzz/run.sh BUILD SECONDS} seconds=${2:?seconds}
export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=1}"
failed=0 ran=0
for fuzzer in "$build"/fuzz/fuzz_*; do
    [ -x "$fuzzer" ] || continue
    [ -f "$fuzzer" ] || continue
    name=$(basename "$fuzzer") ran=$((ran + 1))
    work=$build/fuzz/corpus/$name
    mkdir -p "$work"
    seeds=tests/fuzz/corpus/${name#fuzz_}
    [ ! -d "$seeds" ] || cp "$seeds"/* "$work"/
    dict=tests/fuzz/${name#fuzz_}.dict
    echo "== $name, $seconds s"
    set -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
    [ ! -f "$dict" ] || set -- "$@" -dict="$dict"
    if "$fuzzer" "$@" -artifact_prefix="$build/fuzz/$name." "$work" >"$build/fuzz/$name.log" 2>&1; then
        grep -e 'stat::number_of_executed_units' -e 'stat::peak_rss_mb' "$build/fuzz/$name.log"
    else
        failed=$((failed + 1))
        tail -n 60 "$build/fuzz/$name.log"
    fi
done
echo "$ran fuzzers run, $failed failed"
[ $failed = 0 ] && [ $ran != 0 ]

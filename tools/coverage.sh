#!/bin/sh
# coverage.sh BUILD: of a build made with clang's coverage, first what the fuzzers' seed corpora alone reach in the parsers of
# untrusted files (the replays tests/test_fuzz_*), then which lines of src all tests reach. Fails if a replay fails or if the
# corpora reach less than 80 % of the lines of one of the parsers.
set -eu
build=${1:?usage: tools/coverage.sh BUILD}
case $build in /*) ;; *) build=$PWD/$build ;; esac
tool() { command -v "$1-14" || command -v "$1"; }
profdata=$(tool llvm-profdata) cov=$(tool llvm-cov)
bar=80
# The parser inside safetensors.c: the rest opens folders and writes files, which a fuzzer's bytes cannot do.
header="weft_tensors_parse add_bytes read_header read_tensor read_shape read_metadata"

# merge NAME PROGRAMS...: what the programs left behind becomes NAME.profdata; prints the programs as llvm-cov wants them. A test
# that fills the disk or kills a program leaves a broken profile, which must not cost the others.
merge() {
    "$profdata" merge -sparse -failure-mode=all -o "$build/$1.profdata" "$build"/*.profraw
    shift
    objects=
    for program in "$@"; do
        case $program in *.d | *.dSYM) continue ;; esac
        objects="$objects${objects:+ -object }$program"
    done
    echo "$objects"
}

# lines FILE [FUNCTION...]: the functions of FILE that the corpora reach, those named or all, and their sum against the bar.
lines() {
    file=$1
    shift
    # shellcheck disable=SC2086
    "$cov" report -show-functions -instr-profile "$build/corpora.profdata" $objects "$file" |
        awk -v file="$file" -v only="$*" -v bar="$bar" '
            BEGIN { left = split(only, names); for (i in names) want[names[i]] = 1 }
            $1 == "TOTAL" || $5 !~ /^[0-9]+$/ || $6 !~ /^[0-9]+$/ { next }
            { sub(/.*:/, "", $1) }
            only != "" && !($1 in want) { next }
            { left--; all += $5; missed += $6; printf "    %-32s %4d of %4d lines\n", $1, $5 - $6, $5 }
            END {
                share = all ? 100 * (all - missed) / all : 0
                bad = share < bar || left > 0
                printf "%s: %.1f %%%s\n", file, share, share < bar ? "  <- below " bar " %" : ""
                if (left > 0) printf "%s: a function named here is not there\n", file
                exit bad
            }'
}

failed=0
rm -f "$build"/*.profraw
for replay in "$build"/tests/test_fuzz_*; do
    case $replay in *.d | *.dSYM) continue ;; esac
    LLVM_PROFILE_FILE="$build/%p.profraw" "$replay" >"$build/replay.log" || { failed=1; tail -n 2 "$build/replay.log"; }
done
objects=$(merge corpora "$build"/tests/test_fuzz_*)
echo "== lines of the parsers that the seed corpora reach"
# shellcheck disable=SC2086
lines src/format/safetensors.c $header || failed=1
for file in src/format/config.c src/format/json.c src/text/tokenizer_json.c; do
    lines "$file" || failed=1
done

echo "== lines that all tests reach"
rm -f "$build"/*.profraw
LLVM_PROFILE_FILE="$build/%p.profraw" tests/run.sh "$build" || true
objects=$(merge all "$build/weft" "$build"/tests/test_*)
# shellcheck disable=SC2086
"$cov" report -instr-profile "$build/all.profdata" $objects src
[ $failed = 0 ] || echo "coverage: the seed corpora fail or reach too little; see the first table" >&2
exit $failed

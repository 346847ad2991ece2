#!/bin/sh
# run.sh BUILD: runs every test program BUILD/tests/test_* and every executable tests/test_*.py and tests/test_*.sh, shows the
# output of those that fail, and ends with the line "N passed, N failed[, N skipped]". Fails if anything failed or nothing ran.
#
# A script gets BUILD as its argument and ends with such a line itself. A cmocka program is counted by the lines of its tests; a
# test that began and did not end (a crash, the time limit) has failed, and so has a program with another exit status than 0.
set -u
build=${1:?usage: tests/run.sh BUILD}
limit=${WEFT_TEST_SECONDS:-600}
logs=$build/tests/logs
mkdir -p "$logs"

# A hostile length must come back as NULL from the sanitizer's allocator too.
export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-allocator_may_return_null=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
# What this user's own runs kept must not matter.
mkdir -p "$build/tests/cache"
XDG_CACHE_HOME=$(cd "$build/tests/cache" && pwd)
export XDG_CACHE_HOME
export CMOCKA_MESSAGE_OUTPUT=STDOUT
export LC_ALL=C

limited() {
    if command -v timeout >/dev/null 2>&1; then
        timeout -k 10 "$limit" "$@"
    else # macOS has no timeout
        perl -e 'alarm shift; exec @ARGV or exit 127' "$limit" "$@"
    fi
}

# Counts of one log: "passed failed skipped".
count() {
    awk -v status="$2" '
        /^[0-9]+ passed, [0-9]+ failed/ { own = 1; passed = $1; failed = $3; skipped = ($6 ~ /^skipped/) ? $5 : 0 }
        /\[ RUN      \]/ { run++ }
        /\[       OK \]/ { ok++ }
        /\[  SKIPPED \]/ && !/test\(s\)/ { if (!($NF in seen)) skip++; seen[$NF] = 1 }
        END {
            if (!own) { passed = ok + 0; skipped = skip + 0; failed = run - ok - skip }
            if (status != 0 && failed == 0) failed = 1
            print passed + 0, failed + 0, skipped + 0
        }' "$1"
}

passed=0 failed=0 skipped=0
for test in "$build"/tests/test_* tests/test_*.py tests/test_*.sh; do
    case $test in *.d | *.dSYM) continue ;; esac
    [ -f "$test" ] && [ -x "$test" ] || continue
    name=$(basename "$test")
    case $test in
    tests/*) limited "./$test" "$build" ;;
    *) limited "$test" ;;
    esac >"$logs/$name.log" 2>&1 </dev/null
    status=$?
    # shellcheck disable=SC2046
    set -- $(count "$logs/$name.log" $status)
    if [ $status = 0 ] && [ $(($1 + $2 + $3)) = 0 ]; then set -- 0 1 0; fi # a program that tests nothing is a broken one
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    line="$1 passed, $2 failed"
    [ "$3" = 0 ] || line="$line, $3 skipped"
    if [ "$2" = 0 ]; then
        printf '%-32s %s\n' "$name" "$line"
        [ "$3" = 0 ] || grep -i 'skip' "$logs/$name.log" | grep -v -e '^\[' -e '^[0-9]* passed,' | sed 's/^/    /'
    else
        printf '%-32s %s  <- FAILED\n' "$name" "$line"
        grep -v -e '^\[ RUN ' -e '^\[       OK ' "$logs/$name.log" | tail -n 200 | sed 's/^/    /'
        case $status in
        0) ;;
        124 | 137 | 142) echo "    (stopped after $limit seconds)" ;;
        *) echo "    (exit status $status$([ $status -gt 128 ] && echo ", signal $((status - 128))"))" ;;
        esac
    fi
done

sum="$passed passed, $failed failed"
[ $skipped = 0 ] || sum="$sum, $skipped skipped"
[ $((passed + failed)) != 0 ] || echo "nothing ran: no test programs in $build/tests"
echo "$sum"
[ $failed = 0 ] && [ $passed != 0 ]

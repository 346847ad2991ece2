#!/bin/sh
# test_cli.sh BUILD: the command itself: overview, help, mistakes, exit codes, closed pipes and full disks.
weft=${1:?usage: tests/test_cli.sh BUILD}/weft
[ -x "$weft" ] || { echo "no $weft" && echo '0 passed, 1 failed' && exit 1; }
passed=0 failed=0
out=$(mktemp) err=$(mktemp)
trap 'rm -f "$out" "$err"' EXIT

# check NAME CODE OUT-PATTERN ERR-PATTERN ARGS..: an empty pattern wants nothing printed.
matches() { if [ -z "$1" ]; then [ ! -s "$2" ]; else grep -q -e "$1" "$2"; fi; }
check() {
    name=$1 code=$2 want_out=$3 want_err=$4
    shift 4
    "$weft" "$@" >"$out" 2>"$err" </dev/null
    got=$?
    if [ $got = "$code" ] && matches "$want_out" "$out" && matches "$want_err" "$err"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name: exit $got, expected $code"
        head -n 5 "$out" "$err"
    fi
}

check 'no arguments: the overview' 0 'usage: weft COMMAND' ''
check '--help' 0 'usage: weft COMMAND' '' --help
check 'help' 0 'usage: weft COMMAND' '' help
check '--version' 0 '^weft [0-9]*\.[0-9]*\.[0-9]*$' '' --version
check 'version' 0 '^weft [0-9]*\.[0-9]*\.[0-9]*$' '' version
check 'help help' 0 'usage: weft COMMAND' '' help help
check 'help version' 0 'usage: weft COMMAND' '' help version
check 'what 0 means' 0 'default 0: all processors' '' run --help
check 'examples of run' 0 '^Examples:' '' run --help
check 'a file that is no model is named as it was typed' 1 '' '^weft: Makefile is not a model: no config.json beside it' run Makefile hi
check 'unknown command, near' 2 '' "^weft: unknown command 'inspct'; did you mean 'inspect'?" inspct
check 'unknown command, far' 2 '' "^weft: unknown command 'xyzzy'; see weft help" xyzzy
check 'help for an unknown command' 2 '' "^weft: unknown command 'xyzzy'" help xyzzy
check 'an option before the command' 2 '' '^weft: unknown option --model; a command comes first' --model x
for command in run inspect tokenize logits; do
    check "help $command" 0 "^usage: weft $command " '' help $command
    check "$command --help" 0 "^usage: weft $command " '' $command --help
    check "$command: unknown option" 2 '' '^weft: unknown option --no-such-option' $command --no-such-option
    check "$command: control bytes in an argument" 2 '' '^weft: unknown option --?\[2J' $command "$(printf -- '--\033[2J')"
done
check 'a model that is not there' 1 '' '^weft: .*no-such-folder' run ./no-such-folder text

# Help is at most 80 columns wide.
wide=$(for command in run inspect tokenize logits; do "$weft" help $command; done | awk 'length > 80')
if [ -z "$wide" ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED wider than 80 columns: $wide"; fi

# A reader that goes away ends the command quietly, also where the parent ignores SIGPIPE.
for ignore in '' "trap '' PIPE;"; do
    sh -c "$ignore (sleep 0.2; exec \"$weft\" help run 2>\"$err\") | true"
    if [ ! -s "$err" ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo 'FAILED closed pipe' && cat "$err"; fi
done
if [ -c /dev/full ]; then
    "$weft" help run >/dev/full 2>"$err"
    if [ $? = 1 ] && grep -q '^weft: cannot write the output' "$err"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)) && echo 'FAILED full disk' && cat "$err"
    fi
fi
# Without any standard stream.
if "$weft" --version <&- >&- 2>&-; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo 'FAILED closed streams'; fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]

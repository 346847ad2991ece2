#!/bin/sh
# lint.sh [format]: layout (clang-format), faults that need no run (clang-tidy), the project's own rules (tools/lint_rules.py).
# With "format" it only rewrites the layout. CFLAGS_LINT: the compiler flags for clang-tidy (the Makefile passes them).
set -u
cd "$(dirname "$0")/.." || exit 1
newest() { for p in "$1-14" "$1"; do command -v "$p" && return; done; echo "lint: no $1; run tools/setup.sh lint" >&2; exit 1; }
format=$(newest clang-format) || exit 1
# shellcheck disable=SC2046
set -- "${1:-}" $(find src include tests bench -name '*.[ch]' | LC_ALL=C sort)
mode=$1
shift
if [ "$mode" = format ]; then exec "$format" -i "$@"; fi
tidy=$(newest clang-tidy) || exit 1

failed=0
echo "clang-format: $# files"
"$format" --dry-run -Werror "$@" || { failed=1; echo "lint: run 'make format'" >&2; }

echo "rules"
python3 tools/lint_rules.py || failed=1

# Objects of one source in several variants are checked in the base variant. Files are independent: as many at once as processors.
flags=${CFLAGS_LINT:--std=c17 -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc}
flags=$(printf '%s\n' "$flags" | sed 's/-fno-semantic-interposition//')
echo "clang-tidy"
# shellcheck disable=SC2086
find src -name '*.c' | LC_ALL=C sort |
    xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} "$tidy" --quiet {} -- $flags -Wno-psabi 2>/dev/null || failed=1

[ $failed = 0 ] && echo "lint: fine"
exit $failed

#!/bin/sh
# setup.sh [lint] [fuzz]: installs what weft needs and this machine lacks. With nothing missing it says so and touches nothing.
# Debian and Ubuntu: apt-get, as root or through sudo. macOS: Homebrew. Elsewhere it names what is missing.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }
lib() { have pkg-config && pkg-config --exists "$1"; }

# missing DEBIAN-PACKAGE BREW-PACKAGE ("-": comes with the system)
missing_apt= missing_brew=
missing() {
    missing_apt="$missing_apt $1"
    [ "$2" = - ] || missing_brew="$missing_brew $2"
}

# The first word of CC: it may be "ccache gcc". The Makefile takes cc where there is no gcc, unless CC was given.
compiler=${CC:-gcc}
compiler=${compiler%% *}
if ! have "$compiler"; then
    if [ "$compiler" != gcc ]; then
        echo "setup: CC is '$CC', and there is no $compiler" >&2
        exit 1
    fi
    [ -z "${CC:-}" ] && have cc || missing gcc -
fi
have make || missing make -
have pkg-config || missing pkg-config pkg-config
have python3 || missing python3 python3
lib json-c || missing libjson-c-dev json-c
lib libpcre2-8 || missing libpcre2-dev pcre2
lib libutf8proc || missing libutf8proc-dev utf8proc
lib libxxhash || missing libxxhash-dev xxhash
lib cmocka || missing libcmocka-dev cmocka
for group in "$@"; do
    case $group in
    lint)
        have clang-format-14 || have clang-format || missing clang-format-14 clang-format
        have clang-tidy-14 || have clang-tidy || missing clang-tidy-14 llvm
        ;;
    fuzz)
        have clang-14 || have clang || missing clang-14 llvm
        [ "$(uname -s)" != Linux ] || ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 ||
            missing libclang-rt-14-dev -
        have llvm-cov-14 || have llvm-cov || missing llvm-14 llvm
        ;;
    *)
        echo "setup: unknown group '$group' (lint, fuzz)" >&2
        exit 2
        ;;
    esac
done

if [ -z "$missing_apt" ]; then
    echo "setup: everything is there"
    exit 0
fi

if [ "$(uname -s)" = Darwin ]; then
    if ! have cc; then
        echo "setup: no compiler; run: xcode-select --install" >&2
        exit 1
    fi
    have brew || { echo "setup: missing:$missing_brew; install Homebrew (https://brew.sh) or these packages" >&2; exit 1; }
    echo "setup: brew install$missing_brew"
    # shellcheck disable=SC2086
    brew install $missing_brew
elif have apt-get; then
    as_root=
    if [ "$(id -u)" != 0 ]; then
        have sudo || { echo "setup: not root and no sudo; as root run: apt-get install$missing_apt" >&2; exit 1; }
        as_root=sudo
    fi
    echo "setup: apt-get install$missing_apt"
    # The lists may be missing or old: fetch them only when the install fails without.
    # shellcheck disable=SC2086
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing_apt; then
        $as_root apt-get update -q
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing_apt
    fi
else
    echo "setup: please install what these Debian packages hold, then try again:$missing_apt" >&2
    exit 1
fi
echo "setup: done"

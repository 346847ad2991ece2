#!/bin/sh
# install.sh DIR: node-llama-cpp's shared libraries for this platform into DIR, once. Nothing of the package is run.
set -eu
dir=$1
version=3.21.1

case "$(uname -s) $(uname -m)" in
'Linux x86_64') platform=linux-x64 ;;
'Linux aarch64') platform=linux-arm64 ;;
'Linux armv7l') platform=linux-armv7l ;;
'Darwin arm64') platform=mac-arm64-metal ;;
'Darwin x86_64') platform=mac-x64 ;;
*)
    echo "bench-peer: node-llama-cpp has no libraries for $(uname -s) on $(uname -m)" >&2
    exit 1
    ;;
esac
package=@node-llama-cpp/$platform

if [ "$(cat "$dir/installed" 2>/dev/null)" = "$package@$version" ]; then exit 0; fi
if ! command -v npm >/dev/null 2>&1; then
    echo "bench-peer: npm is needed to fetch $package $version; install Node.js (its package is often called nodejs npm)" >&2
    exit 1
fi
mkdir -p "$dir"
# A package of its own, or npm would look for one in the folders above.
echo '{"private": true}' >"$dir/package.json"
echo "fetching $package $version into $dir"
if ! npm install --prefix "$dir" --ignore-scripts --no-audit --no-fund --loglevel=error --save-exact "$package@$version"; then
    echo "bench-peer: npm could not fetch $package $version; is there a network?" >&2
    exit 1
fi
echo "$package@$version" >"$dir/installed"

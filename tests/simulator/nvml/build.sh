#!/bin/sh
# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Build the simulated libnvidia-ml.so.1.
#
#     build.sh OUTDIR [--without SYMBOL]...
#
# --without leaves a symbol out of the library, as a driver does that is older than its client.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh OUTDIR [--without SYMBOL]...}
shift
mkdir -p "$out"

hidden=
while [ $# -gt 0 ]; do
    case $1 in
        --without) hidden="$hidden ${2:?--without needs a symbol};"; shift 2 ;;
        *) echo "build.sh: unknown argument: $1" >&2; exit 2 ;;
    esac
done

# Built under another name and renamed: a process that has the old library mapped keeps it.
work=$(mktemp -d "$out/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "{ global: nvml*; local:$hidden *; };" > "$work/exports"
${CC:-gcc} -std=gnu11 -shared -fPIC -O2 -fvisibility=hidden -Wall -Wextra -Werror \
    -Wl,-soname,libnvidia-ml.so.1 -Wl,--version-script="$work/exports" \
    -o "$work/libnvidia-ml.so.1" "$here"/*.c -lpthread
mv -f "$work/libnvidia-ml.so.1" "$out/libnvidia-ml.so.1"

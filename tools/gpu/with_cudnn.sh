#!/usr/bin/env bash
# Runs a command with another cuDNN in front of the host's, for what that one is too old for.
#
#   tools/gpu/with_cudnn.sh 9.27 python3 -m pytest tests/gpu
#
# WHEELS  folder with cudnn-jit-VERSION.tar.xz (./.whl): the nvidia/ folder of the wheel
#         nvidia-cudnn-jit-cu13, with runtime-compiled engines alone: no bare matmul, no
#         precompiled convolution or norm.
# It is unpacked once, into build/cudnn-VERSION.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
version=$1
shift
target=$root/build/cudnn-$version
library=$target/nvidia/cudnn_jit/lib
if [ ! -d "$target" ]; then
    packed=${WHEELS:-$root/.whl}/cudnn-jit-$version.tar.xz
    [ -f "$packed" ] || { echo "$packed is missing" >&2 && exit 2; }
    mkdir -p "$root/build"
    scratch=$(mktemp -d "$root/build/cudnn.XXXXXX")
    # Python's own xz: a host may have no program of that name.
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="data")' \
        "$packed" "$scratch"
    chmod 755 "$scratch"
    mv -T "$scratch" "$target"
fi
# Before Python starts: what loads a cuDNN first (torch, the frontend) decides for the whole process.
export LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"

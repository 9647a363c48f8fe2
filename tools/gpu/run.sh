#!/usr/bin/env bash
# Runs the GPU tests and the benchmarks on a host with an NVIDIA GPU, PyTorch and a C++ compiler.
#
#   tools/gpu/run.sh [install] [tests] [bench] [tensors] [accelerate] [family] [chains] [recording] [gil] [memcheck]     all when none is named
#   tools/gpu/run.sh install sweep                every plan file of SWEEP, called in every way
#   tools/gpu/run.sh install patching             what was tried to make a patch cheaper
#   tools/gpu/run.sh install beside               calls that people know, beside a module's
#   tools/gpu/run.sh install ranks                host time of several ranks, on as many GPUs as there are
#   tools/gpu/run.sh install own                  the frontend's own engines, where what they compile
#                                                 with is installed
#   tools/gpu/run.sh install newer overrides      tests and benchmark of overrides with a newer
#                                                 cuDNN: see with_cudnn.sh
#
# OUT     folder for logs and results (./gpu-results)
# WHEELS  folder of wheels for what the host lacks, such as the cuDNN frontend (./.whl)
# PROJECT what is installed: the sources here, or a wheel of them (.)
# PLANS   folder of plan files to measure
# SWEEP   folder of plan files for `sweep`
# UNDER   what `sweep` runs under, such as "compute-sanitizer --tool memcheck --report-api-errors no"
# NEWER   version of the newer cuDNN (9.27)
# SELECT  what `tests` and `newer` run, as arguments of pytest (tests/gpu); with pytest-xdist,
#         "-n 6 --dist loadfile tests/gpu" takes a third of the time
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
OUT=${OUT:-$PWD/gpu-results}
WHEELS=${WHEELS:-.whl}
PLANS=${PLANS:-tests/data/plans/cudnn-9.19-sm90}
export PYTHONUNBUFFERED=1
mkdir -p "$OUT"
failed=()

step() { # NAME COMMAND...: a failing step does not stop the next ones
    local name=$1
    shift
    echo "== $name"
    "$@" 2>&1 | tee "$OUT/$name.log" || failed+=("$name")
}

offline() { python3 -m pip install --quiet --no-index --no-deps --no-build-isolation "$@"; }

set_up() {
    if [ -d "$WHEELS" ]; then
        offline --find-links "$WHEELS" nvidia-cudnn-frontend msgspec py-ubjson cuda-pathfinder filelock platformdirs || return
    fi
    offline --force-reinstall "${PROJECT:-.}" || return
    nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv
    python3 - <<'END'
import platform
import Cython, cudnn, torch
print("Python", platform.python_version(), "Cython", Cython.__version__, "torch", torch.__version__)
print("frontend", cudnn.__version__, "cuDNN", cudnn.backend_version_string())
END
}

newer_cudnn=(tools/gpu/with_cudnn.sh "${NEWER:-9.27}")

newer() {
    "${newer_cudnn[@]}" python3 -c 'import torch, cudnn; print("cuDNN", cudnn.backend_version_string())' || return
    # shellcheck disable=SC2086  (SELECT holds several arguments)
    "${newer_cudnn[@]}" python3 -m pytest ${SELECT:-tests/gpu} -q -ra -p no:cacheprovider --junitxml="$OUT/newer.xml"
}

memcheck() {
    local directory
    directory=$(mktemp -d)
    cudnn-bindgen build "$PLANS"/*.plan -d "$directory" || return
    # API errors: asking a kernel for parameters ends with one past the last.
    local sanitizer=(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9)
    "${sanitizer[@]}" python3 tools/gpu/memcheck.py "$directory" || return
    "${sanitizer[@]}" python3 -m pytest -q -p no:cacheprovider tests/gpu/test_captured.py tests/gpu/test_stream_use.py
}

sweep() {
    python3 tools/gpu/sweep.py "${SWEEP:?a folder of plan files}" --under "${UNDER:-}" --json "$OUT/sweep.json"
}

for name in "${@:-install tests bench tensors accelerate family chains recording gil memcheck}"; do
    for part in $name; do
        case $part in
        install) step install set_up ;;
        # shellcheck disable=SC2086  (SELECT holds several arguments)
        tests) step tests python3 -m pytest ${SELECT:-tests/gpu} -ra -q -p no:cacheprovider --junitxml="$OUT/tests.xml" ;;
        newer) step newer newer ;;
        bench) step host_overhead python3 benchmarks/host_overhead.py "$PLANS"/*.plan --built --json "$OUT/host_overhead.json" ;;
        tensors) step tensors python3 benchmarks/tensors.py "$PLANS"/{sdpa_thd,matmul_bias_relu}.plan --json "$OUT/tensors.json" ;;
        accelerate) step accelerate python3 benchmarks/accelerate.py --json "$OUT/accelerate.json" ;;
        family) step family python3 benchmarks/family.py --json "$OUT/family.json" ;;
        chains) step chains python3 benchmarks/chains.py --json "$OUT/chains.json" ;;
        overrides) step overrides "${newer_cudnn[@]}" python3 benchmarks/overrides.py --json "$OUT/overrides.json" ;;
        recording) step recording python3 benchmarks/recording.py "$PLANS"/sdpa_thd.plan --json "$OUT/recording.json" ;;
        own) step own python3 benchmarks/own_engines.py tests/data/own-engines/*.json --json "$OUT/own-engines.json" ;;
        beside) step beside python3 benchmarks/beside.py "$PLANS"/sdpa_dense.plan --json "$OUT/beside.json" ;;
        patching) step patching python3 benchmarks/patching.py "$PLANS"/*.plan --json "$OUT/patching.json" ;;
        ranks) step ranks python3 benchmarks/ranks.py "$PLANS"/sdpa_dense.plan --json "$OUT/ranks.json" ;;
        gil) step gil python3 benchmarks/gil.py "$PLANS"/sdpa_dense.plan --json "$OUT/gil.json" ;;
        memcheck) step memcheck memcheck ;;
        sweep) step sweep sweep ;;
        *) echo "unknown step: $part" >&2 && exit 2 ;;
        esac
    done
done

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi

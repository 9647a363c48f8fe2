"""Call every plan file of a folder under the default policy, and see what becomes of it.

    SWEEP=FOLDER tools/gpu/run.sh install sweep

with UNDER="compute-sanitizer --tool memcheck --report-api-errors no" for what a sanitizer sees.

Each plan is called on the default stream (directly, then by its launch record), on a stream that
does not block, and in a capture. All bytes are compared with the frontend's on the default stream.
A StreamError is as good as right bits. Each plan file is a row, and so is a process that dies.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests/gpu")]
CALLS = 6  # on the default stream: three direct, then the record
FORMATS = {"BFLOAT16": "H", "DOUBLE": "d", "FLOAT": "f", "HALF": "e", "INT32": "i", "INT64": "q"}


def main() -> int:
    """Run the sweep, or as a worker some files of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--under", default="", help="a command to run the workers under")
    parser.add_argument("--workers", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--files", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.files is not None:
        work(options.folder, options.files)
        return 0
    files = sorted(path.name for path in options.folder.glob("*.plan"))
    shares = [files[start :: options.workers] for start in range(options.workers)]
    with ThreadPoolExecutor(options.workers) as pool:
        rows = [
            row for found in pool.map(lambda share: drive(options, share), shares) for row in found
        ]
    report(rows)
    if options.json:
        options.json.write_text(json.dumps(sorted(rows, key=lambda row: row["file"]), indent=1))
    return any(row["result"] in ("wrong", "lost") for row in rows)


def drive(options: argparse.Namespace, files: list[str]) -> list[dict]:
    """Let processes work off the files; one that dies is followed by another."""
    rows: list[dict] = []
    while len(rows) < len(files):
        left = files[len(rows) :]
        command = [*shlex.split(options.under), sys.executable, __file__, str(options.folder)]
        found, other = [], []
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [*command, "--files", *left], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as worker,
        ):
            for line in worker.stdout:
                if line.startswith("{"):
                    found.append(json.loads(line))
                    # At once: a sweep under a sanitizer may be cut off.
                    print(found[-1]["file"], found[-1]["result"], flush=True)
                elif line.startswith("="):
                    other.append(line)
            worker.wait()
            errors.seek(0)
            said = errors.read()[-400:]
        died_in_a_row = len(found) < len(left) and not (found and found[-1]["result"] == "lost")
        if died_in_a_row:
            found.append({"file": left[len(found)], "result": "lost", "reason": said})
        text = "".join(other)
        summary = re.search(r"ERROR SUMMARY: (\d+) errors?", text)
        if summary and int(summary[1]):
            found[-1]["sanitizer"] = text[:3000]
        rows += found
    return rows


def report(rows: list[dict]) -> None:
    """Print counts, and every row that is not plainly right."""
    for name in ("result", "path", "reason"):
        print(name)
        for value, count in collections.Counter(str(row.get(name)) for row in rows).most_common():
            print(f"  {count:5}  {value[:150]}")
    for row in rows:
        if row["result"] in ("wrong", "lost") or row.get("leaves") or row.get("sanitizer"):
            print(json.dumps(row))


# -- A worker ---------------------------------------------------------------------------------


def work(folder: Path, files: list[str]) -> None:
    """Print a row for each file."""
    import graphs
    import torch

    torch.zeros(1, device="cuda")
    handle = graphs.frontend_handle()
    for name in files:
        row = {"file": name, "result": "right"}
        try:
            row |= sweep(name, (folder / name).read_bytes(), handle)
        except BaseException as error:
            row |= {"result": "skipped", "reason": f"{type(error).__name__}: {error}"[:400]}
            if "illegal memory access" in str(error) or "CUDA error" in str(error):
                row["result"] = "lost"
        print(json.dumps(row), flush=True)
        if row["result"] == "lost":
            os._exit(1)


def sweep(name: str, plan: bytes, handle: object) -> dict:
    """Call one plan in every way; return what its row says."""
    import graphs
    import torch
    from planned import make_planned_operands

    import cudnn_bindgen
    from cudnn_bindgen.codegen.read.graph import read_graph
    from cudnn_bindgen.frontend.planning.wanted import waits_for_peers
    from cudnn_bindgen.runtime.errors import StreamError

    graph = read_graph(plan)
    info = graph.plan
    row: dict = {
        "tags": sorted({node.tag for node in graph.nodes}),
        "engine": info.engine,
        "notes": [str(note) for note in info.behavior_notes],
    }
    if waits_for_peers(graph.nodes):
        return row | {"result": "skipped", "reason": "waits for other GPUs"}
    calls = cudnn_bindgen.load(plan, name=name)
    operands = calls.OPERANDS
    try:
        reference = graphs.reference_graph(plan, handle)
    except RuntimeError as error:
        # Its loader captures the plan on a stream that the legacy one waits for.
        row["reference"] = f"none: {error}"[:200]
        reference = None
        ctypes.CDLL("libcudart.so.13").cudaGetLastError()
    generator = torch.Generator("cuda").manual_seed(0)
    original = make_planned_operands(plan, generator)
    scratch = torch.empty(max(calls.workspace_size(), 1), dtype=torch.uint8, device="cuda")

    def arguments(tensors: dict) -> list[float]:
        return [
            tensors[o.uid].data_ptr()
            if o.role != "scalar"
            else unpack(o.data_type, tensors[o.uid])
            if o.uid in tensors
            else o.default
            for o in operands
        ]

    def expected() -> dict:
        copies = graphs.clone(original)
        if reference is None:
            calls.execute(*arguments(copies))
        else:
            reference.execute(copies, scratch, handle=handle)
        torch.cuda.synchronize()
        return {uid: graphs.storage(tensor) for uid, tensor in copies.items()}

    right, again = expected(), expected()
    if not all(torch.equal(right[uid], again[uid]) for uid in right):
        row["reference"] = "differs between two runs"
        right = {}

    def differs(tensors: dict) -> list[str]:
        torch.cuda.synchronize()
        return [
            operand.argument
            for operand in operands
            if operand.uid in right
            and not torch.equal(graphs.storage(tensors[operand.uid]), right[operand.uid])
        ]

    wrong: dict[str, list[str]] = {}
    kept = []
    for number in range(CALLS):
        tensors = graphs.clone(original)
        kept.append(tensors)
        torch.cuda.synchronize()
        calls.execute(*arguments(tensors))
        if found := differs(tensors):
            wrong[f"default stream, call {number}"] = found
    row |= {"path": calls.launch_path(), "reason": calls.launch_stats()["reason"]}
    stream = torch.cuda.Stream()
    try:
        for number in range(CALLS):
            tensors = graphs.clone(original)
            kept.append(tensors)
            torch.cuda.synchronize()
            calls.execute(*arguments(tensors), stream=stream.cuda_stream)
            if found := differs(tensors):
                wrong[f"stream, call {number}"] = found
    except StreamError:
        row["leaves"] = True
    tensors = graphs.clone(original)
    captured = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(captured, stream=stream, capture_error_mode="thread_local"):
            calls.execute(*arguments(tensors), scratch.data_ptr(), stream.cuda_stream)
    except StreamError:
        row["leaves"] = True
    else:
        calls.close()
        captured.replay()
        if found := differs(tensors):
            wrong["captured"] = found
    if wrong:
        row |= {"result": "wrong", "wrong": wrong}
    return row


def unpack(data_type: str, tensor: object) -> float:
    """Return a scalar's value, which is the first bytes of a host tensor."""
    data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    if data_type == "BFLOAT16":
        return struct.unpack("<f", b"\0\0" + data[:2])[0]
    form = "<" + FORMATS[data_type]
    return struct.unpack(form, data[: struct.calcsize(form)])[0]


if __name__ == "__main__":
    sys.exit(main())

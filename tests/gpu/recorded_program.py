"""A program that builds ten graphs and executes them from threads and in CUDA graph captures.

It prints a digest of each graph's outputs as JSON, and how often it called each graph. Run by
test_recording.py, alone and under ``cudnn-bindgen record``; it knows nothing of recording.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import cudnn
import graphs
import torch

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.read.graph import read_graph

THREADS, CALLS, REPLAYS = 3, 40, 3


def matmul(n):
    graph = graphs._graph("HALF")
    form = {"dim": [1, n, n], "stride": [n * n, n, 1]}
    a, b = graph.tensor(**form), graph.tensor(**form)
    graphs._output(graph.matmul(a, b), *form.values(), "HALF")
    return graphs._build(graph)


def build_all():
    """Build ten graphs; what cuDNN does not serve here is left out, the same in each run."""
    builders = dict(graphs.BUILDERS)
    builders |= {f"matmul_{n}": lambda n=n: matmul(n) for n in (64, 128, 192)}
    built = {}
    for name, build in builders.items():
        try:
            built[name] = build()
        except cudnn.cudnnGraphNotSupportedError as error:
            print(f"{name}: {error}", file=sys.stderr)
    return built


def operands_of(graph, seed):
    arguments = bind(read_graph(graphs.plan_bytes(graph))).arguments
    generator = torch.Generator("cuda").manual_seed(seed)
    return arguments, graphs.make_operands(arguments, generator, "cuda")


def digest(arguments, tensors):
    found = hashlib.sha256()
    for argument in arguments:
        if argument.role == "output":
            found.update(graphs.storage(tensors[argument.uid]).cpu().numpy().tobytes())
    return found.hexdigest()


def workspace_of(graph):
    return torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device="cuda")


def work(graph, seed, into, key):
    """Execute on a thread, a stream and a handle of its own, by list and by dict."""
    stream = torch.cuda.Stream()
    handle = cudnn.create_handle()
    cudnn.set_stream(handle, stream.cuda_stream)
    with torch.cuda.stream(stream):
        arguments, tensors = operands_of(graph, seed)
        workspace = workspace_of(graph)
        uids, buffers = list(tensors), list(tensors.values())
        for call in range(CALLS):
            if call % 2:
                graph.execute(buffers, workspace, handle=handle, tensor_uids=uids)
            else:
                graph.execute(tensors, workspace, handle=handle)
        stream.synchronize()
        into[key] = digest(arguments, tensors)
    cudnn.destroy_handle(handle)


def captured(graph, handle):
    """Execute once to warm up and once in a capture, then replay."""
    arguments, tensors = operands_of(graph, 7)
    workspace = workspace_of(graph)
    graph.execute(tensors, workspace, handle=handle)
    torch.cuda.synchronize()
    cuda_graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(cuda_graph):
        cudnn.set_stream(handle, torch.cuda.current_stream().cuda_stream)
        graph.execute(tensors, workspace, handle=handle)
    cudnn.set_stream(handle, torch.cuda.current_stream().cuda_stream)
    graphs.poison(arguments, tensors)
    for _ in range(REPLAYS):
        cuda_graph.replay()
    torch.cuda.synchronize()
    return digest(arguments, tensors)


def main():
    torch.zeros(1, device="cuda")
    built, results = build_all(), {}
    for name, graph in built.items():
        results[name] = {"captured": captured(graph, graphs.frontend_handle())}
        threads = [
            threading.Thread(target=work, args=(graph, number, results[name], f"thread {number}"))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # A graph that is built again is the same graph.
    graph = matmul(64)
    arguments, tensors = operands_of(graph, 3)
    graph.execute(tensors, workspace_of(graph), handle=graphs.frontend_handle())
    torch.cuda.synchronize()
    results["again"] = {"main": digest(arguments, tensors)}
    calls = dict.fromkeys(built, 2 + THREADS * CALLS)
    if "matmul_64" in calls:
        calls["matmul_64"] += 1
    print(json.dumps({"results": results, "calls": calls}))


if __name__ == "__main__":
    main()

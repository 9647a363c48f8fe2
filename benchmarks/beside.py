"""Host time of calls that people know, beside a module's: one process, one stream, the GPU idle.

Attention of the plan given: PyTorch's scaled_dot_product_attention, a CUDA graph with copies of the
inputs, the kernel alone. And calls of other things: torch.mm, a function of tvm-ffi.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from pathlib import Path

import click
import graphs
import torch
from floor import Floor, compile_floor
from host_overhead import (
    DIRECT,
    EXECUTE_ONLY,
    FLOOR,
    RECORD,
    RECORD_NEW,
    literal_call,
    make_sets,
    timing_loop,
)
from rich.console import Console
from rich.table import Table

import cudnn_bindgen

ARGUMENTS = 12
TVM_FFI = f"tvm-ffi: a C++ function of {ARGUMENTS} ints that does nothing"
SUM = f"""
#include <tvm/ffi/function.h>
void nothing({", ".join(f"int64_t a{index}" for index in range(ARGUMENTS))}) {{}}
"""


def attention(module, sets, stream):
    """Return the calls of attention as texts, and their names."""
    layouts = [operand.argument.removesuffix("_ptr") for operand in module.OPERANDS]
    first = {
        name: sets[0][operand.uid]
        for name, operand in zip(layouts, module.OPERANDS, strict=True)
        if operand.uid in sets[0]
    }
    inputs = {name: first[name].clone() for name in ("q", "k", "v")}
    # K of a plan is transposed.
    key = inputs["k"] if inputs["k"].shape == inputs["q"].shape else inputs["k"].transpose(2, 3)
    with torch.cuda.stream(stream):  # the runtime must have workspace before it is captured
        module.run(**first)
    stream.synchronize()
    captured = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(captured, stream=stream):
        module.run(**first)
    captured.instantiate()
    names = {
        "run": module.run,
        "sdpa": torch.nn.functional.scaled_dot_product_attention,
        "mm": torch.mm,
        "replay": captured.replay,
        **first,
        **{f"new_{name}": tensor for name, tensor in inputs.items()},
        "new_key": key,
        "a": torch.randn(256, 256, device="cuda", dtype=torch.bfloat16),
        "c": torch.empty(256, 256, device="cuda", dtype=torch.bfloat16),
    }
    copies = "; ".join(f"{name}.copy_(new_{name})" for name in inputs)
    given = ", ".join(f"{name}={name}" for name in first)
    return captured, names, {
        "generated run(tensors), record": f"run({given})",
        "torch scaled_dot_product_attention": "sdpa(new_q, new_key, new_v, is_causal=True)",
        "torch CUDA graph: replay() alone": "replay()",
        "torch CUDA graph: three inputs copied, replay()": f"{copies}; replay()",
        "torch.mm(a, a, out=c), 256": "mm(a, a, out=c)",
    }  # fmt: skip


def measure(plan, library, calls, rounds):
    """Return path → median microseconds, and path → why it is missing."""
    module = cudnn_bindgen.load(plan, name="beside")
    stream = torch.cuda.Stream()
    sets, workspaces = make_sets(module.OPERANDS, max(1, module.workspace_size()))
    every = [
        literal_call(module.OPERANDS, tensors, memory.data_ptr(), stream.cuda_stream)
        for tensors, memory in zip(sets, workspaces, strict=True)
    ]
    captured, names, texts = attention(module, sets, stream)
    names["execute"] = module.execute
    loops = {
        DIRECT: ("direct", every[:1]),
        RECORD_NEW: ("auto", every),
        RECORD: ("auto", every[:1]),
        **{path: ("auto", [text]) for path, text in texts.items()},
    }
    missing = {}
    try:
        from tvm_ffi.cpp import load_inline

        names["nothing"] = load_inline("beside", cpp_sources=SUM, functions="nothing").nothing
        loops[TVM_FFI] = ("auto", [f"nothing({', '.join(map(str, range(ARGUMENTS)))})"])
    except Exception as error:  # not installed, no compiler of its: the row is missing, with why
        missing[TVM_FFI] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}"
    floor = Floor(
        library, plan, module.OPERANDS, sets[0], workspaces[0].data_ptr(), stream.cuda_stream
    )

    def in_python(policy, expressions):
        loop = timing_loop(expressions, names)

        def timed(count):
            module.set_launch_policy(policy)
            return loop(count, stream.synchronize)

        return timed

    timed = {path: in_python(*loop) for path, loop in loops.items()}
    timed[FLOOR] = lambda count: floor.time("floor_pack_and_execute", count)
    timed[EXECUTE_ONLY] = lambda count: floor.time("floor_execute_only", count)
    graph = captured.raw_cuda_graph()
    nodes = "C: cuMemsetD8Async and cuLaunchKernelEx of its nodes"
    timed[nodes] = lambda count: floor.time_kernels(graph, count)
    samples = {path: [] for path in timed}
    with torch.cuda.stream(stream):
        for path in itertools.chain(*[timed] * (rounds + 1)):
            samples[path].append(timed[path](calls // rounds))
    floor.close()
    return {
        path: round(statistics.median(itertools.chain(*taken[1:])) / 1e3, 3)
        for path, taken in samples.items()
    }, missing


@click.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--calls", default=2500, show_default=True, help="Calls of each path.")
@click.option("--rounds", default=5, show_default=True, help="Rounds they are spread over.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(plan, calls, rounds, json_path):
    """Measure calls beside those of attention's PLAN file."""
    console = Console(width=110)
    torch.zeros(1, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        rows, missing = measure(plan.read_bytes(), compile_floor(Path(folder)), calls, rounds)
    table = Table("host time of one call", "median µs")
    for path, median in rows.items():
        table.add_row(path, f"{median:.2f}")
    console.print(table)
    report = {"machine": graphs.machine_facts(), "beside": rows, "missing": missing}
    console.print(report["machine"], missing)
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

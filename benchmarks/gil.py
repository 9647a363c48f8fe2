"""Releasing the GIL against holding it: the latency of one call while other threads work.

`execute` holds the GIL during the cuDNN call. The module's C declaration lets other Cython code
call `enqueue` without it; a probe compiled here does that. Busy threads run a loop in Python;
calling threads make the same kind of call, each on a stream of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click
import graphs
import torch
from rich.console import Console
from rich.table import Table

SYNC_EVERY = 20

PROBE = """\
# distutils: language = c++
# cython: language_level = 3
from libc.stdint cimport int32_t, int64_t, uintptr_t

from {module} cimport enqueue


def execute({parameters}, uintptr_t workspace_ptr=0, uintptr_t stream=0):
    with nogil:
        enqueue({arguments}, <void*>workspace_ptr, <void*>stream)
"""

SCALAR_TYPES = {"DOUBLE": "double", "INT32": "int32_t", "INT64": "int64_t"}


def compile_probe(name, operands, directory):
    """Compile and import a module whose `execute` calls the given one's `enqueue` with no GIL."""
    parameters, arguments = [], []
    for index, operand in enumerate(operands):
        if operand.role == "scalar":
            # cuDNN's half types are passed as float.
            default = "" if operand.default is None else f"={operand.default!r}"
            kind = SCALAR_TYPES.get(operand.data_type, "float")
            parameters.append(f"{kind} a{index}{default}")
            arguments.append(f"a{index}")
        else:
            parameters.append(f"uintptr_t a{index}")
            arguments.append(f"<void*>a{index}")
    text = PROBE.format(
        module=name, parameters=", ".join(parameters), arguments=", ".join(arguments)
    )
    # Beside the generated .pxd, which Cython finds there.
    source = directory / f"{name}_probe.pyx"
    source.write_text(text)
    command = [sys.executable, "-m", "Cython.Build.Cythonize", "-i", source.name]
    run = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if run.returncode:
        raise RuntimeError(f"compiling {source.name} failed:\n{run.stdout}")
    return graphs.import_module(source.stem, directory)


class Caller:
    """One thread's stream, operands and workspace, and the call made with them."""

    def __init__(self, execute, module, seed):
        generator = torch.Generator("cuda").manual_seed(seed)
        self.tensors = graphs.make_operands(module.OPERANDS, generator, "cuda")
        self.arguments = graphs.arguments(module.OPERANDS, self.tensors)
        size = max(module.workspace_size(), 1)
        self.workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.stream = torch.cuda.Stream()
        self.execute = execute
        self.calls = 0

    def call(self):
        """Make one call."""
        self.execute(
            *self.arguments,
            workspace_ptr=self.workspace.data_ptr(),
            stream=self.stream.cuda_stream,
        )

    def run(self, stop, ready, errors):
        """Call until told to stop, without letting the launch queue fill."""
        try:
            self.stream.synchronize()  # makes the CUDA context current on this thread
            self.call()
            self.stream.synchronize()
            ready.wait()
            while not stop.is_set():
                for _ in range(SYNC_EVERY):
                    self.call()
                self.calls += SYNC_EVERY
                self.stream.synchronize()
        except Exception as error:
            errors.append(error)
            ready.abort()


def spin(stop, ready, errors):
    """Keep the interpreter busy."""
    try:
        ready.wait()
    except threading.BrokenBarrierError as error:
        errors.append(error)
    total = 0
    while not stop.is_set():
        for number in range(1000):
            total += number


def measure(execute, module, kind, others, calls, seconds):
    """Return the latencies of the measured thread's calls and the calls a second of all threads."""
    measured = Caller(execute, module, 0)
    callers = [Caller(execute, module, 1 + i) for i in range(others if kind == "calling" else 0)]
    torch.cuda.synchronize()
    for _ in range(100):
        measured.call()
    measured.stream.synchronize()

    stop, ready, errors = threading.Event(), threading.Barrier(others + 1), []
    targets = [c.run for c in callers] if kind == "calling" else [spin] * others
    threads = [threading.Thread(target=t, args=(stop, ready, errors)) for t in targets]
    for thread in threads:
        thread.start()
    samples, clock = [], time.perf_counter_ns
    try:
        ready.wait(60)
        before = sum(c.calls for c in callers)
        started = time.monotonic()
        for index in range(calls):
            begin = clock()
            measured.call()
            samples.append(clock() - begin)
            if (index + 1) % SYNC_EVERY == 0:
                measured.stream.synchronize()
                # Contended, one call may wait 5 ms for the GIL: stop by the clock then.
                if time.monotonic() - started > seconds:
                    break
        elapsed = time.monotonic() - started
        done = sum(c.calls for c in callers) - before + len(samples)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
    torch.cuda.synchronize()
    ordered = sorted(samples)
    return {
        "others": others,
        "kind": kind if others else "none",
        "calls": len(samples),
        "median_us": round(ordered[len(ordered) // 2] / 1e3, 2),
        "p99_us": round(ordered[int(len(ordered) * 0.99)] / 1e3, 2),
        "max_us": round(ordered[-1] / 1e3, 2),
        "calls_per_second": round(done / elapsed),
    }


@click.command()
@click.argument("plans", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--calls", default=4000, show_default=True, help="Calls of the measured thread.")
@click.option("--seconds", default=3.0, show_default=True, help="At most so long a row.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(plans, calls, seconds, json_path):
    """Measure for each PLAN file what releasing the GIL costs and what it buys."""
    console = Console(width=110)
    torch.zeros(1, device="cuda")  # makes the CUDA context current
    files = {f"gil_{path.stem}": path for path in plans}
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for name, failure in graphs.build_modules(files, directory).items():
            raise click.ClickException(f"{name}: {failure}")
        for name in files:
            module = graphs.import_module(name, directory)
            probe = compile_probe(name, module.OPERANDS, directory)
            table = Table("other threads", "GIL", "median µs", "p99", "max", "all calls/s")
            table.title = name.removeprefix("gil_")
            rows = results[table.title] = []
            scenarios = [("none", 0)] + [(k, n) for k in ("busy", "calling") for n in (1, 3)]
            for kind, others in scenarios:
                for gil, execute in (("held", module.execute), ("released", probe.execute)):
                    row = measure(execute, module, kind, others, calls, seconds)
                    rows.append({"gil": gil, **row})
                    cells = [f"{row[key]:.2f}" for key in ("median_us", "p99_us", "max_us")]
                    what = f"{others} {kind}" if others else "none"
                    table.add_row(what, gil, *cells, str(row["calls_per_second"]))
            console.print(table)
    report = {
        "machine": graphs.machine_facts(),
        "switch_interval_s": sys.getswitchinterval(),
        "graphs": results,
    }
    console.print(report["machine"])
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

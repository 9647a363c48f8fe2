"""Host time of one rank's calls, alone and beside other ranks: as processes and as threads.

Each rank has a module, a plan, a stream and operands of its own, on GPU RANK modulo the number of
GPUs. All ranks time the same path at the same time, between barriers. Outputs are compared with the
frontend's on every rank first. Where each rank has a GPU, processes time the paths once more with
an NCCL all-reduce, untimed, before each call.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import resource
import statistics
import threading
import time
from pathlib import Path

import click
import cudnn
import graphs
import torch
from host_overhead import (
    DIRECT,
    FRONTEND_DICT,
    FRONTEND_LIST,
    RECORD,
    RECORD_NEW,
    assert_same_bytes,
    compiled,
    literal_call,
    make_sets,
    timing_loop,
)
from rich.console import Console
from rich.table import Table

import cudnn_bindgen

KINDS = ("processes", "threads")
NCCL = ", after an NCCL all-reduce"
# Elements of the all-reduce, of float32.
REDUCED = 1 << 16


class Rank:
    """One rank's module, graph of the frontend, stream and operands."""

    def __init__(self, rank, plan):
        self.device = rank % torch.cuda.device_count()
        torch.cuda.set_device(self.device)
        torch.zeros(1, device="cuda")
        self.handle = cudnn.create_handle()
        self.graph = graphs.reference_graph(plan, self.handle)
        self.module = cudnn_bindgen.load(plan, name=f"rank{rank}")
        self.stream = torch.cuda.Stream()
        cudnn.set_stream(self.handle, self.stream.cuda_stream)
        size = max(1, self.module.workspace_size(), self.graph.get_workspace_size())
        self.sets, workspaces = make_sets(self.module.OPERANDS, size)
        first = self.sets[0]
        uids = tuple(sorted(first))
        self.calls = [
            literal_call(self.module.OPERANDS, tensors, memory.data_ptr(), self.stream.cuda_stream)
            for tensors, memory in zip(self.sets, workspaces, strict=True)
        ]
        self.names = {
            "execute": self.module.execute,
            "graph_execute": self.graph.execute,
            "first": first,
            "buffers": tuple(first[uid] for uid in uids),
            "uids": uids,
            "workspace": workspaces[0],
            "handle": self.handle,
            "keep": workspaces,
        }
        frontend_dict = "graph_execute(first, workspace, handle=handle)"
        self.paths = {
            FRONTEND_DICT: ("auto", [frontend_dict]),
            FRONTEND_LIST: (
                "auto",
                ["graph_execute(buffers, workspace, handle=handle, tensor_uids=uids)"],
            ),
            DIRECT: ("direct", self.calls[:1]),
            RECORD_NEW: ("auto", self.calls),
            RECORD: ("auto", self.calls[:1]),
        }
        torch.cuda.synchronize()
        for policy in ("direct", "auto", "auto", "auto", "auto", "auto"):
            self.module.set_launch_policy(policy)
            assert_same_bytes(
                f"rank {rank}",
                self.module.OPERANDS,
                first,
                compiled(frontend_dict, self.names),
                compiled(self.calls[0], self.names),
            )

    def measure(self, calls, rounds, wait, between=""):
        """Return path → nanoseconds of each call, seconds of all, voluntary context switches.

        The first round warms up and is not in them.
        """
        loops = {
            path: timing_loop(texts, self.names, between) for path, (_, texts) in self.paths.items()
        }
        found = {path: {"ns": [], "seconds": 0.0, "switches": 0} for path in loops}
        for index, path in itertools.product(range(rounds + 1), loops):
            self.module.set_launch_policy(self.paths[path][0])
            wait()
            switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            begin = time.perf_counter()
            samples = loops[path](calls // rounds, self.stream.synchronize)
            if index:
                result = found[path]
                result["ns"] += samples
                result["seconds"] += time.perf_counter() - begin
                result["switches"] += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - switches
        return found

    def with_all_reduce(self, rank, ranks, port, calls, rounds, wait):
        """Return what `measure` does, with an all-reduce on the stream before each call."""
        import torch.distributed as distributed

        distributed.init_process_group(
            "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks
        )
        self.names["all_reduce"] = distributed.all_reduce
        self.names["reduced"] = torch.ones(REDUCED, device="cuda")
        with torch.cuda.stream(self.stream):
            found = self.measure(calls, rounds, wait, "all_reduce(reduced)")
        self.stream.synchronize()
        distributed.destroy_process_group()
        return {f"{path}{NCCL}": result for path, result in found.items()}


def run_rank(rank, ranks, plan, calls, rounds, port, barrier, results):
    """Measure one rank, in its process or thread; give a text for what went wrong."""
    try:
        own = Rank(rank, plan)
        found = own.measure(calls, rounds, barrier.wait)
        if port:
            found |= own.with_all_reduce(rank, ranks, port, calls, rounds, barrier.wait)
        results.put((rank, found))
    except Exception as error:
        barrier.abort()
        results.put((rank, f"{type(error).__name__}: {error}"))


def run_ranks(kind, ranks, plan, calls, rounds, port):
    """Return what each rank measured."""
    context = multiprocessing.get_context("spawn")
    make, barrier = (
        (context.Process, context.Barrier(ranks))
        if kind == "processes"
        else (threading.Thread, threading.Barrier(ranks))
    )
    results = context.SimpleQueue()
    workers = [
        make(target=run_rank, args=(rank, ranks, plan, calls, rounds, port, barrier, results))
        for rank in range(ranks)
    ]
    for worker in workers:
        worker.start()
    found = dict(results.get() for _ in workers)
    for worker in workers:
        worker.join()
    problems = [f"rank {rank}: {what}" for rank, what in found.items() if isinstance(what, str)]
    if problems:
        raise click.ClickException("; ".join(sorted(problems)))
    return [found[rank] for rank in range(ranks)]


def summarise(found):
    """Return path → microseconds over the calls of all ranks, calls a second, switches."""
    rows = {}
    for path in found[0]:
        samples = sorted(itertools.chain(*(rank[path]["ns"] for rank in found)))
        percentiles = statistics.quantiles(samples, n=100)
        rows[path] = {
            "p50_us": round(percentiles[49] / 1e3, 3),
            "p90_us": round(percentiles[89] / 1e3, 3),
            "p99_us": round(percentiles[98] / 1e3, 3),
            "worst_us": round(samples[-1] / 1e3, 1),
            "calls_a_second": round(
                sum(len(rank[path]["ns"]) / rank[path]["seconds"] for rank in found)
            ),
            "switches_in_1000_calls": round(
                1000 * sum(rank[path]["switches"] for rank in found) / len(samples), 2
            ),
        }
    return rows


@click.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--ranks", default="1,2,4,8", show_default=True, help="Numbers of ranks.")
@click.option("--calls", default=3000, show_default=True, help="Calls of each path and rank.")
@click.option("--rounds", default=5, show_default=True, help="Rounds they are spread over.")
@click.option("--port", default=29517, show_default=True, help="Where NCCL's ranks meet.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(plan, ranks, calls, rounds, port, json_path):
    """Measure calls of the graph of PLAN by ranks, alone and together."""
    console = Console(width=130)
    data = plan.read_bytes()
    gpus = torch.cuda.device_count()
    results = {kind: {} for kind in KINDS}
    for kind, count in itertools.product(KINDS, map(int, ranks.split(","))):
        meet = port if kind == "processes" and 1 < count <= gpus else 0
        rows = summarise(run_ranks(kind, count, data, calls, rounds, meet))
        results[kind][str(count)] = rows
        table = Table("host time of one call", *next(iter(rows.values())))
        table.title = f"{count} {kind} on {min(count, gpus)} GPUs"
        for path, row in rows.items():
            table.add_row(path, *map(str, row.values()))
        console.print(table)
    report = {"machine": {**graphs.machine_facts(), "gpus": gpus}, "ranks": results}
    console.print(report["machine"])
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

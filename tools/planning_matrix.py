"""Which frontend plans with which cuDNN for which GPU: the table in docs/planning.md.

    python tools/planning_matrix.py FRONTENDS CUDNNS [-j N] > table.md

FRONTENDS and CUDNNS are folders of unpacked wheels, one folder each, named by the version; beside
each cuDNN may lie cuBLAS and NVRTC. It takes about a minute for each cell on two cores.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
GRAPHS = [
    *sorted((DATA / "structure-v2").glob("*.json")),
    *sorted((DATA / "frontends" / "1.32.0").glob("*.json")),
    *sorted((DATA / "plans" / "cudnn-9.19-sm90").glob("*.plan")),
]
GPUS = ("a100", "h100", "b200", "rtx5090")  # SM 80, 90, 100, 120
SECONDS = 60


@click.command()
@click.argument("frontends", type=click.Path(path_type=Path, exists=True))
@click.argument("cudnns", type=click.Path(path_type=Path, exists=True))
@click.option("-j", "--jobs", type=int, default=2)
@click.option("--only", is_flag=True, hidden=True, help="One cell, as JSON.")
def main(frontends: Path, cudnns: Path, jobs: int, only: bool) -> None:
    """Print the table."""
    if only:
        print(json.dumps(plan_all(cudnns, jobs)))
        return
    columns = versions(cudnns)
    print(f"| frontend | {' | '.join(cudnn.name for cudnn in columns)} |")
    print("| --- |" + " --- |" * len(columns))
    for frontend in versions(frontends):
        print(f"| {frontend.name}", end="", flush=True)
        for cudnn in columns:
            counts = cell(frontend, cudnn, jobs)
            print(f" | {', '.join(str(counts[gpu]) for gpu in GPUS)}", end="", flush=True)
        print(" |")


def versions(folder: Path) -> list[Path]:
    """Return the folders that are named by a version, the newest last."""
    found = [path for path in folder.iterdir() if re.fullmatch(r"[\d.]+", path.name)]
    return sorted(found, key=lambda path: [int(part) for part in path.name.split(".")])


def cell(frontend: Path, cudnn: Path, jobs: int) -> dict[str, int]:
    """Return the number of graphs that were planned for each GPU, in a process of its own."""
    command = [sys.executable, __file__, str(frontend), str(cudnn), "--only", "-j", str(jobs)]
    path = f"{frontend}:{ROOT / 'src'}"
    done = subprocess.run(  # noqa: S603 - ourselves
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def plan_all(cudnn: Path, jobs: int) -> dict[str, int]:
    """Return the number of graphs that were planned for each GPU."""
    from cudnn_bindgen.frontend.planning.constants import Constants
    from cudnn_bindgen.frontend.planning.deviceless import Answer, Task, find_cudnn, make_plans
    from cudnn_bindgen.frontend.planning.gpus import device_properties

    said = {
        "scalar_of_compile_time": Constants(values=(("mul::IN_1", "0.5"),)),
        "scalar_unnamed": Constants(arguments=("mul::IN_1",)),
    }
    tasks = {
        (path, gpu): Task(
            graph=path.read_bytes(),
            properties=device_properties(gpu),
            constants=said.get(path.stem, Constants()),
            seconds=SECONDS,
        )
        for path in GRAPHS
        for gpu in GPUS
    }
    counts = dict.fromkeys(GPUS, 0)
    for (_, gpu), answer in make_plans(tasks, find_cudnn(cudnn), jobs).items():
        counts[gpu] += isinstance(answer, Answer)
    return counts


if __name__ == "__main__":
    main()

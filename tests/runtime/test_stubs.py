"""A compiled module's .pyi: the same as the module, and what a type checker then says of calls."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mypy")

SCALARS = "1, 2, 3.0, 4.0, 5.0, 6.0"


def run_mypy(
    builds: Any, cache: Path, module: str, arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=cache,
        env=os.environ
        | {
            "MYPYPATH": str(builds.directory),
            "PYTHONPATH": str(builds.directory),
            "MYPY_CACHE_DIR": str(cache / "cache"),
        },
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("module", ["scalars", "norm", "empty", "product", "rows", "grid"])
def test_the_stub_describes_the_module(builds: Any, tmp_path: Path, module: str) -> None:
    builds.path(module)
    allowed = tmp_path / "allowed"
    # What Cython adds to each module: its table of C functions, its doctests.
    # Methods of the Binding, which serves all graphs: the stub says more.
    of_binding = (
        *("execute_uids", "launch_nodes", "launch_path", "set_launch_policy", "workspace_size"),
    )
    names = ("__pyx_capi__", "__test__", *of_binding)
    allowed.write_text("".join(f"{module}.{name}\n" for name in names))
    options = [module, "--concise", "--allowlist", str(allowed), "--ignore-unused-allowlist"]
    done = run_mypy(builds, tmp_path, "mypy.stubtest", options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def checked(builds: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """mypy's verdict on each call: "" or the error code."""
    builds.path("scalars")
    builds.path("norm")
    builds.path("rows")
    builds.path("grid")
    directory = tmp_path_factory.mktemp("mypy")
    lines = ["import pathlib", "import grid, norm, rows, scalars", *CALLS]
    (directory / "calls.py").write_text("\n".join(lines) + "\n")
    options = ["--strict", "--no-error-summary", "--hide-error-context", "calls.py"]
    done = run_mypy(builds, directory, "mypy", options)
    assert not done.stderr
    verdicts = dict.fromkeys(CALLS, "")
    for line in done.stdout.splitlines():
        place, _, message = line.partition(": error: ")
        if message:
            number = int(place.split(":")[1])
            verdicts[lines[number - 1]] = message.rpartition("[")[2].rstrip("]")
    return verdicts


CALLS = {
    f"scalars.execute(16, 32, {SCALARS})": "",
    f"scalars.execute(16, 32, {SCALARS}, 7, b_half=0.5, stream=2, workspace_ptr=64)": "",
    f"scalars.execute(x_ptr=16, y_ptr=32, **dict(zip('', [{SCALARS}])))": "arg-type",
    f"scalars.execute('16', 32, {SCALARS})": "arg-type",
    f"scalars.execute(16, 32.0, {SCALARS})": "arg-type",
    f"scalars.execute(None, 32, {SCALARS})": "arg-type",
    "scalars.execute(16, 32, 1, 2, 3.0, 4.0, 5.0)": "call-arg",
    f"scalars.execute(16, 32, {SCALARS}, streams=1)": "call-arg",
    f"scalars.execute(16, 32, {SCALARS}, stream='0')": "arg-type",
    "scalars.execute(16, 32, 1.5, 2, 3.0, 4.0, 5.0, 6.0)": "arg-type",
    "scalars.execute_uids({1: 16, 2: 32, 10: 1, 13: 0.5}, stream=1)": "",
    "scalars.execute_uids({'1': 16})": "dict-item",
    "norm.execute_uids({1: 16, 4: 0.5})": "",
    "norm.execute_uids({1: '16'})": "dict-item",
    "scalars.load_plan()": "",
    "scalars.load_plan(None)": "",
    "scalars.load_plan(pathlib.Path('a.plan'))": "",
    "norm.load_plan(b'')": "",
    "norm.load_plan('a.plan')": "",
    "norm.load_plan()": "call-overload",
    "norm.load_plan(5)": "call-overload",
    "norm.load_plan(None)": "call-overload",
    "norm.load_plan(on_missing='refuse')": "call-overload",
    "norm.load_plan(on_missing='plan')": "",
    "norm.load_plan(None, on_missing='plan')": "",
    "norm.load_plan('a.json', 'plan')": "",
    "scalars.load_plan(on_missing='plan')": "",
    "scalars.load_plan(b'', 'refuse')": "",
    "scalars.load_plan(on_missing='make')": "arg-type",
    "size: int = norm.workspace_size() + norm.WORKSPACE_SIZE": "",
    "text: str = norm.FINGERPRINT + norm.OPERANDS[0].argument": "",
    "norm.FINGERPRINT = ''": "misc",
    "norm.nonsense": "attr-defined",
    "norm.close()": "",
    "rows.execute(16, 32, 48, 1.5, 64)": "",
    "rows.execute(16, 32, 48, 1.5, x_d0=64, stream=2, workspace_ptr=256)": "",
    "rows.execute(16, 32, 48, 1.5)": "call-arg",
    "rows.execute(16, 32, 48, 1.5, '64')": "arg-type",
    "rows.execute(16, 32, 48, 1.5, m=64)": "call-arg",
    "rows.execute_uids({1: 16})": "attr-defined",
    "grid.execute(16, 32, 48, 64, S=2, B=4)": "",
    "size = grid.workspace_size(2, 4) + grid.WORKSPACE_SIZE": "",
    "grid.workspace_size()": "call-arg",
    "rows.load_plan()": "",
    "rows.load_plan(b'')": "",
    "rows.set_launch_policy('fast')": "arg-type",
    "rows.launch_nodes(16)[0]['type']": "",
    "path: str = rows.launch_path(16)": "",
    "names: tuple[str, str] = grid.KEY": "",
    "one: tuple[str] = grid.KEY": "assignment",
    "text = rows.MEMBERS[(16,)].fingerprint": "",
    "text = rows.MEMBERS[16].fingerprint": "index",
    "count: int = rows.MEMBERS[(16,)].operands[0].uid": "",
    "grid.MEMBERS = {}": "misc",
}


@pytest.mark.parametrize("call", CALLS)
def test_what_a_type_checker_says(checked: dict[str, str], call: str) -> None:
    assert checked[call] == CALLS[call]

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

MODULES = ("chained", "empty", "grid", "norm", "product", "product_bare", "rows", "scalars")
# What Cython adds to each module: its table of C functions, its doctests.
ADDED = ("__pyx_capi__", "__test__")
# Methods of the Binding, which serves all graphs: families have keys, others take overrides.
KEYED = ("launch_nodes", "launch_path")
OVERRIDDEN = ("execute_slots", "execute_uids", "set_launch_policy", "workspace_size")
SCALARS = "1, 2, 3.0, 4.0, 5.0, 6.0"


def run_mypy(
    builds: Any, cache: Path, module: str, arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    for name in MODULES:
        builds.path(name)
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


def test_the_stubs_describe_the_modules(builds: Any, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text(
        "".join(
            f"{module}.{name}\n"
            for module in MODULES
            for name in (*ADDED, *KEYED, *(() if "product" in module else OVERRIDDEN))
        )
    )
    options = [*MODULES, "--concise", "--allowlist", str(allowed), "--ignore-unused-allowlist"]
    done = run_mypy(builds, tmp_path, "mypy.stubtest", options)
    assert done.returncode == 0, done.stdout + done.stderr


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
    "scalars.execute_slots(16, 8)": "",
    "scalars.execute_slots([16], 1)": "arg-type",
    "norm.bind(16, 32, 48, eps=0.5)()": "",
    "norm.bind(16, 32, 48, eps=1, stream=2)(stream=0)": "",
    "norm.bind(16, 32, 48, eps=1).x = 48": "",
    "norm.bind(16, 32, 48, eps=1).x = 'x'": "assignment",
    "norm.bind(16, 32, 48, eps=1).eps = 0.5": "",
    "norm.bind(16, 32, 48, eps=1).zzz = 1": "attr-defined",
    "norm.bind(16)": "call-arg",
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
    # Overrides
    "ov = product.Overrides()": "",
    "ov.set(M=5, N=6)": "",
    "ov.set(M=None)": "",
    "ov.set(Q=5)": "call-arg",
    "ov.set(5)": "call-arg",
    "ov.set(M='5')": "arg-type",
    "ov.set_a(1, 5, 4, stride_m=None)": "",
    "ov.set_a(b=1, m=5, k=4, stride_m=8)": "",
    "ov.set_a(1, 5)": "call-arg",
    "ov.set_d(d0=5, d1=2)": "",
    "ov.set_alpha(1)": "attr-defined",
    "ov.override('a', (1, 5, 4), [None, 4, 1])": "",
    "ov.override(1, [1, 5, 4])": "",
    "ov.override('a', 5)": "arg-type",
    "same: bool = ov.copy() == ov": "",
    "by_value: dict[product.Overrides, int] = {ov: hash(ov)}": "",
    "product.execute(16, 32, 48, 64, 0.5, overrides=ov)": "",
    "product.execute(16, 32, 48, 64, 0.5, overrides={'M': 5})": "arg-type",
    "product.execute_uids({1: 16}, 0, 0, ov)": "",
    "total: int = product.workspace_size(ov) + product.workspace_size()": "",
    "product.set_launch_policy('auto', records=8)": "",
    "product.set_launch_policy('auto', records='8')": "arg-type",
    "other = product_bare.Overrides()": "",
    "product.execute(16, 32, 48, 64, 0.5, overrides=other)": "arg-type",
    "other.set(M=5)": "attr-defined",
}


def test_what_a_type_checker_says(builds: Any, tmp_path: Path) -> None:
    """mypy's verdict on each call: "" or the error code."""
    lines = ["import pathlib", f"import {', '.join(MODULES)}", *CALLS]
    (tmp_path / "calls.py").write_text("\n".join(lines) + "\n")
    options = ["--strict", "--no-error-summary", "--hide-error-context", "calls.py"]
    done = run_mypy(builds, tmp_path, "mypy", options)
    assert not done.stderr
    verdicts = dict.fromkeys(CALLS, "")
    for line in done.stdout.splitlines():
        place, _, message = line.partition(": error: ")
        if message:
            verdicts[lines[int(place.split(":")[1]) - 1]] = message.rpartition("[")[2].rstrip("]")
    assert verdicts == CALLS

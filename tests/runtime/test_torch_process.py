"""Runs torch_process.py in a process of its own, and what else of the operators needs one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_bindgen.cli import main

pytest.importorskip("torch")

TESTS = Path(__file__).parents[1]


def python(
    *arguments: str | Path, cwd: Path = TESTS, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_operators_end_to_end(tmp_path: Path) -> None:
    options = ("-n0", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'pytest'}")
    cache = str(tmp_path / "inductor")
    done = python(
        *("-m", "pytest", *options, TESTS / "support" / "torch_process.py"),
        TORCHINDUCTOR_CACHE_DIR=cache,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


SIBLING = """
def workspace_size():
    return 0


def run(*operands, **keywords):
    pass
"""

IMPORTS = {
    "on the path": ("", "import {0}_torch as operators"),
    "in a package": ("package", "import package.{0}_torch as operators"),
    "in a package of a package": ("one/two", "from one.two import {0}_torch as operators"),
}


@pytest.mark.parametrize("where", IMPORTS)
def test_operators_import_what_stands_beside_them(tmp_path: Path, where: str) -> None:
    folder, statement = IMPORTS[where]
    directory = tmp_path / folder
    pair = ("sdpa_causal", "sdpa_backward")
    graphs = [TESTS / f"data/frontends/1.32.0/{name}.json" for name in pair]
    output = directory / f"{pair[0]}.pyx"
    command = ["emit", graphs[0], "-o", output, "--torch", "--backward", graphs[1]]
    main([*map(str, command)], standalone_mode=False)
    for name in pair:
        (directory / f"{name}.py").write_text(SIBLING)
    program = (
        statement.format(pair[0])
        + """
import torch
tensors = [
    torch.empty(dim, dtype=torch.bfloat16, requires_grad=True)
    for dim in ((2, 8, 256, 64), (2, 2, 512, 64), (2, 2, 512, 64))
]
operators.sdpa_causal(*tensors)[0].sum().backward()
print([tensor.grad is not None for tensor in tensors])
print(sorted(name for name in dir(torch.ops.cudnn_bindgen) if "sdpa" in name))
"""
    )
    done = python("-c", program, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines()[0] == "[True, True, True]"

"""The examples of build systems: built by their README's commands, again, and after a change."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Example → what must be there besides Python.
NEEDS = {
    "cmake": ("cmake", "make"),
    "make_ninja": ("make", "ninja"),
    "meson_python": ("meson", "ninja"),
    "scikit_build_core": ("cmake", "ninja"),
    "setuptools": (),
}
# What pip calls, without the seconds of pip.
AGAIN = {
    name: f'python -c "import {backend} as backend; backend.build_wheel({options})"'
    for name, backend, options in (
        (
            *("meson_python", "mesonpy"),
            "'.', {'build-dir': 'build', 'setup-args': '-Doptimization=0'}",
        ),
        ("scikit_build_core", "scikit_build_core.build", "'.'"),
        ("setuptools", "setuptools.build_meta", "'.'"),
    )
}
PLANNED = re.compile(r"for = \[.*\]| FOR h100 b200|,\s*'--for', '[^']*'| --for \S+")
PLAN = "Plan for SM 90, 132 multiprocessors"
CHANGED = ('"name":"bias"', '"name":"offset"')


def commands(name: str) -> list[str]:
    """Return the commands of a README, after those that install."""
    section = (EXAMPLES / name / "README.md").read_text().split("## Build it")[1]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    return [line for line in lines if '"cudnn-bindgen' not in line]


def run(command: str, folder: Path) -> str:
    """Run a command as in an activated environment that needs nothing from outside."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    binaries = Path(sys.executable).parent
    environment |= {
        "CFLAGS": "-O0 -g0",
        "CUDNN_BINDGEN_CACHE": str(folder / "cache"),
        "PATH": os.pathsep.join([str(binaries), environment["PATH"]]),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which is how pip is told not to isolate
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_TARGET": str(folder / "installed"),
        "PYTHONPATH": str(folder / "installed"),
        "SKBUILD_CMAKE_BUILD_TYPE": "Debug",  # to optimise takes most of the time
        "VIRTUAL_ENV": sys.prefix,
    }
    if folder.name == "meson_python":
        environment["PIP_CONFIG_SETTINGS"] = "setup-args=-Doptimization=0"
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def binaries(folder: Path) -> dict[str, int]:
    """Return when each module was built; what is installed is a copy."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*.so")
        if "installed" not in path.parts and path.name.startswith(("attn.", "dense."))
    }


def change(folder: Path) -> None:
    graph = folder / "graphs/dense.json"
    text = graph.read_text()
    assert CHANGED[0] in text
    graph.write_text(text.replace(*CHANGED))


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an example; without plans, which take a second each, but one for setuptools'."""
    name = request.node.callspec.params["name"]
    for program in NEEDS[name]:
        if not shutil.which(program, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"):
            pytest.skip(f"{program} is not installed")
    copy = tmp_path / name
    tracked = [
        path for path in (EXAMPLES / name).rglob("*") if path.is_file() and path.suffix in SOURCES
    ]
    for path in tracked:
        target = copy / path.relative_to(EXAMPLES / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text()
        is_planned = name == "setuptools"
        target.write_text(text.replace(', "b200"', "") if is_planned else PLANNED.sub("", text))
    return copy


SOURCES = {".build", ".json", ".ninja", ".py", ".toml", ".txt", ""}


@pytest.mark.long
@pytest.mark.parametrize("name", NEEDS)
def test_example(name: str, folder: Path) -> None:
    *build, use = commands(name)
    # Imported, it would load the real cuDNN.
    if name == "setuptools" and importlib.util.find_spec("cudnn") is None:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    for command in build:
        run(command, folder)
    first = binaries(folder)
    assert len(first) == 2
    said = run(use, folder)
    assert "q_ptr      input" in said
    assert (PLAN in said) == (name == "setuptools")
    if (folder / "installed").exists():
        installed = {path.name for path in (folder / "installed/mymodel").iterdir()}
        assert {"attn.pyi", "attn.pxd", "dense.pyi", "dense.pxd"} <= installed
        assert not {name for name in installed if name.endswith(".pyx")}
    again = AGAIN.get(name, build[-1])
    run(again, folder)
    assert binaries(folder) == first
    change(folder)
    run(again, folder)
    second = binaries(folder)
    assert {path for path in first if first[path] != second[path]} == {
        path for path in first if "dense" in path
    }
    if name == "make_ninja":
        run("ninja dense.so", folder)
        assert "no work to do" in run("ninja dense.so", folder)


@pytest.mark.parametrize("name", NEEDS)
def test_examples_share_their_graphs(name: str) -> None:
    for graph in ("attn.json", "dense.json"):
        text = (EXAMPLES / name / "graphs" / graph).read_text()
        assert text == (EXAMPLES / "setuptools/graphs" / graph).read_text()

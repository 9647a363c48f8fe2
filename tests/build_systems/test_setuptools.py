"""Tables and setup.py: what setuptools learns of modules, when it builds them, what it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.documents import TESTS

from cudnn_bindgen.build_systems.table import read_tables
from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.codegen.errors import EmitError

FRONTEND = TESTS / "data/frontends/1.32.0"
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "mymodel"
version = "0.1"
"""
TABLE = """
[[tool.cudnn-bindgen.modules]]
name = "mymodel.attn"
graph = "graphs/attn.json"
torch = true
backward = ["graphs/bwd.json"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a module of a graph and one of its gradients."""
    (tmp_path / "src/mymodel").mkdir(parents=True)
    (tmp_path / "src/mymodel/__init__.py").touch()
    (tmp_path / "graphs").mkdir()
    shutil.copy(FRONTEND / "sdpa_causal.json", tmp_path / "graphs/attn.json")
    shutil.copy(FRONTEND / "sdpa_backward.json", tmp_path / "graphs/bwd.json")
    (tmp_path / "pyproject.toml").write_text(PROJECT + TABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CFLAGS": "-O0 -g0"}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True
    )


def call(hook: str) -> subprocess.CompletedProcess[str]:
    """Call what pip and build call."""
    return run("-c", f"from setuptools import build_meta; print(build_meta.{hook})")


def setup(*command: str) -> subprocess.CompletedProcess[str]:
    return run("-c", "from setuptools import setup; setup()", *command)


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}


def test_metadata_and_sdist_read_no_graph(project: Path) -> None:
    for graph in (project / "graphs").iterdir():
        graph.write_text("no graph")
    (project / "graphs/attn.json.toml").write_text("nothing of the kind")
    done = call("build_sdist('dist')")
    assert done.returncode == 0, done.stderr
    with tarfile.open(project / "dist/mymodel-0.1.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"graphs/attn.json", "graphs/attn.json.toml", "graphs/bwd.json"} <= names
    done = setup("build_ext", "--inplace")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "graphs/attn.json.toml: expected options" in last or "graphs/attn.json: " in last
    assert "Traceback" not in done.stderr


def test_in_place_all_lies_beside_the_package(project: Path) -> None:
    folder = project / "src/mymodel"
    done = call("build_editable('dist')")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiled src/mymodel/") == 2
    names = [extension_path(Path(), module).name for module in ("attn", "bwd")]
    beside = {
        f"{module}{end}" for module in ("attn", "bwd") for end in (".pyi", ".pxd", "_torch.py")
    }
    assert {*times(folder)} == {"__init__.py", *names, *beside}
    before = times(folder)
    again = call("build_editable('dist')").stderr
    assert again.count("up to date: src/mymodel/") == 2
    assert times(folder) == before
    # Of a strict one, setuptools asks for each file by name.
    done = call("build_editable('dist', {'editable_mode': 'strict'})")
    assert done.returncode == 0, done.stderr
    linked = next((project / "build").glob("__editable__*")) / "mymodel"
    assert {path.name for path in linked.iterdir()} == {"__init__.py", *names, *beside}


SETUP = """\
from setuptools import Extension, setup
from cudnn_bindgen.build_systems.setuptools import modules

setup(
    name="mymodel",
    package_dir={"": "src"},
    packages=["mymodel"],
    ext_modules=[
        Extension("mymodel.plain", ["plain.c"]),
        *modules({"name": "mymodel.attn", "graph": "graphs/attn.json"}),
    ],
)
"""
PLAIN = """\
#include <Python.h>
static PyModuleDef plain = {PyModuleDef_HEAD_INIT, "plain"};
PyMODINIT_FUNC PyInit_plain(void) { return PyModule_Create(&plain); }
"""


def test_a_setup_py_with_other_modules(project: Path) -> None:
    (project / "pyproject.toml").unlink()
    (project / "setup.py").write_text(SETUP)
    (project / "plain.c").write_text(PLAIN)
    done = run("setup.py", "build_ext", "--inplace")
    assert done.returncode == 0, done.stderr
    program = "import sys; sys.path.insert(0, 'src'); from mymodel import attn, plain; attn.run"
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


OWN = """
[tool.setuptools]
cmdclass = {build_ext = "own.Own"}
ext-modules = [{name = "mymodel.plain", sources = ["plain.c"]}]
"""
OWN_COMMAND = """\
from setuptools.command.build_ext import build_ext

class Own(build_ext):
    def build_extension(self, extension):
        print("own command:", extension.name)
        super().build_extension(extension)
"""


def test_a_projects_own_build_ext_stays(project: Path) -> None:
    table = '[[tool.cudnn-bindgen.modules]]\nname = "mymodel.attn"\ngraph = "graphs/attn.json"\n'
    (project / "pyproject.toml").write_text(PROJECT + table + OWN)
    (project / "own.py").write_text(OWN_COMMAND)
    (project / "plain.c").write_text(PLAIN)
    done = setup("build_ext", "--inplace")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("own command: mymodel.plain\n") == 1
    assert extension_path(project / "src/mymodel", "attn").exists()


def test_somebodys_stub_is_not_replaced(project: Path) -> None:
    (project / "src/mymodel/attn.pyi").write_text("mine\n")
    done = setup("build_ext", "--inplace")
    assert done.returncode == 2
    assert "attn.pyi: expected a file that cudnn-bindgen has written" in done.stderr
    assert (project / "src/mymodel/attn.pyi").read_text() == "mine\n"


ATTN = {"name": "m.attn", "graph": "attn.json"}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("attn.json", ": expected array, got str"),
        ([ATTN, {**ATTN, "graph": 1}], "[1].graph: expected str | null, got int"),
        ([{"graph": "attn.json"}], '[0]: expected a field "name", got none'),
        ([{**ATTN, "gpu": ["h100"]}], '[0]: expected no field but those that are known, got "gpu"'),
        ([{**ATTN, "for": "h100"}], "[0].for: expected array, got str"),
        ([{**ATTN, "name": "m.1"}], '[0].name: expected a dotted name such as "a.b", got "m.1"'),
        ([ATTN, ATTN], "[1].name: expected another than T[0], got both"),
        ([{"name": "attn"}], "[0]: expected graph or graphs, got neither"),
        ([{**ATTN, "graphs": ["a.json"]}], "[0]: expected graph or graphs, got both"),
        (
            [{**ATTN, "graph": "../a.json"}],
            "[0]: expected files in the project's folder, got \"../",
        ),
        ([{**ATTN, "cudnn": ["lib"]}], "[0]: --cudnn: expected --for, got none"),
        ([{**ATTN, "backward": ["b.json"]}], "[0]: --backward: expected --torch, got none"),
        ([{**ATTN, "index": 0}], "[0]: Invalid value for '--index'"),
        (
            [{"name": "attn", "graphs": ["a.json"], "symbol": ["B=q.0"]}],
            "[0]: --family: expected no --symbol, got both",
        ),
    ],
)
def test_a_wrong_table_is_named(tables: object, message: str) -> None:
    with pytest.raises(EmitError) as raised:
        read_tables(tables, "T")
    assert str(raised.value).startswith(f"T{message}")


def test_a_wrong_table_ends_setuptools_in_a_line(project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT + TABLE.replace('"graphs/attn.json"', "1"))
    done = setup("egg_info")
    assert done.returncode == 2
    place = "pyproject.toml: tool.cudnn-bindgen.modules[0].graph: expected str"
    assert place in done.stderr.splitlines()[-1]


def test_options_are_those_of_the_command_line() -> None:
    every = {
        "name": "m.attn",
        "graph": "run.log",
        "for": ["h100,b200", "rtx5090"],
        "cudnn": ["lib"],
        "index": 2,
        "allow-newer": True,
        "strict": True,
        "symbol": ["B=q.0", "S=q.1"],
        "unbounded": True,
        "torch": True,
        "torch-namespace": "ns",
        "backward": ["bwd.json"],
    }
    [table] = read_tables([every], "T")
    options = table.options()
    assert options.targets.gpus == ("h100,b200", "rtx5090")
    assert options.targets.cudnns == (Path("lib"),)
    assert (options.reading.index, options.reading.allow_newer, options.reading.strict) == (
        *(2, True),
        True,
    )
    assert options.overriding.symbols == ("B=q.0", "S=q.1")
    assert options.overriding.is_unbounded
    assert (options.torch.namespace, options.torch.backward) == ("ns", (Path("bwd.json"),))
    [family] = read_tables([{"name": "m.f", "graphs": ["a", "b"], "key": ["B=q.0"]}], "T")
    assert (family.options().family.name, family.options().family.keys) == ("f", ("B=q.0",))


def test_a_chain_brings_the_graphs_of_its_links(project: Path) -> None:
    chain = {"name": "mymodel.layer", "graph": "layer.toml", "chain": True}
    (project / "layer.toml").write_text(
        '[[link]]\nname = "a"\ngraph = "graphs/attn.json"\n'
        '[[link]]\nname = "b"\ngraph = "graphs/bwd.json"\n'
    )
    [table] = read_tables([chain], "T")
    assert table.files() == ["layer.toml", "graphs/attn.json", "graphs/bwd.json"]
    assert table.options().is_chain
    with pytest.raises(EmitError, match=r"^T\[0\]: --chain: expected no --torch, got both$"):
        read_tables([{**chain, "torch": True}], "T")
    (project / "layer.toml").write_text('[[link]]\nname = "a"\ngraph = "../attn.json"\n')
    with pytest.raises(EmitError, match=r"^T\[0\]: expected files in the project's folder, "):
        read_tables([chain], "T")


def test_a_project_without_a_table_pays_nothing(project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT)
    program = """
import sys
from setuptools import Distribution
before = set(sys.modules)
Distribution()
loaded = {name for name in set(sys.modules) - before if "cudnn_bindgen" in name}
assert loaded == {
    "cudnn_bindgen", "cudnn_bindgen.build_systems", "cudnn_bindgen.build_systems.setuptools"
}, loaded
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


def test_what_is_not_installed_is_named(project: Path) -> None:
    program = """
import sys
sys.modules["click"] = None
from setuptools import setup
setup()
"""
    done = run("-c", program, "egg_info")
    assert done.returncode == 1
    assert done.stderr.startswith("error: pyproject.toml: tool.cudnn-bindgen.modules: click is not")
    assert '"cudnn-bindgen[build]"' in done.stderr

"""Which folder may import which (docs/design.md), and what a command loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from support.documents import TESTS

ROOT = TESTS.parent
PACKAGE = "cudnn_bindgen"
DATA = "module_data"  # what codegen tells the runtime
BASE = {"codegen.errors", "codegen.text", DATA}
STAGES = ("codegen.model", "codegen.read", "codegen.bind", "codegen.render")

# Folder → what its files may import of the package, besides their own folder.
MAY_IMPORT = {
    "codegen": {DATA},
    **{stage: BASE | {*STAGES[:place]} for place, stage in enumerate(STAGES)},
    "runtime": {DATA},
    "frontend": {"codegen.output"},
    "frontend.planning": {"codegen", "frontend.file_cache", DATA},
    "frontend.recording": {"codegen", "runtime.tensor_checks"},
    "frontend.accelerating": {"codegen", "runtime", DATA},
    "commands": {"codegen", "frontend"},
}
# Library → the only files that import it.
USERS = {
    "Cython": {"codegen.compiler"},
    "setuptools": {"codegen.compiler"},
    "jinja2": {"codegen.render.module"},
    "ubjson": {"codegen.read.dialects.decode"},
    "zipfile": {"codegen.read.archive"},
    "filelock": {"frontend.file_cache"},
    "platformdirs": {"frontend.file_cache"},
    "rich": {
        *("codegen.children", "codegen.render.show"),
        *("frontend.planning.gpu_table", "frontend.planning.progress"),
        "frontend.recording.report",
    },
    "cudnn": {"frontend.planning.frontend"},
    "torch": {"frontend.planning.cuda", "runtime.torch_autograd", "runtime.torch_operator"},
    "subprocess": {"codegen.children", "codegen.compile", "frontend.recording.program"},
    "cuda": set(),  # the runtime does when it is called
}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {
    path: name_of(path)
    for folder in sorted({name.split(".")[0] for name in MAY_IMPORT})
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".pyx", ".pxd"}
}
MODULES = {*FILES.values()}
OTHERS = [
    *(ROOT / "runtime").rglob("*.hpp"),
    *(ROOT / "frontend").rglob("*.hpp"),
    *(ROOT / "templates").iterdir(),
    ROOT / "cli.py",
]
TEMPLATES = sorted((ROOT / "templates").iterdir())


def python_imports(text: str) -> set[str]:
    """Return the full name of each import, wherever in the text it stands, by text too."""
    found = set()
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, "imports are absolute"
            found |= {f"{item.module}.{alias.name}" for alias in item.names}
    return found | set(re.findall(r'import_module\("(\w+)"\)', text))


def cython_imports(text: str) -> set[str]:
    """Return the full name of each import that no function does when it is called."""
    found = set()
    for match in re.finditer(r"^c?import\s+([\w., ]+)", text, re.M):
        found |= {name.split()[0] for name in match[1].split(",")}
    for match in re.finditer(r"^from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n]*)", text, re.M):
        names = re.sub(r"#.*|\bas \w+", "", match[2])
        found |= {f"{match[1]}.{name}" for name in re.findall(r"\w+", names)}
    return found


@cache
def imports(path: Path) -> set[str]:
    text = path.read_text()
    return python_imports(text) if path.suffix == ".py" else cython_imports(text)


def own_imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports."""
    found = set()
    for name in imports(path):
        if name.startswith(f"{PACKAGE}."):
            name = name.removeprefix(f"{PACKAGE}.")
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            found.add(name)
    return found - {"", FILES.get(path)}


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("path", FILES, ids=FILES.__getitem__)
def test_a_folder_sees_only_what_stands_left_of_it(path: Path) -> None:
    folder = max((name for name in MAY_IMPORT if within(FILES[path], {name})), key=len)
    own = {folder} - {"codegen"} or {name for name in MODULES if name.count(".") == 1}
    assert not {name for name in own_imports(path) if not within(name, MAY_IMPORT[folder] | own)}


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: own_imports(path) for path, name in FILES.items() if path.suffix == ".py"}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("library", USERS)
def test_a_library_is_known_in_one_place(library: str) -> None:
    found = {
        name for path, name in FILES.items() if any(within(n, {library}) for n in imports(path))
    }
    assert found == USERS[library]


@pytest.mark.parametrize("path", FILES, ids=FILES.__getitem__)
def test_only_commands_know_click(path: Path) -> None:
    is_command = within(FILES[path], {"commands"})
    assert is_command or not any(within(name, {"click"}) for name in imports(path))


def test_what_the_package_offers() -> None:
    found = imports(ROOT / "src" / PACKAGE / "__init__.py")
    assert {name for name in found if name.startswith(PACKAGE)} == {
        f"{PACKAGE}.frontend.accelerating.accelerate.accelerate",
        f"{PACKAGE}.loading.load",
        f"{PACKAGE}.frontend.recording.session.record",
    }


def test_what_python_lists_of_the_package_and_what_importing_it_costs() -> None:
    code = f"""
import sys
sys.path[:] = {sys.path!r}
before = set(sys.modules)
import cudnn_bindgen
assert set(sys.modules) - before == {{"cudnn_bindgen"}}, set(sys.modules) - before
names = ["__version__", "accelerate", "load", "record"]
assert dir(cudnn_bindgen) == names == sorted(cudnn_bindgen.__all__)
import cudnn_bindgen.module_data
assert dir(cudnn_bindgen) == names
assert callable(cudnn_bindgen.load)
assert not hasattr(cudnn_bindgen, "TYPE_CHECKING")
"""
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


@pytest.mark.parametrize("name", ["module.pyx.jinja", "torch.py.jinja"])
def test_emitted_modules_import_the_runtime_alone(name: str) -> None:
    text = (ROOT / "templates" / name).read_text()
    found = set(re.findall(rf"from ({PACKAGE}[\w.]*) c?import", text))
    assert found
    assert not {name for name in found if not name.startswith(f"{PACKAGE}.runtime.")}


def test_no_other_file_of_the_runtime_imports_that_of_torch_files() -> None:
    files = {"runtime.torch_operator", "runtime.torch_autograd"}
    users = {name for path, name in FILES.items() if own_imports(path) & files}
    assert users == {"runtime.torch_operator"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "runtime").rglob("*.hpp")), ids=lambda path: path.name
)
def test_headers_know_neither_graph_files_nor_cudnn(path: Path) -> None:
    """They record a function that launches something, and see the driver alone."""
    code = re.sub(r"//.*", "", path.read_text())
    assert not re.search(r"json|codegen|template\.|cudnn(?!_bindgen)", code, re.I)
    assert not [name for name in re.findall("#include <(.*)>", code) if "cuda" in name]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_print_and_do_not_compute(path: Path) -> None:
    text = path.read_text()
    assert "{% set" not in text
    for expression in re.findall(r"{{(.*?)}}", text):
        assert re.fullmatch(r' [a-z_.]+( \| (length|join\(", "\)))? ', expression)
    for condition in re.findall(r"{% if (.*?) %}", text):
        assert re.fullmatch(r"(not )?[a-z_.]+", condition)


@pytest.mark.parametrize("path", [*FILES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path: Path) -> None:
    # An owner in the runtime stays whole: its methods share what no other file sees.
    most = 600 if path.suffix == ".pyx" else 300
    assert len(path.read_text().splitlines()) < most


def test_the_import_readers_see_imports() -> None:
    assert python_imports("import a.b\ndef f():\n    from c import d\n") == {"a.b", "c.d"}
    text = (
        "cimport a\nimport b, c\nfrom d cimport (\n    f,  # F\n    e,\n)\nfrom g import h as i\n"
    )
    assert cython_imports(f"{text}# import no\n    import lazily\n") == {
        *("a", "b", "c", "d.f", "d.e", "g.h")
    }


def test_what_a_recorded_program_starts_with_is_small() -> None:
    code = f"""
import sys
sys.path[:] = {sys.path!r}
before = set(sys.modules)
import cudnn_bindgen.frontend.recording.process
names = {{n.partition(".recording")[2] for n in set(sys.modules) - before if "recording" in n}}
assert names == {{"", ".import_hook", ".process"}}, names
assert not [n for n in sys.modules if n.startswith("cudnn_bindgen.codegen")]
slow = {{"contextlib", "importlib.util", "pathlib", "typing"}} - before
assert not slow & set(sys.modules)
import cudnn_bindgen.frontend.recording.session
assert not {{"rich", "click", "jinja2", "Cython", "cudnn", "torch"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


# The rest is Python's and click's: the program that is recorded waits for all of this.
STARTED = {
    *("", ".cli", ".codegen", ".codegen.errors", ".codegen.text"),
    *(".commands", ".commands.errors", ".commands.group"),
}
RECORDED = {".commands.record", ".frontend"}
RECORDED |= {f".frontend.recording{name}" for name in ("", ".program")}
HEAVY = {"Cython", "filelock", "jinja2", "msgspec", "platformdirs", "rich", "setuptools"}


def loaded_by(arguments: list[str], folder: Path) -> set[str]:
    """Return what is imported when a command has ended."""
    code = f"""
import sys
from cudnn_bindgen.cli import main
try:
    main({arguments!r})
except SystemExit:
    print("\\n".join(sorted(sys.modules)))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--version"], STARTED),
        (["record", "--help"], STARTED | {".commands.record"}),
        (["record", "-o", "graphs", "--", "true"], STARTED | RECORDED),
    ],
)
def test_a_command_loads_only_what_it_needs(
    arguments: list[str], expected: set[str], tmp_path: Path
) -> None:
    loaded = loaded_by(arguments, tmp_path)
    names = {name for name in loaded if name.split(".")[0] == PACKAGE}
    assert names == {f"{PACKAGE}{name}" for name in expected}
    assert not loaded & {*HEAVY, "cuda", "cudnn", "torch", "ubjson"}


def test_help_loads_no_room_of_the_frontend(tmp_path: Path) -> None:
    loaded = loaded_by(["--help"], tmp_path)
    assert not {name for name in loaded if within(name, {f"{PACKAGE}.frontend", "cudnn"})}

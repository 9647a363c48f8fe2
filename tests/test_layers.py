"""Which part may know which: docs/design.md and the order of the stages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import TESTS

ROOT = TESTS.parent
PACKAGE = "cudnn_bindgen"
CODEGEN = sorted((ROOT / "codegen").rglob("*.py"))
RUNTIME = sorted(
    path for path in (ROOT / "runtime").iterdir() if path.suffix in {".py", ".pyx", ".pxd"}
)
PLANNING = sorted((ROOT / "planning").glob("*.py"))
RECORDING = sorted(
    path for path in (ROOT / "recording").rglob("*") if path.suffix in {".py", ".pyx", ".hpp"}
)
ACCELERATING = sorted((ROOT / "accelerating").glob("*.py"))
CACHING = sorted((ROOT / "caching").glob("*.py"))
ROOMS = ("accelerating", "caching", "planning", "recording")  # beside codegen and runtime
HEADERS = sorted((ROOT / "runtime").glob("*.hpp"))
TEMPLATES = sorted((ROOT / "templates").iterdir())

# What each module of codegen may import of codegen: the stages in order, each seeing only what
# stands left of it.
BASE = {"errors", "text"}
DIALECTS = {"dialects", "dialects.decode", "dialects.document"}
MODEL = {"graph", "naming", "ports", "fingerprint"}
DECODING = {*BASE, "dialects.decode", "dialects.document"}
ALLOWED = {
    "__init__": set(),
    "text": set(),
    "errors": {"text"},
    "options": set(),
    "ports": set(),
    "naming": BASE,
    "operation_graph": {"dialects.decode", "dialects.document"},
    "graph": {*BASE, "operation_graph"},
    "lowering": {"errors", "graph", "naming", "scalar"},
    "score_mods": {"graph", "operation_graph", "scalar"},
    "unsaid": {"dialects.document", "graph", "naming", "operation_graph", "scalar", "score_mods"},
    "fingerprint": {"graph", "lowering", "scalar", "unsaid"},
    "evidence": set(),
    "scalar": {*BASE, "graph", "dialects.document"},
    "source": BASE,
    "archive": {*DECODING, "source"},
    "read": {
        *BASE,
        *DIALECTS,
        "check_graph",
        "graph",
        "options",
        "ports",
        "read_plan",
        "read_tensor",
        "scalar",
        "unsaid",
        "write_structure",
    },
    "write_structure": {"dialects.document"},
    "read_tensor": {*BASE, "dialects.document", "graph", "scalar"},
    "read_plan": {*BASE, *DIALECTS, "evidence", "graph", "operation_graph", "scalar"},
    "check_graph": {*BASE, "graph", "lowering", "ports"},
    "axes": {"graph"},
    "overrides": BASE,
    "sidecar": {*BASE, "overrides", "source"},
    "layouts": {"graph"},
    "binding": {*BASE, *MODEL, "axes", "layouts", "overrides", "plan_parts", "unsaid"},
    "plan_parts": {"graph"},
    "bind_graphs": {*BASE, "binding", "graph", "overrides"},
    "bundle": {*BASE, "archive", "bind_graphs", "graph", "options", "read"},
    "describe": {*BASE, "binding", "naming"},
    "signatures": {"binding"},
    "render_overrides": {*BASE, "binding", "graph", "overrides"},
    "render": {
        *(BASE | {"binding", "describe", "graph", "plan_parts", "render_overrides", "signatures"}),
    },
    "alike": {*BASE, "binding", "graph"},
    "family_key": {*BASE, "binding", "naming"},
    "family": {*BASE, "alike", "axes", "binding", "family_key"},
    "render_family": {
        *(BASE | {"binding", "describe", "family", "family_key", "plan_parts", "render"}),
        "signatures",
    },
    "backward_tags": {"ports"},
    "gradient_layouts": {"binding", "graph"},
    "torch_operator": {*BASE, "binding", "graph"},
    "torch_autograd": {
        *(BASE | {"backward_tags", "binding", "gradient_layouts", "graph", "naming"}),
    },
    "render_torch": {*BASE, "binding", "render", "torch_autograd", "torch_operator"},
    "modules": {
        *(BASE | {"binding", "naming", "render", "render_torch", "torch_autograd"}),
        "torch_operator",
    },
    "output": BASE,
    "show": {
        *(BASE | {"binding", "bundle", "evidence", "graph", "options", "plan_parts", "read"}),
        "source",
    },
    "compile": {*BASE, "output"},
    "compile_all": {*BASE, "compile"},
    "command_errors": BASE,
    "command_group": {*BASE, "command_errors"},
    "command_graphs": {
        *(BASE | {"bind_graphs", "bundle", "command_errors", "graph", "modules", "naming"}),
        *("options", "overrides", "sidecar", "source"),
    },
    "command_emit": {
        *(BASE | {"command_family", "command_graphs", "command_options", "modules", "options"}),
        *("output", "overrides", "show", "sidecar", "source"),
    },
    "command_build": {
        *(BASE | {"command_family", "command_graphs", "command_options", "compile"}),
        *("compile_all", "modules", "options", "output", "overrides"),
    },
    "command_show": {
        *(BASE | {"bind_graphs", "binding", "command_errors", "command_graphs"}),
        *("command_options", "compile", "options", "output", "render", "show"),
    },
    "command_bundle": {*BASE, "bundle", "options", "output", "source"},
    "command_options": {*BASE, "options", "overrides"},
    "command_family": {
        *(BASE | {"alike", "bind_graphs", "bundle", "command_errors", "family", "naming"}),
        *("options", "overrides", "render_family", "sidecar", "source"),
    },
    "plan_file": {*BASE, "bind_graphs", "bundle", "plan_parts", "source"},
    "dialects.__init__": {
        *(BASE | {"options", "dialects.document"}),
        *("dialects.plan", "dialects.log", "dialects.structure", "dialects.int_list"),
        "dialects.refused",
    },
    "dialects.document": BASE,
    "dialects.decode": {*BASE, "dialects.ubjson_scan"},
    "dialects.ubjson_scan": BASE,
    "dialects.plan": {*DECODING, "dialects.structure", "options"},
    "dialects.log": {*DECODING, "dialects.structure", "options", "ports"},
    "dialects.int_list": {*DECODING, "dialects.plan", "options"},
    "dialects.structure": {
        *(DECODING | {"options"}),
        *("dialects.refused", "dialects.structure_v1", "dialects.values_v1"),
    },
    "dialects.structure_v1": {*DECODING, "dialects.values_v1", "ports"},
    "dialects.values_v1": DECODING,
    "dialects.refused": {*DECODING, "options"},
}


# The same for planning, whose modules may import any of codegen's but those of commands.
PLANNING_ALLOWED = {
    "__init__": set(),
    "call": set(),
    "options": set(),
    "frontend": set(),
    "structure": set(),
    "rules": {"call"},
    "replay_attention": {"call", "rules"},
    "replay_linear": {"rules"},
    "replay_norms": {"call", "rules"},
    "replay_pointwise": {"rules"},
    "replay_shapes": {"call", "rules"},
    "replay": {
        *("call", "rules", "replay_attention", "replay_linear", "replay_norms"),
        *("replay_pointwise", "replay_shapes"),
    },
    "lowering": {"structure"},
    "implementation": {"structure"},
    "compare": {"implementation", "structure"},
    "constants": {"structure"},
    "rebuild": {"call", "compare", "frontend", "lowering", "replay", "structure"},
    "torch_types": set(),
    "wanted": set(),
    "port_values": {"torch_types", "wanted"},
    "operands": {"port_values", "torch_types", "wanted"},
    "agreement": {"torch_types", "wanted"},
    "cuda": {"torch_types"},
    "measure": {"agreement", "cuda", "operands", "torch_types", "wanted"},
    "candidates": {"frontend", "options"},
    "evidence": {"frontend", "options"},
    "autotune": {
        *("agreement", "candidates", "cuda", "evidence", "frontend", "measure", "wanted"),
    },
    "build_plan": {
        *("autotune", "candidates", "cuda", "evidence", "frontend", "implementation"),
        *("options", "rebuild", "structure", "wanted"),
    },
    "make_plan": {
        *("autotune", "build_plan", "constants", "frontend", "lowering", "options", "structure"),
    },
    "progress": {"autotune"},
    "command": {"constants", "make_plan", "options", "progress"},
    "plan_cache": {"options", "structure"},
    "missing": {"constants", "frontend", "make_plan", "options", "plan_cache"},
}

# And for recording, in a program that is not ours: what it writes on one side, what is read on the
# other, which loads rich.
RECORDING_ALLOWED = {
    "__init__": set(),
    "files": set(),
    "capturing": set(),
    "observe": set(),
    "counting": set(),
    "counted_method": set(),
    "import_hook": set(),
    "startup.__init__": set(),
    "startup.sitecustomize": {"process"},
    "process": {"files", "import_hook", "session"},
    "describe": set(),
    "tally": {"observe"},
    "ledger": {"describe", "files", "tally"},
    "recorder": {"capturing", "counting", "describe", "ledger", "observe"},
    "hooks": {"recorder"},
    "session": {"hooks", "import_hook", "recorder"},
    "program": {"files"},
    "merge": {"files", "observe", "tally"},
    "estimate": set(),
    "accepts": {"observe"},
    "symbols": {"observe"},
    "report": {"accepts", "estimate", "merge", "symbols", "tally"},
    "command": {"program", "report"},
}

# And for accelerating, which uses codegen and the runtime.
ACCELERATING_ALLOWED: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "module_key": set(),
    "loaded_modules": set(),
    "accelerated": set(),
    "module_cache": {"errors"},
    "accelerate": {"accelerated", "errors", "loaded_modules", "module_cache", "module_key"},
}


def name_of(path: Path, folder: str) -> str:
    return ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)


def python_imports(text: str) -> Iterator[str]:
    """Yield the full name of each import, wherever in the text it stands."""
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, ast.Import):
            yield from (alias.name for alias in item.names)
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, "imports are absolute"
            yield from (f"{item.module}.{alias.name}" for alias in item.names)


def cython_imports(text: str) -> Iterator[str]:
    for match in re.finditer(
        r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w., ]+))", text, re.M
    ):
        yield from (name.strip() for name in (match[1] or match[2]).split(","))
    for match in re.finditer(r"^\s*from\s+([\w.]+)\s+c?import\s+([\w, ]+)", text, re.M):
        yield from (f"{match[1]}.{name.strip()}" for name in match[2].split(","))


def imports(path: Path) -> set[str]:
    text = path.read_text()
    return set(python_imports(text) if path.suffix == ".py" else cython_imports(text))


def within(names: set[str], *packages: str) -> set[str]:
    return {n for n in names if any(n == p or n.startswith(f"{p}.") for p in packages)}


def test_each_module_of_codegen_has_a_place_in_the_order() -> None:
    assert sorted(name_of(path, "codegen") for path in CODEGEN) == sorted(ALLOWED)


@pytest.mark.parametrize("path", CODEGEN, ids=lambda path: name_of(path, "codegen"))
def test_a_stage_sees_only_earlier_stages(path: Path) -> None:
    modules = {f"{PACKAGE}.codegen.{name.removesuffix('.__init__')}": name for name in ALLOWED}
    seen = set()
    for name in within(imports(path), f"{PACKAGE}.codegen"):
        while name not in modules:
            assert name, "has no place in the order"
            name = name.rpartition(".")[0]
        seen.add(modules[name].removesuffix(".__init__"))
    assert seen <= ALLOWED[name_of(path, "codegen")]


def test_the_order_has_no_cycle() -> None:
    done: set[str] = set()
    left = {name.removesuffix(".__init__"): needs for name, needs in ALLOWED.items()}
    while left:
        ready = {name for name, needs in left.items() if needs <= done}
        assert ready, f"these need each other: {sorted(left)}"
        done |= ready
        left = {name: needs for name, needs in left.items() if name not in ready}


@pytest.mark.parametrize("path", CODEGEN, ids=lambda path: name_of(path, "codegen"))
def test_codegen_never_imports_the_runtime_or_a_gpu_library(path: Path) -> None:
    assert not within(
        imports(path),
        *(f"{PACKAGE}.{room}" for room in ("runtime", *ROOMS, "cli")),
        *("cuda", "torch", "cudnn"),
    )


@pytest.mark.parametrize("path", PLANNING, ids=lambda path: name_of(path, "planning"))
def test_planning_sees_only_what_stands_left_of_it(path: Path) -> None:
    found = imports(path)
    rooms = ("accelerating", "runtime", "recording", "templates", "cli")
    assert not within(found, *(f"{PACKAGE}.{room}" for room in rooms))
    # The frontend and PyTorch are loaded by name, in one place, and only when a plan is made.
    assert not within(found, "cudnn", "cuda", "torch")
    assert ('import_module("cudnn")' in path.read_text()) == (path.stem == "frontend")
    assert ('import_module("torch")' in path.read_text()) == (path.stem == "cuda")
    assert bool(within(found, "rich")) == (path.stem == "progress")
    assert bool(within(found, "click")) == (path.stem == "command")
    seen = {n.split(".")[2] for n in within(found, f"{PACKAGE}.planning")}
    assert seen <= PLANNING_ALLOWED[name_of(path, "planning")]


def test_each_module_of_planning_has_a_place() -> None:
    assert sorted(name_of(path, "planning") for path in PLANNING) == sorted(PLANNING_ALLOWED)


@pytest.mark.parametrize("path", RECORDING, ids=lambda path: name_of(path, "recording"))
def test_recording_sees_only_what_stands_left_of_it(path: Path) -> None:
    if path.suffix == ".hpp":
        own = re.findall(r'#include "(.*)"', path.read_text())
        assert own == []
        return
    found = imports(path)
    rooms = ("accelerating", "caching", "planning", "templates", "cli")
    assert not within(found, *(f"{PACKAGE}.{room}" for room in rooms))
    # The report judges layouts as `run` does, by the same code.
    door = {f"{PACKAGE}.runtime.layout_match.compare_layouts"}
    of_runtime = set(within(found, f"{PACKAGE}.runtime"))
    assert of_runtime <= (door if path.stem == "accepts" else set())
    # The program loads the frontend and PyTorch; recording only looks at what is there.
    assert not within(found, "cudnn", "cuda", "torch")
    name = name_of(path, "recording")
    assert bool(within(found, "click")) == (name == "command")
    assert bool(within(found, "rich")) == (name == "report")
    seen = {n.split(".")[2] for n in within(found, f"{PACKAGE}.recording")}
    assert seen <= RECORDING_ALLOWED[name]


def test_each_module_of_recording_has_a_place() -> None:
    assert sorted(name_of(path, "recording") for path in RECORDING) == sorted(RECORDING_ALLOWED)


def test_what_a_recorded_program_starts_with_is_small() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport cudnn_bindgen.recording.process\n"
        "names = sorted(n for n in set(sys.modules) - before if n.startswith('cudnn_bindgen'))\n"
        "assert names == ['cudnn_bindgen', 'cudnn_bindgen.recording',\n"
        "    'cudnn_bindgen.recording.files', 'cudnn_bindgen.recording.import_hook',\n"
        "    'cudnn_bindgen.recording.process'], names\n"
        "slow = {'contextlib', 'importlib.util', 'pathlib', 'typing'} - before\n"
        "assert not slow & set(sys.modules)\n"
        "import cudnn_bindgen.recording.session\n"
        "assert not {'rich', 'click', 'jinja2', 'Cython', 'cudnn', 'torch'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-S", "-c", f"import sys\nsys.path[:] = {sys.path!r}\n{code}"], check=True
    )


@pytest.mark.parametrize("path", ACCELERATING, ids=lambda path: name_of(path, "accelerating"))
def test_accelerating_sees_only_what_stands_left_of_it(path: Path) -> None:
    found = imports(path)
    assert not within(
        found, *(f"{PACKAGE}.{room}" for room in ("planning", "recording", "templates", "cli"))
    )
    # A graph comes with its frontend, which is loaded then.
    assert not within(found, "cudnn", "cuda", "torch")
    assert 'import_module("cudnn")' not in path.read_text()
    assert not within(found, "filelock", "platformdirs")
    seen = {n.split(".")[2] for n in within(found, f"{PACKAGE}.accelerating")}
    assert seen <= ACCELERATING_ALLOWED[name_of(path, "accelerating")]


def test_each_module_of_accelerating_has_a_place() -> None:
    names = sorted(name_of(path, "accelerating") for path in ACCELERATING)
    assert names == sorted(ACCELERATING_ALLOWED)


@pytest.mark.parametrize("path", CACHING, ids=lambda path: name_of(path, "caching"))
def test_caching_knows_only_files(path: Path) -> None:
    found = imports(path)
    assert not within(found, PACKAGE, "cudnn", "cuda", "torch", "click", "rich")
    assert bool(within(found, "filelock", "platformdirs")) == (path.stem == "file_cache")


def test_only_the_package_offers_accelerate() -> None:
    assert not within(imports(ROOT / "cli.py"), f"{PACKAGE}.accelerating")
    found = imports(ROOT / "src" / PACKAGE / "__init__.py")
    assert within(found, f"{PACKAGE}.accelerating") == {
        f"{PACKAGE}.accelerating.accelerate.accelerate"
    }


def test_help_loads_neither_planning_nor_recording_nor_the_frontend() -> None:
    code = (
        "import sys\nfrom cudnn_bindgen.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "rooms = ('.planning.', '.recording.')\n"
        "names = [n for n in sys.modules if n == 'cudnn' or any(room in n for room in rooms)]\n"
        "assert names == [f'cudnn_bindgen{room}command' for room in rooms], names"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Modules of codegen that know the library of the command line.
COMMANDS = ("build", "bundle", "emit", "errors", "group", "options", "show")

# The rest is Python's and click's: the program that is recorded waits for all of this.
STARTED = {
    *("", ".cli", ".codegen", ".codegen.command_errors", ".codegen.command_group"),
    *(".codegen.errors", ".codegen.text"),
}
RECORDED = {f".recording{name}" for name in ("", ".command", ".files", ".program")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--version"], STARTED),
        (["record", "--help"], (STARTED | RECORDED) - {".recording.files", ".recording.program"}),
        (["record", "-o", "graphs", "--", "true"], STARTED | RECORDED),
    ],
)
def test_a_command_loads_only_what_it_needs(
    arguments: list[str], expected: set[str], tmp_path: Path
) -> None:
    code = f"""
import sys
from cudnn_bindgen.cli import main
try:
    main({arguments!r})
except SystemExit:
    print("\\n".join(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    loaded = set(done.stdout.splitlines())
    names = {name for name in loaded if name.split(".")[0] == PACKAGE}
    assert names == {f"{PACKAGE}{name}" for name in expected}
    heavy = {"Cython", "filelock", "jinja2", "msgspec", "platformdirs", "rich", "setuptools"}
    assert not loaded & {*heavy, "cuda", "cudnn", "torch", "ubjson"}


@pytest.mark.parametrize(
    ("library", "modules"),
    [
        ("Cython", {"compile"}),
        ("setuptools", {"compile"}),
        ("rich", {"show", "compile_all"}),
        ("jinja2", {"render"}),
        ("ubjson", {"dialects.decode"}),
        ("click", {f"command_{name}" for name in COMMANDS}),
        ("zipfile", {"archive"}),
    ],
)
def test_a_library_is_known_in_one_place(library: str, modules: set[str]) -> None:
    users = {name_of(path, "codegen") for path in CODEGEN if within(imports(path), library)}
    assert users == modules


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: path.name)
def test_the_runtime_knows_no_graph_files_and_no_templates(path: Path) -> None:
    found = imports(path)
    rooms = ("codegen", *ROOMS, "templates", "cli")
    assert not within(found, *(f"{PACKAGE}.{room}" for room in rooms))
    assert not within(found, "json", "ubjson", "msgspec", "jinja2", "click", "rich", "Cython")


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.name)
def test_records_know_neither_graph_files_nor_cudnn(path: Path) -> None:
    """They record a function that launches something, and see the driver alone."""
    code = re.sub(r"//.*", "", path.read_text())
    assert not re.search(r"json|codegen|template\.|cudnn(?!_bindgen)", code, re.I)
    own = re.findall(r'#include "(.*)"', code)
    assert {*own} <= {header.name for header in HEADERS} - {path.name}
    assert not [name for name in re.findall("#include <(.*)>", code) if "cuda" in name]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_print_and_do_not_compute(path: Path) -> None:
    text = path.read_text()
    assert "{% set" not in text
    for expression in re.findall(r"{{(.*?)}}", text):
        assert re.fullmatch(r' [a-z_.]+( \| (length|join\(", "\)))? ', expression)
    for condition in re.findall(r"{% if (.*?) %}", text):
        assert re.fullmatch(r"(not )?[a-z_.]+", condition)


def test_emitted_modules_import_the_runtime_and_what_reads_and_makes_plans_only() -> None:
    for template in ("module.pyx.jinja", "family.pyx.jinja"):
        text = (ROOT / "templates" / template).read_text()
        found = set(re.findall(rf"from ({PACKAGE}[\w.]*) c?import", text))
        assert {name for name in found if not name.startswith(f"{PACKAGE}.runtime.")} == {
            f"{PACKAGE}.codegen.plan_file",
            f"{PACKAGE}.planning.missing",
        }


def test_the_import_readers_see_imports() -> None:
    assert set(python_imports("import a.b\ndef f():\n    from c import d\n")) == {"a.b", "c.d"}
    text = (
        "cimport a\n    import b, c\nfrom d.e cimport (\n    f,\n)\nfrom g import h\n# import no\n"
    )
    assert {"a", "b", "c", "d.e", "g", "g.h"} <= set(cython_imports(text))
    assert "no" not in set(cython_imports(text))


@pytest.mark.parametrize(
    "path",
    [
        *CODEGEN,
        *PLANNING,
        *RECORDING,
        *ACCELERATING,
        *CACHING,
        *RUNTIME,
        *HEADERS,
        *TEMPLATES,
        ROOT / "cli.py",
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 300

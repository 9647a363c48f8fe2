"""Compiled modules and the stand-in libraries for them, shared as far as tests stay independent.

Each module is compiled once a test run, by whichever worker needs it first. Each test loads copies
of its own: nothing that one test leaves in a module can help or disturb another.
"""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from support import chains, families, overriding, tensor_cases
from support.cases import CASES, GRAPHS, Case
from support.launch_recording import Moving, launched
from support.operands import Operands
from support.plan_sets import HERE, THERE, made_for
from support.standin import Paths, Standin, build

import cudnn_bindgen
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.compile import compile_module, extension_path
from cudnn_bindgen.codegen.output import write_files
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.module_data import RUNTIME_ABI

# No deadline: another worker may be compiling.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# readline says 80 to all children of a process that imports it, as xdist's workers do.
os.environ.pop("COLUMNS", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew, and generated/"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One worker runs them, while the others do all else: last, they would wait for each other.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Take what stays out of what is looked through for garbage: collected tests, PyTorch."""
    gc.collect()
    gc.freeze()


CALLER = "caller"
"""A module that calls thd's `enqueue` without the GIL, as other people's Cython code would."""

SEVERAL = "several"
"""A module of a graph with a plan for each of two kinds of device."""

WRITTEN = Path(__file__).parent / "support" / "cython"
"""Modules that are written by hand. What they cimport must be loaded first."""


def several_plans() -> list[bytes]:
    """Return the plan files that SEVERAL is made of."""
    return [made_for("parts", HERE), made_for("kept", THERE)]


def caller_text() -> str:
    """Return the source of CALLER."""
    slots = range(len(CASES["thd"].operands))
    return f"""# cython: language_level=3
from cudnn_bindgen.runtime.graph cimport check_abi
from libc.stdint cimport uintptr_t
from thd cimport enqueue

check_abi({RUNTIME_ABI})


def call(*addresses, uintptr_t workspace_ptr=0, uintptr_t stream=0, int times=1):
    cdef uintptr_t a[{len(slots)}]
    cdef int i
    for i in range({len(slots)}):
        a[i] = addresses[i]
    with nogil:
        for i in range(times):
            enqueue(
                {", ".join(f"<void*>a[{slot}]" for slot in slots)},
                <void*>workspace_ptr, <void*>stream,
            )
"""


class Builds:
    """Emitted and compiled modules in one folder, whose files several processes may ask for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, module: str) -> Path:
        """Return the compiled module, after compiling it unless that was done."""
        with self.lock(module):
            compiled = extension_path(self.directory, module)
            if compiled.exists():
                return compiled
            return self.compile(module, self.emit(module))

    def emit(self, module: str) -> dict[str, str]:
        """Return the module's files."""
        if module == CALLER:
            self.path("thd")  # its .pxd
            return {f"{CALLER}.pyx": caller_text()}
        source = WRITTEN / f"{module}.pyx"
        if source.exists():
            return {source.name: source.read_text()}
        if module == SEVERAL:
            bindings = [bind(read_graph(plan)) for plan in several_plans()]
            plans = tuple(binding.plans[0] for binding in bindings)
            return render(replace(bindings[0], plans=plans), module, f"{module}.bundle")
        if module == chains.MODULE:
            return chains.DIAMOND.emit()
        if module in families.FAMILIES:
            return families.emit(module)
        graph = read_graph((GRAPHS | overriding.GRAPHS | tensor_cases.GRAPHS)[module])
        binding = bind(graph, overriding.OPTIONS.get(module))
        return render(binding, module, f"{module}.plan")

    def compile(self, module: str, files: dict[str, str]) -> Path:
        write_files(self.directory, files)
        source = self.directory / f"{module}.pyx"
        if "# distutils: language=c++" in source.read_text():
            return self.compile_cplus(source)
        with pytest.MonkeyPatch.context() as patch:
            # Optimising takes longer than all that the module does here.
            patch.setenv("CFLAGS", os.environ.get("CFLAGS", "-O0"))
            return compile_module(source, self.directory)

    def compile_cplus(self, source: Path) -> Path:
        """Compile what looks into the runtime's C++, as no emitted module does."""
        headers = Path(cudnn_bindgen.__file__).parent / "runtime" / "cpp"
        flags = f"{os.environ.get('CXXFLAGS', '-O0')} -std=c++17 -I{headers}"
        subprocess.run(
            [sys.executable, "-m", "Cython.Build.Cythonize", "-iq", source.name],
            cwd=self.directory,
            env=os.environ | {"CFLAGS": flags, "CXXFLAGS": flags},
            check=True,
        )
        return extension_path(self.directory, source.stem)

    def lock(self, name: str) -> Any:
        """Return an open file that no other process has open; to be closed."""
        file = (self.directory / f".{name}.lock").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Builds:
    base = tmp_path_factory.getbasetemp()
    directory = (base if worker_id == "master" else base.parent) / "modules"
    directory.mkdir(exist_ok=True)
    return Builds(directory)


@pytest.fixture
def mypy_cache(builds: Builds) -> Iterator[Path]:
    """What mypy knows of PyTorch, for one test at a time; it takes mypy 15 s to read that."""
    with builds.lock("mypy"):
        yield builds.directory / "mypy"


@pytest.fixture(scope="session")
def standin_paths(builds: Builds) -> Paths:
    """The stand-in libraries, for any process to load; no test may change them."""
    with builds.lock("standin"):
        return build(builds.directory / "standin")


@pytest.fixture
def own_standin(standin_paths: Paths, tmp_path: Path) -> Paths:
    """A copy of the stand-in libraries that a test may damage."""
    return Paths(*(Path(shutil.copy(path, tmp_path)) for path in standin_paths))


@pytest.fixture(scope="session")
def library(standin_paths: Paths) -> Standin:
    return Standin.load(standin_paths.cudnn.parent)


@pytest.fixture
def standin(library: Standin) -> Iterator[Standin]:
    """The stand-in libraries, with device 0 current; fails the test that leaves anything behind."""
    from cudnn_bindgen.runtime.handle import release_handles, release_workspaces

    def live() -> dict[str, int]:
        kinds = ("handle", "plan", "pack", "memory", "stream", "graph", "exec")
        return {kind: library.live(kind) for kind in kinds}

    library.reset()
    before = live()
    with library.context():
        yield library
    violations = library.violations()
    library.reset()  # no failure that a test asked for may hit what follows
    release_workspaces()
    # A joined thread may still be on its way to hand its handles over.
    deadline = time.monotonic() + 5
    while True:
        release_handles()
        if live() == before or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert live() == before, "a test left objects of the libraries behind"
    assert violations == 0


@pytest.fixture
def stream(standin: Standin) -> Iterator[int]:
    """A stream that does not wait for the legacy one, destroyed after the test."""
    stream = standin.stream()
    yield stream
    standin.destroy_stream(stream)


@pytest.fixture(params=["direct", "record"])
def policy(request: pytest.FixtureRequest) -> str:
    """The launch policy of every module that `load` loads: each end-to-end test runs on both paths.

    A test that is about direct launches, as one that reads the log of executions, names its own.
    """
    return str(request.param)


@pytest.fixture
def load(
    standin: Standin, builds: Builds, tmp_path: Path, policy: str
) -> Iterator[Callable[[str], ModuleType]]:
    """Load a copy of a module, with its static data in the state of the first import."""
    loaded: dict[str, ModuleType] = {}
    every: list[ModuleType] = []
    numbers = itertools.count()

    def load(name: str) -> ModuleType:
        directory = tmp_path / f"copy{next(numbers)}"
        directory.mkdir()
        path = shutil.copy(builds.path(name), directory)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded[name] = module
        spec.loader.exec_module(module)
        if hasattr(module, "set_launch_policy"):
            module.set_launch_policy(policy)
        every.append(module)
        return module

    yield load
    for module in every:
        if hasattr(module, "close"):
            module.close()
    for name in loaded:
        sys.modules.pop(name, None)


@pytest.fixture(params=["module", "loaded"])
def served(request: pytest.FixtureRequest) -> str:
    """By what: both are the runtime's Binding, so files that test what is behind it take one."""
    return str(request.param)


@pytest.fixture
def serve(
    served: str, load: Callable[[str], ModuleType], policy: str
) -> Iterator[Callable[..., Any]]:
    """What serves a graph: its module, or what `cudnn_bindgen.load` makes of the file itself."""
    made: list[Any] = []

    def serve(module: str, graph: bytes, **options: Any) -> Any:
        if served == "module":
            return load(module)
        made.append(cudnn_bindgen.load(graph, name=module, **options))
        made[-1].set_launch_policy(policy)
        return made[-1]

    yield serve
    for binding in made:
        binding.close()


@pytest.fixture
def load_case(serve: Callable[..., Any]) -> Callable[[str], Any]:
    """Serve a case's graph, with the case's plan."""

    def load_case(name: str) -> Any:
        case = CASES[name]
        found = serve(case.module, case.graph)
        if not case.embedded:
            found.load_plan(case.plan)
        return found

    return load_case


@pytest.fixture
def load_launch(load: Callable[[str], ModuleType]) -> Callable[[str, str], ModuleType]:
    """Load a case's module with a plan of another kind of launch."""

    def load_launch(name: str, launch: str) -> ModuleType:
        case = launched(name, launch)
        module = load(case.module)
        module.load_plan(case.plan)
        return module

    return load_launch


@pytest.fixture
def thd(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("thd")


@pytest.fixture(params=["execute", "enqueue"])
def call(
    request: pytest.FixtureRequest, thd: ModuleType, load: Callable[[str], ModuleType]
) -> Callable[..., None]:
    """Python's way in, which holds the GIL, and Cython's, which does not."""
    return thd.execute if request.param == "execute" else load("caller").call


@pytest.fixture
def place(standin: Standin) -> Iterator[Callable[..., Operands]]:
    """Make operands for a case; they are freed after the test."""
    placed: list[Operands] = []

    def place(case: Case | str, seed: int = 0) -> Operands:
        operands = Operands(standin, CASES[case] if isinstance(case, str) else case, seed)
        placed.append(operands)
        return operands

    yield place
    for operands in placed:
        for address in operands.addresses.values():
            standin.free(address)


@pytest.fixture
def move(standin: Standin, place: Callable[..., Operands]) -> Iterator[Callable[..., Moving]]:
    """Make operands that move; their memory is freed after the test."""
    made: list[Moving] = []

    def move(case: Case | str, seed: int = 0) -> Moving:
        made.append(Moving(standin, place(case, seed), seed))
        return made[-1]

    yield move
    for moving in made:
        moving.close()


@pytest.fixture
def on_thread() -> Callable[..., Any]:
    """Call a function on a new thread, which has no context, and wait for its end."""

    def on_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            thread = pool.submit(threading.get_native_id).result()
            future = pool.submit(function, *arguments)
        # Python's join does not wait for what a thread does last, such as handing over its handles.
        while Path(f"/proc/self/task/{thread}").exists():
            time.sleep(0.001)
        return future.result()

    return on_thread


@pytest.fixture
def product(standin: Standin, serve: Callable[..., Any]) -> Any:
    """What serves a graph whose calls override shapes, with a cuDNN that takes them."""
    standin.set_version(overriding.VERSION)
    options = overriding.OPTIONS["product"]
    return serve(
        "product",
        overriding.GRAPHS["product"],
        symbols=options.symbols,
        unbounded=options.is_unbounded,
    )


@pytest.fixture
def arrays(standin: Standin) -> Iterator[Callable[..., overriding.Arrays]]:
    """Make buffers for `product`; they are freed after the test."""
    made: list[overriding.Arrays] = []

    def arrays(seed: object = 0) -> overriding.Arrays:
        made.append(overriding.Arrays(standin, seed))
        return made[-1]

    yield arrays
    for one in made:
        one.close()

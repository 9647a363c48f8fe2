"""What pip installs: sdist → wheel → install, and the editable install, from a clean copy.

Nothing is downloaded: build tools and dependencies are those of the environment that runs the
tests, which fresh virtual environments see through a .pth file.
"""

from __future__ import annotations

import email
import fcntl
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cudnn_bindgen.extras import BUILD

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[1]
PLAN = ROOT / "tests/data/plans/cudnn-9.19-sm90/matmul_bias_relu.plan"
SOURCES = (
    *("*.py", "*.pyx", "*.pxd", "*.c", "*.hpp", "*.pyi", "*.jinja", "*.toml", "*.cmake"),
    "py.typed",
)
OFFLINE = ("--no-build-isolation", "--no-deps", "--no-index")

# Somebody else's Cython code that uses the runtime, as generated modules do.
OUTSIDER = '''\
# cython: language_level=3
from libc.stdint cimport uintptr_t
from cudnn_bindgen.runtime.arguments cimport address, float32
from cudnn_bindgen.runtime.graph cimport execute_plan


cdef int enqueue(void* graph, void** slots) except -1 nogil:
    return execute_plan(graph, slots, NULL, NULL)


def converted(value, number):
    """The arguments after a round trip through C."""
    if value is None:  # never, but the call must compile
        enqueue(NULL, NULL)
    return <uintptr_t>address(value, "value"), float32(number, "number")
'''

# Prints where the package is from, after importing all of it that needs no GPU.
IMPORT = """\
import importlib, pkgutil, cudnn_bindgen
for module in pkgutil.walk_packages(cudnn_bindgen.__path__, "cudnn_bindgen."):
    # A library for the dynamic linker, in the clothes of an extension module.
    if not module.name.endswith(".driver_stub"):
        importlib.import_module(module.name)
print(cudnn_bindgen.__path__[0])
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run `command` and return what it printed; PYTHONPATH must not decide what it imports."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # The code's speed is not the point here, the compiler's is.
    environment |= {
        "CFLAGS": "-O0 -g0",
        "CXXFLAGS": "-O0 -g0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


@contextmanager
def built_once(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """Lock and yield a folder that all pytest-xdist workers share, and whether it is empty yet."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        yield folder, not done.exists()
        done.touch()


def copy_repository(target: Path) -> None:
    ignored = (line.strip().rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines())
    patterns = [".git", *filter(None, ignored)]
    shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*patterns))


def new_environment(folder: Path) -> Path:
    """Make a virtual environment and return its Python, which sees what this one has."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    purelib = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    )
    packages = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    # As site does for its own: setuptools' distutils, for one, comes by a .pth file there.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in packages]
    # zz: read last, so that what is installed here comes first.
    (Path(purelib.strip()) / "zz_outer.pth").write_text("".join(lines))
    return python


def install(python: Path, *what: str | Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *OFFLINE]
    # The environment around it may have the project too, which is nothing to uninstall.
    run(*pip, "--ignore-installed", *what, cwd=ROOT)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist of a clean copy of the repository, and the wheel that is built from the sdist."""
    with built_once(tmp_path_factory, "distributions") as (folder, is_new):
        if is_new:
            copy_repository(folder / "copy")
            hook = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
            run(sys.executable, "-c", hook, cwd=folder / "copy")
            (sdist,) = folder.glob("*.tar.gz")
            pip = [sys.executable, "-m", "pip", "wheel", *OFFLINE]
            run(*pip, "--wheel-dir", folder, sdist, cwd=folder)
        (sdist,) = folder.glob("*.tar.gz")
        (wheel,) = folder.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel, "copy": folder / "copy"}


@pytest.fixture(scope="module")
def installed(
    distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The wheel, installed: its Python and where the package must be."""
    with built_once(tmp_path_factory, "installed") as (folder, is_new):
        python = folder / "bin" / "python"
        if is_new:
            install(new_environment(folder), distributions["wheel"])
    return python, folder


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A clean copy, installed with ``pip install -e``: its Python and the copy."""
    with built_once(tmp_path_factory, "editable") as (folder, is_new):
        python = folder / "venv" / "bin" / "python"
        if is_new:
            copy_repository(folder / "copy")
            install(new_environment(folder / "venv"), "-e", folder / "copy")
    return python, folder / "copy"


@pytest.fixture(scope="module", params=["installed", "editable"])
def environment(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Either of the two."""
    found: tuple[Path, Path] = request.getfixturevalue(request.param)
    return found


def test_imports(environment: tuple[Path, Path], tmp_path: Path) -> None:
    python, home = environment
    package = Path(run(python, "-W", "error", "-c", IMPORT, cwd=tmp_path).strip())
    assert home in package.parents


def test_console_script(environment: tuple[Path, Path], tmp_path: Path) -> None:
    python, _ = environment
    script = python.with_name("cudnn-bindgen")
    assert run(script, "--version", cwd=tmp_path).startswith("cudnn-bindgen, version ")
    run(script, "emit", PLAN, "-o", "binding.pyx", cwd=tmp_path)
    run(script, "build", PLAN, "-d", ".", "--name", "binding", cwd=tmp_path)
    run(python, "-W", "error", "-c", "import binding; binding.FINGERPRINT", cwd=tmp_path)


def test_cimport_from_outside(environment: tuple[Path, Path], tmp_path: Path) -> None:
    python, _ = environment
    (tmp_path / "outsider.pyx").write_text(OUTSIDER)
    run(python, "-m", "Cython.Build.Cythonize", "--inplace", "outsider.pyx", cwd=tmp_path)
    call = "import outsider; print(outsider.converted(2**63, 0.5))"
    assert run(python, "-c", call, cwd=tmp_path).strip() == f"({2**63}, 0.5)"


def test_editable_install_sees_new_files(editable: tuple[Path, Path], tmp_path: Path) -> None:
    python, copy = editable
    (copy / "codegen" / "added_later.py").write_text("ANSWER = 42\n")
    try:
        call = "from cudnn_bindgen.codegen import added_later; print(added_later.ANSWER)"
        assert run(python, "-c", call, cwd=tmp_path).strip() == "42"
    finally:
        (copy / "codegen" / "added_later.py").unlink()


# What a deployed program does, and what it cannot do without the extra `build`.
DEPLOYED = """\
import sys
sys.path[:0] = sys.argv[1:]
import cudnn_bindgen, thd
from support.standin import Paths, Standin
libraries = Standin(Paths({cudnn!r}, {driver!r}))
with libraries.context():
    thd.execute(*[libraries.alloc(128) for _ in thd.OPERANDS])
    assert len(libraries.log("cudnnBackendExecute")) == 1
    assert libraries.violations() == 0
files = [name for name, module in sys.modules.items() if getattr(module, "__file__", None)]
loaded = {{name.partition(".")[0] for name in files}} - sys.stdlib_module_names
print(sorted(loaded - {{"support"}}))
import cuda.pathfinder
for call in (
    lambda: thd.load_plan(b""),
    lambda: thd.load_plan(on_missing="plan"),
    lambda: cudnn_bindgen.load(b""),
    lambda: cudnn_bindgen.accelerate,
):
    try:
        call()
    except ImportError as error:
        print(error)
import cudnn_bindgen.cli
"""


def test_what_is_deployed_needs_no_compiler(
    distributions: dict[str, Path], builds: Any, standin_paths: Any, tmp_path: Path
) -> None:
    """The wheel and what it requires without extras, beside a module, with its compiler gone."""
    site, app = tmp_path / "site", tmp_path / "app"
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        wheel.extractall(site)
    [info] = importlib.metadata.distributions(name="cudnn-bindgen", path=[str(site)])
    required = [line for line in info.requires or () if "extra ==" not in line]
    assert [re.split(r"[<>=]", line)[0] for line in required] == ["cuda-pathfinder"]
    for file in importlib.metadata.files("cuda-pathfinder") or ():
        if file.suffix == ".py":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.locate(), site / file)
    app.mkdir()
    shutil.copy(builds.path("thd"), app)
    program = DEPLOYED.format(cudnn=str(standin_paths.cudnn), driver=str(standin_paths.driver))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", program, site, app, ROOT / "tests"],
        env={"PATH": ""},
        capture_output=True,
        text=True,
    )
    brings = "pip install 'cudnn-bindgen[build]' brings it"
    loaded, *refused = done.stdout.splitlines()
    assert loaded == "['cudnn_bindgen', 'thd']"
    assert refused == [
        f"load_plan() of a file needs msgspec: {brings}",
        f'load_plan(on_missing="plan") needs msgspec: {brings}',
        f"cudnn_bindgen.load needs msgspec: {brings}",
        f"cudnn_bindgen.accelerate needs msgspec: {brings}",
    ]
    assert (done.returncode, done.stderr) == (2, f"error: cudnn-bindgen needs click: {brings}\n")


def test_the_extra_is_known_by_its_imports(distributions: dict[str, Path]) -> None:
    """A package that it brings is missed by the name that it is imported by."""
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    required = metadata.get_all("Requires-Dist", ())
    brought = {re.split(r"[<>=]", line)[0] for line in required if 'extra == "build"' in line}
    imported = {"cython": "Cython", "py-ubjson": "ubjson"}
    assert {imported.get(name, name) for name in brought} == BUILD


def package_files(copy: Path) -> set[str]:
    """Every source of the package in a clean copy, through the links in src/."""
    source = copy / "src"
    return {
        Path(folder, file).relative_to(source).as_posix()
        for folder, _, files in os.walk(source / "cudnn_bindgen", followlinks=True)
        for file in files
        if any(Path(file).match(pattern) for pattern in SOURCES)
    }


def extension_files(copy: Path) -> set[str]:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    sources = {"frontend/planning": "*.c", "frontend/recording": "*.pyx", "runtime": "*.pyx"}
    rooms = {room: sorted((copy / room).glob(pattern)) for room, pattern in sources.items()}
    assert all(rooms.values())
    return {
        f"cudnn_bindgen/{room}/{source.stem}{suffix}"
        for room, sources in rooms.items()
        for source in sources
    }


def test_wheel_content(distributions: dict[str, Path]) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        entries = [entry for entry in wheel.infolist() if not entry.is_dir()]
    names = {entry.filename for entry in entries if ".dist-info/" not in entry.filename}
    copy = distributions["copy"]
    assert names == package_files(copy) | extension_files(copy)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"cudnn_bindgen"}
    for pattern in SOURCES:
        assert any(Path(name).match(pattern) for name in names) or pattern == "*.pyi", pattern
    assert not [entry for entry in entries if stat.S_ISLNK(entry.external_attr >> 16)]


def test_sdist_content(distributions: dict[str, Path]) -> None:
    with tarfile.open(distributions["sdist"]) as sdist:
        members = sdist.getmembers()
    # A link would dangle, or point out of the folder that it is unpacked into.
    assert not [member.name for member in members if not (member.isfile() or member.isdir())]
    names = {member.name.partition("/")[2] for member in members}
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert {f"src/{name}" for name in package_files(distributions["copy"])} <= names
    assert not [name for name in names if name.startswith("tests/")]
    # Neither C++ that this machine's Cython wrote nor what it compiled.
    assert not [name for name in names if name.endswith((".so", ".cpp", ".o"))]


def test_metadata(distributions: dict[str, Path]) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        texts = {
            Path(name).name: wheel.read(name).decode()
            for name in wheel.namelist()
            if ".dist-info/" in name
        }
    metadata, entry_points = email.message_from_string(texts["METADATA"]), ConfigParser()
    entry_points.read_string(texts["entry_points.txt"])
    assert metadata["Name"] == "cudnn-bindgen"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0"
    extras = metadata.get_all("Provides-Extra")
    assert set(extras) == {"build", "cudnn12", "cudnn13", "dev", "docs", "plan", "svg", "test"}
    assert metadata["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\((.*?)\)", str(metadata.get_payload()))
    assert not [link for link in links if not link.startswith("https://")]
    assert dict(entry_points["setuptools.finalize_distribution_options"]) == {
        "cudnn-bindgen": "cudnn_bindgen.build_systems.setuptools:finalize"
    }
    assert dict(entry_points["cmake.prefix"]) == {
        "cudnn-bindgen": "cudnn_bindgen.build_systems.cmake"
    }
    assert dict(entry_points["console_scripts"]) == {"cudnn-bindgen": "cudnn_bindgen.cli:main"}

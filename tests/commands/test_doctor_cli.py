"""What `doctor` says of installations that are broken, each in one way, by the stand-ins."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from support import chains
from support.bundling import plan
from support.documents import add_graph, to_json
from support.standin import Paths

import cudnn_bindgen
from cudnn_bindgen.cli import main
from cudnn_bindgen.doctor import probe

CALLS = (
    *("GetErrorString", "GetLastErrorString", "Create", "Destroy", "SetStream"),
    *("BackendCreateDescriptor", "BackendDestroyDescriptor", "BackendSetAttribute"),
    *("BackendGetAttribute", "BackendFinalize", "BackendExecute"),
)
NO_GPU = """
int cuInit(unsigned flags) { return 100 + 0 * flags; }
int cuGetErrorName(int status, const char** name) { *name = "CUDA_ERROR_NO_DEVICE"; return status; }
"""
FAKE_FRONTEND = "__version__ = '1.32.0'\nclass pygraph: pass\n"
OLD = "from cudnn_bindgen.runtime.binding import Binding\nBinding('old', 2, b'')\n"


def compile_library(source: str, target: Path) -> None:
    """Compile a library that a program finds by the name of its file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-x", "c", "-", "-o", target]
    soname = f"-Wl,-soname,{target.name}"
    subprocess.run([*command, soname], input=source, text=True, check=True)


def cudnn_source(version: int, *, lacks: str = "") -> str:
    calls = "".join(f"int cudnn{name}(void) {{ return 0; }}\n" for name in CALLS if name != lacks)
    return f"{calls}unsigned long cudnnGetVersion(void) {{ return {version}; }}\n"


class Place:
    """A folder with libraries in front of all others, and files to name."""

    def __init__(self, folder: Path, builds: Any, standin: Paths) -> None:
        self.folder = folder
        self.libraries = folder / "libraries"
        self.builds = builds
        self.standin = standin
        self.environment = {"CUDNN_BINDGEN_CACHE": str(folder / "cache")}
        self.paths = [self.libraries]
        (folder / "front").mkdir()
        self.python("front/cudnn", FAKE_FRONTEND)
        self.libraries.mkdir()
        # Of this machine's own the answers are not known.
        (self.libraries / "libcuda.so.1").write_text("no library")
        shutil.copy(standin.cudnn, self.libraries)

    def put(self, name: str, content: str | bytes) -> str:
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return name

    def python(self, name: str, text: str) -> str:
        self.put(f"{name}.py", text)
        return name

    def gpu(self) -> None:
        """Two GPUs with SM 90 and 132 SMs."""
        shutil.copy(self.standin.driver, self.libraries)

    def cudnn(self, source: str) -> None:
        compile_library(source, self.libraries / "libcudnn.so.9")

    def module(self, name: str) -> str:
        return str(self.builds.path(name))


class Row(NamedTuple):
    """How to break it, and what of it is said; the function may return what the doctor is asked."""

    breaks: Callable[[Place], object]
    what: str
    verdict: str
    found: str
    remedy: str


def other_cudnn(place: Place) -> None:
    compile_library(cudnn_source(92700), place.folder / "other" / "libcudnn.so.9")
    place.paths.append(place.folder / "other")


def with_gpu(given: Callable[[Place], str]) -> Callable[[Place], str]:
    def breaks(place: Place) -> str:
        place.gpu()
        return given(place)

    return breaks


MAKES = "cudnn-bindgen plan {} --for sm_90:132"
ROWS = {
    "no compiler": Row(
        lambda place: place.environment.update(CC="no-such-compiler"),
        *("C compiler", "problem", "there is no no-such-compiler", "apt install gcc"),
    ),
    "a broken compiler": Row(
        lambda place: place.environment.update(CC=place.module("thd")),
        *("C compiler", "problem", "cannot be run", "name one that can in CC"),
    ),
    "a broken cuDNN": Row(
        lambda place: (place.libraries / "libcudnn.so.9").write_text("no library"),
        *("cuDNN", "problem", "libcudnn.so.9: file too short", "install it again"),
    ),
    "a cuDNN that is too old": Row(
        lambda place: place.cudnn(cudnn_source(91900, lacks="BackendFinalize")),
        *("cuDNN of calls", "problem", "no cudnnBackendFinalize: it is too old", "cudnn13"),
    ),
    "two cuDNNs": Row(
        other_cudnn,
        *("cuDNN versions", "warn", "9.19.0 and 9.27.0", "--cudnn DIR"),
    ),
    "which of them is taken": Row(
        other_cudnn,
        *("cuDNN of calls", "ok", "9.19.0: the first in LD_LIBRARY_PATH.", ""),
    ),
    "no driver": Row(
        lambda _: None,
        *("driver", "warn", "expected a GPU, got no NVIDIA driver: ", "--for, emit and build need"),
    ),
    "no driver for a module": Row(
        lambda place: place.module("thd"),
        *("driver", "problem", "expected a GPU, got no NVIDIA driver: ", "install NVIDIA's driver"),
    ),
    "a driver without a GPU": Row(
        lambda place: compile_library(NO_GPU, place.libraries / "libcuda.so.1"),
        *("driver", "warn", "got CUDA_ERROR_NO_DEVICE from cuInit", "install NVIDIA's driver"),
    ),
    "a GPU": Row(Place.gpu, "GPU 1", "ok", "sm_90:132 for --for", ""),
    "a plan for another GPU": Row(
        with_gpu(lambda place: place.put("b200.plan", plan(sm=100, sm_count=148))),
        *("plan for sm_90:132", "problem", "has sm_100:148 under cuDNN 9.19.0; here is sm_90:132"),
        MAKES.format("b200.plan"),
    ),
    "a plan for another cuDNN": Row(
        with_gpu(lambda place: place.put("new.plan", plan(cudnn=92700))),
        *("plan for sm_90:132", "problem", "under cuDNN 9.27.0; here is sm_90:132 under"),
        MAKES.format("new.plan"),
    ),
    "a structure": Row(
        lambda place: place.put("a.json", to_json(add_graph())),
        *("plans", "warn", "a.json has none; no GPU here", "plan a.json --for GPU"),
    ),
    "a module without a plan": Row(
        with_gpu(lambda place: place.module("norm")),
        *("plan for sm_90:132", "problem", "has none", MAKES.format("norm.plan")),
    ),
    "a module that runs": Row(
        with_gpu(lambda place: place.module("thd")),
        *("launch", "ok", "by a record, once proven; kernels and copies: ", ""),
    ),
    "a chain that runs": Row(
        with_gpu(lambda place: place.module(chains.MODULE)),
        *("plan for sm_90:132", "ok", "product.plan: sm_90 under cuDNN 9.19.0", ""),
    ),
    "a module that is no library": Row(
        lambda place: place.put("cut.so", "no library"),
        *("module", "problem", "ImportError: ", "build it again"),
    ),
    "a module of an older cudnn-bindgen": Row(
        lambda place: place.python("old", OLD),
        *("module", "problem", "RuntimeAbiError: the module was emitted for runtime ABI 2"),
        "emit and build it again",
    ),
    "a module that crashes": Row(
        lambda place: place.python("crash", "import os; os.abort()"),
        *("module", "problem", "a process that tried ended: ended with SIGABRT", ""),
    ),
    "a module that exits": Row(
        lambda place: place.python("leaves", "raise SystemExit(3)"),
        *("module", "problem", "SystemExit: 3", ""),
    ),
    "a module of somebody else": Row(
        lambda place: place.python("other", "x = 1"),
        *("module", "problem", "expected a module that cudnn-bindgen emitted", ""),
    ),
    "no such module": Row(
        lambda _: "nowhere.attn",
        *("module", "problem", "ModuleNotFoundError: No module named 'nowhere'", "PYTHONPATH"),
    ),
    "no such file": Row(
        lambda _: "nowhere/attn.plan",
        *("graph", "problem", "nowhere/attn.plan: No such file or directory", "name a built"),
    ),
    "a damaged graph": Row(
        lambda place: place.put("bad.json", b'{"nodes": [\x1b'),
        *("graph", "problem", "expected a graph file, got broken JSON", "show bad.json explains"),
    ),
    "a policy that is none": Row(
        lambda place: place.environment.update(CUDNN_BINDGEN_LAUNCH="fast") or place.module("thd"),
        *("module", "problem", "CUDNN_BINDGEN_LAUNCH: expected ", "to auto, direct or record"),
    ),
    "a cache that cannot be written": Row(
        lambda place: place.environment.update(CUDNN_BINDGEN_CACHE="/proc/nowhere"),
        *("cache", "warn", "/proc/nowhere/plans: ", "CUDNN_BINDGEN_CACHE names another"),
    ),
    "a broken frontend": Row(
        lambda place: place.python("front/cudnn", "raise RuntimeError('no cuDNN')"),
        *("frontend", "problem", "does not load: no cuDNN", "[plan]"),
    ),
    "a frontend that crashes": Row(
        lambda place: place.python("front/cudnn", "import os; os.abort()"),
        *("frontend", "problem", "a process that tried ended: ended with SIGABRT", "[plan]"),
    ),
    "an old frontend": Row(
        lambda place: place.python("front/cudnn", "__version__ = '1.0'"),
        *("frontend", "problem", "1.23 or newer, got 1.0", "[plan]"),
    ),
}
SLEEPS = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", __file__])
time.sleep(60)
"""
CYTHON = ("Cython", "[cC]ython-*")
FRONTEND = ("cudnn", "nvidia_cudnn_frontend-*")
# The names of files that are not installed, and what doctor says then.
LACKING = {
    "Cython": (CYTHON, ("cython", "problem", "not installed", "[build]")),
    "frontend": (FRONTEND, ("frontend", "warn", "not installed; plan", "[plan]")),
    "cuDNN": (("nvidia",), ("cuDNN of calls", "warn", "no cuDNN 9 found", "[cudnn13]")),
}
# The same, and a command that needs them; the line that it prints.
REFUSED = {
    "build without Cython": (
        CYTHON,
        ("build", "-q", "a.json", "-d", "out"),
        "error: expected cython, to compile with, got none (pip install 'cudnn-bindgen[build]')",
    ),
    "--for without the frontend": (
        FRONTEND,
        ("emit", "a.json", "--for", "h100"),
        "error: cannot import nvidia-cudnn-frontend: No module named 'cudnn' "
        "(pip install 'cudnn-bindgen[plan]' brings it, with a cuDNN to plan with)",
    ),
    "show without msgspec": (
        ("msgspec", "msgspec-*"),
        ("show", "a.json"),
        "error: cudnn-bindgen needs msgspec: pip install 'cudnn-bindgen[build]' brings it",
    ),
    "help without click": (
        ("click", "click-*"),
        ("--help",),
        "error: cudnn-bindgen needs click: pip install 'cudnn-bindgen[build]' brings it",
    ),
}


@pytest.fixture
def place(
    tmp_path: Path, builds: Any, standin_paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    yield Place(tmp_path, builds, standin_paths)


@pytest.fixture
def examine(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, str]]]:
    def examine(*arguments: str) -> list[dict[str, str]]:
        monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(map(str, place.paths)))
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "path", [str(place.folder / "front"), *sys.path])
        done = CliRunner().invoke(main, ["doctor", "--json", *arguments])
        assert done.stderr == ""
        findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
        verdicts = {one["verdict"] for one in findings}
        assert done.exit_code == ("problem" in verdicts)
        return findings

    return examine


def check(findings: Sequence[dict[str, str]], row: Sequence[str]) -> None:
    what, verdict, found, remedy = row
    told = [one for one in findings if one["what"] == what]
    assert told, [one["what"] for one in findings]
    assert any(
        one["verdict"] == verdict and found in one["found"] and remedy in one["remedy"]
        for one in told
    ), told
    assert all(one["remedy"] for one in findings if one["verdict"] == "problem")
    for one in findings:
        assert all(text.isprintable() and text.isascii() for text in one.values())


@pytest.mark.parametrize("name", ROWS)
def test_what_is_broken(
    place: Place, examine: Callable[..., list[dict[str, str]]], name: str
) -> None:
    row = ROWS[name]
    subject = row.breaks(place)
    check(examine(*[subject] if isinstance(subject, str) else []), row[1:])


def test_what_hangs(
    place: Place, examine: Callable[..., list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is ended, and what does not hang is described."""
    monkeypatch.setattr(probe, "LIMIT", 2)
    program = place.folder / "compiler"
    program.write_text(f"#!{sys.executable}\n{SLEEPS}")
    program.chmod(0o755)
    place.environment["CC"] = str(program)
    compile_library("int cuInit(unsigned flags) { for (;;) {} }", place.libraries / "libcuda.so.1")
    place.python("front/cudnn", SLEEPS)
    name = place.python("sleeps", SLEEPS)
    findings = examine(name)
    remedy = "run doctor once more; if it hangs again"
    for what in ("C compiler", "driver", "frontend", "module"):
        check(findings, (what, "problem", "no answer in 2 s: it hangs", remedy))
    check(findings, ("Python", "ok", sys.executable, ""))
    deadline = time.monotonic() + 10
    while running(place.folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(place.folder)


def running(folder: Path) -> list[bytes]:
    """Return the command lines that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(path.read_bytes())
    return [one for one in found if os.fsencode(folder) in one]


def run_without(
    hidden: Sequence[str], place: Place, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with all of this environment but that, and nothing from elsewhere."""
    site = place.folder / "site"
    site.mkdir()
    (site / "cudnn_bindgen").symlink_to(Path(cudnn_bindgen.__file__).parent)
    for folder in (Path(path) for path in sys.path if path.endswith("-packages")):
        for entry in folder.iterdir():
            if not (site / entry.name).exists() and not any(map(entry.match, hidden)):
                (site / entry.name).symlink_to(entry)
    code = (
        "import sys; sys.path[:0] = [sys.argv.pop(1)]; from cudnn_bindgen.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, site, *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(place.folder)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", LACKING)
def test_what_is_not_installed(place: Place, name: str) -> None:
    hidden, row = LACKING[name]
    done = run_without(hidden, place, "doctor", "--json")
    findings = json.loads(done.stdout)["findings"]
    if name == "cuDNN" and any(one["what"] == "cuDNN" for one in findings):
        pytest.skip("this machine has cuDNN elsewhere")
    check(findings, row)


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_says_what_is_not_installed(place: Place, name: str) -> None:
    hidden, arguments, line = REFUSED[name]
    place.put("a.json", to_json(add_graph()))
    done = run_without(hidden, place, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{line}\n"


def test_the_table_can_be_pasted(
    place: Place, examine: Callable[..., list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fits 100 columns, says all that JSON says, and not who the user is."""
    monkeypatch.setenv("HOME", str(place.folder))
    monkeypatch.setenv("USER", "jane")
    monkeypatch.setenv("LOGNAME", "jane")
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_secret")
    place.environment["CUDNN_BINDGEN_CACHE"] = "/tmp/cache-jane"
    findings = examine()
    text = CliRunner().invoke(main, ["doctor"]).stdout
    assert all(len(line) <= 100 for line in text.splitlines())
    assert not {"\x1b", "jane", "secret", str(place.folder)} & {*text.split()}
    joined = "".join(text.split())
    for one in findings:
        for said in one.values():
            assert "".join(said.split()) in joined
            assert not [word for word in ("jane", "secret", str(place.folder)) if word in said]
    assert "~/libraries/libcudnn.so.9" in text
    assert "/tmp/cache-USER/plans" in text


def test_what_is_loaded_is_loaded_elsewhere(examine: Callable[..., Any], place: Place) -> None:
    """In processes of their own: this one has no other library than before."""
    place.gpu()
    before = Path("/proc/self/maps").read_text()
    examine(place.module("thd"))
    assert str(place.libraries) not in Path("/proc/self/maps").read_text()
    assert ("libcuda" in before) == ("libcuda" in Path("/proc/self/maps").read_text())

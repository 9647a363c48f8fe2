"""What developers run: ``nox`` lints and tests, ``nox -s NAME`` does one of the rest."""

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.envdir = "build/nox"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "test"]

# Tests that drive the runtime by the stand-in libraries, without PyTorch.
SANITIZED = [
    str(path)
    for name in (
        *("arguments", "captured_graphs", "captures", "describe", "execute", "failures"),
        "failures_closing",
        *("families_calls", "families_plans", "missing", "odd_arguments"),
        *("overrides", "overrides_calls", "overrides_failures", "overrides_packing"),
        *("overrides_records", "plan_sets", "plans", "plans_at_load", "records"),
        *("records_addresses", "records_failures", "records_lifetime", "records_policy"),
        *("records_streams", "reentry", "standin", "standin_graphs", "standin_launches"),
        *("standin_overrides", "stream_use", "tensor_layout", "tensor_overlap", "threads"),
        *("threads_plans", "workspace"),
    )
    for path in Path("tests").glob(f"*/**/test_{name}.py")
    if "gpu" not in path.parts
]


@nox.session
def lint(session):
    """Check everything that needs no compiler's output."""
    session.install(".[test,dev]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("cython-lint", "examples", "frontend", "generated", "runtime", "tests")
    session.run("codespell")
    session.run("mypy")
    session.run("python", "tools/regenerate.py", "--check")


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def test(session):
    """Run all tests that need no GPU; arguments after ``--`` go to pytest."""
    session.install(".[test]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def docs(session):
    """Build the documentation site: build/site/index.html."""
    session.install(".[docs]")
    command = ("sphinx-build", "-W", "--keep-going", "-c", "docs", "-d", "build/doctrees")
    session.run(*command, ".", "build/site")


@nox.session
def dist(session):
    """Build sdist and wheel as a package index takes them: build/dist."""
    session.install(".[dev]")
    session.run("python", "-m", "build", "--outdir", "build/dist")
    session.run("twine", "check", "--strict", *map(str, Path("build/dist").glob("*")))


@nox.session
def sanitize(session):
    """Run the runtime's tests under ASan and UBSan; arguments after ``--`` go to pytest."""
    session.install(".[test]")
    base = Path("build/sanitize").absolute()
    checks = "-fsanitize=address,undefined"
    # Python's own flags let integers wrap, which would hide where they do.
    flags = f"{checks} -fno-sanitize-recover=undefined -fno-wrapv -fno-omit-frame-pointer -O1 -g1"
    # The modules that tests compile and the stand-ins are built with the same flags.
    environment = {"CFLAGS": flags, "CXXFLAGS": flags, "LDFLAGS": checks}
    build = ("setup.py", "build", f"--build-base={base}", f"--build-lib={base / 'lib'}")
    session.run("python", *build, env=environment)
    # In front of Python, which is not instrumented; libstdc++ for what ASan looks up in it.
    runtimes = [
        session.run("gcc", f"-print-file-name={name}.so", external=True, silent=True).strip()
        for name in ("libasan", "libubsan", "libstdc++")
    ]
    environment |= {
        "LD_PRELOAD": " ".join(runtimes),
        "PYTHONPATH": str(base / "lib"),
        # Each object a block of its own, so that what lies behind it is seen.
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",  # Python frees little at exit
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    # A test of the stand-in that lets it read what was freed, as cuDNN would.
    but = ("-k", "not (test_lists_must_stay and freed)")
    session.run("pytest", "-n", "auto", *(session.posargs or [*but, *SANITIZED]), env=environment)


@nox.session(venv_backend="none")
def gpu(session):
    """Install into the current environment, which has PyTorch, and compare with the frontend."""
    session.run("tools/gpu/run.sh", "install", "tests")


@nox.session(venv_backend="none")
def bench(session):
    """Install into the current environment, which has PyTorch, and measure."""
    session.run("tools/gpu/run.sh", "install", "bench", "tensors", "gil")


@nox.session
def regenerate(session):
    """Emit generated/ anew; what ``git diff`` then shows is what to review."""
    session.install(".[build]")
    session.run("python", "tools/regenerate.py")

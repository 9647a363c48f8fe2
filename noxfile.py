"""What developers run: ``nox`` lints and tests, ``nox -s NAME`` does one of the rest."""

import nox

nox.options.default_venv_backend = "venv"
nox.options.envdir = "build/nox"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "test"]


@nox.session
def lint(session):
    """Check everything that needs no compiler's output."""
    session.install(".[test,dev]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("cython-lint", "recording", "runtime", "examples")
    session.run("codespell")
    session.run("mypy")
    session.run("python", "tools/regenerate.py", "--check")


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def test(session):
    """Run all tests that need no GPU; arguments after ``--`` go to pytest."""
    session.install(".[test]")
    session.run("pytest", "-n", "auto", *session.posargs)


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
    session.install(".")
    session.run("python", "tools/regenerate.py")

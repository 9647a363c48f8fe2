"""Write tests/data/frontends anew: `python tools/frontends/regenerate.py [VERSION ...]`.

Each frontend is installed into a folder that is thrown away, and runs with the stand-in libcudnn of
the tests below it: no GPU, no CUDA, no cuDNN. Wheels come from where pip looks for them, or from
one folder with `--wheels`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from matrix import VERSIONS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "tests" / "data" / "frontends"

sys.path.insert(0, str(ROOT / "tests"))
from support.standin import build as build_standin  # noqa: E402


def install(version: str, target: Path, wheels: Path | None) -> None:
    """Put one frontend into `target`, without the packages that it requires."""
    source = ["--no-index", "--find-links", str(wheels)] if wheels else []
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, *source, f"nvidia-cudnn-frontend=={version}"], check=True)


def run(frontend: Path, libraries: Path, *arguments: str, **environment: str) -> None:
    """Run dump.py with one frontend and the stand-in libraries."""
    inherited = {name: value for name, value in os.environ.items() if "CUDNN" not in name}
    subprocess.run(
        [sys.executable, str(HERE / "dump.py"), *arguments],
        env=inherited
        | {"PYTHONPATH": str(frontend), "LD_LIBRARY_PATH": str(libraries)}
        | environment,
        check=True,
    )


def regenerate(version: str, scratch: Path, libraries: Path, wheels: Path | None) -> None:
    """Replace the data of one version."""
    frontend, made = scratch / version, scratch / f"{version}-data"
    install(version, frontend, wheels)
    made.mkdir()
    run(frontend, libraries, "dumps", str(made))
    log = made / "three_graphs.log"
    run(frontend, libraries, "log", CUDNN_FRONTEND_LOG_INFO="1", CUDNN_FRONTEND_LOG_FILE=str(log))
    shutil.rmtree(DATA / version, ignore_errors=True)
    shutil.move(made, DATA / version)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="all of them unless named")
    parser.add_argument("--wheels", type=Path, help="a folder with the frontends' wheels")
    options = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        libraries = build_standin(Path(scratch) / "libraries").cudnn.parent
        for version in options.versions or VERSIONS:
            regenerate(version, Path(scratch), libraries, options.wheels)


if __name__ == "__main__":
    main()

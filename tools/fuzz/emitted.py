"""Compares and compiles what accepted files became: Cython's tree, Cython's C++, the compiler.

A process of its own: Cython's memory would hide the reader's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import locate
from support.emitting import check_parsed, emit
from support.mutations import find_seeds, mutate

from cudnn_bindgen.codegen.compile import compile_module


def translate(folder: Path, names: list[str]) -> str:
    """Translate modules to C++ as ``build`` does; return what Cython had to say."""
    done = subprocess.run(
        [sys.executable, "-m", "cython", "-3", "--cplus", "-I", str(locate.ROOT / "src"), *names],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr or ("" if done.returncode == 0 else f"exit {done.returncode}")


def main() -> None:
    """Read samples [[index, number], ...] from standard input; write counts and findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cython", type=int, default=0, help="how many Cython translates to C++")
    parser.add_argument("--compiler", type=int, default=0, help="how many are compiled to the end")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    seeds = find_seeds(*arguments.seeds)
    findings: list[dict[str, Any]] = []
    counts = dict.fromkeys(("parsed", "translated", "compiled"), 0)

    def find(index: int, number: int, text: str) -> None:
        place = {"seed": seeds[index].name, "index": index, "number": number}
        findings.append(place | {"text": text})

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for at, (index, number) in enumerate(json.load(sys.stdin)):
            try:
                emitted = emit(mutate(seeds, index, number))
                assert not isinstance(emitted, Exception), f"accepted before, now {emitted}"
                check_parsed(*emitted[1:])
                counts["parsed"] += 1
                if at >= arguments.cython:
                    continue
                for name, text in emitted[2].items():
                    (folder / name).write_text(text)
                said = translate(folder, ["module.pyx"])
                if said:
                    find(index, number, said)
                counts["translated"] += 1
                if at < arguments.compiler:
                    compile_module(folder / "module.pyx", folder)
                    counts["compiled"] += 1
            except Exception:
                find(index, number, traceback.format_exc())
    json.dump({"counts": counts, "findings": findings}, sys.stdout)


if __name__ == "__main__":
    main()

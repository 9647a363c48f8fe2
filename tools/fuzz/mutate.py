"""Tries many mutated graph files, from any number on, and keeps what breaks a rule.

The rules: GraphFormatError or EmitError in one line, or text that Cython compiles; within a second
and 200 MB; no file left behind. Everything follows from the number of a file: the same number is
the same file again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import locate
from support.mutations import find_seeds, mutate

HERE = Path(__file__).parent
# Wall-clock seconds without a new file after which a worker is stuck in C code.
STUCK = 120
# Files of one kind of finding.
KEPT = 10


class Run:
    """What is known so far; lies in `out`/summary.json after every chunk, so that a run goes on."""

    def __init__(self, out: Path, seeds: list[Path]) -> None:
        self.out = out
        self.folders = ["--seeds", *map(str, seeds)]
        self.seeds = find_seeds(*seeds)
        self.summary: dict[str, Any] = {"tried": 0, "findings": 0, "outcomes": {}, "cython": {}}
        self.summary |= {"seconds": 0.0, "slowest": [0], "largest": [0], "shapes": 0}
        self.shapes: set[str] = set()
        out.mkdir(parents=True, exist_ok=True)
        if (out / "summary.json").exists():
            self.summary |= json.loads((out / "summary.json").read_text())
        self.kinds: dict[str, int] = self.summary.setdefault("kinds", {})

    def chunk(self, first: int, count: int, options: argparse.Namespace) -> int:
        """Try `count` files in one worker; return the number to go on with."""
        start = time.monotonic()
        status = self.out / "status"
        status.write_bytes(b"%20d" % first)
        result = self._worker(first, count, status, options)
        if result is None:
            number = int(status.read_bytes())
            self.keep(number % len(self.seeds), number, "the worker crashed or hung")
            result = {"next": number + 1, "outcomes": {"FINDING: crash": 1}, "samples": []}
        for finding in result.get("findings", ()):
            self.keep(finding["index"], finding["number"], finding["text"])
        self._check(result["samples"], options)
        self._add(result, first, time.monotonic() - start)
        return int(result["next"])

    def _worker(
        self, first: int, count: int, status: Path, options: argparse.Namespace
    ) -> dict[str, Any] | None:
        command = [sys.executable, str(HERE / "worker.py"), "--first", str(first)]
        command += ["--count", str(count), "--status", str(status), "--cli", str(options.cli)]
        command += ["--every", str(options.every), *self.folders]
        with (self.out / "worker.json").open("w+b") as output:
            process = subprocess.Popen(command, stdout=output)
            while process.poll() is None:
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    if time.time() - status.stat().st_mtime > STUCK:
                        process.kill()
            output.seek(0)
            return json.load(output) if process.returncode == 0 else None

    def _check(self, samples: list[tuple[int, int, str]], options: argparse.Namespace) -> None:
        """Hand accepted files to Cython: new statements first, then each n-th."""
        new = [sample for sample in samples if sample[2] not in self.shapes]
        self.shapes |= {sample[2] for sample in samples}
        chosen = [*new, *(sample for sample in samples if sample not in new)][: options.parse]
        command = [sys.executable, str(HERE / "emitted.py"), "--cython", str(options.cython)]
        command += ["--compiler", str(options.compiler), *self.folders]
        done = subprocess.run(
            command,
            input=json.dumps([sample[:2] for sample in chosen]),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        checked = json.loads(done.stdout)
        for finding in checked["findings"]:
            self.keep(finding["index"], finding["number"], finding["text"])
        total = Counter(self.summary["cython"]) + Counter(checked["counts"])
        self.summary["cython"] = dict(total)

    def keep(self, index: int, number: int, text: str) -> None:
        """Write a finding: the file, and what happened."""
        self.summary["findings"] += 1
        # One cause may break thousands of files.
        kind = text.strip().splitlines()[-1][:100]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self.kinds[kind] > KEPT:
            return
        stem = self.out / f"finding-{number}"
        stem.with_suffix(".bin").write_bytes(mutate(self.seeds, index, number))
        origin = f"mutate(seeds, {index}, {number}) of {self.seeds[index].name}"
        stem.with_suffix(".txt").write_text(f"{origin}\n{text}", errors="backslashreplace")
        print(f"finding: {origin}: {kind}", flush=True)

    def _add(self, result: dict[str, Any], first: int, seconds: float) -> None:
        summary = self.summary
        summary["tried"] += result["next"] - first
        summary["next"] = result["next"]
        summary["seconds"] = round(summary["seconds"] + seconds, 1)
        summary["outcomes"] = dict(
            sorted((Counter(summary["outcomes"]) + Counter(result["outcomes"])).items())
        )
        summary["shapes"] = max(summary["shapes"], len(self.shapes))
        for field in ("slowest", "largest"):
            summary[field] = max(list(summary[field]), list(result.get(field, [0])))
        (self.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


def main() -> None:
    """Try files until the number asked for is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, help="how many files")
    parser.add_argument("--first", type=int, help="number of the first; default: go on, else 0")
    parser.add_argument("--out", type=Path, default=locate.ROOT / "build" / "fuzz")
    parser.add_argument("--chunk", type=int, default=5000, help="files a worker process")
    parser.add_argument("--cli", type=int, default=100, help="each n-th through the command line")
    parser.add_argument("--every", type=int, default=50, help="each n-th accepted one to Cython")
    parser.add_argument("--parse", type=int, default=60, help="at most as many to Cython's parser")
    parser.add_argument("--cython", type=int, default=2, help="of these translated to C++")
    parser.add_argument("--compiler", type=int, default=0, help="of these compiled; a chunk, too")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], metavar="FOLDER")
    options = parser.parse_args()
    run = Run(options.out, options.seeds)
    number = run.summary.get("next", 0) if options.first is None else options.first
    end = number + options.count
    while number < end:
        number = run.chunk(number, min(options.chunk, end - number), options)
        summary = run.summary
        rate = summary["tried"] / max(summary["seconds"], 0.1)
        print(
            f"{number}: {summary['tried']} tried, {summary['findings']} findings, {rate:.0f}/s, "
            f"slowest {summary['slowest'][0]:.2f} s, largest {summary['largest'][0]:.0f} MiB",
            flush=True,
        )
    sys.exit(1 if run.summary["findings"] else 0)


if __name__ == "__main__":
    main()

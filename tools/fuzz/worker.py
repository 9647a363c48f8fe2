"""Tries a range of mutated files in one process under limits; writes what happened as JSON.

Started by mutate.py, which survives it: a crash or a hang in C code ends this process only.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import locate  # noqa: F401 - makes the imports below work
from click.testing import CliRunner
from support.emitting import check_accepted, check_refusal, emit, shape_of
from support.mutations import find_seeds, mutate

from cudnn_bindgen.cli import main as cli
from cudnn_bindgen.codegen.read.graph import list_graphs
from cudnn_bindgen.codegen.read.options import ReadOptions

# Processor time of this process, because others share the machine.
SECONDS = 1.0
MIB = 200
# Address space beyond what the imports took. A MemoryError that the reader turns into a refusal is
# found by its context (emitting.check_refusal).
HEADROOM = 600 << 20


class HangError(BaseException):
    """More than `SECONDS`; no Exception, so that nothing takes it for a broken file."""


def _hang(*_: object) -> None:
    raise HangError(f"more than {SECONDS} s of processor time")


def message_shape(error: Exception) -> str:
    """Return a refusal without what it quotes from the file."""
    problem = str(getattr(error, "problem", error))
    problem = re.split(r", got|: JSON is malformed|: invalid", problem)[0]
    problem = re.sub(r'"[^"]*"|\'[^\']*\'', "''", problem)
    return re.sub(r"\d+", "N", problem).encode("unicode_escape").decode()[:90]


def reset_peak() -> None:
    """Let the kernel count this process's peak of memory from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """Return the peak of memory in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Worker:
    """Counts and findings of one range."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.seeds = find_seeds(*arguments.seeds)
        self.outcomes: Counter[str] = Counter()
        self.findings: list[dict[str, Any]] = []
        self.samples: list[tuple[int, int, str]] = []
        self.slowest = (0.0, "", 0)
        self.largest = (0.0, "", 0)
        self.runner = CliRunner()

    def run(self) -> None:
        """Try all files."""
        first, count = self.arguments.first, self.arguments.count
        with self.arguments.status.open("r+b", buffering=0) as status:
            for number in range(first, first + count):
                status.seek(0)
                status.write(b"%20d" % number)
                self.try_one(number % len(self.seeds), number)
                self.next = number + 1

    def try_one(self, index: int, number: int) -> None:
        """Try one file; what the rules forbid becomes a finding."""
        name = self.seeds[index].name
        try:
            data = mutate(self.seeds, index, number)
            reset_peak()
            before, start = peak(), time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                emitted = emit(data)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            spent = time.process_time() - start
            self.slowest = max(self.slowest, (spent, name, number))
            grown = peak() - before
            self.largest = max(self.largest, (grown, name, number))
            if grown > MIB:
                raise MemoryError(f"{grown:.0f} MiB for {len(data)} bytes")
            if isinstance(emitted, Exception):
                check_refusal(emitted)
                self.outcomes[f"refused: {message_shape(emitted)}"] += 1
                if "expected one graph, got" in str(emitted):
                    self.each(data)
            else:
                check_accepted(emitted)
                self.accepted(index, number, emitted)
            if number % self.arguments.cli == 0:
                self.command(data, isinstance(emitted, Exception), number)
        except (HangError, Exception) as error:
            self.outcomes[f"FINDING: {type(error).__name__}"] += 1
            text = traceback.format_exc()
            self.findings.append({"seed": name, "index": index, "number": number, "text": text})

    def each(self, data: bytes) -> None:
        """Try the graphs of a log one by one, as many as there is time for."""
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            entries = list_graphs(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        for index, entry in enumerate(entries[:5], 1):
            emitted = emit(data, options=ReadOptions(index=index))
            if isinstance(emitted, Exception):
                check_refusal(emitted)
                self.outcomes["graph of a log: refused"] += 1
            else:
                check_accepted(emitted)
                self.outcomes["graph of a log: accepted"] += 1
            assert isinstance(emitted, Exception) == (entry.graph is None), index

    def accepted(self, index: int, number: int, emitted: Any) -> None:
        """Count it; keep its number for Cython when its statements are new, or now and then."""
        graph, binding, _ = emitted
        self.outcomes[f"accepted: {graph.dialect}"] += 1
        # Not hash(), which differs from process to process.
        shape = f"{zlib.crc32(repr(shape_of(binding)).encode()):x}"
        is_new = shape not in {sample[2] for sample in self.samples[-500:]}
        if is_new or number % self.arguments.every == 0:
            self.samples.append((index, number, shape))

    def command(self, data: bytes, is_refused: bool, number: int) -> None:
        """Emit and show through the command line: exit code, one line, and no file left behind.

        Only `show` says more of a refusal: a line for people is followed by an explanation, or is
        there as JSON, too.
        """
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            file = folder / "fuzz.json"
            file.write_bytes(data)
            shown = (["show"], ["show", "--dot"], ["show", "--json"])
            for options in (["emit", "-o", f"{folder}/out.pyx"], *shown):
                done = self.runner.invoke(cli, [options[0], str(file), *options[1:]])
                if done.exception and not isinstance(done.exception, SystemExit):
                    raise done.exception
                assert done.exit_code == (2 if is_refused else 0), (options, done.exit_code)
                if is_refused:
                    lines = done.stderr.splitlines()
                    assert all(line.isprintable() for line in lines), options
                    assert len(lines) == 1 or options in shown[:2], options
                    assert not done.stdout or "--json" in options, options
                elif options[0] == "show":
                    assert "\x1b" not in done.stdout, options
            left = {path.name for path in folder.iterdir()} - {file.name}
            assert left == (set() if is_refused else {"out.pyx", "out.pyi", "out.pxd"}), left
        self.outcomes["command line: " + ("refused" if is_refused else "emitted")] += 1


def limit_memory() -> None:
    """Let allocations beyond the headroom fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Run the range that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--status", type=Path, required=True, help="file for the number in work")
    parser.add_argument("--cli", type=int, default=100, help="each n-th through the command line")
    parser.add_argument("--every", type=int, default=50, help="each n-th accepted one to Cython")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[])
    worker = Worker(parser.parse_args())
    limit_memory()
    signal.signal(signal.SIGPROF, _hang)
    worker.run()
    fields = ("next", "outcomes", "findings", "samples", "slowest", "largest")
    json.dump({field: getattr(worker, field) for field in fields}, sys.stdout)


if __name__ == "__main__":
    main()

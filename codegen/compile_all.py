"""Many modules compiled at once, with one progress bar."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cudnn_bindgen.codegen.compile import (
    CompileError,
    Compiler,
    describe_environment,
    is_fresh,
)
from cudnn_bindgen.codegen.text import printable


def compile_all(sources: Iterable[Path], directory: Path, jobs: int | None) -> bool:
    """Compile what is not up to date, print what fails, and return whether nothing did.

    Of several modules it also prints how many were compiled.
    """
    sources = list(sources)
    environment = describe_environment()
    stale = [source for source in sources if not is_fresh(source, directory, environment)]
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    failed = 0
    with (
        Progress(
            TextColumn("compiling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not (stale and console.is_terminal),
        ) as progress,
        _ending_with_us(),
        _Compilers(min(jobs or _cores(), len(stale))) as compilers,
    ):
        task = progress.add_task("", total=len(stale))
        running = {compilers.start(source, directory): source for source in stale}
        for future in as_completed(running):
            progress.update(task, advance=1, description=running[future].stem)
            try:
                future.result()
            except CompileError as error:
                failed += 1
                console.print(printable(f"{running[future]}: not compiled"))
                console.print(str(error))
    if len(sources) > 1:
        counts = f"{len(stale) - failed} compiled, {len(sources) - len(stale)} up to date"
        console.print(f"{len(sources)} modules: {counts}" + (f", {failed} failed" * bool(failed)))
    return not failed


class _Compilers:
    """Threads that wait for one compiler each; left by an exception, they end them all."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(max(count, 1))
        self._compilers = [Compiler() for _ in range(count)]
        self._free: queue.SimpleQueue[Compiler] = queue.SimpleQueue()

    def start(self, source: Path, directory: Path) -> Future[Path]:
        return self._pool.submit(self._compile, source, directory)

    def _compile(self, source: Path, directory: Path) -> Path:
        compiler = self._free.get()  # as many as there are threads
        try:
            return compiler.compile(source, directory)
        finally:
            self._free.put(compiler)

    def __enter__(self) -> _Compilers:
        for compiler in self._compilers:
            self._free.put(compiler)
        return self

    def __exit__(self, *raised: Any) -> None:
        if raised[0] is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for compiler in self._compilers:
                compiler.end()
        self._pool.shutdown()
        for compiler in self._compilers:
            compiler.__exit__(*raised)


@contextlib.contextmanager
def _ending_with_us() -> Iterator[None]:
    """Leave by an exception on what else ends a process, so that no compiler lives on."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)  # as a shell says it

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    # What is ignored stays so: nohup.
    taken = [number for number, handler in before.items() if handler == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _cores() -> int:
    """Return how many cores this process may use: in a container, not how many there are."""
    return len(os.sched_getaffinity(0))

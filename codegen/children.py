"""Python processes that do one task after another for this one, and end with it.

A task is a line of input. What the process prints is kept; a line that begins with NUL answers.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar, cast

import cudnn_bindgen
from cudnn_bindgen.codegen.text import printable

# Not -m, which imports from the working directory: a copy.py that lies there would be executed.
_PROGRAM = "import sys; sys.path[:] = {}; from {} import main; main()"
_ANSWER = b"\0"

Key = TypeVar("Key")
Result = TypeVar("Result")


class EndedError(RuntimeError):
    """A process ended before it answered; the message is what it printed, or how it ended."""


class Child:
    """A process that runs the `main` of a module, started by its first task.

    As a context it ends the process: when it is left by an exception, at once and with all that the
    process has started.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False

    def ask(self, task: bytes) -> tuple[bytes, str]:
        """Return the answer to one line, and what was printed meanwhile.

        Raises
        ------
        EndedError
            There is no answer.
        """
        process = self.start()
        asked, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        with contextlib.suppress(BrokenPipeError):  # it has ended, and says why below
            asked.write(task + b"\n")
            asked.flush()
        said = b""
        for line in answers:
            before, is_answer, answer = line.partition(_ANSWER)
            said += before
            if is_answer:
                return answer, _text(said)
        process.communicate()
        self._process = None
        raise EndedError(_text(said) or f"ended with {describe_status(process.returncode)}")

    def start(self) -> subprocess.Popen[bytes]:
        """Return the process, started unless it runs: it gets ready while others work."""
        if self._is_ended:
            raise EndedError("interrupted")
        if self._process is None:
            program = _PROGRAM.format(ascii(_search_path()), self._module)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-c", program],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # With what it starts it can be ended as one.
                start_new_session=True,
            )
        return self._process

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process and all that it has started. Another thread may wait for an answer."""
        self._is_ended = True
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.end()
        if self._process is not None:
            self._process.communicate()


def serve(answer: Callable[[bytes], bytes]) -> None:
    """In the process: answer each line, until there are no more."""
    # Nothing that the process runs may read what is meant for it.
    tasks = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in tasks:
        found = answer(line.removesuffix(b"\n"))
        sys.stdout.flush()
        sys.stdout.buffer.write(_ANSWER + found + b"\n")
        sys.stdout.flush()


def do_all(
    jobs: Mapping[Key, Callable[[Child], Result]],
    children: Sequence[Child],
    what: str,
    on_done: Callable[[Key, Future[Result]], None],
) -> None:
    """Have children do jobs, one each at a time, and call `on_done` whenever one is done.

    On a terminal a bar says `what` is done. The children end with the last job; on an exception,
    SIGTERM and SIGHUP too, at once.
    """
    with (
        _bar(what, len(jobs)) as advance,
        _ending_with_us(),
        _Pool(children) as pool,
    ):
        running = {pool.start(job): key for key, job in jobs.items()}
        for future in as_completed(running):
            advance(running[future])
            on_done(running[future], future)


def cores() -> int:
    """Return how many cores this process may use: in a container, not how many there are."""
    return len(os.sched_getaffinity(0))


def describe_status(status: int) -> str:
    """Say how a process ended."""
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"status {status}"


class _Pool:
    """Threads that wait for one child each; left by an exception, they end them all."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._threads = ThreadPoolExecutor(max(len(children), 1))
        self._free: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def start(self, job: Callable[[Child], Result]) -> Future[Result]:
        return self._threads.submit(self._do, job)

    def _do(self, job: Callable[[Child], Result]) -> Result:
        child = self._free.get()  # as many as there are threads
        try:
            return job(child)
        finally:
            self._free.put(child)

    def __enter__(self) -> _Pool:
        for child in self._children:
            self._free.put(child)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for child in self._children:
                child.end()
        self._threads.shutdown()
        for child in self._children:
            child.__exit__(kind, error, trace)


@contextlib.contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[object], None]]:
    # Here: the processes need none, and it takes a tenth of a second.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
        disable=not (total and console.is_terminal),
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda key: progress.update(task, advance=1, description=printable(str(key)))


@contextlib.contextmanager
def _ending_with_us() -> Iterator[None]:
    """Leave by an exception on what else ends a process, so that no child lives on."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)  # as a shell says it

    if threading.current_thread() is not threading.main_thread():
        yield  # which Python's handlers run in
        return
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


def _search_path() -> list[str]:
    """Return where this process finds modules, but for the working directory.

    This package's own folder is among them, wherever it is.
    """
    found = [path for path in sys.path if isinstance(path, str) and path and not _is_here(path)]
    return [*found, str(Path(cudnn_bindgen.__file__).parent.parent)]


def _is_here(path: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(path).samefile(os.curdir)
    return False


def _text(said: bytes) -> str:
    return said.decode(errors="replace").strip()

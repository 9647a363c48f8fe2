"""Run a program so that every Python in it records, and pass on how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from cudnn_bindgen.codegen.errors import RecordError
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.recording import USAGE

_STARTUP = Path(__file__).parent / "startup"
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Outcome:
    """How a program ended: as a shell says it, and whether it was listened to."""

    status: int
    has_python: bool
    processes: int


def run_program(command: Sequence[str], folder: Path) -> Outcome:
    """Run `command` to its end, recording into `folder`.

    Raises
    ------
    RecordError
        There is no such program, or the folder cannot be written to.
    """
    folder = folder.absolute()
    run = uuid.uuid4().hex[:12]
    try:
        (folder / USAGE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: {error.strerror}") from None
    path = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": f"{_STARTUP}{os.pathsep}{path}" if path else str(_STARTUP),
        "CUDNN_BINDGEN_RECORD": str(folder),
        "CUDNN_BINDGEN_RECORD_RUN": run,
    }
    try:
        child = subprocess.Popen(command, env=environment)  # noqa: S603 - it is what the user runs
    except OSError as error:
        raise RecordError(f"{shorten(command[0])}: {error.strerror}") from None
    with _forwarding(child):
        status = child.wait()
    started = folder / USAGE / f"{run}.started"
    has_python = started.exists()
    with contextlib.suppress(FileNotFoundError):
        started.unlink()
    processes = len(list((folder / USAGE).glob(f"{run}-*.json")))
    return Outcome(128 - status if status < 0 else status, has_python, processes)


@contextlib.contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave Ctrl-C to the program, which gets its own from the terminal; hand on the rest."""

    def forward(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

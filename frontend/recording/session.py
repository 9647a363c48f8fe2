"""When recording starts and ends: `record(folder)`, or a process started by the command."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import util as multiprocessing_util
from pathlib import Path
from typing import Any

from cudnn_bindgen.codegen.errors import RecordError
from cudnn_bindgen.frontend.recording.hooks import Hooks
from cudnn_bindgen.frontend.recording.import_hook import forget_import, on_import
from cudnn_bindgen.frontend.recording.recorder import Recorder


class Session:
    """Recording of this process into one folder, from `start` to `stop`."""

    def __init__(self, folder: Path, run: str = "") -> None:
        self.folder = folder
        self.is_of_command = bool(run)
        self._run = run
        self._recorder: Recorder | None = None
        self._hooks: Hooks | None = None
        self._failure = ""

    def start(self, frontend: Any = None) -> None:
        """Listen to the frontend: this one, or the program's, now or once it has imported it."""
        if frontend is not None:
            self._attach(frontend)
            return
        frontend = sys.modules.get("cudnn")
        # Another thread may be in the middle of importing it.
        if frontend is not None and not getattr(frontend.__spec__, "_initializing", False):
            self._attach(frontend)
        else:
            on_import("cudnn", self._attach_quietly)

    def _attach_quietly(self, frontend: Any) -> None:
        """Attach while the program imports the frontend, which must not fail for our sake."""
        try:
            self._attach(frontend)
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"

    def _attach(self, frontend: Any) -> None:
        if not hasattr(frontend, "pygraph"):
            raise RecordError("expected nvidia-cudnn-frontend, got a module cudnn without pygraph")
        self._recorder = Recorder(self.folder, frontend, self._run)
        self._hooks = Hooks(frontend, self._recorder)
        self._hooks.install()
        # Registered after the frontend's own, so it runs before them.
        atexit.register(self._at_exit)
        # Children that multiprocessing forks end without atexit.
        multiprocessing_util.register_after_fork(self, Session._end_with_multiprocessing)

    def start_again(self) -> None:
        """Count from zero, in a child that was forked."""
        if self._recorder is not None:
            self._recorder.start_again()

    def _end_with_multiprocessing(self) -> None:
        multiprocessing_util.Finalize(None, self._at_exit, exitpriority=0)

    def _at_exit(self) -> None:
        if self._recorder is not None and not self._recorder.stop():
            for problem in self._recorder.problems:
                print(f"cudnn-bindgen record: {problem}", file=sys.stderr)

    def stop(self) -> None:
        """Put the frontend back as it was, and write the rest.

        Raises
        ------
        RecordError
            The folder cannot be written to.
        """
        forget_import("cudnn", self._attach_quietly)
        if self._failure:
            raise RecordError(f"cannot listen to the frontend: {self._failure}")
        if self._hooks is None or self._recorder is None:
            return
        self._hooks.remove()
        atexit.unregister(self._at_exit)
        recorder, self._recorder = self._recorder, None
        if not recorder.stop():
            raise RecordError(f"{self.folder}: cannot be written: {'; '.join(recorder.problems)}")


_current: list[Session] = []
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # some thread may have held it, and is not here
    for session in _current:
        session.start_again()


os.register_at_fork(after_in_child=_after_fork)


def start_process(folder: Path, run: str, frontend: Any) -> None:
    """Record this process until its end, as its environment says."""
    session = Session(folder, run)
    session.start(frontend)
    with _lock:
        _current.append(session)


@contextmanager
def record(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Record the graphs that are built and executed inside the block, by all threads.

    Parameters
    ----------
    folder
        Where graphs and usage are written; made if it is not there.

    Returns
    -------
    Iterator[pathlib.Path]
        The folder, for ``cudnn-bindgen report``.

    Raises
    ------
    RecordError
        Another block is recording, or the folder cannot be written to.
    """
    session = Session(Path(folder).absolute())
    with _lock:
        outer = _current[0] if _current else None
        if outer is None:
            _current.append(session)
    if outer is not None:
        if not outer.is_of_command:
            raise RecordError(f"expected one recording at a time, got one into {outer.folder}")
        warnings.warn(f"recorded into {outer.folder}, as the command says", stacklevel=3)
        yield outer.folder
        return
    try:
        session.folder.mkdir(parents=True, exist_ok=True)
        session.start()
        yield session.folder
    except BaseException:
        # What the program raised is what it gets, whatever becomes of the record.
        with suppress(RecordError):
            _end(session)
        raise
    _end(session)


def _end(session: Session) -> None:
    with _lock:
        _current.remove(session)
    session.stop()

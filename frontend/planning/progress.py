"""How far autotuning has come, as a bar on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cudnn_bindgen.frontend.planning.autotune import Watch


@contextmanager
def progress_bar() -> Iterator[Watch]:
    """Yield what shows a stage and how much of it is done."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description:9}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("")

        def watch(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        yield watch

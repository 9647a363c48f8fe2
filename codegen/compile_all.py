"""Many modules compiled at once, with one progress bar."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cudnn_bindgen.codegen.compile import CompileError, compile_module, is_fresh


def compile_all(sources: Iterable[Path], directory: Path, jobs: int | None) -> bool:
    """Compile what is not up to date, print what fails, and return whether nothing did."""
    stale = [source for source in sources if not is_fresh(source, directory)]
    console = Console(stderr=True)
    failed = False
    with (
        Progress(
            TextColumn("compiling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        ) as progress,
        # Threads that wait for one compiler process each.
        ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool,
    ):
        task = progress.add_task("", total=len(stale))
        running = {pool.submit(compile_module, source, directory): source for source in stale}
        for future in as_completed(running):
            progress.update(task, advance=1, description=running[future].stem)
            try:
                future.result()
            except CompileError as error:
                failed = True
                console.print(f"{running[future]}:", markup=False, highlight=False)
                console.print(str(error), markup=False, highlight=False)
    return not failed

"""What each Python of a recorded program does when it starts; imports little, as most do little."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cudnn_bindgen.recording.files import USAGE
from cudnn_bindgen.recording.import_hook import on_import


def start_here(folder: str, run: str) -> None:
    """Say that this Python can record, and record once it imports the frontend."""
    try:
        usage = Path(folder) / USAGE
        usage.mkdir(parents=True, exist_ok=True)
        (usage / f"{run}.started").touch()
    except OSError as error:
        sys.stderr.write(f"cudnn-bindgen record: nothing is recorded: {error}\n")
        return

    def start(frontend: Any) -> None:
        from cudnn_bindgen.recording.session import start_process

        try:
            start_process(Path(folder), run, frontend)
        except Exception as error:
            name = type(error).__name__
            sys.stderr.write(f"cudnn-bindgen record: nothing is recorded: {name}: {error}\n")

    on_import("cudnn", start)

"""What each Python of a recorded program does when it starts; imports little, as most do little."""

from __future__ import annotations

import os
import sys

from cudnn_bindgen.frontend.recording import USAGE
from cudnn_bindgen.frontend.recording.import_hook import on_import

# As in import_hook.py: what type checkers take for true. Importing typing and pathlib
# takes as long as Python itself to start, and many a Python ends without needing either.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def start_here(folder: str, run: str) -> None:
    """Say that this Python can record, and record once it imports the frontend."""
    try:
        usage = os.path.join(folder, USAGE)  # noqa: PTH118 - without pathlib
        os.makedirs(usage, exist_ok=True)  # noqa: PTH103
        with open(os.path.join(usage, f"{run}.started"), "ab"):  # noqa: PTH118, PTH123
            pass
    except OSError as error:
        sys.stderr.write(f"cudnn-bindgen record: nothing is recorded: {error}\n")
        return

    def start(frontend: Any) -> None:
        from pathlib import Path

        from cudnn_bindgen.frontend.recording.session import start_process

        try:
            start_process(Path(folder), run, frontend)
        except Exception as error:
            name = type(error).__name__
            sys.stderr.write(f"cudnn-bindgen record: nothing is recorded: {name}: {error}\n")

    on_import("cudnn", start)

"""Text → disk: atomically, and only where it differs."""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_files(directory: Path, files: Mapping[str, str]) -> list[Path]:
    """Write `files` into `directory` and return the paths that changed.

    All texts are on disk under temporary names before the first one is renamed, so that a full
    disk leaves the old files whole. A file that is up to date keeps its time stamp.
    """
    directory.mkdir(parents=True, exist_ok=True)
    changed = [name for name in sorted(files) if _read(directory / name) != files[name]]
    staged: list[tuple[str, Path]] = []
    try:
        for name in changed:
            staged.append((_stage(directory, name, files[name]), directory / name))
        for temporary, target in staged:
            os.replace(temporary, target)  # noqa: PTH105 - Path.replace hides the atomicity
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
    return [directory / name for name in changed]


def find_differences(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Return a unified diff for each file on disk that is missing or not the same text."""
    diffs = []
    for name in sorted(files):
        old = _read(directory / name)
        if old != files[name]:
            lines = difflib.unified_diff(
                (old or "").splitlines(keepends=True),
                files[name].splitlines(keepends=True),
                f"{directory / name} (on disk)",
                f"{name} (emitted now)",
                n=1,
            )
            diffs.append("".join(lines))
    return diffs


def depfile(targets: Iterable[Path], sources: Iterable[Path]) -> str:
    """Return a Makefile rule: what ninja and make read as a depfile."""
    return f"{' '.join(map(_escape, targets))}: {' '.join(map(_escape, sources))}\n"


def _escape(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace("$", "$$").replace("#", "\\#")
    return text.replace(" ", "\\ ")


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _stage(directory: Path, name: str, text: str) -> str:
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
    try:
        # mkstemp makes files only their owner can read; emitted files are like any source.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # noqa: PTH101
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except BaseException:
        Path(temporary).unlink()
        raise
    return temporary

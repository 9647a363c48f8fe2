"""Text → disk: atomically, and only where it differs."""

from __future__ import annotations

import difflib
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.text import printable

# A depfile names files; their names need not be UTF-8.
_ERRORS = "surrogateescape"


def write_files(directory: Path, files: Mapping[str, str]) -> list[Path]:
    """Write `files` into `directory` and return the paths that changed.

    All texts are on disk under temporary names before the first one is renamed, so that a full
    disk leaves the old files whole. A file that is up to date keeps its time stamp.
    """
    directory.mkdir(parents=True, exist_ok=True)
    changed = [name for name in sorted(files) if _read(directory / name) != files[name]]
    staged: list[tuple[Path, Path]] = []
    try:
        for name in changed:
            staged.append((_stage(directory, name, files[name]), directory / name))
        for temporary, target in staged:
            temporary.replace(target)
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
    return [directory / name for name in changed]


def find_differences(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Return a unified diff for each file on disk that is missing or not the same text."""
    diffs = []
    for name in sorted(files):
        old = _read(directory / name)
        if old != files[name]:
            lines = difflib.unified_diff(
                (old or "").split("\n"),
                files[name].split("\n"),
                f"{directory / name} (on disk)",
                f"{name} (emitted now)",
                n=1,
                lineterm="",
            )
            # What is on disk may be anything, and this goes to a terminal.
            diffs.append("".join(f"{printable(line)}\n" for line in lines))
    return diffs


def depfile(targets: Iterable[Path], sources: Iterable[Path]) -> str:
    """Return a Makefile rule: what ninja and make read as a depfile."""
    return f"{' '.join(map(_escape, targets))}: {' '.join(map(_escape, sources))}\n"


def _escape(path: Path) -> str:
    """Escape for make: a backslash stands for itself, but before a special character doubled."""
    text = str(path)
    if "\n" in text:
        raise EmitError(f'--depfile: expected no newline in file names, got "{text}"')
    return re.sub(r"(\\*)([ \t#:])", r"\1\1\\\2", text).replace("$", "$$")


def _read(path: Path) -> str | None:
    try:
        # Bytes: text mode would call a file with other line ends the same.
        return path.read_bytes().decode("utf-8", _ERRORS)
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def write_whole(target: Path, content: bytes, mode: int) -> None:
    """Write one file that appears whole or not at all; who has the old one open keeps it."""
    staged = _stage_bytes(target, content, mode)
    try:
        staged.replace(target)
    except BaseException:
        staged.unlink()
        raise


def _stage(directory: Path, name: str, text: str) -> Path:
    return _stage_bytes(directory / name, text.encode("utf-8", _ERRORS), 0o666)


def _stage_bytes(target: Path, content: bytes, mode: int) -> Path:
    """Write a file beside `target`, to be renamed to it."""
    staged = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    # The kernel takes the umask off, as off any file's mode: to ask for it is to set it, for all
    # threads of the process.
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except BaseException:
        staged.unlink()
        raise
    return staged

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudnn_bindgen.codegen import output
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.output import depfile, find_differences, write_files
from cudnn_bindgen.codegen.text import printable

FILES = {"b.pyx": "two\n", "a.pyi": "one\n", "c.pxd": "three\n"}


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_bytes().decode() for path in directory.iterdir()}


def test_files_are_written_as_they_are(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "folder"
    assert write_files(directory, FILES) == [directory / name for name in sorted(FILES)]
    assert contents(directory) == FILES


def test_what_is_up_to_date_keeps_its_time(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    for name in FILES:
        os.utime(tmp_path / name, (1, 1))
    assert write_files(tmp_path, FILES | {"b.pyx": "new\n"}) == [tmp_path / "b.pyx"]
    assert (tmp_path / "a.pyi").stat().st_mtime == 1
    assert (tmp_path / "b.pyx").stat().st_mtime > 1
    assert contents(tmp_path) == FILES | {"b.pyx": "new\n"}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_have_the_mode_of_any_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    before = os.umask(umask)
    monkeypatch.delattr(os, "umask")  # of the process, whose other threads make files, too
    try:
        write_files(tmp_path, {"a": ""})
    finally:
        monkeypatch.undo()
        assert os.umask(before) == umask
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("broken", ["a.pyi", "b.pyx", "c.pxd"])
def test_a_failure_leaves_the_old_files_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    write_files(tmp_path, FILES)
    stage = output._stage

    def full_disk(target: Path, content: bytes, mode: int) -> Path:
        if target.name == broken:
            raise OSError(28, "No space left on device")
        return stage(target, content, mode)

    monkeypatch.setattr(output, "_stage", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_files(tmp_path, dict.fromkeys(FILES, "new\n"))
    assert contents(tmp_path) == FILES


def test_a_failure_while_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    with pytest.raises(UnicodeEncodeError):
        write_files(tmp_path, FILES | {"a.pyi": "fine\n", "b.pyx": "\ud800"})
    assert contents(tmp_path) == FILES


def test_a_failure_to_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "b.pyx").mkdir()
    with pytest.raises(IsADirectoryError):
        write_files(tmp_path, FILES)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept\n")
    (tmp_path / "a").symlink_to(kept)
    write_files(tmp_path, {"a": "new\n"})
    assert kept.read_text() == "kept\n"
    assert (tmp_path / "a").read_text() == "new\n"


def test_nothing_differs_after_writing(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    assert find_differences(tmp_path, FILES) == []


def test_a_difference_is_a_diff(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": "one\ntwo\nthree\nfour\nfive\n"})
    assert find_differences(tmp_path, {"a": "one\ntwo\n3\nfour\nfive\n"}) == [
        f"--- {tmp_path / 'a'} (on disk)\n+++ a (emitted now)\n"
        "@@ -2,3 +2,3 @@\n two\n-three\n+3\n four\n"
    ]


def test_a_missing_file_differs(tmp_path: Path) -> None:
    (difference,) = find_differences(tmp_path / "missing", {"a": "one\n"})
    assert "+one\n" in difference


# All of these are read as the same text by Python's text mode, or as no text at all.
@pytest.mark.parametrize("on_disk", [b"one\r\n", b"one\r", b"one", b"\xef\xbb\xbfone\n", b"\xff"])
def test_other_bytes_differ_and_are_written_anew(tmp_path: Path, on_disk: bytes) -> None:
    (tmp_path / "a").write_bytes(on_disk)
    (difference,) = find_differences(tmp_path, {"a": "one\n"})
    assert difference.isascii()
    assert all(line.isprintable() for line in difference.splitlines())
    assert write_files(tmp_path, {"a": "one\n"}) == [tmp_path / "a"]
    assert (tmp_path / "a").read_bytes() == b"one\n"


def test_a_diff_of_hostile_content_cannot_reach_the_terminal(tmp_path: Path) -> None:
    directory = tmp_path / "a\nb\x1b[31m"
    directory.mkdir()
    (directory / "a").write_text("\x1b[2J\u202e\n")
    (difference,) = find_differences(directory, {"a": "one\n"})
    assert len(difference.splitlines()) == 6
    assert all(line.isascii() and line.isprintable() for line in difference.splitlines())


# Each at the begin, in the middle and at the end of a name.
SIGNS = [*map(chr, (*range(1, ord("/")), *range(ord(":"), ord("A")), *range(ord("["), ord("a"))))]
SIGNS += [*"{|}~\x7f\x85\xe9\u2028\udcff", "\\ ", "\\\\ ", "\\#", "\\:", "\\$", "\\%", " #", ": "]
NAMES = ["plain", "(x)", "d ir/x", "~/x", "a/~x"]
NAMES += [name for sign in SIGNS for name in (f"{sign}b", f"a{sign}b", f"a{sign}")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.pyx", "a.pyx"),
        ("a b", "a\\ b"),
        ("a\\b", "a\\b"),
        ("a\\ b", "a\\\\\\ b"),
        ("a#b", "a\\#b"),
        ("a$b", "a$$b"),
        ("C:x", "C\\:x"),
    ],
)
def test_depfile_escapes(name: str, expected: str) -> None:
    assert depfile([Path(name)], [Path("g.plan")]) == f"{expected}: g.plan\n"
    assert depfile([Path("m")], [Path(name)]) == f"m: {expected}\n"


def test_depfile_names_every_file() -> None:
    rule = depfile([Path("d/a.pxd"), Path("d/a.pyx")], [Path("x"), Path("y")])
    assert rule == "d/a.pxd d/a.pyx: x y\n"


@pytest.mark.parametrize("sign", "\n\r\t\x01\x7f;=|*?[]&`'\"<>^")
def test_depfile_refuses_what_make_or_ninja_would_read_otherwise(sign: str) -> None:
    for targets, sources in ((["m"], [f"b{sign}c"]), ([f"b{sign}c"], ["m"])):
        with pytest.raises(EmitError) as caught:
            depfile(map(Path, targets), map(Path, sources))
        what = "newline" if sign == "\n" else "character that make or ninja reads otherwise"
        assert str(caught.value) == printable(
            f'--depfile: expected no {what} in file names, got "b{sign}c"'
        )


def test_depfile_refuses_a_pattern() -> None:
    assert depfile([Path("m")], [Path("a%b")]) == "m: a%b\n"
    with pytest.raises(EmitError, match='got "a%b"'):
        depfile([Path("a%b")], [Path("m")])


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a folder with one depfile for each name that can be said: as target, and as source."""

    def rules(kind: str) -> Path:
        directory = tmp_path_factory.mktemp(kind)
        for number, name in enumerate(NAMES):
            for is_target in (True, False):
                here = directory / f"{number}{'ts'[not is_target]}"
                target, source = (name, "in") if is_target else ("out", name)
                try:
                    rule = depfile([Path(target), Path("second")], [Path(source), Path("third")])
                except EmitError:
                    continue
                for path in (target, "second", source, "third"):
                    (here / path).parent.mkdir(parents=True, exist_ok=True)
                    (here / path).touch()
                (here / "rule.d").write_bytes(rule.encode("utf-8", "surrogateescape"))
                (here / "names").write_bytes(
                    f"{target}\n{source}".encode("utf-8", "surrogateescape")
                )
        assert len(list(directory.iterdir())) > 100
        return directory

    return rules


def run_tool(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=60)
    assert done.returncode == 0, (cwd, done.stdout, done.stderr)
    return os.fsdecode(done.stdout)


def check_dependencies(folder: Path, is_wanted: Callable[[Path, str], bool]) -> None:
    """Each of two targets is old if one of two sources is newer, and only then."""
    for here in folder.iterdir():
        target, source = os.fsdecode((here / "names").read_bytes()).split("\n")
        for old in (target, "second"):
            for new in (None, source, "third"):
                for path in (target, "second", source, "third"):
                    os.utime(here / path, (5, 5))
                if new is not None:
                    os.utime(here / new, (9, 9))
                assert is_wanted(here, old) == (new is not None), (target, source, old, new)


def test_make_reads_the_depfile(rules: Callable[[str], Path]) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    folder = rules("make")
    for here in folder.iterdir():
        rule = (here / "rule.d").read_bytes()
        (here / "Makefile").write_bytes(rule.rstrip(b"\n") + b"\n\t@echo made\n")
    check_dependencies(
        folder,
        lambda here, target: "made" in run_tool("make", "-rs", "--", f"./{target}", cwd=here),
    )


def test_ninja_reads_the_depfile(rules: Callable[[str], Path]) -> None:
    if not shutil.which("ninja"):
        pytest.skip("ninja is not installed")
    folder = rules("ninja")
    for here in folder.iterdir():
        target = (here / "names").read_bytes().split(b"\n")[0]
        target = re.sub(rb"[$ :|]", rb"$\g<0>", target)
        (here / "build.ninja").write_bytes(
            # A generator's targets are not old because no log says how they were made.
            b"rule make\n  command = true\n  depfile = rule.d\n  generator = 1\n"
            b"build %b second: make\n" % target
        )
    check_dependencies(
        folder, lambda here, target: "no work to do" not in run_tool("ninja", "-n", cwd=here)
    )

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from cudnn_bindgen.codegen import output
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.output import depfile, find_differences, write_files

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

    def full_disk(directory: Path, name: str, text: str) -> str:
        if name == broken:
            raise OSError(28, "No space left on device")
        return stage(directory, name, text)

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


NAMES = [
    "plain",
    "a b",
    "a  b",
    "a#b",
    "a$b",
    "a:b",
    "a\\b",
    "a\\ b",
    "a\\\\ b",
    "a\\#b",
    "a\\:b",
    "a\tb",
    "(x)",
]


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


def test_depfile_refuses_a_newline_that_no_escape_exists_for() -> None:
    with pytest.raises(EmitError) as caught:
        depfile([Path("a")], [Path("b\nc")])
    assert str(caught.value) == '--depfile: expected no newline in file names, got "b\\nc"'


@pytest.mark.parametrize("name", NAMES)
def test_make_reads_the_depfile(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / f"{name}.json", tmp_path / "out"
    source.touch()
    rule = depfile([Path("out")], [Path(source.name)])
    (tmp_path / "Makefile").write_text(f"out:\n\ttouch out\n{rule}")
    try:
        subprocess.run(["make", "-s"], cwd=tmp_path, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("make is not installed")
    os.utime(target, (1, 1))
    os.utime(source, (5, 5))
    question = subprocess.run(["make", "-q"], cwd=tmp_path, check=False, capture_output=True)
    assert question.returncode == 1, "out is older than its source"
    os.utime(target, (9, 9))
    question = subprocess.run(["make", "-q"], cwd=tmp_path, check=False, capture_output=True)
    assert question.returncode == 0, "out is newer than its source"


def test_a_depfile_may_name_files_that_are_not_utf8(tmp_path: Path) -> None:
    rule = depfile([Path("a")], [Path(os.fsdecode(b"\xff.plan"))])
    write_files(tmp_path, {"d": rule})
    assert (tmp_path / "d").read_bytes() == b"a: \xff.plan\n"
    assert write_files(tmp_path, {"d": rule}) == []

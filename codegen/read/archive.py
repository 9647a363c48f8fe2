"""A bundle's bytes ↔ plan files and what stands about them: a zip archive with a ``bundle.json``.

Nothing here knows graphs; that a plan is what ``bundle.json`` says of it, `bundle.py` checks. The
archive is read in memory, so that no name in it is ever a path. docs/bundles.md has the format.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Annotated
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec
from msgspec import Meta

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects.decode import check, decode_json
from cudnn_bindgen.codegen.read.source import MAX_BYTES
from cudnn_bindgen.codegen.text import printable, shorten

NAME = "bundle"

INDEX = "bundle.json"
_VERSION = 1

# Some SMs, with some counts each, for some releases of cuDNN. Unpacked, all plans together may have
# what one file may have.
MAX_PLANS = 256

_REMEDY = "the bundle is damaged or was edited: make it again with cudnn-bindgen bundle"
_IS_CUT = "is the file truncated? copy it again, or make it again with cudnn-bindgen bundle"

_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")

# End of the central directory: signature, numbers of disks, files here and in all, bytes of the
# directory, where it begins, bytes of a comment behind.
_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
# A record of this length, right before the end, would say all of that again for large archives.
_ZIP64_BYTES, _ZIP64_SIGNATURE = 20, b"PK\x06\x07"
# Of what the directory says of one file; our own writer needs 80 bytes.
_MOST_BYTES = 400

_IS_ENCRYPTED = 0x1

# What zipfile and zlib raise for an archive that is no good, on one Python version or another.
_BROKEN = (
    *(BadZipFile, EOFError, NotImplementedError, OSError, OverflowError, RuntimeError),
    *(struct.error, ValueError, zlib.error),
)

_Number = Annotated[int, Meta(ge=0, lt=2**31)]


class PlanEntry(msgspec.Struct, frozen=True):
    """What ``bundle.json`` says of a plan: its file, its key, and for people `engine`.

    `sha256` is the digest of the file's bytes.
    """

    name: str
    sm: _Number
    sm_count: _Number
    cudnn_version: _Number
    engine: str
    sha256: str


class _Index(msgspec.Struct, frozen=True):
    bundle_version: int
    tool_version: str
    plans: Annotated[tuple[PlanEntry, ...], Meta(min_length=1)]


class _Versioned(msgspec.Struct, frozen=True):
    bundle_version: int


@dataclass(frozen=True, slots=True)
class BundledPlan:
    """A plan file in a bundle: its bytes, and what ``bundle.json`` says of it."""

    entry: PlanEntry
    content: bytes


def is_bundle(data: bytes) -> bool:
    """Whether `data` begins as a zip archive does."""
    return data.startswith(_SIGNATURES)


def digest(content: bytes) -> str:
    """Return what ``bundle.json`` has of a file's bytes."""
    return hashlib.sha256(content).hexdigest()


def pack(plans: Sequence[BundledPlan]) -> bytes:
    """Return a bundle of `plans`, in their order: the same bytes for the same plans.

    Raises
    ------
    GraphFormatError
        They are too many, or too large, to be read again.
    """
    if len(plans) > MAX_PLANS:
        raise _too_many(str(len(plans)))
    index = _Index(_VERSION, __version__, tuple(plan.entry for plan in plans))
    text = msgspec.json.format(msgspec.json.encode(index), indent=2) + b"\n"
    files = [(INDEX, text), *((plan.entry.name, plan.content) for plan in plans)]
    _check_size(len(content) for _, content in files)
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, content in files:
            # Of 1980, and as Unix writes it wherever it is written.
            info = ZipInfo(name)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content, ZIP_DEFLATED, 9)
    return buffer.getvalue()


def unpack(data: bytes) -> tuple[BundledPlan, ...]:
    """Return the plan files of a bundle, whose digests are right.

    Raises
    ------
    GraphFormatError
        It is no bundle, one of a newer version, cut off, or not as it was written.
    """
    _check_directory(data)
    try:
        with ZipFile(BytesIO(data)) as archive:
            contents = _read_files(archive)
    except GraphFormatError:
        raise
    except _BROKEN as error:
        problem = f"expected a bundle, got a damaged zip archive: {printable(str(error))}"
        raise GraphFormatError(problem, hint=_IS_CUT) from None
    plans = _read_index(contents.pop(INDEX)).plans
    listed = [entry.name for entry in plans]
    if sorted(listed) != sorted(contents):
        odd = sorted({*listed} ^ {*contents}) or listed
        raise GraphFormatError(
            f"expected each file that {INDEX} lists, once and no other, "
            f'got a difference: "{shorten(odd[0])}"',
            hint=_REMEDY,
        )
    for number, entry in enumerate(plans):
        found = digest(contents[entry.name])
        if found != entry.sha256:
            raise GraphFormatError(
                f'expected the digest of "{shorten(entry.name)}", {found}, '
                f'got "{shorten(entry.sha256, 64)}"',
                path=f"{INDEX} $.plans[{number}].sha256",
                hint=_REMEDY,
            )
    return tuple(BundledPlan(entry, contents[entry.name]) for entry in plans)


def _check_directory(data: bytes) -> None:
    """Bound what zipfile reads first: the directory of its files, which ends the file.

    zipfile looks for that end in front of anything, and reads a directory of any length.
    """
    at = len(data) - _END.size
    if at < 0:
        raise GraphFormatError("expected a bundle, got its first bytes", hint=_IS_CUT)
    signature, _, _, _, count, size, start, comment = _END.unpack_from(data, at)
    before = data[max(0, at - _ZIP64_BYTES) :][: len(_ZIP64_SIGNATURE)]
    if signature != _END_SIGNATURE or comment or start + size != at or before == _ZIP64_SIGNATURE:
        raise GraphFormatError(
            "expected a bundle, got a zip archive that does not end as one", hint=_IS_CUT
        )
    if count > MAX_PLANS + 1:
        raise _too_many(str(count - 1))
    if size > (MAX_PLANS + 1) * _MOST_BYTES:
        raise _too_many("more")


def _read_files(archive: ZipFile) -> dict[str, bytes]:
    files = archive.infolist()
    names = [file.filename for file in files]
    if INDEX not in names:
        raise GraphFormatError(
            f"expected a bundle, got a zip archive without {INDEX}",
            hint="make a bundle of its plans with cudnn-bindgen bundle",
        )
    for file in files:
        name = shorten(file.filename)
        if names.count(file.filename) > 1:
            raise GraphFormatError(f'expected each file once, got "{name}" twice', hint=_REMEDY)
        if file.flag_bits & _IS_ENCRYPTED:
            raise GraphFormatError(
                f'expected files that are not encrypted, got "{name}"',
                hint="unpack it with its password, and bundle the plans",
            )
        # Others can ask for any amount of memory before they give a byte.
        if file.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise GraphFormatError(
                f'expected files that are deflated or stored, got "{name}"', hint=_REMEDY
            )
    _check_size(file.file_size for file in files)
    return {file.filename: _read_file(archive, file) for file in files}


def _read_file(archive: ZipFile, info: ZipInfo) -> bytes:
    with archive.open(info) as opened:
        # With a length: what is deflated may be longer than the directory says.
        content = opened.read(info.file_size)
    if len(content) != info.file_size:
        raise EOFError(f"{info.filename} ends early")
    return content


def _read_index(text: bytes) -> _Index:
    where = f"{INDEX} $"
    try:
        document = decode_json(text, INDEX)
        version = check(document, _Versioned, where).bundle_version
        # What is newer may look different.
        index = check(document, _Index, where) if version == _VERSION else None
    except GraphFormatError as error:
        error.hint = _REMEDY
        raise
    if index is None:
        raise GraphFormatError(
            f"expected {_VERSION}, got {version}",
            path=f"{where}.bundle_version",
            hint="a newer cudnn-bindgen reads it; or unzip it, and take its plans one by one",
        )
    return index


def _check_size(sizes: Iterable[int]) -> None:
    total = sum(sizes)
    if total > MAX_BYTES:
        raise GraphFormatError(
            f"expected a bundle of at most {MAX_BYTES} bytes, unpacked, got {total}",
            hint="no plans are that large; are these the right files?",
        )


def _too_many(count: str) -> GraphFormatError:
    return GraphFormatError(
        f"expected a bundle of at most {MAX_PLANS} plans, got {count}",
        hint="make one for each generation of GPUs",
    )

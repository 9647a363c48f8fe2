"""Mutated graph files: the same bytes for the same (file, seed), so that a failure can be repeated.

A file is mutated in the form in which it is decoded (JSON, UBJSON, the plan's own JSON inside that,
lines of a log, a list of ints), as bytes, or as both.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import ubjson

from support.byte_mutations import mutate_bytes
from support.documents import DATA
from support.hostile_encoding import encode_json, encode_ubjson, integer
from support.object_mutations import mutate_object

_GRAPH_LINE = b'{"context"'
_BACKEND = "cudnn_backend_data"
_UBJSON = partial(ubjson.loadb, no_bytes=True)
# Real files have up to 0.2 MB. Work grows with the size, and a second is enough for this much.
LONGEST = 1 << 20
SUFFIXES = {".json", ".plan", ".log", ".txt"}


class Seed:
    """One real file: its bytes and what they decode to."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data

    @cached_property
    def is_binary(self) -> bool:
        """Whether it is UBJSON."""
        return self.data[:1] == b"{" and self.data[1:2] in (b"i", b"U", b"I", b"l", b"L")

    @cached_property
    def _pickled(self) -> bytes | None:
        try:
            value = (
                ubjson.loadb(self.data, no_bytes=True) if self.is_binary else json.loads(self.data)
            )
            return pickle.dumps(value) if value and isinstance(value, (dict, list)) else None
        except (ValueError, ArithmeticError, RecursionError):
            return None  # a mutated file may be a seed again (tools/fuzz/coverage.py)

    @cached_property
    def light(self) -> Seed:
        """The same file without the kernels inside its plan, which are most of its bytes."""
        backend = self.backend()
        if not backend:
            return self
        root = self.decode() | {_BACKEND: json.dumps(_without_long_texts(backend))}
        return Seed(self.name, encode_ubjson(root))

    def backend(self) -> Any:
        """Return the decoded text of cuDNN's own in a plan file, or None."""
        root = self.decode() if self.is_binary else None
        try:
            return json.loads(root[_BACKEND]) if isinstance(root, dict) else None
        except (KeyError, TypeError, ValueError):
            return None

    def decode(self) -> Any:
        """Return a fresh copy of the object in the file, or None when it is text."""
        return None if self._pickled is None else pickle.loads(self._pickled)


def _without_long_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_long_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_long_texts(item) for item in value]
    return value[:60] if isinstance(value, str) else value


def find_seeds(*folders: Path) -> list[Seed]:
    """Return the graph files below `folders`, by default those of tests/data, in a fixed order."""
    found: list[Seed] = []
    for folder in folders or (DATA,):
        paths = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
        found += (Seed(f"{path.parent.name}/{path.name}", path.read_bytes()) for path in paths)
    return found


def mutate(seeds: list[Seed], index: int, number: int) -> bytes:
    """Return file `index` of `seeds` mutated by random number `number`."""
    rng = random.Random(f"{seeds[index].name}#{number}")
    seed, other = seeds[index], rng.choice(seeds)
    if rng.random() < 0.9:
        seed, other = seed.light, other.light
    how = rng.random()
    if how < 0.2:
        return mutate_bytes(seed.data, other.data, rng)
    backend = seed.backend() if how < 0.28 else None
    if backend:
        data = _with_backend_mutated(seed, backend, rng)
    else:
        data = _with_object_mutated(seed, other, rng)
    if rng.random() < 0.08:
        data = mutate_bytes(data, other.data, rng)
    if rng.random() < 0.06:
        data = _wrap(data, [seed, other], rng)
    return data[:LONGEST]


def _with_object_mutated(seed: Seed, other: Seed, rng: random.Random) -> bytes:
    root = seed.decode()
    if root is None:
        return _with_line_mutated(seed, rng) or mutate_bytes(seed.data, other.data, rng)
    mutate_object(root, rng)
    # Structure and plan are told apart by their encoding; a few times each comes in the other's.
    is_binary = seed.is_binary != (rng.random() < 0.04)
    return encode_ubjson(root) if is_binary else encode_json(root)


def _with_backend_mutated(seed: Seed, backend: Any, rng: random.Random) -> bytes:
    """Mutate cuDNN's own text inside a plan file, which stays a whole UBJSON file."""
    root = seed.decode()
    text = root[_BACKEND]
    if rng.random() < 0.5:
        mutate_object(backend, rng)
        root[_BACKEND] = encode_json(backend).decode("utf-8", "surrogatepass")
    else:
        mutated = mutate_bytes(text.encode(), text.encode(), rng)
        root[_BACKEND] = mutated.decode("utf-8", "surrogateescape")
    return _encode_loosely(root)


def _encode_loosely(root: Any) -> bytes:
    """Encode with the bytes that a surrogate escape stands for taken as they were."""
    text = root[_BACKEND]
    root[_BACKEND] = "BACKEND TEXT HERE"
    data = text.encode("utf-8", "surrogateescape" if _escapes(text) else "surrogatepass")
    mark = b"Si\x11BACKEND TEXT HERE"
    return encode_ubjson(root).replace(mark, b"S" + integer(len(data)) + data, 1)


def _escapes(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _with_line_mutated(seed: Seed, rng: random.Random) -> bytes | None:
    """Mutate one graph of a log."""
    lines = seed.data.split(b"\n")
    graphs = [at for at, line in enumerate(lines) if line.lstrip().startswith(_GRAPH_LINE)]
    if not graphs:
        return None
    at = rng.choice(graphs)
    try:
        root = json.loads(lines[at])
    except ValueError:
        return None
    mutate_object(root, rng)
    lines[at] = encode_json(root)
    return b"\n".join(lines)


def _wrap(data: bytes, seeds: Iterable[Seed], rng: random.Random) -> bytes:
    """Give a file as what it may be handed around as: a log, a list of ints, text of an editor."""
    texts = [seed.data for seed in seeds if not seed.is_binary]
    how = rng.randrange(8)
    if how < 3:
        lines = [b"[cudnn_frontend] INFO: x", data, *texts, b'{"context"', data]
        rng.shuffle(lines)
        return b"\n".join(lines)
    if how < 5:
        numbers = list(data)
        if rng.random() < 0.4 and numbers:
            numbers[rng.randrange(len(numbers))] = rng.choice((-1, 256, 1.5, "a", None, True, [1]))
        return json.dumps(numbers).encode()
    if how == 5:
        return repr(data).encode()
    return data.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-8-sig", "utf-32")))

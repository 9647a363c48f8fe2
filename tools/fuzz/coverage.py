"""Lets coverage guide the mutations (atheris, libFuzzer): files that reach new branches are kept.

Does not stop at a finding: each place that raises is kept once, as a file and its traceback.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import signal
import sys
import traceback
from pathlib import Path

import atheris
import locate

with atheris.instrument_imports(include=["cudnn_bindgen.codegen"]):
    from support.emitting import check_accepted, check_refusal, emit

from support.mutations import Seed, find_seeds, mutate
from worker import SECONDS, HangError

OUT = locate.ROOT / "build" / "fuzz-coverage"
KEPT = Path(__file__).parent / "corpus"
LONGEST = 40_000
FLAGS = (f"-max_len={LONGEST}", "-timeout=60", "-rss_limit_mb=1500", f"-artifact_prefix={OUT}/")


def _hang(*_: object) -> None:
    raise HangError(f"more than {SECONDS} s of processor time")


def try_one(data: bytes) -> None:
    """Emit `data`; keep it when that breaks a rule."""
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            emitted = emit(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if isinstance(emitted, Exception):
            check_refusal(emitted)
        else:
            check_accepted(emitted)
    except (HangError, Exception) as error:
        _keep(data, error)


def _keep(data: bytes, error: BaseException) -> None:
    """Write a finding, one for each place of the code."""
    frames = traceback.extract_tb(error.__traceback__)
    # A hang is found wherever it happens to be: one for each function.
    place = [(frame.filename, frame.name) for frame in frames[-1:]]
    name = hashlib.sha256(repr((type(error), place)).encode()).hexdigest()[:12]
    stem = OUT / f"finding-{name}"
    if not stem.with_suffix(".bin").exists():
        stem.with_suffix(".bin").write_bytes(data)
        text = "".join(traceback.format_exception(error))
        stem.with_suffix(".txt").write_text(text, errors="backslashreplace")
        print(f"finding: {stem}.bin: {type(error).__name__}", file=sys.stderr, flush=True)


def mutate_input(data: bytes, longest: int, number: int) -> bytes:
    """Mutate as libFuzzer does, or one level higher, in the objects that the bytes stand for."""
    # py-ubjson gives arrays of items without bytes as much memory as they ask for.
    is_safe = not any(mark in data for mark in (b"$Z", b"$T", b"$F"))
    if is_safe and random.Random(number).random() < 0.5:
        with contextlib.suppress(RecursionError):
            # Files too long are cut: what is left is broken, but a mutation all the same.
            return mutate([Seed("input", bytes(data))], 0, number)[:longest]
    return bytes(atheris.Mutate(data, longest))


def main() -> None:
    """Fuzz until libFuzzer's -max_total_time or -runs; its flags may follow on the command line."""
    corpus = OUT / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in find_seeds():
        (corpus / seed.name.replace("/", "-")).write_bytes(seed.light.data)
    folders = [str(corpus), *([str(KEPT)] if KEPT.is_dir() else [])]
    signal.signal(signal.SIGPROF, _hang)
    atheris.Setup(
        [sys.argv[0], *FLAGS, *sys.argv[1:], *folders], try_one, custom_mutator=mutate_input
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""Arguments for a case: device buffers with contents that tell whether a call did what it must."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Mapping
from typing import Any

from cudnn_bindgen.codegen.bind.binding import Argument
from support.cases import COUNT, POISON, SPARE, Case
from support.standin import Standin, rounded


class Operands:
    """One set of a case's arguments: device buffers and scalars, random yet reproducible."""

    def __init__(self, standin: Standin, case: Case, seed: int = 0) -> None:
        self.case = case
        self._random = random.Random(f"{case.name} {seed}")
        self.addresses = {
            # Null where it is allowed.
            operand.uid: 0 if operand.is_empty else standin.alloc(8 * (COUNT + SPARE))
            for operand in case.operands
        }
        self.values: dict[int, Any] = {}
        self.fill()

    def fill(self, *, keep_scalars: bool = False) -> None:
        """Give each operand fresh values, and the outputs poison."""
        for operand in self.case.operands:
            self.values[operand.uid] = [
                POISON if operand.role == "output" else self._random.uniform(-4, 4)
                for _ in range(COUNT + SPARE)
            ]
            if not operand.is_empty:
                self._buffer(operand.uid)[:] = self.values[operand.uid]
        for argument in () if keep_scalars else self.case.binding.scalars:
            value = rounded(self._random.uniform(-100, 100), argument.data_type.lower())
            self.values[argument.uid] = int(value) if "INT" in argument.data_type else value

    @property
    def by_uid(self) -> dict[int, Any]:
        return {a.uid: self.addresses.get(a.uid, self.values[a.uid]) for a in self._arguments}

    @property
    def arguments(self) -> list[Any]:
        return list(self.by_uid.values())

    @property
    def by_name(self) -> dict[str, Any]:
        return {argument.argument: self.by_uid[argument.uid] for argument in self._arguments}

    def check(self) -> None:
        """Compare all buffers with what one call since `fill` must have left there."""
        expected = {uid: list(self.values[uid]) for uid in self.addresses}
        for uid, values in self.case.expected(self.values).items():
            source, first = self.case.place_of(uid)
            expected[source][first : first + COUNT] = values
        self._compare(expected)

    def check_untouched(self) -> None:
        """Compare all buffers with what `fill` put there."""
        self._compare(self.values)

    def _compare(self, expected: Mapping[int, Any]) -> None:
        for uid, address in self.addresses.items():
            if address:
                assert list(self._buffer(uid)) == expected[uid], f"uid {uid}"

    def _buffer(self, uid: int) -> Any:
        return (ctypes.c_double * (COUNT + SPARE)).from_address(self.addresses[uid])

    @property
    def _arguments(self) -> tuple[Argument, ...]:
        return self.case.binding.arguments

"""Sets of plans of one graph, as a file would bring them, and what stands in for planning.

HERE is the kind of device that the stand-in has, THERE what `other_device` makes of one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from cudnn_bindgen.codegen.bind import plan_file
from cudnn_bindgen.module_data import PlanParts
from support.cases import CASES, Case, edited_text
from support.standin import Standin

Kind = tuple[int, int, int]
"""SM, SM count and cuDNN version."""

HERE: Kind = (90, 132, 91900)
THERE: Kind = (100, 148, 91900)


def other_device(standin: Standin, device: int = 1) -> None:
    """Make a device one of the kind THERE."""
    standin.set_device_sm(device, 10, 0)
    standin.set_device_sm_count(device, THERE[1])


def made_for(case: Case | str, kind: Kind) -> bytes:
    """Return a case's plan file as made for a kind of device."""
    sm, sm_count, version = kind
    return edited_text(
        CASES[case] if isinstance(case, str) else case, version, 10 * sm, sm_count=sm_count
    )


def fields(plan: bytes) -> PlanParts:
    """Return what a maker returns for a plan file."""
    [parts] = plan_file.read_plans(plan)
    return parts


class Sets:
    """Files with several plans: `load_plan` takes what `file` returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files: dict[bytes, Sequence[bytes]] = {}
        read = plan_file.read_plans

        def read_plans(source: Any, may_be_none: bool = False) -> list[PlanParts]:
            plans = self._files.get(source, [source]) if isinstance(source, bytes) else [source]
            return [parts for plan in plans for parts in read(plan, may_be_none)]

        monkeypatch.setattr(plan_file, "read_plans", read_plans)

    def file(self, *plans: bytes) -> bytes:
        name = b"set %d" % len(self._files)
        self._files[name] = plans
        return name


class Makers:
    """What stands where planning makes plans: `make` is called for each that is missing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.make: Callable[[int, int, int], PlanParts] = self._none
        self.asked: list[tuple[Any, list[int]]] = []
        self.calls: list[Kind] = []
        planning = ModuleType("cudnn_bindgen.frontend.planning.missing")
        planning.__dict__["plan_maker"] = self.plan_maker
        monkeypatch.setitem(sys.modules, planning.__name__, planning)

    def plan_maker(self, source: Any, bound: list[int]) -> Callable[[int, int, int], Any]:
        self.asked.append((source, bound))

        def make(sm: int, sm_count: int, version: int) -> PlanParts:
            self.calls.append((sm, sm_count, version))
            return self.make(sm, sm_count, version)

        return make

    def makes(self, case: Case | str) -> None:
        """Let a case's plan be made, for whatever device asks."""
        self.make = lambda *kind: fields(made_for(case, kind))

    def _none(self, *kind: int) -> PlanParts:
        raise AssertionError(f"no plan was to be made for {kind}")

"""A plan for a device that no plan at hand is for: from the cache on disk, or made now.

What ``load_plan(on_missing="plan")`` of an emitted module hands to the runtime. The plan is for the
current CUDA device, as everything that the frontend makes: whoever asks says what that is, and gets
a plan for just that or an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from cudnn_bindgen.codegen.bind.bundle import Key, first_plan
from cudnn_bindgen.codegen.bind.plan_file import read_plans
from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.model.graph import dotted
from cudnn_bindgen.codegen.read.archive import is_bundle
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.source import read_given
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.file_cache import CacheError, RejectedError
from cudnn_bindgen.frontend.planning.constants import find_open_scalars
from cudnn_bindgen.frontend.planning.frontend import (
    backend_version,
    frontend_version,
    load_frontend,
)
from cudnn_bindgen.frontend.planning.make_plan import check_rebuildable, make_plan, read_input
from cudnn_bindgen.frontend.planning.options import HEURISTICS
from cudnn_bindgen.frontend.planning.plan_cache import PlanCache, plan_name
from cudnn_bindgen.module_data import PlanParts

_ONE_CUDNN = (
    "let both find one libcudnn.so.9: the runtime takes the one that is loaded, the frontend that "
    "of LD_LIBRARY_PATH or of its own environment"
)


def plan_maker(
    source: bytes | str | os.PathLike[str], bound_uids: Iterable[int]
) -> Callable[[int, int, int], PlanParts]:
    """Return what makes plans of a graph for devices.

    Parameters
    ----------
    source
        Content or path of a structure, a plan or a bundle of plans.
    bound_uids
        What callers bind: any other scalar without a value is a constant of compile time.

    Returns
    -------
    callable
        ``(sm, sm_count, cudnn_version)`` of the current CUDA device → a plan.
        It raises PlanError.

    Raises
    ------
    GraphFormatError
        There is no graph in `source`.
    OSError
        It cannot be read.
    """
    data, file = read_given(source, "graph")
    missing = _Missing(first_plan(data, file), file, frozenset(bound_uids))
    return lambda sm, sm_count, version: missing.plan(Key(sm, sm_count, version))


class _Missing:
    """A graph whose plans are made when they are missing."""

    def __init__(self, data: bytes, file: str, bound: frozenset[int]) -> None:
        self.file = file
        self.bound = bound
        self.fingerprint = fingerprint(read_graph(data, file))
        self.structure = read_input(data, file, bound=bound)

    def plan(self, device: Key) -> PlanParts:
        """Return the parts of a plan for the device, which is the current one."""
        try:
            return self._plan(device)
        except PlanError as error:
            error.file = self.file
            raise

    def _plan(self, device: Key) -> PlanParts:
        check_rebuildable(self.structure)
        self._check_constants()
        made: list[bytes] = []

        def make() -> bytes:
            made.append(self._make(device))
            return made[0]

        def load(path: Path) -> PlanParts:
            try:
                return self._parts(path.read_bytes(), device)
            except (GraphFormatError, PlanError) as error:
                raise RejectedError from error

        name = plan_name(self.structure, self.bound, HEURISTICS, device, frontend_version())
        try:
            return PlanCache().use(name, make, load)
        except CacheError:
            # Nowhere on disk is space for it. But it may be made: then nothing else is wrong.
            return self._parts(made[0] if made else self._make(device), device)

    def _check_constants(self) -> None:
        bound = self.structure.bound or ()
        names = [
            f'"{shorten(item.name or str(uid))}"'
            for uid, item in find_open_scalars(self.structure).items()
            if uid not in bound and uid not in self.structure.constants
        ]
        if names:
            raise PlanError(
                f"expected the values of {', '.join(names)}, got constants of compile time, whose "
                "values the file does not have",
                hint="make the plan with cudnn-bindgen plan --const NAME=VALUE, and load that",
            )

    def _make(self, device: Key) -> bytes:
        found = backend_version(load_frontend())
        if found not in (None, device.cudnn_version):
            raise PlanError(
                f"expected a frontend that calls cuDNN {dotted(device.cudnn_version)}, as the "
                f"runtime does, got one that calls {dotted(found)}",
                hint=_ONE_CUDNN,
            )
        data = make_plan(self.structure)
        self._parts(data, device)
        return data

    def _parts(self, data: bytes, device: Key) -> PlanParts:
        """Return what is in a plan file, if it is for this graph and device."""
        if is_bundle(data):
            raise PlanError("expected a plan, got a bundle")
        [parts] = read_plans(data)
        found = Key(parts.sm, parts.sm_count, parts.cudnn_version)
        if found not in (device, replace(device, sm_count=0)):
            raise PlanError(
                f"expected a plan for {device}, got one for {found}",
                hint="it is made for the current CUDA device, by the cuDNN that the frontend calls",
            )
        if parts.fingerprint != self.fingerprint:
            raise PlanError(
                f"expected a plan of graph {self.fingerprint}, got one of {parts.fingerprint}",
                hint="the frontend builds another graph on this GPU: cudnn-bindgen show tells them "
                "apart",
            )
        uids = frozenset(parts.uids)
        if uids != self.bound:
            raise PlanError(
                f"expected a plan that binds {_list(self.bound)}, got one that binds {_list(uids)}"
            )
        return parts


def _list(uids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(uids)))

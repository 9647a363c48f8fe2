"""What makes the plans that a graph's set lacks, for one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cudnn_bindgen.module_data import PlanParts
from cudnn_bindgen.runtime.errors import BindingError


class PlanMaker:
    """The `make_missing` of a set of plans.

    Parameters
    ----------
    module
        Whose plans they are, for messages.
    make
        From SM, SM count and cuDNN version of the current device to a plan.
    """

    def __init__(self, module: str, make: Callable[[int, int, int], PlanParts]) -> None:
        self._module = module
        self._make = make
        self._lock = threading.RLock()
        self._is_busy = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other thread makes a plan, and keep others waiting during the block."""
        with self._lock:
            # Only this thread itself gets here meanwhile.
            if self._is_busy:
                raise BindingError(
                    f"{self._module}: what makes the missing plan has called the module itself"
                )
            self._is_busy = True
            try:
                yield
            finally:
                self._is_busy = False

    def make(self, sm: int, sm_count: int, cudnn_version: int) -> PlanParts:
        """Make a plan for the current device; what the callable raises is raised here."""
        return self._make(sm, sm_count, cudnn_version)

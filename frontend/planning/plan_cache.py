"""Plans on disk, each under a name that stands for all that decides it."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from pathlib import Path

import msgspec

import cudnn_bindgen
from cudnn_bindgen.codegen.bind.bundle import Key
from cudnn_bindgen.codegen.model.scalar import write_bits
from cudnn_bindgen.frontend.file_cache import FileCache
from cudnn_bindgen.frontend.planning.options import PlanOptions
from cudnn_bindgen.frontend.planning.structure import Structure


class PlanCache(FileCache):
    """A folder of plan files."""

    kind = "plans"
    prefix = "plan_"
    what = "plans"
    instead = "planning"

    def path(self, name: str) -> Path:
        """Return where the plan of that name lies."""
        return self.folder / f"{name}.plan"


def plan_name(
    structure: Structure, bound: Set[int], options: PlanOptions, device: Key, frontend: str
) -> str:
    """Return the name of the plan that `options` choose for a device.

    `structure` is the graph as it was built, `bound` what callers bind, `frontend` the version of
    the frontend. Another version of anything that has a say is another name, so that a plan is
    never out of date.
    """
    parts = [
        structure.context,
        structure.nodes,
        [structure.tensors[uid] for uid in sorted(structure.tensors)],
        sorted(bound),
        [(uid, *write_bits(value)) for uid, value in sorted(structure.constants.items())],
        options,
        device,
        frontend,
        cudnn_bindgen.__version__,
    ]
    text = msgspec.json.encode(parts, order="sorted")
    return plan_digest(text)


def plan_digest(text: bytes) -> str:
    """Return the name of a plan that `text` decides."""
    return f"plan_{hashlib.sha256(text).hexdigest()}"

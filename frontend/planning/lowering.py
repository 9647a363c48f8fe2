"""A structure as it was before lowering, so that dumps before and after it compare."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cudnn_bindgen.codegen.model.lowering import find_lowering
from cudnn_bindgen.frontend.planning.structure import Structure


def undo_lowering(structure: Structure) -> Structure:
    """Return the structure as it was before the frontend lowered it; equal if it did not."""
    undone = find_lowering(structure.nodes, structure.tensors, structure.value, structure.bound)
    tensors = {uid: item for uid, item in structure.tensors.items() if uid not in undone.added}
    for uid, (dim, stride) in undone.layouts.items():
        tensors[uid] = msgspec.structs.replace(tensors[uid], dim=dim, stride=stride)
    return replace(structure, nodes=undone.nodes, tensors=tensors)

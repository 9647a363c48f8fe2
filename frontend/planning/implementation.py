"""The implementation of attention: as the file names it, or left to the frontend.

A graph in a program has AUTO as a rule, which the frontend resolves by cuDNN's version; files have
what it was resolved to. So under another cuDNN a file may name one that is refused there.
"""

from __future__ import annotations

from dataclasses import replace

from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.codegen.model.ports import ATTENTION
from cudnn_bindgen.frontend.planning.structure import Structure

ATTRIBUTE = "implementation"
_OPEN = (None, "AUTO")


def names_one(node: Node) -> bool:
    """Whether a node of attention says how it is to be built."""
    return node.tag in ATTENTION and node.attributes.get(ATTRIBUTE) not in _OPEN


def leave_open(structure: Structure) -> Structure:
    """Return the structure without them: the frontend takes AUTO. Equal if it names none."""
    return replace(structure, nodes=tuple(_without(node) for node in structure.nodes))


def named(structure: Structure) -> str:
    """Return the names of those in a structure, for messages."""
    found = {str(node.attributes[ATTRIBUTE]) for node in structure.nodes if names_one(node)}
    return ", ".join(sorted(found))


def _without(node: Node) -> Node:
    if not names_one(node):
        return node
    left = {name: value for name, value in node.attributes.items() if name != ATTRIBUTE}
    return replace(node, attributes=left)

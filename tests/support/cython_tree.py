"""Cython's own parser, to compare emitted modules by their structure."""

from __future__ import annotations

from typing import Any

from Cython.Compiler import Errors
from Cython.Compiler.TreeFragment import parse_from_strings


def parse(text: str, is_pxd: bool = False) -> Any:
    """Return the syntax tree of a Cython text; fail on whatever Cython reports."""
    Errors.init_thread()
    tree = parse_from_strings("emitted", text, level="module_pxd" if is_pxd else "module")
    assert Errors.get_errors_count() == 0
    return tree


def shape(tree: Any) -> Any:
    """Return the compiler directives and kinds of nodes of a tree, without names and values."""
    return tree.directive_comments, _shape(tree)


def _shape(node: Any) -> Any:
    if isinstance(node, list):
        return [_shape(item) for item in node]
    if not hasattr(node, "child_attrs"):
        return None
    children = {name: _shape(getattr(node, name)) for name in node.child_attrs}
    return type(node).__name__, children

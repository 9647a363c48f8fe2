"""Graphs that are one graph, each with a plan of its own → one Binding with all plans.

The first graph decides the arguments; plans may ask for other alignments, and lowering for another
cuDNN may have exchanged axes, in the same memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cudnn_bindgen.codegen.bind.binding import Argument, Binding, bind
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph

_HINT = "a bundle holds plans of one graph: plan the same graph for each GPU and cuDNN"


def bind_graphs(
    graphs: Sequence[Graph],
    options: OverrideOptions | None = None,
    names: Sequence[str] = (),
) -> Binding:
    """Bind what `bundle.read_graphs` returned.

    Parameters
    ----------
    graphs
        At least one.
    options
        As of `bind`.
    names
        A name for each graph, for error messages.

    Raises
    ------
    EmitError
        `options` ask for what the graph does not have.
    GraphFormatError
        They are not one graph, or callers would pass them different arguments.
    """
    is_sized = any(graph.has_kernels for graph in graphs)
    first, *others = (
        bind(graph, options if graph is graphs[0] else None, is_sized=is_sized) for graph in graphs
    )
    names = names or [f"plan {number}" for number in range(1, len(graphs) + 1)]
    for binding, name in zip(others, names[1:], strict=True):
        _check_alike(first, binding, names[0], name)
    return dataclasses.replace(
        first,
        arguments=_widest([first, *others]),
        shared=tuple(
            pair
            for pair in first.shared
            if all(_by_uid(first, pair) in _shared_uids(binding) for binding in others)
        ),
        plans=tuple(plan for binding in (first, *others) for plan in binding.plans),
    )


def _check_alike(first: Binding, other: Binding, first_name: str, name: str) -> None:
    if first.fingerprint != other.fingerprint:
        raise _other(
            name,
            f"expected graph {first.fingerprint}, as in {first_name}, got {other.fingerprint}",
        )
    expected, found = _described(first), _described(other)
    for uid in sorted({*expected, *found}):
        if expected.get(uid) != found.get(uid):
            raise _other(
                name,
                f"expected {expected.get(uid, 'nothing')} as the argument with uid {uid}, "
                f"as in {first_name}, got {found.get(uid, 'nothing')}",
            )


def _described(binding: Binding) -> dict[int, str]:
    """Say of each argument what all plans must agree on, by uid."""
    found = {}
    for argument in binding.arguments:
        text = f"{argument.role} {argument.data_type}"
        # A call's dims and strides go to whichever plan runs, axis by axis.
        if binding.overrides and not argument.is_scalar:
            text += f" {list(argument.dim)} with strides {list(argument.stride)}"
        found[argument.uid] = text
    return found


def _widest(bindings: Sequence[Binding]) -> tuple[Argument, ...]:
    """Return the arguments of the first, aligned as the strictest plan asks."""
    alignments: dict[int, int] = {}
    for binding in bindings:
        for argument in binding.arguments:
            known = alignments.get(argument.uid, 1)
            alignments[argument.uid] = max(known, argument.alignment)
    return tuple(
        dataclasses.replace(argument, alignment=alignments[argument.uid])
        for argument in bindings[0].arguments
    )


def _by_uid(binding: Binding, slots: tuple[int, int]) -> tuple[int, int]:
    one, other = slots
    return binding.arguments[one].uid, binding.arguments[other].uid


def _shared_uids(binding: Binding) -> set[tuple[int, int]]:
    return {_by_uid(binding, pair) for pair in binding.shared}


def _other(name: str, problem: str) -> GraphFormatError:
    error = GraphFormatError(problem, hint=_HINT)
    error.file = name
    return error

"""Named bindings → all files of a module: its own, its gradients', their operators of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.naming import explain_taken
from cudnn_bindgen.codegen.bind.torch_autograd import derive
from cudnn_bindgen.codegen.bind.torch_operator import make_operator
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.codegen.render.torch import render_torch


@dataclass(frozen=True, slots=True)
class Named:
    """A binding with the name of its module, the base name of its graph file, and options."""

    module: str
    binding: Binding
    source: str
    options: Sequence[tuple[str, str]] = ()


def render_modules(
    module: Named, backwards: Sequence[Named] = (), namespace: str | None = None
) -> dict[str, str]:
    """Render a module and those that compute its gradients, as {file name: text}.

    `namespace` is where operators of PyTorch are registered; None for none of them.

    Raises
    ------
    EmitError
        Two modules have one name, PyTorch cannot hold an output, or the gradients do not fit.
    """
    every = [module, *backwards]
    files: dict[str, str] = {}
    for one in every:
        files |= render(one.binding, one.module, one.source, one.options)
    if namespace is None:
        return files
    _check_names(every)
    calls = derive(module.binding, [(one.module, one.binding) for one in backwards])
    for one in every:
        operator = make_operator(one.binding, one.module, namespace)
        files |= render_torch(operator, calls if one is module else (), one.binding, one.source)
    return files


def check_apart(files: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Check that no two modules of one folder have one name; `files` are graphs with their names.

    Raises
    ------
    EmitError
        Two have: operators of PyTorch are modules, too.
    """
    owners: dict[str, str] = {}
    for graph, emitted in files:
        for name in sorted({file.partition(".")[0] for file in emitted}):
            if owners.setdefault(name, graph) != graph:
                raise EmitError(
                    f"module name: expected one graph for {name}, got {owners[name]} and {graph}"
                )


def check_free(files: Mapping[str, Iterable[str]]) -> None:
    """Check that modules take no name that others need; `files` are their names, by graph.

    Raises
    ------
    EmitError
        One would: ``numpy``, as ``numpy.plan`` suggests, or ``__init__``.
    """
    for graph, emitted in files.items():
        for name in sorted({file.partition(".")[0] for file in emitted}):
            expected = explain_taken(name)
            if expected:
                raise EmitError(
                    f"{graph}: expected a module name {expected}, got {name}: "
                    "--name or --family chooses another"
                )


def _check_names(every: Sequence[Named]) -> None:
    names = [name for one in every for name in (one.module, f"{one.module}_torch")]
    for name in names:
        if names.count(name) > 1:
            raise EmitError(f"module name: expected one graph for {name}, got several: rename one")

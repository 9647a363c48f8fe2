"""A graph, and a module that was emitted with plans for it → that module's Binding, unplanned.

No plan is made the same twice, byte for byte (docs/planning.md). So `emit --check` takes the plans
that a module has for given, and with them the structure that they were made of.
"""

from __future__ import annotations

import dataclasses

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.module_data import GraphData


class OtherGraphError(EmitError):
    """A graph is not the one that a module's plans are for."""


def keep_plans(bound: Binding, module: GraphData, options: OverrideOptions) -> Binding:
    """Return what the module was emitted from, if it is of the graph that is `bound` now.

    Raises
    ------
    OtherGraphError
        The graph has changed: other plans are needed.
    """
    binding = bind_graphs(read_graphs(module.structure, module.source), options)
    alignments = [operand.alignment for operand in module.operands]
    if _face(bound) != _face(binding) or len(alignments) != len(binding.arguments):
        raise OtherGraphError(
            f"{module.source}: expected the graph that the module's plans are for, got another: "
            "emit it again"
        )
    return dataclasses.replace(
        binding,
        dialect=module.dialect,
        # What several plans need together.
        arguments=tuple(
            dataclasses.replace(argument, alignment=alignment)
            for argument, alignment in zip(binding.arguments, alignments, strict=True)
        ),
        shared=module.shared,
        plans=module.plans,
        structure=module.structure,
    )


def _face(binding: Binding) -> tuple[object, ...]:
    """Return what the graph computes, and what its arguments are called."""
    return binding.fingerprint, *(
        (argument.uid, argument.name, argument.original, argument.role, argument.default)
        for argument in binding.arguments
    )

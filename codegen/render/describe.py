"""Binding → the lines that ``help(module.run)`` shows: what each argument is.

The module's own docstring has the operands as a table; here is what a caller with tensors asks for.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.model.graph import is_made_up
from cudnn_bindgen.codegen.text import quoted, shorten

# What stands in the docstring of a function, four columns deep.
_WIDTH = 96

# What a value does, by port: as the frontend's documentation has it (1.32, docs/operations). Of
# what is not said there (ACCUM_COUNT), the type has to do.
_MEANINGS = (
    (r"Attn_scale", "multiplies Q K^T, typically 1 / sqrt(d)"),
    (r"Descale_\w+", "multiplies what is stored as FP8 before it is used"),
    (r"Dropout_scale", "multiplies what dropout keeps, typically 1 / (1 - probability)"),
    (r"EPSILON", "added to the variance, under the square root"),
    (r"MOMENTUM", "next running statistics = (1 - it) * previous + it * current"),
    (r"Offset", "offset of the random numbers"),
    (r"Scale_\w+", "multiplies results before they are stored as FP8"),
    (r"Seed", "seed of the random numbers"),
)

# What an operand's layout need not be as declared, by Layout.kind (docs/tensors.md).
_LAYOUTS = {
    "dense": "Dense: in an order of its own; this many elements or more, without gaps.",
    "paged": "Paged: any number of pages.",
    "ragged": "Ragged: any number of tokens, in place of the batch and its longest sequence.",
    "swapped": "Swapped: cuDNN exchanged the last two axes; a tensor from before that fits.",
}


Sizes: TypeAlias = tuple[Sequence[str], Sequence[str]]


def describe_run(
    binding: Binding, sizes: Mapping[int, Sizes] | None = None, key: Sequence[str] = ()
) -> list[str]:
    """Return the docstring of `run` as it stands between quotes: lines of at most 96 columns.

    Of a family, `sizes` are dims and strides in words, by slot, and `key` says what it is.
    """
    if sizes is None:
        sizes = {
            a.slot: (list(map(str, a.dim)), list(map(str, a.stride))) for a in binding.operands
        }
    return [
        line
        for text in _entries(binding, sizes, key)
        # No word of a description is longer than a line.
        for line in textwrap.wrap(
            quoted(text),
            _WIDTH,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _entries(binding: Binding, sizes: Mapping[int, Sizes], key: Sequence[str]) -> Iterator[str]:
    for argument in binding.operands:
        yield f"{argument.name}: {_operand(argument, *sizes[argument.slot])}"
    kinds = {argument.layout.kind for argument in binding.operands}
    yield from (text for kind, text in _LAYOUTS.items() if kind in kinds)
    for argument in binding.scalars:
        yield f"{argument.argument}: {_scalar(argument)}"
    yield from key
    yield "workspace: workspace_size() bytes or more; None: a block of the runtime's own"
    yield "stream: a cudaStream_t or a framework's stream; None: the framework's current one"
    yield "check: False: look at nothing but null addresses and alignment"
    if binding.overrides:
        yield "overrides: Overrides whose dims and strides stand in for those above; None: none"
    outputs = [argument.name for argument in binding.operands if argument.role == "output"]
    if outputs:
        yield f"Returns {', '.join(outputs)}: what was passed, or made if left out."


def _operand(argument: Argument, dim: Sequence[str], stride: Sequence[str]) -> str:
    kind = f"{argument.layout.kind} " if argument.layout.kind in _LAYOUTS else ""
    facts = (
        f"{kind}{argument.role}{_original(argument)}",
        f"{argument.data_type} [{', '.join(dim)}]",
        f"strides [{', '.join(stride)}]",
        f"aligned to {argument.alignment} bytes",
    )
    return _with_meaning(facts, argument if math.prod(argument.dim) == 1 else None)


def _scalar(argument: Argument) -> str:
    need = f"default {argument.default.value!r}" if argument.default else "required"
    facts = (f"scalar{_original(argument)}", argument.data_type, need)
    return _with_meaning(facts, argument)


def _original(argument: Argument) -> str:
    """Return the name in the graph where it is the user's and the parameter's does not say it."""
    name = argument.original
    if is_made_up(name) or name.lower() == argument.name:
        return ""
    return f' "{shorten(name, 20)}"'


def _with_meaning(facts: tuple[str, ...], argument: Argument | None) -> str:
    """Join `facts`, and what the value of `argument` does, if that is known."""
    port = argument.port if argument else ""
    meaning = next((text for known, text in _MEANINGS if re.fullmatch(known, port)), "")
    return "; ".join(filter(None, (", ".join(facts), meaning)))

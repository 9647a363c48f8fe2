"""Binding or Chain → what a module says beside the table of its arguments."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.chain import Chain
from cudnn_bindgen.codegen.text import shorten

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

# What an operand's layout need not be as declared, by LayoutRule.kind (docs/tensors.md).
_LAYOUTS = {
    "dense": "Dense: in an order of its own; this many elements or more, without gaps.",
    "paged": "Paged: any number of pages.",
    "ragged": "Ragged: any number of tokens, in place of the batch and its longest sequence.",
    "swapped": "Swapped: cuDNN exchanged the last two axes; a tensor from before that fits.",
}


def describe_arguments(binding: Binding) -> Iterator[str]:
    """Yield a sentence for each kind of layout and for each argument whose value has a meaning."""
    kinds = {argument.layout.kind for argument in binding.operands}
    yield from (text for kind, text in _LAYOUTS.items() if kind in kinds)
    for argument in binding.arguments:
        meaning = describe_value(argument)
        if meaning:
            yield f"{argument.name}: {meaning}."


def describe_links(chain: Chain) -> Iterator[str]:
    """Yield a sentence for each link of a chain: its graph, and which links it reads from."""
    for link in chain.links:
        nodes = shorten(describe_nodes(link.binding), 80)
        reads = [
            f"{shorten(end.partition('.')[2])} = {shorten(start, 80)}"
            for end, start in chain.wires.items()
            if end.partition(".")[0] == link.name
        ]
        wires = f": {', '.join(reads)}" if reads else ""
        yield f"Link {link.name}, {shorten(link.source)}, {nodes}{wires}."


def describe_nodes(binding: Binding) -> str:
    """Return node tags with their counts: ``MATMUL, POINTWISE x2``."""
    counts = Counter(binding.nodes)
    return ", ".join(tag if count == 1 else f"{tag} x{count}" for tag, count in counts.items())


def describe_value(argument: Argument) -> str:
    """Return what the value of an argument does, if that is known."""
    if not argument.is_scalar and math.prod(argument.dim) != 1:
        return ""
    return next((text for known, text in _MEANINGS if re.fullmatch(known, argument.port)), "")

"""A binding's overrides → what the template prints of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind import overrides
from cudnn_bindgen.codegen.bind.overrides import OverrideParts, Symbol
from cudnn_bindgen.codegen.render.docstrings import docstring
from cudnn_bindgen.codegen.text import enclose, join_sizes


@dataclass(frozen=True)
class Shape:
    """The setter of an operand's dims and strides."""

    slot: int
    name: str
    axes: tuple[str, ...]
    dim: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def method(self) -> str:
        """Its name."""
        return f"set_{self.name}"

    @property
    def signature(self) -> list[str]:
        """Its parameters, as lines."""
        strides = [f"stride_{axis}=None" for axis in self.axes]
        return enclose(f"    def {self.method}(", ["self", *self.axes, "*", *strides], "):")

    @property
    def docs(self) -> str:
        """Its docstring."""
        text = (
            f"Override {self.name}, declared with dims {join_sizes(self.dim)} and strides "
            f"{join_sizes(self.stride)}."
        )
        return docstring("\n".join(_lines(text.split(" "))), indent=8)

    @property
    def call(self) -> list[str]:
        """What it does, as lines."""
        dims = ", ".join(one_or_more(self.axes))
        strides = [f"stride_{axis}" for axis in self.axes]
        return enclose(
            f"        override_slot(self, {self.slot}, ({dims}), (", one_or_more(strides), "))"
        )


@dataclass(frozen=True)
class Symbols:
    """The setter of the numbers that several dims follow."""

    parts: OverrideParts

    @property
    def names(self) -> list[str]:
        """What the symbols are called."""
        return [symbol.name for symbol in self.parts.symbols]

    @property
    def signature(self) -> list[str]:
        """Its parameters, as lines."""
        return enclose("    def set(", ["self", "*", *(f"{n}=None" for n in self.names)], "):")

    @property
    def call(self) -> list[str]:
        """What it does, as lines."""
        return enclose("        override_symbols(self, (", one_or_more(self.names), "))")

    @property
    def docs(self) -> str:
        """Its docstring: what follows each symbol."""
        lines = ["Set every dim that follows a symbol, and the strides of those operands.", ""]
        for symbol in self.parts.symbols:
            lines += _lines(_summary(symbol, self.parts.shapes).split(" "))
        return docstring("\n".join(lines), indent=8)


def one_or_more(names: Sequence[str]) -> Sequence[str]:
    """Return the items of a tuple; a single one needs a comma."""
    return names if len(names) > 1 else [f"{names[0]},"]


def override_shapes(parts: OverrideParts) -> list[Shape]:
    """Return the setter of each operand."""
    return [
        Shape(slot, shape.name, shape.axes, shape.dim, shape.stride)
        for slot, shape in enumerate(parts.shapes)
    ]


def _lines(words: Iterable[str]) -> list[str]:
    """Return words as lines that fit into a method."""
    return textwrap.wrap(" ".join(words), 88, break_long_words=False, break_on_hyphens=False)


def _summary(symbol: Symbol, shapes: tuple[overrides.Shape, ...]) -> str:
    dims = ", ".join(
        f"{shapes[use.slot].name}.{shapes[use.slot].axes[use.axis]}"
        + "".join(f"{operator}{number}" for operator, number in use.steps)
        for use in symbol.uses
    )
    mode = "" if symbol.is_packed else "; strides as declared"
    return f"{symbol.name}: {dims}{mode}."

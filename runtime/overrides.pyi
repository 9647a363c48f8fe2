# The docstrings are the runtime's own (a test compares them), and those of emitted modules.
from collections.abc import Sequence
from typing import Any

class Overrides:
    """Dims and strides for a call, in place of the declared ones. For one thread at a time.

    Axes stand in the graph's order, sizes are in elements. A stride left out follows from the dims
    inside of it where it is declared so, and is the declared one otherwise. After an error all is
    as before.
    """

    def override(
        self, operand: str | int, dim: Sequence[int], stride: Sequence[int | None] | None = None
    ) -> None:
        """Override an operand.

        Args:
            operand: its name or uid.
            dim: the size of each axis, in elements.
            stride: of each axis, in elements, or None; None for all.

        Raises:
            OperandError: a size is negative, too large or no int, or some are missing.
        """
    def reset(self) -> None:
        """Override nothing any more."""
    def copy(self) -> Overrides:
        """Return others with the same values."""
    def __getattr__(self, name: str) -> Any: ...

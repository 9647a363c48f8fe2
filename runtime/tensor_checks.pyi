from collections.abc import Sequence
from typing import Final, Literal

KINDS: Final[tuple[str, ...]]

def compare_layouts(
    kind: str,
    free_axis: int,
    dim: Sequence[int],
    stride: Sequence[int],
    given_dim: Sequence[int],
    given_stride: Sequence[int],
    pack: int = 1,
) -> Literal["same", "other order", "other"]: ...

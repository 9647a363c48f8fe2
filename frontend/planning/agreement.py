"""Whether two plans of a graph compute the same: what rounding explains, and nothing else.

Each output is compared with that of the first candidate. Types without rounding have to be equal.
For the others there are two measures, both in parts of what is tolerated:

- the norm of the difference beside the norm of the output, which rounding keeps small however many
  elements there are, because its errors are independent;
- a quarter of the largest difference beside the largest element, because a few elements that are
  wrong altogether (a tile that is not written) are lost in the norm of many.

Tolerated is 4 u, at most a half, where u is the unit roundoff of the coarsest type that results
pass through: the output's own, virtual tensors', attention's inputs' (in whose type its
probabilities go into the second product), and TF32's, in which products of FLOAT may be computed
and which is not finer than the accumulators of FP8 (14 bits). A plan that is right is off by about
one u of each of the few roundings that plans may do differently, and so is the one it is compared
with: hence 4. A plan that is wrong is off by about 1.

NaN and infinities must stand at the same places. So must bytes that a plan leaves as they were:
outputs are NaN before it runs, what lies between their elements as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cudnn_bindgen.codegen.model.data_types import DATA_TYPES
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.frontend.planning.torch_types import Tensor, Torch, element_type
from cudnn_bindgen.frontend.planning.wanted import Wanted

# Unit roundoffs.
_ROUNDOFF = {name: 2.0**-row.digits for name, row in DATA_TYPES.items() if row.digits}
_TF32 = 2.0**-11
_ROUNDINGS = 4
_MOST = 0.5
# Of the largest difference, as against the norm's.
_OUTLIERS = 4

# The magnitudes of FP4_E2M1, by the three bits below the sign.
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

# Elements that are compared at once: doubles of them take 32 MB.
_CHUNK = 1 << 22


def find_tolerances(graph: Graph) -> dict[int, float]:
    """Return what is tolerated of each output, by uid; 0 for types without rounding."""
    types = {tensor.uid: tensor.data_type for tensor in graph.tensors}
    inner = [tensor.data_type for tensor in graph.tensors if tensor.is_virtual]
    inner.append(str(graph.context.get("compute_data_type")))
    for node in graph.nodes:
        if node.tag.startswith("SDPA"):
            inner += [types[uid] for _, uid in node.inputs]
    doubles = {types[uid] for node in graph.nodes for _, uid in node.ports} <= {"DOUBLE"}
    floor = 0.0 if doubles else _TF32
    coarsest = max([floor, *(_ROUNDOFF.get(name, 0.0) for name in inner)])
    return {
        uid: min(_MOST, _ROUNDINGS * max(coarsest, _ROUNDOFF[types[uid]]))
        if types[uid] in _ROUNDOFF
        else 0.0
        for node in graph.nodes
        for _, uid in node.outputs
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """How an output differs from the first candidate's.

    `error` is in parts of what is tolerated, so that up to 1 they agree; `problem` says what is no
    matter of size.
    """

    error: float
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether rounding explains it."""
        return not self.problem and self.error <= 1


def compare(
    torch: Torch, item: Wanted, tolerance: float, first: Tensor, found: Tensor
) -> Difference:
    """Compare two outputs, as all of their bytes."""
    if not tolerance or item.data_type not in _ROUNDOFF:
        same = bool(torch.equal(first, found))
        return Difference(0.0, "" if same else f"other values of {item.data_type}")
    # Sums of squares and largest values: of the difference, and of what it is compared with.
    squares, largest = [0.0, 0.0], [0.0, 0.0]
    for one, other in _chunks(torch, item, first, found):
        for name in ("isnan", "isposinf", "isneginf"):
            if not torch.equal(getattr(torch, name)(one), getattr(torch, name)(other)):
                return Difference(0.0, "NaN or infinities, or unwritten bytes, at other places")
        finite = torch.isfinite(one)
        for index, value in enumerate((one - other, one)):
            kept = torch.where(finite, value, 0.0)
            squares[index] += float(kept.square().sum())
            largest[index] = max(largest[index], float(kept.abs().max()))
    norms = _ratio(squares[0] ** 0.5, squares[1] ** 0.5)
    return Difference(max(norms, _ratio(*largest) / _OUTLIERS) / tolerance)


def has_values(torch: Torch, item: Wanted, found: Tensor) -> bool:
    """Tell whether an output has a finite element, or none at all: something to compare."""
    if item.data_type not in _ROUNDOFF or 0 in item.dim:
        return True
    return any(bool(torch.isfinite(one).any()) for one, _ in _chunks(torch, item, found, found))


def _ratio(difference: float, size: float) -> float:
    if not difference:
        return 0.0
    return difference / size if size else float("inf")


def _chunks(torch: Torch, item: Wanted, *outputs: Tensor) -> Iterator[list[Any]]:
    """Yield the elements as doubles, what lies between them included, a part at a time."""
    dtype = element_type(torch, item.data_type)
    if dtype is None:
        typed = list(outputs)
    else:
        typed = [output.view(dtype) for output in outputs]
        if dtype.is_complex:
            typed = [torch.view_as_real(output).reshape(-1) for output in typed]
    for start in range(0, typed[0].numel(), _CHUNK):
        yield [_doubles(torch, item, output[start : start + _CHUNK]) for output in typed]


def _doubles(torch: Torch, item: Wanted, values: Tensor) -> Tensor:
    if item.data_type == "FP4_E2M1":  # two in a byte
        table = torch.tensor([*_FP4, *(-value for value in _FP4)], dtype=torch.float64)
        codes = torch.stack((values & 15, values >> 4), -1).reshape(-1)
        return table.to(values.device)[codes.long()]
    if item.data_type == "FP8_E8M0":  # which some releases of PyTorch have as bytes
        codes = values.view(torch.uint8).double()
        return torch.where(codes == 255, float("nan"), torch.exp2(codes - 127))
    return values.double()

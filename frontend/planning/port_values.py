"""Values that are valid at a port: lengths, offsets, page tables, factors, data."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.frontend.planning.torch_types import Tensor, Torch, element_type
from cudnn_bindgen.frontend.planning.wanted import RAGGED, Wanted, token_axis

_ROWS_OF_KV = {"k", "v", "dk", "dv"}

# Ports whose integers count or name something, with no rule here: made up ones could be addresses
# beyond a tensor's end.
_DATA = re.compile(r"in_\d+|\d+|[abcxyvw]|dy|token|weight|bias")

# Exponents of FP8_E8M0: 2^-7 to 1.
_E8M0 = (120, 128)


class Values:
    """The values of one graph's operands, which depend on each other: by port, the first at each.

    `wanted` are all operands. Flat values come out, as many as are asked for, in a type that
    converts to the operand's.
    """

    def __init__(self, torch: Torch, wanted: Sequence[Wanted], generator: Any, device: Any) -> None:
        self.torch = torch
        self.generator = generator
        self.device = device
        self.at: dict[str, Wanted] = {}
        for item in wanted:
            self.at.setdefault(item.port, item)
        self.lengths = {side: self._lengths(side) for side in ("q", "kv")}

    def elements(self, item: Wanted, count: int) -> Tensor:
        """Return `count` elements for a tensor whose type PyTorch has."""
        torch, port, dtype = self.torch, item.port, element_type(self.torch, item.data_type)
        for pattern, rule in _RULES:
            if pattern.fullmatch(port):
                return rule(self, item, count)
        if item.data_type == "FP8_E8M0":
            return self._positive(item, count)
        if dtype == torch.bool:
            return self._integers(count, 0, 2)
        if dtype.is_complex:
            return torch.randn(count, generator=self.generator, device=self.device, dtype=dtype)
        if dtype.is_floating_point:
            return torch.randn(count, generator=self.generator, device=self.device)
        if not _DATA.fullmatch(port):
            raise self._no_rule(item)
        return self._integers(count, 0 if dtype == torch.uint8 else -4, 5)

    def packed(self, item: Wanted, size: int) -> Tensor:
        """Return bytes for a type that PyTorch lacks, or packs: FP4 and INT4 have no NaN."""
        bits = BITS[item.data_type]
        if item.data_type == "FP8_E8M0":
            low, high = _E8M0
        elif bits < 8:
            low, high = 0, 256
        elif item.data_type.startswith(("INT8", "UINT8")):
            low, high = 0, 4
        else:
            raise self._no_rule(item)
        return self._integers(size, low, high).to(self.torch.uint8)

    def scalar(self, item: Wanted) -> Tensor:
        """Return a scalar, on the CPU."""
        dtype = element_type(self.torch, item.data_type)
        if dtype is None:
            raise self._no_rule(item)
        value: float = _SCALARS.get(item.port, 0.0)
        if not value:
            drawn = self.torch.rand((), generator=self.generator, device=self.device).item()
            value = drawn + 0.5 if dtype.is_floating_point else 2
        return self.torch.full(item.dim or (1,), value, dtype=dtype)

    def _integers(self, count: int, low: int, high: int) -> Tensor:
        return self.torch.randint(low, high, (count,), generator=self.generator, device=self.device)

    def _positive(self, item: Wanted, count: int) -> Tensor:
        if item.data_type == "FP8_E8M0":
            dtype = element_type(self.torch, item.data_type)
            return self._integers(count, *_E8M0).to(self.torch.uint8).view(dtype)
        return self.torch.rand(count, generator=self.generator, device=self.device) + 0.5

    def _statistics(self, item: Wanted, count: int) -> Tensor:
        # A log-sum-exp over some hundred scores; far below it, exp(score - Stats) overflows.
        drawn = self.torch.randn(count, generator=self.generator, device=self.device)
        return drawn * 0.5 + 6

    def _numbers(self, item: Wanted, count: int) -> Tensor:
        return self._integers(count, 0, 1 << 20)

    def _bits(self, item: Wanted, count: int) -> Tensor:
        return self._integers(count, 0, 2)

    def _ones(self, item: Wanted, count: int) -> Tensor:
        # All blocks of attention: rows without any have no result to compare.
        return self.torch.full((count,), 0xFF)

    def _sequence_lengths(self, item: Wanted, count: int) -> Tensor:
        return self._spread(item, count, self._side(item, item.port))

    def _cumulated_lengths(self, item: Wanted, count: int) -> Tensor:
        return self._spread(item, count, self._starts(self._side(item, item.port)))

    def _ragged_offsets(self, item: Wanted, count: int) -> Tensor:
        owner = self.at.get(item.port.removesuffix(RAGGED))
        if owner is None or len(owner.dim) != 4:
            raise self._no_rule(item)
        side = "kv" if owner.port in _ROWS_OF_KV else "q"
        row = owner.stride[token_axis(owner)]
        starts = self._starts(self._side(item, side))
        return self._spread(item, count, [start * row // item.offset_unit for start in starts])

    def _pages(self, item: Wanted, count: int) -> Tensor:
        pool = self.at.get(item.port[-1])
        if pool is None:
            raise self._no_rule(item)
        return self._integers(count, 0, pool.dim[0])

    def _first_tokens(self, item: Wanted, count: int) -> Tensor:
        """Return where each expert's tokens begin: in order, the first at 0."""
        tokens = math.prod(self._tokens(item).dim[:-1])
        drawn = self._integers(count, 0, tokens + 1).sort().values
        drawn[:1] = 0
        return drawn

    def _token_index(self, item: Wanted, count: int) -> Tensor:
        return self._integers(count, 0, math.prod(self._tokens(item).dim[:-1]))

    def _tokens(self, item: Wanted) -> Wanted:
        if "token" not in self.at:
            raise self._no_rule(item)
        return self.at["token"]

    def _spread(self, item: Wanted, count: int, values: Sequence[int]) -> Tensor:
        """Return `values` where the elements of `item` are, which has as many."""
        if math.prod(item.dim) != len(values):
            raise PlanError(
                f"{item.name}: expected {len(values)} elements, got {math.prod(item.dim)}"
            )
        flat = self.torch.zeros(count, dtype=self.torch.int64)
        flat.as_strided(item.dim, item.stride).copy_(
            self.torch.tensor(values, dtype=self.torch.int64).reshape(item.dim)
        )
        return flat

    def _side(self, item: Wanted, port: str) -> list[int]:
        lengths = self.lengths["kv" if port.endswith("kv") else "q"]
        if not lengths:
            raise self._no_rule(item)
        return lengths

    @staticmethod
    def _starts(lengths: Sequence[int]) -> list[int]:
        return [sum(lengths[:index]) for index in range(len(lengths) + 1)]

    def _lengths(self, side: str) -> list[int]:
        """Return the length of each sequence in a batch; none for a graph that is no attention."""
        tensor, queries = self.at.get(side[0]), self.at.get("q")
        if tensor is None or queries is None or {len(tensor.dim), len(queries.dim)} != {4}:
            return []
        batch, longest = queries.dim[0], tensor.dim[token_axis(tensor)]
        pages = self.at.get(f"page_table_{side[0]}")
        if pages is not None:
            longest *= pages.dim[2]
        if not {f"seq_len_{side}", f"cu_seq_len_{side}"} & {*self.at}:
            return [longest] * batch
        drawn: list[int] = self._integers(batch, 1, max(longest, 1) + 1).tolist()
        return drawn

    @staticmethod
    def _no_rule(item: Wanted) -> PlanError:
        return PlanError(
            f"{item.name}: no rule for valid values of {item.data_type} at its port",
            hint="plan without --autotune, which executes the graph",
        )


# Values of scalars that are no mere factors.
_SCALARS = {"attn_scale": 0.125, "epsilon": 1e-3, "momentum": 0.125}

_Rule: TypeAlias = Callable[[Values, Wanted, int], Tensor]

_RULES: tuple[tuple[re.Pattern[str], _Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"seq_len_(q|kv)", Values._sequence_lengths),
        (r"cu_seq_len_(q|kv)", Values._cumulated_lengths),
        (r"\w+_ragged_offset", Values._ragged_offsets),
        (r"page_table_[kv]", Values._pages),
        (r"seed|offset", Values._numbers),
        (r"firsttokenoffset", Values._first_tokens),
        (r"tokenindex", Values._token_index),
        (r"stats", Values._statistics),
        (r"block_mask", Values._ones),
        (r"dropout_mask", Values._bits),
        (r"(de)?scale(_\w+)?|dropout_scale(_inv)?|attn_scale", Values._positive),
        (r"inv_variance|prev_running_var", Values._positive),
    )
)

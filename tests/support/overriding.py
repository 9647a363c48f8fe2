"""A graph whose calls override shapes, on the stand-in: two outputs, a scalar, more workspace.

``c = a @ b`` and ``d`` of ``c``, as far as names go; the stand-in computes its sum, whose length is
the rows `m`, and in which every dim and stride shows.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from support.documents import document, node, plan_document, scalar, tensor, to_ubjson
from support.standin import Declared, Overridable, Standin, expected_outputs, plan_text, rounded
from support.standin.overrides import Override

A, B, C, D, ALPHA = 1, 2, 3, 4, 5
VERSION = 92700
ROWS = 12
ALIGNMENT = 32
"""Bytes that the plan counts on in addresses and strides of `a`."""

PRODUCT = Overridable(
    {
        A: Declared([1, ROWS, 4], [48, 4, 1], fixed=[2], steady=[1]),
        B: Declared([1, 4, 8], [32, 8, 1]),
        C: Declared([1, ROWS, 8], [96, 8, 1]),
        D: Declared([ROWS, 2], [2, 1]),
    },
    sized_by=(A, 1),
    growth=16,
    workspace=100,
)
NAMES = {"a": A, "b": B, "c": C, "d": D}
SYMBOLS = ("M=a.m,c.m,d.0", "K:declared=b.k", "N=b.n,c.n")


def product_plan(
    is_enabled: bool = True,
    launch: str = "plain",
    version: int = VERSION,
    growth: int = PRODUCT.growth,
    frontend_workspace: int = 0,
) -> bytes:
    """Return a plan file of the graph."""
    tensors = [
        tensor(uid, name, dim=declared.dim, stride=declared.stride, data_type="DOUBLE")
        for (name, uid), declared in zip(NAMES.items(), PRODUCT.declared.values(), strict=True)
    ]
    raw = document(
        [
            node("MATMUL", {"A": A, "B": B}, {"C": C}),
            node("NEW", {"X": C, "ALPHA": ALPHA}, {"Y": D}),
        ],
        [*tensors, scalar(ALPHA, "alpha")],
    )
    raw["context"]["is_override_shape_enabled"] = is_enabled
    text = plan_text(
        inputs=[A, B],
        outputs=[C, D],
        scalars=[(ALPHA, "float")],
        count=ROWS,
        workspace=PRODUCT.workspace,
        overridable=replace(PRODUCT, growth=growth) if is_enabled else None,
        version=version,
        launch=launch,
    )
    return to_ubjson(
        plan_document(
            raw,
            cudnn_backend_data=text,
            aligned_operands={str(A): [ALIGNMENT, 8]},
            fe_workspace_size=frontend_workspace,
        )
    )


GRAPHS = {
    "product": product_plan(),
    "product_bare": product_plan(),
    "product_fixed": product_plan(is_enabled=False),
}
"""The graph file of each module with overrides that the tests build."""

OPTIONS = {
    "product": OverrideOptions(SYMBOLS),
    "product_bare": OverrideOptions(is_unbounded=True),
}


def with_m(m: int) -> dict[int, Override]:
    """Return what ``set(M=m)`` must make of the operands."""
    return {A: ([1, m, 4], [4 * m, 4, 1]), C: ([1, m, 8], [8 * m, 8, 1]), D: ([m, 2], [2, 1])}


ROOM = ROWS + 8
"""Doubles of each buffer: more than any call reads or writes."""
BLOCK = 4096


class Arrays:
    """Buffers of the graph's operands and workspace, which lie elsewhere for each call."""

    def __init__(self, standin: Standin, seed: object = 0) -> None:
        self.standin = standin
        self.random = random.Random(f"arrays {seed}")
        self._blocks = [standin.alloc(BLOCK) for _ in range(8)]
        self.alpha = 0.5
        self.move()

    def move(self) -> None:
        """Choose other addresses, which hold other numbers; the outputs hold zeros."""
        *blocks, last = self._blocks
        self.random.shuffle(blocks)
        steps = BLOCK // 2 // ALIGNMENT
        self.addresses = {
            uid: block + ALIGNMENT * self.random.randrange(steps)
            for uid, block in zip(NAMES.values(), blocks, strict=False)
        }
        # Never where an operand lay before: callers choose it before they move.
        self.workspace = last + 256 * self.random.randrange(BLOCK // 2 // 256)
        self.values = {uid: [self.random.uniform(-4, 4) for _ in range(ROOM)] for uid in (A, B)}
        self.clear()

    def clear(self) -> None:
        """Write the numbers again, and zeros to the outputs."""
        for uid in NAMES.values():
            self._buffer(uid)[:] = self.values.get(uid, [0.0] * ROOM)

    @property
    def arguments(self) -> list[Any]:
        return [*self.addresses.values(), self.alpha]

    def call(
        self,
        module: ModuleType,
        overrides: Any = None,
        expected: Mapping[int, Override] | None = None,
        **options: Any,
    ) -> None:
        """Call once at other addresses and check what it wrote."""
        self.move()
        module.execute(*self.arguments, overrides=overrides, **options)
        self.check(expected or {})

    def check(self, overrides: Mapping[int, Override]) -> None:
        """Compare the outputs with what one call with these overrides leaves, to the last bit."""
        count, digest = PRODUCT.count_of(overrides), PRODUCT.digest_of(overrides)
        outputs = expected_outputs(
            [self.values[uid][:count] for uid in (A, B)],
            [rounded(self.alpha, "float")],
            [],
            2,
            digest=digest,
        )
        for uid, output in zip((C, D), outputs, strict=True):
            assert list(self._buffer(uid)) == output + [0.0] * (ROOM - count), f"uid {uid}"

    def is_untouched(self) -> bool:
        """Whether the outputs still hold zeros."""
        return not any(any(self._buffer(uid)) for uid in (C, D))

    def close(self) -> None:
        for block in self._blocks:
            self.standin.free(block)

    def _buffer(self, uid: int) -> Any:
        return (ctypes.c_double * ROOM).from_address(self.addresses[uid])

"""The benchmarks' floor for calls with overrides, on the stand-in: the calls it makes are right."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ubjson
from support.standin import Declared, Overridable, Standin, expected_outputs, plan_text

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from floor import Floor, compile_floor

VERSION, COUNT = 92700, 32
OVERRIDABLE = Overridable(
    {1: Declared([1, COUNT], [COUNT, 1]), 2: Declared([1, 1, COUNT], [COUNT, COUNT, 1])},
    sized_by=(2, 2),
    growth=8,
)
SETS = [{1: ([1, m], [m, 1]), 2: ([1, 1, m], [m + 1, m, 1])} for m in (3, 20, 7)]


class Array:
    """Doubles at an address, as a tensor would give it."""

    def __init__(self, value: float) -> None:
        self.items = (ctypes.c_double * COUNT)(*[value] * COUNT)

    def data_ptr(self) -> int:
        return ctypes.addressof(self.items)


@pytest.fixture
def floor(standin: Standin, tmp_path: Path) -> Any:
    standin.set_version(VERSION)
    text = plan_text(inputs=[1], outputs=[2], count=COUNT, overridable=OVERRIDABLE, version=VERSION)
    document = {
        "cudnn_backend_data": text,
        "variant_pack_uids": [2, 1],
        "variant_pack_replacements": [],
        "pass_by_values": {},
        "workspace_modifications": {},
        "fe_workspace_size": 0,
    }
    operands = [SimpleNamespace(uid=1, role="input"), SimpleNamespace(uid=2, role="output")]
    tensors = {1: Array(1.5), 2: Array(0.0)}
    workspace, stream = standin.alloc(4096), standin.stream()
    plan = ubjson.dumpb(document)
    made = Floor(compile_floor(tmp_path), plan, operands, tensors, workspace, stream)
    made.output = tensors[2].items
    yield made
    made.close()
    standin.cudnn.cudnnDestroy(made.handle)
    standin.free(workspace)
    standin.destroy_stream(stream)


def test_overridden_calls(standin: Standin, floor: Any) -> None:
    samples = floor.time_overridden(5, SETS)
    assert len(samples) == 5
    assert all(sample > 0 for sample in samples)
    logged = [SETS[call % 3] for call in range(5)]
    expected = [
        f"override {uid} {','.join(map(str, dim))} {','.join(map(str, stride))}"
        for overrides in logged
        for uid, (dim, stride) in overrides.items()
    ]
    assert standin.log("override") == expected
    ctypes.memset(floor.output, 0, ctypes.sizeof(floor.output))
    floor.time_overridden(1, SETS[1:])
    [values] = expected_outputs([[1.5] * 20], [], [], 1, digest=OVERRIDABLE.digest_of(SETS[1]))
    assert list(floor.output) == values + [0.0] * (COUNT - 20)


def test_overridden_workspace(floor: Any) -> None:
    for overrides in SETS:
        assert floor.overridden_workspace(overrides) == OVERRIDABLE.workspace_of(overrides)

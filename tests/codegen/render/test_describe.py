"""What ``help(module.run)`` says of each argument."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.documents import (
    READABLE,
    Document,
    bind_document,
    document,
    file_id,
    node,
    scalar,
    tensor,
    tensors,
)

from codegen.render.test_render_hostile import HOSTILE
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.model.ports import PORTS
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.describe import describe_run


def described(raw: Document) -> dict[str, str]:
    """Each argument's description, unwrapped."""
    entries: list[str] = []
    for line in describe_run(bind_document(raw)):
        if line.startswith("    "):
            entries[-1] += line[3:]
        else:
            entries.append(line)
    return dict(entry.partition(": ")[::2] for entry in entries)


def test_every_argument_is_described_in_the_order_of_the_signature() -> None:
    raw = document(
        [node("LAYER_NORM", {"X": 1, "SCALE": 2, "EPSILON": 3, "FACTOR": 4}, {"Y": 5, "MEAN": 6})],
        [
            tensor(1, "Hidden", dim=[2, 3, 8], stride=[24, 8, 1], data_type="HALF", alignment=32),
            tensor(2, "norm/weight"),
            scalar(3),
            scalar(4, "factor", {"index": 3, "value": "3E000000"}),
            *tensors(5, 6),
        ],
    )
    assert described(raw) == {
        "hidden": "input, HALF [2, 3, 8], strides [24, 8, 1], aligned to 32 bytes",
        "norm_weight": 'input \\"norm/weight\\", BFLOAT16 [2, 4], strides [4, 1], '
        "aligned to 16 bytes",
        "y": "output, BFLOAT16 [2, 4], strides [4, 1], aligned to 16 bytes",
        "mean": "output, BFLOAT16 [2, 4], strides [4, 1], aligned to 16 bytes",
        "epsilon": "scalar, FLOAT, required; added to the variance, under the square root",
        "factor": "scalar, FLOAT, default 0.125",
        "workspace": "workspace_size() bytes or more; None: a block of the runtime's own",
        "stream": "a cudaStream_t or a framework's stream; None: the framework's current one",
        "check": "False: look at nothing but null addresses and alignment",
        "Returns y, mean": "what was passed, or made if left out.",
    }
    order = ["hidden", "norm_weight", "y", "mean", "epsilon", "factor", "workspace", "stream"]
    assert list(described(raw))[:8] == order


def test_overrides_are_described_where_there_are_some() -> None:
    raw = document([node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2})], tensors(1, 2))
    assert "overrides" not in described(raw)
    raw["context"]["is_override_shape_enabled"] = True
    assert described(raw)["overrides"].startswith("Overrides whose dims and strides")


@pytest.mark.parametrize(
    ("tag", "port", "meaning"),
    [
        ("SDPA", "Attn_scale", "multiplies Q K^T, typically 1 / sqrt(d)"),
        ("SDPA_BWD", "Dropout_scale", "multiplies what dropout keeps"),
        ("SDPA_FP8_FWD", "Descale_Q", "multiplies what is stored as FP8 before it is used"),
        ("SDPA_FP8_BWD", "Scale_dP", "multiplies results before they are stored as FP8"),
        ("SDPA", "Seed", "seed of the random numbers"),
        ("BATCHNORM", "MOMENTUM", "next running statistics = (1 - it) * previous + it * current"),
        ("BN_FINALIZE", "ACCUM_COUNT", ""),
    ],
)
def test_what_a_value_does(tag: str, port: str, meaning: str) -> None:
    table = PORTS[tag]
    assert port in table.inputs + table.optional
    for one in (scalar(2, "value"), tensor(2, "value", dim=[1, 1], stride=[1, 1])):
        raw = document([node(tag, {"X": 1, port: 2}, {"Y": 3})], [*tensors(1, 3), one])
        text = described(raw)["value"]
        assert (f"; {meaning}" in text) if meaning else (";" not in text)


def test_block_scales_are_tensors_like_any_other() -> None:
    raw = document(
        [node("SDPA_MXFP8_FWD", {"Q": 1, "Descale_Q": 2}, {"O": 3})], [*tensors(1, 2, 3)]
    )
    assert ";" not in described(raw)["descale_q"]


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_lines_fit_into_a_docstring(path: Path) -> None:
    for line in describe_run(bind(read_graph(path.read_bytes()))):
        assert line == line.rstrip() != ""
        assert len(line) <= 96


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_mean_themselves_between_quotes(text: str) -> None:
    raw = document(
        [node("NEW", {"P": 1, "S": 2}, {"Y": 3})],
        [tensor(1, text), scalar(2, text), *tensors(3)],
    )
    lines = describe_run(bind_document(raw))
    shown = ast.literal_eval('"""' + "\n".join(lines) + '"""')
    assert shown.isascii()
    assert len(shown.splitlines()) == len(lines)
    assert all(len(line) <= 96 for line in lines)

"""What a module says of its arguments beside the table of them."""

from __future__ import annotations

import pytest
from support.documents import (
    READABLE,
    Document,
    bind_document,
    document,
    node,
    scalar,
    tensor,
    tensors,
)

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.model.ports import PORTS
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.describe import describe_arguments


def described(raw: Document) -> str:
    return "\n".join(describe_arguments(bind_document(raw)))


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
        text = described(raw)
        assert text.startswith(f"value: {meaning}") if meaning else not text


def test_block_scales_are_tensors_like_any_other() -> None:
    raw = document(
        [node("SDPA_MXFP8_FWD", {"Q": 1, "Descale_Q": 2}, {"O": 3})], [*tensors(1, 2, 3)]
    )
    assert not described(raw)


def test_a_layout_that_is_not_as_declared_is_explained_once() -> None:
    path = next(path for path in READABLE if path.name == "sdpa_thd.plan")
    lines = [*describe_arguments(bind(read_graph(path.read_bytes())))]
    assert len([line for line in lines if line.startswith("Ragged: any number of tokens")]) == 1

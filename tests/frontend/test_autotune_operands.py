"""Operands for a graph: values that are valid at their ports, in every type; no GPU needed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support.documents import DATA, PLANS, STRUCTURES, document, file_id, node, tensor, to_json  # noqa: E402

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError  # noqa: E402
from cudnn_bindgen.codegen.model.data_types import BITS  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.frontend.planning.operands import bytes_needed, make_operands  # noqa: E402
from cudnn_bindgen.frontend.planning.torch_types import storage  # noqa: E402
from cudnn_bindgen.frontend.planning.wanted import Wanted, find_wanted  # noqa: E402

LARGEST = 1 << 28


def make(wanted: Any, seed: int = 0) -> dict[int, torch.Tensor]:
    return make_operands(torch, wanted, torch.Generator().manual_seed(seed), "cpu")


def of(graph: Any) -> tuple[dict[str, Wanted], dict[str, torch.Tensor]]:
    """Return what is wanted and what is made, by port."""
    wanted = find_wanted(graph)
    made = make(wanted)
    return {w.port: w for w in wanted}, {w.port: made[w.uid] for w in wanted}


def one(port: str, data_type: str, dim: tuple[int, ...] = (8, 4), **fields: Any) -> Wanted:
    stride = fields.pop("stride", (*dim[1:], 1) if len(dim) == 2 else (1,) * len(dim))
    return Wanted(1, port, port, fields.pop("role", "input"), data_type, dim, stride, **fields)


@pytest.mark.parametrize(
    "path", [*PLANS, *STRUCTURES, *sorted((DATA / "frontends/1.32.0").glob("*.json"))], ids=file_id
)
def test_operands_of_real_graphs(path: Path) -> None:
    try:
        wanted = find_wanted(read_graph(path.read_bytes()))
    except GraphFormatError:
        pytest.skip("no binding can be made of it")
    if bytes_needed(torch, wanted) > LARGEST:
        pytest.skip("too large")
    made, again, other = make(wanted), make(wanted), make(wanted, seed=1)
    assert [*made] == [item.uid for item in wanted]
    differs = False
    for item in wanted:
        bits = storage(torch, made[item.uid])
        assert torch.equal(bits, storage(torch, again[item.uid]))
        differs |= not torch.equal(bits, storage(torch, other[item.uid]))
        if item.role == "output":
            assert bool((bits == 0xFF).all())
        elif made[item.uid].is_floating_point():
            assert bool(torch.isfinite(made[item.uid].float()).all())
    total = sum(made[w.uid].untyped_storage().nbytes() for w in wanted if w.role != "scalar")
    assert bytes_needed(torch, wanted) == total
    assert differs or not total


def test_ragged_sequences_follow_each_other() -> None:
    wanted, made = of(read_graph((DATA / "plans/cudnn-9.19-sm90/sdpa_thd.plan").read_bytes()))
    for side, owners in (("q", ("q", "o", "stats")), ("kv", ("k", "v"))):
        lengths = made[f"seq_len_{side}"].flatten().tolist()
        longest = max(wanted[owners[0]].dim[2:]) if side == "q" else 1024
        assert min(lengths) >= 1 and max(lengths) <= longest
        assert len({*lengths}) > 1
        for owner in owners:
            offsets = made[f"{owner}_ragged_offset"].flatten().tolist()
            steps = [after - before for before, after in pairwise(offsets)]
            row = steps[0] // lengths[0]
            assert offsets[0] == 0 and steps == [length * row for length in lengths]
            # The last token ends inside of the memory that there is.
            assert offsets[-1] <= storage(torch, made[owner]).numel() // made[owner].itemsize


def test_offsets_in_units() -> None:
    path = DATA / "frontends/1.32.0/sdpa_ragged.json"
    raw = path.read_bytes()
    plain, made = of(read_graph(raw))
    in_rows = {item.uid for item in plain.values() if "ragged" in item.port}
    assert in_rows
    units = [
        Wanted(**{name: getattr(item, name) for name in Wanted.__slots__} | {"offset_unit": 8})
        if item.uid in in_rows
        else item
        for item in plain.values()
    ]
    for uid, values in make(units).items():
        if uid in in_rows:
            before = next(made[port] for port, item in plain.items() if item.uid == uid)
            assert torch.equal(values * 8, before)


def paged_attention() -> dict[str, Wanted]:
    """Return what attention over pages takes, by port."""

    def attention(uid: int, port: str, dim: tuple[int, ...], data_type: str) -> Wanted:
        strides, size = [], 1
        for extent in reversed(dim):
            strides.insert(0, size)
            size *= extent
        return Wanted(uid, port, port, "input", data_type, dim, tuple(strides))

    items = [
        attention(1, "q", (3, 2, 16, 8), "HALF"),
        attention(2, "k", (12, 2, 4, 8), "HALF"),
        attention(3, "v", (12, 2, 4, 8), "HALF"),
        attention(4, "seq_len_q", (3, 1, 1, 1), "INT32"),
        attention(5, "seq_len_kv", (3, 1, 1, 1), "INT32"),
        attention(6, "page_table_k", (3, 1, 8, 1), "INT32"),
        attention(7, "cu_seq_len_q", (4, 1, 1, 1), "INT32"),
    ]
    return {item.port: item for item in items}


def test_pages_are_ones_that_there_are() -> None:
    wanted = paged_attention()
    made = make(list(wanted.values()))
    table = made[wanted["page_table_k"].uid]
    assert int(table.min()) >= 0 and int(table.max()) < wanted["k"].dim[0]
    lengths = made[wanted["seq_len_kv"].uid]
    pages, page = wanted["page_table_k"].dim[2], wanted["k"].dim[2]
    assert page < int(lengths.max()) <= pages * page  # sequences take several pages


def test_cumulated_lengths() -> None:
    wanted = paged_attention()
    made = make(list(wanted.values()))
    lengths = made[4].flatten().tolist()
    assert made[7].flatten().tolist() == [sum(lengths[:n]) for n in range(4)]
    short = [*list(wanted.values())[:6], one("cu_seq_len_q", "INT32", (3, 1, 1, 1))]
    with pytest.raises(PlanError, match="cu_seq_len_q: expected 4 elements, got 3"):
        make(short)


def test_tokens_of_experts() -> None:
    token = one("token", "BFLOAT16", (20, 4))
    first = Wanted(2, "first", "firsttokenoffset", "input", "INT32", (5,), (1,))
    index = Wanted(3, "index", "tokenindex", "input", "INT32", (20,), (1,))
    made = make([token, first, index])
    offsets = made[2].tolist()
    assert offsets[0] == 0 and offsets == sorted(offsets) and offsets[-1] <= 20
    assert int(made[3].min()) >= 0 and int(made[3].max()) < 20
    with pytest.raises(PlanError, match="index: no rule"):
        make([index])


@pytest.mark.parametrize("data_type", BITS)
def test_every_type_has_data(data_type: str) -> None:
    item = one("x", data_type)
    if data_type == "FP8_E5M3":
        with pytest.raises(PlanError, match="x: no rule for valid values of FP8_E5M3"):
            make([item])
    else:
        made = storage(torch, make([item])[1])
        assert made.numel() == bytes_needed(torch, [item]) >= 32 * BITS[data_type] // 8
        assert len(made.unique()) > 1
    poisoned = storage(torch, make([one("y", data_type, role="output")])[1])
    assert bool((poisoned == 0xFF).all()) and poisoned.numel() >= 32 * BITS[data_type] // 8


def test_an_odd_number_of_halves_of_bytes() -> None:
    assert make([one("x", "FP4_E2M1", (3, 3))])[1].numel() == 5
    assert make([one("x", "INT4", (3, 3), role="output")])[1].numel() == 5


@pytest.mark.parametrize(
    "port", ["descale_q", "scale_o", "scale", "inv_variance", "prev_running_var", "dropout_scale"]
)
@pytest.mark.parametrize("data_type", ["FLOAT", "FP8_E4M3", "FP8_E8M0"])
def test_factors_are_positive(port: str, data_type: str) -> None:
    values = make([one(port, data_type)])[1].float()
    assert bool((values > 0).all()) and bool((values <= 1.5).all())


def test_scalars_lie_on_the_host() -> None:
    for data_type, dtype in (("FLOAT", torch.float32), ("HALF", torch.float16)):
        value = make([one("in_1", data_type, (1, 1), role="scalar")])[1]
        assert value.dtype == dtype and 0.5 <= value.item() <= 1.5
    assert make([one("in_1", "INT32", (1, 1), role="scalar")])[1].item() == 2
    assert make([one("attn_scale", "FLOAT", (1, 1), role="scalar")])[1].item() == 0.125
    assert make([one("epsilon", "FLOAT", (), role="scalar")])[1].item() == pytest.approx(1e-3)
    assert bytes_needed(torch, [one("in_1", "FLOAT", role="scalar")]) == 0


def test_what_could_lie_anywhere_is_refused() -> None:
    for port, data_type in (("index_of_a_later_tag", "INT32"), ("tokenks", "INT64")):
        with pytest.raises(PlanError, match=f"{port}: no rule for valid values of {data_type}"):
            make([one(port, data_type)])
    for port in ("seq_len_q", "q_ragged_offset", "page_table_k", "firsttokenoffset"):
        with pytest.raises(PlanError, match="no rule"):
            make([one(port, "INT32")])
    with pytest.raises(PlanError, match="x: expected no negative stride, got \\[-4, 1\\]"):
        make([one("x", "HALF", stride=(-4, 1))])


def test_an_output_that_is_read_first_has_values() -> None:
    raw = document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 2}, mode="ADD")],
        [tensor(1, "a"), tensor(2, "y")],
    )
    wanted, made = of(read_graph(to_json(raw)))
    [target] = [item for item in wanted.values() if item.role == "output"]
    assert target.is_read
    assert bool(torch.isfinite(made[target.port]).all())
    raw["nodes"] = [
        node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2}, mode="RELU_FWD"),
        node("POINTWISE", {"IN_0": 2}, {"OUT_0": 3}, mode="RELU_FWD"),
    ]
    raw["tensors"].append(tensor(3, "z"))
    assert not any(item.is_read for item in find_wanted(read_graph(to_json(raw))))

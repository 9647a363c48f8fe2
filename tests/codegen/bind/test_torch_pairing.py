"""Which operand of a backward graph is which of the forward graph's, and whose gradient."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.documents import DATA, Document, bind_document, document, node, scalar, tensor

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.bind.torch_autograd import Arriving, BackwardCall, derive
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model import backward_tags
from cudnn_bindgen.codegen.model.ports import PORTS
from cudnn_bindgen.codegen.read.graph import read_graph

REMEDY = ": name tensors of both graphs alike (x and y, their gradients dx and dy)"


def graph(tag: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> Binding:
    """One node; each port has a tensor, given by its name or by its fields."""
    items, ports = [], []
    for group in (inputs, outputs):
        uids = {}
        for port, given in group.items():
            fields = {"name": given} if isinstance(given, str) else given
            uids[port] = len(items) + 1
            make = scalar if fields.get("is_pass_by_value") else tensor
            name = fields.get("name", "tensor_1")
            value = fields.get("pass_by_value")
            made = make(uids[port], name, value) if make is scalar else make(uids[port], name)
            items.append(made | fields)
        ports.append(uids)
    return bind_document(document([node(tag, *ports)], items))


def reads(call: BackwardCall) -> list[Any]:
    """What a backward module is called with: names, gradients as {name}, defaults."""
    return [
        read.forward or ({read.arriving.output} if read.arriving else read.default)
        for read in call.reads
    ]


def gradients(call: BackwardCall) -> list[str]:
    return [gradient.input for gradient in call.gradients]


def refusal(forward: Binding, *backwards: Binding) -> str:
    with pytest.raises(EmitError) as caught:
        derive(forward, [(f"b{index}", binding) for index, binding in enumerate(backwards)])
    return str(caught.value)


FORWARD = graph("F", {"A": "x", "B": "w"}, {"C": "y", "D": "aux"})


def test_names_pair_operands_of_tags_that_nobody_knows() -> None:
    backward = graph("B", {"1": "dy", "2": "aux", "3": "x", "4": "w"}, {"5": "dx", "6": "dw"})
    [found] = derive(FORWARD, [("b", backward)])
    assert reads(found) == [{"y"}, "aux", "x", "w"]
    assert gradients(found) == ["x", "w"]


@pytest.mark.parametrize(
    "pattern", ["d{}", "d_{}", "grad_{}", "{}_grad", "D{}", "Grad_{}", "{}_GRAD"]
)
def test_gradients_are_named_in_several_ways(pattern: str) -> None:
    backward = graph("B", {"1": pattern.format("y"), "2": "x"}, {"3": pattern.format("x")})
    [found] = derive(FORWARD, [("b", backward)])
    assert (reads(found), gradients(found)) == ([{"y"}, "x"], ["x"])


def test_names_that_are_words_of_python() -> None:
    forward = graph("F", {"A": "in"}, {"B": "is"})
    [found] = derive(forward, [("b", graph("B", {"1": "d_is", "2": "in"}, {"3": "din"}))])
    assert (reads(found), gradients(found)) == ([{"is_"}, "in_"], ["in_"])


def test_ports_pair_what_the_frontend_named() -> None:
    forward = graph("CONV_FPROP", {"X": {}, "W": "weight"}, {"Y": {}})
    dgrad = graph("CONV_DGRAD", {"DY": {}, "W": {}}, {"DX": {}})
    wgrad = graph("CONV_WGRAD", {"DY": "grad", "X": "image"}, {"DW": {}})
    found = derive(forward, [("d", dgrad), ("w", wgrad)])
    assert [reads(call) for call in found] == [[{"y"}, "weight"], [{"y"}, "x"]]
    assert [gradients(call) for call in found] == [["x"], ["weight"]]


def test_a_port_is_the_fallback_for_single_operands() -> None:
    """As in tests/data: the backward graph calls the statistics LSE."""
    backward = bind(read_graph((DATA / "structure-v2/sdpa_bwd.json").read_bytes()))
    fields = {"dim": [3, 8, 128, 64], "stride": [65536, 8192, 64, 1]}
    stats = {"dim": [3, 8, 128, 1], "stride": [1024, 128, 1, 1], "data_type": "FLOAT"}
    forward = graph(
        "SDPA",
        {port: {"name": port, **fields} for port in "QKV"},
        {"O": fields, "Stats": stats},
    )
    [found] = derive(forward, [("b", backward)])
    assert reads(found) == ["q", "k", "v", "o", {"o"}, "stats"]
    assert gradients(found) == ["q", "k", "v"]


@pytest.mark.parametrize(
    ("forward", "backward"),
    [("layernorm", "layernorm_backward"), ("sdpa_causal", "sdpa_backward")],
)
@pytest.mark.parametrize("version", ["1.23.0", "1.32.0"])
def test_real_pairs(version: str, forward: str, backward: str) -> None:
    folder = DATA / "frontends" / version
    pair = [bind(read_graph((folder / f"{n}.json").read_bytes())) for n in (forward, backward)]
    [found] = derive(pair[0], [("b", pair[1])])
    inputs = [argument.name for argument in pair[0].operands if argument.role == "input"]
    assert gradients(found) == inputs
    assert sum(read.arriving is not None for read in found.reads) == 1


def test_ports_of_pointwise_nodes_say_nothing() -> None:
    """IN_0 of the gradient is dy: taking it for IN_0 of the forward node would be wrong."""
    forward = graph("POINTWISE", {"IN_0": {}}, {"OUT_0": {}})
    backward = graph("POINTWISE", {"IN_0": {}, "IN_1": {}}, {"OUT_0": {}})
    message = refusal(forward, backward)
    unknown = "is no operand of the forward graph and the gradient of no output"
    assert message == (
        f"--backward b0: in_0: {unknown}; in_1: {unknown}; out_0: is the gradient of no input; "
        f"no input is the gradient of an output{REMEDY}"
    ).replace("; no input is the gradient of an output", "")


def test_a_port_that_several_nodes_have_says_nothing() -> None:
    raw = document(
        [
            node("RESHAPE", {"X": 1}, {"Y": 4}),
            node("CONV_FPROP", {"X": 4, "W": 2}, {"Y": 3}),
        ],
        [tensor(1, "a"), tensor(2), tensor(3), tensor(4, is_virtual=True)],
    )
    wgrad = graph("CONV_WGRAD", {"DY": {}, "X": {}}, {"DW": {}})
    assert "dy: is no operand" in refusal(bind_document(raw), wgrad)


def test_two_backward_nodes_say_nothing() -> None:
    forward = graph("CONV_FPROP", {"X": {}, "W": {}}, {"Y": {}})
    raw = document(
        [
            node("CONV_DGRAD", {"DY": 1, "W": 2}, {"DX": 3}),
            node("CONV_WGRAD", {"DY": 1, "X": 4}, {"DW": 5}),
        ],
        [tensor(uid) for uid in range(1, 6)],
    )
    assert "dy: is no operand" in refusal(forward, bind_document(raw))


def test_all_that_is_left_over_is_said_at_once() -> None:
    backward = graph("B", {"1": "dy", "2": "z", "3": "dw"}, {"4": "dx", "5": "dz"})
    assert refusal(FORWARD, backward) == (
        "--backward b0: z: is no operand of the forward graph and the gradient of no output; "
        "dw: is no operand of the forward graph and the gradient of no output; "
        f"dz: is the gradient of no input{REMEDY}"
    )


def test_what_fits_twice_is_refused() -> None:
    forward = graph("F", {"A": "x", "B": "d_y"}, {"C": "y"})
    backward = graph("B", {"1": "d_y", "2": "x"}, {"3": "dx"})
    assert refusal(forward, backward).startswith(
        "--backward b0: d_y: may be d_y or the gradient of y: "
    )


def test_two_modules_with_one_gradient() -> None:
    backward = graph("B", {"1": "dy"}, {"2": "dx"})
    assert refusal(FORWARD, backward, backward) == (
        "--backward: expected one gradient of x, got one of b0 and one of b1"
    )


def test_a_graph_that_takes_no_gradient() -> None:
    backward = graph("B", {"1": "x"}, {"2": "dx"})
    assert refusal(FORWARD, backward) == (
        f"--backward b0: no input is the gradient of an output{REMEDY}"
    )


OTHER = {
    "data type": ({"data_type": "HALF"}, "expected BFLOAT16 as {}, got HALF"),
    "elements": ({"dim": [2, 5], "stride": [5, 1]}, "expected 8 elements as {} has, got 10"),
    "layout": (
        {"dim": [4, 2], "stride": [2, 1]},
        "expected the layout of {}, dims (2, 4) with strides (4, 1), got (4, 2) with (2, 1)",
    ),
}


@pytest.mark.parametrize("wrong", ["dy", "x", "dx"])
@pytest.mark.parametrize("difference", OTHER)
def test_operands_that_are_not_alike(wrong: str, difference: str) -> None:
    fields, message = OTHER[difference]
    forward = graph("F", {"A": "x"}, {"C": "y"})

    def given(name: str) -> Document:
        return {"name": name} | (fields if name == wrong else {})

    backward = graph("B", {"1": given("dy"), "2": given("x")}, {"3": given("dx")})
    if wrong == "x" and difference == "layout":  # the same memory: run takes it
        derive(forward, [("b", backward)])
        return
    of = {"dy": "y", "x": "x", "dx": "x"}[wrong]
    assert refusal(forward, backward) == f"--backward b0: {wrong}: {message.format(of)}{REMEDY}"


def test_a_saved_tensor_must_lie_alike() -> None:
    forward = graph("F", {"A": "x"}, {"C": "y"})
    x = {"name": "x", "stride": [1, 2]}
    backward = graph("B", {"1": "dy", "2": x}, {"3": "dx"})
    assert refusal(forward, backward) == (
        "--backward b0: x: expected the layout of x, dims (2, 4) with strides (4, 1), "
        f"got (2, 4) with (1, 2){REMEDY}"
    )


def test_gradients_may_lie_in_any_order() -> None:
    forward = graph("F", {"A": "x"}, {"C": "y"})
    dy = {"name": "dy", "stride": [1, 2]}
    dx = {"name": "dx", "stride": [1, 2]}
    [found] = derive(forward, [("b", graph("B", {"1": dy}, {"2": dx}))])
    [read] = found.reads
    assert read.arriving == Arriving("y", "BFLOAT16", (2, 4), (1, 2), 8)


def test_one_gradient_in_two_layouts() -> None:
    forward = graph("F", {"A": "x", "B": "w"}, {"C": "y"})
    backwards = [
        graph("B", {"1": {"name": "dy", "stride": stride}}, {"2": output})
        for stride, output in (([1, 2], "dx"), ([4, 1], "dw"))
    ]
    found = derive(forward, [("a", backwards[0]), ("b", backwards[1])])
    arriving = [read.arriving for call in found for read in call.reads]
    assert [one and one.stride for one in arriving] == [(1, 2), (4, 1)]


def test_broadcast_and_packed_inputs_have_no_gradient() -> None:
    backward = graph("B", {"1": "dy"}, {"2": "dx"})
    forward = graph("F", {"A": {"name": "x", "stride": [0, 1]}}, {"C": "y"})
    assert refusal(forward, backward) == (
        f"--backward b0: dx: x repeats its elements: strides (0, 1){REMEDY}"
    )
    fp4 = {"data_type": "FP4_E2M1"}
    forward = graph("F", {"A": {"name": "x", **fp4}}, {"C": "y"})
    backward = graph("B", {"1": "dy"}, {"2": {"name": "dx", **fp4}})
    assert refusal(forward, backward) == (
        f"--backward b0: dx: x is plain FP4_E2M1 and has no gradient{REMEDY}"
    )


SCALAR = {"is_pass_by_value": True}
HALF = {"index": 3, "value": "3F000000"}


def test_scalars_are_passed_on_by_name_or_keep_their_default() -> None:
    forward = graph(
        "F",
        {"A": "x", "S": {"name": "eps", **SCALAR}, "T": {"name": "unused", **SCALAR}},
        {"C": "y"},
    )
    backward = graph(
        "B",
        {
            "1": "dy",
            "2": {"name": "eps", **SCALAR},
            "3": {"name": "own", "pass_by_value": HALF, **SCALAR},
        },
        {"4": "dx"},
    )
    [found] = derive(forward, [("b", backward)])
    assert reads(found) == [{"y"}, "eps", 0.5]


def test_a_scalar_that_only_the_backward_graph_has() -> None:
    backward = graph("B", {"1": "dy", "2": {"name": "eps", **SCALAR}}, {"3": "dx"})
    unknown = "is no operand of the forward graph and the gradient of no output"
    assert refusal(FORWARD, backward) == f"--backward b0: eps: {unknown}{REMEDY}"


def test_hostile_names_stay_within_one_line() -> None:
    text = 'x"\n\u202e' * 500
    backward = graph("B", {"1": "dy", "2": {"name": text, "dim": [3], "stride": [1]}}, {"3": text})
    message = refusal(FORWARD, backward)
    assert re.fullmatch(r"[ -~]{1,2000}", message)


def swapped(strides: list[int]) -> Document:
    return {"dim": [2, 2, 16, 32], "stride": strides}


def test_k_that_lowering_swapped_has_a_gradient_of_its_own_shape() -> None:
    """Plan files say [b, h, d, s] for K; its gradient is [b, h, s, d]."""
    plain = {"dim": [2, 2, 32, 16], "stride": [1024, 512, 16, 1]}
    row = {"dim": [2, 2, 32, 1], "stride": [64, 32, 1, 1], "data_type": "FLOAT"}
    k = swapped([1024, 512, 1, 16])
    forward = graph("SDPA", {"Q": plain, "K": k, "V": plain}, {"O": plain, "Stats": row})
    for v in (plain, k):
        backward = graph(
            "SDPA_BWD",
            {"Q": plain, "K": k, "V": v, "O": plain, "dO": plain, "Stats": row},
            {"dQ": plain, "dK": plain, "dV": plain},
        )
        [found] = derive(forward, [("b", backward)])
        assert [item.order for item in found.gradients] == [(0, 1, 2, 3)] * 3


def test_the_order_of_axes_is_that_of_the_inputs_memory() -> None:
    image = {"dim": [2, 8, 4, 4], "stride": [128, 1, 32, 8]}
    forward = graph("F", {"A": {"name": "x", **image}}, {"C": "y"})
    dx = {"name": "dx", "dim": image["dim"], "stride": [128, 16, 4, 1]}
    [found] = derive(forward, [("b", graph("B", {"1": "dy"}, {"2": dx}))])
    assert found.gradients[0].order == (0, 2, 3, 1)


def test_backward_tags_are_known_and_their_ports_match() -> None:
    for backward, forwards in backward_tags.GRADIENT_OF.items():
        for forward in forwards:
            ports, others = (PORTS[tag] for tag in (forward, backward))
            inputs = {*ports.inputs, *ports.optional}
            gradients = {f"d{port}".casefold() for port in inputs}
            arriving = {f"d{port}".casefold() for port in ports.outputs}
            computed = {port.casefold() for port in others.outputs}
            read = {port.casefold() for port in (*others.inputs, *others.optional)}
            assert gradients & computed, backward
            assert len(arriving & read) == 1, backward

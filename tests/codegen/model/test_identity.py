"""What a graph computes is its identity: score modifiers, constants, not the frontend's numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.documents import WRITE_AGAIN, Document, argument_names
from support.identities import (
    CAP,
    CASES,
    NONE,
    OPERAND,
    THREE,
    TWO,
    decode,
    edited,
    encode,
    key,
    operations,
    structure_of,
)
from test_layers import ROOT

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.alike import BoundGraph, check_alike
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.bundle import read_graphs, write_bundle
from cudnn_bindgen.codegen.bind.plan_file import read_plans
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.constants import parse_constants, resolve_constants
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_input
from cudnn_bindgen.frontend.planning.missing import plan_maker
from cudnn_bindgen.frontend.recording.describe import describe_files

MOD = CASES / "score_mod"
ONE_GRAPH = "a bundle holds plans of one graph: plan the same graph for each GPU and cuDNN"

# Pairs of different graphs whose structures are the same.
DIFFERENT = {
    "cap": (NONE, CAP),
    "cap, lowered": (NONE, MOD / "composite_cap30.plan"),
    "cap in gradients": (MOD / "backward_none.plan", MOD / "backward_cap30.plan"),
    "constant": (TWO, THREE),
    "infinite constant": (TWO, CASES / "compile_time_constant" / "cc_inf.plan"),
}
# Pairs of plans of one graph.
SAME = {
    "SM 90 and 100": (NONE, MOD / "sm100_none.plan"),
    "unified and lowered": (CAP, MOD / "composite_cap30.plan"),
    "frontend 1.26 and 1.32": tuple(sorted((CASES / "virtual_uids").glob("*.plan"))),
}
UNTOLD = [*(second for _, second in DIFFERENT.values()), OPERAND]


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_only_the_plan_says_makes_another_graph(one: Path, other: Path) -> None:
    assert key(one.read_bytes()) != key(other.read_bytes())


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_plans_of_one_graph_share_a_key(one: Path, other: Path) -> None:
    assert key(one.read_bytes()) == key(other.read_bytes())
    bundle = write_bundle([("a", one.read_bytes()), ("b", edited_key(other))])
    assert len(bind(read_graphs(bundle)[0]).arguments) > 3


def edited_key(path: Path) -> bytes:
    """Return a plan as if it were for another kind of device."""
    data = path.read_bytes()
    return data.replace(b'"multiProcessorCount":132', b'"multiProcessorCount":114')


@pytest.mark.parametrize("path", [NONE, MOD / "backward_none.plan"], ids=lambda p: p.stem)
def test_a_structure_has_the_key_of_a_plan_that_says_no_more(path: Path) -> None:
    assert key(structure_of(decode(path))) == key(path.read_bytes())


@pytest.mark.parametrize("path", UNTOLD, ids=lambda path: path.stem)
def test_a_structure_has_another_key_where_the_plan_says_more(path: Path) -> None:
    assert key(structure_of(decode(path))) != key(path.read_bytes())


@pytest.mark.parametrize("path", UNTOLD, ids=lambda path: path.stem)
def test_what_a_module_carries_to_be_planned_of_is_the_same_graph(path: Path) -> None:
    graph = read_graph(path.read_bytes())
    again = read_graph(bind(graph).structure)
    assert key(bind(graph).structure) == key(path.read_bytes())
    assert again.source == graph.source


def test_a_text_that_cannot_be_understood_makes_a_graph_of_its_own() -> None:
    def without_product(raw: Document) -> None:
        del operations(raw)["nodes"][0]

    def other_choice(raw: Document) -> None:
        without_product(raw)
        raw["cudnn_backend_data"]["engine"]["knobChoices"]["X"] = 1

    path = MOD / "composite_cap30.plan"
    one, other = edited(path, without_product), edited(path, other_choice)
    assert len({key(structure_of(decode(path))), key(path.read_bytes()), key(one), key(other)}) == 4
    with pytest.raises(PlanError, match="text tells whether attention has a score_mod"):
        make_plan(read_input(one))


def test_a_constant_that_no_text_has_makes_a_graph_of_its_own() -> None:
    def silent(raw: Document) -> None:
        for item in operations(raw)["tensors"]:
            item.pop("hasConstValue", None)

    one, other = edited(TWO, silent), edited(THREE, silent)
    assert len({key(one), key(other), key(structure_of(decode(TWO)))}) == 3
    with pytest.raises(PlanError, match='expected the value of "scale::IN_1"'):
        resolve_constants(read_input(one), parse_constants([]))


def test_a_scalar_that_the_plan_does_not_read_is_no_constant() -> None:
    def unread(raw: Document) -> None:
        texts = operations(raw)["tensors"]
        texts[:] = [item for item in texts if item["name"] != "3"]

    assert key(edited(TWO, unread)) == key(structure_of(decode(TWO)))


def test_the_type_in_which_a_grouped_product_computes_is_part_of_it() -> None:
    path = CASES / "moe.plan"
    other = edited(path, lambda raw: operations(raw)["nodes"][0].update(mathPrec="CUDNN_DATA_HALF"))
    assert key(other) != key(path.read_bytes()) == key(structure_of(decode(path)))
    with pytest.raises(PlanError, match="got one with a compute_data_type"):
        make_plan(read_input(other))


def test_attention_beside_a_mask_has_the_mask_only() -> None:
    """The frontend lowers a mask beside nothing else; a function beside it would be found."""
    path = ROOT / "tests/data/plans/cudnn-9.27-sm90/sdpa_infer.plan"
    raw = decode(path)
    (node,) = operations(raw)["nodes"]
    inside = node["subgraph"]
    inside["nodes"].insert(
        0,
        inside["nodes"][0]
        | {"operation": "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR", "Y": "99"}
        | {"pointwiseMode": "CUDNN_POINTWISE_EXP", "B": None},
    )
    inside["nodes"][1]["X"] = "99"
    assert read_graph(path.read_bytes()).unsaid == ()
    [(index, what, how)] = read_graph(encode(raw)).unsaid
    assert (index, what, len(how)) == (0, "score_mod", 1)


# In commands and where plans meet modules.


def refused(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[0].removeprefix("error: ")


@pytest.mark.parametrize("name", ["cap", "constant", "cap in gradients"])
def test_bundle_refuses_to_mix_them(name: str, tmp_path: Path) -> None:
    one, other = DIFFERENT[name]
    message = refused("bundle", one, other, "-o", tmp_path / "two.bundle")
    assert message.startswith(f"{other}: expected graph {key(one.read_bytes())}, as in {one}, got")
    assert message.endswith(f"({ONE_GRAPH})")
    assert not list(tmp_path.iterdir())


def test_bundle_says_that_its_plans_are_of_two_graphs(tmp_path: Path) -> None:
    folder = CASES / "bundle_of_two"
    paths = [folder / "sink.plan", folder / "two.plan"]
    assert refused("bundle", *paths, "-o", tmp_path / "b").endswith(f"({ONE_GRAPH})")


@pytest.mark.parametrize("path", [CAP, OPERAND, MOD / "backward_cap30.plan"], ids=lambda p: p.stem)
def test_plan_refuses_a_graph_with_a_score_modifier(path: Path, tmp_path: Path) -> None:
    assert refused("plan", path, "-o", tmp_path / "x.plan") == (
        f"{path}: $.nodes[0]: expected a graph that a file describes, got one with a score_mod, of "
        "which only cuDNN's text in its plan tells (plan it in the program that builds it, and "
        "write graph.serialize() there)"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_module", [True, False])
def test_planning_at_load_refuses_a_score_modifier_when_it_would_plan(is_module: bool) -> None:
    graph = read_graph(CAP.read_bytes())
    source = graph.source if is_module else CAP.read_bytes()
    make = plan_maker(source, [argument.uid for argument in bind(graph).arguments])
    with pytest.raises(PlanError, match=r"^graph: \$\.nodes\[0\]: expected a graph that a file"):
        make(90, 132, 92800)


def test_a_plan_says_its_constants_itself() -> None:
    structure = read_input(TWO.read_bytes())
    assert resolve_constants(structure, parse_constants([])) == {3: 2.0}
    assert resolve_constants(structure, parse_constants(["scale::IN_1=2"])) == {3: 2.0}
    carried = read_input(bind(read_graph(THREE.read_bytes())).structure, bound=frozenset({1, 2, 5}))
    assert resolve_constants(carried, parse_constants([])) == {3: 3.0}
    for said, message in (
        (parse_constants(["scale::IN_1=3"]), "expected 2.0, which the plan was made with, got 3.0"),
        (parse_constants([], ["scale::IN_1"]), "expected a scalar that callers pass, got a cons"),
    ):
        with pytest.raises(PlanError, match=message):
            resolve_constants(structure, said)


def test_load_plan_is_given_the_key_of_the_plan() -> None:
    for one, other in DIFFERENT.values():
        [first], [second] = read_plans(one.read_bytes()), read_plans(other.read_bytes())
        assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_record_keeps_both(one: Path, other: Path) -> None:
    found = [
        describe_files(structure_of(decode(path)), path.read_bytes(), []) for path in (one, other)
    ]
    assert [item.key for item in found] == [key(path.read_bytes()) for path in (one, other)]
    assert not found[0].files.keys() & found[1].files.keys()
    assert [item.reasons for item in found] == [(), ()]


def test_record_sees_a_plan_of_another_graph_than_the_dump() -> None:
    found = describe_files(structure_of(decode(NONE)), TWO.read_bytes(), [])
    assert found.reasons == ("plan: its graph is another one than the dump's",)


def test_a_family_has_one_score_modifier() -> None:
    def smaller(raw: Document) -> None:
        for item in raw["tensors"][:4]:
            item["dim"][0] = 1

    check_alike(bound(CAP.read_bytes()), bound(edited(CAP, smaller)))
    with pytest.raises(EmitError, match=r"node 0: score_mod.*: expected .* got nothing"):
        check_alike(bound(CAP.read_bytes()), bound(edited(NONE, smaller)))


def bound(data: bytes) -> BoundGraph:
    graph = read_graph(data)
    return BoundGraph("file", "source", graph, bind(graph))


# Operands of score modifiers.


def test_an_operand_of_a_score_modifier_is_bound() -> None:
    binding = bind(read_graph(OPERAND.read_bytes()))
    assert argument_names(binding) == ["q_ptr", "k_ptr", "v_ptr", "o_ptr", "operand"]
    operand = binding.arguments[-1]
    assert (operand.uid, operand.role, operand.data_type, operand.dim) == (
        *(4, "scalar", "FLOAT"),
        (1, 1, 1, 1),
    )
    assert binding.plans[0].uids == (1, 2, 3, 4, 5)


def test_an_operand_in_device_memory_is_an_address() -> None:
    def in_memory(raw: Document) -> None:
        item = operations(raw)["nodes"][0]["subgraph"]["tensors"][0]
        item |= {"isByValue": False, "dim": [1, 4, 1, 1], "stride": [4, 1, 4, 4]}
        item |= {"dataType": "CUDNN_DATA_HALF", "ptrAlignment": 32}

    operand = bind(read_graph(edited(OPERAND, in_memory))).arguments[3]
    assert (operand.argument, operand.data_type, operand.alignment) == ("operand_ptr", "HALF", 32)
    assert (operand.role, operand.dim, operand.stride) == ("input", (1, 4, 1, 1), (4, 1, 4, 4))


def test_an_operand_of_an_older_structure_is_bound_too() -> None:
    def older(raw: Document) -> None:
        raw["json_version"] = "1.0"
        raw["cudnn_frontend_version"] = 12600
        raw["tensors"] = {
            str(item["uid"]): {"name": "", "uid_assigned": True} | item for item in raw["tensors"]
        }

    assert argument_names(bind(read_graph(edited(OPERAND, older))))[-1] == "operand"


def described(**fields: Any) -> Callable[[Document], None]:
    """Change what cuDNN's text says of the operand."""
    return lambda raw: operations(raw)["nodes"][0]["subgraph"]["tensors"][0].update(fields)


WHERE = "$.cudnn_backend_data.operationGraph.nodes[0].subgraph.tensors[0]"
ANOTHER = "(plan and structure are of different graphs: write the file again with serialize())"

# A change of a file → its refusal.
REFUSED: dict[str, tuple[Path, Callable[[Document], object], str]] = {
    "operand of no type": (
        OPERAND,
        described(dataType="CUDNN_DATA_FLOAT128"),
        f"{WHERE}.data_type: expected a data type such as BFLOAT16, got FLOAT128 "
        f"(set it to one of {', '.join(BITS)})",
    ),
    "operand of another rank": (
        OPERAND,
        described(stride=[1]),
        f"{WHERE}.stride: expected 4 entries as in dim, got 1 "
        "(set dim and stride of this tensor to the same rank)",
    ),
    "operand that is virtual": (
        OPERAND,
        described(isVirtual=True),
        f"$.variant_pack_uids: expected uids of tensors in memory, got 4, a virtual one {ANOTHER}",
    ),
    "operand that the text lacks": (
        OPERAND,
        described(name="40"),
        "$.variant_pack_uids: expected uids of tensors, constants or workspace parts, got 4 "
        + ANOTHER,
    ),
    "operand's size": (OPERAND, described(dim=[-1]), f"{WHERE}.dim[0]: expected int >= 0"),
    "operand's alignment": (
        OPERAND,
        described(ptrAlignment=2**21),
        f"{WHERE}.ptrAlignment: expected int <= 1048576",
    ),
    "constant that is text": (
        TWO,
        lambda raw: operations(raw)["tensors"][2].update(constValue="two"),
        "$.cudnn_backend_data.operationGraph.tensors[2].constValue: expected a number that a FLOAT "
        "can hold, got 'two'",
    ),
    "constant that is an object": (
        TWO,
        lambda raw: operations(raw)["tensors"][2].update(constValue={}),
        "$.cudnn_backend_data.operationGraph.tensors[2].constValue: expected int | float | str | "
        "null, got object (was the plan written by another cuDNN major version, or cut off?)",
    ),
    "constant beyond its type": (
        TWO,
        lambda raw: operations(raw)["tensors"][2].update(constValue=1e300),
        "$.cudnn_backend_data.operationGraph.tensors[2].constValue: expected a number that a FLOAT "
        "can hold, got 1e+300",
    ),
    "constant of no type of scalars": (
        TWO,
        lambda raw: operations(raw)["tensors"][2].update(dataType="CUDNN_DATA_INT4"),
        "$.cudnn_backend_data.operationGraph.tensors[2].constValue: expected a number that a type "
        "of scalars can hold, got 2.0",
    ),
    "subgraph that is none": (
        CAP,
        lambda raw: operations(raw)["nodes"][0].update(subgraph=[]),
        "$.cudnn_backend_data.operationGraph.nodes[0].subgraph: expected object, got array",
    ),
    "operation that is none": (
        CAP,
        lambda raw: operations(raw)["nodes"].append("x"),
        "$.cudnn_backend_data.operationGraph.nodes[1]: expected object, got str "
        "(was the plan written by another cuDNN major version, or cut off?)",
    ),
}
# Changes of what a module carries → refusals.
CARRIED: dict[str, tuple[Document, str]] = {
    "bits of another type": (
        {"constants": {"3": ["HALF", "40000000"]}},
        '$.only_in_plan.constants["3"]: expected a scalar\'s type and bits, got '
        f"('HALF', '40000000') {WRITE_AGAIN}",
    ),
    "constant of another tensor": (
        {"constants": {"1": ["FLOAT", "40000000"]}},
        '$.only_in_plan.constants["1"]: expected the uid of a scalar without a value',
    ),
    "what is unsaid": (
        {"unsaid": [[0, "score_mod"]]},
        "$.only_in_plan.unsaid[0]: expected array of length 3, got 2",
    ),
}


def carried(only: Document) -> bytes:
    raw = json.loads(structure_of(decode(TWO)))
    return json.dumps(raw | {"only_in_plan": only}).encode()


@pytest.mark.parametrize(
    ("value", "data_type"),
    [(1.5, "HALF"), (-2, "INT32"), (2.0, "INT64"), (0.5, "BFLOAT16"), (1e300, "DOUBLE")],
)
def test_constants_of_every_type_are_read(value: float, data_type: str) -> None:
    def other(raw: Document) -> None:
        text = operations(raw)["tensors"][2]
        text |= {"constValue": value, "dataType": f"CUDNN_DATA_{data_type}"}
        raw["tensors"][2]["data_type"] = data_type

    [tensor] = [item for item in read_graph(edited(TWO, other)).tensors if item.constant]
    assert tensor.constant is not None
    assert (tensor.constant.value, tensor.constant.data_type) == (value, data_type)


@pytest.mark.parametrize(("value", "data_type"), [(0.1, "HALF"), (1.5, "INT32"), (2**31, "INT32")])
def test_constants_that_their_type_cannot_hold_are_refused(value: float, data_type: str) -> None:
    change = {"constValue": value, "dataType": f"CUDNN_DATA_{data_type}"}
    with pytest.raises(GraphFormatError, match=f"expected a number that a {data_type} can hold"):
        read_graph(edited(TWO, lambda raw: operations(raw)["tensors"][2].update(change)))


def test_numbers_that_json_has_none_for_are_read_by_their_names() -> None:
    for number in (float("inf"), float("-inf"), float("nan")):

        def other(raw: Document, number: float = number) -> None:
            operations(raw)["tensors"][2]["constValue"] = number

        [found] = [
            item.constant for item in read_graph(edited(TWO, other)).tensors if item.constant
        ]
        assert repr(found.value) == repr(number)


# Dumps.


def shown(path: Path) -> Document:
    result = CliRunner().invoke(main, ["show", str(path), "--json"])
    assert result.exit_code == 0, result.output
    found: Document = json.loads(result.stdout)
    return found


def test_show_says_what_only_the_plan_says() -> None:
    [constant] = shown(TWO)["only_in_plan"]
    assert constant == {"place": "uid 3", "what": "constant", "value": "2.0"}
    [modifier] = shown(CAP)["only_in_plan"]
    assert (modifier["place"], modifier["what"]) == ("node 0", "score_mod")
    assert shown(NONE)["only_in_plan"] == []


def test_show_names_both_peers() -> None:
    path = CASES / "peer_stats" / "sgbn.json"
    inputs = shown(path)["nodes"][0]["inputs"]
    assert (inputs["peer_stats[0]"], inputs["peer_stats[1]"]) == (4, 5)
    table = CliRunner().invoke(main, ["show", str(path)]).stdout
    assert "peer_stats[0]=4" in table
    assert "peer_stats[1]=5" in table


def test_what_print_writes_is_read_like_a_log() -> None:
    paths = sorted((CASES / "printed").iterdir())
    assert len(paths) == 3
    assert len({shown(path)["fingerprint"] for path in paths}) == 1
    listed = CliRunner().invoke(main, ["show", str(paths[-1]), "--list", "--json"])
    [entry] = json.loads(listed.stdout)
    # Printed twice; the last one counts.
    lines = paths[-1].read_text().splitlines()
    assert lines[entry["line"] - 1].endswith("{")
    assert '"context"' in lines[entry["line"]]
    assert entry["line"] > 50

"""Graph files for the stand-in libraries: real ones with another plan text, and made-up ones.

Every operand of a case is an array of COUNT doubles, whatever its data type says: the stand-in
computes one weighted sum of all that it is given, so that each wrong slot, constant or offset
shows in every output.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ubjson

from cudnn_bindgen.codegen.bind.binding import Argument, Binding, bind
from cudnn_bindgen.codegen.model.graph import Scalar
from cudnn_bindgen.codegen.read.graph import read_graph
from support.standin import expected_outputs, plan_text, rounded

COUNT = 5
SPARE = 4
"""Doubles behind the COUNT ones of each buffer: where replaced operands may lie."""

POISON = -7777.25
"""What outputs hold before a call."""

DATA = Path(__file__).parents[1] / "data"
PLANS = DATA / "plans/cudnn-9.19-sm90"
SCALAR_TYPES = ("INT64", "INT32", "HALF", "FLOAT", "DOUBLE", "BFLOAT16")
"""In the order of a file's `pass_by_value.index`."""


@dataclass(frozen=True)
class Case:
    """A module's graph file, the plan to run it with, and what that plan computes.

    `embedded` says whether the module is built from `plan`; otherwise it is loaded.
    """

    name: str
    module: str
    graph: bytes
    plan: bytes
    workspace: int
    other: frozenset[int]

    @property
    def embedded(self) -> bool:
        return self.graph == self.plan

    @property
    def binding(self) -> Binding:
        return _bind(self.plan)

    @property
    def operands(self) -> tuple[Argument, ...]:
        return self.binding.operands

    def place_of(self, uid: int) -> tuple[int, int]:
        """Return whose buffer a pack's uid lies in, and at which index."""
        for source, target, offset in self._plan.replacements:
            if target == uid:
                return source, offset // 8
        return uid, 0

    def expected(self, values: Mapping[int, Any]) -> dict[int, list[float]]:
        """Return what the outputs, by the pack's uids, hold for these arguments."""
        added = _constants(self.plan)
        inputs, outputs, scalars, parts = _terms(self.binding, self.other, added)
        arrays = []
        for uid in inputs:
            source, first = self.place_of(uid)
            arrays.append(values[source][first : first + COUNT])
        numbers = [
            added[uid].value if uid in added else rounded(values[uid], data_type)
            for uid, data_type in scalars
        ]
        filled = {uid: list(part) for uid, op, _, part in self._plan.workspace_parts if op == 0}
        results = expected_outputs(
            arrays, numbers, [filled.get(uid, [0.0] * COUNT) for uid in parts], len(outputs)
        )
        return dict(zip(outputs, results, strict=True))

    @property
    def _plan(self) -> Any:
        return self.binding.plans[0]


@cache
def _bind(plan: bytes) -> Binding:
    return bind(read_graph(plan))


@cache
def _constants(plan: bytes) -> dict[int, Scalar]:
    """Return the scalars that lowering added, by uid."""
    info = read_graph(plan).plan
    bound = {uid for one in _bind(plan).plans for uid in one.uids}
    return {uid: value for uid, value in info.constants if uid not in bound} if info else {}


def _terms(
    binding: Binding, other: Iterable[int], added: Mapping[int, Scalar]
) -> tuple[list[int], list[int], list[Any], list]:
    """Inputs, outputs, scalars and parts of the sum, by the pack's uids."""
    [plan] = binding.plans
    bound = [(a.role, a.uid) for a in binding.operands if a.uid not in {*plan.dropped, *other}]
    roles = {argument.uid: argument.role for argument in binding.operands}
    bound += [(roles[source], target) for source, target, _ in plan.replacements]
    scalars = [(argument.uid, argument.data_type.lower()) for argument in binding.scalars]
    return (
        [uid for role, uid in bound if role == "input"],
        [uid for role, uid in bound if role == "output"],
        scalars + [(uid, value.data_type.lower()) for uid, value in added.items()],
        [uid for uid, operation, _, _ in plan.workspace_parts if operation != 2],
    )


def make_case(
    name: str,
    module: str,
    document: dict[str, Any],
    *,
    graph: bytes | None = None,
    workspace: int = 0,
    other: Iterable[int] = (),
    version: int = 91900,
    sm: int = 900,
) -> Case:
    """Turn a plan file's document into a case; `graph` is what its module is built from."""
    # Read once with a text that says nothing, to know what the text must bind.
    silent = ubjson.dumpb(document | {"cudnn_backend_data": plan_text()})
    binding = _bind(silent)
    inputs, outputs, scalars, parts = _terms(binding, other, _constants(silent))
    address_only = [u for u, operation, _, _ in binding.plans[0].workspace_parts if operation == 2]
    text = plan_text(
        inputs=inputs,
        outputs=outputs,
        scalars=scalars,
        parts=parts,
        other=[*other, *address_only],
        workspace=workspace,
        count=COUNT,
        version=version,
        sm=sm,
    )
    plan = ubjson.dumpb(document | {"cudnn_backend_data": text})
    return Case(name, module, graph or plan, plan, workspace, frozenset(other))


# Documents


def real(stem: str) -> dict[str, Any]:
    """Return a real plan file's document, with finite constants."""
    document: dict[str, Any] = ubjson.loadb((PLANS / f"{stem}.plan").read_bytes())
    for number, uid in enumerate(sorted(document["pass_by_values"], key=int)):
        value = document["pass_by_values"][uid]
        if value["index"] == 3:
            value["value"] = struct.pack(">f", 0.5 + number).hex()
    return document


def scalar(data_type: str, value: float) -> dict[str, Any]:
    """Return a `pass_by_value` as a file writes it: of half and bfloat16 the bits as a float."""
    written: Any = value
    if data_type in ("HALF", "FLOAT", "BFLOAT16"):
        written = struct.pack(">f", value).hex()
        if data_type == "BFLOAT16":
            written = f"{written[:4]}0000"
    return {"index": SCALAR_TYPES.index(data_type), "value": written}


def tensor(uid: int, name: str, **fields: Any) -> dict[str, Any]:
    dim = fields.setdefault("dim", [2, 3])
    return {"uid": uid, "name": name, "stride": [1] * len(dim), "data_type": "FLOAT", **fields}


def chain(tensors: Sequence[dict[str, Any]], outputs: Sequence[int]) -> dict[str, Any]:
    """Return the structure of a chain of pointwise nodes that take one more operand each.

    The last nodes write `outputs`, which are among `tensors`; all others are inputs.
    """
    inputs = [item["uid"] for item in tensors if item["uid"] not in outputs]
    virtual = [10_000 + number for number in range(len(inputs) - 1 - len(outputs))]
    written = [*virtual, *outputs]
    nodes = [
        {
            "tag": "POINTWISE",
            "name": f"n{number}",
            "mode": "ADD",
            "inputs": {"IN_0": written[number - 1] if number else inputs[0], "IN_1": uid},
            "outputs": {"OUT_0": written[number]},
        }
        for number, uid in enumerate(inputs[1:])
    ]
    hidden = [tensor(uid, f"t{uid}", is_virtual=True) for uid in virtual]
    return {
        "json_version": "2.0",
        "context": {},
        "nodes": nodes,
        "tensors": [*tensors, *hidden],
    }


def planned(structure: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Add a plan's fields, which bind all tensors that are not virtual."""
    uids = [item["uid"] for item in structure["tensors"] if not item.get("is_virtual")]
    defaults = {"variant_pack_uids": uids, "fe_workspace_size": 0, "pass_by_values": {}}
    return structure | defaults | fields


def _scalars(*, with_constants: bool) -> dict[str, Any]:
    """Scalars of all six types: required, with a default, and constants of the plan."""
    tensors = [tensor(1, "x"), tensor(2, "y")]
    constants = {}
    for n, data_type in enumerate(SCALAR_TYPES):
        kind = {"data_type": data_type, "is_pass_by_value": True, "dim": [1]}
        value = scalar(data_type, (n + 2) * 3)
        tensors.append(tensor(10 + n, f"a_{data_type}", **kind))
        tensors.append(tensor(20 + n, f"b_{data_type}", pass_by_value=value, **kind))
        if with_constants:
            constants[str(30 + n)] = scalar(data_type, -(n + 1))
    document = planned(chain(tensors, [2]), pass_by_values=constants)
    document["variant_pack_uids"] += [int(uid) for uid in constants]
    return document


def _wide() -> dict[str, Any]:
    """More operands than a call keeps on its stack, one of them without an element."""
    tensors = [tensor(uid, f"in{uid}") for uid in range(1, 101)]
    tensors[49]["dim"] = [0, 3]
    return planned(chain([*tensors, tensor(101, "out")], [101]))


def _parts(*, replaced: Mapping[int, int], dropped: Iterable[int], parts: bool) -> dict[str, Any]:
    """Four operands, workspace parts of each kind, and replacements {source: offset in doubles}."""
    tensors = [tensor(1, "a"), tensor(2, "b"), tensor(3, "c"), tensor(4, "out"), tensor(5, "out2")]
    modifications = {
        "50": [0, 64, [1.5 + n for n in range(COUNT)]],
        "51": [1, 128, [4.0 * COUNT]],
        "52": [2, 256, []],
        "53": [0, 192, [-2.25 * n for n in range(COUNT)]],
    }
    document = planned(
        chain(tensors, [4, 5]),
        variant_pack_replacements=[[uid, [60 + uid, 8 * at]] for uid, at in replaced.items()],
    )
    if parts:
        document |= {"workspace_modifications": modifications, "fe_workspace_size": 512}
    uids = {*document["variant_pack_uids"], *(60 + uid for uid in replaced)} - {*dropped}
    document["variant_pack_uids"] = sorted(uids | {*map(int, modifications)} if parts else uids)
    return document


def _cases() -> list[Case]:
    thd = make_case("thd", "thd", real("sdpa_thd"), workspace=4096)
    norm = (PLANS / "layernorm.json").read_bytes()
    parts = make_case(
        "parts", "parts", _parts(replaced={2: 3, 4: 1}, dropped=[2, 4], parts=True), workspace=1000
    )

    scalars = make_case("scalars", "scalars", _scalars(with_constants=True))
    bare_scalars = _scalars(with_constants=False)

    def other_plan(name: str, **fields: Any) -> Case:
        return make_case(name, "parts", _parts(**fields), graph=parts.graph)

    return [
        thd,
        make_case("thd_large", "thd", real("sdpa_thd"), graph=thd.graph, workspace=(5 << 20) // 2),
        make_case("norm", "norm", real("layernorm"), graph=norm),
        scalars,
        make_case("bare_scalars", "scalars", bare_scalars, graph=scalars.graph),
        make_case("wide", "wide", _wide(), workspace=32, other=[50]),
        parts,
        other_plan("no_parts", replaced={}, dropped=[], parts=False),
        other_plan("kept", replaced={1: 4, 3: 2}, dropped=[], parts=True),
        other_plan("one_dropped", replaced={1: 0}, dropped=[1], parts=False),
        other_plan(
            "all_dropped", replaced=dict.fromkeys(range(1, 6), 1), dropped=range(1, 6), parts=False
        ),
    ]


CASES: dict[str, Case] = {case.name: case for case in _cases()}
EMPTY = (DATA / "structure-v2/zero_dim.json").read_bytes()
GRAPHS: dict[str, bytes] = {case.module: case.graph for case in CASES.values()} | {
    "empty": EMPTY,
    "other_abi": EMPTY,
}
"""The graph file of each module that the tests build."""


def edited(case: Case, **fields: Any) -> bytes:
    """Return the case's plan file with other fields; a None removes one."""
    document = ubjson.loadb(case.plan) | fields
    return bytes(ubjson.dumpb({key: item for key, item in document.items() if item is not None}))


def edited_text(
    case: Case, version: int | None = None, sm: int | None = None, sm_count: int | None = None
) -> bytes:
    """Return the case's plan file as made by another cuDNN or for another GPU."""
    text = json.loads(ubjson.loadb(case.plan)["cudnn_backend_data"])
    text["cudnnVersion"] = version or text["cudnnVersion"]
    text["GPUProfile"]["deviceVer"] = sm or text["GPUProfile"]["deviceVer"]
    if sm_count is not None:
        text["GPUProfile"]["multiProcessorCount"] = sm_count
    return edited(case, cudnn_backend_data=json.dumps(text))

"""Structure → the frontend's graph, by its public builders, with a proof that it is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.dialects.document import TensorDocument
from cudnn_bindgen.codegen.read.graph import read_document
from cudnn_bindgen.frontend.planning.call import Call, Member, Operand
from cudnn_bindgen.frontend.planning.compare import check_same
from cudnn_bindgen.frontend.planning.frontend import (
    NO_DEVICE,
    Graph,
    Module,
    dump,
    find_member,
    new_graph,
    refusals,
)
from cudnn_bindgen.frontend.planning.lowering import undo_lowering
from cudnn_bindgen.frontend.planning.replay import replay
from cudnn_bindgen.frontend.planning.structure import Structure, read_structure

_DEFAULT_ALIGNMENT = 16


def rebuild(
    structure: Structure,
    constants: Mapping[int, int | float],
    frontend: Module,
    device: Mapping[str, object] = NO_DEVICE,
) -> Graph:
    """Build `structure` again, validate it, and prove that its dump is the same.

    Parameters
    ----------
    structure
        Of a file, as it was before lowering.
    constants
        The values of constants of compile time, by uid.
    frontend
        The module ``cudnn``.
    device
        Which device it is for, as `device_of` says it; nothing for the frontend's own handle.

    Raises
    ------
    PlanError
        With the JSON path of what cannot be built, or does not come out the same.
    """
    calls = [replay(node, f"$.nodes[{index}]") for index, node in enumerate(structure.nodes)]
    graph = new_graph(frontend, structure.context, device)
    _Rebuild(structure, constants, frontend, graph).build(calls)
    with refusals(frontend, "the rebuilt graph is not valid"):
        graph.validate()
    check_dump(dump(frontend, graph), structure, frozenset(constants))
    return graph


def check_dump(data: bytes, structure: Structure, constants: frozenset[int]) -> Structure:
    """Return what a dump, or a plan file, holds, if it is what it was made from.

    Raises
    ------
    PlanError
        It is something else.
    """
    try:
        rebuilt = undo_lowering(read_structure(read_document(data)))
    except GraphFormatError as error:
        raise PlanError(
            f"cannot read the dump of the rebuilt graph: {error.problem}",
            path=error.path,
            hint="a newer nvidia-cudnn-frontend may dump all of it",
        ) from error
    check_same(structure, rebuilt, constants)
    return rebuilt


class _Rebuild:
    """One graph while it is built: the frontend's tensors by uid."""

    def __init__(
        self,
        structure: Structure,
        constants: Mapping[int, int | float],
        frontend: Module,
        graph: Graph,
    ) -> None:
        self.structure = structure
        self.constants = constants
        self.frontend = frontend
        self.graph = graph
        self.tensors: dict[int, Any] = {}

    def build(self, calls: list[Call]) -> None:
        """Make inputs, then nodes, then what tensors say of each other."""
        returned = {uid for call in calls for uid in call.outputs}
        for uid in self.structure.tensors:
            if uid not in returned:
                with refusals(self.frontend, "cannot make a tensor", self.structure.paths[uid]):
                    self.tensors[uid] = self._make(uid)
        for call in calls:
            self._call(call)
        for uid, item in self.structure.tensors.items():
            with refusals(self.frontend, "cannot set a tensor", self.structure.paths[uid]):
                self._set_offset(uid, item)

    def _make(self, uid: int) -> Any:
        item = self.structure.tensors[uid]
        value = self.structure.value(uid)
        if value is not None or uid in self.constants:
            return self._make_scalar(uid, value.value if value else self.constants[uid])
        options: dict[str, object] = {
            "dim": item.dim,
            "stride": item.stride,
            "is_virtual": item.is_virtual,
            "is_pass_by_value": item.is_pass_by_value,
            "name": item.name or "",
            "uid": uid,
        }
        if item.data_type is not None:
            options["data_type"] = self._member("data_type", item.data_type, uid)
        tensor = self.graph.tensor(**options)
        if not item.name:
            tensor.set_name("")
        self._set_reordering(tensor, item)
        self._set_alignment(tensor, item)
        return tensor

    def _make_scalar(self, uid: int, value: int | float) -> Any:
        kinds = self.frontend.scalar_type
        is_constant = uid in self.constants
        kind = kinds.COMPILE_TIME_CONST if is_constant else kinds.RUNTIME_PARAM
        tensor = self.graph.tensor_scalar(value, kind)
        name = self.structure.tensors[uid].name
        tensor.set_uid(uid)
        if name and not is_constant:
            tensor.set_name(name)
        return tensor

    def _call(self, call: Call) -> None:
        arguments = {
            keyword: self._argument(value, f"{call.path} ({keyword})")
            for keyword, value in call.arguments.items()
        }
        with refusals(self.frontend, f"cannot build pygraph.{call.method}", call.path):
            found = getattr(self.graph, call.method)(**arguments)
        tensors = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(tensors) != len(call.outputs):
            raise PlanError(
                f"expected {len(call.outputs)} tensors from pygraph.{call.method}, "
                f"got {len(tensors)}",
                path=call.path,
            )
        for uid, tensor in zip(call.outputs, tensors, strict=True):
            if uid is None:
                continue
            if tensor is None:
                raise PlanError(
                    f"expected an output with uid {uid} from pygraph.{call.method}, got none",
                    path=call.path,
                )
            if uid in self.tensors:
                raise PlanError(
                    f"expected an output of its own, got {uid}, which is an input as well",
                    path=call.path,
                    hint="the frontend's Python API makes outputs by itself",
                )
            with refusals(self.frontend, "cannot set an output", self.structure.paths[uid]):
                self._set_output(uid, tensor)
            self.tensors[uid] = tensor

    def _argument(self, value: object, path: str) -> object:
        if isinstance(value, Operand):
            if value.uid not in self.tensors:
                raise PlanError(
                    f"expected nodes in the order in which they compute, got one that reads "
                    f"{value.uid} before it is written",
                    path=path,
                )
            return self.tensors[value.uid]
        if isinstance(value, Member):
            return find_member(self.frontend, value.enum, value.name, path)
        if isinstance(value, (list, tuple)):
            return type(value)(self._argument(each, path) for each in value)
        return value

    def _set_output(self, uid: int, tensor: Any) -> None:
        item = self.structure.tensors[uid]
        tensor.set_uid(uid)
        tensor.set_output(not item.is_virtual)
        if item.name:
            tensor.set_name(item.name)
        if item.data_type is not None:
            tensor.set_data_type(self._member("data_type", item.data_type, uid))
        if item.dim:
            tensor.set_dim(item.dim)
        if item.stride:
            tensor.set_stride(item.stride)
        self._set_reordering(tensor, item)
        self._set_alignment(tensor, item)

    def _set_reordering(self, tensor: Any, item: TensorDocument) -> None:
        if item.reordering_type not in (None, "NONE"):
            kind = self._member("tensor_reordering", item.reordering_type, item.uid)
            tensor.set_reordering_type(kind)

    def _set_alignment(self, tensor: Any, item: TensorDocument) -> None:
        if item.alignment == _DEFAULT_ALIGNMENT:
            return
        if not hasattr(tensor, "set_alignment"):
            raise PlanError(
                f"expected an alignment of {_DEFAULT_ALIGNMENT}, got {item.alignment}: the Python "
                f"API of frontend {self.frontend.__version__} cannot set it",
                path=f"{self.structure.paths[item.uid]}.alignment",
            )
        tensor.set_alignment(item.alignment)

    def _set_offset(self, uid: int, item: TensorDocument) -> None:
        if item.ragged_offset_uid is None:
            return
        self.tensors[uid].set_ragged_offset(self.tensors[item.ragged_offset_uid])
        if item.ragged_offset_multiplier not in (None, 1):
            self.tensors[uid].set_ragged_offset_multiplier(item.ragged_offset_multiplier)

    def _member(self, enum: str, name: str, uid: int) -> Any:
        path = self.structure.paths[uid]
        return find_member(self.frontend, enum, name, path)

"""Score modifiers: functions of a program that change the scores of attention.

The frontend calls such a function when it lowers the graph, and writes nothing of it. In cuDNN's
text it is whatever stands between product and softmax beyond what attributes ask for; in gradients
also between softmax and product. Frontends refuse a modifier beside a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from cudnn_bindgen.codegen.model.backward_tags import GRADIENT_OF
from cudnn_bindgen.codegen.model.graph import Node, PlanInfo
from cudnn_bindgen.codegen.model.operation_graph import Operation, OperationGraph, kind, names_in
from cudnn_bindgen.codegen.model.ports import ATTENTION
from cudnn_bindgen.codegen.model.scalar import read_constant, write_bits

_FORWARD = ATTENTION - GRADIENT_OF.keys()
_BACKWARD = frozenset({"SDPA_BWD"})  # no other takes a modifier
MODIFIED = _FORWARD | _BACKWARD

# Attributes that lowering writes masks for, of old and new frontends.
_MASKS = (
    *("alibi_mask", "padding_mask", "left_bound", "right_bound"),
    *("causal_mask", "causal_mask_bottom_right", "sliding_window_length"),
)
# What scores are multiplied with before anything else.
_SCALES = ("Attn_scale", "Descale_Q", "Descale_K")

# The fields of an operation that name what it writes, and operations that only hand on.
_WRITTEN = ("Y", "dX", "matC")
_LOADS = ("DEQUANTIZE", "PAGED_CACHE_LOAD", "RESHAPE")


class UnknownTextError(Exception):
    """The text is not as the frontends that are known lower a graph."""


def find_score_mods(
    node: Node, text: OperationGraph, plan: PlanInfo, callers: Set[int]
) -> Iterator[tuple[str, object]]:
    """Yield the score modifiers of a node."""
    if node.tag in _FORWARD:
        for index, operation in enumerate(text.operations):
            if kind(operation) == "SDPA_FWD" and operation.get("O") == _name(node, "O"):
                inside = _Attention(node, text.subgraphs.get(index, ()), text, plan, callers)
                start, end = (str(operation.get(f"subgraph{n}Uid")) for n in ("Input", "Output"))
                yield from inside.modifier("score_mod", end, {start: "score"})
                return
        whole = _Attention(node, text.operations, text, plan, callers)
        yield from whole.modifier("score_mod", whole.softmax_input(), {whole.score(): "score"})
    elif node.tag in _BACKWARD:
        whole = _Attention(node, text.operations, text, plan, callers)
        score = whole.score()
        weights = whole.exponential()
        yield from whole.modifier("score_mod", _read(weights, "X"), {score: "score"})
        cuts = {score: "score", whole.gradient(_read(weights, "Y")): "gradient"}
        yield from whole.modifier("score_mod_bprop", whole.score_gradient(), cuts)


class _Attention:
    """The operations that one node of attention has become."""

    def __init__(
        self,
        node: Node,
        operations: Sequence[Operation],
        text: OperationGraph,
        plan: PlanInfo,
        callers: Set[int],
    ) -> None:
        self.node = node
        self.operations = operations
        self.tensors = text.tensors
        self.callers = {str(uid) for uid in callers}
        self.constants = {str(uid): value for uid, value in plan.constants}
        self.parts = {str(part.uid) for part in plan.workspace_parts}
        # Not `in (None, False)`: a bound of 0 is one.
        said = (node.attributes.get(name) for name in _MASKS)
        self.is_masked = any(value is not None and value is not False for value in said)
        self.writers = {
            each[field]: each
            for each in operations
            for field in _WRITTEN
            if isinstance(each.get(field), str)
        }

        self.loaded = set().union(*(self._like(port) for port, _ in node.inputs))

    def score(self) -> str:
        """Return what a modifier reads: the product of queries and keys, scaled."""
        current = _read(self._product("Q", "K"), "matC")
        scales = {_name(self.node, port) for port in _SCALES} - {""}
        while scales:
            scaled = self._multiplied(current, scales)
            if scaled is None:
                break
            scales.discard(_read(scaled, "B"))
            current = _read(scaled, "Y")
        return current

    def softmax_input(self) -> str:
        """Return what the softmax reads; it is one operation, or five."""
        weights = _read(self._product("", "V"), "matA")
        last = self._writer(self._without_products(weights))
        if kind(last) == "SOFTMAX":
            return _read(last, "X")
        exponential = self._writer(_read(last, "X"), "EXP")
        return _read(self._writer(_read(exponential, "X"), "SUB"), "X")

    def exponential(self) -> Operation:
        """Return the operation by which gradients get the softmax again."""
        turned = self._writer(_read(self._product("", "dO"), "matA"), "RESHAPE")
        return self._writer(self._without_products(_read(turned, "X")), "EXP")

    def gradient(self, weights: str) -> str:
        """Return what a modifier of gradients reads: the gradient of what the softmax read."""
        for each in self.operations:
            if kind(each) == "MUL" and each.get("B") == weights:
                current = _read(each, "Y")
                scaled = self._multiplied(current, {_name(self.node, "Dropout_scale")} - {""})
                return _read(scaled, "Y") if scaled else current
        raise UnknownTextError

    def score_gradient(self) -> str:
        """Return the gradient of the product, before it is scaled."""
        turned = self._writer(_read(self._product("", "Q"), "matA"), "RESHAPE")
        current = _read(turned, "X")
        scaled = self.writers.get(current, {})
        is_scaled = kind(scaled) == "MUL" and scaled.get("B") == _name(self.node, "Attn_scale")
        return _read(scaled, "X") if is_scaled else current

    def modifier(
        self, name: str, end: str, cuts: Mapping[str, str]
    ) -> Iterator[tuple[str, object]]:
        """Yield how `end` is computed of `cuts`, without what attributes ask for, if it is."""
        for _ in self.operations:
            before = None if end in cuts else self._before(self.writers.get(end, {}))
            if before is None:
                break
            end = before
        if end not in cuts and self.operations:
            yield name, self._expression(end, cuts)

    def _before(self, last: Operation) -> str | None:
        """Return what an operation of the frontend's own reads: a bias, a mask, gradients' sum."""
        other = last.get("B")
        is_own = {
            "ADD": other == _name(self.node, "Bias") or (self.is_masked and self._is_alibi(other)),
            "BINARY_SELECT": self.is_masked,
            "DIAGONAL_BAND_MASK": self.is_masked,
            "SUB": other == _name(self.node, "Stats"),
        }
        return _read(last, "X") if is_own.get(kind(last)) else None

    def _is_alibi(self, name: object) -> bool:
        slope = self.writers.get(str(name), {})
        return kind(slope) == "MUL" and slope.get("B") in self.parts

    def _product(self, left: str, right: str) -> Operation:
        """Return the product of what stands at two ports; of the scores if `left` is none."""
        lefts, rights = self._like(left), self._like(right)
        for each in self.operations:
            if kind(each) == "MATMUL" and each.get("matB") in rights:
                factor = each.get("matA")
                is_score = factor in self.writers and factor not in self.loaded
                if factor in lefts or (not left and is_score):
                    return each
        raise UnknownTextError

    def _like(self, port: str) -> set[str]:
        """Return the names of a port's tensor and of what it is loaded into."""
        names = {_name(self.node, port)} - {""}
        for each in self.operations:
            if any(load in kind(each) for load in _LOADS) and not names.isdisjoint(names_in(each)):
                names |= {each[field] for field in _WRITTEN if isinstance(each.get(field), str)}
        return names

    def _multiplied(self, name: str, others: Set[str]) -> Operation | None:
        for each in self.operations:
            if kind(each) == "MUL" and each.get("X") == name and each.get("B") in others:
                return each
        return None

    def _without_products(self, name: str) -> str:
        """Go back over what weights are multiplied with: dropout, scales."""
        for _ in self.operations:
            last = self.writers.get(name, {})
            if kind(last) != "MUL":
                break
            name = _read(last, "X")
        return name

    def _writer(self, name: str, what: str = "") -> Operation:
        found = self.writers.get(name)
        if found is None or (what and kind(found) != what):
            raise UnknownTextError
        return found

    def _expression(self, end: str, cuts: Mapping[str, str]) -> list[object]:
        """Return the operations that compute `end`, each after what it reads, without names."""
        places: dict[str, object] = dict(cuts)
        operations: list[object] = []
        left = [end]
        open_: set[str] = set()
        while left:
            name = left[-1]
            writer = self.writers.get(name)
            if writer is None and name not in places:
                places[name] = self._leaf(name)
            if name in places or writer is None:
                left.pop()
                continue
            missing = [each for each in self._reads(writer) if each not in places]
            if missing and name in open_:
                raise UnknownTextError  # it depends on itself
            if missing:
                open_.add(name)
                left += reversed(missing)
                continue
            places[name] = len(operations)
            operations.append([self._data_type(name), self._fields(writer, places)])
            left.pop()
        return operations

    def _reads(self, operation: Operation) -> list[str]:
        """Return the tensors that an operation reads in the order of its fields, not of numbers."""
        fields = [operation[key] for key in sorted(operation) if key not in _WRITTEN]
        items = [
            item for value in fields for item in (value if isinstance(value, list) else [value])
        ]
        return [item for item in items if isinstance(item, str) and item in self.tensors]

    def _fields(self, operation: Operation, places: Mapping[str, object]) -> dict[str, object]:
        def canonical(value: object) -> object:
            if isinstance(value, list):
                return [canonical(item) for item in value]
            return (
                {"tensor": places[value]} if isinstance(value, str) and value in places else value
            )

        return {
            key: canonical(value)
            for key, value in operation.items()
            if key not in _WRITTEN and value is not None and value is not False
        }

    def _leaf(self, name: str) -> object:
        """Return what nothing computes: an operand by its uid, a constant by its bits."""
        path, tensor = self.tensors.get(name, ("", None))
        if name in self.callers:
            return {"uid": int(name)}
        if name in self.constants:
            return write_bits(self.constants[name])
        if tensor is None or not tensor.hasConstValue:
            raise UnknownTextError
        return write_bits(read_constant(tensor.constValue, tensor.data_type, path))

    def _data_type(self, name: str) -> str:
        _, tensor = self.tensors.get(name, ("", None))
        return tensor.data_type if tensor else ""


def _name(node: Node, port: str) -> str:
    """Return the name that the text has for a port's tensor; empty for none."""
    return next((str(uid) for each, uid in node.ports if each == port), "")


def _read(operation: Operation, field: str) -> str:
    value = operation.get(field)
    if not isinstance(value, str):
        raise UnknownTextError
    return value

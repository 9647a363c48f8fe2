"""Compiled modules on the stand-in libraries: what a call computes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.standin import Standin

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError
from cudnn_bindgen.runtime.handle import held_bytes

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call_counts(standin: Standin) -> list[int]:
    calls = ("cudnnBackendCreateDescriptor", "cudnnBackendExecute", "cudnnSetStream", "cudnnCreate")
    return [standin.calls(call) for call in (*calls, "cuMemcpyHtoDAsync", "cuMemsetD8Async")]


# Results


def test_results(load_case: Load, place: Place, name: str, policy: str) -> None:
    module = load_case(name)
    operands = place(name)
    for _ in range(3):
        module.execute(*operands.arguments)
        operands.check()
        operands.fill()
    others = place(name, seed=1)
    module.execute(*others.arguments)
    others.check()
    operands.check_untouched()
    # The random scalars of a call have no record yet.
    has_scalars = bool(CASES[name].binding.scalars)
    assert module.launch_path() == ("direct" if has_scalars else policy)


def test_keyword_arguments(load_case: Load, place: Place, name: str) -> None:
    module = load_case(name)
    operands = place(name)
    module.execute(**operands.by_name)
    operands.check()
    operands.fill()
    module.execute(*operands.arguments[:2], stream=2, **dict(list(operands.by_name.items())[2:]))
    operands.check()


def test_execute_uids(load_case: Load, place: Place, name: str) -> None:
    module = load_case(name)
    operands = place(name)
    shuffled = dict(sorted(operands.by_uid.items(), key=lambda item: -item[0]))
    module.execute_uids(shuffled)
    operands.check()
    operands.fill()
    module.execute_uids(operands.by_uid, stream=2)
    operands.check()


def test_operands_describe_the_arguments(load_case: Load, name: str) -> None:
    module = load_case(name)
    binding = CASES[name].binding
    assert [operand.argument for operand in module.OPERANDS] == [
        argument.argument for argument in binding.arguments
    ]
    assert [operand.uid for operand in module.OPERANDS] == [a.uid for a in binding.arguments]
    assert binding.fingerprint == module.FINGERPRINT
    if isinstance(module, ModuleType):
        assert all(f"{operand.argument} " in module.__doc__ for operand in module.OPERANDS)


def test_an_empty_output_needs_no_library(load: Load, standin: Standin) -> None:
    module = load("empty")
    assert module.execute(0, 0, 0) is None
    module.execute_uids({operand.uid: 0 for operand in module.OPERANDS}, stream=12345)
    module.execute(1 << 63, 3, 5)
    assert call_counts(standin) == [0] * 6
    with pytest.raises(OperandTypeError, match="a_ptr"):
        module.execute("0", 0, 0)


def test_only_an_operand_without_elements_may_be_null(load_case: Load, place: Place) -> None:
    module = load_case("wide")
    operands = place("wide")
    assert operands.by_name["in50_ptr"] == 0
    for argument in ("in1_ptr", "in49_ptr", "in51_ptr", "in100_ptr", "out_ptr"):
        with pytest.raises(OperandError, match=f"^{argument}: .*uid"):
            module.execute(**{**operands.by_name, argument: 0})
    operands.check_untouched()
    module.execute(*operands.arguments)
    operands.check()


# Workspace


@pytest.mark.parametrize("name", ["parts", "kept", "thd"])
def test_callers_workspace(load_case: Load, place: Place, standin: Standin, name: str) -> None:
    module = load_case(name)
    case = CASES[name]
    size = module.workspace_size()
    assert size == module.WORKSPACE_SIZE == (512 if case.module == "parts" else 0) + case.workspace
    operands = place(name)
    block = standin.alloc(size)  # one byte more would be counted as a violation
    module.execute(*operands.arguments, workspace_ptr=block)
    operands.check()
    frontends = size - case.workspace
    assert ctypes.string_at(block + frontends, case.workspace) == b"\xa5" * case.workspace
    if frontends:
        filled = dict.fromkeys(range(frontends), 0xCD)
        for _, operation, offset, values in case.binding.plans[0].workspace_parts:
            part = {0: struct.pack("5f", *values[:5]) if values[1:] else b"", 1: bytes(20), 2: b""}
            filled.update(enumerate(part[operation], offset))
        assert ctypes.string_at(block, frontends) == bytes(filled.values())
    assert held_bytes() == 0
    standin.free(block)


@pytest.mark.parametrize("policy", ["direct"], indirect=True)  # reads the log of executions
def test_runtimes_workspace(load_case: Load, place: Place, standin: Standin) -> None:
    module = load_case("thd")
    operands = place("thd")
    module.execute(*operands.arguments)
    operands.check()
    (line,) = standin.log("cudnnBackendExecute")
    used = int(line.split()[-1], 16)
    (taken,) = [line for line in standin.log("cuMemAlloc") if int(line.split()[1], 16) == used]
    assert used % 256 == 0
    assert int(taken.split()[2]) == held_bytes() >= module.workspace_size() == 4096
    module.execute(*operands.arguments)
    assert [line.split()[-1] for line in standin.log("cudnnBackendExecute")] == [hex(used)] * 2


def test_no_workspace_is_taken_when_none_is_needed(load_case: Load, place: Place) -> None:
    module = load_case("no_parts")
    operands = place("no_parts")
    module.execute(*operands.arguments)
    assert module.WORKSPACE_SIZE == held_bytes() == 0


# Arguments


def test_defaults(load_case: Load, place: Place) -> None:
    module = load_case("scalars")
    operands = place("scalars")
    assert [operand.default for operand in module.OPERANDS[:8]] == [None] * 8
    assert [operand.default for operand in module.OPERANDS[8:]] == [6, 9, 12, 15, 18, 21]
    for operand in module.OPERANDS[8:]:
        operands.values[operand.uid] = operand.default
    module.execute(*operands.arguments[:8])
    operands.check()
    operands.fill()
    for operand in module.OPERANDS[8:]:
        operands.values[operand.uid] = operand.default
    module.execute_uids({uid: value for uid, value in operands.by_uid.items() if uid < 20})
    operands.check()


def test_number_of_arguments(load_case: Load, place: Place, standin: Standin) -> None:
    module = load_case("norm")
    operands = place("norm")
    before = call_counts(standin)
    arguments = operands.arguments
    for wrong in ([], arguments[:-1], [*arguments, 0, 0, 0]):
        with pytest.raises(TypeError, match=r"execute\(\)"):
            module.execute(*wrong)
    with pytest.raises(TypeError, match="nonsense"):
        module.execute(*arguments, nonsense=1)
    with pytest.raises(TypeError, match="x_ptr"):
        module.execute(*arguments, x_ptr=arguments[0])
    assert call_counts(standin) == before
    module.execute(*arguments)
    operands.check()


def test_wrong_uids(load_case: Load, place: Place, standin: Standin) -> None:
    module = load_case("norm")
    operands = place("norm")
    before = call_counts(standin)
    for operand in module.OPERANDS:
        some = {uid: value for uid, value in operands.by_uid.items() if uid != operand.uid}
        for missing in (some, {**some, operand.uid: None}, {**some, str(operand.uid): 16}):
            with pytest.raises(OperandError, match=f"uid {operand.uid}") as caught:
                module.execute_uids(missing)
            assert caught.value.argument == operand.argument
    for unknown in (99, -1, "x", "1", None):
        with pytest.raises(OperandError, match=f"{unknown!r}"):
            module.execute_uids({**operands.by_uid, unknown: 16})
    assert call_counts(standin) == before
    operands.check_untouched()
    module.execute_uids(operands.by_uid)
    operands.check()

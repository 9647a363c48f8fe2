"""Bound calls: they compute what `execute` does, check what is set, and read nothing again."""

from __future__ import annotations

import ctypes
import gc
import struct
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.families import case_of
from support.launch_recording import counts, launched
from support.overriding import with_m
from support.standin import Standin

import cudnn_bindgen
from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, PlanNotLoadedError

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]

record = pytest.mark.parametrize("policy", ["record"], indirect=True)
ROOM = 4096


@pytest.fixture
def served() -> str:
    return "module"


def bind(module: Any, operands: Any, **options: Any) -> Any:
    """A call bound to a case's addresses and scalars, by the names of `run`."""
    return module.bind(**named(operands), **options)


def named(operands: Any) -> dict[str, Any]:
    """What `run` is given, by name."""
    by_uid = operands.by_uid
    case = operands.case
    return {one.name: by_uid[one.uid] for one in case.operands} | {
        one.argument: by_uid[one.uid] for one in case.binding.scalars
    }


@pytest.mark.parametrize("name", CASES)
def test_a_bound_call_does_what_execute_does(load_case: Load, place: Place, name: str) -> None:
    module, operands = load_case(name), place(name)
    call = bind(module, operands)
    for _ in range(3):
        operands.fill(keep_scalars=True)
        call()
        operands.check()
    operands.fill()
    for scalar in operands.case.binding.scalars:
        setattr(call, scalar.argument, operands.values[scalar.uid])
    call(stream=2)
    operands.check()


@pytest.mark.parametrize("name", ["thd", "norm"])
def test_what_is_set_is_launched(
    load_case: Load, place: Place, standin: Standin, policy: str, name: str
) -> None:
    module, operands = load_case(name), place(name)
    call = bind(module, operands)
    home = dict(operands.addresses)
    away = {uid: standin.alloc(ROOM) for uid in home}
    for places in (away, home, away, home):
        for one in operands.case.operands:
            operands.addresses[one.uid] = places[one.uid]
            setattr(call, one.name, places[one.uid])
            assert getattr(call, one.name) == places[one.uid]
            operands.fill(keep_scalars=True)
            call()
            operands.check()
    assert module.launch_path() == policy
    for address in away.values():
        standin.free(address)


@record
def test_only_nodes_of_what_changed_are_patched(
    load_launch: Any, place: Place, standin: Standin
) -> None:
    """Of a memset of the workspace and a chain of kernels, those with the operand that was set."""
    module, operands = load_launch("norm", "split"), place(launched("norm", "split"))
    call = bind(module, operands)
    for _ in range(2):
        call()
    last = [one for one in operands.case.operands if one.role == "output"][-1]
    home, block = operands.addresses[last.uid], standin.alloc(ROOM)
    for address in (block, home, block):
        operands.addresses[last.uid] = address
        setattr(call, last.name, address)
        operands.fill(keep_scalars=True)
        before = standin.calls("cuGraphExecKernelNodeSetParams")
        call()
        operands.check()
        assert standin.calls("cuGraphExecKernelNodeSetParams") == before + 2, "sum and scale"
        call()
        assert standin.calls("cuGraphExecKernelNodeSetParams") == before + 2, "nothing changed"
    assert standin.calls("cuGraphExecMemsetNodeSetParams") == 0
    assert counts(module) == (1, 4, 3)
    operands.addresses[last.uid] = home
    standin.free(block)


def test_names_are_those_of_run(load_case: Load, place: Place) -> None:
    module, operands = load_case("norm"), place("norm")
    call = bind(module, operands, stream=2)
    names = [name for name in dir(call) if not name.startswith("__")]
    assert names == sorted([*named(operands), "workspace", "stream"])
    assert {name: getattr(call, name) for name in named(operands)} == named(operands)
    assert (call.stream, call.workspace) == (2, None)
    assert isinstance(call, module.BoundCall)
    for wrong, said in (("epz", "did you mean 'eps'"), ("zzz", "it has x, ")):
        for use in (lambda w=wrong: setattr(call, w, 1), lambda w=wrong: getattr(call, w)):
            with pytest.raises(AttributeError, match=f"no attribute '{wrong}': {said}"):
                use()
    with pytest.raises(AttributeError):
        del call.x
    with pytest.raises(TypeError, match="unexpected keyword argument 'xx'"):
        module.bind(**named(operands), xx=1)
    with pytest.raises(TypeError, match=r"missing 1 required argument: x \(uid 1, input"):
        module.bind(**{k: v for k, v in named(operands).items() if k != "x"})
    with pytest.raises(TypeError):
        call(2)
    assert "bound call of norm" in repr(call)


def test_what_is_refused_leaves_what_was_bound(load_case: Load, place: Place) -> None:
    module, operands = load_case("norm"), place("norm")
    call = bind(module, operands)
    for name, wrong, error in (
        ("x", 0, OperandError),
        ("x", operands.by_name["x_ptr"] + 1, OperandError),
        ("x", -1, OperandError),
        ("x", None, OperandTypeError),
        ("x", "x", OperandTypeError),
        ("eps", "x", OperandTypeError),
        ("workspace", 64, OperandError),
        ("workspace", "x", OperandTypeError),
        ("stream", "x", OperandTypeError),
    ):
        with pytest.raises(error, match=f"^{name}"):
            setattr(call, name, wrong)
        operands.fill(keep_scalars=True)
        call()
        operands.check()


def test_it_is_made_by_bind_alone(load_case: Load) -> None:
    kind = load_case("norm").BoundCall
    with pytest.raises(TypeError, match=r"bind\(\)"):
        kind()
    empty = kind.__new__(kind)
    for use in (empty, lambda: setattr(empty, "x", 1), lambda: empty.nothing, lambda: kind.nothing):
        with pytest.raises((TypeError, AttributeError)):
            use()
    repr(empty)


def test_the_callers_workspace_and_stream(load_case: Load, place: Place, standin: Standin) -> None:
    module, operands = load_case("thd"), place("thd")
    size = module.workspace_size()
    block, stream = standin.alloc(size), standin.stream()
    call = bind(module, operands, stream=stream, workspace=block)
    call()
    operands.check()
    assert ctypes.string_at(block, size) == b"\xa5" * size
    call.workspace, call.stream = None, 0
    ctypes.memset(block, 0, size)
    call()
    assert ctypes.string_at(block, size) == bytes(size)
    standin.destroy_stream(stream)
    standin.free(block)


def test_plans_that_change(load_case: Load, place: Place) -> None:
    module, operands = load_case("thd"), place("thd")
    call = bind(module, operands)
    call()
    module.close()
    with pytest.raises(PlanNotLoadedError):
        call()
    module.load_plan(CASES["thd"].plan)
    operands.fill()
    call()
    operands.check()


def test_it_keeps_what_serves_it(standin: Standin, place: Place) -> None:
    """Without a module nobody else does, and who forgets a graph unloads its plans."""
    operands = place("thd")
    call = bind(cudnn_bindgen.load(CASES["thd"].plan, name="thd"), operands)
    gc.collect()
    call()
    operands.check()
    gone = weakref.ref(call)
    del call
    gc.collect()
    assert gone() is None


def test_overrides_are_those_of_the_time_of_binding(product: Any, arrays: Place) -> None:
    operands, ov = arrays(), product.Overrides()
    ov.set(M=5)
    *addresses, alpha = operands.arguments
    call = product.bind(*addresses, alpha=alpha, overrides=ov)
    ov.set(M=7)
    for _ in range(3):
        operands.clear()
        call()
        operands.check(with_m(5))
    call = product.bind(*addresses, alpha=alpha, overrides=product.Overrides())
    operands.clear()
    call()
    operands.check({})


def test_a_family_binds_one_member(load: Load, place: Place) -> None:
    rows = load("rows")
    operands = place(case_of("rows", 32))
    [key] = rows.KEY
    call = bind(rows, operands, **{key: 32})
    call()
    operands.check()
    with pytest.raises(OperandError, match=f"^{key}"):
        bind(rows, operands, **{key: 33})
    assert repr(call) == f"<cudnn_bindgen bound call of rows[{key}=32]>"


# A C array of addresses


@pytest.mark.parametrize("name", ["thd", "scalars", "norm"])
def test_execute_slots(load_case: Load, place: Place, name: str) -> None:
    module, operands = load_case(name), place(name)
    formats = {"FLOAT": "f", "DOUBLE": "d", "INT32": "i", "INT64": "q", "HALF": "e"}
    array = (ctypes.c_void_p * len(module.OPERANDS))(*operands.addresses.values())
    held = []
    for slot, one in enumerate(module.OPERANDS):
        if one.role != "scalar":
            continue
        if one.default is not None:
            operands.values[one.uid] = one.default
            continue
        value = operands.by_uid[one.uid]
        if one.data_type == "BFLOAT16":
            bits = struct.pack("f", value)[2:]
        else:
            bits = struct.pack(formats[one.data_type], value)
        held.append(ctypes.create_string_buffer(bits))
        array[slot] = ctypes.addressof(held[-1])
    address = ctypes.addressof(array)
    module.execute_slots(address, len(array), stream=2)
    operands.check()
    for wrong in (len(array) - 1, len(array) + 1, 0):
        with pytest.raises(OperandError, match=f"^count: expected {len(array)}"):
            module.execute_slots(address, wrong)
    for wrong in (0, address + 1):
        with pytest.raises(OperandError, match=r"^addresses"):
            module.execute_slots(wrong, len(array))
    for slot in [slot for slot, one in enumerate(module.OPERANDS) if one.default is None]:
        array[slot], before = None, array[slot]
        with pytest.raises(OperandError, match=f"^{module.OPERANDS[slot].argument}: "):
            module.execute_slots(address, len(array))
        array[slot] = before
    operands.check()

"""Every public function of emitted modules, given what no caller means: a typed error, or success.

What an odd object raises itself passes through unchanged.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.families import case_of
from support.standin import Standin

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.runtime.errors import BindingError, OperandError, OperandTypeError, describe
from cudnn_bindgen.runtime.lifetimes import record_stream

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Give = Callable[[Any], Any]
"""A call that passes one argument."""

HUGE = 10**5000


class OwnError(Exception):
    """What an odd object raises."""


def raising(*names: str) -> Any:
    """An object whose methods of these names raise."""

    def fail(*arguments: Any, **options: Any) -> Any:
        raise OwnError

    return type("Raising", (), dict.fromkeys(names, fail))()


def giving(value: Any, *names: str) -> Any:
    """An object whose methods of these names return a value."""

    def give(*arguments: Any, **options: Any) -> Any:
        return value

    return type("Giving", (), dict.fromkeys(names, give))()


class Closed:
    """No attribute of it can be asked for."""

    def __getattr__(self, name: str) -> Any:
        raise OwnError


class Shared:
    """A producer of DLPack with answers of its own."""

    def __init__(self, capsule: Any, device: Any = (2, 0)) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> Any:
        return self.device


def nested(depth: int) -> list[Any]:
    result: list[Any] = []
    for _ in range(depth):
        result = [result]
    return result


def interface(**fields: Any) -> Any:
    whole = {"shape": (2,), "typestr": "<f4", "data": (256, False), "version": 3}
    return SimpleNamespace(__cuda_array_interface__=whole | fields)


PLAIN: list[Any] = [
    *(HUGE, -HUGE, -1, 2**64, -(2**63) - 1, math.nan, math.inf, 1.5, 1j, None, True),
    *("", "x", "\0", "\ud800", "x" * 100_000, b"", b"x", bytearray(b"x"), memoryview(b"x")),
    *([], [HUGE], [None], (), {}, {HUGE: HUGE}, {"x": 5}, set(), range(3), nested(100_000)),
    *(object(), object, len, Ellipsis, OwnError(), sys),
]
SPECIAL = [
    *("__index__", "__int__", "__float__", "__iter__", "__len__", "__hash__", "__eq__", "__bool__"),
    *("__repr__", "__str__", "__getitem__", "__fspath__", "__cuda_stream__", "__dlpack__"),
    *("__dlpack_device__", "data_ptr", "get", "items", "keys"),
]
STREAMS: list[Any] = [
    *(5, HUGE, None, "x", (), (0,), (0, 1, 2), (1, 256), (HUGE, 256), ("0", 256), (0, -1)),
    *((0, HUGE), (0, None), (0, "x"), (None, None), {0: 1, 1: 2}, object()),
]
INTERFACES: list[dict[str, Any]] = [
    *({"shape": 5}, {"shape": (HUGE,)}, {"shape": (-1,)}, {"shape": (None,)}, {"shape": "x"}),
    *(
        {"shape": itertools.count()},
        {"typestr": 5},
        {"typestr": "x"},
        {"typestr": "<f" + "9" * 5000},
    ),
    *({"typestr": ">f4"}, {"typestr": "<f0"}, {"data": 5}, {"data": (HUGE, False)}),
    *({"data": (None, False)}, {"data": (1, 2, 3)}, {"strides": 5}, {"strides": (HUGE,)}),
    *({"shape": (2**62, 2**62), "strides": (0, 0)}, {"shape": (2**40,) * 4}),
    *({"strides": (None,)}, {"stream": HUGE}, {"stream": "x"}, {"stream": []}),
]


def odd_objects() -> Iterator[Any]:
    yield from PLAIN
    yield itertools.count()
    yield Closed()
    for name in SPECIAL:
        yield raising(name)
        for value in (None, "x", HUGE, -1, [], object()):
            yield giving(value, name)
    for value in STREAMS:
        yield giving(value, "__cuda_stream__")
        yield SimpleNamespace(__cuda_stream__=value)
        yield SimpleNamespace(cuda_stream=value)
        yield SimpleNamespace(ptr=value)
    for value in (None, 5, HUGE, "x", object()):
        yield SimpleNamespace(data_ptr=value)
        yield Shared(value)
        yield Shared(None, value)
        yield Shared(None, (value,))
        yield SimpleNamespace(__cuda_array_interface__=value)
    for fields in INTERFACES:
        yield interface(**fields)
    numpy = pytest.importorskip("numpy")
    yield from (numpy.zeros(3), numpy.array(5), numpy.array([], dtype=object), numpy.float32(1.5))


def check(give: Give, odd: Any) -> None:
    """Pass one odd object, and look at what is raised."""
    try:
        give(odd)
    except (OwnError, GraphFormatError):
        return
    except OSError as error:
        assert error.errno, "no such file, and the like"
    except BindingError as error:
        text = str(error)
        assert 0 < len(text) < 1000
        if isinstance(error, OperandError):
            assert error.argument
            assert error.expected
            assert error.got


def check_all(calls: dict[str, Give]) -> None:
    wrong = []
    for name, give in calls.items():
        for odd in odd_objects():
            try:
                check(give, odd)
            except Exception as error:
                wrong.append(f"{name} of {describe(odd)}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def common_calls(module: ModuleType) -> dict[str, Give]:
    """Functions that every module has, and that take no operands."""
    return {
        "load_plan": lambda odd: None if odd is None else module.load_plan(odd),
        "on_missing": lambda odd: module.load_plan(b"", odd),
        "set_launch_policy": module.set_launch_policy,
        "set_checks": lambda odd: (module.set_checks(odd), module.set_checks(True)),
    }


def operand_calls(module: ModuleType, right: dict[str, Any], scalars: list[str]) -> dict[str, Give]:
    """`execute` and `run` with one argument odd; all others are right."""
    names = [name for name in right if name not in scalars]
    layouts = getattr(module, "_binding", module).data[0].layouts
    of_run = {name: layout[0] for name, layout in zip(names, layouts, strict=True)}
    run = {of_run.get(name, name): value for name, value in right.items()}
    chosen = {names[0], names[-1], *scalars}
    calls: dict[str, Give] = {}
    for name in (*chosen, "workspace_ptr", "stream"):
        calls[f"execute {name}"] = lambda odd, name=name: module.execute(**{**right, name: odd})
    for name in (*(of_run.get(name, name) for name in chosen), "workspace", "stream", "check"):
        calls[f"run {name}"] = lambda odd, name=name: module.run(**{**run, name: odd})
        calls[f"bind {name}"] = lambda odd, name=name: module.bind(**{**run, name: odd})()
    bound = module.bind(**run)
    for name in {*(of_run.get(name, name) for name in chosen), "workspace", "stream"} & {
        *dir(bound)
    }:
        calls[f"set {name}"] = lambda odd, name=name: setattr(bound, name, odd)
    calls["call stream"] = lambda odd: bound(stream=odd)
    return calls


@pytest.mark.parametrize("name", ["thd", "parts", "bare_scalars"])
def test_modules(load_case: Load, place: Place, standin: Standin, name: str) -> None:
    module = load_case(name)
    operands = place(name)
    scalars = [operand.argument for operand in module.OPERANDS if operand.role == "scalar"]
    right = operands.by_name
    uid = module.OPERANDS[0].uid
    nulls = (ctypes.c_void_p * len(module.OPERANDS))()
    by_uid = {operand.uid: right[operand.argument] for operand in module.OPERANDS}
    calls = common_calls(module) | operand_calls(module, right, scalars)
    calls |= {
        "execute_uids": module.execute_uids,
        "execute_uids value": lambda odd: module.execute_uids({**by_uid, uid: odd}),
        "execute_uids key": lambda odd: (
            module.execute_uids({**by_uid, odd: 0}) if _is_hashable(odd) else None
        ),
        "execute_uids workspace_ptr": lambda odd: module.execute_uids(by_uid, workspace_ptr=odd),
        "execute_uids stream": lambda odd: module.execute_uids(by_uid, stream=odd),
        "execute_slots count": lambda odd: module.execute_slots(ctypes.addressof(nulls), odd),
    }
    check_all(calls)
    operands.fill()
    module.execute(**operands.by_name)
    operands.check()
    for function in ("close", "workspace_size", "launch_path", "launch_stats", "launch_nodes"):
        with pytest.raises(TypeError, match=function):
            getattr(module, function)(*range(50))


def _is_hashable(odd: Any) -> bool:
    try:
        hash(odd)
    except (OwnError, TypeError):
        return False
    return True


def test_overrides(product: ModuleType, arrays: Any, standin: Standin) -> None:
    own = arrays()
    ov = product.Overrides()
    calls = common_calls(product) | {
        "set": lambda odd: ov.set(M=odd),
        "set two": lambda odd: ov.set(M=2, N=odd),
        "dim": lambda odd: ov.set_a(1, odd, 4),
        "stride": lambda odd: ov.set_a(1, 2, 4, stride_m=odd),
        "override operand": lambda odd: ov.override(odd, [1, 2, 4]),
        "override dims": lambda odd: ov.override("a", odd),
        "override strides": lambda odd: ov.override("a", [1, 2, 4], odd),
        "override dim": lambda odd: ov.override("a", [1, odd, 4]),
        "override stride": lambda odd: ov.override("a", [1, 2, 4], [8, 4, odd]),
        "equal": lambda odd: isinstance(odd, type) or ov == odd,
        "workspace_size": product.workspace_size,
        "execute": lambda odd: odd is None or product.execute(*own.arguments, overrides=odd),
        "records": lambda odd: product.set_launch_policy("direct", odd),
        "policy": lambda odd: product.set_launch_policy(odd, 5),
    }
    check_all(calls)
    ov.reset()
    assert ov == product.Overrides()
    ov.set(M=2)
    for wrong in (("auto", 0), ("other", 7)):
        with pytest.raises(OperandError):
            product.set_launch_policy(*wrong)


@pytest.mark.parametrize("name", ["rows", "grid"])
def test_families(load: Load, place: Place, standin: Standin, name: str) -> None:
    module = load(name)
    key = next(iter(module.MEMBERS))
    operands = place(case_of(name, *key))
    keys = dict(zip(module.KEY, key, strict=True))
    scalars = [o.argument for o in module.MEMBERS[key].operands if o.role == "scalar"]
    calls = common_calls(module) | operand_calls(module, operands.by_name | keys, [*scalars, *keys])
    for number in module.KEY:
        for function in ("workspace_size", "launch_path", "launch_nodes"):
            calls[f"{function} {number}"] = lambda odd, function=function, number=number: getattr(
                module, function
            )(**{**keys, number: odd})
    check_all(calls)
    operands.fill()
    module.execute(**operands.by_name, **keys)
    operands.check()


def test_record_stream() -> None:
    check_all(
        {
            "stream": record_stream,
            "tensor": lambda odd: record_stream(5, odd),
            "attribute": lambda odd: record_stream(5, SimpleNamespace(record_stream=odd)),
        }
    )


@pytest.mark.parametrize(
    ("give", "argument", "expected", "got"),
    [
        (
            lambda m: m.execute_uids(5),
            "arguments",
            "a mapping from uids to addresses and values",
            "5",
        ),
        (lambda m: m.load_plan(5), "plan", "bytes of a plan file, or its path", "5"),
        (
            lambda m: m.load_plan(HUGE),
            "plan",
            "bytes of a plan file, or its path",
            "an int of 16610 bits",
        ),
        (
            lambda m: m.set_launch_policy(HUGE),
            "policy",
            "one of auto, direct, record",
            "an int of 16610 bits",
        ),
        (
            lambda m: m.load_plan(b"", HUGE),
            "on_missing",
            '"refuse" or "plan"',
            "an int of 16610 bits",
        ),
        (
            lambda m: m.run(*range(256, 268), stream=giving(5, "__cuda_stream__")),
            "stream",
            "version and address from __cuda_stream__",
            "5",
        ),
        (
            lambda m: m.run(*range(256, 268), stream=giving((7, 0), "__cuda_stream__")),
            "stream",
            "version 0 of __cuda_stream__",
            "7",
        ),
        (
            lambda m: m.run(Shared(5), *range(256, 267)),
            "q",
            "a DLPack capsule from __dlpack__",
            "5",
        ),
    ],
)
def test_what_is_said(thd: ModuleType, give: Give, argument: str, expected: str, got: str) -> None:
    with pytest.raises(OperandError) as caught:
        give(thd)
    error = caught.value
    assert (error.argument, error.expected, error.got) == (argument, expected, got)


def test_what_is_said_of_overrides(product: ModuleType) -> None:
    ov = product.Overrides()
    with pytest.raises(
        OperandError, match=r"^M: expected a number of 64 bits, got an int of 16610"
    ):
        ov.set(M=HUGE)
    with pytest.raises(OperandTypeError, match=r"^a: expected a sequence of dims, got 5$"):
        ov.override("a", 5)
    with pytest.raises(OperandError, match=r"^a: expected 3 dims .*, got more$"):
        ov.override("a", itertools.count())
    with pytest.raises(
        OperandError, match=r"^records: expected 1 to 4096, got an int of 16610 bits"
    ):
        product.set_launch_policy("auto", HUGE)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "None"),
        (True, "True"),
        (2**64, str(2**64)),
        (HUGE, "an int of 16610 bits"),
        (math.nan, "nan"),
        ("x", "'x'"),
        ("x" * 50, "'" + "x" * 36 + "..."),
        (b"\0", r"b'\x00'"),
        ([HUGE], "an object of type list"),
        (raising("__repr__"), "an object of type Raising"),
    ],
    ids=range(10),  # Python refuses to print one of the values
)
def test_describing(value: Any, said: str) -> None:
    assert describe(value) == said

"""Bound calls on a GPU: whatever operands change, the bytes are those of the frontend."""

from __future__ import annotations

import ctypes
import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from running import Call, as_passed, bare  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 30


@pytest.fixture(params=["direct", "record"])
def policy(request, case):
    case.module.set_launch_policy(request.param)
    yield request.param
    case.module.set_launch_policy("auto")


@pytest.mark.parametrize("as_address", [False, True], ids=["tensors", "addresses"])
def test_random_changes_of_operands(case, policy, as_address):
    """What is replaced is filled with 0xFF: a stale address could not give the right bytes."""
    call = Call(case)
    bound = case.module.bind(**call.passed, **call.scalars)
    choose = random.Random(case.name)
    replaced = []
    for _ in range(ROUNDS):
        changed = choose.sample(call.operands, choose.randrange(len(call.operands) + 1))
        for operand in changed:
            old = call.tensors[operand.uid]
            new = graphs.clone({operand.uid: old})[operand.uid]
            passed = as_passed(operand, new)
            setattr(bound, bare(operand), passed.data_ptr() if as_address else passed)
            graphs.storage(old).fill_(0xFF)
            replaced.append(old)  # its memory is nobody else's
            call.tensors[operand.uid] = new
        call.poison()
        bound()
        call.check()
    if case.module.launch_stats()["recorded"]:
        assert case.module.launch_path() == policy


def test_execute_gives_the_same_bytes(case, policy):
    call = Call(case)
    bound = case.module.bind(**call.passed, **call.scalars)
    addresses = case.arguments(call.tensors)
    operands = [one for one in case.module.OPERANDS if one.role != "scalar"]
    slots = (ctypes.c_void_p * len(case.module.OPERANDS))(*addresses[: len(operands)])
    ways = [bound, lambda: case.module.execute(*addresses)]
    if not call.scalars:  # of those that have no value in the file
        ways.append(lambda: case.module.execute_slots(ctypes.addressof(slots), len(slots)))
    for way in 3 * ways:
        call.poison()
        way()
        call.check()


def test_outputs_are_made_once(case):
    call = Call(case)
    outputs = [bare(operand) for operand in call.outputs]
    inputs = {name: one for name, one in call.passed.items() if name not in outputs}
    bound = case.module.bind(**inputs, **call.scalars)
    first = bound()
    call.check_returned(first)
    again = bound()
    call.check_returned(again)
    assert again is first


def test_the_current_stream_is_asked_at_each_call(case):
    call = Call(case)
    bound = case.module.bind(**call.passed, **call.scalars)
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        call.poison()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            bound()
            assert not stream.query(), "the call waits on the stream that was current"
        call.check()

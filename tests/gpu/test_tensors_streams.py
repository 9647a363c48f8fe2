"""On which stream `run` works, inside and outside captures, and what it leaves behind."""

from __future__ import annotations

import gc
import resource
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from running import Call, Dlpack, bare, found_case  # noqa: E402

from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402
from cudnn_bindgen.runtime.lifetimes import record_stream  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 5
CYCLES = 50_000_000
"""Of the GPU: some 25 ms, in which the host has launched all that follows."""


class Protocol:
    """An object that only has `__cuda_stream__`."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.cuda_stream


def fill_late(call, stream):
    """Let the inputs have other contents until `stream` has slept."""
    late = {}
    for operand in call.operands:
        if operand.role == "input":
            target = graphs.storage(call.tensors[operand.uid])
            late[operand.uid] = target, target.clone()
            target.zero_()
    call.poison()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        for target, source in late.values():
            target.copy_(source, non_blocking=True)


# Streams


def test_the_current_stream(case):
    """The work is ordered after what the current stream was given before, and on no other."""
    for _ in range(2):
        call, stream = Call(case), torch.cuda.Stream()
        fill_late(call, stream)
        with torch.cuda.stream(stream):
            call.run()
        stream.synchronize()
        call.check()


@pytest.mark.parametrize(
    "kind", [lambda s: s, lambda s: s.cuda_stream, Protocol], ids=["torch", "int", "protocol"]
)
def test_a_given_stream(case, kind):
    call, stream, other = Call(case), torch.cuda.Stream(), torch.cuda.Stream()
    fill_late(call, stream)
    with torch.cuda.stream(other):
        call.run(stream=kind(stream))
    stream.synchronize()
    call.check()


def test_the_default_stream(case):
    call = Call(case)
    fill_late(call, torch.cuda.default_stream())
    call.run()
    call.check()
    fill_late(call, torch.cuda.default_stream())
    call.run(stream=0)
    call.check()


def test_addresses_go_on_the_legacy_default_stream(case):
    call, stream = Call(case), torch.cuda.Stream()
    fill_late(call, torch.cuda.default_stream())
    with torch.cuda.stream(stream):
        call.run(**{name: tensor.data_ptr() for name, tensor in call.passed.items()})
    torch.cuda.default_stream().synchronize()
    call.check()


def test_outputs_are_allocated_on_the_current_stream(case):
    stream = torch.cuda.Stream()
    for _ in range(ROUNDS):
        call = Call(case)
        fill_late(call, stream)
        with torch.cuda.stream(stream):
            returned = call.run(*call.outputs)
        call.check_returned(returned)


def test_producers_are_asked_to_order_their_work_before(case):
    call, producer, stream = Call(case), torch.cuda.Stream(), torch.cuda.Stream()
    if any(tensor.itemsize == 1 for tensor in call.passed.values()):
        pytest.skip("not every version of DLPack has types of one byte")
    fill_late(call, producer)
    objects = {name: Dlpack(tensor) for name, tensor in call.passed.items()}
    with torch.cuda.stream(producer):
        call.run(**objects, stream=stream)
    stream.synchronize()
    call.check()
    assert all(one.streams == [stream.cuda_stream] for one in objects.values())


def test_threads_have_current_streams_of_their_own(case):
    start = threading.Barrier(2)

    def work(calls, stream):
        with torch.cuda.stream(stream):
            start.wait(60)
            for index in range(50):
                call = calls[index % len(calls)]
                case.poison(call.tensors)
                call.run()
                case.assert_same(call.tensors, call.expected)  # on this stream, so after the call

    jobs = [([Call(case), Call(case)], torch.cuda.Stream()) for _ in range(2)]
    torch.cuda.synchronize()
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work, *job) for job in jobs]:
            future.result(120)


# Captures


def refill(call):
    """Give the operands of a capture other contents; return what a replay must make of them."""
    changed = call.case.fresh()
    for operand in call.operands:
        target = graphs.storage(call.tensors[operand.uid])
        target.copy_(graphs.storage(changed[operand.uid]))
    return Call(call.case, call.tensors)


@pytest.mark.parametrize("workspace", ["callers", "runtimes"])
def test_replay_of_a_capture(case, workspace):
    call, stream, graph = Call(case), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    block = case.workspace() if workspace == "callers" else None
    with torch.cuda.stream(stream):
        call.check_works(workspace=block)  # the runtime takes its block before the capture
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        call.run(workspace=block)
    for _ in range(ROUNDS):
        changed = refill(call)
        graph.replay()
        changed.check()


def test_replay_of_a_capture_that_allocates(case):
    call, stream, graph = Call(case), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    block = case.workspace()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        returned = call.run(*call.outputs, workspace=block)
    for _ in range(ROUNDS):
        changed = refill(call)
        graph.replay()
        changed.check_returned(returned)


def test_what_is_refused_does_not_end_a_capture(case):
    call, stream, graph = Call(case), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    block, name = case.workspace(), next(iter(call.passed))
    wrong = call.passed[name].cpu()
    call.poison()
    with torch.cuda.graph(graph, stream=stream):
        with pytest.raises(OperandError):
            call.run(**{name: wrong}, workspace=block)
        call.run(workspace=block)
    graph.replay()
    call.check()


# Lifetimes


def test_record_stream_keeps_memory_until_the_work_is_done(case):
    stream, call = torch.cuda.Stream(), Call(case)
    names = [bare(operand) for operand in call.operands if operand.role == "input"]
    name = max(names, key=lambda name: call.passed[name].numel())
    copy = graphs.clone({0: call.passed[name]})[0]
    call.poison()
    torch.cuda.empty_cache()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
    call.run(**{name: copy}, stream=stream)
    record_stream(stream, copy)
    address, size = copy.data_ptr(), graphs.storage(copy).numel()
    del copy
    others = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(4)]
    assert address not in [other.data_ptr() for other in others]
    call.check()


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize("kind", ["given", "left_out", "refused", "dlpack"])
@pytest.mark.parametrize("name", ["plan_matmul_bias_relu", "plan_scale_by_value"])
def test_many_calls_leave_nothing_behind(cases, name, kind):
    call = Call(found_case(cases, name))
    run = call.module.run
    arguments = list(call.passed.values())
    scalars = call.scalars
    if kind == "left_out":
        arguments = arguments[: -len(call.outputs)]
    if kind == "dlpack":
        arguments = [Dlpack(tensor) for tensor in arguments]
    if kind == "refused":
        # The last of all is wrong: every other one has been taken by then.
        arguments[-1] = arguments[-1].view(torch.int16)

    def many(count):
        for number in range(count):
            try:
                run(*arguments, **scalars)
            except OperandError:
                assert kind == "refused"
            else:
                assert kind != "refused"
            if kind == "dlpack":
                for one in arguments:
                    one.streams.clear()
            if number % 100 == 0:
                torch.cuda.synchronize()

    def state():
        gc.collect()
        torch.cuda.synchronize()
        tensors = [*call.passed.values(), *arguments, torch.Tensor, torch.dtype, None]
        return [*map(sys.getrefcount, tensors), torch.cuda.memory_allocated()]

    many(2000)
    before, size, blocks = state(), resident(), sys.getallocatedblocks()
    many(10_000 if kind == "refused" else 100_000)
    # None and types have counts that other threads and caches move a little.
    assert all(abs(a - b) < 50 for a, b in zip(before, state(), strict=True))
    assert before[: len(call.passed)] == state()[: len(call.passed)]
    assert abs(sys.getallocatedblocks() - blocks) < 1000
    assert resident() - size < 4 << 20
    if kind == "given":
        call.check_works()

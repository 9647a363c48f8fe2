"""A generated module against the frontend on a GPU: the same bytes, whatever the circumstances."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)

from cudnn_bindgen.runtime.errors import (  # noqa: E402
    OperandError,
    PlanMismatchError,
    PlanNotLoadedError,
)

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 5
BENCHMARKS = str(Path(graphs.__file__).parent)
STREAMS = ["own", "legacy", "per_thread"]


def raw_stream(kind):
    """Return a stream object to keep alive, if any, and the raw cudaStream_t."""
    if kind == "own":
        stream = torch.cuda.Stream()
        return stream, stream.cuda_stream
    return None, {"legacy": 0, "per_thread": 2}[kind]


@pytest.mark.parametrize("workspace", ["callers", "runtimes"])
@pytest.mark.parametrize("kind", STREAMS)
def test_execute_gives_the_frontends_bytes(case, kind, workspace):
    _keep, stream = raw_stream(kind)
    block = case.workspace() if workspace == "callers" else None
    for _ in range(ROUNDS):
        tensors = case.fresh()
        expected = case.expected(tensors)  # synchronises the device
        address = block.data_ptr() if block is not None else 0
        case.module.execute(*case.arguments(tensors), workspace_ptr=address, stream=stream)
        torch.cuda.synchronize()
        case.assert_same(tensors, expected)


def test_execute_uids_equals_execute(case):
    tensors = case.fresh()
    expected = case.expected(tensors)
    bound = [operand for operand in case.module.OPERANDS if operand.uid in tensors]
    by_uid = {o.uid: value for o, value in zip(bound, case.arguments(tensors), strict=True)}
    case.module.execute_uids(by_uid)
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)
    case.poison(tensors)
    stream, block = torch.cuda.Stream(), case.workspace()
    torch.cuda.synchronize()
    case.module.execute_uids(by_uid, workspace_ptr=block.data_ptr(), stream=stream.cuda_stream)
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)


@pytest.mark.parametrize("workspace", ["callers", "runtimes"])
def test_two_threads_at_once(case, workspace):
    start = threading.Barrier(2)

    def call(sets, stream, block):
        address = block.data_ptr() if block is not None else 0
        with torch.cuda.stream(stream):
            start.wait(60)
            for index in range(50):
                tensors, expected = sets[index % len(sets)]
                case.poison(tensors)
                case.module.execute(
                    *case.arguments(tensors), workspace_ptr=address, stream=stream.cuda_stream
                )
                case.assert_same(tensors, expected)  # on this stream, so after the call

    jobs = []
    for _ in range(2):
        sets = [(tensors, case.expected(tensors)) for tensors in (case.fresh(), case.fresh())]
        block = case.workspace() if workspace == "callers" else None
        jobs.append((sets, torch.cuda.Stream(), block))
    torch.cuda.synchronize()
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(call, *job) for job in jobs]:
            future.result(120)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_thread_that_never_touched_cuda(case, kind):
    _keep, stream = raw_stream(kind)
    tensors = case.fresh()
    expected, arguments = case.expected(tensors), case.arguments(tensors)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(case.module.execute, *arguments, stream=stream).result(60)
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)


def test_replay_of_a_capture_with_changed_inputs(case):
    tensors, stream, block = case.fresh(), torch.cuda.Stream(), case.workspace()
    arguments = case.arguments(tensors)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        case.module.execute(*arguments, workspace_ptr=block.data_ptr(), stream=stream.cuda_stream)
    for _ in range(ROUNDS):
        changed = case.fresh()
        for uid, tensor in tensors.items():
            if tensor.is_cuda:  # a scalar's value is part of the capture
                graphs.storage(tensor).copy_(graphs.storage(changed[uid]))
            else:
                changed[uid] = tensor
        expected = case.expected(changed)
        graph.replay()
        torch.cuda.synchronize()
        case.assert_same(tensors, expected)


def test_capture_with_the_runtimes_workspace(case):
    # The runtime takes its block for a stream before the capture; the graph keeps using that block.
    tensors, stream = case.fresh(), torch.cuda.Stream()
    expected = case.expected(tensors)
    arguments = case.arguments(tensors)
    case.module.execute(*arguments, stream=stream.cuda_stream)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        case.module.execute(*arguments, stream=stream.cuda_stream)
    case.poison(tensors)
    graph.replay()
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)


# A process of its own: here every call of a module is the first one, of cuDNN's kernels too.
FIRST_CALLS = """
import json, sys
import torch
from graphs import arguments, import_module, make_operands, poison, storage

directory, names = sys.argv[1], sys.argv[2:]
torch.zeros(1, device="cuda")  # makes the CUDA context current
generator = torch.Generator("cuda").manual_seed(1)
outcomes = {}
for name in names:
    try:
        module = import_module(name, directory)
        module.load_plan()
        tensors = make_operands(module.OPERANDS, generator, "cuda")
        block = torch.empty(max(module.workspace_size(), 1), dtype=torch.uint8, device="cuda")
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        how = {"workspace_ptr": block.data_ptr(), "stream": stream.cuda_stream}

        def run(call):
            poison(module.OPERANDS, tensors)
            torch.cuda.synchronize()
            call()
            torch.cuda.synchronize()
            return [storage(tensor).clone() for tensor in tensors.values()]

        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            module.execute(*arguments(module.OPERANDS, tensors), **how)
        captured = run(graph.replay)
        direct, again = (
            run(lambda: module.execute(*arguments(module.OPERANDS, tensors), **how))
            for _ in range(2)
        )
        if not all(map(torch.equal, direct, again)):
            outcomes[name] = "same"  # no two runs are alike: nothing to compare
        else:
            outcomes[name] = "same" if all(map(torch.equal, captured, direct)) else "other bytes"
    except Exception as error:
        outcomes[name] = f"{type(error).__name__}: {error}"
print(json.dumps(outcomes))
"""


def test_first_call_of_all_inside_a_capture(working):
    script = f"import sys; sys.path.insert(0, {BENCHMARKS!r})\n{FIRST_CALLS}"
    directory, names = working[0].directory, [case.name for case in working]
    run = subprocess.run(
        [sys.executable, "-c", script, str(directory), *names],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=directory,
    )
    assert run.returncode == 0, run.stderr
    outcomes = json.loads(run.stdout.splitlines()[-1])
    assert outcomes == dict.fromkeys(names, "same")


def test_close_and_load_again(case):
    tensors = case.fresh()
    expected = case.expected(tensors)
    case.verify()
    case.module.close()
    try:
        with pytest.raises(PlanNotLoadedError):
            case.module.execute(*case.arguments(tensors))
    finally:
        case.module.load_plan()
    torch.cuda.synchronize()
    case.module.execute(*case.arguments(tensors))
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)


def test_load_plan_takes_bytes_and_paths(case, tmp_path):
    case.module.load_plan(case.plan)
    case.verify()
    path = tmp_path / "again.plan"
    path.write_bytes(case.plan)
    case.module.load_plan(path)
    case.verify()
    case.module.load_plan()
    case.verify()


@pytest.mark.parametrize("key", ["cudnnVersion", "deviceVer"])
def test_plan_of_another_cudnn_or_gpu_is_refused(case, key):
    case.verify()
    edited = case.edited_plan(key)
    try:
        with pytest.raises(PlanMismatchError) as caught:
            case.module.load_plan(edited)
        assert caught.value.plan != caught.value.here
        assert str(caught.value.plan) in str(caught.value)
        assert str(caught.value.here) in str(caught.value)
        case.verify()  # the plan that was there still serves
    finally:
        case.module.load_plan()
    case.verify()


def test_plan_of_another_graph_is_refused(case, working):
    other = next(found for found in working if found is not case)
    with pytest.raises(PlanMismatchError):
        case.module.load_plan(other.plan)
    case.verify()


@pytest.mark.parametrize("reload", [False, True], ids=["close", "close_and_load"])
def test_close_leaves_a_global_capture_on_another_thread_alone(case, working, reload):
    other = next(found for found in working if found is not case)
    other.verify()
    tensors, stream, block = case.fresh(), torch.cuda.Stream(), case.workspace()
    expected, arguments = case.expected(tensors), case.arguments(tensors)
    graph = torch.cuda.CUDAGraph()
    capturing, closed = threading.Event(), threading.Event()

    def capture():
        how = {"workspace_ptr": block.data_ptr(), "stream": stream.cuda_stream}
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="global"):
                case.module.execute(*arguments, **how)
                capturing.set()
                assert closed.wait(60)
                case.module.execute(*arguments, **how)
        finally:
            capturing.set()

    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(capture)
        # Until the capture has ended this thread must not touch CUDA through torch.
        try:
            assert capturing.wait(60)
            other.module.close()
            if reload:
                other.module.load_plan()
        finally:
            closed.set()
        future.result(120)
    if not reload:
        other.module.load_plan()
    case.poison(tensors)
    graph.replay()
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)
    other.verify()


def test_null_and_misaligned_addresses_are_named(case):
    tensors = case.fresh()
    expected, arguments = case.expected(tensors), case.arguments(tensors)
    for index, operand in enumerate(case.module.OPERANDS):
        if operand.role == "scalar":
            continue
        wrong = [0]
        if operand.alignment > 1:
            wrong.append(arguments[index] + operand.alignment // 2)
        for address in wrong:
            broken = [*arguments[:index], address, *arguments[index + 1 :]]
            with pytest.raises(OperandError) as caught:
                case.module.execute(*broken)
            assert caught.value.argument == operand.argument
            case.poison(tensors)
            torch.cuda.synchronize()
            case.module.execute(*arguments)
            torch.cuda.synchronize()
            case.assert_same(tensors, expected)

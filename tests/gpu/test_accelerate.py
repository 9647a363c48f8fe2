"""Accelerated graphs against the frontend's own on a GPU: the same bytes for the same call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
import overridden  # noqa: E402
import tensor_graphs  # noqa: E402
from overridden import Batch, Overridden  # noqa: E402
from running import as_passed, found_case  # noqa: E402

import cudnn_bindgen  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 5
# Live graphs. One that was deserialized from a plan file has lost part of its structure.
BUILT = [*graphs.BUILDERS, *tensor_graphs.BUILDERS]


@pytest.fixture(params=BUILT)
def case(request: Any, cases: Any) -> Iterator[Any]:
    found = found_case(cases, f"built_{request.param}")
    yield found
    found.kept.clear()


@pytest.fixture(params=["direct", "record"])
def accelerated(request: Any, case: Any) -> Any:
    made = cudnn_bindgen.accelerate(case.graph)
    made.module.set_launch_policy(request.param)
    return made


@pytest.fixture
def handle(frontend: Any) -> Iterator[Any]:
    """A handle with a stream of its own, and the stream."""
    import cudnn

    made, stream = cudnn.create_handle(), torch.cuda.Stream()
    cudnn.set_stream(made, stream.cuda_stream)
    yield made, stream
    torch.cuda.synchronize()
    cudnn.destroy_handle(made)


class Forms:
    """The ways to write one call: name → a function of graph, operands, workspace and handle."""

    @staticmethod
    def of_uids(graph: Any, tensors: Any, workspace: Any, handle: Any) -> None:
        graph.execute(tensors, workspace, handle=handle)

    @staticmethod
    def of_addresses(graph: Any, tensors: Any, workspace: Any, handle: Any) -> None:
        addresses = {
            uid: one.data_ptr() if one.is_cuda else one  # scalars stay on the host
            for uid, one in tensors.items()
        }
        graph.execute(addresses, workspace=workspace.data_ptr(), handle=handle)

    @staticmethod
    def of_host_addresses(graph: Any, tensors: Any, workspace: Any, handle: Any) -> None:
        graph.execute({uid: one.data_ptr() for uid, one in tensors.items()}, workspace, handle)

    @staticmethod
    def of_a_list(graph: Any, tensors: Any, workspace: Any, handle: Any) -> None:
        uids = tuple(tensors)
        graph.execute([tensors[uid] for uid in uids], workspace, handle=handle, tensor_uids=uids)

    @staticmethod
    def of_tensors_of_the_graph(graph: Any, tensors: Any, workspace: Any, handle: Any) -> None:
        keys = {uid: graph.find_tensor(uid) for uid in tensors}
        assert all(key is not None for key in keys.values())
        graph.execute({keys[uid]: one for uid, one in tensors.items()}, workspace, handle)

    @staticmethod
    def without_workspace(graph: Any, tensors: Any, workspace: Any, handle: Any) -> None:
        graph.execute(tensors, handle=handle)


FORMS = [name for name in vars(Forms) if not name.startswith("_")]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_frontends_bytes(case: Any, accelerated: Any, form: str) -> None:
    for _ in range(ROUNDS):
        tensors, block = case.fresh(), case.workspace()
        expected = case.expected(tensors)
        getattr(Forms, form)(accelerated, tensors, block, case.handle)
        torch.cuda.synchronize()
        case.assert_same(tensors, expected)


def test_checks_accept_what_the_graph_declares(case: Any) -> None:
    checked = cudnn_bindgen.accelerate(case.graph, check=True)
    tensors = case.fresh()
    expected = case.expected(tensors)
    given = {o.uid: as_passed(o, tensors[o.uid]) for o in case.module.OPERANDS if o.uid in tensors}
    checked.execute(given, case.workspace(), handle=case.handle)
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)


def test_work_is_ordered_on_the_handles_stream(case: Any, accelerated: Any, handle: Any) -> None:
    made, stream = handle
    for _ in range(ROUNDS):
        tensors, block = case.fresh(), case.workspace()
        expected = case.expected(tensors)
        inputs = {uid: t for uid, t in tensors.items() if t.is_cuda}
        right = graphs.clone(inputs)
        for uid in inputs:
            graphs.storage(tensors[uid]).fill_(0xFF)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # some 10 ms: on another stream the call came first
            for uid in inputs:
                graphs.storage(tensors[uid]).copy_(graphs.storage(right[uid]))
        accelerated.execute(tensors, block, handle=made)
        torch.cuda.synchronize()
        case.assert_same(tensors, expected)


def test_replay_of_a_capture_with_changed_inputs(case: Any, handle: Any) -> None:
    accelerated = cudnn_bindgen.accelerate(case.graph)
    accelerated.module.set_launch_policy("auto")
    made, stream = handle
    tensors, block = case.fresh(), case.workspace()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        accelerated.execute(tensors, block, handle=made)
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


def test_the_graph_itself_goes_on(case: Any, accelerated: Any) -> None:
    assert accelerated.get_workspace_size() == case.graph.get_workspace_size()
    assert repr(accelerated) == repr(case.graph)
    tensors, other = case.fresh(), case.fresh()
    expected, expected_other = case.expected(tensors), case.expected(other)
    accelerated.execute(tensors, case.workspace(), handle=case.handle)
    case.graph.execute(other, case.workspace(), handle=case.handle)
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)
    case.assert_same(other, expected_other)


def launches(accelerated: Any) -> int:
    stats = accelerated.module.launch_stats()
    return sum(stats[path] for path in ("direct", "record_unchanged", "record_patched"))


def test_all_plans_built(frontend: Any) -> None:
    """The plan that the graph executes, though another one was built last."""
    import cudnn

    graph = graphs.BUILDERS["matmul_256"]()
    graph.build_plans(cudnn.build_plan_policy.ALL)
    if graph.get_execution_plan_count() < 2 or graph.selected_engine is not None:
        pytest.skip("one plan only, or not cuDNN's")
    accelerated = cudnn_bindgen.accelerate(graph)
    assert accelerated.plan_index is not None
    generator = torch.Generator("cuda").manual_seed(0)
    size = max(graph.get_workspace_size(), 1)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    operands = accelerated.module.OPERANDS
    tensors = graphs.make_operands(operands, generator, "cuda")
    expected = graphs.clone(tensors)
    graph.execute(expected, workspace, handle=frontend)
    before = launches(accelerated)
    for call in (
        lambda: accelerated.execute(tensors, workspace, handle=frontend),
        lambda: accelerated.execute_plan_at_index(
            tensors, workspace, accelerated.plan_index, handle=frontend
        ),
    ):
        graphs.poison(operands, tensors)
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        for uid, tensor in tensors.items():
            assert torch.equal(graphs.storage(tensor), graphs.storage(expected[uid]))
    assert launches(accelerated) == before + 2  # the frontend was not asked


# Overrides


def build_overridden(name: str) -> Overridden:
    import cudnn

    version = cudnn.backend_version()
    needed = overridden.INDPTR_SINCE if name == "sdpa" else overridden.GRAPH_SINCE
    if version < needed:
        pytest.skip(f"cuDNN {version} is older than {needed}, which takes these overrides")
    try:
        return getattr(overridden, name)()
    except cudnn.cudnnGraphNotSupportedError as error:
        pytest.skip(f"cuDNN {version} does not serve this graph here: {error}")


SIZES = {
    "matmul": [512, 1, 64, 300, 64, 511, 64, 64, 64, 1],
    "sdpa": [
        Batch((128, 60, 2), (1024, 60, 700)),
        Batch((5,), (9,)),
        *[Batch((3,) * 64, (33,) * 64)] * 6,
    ],
}


@pytest.mark.usefixtures("frontend")
@pytest.mark.parametrize("policy", ["direct", "record", "auto"])
@pytest.mark.parametrize("form", ["dict", "list"])
@pytest.mark.parametrize("name", SIZES)
def test_overrides(name: str, form: str, policy: str) -> None:
    case = build_overridden(name)
    accelerated = cudnn_bindgen.accelerate(case.graph)
    accelerated.module.set_launch_policy(policy)
    generator = torch.Generator("cuda").manual_seed(0)
    for size in SIZES[name]:
        tensors, overrides = case.operands(size, generator), case.overrides(size)
        expected = case.expected(tensors, overrides)
        uids, shapes, strides = overridden.as_lists(overrides)
        block = torch.full(
            (max(case.workspace_size(overrides), 1),), 0xFF, dtype=torch.uint8, device="cuda"
        )
        lists = {"override_uids": uids, "override_shapes": shapes, "override_strides": strides}
        if form == "dict":
            accelerated.execute(tensors, block, handle=case.handle, **lists)
        else:
            order = tuple(tensors)
            buffers = [tensors[uid] for uid in order]
            accelerated.execute(buffers, block, case.handle, tensor_uids=order, **lists)
        torch.cuda.synchronize()
        for uid in tensors:
            assert torch.equal(graphs.storage(tensors[uid]), expected[uid]), f"uid {uid}"


@pytest.mark.usefixtures("frontend")
def test_more_than_declared() -> None:
    """A call for more rows than the graph was planned for, which the frontend lets pass."""
    import cudnn

    if cudnn.backend_version() < 92700:
        pytest.skip("cuDNN before 9.27 was not tried")
    case = build_overridden("matmul")
    accelerated = cudnn_bindgen.accelerate(case.graph)
    generator = torch.Generator("cuda").manual_seed(0)
    tensors, overrides = case.operands(1024, generator), case.overrides(1024)
    expected = case.expected(tensors, overrides)
    uids, shapes, strides = overridden.as_lists(overrides)
    accelerated.execute(
        tensors,
        handle=case.handle,
        override_uids=uids,
        override_shapes=shapes,
        override_strides=strides,
    )
    torch.cuda.synchronize()
    for uid in tensors:
        assert torch.equal(graphs.storage(tensors[uid]), expected[uid]), f"uid {uid}"

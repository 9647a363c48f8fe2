"""A plan whose engine launches a kernel on the legacy stream: right bits, or a StreamError."""

from __future__ import annotations

import ctypes
import dataclasses
from pathlib import Path
from typing import Any

import graphs
import pytest

pytestmark = pytest.mark.gpu

FOUND = Path(__file__).resolve().parents[1] / (
    "data/cases/escapes_the_stream/instancenorm_backward.plan"
)
"""For cuDNN 9.19.0 on SM 9.0 with 132 multiprocessors: where this was seen first."""


def build_instancenorm_backward() -> Any:
    """Build what engine 0 of cuDNN 9.19 serves with a kernel that leaves the stream."""
    import cudnn

    kinds = cudnn.data_type
    graph = cudnn.pygraph(
        io_data_type=kinds.BFLOAT16,
        intermediate_data_type=kinds.FLOAT,
        compute_data_type=kinds.FLOAT,
        handle=graphs.frontend_handle(),
    )
    images = {"dim": [16, 32, 64, 64], "stride": [131072, 1, 2048, 32]}
    channels = {"dim": [1, 32, 1, 1], "stride": [32, 1, 32, 32]}
    of_each = {"dim": [16, 32, 1, 1], "stride": [32, 1, 1, 1], "data_type": kinds.FLOAT}
    outputs = graph.instancenorm_backward(
        name="DIN",
        grad=graph.tensor(**images),
        input=graph.tensor(**images),
        scale=graph.tensor(**channels),
        mean=graph.tensor(**of_each),
        inv_variance=graph.tensor(**of_each),
    )
    for output in outputs:
        output.set_output(True).set_data_type(kinds.BFLOAT16)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    return graph


@pytest.fixture(scope="module")
def leaving(frontend: Any, make_case: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import cudnn
    import torch

    if cudnn.backend_version() != 91900:
        pytest.skip("seen with cuDNN 9.19 alone")
    directory = tmp_path_factory.mktemp("leaving")
    reference = build_instancenorm_backward()
    plan = directory / "leaving.plan"
    plan.write_bytes(graphs.plan_bytes(reference))
    assert not graphs.build_modules({"leaving": plan}, directory)
    generator = torch.Generator("cuda").manual_seed(0)
    return make_case("leaving", directory, plan.read_bytes(), reference, frontend, generator)


@pytest.mark.parametrize("policy", ["auto", "record", "direct"])
@pytest.mark.parametrize("kind", ["default", "blocking", "non-blocking"])
def test_calls(leaving: Any, policy: str, kind: str) -> None:
    """The default settings once ended in an illegal memory access at the fourth call."""
    import torch

    from cudnn_bindgen.runtime.errors import StreamError

    module = leaving.module
    module.load_plan(leaving.plan)
    module.set_launch_policy(policy)
    stream = blocking_stream() if kind == "blocking" else 0
    if kind == "non-blocking":
        stream = torch.cuda.Stream().cuda_stream
    for _ in range(10):
        tensors = leaving.fresh()
        expected = leaving.expected(tensors)
        arguments = leaving.arguments(tensors)
        torch.cuda.synchronize()
        if kind == "non-blocking":
            with pytest.raises(StreamError, match="on a non-blocking stream"):
                module.execute(*arguments, stream=stream)
            continue
        module.execute(*arguments, stream=stream)
        torch.cuda.synchronize()
        leaving.assert_same(tensors, expected)
        assert module.launch_path() == "direct"
    leaving.kept.clear()
    if policy != "direct" and kind != "non-blocking":
        assert "outside of the stream" in module.launch_stats()["reason"]
    leaving.verify()


@pytest.mark.parametrize("is_warm", [False, True])
def test_captures(leaving: Any, is_warm: bool) -> None:
    import torch

    from cudnn_bindgen.runtime.errors import StreamError

    module = leaving.module
    module.load_plan(leaving.plan)
    tensors = leaving.fresh()
    arguments = leaving.arguments(tensors)
    workspace = leaving.workspace().data_ptr()
    if is_warm:
        module.execute(*arguments)
    torch.cuda.synchronize()
    graph, stream, mark = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.zeros(8, device="cuda")
    with torch.cuda.graph(graph, stream=stream):
        mark.add_(1)  # PyTorch warns of empty graphs
        for _ in range(3):
            with pytest.raises(StreamError, match="in a stream capture"):
                module.execute(*arguments, workspace_ptr=workspace, stream=stream.cuda_stream)
    graph.replay()
    torch.cuda.synchronize()
    assert mark.tolist() == [1.0] * 8
    leaving.verify()


def test_the_plan_where_it_was_seen(leaving: Any, tmp_path: Path) -> None:
    import torch

    if torch.cuda.get_device_properties(0).multi_processor_count != 132:
        pytest.skip("the plan file is for 132 multiprocessors")
    assert not graphs.build_modules({"found": FOUND}, tmp_path)
    found = dataclasses.replace(leaving, name="found", directory=tmp_path)
    for _ in range(6):
        found.verify()
    assert "outside of the stream" in found.module.launch_stats()["reason"]


def blocking_stream() -> int:
    """Return a stream that waits for the legacy one, which PyTorch does not make."""
    stream = ctypes.c_void_p()
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuStreamCreate(ctypes.byref(stream), 0) == 0
    return stream.value or 0

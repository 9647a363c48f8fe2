"""Plans of kernels on a GPU: one made by hand, and attention by the frontend's own engine."""

from __future__ import annotations

import importlib.util
import json
import struct

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import msgspec  # noqa: E402
from support.documents import DATA, document, node, plan_document, tensor, to_ubjson  # noqa: E402

import cudnn_bindgen  # noqa: E402
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelLaunch, KernelPlan  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.frontend.planning.deviceless import (  # noqa: E402
    Answer,
    Task,
    make_plans,
    own_cudnn,
)
from cudnn_bindgen.frontend.planning.driver import read_here  # noqa: E402
from cudnn_bindgen.frontend.planning.frontend import device_of  # noqa: E402
from cudnn_bindgen.frontend.planning.make_plan import read_input  # noqa: E402
from cudnn_bindgen.frontend.planning.rebuild import rebuild  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

COUNT, FACTOR = 1000, 3.0
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a)
{
    .reg .pred %p;
    .reg .f32 %f<3>;
    .reg .b32 %r<6>;
    .reg .b64 %d<6>;
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    ld.param.u32 %r2, [n];
    ld.param.f32 %f1, [a];
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r4, %r3, %r5;
    setp.ge.u32 %p, %r1, %r2;
    @%p bra DONE;
    cvta.to.global.u64 %d3, %d1;
    mul.wide.u32 %d4, %r1, 4;
    add.s64 %d3, %d3, %d4;
    ld.global.f32 %f2, [%d3];
    mul.f32 %f2, %f2, %f1;
    cvta.to.global.u64 %d5, %d2;
    add.s64 %d5, %d5, %d4;
    st.global.f32 [%d5], %f2;
DONE:
    ret;
}
"""


def scaling() -> bytes:
    """A plan file of y = RELU(x) whose kernel computes y = 3 x."""
    here = read_here()
    launch = KernelLaunch(
        0,
        "scale",
        (8, 1, 1),
        (128, 1, 1),
        0,
        [],
        [bytes(8), bytes(8), struct.pack("<I", COUNT), struct.pack("<f", FACTOR)],
        [(0, 0, 1, 0), (1, 0, 2, 0)],
        [],
    )
    count = here.multi_processor_count
    plan = KernelPlan(20_000, "scale", {}, here.sm, count, [PTX], [], [launch], 0)
    operands = [
        tensor(uid, name, dim=[COUNT], stride=[1], data_type="FLOAT")
        for uid, name in ((1, "x"), (2, "y"))
    ]
    relu = node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2}, mode="RELU_FWD")
    text = msgspec.json.encode(plan).decode()
    whole = plan_document(document([relu], operands), **{KEY: text})
    del whole["cudnn_backend_data"]
    return to_ubjson(whole)


@pytest.mark.parametrize("policy", ["direct", "record"])
def test_a_kernel(frontend, policy):
    module = cudnn_bindgen.load(scaling(), name="scaled")
    module.set_launch_policy(policy)
    stream = torch.cuda.current_stream().cuda_stream
    for _ in range(20):
        x = torch.randn(COUNT, device="cuda")
        y = torch.full_like(x, float("nan"))
        module.execute(x.data_ptr(), y.data_ptr(), stream=stream)
        assert torch.equal(y, FACTOR * x)
    assert module.launch_stats()["reason"] == ""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        now = torch.cuda.current_stream().cuda_stream
        module.execute(x.data_ptr(), y.data_ptr(), stream=now)
    module.close()
    x.normal_()
    y.fill_(float("nan"))
    graph.replay()
    assert torch.equal(y, FACTOR * x)


NEEDED = ("cudnn", "cutlass", "tvm_ffi")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
HEAD = 512


def attention():
    """Attention over heads of 512 elements, side by side in memory: SM 90's own engine takes it."""
    graph = json.loads((DATA / "plans" / "cudnn-9.19-sm90" / "sdpa_dense.json").read_text())
    for item in graph["tensors"]:
        batch, heads, *rest = item["dim"]
        if rest[-1] == 1:
            continue
        is_transposed = item["stride"][-1] != 1
        item["dim"] = [batch, heads, *((HEAD, 256) if is_transposed else (256, HEAD))]
        row = heads * HEAD
        item["stride"] = [256 * row, HEAD, *((1, row) if is_transposed else (row, 1))]
    return json.dumps(graph).encode()


def bits(tensor):
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.int32)


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.parametrize("policy", ["direct", "auto"])
def test_attention_as_the_frontend_computes_it(frontend, policy):
    here = read_here()
    if here.sm != 90:
        pytest.skip("its engine is for SM 90")
    data = attention()
    answer = make_plans({0: Task(graph=data, properties=here.text)}, own_cudnn())[0]
    assert isinstance(answer, Answer), answer
    plan = read_graph(answer.plan).plan
    if plan.kernels is None:
        pytest.skip(f"the frontend took {plan.engine}")
    module = cudnn_bindgen.load(answer.plan, name="attention")
    module.set_launch_policy(policy)
    import cudnn

    with device_of(cudnn, None) as device:
        reference = rebuild(read_input(data), {}, cudnn, device)
        reference.build_operation_graph()
        reference.create_execution_plans([cudnn.heur_mode.A])
        reference.build_plans()
        assert reference.selected_engine.name == plan.kernels.name
        stream = torch.cuda.current_stream().cuda_stream
        handle = device["handle"]
        cudnn.set_stream(handle=handle, stream=stream)
        size = reference.get_workspace_size()
        workspace = torch.empty(max(1, size), device="cuda", dtype=torch.uint8)

        def heads():
            return torch.empty(2, 256, 8, HEAD, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

        for _ in range(50):
            q, k, v = (heads().normal_() for _ in range(3))
            outputs = []
            for _ in range(2):
                o, stats = heads(), torch.empty(2, 8, 256, 1, device="cuda")
                outputs.append([o.fill_(float("nan")), stats.fill_(float("nan"))])
            reference.execute(
                dict(zip((1, 2, 3, 4, 5), (q, k, v, *outputs[0]), strict=True)),
                workspace,
                handle=handle,
            )
            addresses = [each.data_ptr() for each in (q, k, v, *outputs[1])]
            module.execute(*addresses, stream=stream)
            for theirs, ours in zip(*outputs, strict=True):
                assert torch.isfinite(theirs).all()
                assert torch.equal(bits(theirs), bits(ours))
    assert module.launch_stats()["reason"] == ""

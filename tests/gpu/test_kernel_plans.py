"""Plans of kernels on a GPU: one made by hand, and attention by the frontend's own engine."""

from __future__ import annotations

import importlib.util
import struct

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402
import msgspec  # noqa: E402
from support.documents import DATA, document, node, plan_document, tensor, to_ubjson  # noqa: E402

import cudnn_bindgen  # noqa: E402
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelLaunch, KernelPlan  # noqa: E402
from cudnn_bindgen.frontend.planning.driver import read_here  # noqa: E402

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
ATTENTION = sorted((DATA / "own-engines").glob("*.json"))


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.parametrize("file", ATTENTION, ids=lambda file: file.stem)
def test_attention_as_the_frontend_computes_it(frontend, file):
    if read_here().sm != 90:
        pytest.skip("its engine is for SM 90")
    import cudnn

    plan, reference = graphs.own_engine(file.read_bytes())
    module = cudnn_bindgen.load(plan, name=file.stem)
    stream = torch.cuda.current_stream().cuda_stream
    handle = graphs.frontend_handle()
    cudnn.set_stream(handle, stream)
    size = max(1, reference.get_workspace_size())
    workspace = torch.empty(size, device="cuda", dtype=torch.uint8)
    generator = torch.Generator("cuda").manual_seed(1)
    for policy in ("direct", "auto"):
        module.set_launch_policy(policy)
        for _ in range(25):
            theirs = graphs.make_operands(module.OPERANDS, generator, "cuda")
            ours = graphs.clone(theirs)
            reference.execute(theirs, workspace, handle=handle)
            module.execute(*graphs.arguments(module.OPERANDS, ours), stream=stream)
            for operand in module.OPERANDS:
                if operand.uid in theirs:
                    same = map(graphs.storage, (theirs[operand.uid], ours[operand.uid]))
                    assert torch.equal(*same), operand.argument
                    if operand.role == "output":
                        assert not (graphs.storage(ours[operand.uid]) == 0xFF).all()
        assert module.launch_stats()["reason"] == ""
    # What is captured outlives the plan.
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        now = torch.cuda.current_stream().cuda_stream
        module.execute(*graphs.arguments(module.OPERANDS, ours), stream=now)
    module.close()
    graphs.poison(module.OPERANDS, ours)
    captured.replay()
    for uid, expected in theirs.items():
        assert torch.equal(graphs.storage(expected), graphs.storage(ours[uid]))

"""The reference for overrides on a GPU: the frontend against torch, and the C floor against it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
import overridden  # noqa: E402
from overridden import Batch, Heads  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

ROWS = [512, 1, 7, 64, 300, 511]
BATCHES = [
    Batch((128, 60, 2), (1024, 60, 700)),
    Batch((5,), (9,)),
    Batch((3,) * 64, (33,) * 64),
]


@pytest.fixture(scope="module")
def backend(frontend):
    """The cuDNN version, of one that takes overrides."""
    import cudnn

    version = cudnn.backend_version()
    if version < overridden.GRAPH_SINCE:
        pytest.skip(f"cuDNN {version} has no override shapes (needs {overridden.GRAPH_SINCE})")
    return version


@pytest.fixture(scope="module")
def matmul(backend):
    return overridden.matmul()


@pytest.fixture(scope="module", params=["indptr", "lengths"])
def sdpa(request, backend):
    import cudnn

    indptr = request.param == "indptr"
    if indptr and backend < overridden.INDPTR_SINCE:
        pytest.skip(f"cuDNN {backend} takes no prefix sums as lengths")
    try:
        return overridden.sdpa(indptr=indptr)
    except cudnn.cudnnGraphNotSupportedError as error:
        pytest.skip(f"cuDNN {backend} does not serve this graph here: {error}")


@pytest.fixture
def generator(backend):
    return torch.Generator("cuda").manual_seed(0)


def attention(tensors, batch, heads):
    """Return the outputs of each sequence, in float."""
    outputs, at_q, at_kv = [], 0, 0
    for s_q, s_kv in zip(batch.q, batch.kv, strict=True):
        q = tensors[overridden.Q][at_q : at_q + s_q].float().transpose(0, 1)
        k, v = (
            tensors[uid][at_kv : at_kv + s_kv].float().transpose(0, 1)
            .repeat_interleave(heads.q // heads.kv, 0)
            for uid in (overridden.K, overridden.V)
        )  # fmt: skip
        scores = q @ k.transpose(1, 2) * heads.dim**-0.5
        late = torch.ones(s_q, s_kv, dtype=torch.bool, device="cuda").triu(s_kv - s_q + 1)
        outputs.append((scores.masked_fill(late, -torch.inf).softmax(-1) @ v).transpose(0, 1))
        at_q, at_kv = at_q + s_q, at_kv + s_kv
    return torch.cat(outputs)


@pytest.mark.parametrize("m", ROWS)
def test_the_frontend_multiplies(matmul, generator, m):
    tensors = matmul.operands(m, generator)
    matmul.execute(tensors, matmul.overrides(m))
    exact = torch.relu(tensors[overridden.A].float() @ tensors[overridden.B].float())
    torch.testing.assert_close(tensors[overridden.C].float(), exact, rtol=2e-2, atol=1e-1)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{len(batch.q)}_sequences")
def test_the_frontend_attends(sdpa, generator, batch):
    tensors = sdpa.operands(batch, generator)
    sdpa.execute(tensors, sdpa.overrides(batch))
    exact = attention(tensors, batch, Heads())
    torch.testing.assert_close(tensors[overridden.O].float(), exact, rtol=2e-2, atol=2e-2)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    from floor import compile_floor

    return compile_floor(tmp_path_factory.mktemp("floor"))


def floor_of(library, case, tensors, workspace):
    from floor import Floor

    operands = [
        SimpleNamespace(uid=uid, role="output" if uid in case.outputs else "input")
        for uid in tensors
    ]
    stream = torch.cuda.current_stream().cuda_stream
    plan = graphs.plan_bytes(case.graph)
    return Floor(library, plan, operands, tensors, workspace.data_ptr(), stream)


@pytest.mark.parametrize("which", ["matmul", "sdpa"])
def test_c_gives_the_frontends_bytes(request, library, generator, backend, which):
    case = (
        request.getfixturevalue("matmul")
        if which == "matmul"
        else overridden.sdpa(indptr=backend >= overridden.INDPTR_SINCE)
    )
    for size in ROWS if which == "matmul" else BATCHES:
        tensors, overrides = case.operands(size, generator), case.overrides(size)
        bytes_needed = case.workspace_size(overrides)
        workspace = torch.empty(max(bytes_needed, 1), dtype=torch.uint8, device="cuda")
        expected = case.expected(tensors, overrides)
        torch.cuda.synchronize()
        floor = floor_of(library, case, tensors, workspace)
        floor.time_overridden(1, [overrides])
        if backend >= overridden.WORKSPACE_SINCE:
            print(f"{which} {size}: {floor.overridden_workspace(overrides)} of {bytes_needed}")
            assert floor.overridden_workspace(overrides) <= bytes_needed
        torch.cuda.synchronize()
        for uid in tensors:
            assert torch.equal(graphs.storage(tensors[uid]), expected[uid]), (size, uid)
        floor.close()


def test_one_query_is_a_class_of_its_own(backend, sdpa, generator):
    """What cuDNN says to an override that crosses s_q = 1."""
    batch = Batch((1, 1), (20, 30))
    tensors = sdpa.operands(batch, generator)
    with pytest.raises(Exception, match=r"(?i)s_q|DYNAMIC_SHAPE|NOT_SUPPORTED") as caught:
        sdpa.execute(tensors, sdpa.overrides(batch))
    print(type(caught.value).__name__, caught.value)

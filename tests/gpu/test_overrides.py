"""Generated modules under overrides against the frontend's overridden execute, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
import overridden  # noqa: E402
from overridden import Batch, Overridden  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).resolve().parents[2]
PLANS = ROOT / "tests/data/plans/cudnn-9.27-sm90"
ROUNDS = 250


@dataclass
class Site:
    """A module and the frontend's graph, with what a round of them draws."""

    module: Any
    case: Overridden
    draw: Callable[[random.Random], Any]
    symbols: Callable[[Any], dict[str, int]]


def packed(*dim: int) -> tuple[list[int], list[int]]:
    stride = [1]
    for size in reversed(dim[1:]):
        stride.insert(0, stride[0] * max(size, 1))
    return list(dim), stride


def matmul_plan(frontend: Any) -> tuple[Overridden, bytes]:
    """The shipped product: 512 x 256 by 256 x 512, then relu."""
    plan = (PLANS / "matmul_override.plan").read_bytes()

    def overrides(m: int) -> dict[int, Any]:
        return {1: packed(1, m, 256), 2: packed(1, 256, 512), 4: packed(1, m, 512)}

    return shipped(plan, frontend, overrides, 512, outputs=(4,)), plan


def sdpa_plan(frontend: Any) -> tuple[Overridden, bytes]:
    """The shipped attention: up to 2 x 8 x 256 x 128, with Stats.

    Its buffers stay as large as declared: cuDNN 9.27 takes other dims here, but goes on with the
    declared strides whatever it is told (docs/overrides.md).
    """
    plan = (PLANS / "sdpa_override.plan").read_bytes()
    strides = {uid: packed(2, 8, 256, 128)[1] for uid in (1, 2, 3, 4)}
    strides[5] = packed(2, 8, 256, 1)[1]

    def overrides(size: tuple[int, int]) -> dict[int, Any]:
        b, s = size
        return {uid: ([b, 8, s, 1 if uid == 5 else 128], strides[uid]) for uid in strides}

    return shipped(plan, frontend, overrides, (2, 256), outputs=(4, 5)), plan


def shipped(
    plan: bytes, handle: Any, overrides: Callable[[Any], Any], declared: Any, outputs: Any
) -> Overridden:
    graph = graphs.reference_graph(plan, handle)

    def operands(size: Any, generator: Any) -> dict[int, Any]:
        tensors = {}
        for uid, (dim, stride) in overrides(size).items():
            dtype = torch.float32 if uid == 5 else torch.bfloat16
            whole = overrides(declared)[uid]
            buffer = torch.empty_strided(*whole, dtype=dtype, device="cuda")
            if uid in outputs:
                graphs.storage(buffer).fill_(0xFF)
            else:
                buffer.copy_(torch.randn(whole[0], generator=generator, device="cuda"))
            tensors[uid] = buffer.as_strided(dim, stride)
        return tensors

    return Overridden(graph, handle, operands, overrides, tuple(outputs))


def draw_batch(source: random.Random) -> Batch:
    """Draw lengths; at least one query of a call is longer than 1, as the plan asks."""
    count = source.choice([1, 2, 3, 17, 64])
    q = [source.randint(1, 128) for _ in range(count)]
    q[source.randrange(count)] = source.choice([2, 3, 64, 127, 128])
    return Batch(tuple(q), tuple(max(n, source.randint(1, 1024)) for n in q))


def make_case(name: str, frontend: Any) -> tuple[Overridden, bytes, str]:
    """Return the frontend's side of a site, its plan and the symbols of its module."""
    if name == "plan_matmul":
        return (*matmul_plan(frontend), 'M = "a.m,out_0.m"')
    if name == "plan_sdpa":
        names = ("q", "k", "v", "o", "stats")
        b, length = (",".join(f"{name}.{axis}" for name in names) for axis in "bs")
        return (*sdpa_plan(frontend), f'"B:declared" = "{b}"\n"S:declared" = "{length}"')
    if name == "matmul":
        case = overridden.matmul(cache_m=4096)
        return case, graphs.plan_bytes(case.graph), 'M = "a.m,c.m"'
    case = overridden.sdpa()
    offsets = ",".join(f"ragged_{t}.0+1" for t in "qkvo")
    lengths = "cu_seq_len_q.0+1,cu_seq_len_kv.0+1"
    symbols = f'B = "q.b,k.b,v.b,o.b,{offsets},{lengths}"\nS_q = "q.s,o.s"\nS_kv = "k.s,v.s"'
    return case, graphs.plan_bytes(case.graph), symbols


DRAWS: dict[str, tuple[Callable[[random.Random], Any], Callable[[Any], dict[str, int]]]] = {
    "plan_matmul": (lambda source: source.randint(1, 512), lambda m: {"M": m}),
    "plan_sdpa": (
        lambda source: (source.randint(1, 2), source.randint(2, 256)),
        lambda size: {"B": size[0], "S": size[1]},
    ),
    "matmul": (lambda source: source.randint(1, 4096), lambda m: {"M": m}),
    "sdpa": (
        draw_batch,
        lambda batch: {"B": len(batch.q), "S_q": batch.longest[0], "S_kv": batch.longest[1]},
    ),
}


@pytest.fixture(scope="module")
def modules(frontend, tmp_path_factory):
    import cudnn

    if cudnn.backend_version() < overridden.INDPTR_SINCE:
        pytest.skip(f"cuDNN {cudnn.backend_version()} has not all that these graphs need")
    directory = tmp_path_factory.mktemp("overrides")
    cases, files = {}, {}
    for name in DRAWS:
        cases[name], plan, symbols = make_case(name, frontend)
        files[f"override_{name}"] = directory / f"{name}.plan"
        (directory / f"{name}.plan").write_bytes(plan)
        (directory / f"{name}.plan.toml").write_text(f"[symbols]\n{symbols}\n")
    failed = graphs.build_modules(files, directory)
    assert not failed, failed
    return {
        name: Site(graphs.import_module(f"override_{name}", directory), cases[name], *DRAWS[name])
        for name in DRAWS
    }


@pytest.fixture(params=DRAWS)
def site(request, modules):
    return modules[request.param]


@pytest.fixture
def generator(frontend):
    return torch.Generator("cuda").manual_seed(0)


def assert_same(site, tensors, expected, size):
    torch.cuda.synchronize()
    for uid, tensor in tensors.items():
        assert torch.equal(graphs.storage(tensor), expected[uid]), (size, uid)


@pytest.mark.parametrize("policy", ["direct", "record"])
def test_random_overrides_give_the_frontends_bits(site, generator, policy):
    module, case = site.module, site.case
    module.set_launch_policy(policy)
    overrides = module.Overrides()
    source = random.Random(policy)
    classes = [site.draw(source) for _ in range(12)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
    for number in range(ROUNDS):
        # Half of them new ones, half of a few classes that come again and get records.
        size = source.choice(classes) if number % 2 else site.draw(source)
        tensors = case.operands(size, generator)
        expected = case.expected(tensors, case.overrides(size))
        overrides.set(**site.symbols(size))
        workspace = None
        if number % 3:
            size_needed = max(module.workspace_size(overrides), 1)
            workspace = torch.full((size_needed,), 0xFF, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        module.execute(
            *graphs.arguments(module.OPERANDS, tensors),
            workspace_ptr=workspace.data_ptr() if workspace is not None else 0,
            stream=streams[number % 2].cuda_stream,
            overrides=overrides,
        )
        assert_same(site, tensors, expected, size)
    stats = module.launch_stats()
    print(type(site).__name__, policy, stats)
    if policy == "record":
        assert stats["recorded"] > 0, stats


@pytest.mark.parametrize("policy", ["direct", "record"])
def test_run_takes_tensors_of_the_overridden_shapes(site, generator, policy):
    from cudnn_bindgen.runtime.errors import OperandError

    module, case = site.module, site.case
    module.set_launch_policy(policy)
    overrides = module.Overrides()
    source = random.Random(policy)
    operands = [operand for operand in module.OPERANDS if operand.role != "scalar"]
    for _ in range(20):
        size = site.draw(source)
        tensors = case.operands(size, generator)
        expected = case.expected(tensors, case.overrides(size))
        overrides.set(**site.symbols(size))
        torch.cuda.synchronize()
        returned = module.run(*(tensors[o.uid] for o in operands), overrides=overrides)
        assert_same(site, tensors, expected, size)
        whole = returned if isinstance(returned, tuple) else (returned,)
        outputs = [operand for operand in operands if operand.role == "output"]
        assert [*map(id, whole)] == [id(tensors[operand.uid]) for operand in outputs]
    # A tensor that is only as large as another call's: the first operand has all its axes fixed
    # in the product, and its heads in ragged attention.
    first = operands[0]
    wrong = tensors[first.uid].flatten()[:1]
    names = {operand.uid: operand.argument.removesuffix("_ptr") for operand in operands}
    with pytest.raises(OperandError, match=rf"^{names[first.uid]}: expected dims"):
        module.run(
            *(wrong if o is first else tensors[o.uid] for o in operands), overrides=overrides
        )


def test_the_setters_agree_with_the_symbols(site):
    source = random.Random(3)
    by_symbol, by_hand = site.module.Overrides(), site.module.Overrides()
    names = {o.uid: o.argument.removesuffix("_ptr") for o in site.module.OPERANDS}
    for _ in range(50):
        size = site.draw(source)
        by_symbol.set(**site.symbols(size))
        by_hand.reset()
        for uid, (dim, stride) in site.case.overrides(size).items():
            # Weights that no symbol moves are not overridden by symbols.
            if f"{names[uid]}=" in repr(by_symbol):
                by_hand.override(uid, dim, stride)
        assert by_hand == by_symbol, (by_hand, by_symbol)


def test_workspace_sizes_are_the_frontends(site):
    source = random.Random(4)
    overrides = site.module.Overrides()
    for _ in range(20):
        size = site.draw(source)
        overrides.set(**site.symbols(size))
        assert site.module.workspace_size(overrides) <= site.case.workspace_size(
            site.case.overrides(size)
        )


def test_no_row_is_no_call(modules):
    site = modules["matmul"]
    overrides = site.module.Overrides()
    overrides.set(M=0)
    site.module.execute(0, 0, 0, overrides=overrides)
    torch.cuda.synchronize()


def test_what_cudnn_refuses_names_the_values(modules, generator):
    from cudnn_bindgen.runtime.errors import CudnnError

    site = modules["sdpa"]
    site.module.set_launch_policy("direct")
    batch = Batch((1, 1), (20, 30))
    tensors = site.case.operands(batch, generator)
    overrides = site.module.Overrides()
    overrides.set(**site.symbols(batch))
    with pytest.raises(CudnnError, match=r"overrides: q=\(\(2, 8, 1, 128\)") as caught:
        site.module.execute(*graphs.arguments(site.module.OPERANDS, tensors), overrides=overrides)
    print(caught.value)
    batch = Batch((3, 2), (20, 30))
    tensors = site.case.operands(batch, generator)
    expected = site.case.expected(tensors, site.case.overrides(batch))
    overrides.set(**site.symbols(batch))
    site.module.execute(*graphs.arguments(site.module.OPERANDS, tensors), overrides=overrides)
    assert_same(site, tensors, expected, batch)


def test_a_capture_replays_the_overridden_call(modules, generator):
    site = modules["matmul"]
    site.module.set_launch_policy("record")
    overrides = site.module.Overrides()
    overrides.set(M=300)
    tensors = site.case.operands(300, generator)
    arguments = graphs.arguments(site.module.OPERANDS, tensors)
    for _ in range(4):
        site.module.execute(*arguments, overrides=overrides)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        stream = torch.cuda.current_stream().cuda_stream
        workspace = torch.empty(max(site.module.workspace_size(overrides), 1), device="cuda")
        site.module.execute(
            *arguments, workspace_ptr=workspace.data_ptr(), stream=stream, overrides=overrides
        )
    overrides.set(M=7)  # the capture keeps what was asked then
    expected = site.case.expected(tensors, site.case.overrides(300))
    graphs.storage(tensors[overridden.C]).fill_(0xFF)
    captured.replay()
    assert_same(site, tensors, expected, 300)

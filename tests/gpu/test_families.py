"""Families on a GPU: each member gives the frontend's bytes, whatever was called before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)

from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

FAMILIES = {
    "gpu_products": (graphs.matmul, [(16,), (64,), (256,)], "M=a.m"),
    "gpu_attentions": (graphs.attention, [(2, 128), (4, 256)], "B=q.b,S=q.s"),
}


class Member:
    """One graph of a family, with operands, and the bytes that the frontend leaves in them."""

    def __init__(self, module, key, graph, seed):
        self.module, self.key = module, key
        self.operands = module.MEMBERS[key].operands
        generator = torch.Generator("cuda").manual_seed(seed)
        self.tensors = graphs.make_operands(self.operands, generator, "cuda")
        size = max(graph.get_workspace_size(), 1)
        workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        runs = []
        for _ in range(2):
            copies = graphs.clone(self.tensors)
            graph.execute(copies, workspace, handle=graphs.frontend_handle())
            torch.cuda.synchronize()
            runs.append({uid: graphs.storage(tensor) for uid, tensor in copies.items()})
        if not all(torch.equal(runs[0][uid], runs[1][uid]) for uid in self.tensors):
            pytest.skip(f"the frontend's own two runs of {key} differ in their bits")
        self.expected = runs[0]
        for operand in self.operands:
            if operand.role == "output":
                assert not bool((self.expected[operand.uid] == 0xFF).all()), operand.argument

    @property
    def addresses(self):
        return graphs.arguments(self.operands, self.tensors)

    @property
    def inputs(self):
        return [self.tensors[o.uid] for o in self.operands if o.role == "input"]

    def poison(self):
        graphs.poison(self.operands, self.tensors)
        torch.cuda.synchronize()

    def check(self):
        torch.cuda.synchronize()
        for uid, tensor in self.tensors.items():
            assert torch.equal(graphs.storage(tensor), self.expected[uid]), (self.key, uid)


@pytest.fixture(scope="module", params=FAMILIES)
def members(request, frontend, tmp_path_factory):
    """Each member of one family, after its module was built."""
    import cudnn

    build, shapes, key = FAMILIES[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    try:
        built = {shape: build(*shape) for shape in shapes}
    except cudnn.cudnnGraphNotSupportedError as error:
        pytest.skip(f"cuDNN does not serve this graph here: {error}")
    files = []
    for shape, graph in built.items():
        files.append(directory / f"{'_'.join(map(str, shape))}.plan")
        files[-1].write_bytes(graphs.plan_bytes(graph))
    module = graphs.build_family(request.param, files, directory, ["--key", key])
    assert set(module.MEMBERS) == set(shapes)
    return [Member(module, shape, graph, seed) for seed, (shape, graph) in enumerate(built.items())]


@pytest.fixture(params=["direct", "auto"])
def module(request, members):
    found = members[0].module
    found.set_launch_policy(request.param)
    return found


def test_each_key_gives_the_frontends_bytes(members, module):
    stream = torch.cuda.Stream()
    for _ in range(6):  # enough for launch records
        for member in members:
            member.poison()
            module.execute(*member.addresses, *member.key, stream=stream.cuda_stream)
            member.check()


def test_tensors_choose_the_member(members, module):
    for _ in range(3):
        for member in members:
            made = module.run(*member.inputs)
            torch.cuda.synchronize()
            [output] = [o for o in member.operands if o.role == "output"]
            like = member.tensors[output.uid]
            assert (made.dtype, made.shape, made.stride()) == (
                like.dtype,
                like.shape,
                like.stride(),
            )
            found, expected = graphs.storage(made), member.expected[output.uid]
            assert torch.equal(found, expected[: len(found)])
            member.poison()
            assert module.run(*member.inputs, like) is like
            member.check()


def test_captured_together(members, module):
    stream = torch.cuda.Stream()
    for member in members:  # plans and workspace are made before
        module.execute(*member.addresses, *member.key, stream=stream.cuda_stream)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for member in members:
            module.execute(*member.addresses, *member.key, stream=stream.cuda_stream)
    for _ in range(3):
        for member in members:
            member.poison()
        graph.replay()
        for member in members:
            member.check()


def test_a_thread_for_each_member(members, module):
    def work(member):
        stream = torch.cuda.Stream()
        for _ in range(50):
            module.execute(*member.addresses, *member.key, stream=stream.cuda_stream)
        stream.synchronize()

    for member in members:
        member.poison()
    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(work, members))
    for member in members:
        member.check()


def test_a_shape_of_no_member_launches_nothing(members, module):
    member = members[0]
    member.poison()
    key = (member.key[0] + 1, *member.key[1:])
    with pytest.raises(OperandError, match="expected one of"):
        module.execute(*member.addresses, *key)
    first, *rest = member.inputs
    with pytest.raises(OperandError, match="expected"):
        module.run(torch.cat([first, first], dim=-2), *rest)
    torch.cuda.synchronize()
    for operand in member.operands:
        if operand.role == "output":
            assert bool((graphs.storage(member.tensors[operand.uid]) == 0xFF).all())
    module.execute(*member.addresses, *member.key)
    member.check()


def test_sizes_of_workspace(members, module):
    sizes = [module.workspace_size(*member.key) for member in members]
    assert max(sizes) == module.WORKSPACE_SIZE
    for size, member in zip(sizes, members, strict=True):
        block = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
        member.poison()
        module.execute(*member.addresses, *member.key, workspace_ptr=block.data_ptr())
        member.check()

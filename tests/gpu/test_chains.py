"""Chains on the GPU: the bits of their links' own modules in turn, and of the frontend's graphs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
import layer  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 6


class Made:
    """A layer's chain, the modules of its links, and the frontend's graphs of the same plans."""

    def __init__(self, name: str, directory: Any) -> None:
        self.layer = layer.LAYERS[name]
        self.chain, self.modules, self.graphs = self.layer.make(f"gpu_{name}", directory)
        size = max([graph.get_workspace_size() for graph in self.graphs.values()])
        self.workspace = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")

    def copy(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Return the same buffers at other addresses."""
        return {
            name: one if isinstance(one, float) else one.clone() for name, one in tensors.items()
        }

    def result(self, tensors: dict[str, Any]) -> Any:
        torch.cuda.synchronize()
        y = tensors["y"][: self.layer.rows].view(torch.int16)
        assert not bool((y == -1).all()), "nothing was written"
        assert bool(torch.isfinite(tensors["y"][: self.layer.rows].float()).all())
        return y.clone()

    def by_frontend(self, tensors: dict[str, Any]) -> Any:
        copies = self.copy(tensors)
        for link, graph in self.graphs.items():
            pack = self.layer.uid_arguments(link, self.modules[link], copies)
            graph.execute(pack, self.workspace, handle=graphs.frontend_handle())
        return self.result(copies)

    def by_modules(self, tensors: dict[str, Any]) -> Any:
        copies = self.copy(tensors)
        for link, module in self.modules.items():
            module.execute(*self.layer.link_arguments(link, module, copies))
        return self.result(copies)

    def call(self, tensors: dict[str, Any], **options: Any) -> None:
        self.chain.execute(*self.layer.arguments(self.chain, tensors), **options)

    def by_chain(self, tensors: dict[str, Any], **options: Any) -> Any:
        self.call(tensors, **options)
        return self.result(tensors)


@pytest.fixture(scope="module", params=layer.LAYERS)
def made(request: Any, frontend: Any, tmp_path_factory: Any) -> Any:
    import cudnn

    try:
        found = Made(request.param, tmp_path_factory.mktemp(request.param))
    except cudnn.cudnnGraphNotSupportedError as error:
        pytest.skip(f"cuDNN does not serve a graph of this layer here: {error}")
    tensors = found.layer.tensors(0)
    if not torch.equal(found.by_frontend(tensors), found.by_frontend(tensors)):
        pytest.skip("the frontend's own two runs differ in their bits")
    yield found
    found.chain.close()


@pytest.mark.parametrize("policy", ["direct", "record"])
def test_bits_are_those_of_the_links_in_turn(made: Made, policy: str) -> None:
    made.chain.set_launch_policy(policy)
    before = made.chain.launch_stats()["record_patched"]
    for seed in range(ROUNDS):
        tensors = made.layer.tensors(seed)
        expected = made.by_modules(tensors)
        assert torch.equal(expected, made.by_frontend(tensors))
        inputs = {n: t.clone() for n, t in tensors.items() if torch.is_tensor(t) and n != "y"}
        assert torch.equal(made.by_chain(tensors), expected), seed
        for name, tensor in inputs.items():
            assert torch.equal(graphs.storage(tensors[name]), graphs.storage(tensor)), name
    stats = made.chain.launch_stats()
    assert stats["reason"] == ""
    assert (stats["record_patched"] > before) is (policy == "record")


def test_a_workspace_of_the_callers_and_other_streams(made: Made) -> None:
    made.chain.set_launch_policy("record")
    size = made.chain.workspace_size()
    streams = [torch.cuda.Stream() for _ in range(2)]
    for seed in range(ROUNDS):
        tensors = made.layer.tensors(seed)
        expected = made.by_modules(tensors)
        workspace = torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        place = {"workspace_ptr": workspace.data_ptr(), "stream": streams[seed % 2].cuda_stream}
        assert torch.equal(made.by_chain(tensors, **place), expected), seed


def test_run_takes_tensors(made: Made) -> None:
    tensors = made.layer.tensors(1)
    expected = made.by_modules(tensors)
    given = {o.argument: o.argument.removesuffix("_ptr") for o in made.chain.OPERANDS}
    y = made.chain.run(**{name: tensors[name] for name in given.values()})
    assert y is tensors["y"]
    assert torch.equal(made.result(tensors), expected)


def test_captured_and_replayed_after_it_is_closed(made: Made) -> None:
    tensors = made.layer.tensors(2)
    expected = made.by_modules(tensors)
    stream = torch.cuda.Stream()
    made.call(tensors, stream=stream.cuda_stream)  # the stream's workspace
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        made.call(tensors, stream=stream.cuda_stream)
    made.chain.close()
    for _ in range(3):
        tensors["y"].view(torch.int16).fill_(-1)
        torch.cuda.synchronize()
        graph.replay()
        assert torch.equal(made.result(tensors), expected)
    made.chain.load_plan()
    assert torch.equal(made.by_chain(tensors), expected)


def test_one_launch_has_the_nodes_of_all_links(made: Made) -> None:
    own = [len(module.launch_nodes()) for module in made.modules.values()]
    assert len(made.chain.launch_nodes()) == sum(own)

"""examples/attention: the block trains as with PyTorch's attention; here on the CPU, in doubles."""

from __future__ import annotations

import copy
import functools
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from support.documents import bind_document, document, node, tensor

torch = pytest.importorskip("torch")

from support.torch_siblings import operators  # noqa: E402
from torch.nn import functional  # noqa: E402

from cudnn_bindgen.cli import main  # noqa: E402

EXAMPLE = Path(__file__).parents[1] / "examples/attention"
BATCH, HEADS, LENGTH, SIZE = 2, 2, 8, 4
DIM = [BATCH, HEADS, LENGTH, SIZE]
PLAIN = [LENGTH * HEADS * SIZE, SIZE, HEADS * SIZE, 1]
PACKED = [3 * LENGTH * HEADS * SIZE, SIZE, 3 * HEADS * SIZE, 1]
ROWS = {"dim": [BATCH, HEADS, LENGTH, 1], "stride": [HEADS * LENGTH, LENGTH, 1, 1]}


def scores(q, k):
    found = q @ k.transpose(-1, -2) / SIZE**0.5
    return found.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), float("-inf"))


def forward(q, k, v):
    found = scores(q, k)
    stats = found.logsumexp(-1, keepdim=True)
    return (found - stats).exp() @ v, stats


def backward(q, k, v, o, do, stats):
    p = (scores(q, k) - stats).exp()
    ds = p * (do @ v.transpose(-1, -2) - (do * o).sum(-1, keepdim=True)) / SIZE**0.5
    return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ do


def declared(uid: int, name: str) -> dict[str, Any]:
    form = {"dim": DIM, "stride": PACKED if name in "qkv" else PLAIN}
    return tensor(uid, name, data_type="DOUBLE", **(ROWS if name == "stats" else form))


@pytest.fixture
def attn(tmp_path: Path) -> Iterator[ModuleType]:
    """The operators of graphs that are declared as plans.py declares them."""
    names = ["q", "k", "v", "o", "stats", "do", "dq", "dk", "dv"]
    tensors = {name: declared(uid, name) for uid, name in enumerate(names)}
    uids = {name: item["uid"] for name, item in tensors.items()}

    def graph(tag: str, inputs: dict[str, str], outputs: dict[str, str]) -> Any:
        ports = [{port: uids[name] for port, name in group.items()} for group in (inputs, outputs)]
        used = [tensors[name] for name in (*inputs.values(), *outputs.values())]
        return bind_document(document([node(tag, *ports)], used))

    qkv = {"Q": "q", "K": "k", "V": "v"}
    saved = {**qkv, "O": "o", "dO": "do", "Stats": "stats"}
    with operators(
        tmp_path,
        ("attn", graph("SDPA", qkv, {"O": "o", "Stats": "stats"}), forward),
        [("attn_bwd", graph("SDPA_BWD", saved, {"dQ": "dq", "dK": "dk", "dV": "dv"}), backward)],
    ) as (module, _, _):
        yield module


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import attention

    yield attention
    del sys.modules["attention"]


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_the_block_trains_as_with_pytorchs_attention(
    attn: Any, example: Any, is_compiled: bool
) -> None:
    torch.manual_seed(0)
    width = HEADS * SIZE
    own = functools.partial(functional.scaled_dot_product_attention, is_causal=True)
    reference = example.Attention(width, HEADS, own).double()
    block = copy.deepcopy(reference)
    block.attend = lambda q, k, v: attn.attn(q, k, v)[0]
    torch._dynamo.reset()
    called = torch.compile(block, fullgraph=True, backend="aot_eager") if is_compiled else block
    x, target = torch.randn(2, BATCH, LENGTH, width, dtype=torch.float64)
    expected = example.train(reference, x, target, steps=20, rate=1e-2)
    found = example.train(called, x, target, steps=20, rate=1e-2)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected))
    assert found[-1] < 0.8 * found[0]
    for one, other in zip(block.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_commands_of_the_readme_are_commands() -> None:
    section = (EXAMPLE / "README.md").read_text().split("## Run it")[1].split("\n## ")[0]
    commands = [shlex.split(line) for line in section.splitlines() if line.startswith("    ")]
    assert [command[0] for command in commands] == ["python", "cudnn-bindgen", "python"]
    assert all((EXAMPLE / command[1]).exists() for command in commands if command[0] == "python")
    # Nothing is wrong with it but that there is no plan yet.
    result = CliRunner().invoke(main, commands[1][1:])
    assert result.stderr == "error: attn.plan: No such file or directory\n"

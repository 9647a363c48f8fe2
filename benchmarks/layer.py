"""A decoder layer as a chain of cuDNN graphs, and the same graphs to be called in turn.

torch and the cuDNN frontend are imported inside the functions, as in graphs.py.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import graphs

BATCH, LENGTH, HEADS, HEAD = 2, 256, 8, 128
TOKENS, WIDTH, INNER = BATCH * LENGTH, HEADS * HEAD, 2048
LENGTHS = (200, 137)  # of ragged sequences
EPSILON = 1e-5

ROWS = [TOKENS, WIDTH, 1, 1], [WIDTH, 1, 1, 1]
"""As norms have them; products have a batch of one."""


def norm():
    """Build RMS norm; epsilon is a scalar that every call passes."""
    import cudnn

    graph = graphs._graph("BFLOAT16")
    dim, stride = ROWS
    x = graph.tensor(dim=dim, stride=stride, name="x")
    scale_dim = [1, WIDTH, 1, 1]
    scale = graph.tensor(dim=scale_dim, stride=stride, data_type=graphs._float(), name="scale")
    epsilon = graphs._scalar(graph, "epsilon", 4)
    phase = cudnn.norm_forward_phase.INFERENCE
    y, _ = graph.rmsnorm(norm_forward_phase=phase, input=x, scale=scale, epsilon=epsilon)
    return _finish(graph, y, "y", dim, stride)


def product(columns, width=WIDTH, *, relu=False, residual=False):
    """Build the product of all tokens with a matrix, with ReLU or a residual added."""
    graph = graphs._graph("BFLOAT16")
    dim, stride = [1, TOKENS, columns], [TOKENS * columns, columns, 1]
    a = graph.tensor(dim=[1, TOKENS, width], stride=[TOKENS * width, width, 1], name="a")
    b = graph.tensor(dim=[1, width, columns], stride=[width * columns, columns, 1], name="b")
    c = graph.matmul(a, b)
    if relu:
        c = graph.relu(c)
    if residual:
        c = graph.add(c, graph.tensor(dim=dim, stride=stride, name="residual"))
    return _finish(graph, c, "c", dim, stride)


def pointwise(mode, columns=WIDTH):
    """Build the sum or product of two tensors."""
    graph = graphs._graph("BFLOAT16")
    # Channels last, which cuDNN 9.19 asks for.
    dim, stride = [TOKENS, columns, 1, 1], [columns, 1, columns, columns]
    a, b = (graph.tensor(dim=dim, stride=stride, name=name) for name in ("a", "b"))
    return _finish(graph, getattr(graph, mode)(a, b), "c", dim, stride)


def attention(ragged):
    """Build causal attention whose Q, K and V are columns of one product."""
    import cudnn

    graph = graphs._graph("BFLOAT16")
    dim = [BATCH, HEADS, LENGTH, HEAD]
    packed = [LENGTH * 3 * WIDTH, HEAD, 3 * WIDTH, 1]
    stride = [LENGTH * WIDTH, HEAD, WIDTH, 1]
    q, k, v = (graph.tensor(dim=dim, stride=packed, name=name) for name in "qkv")
    options = {}
    if ragged:
        ints = {"stride": [1, 1, 1, 1], "data_type": cudnn.data_type.INT32}
        lengths = graph.tensor(dim=[BATCH, 1, 1, 1], name="lengths", **ints)
        offsets = graph.tensor(dim=[BATCH + 1, 1, 1, 1], name="offsets", **ints)
        o_offsets = graph.tensor(dim=[BATCH + 1, 1, 1, 1], name="o_offsets", **ints)
        for tensor in (q, k, v):
            tensor.set_ragged_offset(offsets)
        options = {"use_padding_mask": True, "seq_len_q": lengths, "seq_len_kv": lengths}
    o, _ = graph.sdpa(
        q=q,
        k=k,
        v=v,
        generate_stats=False,
        attn_scale=HEAD**-0.5,
        use_causal_mask=True,
        **options,
    )
    if ragged:
        o.set_ragged_offset(o_offsets)
    return _finish(graph, o, "o", dim, stride)


def _finish(graph, tensor, name, dim, stride):
    tensor.set_name(name)
    graphs._output(tensor, dim, stride, "BFLOAT16")
    return graphs._build(graph)


@dataclass(frozen=True)
class Layer:
    """A chain.

    `links` are in an order in which they can run: of each its builder, and which buffer each of its
    arguments is, with the first element of it. `inner` are buffers that callers do not see; `rows`
    tells how many of the output's are compared.
    """

    links: dict
    inner: frozenset
    rows: int = TOKENS

    def build(self):
        """Return the frontend's graph of each link."""
        return {link: builder() for link, (builder, _) in self.links.items()}

    def toml(self):
        """Return the chain's file."""
        lines = [f'[[link]]\nname = "{link}"\ngraph = "{link}.plan"' for link in self.links]
        writers, operands, wires = {}, {}, []
        for link, (_, names) in self.links.items():
            for tensor, (buffer, offset) in names.items():
                port = f'"{link}.{tensor}"'
                view = f"{{ of = {port}, offset = {offset} }}"
                if buffer in self.inner and buffer in writers:
                    wires.append(f"{port} = {{ of = {writers[buffer]}, offset = {offset} }}")
                elif buffer in self.inner:
                    writers[buffer] = port
                else:
                    is_view = buffer in operands and buffer != "epsilon"
                    operands.setdefault(buffer, []).append(view if is_view else port)
        lines += ["[wires]", *wires, "[operands]"]
        lines += [f"{name} = [{', '.join(ports)}]" for name, ports in operands.items()]
        return "\n".join(lines) + "\n"

    def make(self, name, directory):
        """Plan and compile the chain and its links' own modules; return all of them, and graphs."""
        directory = Path(directory)
        built = self.build()
        files = {}
        for link, graph in built.items():
            (directory / f"{link}.plan").write_bytes(graphs.plan_bytes(graph))
            files[f"{name}_{link}"] = directory / f"{link}.plan"
        failed = graphs.build_modules(files, directory)
        (directory / f"{name}.toml").write_text(self.toml())
        tool = [sys.executable, "-m", "cudnn_bindgen.cli", "build", "--chain", f"{name}.toml"]
        run = subprocess.run(
            [*tool, "-d", "."], cwd=directory, capture_output=True, text=True, check=False
        )
        if failed or run.returncode:
            raise RuntimeError("\n".join([*failed.values(), run.stdout, run.stderr]))
        modules = {link: graphs.import_module(f"{name}_{link}", directory) for link in self.links}
        return graphs.import_module(name, directory), modules, built

    def tensors(self, seed):
        """Return fresh random buffers by name, inner ones and outputs full of 0xFF."""
        import torch

        generator = torch.Generator("cuda").manual_seed(seed)

        def random(*shape, scale=1.0):
            values = torch.randn(*shape, generator=generator, device="cuda") * scale
            return values.to(torch.bfloat16)

        def poison(columns):
            return torch.full((TOKENS, columns), -1, dtype=torch.int16, device="cuda").view(
                torch.bfloat16
            )

        starts = [0, *(sum(LENGTHS[: n + 1]) for n in range(BATCH))]
        ints = {"dtype": torch.int32, "device": "cuda"}
        return {
            "x": random(TOKENS, WIDTH),
            "w1": torch.rand(WIDTH, generator=generator, device="cuda") + 0.5,
            "w2": torch.rand(WIDTH, generator=generator, device="cuda") + 0.5,
            "w_qkv": random(WIDTH, 3 * WIDTH, scale=WIDTH**-0.5),
            "w_o": random(WIDTH, WIDTH, scale=WIDTH**-0.5),
            "w_up": random(WIDTH, INNER, scale=WIDTH**-0.5),
            "w_gate": random(WIDTH, INNER, scale=WIDTH**-0.5),
            "w_down": random(INNER, WIDTH, scale=INNER**-0.5),
            "epsilon": EPSILON,
            "lengths": torch.tensor(LENGTHS, **ints),
            "offsets": torch.tensor([start * 3 * WIDTH for start in starts], **ints),
            "o_offsets": torch.tensor([start * WIDTH for start in starts], **ints),
            "y": poison(WIDTH),
            **{name: poison(3 * WIDTH) for name in self.inner},
        }

    def arguments(self, module, tensors):
        """Return what `execute` of the chain takes."""
        names = (operand.argument.removesuffix("_ptr") for operand in module.OPERANDS)
        return [address(tensors[name]) for name in names]

    def link_arguments(self, link, module, tensors):
        """Return what `execute` of a link's own module takes."""
        places = self.links[link][1]
        given = (places[operand.argument.removesuffix("_ptr")] for operand in module.OPERANDS)
        return [address(tensors[buffer], offset) for buffer, offset in given]

    def uid_arguments(self, link, module, tensors):
        """Return what the frontend's graph of a link takes: uid → address; scalars as tensors."""
        import torch

        values = self.link_arguments(link, module, tensors)
        return {
            operand.uid: torch.tensor([value]).reshape([1] * len(operand.dim))
            if operand.role == "scalar"
            else value
            for operand, value in zip(module.OPERANDS, values, strict=True)
        }


def address(tensor, offset=0):
    """Return the address of an element, or the value of what is none."""
    if isinstance(tensor, float):
        return tensor
    return tensor.data_ptr() + offset * tensor.element_size()


def _at(**places):
    return {name: at if isinstance(at, tuple) else (at, 0) for name, at in places.items()}


def _decoder(ragged):
    extra = {"lengths": "lengths", "offsets": "offsets", "o_offsets": "o_offsets"} if ragged else {}
    return Layer(
        {
            "norm1": (norm, _at(x="x", scale="w1", epsilon="epsilon", y="n1")),
            "qkv": (lambda: product(3 * WIDTH), _at(a="n1", b="w_qkv", c="p")),
            "attention": (
                lambda: attention(ragged),
                _at(q="p", k=("p", WIDTH), v=("p", 2 * WIDTH), o="o", **extra),
            ),
            "projection": (lambda: product(WIDTH), _at(a="o", b="w_o", c="r")),
            "add": (lambda: pointwise("add"), _at(a="x", b="r", c="h")),
            "norm2": (norm, _at(x="h", scale="w2", epsilon="epsilon", y="n2")),
            "up": (lambda: product(INNER, relu=True), _at(a="n2", b="w_up", c="u")),
            "down": (
                lambda: product(WIDTH, INNER, residual=True),
                _at(a="u", b="w_down", residual="h", c="y"),
            ),
        },
        frozenset(["n1", "p", "o", "r", "h", "n2", "u"]),
        sum(LENGTHS) if ragged else TOKENS,
    )


DECODER = _decoder(ragged=False)
RAGGED = _decoder(ragged=True)
"""Eight graphs: norm, product, attention, projection, sum, norm, two products."""

GATED = Layer(
    {
        "norm": (norm, _at(x="x", scale="w1", epsilon="epsilon", y="n1")),
        "up": (lambda: product(INNER, relu=True), _at(a="n1", b="w_up", c="u")),
        "gate": (lambda: product(INNER), _at(a="n1", b="w_gate", c="p")),
        "mul": (lambda: pointwise("mul", INNER), _at(a="u", b="p", c="g")),
        "down": (
            lambda: product(WIDTH, INNER, residual=True),
            _at(a="g", b="w_down", residual="x", c="y"),
        ),
    },
    frozenset(["n1", "u", "p", "g"]),
)
"""Two products that run at once."""

LAYERS = {"decoder": DECODER, "ragged": RAGGED, "gated": GATED}

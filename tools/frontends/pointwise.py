"""The graphs of the matrix whose nodes compute element by element, or only move elements."""

from __future__ import annotations

import cudnn
from shapes import FLOAT, HALF, TYPE, dumped, new_graph, output, row_major, shaped

CHAIN = 60


@dumped
def pointwise_chain():
    # Long enough for names of two digits; every third node reads an operand.
    graph = new_graph()
    total = graph.tensor(**row_major(4, 8), name="x")
    other = graph.tensor(**row_major(4, 8), name="other")
    for index in range(CHAIN):
        if index % 3 == 2:
            total = graph.add(a=total, b=other, name=f"add{index}")
        else:
            total = graph.relu(total, name=f"relu{index}")
    output(total, "y")
    return graph


@dumped
def boolean_output():
    graph = new_graph()
    x, threshold = (
        graph.tensor(**row_major(*dim), name=name)
        for name, dim in (("x", (4, 8)), ("threshold", (1, 1)))
    )
    mask = graph.cmp_gt(input=x, comparison=threshold, name="compare")
    output(mask, "mask", TYPE.BOOLEAN)
    output(graph.mul(a=x, b=mask, name="mul"), "y")
    return graph


@dumped
def relu_backward():
    graph = new_graph()
    dy, x = (graph.tensor(**row_major(4, 8), name=name) for name in ("dy", "x"))
    output(graph.relu_backward(loss=dy, input=x, name="drelu"), "dx")
    return graph


@dumped
def reduction():
    graph = new_graph()
    x = graph.tensor(**row_major(4, 8, 16), name="x")
    y = graph.reduction(input=x, mode=cudnn.reduction_mode.MAX, name="max")
    shaped(output(y, "y", FLOAT), 4, 8, 1)
    return graph


@dumped
def concatenate():
    graph = new_graph()
    parts = [graph.tensor(**row_major(2, n, 8), name=f"part{n}") for n in range(1, 13)]
    joined = graph.concatenate(inputs=parts, axis=1, name="join")
    shaped(output(joined, "joined"), 2, sum(range(1, 13)), 8)
    return graph


@dumped
def slice_reshape():
    graph = new_graph()
    x = graph.tensor(**row_major(4, 8, 16), name="x")
    part = graph.slice(input=x, slices=[slice(0, 4), slice(2, 6), slice(0, 16)], name="part")
    # Older frontends demand the type of what is sliced.
    flat = graph.reshape(input=part.set_data_type(HALF), name="flat")
    shaped(output(flat, "y"), 1, 16, 16)
    return graph


@dumped
def unusual_strides():
    # A broadcast axis, a stride beyond 2^31, and an alignment where the front can state one.
    graph = new_graph()
    x = graph.tensor(dim=[4, 8, 16], stride=[2**40, 0, 1], name="broadcast")
    y = graph.tensor(dim=[4, 8, 16], stride=[128, 16, 1], name="aligned")
    if hasattr(y, "set_alignment"):  # not in 1.29 and newer
        y.set_alignment(4)
    output(graph.add(a=x, b=y, name="add"), "z").set_dim([4, 8, 16]).set_stride([128, 16, 1])
    return graph


@dumped
def empty_tensors():
    graph = new_graph()
    x, y = (graph.tensor(dim=[0, 8, 16], stride=[128, 16, 1], name=name) for name in "xy")
    output(graph.add(a=x, b=y, name="add"), "z").set_dim([0, 8, 16]).set_stride([128, 16, 1])
    return graph


@dumped
def stated_data_types():
    """Every tensor states its data type, so that the context's does not matter."""
    graph = new_graph(TYPE.NOT_SET)
    x = graph.tensor(**row_major(4, 8), data_type=HALF, name="x")
    output(graph.relu(x, name="relu"), "y", TYPE.BFLOAT16)
    return graph

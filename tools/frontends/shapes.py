"""What the graphs of the matrix are made with: the builder API that all its frontends share."""

from __future__ import annotations

import cudnn

TYPE = cudnn.data_type
FLOAT, HALF = TYPE.FLOAT, TYPE.HALF
BUILDERS = {}


def dumped(build):
    """Add a function that builds a graph; its name is the dump's."""
    BUILDERS[build.__name__] = build
    return build


def new_graph(io_data_type=HALF, **options):
    """Return an empty graph; sm_version, else lowering attention asks CUDA for the device's."""
    return cudnn.pygraph(
        io_data_type=io_data_type,
        intermediate_data_type=FLOAT,
        compute_data_type=FLOAT,
        sm_version=90,
        **options,
    )


def row_major(*dim):
    """Return dim and stride, the last axis innermost."""
    stride = [1]
    for size in reversed(dim[1:]):
        stride.insert(0, stride[0] * size)
    return {"dim": list(dim), "stride": stride}


def channels_last(n, c, h, w):
    """Return dim and stride of an image, the channels innermost."""
    return {"dim": [n, c, h, w], "stride": [c * h * w, 1, c * w, c]}


def scalar(graph, rank, *, data_type=FLOAT, name=""):
    """Return a tensor of one element that is passed by value."""
    return graph.tensor(
        dim=[1] * rank, stride=[1] * rank, is_pass_by_value=True, data_type=data_type, name=name
    )


def output(tensor, name="", data_type=None):
    """Make `tensor` an output, named and typed if asked for."""
    tensor.set_output(True)
    if name:
        tensor.set_name(name)
    if data_type is not None:
        tensor.set_data_type(data_type)
    return tensor


def shaped(tensor, *dim):
    """Give an output a shape that the frontend does not infer in every version."""
    layout = row_major(*dim)
    return tensor.set_dim(layout["dim"]).set_stride(layout["stride"])


def with_uids(tensors, uids):
    """Give each tensor its uid; None leaves it to the frontend."""
    for tensor, uid in zip(tensors, uids, strict=True):
        if uid is not None:
            tensor.set_uid(uid)

"""Keeping a framework's memory until a stream that it does not know of is done with it."""

from __future__ import annotations

import sys

from cudnn_bindgen.runtime.errors import OperandTypeError, describe


def record_stream(stream: object, *tensors: object) -> None:
    """Tell PyTorch's allocator that `stream` uses the memory of `tensors`.

    Needed when work was enqueued on another stream than the one that PyTorch had current when it
    made the tensors, and they may be dropped before that work is done. Not needed in a CUDA graph
    capture, nor for tensors that live on.

    Parameters
    ----------
    stream
        A cudaStream_t as int, or an object with ``cuda_stream``.
    tensors
        PyTorch tensors; None and addresses, which have no allocator, are passed over.

    Raises
    ------
    OperandTypeError
        An object is no PyTorch tensor: keep it alive until the stream was synchronised. Or the
        stream is none.
    """
    torch = sys.modules.get("torch")
    tensors = tuple(item for item in tensors if item is not None and not isinstance(item, int))
    for tensor in tensors:
        if torch is None or not isinstance(tensor, torch.Tensor):
            raise OperandTypeError("tensors", "PyTorch tensors", describe(tensor))
    address = getattr(stream, "cuda_stream", stream)
    if not isinstance(address, int) or isinstance(address, bool) or not 0 <= address < 1 << 64:
        raise OperandTypeError("stream", "a cudaStream_t as int", describe(address))
    for tensor in tensors:
        tensor.record_stream(torch.cuda.ExternalStream(address, device=tensor.device))

"""A module as two operators of PyTorch: what every emitted NAME_torch.py registers.

Emitted files say what is special: schemas, outputs, gradients. They alone import this file, so
that the rest of the runtime needs no PyTorch. docs/torch.md has the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from cudnn_bindgen.runtime.errors import OperandError
from cudnn_bindgen.runtime.tensor_errors import HOST_MEMORY
from cudnn_bindgen.runtime.tensor_types import parse_type
from cudnn_bindgen.runtime.torch_autograd import Backward, derive

_library: Any = torch.library  # not all of it has types
Library = _library.Library

_TAGS = (
    torch.Tag.pt2_compliant_tag,
    # Compiled code hands over the layouts that eager code would; torch before 2.8 has the second.
    getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),
)
# Before torch 2.10 there is no DLPack exchange API, which tells `run` torch's current stream.
_IS_OLD = not hasattr(Tensor, "__dlpack_c_exchange_api__")
_increment_version = torch.autograd.graph.increment_version
_WITHOUT_A_GPU = (
    'to trace without a GPU, make model and example inputs of device "meta", or in FakeTensorMode '
    'of device "cuda" (docs/torch.md)'
)


class Output(NamedTuple):
    """What PyTorch allocates for an output, in its own elements.

    `is_zeroed`: no sequence need reach all of it.
    """

    name: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    is_zeroed: bool = False


def register_operators(
    library: Any,
    package: str | None,
    schema: str,
    schema_out: str,
    *,
    outputs: Sequence[Output],
    backwards: Sequence[Backward] = (),
    is_empty: bool = False,
) -> tuple[Any, Any]:
    """Register NAME and NAME_out for the module NAME and return their overloads.

    Parameters
    ----------
    library
        Whose lifetime is that of the operators; it belongs to the emitted file, which may be
        loaded again.
    package
        The emitted file's; its siblings are there, or on the path.
    schema, schema_out
        Inputs, outputs that are given, and scalars, in this order.
    outputs
        In the order of the schemas.
    backwards
        None where no gradient is defined.
    is_empty
        The graph computes nothing and may have no plan: do not ask for a workspace.
    """
    name = schema.partition("(")[0]
    module = _sibling(name, package)
    library.define(schema, tags=_TAGS)
    library.define(schema_out, tags=_TAGS)
    operator, operator_out = _overload(library, name), _overload(library, f"{name}_out")
    n_inputs = [one.name for one in operator_out._schema.arguments].index(outputs[0].name)
    arguments = operator._schema.arguments
    names = [one.name for one in arguments]
    kernels = _Kernels(
        name=f"{library.ns}::{name}",
        module=module,
        outputs=tuple((one.dim, one.stride, one.dtype) for one in outputs),
        zeroed=tuple(index for index, one in enumerate(outputs) if one.is_zeroed),
        n_inputs=n_inputs,
        n_operands=n_inputs + len(outputs),
        scalars=tuple(enumerate(names[n_inputs:])),
        defaults=tuple(one.default_value for one in arguments[n_inputs:]),
        is_empty=is_empty,
    )
    for one in backwards:
        _sibling(f"{one.module}_torch", package)
    # CPU, too: `run` says what is wrong with such tensors.
    for key in ("CUDA", "CPU"):
        library.impl(name, kernels.kernel, key)
        library.impl(f"{name}_out", kernels.kernel_out, key)
    _library.register_fake(kernels.name, kernels.fake, lib=library)
    _library.register_fake(f"{kernels.name}_out", kernels.fake_out, lib=library)
    backward: Any = kernels.refuse_backward
    setup_context: Any = None
    if backwards:
        operators = [_overload(library, one.module) for one in backwards]
        names += [one.name for one in outputs]
        derivative = derive(backwards, operators, names, n_inputs=n_inputs, n_outputs=len(outputs))
        backward, setup_context = derivative.backward, derivative.setup_context
    _library.register_autograd(kernels.name, backward, setup_context=setup_context, lib=library)
    return operator, operator_out


def _sibling(name: str, package: str | None) -> Any:
    """Import what stands beside an emitted file: in its package, or on the path."""
    return import_module(f".{name}" if package else name, package or None)


def _overload(library: Any, name: str) -> Any:
    return getattr(getattr(torch.ops, library.ns), name).default


@dataclass(frozen=True, slots=True)
class _Kernels:
    """What the two operators of a module do, for tensors with memory and without.

    Their arguments are inputs, outputs and scalars, in this order; PyTorch leaves out scalars at
    the end that have their defaults.
    """

    name: str
    module: Any
    outputs: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    zeroed: tuple[int, ...]
    n_inputs: int
    n_operands: int
    scalars: tuple[tuple[int, str], ...]
    defaults: tuple[Any, ...]
    is_empty: bool

    def kernel(self, *arguments: Any) -> Any:
        """Return new outputs."""
        device = arguments[0].device
        outputs = self._allocate(device)
        n_inputs = self.n_inputs
        self.launch(device, arguments[:n_inputs] + outputs, arguments[n_inputs:])
        return outputs if len(outputs) > 1 else outputs[0]

    def kernel_out(self, *arguments: Any) -> None:
        """Write the outputs that are given."""
        operands = arguments[: self.n_operands]
        self._check_detached(operands)
        self.launch(operands[0].device, operands, arguments[self.n_operands :])
        _increment_version(operands[self.n_inputs :])

    def fake(self, *arguments: Any) -> Any:
        """Return what `kernel` does, without memory; refuse what it would refuse."""
        self._check_described(arguments[: self.n_inputs])
        outputs = self._allocate(arguments[0].device)
        return outputs if len(outputs) > 1 else outputs[0]

    def fake_out(self, *arguments: Any) -> None:
        """Tell PyTorch what `kernel_out` writes; refuse what it would refuse."""
        operands = arguments[: self.n_operands]
        self._check_detached(operands)
        self._check_described(operands)
        _increment_version(operands[self.n_inputs :])

    def launch(
        self, device: torch.device, operands: tuple[Tensor, ...], scalars: tuple[float, ...]
    ) -> None:
        """Enqueue the graph on the current stream of the tensors' device."""
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self.launch(device, operands, scalars)
            return
        stream = None
        if _IS_OLD and device.type == "cuda":
            operands = tuple(operand.detach() for operand in operands)
            stream = torch.cuda.current_stream().cuda_stream
        if len(scalars) < len(self.defaults):
            scalars += self.defaults[len(scalars) :]
        named = {}
        for index, name in self.scalars:  # in half the time of dict(zip())
            named[name] = scalars[index]
        if self.is_empty:
            self.module.run(*operands, stream=stream, **named)
            return
        size = self.module.workspace_size()
        # Torch's, so that it belongs to the pool of a CUDA graph that captures this call.
        workspace = torch.empty(size, dtype=torch.uint8, device=device) if size else None
        self.module.run(*operands, workspace=workspace, stream=stream, **named)

    def refuse_backward(self, *_: Any) -> None:
        """Raise: no gradient may be lost silently."""
        raise RuntimeError(
            f"{self.name}: no gradient is defined: emit it with --backward (what computes a "
            "gradient has none of its own)"
        )

    def _allocate(self, device: torch.device) -> tuple[Tensor, ...]:
        empty = torch.empty_strided
        # Not a comprehension, which is a call of its own before Python 3.12.
        made: tuple[Tensor, ...] = ()
        for dim, stride, dtype in self.outputs:
            made += (empty(dim, stride, dtype=dtype, device=device),)
        for index in self.zeroed:
            made[index].zero_()
        return made

    def _check_described(self, operands: tuple[Tensor, ...]) -> None:
        """Refuse fake tensors as `run` would refuse real ones: by its own rules, in its words."""
        if _is_traced_again():
            return
        binding = self.module._binding
        rules = binding.data[0].layouts[: len(operands)]
        described = [_describe(one, *rule) for one, rule in zip(operands, rules, strict=True)]
        try:
            binding.check_described(tuple(described))
        except OperandError as error:
            if error.got != HOST_MEMORY:
                raise
            got = f"{error.got}: {_WITHOUT_A_GPU}"
            raise OperandError(error.argument, error.expected, got) from None

    def _check_detached(self, operands: tuple[Tensor, ...]) -> None:
        """Refuse to write into given outputs where autograd would have to know."""
        if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
            raise RuntimeError(
                f"{self.name}_out: expected no tensor that requires gradients: they flow through "
                f"{self.name} alone"
            )


def _is_traced_again() -> bool:
    """Whether a program that was traced as it is written is now decomposed and compiled.

    What makes the operands may give other strides then; compiled code restores those from before.
    """
    context = torch._guards.TracingContext.try_get()
    if context is None:
        return False
    return context.fw_metadata is not None or torch.fx.traceback.has_preserved_node_meta()


# What `run` is told of a tensor: DLDataType, DLDevice, dims, strides.
_Described: TypeAlias = tuple[
    tuple[int, int, int], tuple[int, int], tuple[int, ...], tuple[int, ...]
]
# Layouts some of whose extents the caller decides.
_FREE = ("ragged", "paged", "dense")
_CUDA_MANAGED = 13  # DLDeviceType: memory of every device


def _describe(tensor: Tensor, name: str, kind: str, _: int) -> _Described | None:
    """Say what is known of a fake tensor for the operand `name`; None if its sizes are not.

    A dim that PyTorch takes for dynamic becomes the number that it has, for good, where the graph
    has one: PyTorch says so where it may not (`mark_dynamic`, `export`'s `Dim`).
    """
    fixed = _hint if kind in _FREE else partial(_fix, name)
    sizes = [
        tuple(size if isinstance(size, int) else fixed(size) for size in sizes)
        for sizes in (tensor.shape, tensor.stride())
    ]
    if None in (*sizes[0], *sizes[1]):
        return None
    data_type = parse_type(str(tensor.dtype).partition(".")[2])
    is_meta = tensor.device.type == "meta"  # of no device, for shapes alone
    device_type, device = (_CUDA_MANAGED, 0) if is_meta else tensor.__dlpack_device__()
    return data_type, (int(device_type), device), sizes[0], sizes[1]


def _hint(size: Any) -> int | None:
    """Return the number that a dynamic size has while it is traced, if it has one."""
    return int(size.node.hint) if size.node.has_hint() else None


def _fix(name: str, size: Any) -> int:
    """Let PyTorch compile for the number that a dynamic size has."""
    try:
        return int(size)
    except RuntimeError as error:
        raise OperandError(
            name,
            "dims and strides that are known when it is traced",
            f"{size}, which depends on data: torch._check(...) can say what it is",
        ) from error

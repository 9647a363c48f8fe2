"""What may hold the memory: kinds of PyTorch's tensors, other protocols, addresses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from running import (  # noqa: E402
    Address,
    ArrayInterface,
    Call,
    Dlpack,
    OldDlpack,
    bare,
    found_case,
)

from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize("kind", ["parameter", "requires_grad", "subclass", "inference"])
def test_kinds_of_torch_tensors(case, kind):
    class Other(torch.Tensor):
        pass

    def as_kind(tensor):
        if kind == "subclass":
            return tensor.as_subclass(Other)
        if kind == "inference":
            with torch.inference_mode():
                return graphs.clone({0: tensor})[0]
        if not tensor.dtype.is_floating_point or tensor.dtype.itemsize == 1:
            return tensor
        detached = tensor.detach()
        return torch.nn.Parameter(detached) if kind == "parameter" else detached.requires_grad_()

    call = Call(case)
    inputs = [bare(operand) for operand in call.operands if operand.role == "input"]
    call.check_works(**{name: as_kind(call.passed[name]) for name in inputs})


@pytest.mark.parametrize("kind", [Dlpack, OldDlpack, ArrayInterface, Address])
def test_other_objects(case, kind):
    call = Call(case)
    changed = {name: kind(tensor) for name, tensor in call.passed.items()}
    call.poison()
    returned = call.run(**changed)
    call.check()
    whole = returned if isinstance(returned, tuple) else (returned,)
    for operand, found in zip(call.outputs, whole, strict=True):
        assert found is changed[bare(operand)]
    for name in changed:  # one among tensors of torch
        call.check_works(**{name: kind(call.passed[name])})


def test_array_interface_without_strides(cases):
    case = found_case(cases, "built_required_scalar")
    call = Call(case)
    call.check_works(**{n: ArrayInterface(t, strides=None) for n, t in call.passed.items()})
    first, last = call.passed
    wrong = {
        "shape": (8, 64, 32),
        "typestr": "<f4",
        "strides": (2, 512, 8192),
        "data": (call.passed[first].data_ptr() + 2, False),
    }
    for field, value in wrong.items():
        call.poison()
        with pytest.raises(OperandError) as caught:
            call.run(**{first: ArrayInterface(call.passed[first], **{field: value})})
        assert caught.value.argument == first
        call.check_untouched()
    read_only = (call.passed[last].data_ptr(), True)
    with pytest.raises(OperandError) as caught:
        call.run(**{last: ArrayInterface(call.passed[last], data=read_only)})
    assert caught.value.argument == last
    call.check_untouched()
    read_only = (call.passed[first].data_ptr(), True)
    call.check_works(**{first: ArrayInterface(call.passed[first], data=read_only)})


def test_addresses(case):
    call = Call(case)
    call.check_works(**{name: tensor.data_ptr() for name, tensor in call.passed.items()})
    for name, tensor in call.passed.items():
        call.check_works(**{name: tensor.data_ptr()})


def test_unchecked_calls_look_at_addresses_alone(case):
    call = Call(case)
    changed = {
        name: graphs.storage(tensor)[tensor.storage_offset() * tensor.itemsize :]
        for name, tensor in call.passed.items()
    }
    call.check_works(**changed, check=False)
    case.module.set_checks(False)
    try:
        call.check_works(**changed)
    finally:
        case.module.set_checks(True)
    for operand in call.operands:
        name = bare(operand)
        for wrong in (0, call.passed[name].data_ptr() + operand.alignment // 2):
            if operand.alignment == 1 and wrong:
                continue
            call.poison()
            with pytest.raises(OperandError) as caught:
                call.run(**{name: wrong}, check=False)
            assert caught.value.argument == name
            call.check_untouched()
    call.check_works()

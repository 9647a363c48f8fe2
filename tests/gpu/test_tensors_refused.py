"""Tensors that `run` must refuse on a GPU, by name, without launching anything."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from running import (  # noqa: E402  (on the path since conftest)
    Call,
    as_passed,
    bare,
    found_case,
    moved,
)

from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

OTHER_TYPES = {
    torch.bfloat16: torch.float16,
    torch.float16: torch.bfloat16,
    torch.float32: torch.int32,
    torch.float8_e4m3fn: torch.float8_e5m2,
    torch.int32: torch.float32,
    torch.int64: torch.float64,
    torch.uint8: torch.bool,
}
"""Of the same size."""


def refused(call, name, wrong, *, names=None):
    """Expect an error that names the operand, no launch, and a right call after it."""
    call.poison()
    with pytest.raises(OperandError) as caught:
        call.run(**{name: wrong})
    assert caught.value.argument in (names or (name,))
    assert caught.value.expected
    assert caught.value.got
    call.check_untouched()
    call.check_works()


def inner_axis(tensor):
    """Return the innermost axis that has an extent, else the last one."""
    axes = [axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1]
    return min(axes, key=tensor.stride, default=tensor.dim() - 1)


def byte_span(tensor):
    """Return the bytes from the first element to the end of the last one."""
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.itemsize * (1 + sum((dim - 1) * stride for dim, stride in axes))


def place(tensor, room, first):
    """Return a tensor like the given one that begins at a byte of `room`."""
    flat = room[first : first + byte_span(tensor)].view(tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())


def on_the_host(tensor):
    yield tensor.cpu()
    yield tensor.cpu().pin_memory()


def without_memory(tensor):
    from torch._subclasses import FakeTensorMode

    yield tensor.to("meta")
    yield FakeTensorMode().from_tensor(tensor)


def not_strided(tensor):
    if tensor.dtype.is_floating_point and tensor.itemsize > 1 and tensor.numel() < 1 << 20:
        yield tensor.to_sparse()


def of_another_type(tensor):
    yield tensor.view(OTHER_TYPES[tensor.dtype])
    wide = torch.zeros(byte_span(tensor), dtype=torch.float64, device="cuda")
    yield wide.as_strided(tensor.shape, tensor.stride())


def of_another_size(tensor):
    axis = inner_axis(tensor)
    yield tensor.narrow(axis, 0, tensor.shape[axis] - 1)
    yield tensor.reshape(-1)[:-1]
    shape = list(tensor.shape)
    shape[axis] += 1
    yield torch.zeros(shape, dtype=torch.float32, device="cuda").to(tensor.dtype)


def of_another_layout(tensor):
    long = [axis for axis in range(tensor.dim()) if tensor.shape[axis] > 1]
    if not long:
        return
    # Every second element of twice the memory.
    room = torch.zeros(2 * byte_span(tensor), dtype=torch.uint8, device="cuda")
    room = room.view(tensor.dtype)
    yield room.as_strided(tensor.shape, [2 * stride for stride in tensor.stride()])
    yield room.as_strided(tensor.shape, [0] * tensor.dim())
    if len(long) > 1:
        # The same extents; the two innermost lie the other way round.
        first, second = sorted(long, key=tensor.stride)[:2]
        strides = list(tensor.stride())
        strides[second], strides[first] = 1, tensor.shape[second]
        yield room.as_strided(tensor.shape, strides)


def misaligned(tensor, alignment):
    """Yield the same contents half an alignment further on, where the type allows that."""
    shift = alignment // 2
    if shift % tensor.itemsize or not shift:
        return
    room = torch.zeros(byte_span(tensor) + alignment, dtype=torch.uint8, device="cuda")
    yield place(tensor, room, shift).copy_(tensor)


@pytest.mark.parametrize(
    "kind",
    [
        on_the_host,
        without_memory,
        not_strided,
        of_another_type,
        of_another_size,
        of_another_layout,
    ],
)
def test_wrong_tensors(case, kind):
    call = Call(case)
    count = 0
    for name, tensor in call.passed.items():
        for wrong in kind(tensor):
            refused(call, name, wrong)
            count += 1
    assert count > 0


def test_misaligned_tensors(case):
    call = Call(case)
    count = 0
    for operand in call.operands:
        for wrong in misaligned(call.passed[bare(operand)], operand.alignment):
            refused(call, bare(operand), wrong)
            count += 1
    assert count > 0


@pytest.mark.parametrize(
    "wrong",
    ["text", b"bytes", 1.5, [1, 2], object(), 1 << 70, -1, 0],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_tensor(case, wrong):
    call = Call(case)
    for name in call.passed:
        refused(call, name, wrong)


def test_inputs_cannot_be_left_out(case):
    call = Call(case)
    inputs = [operand for operand in call.operands if operand.role == "input"]
    for operand in inputs:
        refused(call, bare(operand), None)
    call.poison()
    for operand in inputs:
        with pytest.raises(TypeError):
            call.run(operand)
    with pytest.raises(TypeError):
        call.run(nothing_of_this_name=1)
    call.check_untouched()
    call.check_works()


def test_outputs_that_share_memory(case):
    """An output that begins within the last bytes of another operand, of whatever role."""
    call = Call(case)
    for output in call.outputs:
        for operand in call.operands:
            if operand is output:
                continue
            first, second = (call.passed[bare(o)] for o in (operand, output))
            start = (byte_span(first) - 1) // 16 * 16
            size = max(start + byte_span(second), byte_span(first))
            room = torch.zeros(size, dtype=torch.uint8, device="cuda")
            placed = place(first, room, 0), place(second, room, start)
            call.poison()
            with pytest.raises(OperandError) as caught:
                call.run(**{bare(operand): placed[0], bare(output): placed[1]})
            assert caught.value.argument in (bare(operand), bare(output))
            call.check_untouched()
            torch.cuda.synchronize()
            assert not room.any()
    call.check_works()


@pytest.mark.parametrize("name", ["plan_layernorm", "plan_sdpa_dense", "plan_matmul_bias_relu"])
def test_outputs_over_an_input_that_is_read_as_a_whole(cases, name):
    call = Call(found_case(cases, name))
    first, output = call.operands[0], call.outputs[0]
    tensor = call.passed[bare(first)]
    refused(call, bare(output), tensor, names=(bare(output), bare(first)))


def test_wrong_workspaces(case):
    needed = case.module.workspace_size()
    if not needed:
        pytest.skip("this plan needs no workspace")
    call, block = Call(case), case.workspace()
    for wrong in (
        torch.empty(needed - 1, dtype=torch.uint8, device="cuda"),
        torch.empty(needed, dtype=torch.uint8),
        "text",
        block.data_ptr() + 8,
    ):
        refused(call, "workspace", wrong, names=("workspace", "workspace_ptr"))
    for right in (
        torch.empty(-(-needed // 4), dtype=torch.float32, device="cuda"),
        torch.empty(2 * needed, dtype=torch.uint8, device="cuda"),
        block.data_ptr(),
    ):
        call.check_works(workspace=right)


def test_wrong_streams(case):
    call = Call(case)
    for wrong in ("text", 1.5, torch.zeros(1, device="cuda"), -1):
        refused(call, "stream", wrong)


def test_tensors_of_another_device(case):
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    call = Call(case)
    there = moved(call.tensors, 1)
    passed = {bare(o): as_passed(o, there[o.uid]) for o in call.operands}
    first, *others = passed
    for name, tensor in passed.items():
        # The first one says which device it is: the next one is wrong then.
        refused(call, name, tensor, names=others if name == first else None)
    with torch.cuda.device(1):
        case.poison(there)
        torch.cuda.synchronize()
        case.module.run(**passed, **call.scalars)
        torch.cuda.synchronize()
    case.assert_same(moved(there, 0), call.expected)

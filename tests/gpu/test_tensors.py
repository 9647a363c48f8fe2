"""`run` against the frontend on a GPU: the same bytes, however the tensors are described."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from running import Call, bare, found_case, is_ragged, views  # noqa: E402
from tensor_graphs import B, D, H, S  # noqa: E402

from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 5


@pytest.fixture(params=["direct", "record"])
def policy(request, case):
    case.module.set_launch_policy(request.param)
    yield request.param
    case.module.set_launch_policy("auto")


# Results


@pytest.mark.parametrize("workspace", ["callers", "runtimes"])
def test_run_gives_the_frontends_bytes(case, policy, workspace):
    block = case.workspace() if workspace == "callers" else None
    for _ in range(ROUNDS):
        call = Call(case)
        call.poison()
        returned = case.module.run(*call.passed.values(), **call.scalars, workspace=block)
        call.check()
        whole = returned if isinstance(returned, tuple) else (returned,)
        outputs = [call.passed[bare(operand)] for operand in call.outputs]
        assert len(whole) == len(outputs)
        assert all(one is other for one, other in zip(whole, outputs, strict=True))
        call.check_works(workspace=block)  # by name, at the same addresses


def test_outputs_that_are_left_out(case):
    for _ in range(ROUNDS):
        call = Call(case)
        torch.cuda.synchronize()
        returned = call.run(*call.outputs)
        call.check_returned(returned)
        whole = returned if isinstance(returned, tuple) else (returned,)
        for operand, tensor in zip(call.outputs, whole, strict=True):
            assert type(tensor) is torch.Tensor
            assert tensor.device == torch.device("cuda", torch.cuda.current_device())
            if operand.data_type == "BOOLEAN":
                assert tensor.dtype == torch.uint8
                continue
            assert tensor.dtype == call.tensors[operand.uid].dtype
            assert tuple(tensor.shape) == operand.dim
            if not is_ragged(case, operand):
                assert tensor.stride() == operand.stride


def test_one_output_that_is_left_out(case):
    call = Call(case)
    for left_out in call.outputs:
        call.poison()
        returned = call.run(left_out)
        call.check_returned(returned)
        whole = returned if isinstance(returned, tuple) else (returned,)
        for operand, tensor in zip(call.outputs, whole, strict=True):
            assert (tensor is call.passed[bare(operand)]) == (operand is not left_out)


def test_scalars_of_one_element_on_the_host(cases):
    numpy = pytest.importorskip("numpy")
    case = found_case(cases, "built_required_scalar")
    call = Call(case)
    value = call.scalars["alpha"]
    for given in (
        torch.tensor(value),
        torch.tensor([value]),
        numpy.float32(value),
        numpy.array(value, numpy.float32),
    ):
        call.check_works(alpha=given)


def test_in_place_where_the_graph_works_element_by_element(cases):
    case = found_case(cases, "built_required_scalar")
    call = Call(case)
    copy = call.passed[bare(call.operands[0])].clone()
    returned = case.module.run(copy, copy, **call.scalars)
    torch.cuda.synchronize()
    assert returned is copy
    assert torch.equal(graphs.storage(copy), call.expected[call.outputs[0].uid])


def test_the_same_tensor_for_two_inputs(cases):
    case = found_case(cases, "plan_matmul_bias_relu")
    tensors = case.fresh()
    a, b = (o.uid for o in case.module.OPERANDS[:2])
    tensors[b] = tensors[a]
    Call(case, tensors).check_works()


# What describes the same memory


def test_views_of_the_same_memory(case):
    call = Call(case)
    by_name = {}
    for operand in call.operands:
        for name, view in views(case, operand, call.passed[bare(operand)]):
            by_name.setdefault(name, {})[bare(operand)] = view
    assert "fewer axes of one" in by_name
    for changed in by_name.values():
        call.check_works(**changed)


def heads(tensor):
    """Return [b, h, s, d]: lowering declares K, and V of the backward pass, as their transposes."""
    return tensor if tensor.shape == (B, H, S, D) else tensor.transpose(2, 3)


def test_attention_as_models_have_it(cases):
    case = found_case(cases, "built_sdpa_bshd")
    call = Call(case)
    memory = {name: heads(tensor).transpose(1, 2) for name, tensor in call.passed.items()}
    assert all(tensor.shape == (B, S, H, D) for tensor in memory.values())
    assert all(tensor.is_contiguous() for tensor in memory.values())
    call.check_works(**memory)
    call.check_works(**{name: tensor.transpose(1, 2) for name, tensor in memory.items()})
    call.check_works(**{name: tensor.flatten(2) for name, tensor in memory.items()})  # hidden size
    call.check_works(**{name: tensor.view(B * S, H, D) for name, tensor in memory.items()})
    for name, tensor in memory.items():
        call.poison()
        with pytest.raises(OperandError) as caught:  # [b, h, s, d] in memory
            call.run(**{name: torch.empty(B, H, S, D, dtype=tensor.dtype, device="cuda")})
        assert caught.value.argument == name
        call.check_untouched()


def test_gradients_that_interleave(cases):
    case = found_case(cases, "built_sdpa_packed")
    call = Call(case)
    inputs = torch.empty(B, S, 3, H, D, dtype=torch.bfloat16, device="cuda")
    names = [name for name in call.passed if name in ("q", "k", "v")]
    assert names == ["q", "k", "v"]
    for number, name in enumerate(names):
        inputs[:, :, number].copy_(heads(call.passed[name]).transpose(1, 2))
    gradients = torch.full_like(inputs, float("nan"))
    changed = {name: inputs[:, :, number] for number, name in enumerate(names)}
    for number, operand in enumerate(call.outputs):
        changed[bare(operand)] = gradients[:, :, number].transpose(1, 2)
    call.run(**changed)
    torch.cuda.synchronize()
    call.run()
    call.check()
    for number, operand in enumerate(call.outputs):
        found = gradients[:, :, number].transpose(1, 2).contiguous().view(torch.int16)
        wanted = heads(call.tensors[operand.uid]).contiguous().view(torch.int16)
        assert torch.equal(found, wanted), operand.argument


def test_raw_bytes_for_types_of_one_byte(cases):
    for name in ("built_fp8_matmul", "built_fp8_quantize"):
        case = found_case(cases, name)
        call = Call(case)
        changed = {
            bare(o): call.passed[bare(o)].view(torch.uint8)
            for o in call.operands
            if o.data_type.startswith("FP8")
        }
        assert changed
        call.check_works(**changed)
        for operand in call.operands:
            if bare(operand) in changed:
                for dtype in (torch.int8, torch.float8_e5m2, torch.bool):
                    with pytest.raises(OperandError) as caught:
                        call.run(**{bare(operand): call.passed[bare(operand)].view(dtype)})
                    assert caught.value.argument == bare(operand)
        call.check_works()

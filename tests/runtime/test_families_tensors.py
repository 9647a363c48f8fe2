"""`run` of families: the tensors say which member is meant, or the caller does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support import device_tensors  # noqa: E402
from support.cases import Case  # noqa: E402
from support.device_tensors import DeviceTensor, on_device, strided  # noqa: E402
from support.families import GRID, case_of  # noqa: E402
from support.producers import OldProducer, Producer  # noqa: E402
from support.standin import Standin  # noqa: E402

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError  # noqa: E402
from runtime.test_families_calls import SOME, key_of  # noqa: E402
from runtime.test_tensors import Tensors, doubles  # noqa: E402

Load = Callable[[str], ModuleType]


@pytest.fixture(autouse=True)
def default_stream() -> Iterator[None]:
    device_tensors.set_stream(0)
    device_tensors.set_device(0)
    yield
    device_tensors.set_stream(0)
    device_tensors.set_device(0)


@pytest.fixture
def rows(load: Load) -> ModuleType:
    return load("rows")


@pytest.fixture
def grid(load: Load) -> ModuleType:
    return load("grid")


def check_run(module: ModuleType, case: Case, seed: int = 0, **key: int) -> None:
    """Call once with outputs, and once without, which are made then."""
    tensors = Tensors(case, seed)
    expected = tensors.expected()
    returned = module.run(*tensors.all, **tensors.scalars, **key)
    tensors.check(expected)
    [output] = tensors.outputs
    assert returned is tensors.by_name[output]
    made = module.run(*tensors.inputs, **tensors.scalars, **key)
    like = tensors.by_name[output]
    assert type(made) is DeviceTensor
    assert (made.dtype, made.shape, made.stride()) == (like.dtype, like.shape, like.stride())
    assert doubles(made).tolist() == expected[output]


@pytest.mark.parametrize("module", ["rows", "grid"])
def test_tensors_choose_the_member(load: Load, module: str) -> None:
    loaded = load(module)
    cases = SOME if module == "rows" else GRID
    for case in [*cases, *reversed(cases)]:
        check_run(loaded, case)
        check_run(loaded, case, **dict(zip(loaded.KEY, key_of(case), strict=True)))


@pytest.mark.parametrize("check", [True, False])
def test_other_axes_than_declared_choose_it_as_well(grid: ModuleType, check: bool) -> None:
    """[b, s, h, d] is how most programs hold it; two of these look like other members."""
    for case in GRID:
        tensors = Tensors(case)
        expected = tensors.expected()
        q, k, lengths, o = tensors.all
        for views in (
            [t.transpose(1, 2) for t in (q, k)] + [lengths.flatten(), o.transpose(1, 2)],
            [t.transpose(1, 2).flatten(2) for t in (q, k)] + [lengths, o.transpose(1, 2)],
            [q, k.transpose(1, 2), lengths[:, 0], o],
        ):
            grid.run(*map(on_device, views), check=check)
            tensors.check(expected)
            tensors.poison()
        made = grid.run(*map(on_device, (q.transpose(1, 2), k.transpose(1, 2), lengths)))
        assert doubles(made).tolist() == expected["o"]
        assert made.stride() == o.stride()


def test_a_view_that_reads_as_another_member_is_that_one_which_it_is(grid: ModuleType) -> None:
    """h is 2, so that [4, s=16, 2, 8] can be read as batch 4 of s=2, which there is not."""
    case = case_of("grid", 4, 16)
    tensors = Tensors(case)
    expected = tensors.expected()
    q, k, lengths, o = tensors.all
    grid.run(on_device(q.transpose(1, 2)), k, lengths, o)
    tensors.check(expected)


def test_flat_tensors_that_fit_several_members_are_refused(
    grid: ModuleType, standin: Standin
) -> None:
    """All in one axis: 2 x 32 and 4 x 16 are as long; the lengths tell them apart."""
    case = case_of("grid", 4, 16)
    tensors = Tensors(case)
    expected = tensors.expected()
    q, k, lengths, o = tensors.all
    flat = [on_device(t.transpose(1, 2).flatten()) for t in (q, k, o)]
    grid.run(flat[0], flat[1], lengths.flatten(), flat[2])
    tensors.check(expected)
    with pytest.raises(OperandError) as caught:
        grid.run(flat[0], flat[1], lengths.data_ptr(), flat[2])
    assert str(caught.value) == (
        "B, S: expected a key, because members (2, 32) and (4, 16) both take these operands, "
        "got None"
    )
    tensors.poison()
    grid.run(flat[0], flat[1], lengths.data_ptr(), flat[2], B=4, S=16)
    tensors.check(expected)


def test_addresses_need_a_key(rows: ModuleType) -> None:
    tensors = Tensors(SOME[1])
    expected = tensors.expected()
    addresses = [tensor.data_ptr() for tensor in tensors.all]
    with pytest.raises(OperandError, match="expected a key, because members 0 and 16 both"):
        rows.run(*addresses, epsilon=1.5)
    rows.run(*addresses, epsilon=1.5, x_d0=32)
    tensors.check(expected)
    tensors.poison()
    # One tensor is enough.
    rows.run(tensors.all[0], *addresses[1:], epsilon=1.5)
    tensors.check(expected)


def test_an_output_alone_may_say_it(rows: ModuleType) -> None:
    tensors = Tensors(SOME[1])
    expected = tensors.expected()
    x, w, y = tensors.all
    rows.run(x.data_ptr(), w.data_ptr(), y, epsilon=1.5)
    tensors.check(expected)


@pytest.mark.parametrize("producer", [Producer, OldProducer])
def test_objects_of_other_protocols(rows: ModuleType, producer: type) -> None:
    tensors = Tensors(SOME[1])
    expected = tensors.expected()
    x, w, y = tensors.all
    rows.run(producer(x), producer(w), producer(y), epsilon=1.5)
    tensors.check(expected)


@pytest.mark.parametrize("check", [True, False])
def test_a_shape_of_no_member(rows: ModuleType, standin: Standin, check: bool) -> None:
    x = strided((20, 16), (16, 1), torch.float32)
    w = strided((16, 16), (16, 1), torch.float32)
    for y in (None, strided((20, 16), (16, 1), torch.float32)):
        with pytest.raises(OperandError) as caught:
            rows.run(x, w, y, epsilon=1.5, check=check)
        given = "x [20, 16], w [16, 16]" + (", y [20, 16]" if y is not None else "")
        assert str(caught.value) == (
            f"x_d0: expected tensors for one of 16, 32, 0, 64, 4096, got 20 of {given}"
        )
    assert standin.calls("cudnnBackendExecute") == 0
    check_run(rows, SOME[0])


def test_a_shape_that_says_no_key(grid: ModuleType) -> None:
    q = strided((2, 20, 2, 8), (320, 16, 8, 1), torch.float32)
    lengths = strided((3,), (1,), torch.float32)
    with pytest.raises(OperandError) as caught:
        grid.run(q.flatten(), q.flatten(), lengths)
    assert "B, S: expected tensors for one of (2, 16), (2, 32)" in str(caught.value)
    assert "got q [640], k [640], lengths [3]" in str(caught.value)


def test_one_wrong_operand_is_named(grid: ModuleType, rows: ModuleType) -> None:
    tensors = Tensors(GRID[1])
    q, k, lengths, o = tensors.all
    other = Tensors(GRID[3]).all
    with pytest.raises(OperandError, match=r"^k: expected"):
        grid.run(q, other[1], lengths, o)
    with pytest.raises(OperandError, match=r"^lengths: expected"):
        grid.run(on_device(q.transpose(1, 2)), on_device(k.transpose(1, 2)), other[2], o)
    x, w, y = Tensors(SOME[1]).all
    with pytest.raises(OperandError, match=r"^w: expected"):
        rows.run(x, on_device(w[:8]), y, epsilon=1.5)
    with pytest.raises(OperandError, match=r"^y: expected"):
        rows.run(x, w, Tensors(SOME[2]).all[2], epsilon=1.5)
    with pytest.raises(OperandError, match=r"^x: expected"):
        rows.run(x, w, y, epsilon=1.5, x_d0=16)
    with pytest.raises(OperandError, match=r"^w: .*FLOAT|float32"):
        rows.run(x, on_device(w.to(torch.float64)), y, epsilon=1.5)


def test_half_a_key(grid: ModuleType) -> None:
    tensors = Tensors(GRID[0])
    with pytest.raises(OperandError) as caught:
        grid.run(*tensors.all, S=16)
    assert str(caught.value) == "B: expected an int, or none of B, S, got None"
    with pytest.raises(OperandTypeError, match="S: expected an int"):
        grid.run(*tensors.all, B=2, S="16")
    with pytest.raises(OperandError, match=r"got \(2, 17\)"):
        grid.run(*tensors.all, B=2, S=17)


def test_members_without_elements(rows: ModuleType, standin: Standin) -> None:
    x = on_device(torch.empty(0, 16))
    w = strided((16, 16), (16, 1), torch.float32)
    made = rows.run(x, w, epsilon=1.5)
    assert made.shape == (0, 16)
    assert standin.calls("cudnnBackendExecute") == 0


def test_checks_are_turned_off_for_all_members(rows: ModuleType) -> None:
    x, w, y = Tensors(SOME[1]).all
    wrong = on_device(w.to(torch.float64))
    rows.set_checks(False)
    rows.run(x, wrong, y, epsilon=1.5)
    rows.set_checks(True)
    with pytest.raises(OperandError, match="w"):
        rows.run(x, wrong, y, epsilon=1.5)

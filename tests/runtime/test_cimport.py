"""Other people's Cython code: a .pyx outside the repository that calls a generated `enqueue`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.standin import Standin

from cudnn_bindgen.codegen.compile import compile_module
from cudnn_bindgen.runtime.errors import (
    CudnnError,
    OperandError,
    PlanNotLoadedError,
    WorkspaceError,
)

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]


@pytest.fixture
def call(thd: ModuleType, load: Load) -> Callable[..., None]:
    """Calls `enqueue` without the GIL; see conftest.caller_text."""
    return load("caller").call


@pytest.mark.parametrize("policy", ["direct"], indirect=True)  # reads the log of executions
def test_enqueue_computes_what_execute_does(
    call: Callable[..., None], place: Place, standin: Standin
) -> None:
    operands = place("thd")
    stream, block = standin.stream(), standin.alloc(4096)
    for workspace in (0, block):
        operands.fill()
        call(*operands.arguments, workspace_ptr=workspace, stream=stream)
        operands.check()
    lines = [line.split() for line in standin.log("cudnnBackendExecute")]
    assert [line[4] for line in lines] == [hex(stream)] * 2
    assert lines[1][5] == hex(block)
    standin.free(block)
    standin.destroy_stream(stream)


def test_enqueue_raises_what_execute_does(
    thd: ModuleType, call: Callable[..., None], place: Place, standin: Standin
) -> None:
    operands = place("thd")
    addresses = operands.arguments
    for slot, operand in enumerate(thd.OPERANDS):
        for wrong in (0, addresses[slot] + operand.alignment // 2):
            with pytest.raises(OperandError, match=f"^{operand.argument}: "):
                call(*addresses[:slot], wrong, *addresses[slot + 1 :])
    with pytest.raises(OperandError, match=r"^workspace_ptr: "):
        call(*addresses, workspace_ptr=8)
    stream = standin.stream()
    standin.begin_capture(stream)
    with pytest.raises(WorkspaceError):
        call(*addresses, stream=stream)
    assert standin.end_capture(stream) == 0
    standin.destroy_stream(stream)
    standin.fail("cudnnBackendExecute", status=5000)
    with pytest.raises(CudnnError, match=r"^thd "):
        call(*addresses)
    thd.close()
    with pytest.raises(PlanNotLoadedError):
        call(*addresses)
    operands.check_untouched()
    thd.load_plan()
    call(*addresses)
    operands.check()


def test_a_module_that_was_compiled_for_other_declarations(
    thd: ModuleType, builds: Any, tmp_path: Path
) -> None:
    """An `enqueue` with other arguments is refused at import, before it could be called wrongly."""
    builds.path("thd")
    declarations = (builds.directory / "thd.pxd").read_text()
    first = CASES["thd"].binding.arguments[0]
    (tmp_path / "thd.pxd").write_text(
        declarations.replace(f"    void* {first.name},", f"    double {first.name},")
    )
    source = tmp_path / "old.pyx"
    source.write_text("# cython: language_level=3\nfrom thd cimport enqueue\n")
    spec = importlib.util.spec_from_file_location("old", compile_module(source, tmp_path))
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(TypeError, match=r"enqueue.*wrong signature"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    sys.modules.pop("old", None)  # Cython leaves it there

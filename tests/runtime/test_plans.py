"""Plans: loading, closing, and those that do not fit what they are loaded into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import ubjson
from support.cases import CASES, edited, edited_text
from support.standin import Standin

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.runtime.errors import CudnnError, PlanMismatchError, PlanNotLoadedError

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]


MAKES = r"file that cudnn-bindgen plan norm\.plan --for GPU makes"


def test_a_module_without_a_plan(load: Load, place: Place, standin: Standin) -> None:
    module = load("norm")
    operands = place("norm")
    for call in (
        lambda: module.execute(*operands.arguments),
        lambda: module.execute_uids(operands.by_uid),
        module.workspace_size,
        lambda: module.WORKSPACE_SIZE,
    ):
        with pytest.raises(PlanNotLoadedError, match=rf"^norm: no plan is loaded, .*{MAKES}"):
            call()
    for options in ({}, {"plan": None}, {"on_missing": "refuse"}):
        with pytest.raises(
            PlanNotLoadedError, match=rf"^norm: there is no plan to load, .*{MAKES}"
        ):
            module.load_plan(**options)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = module.nonsense
    module.close()
    assert standin.log("cudnnCreate", "cudnnBackendCreateDescriptor") == []
    module.load_plan(CASES["norm"].plan)
    module.execute(*operands.arguments)
    operands.check()


def test_closing_and_loading_again(
    load: Load, place: Place, standin: Standin, tmp_path: Path
) -> None:
    module = load("parts")
    operands = place("parts")
    path = tmp_path / "a.plan"
    path.write_bytes(CASES["parts"].plan)
    module.execute(*operands.arguments)
    for plan in ((), (None,), (CASES["parts"].plan,), (path,), (str(path),)):
        operands.check()
        operands.fill()
        module.close()
        module.close()
        assert standin.live("plan") == 0
        with pytest.raises(PlanNotLoadedError, match=r"^parts: no plan is loaded"):
            module.execute(*operands.arguments)
        operands.check_untouched()
        module.load_plan(*plan)
        assert standin.live("plan") == 1
        module.execute(*operands.arguments)
    others = place("kept")
    module.load_plan(CASES["kept"].plan)
    assert standin.live("plan") == 1
    module.execute(*others.arguments)
    others.check()


def wrong_plans() -> dict[str, tuple[Any, type[Exception], str]]:
    parts, other_graph = CASES["parts"], CASES["scalars"]
    structure = {
        key: value
        for key, value in ubjson.loadb(parts.plan).items()
        if key in ("json_version", "context", "nodes", "tensors")
    }
    fingerprints = f"{other_graph.binding.fingerprint}.*{parts.binding.fingerprint}"
    text = edited(parts, cudnn_backend_data='{"cudnnVersion":91900,"GPUProfile":{"deviceVer":900}}')
    return {
        "garbage": (b"\x00\xff" * 100, GraphFormatError, "."),
        "empty": (b"", GraphFormatError, "."),
        "cut": (parts.plan[:-20], GraphFormatError, "truncated"),
        "structure": (ubjson.dumpb(structure), GraphFormatError, "structure only"),
        "missing file": ("/nonexistent/a.plan", FileNotFoundError, "a.plan"),
        "number": (5, TypeError, "."),
        "other graph": (other_graph.plan, PlanMismatchError, fingerprints),
        "alignment": (
            edited(parts, aligned_operands={"1": [256, 2]}),
            PlanMismatchError,
            "alignment of .*_ptr of 256, here is an alignment of .*_ptr of 16",
        ),
        "version": (edited_text(parts, version=92700), PlanMismatchError, "cuDNN 92700.*91900"),
        "sm": (edited_text(parts, sm=1000), PlanMismatchError, "SM 100, here is SM 90"),
        "uids": (
            edited(CASES["no_parts"], variant_pack_uids=[1, 2, 4, 5]),
            PlanMismatchError,
            "uids 1, 2, 4, 5, here is uids 1, 2, 3, 4, 5",
        ),
        "not for cuDNN": (text, CudnnError, "NOT_SUPPORTED.*standin"),
    }


@pytest.mark.parametrize("wrong", wrong_plans())
@pytest.mark.parametrize("state", ["loaded", "never used", "closed"])
def test_loading_a_wrong_plan_changes_nothing(
    load: Load, place: Place, standin: Standin, wrong: str, state: str
) -> None:
    plan, error, message = wrong_plans()[wrong]
    module = load("parts")
    operands = place("parts")
    if state == "loaded":
        module.execute(*operands.arguments)
    elif state == "closed":
        module.close()
    plans = standin.live("plan")
    with pytest.raises(error, match=message):
        module.load_plan(plan)
    assert standin.live("plan") == plans
    operands.fill()
    if state == "closed":
        with pytest.raises(PlanNotLoadedError):
            module.execute(*operands.arguments)
        module.load_plan()
    module.execute(*operands.arguments)
    operands.check()


def test_running_on_something_else_than_the_plan_is_for(
    load: Load, place: Place, standin: Standin
) -> None:
    module = load("thd")
    operands = place("thd")
    for call in (lambda: module.execute(*operands.arguments), module.load_plan):
        standin.set_version(92700)
        with pytest.raises(
            PlanMismatchError,
            match=r"^thd: the plan is for cuDNN 91900, here is cuDNN 92700: "
            r"install nvidia-cudnn-cu12 or -cu13 9\.19\.0, "
            r"or plan with this one by cudnn-bindgen plan thd\.plan --for sm_90:132 --cudnn DIR$",
        ) as caught:
            call()
        assert (caught.value.what, caught.value.plan, caught.value.here) == (
            *("cuDNN", "91900", "92700"),
        )
        standin.set_version(91900)
        standin.set_device_sm(0, 12, 1)
        with pytest.raises(
            PlanMismatchError, match=r"SM 90, here is SM 121: .* thd\.plan --for sm_121:132 makes"
        ):
            call()
        with standin.context(1):
            call()  # the other device is right
        standin.set_device_sm(0, 9, 0)
    operands.fill()
    module.execute(*operands.arguments)
    operands.check()

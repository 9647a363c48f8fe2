"""Modules of bundles, and bundles in modules, against the stand-in: each device its plan."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import ubjson
from support.bundling import bundle, with_entry
from support.cases import CASES, Case, edited_text, make_case, real
from support.documents import DATA
from support.standin import Standin

from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.bind.plan_file import read_plans
from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.runtime.errors import PlanMismatchError, PlanMissingError

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]


def for_device(name: str, **device: int) -> Case:
    """A case whose plan is for something else; each of these plans computes something else."""
    return dataclasses.replace(CASES[name], plan=edited_text(CASES[name], **device))


CUDNN_19 = for_device("parts", sm_count=132)
CUDNN_27 = for_device("no_parts", version=92700, sm_count=132)
SM_100 = for_device("kept", sm=1000, sm_count=148)
SM_90_114 = for_device("one_dropped", sm_count=114)
ALL = (CUDNN_19, CUDNN_27, SM_100, SM_90_114)
BUNDLE = bundle(*(case.plan for case in ALL))


def real_27(stem: str) -> dict[str, Any]:
    """As `real`, for the other cuDNN."""
    path = DATA / "plans/cudnn-9.27-sm90" / f"{stem}.plan"
    document: dict[str, Any] = ubjson.loadb(path.read_bytes())
    for number, uid in enumerate(sorted(document["pass_by_values"], key=int)):
        document["pass_by_values"][uid]["value"] = struct.pack(">f", 0.5 + number).hex()
    return document


THD_19 = make_case("thd_19", "bundled_thd", real("sdpa_thd"), workspace=4096)
THD_27 = make_case("thd_27", "bundled_thd", real_27("sdpa_thd"), workspace=64, version=92700)

BUNDLES = {"bundled": BUNDLE, "bundled_thd": bundle(THD_27.plan, THD_19.plan)}


@pytest.fixture
def load_bundled(builds: Any, load: Load) -> Load:
    """As `load`, for modules of BUNDLES."""

    def load_bundled(name: str) -> ModuleType:
        with builds.lock(name):
            if not extension_path(builds.directory, name).exists():
                binding = bind_graphs(read_graphs(BUNDLES[name]))
                builds.compile(name, render(binding, name, f"{name}.bundle"))
        return load(name)

    return load_bundled


@pytest.fixture
def check(standin: Standin, place: Place) -> Callable[[ModuleType, Case], None]:
    """Call a module and see that it computes what the plan of a case does."""

    def check(module: ModuleType, case: Case) -> None:
        operands = place(case)
        module.execute(*operands.arguments)
        operands.check()

    return check


Check = Callable[[ModuleType, Case], None]


def test_each_plan_computes_something_else(place: Place, load: Load) -> None:
    """Or the tests below would show nothing."""
    module = load("parts")
    for case in ALL[1:]:
        operands = place(case)
        module.execute(*operands.arguments)
        with pytest.raises(AssertionError, match="uid"):
            operands.check()


def test_the_plan_for_the_cudnn_that_runs(
    load_bundled: Load, check: Check, standin: Standin
) -> None:
    check(load_bundled("bundled"), CUDNN_19)
    standin.set_version(92700)
    check(load_bundled("bundled"), CUDNN_27)


def test_each_device_gets_its_own_plan(load_bundled: Load, check: Check, standin: Standin) -> None:
    standin.set_device_count(3)
    standin.set_device_sm(1, 10, 0)
    standin.set_device_sm_count(1, 148)
    standin.set_device_sm_count(2, 114)
    module = load_bundled("bundled")
    for _ in range(3):
        check(module, CUDNN_19)
        with standin.context(1):
            check(module, SM_100)
        with standin.context(2):
            check(module, SM_90_114)


@pytest.mark.parametrize("version", [91900, 92700])
def test_a_graph_that_lowering_changed_for_one_cudnn(
    load_bundled: Load, check: Check, standin: Standin, version: int
) -> None:
    standin.set_version(version)
    module = load_bundled("bundled_thd")
    case = THD_19 if version == 91900 else THD_27
    check(module, case)
    assert module.WORKSPACE_SIZE == module.workspace_size() >= case.workspace


def test_a_device_that_no_plan_is_for(load_bundled: Load, check: Check, standin: Standin) -> None:
    module = load_bundled("bundled")
    standin.set_version(91800)
    with pytest.raises(PlanMissingError) as caught:
        module.workspace_size()
    message = str(caught.value)
    for part in ("9.18.0", "SM 90", "132", "SM 100", "148", "114", "9.19.0", "9.27.0"):
        assert part in message
    standin.set_version(91900)
    check(module, CUDNN_19)


@pytest.mark.parametrize("kind", ["bytes", "path", "text"])
def test_a_bundle_is_loaded_into_a_module_of_one_plan(
    load: Load, check: Check, standin: Standin, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "all.bundle"
    path.write_bytes(BUNDLE)
    source = {"bytes": BUNDLE, "path": path, "text": str(path)}[kind]
    module = load("parts")
    standin.set_version(92700)
    with pytest.raises(PlanMismatchError, match="cuDNN 91900, here is cuDNN 92700"):
        module.load_plan()
    module.load_plan(source)
    check(module, CUDNN_27)
    module.close()
    module.load_plan(source)
    check(module, CUDNN_27)


@pytest.mark.parametrize(
    "damaged",
    {
        "cut": BUNDLE[:-1],
        "edited": with_entry(BUNDLE, 0, sm_count=1),
        "flipped": BUNDLE[:1000] + bytes([BUNDLE[1000] ^ 8]) + BUNDLE[1001:],
    }.values(),
    ids=["cut", "edited", "flipped"],
)
def test_a_damaged_bundle_changes_nothing(load: Load, check: Check, damaged: bytes) -> None:
    module = load("parts")
    check(module, CASES["parts"])
    with pytest.raises(GraphFormatError):
        module.load_plan(damaged)
    check(module, CASES["parts"])


def test_a_bundle_of_another_graph_changes_nothing(load: Load, check: Check) -> None:
    module = load("parts")
    check(module, CASES["parts"])
    with pytest.raises(PlanMismatchError, match=THD_19.binding.fingerprint):
        module.load_plan(BUNDLES["bundled_thd"])
    check(module, CASES["parts"])


def test_what_load_plan_is_handed_of_a_bundle() -> None:
    plans = read_plans(BUNDLE)
    alone = [read_plans(case.plan)[0] for case in (SM_90_114, CUDNN_19, CUDNN_27, SM_100)]
    assert [*plans] == alone

"""Workspace under overrides, versions of cuDNN, and what cuDNN refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from support.overriding import PRODUCT, VERSION, product_plan, with_m
from support.standin import Paths, Standin

from cudnn_bindgen.runtime.errors import CudnnError, PlanMismatchError, WorkspaceError
from cudnn_bindgen.runtime.handle import held_bytes
from runtime.test_missing import hide

Make = Callable[..., Any]
QUERY = "cudnnGetExecutionPlanWorkspaceSize"
GROWTH = 1 << 18
"""Bytes for each row: calls outgrow the blocks that the runtime takes."""
LARGE = replace(PRODUCT, growth=GROWTH)

direct = pytest.mark.parametrize("policy", ["direct"], indirect=True)


@pytest.fixture
def ov(product: ModuleType) -> Any:
    return product.Overrides()


# Workspace


@direct
def test_cudnn_is_asked_once_for_each_value(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    assert product.workspace_size() == product.workspace_size(None) == PRODUCT.workspace
    assert product.workspace_size(ov) == PRODUCT.workspace
    assert standin.calls(QUERY) == 0, "nothing is overridden"
    for _ in range(3):
        for m in range(2, 13):
            for values in (ov, product.Overrides()):
                values.set(M=m)
                assert product.workspace_size(values) == PRODUCT.workspace_of(with_m(m))
                arrays().call(product, values, with_m(m))
    assert standin.calls(QUERY) == 11
    product.load_plan()
    assert product.workspace_size(ov) == PRODUCT.workspace_of(with_m(12))
    assert standin.calls(QUERY) == 12, "of another plan"


@direct
def test_answers_are_bounded(product: ModuleType, standin: Standin, ov: Any) -> None:
    for stride in range(1025):
        ov.set_b(1, 4, 8, stride_b=stride)
        product.workspace_size(ov)
    for stride, asked in ((1024, 1025), (0, 1026), (0, 1026), (1, 1027)):
        ov.set_b(1, 4, 8, stride_b=stride)
        product.workspace_size(ov)
        assert standin.calls(QUERY) == asked


@direct
def test_each_device_is_asked(product: ModuleType, standin: Standin, ov: Any) -> None:
    standin.set_device_count(2)
    ov.set(M=5)
    for device, asked in ((0, 1), (1, 2), (0, 2), (1, 2)):
        with standin.context(device):
            assert product.workspace_size(ov) == PRODUCT.workspace_of(with_m(5))
        assert standin.calls(QUERY) == asked


def test_the_frontends_share_comes_on_top(product: ModuleType, arrays: Make, ov: Any) -> None:
    product.load_plan(product_plan(frontend_workspace=512))
    operands = arrays()
    for m in (5, 5, 5, 7):
        ov.set(M=m)
        assert product.workspace_size(ov) == 512 + PRODUCT.workspace_of(with_m(m))
        operands.call(product, ov, with_m(m))
        operands.call(product, ov, with_m(m), workspace_ptr=operands.workspace)


@direct
def test_nothing_is_asked_for_a_caller_who_brings_workspace(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    operands = arrays()
    for m in (2, 12, 7):
        ov.set(M=m)
        operands.call(product, ov, with_m(m), workspace_ptr=operands.workspace)
    assert standin.calls(QUERY) == 0
    assert held_bytes() == 0


def test_the_runtimes_block_is_large_enough_for_all(
    product: ModuleType, arrays: Make, standin: Standin, stream: int, ov: Any
) -> None:
    product.load_plan(product_plan(growth=GROWTH))
    operands = arrays()
    for m in (2, 12, 3, 11, 12, 2, 2, 12, 12):
        ov.set(M=m)
        operands.call(product, ov, with_m(m), stream=stream)
        assert held_bytes() >= LARGE.workspace_of(with_m(m)) == product.workspace_size(ov)
        operands.call(product, stream=stream)
    assert standin.violations("memory") == 0


def test_workspace_that_no_device_has(
    product: ModuleType, arrays: Make, standin: Standin, stream: int, ov: Any
) -> None:
    """cuDNN says of one call that it needs more than can be added up."""
    product.load_plan(product_plan(growth=1 << 57, frontend_workspace=512))
    operands = arrays()
    ov.set(M=12)
    for call in (
        lambda: product.workspace_size(ov),
        lambda: product.execute(*operands.arguments, stream=stream, overrides=ov),
    ):
        with pytest.raises(
            PlanMismatchError, match=f"here is a workspace of at most {2**60} bytes"
        ):
            call()
    assert operands.is_untouched()
    operands.call(product, stream=stream)


def test_inside_a_capture_the_block_does_not_grow(
    product: ModuleType, arrays: Make, standin: Standin, stream: int, ov: Any
) -> None:
    product.load_plan(product_plan(growth=GROWTH))
    operands = arrays()
    ov.set(M=3)
    operands.call(product, ov, with_m(3), stream=stream)
    held = held_bytes()
    operands.move()
    standin.begin_capture(stream)
    ov.set(M=12)
    message = f"^{LARGE.workspace_of(with_m(12))} bytes of workspace are needed while the stream"
    for _ in range(2):
        with pytest.raises(WorkspaceError, match=message):
            product.execute(*operands.arguments, stream=stream, overrides=ov)
    ov.set(M=2)
    product.execute(*operands.arguments, stream=stream, overrides=ov)
    status, graph = standin.end_capture_graph(stream)
    assert status == 0
    assert held_bytes() == held
    standin.replay(graph, stream)
    operands.check(with_m(2))
    ov.set(M=12)
    operands.call(product, ov, with_m(12), stream=stream)


def test_before_the_query_the_plans_size_holds(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    standin.set_version(92200)
    product.load_plan(product_plan(version=92200, growth=0))
    ov.set(M=5)
    assert product.workspace_size(ov) == PRODUCT.workspace
    for _ in range(3):
        arrays().call(product, ov, with_m(5))
    assert standin.calls(QUERY) == 0
    assert standin.violations("absent") == 0


def test_a_library_without_the_query(builds: Any, own_standin: Paths) -> None:
    builds.path("product")
    hide(own_standin.cudnn, QUERY)
    program = (
        "from support.standin import Paths, Standin; import product\n"
        f"libraries = Standin(Paths{(*map(str, own_standin),)})\n"
        f"libraries.set_version({VERSION})\n"
        "ov = product.Overrides()\n"
        "ov.set(M=5)\n"
        "with libraries.context():\n"
        "    print(product.workspace_size(ov))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(builds.directory), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [str(PRODUCT.workspace)], done.stderr


@pytest.mark.parametrize("call", [QUERY, "cudnnBackendCreateDescriptor", "cudnnBackendFinalize"])
@direct
def test_a_failed_query_is_asked_again(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any, call: str
) -> None:
    operands = arrays()
    operands.call(product)
    ov.set(M=5)
    for ask in (
        lambda: product.workspace_size(ov),
        lambda: product.execute(*operands.arguments, overrides=ov),
    ):
        standin.fail(call, status=4000)
        with pytest.raises(CudnnError) as caught:
            ask()
        assert caught.value.call == call
        assert caught.value.overrides.startswith("a=((1, 5, 4), (20, 4, 1)), ")
    operands.call(product, ov, with_m(5))


# Versions


@pytest.mark.parametrize("first", ["execute", "workspace_size", "load_plan", "declared"])
def test_a_cudnn_that_takes_no_overrides_is_refused_with_the_plan(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any, first: str
) -> None:
    operands = arrays()
    standin.set_version(92000)
    calls = {
        "execute": lambda: product.execute(*operands.arguments, overrides=ov),
        "workspace_size": lambda: product.workspace_size(ov),
        "load_plan": lambda: product.load_plan(product_plan(version=92000)),
        "declared": lambda: product.execute(*operands.arguments),
    }
    ov.set(M=5)
    for _ in range(2):
        with pytest.raises(PlanMismatchError) as caught:
            calls[first]()
    assert (caught.value.plan, caught.value.here) == ("92100 or newer", "92000")
    assert standin.calls("cudnnBackendFinalize") == 0
    assert operands.is_untouched()
    standin.set_version(VERSION)
    operands.call(product, ov, with_m(5))


def test_the_oldest_cudnn_that_takes_them(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    operands = arrays()
    standin.set_version(92100)
    product.load_plan(product_plan(version=92100, growth=0))
    ov.set(M=5)
    for _ in range(4):
        operands.call(product, ov, with_m(5))


# What cuDNN refuses


@pytest.mark.parametrize("brings_workspace", [True, False])
def test_what_cudnn_refuses_says_which_values_were_asked(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any, brings_workspace: bool
) -> None:
    operands = arrays()
    options = {"workspace_ptr": operands.workspace} if brings_workspace else {}
    asked = "a=((1, 1, 4), (4, 4, 1)), c=((1, 1, 8), (8, 8, 1)), d=((1, 2), (2, 1))"
    ov.set(M=1)
    for _ in range(4):
        with pytest.raises(CudnnError, match="crosses 1") as caught:
            product.execute(*operands.arguments, overrides=ov, **options)
        assert caught.value.overrides == asked
        assert str(caught.value).endswith(f"; overrides: {asked}")
        assert str(caught.value).startswith(f"product (graph {product.FINGERPRINT}): cudnn")
        assert operands.is_untouched()
        assert product.launch_stats()["direct"] == 0
    with pytest.raises(CudnnError) as caught:
        product.workspace_size(ov)
    assert caught.value.overrides == asked
    ov.set(M=5)
    operands.call(product, ov, with_m(5))
    standin.fail("cudnnBackendExecute", status=4000)
    product.set_launch_policy("direct")
    with pytest.raises(CudnnError) as caught:
        product.execute(*operands.arguments)
    assert caught.value.overrides == ""


@direct
@pytest.mark.parametrize("nth", range(1, 9))
def test_whichever_call_fails_the_next_one_works(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any, nth: int
) -> None:
    operands = arrays()
    operands.call(product)
    ov.set(M=5)
    standin.fail("cudnnBackendSetAttribute", nth, status=4000)
    with pytest.raises(CudnnError) as caught:
        for _ in range(2):
            operands.call(product, ov, with_m(5))
    assert caught.value.call == "cudnnBackendSetAttribute"
    assert caught.value.overrides.startswith("a=((1, 5, 4), ")
    operands.call(product, ov, with_m(5))
    assert PRODUCT.workspace_of(with_m(5)) == product.workspace_size(ov)

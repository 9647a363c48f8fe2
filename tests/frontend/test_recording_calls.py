"""What recording does to calls of the frontend, and what it writes; the frontend is a fake."""

from __future__ import annotations

import gc
import inspect
import random
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.documents import PLANS, python_plan
from support.recording_fakes import (
    LAYERNORM,
    OVERRIDE,
    SCALE,
    imported,
    new_frontend,
    only_graph,
    usage,
)

import cudnn_bindgen
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import RecordError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.recording import recorder as recorder_module
from cudnn_bindgen.frontend.recording import session as session_module
from cudnn_bindgen.frontend.recording.describe import describe, describe_files, describe_loaded

GONE = "calls of one that was gone before it could be described: built in a capture, or never"
METHODS = (
    *("execute", "execute_plan_at_index", "build", "build_plans", "build_plan_at_index"),
    "deserialize",
)


@pytest.fixture
def cudnn() -> Iterator[ModuleType]:
    frontend = new_frontend()
    with imported(frontend):
        yield frontend


def buffers(cudnn: Any, value: int = 7) -> dict[int, Any]:
    return {1: cudnn.Buffer((4, 8), (8, 1), value=value), 3: cudnn.Buffer((4, 8), (8, 1))}


def fingerprint_of(stem: Path) -> str:
    return bind(read_graph(stem.with_suffix(".plan").read_bytes())).fingerprint


def test_a_graph_and_its_calls(cudnn: Any, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path) as folder:
        graph = cudnn.pygraph(SCALE)
        graph.build()
        data = buffers(cudnn)
        for _ in range(1000):
            graph.execute(data, 0, cudnn.Handle())
    assert folder == tmp_path
    assert data[3].value == 7
    found = only_graph(tmp_path)
    key = fingerprint_of(SCALE)
    assert usage(tmp_path)["graphs"].keys() == {key}
    assert usage(tmp_path)["problems"] == []
    assert (tmp_path / f"{key}.json").read_text() == SCALE.with_suffix(".json").read_text()
    ((plan, calls),) = found["plans"].items()
    assert calls == found["calls"] == 1000
    assert plan.startswith(f"{key}-")
    assert (tmp_path / plan).read_bytes() == SCALE.with_suffix(".plan").read_bytes()
    assert found["threads"] == {"MainThread": 1000}
    # 1, 2, 4 ... 512
    assert found["looks"] == 10
    layout = {
        "shape": [4, 8],
        "stride": [8, 1],
        "data_type": "float16",
        "device": "cuda:0",
        "alignment": 256,
        "seen": 10,
    }
    assert found["layouts"] == {"1": [layout], "3": [layout]}
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_plan_is_written_and_can_be_read(cudnn: Any, path: Path, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path):
        cudnn.pygraph(path.with_suffix("")).build()
    (plan,) = tmp_path.glob("*.plan")
    assert bind(read_graph(plan.read_bytes())).fingerprint == plan.name.partition("-")[0]


def test_each_way_to_say_which_buffer_is_which(cudnn: Any, tmp_path: Path) -> None:
    graph = cudnn.pygraph(SCALE)
    graph.build()  # before anyone listens
    by_uid = buffers(cudnn)
    with cudnn_bindgen.record(tmp_path):
        graph.execute({cudnn.Tensor(1): by_uid[1], None: None, "y": by_uid[3]})
        graph.execute(list(by_uid.values()), tensor_uids=[1, 3], workspace=0)
        graph.execute(list(by_uid.values()), 0, None, None, None, None, (1, 3))
        graph.execute({1: 512, 3: 16})
    layouts = only_graph(tmp_path)["layouts"]
    assert layouts.keys() == {"1", "3"}
    # Nobody saw it built, so the first call has to prove that it is; the third is not looked at.
    assert [item["seen"] for item in layouts["1"]] == [1, 1]
    assert layouts["3"][1] == {
        "shape": None,
        "stride": None,
        "data_type": "",
        "device": "",
        "alignment": 16,
        "seen": 1,
    }


def test_results_and_errors_are_those_of_the_frontend(cudnn: Any, tmp_path: Path) -> None:
    def run() -> list[Any]:
        graph, found = cudnn.pygraph(LAYERNORM), []
        for value in range(20):
            data = buffers(cudnn, value)
            found.append(graph.execute(data, 0, None, [1], [[value, 2]], [[2, 1]]))
            found.append(data[3].value)
        for arguments in ((), ({},), ({1: 1}, 2, 3, 4, 5, 6, 7, 8)):
            with pytest.raises((TypeError, ValueError)) as caught:
                graph.execute(*arguments)
            found.append(str(caught.value))
        return found

    alone = run()
    state = random.getstate()
    with cudnn_bindgen.record(tmp_path):
        assert run() == alone
        assert random.getstate() == state
    assert run() == alone


def test_the_frontend_is_put_back(cudnn: Any, tmp_path: Path) -> None:
    before = {name: cudnn.pygraph.__dict__[name] for name in METHODS}
    signatures = {name: inspect.signature(method) for name, method in before.items()}
    with cudnn_bindgen.record(tmp_path):
        for name in METHODS:
            replaced = getattr(cudnn.pygraph, name)
            assert replaced is not before[name]
            assert inspect.signature(replaced) == signatures[name]
            assert (replaced.__name__, replaced.__doc__) == (name, before[name].__doc__)
        kept = cudnn.pygraph(SCALE).execute
    assert {name: cudnn.pygraph.__dict__[name] for name in METHODS} == before
    data = buffers(cudnn)
    kept(data)  # a bound method that the program has kept
    assert data[3].value == 7


def test_nothing_of_the_program_is_kept_alive(cudnn: Any, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.build()
        data = buffers(cudnn)
        handle = cudnn.Handle()
        counts = {id(one): sys.getrefcount(one) for one in (graph, data, data[1], handle)}
        for _ in range(100):
            graph.execute(data, handle=handle)
        for one in (graph, data, data[1], handle):
            assert sys.getrefcount(one) == counts[id(one)]
        gone = [weakref.ref(one) for one in (graph, data[1], handle)]
        del graph, data, handle, one
        gc.collect()
        assert [ref() for ref in gone] == [None] * 3
    assert only_graph(tmp_path)["calls"] == 100


def test_an_address_that_comes_again_is_another_graph(cudnn: Any, tmp_path: Path) -> None:
    stems = (SCALE, LAYERNORM)
    with cudnn_bindgen.record(tmp_path):
        for number in range(200):
            graph = cudnn.pygraph(stems[number % 2])
            graph.build()
            for _ in range(1 + number % 2):
                graph.execute(buffers(cudnn))
            del graph
    graphs = usage(tmp_path)["graphs"]
    assert graphs[fingerprint_of(SCALE)]["calls"] == 100
    assert graphs[fingerprint_of(LAYERNORM)]["calls"] == 200
    assert graphs[fingerprint_of(SCALE)]["objects"] == 100
    assert len(list(tmp_path.glob("*.plan"))) == 2


def test_threads(cudnn: Any, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.build()

        def work(calls: int) -> None:
            data = buffers(cudnn)
            for _ in range(calls):
                graph.execute(data)

        threads = [
            threading.Thread(target=work, args=(1000 * number,), name=f"worker {number}")
            for number in range(1, 6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = only_graph(tmp_path)
    assert found["calls"] == 15000
    # A system may give an ended thread's number to the next.
    assert sum(found["threads"].values()) == 15000
    assert {*found["threads"]} <= {f"worker {number}" for number in range(1, 6)}


def test_nothing_is_asked_of_a_graph_that_is_not_built(cudnn: Any, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        cudnn.pygraph.build, build = lambda graph: None, cudnn.pygraph.build
        for _ in range(3):
            with pytest.raises(ValueError, match="no buffers"):
                graph.execute({})
        cudnn.pygraph.build = build
        assert graph.serialized == 0
        graph.execute(buffers(cudnn))
        assert graph.serialized == 1
    assert only_graph(tmp_path)["calls"] == 4


def test_overrides_are_counted_each_and_then_by_sample(cudnn: Any, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(OVERRIDE)
        graph.build()
        for number in range(4000):
            m = 8 if number % 4 else 16
            graph.execute(
                buffers(cudnn),
                override_uids=[1],
                override_shapes=[[1, m, 32]],
                override_strides=[[m * 32, 32, 1]],
            )
            if number == 99:
                exact = dict(_tallies()[fingerprint_of(OVERRIDE)].overrides)
    assert sorted(exact.values()) == [25, 75]
    calls = {item["shapes"][0][1]: item["calls"] for item in only_graph(tmp_path)["overrides"]}
    assert calls.keys() == {8, 16}
    # A sample stands for the calls since the last one, so that all are stood for.
    assert 4000 - 63 <= sum(calls.values()) <= 4000
    assert 700 < calls[16] < 1300


def _tallies() -> Any:
    """The tallies of the recorder at work."""
    (session,) = session_module._current
    assert session._recorder is not None
    return session._recorder._ledger.tallies


class Capture:
    """PyTorch's answer to whether its current stream is being captured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = True
        torch = SimpleNamespace(
            is_initialized=lambda: True, is_current_stream_capturing=lambda: self.is_on
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=torch))


def test_nothing_is_serialized_during_a_capture(
    cudnn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = Capture(monkeypatch)
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.build()
        for _ in range(5):
            graph.execute(buffers(cudnn))
        assert graph.serialized == 0
        assert not list(tmp_path.iterdir())
        capture.is_on = False
        for _ in range(5):
            graph.execute(buffers(cudnn))
        assert graph.serialized == 1
        capture.is_on = True
        for _ in range(90):
            graph.execute(buffers(cudnn))
    found = only_graph(tmp_path)
    assert found["calls"] == 100
    assert found["captured"] == 3  # 16, 32, 64; those before had no name yet


def test_a_graph_that_lives_in_a_capture_only(
    cudnn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Capture(monkeypatch)
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.build()
        graph.execute(buffers(cudnn))
        del graph
        cudnn.pygraph(LAYERNORM).validate()
    (problem,) = usage(tmp_path)["problems"]
    assert problem == {"where": "a graph", "what": GONE, "count": 1}


def test_plans_of_one_graph(cudnn: Any, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        for index in range(3):
            graph.build_plan_at_index(index)
            for _ in range(index + 1):
                graph.execute(buffers(cudnn))
        graph.select_plan(0)
        graph.build_plans()
        for _ in range(10):
            graph.execute(buffers(cudnn))
        for _ in range(7):
            graph.execute_plan_at_index(buffers(cudnn), 0, 1)
    found = only_graph(tmp_path)
    assert sorted(found["plans"].values()) == [2, 3, 11]
    assert found["indexed"] == 7
    # The fake runs execute below execute_plan_at_index, through the original.
    assert found["calls"] == 16
    assert {path.name for path in tmp_path.glob("*.plan")} == {*found["plans"]}


def test_a_plan_that_is_loaded_is_written_as_it_is(cudnn: Any, tmp_path: Path) -> None:
    blob = LAYERNORM.with_suffix(".plan").read_bytes()
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.deserialize(cudnn.Handle(), list(blob))
        graph.execute(buffers(cudnn))
        assert graph.serialized == 0
    (plan,) = tmp_path.glob("*.plan")
    assert plan.read_bytes() == blob
    assert only_graph(tmp_path)["calls"] == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"refuses": "no JSON for\nthis engine"}, "plan: cannot be serialized: no JSON for this"),
        (
            {"engine": SimpleNamespace(name="sdpa_sm100"), "refuses": "no"},
            "the frontend's own engine sdpa_sm100",
        ),
    ],
)
def test_a_graph_without_a_plan_is_listed_with_the_reason(
    cudnn: Any, options: Any, reason: str, tmp_path: Path
) -> None:
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE, **options)
        graph.build()
        graph.execute(buffers(cudnn))
    found = only_graph(tmp_path)
    assert reason in found["reasons"][0]
    assert found["plans"] == {"": 1}
    assert [path.name for path in tmp_path.glob("*.*")] == [f"{fingerprint_of(SCALE)}.json"]


@pytest.mark.parametrize("lowered", [True, False])
def test_a_plan_of_the_frontends_own_engine_is_written(lowered: bool) -> None:
    class Own:
        selected_engine = SimpleNamespace(name="sdpa_sm90")

        def __repr__(self) -> str:
            return SCALE.with_suffix(".json").read_text() if lowered else "not lowered"

        def serialize(self, as_bytes: bool) -> bytes:
            return python_plan()

    found = describe(Own())
    assert found.key == fingerprint_of(SCALE) if lowered else found.key.startswith("unread-")
    assert found.files.get(found.plan) == python_plan()
    assert re.fullmatch(rf"{found.key}-[0-9a-f]{{8}}\.pyplan", found.plan)
    assert "engine sdpa_sm90, which `build` traces" in found.reasons[0]
    assert len(found.files) == 1 + lowered
    assert describe_loaded([list(python_plan())]) == describe_files(b"", python_plan(), [])
    cut_off = describe_files(b"", python_plan()[:-1], [])
    assert (cut_off.plan, cut_off.files) == ("", {})
    assert "plan: expected a whole Python plan" in cut_off.reasons[0]


def test_a_graph_that_codegen_refuses_is_written_under_a_name_of_its_own(tmp_path: Path) -> None:
    class Odd:
        gid = 0

        def __repr__(self) -> str:
            return f'{{"json_version": "2.0", "gid": {self.gid}}}'

        def serialize(self, as_bytes: bool) -> bytes:
            raise RuntimeError("no plan")

    one = describe(Odd())
    Odd.gid = 17
    assert one.key == describe(Odd()).key
    assert one.key.startswith("unread-")
    assert [*one.files] == [f"{one.key}.json"]
    assert any("structure: " in reason for reason in one.reasons)


def test_what_fails_inside_is_recorded_and_the_call_goes_on(cudnn: Any, tmp_path: Path) -> None:
    class Hostile:
        value = 1

        @property
        def shape(self) -> Any:
            raise LookupError("shapes are a secret")

    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.build()
        data = {1: Hostile(), 3: cudnn.Buffer((4, 8), (8, 1))}
        for _ in range(9):
            graph.execute(data)
    assert data[3].value == 1
    (problem,) = usage(tmp_path)["problems"]
    assert (problem["where"], problem["count"]) == ("a call", 4)
    assert "LookupError: shapes are a secret (test_recording_calls.py:" in problem["what"]
    assert only_graph(tmp_path)["calls"] == 9


def test_an_interrupt_is_not_swallowed(cudnn: Any, tmp_path: Path) -> None:
    class Slow:
        @property
        def shape(self) -> Any:
            raise KeyboardInterrupt

    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.build()
        with pytest.raises(KeyboardInterrupt):
            graph.execute({1: Slow(), 3: Slow()})


def test_a_folder_that_cannot_be_written_is_an_error_at_the_end_only(
    cudnn: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "graphs"
    data = buffers(cudnn)
    with pytest.raises(RecordError, match="cannot be written"), cudnn_bindgen.record(folder):
        folder.rmdir()
        folder.write_text("a file where the folder was")
        graph = cudnn.pygraph(SCALE)
        graph.build()
        graph.execute(data)
    assert data[3].value == 7


def test_what_the_program_raises_goes_before_what_recording_does(
    cudnn: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "graphs"
    with pytest.raises(ZeroDivisionError), cudnn_bindgen.record(folder):
        folder.rmdir()
        folder.write_text("a file where the folder was")
        cudnn.pygraph(SCALE).build()
        raise ZeroDivisionError
    with cudnn_bindgen.record(tmp_path / "next"):
        pass


def test_one_recording_at_a_time(cudnn: Any, tmp_path: Path) -> None:
    with cudnn_bindgen.record(tmp_path / "one"):
        with (
            pytest.raises(RecordError, match="one recording at a time, got one into"),
            cudnn_bindgen.record(tmp_path / "two"),
        ):
            pass
        cudnn.pygraph(SCALE).build()
    with cudnn_bindgen.record(tmp_path / "three"):
        cudnn.pygraph(SCALE).build()
    for name in ("one", "three"):
        assert only_graph(tmp_path / name)["objects"] == 1


def test_what_is_new_is_written_while_the_program_runs(
    cudnn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_SECONDS_APART", -1.0)
    with cudnn_bindgen.record(tmp_path):
        graph = cudnn.pygraph(SCALE)
        graph.build()
        assert only_graph(tmp_path)["calls"] == 0
        for _ in range(3 * 8192):
            graph.execute(buffers(cudnn))
        assert only_graph(tmp_path)["calls"] >= 2 * 8192

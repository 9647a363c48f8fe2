"""Recording of a program with ten graphs, threads and captures, and of calls in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)

import cudnn_bindgen  # noqa: E402
from cudnn_bindgen.frontend.recording.report import as_document  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

PROGRAM = Path(__file__).with_name("recorded_program.py")


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def recorded(frontend, tmp_path_factory):
    """What the program says alone and recorded, and the folder of the recording."""
    folder = tmp_path_factory.mktemp("recorded") / "graphs"
    alone = run(sys.executable, PROGRAM)
    command = (sys.executable, "-m", "cudnn_bindgen.cli", "record", "-o", folder, "--")
    return alone, run(*command, sys.executable, PROGRAM), folder


def test_results_are_the_same_bits(recorded):
    alone, together, _ = recorded
    assert together["results"] == alone["results"]
    assert len(alone["results"]) > 5


def test_every_graph_is_written_once_with_its_calls(recorded):
    _, said, folder = recorded
    report = as_document(folder)
    assert report["problems"] == []
    assert report["processes"] == 1
    assert len(report["graphs"]) == len(said["calls"])
    assert sorted(g["calls"] for g in report["graphs"]) == sorted(said["calls"].values())
    for graph in report["graphs"]:
        assert graph["reasons"] == []
        assert list(graph["plans"].values()) == [graph["calls"]]
        assert graph["run"]["refused"] == []
        assert graph["run"]["accepted"]
        assert graph["captured_looks"] >= 1
        assert graph["saving"]["ms"] > 0
    assert {p.suffix for p in folder.glob("*.*")} == {".json", ".plan"}
    assert len(list(folder.glob("*.plan"))) == len(said["calls"])


def test_each_written_plan_builds_and_runs(recorded, frontend, make_case, tmp_path):
    _, _, folder = recorded
    files = {f"recorded_{n}": path for n, path in enumerate(sorted(folder.glob("*.plan")))}
    failed = graphs.build_modules(files, tmp_path)
    assert failed == {}
    generator = torch.Generator("cuda").manual_seed(0)
    for name, path in files.items():
        plan = path.read_bytes()
        reference = graphs.reference_graph(plan, frontend)
        make_case(name, tmp_path, plan, reference, frontend, generator).verify()


def test_a_graph_that_was_there_before(working, tmp_path):
    """Its plan is serialized at its second call, once the first has shown that it is built."""
    case = next(case for case in working if case.name == "built_matmul_256")
    tensors = case.fresh()
    expected = case.expected(tensors)
    case.poison(tensors)
    with cudnn_bindgen.record(tmp_path):
        for _ in range(10):
            case.graph.execute(tensors, case.frontend_workspace, handle=case.handle)
    torch.cuda.synchronize()
    case.assert_same(tensors, expected)
    (graph,) = as_document(tmp_path)["graphs"]
    assert graph["fingerprint"] == case.module.FINGERPRINT
    assert graph["calls"] == 10
    assert len(graph["plans"]) == 1


def test_nothing_happens_inside_of_a_capture(working, tmp_path):
    """A graph whose only calls are captured is left alone; a capture that is disturbed fails."""
    import cudnn

    case = next(case for case in working if case.name == "built_matmul_256")
    tensors = case.fresh()
    expected = case.expected(tensors)
    case.poison(tensors)
    cuda_graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.current_stream().cuda_stream
    with cudnn_bindgen.record(tmp_path):
        with torch.cuda.graph(cuda_graph):
            cudnn.set_stream(case.handle, torch.cuda.current_stream().cuda_stream)
            for _ in range(4):
                case.graph.execute(tensors, case.frontend_workspace, handle=case.handle)
        cudnn.set_stream(case.handle, stream)
        assert not list(tmp_path.glob("*.plan"))
        cuda_graph.replay()
        torch.cuda.synchronize()
        case.assert_same(tensors, expected)
        case.graph.execute(tensors, case.frontend_workspace, handle=case.handle)
        assert len(list(tmp_path.glob("*.plan"))) == 1
    torch.cuda.synchronize()
    (graph,) = as_document(tmp_path)["graphs"]
    assert graph["calls"] == 5

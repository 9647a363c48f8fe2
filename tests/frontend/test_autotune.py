"""Which plan autotuning takes and what it says; the GPU is PyTorch's CPU part with a fake clock."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from click.testing import CliRunner  # noqa: E402
from support.documents import DATA, to_json  # noqa: E402
from support.fake_cuda import FakeCuda, at  # noqa: E402
from support.fake_frontend import Candidate, Frontend, installed  # noqa: E402

from cudnn_bindgen.cli import main  # noqa: E402
from cudnn_bindgen.codegen.errors import PlanError  # noqa: E402
from cudnn_bindgen.codegen.model.evidence import Candidate as Tried  # noqa: E402
from cudnn_bindgen.codegen.model.evidence import Evidence, Timing, read_evidence  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.frontend.planning import build_plan, cuda, measure  # noqa: E402
from cudnn_bindgen.frontend.planning import frontend as loading  # noqa: E402
from cudnn_bindgen.frontend.planning.autotune import fastest  # noqa: E402
from cudnn_bindgen.frontend.planning.build_plan import unwatched  # noqa: E402
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_input  # noqa: E402
from cudnn_bindgen.frontend.planning.measure import ROUNDS  # noqa: E402
from cudnn_bindgen.frontend.planning.options import PlanOptions  # noqa: E402
from frontend.test_planning_build import built, graph  # noqa: E402

AUTOTUNE = PlanOptions(autotune=True)


def adds(addresses: Mapping[int, int]) -> None:
    """Compute the graph, y = a + b."""
    at(addresses[3], 8).copy_(at(addresses[1], 8) + at(addresses[2], 8))


def adds_half(addresses: Mapping[int, int]) -> None:
    at(addresses[3], 4).copy_(at(addresses[1], 4) + at(addresses[2], 4))


def adds_badly(addresses: Mapping[int, int]) -> None:
    at(addresses[3], 8).copy_((at(addresses[1], 8) + at(addresses[2], 8)) * 1.1)


def adds_and_spoils(addresses: Mapping[int, int]) -> None:
    """Compute the graph, and spoil an input for whoever comes next."""
    adds(addresses)
    at(addresses[1], 8).fill_(5)


def steady(**times: float) -> dict[int, list[float]]:
    """Return the same time for each round, by plan: ``p0=3.0``."""
    return {int(name[1:]): [time] * ROUNDS for name, time in times.items()}


def tune(
    monkeypatch: pytest.MonkeyPatch,
    fake: Frontend,
    gpu: FakeCuda,
    options: PlanOptions = AUTOTUNE,
    watch: Callable[[str, int, int], None] = unwatched,
) -> Evidence:
    monkeypatch.setattr(loading, "importlib", installed(fake))
    monkeypatch.setattr(build_plan, "load_cuda", lambda: gpu)
    try:
        data = make_plan(read_input(to_json(fake.raw)), options=options, watch=watch)
    finally:
        assert fake.live_handles == 0
    plan = read_graph(data).plan
    assert plan is not None and plan.evidence is not None
    evidence = read_evidence(plan.evidence)
    assert evidence is not None
    chosen = next(item for item in evidence.candidates if item.rank == evidence.chosen)
    knobs = [f"{name}={value}" for name, value in sorted(chosen.knobs.items())]
    assert plan.engine == " ".join([f"engine {chosen.engine}", *knobs])
    return evidence


def test_the_fastest_is_taken_and_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [
        Candidate(8, 64, computes=adds),
        Candidate(2, 16, knobs={"CUDNN_KNOB_TYPE_STAGES": 2}, computes=adds),
        Candidate(3, 0, computes=adds),
    ]
    fake = Frontend(graph(), offered)
    gpu = FakeCuda(steady(p0=5.0, p1=3.25, p2=4.0))
    evidence = tune(monkeypatch, fake, gpu)
    assert evidence.candidates == (
        Tried(0, "agrees", 8, {}, 64, 5.0, 0.0, 0.0),
        Tried(1, "agrees", 2, {"STAGES": 2}, 16, 3.25, 0.0, 0.0),
        Tried(2, "agrees", 3, {}, 0, 4.0, 0.0, 0.0),
    )
    assert (evidence.chosen, evidence.method) == (1, "autotune")
    assert (evidence.gpu, evidence.driver) == ("NVIDIA FAKE", "580.65.06")
    assert (evidence.cudnn, evidence.sm, evidence.sm_count) == (91900, 90, 132)
    # Six sets of 48 bytes are the first that have more than 256 between two turns of one.
    assert evidence.timing == Timing(0, 48, 7, ROUNDS)
    assert fake.calls[-2:] == ["build_plan_at_index(1)", "serialize(1)"]
    assert fake.streams == [77]
    # In turn, so that a clock that drifts meets all alike.
    assert gpu.replayed == [0, 1, 2] * ROUNDS


def test_what_does_not_build_serialize_or_run_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [
        Candidate(1, reason="no kernel"),
        Candidate(20_500),
        Candidate(4, stuck="not serializable"),
        Candidate(5, 8, idle="no\nluck"),
        Candidate(6, 8, computes=adds),
        Candidate(6, 8, computes=adds),
    ]
    fake = Frontend(graph(), offered)
    evidence = tune(monkeypatch, fake, FakeCuda(steady(p4=5.0)))
    says = "frontend 1.32.0 says:"
    assert evidence.candidates == (
        Tried(0, "refused", reason=f"plan 0 does not build: {says} no kernel"),
        Tried(
            2, "refused", workspace=0, reason=f"cannot serialize the plan: {says} not serializable"
        ),
        Tried(3, "refused", 5, {}, 8, reason=f"plan 3 does not run: {says} no luck"),
        Tried(4, "agrees", 6, {}, 8, 5.0, 0.0, 0.0),
        Tried(5, "repeated", 6, {}, 8, reason="the same as plan 4"),
    )
    assert evidence.chosen == 4


@pytest.mark.parametrize(
    ("computes", "reason"),
    [
        (adds_badly, r"out_0: [\d.]+ times what is tolerated"),
        (adds_half, "out_0: NaN or infinities, or unwritten bytes, at other places"),
        (adds_and_spoils, "in_0: changed, though it is an input"),
        (None, "out_0: NaN or infinities, or unwritten bytes, at other places"),
    ],
    ids=["other numbers", "half", "spoilt input", "nothing"],
)
def test_the_fastest_that_differs_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, computes: Any, reason: str
) -> None:
    offered = [Candidate(number, computes=adds) for number in (8, 2, 3)]
    offered[1].computes = computes
    gpu = FakeCuda(steady(p0=5.0, p1=1.0, p2=6.0))
    evidence = tune(monkeypatch, Frontend(graph(), offered), gpu)
    assert evidence.chosen == 0
    # What it did to operands is undone for the next.
    assert [item.outcome for item in evidence.candidates] == ["agrees", "differs", "agrees"]
    differs = evidence.candidates[1]
    assert (differs.outcome, differs.microseconds) == ("differs", None)
    assert re.fullmatch(reason, differs.reason)


def test_what_cannot_be_captured_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [Candidate(number, computes=adds) for number in (8, 2, 3)]
    fake = Frontend(graph(), offered)
    gpu = FakeCuda(steady(p0=5.0, p1=1.0, p2=1.0), stuck=[1], empty=[2])
    evidence = tune(monkeypatch, fake, gpu)
    assert evidence.chosen == 0
    assert [item.outcome for item in evidence.candidates] == ["agrees", *["not capturable"] * 2]
    assert evidence.candidates[1].reason == "operation not permitted when stream is capturing"
    assert evidence.candidates[2].reason.startswith("its CUDA graph computes something else: out_0")
    fake = Frontend(graph(), offered[1:])
    with pytest.raises(PlanError, match="no plan can be taken: operation not permitted") as caught:
        tune(monkeypatch, fake, FakeCuda({}, stuck=[0, 1]))
    assert "--autotune" in str(caught.value)


def test_ties_go_to_the_heuristics(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [Candidate(number, computes=adds) for number in (8, 2)]
    noisy = [4.0, 4.4, 4.1, 4.2, 4.3, 4.0, 4.4, 4.2, 4.1]
    gpu = FakeCuda({0: noisy, 1: [4.1] * ROUNDS})
    evidence = tune(monkeypatch, Frontend(graph(), offered), gpu)
    assert (evidence.candidates[0].microseconds, evidence.candidates[0].spread) == (4.2, 0.3)
    assert evidence.chosen == 0


def test_fastest() -> None:
    def one(rank: int, time: float | None, spread: float = 0.0, outcome: str = "agrees") -> Tried:
        return Tried(rank, outcome, microseconds=time, spread=spread)

    assert fastest([]) is None
    assert fastest([one(0, None), one(1, None, outcome="refused")]) is None
    assert fastest([one(0, 1.0, outcome="differs"), one(1, 9.0)]) == one(1, 9.0)
    # The middle one is within the spread of the best, the first is not.
    best = [one(3, 5.2, 0.1), one(5, 5.05, 0.1), one(6, 5.0, 0.05)]
    assert fastest(best) == best[1]
    # A large spread of a slow one does not make it win against what it does not reach.
    assert fastest([one(0, 9.0, 1.0), one(1, 5.0, 0.1)]) == one(1, 5.0, 0.1)
    assert fastest([one(1, 5.0), one(0, 5.0)]) == one(0, 5.0)


def test_a_limit_of_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [Candidate(8, 64, computes=adds), Candidate(2, 16, computes=adds)]
    fake = Frontend(graph(), offered)
    options = PlanOptions(heuristics=("B",), max_workspace=16, autotune=True)
    evidence = tune(monkeypatch, fake, FakeCuda(steady(p1=5.0)), options)
    assert evidence.chosen == 1
    assert "expected a workspace of at most 16 bytes, got 64" in evidence.candidates[0].reason
    assert (evidence.options.heuristics, evidence.options.max_workspace) == (("B",), 16)
    assert {"create_execution_plans(B)", "deselect_workspace_greater_than(16)"} <= {*fake.calls}


def test_nothing_to_choose_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match=r"has no plan for the graph: plan 0 does not build: .* no"):
        tune(monkeypatch, Frontend(graph(), [Candidate(1, reason="no")]), FakeCuda({}))
    with pytest.raises(PlanError, match="has no plan for the graph: it offers none of its own"):
        tune(monkeypatch, Frontend(graph(), [Candidate(20_500)]), FakeCuda({}))
    fake = Frontend(graph(), [Candidate(1, idle="no"), Candidate(2, idle="never")])
    with pytest.raises(PlanError, match=r"no plan can be taken: plan 0 does not run: .* never"):
        tune(monkeypatch, fake, FakeCuda({}))


def test_nothing_to_compare_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """All NaN agrees with anything that writes nothing."""
    fake = Frontend(graph(), [Candidate(1), Candidate(2)])
    with pytest.raises(PlanError, match="expected numbers in out_0 of plan 0, got none"):
        tune(monkeypatch, fake, FakeCuda(steady(p0=1.0, p1=1.0)))


def test_the_file_must_hold_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [Candidate(8, computes=adds), Candidate(2, computes=adds)]

    class Stubborn(Frontend):
        def set_stream(self, handle: object, stream: int) -> None:
            super().set_stream(handle, stream)
            self.tuning = True

    fake = Stubborn(graph(), offered)
    gpu = FakeCuda(steady(p0=5.0, p1=3.0))
    replay = gpu.time_replay

    def and_from_then_on_the_other(capture: Any) -> float:
        fake.serializes = 0
        return replay(capture)

    monkeypatch.setattr(gpu, "time_replay", and_from_then_on_the_other)
    with pytest.raises(PlanError, match="expected engine 2 in the plan file, got engine 8"):
        tune(monkeypatch, fake, gpu)


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [Candidate(8, 64, computes=adds)]
    # Room for two more sets of 48 bytes, as half of what is free may be taken.
    gpu = FakeCuda(steady(p0=5.0), memory=4 * 48)
    evidence = tune(monkeypatch, Frontend(graph(), offered), gpu)
    assert evidence.timing is not None and evidence.timing.sets == 3
    assert evidence.candidates[0].microseconds == 5.0

    def exhausted(*arguments: object) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measure, "_copied", exhausted)
    evidence = tune(monkeypatch, Frontend(graph(), offered), FakeCuda(steady(p0=5.0)))
    assert evidence.timing is not None and evidence.timing.sets == 1
    monkeypatch.setattr(measure, "make_operands", exhausted)
    with pytest.raises(PlanError) as caught:
        tune(monkeypatch, Frontend(graph(), offered), FakeCuda({}, memory=10))
    assert caught.value.problem == (
        "--autotune: expected 96 bytes for operands and 64 for workspace, got 10 bytes that are "
        "free on the GPU"
    )


def test_a_plan_that_breaks_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(addresses: Mapping[int, int]) -> None:
        monkeypatch.setattr(measure, "compare", lambda *arguments: torch.raise_it())

    monkeypatch.setattr(
        torch,
        "raise_it",
        lambda: (_ for _ in ()).throw(RuntimeError("illegal\naccess")),
        raising=False,
    )
    fake = Frontend(graph(), [Candidate(8, computes=lambda a: (adds(a), breaks(a)))])
    with pytest.raises(PlanError, match="executing plan 0 leaves the GPU unusable: illegal access"):
        tune(monkeypatch, fake, FakeCuda({}))


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [Candidate(number, computes=adds) for number in (8, 2)]
    seen: list[tuple[str, int, int]] = []
    gpu = FakeCuda(steady(p0=5.0, p1=3.0))
    fake = Frontend(graph(), offered)
    tune(monkeypatch, fake, gpu, watch=lambda *step: seen.append(step))
    assert seen[:4] == [("building", n, 2) for n in range(3)] + [("comparing", 0, 2)]
    assert seen[-1] == ("timing", 2 * (1 + ROUNDS), 2 * (1 + ROUNDS))
    assert built(fake) == [f"build_plan_at_index({n})" for n in (0, 1, 1)]


# PyTorch


def load(monkeypatch: pytest.MonkeyPatch, found: Any) -> PlanError:
    def import_module(name: str) -> Any:
        assert name == "torch"
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(cuda, "importlib", SimpleNamespace(import_module=import_module))
    with pytest.raises(PlanError) as caught:
        cuda.load_cuda()
    return caught.value


def test_no_pytorch_or_none_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    error = load(monkeypatch, ImportError("No module named 'torch'"))
    assert error.problem == "--autotune: cannot import PyTorch: No module named 'torch'"
    assert "without --autotune" in error.hint
    blind = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    assert load(monkeypatch, blind).problem == "--autotune: expected PyTorch to see a GPU, got none"


def test_a_graph_that_waits_for_other_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executed alone it would never end."""
    fake = Frontend(json.loads((DATA / "structure-v2/batchnorm_peer.json").read_bytes()), [])
    with pytest.raises(PlanError) as caught:
        tune(monkeypatch, fake, FakeCuda(steady()))
    assert "peer_stats, which waits for other GPUs" in caught.value.problem
    assert caught.value.hint == "plan without --autotune"


# The command


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.json").write_bytes(to_json(graph()))
    offered = [
        Candidate(8, 64, computes=adds),
        Candidate(2, 16, knobs={"CUDNN_KNOB_TYPE_STAGES": 2}, computes=adds),
        Candidate(3, computes=adds_badly),
    ]
    monkeypatch.setattr(loading, "importlib", installed(Frontend(graph(), offered)))
    monkeypatch.setattr(build_plan, "load_cuda", lambda: FakeCuda(steady(p0=5.0, p1=3.25)))
    result = CliRunner().invoke(main, ["plan", "g.json", "--autotune"])
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    lines = [" ".join(line.split()) for line in result.stderr.splitlines()]
    assert lines[0].startswith(
        "chosen: by autotune, the fastest of those that agree with the first"
    )
    assert "plan engine knobs workspace us spread error outcome reason" in lines
    assert "0 8 64 5.00 0.00 0.00 agrees" in lines
    assert "1 2 STAGES=2 16 3.25 0.00 0.00 chosen" in lines
    assert any(line.startswith("2 3 0 ") and "differs out_0: " in line for line in lines)
    assert lines[-1] == "g.plan: cuDNN 9.19.0, SM 90, engine 2 STAGES=2"
    shown = CliRunner().invoke(main, ["show", "g.plan"])
    assert "1 2 STAGES=2 16 3.25 0.00 0.00 chosen" in [
        " ".join(line.split()) for line in shown.output.splitlines()
    ]


# The GPU, as far as it can be told without one


class Graph:
    """A CUDA graph that remembers what is done with it; `fails` at its end, as invalid ones do."""

    fails = False

    def __init__(self) -> None:
        self.log: list[str] = []

    def capture_begin(self, capture_error_mode: str) -> None:
        self.log.append(capture_error_mode)

    def capture_end(self) -> None:
        self.log.append("end")
        if self.fails:
            raise RuntimeError("capture was invalidated")


def gpu_with(graph: type[Graph], made: list[Graph]) -> cuda.Cuda:
    def make() -> Graph:
        made.append(graph())
        return made[-1]

    properties = SimpleNamespace(name="GPU", L2_cache_size=50 << 20)
    module = SimpleNamespace(
        current_device=lambda: 1,
        get_device_properties=lambda device: properties,
        Stream=lambda device: SimpleNamespace(cuda_stream=4096),
        CUDAGraph=make,
    )
    return cuda.Cuda(SimpleNamespace(device=lambda *name: name, cuda=module))


def test_a_capture_ends_whatever_happens_in_it() -> None:
    made: list[Graph] = []
    gpu = gpu_with(Graph, made)
    assert (gpu.name, gpu.l2_bytes, gpu.stream, gpu.device) == ("GPU", 50 << 20, 4096, ("cuda", 1))
    calls: list[int] = []
    assert gpu.capture([lambda: calls.append(1), lambda: calls.append(2)]) is made[0]
    assert (calls, made[0].log) == ([1, 2], ["thread_local", "end"])

    def refuse() -> None:
        raise PlanError("plan 1 does not run")

    class Invalid(Graph):
        fails = True

    for kind in (Graph, Invalid):
        with pytest.raises(PlanError, match="plan 1 does not run"):
            gpu_with(kind, made).capture([refuse])
        assert made[-1].log == ["thread_local", "end"]
    with pytest.raises(RuntimeError, match="invalidated"):
        gpu_with(Invalid, made).capture([])


def test_the_version_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = gpu_with(Graph, [])
    file = tmp_path / "version"
    monkeypatch.setattr(cuda, "_DRIVER", file)
    assert gpu.driver == ""
    kinds = {
        "580.65.06": "x86_64 Kernel Module  580.65.06  Sun Jul 27",
        "575.57": "Open Kernel Module for x86_64  575.57  Release Build",
    }
    for version, kind in kinds.items():
        file.write_text(f"NVRM version: NVIDIA UNIX {kind}\nGCC version:  gcc version 12.2.0\n")
        assert gpu.driver == version
    file.write_text("nothing of use\n")
    assert gpu.driver == ""

"""Two GPUs in one process: each runs a plan of its own, with the bytes that the first one gives."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from running import moved  # noqa: E402

from cudnn_bindgen.frontend.file_cache import ENVIRONMENT  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

DEVICES = (0, 1)
ROUNDS = 8  # more than a record waits for
DUMP = Path(__file__).resolve().parents[1] / "data/plans/cudnn-9.19-sm90/matmul_bias_relu.json"


@pytest.fixture(autouse=True)
def two_of_a_kind(frontend):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    kinds = [torch.cuda.get_device_properties(device) for device in DEVICES]
    if len({(k.major, k.minor, k.multi_processor_count) for k in kinds}) > 1:
        pytest.skip("the two GPUs are of different kinds, which may give other bits")


class Round:
    """Operands on one device, and the bytes that the frontend makes of them on the first one."""

    def __init__(self, case, device):
        self.case, self.module, self.device = case, case.module, device
        tensors = case.fresh()
        self.expected = case.expected(tensors)
        self.tensors = moved(tensors, device)
        if device:
            case.kept.append(self.tensors)  # as `fresh` does: no address comes again

    def execute(self, stream):
        self.module.execute(*self.case.arguments(self.tensors), stream=stream.cuda_stream)

    def poison(self):
        self.case.poison(self.tensors)

    def verify(self):
        """Call on PyTorch's current stream of the device, and compare."""
        with torch.cuda.device(self.device):
            self.poison()
            self.execute(torch.cuda.current_stream())
            self.check()

    def check(self):
        """Compare on the current stream."""
        self.case.assert_same(moved(self.tensors, 0), self.expected)


@pytest.mark.parametrize("policy", ["direct", "record"])
def test_calls_in_turn(case, policy):
    case.module.close()  # and with it the plans and records of earlier tests
    case.module.load_plan()
    case.module.set_launch_policy(policy)
    before = case.module.launch_stats()["recorded"]
    try:
        streams = {device: torch.cuda.Stream(device) for device in DEVICES}
        for _ in range(ROUNDS):
            for device in DEVICES:
                turn = Round(case, device)
                torch.cuda.synchronize()
                with torch.cuda.stream(streams[device]):
                    turn.execute(streams[device])
                    turn.check()
                    torch.cuda.synchronize()
        recorded = case.module.launch_stats()["recorded"] - before
        # Scalars differ from round to round, and a record holds theirs.
        if not any(operand.role == "scalar" for operand in case.module.OPERANDS):
            assert recorded == (len(DEVICES) if policy == "record" else 0), "one on each device"
    finally:
        case.module.set_launch_policy("auto")


def test_a_thread_for_each(case):
    start = threading.Barrier(len(DEVICES))

    def call(device, rounds):
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            start.wait(60)
            for index in range(50):
                turn = rounds[index % len(rounds)]
                turn.poison()
                turn.execute(stream)
                turn.check()

    jobs = [(device, [Round(case, device) for _ in range(2)]) for device in DEVICES]
    for device in DEVICES:
        torch.cuda.synchronize(device)
    with ThreadPoolExecutor(len(DEVICES)) as pool:
        for future in [pool.submit(call, *job) for job in jobs]:
            future.result(120)


def test_a_capture_on_each(case):
    captured = []
    for device in DEVICES:
        turn, stream = Round(case, device), torch.cuda.Stream(device)
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            turn.execute(stream)  # takes the workspace for this stream
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                turn.execute(stream)
        captured.append((turn, graph))
    for _ in range(2):
        for turn, graph in captured:
            with torch.cuda.device(turn.device):
                turn.poison()
                graph.replay()
                torch.cuda.synchronize()
                turn.check()


def test_closing_ends_both(case):
    rounds = [Round(case, device) for device in DEVICES]
    for _ in range(2):
        for turn in rounds:
            turn.verify()
        case.module.close()
        case.module.load_plan()


def test_a_missing_plan_is_made_once_for_both(frontend, make_case, tmp_path, monkeypatch, planned):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    name = "two_devices_missing"
    failed = graphs.build_modules({name: DUMP}, tmp_path)
    assert not failed, failed
    module = graphs.import_module(name, tmp_path)
    with torch.cuda.device(1):
        module.load_plan(on_missing="plan")
    [made] = (tmp_path / "plans").glob("plan_*.plan")
    plan = made.read_bytes()
    generator = torch.Generator("cuda").manual_seed(0)
    reference = graphs.reference_graph(plan, frontend)
    case = make_case(name, tmp_path, plan, reference, frontend, generator)
    for device in (*DEVICES, 1):
        Round(case, device).verify()
    assert len(planned) == 1

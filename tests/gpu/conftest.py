"""Builds every graph's module once for the session and pairs it with the frontend's own graph."""

from __future__ import annotations

import faulthandler
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
# Helpers beside this file; last, because tests/ has files of the same names.
sys.path.append(str(ROOT / "tests/gpu"))

import graphs  # noqa: E402  (needs the path above)
import tensor_graphs  # noqa: E402

PLANS = sorted((ROOT / "tests/data/plans/cudnn-9.19-sm90").glob("*.plan"))
BUILDERS = graphs.BUILDERS | tensor_graphs.BUILDERS
CASES = [*(f"plan_{path.stem}" for path in PLANS), *(f"built_{name}" for name in BUILDERS)]
NUMBERS = {
    "cudnnVersion": re.compile(rb'"cudnnVersion":(\d+)'),
    "deviceVer": re.compile(rb'"deviceVer":(\d+)'),
}


# Of one test, without the session's fixtures. A kernel that never ends blocks its process for good.
TEST_SECONDS = 180


def pytest_configure():
    # Before pytest captures what stands in its place.
    global _stderr
    _stderr = os.dup(2)


@pytest.fixture(autouse=True)
def time_limit():
    """End the process of a test that hangs; with pytest-xdist another one runs the rest."""
    faulthandler.dump_traceback_later(TEST_SECONDS, exit=True, file=_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@dataclass
class Case:
    """One graph: its generated module, its plan file and the frontend's graph of the same plan."""

    name: str
    directory: Path
    plan: bytes
    graph: Any
    handle: Any
    generator: Any

    def __post_init__(self):
        import torch

        self.module = graphs.import_module(self.name, self.directory)
        size = max(self.graph.get_workspace_size(), self.module.workspace_size(), 1)
        self.frontend_workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.kept = []

    def fresh(self):
        """Return random operands at addresses that no earlier round of this case used."""
        tensors = graphs.make_operands(self.module.OPERANDS, self.generator, "cuda")
        self.kept.append(tensors)
        return tensors

    def workspace(self):
        """Return a caller's workspace."""
        import torch

        size = max(self.module.workspace_size(), 1)
        return torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda")

    def arguments(self, tensors):
        return graphs.arguments(self.module.OPERANDS, tensors)

    def poison(self, tensors):
        graphs.poison(self.module.OPERANDS, tensors)

    def expected(self, tensors):
        """Return all bytes after the frontend ran on a copy of the operands: uid → bytes."""
        import torch

        runs = []
        for _ in range(2):
            copies = graphs.clone(tensors)
            self.graph.execute(copies, self.frontend_workspace, handle=self.handle)
            torch.cuda.synchronize()
            runs.append({uid: graphs.storage(tensor) for uid, tensor in copies.items()})
        if not all(torch.equal(runs[0][uid], runs[1][uid]) for uid in tensors):
            # Atomics add up in another order each time: no binding can match such bits.
            pytest.skip("the frontend's own two runs of this plan differ in their bits")
        for operand in self.module.OPERANDS:
            if operand.role == "output":
                poisoned = bool((runs[0][operand.uid] == 0xFF).all())
                assert not poisoned, f"{operand.argument}: the frontend wrote nothing"
        return runs[0]

    def assert_same(self, tensors, expected):
        """Compare whole storages, padding and inputs included."""
        import torch

        for operand in self.module.OPERANDS:
            if operand.uid in tensors:
                same = torch.equal(graphs.storage(tensors[operand.uid]), expected[operand.uid])
                assert same, f"{operand.argument} differs from the frontend's"

    def edited_plan(self, key):
        """Return the plan file with another number for a key of cuDNN's own JSON text."""
        match = NUMBERS[key].search(self.plan)
        # Of the same length: UBJSON states the length of the text around it.
        other = b"%0*d" % (len(match[1]), int(match[1]) - 100)
        return self.plan[: match.start(1)] + other + self.plan[match.end(1) :]

    def verify(self):
        """Run once on fresh operands and compare: the module works."""
        import torch

        tensors = self.fresh()
        expected = self.expected(tensors)
        self.module.execute(*self.arguments(tensors))
        torch.cuda.synchronize()
        self.assert_same(tensors, expected)


@pytest.fixture(scope="session")
def frontend():
    """The cuDNN frontend's handle, on a machine that has all that these tests need."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no NVIDIA GPU")
    pytest.importorskip("cudnn", reason="the cuDNN frontend (nvidia-cudnn-frontend) is missing")
    torch.zeros(1, device="cuda")  # makes the CUDA context current
    return graphs.frontend_handle()


@pytest.fixture(scope="session")
def make_case():
    """Return the class, which test files cannot import: there are two modules named conftest."""
    return Case


@pytest.fixture(scope="session")
def cases(frontend, tmp_path_factory):
    """Every case by name; else the reason to skip it as text, or what went wrong as an error."""
    import cudnn
    import torch

    directory = tmp_path_factory.mktemp("modules")
    loaded, loaded_text = cudnn.backend_version(), cudnn.backend_version_string()
    major, minor = torch.cuda.get_device_capability()
    files, references, reasons = {}, {}, {}
    for path in PLANS:
        name, plan = f"plan_{path.stem}", path.read_bytes()
        built_with = int(NUMBERS["cudnnVersion"].search(plan)[1])
        sm = int(NUMBERS["deviceVer"].search(plan)[1])
        if built_with != loaded:
            reasons[name] = f"plan of cuDNN {built_with}, loaded is {loaded} ({loaded_text})"
        elif sm != major * 100 + minor * 10:
            reasons[name] = f"plan for SM {sm // 10}, this GPU has SM {major}{minor}"
        else:
            references[name], files[name] = graphs.reference_graph(plan, frontend), path
    for builder, build in BUILDERS.items():
        name = f"built_{builder}"
        try:
            references[name] = build()
        except cudnn.cudnnGraphNotSupportedError as error:
            reasons[name] = f"cuDNN {loaded_text} does not serve this graph here: {error}"
            continue
        files[name] = directory / f"{builder}.plan"
        files[name].write_bytes(graphs.plan_bytes(references[name]))
    failed = graphs.build_modules(files, directory)
    generator = torch.Generator("cuda").manual_seed(0)
    found = {name: RuntimeError(failure) for name, failure in failed.items()}
    for name in set(files) - set(failed):
        plan = files[name].read_bytes()
        try:
            found[name] = Case(name, directory, plan, references[name], frontend, generator)
        except Exception as error:
            found[name] = error
    return found | reasons


@pytest.fixture
def working(cases):
    """The cases that can run here."""
    return [cases[name] for name in CASES if isinstance(cases[name], Case)]


@pytest.fixture(params=CASES)
def case(request, cases):
    found = cases[request.param]
    if isinstance(found, str):
        pytest.skip(found)
    if isinstance(found, Exception):
        raise found
    yield found
    found.kept.clear()


@pytest.fixture
def planned(monkeypatch):
    """A list with an entry for each plan that is made at load."""
    from cudnn_bindgen.frontend.planning import missing

    calls = []
    make_plan = missing.make_plan

    def counted(*arguments):
        calls.append(1)
        return make_plan(*arguments)

    monkeypatch.setattr(missing, "make_plan", counted)
    return calls


def operators_of(built, tmp_path_factory):
    """Build operators for graphs of torch_graphs.py; skip what cuDNN does not serve here."""
    import cudnn
    import torch_graphs

    try:
        made = built()
    except cudnn.cudnnGraphNotSupportedError as error:
        pytest.skip(f"cuDNN does not serve this graph here: {error}")
    name = built.__name__
    module = torch_graphs.build_operators(made, tmp_path_factory.mktemp(name), f"gpu_{name}")
    module.built = made
    module.bindings = {key: sys.modules[key] for key in made}
    return module


@pytest.fixture(scope="session")
def attn(frontend, tmp_path_factory):
    """Operators of causal attention, with its gradient."""
    import torch_graphs

    return operators_of(torch_graphs.attention, tmp_path_factory)


@pytest.fixture(scope="session")
def packed(frontend, tmp_path_factory):
    """The same for q, k and v in one buffer."""
    import torch_graphs

    return operators_of(torch_graphs.packed_attention, tmp_path_factory)


@pytest.fixture(scope="session")
def conv(frontend, tmp_path_factory):
    """Operators of a convolution, with both its gradients."""
    import torch_graphs

    return operators_of(torch_graphs.convolution, tmp_path_factory)


@pytest.fixture(scope="session")
def norm(frontend, tmp_path_factory):
    """Operators of RMS norm, with its gradient."""
    import torch_graphs

    return operators_of(torch_graphs.rms_norm, tmp_path_factory)

"""Modules of bundles: the plan for the cuDNN that runs is taken, and never another one.

The bundles hold plans of one graph for cuDNN 9.19 and 9.27, on an H100 or H200; whichever of the
two is loaded, the frontend's own graph is that of its plan.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from running import Call  # noqa: E402

from cudnn_bindgen.codegen.bind.bundle import write_bundle  # noqa: E402
from cudnn_bindgen.codegen.errors import GraphFormatError  # noqa: E402
from cudnn_bindgen.runtime.errors import PlanMismatchError, PlanMissingError  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

PLANS = Path(__file__).resolve().parents[1] / "data" / "plans"
VERSIONS = {91900: "cudnn-9.19-sm90", 92700: "cudnn-9.27-sm90"}
NAMES = ("scale_by_value", "sdpa_thd")


@dataclass
class Files:
    """The plan for what is here, and the one for the other cuDNN; edited ones of the first."""

    here: bytes
    other: bytes
    version: int

    def edited(self, key: str, value: int) -> bytes:
        """Return the plan for what is here with another number in cuDNN's own JSON text."""
        match = re.search(rb'"%s":(\d+)' % key.encode(), self.here)
        # Of the same length: UBJSON states the length of the text around it.
        number = b"%0*d" % (len(match[1]), value)
        return self.here[: match.start(1)] + number + self.here[match.end(1) :]

    @property
    def other_sm(self) -> bytes:
        return self.edited("deviceVer", 800)

    @property
    def other_count(self) -> bytes:
        return self.edited("multiProcessorCount", 131)


def bundle_of(*plans: bytes) -> bytes:
    return write_bundle([(f"{number}.plan", plan) for number, plan in enumerate(plans)])


@pytest.fixture(scope="module")
def plan_files(frontend):
    """The two plans of each graph, where one of them is for what is here."""
    import cudnn

    here = cudnn.backend_version()
    properties = torch.cuda.get_device_properties(0)
    device = (properties.major, properties.minor, properties.multi_processor_count)
    if here not in VERSIONS:
        pytest.skip(f"plans of cuDNN 91900 and 92700, loaded is {here}")
    if device != (9, 0, 132):
        pytest.skip(f"plans for SM 90 with 132 multiprocessors, this GPU has {device}")
    [other] = set(VERSIONS) - {here}
    return {name: Files(plan_of(name, here), plan_of(name, other), version=here) for name in NAMES}


def plan_of(name: str, version: int) -> bytes:
    return (PLANS / VERSIONS[version] / f"{name}.plan").read_bytes()


@pytest.fixture(scope="module")
def bundled(plan_files, frontend, make_case, tmp_path_factory):
    """Modules by name: of bundles with both plans, and of the other cuDNN's plan alone."""
    directory = tmp_path_factory.mktemp("bundled")
    sources: dict[str, Any] = {}
    for name, files in plan_files.items():
        sources[f"both_{name}"] = bundle_of(files.here, files.other)
        sources[f"other_{name}"] = files.other
    paths = {name: directory / f"{name}.bundle" for name in sources}
    for name, path in paths.items():
        path.write_bytes(sources[name])
    failed = graphs.build_modules(paths, directory)
    assert not failed, failed
    generator = torch.Generator("cuda").manual_seed(0)

    found = {}
    for name in NAMES:
        plan = plan_files[name].here
        for module in (f"both_{name}", f"other_{name}"):
            # A case asks for the workspace: its own plan would be refused.
            graphs.import_module(module, directory).load_plan(paths[f"both_{name}"])
            reference = graphs.reference_graph(plan, frontend)
            found[module] = make_case(module, directory, plan, reference, frontend, generator)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_module_of_a_bundle_gives_the_frontends_bytes(bundled, name):
    case = bundled[f"both_{name}"]
    case.module.load_plan()
    case.verify()
    assert [row[:3] for row in case.module.GRAPH["plans"]] == [(90, 132, v) for v in VERSIONS]
    case.module.close()
    case.module.load_plan()
    case.verify()
    assert case.module.workspace_size() == case.module.WORKSPACE_SIZE


@pytest.mark.parametrize("name", NAMES)
def test_run_takes_tensors_as_with_one_plan(bundled, name):
    Call(bundled[f"both_{name}"]).check_works()


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_is_loaded_into_a_module_of_one_plan(bundled, plan_files, tmp_path, name):
    case, files = bundled[f"other_{name}"], plan_files[name]
    with pytest.raises(PlanMismatchError, match=str(files.version)):
        case.module.load_plan()  # its own plan is for the other cuDNN
    path = tmp_path / "both.bundle"
    path.write_bytes(bundle_of(files.other, files.here))
    for source in (path, str(path), path.read_bytes()):
        case.module.load_plan(source)
        case.verify()


@pytest.mark.parametrize("edit", ["other cuDNN", "other SM", "other SM count"])
def test_a_bundle_without_a_plan_for_here_is_refused_with_the_list(bundled, plan_files, edit):
    case, files = bundled["both_scale_by_value"], plan_files["scale_by_value"]
    plans = {
        "other cuDNN": (files.other, files.other_sm),
        "other SM": (files.other_sm, files.edited("deviceVer", 860)),
        "other SM count": (files.other_count, files.other),
    }[edit]
    case.verify()
    with pytest.raises(PlanMissingError) as caught:
        case.module.load_plan(bundle_of(*plans))
    message = str(caught.value)
    assert "132" in message
    [other] = set(VERSIONS) - {files.version}
    numbers = {"other cuDNN": (other, 80), "other SM": (80, 86), "other SM count": (131, other)}
    assert all(str(number) in message or dotted(number) in message for number in numbers[edit])
    case.verify()  # what was there still serves


def dotted(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def test_a_damaged_or_edited_bundle_is_refused(bundled, plan_files, tmp_path):
    case, files = bundled["both_scale_by_value"], plan_files["scale_by_value"]
    whole = bundle_of(files.here, files.other)
    path = tmp_path / "cut.bundle"
    path.write_bytes(whole[:-1])
    damaged = {
        "cut at the end": path,
        "cut in the middle": whole[: len(whole) // 2],
        "a flipped bit": whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:],
    }
    for what, source in damaged.items():
        with pytest.raises(GraphFormatError, match="bundle"):
            case.module.load_plan(source)
            pytest.fail(what)
        case.verify()


def test_a_plan_is_made_where_a_bundle_lacks_it(bundled, plan_files, tmp_path, monkeypatch):
    """Elementwise, so that whichever engine is planned gives the same bits."""
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", str(tmp_path))
    case, files = bundled["both_scale_by_value"], plan_files["scale_by_value"]
    lacking = bundle_of(files.other, files.other_sm)
    try:
        with pytest.raises(PlanMissingError, match="on_missing"):
            case.module.load_plan(lacking)
        for _ in range(2):  # the second one comes from the cache
            case.module.load_plan(lacking, on_missing="plan")
            case.verify()
        assert any(tmp_path.rglob("*"))
    finally:
        case.module.load_plan()
    case.verify()


def test_the_command_bundles_and_builds(plan_files, tmp_path):
    files = plan_files["scale_by_value"]
    (tmp_path / "a.plan").write_bytes(files.here)
    (tmp_path / "b.plan").write_bytes(files.other)
    command = [sys.executable, "-m", "cudnn_bindgen.cli"]
    made = subprocess.run(
        [*command, "bundle", "a.plan", "b.plan", "-o", "ab.bundle"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "ab.bundle").read_bytes() == bundle_of(files.here, files.other)

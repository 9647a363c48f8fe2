"""What today's frontend writes when it lowers a graph is undone, whichever cuDNN it lowers for.

The frontend is the real one, the libcudnn below it the stand-in, as in test_planning_rebuild.py.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.documents import DATA, TESTS
from support.standin import Paths

from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.model.lowering import as_built
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.compare import compare
from cudnn_bindgen.frontend.planning.make_plan import read_input

VERSIONS = ("91300", "91900", "92800")

Dumps = dict[str, dict[str, tuple[str, str]]]


@pytest.fixture(scope="module")
def libraries(standin_paths: Paths) -> Path:
    try:
        importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    return standin_paths.cudnn.parent


def run_frontend(libraries: Path, program: str, *arguments: str) -> Any:
    path = os.environ.get("LD_LIBRARY_PATH")
    done = subprocess.run(
        [sys.executable, str(TESTS / "support" / "programs" / program), *arguments],
        env=os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{path}" if path else str(libraries)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def dumps(libraries: Path) -> Dumps:
    found: Dumps = run_frontend(libraries, "lower.py", *VERSIONS)
    return found


def test_a_graph_has_one_fingerprint_before_and_after_under_every_cudnn(dumps: Dumps) -> None:
    digests = {
        name: {fingerprint(read_graph(text.encode())) for pair in found.values() for text in pair}
        for name, found in dumps.items()
    }
    assert {name: found for name, found in digests.items() if len(found) > 1} == {}
    # add() and bias() are one operation, and so are mul() and scale().
    assert len(set().union(*digests.values())) == len(dumps) - 2


def test_planning_sees_the_same_graph(dumps: Dumps) -> None:
    for name, found in dumps.items():
        for before, after in found.values():
            built, lowered = read_input(before.encode()), read_input(after.encode())
            assert list(compare(built, lowered)) == [], name
            back = [
                item.path for item in compare(lowered, built) if not item.path.endswith(".name")
            ]
            assert back == [], name


def test_lowering_did_something(dumps: Dumps) -> None:
    """So that the other tests compare what differs."""
    changed = {
        name
        for name, found in dumps.items()
        for before, after in found.values()
        if json.loads(before)["nodes"] != json.loads(after)["nodes"]
        or json.loads(before)["tensors"] != json.loads(after)["tensors"]
    }
    assert changed <= {name for name in dumps if name.startswith("sdpa")}
    assert {
        *("sdpa_window", "sdpa_dropout", "sdpa_bias_alibi", "sdpa_fp8", "sdpa_fp8_backward"),
        *("sdpa_backward", "sdpa_backward_bias", "sdpa_backward_dropout"),
    } <= changed
    for name in changed:
        for _, after in dumps[name].values():
            graph = read_graph(after.encode())
            assert as_built(as_built(graph)) == as_built(graph)
    ways = {
        json.loads(before)["nodes"][0]["implementation"]
        for before, _ in dumps["sdpa_window"].values()
    }
    assert ways == {"COMPOSITE", "UNIFIED"}


def test_an_implementation_that_an_older_cudnn_does_not_have(libraries: Path) -> None:
    plan = DATA / "plans" / "cudnn-9.27-sm90" / "sdpa_thd.plan"
    found = run_frontend(libraries, "implement.py", str(plan), *VERSIONS)
    assert [refusal for _, refusal in found.values()] == ["", "", ""]
    assert "Unified SDPA node requires" in found["91300"][0]
    assert "unified SDPA node requires" in found["91900"][0]
    assert found["92800"][0] == ""

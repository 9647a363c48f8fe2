"""Plans that are made at load, on a GPU: the frontend's bytes, made once, never a wrong one."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from filelock import FileLock  # noqa: E402

from cudnn_bindgen.codegen.errors import PlanError  # noqa: E402
from cudnn_bindgen.frontend.file_cache import ENVIRONMENT, CacheWarning  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

DUMPS = Path(__file__).resolve().parents[1] / "data" / "plans" / "cudnn-9.19-sm90"
# Dumps of lowered graphs. The attention is COMPOSITE in them, its K turned, its scale a tensor.
NAMES = {f"missing_{stem}": DUMPS / f"{stem}.json" for stem in ("matmul_bias_relu", "sdpa_thd")}
PRODUCT = "missing_matmul_bias_relu"

PROGRAM = """
import importlib, sys, time
import torch
torch.zeros(1, device="cuda")
sys.path.insert(0, sys.argv[1])
module = importlib.import_module(sys.argv[2])
time.sleep(max(0, float(sys.argv[3]) - time.time()))
from cudnn_bindgen.frontend.planning import missing
made = missing.make_plan
def counted(*arguments):
    print("planned", flush=True)
    return made(*arguments)
missing.make_plan = counted
module.load_plan(on_missing="plan")
print(module.workspace_size())
"""


@pytest.fixture(scope="module")
def built(frontend, tmp_path_factory):
    """The folder of modules that have no plan, and what could not be built."""
    directory = tmp_path_factory.mktemp("missing")
    return directory, graphs.build_modules(NAMES, directory)


@pytest.fixture(params=NAMES)
def module(request, built):
    return load(request.param, built)


@pytest.fixture
def product(built):
    return load(PRODUCT, built)


def load(name, built):
    directory, failed = built
    assert name not in failed, failed[name]
    module = graphs.import_module(name, directory)
    module.close()  # a plan of an earlier test
    return module


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder of plans, which is not there yet."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    return tmp_path / "plans"


def plan_files(folder):
    return sorted(folder.glob("plan_*.plan"))


def load_or_skip(module):
    try:
        module.load_plan(on_missing="plan")
    except PlanError as error:
        if "cuDNN does not take" in str(error) or "cuDNN has no plan" in str(error):
            pytest.skip(str(error))
        raise


def check(module, plan, make_case, frontend, directory):
    """Compare with the frontend's own graph of the plan in the cache."""
    reference = graphs.reference_graph(plan, frontend)
    generator = torch.Generator("cuda").manual_seed(0)
    make_case(module.__name__, directory, plan, reference, frontend, generator).verify()


def test_it_gives_the_frontends_bytes(module, built, planned, cache, make_case, frontend):
    load_or_skip(module)
    (file,) = plan_files(cache)
    check(module, file.read_bytes(), make_case, frontend, built[0])
    stored = file.stat()
    module.close()
    module.load_plan(on_missing="plan")  # from the cache
    assert len(planned) == 1
    assert file.stat().st_ino == stored.st_ino and len(plan_files(cache)) == 1
    check(module, file.read_bytes(), make_case, frontend, built[0])


def test_of_four_processes_one_plans(built, cache):
    directory, failed = built
    assert PRODUCT not in failed, failed[PRODUCT]
    command = [sys.executable, "-c", PROGRAM, str(directory), PRODUCT, str(time.time() + 15)]
    environment = os.environ | {ENVIRONMENT: str(cache.parent)}
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=180)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said
    assert sum(text.count("planned") for text in said) == 1
    assert len({text.splitlines()[-1] for text in said}) == 1
    (file,) = plan_files(cache)
    digest = file.with_suffix(".sha256").read_text()
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-100])


def edited(path):
    """Change the SM in cuDNN's own text, and the digest with it: as if it was stored so."""
    content = path.read_bytes()
    start = content.index(b'"deviceVer":') + len(b'"deviceVer":')
    other = b"8" if content[start : start + 1] != b"8" else b"7"
    content = content[:start] + other + content[start + 1 :]
    path.write_bytes(content)
    path.with_suffix(".sha256").write_text(hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("damage", [cut_off, edited])
def test_a_damaged_plan_is_made_again(damage, product, built, planned, cache, make_case, frontend):
    product.load_plan(on_missing="plan")
    (file,) = plan_files(cache)
    damage(file)
    damaged = file.read_bytes()
    product.close()
    product.load_plan(on_missing="plan")
    assert len(planned) == 2 and file.read_bytes() != damaged
    check(product, file.read_bytes(), make_case, frontend, built[0])


def test_a_cache_that_is_only_read(product, planned, cache, monkeypatch):
    product.load_plan(on_missing="plan")
    (file,) = plan_files(cache)

    # Root writes to a folder whatever its mode is, so the calls are made to fail.
    def refuse(lock, *arguments, **options):
        if Path(lock.lock_file).parent == cache:
            raise OSError(30, "Read-only file system")
        return acquire(lock, *arguments, **options)

    acquire = FileLock.acquire
    monkeypatch.setattr(FileLock, "acquire", refuse)
    product.close()
    product.load_plan(on_missing="plan")
    assert len(planned) == 1
    file.unlink()
    product.close()
    with pytest.warns(CacheWarning, match="planning for this process only"):
        product.load_plan(on_missing="plan")
    assert len(planned) == 2 and product.workspace_size() >= 0
    assert plan_files(cache) == []

"""How many records are kept unless a call to set_launch_policy says so."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from support.standin import Paths


def run(builds: Any, paths: Paths, records: str) -> subprocess.CompletedProcess[str]:
    builds.path("product")
    program = (
        "from support.standin import Paths, Standin; from support.overriding import *\n"
        f"libraries = Standin(Paths({str(paths.cudnn)!r}, {str(paths.driver)!r}))\n"
        "libraries.set_version(VERSION)\n"
        "import product\n"
        "product.set_launch_policy('record')\n"
        "with libraries.context():\n"
        "    arrays, ov = Arrays(libraries), product.Overrides()\n"
        "    for m in (3, 3, 4, 4, 5, 5):\n"
        "        ov.set(M=m)\n"
        "        arrays.call(product, ov, with_m(m))\n"
        "print(product.launch_stats()['evicted'])\n"
        "product.close()\n"
    )
    environment = {
        "PYTHONPATH": os.pathsep.join([str(builds.directory), *sys.path]),
        "CUDNN_BINDGEN_RECORDS": records,
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("records", "evicted"), [("", 0), ("2", 1), ("1", 2), ("64", 0)])
def test_the_environment_says_how_many(
    builds: Any, standin_paths: Paths, records: str, evicted: int
) -> None:
    done = run(builds, standin_paths, records)
    assert done.stdout.split() == [str(evicted)], done.stderr


@pytest.mark.parametrize("wrong", ["0", "many", "4097", "-1"])
def test_a_wrong_environment_is_an_error_at_import(
    builds: Any, standin_paths: Paths, wrong: str
) -> None:
    done = run(builds, standin_paths, wrong)
    got = wrong if wrong.isdecimal() else repr(wrong)
    message = f"CUDNN_BINDGEN_RECORDS: expected 1 to 4096, got {got}"
    assert done.stderr.splitlines()[-1] == f"cudnn_bindgen.runtime.errors.OperandError: {message}"

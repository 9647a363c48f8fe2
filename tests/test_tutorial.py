"""The tutorial does what it says: its files are written, its commands run, in their order."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support.documents import TESTS
from test_build_systems import run

PAGE = TESTS.parent / "docs/tutorial.md"
# A block: the comment before it, its language, its text.
BLOCK = re.compile(
    r"(<!-- not by the test.*? -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@pytest.mark.long
def test_the_tutorial(tmp_path: Path) -> None:
    if importlib.util.find_spec("cudnn") is None:  # imported, it would load the real cuDNN
        pytest.skip("nvidia-cudnn-frontend is not installed")
    said = ""
    for is_left_out, language, text in BLOCK.findall(PAGE.read_text()):
        if language != "sh":
            file = tmp_path / text.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif not is_left_out:
            for command in text.splitlines():
                said = run(command, tmp_path)
    # The last command prints the module's docstring.
    assert re.findall(r"Plan for SM (\d+)", said) == ["80", "90", "100", "120"]
    arguments = re.findall(r"^\d+ +\d+ +(\w+)", said, re.MULTILINE)
    assert arguments == [f"{name}_ptr" for name in "qkvo"]

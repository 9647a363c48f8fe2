"""Write what docs/show.md shows anew: ``python tools/pictures.py``, with the extra ``svg``."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from cudnn_bindgen.cli import main

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.documents import DATA, chain, to_json  # noqa: E402 - which is no package of ours

PAGE = ROOT / "docs" / "show.md"
FOLDER = ROOT / "docs" / "show"
PICTURES = {
    "attention": DATA / "plans/cudnn-9.19-sm90/sdpa_thd.plan",
    "gradients": DATA / "structure-v2/sdpa_bwd.json",
}
CHAIN = 60

# A command of the page, and what it prints.
_CAPTURE = re.compile(
    r"(?<=```console\n)\$ COLUMNS=80 cudnn-bindgen show (\S+)\n.*?(?=```)", re.DOTALL
)


def capture(page: str) -> str:
    """Return the page's text with what its commands print today."""

    def printed(match: re.Match[str]) -> str:
        said = io.StringIO()
        with redirect_stdout(said):
            main(["show", str(ROOT / match[1])], standalone_mode=False)
        return f"{match[0].splitlines()[0]}\n{said.getvalue()}"

    os.environ["COLUMNS"] = "80"
    try:
        return _CAPTURE.sub(printed, page)
    finally:
        del os.environ["COLUMNS"]


def draw(directory: Path) -> None:
    """Write the pictures into a folder."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "chain.json"
        file.write_bytes(to_json(chain(CHAIN)))
        for name, graph in {**PICTURES, "chain": file}.items():
            target = directory / f"{name}.svg"
            main(["show", str(graph), "--svg", "-o", str(target)], standalone_mode=False)


if __name__ == "__main__":
    PAGE.write_text(capture(PAGE.read_text()))
    draw(FOLDER)

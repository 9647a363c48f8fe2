"""Write what docs/show.md shows anew: ``python tools/pictures.py``, with the extra ``svg``."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

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


def photograph(directory: Path) -> None:
    """Write what `show` prints on a terminal of 80 columns, colours and all, as a picture."""
    terminal = {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "cudnn_bindgen", "show", str(PICTURES["attention"])]
    printed = subprocess.run(  # noqa: S603 - this program
        command, env=os.environ | terminal, capture_output=True, text=True, check=True
    )
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(Text.from_ansi(printed.stdout), soft_wrap=True)
    # Without the fonts of another host, which a page must not ask for.
    plain = re.sub(r"@font-face {{.*?}}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    text = console.export_svg(title="cudnn-bindgen show", code_format=plain, unique_id="show")
    (directory / "terminal.svg").write_text(text)


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
    photograph(FOLDER)

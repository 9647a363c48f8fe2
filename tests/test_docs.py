"""What the pages name is there: links and their headings, files, tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from support.documents import TESTS

ROOT = TESTS.parent
PAGES = sorted(
    page
    for folder in (".", "docs", "benchmarks", "examples", "generated", "runtime", "tests", "tools")
    for page in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A file of the repository: a folder at its top, and a name with an ending.
FILE = re.compile(
    r"`((?:codegen|commands|docs|doctor|examples|frontend|runtime|templates|tests|tools)/[\w./-]*\.\w+)`"
)
TEST = re.compile(r"`(test_\w+)`")


@cache
def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in found}


@cache
def names_of_tests() -> set[str]:
    texts = (path.read_text() for path in TESTS.rglob("test_*.py"))
    found = {name for text in texts for name in re.findall(r"def (test_\w+)", text)}
    return found | {"test_aot_dispatch_dynamic"}  # PyTorch's


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    missing += [name for name in TEST.findall(text) if name not in names_of_tests()]
    for link in LINK.findall(text):
        if not link.startswith("https://"):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in headings(target)):
                missing.append(link)
    assert not missing
